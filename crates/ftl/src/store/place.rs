//! Placing logical pages: slots are filled, programmed, and put elsewhere where a program fails.

use super::Store;
use crate::blocks::State;
use crate::error::{FtlError, Result};
use crate::map::Entry;
use crate::nand::{Nand, NandError};
use crate::oob::{self, Kind, NOBODY, Record};
use crate::streams::{Fit, NEVER, PACKED_MOVED, Packing, Slot, Whole};
use alloc::vec::Vec;

impl<N: Nand> Store<N> {
    /// Puts a logical page into a log: it is mapped to where it will be. `from`: where the caller knows that
    /// it is mapped to now.
    pub(crate) fn append(&mut self, packing: &Packing<'_>, from: Option<Entry>) -> Result<()> {
        let log = packing.log;
        // Where a program fails what it held waits in the next slot, which may be too full as well.
        loop {
            match self.streams.fit(log, packing.page.size) {
                Fit::NoPage => break self.reserve_page(log)?,
                Fit::Whole => break,
                Fit::Beginning if packing.across => return self.append_across(packing, from),
                Fit::Beginning | Fit::Full => self.program(log)?,
            }
        }
        self.put(&Packing { across: false, ..*packing }, from)?;
        self.program_if_full(log)
    }

    fn program_if_full(&mut self, log: usize) -> Result<()> {
        if self.streams.is_full(log) {
            self.program(log)?;
        }
        Ok(())
    }

    /// Adds a record to the slot, as much of it as has room, and maps the page to it.
    fn put(&mut self, packing: &Packing<'_>, known: Option<Entry>) -> Result<()> {
        let entry = self.streams.put(packing, self.map.now())?;
        let since = self.remap(packing.page.lpn, entry, known)?;
        let slot = self.streams.slot_mut(packing.log);
        slot.born = slot.born.min(since);
        Ok(())
    }

    /// Maps a logical page to a new place; the old one holds nothing any more. Where that was not on flash
    /// itself, what it had replaced is needed until the new one is: returns since when.
    fn remap(&mut self, lpn: u32, entry: Entry, known: Option<Entry>) -> Result<u64> {
        match self.map.place(&mut self.medium, lpn, entry, known)? {
            Some(old) => self.release(&old),
            None => {
                let born = self.trims.born();
                Ok(if self.trims.remove(lpn) { born } else { NEVER })
            }
        }
    }

    /// A page that does not fit the slot begins in it and ends in the next flash page of the block.
    fn append_across(&mut self, packing: &Packing<'_>, from: Option<Entry>) -> Result<()> {
        let Packing { log, page, bytes, .. } = *packing;
        let slot = self.streams.slot_mut(log);
        let Some(at) = slot.page else { return Err(FtlError::WornOut) };
        let tail = u32::from(page.size) - (self.medium.g.page_bytes - slot.used);
        self.medium.counters.across += 1;
        self.put(packing, from)?;
        self.streams.log_mut(log).beginning = Some(Whole { page, bytes: bytes.to_vec() });
        self.program(log)?;
        if self.streams.log(log).ending.is_none() {
            // The program failed, and all of the slot went elsewhere.
            return Ok(());
        }
        let born = self.map.now() - 1;
        let slot = self.streams.slot_mut(log);
        (slot.page, slot.used, slot.tail, slot.born) = (Some(at + 1), tail, tail as u16, born);
        if self.medium.content {
            let from = bytes.len() - tail as usize;
            slot.data[..tail as usize].copy_from_slice(&bytes[from..]);
        }
        self.program_if_full(log)
    }

    /// Takes the next flash page of the log for its slot.
    fn reserve_page(&mut self, log: usize) -> Result<()> {
        let (way, open) = self.streams.log_mut(log).next_way();
        let block = match open {
            Some(block) => block,
            None => self.open_block(log, way)?,
        };
        let page = self.medium.g.first_page(block) + u32::from(self.medium.blocks.get(block).written);
        self.streams.slot_mut(log).page = Some(page);
        Ok(())
    }

    fn open_block(&mut self, log: usize, way: usize) -> Result<u32> {
        let most_worn = log == PACKED_MOVED;
        loop {
            if self.medium.blocks.free_count() == 0 {
                self.release_drained(true, 1)?;
            }
            let Some(block) = self.medium.blocks.pick_free(way as u32, most_worn) else {
                return Err(FtlError::WornOut);
            };
            if !self.medium.blocks.get(block).clean && !self.medium.erase(block)? {
                continue;
            }
            self.medium.set_state(block, State::Open);
            let b = self.medium.blocks.get_mut(block);
            (b.log, b.clean) = (log as u8, false);
            self.streams.log_mut(log).open[way] = Some(block);
            return Ok(block);
        }
    }

    /// Programs a log's slot. Without an error it is empty afterwards; with one it is as it was.
    pub(super) fn program(&mut self, log: usize) -> Result<()> {
        let Store { medium, streams, .. } = self;
        let slot = streams.slot_mut(log);
        let Some(page) = slot.page else { return Ok(()) };
        let block = medium.g.block_of(page);
        let header = (Kind::Data, log as u8, slot.tail, medium.seq + 1, medium.blocks.get(block).erases);
        let content = medium.content.then(|| slot.checksum());
        let records = slot.records.iter().map(|p| Record {
            lpn: p.lpn,
            size: p.size,
            compressed: p.compressed,
            ratio: p.ratio,
        });
        match medium.program(page, &slot.data, |out| oob::write(out, header, records, (0, content))) {
            Ok(()) => {}
            Err(NandError::Failed(_)) => {
                let slot = core::mem::take(slot);
                return self.replace(log, slot);
            }
            Err(e) => return Err(e.into()),
        }
        slot.clear();
        let log_of = streams.log_mut(log);
        log_of.ending = log_of.beginning.take();
        self.since_checkpoint += 1;
        let programs = &mut medium.counters.programs;
        if log == PACKED_MOVED || self.collecting {
            programs.collected += 1;
        } else {
            programs.host += 1;
        }
        let b = medium.blocks.get_mut(block);
        b.written = (page - block * medium.g.pages_per_block + 1) as u16;
        if u32::from(b.written) == medium.g.pages_per_block {
            self.seal(log, block);
        }
        Ok(())
    }

    /// A block of a log takes nothing more.
    fn seal(&mut self, log: usize, block: u32) {
        self.streams.log_mut(log).close(block);
        self.medium.set_state(block, State::Full);
    }

    /// The block of a slot failed: what the slot holds goes elsewhere, and so will what the block holds.
    fn replace(&mut self, log: usize, mut slot: Slot) -> Result<()> {
        let Some(page) = slot.page else { return Ok(()) };
        let block = self.medium.g.block_of(page);
        self.streams.salvage_born = self.streams.salvage_born.min(slot.born);
        self.seal(log, block);
        self.medium.set_state(block, State::Retiring);
        self.retiring.push(block);
        let log_of = self.streams.log_mut(log);
        let halves = [log_of.ending.take(), log_of.beginning.take()];
        let beginning = halves[1].as_ref().map(|whole| whole.page.lpn);
        for (index, page) in slot.records.iter().enumerate() {
            if page.lpn != NOBODY && Some(page.lpn) != beginning {
                self.streams.salvage.push(Whole { page: *page, bytes: Vec::from(slot.bytes(index)) });
            }
        }
        for whole in halves.into_iter().flatten() {
            // In the meantime it may be elsewhere.
            let entry = self.map.entry(&mut self.medium, whole.page.lpn)?;
            if entry.is_some_and(|e| e.across && (e.page == page || e.page + 1 == page)) {
                self.streams.salvage.push(whole);
            }
        }
        slot.clear();
        *self.streams.slot_mut(log) = slot;
        while let Some(whole) = self.streams.salvage.last().cloned() {
            self.append(&Packing { log, page: whole.page, bytes: &whole.bytes, across: false }, None)?;
            self.streams.salvage.retain(|other| other.page.lpn != whole.page.lpn);
        }
        self.streams.salvage_born = NEVER;
        Ok(())
    }

    /// A place holds nothing valid any more. Returns since when it waited in a slot; [`NEVER`] where it is on flash.
    pub(super) fn release(&mut self, entry: &Entry) -> Result<u64> {
        let block = self.medium.g.block_of(entry.page);
        // Slots are of blocks that are being written.
        let is_open = self.medium.blocks.get(block).state == State::Open;
        let waits = if is_open { self.streams.forget(entry) } else { NEVER };
        self.map.release(&mut self.medium, entry)?;
        Ok(waits)
    }

    /// Programs what waits for the host, however little it is.
    pub(crate) fn settle_host(&mut self) -> Result<()> {
        (0..self.streams.len()).filter(|log| *log != PACKED_MOVED).try_for_each(|log| self.settle_log(log))
    }

    /// Programs everything that waits.
    pub(crate) fn settle_all(&mut self) -> Result<()> {
        (0..self.streams.len()).try_for_each(|log| self.settle_log(log))
    }

    /// Programs what waits in a log.
    pub(crate) fn settle_log(&mut self, log: usize) -> Result<()> {
        // Where the block fails what the slot held waits in the next one.
        while self.streams.log(log).slot.page.is_some() {
            self.medium.counters.padded += 1;
            self.program(log)?;
        }
        Ok(())
    }
}
