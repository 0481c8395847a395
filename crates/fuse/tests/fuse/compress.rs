//! Compressed files through a mount: chattr, and F2FS's ioctls as `f2fs_io` makes them.

use crate::support::{Image, Mount, fuse_available, run, transports};
use medfs::{CompressMode, MountOptions};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

fn f2fs_io(command: &[&str], path: &Path) -> String {
    run("f2fs_io", &[command, &[path.to_str().unwrap()]].concat())
}

/// The number that `f2fs_io` prints of a file.
fn blocks(command: &str, path: &Path) -> u64 {
    let out = f2fs_io(&[command], path);
    let number = out.split_whitespace().find_map(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("{out}"))
}

fn refused(command: &str, path: &Path) -> bool {
    !Command::new("f2fs_io").arg(command).arg(path).output().unwrap().status.success()
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 50) as u8).collect()
}

#[test]
fn f2fs_io_finds_what_it_expects() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let m = Mount::new(transport);
        let path = m.path("f");
        fs::write(&path, "").unwrap();
        assert!(refused("get_coption", &path), "not compressed");
        run("chattr", &["+c", path.to_str().unwrap()]);
        assert!(run("lsattr", &[path.to_str().unwrap()]).split(' ').next().unwrap().contains('c'));
        f2fs_io(&["set_coption", "2", "3"], &path);
        assert!(f2fs_io(&["get_coption"], &path).contains('3'));
        let content = text(300_000);
        fs::write(&path, &content).unwrap();
        // Dirty pages of the kernel's cache are written first.
        let released = blocks("release_cblocks", &path);
        let before = fs::metadata(&path).unwrap().blocks();
        assert!(released > 50, "{released}");
        assert!(fs::read(&path).unwrap() == content);
        let f = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(f.write_at(b"x", 0).unwrap_err().raw_os_error(), Some(libc::EPERM));
        drop(f);
        assert_eq!(blocks("reserve_cblocks", &path), released);
        assert_eq!(fs::metadata(&path).unwrap().blocks(), before + released * 8);
        assert_eq!(blocks("get_cblocks", &path), released);
        assert!(refused("compress", &path), "compress_mode=fs");
        let f = OpenOptions::new().write(true).open(&path).unwrap();
        f.write_at(b"x", 70_000).unwrap();
        f.sync_all().unwrap();
        drop(f);
        let image = m.finish();

        let mut options = MountOptions::default();
        options.compress.mode = CompressMode::User;
        let m = Mount::open_with(image, transport, options);
        let mut content = content;
        content[70_000] = b'x';
        assert!(fs::read(m.path("f")).unwrap() == content);
        f2fs_io(&["decompress"], &m.path("f"));
        assert_eq!(blocks("get_cblocks", &m.path("f")), 0);
        f2fs_io(&["compress"], &m.path("f"));
        assert_eq!(blocks("get_cblocks", &m.path("f")), released);
        assert!(fs::read(m.path("f")).unwrap() == content);
        m.finish();
    }
}

#[test]
fn a_flag_that_comes_too_late_is_refused() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let m = Mount::new(transport);
        let path = m.path("f");
        // Perhaps in the kernel's cache alone.
        fs::write(&path, text(10_000)).unwrap();
        let late = Command::new("chattr").arg("+c").arg(&path).output().unwrap();
        assert!(!late.status.success());
        assert!(fs::read(&path).unwrap() == text(10_000));
        m.finish();
    }
}

/// All files of the mount are compressed.
#[test]
fn stores_through_a_mapping_reach_compressed_files() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let mut options = MountOptions::default();
        options.parse("compress_extension=*,compress=zstd").unwrap();
        let m = Mount::open_with(Image::new(), transport, options);
        let content = text(1 << 20);
        fs::write(m.path("f"), &content).unwrap();
        run(
            "python3",
            &[
                "-c",
                "import mmap, os, sys\nf = os.open(sys.argv[1], os.O_RDWR)\nm = mmap.mmap(f, 0)\nm[500000:500004] = b'mmap'\nm.flush()\nos.fsync(f)",
                m.path("f").to_str().unwrap(),
            ],
        );
        let m = m.again(transport);
        let mut expected = content;
        expected[500_000..500_004].copy_from_slice(b"mmap");
        assert!(fs::read(m.path("f")).unwrap() == expected);
        m.finish();
    }
}
