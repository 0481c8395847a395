//! Pinned files through a mount: F2FS's ioctls as `f2fs_io` makes them.

use crate::support::{Mount, fuse_available, run, transports};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

fn pin(path: &Path) -> std::process::Output {
    Command::new("f2fs_io").args(["pinfile", "set"]).arg(path).output().unwrap()
}

/// Whether lsattr shows the file as pinned.
fn is_pinned(path: &Path) -> bool {
    run("lsattr", &[path.to_str().unwrap()]).split(' ').next().unwrap().contains('C')
}

#[test]
fn f2fs_io_pins_what_has_no_blocks() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let m = Mount::new(transport);
        let (path, full) = (m.path("f"), m.path("full"));
        fs::write(&path, "").unwrap();
        // Perhaps in the kernel's cache alone.
        fs::write(&full, [1; 9000]).unwrap();
        let refused = String::from_utf8_lossy(&pin(&full).stderr).into_owned();
        assert!(refused.contains("File too large"), "{refused}");
        assert!(pin(&path).status.success() && is_pinned(&path) && !is_pinned(&full));
        run("f2fs_io", &["pinfile", "get", path.to_str().unwrap()]);
        // Other flags change beside it.
        run("chattr", &["+d", path.to_str().unwrap()]);
        assert!(is_pinned(&path));
        let f = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        rustix::fs::fallocate(&f, rustix::fs::FallocateFlags::empty(), 0, 3 << 20).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().blocks() / 4096, 2, "whole sections");
        f.write_at(b"x", 5000).unwrap();
        f.sync_all().unwrap();
        drop(f);
        let m = m.again(transport);
        let mut expected = vec![0; 3 << 20];
        expected[5000] = b'x';
        assert!(fs::read(m.path("f")).unwrap() == expected && is_pinned(&m.path("f")));
        m.finish();
    }
}

/// Who does not own a file cannot pin it by a descriptor that cannot write.
#[test]
fn pinning_is_the_owners_and_the_writers() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let m = Mount::new(transport);
        fs::write(m.path("f"), "").unwrap();
        let script = "import fcntl, os, struct, sys\nos.setuid(1234)\nf = os.open(sys.argv[1], os.O_RDONLY)\ntry:\n    fcntl.ioctl(f, 0x4004f50d, struct.pack('I', 1))\nexcept OSError as e:\n    print(e.errno)";
        let out = run("python3", &["-c", script, m.path("f").to_str().unwrap()]);
        assert_eq!(out.trim(), libc::EBADF.to_string());
        assert!(!is_pinned(&m.path("f")));
        m.finish();
    }
}
