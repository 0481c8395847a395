//! One node of the fsync log: whether it was stored in part, and what a flipped bit of it was.
//!
//! An inode with a checksum tells its own flipped bit, and so does a shared record node or one of removed names. Of an
//! inode without, the numbers in its footer are judged: it has its own number twice.

use crate::finding::{Code, Findings};
use crate::image::Image;
use crate::names::own_name;
use medfs_format::flip::Bit;
use medfs_format::log_gap::Sealing;
use medfs_format::node::{RawInode, footer, footer_mut};
use medfs_format::{Block, BlockAddr, Ino, Nid};
use std::io;

/// A block of the log, with the bit turned back that its checksum tells.
pub(crate) fn read(image: &Image<'_>, addr: BlockAddr) -> io::Result<(Box<Block>, Option<Bit>)> {
    let mut block = image.cache.medium.read(addr)?;
    let bit = sealing(image).flipped_bit(&block, image.chain_version());
    if let Some(bit) = bit {
        bit.flip(&mut block);
    }
    Ok((block, bit))
}

/// Whether a node of the log was stored in part, as far as the volume's features can tell.
pub(crate) fn is_torn(image: &Image<'_>, block: &Block) -> bool {
    sealing(image).is_torn(block)
}

/// What has checksums among the nodes of the log.
pub(crate) fn sealing(image: &Image<'_>) -> Sealing {
    let node_ino = image.raw_sb().is_delta_volume().then_some(image.g.node_ino);
    Sealing { layouts: image.layouts(), seed: image.inode_seed(), node_ino }
}

/// Makes of a block of the log, which was [read](read) with a bit turned back, the node that it was; whether it
/// differs from what is stored.
pub(crate) fn judge(
    image: &mut Image<'_>,
    addr: BlockAddr,
    block: &mut Box<Block>,
    bit: Option<Bit>,
    findings: &mut Findings,
) -> io::Result<bool> {
    if let Some(bit) = bit {
        let what = match sealing(image).is_whole(block) {
            true => "its checksum matches",
            false => "it has the checkpoint's version",
        };
        let text = format!("node of the fsync log in block {addr}: {what} with {bit} flipped");
        findings.add(Code::InodeChecksum, text);
    }
    let mended = judge_number(image, addr, block, findings)?;
    let is_changed = bit.is_some() || mended.is_some();
    if let Some(mended) = mended {
        *block = mended;
    }
    Ok(is_changed)
}

/// How much speaks for a number of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// Nothing.
    No,
    /// It is new, and so is the inode.
    New,
    /// It is that of the same file in the last checkpoint.
    Same,
}

/// A node with the fsync mark whose numbers no node can have, mended: as an inode, where it is one by its content, or
/// without the mark, where no file has such numbers.
fn judge_number(
    image: &mut Image<'_>,
    addr: BlockAddr,
    block: &Block,
    findings: &mut Findings,
) -> io::Result<Option<Box<Block>>> {
    let f = *footer(block);
    let (nid, ino) = (f.nid.get(), f.ino.get());
    let of_chain = image.raw_sb().is_delta_volume() && nid == image.g.node_ino;
    let are_possible = is_file(image, ino) && image.g.is_nid(nid);
    let are_an_inodes = nid == ino || f.node_offset() != 0;
    if of_chain || !f.is_fsync() || (are_possible && are_an_inodes) {
        return Ok(None);
    }
    let mut found = None;
    for number in [ino, nid] {
        let Some(mended) = as_inode(image, block, number) else { continue };
        let fit = fit(image, &mended, number)?;
        if found.as_ref().is_none_or(|(best, _)| fit > *best) {
            found = Some((fit, mended));
        }
    }
    let mended = found.map(|(_, mended)| mended);
    if mended.is_none() && are_possible {
        return Ok(None); // a node of the file, for all that its place says: whoever replays it judges that
    }
    let what = match &mended {
        Some(inode) => format!("it is inode {}", footer(inode).ino),
        None => "a repair clears its fsync mark: that fsync is lost".into(),
    };
    findings.add(
        Code::LogNode,
        format!("node of the fsync log in block {addr} says node {nid} of inode {ino}: {what}"),
    );
    Ok(Some(mended.unwrap_or_else(|| {
        let mut unmarked = Box::new(block.clone());
        footer_mut(&mut unmarked).set_fsync(false);
        unmarked
    })))
}

fn is_file(image: &Image<'_>, number: Nid) -> bool {
    image.g.is_nid(number) && number != image.g.root_ino
}

/// The inode of a number that a block is, where it can be that.
fn as_inode(image: &Image<'_>, block: &Block, number: Ino) -> Option<Box<Block>> {
    let mut mended = Box::new(block.clone());
    let numbers = footer_mut(&mut mended);
    (numbers.nid, numbers.ino) = (number.into(), number.into());
    let inode: &RawInode = mended.view();
    let is_sealed = image.inode_seed().is_none_or(|seed| inode.is_sealed(image.layouts(), seed));
    let is_sound = is_file(image, number)
        && footer(&mended).node_offset() == 0
        && is_sealed
        && inode.validate(number, &image.g, image.layouts(), None).is_ok();
    is_sound.then_some(mended)
}

fn fit(image: &mut Image<'_>, block: &Block, number: Ino) -> io::Result<Fit> {
    let addr = image.nat(number)?.block_addr.get();
    if !image.g.in_main(addr) {
        return Ok(if footer(block).is_dentry() { Fit::New } else { Fit::No });
    }
    let of = |inode: &RawInode| (inode.i_generation.get(), inode.i_pino.get());
    let (before, now): (&RawInode, &RawInode) = (image.cache.get(addr)?.view(), block.view());
    let is_same = of(before) == of(now) && own_name(before) == own_name(now);
    Ok(if is_same { Fit::Same } else { Fit::No })
}
