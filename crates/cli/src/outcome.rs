//! How a mount ended, told by its daemon to the program that unmounts it.
//!
//! The daemon keeps a file in memory, which `medfs umount` opens through /proc before it unmounts: as root,
//! or as the user the daemon belongs to. Nothing is left behind, and a daemon that is killed has said
//! nothing.

use crate::exit;
use anyhow::Result;
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// The file's name, and as /proc shows it.
const NAME: &str = "medfs-outcome";
const SHOWN: &str = "/memfd:medfs-outcome";
/// What is said when all is well; anything else is what went wrong.
const WELL: &str = "ok";
/// Longer than any sentence.
const BYTES_MAX: u64 = 4096;

/// What a daemon will say.
pub(crate) struct Outcome(File);

impl Outcome {
    /// For the daemon to say it.
    pub(crate) fn new() -> io::Result<Outcome> {
        Ok(Outcome(rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC)?.into()))
    }

    /// Says how it went.
    pub(crate) fn tell(&self, result: &Result<()>) -> io::Result<()> {
        let text = result.as_ref().err().map_or(WELL.to_owned(), exit::sentence);
        self.0.write_all_at(text.as_bytes(), 0)
    }

    /// What a process will say, where it is a daemon that this process may look into.
    pub(crate) fn of(pid: u32) -> Option<Outcome> {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let is_it = |file: &std::path::PathBuf| {
            std::fs::read_link(file).is_ok_and(|name| name.to_string_lossy().starts_with(SHOWN))
        };
        let file = files.flatten().map(|file| file.path()).find(is_it)?;
        File::open(file).ok().map(Outcome)
    }

    /// What was said; `None`: nothing.
    pub(crate) fn said(&self) -> Option<Result<(), String>> {
        let mut text = String::new();
        (&self.0).take(BYTES_MAX).read_to_string(&mut text).ok()?;
        match &*text {
            "" => None,
            WELL => Some(Ok(())),
            _ => Some(Err(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn what_a_process_says_is_heard() {
        let says = Outcome::new().unwrap();
        let hears = || Outcome::of(std::process::id()).unwrap();
        let early = hears();
        assert_eq!(hears().said(), None);
        says.tell(&Err(anyhow!("no space").context("cannot finish"))).unwrap();
        assert_eq!(early.said(), Some(Err("cannot finish: no space".into())));
        drop(says);
        let says = Outcome::new().unwrap();
        drop(early);
        says.tell(&Ok(())).unwrap();
        assert_eq!(hears().said(), Some(Ok(())));
    }
}
