//! Which thread of a replay asks for what, and when it may.
//!
//! Each recorded thread has a lane. An operation waits until all earlier ones on its files are done, wherever
//! they ran: each takes, in the order of the trace, a numbered turn at each of its files. As every lane takes
//! its operations in that order too, the earliest one that is not done can always go on, so no lane waits for
//! ever.
//!
//! Lock: `Turns::done` is a leaf.

use crate::record::{FileId, Op};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;

/// Operations that wait in a lane.
pub(crate) const QUEUE: usize = 64;

/// Says which file's turn it is.
pub(crate) type Ticket = Option<(FileId, u64)>;

/// Gives threads their lanes and operations their turns.
pub(crate) struct Lanes {
    most: usize,
    of_thread: HashMap<u32, usize>,
    next_turn: HashMap<FileId, u64>,
}

impl Lanes {
    pub(crate) fn new(most: usize) -> Lanes {
        Lanes { most: most.max(1), of_thread: HashMap::new(), next_turn: HashMap::new() }
    }

    /// The lane of a thread.
    pub(crate) fn of(&mut self, thread: u32) -> usize {
        let next = self.of_thread.len() % self.most;
        *self.of_thread.entry(thread).or_insert(next)
    }

    /// The next turn at each file of an operation.
    pub(crate) fn tickets(&mut self, op: &Op) -> [Ticket; 3] {
        let mut files = op.files();
        // A file that is named twice has one turn.
        if files[1] == files[0] {
            files[1] = None;
        }
        files.map(|file| {
            let turn = self.next_turn.entry(file?).or_insert(0);
            *turn += 1;
            Some((file?, *turn - 1))
        })
    }
}

/// The turns that were taken.
#[derive(Default)]
pub(crate) struct Turns {
    done: Mutex<HashMap<FileId, u64>>,
    changed: Condvar,
}

impl Turns {
    /// Waits until it is an operation's turn at all of its files.
    pub(crate) fn wait(&self, tickets: &[Ticket; 3]) {
        let mut done = self.done.lock();
        let early = |done: &HashMap<FileId, u64>| {
            tickets.iter().flatten().any(|(file, turn)| done.get(file).copied().unwrap_or(0) != *turn)
        };
        while early(&done) {
            self.changed.wait(&mut done);
        }
    }

    /// Ends an operation's turns.
    pub(crate) fn done(&self, tickets: &[Ticket; 3]) {
        let mut done = self.done.lock();
        for (file, turn) in tickets.iter().flatten() {
            done.insert(*file, turn + 1);
        }
        drop(done);
        self.changed.notify_all();
    }
}
