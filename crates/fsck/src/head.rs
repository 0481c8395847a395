//! The head of an inode: the first sector, with all of it before most of its addresses. A torn write leaves zeros in
//! its place, or what was there before: the head of another inode. That head names blocks of the other file, too.
//!
//! A file whose blocks are known without its inode is then made anew of them ([`crate::lost_file`]): a head of another
//! inode would give it that one's owner, mode, size and clusters. Of a link that is not longer than the sector nothing
//! is left.

use crate::SECTOR;
use crate::judgement::Judgement;
use crate::led::led_to;
use crate::named::{first_block, namers};
use crate::names::own_name;
use crate::reach::Entry;
use crate::slots::{has_no_addresses, has_no_head};
use crate::space::{Kind, recorded};
use crate::strays::look_again;
use foldhash::{HashMap, HashMapExt};
use medfs_format::Ino;
use medfs_format::node::{Advise, FileKind, RawInode, footer};
use std::collections::BTreeSet;
use std::io;
use std::ops::{Deref, DerefMut};
use zerocopy::IntoBytes;

/// What tells whose an inode is, or was.
pub(crate) struct Heads<'j, 'd>(pub(crate) &'j mut Judgement<'d>);

impl<'d> Deref for Heads<'_, 'd> {
    type Target = Judgement<'d>;
    fn deref(&self) -> &Judgement<'d> {
        self.0
    }
}

impl DerefMut for Heads<'_, '_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0
    }
}

impl Heads<'_, '_> {
    /// Why an inode that an entry names as of this kind is lost, where its head is, and no more is to be had of it.
    pub(crate) fn why_headless(
        &mut self,
        ino: Ino,
        inode: &RawInode,
        named: Option<FileKind>,
        entry: Entry<'_>,
    ) -> io::Result<Option<&'static str>> {
        if !matches!(named, Some(FileKind::Regular | FileKind::Symlink)) {
            return Ok(None);
        }
        let is_blank = has_no_head(inode);
        if !is_blank && !self.has_head_of_another(ino, inode, entry)? {
            return Ok(None);
        }
        let why = if is_blank { "its first sector is lost" } else { "its first sector is another inode's" };
        if named == Some(FileKind::Regular) {
            if self.is_lost_without_head(ino)? {
                return Ok(Some(why));
            }
            let names_theirs = !is_blank && !has_no_addresses(inode) && inode.i_blocks.get() > 1;
            if names_theirs {
                self.forget_inode(ino);
            }
            return Ok(names_theirs.then_some(why));
        }
        if self.is_lost_without_head(ino)? {
            self.image.blank.remove(&ino);
            return Ok(None);
        }
        self.forget_inode(ino);
        Ok(Some(why))
    }

    /// Whether the head of an inode, to which an entry leads, is that of another one, which is sound: it has that
    /// one's name and time, and the name leads there.
    fn has_head_of_another(&mut self, ino: Ino, inode: &RawInode, entry: (Ino, &[u8])) -> io::Result<bool> {
        let name = own_name(inode);
        if (inode.i_pino.get(), name) == (entry.0, Some(entry.1)) {
            return Ok(false);
        }
        let other = match led_to(self, inode)? {
            None if !inode.advise().intersects(Advise::LOST_PINO) && inode.i_links.get() == 1 => {
                let other = self.with_head(ino, inode)?;
                if other.is_none() && self.has_head_of_unled(ino, inode)? {
                    return Ok(true);
                }
                other
            }
            other => other,
        };
        let Some(other) = other.filter(|&other| other != ino) else { return Ok(false) };
        self.image.take_up(other)?;
        let addr = self.image.nat(other)?.block_addr.get();
        if !self.image.g.in_main(addr) {
            return Ok(false);
        }
        if self.image.is_lost_node(other, addr)? {
            return self.names_blocks_of(other, inode);
        }
        let block = self.image.cache.read(addr)?;
        let (at, theirs) = (footer(&block), block.view::<RawInode>());
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

    /// Another inode with all of this one's head, where the directory in which both say that they are tells neither.
    fn with_head(&mut self, ino: Ino, inode: &RawInode) -> io::Result<Option<Ino>> {
        let addr = self.image.nat(ino)?.block_addr.get();
        let first = if self.image.g.in_main(addr) { first_block(&mut self.image, addr)? } else { None };
        let Some(first) = first else { return Ok(None) };
        let namers = namers(&mut self.image)?.get(&first).cloned().unwrap_or_default();
        for other in namers.into_iter().filter(|&other| other != ino) {
            let addr = self.image.nat(other)?.block_addr.get();
            let theirs: &RawInode = self.image.cache.get(addr)?.view();
            if theirs.as_bytes()[..SECTOR] == inode.as_bytes()[..SECTOR] {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    /// Whether all of an inode's head is that of another one to which the NAT does not lead: the newest of the fsync
    /// log, or one to which only the journals led.
    fn has_head_of_unled(&mut self, ino: Ino, inode: &RawInode) -> io::Result<bool> {
        if self.anew.unled.is_none() {
            let mut unled: HashMap<_, Vec<_>> = HashMap::new();
            let doubtful = self.image.doubtful().into_iter().map(|(_, addr)| addr);
            for addr in self.logged.values().copied().chain(doubtful).collect::<BTreeSet<_>>() {
                let block = self.image.cache.get(addr)?;
                if footer(block).nid == footer(block).ino {
                    unled.entry(changed(block.view())).or_default().push(addr);
                }
            }
            self.anew.unled = Some(unled);
        }
        let alike = self.anew.unled.as_ref().and_then(|unled| unled.get(&changed(inode)));
        for addr in alike.cloned().unwrap_or_default() {
            let block = self.image.cache.get(addr)?;
            if footer(block).ino.get() != ino && block.0[..SECTOR] == inode.as_bytes()[..SECTOR] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the first block that an inode names is another one's by its summary.
    fn names_blocks_of(&mut self, other: Ino, inode: &RawInode) -> io::Result<bool> {
        let Some(slots) = inode.possible_slots(self.rules.flexible()) else { return Ok(false) };
        if has_no_addresses(inode) {
            return Ok(false);
        }
        let named = inode.i_addr[slots.extra..].iter().map(|addr| addr.get());
        let Some(first) = named.take(slots.addrs()).find(|&addr| self.image.g.in_main(addr)) else {
            return Ok(false);
        };
        Ok(recorded(&mut self.image, first, Kind::Data)?.is_some_and(|sum| sum.nid.get() == other))
    }

    /// Takes an inode that no entry names for lost, where its first sector is lost and blocks or nodes of its file
    /// tell more than it does; whether it did.
    pub(crate) fn forget_headless(&mut self, ino: Ino) -> io::Result<bool> {
        let addr = self.image.nat(ino)?.block_addr.get();
        if !self.image.g.in_main(addr) || self.image.blank.contains(&ino) {
            return Ok(false);
        }
        // As it is on the volume: who reads it to keep it guesses a head.
        let block = self.image.cache.get(addr)?;
        let footer = footer(block);
        let is_headless = (footer.nid.get(), footer.ino.get()) == (ino, ino) && has_no_head(block.view());
        Ok(is_headless && self.is_lost_without_head(ino)?)
    }

    /// Takes an inode without a head for lost, where blocks or nodes of its file tell more than it does.
    fn is_lost_without_head(&mut self, ino: Ino) -> io::Result<bool> {
        self.forget_inode(ino);
        let has_remains = self.image.has_remains(ino)?;
        if !has_remains {
            self.image.blank.remove(&ino);
        }
        Ok(has_remains)
    }

    /// Takes an inode for lost.
    fn forget_inode(&mut self, ino: Ino) {
        look_again(&mut self.image);
        self.image.blank.insert(ino);
    }
}

/// When an inode was changed last: seconds and nanoseconds.
fn changed(inode: &RawInode) -> (u64, u32) {
    (inode.i_ctime.get(), inode.i_ctime_nsec.get())
}
