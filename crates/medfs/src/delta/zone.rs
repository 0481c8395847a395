//! The delta zone of an inode: finding it, changing its records, and its size.
//!
//! The zone takes what the file's addresses leave of the inode, less what extended attributes of users would
//! have without it. Its size changes freely while the file has no direct node; with the first one it is
//! frozen, as the pages that direct nodes address depend on it.

use super::fpc_records::MARKS_SLOTS;
use super::state::Deltas;
use crate::content::Content;
use crate::content::record::{OwnedRecord, total_size};
use crate::error::Result;
use crate::map::inode::Inode;
use crate::map::xattr_area::XattrArea;
use crate::profile::file_class::FileClass;
use medfs_format::NULL_ADDR;
use medfs_format::delta::{self, Record, TIE_SIZE, Tie, ZONE_HEADER_SIZE, ZONE_OFFSET};
use medfs_format::node::{
    DEF_ADDRS_PER_INODE, DEFAULT_INLINE_XATTR_ADDRS, FileKind, Inline, MAX_INLINE_XATTR_ADDRS, RawInode,
};
use medfs_format::xattr::{self, HEADER_SIZE, NODE_BYTES, NameIndex, XattrEntry};
use medfs_store::Dirty;
use std::ops::{Deref, Range};

/// Bytes that extended attributes of users keep: what the default size of the inline area gives them.
const USER_BYTES: usize = DEFAULT_INLINE_XATTR_ADDRS * 4 - HEADER_SIZE;
/// Slots that a zone of no bytes takes, with the area around it.
const AROUND: usize = (ZONE_OFFSET + USER_BYTES) / 4;
/// Smallest zone worth having, in bytes.
const ZONE_MIN: usize = 128;
/// Slots of the inline area that a file keeps when it gets its first direct node, or compact page: 0.8 MiB of
/// pages are left to the inode.
pub(crate) const KEPT_SLOTS: usize = 660;
/// The same for a log that repeats another file, hardly any page of which ever needs an address.
pub(super) const LOG_SLOTS: usize = 800;
/// Slots left free for the next pages of a file when its zone gives way to addresses.
pub(super) const GROWTH_SLOTS: usize = 8;

/// Whether a file can have a zone at all.
pub(super) fn may_have_one(inode: &Inode) -> bool {
    inode.raw(|r| {
        FileKind::from_mode(r.i_mode.get()) == Some(FileKind::Regular)
            && r.inline().contains(Inline::XATTR | Inline::EXTRA_ATTR)
            && !r.inline().intersects(Inline::DATA | Inline::PIN_FILE)
    })
}

/// The zone of a file, there or not.
#[derive(Clone, Copy)]
pub(crate) struct Zone<'a> {
    pub(super) content: &'a Content,
    pub(super) deltas: &'a Deltas,
    pub(super) inode: &'a Inode,
}

impl Deref for Zone<'_> {
    type Target = Content;

    fn deref(&self) -> &Content {
        self.content
    }
}

impl Zone<'_> {
    /// Says in the zone, which must be there, whether the file has compact pages, and the first that counts.
    pub(super) fn set_compact(&self, compact: bool, first: u32) {
        if let Some(zone) = self.inode.node.read(|d| self.zone_range(&d.block)) {
            self.nodes.update(&self.inode.node, Dirty::Full, |b| {
                delta::set_compact(&mut b.0[zone], compact, first);
            });
        }
    }

    /// Which compact pages the zone says that there are; `None` where it does not say so.
    pub(super) fn tie(&self) -> Option<Tie> {
        self.inode.node.read(|d| self.zone_range(&d.block).and_then(|zone| delta::tie(&d.block.0[zone])))
    }

    /// Says in the zone which compact pages there are: where it did so before, or the volume allows it and there is
    /// room.
    pub(super) fn set_tie(&self, tie: Tie) {
        let Some(zone) = self.inode.node.read(|d| self.zone_range(&d.block)) else { return };
        if self.tie().is_some() || self.sb.has_ties() {
            self.nodes.update(&self.inode.node, Dirty::Full, |b| delta::set_tie(&mut b.0[zone], tie));
        }
    }

    /// Looks at the records in a file's zone.
    pub(super) fn with_records<R>(&self, f: impl FnOnce(&[Record<'_>]) -> R) -> Result<R> {
        self.inode.node.read(|d| match self.zone_range(&d.block) {
            Some(zone) => Ok(f(&delta::records(&d.block.0[zone], self.inode.ino)?)),
            None => Ok(f(&[])),
        })
    }

    /// All records in a file's zone, oldest first.
    pub(super) fn records(&self) -> Result<Vec<OwnedRecord>> {
        self.with_records(|records| records.iter().map(OwnedRecord::from).collect())
    }

    /// The record of a page in the zone.
    pub(super) fn record(&self, index: u64) -> Result<Option<OwnedRecord>> {
        self.with_records(|records| {
            records.iter().find(|r| u64::from(r.index) == index).map(OwnedRecord::from)
        })
    }

    /// Puts a record into the zone, in place of the one its page had; `false` (nothing changed) where it does not fit.
    pub(super) fn put(&self, new: &OwnedRecord) -> Result<bool> {
        let mut records = self.records()?;
        let before = total_size(&records);
        match records.iter_mut().find(|r| r.index == new.index) {
            Some(record) => *record = new.clone(),
            None => records.push(new.clone()),
        }
        let (after, kept) = (total_size(&records), self.room_for_notes(has_nodes(self.inode)));
        let fits = after <= before || after + kept <= self.room();
        Ok(fits && self.store(&records))
    }

    /// Takes the records of a range of pages out of the zone.
    pub(super) fn remove(&self, pages: &Range<u64>) -> Result<()> {
        let mut records = self.records()?;
        let before = records.len();
        records.retain(|r| !pages.contains(&u64::from(r.index)));
        if records.len() < before {
            self.store(&records);
        }
        Ok(())
    }

    /// Replaces all records of the zone; `false` (nothing changed) where they do not fit.
    pub(super) fn store(&self, records: &[OwnedRecord]) -> bool {
        let Some(zone) = self.inode.node.read(|d| self.zone_range(&d.block)) else {
            return records.is_empty();
        };
        if total_size(records) > self.room() {
            return false;
        }
        let borrowed: Vec<Record<'_>> = records.iter().map(OwnedRecord::borrow).collect();
        self.nodes.update(&self.inode.node, Dirty::Full, |b| delta::fill_zone(&mut b.0[zone], &borrowed))
    }

    /// Bytes that records can have in the zone.
    pub(super) fn room(&self) -> usize {
        let zone = self.inode.node.read(|d| self.zone_range(&d.block));
        zone.map_or(0, |zone| self.inode.node.read(|d| delta::zone_room(&d.block.0[zone])))
    }

    /// Makes the zone as large as the file's addresses allow, where that gives it `more` bytes at least.
    /// `false` (nothing changed) otherwise.
    pub(super) fn grow(&self, more: usize) -> Result<bool> {
        if has_nodes(self.inode) {
            return self.in_frozen_area();
        }
        let slots = self.slots(self.inode);
        let used = self.used_addrs();
        let size = (DEF_ADDRS_PER_INODE - slots.extra - used.max(slots.cluster)).min(MAX_INLINE_XATTR_ADDRS);
        if size * 4 < slots.inline_xattr * 4 + more.min(ZONE_MIN) || zone_bytes(size) < ZONE_MIN {
            return Ok(false);
        }
        self.set_inline_size(size)
    }

    /// Before a file without direct nodes gets its first compact page, and with it a node: gives its zone the size that
    /// leaves addresses for pages to come. The zone's records must fit the smaller one.
    pub(super) fn freeze(&self) -> Result<()> {
        let slots = self.slots(self.inode);
        let least = self.compact_slots();
        if !has_nodes(self.inode) && slots.inline_xattr > least {
            self.set_inline_size(least)?;
        }
        Ok(())
    }

    /// Bytes that records can have in a zone after it is frozen.
    pub(super) fn frozen_room(&self) -> usize {
        let mut room = self.room();
        if !has_nodes(self.inode) {
            room = room.min(zone_bytes(self.compact_slots()) - ZONE_HEADER_SIZE);
        }
        let tie = if self.tie().is_some() { 0 } else { TIE_SIZE };
        room.saturating_sub(self.room_for_notes(true) + tie)
    }

    /// Slots of the inline area that a file keeps when it gets its first compact page.
    pub(super) fn compact_slots(&self) -> usize {
        let frozen = self.frozen_slots();
        if self.deltas.alone.is_some() { frozen } else { frozen.max(KEPT_SLOTS) }
    }

    /// Address slots of the inode up to the last one in use, whole clusters of them.
    pub(super) fn used_addrs(&self) -> usize {
        let slots = self.slots(self.inode);
        self.inode.raw(|r| {
            let addrs = &r.i_addr[slots.extra..slots.extra + slots.addrs()];
            let used = addrs.iter().rposition(|a| a.get() != NULL_ADDR).map_or(0, |last| last + 1);
            used.next_multiple_of(slots.cluster)
        })
    }

    /// Slots of the inline area that a file keeps when it gets its first direct node, by its name: most where
    /// a log repeats a database and that is made use of, none where it does not, as its pages' bases have
    /// nothing to do with them. Where pages are compressed alone all files keep a few.
    pub(super) fn frozen_slots(&self) -> usize {
        if self.deltas.alone.is_some() {
            return MARKS_SLOTS;
        }
        match self.class(self.inode) {
            FileClass::Wal if self.is_compressed(self.inode) => 0,
            FileClass::Wal if self.deltas.repeats && self.deltas.has_compact() => LOG_SLOTS,
            FileClass::RollbackJournal | FileClass::Database | FileClass::Other => KEPT_SLOTS,
            FileClass::Wal => 0,
        }
    }

    /// Where the area's size is frozen with room for a zone but there is none yet, makes one.
    fn in_frozen_area(&self) -> Result<bool> {
        let size = self.slots(self.inode).inline_xattr;
        if size * 4 < AROUND * 4 + ZONE_MIN || self.inode.node.read(|d| self.zone_range(&d.block)).is_some() {
            return Ok(false);
        }
        self.set_inline_size(size)
    }

    /// Gives the inline area a size in slots, and the zone what it leaves: its records must fit. Not for
    /// files with direct nodes, unless the size is the one they have. `false` (nothing changed) where the
    /// attributes of users would need an xattr node that is not there.
    pub(super) fn set_inline_size(&self, size: usize) -> Result<bool> {
        self.lay_out_area(size, zone_bytes(size))
    }

    /// Takes an empty zone away, and the room it took where the file has no direct node.
    pub(crate) fn remove_area(&self) -> Result<()> {
        let size = self.slots(self.inode).inline_xattr;
        let resizable =
            size > DEFAULT_INLINE_XATTR_ADDRS && may_have_one(self.inode) && !has_nodes(self.inode);
        if resizable && self.lay_out_area(DEFAULT_INLINE_XATTR_ADDRS, 0)? {
            return Ok(());
        }
        if self.inode.node.read(|d| self.zone_range(&d.block)).is_some() {
            self.lay_out_area(size, 0)?;
        }
        Ok(())
    }

    /// Gives the inline area a size in slots and the zone one in bytes: none where it is small and there are
    /// no records.
    fn lay_out_area(&self, size: usize, room: usize) -> Result<bool> {
        let (header, tie, records) = (self.zone_header(self.inode)?, self.tie(), self.records()?);
        let mut entries = XattrArea { map: self, inode: self.inode }.read()?;
        entries.retain(|e| e.index != NameIndex::Delta as u8);
        if room >= ZONE_MIN || !records.is_empty() {
            let mut value = delta::empty_zone(room);
            if let Some(old) = header {
                delta::set_compact(&mut value, old.flags & delta::ZONE_COMPACT != 0, old.first.get());
            }
            if let Some(tie) = tie {
                delta::set_tie(&mut value, tie);
            }
            let borrowed: Vec<Record<'_>> = records.iter().map(OwnedRecord::borrow).collect();
            assert!(delta::fill_zone(&mut value, &borrowed), "the caller made them fit");
            entries.push(XattrEntry { index: NameIndex::Delta as u8, name: Vec::new(), value });
        }
        let has_node = self.inode.raw(|r| r.i_xattr_nid.get() != 0);
        let area = size * 4 + if has_node { NODE_BYTES } else { 0 };
        if !xattr::write(&mut vec![0; area], &entries) && !entries.is_empty() {
            return Ok(false);
        }
        let old = self.slots(self.inode).inline_xattr_range();
        self.nodes.update(&self.inode.node, Dirty::Full, |b| {
            b.0[old].fill(0);
            if let Some(extra) = b.view_mut::<RawInode>().extra_mut() {
                extra.i_inline_xattr_size = (size as u16).into();
            }
        });
        XattrArea { map: self, inode: self.inode }.write(entries)?;
        Ok(true)
    }
}

/// Bytes of the zone in an inline area of so many slots.
pub(super) fn zone_bytes(slots: usize) -> usize {
    slots.saturating_sub(AROUND) * 4
}

pub(super) fn has_nodes(inode: &Inode) -> bool {
    inode.raw(RawInode::has_nodes)
}

const _: () = assert!(zone_min_fits());

/// Whether an inline area of the default size has no zone, and the frozen one has.
const fn zone_min_fits() -> bool {
    AROUND * 4 + ZONE_MIN > DEFAULT_INLINE_XATTR_ADDRS * 4 && KEPT_SLOTS * 4 > AROUND * 4 + ZONE_MIN
}
