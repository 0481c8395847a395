//! Which of two superblocks that are both valid, and differ, is right: as far as the volume tells, field by field.
//!
//! A superblock without a checksum may have a flipped bit that makes another valid one. What it says can be
//! compared with the checkpoint packs, which lie where it says and have checksums, and with inodes, whose
//! checksums begin with its UUID. Beside the two copies what is made of both is weighed, where they differ in
//! several places. Where nothing speaks for one, the first copy counts, as it does for Linux.
//!
//! Cost: some hundred blocks are read for each superblock that is weighed, and none where the copies agree.

use crate::checkpoint::{self, CpFlags, RawCheckpoint, RawOrphanBlock};
use crate::footer::footer;
use crate::nat::RawNatBlock;
use crate::node::RawInode;
use crate::summary::Log;
use crate::superblock::{CRC_OFFSET, Feature, RawSuperblock};
use crate::{BLOCKS_PER_SEG, Block, BlockAddr, Geometry, crc, overprovision};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes between two places in which copies differ.
const APART: usize = 16;
/// Places of which either copy may be right.
const MOST_PLACES: usize = 4;
/// Inodes that are asked, and blocks of the NAT that are looked through for them.
const ASKED: usize = 64;
const NAT_BLOCKS: u32 = 8;

/// Reads blocks; `None` for one that cannot be read.
pub type Read<'r, E> = &'r mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>;

/// What speaks for a superblock, the weightier first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Weight {
    packs: i32,
    inodes: i32,
    /// Fields that are as they are made.
    plausible: i32,
}

/// The superblock that counts of the valid copies, which may be made of both; `None` where there is none.
pub fn in_force<E>(valid: &[&RawSuperblock], read: Read<'_, E>) -> Result<Option<RawSuperblock>, E> {
    let Some(at) = RawSuperblock::position_in_force(valid) else { return Ok(None) };
    let ([first, second], 0) = (valid, at) else { return Ok(Some(valid[at].clone())) };
    let kind = |copy: &RawSuperblock| (copy.is_delta_volume(), copy.nvram_in_use().is_some());
    if first.agrees_with(second) || kind(first) != kind(second) {
        return Ok(Some((*first).clone()));
    }
    let mut best: Option<(Weight, RawSuperblock)> = None;
    for sb in mixtures(first, second) {
        let Ok(g) = sb.validate() else { continue };
        let weight = Weight { plausible: plausible(&sb), ..weigh(&sb, &g, read)? };
        if best.as_ref().is_none_or(|(known, _)| weight > *known) {
            best = Some((weight, sb));
        }
    }
    Ok(best.map(|(_, sb)| sb))
}

/// The first copy, the second, and what can be made of both.
fn mixtures(first: &RawSuperblock, second: &RawSuperblock) -> Vec<RawSuperblock> {
    let mut places: Vec<std::ops::Range<usize>> = Vec::new();
    let (one, two) = (first.as_bytes(), second.as_bytes());
    for at in (0..one.len()).filter(|&at| one[at] != two[at]) {
        match places.last_mut() {
            Some(last) if at < last.end + APART => last.end = at + 1,
            _ => places.push(at..at + 1),
        }
    }
    let mut all = vec![first.clone(), second.clone()];
    // A checksum is of one copy as a whole.
    if places.len() > MOST_PLACES || first.features().contains(Feature::SB_CHECKSUM) {
        return all;
    }
    for taken in 1..(1usize << places.len()) - 1 {
        let mut bytes = one.to_vec();
        for (_, place) in places.iter().enumerate().filter(|(i, _)| taken >> i & 1 != 0) {
            bytes[place.clone()].copy_from_slice(&two[place.clone()]);
        }
        all.push(RawSuperblock::read_from_bytes(&bytes).expect("as long as a superblock"));
    }
    all
}

/// What is read of a volume to ask its inodes.
#[derive(Debug, Clone, Copy)]
pub enum Wanted {
    /// A block of the NAT, in each copy that may count.
    Nat(u32),
    /// The block of a node.
    Node(BlockAddr),
}

/// Asks the first inodes of a volume that can be read, each with its number. `read` gives what there is of a block.
pub fn ask_inodes<E>(
    g: &Geometry,
    read: &mut dyn FnMut(Wanted) -> Result<Vec<Box<Block>>, E>,
    each: &mut dyn FnMut(u32, &RawInode),
) -> Result<(), E> {
    let mut asked = 0;
    for index in 0..g.nat_blocks().min(NAT_BLOCKS) {
        for nat in read(Wanted::Nat(index))? {
            for entry in &nat.view::<RawNatBlock>().entries {
                let (ino, addr) = (entry.ino.get(), entry.block_addr.get());
                if asked == ASKED || !g.is_nid(ino) || !g.in_main(addr) {
                    continue;
                }
                for block in read(Wanted::Node(addr))? {
                    if (footer(&block).nid.get(), footer(&block).ino.get()) == (ino, ino) {
                        asked += 1;
                        each(ino, block.view());
                    }
                }
            }
        }
    }
    Ok(())
}

/// What packs and inodes say of a superblock.
fn weigh<E>(sb: &RawSuperblock, g: &Geometry, read: Read<'_, E>) -> Result<Weight, E> {
    let mut weight = Weight::default();
    for index in 0..2 {
        weight.packs += weigh_pack(sb, g, g.cp_pack(index), read)?;
    }
    let seed = sb.features().contains(Feature::INODE_CHECKSUM).then(|| crc::chain(!0, &sb.uuid));
    let mut each = |wanted| {
        let addrs = match wanted {
            // Which copy is in force is not known yet.
            Wanted::Nat(index) => vec![g.nat_block(index, false), g.nat_block(index, true)],
            Wanted::Node(addr) => vec![addr],
        };
        addrs.into_iter().filter_map(|addr| read(addr).transpose()).collect()
    };
    let mut weights = Vec::new();
    ask_inodes(g, &mut each, &mut |ino, inode| weights.push(weigh_inode(sb, g, (ino, inode), seed)))?;
    if weights.is_empty() {
        ask_logs(g, read, &mut |ino, inode| weights.push(weigh_inode(sb, g, (ino, inode), seed)))?;
    }
    Ok(Weight { inodes: weights.into_iter().sum(), ..weight })
}

/// Asks inodes at the beginnings of the segments to which the checkpoints' node logs write: where the table leads to
/// none.
fn ask_logs<E>(g: &Geometry, read: Read<'_, E>, each: &mut dyn FnMut(u32, &RawInode)) -> Result<(), E> {
    for start in [0, 1].map(|index| g.cp_pack(index)) {
        let Some(cp) = header_at(g, start, read)? else { continue };
        let logs = [Log::HotNode, Log::WarmNode, Log::ColdNode].map(|log| cp.curseg(log as usize).0);
        for addr in logs.into_iter().flat_map(|segno| g.seg_start(segno)..g.seg_start(segno) + ASKED as u32) {
            let Some(block) = read(addr)? else { continue };
            let ino = footer(&block).nid.get();
            if footer(&block).ino.get() == ino && g.is_nid(ino) {
                each(ino, block.view());
            }
        }
    }
    Ok(())
}

/// Whether an inode is as the features say, and its checksum as the UUID says.
fn weigh_inode(sb: &RawSuperblock, g: &Geometry, (ino, inode): (u32, &RawInode), seed: Option<u32>) -> i32 {
    let layouts = sb.layouts();
    let fits = inode.validate(ino, g, layouts, None).is_ok();
    let has_extra = inode.extra().is_some();
    let extra_fits = sb.has_old_layouts() || has_extra == sb.features().contains(Feature::EXTRA_ATTR);
    let sealed = match seed {
        Some(seed) if fits && has_extra => {
            if inode.is_sealed(layouts, seed) {
                1
            } else {
                -1
            }
        }
        _ => 0,
    };
    i32::from(fits) + i32::from(extra_fits) + sealed
}

/// The header of the pack that begins there, where it is sound.
fn header_at<E>(g: &Geometry, start: BlockAddr, read: Read<'_, E>) -> Result<Option<RawCheckpoint>, E> {
    let Some(first) = read(start)? else { return Ok(None) };
    let cp = RawCheckpoint::in_block(&first);
    let is_sound = checkpoint::verify_checksum(&first, start).is_ok() && cp.validate(start, g).is_ok();
    Ok(is_sound.then(|| cp.clone()))
}

/// What speaks for a pack that begins there, as a pack of this superblock.
fn weigh_pack<E>(sb: &RawSuperblock, g: &Geometry, start: BlockAddr, read: Read<'_, E>) -> Result<i32, E> {
    let Some(cp) = header_at(g, start, read)? else { return Ok(0) };
    let behind = start + 1 + g.cp_payload;
    let payload_fits = match cp.flags().contains(CpFlags::ORPHAN_PRESENT) {
        false => cp.cp_pack_start_sum.get() == 1 + g.cp_payload,
        true => {
            let orphans = cp.cp_pack_start_sum.get().saturating_sub(1 + g.cp_payload);
            read(behind)?
                .is_some_and(|block| u32::from(block.view::<RawOrphanBlock>().blk_count.get()) == orphans)
        }
    };
    let bitmap = |segments: u32| segments / 2 * BLOCKS_PER_SEG / 8;
    let tables_fit = cp.sit_ver_bitmap_bytesize.get() == bitmap(g.segment_count_sit)
        && cp.nat_ver_bitmap_bytesize.get() == bitmap(g.segment_count_nat);
    let (reserved, over) = (cp.rsvd_segment_count.get(), cp.overprov_segment_count.get());
    let users = u64::from(g.segment_count_main.saturating_sub(over)) * u64::from(BLOCKS_PER_SEG);
    let main_fits = cp.user_block_count.get() == users;
    let sections_fit =
        overprovision::segments(g.segment_count_main, sb.segs_per_sec.get()) == (reserved, over);
    Ok([true, payload_fits, tables_fit, main_fits, sections_fit].into_iter().map(i32::from).sum())
}

/// How many fields are as `mkfs` makes them, of those that nothing else speaks for.
fn plausible(sb: &RawSuperblock) -> i32 {
    let devices_fit = sb
        .devs
        .iter()
        .all(|dev| (dev.path[0] != 0) == (dev.total_segments.get() != 0) && ends_in_zeros(&dev.path));
    let label_ends = sb.volume_name.iter().skip_while(|unit| unit.get() != 0).all(|unit| unit.get() == 0);
    let count = sb.extension_count.get() as usize + usize::from(sb.hot_ext_count);
    let list_ends = sb.extension_list.iter().skip(count).all(|name| name.iter().all(|&byte| byte == 0));
    let list_is_full = sb.extension_list.iter().take(count).all(|name| name[0] != 0 && ends_in_zeros(name));
    let nothing_reserved = sb.reserved.iter().all(|&byte| byte == 0);
    let whole =
        sb.block_count.get().saturating_sub(sb.segment0_blkaddr.get().into()) / u64::from(BLOCKS_PER_SEG);
    let zone = sb.segs_per_sec.get().saturating_mul(sb.secs_per_zone.get()).max(1);
    let before_main = sb.main_blkaddr.get().saturating_sub(sb.segment0_blkaddr.get()) / BLOCKS_PER_SEG;
    let fits = [
        devices_fit,
        label_ends,
        list_ends,
        list_is_full,
        nothing_reserved,
        whole.saturating_sub(sb.segment_count.get().into()) <= zone.into(),
        before_main.is_multiple_of(zone) && sb.segment_count_main.get().is_multiple_of(zone),
        sb.major_ver.get() == 1 && sb.minor_ver.get() < 64,
        [0, CRC_OFFSET as u32].contains(&sb.checksum_offset.get()),
    ];
    fits.into_iter().map(i32::from).sum()
}

/// Whether behind the first zero there are only zeros.
fn ends_in_zeros(text: &[u8]) -> bool {
    text.iter().skip_while(|&&byte| byte != 0).all(|&byte| byte == 0)
}
