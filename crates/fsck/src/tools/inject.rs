//! Sets named fields of a volume's structures, to plant faults that tests expect to be found.
//!
//! What guards the structure as a whole is brought up to date (superblock, checkpoint and inode checksums), unless
//! it is the field that is set, so that exactly the named fault is on the volume. Fields have the kernel's names;
//! an element of an array is `name[index]`.

mod fields;
mod places;

use crate::image::Image;
use crate::tools::dump::{Dump, DumpError};
use fields::{EXTRA, FOOTER_DOTTED, Field, resolve, split, width};
use medfs_device::{BlockDevice, Cause, Temperature, WriteTag};
use medfs_format::checkpoint::{self, CpFlags, RawCheckpoint};
use medfs_format::delta::RawCompactHeader;
use medfs_format::hash::dentry_hash;
use medfs_format::node::{self, RawInode};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{Block, BlockAddr, Ino, Nid, SegNo, crc, shared};
use places::locate;
use std::mem::offset_of;

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
    change_in(dev, &mut Dump::open(dev)?, target, field, new)
}

/// Changes `field` of each of many inodes, as [`change`] does.
pub fn change_inodes(
    dev: &dyn BlockDevice,
    inodes: impl IntoIterator<Item = Ino>,
    field: &str,
    new: impl Fn(u64) -> u64,
) -> Result<(), DumpError> {
    let mut dump = Dump::open(dev)?;
    inodes.into_iter().try_for_each(|ino| change_in(dev, &mut dump, &Target::Inode(ino), field, &new))
}

fn change_in(
    dev: &dyn BlockDevice,
    dump: &mut Dump<'_>,
    target: &Target<'_>,
    field: &str,
    new: impl FnOnce(u64) -> u64,
) -> Result<(), DumpError> {
    let (addr, base, fields) = locate(dump, target, field)?;
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

/// Makes a compact page's checksum right.
pub fn seal_compact(block: &mut Block) {
    let at = offset_of!(RawCompactHeader, checksum);
    block.0[at..at + 4].fill(0);
    let checksum = crc::f2fs(&block.0);
    block.0[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
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
