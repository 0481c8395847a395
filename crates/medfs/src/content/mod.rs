//! Content: pages of files in memory, and their way to blocks.
//!
//! Purpose: reading and changing pages, writing them back, and the policy that says where a page goes.
//! Invariant: a dirty page has no address of its own until it is placed.
//! Locks: an inode's `wb` and lock; see `fs/mod.rs`.

#[cfg(test)]
pub(crate) mod alone;
pub(crate) mod atomic;
pub(crate) mod base_cache;
pub(crate) mod block_writer;
pub(crate) mod compact_index;
pub(crate) mod cost_model;
pub(crate) mod fallocate;
pub(crate) mod file;
mod file_range;
pub(crate) mod page_cache;
pub(crate) mod page_io;
pub(crate) mod page_plan;
pub(crate) mod placement;
pub(crate) mod plain;
pub(crate) mod record;
pub(crate) mod reserve;
pub(crate) mod reserved_files;
pub(crate) mod shift;
pub(crate) mod storage;
pub(crate) mod writeback;

use crate::map::Map;
use crate::map::inode::Inode;
use crate::map::refs::Dependents;
use crate::options::MountOptions;
use crate::profile::hotness::Hcluster;
use base_cache::BaseCache;
use cost_model::Costs;
use medfs_sync::Mutex;
use page_cache::Pages;
use placement::Placement;
use std::ops::Deref;
use std::sync::Arc;
use storage::{PageStorage, Updates};

/// Pages of files over a map.
pub(crate) struct Content {
    pub(crate) map: Map,
    pub(crate) opts: MountOptions,
    pub(crate) placement: Box<dyn Placement>,
    pub(crate) pages: Pages,
    /// Blocks that deltas are made against.
    pub(crate) base_cache: BaseCache,
    /// What the device's requests take.
    pub(crate) costs: Mutex<Costs>,
    /// Which blocks other pages need.
    pub(crate) dependents: Dependents,
    /// What is known of each file.
    pub(crate) hotness: Arc<Hcluster>,
    pub(crate) storages: Storages,
}

/// How pages are stored: of compressed files, where the volume has any, and of all others.
pub(crate) struct Storages {
    pub(crate) plain: Arc<dyn Updates>,
    pub(crate) clusters: Option<Arc<dyn PageStorage>>,
}

impl Content {
    /// How the pages of a file are stored.
    pub(crate) fn storage(&self, inode: &Inode) -> &dyn PageStorage {
        match &self.storages.clusters {
            Some(clusters) if self.compression(inode).is_some() => &**clusters,
            _ => &*self.storages.plain,
        }
    }
}

impl Deref for Content {
    type Target = Map;

    fn deref(&self) -> &Map {
        &self.map
    }
}
