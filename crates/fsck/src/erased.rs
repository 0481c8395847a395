//! An inode whose first sector is lost: zeros, ones as of erased flash, or junk. What the other sectors hold, and
//! blocks that are known as its own, are kept under a head as of a new file; mode, owner and times are lost.
//!
//! A regular file that has blocks or nodes is made anew of these instead ([`crate::lost_file`]), as its head says how
//! it is divided.

use crate::SECTOR;
use crate::evidence::owned_slots;
use crate::finding::Code;
use crate::judgement::note_remade;
use crate::maker::Maker;
use crate::named::{unnamed, unnamed_block};
use crate::reach::Entry;
use crate::slots::has_no_head;
use crate::space::Owner;
use medfs_format::node::{FileKind, Inline, RawInode};
use medfs_format::{Block, BlockAddr, Ino, NULL_ADDR};
use std::io;
use std::mem::{offset_of, size_of};
use zerocopy::IntoBytes;

/// Addresses that lie in the first sector.
const IN_SECTOR: usize = (SECTOR - offset_of!(RawInode, i_addr)) / size_of::<BlockAddr>();

impl Maker<'_, '_> {
    /// Gives an inode whose first sector is lost, where it is one, a head as of a new file of the kind that its entry
    /// says.
    pub(crate) fn give_head(
        &mut self,
        ino: Ino,
        entry: Entry<'_>,
        (addr, named): (BlockAddr, Option<FileKind>),
        block: &mut Block,
        place: &str,
    ) -> io::Result<()> {
        if !has_no_head(block.view()) {
            return Ok(());
        }
        match named {
            Some(FileKind::Directory) => self.give_directory_head(ino, entry, block, place)?,
            Some(FileKind::Regular) => self.give_file_head(ino, entry, block, place)?,
            Some(FileKind::Symlink) => self.give_link_head(ino, entry, block, place)?,
            _ => return Ok(()),
        }
        self.write_inode(addr, block)?;
        if !self.fix {
            self.image.cache.take_for_repaired(addr, block);
        }
        Ok(())
    }

    /// Blocks of entries stay the directory's own; of entries in the inode those come back that their inodes tell of.
    fn give_directory_head(
        &mut self,
        ino: Ino,
        (parent, name): Entry<'_>,
        block: &mut Block,
        place: &str,
    ) -> io::Result<()> {
        let new = self.new_directory(ino, parent, name)?;
        let mut behind = block.view::<RawInode>().i_addr.map(|addr| addr.get());
        behind[..IN_SECTOR].fill(NULL_ADDR);
        let extra = new.view::<RawInode>().slots(self.rules.flexible()).extra;
        let has_blocks = block.view::<RawInode>().has_nodes()
            || owned_slots(self, ino, &behind[extra..])?.are_addresses()
            || unnamed(&mut self.image)?.blocks.contains_key(&ino);
        block.0[..SECTOR].copy_from_slice(&new.0[..SECTOR]);
        let inode: &mut RawInode = block.view_mut();
        if has_blocks {
            inode.i_inline &= !Inline::DENTRY.bits();
            inode.i_addr[extra..IN_SECTOR].fill(NULL_ADDR.into());
            inode.i_blocks = 0.into(); // all that are found are its own
        }
        let text = format!(
            "{place}: directory {ino}: its first sector is lost; a repair keeps the entries that it can, and mode, \
             owner, times and attributes are lost"
        );
        self.findings.add(Code::DirLost, text);
        note_remade(self, ino);
        Ok(())
    }

    /// A file whose content, if it has any, is in the inode: its beginning is lost.
    fn give_file_head(
        &mut self,
        ino: Ino,
        (parent, name): Entry<'_>,
        block: &mut Block,
        place: &str,
    ) -> io::Result<()> {
        let mut new = self.new_file(FileKind::Regular, parent, name)?;
        let layout = self.layout_of_inode(block, ino)?;
        layout.set(new.view_mut());
        block.0[..SECTOR].copy_from_slice(&new.0[..SECTOR]);
        let inode: &mut RawInode = block.view_mut();
        inode.i_inline |= Inline::DATA.bits();
        let content = &inode.as_bytes()[inode.slots(self.rules.flexible()).inline_content_range()];
        let len = content.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        inode.i_size = (len as u64).into();
        self.cuts.add(ino, 0, 1);
        if len == 0 {
            self.anew.emptied.insert(ino);
            self.tell_head(ino, "keeps an empty file, as its content was there", place);
            return Ok(());
        }
        block.view_mut::<RawInode>().i_inline |= Inline::DATA_EXIST.bits();
        let what = format!("keeps what the other sectors hold of its content, up to byte {len}");
        self.tell_head(ino, &what, place);
        Ok(())
    }

    /// A link whose target is in a block.
    fn give_link_head(
        &mut self,
        ino: Ino,
        (parent, name): Entry<'_>,
        block: &mut Block,
        place: &str,
    ) -> io::Result<()> {
        let first = Owner::slot(ino, 0, 0);
        let Some(addr) = unnamed_block(&mut self.image, first)? else { return Ok(()) };
        let target = &self.image.cache.get(addr)?.0;
        let len = target.iter().position(|&byte| byte == 0).unwrap_or(target.len());
        let mut new = self.new_file(FileKind::Symlink, parent, name)?;
        self.layout_of_inode(block, ino)?.set(new.view_mut());
        let inode: &mut RawInode = new.view_mut();
        let extra = inode.slots(self.rules.flexible()).extra;
        inode.i_addr[extra] = addr.into();
        (inode.i_size, inode.i_blocks) = ((len as u64).into(), 2.into());
        block.0[..SECTOR].copy_from_slice(&new.0[..SECTOR]);
        self.tell_head(ino, "keeps its target", place);
        Ok(())
    }

    fn tell_head(&mut self, ino: Ino, what: &str, place: &str) {
        let text = format!(
            "{place}: inode {ino}: its first sector is lost; a repair {what}, and mode, owner, times and attributes \
             are lost"
        );
        self.findings.add(Code::FileRebuilt, text);
        self.losses.rebuilt += 1;
        self.anew.files.insert(ino);
    }
}
