//! File handles through a mount (`name_to_handle_at`, which NFS servers use), seeking beyond a file,
//! trimming, and times of new files.

use crate::support::{Image, Mount, fuse_available, open, run, transports};
use medfs::Files;
use medfs_fuse::Transport;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn perl(script: &str, args: &[&str]) -> String {
    run("perl", &[&["-e", script], args].concat())
}

/// The handle of a path, in hexadecimal digits.
fn handle(path: &Path) -> String {
    let script = "my ($number, $path) = @ARGV; $number += 0; my $h = pack('Ll', 128, 0) . chr(0) x 128; my $m = pack('l', 0); \
        syscall($number, -100, $path, $h, $m, 0) == 0 or die $!; my ($len) = unpack('L', $h); print unpack('H*', substr($h, 0, 8 + $len))";
    perl(script, &[&libc::SYS_name_to_handle_at.to_string(), path.to_str().unwrap()])
}

/// What a handle opens: its path (of a directory; the kernel need not know a file's), number and, of a file,
/// content; or the error.
fn opened(mountpoint: &Path, handle: &str) -> Result<(PathBuf, u64, String), i32> {
    let script = "my ($number, $mnt, $hex) = @ARGV; $number += 0; opendir(my $d, $mnt) or die $!; my $h = pack('H*', $hex); \
        my $fd = syscall($number, fileno($d), $h, 0); if ($fd < 0) { print $! + 0; exit } \
        print readlink(qq(/proc/self/fd/$fd)), qq(\\n), (stat(qq(/proc/self/fd/$fd)))[1], qq(\\n); my $b = chr(0) x 100; my $n = sysread(my $f = IO::Handle->new_from_fd($fd, 'r'), $b, 100); print defined $n ? substr($b, 0, $n) : ''";
    let args = [&libc::SYS_open_by_handle_at.to_string(), mountpoint.to_str().unwrap(), handle];
    let out = run("perl", &[&["-MIO::Handle", "-e", script], &args[..]].concat());
    let mut lines = out.lines();
    match (lines.next(), lines.next()) {
        (Some(path), Some(ino)) => Ok((path.into(), ino.parse().unwrap(), lines.collect())),
        _ => Err(out.parse().unwrap()),
    }
}

#[test]
fn handles_hold_across_mounts() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let m = Mount::new(transport);
        let mnt = m.image.mountpoint();
        fs::create_dir_all(m.path("a/b/c")).unwrap();
        fs::write(m.path("a/b/c/f"), "content").unwrap();
        fs::write(m.path("gone"), "removed").unwrap();
        fs::write(m.path("again"), "number used again").unwrap();
        let names = ["", "a", "a/b/c", "a/b/c/f"];
        let handles = names.map(|name| handle(&m.path(name)));
        let [gone, again] = ["gone", "again"].map(|name| handle(&m.path(name)));
        let expect = |m: &Mount, names: [&str; 4], content: &str| {
            for (name, handle) in names.iter().zip(&handles) {
                let (path, ino, read) = opened(&mnt, handle).unwrap_or_else(|e| panic!("{name}: error {e}"));
                assert_eq!(ino, fs::metadata(m.path(name)).unwrap().ino(), "{name}");
                match name.ends_with('f') {
                    true => assert_eq!(read, content),
                    false => assert_eq!(path.canonicalize().unwrap(), m.path(name).canonicalize().unwrap()),
                }
            }
        };
        expect(&m, names, "content");
        // The kernel knows none of these inodes any more.
        let m = Mount::with(m.finish(), transport, |_| {});
        expect(&m, names, "content");
        fs::remove_file(m.path("gone")).unwrap();
        fs::write(m.path("a/b/c/f"), "changed").unwrap();
        fs::rename(m.path("a/b"), m.path("moved")).unwrap();
        let m = Mount::with(m.finish(), transport, |_| {});
        assert_eq!(opened(&mnt, &gone), Err(libc::ESTALE));
        expect(&m, ["", "a", "moved/c", "moved/c/f"], "changed");
        // Another file with the number is not the old one.
        let old = fs::metadata(m.path("again")).unwrap();
        fs::remove_file(m.path("again")).unwrap();
        m.volume.checkpoint().unwrap();
        let taken = (0..20_000).find(|i| {
            let path = m.path(&format!("new{i}"));
            File::create(&path).unwrap();
            let same = fs::metadata(&path).unwrap().ino() == old.ino();
            if !same && i % 64 == 63 {
                m.volume.checkpoint().unwrap();
            }
            same
        });
        let m = Mount::with(m.finish(), transport, |_| {});
        assert_eq!(opened(&mnt, &again), Err(libc::ESTALE), "the number was used again: {taken:?}");
        m.finish();
    }
}

#[test]
fn numbers_that_are_not_for_users_are_stale() {
    let image = Image::new();
    let volume = open(&image.path());
    let root = volume.root();
    let ino = volume
        .create(
            root,
            b"f",
            &medfs::NewFile {
                kind: medfs::FileKind::Regular,
                perm: 0o600,
                umask: 0,
                uid: 0,
                gid: 0,
                rdev: 0,
            },
        )
        .unwrap()
        .ino;
    assert_eq!(volume.lookup(ino, b".").unwrap().ino, ino, "of any kind");
    volume.release(ino, 2);
    for number in (0..100).chain([u32::MAX, u32::MAX - 1]) {
        match volume.lookup(number, b".") {
            Ok(attr) => assert!(attr.ino == number && attr.nlink > 0, "{attr:?}"),
            Err(error) => assert_eq!(error.errno(), libc::ESTALE, "{number}"),
        }
    }
    volume.close().unwrap();
}

#[test]
fn seeking_out_of_range_is_enxio() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let m = Mount::new(transport);
        fs::write(m.path("f"), "content").unwrap();
        let script = "my ($path, $number, $offset, $whence) = @ARGV; open(my $f, '<', $path) or die; $_ += 0 for ($number, $offset, $whence); \
            my $r = syscall($number, fileno($f), $offset, $whence); print $r < 0 ? -($! + 0) : $r";
        let seek = |offset: i64, whence: i32| -> i64 {
            let args = [
                m.path("f").to_str().unwrap().to_owned(),
                libc::SYS_lseek.to_string(),
                offset.to_string(),
                whence.to_string(),
            ];
            perl(script, &args.each_ref().map(|arg| &arg[..])).parse().unwrap()
        };
        for whence in [libc::SEEK_DATA, libc::SEEK_HOLE] {
            for offset in [-1, i64::MIN, 7, 8, i64::MAX] {
                assert_eq!(seek(offset, whence), -i64::from(libc::ENXIO), "{whence} from {offset}");
            }
        }
        assert_eq!((seek(3, libc::SEEK_DATA), seek(3, libc::SEEK_HOLE)), (3, 7));
        m.finish();
    }
}

#[test]
fn trimming_less_than_a_block_is_refused() {
    if !fuse_available() {
        return;
    }
    let m = Mount::new(Transport::Dev);
    let trim = |len: &str| {
        let out = Command::new("fstrim")
            .args(["--offset", "0", "--length", len])
            .arg(m.image.mountpoint())
            .output()
            .unwrap();
        (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    for len in ["1", "4095"] {
        let (trimmed, message) = trim(len);
        assert!(!trimmed && message.contains("Invalid argument"), "{len}: {message}");
    }
    assert!(trim("4096").0 && trim("64M").0);
    m.finish();
}

#[test]
fn no_file_is_born_after_it_was_written() {
    if !fuse_available() {
        return;
    }
    for writeback in [true, false] {
        let m = Mount::with(Image::new(), Transport::Dev, |config| config.writeback = writeback);
        for i in 0..300 {
            let path = m.path(&format!("f{i}"));
            File::create(&path).unwrap().write_all(b"x").unwrap();
            let meta = fs::metadata(&path).unwrap();
            let born = meta.created().unwrap();
            assert!(born <= meta.modified().unwrap() && born <= meta.accessed().unwrap(), "{meta:?}");
        }
        m.finish();
    }
}

/// `lsattr -v` hands over an `int` for what the number of the call says is a `long`.
#[test]
fn a_version_takes_no_more_than_an_int() {
    if !fuse_available() {
        return;
    }
    let m = Mount::new(Transport::Dev);
    fs::write(m.path("f"), "x").unwrap();
    let script = "my $b = chr(0xaa) x 16; open(my $f, '<', $ARGV[0]) or die $!; defined ioctl($f, 0x80087601, $b) or die $!; print unpack('H*', $b)";
    for name in ["f", ""] {
        let filled = perl(script, &[m.path(name).to_str().unwrap()]);
        assert_eq!(filled[8..32], "aa".repeat(12), "{name}");
    }
}
