//! Content: pages of files in memory, and their way to blocks.
//!
//! Purpose: reading and changing pages, writing them back, and the policy that says where a page goes. How
//! the pages of a file are stored content does not know: it asks a [`PageStorage`]. What it offers:
//!
//! | what | where |
//! |---|---|
//! | reading and writing files, their size, content in the inode | [`file`] |
//! | ranges: reserved, punched, zeroed, collapsed, inserted; holes and data | [`fallocate`], [`shift`] |
//! | atomic writes | [`atomic`] |
//! | a page: read, changed, dirty, forgotten; away from memory and back | [`page_io`], [`away`] |
//! | pages on their way to the device, and moved by cleaning | [`writeback`] |
//! | addresses for data blocks, and the policies that choose them | [`block_writer`], [`placement`], [`reserve`] |
//! | how pages are stored: the traits, and the plainest of their implementations | [`storage`], [`plain`] |
//! | clean pages, bases of deltas, what the device's requests take | [`page_cache`], [`base_cache`], [`cost_model`] |
//!
//! Invariants:
//! 1. A page is dirty, with its inode, or clean, in the cache or on the device alone. A dirty page has its
//!    space reserved.
//! 2. A dirty page has no address of its own until it is placed. It stays in memory until the block at that
//!    address is written, unless a record in NVRAM has it ([`away`]).
//! 3. A data block gets its address in [`block_writer`] and nowhere else.
//! 4. A storage is told of a change before anything of it is done, and that pages go before their addresses do.
//!
//! Locks, by rank: an inode's `wb` (3), the operation lock (4), the inode's (6). Caches, costs and policies
//! have leaves. Nothing here makes room, and nothing waits for another file: callers do both before they take
//! the first lock.

pub(crate) mod alone;
pub(crate) mod atomic;
pub(crate) mod away;
pub(crate) mod base_cache;
pub(crate) mod block_writer;
pub(crate) mod codec_pool;
pub(crate) mod compact_index;
pub(crate) mod cost_model;
pub(crate) mod fallocate;
pub(crate) mod file;
mod file_range;
mod lies;
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
pub(crate) mod update_costs;
pub(crate) mod writeback;

use crate::map::Map;
use crate::map::inode::{self, Inode};
use crate::map::refs::BlockRefs;
use crate::options::MountOptions;
use crate::profile::Profiles;
use crate::profile::file_class::FileClass;
use base_cache::BaseCache;
use codec_pool::CodecPool;
use cost_model::Costs;
use medfs_format::Ino;
use medfs_format::node::RawInode;
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
    pub(crate) codecs: CodecPool,
    /// What the device's requests take.
    pub(crate) costs: Arc<Mutex<Costs>>,
    /// Which blocks other pages need.
    pub(crate) refs: BlockRefs,
    /// What is known of each file.
    pub(crate) profiles: Arc<Profiles>,
    pub(crate) storages: Storages,
}

/// How pages are stored: of compressed files, where the volume has any, and of all others.
pub(crate) struct Storages {
    pub(crate) plain: Arc<dyn Updates>,
    pub(crate) clusters: Option<Arc<dyn PageStorage>>,
}

impl Content {
    /// Writes into an inode which name it has.
    pub(crate) fn set_name(&self, ino: Ino, r: &mut RawInode, parent: Ino, name: &[u8]) {
        inode::set_name(r, parent, name);
        self.profiles.note_name(ino, FileClass::of(r));
    }

    /// What the name of a file says.
    pub(crate) fn class(&self, inode: &Inode) -> FileClass {
        inode.raw(|r| self.profiles.class(inode.ino, r))
    }

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
