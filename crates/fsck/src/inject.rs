//! Sets named fields of a volume's structures, to plant faults that tests expect to be found.
//!
//! What guards the structure as a whole is brought up to date (superblock, checkpoint and inode checksums), unless
//! it is the field that is set, so that exactly the named fault is on the volume. Fields have the kernel's names;
//! an element of an array is `name[index]`.

use crate::deltas;
use crate::dump::{Dump, DumpError};
use crate::finding::Findings;
use crate::image::Image;
use crate::inode::Rules;
use crate::log;
use medfs_device::{BlockDevice, Cause, Temperature, WriteTag};
use medfs_format::checkpoint::{self, CpFlags, RawCheckpoint, RawOrphanBlock};
use medfs_format::compress::CLUSTER_HEADER_SIZE;
use medfs_format::delta::{
    self, COMPACT_HEADER_SIZE, RECORD_HEADER_SIZE, RawCompactHeader, RawRecord, RawSlice, RawZoneHeader,
    ZONE_HEADER_SIZE, ZONE_OFFSET,
};
use medfs_format::dentry::RawDirEntry;
use medfs_format::hash::dentry_hash;
use medfs_format::nat::RawNatEntry;
use medfs_format::node::{self, RawDirectNode, RawExtraAttr, RawIndirectNode, RawInode, RawNodeFooter};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::shared::{self, ENTRY_SIZE, RawSharedEntry, RawSharedHeader};
use medfs_format::sit::RawSitEntry;
use medfs_format::summary::{
    ENTRIES_PER_BLOCK, JOURNAL_SIZE, RawJournal, RawSummary, RawSummaryBlock, RawSummaryFooter,
};
use medfs_format::superblock::{self, RawSuperblock};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, COMPRESS_ADDR, Ino, Nid, SegNo, crc, nat, sit, xattr};
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::IntoBytes;

/// The structure whose field is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target<'a> {
    /// A copy of the superblock, 0 or 1.
    Superblock(u32),
    /// The checkpoint in force (first and last block of its pack).
    Checkpoint,
    /// The checkpoint pack that is not in force (its first block).
    OtherCheckpoint,
    /// A node id's NAT entry in force, in the journal or the table.
    Nat(Nid),
    /// A segment's SIT entry in force, in the journal or the table.
    Sit(SegNo),
    /// The summary entry of a block that is in no current segment.
    Summary(BlockAddr),
    /// The footer of a segment's summary block.
    SummaryFooter(SegNo),
    /// The NAT (data log 0) or SIT (data log 2) journal in the checkpoint pack.
    Journal(u32),
    /// The first orphan block of the pack in force.
    OrphanBlock,
    /// An inode.
    Inode(Ino),
    /// The delta zone of an inode.
    Zone(Ino),
    /// A record of it, by its place in the zone; `delta[N]` are the bytes of the delta.
    Delta(Ino, usize),
    /// A slice of the base of a record of it: the record's place and the slice's.
    Slice(Ino, usize, usize),
    /// A compact page of an inode, by its place among those that are there.
    Compact(Ino, usize),
    /// A record of a compact page: the page's place and the record's; `delta[N]` are the bytes of the delta.
    CompactDelta(Ino, usize, usize),
    /// A slice of the base of such a record.
    CompactSlice(Ino, usize, usize, usize),
    /// A shared record node among those to replay, by its place in the log.
    SharedNode(usize),
    /// An entry of such a node: the node's place and the entry's; `delta[N]` are the bytes of the delta.
    SharedEntry(usize, usize),
    /// The header of the compressed cluster that starts at a page of a file; `cdata[N]` are the bytes behind it.
    Cluster(Ino, u64),
    /// The first entry of an inode's inline xattrs, and the header before it.
    FirstXattr(Ino),
    /// A node that is no inode.
    Node(Nid),
    /// An entry of a directory, by its name.
    Dentry(Ino, &'a [u8]),
}

/// A named field: offset and size in bytes.
type Field = (&'static str, usize, usize);

const fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! fields {
    ($type:ty: $($field:ident)*) => {
        &[$((stringify!($field), offset_of!($type, $field), size_of_field::<$type, _>(|t| &t.$field)),)*]
    };
}

const SUPERBLOCK: &[Field] = fields!(RawSuperblock:
    magic log_blocksize log_blocks_per_seg segs_per_sec secs_per_zone checksum_offset block_count section_count
    segment_count segment_count_main cp_blkaddr main_blkaddr root_ino uuid extension_count cp_payload feature qf_ino crc);
const CHECKPOINT: &[Field] = fields!(RawCheckpoint:
    checkpoint_ver user_block_count valid_block_count rsvd_segment_count overprov_segment_count free_segment_count
    cur_node_segno cur_node_blkoff cur_data_segno cur_data_blkoff ckpt_flags cp_pack_total_block_count
    cp_pack_start_sum valid_node_count valid_inode_count next_free_nid sit_ver_bitmap_bytesize
    nat_ver_bitmap_bytesize checksum_offset elapsed_time alloc_type);
const NAT: &[Field] = fields!(RawNatEntry: version ino block_addr);
const SIT: &[Field] = fields!(RawSitEntry: vblocks valid_map mtime);
const SUMMARY: &[Field] = fields!(RawSummary: nid version ofs_in_node);
const SUMMARY_FOOTER: &[Field] = fields!(RawSummaryFooter: entry_type check_sum);
const JOURNAL: &[Field] = fields!(RawJournal: count);
const ORPHANS: &[Field] = fields!(RawOrphanBlock: ino entry_count);
const INODE: &[Field] = fields!(RawInode:
    i_mode i_advise i_inline i_uid i_gid i_links i_size i_blocks i_generation i_current_depth i_xattr_nid i_flags
    i_pino i_namelen i_name i_dir_level i_ext i_addr i_nid);
const EXTRA: &[Field] = fields!(RawExtraAttr: i_extra_isize i_inline_xattr_size i_projid i_inode_checksum i_crtime
        i_compr_blocks i_compress_algorithm i_log_cluster_size i_compress_flag);
const DIRECT: &[Field] = fields!(RawDirectNode: addr);
const INDIRECT: &[Field] = fields!(RawIndirectNode: nid);
const ZONE: &[Field] = fields!(RawZoneHeader: version flags used first);
const COMPACT: &[Field] = fields!(RawCompactHeader: magic ino sequence used reserved checksum);
const SLICE: &[Field] = fields!(RawSlice: ino page from to len);
const DELTA: &[Field] = &[
    ("index", offset_of!(RawRecord, index), 4),
    ("size", offset_of!(RawRecord, size), 2),
    ("codec", offset_of!(RawRecord, codec), 1),
    ("slices", offset_of!(RawRecord, slices), 1),
    ("checksum", offset_of!(RawRecord, checksum), 4),
    ("delta", RECORD_HEADER_SIZE, 256),
];
const SHARED_NODE: &[Field] = fields!(RawSharedHeader: magic used reserved checksum);
const SHARED_ENTRY: &[Field] = &[
    ("ino", offset_of!(RawSharedEntry, ino), 4),
    ("base", offset_of!(RawSharedEntry, base), 4),
    ("checksum", offset_of!(RawSharedEntry, checksum), 4),
    ("size", offset_of!(RawSharedEntry, size), 2),
    ("codec", offset_of!(RawSharedEntry, codec), 1),
    ("delta", ENTRY_SIZE, 256),
];
const CLUSTER: &[Field] =
    &[("clen", 0, 4), ("chksum", 4, 4), ("cdata", CLUSTER_HEADER_SIZE, BLOCK_SIZE - CLUSTER_HEADER_SIZE)];
const FIRST_XATTR: &[Field] = &[
    ("h_magic", 0, 4),
    ("e_name_index", xattr::HEADER_SIZE, 1),
    ("e_name_len", xattr::HEADER_SIZE + 1, 1),
    ("e_value_size", xattr::HEADER_SIZE + 2, 2),
];
const FOOTER: &[Field] = fields!(RawNodeFooter: nid ino flag cp_ver next_blkaddr);
const DENTRY: &[Field] = fields!(RawDirEntry: hash_code ino name_len file_type);

/// Sets `field` of `target` to `value`. Panics where there is no such field: this is for tests.
pub fn set(dev: &dyn BlockDevice, target: &Target<'_>, field: &str, value: u64) -> Result<(), DumpError> {
    change(dev, target, field, |_| value)
}

/// Changes `field` of `target` by a function of its present value; returns the value it had.
pub fn change(
    dev: &dyn BlockDevice,
    target: &Target<'_>,
    field: &str,
    new: impl FnOnce(u64) -> u64,
) -> Result<(), DumpError> {
    let mut dump = Dump::open(dev)?;
    let (addr, base, fields) = locate(&mut dump, target, field)?;
    let mut block = medfs_device::read_block(dev, u64::from(addr))?;
    if let (Target::Dentry(..), "used") = (target, split(field).0) {
        // The entry's bit in the area's bitmap: byte offset in `base`, bit number in the high half.
        let (byte, bit) = (base & 0xffff, base >> 16);
        let was = u64::from(block.0[byte] >> bit & 1);
        block.0[byte] = block.0[byte] & !(1 << bit) | ((new(was) as u8 & 1) << bit);
    } else {
        let (offset, width) = resolve(fields, field);
        let beyond = || DumpError::NotFound(format!("{field} would lie beyond its block"));
        let bytes = block.0.get_mut(base + offset..base + offset + width).ok_or_else(beyond)?;
        let mut number = [0; 8];
        number[..width].copy_from_slice(bytes);
        bytes.copy_from_slice(&new(u64::from_le_bytes(number)).to_le_bytes()[..width]);
    }
    seal(&mut dump.image, &mut block, target, field);
    let tag = WriteTag::new(Cause::Meta, Temperature::Cold);
    dev.write(u64::from(addr), &[&block], tag)?;
    if *target == Target::Checkpoint {
        let total = RawCheckpoint::in_block(&block).cp_pack_total_block_count.get();
        let last = (u64::from(addr) + u64::from(total)).saturating_sub(1);
        if last < dev.block_count() {
            dev.write(last, &[&block], tag)?;
        }
    }
    Ok(())
}

/// The fields of `target` by which [`change`] knows them, each with its number of elements.
pub fn fields(dev: &dyn BlockDevice, target: &Target<'_>) -> Result<Vec<(&'static str, usize)>, DumpError> {
    let mut dump = Dump::open(dev)?;
    let (_, _, own) = locate(&mut dump, target, "")?;
    let more: &[&[Field]] = match target {
        Target::Inode(_) => &[EXTRA, FOOTER_DOTTED],
        Target::Node(_) => &[FOOTER_DOTTED],
        _ => &[],
    };
    let elements = |&(name, _, size): &Field| (name, size / width(name, size));
    Ok(own.iter().chain(more.iter().copied().flatten()).map(elements).collect())
}

/// Bytes of an element of a field.
fn width(name: &str, size: usize) -> usize {
    match name {
        "cur_node_blkoff" | "cur_data_blkoff" => 2,
        "alloc_type" | "i_name" | "delta" | "cdata" | "valid_map" | "uuid" | "name" => 1,
        _ if size > 8 => 4,
        _ => size,
    }
}

/// Name and index of `name[index]`.
fn split(field: &str) -> (&str, usize) {
    match field.split_once('[') {
        Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<usize>().expect("an index")),
        None => (field, 0),
    }
}

/// Splits `name[index]` and finds offset and width.
fn resolve(fields: &[Field], field: &str) -> (usize, usize) {
    let (name, index) = split(field);
    let &(_, offset, size) =
        fields.iter().find(|(n, ..)| *n == name).unwrap_or_else(|| panic!("there is no field {name}"));
    let width = width(name, size);
    assert!((index + 1) * width <= size, "{field} is beyond the array");
    (offset + index * width, width)
}

/// Block, byte offset of the structure inside it, and its fields.
fn locate(
    dump: &mut Dump<'_>,
    target: &Target<'_>,
    field: &str,
) -> Result<(BlockAddr, usize, &'static [Field]), DumpError> {
    let image = &mut dump.image;
    let pack = image.g.cp_pack(image.pack);
    Ok(match *target {
        Target::Superblock(copy) => (copy, superblock::OFFSET_IN_BLOCK, SUPERBLOCK),
        Target::Checkpoint => (pack, 0, CHECKPOINT),
        Target::OtherCheckpoint => (image.g.cp_pack(1 - image.pack), 0, CHECKPOINT),
        Target::Nat(nid) => {
            let index = nid / nat::ENTRIES_PER_BLOCK as u32;
            if image.nat_journal.contains_key(&nid) {
                let (addr, at) = in_journal(image, 0, 13, nid)?;
                (addr, at, NAT)
            } else {
                let addr = image.g.nat_block(index, image.nat_second(index));
                (addr, nid as usize % nat::ENTRIES_PER_BLOCK * size_of::<RawNatEntry>(), NAT)
            }
        }
        Target::Sit(segno) => {
            let index = segno / sit::ENTRIES_PER_BLOCK as u32;
            if image.sit_journal.contains_key(&segno) {
                let (addr, at) = in_journal(image, 2, 78, segno)?;
                (addr, at, SIT)
            } else {
                let addr = image.g.sit_block(index, image.sit_second(index));
                (addr, segno as usize % sit::ENTRIES_PER_BLOCK * size_of::<RawSitEntry>(), SIT)
            }
        }
        Target::Summary(addr) => {
            let segno = image.g.segno(addr);
            if image.curseg_of(segno).is_some() {
                return Err(DumpError::NotFound(format!("segment {segno} is a current one")));
            }
            (
                image.g.ssa_block(segno),
                image.g.offset_in_seg(addr) as usize * size_of::<RawSummary>(),
                SUMMARY,
            )
        }
        Target::SummaryFooter(segno) => {
            (image.g.ssa_block(segno), offset_of!(RawSummaryBlock, footer), SUMMARY_FOOTER)
        }
        Target::Journal(log) => {
            let (addr, at) = journal(image, log);
            (addr, at, JOURNAL)
        }
        Target::OrphanBlock => (pack + 1 + image.g.cp_payload, 0, ORPHANS),
        Target::Inode(ino) => {
            let addr = image.nat(ino)?.block_addr.get();
            if let Some(_name) = field.strip_prefix("footer.") {
                return Ok((addr, BLOCK_SIZE - size_of::<RawNodeFooter>(), FOOTER_DOTTED));
            }
            let extra = EXTRA.iter().any(|(name, ..)| *name == split(field).0);
            if extra { (addr, node::ADDR_OFFSET, EXTRA) } else { (addr, 0, INODE) }
        }
        Target::Zone(ino) => {
            let (addr, zone) = zone(image, ino)?;
            (addr, zone.start, ZONE)
        }
        Target::Delta(ino, n) => {
            let (addr, at) = in_zone(image, ino, n)?;
            (addr, at, DELTA)
        }
        Target::Slice(ino, n, slice) => {
            let (addr, at) = in_zone(image, ino, n)?;
            (addr, at + RECORD_HEADER_SIZE + slice * size_of::<RawSlice>(), SLICE)
        }
        Target::Compact(ino, page) => (compact_page(image, ino, page)?, 0, COMPACT),
        Target::CompactDelta(ino, page, n) => {
            let (addr, at) = in_compact(image, ino, page, n)?;
            (addr, at, DELTA)
        }
        Target::CompactSlice(ino, page, n, slice) => {
            let (addr, at) = in_compact(image, ino, page, n)?;
            (addr, at + RECORD_HEADER_SIZE + slice * size_of::<RawSlice>(), SLICE)
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
        Target::Cluster(ino, page) => {
            let addr = image.nat(ino)?.block_addr.get();
            let none = || DumpError::NotFound(format!("no compressed cluster of inode {ino} at page {page}"));
            if !image.g.in_main(addr) {
                return Err(none());
            }
            let mut inode: Box<RawInode> = Box::new(image.cache.read(addr)?.view::<RawInode>().clone());
            Rules::of(image).vet(&mut inode, ino).map_err(|_| none())?;
            let mark = dump.image.address(&inode, page)?;
            let addr = dump.image.address(&inode, page + 1)?;
            if mark != COMPRESS_ADDR || !dump.image.g.in_main(addr) {
                return Err(none());
            }
            (addr, 0, CLUSTER)
        }
        Target::FirstXattr(ino) => {
            let (addr, zone) = zone(image, ino)?;
            (addr, zone.start - ZONE_OFFSET, FIRST_XATTR)
        }
        Target::Node(nid) => {
            let addr = image.nat(nid)?.block_addr.get();
            if field.starts_with("footer.") {
                return Ok((addr, BLOCK_SIZE - size_of::<RawNodeFooter>(), FOOTER_DOTTED));
            }
            let offset = node::footer(image.cache.get(addr)?).node_offset();
            (addr, 0, if node_kind(offset) == NodeKind::Indirect { INDIRECT } else { DIRECT })
        }
        Target::Dentry(dir, name) => {
            let found = dump.entry(dir, name)?;
            let e = found.ok_or_else(|| DumpError::NotFound(format!("no such entry in directory {dir}")))?;
            let base = e.area.start;
            if field == "used" {
                return Ok((e.addr, (base + e.slot / 8) | (e.slot % 8) << 16, DENTRY));
            }
            if field.starts_with("name[") {
                return Ok((e.addr, base + e.layout.name_at(e.slot), NAME));
            }
            (e.addr, base + e.layout.entry_at(e.slot), DENTRY)
        }
    })
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

/// Makes a compact page's checksum right.
pub fn seal_compact(block: &mut Block) {
    let at = offset_of!(RawCompactHeader, checksum);
    block.0[at..at + 4].fill(0);
    let checksum = crc::f2fs(&block.0);
    block.0[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

const NAME: &[Field] = &[("name", 0, node::NAME_LEN)];
const FOOTER_DOTTED: &[Field] = &[
    ("footer.nid", FOOTER[0].1, FOOTER[0].2),
    ("footer.ino", FOOTER[1].1, FOOTER[1].2),
    ("footer.flag", FOOTER[2].1, FOOTER[2].2),
    ("footer.cp_ver", FOOTER[3].1, FOOTER[3].2),
    ("footer.next_blkaddr", FOOTER[4].1, FOOTER[4].2),
];

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

fn seal(image: &mut Image<'_>, block: &mut Block, target: &Target<'_>, field: &str) {
    let (field, _) = split(field);
    match target {
        Target::Superblock(_) if field != "crc" => RawSuperblock::in_block_mut(block).seal(),
        Target::Checkpoint
            if RawCheckpoint::in_block(block).checksum_offset.get() as usize
                <= checkpoint::CHECKSUM_OFFSET =>
        {
            checkpoint::seal(block);
        }
        Target::Compact(..) | Target::SharedNode(_) if field == "checksum" => {}
        Target::SharedNode(_) | Target::SharedEntry(..) => shared::seal(block),
        Target::Compact(..) | Target::CompactDelta(..) | Target::CompactSlice(..) => seal_compact(block),
        Target::Inode(_)
        | Target::Zone(_)
        | Target::Delta(..)
        | Target::Slice(..)
        | Target::FirstXattr(_)
            if field != "i_inode_checksum" =>
        {
            if let Some(seed) = image.inode_seed() {
                block.view_mut::<RawInode>().seal(seed);
            }
        }
        Target::Dentry(dir, _) if node::footer(block).nid.get() == *dir => {
            if let Some(seed) = image.inode_seed() {
                block.view_mut::<RawInode>().seal(seed);
            }
        }
        _ => {}
    }
}

/// Writes another name of the same length, with its hash, over a directory entry's; the entry stays where it is.
pub fn rename(dev: &dyn BlockDevice, dir: Ino, name: &[u8], new: &[u8]) -> Result<(), DumpError> {
    assert_eq!(name.len(), new.len());
    let target = Target::Dentry(dir, name);
    let mut dump = Dump::open(dev)?;
    let (addr, name_at, _) = locate(&mut dump, &target, "name[0]")?;
    let (_, entry_at, _) = locate(&mut dump, &target, "hash_code")?;
    let mut block = medfs_device::read_block(dev, u64::from(addr))?;
    block.0[name_at..name_at + new.len()].copy_from_slice(new);
    block.0[entry_at..entry_at + 4].copy_from_slice(&dentry_hash(new).to_le_bytes());
    seal(&mut dump.image, &mut block, &target, "name");
    Ok(dev.write(u64::from(addr), &[&block], WriteTag::new(Cause::Meta, Temperature::Cold))?)
}

/// Puts these inode numbers on the orphan list (at most one block of them) of a volume that has none.
pub fn set_orphans(dev: &dyn BlockDevice, inos: &[Ino]) -> Result<(), DumpError> {
    let dump = Dump::open(dev)?;
    let image = &dump.image;
    let mut cp = image.checkpoint();
    let start = image.g.cp_pack(image.pack);
    let (at, total) = (cp.cp_pack_start_sum.get(), cp.cp_pack_total_block_count.get());
    let tag = WriteTag::new(Cause::Meta, Temperature::Cold);
    for i in (at..total - 1).rev() {
        let block = medfs_device::read_block(dev, u64::from(start + i))?;
        dev.write(u64::from(start + i + 1), &[&block], tag)?;
    }
    dev.write(u64::from(start + at), &[&checkpoint::orphan_blocks(inos)[0]], tag)?;
    cp.cp_pack_start_sum = (at + 1).into();
    cp.cp_pack_total_block_count = (total + 1).into();
    cp.ckpt_flags = (cp.flags() | CpFlags::ORPHAN_PRESENT).bits().into();
    let mut head = medfs_device::read_block(dev, u64::from(start))?;
    *RawCheckpoint::in_block_mut(&mut head) = cp;
    checkpoint::seal(&mut head);
    dev.write(u64::from(start), &[&head], tag)?;
    Ok(dev.write(u64::from(start + total), &[&head], tag)?)
}
