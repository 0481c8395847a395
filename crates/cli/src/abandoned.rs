//! A mount whose daemon has ended: every call on it fails with "not connected", which names no way out.

use anyhow::{Result, bail};
use medfs_device::quote::{self, hint};
use medfs_fuse::control;
use std::io;
use std::path::{Path, PathBuf};

/// Fails, and says what to do, where the daemon that serves a path has ended.
pub(crate) fn refuse(path: &Path) -> Result<()> {
    if !control::is_abandoned(path) {
        return Ok(());
    }
    let dir = mount_point(path);
    bail!(
        "the daemon of the volume mounted on {} has ended: unmount it with {}. The system's log, or the file of 'medfs mount --log', \
         may tell why",
        dir.display(),
        hint(format_args!("medfs umount {}", quote::path(&dir)))
    )
}

/// Fails, and says who may, where a path is on a volume that another user has mounted for himself alone.
pub(crate) fn refuse_foreign(path: &Path) -> Result<()> {
    let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let dir = mount_point(path);
    let is_mount = || control::find_mount(&std::path::absolute(&dir).unwrap_or_default());
    if !std::fs::metadata(path).is_err_and(|error| denied(&error))
        || !is_mount().is_ok_and(|mount| mount.is_some())
    {
        return Ok(());
    }
    bail!(
        "{} is a volume that another user mounted: others may use it, root among them, where it was mounted with 'medfs mount -o allow_other'",
        dir.display()
    )
}

/// The directory that a path's volume is mounted on.
fn mount_point(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let is_mount = |dir: &&Path| control::find_mount(dir).is_ok_and(|mount| mount.is_some());
    absolute.ancestors().find(is_mount).unwrap_or(path).to_owned()
}
