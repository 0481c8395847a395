//! The fsync log where a block in its middle cannot be read, or where a node names another block than it did.
//!
//! A repair ends the log there, as nothing tells what that block held. Whoever copies files off the volume
//! wants what was fsynced behind it too: [`bridge`] leads the log past it, in a copy of the volume, and tells
//! which files may lack what the lost node had.
//!
//! What lies behind the end of the log is looked for in the whole of a segment. Nodes that the log met are none of
//! that, and no block in use is read.

use crate::finding::Findings;
use crate::image::{Image, Stop};
use crate::log_node::{self, is_torn, sealing};
use crate::medium::Medium;
use foldhash::{HashSet, HashSetExt};
use medfs_device::{BlockDevice, Cause, Temperature, WriteTag};
use medfs_format::log_gap::{End, Files, LogReader, Step, add_files, stand_in};
use medfs_format::node::{RawInode, footer, footer_mut};
use medfs_format::sit::test_bit;
use medfs_format::summary::Log;
use medfs_format::{Block, BlockAddr, SegNo, shared};
use std::cell::RefCell;
use std::io;

/// What of the fsync log could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogGaps {
    /// Blocks in the middle of it.
    pub blocks: Vec<BlockAddr>,
    /// The files of the nodes behind the first of them, each with the last name that these say, or an empty one.
    pub files: Files,
}

/// Whether the log has nodes behind a block that cannot be read.
pub(crate) fn goes_on_behind(image: &mut Image<'_>, addr: BlockAddr) -> io::Result<bool> {
    Ok(next_behind(image, addr)?.is_some())
}

/// The next node of the log behind a block.
fn next_behind(image: &mut Image<'_>, addr: BlockAddr) -> io::Result<Option<BlockAddr>> {
    reading(&RefCell::new(image), false, |log| log.node_behind(addr))
}

/// The end of a log: what its last node names as the next one.
pub(crate) fn end_at(
    image: &mut Image<'_>,
    last: Option<BlockAddr>,
    next: BlockAddr,
    met: &HashSet<BlockAddr>,
) -> io::Result<End> {
    let is_taken = met.contains(&next) || is_used(image, next)?;
    let is_right = match last {
        Some(last) => sealing(image).is_whole(&log_node::read(image, last)?.0),
        None => false,
    };
    Ok(End { last, next, is_taken, is_right, most: usize::MAX })
}

/// The node at which a log goes on that seems to end, as one bit of the address in its last node flipped.
pub(crate) fn turned_next(
    image: &mut Image<'_>,
    end: End,
    met: &HashSet<BlockAddr>,
) -> io::Result<Option<BlockAddr>> {
    behind(image, met, |log| log.turned_next(end))
}

/// The nodes behind the block at which a log without seals ends, where they tell that the device lost or changed it.
pub(crate) fn refsynced_behind(
    image: &mut Image<'_>,
    end: End,
    met: &HashSet<BlockAddr>,
) -> io::Result<Vec<BlockAddr>> {
    behind(image, met, |log| log.refsynced_behind(end))
}

/// All nodes behind the block at which a log ends.
pub(crate) fn nodes_behind(
    image: &mut Image<'_>,
    end: End,
    met: &HashSet<BlockAddr>,
) -> io::Result<Vec<BlockAddr>> {
    behind(image, met, |log| log.nodes_behind(end))
}

/// The files of the nodes behind the block at which a log ends, as far as these lead.
pub(crate) fn files_behind(image: &mut Image<'_>, end: End, met: &HashSet<BlockAddr>) -> io::Result<Files> {
    let node_ino = image.raw_sb().is_delta_volume().then_some(image.g.node_ino);
    let mut files = Files::new();
    for addr in nodes_behind(image, end, met)? {
        add_files(&mut files, addr, image.cache.get(addr)?, node_ino);
    }
    if !end.is_taken && image.g.in_main(end.next) {
        let mut has_ended = false;
        follow(image, end.next, true, &mut |image, step| match step {
            Step::Node(addr, block) if !has_ended && !met.contains(&addr) => {
                has_ended = is_torn(image, block);
                if !has_ended {
                    add_files(&mut files, addr, block, node_ino);
                }
            }
            Step::Node(..) | Step::Gap(..) => {}
        })?;
    }
    files.retain(|&ino, _| image.g.is_nid(ino));
    Ok(files)
}

/// Asks what lies behind the end of a log that met these nodes.
fn behind<T>(
    image: &mut Image<'_>,
    met: &HashSet<BlockAddr>,
    asks: impl FnOnce(&mut LogReader<'_>) -> T,
) -> io::Result<T> {
    let image = RefCell::new(image);
    reading(&image, true, |log| {
        let (geo, version) = (log.geo, log.version);
        let mut unmet = |addr: BlockAddr| {
            // Of a block that the SIT cannot tell of nothing is taken for a node of the log.
            let is_known = met.contains(&addr) || is_used(&mut image.borrow_mut(), addr).unwrap_or(true);
            if is_known { None } else { (log.read)(addr) }
        };
        asks(&mut LogReader { geo, version, is_free: &mut *log.is_free, read: &mut unmet })
    })
}

/// Whether the last checkpoint has a block in use, or the segment of it is that of another log there.
fn is_used(image: &mut Image<'_>, addr: BlockAddr) -> io::Result<bool> {
    if !image.g.in_main(addr) {
        return Ok(false);
    }
    let (segno, offset) = (image.g.segno(addr), image.g.offset_in_seg(addr) as usize);
    let is_others = image.curseg_of(segno).is_some_and(|log| log != Log::WarmNode as usize);
    Ok(is_others || test_bit(&image.sit(segno)?.valid_map, offset))
}

/// The log as far as each of its nodes leads to the next one, or did before a bit of the address there flipped.
pub(crate) struct Course {
    /// Where it ends.
    pub(crate) end: End,
    /// Blocks of its nodes.
    pub(crate) blocks: HashSet<BlockAddr>,
    /// Nodes with such a bit, each with the next one.
    turned: Vec<(BlockAddr, BlockAddr)>,
}

/// Follows the log to its end. `met` sees each node, and one with a flipped bit in its address of the next node again,
/// with that bit turned back.
pub(crate) fn course(image: &mut Image<'_>, met: &mut dyn FnMut(BlockAddr, &Block)) -> io::Result<Course> {
    let version = image.chain_version();
    let warm = &image.cursegs[Log::WarmNode as usize];
    let mut addr = image.g.seg_start(warm.segno) + warm.blkoff;
    let (mut blocks, mut turned, mut last) = (HashSet::new(), Vec::new(), None);
    loop {
        let mut is_lost = false;
        if image.g.in_main(addr) && !blocks.contains(&addr) {
            let (block, _) = log_node::read(image, addr)?;
            is_lost = image.cache.medium.tell_unreadable(addr);
            if !is_lost && version.belongs(footer(&block).cp_ver.get()) && !is_torn(image, &block) {
                met(addr, &block);
                blocks.insert(addr);
                last = Some(addr);
                addr = footer(&block).next_blkaddr.get();
                continue;
            }
        }
        let end = end_at(image, last, addr, &blocks)?;
        let next = if is_lost { None } else { turned_next(image, end, &blocks)? };
        let (Some(last), Some(next)) = (last, next) else { return Ok(Course { end, blocks, turned }) };
        let (mut block, _) = log_node::read(image, last)?;
        footer_mut(&mut block).next_blkaddr = next.into();
        met(last, &block);
        turned.push((last, next));
        addr = next;
    }
}

/// Lets a node of the log name another block as the next one.
pub(crate) fn lead_on(image: &Image<'_>, addr: BlockAddr, next: BlockAddr) -> io::Result<()> {
    let (mut block, _) = log_node::read(image, addr)?;
    let sealing = sealing(image);
    let is_whole = sealing.is_whole(&block);
    footer_mut(&mut block).next_blkaddr = next.into();
    if is_whole {
        match sealing.seed {
            _ if sealing.node_ino == Some(footer(&block).nid.get()) => shared::seal(&mut block),
            Some(seed) => block.view_mut::<RawInode>().seal(seed),
            None => {}
        }
    }
    let tag = WriteTag::new(Cause::Node, Temperature::Warm);
    image.cache.medium.write(addr, &[&block], tag)
}

/// Leads the log on where a node of it names another block than it did: to the right one, where one bit explains that,
/// or to what lies behind where it is known that something is `lost`. Returns a block that is none of the log's and in
/// use, where the log leads to one.
fn lead_right(image: &mut Image<'_>, lost: bool) -> io::Result<Option<BlockAddr>> {
    let Course { end, blocks, turned } = course(image, &mut |_, _| ())?;
    turned.iter().try_for_each(|&(addr, next)| lead_on(image, addr, next))?;
    let is_possible = !end.is_taken && image.g.in_main(end.next);
    let found = if is_possible { next_behind(image, end.next)? } else { None };
    let is_gap = found.is_some_and(|next| !blocks.contains(&next));
    if lost
        && !is_gap
        && let Some(last) = end.last
    {
        let nodes = match image.raw_sb().has_seals() {
            true => nodes_behind(image, end, &blocks)?,
            false => refsynced_behind(image, end, &blocks)?,
        };
        if let Some(&next) = nodes.first() {
            lead_on(image, last, next)?;
            return Ok(None);
        }
    }
    Ok(Some(end.next).filter(|_| end.is_taken))
}

/// Leads the log on where nodes of it name other blocks than they did, and past the blocks in its middle that cannot be
/// read or, where others tell that some are `lost`, that hold no node of it, or a part of one; `None` where there is no
/// such block.
pub(crate) fn bridge(dev: &dyn BlockDevice, lost: bool) -> io::Result<Option<LogGaps>> {
    let mut image = match Image::load(Medium::lenient(dev), &mut Findings::new(0)) {
        Ok(image) => image,
        Err(Stop::Fatal) => return Ok(None),
        Err(Stop::Io(e)) => return Err(e),
    };
    let node_ino = image.raw_sb().is_delta_volume().then_some(image.g.node_ino);
    let version = image.chain_version();
    let taken = lead_right(&mut image, lost)?;
    let warm = &image.cursegs[Log::WarmNode as usize];
    let start = image.g.seg_start(warm.segno) + warm.blkoff;
    let mut gaps = LogGaps { blocks: Vec::new(), files: Files::new() };
    let mut bridges = Vec::new();
    let mut has_ended = false;
    follow(&mut image, start, lost, &mut |image, step| match step {
        _ if has_ended => {}
        Step::Node(_, block) if is_torn(image, block) => has_ended = true,
        Step::Node(..) if gaps.blocks.is_empty() => {}
        Step::Node(addr, block) => add_files(&mut gaps.files, addr, block, node_ino),
        Step::Gap(blocks, _) if taken.is_some_and(|taken| blocks.contains(&taken)) => has_ended = true,
        Step::Gap(blocks, next) => {
            // Each keeps its place in the log, by which seals count.
            let followers = blocks.clone().skip(1).chain([next]);
            bridges.extend(blocks.clone().zip(followers));
            gaps.blocks.extend(blocks);
        }
    })?;
    for (addr, next) in bridges {
        let tag = WriteTag::new(Cause::Node, Temperature::Warm);
        image.cache.medium.write(addr, &[&stand_in(version, next)], tag)?;
    }
    image.cache.medium.flush()?;
    Ok((!gaps.blocks.is_empty()).then_some(gaps))
}

/// Follows the log from a block on, also past blocks that cannot be read.
fn follow(
    image: &mut Image<'_>,
    start: BlockAddr,
    lost: bool,
    met: &mut dyn FnMut(&Image<'_>, Step<'_>),
) -> io::Result<()> {
    let image = RefCell::new(image);
    reading(&image, lost, |log| log.walk(start, &mut |step| met(&image.borrow(), step)))
}

/// Reads the volume along its log. Where nodes are `lost`, a block that is no whole node counts as one that cannot be
/// read.
fn reading<T>(
    image: &RefCell<&mut Image<'_>>,
    lost: bool,
    asks: impl FnOnce(&mut LogReader<'_>) -> T,
) -> io::Result<T> {
    let failed = RefCell::new(None);
    let (geo, version) = (image.borrow().g.clone(), image.borrow().chain_version());
    let mut is_free = |segno: SegNo| {
        let mut image = image.borrow_mut();
        let entry = image.sit(segno).map_err(|e| *failed.borrow_mut() = Some(e));
        image.curseg_of(segno).is_none() && entry.is_ok_and(|entry| entry.valid_map.iter().all(|&b| b == 0))
    };
    let mut read = |addr: BlockAddr| -> Option<Box<Block>> {
        let image = &image.borrow();
        let (block, _) = log_node::read(image, addr).map_err(|e| *failed.borrow_mut() = Some(e)).ok()?;
        let is_there =
            !lost || version.belongs(footer(&block).cp_ver.get()) && !log_node::is_torn(image, &block);
        // Whoever asks tells what of it is amiss.
        let is_read = !image.cache.medium.tell_unreadable(addr);
        (is_read && is_there).then_some(block)
    };
    let told = asks(&mut LogReader { geo: &geo, version, is_free: &mut is_free, read: &mut read });
    failed.take().map_or(Ok(told), Err)
}
