//! The map on flash: a region of blocks of its own at the beginning of the medium, written as a log.
//!
//! A checkpoint writes changed chunks, then the tables (where each chunk is; every block's state), then a commit page, which
//! counts only if it can be read. Blocks of the region are erased after a commit has made their content superfluous, never before.
//! The region holds three times what a whole checkpoint takes, so that one can always be written beside the last.

use crate::blocks::State;
use crate::error::{FtlError, Result};
use crate::ftl::Ftl;
use crate::logs::NEVER;
use crate::nand::{Codec, Geometry, Nand, NandError};
use crate::paged::{NOWHERE, Paged, chunks_of};
use crate::spare::{Kind, Spare};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// First bytes of a commit page.
pub(crate) const MAGIC: [u8; 7] = *b"MEDFTL\x00";
/// The byte after them: how everything is laid out.
pub const VERSION: u8 = 3;
/// Bytes of a block in the table.
pub const BLOCK_BYTES: usize = 18;
/// Changed chunks of the map with which an idle checkpoint does not wait for fewer.
const FEW_CHUNKS: u64 = 16;
/// Most ranges of trimmed pages that wait.
const TRIMS_MAX: usize = 500;

/// What a commit page says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) seq: u64,
    pub(crate) clean: bool,
    /// Of the policy: another one counts differently.
    pub(crate) policy: u32,
    /// Runs of flash pages that hold the tables.
    pub(crate) tables: Vec<(u32, u32)>,
}

/// Where the map's log is.
pub(crate) struct MetaLog {
    /// Blocks of the region.
    pub(crate) region: u32,
    /// The block written to, and its next page.
    pub(crate) open: Option<(u32, u32)>,
    /// Blocks whose content nobody needs.
    pub(crate) free: Vec<u32>,
    /// Blocks that failed; what they hold counts until the next commit.
    failed: Vec<u32>,
    /// Blocks with pages that were found behind the last commit.
    pub(crate) kept: Vec<u32>,
}

/// Blocks of the region for a medium.
pub(crate) fn blocks_for(g: &Geometry, logical_pages: u32) -> u32 {
    let whole = whole_pages(g, logical_pages);
    (3 * whole).div_ceil(u64::from(g.pages_per_block)) as u32 + 4
}

/// Flash pages of a checkpoint in which everything changed.
fn whole_pages(g: &Geometry, logical_pages: u32) -> u64 {
    let (map, counts) = chunks_of(g, logical_pages);
    (map + counts) as u64 + table_pages(g, map + counts) + 2
}

fn table_pages(g: &Geometry, chunks: usize) -> u64 {
    ((chunks * 4) as u64 + u64::from(g.blocks) * BLOCK_BYTES as u64).div_ceil(u64::from(g.page_bytes))
}

impl MetaLog {
    pub(crate) fn new(region: u32) -> MetaLog {
        MetaLog { region, open: None, free: Vec::new(), failed: Vec::new(), kept: Vec::new() }
    }

    fn pages_left(&self, per_block: u32) -> u64 {
        let open = self.open.map_or(0, |(_, next)| per_block - next);
        self.free.len() as u64 * u64::from(per_block) + u64::from(open)
    }
}

impl Commit {
    fn write(&self, g: &Geometry, logical_pages: u32) -> Vec<u8> {
        let mut out = vec![0; g.page_bytes as usize];
        let mut bytes = Vec::from(MAGIC);
        bytes.push(VERSION);
        for number in [logical_pages, g.page_bytes, g.spare_bytes, g.pages_per_block, g.blocks, self.policy] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.seq.to_le_bytes());
        bytes.extend(u32::from(self.clean).to_le_bytes());
        bytes.extend((self.tables.len() as u32).to_le_bytes());
        for (from, count) in &self.tables {
            bytes.extend(from.to_le_bytes());
            bytes.extend(count.to_le_bytes());
        }
        let end = bytes.len().min(out.len());
        out[..end].copy_from_slice(&bytes[..end]);
        out
    }

    /// Reads a commit page of this medium.
    pub(crate) fn read(bytes: &[u8], g: &Geometry, logical_pages: u32, page: u32) -> Result<Commit> {
        let corrupt = FtlError::Corrupt("a commit page", page);
        let number = |at: usize| bytes.get(at..at + 4).map(|b| crate::spare::u32_at(b, 0));
        if bytes.get(..7) != Some(&MAGIC) {
            return Err(corrupt);
        }
        if bytes[7] != VERSION {
            return Err(FtlError::Incompatible("version", u64::from(bytes[7]), u64::from(VERSION)));
        }
        let fields = [
            ("logical pages", logical_pages),
            ("bytes of a flash page", g.page_bytes),
            ("out-of-band bytes", g.spare_bytes),
            ("pages of a block", g.pages_per_block),
            ("blocks", g.blocks),
        ];
        for (i, (name, wanted)) in fields.into_iter().enumerate() {
            let is = number(8 + 4 * i).ok_or(corrupt)?;
            if is != wanted {
                return Err(FtlError::Incompatible(name, u64::from(is), u64::from(wanted)));
            }
        }
        let seq = u64::from(number(32).ok_or(corrupt)?) | u64::from(number(36).ok_or(corrupt)?) << 32;
        let runs = number(44).ok_or(corrupt)? as usize;
        let mut tables = Vec::new();
        for run in 0..runs.min(bytes.len() / 8) {
            let at = 48 + 8 * run;
            tables.push((number(at).ok_or(corrupt)?, number(at + 4).ok_or(corrupt)?));
        }
        let policy = number(28).ok_or(corrupt)?;
        Ok(Commit { seq, clean: number(40) == Some(1), policy, tables })
    }
}

impl<N: Nand, C: Codec> Ftl<N, C> {
    /// Writes down all that changed, so that recovery begins here. `clean`: nothing will follow.
    ///
    /// # Errors
    /// The medium's; [`FtlError::WornOut`] where the map's region has too many bad blocks. The last checkpoint stands then.
    pub fn checkpoint(&mut self, clean: bool) -> Result<()> {
        self.mark_in_use()?;
        self.settle_all()?;
        self.soil_for_space()?;
        for chunk in 0..self.paged.len() {
            if self.paged.is_dirty(chunk) {
                self.write_chunk(chunk)?;
            }
        }
        let tables = self.write_tables()?;
        let commit = Commit { seq: self.seq, clean, policy: self.policy_number(), tables };
        let bytes = commit.write(&self.g, self.config.logical_pages);
        // A commit without what it names would be the end of the medium.
        self.nand.barrier()?;
        let place = self.write_meta(Kind::Commit, 0, &bytes)?;
        self.nand.settle();
        // Only now: the trims are in the map that counts.
        self.trims.clear();
        self.trims_born = NEVER;
        self.marked = !clean;
        self.since_checkpoint = 0;
        self.counters.checkpoints += 1;
        self.free_region(&commit, place);
        Ok(())
    }

    fn write_chunk(&mut self, chunk: usize) -> Result<()> {
        let bytes = Vec::from(self.paged.bytes(&mut self.nand, chunk)?);
        let place = self.write_meta(Kind::Chunk, chunk as u32, &bytes)?;
        self.paged.written(chunk, place);
        Ok(())
    }

    /// While nothing is wanted: a page of the map, once half of what calls for a checkpoint was programmed, and the checkpoint when few are
    /// left, so that no request waits for all of them. Until then nothing that was written counts. `false`: it is not time.
    pub(crate) fn idle_checkpoint(&mut self) -> Result<bool> {
        let every = self.config.checkpoint_every;
        if every == 0 || self.since_checkpoint < every / 2 {
            return Ok(false);
        }
        self.mark_in_use()?;
        let tables = table_pages(&self.g, self.paged.len());
        let dirty = u64::from(self.paged.dirty_count());
        let whole = whole_pages(&self.g, self.config.logical_pages);
        let has_room = self.meta.pages_left(self.g.pages_per_block) > dirty + tables + 2 + whole;
        match self.paged.first_dirty() {
            Some(chunk) if has_room && dirty > FEW_CHUNKS => self.write_chunk(chunk)?,
            _ => self.checkpoint(false)?,
        }
        Ok(true)
    }

    /// Where the region would have no room for a whole checkpoint after this one, this one becomes whole.
    fn soil_for_space(&mut self) -> Result<()> {
        let tables = table_pages(&self.g, self.paged.len());
        let left = self.meta.pages_left(self.g.pages_per_block);
        let whole = whole_pages(&self.g, self.config.logical_pages);
        if left < u64::from(self.paged.dirty_count()) + tables + 2 + whole {
            for chunk in 0..self.paged.len() {
                if self.paged.places[chunk] != NOWHERE {
                    self.paged.soil(chunk);
                }
            }
        }
        if left < u64::from(self.paged.dirty_count()) + tables + 2 {
            return Err(FtlError::WornOut);
        }
        Ok(())
    }

    pub(crate) fn policy_number(&self) -> u32 {
        crc32fast::hash(self.policy.name().as_bytes())
    }

    fn write_tables(&mut self) -> Result<Vec<(u32, u32)>> {
        let mut bytes = Vec::new();
        for place in &self.paged.places {
            bytes.extend(place.to_le_bytes());
        }
        for (_, b) in self.blocks.iter() {
            bytes.extend(b.erases.to_le_bytes());
            bytes.extend(b.occupied.to_le_bytes());
            bytes.extend(b.ratios.to_le_bytes()[..3].iter());
            bytes.push(b.state as u8 | if b.clean { 8 } else { 0 } | b.log << 4);
            bytes.extend(b.written.to_le_bytes());
            bytes.extend(b.plain.to_le_bytes());
            bytes.extend(b.live.to_le_bytes());
        }
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let page_bytes = self.g.page_bytes as usize;
        for (index, part) in (0..).zip(bytes.chunks(page_bytes)) {
            let mut page = vec![0; page_bytes];
            page[..part.len()].copy_from_slice(part);
            let place = self.write_meta(Kind::Table, index, &page)?;
            match runs.last_mut() {
                Some((from, count)) if *from + *count == place => *count += 1,
                _ => runs.push((place, 1)),
            }
        }
        Ok(runs)
    }

    /// Reads the tables of a checkpoint.
    pub(crate) fn read_tables(&mut self, commit: &Commit) -> Result<()> {
        let wanted = table_pages(&self.g, self.paged.len()) as usize;
        let pages =
            commit.tables.iter().flat_map(|(from, count)| (*from..).take((*count as usize).min(wanted)));
        let pages: Vec<u32> = pages.take(wanted).collect();
        let mut bytes = Vec::new();
        for (index, page) in (0..).zip(&pages) {
            let mut part = vec![0; self.g.page_bytes as usize];
            self.read_meta(*page, Kind::Table, index, &mut part)?;
            bytes.extend(part);
        }
        let at = self.paged.len() * 4;
        if bytes.len() < at + self.g.blocks as usize * BLOCK_BYTES {
            return Err(FtlError::Corrupt(
                "a checkpoint with too few tables",
                commit.tables.first().map_or(0, |t| t.0),
            ));
        }
        for (chunk, place) in bytes[..at].chunks_exact(4).enumerate() {
            let place = crate::spare::u32_at(place, 0);
            if place != NOWHERE && u64::from(place) >= self.g.pages() {
                return Err(FtlError::Corrupt("the place of a chunk of the map", place));
            }
            self.paged.places[chunk] = place;
        }
        for (block, bytes) in (0..self.g.blocks).zip(bytes[at..].chunks_exact(BLOCK_BYTES)) {
            self.read_block(block, bytes)?;
        }
        Ok(())
    }

    fn read_block(&mut self, block: u32, bytes: &[u8]) -> Result<()> {
        let number = |at: usize| crate::spare::u32_at(bytes, at);
        let state = State::from(bytes[11] & 7);
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (written, plain, live) = (short(12), short(14), short(16));
        let sound = u32::from(written) <= self.g.pages_per_block && live <= written;
        let Some(state) = state.filter(|_| sound) else {
            return Err(FtlError::Corrupt("a block in the tables", self.g.first_page(block)));
        };
        let b = self.blocks.get_mut(block);
        (b.erases, b.occupied, b.ratios) = (number(0), number(4), number(8) & 0xff_ffff);
        (b.written, b.plain, b.live) = (written, plain, live);
        (b.clean, b.log) = (bytes[11] & 8 != 0, bytes[11] >> 4);
        self.blocks.most_erases = self.blocks.most_erases.max(number(0));
        self.blocks.set_state(block, state, &*self.policy);
        Ok(())
    }

    /// Reads a page of the map's region that must be of this kind.
    pub(crate) fn read_meta(&mut self, page: u32, kind: Kind, index: u32, out: &mut [u8]) -> Result<Spare> {
        self.nand.read(page, out, &mut self.spare_buf)?;
        let spare =
            Spare::read(&self.spare_buf).ok_or(FtlError::Corrupt("out-of-band bytes of the map", page))?;
        if spare.kind != kind || spare.index != index || !spare.fits(out) {
            return Err(FtlError::Corrupt("a page of the map", page));
        }
        Ok(spare)
    }

    /// Adds a page to the map's log.
    pub(crate) fn write_meta(&mut self, kind: Kind, index: u32, bytes: &[u8]) -> Result<u32> {
        loop {
            let (block, next) = match self.meta.open {
                Some((block, next)) if next < self.g.pages_per_block => (block, next),
                _ => (self.open_meta()?, 0),
            };
            let mut spare = Spare::new(kind, self.seq + 1, self.blocks.get(block).erases);
            (spare.index, spare.content) = (index, Some(crc32fast::hash(bytes)));
            spare.write(&mut self.spare_buf);
            let page = self.g.first_page(block) + next;
            match self.nand.program(page, bytes, &self.spare_buf) {
                Ok(()) => {
                    self.seq += 1;
                    self.counters.programs.map += 1;
                    self.meta.open = Some((block, next + 1));
                    return Ok(page);
                }
                Err(NandError::Failed(_)) => {
                    self.meta.open = None;
                    self.meta.failed.push(block);
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn open_meta(&mut self) -> Result<u32> {
        loop {
            let least = (0..self.meta.free.len()).min_by_key(|i| self.blocks.get(self.meta.free[*i]).erases);
            let Some(at) = least else { return Err(FtlError::WornOut) };
            let block = self.meta.free.swap_remove(at);
            match self.nand.erase(block) {
                Ok(()) => {
                    self.blocks.get_mut(block).erases += 1;
                    self.counters.erases_map += 1;
                    self.meta.open = Some((block, 0));
                    return Ok(block);
                }
                Err(NandError::Failed(_)) => self.retire(block),
                Err(e) => {
                    self.meta.free.push(block);
                    return Err(e.into());
                }
            }
        }
    }

    /// Finds the blocks of the region that this commit does not need.
    pub(crate) fn free_region(&mut self, commit: &Commit, commit_page: u32) {
        self.meta.kept.clear();
        self.find_unneeded(commit, commit_page);
    }

    /// The same, after opening: what was written since the commit is needed until the next one.
    pub(crate) fn find_unneeded(&mut self, commit: &Commit, commit_page: u32) {
        for block in core::mem::take(&mut self.meta.failed) {
            // What it held was written elsewhere, or will be: chunks in it are dirty from here on.
            self.soil_chunks_in(block);
            let holds = |place: u32| place != NOWHERE && self.g.block_of(place) == block;
            let mut tables =
                commit.tables.iter().flat_map(|(from, count)| *from..from.saturating_add(*count));
            if holds(commit_page) || tables.any(holds) || self.paged.places.iter().any(|place| holds(*place))
            {
                self.meta.failed.push(block);
            } else {
                self.retire(block);
            }
        }
        let mut needed = BTreeSet::from([self.g.block_of(commit_page)]);
        let tables = commit.tables.iter().flat_map(|(from, count)| *from..from.saturating_add(*count));
        needed.extend(tables.map(|page| self.g.block_of(page)));
        needed.extend(self.paged.places.iter().filter(|p| **p != NOWHERE).map(|p| self.g.block_of(*p)));
        needed.extend(self.meta.open.map(|(block, _)| block));
        needed.extend(&self.meta.failed);
        needed.extend(&self.meta.kept);
        let unneeded = (0..self.meta.region).filter(|block| !needed.contains(block));
        self.meta.free = unneeded.filter(|block| self.blocks.get(*block).state != State::Bad).collect();
    }

    fn soil_chunks_in(&mut self, block: u32) {
        for chunk in 0..self.paged.len() {
            let place = self.paged.places[chunk];
            if place != NOWHERE && self.g.block_of(place) == block {
                self.paged.soil(chunk);
            }
        }
    }

    /// Before the first change: says on flash that the last checkpoint is not all.
    pub(crate) fn mark_in_use(&mut self) -> Result<()> {
        if !self.marked {
            let page = vec![0; self.g.page_bytes as usize];
            self.write_meta(Kind::Opened, 0, &page)?;
            self.nand.barrier()?;
            self.marked = true;
        }
        Ok(())
    }

    pub(crate) fn trims_max(&self) -> usize {
        TRIMS_MAX.min(self.g.page_bytes as usize / 8 - 1)
    }

    /// A page that was trimmed is written again: flash need not know of the trim. `false`: it does.
    pub(crate) fn untrim(&mut self, lpn: u32) -> bool {
        let Some(at) = self.trims.iter().position(|(from, count)| (*from..*from + *count).contains(&lpn))
        else {
            return false;
        };
        let (from, count) = self.trims.swap_remove(at);
        let halves = [(from, lpn - from), (lpn + 1, from + count - lpn - 1)];
        self.trims.extend(halves.into_iter().filter(|(_, count)| *count > 0));
        true
    }

    /// Writes down which pages were trimmed.
    pub(crate) fn write_trims(&mut self) -> Result<()> {
        if self.trims.is_empty() {
            self.trims_born = NEVER;
            return Ok(());
        }
        let runs = self.trims.clone();
        let room = self.meta.pages_left(self.g.pages_per_block);
        let pages = runs.len().div_ceil(self.trims_max()) as u64;
        if room < whole_pages(&self.g, self.config.logical_pages) + pages {
            return self.checkpoint(false);
        }
        for part in runs.chunks(self.trims_max()) {
            let mut page = vec![0; self.g.page_bytes as usize];
            page[..4].copy_from_slice(&(part.len() as u32).to_le_bytes());
            for ((from, count), at) in part.iter().zip(page[8..].chunks_exact_mut(8)) {
                at[..4].copy_from_slice(&from.to_le_bytes());
                at[4..].copy_from_slice(&count.to_le_bytes());
            }
            self.write_meta(Kind::Trim, 0, &page)?;
        }
        self.trims.clear();
        self.trims_born = NEVER;
        Ok(())
    }

    /// The ranges of a page of trims.
    pub(crate) fn read_trims(&mut self, page: u32) -> Result<Vec<(u32, u32)>> {
        let mut bytes = vec![0; self.g.page_bytes as usize];
        self.read_meta(page, Kind::Trim, 0, &mut bytes)?;
        let count = crate::spare::u32_at(&bytes, 0) as usize;
        let ranges = bytes[8..].chunks_exact(8).take(count);
        let ranges = ranges.map(|b| (crate::spare::u32_at(b, 0), crate::spare::u32_at(b, 4)));
        let logical = u64::from(self.config.logical_pages);
        let sound = ranges.filter(|(from, count)| u64::from(*from) + u64::from(*count) <= logical);
        Ok(sound.collect())
    }
}

impl Paged {
    /// Whether every chunk is where a checkpoint may have put it.
    pub(crate) fn places_are_in(&self, first_data_page: u32) -> bool {
        self.places.iter().all(|place| *place == NOWHERE || *place < first_data_page)
    }
}
