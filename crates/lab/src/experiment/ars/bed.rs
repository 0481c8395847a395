//! A volume on the device model for experiments that look at single files: where their pieces lie, and what
//! the device takes for each part of what is done.

use crate::backend::volume::VolumeTarget;
use crate::backend::{Handle, Open, Target, read_at};
use crate::cell::Cell;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use crate::model::{ModelDevice, Timeline};
use crate::scheme::Scheme;
use medfs::{Extent, FallocateMode, Files};
use medfs_device::{CountingDevice, IoCounts, MemDevice};
use std::sync::Arc;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;
/// The largest request of the kernel's readahead, in bytes.
pub(super) const LARGEST: u64 = 128 << 10;

type Device = CountingDevice<MemDevice>;

/// A mounted volume of a scheme.
pub(super) struct Bed<'l> {
    lab: &'l Lab<'l>,
    scheme: Scheme,
    device: Arc<Device>,
    timeline: Arc<Timeline>,
    target: Arc<VolumeTarget>,
    /// Blocks that users can have.
    user_blocks: u64,
    /// What is measured, by name.
    cell: Cell,
}

impl<'l> Bed<'l> {
    /// A new volume of so many MiB, for a cell of this workload and variant.
    pub(super) fn new(
        lab: &'l Lab<'l>,
        (workload, scheme, variant): (&str, &Scheme, &str),
        mib: u64,
    ) -> Result<Bed<'l>> {
        lab.settings.progress.step(&[workload, &scheme.name, variant].join(" "));
        let memory = MemDevice::new(mib << 8);
        medfs_mkfs::format_volume(&memory, &scheme.mkfs_options(lab.settings.seed))?;
        let device = Arc::new(CountingDevice::new(memory));
        let times = lab.spec.times.clone();
        let times = times.ok_or_else(|| Error::Spec {
            file: format!("experiments/{}.toml", lab.spec.name),
            message: "times is missing".into(),
        })?;
        let timeline = Arc::new(Timeline::new(times));
        let target = mount(&device, &timeline, scheme)?;
        let cell = Cell {
            scheme: scheme.name.clone(),
            variant: variant.into(),
            options: scheme.options.clone(),
            ..lab.blank_cell(workload, format!("memory, {mib} MiB, with the times of a model"))
        };
        let user_blocks = target.volume().space().free + target.volume().stats().valid_blocks;
        Ok(Bed { lab, scheme: scheme.clone(), device, timeline, target, user_blocks, cell })
    }

    pub(super) fn target(&self) -> &Arc<VolumeTarget> {
        &self.target
    }

    /// Unmounts and mounts again: nothing is in a cache, and what is reserved is forgotten.
    pub(super) fn again(&mut self) -> Result<()> {
        self.target.unmount().map_err(Error::engine("unmounting"))?;
        self.target = mount(&self.device, &self.timeline, &self.scheme)?;
        Ok(())
    }

    /// Runs something and tells for how many virtual microseconds the device was busy.
    pub(super) fn timed(&self, run: impl FnOnce() -> Result<()>) -> Result<f64> {
        let before = self.timeline.device_time();
        run()?;
        Ok(self.timeline.device_time() - before)
    }

    /// Requests of the device so far.
    pub(super) fn counts(&self) -> IoCounts {
        self.device.counts()
    }

    /// A new file. Where the scheme reserves for files that are chosen by hand, `chosen` says that this is one.
    pub(super) fn create(&self, path: &str, chosen: bool) -> Result<Handle> {
        let file = self.target.open(path, Open::Create).map_err(Error::io(format!("making {path}")))?;
        if chosen && self.scheme.options.contains("reserve_files=pinned") {
            let ino = self.target.ino(path).map_err(Error::engine("looking a file up"))?;
            self.target.volume().set_pinned(ino, true).map_err(Error::engine("pinning a file"))?;
        }
        Ok(file)
    }

    /// Gives a chosen file a section that is kept for it, however few are free.
    pub(super) fn keep_section(&self, path: &str) -> Result<()> {
        let ino = self.target.ino(path).map_err(Error::engine("looking a file up"))?;
        let volume = self.target.volume();
        if !volume.is_pinned(ino).map_err(Error::engine("looking at a file"))? {
            return Ok(());
        }
        let section = u64::from(volume.geometry().blocks_per_section()) * PAGE;
        volume
            .fallocate(ino, FallocateMode::KEEP_SIZE, 0, section)
            .map_err(Error::engine("reserving a section"))
    }

    /// Writes some bytes of a file and makes them durable.
    pub(super) fn write(&self, file: Handle, at: u64, bytes: u64, seed: u8) -> Result<()> {
        let content = vec![seed; bytes as usize];
        self.target.write(file, at, &content).map_err(Error::io("writing"))?;
        self.target.fsync(file, false).map_err(Error::io("syncing"))
    }

    /// What the device takes to read a file from its start to its end, with nothing of it in a cache.
    pub(super) fn read_time(&mut self, path: &str) -> Result<f64> {
        self.again()?;
        let file = self.target.open(path, Open::Existing).map_err(Error::io(format!("opening {path}")))?;
        let size = self.target.size(file).map_err(Error::io("looking at a size"))?;
        self.timed(|| {
            for at in (0..size).step_by(LARGEST as usize) {
                read_at(&*self.target, file, at, LARGEST as usize).map_err(Error::io("reading"))?;
            }
            Ok(())
        })
    }

    /// Pieces that a file lies in.
    pub(super) fn extents(&self, path: &str) -> Result<usize> {
        let ino = self.target.ino(path).map_err(Error::engine("looking a file up"))?;
        self.target.sync().map_err(Error::io("syncing"))?;
        Ok(Extent::of(self.target.volume(), ino).map_err(Error::engine("looking for extents"))?.len())
    }

    /// Part of what users can have that is in use, in percent.
    pub(super) fn used(&self) -> f64 {
        100.0 * (1.0 - self.target.volume().space().free as f64 / self.user_blocks as f64)
    }

    /// Notes a figure in the cell.
    pub(super) fn note(&mut self, name: &str, value: f64) {
        self.cell.values.insert(name.into(), value);
    }

    /// Unmounts, checks the volume, and keeps the cell; the name of its file.
    pub(super) fn finish(mut self) -> Result<String> {
        self.cell.stats = serde_json::to_value(self.target.volume().stats()).ok();
        self.target.unmount().map_err(Error::engine("unmounting"))?;
        let report = medfs_fsck::check(&self.device, &medfs_fsck::Options::default(), &mut |_| {})
            .map_err(Error::io("checking the volume"))?;
        self.cell.check_findings = Some(report.findings.len() as u64);
        match report.findings.first() {
            Some(finding) => Err(Error::Check(format!("the check of the volume finds: {finding}"))),
            None => self.lab.keep(&self.cell),
        }
    }
}

fn mount(device: &Arc<Device>, timeline: &Arc<Timeline>, scheme: &Scheme) -> Result<Arc<VolumeTarget>> {
    let options = scheme.mount_options().map_err(Error::Unknown)?;
    let model = Arc::new(ModelDevice::new(device.clone(), timeline.clone()));
    let target =
        VolumeTarget::mount(model, options, Some(timeline.clone())).map_err(Error::engine("mounting"))?;
    Ok(Arc::new(target))
}
