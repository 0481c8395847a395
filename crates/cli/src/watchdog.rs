//! A small process beside each daemon, which ends the daemon's connection when the daemon is killed.
//!
//! The kernel ends a FUSE connection when its daemon's descriptors are closed. A daemon that is killed while
//! one of its threads has the kernel write a file back (see `crates/fuse/src/worker_pool.rs`) does not get that far:
//! the thread waits in the kernel for a request that nobody serves any more, and whoever uses the mount waits
//! with it. Someone else has to end the connection, through the kernel's fusectl.
//!
//! The watchdog gets the connection's abort file as its standard output, so it can only ever end this connection. The
//! kernel tells it by a signal when the daemon's main thread is gone, so it costs nothing while all is well.

use crate::exit;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The name that this program has as a watchdog: it is no command of users.
pub(crate) const NAME: &str = "medfs-watchdog";

/// The signal comes a moment before the daemon counts as dead.
const DYING: Duration = Duration::from_millis(10);

/// The process that watches this one; ended with it.
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// Has this process watched, which must have mounted a volume on `dir`. Call it from the main thread: it is
    /// that
    /// thread's end that is noticed.
    pub(crate) fn start(dir: &Path) -> Result<Watchdog> {
        let abort = abort_file(dir)?;
        let mut command = Command::new(std::env::current_exe().context("cannot find the medfs executable")?);
        command.arg0(NAME).arg(std::process::id().to_string()).current_dir("/");
        command.stdin(Stdio::null()).stdout(abort).stderr(Stdio::null());
        Ok(Watchdog(command.spawn().context("cannot start the watchdog")?))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What ends the connection of the volume mounted on a directory.
fn abort_file(dir: &Path) -> Result<File> {
    let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
    let mount = medfs_fuse::control::find_mount(&dir)?.context("the mount is not in the list of mounts")?;
    Ok(medfs_fuse::control::abort_file(&mount)?)
}

/// Called by the daemon, with its process id.
pub(crate) fn helper(args: &[OsString]) -> u8 {
    let daemon = args.get(1).and_then(|arg| arg.to_str()?.parse().ok());
    exit::run("watchdog", exit::FAILURE, || watch(daemon.context("expected a process id")?))
}

/// Waits for the end of its parent, then writes to its standard output.
fn watch(daemon: u32) -> Result<u8> {
    // A signal to all processes of a terminal or a service is the daemon's to deal with.
    let mut signals = Signals::new([SIGUSR1, SIGTERM, SIGINT, SIGHUP])?;
    set_parent_process_death_signal(Some(Signal::USR1))?;
    let mut told = false;
    while !is_dead(daemon) {
        if told {
            std::thread::sleep(DYING);
        } else {
            told = signals.wait().any(|signal| signal == SIGUSR1);
        }
    }
    std::io::stdout().write_all(b"1")?;
    std::io::stdout().flush()?;
    Ok(exit::SUCCESS)
}

/// Whether our parent is gone, or about to be and held up by a thread that cannot end.
fn is_dead(parent: u32) -> bool {
    let still_ours = getppid().map(Pid::as_raw_nonzero).is_some_and(|pid| pid.get() as u32 == parent);
    !still_ours || is_zombie(parent)
}

/// Whether a process has ended but for what its parent or its last threads have to do.
pub(crate) fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state stands behind the program's name, which may hold anything.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_and_one_that_has_not() {
        assert!(!is_zombie(std::process::id()));
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        while !is_zombie(pid) {
            std::thread::sleep(DYING);
        }
        child.wait().unwrap();
        assert!(!is_zombie(pid));
        assert!(is_dead(u32::MAX), "another process than our parent");
    }
}
