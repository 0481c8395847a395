//! What a damaged inode was: a flipped bit that its checksum tells, and otherwise what speaks for one reading
//! of it or another.
//!
//! Three things speak of an inode beside itself: the type in the directory entry that names it, the owners
//! that the summaries record of the blocks its slots name, and the entry `.` of a directory. They are asked
//! only where the inode contradicts its checksum, its name or its own number of blocks. What they do not
//! decide stays as it reads, or goes to lost+found.
//!
//! Invariant: nothing is changed without a finding that says what was taken for what.

use crate::SECTOR;
use crate::file::FileWalk;
use crate::finding::{Code, Findings};
use crate::inode::Rules;
use crate::judgement::{Judgement, mend};
use crate::led::is_named;
use crate::names::own_name;
use crate::slots::has_no_addresses;
use crate::space::{Kind, is_of_slot, recorded};
use crate::strays::lead_back;
use crate::{cluster_size, division};
use medfs_device::Cause;
use medfs_format::dentry::{Area, AreaLayout};
use medfs_format::flip::Bit;
use medfs_format::node::{self, Advise, EXTRA_ISIZE, FileKind, Inline, RawDirectNode, RawInode};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Ino, NULL_ADDR, Nid, is_block};
use std::io;
use zerocopy::IntoBytes;

/// Slots with something in them that are asked about.
const ASKED: u32 = 64;

/// What an inode's slots are, taken for addresses.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    /// Blocks and nodes that are recorded as the inode's own.
    own: u32,
    /// What is nothing of the inode's.
    foreign: u32,
}

impl Owned {
    /// Whether the slots are addresses.
    pub(crate) fn are_addresses(&self) -> bool {
        self.own > self.foreign
    }
}

/// What became of an inode that was looked into.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sense {
    /// It is what its name says, as far as can be told; maybe with changes.
    Fits,
    /// It is not; why.
    Contradicts(String),
}

impl Rules {
    /// Whether the inode's checksum is wrong.
    pub(crate) fn is_doubtful(&self, inode: &RawInode) -> bool {
        let stored = |inode: &RawInode| inode.extra().map(|e| e.i_inode_checksum.get());
        self.seed.is_some_and(|seed| inode.extra_fits(12) && stored(inode) != Some(inode.checksum(seed)))
    }

    /// Whether an inode without a checksum names more blocks than it counts as its own: some may be of others.
    pub(crate) fn names_too_many(&self, inode: &RawInode, slots: usize) -> bool {
        let first = inode.slots(self.flexible()).extra;
        let named = inode.i_addr[first..first + slots].iter().filter(|addr| is_block(addr.get())).count();
        self.seed.is_none() && named as u64 >= inode.i_blocks.get()
    }

    /// Turns the bit of an inode block back that alone explains a wrong checksum.
    pub(crate) fn turn_back(&self, ino: Ino, block: &mut Block) -> Option<Bit> {
        let inode: &RawInode = block.view();
        let seed = self.seed.filter(|_| self.is_doubtful(inode) || !inode.extra_fits(12))?;
        let bit = inode.flipped_bit(seed)?;
        bit.flip(block);
        let footer = node::footer(block);
        if (footer.nid.get(), footer.ino.get()) != (ino, ino) {
            bit.flip(block); // another block than the inode's
            return None;
        }
        Some(bit)
    }
}

impl Judgement<'_> {
    /// Of a file whose inode cannot be trusted: one that ends before its last block ended behind it.
    pub(crate) fn settle_size(&mut self, f: &FileWalk, inode: &mut RawInode) {
        let Some(last) = f.last_page.filter(|&page| f.region.as_ref().is_none_or(|r| page < r.start)) else {
            return;
        };
        let end = (last + 1) * medfs_format::BLOCK_SIZE as u64;
        let size = inode.i_size.get();
        // Not by a mark of a truncation, or without links: a doubted inode's may be damage.
        let is_excused = inode.advise().intersects(Advise::KEEP_SIZE | Advise::VERITY)
            || inode.inline().contains(Inline::PIN_FILE);
        if is_excused || size > last * medfs_format::BLOCK_SIZE as u64 {
            return;
        }
        self.findings.add(
            Code::InodeField,
            format!(
                "inode {}: i_size is {size}, but it has blocks up to {end}, and its checksum is wrong",
                f.ino
            ),
        );
        inode.i_size = end.into();
    }

    /// Turns back a flipped bit of an inode that was read, with a finding.
    pub(crate) fn turn_back(
        &mut self,
        ino: Ino,
        addr: BlockAddr,
        block: &mut Block,
        place: &str,
    ) -> io::Result<()> {
        let Some(bit) = self.rules.turn_back(ino, block) else { return Ok(()) };
        let field = RawInode::field_at(bit.byte.into());
        self.findings.add(
            Code::InodeChecksum,
            format!("{place}: inode {ino}: the checksum matches with {bit} ({field}) flipped"),
        );
        self.write(addr, block, Cause::Node)
    }

    /// Sets a footer right that names another node or inode, where everything else says whose block it is.
    pub(crate) fn mend_footer(
        &mut self,
        (nid, ino): (Nid, Ino),
        addr: BlockAddr,
        block: &mut Block,
        place: &str,
    ) -> io::Result<()> {
        let footer = *node::footer(block);
        let (nid_fits, ino_fits) = (footer.nid.get() == nid, footer.ino.get() == ino);
        if nid_fits && ino_fits {
            return Ok(());
        }
        let is_named = nid == ino && !nid_fits && !ino_fits && is_named(self, ino, block.view())?;
        let is_it = nid_fits != ino_fits || is_named || lacks_footer_alone(self, (nid, ino), block)?;
        let recorded = recorded(&mut self.image, addr, Kind::Node)?.map(|sum| sum.nid.get());
        if !is_it
            || self.image.nat(nid)?.ino.get() != ino
            || recorded.map_or(!is_named, |recorded| recorded != nid)
        {
            return Ok(());
        }
        let was = footer.nid.get();
        if self.image.nat_changes.get(&was).is_some_and(|entry| entry.block_addr.get() == addr) {
            // It was taken for that one, which is lost.
            lead_back(&mut self.image, was)?;
        }
        self.findings.add(
            Code::NodeFooter,
            format!(
                "{place}: block {addr} says node {} of inode {}, but all other evidence says node {nid} of inode {ino}",
                footer.nid, footer.ino
            ),
        );
        let (offset, blank) = (footer.node_offset(), !(nid_fits || ino_fits));
        if nid == ino && lacks_content(block) {
            doubt(self, ino);
        }
        let right = node::footer_mut(block);
        (right.nid, right.ino) = (nid.into(), ino.into());
        if blank {
            // Without a version an older copy of the node would count before it.
            self.image.sign(block, nid, ino, offset);
        }
        if nid == ino { self.write_inode(addr, block) } else { mend(self, addr, block, Cause::Node) }
    }

    /// An inode's block as it counts, without findings: a check has not written what it found before.
    pub(crate) fn understood(
        &mut self,
        ino: Ino,
        named: Option<FileKind>,
    ) -> io::Result<(BlockAddr, Box<Block>)> {
        let addr = self.image.nat(ino)?.block_addr.get();
        let mut block = self.image.cache.read(addr)?;
        let found = std::mem::replace(&mut self.findings, Findings::new(0));
        let understood = self
            .turn_back(ino, addr, &mut block, "")
            .and_then(|()| self.mend_footer((ino, ino), addr, &mut block, ""));
        let footer = node::footer(&block);
        // Of another node there is nothing to understand, and nothing to change.
        let is_inode = (footer.nid.get(), footer.ino.get()) == (ino, ino);
        // Without an entry, what it would become is no more than a guess, which an entry may contradict.
        let fix = self.fix;
        self.fix = fix && named.is_some();
        let understood = match is_inode {
            true => understood.and_then(|()| self.make_sense(ino, addr, &mut block, named, "").map(drop)),
            false => understood,
        };
        (self.findings, self.fix) = (found, fix);
        understood.map(|()| (addr, block))
    }

    /// Looks into an inode that contradicts its checksum, the kind it is named as, or its own number of blocks.
    pub(crate) fn make_sense(
        &mut self,
        ino: Ino,
        addr: BlockAddr,
        block: &mut Block,
        named: Option<FileKind>,
        place: &str,
    ) -> io::Result<Sense> {
        let before = block.view::<RawInode>().clone();
        let mut inode = Box::new(before.clone());
        if division::settle(self, ino, &mut inode, place)? {
            doubt(self, ino);
        }
        cluster_size::settle(self, ino, &mut inode, place)?;
        self.restore_extra(ino, &mut inode, place);
        let doubtful = self.rules.is_doubtful(&inode);
        let kind = FileKind::from_mode(inode.i_mode.get());
        let alone = inode.i_blocks.get() <= 1 + u64::from(inode.i_xattr_nid.get() != NULL_ADDR);
        let inline = inode.inline();
        let odd = kind.is_none()
            || named.is_some_and(|named| Some(named) != kind)
            || (has_no_addresses(&inode) != alone && (!alone || inline.contains(Inline::DATA_EXIST)))
            || (kind == Some(FileKind::Directory) && alone && !inline.contains(Inline::DENTRY));
        if !doubtful && !odd {
            return self.keep(addr, block, &before, &inode).map(|()| Sense::Fits);
        }
        let owned = self.owned(ino, &inode)?;
        let is_dir = self.is_directory(ino, &inode)?;
        let holds = owned.are_addresses() || inode.i_size.get() > 0 || inline.contains(Inline::DATA);
        let word = match (self.rules.seed, doubtful) {
            (_, true) => Word::Denied,
            (None, false) => Word::Open,
            (Some(_), false) => Word::Proven,
        };
        let may_be_link = inode.i_size.get() < BLOCK_SIZE as u64 && !inode.has_nodes();
        let right = match kind_of(kind, named, word, &Content { holds, is_dir, may_be_link }) {
            Ok(right) => right,
            Err(why) => return Ok(Sense::Contradicts(why)),
        };
        if Some(right) != kind {
            self.findings.add(
                Code::Inode,
                format!(
                    "{place}: inode {ino}: mode {:#o}; its name and its blocks show that it is {right}",
                    inode.i_mode
                ),
            );
            inode.i_mode = (inode.i_mode.get() & 0o7777 | right.mode_bits()).into();
        }
        self.settle_inline(ino, &mut inode, right, &owned, is_dir, place);
        self.keep(addr, block, &before, &inode).map(|()| Sense::Fits)
    }

    fn keep(
        &mut self,
        addr: BlockAddr,
        block: &mut Block,
        before: &RawInode,
        inode: &RawInode,
    ) -> io::Result<()> {
        if before.as_bytes() == inode.as_bytes() {
            return Ok(());
        }
        *block.view_mut() = inode.clone();
        self.write_inode(addr, block)
    }

    /// All inodes of a volume with flexible inline xattrs have extra attributes, unless an import has not ended.
    pub(crate) fn restore_extra(&mut self, ino: Ino, inode: &mut RawInode, place: &str) {
        if self.rules.layouts.has_old() || inode.extra().is_some() {
            return;
        }
        self.findings.add(
            Code::InodeField,
            format!("{place}: inode {ino}: no extra attributes, which every inode of the volume has"),
        );
        inode.i_inline |= Inline::EXTRA_ATTR.bits();
        let extra = inode.extra_mut().expect("just set");
        if !extra.has_possible_size() {
            extra.i_extra_isize = EXTRA_ISIZE.into();
        }
    }

    /// Whether content is inline, by what the slots are.
    fn settle_inline(
        &mut self,
        ino: Ino,
        inode: &mut RawInode,
        kind: FileKind,
        owned: &Owned,
        is_dir: Option<Inline>,
        place: &str,
    ) {
        let has = inode.inline() & (Inline::DATA | Inline::DENTRY);
        let right = match kind {
            _ if owned.are_addresses() => Inline::empty(),
            FileKind::Directory => is_dir.unwrap_or(has & Inline::DENTRY),
            FileKind::Regular | FileKind::Symlink
                if owned.foreign > 0 && inode.inline().contains(Inline::DATA_EXIST) =>
            {
                Inline::DATA
            }
            _ => has,
        };
        if right == has {
            return;
        }
        let what = if right.is_empty() { "the blocks that it names are its own" } else { "its content is" };
        self.findings.add(
            Code::InodeField,
            format!("{place}: inode {ino}: i_inline {:#04x}, but {what}{}", inode.i_inline, inside(right)),
        );
        inode.i_inline = ((inode.inline() - Inline::DATA - Inline::DENTRY) | right).bits();
    }

    /// What the slots of an inode would be as addresses.
    fn owned(&mut self, ino: Ino, inode: &RawInode) -> io::Result<Owned> {
        let mut plain = inode.clone();
        plain.i_inline &= !(Inline::DATA | Inline::DENTRY).bits();
        let extra = plain.extra().map_or(0, |e| usize::from(e.i_extra_isize.get()) / 4);
        // What an inode has as attributes are no addresses.
        let slots = plain.possible_slots(self.rules.flexible());
        let end = slots.map_or(inode.i_addr.len(), |slots| slots.extra + slots.area());
        let addrs = inode.i_addr.map(|addr| addr.get());
        let mut owned = owned_slots(self, ino, addrs.get(extra..end).unwrap_or_default())?;
        for nid in inode.i_nid.map(|nid| nid.get()).into_iter().filter(|&nid| nid != NULL_ADDR) {
            let own = self.image.g.is_nid(nid) && nid != ino && self.image.nat(nid)?.ino.get() == ino;
            // A node counts for the many slots that name nothing where there is one.
            owned.own += if own { ASKED } else { 0 };
        }
        Ok(owned)
    }

    /// Whether the content is a directory's, inline or in a block: it begins with `.`, which names the directory.
    fn is_directory(&mut self, ino: Ino, inode: &RawInode) -> io::Result<Option<Inline>> {
        let mut probe = inode.clone();
        probe.i_inline |= Inline::DENTRY.bits();
        let flexible = self.rules.flexible();
        let Some(slots) = probe.possible_slots(flexible) else { return Ok(None) };
        let bytes = &probe.as_bytes()[slots.inline_content_range()];
        if Area::new(AreaLayout::inline(bytes.len()), bytes).begins_with_dot(ino) {
            return Ok(Some(Inline::DENTRY));
        }
        let first = inode.i_addr[slots.extra].get();
        let in_block = self.image.g.in_main(first)
            && Area::new(AreaLayout::BLOCK, &self.image.cache.get(first)?.0[..]).begins_with_dot(ino);
        Ok(in_block.then_some(Inline::empty()))
    }
}

/// Notes an inode that is kept as it reads though its checksum was wrong, unless what came back of it is as it was.
pub(crate) fn note_doubt(j: &mut Judgement<'_>, ino: Ino, inode: &RawInode) {
    let is_made_anew = j.anew.files.contains(&ino) || j.anew.remade.contains(&ino);
    if j.rules.is_doubtful(inode) && !is_made_anew {
        doubt(j, ino);
    }
}

/// Notes that a file is kept as it reads, though something says otherwise.
pub(crate) fn doubt(j: &mut Judgement<'_>, ino: Ino) {
    if j.doubted.insert(ino) {
        j.losses.doubted += 1;
    }
}

/// Whether an inode has lost its last sector, where it may have had content or attributes: addresses that were there
/// are known elsewhere.
fn lacks_content(block: &Block) -> bool {
    let sector = &block.0[BLOCK_SIZE - SECTOR..];
    let is_erased = [0, 0xff].iter().any(|blank| sector.iter().all(|byte| byte == blank));
    let inline = block.view::<RawInode>().inline();
    is_erased && inline.intersects(Inline::XATTR | Inline::DATA | Inline::DENTRY)
}

/// Whether a node whose footer is zeros is that node as far as it can be told: its last sector was lost.
fn lacks_footer_alone(j: &mut Judgement<'_>, (nid, ino): (Nid, Ino), block: &Block) -> io::Result<bool> {
    let footer = node::footer(block);
    if (footer.nid.get(), footer.ino.get(), footer.cp_ver.get()) != (0, 0, 0) {
        return Ok(false);
    }
    if nid != ino {
        let addrs = block.view::<RawDirectNode>().addr.map(|addr| addr.get());
        return Ok(owned_slots(j, nid, &addrs)?.are_addresses());
    }
    let mut inode = Box::new(block.view::<RawInode>().clone());
    (inode.footer.nid, inode.footer.ino) = (nid.into(), ino.into());
    let is_named = own_name(&inode).is_some() && j.image.g.is_nid(inode.i_pino.get());
    let is_used = inode.i_links.get() > 0 && inode.i_blocks.get() > 0;
    Ok(is_named && is_used && j.rules.vet(&mut inode, ino).is_ok())
}

/// Whose the blocks are that the slots of a node name, as the summaries say.
pub(crate) fn owned_slots(j: &mut Judgement<'_>, nid: Nid, addrs: &[BlockAddr]) -> io::Result<Owned> {
    let mut owned = Owned::default();
    for (slot, &addr) in addrs.iter().enumerate().filter(|(_, addr)| is_block(**addr)) {
        if j.image.g.in_main(addr) && is_of_slot(&mut j.image, addr, nid, slot)? {
            owned.own += 1;
        } else {
            owned.foreign += 1;
        }
        if owned.own + owned.foreign >= ASKED {
            break;
        }
    }
    Ok(owned)
}

fn inside(right: Inline) -> &'static str {
    if right.is_empty() { "" } else { " inside the inode" }
}

/// What the checksum of an inode says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// It is wrong.
    Denied,
    /// There is none.
    Open,
    /// It is right.
    Proven,
}

/// What an inode has, whatever it is.
struct Content {
    /// It has content or blocks.
    holds: bool,
    /// These are a directory's, inline or not.
    is_dir: Option<Inline>,
    /// They fit a link's target.
    may_be_link: bool,
}

impl Content {
    fn fits(&self, kind: FileKind) -> bool {
        match kind {
            FileKind::Directory => self.is_dir.is_some(),
            FileKind::Regular => self.is_dir.is_none(),
            FileKind::Symlink => self.is_dir.is_none() && self.may_be_link,
            _ => self.is_dir.is_none() && !self.holds,
        }
    }
}

/// The kind that an inode is, of what it says and what its name says; an error where that cannot be told.
fn kind_of(
    says: Option<FileKind>,
    named: Option<FileKind>,
    word: Word,
    content: &Content,
) -> Result<FileKind, String> {
    let (says, named) = match (says, named) {
        (Some(says), None) => return Ok(says),
        (None, Some(named)) => return Ok(named),
        (None, None) if content.is_dir.is_some() => return Ok(FileKind::Directory),
        (None, None) => return Ok(FileKind::Regular),
        (Some(says), Some(named)) if says == named => return Ok(says),
        (Some(says), Some(named)) => (says, named),
    };
    match (content.fits(says), content.fits(named)) {
        (false, true) => return Ok(named),
        (true, false) => return Ok(says),
        _ => {}
    }
    let are_bits = |a: u16, b: u16| (a ^ b).count_ones() == 1;
    let by_inode = are_bits(says.mode_bits(), named.mode_bits());
    let by_entry = are_bits(says.dentry_type().into(), named.dentry_type().into());
    match word {
        // One flipped bit makes either of the other in one place alone.
        Word::Open if by_inode && !by_entry => Ok(named),
        // Without a sign of damage the inode's word counts.
        Word::Open | Word::Proven => Ok(says),
        Word::Denied => {
            Err(format!("its checksum is wrong, and it is a {says:?}, but its name is of a {named:?}"))
        }
    }
}
