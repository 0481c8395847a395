//! How many of its slots an inode has for addresses, as far as its head can be read.

use crate::inode::MAX_SIZE;
use medfs_format::node::{DEF_ADDRS_PER_INODE, FileKind, Inline, NAME_LEN, RawInode};
use std::mem::offset_of;
use zerocopy::IntoBytes;

/// Blocks of the largest file with its nodes, and more.
const MOST_BLOCKS: u64 = 1 << 40;
/// More links than files have.
const MOST_LINKS: u32 = 1 << 24;
const NANOS_PER_SEC: u32 = 1_000_000_000;
/// Impossible fields that make a head junk.
const JUNK: usize = 4;

/// Whether an inode's address slots hold something other than addresses.
pub(crate) fn has_no_addresses(inode: &RawInode) -> bool {
    inode.inline().intersects(Inline::DATA | Inline::DENTRY)
        || !matches!(
            FileKind::from_mode(inode.i_mode.get()),
            Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink)
        )
}

/// Whether nothing of an inode before its addresses is to be believed: its first sector was lost, and with it how it is
/// divided. It is zeros, or ones as of erased flash, or junk.
pub(crate) fn has_no_head(inode: &RawInode) -> bool {
    let head = &inode.as_bytes()[..offset_of!(RawInode, i_addr)];
    [0, 0xff].iter().any(|blank| head.iter().all(|byte| byte == blank)) || has_junk_head(inode)
}

/// Whether so many fields hold what no inode has that no few flipped bits explain it.
fn has_junk_head(inode: &RawInode) -> bool {
    let nanos = [inode.i_atime_nsec, inode.i_ctime_nsec, inode.i_mtime_nsec];
    let impossible = [
        FileKind::from_mode(inode.i_mode.get()).is_none(),
        inode.i_size.get() > MAX_SIZE,
        inode.i_blocks.get() > MOST_BLOCKS,
        inode.i_links.get() > MOST_LINKS,
        !(1..=NAME_LEN).contains(&(inode.i_namelen.get() as usize)),
    ];
    let impossible = impossible.iter().filter(|&&is_impossible| is_impossible).count();
    impossible + nanos.iter().filter(|nanos| nanos.get() >= NANOS_PER_SEC).count() >= JUNK
}

/// How many addresses an inode has; without its head it may have as many as any.
pub(crate) fn most_addresses(inode: &RawInode, flexible: bool) -> usize {
    if has_no_head(inode) {
        return DEF_ADDRS_PER_INODE;
    }
    let slots = inode.possible_slots(flexible).filter(|_| !has_no_addresses(inode));
    slots.map_or(0, |slots| slots.addrs())
}
