//! The chain of fsynced nodes holds what was acknowledged, and nothing of an earlier life; what deltas are
//! made from is what a crash leaves.

use crate::common::*;
use medfs::{FallocateMode, Files, ManualClock, RenameFlags, SetAttr, Volume};
use medfs_device::crash::{CrashPlan, CrashState, RecordingDevice};
use medfs_device::{BlockDevice, MemDevice, WriteTag, read_block};
use medfs_format::checkpoint::{RawCheckpoint, verify_checksum};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{Block, node};
use medfs_fsck::inject::{Target, change};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

fn kinds() -> [MemDevice; 2] {
    [blank(64, all_features()), blank_delta(64)]
}

fn noises(seeds: std::ops::Range<u64>) -> Vec<u8> {
    seeds.flat_map(noise).collect()
}

/// Every state, whatever the number.
fn every_state(recorder: &RecordingDevice) -> Vec<CrashState> {
    let plan = CrashPlan { exhaustive: 4096, samples: 0, seed: 1, ..CrashPlan::default() };
    recorder.recording().states(&plan).collect()
}

/// After a crash another file is made durable and power is lost again: it must be there, and `look` be content.
fn survives_the_second_crash(state: &CrashState, look: impl Fn(&Volume)) {
    let device = Arc::new(state.device());
    let text = noises(900..908);
    let v = open_device(&device, "");
    let c = file(&v, v.root(), "c");
    write(&v, c, 0, &text);
    v.fsync(c, false).unwrap();
    drop(v); // power loss; all that was written is stored
    let v = open_device(&device, "");
    let c = at(&v, "c").unwrap_or_else(|| panic!("{state:?}: what was fsynced is gone"));
    assert!(content(&v, c.ino) == text, "{state:?}: what was fsynced has other content");
    look(&v);
    v.close().unwrap();
    if state.ordinal.is_multiple_of(16) {
        judge(&device);
    }
}

/// Two files become durable by one flush, and power is lost before it ends: of their nodes only the second
/// may be stored. The next mount finds no chain, and must not write one that leads to that node.
#[test]
fn a_node_of_an_fsync_that_never_returned_is_not_taken_up_after_the_next_crash() {
    for base in kinds() {
        let device = Arc::new(base);
        {
            let v = open_device(&device, "");
            for name in ["a", "b"] {
                let f = file(&v, v.root(), name);
                write(&v, f, 0, &[1; 2 * PAGE]);
            }
            v.close().unwrap();
        }
        let recorder = Arc::new(RecordingDevice::new(&device));
        let v = open_with(recorder.clone(), "group_commit=off", Arc::new(ManualClock::new(START)));
        let (a, b) = (at(&v, "a").unwrap().ino, at(&v, "b").unwrap().ino);
        write(&v, a, 2 * PAGE as u64, &noise(50));
        write(&v, b, 2 * PAGE as u64, &noises(60..66));
        v.fsync_many(&[a, b], false).unwrap();
        drop(v);
        for state in every_state(&recorder) {
            survives_the_second_crash(&state, |v| {
                let b = content(v, at(v, "b").unwrap().ino);
                assert!(
                    b[2 * PAGE..].is_empty() || b[2 * PAGE..] == noises(60..66),
                    "{state:?}: another's bytes"
                );
            });
        }
    }
}

/// From `on` on: the first flush covers what came before, and returns when one node was written since; the
/// second waits for two nodes.
struct Meeting {
    inner: RecordingDevice,
    on: AtomicBool,
    flushes: AtomicUsize,
    nodes: Mutex<usize>,
    changed: Condvar,
}

impl Meeting {
    fn wait_for(&self, count: usize) {
        let nodes = self.nodes.lock().unwrap();
        drop(self.changed.wait_while(nodes, |nodes| *nodes < count).unwrap());
    }
}

impl BlockDevice for Meeting {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.inner.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.inner.write(addr, blocks, tag)?;
        if self.on.load(Ordering::SeqCst) && tag.cause == medfs_device::Cause::Node {
            *self.nodes.lock().unwrap() += blocks.len();
            self.changed.notify_all();
        }
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        let number =
            if self.on.load(Ordering::SeqCst) { self.flushes.fetch_add(1, Ordering::SeqCst) } else { 2 };
        if number == 1 {
            self.wait_for(2);
        }
        self.inner.flush()?;
        if number == 0 {
            self.wait_for(1);
        }
        Ok(())
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.inner.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        false
    }
}

/// The same of two threads, one of which writes its node while the other's data is being flushed.
#[test]
fn a_node_of_another_threads_fsync_is_not_taken_up_either() {
    for base in kinds() {
        let mem = Arc::new(base);
        {
            let v = open_device(&mem, "");
            let f = file(&v, v.root(), "a");
            write(&v, f, 0, &[1; 2 * PAGE]);
            v.close().unwrap();
        }
        let device = Arc::new(Meeting {
            inner: RecordingDevice::new(&mem),
            on: AtomicBool::new(false),
            flushes: AtomicUsize::new(0),
            nodes: Mutex::new(0),
            changed: Condvar::new(),
        });
        let v = Arc::new(open_with(device.clone(), "", Arc::new(ManualClock::new(START))));
        let a = at(&v, "a").unwrap().ino;
        v.setattr(a, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
        let b = file(&v, v.root(), "b");
        write(&v, b, 0, &noises(60..66));
        device.on.store(true, Ordering::SeqCst);
        let other = v.clone();
        let thread = std::thread::spawn(move || other.fsync(b, false).unwrap());
        while device.flushes.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        v.fsync(a, false).unwrap();
        thread.join().unwrap();
        drop(v);
        for state in every_state(&device.inner) {
            survives_the_second_crash(&state, |v| {
                let b = at(v, "b").map(|b| content(v, b.ino));
                assert!(b.is_none_or(|b| b == noises(60..66)), "{state:?}: another's bytes");
            });
        }
    }
}

/// A volume whose newer pack is broken falls back to the older one: the version of the broken one may be in footers.
#[test]
fn a_version_that_a_broken_pack_had_is_not_used_again() {
    let device = Arc::new(blank(64, all_features()));
    let v = open_device(&device, "");
    let f = file(&v, v.root(), "f");
    v.sync().unwrap();
    write(&v, f, 0, b"more");
    v.sync().unwrap();
    v.close().unwrap();
    let packs = |device: &MemDevice| {
        let sb = read_block(device, 0).unwrap();
        let geometry = RawSuperblock::in_block(&sb).validate().unwrap();
        [0, 1].map(|i| {
            let addr = geometry.cp_pack(i);
            let block = read_block(device, addr.into()).unwrap();
            let whole = verify_checksum(&block, addr).is_ok();
            (addr, RawCheckpoint::in_block(&block).checkpoint_ver.get(), whole)
        })
    };
    let newest = packs(&device).into_iter().max_by_key(|pack| pack.1).unwrap();
    let first = read_block(&*device, newest.0.into()).unwrap();
    let blocks = RawCheckpoint::in_block(&first).cp_pack_total_block_count.get();
    // Either header alone would show that the checkpoint was complete; one flipped bit would be turned back.
    for header in [newest.0, newest.0 + blocks - 1] {
        let mut damaged = read_block(&*device, header.into()).unwrap();
        damaged.0[40] ^= 7;
        device.write(header.into(), &[&damaged], TAG).unwrap();
    }
    let v = open_device(&device, "");
    let f = file(&v, v.root(), "g");
    write(&v, f, 0, b"text");
    v.sync().unwrap();
    drop(v);
    let now = packs(&device).into_iter().filter(|pack| pack.2).map(|pack| pack.1).max().unwrap();
    assert!(now > newest.1, "version {now}, but {} was used before", newest.1);
    assert_eq!(now % 2, newest.1 % 2, "a pack's versions stay odd or even");
}

const TAG: WriteTag = WriteTag::new(medfs_device::Cause::Meta, medfs_device::Temperature::Cold);

/// Where the one inode block of a file is.
fn inode_block(device: &MemDevice, ino: u32) -> u64 {
    let of_inode = |&addr: &u64| {
        let block = read_block(device, addr).unwrap();
        let footer = node::footer(&block);
        (footer.nid.get(), footer.ino.get()) == (ino, ino) && footer.cp_ver.get() != 0
    };
    let found: Vec<u64> = (0..device.block_count()).filter(of_inode).collect();
    assert_eq!(found.len(), 1, "{found:x?}");
    found[0]
}

/// The SIT says of a file's inode block that it is free: that file cannot be fsynced, others can.
#[test]
fn an_fsync_that_fails_leaves_no_gap_before_those_that_follow() {
    for base in kinds() {
        let device = Arc::new(base);
        let (a, geometry) = {
            let v = open_device(&device, "");
            let [a, _] = ["a", "b"].map(|name| {
                let f = file(&v, v.root(), name);
                write(&v, f, 0, &[1; 2 * PAGE]);
                f
            });
            v.close().unwrap();
            (a, v.geometry().clone())
        };
        let addr = inode_block(&device, a) as u32;
        let (segno, offset) = (geometry.segno(addr), geometry.offset_in_seg(addr) as usize);
        // Another one is in use in its place: a volume with fewer nodes than are counted does not open.
        let map = |offset: usize| format!("valid_map[{}]", offset / 8);
        change(&*device, &Target::Sit(segno), &map(offset), |b| b & !(0x80 >> (offset % 8))).unwrap();
        change(&*device, &Target::Sit(segno), &map(500), |b| b | 0x80 >> (500 % 8)).unwrap();
        let other = u64::from(addr) - offset as u64 + 500;
        change(&*device, &Target::Nat(100), "block_addr", |_| other).unwrap();
        change(&*device, &Target::Nat(100), "ino", |_| 100).unwrap();
        let v = open_device(&device, "");
        let (a, b) = (at(&v, "a").unwrap().ino, at(&v, "b").unwrap().ino);
        write(&v, a, 0, &[2; 4 * PAGE]);
        v.fsync(a, false).expect_err("its inode's block is free");
        let text = noises(40..44);
        write(&v, b, 0, &text);
        v.fsync(b, false).expect("nothing is wrong with this file");
        drop(v); // power loss
        let v = open_device(&device, "");
        assert!(content(&v, at(&v, "b").unwrap().ino) == text, "what was fsynced is gone");
    }
}

/// SQLite's log and a frame of it.
fn log_header() -> Vec<u8> {
    [0x377f_0682u32, 3_007_000, 4096, 0, 1, 2, 3, 4].iter().flat_map(|w| w.to_be_bytes()).collect()
}

fn frame(number: usize, page: &[u8]) -> Vec<u8> {
    let mut frame = vec![7u8; 24];
    frame[..4].copy_from_slice(&(number as u32 + 1).to_be_bytes());
    frame.extend(page);
    frame
}

/// A log's frames are made from blocks of its database that were just overwritten in place, and not flushed.
#[test]
fn a_log_is_readable_where_the_database_it_is_made_from_was_not_durable() {
    const DATABASE_PAGES: u64 = 200;
    let device = Arc::new(blank_delta(64));
    let old = [log_header(), frame(5, &noise(77_777))].concat();
    {
        let v = open_device(&device, "cache=1M");
        let db = file(&v, v.root(), "x.db");
        write(&v, db, 0, &noises(0..DATABASE_PAGES));
        v.sync().unwrap();
        let log = file(&v, v.root(), "x.db-wal");
        write(&v, log, 0, &log_header());
        v.sync().unwrap();
        write(&v, log, 32, &frame(0, &noise(0)));
        v.fsync(log, true).unwrap();
        v.fsync(log, true).unwrap();
        write(&v, log, 0, &old);
        v.fsync(log, false).unwrap();
        v.close().unwrap();
    }
    let recorder = Arc::new(RecordingDevice::new(&device));
    let mut changed = noise(2020);
    changed[100..110].copy_from_slice(b"a change..");
    let new = [log_header(), frame(20, &changed)].concat();
    {
        let v = open_with(recorder.clone(), "cache=1M", Arc::new(ManualClock::new(START)));
        let (db, log) = (at(&v, "x.db").unwrap().ino, at(&v, "x.db-wal").unwrap().ino);
        // As SQLite's checkpointer does it; memory is short, so that pages go to the device without an fsync.
        write(&v, db, 10 * PAGE as u64, &noises(2010..2140));
        assert!(v.stats().in_place_blocks > 100);
        write(&v, log, 0, &new);
        v.fsync(log, false).unwrap();
        assert_eq!(v.stats().deltas.repeated, 2, "the log is made from the database");
        recorder.mark(1);
    }
    let plan = CrashPlan { exhaustive: 64, samples: 64, seed: 3, ..CrashPlan::default() };
    for state in recorder.recording().states(&plan) {
        let v = open(state.device());
        let mut found = vec![0; old.len()];
        let n = v.read(at(&v, "x.db-wal").unwrap().ino, 0, &mut found);
        assert_eq!(n.unwrap_or_else(|e| panic!("{state:?}: {e}")), old.len());
        for (page, found) in found.chunks(PAGE).enumerate() {
            let is = |log: &[u8]| log.chunks(PAGE).nth(page) == Some(found);
            let acknowledged = state.last_mark() == Some(1);
            assert!(is(&new) || (is(&old) && !acknowledged), "{state:?}: page {page} of the log is neither");
        }
    }
}

/// The last page of a file is overwritten in place with more behind its end, and the new size is lost.
#[test]
fn what_a_crash_left_behind_the_end_of_a_file_reads_as_zeros_when_it_grows() {
    const SIZE: usize = PAGE + 700;
    for base in kinds() {
        let device = Arc::new(base);
        let v = open_device(&device, "");
        let f = file(&v, v.root(), "f");
        write(&v, f, 0, &noises(1..3)[..SIZE]);
        v.close().unwrap();
        let recorder = Arc::new(RecordingDevice::new(&device));
        let v = open_with(recorder.clone(), "in_place=force,delta=off", Arc::new(ManualClock::new(START)));
        write(&v, at(&v, "f").unwrap().ino, SIZE as u64, &noise(3)[..1000]);
        v.fsync(at(&v, "f").unwrap().ino, false).unwrap();
        drop(v);
        let mut met = 0;
        for state in every_state(&recorder) {
            for grow in 0..4 {
                let v = open(state.device());
                let f = at(&v, "f").unwrap();
                if f.size != SIZE as u64 {
                    continue;
                }
                met += 1;
                match grow {
                    0 => drop(
                        v.setattr(f.ino, &SetAttr { size: Some(3 * PAGE as u64), ..SetAttr::default() })
                            .unwrap(),
                    ),
                    1 => write(&v, f.ino, 2 * PAGE as u64, &[1; PAGE]),
                    2 => write(&v, f.ino, 2 * PAGE as u64 - 10, &[1; PAGE + 10]),
                    _ => v.fallocate(f.ino, FallocateMode::empty(), 0, 3 * PAGE as u64).unwrap(),
                }
                let found = content(&v, f.ino);
                assert!(found[..SIZE] == noises(1..3)[..SIZE], "{state:?}");
                assert!(
                    found[SIZE..2 * PAGE - 10].iter().all(|b| *b == 0),
                    "{state:?}: old bytes came up ({grow})"
                );
            }
        }
        assert!(met > 4, "no crash lost the new size");
    }
}

type Hook = Box<dyn FnOnce() + Send>;

/// Runs something just before a block is written.
struct Hooked {
    inner: Arc<MemDevice>,
    hook: Mutex<Option<(u64, Hook)>>,
}

impl BlockDevice for Hooked {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.inner.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        let hook = {
            let mut hook = self.hook.lock().unwrap();
            let meant = hook.as_ref().is_some_and(|(at, _)| (addr..addr + blocks.len() as u64).contains(at));
            if meant { hook.take() } else { None }
        };
        if let Some((_, run)) = hook {
            run();
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

/// The content of a document, of which some versions were replaced, and the blocks that hold its page 2.
fn documents(device: &Arc<MemDevice>) -> (Vec<u8>, Vec<u64>) {
    let text = noises(300..306);
    let v = open_device(device, "");
    // The hidden directory comes with a few replacements.
    for round in 0..4u8 {
        let new = file(&v, v.root(), "doc.xml.tmp");
        let mut doc = text.clone();
        doc[5] = round;
        write(&v, new, 0, &doc);
        v.fsync(new, false).unwrap();
        v.rename(v.root(), b"doc.xml.tmp", v.root(), b"doc.xml", RenameFlags::empty()).unwrap();
        v.fsync(v.root(), false).unwrap();
        v.release(new, 1);
        v.sync().unwrap();
    }
    let a = file(&v, v.root(), "a.xml");
    write(&v, a, 0, &text);
    let big = file(&v, v.root(), "big");
    write(&v, big, 0, &vec![1; 1000 * PAGE]);
    v.close().unwrap();
    let page = &text[2 * PAGE..3 * PAGE];
    let held = (0..device.block_count()).filter(|&addr| read_block(&**device, addr).unwrap().0 == page);
    (text.clone(), held.collect())
}

/// While a page is overwritten in place another thread fsyncs a file that may be made from the page's file.
/// What its block held is no base from then on.
#[test]
fn a_block_is_not_remembered_as_a_base_while_it_is_overwritten() {
    let base = Arc::new(blank_delta(64));
    let (text, candidates) = documents(&base);
    let mut met = 0;
    for block in candidates {
        let mem = Arc::new(base.snapshot());
        let device = Arc::new(Hooked { inner: mem.clone(), hook: Mutex::new(None) });
        let v = Arc::new(open_with(device.clone(), "cache=1M", Arc::new(ManualClock::new(START))));
        let a = at(&v, "a.xml").unwrap().ino;
        let tmp = file(&v, v.root(), "a.xml.tmp");
        write(&v, tmp, 0, &text);
        let (other, ran) = (v.clone(), Arc::new(AtomicBool::new(false)));
        let seen = ran.clone();
        *device.hook.lock().unwrap() = Some((
            block,
            Box::new(move || {
                seen.store(true, Ordering::SeqCst);
                std::thread::spawn(move || other.fsync(tmp, false).unwrap()).join().unwrap();
            }),
        ));
        write(&v, a, 2 * PAGE as u64 + 1000, b"first change");
        v.fsync(a, true).unwrap();
        if !ran.load(Ordering::SeqCst) {
            continue;
        }
        assert_eq!(v.stats().in_place_blocks, 1);
        met += 1;
        // Memory is used for other things.
        let (big, mut buf) = (at(&v, "big").unwrap().ino, vec![0; PAGE]);
        for n in (0..1000).flat_map(|n| [n, n]).chain((0..1000).flat_map(|n| [n, n])) {
            v.read(big, n * PAGE as u64, &mut buf).unwrap();
        }
        // Pages are written as a kernel's cache does, as a whole: page 2 as it was at first but for a few bytes.
        let mut now = text.clone();
        for page in 1..4 {
            now[page * PAGE + 2000..page * PAGE + 2013].copy_from_slice(b"second change");
        }
        write(&v, a, PAGE as u64, &now[PAGE..4 * PAGE]);
        v.fsync(a, false).unwrap();
        assert!(content(&v, a) == now);
        v.close().unwrap();
        drop(v);
        let v = open_device(&mem, "");
        assert!(content(&v, at(&v, "a.xml").unwrap().ino) == now);
    }
    assert!(met > 0, "no page was overwritten in place");
}
