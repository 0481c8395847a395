//! Numbers of files: who holds a file while the trace speaks of it.

use crate::record::FileId;
use medfs::{Attr, Ino};
use std::collections::HashMap;

/// Numbers of files.
#[derive(Default)]
pub(super) struct Ids {
    pub(super) by_ino: HashMap<Ino, Known>,
    next: FileId,
}

pub(super) struct Known {
    pub(super) file: FileId,
    generation: u32,
    holds: u64,
}

impl Ids {
    /// The number of a file that a process took a hold of; `new`: it was just made.
    pub(super) fn found(&mut self, attr: &Attr, new: bool) -> FileId {
        match self.by_ino.get_mut(&attr.ino) {
            Some(known) if !new && known.generation == attr.generation => {
                known.holds += 1;
                known.file
            }
            _ => {
                self.next += 1;
                let known = Known { file: self.next, generation: attr.generation, holds: 1 };
                self.by_ino.insert(attr.ino, known);
                self.next
            }
        }
    }

    /// Gives holds back; the file's number where they were the last.
    pub(super) fn release(&mut self, ino: Ino, count: u64) -> Option<FileId> {
        let known = self.by_ino.get_mut(&ino)?;
        let held = known.holds > 0;
        known.holds = known.holds.saturating_sub(count);
        (held && known.holds == 0).then_some(known.file)
    }
}
