//! Content: pages of files in memory, and their way to blocks.
//!
//! Purpose: reading and changing pages, writing them back, and the policy that says where a page goes.
//! Invariant: a dirty page has no address of its own until it is placed.
//! Locks: an inode's `wb` and lock; see `fs.rs`.

pub(crate) mod block_writer;
pub(crate) mod fallocate;
pub(crate) mod file;
pub(crate) mod page_cache;
pub(crate) mod page_io;
pub(crate) mod page_plan;
pub(crate) mod placement;
pub(crate) mod record;
pub(crate) mod reserve;
pub(crate) mod reserved_files;
pub(crate) mod shift;
pub(crate) mod writeback;
