//! jbd2 as the Delta Journaling paper has it for its baseline (section IV.A), and Delta Journaling on it: what both
//! write, block by block.
//!
//! A commit writes its blocks to a journal on flash and its descriptor and commit block with them; a checkpoint writes
//! each block of the journal home. With a memory, blocks whose difference compresses are deltas in it instead, beside
//! descriptor and commit block. A checkpoint is due when a quarter of the journal is in use, or as much of the memory
//! as its threshold says; while it writes, commits go on, at the rate of [`Model::meanwhile`].

use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks of a journal on flash: 128 MiB, mke2fs's choice for a card of 16 GB.
const JOURNAL: u64 = 32_768;
/// Part of it that makes a checkpoint due.
const PART: u64 = 4;
/// Tags that a descriptor on flash has room for: 16 bytes each.
const TAGS: u64 = 254;
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
    /// Whether blocks of which the memory has a delta wait for a checkpoint, and an fsync does not write them home.
    pub(super) waits: bool,
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
pub(in crate::experiment) struct Written {
    /// Blocks to the journal on flash.
    pub(super) journal: u64,
    /// Blocks home, and in how many requests: a run of neighbours is one.
    pub(super) home: u64,
    pub(super) home_requests: u64,
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
    /// Blocks that are not home yet, and whether the memory has the newest state of each.
    committed: BTreeMap<u64, bool>,
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
            committed: BTreeMap::new(),
            under_way: None,
        }
    }

    /// Commits some updates as one transaction; how many blocks it wrote to flash.
    pub(super) fn commit(&mut self, updates: &[Update]) -> u64 {
        let mut blocks = 0;
        if self.model.memory.is_some() {
            self.in_memory += HEAD + END;
        }
        for update in updates {
            let delta = update.delta.map(|bytes| bytes + TAG);
            let room = self.model.memory.map_or(0, |memory| memory.bytes.saturating_sub(self.in_memory));
            let admitted = delta.filter(|&bytes| bytes <= room);
            self.committed.insert(update.block, admitted.is_some());
            match admitted {
                Some(bytes) => {
                    self.in_memory += bytes;
                    self.written.deltas += 1;
                    self.written.delta_bytes += bytes - TAG;
                }
                None => blocks += 1,
            }
        }
        if self.model.memory.is_none() {
            blocks += (updates.len() as u64).div_ceil(TAGS) + 1;
        }
        self.on_flash += blocks;
        self.written.journal += blocks;
        self.written.requests += u64::from(blocks > 0);
        self.go_on(updates.len() as f64);
        self.begin_if_due();
        blocks
    }

    /// Writes those of the blocks home now that do not wait for a checkpoint; how many.
    pub(super) fn write_home(&mut self, blocks: Range<u64>) -> u64 {
        let waits = self.model.waits;
        let due = |(&block, &in_memory): (&u64, &bool)| (!in_memory || !waits).then_some(block);
        let due: Vec<u64> = self.committed.range(blocks).filter_map(due).collect();
        for block in &due {
            self.committed.remove(block);
        }
        self.note_home(&due);
        due.len() as u64
    }

    /// Blocks of which nobody wants to know any more: of files that are removed.
    pub(super) fn revoke(&mut self, blocks: Range<u64>) {
        let gone: Vec<u64> = self.committed.range(blocks).map(|(&block, _)| block).collect();
        for block in gone {
            self.committed.remove(&block);
        }
    }

    fn note_home(&mut self, blocks: &[u64]) {
        self.written.home += blocks.len() as u64;
        self.written.home_requests += runs(blocks);
    }

    fn begin_if_due(&mut self) {
        let full =
            self.model.memory.is_some_and(|memory| self.in_memory * 100 >= memory.threshold * memory.bytes);
        if self.under_way.is_none() && (full || self.on_flash * PART >= self.model.journal()) {
            self.begin();
        }
    }

    /// Begins a checkpoint.
    pub(super) fn begin(&mut self) {
        let blocks: Vec<u64> = std::mem::take(&mut self.committed).into_keys().collect();
        self.note_home(&blocks);
        let home = blocks.len() as u64;
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

/// Runs of neighbours among blocks in order.
pub(super) fn runs(blocks: &[u64]) -> u64 {
    let breaks = blocks.windows(2).filter(|two| two[0] + 1 != two[1]).count() as u64;
    u64::from(!blocks.is_empty()) + breaks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(model: Model, updates: u64, of: u64, delta: Option<u64>) -> Written {
        let mut journal = Journal::new(model);
        for n in 0..updates {
            journal.commit(&[Update { block: n % of, delta }]);
        }
        journal.go_on(f64::INFINITY);
        journal.begin();
        journal.written
    }

    #[test]
    fn each_block_is_written_twice_and_deltas_once() {
        let plain = Model { memory: None, waits: true, meanwhile: 1.0, part: 1.0 };
        let written = run(plain, 1000, 1000, Some(50));
        assert_eq!((written.journal, written.home, written.checkpoints), (3000, 1000, 1));
        let memory = Memory { bytes: 1 << 20, threshold: 75 };
        let written = run(Model { memory: Some(memory), ..plain }, 1000, 1000, Some(50));
        assert_eq!((written.journal, written.home, written.deltas), (0, 1000, 1000));
        let written = run(Model { memory: Some(memory), ..plain }, 1000, 1000, None);
        assert_eq!((written.journal, written.deltas), (1000, 0));
    }

    #[test]
    fn a_block_goes_home_once_and_one_of_the_memory_waits_for_a_checkpoint() {
        let memory = Some(Memory { bytes: 1 << 20, threshold: 75 });
        let mut journal = Journal::new(Model { memory, waits: true, meanwhile: 1.0, part: 1.0 });
        let update = |block, delta| Update { block, delta };
        assert_eq!(
            journal.commit(&[update(1, None), update(2, None), update(3, Some(9)), update(9, None)]),
            3
        );
        assert_eq!(journal.write_home(0..8), 2);
        assert_eq!(journal.write_home(0..8), 0);
        assert_eq!((journal.written.home, journal.written.home_requests), (2, 1));
        journal.revoke(9..10);
        journal.begin();
        assert_eq!((journal.written.home, journal.written.home_requests), (3, 2));
    }

    #[test]
    fn a_full_memory_sends_blocks_to_flash_while_it_is_emptied() {
        let model = |threshold| Model {
            memory: Some(Memory { bytes: 1 << 16, threshold }),
            waits: true,
            meanwhile: 0.25,
            part: 1.0,
        };
        let [early, late] = [75, 100].map(|threshold| run(model(threshold), 20_000, 400, Some(50)));
        assert_eq!(early.journal, 0);
        assert!(late.journal > 0 && late.checkpoints < early.checkpoints, "{late:?} {early:?}");
    }
}
