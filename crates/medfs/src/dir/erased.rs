//! Blocks of a directory that have lost their entries: to zeros, wholly or in their first sector.

use crate::error::Error;
use medfs_format::dentry::{Area, AreaLayout, is_blank};
use medfs_format::{Block, BlockAddr, FormatError, Structure};

/// What tells that a block of a directory has lost its entries.
pub(crate) fn erased(page: u64, block: &Block) -> Option<&'static str> {
    if is_blank(block) {
        Some("all zeros, which no block of a directory is")
    } else if page == 0 && Area::new(AreaLayout::BLOCK, &block.0[..]).is_empty(false) {
        Some("zeros, and the first block of a directory has an entry for the directory itself")
    } else {
        None
    }
}

/// The error of such a block.
pub(crate) fn of_erased(addr: BlockAddr, what: &str) -> Error {
    FormatError::corrupt(Structure::Dentry, addr, "dentry_bitmap", what).into()
}
