//! Attaching a connection to a directory and detaching it: `mount(2)` as root, `fusermount3` otherwise.

use crate::config::MountConfig;
use crate::error::{Error, Result};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// An attached connection.
pub(crate) struct Mounted {
    /// `/dev/fuse`.
    pub(crate) device: File,
    /// It is a `fuseblk` mount: SYNCFS and DESTROY reach us.
    pub(crate) block: bool,
}

/// Mounts as the configuration says, as `fuseblk` where that is possible.
pub(crate) fn attach(config: &MountConfig) -> Result<Mounted> {
    let unusable = |source| Error::Mountpoint { path: config.mountpoint.clone(), source };
    let directory = std::fs::metadata(&config.mountpoint).map_err(unusable)?;
    if !directory.is_dir() {
        return Err(unusable(io::ErrorKind::NotADirectory.into()));
    }
    if !rustix::process::geteuid().is_root() {
        return attach_by_helper(config);
    }
    let device = open_device()?;
    if let Some(block_device) = &config.block_device {
        let options = format!("{},blksize=4096", kernel_options(config, &device));
        match mount(config, &block_device.to_string_lossy(), "fuseblk.medfs", &options) {
            Ok(()) => return Ok(Mounted { device, block: true }),
            // The kernel could not claim the device: something else mounted it, or holds it exclusively.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Err(failed(config, error)),
            Err(error) => tracing::info!(%error, "not mounted as fuseblk: sync(2) will not reach the volume"),
        }
    }
    match mount(config, &config.source, "fuse.medfs", &kernel_options(config, &device)) {
        Ok(()) => Ok(Mounted { device, block: false }),
        // Root without the right to mount, as in a container: the set-uid helper may have it.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => attach_by_helper(config),
        Err(error) => Err(failed(config, error)),
    }
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
fn attach_by_helper(config: &MountConfig) -> Result<Mounted> {
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
        .map_err(|error| failed(format!("{error} (package fuse3)")))?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    let mut message = String::new();
    if let Some(mut stderr) = helper.stderr.take() {
        let _ = stderr.read_to_string(&mut message);
    }
    let status = helper.wait().map_err(Error::io("waiting for fusermount3"))?;
    match received {
        Ok(device) if status.success() => Ok(Mounted { device: device.into(), block: false }),
        Ok(_) => Err(failed(message.trim().to_owned())),
        Err(error) if message.trim().is_empty() => Err(failed(error.to_string())),
        Err(_) => Err(failed(message.trim().to_owned())),
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

/// Changes the flags of what is mounted on a directory. When it is read-only afterwards, what was written before is durable.
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
