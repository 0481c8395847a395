//! Deltas instead of pages: what changed of a page is kept in the file's inode (MedFS, section 4.1).
//!
//! A page's *base* is the block that its address names; with a delta in the inode's zone the page is what
//! delta and base make together. Where a page has no block yet, zeros stand for it. Where another file holds
//! nearly the same, slices of that file's blocks do: what finds these is above, and is asked through
//! [`Sources`](crate::content::storage::Sources). In a compressed file the base is what the cluster holds of
//! the page ([`Below`](crate::content::storage::Below)). Content knows [`Deltas`] as a
//! [`PageStorage`](crate::content::storage::PageStorage) only; rooms above ask [`DeltaPages`]. From the
//! lowest up:
//!
//! | what | where |
//! |---|---|
//! | options, codecs, counters | `state`, `fpc_records` |
//! | [`zone::Zone`]: a file's records, the size of their place, addresses noted there | [`zone`], `lost`, `addr_redo` |
//! | compact pages: what they hold | `compact`, `compact_map` |
//! | a page made of base and delta | `records` |
//! | compact pages: made, merged, left | `compact_write` |
//! | deltas that go, and zones that give way to addresses | `drop`, `address_room` |
//! | how little says what a page is; bases read many at once | `encode`, `base_prefetch` |
//! | what becomes of a page that is to be written | `decide`, `fpc`, `cluster`, `settle`, `place` |
//! | the layer as content sees it | `storage` |
//!
//! Invariants:
//! 1. A base is neither overwritten in place nor its block freed before the inode without the delta is on its
//!    way: a page with a delta, and one whose delta had to go
//!    ([`InodeState::whole`](crate::map::inode::InodeState::whole)), goes to a new block.
//! 2. A delta goes when its page's address changes, in the same change of the inode; so an index used again
//!    never meets an old delta.
//! 3. A delta that had to go before its page is written takes the page along into the next checkpoint.
//! 4. A page read by a delta has the checksum that is stored with it, or is an error.
//!
//! Locks, by rank: functions are called with the inode's lock (6) held, exclusive (and the operation lock, 4)
//! to change. The map of a file's compact pages (9) is taken inside it; `codecs` is a leaf. The blocks of
//! another file are looked up without its lock: that it is a source keeps them.

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
