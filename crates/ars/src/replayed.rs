//! A trace replayed on logs, watched.

use crate::error::{Error, Result};
use crate::watch::{Seen, Watch};
use medfs::{DeltaMode, Files, InPlace, ManualClock, MountOptions, PlacementPolicy, Timestamp, Volume};
use medfs_device::MemDevice;
use medfs_format::BLOCK_SIZE;
use medfs_mkfs::{MkfsOptions, default_features, format_volume};
use medfs_trace::TraceReader;
use medfs_trace::replay::{Options, Progress, replay};
use std::io::Read;
use std::sync::Arc;

/// All volumes of such replays have it.
const UUID: [u8; 16] = *b"medfs learns ars";

/// How the volume is mounted: every page that is written goes to a log, as the paper's "traditional F2FS" does it.
pub(crate) fn on_logs() -> MountOptions {
    MountOptions {
        placement: PlacementPolicy::Log,
        in_place: Some(InPlace::empty()),
        delta: Some(DeltaMode::Off),
        ..MountOptions::default()
    }
}

/// A new volume on logs, of so many bytes, whose time begins then.
pub(crate) fn volume(bytes: u64, began: Timestamp) -> Result<(Volume, Arc<ManualClock>)> {
    let device = Arc::new(MemDevice::new(bytes / BLOCK_SIZE as u64));
    let mkfs =
        MkfsOptions { zeroed: true, features: default_features(), ..MkfsOptions::new(UUID, began.secs) };
    format_volume(&*device, &mkfs)?;
    let clock = Arc::new(ManualClock::new(began));
    Ok((Volume::open(device, on_logs(), clock.clone())?, clock))
}

/// The files that a trace writes, replayed on a volume of so many bytes in memory. What was there before is
/// no sample of it. `at` hears how many bytes of the trace were read.
///
/// # Errors
/// The trace's and the volume's.
pub fn samples_of<R: Read>(reader: &mut TraceReader<R>, bytes: u64, at: &dyn Fn(u64)) -> Result<Vec<Seen>> {
    let began = reader.head().began;
    let began =
        Timestamp { secs: began.div_euclid(1_000_000_000), nanos: began.rem_euclid(1_000_000_000) as u32 };
    let (volume, clock) = volume(bytes, began)?;
    let watch = Watch::new(&volume);
    replay(reader, &watch, Some(&clock), &Options::default(), &mut |progress| {
        match progress {
            Progress::Ready => {
                let failed = |source| medfs_trace::Error::Files { what: "cannot sync".into(), source };
                volume.sync().map_err(failed)?;
                watch.begin();
            }
            Progress::At(bytes) => at(bytes),
        }
        Ok(())
    })?;
    watch.finish().map_err(Error::from)
}
