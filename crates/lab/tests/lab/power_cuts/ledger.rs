//! What was promised before a moment: the notes of a run, beside the device's log, and what the bounds make of them.

use medfs_device::crash::{CrashState, RecordingDevice};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// What power loss may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// `durability_fsyncs=`.
    pub(super) fsyncs: Option<usize>,
    /// `durability_age=`.
    pub(super) age: Duration,
    /// Other mount options.
    pub(super) more: &'static str,
}

impl Bounds {
    /// The mount options that say so.
    pub(super) fn options(&self) -> String {
        let fsyncs = self.fsyncs.map_or_else(String::new, |most| format!(",durability_fsyncs={most}"));
        let age = self.age.as_millis();
        format!("durability=adaptive,survivor=off,durability_age={age}ms{fsyncs}{}", self.more)
    }
}

/// Something that the application saw.
#[derive(Debug, Clone, Copy)]
pub(super) enum Note {
    /// A transaction began that is not rolled back.
    Began,
    /// Its COMMIT returned.
    Committed,
    /// An fsync of a file or directory returned.
    Fsynced,
    /// A `sync` of the volume returned.
    Barrier,
    /// The time is this.
    Time(Duration),
}

/// Notes in the order in which they were made, each of which is a mark in the device's log.
pub(super) struct Ledger {
    device: Arc<RecordingDevice>,
    notes: Mutex<Vec<Note>>,
}

impl Ledger {
    pub(super) fn new(device: Arc<RecordingDevice>) -> Ledger {
        Ledger { device, notes: Mutex::default() }
    }

    pub(super) fn note(&self, note: Note) {
        let mut notes = self.notes.lock();
        self.device.mark(notes.len() as u64);
        notes.push(note);
    }

    /// What a state after power loss has to have.
    pub(super) fn demand(&self, state: &CrashState, bounds: &Bounds) -> Demand {
        let made = state.last_mark().map_or(0, |last| last as usize + 1);
        Demand::of(&self.notes.lock()[..made], bounds)
    }
}

/// The transactions that may be the last one found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Demand {
    /// No bound allows fewer.
    pub(super) least: usize,
    /// So many COMMITs had returned.
    pub(super) committed: usize,
    /// So many had begun.
    pub(super) begun: usize,
}

impl Demand {
    pub(super) fn of(notes: &[Note], bounds: &Bounds) -> Demand {
        let (mut now, mut fsyncs, mut begun, mut barrier) = (Duration::ZERO, 0, 0, 0);
        // Of each committed transaction: fsyncs that had returned by then, and the time.
        let mut committed = vec![(0, Duration::ZERO)];
        for note in notes {
            match *note {
                Note::Began => begun += 1,
                Note::Committed => committed.push((fsyncs, now)),
                Note::Fsynced => fsyncs += 1,
                Note::Barrier => barrier = committed.len() - 1,
                Note::Time(time) => now = time,
            }
        }
        let is_due = |&(before, at): &(usize, Duration)| {
            let beyond = bounds.fsyncs.is_some_and(|most| before + most <= fsyncs);
            beyond || at + bounds.age < now
        };
        let due = committed.iter().rposition(is_due).unwrap_or(0);
        let least = due.max(barrier);
        Demand { least, committed: committed.len() - 1, begun }
    }
}

/// Three transactions of two fsyncs each, a second apart; `more` follows.
fn three(more: &[Note]) -> Vec<Note> {
    let one =
        |n| [Note::Began, Note::Fsynced, Note::Fsynced, Note::Committed, Note::Time(Duration::from_secs(n))];
    (1..=3).flat_map(one).chain(more.iter().copied()).collect()
}

#[test]
fn bounds_and_barriers_say_what_has_to_be_there() {
    let bounds = |fsyncs, age| Bounds { fsyncs, age: Duration::from_secs(age), more: "" };
    let least = |bounds, more: &[Note]| Demand::of(&three(more), &bounds).least;
    assert_eq!(least(bounds(None, 100), &[]), 0);
    assert_eq!(least(bounds(Some(1), 100), &[]), 2);
    assert_eq!(least(bounds(Some(2), 100), &[]), 2);
    assert_eq!(least(bounds(Some(3), 100), &[]), 1);
    assert_eq!(least(bounds(Some(3), 100), &[Note::Began, Note::Fsynced]), 2);
    // The first committed at 0 s, the second at 1 s, the third at 2 s, and it is 3 s.
    assert_eq!(least(bounds(None, 3), &[]), 0);
    assert_eq!(least(bounds(None, 2), &[]), 1);
    assert_eq!(least(bounds(None, 2), &[Note::Time(Duration::from_millis(3001))]), 2);
    assert_eq!(least(bounds(None, 100), &[Note::Barrier, Note::Began]), 3);
    assert_eq!(Demand::of(&three(&[Note::Began]), &bounds(None, 9)).begun, 4);
}
