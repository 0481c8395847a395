//! What damage in the log costs: all of a writable mount, and a file where the volume is only read, or repaired.

use super::Replay;
use crate::error::{Error, Result};
use crate::map::inode::Inode;
use crate::options::Recover;
use medfs_format::{FormatError, Ino, Structure};

impl Replay<'_> {
    /// On a read-only mount and in a repair damage costs the file that it is of, and in a repair what a record in NVRAM
    /// does not make, which is noted: `None`. Otherwise it is an error.
    pub(super) fn pass_by<T>(&self, ino: Ino, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.passes_damage() && self.tree.is_damage(&error) => {
                self.tree.damage.note_unrecovered(Some(ino), &error);
                Ok(None)
            }
            Err(error) if self.records.are_given_up() && is_of_record(&error) => {
                self.tree.damage.note_given_up(Some(ino), &error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn passes_damage(&self) -> bool {
        self.tree.read_only || self.tree.opts.recover == Recover::WhatFits
    }

    /// Notes that a file has fewer blocks than its inode in the log counts: an address is lost. `freed` blocks lay
    /// behind its end.
    pub(super) fn note_if_short(&self, inode: &Inode, freed: u64) {
        let counted = self.counted.get(&inode.ino).copied().unwrap_or_default();
        let missing = counted.saturating_sub(inode.raw(|r| r.i_blocks.get()) + freed);
        if missing > 0 && self.passes_damage() {
            let what = format!("{counted}, of which {missing} are not named: content may be missing");
            let error = FormatError::corrupt(Structure::Inode, inode.ino, "i_blocks", what).into();
            self.tree.damage.note_unrecovered(Some(inode.ino), &error);
        }
    }
}

/// Whether an error says of a record in NVRAM that it does not make what it should.
fn is_of_record(error: &Error) -> bool {
    matches!(error, Error::Corrupt(FormatError::Corrupt { structure: Structure::NvramRecord, .. }))
}
