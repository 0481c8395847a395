//! Older copies of inodes that are lost: F2FS writes an inode to a new place each time, and the block before stays
//! as it was until its segment is written to again.
//!
//! Only how a copy divides its slots counts. A file keeps that from its first node below the inode on, so that any
//! copy with such nodes says where all of the file's pages are.
//!
//! Memory: an entry for each file with nodes, of which one pass takes [`MAX_OLD`].

use crate::inode_layout::{Layout, OldInode, OldInodes};
use crate::maker::Maker;
use crate::names::own_name;
use foldhash::HashMapExt;
use medfs_format::node::{RawInode, footer};
use medfs_format::{BLOCKS_PER_SEG, Ino, SegNo};
use std::io;

/// Copies taken up in one pass.
const MAX_OLD: usize = 1 << 20;

impl Maker<'_, '_> {
    /// The layout of a lost inode of a file with nodes below it, if there is an older copy: one with this name
    /// rather than others, a newer one rather than an older one.
    pub(crate) fn old_layout(&mut self, ino: Ino, name: &[u8]) -> io::Result<Option<Layout>> {
        if self.anew.old.is_none() {
            self.anew.old = Some(self.find_old_inodes()?);
        }
        let copies = self.anew.old.iter().flat_map(|old| old.get(&ino)).flatten();
        Ok(copies.max_by_key(|copy| (copy.name == name, copy.version)).map(|copy| copy.layout))
    }

    fn find_old_inodes(&mut self) -> io::Result<OldInodes> {
        let (mut old, mut count) = (OldInodes::new(), 0);
        for segno in 0..self.image.g.segment_count_main {
            let entry = self.image.sit(segno)?;
            if count < MAX_OLD && self.image.may_hold_nodes(segno, &entry)? {
                count += self.old_inodes_of(segno, &mut old)?;
            }
        }
        Ok(old)
    }

    /// Takes up the inodes of a segment; how many.
    fn old_inodes_of(&mut self, segno: SegNo, old: &mut OldInodes) -> io::Result<usize> {
        let (start, mut count) = (self.image.g.seg_start(segno), 0);
        for addr in start..start + BLOCKS_PER_SEG {
            let block = self.image.cache.get(addr)?;
            let f = *footer(block);
            let ino = f.ino.get();
            if f.nid.get() != ino || !self.image.g.is_nid(ino) {
                self.image.cache.medium.tell_unreadable(addr); // nobody may need it
                continue;
            }
            let mut inode = Box::new(self.image.cache.get(addr)?.view::<RawInode>().clone());
            if !inode.has_nodes()
                || self.rules.is_doubtful(&inode)
                || self.rules.vet(&mut inode, ino).is_err()
            {
                continue;
            }
            let (layout, version) = (Layout::of(&inode), f.cp_ver.get() as u32);
            let name = own_name(&inode).unwrap_or_default();
            let copies = old.entry(ino).or_default();
            match copies.iter_mut().find(|copy| copy.name == name) {
                Some(copy) if copy.version > version => {}
                Some(copy) => (copy.layout, copy.version) = (layout, version),
                None => {
                    copies.push(OldInode { name: name.to_vec(), version, layout });
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}
