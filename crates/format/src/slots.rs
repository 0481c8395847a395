//! How the 923 address slots of an inode are divided.

use crate::limits::{ADDRS_PER_BLOCK, DEF_ADDRS_PER_INODE};
use crate::path::Fanout;

/// Offset of `i_addr` in the inode block.
pub const ADDR_OFFSET: usize = 360;

/// The division of slots in the inodes of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layouts {
    /// Every inline xattr area has the default size. Inodes may have extra attributes.
    Fixed,
    /// Each inode says how large its area is, in its extra attributes, which all have.
    Flexible,
    /// As `Flexible`, but inodes without extra attributes are of the old layout, that of [`Layouts::Fixed`]:
    /// an import has not ended.
    Mixed,
}

impl Layouts {
    /// Whether extra attributes say how large the inline xattr area is.
    pub fn is_flexible(self) -> bool {
        self != Layouts::Fixed
    }

    /// Whether an inode without extra attributes may be.
    pub fn has_old(self) -> bool {
        self != Layouts::Flexible
    }
}

/// The division of the 923 slots of an inode: `[extra attributes | addresses or inline content | inline xattrs]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Slots of the extra attributes.
    pub extra: usize,
    /// Slots of the inline xattr area.
    pub inline_xattr: usize,
    /// Pages of a cluster, 1 where the file is not compressed: no node holds part of a cluster.
    pub cluster: usize,
}

impl Slots {
    /// Data addresses the inode holds.
    pub fn addrs(self) -> usize {
        self.area() / self.cluster * self.cluster
    }
    /// Slots for data addresses; the last ones stay empty where they are no whole cluster.
    pub fn area(self) -> usize {
        DEF_ADDRS_PER_INODE - self.extra - self.inline_xattr
    }
    /// Data addresses a direct node of the file holds.
    pub fn addrs_per_block(self) -> usize {
        ADDRS_PER_BLOCK / self.cluster * self.cluster
    }
    /// Number of addresses that the file's nodes hold.
    pub fn fanout(self) -> Fanout {
        Fanout { inode: self.addrs() as u64, block: self.addrs_per_block() as u64 }
    }
    /// Byte range of the inline xattr area inside the inode block.
    pub fn inline_xattr_range(self) -> std::ops::Range<usize> {
        let end = ADDR_OFFSET + DEF_ADDRS_PER_INODE * 4;
        end - self.inline_xattr * 4..end
    }
    /// Byte range of inline data or inline dentries inside the inode block: the first address slot is reserved.
    pub fn inline_content_range(self) -> std::ops::Range<usize> {
        let start = ADDR_OFFSET + self.extra * 4 + 4;
        start..ADDR_OFFSET + (DEF_ADDRS_PER_INODE - self.inline_xattr) * 4
    }
}
