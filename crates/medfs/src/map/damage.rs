//! Blocks that cannot be read, or hold what cannot be: who is told, and what goes on.
//!
//! An error of reading concerns what the block holds, and nothing else. The caller that asked for it gets the
//! error. What the engine does of its own accord passes it by: writing other files back, cleaning, restoring,
//! looking for a better base. Such an error is logged once for each inode and counted.
//!
//! Invariant: an error of *writing* never counts as damage. After one the volume is read-only, and every
//! caller hears of it. Locks: `told`, `unrecovered` and `removed` are leaves.

use crate::error::{Error, Result};
use crate::map::Map;
use crate::stats::Counters;
use medfs_format::{BlockAddr, Ino};
use medfs_store::Segments;
use medfs_sync::Mutex;
use std::collections::BTreeSet;
use std::fmt::Display;

/// Most inodes that are remembered.
const MOST_TOLD: usize = 1024;
/// Most notes of what a mount leaves out; the rest is counted.
const MOST_UNRECOVERED: usize = 100_000;

/// What the note of a file begins with whose last fsync, or a part of it, is not rolled forward.
pub const LEFT_OUT: &str = "what was fsynced since the last checkpoint is left out: ";

/// What was logged.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    told: Mutex<BTreeSet<(&'static str, Ino)>>,
    /// What of the fsync log a mount leaves out; no number: all of it.
    unrecovered: Mutex<Unrecovered>,
    /// Inodes that a read-only mount has of its checkpoint alone: they lost their names since.
    removed: Mutex<BTreeSet<Ino>>,
}

/// Notes, and how many more there would be.
#[derive(Debug, Default)]
struct Unrecovered {
    notes: Vec<(Option<Ino>, String)>,
    /// The files among them.
    files: BTreeSet<Ino>,
    more: u64,
}

impl Unrecovered {
    fn add(&mut self, ino: Option<Ino>, text: String) {
        match self.notes.len() < MOST_UNRECOVERED {
            true => self.notes.push((ino, text)),
            false => self.more += 1,
        }
    }
}

impl Damage {
    /// Notes what was fsynced and is left out.
    pub(crate) fn note_unrecovered(&self, ino: Option<Ino>, error: &Error) {
        if self.note(ino, format!("{LEFT_OUT}{error}")) {
            tracing::warn!(ino, %error, "what was fsynced last is left out");
        }
    }

    /// Notes a file whose last fsync is not shown, as the fsync log cannot be read up to there. `name`: the
    /// one that the log gives it, or empty.
    pub(crate) fn note_last_fsync(&self, ino: Ino, name: &[u8]) {
        let named = match name {
            [] => String::new(),
            name => format!(" (as {})", name.escape_ascii()),
        };
        self.note(
            Some(ino),
            format!("its last fsync{named} is in a part of the fsync log that cannot be shown"),
        );
    }

    /// Notes what a repair gives up of a record in NVRAM.
    pub(crate) fn note_given_up(&self, ino: Option<Ino>, error: &impl Display) {
        tracing::warn!(ino, %error, "an fsync is given up");
        self.unrecovered.lock().add(ino, error.to_string());
    }

    /// Notes something, but nothing more of a file that is noted; whether it was.
    fn note(&self, ino: Option<Ino>, text: String) -> bool {
        let mut all = self.unrecovered.lock();
        let is_new = ino.is_none_or(|ino| all.files.insert(ino));
        if is_new {
            all.add(ino, text);
        }
        is_new
    }

    /// Notes an inode that is gone by what was fsynced.
    pub(crate) fn note_removed(&self, ino: Ino) {
        self.removed.lock().insert(ino);
    }

    /// Whether an inode is gone by what was fsynced.
    pub(crate) fn is_removed(&self, ino: Ino) -> bool {
        self.removed.lock().contains(&ino)
    }

    /// Notes that the volume is shown as of an older checkpoint.
    pub(crate) fn note_older_checkpoint(&self, why: &str) {
        tracing::warn!("{why}: check the volume with 'medfs fsck'");
        self.unrecovered.lock().notes.push((None, why.to_owned()));
    }

    /// Notes that the volume is shown without what was fsynced last.
    pub(crate) fn note_left_behind(&self, why: &str) {
        tracing::warn!("{why}");
        self.unrecovered.lock().notes.push((None, why.to_owned()));
    }

    /// What was noted.
    pub(crate) fn unrecovered(&self) -> Vec<(Option<Ino>, String)> {
        let all = self.unrecovered.lock();
        let more = (all.more > 0)
            .then(|| (None, format!("the last fsyncs of {} more files cannot be shown", all.more)));
        all.notes.iter().cloned().chain(more).collect()
    }
}

impl Map {
    /// Whether an error says of some blocks that they cannot be read or are wrong, and nothing of others.
    pub(crate) fn is_damage(&self, error: &Error) -> bool {
        matches!(error, Error::Io(_) | Error::Corrupt(_)) && !self.io.failed()
    }

    /// Passes by damage that concerns `ino` (0: no inode): `None`, logged and counted. Other errors stay.
    pub(crate) fn pass_by<T>(
        &self,
        what: &'static str,
        ino: Ino,
        result: Result<T, impl Into<Error>>,
    ) -> Result<Option<T>> {
        match result.map_err(Into::into) {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.is_damage(&error) => {
                self.note_damage(what, ino, &error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Damage waits in `first` until the rest was done; any other error comes at once.
    pub(crate) fn put_off(&self, first: &mut First, result: Result<()>) -> Result<()> {
        match result {
            Err(error) if self.is_damage(&error) => {
                first.note(Err(error));
                Ok(())
            }
            result => result,
        }
    }

    /// Whether a volume that is only read has lost what says whether a block is in use.
    pub(crate) fn has_lost_use_of(&self, segs: &mut Segments, addr: BlockAddr) -> bool {
        self.read_only && segs.is_lost(&self.io, addr)
    }

    /// Logs and counts damage that no caller hears of.
    pub(crate) fn note_damage(&self, what: &'static str, ino: Ino, error: &Error) {
        Counters::add(&self.counters.damage_passed, 1);
        let mut told = self.damage.told.lock();
        if told.len() < MOST_TOLD && told.insert((what, ino)) {
            tracing::warn!(ino, %error, "{what}");
        } else {
            tracing::debug!(ino, %error, "{what}");
        }
    }

    /// Whether what is left can be done after an error: anything but the end of writing.
    pub(crate) fn goes_on(&self) -> bool {
        !self.is_read_only()
    }
}

/// The first of several errors.
#[derive(Debug, Default)]
pub(crate) struct First(Option<Error>);

impl First {
    pub(crate) fn note(&mut self, result: Result<(), impl Into<Error>>) {
        if let Err(error) = result {
            self.0.get_or_insert_with(|| error.into());
        }
    }

    /// Whether nothing was noted yet, or what `of` is true of.
    pub(crate) fn is_only(&self, of: impl FnOnce(&Error) -> bool) -> bool {
        self.0.as_ref().is_none_or(of)
    }

    pub(crate) fn result(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
