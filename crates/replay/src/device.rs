//! The devices that a column of a replay can run on: one function opens them all.

use crate::cleanup::{Cleanup, Guard};
use crate::error::{Context, Error, Result};
use crate::process::{Scratch, private_folder, run};
use crate::result::FlashUse;
use medfs::{Clock, ManualClock};
use medfs_device::{Access, BlockDevice, FileDevice, FileOptions, MemDevice};
use medfs_flash::{FlashDevice, FlashTarget, Header, HostTime, Stats};
use medfs_format::BLOCK_SIZE;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A device, and what must be undone when it is no longer needed.
pub(crate) struct Opened {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The same where it is a flash device.
    pub(crate) flash: Option<Flash>,
    // Dropped in this order: the loop device before the image it is on.
    _loop: Option<Loop>,
    _scratch: Option<Scratch>,
}

/// What is wrong with a value of `device=`.
pub(crate) fn check(name: &str) -> std::result::Result<(), String> {
    match name {
        "memory" | "file" | "loop" => Ok(()),
        _ => match FlashTarget::parse_new(name) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                Err(format!("device={name}: expected memory, file, loop or flash:?profile=emmc&ftl=ldc"))
            }
            Err(wrong) => Err(format!("device={wrong}")),
        },
    }
}

/// A flash device that a column runs on.
pub(crate) struct Flash {
    device: Arc<FlashDevice>,
    header: Header,
}

impl Flash {
    pub(crate) fn stats(&self) -> Stats {
        self.device.stats()
    }

    /// What the NAND did between two moments.
    pub(crate) fn used(&self, since: &Stats, end: &Stats) -> FlashUse {
        FlashUse::between(&self.header, since, end)
    }
}

/// The replay's clock is the host's: pauses of the trace are pauses of the device, and each run is the same.
struct TraceTime(Arc<ManualClock>);

impl HostTime for TraceTime {
    fn now(&self) -> u64 {
        u64::try_from(self.0.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }
}

fn open_flash(mut target: FlashTarget, place: &Place<'_>, clock: Arc<ManualClock>) -> Result<Opened> {
    let scratch = if target.path.as_os_str().is_empty() {
        let scratch = Scratch::new(place.scratch, place.cleanup)?;
        target.path = scratch.path("device.nand");
        Some(scratch)
    } else {
        let folder = &target.path;
        private_folder(folder)?;
        target.path = folder.join(place.column).with_extension("nand");
        if target.exists() {
            let path = target.path.display();
            return Err(Error::refused(format!("{path} exists, and a column needs a new device: remove it")));
        }
        None
    };
    target.create(Some(place.size))?;
    let opened = target.open_device(Duration::ZERO)?;
    let header = opened.header().clone();
    let device = Arc::new(FlashDevice::with_time(opened, Box::new(TraceTime(clock))));
    Ok(Opened {
        device: device.clone(),
        flash: Some(Flash { device, header }),
        _loop: None,
        _scratch: scratch,
    })
}

/// Where a column's device is made, and how large.
pub(crate) struct Place<'p> {
    /// Bytes.
    pub(crate) size: u64,
    /// Directory for what goes when the column has run; `None`: the system's.
    pub(crate) scratch: Option<&'p Path>,
    /// The column's name for files.
    pub(crate) column: &'p str,
    /// Where what is made is noted.
    pub(crate) cleanup: &'p dyn Cleanup,
}

/// Opens an empty device. `clock` is the host's, for a device that has a time of its own.
pub(crate) fn open(name: &str, place: &Place<'_>, clock: &Arc<ManualClock>) -> Result<Opened> {
    if let Some(target) = FlashTarget::parse_new(name)? {
        return open_flash(target, place, clock.clone());
    }
    let size = place.size;
    if name == "memory" {
        let device = Arc::new(MemDevice::new(size / BLOCK_SIZE as u64));
        return Ok(Opened { device, flash: None, _loop: None, _scratch: None });
    }
    let folder = Scratch::new(place.scratch, place.cleanup)?;
    let image = folder.image(size)?;
    let attached = if name == "loop" { Some(Loop::attach(&image, place.cleanup)?) } else { None };
    let path = attached.as_ref().map_or(&*image, |attached| Path::new(&attached.device));
    let options = FileOptions { access: Access::ReadWrite, ..FileOptions::default() };
    let device = Arc::new(FileDevice::open(path, options)?);
    Ok(Opened { device, flash: None, _loop: attached, _scratch: Some(folder) })
}

/// A path as text, which programs take.
pub(crate) fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::refused("the scratch directory's name is not UTF-8"))
}

/// An attached loop device; it goes with this.
pub(crate) struct Loop {
    /// `/dev/loop3`.
    pub(crate) device: String,
    _guard: Box<dyn Guard>,
}

impl Loop {
    pub(crate) fn attach(image: &Path, cleanup: &dyn Cleanup) -> Result<Loop> {
        let image = utf8(image)?;
        let device =
            run("losetup", &["--find", "--show", image]).context(|| "cannot attach a loop device".into())?;
        let device = device.trim().to_owned();
        let attached = device.clone();
        let _guard = cleanup.note(Box::new(move || {
            if let Err(error) = run("losetup", &["--detach", &attached]) {
                tracing::warn!("{error}");
            }
        }));
        Ok(Loop { device, _guard })
    }
}
