//! Symbolic links whose target is lost: zeros are in its place, or its block is no longer the link's. Nobody can follow
//! or read such a link (Linux answers `ENOENT`), so that it is given up: its name goes, and is among the lost ones.

use crate::finding::Code;
use crate::judgement::Judgement;
use medfs_format::node::{Advise, Inline, RawInode};
use medfs_format::{BlockAddr, Ino, NEW_ADDR, NULL_ADDR};
use std::io;
use zerocopy::IntoBytes;

/// Whether a link that was walked leads somewhere. One whose block cannot be read may.
pub(crate) fn has_target(j: &mut Judgement<'_>, inode: &RawInode) -> io::Result<bool> {
    if inode.advise().contains(Advise::ENCRYPT) || inode.has_nodes() {
        return Ok(true); // no target begins with its first byte, or it is more than a link
    }
    let slots = inode.slots(j.rules.flexible());
    if inode.inline().contains(Inline::DATA) {
        return Ok(inode.as_bytes()[slots.inline_content_range()].first().is_some_and(|&byte| byte != 0));
    }
    let addr = inode.i_addr[slots.extra].get();
    if !j.image.g.in_main(addr) {
        return Ok(false);
    }
    let begins = j.image.cache.get(addr)?.0[0] != 0;
    Ok(begins || j.image.cache.medium.tell_unreadable(addr))
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
