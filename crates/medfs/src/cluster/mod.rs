//! F2FS's own compression: files whose content is divided into clusters, each compressed where that saves a block.
//!
//! [`read`] expands clusters, [`write`] makes them and takes them apart, [`files`] decides which files are compressed and
//! gives saved blocks back, [`options`] is what a mount says of it. What clusters are on disk is in
//! [`medfs_format::compress`].
//!
//! Invariants:
//! - Whoever changes a page of a cluster that is compressed on disk *opens* it: all of its pages become dirty, its blocks are
//!   freed, its slots hold what is reserved. So nothing but reading, opening, freeing and moving knows of compressed clusters.
//! - Where pages may be deltas of what a cluster holds (`delta/cluster.rs`), that is put off until its dirty pages are
//!   written: some of them may be dirty while it is closed. Otherwise it has no dirty page, or all of them while they are on
//!   their way to the device. What is dirty in a file then may have to be opened in one go, which bounds it.
//! - An opened cluster is written by the next checkpoint: the nodes no longer name what it was.
//! - A cluster is compressed only as a whole and before the end of the file; what is behind the end is zeros.
//! - `i_compr_blocks` counts the slots of compressed clusters that name no block. Those are reserved, and counted as
//!   blocks, until they are released; then such a file cannot be written.
//!
//! Locks: functions are called with the inode's lock held, exclusive (and the operation lock) to change; the compressors
//! are a leaf.
//! Kernel counterpart: `compress.c`.

pub(crate) mod blocks;
mod files;
mod pages;
mod read;
mod storage;
mod write;

pub(crate) use blocks::ClusterBlocks;
pub(crate) use pages::{ClusterPages, Clusters};
