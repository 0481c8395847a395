//! The root directory, without which nothing has a name: where its inode is lost it is made anew, empty, and
//! what says that it was in it goes back to it ([`crate::lost`]).

use crate::finding::Code;
use crate::judgement::note_remade;
use crate::reach::{Verdict, Via};
use crate::slots::has_no_head;
use crate::walk::Walker;
use medfs_format::node::{FileKind, RawInode, footer};
use std::io;

impl Walker<'_, '_> {
    /// Walks from the root. `false` where there is none, and none could be made.
    pub(crate) fn visit_root(&mut self) -> io::Result<bool> {
        let root = self.image.g.root_ino;
        self.j.image.find_strays_of_lost_journals(&mut self.j.findings)?;
        self.mend_root_mode()?;
        let verdict = self.visit(root, (root, b""), Via::Superblock, "root directory")?;
        if verdict == Verdict::Accepted(FileKind::Directory) {
            return Ok(true);
        }
        let text =
            "the root directory cannot be read; a repair creates it again and returns its entries to it";
        self.findings.add(Code::NoRoot, text);
        note_remade(self, root);
        match verdict {
            Verdict::Rejected if self.fix => self.make_root(),
            Verdict::Rejected => self.foresee_root(),
            Verdict::Accepted(_) => Ok(false),
        }
    }

    /// Takes the block in which the root is lost for the directory that a repair makes, so that a check tells what
    /// else is lost. `false` where the NAT leads to no block.
    fn foresee_root(&mut self) -> io::Result<bool> {
        let root = self.image.g.root_ino;
        let addr = self.image.nat(root)?.block_addr.get();
        if !self.image.g.in_main(addr) || self.space.nid_reached(root) {
            return Ok(false);
        }
        let mut block = self.maker().new_directory(root, root, b"")?;
        block.view_mut::<RawInode>().i_mode = 0o040755.into();
        if let Some(seed) = self.rules.seed {
            block.view_mut::<RawInode>().seal(seed);
        }
        self.image.cache.take_for_repaired(addr, &block);
        self.image.blank.remove(&root);
        let verdict = self.visit(root, (root, b""), Via::Superblock, "root directory")?;
        Ok(verdict == Verdict::Accepted(FileKind::Directory))
    }

    /// Where the root is an inode but for its mode, which can only be a directory's.
    fn mend_root_mode(&mut self) -> io::Result<()> {
        let root = self.image.g.root_ino;
        if !self.leads_to(root)? {
            self.j.image.find_strays(&mut self.j.findings)?;
        }
        let addr = self.image.nat(root)?.block_addr.get();
        if !self.image.g.in_main(addr) {
            return Ok(());
        }
        let mut block = self.image.cache.read(addr)?;
        let f = *footer(&block);
        let turned = self.rules.turn_back(root, &mut block).is_some();
        let inode: &mut RawInode = block.view_mut();
        let mode = inode.i_mode.get();
        if turned || FileKind::from_mode(mode) == Some(FileKind::Directory) {
            return Ok(());
        }
        let is_blank = has_no_head(inode);
        let mode = if is_blank { 0o755 } else { mode };
        inode.i_mode = (mode & 0o7777 | FileKind::Directory.mode_bits()).into();
        if is_blank {
            inode.i_links = 2.into(); // counted later
            self.restore_extra(root, inode, "root directory");
        }
        let is_inode = f.nid.get() == root && f.ino.get() == root && inode.i_links.get() >= 2;
        if !is_inode || self.rules.vet(&mut inode.clone(), root).is_err() {
            return Ok(());
        }
        self.findings.add(Code::Inode, format!("root directory: its mode is {mode:#o}, not a directory's"));
        if !self.fix {
            self.image.cache.take_for_repaired(addr, &block);
        }
        self.write_inode(addr, &mut block)
    }

    /// Makes an empty root directory. `false` where the volume is full.
    fn make_root(&mut self) -> io::Result<bool> {
        let root = self.image.g.root_ino;
        let mut block = self.maker().new_directory(root, root, b"")?;
        block.view_mut::<RawInode>().i_mode = 0o040755.into();
        let made = self.maker().make_inode(root, block)?;
        self.directories += u64::from(made);
        Ok(made)
    }
}
