//! Bringing a file together through a mount, as `f2fs_io` does it.

use crate::support::{Image, Mount, fuse_available, run, transports};
use medfs::{Extent, Files, MountOptions};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE: u64 = 4096;
const PAGES: u64 = 300;

fn extents(m: &Mount, name: &str) -> usize {
    let attr = m.volume.lookup(m.volume.root(), name.as_bytes()).unwrap();
    m.volume.release(attr.ino, 1);
    Extent::of(&m.volume, attr.ino).unwrap().len()
}

/// The `errno` of `F2FS_IOC_DEFRAGMENT` as a user, 0 where it succeeds.
fn refused(path: &Path, user: u32, start: u64, len: u64) -> i32 {
    let script = "import fcntl, os, struct, sys\npath, user, start, len = sys.argv[1], *map(int, sys.argv[2:])\nf = os.open(path, os.O_RDWR)\nos.setuid(user)\ntry:\n    fcntl.ioctl(f, 0xc010f508, struct.pack('QQ', start, len))\n    print(0)\nexcept OSError as e:\n    print(e.errno)";
    let words = [user.into(), start, len].map(|n| n.to_string());
    let out = run("python3", &["-c", script, path.to_str().unwrap(), &words[0], &words[1], &words[2]]);
    out.trim().parse().unwrap()
}

#[test]
fn f2fs_io_brings_a_file_together() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let mut options = MountOptions::default();
        options.parse("in_place=off").unwrap();
        let m = Mount::open_with(Image::new(), transport, options);
        let path = m.path("f");
        fs::write(&path, "").unwrap();
        let f = OpenOptions::new().write(true).open(&path).unwrap();
        let page = |index: u64| vec![(index % 250) as u8 + 1; PAGE as usize];
        for index in (0..PAGES).map(|n| n * 37 % PAGES) {
            f.write_at(&page(index), index * PAGE).unwrap();
            f.sync_all().unwrap();
        }
        assert!(extents(&m, "f") > 200);
        let all = (PAGES * PAGE).to_string();
        run("f2fs_io", &["defrag_file", "0", &all, path.to_str().unwrap()]);
        assert!(extents(&m, "f") < 5, "{}", extents(&m, "f"));
        assert_eq!(refused(&path, 0, 0, PAGES * PAGE), 0);
        assert_eq!(refused(&path, 0, 1, PAGE), libc::EINVAL);
        assert_eq!(refused(&path, 0, 0, PAGE + 1), libc::EINVAL);
        assert_eq!(refused(&path, 1234, 0, PAGE), libc::EPERM);
        assert!(fs::read(&path).unwrap() == (0..PAGES).flat_map(page).collect::<Vec<u8>>());
        drop(f);
        m.finish();
    }
}
