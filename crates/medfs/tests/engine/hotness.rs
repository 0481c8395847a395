//! Hcluster on streams of calls whose groups are known.

use crate::common::{PAGE, Random, START, blank_delta, content, file, noisy_file, open_with, write};
use medfs::profile::{FEW_WRITES, Profiles, Wrote};
use medfs::{Clock, Files, Hotness, ManualClock};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(60);

fn profiles(most: usize) -> (Profiles, ManualClock) {
    let clock = ManualClock::new(START);
    (Profiles::new(WINDOW, most, clock.monotonic()), clock)
}

/// Notes a write of so many pages.
fn wrote(h: &Profiles, ino: u32, pages: u64) {
    h.note_write(ino, &Wrote::of_pages(pages));
}

/// Calls of one window for a file of a group: between half and all of 200 where it is hot, none to three
/// where it is cold.
fn one_window(h: &Profiles, ino: u32, hotness: Hotness, random: &mut Random) {
    let mut times = |hot: bool| if hot { 100 + random.below(100) } else { random.below(4) };
    let (reads, writes) = (times(hotness.is_read_hot()), times(hotness.is_write_hot()));
    (0..reads).for_each(|_| h.note_read(ino, 0, 1));
    (0..writes).for_each(|_| wrote(h, ino, 1));
}

/// The group a file of the test belongs to.
fn group(ino: u32) -> Hotness {
    Hotness::ALL[ino as usize % 4]
}

fn end_window(h: &Profiles, clock: &ManualClock) {
    clock.advance(WINDOW);
    assert!(h.recluster(clock), "a window has passed");
}

#[test]
fn known_groups_are_separated() {
    for seed in 1..6 {
        let (h, clock) = profiles(10_000);
        let mut random = Random(seed);
        for _ in 0..3 {
            (0..400).for_each(|ino| one_window(&h, ino, group(ino), &mut random));
            end_window(&h, &clock);
        }
        let right = (0..400).filter(|&ino| h.hotness(ino) == group(ino)).count();
        assert_eq!(right, 400, "seed {seed}: {:?}", h.stats());
        let s = h.stats();
        let sizes = [s.cold, s.read_hot, s.write_hot, s.both_hot].map(|g| g.files);
        assert_eq!((sizes, s.files, s.reclusterings), ([100; 4], 400, 3), "seed {seed}");
        assert!((100.0..200.0).contains(&s.write_hot.writes), "{s:?}");
    }
}

#[test]
fn drift_is_followed() {
    let (h, clock) = profiles(10_000);
    let mut random = Random(7);
    for _ in 0..5 {
        (0..200).for_each(|ino| one_window(&h, ino, group(ino), &mut random));
        end_window(&h, &clock);
    }
    // Everyone changes places; each average forgets half a window.
    let other = |ino| group(ino + 1);
    let mut right = Vec::new();
    for _ in 0..8 {
        (0..200).for_each(|ino| one_window(&h, ino, other(ino), &mut random));
        end_window(&h, &clock);
        right.push((0..200).filter(|&ino| h.hotness(ino) == other(ino)).count());
    }
    assert_eq!(right[7], 200, "{right:?}: {:?}", h.stats());
    // What becomes busy is hot in the same window.
    assert_eq!(h.hotness(9000), Hotness::Cold);
    (0..200).for_each(|_| h.note_read(9000, 0, 1));
    assert_eq!(h.hotness(9000), Hotness::ReadHot);
}

#[test]
fn what_nobody_touches_cools_down_and_is_forgotten() {
    let (h, clock) = profiles(100);
    (0..1000).for_each(|_| wrote(&h, 5, 1));
    let mut hot = 0;
    while h.hotness(5) == Hotness::WriteHot {
        end_window(&h, &clock);
        hot += 1;
        assert!(hot < 12, "{:?}", h.stats());
    }
    assert!(hot > 2, "a pause is no end: {hot}");
    (0..12).for_each(|_| end_window(&h, &clock));
    assert_eq!(h.stats().files, 0);
    (0..20).for_each(|_| wrote(&h, 6, 1));
    h.forget(6);
    assert_eq!((h.hotness(6), h.stats().files), (Hotness::Cold, 0));
}

#[test]
fn a_new_file_that_is_only_written() {
    let (h, _) = profiles(100);
    (0..FEW_WRITES).for_each(|_| wrote(&h, 1, 300));
    assert_eq!(h.hotness(1), Hotness::Cold, "however large the writes are");
    wrote(&h, 1, 1);
    assert_eq!(h.hotness(1), Hotness::WriteHot);
    h.note_read(1, 0, 1);
    assert_eq!(h.hotness(1), Hotness::Cold, "one that is read too is judged as any other");
}

#[test]
fn groups_are_made_once_in_a_window() {
    let (h, clock) = profiles(100);
    assert!(h.recluster(&clock));
    clock.advance(WINDOW / 2);
    assert!(!h.recluster(&clock));
    clock.advance(WINDOW / 2);
    assert!(h.recluster(&clock));
    assert_eq!(h.stats().reclusterings, 2);
}

#[test]
fn threads_lose_no_call() {
    let (h, clock) = profiles(1000);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let h = &h;
            scope.spawn(move || {
                for n in 0..5000 {
                    wrote(h, n % 50, 2);
                    h.note_read(n % 50 + 50 * (thread % 2), 0, 1);
                    let _ = h.hotness(n);
                }
            });
        }
        for _ in 0..20 {
            clock.advance(WINDOW);
            h.recluster(&clock);
        }
    });
    let s = h.stats();
    assert_eq!((s.reads, s.pages_read, s.writes, s.pages_written), (20_000, 20_000, 20_000, 40_000));
}

#[derive(Debug, Clone)]
enum Call {
    Read(u32),
    Write(u32),
    Forget(u32),
    Pass(u32),
    Recluster,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let ino = 0u32..40;
    let call = prop_oneof![
        10 => ino.clone().prop_map(Call::Read),
        10 => ino.clone().prop_map(Call::Write),
        1 => ino.prop_map(Call::Forget),
        1 => prop_oneof![1u32..200, any::<u32>()].prop_map(Call::Pass),
        1 => Just(Call::Recluster),
    ];
    prop::collection::vec(call, 0..400)
}

fn replay(calls: &[Call], most: usize) -> (Vec<Hotness>, medfs::HotnessStats) {
    let (h, clock) = profiles(most);
    let most = most.div_ceil(16) * 16;
    for call in calls {
        match *call {
            Call::Read(ino) => h.note_read(ino, 0, 1),
            Call::Write(ino) => wrote(&h, ino, 1),
            Call::Forget(ino) => {
                h.forget(ino);
                assert_eq!(h.hotness(ino), Hotness::Cold);
            }
            Call::Pass(seconds) => {
                clock.advance(Duration::from_secs(seconds.into()));
                h.tick(clock.monotonic());
            }
            Call::Recluster => {
                h.recluster(&clock);
            }
        }
        assert!(h.stats().files <= most as u64);
    }
    ((0..40).map(|ino| h.hotness(ino)).collect(), h.stats())
}

proptest! {
    #[test]
    fn any_calls_are_bounded_and_repeat_exactly(calls in calls(), most in 1usize..60) {
        let (judged, stats) = replay(&calls, most);
        for group in [stats.cold, stats.read_hot, stats.write_hot, stats.both_hot] {
            prop_assert!(group.reads.is_finite() && group.writes.is_finite());
            prop_assert!(group.reads >= 0.0 && group.writes >= 0.0);
        }
        prop_assert!(stats.read_hot.reads > stats.cold.reads && stats.write_hot.writes > stats.cold.writes);
        prop_assert!(stats.both_hot.reads > stats.write_hot.reads);
        prop_assert_eq!((judged, stats), replay(&calls, most));
    }
}

#[test]
fn a_volume_counts_what_is_read_and_written() {
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(Arc::new(blank_delta(64)), "", clock.clone());
    let (f, _) = noisy_file(&v, "f", 4);
    let g = file(&v, v.root(), "g");
    for n in 0..20 {
        assert_eq!(v.read(f, 100, &mut [0; PAGE]).expect("read"), PAGE);
        write(&v, g, n * 10, b"0123456789");
    }
    assert_eq!((v.hotness(f), v.hotness(g)), (Hotness::ReadHot, Hotness::WriteHot));
    let s = v.stats().hotness;
    assert_eq!((s.reads, s.pages_read, s.writes, s.pages_written), (20, 40, 21, 24));
    v.unlink(v.root(), b"g").expect("unlink");
    v.release(g, 1);
    assert_eq!((v.hotness(g), v.stats().hotness.files), (Hotness::Cold, 1), "a freed number is nobody's");
    assert_eq!(content(&v, f).len(), 4 * PAGE);
}
