//! The SIT in memory: validity bitmaps, read in pages, and what a checkpoint writes of them.

use super::Segments;
use crate::cache::in_drop_order;
use crate::error::Result;
use crate::io::Io;
use medfs_format::sit::{
    ENTRIES_PER_BLOCK, RawSitBlock, RawSitEntry, VALID_MAP_SIZE, flip_bit, set_bit, test_bit,
};
use medfs_format::summary::{Log, RawJournal, RawSitJournalEntry, SIT_JOURNAL_ENTRIES};
use medfs_format::{BLOCKS_PER_SEG, Block, BlockAddr, FormatError, SegNo, Structure};
use std::collections::BTreeMap;

/// SIT blocks kept in memory beyond the dirty ones.
const MAX_CLEAN_PAGES: usize = 1024;
/// SIT blocks read in one go when the table is scanned.
const READ_AHEAD: u32 = 64;

/// State of one segment.
#[derive(Debug, Clone)]
pub struct SegEntry {
    /// The log that the segment belongs to.
    pub seg_type: u8,
    pub(crate) valid: u16,
    /// When it was last changed, in seconds of [`crate::Store::elapsed`].
    pub mtime: u64,
    /// Blocks valid now.
    pub cur: [u8; VALID_MAP_SIZE],
    /// Blocks that must not be reused before the next checkpoint.
    pub(crate) pinned: [u8; VALID_MAP_SIZE],
}

impl SegEntry {
    fn from_raw(raw: &RawSitEntry) -> SegEntry {
        SegEntry {
            seg_type: raw.seg_type(),
            valid: raw.valid_blocks(),
            mtime: raw.mtime.get(),
            cur: raw.valid_map,
            pinned: raw.valid_map,
        }
    }
    fn raw(&self) -> RawSitEntry {
        RawSitEntry::new(self.seg_type, self.valid, self.cur, self.mtime)
    }
    /// Blocks that a log may write.
    pub(crate) fn writable(&self, offset: usize) -> bool {
        !test_bit(&self.cur, offset) && !test_bit(&self.pinned, offset)
    }
    /// Whether any block may be written.
    pub(crate) fn any_writable(&self) -> bool {
        self.cur.iter().zip(&self.pinned).any(|(c, p)| c | p != 0xff)
    }
    /// How many blocks may be written.
    pub(crate) fn writable_count(&self) -> u32 {
        self.cur.iter().zip(&self.pinned).map(|(c, p)| (c | p).count_zeros()).sum()
    }
    /// Mean modification time once one more block changes `now`. The time on disk may be anything.
    fn mean_mtime(&self, now: u64) -> u64 {
        let valid = u64::from(self.valid);
        self.mtime.saturating_mul(valid).saturating_add(now) / (valid + 1)
    }
    fn word(&self) -> u16 {
        0x8000 | (u16::from(self.seg_type) << 11) | self.valid
    }
}

/// Blocks with the addresses they are to be written to.
pub(crate) type PlacedBlocks = Vec<(BlockAddr, Box<Block>)>;

/// Runs of blocks that a checkpoint made reusable.
pub struct Freed {
    pub(crate) runs: Vec<(BlockAddr, u32)>,
}

impl Segments {
    /// The entry of a segment, read where it is not in memory.
    pub fn entry(&mut self, io: &Io, segno: SegNo) -> Result<&mut SegEntry> {
        let index = segno / ENTRIES_PER_BLOCK as u32;
        if !self.sit.contains_key(&index) {
            self.load(io, index, 1)?;
        }
        Ok(&mut self.sit.get_mut(&index).expect("loaded")[segno as usize % ENTRIES_PER_BLOCK])
    }

    /// Reads `count` SIT blocks from `first` on.
    pub(super) fn load(&mut self, io: &Io, first: u32, count: u32) -> Result<()> {
        let mut blocks: Vec<Block> = vec![Block::ZERO; count as usize];
        let mut at = 0;
        while at < count {
            let second = test_bit(&self.sit_bitmap, (first + at) as usize);
            let run = (at..count)
                .take_while(|&i| test_bit(&self.sit_bitmap, (first + i) as usize) == second)
                .count();
            let mut refs: Vec<&mut Block> = blocks[at as usize..at as usize + run].iter_mut().collect();
            io.read_into(self.geo.sit_block(first + at, second), &mut refs)?;
            at += run as u32;
        }
        for (i, block) in blocks.iter().enumerate() {
            let index = first + i as u32;
            if self.sit.contains_key(&index) {
                continue;
            }
            let start = index * ENTRIES_PER_BLOCK as u32;
            let count = (self.geo.segment_count_main - start).min(ENTRIES_PER_BLOCK as u32);
            let raw: &RawSitBlock = block.view();
            let mut entries = Vec::with_capacity(count as usize);
            for j in 0..count {
                let segno = start + j;
                let raw = self.sit_journal.get(&segno).unwrap_or(&raw.entries[j as usize]);
                raw.validate(segno)?;
                let entry = SegEntry::from_raw(raw);
                self.known[segno as usize] = entry.word();
                entries.push(entry);
            }
            self.sit.insert(index, entries.into_boxed_slice());
        }
        Ok(())
    }

    /// Learns type and valid blocks of every segment, keeping memory bounded.
    pub fn learn_all(&mut self, io: &Io) {
        if self.all_known {
            return;
        }
        let total = self.geo.sit_blocks();
        let mut index = 0;
        while index < total {
            self.learn_from(io, index);
            index += READ_AHEAD;
        }
        self.all_known = true;
    }

    /// Learns the segments of SIT block `index` and some that follow. Those of a block that cannot be read
    /// count as full.
    fn learn_from(&mut self, io: &Io, index: u32) {
        let count = READ_AHEAD.min(self.geo.sit_blocks() - index);
        if !self.known[self.segments_of(index, count)].contains(&super::UNKNOWN) {
            return;
        }
        if self.load(io, index, count).is_err() {
            for index in index..index + count {
                if let Err(error) = self.load(io, index, 1) {
                    tracing::warn!(index, %error, "the segments of a SIT block count as full");
                    let segments = self.segments_of(index, 1);
                    self.known[segments].fill(super::LOST);
                }
            }
        }
        self.shrink();
    }

    /// The segments of `count` SIT blocks from `first` on.
    fn segments_of(&self, first: u32, count: u32) -> std::ops::Range<usize> {
        let segment =
            |index: u32| (index * ENTRIES_PER_BLOCK as u32).min(self.geo.segment_count_main) as usize;
        segment(first)..segment(first + count)
    }

    /// Valid blocks of a segment, from memory where possible.
    pub fn valid_blocks(&mut self, io: &Io, segno: SegNo) -> u16 {
        if self.known[segno as usize] == super::UNKNOWN {
            self.learn_from(io, segno / ENTRIES_PER_BLOCK as u32);
        }
        self.known[segno as usize] & 0x3ff
    }

    /// Whether the SIT does not say whether a block is valid, as it cannot be read there.
    pub fn is_lost(&mut self, io: &Io, addr: BlockAddr) -> bool {
        let segno = self.geo.segno(addr);
        self.entry(io, segno).is_err()
    }

    /// Whether the SIT's journal has no entries.
    pub fn has_empty_journal(&self) -> bool {
        self.sit_journal.is_empty()
    }

    /// Type of a known segment.
    pub fn known_type(&self, segno: SegNo) -> u8 {
        (self.known[segno as usize] >> 11) as u8 & 0xf
    }

    /// Whether a known segment is free.
    pub(super) fn is_free_known(&self, segno: SegNo) -> bool {
        self.known[segno as usize] & 0x3ff == 0 && !self.prefree.contains(&segno) && !self.is_curseg(segno)
    }

    pub(crate) fn is_free(&mut self, io: &Io, segno: SegNo) -> bool {
        self.valid_blocks(io, segno) == 0 && self.is_free_known(segno)
    }

    pub(super) fn set_type(&mut self, io: &Io, segno: SegNo, log: Log) -> Result<()> {
        let e = self.entry(io, segno)?;
        if e.seg_type != log as u8 {
            e.seg_type = log as u8;
            // A checkpoint may come before the first block: a log's segment is of its type on the volume too.
            self.touch(segno);
        }
        Ok(())
    }

    /// Marks a block valid. `Corrupt` where it already is.
    pub fn mark_valid(&mut self, io: &Io, addr: BlockAddr, now: u64) -> Result<()> {
        let (segno, offset) = (self.geo.segno(addr), self.geo.offset_in_seg(addr) as usize);
        let was_free = self.is_free(io, segno);
        let e = self.entry(io, segno)?;
        if set_bit(&mut e.cur, offset) {
            return Err(wrong(segno, format!("block {addr} is used twice")));
        }
        set_bit(&mut e.pinned, offset);
        e.mtime = e.mean_mtime(now);
        e.valid += 1;
        self.touch(segno);
        if was_free {
            self.free.set_used(segno, true);
        }
        self.prefree.remove(&segno);
        Ok(())
    }

    /// The entry of a block that is valid: `Corrupt` where it is not, `None` where the SIT cannot be read.
    pub(super) fn entry_of_valid(&mut self, io: &Io, addr: BlockAddr) -> Result<Option<&mut SegEntry>> {
        if !self.geo.in_main(addr) {
            return Err(FormatError::corrupt(
                Structure::SitEntry,
                addr,
                "block address",
                "outside the main area",
            )
            .into());
        }
        let (segno, offset) = (self.geo.segno(addr), self.geo.offset_in_seg(addr) as usize);
        match self.entry(io, segno) {
            Ok(e) if test_bit(&e.cur, offset) => Ok(Some(e)),
            Ok(_) => Err(wrong(segno, format!("block {addr} is freed but was not in use"))),
            Err(error) => {
                tracing::warn!(addr, %error, "a freed block stays marked as valid");
                Ok(None)
            }
        }
    }

    /// Marks a block no longer valid. `Corrupt` where it was not. Where the SIT cannot be read it stays as it is there.
    pub fn mark_invalid(&mut self, io: &Io, addr: BlockAddr, now: u64) -> Result<()> {
        let (segno, offset) = (self.geo.segno(addr), self.geo.offset_in_seg(addr) as usize);
        let Some(e) = self.entry_of_valid(io, addr)? else { return Ok(()) };
        flip_bit(&mut e.cur, offset);
        e.mtime = e.mean_mtime(now);
        e.valid -= 1;
        let empty = e.valid == 0;
        self.touch(segno);
        if empty && !self.is_curseg(segno) {
            self.prefree.insert(segno);
        }
        Ok(())
    }

    /// Whether a block is valid now.
    pub fn is_valid(&mut self, io: &Io, addr: BlockAddr) -> Result<bool> {
        let (segno, offset) = (self.geo.segno(addr), self.geo.offset_in_seg(addr) as usize);
        Ok(test_bit(&self.entry(io, segno)?.cur, offset))
    }

    pub(super) fn touch(&mut self, segno: SegNo) {
        self.dirty.insert(segno);
        let index = segno / ENTRIES_PER_BLOCK as u32;
        let word = self.sit[&index][segno as usize % ENTRIES_PER_BLOCK].word();
        self.known[segno as usize] = word;
    }

    /// Segments whose SIT entry differs from the volume.
    pub fn dirty_sit_count(&self) -> usize {
        self.dirty.len()
    }

    /// For a checkpoint: puts dirty entries into the journal while they fit, the rest into the other copy of their SIT
    /// blocks, which it returns; the version bitmap is flipped for them.
    pub(crate) fn flush_sit(&mut self, io: &Io) -> Result<(RawJournal, PlacedBlocks)> {
        let mut to_flush = self.dirty.clone();
        if self.sit_journal.len() + to_flush.len() > SIT_JOURNAL_ENTRIES {
            // Into memory first: the journal, which is about to be emptied, is newer than the SIT blocks.
            // What these cannot take stays.
            for segno in self.sit_journal.keys().copied().collect::<Vec<SegNo>>() {
                if self.entry(io, segno).is_ok() {
                    self.sit_journal.remove(&segno);
                    to_flush.insert(segno);
                }
            }
        }
        let mut sets: BTreeMap<u32, Vec<SegNo>> = BTreeMap::new();
        for segno in to_flush {
            sets.entry(segno / ENTRIES_PER_BLOCK as u32).or_default().push(segno);
        }
        let mut sets: Vec<(u32, Vec<SegNo>)> = sets.into_iter().collect();
        sets.sort_by_key(|(_, segnos)| segnos.len());
        let mut blocks = Vec::new();
        for (index, segnos) in sets {
            if self.sit_journal.len() + segnos.len() <= SIT_JOURNAL_ENTRIES {
                for segno in segnos {
                    let raw = self.entry(io, segno)?.raw();
                    self.sit_journal.insert(segno, raw);
                }
                continue;
            }
            // Everything in memory is the newest state, so the whole block is written from it.
            self.entry(io, segnos[0])?;
            let mut block = Block::boxed();
            let raw: &mut RawSitBlock = block.view_mut();
            for (slot, e) in raw.entries.iter_mut().zip(self.sit[&index].iter()) {
                *slot = e.raw();
            }
            for segno in segnos {
                self.sit_journal.remove(&segno);
            }
            flip_bit(&mut self.sit_bitmap, index as usize);
            let second = test_bit(&self.sit_bitmap, index as usize);
            blocks.push((self.geo.sit_block(index, second), block));
        }
        let mut journal = RawJournal::EMPTY;
        let entries: Vec<RawSitJournalEntry> = self
            .sit_journal
            .iter()
            .map(|(&segno, &entry)| RawSitJournalEntry { segno: segno.into(), entry })
            .collect();
        assert!(journal.set_sit(&entries), "counted above");
        Ok((journal, blocks))
    }

    pub(crate) fn sit_bitmap(&self) -> &[u8] {
        &self.sit_bitmap
    }

    /// After a checkpoint is durable: what was freed before it may be reused. Returns the freed runs.
    pub(crate) fn committed(&mut self) -> Freed {
        let mut runs: Vec<(BlockAddr, u32)> = Vec::new();
        for segno in std::mem::take(&mut self.dirty) {
            let start = self.geo.seg_start(segno);
            let index = segno / ENTRIES_PER_BLOCK as u32;
            let e =
                &mut self.sit.get_mut(&index).expect("dirty pages stay")[segno as usize % ENTRIES_PER_BLOCK];
            for offset in 0..BLOCKS_PER_SEG {
                if test_bit(&e.pinned, offset as usize) && !test_bit(&e.cur, offset as usize) {
                    match runs.last_mut() {
                        Some((addr, len)) if *addr + *len == start + offset => *len += 1,
                        _ => runs.push((start + offset, 1)),
                    }
                }
            }
            e.pinned = e.cur;
        }
        for segno in std::mem::take(&mut self.prefree) {
            self.free.set_used(segno, false);
        }
        self.earlier = None;
        self.chain_from = self.taken[Log::WarmNode as usize];
        self.shrink();
        Freed { runs }
    }

    /// Drops SIT pages that equal their block on disk (or the journal), down to a bound.
    pub(crate) fn shrink(&mut self) {
        if self.sit.len() <= MAX_CLEAN_PAGES {
            return;
        }
        let per = ENTRIES_PER_BLOCK as u32;
        let dirty: std::collections::BTreeSet<u32> = self.dirty.iter().map(|s| s / per).collect();
        let spare = self.sit.len() - MAX_CLEAN_PAGES / 2;
        let clean = self.sit.keys().copied().filter(|index| !dirty.contains(index));
        for index in in_drop_order(clean).iter().take(spare) {
            self.sit.remove(index);
        }
    }
}

fn wrong(segno: SegNo, value: String) -> crate::error::Error {
    FormatError::corrupt(Structure::SitEntry, segno, "valid_map", value).into()
}

impl Segments {
    /// Runs of at least `min` blocks that nothing needs, between two main-area blocks, at most one segment at a time.
    pub fn free_runs(&mut self, io: &Io, segno: SegNo, min: u32) -> Result<Vec<(BlockAddr, u32)>> {
        let start = self.geo.seg_start(segno);
        if self.is_curseg(segno) {
            return Ok(Vec::new()); // its log is about to write there
        }
        let e = self.entry(io, segno)?;
        let mut runs: Vec<(BlockAddr, u32)> = Vec::new();
        for offset in 0..BLOCKS_PER_SEG {
            if !e.writable(offset as usize) {
                continue;
            }
            match runs.last_mut() {
                Some((addr, len)) if *addr + *len == start + offset => *len += 1,
                _ => runs.push((start + offset, 1)),
            }
        }
        runs.retain(|r| r.1 >= min);
        Ok(runs)
    }
}
