//! The head of an inode: the first sector, with all of it before most of its addresses. A torn write leaves zeros in its
//! place, or what was there before: the head of another inode. That head names blocks of the other file, too.
//!
//! A file whose blocks are known without its inode is then made anew of them ([`crate::lost_file`]): a head of another
//! inode would give it that one's owner, mode, size and clusters. Of a link that is not longer than the sector nothing
//! is left.

use crate::image::Image;
use crate::judgement::Judgement;
use crate::missing::Missing;
use crate::names::own_name;
use crate::space::{Owner, has_no_addresses};
use medfs_format::node::{Advise, FileKind, RawInode, footer};
use medfs_format::{BlockAddr, Ino, NULL_ADDR};
use std::io;
use std::mem::offset_of;
use zerocopy::IntoBytes;

/// Whether all of an inode before its addresses is zeros: its first sector was lost, and with it how it is divided.
pub(crate) fn has_blank_head(inode: &RawInode) -> bool {
    inode.as_bytes()[..offset_of!(RawInode, i_addr)].iter().all(|&byte| byte == 0)
}

impl Judgement<'_> {
    /// Why an inode that an entry names as of this kind is lost, where its head is, and no more is to be had of it.
    pub(crate) fn why_headless(
        &mut self,
        ino: Ino,
        inode: &RawInode,
        named: Option<FileKind>,
        entry: (Ino, &[u8]),
    ) -> io::Result<Option<&'static str>> {
        if !matches!(named, Some(FileKind::Regular | FileKind::Symlink)) {
            return Ok(None);
        }
        let is_blank = has_blank_head(inode);
        if !is_blank && !self.has_head_of_another(ino, inode, entry)? {
            return Ok(None);
        }
        let why = if is_blank { "its first sector is zeros" } else { "its first sector is another inode's" };
        if named == Some(FileKind::Regular) {
            if self.image.is_lost_without_head(ino)? {
                return Ok(Some(why));
            }
            let names_theirs = !is_blank && !has_no_addresses(inode) && inode.i_blocks.get() > 1;
            if names_theirs {
                self.image.forget_inode(ino);
            }
            return Ok(names_theirs.then_some(why));
        }
        let first = Owner::slot(ino, 0, self.image.nat(ino)?.version);
        if Missing(&mut self.image).unnamed_block(first)?.is_some() {
            return Ok(None);
        }
        self.image.forget_inode(ino);
        Ok(Some(why))
    }

    /// The inode that the name leads to which an inode says it has.
    fn led_to(&mut self, inode: &RawInode) -> io::Result<Option<Ino>> {
        let is_sure = !inode.advise().intersects(Advise::LOST_PINO | Advise::ENC_NAME);
        let Some(name) = own_name(inode).filter(|name| is_sure && !name.is_empty()) else { return Ok(None) };
        let parent = inode.i_pino.get();
        let addr =
            if self.image.g.is_nid(parent) { self.image.nat(parent)?.block_addr.get() } else { NULL_ADDR };
        if !self.image.g.in_main(addr) {
            return Ok(None);
        }
        Ok(self.find(parent, name)?.filter(|&other| self.image.g.is_nid(other)))
    }

    /// Whether the name that an inode says it has leads to it.
    pub(crate) fn is_named(&mut self, ino: Ino, inode: &RawInode) -> io::Result<bool> {
        Ok(self.led_to(inode)? == Some(ino))
    }

    /// The inode that a block is, where its footer names one that the NAT has lost: its name leads there, and so does the
    /// NAT.
    pub(crate) fn inode_of_block(
        &mut self,
        ino: Ino,
        addr: BlockAddr,
        inode: &RawInode,
    ) -> io::Result<Option<Ino>> {
        if !self.image.nat_changes.contains_key(&ino) {
            return Ok(None);
        }
        let Some(other) = self.led_to(inode)?.filter(|&other| other != ino) else { return Ok(None) };
        Ok((self.image.nat(other)?.block_addr.get() == addr).then_some(other))
    }

    /// Takes the other block that may be an inode's by its footer, where only that one's name leads to it.
    pub(crate) fn settle_rival(&mut self, ino: Ino) -> io::Result<()> {
        let Some(rival) = self.image.rival(ino) else { return Ok(()) };
        let addr = self.image.nat(ino)?.block_addr.get();
        for (at, is_right) in [(addr, true), (rival.addr(), false)] {
            let inode = Box::new(self.image.cache.get(at)?.view::<RawInode>().clone());
            if self.is_named(ino, &inode)? {
                return if is_right { Ok(()) } else { self.image.lead_to(ino, rival) };
            }
        }
        Ok(())
    }

    /// Whether the head of an inode, to which an entry leads, is that of another one, which is sound: it has that one's
    /// name and time, and the name leads there.
    fn has_head_of_another(&mut self, ino: Ino, inode: &RawInode, entry: (Ino, &[u8])) -> io::Result<bool> {
        let name = own_name(inode);
        if (inode.i_pino.get(), name) == (entry.0, Some(entry.1)) {
            return Ok(false);
        }
        let Some(other) = self.led_to(inode)?.filter(|&other| other != ino) else { return Ok(false) };
        self.image.take_up(other)?;
        let addr = self.image.nat(other)?.block_addr.get();
        if !self.image.g.in_main(addr) {
            return Ok(false);
        }
        let block = self.image.cache.get(addr)?;
        let (at, theirs) = (footer(block), block.view::<RawInode>());
        let of = |inode: &RawInode| {
            (inode.i_pino.get(), inode.i_mode.get(), inode.i_ctime.get(), inode.i_ctime_nsec.get())
        };
        let is_theirs = (at.nid.get(), at.ino.get()) == (other, other)
            && own_name(theirs) == name
            && of(theirs) == of(inode);
        // Without checksums only the whole sector tells.
        let is_whole = inode.as_bytes()[..SECTOR] == theirs.as_bytes()[..SECTOR];
        Ok(is_theirs && (is_whole || self.rules.is_doubtful(inode) && !self.rules.is_doubtful(theirs)))
    }
}

/// What a device writes as a whole, in bytes.
const SECTOR: usize = 512;

impl Image<'_> {
    /// Takes an inode without a head for lost, where blocks or nodes of its file tell more than it does.
    fn is_lost_without_head(&mut self, ino: Ino) -> io::Result<bool> {
        self.forget_inode(ino);
        let has_remains = self.has_remains(ino)?;
        if !has_remains {
            self.blank.remove(&ino);
        }
        Ok(has_remains)
    }

    /// Takes an inode for lost.
    pub(crate) fn forget_inode(&mut self, ino: Ino) {
        // What was found of other lost files is found again.
        (self.lost_blocks, self.lost_files) = (None, None);
        self.blank.insert(ino);
    }
}
