//! F2FS's atomic-write ioctls under a kernel that caches writes.
//!
//! Between START and COMMIT the application's writes are in the kernel's page cache; the engine sees them
//! only when the kernel writes them back. So START first makes the kernel write back what is older, COMMIT
//! what belongs to the transaction, and ABORT makes it forget what the engine has dropped. All of that is
//! nested work ([`WorkerPool::with_spare_worker`]).
//!
//! F2FS aborts when the file is closed. We serve neither OPEN nor FLUSH, so a process that dies in the middle
//! is noticed by its pidfd: its transactions are aborted then. (Another process that gets at the file within
//! those microseconds may still see pages of the dead one's transaction.)
//!
//! Lock: `Watched::state` is a leaf, held across no call of the engine or the kernel's.

use crate::notify::Notifier;
use crate::request::Errno;
use crate::worker_pool::WorkerPool;
use medfs::{Files, Ino};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Files that are being written atomically, and the processes that do so.
pub(crate) struct AtomicWrites {
    watched: Arc<Watched>,
}

struct Watched {
    files: Arc<dyn Files>,
    notifier: Notifier,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: HashMap<Ino, Transaction>,
    /// Processes that have started a transaction, until they end.
    processes: HashMap<Pid, Arc<OwnedFd>>,
    /// Wakes the watching thread; made with it.
    wake: Option<Arc<OwnedFd>>,
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

struct Transaction {
    nodeid: u64,
    process: Pid,
    /// A page of it could not be written: it must not be committed.
    failed: bool,
}

impl AtomicWrites {
    pub(crate) fn new(files: Arc<dyn Files>, notifier: Notifier) -> AtomicWrites {
        AtomicWrites { watched: Arc::new(Watched { files, notifier, state: Mutex::default() }) }
    }

    /// Begins a transaction on a file for the thread with number `tid`.
    pub(crate) fn start(&self, pool: &WorkerPool, ino: Ino, nodeid: u64, tid: u32) -> Result<(), Errno> {
        let process = process_of(tid).ok_or(Errno::OPNOTSUPP)?;
        self.watched.watch(process).map_err(|error| {
            tracing::error!(%error, "cannot watch a process that writes atomically");
            Errno::OPNOTSUPP
        })?;
        self.watched.flush(pool, nodeid)?;
        self.watched.files.atomic_start(ino)?;
        // Of a transaction that is open already nothing changes: what failed in it stays lost.
        let begun = Transaction { nodeid, process, failed: false };
        self.watched.state.lock().files.entry(ino).or_insert(begun);
        Ok(())
    }

    /// Makes a file's transaction take effect.
    pub(crate) fn commit(&self, pool: &WorkerPool, ino: Ino, nodeid: u64) -> Result<(), Errno> {
        self.watched.flush(pool, nodeid)?;
        if self.watched.state.lock().files.get(&ino).is_some_and(|transaction| transaction.failed) {
            return Err(Errno::IO);
        }
        self.watched.files.atomic_commit(ino)?;
        self.watched.state.lock().files.remove(&ino);
        Ok(())
    }

    /// Drops a file's transaction.
    pub(crate) fn abort(&self, pool: &WorkerPool, ino: Ino, nodeid: u64) -> Result<(), Errno> {
        pool.with_spare_worker(nodeid, || self.watched.abort(ino, nodeid))?
    }

    /// Notes that a write to a file failed: where it belonged to a transaction, that one is lost.
    pub(crate) fn write_failed(&self, ino: Ino) {
        if let Some(transaction) = self.watched.state.lock().files.get_mut(&ino) {
            transaction.failed = true;
        }
    }
}

impl Drop for AtomicWrites {
    fn drop(&mut self) {
        let thread = {
            let mut state = self.watched.state.lock();
            state.ended = true;
            state.wake();
            state.thread.take()
        };
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl State {
    fn wake(&self) {
        if let Some(wake) = &self.wake {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }
}

impl Watched {
    fn flush(&self, pool: &WorkerPool, nodeid: u64) -> Result<(), Errno> {
        pool.with_spare_worker(nodeid, || self.notifier.flush_pages(nodeid, 0))?
    }

    fn abort(&self, ino: Ino, nodeid: u64) -> Result<(), Errno> {
        // Dirty pages must not arrive after the abort as if they were ordinary writes.
        self.notifier.flush_pages(nodeid, 0)?;
        self.files.atomic_abort(ino)?;
        self.state.lock().files.remove(&ino);
        // Whoever read meanwhile has cached what no longer is.
        self.notifier.flush_pages(nodeid, 0)
    }

    /// Makes sure that the end of a process will be noticed.
    fn watch(self: &Arc<Watched>, process: Pid) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.processes.contains_key(&process) {
            return Ok(());
        }
        let descriptor = Arc::new(pidfd_open(process, PidfdFlags::empty())?);
        if state.wake.is_none() {
            let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
            state.wake = Some(wake.clone());
            let watched = self.clone();
            let run = move || watched.run(&wake);
            state.thread = Some(std::thread::Builder::new().name("medfs-atomic".into()).spawn(run)?);
        }
        state.processes.insert(process, descriptor);
        state.wake();
        Ok(())
    }

    /// Waits for processes to end and aborts what they have left.
    fn run(&self, wake: &OwnedFd) {
        loop {
            let processes: Vec<(Pid, Arc<OwnedFd>)> = {
                let state = self.state.lock();
                if state.ended {
                    return;
                }
                state.processes.iter().map(|(pid, descriptor)| (*pid, descriptor.clone())).collect()
            };
            let mut polled: Vec<PollFd<'_>> = std::iter::once(wake)
                .chain(processes.iter().map(|(_, descriptor)| &**descriptor))
                .map(|descriptor| PollFd::new(descriptor, PollFlags::IN))
                .collect();
            if let Err(error) = poll(&mut polled, None)
                && error != rustix::io::Errno::INTR
            {
                tracing::error!(%error, "watching processes failed");
                return;
            }
            let _ = rustix::io::read(wake, &mut [0u8; 8][..]);
            for ((process, _), polled) in processes.iter().zip(&polled[1..]) {
                if !polled.revents().is_empty() {
                    self.process_ended(*process);
                }
            }
        }
    }

    fn process_ended(&self, process: Pid) {
        let left: Vec<(Ino, u64)> = {
            let mut state = self.state.lock();
            state.processes.remove(&process);
            let of_it = state.files.iter().filter(|(_, transaction)| transaction.process == process);
            of_it.map(|(ino, transaction)| (*ino, transaction.nodeid)).collect()
        };
        for (ino, nodeid) in left {
            if let Err(errno) = self.abort(ino, nodeid) {
                tracing::error!(
                    ino,
                    errno = errno.0,
                    "cannot abort the atomic write of a process that has ended"
                );
            }
        }
    }
}

/// The process a thread belongs to. The kernel sends 0 for one that our PID namespace does not show.
fn process_of(tid: u32) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let tgid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    Pid::from_raw(tgid.trim().parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_belongs_to_its_process() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(process_of(tid), Some(rustix::process::getpid()));
        assert_eq!(process_of(0), None);
    }
}
