//! What the kernel lets its page cache hold of this mount: the limit on dirty bytes, and whether each write
//! is followed by its own writing back.
//!
//! The limit is the backing device's under `/sys/class/bdi`: one hundredth of what all dirty pages may take,
//! strictly, as FUSE sets it. Root may lower it. A mount with the flag `sync` has every write(2) written
//! back, and fail where that fails, also through files that were opened before. Changing the flag writes back
//! what is dirty, for which the daemon must be serving requests: only a thread that serves none may call
//! here.

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::mount::FsPickFlags;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is assumed where the kernel does not tell its limit (before Linux 6.2).
const ASSUMED: u64 = 64 << 20;

/// The kernel's page cache, as far as it holds this mount.
#[derive(Debug)]
pub(crate) struct PageCache {
    mountpoint: PathBuf,
    device: (u32, u32),
    bdi: PathBuf,
    always: bool,
}

impl PageCache {
    /// That of what is mounted on a directory. `always`: with the flag `sync`.
    pub(crate) fn of(mountpoint: &Path, block: bool, always: bool) -> io::Result<PageCache> {
        let device = device(mountpoint)?;
        let kind = if block { "-fuseblk" } else { "" };
        let bdi = format!("/sys/class/bdi/{}:{}{kind}", device.0, device.1).into();
        Ok(PageCache { mountpoint: mountpoint.to_owned(), device, bdi, always })
    }

    /// Whether the mount has the flag `sync` for good.
    pub(crate) fn is_synchronous(&self) -> bool {
        self.always
    }

    /// How many bytes may be dirty.
    pub(crate) fn limit(&self) -> u64 {
        let read = |name| fs::read_to_string(self.bdi.join(name)).ok()?.trim().parse().ok();
        read("max_bytes").unwrap_or(ASSUMED)
    }

    pub(crate) fn set_limit(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.bdi.join("max_bytes"), bytes.to_string())?;
        fs::write(self.bdi.join("strict_limit"), "1")
    }

    /// Has each write(2) written back before it returns, or no longer.
    pub(crate) fn set_synchronous(&self, on: bool) -> io::Result<()> {
        if device(&self.mountpoint)? != self.device {
            return Err(io::Error::other("something else is mounted there"));
        }
        let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_NO_AUTOMOUNT;
        let context = rustix::mount::fspick(CWD, &self.mountpoint, flags)?;
        rustix::mount::fsconfig_set_flag(&context, if on { "sync" } else { "async" })?;
        Ok(rustix::mount::fsconfig_reconfigure(&context)?)
    }
}

/// The device number of a file system, without a request to its daemon.
pub(crate) fn device(dir: &Path) -> io::Result<(u32, u32)> {
    let stat = rustix::fs::statx(CWD, dir, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}
