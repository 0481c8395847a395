//! The device that files are copied from, and the map of its bad blocks.

use crate::exit::Coded;
use crate::target::{self, Target};
use crate::{damaged, partitions, size};
use anyhow::{Context, Result, bail};
use medfs_device::{BlockDevice, Mapfile, MappedDevice, read_block};
use medfs_format::BLOCK_SIZE;
use medfs_format::superblock::RawSuperblock;
use medfs_rescue::salvage::whole_length;
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
    /// Bytes of the volume behind the end of the device.
    missing_bytes: u64,
    file: Option<PathBuf>,
    kept: Instant,
    /// The last map could not be written.
    unkept: bool,
}

/// Refuses a map that is not there, where none is begun: a mistyped name would let zeros count as content.
pub(crate) fn must_exist(file: Option<&Path>, code: u8) -> Result<()> {
    let Some(missing) = file.filter(|file| !file.exists()) else { return Ok(()) };
    let begins = "name an existing one, or begin one with 'medfs get --map'";
    Err(Coded::new(code, format!("there is no map {}: {begins}", missing.display())).into())
}

/// Opens a device to copy from, with the map in a file, where one is wanted. `may_be_cut`: the image may end
/// before the device whose map it is, though no superblock says so.
pub(crate) fn open(
    image: &Path,
    file: Option<&Path>,
    retry: bool,
    may_be_cut: bool,
) -> Result<(Spared, Keeper)> {
    let device = target::open_to_read(image)?;
    over(device, image, (file, retry), may_be_cut, MappedDevice::new)
}

/// The same over a device that was opened. `made`: what makes it a spared one.
fn over(
    device: Target,
    image: &Path,
    (file, retry): (Option<&Path>, bool),
    may_be_cut: bool,
    made: impl Fn(Target, Mapfile, bool) -> MappedDevice<Target>,
) -> Result<(Spared, Keeper)> {
    file.into_iter().for_each(damaged::with_map);
    let missing_bytes = whole_length(device.clone()).missing() * BLOCK_SIZE as u64;
    let known = match file {
        Some(file) => {
            Mapfile::read(file).with_context(|| format!("cannot use the map {}", file.display()))?
        }
        None => None,
    };
    let bytes = device.block_count() * BLOCK_SIZE as u64;
    let (map, start) = match (known, file) {
        (Some(known), Some(file)) => {
            let may_be_cut = may_be_cut || missing_bytes > 0;
            let start = place_in(&known, partitions::start_of(image), bytes, may_be_cut);
            let start = start.with_context(|| format!("cannot use the map {}", file.display()))?;
            (known.extended(start + bytes), start)
        }
        _ => (Mapfile::new(bytes), 0),
    };
    let of = map.volume().map(str::to_owned);
    let device = Arc::new(made(device, map, retry).starting_at(start));
    match (of, volume_on(&*device), file) {
        (Some(of), Some(volume), Some(file)) if of != volume => {
            let (file, image) = (file.display(), image.display());
            bail!("cannot use the map {file}: it is of volume {of}, and {image} holds volume {volume}");
        }
        (None, Some(volume), _) => device.set_volume(&volume),
        _ => {}
    }
    let keeper = Keeper {
        device: device.clone(),
        missing_bytes,
        file: file.map(Path::to_owned),
        kept: Instant::now(),
        unkept: false,
    };
    if let Some(file) = file
        && !file.exists()
    {
        // Now, rather than after hours of reading.
        keeper.write(&device.map())?;
        errln!("medfs get: {} does not exist: a new map begins there", file.display());
    }
    Ok((device, keeper))
}

/// The byte of a map at which a device of so many bytes begins. `start`: where that begins on its disk, or in the image
/// of one: a map that is longer than the device, and goes on to its end there, is of the disk.
fn place_in(map: &Mapfile, start: u64, bytes: u64, may_be_cut: bool) -> io::Result<u64> {
    if start > 0 && map.check_fits(bytes, false).is_err() && map.reaches(start, bytes) {
        return Ok(start);
    }
    map.check_fits(bytes, may_be_cut).map(|()| 0)
}

/// Does something with a device that may be written to, past the bad blocks of the map in a file, where there is one.
/// What was learned of the device, and written to it, is kept in the map, whatever else failed.
pub(crate) fn past<T>(
    file: Option<&Path>,
    image: &Path,
    device: Target,
    what: impl FnOnce(Target) -> Result<T>,
) -> Result<T> {
    if file.is_none() {
        return what(device);
    }
    let writable = |device, map, _| MappedDevice::writable(device, map);
    let (device, mut keeper) = over(device, image, (file, false), true, writable)?;
    let done = what(device);
    let kept = keeper.finish();
    let done = done?;
    kept?;
    Ok(done)
}

/// The UUID of the volume on a device, where a superblock can be read.
fn volume_on(device: &dyn BlockDevice) -> Option<String> {
    let uuid = |copy| {
        let block = read_block(device, copy).ok()?;
        let sb = RawSuperblock::in_block(&block);
        sb.validate().is_ok().then(|| uuid::Uuid::from_bytes(sb.uuid).to_string())
    };
    uuid(0).or_else(|| uuid(1))
}

impl Keeper {
    /// Writes the map where it has changed, now and then. What cannot be kept now may be at the end: nothing
    /// else waits for it.
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
        match self.device.changed_map() {
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

    /// Bytes of the volume behind the end of the device: it was cut short.
    pub(crate) fn missing_bytes(&self) -> u64 {
        self.missing_bytes
    }

    /// Says that the device was cut short, where it was, and what else.
    pub(crate) fn tell_missing(&self, command: &str, image: &Path, more: &str) {
        if self.missing_bytes > 0 {
            let (image, missing) = (image.display(), size::show(self.missing_bytes));
            errln!(
                "medfs {command}: {image} was cut short: the last {missing} of its volume are missing{more}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_of_the_device_or_of_its_disk() {
        const MIB: u64 = 1 << 20;
        let of = |bytes| Mapfile::new(bytes);
        let place = |map: &Mapfile, start, may_be_cut| place_in(map, start, 64 * MIB, may_be_cut).ok();
        // Of the device itself, wherever that begins.
        assert_eq!((place(&of(64 * MIB), 0, false), place(&of(64 * MIB), 4 * MIB, true)), (Some(0), Some(0)));
        // Of the disk, on which other partitions may follow; of a device that begins where its disk does, or of none.
        for may_be_cut in [false, true] {
            for end in [68 * MIB, 68 * MIB - 512, 200 * MIB] {
                assert_eq!(place(&of(end), 4 * MIB, may_be_cut), Some(4 * MIB), "{end}");
            }
            assert_eq!(place(&of(68 * MIB), 0, may_be_cut), may_be_cut.then_some(0));
            // Too short to be of the disk.
            assert_eq!(place(&of(66 * MIB), 4 * MIB, may_be_cut), may_be_cut.then_some(0));
            assert_eq!(place(&of(60 * MIB), 4 * MIB, may_be_cut), None);
        }
    }
}
