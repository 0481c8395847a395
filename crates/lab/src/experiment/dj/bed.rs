//! A volume with a memory as NVRAM, counted, for an experiment of Delta Journaling.

use crate::backend::Target;
use crate::backend::volume::VolumeTarget;
use crate::cell::Cell;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use crate::scheme::Scheme;
use medfs::{NvramStats, Stats};
use medfs_device::{MemDevice, MemNvram};
use std::sync::Arc;

/// Bytes of the paper's memory.
pub(super) const NVRAM: u64 = 16 << 20;

/// See the module.
pub(super) struct Bed<'l> {
    lab: &'l Lab<'l>,
    pub(super) target: VolumeTarget,
    cell: Cell,
}

impl<'l> Bed<'l> {
    /// A new volume of so many MiB with a memory of so many bytes, for a cell of this workload and variant.
    pub(super) fn new(
        lab: &'l Lab<'l>,
        (workload, scheme, variant): (&str, &Scheme, &str),
        (mib, bytes): (u64, u64),
    ) -> Result<Bed<'l>> {
        lab.settings.progress.step(&[workload, &scheme.name, variant].join(" "));
        let device = MemDevice::new(mib << 8);
        medfs_mkfs::format_volume(&device, &scheme.mkfs_options(lab.settings.seed))?;
        let options = scheme.mount_options().map_err(Error::Unknown)?;
        let memory = Arc::new(MemNvram::new(bytes));
        let target = VolumeTarget::mount_with_nvram(Arc::new(device), memory, options);
        let cell = Cell {
            scheme: scheme.name.clone(),
            variant: variant.into(),
            options: scheme.options.clone(),
            ..lab.blank_cell(workload, format!("memory, {mib} MiB, with an NVRAM of {bytes} bytes in memory"))
        };
        Ok(Bed { lab, target: target.map_err(Error::engine("mounting"))?, cell })
    }

    pub(super) fn stats(&self) -> Stats {
        self.target.volume().stats()
    }

    pub(super) fn nvram(&self) -> NvramStats {
        self.stats().nvram.unwrap_or_default()
    }

    /// Notes a figure in the cell.
    pub(super) fn note(&mut self, name: &str, value: f64) {
        self.cell.values.insert(name.into(), value);
    }

    /// Unmounts and keeps the cell; the name of its file.
    pub(super) fn finish(mut self) -> Result<String> {
        self.cell.stats = serde_json::to_value(self.stats()).ok();
        self.target.unmount().map_err(Error::engine("unmounting"))?;
        self.lab.keep(&self.cell)
    }

    /// What reached the volume, in blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.stats().written.total()
    }

    /// Lets the time of the volume go on, and what is due be done.
    pub(super) fn background(&self) -> Result<()> {
        self.target.pass(std::time::Duration::from_millis(10)).map_err(Error::io("working in the background"))
    }
}
