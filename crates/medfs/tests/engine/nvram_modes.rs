//! `nvram_mode`, `nvram_admit` and `nvram_commit`: what a record holds, what gets a block before it, and when changes
//! that nobody synced are recorded.

use crate::common::*;
use crate::nvram::{crashed, opened, stats};
use medfs::{Clock, Files, ManualClock, MountOptions, NvramStats, Volume, open_with_nvram};
use medfs_device::{MemDevice, MemNvram, Nvram};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A volume with its device, memory and clock, and a durable file of eight pages that no codec makes smaller.
struct Mounted {
    v: Volume,
    device: Arc<MemDevice>,
    memory: Arc<MemNvram>,
    clock: Arc<ManualClock>,
    f: u32,
    expected: Vec<u8>,
}

fn with_file(options: &str) -> Mounted {
    let (device, memory) = (Arc::new(blank_delta(64)), Arc::new(MemNvram::new(256 << 10)));
    let (mut parsed, clock) = (MountOptions::default(), Arc::new(ManualClock::new(START)));
    parsed.parse(options).expect("options");
    let v = open_with_nvram(device.clone(), memory.clone(), parsed, clock.clone()).expect("opens");
    let (f, expected) = noisy_file(&v, "f", 8);
    Mounted { v, device, memory, clock, f, expected }
}

fn found(device: &Arc<MemDevice>, memory: &Arc<MemNvram>) -> Vec<u8> {
    let (device, memory) = crashed(device, memory);
    let v = opened(&device, &memory, "").expect("opens again");
    let f = at(&v, "f").expect("the file").ino;
    content(&v, f)
}

/// Data blocks, nodes and flushes.
fn written(v: &Volume) -> (u64, u64, u64) {
    let s = v.stats();
    (s.written.data, s.written.node, s.flushes)
}

#[test]
fn ordered_mode_writes_pages_and_flushes_them_and_records_nodes() {
    for options in
        ["nvram_mode=ordered,delta=off,in_place=off", "nvram_mode=ordered,delta=off,in_place=force"]
    {
        let Mounted { v, device, memory, f, mut expected, .. } = with_file(options);
        let before = (written(&v), stats(&v));
        for round in 0..10 {
            patch(&v, f, &mut expected, (round % 4) * PAGE + 5, &noise(round as u64)[..20]);
            v.fsync(f, false).expect("fsync");
        }
        let (now, all) = (written(&v), stats(&v));
        assert_eq!((now.0 - before.0.0, now.1 - before.0.1, now.2 - before.0.2), (10, 0, 10), "{options}");
        assert_eq!((all.pages, all.placed - before.1.placed), (0, 10), "{options}");
        assert!(all.nodes > before.1.nodes || options.ends_with("force"), "{options}: {all:?}");
        assert!(found(&device, &memory) == expected, "{options}");
    }
}

/// What a delta in the inode says goes to the memory with the inode.
#[test]
fn in_ordered_mode_deltas_in_the_inode_write_no_block() {
    let Mounted { v, device, memory, f, mut expected, .. } = with_file("nvram_mode=ordered,in_place=off");
    let before = written(&v);
    for round in 0..10 {
        patch(&v, f, &mut expected, (round % 4) * PAGE + 5, &noise(round as u64)[..20]);
        v.fsync(f, false).expect("fsync");
    }
    assert_eq!((written(&v).0, written(&v).1), (before.0, before.1));
    assert!(found(&device, &memory) == expected);
}

#[test]
fn a_page_that_is_not_admitted_gets_its_block_and_the_others_of_the_fsync_none() {
    for (options, zeros_are_admitted) in
        [("in_place=off,delta=off", true), ("in_place=off,delta=off,nvram_admit=population", false)]
    {
        let Mounted { v, device, memory, f, mut expected, .. } = with_file(options);
        patch(&v, f, &mut expected, 0, &noise(77));
        patch(&v, f, &mut expected, PAGE + 9, b"little");
        v.fsync(f, false).expect("fsync");
        let NvramStats { records, placed, pages, flushed_first, .. } = stats(&v);
        assert_eq!((records, placed, pages, flushed_first), (1, 1, 1, 1), "{options}");
        assert!(found(&device, &memory) == expected, "{options}");
        // Half of the page's bits change, and what it is now compresses well: the paper does not ask how well.
        patch(&v, f, &mut expected, 2 * PAGE, &[0; PAGE]);
        v.fsync(f, false).expect("fsync");
        assert_eq!(stats(&v).placed == 1, zeros_are_admitted, "{options}: {:?}", stats(&v));
        assert!(found(&device, &memory) == expected, "{options}");
        // The page that got a block was held by a record before, or is by one later.
        patch(&v, f, &mut expected, 3, b"small");
        v.fsync(f, false).expect("fsync");
        patch(&v, f, &mut expected, 0, &noise(78));
        v.fsync(f, false).expect("fsync");
        assert!(stats(&v).revoked > 0, "{options}");
        assert!(found(&device, &memory) == expected, "{options}");
    }
}

#[test]
fn what_nobody_synced_is_recorded_every_few_seconds() {
    for (options, recorded) in [("", true), ("nvram_commit=1m", false), ("nvram_mode=ordered", false)] {
        let Mounted { v, device, memory, clock, f, mut expected } = with_file(options);
        let before = (expected.clone(), written(&v));
        v.background().expect("background");
        patch(&v, f, &mut expected, PAGE + 100, b"nobody synced this");
        let new = file(&v, v.root(), "new");
        write(&v, new, 0, b"nor this");
        // No record holds it, as that would take blocks.
        let large = file(&v, v.root(), "large");
        write(&v, large, 0, &noise(5).repeat(20));
        clock.advance(Duration::from_secs(6));
        v.background().expect("background");
        assert_eq!(written(&v), before.1, "{options}");
        assert_eq!(stats(&v).unsynced > 0, recorded, "{options}: {:?}", stats(&v));
        let then = if recorded { &expected } else { &before.0 };
        assert!(&found(&device, &memory) == then, "{options}");
        let (device, memory) = crashed(&device, &memory);
        let again = opened(&device, &memory, "").expect("opens");
        assert_eq!(
            at(&again, "new").map(|attr| content(&again, attr.ino)),
            recorded.then(|| b"nor this".to_vec())
        );
        assert!(at(&again, "large").is_none(), "{options}");
    }
}

/// `commit=` makes durable what nobody synced. Where records hold all there is, no checkpoint does it: that comes when
/// the oldest record is five minutes old. A name that went takes one.
#[test]
fn where_records_hold_all_the_commit_interval_takes_no_checkpoint() {
    let ordered = "nvram_mode=ordered,in_place=off";
    for (options, name_goes) in [("", false), ("delta=off", false), ("", true), (ordered, false)] {
        let Mounted { v, device, memory, clock, f, mut expected } = with_file(options);
        file(&v, v.root(), "goes");
        v.sync().expect("sync");
        let before = stats(&v).emptied;
        for second in 0..290usize {
            patch(&v, f, &mut expected, second * 97 % (3 * PAGE), &[second as u8; 20]);
            v.fsync(f, true).expect("fsync");
            if second == 70 && name_goes {
                v.unlink(v.root(), b"goes").expect("gone");
            }
            clock.advance(Duration::from_secs(1));
            v.background().expect("background");
        }
        let emptied = stats(&v).emptied - before;
        assert_eq!(emptied > 0, name_goes || options == ordered, "{options}: {emptied}");
        assert!(found(&device, &memory) == expected, "{options}");
        let (device, memory) = crashed(&device, &memory);
        let again = opened(&device, &memory, "").expect("opens");
        assert_eq!(at(&again, "goes").is_none(), name_goes, "{options}");
        for _ in 0..12 {
            clock.advance(Duration::from_secs(1));
            v.background().expect("background");
        }
        assert!(stats(&v).emptied > before, "{options}: a record is five minutes old");
    }
}

/// A memory of which each record is followed by a change of the volume, at once.
struct Busy {
    memory: Arc<MemNvram>,
    then: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl Nvram for Busy {
    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn unit(&self) -> u64 {
        self.memory.unit()
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, bytes)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write(offset, bytes)
    }
    fn persist(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.persist(offset, len)?;
        if let Some(then) = &mut *self.then.lock().expect("no panic") {
            // Whoever makes the record holds locks.
            std::thread::scope(|scope| drop(scope.spawn(then)));
        }
        Ok(())
    }
    fn name(&self) -> String {
        self.memory.name()
    }
}

/// What is written while the timer records does not wait yet: no checkpoint comes of it.
#[test]
fn writes_that_never_pause_bring_no_checkpoint_of_the_commit_interval() {
    let (device, memory) = (Arc::new(blank_delta(64)), Arc::new(MemNvram::new(256 << 10)));
    let clock = Arc::new(ManualClock::new(START));
    let busy = Arc::new(Busy { memory: memory.clone(), then: Mutex::new(None) });
    let v = open_with_nvram(device.clone(), busy.clone(), MountOptions::default(), clock.clone());
    let v = Arc::new(v.expect("opens"));
    let ([f, g], expected) = (["f", "g"].map(|name| noisy_file(&v, name, 8).0), Arc::new(AtomicU8::new(0)));
    let (writer, count) = (Arc::downgrade(&v), expected.clone());
    *busy.then.lock().expect("no panic") = Some(Box::new(move || {
        if let Some(v) = writer.upgrade() {
            write(&v, g, 9, &[count.fetch_add(1, Ordering::Relaxed)]);
        }
    }));
    let before = stats(&v).emptied;
    for second in 0..200u8 {
        write(&v, f, u64::from(second), &[second]);
        clock.advance(Duration::from_secs(1));
        v.background().expect("background");
    }
    assert_eq!(stats(&v).emptied, before);
    assert!(stats(&v).unsynced > 30, "{:?}", stats(&v));
    *busy.then.lock().expect("no panic") = None;
    let (device, memory) = crashed(&device, &memory);
    let again = opened(&device, &memory, "").expect("opens");
    let byte = |name: &str, at: usize| content(&again, self::at(&again, name).expect("the file").ino)[at];
    assert!(byte("f", 190) == 190 && byte("g", 9) > 30, "all but the last seconds");
}

#[test]
fn the_most_written_line_is_one_of_the_ring_or_of_the_metadata() {
    let Mounted { v, f, mut expected, .. } = with_file("nvram_threshold=50");
    for round in 0..3000 {
        patch(&v, f, &mut expected, round % 4000, &[round as u8; 3]);
        v.fsync(f, false).expect("fsync");
        v.background().expect("background");
    }
    let NvramStats {
        persists,
        lines,
        records,
        record_bytes,
        most_written_line,
        emptied,
        bytes,
        compactions,
        ..
    } = stats(&v);
    assert_eq!(persists, records + emptied + 2 * compactions);
    assert!(lines >= record_bytes / 64 && lines < record_bytes / 64 + 3 * persists, "{lines} lines");
    let turns = record_bytes / bytes;
    assert!(
        (turns..=turns + emptied + compactions + 2).contains(&most_written_line),
        "{most_written_line} in {turns} turns"
    );
}

/// Fsyncs of what nothing supersedes, one each 200 microseconds, and a timer that comes every second or when it is
/// wanted: how many met a full memory, and the most blocks that one of them wrote.
fn fsyncs_beside_a_timer(in_time: bool) -> (u64, u64) {
    let Mounted { v, clock, f, .. } = with_file("delta=off");
    let (mut next, mut most) = (Duration::from_secs(1), 0);
    let started = clock.monotonic();
    for round in 0..20_000u64 {
        write(&v, f, round % 2000 * PAGE as u64, &noise(round)[..900]);
        let before = v.stats().written.total();
        v.fsync(f, false).expect("fsync");
        most = most.max(v.stats().written.total() - before);
        clock.advance(Duration::from_micros(200));
        if clock.monotonic() - started >= next {
            v.background().expect("background");
            let wait = if in_time { v.next_background() } else { Duration::from_secs(1) };
            next = clock.monotonic() - started + wait;
        }
    }
    (stats(&v).left_for_room, most)
}

#[test]
fn a_timer_that_comes_when_it_is_wanted_empties_the_memory_before_it_is_full() {
    let (every_second, in_time) = (fsyncs_beside_a_timer(false), fsyncs_beside_a_timer(true));
    println!("(full, most blocks): {every_second:?} every second, {in_time:?} in time");
    assert!(every_second.0 > 20 && every_second.1 > 100, "{every_second:?}");
    // Until the timer looks first it does not know the pace.
    assert!(in_time.0 < every_second.0 / 3, "{in_time:?}");
}
