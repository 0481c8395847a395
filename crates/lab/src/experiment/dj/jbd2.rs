//! jbd2 as the Delta Journaling paper has it for its baseline (section IV.A), and Delta Journaling on it: what both
//! write, block by block.
//!
//! A commit writes its blocks to a journal on flash and its descriptor and commit block with them; a checkpoint writes
//! each block of the journal home. With a memory, blocks whose difference compresses are deltas in it instead, beside
//! descriptor and commit block. A checkpoint is due when a quarter of the journal is in use, or as much of the memory
//! as its threshold says; while it writes, commits go on, at the rate of [`Model::meanwhile`].

use std::collections::HashSet;

/// Blocks of a journal on flash: 128 MiB, mke2fs's choice for a card of 16 GB.
const JOURNAL: u64 = 32_768;
/// Part of it that makes a checkpoint due.
const PART: u64 = 4;
/// Bytes of a record's head, of a tag, and of its end (Fig. 6).
const HEAD: u64 = 12;
const TAG: u64 = 16;
const END: u64 = 32;

/// How a block changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Update {
    pub(super) block: u64,
    /// Bytes of its delta, where Delta Journaling admits it.
    pub(super) delta: Option<u64>,
}

/// A memory beside the journal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) bytes: u64,
    /// Percent in use that make a checkpoint due.
    pub(super) threshold: u64,
}

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Model {
    pub(super) memory: Option<Memory>,
    /// Blocks that commits write for each block that a checkpoint writes at the same time.
    pub(super) meanwhile: f64,
    /// Part of the full size that the journal on flash has.
    pub(super) part: f64,
}

impl Model {
    fn journal(&self) -> u64 {
        (JOURNAL as f64 * self.part) as u64
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Written {
    /// Blocks to the journal on flash.
    pub(super) journal: u64,
    /// Blocks home.
    pub(super) home: u64,
    pub(super) checkpoints: u64,
    pub(super) deltas: u64,
    pub(super) delta_bytes: u64,
    /// Commits that wrote to flash, each in one request.
    pub(super) requests: u64,
}

/// A journal while it is written.
pub(super) struct Journal {
    model: Model,
    pub(super) written: Written,
    /// Blocks of the journal and bytes of the memory in use.
    on_flash: u64,
    in_memory: u64,
    /// Blocks that are not home yet.
    committed: HashSet<u64>,
    /// What a checkpoint under way has still to write, and what it gives back then.
    under_way: Option<(f64, u64, u64)>,
}

impl Journal {
    pub(super) fn new(model: Model) -> Journal {
        Journal {
            model,
            written: Written::default(),
            on_flash: 0,
            in_memory: 0,
            committed: HashSet::new(),
            under_way: None,
        }
    }

    /// Commits some updates as one transaction.
    pub(super) fn commit(&mut self, updates: &[Update]) {
        let mut blocks = 0;
        if self.model.memory.is_some() {
            self.in_memory += HEAD + END;
        }
        for update in updates {
            self.committed.insert(update.block);
            let delta = update.delta.map(|bytes| bytes + TAG);
            let room = self.model.memory.map_or(0, |memory| memory.bytes.saturating_sub(self.in_memory));
            match delta.filter(|&bytes| bytes <= room) {
                Some(bytes) => {
                    self.in_memory += bytes;
                    self.written.deltas += 1;
                    self.written.delta_bytes += bytes - TAG;
                }
                None => blocks += 1,
            }
        }
        if self.model.memory.is_none() {
            blocks += 2;
        }
        self.on_flash += blocks;
        self.written.journal += blocks;
        self.written.requests += u64::from(blocks > 0);
        self.go_on(updates.len() as f64);
        self.begin_if_due();
    }

    fn begin_if_due(&mut self) {
        let full =
            self.model.memory.is_some_and(|memory| self.in_memory * 100 >= memory.threshold * memory.bytes);
        if self.under_way.is_none() && (full || self.on_flash * PART >= self.model.journal()) {
            self.begin();
        }
    }

    fn begin(&mut self) {
        let home = std::mem::take(&mut self.committed).len() as u64;
        self.written.home += home;
        self.written.checkpoints += u64::from(home > 0);
        self.under_way = Some((home as f64, self.on_flash, self.in_memory));
    }

    /// A checkpoint under way writes on while so many blocks are committed.
    fn go_on(&mut self, committed: f64) {
        let Some((left, on_flash, in_memory)) = &mut self.under_way else { return };
        *left -= committed / self.model.meanwhile;
        if *left <= 0.0 {
            self.on_flash -= *on_flash;
            self.in_memory = self.in_memory.saturating_sub(*in_memory);
            self.under_way = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(model: Model, updates: u64, of: u64, delta: Option<u64>) -> Written {
        let mut journal = Journal::new(model);
        (0..updates).for_each(|n| journal.commit(&[Update { block: n % of, delta }]));
        journal.go_on(f64::INFINITY);
        journal.begin();
        journal.written
    }

    #[test]
    fn each_block_is_written_twice_and_deltas_once() {
        let plain = Model { memory: None, meanwhile: 1.0, part: 1.0 };
        let written = run(plain, 1000, 1000, Some(50));
        assert_eq!((written.journal, written.home, written.checkpoints), (3000, 1000, 1));
        let memory = Memory { bytes: 1 << 20, threshold: 75 };
        let written = run(Model { memory: Some(memory), ..plain }, 1000, 1000, Some(50));
        assert_eq!((written.journal, written.home, written.deltas), (0, 1000, 1000));
        let written = run(Model { memory: Some(memory), ..plain }, 1000, 1000, None);
        assert_eq!((written.journal, written.deltas), (1000, 0));
    }

    #[test]
    fn a_full_memory_sends_blocks_to_flash_while_it_is_emptied() {
        let model = |threshold| Model {
            memory: Some(Memory { bytes: 1 << 16, threshold }),
            meanwhile: 0.25,
            part: 1.0,
        };
        let [early, late] = [75, 100].map(|threshold| run(model(threshold), 20_000, 400, Some(50)));
        assert_eq!(early.journal, 0);
        assert!(late.journal > 0 && late.checkpoints < early.checkpoints, "{late:?} {early:?}");
    }
}
