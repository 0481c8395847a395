//! What users may not do through a mount: ioctls judged by owner, capability and descriptor, and set-id bits
//! that a change takes away.

use crate::support::{Image, Mount, fuse_available, transports};
use medfs::Files;
use medfs_fuse::Transport;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const IMMUTABLE: u32 = 0x10;
const NODUMP: u32 = 0x40;
/// FS_IOC_SETFLAGS, and the number that 32-bit programs use.
const SETFLAGS: [u32; 2] = [0x4008_6602, 0x4004_6602];
const FSSETXATTR: u32 = 0x401c_5820;
const FITRIM: u32 = 0xc018_5879;

fn on_each_transport(test: impl Fn(&Mount)) {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let mount = Mount::new(transport);
        fs::set_permissions(mount.image.dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(mount.image.mountpoint(), Permissions::from_mode(0o777)).unwrap();
        test(&mount);
        mount.finish();
    }
}

/// Who calls: arguments of setpriv(1).
const NOBODY: &[&str] = &["--reuid=65534", "--regid=65534", "--clear-groups"];
const OWNER: &[&str] = &["--reuid=1000", "--regid=1000", "--clear-groups"];
const ROOT: &[&str] = &["--clear-groups"];
const ROOT_WITHOUT_CAPABILITIES: &[&str] = &["--bounding-set=-all", "--inh-caps=-all", "--clear-groups"];

fn output(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// The error of an ioctl, 0 where it did what it was to. `mode`: how the file is opened, as Perl says it.
fn ioctl(who: &[&str], path: &Path, mode: &str, number: u32, argument: &[u8]) -> i32 {
    let hex: String = argument.iter().map(|byte| format!("{byte:02x}")).collect();
    let script = "my ($path, $mode, $number, $hex) = @ARGV; my $f; \
        if (-d $path) { use Fcntl; sysopen($f, $path, O_RDONLY) or die qq(open: $!) } else { open($f, $mode, $path) or die qq(open: $!) } \
        my $v = pack('H*', $hex) . chr(0) x 64; print ioctl($f, $number, $v) ? 0 : $! + 0;";
    output(Command::new("setpriv").args(who).args([
        "perl",
        "-e",
        script,
        path.to_str().unwrap(),
        mode,
        &number.to_string(),
        &hex,
    ]))
    .parse()
    .unwrap()
}

fn flags_of(m: &Mount, name: &str) -> u32 {
    let attr = m.volume.lookup(m.volume.root(), name.as_bytes()).unwrap();
    m.volume.release(attr.ino, 1);
    attr.flags.bits()
}

/// A file that everybody may write.
fn shared_file(m: &Mount, name: &str, owner: u32) -> std::path::PathBuf {
    let path = m.path(name);
    fs::write(&path, b"content").unwrap();
    chown(&path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    path
}

#[test]
fn flags_are_the_owners_and_those_that_bind_root_need_a_capability() {
    on_each_transport(|m| {
        let path = shared_file(m, "f", 1000);
        for number in SETFLAGS {
            let set = |who, flags: u32| ioctl(who, &path, "<", number, &u64::from(flags).to_ne_bytes());
            assert_eq!(set(NOBODY, NODUMP), libc::EPERM, "{number:x}: another's file");
            assert_eq!(set(OWNER, IMMUTABLE), libc::EPERM, "{number:x}: without CAP_LINUX_IMMUTABLE");
            assert_eq!(set(ROOT_WITHOUT_CAPABILITIES, IMMUTABLE), libc::EPERM, "{number:x}");
            assert_eq!(set(ROOT_WITHOUT_CAPABILITIES, NODUMP), libc::EPERM, "{number:x}: no CAP_FOWNER");
            assert_eq!(flags_of(m, "f") & (NODUMP | IMMUTABLE), 0, "{number:x}");
            assert_eq!(set(OWNER, NODUMP), 0, "{number:x}");
            assert_eq!(flags_of(m, "f") & NODUMP, NODUMP, "{number:x}");
            assert_eq!(set(ROOT, IMMUTABLE), 0, "{number:x}");
            assert_eq!(set(OWNER, 0), libc::EPERM, "{number:x}: clearing what only root may set");
            assert_eq!(flags_of(m, "f") & IMMUTABLE, IMMUTABLE, "{number:x}");
            assert_eq!(set(ROOT, 0), 0, "{number:x}");
        }
        let xattr = |flags: u32| [flags.to_ne_bytes(), [0; 4]].concat();
        assert_eq!(ioctl(NOBODY, &path, "<", FSSETXATTR, &xattr(0x80)), libc::EPERM);
        assert_eq!(ioctl(OWNER, &path, "<", FSSETXATTR, &xattr(0x8)), libc::EPERM);
        assert_eq!(ioctl(OWNER, &path, "<", FSSETXATTR, &xattr(0x80)), 0);
        assert_eq!(ioctl(OWNER, &path, "<", FSSETXATTR, &xattr(0x8000)), libc::EOPNOTSUPP, "DAX");
    });
}

#[test]
fn a_user_namespace_gives_no_capability_over_the_volume() {
    on_each_transport(|m| {
        let path = shared_file(m, "f", 1000);
        let script = format!(
            "open(my $f, '<', '{}') or die; my $v = pack('Q', 16); print ioctl($f, {}, $v) ? 0 : $! + 0;",
            path.display(),
            SETFLAGS[1]
        );
        let out = Command::new("setpriv")
            .args(OWNER)
            .args(["unshare", "--user", "--map-root-user", "perl", "-e", &script])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), libc::EPERM.to_string(), "{out:?}");
        assert_eq!(flags_of(m, "f") & IMMUTABLE, 0);
    });
}

#[test]
fn ioctls_of_f2fs_ask_for_what_f2fs_asks() {
    let (atomic, checkpoint) = ([0xf501, 0xf502, 0xf505], 0xf507);
    let (set_option, decompress, compress) = (0x4002_f516, 0xf517, 0xf518);
    let saved = [0x8008_f512, 0x8008_f513];
    on_each_transport(|m| {
        let path = shared_file(m, "f", 1000);
        for number in atomic {
            assert_eq!(ioctl(OWNER, &path, "<", number, &[]), libc::EBADF, "{number:x}: opened to read");
            assert_eq!(ioctl(NOBODY, &path, "+<", number, &[]), libc::EACCES, "{number:x}: another's file");
        }
        for number in [set_option, decompress, compress] {
            assert_eq!(ioctl(OWNER, &path, "<", number, &[0; 2]), libc::EBADF, "{number:x}: opened to read");
        }
        for number in saved {
            assert_eq!(ioctl(NOBODY, &path, "+<", number, &[]), libc::EPERM, "{number:x}: another's file");
        }
        let range = [0u64.to_ne_bytes(), u64::MAX.to_ne_bytes(), 0u64.to_ne_bytes()].concat();
        for who in [OWNER, ROOT_WITHOUT_CAPABILITIES] {
            assert_eq!(ioctl(who, &m.image.mountpoint(), "<", FITRIM, &range), libc::EPERM);
            assert_eq!(ioctl(who, &m.image.mountpoint(), "<", checkpoint, &[]), libc::EPERM);
        }
        assert_eq!(ioctl(ROOT, &m.image.mountpoint(), "<", checkpoint, &[]), 0);
        let abort = "use Fcntl; sysopen(my $f, $ARGV[0], O_RDWR) or die; my $v = ''; \
            for my $number (0xf501, 0xf505) { ioctl($f, $number, $v) or die $! }";
        output(Command::new("setpriv").args(OWNER).args(["perl", "-e", abort, path.to_str().unwrap()]));
    });
}

/// A file with set-id bits that everybody may write, of a group that its users are not in.
fn set_id_file(m: &Mount, perm: u32) -> std::path::PathBuf {
    let path = shared_file(m, "f", 0);
    fs::write(&path, vec![7; 40_000]).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(perm)).unwrap();
    path
}

fn set_capability(path: &Path) {
    // A capability set of version 2 with CAP_NET_RAW.
    let value = [0x0200_0000u32, 1 << 13, 0, 0, 0].map(u32::to_le_bytes).concat();
    rustix::fs::setxattr(path, "security.capability", &value, rustix::fs::XattrFlags::empty()).unwrap();
}

fn has_capability(path: &Path) -> bool {
    rustix::fs::getxattr(path, "security.capability", &mut [0; 64]).is_ok()
}

/// The permission bits as they are shown to who asks for nothing else, as stat(1) does: the kernel may have kept them.
fn mode_alone(path: &Path) -> u32 {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    u32::from(statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap().stx_mode) & 0o7777
}

/// Commands that change a file's content; `F` stands for the file.
const CHANGES: &[(&str, &[&str])] = &[
    ("write", &["dd", "if=/dev/zero", "of=F", "bs=100", "count=1", "conv=notrunc", "status=none"]),
    (
        "direct write",
        &["dd", "if=/dev/zero", "of=F", "bs=4096", "count=1", "conv=notrunc", "oflag=direct", "status=none"],
    ),
    (
        "extending direct write",
        &[
            "dd",
            "if=/dev/zero",
            "of=F",
            "bs=4096",
            "count=1",
            "seek=20",
            "conv=notrunc",
            "oflag=direct",
            "status=none",
        ],
    ),
    ("truncation", &["truncate", "--size=5", "F"]),
    ("extension", &["truncate", "--size=90000", "F"]),
    ("truncating open", &["perl", "-e", "open(my $f, '>', $ARGV[0]) or die $!", "F"]),
    ("fallocate", &["fallocate", "-l", "100000", "F"]),
    ("fallocate keeping the size", &["fallocate", "-n", "-o", "90000", "-l", "10000", "F"]),
    ("punching a hole", &["fallocate", "-p", "-o", "4096", "-l", "4096", "F"]),
    ("zeroing a range", &["fallocate", "-z", "-o", "4096", "-l", "4096", "F"]),
    (
        "copy_file_range",
        &[
            "perl",
            "-e",
            "open(my $f, '+<', $ARGV[0]) or die $!; open(my $g, '<', $ARGV[0]) or die $!; my ($from, $to) = (pack('Q', 0), pack('Q', 20000)); syscall(326, fileno($g), $from, fileno($f), $to, 8000, 0) == 8000 or die $!",
            "F",
        ],
    ),
];

#[test]
fn a_change_of_content_by_others_takes_set_id_bits_and_capabilities() {
    on_each_transport(|m| {
        let mut wrong = Vec::new();
        for (what, command) in CHANGES {
            for (who, bits, capability) in [
                (NOBODY, 0o6777, true),
                (NOBODY, 0o6777, false),
                (NOBODY, 0o2766, false),
                (ROOT, 0o6777, true),
            ] {
                let path = set_id_file(m, bits);
                if capability {
                    set_capability(&path);
                }
                let _ = fs::metadata(&path).unwrap();
                let file = path.to_str().unwrap();
                let words = command.iter().map(|word| match *word {
                    "F" => file.to_owned(),
                    "of=F" => format!("of={file}"),
                    word => word.to_owned(),
                });
                output(Command::new("setpriv").args(who).args(words));
                let expected = if who == ROOT { bits } else { bits & 0o777 };
                let shown = mode_alone(&path);
                let stored = m.volume.lookup(m.volume.root(), b"f").unwrap();
                m.volume.release(stored.ino, 1);
                let found = (shown, u32::from(stored.perm), has_capability(&path));
                if found != (expected, expected, false) {
                    wrong.push(format!(
                        "{what} of {bits:o}: shown {shown:o}, stored {:o}, capability {}",
                        found.1, found.2
                    ));
                }
                fs::remove_file(&path).unwrap();
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

#[test]
fn a_change_of_owner_takes_set_id_bits_and_capabilities() {
    on_each_transport(|m| {
        for (bits, expected) in [(0o6777, 0o777), (0o2766, 0o2766)] {
            let path = set_id_file(m, bits);
            set_capability(&path);
            chown(&path, Some(1000), None).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, expected, "{bits:o} by root");
            assert!(!has_capability(&path));
        }
        let path = set_id_file(m, 0o2766);
        chown(&path, Some(1000), Some(7)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o2766)).unwrap();
        output(Command::new("setpriv").args(OWNER).args(["chgrp", "1000", path.to_str().unwrap()]));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o766, "by an owner outside the group");
    });
}

#[test]
fn trusted_attributes_are_listed_to_those_who_may_read_them() {
    if !fuse_available() {
        return;
    }
    let m = Mount::with(Image::new(), Transport::Dev, |_| {});
    fs::set_permissions(m.image.dir.path(), Permissions::from_mode(0o755)).unwrap();
    let path = shared_file(&m, "f", 1000);
    for name in ["user.a", "trusted.b"] {
        rustix::fs::setxattr(&path, name, b"x", rustix::fs::XattrFlags::empty()).unwrap();
    }
    let list = |who: &[&str]| {
        let script = "my $b = chr(0) x 200; my $n = syscall(194, $ARGV[0], $b, 200); print join(' ', split(/\\0/, substr($b, 0, $n)))";
        output(Command::new("setpriv").args(who).args(["perl", "-e", script, path.to_str().unwrap()]))
    };
    assert_eq!(list(ROOT), "user.a trusted.b");
    assert_eq!(list(OWNER), "user.a");
    assert_eq!(list(ROOT_WITHOUT_CAPABILITIES), "user.a");
    m.finish();
}
