//! A volume, with a memory as NVRAM or without, counted, for an experiment of Delta Journaling. Where the experiment
//! has times of a device, the volume lies on a model of it.

use crate::backend::Target;
use crate::backend::volume::VolumeTarget;
use crate::cell::{Cell, Row};
use crate::error::{Error, Result};
use crate::experiment::Lab;
use crate::model::{ModelDevice, Timeline};
use crate::scheme::Scheme;
use crate::tape::Watch;
use crate::workload::Recording;
use medfs::{NvramStats, Stats};
use medfs_device::{BlockDevice, MemDevice, MemNvram};
use medfs_format::BLOCK_SIZE;
use std::sync::Arc;

/// Bytes of the paper's memory.
pub(super) const NVRAM: u64 = 16 << 20;

/// A row with a unit of its own.
pub(super) fn row(
    lab: &Lab<'_>,
    (label, scheme, unit): (&str, &str, &str),
    ours: f64,
    cells: &[String],
) -> Row {
    Row { unit: unit.into(), ..lab.spec.row(label, scheme, Some(ours), cells) }
}

/// Blocks in MB.
pub(super) fn megabytes(blocks: u64) -> f64 {
    (blocks * BLOCK_SIZE as u64) as f64 / 1e6
}

/// Is told where the set-up of a tape ends.
pub(super) struct FromSetup<'f>(pub(super) &'f mut dyn FnMut());

impl Watch for FromSetup<'_> {
    fn setup_done(&mut self) -> std::io::Result<()> {
        (self.0)();
        Ok(())
    }
    fn played(&mut self, _written: u64) {}
}

/// What a volume wrote after the set-up.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::experiment) struct Played {
    pub(in crate::experiment) blocks: u64,
    /// Writes of the memory that were made durable, and lines of 64 bytes in them.
    pub(super) persists: u64,
    pub(super) lines: u64,
    /// Checkpoints that emptied it.
    pub(super) emptied: u64,
    /// Microseconds of the device.
    pub(super) time: f64,
    /// Microseconds that operations took up to the sync at the end, and with it.
    pub(in crate::experiment) waited: f64,
    pub(in crate::experiment) waited_in_all: f64,
}

/// Notes how long operations have taken, after each and after the one before it.
struct Waits<'w> {
    from_setup: FromSetup<'w>,
    timeline: Option<&'w Timeline>,
    last: [f64; 2],
}

impl Watch for Waits<'_> {
    fn setup_done(&mut self) -> std::io::Result<()> {
        self.from_setup.setup_done()
    }
    fn played(&mut self, _written: u64) {
        self.last = [self.last[1], self.timeline.map_or(0.0, Timeline::waited)];
    }
}

/// See the module.
pub(in crate::experiment) struct Bed<'l> {
    lab: &'l Lab<'l>,
    pub(super) target: VolumeTarget,
    timeline: Option<Arc<Timeline>>,
    cell: Cell,
}

impl<'l> Bed<'l> {
    /// A new volume of so many MiB with a memory of so many bytes, for a cell of this workload and variant.
    pub(in crate::experiment) fn new(
        lab: &'l Lab<'l>,
        (workload, scheme, variant): (&str, &Scheme, &str),
        (mib, bytes): (u64, Option<u64>),
    ) -> Result<Bed<'l>> {
        lab.settings.progress.step(&[workload, &scheme.name, variant].join(" "));
        let memory = MemDevice::new(mib << 8);
        medfs_mkfs::format_volume(&memory, &scheme.mkfs_options(lab.settings.seed))?;
        let timeline = lab.spec.times.clone().map(|times| Arc::new(Timeline::new(times)));
        let device: Arc<dyn BlockDevice> = match &timeline {
            Some(timeline) => Arc::new(ModelDevice::new(memory, timeline.clone())),
            None => Arc::new(memory),
        };
        let options = scheme.mount_options().map_err(Error::Unknown)?;
        let (target, beside) = match bytes {
            Some(bytes) => {
                let memory = Arc::new(MemNvram::new(bytes));
                let target = VolumeTarget::mount_with_nvram(device, memory, options, timeline.clone());
                (target, format!("with an NVRAM of {bytes} bytes in memory"))
            }
            None => (VolumeTarget::mount(device, options, timeline.clone()), "without an NVRAM".to_owned()),
        };
        let cell = Cell {
            scheme: scheme.name.clone(),
            variant: variant.into(),
            options: scheme.options.clone(),
            ..lab.blank_cell(workload, format!("memory, {mib} MiB, {beside}"))
        };
        Ok(Bed { lab, target: target.map_err(Error::engine("mounting"))?, timeline, cell })
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
    pub(in crate::experiment) fn finish(mut self) -> Result<String> {
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

    fn now(&self) -> Played {
        let nvram = self.nvram();
        Played {
            blocks: self.blocks(),
            persists: nvram.persists,
            lines: nvram.lines,
            emptied: nvram.emptied,
            time: self.timeline.as_ref().map_or(0.0, |timeline| timeline.device_time()),
            ..Played::default()
        }
    }

    /// Plays a tape to its last sync, and notes what that wrote.
    pub(in crate::experiment) fn play(&mut self, recording: &Recording) -> Result<Played> {
        let mut before = Played::default();
        let start = &mut || {
            if let Some(timeline) = &self.timeline {
                timeline.start_measuring();
            }
            before = self.now();
        };
        let timeline = self.timeline.as_deref();
        let mut waits = Waits { from_setup: FromSetup(start), timeline, last: [0.0; 2] };
        let played = recording.tape.play(&self.target, &mut waits);
        let [waited, waited_in_all] = waits.last;
        played.map_err(Error::io("playing a workload"))?;
        let now = self.now();
        let played = Played {
            blocks: now.blocks - before.blocks,
            persists: now.persists - before.persists,
            lines: now.lines - before.lines,
            emptied: now.emptied - before.emptied,
            time: now.time,
            waited,
            waited_in_all,
        };
        self.note("blocks written", played.blocks as f64);
        self.note("persists", played.persists as f64);
        self.note("lines of 64 bytes", played.lines as f64);
        self.note("device_busy_us", played.time);
        Ok(played)
    }
}
