//! Volumes made and judged by f2fs-tools, in memory while this crate works on them.
#![allow(dead_code, unreachable_pub)]

use medfs_device::{BlockDevice, WriteTag};
use medfs_format::{BLOCK_SIZE, Block};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// A device in memory; blocks are stored only once they are not zero, so that large volumes stay small.
#[derive(Clone)]
pub struct Memory(std::sync::Arc<Mutex<Vec<u8>>>);

impl Memory {
    pub fn load(path: &Path) -> Memory {
        Memory::from(fs::read(path).expect("image is readable"))
    }
    pub fn from(mut bytes: Vec<u8>) -> Memory {
        bytes.truncate(bytes.len() / BLOCK_SIZE * BLOCK_SIZE);
        Memory(Mutex::new(bytes).into())
    }
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
    pub fn deep_copy(&self) -> Memory {
        Memory::from(self.bytes())
    }
    pub fn save(&self, path: &Path) {
        fs::write(path, &*self.0.lock().unwrap()).expect("image is writable");
    }
}

fn range(len: usize, addr: u64, count: usize) -> io::Result<std::ops::Range<usize>> {
    let start = addr.checked_mul(BLOCK_SIZE as u64).filter(|&s| s + (count * BLOCK_SIZE) as u64 <= len as u64);
    match start {
        Some(start) => Ok(start as usize..start as usize + count * BLOCK_SIZE),
        None => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("block {addr} is outside the device"))),
    }
}

impl BlockDevice for Memory {
    fn block_count(&self) -> u64 {
        (self.0.lock().unwrap().len() / BLOCK_SIZE) as u64
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        let data = self.0.lock().unwrap();
        let range = range(data.len(), addr, blocks.len())?;
        for (block, bytes) in blocks.iter_mut().zip(data[range].chunks_exact(BLOCK_SIZE)) {
            block.0.copy_from_slice(bytes);
        }
        Ok(())
    }
    fn write(&self, addr: u64, blocks: &[&Block], _: WriteTag) -> io::Result<()> {
        let mut data = self.0.lock().unwrap();
        let range = range(data.len(), addr, blocks.len())?;
        for (block, bytes) in blocks.iter().zip(data[range].chunks_exact_mut(BLOCK_SIZE)) {
            bytes.copy_from_slice(&block.0);
        }
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn read_only(&self) -> bool {
        false
    }
}

/// Runs a tool of f2fs-tools.
pub fn tool(name: &str, args: &[&str]) -> Output {
    match Command::new(name).args(args).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin").output() {
        Ok(output) => output,
        Err(e) => panic!("{name} could not be run ({e}): these tests need the package f2fs-tools"),
    }
}

/// A temporary folder with images.
pub struct Bed {
    pub dir: tempfile::TempDir,
}

impl Bed {
    pub fn new() -> Bed {
        Bed { dir: tempfile::tempdir().expect("temporary folder") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes an empty volume of `mib` MiB with these options of `mkfs.f2fs`.
    pub fn mkfs(&self, name: &str, mib: u64, options: &[&str]) -> PathBuf {
        let path = self.path(name);
        fs::File::create(&path).and_then(|f| f.set_len(mib << 20)).expect("image file");
        let mut args = vec!["-f", "-q"];
        args.extend(options);
        let file = path.to_str().unwrap().to_owned();
        args.push(&file);
        let out = tool("mkfs.f2fs", &args);
        assert!(out.status.success(), "mkfs.f2fs {options:?}: {}", String::from_utf8_lossy(&out.stdout));
        path
    }

    /// Copies a folder's content to a volume.
    pub fn sload(&self, image: &Path, from: &Path) {
        let out = tool("sload.f2fs", &["-f", from.to_str().unwrap(), image.to_str().unwrap()]);
        assert!(out.status.success(), "sload.f2fs: {}", String::from_utf8_lossy(&out.stdout));
    }

    /// A folder with every kind of file that sload knows: small, inline, large with indirect nodes, sparse
    /// names, big directories, symbolic links short and long.
    pub fn tree(&self) -> PathBuf {
        let root = self.path("tree");
        if root.exists() {
            return root;
        }
        let write = |path: PathBuf, bytes: Vec<u8>| fs::write(path, bytes).unwrap();
        let pattern = |len: usize| (0..len).map(|i| (i / 4096 * 31 + i % 251) as u8).collect::<Vec<_>>();
        fs::create_dir_all(root.join("deep/er/still")).unwrap();
        fs::create_dir_all(root.join("many")).unwrap();
        write(root.join("empty"), vec![]);
        write(root.join("small"), b"hello".to_vec());
        write(root.join("page"), pattern(5000));
        write(root.join("direct"), pattern(4096 * 1500));
        write(root.join("indirect"), pattern(4096 * (923 + 2 * 1018 + 100)));
        write(root.join("deep/er/still/x"), pattern(100_000));
        for i in 0..700 {
            write(root.join(format!("many/file number {i:05} with a longish name")), pattern(i % 40));
        }
        std::os::unix::fs::symlink("small", root.join("link")).unwrap();
        std::os::unix::fs::symlink("x".repeat(3900), root.join("long link")).unwrap();
        root
    }

    /// A volume with [`Bed::tree`] on it.
    pub fn filled(&self, name: &str, options: &[&str]) -> PathBuf {
        let image = self.mkfs(name, 100, options);
        self.sload(&image, &self.tree());
        image
    }

    /// What `fsck.f2fs --dry-run` says of a volume: `Ok` where it finds nothing wrong.
    pub fn judge(&self, dev: &Memory) -> Result<(), String> {
        let path = self.path("judged.img");
        dev.save(&path);
        judge(&path)
    }
}

/// What `fsck.f2fs --dry-run` says of an image. Its exit code and its output both count.
pub fn judge(path: &Path) -> Result<(), String> {
    let out = tool("fsck.f2fs", &["-f", "--dry-run", path.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    let done = text.contains("[FSCK] other corrupted bugs");
    let complaints = text
        .lines()
        .filter(|l| ["[Fail]", "ASSERT", "[FIX]", "Mismatch", "Error"].iter().any(|w| l.contains(w)))
        .collect::<Vec<_>>();
    if out.status.success() && done && complaints.is_empty() {
        Ok(())
    } else {
        Err(format!("fsck.f2fs, {}:\n{}\n----\n{text}", out.status, complaints.join("\n")))
    }
}
