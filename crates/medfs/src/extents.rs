//! Where the blocks of a file lie, and where none do.
//!
//! Purpose: what fragments a file has, and the free space, for statistics, experiments and tests; a mount cannot
//! ask through FUSE.
//! Locks: the inode's, shared; for free space the segments', one segment at a time.

use crate::error::Result;
use crate::map::node_tree::Slot;
use crate::types::Ino;
use crate::volume::Volume;
use medfs_format::is_block;

/// Pages of a file that lie in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first page.
    pub page: u64,
    /// Address of its block, in blocks from the start of the volume.
    pub addr: u32,
    /// Number of pages.
    pub len: u64,
}

impl Extent {
    /// The extents of a file's pages that have blocks, in the order of its pages. Compact pages and blocks of
    /// compressed clusters are pages of it here as in its nodes. Errors: those of reading the file's nodes.
    pub fn of(volume: &Volume, ino: Ino) -> Result<Vec<Extent>> {
        let fs = &volume.commit;
        let inode = fs.inode(ino)?;
        let _state = inode.lock.read();
        let mut extents: Vec<Extent> = Vec::new();
        let mut near: Option<Slot> = None;
        let mut page = 0;
        while page < inode.pages() {
            near = fs.find_slot_near(&inode, near.as_ref(), page)?;
            let Some(slot) = &near else {
                page = fs.next_existing(&inode, page)?.max(page + 1);
                continue;
            };
            let addr = slot.addr();
            if is_block(addr) {
                match extents.last_mut() {
                    Some(e) if e.page + e.len == page && u64::from(e.addr) + e.len == u64::from(addr) => {
                        e.len += 1;
                    }
                    _ => extents.push(Extent { page, addr, len: 1 }),
                }
            }
            page += 1;
        }
        Ok(extents)
    }
}

/// Lengths of the runs of blocks that are free, and were at the last checkpoint. Segments that logs write to
/// are left out. Errors: those of reading the SIT.
pub fn free_runs(volume: &Volume) -> Result<Vec<u64>> {
    let fs = &volume.commit;
    let (mut runs, mut end) = (Vec::new(), None);
    for segno in 0..fs.geo.segment_count_main {
        for (addr, len) in fs.segs.lock().free_runs(&fs.io, segno, 1)? {
            match runs.last_mut() {
                Some(run) if end == Some(addr) => *run += u64::from(len),
                _ => runs.push(u64::from(len)),
            }
            end = Some(addr + len);
        }
    }
    Ok(runs)
}
