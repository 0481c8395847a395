//! Addresses and node ids with a flipped bit in nodes, which have no checksum: the summaries know the block that a
//! slot had, and a node itself where it was.
//!
//! An address is taken for flipped only where its block's summary does not name the slot, and that of one block
//! in use a bit away does. On a sound volume no block in use says that of a slot which names another one.

use crate::finding::{Code, counted};
use crate::image::Image;
use crate::judgement::Judgement;
use crate::named::{named_at, unnamed, unnamed_block};
use crate::space::{Kind, Owner, is_owner_unknown, recorded};
use medfs_format::node::footer;
use medfs_format::{BlockAddr, Ino, NEW_ADDR, NULL_ADDR, Nid, is_block};
use std::io;
use zerocopy::little_endian::U32;

/// The block of a slot that names `addr`, and what is known of its owner: another one or none, with a finding, where
/// that has a flipped bit.
pub(crate) fn home(
    j: &mut Judgement<'_>,
    owner: Owner,
    page: u64,
    addr: BlockAddr,
    place: &str,
) -> io::Result<(BlockAddr, Owner)> {
    if !is_block(addr) {
        return Ok((addr, owner));
    }
    if is_recorded(&mut j.image, owner, addr)? {
        return Ok((addr, owner.known()));
    }
    // Without a checkpoint nodes are newer than SIT and summaries: of a page that was written since, these still know
    // the block before.
    if j.image.reckoned {
        return Ok((addr, owner));
    }
    let found =
        one_bit_away(addr, |near| Ok(is_recorded(&mut j.image, owner, near)? && j.image.is_valid(near)?))?;
    if let Some(right) = found
        && (j.space.is_claimed(&j.image.g, right) || unnamed(&mut j.image)?.is_anothers(right))
    {
        return Ok((addr, owner));
    }
    if found.is_none()
        && let Some(right) = unclaimed(j, owner, addr)?
    {
        let text = format!(
            "{place}: address {addr} of page {page} is not the file's; block {right} is in use, and its summary names this page"
        );
        j.findings.add(Code::AddressMissing, text);
        return Ok((right, owner.known()));
    }
    let Some(right) = found else {
        // One bit away from a hole, and in no use.
        let is_hole = addr.is_power_of_two() && j.image.g.in_main(addr) && !j.image.is_valid(addr)?;
        if !is_hole {
            return Ok((addr, owner));
        }
        let text = format!(
            "{place}: address {addr} of page {page} is a free block; with one bit flipped it is a hole"
        );
        j.findings.add(Code::AddressBit, text);
        return Ok((NULL_ADDR, owner));
    };
    let text = format!(
        "{place}: address {addr} of page {page} is not the file's; with one bit flipped it is block {right}, whose \
         summary names this page"
    );
    j.findings.add(Code::AddressBit, text);
    Ok((right, owner.known()))
}

/// The node of a file at an offset in its tree, where `nid` is named: another one or none, with a finding, where that
/// has a flipped bit, or belongs elsewhere.
pub(crate) fn node_home(
    j: &mut Judgement<'_>,
    ino: Ino,
    nid: Nid,
    offset: u32,
    place: &str,
) -> io::Result<Nid> {
    if nid == 0 || is_at(j, ino, nid, offset)? {
        return Ok(nid);
    }
    let found = one_bit_away(nid, |near| is_at(j, ino, near, offset))?;
    if found.is_none()
        && !is_of_file(j, ino, nid)?
        && let Some(right) =
            unnamed(&mut j.image)?.node_at(ino, offset).filter(|&right| !j.space.nid_reached(right))
    {
        let text = format!(
            "{place}: node {nid} is not the file's; node {right} is in use, and says that its place is here"
        );
        j.findings.add(Code::AddressMissing, text);
        return Ok(right);
    }
    let Some(right) = found else { return only_here(j, ino, nid, offset, place) };
    let text = format!(
        "{place}: node {nid} is not the file's; with one bit flipped it is node {right}, which says that its place is here"
    );
    j.findings.add(Code::AddressBit, text);
    Ok(right)
}

/// Slots in a row that are taken for a sector of ones, as erased flash reads: the last of a direct node has fewer than
/// others.
const ONES: usize = 90;

/// Puts blocks into slots that are marked as reserved, all of a sector's, where the blocks are in use and their
/// summaries name these slots; whether there are some. A file with such a sector counts all its blocks.
pub(crate) fn take_from_ones(
    j: &mut Judgement<'_>,
    ino: Ino,
    addrs: &mut [U32],
    first: Owner,
    page: u64,
) -> io::Result<bool> {
    let (mut found, mut start) = (0u64, 0);
    for run in addrs.chunk_by_mut(|a, b| a.get() == b.get()) {
        let from = start;
        start += run.len();
        if run[0].get() != NEW_ADDR || run.len() < ONES {
            continue;
        }
        for (i, slot) in (from..).zip(run) {
            let unnamed = unnamed_block(&mut j.image, first.behind(i))?;
            if let Some(addr) = unnamed.filter(|&addr| !j.space.is_claimed(&j.image.g, addr)) {
                *slot = addr.into();
                found += 1;
            }
        }
    }
    if found > 0 {
        let text = format!(
            "inode {}: {} from page {page} on only reserved, but their blocks are in use, and the summaries know them",
            ino,
            counted(found, "slot")
        );
        j.findings.add(Code::AddressMissing, text);
    }
    Ok(found > 0)
}

/// Whether an inode that has to be doubted names a block that another slot names too, and nothing says whose it is.
pub(crate) fn is_rather_anothers(
    j: &mut Judgement<'_>,
    owner: Owner,
    addr: BlockAddr,
    place: &str,
) -> io::Result<bool> {
    if !owner.is_doubted || owner.is_known {
        return Ok(false);
    }
    let recorded = recorded(&mut j.image, addr, Kind::Data)?;
    if let Some(nid) =
        recorded.map(|sum| sum.nid.get()).filter(|&nid| nid != owner.nid && j.image.g.is_nid(nid))
        && is_lost(j, nid)?
    {
        let text = format!("{place}: block {addr} is of node {nid}, which is lost, and this one is damaged");
        j.findings.add(Code::BlockTwice, text);
        return Ok(true);
    }
    let is_open = recorded.is_none_or(|sum| !j.image.g.is_nid(sum.nid.get()));
    if !is_open || !unnamed(&mut j.image)?.twice.contains(&addr) {
        return Ok(false);
    }
    let text = format!("{place}: block {addr} is named by another node, and this one is damaged");
    j.findings.add(Code::BlockTwice, text);
    Ok(true)
}

/// Whether the block that the NAT has for a node is lost.
fn is_lost(j: &mut Judgement<'_>, nid: Nid) -> io::Result<bool> {
    let addr = j.image.nat(nid)?.block_addr.get();
    j.image.is_lost_node(nid, addr)
}

/// The only value that has one bit turned round and fits; `None` where there is none, or more than one.
fn one_bit_away(value: u32, mut fits: impl FnMut(u32) -> io::Result<bool>) -> io::Result<Option<u32>> {
    let mut found = None;
    for near in (0..u32::BITS).map(|bit| value ^ 1 << bit) {
        if fits(near)? && found.replace(near).is_some() {
            return Ok(None);
        }
    }
    Ok(found)
}

/// The node that is named at an offset; 0, with a finding, where it says that another place of the file is its own, and
/// is named there.
fn only_here(j: &mut Judgement<'_>, ino: Ino, nid: Nid, offset: u32, place: &str) -> io::Result<Nid> {
    let addr = if j.image.g.is_nid(nid) { j.image.nat(nid)?.block_addr.get() } else { NULL_ADDR };
    if !j.image.g.in_main(addr) {
        return Ok(nid);
    }
    let at = *footer(j.image.cache.get(addr)?);
    let own = at.node_offset();
    if (at.nid.get(), at.ino.get()) != (nid, ino) || own == offset || named_at(&mut j.image, ino, own)? != nid
    {
        return Ok(nid);
    }
    let text =
        format!("{place}: node {nid} says that another place of the file is its own, where it is named too");
    j.findings.add(Code::NodeTwice, text);
    Ok(0)
}

/// The block in use of a slot, where that names one which others are known to have.
fn unclaimed(j: &mut Judgement<'_>, owner: Owner, addr: BlockAddr) -> io::Result<Option<BlockAddr>> {
    if j.image.g.in_main(addr) && is_owner_unknown(&mut j.image, addr)? {
        return Ok(None);
    }
    Ok(unnamed_block(&mut j.image, owner)?.filter(|&right| !j.space.is_claimed(&j.image.g, right)))
}

/// Whether a node that nothing led to yet is the file's by the NAT: it may be lost, and can be made anew.
fn is_of_file(j: &mut Judgement<'_>, ino: Ino, nid: Nid) -> io::Result<bool> {
    if !j.image.g.is_nid(nid) || nid == ino || j.space.nid_reached(nid) {
        return Ok(false);
    }
    Ok(j.image.nat(nid)?.ino.get() == ino)
}

/// Whether a node that nothing led to yet says that it is at this place of the file.
fn is_at(j: &mut Judgement<'_>, ino: Ino, nid: Nid, offset: u32) -> io::Result<bool> {
    Ok(own_offset(j, ino, nid)? == Some(offset))
}

/// The place in the file that a node of it says is its own; `None` of what is none, or was come to elsewhere.
pub(crate) fn own_offset(j: &mut Judgement<'_>, ino: Ino, nid: Nid) -> io::Result<Option<u32>> {
    if !j.image.g.is_nid(nid) || nid == ino || j.space.nid_reached(nid) {
        return Ok(None);
    }
    let addr = j.image.nat(nid)?.block_addr.get();
    if !j.image.g.in_main(addr) {
        return Ok(None);
    }
    let at = *footer(j.image.cache.get(addr)?);
    Ok(((at.nid.get(), at.ino.get()) == (nid, ino)).then(|| at.node_offset()))
}

/// Whether the summary of a block is known, and names this slot.
fn is_recorded(image: &mut Image<'_>, owner: Owner, addr: BlockAddr) -> io::Result<bool> {
    if !image.g.in_main(addr) {
        return Ok(false);
    }
    Ok(recorded(image, addr, Kind::Data)?.is_some_and(|sum| owner.is_now_of(&sum)))
}
