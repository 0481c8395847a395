//! The walk from the roots: every inode, node and block that something refers to is judged, counted and marked.
//!
//! Disk-controlled depth never becomes recursion: directories wait in a list, a file's node tree has three levels
//! by construction. With `fix`, what is wrong is changed in place, one block at a time; every change leaves the
//! volume readable, and a second walk continues where an interrupted one stopped.
//!
//! Memory, beside [`Space`] and [`Slices`]: one entry for each directory not yet walked, for each inode whose
//! link count is not 1, and for each name of the directory in hand.

use crate::address::{is_rather_anothers, node_home};
use crate::evidence::Sense;
use crate::file::{DirWalk, FileWalk, Region};
use crate::finding::Code;
use crate::foreign::Foreign;
use crate::head::Heads;
use crate::judgement::{Judgement, mend};
use crate::mend::Held;
use crate::names::own_name;
use crate::placed::{put_blocks_in_their_places, put_nodes_in_their_places};
use crate::reach::{Entry, Links, Pending, Verdict, Via};
use crate::sizes::turned;
use crate::space::Owner;
use crate::target::{give_up_link, judge_target};
use medfs_device::Cause;
use medfs_format::compress::Compression;
use medfs_format::dentry::{HIDDEN_DIR, HIDDEN_LIST};
use medfs_format::node::{FileKind, Inline, NIDS_PER_BLOCK, RawDirectNode, RawIndirectNode, RawInode};
use medfs_format::path::BELOW_INODE;
use medfs_format::{Block, BlockAddr, COMPRESS_ADDR, Ino, NEW_ADDR, NULL_ADDR, Nid};
use std::io;
use std::ops::{Deref, DerefMut};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

/// The walk over a volume.
pub(crate) struct Walker<'d, 'p> {
    pub(crate) j: Judgement<'d>,
    pub(crate) directories: u64,
    pub(crate) files: u64,
    /// The directory of the files that users do not see, once it is reached.
    hidden_dir: Option<Ino>,
    /// lost+found, once it was needed.
    pub(crate) home: Option<Ino>,
    /// Entries with another file's number.
    pub(crate) foreign: Foreign,
    /// Inodes that a repair kept without a name.
    pub(crate) held: Held,
    pending: Vec<Pending>,
    progress: &'p mut dyn FnMut(f64),
}

/// The walk asks the judges in all it does.
impl<'d> Deref for Walker<'d, '_> {
    type Target = Judgement<'d>;
    fn deref(&self) -> &Judgement<'d> {
        &self.j
    }
}

impl DerefMut for Walker<'_, '_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.j
    }
}

impl<'d, 'p> Walker<'d, 'p> {
    pub(crate) fn new(j: Judgement<'d>, progress: &'p mut dyn FnMut(f64)) -> Walker<'d, 'p> {
        Walker {
            j,
            directories: 0,
            files: 0,
            hidden_dir: None,
            home: None,
            foreign: Foreign::default(),
            held: Held::default(),
            pending: Vec::new(),
            progress,
        }
    }

    /// Judges the inode that something names; a file is walked at once, a directory by [`Walker::drain`].
    pub(crate) fn visit(&mut self, ino: Ino, entry: Entry<'_>, via: Via, place: &str) -> io::Result<Verdict> {
        let unusable = if via == Via::Orphan { Code::OrphanInode } else { Code::DentryInode };
        let reject = |w: &mut Self, code, text: String| {
            w.findings.add(code, format!("{place}: {text}"));
            Ok(Verdict::Rejected)
        };
        if !self.image.g.is_nid(ino) {
            return reject(self, unusable, format!("inode number {ino} is out of range"));
        }
        if self.space.nid_reached(ino) {
            return self.visit_again(ino, via, place);
        }
        let mut node = self.node(ino, ino, unusable, place)?;
        if node.is_none() && matches!(via, Via::Dentry(_)) {
            node = self.maker().inode_of_log(ino, place)?;
        }
        let Some((addr, mut block)) = node else { return Ok(Verdict::Rejected) };
        if let Some(why) = Heads(self).why_headless(ino, block.view(), via.named(), entry)? {
            return reject(self, Code::Inode, format!("inode {ino}: {why}"));
        }
        self.maker().give_head(ino, entry, (addr, via.named()), &mut block, place)?;
        if let Sense::Contradicts(why) = self.make_sense(ino, addr, &mut block, via.named(), place)? {
            return reject(self, Code::InodeDoubt, format!("inode {ino}: {why}"));
        }
        let knows_place = crate::damage_found::knows_place(block.view(), entry);
        let verdict = self.accept(ino, addr, &mut block, entry.0, via, place)?;
        crate::damage_found::note_place(self, ino, entry, knows_place);
        Ok(verdict)
    }

    /// Takes an inode, where its block can be one.
    pub(crate) fn accept(
        &mut self,
        ino: Ino,
        addr: BlockAddr,
        block: &mut Block,
        parent: Ino,
        via: Via,
        place: &str,
    ) -> io::Result<Verdict> {
        let mut inode: Box<RawInode> = Box::new(block.view::<RawInode>().clone());
        if let Err(reason) = self.rules.vet(&mut inode, ino) {
            self.findings.add(Code::Inode, format!("{place}: {reason}"));
            return Ok(Verdict::Rejected);
        }
        let kind = FileKind::from_mode(inode.i_mode.get()).expect("vetted");
        if !self.claim_node(ino, addr, place)? {
            return Ok(Verdict::Rejected);
        }
        self.space.inodes += 1;
        if self.space.inodes.is_multiple_of(256) {
            let total = self.image.checkpoint().valid_inode_count.get().max(1);
            (self.progress)(0.9 * (f64::from(self.j.space.inodes) / f64::from(total)).min(1.0));
        }
        let hidden = self.is_hidden(&inode, ino, parent);
        if kind == FileKind::Directory {
            self.directories += u64::from(!hidden);
            self.pending.push(Pending { ino, parent });
        } else {
            self.files += u64::from(!hidden);
            let found = u32::from(via != Via::Orphan);
            if inode.i_links.get() != found {
                self.links.insert(ino, Links { found, claimed: inode.i_links.get() });
            }
            if !self.body(ino, addr, block, parent, place)? {
                self.files -= u64::from(!hidden);
                return Ok(Verdict::Rejected);
            }
        }
        Ok(Verdict::Accepted(kind))
    }

    /// Whether users do not see a file: the two names of the root directory in which a volume with deltas
    /// notes slices, and what is in the directory of these.
    fn is_hidden(&mut self, inode: &RawInode, ino: Ino, parent: Ino) -> bool {
        if self.hidden_dir.is_some_and(|hidden| hidden == parent) {
            return true;
        }
        if parent != self.image.g.root_ino || !self.image.raw_sb().is_delta_volume() {
            return false;
        }
        let name = own_name(inode);
        if name == Some(HIDDEN_DIR) {
            self.hidden_dir = Some(ino);
        }
        [Some(HIDDEN_LIST), Some(HIDDEN_DIR)].contains(&name)
    }

    /// One more name for an inode that was reached before.
    fn visit_again(&mut self, ino: Ino, via: Via, place: &str) -> io::Result<Verdict> {
        if via == Via::Orphan {
            self.findings.add(Code::OrphanInode, format!("{place}: inode {ino} has a name"));
            return Ok(Verdict::Rejected);
        }
        if self.anew.files.contains(&ino) {
            // Of a check: it is not there yet.
            self.links.entry(ino).or_insert(Links { found: 1, claimed: 1 }).found += 1;
            return Ok(Verdict::Accepted(FileKind::Regular));
        }
        let entry = self.image.nat(ino)?;
        let addr = entry.block_addr.get();
        if entry.ino.get() != ino || !self.image.g.in_main(addr) {
            self.findings.add(Code::DentryInode, format!("{place}: node {ino} is not an inode"));
            return Ok(Verdict::Rejected);
        }
        let (_, block) = self.understood(ino, None)?;
        let inode: &RawInode = block.view();
        match FileKind::from_mode(inode.i_mode.get()) {
            Some(FileKind::Directory) => {
                self.findings
                    .add(Code::DirectoryTwice, format!("{place}: directory {ino} has a name already"));
                Ok(Verdict::Rejected)
            }
            Some(kind) => {
                let claimed = inode.i_links.get();
                self.links.entry(ino).or_insert(Links { found: 1, claimed }).found += 1;
                Ok(Verdict::Accepted(kind))
            }
            None => Ok(Verdict::Rejected),
        }
    }

    /// Walks the directories that wait, and those they lead to.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        while let Some(Pending { ino, parent }) = self.pending.pop() {
            let (addr, mut block) = self.understood(ino, Some(FileKind::Directory))?;
            self.body(ino, addr, &mut block, parent, "")?;
        }
        Ok(())
    }

    /// Everything an accepted inode holds; `false` where that is not worth a name.
    fn body(
        &mut self,
        ino: Ino,
        addr: BlockAddr,
        block: &mut Block,
        parent: Ino,
        place: &str,
    ) -> io::Result<bool> {
        let inode: &mut RawInode = block.view_mut();
        let before = inode.clone();
        match self.rules.vet(inode, ino) {
            Ok(found) => found.into_iter().for_each(|(code, text)| self.findings.add(code, text)),
            Err(_) => return Ok(true),
        }
        let checksum_wrong = self.rules.is_doubtful(&before);
        let kind = FileKind::from_mode(inode.i_mode.get()).expect("vetted");
        let level_fits = match kind {
            FileKind::Directory => self.judge_level(ino, inode)?,
            _ => 0,
        };
        let compression = if self.rules.has_compression() { inode.compression() } else { None };
        let cluster = compression.map_or(1, Compression::cluster_pages);
        let mut f = FileWalk::new(ino, inode, compression);
        f.dir = (kind == FileKind::Directory).then(|| DirWalk::new(inode, level_fits, parent));
        f.doubtful = checksum_wrong;
        f.size_turned = turned(&before, inode);
        self.find_lost_zone(&f, inode);
        self.xattrs(&mut f, inode)?;
        self.open_zone(&mut f, inode);
        if self.has_zones() && kind == FileKind::Regular {
            f.region = Some(Region::of(&f, inode, self.rules.flexible()));
        }
        if crate::slots::has_no_addresses(inode) {
            self.inline(&mut f, inode)?;
        } else {
            self.addresses(&mut f, inode, cluster)?;
            self.bring_missing(&mut f, inode, before.i_blocks.get())?;
        }
        if kind == FileKind::Symlink && !judge_target(self, ino, inode, f.doubtful)? {
            give_up_link(self, (ino, addr), inode, place)?;
            return Ok(false);
        }
        self.end_before_compact(&f, inode);
        self.settle_zone(&mut f, inode)?;
        self.settle(&mut f, inode, kind)?;
        self.space.usage.count(ino, inode, f.blocks);
        self.losses.blocks += f.lost;
        self.losses.cut += u64::from(f.lost > 0);
        if checksum_wrong || inode.as_bytes() != before.as_bytes() {
            self.write_inode(addr, block)?;
        }
        Ok(true)
    }

    fn inline(&mut self, f: &mut FileWalk, inode: &mut RawInode) -> io::Result<()> {
        let inline = inode.inline();
        if inode.has_nodes() {
            let text = format!("inode {}: its content needs no nodes, but i_nid names some", f.ino);
            self.findings.add(Code::InlineNodes, text);
            inode.i_nid = [U32::new(0); 5];
        }
        if !inline.intersects(Inline::DATA | Inline::DENTRY) {
            return Ok(());
        }
        let slots = inode.slots(self.rules.flexible());
        if inode.i_addr[slots.extra].get() != 0 {
            self.findings.add(
                Code::InlineReserved,
                format!(
                    "inode {}: the reserved slot before its inline content holds {}",
                    f.ino, inode.i_addr[slots.extra]
                ),
            );
            inode.i_addr[slots.extra] = 0.into();
        }
        let range = slots.inline_content_range();
        if inline.contains(Inline::DENTRY) {
            let mut area = inode.as_bytes()[range.clone()].to_vec();
            if self.dentries(f, &mut area, None)? {
                inode.as_mut_bytes()[range].copy_from_slice(&area);
            }
        } else if !inline.contains(Inline::DATA_EXIST) && inode.as_bytes()[range].iter().any(|&b| b != 0) {
            self.findings.add(Code::InlineExist, format!("inode {}: inline data without its flag", f.ino));
            inode.i_inline |= Inline::DATA_EXIST.bits();
        }
        Ok(())
    }

    fn addresses(&mut self, f: &mut FileWalk, inode: &mut RawInode, cluster: usize) -> io::Result<()> {
        let slots = inode.slots(self.rules.flexible());
        let in_inode = slots.area() / cluster * cluster;
        let place = format!("inode {}", f.ino);
        let is_doubted = f.doubtful || self.rules.names_too_many(inode, in_inode);
        let first = Owner { is_doubted, ..Owner::slot(f.ino, 0, self.image.nat(f.ino)?.version) };
        self.slots(f, &mut inode.i_addr[slots.extra..slots.extra + in_inode], first, 0, &place)?;
        let mut page = in_inode as u64;
        let (each, n_pages) = (f.addrs_per_block as u64, NIDS_PER_BLOCK as u64);
        let pages = [each, each * n_pages, each * n_pages * n_pages];
        put_nodes_in_their_places(self, f.ino, &mut inode.i_nid, |i| BELOW_INODE[i], &place)?;
        for (i, (offset, level)) in BELOW_INODE.into_iter().zip([0, 0, 1, 1, 2]).enumerate() {
            let nid = node_home(self, f.ino, inode.i_nid[i].get(), offset, &place)?;
            inode.i_nid[i] = nid.into();
            let keep = nid == 0
                || match level {
                    0 => self.direct(f, nid, offset, page)?,
                    1 => self.indirect(f, nid, offset, page)?,
                    _ => self.double_indirect(f, nid, offset, page)?,
                };
            if !keep {
                inode.i_nid[i] = 0.into();
                f.cut = true;
                f.lost += 1;
                self.cuts.add(f.ino, page, pages[level]);
            }
            page += pages[level];
        }
        Ok(())
    }

    pub(crate) fn direct(&mut self, f: &mut FileWalk, nid: Nid, offset: u32, page: u64) -> io::Result<bool> {
        let place = format!("inode {}, node {nid}", f.ino);
        let Some((addr, mut block)) = self.child(f, nid, offset, &place)? else { return Ok(false) };
        let first = Owner::slot(nid, 0, self.image.nat(nid)?.version);
        let addrs = &mut block.view_mut::<RawDirectNode>().addr[..f.addrs_per_block];
        if self.slots(f, addrs, first, page, &place)? {
            mend(self, addr, &block, Cause::Node)?;
        }
        Ok(true)
    }

    /// A node's addresses, of pages from `page`, slots from `first` on, doubted behind a wrong one; if one changed.
    fn slots(
        &mut self,
        f: &mut FileWalk,
        addrs: &mut [U32],
        mut first: Owner,
        page: u64,
        place: &str,
    ) -> io::Result<bool> {
        let placed = put_blocks_in_their_places(self, addrs, first, place)?;
        let mut changed = self.clusters(f, addrs, first, page, place)? | placed.moved;
        for (i, slot) in addrs.iter_mut().enumerate().filter(|(_, slot)| slot.get() != NULL_ADDR) {
            let (page, owner, named) = (page + i as u64, first.behind(i), slot.get());
            let (addr, owner) = placed.home(self, (i, owner), page, named, place)?;
            first.is_doubted |= addr != named;
            let stays = addr != NULL_ADDR && self.data(f, owner, page, addr, place)?;
            if !stays && addr != NULL_ADDR {
                (f.lost, f.strange) = (f.lost + 1, f.strange + 1);
                self.cuts.add(f.ino, page, 1);
            }
            *slot = if stays { addr } else { NULL_ADDR }.into();
            changed |= slot.get() != named;
        }
        Ok(changed)
    }

    pub(crate) fn indirect(
        &mut self,
        f: &mut FileWalk,
        nid: Nid,
        offset: u32,
        page: u64,
    ) -> io::Result<bool> {
        let each = f.addrs_per_block as u64;
        self.children(f, (nid, offset, 1), page, each, |w, f, i, child| {
            w.direct(f, child, offset + 1 + i, page + u64::from(i) * each)
        })
    }

    pub(crate) fn double_indirect(
        &mut self,
        f: &mut FileWalk,
        nid: Nid,
        offset: u32,
        page: u64,
    ) -> io::Result<bool> {
        let n = NIDS_PER_BLOCK as u32;
        let each = (f.addrs_per_block * NIDS_PER_BLOCK) as u64;
        self.children(f, (nid, offset, n + 1), page, each, |w, f, i, child| {
            w.indirect(f, child, offset + 1 + i * (n + 1), page + u64::from(i) * each)
        })
    }

    /// The nodes below an indirect node; they are `apart` by their offsets.
    fn children(
        &mut self,
        f: &mut FileWalk,
        (nid, offset, apart): (Nid, u32, u32),
        page: u64,
        each: u64,
        mut visit: impl FnMut(&mut Self, &mut FileWalk, u32, Nid) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let place = format!("inode {}, indirect node {nid}", f.ino);
        let Some((addr, mut block)) = self.child(f, nid, offset, &place)? else { return Ok(false) };
        let unplaced = std::mem::take(&mut f.unplaced);
        f.lost += unplaced;
        let (nids, at) = (&mut block.view_mut::<RawIndirectNode>().nid, |i| offset + 1 + i as u32 * apart);
        let mut changed = put_nodes_in_their_places(self, f.ino, nids, at, &place)?;
        if unplaced > 0 {
            let nids = block.view::<RawIndirectNode>().nid.map(|nid| nid.get());
            let mut at = page;
            for same in nids.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
                let pages = same.len() as u64 * each;
                if same[0] == 0 {
                    self.cuts.add(f.ino, at, pages);
                }
                at += pages;
            }
        }
        for i in 0..NIDS_PER_BLOCK {
            let named = block.view::<RawIndirectNode>().nid[i].get();
            if named == 0 {
                continue;
            }
            let child = node_home(self, f.ino, named, at(i), &place)?;
            block.view_mut::<RawIndirectNode>().nid[i] = child.into();
            changed |= child != named;
            if child != 0 && !visit(self, f, i as u32, child)? {
                block.view_mut::<RawIndirectNode>().nid[i] = 0.into();
                f.cut = true;
                f.lost += 1;
                self.cuts.add(f.ino, page + i as u64 * each, each);
                changed = true;
            }
        }
        if changed {
            mend(self, addr, &block, Cause::Node)?;
        }
        Ok(true)
    }

    /// One address that is not a hole; `false` where it must become one.
    pub(crate) fn data(
        &mut self,
        f: &mut FileWalk,
        owner: Owner,
        page: u64,
        addr: BlockAddr,
        place: &str,
    ) -> io::Result<bool> {
        if addr == COMPRESS_ADDR && f.compression.is_some() && f.released {
            return Ok(true); // given back, with what else the cluster saved
        }
        if addr == NEW_ADDR || (addr == COMPRESS_ADDR && f.compression.is_some()) {
            f.blocks += 1;
            self.space.blocks += 1;
            return Ok(true);
        }
        if !self.image.g.in_main(addr) {
            self.findings.add(
                Code::Address,
                format!("{place}: address {addr} of page {page} is outside the main area"),
            );
            f.cut = true;
            return Ok(false);
        }
        if !(self.compact_block(f, page, addr)? && self.dentry_block(f, page, addr)?) && self.fix {
            f.cut = true;
            return Ok(false);
        }
        if is_rather_anothers(self, owner, addr, place)?
            || !self.j.space.claim(&mut self.j.image, &mut self.j.findings, addr, owner, place)?
        {
            f.cut_compact(page);
            f.cut = true;
            return Ok(false);
        }
        f.blocks += 1;
        self.space.blocks += 1;
        f.last_page = Some(page);
        f.past_end += u64::from(page >= f.end);
        let fofs = u64::from(f.extent.fofs.get());
        if page >= fofs
            && page - fofs < u64::from(f.extent.len.get())
            && u64::from(addr) == u64::from(f.extent.blk.get()) + (page - fofs)
        {
            f.extent_hits += 1;
        }
        if f.dir.is_some() {
            let mut block = self.image.cache.read(addr)?;
            if self.dentries(f, &mut block.0, Some(page))? {
                self.write(addr, &block, Cause::Data)?;
            }
        }
        Ok(true)
    }
}
