//! Directories whose inode is lost, while files say that they are in them, or the fsync log has names there:
//! they are made anew, empty, with the number that they had. What was in them goes back under its own name
//! ([`crate::lost`]), and the log can be replayed.
//!
//! One that still has its entry stays where it is; of the others the place is lost, and they go to
//! lost+found. Owner and group are those of the directory above, and nobody else may enter: what the lost
//! inode allowed is not known.
//!
//! An inode of the last checkpoint that is lost, while the fsync log has a newer version of it, gets that one
//! in its place: the log can be replayed on it, and nodes that it did not write stay the file's. It names the
//! blocks that are the file's in the checkpoint; what was written since is the log's to bring.
//!
//! Memory: an entry for each directory, once one is lost.

use crate::finding::Code;
use crate::walk::Walker;
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::node::{FileKind, NAME_LEN, RawInode, footer};
use medfs_format::{BlockAddr, Ino};
use std::io;

impl Walker<'_, '_> {
    /// Makes the directories anew that the fsync log needs; names in what can be none go to lost+found.
    pub(crate) fn settle_homes(&mut self) -> io::Result<()> {
        for (home, blocks) in std::mem::take(&mut self.anew.homes) {
            if self.will_be_directory(home)? {
                continue;
            }
            if self.maker().is_lost(home)? {
                let text = format!(
                    "directory {home}, in which files were fsynced, is lost; a repair creates it again in lost+found"
                );
                self.findings.add(Code::DirLost, text);
                self.renew_in_lost_and_found(home)?;
                continue;
            }
            for addr in blocks {
                self.move_home(addr, home)?;
            }
        }
        Ok(())
    }

    /// Makes a lost directory anew whose place is lost too; `false` where there is no room.
    pub(crate) fn renew_in_lost_and_found(&mut self, ino: Ino) -> io::Result<bool> {
        self.j.nameless.insert(ino);
        if !self.fix {
            self.maker().plan(ino);
            return Ok(true);
        }
        let Some(home) = self.lost_and_found()? else { return Ok(false) };
        let Some(name) = self.free_name(home, ino.to_string().as_bytes())? else { return Ok(false) };
        let made = self.maker().make_directory(home, &name, Some(ino))?;
        self.directories += u64::from(made.is_some());
        Ok(made.is_some())
    }

    /// Whether a directory has this number, or will have it after the repair.
    fn will_be_directory(&mut self, ino: Ino) -> io::Result<bool> {
        if self.maker().is_planned(ino) {
            return Ok(true);
        }
        let Some((_, block)) = self.readable_inode(ino)? else { return Ok(false) };
        Ok(FileKind::from_mode(block.view::<RawInode>().i_mode.get()) == Some(FileKind::Directory))
    }

    /// Lets an inode block of the fsync log be replayed in lost+found, as it is in nothing that can be a directory.
    fn move_home(&mut self, addr: BlockAddr, home: Ino) -> io::Result<()> {
        let mut block = self.image.cache.read(addr)?;
        let ino = footer(&block).ino.get();
        let text = format!(
            "node of the fsync log in block {addr}: inode {ino} is in inode {home}, which is not a directory; it goes to lost+found"
        );
        self.findings.add(Code::LogNode, text);
        if !self.fix {
            return Ok(());
        }
        let Some(found) = self.lost_and_found()? else { return Ok(()) };
        let Some(name) = self.free_name(found, ino.to_string().as_bytes())? else { return Ok(()) };
        let inode: &mut RawInode = block.view_mut();
        inode.i_pino = found.into();
        inode.i_namelen = (name.len() as u32).into();
        inode.i_name = [0; NAME_LEN];
        inode.i_name[..name.len()].copy_from_slice(&name);
        if let Some(seed) = self.rules.seed {
            inode.seal(seed);
        }
        self.image.cache.medium.write(addr, &[&block], WriteTag::new(Cause::Node, Temperature::Warm))
    }
}
