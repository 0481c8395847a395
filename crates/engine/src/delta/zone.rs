//! The delta zone of an inode: finding it, changing its records, and its size.
//!
//! The zone takes what the file's addresses leave of the inode, less what extended attributes of users would have without
//! it. Its size changes freely while the file has no direct node; with the first one it is frozen, as the pages that
//! direct nodes address depend on it (rule 5 of the design).

use crate::error::Result;
use crate::fs::Fs;
use crate::inode::{Inode, InodeState};
use crate::node::Dirty;
use crate::options::DeltaMode;
use crate::stats::Counters;
use medfs_format::delta::{self, Record, ZONE_OFFSET};
use medfs_format::node::{
    DEF_ADDRS_PER_INODE, DEFAULT_INLINE_XATTR_ADDRS, FileFlags, FileKind, Inline, MAX_INLINE_XATTR_ADDRS,
    RawInode,
};
use medfs_format::xattr::{self, HEADER_SIZE, NODE_BYTES, NameIndex, XattrEntry};
use medfs_format::{Block, NULL_ADDR};
use std::ops::Range;
use std::sync::Arc;

/// Bytes that extended attributes of users keep: what the default size of the inline area gives them.
const USER_BYTES: usize = DEFAULT_INLINE_XATTR_ADDRS * 4 - HEADER_SIZE;
/// Slots that a zone of no bytes takes, with the area around it.
const AROUND: usize = (ZONE_OFFSET + USER_BYTES) / 4;
/// Smallest zone worth having, in bytes.
const ZONE_MIN: usize = 128;
/// Slots of the inline area that a database keeps when it gets its first direct node.
const FROZEN_SLOTS: usize = 400;
/// Slots left free for the next pages of a file when its zone gives way to addresses.
const GROWTH_SLOTS: usize = 8;

/// A record copied out of its zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnedRecord {
    pub(crate) index: u32,
    pub(crate) codec: u8,
    pub(crate) checksum: u32,
    pub(crate) delta: Vec<u8>,
}

impl OwnedRecord {
    fn borrow(&self) -> Record<'_> {
        Record { index: self.index, codec: self.codec, checksum: self.checksum, delta: &self.delta }
    }
}

impl From<&Record<'_>> for OwnedRecord {
    fn from(r: &Record<'_>) -> OwnedRecord {
        OwnedRecord { index: r.index, codec: r.codec, checksum: r.checksum, delta: r.delta.to_vec() }
    }
}

/// Whether a file can have a zone at all.
pub(super) fn may_have_one(inode: &Inode) -> bool {
    inode.raw(|r| {
        FileKind::from_mode(r.i_mode.get()) == Some(FileKind::Regular)
            && r.inline().contains(Inline::XATTR)
            && !r.inline().intersects(Inline::DATA | Inline::PIN_FILE)
            && !r.flags().contains(FileFlags::COMPR)
    })
}

impl Fs {
    /// Bytes of the inode block that are the zone; `None` where there is none.
    pub(super) fn zone_range(&self, block: &Block) -> Option<Range<usize>> {
        let raw: &RawInode = block.view();
        if !self.delta_volume || !raw.inline().contains(Inline::XATTR) {
            return None;
        }
        let area = raw.slots(self.flexible_inline_xattr()).inline_xattr_range();
        let zone = delta::zone_range(&block.0[area.clone()])?;
        Some(area.start + zone.start..area.start + zone.end)
    }

    /// Looks at a file's records.
    pub(super) fn with_records<R>(&self, inode: &Inode, f: impl FnOnce(&[Record<'_>]) -> R) -> Result<R> {
        inode.node.read(|d| match self.zone_range(&d.block) {
            Some(zone) => Ok(f(&delta::records(&d.block.0[zone], inode.ino)?)),
            None => Ok(f(&[])),
        })
    }

    /// All records of a file, oldest first.
    pub(super) fn records(&self, inode: &Inode) -> Result<Vec<OwnedRecord>> {
        self.with_records(inode, |records| records.iter().map(OwnedRecord::from).collect())
    }

    /// The delta of a page.
    pub(crate) fn delta_of(&self, inode: &Inode, index: u64) -> Result<Option<OwnedRecord>> {
        self.with_records(inode, |records| {
            records.iter().find(|r| u64::from(r.index) == index).map(OwnedRecord::from)
        })
    }

    pub(super) fn has_delta(&self, inode: &Inode, index: u64) -> bool {
        self.with_records(inode, |records| records.iter().any(|r| u64::from(r.index) == index))
            .unwrap_or(true)
    }

    /// The pages of a file that have deltas, sorted.
    pub(crate) fn delta_pages(&self, inode: &Inode) -> Result<Vec<u64>> {
        self.with_records(inode, |records| {
            let mut pages: Vec<u64> = records.iter().map(|r| u64::from(r.index)).collect();
            pages.sort_unstable();
            pages
        })
    }

    /// Puts a record into the zone, in place of the one its page had; `false` (nothing changed) where it does not fit.
    pub(super) fn put_record(&self, inode: &Inode, new: &Record<'_>) -> Result<bool> {
        let old = self.records(inode)?;
        let mut records: Vec<Record<'_>> = old.iter().map(OwnedRecord::borrow).collect();
        match records.iter_mut().find(|r| r.index == new.index) {
            Some(record) => *record = *new,
            None => records.push(*new),
        }
        Ok(self.store_records(inode, &records))
    }

    pub(super) fn remove_records(&self, inode: &Inode, pages: Range<u64>) -> Result<()> {
        let old = self.records(inode)?;
        let kept: Vec<Record<'_>> =
            old.iter().filter(|r| !pages.contains(&u64::from(r.index))).map(OwnedRecord::borrow).collect();
        if kept.len() < old.len() {
            self.store_records(inode, &kept);
        }
        Ok(())
    }

    fn store_records(&self, inode: &Inode, records: &[Record<'_>]) -> bool {
        let Some(zone) = inode.node.read(|d| self.zone_range(&d.block)) else { return false };
        let size: usize = records.iter().map(Record::size).sum();
        if size + delta::ZONE_HEADER_SIZE > zone.len() {
            return false;
        }
        self.nodes.update(&inode.node, Dirty::Full, |b| delta::fill_zone(&mut b.0[zone], records))
    }

    /// Makes the zone as large as the file's addresses allow, where that gives it `more` bytes at least.
    /// `false` (nothing changed) otherwise.
    pub(super) fn grow_zone(&self, inode: &Inode, more: usize) -> Result<bool> {
        if self.deltas.mode == DeltaMode::Off || !may_have_one(inode) || has_nodes(inode) {
            return self.zone_in_frozen_area(inode);
        }
        let slots = self.slots(inode);
        let used = self.used_addrs(inode);
        let size = (DEF_ADDRS_PER_INODE - slots.extra - used.max(1)).min(MAX_INLINE_XATTR_ADDRS);
        if size < slots.inline_xattr || size * 4 < slots.inline_xattr * 4 + more.min(ZONE_MIN) {
            return Ok(false);
        }
        self.set_inline_size(inode, size)
    }

    /// Address slots of the inode up to the last one in use.
    fn used_addrs(&self, inode: &Inode) -> usize {
        let slots = self.slots(inode);
        inode.raw(|r| {
            let addrs = &r.i_addr[slots.extra..slots.extra + slots.addrs()];
            addrs.iter().rposition(|a| a.get() != NULL_ADDR).map_or(0, |last| last + 1)
        })
    }

    /// Where the area's size is frozen with room for a zone but there is none yet, makes one.
    fn zone_in_frozen_area(&self, inode: &Inode) -> Result<bool> {
        let size = self.slots(inode).inline_xattr;
        let fits =
            self.deltas.mode != DeltaMode::Off && may_have_one(inode) && size * 4 >= AROUND * 4 + ZONE_MIN;
        if !fits || inode.node.read(|d| self.zone_range(&d.block)).is_some() {
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
        if !self.delta_volume {
            return Ok(false);
        }
        let slots = self.slots(inode);
        let most = DEF_ADDRS_PER_INODE - slots.extra;
        let behind = index >= slots.addrs() as u64;
        // The last moment at which a file that has no zone yet can still get one.
        let reserving = slots.inline_xattr < FROZEN_SLOTS && index >= (most - FROZEN_SLOTS) as u64;
        if !(behind || reserving) || !may_have_one(inode) || has_nodes(inode) {
            return Ok(false);
        }
        let written_again = inode.raw(is_database);
        if reserving && written_again && self.deltas.mode != DeltaMode::Off {
            let fits = self.used_addrs(inode) <= most - FROZEN_SLOTS;
            return Ok(fits && self.set_inline_size(inode, FROZEN_SLOTS)?);
        }
        if !behind {
            return Ok(false);
        }
        let least = if written_again { FROZEN_SLOTS } else { DEFAULT_INLINE_XATTR_ADDRS };
        let wanted = usize::try_from(index + 1).map_or(0, |pages| most.saturating_sub(pages + GROWTH_SLOTS));
        let size = wanted.max(least).min(slots.inline_xattr);
        if size < slots.inline_xattr {
            self.shrink_zone(inode, state, size)?;
        }
        Ok(self.slots(inode) != slots)
    }

    fn shrink_zone(&self, inode: &Arc<Inode>, state: &mut InodeState, size: usize) -> Result<()> {
        let room = zone_bytes(size);
        loop {
            let records = self.records(inode)?;
            let used: usize = records.iter().map(|r| r.borrow().size()).sum();
            match records.first() {
                Some(oldest) if used + delta::ZONE_HEADER_SIZE > room => {
                    self.make_whole(inode, state, oldest.index.into())?;
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
        let records = self.records(inode)?;
        let mut entries = self.read_xattrs(inode)?;
        entries.retain(|e| e.index != NameIndex::Delta as u8);
        if room >= ZONE_MIN || !records.is_empty() {
            let mut value = delta::empty_zone(room);
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
        self.write_xattrs(inode, entries)?;
        Ok(true)
    }
}

/// Bytes of the zone in an inline area of so many slots.
fn zone_bytes(slots: usize) -> usize {
    slots.saturating_sub(AROUND) * 4
}

fn has_nodes(inode: &Inode) -> bool {
    inode.raw(|r| r.i_nid.iter().any(|nid| nid.get() != 0))
}

/// Whether the name is one that people give to databases, or that of SQLite's rollback journal. Not that of its write-ahead
/// log: a frame is seldom like the one it overwrites, and addresses outside the inode would cost a node with each append.
fn is_database(r: &RawInode) -> bool {
    let len = usize::from(r.i_namelen.get() as u16).min(r.i_name.len());
    let name = &r.i_name[..len];
    [&b"-journal"[..], b".db", b".sqlite", b".sqlite3", b".db3"].iter().any(|suffix| name.ends_with(suffix))
}

const _: () = assert!(zone_min_fits());

/// Whether an inline area of the default size has no zone, and the frozen one has.
const fn zone_min_fits() -> bool {
    AROUND * 4 + ZONE_MIN > DEFAULT_INLINE_XATTR_ADDRS * 4 && FROZEN_SLOTS * 4 > AROUND * 4 + ZONE_MIN
}
