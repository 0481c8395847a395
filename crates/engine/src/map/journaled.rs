//! Pages of a file that the journal in NVRAM holds.
//!
//! Invariant: a page is in the table from the first record that holds it until one revokes it, or a checkpoint makes all records void. Its
//! version is that of the latest record, as long as it is dirty.
//! Locks: the inode's.

use medfs_format::Block;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Journaled {
    /// The checkpoint that was in force, as node footers carry it.
    checkpoint: u64,
    pages: BTreeMap<u64, Option<Arc<Block>>>,
}

impl Journaled {
    /// The table, which a later checkpoint than the one it was made under empties.
    fn under(&mut self, checkpoint: u64) -> &mut BTreeMap<u64, Option<Arc<Block>>> {
        if self.checkpoint != checkpoint {
            *self = Journaled { checkpoint, ..Journaled::default() };
        }
        &mut self.pages
    }

    /// Whether the latest record holds this version of a page.
    pub(crate) fn has(&mut self, checkpoint: u64, index: u64, page: &Arc<Block>) -> bool {
        let held = self.under(checkpoint).get(&index).and_then(Option::as_ref);
        held.is_some_and(|held| Arc::ptr_eq(held, page))
    }

    /// Pages that records hold, and that are not dirty any more.
    pub(crate) fn outlived(&mut self, checkpoint: u64, dirty: &BTreeMap<u64, Arc<Block>>) -> Vec<u64> {
        self.under(checkpoint).keys().filter(|index| !dirty.contains_key(index)).copied().collect()
    }

    /// A record holds this version of a page. Tells whether none held the page before.
    pub(crate) fn record(&mut self, checkpoint: u64, index: u64, page: Arc<Block>) -> bool {
        self.under(checkpoint).insert(index, Some(page)).is_none()
    }

    /// A record revokes a page.
    pub(crate) fn revoke(&mut self, checkpoint: u64, index: u64) {
        self.under(checkpoint).remove(&index);
    }

    /// Whether a page is in it.
    pub(crate) fn knows(&mut self, checkpoint: u64, index: u64) -> bool {
        self.under(checkpoint).contains_key(&index)
    }

    /// A page is not dirty any more: its version need not be kept.
    pub(crate) fn left(&mut self, index: u64) {
        if let Some(version) = self.pages.get_mut(&index) {
            *version = None;
        }
    }

    /// The roll-forward log made all of the file durable.
    pub(crate) fn superseded(&mut self) {
        self.pages.clear();
    }
}
