//! Opening images and devices, with errors that say what is wrong and what would do.

use crate::content::Content;
use crate::{damaged, survivor};
use anyhow::{Context, Result, bail};
use medfs::{Clock, MountOptions, Survivor, SystemClock, Volume};
use medfs_device::quote::{self, hint};
use medfs_device::{Access, BlockDevice, FileDevice, FileOptions};
use medfs_flash::{FlashDevice, FlashTarget};
use medfs_format::Block;
use medfs_format::superblock::{self, RawSuperblock};
use medfs_rescue::salvage::whole_length;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A device of any kind.
pub(crate) type Target = Arc<dyn BlockDevice>;

/// How long a command waits for a user of its device that is about to let go of it, without a word and at most.
const QUIET: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens a device, which may have to wait for a mount that is about to end; `open` is told how long.
pub(crate) fn patiently<T>(open: impl Fn(Duration) -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    match open(QUIET) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy && start.elapsed() >= QUIET => {
            errln!("medfs: {error}: waiting for up to {} seconds", PATIENCE.as_secs());
            open(PATIENCE)
        }
        other => other,
    }
}

/// Opens a flash device.
pub(crate) fn open_flash(flash: &FlashTarget) -> Result<Target> {
    let device = patiently(|patience| Ok(flash.open_device(patience)?))?;
    Ok(Arc::new(FlashDevice::new(device)))
}

/// Opens an image file or a block device, claimed.
pub(crate) fn open_claimed(path: &Path, access: Access) -> Result<FileDevice> {
    let options = FileOptions { access, ..FileOptions::default() };
    let opened = patiently(|patience| FileDevice::open(path, FileOptions { patience, ..options }));
    opened.map_err(|error| who_may(error, path))
}

/// Opens a device to read only. A flash device is opened as ever: it may have to recover from power loss.
pub(crate) fn open_to_read(path: &Path) -> Result<Target> {
    if let Some(flash) = FlashTarget::parse(path)? {
        return open_flash(&flash);
    }
    Ok(Arc::new(open_claimed(path, Access::ReadOnly)?))
}

/// Opens a device to look at, even while it is in use: what is seen may then change under the reader.
pub(crate) fn open_to_look(path: &Path) -> Result<Target> {
    if let Some(flash) = FlashTarget::parse(path)? {
        return open_flash(&flash);
    }
    let options = FileOptions { exclusive: false, ..FileOptions::read_only() };
    Ok(Arc::new(FileDevice::open(path, options).map_err(|error| who_may(error, path))?))
}

/// Says of a device that a user may not open who may, and of one that nobody may write what protects it.
fn who_may(error: io::Error, path: &Path) -> anyhow::Error {
    let is_device = || path.metadata().is_ok_and(|meta| meta.file_type().is_block_device());
    let reason = || crate::exit::without_numbers(&error.to_string());
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied if is_device() => {
            anyhow::anyhow!("{}: only root may use this device (try sudo)", reason())
        }
        io::ErrorKind::PermissionDenied if File::open(path).is_ok() => {
            anyhow::anyhow!("{shown} is write-protected: this user may only read it (chmod, or sudo)")
        }
        io::ErrorKind::ReadOnlyFilesystem if is_device() => anyhow::anyhow!(
            "{shown} is write-protected: check the lock switch of the card, or allow writes with {}",
            hint(format_args!("blockdev --setrw {}", quote::path(path)))
        ),
        io::ErrorKind::ReadOnlyFilesystem => {
            anyhow::anyhow!("{shown} is write-protected: the file system that it is on is mounted read-only")
        }
        _ => error.into(),
    }
}

/// Opens a device to read and write, with nobody else on it.
pub(crate) fn open_to_write(path: &Path) -> Result<Target> {
    match FlashTarget::parse(path)? {
        Some(flash) => open_flash(&flash),
        None => Ok(Arc::new(open_claimed(path, Access::ReadWrite)?)),
    }
}

/// Opens the volume on a device.
pub(crate) fn open_volume(dev: Target, path: &Path, options: MountOptions) -> Result<Volume> {
    open_volume_at(dev, path, options, Arc::new(SystemClock))
}

/// Opens the volume on a device, with a clock.
pub(crate) fn open_volume_at(
    dev: Target,
    path: &Path,
    mut options: MountOptions,
    clock: Arc<dyn Clock>,
) -> Result<Volume> {
    // To read only it tells of a log that it does not replay.
    survivor::resolve(&mut options);
    explain_no_volume(&*dev, path)?;
    Volume::open(dev, options, clock).with_context(|| format!("cannot open the volume on {}", path.display()))
}

/// Opens the volume on a device to read only, without changing a bit of it; of an image that was cut short,
/// what is there. Where it is too damaged, the error says what may help.
pub(crate) fn open_volume_read_only(dev: Target, path: &Path) -> Result<Volume> {
    open_to_read_with(dev, path, Survivor::Auto)
}

/// The same, and says nothing of a log that waits: for who has said so, or opens the volume to write next.
pub(crate) fn open_volume_without_log(dev: Target, path: &Path) -> Result<Volume> {
    open_to_read_with(dev, path, Survivor::Off)
}

fn open_to_read_with(dev: Target, path: &Path, survivor: Survivor) -> Result<Volume> {
    let options = MountOptions { read_only: true, survivor, ..MountOptions::default() };
    let device = Arc::new(whole_length(dev));
    let is_cut_short = device.missing() > 0;
    open_volume(device, path, options).map_err(|error| helpful(error, is_cut_short, path))
}

/// Opens the volume to mount it. Where it is too damaged, the error says what may help.
pub(crate) fn open_volume_to_mount(dev: Target, path: &Path, options: MountOptions) -> Result<Volume> {
    let opened = open_volume(dev.clone(), path, options);
    opened.map_err(|error| helpful(error, whole_length(dev).missing() > 0, path))
}

/// The error of a volume that does not open, with what may help where it is damaged.
fn helpful(error: anyhow::Error, is_cut_short: bool, path: &Path) -> anyhow::Error {
    match error.downcast_ref::<medfs::Error>() {
        Some(medfs::Error::Io(_) | medfs::Error::Corrupt(_)) => with_help(&error, path),
        Some(medfs::Error::Incompatible(_)) if is_cut_short => with_help(&error, path),
        // What is missing that every volume has.
        Some(medfs::Error::Posix(_)) => {
            with_help(&anyhow::anyhow!("the volume on {} is damaged", path.display()), path)
        }
        _ => error,
    }
}

fn with_help(error: &anyhow::Error, path: &Path) -> anyhow::Error {
    anyhow::anyhow!("{}; {}", crate::exit::sentence(error), damaged::salvage_copies(path))
}

/// Runs `work` on the volume in an image and closes it, whatever became of the work.
pub(crate) fn with_volume<T>(path: &Path, work: impl FnOnce(&Volume) -> Result<T>) -> Result<T> {
    let volume = open_volume_to_mount(open_to_write(path)?, path, MountOptions::default())?;
    let result = work(&volume);
    let closed = volume.close().with_context(|| format!("cannot finish writing {}", path.display()));
    let value = result?;
    closed?;
    Ok(value)
}

/// Says that there cannot even be both copies of a superblock.
pub(crate) fn explain_too_short(dev: &dyn BlockDevice, path: &Path) -> Result<()> {
    if dev.block_count() < 2 {
        bail!("{} is too short for an F2FS volume: it has less than 8 KiB", path.display());
    }
    Ok(())
}

/// Whether a block says that it is the superblock of a volume that medfs may know.
pub(crate) fn is_superblock(block: &Block) -> bool {
    [superblock::MAGIC, superblock::DELTA_MAGIC].contains(&RawSuperblock::in_block(block).magic.get())
}

/// Says what is on a device that is no volume, rather than which field of a superblock is wrong.
pub(crate) fn explain_no_volume(dev: &dyn BlockDevice, path: &Path) -> Result<()> {
    explain_too_short(dev, path)?;
    let (image, word, path) = (path, quote::path(path), path.display());
    let mut blocks = [Block::boxed(), Block::boxed()];
    let read: Vec<io::Result<()>> =
        (0..).zip(&mut blocks).map(|(at, block)| dev.read(at, &mut [block])).collect();
    if is_superblock(&blocks[0]) {
        return Ok(());
    }
    if let Ok(Some(begin)) = medfs_fsck::begins_at(dev) {
        bail!(
            "{path} holds an F2FS volume that begins at byte {begin}: {} makes a device of it",
            hint(format_args!("losetup -o {begin} --show -f {word}"))
        );
    }
    if is_superblock(&blocks[1]) {
        return Ok(());
    }
    for unreadable in read {
        unreadable.with_context(|| format!("cannot read {path}"))?;
    }
    if blocks[0].0.starts_with(&medfs_flash::format::MAGIC) {
        bail!(
            "{path} is the file of a simulated flash device: its volume is {}",
            hint(format_args!("flash:{word}"))
        );
    }
    match medfs_mkfs::probe::find_past_damage(dev) {
        Some(what) if what.contains("partition table") => bail!(
            "{path} holds {what}, not an F2FS volume: name a partition of it; {} makes devices of those of an image",
            hint(format_args!("losetup -fP --show {word}"))
        ),
        Some(what) => bail!("{path} holds {what}, not an F2FS volume"),
        None if medfs_fsck::shows_volume(dev)? => bail!(
            "{path} holds an F2FS volume whose superblocks are lost: {}, and {} rebuilds them",
            damaged::salvage_copies(image),
            hint(format_args!("medfs fsck --repair --undo FILE {word}"))
        ),
        None if image.is_file() && Content::of(image).is_ok_and(|content| content == Content::Zeros) => {
            bail!("{path} holds no F2FS volume: make one with {}", hint(format_args!("medfs mkfs {word}")))
        }
        None => bail!("{path} holds no F2FS volume"),
    }
}

/// The same before a check, which needs no superblock where the volume shows what was in it, and nothing else
/// has been made of the device since.
pub(crate) fn explain_nothing_to_check(dev: &dyn BlockDevice, path: &Path) -> Result<()> {
    let Err(why) = explain_no_volume(dev, path) else { return Ok(()) };
    let mut first = Block::boxed();
    let is_flash = dev.block_count() > 0
        && dev.read(0, &mut [&mut first]).is_ok()
        && first.0.starts_with(&medfs_flash::format::MAGIC);
    let is_other = is_flash || medfs_mkfs::probe::find_past_damage(dev).is_some();
    if is_other || !medfs_fsck::shows_volume(dev)? { Err(why) } else { Ok(()) }
}
