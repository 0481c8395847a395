//! A device as a whole: NAND, translation layer, time, statistics.
//!
//! Requests carry their arrival on the device's clock, in nanoseconds. One is served at a time; the others wait,
//! and latency counts from arrival. Between requests the device collects garbage.

use crate::codecs::{CODECS, Described, PageCodec};
use crate::device_file::{self, Header};
use crate::error::{FlashError, Result};
use crate::nand::{NandModel, factory_states};
use crate::nand_file::Filed;
use crate::profile::Profile;
use crate::stats::Stats;
use medfs_ftl::{
    Codec, Config, Ftl, FtlError, Hint, Lightweight, Nand, NandError, PAGE, Policy, Selective, Separating,
    Uncompressed, Unconditional,
};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names of the methods.
pub const FTLS: [&str; 6] = ["pm", "zftl", "sc", "ldc", "opt", "ldc-hc"];

/// A method by its name, for a device of this profile.
///
/// # Errors
/// No such method.
pub fn policy(name: &str, profile: &Profile) -> Result<Box<dyn Policy>> {
    let costs = profile.costs();
    Ok(match name {
        "pm" => Box::new(Uncompressed),
        "zftl" => Box::new(Unconditional { free: false }),
        "sc" => Box::new(Selective(costs)),
        "ldc" => Box::new(Lightweight(costs)),
        "opt" => Box::new(Unconditional { free: true }),
        "ldc-hc" => Box::new(Separating(Lightweight(costs))),
        _ => {
            let message = format!("no translation layer '{name}': use one of {}", FTLS.join(", "));
            return Err(FlashError::Usage(message));
        }
    })
}

/// Options for a new device.
#[derive(Debug, Clone)]
pub struct DeviceOptions {
    /// The NAND and its controller.
    pub profile: Profile,
    /// Method: one of [`FTLS`].
    pub ftl: String,
    /// Compressor: one of [`CODECS`].
    pub codec: String,
    /// Bytes the host sees; `None`: what the profile says.
    pub capacity: Option<u64>,
    /// Seed of what differs from device to device.
    pub seed: u64,
}

impl DeviceOptions {
    /// A device of this profile: `ldc` with LZO, seed 1.
    pub fn new(profile: Profile) -> DeviceOptions {
        DeviceOptions { profile, ftl: "ldc".into(), codec: "lzo".into(), capacity: None, seed: 1 }
    }

    /// Whether a device can be made so.
    ///
    /// # Errors
    /// No such method or compressor, no such size.
    pub fn check(&self) -> Result<()> {
        self.header(true).map(drop)
    }

    fn header(&self, content: bool) -> Result<Header> {
        let policy = policy(&self.ftl, &self.profile)?;
        if !CODECS.contains(&&self.codec[..]) {
            PageCodec::new(&self.codec)?;
        }
        let capacity = self.capacity.unwrap_or_else(|| self.profile.capacity());
        let pages = capacity / PAGE as u64;
        if pages == 0 || pages >= u64::from(u32::MAX) {
            return Err(FlashError::Usage(format!("a flash device of {capacity} bytes is not possible")));
        }
        let logical_pages = pages as u32;
        let blocks = blocks_for(&self.profile, logical_pages, &*policy, self.seed)?;
        Ok(Header {
            seed: self.seed,
            blocks,
            logical_pages,
            ftl: self.ftl.clone(),
            codec: self.codec.clone(),
            content,
            profile: self.profile.clone(),
        })
    }
}

/// Blocks of a device: for data, over-provisioning and the map, and factory-bad ones. The map's need depends on all.
fn blocks_for(profile: &Profile, logical_pages: u32, policy: &dyn Policy, seed: u64) -> Result<u32> {
    let shape = profile.geometry(1);
    let bytes = u64::from(logical_pages) * PAGE as u64;
    let least = bytes.div_ceil(u64::from(shape.block_bytes()));
    let extra = (least as f64 * profile.space.over_provision_percent / 100.0).ceil() as u64;
    let mut blocks = least + extra;
    loop {
        if blocks * u64::from(shape.pages_per_block) >= u64::from(u32::MAX) {
            return Err(FlashError::Usage(format!("{bytes} bytes exceed the largest device")));
        }
        let g = profile.geometry(blocks as u32);
        let config = config_of(profile, logical_pages, 0);
        let data = (least + extra).max(u64::from(config.data_blocks_min(&g, policy)));
        let map = config.map_blocks(&g);
        let states = factory_states(profile, blocks as u32, seed);
        let good = states.iter().skip(map as usize).filter(|state| !state.bad).count() as u64;
        if good >= data {
            return Ok(blocks as u32);
        }
        blocks += data - good;
    }
}

fn config_of(profile: &Profile, logical_pages: u32, blocks: u32) -> Config {
    let pages = u64::from(blocks) * u64::from(profile.geometry.pages_per_block);
    let least = u64::from(logical_pages) * PAGE as u64 / u64::from(profile.geometry(1).block_bytes());
    Config {
        logical_pages,
        checkpoint_every: (pages / 8).max(4096),
        level_spread: (profile.endurance.pe_cycles / 20).max(16),
        capacitor: profile.controller.capacitor,
        idle_blocks: (u64::from(blocks).saturating_sub(least) / 8) as u32,
    }
}

/// The events that a flush of a device in a file protects against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// What was flushed survives the end of the process by any means.
    #[default]
    Process,
    /// It survives the end of the machine too: the file is synced, in an order in which whatever was stored
    /// is a state that power loss could have left the device in. Erases wait for it as well.
    Machine,
}

/// A compressor that a device can be opened with.
pub trait DeviceCodec: Codec + Sized {
    /// The one that a device's header asks for.
    ///
    /// # Errors
    /// No such compressor.
    fn of(header: &Header) -> Result<Self>;
}

impl DeviceCodec for PageCodec {
    fn of(header: &Header) -> Result<PageCodec> {
        PageCodec::new(&header.codec)
    }
}

impl DeviceCodec for Described {
    fn of(header: &Header) -> Result<Described> {
        Ok(Described::new(header.logical_pages))
    }
}

/// A device.
pub struct Device<C: Codec> {
    /// Taken when it is closed.
    ftl: Option<Ftl<NandModel, C>>,
    header: Header,
    /// Up to when it was opened.
    before: Stats,
    stats: Stats,
    file: Option<(PathBuf, File)>,
    durability: Durability,
    saves: u64,
}

/// Flushes between two writings of the statistics.
const SAVE_EVERY: u64 = 256;

impl<C: DeviceCodec> Device<C> {
    /// Makes a device in memory.
    ///
    /// # Errors
    /// Options that make no sense.
    pub fn in_memory(options: &DeviceOptions) -> Result<Device<C>> {
        let header = options.header(C::CONTENT)?;
        let nand = NandModel::in_memory(&header.profile, header.blocks, header.seed);
        Self::format(nand, C::of(&header)?, header, None)
    }

    /// Makes a device in memory with a method of the caller's; `options` says what the device is sized for.
    ///
    /// # Errors
    /// Options that make no sense.
    pub fn in_memory_with(options: &DeviceOptions, policy: Box<dyn Policy>) -> Result<Device<C>> {
        let header = options.header(C::CONTENT)?;
        let nand = NandModel::in_memory(&header.profile, header.blocks, header.seed);
        let config = config_of(&header.profile, header.logical_pages, header.blocks);
        let ftl = Ftl::format(nand, C::of(&header)?, policy, config)
            .map_err(|e| FlashError::Ftl("the new device".into(), e))?;
        Ok(Self::new(ftl, header, Stats::default(), None))
    }

    /// Makes a device in a file, which must not exist.
    ///
    /// # Errors
    /// Options that make no sense; the file's.
    pub fn create(path: &Path, options: &DeviceOptions) -> Result<Device<C>> {
        let header = options.header(C::CONTENT)?;
        let codec = C::of(&header)?;
        let states = factory_states(&header.profile, header.blocks, header.seed);
        let file = device_file::create(path, &header, &states)?;
        let nand =
            NandModel::on(Box::new(filed(&file, path, &header)?), &header.profile, states, header.seed);
        let made = Self::format(nand, codec, header, Some((path.to_owned(), file)));
        let made = made.and_then(|mut device: Device<C>| {
            device.sync()?;
            device_file::settle(path)?;
            Ok(device)
        });
        if made.is_err() {
            // The file was ours and is of no use.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Opens a device's file; `ftl`: another method than it was made with.
    ///
    /// # Errors
    /// No device, damaged, in use.
    pub fn open(path: &Path, ftl: Option<&str>) -> Result<Device<C>> {
        Device::open_for(path, ftl, Durability::Process, Duration::ZERO)
    }

    /// [`Device::open`], with flushes for the end of the machine too, or after a wait of at most `patience`
    /// for a user that is about to let go of it.
    ///
    /// # Errors
    /// No device, damaged, in use.
    pub fn open_for(
        path: &Path,
        ftl: Option<&str>,
        durability: Durability,
        patience: Duration,
    ) -> Result<Device<C>> {
        let (file, mut header) = device_file::open(path, Some(patience))?;
        if header.content != C::CONTENT {
            let what = if C::CONTENT {
                "it was created without content: it can replay traces, but not hold files"
            } else {
                "it was created with content, and this command needs a device without content"
            };
            return Err(FlashError::Device(path.display().to_string(), what.into()));
        }
        if let Some(ftl) = ftl {
            ftl.clone_into(&mut header.ftl);
        }
        let codec = C::of(&header)?;
        let states = device_file::states(path, &file, &header)?;
        let mut before = device_file::read_stats(path, &file, &header)?;
        before.killed += u64::from(std::mem::take(&mut before.open));
        let image = device_file::read_image(path, &file, &header)?;
        let mut nand =
            NandModel::on(Box::new(filed(&file, path, &header)?), &header.profile, states, header.seed);
        nand.set_retained(image.clone());
        nand.set_durable(durability == Durability::Machine);
        let config = config_of(&header.profile, header.logical_pages, header.blocks);
        let policy = policy(&header.ftl, &header.profile)?;
        let ftl = Ftl::open(nand, codec, policy, config, Some(&image)).map_err(|(mut nand, e)| {
            let name = path.display().to_string();
            nand.take_error().map_or(FlashError::Ftl(name.clone(), e), |e| FlashError::Io(name, e))
        })?;
        let mut device = Self::new(ftl, header, before, Some((path.to_owned(), file)));
        device.durability = durability;
        Ok(device)
    }

    fn format(nand: NandModel, codec: C, header: Header, file: Option<(PathBuf, File)>) -> Result<Device<C>> {
        let config = config_of(&header.profile, header.logical_pages, header.blocks);
        let policy = policy(&header.ftl, &header.profile)?;
        let ftl = Ftl::format(nand, codec, policy, config)
            .map_err(|e| FlashError::Ftl("the new device".into(), e))?;
        Ok(Self::new(ftl, header, Stats::default(), file))
    }

    fn new(
        ftl: Ftl<NandModel, C>,
        header: Header,
        before: Stats,
        file: Option<(PathBuf, File)>,
    ) -> Device<C> {
        let stats = Stats { opened: 1, ..Stats::default() };
        Device { ftl: Some(ftl), header, before, stats, file, durability: Durability::Process, saves: 0 }
    }
}

fn filed(file: &File, path: &Path, header: &Header) -> Result<Filed> {
    let g = header.profile.geometry(header.blocks);
    let file = file.try_clone().map_err(device_file::io(path))?;
    Ok(Filed::new(file, (g.pages_per_block, g.page_bytes, g.spare_bytes), header.places()))
}

impl<C: Codec> Device<C> {
    /// The header of the device's file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Pages the host sees.
    pub fn logical_pages(&self) -> u32 {
        self.header.logical_pages
    }

    /// The translation layer.
    pub fn ftl(&self) -> &Ftl<NandModel, C> {
        self.ftl.as_ref().expect("closed only when it goes")
    }

    /// The translation layer.
    pub fn ftl_mut(&mut self) -> &mut Ftl<NandModel, C> {
        self.ftl.as_mut().expect("closed only when it goes")
    }

    /// The device's clock in nanoseconds.
    pub fn now(&self) -> u64 {
        self.ftl().nand().now()
    }

    /// Forgets what was counted and measured so far, of this use of the device.
    pub fn reset_stats(&mut self) {
        self.before = Stats::default();
        self.stats = Stats { opened: 1, ..Stats::default() };
        let (ftl, nand, now) = (*self.ftl().counters(), self.ftl().nand().counts(), self.now());
        self.stats.time_ns = now;
        // What is subtracted from the layers' own counts.
        self.stats.ftl = ftl;
        self.stats.nand = nand;
    }

    /// Everything counted since the device was made, or since [`Device::reset_stats`].
    pub fn stats(&self) -> Stats {
        let mut stats = self.before.clone();
        let mut ftl = *self.ftl().counters();
        ftl -= self.stats.ftl;
        stats.ftl += ftl;
        let nand = self.ftl().nand().counts();
        stats.nand.programs += nand.programs - self.stats.nand.programs;
        stats.nand.reads += nand.reads - self.stats.nand.reads;
        stats.nand.erases += nand.erases - self.stats.nand.erases;
        stats.nand.refused += nand.refused - self.stats.nand.refused;
        stats.latency.add(&self.stats.latency);
        stats.time_ns += self.now() - self.stats.time_ns;
        stats.opened += self.stats.opened;
        stats
    }

    fn error(&mut self, e: FtlError) -> FlashError {
        let name = match &self.file {
            Some((path, _)) => path.display().to_string(),
            None => "the flash device".into(),
        };
        match (e, self.ftl_mut().nand_mut().take_error()) {
            (FtlError::Nand(NandError::Host), Some(e)) => FlashError::Io(name, e),
            (e, _) => FlashError::Ftl(name, e),
        }
    }

    /// A request arrives; until then the device may collect.
    fn begin(&mut self, arrival: u64) -> Result<()> {
        if self.now() < arrival {
            let idled = self.ftl_mut().idle(arrival);
            idled.map_err(|e| self.error(e))?;
        }
        self.ftl_mut().nand_mut().begin(arrival);
        Ok(())
    }

    /// Writes neighbouring pages, one request; returns when it ends.
    ///
    /// # Errors
    /// The translation layer's; the file's.
    pub fn write(&mut self, arrival: u64, lpn: u32, pages: &[&[u8]], hint: Hint) -> Result<u64> {
        self.begin(arrival)?;
        let done = self.ftl_mut().write(lpn, pages, hint);
        done.map_err(|e| self.error(e))?;
        let end = self.now();
        self.stats.latency.write.record(end - arrival.min(end));
        Ok(end)
    }

    /// Reads neighbouring pages, one request; returns when it ends.
    ///
    /// # Errors
    /// The translation layer's; the file's.
    pub fn read(&mut self, arrival: u64, lpn: u32, pages: &mut [&mut [u8]]) -> Result<u64> {
        self.begin(arrival)?;
        let done = self.ftl_mut().read(lpn, pages);
        done.map_err(|e| self.error(e))?;
        let end = self.now();
        self.stats.latency.read.record(end - arrival.min(end));
        Ok(end)
    }

    /// Trims neighbouring pages; returns when it ends.
    ///
    /// # Errors
    /// The translation layer's; the file's.
    pub fn trim(&mut self, arrival: u64, lpn: u32, count: u32) -> Result<u64> {
        self.begin(arrival)?;
        let done = self.ftl_mut().trim(lpn, count);
        done.map_err(|e| self.error(e))?;
        Ok(self.now())
    }

    /// Makes everything durable: against the device's power loss, and the end of this process.
    ///
    /// # Errors
    /// The translation layer's; the file's.
    pub fn flush(&mut self, arrival: u64) -> Result<u64> {
        self.begin(arrival)?;
        let done = self.ftl_mut().flush();
        done.map_err(|e| self.error(e))?;
        let end = self.now();
        self.stats.latency.flush.record(end - arrival.min(end));
        self.sync()?;
        self.saves += 1;
        // At once the first time: after a kill it must be found.
        if self.saves == 1 || self.saves.is_multiple_of(SAVE_EVERY) {
            self.save()?;
        }
        Ok(end)
    }

    fn sync(&mut self) -> Result<()> {
        let synced = self.ftl_mut().nand_mut().sync();
        synced.map_err(|e| FlashError::Io(self.name(), e))
    }

    fn name(&self) -> String {
        self.file.as_ref().map_or_else(|| "the flash device".into(), |(path, _)| path.display().to_string())
    }

    /// Writes the statistics down.
    ///
    /// # Errors
    /// The file's.
    pub fn save(&self) -> Result<()> {
        self.save_as(true)
    }

    fn save_as(&self, open: bool) -> Result<()> {
        match &self.file {
            Some((path, file)) => {
                device_file::write_stats(path, file, &self.header, &Stats { open, ..self.stats() })
            }
            None => Ok(()),
        }
    }

    /// Ends the use of the device; the next opening needs no recovery.
    ///
    /// # Errors
    /// The translation layer's; the file's.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.ftl.is_none() {
            return Ok(());
        }
        let opened_only = self.ftl().counters().programs.total() == 0;
        if !opened_only {
            let written = self.ftl_mut().checkpoint(true);
            written.map_err(|e| self.error(e))?;
        }
        self.sync()?;
        self.save_as(false)?;
        if let Some((path, file)) = self.file.as_ref().filter(|_| self.durability == Durability::Machine) {
            file.sync_data().map_err(device_file::io(path))?;
        }
        self.ftl = None;
        Ok(())
    }

    /// Stops without writing anything, as power loss does, and gives the NAND back.
    pub fn abandon(mut self) -> (NandModel, C) {
        let ftl = self.ftl.take().expect("closed only when it goes");
        ftl.abandon()
    }
}

impl<C: Codec> Drop for Device<C> {
    fn drop(&mut self) {
        // Who wants to know of an error calls `close`.
        let _ = self.end();
    }
}
