//! Opening images and devices, with errors that say what is wrong and what would do.

use crate::content::Content;
use crate::exit::Coded;
use crate::{damaged, partitions, size, survivor};
use anyhow::{Context, Result, bail};
use medfs::{Clock, MountOptions, Survivor, SystemClock, Volume};
use medfs_device::quote::{self, hint};
use medfs_device::{Access, BlockDevice, FileDevice, FileOptions, read_block};
use medfs_flash::{FlashDevice, FlashTarget};
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{BLOCK_SIZE, Block, weigh};
use medfs_rescue::salvage::whole_length;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
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

/// What is said of a directory that is named in place of an image.
fn is_directory(path: &Path) -> Option<anyhow::Error> {
    if !path.is_dir() {
        return None;
    }
    let dir = path.canonicalize().ok()?;
    let mount = medfs_fuse::control::find_mount(&dir).ok().flatten()?;
    let (shown, end) = (path.display(), hint(format_args!("medfs umount {}", quote::path(path))));
    let source = mount.source.display();
    Some(anyhow::anyhow!(
        "{source} is mounted on {shown}: use its files there, with ls, cp and the like, or unmount it first with {end}"
    ))
}

/// Refuses an order in which the volume does not come first, and says which command is meant. `words`: what was
/// named behind it.
pub(crate) fn image_first(command: &str, image: &Path, words: &[PathBuf], code: u8) -> Result<()> {
    let is_volume = |path: &Path| {
        let device = open_to_look(path).ok()?;
        (0..2).find(|at| read_block(&*device, *at).is_ok_and(|block| is_superblock(&block)))
    };
    if image.is_file() || FlashTarget::parse(image)?.is_some() || open_to_look(image).is_ok() {
        return Ok(());
    }
    let Some(at) = words.iter().position(|path| path.is_file() && is_volume(path).is_some()) else {
        return Ok(());
    };
    let volume = quote::path(&words[at]);
    let named = [image].into_iter().chain(words.iter().map(PathBuf::as_path));
    let mut rest: Vec<&Path> = named.filter(|path| *path != words[at]).collect();
    // What is absolute is the volume's, rather than this machine's.
    rest.sort_by_key(|path| !path.is_absolute());
    let rest: Vec<String> = rest.into_iter().map(quote::path).collect();
    let way = hint(format_args!("medfs {command} {volume} {}", rest.join(" ")));
    Err(Coded::new(code, format!("the image or device comes first: {way}")).into())
}

/// Says of a device that a user may not open who may, and of one that nobody may write what protects it.
fn who_may(error: io::Error, path: &Path) -> anyhow::Error {
    let is_device = || path.metadata().is_ok_and(|meta| meta.file_type().is_block_device());
    let reason = || crate::exit::without_numbers(&error.to_string());
    let shown = path.display();
    if let Some(mounted) = is_directory(path) {
        return mounted;
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied if is_device() => {
            let group = path.metadata().ok().filter(|meta| meta.mode() & 0o060 == 0o060 && meta.gid() != 0);
            let and = group.map(|meta| format!(" and the group {}", name_of("/etc/group", meta.gid())));
            let and = and.unwrap_or_default();
            anyhow::anyhow!("{}: only root{and} may use this device (try sudo)", reason())
        }
        io::ErrorKind::PermissionDenied if is_immutable(path) => anyhow::anyhow!(
            "{shown} is write-protected: it has the attribute 'immutable', which {} takes off",
            hint(format_args!("chattr -i {}", quote::path(path)))
        ),
        io::ErrorKind::PermissionDenied if File::open(path).is_ok() => {
            anyhow::anyhow!("{shown} is write-protected: this user may only read it (chmod, or sudo)")
        }
        io::ErrorKind::PermissionDenied => match path.metadata() {
            Ok(meta) => {
                let owner = name_of("/etc/passwd", meta.uid());
                anyhow::anyhow!("{}: the file belongs to {owner} (chmod, or sudo)", reason())
            }
            Err(_) => anyhow::anyhow!("{}: a directory above it is closed to this user (try sudo)", reason()),
        },
        io::ErrorKind::ReadOnlyFilesystem if is_device() => anyhow::anyhow!(
            "{shown} is write-protected: by the lock switch of the card, by its system ({} allows writes), or by the card \
             itself, as worn-out ones do for good ({} copies its files)",
            hint(format_args!("blockdev --setrw {}", quote::path(path))),
            hint(format_args!("medfs get -r {} / DIRECTORY", quote::path(path)))
        ),
        io::ErrorKind::ReadOnlyFilesystem => {
            anyhow::anyhow!("{shown} is write-protected: the file system that it is on is mounted read-only")
        }
        _ => error.into(),
    }
}

/// Whether a file has the attribute that lets not even root write it.
fn is_immutable(path: &Path) -> bool {
    let flags = File::open(path).ok().and_then(|file| rustix::fs::ioctl_getflags(file).ok());
    flags.is_some_and(|flags| flags.contains(rustix::fs::IFlags::IMMUTABLE))
}

/// The name of a user or a group in /etc/passwd or /etc/group; the number where it has none there.
fn name_of(list: &str, id: u32) -> String {
    let list = std::fs::read_to_string(list).unwrap_or_default();
    let is_it = |line: &&str| line.split(':').nth(2).is_some_and(|field| field.parse() == Ok(id));
    let name = list.lines().find(is_it).and_then(|line| line.split(':').next());
    name.map_or_else(|| id.to_string(), str::to_owned)
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
    survivor::resolve(&mut options, &*dev);
    explain_no_volume(&*dev, path)?;
    Volume::open(dev, options, clock).with_context(|| format!("cannot open {}", path.display()))
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
    let volume = open_volume(dev.clone(), path, options).map_err(|error| match error.downcast_ref() {
        Some(medfs::Error::Incompatible(_)) => refuse_cut_short(dev, path).err().unwrap_or(error),
        _ => helpful(error, false, path),
    })?;
    volume.train_with(Box::new(medfs_ars::Retrainer));
    Ok(volume)
}

/// Fails, and says what copies the files, where an image ends before its volume does.
pub(crate) fn refuse_cut_short(dev: Target, path: &Path) -> Result<()> {
    let whole = whole_length(dev.clone());
    match whole.missing() * BLOCK_SIZE as u64 {
        0 => Ok(()),
        missing => {
            let (missing, all) = (size::show(missing), size::show(whole.block_count() * BLOCK_SIZE as u64));
            let opens = || open_volume_without_log(dev.clone(), path);
            let quietly = tracing::subscriber::NoSubscriber::default();
            let copies = match tracing::subscriber::with_default(quietly, opens) {
                Ok(_) => damaged::copies_what_is_left(path),
                Err(_) => damaged::salvage_copies(path),
            };
            bail!("{} was cut short: the last {missing} of its {all} are missing; {copies}", path.display())
        }
    }
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
    let (result, closed) = with_volume_to_end(path, work)?;
    let value = result?;
    closed?;
    Ok(value)
}

/// The same, and both what became of the work and of the close: where that fails, the volume lacks what was done since
/// its last checkpoint.
pub(crate) fn with_volume_to_end<T>(
    path: &Path,
    work: impl FnOnce(&Volume) -> Result<T>,
) -> Result<(Result<T>, Result<()>)> {
    let volume = open_volume_to_mount(open_to_write(path)?, path, MountOptions::default())?;
    let result = work(&volume);
    let closed = volume.close().with_context(|| format!("cannot finish writing {}", path.display()));
    Ok((result, closed))
}

/// Says of a device that there is nothing on it which a salvage knows.
pub(crate) fn explain_nothing_to_salvage(dev: &dyn BlockDevice, path: &Path) -> Result<()> {
    explain_too_short(dev, path)?;
    refuse_read_only_layout(dev, path)
}

/// Says that there cannot even be both copies of a superblock.
fn explain_too_short(dev: &dyn BlockDevice, path: &Path) -> Result<()> {
    if dev.block_count() < 2 {
        bail!("{} is too short for an F2FS volume: it has less than 8 KiB", path.display());
    }
    Ok(())
}

/// Whether medfs can write the volume on a device, as far as its features go.
pub(crate) fn can_be_written(dev: &dyn BlockDevice) -> bool {
    in_force(dev).is_none_or(|sb| medfs::can_be_written(sb.feature.get()))
}

/// Whether a block says that it is the superblock of a volume that medfs may know.
pub(crate) fn is_superblock(block: &Block) -> bool {
    RawSuperblock::in_block(block).has_magic()
}

/// Refuses a volume of F2FS's read-only layout, as `mkfs.f2fs -O ro` makes it: it has no summaries, and two logs
/// rather than six. The same of one over several devices.
fn refuse_read_only_layout(dev: &dyn BlockDevice, path: &Path) -> Result<()> {
    let is_it = |sb: &RawSuperblock| sb.features().contains(Feature::RO) && sb.segment_count_ssa.get() == 0;
    if is_said_of(dev, is_it) {
        let path = path.display();
        bail!(
            "{path} has the feature ro, whose layout medfs does not support: mount it with the kernel's f2fs"
        );
    }
    if spans_several_devices(dev) {
        bail!(
            "the volume on {} spans several devices, which medfs does not support: mount it with the kernel's f2fs",
            path.display()
        );
    }
    Ok(())
}

/// Whether the superblock that counts names a device and segments on it: a path alone is a flipped bit. Where no copy
/// is valid, either counts.
fn spans_several_devices(dev: &dyn BlockDevice) -> bool {
    let spans = |sb: &RawSuperblock| sb.devs[0].path[0] != 0 && sb.devs[0].total_segments.get() != 0;
    in_force(dev).map_or_else(|| is_said_of(dev, spans), |sb| spans(&sb))
}

/// The superblock that counts, where a copy of it is valid.
pub(crate) fn in_force(dev: &dyn BlockDevice) -> Option<RawSuperblock> {
    let copies: Vec<Box<Block>> = (0..2).filter_map(|at| read_block(dev, at).ok()).collect();
    let copies = copies.iter().map(|block| RawSuperblock::in_block(block));
    let valid: Vec<&RawSuperblock> = copies.filter(|sb| sb.validate().is_ok()).collect();
    // A block of the volume that cannot be read speaks for no copy.
    weigh::in_force(&valid, &mut |addr| Ok::<_, io::Error>(read_block(dev, addr.into()).ok())).ok().flatten()
}

/// Whether something is so of a copy of the superblock that says that it is one, and has no wrong checksum.
fn is_said_of(dev: &dyn BlockDevice, what: impl Fn(&RawSuperblock) -> bool) -> bool {
    let said = |block: Box<Block>| is_credible_superblock(&block) && what(RawSuperblock::in_block(&block));
    (0..2).any(|at| read_block(dev, at).is_ok_and(&said))
}

/// Whether a block says that it is a superblock, and what it says is to be believed.
pub(crate) fn is_credible_superblock(block: &Block) -> bool {
    is_superblock(block) && !RawSuperblock::in_block(block).has_wrong_checksum()
}

/// Says what is on a device that is no volume, rather than which field of a superblock is wrong.
pub(crate) fn explain_no_volume(dev: &dyn BlockDevice, path: &Path) -> Result<()> {
    explain_too_short(dev, path)?;
    refuse_read_only_layout(dev, path)?;
    let (image, word, path) = (path, quote::path(path), path.display());
    let mut blocks = [Block::boxed(), Block::boxed()];
    let read: Vec<io::Result<()>> =
        (0..).zip(&mut blocks).map(|(at, block)| dev.read(at, &mut [block])).collect();
    if is_superblock(&blocks[0]) {
        return Ok(());
    }
    if let Some(what) = begins_elsewhere(dev, image) {
        bail!("{what}");
    }
    if is_superblock(&blocks[1]) {
        return Ok(());
    }
    for unreadable in read {
        unreadable
            .with_context(|| format!("cannot read {path}"))
            .map_err(|error| with_help(&error, image))?;
    }
    if blocks[0].0.starts_with(&medfs_flash::format::MAGIC) {
        bail!(
            "{path} is the file of a simulated flash device: its volume is {}",
            hint(format_args!("flash:{word}"))
        );
    }
    match instead(dev, image) {
        Some(what) => bail!("{what}"),
        None if medfs_fsck::shows_volume(dev)? => bail!(
            "{path} holds an F2FS volume whose superblocks are lost: {}, then {} rebuilds them",
            damaged::salvage_copies(image),
            hint(format_args!("medfs fsck --repair --undo FILE {}{word}", damaged::map_option()))
        ),
        None if medfs_fsck::shows_nodes(dev)? => bail!("{}", beginning_lost(image)),
        None if image.is_file() && Content::of(image).is_ok_and(|content| content == Content::Zeros) => {
            bail!(
                "{path} holds zeros and no F2FS volume: if it had files, 'medfs help damaged' says what to do; {} makes a new one",
                hint(format_args!("medfs mkfs {word}"))
            )
        }
        None => match compressed(&blocks[0]) {
            Some(by) => {
                bail!("{path} is compressed ({by}): decompress it first, and name the image that comes out")
            }
            None => bail!("{path} holds no F2FS volume; {IS_IT_THE_RIGHT_ONE}"),
        },
    }
}

/// That nothing but nodes is left of a volume, and what brings its files.
pub(crate) fn beginning_lost(image: &Path) -> String {
    let shown = image.display();
    format!("{shown} holds an F2FS volume whose beginning is lost: {}", damaged::salvage_copies(image))
}

/// By what an image is compressed that begins like this, as backups of cards are.
fn compressed(block: &Block) -> Option<&'static str> {
    let found = infer::get(&block.0)?.extension();
    ["gz", "xz", "zst", "bz2", "lz4", "zip", "7z"].into_iter().find(|by| *by == found)
}

/// What helps where nothing of a volume is found.
pub(crate) const IS_IT_THE_RIGHT_ONE: &str =
    "is it the right partition or image? 'medfs help damaged' says what to do about a damaged card";

/// That the volume of a device does not begin where the device does, and what does.
pub(crate) fn begins_elsewhere(dev: &dyn BlockDevice, image: &Path) -> Option<String> {
    let begin = medfs_fsck::begins_at(dev).ok().flatten()?;
    let path = image.display();
    Some(match partitions::of(image).into_iter().find(|partition| partition.start == begin) {
        Some(partition) => {
            let device = quote::path(&partition.device);
            format!("{path} is a whole disk, and its F2FS volume is the partition {device}: name that")
        }
        None => format!(
            "{path} holds an F2FS volume that begins at byte {begin}: {} makes a read-only device of it, and without -r a writable one",
            hint(format_args!("losetup -r -o {begin} --show -f {}", quote::path(image)))
        ),
    })
}

/// What else than a volume a device holds, where that is known.
pub(crate) fn instead(dev: &dyn BlockDevice, image: &Path) -> Option<String> {
    let what = medfs_mkfs::probe::find_past_damage(dev)?;
    let holds = format!("{} holds {what}, not an F2FS volume", image.display());
    if !what.contains("partition table") {
        let is_over =
            medfs_fsck::shows_volume(dev).unwrap_or(false) || medfs_fsck::shows_nodes(dev).unwrap_or(false);
        let salvage = damaged::salvage(image);
        return Some(match is_over {
            true => format!(
                "{holds}; if that was made by mistake over an F2FS volume, {salvage} copies what is left of its files"
            ),
            false => holds,
        });
    }
    let all: Vec<String> = partitions::of(image).iter().map(|part| quote::path(&part.device)).collect();
    Some(match all.is_empty() {
        false => format!("{holds}: name a partition of it, {}", all.join(" or ")),
        true => format!(
            "{holds}: name a partition of it; {} makes devices of those of an image",
            hint(format_args!("losetup -fP --show {}", quote::path(image)))
        ),
    })
}

/// What else was made of a device that holds what is left of a volume, where that is known: it begins as that does.
pub(crate) fn made_over(dev: &dyn BlockDevice) -> Option<&'static str> {
    if read_block(dev, 0).is_ok_and(|block| is_superblock(&block)) {
        return None;
    }
    let is_other = |what: &&str| !["partition table", "F2FS", "medfs"].iter().any(|part| what.contains(part));
    medfs_mkfs::probe::find_past_damage(dev).filter(is_other)
}

/// The same before a check, which needs no superblock where the volume shows what was in it, and nothing else
/// has been made of the device since.
pub(crate) fn explain_nothing_to_check(dev: &dyn BlockDevice, path: &Path) -> Result<()> {
    refuse_read_only_layout(dev, path)?;
    let Err(why) = explain_no_volume(dev, path) else { return Ok(()) };
    let mut first = Block::boxed();
    let is_flash = dev.block_count() > 0
        && dev.read(0, &mut [&mut first]).is_ok()
        && first.0.starts_with(&medfs_flash::format::MAGIC);
    let is_other = is_flash || medfs_mkfs::probe::find_past_damage(dev).is_some();
    if is_other || !medfs_fsck::shows_volume(dev)? { Err(why) } else { Ok(()) }
}
