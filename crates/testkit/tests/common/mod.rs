//! The golden volumes: images that `mkfs.f2fs` and the kernel's f2fs left.
#![allow(dead_code, unreachable_pub)]

use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag};
use medfs_format::{BLOCK_SIZE, Block};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where they are.
pub fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// A file without its compression.
pub fn unpacked(path: &Path) -> impl Read {
    let file = File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    ruzstd::decoding::StreamingDecoder::new(file).expect("a zstd file")
}

/// An image as a device.
pub fn load_image(path: &Path) -> MemDevice {
    let mut blocks = Vec::new();
    let mut input = unpacked(path);
    let mut block = Block::boxed();
    let mut count = 0;
    loop {
        let mut filled = 0;
        while filled < BLOCK_SIZE {
            match input.read(&mut block.0[filled..]).expect("the image unpacks") {
                0 => break,
                n => filled += n,
            }
        }
        if filled == 0 {
            break;
        }
        assert_eq!(filled, BLOCK_SIZE, "an image is whole blocks");
        if block.0 != [0; BLOCK_SIZE] {
            blocks.push((count, block.clone()));
        }
        count += 1;
    }
    let device = MemDevice::new(count);
    for (addr, block) in blocks {
        device.write(addr, &[&block], WriteTag::new(Cause::Data, Temperature::Cold)).expect("memory");
    }
    device
}

/// The names of all golden volumes that start so.
pub fn volumes(start: &str) -> Vec<String> {
    let files = fs::read_dir(golden()).expect("tests/golden").flatten();
    let names = files.filter_map(|f| Some(f.file_name().to_str()?.strip_suffix(".img.zst")?.to_owned()));
    let mut names: Vec<String> = names.filter(|n| n.starts_with(start)).collect();
    names.sort();
    names
}
