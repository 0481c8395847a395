//! Addresses and node ids with a flipped bit in nodes, which have no checksum: the summaries know the block that a
//! slot had, and a node itself where it was.
//!
//! An address is taken for flipped only where its block's summary does not name the slot, and that of one block
//! in use a bit away does. On a sound volume no block in use says that of a slot which names another one.

use crate::finding::Code;
use crate::image::Image;
use crate::judgement::Judgement;
use crate::space::{Owner, recorded};
use medfs_format::node::footer;
use medfs_format::{BlockAddr, Ino, NULL_ADDR, Nid, is_block};
use std::io;

/// The block of a slot that names `addr`: another one or none, with a finding, where that has a flipped bit.
pub(crate) fn home(
    j: &mut Judgement<'_>,
    owner: Owner,
    page: u64,
    addr: BlockAddr,
    place: &str,
) -> io::Result<BlockAddr> {
    if !is_block(addr) || is_recorded(&mut j.image, owner, addr)? {
        return Ok(addr);
    }
    let mut found = None;
    for right in (0..BlockAddr::BITS).map(|bit| addr ^ 1 << bit) {
        if !is_recorded(&mut j.image, owner, right)? || !j.image.is_valid(right)? {
            continue;
        }
        if j.space.is_claimed(&j.image.g, right) || found.replace(right).is_some() {
            return Ok(addr);
        }
    }
    let Some(right) = found else {
        // One bit away from a hole, and in no use.
        let is_hole = addr.is_power_of_two() && j.image.g.in_main(addr) && !j.image.is_valid(addr)?;
        if !is_hole {
            return Ok(addr);
        }
        let text = format!(
            "{place}: address {addr} of page {page} is a free block; with one bit flipped it is a hole"
        );
        j.findings.add(Code::AddressBit, text);
        return Ok(NULL_ADDR);
    };
    let text = format!(
        "{place}: address {addr} of page {page} is not the file's; with one bit flipped it is block {right}, whose \
         summary names this page"
    );
    j.findings.add(Code::AddressBit, text);
    Ok(right)
}

/// The node of a file at an offset in its tree, where `nid` is named: another one, with a finding, where that has a
/// flipped bit.
pub(crate) fn node_home(
    j: &mut Judgement<'_>,
    ino: Ino,
    nid: Nid,
    offset: u32,
    place: &str,
) -> io::Result<Nid> {
    if is_at(j, ino, nid, offset)? {
        return Ok(nid);
    }
    let mut found = None;
    for right in (0..Nid::BITS).map(|bit| nid ^ 1 << bit) {
        if is_at(j, ino, right, offset)? && found.replace(right).is_some() {
            return Ok(nid);
        }
    }
    let Some(right) = found else { return Ok(nid) };
    let text = format!(
        "{place}: node {nid} is not the file's; with one bit flipped it is node {right}, which says that its place is here"
    );
    j.findings.add(Code::AddressBit, text);
    Ok(right)
}

/// Whether a node that nothing led to yet says that it is at this place of the file.
fn is_at(j: &mut Judgement<'_>, ino: Ino, nid: Nid, offset: u32) -> io::Result<bool> {
    if !j.image.g.is_nid(nid) || nid == ino || j.space.nid_reached(nid) {
        return Ok(false);
    }
    let addr = j.image.nat(nid)?.block_addr.get();
    if !j.image.g.in_main(addr) {
        return Ok(false);
    }
    let at = *footer(j.image.cache.get(addr)?);
    Ok((at.nid.get(), at.ino.get(), at.node_offset()) == (nid, ino, offset))
}

/// Whether the summary of a block is known, and names this slot.
fn is_recorded(image: &mut Image<'_>, owner: Owner, addr: BlockAddr) -> io::Result<bool> {
    if !image.g.in_main(addr) {
        return Ok(false);
    }
    Ok(recorded(image, addr)?.is_some_and(|sum| owner.is_now_of(&sum)))
}
