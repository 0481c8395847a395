//! Writing checkpoint packs: the moments the volume can be rolled back to.
//!
//! Steps of [`Store::write_checkpoint`]: (1) NAT, (2) SIT, (3) SSA blocks of filled segments, (4) the pack
//! into the place of the older one, all but its last block, (5) FLUSH, (6) the last block, FLUSH. Only then
//! may what was freed be used again.
//!
//! Invariant: of the two packs one is always whole; the newer whole one counts.
//! Kernel counterpart: `checkpoint.c`, summaries in `segment.c`.

use crate::Store;
use crate::error::Result;
use crate::pack::{COMPACT_BYTES, SUMMARY_SIZE, check_pack, compact_blocks, stored_checksum};
use crate::segment::{FreeFor, Freed, Segments, sum_type};
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::checkpoint::{
    BitmapPlaces, ChainVersion, CpFlags, RawCheckpoint, RawOrphanBlock, orphan_blocks, seal,
};
use medfs_format::summary::{JOURNAL_SIZE, Log, RawExtraInfo, RawJournal, RawSummaryBlock};
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, FormatError, Ino, Structure};
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

/// The checkpoint in force.
pub struct Checkpoint {
    /// Header of the pack in force.
    pub header: RawCheckpoint,
    /// Its checksum.
    pub crc: u32,
    /// Version of the next one.
    pub next_version: u64,
    /// The pack in force, of the two.
    pub pack: usize,
    /// NAT entries that live in the hot data log's summary rather than in their NAT block.
    pub nat_journal: RawJournal,
}

impl Checkpoint {
    /// By what the nodes are told that were written after this checkpoint.
    pub fn chain(&self) -> ChainVersion {
        ChainVersion::of(&self.header, self.crc)
    }
}

impl Store {
    /// Writes the pack that makes every node and block placed so far count, with NAT, SIT and SSA before it,
    /// into the place of the older one, and durable: of `cp`, with these orphans. The caller keeps every
    /// operation out. What the last checkpoint protected is free afterwards. `before` is told the version that
    /// [`Store::version_in_footers`] will have, before the pack can count.
    pub fn write_checkpoint(
        &self,
        cp: &mut Checkpoint,
        orphans: &[Ino],
        unmount: bool,
        before: impl FnOnce(u64),
    ) -> Result<Freed> {
        let meta = WriteTag::new(Cause::Meta, Temperature::Hot);
        let nat_blocks = self.nat.flush(&self.io, &mut cp.nat_journal)?;
        let mut segs = self.segs.lock();
        let (sit_journal, sit_blocks) = segs.flush_sit(&self.io)?;
        let ssa_blocks = segs.take_pending_ssa();
        let version = cp.next_version;
        let pack = self.build_pack(cp, &segs, &sit_journal, orphans, version, unmount);
        drop(segs);
        let start = self.geo.cp_pack(1 - cp.pack);
        self.check_pack(1 - cp.pack, &pack)?;
        for blocks in [nat_blocks, sit_blocks, ssa_blocks] {
            let refs: Vec<(BlockAddr, &Block)> = blocks.iter().map(|(a, b)| (*a, &**b)).collect();
            self.io.write_scattered(&refs, meta)?;
        }
        before(version_of(&pack));
        let (last, first) = pack.split_last().expect("a pack has at least two blocks");
        let refs: Vec<(BlockAddr, &Block)> =
            first.iter().enumerate().map(|(i, b)| (start + i as u32, b)).collect();
        self.io.write_scattered(&refs, meta)?;
        self.io.flush()?;
        self.io.write(start + first.len() as u32, &[last], meta)?;
        self.io.flush()?;

        cp.header = RawCheckpoint::in_block(last).clone();
        cp.crc = stored_checksum(last);
        cp.next_version = version.wrapping_add(1);
        cp.pack = 1 - cp.pack;
        Ok(self.committed(cp))
    }

    /// Reads a pack that is about to be written as a mount will: none is written that no mount would take.
    fn check_pack(&self, which: usize, pack: &[Block]) -> Result<()> {
        let start = self.geo.cp_pack(which);
        check_pack(&self.geo, which, &|addr| {
            let block = addr.checked_sub(start).and_then(|at| pack.get(at as usize));
            let missing =
                || FormatError::corrupt(Structure::Checkpoint, addr, "pack", "ends before this block");
            Ok(Box::new(block.ok_or_else(missing)?.clone()))
        })
    }

    /// After the pack is durable: what the last checkpoint protected is free.
    fn committed(&self, cp: &Checkpoint) -> Freed {
        let version = cp.chain().in_footers();
        self.cp_ver.store(version, Ordering::Release);
        if let Some(seals) = &self.seals {
            seals.checkpointed(version);
        }
        self.nat.committed(&cp.nat_journal);
        self.space.committed();
        self.segs.lock().committed()
    }

    /// Tells the device of blocks that a checkpoint freed, where enough of them are neighbours.
    pub fn discard(&self, freed: Freed) -> Result<()> {
        for (addr, count) in freed.runs.into_iter().filter(|r| r.1 >= DISCARD_GRANULARITY) {
            self.io.discard(addr, count)?;
        }
        Ok(())
    }

    /// Inodes that were unlinked but held open when the checkpoint in force was made. A block of the list
    /// that cannot be read is logged and left out.
    pub fn orphans(&self) -> Result<Vec<Ino>> {
        let mut orphans = Vec::new();
        let cp = self.cp.lock();
        if !cp.header.flags().contains(CpFlags::ORPHAN_PRESENT) {
            return Ok(orphans);
        }
        let start = self.geo.cp_pack(cp.pack) + 1 + self.geo.cp_payload;
        let count = cp.header.cp_pack_start_sum.get() - 1 - self.geo.cp_payload;
        // Who is not on the list is not freed: nothing else depends on it.
        let lost =
            "files that were removed while they were open stay on the volume until 'medfs fsck --repair'";
        for addr in start..start + count {
            let block = match self.io.read(addr) {
                Ok(block) => block,
                Err(error) => {
                    tracing::warn!(addr, %error, "an orphan block cannot be read: {lost}");
                    continue;
                }
            };
            let raw: &RawOrphanBlock = block.view();
            match raw.inodes(addr) {
                Ok(inos) => orphans.extend(inos.filter(|&ino| self.geo.is_nid(ino))),
                Err(error) => tracing::warn!(addr, %error, "an orphan block is damaged: {lost}"),
            }
        }
        Ok(orphans)
    }

    fn build_pack(
        &self,
        cp: &Checkpoint,
        segs: &Segments,
        sit_journal: &RawJournal,
        orphans: &[Ino],
        version: u64,
        unmount: bool,
    ) -> Vec<Block> {
        let orphan_blocks = orphan_blocks(orphans);
        let (compact, data_summaries) = data_summaries(segs, &cp.nat_journal, sit_journal);
        let node_summaries = if unmount { self.node_summaries(segs) } else { Vec::new() };
        let start_sum = 1 + self.geo.cp_payload as usize + orphan_blocks.len();
        let total = start_sum + data_summaries.len() + node_summaries.len() + 1;

        let mut header = cp.header.clone();
        let counts = self.space.counts();
        header.checkpoint_ver = version.into();
        header.valid_block_count = counts.valid_blocks.into();
        header.valid_node_count = counts.valid_nodes.into();
        header.valid_inode_count = counts.valid_inodes.into();
        header.free_segment_count = (segs.free.segments(FreeFor::Volume) + segs.prefree_segments()).into();
        header.next_free_nid = self.nat.next_free_hint().into();
        header.elapsed_time = self.elapsed().into();
        header.cp_pack_start_sum = (start_sum as u32).into();
        header.cp_pack_total_block_count = (total as u32).into();
        for log in Log::ALL {
            let c = segs.curseg(log);
            header.set_curseg(log as usize, c.segno, c.next);
            header.alloc_type[log as usize] = c.fill as u8;
        }
        let mut flags = header.flags();
        flags.remove(
            CpFlags::FASTBOOT
                | CpFlags::NAT_BITS
                | CpFlags::TRIMMED
                | CpFlags::NOCRC_RECOVERY
                | CpFlags::DISABLED,
        );
        flags.insert(CpFlags::CRC_RECOVERY);
        flags.set(CpFlags::UMOUNT, unmount);
        flags.set(CpFlags::COMPACT_SUM, compact);
        flags.set(CpFlags::ORPHAN_PRESENT, !orphans.is_empty());
        if self.features.contains(Feature::QUOTA) {
            // Quota files are not kept up to date: fsck recounts them.
            flags.insert(CpFlags::QUOTA_NEED_FSCK);
        }
        header.ckpt_flags = flags.bits().into();

        let mut head = vec![0u8; (1 + self.geo.cp_payload as usize) * BLOCK_SIZE];
        head[..header.as_bytes().len()].copy_from_slice(header.as_bytes());
        let places = BitmapPlaces::of(&header, &self.geo);
        let (sit, nat) = (segs.sit_bitmap(), self.nat.bitmap());
        head[places.sit..places.sit + sit.len()].copy_from_slice(sit);
        head[places.nat..places.nat + nat.len()].copy_from_slice(&nat);
        let mut pack: Vec<Block> = head.chunks_exact(BLOCK_SIZE).map(block_from).collect();
        seal(&mut pack[0]);
        let first = pack[0].clone();
        pack.extend(orphan_blocks);
        pack.extend(data_summaries);
        pack.extend(node_summaries);
        pack.push(first);
        debug_assert_eq!(pack.len(), total);
        pack
    }
}

impl Store {
    /// Summaries of the node logs, with what the volume has been written in its life.
    fn node_summaries(&self, segs: &Segments) -> Vec<Block> {
        let mut blocks = summaries(segs, &Log::ALL[3..]);
        let info = RawExtraInfo { kbytes_written: self.kbytes_written().into() };
        blocks[0].view_mut::<RawSummaryBlock>().journal = RawJournal::of_extra_info(info);
        blocks
    }

    /// KiB written to the volume in its life, as far as that is known.
    pub fn kbytes_written(&self) -> u64 {
        let blocks: u64 = self.io.counters.written.iter().map(|cause| cause.load(Ordering::Relaxed)).sum();
        self.kbytes_at_mount.saturating_add(blocks * (BLOCK_SIZE as u64 / 1024))
    }
}

/// Freed runs shorter than this are not worth a discard (the kernel's granularity).
const DISCARD_GRANULARITY: u32 = 16;

/// The version in footers of nodes that follow a pack.
fn version_of(pack: &[Block]) -> u64 {
    ChainVersion::of(RawCheckpoint::in_block(&pack[0]), stored_checksum(&pack[0])).in_footers()
}

fn block_from(bytes: &[u8]) -> Block {
    let mut block = Block::ZERO;
    block.0.copy_from_slice(bytes);
    block
}

/// Summaries of the data logs: compact where they fit two blocks, otherwise whole. Tells which.
fn data_summaries(segs: &Segments, nat: &RawJournal, sit: &RawJournal) -> (bool, Vec<Block>) {
    let entries: usize = Log::ALL[..3].iter().map(|&l| segs.curseg(l).summary_len()).sum();
    if compact_blocks(entries) <= 2 {
        return (true, compact_summaries(segs, nat, sit));
    }
    let mut blocks = summaries(segs, &Log::ALL[..3]);
    blocks[Log::HotData as usize].view_mut::<RawSummaryBlock>().journal = *nat;
    blocks[Log::ColdData as usize].view_mut::<RawSummaryBlock>().journal = *sit;
    (false, blocks)
}

fn summaries(segs: &Segments, logs: &[Log]) -> Vec<Block> {
    logs.iter()
        .map(|&log| {
            let mut block = Block::ZERO;
            let raw: &mut RawSummaryBlock = block.view_mut();
            *raw = (*segs.curseg(log).summary).clone();
            raw.journal = RawJournal::EMPTY;
            raw.footer.entry_type = sum_type(log);
            block
        })
        .collect()
}

fn compact_summaries(segs: &Segments, nat: &RawJournal, sit: &RawJournal) -> Vec<Block> {
    let mut first = Block::ZERO;
    first.0[..JOURNAL_SIZE].copy_from_slice(nat.as_bytes());
    first.0[JOURNAL_SIZE..2 * JOURNAL_SIZE].copy_from_slice(sit.as_bytes());
    let mut blocks = vec![first];
    let mut at = 2 * JOURNAL_SIZE;
    for &log in &Log::ALL[..3] {
        let c = segs.curseg(log);
        for entry in &c.summary.entries[..c.summary_len()] {
            if at + SUMMARY_SIZE > COMPACT_BYTES {
                blocks.push(Block::ZERO);
                at = 0;
            }
            let block = blocks.last_mut().expect("never empty");
            block.0[at..at + SUMMARY_SIZE].copy_from_slice(entry.as_bytes());
            at += SUMMARY_SIZE;
        }
    }
    blocks
}
