//! Collection: blocks are emptied, erased and used again; before a write where it must be, and while the device is idle.
//!
//! A block is collected page by page, so that idle collection stops when a request comes. Emptied blocks are *drained*: they
//! are erased once everything that replaced their content is on flash.

use crate::blocks::State;
use crate::entry::Entry;
use crate::error::{FtlError, Result};
use crate::ftl::{Ftl, PLAIN, reserve};
use crate::logs::Pending;
use crate::nand::{Codec, Nand};
use crate::policy::{Collect, Hint};
use crate::spare::{NOBODY, Record};
use crate::{PAGE, WHOLE};

/// Blocks collected for one write without a gain, before the choice is made by pages instead of by score.
const PATIENCE: u32 = 4;
/// Erases between two looks at the spread of wear.
const LEVEL_EVERY: u32 = 64;
/// Score in 256ths of a full block above which idle collection leaves a block alone.
const IDLE_SCORE_MAX: u16 = 240;

impl<N: Nand, C: Codec> Ftl<N, C> {
    /// Collects until a write has all the free blocks that it can need.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        let low = reserve(&self.g, &*self.policy);
        if self.blocks.free_count() > low && self.retiring.is_empty() {
            return Ok(());
        }
        let limit = 4 * self.g.blocks;
        for tried in 0..limit {
            let wanted = (low + 1).saturating_sub(self.blocks.free_count());
            self.release_drained(tried >= PATIENCE, wanted)?;
            if self.blocks.free_count() > low && self.retiring.is_empty() {
                return Ok(());
            }
            if self.victim.is_none() && !self.choose_victim(tried >= PATIENCE) {
                break;
            }
            self.counters.collections_waited += 1;
            while self.victim.is_some() {
                self.collect_step(tried >= PATIENCE)?;
            }
        }
        self.release_drained(true, u32::MAX)?;
        if self.blocks.free_count() > low / 2 { Ok(()) } else { Err(FtlError::WornOut) }
    }

    /// Collects while the controller's clock is before `until` and there is something to gain; how often the caller looks
    /// is up to the granularity of a page. Returns whether anything was done.
    ///
    /// # Errors
    /// The medium's.
    pub fn idle(&mut self, until: u64) -> Result<bool> {
        let wanted = reserve(&self.g, &*self.policy) + self.config.idle_blocks;
        let mut worked = false;
        while self.nand.now() < until && self.idle_step(wanted)? {
            worked = true;
        }
        Ok(worked)
    }

    /// The least piece of idle work: an erase, a page moved, or a page of the map. `false`: there is nothing to do.
    fn idle_step(&mut self, wanted: u32) -> Result<bool> {
        if self.victim.is_none() {
            if self.release_drained(false, 1)? {
                return Ok(true);
            }
            // What is drained will be free.
            let coming = self.blocks.free_count() as usize + self.drained.len();
            let gain = self.blocks.cheapest().is_some_and(|(_, score)| score <= IDLE_SCORE_MAX);
            if self.retiring.is_empty() && (coming >= wanted as usize || !gain) {
                return self.idle_checkpoint();
            }
            self.mark_in_use()?;
            if !self.choose_victim(false) {
                return Ok(false);
            }
            self.counters.collections_idle += 1;
        }
        self.collect_step(false)?;
        Ok(true)
    }

    /// Chooses what is collected next. `by_pages`: whatever frees most flash pages, whether or not the policy likes it.
    fn choose_victim(&mut self, by_pages: bool) -> bool {
        let block = match self.retiring.pop() {
            Some(block) => Some(block),
            None => match self.unlevel() {
                Some(block) => Some(block),
                None if by_pages => self.blocks.emptiest(),
                None => self.blocks.cheapest().map(|(block, _)| block),
            },
        };
        let Some(block) = block else { return false };
        let state = self.blocks.get(block).state;
        if state != State::Retiring {
            self.blocks.set_state(block, State::Victim, &*self.policy);
        }
        self.victim = Some((block, 0));
        true
    }

    /// A block of cold data whose wear is far below the others': its content moves, so that it is written again.
    fn unlevel(&mut self) -> Option<u32> {
        if self.config.level_spread == 0 || self.since_level < LEVEL_EVERY {
            return None;
        }
        self.since_level = 0;
        let (erases, block) = self.blocks.least_worn_full()?;
        let far = self.blocks.most_erases.saturating_sub(erases) > self.config.level_spread;
        self.counters.levelled += u64::from(far);
        far.then_some(block)
    }

    /// Moves one page of the victim that holds something valid, or ends with it.
    fn collect_step(&mut self, squeeze: bool) -> Result<()> {
        let Some((block, page)) = self.victim else { return Ok(()) };
        let begun = self.nand.now();
        let first = self.g.first_page(block);
        let end = first + u32::from(self.blocks.get(block).written);
        // Where nothing is left the counts need not be looked at.
        let left = self.blocks.get(block).live > 0;
        let next = if left { self.paged.next_live(&mut self.nand, first + page, end)? } else { None };
        if let Some(at) = next {
            self.move_page(at, squeeze)?;
            self.counters.move_ns += self.nand.now() - begun;
            self.victim = Some((block, at - first + 1));
            return Ok(());
        }
        self.victim = None;
        if self.blocks.get(block).occupied > 0 {
            return Err(FtlError::Corrupt(
                "a collected block holds what no page names",
                self.g.first_page(block),
            ));
        }
        if self.blocks.get(block).state == State::Retiring {
            self.write_trims()?;
            self.settle_all()?;
            self.retire(block);
            return Ok(());
        }
        self.blocks.set_state(block, State::Drained, &*self.policy);
        self.drained.push(block);
        Ok(())
    }

    /// Erases drained blocks whose content is replaced on flash, so many at most; `force` sees to it that all are. Returns whether there were
    /// any.
    pub(crate) fn release_drained(&mut self, force: bool, most: u32) -> Result<bool> {
        if self.drained.is_empty() || most == 0 {
            return Ok(false);
        }
        if force {
            self.write_trims()?;
            self.settle_all()?;
        }
        let pending = self.oldest_pending();
        let (mut at, mut released) = (0, 0);
        while at < self.drained.len() && released < most {
            let block = self.drained[at];
            if self.blocks.get(block).touched >= pending {
                at += 1;
                continue;
            }
            self.drained.swap_remove(at);
            self.blocks.get_mut(block).clean = false;
            self.blocks.set_state(block, State::Free, &*self.policy);
            self.erase(block)?;
            released += 1;
        }
        Ok(released > 0)
    }

    /// Moves everything valid of a flash page.
    fn move_page(&mut self, page: u32, squeeze: bool) -> Result<()> {
        self.cached = None;
        self.load(page, false)?;
        let records = core::mem::take(&mut self.spare.records);
        let moved = self.move_records(page, &records, squeeze);
        self.spare.records = records;
        self.cached = None;
        moved
    }

    fn move_records(&mut self, page: u32, records: &[Record], squeeze: bool) -> Result<()> {
        let mut from = usize::from(self.spare.tail);
        // Where as many records are valid as are there, the map need not be asked which.
        let there = records.iter().filter(|r| r.lpn != NOBODY).count();
        let count = usize::from(self.paged.count(&mut self.nand, page)?);
        let all_valid = from == 0 && count == there;
        for (index, record) in (0..=u8::MAX).zip(records) {
            let place = from;
            from += usize::from(record.size);
            if record.lpn == NOBODY || record.lpn >= self.config.logical_pages {
                continue;
            }
            let entry = Entry {
                page,
                index,
                size: record.size,
                ratio: record.ratio.min(WHOLE),
                across: from > self.g.page_bytes as usize,
                compressed: record.compressed,
            };
            if !all_valid || cfg!(debug_assertions) {
                let mapped = self.paged.entry(&mut self.nand, record.lpn)?;
                let is_valid = mapped.is_some_and(|e| e.page == page && e.index == index);
                debug_assert!(!all_valid || mapped == Some(entry), "{mapped:?} is not {entry:?}");
                if !is_valid {
                    continue;
                }
            }
            self.counters.moved += 1;
            let mut packed = core::mem::take(&mut self.plain_buf);
            let moved = self.take(&entry, place, &mut packed).and_then(|intact| match intact {
                true => self.move_record(record.lpn, &entry, &packed, squeeze),
                false => self.move_damaged(record.lpn, &entry, &packed),
            });
            self.plain_buf = packed;
            moved?;
        }
        Ok(())
    }

    /// Copies the stored bytes of a record that begins at this byte of `page_buf`. Returns whether they are what was programmed.
    fn take(&mut self, entry: &Entry, from: usize, out: &mut [u8]) -> Result<bool> {
        let size = usize::from(entry.size).min(out.len());
        let here = size.min(self.page_buf.len().saturating_sub(from));
        if here > 0 {
            out[..here].copy_from_slice(&self.page_buf[from..from + here]);
        }
        let mut intact = !self.damaged;
        if entry.across {
            intact &= self.load_next(entry.page + 1, false)?;
            out[here..size].copy_from_slice(&self.next_buf[..size - here]);
        }
        Ok(!C::CONTENT || intact)
    }

    /// Moves bytes that are not what was programmed to a flash page of their own, whose checksum does not fit either: whoever reads them gets
    /// an error as before, and nothing else becomes unreadable with them.
    #[cold]
    fn move_damaged(&mut self, lpn: u32, entry: &Entry, stored: &[u8]) -> Result<()> {
        let Entry { size, ratio, compressed, .. } = *entry;
        let plain = PLAIN + usize::from(self.policy.group(ratio, Hint::Warm, true));
        let log = if compressed { Self::packed_log(true) } else { plain };
        self.settle_log(log)?;
        let bytes = stored.get(..usize::from(size)).unwrap_or_default();
        let page = Pending { lpn, size, ratio, compressed, damaged: true };
        self.append(log, page, bytes, false, Some(*entry))?;
        self.settle_log(log)
    }

    fn move_record(&mut self, lpn: u32, entry: &Entry, stored: &[u8], squeeze: bool) -> Result<()> {
        let Entry { size, ratio, compressed, .. } = *entry;
        let action = self.policy.collect(ratio, compressed);
        if compressed {
            let across = squeeze || action == Collect::PackAcross;
            let bytes = stored.get(..usize::from(size)).unwrap_or_default();
            let page = Pending { lpn, size, ratio, compressed, damaged: false };
            return self.append(Self::packed_log(true), page, bytes, across, Some(*entry));
        }
        let mut ratio = ratio;
        if action != Collect::Keep {
            self.counters.compressed_collected += 1;
            if let Some(size) = self.compress(lpn, stored) {
                let packed = core::mem::take(&mut self.packed_buf);
                let bytes = packed.get(..usize::from(size)).unwrap_or_default();
                let page = Pending { lpn, size, ratio, compressed: true, damaged: false };
                let across = squeeze || action == Collect::PackAcross;
                let done = self.append(Self::packed_log(true), page, bytes, across, Some(*entry));
                self.packed_buf = packed;
                return done;
            }
            // It is not tried again.
            ratio = WHOLE;
        }
        let log = PLAIN + usize::from(self.policy.group(ratio, Hint::Warm, true));
        let page = Pending { lpn, size: PAGE as u16, ratio, compressed: false, damaged: false };
        self.append(log, page, stored, false, Some(*entry))
    }
}
