//! `medfs umount` and `medfs sync`: reach the daemon of a mounted volume.

use crate::args::DirArgs;
use crate::{exit, watchdog};
use anyhow::{Context, Result, bail};
use medfs_fuse::control;
use rustix::fs::{FlockOperation, major, minor};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for the daemon's last checkpoint.
const CLOSE_MAX: Duration = Duration::from_secs(120);

/// Longest wait for a killed daemon to end.
const DYING_MAX: Duration = Duration::from_secs(5);

/// Between two looks at a daemon.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// `medfs umount`: returns when the volume is complete on its device.
pub(crate) fn run(args: &DirArgs) -> Result<u8> {
    let dir = &args.dir;
    let real = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
    let Some(mount) = control::find_mount(&real)? else {
        bail!("{} is not the mount point of a medfs volume", dir.display());
    };
    if !is_served_or_ended(&mount.source, DYING_MAX) {
        // Its daemon was killed and cannot end: unmounting would wait for it.
        control::abort_file(mount.connection)?.write_all(b"1").context("cannot end the connection")?;
    }
    let failure = failure(&real);
    control::unmount(&real)?;
    wait_until_closed(&mount.source)?;
    if let Some(failure) = failure {
        bail!("{} is unmounted, but what was written last is lost: {failure}", dir.display());
    }
    Ok(exit::SUCCESS)
}

/// The error after which a volume turned read-only, if it did: what is not on its device by then never will be.
fn failure(dir: &Path) -> Option<String> {
    let stats: serde_json::Value = serde_json::from_str(&control::stats_json(dir).ok()?).ok()?;
    Some(exit::without_numbers(stats["failure"].as_str()?))
}

/// Whether no killed daemon holds an image or device, or one does that ends within `patience`: most need a moment for it
/// only, and an ordinary user may not be able to do more than wait.
fn is_served_or_ended(source: &Path, patience: Duration) -> bool {
    let start = Instant::now();
    // The list of locks may lack one that is there where others come and go while it is read: so look twice.
    while is_orphan(source) || is_orphan(source) {
        if start.elapsed() > patience {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    true
}

/// Whether all that holds an image or device is a daemon that was killed.
fn is_orphan(source: &Path) -> bool {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    std::fs::metadata(source).is_ok_and(|source| holder(&locks, &source).is_some_and(watchdog::is_zombie))
}

/// The process that holds the lock on a file.
fn holder(locks: &str, file: &Metadata) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{}", major(file.dev()), minor(file.dev()), file.ino());
    let of_file = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of_file = of_file.filter(|fields| fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&&*file));
    of_file.filter_map(|fields| fields[4].parse().ok()).next()
}

/// `medfs sync`
pub(crate) fn sync(args: &DirArgs) -> Result<u8> {
    control::sync(&args.dir)?;
    Ok(exit::SUCCESS)
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
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A process that has ended but for its lock, which our `file` keeps: what a killed daemon looks like.
    fn lock_as_killed(file: &File) -> Child {
        let ours = file.try_clone().unwrap();
        let child = Command::new("flock").args(["--exclusive", "0"]).stdin(ours).spawn().unwrap();
        while !watchdog::is_zombie(child.id()) {
            std::thread::sleep(LOOK_AGAIN);
        }
        child
    }

    #[test]
    fn a_killed_daemon_is_given_time_to_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut daemon = lock_as_killed(file.as_file());
        assert!(is_orphan(file.path()));
        assert!(!is_served_or_ended(file.path(), Duration::from_millis(20)), "it never ends");
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                rustix::fs::flock(file.as_file(), FlockOperation::Unlock).unwrap();
            });
            assert!(is_served_or_ended(file.path(), CLOSE_MAX), "it ends soon");
        });
        daemon.wait().unwrap();
    }

    #[test]
    fn whose_lock_it_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let who = |file: &tempfile::NamedTempFile| {
            holder(&std::fs::read_to_string("/proc/locks").unwrap(), &file.as_file().metadata().unwrap())
        };
        assert_eq!(who(&file), None);
        rustix::fs::flock(&file, FlockOperation::LockShared).unwrap();
        assert_eq!(who(&file), Some(std::process::id()));
        assert!(!is_orphan(file.path()), "we live");
    }
}
