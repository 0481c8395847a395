//! `durability=adaptive`: what bounds bring about, what stays synchronous, and what a failure means.

use crate::common::*;
use medfs::{Clock, FileFlags, Files, ManualClock, MountOptions, Posix, Volume};
use medfs_device::fault::{Effect, Fault, Kind};
use medfs_device::{BlockDevice, FaultDevice, MemDevice, WriteTag};
use medfs_format::Block;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A volume with fsyncs put off, its device and its clock.
pub(crate) fn opened(device: MemDevice, bounds: &str) -> (Volume, Arc<MemDevice>, Arc<ManualClock>) {
    let (device, clock) = (Arc::new(device), Arc::new(ManualClock::new(START)));
    let v = open_with(device.clone(), &format!("durability=adaptive{bounds}"), clock.clone());
    (v, device, clock)
}

#[test]
fn an_fsync_asks_nothing_of_the_device_and_a_barrier_makes_all_durable() {
    for device in [blank(64, all_features()), blank_delta(64)] {
        let (v, device, _) = opened(device, "");
        let [a, b] = two_files(&v);
        let before = (v.stats().written, v.stats().flushes);
        write(&v, a, 0, &[2; PAGE]);
        v.fsync(a, false).unwrap();
        write(&v, b, 0, &[3; PAGE]);
        v.fsync_many(&[a, b], true).unwrap();
        assert_eq!((v.stats().written, v.stats().flushes), before);
        assert_eq!(found(&device, [a, b]), [1, 1]);
        let waiting = v.stats().adaptive.unwrap();
        assert_eq!((waiting.fsyncs_waiting, waiting.fsyncs_deferred), (3, 3));
        assert_eq!(waiting.bytes_waiting, 4 * PAGE as u64, "two pages and two inodes");
        v.sync().unwrap();
        assert_eq!(found(&device, [a, b]), [2, 3]);
        assert_eq!(v.stats().adaptive.unwrap().fsyncs_waiting, 0);
    }
}

/// Whoever asks for the checkpoint: it takes what all files hold along.
#[test]
fn a_checkpoint_is_a_cut() {
    let (v, device, _) = opened(blank_delta(64), "");
    let [a, b] = two_files(&v);
    write(&v, a, 0, &[2; PAGE]);
    write(&v, b, 0, &[3; PAGE]);
    v.checkpoint().unwrap();
    assert_eq!(found(&device, [a, b]), [2, 3]);
}

#[test]
fn the_age_of_the_oldest_change_is_bounded() {
    let (v, device, clock) = opened(blank_delta(64), ",durability_age=10s");
    let [a, b] = two_files(&v);
    clock.advance(Duration::from_secs(50));
    write(&v, a, 0, &[2; PAGE]);
    v.fsync(a, false).unwrap();
    for _ in 0..8 {
        clock.advance(Duration::from_secs(1));
        v.background().unwrap();
        assert_eq!(found(&device, [a, b]), [1, 1], "that it was long since the last commit does not count");
    }
    assert_eq!(v.stats().adaptive.unwrap().oldest_millis, Some(8000));
    clock.advance(Duration::from_secs(1));
    v.background().unwrap();
    assert_eq!(found(&device, [a, b]), [2, 1]);
    let stats = v.stats().adaptive.unwrap();
    assert_eq!((stats.oldest_millis, stats.commits_by_age), (None, 1));
}

#[test]
fn the_bytes_that_may_be_lost_are_bounded() {
    let (v, device, _) = opened(blank_delta(64), ",durability_bytes=64K");
    let [a, b] = two_files(&v);
    // The inode is one block more.
    for page in 0..15 {
        write(&v, a, page * PAGE as u64, &[2; PAGE]);
    }
    assert_eq!(found(&device, [a, b]), [1, 1]);
    write(&v, b, 0, &[3; PAGE]);
    assert_eq!(
        found(&device, [a, b]),
        [2, 1],
        "what was there before the write is durable before it is done"
    );
    assert_eq!(v.stats().adaptive.unwrap().commits_by_bytes, 1);
}

#[test]
fn what_is_to_be_synchronous_is_not_put_off() {
    let (v, device, _) = opened(blank_delta(64), "");
    let [a, b] = two_files(&v);
    write(&v, a, 0, &[2; PAGE]);
    v.fsync_now(a, true).unwrap();
    assert_eq!(found(&device, [a, b]), [2, 1], "as the mount asks for files opened with O_SYNC");
    v.set_flags(b, FileFlags::SYNC).unwrap();
    write(&v, b, 0, &[3; PAGE]);
    assert_eq!(found(&device, [a, b]), [2, 3]);
}

/// What was acknowledged can no longer be kept, and everyone who asks is told.
#[test]
fn after_a_failed_commit_every_fsync_fails() {
    let mem = blank_delta(64);
    let device = Arc::new(FaultDevice::new(mem, 1));
    let v = open_with(device.clone(), "durability=adaptive", Arc::new(ManualClock::new(START)));
    let [a, b] = two_files(&v);
    write(&v, a, 0, &[2; PAGE]);
    v.fsync(a, false).unwrap();
    device.arm(Fault::on(Kind::Flush, Effect::IO));
    assert!(v.sync().is_err());
    assert!(v.fsync(a, false).is_err() && v.fsync(b, true).is_err() && v.sync().is_err());
    assert!(v.sync_app(a).is_err() && v.sync_app(v.root()).is_err());
}

#[test]
fn a_volume_that_is_nearly_full_puts_nothing_off() {
    let (v, device, _) = opened(blank_delta(64), "");
    let [a, b] = two_files(&v);
    let fill = file(&v, v.root(), "fill");
    let mut at = 0;
    while v.space().free > 100 {
        write(&v, fill, at, &[7; 8 * PAGE]);
        at += 8 * PAGE as u64;
    }
    v.sync().unwrap();
    write(&v, a, 0, &[2; PAGE]);
    v.fsync(a, false).unwrap();
    assert_eq!(found(&device, [a, b]), [2, 1]);
    assert_eq!(v.stats().adaptive.unwrap().commits_for_room, 1);
}

#[test]
fn a_file_that_is_not_there_and_options_that_exclude_each_other() {
    let (v, ..) = opened(blank_delta(64), "");
    assert_eq!(v.fsync(4000, false).unwrap_err().errno(), medfs::Error::Posix(Posix::Stale).errno());
    let refused = MountOptions::default().parse("durability=adaptive,placement=reserve").unwrap_err();
    assert!(refused.to_string().contains("excludes placement=reserve"), "{refused}");
}

/// Pages of a file that are written over and over, then others, each once.
fn a_peak(v: &Volume, file: medfs::Ino) {
    for n in 0..64 {
        write(v, file, n % 4 * PAGE as u64, &[n as u8; PAGE]);
    }
    for n in 0..16 {
        write(v, file, (100 + n) * PAGE as u64, &[9; PAGE]);
    }
}

#[test]
fn a_tradeoff_point_is_committed_in_the_next_pause() {
    let tpl = ",durability_policy=tpl,durability_points=8,durability_tau=1s";
    for (options, commits) in [("", 0), (tpl, 1)] {
        let (v, device, clock) = opened(blank_delta(64), options);
        let [a, b] = two_files(&v);
        a_peak(&v, a);
        v.background().unwrap();
        assert_eq!(v.stats().adaptive.unwrap().commits_by_tradeoff, 0, "operations go on");
        for _ in 0..4 {
            clock.advance(Duration::from_secs(1));
            v.background().unwrap();
        }
        let stats = v.stats().adaptive.unwrap();
        assert_eq!((stats.commits_by_tradeoff, stats.commits_by_age), (commits, 0), "{options}");
        assert_eq!(found(&device, [a, b])[0] != 1, commits == 1, "{options}");
    }
}

#[test]
fn a_fixed_interval_and_a_fixed_staleness_commit() {
    let (v, device, clock) = opened(blank_delta(64), ",durability_policy=interval,durability_interval=3s");
    let [a, b] = two_files(&v);
    for second in 0..8 {
        write(&v, a, 0, &[2; PAGE]);
        clock.advance(Duration::from_secs(1));
        v.background().unwrap();
        assert_eq!(found(&device, [a, b])[0] == 2, second >= 2);
    }
    assert_eq!(v.stats().adaptive.unwrap().commits_by_interval, 2);
    let (v, _, _) = opened(blank_delta(64), ",durability_policy=staleness,durability_staleness=64K");
    let [a, _] = two_files(&v);
    for n in 0..34 {
        write(&v, a, 0, &[n; PAGE]);
        if n == 15 {
            let stats = v.stats().adaptive.unwrap();
            assert_eq!(
                (stats.staleness_pages, stats.overlap_pages, stats.efficiency_permille),
                (15, 14, 933)
            );
        }
    }
    assert_eq!(v.stats().adaptive.unwrap().commits_by_staleness, 2);
}

/// A device at a pace: each block and each flush takes its time, by the clock of the test.
struct Paced {
    inner: MemDevice,
    clock: Arc<ManualClock>,
    block: Duration,
    flush: Duration,
}

impl BlockDevice for Paced {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.inner.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.clock.advance(self.block * blocks.len() as u32);
        self.inner.write(addr, blocks, tag)
    }
    fn flush(&self) -> io::Result<()> {
        self.clock.advance(self.flush);
        self.inner.flush()
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.inner.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        false
    }
}

/// Whenever the power fails, what is dirty then is durable within the time that a buffer of energy lasts. A faster
/// device may have more of it.
#[test]
fn no_more_is_dirty_than_is_written_within_the_holdup() {
    let mut allowed = Vec::new();
    for micros in [4000, 1000] {
        let clock = Arc::new(ManualClock::new(START));
        let (block, flush) = (Duration::from_micros(micros), Duration::from_millis(20));
        let device = Arc::new(Paced { inner: blank_delta(64), clock: clock.clone(), block, flush });
        let v = open_with(device, "durability=adaptive,durability_age=1000s,holdup=600ms", clock.clone());
        let a = file(&v, v.root(), "a");
        for n in 0..4000u64 {
            write(&v, a, n * 37 % 1500 * PAGE as u64, &noise(n));
            v.fsync(a, false).unwrap();
            if n % 611 == 500 {
                let began = clock.monotonic();
                v.sync().unwrap();
                let took = clock.monotonic() - began;
                // The first commits show how fast the device is.
                assert!(n < 600 || took <= Duration::from_millis(600), "{took:?} after {n} writes");
            }
        }
        let stats = v.stats().adaptive.unwrap();
        assert!(stats.commits_by_holdup > 0 && stats.commits_by_bytes == 0, "{stats:?}");
        allowed.push(stats.holdup_bytes.unwrap());
    }
    assert!(allowed[0] > 64 << 10 && allowed[1] > 2 * allowed[0], "{allowed:?}");
}

/// What files hold in their inodes is lost with the nodes: it counts in the bounds as pages do.
#[test]
fn the_nodes_of_small_files_count_in_the_bounds() {
    for bound in ["durability_bytes=64K", "holdup=1s"] {
        let (v, _, _) = opened(blank_delta(64), &format!(",{bound},durability_age=1000s"));
        let files: Vec<_> = (0..200).map(|n| file(&v, v.root(), &format!("{n}"))).collect();
        v.sync().unwrap();
        for &f in &files {
            write(&v, f, 0, b"small");
            v.fsync(f, false).unwrap();
            let stats = v.stats().adaptive.unwrap();
            let most = stats.holdup_bytes.unwrap_or(64 << 10);
            assert!(stats.fsyncs_waiting == 0 || stats.bytes_waiting < most, "{bound}: {stats:?}");
        }
        let stats = v.stats().adaptive.unwrap();
        assert!(stats.commits_by_bytes + stats.commits_by_holdup > 0, "{bound}: {stats:?}");
    }
}

/// Many writes may pass the question before they change anything, and one may be large: the fsync asks again.
#[test]
fn an_fsync_beyond_a_bound_commits_before_it_returns() {
    for bound in ["durability_bytes=64K", "holdup=1s"] {
        let (v, device, _) = opened(blank_delta(64), &format!(",{bound},durability_age=1000s"));
        let [a, b] = two_files(&v);
        write(&v, a, 0, &[2; 128 * PAGE]);
        assert_eq!(found(&device, [a, b]), [1, 1]);
        v.fsync(a, false).unwrap();
        assert_eq!(found(&device, [a, b]), [2, 1], "{bound}");
        assert_eq!(v.stats().adaptive.unwrap().bytes_waiting, 0);
    }
}

/// The front end's timer is told when to look again, so that an age below its second is kept to.
#[test]
fn ages_and_intervals_below_a_second_are_kept() {
    let ms = Duration::from_millis;
    for (options, due) in [
        (",durability_age=400ms", ms(200)),
        (",durability_policy=interval,durability_interval=300ms", ms(300)),
        (",apps=top,durability_age=2s", ms(1000)),
    ] {
        let (v, device, clock) = opened(blank_delta(64), options);
        let [a, b] = two_files(&v);
        let mut looks = 0;
        // At most half of the time passes before a change that begins to wait is seen.
        clock.advance(v.next_background());
        v.background().unwrap();
        write(&v, a, 0, &[2; PAGE]);
        let began = clock.monotonic();
        while found(&device, [a, b])[0] == 1 {
            let wait = v.next_background();
            assert!(wait > Duration::ZERO && looks < 10, "{options}: {wait:?}");
            clock.advance(wait);
            v.background().unwrap();
            looks += 1;
        }
        assert_eq!(clock.monotonic() - began, due, "{options}");
    }
    let refused = MountOptions::default().parse("durability_age=99ms").unwrap_err();
    assert!(refused.to_string().contains("100 ms"), "{refused}");
    assert_eq!(open(blank_delta(64)).next_background(), Duration::from_secs(1), "nothing is put off");
}

/// Where a user is known, the pauses are the user's: what programs do in them keeps nothing waiting, and what the user
/// does keeps commits waiting though no program does anything.
#[test]
fn commits_wait_for_pauses_of_a_user_who_is_known() {
    let tpl = ",durability_policy=tpl,durability_points=8,durability_tau=1s,durability_age=10000s";
    let (v, device, clock) = opened(blank_delta(64), tpl);
    let [a, b] = two_files(&v);
    let commits = |v: &Volume| v.stats().adaptive.unwrap().commits_by_tradeoff;
    a_peak(&v, a);
    let pass = |quarters: u64, each: &dyn Fn()| {
        for _ in 0..quarters {
            each();
            clock.advance(Duration::from_millis(250));
            v.background().unwrap();
        }
    };
    pass(80, &|| assert!(v.note_user()));
    assert_eq!(commits(&v), 0, "the user goes on");
    pass(8, &|| write(&v, b, 0, &[3; PAGE]));
    assert_eq!((commits(&v), found(&device, [a, b])[0]), (1, 60), "the user pauses, and the programs do not");
    assert_eq!(v.stats().adaptive.unwrap().user_events, 80);
    // Ten minutes later pauses between operations count again.
    pass(2404, &|| ());
    pass(4, &|| write(&v, b, 0, &[3; PAGE]));
    a_peak(&v, a);
    pass(4, &|| write(&v, b, 0, &[3; PAGE]));
    assert_eq!(commits(&v), 1, "operations go on");
    pass(8, &|| ());
    assert_eq!(commits(&v), 2);
    let (other, ..) = opened(blank_delta(64), "");
    assert!(!other.note_user(), "no commit waits for a pause there");
}

/// Of several apps whose transactions have ended that is committed first whose commit fits the pause, as commits were
/// measured; one that was passed by is committed in a later one.
#[test]
fn an_app_is_committed_in_a_pause_that_it_fits() {
    let clock = Arc::new(ManualClock::new(START));
    let (block, flush) = (Duration::from_millis(10), Duration::from_millis(5));
    let device = Arc::new(Paced { inner: blank_delta(64), clock: clock.clone(), block, flush });
    let options = "durability=adaptive,survivor=off,apps=top,durability_policy=tpl,durability_points=8,durability_tau=1s,durability_age=10000s,delta=off";
    let v = open_with(device.clone(), options, clock.clone());
    let [large, small] = ["large", "small"].map(|name| file(&v, dir(&v, v.root(), name), "f"));
    v.sync().unwrap();
    let alone = |v: &Volume| {
        let apps = v.stats().apps.unwrap();
        ["/large", "/small"].map(|name| apps.iter().find(|app| app.name == name).unwrap().commits_caused)
    };
    // How long a page takes is known from commits of each size.
    for pages in [1, 200] {
        write(&v, large, 0, &vec![1; pages * PAGE]);
        v.sync_app(large).unwrap();
    }
    let peak = |f, pages: u64| {
        (0..64).for_each(|n| write(&v, f, n % 4 * PAGE as u64, &[n as u8; PAGE]));
        (0..pages).for_each(|n| write(&v, f, (10 + n) * PAGE as u64, &[7; PAGE]));
    };
    let before = alone(&v);
    peak(large, 400);
    peak(small, 16);
    // The user does something each second and a half: that is the pause that can be expected.
    let user = |times: u64| {
        for _ in 0..times {
            assert!(v.note_user());
            clock.advance(Duration::from_millis(1100));
            v.background().unwrap();
            clock.advance(Duration::from_millis(400));
        }
    };
    user(1);
    assert_eq!(alone(&v), [before[0], before[1] + 1], "some four seconds do not fit, and less than one does");
    user(1);
    assert_eq!(
        alone(&v),
        [before[0] + 1, before[1] + 1],
        "nothing that fits waits: the shortest of all is next"
    );
}
