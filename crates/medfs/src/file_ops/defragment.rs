//! Bringing the pages of a file together (`F2FS_IOC_DEFRAGMENT`).
//!
//! Purpose: pages of a range that lie apart are written anew, a section's worth at a time, to homes of the
//! file where it has a reserve, else one behind the other to a log. Pages that are deltas, or that others are
//! made from, stay where they are, and so do pages at home.
//! Locks: called with none held; those of writing back are taken for each batch.
//! Kernel counterpart: `f2fs_defragment_range`.

use crate::content::placement::Purpose;
use crate::error::{Posix, Result};
use crate::file_ops::FileOps;
use crate::map::inode::Inode;
use medfs_format::node::FileKind;
use medfs_format::{BLOCK_SIZE, BLOCKS_PER_SEG, BlockAddr, Geometry, Ino};
use std::ops::Range;

const PAGE: u64 = BLOCK_SIZE as u64;

impl FileOps {
    /// Brings the pages of a range of bytes together; returns the bytes that were written for it.
    /// `InvalidArgument` where the range is not of whole pages, the file is no regular one, is pinned, or has
    /// an open atomic write; `NotSupported` where it is compressed.
    pub(crate) fn defragment(&self, ino: Ino, start: u64, len: u64) -> Result<u64> {
        let inode = self.inode(ino)?;
        self.check_writable()?;
        let end = start.checked_add(len).ok_or(Posix::InvalidArgument)?;
        let is_whole = start.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        if !is_whole || inode.kind() != FileKind::Regular || inode.is_pinned() {
            return Err(Posix::InvalidArgument.into());
        }
        if inode.raw(|r| r.compression().is_some()) {
            return Err(Posix::NotSupported.into());
        }
        {
            let state = inode.lock.read();
            inode.check_alive(&state)?;
            if state.pages.draft().is_some() {
                return Err(Posix::InvalidArgument.into());
            }
        }
        // What is dirty has no place yet.
        self.write_back(&inode)?;
        let pages = start / PAGE..(end / PAGE).min(inode.pages());
        let found = self.settled_blocks(&inode, pages)?;
        if found.chunk_by(follows).nth(1).is_none() {
            return Ok(0);
        }
        let mut written = 0;
        for batch in found.chunks(BLOCKS_PER_SEG as usize) {
            self.make_room_to_write()?;
            let reserved = self.placement.reserved(ino);
            let off_home =
                batch.iter().filter(|&&(page, addr)| home_of(&self.geo, &reserved, page) != Some(addr));
            let indices: Vec<u64> = off_home.map(|&(index, _)| index).collect();
            if indices.is_empty() {
                continue;
            }
            self.rewrite_pages(&inode, &indices, Purpose::Defragment, &self.xref)?;
            let new = self.settled_blocks(&inode, indices[0]..indices[indices.len() - 1] + 1)?;
            written += new.iter().filter(|now| !batch.contains(now)).count() as u64;
        }
        Ok(written * PAGE)
    }

    /// The pages of a range that have blocks, and these.
    fn settled_blocks(&self, inode: &Inode, pages: Range<u64>) -> Result<Vec<(u64, BlockAddr)>> {
        let _state = inode.lock.read();
        self.blocks_of(inode, pages)
    }
}

/// The home of a page, where one of its file's reserves, in the order of windows, is its window's.
pub(crate) fn home_of(geo: &Geometry, reserved: &[(u64, u32)], page: u64) -> Option<BlockAddr> {
    let blocks = u64::from(geo.blocks_per_section());
    let found = reserved.binary_search_by_key(&(page / blocks), |&(window, _)| window).ok()?;
    let start = geo.seg_start(geo.segments_of(reserved[found].1).start);
    Some(start + (page % blocks) as BlockAddr)
}

/// Whether the second of two pages of a file lies right behind the first, or as far behind as it does in the file.
pub(crate) fn follows(before: &(u64, BlockAddr), page: &(u64, BlockAddr)) -> bool {
    u64::from(page.1).checked_sub(before.1.into()) == Some(page.0 - before.0)
}
