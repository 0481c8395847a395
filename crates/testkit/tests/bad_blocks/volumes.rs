//! The volumes that are damaged, each to be made when it is wanted.

use crate::common::{golden, load_image, volumes};
use medfs::{FileKind, Files, Ino, MountOptions, NewFile, Volume as Engine, XattrMode};
use medfs_device::MemDevice;
use medfs_testkit::bad_blocks::Volume;
use medfs_testkit::delta_volume::{COMPACT, DATABASE, JOURNAL, LOG, delta_volume, shared_volume};
use medfs_testkit::images::{COMPRESSED, DELTAS, FEATURE_SETS, formatted, options_for};
use medfs_testkit::volume::test_clock;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;

const PAGE: usize = 4096;

fn new(kind: FileKind) -> NewFile {
    NewFile { kind, perm: 0o755, umask: 0, uid: 7, gid: 8, rdev: 0 }
}

/// What a test writes into a file: `seed` and place decide it.
fn content(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 3 + i / PAGE * 7 + seed as usize * 31) as u8 | 1).collect()
}

struct Maker {
    v: Engine,
    made: u64,
}

impl Maker {
    fn dir(&self, parent: Ino, name: &str) -> Ino {
        let ino = self.v.create(parent, name.as_bytes(), &new(FileKind::Directory)).expect(name).ino;
        self.v.release(ino, 1);
        ino
    }

    fn file(&mut self, parent: Ino, name: &str, len: usize) -> Ino {
        let ino = self.v.create(parent, name.as_bytes(), &new(FileKind::Regular)).expect(name).ino;
        self.made += 1;
        if len > 0 {
            self.v.write(ino, 0, &content(self.made, len)).expect("write");
        }
        self.v.release(ino, 1);
        ino
    }
}

/// A volume of every kind of node and directory, with several checkpoints behind it; the last files and an
/// open one that was removed are of an interrupted session where `crashed`.
pub(crate) fn made(features: &str, crashed: bool) -> MemDevice {
    made_of(64, features, crashed)
}

fn made_of(mebibytes: u64, features: &str, crashed: bool) -> MemDevice {
    let dev = Arc::new(formatted(mebibytes, features).snapshot());
    let mut options = MountOptions::default();
    options.parse(options_for(features)).expect("options");
    let v = Engine::open(dev.clone(), options, test_clock()).expect("the volume opens");
    let root = v.root();
    let mut m = Maker { v, made: 0 };
    let dirs: Vec<Ino> = (0..4).map(|i| m.dir(root, &format!("dir {i}"))).collect();
    let deep = dirs.iter().fold(dirs[0], |above, i| m.dir(above, &format!("deep {i}")));
    for i in 0..120 {
        m.file(dirs[1], &format!("file number {i} with a longish name"), i % 7 * 900);
    }
    m.v.sync().expect("sync");
    for (i, &dir) in dirs.iter().enumerate() {
        m.file(dir, "inline", 100 + i);
        m.file(dir, "page", 5000 + i);
        m.v.symlink(dir, b"link", b"inline", 7, 8).expect("symlink");
    }
    m.file(deep, "at the bottom", 9000);
    let large = m.file(root, "large", 30 * PAGE);
    for page in [930, 1950, 2990, 5000, 1_100_000] {
        m.v.write(large, page * PAGE as u64, &content(page, 2 * PAGE)).expect("write");
    }
    m.v.link(large, dirs[2], b"its other name").expect("link");
    let small = m.file(root, "with attributes", 50);
    for i in 0..4 {
        let name = format!("user.name{i}");
        m.v.setxattr(small, name.as_bytes(), &[i; 700], XattrMode::Set).expect("setxattr");
    }
    m.v.sync().expect("sync");
    for i in 0..20 {
        let name = format!("file number {} with a longish name", i * 3);
        m.v.unlink(dirs[1], name.as_bytes()).expect("unlink");
        m.file(dirs[3], &format!("later {i}"), i * 800);
    }
    m.v.write(large, 0, &content(99, PAGE)).expect("write");
    m.v.sync().expect("sync");
    m.file(dirs[2], "last", 6000);
    if crashed {
        m.v.sync().expect("sync");
        for i in 0..3 {
            let ino = m.file(root, &format!("fsynced {i}"), 3 * PAGE + i);
            m.v.fsync(ino, false).expect("fsync");
        }
        let page = m.v.lookup(dirs[2], b"page").expect("there").ino;
        m.v.write(page, 100, b"other words").expect("write");
        m.v.fsync(page, false).expect("fsync");
        return dev.snapshot();
    }
    m.v.close().expect("close");
    dev.snapshot()
}

/// A volume with more changed segments than the journals take, so that the blocks of the SIT say what is in use,
/// with fsyncs to roll forward.
pub(crate) fn worked_on(features: &str) -> MemDevice {
    let dev = Arc::new(made_of(128, features, false));
    let mut options = MountOptions::default();
    options.parse(options_for(features)).expect("options");
    let v = Engine::open(dev.clone(), options, test_clock()).expect("the volume opens");
    let root = v.root();
    let mut m = Maker { v, made: 1000 };
    let large: Vec<Ino> = (0..12).map(|i| m.file(root, &format!("of megabytes {i}"), 500 * PAGE)).collect();
    m.v.checkpoint().expect("checkpoint");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut page = vec![0; PAGE];
    for at in large.iter().flat_map(|&ino| [(ino, 0), (ino, 499)]) {
        rng.fill(&mut page[..]);
        m.v.write(at.0, at.1 * PAGE as u64, &page).expect("write");
    }
    m.v.checkpoint().expect("checkpoint");
    let dir = m.v.lookup(root, b"dir 1").expect("there").ino;
    for i in 0..40 {
        let ino = match i % 4 {
            0 => m.file(dir, &format!("fsynced {i}"), 2 * PAGE),
            _ => {
                let name = format!("file number {} with a longish name", i + 60);
                m.v.lookup(dir, name.as_bytes()).expect("there").ino
            }
        };
        m.v.write(ino, i, &content(i, 50)).expect("write");
        m.v.fsync(ino, false).expect("fsync");
    }
    dev.snapshot()
}

pub(crate) fn of_deltas(name: &str, options: &str) -> Volume {
    let made = delta_volume(options);
    let ino = |name: &str| made.file(name).ino;
    let from = [(ino(LOG), ino(DATABASE)), (ino(JOURNAL), ino(DATABASE))];
    let mut volume = Volume::new(name, made.dev.snapshot(), &from);
    volume.reverting.push(ino(COMPACT));
    volume
}

pub(crate) type Make = Box<dyn Fn() -> Volume>;

/// The volumes, each to be made when it is wanted.
pub(crate) fn kinds() -> Vec<Make> {
    let mut all: Vec<Make> = vec![
        Box::new(|| Volume::new("plain", made(FEATURE_SETS[0], false), &[])),
        Box::new(|| Volume::new("features", made(FEATURE_SETS[1], false), &[])),
        Box::new(|| Volume::new("compressed", made(COMPRESSED[0], false), &[])),
        Box::new(|| Volume::new("plain, crashed", made(FEATURE_SETS[0], true), &[])),
        Box::new(|| Volume::new("features, crashed", made(FEATURE_SETS[1], true), &[])),
        Box::new(|| Volume::new("compressed with deltas, crashed", made(COMPRESSED[1], true), &[])),
        Box::new(|| Volume::new("deltas, worked on, crashed", worked_on(DELTAS), &[])),
        Box::new(|| Volume::new("features, worked on, crashed", worked_on(FEATURE_SETS[1]), &[])),
        Box::new(|| of_deltas("deltas", "")),
        Box::new(|| of_deltas("compact pages", "delta=compact")),
        Box::new(|| Volume::new("shared nodes, crashed", shared_volume().dev, &[])),
    ];
    for name in volumes("") {
        all.push(Box::new(move || {
            let image = load_image(&golden().join(format!("{name}.img.zst")));
            Volume::new(format!("kernel's {name}"), image, &[])
        }));
    }
    all
}
