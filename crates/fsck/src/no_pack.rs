//! A checkpoint where neither pack is usable, or one that is older than the last one, from what is left: a copy of its
//! header at the other end of a pack, or else the tables and nodes.
//!
//! A pack whose first or last block alone is lost has the same header in the other one: the newest counts, as
//! older ones that the pack's place may still hold are overwritten in part. Where no header is left, one is
//! reckoned:
//!
//! - Of the two copies of a NAT block the one counts that leads to the newest nodes, of a SIT block the one
//!   with the youngest segment. What the journals held is found in the nodes, as ever when these are lost;
//!   all segments that SIT calls free are looked through for it.
//! - Logs begin in segments that hold nothing, or on a full volume in others of their kind (`supply.rs`).
//!   Counts are those of the walk. Over-provisioning is what `mkfs` would choose.
//!
//! - The fsync log goes on where its nodes tell (`lost_log.rs`).
//!
//! Lost for good: which files were held open without a name (they go to lost+found), and what the volume was written
//! in its life.

use crate::cache::Cache;
use crate::image::Image;
use medfs_format::checkpoint::{self, BitmapPlaces, CHECKSUM_OFFSET, CpFlags, HEADER_SIZE, RawCheckpoint};
use medfs_format::nat::{self, RawNatBlock};
use medfs_format::node::footer;
use medfs_format::sit::{RawSitBlock, flip_bit};
use medfs_format::{
    BLOCK_SIZE, BLOCKS_PER_SEG, Block, BlockAddr, Geometry, Ino, NULL_ADDR, Nid, overprovision,
};
use std::io;
use zerocopy::FromBytes;

/// A pack: its number, its first block with the payload, and what of it must be written anew.
pub(crate) type Pack = (usize, Vec<u8>, Vec<(BlockAddr, Box<Block>)>);

/// Versions left out behind the newest node, so that none written later is taken for one that is there.
const VERSION_GAP: u32 = 16;

/// How far ahead of all others the version of one node is not believed.
const FAR: u32 = 1 << 20;

/// The newest pack of which one of the two headers is left, with the blocks that make it whole.
pub(crate) fn pack_of_one_header(cache: &mut Cache<'_>, g: &Geometry) -> io::Result<Option<Pack>> {
    let mut best: Option<((u64, bool), Pack)> = None;
    for index in 0..2 {
        let start = g.cp_pack(index);
        for addr in start..start + BLOCKS_PER_SEG {
            let block = cache.read(addr)?;
            let cp = RawCheckpoint::in_block(&block);
            if checkpoint::verify_checksum(&block, addr).is_err() || cp.validate(addr, g).is_err() {
                continue;
            }
            let last = start + cp.cp_pack_total_block_count.get() - 1;
            let payload = cache.read_run(start + 1, g.cp_payload)?;
            let worth = (cp.checkpoint_ver.get(), addr == last);
            let better = best.as_ref().is_none_or(|(known, _)| worth > *known);
            if (addr != start && addr != last) || !better {
                continue;
            }
            let Some(payload) = payload else { continue };
            let bytes = [&block.0[..], &payload].concat();
            best = Some((worth, (index, bytes, vec![(start, block.clone()), (last, block)])));
        }
    }
    Ok(best.map(|(_, pack)| pack))
}

impl Cache<'_> {
    /// Blocks as one run of bytes; `None` where one cannot be read.
    fn read_run(&mut self, start: BlockAddr, count: u32) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        for addr in start..start + count {
            bytes.extend_from_slice(&self.get(addr)?.0);
            if self.medium.is_unreadable(addr) {
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    }

    /// When the newest of the nodes was written to which a NAT block leads, and how many there are.
    fn nodes_of_nat_block(&mut self, g: &Geometry, first: Nid, addr: BlockAddr) -> io::Result<(u32, usize)> {
        let block = self.read(addr)?;
        let (mut newest, mut count) = (0, 0);
        for (nid, entry) in (first..).zip(&block.view::<RawNatBlock>().entries) {
            let at = entry.block_addr.get();
            if !g.is_nid(nid) || !g.in_main(at) {
                continue;
            }
            let f = footer(self.get(at)?);
            if f.nid.get() == nid && f.ino == entry.ino {
                newest = newest.max(f.cp_ver.get() as u32);
                count += 1;
            }
        }
        Ok((newest, count))
    }
}

/// A header reckoned from tables and nodes, without logs and counts yet. What the volume was made with is `older`'s.
pub(crate) fn reckoned(
    cache: &mut Cache<'_>,
    g: &Geometry,
    older: Option<&RawCheckpoint>,
) -> io::Result<Pack> {
    let mut bytes = vec![0; BLOCK_SIZE * (1 + g.cp_payload as usize)];
    let mut cp = RawCheckpoint::in_block(&Block::ZERO).clone();
    cp.ckpt_flags = CpFlags::CRC_RECOVERY.bits().into();
    cp.sit_ver_bitmap_bytesize = (g.segment_count_sit / 2 * BLOCKS_PER_SEG / 8).into();
    cp.nat_ver_bitmap_bytesize = (g.nat_blocks() / 8).into();
    cp.checksum_offset = (CHECKSUM_OFFSET as u32).into();
    cp.cp_pack_start_sum = (1 + g.cp_payload).into();
    cp.cp_pack_total_block_count = (3 + g.cp_payload).into();
    let (reserved, over) = overprovision::segments(g.segment_count_main, g.segs_per_sec);
    (cp.rsvd_segment_count, cp.overprov_segment_count) = (reserved.into(), over.into());
    let users = u64::from(g.segment_count_main.saturating_sub(over)) * u64::from(BLOCKS_PER_SEG);
    cp.user_block_count = users.into();
    if let Some(older) = older {
        (cp.rsvd_segment_count, cp.overprov_segment_count) =
            (older.rsvd_segment_count, older.overprov_segment_count);
        (cp.user_block_count, cp.elapsed_time) = (older.user_block_count, older.elapsed_time);
    }
    let places = BitmapPlaces::of(&cp, g);
    let mut newest = 0;
    for index in 0..g.nat_blocks() {
        let first = index * nat::ENTRIES_PER_BLOCK as u32;
        let one = cache.nodes_of_nat_block(g, first, g.nat_block(index, false))?;
        let two = cache.nodes_of_nat_block(g, first, g.nat_block(index, true))?;
        newest = newest.max(one.0).max(two.0);
        if two > one {
            flip_bit(&mut bytes[places.nat..], index as usize);
        }
    }
    for index in 0..g.sit_blocks() {
        let mut age = |second| -> io::Result<(u64, u32)> {
            let block = cache.read(g.sit_block(index, second))?;
            let entries = &block.view::<RawSitBlock>().entries;
            let youngest = entries.iter().map(|e| e.mtime.get()).max().unwrap_or_default();
            Ok((youngest, entries.iter().map(|e| u32::from(e.valid_blocks())).sum()))
        };
        if age(true)? > age(false)? {
            flip_bit(&mut bytes[places.sit..], index as usize);
        }
    }
    let older_version = older.map_or(0, |older| older.checkpoint_ver.get());
    cp.checkpoint_ver = u64::from(newest).max(older_version).into();
    let mut head = Block::boxed();
    head.0.copy_from_slice(&bytes[..BLOCK_SIZE]);
    *RawCheckpoint::in_block_mut(&mut head) = cp;
    bytes[..BLOCK_SIZE].copy_from_slice(&head.0);
    Ok((0, bytes, Vec::new()))
}

/// The version of a checkpoint that is reckoned, until it is raised: that of the newest node that a table led to, or of
/// an older checkpoint.
pub(crate) fn newest_known(image: &Image<'_>) -> u32 {
    image.checkpoint().checkpoint_ver.get() as u32
}

/// Lets the checkpoint that is reckoned be newer than all nodes that were found: what was written before the repair
/// counts for less than what comes after it.
pub(crate) fn raise_version(image: &mut Image<'_>) {
    let mut header = image.checkpoint();
    let known = header.checkpoint_ver.get();
    // Footers have the lower half of the number.
    let ahead = image.strays.newest.saturating_sub(known as u32);
    header.checkpoint_ver = known.saturating_add(u64::from(ahead.saturating_add(VERSION_GAP))).into();
    set_header(image, header);
}

/// Changes the header of the checkpoint in force.
pub(crate) fn set_header(image: &mut Image<'_>, header: RawCheckpoint) {
    let place = RawCheckpoint::mut_from_bytes(&mut image.cp[..HEADER_SIZE]).expect("sized");
    *place = header;
}

/// The newest of the versions of nodes: one alone that is far ahead of all others is none.
pub(crate) fn newest_of(versions: impl Iterator<Item = u32>) -> u32 {
    let (mut newest, mut second) = (0, 0);
    for version in versions {
        if version > newest {
            (newest, second) = (version, newest);
        } else {
            second = second.max(version);
        }
    }
    // The root inode that `mkfs` makes has version 1.
    if second > 1 && newest - second > FAR { second } else { newest }
}

/// Whether the checkpoint is reckoned, and the fsync log behind it was found (`lost_log.rs`).
pub(crate) fn has_found_log(image: &Image<'_>) -> bool {
    image.reckoned && image.chain_version().is_of_repair()
}

/// Whether an inode, which the newest of the nodes is, is that of a new file that was fsynced behind a checkpoint that
/// is reckoned: nothing else names it yet.
pub(crate) fn is_new_and_fsynced(image: &mut Image<'_>, ino: Ino, addr: BlockAddr) -> io::Result<bool> {
    if !image.reckoned || image.nat(ino)?.block_addr.get() != NULL_ADDR {
        return Ok(false);
    }
    let f = *footer(image.cache.get(addr)?);
    Ok(f.is_fsync() && f.is_dentry())
}
