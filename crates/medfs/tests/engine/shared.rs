//! Shared record nodes: what fsyncs of several files cost, and that a crash shows what each made durable.

use crate::common::*;
use medfs::{Files, Ino, ManualClock, Volume};
use medfs_device::fault::{Effect, Fault, Kind};
use medfs_device::{BlockDevice, Cause, FaultDevice, MemDevice, WriteTag};
use medfs_format::Block;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Barrier, Mutex};

/// Pages of a file, which its inode has the addresses of.
const PAGES: u64 = 6;
const OFF: &str = "group_commit=off";

fn name(n: usize) -> String {
    format!("file {n}")
}

/// Files of noise with a first small update, all durable.
fn files(v: &Volume, count: usize) -> Vec<(Ino, Vec<u8>)> {
    let mut files: Vec<_> = (0..count).map(|n| noisy_file(v, &name(n), PAGES)).collect();
    for (f, expected) in &mut files {
        patch(v, *f, expected, 10, b"a first delta, for which there is a zone");
    }
    v.sync().expect("sync");
    files
}

fn inos(files: &[(Ino, Vec<u8>)]) -> Vec<Ino> {
    files.iter().map(|(f, _)| *f).collect()
}

/// Changes a little of each file.
fn update(v: &Volume, files: &mut [(Ino, Vec<u8>)], round: u64) {
    for (n, (f, expected)) in files.iter_mut().enumerate() {
        let at = (round as usize + n) % PAGES as usize * PAGE + 100 + n;
        patch(v, *f, expected, at, &noise(round * 100 + n as u64)[..30]);
    }
}

fn nodes_of(v: &Volume, work: impl FnOnce()) -> u64 {
    let before = v.stats().written.node;
    work();
    v.stats().written.node - before
}

fn assert_shown(v: &Volume, files: &[(Ino, Vec<u8>)], when: &str) {
    for (n, (_, expected)) in files.iter().enumerate() {
        let shown = content(v, at(v, &name(n)).expect("the file").ino);
        assert!(shown == *expected, "{}, {when}", name(n));
    }
}

fn crashed(device: &MemDevice, options: &str) -> Volume {
    open_device(&Arc::new(device.snapshot()), options)
}

#[test]
fn files_that_are_synced_together_share_a_node() {
    for (options, nodes) in [("", 1), (OFF, 8), ("fsync_mode=posix", 1), ("fsync_mode=nobarrier", 1)] {
        let device = Arc::new(blank_delta(64));
        let v = open_device(&device, options);
        let mut files = files(&v, 8);
        let inos = inos(&files);
        for round in 1..6 {
            update(&v, &mut files, round);
            let flushes = v.stats().flushes;
            assert_eq!(nodes_of(&v, || v.fsync_many(&inos, false).expect("fsync")), nodes, "{options:?}");
            assert!(v.stats().flushes - flushes <= 2, "{options:?}");
            assert_eq!(nodes_of(&v, || v.fsync_many(&inos, false).expect("fsync")), 0, "nothing is left");
            assert_eq!(nodes_of(&v, || v.fsync(inos[2], false).expect("fsync")), 0, "nothing is left");
            let again = crashed(&device, options);
            assert_shown(&again, &files, &format!("round {round}, after a crash, {options:?}"));
            again.close().expect("close");
        }
        v.sync().expect("sync");
        assert_shown(&crashed(&device, "norecovery,ro"), &files, "after a checkpoint");
        v.close().expect("close");
        drop(v);
        judge(&device);
    }
}

#[test]
fn of_a_shared_node_and_an_inode_the_later_one_counts() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, "");
    let mut files = files(&v, 3);
    let inos = inos(&files);
    let sync_one = |n: usize| assert_eq!(nodes_of(&v, || v.fsync(inos[n], false).expect("fsync")), 1);
    update(&v, &mut files, 1);
    v.fsync_many(&inos, false).expect("fsync");
    update(&v, &mut files[..1], 2);
    sync_one(0);
    assert_shown(&crashed(&device, ""), &files, "an inode behind a shared node");
    update(&v, &mut files, 3);
    v.fsync_many(&inos, false).expect("fsync");
    assert_shown(&crashed(&device, ""), &files, "a shared node behind an inode");
    update(&v, &mut files[1..], 4);
    v.fsync_many(&inos[1..], false).expect("fsync");
    assert_shown(&crashed(&device, ""), &files, "a file that only the earlier shared node has");
    // Not synced: a crash shows the file as the shared node has it.
    let durable = files.clone();
    update(&v, &mut files, 5);
    assert_shown(&crashed(&device, ""), &durable, "what no fsync made durable");
}

/// What an entry of the shared node is compared with is of no use to a file whose node goes out whole.
#[test]
fn old_inodes_that_cannot_be_read_cost_no_fsync() {
    let faulty = Arc::new(FaultDevice::new(blank_delta(64), 1));
    let v = open_with(faulty.clone(), "", Arc::new(ManualClock::new(START)));
    let mut files = files(&v, 4);
    let inos = inos(&files);
    let range = 0..faulty.block_count();
    faulty.arm(Fault::on(Kind::Read, Effect::IO).within(range));
    update(&v, &mut files, 1);
    assert_eq!(nodes_of(&v, || v.fsync_many(&inos, false).expect("fsync")), 4, "each goes out whole");
    faulty.heal();
    assert_shown(&crashed(faulty.inner(), ""), &files, "after a crash");
}

/// New files, names, pages in new blocks and large changes go their ordinary way, beside others that share.
#[test]
fn what_an_entry_cannot_say_is_written_as_ever() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, "in_place=off");
    let mut files = files(&v, 4);
    let (new, fresh) = (file(&v, v.root(), &name(4)), noise(77));
    write(&v, new, 0, &fresh);
    files.push((new, fresh));
    update(&v, &mut files[..4], 1);
    patch(&v, files[0].0, &mut files[0].1, PAGE, &noise(5));
    let size = files[1].1.len();
    files[1].1.extend(noise(6));
    write(&v, files[1].0, size as u64, &files[1].1[size..]);
    let inos = inos(&files);
    v.fsync_many(&inos, false).expect("fsync");
    assert!(v.stats().shared_inodes >= 3);
    assert_shown(&crashed(&device, ""), &files, "after a crash");
    assert_eq!(v.fsync_many(&[inos[0], 99_999], false).expect_err("no such file").errno(), 116);
    v.close().expect("close");
    drop(v);
    judge(&device);
}

/// Every crash state of files that are synced together, each also by itself, with a checkpoint in between.
#[test]
fn every_crash_shows_what_was_fsynced() {
    let shared = Arc::new(blank_delta(64));
    let v = open_device(&shared, "");
    files(&v, 4);
    v.close().expect("close");
    drop(v);
    let states = std::sync::Mutex::new(Vec::new());
    let options = "in_place=off,compact_files=all";
    crash(
        &shared,
        options,
        |v, mark| {
            let load = |n| {
                let ino = at(v, &name(n)).expect("the file").ino;
                (ino, content(v, ino))
            };
            let mut files: Vec<_> = (0..4).map(load).collect();
            let inos = inos(&files);
            states.lock().expect("one thread").push(files.clone());
            for round in 1..9u64 {
                let alone = round as usize % 4;
                update(v, &mut files, round);
                states.lock().expect("one thread").push(files.clone());
                match round {
                    4 => v.sync().expect("sync"),
                    _ => v.fsync_many(&inos, false).expect("fsync"),
                }
                mark(2 * round - 1);
                update(v, &mut files[alone..=alone], round + 50);
                states.lock().expect("one thread").push(files.clone());
                v.fsync(inos[alone], false).expect("fsync");
                mark(2 * round);
            }
            assert!(v.stats().shared_inodes > 20);
        },
        |v, mark| {
            let states = states.lock().expect("one thread");
            for n in 0..4 {
                let shown = content(v, at(v, &name(n)).expect("the file").ino);
                let is = |s: u64| states.get(s as usize).is_some_and(|s| s[n].1 == shown);
                assert!(is(mark) || is(mark + 1), "{} after step {mark}", name(n));
            }
        },
    );
}

/// A torn shared node counts for nothing; one whose base is not what it was is an error, not other content.
#[test]
fn damage_is_noticed() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, "");
    let mut files = files(&v, 3);
    let before = files.clone();
    update(&v, &mut files, 1);
    v.fsync_many(&inos(&files), false).expect("fsync");
    use medfs_device::{BlockDevice, WriteTag};
    use medfs_format::{Block, node::footer, shared};
    let snapshot = device.snapshot();
    let read = |addr: u64| {
        let mut block = Block::ZERO;
        snapshot.read(addr, &mut [&mut block]).expect("read");
        block
    };
    let put = |to: &MemDevice, addr: u64, block: &Block| {
        let tag = WriteTag::new(medfs_device::Cause::Node, medfs_device::Temperature::Warm);
        to.write(addr, &[block], tag).expect("write");
    };
    let addr = (0..snapshot.block_count()).find(|&a| shared::is_shared(&read(a), 1)).expect("the node");
    let base = shared::entries(&read(addr), addr as u32).expect("sound")[1].base;
    assert_eq!(footer(&read(addr)).ino.get(), 1);
    let torn = Arc::new(device.snapshot());
    let mut block = read(addr);
    block.0[2048..].fill(0);
    block.0[4072..].copy_from_slice(&read(addr).0[4072..]);
    block.0[300..400].fill(0xaa);
    put(&torn, addr, &block);
    assert_shown(&open_device(&torn, ""), &before, "with a torn node");
    let flipped = Arc::new(device.snapshot());
    let mut block = read(addr);
    block.0[300] ^= 1;
    put(&flipped, addr, &block);
    assert_shown(&open_device(&flipped, ""), &files, "with one flipped bit");
    let other = Arc::new(device.snapshot());
    let mut block = read(base.into());
    block.0[3000] ^= 1;
    put(&other, base.into(), &block);
    let mut options = medfs::MountOptions::default();
    options.parse("").expect("options");
    let clock = Arc::new(medfs::ManualClock::new(START));
    let error = Volume::open(other, options, clock).expect_err("the volume does not open");
    assert!(
        error.to_string().contains("shared record node") || error.to_string().contains("inode"),
        "{error}"
    );
}

/// A device whose flushes take so long that fsyncs of other threads come meanwhile.
struct Slow(Arc<MemDevice>);

impl medfs_device::BlockDevice for Slow {
    fn block_count(&self) -> u64 {
        self.0.block_count()
    }
    fn read_only(&self) -> bool {
        self.0.read_only()
    }
    fn read(&self, first: u64, blocks: &mut [&mut medfs_format::Block]) -> std::io::Result<()> {
        self.0.read(first, blocks)
    }
    fn write(
        &self,
        first: u64,
        blocks: &[&medfs_format::Block],
        tag: medfs_device::WriteTag,
    ) -> std::io::Result<()> {
        self.0.write(first, blocks, tag)
    }
    fn flush(&self) -> std::io::Result<()> {
        std::thread::sleep(std::time::Duration::from_millis(1));
        self.0.flush()
    }
    fn discard(&self, first: u64, count: u64) -> std::io::Result<()> {
        self.0.discard(first, count)
    }
}

/// Node blocks, flushes and inodes that shared, of threads that each sync their own file so often.
fn by_threads(threads: usize, rounds: u64, options: &str) -> (u64, u64, u64) {
    let device = Arc::new(blank_delta(64));
    let v = open_with(Arc::new(Slow(device.clone())), options, Arc::new(medfs::ManualClock::new(START)));
    let mut files = files(&v, threads);
    let before = v.stats();
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        for (n, (f, expected)) in files.iter_mut().enumerate() {
            let (v, start) = (&v, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..rounds {
                    let at = round as usize % PAGES as usize * PAGE + 100;
                    patch(v, *f, expected, at, &noise(round * 100 + n as u64)[..30]);
                    v.fsync(*f, false).expect("fsync");
                }
            });
        }
    });
    let after = v.stats();
    assert_shown(&crashed(&device, options), &files, "after a crash");
    v.close().expect("close");
    drop(v);
    judge(&device);
    (
        after.written.node - before.written.node,
        after.flushes - before.flushes,
        after.shared_inodes - before.shared_inodes,
    )
}

#[test]
fn fsyncs_of_threads_meet() {
    let (alone, _, shared) = by_threads(1, 20, "");
    assert_eq!((alone, shared), (20, 0), "one thread writes inodes");
    let (without, _, none) = by_threads(4, 20, OFF);
    let (with, _, shared) = by_threads(4, 20, "");
    assert_eq!((without, none), (80, 0));
    assert!(with < without && shared > 0, "{with} node blocks, {shared} inodes share");
}

/// What sharing is worth: `cargo test --release -p medfs --test engine -- --ignored --nocapture shared::`.
#[test]
#[ignore = "a measurement"]
fn node_blocks_and_flushes_by_threads() {
    for threads in [1, 2, 4, 8] {
        let (off, off_flushes, _) = by_threads(threads, 200, OFF);
        let (on, on_flushes, shared) = by_threads(threads, 200, "");
        println!(
            "{threads} threads, {} fsyncs: node blocks {off} -> {on}, flushes {off_flushes} -> {on_flushes}, {shared} inodes shared",
            threads * 200
        );
    }
}

/// A device that notes which blocks are written as nodes, and how often each block is read by itself: reading
/// ahead takes many at once.
struct Noted {
    inner: MemDevice,
    nodes: Mutex<BTreeSet<u64>>,
    reads: Mutex<BTreeMap<u64, u32>>,
}

impl BlockDevice for Noted {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        if blocks.len() == 1 {
            *self.reads.lock().unwrap().entry(addr).or_default() += 1;
        }
        self.inner.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        if tag.cause == Cause::Node {
            self.nodes.lock().unwrap().extend((addr..).take(blocks.len()));
        }
        self.inner.write(addr, blocks, tag)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.inner.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        false
    }
}

/// Nodes of their own and shared ones: roll-forward follows the chain, then replays it, and looks at inodes
/// ahead of their turn.
#[test]
fn a_mount_reads_each_block_of_the_chain_once() {
    let device = Arc::new(Noted { inner: blank_delta(64), nodes: Mutex::default(), reads: Mutex::default() });
    let open = |options| open_with(device.clone(), options, Arc::new(ManualClock::new(START)));
    let v = open("");
    let mut files = files(&v, 8);
    device.nodes.lock().unwrap().clear();
    for round in 0..5 {
        update(&v, &mut files, round);
        v.fsync_many(&inos(&files), false).unwrap();
        update(&v, &mut files[..1], round + 50);
        v.fsync(files[0].0, false).unwrap();
    }
    drop(v);
    let chain = std::mem::take(&mut *device.nodes.lock().unwrap());
    assert!(chain.len() >= 10, "{} nodes", chain.len());
    device.reads.lock().unwrap().clear();
    // A mount that writes looks at what lies ahead of the log, too.
    let v = open("ro");
    let reads = device.reads.lock().unwrap().clone();
    let again: Vec<_> = chain.iter().filter(|addr| reads.get(addr).copied() != Some(1)).collect();
    let again: Vec<_> = again.into_iter().map(|addr| (addr, reads.get(addr))).collect();
    assert!(again.is_empty(), "how often blocks of the chain were read: {again:?}");
    assert_shown(&v, &files, "after recovery");
}
