//! The fsync log where a block in its middle cannot be read.
//!
//! A repair ends the log there, as nothing tells what that block held. Whoever copies files off the volume
//! wants what was fsynced behind it too: [`bridge`] leads the log past it, in a copy of the volume, and tells
//! which files may lack what the lost node had.

use crate::finding::Findings;
use crate::image::{Image, Stop};
use crate::log_node::{self, is_torn};
use crate::medium::Medium;
use medfs_device::{BlockDevice, Cause, Temperature, WriteTag};
use medfs_format::log_gap::{self, Files, Step, add_files, node_behind, stand_in, walk};
use medfs_format::node::footer;
use medfs_format::summary::Log;
use medfs_format::{Block, BlockAddr, SegNo};
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
    let (geo, version) = (image.g.clone(), image.chain_version());
    let image = RefCell::new(image);
    let next = reading(&image, false, |is_free, read| node_behind(&geo, addr, version, is_free, read))?;
    Ok(next.is_some())
}

/// The nodes behind the block at which a log without seals ends, where they tell that the device lost or changed it.
pub(crate) fn refsynced_behind(image: &mut Image<'_>, end: BlockAddr) -> io::Result<Vec<BlockAddr>> {
    let (geo, version) = (image.g.clone(), image.chain_version());
    let image = RefCell::new(image);
    reading(&image, true, |is_free, read| log_gap::refsynced_behind(&geo, end, version, is_free, read))
}

/// Leads the log past the blocks in its middle that cannot be read or, where others tell that some are `lost`, that
/// hold no node of it, or a part of one; `None` where there is none.
pub(crate) fn bridge(dev: &dyn BlockDevice, lost: bool) -> io::Result<Option<LogGaps>> {
    let mut image = match Image::load(Medium::lenient(dev), &mut Findings::new(0)) {
        Ok(image) => image,
        Err(Stop::Fatal) => return Ok(None),
        Err(Stop::Io(e)) => return Err(e),
    };
    let node_ino = image.raw_sb().is_delta_volume().then_some(image.g.node_ino);
    let version = image.chain_version();
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
    let (geo, version) = (image.g.clone(), image.chain_version());
    let image = RefCell::new(image);
    reading(&image, lost, |is_free, read| {
        walk(&geo, start, version, is_free, read, &mut |step| met(&image.borrow(), step));
    })
}

/// Asks what a walk along the log asks of a volume: whether a segment is free, and what a block holds, `None` where it
/// cannot be read, or is no whole node of the log where such are `lost`.
fn reading<T>(
    image: &RefCell<&mut Image<'_>>,
    lost: bool,
    asks: impl FnOnce(&mut dyn FnMut(SegNo) -> bool, &mut dyn FnMut(BlockAddr) -> Option<Box<Block>>) -> T,
) -> io::Result<T> {
    let failed = RefCell::new(None);
    let version = image.borrow().chain_version();
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
    let told = asks(&mut is_free, &mut read);
    failed.take().map_or(Ok(told), Err)
}
