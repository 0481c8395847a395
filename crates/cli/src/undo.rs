//! What a command takes back before it ends: mounts, daemons, loop devices, temporary directories.
//!
//! An [`Undo`] runs when it is dropped, or when the user ends the command (SIGINT, SIGTERM, SIGHUP). Then all
//! that are pending run, the newest first, the user is told what state things are in ([`if_ended`]), and the
//! process ends as the signal would have ended it.
//!
//! Lock: one, around the list and whatever is being taken back. So the process does not end in the middle of
//! it, and no thread goes on while a signal is being obeyed. What is run must neither make nor drop an
//! [`Undo`].

use crate::progress;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// What is to be run.
type Action = Box<dyn FnOnce() + Send>;

/// What is pending, in the order in which it was made.
struct Pending {
    next: u64,
    actions: Vec<(u64, Action)>,
    /// What the user is told.
    state: Option<String>,
}

static PENDING: Mutex<Pending> = Mutex::new(Pending { next: 0, actions: Vec::new(), state: None });

fn pending() -> MutexGuard<'static, Pending> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, and until this is called again: what a user who ends the command is told of the state that
/// things are in.
pub(crate) fn if_ended(command: &str, state: impl std::fmt::Display) {
    obey_signals();
    pending().state = Some(format!("medfs {command}: interrupted: {state}"));
}

/// Something to take back.
#[must_use = "it is run when this is dropped"]
pub(crate) struct Undo(u64);

impl Undo {
    /// Runs `action` when this is dropped or the command is ended, once.
    pub(crate) fn new(action: impl FnOnce() + Send + 'static) -> Undo {
        obey_signals();
        let mut pending = pending();
        let id = pending.next;
        pending.next += 1;
        pending.actions.push((id, Box::new(action)));
        Undo(id)
    }

    /// Nothing is to be taken back any more.
    pub(crate) fn disarm(self) {
        pending().actions.retain(|(id, _)| *id != self.0);
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let mut pending = pending();
        if let Some(at) = pending.actions.iter().position(|(id, _)| *id == self.0) {
            let (_, action) = pending.actions.remove(at);
            action();
        }
    }
}

/// Waits for the signals that end a command, from now on.
fn obey_signals() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| match Signals::new(obeyed(&[SIGINT, SIGTERM, SIGHUP])) {
        Ok(signals) => drop(std::thread::spawn(|| end(signals))),
        Err(error) => tracing::warn!(%error, "Ctrl-C will leave mounts and temporary files behind"),
    });
}

/// Of signals those that this process does not ignore: what whoever started it has ignored, as nohup does, stays
/// ignored.
pub(crate) fn obeyed(signals: &[i32]) -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    signals.iter().copied().filter(|&signal| !is_ignored(&status, signal)).collect()
}

/// Whether a process ignores a signal, of its `/proc/PID/status`.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Takes everything back at the first signal, and ends the process.
fn end(mut signals: Signals) {
    let Some(signal) = signals.forever().next() else { return };
    let mut pending = pending();
    while let Some((_, action)) = pending.actions.pop() {
        action();
    }
    if let Some(state) = &pending.state {
        progress::end();
        errln!("{state}");
    }
    let _ = emulate_default_handler(signal);
    std::process::exit(128 + signal);
}

/// A temporary directory, which goes with this.
pub(crate) struct TemporaryFolder {
    path: PathBuf,
    _undo: Undo,
}

impl TemporaryFolder {
    /// Makes one within a directory; `None`: the system's for temporary files.
    pub(crate) fn new(within: Option<&Path>) -> Result<TemporaryFolder> {
        let system = std::env::temp_dir();
        let within = within.unwrap_or(&system);
        let made = tempfile::Builder::new().prefix("medfs-").tempdir_in(within);
        let path = made
            .with_context(|| format!("cannot create a temporary directory in {}", within.display()))?
            .keep();
        let removed = path.clone();
        let _undo = Undo::new(move || {
            if let Err(error) = std::fs::remove_dir_all(&removed) {
                tracing::warn!("cannot remove {}: {error}", removed.display());
            }
        });
        Ok(TemporaryFolder { path, _undo })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn it_runs_once_or_not_at_all() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = |runs: &Arc<AtomicU32>| {
            let runs = runs.clone();
            Undo::new(move || {
                runs.fetch_add(1, Ordering::Relaxed);
            })
        };
        let (first, second) = (counted(&runs), counted(&runs));
        first.disarm();
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        drop(second);
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_ignored_is_told_by_the_kernel() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\tffff\n";
        assert!(is_ignored(status, SIGHUP) && is_ignored(status, 13));
        assert!(!is_ignored(status, SIGINT) && !is_ignored("", SIGINT));
    }

    #[test]
    fn a_temporary_folder_goes() {
        let folder = TemporaryFolder::new(None).unwrap();
        let path = folder.path().to_owned();
        std::fs::write(path.join("file"), "content").unwrap();
        drop(folder);
        assert!(!path.exists());
        let wrong = TemporaryFolder::new(Some(Path::new("/nonexistent"))).err().unwrap();
        assert!(format!("{wrong:#}").contains("cannot create a temporary directory in /nonexistent"));
    }
}
