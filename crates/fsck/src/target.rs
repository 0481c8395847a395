//! Symbolic links whose target is lost: zeros are in its place or in that of a part, or its block is no longer the
//! link's. Nobody can read such a link (Linux answers `ENOENT`), or it leads elsewhere, so that it is given up: its
//! name goes, and is among the lost ones.

use crate::SECTOR;
use crate::finding::Code;
use crate::judgement::Judgement;
use medfs_format::node::{Advise, Inline, RawInode};
use medfs_format::{BLOCK_SIZE, BlockAddr, Ino, NEW_ADDR, NULL_ADDR};
use std::io;
use zerocopy::IntoBytes;

/// Judges the target of a link that was walked, and its length; `false` where it is lost, or a part of it. One whose
/// block cannot be read may be whole.
pub(crate) fn judge_target(
    j: &mut Judgement<'_>,
    ino: Ino,
    inode: &mut RawInode,
    is_doubtful: bool,
) -> io::Result<bool> {
    if inode.advise().contains(Advise::ENCRYPT) || inode.has_nodes() {
        return Ok(true); // no target begins with its first byte, or it is more than a link
    }
    let Some((start, bytes)) = target(j, inode)? else { return Ok(false) };
    let Some(bytes) = bytes else { return Ok(true) };
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let goes_on = bytes[end..].iter().any(|&byte| byte != 0);
    let (size, len) = (inode.i_size.get(), end as u64);
    let is_proven = j.rules.seed.is_some() && !is_doubtful && (1..=BLOCK_SIZE as u64).contains(&size);
    if end == 0 || size == len {
        return Ok(end > 0);
    }
    // A sector of its end, or of its middle, is lost.
    let ends_with_sector = (start + end).is_multiple_of(SECTOR);
    let is_possible = size <= BLOCK_SIZE as u64;
    let is_cut =
        size > len && (goes_on || is_proven || is_possible && (ends_with_sector || !is_near(size, len)));
    if is_cut || is_proven {
        return Ok(!is_cut);
    }
    let text = format!("inode {ino}: a symbolic link of length {size}, whose target has {len} bytes");
    j.findings.add(Code::SymlinkSize, text);
    inode.i_size = len.into();
    Ok(true)
}

/// Whether one flipped bit, or a lost one, makes one length the other.
fn is_near(size: u64, len: u64) -> bool {
    (size ^ len).count_ones() <= 1
}

/// The bytes in which a link has its target, and where they begin in their block: none where there is no block, and no
/// bytes where that cannot be read.
fn target(j: &mut Judgement<'_>, inode: &RawInode) -> io::Result<Option<(usize, Option<Vec<u8>>)>> {
    let slots = inode.slots(j.rules.flexible());
    if inode.inline().contains(Inline::DATA) {
        let range = slots.inline_content_range();
        return Ok(Some((range.start, Some(inode.as_bytes()[range].to_vec()))));
    }
    let addr = inode.i_addr[slots.extra].get();
    if !j.image.g.in_main(addr) {
        return Ok(None);
    }
    let bytes = j.image.cache.get(addr)?.0.to_vec();
    let is_read = !j.image.cache.medium.tell_unreadable(addr);
    Ok(Some((0, is_read.then_some(bytes))))
}

/// Takes back what the walk of a link took for it.
pub(crate) fn give_up_link(
    j: &mut Judgement<'_>,
    (ino, addr): (Ino, BlockAddr),
    inode: &RawInode,
    place: &str,
) -> io::Result<()> {
    let text = format!("{place}: inode {ino}: a symbolic link whose target is lost");
    j.findings.add(Code::Inode, text);
    j.targets_lost.insert(ino);
    j.space.give_back_node(&j.image.g, ino, addr);
    let nid = inode.i_xattr_nid.get();
    if nid != 0 {
        let addr = j.image.nat(nid)?.block_addr.get();
        j.space.give_back_node(&j.image.g, nid, addr);
    }
    if !inode.inline().contains(Inline::DATA) {
        let slots = inode.slots(j.rules.flexible());
        for addr in inode.i_addr[slots.extra..][..slots.addrs()].iter().map(|addr| addr.get()) {
            match addr {
                NULL_ADDR => {}
                NEW_ADDR => j.space.blocks -= 1,
                addr => j.space.give_back(&j.image.g, addr),
            }
        }
    }
    j.space.inodes -= 1;
    j.links.remove(&ino);
    // It cannot be read, and nothing of it is looked for.
    j.image.blank.insert(ino);
    j.orphans.insert(ino);
    Ok(())
}
