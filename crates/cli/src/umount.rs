//! `medfs umount` and `medfs sync`: reach the daemon of a mounted volume.

use crate::args::DirArgs;
use crate::exit;
use anyhow::{Context, Result, bail};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for the daemon's last checkpoint.
const CLOSE_MAX: Duration = Duration::from_secs(120);

/// `medfs umount`: returns when the volume is complete on its device.
pub(crate) fn run(args: &DirArgs) -> Result<u8> {
    let dir = &args.dir;
    let real = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
    let Some(source) = source_of(&real)? else {
        bail!("{} is not the mount point of a medfs volume", dir.display());
    };
    medfs_fuse::control::unmount(&real)?;
    wait_until_closed(&source)?;
    Ok(exit::SUCCESS)
}

/// `medfs sync`
pub(crate) fn sync(args: &DirArgs) -> Result<u8> {
    medfs_fuse::control::sync(&args.dir)?;
    Ok(exit::SUCCESS)
}

/// Image or device mounted on a directory by medfs.
fn source_of(dir: &Path) -> Result<Option<PathBuf>> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("cannot read the list of mounts")?;
    let ours = mounts.lines().rev().find_map(|line| {
        let mut fields = line.split(' ');
        let (source, on, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind.ends_with(".medfs") && Path::new(&unescape(on)) == dir).then(|| PathBuf::from(unescape(source)))
    });
    Ok(ours)
}

/// Undoes the octal escapes of the list of mounts.
fn unescape(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

/// The daemon holds a lock on its image or device until the last checkpoint is written.
fn wait_until_closed(source: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        // Something no longer to be seen from here is nothing to wait for.
        let Ok(file) = File::open(source) else { return Ok(()) };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK) {
            return Ok(());
        }
        drop(file);
        if start.elapsed() > CLOSE_MAX {
            bail!("unmounted, but the daemon still writes to {}", source.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn escaped_mount_points() {
        assert_eq!(super::unescape("/mnt/with\\040space"), "/mnt/with space");
    }
}
