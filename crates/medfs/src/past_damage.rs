//! Reading past damage: what of files and directories can be read, with the places that cannot.
//!
//! For those who copy files off a dying card. An ordinary read ends at the first bad block; these go on
//! behind it and say what they passed. A node that cannot be read hides all pages below it, and these are
//! passed in one step.
//!
//! Invariant: every walk is bounded by the nodes and blocks that exist, not by a size that an inode claims.
//! Locks: a file's lock is held shared for one step, and not while a caller's function runs.

mod oddities;
mod owners;

use crate::dir::{erased, of_erased};
use crate::error::{Error, Posix, Result};
use crate::map::count::count_blocks;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::{Slot, read_nid, span, subtree};
use crate::tree::Tree;
use crate::types::{DirEntry, FileKind};
use crate::volume::Volume;
use medfs_format::dentry::{Area, AreaLayout, DENTRIES_PER_BLOCK, slots_for};
use medfs_format::hash::dentry_hash;
use medfs_format::node::{Advise, FileFlags};
use medfs_format::path::NodePath;
use medfs_format::{BLOCK_SIZE, COMPRESS_ADDR, FormatError, Ino, NEW_ADDR, NULL_ADDR, Structure, is_block};
use owners::Owners;
use std::ops::Range;

const PAGE: u64 = BLOCK_SIZE as u64;
/// Bytes of a file that are read at a time.
const CHUNK: u64 = 1 << 20;

/// A part of a file, in the order of the file. Holes are left out.
#[derive(Debug)]
pub enum Piece<'a> {
    /// Bytes, and where they begin.
    Data(u64, &'a [u8]),
    /// A range of bytes that cannot be read, and why.
    Lost(Range<u64>, &'a Error),
}

/// A range of a directory that cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Its bytes; none where an entry can be read, and may be wrong.
    pub bytes: Range<u64>,
    /// Why.
    pub error: Error,
}

/// An entry, or a gap.
pub type Listed = Result<DirEntry, Unreadable>;

/// What comes next in a file.
enum Step {
    Data(Range<u64>),
    Hole(u64),
    Lost(Range<u64>, Error),
}

/// A volume, read past damage.
#[derive(Clone, Copy)]
pub struct PastDamage<'v> {
    tree: &'v Tree,
}

impl<'v> PastDamage<'v> {
    /// The same volume.
    pub fn of(volume: &'v Volume) -> PastDamage<'v> {
        PastDamage { tree: &volume.commit }
    }

    /// What a mount does not show, or not whole, because of damage, in sentences: of an inode, or (`None`) of
    /// all that was fsynced since the last checkpoint, or done since the checkpoint that is shown.
    pub fn unrecovered(&self) -> Vec<(Option<Ino>, String)> {
        self.tree.damage.unrecovered()
    }

    /// A newer checkpoint than the one that is shown, of which the second header is missing, as power loss leaves it:
    /// a salvage brings its files where it is complete otherwise.
    pub fn unfinished_checkpoint(&self) -> Option<u64> {
        self.tree.store.unfinished
    }

    /// Whether nodes of a file cannot be read, or lead to blocks of others: they hide pages that are not lost by
    /// that alone. No content is read.
    pub fn hides_pages(&self, ino: Ino) -> Result<bool> {
        let pages = self.tree.getattr(ino)?.size.div_ceil(PAGE);
        let (mut index, mut owners) = (0, Owners::default());
        while index < pages {
            index = match self.next_step(ino, index, &mut owners)? {
                Step::Hole(end) => end,
                Step::Data(pages) => pages.end,
                Step::Lost(..) => return Ok(true),
            };
        }
        Ok(false)
    }

    /// Reads a whole file, or the target of a symbolic link, as far as it can be read: its data in the order
    /// of the file, and the ranges that cannot be read, without its holes. Ends early where `emit` returns
    /// `false`.
    pub fn read(&self, ino: Ino, emit: &mut dyn FnMut(Piece<'_>) -> bool) -> Result<()> {
        let size = self.tree.getattr(ino)?.size;
        let (mut index, mut owners) = (0, Owners::default());
        while index < size.div_ceil(PAGE) {
            let (end, goes_on) = match self.next_step(ino, index, &mut owners)? {
                Step::Hole(end) => (end, true),
                Step::Lost(pages, error) => {
                    let bytes = pages.start * PAGE..pages.end.saturating_mul(PAGE).min(size);
                    (pages.end, emit(Piece::Lost(bytes, &error)))
                }
                Step::Data(pages) => {
                    let bytes = pages.start * PAGE..pages.end.saturating_mul(PAGE).min(size);
                    (pages.end, self.read_run_past_damage(ino, bytes, emit)?)
                }
            };
            if !goes_on {
                return Ok(());
            }
            index = end;
        }
        Ok(())
    }

    /// Reads a range that has data: in large steps, or page by page where such a step fails. `false` where
    /// the caller has enough.
    fn read_run_past_damage(
        &self,
        ino: Ino,
        bytes: Range<u64>,
        emit: &mut dyn FnMut(Piece<'_>) -> bool,
    ) -> Result<bool> {
        let mut buf = vec![0; (bytes.end - bytes.start).min(CHUNK) as usize];
        let mut at = bytes.start;
        while at < bytes.end {
            let len = (bytes.end - at).min(CHUNK) as usize;
            match self.tree.read(ino, at, &mut buf[..len]) {
                Ok(0) => return Ok(true),
                Ok(n) => {
                    if !emit(Piece::Data(at, &buf[..n])) {
                        return Ok(false);
                    }
                    at += n as u64;
                }
                Err(error) if len as u64 > PAGE && self.tree.is_damage(&error) => {
                    for page in (at..at + len as u64).step_by(BLOCK_SIZE) {
                        let end = (page + PAGE).min(bytes.end);
                        if !self.read_run_past_damage(ino, page..end, emit)? {
                            return Ok(false);
                        }
                    }
                    at += len as u64;
                }
                Err(error) if self.tree.is_damage(&error) => {
                    if !emit(Piece::Lost(at..at + len as u64, &error)) {
                        return Ok(false);
                    }
                    at += len as u64;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// How many blocks a file or directory counts as its own beyond those that its nodes lead to: they are missing,
    /// and zeros are read in their place. 0 where nodes cannot be read, which is told of their pages.
    pub fn blocks_missing(&self, ino: Ino) -> Result<u64> {
        let inode = self.tree.inode(ino)?;
        let state = inode.lock.read();
        inode.check_alive(&state)?;
        match count_blocks(self.tree, &inode) {
            Ok(count) => Ok(inode.raw(|r| r.i_blocks.get()).saturating_sub(count)),
            Err(error) if self.tree.is_damage(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Whether a compressed file saves other blocks than it counts: a cluster may have lost its mark, or got one, and
    /// other bytes are read in its place. `false` where nodes cannot be read, which is told of their pages.
    pub fn has_wrong_clusters(&self, ino: Ino) -> Result<bool> {
        let inode = self.tree.inode(ino)?;
        let state = inode.lock.read();
        inode.check_alive(&state)?;
        match self.tree.clusters().saved_beyond_count(&inode) {
            Ok(differs) => Ok(differs.is_some()),
            Err(error) if self.tree.is_damage(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What page `index` is, with those behind it that are the same, as far as one node tells.
    fn next_step(&self, ino: Ino, index: u64, owners: &mut Owners) -> Result<Step> {
        let inode = self.tree.inode(ino)?;
        let state = inode.lock.read();
        inode.check_alive(&state)?;
        if inode.is_inline() || inode.kind() != FileKind::Regular {
            return Ok(Step::Data(index..inode.pages()));
        }
        let slot = match self.tree.find_slot(&inode, index) {
            Ok(Some(slot)) => slot,
            Ok(None) => return Ok(Step::Hole(self.tree.next_existing(&inode, index)?.max(index + 1))),
            Err(error) => return self.lost_below(&inode, index, error),
        };
        let addrs = slot.addrs(usize::MAX);
        let mut end = index;
        let first = match self.has_content(&inode, &state, &slot, index, owners) {
            Ok(first) => first,
            Err(error) if self.tree.is_damage(&error) => return Ok(Step::Lost(index..index + 1, error)),
            Err(error) => return Err(error),
        };
        while end < index + addrs.len() as u64 {
            match slot.step_to(end).map(|slot| self.has_content(&inode, &state, &slot, end, owners)) {
                Some(Ok(next)) if next.is_some() == first.is_some() => end = next.unwrap_or(end + 1),
                _ => break,
            }
        }
        Ok(if first.is_some() { Step::Data(index..end) } else { Step::Hole(end) })
    }

    /// The page behind the content that begins with a page, or `None` for a hole.
    fn has_content(
        &self,
        inode: &Inode,
        state: &InodeState,
        slot: &Slot,
        index: u64,
        owners: &mut Owners,
    ) -> Result<Option<u64>> {
        if let Some(behind) = self.tree.end_of_cluster(inode, slot, index) {
            for slot in (index..behind).filter_map(|page| slot.step_to(page)) {
                owners.check(self.tree, &slot)?;
            }
            return Ok(Some(behind));
        }
        owners.check(self.tree, slot)?;
        let addr = slot.addr();
        if addr == COMPRESS_ADDR {
            let value = "the mark of a compressed cluster, outside of one";
            return Err(FormatError::corrupt(Structure::DirectNode, slot.node.nid, "address", value).into());
        }
        let written = is_block(addr)
            || state.pages.is_dirty(index)
            || (addr == NEW_ADDR && self.tree.deltas().has_delta(inode, index)?);
        Ok(written.then_some(index + 1))
    }

    /// The pages from `index` on that are below the node which cannot be read.
    fn lost_below(&self, inode: &Inode, index: u64, error: Error) -> Result<Step> {
        if !self.tree.is_damage(&error) {
            return Err(error);
        }
        Ok(Step::Lost(index..end_of_unreadable(self.tree, inode, index).max(index + 1), error))
    }

    /// Lists a directory as far as it can be read, `.` and `..` too: its entries, and the ranges of it that
    /// cannot be read, until `emit` returns `false`. Whether an entry names a file is not looked at.
    pub fn readdir(&self, ino: Ino, emit: &mut dyn FnMut(Listed) -> bool) -> Result<()> {
        let dir = self.tree.inode(ino)?;
        if !dir.is_dir() {
            return Err(Posix::NotDirectory.into());
        }
        let mut page = 0;
        while let Some((found, next)) = self.list_page(&dir, page)? {
            for entry in found {
                let hidden = entry.as_ref().is_ok_and(|entry| self.tree.hiding().is_name(ino, &entry.name));
                if !hidden && !emit(entry) {
                    return Ok(());
                }
            }
            page = next;
        }
        Ok(())
    }

    /// What a page of a directory, or of its inode, holds, and the next page to look at; `None` at the end.
    fn list_page(&self, dir: &Inode, page: u64) -> Result<Option<(Vec<Listed>, u64)>> {
        let state = dir.lock.read();
        dir.check_alive(&state)?;
        if page >= dir.pages().max(1) {
            return Ok(None);
        }
        if dir.raw(|r| r.inline().contains(medfs_format::node::Inline::DENTRY)) {
            let range = self.tree.slots(dir).inline_content_range();
            let layout = AreaLayout::inline(range.len());
            let opaque = is_opaque(dir);
            let found = dir.node.read(|d| entries(&Area::new(layout, &d.block.0[range]), 0, dir.ino, opaque));
            return Ok(Some((found, u64::MAX)));
        }
        let lost = |pages: Range<u64>, error: Error| {
            let bytes = pages.start * PAGE..pages.end.saturating_mul(PAGE).min(dir.size());
            Ok(Some((vec![Err(Unreadable { bytes, error })], pages.end)))
        };
        let slot = match self.tree.find_slot(dir, page) {
            Ok(Some(slot)) => slot,
            Ok(None) => return Ok(Some((Vec::new(), self.tree.next_existing(dir, page)?.max(page + 1)))),
            Err(error) if self.tree.is_damage(&error) => {
                return lost(page..end_of_unreadable(self.tree, dir, page).max(page + 1), error);
            }
            Err(error) => return Err(error),
        };
        if slot.addr() == NULL_ADDR && !state.pages.is_dirty(page) {
            return Ok(Some((Vec::new(), page + 1)));
        }
        match self.tree.read_page(dir, &state, page) {
            Ok(block) => {
                if is_block(slot.addr())
                    && let Some(what) = erased(page, &block)
                {
                    return lost(page..page + 1, of_erased(slot.addr(), what));
                }
                let area = Area::new(AreaLayout::BLOCK, &block.0[..]);
                Ok(Some((entries(&area, page, dir.ino, is_opaque(dir)), page + 1)))
            }
            Err(error) if self.tree.is_damage(&error) => lost(page..page + 1, error),
            Err(error) => Err(error),
        }
    }

    /// The inodes from a number on that the volume has, whether they have a name or not, and the errors of blocks and
    /// entries of the NAT that cannot be read. What lost its last name in what was rolled forward is not among them.
    pub fn inodes(&self, from: Ino) -> impl Iterator<Item = Result<Ino>> + use<'v> {
        let tree = self.tree;
        let is_shown = move |ino| {
            !(tree.hiding().contains(ino) || tree.retained.contains(ino) || tree.damage.is_removed(ino))
        };
        let found = tree.nat.inodes(&tree.io, from).map(|found| Ok(found?));
        found.filter(move |found| found.as_ref().map_or(true, |&ino| is_shown(ino)))
    }

    /// How many inodes the checkpoint counts beyond those that the NAT leads to: entries are lost, as where the
    /// journals of a checkpoint are zeros.
    pub fn inodes_missing(&self) -> Result<u32> {
        let found =
            self.tree.nat.inodes(&self.tree.io, 0).try_fold(0, |found, ino| ino.map(|_| found + 1))?;
        Ok(self.tree.space.counts().valid_inodes.saturating_sub(found))
    }

    /// The same where both journals of the checkpoint are empty, as lost ones are; otherwise 0, without a look at the
    /// whole table.
    pub fn inodes_lost_with_journals(&self) -> Result<u32> {
        let nat_is_empty = self.tree.cp.lock().nat_journal.nat_entries().is_ok_and(<[_]>::is_empty);
        let are_empty = nat_is_empty && self.tree.segs.lock().has_empty_journal();
        if are_empty { self.inodes_missing() } else { Ok(0) }
    }

    /// Whether an inode is one of the volume's own, which it says itself or, where it cannot be read, its entry: a
    /// volume that is opened to read does not look for all of them.
    pub fn is_hidden(&self, ino: Ino) -> bool {
        match self.own_name(ino) {
            Ok((dir, name)) => self.tree.hiding().is_name(dir, &name),
            Err(_) => self.hidden_by_name().any(|hidden| hidden == ino),
        }
    }

    /// The inodes that hold the volume's own records, as far as the root directory leads to them.
    pub fn hidden_by_name(&self) -> impl Iterator<Item = Ino> {
        self.tree.hidden().by_name().into_iter().flatten()
    }

    /// The directory that an inode is in and the last name that it was given, as it says itself: a hint. The
    /// name is empty where it says none.
    pub fn own_name(&self, ino: Ino) -> Result<(Ino, Vec<u8>)> {
        Ok(self.tree.inode(ino)?.raw(|r| {
            let name = r.i_name.get(..r.i_namelen.get() as usize).unwrap_or_default();
            let fits = name != b"." && name != b".." && !name.iter().any(|&b| b == 0 || b == b'/');
            (r.i_pino.get(), if fits { name.to_vec() } else { Vec::new() })
        }))
    }
}

/// Whether the names of a directory are kept in a form whose hash is not that of their bytes.
fn is_opaque(dir: &Inode) -> bool {
    dir.raw(|r| r.advise().contains(Advise::ENCRYPT) || r.flags().contains(FileFlags::CASEFOLD))
}

/// The entries of an area; one of impossible length is passed by its first slot, and one whose hash is that
/// of another name is a gap too.
fn entries(area: &Area<&[u8]>, page: u64, dir: Ino, opaque: bool) -> Vec<Listed> {
    let mut found = Vec::new();
    let mut slot = 0;
    while slot < area.slots() {
        // The slots behind the first of a name carry no length.
        if !area.in_use(slot) || area.raw(slot).name_len.get() == 0 {
            slot += 1;
            continue;
        }
        match area.entry(slot, u64::from(dir)) {
            Ok(entry) => {
                slot += slots_for(entry.name.len());
                let dots = entry.name == b"." || entry.name == b"..";
                if !opaque && !dots && dentry_hash(entry.name) != entry.hash {
                    let (name, hash) = (entry.name.escape_ascii(), entry.hash);
                    let value = format!("{hash:#010x}, which is that of another name than {name}");
                    let error = FormatError::corrupt(Structure::Dentry, dir, "hash_code", value).into();
                    found.push(Err(Unreadable { bytes: 0..0, error }));
                }
                found.push(Ok(DirEntry {
                    ino: entry.ino,
                    kind: entry.kind,
                    name: entry.name.to_vec(),
                    next: page * DENTRIES_PER_BLOCK as u64 + slot as u64,
                }));
            }
            Err(error) => {
                slot += 1;
                let bytes = page * PAGE..(page + 1) * PAGE;
                found.push(Err(Unreadable { bytes, error: error.into() }));
            }
        }
    }
    found
}

/// The page behind those below the node on the way to page `index` that cannot be read; `index` where all can be.
fn end_of_unreadable(tree: &Tree, inode: &Inode, index: u64) -> u64 {
    let fanout = tree.slots(inode).fanout();
    let Some(path) = NodePath::of(index, fanout) else { return u64::MAX };
    let mut parent = inode.node.clone();
    for level in 1..=path.depth {
        let child_index = if level == 1 { path.inode_nid() } else { path.child_index(level - 1) };
        match tree.child(inode, read_nid(&parent, child_index), path.node_offset(level)) {
            Ok(child) => parent = child,
            Err(_) => {
                let below = span(fanout, (path.depth - level) as u32);
                let base = fanout.inode + subtree(fanout, path.inode_nid()).2;
                return base + (index - base) / below * below + below;
            }
        }
    }
    index
}
