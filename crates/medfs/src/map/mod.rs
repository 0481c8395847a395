//! The map: from an inode and a page to the block that holds it.
//!
//! Purpose: inodes in memory, the tree of nodes under each, and what an operation that changes them holds. It
//! knows addresses and what kind of address each is, not what lies at them.
//! Invariants:
//! 1. There is at most one [`inode::Inode`] for a number.
//! 2. A node is freed after everything below it.
//! 3. An inode without a name is in [`orphans::Orphans`] until it is freed.
//!
//! Locks: an inode's lock is held by callers, shared to look and exclusive to change, and then [`op::Op`]
//! too; the rest are leaves.

pub(crate) mod alone;
pub(crate) mod away;
mod claims;
pub(crate) mod cluster_marks;
pub(crate) mod count;
pub(crate) mod cut_off;
mod cutting;
pub(crate) mod damage;
pub(crate) mod effects;
pub(crate) mod inode;
pub(crate) mod journaled;
pub(crate) mod memory;
pub(crate) mod node_tree;
pub(crate) mod op;
pub(crate) mod ops;
pub(crate) mod orphans;
pub(crate) mod page_versions;
mod places;
pub(crate) mod refs;
pub(crate) mod since;
mod tests;
mod truncate;
pub(crate) mod xattr_area;

use crate::stats::Counters;
use damage::Damage;
use effects::Effects;
use inode::Inodes;
use medfs_store::Store;
use ops::Ops;
use orphans::Orphans;
use since::SinceCheckpoint;
use std::ops::Deref;
use std::sync::atomic::AtomicBool;

/// Inodes and their node trees over a store.
pub(crate) struct Map {
    pub(crate) store: Store,
    pub(crate) inodes: Inodes,
    pub(crate) orphans: Orphans,
    pub(crate) since: SinceCheckpoint,
    pub(crate) ops: Ops,
    /// Whether the volume was opened to be read only.
    pub(crate) read_only: bool,
    /// Whether it was closed: nothing is written any more.
    pub(crate) closed: AtomicBool,
    pub(crate) damage: Damage,
    pub(crate) counters: Counters,
    /// Who keeps what operations did.
    pub(crate) effects: Effects,
}

impl Map {
    /// The map of a store, with no inode in memory yet. `since` is empty.
    pub(crate) fn over(store: Store, read_only: bool, since: SinceCheckpoint) -> Map {
        Map {
            inodes: Inodes::new(store.nodes.limit() / 2),
            orphans: Orphans::new(&store.geo),
            since,
            ops: Ops::new(),
            read_only,
            closed: AtomicBool::new(false),
            damage: Damage::default(),
            counters: Counters::default(),
            effects: Effects::default(),
            store,
        }
    }
}

impl Deref for Map {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}
