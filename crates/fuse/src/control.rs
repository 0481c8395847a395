//! Reaching the daemon of a mounted volume through the mount itself: private ioctls on any of its
//! directories, and on a file about itself.
//!
//! The kernel's `sync(2)` does not reach a daemon on a plain `fuse` mount, and statistics have no other way out that
//! needs no file of its own. Anyone who can open the directory may ask, as with `sync(2)` and `statfs(2)`.

use crate::error::{Error, Result};
use rustix::ioctl::{Getter, NoArg, Opcode, Updater, opcode};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

pub use crate::connection::{abort_file, find_mount};
pub use medfs_device::mounts::MountEntry;

/// The group of our ioctl numbers.
const GROUP: u8 = 0xed;
/// Reads [`MAGIC`].
pub(crate) const IDENTIFY: Opcode = opcode::read::<u32>(GROUP, 0);
/// Makes everything durable.
pub(crate) const SYNC: Opcode = opcode::none(GROUP, 1);
/// Reads a piece of the statistics.
pub(crate) const STATS: Opcode = opcode::read_write::<StatsPage>(GROUP, 2);
/// Reads a piece of what is known of a file: asked of the file itself.
pub(crate) const FILE_STATS: Opcode = opcode::read_write::<StatsPage>(GROUP, 3);
/// Power may fail: see [`power`].
pub(crate) const POWER_LOW: Opcode = opcode::none(GROUP, 4);
/// Power is back.
pub(crate) const POWER_OK: Opcode = opcode::none(GROUP, 5);
/// Trains the decision tree anew, and reads a piece of what came of it: see [`retrain_json`].
pub(crate) const RETRAIN: Opcode = opcode::read_write::<StatsPage>(GROUP, 6);
/// Makes all durable that waits of the app of the file or directory that is asked.
pub(crate) const SYNC_APP: Opcode = opcode::none(GROUP, 7);
/// A user did something: see [`note_user`].
pub(crate) const USER: Opcode = opcode::none(GROUP, 8);
/// What [`IDENTIFY`] answers.
pub(crate) const MAGIC: u32 = 0x6d65_6466;
/// Bytes of statistics in one piece; an ioctl's structure is below 16 KiB.
pub(crate) const STATS_PAGE_SIZE: usize = 8176;
/// Statistics longer than this are an error, not an allocation.
const STATS_SIZE_MAX: u32 = 16 << 20;

/// One piece of the statistics.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct StatsPage {
    /// Which snapshot the piece is from; 0 asks for a new one.
    pub(crate) snapshot: u32,
    /// Where the piece begins.
    pub(crate) offset: u32,
    /// Bytes of the whole.
    pub(crate) total: u32,
    /// Bytes of the piece.
    pub(crate) len: u32,
    pub(crate) data: [u8; STATS_PAGE_SIZE],
}

/// Opens a directory and makes sure that a medfs daemon answers for it.
fn open(dir: &Path) -> Result<File> {
    open_as(dir, libc::O_DIRECTORY)
}

/// The same of whatever may be opened with these flags.
fn open_as(dir: &Path, flags: i32) -> Result<File> {
    let file = File::options()
        .read(true)
        .custom_flags(flags)
        .open(dir)
        .map_err(|source| Error::Open { path: dir.to_owned(), source })?;
    match identify(&file) {
        Ok(MAGIC) => Ok(file),
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            Err(Error::Open { path: dir.to_owned(), source: error })
        }
        _ => Err(Error::NotMedfs(dir.to_owned())),
    }
}

#[allow(unsafe_code)]
fn identify(file: &File) -> io::Result<u32> {
    // SAFETY: the number says that 4 bytes are read into a u32; another file system's driver that knows it (none does)
    // would write as many.
    Ok(unsafe { rustix::ioctl::ioctl(file, Getter::<IDENTIFY, u32>::new()) }?)
}

#[allow(unsafe_code)]
fn sync_ioctl(file: &File) -> io::Result<()> {
    // SAFETY: the number says that there is no argument.
    Ok(unsafe { rustix::ioctl::ioctl(file, NoArg::<SYNC>::new()) }?)
}

#[allow(unsafe_code)]
fn sync_app_ioctl(file: &File) -> io::Result<()> {
    // SAFETY: the number says that there is no argument.
    Ok(unsafe { rustix::ioctl::ioctl(file, NoArg::<SYNC_APP>::new()) }?)
}

#[allow(unsafe_code)]
fn user_ioctl(file: &File) -> io::Result<()> {
    // SAFETY: the number says that there is no argument.
    Ok(unsafe { rustix::ioctl::ioctl(file, NoArg::<USER>::new()) }?)
}

#[allow(unsafe_code)]
fn power_ioctl(file: &File, low: bool) -> io::Result<()> {
    // SAFETY: the numbers say that there is no argument.
    Ok(unsafe {
        match low {
            true => rustix::ioctl::ioctl(file, NoArg::<POWER_LOW>::new()),
            false => rustix::ioctl::ioctl(file, NoArg::<POWER_OK>::new()),
        }
    }?)
}

#[allow(unsafe_code)]
fn stats_ioctl(file: &File, page: &mut StatsPage) -> io::Result<()> {
    // SAFETY: the number carries the size of StatsPage, which is plain bytes.
    Ok(unsafe { rustix::ioctl::ioctl(file, Updater::<STATS, StatsPage>::new(page)) }?)
}

#[allow(unsafe_code)]
fn file_stats_ioctl(file: &File, page: &mut StatsPage) -> io::Result<()> {
    // SAFETY: the number carries the size of StatsPage, which is plain bytes.
    Ok(unsafe { rustix::ioctl::ioctl(file, Updater::<FILE_STATS, StatsPage>::new(page)) }?)
}

#[allow(unsafe_code)]
fn retrain_ioctl(file: &File, page: &mut StatsPage) -> io::Result<()> {
    // SAFETY: the number carries the size of StatsPage, which is plain bytes.
    Ok(unsafe { rustix::ioctl::ioctl(file, Updater::<RETRAIN, StatsPage>::new(page)) }?)
}

/// Whether a directory is on a mounted medfs volume.
pub fn is_medfs(dir: &Path) -> Result<bool> {
    match open(dir) {
        Ok(_) => Ok(true),
        Err(Error::NotMedfs(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a file can be opened and is one of a mounted medfs volume. A FIFO is not waited for.
pub fn is_file_of_medfs(path: &Path) -> bool {
    open_as(path, libc::O_NONBLOCK).is_ok()
}

/// Has the kernel begin to write its page cache back. An error may be of earlier writes: it is told when what the
/// volume took is durable.
fn begin_to_write_back(file: &File) -> impl FnOnce() -> Result<()> {
    let begun = rustix::fs::syncfs(file).map_err(io::Error::from);
    || begun.map_err(Error::io("not all that was written reached the volume, what it took is durable"))
}

/// Makes everything durable that was written to the volume a directory is on.
pub fn sync(dir: &Path) -> Result<()> {
    let file = open(dir)?;
    let begun = begin_to_write_back(&file);
    sync_ioctl(&file).map_err(Error::io("syncing the volume"))?;
    begun()
}

/// Makes everything durable that was written of the app that a file or directory of a mounted volume belongs to. What
/// others wrote may be durable then or not. A FIFO is not waited for.
pub fn sync_app(path: &Path) -> Result<()> {
    let file = open_as(path, libc::O_NONBLOCK)?;
    let begun = begin_to_write_back(&file);
    sync_app_ioctl(&file).map_err(Error::io("syncing the app"))?;
    begun()
}

/// Power may fail (`low`): everything is made durable, and until power is back each fsync before it returns.
/// The user who mounted the volume may say so, the owner of its root directory, and root.
pub fn power(dir: &Path, low: bool) -> Result<()> {
    let file = open(dir)?;
    let begun = low.then(|| begin_to_write_back(&file));
    power_ioctl(&file, low).map_err(Error::io("telling the daemon of the power"))?;
    begun.map_or(Ok(()), |begun| begun())
}

/// A user did something: commits of the volume a directory is on wait for a pause of the user from now on. `false`
/// where they wait for no pauses. Those may say so who may use [`power`].
pub fn note_user(dir: &Path) -> Result<bool> {
    match user_ioctl(&open(dir)?) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
        noted => noted.map(|()| true).map_err(Error::io("telling the daemon of the user")),
    }
}

/// The statistics of the volume a directory is on, as JSON.
pub fn stats_json(dir: &Path) -> Result<String> {
    whole(&open(dir)?, stats_ioctl).map_err(Error::io("reading statistics"))
}

/// What is known of a file of a mounted volume, as JSON. A FIFO is not waited for.
pub fn file_stats_json(path: &Path) -> Result<String> {
    whole(&open_as(path, libc::O_NONBLOCK)?, file_stats_ioctl).map_err(Error::io("reading statistics"))
}

/// Trains the decision tree of the volume a directory is on anew; what came of it, as JSON. `None` where no
/// tree chooses files there. Those may ask who may use [`power`].
pub fn retrain_json(dir: &Path) -> Result<Option<String>> {
    match whole(&open(dir)?, retrain_ioctl) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        trained => trained.map(Some).map_err(Error::io("training the decision tree")),
    }
}

/// All pieces of what is told in pieces.
fn whole(file: &File, ioctl: fn(&File, &mut StatsPage) -> io::Result<()>) -> io::Result<String> {
    const ATTEMPTS_MAX: usize = 10;
    for _ in 0..ATTEMPTS_MAX {
        match read_stats(file, ioctl) {
            // Someone else asked meanwhile and the snapshot is gone: begin again.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            Err(error) => return Err(error),
            Ok(bytes) => return String::from_utf8(bytes).map_err(io::Error::other),
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

fn read_stats(file: &File, ioctl: fn(&File, &mut StatsPage) -> io::Result<()>) -> io::Result<Vec<u8>> {
    let mut page = StatsPage::new_box_zeroed().map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = Vec::new();
    loop {
        page.offset = bytes.len() as u32;
        ioctl(file, &mut page)?;
        let piece = page.data.get(..page.len as usize).ok_or(io::ErrorKind::InvalidData)?;
        bytes.extend_from_slice(piece);
        if bytes.len() >= page.total as usize {
            return Ok(bytes);
        }
        if piece.is_empty() || page.total > STATS_SIZE_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Unmounts the volume mounted on a directory. [`Error::Busy`] where it is in use, unless its daemon is gone:
/// then nothing more can be written, and it is taken out of sight.
pub fn unmount(dir: &Path) -> Result<()> {
    match crate::mount::detach(dir, false) {
        Err(Error::Busy(_)) if is_abandoned(dir) => crate::mount::detach(dir, true),
        other => other,
    }
}

/// Takes the volume mounted on a directory out of sight at once, though its files may be in use.
pub fn unmount_lazy(dir: &Path) -> Result<()> {
    crate::mount::detach(dir, true)
}

/// Whether the daemon of what is mounted on a directory is gone.
pub fn is_abandoned(dir: &Path) -> bool {
    let gone = [libc::ENOTCONN, libc::ECONNABORTED];
    let metadata = std::fs::metadata(dir).err().and_then(|error| error.raw_os_error());
    // The kernel may know the attributes without asking.
    let statfs = rustix::fs::statfs(dir).err().map(|error| error.raw_os_error());
    metadata.or(statfs).is_some_and(|error| gone.contains(&error))
}
