//! The device that files are copied from, and the map of its bad blocks.

use crate::target::{self, Target};
use anyhow::{Context, Result};
use medfs_device::{BlockDevice, Mapfile, MappedDevice};
use medfs_format::BLOCK_SIZE;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long new bad blocks may wait to be on the map.
const PERIOD: Duration = Duration::from_secs(5);

/// A device to be copied from, spared where it is bad.
pub(crate) type Spared = Arc<MappedDevice<Target>>;

/// Keeps a map in its file.
pub(crate) struct Keeper {
    device: Spared,
    file: Option<PathBuf>,
    kept: Instant,
    /// The last map could not be written.
    unkept: bool,
}

/// Opens a device to copy from, with the map in a file, where one is wanted. `cut_short`: of an image that may end before the device whose
/// map it is.
pub(crate) fn open(
    image: &Path,
    file: Option<&Path>,
    retry: bool,
    cut_short: bool,
) -> Result<(Spared, Keeper)> {
    let device = target::open_to_read(image)?;
    let known = match file {
        Some(file) => {
            Mapfile::read(file).with_context(|| format!("cannot use the map {}", file.display()))?
        }
        None => None,
    };
    let bytes = device.block_count() * BLOCK_SIZE as u64;
    let map = match (known, file) {
        (Some(known), Some(file)) => {
            if !cut_short {
                known.check_fits(bytes).with_context(|| format!("cannot use the map {}", file.display()))?;
            }
            known.extended(bytes)
        }
        _ => Mapfile::new(bytes),
    };
    let device = Arc::new(MappedDevice::new(device, map, retry));
    let keeper = Keeper {
        device: device.clone(),
        file: file.map(Path::to_owned),
        kept: Instant::now(),
        unkept: false,
    };
    if let Some(file) = file
        && !file.exists()
    {
        // Now, rather than after hours of reading.
        keeper.write(&device.map())?;
    }
    Ok((device, keeper))
}

impl Keeper {
    /// Writes the map where it has changed, now and then. What cannot be kept now may be at the end: nothing else waits for it.
    pub(crate) fn keep(&mut self) {
        if self.file.is_none() || self.kept.elapsed() < PERIOD {
            return;
        }
        self.kept = Instant::now();
        let kept = self.device.new_map().map_or(Ok(()), |map| self.write(&map));
        if let Err(error) = kept {
            self.unkept = true;
            tracing::warn!(%error, "the map is not kept");
        }
    }

    /// Writes the map where it has changed.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        match self.device.new_map() {
            Some(map) => self.write(&map),
            None if self.unkept => self.write(&self.device.map()),
            None => Ok(()),
        }
    }

    fn write(&self, map: &Mapfile) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        map.write(file).map_err(|e| io::Error::new(e.kind(), format!("cannot write {}: {e}", file.display())))
    }

    /// Bytes of the device that could not be read, now or before.
    pub(crate) fn bad_bytes(&self) -> u64 {
        self.device.bad_bytes()
    }
}
