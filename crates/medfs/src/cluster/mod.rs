//! F2FS's own compression: files whose content is divided into clusters, each compressed where that saves a block.
//!
//! Content knows [`Clusters`] as a [`PageStorage`](crate::content::storage::PageStorage) only; rooms above
//! ask [`ClusterPages`]. What changes of a page while its cluster stays is kept by
//! [`Updates`](crate::content::storage::Updates), which a volume without deltas does not have. What clusters
//! are on disk is in [`medfs_format::compress`].
//!
//! | what | where |
//! |---|---|
//! | clusters as their blocks hold them | [`blocks`] |
//! | reading compressed files | `read` |
//! | making clusters, and taking them apart | `write` |
//! | which files are compressed; saved blocks given back, and taken again | `files` |
//! | the layer as content sees it | `storage` |
//!
//! Invariants:
//! 1. Whoever changes a page of a cluster that is compressed on disk *opens* it: all of its pages become
//!    dirty, its blocks are freed, its slots hold what is reserved. So nothing but reading, opening, freeing
//!    and moving knows of compressed clusters.
//! 2. Where what changed may be kept beside a cluster, that is put off until its dirty pages are written:
//!    some of them may be dirty while it is closed. Otherwise it has no dirty page, or all of them while they
//!    are on their way to the device. What is dirty in a file then may have to be opened in one go, which
//!    bounds it.
//! 3. An opened cluster is written by the next checkpoint: the nodes no longer name what it was.
//! 4. A cluster is compressed only as a whole and before the end of the file; what is behind the end is zeros.
//! 5. `i_compr_blocks` counts the slots of compressed clusters that name no block. Those are reserved, and
//!    counted as blocks, until they are released; then such a file cannot be written.
//!
//! Locks, by rank: functions are called with the inode's lock (6) held, exclusive (and the operation lock, 4)
//! to change; the compressors are a leaf. Kernel counterpart: `compress.c`.

pub(crate) mod blocks;
mod files;
mod pages;
mod read;
mod storage;
mod write;

pub(crate) use blocks::ClusterBlocks;
pub(crate) use pages::{ClusterPages, Clusters};
