//! Opening a medium: the last commit, and whatever was written since.
//!
//! After a clean end the tables are all there is to read. Otherwise the first page of every block says whether it was written since
//! the commit; pages written since are taken in the order of their sequence numbers. A page that cannot be read was being
//! programmed when power was lost: nothing that was acknowledged as durable depends on it. Blocks that were being
//! written are not continued, and free ones are erased before they are written, as an erase may have been cut short too.

use crate::WHOLE;
use crate::blocks::State;
use crate::entry::Entry;
use crate::error::{FtlError, Result};
use crate::ftl::{Config, Ftl, PACKED, PACKED_MOVED, PLAIN};
use crate::logs::{Pending, Whole};
use crate::meta::Commit;
use crate::nand::{Codec, Nand, NandError};
use crate::policy::Policy;
use crate::spare::{Kind, NOBODY, Spare};
use crate::{PAGE, spare};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, BinaryHeap};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// First bytes of the image of the write buffer.
const IMAGE: [u8; 4] = *b"WBUF";

/// A page of the map's region: sequence number, page, kind.
type MapPage = (u64, u32, Kind);

/// What the map's region holds.
struct Found {
    commit: Commit,
    commit_page: u32,
    /// Pages behind the commit: sequence number, page, kind.
    after: Vec<MapPage>,
    /// The block of the commit, and its first page that was not written.
    last: (u32, u32),
}

impl<N: Nand, C: Codec> Ftl<N, C> {
    /// Makes a medium anew: everything on it is lost. Blocks that read as erased are taken to be so: one whose last erase was cut short
    /// must be erased before.
    ///
    /// # Errors
    /// [`FtlError::WornOut`] where the good blocks are too few for the logical pages; the medium's.
    pub fn format(nand: N, codec: C, policy: Box<dyn Policy>, config: Config) -> Result<Ftl<N, C>> {
        let mut ftl = Ftl::empty(nand, codec, policy, config);
        let region = ftl.meta.region;
        let mut good = 0;
        for block in 0..ftl.g.blocks {
            if ftl.nand.is_bad(block) {
                ftl.blocks.set_state(block, State::Bad, &*ftl.policy);
                continue;
            }
            if !ftl.nand.is_blank(ftl.g.first_page(block))? {
                ftl.blocks.set_state(block, State::Free, &*ftl.policy);
                if !ftl.erase(block)? {
                    continue;
                }
            }
            // What reads as erased was never used, or the caller has erased it.
            ftl.blocks.get_mut(block).clean = true;
            let state = if block < region { State::Map } else { State::Free };
            ftl.blocks.set_state(block, state, &*ftl.policy);
            if block < region {
                ftl.meta.free.push(block)
            } else {
                good += 1
            };
        }
        if good < config.data_blocks_min(&ftl.g, &*ftl.policy) {
            return Err(FtlError::WornOut);
        }
        ftl.marked = true;
        ftl.checkpoint(false)?;
        Ok(ftl)
    }

    /// Opens a medium, after a clean end or power loss. `retained`: what [`Nand::retain`] kept last, or what
    /// [`Ftl::retained`] gave at the moment power was lost.
    ///
    /// # Errors
    /// [`FtlError::Unformatted`], [`FtlError::Incompatible`], [`FtlError::Corrupt`]; the medium's. The medium is given back.
    pub fn open(
        nand: N,
        codec: C,
        policy: Box<dyn Policy>,
        config: Config,
        retained: Option<&[u8]>,
    ) -> core::result::Result<Ftl<N, C>, (N, FtlError)> {
        let mut ftl = Ftl::empty(nand, codec, policy, config);
        match ftl.recover(retained) {
            Ok(()) => Ok(ftl),
            Err(e) => Err((ftl.nand, e)),
        }
    }

    fn recover(&mut self, retained: Option<&[u8]>) -> Result<()> {
        let region = self.meta.region;
        if u64::from(region) >= u64::from(self.g.blocks) {
            return Err(FtlError::Incompatible("blocks", u64::from(self.g.blocks), u64::from(region)));
        }
        let found = self.find_commit()?;
        self.seq = found.after.iter().map(|(seq, ..)| *seq).max().unwrap_or(0).max(found.commit.seq + 1);
        self.read_tables(&found.commit)?;
        self.check_states(region)?;
        let clean = found.commit.clean && found.after.is_empty();
        if clean && found.last.1 < self.g.pages_per_block {
            let (block, next) = found.last;
            if self.nand.is_blank(self.g.first_page(block) + next)? {
                self.meta.open = Some(found.last);
            }
        }
        self.meta.kept = found.after.iter().map(|(_, page, _)| self.g.block_of(*page)).collect();
        self.find_unneeded(&found.commit, found.commit_page);
        if clean {
            self.resume_logs();
            if found.commit.policy != self.policy_number() {
                self.rebuild()?;
            }
            return Ok(());
        }
        self.marked = true;
        let image = retained.and_then(|bytes| read_image(bytes, C::CONTENT));
        let image = image.filter(|image| image.seq >= found.commit.seq).unwrap_or_default();
        let waits = !image.pages.is_empty() || !image.trims.is_empty();
        let newer = self.replay(&found, if waits { image.seq } else { u64::MAX })?;
        self.rebuild()?;
        self.restore(image, &newer)?;
        self.checkpoint(false)
    }

    /// Puts the image of the write buffer back. Nothing is collected before it is on flash: a copy of an older version would be newer
    /// than the image, should power be lost again.
    fn restore(&mut self, image: Image, newer: &BTreeSet<u32>) -> Result<()> {
        let empty = self.blocks.iter().filter(|(_, b)| b.state == State::Full && b.occupied == 0);
        let empty: Vec<u32> = empty.map(|(block, _)| block).collect();
        for block in empty {
            self.blocks.set_state(block, State::Free, &*self.policy);
        }
        for whole in image.pages {
            let lpn = whole.page.lpn;
            if lpn < self.config.logical_pages && !newer.contains(&lpn) {
                let log = if whole.page.compressed { PACKED } else { PLAIN };
                self.append(log, whole.page, &whole.bytes, false, None)?;
            }
        }
        for (from, count) in image.trims {
            for lpn in from..from.saturating_add(count).min(self.config.logical_pages) {
                if !newer.contains(&lpn) {
                    self.trim(lpn, 1)?;
                }
            }
        }
        Ok(())
    }

    /// Looks for the newest commit that can be read.
    fn find_commit(&mut self) -> Result<Found> {
        let mut blocks = Vec::new();
        for block in 0..self.meta.region {
            if let Some(seq) = self.first_seq(block)? {
                blocks.push((seq, block));
            }
        }
        blocks.sort_unstable_by_key(|found| Reverse(*found));
        let mut after = Vec::new();
        let mut other = None;
        for (_, block) in blocks {
            let (pages, next) = self.scan_block(block)?;
            for (seq, page, kind) in pages.into_iter().rev() {
                if kind != Kind::Commit {
                    after.push((seq, page, kind));
                    continue;
                }
                let mut bytes = vec![0; self.g.page_bytes as usize];
                match self.read_meta(page, Kind::Commit, 0, &mut bytes) {
                    Ok(_) => {}
                    Err(e @ FtlError::Nand(NandError::PowerLost | NandError::Host)) => return Err(e),
                    Err(_) => continue,
                }
                match Commit::read(&bytes, &self.g, self.config.logical_pages, page) {
                    Ok(commit) => {
                        return Ok(Found { commit, commit_page: page, after, last: (block, next) });
                    }
                    Err(e) => other = other.or(Some(e)),
                }
            }
        }
        Err(other.unwrap_or(FtlError::Unformatted))
    }

    /// The out-of-band bytes of a page: `None` where it cannot be read.
    fn spare_of(&mut self, page: u32) -> Result<Option<Spare>> {
        match self.nand.read_spare(page, &mut self.spare_buf) {
            Ok(()) => Ok(Spare::read(&self.spare_buf)),
            Err(NandError::Uncorrectable(_)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// The sequence number of the first page of a block that can be read; `None` where the block is erased or bad.
    fn first_seq(&mut self, block: u32) -> Result<Option<u64>> {
        if self.nand.is_bad(block) {
            return Ok(None);
        }
        for page in self.pages(block) {
            if self.nand.is_blank(page)? {
                break;
            }
            if let Some(spare) = self.spare_of(page)? {
                return Ok(Some(spare.seq));
            }
        }
        Ok(None)
    }

    fn pages(&self, block: u32) -> core::ops::Range<u32> {
        self.g.first_page(block)..self.g.first_page(block) + self.g.pages_per_block
    }

    /// The readable pages of a block of the region: sequence number, page, kind; and how many pages are written.
    fn scan_block(&mut self, block: u32) -> Result<(Vec<MapPage>, u32)> {
        let mut found = Vec::new();
        for page in self.pages(block) {
            if self.nand.is_blank(page)? {
                return Ok((found, page - self.g.first_page(block)));
            }
            if let Some(spare) = self.spare_of(page)? {
                found.push((spare.seq, page, spare.kind));
            }
        }
        Ok((found, self.g.pages_per_block))
    }

    /// Brings the states of the tables together with what the medium says of its blocks.
    fn check_states(&mut self, region: u32) -> Result<()> {
        if !self.paged.places_are_in(self.g.first_page(region)) {
            return Err(FtlError::Corrupt(
                "a chunk of the map outside its region",
                self.g.first_page(region),
            ));
        }
        for block in 0..self.g.blocks {
            let state = self.blocks.get(block).state;
            let state = match state {
                _ if self.nand.is_bad(block) => State::Bad,
                State::Victim | State::Drained => State::Full,
                State::Retiring => {
                    self.retiring.push(block);
                    State::Retiring
                }
                other if (other == State::Map) != (block < region) && other != State::Bad => {
                    return Err(FtlError::Corrupt("the state of a block", self.g.first_page(block)));
                }
                other => other,
            };
            self.blocks.set_state(block, state, &*self.policy);
        }
        Ok(())
    }

    /// After a clean end: the logs go on in the blocks that they wrote.
    fn resume_logs(&mut self) {
        for block in 0..self.g.blocks {
            if self.blocks.get(block).state != State::Open {
                continue;
            }
            let log = usize::from(self.blocks.get(block).log);
            let full = u32::from(self.blocks.get(block).written) == self.g.pages_per_block;
            let ways = self.logs.get_mut(log).into_iter().flat_map(|log| log.open.iter_mut());
            match ways.into_iter().find(|way| way.is_none()) {
                Some(way) if !full => *way = Some(block),
                _ => self.blocks.set_state(block, State::Full, &*self.policy),
            }
        }
    }

    /// Takes up everything written since the commit, in order. Returns the pages that changed since the image of the
    /// write buffer was made.
    fn replay(&mut self, found: &Found, image_seq: u64) -> Result<BTreeSet<u32>> {
        let since = found.commit.seq;
        let mut heap = BinaryHeap::new();
        for block in self.meta.region..self.g.blocks {
            if self.nand.is_bad(block) {
                continue;
            }
            let table = (self.blocks.get(block).state, u32::from(self.blocks.get(block).written));
            let first = self.first_seq(block)?;
            let begin = match (first, table) {
                (None, _) => {
                    self.set_written(block, 0);
                    continue;
                }
                (Some(seq), _) if seq > since => 0,
                (_, (State::Open, written)) => written,
                (_, (_, written)) => {
                    self.set_written(block, written);
                    continue;
                }
            };
            if table.0 != State::Retiring {
                // Out of every list: its wear changes below.
                self.blocks.set_state(block, State::Victim, &*self.policy);
            }
            self.set_written(block, begin);
            self.push_next(&mut heap, block, begin)?;
        }
        for (seq, page, kind) in &found.after {
            if *kind == Kind::Trim {
                heap.push(Reverse((*seq, *page)));
            }
        }
        let mut newer = BTreeSet::new();
        while let Some(Reverse((seq, page))) = heap.pop() {
            self.seq = self.seq.max(seq);
            let changed = if self.g.block_of(page) < self.meta.region {
                self.replay_trims(page)?
            } else {
                self.push_next(&mut heap, self.g.block_of(page), page % self.g.pages_per_block + 1)?;
                self.replay_data(page)?
            };
            if seq > image_seq {
                newer.extend(changed);
            }
        }
        Ok(newer)
    }

    fn set_written(&mut self, block: u32, written: u32) {
        self.blocks.get_mut(block).written = written as u16;
        self.blocks.get_mut(block).clean = false;
    }

    /// Puts the next readable page of a block among those to replay, and counts what is written.
    fn push_next(&mut self, heap: &mut BinaryHeap<Reverse<(u64, u32)>>, block: u32, from: u32) -> Result<()> {
        for next in from..self.g.pages_per_block {
            let page = self.g.first_page(block) + next;
            if self.nand.is_blank(page)? {
                break;
            }
            self.set_written(block, next + 1);
            if let Some(spare) = self.spare_of(page)? {
                if spare.kind != Kind::Data {
                    return Err(FtlError::Corrupt("a page of the map among data", page));
                }
                let erases = self.blocks.get(block).erases.max(spare.erases);
                self.blocks.get_mut(block).erases = erases;
                self.blocks.most_erases = self.blocks.most_erases.max(erases);
                heap.push(Reverse((spare.seq, page)));
                break;
            }
        }
        Ok(())
    }

    fn replay_trims(&mut self, page: u32) -> Result<Vec<u32>> {
        let ranges = self.read_trims(page)?;
        let pages: Vec<u32> = ranges.into_iter().flat_map(|(from, count)| from..from + count).collect();
        for lpn in &pages {
            self.paged.set_entry(&mut self.nand, *lpn, None)?;
        }
        Ok(pages)
    }

    fn replay_data(&mut self, page: u32) -> Result<Vec<u32>> {
        let Some(spare) = self.spare_of(page)? else { return Ok(Vec::new()) };
        let mut changed = Vec::new();
        for (index, record) in spare.records.iter().enumerate() {
            let end = spare.offset(index) + usize::from(record.size);
            let over = end.saturating_sub(self.g.page_bytes as usize);
            if record.lpn == NOBODY || record.lpn >= self.config.logical_pages {
                continue;
            }
            if over > 0 && !self.ends_in(page + 1, over)? {
                continue;
            }
            let entry = Entry {
                page,
                index: index as u8,
                size: record.size,
                ratio: record.ratio.min(WHOLE),
                across: over > 0,
                compressed: record.compressed,
            };
            self.paged.set_entry(&mut self.nand, record.lpn, Some(entry))?;
            changed.push(record.lpn);
        }
        Ok(changed)
    }

    /// Whether a page begins with so many bytes of the record before.
    fn ends_in(&mut self, page: u32, bytes: usize) -> Result<bool> {
        if page.is_multiple_of(self.g.pages_per_block) || self.nand.is_blank(page)? {
            return Ok(false);
        }
        Ok(self.spare_of(page)?.is_some_and(|next| usize::from(next.tail) == bytes))
    }

    /// Counts anew what is valid where, from the map, and makes every block that is not in use free.
    fn rebuild(&mut self) -> Result<()> {
        self.paged.clear_counts();
        for block in self.meta.region..self.g.blocks {
            let b = self.blocks.get_mut(block);
            (b.live, b.occupied, b.ratios, b.plain) = (0, 0, 0, 0);
            let state = match b.state {
                State::Bad | State::Retiring => continue,
                State::Open if self.logs.iter().any(|log| log.open.contains(&Some(block))) => continue,
                _ if b.written == 0 => State::Free,
                _ => State::Full,
            };
            self.blocks.set_state(block, state, &*self.policy);
        }
        for lpn in 0..self.config.logical_pages {
            if self.paged.empty_from(lpn).is_some() {
                continue;
            }
            if let Some(entry) = self.paged.entry(&mut self.nand, lpn)? {
                if self.g.block_of(entry.page) < self.meta.region {
                    return Err(FtlError::Corrupt("the map names its own region", entry.page));
                }
                self.hold(&entry)?;
            }
        }
        Ok(())
    }

    /// What waits for the host in the write buffer, for memory that survives power loss.
    pub fn retained(&self) -> Vec<u8> {
        let mut out = Vec::from(IMAGE);
        out.extend(self.seq.to_le_bytes());
        let slots =
            self.logs.iter().enumerate().filter(|(log, _)| *log != PACKED_MOVED).flat_map(|(_, log)| {
                log.slot.records.iter().enumerate().map(|(index, page)| (*page, log.slot.bytes(index)))
            });
        // What a failed program left without a place is newer than what may still be in a slot.
        let all = slots.chain(self.salvage.iter().map(|whole| (whole.page, &whole.bytes[..])));
        // What is damaged is still where it was moved from.
        let all: Vec<_> = all.filter(|(page, _)| page.lpn != NOBODY && !page.damaged).collect();
        out.extend((all.len() as u32).to_le_bytes());
        for (page, bytes) in all {
            out.extend(page.lpn.to_le_bytes());
            out.extend((page.size | if page.compressed { 1 << 15 } else { 0 }).to_le_bytes());
            out.push(page.ratio);
            out.extend(bytes);
        }
        for (from, count) in &self.trims {
            out.extend(from.to_le_bytes());
            out.extend(count.to_le_bytes());
        }
        let sum = crc32fast::hash(&out);
        out.extend(sum.to_le_bytes());
        out
    }
}

/// What an image of the write buffer says: when it was made, pages that waited, and ranges that were trimmed.
#[derive(Default)]
struct Image {
    seq: u64,
    pages: Vec<Whole>,
    trims: Vec<(u32, u32)>,
}

fn read_image(bytes: &[u8], content: bool) -> Option<Image> {
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
    if body.get(..4)? != IMAGE || spare::u32_at(sum, 0) != crc32fast::hash(body) {
        return None;
    }
    let seq = u64::from_le_bytes(body.get(4..12)?.try_into().ok()?);
    let count = spare::u32_at(body.get(12..16)?, 0);
    let mut rest = &body[16..];
    let mut pages = Vec::new();
    for _ in 0..count {
        let (head, after) = rest.split_at_checked(7)?;
        let size = u16::from_le_bytes([head[4], head[5]]);
        let compressed = size & 1 << 15 != 0;
        let size = size & 0x7fff;
        if size == 0 || size > PAGE as u16 || (!compressed && size != PAGE as u16) {
            return None;
        }
        let (bytes, after) = after.split_at_checked(if content { usize::from(size) } else { 0 })?;
        let lpn = spare::u32_at(head, 0);
        let page = Pending { lpn, size, ratio: head[6].min(WHOLE), compressed, damaged: false };
        pages.push(Whole { page, bytes: Vec::from(bytes) });
        rest = after;
    }
    let trims = rest.chunks_exact(8).map(|b| (spare::u32_at(b, 0), spare::u32_at(b, 4))).collect();
    Some(Image { seq, pages, trims })
}
