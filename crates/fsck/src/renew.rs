//! Makes a directory anew that an entry names and whose inode is lost, and takes a lost inode from the fsync
//! log ([`crate::anew`]).

use crate::finding::Code;
use crate::judgement::{Judgement, note_remade};
use crate::maker::Maker;
use crate::reach::Verdict;
use crate::space::Owner;
use foldhash::{HashSet, HashSetExt};
use medfs_format::nat::RawNatEntry;
use medfs_format::node::{FileKind, RawInode, footer, footer_mut};
use medfs_format::{Block, BlockAddr, Ino};
use std::io;

impl Maker<'_, '_> {
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
                "{place}: directory {ino} is lost; a repair creates it again and returns its entries to it"
            ),
        );
        note_remade(self, ino);
        self.anew.places.insert(ino, (parent, name.to_vec()));
        if self.fix {
            let block = self.new_directory(ino, parent, name)?;
            if !self.make_inode(ino, block)? {
                return Ok(Verdict::Rejected);
            }
        } else {
            self.plan(ino);
        }
        Ok(Verdict::Accepted(FileKind::Directory))
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

    pub(crate) fn plan(&mut self, ino: Ino) {
        self.anew.planned.insert(ino);
        self.space.reach_nid(ino);
    }

    /// Whether an inode gives this number for its directory.
    pub(crate) fn is_parent(&mut self, ino: Ino) -> io::Result<bool> {
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
        self.image.sign(&mut block, ino, ino, 0);
        footer_mut(&mut block).set_fsync(false);
        footer_mut(&mut block).set_dentry(false);
        Ok(self.replace_inode(ino, &mut block)?.map(|addr| (addr, block)))
    }

    /// Writes an inode to a new block, in place of a lost one; whoever visits it takes it. `None` where there is no
    /// room.
    pub(crate) fn replace_inode(&mut self, ino: Ino, block: &mut Block) -> io::Result<Option<BlockAddr>> {
        let owner = Owner::node(ino, self.image.nat(ino)?.version);
        let Some(addr) = self.new_block(true, owner)? else { return Ok(None) };
        let Judgement { space, image, .. } = &mut **self;
        space.give_back(&image.g, addr);
        self.write_inode(addr, block)?;
        self.image.cache.medium.flush()?;
        let entry = RawNatEntry { version: owner.version, ino: ino.into(), block_addr: addr.into() };
        self.image.nat_changes.insert(ino, entry);
        Ok(Some(addr))
    }
}
