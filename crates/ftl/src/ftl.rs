//! The layer: requests of the host, each from beginning to end.
//!
//! Invariants:
//! - A map entry names a place on flash, or one that is reserved for a slot whose bytes are in memory.
//! - A block is erased only when everything that replaced its content is on flash (`FLASH.md`, recovery), so power loss at any
//!   operation finds the newest version that was acknowledged as durable, or a newer one.
//! - There are always as many free blocks as collection can need; [`Ftl::write`] collects before it places a page.

use crate::blocks::{Blocks, State};
use crate::counters::Counters;
use crate::entry::Entry;
use crate::error::{FtlError, Result};
use crate::logs::{Log, NEVER, Pending, Whole};
use crate::meta::MetaLog;
use crate::nand::{Codec, Geometry, Nand, Work};
use crate::paged::Paged;
pub use crate::policy::Hint;
use crate::policy::Policy;
use crate::spare::{Kind, NOBODY, Spare, records_max};
use crate::{PAGE, WHOLE};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// The log of pages compressed for the host.
pub(crate) const PACKED: usize = 0;
/// The log of compressed pages that collection moves.
pub(crate) const PACKED_MOVED: usize = 1;
/// The first log of uncompressed pages.
pub(crate) const PLAIN: usize = 2;

/// How a medium is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Logical pages the host sees.
    pub logical_pages: u32,
    /// Flash pages programmed between two checkpoints of the map, which bounds what recovery reads; 0: only when asked.
    pub checkpoint_every: u64,
    /// Largest difference of erase counts before a block of cold data is moved; 0: never.
    pub level_spread: u32,
    /// The write buffer survives power loss, so a flush need not program it.
    pub capacitor: bool,
    /// Free blocks beyond what a write needs that idle collection provides.
    pub idle_blocks: u32,
}

impl Config {
    /// Blocks a medium of this geometry needs for the map.
    pub fn map_blocks(&self, g: &Geometry) -> u32 {
        crate::meta::blocks_for(g, self.logical_pages)
    }

    /// Blocks for data that a medium needs at least for its logical pages, with this policy.
    pub fn data_blocks_min(&self, g: &Geometry, policy: &dyn Policy) -> u32 {
        let bytes = u64::from(self.logical_pages) * PAGE as u64;
        bytes.div_ceil(u64::from(g.block_bytes())) as u32 + reserve(g, policy) + 4
    }
}

/// Blocks that are free before a write begins: every log may need one for each unit, and collection some.
pub(crate) fn reserve(g: &Geometry, policy: &dyn Policy) -> u32 {
    let logs = u32::from(policy.groups()) + PLAIN as u32;
    logs * ways(g) + 3
}

/// Units that a log writes in turn: few on a small device.
fn ways(g: &Geometry) -> u32 {
    g.units.min(g.blocks / 64).max(1)
}

/// The bytes of a flash page are not what was programmed.
fn damage(page: u32) -> FtlError {
    FtlError::Corrupt("bytes that do not fit their checksum", page)
}

/// What a block is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockUse {
    /// The map.
    Map,
    /// Unusable.
    Bad,
    /// Nothing.
    Free,
    /// It is being written.
    Open,
    /// Data.
    Full,
}

/// A block, as it is seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockInfo {
    /// What it is used for.
    pub usage: BlockUse,
    /// Times it was erased.
    pub erases: u32,
    /// Bytes that collecting it would move.
    pub valid_bytes: u32,
    /// Pages written.
    pub written: u16,
    /// Mean predicted ratio of its valid uncompressed pages in units of 1 / [`WHOLE`]; 200 where there are none.
    pub ratio: u8,
}

/// A flash translation layer. See the crate.
pub struct Ftl<N: Nand, C: Codec> {
    pub(crate) nand: N,
    pub(crate) codec: C,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) config: Config,
    pub(crate) g: Geometry,
    pub(crate) records_max: usize,
    pub(crate) blocks: Blocks,
    pub(crate) paged: Paged,
    pub(crate) logs: Vec<Log>,
    pub(crate) meta: MetaLog,
    /// Sequence number of the last page programmed.
    pub(crate) seq: u64,
    /// The clock of records: one tick for each that is placed or dropped.
    pub(crate) stamp: u64,
    /// Trimmed ranges that flash does not know of, and since when.
    pub(crate) trims: Vec<(u32, u32)>,
    pub(crate) trims_born: u64,
    pub(crate) drained: Vec<u32>,
    pub(crate) retiring: Vec<u32>,
    pub(crate) victim: Option<(u32, u32)>,
    /// What a failed program left without a place.
    pub(crate) salvage: Vec<Whole>,
    /// Since when any of it waits.
    pub(crate) salvage_born: u64,
    pub(crate) counters: Counters,
    pub(crate) since_checkpoint: u64,
    pub(crate) since_level: u32,
    /// The medium says that it is in use.
    pub(crate) marked: bool,
    /// The flash page in `page_buf`.
    pub(crate) cached: Option<u32>,
    /// What is in `page_buf` is not what was programmed.
    pub(crate) damaged: bool,
    pub(crate) page_buf: Vec<u8>,
    pub(crate) next_buf: Vec<u8>,
    pub(crate) packed_buf: Vec<u8>,
    pub(crate) plain_buf: Vec<u8>,
    pub(crate) spare_buf: Vec<u8>,
    pub(crate) spare: Spare,
}

impl<N: Nand, C: Codec> Ftl<N, C> {
    pub(crate) fn empty(nand: N, codec: C, policy: Box<dyn Policy>, config: Config) -> Ftl<N, C> {
        let g = nand.geometry();
        let logs = PLAIN + usize::from(policy.groups());
        let page_buf = if C::CONTENT { vec![0; g.page_bytes as usize] } else { Vec::new() };
        let plain_buf = if C::CONTENT { vec![0; PAGE] } else { Vec::new() };
        // Collected pages may lie across two flash pages: of one block, as only one is open for them.
        let ways = |log| if log == PACKED_MOVED { 1 } else { ways(&g) as usize };
        Ftl {
            records_max: records_max(g.spare_bytes),
            blocks: Blocks::new(&g),
            paged: Paged::new(&g, config.logical_pages),
            logs: (0..logs).map(|log| Log::new(ways(log), C::CONTENT, &g)).collect(),
            meta: MetaLog::new(crate::meta::blocks_for(&g, config.logical_pages)),
            seq: 0,
            stamp: 1,
            trims: Vec::new(),
            trims_born: NEVER,
            drained: Vec::new(),
            retiring: Vec::new(),
            victim: None,
            salvage: Vec::new(),
            salvage_born: NEVER,
            counters: Counters::default(),
            since_checkpoint: 0,
            since_level: 0,
            marked: false,
            cached: None,
            damaged: false,
            next_buf: page_buf.clone(),
            page_buf,
            packed_buf: plain_buf.clone(),
            plain_buf,
            spare_buf: vec![0; g.spare_bytes as usize],
            spare: Spare::new(Kind::Data, 0, 0),
            nand,
            codec,
            policy,
            config,
            g,
        }
    }

    /// Writes neighbouring logical pages, one request of the host. Each of `pages` has 4096 bytes, or none where the codec has
    /// no content. When it returns without an error the pages are on flash or in the write buffer; the controller has waited
    /// for what it programmed.
    ///
    /// # Errors
    /// Beyond the end; the medium's; [`FtlError::WornOut`].
    pub fn write(&mut self, lpn: u32, pages: &[&[u8]], hint: Hint) -> Result<()> {
        self.check_range(lpn, pages.len() as u64)?;
        self.mark_in_use()?;
        let threshold = self.policy.threshold(pages.len() as u32);
        for (lpn, page) in (lpn..).zip(pages) {
            self.make_room()?;
            self.write_page(lpn, page, threshold, hint)?;
        }
        self.nand.settle();
        if self.config.checkpoint_every > 0 && self.since_checkpoint >= self.config.checkpoint_every {
            self.checkpoint(false)?;
        }
        Ok(())
    }

    fn write_page(&mut self, lpn: u32, page: &[u8], threshold: Option<u8>, hint: Hint) -> Result<()> {
        self.counters.host_writes += 1;
        self.counters.host_hints[hint as usize] += 1;
        let mut ratio = WHOLE;
        if self.policy.predicts() {
            ratio = self.codec.predict(lpn, page).min(WHOLE);
            if !self.policy.is_free() {
                self.nand.spend(Work::Predict);
            }
        }
        if threshold.is_some_and(|most| ratio <= most) {
            self.counters.compressed_host += 1;
            if let Some(size) = self.compress(lpn, page) {
                self.counters.compressed_bytes += u64::from(size);
                let packed = core::mem::take(&mut self.packed_buf);
                let bytes = packed.get(..usize::from(size)).unwrap_or_default();
                let page = Pending { lpn, size, ratio, compressed: true, damaged: false };
                let done = self.append(PACKED, page, bytes, false, None);
                self.packed_buf = packed;
                return done;
            }
            self.counters.compressed_vain += 1;
            ratio = WHOLE;
        }
        let log = PLAIN + usize::from(self.policy.group(ratio, hint, false));
        let plain = Pending { lpn, size: PAGE as u16, ratio, compressed: false, damaged: false };
        self.append(log, plain, page, false, None)
    }

    /// Compresses a page into `packed_buf`, on the controller's time.
    pub(crate) fn compress(&mut self, lpn: u32, page: &[u8]) -> Option<u16> {
        if !self.policy.is_free() {
            self.nand.spend(Work::Compress);
        }
        let size = self.codec.compress(lpn, page, &mut self.packed_buf)?;
        (1..PAGE).contains(&size).then_some(size as u16)
    }

    /// Reads neighbouring logical pages, one request of the host; what was never written or was trimmed reads as zeros.
    ///
    /// # Errors
    /// Beyond the end; the medium's; [`FtlError::Corrupt`].
    pub fn read(&mut self, lpn: u32, pages: &mut [&mut [u8]]) -> Result<()> {
        self.check_range(lpn, pages.len() as u64)?;
        self.cached = None;
        for (lpn, out) in (lpn..).zip(pages) {
            self.counters.host_reads += 1;
            match self.paged.entry(&mut self.nand, lpn)? {
                None => out.fill(0),
                Some(entry) => self.read_page(lpn, entry, out)?,
            }
        }
        self.cached = None;
        self.nand.settle();
        Ok(())
    }

    fn read_page(&mut self, lpn: u32, entry: Entry, out: &mut [u8]) -> Result<()> {
        let packed = core::mem::take(&mut self.packed_buf);
        let done = self.read_with(lpn, entry, out, packed);
        let (packed, done) = match done {
            Ok(packed) => (packed, Ok(())),
            Err((packed, e)) => (packed, Err(e)),
        };
        self.packed_buf = packed;
        done
    }

    fn read_with(
        &mut self,
        lpn: u32,
        entry: Entry,
        out: &mut [u8],
        mut packed: Vec<u8>,
    ) -> core::result::Result<Vec<u8>, (Vec<u8>, FtlError)> {
        let size = usize::from(entry.size).min(packed.len());
        let place = if entry.compressed { packed.get_mut(..size).unwrap_or_default() } else { &mut *out };
        if let Err(e) = self.fetch(lpn, &entry, place, true) {
            return Err((packed, e));
        }
        if entry.compressed {
            if !self.policy.is_free() {
                self.nand.spend(Work::Expand);
            }
            if C::CONTENT && self.codec.expand(&packed[..size], out).is_err() {
                return Err((packed, FtlError::Corrupt("a compressed page", entry.page)));
            }
        }
        Ok(packed)
    }

    /// Gets the bytes of a logical page as they are stored.
    pub(crate) fn fetch(&mut self, lpn: u32, entry: &Entry, out: &mut [u8], host: bool) -> Result<()> {
        for log in &self.logs {
            if let Some(whole) = log.ending.as_ref().filter(|w| w.page.lpn == lpn && entry.across) {
                out.copy_from_slice(whole.bytes.get(..out.len()).unwrap_or_default());
                return Ok(());
            }
            if log.slot.page == Some(entry.page) {
                out.copy_from_slice(log.slot.bytes(usize::from(entry.index)));
                return Ok(());
            }
        }
        self.load(entry.page, host)?;
        if C::CONTENT && self.damaged {
            return Err(damage(entry.page));
        }
        let index = usize::from(entry.index);
        if self.spare.records.get(index).is_none_or(|r| r.lpn != lpn || r.size != entry.size) {
            return Err(FtlError::Corrupt("the map names a page that holds something else", entry.page));
        }
        let from = self.spare.offset(index);
        if !C::CONTENT {
            if entry.across {
                self.load_next(entry.page + 1, host)?;
            }
            return Ok(());
        }
        let here = out.len().min(self.page_buf.len().saturating_sub(from));
        out[..here].copy_from_slice(&self.page_buf[from..from + here]);
        if here < out.len() {
            let rest = out.len() - here;
            if !self.load_next(entry.page + 1, host)? {
                return Err(damage(entry.page + 1));
            }
            out[here..].copy_from_slice(&self.next_buf[..rest]);
        }
        Ok(())
    }

    /// Reads a flash page into `page_buf` and `spare`, unless it is there.
    pub(crate) fn load(&mut self, page: u32, host: bool) -> Result<()> {
        if self.cached == Some(page) {
            return Ok(());
        }
        self.cached = None;
        self.nand.read(page, &mut self.page_buf, &mut self.spare_buf)?;
        let read = self.spare.read_into(&self.spare_buf);
        if read.is_none() || self.spare.kind != Kind::Data {
            return Err(FtlError::Corrupt("out-of-band bytes of data", page));
        }
        self.damaged = C::CONTENT && !self.spare.fits(&self.page_buf);
        self.cached = Some(page);
        self.count_read(host);
        Ok(())
    }

    /// Reads a flash page into `next_buf`. Returns whether that is what was programmed.
    pub(crate) fn load_next(&mut self, page: u32, host: bool) -> Result<bool> {
        self.nand.read(page, &mut self.next_buf, &mut self.spare_buf)?;
        self.count_read(host);
        Ok(!C::CONTENT || Spare::read(&self.spare_buf).is_some_and(|spare| spare.fits(&self.next_buf)))
    }

    fn count_read(&mut self, host: bool) {
        *if host { &mut self.counters.reads_host } else { &mut self.counters.reads_collected } += 1;
    }

    /// Forgets neighbouring logical pages, which read as zeros from now on; durable with the next flush.
    ///
    /// # Errors
    /// Beyond the end; the medium's.
    pub fn trim(&mut self, lpn: u32, count: u32) -> Result<()> {
        self.check_range(lpn, u64::from(count))?;
        self.mark_in_use()?;
        let (mut at, end) = (lpn, lpn + count);
        while at < end {
            if let Some(pages) = self.paged.empty_from(at) {
                at = at.saturating_add(pages).min(end);
                continue;
            }
            if let Some(entry) = self.paged.entry(&mut self.nand, at)? {
                self.trim_page(at, &entry)?;
            }
            at += 1;
        }
        Ok(())
    }

    fn trim_page(&mut self, lpn: u32, entry: &Entry) -> Result<()> {
        self.counters.trimmed += 1;
        if self.trims_born == NEVER {
            self.trims_born = self.stamp;
        }
        match self.trims.last_mut() {
            Some((from, count)) if *from + *count == lpn => *count += 1,
            _ => self.trims.push((lpn, 1)),
        }
        self.stamp += 1;
        self.paged.set_entry(&mut self.nand, lpn, None)?;
        let waits = self.release(entry)?;
        self.trims_born = self.trims_born.min(waits);
        if self.trims.len() >= self.trims_max() {
            self.write_trims()?;
        }
        Ok(())
    }

    /// Makes everything acknowledged durable.
    ///
    /// # Errors
    /// The medium's; [`FtlError::WornOut`].
    pub fn flush(&mut self) -> Result<()> {
        self.counters.flushes += 1;
        self.write_trims()?;
        if self.config.capacitor {
            self.retain();
        } else {
            self.settle_host()?;
        }
        self.nand.settle();
        Ok(())
    }

    /// Hands what waits in the write buffer to the memory that survives power loss.
    pub fn retain(&mut self) {
        let image = self.retained();
        self.nand.retain(&image);
    }

    /// Ends the use of the medium: everything is written, and the next opening needs no recovery.
    ///
    /// # Errors
    /// The medium's. What was flushed before is safe all the same.
    pub fn close(mut self) -> core::result::Result<(N, C), (N, FtlError)> {
        // Nothing changed since a clean checkpoint: it stands.
        if self.marked
            && let Err(e) = self.checkpoint(true)
        {
            return Err((self.nand, e));
        }
        self.nand.settle();
        Ok((self.nand, self.codec))
    }

    /// Stops without writing anything, as power loss does.
    pub fn abandon(self) -> (N, C) {
        (self.nand, self.codec)
    }

    /// What was counted since the medium was opened.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The method.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// How the medium is used.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The medium.
    pub fn nand(&self) -> &N {
        &self.nand
    }

    /// The medium. Programming or erasing it behind the layer's back destroys what it holds.
    pub fn nand_mut(&mut self) -> &mut N {
        &mut self.nand
    }

    /// The compressor.
    pub fn codec_mut(&mut self) -> &mut C {
        &mut self.codec
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> u32 {
        self.blocks.free_count()
    }

    /// All blocks, in order.
    pub fn blocks(&self) -> impl Iterator<Item = BlockInfo> {
        self.blocks.iter().map(|(_, b)| BlockInfo {
            usage: match b.state {
                State::Map => BlockUse::Map,
                State::Bad => BlockUse::Bad,
                State::Free => BlockUse::Free,
                State::Open => BlockUse::Open,
                State::Full | State::Victim | State::Drained | State::Retiring => BlockUse::Full,
            },
            erases: b.erases,
            valid_bytes: b.occupied,
            written: b.written,
            ratio: b.ratios.checked_div(u32::from(b.plain)).map_or(WHOLE, |r| r.min(u32::from(WHOLE)) as u8),
        })
    }

    /// Where a logical page is: flash page, index in it, and whether it is compressed.
    ///
    /// # Errors
    /// Beyond the end; the medium's.
    pub fn place(&mut self, lpn: u32) -> Result<Option<(u32, u8, bool)>> {
        self.check_range(lpn, 1)?;
        let entry = self.paged.entry(&mut self.nand, lpn)?;
        Ok(entry.map(|e| (e.page, e.index, e.compressed)))
    }

    /// Memory in use in bytes: 8 for each logical page (the map, of which only what was needed is loaded), 1 for each flash page
    /// (valid records), 56 for each block, and the buffers.
    pub fn ram_bytes(&self) -> usize {
        let buffers = [&self.page_buf, &self.next_buf, &self.packed_buf, &self.plain_buf, &self.spare_buf];
        self.paged.ram_bytes()
            + self.blocks.ram_bytes()
            + self.logs.iter().map(Log::ram_bytes).sum::<usize>()
            + buffers.iter().map(|b| b.len()).sum::<usize>()
            + self.trims.capacity() * size_of::<(u32, u32)>()
    }

    fn check_range(&self, lpn: u32, count: u64) -> Result<()> {
        let end = u64::from(lpn) + count;
        if end > u64::from(self.config.logical_pages) || end > u64::from(NOBODY) {
            return Err(FtlError::OutOfRange);
        }
        Ok(())
    }
}
