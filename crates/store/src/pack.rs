//! Reading checkpoint packs: which of the two counts, and the summaries and journals it holds.
//!
//! Pack: `[header | payload.. | orphans.. | data summaries | node summaries at unmount | header again]`.
//! Invariant: a pack counts only where its first and last block are whole and of one version; of two that
//! count, the newer does. One header is enough where it shows that the checkpoint was complete; the other is
//! written anew before the volume changes, as the next checkpoint goes into the place of the pack beside it.
//! Kernel counterpart: `checkpoint.c`, summaries in `segment.c`.

use crate::error::{Error, Result};
use crate::io::Io;
use crate::nat::{self, Nat};
use crate::segment::{self, CurSeg, Fill, sum_type};
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::checkpoint::{CpFlags, RawCheckpoint, flipped_bit, verify_checksum};
use medfs_format::header_left::{
    BEYOND_LOST, HeaderLeft, MOST_VERSIONS_AHEAD, any_header, is_torn_header, was_begun_after, was_succeeded,
    was_surely_begun_after,
};
use medfs_format::node::footer;
use medfs_format::summary::{JOURNAL_SIZE, Log, RawJournal, RawSummary, RawSummaryBlock};
use medfs_format::{BLOCK_SIZE, BLOCKS_PER_SEG, Block, BlockAddr, FormatError, Geometry, Structure};
use std::cell::{Cell, RefCell};
use zerocopy::FromZeros;

pub(crate) const SUMMARY_SIZE: usize = size_of::<RawSummary>();
/// Bytes of a compact summary block that entries may use.
pub(crate) const COMPACT_BYTES: usize = BLOCK_SIZE - 5;

/// A checkpoint pack that was found whole.
pub(crate) struct Pack {
    pub(crate) header: RawCheckpoint,
    /// The blocks before the orphans: header and payload.
    pub(crate) head: Vec<u8>,
    pub(crate) crc: u32,
    pub(crate) pack: usize,
    /// Version of the next checkpoint.
    pub(crate) next_version: u64,
    /// Why it may not be all of the last one that was made.
    pub(crate) older: Option<String>,
    /// Whether nothing of the other one says that it was the older one.
    pub(crate) alone: bool,
    /// A newer checkpoint of which the second header is missing: it is not shown, and may be complete otherwise.
    pub(crate) unfinished: Option<u64>,
    /// The header that is left of it, where the other one is damaged.
    pub(crate) left: Option<HeaderLeft>,
    /// Headers of it with a flipped bit, as they were: none is left without one.
    pub(crate) turned_back: Vec<(BlockAddr, Box<Block>)>,
}

impl Pack {
    /// One of which nothing is damaged.
    fn whole(header: RawCheckpoint, head: Vec<u8>, crc: u32, pack: usize) -> Pack {
        let is_of_repair = header.flags().contains(CpFlags::NOCRC_RECOVERY);
        let beyond = if is_of_repair { BEYOND_LOST } else { 0 };
        let next_version = header.checkpoint_ver.get().wrapping_add(1 + beyond);
        let (left, turned_back) = (None, Vec::new());
        let (older, alone, unfinished) = (None, false, None);
        Pack { header, head, crc, pack, next_version, older, alone, unfinished, left, turned_back }
    }

    /// Notes why it is not what the last checkpoint was.
    fn is_not_whole(&mut self, why: &str) {
        let version = self.header.checkpoint_ver;
        self.older =
            Some(format!("checkpoint {version} is not whole: {why}; the last changes may be missing"));
    }

    pub(crate) fn has_node_summaries(&self) -> bool {
        self.header.flags().intersects(CpFlags::UMOUNT | CpFlags::FASTBOOT)
    }
}

pub(crate) fn check_pack_flags(header: &RawCheckpoint, read_only: bool) -> Result<()> {
    let flags = header.flags();
    if flags.intersects(CpFlags::RESIZEFS) && !read_only {
        return Err(Error::Incompatible(
            "a resize of the volume was interrupted; run fsck.f2fs on it, or mount it with -o ro".into(),
        ));
    }
    if flags.intersects(CpFlags::ERROR | CpFlags::FSCK) {
        tracing::warn!("the volume is marked as damaged; run 'medfs fsck' on it");
    }
    Ok(())
}

/// How blocks of a pack are read: from the device, or from one that is about to be written.
type ReadBlock<'a> = &'a dyn Fn(u32) -> Result<Box<Block>>;

/// Reads a pack as a mount does, with everything in it that a mount may refuse.
pub(crate) fn check_pack(geo: &Geometry, pack: usize, read: ReadBlock<'_>) -> Result<()> {
    let pack = try_pack(read, read, geo, pack)?;
    let (_, nat, sit) = read_summaries(read, geo, &pack)?;
    nat::journal_entries(geo, &nat)?;
    segment::journal_entries(geo, &sit)?;
    Ok(())
}

pub(crate) fn read_pack(io: &Io, geo: &Geometry) -> Result<Pack> {
    let read = |addr| io.read(addr);
    let (first, second) = (try_pack(&read, &read, geo, 0), try_pack(&read, &read, geo, 1));
    let found = match (first, second) {
        (Ok(a), Ok(b)) => {
            let newest = if is_newer(&b, &a) { b } else { a };
            Ok(newer_of_one_header(io, geo, &newest)?.unwrap_or(newest))
        }
        (Ok(whole), Err(_)) | (Err(_), Ok(whole)) => match newer_of_one_header(io, geo, &whole)? {
            Some(newer) => Ok(newer),
            None => match turned_back(io, geo, 1 - whole.pack).filter(|other| is_newer(other, &whole)) {
                Some(newer) => Ok(newer),
                None => beside_a_broken_one(io, geo, whole),
            },
        },
        (Err(a), Err(_)) => match (turned_back(io, geo, 0), turned_back(io, geo, 1)) {
            (Some(a), Some(b)) => Ok(if is_newer(&b, &a) { b } else { a }),
            (Some(pack), None) | (None, Some(pack)) => match newer_of_one_header(io, geo, &pack)? {
                Some(newer) => Ok(newer),
                None => beside_a_broken_one(io, geo, pack),
            },
            (None, None) => Err(a),
        },
    };
    match (newest_inside(io, geo)?, found) {
        (Some(inside), Ok(found)) if is_newer(&found, &inside) => Ok(found),
        (Some(inside), _) => Ok(inside),
        (None, found) => found,
    }
}

/// The newer of the packs with an older header in the place of their first one.
fn newest_inside(io: &Io, geo: &Geometry) -> Result<Option<Pack>> {
    let mut newest: Option<Pack> = None;
    for index in 0..2 {
        let Some(left) = HeaderLeft::inside(geo, index, &mut readable(io))? else { continue };
        let inside = with_left(io, geo, index, left)?;
        newest = match (newest, inside) {
            (Some(a), Some(b)) => Some(if is_newer(&b, &a) { b } else { a }),
            (a, b) => a.or(b),
        };
    }
    Ok(newest)
}

fn is_newer(pack: &Pack, than: &Pack) -> bool {
    pack.header.checkpoint_ver.get().wrapping_sub(than.header.checkpoint_ver.get()) as i64 > 0
}

/// A pack that is whole but for a flipped bit in each of its headers, which their checksums tell.
fn turned_back(io: &Io, geo: &Geometry, pack: usize) -> Option<Pack> {
    let mended = RefCell::new(Vec::new());
    let header = |addr| {
        let mut block = io.read(addr)?;
        if verify_checksum(&block, addr).is_err()
            && let Some(bit) = flipped_bit(&block)
        {
            bit.flip(&mut block);
            mended.borrow_mut().push((addr, block.clone()));
        }
        Ok(block)
    };
    let pack = try_pack(&header, &|addr| io.read(addr), geo, pack).ok()?;
    tracing::warn!("the headers of the last checkpoint have a flipped bit, which their checksums tell");
    Some(Pack { turned_back: mended.into_inner(), ..pack })
}

/// Reads blocks; `None` for one that cannot be read.
fn readable(io: &Io) -> impl FnMut(BlockAddr) -> Result<Option<Box<Block>>> {
    |addr| Ok(io.read(addr).ok())
}

/// The pack beside a whole one, where one of its two headers is damaged or of an older checkpoint, and the
/// other says that it is complete and newer.
fn newer_of_one_header(io: &Io, geo: &Geometry, whole: &Pack) -> Result<Option<Pack>> {
    let pack = 1 - whole.pack;
    let than = whole.header.checkpoint_ver.get();
    match HeaderLeft::of(geo, pack, than, &mut readable(io))? {
        Some(left) => with_left(io, geo, pack, left),
        None => Ok(None),
    }
}

/// The pack of which this header is left.
fn with_left(io: &Io, geo: &Geometry, pack: usize, left: HeaderLeft) -> Result<Option<Pack>> {
    let mut read = readable(io);
    let mut head = left.block.0.to_vec();
    for i in 1..=geo.cp_payload {
        let Some(block) = read(geo.cp_pack(pack) + i)? else { return Ok(None) };
        head.extend_from_slice(&block.0);
    }
    if left.torn {
        let says = "power was lost while it was written, when all else was durable: the first one counts";
        tracing::info!(addr = left.lost, "the second header of the last checkpoint is not whole: {says}");
    } else {
        tracing::warn!(
            addr = left.lost,
            "one of the two headers of the last checkpoint is damaged, and the other one counts; 'medfs help damaged' says what to do"
        );
    }
    let header = RawCheckpoint::in_block(&left.block).clone();
    let crc = stored_checksum(&left.block);
    Ok(Some(Pack { left: Some(left), ..Pack::whole(header, head, crc, pack) }))
}

/// Makes a pack whole of which one header is left, or both have a flipped bit.
pub(crate) fn make_whole(io: &Io, pack: &Pack) -> Result<()> {
    let left = pack.left.iter().map(|left| (left.lost, &left.block));
    let headers: Vec<_> = left.chain(pack.turned_back.iter().map(|(addr, block)| (*addr, block))).collect();
    for (addr, block) in &headers {
        io.write(*addr, &[block], WriteTag::new(Cause::Meta, Temperature::Hot))?;
    }
    if headers.is_empty() { Ok(()) } else { io.flush() }
}

/// A pack that is the only whole one. The other may have been in force before it was damaged, with nodes of
/// its version behind it: that version is not used again. Versions stay odd in one pack and even in the
/// other.
fn beside_a_broken_one(io: &Io, geo: &Geometry, pack: Pack) -> Result<Pack> {
    let version = pack.header.checkpoint_ver.get();
    let first = io.read(geo.cp_pack(1 - pack.pack)).ok();
    let other = first.as_ref().map_or(0, |block| RawCheckpoint::in_block(block).checkpoint_ver.get());
    let is_torn = first.is_some_and(|block| is_torn_header(&block, version));
    let ahead = other.wrapping_sub(version);
    let ahead = if ahead < MOST_VERSIONS_AHEAD { ahead } else { 0 };
    if ahead > 0 {
        tracing::warn!(
            "checkpoint {other} has no second header, as power loss during a checkpoint leaves it: the volume is shown as of checkpoint {version}, with what was fsynced since"
        );
    }
    let mut read = readable(io);
    // The header of an earlier pack may be left behind the one that is lost.
    let is_lost = !is_torn
        && ahead == 0
        && match any_header(geo, 1 - pack.pack, &mut read)? {
            Some(_) => was_surely_begun_after(geo, &pack.header, pack.crc, &mut read)?,
            None => was_begun_after(geo, &pack.header, pack.crc, &mut read)?,
        };
    let destroyed = is_lost || was_succeeded(geo, &pack.header, pack.crc, &mut read)?;
    let older = destroyed.then(|| {
        let number = 2 - pack.pack;
        format!("checkpoint pack {number} is destroyed: the volume is shown as of the previous checkpoint, {version}")
    });
    let unfinished = (ahead > 0).then_some(other);
    let next_version = version.wrapping_add(ahead.div_ceil(2) * 2 + 3);
    let alone = !is_torn && !destroyed && ahead == 0;
    Ok(Pack { next_version, older, alone, unfinished, ..pack })
}

/// Why a checkpoint of which the other pack is lost is not the last one: the NAT leads to more inodes than it counts.
pub(crate) fn counts_too_few(io: &Io, geo: &Geometry, nat: &Nat, header: &RawCheckpoint) -> Option<String> {
    let (found, counted) =
        (nat.inodes(io, geo.root_ino).flatten().count() as u64, u64::from(header.valid_inode_count.get()));
    (found > counted).then(|| {
        format!(
            "a checkpoint pack is destroyed, and the other one counts {counted} of {found} inodes: it is an older checkpoint"
        )
    })
}

fn try_pack(header_at: ReadBlock<'_>, read: ReadBlock<'_>, geo: &Geometry, pack: usize) -> Result<Pack> {
    let start = geo.cp_pack(pack);
    let first = header_at(start)?;
    let crc = verify_checksum(&first, start)?;
    let header = RawCheckpoint::in_block(&first).clone();
    header.validate(start, geo)?;
    let end = start + header.cp_pack_total_block_count.get() - 1;
    let last = header_at(end)?;
    verify_checksum(&last, end)?;
    if RawCheckpoint::in_block(&last).checkpoint_ver != header.checkpoint_ver {
        return Err(FormatError::corrupt(
            Structure::Checkpoint,
            end,
            "checkpoint_ver",
            "differs from the first block's",
        )
        .into());
    }
    let mut head = first.0.to_vec();
    for i in 1..=geo.cp_payload {
        head.extend_from_slice(&read(start + i)?.0);
    }
    debug_assert_eq!(crc, stored_checksum(&first));
    Ok(Pack::whole(header, head, crc, pack))
}

/// Reads the summaries of the six logs, and the journals of NAT and SIT. `past_damage`: a block that cannot be
/// read is one of zeros; the pack then is not what the last checkpoint was.
pub(crate) fn read_cursegs(
    io: &Io,
    geo: &Geometry,
    pack: &mut Pack,
    past_damage: bool,
) -> Result<([CurSeg; 6], RawJournal, RawJournal)> {
    let lost = Cell::new(None);
    let read = |addr| match io.read(addr) {
        Err(error) if past_damage => {
            tracing::warn!(addr, %error, "a summary block of the checkpoint cannot be read");
            lost.set(Some(addr));
            Ok(Box::new(Block::ZERO))
        }
        read => read,
    };
    let (mut cursegs, nat, sit) = read_summaries(&read, geo, pack)?;
    let mut why = lost.get().map(|addr| format!("block {addr} of it cannot be read"));
    if let Err(error) = check_filled(pack, &cursegs[..3], &nat, &sit) {
        if !past_damage {
            return Err(error);
        }
        why = why.or(Some(error.to_string()));
    }
    if let Some(why) = why {
        pack.is_not_whole(&why);
    }
    if !pack.has_node_summaries() {
        for c in &mut cursegs[3..] {
            restore_node_summary(io, geo, c);
        }
    }
    Ok((cursegs, nat, sit))
}

/// Leaves a journal of the NAT out that is not valid: the pack then is not what the last checkpoint was.
pub(crate) fn leave_wrong_nat(geo: &Geometry, journal: &mut RawJournal, pack: &mut Pack) {
    if let Err(error) = nat::journal_entries(geo, journal) {
        *journal = RawJournal::EMPTY;
        pack.is_not_whole(&error.to_string());
    }
}

/// Leaves a journal of the SIT out that is not valid.
pub(crate) fn leave_wrong_sit(geo: &Geometry, journal: &mut RawJournal) {
    if let Err(error) = segment::journal_entries(geo, journal) {
        tracing::warn!(%error, "the valid blocks of some segments are not known");
        *journal = RawJournal::EMPTY;
    }
}

/// Reads the summaries and journals that a pack has: those of the node logs only after an unmount.
fn read_summaries(
    read: ReadBlock<'_>,
    geo: &Geometry,
    pack: &Pack,
) -> Result<([CurSeg; 6], RawJournal, RawJournal)> {
    let header = &pack.header;
    let mut cursegs = Log::ALL.map(|log| {
        let (segno, next) = header.curseg(log as usize);
        let fill = if header.alloc_type[log as usize] == Fill::Ssr as u8 { Fill::Ssr } else { Fill::Lfs };
        let mut summary: Box<RawSummaryBlock> = RawSummaryBlock::new_box_zeroed().expect("4 KiB");
        summary.footer.entry_type = sum_type(log);
        CurSeg { segno, next, fill, summary }
    });
    let start = geo.cp_pack(pack.pack) + header.cp_pack_start_sum.get();
    let end = geo.cp_pack(pack.pack) + header.cp_pack_total_block_count.get() - 1;
    let read = |addr: u32| {
        if addr >= end {
            let e = FormatError::corrupt(
                Structure::Checkpoint,
                addr,
                "cp_pack_start_sum",
                "summaries end too early",
            );
            return Err(Error::from(e));
        }
        read(addr)
    };
    let compact = header.flags().contains(CpFlags::COMPACT_SUM);
    let (nat, sit) = if compact {
        let count = compact_blocks(cursegs[..3].iter().map(CurSeg::summary_len).sum());
        let blocks: Vec<Block> =
            (start..end).take(count).map(|addr| Ok(*read(addr)?)).collect::<Result<_>>()?;
        read_compact(&blocks, &mut cursegs[..3])?
    } else {
        for (i, c) in cursegs[..3].iter_mut().enumerate() {
            *c.summary = read(start + i as u32)?.view::<RawSummaryBlock>().clone();
        }
        let journal = |log: Log| cursegs[log as usize].summary.journal;
        (journal(Log::HotData), journal(Log::ColdData))
    };
    if pack.has_node_summaries() {
        let first = end - 3;
        for (i, c) in cursegs[3..].iter_mut().enumerate() {
            *c.summary = read(first + i as u32)?.view::<RawSummaryBlock>().clone();
        }
    }
    Ok((cursegs, nat, sit))
}

/// Checks that compact summaries are not zeros, as a block reads that was lost: they say who has the blocks that the
/// logs of data have placed, and a checkpoint that has placed some has changed NAT and SIT. A single log may have
/// placed blocks that nobody has, as what was kept of an fsync that never returned.
fn check_filled(pack: &Pack, of_data: &[CurSeg], nat: &RawJournal, sit: &RawJournal) -> Result<()> {
    let placed: u32 = of_data.iter().map(|c| u32::from(c.next)).sum();
    let is_filled = || of_data.iter().any(|c| c.summary.entries.iter().any(|entry| entry.nid.get() != 0));
    let is_compact = pack.header.flags().contains(CpFlags::COMPACT_SUM);
    if !is_compact || placed == 0 || [nat, sit].iter().any(|journal| journal.count.get() != 0) || is_filled()
    {
        return Ok(());
    }
    let what = format!("zeros, and the logs of data have placed {placed} blocks");
    Err(FormatError::corrupt(Structure::Checkpoint, pack.header.checkpoint_ver.get(), "summaries", what)
        .into())
}

/// Rebuilds the summary of a node log from the footers of the blocks in its segment. A block that cannot be
/// read has no owner there: cleaning leaves it where it is.
fn restore_node_summary(io: &Io, geo: &Geometry, c: &mut CurSeg) {
    let start = geo.seg_start(c.segno);
    let mut blocks = vec![Block::ZERO; BLOCKS_PER_SEG as usize];
    if io.read_into(start, &mut blocks.iter_mut().collect::<Vec<_>>()).is_err() {
        for (addr, block) in (start..).zip(&mut blocks) {
            if let Err(error) = io.read_into(addr, &mut [&mut *block]) {
                tracing::warn!(addr, %error, "a block in the segment of a node log cannot be read");
                *block = Block::ZERO;
            }
        }
    }
    for (entry, block) in c.summary.entries.iter_mut().zip(&blocks) {
        *entry = RawSummary { nid: footer(block).nid, ..RawSummary::default() };
    }
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
