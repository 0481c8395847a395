//! What holes tell of the area of attributes in an inode without a checksum.
//!
//! An inode whose area reads smaller than it is has more slots for addresses than its file ever used. The last of them
//! are holes, and the pages below its nodes seem to be behind their places by as many.
//!
//! Invariant: of files that may have blocks behind their end, holes tell nothing.

use crate::judgement::Judgement;
use crate::slots::has_no_addresses;
use medfs_format::node::{DEFAULT_INLINE_XATTR_ADDRS, FileFlags, RawDirectNode, RawInode, Slots};
use medfs_format::{BLOCK_SIZE, NULL_ADDR, is_block};
use std::io;

/// The size of the attributes where the last slots for addresses are holes, just as many as an area of that size
/// has, and the pages behind them are not. `usual`: the size that other inodes have.
pub(crate) fn shown_size(
    j: &mut Judgement<'_>,
    inode: &RawInode,
    slots: Slots,
    usual: Option<usize>,
) -> io::Result<Option<usize>> {
    // Clusters reach over the end, too.
    let is_excused = inode.may_reach_behind_end() || inode.flags().contains(FileFlags::COMPR);
    let is_plain = !j.image.raw_sb().is_delta_volume() && !has_no_addresses(inode);
    if is_excused || !is_plain || !inode.has_nodes() {
        return Ok(None);
    }
    let addrs = &inode.i_addr[slots.extra..slots.extra + slots.area()];
    let holes = addrs.iter().rev().take_while(|addr| addr.get() == NULL_ADDR).count();
    if holes == 0 || holes == addrs.len() {
        return Ok(None);
    }
    let was = slots.inline_xattr;
    let is_hole = |size: &usize| {
        *size > was && (size - was..size - was + slots.cluster).contains(&holes) && usual != Some(was)
    };
    let found = match j.rules.flexible() {
        true => (0..10).map(|bit| was ^ 1 << bit).find(is_hole),
        false => Some(DEFAULT_INLINE_XATTR_ADDRS).filter(is_hole),
    };
    let Some(size) = found else { return Ok(None) };
    if !first_below(j, inode)? {
        return Ok(None);
    }
    Ok(ends_behind(j, inode, (size - was) as u64)?.then_some(size))
}

/// Whether the first node below an inode begins with a block.
fn first_below(j: &mut Judgement<'_>, inode: &RawInode) -> io::Result<bool> {
    let nid = inode.i_nid[0].get();
    if !j.image.g.is_nid(nid) {
        return Ok(false);
    }
    let addr = j.image.nat(nid)?.block_addr.get();
    if !j.image.g.in_main(addr) {
        return Ok(false);
    }
    Ok(j.image.cache.get(addr)?.view::<RawDirectNode>().addr[0].get() != NULL_ADDR)
}

/// Whether the pages of a file are behind their places by as many: its last block is as far behind its last page, and
/// none is behind that.
fn ends_behind(j: &mut Judgement<'_>, inode: &RawInode, pages: u64) -> io::Result<bool> {
    let end = inode.i_size.get().div_ceil(BLOCK_SIZE as u64).saturating_add(pages);
    if end == pages || !is_block(j.image.address(inode, end - 1)?) {
        return Ok(false);
    }
    for page in end..end.saturating_add(pages) {
        if is_block(j.image.address(inode, page)?) {
            return Ok(false);
        }
    }
    Ok(true)
}
