//! Nodes by their numbers: whether each is the one that it is taken for, and what inodes say of themselves.

use crate::evidence::doubt;
use crate::file::FileWalk;
use crate::finding::Code;
use crate::image::CANNOT_BE_READ;
use crate::judgement::{Judgement, mend};
use crate::led::{is_of_another, settle_rival};
use crate::names::{bucket, hash_of, may_be_a_name};
use crate::reach::Claim;
use crate::rebuild::Rebuilt;
use crate::space::Owner;
use medfs_device::Cause;
use medfs_format::dentry::{Area, AreaLayout, MAX_DEPTH};
use medfs_format::node::{self, Advise, FileKind, Inline, RawInode};
use medfs_format::{Block, BlockAddr, Ino, NULL_ADDR, Nid};
use std::io;
use zerocopy::IntoBytes;

impl Judgement<'_> {
    /// Reads a node by its id and checks that it is the one; the reason it is not is a finding.
    pub(crate) fn node(
        &mut self,
        nid: Nid,
        ino: Ino,
        code: Code,
        place: &str,
    ) -> io::Result<Option<(BlockAddr, Box<Block>)>> {
        if !self.leads_to(nid)? {
            self.image.find_strays(&mut self.findings)?;
            self.image.take_up(nid)?;
        }
        if nid == ino {
            settle_rival(self, ino)?;
        }
        let mut entry = self.image.nat(nid)?;
        let addr = entry.block_addr.get();
        if addr == NULL_ADDR {
            self.findings.add(code, format!("{place}: node {nid} does not exist"));
            return Ok(None);
        }
        if !self.image.g.in_main(addr) {
            self.findings
                .add(Code::NatAddress, format!("{place}: NAT entry of node {nid} has address {addr}"));
            return Ok(None);
        }
        let mut block = self.image.cache.read(addr)?;
        if self.image.cache.medium.tell_unreadable(addr) {
            let text = format!("{place}: node {nid} of inode {ino} in block {addr} {CANNOT_BE_READ}");
            self.findings.add(Code::Unreadable, text);
            return Ok(None);
        }
        if nid == ino {
            self.turn_back(ino, addr, &mut block, place)?;
        }
        self.mend_footer((nid, ino), addr, &mut block, place)?;
        let f = *node::footer(&block);
        if f.nid.get() != nid || f.ino.get() != ino {
            self.findings.add(
                Code::NodeFooter,
                format!(
                    "{place}: block {addr} should be node {nid} of inode {ino} but says node {} of {}",
                    f.nid, f.ino
                ),
            );
            return Ok(None);
        }
        if nid == ino && is_of_another(self, ino, &block, place)? {
            // There may be another block of this number.
            let has_rival = self.image.nat_changes.contains_key(&nid);
            return if has_rival { self.node(nid, ino, code, place) } else { Ok(None) };
        }
        if entry.ino.get() != ino {
            self.findings.add(
                Code::NatIno,
                format!("{place}: NAT entry of node {nid} names inode {}, the node itself {ino}", entry.ino),
            );
            entry.ino = ino.into();
            self.image.nat_changes.insert(nid, entry);
        }
        if nid == ino && f.node_offset() != 0 {
            self.findings
                .add(Code::NodeFooter, format!("{place}: inode {ino} has node offset {}", f.node_offset()));
            node::footer_mut(&mut block).set_node_offset(0);
            self.write_inode(addr, &mut block)?;
        }
        Ok(Some((addr, block)))
    }

    /// Whether the NAT leads to a node of this number, in a block that SIT calls in use.
    pub(crate) fn leads_to(&mut self, nid: Nid) -> io::Result<bool> {
        let addr = self.image.nat(nid)?.block_addr.get();
        Ok(self.image.g.in_main(addr)
            && node::footer(self.image.cache.get(addr)?).nid.get() == nid
            && self.image.is_valid(addr)?)
    }

    pub(crate) fn claim_node(&mut self, nid: Nid, addr: BlockAddr, place: &str) -> io::Result<bool> {
        let owner = Owner::node(nid, self.image.nat(nid)?.version);
        if !self.space.claim(&mut self.image, &mut self.findings, addr, owner, place)? {
            return Ok(false);
        }
        self.space.reach_nid(nid);
        self.space.blocks += 1;
        self.space.nodes += 1;
        Ok(true)
    }

    /// Reads and takes a node below an inode; `None` where it must be cut off.
    pub(crate) fn child(
        &mut self,
        f: &mut FileWalk,
        nid: Nid,
        offset: u32,
        place: &str,
    ) -> io::Result<Option<(BlockAddr, Box<Block>)>> {
        if !self.image.g.is_nid(nid) || nid == f.ino {
            self.findings.add(Code::NodeId, format!("{place}: {nid} is not a node id"));
            return Ok(None);
        }
        if self.space.nid_reached(nid) {
            self.findings.add(Code::NodeTwice, format!("{place}: node {nid} is in use elsewhere"));
            return Ok(None);
        }
        let mut node = self.node(nid, f.ino, Code::NodeId, place)?;
        if node.is_none()
            && let Some(Rebuilt { addr, mut block, known, unplaced }) =
                self.image.rebuilt(f.ino, nid, offset, f.compression.is_some())?
        {
            f.unplaced += unplaced;
            let text =
                format!("{place}: node {nid} is rebuilt from {known} blocks or nodes known to be its own");
            self.findings.add(Code::NodeRebuilt, text);
            self.image.sign(&mut block, nid, f.ino, offset);
            mend(self, addr, &block, Cause::Node)?;
            node = Some((addr, block));
        }
        let Some((addr, mut block)) = node else { return Ok(None) };
        if !self.claim_node(nid, addr, place)? {
            return Ok(None);
        }
        f.blocks += 1;
        let footer = node::footer_mut(&mut block);
        let own = footer.node_offset();
        if own != offset {
            self.findings.add(
                Code::NodeFooter,
                format!("{place}: node {nid} has offset {own} in its file, expected {offset}"),
            );
            footer.set_node_offset(offset);
            if (own ^ offset).count_ones() > 1 {
                doubt(self, f.ino);
            }
            mend(self, addr, &block, Cause::Node)?;
        }
        Ok(Some((addr, block)))
    }

    /// An inode's block, as it counts, if it can be read and accepted.
    pub(crate) fn readable_inode(
        &mut self,
        nid: Nid,
    ) -> io::Result<Option<(BlockAddr, Box<medfs_format::Block>)>> {
        if !self.image.g.is_nid(nid) || self.image.blank.contains(&nid) {
            return Ok(None);
        }
        let addr = self.image.nat(nid)?.block_addr.get();
        if !self.image.g.in_main(addr) {
            return Ok(None);
        }
        let (addr, block) = self.understood(nid, None)?;
        let footer = medfs_format::node::footer(&block);
        if footer.nid.get() != nid || footer.ino.get() != nid {
            return Ok(None);
        }
        let mut inode = Box::new(block.view::<RawInode>().clone());
        Ok(self.rules.vet(&mut inode, nid).is_ok().then_some((addr, block)))
    }

    /// What an inode that can be read says of itself.
    pub(crate) fn claim_of(&mut self, nid: Nid) -> io::Result<Option<Claim>> {
        let Some((_, block)) = self.readable_inode(nid)? else { return Ok(None) };
        let inode: &RawInode = block.view();
        let Some(kind) = FileKind::from_mode(inode.i_mode.get()) else { return Ok(None) };
        let len = inode.i_namelen.get() as usize;
        let name = inode.i_name.get(..len).filter(|name| may_be_a_name(name)).unwrap_or_default().to_vec();
        let sure = !self.rules.is_doubtful(inode)
            && !inode.advise().intersects(Advise::LOST_PINO | Advise::ENC_NAME)
            && inode.i_links.get() > 0 // or else its name was taken away
            && !name.is_empty();
        Ok(Some(Claim { kind, parent: inode.i_pino.get(), name, sure, links: inode.i_links.get() }))
    }

    pub(crate) fn inode_block(&mut self, ino: Ino) -> io::Result<(BlockAddr, Box<Block>)> {
        let addr = self.image.nat(ino)?.block_addr.get();
        Ok((addr, self.image.cache.read(addr)?))
    }

    /// A directory's inode; `None` where its areas leave it, so that it can have no entries.
    pub(crate) fn directory_block(&mut self, dir: Ino) -> io::Result<Option<(BlockAddr, Box<Block>)>> {
        let (addr, block) = self.inode_block(dir)?;
        let sane = block.view::<RawInode>().possible_slots(self.rules.flexible()).is_some();
        Ok(sane.then_some((addr, block)))
    }

    /// The inode that a name in a directory stands for.
    pub(crate) fn find(&mut self, dir: Ino, name: &[u8]) -> io::Result<Option<Ino>> {
        let Some((_, block)) = self.directory_block(dir)? else { return Ok(None) };
        let inode: &RawInode = block.view();
        let hash = hash_of(inode, name);
        if inode.inline().contains(Inline::DENTRY) {
            let bytes = &inode.as_bytes()[inode.slots(self.rules.flexible()).inline_content_range()];
            let area = Area::new(AreaLayout::inline(bytes.len()), bytes);
            return Ok(area.find_hashed(name, hash, dir.into()).ok().flatten().map(|e| e.ino));
        }
        for level in 0..inode.i_current_depth.get().clamp(1, MAX_DEPTH) {
            for page in bucket(inode, level, name) {
                let addr = self.image.address(inode, page)?;
                if self.image.g.in_main(addr) {
                    let area = Area::new(AreaLayout::BLOCK, &self.image.cache.get(addr)?.0);
                    if let Ok(Some(e)) = area.find_hashed(name, hash, dir.into()) {
                        return Ok(Some(e.ino));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Nodes that have a NAT entry and were not reached.
    pub(crate) fn unreached(
        &mut self,
        mut each: impl FnMut(&mut Self, Nid) -> io::Result<()>,
    ) -> io::Result<()> {
        self.each_node(|w, nid| if w.space.nid_reached(nid) { Ok(()) } else { each(w, nid) })
    }

    /// Nodes that have a NAT entry.
    pub(crate) fn each_node(
        &mut self,
        mut each: impl FnMut(&mut Self, Nid) -> io::Result<()>,
    ) -> io::Result<()> {
        for index in 0..self.image.g.nat_blocks() {
            for (nid, _) in self.image.nodes_in(index)? {
                each(self, nid)?;
            }
        }
        Ok(())
    }
}
