//! Files that are open to be written, and having the kernel write what it holds of them.
//!
//! Purpose: syncfs(2) on a mount of type `fuse` has the kernel send what its page cache holds, and does not wait: its
//! requests may be served after whoever asked has gone on. What waits, in every kernel, is close(2) of a file. A
//! file that nobody has open was closed by its last writer. So each of the others is opened by a path once more, and
//! closed.
//!
//! Invariant: an inode is in the list from the reply to its OPEN or CREATE to the RELEASE. A mapping keeps its file
//! open.
//! Locks: `open` is a leaf. What writes back makes the kernel send requests: only a thread that serves none may, or
//! one with a spare worker beside it.

use crate::dirty::device;
use medfs::{Ino, Volume};
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// A file that is renamed meanwhile has another path at the next try.
const TRIES: u32 = 5;

/// See the module.
#[derive(Debug)]
pub(crate) struct Writers {
    mountpoint: PathBuf,
    device: (u32, u32),
    /// How often each is open.
    open: Mutex<HashMap<Ino, u64>>,
}

impl Writers {
    /// Those of what is mounted on a directory: none yet.
    pub(crate) fn of(mountpoint: &Path) -> io::Result<Writers> {
        let device = device(mountpoint)?;
        Ok(Writers { mountpoint: mountpoint.to_owned(), device, open: Mutex::default() })
    }

    pub(crate) fn enter(&self, ino: Ino) {
        *self.open.lock().entry(ino).or_default() += 1;
    }

    pub(crate) fn leave(&self, ino: Ino) {
        let mut open = self.open.lock();
        if let Some(count) = open.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                open.remove(&ino);
            }
        }
    }

    /// Does something with each file that is open to be written; the first error, once all were tried.
    pub(crate) fn each<E>(&self, mut each: impl FnMut(Ino) -> Result<(), E>) -> Result<(), E> {
        let open: Vec<Ino> = self.open.lock().keys().copied().collect();
        let mut ended = Ok(());
        for ino in open {
            ended = ended.and(each(ino));
        }
        ended
    }

    /// Has the kernel write what it holds of a file, and waits until the daemon has it. A file without a name is gone
    /// after a crash: there is nothing to write for it. An error of the writing is its writers'.
    pub(crate) fn write_back(&self, volume: &Volume, ino: Ino) -> io::Result<()> {
        for _ in 0..TRIES {
            let path = volume.path_of(ino).map_err(io::Error::other)?;
            let Some((name, dirs)) = path.as_deref().and_then(<[_]>::split_last) else { return Ok(()) };
            match self.close_again(dirs, name) {
                Err(Errno::NOENT) => {}
                closed => return Ok(closed?),
            }
        }
        Ok(())
    }

    fn close_again(&self, dirs: &[Vec<u8>], name: &[u8]) -> rustix::io::Result<()> {
        if device(&self.mountpoint).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?
            != self.device
        {
            // Nobody reaches it by a path any more.
            return Ok(());
        }
        let above = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut dir: OwnedFd = openat(CWD, &self.mountpoint, above, Mode::empty())?;
        for name in dirs {
            dir = openat(&dir, &name[..], above | OFlags::NOFOLLOW, Mode::empty())?;
        }
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = |how| openat(&dir, name, how | flags, Mode::empty());
        match open(OFlags::RDONLY) {
            Err(Errno::ACCESS) => open(OFlags::WRONLY),
            opened => opened,
        }
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_fails_keeps_no_other_one_from_its_turn() {
        let writers = Writers {
            mountpoint: PathBuf::new(),
            device: (0, 0),
            open: Mutex::new((1..=5).map(|ino| (ino, 1)).collect()),
        };
        let mut met = Vec::new();
        let ended = writers.each(|ino| {
            met.push(ino);
            if ino % 2 == 0 { Err(met.len()) } else { Ok(()) }
        });
        let first = met.iter().position(|ino| ino % 2 == 0).map(|at| at + 1);
        assert_eq!((met.len(), ended.err()), (5, first));
    }
}
