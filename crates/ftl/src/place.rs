//! Placing logical pages: slots are filled, programmed, and put elsewhere where a program fails.

use crate::blocks::State;
use crate::entry::Entry;
use crate::error::{FtlError, Result};
use crate::ftl::{Ftl, PACKED, PACKED_MOVED};
use crate::logs::{NEVER, Pending, Slot, Whole};
use crate::nand::{Codec, Nand, NandError};
use crate::spare::{self, Kind, NOBODY, Record};
use alloc::vec::Vec;

impl<N: Nand, C: Codec> Ftl<N, C> {
    /// Puts a logical page into a log: it is mapped to where it will be. `across`: it may end in the next flash page. `from`: where the
    /// caller knows that it is mapped to now.
    pub(crate) fn append(
        &mut self,
        log: usize,
        page: Pending,
        bytes: &[u8],
        across: bool,
        from: Option<Entry>,
    ) -> Result<()> {
        // Where a program fails what it held waits in the next slot, which may be too full as well.
        while let Some(at) = self.logs[log].slot.page {
            let slot = &self.logs[log].slot;
            let left = self.g.page_bytes - slot.used;
            let has_record = slot.records.len() < self.records_max;
            if u32::from(page.size) <= left && has_record {
                break;
            }
            let can_cross = left > 0 && has_record && !(at + 1).is_multiple_of(self.g.pages_per_block);
            if across && can_cross {
                return self.append_across(log, page, bytes, from);
            }
            self.program(log)?;
        }
        if self.logs[log].slot.page.is_none() {
            self.reserve_page(log)?;
        }
        self.put(log, page, bytes, false, from)?;
        self.program_if_full(log)
    }

    fn program_if_full(&mut self, log: usize) -> Result<()> {
        let slot = &self.logs[log].slot;
        if slot.used == self.g.page_bytes || slot.records.len() == self.records_max {
            self.program(log)?;
        }
        Ok(())
    }

    /// Adds a record to the slot, as much of it as has room, and maps the page to it.
    fn put(
        &mut self,
        log: usize,
        page: Pending,
        bytes: &[u8],
        across: bool,
        known: Option<Entry>,
    ) -> Result<()> {
        let stamp = self.stamp;
        let slot = &mut self.logs[log].slot;
        let Some(at) = slot.page else { return Err(FtlError::WornOut) };
        let entry = Entry {
            page: at,
            index: slot.records.len() as u8,
            size: page.size,
            ratio: page.ratio,
            across,
            compressed: page.compressed,
        };
        let from = slot.used as usize;
        let here = u32::from(page.size).min(self.g.page_bytes - slot.used);
        if C::CONTENT {
            let Some(part) = bytes.get(..here as usize) else { return Err(FtlError::OutOfRange) };
            slot.data[from..from + here as usize].copy_from_slice(part);
        }
        slot.records.push(page);
        slot.used += here;
        slot.born = slot.born.min(stamp).min(self.salvage_born);
        let since = self.remap(page.lpn, entry, known)?;
        let slot = &mut self.logs[log].slot;
        slot.born = slot.born.min(since);
        Ok(())
    }

    /// Maps a logical page to a new place; the old one holds nothing any more. Where that was not on flash itself, what it
    /// had replaced is needed until the new one is: returns since when.
    fn remap(&mut self, lpn: u32, entry: Entry, known: Option<Entry>) -> Result<u64> {
        self.stamp += 1;
        let old = match known {
            // The entry is not looked at: it may be far away in the memory.
            Some(_) => {
                self.paged.set_entry(&mut self.nand, lpn, Some(entry))?;
                known
            }
            None => self.paged.replace(&mut self.nand, lpn, entry)?,
        };
        self.hold(&entry)?;
        match old {
            Some(old) => self.release(&old),
            None if self.untrim(lpn) => Ok(self.trims_born),
            None => Ok(NEVER),
        }
    }

    /// A page that does not fit the slot begins in it and ends in the next flash page of the block.
    fn append_across(&mut self, log: usize, page: Pending, bytes: &[u8], from: Option<Entry>) -> Result<()> {
        let Some(at) = self.logs[log].slot.page else { return Err(FtlError::WornOut) };
        let tail = u32::from(page.size) - (self.g.page_bytes - self.logs[log].slot.used);
        self.counters.across += 1;
        self.put(log, page, bytes, true, from)?;
        self.logs[log].beginning = Some(Whole { page, bytes: bytes.to_vec() });
        self.program(log)?;
        if self.logs[log].ending.is_none() {
            // The program failed, and all of the slot went elsewhere.
            return Ok(());
        }
        let stamp = self.stamp;
        let slot = &mut self.logs[log].slot;
        (slot.page, slot.used, slot.tail, slot.born) = (Some(at + 1), tail, tail as u16, stamp - 1);
        if C::CONTENT {
            let from = bytes.len() - tail as usize;
            slot.data[..tail as usize].copy_from_slice(&bytes[from..]);
        }
        self.program_if_full(log)
    }

    /// Takes the next flash page of the log for its slot.
    fn reserve_page(&mut self, log: usize) -> Result<()> {
        let way = self.logs[log].turn % self.logs[log].open.len();
        self.logs[log].turn = way + 1;
        let block = match self.logs[log].open[way] {
            Some(block) => block,
            None => self.open_block(log, way)?,
        };
        let page = self.g.first_page(block) + u32::from(self.blocks.get(block).written);
        self.logs[log].slot.page = Some(page);
        Ok(())
    }

    fn open_block(&mut self, log: usize, way: usize) -> Result<u32> {
        let most_worn = log == PACKED_MOVED;
        loop {
            if self.blocks.free_count() == 0 {
                self.release_drained(true, 1)?;
            }
            let Some(block) = self.blocks.pick_free(way as u32, most_worn) else {
                return Err(FtlError::WornOut);
            };
            if !self.blocks.get(block).clean && !self.erase(block)? {
                continue;
            }
            self.blocks.set_state(block, State::Open, &*self.policy);
            let b = self.blocks.get_mut(block);
            (b.log, b.clean) = (log as u8, false);
            self.logs[log].open[way] = Some(block);
            return Ok(block);
        }
    }

    /// Erases a free block, which stays free; `false` where it went bad.
    pub(crate) fn erase(&mut self, block: u32) -> Result<bool> {
        self.blocks.set_state(block, State::Drained, &*self.policy);
        let begun = self.nand.now();
        let erased = self.nand.erase(block);
        self.counters.erase_ns += self.nand.now() - begun;
        match erased {
            Ok(()) => {
                self.counters.erases += 1;
                self.since_level += 1;
                self.blocks.erased(block);
                self.blocks.set_state(block, State::Free, &*self.policy);
                Ok(true)
            }
            Err(NandError::Failed(_)) => {
                self.retire(block);
                Ok(false)
            }
            Err(e) => {
                self.blocks.set_state(block, State::Free, &*self.policy);
                self.blocks.get_mut(block).clean = false;
                Err(e.into())
            }
        }
    }

    /// A block is not used again.
    pub(crate) fn retire(&mut self, block: u32) {
        self.nand.mark_bad(block);
        self.blocks.set_state(block, State::Bad, &*self.policy);
        self.counters.grown_bad += 1;
    }

    /// Programs a log's slot. Without an error it is empty afterwards; with one it is as it was.
    pub(crate) fn program(&mut self, log: usize) -> Result<()> {
        let Some(page) = self.logs[log].slot.page else { return Ok(()) };
        let block = self.g.block_of(page);
        let slot = &mut self.logs[log].slot;
        let records = slot.records.iter().map(|p| Record {
            lpn: p.lpn,
            size: p.size,
            compressed: p.compressed,
            ratio: p.ratio,
        });
        let header = (Kind::Data, log as u8, slot.tail, self.seq + 1, self.blocks.get(block).erases);
        let mut content = None;
        if C::CONTENT {
            slot.data[slot.used as usize..].fill(0);
            let sum = crc32fast::hash(&slot.data);
            let damaged = slot.records.iter().any(|page| page.damaged);
            content = Some(if damaged { !sum } else { sum });
        }
        spare::write(&mut self.spare_buf, header, records, (0, content));
        match self.nand.program(page, &slot.data, &self.spare_buf) {
            Ok(()) => {}
            Err(NandError::Failed(_)) => {
                let slot = core::mem::take(slot);
                return self.replace(log, slot);
            }
            Err(e) => return Err(e.into()),
        }
        slot.clear();
        let log_of = &mut self.logs[log];
        log_of.ending = log_of.beginning.take();
        self.seq += 1;
        self.since_checkpoint += 1;
        *if log == PACKED_MOVED || self.victim.is_some() {
            &mut self.counters.programs.collected
        } else {
            &mut self.counters.programs.host
        } += 1;
        let b = self.blocks.get_mut(block);
        b.written = (page - block * self.g.pages_per_block + 1) as u16;
        if u32::from(b.written) == self.g.pages_per_block {
            self.seal(log, block);
        }
        Ok(())
    }

    /// A block of a log takes nothing more.
    fn seal(&mut self, log: usize, block: u32) {
        self.logs[log].open.iter_mut().filter(|open| **open == Some(block)).for_each(|open| *open = None);
        self.blocks.set_state(block, State::Full, &*self.policy);
    }

    /// The block of a slot failed: what the slot holds goes elsewhere, and so will what the block holds.
    fn replace(&mut self, log: usize, mut slot: Slot) -> Result<()> {
        let Some(page) = slot.page else { return Ok(()) };
        let block = self.g.block_of(page);
        self.salvage_born = self.salvage_born.min(slot.born);
        self.seal(log, block);
        self.blocks.set_state(block, State::Retiring, &*self.policy);
        self.retiring.push(block);
        let halves = [self.logs[log].ending.take(), self.logs[log].beginning.take()];
        let beginning = halves[1].as_ref().map(|whole| whole.page.lpn);
        for (index, page) in slot.records.iter().enumerate() {
            if page.lpn != NOBODY && Some(page.lpn) != beginning {
                self.salvage.push(Whole { page: *page, bytes: Vec::from(slot.bytes(index)) });
            }
        }
        for whole in halves.into_iter().flatten() {
            // In the meantime it may be elsewhere.
            let entry = self.paged.entry(&mut self.nand, whole.page.lpn)?;
            if entry.is_some_and(|e| e.across && (e.page == page || e.page + 1 == page)) {
                self.salvage.push(whole);
            }
        }
        slot.clear();
        self.logs[log].slot = slot;
        while let Some(whole) = self.salvage.last().cloned() {
            self.append(log, whole.page, &whole.bytes, false, None)?;
            self.salvage.retain(|other| other.page.lpn != whole.page.lpn);
        }
        self.salvage_born = NEVER;
        Ok(())
    }

    /// A place holds something valid.
    pub(crate) fn hold(&mut self, entry: &Entry) -> Result<()> {
        self.account(entry, true)
    }

    /// A place holds nothing valid any more. Returns since when it waited in a slot; [`NEVER`] where it is on flash.
    pub(crate) fn release(&mut self, entry: &Entry) -> Result<u64> {
        let block = self.g.block_of(entry.page);
        let mut waits = NEVER;
        // Slots are of blocks that are being written.
        if self.blocks.get(block).state == State::Open {
            waits = self.logs.iter_mut().map(|log| log.forget(entry)).min().unwrap_or(NEVER);
        }
        self.blocks.get_mut(block).touched = self.stamp;
        self.account(entry, false)?;
        Ok(waits)
    }

    fn account(&mut self, entry: &Entry, up: bool) -> Result<()> {
        let block = self.g.block_of(entry.page);
        let bytes = self.policy.occupies(entry.size, entry.ratio, entry.compressed, &self.g);
        let (plain, ratio) = if entry.compressed { (0, 0) } else { (1, u32::from(entry.ratio)) };
        let b = self.blocks.get_mut(block);
        let changed = if up {
            Some((b.occupied + bytes, b.plain + plain, b.ratios + ratio))
        } else {
            b.occupied
                .checked_sub(bytes)
                .zip(b.plain.checked_sub(plain))
                .zip(b.ratios.checked_sub(ratio))
                .map(|((occupied, plain), ratios)| (occupied, plain, ratios))
        };
        let Some(changed) = changed else {
            return Err(FtlError::Corrupt("what is valid in a block", entry.page));
        };
        (b.occupied, b.plain, b.ratios) = changed;
        self.count_page(block, entry.page, up)?;
        if entry.across {
            self.count_page(block, entry.page + 1, up)?;
        }
        self.blocks.rescore(block, &*self.policy);
        Ok(())
    }

    /// A flash page of the block holds one record more that is valid, or one less.
    fn count_page(&mut self, block: u32, page: u32, up: bool) -> Result<()> {
        let count = self.paged.change_count(&mut self.nand, page, up)?;
        let b = self.blocks.get_mut(block);
        match (up, count) {
            (true, 1) => b.live += 1,
            // The table of blocks may be damaged.
            (false, 0) => b.live = b.live.saturating_sub(1),
            _ => {}
        }
        Ok(())
    }

    /// Programs what waits for the host, however little it is.
    pub(crate) fn settle_host(&mut self) -> Result<()> {
        (0..self.logs.len()).filter(|log| *log != PACKED_MOVED).try_for_each(|log| self.settle_log(log))
    }

    /// Programs everything that waits.
    pub(crate) fn settle_all(&mut self) -> Result<()> {
        (0..self.logs.len()).try_for_each(|log| self.settle_log(log))
    }

    pub(crate) fn settle_log(&mut self, log: usize) -> Result<()> {
        // Where the block fails what the slot held waits in the next one.
        while self.logs[log].slot.page.is_some() {
            self.counters.padded += 1;
            self.program(log)?;
        }
        Ok(())
    }

    /// Since when the oldest change waits that is not on flash.
    pub(crate) fn oldest_pending(&self) -> u64 {
        let slots = self.logs.iter().map(|log| log.slot.born).min().unwrap_or(NEVER);
        slots.min(self.trims_born).min(self.salvage_born)
    }

    /// The log that holds compressed pages of the host, or of collection.
    pub(crate) fn packed_log(moved: bool) -> usize {
        if moved { PACKED_MOVED } else { PACKED }
    }
}
