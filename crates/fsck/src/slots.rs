//! How many of its slots an inode has for addresses, as far as its head can be read.

use medfs_format::node::{DEF_ADDRS_PER_INODE, FileKind, Inline, RawInode};
use std::mem::offset_of;
use zerocopy::IntoBytes;

/// Whether an inode's address slots hold something other than addresses.
pub(crate) fn has_no_addresses(inode: &RawInode) -> bool {
    inode.inline().intersects(Inline::DATA | Inline::DENTRY)
        || !matches!(
            FileKind::from_mode(inode.i_mode.get()),
            Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink)
        )
}

/// Whether all of an inode before its addresses is zeros, or ones as of erased flash: its first sector was lost, and
/// with it how it is divided.
pub(crate) fn has_blank_head(inode: &RawInode) -> bool {
    let head = &inode.as_bytes()[..offset_of!(RawInode, i_addr)];
    [0, 0xff].iter().any(|blank| head.iter().all(|byte| byte == blank))
}

/// How many addresses an inode has; without its head it may have as many as any.
pub(crate) fn most_addresses(inode: &RawInode, flexible: bool) -> usize {
    if has_blank_head(inode) {
        return DEF_ADDRS_PER_INODE;
    }
    let slots = inode.possible_slots(flexible).filter(|_| !has_no_addresses(inode));
    slots.map_or(0, |slots| slots.addrs())
}
