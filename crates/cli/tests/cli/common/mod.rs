//! What the tests of the command share.
#![allow(dead_code)]

use assert_cmd::Command;
use medfs::{Files, ManualClock, MountOptions, NewFile, Timestamp, Volume};
use medfs_device::{
    BlockDevice, Cause, FileDevice, FileOptions, MemDevice, Temperature, WriteTag, read_block,
};
use medfs_format::Block;
use medfs_format::node::FileKind;
use medfs_format::superblock::{DELTA_OLD_LAYOUTS, DELTA_SEALS, DELTA_TIES, RawSuperblock};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The command under test.
pub(crate) fn medfs() -> Command {
    let mut command = Command::cargo_bin("medfs").unwrap();
    command.env_remove("RUST_LOG").env_remove("SOURCE_DATE_EPOCH");
    command
}

/// Its path.
pub(crate) fn binary() -> PathBuf {
    assert_cmd::cargo::cargo_bin("medfs")
}

/// A folder with an image of a new volume.
pub(crate) struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn with_volume(size: &str) -> Scratch {
        let scratch = Scratch::new();
        medfs().args(["mkfs", "-q", "--size", size]).arg(scratch.image()).assert().success();
        scratch
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.path("image")
    }
}

/// Standard output of a command that must succeed.
pub(crate) fn output(args: &[&str], paths: &[&Path]) -> String {
    let assert = medfs().args(args).args(paths).assert().success();
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

/// Standard error of a command that must fail with a code: one line, no panic.
pub(crate) fn error(code: i32, command: &mut Command) -> String {
    let assert = command.assert().code(code);
    let text = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    text
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this process can mount; says so where it cannot.
pub(crate) fn can_mount() -> bool {
    let can = is_root() && File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("SKIPPED: mounting needs root and /dev/fuse");
    }
    can
}

/// A folder with every kind of file.
pub(crate) fn make_tree(at: &Path) {
    fs::create_dir_all(at.join("sub/deep")).unwrap();
    fs::create_dir(at.join("empty")).unwrap();
    fs::write(at.join("tiny"), "hello\n").unwrap();
    fs::write(at.join("nothing"), "").unwrap();
    let big: Vec<u8> = (0..9_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(at.join("sub/big"), &big).unwrap();
    let sparse = File::create(at.join("sparse")).unwrap();
    sparse.set_len(50_000_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"island", 12_345_678).unwrap();
    symlink("../tiny", at.join("sub/link")).unwrap();
    symlink("nowhere", at.join("dangling")).unwrap();
    fs::hard_link(at.join("tiny"), at.join("sub/deep/tiny too")).unwrap();
    fs::write(at.join("näme with \u{1F4BE}"), "x").unwrap();
    let file_type = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, at.join("fifo"), file_type, 0o644.into(), 0).unwrap();
    if is_root() {
        let (device, number) = (rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 3));
        rustix::fs::mknodat(rustix::fs::CWD, at.join("null"), device, 0o666.into(), number).unwrap();
        std::os::unix::fs::chown(at.join("sub"), Some(1234), Some(4321)).unwrap();
        std::os::unix::fs::lchown(at.join("dangling"), Some(70_000), Some(80_000)).unwrap();
    }
    fs::set_permissions(at.join("sub/big"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::set_permissions(at.join("sub"), fs::Permissions::from_mode(0o3775)).unwrap();
    for (name, value) in [("user.colour", "blue"), ("user.long", &"v".repeat(2000))] {
        rustix::fs::setxattr(at.join("tiny"), name, value.as_bytes(), rustix::fs::XattrFlags::empty())
            .unwrap();
    }
    let time = rustix::fs::Timespec { tv_sec: 981_173_106, tv_nsec: 789_000_001 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    for name in ["tiny", "dangling", "sub/deep", "sub"] {
        rustix::fs::utimensat(rustix::fs::CWD, at.join(name), &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .unwrap();
    }
}

/// One line for each file below a folder with all that must survive.
pub(crate) fn describe(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut links = std::collections::HashMap::new();
    for entry in walkdir::WalkDir::new(root).sort_by_file_name() {
        let entry = entry.unwrap();
        let name = entry.path().strip_prefix(root).unwrap().to_owned();
        if name.starts_with("lost+found") {
            continue;
        }
        let meta = entry.metadata().unwrap();
        let content = match () {
            () if meta.is_file() => format!("{:08x}", crc32fast::hash(&fs::read(entry.path()).unwrap())),
            () if meta.is_symlink() => fs::read_link(entry.path()).unwrap().display().to_string(),
            () => String::new(),
        };
        let size = if meta.is_dir() { 0 } else { meta.len() };
        let mut names = vec![0; 4096];
        let len = rustix::fs::llistxattr(entry.path(), &mut names).unwrap_or(0);
        names.truncate(len);
        let mut xattrs: Vec<String> = names
            .split(|&b| b == 0)
            .filter(|n| n.starts_with(b"user."))
            .map(|n| {
                let name = std::str::from_utf8(n).unwrap();
                let mut value = vec![0; 4096];
                let len = rustix::fs::lgetxattr(entry.path(), name, &mut value).unwrap();
                format!("{name}={:08x}", crc32fast::hash(&value[..len]))
            })
            .collect();
        xattrs.sort();
        let first = links.entry(meta.ino()).or_insert_with(|| name.display().to_string()).clone();
        lines.push(format!(
            "{} {:o} {}:{} {size} {}.{:09} rdev {} same as {first} {content} {xattrs:?}",
            name.display(),
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.rdev(),
        ));
    }
    lines
}

/// Judged by ourselves, and, as an exported copy, by f2fs-tools.
pub(crate) fn assert_clean(image: &Path) {
    medfs().arg("fsck").arg(image).assert().code(0);
    let copy = image.with_extension("exported");
    std::fs::copy(image, &copy).unwrap();
    medfs().arg("export").arg(&copy).assert().success();
    assert_f2fs_clean(&copy);
    std::fs::remove_file(copy).unwrap();
}

/// Judged by f2fs-tools, which know plain F2FS alone.
pub(crate) fn assert_f2fs_clean(image: &Path) {
    let judge = std::process::Command::new("fsck.f2fs")
        .arg("--dry-run")
        .arg(image)
        .output()
        .expect("fsck.f2fs is needed");
    let text = String::from_utf8_lossy(&judge.stdout);
    assert!(
        judge.status.success()
            && !text.contains("[FIX]")
            && !text.contains("[Fail]")
            && !text.contains("[ASSERT]"),
        "{text}"
    );
}

/// Makes the superblocks say that inodes may have the old layout, as an import that was interrupted leaves them.
pub(crate) fn interrupted_import(image: &Path) {
    // Not locked: a process that another test starts at this moment would keep the lock for a while.
    let options = FileOptions { exclusive: false, ..FileOptions::default() };
    let dev = FileDevice::open(image, options).unwrap();
    for copy in 0..2 {
        let mut block = medfs_device::read_block(&dev, copy).unwrap();
        let sb = RawSuperblock::in_block_mut(&mut block);
        sb.delta.incompat = (DELTA_OLD_LAYOUTS | DELTA_SEALS | DELTA_TIES).into();
        sb.seal();
        dev.write(copy, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold)).unwrap();
    }
    dev.flush().unwrap();
}

const META: WriteTag = WriteTag::new(Cause::Meta, Temperature::Cold);

/// Opens an image; a process that another test is starting may hold it for a moment.
pub(crate) fn open(image: &Path) -> FileDevice {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        match FileDevice::open(image, FileOptions::default()) {
            Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy && std::time::Instant::now() < until => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Works on a volume through the engine; without a close it is a crash.
pub(crate) fn with_engine(image: &Path, close: bool, work: impl FnOnce(&Volume)) {
    let file = open(image);
    let dev = Arc::new(MemDevice::copy_of(&file).unwrap());
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_800_000_000, nanos: 0 }));
    let v = Volume::open(dev.clone(), MountOptions::default(), clock).unwrap();
    work(&v);
    if close {
        v.close().unwrap();
    }
    let dev = dev.snapshot();
    for addr in dev.written() {
        file.write(addr, &[&read_block(&dev, addr).unwrap()], META).unwrap();
    }
}

pub(crate) fn make(v: &Volume, parent: u32, name: &str, kind: FileKind) -> u32 {
    let new = NewFile { kind, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = v.create(parent, name.as_bytes(), &new).unwrap().ino;
    v.release(ino, 1);
    ino
}

/// Changes the blocks of the main area that `which` picks; tells how many.
pub(crate) fn damage(image: &Path, which: impl Fn(&Block) -> bool, change: impl Fn(&mut Block)) -> usize {
    let dev = open(image);
    let main = RawSuperblock::in_block(&read_block(&dev, 0).unwrap()).main_blkaddr.get();
    let mut count = 0;
    for addr in u64::from(main)..dev.block_count() {
        let mut block = read_block(&dev, addr).unwrap();
        if which(&block) {
            change(&mut block);
            dev.write(addr, &[&block], META).unwrap();
            count += 1;
        }
    }
    count
}

/// A volume of plain F2FS without checksums.
pub(crate) fn plain() -> Scratch {
    let s = Scratch::new();
    let options = ["mkfs", "-q", "--plain", "-O", "none", "--size", "64M"];
    medfs().args(options).arg(s.image()).assert().success();
    s
}
