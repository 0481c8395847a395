//! Checkpoints: the moments the volume can be rolled back to.
//!
//! Steps of [`Fs::checkpoint_now`], with every operation kept out by the operation lock:
//! (1) pages of directories and symbolic links, (2) every dirty node, (3) NAT, (4) SIT, (5) SSA blocks of filled
//! segments, (6) the pack into the place of the older one, all but its last block, (7) FLUSH, (8) the last block, FLUSH.
//! Only then may what was freed be used again.
//!
//! Invariant: of the two packs one is always whole; the newer whole one counts.
//! Pack: `[header | payload.. | orphans.. | data summaries | node summaries at unmount | header again]`.
//! Kernel counterpart: `checkpoint.c`, summaries in `segment.c`.

use crate::error::{Error, Result};
use crate::fs::{Fs, NodeMarks};
use crate::mount::check_pack;
use crate::segment::CurSeg;
use crate::stats::Counters;
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::checkpoint::{BitmapPlaces, ChainVersion, CpFlags, RawCheckpoint, orphan_blocks, seal};
use medfs_format::summary::{JOURNAL_SIZE, Log, RawExtraInfo, RawJournal, RawSummary, RawSummaryBlock};
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, FormatError, Ino, Structure};
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

const SUMMARY_SIZE: usize = size_of::<RawSummary>();
/// Bytes of a compact summary block that entries may use.
const COMPACT_BYTES: usize = BLOCK_SIZE - 5;

/// The checkpoint in force.
pub(crate) struct Checkpoint {
    /// Header of the pack in force.
    pub(crate) header: RawCheckpoint,
    /// Its checksum.
    pub(crate) crc: u32,
    /// Version of the next one.
    pub(crate) next_version: u64,
    /// Which of the two packs is in force.
    pub(crate) pack: usize,
    /// NAT entries that live in the hot data log's summary rather than in their NAT block.
    pub(crate) nat_journal: RawJournal,
}

impl Checkpoint {
    /// By what the nodes are told that were written after this checkpoint.
    pub(crate) fn chain(&self) -> ChainVersion {
        ChainVersion::of(&self.header, self.crc)
    }
}

impl Fs {
    /// Makes everything but the dirty pages of regular files durable. Takes `cp` and the operation lock.
    /// Calls that wait for a running checkpoint are served by one that starts after they came.
    pub(crate) fn checkpoint_now(&self) -> Result<()> {
        self.checkpoint(false)
    }

    /// The checkpoint of an unmount: afterwards there is nothing to recover.
    pub(crate) fn checkpoint_for_unmount(&self) -> Result<()> {
        self.checkpoint(true)
    }

    fn checkpoint(&self, unmount: bool) -> Result<()> {
        let before = self.counters.checkpoints.load(Ordering::Acquire);
        let mut cp = self.cp.lock();
        // Two checkpoints ended while this call waited: the later one started after it came.
        if !unmount && self.counters.checkpoints.load(Ordering::Acquire) >= before + 2 {
            return Ok(());
        }
        let _ops = self.ops.write();
        self.check_writable()?;
        let done_already = !unmount || cp.header.flags().contains(CpFlags::UMOUNT);
        if done_already && !self.has_changes() {
            // Pages that were overwritten in place leave nothing else to write.
            return if self.io.is_durable(self.io.write_mark()) { Ok(()) } else { self.io.flush() };
        }
        let result = self.write_content().and_then(|()| self.write_checkpoint(&mut cp, unmount));
        match &result {
            // Pages and nodes that had a place are where they are said to be, and the last checkpoint counts as before.
            Ok(()) | Err(Error::NoSpace) => {}
            // Half a checkpoint must not be followed by writes that build on it.
            Err(error) => self.io.stop_writing(&format!("a checkpoint failed: {error}")),
        }
        result
    }

    /// Writes what the pack will name: pages of what is no regular file, and every dirty node.
    fn write_content(&self) -> Result<()> {
        self.write_back_for_checkpoint()?;
        self.save_registry()?;
        let nodes = self.nodes.take_all_dirty();
        let written = self.write_in_order(&nodes, NodeMarks::default());
        if written.is_err() {
            // Those that had a place too: without the mark of an fsync nothing but a checkpoint makes them count.
            nodes.iter().for_each(|(page, _)| self.nodes.mark(page));
        }
        written
    }

    fn write_checkpoint(&self, cp: &mut Checkpoint, unmount: bool) -> Result<()> {
        let meta = WriteTag::new(Cause::Meta, Temperature::Hot);
        let nat_blocks = self.nat.flush(&self.io, &mut cp.nat_journal)?;
        let mut segs = self.segs.lock();
        let (sit_journal, sit_blocks) = segs.flush_sit(&self.io)?;
        let ssa_blocks = segs.take_pending_ssa();
        let orphans = self.orphans.list();
        let version = cp.next_version;
        let pack = self.build_pack(cp, &segs, &sit_journal, &orphans, version, unmount);
        drop(segs);
        let start = self.geo.cp_pack(1 - cp.pack);
        self.check_pack(1 - cp.pack, &pack)?;
        for blocks in [nat_blocks, sit_blocks, ssa_blocks] {
            let refs: Vec<(BlockAddr, &Block)> = blocks.iter().map(|(a, b)| (*a, &**b)).collect();
            self.io.write_scattered(&refs, meta)?;
        }
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
        self.committed(cp)
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
    fn committed(&self, cp: &Checkpoint) -> Result<()> {
        self.cp_ver.store(cp.chain().in_footers(), Ordering::Release);
        self.nat.committed(&cp.nat_journal);
        self.trans_dirs.lock().clear();
        self.moved_names.lock().clear();
        self.renamed_files.lock().clear();
        self.left_by_dirs.lock().clear();
        self.cut_trees.lock().clear();
        self.dir_log.committed();
        self.dependents.committed();
        self.space.committed();
        *self.last_checkpoint_at.lock() = self.clock.monotonic();
        Counters::add(&self.counters.checkpoints, 1);
        let freed = self.segs.lock().committed();
        if self.opts.discard {
            for (addr, count) in freed.runs.into_iter().filter(|r| r.1 >= DISCARD_GRANULARITY) {
                self.io.discard(addr, count)?;
            }
        }
        Ok(())
    }

    fn build_pack(
        &self,
        cp: &Checkpoint,
        segs: &crate::segment::Segments,
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
        header.free_segment_count = (segs.free_segments() + segs.prefree_segments()).into();
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

impl Fs {
    /// Summaries of the node logs, with what the volume has been written in its life.
    fn node_summaries(&self, segs: &crate::segment::Segments) -> Vec<Block> {
        let mut blocks = summaries(segs, &Log::ALL[3..]);
        let info = RawExtraInfo { kbytes_written: self.kbytes_written().into() };
        blocks[0].view_mut::<RawSummaryBlock>().journal = RawJournal::of_extra_info(info);
        blocks
    }

    /// KiB written to the volume in its life, as far as that is known.
    pub(crate) fn kbytes_written(&self) -> u64 {
        let blocks: u64 = self.io.counters.written.iter().map(|cause| cause.load(Ordering::Relaxed)).sum();
        self.kbytes_at_mount.saturating_add(blocks * (BLOCK_SIZE as u64 / 1024))
    }
}

/// Freed runs shorter than this are not worth a discard (the kernel's granularity).
const DISCARD_GRANULARITY: u32 = 16;

fn block_from(bytes: &[u8]) -> Block {
    let mut block = Block::ZERO;
    block.0.copy_from_slice(bytes);
    block
}

/// The checksum that a sealed checkpoint block carries.
pub(crate) fn stored_checksum(block: &Block) -> u32 {
    let at = (RawCheckpoint::in_block(block).checksum_offset.get() as usize).min(BLOCK_SIZE - 4);
    u32::from_le_bytes(block.0[at..at + 4].try_into().expect("four bytes"))
}

/// Blocks that compact summaries of so many entries take.
pub(crate) fn compact_blocks(entries: usize) -> usize {
    let in_first = (COMPACT_BYTES - 2 * JOURNAL_SIZE) / SUMMARY_SIZE;
    1 + entries.saturating_sub(in_first).div_ceil(COMPACT_BYTES / SUMMARY_SIZE)
}

/// Summaries of the data logs: compact where they fit two blocks, otherwise whole. Tells which.
fn data_summaries(segs: &crate::segment::Segments, nat: &RawJournal, sit: &RawJournal) -> (bool, Vec<Block>) {
    let entries: usize = Log::ALL[..3].iter().map(|&l| segs.curseg(l).summary_len()).sum();
    if compact_blocks(entries) <= 2 {
        return (true, compact_summaries(segs, nat, sit));
    }
    let mut blocks = summaries(segs, &Log::ALL[..3]);
    blocks[Log::HotData as usize].view_mut::<RawSummaryBlock>().journal = *nat;
    blocks[Log::ColdData as usize].view_mut::<RawSummaryBlock>().journal = *sit;
    (false, blocks)
}

fn summaries(segs: &crate::segment::Segments, logs: &[Log]) -> Vec<Block> {
    logs.iter()
        .map(|&log| {
            let mut block = Block::ZERO;
            let raw: &mut RawSummaryBlock = block.view_mut();
            *raw = (*segs.curseg(log).summary).clone();
            raw.journal = RawJournal::EMPTY;
            raw.footer.entry_type = crate::segment::sum_type(log);
            block
        })
        .collect()
}

fn compact_summaries(segs: &crate::segment::Segments, nat: &RawJournal, sit: &RawJournal) -> Vec<Block> {
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

/// What compact summary blocks hold: both journals, and the entries of the data logs, filled into `cursegs`.
pub(crate) fn read_compact(blocks: &[Block], cursegs: &mut [CurSeg]) -> Result<(RawJournal, RawJournal)> {
    use zerocopy::FromBytes;
    let short = |segno: u32, what| {
        let structure = medfs_format::Structure::Summary;
        medfs_format::FormatError::corrupt(structure, segno, "compact summaries", what)
    };
    let first = blocks.first().ok_or_else(|| short(0, "there are none"))?;
    let journal = |at: usize| {
        RawJournal::read_from_bytes(&first.0[at..at + JOURNAL_SIZE]).expect("the size is the journal's")
    };
    let (nat, sit) = (journal(0), journal(JOURNAL_SIZE));
    let (mut block, mut at) = (0, 2 * JOURNAL_SIZE);
    for c in cursegs {
        for i in 0..c.summary_len() {
            if at + SUMMARY_SIZE > COMPACT_BYTES {
                block += 1;
                at = 0;
            }
            let b = blocks.get(block).ok_or_else(|| short(c.segno, "end before the last entry"))?;
            c.summary.entries[i] = RawSummary::read_from_bytes(&b.0[at..at + SUMMARY_SIZE]).expect("sized");
            at += SUMMARY_SIZE;
        }
    }
    Ok((nat, sit))
}
