//! Attaching a connection to a directory and detaching it: by the kernel as root, `fusermount3` otherwise.

use crate::config::MountConfig;
use crate::connection;
use crate::error::{Error, Result};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// A block device that the kernel has claimed for a `fuseblk` mount, which is not to be seen yet. SYNCFS and
/// DESTROY of such a mount reach us.
///
/// The kernel has the device until [`crate::mount_block`]'s mount ends, or until this is dropped.
pub struct BlockMount {
    /// `/dev/fuse`. Dropped first: nothing would answer what the kernel sends when the rest goes.
    device: File,
    context: OwnedFd,
}

impl BlockMount {
    /// Has the kernel claim a block device. [`Error::InUse`] where it is mounted or claimed; this process
    /// must not have claimed it either. Any other error: it can only be mounted as an image can.
    pub fn claim(config: &MountConfig, block_device: &Path) -> Result<BlockMount> {
        let device = open_device()?;
        match block_context(config, block_device, &device) {
            // The kernel gave us the superblock of a mount that is there already, and our connection to nothing.
            Ok(_) if connection::has_ended(&device) => Err(Error::InUse(block_device.to_owned())),
            Ok(context) => Ok(BlockMount { device, context }),
            Err(Errno::BUSY) => Err(Error::InUse(block_device.to_owned())),
            Err(error) => Err(failed(config, error.into())),
        }
    }

    /// Shows the mount where the configuration says, and returns `/dev/fuse`.
    pub(crate) fn attach(self, config: &MountConfig) -> Result<File> {
        check_directory(config)?;
        let tree = fsmount(&self.context, FsMountFlags::FSMOUNT_CLOEXEC, attributes(config.flags));
        let attached = tree.and_then(|tree| {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
            move_mount(&tree, "", CWD, &config.mountpoint, flags)
        });
        match attached {
            Ok(()) => Ok(self.device),
            Err(error) => Err(failed(config, error.into())),
        }
    }
}

/// A `fuseblk` superblock of the device.
fn block_context(config: &MountConfig, block_device: &Path, device: &File) -> rustix::io::Result<OwnedFd> {
    let opened = fsopen("fuseblk", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let context = opened.as_fd();
    fsconfig_set_string(context, "source", block_device)?;
    fsconfig_set_string(context, "subtype", "medfs")?;
    fsconfig_set_string(context, "blksize", "4096")?;
    for option in kernel_options(config, device).split(',') {
        match option.split_once('=') {
            Some((name, value)) => fsconfig_set_string(context, name, value)?,
            None => fsconfig_set_flag(context, option)?,
        }
    }
    let of_superblock =
        [(MountFlags::RDONLY, "ro"), (MountFlags::SYNCHRONOUS, "sync"), (MountFlags::DIRSYNC, "dirsync")];
    for (_, name) in of_superblock.iter().filter(|(flag, _)| config.flags.contains(*flag)) {
        fsconfig_set_flag(context, *name)?;
    }
    fsconfig_create(context)?;
    Ok(opened)
}

/// What of `mount(2)`'s flags is of the mount rather than of its superblock.
fn attributes(flags: MountFlags) -> MountAttrFlags {
    let all = [
        (MountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ];
    let set = all.iter().filter(|(flag, _)| flags.contains(*flag));
    let times = match () {
        () if flags.contains(MountFlags::NOATIME) => MountAttrFlags::MOUNT_ATTR_NOATIME,
        () if flags.contains(MountFlags::STRICTATIME) => MountAttrFlags::MOUNT_ATTR_STRICTATIME,
        () => MountAttrFlags::empty(),
    };
    set.fold(times, |attributes, (_, attribute)| attributes | *attribute)
}

/// Mounts as the configuration says and returns `/dev/fuse`.
pub(crate) fn attach(config: &MountConfig) -> Result<File> {
    check_directory(config)?;
    if !rustix::process::geteuid().is_root() {
        return attach_by_helper(config);
    }
    let device = open_device()?;
    match mount(config, &config.source, "fuse.medfs", &kernel_options(config, &device)) {
        Ok(()) => Ok(device),
        // Root without the right to mount, as in a container: the set-uid helper may have it.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => attach_by_helper(config),
        Err(error) => Err(failed(config, error)),
    }
}

/// Refuses a mount point that is no directory.
fn check_directory(config: &MountConfig) -> Result<()> {
    let unusable = |source| Error::Mountpoint { path: config.mountpoint.clone(), source };
    let directory = std::fs::metadata(&config.mountpoint).map_err(unusable)?;
    if directory.is_dir() { Ok(()) } else { Err(unusable(io::ErrorKind::NotADirectory.into())) }
}

fn failed(config: &MountConfig, source: io::Error) -> Error {
    Error::Mount { source_name: config.source.clone(), path: config.mountpoint.clone(), source }
}

fn open_device() -> Result<File> {
    File::options().read(true).write(true).open("/dev/fuse").map_err(Error::Device)
}

/// The options `mount(2)` hands to the fuse driver.
fn kernel_options(config: &MountConfig, device: &File) -> String {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut options = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    if config.allow_other {
        options.push_str(",allow_other");
    }
    if config.default_permissions {
        options.push_str(",default_permissions");
    }
    options
}

fn mount(config: &MountConfig, source: &str, fs_type: &str, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    Ok(rustix::mount::mount(source, &config.mountpoint, fs_type, config.flags, options.as_c_str())?)
}

/// Mounts with `fusermount3`, which hands the descriptor over a socket.
fn attach_by_helper(config: &MountConfig) -> Result<File> {
    let failed =
        |message: String| Error::Fusermount { what: "mount on", path: config.mountpoint.clone(), message };
    let mut options = format!("fsname={},subtype=medfs", escape(&config.source));
    for word in config.flag_words() {
        options.push(',');
        options.push_str(word);
    }
    if config.allow_other {
        options.push_str(",allow_other");
    }
    if config.default_permissions {
        options.push_str(",default_permissions");
    }
    let (ours, theirs) = UnixStream::pair().map_err(Error::io("making a socket pair"))?;
    // The helper inherits its end.
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())
        .map_err(io::Error::from)
        .map_err(Error::io("handing a socket to fusermount3"))?;
    let mut helper = Command::new("fusermount3")
        .arg("-o")
        .arg(options)
        .arg("--")
        .arg(&config.mountpoint)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NoFusermount,
            _ => failed(format!("{error} (package fuse3)")),
        })?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    let mut message = String::new();
    if let Some(mut stderr) = helper.stderr.take() {
        let _ = stderr.read_to_string(&mut message);
    }
    let status = helper.wait().map_err(Error::io("waiting for fusermount3"))?;
    match received {
        Ok(device) if status.success() => Ok(device.into()),
        Err(error) if message.trim().is_empty() => Err(failed(error.to_string())),
        // It begins with the name of the program, which the error has.
        Ok(_) | Err(_) => Err(failed(message.trim().trim_start_matches("fusermount3: ").to_owned())),
    }
}

/// A file name as an option's value.
fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace(',', "\\,")
}

fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(descriptor) = descriptors.next()
        {
            return Ok(descriptor);
        }
    }
    Err(io::Error::other("it sent no descriptor"))
}

/// Changes the flags of what is mounted on a directory. When it is read-only afterwards, what was written
/// before is durable.
pub fn remount(mountpoint: &Path, flags: MountFlags) -> Result<()> {
    rustix::mount::mount_remount(mountpoint, flags, c"")
        .map_err(|error| Error::Remount { path: mountpoint.to_owned(), source: error.into() })?;
    // Nothing more can be written from here on.
    if flags.contains(MountFlags::RDONLY) { crate::control::sync(mountpoint) } else { Ok(()) }
}

/// Unmounts a directory. `lazy`: at once, though its files may be in use until they are closed.
pub(crate) fn detach(mountpoint: &Path, lazy: bool) -> Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let error = match rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    match error.raw_os_error() {
        libc::EBUSY => Err(Error::Busy(mountpoint.to_owned())),
        libc::EPERM => detach_by_helper(mountpoint, lazy),
        _ => Err(Error::Unmount { path: mountpoint.to_owned(), source: error.into() }),
    }
}

fn detach_by_helper(mountpoint: &Path, lazy: bool) -> Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(mountpoint).stdin(Stdio::null());
    let output = command.output().map_err(Error::io("running fusermount3"))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if message.contains("busy") {
        return Err(Error::Busy(mountpoint.to_owned()));
    }
    Err(Error::Fusermount { what: "unmount", path: mountpoint.to_owned(), message })
}
