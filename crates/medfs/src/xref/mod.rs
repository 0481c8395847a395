//! Cross references: blocks of one file that pages of other files are made from.
//!
//! Purpose: which blocks are needed by whom, kept across mounts; what recognises such pages (logs and journals of SQLite, files
//! written to replace others). How a file is made independent again is in [`crate::delta`].
//! Invariant: a block that another file needs is neither freed nor overwritten before that file is durable without it.
//! Locks: leaves; see `fs.rs`.

pub(crate) mod predecessor;
pub(crate) mod ref_index;
pub(crate) mod retained;
pub(crate) mod sqlite_layout;
pub(crate) mod sqlite_wal;
