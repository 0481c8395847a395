//! Directories whose inode is lost, while files say that they are in them, or the fsync log has names there: they are made anew, empty,
//! with the number that they had. What was in them goes back under its own name ([`crate::lost`]), and the log can be replayed.
//!
//! One that still has its entry stays where it is; of the others the place is lost, and they go to lost+found. Owner and group are those of
//! the directory above, and nobody else may enter: what the lost inode allowed is not known.
//!
//! An inode of the last checkpoint that is lost, while the fsync log has a newer version of it, gets that one in its place: the log can be
//! replayed on it, and nodes that it did not write stay the file's. It names the blocks that are the file's in the checkpoint; what was written
//! since is the log's to bring.
//!
//! Memory: an entry for each directory, once one is lost.

use crate::finding::Code;
use crate::reach::Verdict;
use crate::space::Owner;
use crate::walk::Walker;
use foldhash::{HashSet, HashSetExt};
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::nat::RawNatEntry;
use medfs_format::node::{FileKind, NAME_LEN, RawInode, footer, footer_mut};
use medfs_format::{Block, BlockAddr, Ino};
use std::collections::BTreeMap;
use std::io;

/// Which directories are made anew.
#[derive(Default)]
pub(crate) struct Anew {
    /// The directories in which the fsync log has names, each with the inode blocks that say so.
    pub(crate) homes: BTreeMap<Ino, Vec<BlockAddr>>,
    /// The numbers that inodes give for their directory, once they were wanted.
    parents: Option<HashSet<Ino>>,
    /// Those that a check leaves to the repair.
    planned: HashSet<Ino>,
}

impl Walker<'_, '_> {
    /// Makes a directory anew that an entry names, if it is lost.
    pub(crate) fn renew_directory(
        &mut self,
        ino: Ino,
        parent: Ino,
        name: &[u8],
        place: &str,
    ) -> io::Result<Verdict> {
        let wanted = self.is_lost(ino)? && (self.anew.homes.contains_key(&ino) || self.is_parent(ino)?);
        if !wanted {
            return Ok(Verdict::Rejected);
        }
        self.findings.add(
            Code::DirLost,
            format!(
                "{place}: directory {ino} is lost; a repair makes it anew, and what was in it goes back to it"
            ),
        );
        if self.fix {
            let block = self.new_directory(ino, parent, name)?;
            if !self.make_inode(ino, block)? {
                return Ok(Verdict::Rejected);
            }
        } else {
            self.plan(ino);
        }
        self.directories += 1;
        Ok(Verdict::Accepted(FileKind::Directory))
    }

    /// Makes the directories anew that the fsync log needs; names in what can be none go to lost+found.
    pub(crate) fn settle_homes(&mut self) -> io::Result<()> {
        for (home, blocks) in std::mem::take(&mut self.anew.homes) {
            if self.will_be_directory(home)? {
                continue;
            }
            if self.is_lost(home)? {
                let text = format!(
                    "directory {home}, in which files were fsynced, is lost; a repair makes it anew in lost+found"
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
        if !self.fix {
            self.plan(ino);
            return Ok(true);
        }
        let Some(home) = self.lost_and_found()? else { return Ok(false) };
        let Some(name) = self.free_name(home, ino.to_string().as_bytes())? else { return Ok(false) };
        let made = self.make_directory(home, &name, Some(ino))?;
        self.directories += u64::from(made.is_some());
        Ok(made.is_some())
    }

    /// Whether a number is free for a directory that is lost: nothing that can be read has it.
    pub(crate) fn is_lost(&mut self, ino: Ino) -> io::Result<bool> {
        let free = self.image.g.is_nid(ino) && ino != self.image.g.root_ino && !self.space.nid_reached(ino);
        Ok(free && !self.orphans.contains(&ino) && self.readable_inode(ino)?.is_none())
    }

    /// Whether a repair will make a directory of this number.
    pub(crate) fn is_planned(&self, ino: Ino) -> bool {
        self.anew.planned.contains(&ino)
    }

    fn plan(&mut self, ino: Ino) {
        self.anew.planned.insert(ino);
        self.space.reach_nid(ino);
    }

    /// Whether a directory has this number, or will have it after the repair.
    fn will_be_directory(&mut self, ino: Ino) -> io::Result<bool> {
        if self.is_planned(ino) {
            return Ok(true);
        }
        let Some((_, block)) = self.readable_inode(ino)? else { return Ok(false) };
        Ok(FileKind::from_mode(block.view::<RawInode>().i_mode.get()) == Some(FileKind::Directory))
    }

    /// Whether an inode gives this number for its directory.
    fn is_parent(&mut self, ino: Ino) -> io::Result<bool> {
        if let Some(parents) = &self.anew.parents {
            return Ok(parents.contains(&ino));
        }
        let mut parents = HashSet::new();
        self.each_node(|w, nid| {
            let addr = w.image.nat(nid)?.block_addr.get();
            if w.image.g.in_main(addr) {
                let block = w.image.cache.get(addr)?;
                let f = footer(block);
                if (f.nid.get(), f.ino.get()) == (nid, nid) {
                    parents.insert(block.view::<RawInode>().i_pino.get());
                }
            }
            Ok(())
        })?;
        let found = parents.contains(&ino);
        self.anew.parents = Some(parents);
        Ok(found)
    }

    /// Lets an inode block of the fsync log be replayed in lost+found, as it is in nothing that can be a directory.
    fn move_home(&mut self, addr: BlockAddr, home: Ino) -> io::Result<()> {
        let mut block = self.image.cache.read(addr)?;
        let ino = footer(&block).ino.get();
        let text = format!(
            "node of the fsync log in block {addr}: inode {ino} is in inode {home}, which is no directory; it goes to lost+found"
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

    /// Puts the log's inode in place of one that is lost, with a finding; `None` where the log has none, or in a check.
    pub(crate) fn inode_of_log(
        &mut self,
        ino: Ino,
        place: &str,
    ) -> io::Result<Option<(BlockAddr, Box<Block>)>> {
        let Some(&at) = self.logged.get(&ino) else { return Ok(None) };
        let mut block = self.image.cache.read(at)?;
        let numbers = (footer(&block).nid.get(), footer(&block).ino.get());
        let kind = FileKind::from_mode(block.view::<RawInode>().i_mode.get());
        let sound = self.rules.vet(&mut block.view::<RawInode>().clone(), ino).is_ok();
        if numbers != (ino, ino) || kind != Some(FileKind::Regular) || !sound {
            return Ok(None);
        }
        self.findings.add(
            Code::LogInode,
            format!("{place}: inode {ino} is lost; a repair takes that of the fsync log, in block {at}"),
        );
        if !self.fix {
            return Ok(None);
        }
        self.image.keep_own_blocks(ino, block.view_mut())?;
        self.sign(&mut block, ino, ino, 0);
        footer_mut(&mut block).set_fsync(false);
        footer_mut(&mut block).set_dentry(false);
        let owner = Owner::node(ino, self.image.nat(ino)?.version);
        let Some(addr) = self.new_block(true, owner)? else { return Ok(None) };
        self.space.give_back(&self.image.g, addr); // whoever visits it takes it
        self.write_inode(addr, &mut block)?;
        self.image.cache.medium.flush()?;
        let entry = RawNatEntry { version: owner.version, ino: ino.into(), block_addr: addr.into() };
        self.image.nat_changes.insert(ino, entry);
        Ok(Some((addr, block)))
    }
}
