//! The delta zone of an inode: finding it, changing its records, and its size.
//!
//! The zone takes what the file's addresses leave of the inode, less what extended attributes of users would have without
//! it. Its size changes freely while the file has no direct node; with the first one it is frozen, as the pages that
//! direct nodes address depend on it.

use super::fpc::MARKS_SLOTS;
use crate::content::record::{OwnedRecord, total_size};
use crate::error::Result;
use crate::fs::Fs;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use crate::map::xattr_area::XattrArea;
use crate::profile::file_class::Name;
use crate::stats::Counters;
use medfs_format::delta::{self, Record, ZONE_HEADER_SIZE, ZONE_OFFSET};
use medfs_format::node::{
    DEF_ADDRS_PER_INODE, DEFAULT_INLINE_XATTR_ADDRS, FileKind, Inline, MAX_INLINE_XATTR_ADDRS, RawInode,
};
use medfs_format::xattr::{self, HEADER_SIZE, NODE_BYTES, NameIndex, XattrEntry};
use medfs_format::{NEW_ADDR, NULL_ADDR};
use medfs_store::Dirty;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that extended attributes of users keep: what the default size of the inline area gives them.
const USER_BYTES: usize = DEFAULT_INLINE_XATTR_ADDRS * 4 - HEADER_SIZE;
/// Slots that a zone of no bytes takes, with the area around it.
const AROUND: usize = (ZONE_OFFSET + USER_BYTES) / 4;
/// Smallest zone worth having, in bytes.
const ZONE_MIN: usize = 128;
/// Slots of the inline area that a file keeps when it gets its first direct node, or compact page: 2 MiB of pages are left
/// to the inode.
pub(crate) const KEPT_SLOTS: usize = 400;
/// The same for a log that repeats another file, hardly any page of which ever needs an address.
const LOG_SLOTS: usize = 800;
/// Pages that a log gets ahead of need.
const RESERVED_AHEAD: usize = 63;
/// Slots left free for the next pages of a file when its zone gives way to addresses.
const GROWTH_SLOTS: usize = 8;

/// Whether a file can have a zone at all.
pub(super) fn may_have_one(inode: &Inode) -> bool {
    inode.raw(|r| {
        FileKind::from_mode(r.i_mode.get()) == Some(FileKind::Regular)
            && r.inline().contains(Inline::XATTR | Inline::EXTRA_ATTR)
            && !r.inline().intersects(Inline::DATA | Inline::PIN_FILE)
    })
}

impl Fs {
    /// Says in the zone, which must be there, whether the file has compact pages, and the first that counts.
    pub(super) fn set_zone_compact(&self, inode: &Inode, compact: bool, first: u32) {
        if let Some(zone) = inode.node.read(|d| self.zone_range(&d.block)) {
            self.nodes.update(&inode.node, Dirty::Full, |b| {
                delta::set_compact(&mut b.0[zone], compact, first);
            });
        }
    }

    /// Looks at the records in a file's zone.
    pub(super) fn with_records<R>(&self, inode: &Inode, f: impl FnOnce(&[Record<'_>]) -> R) -> Result<R> {
        inode.node.read(|d| match self.zone_range(&d.block) {
            Some(zone) => Ok(f(&delta::records(&d.block.0[zone], inode.ino)?)),
            None => Ok(f(&[])),
        })
    }

    /// All records in a file's zone, oldest first.
    pub(super) fn records(&self, inode: &Inode) -> Result<Vec<OwnedRecord>> {
        self.with_records(inode, |records| records.iter().map(OwnedRecord::from).collect())
    }

    /// The record of a page in the zone.
    pub(super) fn zone_record(&self, inode: &Inode, index: u64) -> Result<Option<OwnedRecord>> {
        self.with_records(inode, |records| {
            records.iter().find(|r| u64::from(r.index) == index).map(OwnedRecord::from)
        })
    }

    /// Puts a record into the zone, in place of the one its page had; `false` (nothing changed) where it does not fit.
    pub(super) fn put_record(&self, inode: &Inode, new: &OwnedRecord) -> Result<bool> {
        let mut records = self.records(inode)?;
        let before = total_size(&records);
        match records.iter_mut().find(|r| r.index == new.index) {
            Some(record) => *record = new.clone(),
            None => records.push(new.clone()),
        }
        let (after, kept) = (total_size(&records), self.room_for_notes(has_nodes(inode)));
        let fits = after <= before || after + kept <= self.zone_room(inode);
        Ok(fits && self.store_records(inode, &records))
    }

    /// Takes the records of a range of pages out of the zone.
    pub(super) fn remove_records(&self, inode: &Inode, pages: &Range<u64>) -> Result<()> {
        let mut records = self.records(inode)?;
        let before = records.len();
        records.retain(|r| !pages.contains(&u64::from(r.index)));
        if records.len() < before {
            self.store_records(inode, &records);
        }
        Ok(())
    }

    /// Replaces all records of the zone; `false` (nothing changed) where they do not fit.
    pub(super) fn store_records(&self, inode: &Inode, records: &[OwnedRecord]) -> bool {
        let Some(zone) = inode.node.read(|d| self.zone_range(&d.block)) else { return records.is_empty() };
        if total_size(records) + ZONE_HEADER_SIZE > zone.len() {
            return false;
        }
        let borrowed: Vec<Record<'_>> = records.iter().map(OwnedRecord::borrow).collect();
        self.nodes.update(&inode.node, Dirty::Full, |b| delta::fill_zone(&mut b.0[zone], &borrowed))
    }

    /// Bytes that records can have in the zone.
    pub(super) fn zone_room(&self, inode: &Inode) -> usize {
        let zone = inode.node.read(|d| self.zone_range(&d.block));
        zone.map_or(0, |zone| zone.len().saturating_sub(ZONE_HEADER_SIZE))
    }

    /// Makes the zone as large as the file's addresses allow, where that gives it `more` bytes at least.
    /// `false` (nothing changed) otherwise.
    pub(super) fn grow_zone(&self, inode: &Inode, more: usize) -> Result<bool> {
        if has_nodes(inode) {
            return self.zone_in_frozen_area(inode);
        }
        let slots = self.slots(inode);
        let used = self.used_addrs(inode);
        let size = (DEF_ADDRS_PER_INODE - slots.extra - used.max(slots.cluster)).min(MAX_INLINE_XATTR_ADDRS);
        if size * 4 < slots.inline_xattr * 4 + more.min(ZONE_MIN) || zone_bytes(size) < ZONE_MIN {
            return Ok(false);
        }
        self.set_inline_size(inode, size)
    }

    /// Before a file without direct nodes gets its first compact page, and with it a node: gives its zone the size that
    /// leaves addresses for pages to come. The zone's records must fit the smaller one.
    pub(super) fn freeze_zone(&self, inode: &Inode) -> Result<()> {
        let slots = self.slots(inode);
        let least = self.compact_slots(inode);
        if !has_nodes(inode) && slots.inline_xattr > least {
            self.set_inline_size(inode, least)?;
        }
        Ok(())
    }

    /// Bytes that records can have in a zone after [`Fs::freeze_zone`].
    pub(super) fn frozen_room(&self, inode: &Inode) -> usize {
        let mut room = self.zone_room(inode);
        if !has_nodes(inode) {
            room = room.min(zone_bytes(self.compact_slots(inode)) - ZONE_HEADER_SIZE);
        }
        room.saturating_sub(self.room_for_notes(true))
    }

    /// Slots of the inline area that a file keeps when it gets its first compact page.
    fn compact_slots(&self, inode: &Inode) -> usize {
        let frozen = self.frozen_slots(inode);
        if self.deltas.alone.is_some() { frozen } else { frozen.max(KEPT_SLOTS) }
    }

    /// Address slots of the inode up to the last one in use, whole clusters of them.
    fn used_addrs(&self, inode: &Inode) -> usize {
        let slots = self.slots(inode);
        inode.raw(|r| {
            let addrs = &r.i_addr[slots.extra..slots.extra + slots.addrs()];
            let used = addrs.iter().rposition(|a| a.get() != NULL_ADDR).map_or(0, |last| last + 1);
            used.next_multiple_of(slots.cluster)
        })
    }

    /// Slots of the inline area that a file keeps when it gets its first direct node, by its name: most where a log repeats a
    /// database and that is made use of, none where it does not, as its pages' bases have nothing to do with them. Where pages
    /// are compressed alone all files keep a few.
    fn frozen_slots(&self, inode: &Inode) -> usize {
        if self.deltas.alone.is_some() {
            return MARKS_SLOTS;
        }
        match inode.raw(Name::of) {
            Name::Log if self.is_compressed(inode) => 0,
            Name::Log if self.deltas.repeats && self.deltas.has_compact() => LOG_SLOTS,
            Name::Journal | Name::Database | Name::Other => KEPT_SLOTS,
            Name::Log => 0,
        }
    }

    /// Where the area's size is frozen with room for a zone but there is none yet, makes one.
    fn zone_in_frozen_area(&self, inode: &Inode) -> Result<bool> {
        let size = self.slots(inode).inline_xattr;
        if size * 4 < AROUND * 4 + ZONE_MIN || inode.node.read(|d| self.zone_range(&d.block)).is_some() {
            return Ok(false);
        }
        self.set_inline_size(inode, size)
    }

    /// Makes room for the address of page `index` before it is looked for: a zone gives way, oldest deltas first (case 1),
    /// and freezes at its final size where the file is about to get its first direct node. Tells whether the inode's slots
    /// are divided anew: slots found before are of no use then.
    pub(crate) fn make_address_room(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        index: u64,
    ) -> Result<bool> {
        if !self.is_delta_volume() {
            return Ok(false);
        }
        let slots = self.slots(inode);
        if index >= delta::compact_start(slots.fanout()) {
            self.leave_compact(inode, state)?;
        }
        let most = DEF_ADDRS_PER_INODE - slots.extra;
        let frozen = self.frozen_slots(inode);
        let behind = index >= slots.addrs() as u64;
        // The last moment at which a file that has no zone yet can still get one.
        let kept = (most - frozen) / slots.cluster * slots.cluster;
        let reserving = slots.inline_xattr < frozen && index >= kept as u64;
        if !(behind || reserving) || !may_have_one(inode) || has_nodes(inode) {
            return Ok(false);
        }
        if reserving && self.deltas.makes_records() {
            let fits = self.used_addrs(inode) <= kept;
            return Ok(fits && self.set_inline_size(inode, frozen)?);
        }
        if !behind {
            return Ok(false);
        }
        let needed = usize::try_from(index + 1).unwrap_or(most).min(most).next_multiple_of(slots.cluster);
        let wanted = most.saturating_sub(needed + GROWTH_SLOTS);
        let size = wanted.max(frozen).max(DEFAULT_INLINE_XATTR_ADDRS).min(slots.inline_xattr);
        if size < slots.inline_xattr {
            self.shrink_zone(inode, state, size)?;
        }
        Ok(self.slots(inode) != slots)
    }

    /// Reserves the pages behind one that a log has just got outside its inode, so that the node with their addresses need
    /// not be written with each of them. Where there is no room, they are reserved when they come.
    pub(crate) fn reserve_ahead(&self, inode: &Inode, slot: &Slot, index: u64) {
        if slot.is_inode()
            || !self.is_delta_volume()
            || !may_have_one(inode)
            || self.frozen_slots(inode) != LOG_SLOTS
        {
            return;
        }
        for next in (index + 1..).take(RESERVED_AHEAD).map_while(|next| slot.step_to(next)) {
            if next.addr() != NULL_ADDR || self.space.reserve(1).is_err() {
                return;
            }
            self.set_addr(inode, &next, NEW_ADDR);
            self.count_block(inode);
        }
    }

    fn shrink_zone(&self, inode: &Arc<Inode>, state: &mut InodeState, size: usize) -> Result<()> {
        let room = zone_bytes(size);
        loop {
            let records = self.records(inode)?;
            match records.first() {
                Some(oldest) if total_size(&records) + ZONE_HEADER_SIZE > room => {
                    let made = self.make_whole(inode, state, oldest.index.into());
                    if self.pass_by("a zone stays as large as it is", inode.ino, made)?.is_none() {
                        return Ok(());
                    }
                    Counters::add(&self.deltas.counters.evicted_by_growth, 1);
                }
                // Where attributes are in the way, the file gets a direct node and keeps its zone as it is.
                _ => return self.set_inline_size(inode, size).map(drop),
            }
        }
    }

    /// Gives the inline area a size in slots, and the zone what it leaves: its records must fit. Not for files with
    /// direct nodes, unless the size is the one they have. `false` (nothing changed) where the attributes of users would
    /// need an xattr node that is not there.
    fn set_inline_size(&self, inode: &Inode, size: usize) -> Result<bool> {
        self.lay_out_area(inode, size, zone_bytes(size))
    }

    /// Takes away what an empty file keeps of deltas: blocks of compact pages, and an area larger than usual. The caller is
    /// one that may free nodes ([`Fs::change_settled`]).
    pub(crate) fn leave_deltas(&self, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        if !self.is_delta_volume() || !may_have_one(inode) {
            return Ok(());
        }
        self.drop_deltas(inode, state, 0..u64::MAX)?;
        self.leave_compact(inode, state)?;
        self.remove_zone(inode)
    }

    /// Takes an empty zone away, and the room it took where the file has no direct node.
    pub(super) fn remove_zone(&self, inode: &Inode) -> Result<()> {
        let size = self.slots(inode).inline_xattr;
        let resizable = size > DEFAULT_INLINE_XATTR_ADDRS && may_have_one(inode) && !has_nodes(inode);
        if resizable && self.lay_out_area(inode, DEFAULT_INLINE_XATTR_ADDRS, 0)? {
            return Ok(());
        }
        if inode.node.read(|d| self.zone_range(&d.block)).is_some() {
            self.lay_out_area(inode, size, 0)?;
        }
        Ok(())
    }

    /// Gives the inline area a size in slots and the zone one in bytes: none where it is small and there are no records.
    fn lay_out_area(&self, inode: &Inode, size: usize, room: usize) -> Result<bool> {
        let (header, records) = (self.zone_header(inode)?, self.records(inode)?);
        let mut entries = XattrArea { map: self, inode }.read()?;
        entries.retain(|e| e.index != NameIndex::Delta as u8);
        if room >= ZONE_MIN || !records.is_empty() {
            let mut value = delta::empty_zone(room);
            if let Some(old) = header {
                delta::set_compact(&mut value, old.flags & delta::ZONE_COMPACT != 0, old.first.get());
            }
            let borrowed: Vec<Record<'_>> = records.iter().map(OwnedRecord::borrow).collect();
            assert!(delta::fill_zone(&mut value, &borrowed), "the caller made them fit");
            entries.push(XattrEntry { index: NameIndex::Delta as u8, name: Vec::new(), value });
        }
        let has_node = inode.raw(|r| r.i_xattr_nid.get() != 0);
        let area = size * 4 + if has_node { NODE_BYTES } else { 0 };
        if !xattr::write(&mut vec![0; area], &entries) && !entries.is_empty() {
            return Ok(false);
        }
        let old = self.slots(inode).inline_xattr_range();
        self.nodes.update(&inode.node, Dirty::Full, |b| {
            b.0[old].fill(0);
            if let Some(extra) = b.view_mut::<RawInode>().extra_mut() {
                extra.i_inline_xattr_size = (size as u16).into();
            }
        });
        XattrArea { map: self, inode }.write(entries)?;
        Ok(true)
    }
}

/// Bytes of the zone in an inline area of so many slots.
fn zone_bytes(slots: usize) -> usize {
    slots.saturating_sub(AROUND) * 4
}

pub(super) fn has_nodes(inode: &Inode) -> bool {
    inode.raw(|r| r.i_nid.iter().any(|nid| nid.get() != 0))
}

const _: () = assert!(zone_min_fits());

/// Whether an inline area of the default size has no zone, and the frozen one has.
const fn zone_min_fits() -> bool {
    AROUND * 4 + ZONE_MIN > DEFAULT_INLINE_XATTR_ADDRS * 4 && KEPT_SLOTS * 4 > AROUND * 4 + ZONE_MIN
}
