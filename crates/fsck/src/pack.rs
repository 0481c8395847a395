//! The checkpoint pack: reading its header and summaries, and writing a new one.
//!
//! ```text
//! checkpoint | payload.. | orphans .. | 3 data summaries, or 1-2 compact | 3 node summaries, after umount | checkpoint
//! ```
//!
//! Writing keeps the volume usable at every moment: the first block, which makes a pack count, is written after
//! everything else is durable.

use crate::cache::Cache;
use crate::image::{CANNOT_BE_READ, Curseg, Image};
use crate::no_pack::Pack;
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::checkpoint::{self, BitmapPlaces, CpFlags, RawCheckpoint};
use medfs_format::flip::Bit;
use medfs_format::header_left::{BEING_WRITTEN, BEYOND_LOST};
use medfs_format::summary::{
    ENTRIES_PER_BLOCK, JOURNAL_SIZE, LOG_COUNT, Log, RawExtraInfo, RawJournal, RawNatJournalEntry,
    RawSummary, RawSummaryBlock, RawSummaryFooter, SUM_TYPE_DATA, SUM_TYPE_NODE,
};
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, BLOCKS_PER_SEG, Block, BlockAddr, FormatError, Geometry, Structure};
use std::io;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// First block and payload of a pack, its version, and the blocks in which one bit was flipped, as they must be.
pub(crate) type Header = (Vec<u8>, u64, Vec<(BlockAddr, Box<Block>, Bit)>);

/// A checkpoint block with a right checksum; where one flipped bit makes it wrong, it is turned back and noted.
fn read_sealed(
    cache: &mut Cache<'_>,
    addr: BlockAddr,
    unflipped: &mut Vec<(BlockAddr, Box<Block>, Bit)>,
) -> io::Result<Result<Box<Block>, FormatError>> {
    let mut block = cache.read(addr)?;
    if let Err(e) = readable(cache, addr) {
        return Ok(Err(e));
    }
    if let Err(e) = checkpoint::verify_checksum(&block, addr) {
        let Some(bit) = checkpoint::flipped_bit(&block) else { return Ok(Err(e)) };
        bit.flip(&mut block);
        unflipped.push((addr, block.clone(), bit));
    }
    Ok(Ok(block))
}

/// Reads and checks a pack's first and last block.
pub(crate) fn read_header(
    cache: &mut Cache<'_>,
    g: &Geometry,
    index: usize,
) -> io::Result<Result<Header, FormatError>> {
    let start = g.cp_pack(index);
    let mut unflipped = Vec::new();
    let first = match read_sealed(cache, start, &mut unflipped)? {
        Ok(first) => first,
        Err(e) => return Ok(Err(e)),
    };
    let cp = RawCheckpoint::in_block(&first);
    if let Err(e) = cp.validate(start, g) {
        return Ok(Err(e));
    }
    let last_addr = start + cp.cp_pack_total_block_count.get() - 1;
    let last = match read_sealed(cache, last_addr, &mut unflipped)? {
        Ok(last) => last,
        Err(e) => return Ok(Err(e)),
    };
    let version = RawCheckpoint::in_block(&last).checkpoint_ver.get();
    if version != cp.checkpoint_ver.get() {
        return Ok(Err(FormatError::corrupt(
            Structure::Checkpoint,
            last_addr,
            "checkpoint_ver",
            format!("{version}, but {} in the pack's first block", cp.checkpoint_ver),
        )));
    }
    let mut bytes = first.0.to_vec();
    for i in 0..g.cp_payload {
        bytes.extend_from_slice(&cache.get(start + 1 + i)?.0);
        if let Err(e) = readable(cache, start + 1 + i) {
            return Ok(Err(e));
        }
    }
    let places = BitmapPlaces::of(cp, g);
    let ends = [
        places.sit + cp.sit_ver_bitmap_bytesize.get() as usize,
        places.nat + cp.nat_ver_bitmap_bytesize.get() as usize,
    ];
    if ends.into_iter().any(|end| end > bytes.len()) {
        return Ok(Err(FormatError::corrupt(
            Structure::Checkpoint,
            start,
            "nat_ver_bitmap_bytesize",
            "the version bitmaps do not fit the pack",
        )));
    }
    Ok(Ok((bytes, version, unflipped)))
}

/// That a block of a pack was readable.
fn readable(cache: &Cache<'_>, addr: BlockAddr) -> Result<(), FormatError> {
    match cache.medium.tell_unreadable(addr) {
        true => Err(FormatError::corrupt(Structure::Checkpoint, addr, "block", CANNOT_BE_READ)),
        false => Ok(()),
    }
}

/// That the journals of a pack are readable: without them NAT and SIT are what they were earlier.
pub(crate) fn journals_readable(
    cache: &mut Cache<'_>,
    g: &Geometry,
    index: usize,
    head: &[u8],
) -> io::Result<Result<(), FormatError>> {
    let cp = RawCheckpoint::read_from_bytes(&head[..checkpoint::HEADER_SIZE]).expect("sized");
    let start = g.cp_pack(index);
    let places = if cp.flags().contains(CpFlags::COMPACT_SUM) {
        [start + cp.cp_pack_start_sum.get(); 2]
    } else {
        [0, 2].map(|log| data_summary(&cp, start, log))
    };
    for addr in places {
        cache.get(addr)?;
        if let Err(e) = readable(cache, addr) {
            return Ok(Err(e));
        }
    }
    Ok(Ok(()))
}

/// Place of the summary of a data log, in a pack where these are whole blocks.
fn data_summary(cp: &RawCheckpoint, start: BlockAddr, log: u32) -> BlockAddr {
    // The pack's validated sizes keep every address inside the checkpoint area.
    let end = start + cp.cp_pack_total_block_count.get() - 1;
    let back = if has_node_summaries(cp) { 6 } else { 3 };
    end.saturating_sub(back).max(start) + log
}

pub(crate) fn has_node_summaries(cp: &RawCheckpoint) -> bool {
    cp.flags().intersects(CpFlags::UMOUNT | CpFlags::FASTBOOT)
}

/// The current segments' summaries and the two journals.
pub(crate) struct Summaries {
    pub(crate) blocks: Vec<Box<RawSummaryBlock>>,
    /// Whether the pack had the log's summary.
    pub(crate) known: [bool; LOG_COUNT],
    pub(crate) nat_journal: RawJournal,
    pub(crate) sit_journal: RawJournal,
}

/// A summary block of zeros of the right type.
pub(crate) fn empty_summary(node: bool) -> Box<RawSummaryBlock> {
    let mut sum = RawSummaryBlock::new_box_zeroed().expect("allocation of 4 KiB");
    sum.footer.entry_type = if node { SUM_TYPE_NODE } else { SUM_TYPE_DATA };
    sum
}

/// The header in the first bytes of a pack.
pub(crate) fn header_in(bytes: &[u8]) -> RawCheckpoint {
    zerocopy::FromBytes::read_from_bytes(&bytes[..checkpoint::HEADER_SIZE]).expect("sized")
}

/// What the volume had been written in its life at the checkpoint of a pack.
pub(crate) fn written(
    cache: &mut Cache<'_>,
    g: &Geometry,
    (pack, bytes, _): &Pack,
) -> io::Result<RawExtraInfo> {
    let cp = header_in(bytes);
    let sums = read_summaries(cache, g, &cp, g.cp_pack(*pack))?;
    let has_it = has_node_summaries(&cp);
    Ok(if has_it { sums.blocks[Log::HotNode as usize].journal.extra_info() } else { RawExtraInfo::default() })
}

/// Reads the summaries of the pack at `start`, compact or normal.
pub(crate) fn read_summaries(
    cache: &mut Cache<'_>,
    g: &Geometry,
    cp: &RawCheckpoint,
    start: BlockAddr,
) -> io::Result<Summaries> {
    let with_nodes = has_node_summaries(cp);
    let mut s = Summaries {
        blocks: (0..LOG_COUNT).map(|log| empty_summary(log >= 3)).collect(),
        known: [true, true, true, with_nodes, with_nodes, with_nodes],
        nat_journal: RawJournal::EMPTY,
        sit_journal: RawJournal::EMPTY,
    };
    let end = start + cp.cp_pack_total_block_count.get() - 1;
    let area_end = g.sit_blkaddr;
    if cp.flags().contains(CpFlags::COMPACT_SUM) {
        read_compact(cache, cp, start + cp.cp_pack_start_sum.get(), area_end, &mut s)?;
    } else {
        for log in 0..3 {
            s.read_block(cache, log, data_summary(cp, start, log as u32))?;
        }
        s.nat_journal = s.blocks[0].journal;
        s.sit_journal = s.blocks[2].journal;
    }
    if with_nodes {
        for log in 3..6 {
            s.read_block(cache, log, end.saturating_sub(3).max(start) + log as u32 - 3)?;
        }
    }
    Ok(s)
}

impl Summaries {
    /// Whether the journals are empty for certain: nothing is left in their place, and the blocks that hold
    /// them were not lost to zeros.
    pub(crate) fn show_empty_journals(&self, cp: &RawCheckpoint) -> bool {
        let blank = |journal: &RawJournal| journal.as_bytes().iter().all(|&byte| byte == 0);
        let compact = cp.flags().contains(CpFlags::COMPACT_SUM);
        let has_entries = |log: Log| has_entries(&self.blocks[log as usize]);
        blank(&self.nat_journal)
            && blank(&self.sit_journal)
            && has_entries(Log::HotData)
            && (compact || has_entries(Log::ColdData))
    }

    /// Takes a summary block of a log. One that cannot be read is made anew from what the walk finds.
    fn read_block(&mut self, cache: &mut Cache<'_>, log: usize, addr: BlockAddr) -> io::Result<()> {
        let block = cache.get(addr)?.view::<RawSummaryBlock>().clone();
        if cache.medium.is_unreadable(addr) {
            self.known[log] = false;
        } else {
            *self.blocks[log] = block;
        }
        Ok(())
    }
}

/// Compact form: both journals, then the data logs' entries without gaps, 7 bytes each, none across a block's footer.
fn read_compact(
    cache: &mut Cache<'_>,
    cp: &RawCheckpoint,
    mut addr: BlockAddr,
    area_end: BlockAddr,
    s: &mut Summaries,
) -> io::Result<()> {
    let mut block = cache.read(addr)?;
    s.nat_journal = RawJournal::read_from_bytes(&block.0[..JOURNAL_SIZE]).expect("sized");
    s.sit_journal = RawJournal::read_from_bytes(&block.0[JOURNAL_SIZE..2 * JOURNAL_SIZE]).expect("sized");
    let mut at = 2 * JOURNAL_SIZE;
    for log in 0..3 {
        let (_, blkoff) = cp.curseg(log);
        let count = if cp.alloc_type[log] == 1 { ENTRIES_PER_BLOCK } else { usize::from(blkoff) };
        for i in 0..count.min(ENTRIES_PER_BLOCK) {
            let size = size_of::<RawSummary>();
            s.blocks[log].entries[i] = RawSummary::read_from_bytes(&block.0[at..at + size]).expect("sized");
            at += size;
            if at + size > BLOCK_SIZE - size_of::<RawSummaryFooter>() {
                addr += 1;
                if addr >= area_end {
                    return Ok(());
                }
                block = cache.read(addr)?;
                at = 0;
            }
        }
    }
    Ok(())
}

/// The counts a new checkpoint carries.
pub(crate) struct Counts {
    pub(crate) blocks: u64,
    pub(crate) nodes: u32,
    pub(crate) inodes: u32,
    pub(crate) free_segments: u32,
    pub(crate) next_free_nid: u32,
    /// A quota file says what is not so, and could not be written.
    pub(crate) recount: bool,
    /// A newer checkpoint was complete, and is lost.
    pub(crate) is_older: bool,
}

/// Writes a fresh checkpoint pack with empty journals and no orphans.
///
/// Without a log to replay, the other pack gets the next version. With one, or records in an NVRAM, the version must
/// stay, because they carry it: then the other pack is written first and the one in force second, each by itself a
/// valid volume, and the flag that lets recovery ignore the checkpoint's checksum is set.
pub(crate) fn write(image: &mut Image<'_>, counts: &Counts, has_log: bool) -> io::Result<()> {
    let keep_log = has_log || image.raw_sb().check_no_nvram().is_err();
    // What the volume has been written in its life is in the summary of a node log.
    let with_nodes = !keep_log || has_node_summaries(&image.checkpoint());
    let sums = if with_nodes { 6 } else { 3 };
    let cp = header(image, counts, keep_log, sums as u32);
    let mut head = Block::boxed();
    head.0.copy_from_slice(&image.cp[..BLOCK_SIZE]);
    *RawCheckpoint::in_block_mut(&mut head) = cp;
    checkpoint::seal(&mut head);
    image.cp[..BLOCK_SIZE].copy_from_slice(&head.0);

    let mut blocks = vec![head.clone()];
    for chunk in image.cp[BLOCK_SIZE..].chunks_exact(BLOCK_SIZE) {
        let mut block = Block::boxed();
        block.0.copy_from_slice(chunk);
        blocks.push(block);
    }
    let first_sum = blocks.len();
    blocks.extend(image.cursegs[..sums].iter().map(summary_block));
    if ![Log::HotData, Log::ColdData].iter().all(|log| has_entries(&image.cursegs[*log as usize].sum)) {
        blocks[first_sum + Log::HotData as usize].view_mut::<RawSummaryBlock>().journal = of_root(image)?;
    }
    if with_nodes {
        let hot_node = first_sum + Log::HotNode as usize;
        blocks[hot_node].view_mut::<RawSummaryBlock>().journal = RawJournal::of_extra_info(image.written);
    }
    debug_assert!(blocks.len() < BLOCKS_PER_SEG as usize);

    let other = 1 - image.pack;
    write_pack(image, other, &blocks, &head)?;
    if keep_log {
        write_pack(image, image.pack, &blocks, &head)?;
    }
    image.pack = other;
    Ok(())
}

/// Whether a summary has entries: its block was not lost to zeros, with the journal in it.
fn has_entries(sum: &RawSummaryBlock) -> bool {
    sum.entries.iter().any(|entry| entry.nid.get() != 0)
}

/// A journal with what the NAT says of the root: that there is an entry shows that none was lost.
fn of_root(image: &mut Image<'_>) -> io::Result<RawJournal> {
    let nid = image.g.root_ino;
    let mut journal = RawJournal::EMPTY;
    let fits = journal.set_nat(&[RawNatJournalEntry { nid: nid.into(), entry: image.nat(nid)? }]);
    debug_assert!(fits);
    Ok(journal)
}

/// The header of a pack with so many summaries.
fn header(image: &Image<'_>, counts: &Counts, keep_log: bool, sums: u32) -> RawCheckpoint {
    let mut cp = image.checkpoint();
    let mut flags = cp.flags();
    flags.remove(
        CpFlags::ORPHAN_PRESENT
            | CpFlags::COMPACT_SUM
            | CpFlags::ERROR
            | CpFlags::FSCK
            | CpFlags::FASTBOOT
            | CpFlags::NAT_BITS
            | CpFlags::TRIMMED,
    );
    if counts.recount && image.features.contains(Feature::QUOTA) {
        flags.insert(CpFlags::QUOTA_NEED_FSCK);
    }
    flags.set(CpFlags::UMOUNT, sums == LOG_COUNT as u32);
    flags.set(CpFlags::NOCRC_RECOVERY, keep_log);
    if !keep_log {
        let beyond = if counts.is_older { BEYOND_LOST } else { 0 };
        cp.checkpoint_ver = (cp.checkpoint_ver.get().wrapping_add(1 + beyond)).into();
    }
    cp.ckpt_flags = flags.bits().into();
    if cp.user_block_count.get() < counts.blocks {
        // Fewer than are in use: no such pack is valid. What is not over-provisioned is for users.
        let segments = image.g.segment_count_main.saturating_sub(cp.overprov_segment_count.get());
        let users = u64::from(segments) * u64::from(BLOCKS_PER_SEG);
        cp.user_block_count = users.max(counts.blocks).into();
    }
    cp.valid_block_count = counts.blocks.into();
    cp.valid_node_count = counts.nodes.into();
    cp.valid_inode_count = counts.inodes.into();
    cp.free_segment_count = counts.free_segments.into();
    cp.next_free_nid = counts.next_free_nid.into();
    let payload = image.g.cp_payload;
    cp.cp_pack_start_sum = (1 + payload).into();
    cp.cp_pack_total_block_count = (1 + payload + sums + 1).into();
    for (log, c) in image.cursegs.iter().enumerate() {
        cp.set_curseg(log, c.segno, c.blkoff as u16);
        cp.alloc_type[log] = c.alloc_type;
    }
    cp
}

/// Notes in the pack in force that errors are left, so that a mount says so. Either header alone is that of a
/// whole pack, before and after.
pub(crate) fn note_errors(image: &mut Image<'_>) -> io::Result<()> {
    let (start, mut cp) = (image.g.cp_pack(image.pack), image.checkpoint());
    let mut flags = cp.flags();
    // The log is told by the version alone, as the checksum is another one.
    flags.insert(CpFlags::FSCK | CpFlags::NOCRC_RECOVERY);
    cp.ckpt_flags = flags.bits().into();
    let mut head = Block::boxed();
    head.0.copy_from_slice(&image.cp[..BLOCK_SIZE]);
    *RawCheckpoint::in_block_mut(&mut head) = cp;
    checkpoint::seal(&mut head);
    let last = start + RawCheckpoint::in_block(&head).cp_pack_total_block_count.get() - 1;
    let tag = WriteTag::new(Cause::Meta, Temperature::Hot);
    for addr in [last, start] {
        image.cache.medium.write(addr, &[&head], tag)?;
        image.cache.medium.flush()?;
    }
    Ok(())
}

fn summary_block(curseg: &Curseg) -> Box<Block> {
    let mut block = Block::boxed();
    let sum: &mut RawSummaryBlock = block.view_mut();
    *sum = (*curseg.sum).clone();
    sum.journal = RawJournal::EMPTY;
    block
}

/// Writes one pack: its first block is made invalid before anything else changes and written last, after the
/// last block.
fn write_pack(image: &mut Image<'_>, index: usize, blocks: &[Box<Block>], last: &Block) -> io::Result<()> {
    let medium = &image.cache.medium;
    let start = image.g.cp_pack(index);
    let tag = WriteTag::new(Cause::Meta, Temperature::Hot);
    let mut none = Block::boxed();
    none.0[..BEING_WRITTEN.len()].copy_from_slice(BEING_WRITTEN);
    medium.write(start, &[&none], tag)?;
    medium.flush()?;
    let rest: Vec<&Block> = blocks[1..].iter().map(|b| &**b).collect();
    medium.write(start + 1, &rest, tag)?;
    medium.flush()?;
    // Each header alone says that the pack is complete.
    medium.write(start + blocks.len() as u32, &[last], tag)?;
    medium.flush()?;
    medium.write(start, &[&blocks[0]], tag)?;
    medium.flush()
}
