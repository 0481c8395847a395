//! Addresses with a flipped bit in nodes, which have no checksum: the summaries know the block that a slot had.
//!
//! An address is taken for flipped only where its block's summary does not name the slot, and that of one block
//! in use a bit away does. On a sound volume no block in use says that of a slot which names another one.

use crate::finding::Code;
use crate::image::Image;
use crate::judgement::Judgement;
use crate::space::{Owner, recorded};
use medfs_format::{BlockAddr, is_block};
use std::io;

/// The block of a slot that names `addr`: another one, with a finding, where that has a flipped bit.
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
    let Some(right) = found else { return Ok(addr) };
    let text = format!(
        "{place}: address {addr} of page {page} is not the file's; with one bit flipped it is block {right}, whose \
         summary names this page"
    );
    j.findings.add(Code::AddressBit, text);
    Ok(right)
}

/// Whether the summary of a block is known, and names this slot.
fn is_recorded(image: &mut Image<'_>, owner: Owner, addr: BlockAddr) -> io::Result<bool> {
    if !image.g.in_main(addr) {
        return Ok(false);
    }
    Ok(recorded(image, addr)?.is_some_and(|sum| owner.is_now_of(&sum)))
}
