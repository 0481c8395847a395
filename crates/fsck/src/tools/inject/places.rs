//! Where each structure is on a volume.

use super::Target;
use super::fields::*;
use crate::deltas;
use crate::finding::Findings;
use crate::image::Image;
use crate::inode::Rules;
use crate::log;
use crate::tools::dump::{Dump, DumpError};
use medfs_format::checkpoint::CpFlags;
use medfs_format::delta::{
    self, COMPACT_HEADER_SIZE, RECORD_HEADER_SIZE, RawSlice, ZONE_HEADER_SIZE, ZONE_OFFSET,
};
use medfs_format::nat::RawNatEntry;
use medfs_format::node::{self, RawInode, RawNodeFooter};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::shared::{self, ENTRY_SIZE, RawSharedHeader};
use medfs_format::sit::RawSitEntry;
use medfs_format::summary::{ENTRIES_PER_BLOCK, JOURNAL_SIZE, RawSummary, RawSummaryBlock};
use medfs_format::{BLOCK_SIZE, BlockAddr, COMPRESS_ADDR, Ino, nat, sit, superblock};
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::IntoBytes;

/// A structure: its block, its place there, and its fields.
pub(super) type Place = (BlockAddr, usize, &'static [Field]);

/// Where a target is; `field` decides which part of it.
pub(super) fn locate(dump: &mut Dump<'_>, target: &Target<'_>, field: &str) -> Result<Place, DumpError> {
    if let Some(place) = in_tables(&mut dump.image, target)? {
        return Ok(place);
    }
    if let Some(place) = in_deltas(&mut dump.image, target)? {
        return Ok(place);
    }
    let image = &mut dump.image;
    match *target {
        Target::Inode(ino) => {
            let addr = image.nat(ino)?.block_addr.get();
            let extra = EXTRA.iter().any(|(name, ..)| *name == split(field).0);
            Ok(match field.starts_with("footer.") {
                true => (addr, BLOCK_SIZE - size_of::<RawNodeFooter>(), FOOTER_DOTTED),
                false if extra => (addr, node::ADDR_OFFSET, EXTRA),
                false => (addr, 0, INODE),
            })
        }
        Target::Node(nid) => {
            let addr = image.nat(nid)?.block_addr.get();
            if field.starts_with("footer.") {
                return Ok((addr, BLOCK_SIZE - size_of::<RawNodeFooter>(), FOOTER_DOTTED));
            }
            let offset = node::footer(image.cache.get(addr)?).node_offset();
            Ok((addr, 0, if node_kind(offset) == NodeKind::Indirect { INDIRECT } else { DIRECT }))
        }
        Target::Cluster(ino, page) => Ok((cluster(image, ino, page)?, 0, CLUSTER)),
        Target::Dentry(dir, name) => {
            let found = dump.entry(dir, name)?;
            let e = found.ok_or_else(|| DumpError::NotFound(format!("no such entry in directory {dir}")))?;
            let base = e.area.start;
            Ok(match field {
                "used" => (e.addr, (base + e.slot / 8) | (e.slot % 8) << 16, DENTRY),
                _ if field.starts_with("name[") => (e.addr, base + e.layout.name_at(e.slot), NAME),
                _ => (e.addr, base + e.layout.entry_at(e.slot), DENTRY),
            })
        }
        _ => unreachable!("a table or a delta"),
    }
}

/// Where a target of the metadata area is.
fn in_tables(image: &mut Image<'_>, target: &Target<'_>) -> Result<Option<Place>, DumpError> {
    let pack = image.g.cp_pack(image.pack);
    Ok(Some(match *target {
        Target::Superblock(copy) => (copy, superblock::OFFSET_IN_BLOCK, SUPERBLOCK),
        Target::Checkpoint => (pack, 0, CHECKPOINT),
        Target::OtherCheckpoint => (image.g.cp_pack(1 - image.pack), 0, CHECKPOINT),
        Target::OrphanBlock => (pack + 1 + image.g.cp_payload, 0, ORPHANS),
        Target::Nat(nid) if image.nat_journal.contains_key(&nid) => {
            let (addr, at) = in_journal(image, 0, 13, nid)?;
            (addr, at, NAT)
        }
        Target::Nat(nid) => {
            let index = nid / nat::ENTRIES_PER_BLOCK as u32;
            let addr = image.g.nat_block(index, image.nat_second(index));
            (addr, nid as usize % nat::ENTRIES_PER_BLOCK * size_of::<RawNatEntry>(), NAT)
        }
        Target::Sit(segno) if image.sit_journal.contains_key(&segno) => {
            let (addr, at) = in_journal(image, 2, 78, segno)?;
            (addr, at, SIT)
        }
        Target::Sit(segno) => {
            let index = segno / sit::ENTRIES_PER_BLOCK as u32;
            let addr = image.g.sit_block(index, image.sit_second(index));
            (addr, segno as usize % sit::ENTRIES_PER_BLOCK * size_of::<RawSitEntry>(), SIT)
        }
        Target::Summary(addr) => {
            let segno = image.g.segno(addr);
            if image.curseg_of(segno).is_some() {
                return Err(DumpError::NotFound(format!("segment {segno} is a current one")));
            }
            let offset = image.g.offset_in_seg(addr) as usize * size_of::<RawSummary>();
            (image.g.ssa_block(segno), offset, SUMMARY)
        }
        Target::SummaryFooter(segno) => {
            (image.g.ssa_block(segno), offset_of!(RawSummaryBlock, footer), SUMMARY_FOOTER)
        }
        Target::Journal(log) => {
            let (addr, at) = journal(image, log);
            (addr, at, JOURNAL)
        }
        _ => return Ok(None),
    }))
}

/// Where a target is that only volumes with deltas have.
fn in_deltas(image: &mut Image<'_>, target: &Target<'_>) -> Result<Option<Place>, DumpError> {
    let behind_record = |at, slice| at + RECORD_HEADER_SIZE + slice * size_of::<RawSlice>();
    Ok(Some(match *target {
        Target::Zone(ino) => {
            let (addr, zone) = zone(image, ino)?;
            (addr, zone.start, ZONE)
        }
        Target::FirstXattr(ino) => {
            let (addr, zone) = zone(image, ino)?;
            (addr, zone.start - ZONE_OFFSET, FIRST_XATTR)
        }
        Target::Delta(ino, n) => {
            let (addr, at) = in_zone(image, ino, n)?;
            (addr, at, DELTA)
        }
        Target::Slice(ino, n, slice) => {
            let (addr, at) = in_zone(image, ino, n)?;
            (addr, behind_record(at, slice), SLICE)
        }
        Target::Compact(ino, page) => (compact_page(image, ino, page)?, 0, COMPACT),
        Target::CompactDelta(ino, page, n) => {
            let (addr, at) = in_compact(image, ino, page, n)?;
            (addr, at, DELTA)
        }
        Target::CompactSlice(ino, page, n, slice) => {
            let (addr, at) = in_compact(image, ino, page, n)?;
            (addr, behind_record(at, slice), SLICE)
        }
        Target::SharedNode(n) => (shared_node(image, n)?, 0, SHARED_NODE),
        Target::SharedEntry(n, entry) => {
            let addr = shared_node(image, n)?;
            let block = image.cache.read(addr)?;
            let entries = shared::entries(&block, addr).unwrap_or_default();
            let none = || DumpError::NotFound(format!("no entry {entry} in the shared node in block {addr}"));
            entries.get(entry).ok_or_else(none)?;
            let before: usize = entries[..entry].iter().map(|e| ENTRY_SIZE + e.delta.len()).sum();
            (addr, size_of::<RawSharedHeader>() + before, SHARED_ENTRY)
        }
        _ => return Ok(None),
    }))
}

/// Block of the header of the compressed cluster that starts at a page.
fn cluster(image: &mut Image<'_>, ino: Ino, page: u64) -> Result<BlockAddr, DumpError> {
    let addr = image.nat(ino)?.block_addr.get();
    let none = || DumpError::NotFound(format!("no compressed cluster of inode {ino} at page {page}"));
    if !image.g.in_main(addr) {
        return Err(none());
    }
    let mut inode: Box<RawInode> = Box::new(image.cache.read(addr)?.view::<RawInode>().clone());
    Rules::of(image).vet(&mut inode, ino).map_err(|_| none())?;
    let (mark, addr) = (image.address(&inode, page)?, image.address(&inode, page + 1)?);
    if mark == COMPRESS_ADDR && image.g.in_main(addr) { Ok(addr) } else { Err(none()) }
}

fn no_zone(ino: Ino) -> DumpError {
    DumpError::NotFound(format!("inode {ino} has no delta zone"))
}

/// Block and content of an inode, vetted.
fn vetted(image: &mut Image<'_>, ino: Ino) -> Result<(BlockAddr, Box<RawInode>), DumpError> {
    let addr = image.nat(ino)?.block_addr.get();
    if !image.g.in_main(addr) {
        return Err(no_zone(ino));
    }
    let (rules, block) = (Rules::of(image), image.cache.read(addr)?);
    let mut inode: Box<RawInode> = Box::new(block.view::<RawInode>().clone());
    rules.vet(&mut inode, ino).map_err(|_| no_zone(ino))?;
    Ok((addr, inode))
}

/// Block and place of an inode's delta zone.
fn zone(image: &mut Image<'_>, ino: Ino) -> Result<(BlockAddr, Range<usize>), DumpError> {
    let (addr, inode) = vetted(image, ino)?;
    let area = inode.slots(image.flexible()).inline_xattr_range();
    let zone = delta::zone_range(&inode.as_bytes()[area.clone()]).ok_or_else(|| no_zone(ino))?;
    Ok((addr, area.start + zone.start..area.start + zone.end))
}

/// Block of an inode and place of record `n` in its zone.
fn in_zone(image: &mut Image<'_>, ino: Ino, n: usize) -> Result<(BlockAddr, usize), DumpError> {
    let (addr, zone) = zone(image, ino)?;
    let bytes = &image.cache.get(addr)?.0[zone.clone()];
    let (records, _) = delta::parse_prefix(bytes, ino);
    let before: usize = records.iter().take(n).map(delta::Record::size).sum();
    Ok((addr, zone.start + ZONE_HEADER_SIZE + before))
}

/// Block of one of an inode's compact pages.
fn compact_page(image: &mut Image<'_>, ino: Ino, page: usize) -> Result<BlockAddr, DumpError> {
    let (_, inode) = vetted(image, ino)?;
    let places = deltas::places(image, &inode)?;
    let none = || DumpError::NotFound(format!("inode {ino} has no compact page {page}"));
    places.get(page).map(|&(_, addr)| addr).ok_or_else(none)
}

/// Block of a compact page and place of record `n` in it.
fn in_compact(
    image: &mut Image<'_>,
    ino: Ino,
    page: usize,
    n: usize,
) -> Result<(BlockAddr, usize), DumpError> {
    let addr = compact_page(image, ino, page)?;
    let records = delta::compact_records(image.cache.get(addr)?, ino);
    let (_, records) = records.map_err(|e| DumpError::Unreadable(e.to_string()))?;
    let before: usize = records.iter().take(n).map(delta::Record::size).sum();
    Ok((addr, COMPACT_HEADER_SIZE + before))
}

/// Place of the journal of data log `log`.
fn journal(image: &Image<'_>, log: u32) -> (BlockAddr, usize) {
    let cp = image.checkpoint();
    let start = image.g.cp_pack(image.pack);
    if cp.flags().contains(CpFlags::COMPACT_SUM) {
        (start + cp.cp_pack_start_sum.get(), if log == 0 { 0 } else { JOURNAL_SIZE })
    } else {
        let back = if cp.flags().intersects(CpFlags::UMOUNT | CpFlags::FASTBOOT) { 7 } else { 4 };
        let addr = (start + cp.cp_pack_total_block_count.get()).saturating_sub(back) + log;
        (addr, ENTRIES_PER_BLOCK * size_of::<RawSummary>())
    }
}

/// Place of a shared record node.
fn shared_node(image: &mut Image<'_>, n: usize) -> Result<BlockAddr, DumpError> {
    let nodes = log::walk(image, &mut Findings::new(0), false)?.shared;
    let none =
        || DumpError::NotFound(format!("{} shared record nodes to replay, none is number {n}", nodes.len()));
    nodes.get(n).copied().ok_or_else(none)
}

/// Place of an entry in the journal of data log `log`, whose entries of `size` bytes begin with a 32-bit key.
fn in_journal(
    image: &mut Image<'_>,
    log: u32,
    size: usize,
    key: u32,
) -> Result<(BlockAddr, usize), DumpError> {
    let (addr, at) = journal(image, log);
    let block = image.cache.get(addr)?;
    let first = at + 2;
    let found = (0..(JOURNAL_SIZE - 2) / size)
        .map(|i| first + i * size)
        .find(|&e| u32::from_le_bytes(block.0[e..e + 4].try_into().expect("four bytes")) == key);
    let gone = || DumpError::NotFound(format!("the journal has no entry {key} any more"));
    Ok((addr, found.ok_or_else(gone)? + 4))
}
