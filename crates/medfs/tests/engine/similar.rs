//! Pages made from other blocks of their file that look like them, as trees write them that never overwrite what is
//! in use.

use crate::common::*;
use medfs::{FallocateMode, Files, Ino, Volume};
use medfs_device::MemDevice;
use medfs_testkit::images::{FsckF2fs, FsckMedfs};
use medfs_testkit::subject::Check;
use std::sync::Arc;

/// Pages of the tree.
const PAGES: usize = 40;

/// A tree whose pages go to places that are free, and what it is to hold.
struct Tree {
    device: Arc<MemDevice>,
    v: Volume,
    file: Ino,
    content: Vec<u8>,
    /// Where each node lies.
    places: Vec<usize>,
}

impl Tree {
    /// Half of the places are in use, by pages that have nothing in common.
    fn new(options: &str) -> Tree {
        let device = Arc::new(blank_delta(64));
        let v = open_device(&device, options);
        let file = file(&v, v.root(), "data.mdb");
        let mut tree = Tree { device, v, file, content: Vec::new(), places: (0..PAGES / 2).collect() };
        tree.content = (0..PAGES as u64).flat_map(noise).collect();
        for page in 0..PAGES {
            write(&tree.v, file, (page * PAGE) as u64, &tree.content[page * PAGE..(page + 1) * PAGE]);
            tree.v.fsync(file, true).expect("fsync");
        }
        tree.v.sync().expect("sync");
        tree
    }

    /// Changes four nodes a little: each goes to a place that nothing lies in.
    fn change(&mut self, round: usize) {
        for k in 0..4 {
            let node = (round * 7 + k * 5) % self.places.len();
            let free = (0..PAGES).find(|place| !self.places.contains(place)).expect("half is free");
            let old = self.places[node];
            let mut page = self.content[old * PAGE..(old + 1) * PAGE].to_vec();
            page[round * 31 % 4000..][..20].copy_from_slice(&noise(round as u64)[..20]);
            self.put(free, &page);
            self.places[node] = free;
        }
        self.v.fsync(self.file, true).expect("fsync");
    }

    fn put(&mut self, place: usize, page: &[u8]) {
        self.content[place * PAGE..(place + 1) * PAGE].copy_from_slice(page);
        write(&self.v, self.file, (place * PAGE) as u64, page);
    }

    /// A log with these pages of the database.
    fn frames_of(&self, pages: [usize; 3]) -> Vec<u8> {
        let mut frames = vec![0; 32];
        frames[..4].copy_from_slice(&0x377f_0682u32.to_be_bytes());
        frames[8..12].copy_from_slice(&4096u32.to_be_bytes());
        for page in pages {
            frames.extend((page as u32 + 1).to_be_bytes());
            frames.extend([0; 20]);
            frames.extend(&self.content[page * PAGE..(page + 1) * PAGE]);
        }
        frames
    }

    fn check(&self, what: &str) {
        assert!(content(&self.v, self.file) == self.content, "{what}");
        let crashed = open(Arc::new(self.device.snapshot()));
        assert!(content(&crashed, self.file) == self.content, "{what}, after a crash");
    }

    fn end(self) {
        self.v.close().expect("close");
        drop(self.v);
        FsckMedfs.check(self.device.clone()).unwrap_or_else(|e| panic!("fsck.medfs: {e}"));
        FsckF2fs.check(self.device.clone()).unwrap_or_else(|e| panic!("fsck.f2fs: {e}"));
        assert!(content(&open(self.device), self.file) == self.content);
    }
}

#[test]
fn a_copied_page_costs_what_is_new_in_it() {
    let blocks = |options| {
        let mut tree = Tree::new(options);
        let before = tree.v.stats();
        for round in 0..60 {
            tree.change(round);
            tree.check(&format!("round {round}"));
        }
        let after = tree.v.stats();
        tree.end();
        (after.written.total() - before.written.total(), after.deltas.similar - before.deltas.similar)
    };
    let (with, without) = (blocks(""), blocks("similar_deltas=off"));
    assert!(with.1 > 180 && without.1 == 0, "{with:?}, {without:?}");
    assert!(with.0 * 2 < without.0, "{with:?}, {without:?} without");
}

/// What pages are made from is overwritten, punched and cut off.
#[test]
fn copied_pages_outlive_what_they_are_made_from() {
    let mut tree = Tree::new("");
    (0..8).for_each(|round| tree.change(round));
    assert!(tree.v.stats().deltas.similar > 8);
    for place in 0..10 {
        tree.put(place, &noise(1000 + place as u64));
    }
    tree.v.fsync(tree.file, true).expect("fsync");
    tree.check("overwritten");
    let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    tree.v.fallocate(tree.file, mode, 10 * PAGE as u64, 6 * PAGE as u64).expect("fallocate");
    tree.content[10 * PAGE..16 * PAGE].fill(0);
    tree.v.fsync(tree.file, false).expect("fsync");
    tree.check("punched");
    let size = 22 * PAGE;
    tree.v
        .setattr(tree.file, &medfs::SetAttr { size: Some(size as u64), ..Default::default() })
        .expect("truncate");
    tree.content.truncate(size);
    tree.v.fsync(tree.file, false).expect("fsync");
    tree.check("cut off");
    tree.end();
}

/// The blocks of a database whose pages are made from each other are bases of its log all the same.
#[test]
fn a_log_is_made_from_a_database_whose_pages_are_made_from_each_other() {
    let mut tree = Tree::new("");
    let dir = tree.v.root();
    tree.v.rename(dir, b"data.mdb", dir, b"data.db", medfs::RenameFlags::empty()).expect("rename");
    (0..8).for_each(|round| tree.change(round));
    tree.v.sync().expect("sync");
    assert!(tree.v.stats().deltas.similar > 8);
    let log = file(&tree.v, dir, "data.db-wal");
    let frames = tree.frames_of([1, 3, 4]);
    write(&tree.v, log, 0, &frames);
    let before = tree.v.stats().deltas.repeated;
    tree.v.fsync(log, false).expect("fsync");
    assert!(tree.v.stats().deltas.repeated > before);
    tree.put(1, &noise(77));
    tree.put(30, &noise(78));
    tree.v.fsync(tree.file, true).expect("fsync");
    tree.check("the database");
    assert!(content(&tree.v, log) == frames);
    let crashed = open(Arc::new(tree.device.snapshot()));
    assert!(content(&crashed, at(&crashed, "data.db-wal").expect("the log").ino) == frames);
    tree.end();
}

/// A page that the log and other pages of the database are made from changes, and a checkpoint takes that along.
#[test]
fn a_checkpoint_overwrites_what_a_log_and_the_database_itself_are_made_from() {
    let mut tree = Tree::new("");
    let dir = tree.v.root();
    tree.v.rename(dir, b"data.mdb", dir, b"data.db", medfs::RenameFlags::empty()).expect("rename");
    // The list of such files is made when it is first wanted.
    tree.change(3);
    tree.change(0);
    tree.v.sync().expect("sync");
    assert!(tree.v.stats().deltas.similar >= 4);
    let log = file(&tree.v, dir, "data.db-wal");
    let frames = tree.frames_of([1, 10, 15]);
    write(&tree.v, log, 0, &frames);
    tree.v.fsync(log, false).expect("fsync");
    assert!(tree.v.stats().deltas.repeated > 0);
    tree.v.sync().expect("sync");
    let crashed = Arc::new(tree.device.snapshot());
    (tree.v, tree.device) = (open_device(&crashed, "durability=adaptive"), crashed);
    // The log has it in its second frame, and what lay here is at place 5 now, changed a little.
    assert_eq!(tree.places[10], 5);
    tree.put(10, &noise(77));
    tree.v.checkpoint().expect("checkpoint");
    tree.check("the database");
    assert!(content(&tree.v, log) == frames);
    tree.end();
}

/// A log whose pages are made from each other's blocks, in a chain that hangs from a page of the database. A checkpoint
/// takes that page along.
#[test]
fn a_checkpoint_frees_a_chain_of_a_log_from_a_page_of_its_database() {
    const LINKS: usize = 5;
    let mut tree = Tree::new("compact_files=all");
    let dir = tree.v.root();
    tree.v.rename(dir, b"data.mdb", dir, b"data.db", medfs::RenameFlags::empty()).expect("rename");
    tree.change(3);
    tree.v.sync().expect("sync");
    let log = file(&tree.v, dir, "data.db-wal");
    let noise: Vec<u8> = (100..110).flat_map(noise).collect();
    write(&tree.v, log, 0, &noise);
    tree.v.fsync(log, false).expect("fsync");
    let similar = tree.v.stats().deltas.similar;
    for page in 1..=LINKS {
        write(&tree.v, log, (page * PAGE) as u64, &noise[(page + 1) * PAGE..(page + 2) * PAGE]);
    }
    tree.v.fsync(log, false).expect("fsync");
    assert_eq!(tree.v.stats().deltas.similar, similar + LINKS as u64);
    // Frames over the pages that the chain begins with.
    let frames = tree.frames_of([1, 5, 10]);
    let at = 32 + LINKS * (24 + PAGE);
    write(&tree.v, log, 0, &frames[..32]);
    write(&tree.v, log, at as u64, &frames[32..]);
    let repeated = tree.v.stats().deltas.repeated;
    tree.v.fsync(log, false).expect("fsync");
    assert!(tree.v.stats().deltas.repeated > repeated);
    let expected = content(&tree.v, log);
    tree.v.sync().expect("sync");
    let crashed = Arc::new(tree.device.snapshot());
    (tree.v, tree.device) = (open_device(&crashed, "durability=adaptive"), crashed);
    tree.put(1, &crate::common::noise(77));
    tree.v.checkpoint().expect("checkpoint");
    tree.check("the database");
    let crashed = open(Arc::new(tree.device.snapshot()));
    assert!(content(&crashed, self::at(&crashed, "data.db-wal").expect("the log").ino) == expected);
    tree.end();
}
