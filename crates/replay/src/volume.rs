//! One column on a volume of medfs.
//!
//! The volume is new, with a fixed UUID and the trace's time; its clock moves with the trace. The same trace
//! with the same options writes the same blocks each time, in the sequential order.

use crate::device;
use crate::error::{Context, Error, Result};
use crate::matrix::{self, System};
use crate::result::{CellResult, DeviceUse, Written};
use crate::run::Run;
use medfs::{FileFlags, Files, ManualClock, Timestamp, Volume};
use medfs_device::{BlockDevice, Cause, CountingDevice, IoCounts};
use medfs_format::BLOCK_SIZE;
use medfs_format::superblock::Feature;
use medfs_mkfs::{MkfsOptions, default_features, format_volume};
use medfs_trace::replay::{Progress, replay, verify_tree};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All volumes of replays have it.
const UUID: [u8; 16] = *b"medfs replayed\0\0";

pub(crate) fn column(run: &Run<'_>, options: &[(String, String)], name: &str) -> Result<CellResult> {
    let mount = matrix::mount_options(options).map_err(Error::Refused)?;
    let compressed = options.iter().any(|(axis, value)| axis == "compress" && value != "off");
    let mut reader = run.open()?;
    let began = Timestamp {
        secs: reader.head().began.div_euclid(1_000_000_000),
        nanos: reader.head().began.rem_euclid(1_000_000_000) as u32,
    };
    let clock = Arc::new(ManualClock::new(began));
    let column = System::Medfs { options: options.to_vec(), device: name.into() }.file_name();
    let place = device::Place { size: run.size, scratch: run.scratch, column: &column, cleanup: run.cleanup };
    let opened = device::open(name, &place, &clock)?;
    let counted = Arc::new(CountingDevice::new(opened.device.clone()));
    let flash_stats = || opened.flash.as_ref().map(device::Flash::stats);
    let mut features = default_features();
    features.set(Feature::COMPRESSION, compressed);
    let mkfs = MkfsOptions { deltas: true, zeroed: true, features, ..MkfsOptions::new(UUID, began.secs) };
    format_volume(&*counted, &mkfs).context(|| "cannot create a volume".into())?;
    let volume = Volume::open(counted.clone(), mount.clone(), clock.clone())?;
    if compressed && mount.compress.fpc.is_none() {
        // Files inherit it from their directories. Pages that are compressed alone need no mark.
        volume.set_flags(volume.root(), FileFlags::COMPR)?;
    }
    let (mut ready, mut flash_ready) = (counted.counts(), flash_stats());
    let (outcome, first) = replay(&mut reader, &volume, Some(&clock), &run.options, &mut |progress| {
        match progress {
            Progress::Ready => {
                volume
                    .sync()
                    .map_err(|source| medfs_trace::Error::Files { what: "cannot sync".into(), source })?;
                (ready, flash_ready) = (counted.counts(), flash_stats());
            }
            Progress::At(bytes) => (run.at)(bytes),
        }
        Ok(())
    })?;
    volume.sync().context(|| "cannot sync the file system".into())?;
    let used = device_use(&ready, counted.counts());
    let flash_used =
        opened.flash.as_ref().map(|flash| flash.used(&flash_ready.unwrap_or_default(), &flash.stats()));
    let stats = serde_json::to_value(volume.stats())?;
    volume.close().context(|| "cannot close the volume".into())?;
    drop(volume);
    // Judged by who opens it next.
    let volume: Arc<dyn Files> = Arc::new(Volume::open(counted.clone(), mount, clock)?);
    let tree = verify_tree(&mut reader, first, &*volume)?;
    let mut result = CellResult::new(reader.head(), reader.ending(), &outcome, tree, used);
    result.system = "medfs".into();
    result.version = format!("medfs {}", env!("CARGO_PKG_VERSION"));
    result.device = name.into();
    result.options = options.iter().cloned().collect::<BTreeMap<_, _>>();
    result.volume_bytes = counted.block_count() * BLOCK_SIZE as u64;
    result.stats = Some(stats);
    result.flash = flash_used;
    Ok(result)
}

fn device_use(ready: &IoCounts, end: IoCounts) -> DeviceUse {
    let since = end - *ready;
    let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
    let of = |cause: Cause| Some(bytes(since.cause(cause).blocks));
    DeviceUse {
        written: Written {
            total: bytes(since.blocks_written()),
            data: of(Cause::Data),
            node: of(Cause::Node),
            compact: of(Cause::Compact),
            meta: of(Cause::Meta),
            gc: of(Cause::Gc),
        },
        setup_written: bytes(ready.blocks_written()),
        read: bytes(since.blocks_read),
        flushes: since.flushes,
    }
}
