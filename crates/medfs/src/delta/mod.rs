//! Deltas instead of pages: what changed of a page is kept in the file's inode (MedFS, section 4.1).
//!
//! A page's *base* is the block that its address names; with a delta in the inode's zone the page is what delta and base
//! make together. [`zone`] keeps the zone and its size, [`crate::content::cost_model`] measures what replacing a delta is worth; [`base_prefetch`] reads bases, many at once,
//! and [`fold`] writes all that is a delta as pages again.
//!
//! Where a page has no block yet, zeros stand for it, and where another file holds nearly the same, slices of that file's
//! blocks ([`crate::xref::sqlite_wal`], [`crate::xref::predecessor`]); those count as bases too ([`crate::map::refs`], kept across mounts by [`crate::xref::ref_index`] and [`crate::xref::retained`], let go by [`crate::xref::unshare`]). [`decide`] decides about pages that are to be written,
//! [`compact`] has the records for which the zone is too small ([`lost`]: where they cannot be read), and [`fpc`] the pages that are compressed instead; [`cluster`] is about
//! pages of compressed clusters. [`addr_redo`] keeps changed addresses where deltas are.
//!
//! Invariants:
//! - A base is neither overwritten in place nor its block freed before the inode without the delta is on its way: a page
//!   with a delta, and one whose delta had to go ([`InodeState::whole`]), goes to a new block.
//! - A delta goes when its page's address changes, in the same change of the inode; so an index used again never meets
//!   an old delta.
//! - A delta that had to go before its page is written takes the page along into the next checkpoint.
//! - A page read by a delta has the checksum that is stored with it, or is an error.
//!
//! Locks: functions are called with the inode's lock held, exclusive (and the operation lock) to change; `codecs`
//! is a leaf. The blocks of another file are looked up without its lock: that it is a source keeps them.

pub(crate) mod addr_redo;
mod address_room;
mod base_prefetch;
mod cluster;
mod compact;
mod compact_map;
mod compact_write;
mod decide;
mod drop;
mod encode;
mod fpc;
mod fpc_records;
mod layer;
mod lost;
mod occupancy;
mod place;
mod records;
mod settle;
mod state;
mod storage;
pub(crate) mod zone;

pub(crate) use layer::DeltaPages;
pub(crate) use state::{BASES_PART, Deltas};
