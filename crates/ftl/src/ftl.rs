//! The layer: requests of the host, each from beginning to end.

use crate::blocks::BlockInfo;
use crate::check::{Check, Checked};
use crate::compress::Packer;
use crate::config::Config;
use crate::error::{FtlError, Result};
use crate::gc::{Collector, Hands};
use crate::map::Entry;
use crate::nand::{Codec, Nand};
use crate::policy::{Hint, Policy};
use crate::reader::Reader;
use crate::recover::{Image, Recovery};
use crate::stats::Counters;
use crate::store::Store;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A flash translation layer. See the crate.
///
/// 1. When a request has ended without an error, what it wrote is on flash or in the write buffer.
/// 2. There are always as many free blocks as collection can need: [`Ftl::write`] collects before it places a page.
pub struct Ftl<N: Nand, C: Codec> {
    store: Store<N>,
    reader: Reader,
    packer: Packer<C>,
    collector: Collector,
}

impl<N: Nand, C: Codec> Ftl<N, C> {
    fn new(nand: N, codec: C, policy: Box<dyn Policy>, config: Config) -> Ftl<N, C> {
        let store = Store::new(nand, policy, config, C::CONTENT);
        Ftl {
            reader: Reader::new(store.medium.page_buffer()),
            packer: Packer::new(codec, store.medium.logical_buffer()),
            collector: Collector::new(store.medium.logical_buffer()),
            store,
        }
    }

    /// Makes a medium anew: everything on it is lost. Blocks that read as erased are taken to be so: one
    /// whose last erase was cut short must be erased before.
    ///
    /// # Errors
    /// [`FtlError::WornOut`] where the good blocks are too few for the logical pages; the medium's.
    pub fn format(nand: N, codec: C, policy: Box<dyn Policy>, config: Config) -> Result<Ftl<N, C>> {
        let mut ftl = Ftl::new(nand, codec, policy, config);
        Recovery::of(&mut ftl.store).format()?;
        Ok(ftl)
    }

    /// Opens a medium, after a clean end or power loss. `retained`: what [`Nand::retain`] kept last, or what
    /// [`Ftl::retained`] gave at the moment power was lost.
    ///
    /// # Errors
    /// [`FtlError::Unformatted`], [`FtlError::Incompatible`], [`FtlError::Corrupt`]; the medium's. The medium
    /// is given back.
    pub fn open(
        nand: N,
        codec: C,
        policy: Box<dyn Policy>,
        config: Config,
        retained: Option<&[u8]>,
    ) -> core::result::Result<Ftl<N, C>, (N, FtlError)> {
        let mut ftl = Ftl::new(nand, codec, policy, config);
        match Recovery::of(&mut ftl.store).open(retained) {
            Ok(()) => Ok(ftl),
            Err(e) => Err((ftl.store.medium.nand, e)),
        }
    }

    fn split(&mut self) -> (&mut Collector, Hands<'_, N, C>) {
        let Ftl { store, reader, packer, collector } = self;
        (collector, Hands { store, reader, packer })
    }

    /// Writes neighbouring logical pages, one request of the host. Each of `pages` has 4096 bytes, or none
    /// where the codec has no content. When it returns without an error the pages are on flash or in the
    /// write buffer; the controller has waited for what it programmed.
    ///
    /// # Errors
    /// Beyond the end; the medium's; [`FtlError::WornOut`].
    pub fn write(&mut self, lpn: u32, pages: &[&[u8]], hint: Hint) -> Result<()> {
        self.store.check_range(lpn, pages.len() as u64)?;
        self.store.mark_in_use()?;
        let threshold = self.store.medium.policy.threshold(pages.len() as u32);
        for (lpn, page) in (lpn..).zip(pages) {
            let (collector, mut hands) = self.split();
            collector.make_room(&mut hands)?;
            let Hands { store, packer, .. } = hands;
            store.medium.counters.host_writes += 1;
            store.medium.counters.host_hints[hint as usize] += 1;
            let packing = packer.for_host(&mut store.medium, (lpn, page), threshold, hint);
            store.append(&packing, None)?;
        }
        self.store.medium.nand.settle();
        self.store.checkpoint_if_due()
    }

    /// Reads neighbouring logical pages, one request of the host; what was never written or was trimmed reads as zeros.
    ///
    /// # Errors
    /// Beyond the end; the medium's; [`FtlError::Corrupt`].
    pub fn read(&mut self, lpn: u32, pages: &mut [&mut [u8]]) -> Result<()> {
        self.store.check_range(lpn, pages.len() as u64)?;
        self.reader.forget();
        for (lpn, out) in (lpn..).zip(pages) {
            self.store.medium.counters.host_reads += 1;
            match self.store.entry(lpn)? {
                None => out.fill(0),
                Some(entry) => self.read_page(lpn, &entry, out)?,
            }
        }
        self.reader.forget();
        self.store.medium.nand.settle();
        Ok(())
    }

    fn read_page(&mut self, lpn: u32, entry: &Entry, out: &mut [u8]) -> Result<()> {
        let Store { medium, streams, .. } = &mut self.store;
        if !entry.compressed {
            return self.reader.fetch(medium, streams, (lpn, entry), out);
        }
        self.reader.fetch(medium, streams, (lpn, entry), self.packer.stored(entry))?;
        self.packer.expand(medium, entry, out)
    }

    /// Forgets neighbouring logical pages, which read as zeros from now on; durable with the next flush.
    ///
    /// # Errors
    /// Beyond the end; the medium's.
    pub fn trim(&mut self, lpn: u32, count: u32) -> Result<()> {
        self.store.trim(lpn, count)
    }

    /// Makes everything acknowledged durable.
    ///
    /// # Errors
    /// The medium's; [`FtlError::WornOut`].
    pub fn flush(&mut self) -> Result<()> {
        self.store.medium.counters.flushes += 1;
        self.store.write_trims()?;
        if self.store.config.capacitor {
            self.retain();
        } else {
            self.store.settle_host()?;
        }
        self.store.medium.nand.settle();
        Ok(())
    }

    /// Collects while the controller's clock is before `until` and there is something to gain; how often the
    /// caller looks is up to the granularity of a page. Returns whether anything was done.
    ///
    /// # Errors
    /// The medium's.
    pub fn idle(&mut self, until: u64) -> Result<bool> {
        let (collector, mut hands) = self.split();
        collector.idle(&mut hands, until)
    }

    /// Writes down all that changed, so that recovery begins here. `clean`: nothing will follow.
    ///
    /// # Errors
    /// The medium's; [`FtlError::WornOut`] where the map's region has too many bad blocks. The last
    /// checkpoint stands then.
    pub fn checkpoint(&mut self, clean: bool) -> Result<()> {
        self.store.checkpoint(clean)
    }

    /// The host's part of the write buffer, for memory that survives power loss.
    pub fn retained(&self) -> Vec<u8> {
        Image::write(self.store.medium.seq, &self.store.streams, &self.store.trims)
    }

    /// Hands what waits in the write buffer to the memory that survives power loss.
    pub fn retain(&mut self) {
        let image = self.retained();
        self.store.medium.nand.retain(&image);
    }

    /// Ends the use of the medium: everything is written, and the next opening needs no recovery.
    ///
    /// # Errors
    /// The medium's. What was flushed before is safe all the same.
    pub fn close(mut self) -> core::result::Result<(N, C), (N, FtlError)> {
        // Nothing changed since a clean checkpoint: it stands.
        if self.store.marked
            && let Err(e) = self.store.checkpoint(true)
        {
            return Err((self.store.medium.nand, e));
        }
        self.store.medium.nand.settle();
        Ok(self.abandon())
    }

    /// Stops without writing anything, as power loss does.
    pub fn abandon(self) -> (N, C) {
        (self.store.medium.nand, self.packer.codec)
    }

    /// Compares every entry of the map with the out-of-band bytes it names, every count with what the entries
    /// add up to, and, where pages have content, all that is in use with its checksum. Damaged content is
    /// counted and no error, as the layer itself agrees.
    ///
    /// # Errors
    /// [`FtlError::Corrupt`] with the first difference; the medium's.
    pub fn check(&mut self) -> Result<Checked> {
        Check { store: &mut self.store, reader: &mut self.reader }.run()
    }

    /// The counters since the medium was opened.
    pub fn counters(&self) -> &Counters {
        &self.store.medium.counters
    }

    /// The method.
    pub fn policy(&self) -> &dyn Policy {
        &*self.store.medium.policy
    }

    /// The parameters.
    pub fn config(&self) -> &Config {
        &self.store.config
    }

    /// The medium.
    pub fn nand(&self) -> &N {
        &self.store.medium.nand
    }

    /// The medium. Programming or erasing it behind the layer's back destroys what it holds.
    pub fn nand_mut(&mut self) -> &mut N {
        &mut self.store.medium.nand
    }

    /// The compressor.
    pub fn codec_mut(&mut self) -> &mut C {
        &mut self.packer.codec
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> u32 {
        self.store.medium.blocks.free_count()
    }

    /// All blocks, in order.
    pub fn blocks(&self) -> impl Iterator<Item = BlockInfo> {
        self.store.medium.blocks.infos()
    }

    /// Finds a logical page: its flash page, the index in it, and whether it is compressed.
    ///
    /// # Errors
    /// Beyond the end; the medium's.
    pub fn place(&mut self, lpn: u32) -> Result<Option<(u32, u8, bool)>> {
        self.store.check_range(lpn, 1)?;
        Ok(self.store.entry(lpn)?.map(|e| (e.page, e.index, e.compressed)))
    }

    /// Memory in use in bytes: 8 for each logical page (the map, of which only what was needed is loaded), 1
    /// for each flash page (valid records), 56 for each block, and the buffers.
    pub fn ram_bytes(&self) -> usize {
        self.store.ram_bytes()
            + self.reader.ram_bytes()
            + self.packer.ram_bytes()
            + self.collector.ram_bytes()
    }
}
