//! Volumes made and judged by f2fs-tools, in memory while this crate works on them.
#![allow(dead_code, unreachable_pub)]

use medfs::Files;
use medfs_device::{Cause, FileDevice, FileOptions, MemDevice, Temperature, WriteTag};
use medfs_format::BLOCK_SIZE;
use medfs_fsck::dump::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What tests write themselves.
pub const META: WriteTag = WriteTag::new(Cause::Meta, Temperature::Cold);

/// A field of a dump.
pub fn number(value: Option<&Value>) -> u32 {
    match value {
        Some(Value::Number(n)) => *n as u32,
        other => panic!("not a number: {other:?}"),
    }
}

/// An image file as a device in memory.
pub fn load(path: &Path) -> MemDevice {
    let file = FileDevice::open(path, FileOptions::read_only()).expect("image can be opened");
    MemDevice::copy_of(&file).expect("image is readable")
}

/// Writes a device to an image file, in place of what was there.
pub fn save(dev: &MemDevice, path: &Path) {
    let _ = fs::remove_file(path);
    medfs_testkit::images::save(dev, path).expect("image can be made");
}

/// Runs a tool of f2fs-tools.
pub fn tool(name: &str, args: &[&str]) -> Output {
    match Command::new(name).args(args).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin").output()
    {
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
        // Its exit code says nothing: with flexible_inline_xattr, 1.15 ends with 1 and leaves a sound volume. With
        // sections of several segments it leaves SIT and checkpoint behind, which fsck.f2fs mends.
        tool("sload.f2fs", &["-f", from.to_str().unwrap(), image.to_str().unwrap()]);
        if judge(image).is_err() {
            tool("fsck.f2fs", &["-f", "-y", image.to_str().unwrap()]);
            judge(image).expect("fsck.f2fs mends what sload.f2fs left");
        }
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
        let mib = if options.contains(&"-s") { 512 } else { 100 };
        let image = self.mkfs(name, mib, options);
        self.sload(&image, &self.tree());
        image
    }

    /// What `fsck.f2fs --dry-run` says of a volume: `Ok` where it finds nothing wrong.
    pub fn judge(&self, dev: &MemDevice) -> Result<(), String> {
        let path = self.path("judged.img");
        save(dev, &path);
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
        .take(20)
        .collect::<Vec<_>>();
    if out.status.success() && done && complaints.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "fsck.f2fs, {}:\n{}",
            out.status,
            if complaints.is_empty() { text.clone() } else { complaints.join("\n") }
        ))
    }
}

/// Whether a code is of what only volumes with deltas have: `deltas.rs` plants these faults, `clusters.rs`
/// those of compressed clusters, `faults.rs` the others.
pub fn is_of_deltas(code: medfs_fsck::Code) -> bool {
    use medfs_fsck::Code;
    code == Code::SuperblockKinds || (Code::DeltaZone..Code::ClusterPlace).contains(&code)
}

/// Whether a code is of compressed clusters.
pub fn is_of_clusters(code: medfs_fsck::Code) -> bool {
    use medfs_fsck::Code;
    (Code::ClusterPlace..Code::Unreadable).contains(&code) || code == Code::SavedBlocks
}

/// Whether a code is of what a device does not read or write, and of the fsync log: `medium.rs` and
/// `special.rs` plant these faults.
pub fn is_of_medium(code: medfs_fsck::Code) -> bool {
    use medfs_fsck::Code;
    code >= Code::Unreadable
        || [Code::FileRebuilt, Code::LogNode, Code::LogEnd, Code::LogInode, Code::LogAddress, Code::LogUnkept]
            .contains(&code)
}

/// A volume with deltas and a file of so many pages on it, of which these have deltas; the file's number, its content
/// without the deltas and with them.
pub fn delta_volume(pages: usize, deltas: &[usize]) -> (MemDevice, medfs::Ino, Vec<u8>, Vec<u8>) {
    use medfs::{FileKind, ManualClock, MountOptions, NewFile, Timestamp, Volume};
    let dev = MemDevice::new(80 << 8);
    let options = medfs_mkfs::MkfsOptions { deltas: true, ..medfs_mkfs::MkfsOptions::new([9; 16], 1) };
    medfs_mkfs::format_volume(&dev, &options).expect("a volume can be made");
    let dev = std::sync::Arc::new(dev);
    let clock = std::sync::Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
    let options = MountOptions { zero_base_deltas: false, ..MountOptions::default() };
    let v = Volume::open(dev.clone(), options, clock).expect("the volume opens");
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = v.create(v.root(), b"file", &new).expect("create").ino;
    let old: Vec<u8> = (0..pages * BLOCK_SIZE).map(|i| (i / 7 % 251 + i / BLOCK_SIZE) as u8).collect();
    v.write(ino, 0, &old).expect("write");
    v.sync().expect("sync");
    let mut content = old.clone();
    for page in deltas {
        let place = page * BLOCK_SIZE + 1000;
        content[place..place + 30].fill(250);
        v.write(ino, place as u64, &[250; 30]).expect("write");
        v.fsync(ino, false).expect("fsync");
    }
    assert_eq!(v.stats().deltas.made, deltas.len() as u64);
    v.close().expect("close");
    drop(v);
    (dev.snapshot(), ino, old, content)
}

/// A volume with a compressed file of so many pages, in clusters of four; the file's number and content.
pub fn compressed_volume(pages: usize) -> (MemDevice, medfs::Ino, Vec<u8>) {
    compressed(false, pages, &[])
}

/// The same on a volume that may hold deltas, of which these pages then have some.
pub fn updated_clusters(pages: usize, deltas: &[usize]) -> (MemDevice, medfs::Ino, Vec<u8>) {
    compressed(true, pages, deltas)
}

fn compressed(kind: bool, pages: usize, deltas: &[usize]) -> (MemDevice, medfs::Ino, Vec<u8>) {
    use medfs::{FileFlags, FileKind, ManualClock, MountOptions, NewFile, Timestamp, Volume};
    let dev = std::sync::Arc::new(MemDevice::new(80 << 8));
    let features = medfs_mkfs::parse_features("default,compression").expect("features");
    let options =
        medfs_mkfs::MkfsOptions { features, deltas: kind, ..medfs_mkfs::MkfsOptions::new([9; 16], 1) };
    medfs_mkfs::format_volume(&*dev, &options).expect("a volume can be made");
    let clock = std::sync::Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
    let mut options = MountOptions::default();
    options.parse("compress=lz4,compress_chksum").expect("options");
    let v = Volume::open(dev.clone(), options, clock).expect("the volume opens");
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = v.create(v.root(), b"file", &new).expect("create").ino;
    v.set_flags(ino, FileFlags::COMPR).expect("chattr +c");
    let mut content: Vec<u8> = (0..pages * BLOCK_SIZE).map(|i| (i / 99 + i / BLOCK_SIZE) as u8).collect();
    v.write(ino, 0, &content).expect("write");
    v.sync().expect("sync");
    for page in deltas {
        let place = page * BLOCK_SIZE + 1000;
        content[place..place + 30].fill(250);
        v.write(ino, place as u64, &[250; 30]).expect("write");
    }
    v.fsync(ino, false).expect("fsync");
    assert_eq!(v.stats().deltas.made, deltas.len() as u64);
    v.close().expect("close");
    drop(v);
    (dev.snapshot(), ino, content)
}
