//! How an inode divides its slots among extra fields, addresses and inline attributes.

use foldhash::HashMap;
use medfs_format::node::{Inline, RawInode};
use medfs_format::{Block, Ino, xattr};
use std::ops::Range;

/// How an inode divides its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Layout {
    pub(crate) inline: u8,
    pub(crate) extra_isize: u16,
    pub(crate) inline_xattr: u16,
}

impl Layout {
    pub(crate) fn of(inode: &RawInode) -> Layout {
        let extra = inode.extra();
        Layout {
            inline: (inode.inline() & (Inline::XATTR | Inline::EXTRA_ATTR)).bits(),
            extra_isize: extra.map_or(0, |extra| extra.i_extra_isize.get()),
            inline_xattr: extra.map_or(0, |extra| extra.i_inline_xattr_size.get()),
        }
    }

    pub(crate) fn set(self, inode: &mut RawInode) {
        inode.i_inline = self.inline;
        if let Some(extra) = inode.extra_mut() {
            extra.i_extra_isize = self.extra_isize.into();
            extra.i_inline_xattr_size = self.inline_xattr.into();
        }
    }

    /// How many addresses an inode has.
    pub(crate) fn area(self, flexible: bool) -> usize {
        let mut block = Block::boxed();
        let inode: &mut RawInode = block.view_mut();
        self.set(inode);
        inode.slots(flexible).area()
    }

    /// How many bytes of inline attributes an inode has.
    pub(crate) fn inline_xattr_bytes(self, flexible: bool) -> usize {
        self.inline_xattr_range(flexible).len()
    }

    /// Where in its block an inode has its inline attributes.
    fn inline_xattr_range(self, flexible: bool) -> Range<usize> {
        let mut block = Block::boxed();
        let inode: &mut RawInode = block.view_mut();
        self.set(inode);
        inode.slots(flexible).inline_xattr_range()
    }

    /// Inline attributes, whole, where an inode so divided has them in what is left of it.
    pub(crate) fn attributes_in(self, left: &Block, ino: Ino, flexible: bool) -> Option<Range<usize>> {
        let range = self.inline_xattr_range(flexible);
        let area = &left.0[range.clone()];
        let begins = area.get(..4)? == xattr::XATTR_MAGIC.to_le_bytes();
        (begins && xattr::parse(area, ino.into()).is_ok()).then_some(range)
    }
}

/// How some files of the volume divide their inodes. On a volume with deltas that depends on the size: a file that
/// fits its inode has a larger area for attributes, and gives some of it away with its first direct node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KnownLayout {
    pub(crate) layout: Layout,
    /// They have nodes below their inode.
    pub(crate) has_nodes: bool,
}

/// What the newest copy of an inode under one name says.
pub(crate) struct OldInode {
    pub(crate) name: Vec<u8>,
    /// The checkpoint that it was written after.
    pub(crate) version: u32,
    pub(crate) layout: Layout,
}

/// The copies by their numbers, which may have been those of other files before.
pub(crate) type OldInodes = HashMap<Ino, Vec<OldInode>>;
