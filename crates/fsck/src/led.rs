//! Where the name leads that an inode says it has: what else tells whose a block is, beside its footer.

use crate::finding::Code;
use crate::judgement::Judgement;
use crate::names::own_name;
use crate::strays::lead_back;
use medfs_format::node::{Advise, RawInode};
use medfs_format::{Block, BlockAddr, Ino, NULL_ADDR};
use std::io;

/// The inode that the name leads to which an inode says it has.
pub(crate) fn led_to(j: &mut Judgement<'_>, inode: &RawInode) -> io::Result<Option<Ino>> {
    if inode.advise().intersects(Advise::LOST_PINO | Advise::ENC_NAME) {
        return Ok(None);
    }
    leads_to(j, inode)
}

/// The same where the inode itself says that its name may be an older one.
fn leads_to(j: &mut Judgement<'_>, inode: &RawInode) -> io::Result<Option<Ino>> {
    let Some(name) = own_name(inode).filter(|name| !name.is_empty()) else { return Ok(None) };
    let parent = inode.i_pino.get();
    let addr = if j.image.g.is_nid(parent) { j.image.nat(parent)?.block_addr.get() } else { NULL_ADDR };
    if !j.image.g.in_main(addr) {
        return Ok(None);
    }
    Ok(j.find(parent, name)?.filter(|&other| j.image.g.is_nid(other)))
}

/// Whether the name that an inode says it has leads to it.
pub(crate) fn is_named(j: &mut Judgement<'_>, ino: Ino, inode: &RawInode) -> io::Result<bool> {
    Ok(led_to(j, inode)? == Some(ino))
}

/// Whether the block that was taken for an inode by its footer is another one: its name leads there, and so does the
/// NAT. The inode is lost then.
pub(crate) fn is_of_another(j: &mut Judgement<'_>, ino: Ino, block: &Block, place: &str) -> io::Result<bool> {
    let Some(addr) = j.image.nat_changes.get(&ino).map(|entry| entry.block_addr.get()) else {
        return Ok(false);
    };
    let Some(other) = led_to(j, block.view())?.filter(|&other| other != ino) else { return Ok(false) };
    if j.image.nat(other)?.block_addr.get() != addr {
        return Ok(false);
    }
    lead_back(&mut j.image, ino)?;
    let text = format!("{place}: block {addr} says that it is inode {ino}, but is inode {other}");
    j.findings.add(Code::NodeFooter, text);
    Ok(true)
}

/// Takes the other block that may be an inode's by its footer, where only that one's name leads to it. One that is
/// worse counts where the better one has name and blocks of another inode.
pub(crate) fn settle_rival(j: &mut Judgement<'_>, ino: Ino) -> io::Result<()> {
    let Some((rival, is_equal)) = j.image.strays.rival(ino) else { return Ok(()) };
    if !j.image.nat_changes.contains_key(&ino) {
        return Ok(());
    }
    let addr = j.image.nat(ino)?.block_addr.get();
    let named = |j: &mut Judgement<'_>, at| {
        let inode = Box::new(j.image.cache.get(at)?.view::<RawInode>().clone());
        leads_to(j, &inode)
    };
    let is_to_be_doubted = match named(j, addr)? {
        None => is_equal,
        Some(led) => led != ino && (is_equal || names_block_of(j, addr, led)?),
    };
    if is_to_be_doubted && named(j, rival.addr())? == Some(ino) {
        return j.image.lead_to(ino, rival);
    }
    Ok(())
}

/// Whether an inode names a block that another one names too.
fn names_block_of(j: &mut Judgement<'_>, addr: BlockAddr, other: Ino) -> io::Result<bool> {
    let at = j.image.nat(other)?.block_addr.get();
    let main = |j: &Judgement<'_>, addr: BlockAddr| j.image.g.in_main(addr);
    if !main(j, at) {
        return Ok(false);
    }
    let named = j.image.cache.get(addr)?.view::<RawInode>().i_addr.map(|named| named.get());
    let theirs = j.image.cache.get(at)?.view::<RawInode>().i_addr.map(|named| named.get());
    let first = named.into_iter().find(|&addr| main(j, addr));
    Ok(first.is_some_and(|first| theirs.contains(&first)))
}
