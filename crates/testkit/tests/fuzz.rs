//! The engine on mutated volumes: it opens them or says why not, reads what is there, writes, and closes; it neither
//! panics, hangs, nor takes more than 256 MiB, and its errors have a type. See [`medfs_testkit::fuzz`].
//!
//! Volumes are the kernel's (tests/golden) and our own, closed cleanly and with a chain of fsynced nodes to
//! roll forward.

mod common;

use common::{golden, load_image, volumes};
use medfs::{
    Attr, Error, FallocateMode, FileFlags, FileKind, Files, Ino, ManualClock, MountOptions, NewFile, Posix,
    RenameFlags, Seek, SetAttr, Timestamp, Volume, XattrMode,
};
use medfs_device::{BlockDevice, FileDevice, FileOptions, MemDevice, WriteTag};
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, Block};
use medfs_mkfs::{MkfsOptions, format_volume};
use medfs_testkit::delta_volume::{delta_volume, shared_volume};
use medfs_testkit::fuzz::Target;
use medfs_testkit::images::save;
use medfs_testkit::mutate::Base;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PAGE: u64 = BLOCK_SIZE as u64;
/// Blocks that one mount may read and write: many times what these volumes hold.
const MOST_BLOCKS: u64 = 2_000_000;
/// Inodes that a walk visits, entries it takes of a directory, pieces of data it reads of a file.
const MOST_INODES: usize = 1500;
const MOST_ENTRIES: usize = 2000;
const MOST_PIECES: usize = 20;

/// Counts blocks, so that an operation that would go on for ever fails as what it is.
struct Bounded {
    dev: Arc<MemDevice>,
    blocks: AtomicU64,
}

impl Bounded {
    fn count(&self, blocks: usize) {
        let total = self.blocks.fetch_add(blocks as u64, Ordering::Relaxed);
        assert!(total < MOST_BLOCKS, "{total} blocks were read and written");
    }
}

impl BlockDevice for Bounded {
    fn block_count(&self) -> u64 {
        self.dev.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.count(blocks.len());
        self.dev.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.count(blocks.len());
        self.dev.write(addr, blocks, tag)
    }
    fn flush(&self) -> io::Result<()> {
        self.dev.flush()
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.dev.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        self.dev.read_only()
    }
}

/// The result, where the operation may end so on a damaged volume. Memory does not fail: an I/O error would be an
/// address that nobody checked.
#[track_caller]
fn fine<T>(result: medfs::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::Io(e)) => panic!("an address was not checked: {e}"),
        Err(Error::System(e)) => panic!("no other file system is asked: {e}"),
        Err(Error::Invalid(message)) => panic!("no option is wrong: {message}"),
        Err(
            Error::Corrupt(_) | Error::Incompatible(_) | Error::NoSpace | Error::ReadOnly | Error::Posix(_),
        ) => None,
    }
}

fn open(dev: &Arc<MemDevice>, options: &str) -> Option<Volume> {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options are right");
    let clock = ManualClock::new(Timestamp { secs: 1_800_000_000, nanos: 0 });
    let bounded = Bounded { dev: dev.clone(), blocks: AtomicU64::new(0) };
    fine(Volume::open(Arc::new(bounded), parsed, Arc::new(clock)))
}

fn new(kind: FileKind) -> NewFile {
    NewFile { kind, perm: 0o755, umask: 0, uid: 1, gid: 2, rdev: 0 }
}

/// What a walk found, for the changes that follow.
#[derive(Default)]
struct Found {
    files: Vec<(Ino, Vec<u8>, Attr)>,
}

/// Reads the tree: every entry, attribute, link and extended attribute, and some of the data of every file.
fn walk(v: &Volume) -> Found {
    let mut found = Found::default();
    let mut seen = HashSet::from([v.root()]);
    let mut todo = vec![v.root()];
    while let Some(dir) = todo.pop() {
        look(v, dir);
        for name in names(v, dir) {
            let Some(attr) = fine(v.lookup(dir, &name)) else { continue };
            v.release(attr.ino, 1);
            if seen.len() < MOST_INODES && seen.insert(attr.ino) {
                match attr.kind {
                    FileKind::Directory => todo.push(attr.ino),
                    _ => look(v, attr.ino),
                }
                found.files.push((dir, name, attr));
            }
        }
    }
    found
}

fn names(v: &Volume, dir: Ino) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    fine(v.readdir(dir, 0, &mut |entry| {
        names.push(entry.name);
        names.len() < MOST_ENTRIES
    }));
    names.retain(|name| name != b"." && name != b"..");
    names
}

fn look(v: &Volume, ino: Ino) {
    let Some(attr) = fine(v.getattr(ino)) else { return };
    for name in fine(v.listxattr(ino)).unwrap_or_default() {
        fine(v.getxattr(ino, &name));
    }
    match attr.kind {
        FileKind::Symlink => drop(fine(v.readlink(ino))),
        FileKind::Regular => read(v, &attr),
        _ => {}
    }
}

fn read(v: &Volume, attr: &Attr) {
    let mut buffer = vec![0; 4 * PAGE as usize];
    let mut at = 0;
    for _ in 0..MOST_PIECES {
        let Some(data) = fine(v.seek(attr.ino, at, Seek::Data)) else { break };
        assert!(data >= at && data < attr.size, "data from {at} on at {data}, size {}", attr.size);
        let Some(hole) = fine(v.seek(attr.ino, data, Seek::Hole)) else { break };
        assert!(hole > data && hole <= attr.size, "a hole from {data} on at {hole}, size {}", attr.size);
        fine(v.read(attr.ino, data, &mut buffer));
        fine(v.read(attr.ino, hole.saturating_sub(PAGE), &mut buffer));
        at = hole;
    }
    fine(v.read(attr.ino, attr.size.saturating_sub(3), &mut buffer));
}

/// A handful of changes to what was found, and some that need nothing but the root.
fn change(v: &Volume, rng: &mut Xoshiro256PlusPlus, found: &Found) {
    let root = v.root();
    if let Some(attr) = fine(v.create(root, b"new file", &new(FileKind::Regular))) {
        fine(v.write(attr.ino, 0, &[7; 5 * PAGE as usize]));
        fine(v.write(attr.ino, 930 * PAGE, &[8; 100]));
        fine(v.setxattr(attr.ino, b"user.long", &[1; 700], XattrMode::Set));
        fine(v.fsync(attr.ino, false));
        fine(v.rename(root, b"new file", root, b"renamed", RenameFlags::empty()));
        fine(v.link(attr.ino, root, b"second")).inspect(|a| v.release(a.ino, 1));
        v.release(attr.ino, 1);
    }
    if let Some(attr) = fine(v.create(root, b"new dir", &new(FileKind::Directory))) {
        for i in 0..30 {
            let name = format!("a name that fills the inline area soon {i}");
            fine(v.symlink(attr.ino, name.as_bytes(), b"target", 0, 0)).inspect(|a| v.release(a.ino, 1));
        }
        v.release(attr.ino, 1);
    }
    if let Some(attr) = fine(v.tmpfile(root, &new(FileKind::Regular))) {
        fine(v.write(attr.ino, 0, b"nameless"));
        v.release(attr.ino, 1);
    }
    for _ in 0..12 {
        if found.files.is_empty() {
            break;
        }
        let (dir, name, attr) = &found.files[rng.random_range(0..found.files.len())];
        change_one(v, rng, *dir, name, attr.ino);
    }
    fine(v.checkpoint());
    fine(v.background());
    fine(v.sync());
}

fn change_one(v: &Volume, rng: &mut Xoshiro256PlusPlus, dir: Ino, name: &[u8], ino: Ino) {
    let most = 1 << rng.random_range(1..32);
    let at = rng.random_range(0..most);
    let resized = SetAttr { size: Some(at), ..SetAttr::default() };
    match rng.random_range(0..16) {
        0 => drop(fine(v.write(ino, at, &[9; 3 * PAGE as usize]))),
        1 => drop(fine(v.setattr(ino, &resized))),
        2 => drop(fine(v.unlink(dir, name))),
        3 => drop(fine(v.rmdir(dir, name))),
        4 => drop(fine(v.rename(dir, name, v.root(), b"moved", RenameFlags::empty()))),
        5 => drop(fine(v.rename(dir, name, v.root(), b"renamed", RenameFlags::EXCHANGE))),
        6 => drop(fine(v.setxattr(ino, b"user.new", &[2; 90], XattrMode::Set))),
        7 => drop(fine(v.fsync(ino, false))),
        8 => {
            let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            fine(v.fallocate(ino, mode, at, 20 * PAGE));
        }
        9 => drop(fine(v.fallocate(ino, FallocateMode::COLLAPSE_RANGE, 0, PAGE))),
        10 => drop(fine(v.fallocate(ino, FallocateMode::empty(), at % (1 << 22), 8 * PAGE))),
        11 => drop(fine(v.set_flags(ino, FileFlags::NODUMP))),
        12 => drop(fine(v.release_saved_blocks(ino))),
        13 => drop(fine(v.reserve_saved_blocks(ino))),
        14 => drop(fine(v.rewrite_compressed(ino, at.is_multiple_of(2)))),
        _ => {
            if fine(v.atomic_start(ino)).is_some() {
                fine(v.write(ino, 0, &[5; 2 * PAGE as usize]));
                fine(v.atomic_commit(ino));
            }
        }
    }
}

/// One case; tells whether the volume was opened to write.
fn case(seed: u64, bases: &[Base]) -> bool {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let which = rng.random_range(0..bases.len());
    let dev = Arc::new(bases[which].damaged(&mut rng));
    let before = dev.written().len();
    if let Some(v) = open(&dev, "ro") {
        walk(&v);
        assert!(
            fine(v.create(v.root(), b"x", &new(FileKind::Regular))).is_none(),
            "a read-only volume changed"
        );
    }
    assert_eq!(dev.written().len(), before, "a read-only mount wrote");
    let options = [
        "",
        "cache=1M",
        "in_place=off,fsync_mode=posix,compress_mode=user",
        "disable_roll_forward",
        "delta=compact",
        "compress=fpc,compact_files=all",
    ];
    let Some(v) = open(&dev, options[rng.random_range(0..options.len())]) else { return false };
    let found = walk(&v);
    change(&v, &mut rng, &found);
    if rng.random_range(0..3) > 0 {
        fine(v.close());
    }
    drop(v);
    // What damage and changes left together need not be sound, but it is no more dangerous.
    if let Some(v) = open(&dev, "") {
        walk(&v);
        fine(v.close());
    }
    true
}

/// A volume of our own with something of everything.
fn own(features: Feature, segs_per_sec: u32, closed: bool) -> MemDevice {
    let dev = Arc::new(MemDevice::new(96 * 256));
    let options =
        MkfsOptions { features, segs_per_sec, discard: false, ..MkfsOptions::new([3; 16], 1_700_000_000) };
    format_volume(&*dev, &options).expect("a volume of this size can be made");
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
    let mut options = MountOptions::default();
    options.parse("compress_extension=*,compress=zstd,compress_chksum").expect("options are right");
    let v = Volume::open(dev.clone(), options, clock.clone()).expect("a new volume opens");
    let root = v.root();
    let make = |dir, name: &str, kind| v.create(dir, name.as_bytes(), &new(kind)).expect("made").ino;
    let write = |ino, at, data: &[u8]| assert_eq!(v.write(ino, at, data).expect("written"), data.len());
    let dir = make(root, "dir", FileKind::Directory);
    for i in 0..150 {
        let ino = make(dir, &format!("one file of many, number {i}"), FileKind::Regular);
        write(ino, 0, &vec![i as u8; i * 40]);
    }
    let deep = make(make(dir, "a", FileKind::Directory), "b", FileKind::Directory);
    let big = make(deep, "big", FileKind::Regular);
    (0..40).for_each(|i| write(big, i * 80 * PAGE, &[i as u8; 2 * PAGE as usize]));
    write(big, 800 * PAGE, &[1; 200 * PAGE as usize]);
    let acl = [2u32.to_le_bytes(), [1, 0, 7, 0], [255; 4], [4, 0, 5, 0], [255; 4], [32, 0, 1, 0], [255; 4]]
        .concat();
    v.setxattr(deep, b"system.posix_acl_default", &acl, XattrMode::Set).expect("an ACL");
    v.setxattr(big, b"user.big", &[6; 1500], XattrMode::Set).expect("an xattr node");
    v.symlink(root, b"link", &[b'l'; 3900], 0, 0).expect("a link of a page");
    make(root, "pipe", FileKind::Fifo);
    v.sync().expect("sync");
    clock.advance(Duration::from_secs(5));
    for i in 0..12 {
        let ino = make(root, &format!("fsynced {i}"), FileKind::Regular);
        write(ino, i * 200 * PAGE, &[i as u8; PAGE as usize]);
        v.setxattr(ino, b"user.x", &vec![4; i as usize * 60], XattrMode::Set).expect("an xattr");
        v.fsync(ino, i % 2 == 0).expect("fsync");
    }
    v.tmpfile(root, &new(FileKind::Regular)).expect("an orphan");
    if closed {
        v.close().expect("closed");
    } else {
        write(big, 3 * PAGE, &[1; 9000]);
        v.fsync(big, false).expect("fsync");
    }
    drop(v);
    dev.snapshot()
}

fn make(dir: &Path) {
    let all = Feature::EXTRA_ATTR
        | Feature::INODE_CHECKSUM
        | Feature::FLEXIBLE_INLINE_XATTR
        | Feature::INODE_CRTIME
        | Feature::SB_CHECKSUM
        | Feature::LOST_FOUND
        | Feature::PROJECT_QUOTA;
    let own = [(Feature::empty(), 1), (Feature::EXTRA_ATTR, 2), (all, 1), (all | Feature::COMPRESSION, 1)]
        .into_iter()
        .flat_map(|(features, segs)| [true, false].map(|closed| own(features, segs, closed)));
    let kernels = volumes("").into_iter().map(|name| load_image(&golden().join(format!("{name}.img.zst"))));
    let deltas = ["", "delta=compact"].map(|options| delta_volume(options).dev);
    let shared = std::iter::once_with(|| shared_volume().dev);
    for (i, dev) in own.chain(kernels).chain(deltas).chain(shared).enumerate() {
        save(&dev, &dir.join(format!("{i}.img"))).expect("the image is saved");
    }
}

fn load(dir: &Path) -> Vec<Base> {
    let images = (0..).map(|i| dir.join(format!("{i}.img"))).take_while(|path| path.exists());
    let read = |path: PathBuf| {
        let file = FileDevice::open(path, FileOptions::read_only()).expect("the image just made");
        Base::new(MemDevice::copy_of(&file).expect("the image is readable"))
    };
    images.map(read).collect()
}

#[test]
fn the_engine_on_mutated_volumes() {
    let target =
        Target { test: "the_engine_on_mutated_volumes", seconds: 8, limited: true, make, load, case };
    if let Some(done) = target.run() {
        assert!(done.cases > 10 && done.deep > done.cases / 5, "{done:?}: too few volumes were opened");
    }
}

/// A NAT entry that leads out of the main area, and a node of two files, one of which takes an address away.
#[test]
fn mutated_volumes_that_once_made_the_engine_panic() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    make(dir.path());
    let bases = load(dir.path());
    for seed in [25, 770_605] {
        case(seed, &bases);
    }
}

/// Canaries: the checks of a case fail where they should.
#[test]
fn what_is_not_fine_is_noticed() {
    let fails = |run: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err();
    assert!(fails(&|| assert!(fine::<()>(Err(Error::Io(io::Error::other("x")))).is_none())));
    assert!(!fails(&|| assert!(fine::<()>(Err(Posix::NotFound.into())).is_none())));
    let bounded = Bounded { dev: Arc::new(MemDevice::new(1)), blocks: AtomicU64::new(MOST_BLOCKS) };
    assert!(fails(&|| bounded.read(0, &mut [&mut Block::boxed()]).expect("memory")));
}
