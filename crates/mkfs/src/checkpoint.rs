//! The first checkpoint: a full pack of the unmounted volume, and a second pack of version 0 that loses.
//!
//! ```text
//! pack 0: checkpoint | payload | compact data summaries with journals | 3 node summaries | checkpoint | ... | NAT bits
//! pack 1: checkpoint (version 0) ................................................ checkpoint (version 0)
//! ```

use crate::tree::{self, Tree};
use crate::{Layout, MkfsOptions, Out};
use medfs_device::Cause;
use medfs_format::checkpoint::{CHECKSUM_OFFSET, CpFlags, RawCheckpoint, seal};
use medfs_format::sit::{RawSitEntry, VALID_MAP_SIZE, set_bit};
use medfs_format::summary::{
    JOURNAL_SIZE, LOG_COUNT, Log, RawJournal, RawNatJournalEntry, RawSitJournalEntry, RawSummary,
    RawSummaryBlock, SUM_TYPE_NODE,
};
use medfs_format::{BLOCK_SIZE, BLOCKS_PER_SEG, Block, BlockAddr, Geometry};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

/// Blocks of a pack without payload: two checkpoint blocks, one of compact summaries, three node summaries.
const PACK_BLOCKS: u32 = 6;
/// Marks a log that does not exist.
const NO_SEGMENT: u32 = u32::MAX;

/// The blocks of both packs.
pub(crate) fn build(
    g: &Geometry,
    layout: &Layout,
    options: &MkfsOptions,
    tree: &Tree,
    discarded: bool,
) -> Vec<Out> {
    let version = options.first_checkpoint();
    let (block, crc) = checkpoint_block(g, layout, tree, discarded, version);
    let (old, _) = checkpoint_block(g, layout, tree, discarded, 0);
    let last = pack_blocks(g) - 1;
    let mut pack = vec![(g.cp_pack(0), block.clone())];
    let mut at = g.cp_pack(0) + 1;
    for _ in 0..g.cp_payload {
        pack.push((at, Block::boxed()));
        at += 1;
    }
    for summary in
        [compact_summaries(layout, tree), node_summary(&tree.inos), node_summary(&[]), node_summary(&[])]
    {
        pack.push((at, summary));
        at += 1;
    }
    pack.push((at, block));
    debug_assert_eq!(at, g.cp_pack(0) + last);
    pack.extend(nat_bits(g, version, crc, g.cp_pack(0)));
    pack.push((g.cp_pack(1), old.clone()));
    pack.push((g.cp_pack(1) + last, old));
    pack.into_iter().map(|(addr, block)| Out { addr, block, cause: Cause::Meta }).collect()
}

fn pack_blocks(g: &Geometry) -> u32 {
    PACK_BLOCKS + g.cp_payload
}

/// The checkpoint block and its checksum.
fn checkpoint_block(
    g: &Geometry,
    layout: &Layout,
    tree: &Tree,
    discarded: bool,
    version: u64,
) -> (Box<Block>, u32) {
    let mut block = Block::boxed();
    let cp = RawCheckpoint::in_block_mut(&mut block);
    let mut flags = CpFlags::UMOUNT | CpFlags::COMPACT_SUM;
    flags.set(CpFlags::NAT_BITS, pack_blocks(g) + nat_bits_blocks(g) <= BLOCKS_PER_SEG);
    flags.set(CpFlags::TRIMMED, discarded);
    cp.checkpoint_ver = U64::new(version);
    cp.user_block_count = U64::new(layout.user_blocks());
    cp.valid_block_count = U64::new((tree.inos.len() + tree.data.len()) as u64);
    cp.rsvd_segment_count = U32::new(layout.reserved_segments);
    cp.overprov_segment_count = U32::new(layout.overprov_segments);
    cp.free_segment_count = U32::new(layout.segment_count_main - LOG_COUNT as u32);
    cp.cur_node_segno = [U32::new(NO_SEGMENT); 8];
    cp.cur_data_segno = [U32::new(NO_SEGMENT); 8];
    for log in Log::ALL {
        cp.set_curseg(log as usize, layout.cursegs[log as usize], used(log, tree));
    }
    cp.ckpt_flags = U32::new(flags.bits());
    cp.cp_pack_total_block_count = U32::new(pack_blocks(g));
    cp.cp_pack_start_sum = U32::new(1 + g.cp_payload);
    cp.valid_node_count = U32::new(tree.inos.len() as u32);
    cp.valid_inode_count = U32::new(tree.inos.len() as u32);
    cp.next_free_nid = U32::new(tree::ROOT_INO + tree.inos.len() as u32);
    cp.sit_ver_bitmap_bytesize = U32::new(g.segment_count_sit / 2 * BLOCKS_PER_SEG / 8);
    cp.nat_ver_bitmap_bytesize = U32::new(g.nat_blocks() / 8);
    cp.checksum_offset = U32::new(CHECKSUM_OFFSET as u32);
    let crc = seal(&mut block);
    (block, crc)
}

/// Blocks of a log's segment that are in use.
fn used(log: Log, tree: &Tree) -> u16 {
    match log {
        Log::HotNode => tree.inos.len() as u16,
        Log::HotData => tree.data.len() as u16,
        _ => 0,
    }
}

/// NAT journal, SIT journal, then the entries of the hot data log; the other data logs are empty.
fn compact_summaries(layout: &Layout, tree: &Tree) -> Box<Block> {
    let nats: Vec<RawNatJournalEntry> = (tree.node_start..)
        .zip(&tree.inos)
        .map(|(addr, &ino)| RawNatJournalEntry { nid: U32::new(ino), entry: tree::entry(ino, addr) })
        .collect();
    let order = [Log::HotNode, Log::WarmNode, Log::ColdNode, Log::HotData, Log::WarmData, Log::ColdData];
    let sits = order.map(|log| {
        let used = used(log, tree);
        let mut map = [0; VALID_MAP_SIZE];
        for block in 0..usize::from(used) {
            set_bit(&mut map, block);
        }
        RawSitJournalEntry {
            segno: U32::new(layout.cursegs[log as usize]),
            entry: RawSitEntry::new(log as u8, used, map, 0),
        }
    });
    let (mut nat, mut sit) = (RawJournal::EMPTY, RawJournal::EMPTY);
    let fits = nat.set_nat(&nats) && sit.set_sit(&sits);
    debug_assert!(fits, "a new volume has at most five nodes and six current segments");
    let mut block = Block::boxed();
    block.0[..JOURNAL_SIZE].copy_from_slice(nat.as_bytes());
    block.0[JOURNAL_SIZE..2 * JOURNAL_SIZE].copy_from_slice(sit.as_bytes());
    let entries = tree.data.as_bytes();
    block.0[2 * JOURNAL_SIZE..2 * JOURNAL_SIZE + entries.len()].copy_from_slice(entries);
    block
}

fn node_summary(inos: &[u32]) -> Box<Block> {
    let mut block = Block::boxed();
    let summary: &mut RawSummaryBlock = block.view_mut();
    for (slot, &ino) in summary.entries.iter_mut().zip(inos) {
        *slot = RawSummary { nid: U32::new(ino), version: 0, ofs_in_node: U16::new(0) };
    }
    summary.footer.entry_type = SUM_TYPE_NODE;
    block
}

fn nat_bits_blocks(g: &Geometry) -> u32 {
    (8 + 2 * g.nat_blocks() / 8).div_ceil(BLOCK_SIZE as u32)
}

/// Which NAT blocks are full and which are empty, at the end of the pack's segment: only the first is in use.
fn nat_bits(g: &Geometry, version: u64, crc: u32, pack: BlockAddr) -> Vec<(BlockAddr, Box<Block>)> {
    let count = nat_bits_blocks(g);
    if pack_blocks(g) + count > BLOCKS_PER_SEG {
        return Vec::new();
    }
    let map = g.nat_blocks() as usize / 8;
    let mut bytes = vec![0u8; count as usize * BLOCK_SIZE];
    bytes[..8].copy_from_slice(&(version | u64::from(crc) << 32).to_le_bytes());
    bytes[8 + map..8 + 2 * map].fill(0xFF);
    bytes[8 + map] = 0xFE;
    let blocks = bytes.chunks_exact(BLOCK_SIZE).map(|chunk| {
        let mut block = Block::boxed();
        block.0.copy_from_slice(chunk);
        block
    });
    (pack + BLOCKS_PER_SEG - count..).zip(blocks).collect()
}
