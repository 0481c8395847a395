//! A mount whose daemon has ended: every call on it fails with "not connected", which names no way out.

use anyhow::{Result, bail};
use medfs_fuse::control;
use std::path::{Path, PathBuf};

/// Fails, and says what to do, where the daemon that serves a path has ended.
pub(crate) fn refuse(path: &Path) -> Result<()> {
    if !control::is_abandoned(path) {
        return Ok(());
    }
    bail!(
        "the daemon of the volume mounted on {0} has ended: unmount it with 'medfs umount {0}'. The system's log, or the file of \
         'medfs mount --log', may tell why",
        mount_point(path).display()
    )
}

/// The directory that a path's volume is mounted on.
fn mount_point(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let is_mount = |dir: &&Path| control::find_mount(dir).is_ok_and(|mount| mount.is_some());
    absolute.ancestors().find(is_mount).unwrap_or(path).to_owned()
}
