//! A volume with deltas in every place that they can have, made by the engine: zones, compact pages, and bases made of
//! blocks of other files. What checks and damages deltas starts from it.
//!
//! It is the same at every call, but for what `mkfs.f2fs` draws by lot.

use crate::images::{DELTAS, formatted};
use crate::volume::test_clock;
use medfs::{FileKind, Files, Ino, MountOptions, NewFile, Volume};
use medfs_device::MemDevice;
use medfs_format::BLOCK_SIZE;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;

/// A file of the volume.
#[derive(Debug, Clone)]
pub struct DeltaFile {
    /// Its name in the root directory.
    pub name: &'static str,
    /// Its number.
    pub ino: Ino,
    /// Its content.
    pub now: Vec<u8>,
    /// What its pages are without their deltas.
    pub old: Vec<u8>,
    /// What it was at every fsync.
    pub states: Vec<Vec<u8>>,
}

/// The volume and its files.
pub struct DeltaVolume {
    /// Closed cleanly.
    pub dev: MemDevice,
    /// [`PLAIN`], [`ZONE`], [`COMPACT`], [`DATABASE`], [`LOG`] and [`JOURNAL`].
    pub files: Vec<DeltaFile>,
}

/// A file whose zone takes all its deltas.
pub const ZONE: &str = "zone";
/// A file without deltas.
pub const PLAIN: &str = "plain";
/// A file with compact pages, and marks that hide records in them.
pub const COMPACT: &str = "compact";
/// A database, with a log and a journal whose pages are made of its blocks.
pub const DATABASE: &str = "x.db";
/// That log.
pub const LOG: &str = "x.db-wal";
/// That journal.
pub const JOURNAL: &str = "x.db-journal";

impl DeltaVolume {
    /// The file of this name.
    pub fn file(&self, name: &str) -> &DeltaFile {
        self.files.iter().find(|f| f.name == name).expect("the volume has it")
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

struct Maker {
    v: Volume,
    files: Vec<DeltaFile>,
}

impl Maker {
    /// A file of noise, durable.
    fn file(&mut self, name: &'static str, pages: usize) {
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let ino = self.v.create(self.v.root(), name.as_bytes(), &new).expect("create").ino;
        let now = noise(self.files.len() as u64 + 1, pages * BLOCK_SIZE);
        self.v.write(ino, 0, &now).expect("write");
        self.v.sync().expect("sync");
        self.files.push(DeltaFile { name, ino, old: now.clone(), states: vec![now.clone()], now });
    }

    fn patch(&mut self, at: usize, bytes: &[u8]) {
        let file = self.files.last_mut().expect("a file");
        file.now[at..at + bytes.len()].copy_from_slice(bytes);
        self.v.write(file.ino, at as u64, bytes).expect("write");
    }

    fn fsync(&mut self) {
        let file = self.files.last_mut().expect("a file");
        self.v.fsync(file.ino, false).expect("fsync");
        file.states.push(file.now.clone());
    }

    /// Small updates of many pages, each twice; then a page that is written whole, which takes a mark.
    fn compact(&mut self, pages: usize) {
        self.file(COMPACT, pages);
        for round in 0..6 {
            for n in 0..pages / 3 {
                let page = (round * pages / 6 + n) % pages;
                self.patch(page * BLOCK_SIZE + 600 * round, &noise((1000 * round + n) as u64, 250));
            }
            self.fsync();
        }
        self.patch(3 * BLOCK_SIZE, &noise(77, BLOCK_SIZE));
        self.fsync();
        let file = self.files.last_mut().expect("a file");
        file.old[3 * BLOCK_SIZE..4 * BLOCK_SIZE].copy_from_slice(&file.now[3 * BLOCK_SIZE..4 * BLOCK_SIZE]);
    }

    /// Has the engine make its list of files that are made from others, which it does when the first one
    /// wants to be on it.
    fn list_is_there(&mut self) {
        let (root, name) = (self.v.root(), LOG.as_bytes());
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let ino = self.v.create(root, name, &new).expect("create").ino;
        let words = [0x377f_0682u32, 3_007_000, BLOCK_SIZE as u32, 0, 1, 2, 3, 4];
        let mut frame: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        frame.extend([0, 0, 0, 1].into_iter().chain([0; 20]));
        frame.extend(&self.files.last().expect("the database").now[..BLOCK_SIZE]);
        self.v.write(ino, 0, &frame).expect("write");
        self.v.fsync(ino, false).expect("fsync");
        self.v.unlink(root, name).expect("unlink");
        self.v.release(ino, 1);
        self.v.sync().expect("sync");
    }

    /// A file whose content, durable at once, is made of pages of the database: `around` gives what is before
    /// and after each.
    fn repeat(&mut self, name: &'static str, head: Vec<u8>, around: impl Fn(u32) -> (Vec<u8>, Vec<u8>)) {
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let ino = self.v.create(self.v.root(), name.as_bytes(), &new).expect("create").ino;
        let database = self.files.iter().find(|f| f.name == DATABASE).expect("made before").now.clone();
        let mut now = head;
        for page in [4usize, 9, 2, 17, 11, 5] {
            let (before, after) = around(page as u32 + 1);
            now.extend(before);
            now.extend(&database[page * BLOCK_SIZE..][..BLOCK_SIZE]);
            let at = now.len() - 2000;
            now[at..at + 20].fill(page as u8);
            now.extend(after);
        }
        self.v.write(ino, 0, &now).expect("write");
        self.v.fsync(ino, false).expect("fsync");
        // What is a delta has no block.
        let old = vec![0; now.len()];
        self.files.push(DeltaFile { name, ino, old: old.clone(), states: vec![old, now.clone()], now });
    }
}

/// Files of [`shared_volume`].
pub const SHARED_FILES: [&str; 4] = ["one", "two", "three", "four"];
/// Times that they were fsynced together.
pub const SHARED_ROUNDS: usize = 3;

/// A volume that power was taken from: the last fsyncs of its files are in shared record nodes, one for each
/// round. The content of a file at the checkpoint is the first of its states.
pub fn shared_volume() -> DeltaVolume {
    let dev = Arc::new(formatted(80, DELTAS).snapshot());
    let v = Volume::open(dev.clone(), MountOptions::default(), test_clock()).expect("the volume opens");
    let mut m = Maker { v, files: Vec::new() };
    for name in SHARED_FILES {
        m.file(name, 6);
        m.patch(10, &[3; 9]);
        m.fsync();
    }
    m.v.sync().expect("sync");
    let inos: Vec<Ino> = m.files.iter().map(|file| file.ino).collect();
    m.files.iter_mut().for_each(|file| file.states = vec![file.now.clone()]);
    for round in 0..SHARED_ROUNDS {
        for (n, file) in m.files.iter_mut().enumerate() {
            let (at, bytes) = ((n + round) % 6 * BLOCK_SIZE + 100, [17 * round as u8 + n as u8; 25]);
            file.now[at..at + bytes.len()].copy_from_slice(&bytes);
            m.v.write(file.ino, at as u64, &bytes).expect("write");
        }
        m.v.fsync_many(&inos, false).expect("fsync");
        m.files.iter_mut().for_each(|file| file.states.push(file.now.clone()));
    }
    assert_eq!(m.v.stats().shared_nodes, SHARED_ROUNDS as u64, "one node for each round");
    let crashed = dev.snapshot();
    DeltaVolume { dev: crashed, files: m.files }
}

/// Makes the volume; `options` are the mount's.
pub fn delta_volume(options: &str) -> DeltaVolume {
    let dev = Arc::new(formatted(80, DELTAS).snapshot());
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options are right");
    let v = Volume::open(dev.clone(), parsed, test_clock()).expect("the volume opens");
    let mut m = Maker { v, files: Vec::new() };
    m.file(PLAIN, 6);
    m.file(ZONE, 8);
    for page in [1, 4, 6] {
        m.patch(page * BLOCK_SIZE + 1000, &[250; 30]);
        m.fsync();
    }
    m.compact(60);
    m.file(DATABASE, 20);
    let mut head = [0; 32];
    head[..4].copy_from_slice(&0x377f_0682u32.to_be_bytes());
    head[8..12].copy_from_slice(&(BLOCK_SIZE as u32).to_be_bytes());
    m.list_is_there();
    m.repeat(LOG, head.to_vec(), |n| {
        let mut frame = vec![0; 24];
        frame[..4].copy_from_slice(&n.to_be_bytes());
        (frame, Vec::new())
    });
    let mut head = vec![0; 512];
    head[20..24].copy_from_slice(&512u32.to_be_bytes());
    head[24..28].copy_from_slice(&(BLOCK_SIZE as u32).to_be_bytes());
    m.repeat(JOURNAL, head, |n| (n.to_be_bytes().to_vec(), vec![7; 4]));
    let made = m.v.stats().deltas;
    assert!(made.compact_pages > 2 && made.repeated > 4, "too few deltas of some kind: {made:?}");
    m.v.close().expect("close");
    let files = m.files;
    drop(m.v);
    DeltaVolume { dev: dev.snapshot(), files }
}
