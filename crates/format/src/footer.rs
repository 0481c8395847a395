//! The footer that every node block ends with: whose node it is, and where the log goes on.

use crate::{BLOCK_SIZE, Block, FormatError, Ino, Nid, Structure};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// End of every node block (24 bytes).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawNodeFooter {
    /// Id of this node.
    pub nid: U32,
    /// Inode it belongs to.
    pub ino: U32,
    /// Bit 0 cold, bit 1 fsync mark, bit 2 dentry mark, the rest the node's offset in the file's node tree.
    pub flag: U32,
    /// Version (and, in the upper half, checksum) of the checkpoint the node follows.
    pub cp_ver: U64,
    /// Address of the log's next node.
    pub next_blkaddr: U32,
}

const _: () = assert!(size_of::<RawNodeFooter>() == 24);

/// Byte of a node block at which the version of the checkpoint stands.
pub const CP_VER_AT: usize =
    BLOCK_SIZE - size_of::<RawNodeFooter>() + std::mem::offset_of!(RawNodeFooter, cp_ver);

const COLD_BIT: u32 = 1;
const FSYNC_BIT: u32 = 2;
const DENTRY_BIT: u32 = 4;
const OFFSET_SHIFT: u32 = 3;

impl RawNodeFooter {
    /// The node's offset in the file's node tree (0 is the inode, see [`crate::path`]).
    pub fn node_offset(&self) -> u32 {
        self.flag.get() >> OFFSET_SHIFT
    }
    /// Sets the node's offset.
    pub fn set_node_offset(&mut self, offset: u32) {
        self.flag = U32::new((self.flag.get() & ((1 << OFFSET_SHIFT) - 1)) | (offset << OFFSET_SHIFT));
    }
    fn set(&mut self, bit: u32, on: bool) {
        let flag = self.flag.get();
        self.flag = U32::new(if on { flag | bit } else { flag & !bit });
    }
    /// Whether the node was written by an fsync.
    pub fn is_fsync(&self) -> bool {
        self.flag.get() & FSYNC_BIT != 0
    }
    /// Whether an fsync wrote the node, also where the mark has lost its bit: nothing else writes an inode with the
    /// dentry mark.
    pub fn is_of_fsync(&self) -> bool {
        self.is_fsync() || (self.is_dentry() && self.nid == self.ino)
    }
    /// Sets the fsync mark.
    pub fn set_fsync(&mut self, on: bool) {
        self.set(FSYNC_BIT, on);
    }
    /// Whether recovery must restore the directory entry too.
    pub fn is_dentry(&self) -> bool {
        self.flag.get() & DENTRY_BIT != 0
    }
    /// Sets the dentry mark.
    pub fn set_dentry(&mut self, on: bool) {
        self.set(DENTRY_BIT, on);
    }
    /// Whether the node belongs to something other than a directory.
    pub fn is_cold(&self) -> bool {
        self.flag.get() & COLD_BIT != 0
    }
    /// Sets the cold mark.
    pub fn set_cold(&mut self, on: bool) {
        self.set(COLD_BIT, on);
    }
}

/// The footer of any node block.
pub fn footer(block: &Block) -> &RawNodeFooter {
    RawNodeFooter::ref_from_bytes(&block.0[BLOCK_SIZE - size_of::<RawNodeFooter>()..]).expect("size asserted")
}

/// The footer of any node block, to change.
pub fn footer_mut(block: &mut Block) -> &mut RawNodeFooter {
    RawNodeFooter::mut_from_bytes(&mut block.0[BLOCK_SIZE - size_of::<RawNodeFooter>()..])
        .expect("size asserted")
}

/// Checks a node's footer against what its NAT entry promised.
pub fn validate_footer(block: &Block, nid: Nid, ino: Ino) -> Result<(), FormatError> {
    let f = footer(block);
    if f.nid.get() != nid {
        return Err(FormatError::corrupt(
            Structure::NodeFooter,
            nid,
            "nid",
            format!("{}, expected {nid}", f.nid),
        ));
    }
    if f.ino.get() != ino {
        return Err(FormatError::corrupt(
            Structure::NodeFooter,
            nid,
            "ino",
            format!("{}, expected {ino}", f.ino),
        ));
    }
    if (nid == ino) != (f.node_offset() == 0) {
        return Err(FormatError::corrupt(
            Structure::NodeFooter,
            nid,
            "flag",
            format!("node offset {}", f.node_offset()),
        ));
    }
    Ok(())
}
