//! The entries of a directory, each of which the walk follows.

use crate::damaged::LostFile;
use crate::dir::judge_level_by_block;
use crate::file::{DirWalk, FileWalk};
use crate::finding::Code;
use crate::judgement::Judgement;
use crate::lengths::{folded_name, hash_in, mend_length, put_again, slots_taken};
use crate::names::{level_of, own_name, right_place};
use crate::own_list::is_own;
use crate::reach::{Entry, Verdict, Via};
use crate::walk::Walker;
use medfs_format::Ino;
use medfs_format::dentry::{Area, AreaLayout, SLOT_LEN, slots_for};
use medfs_format::hash::dentry_hash;
use medfs_format::node::{FileKind, Inline, RawInode};
use std::hash::BuildHasher;
use std::io;

/// Names without an inode that are kept; the rest is counted.
const MOST_NAMES: usize = 10_000;
/// Bytes of a path, four times what Linux takes: directories may lead in a circle.
const LONGEST_PATH: usize = 16384;

/// What an entry says beside its name.
struct Read {
    target: Ino,
    kind: Option<FileKind>,
    /// The directory's page that it is in, where that is not the inode.
    page: Option<u64>,
    hash: u32,
}

/// How messages name the kind that an entry says.
fn shown_kind(kind: Option<FileKind>) -> String {
    kind.map_or("of no kind".into(), |kind| format!("{kind:?}"))
}

/// How messages name an entry.
fn shown_place(dir: Ino, page: Option<u64>, slot: usize, name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    match page {
        Some(page) => format!("directory {dir}, page {page}, slot {slot}, \"{name}\""),
        None => format!("directory {dir}, inline slot {slot}, \"{name}\""),
    }
}

/// What speaks against an entry.
#[derive(Clone, Copy)]
struct Doubts {
    /// It was written for another name.
    is_cut: bool,
    /// Its block is another directory's.
    is_others: bool,
}

/// The kind of an inode that an entry names, where it has another name and this one is none of its: a directory has one
/// name, and so has a file with one link.
fn placed_elsewhere(
    w: &mut Judgement<'_>,
    ino: Ino,
    (dir, name): Entry<'_>,
    Doubts { is_cut, is_others }: Doubts,
) -> io::Result<Option<FileKind>> {
    let addr = if w.image.g.is_nid(ino) { w.image.nat(ino)?.block_addr.get() } else { 0 };
    // How many names a file had that is made anew is not known.
    if !w.image.g.in_main(addr) || w.anew.files.contains(&ino) {
        return Ok(None);
    }
    let inode: &RawInode = w.image.cache.get(addr)?.view();
    let directory = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Directory);
    if !(directory || is_cut || inode.i_links.get() == 1)
        || (inode.i_pino.get(), own_name(inode)) == (dir, Some(name))
    {
        return Ok(None);
    }
    let Some(claim) = w.claim_of(ino)? else { return Ok(None) };
    // A file that was moved may say where it was before: there no entry leads to it any more, but in an older block.
    let is_sure = claim.sure || is_others && claim.links == 1;
    if !is_sure || claim.parent == ino {
        // One of several names, which it does not know: its number of links tells in the end.
        let may_lack_this = is_cut && claim.links > 1 && claim.kind != FileKind::Directory;
        return Ok(may_lack_this.then_some(claim.kind));
    }
    // Once its flipped bit is turned back.
    let one_name = claim.kind == FileKind::Directory || is_cut || claim.links == 1;
    if (claim.parent, &claim.name[..]) == (dir, name) || !one_name {
        return Ok(None);
    }
    let Some((_, block)) = w.readable_inode(claim.parent)? else { return Ok(None) };
    let above: &RawInode = block.view();
    let above = FileKind::from_mode(above.i_mode.get()) == Some(FileKind::Directory);
    Ok((above && w.find(claim.parent, &claim.name)? == Some(ino)).then_some(claim.kind))
}

/// Notes an entry that goes, where no inode that can be read stands behind it.
pub(crate) fn note_lost(w: &mut Judgement<'_>, dir: Ino, name: &[u8], target: Ino) -> io::Result<()> {
    if !leads_nowhere(w, target)? {
        return Ok(());
    }
    if is_own(w, dir, name) {
        w.told.insert(target);
        w.own_lost += 1;
        return Ok(());
    }
    let path = if w.lost.len() < MOST_NAMES { path_below(w, dir, name)? } else { Vec::new() };
    add_lost(w, path, target);
    Ok(())
}

/// Adds a lost file, whose path is told while there are not too many.
pub(crate) fn add_lost(w: &mut Judgement<'_>, path: Vec<u8>, ino: Ino) {
    w.losses.lost += 1;
    w.told.insert(ino);
    if w.lost.len() < MOST_NAMES {
        w.lost.push(LostFile { path, ino });
    }
}

/// Whether no inode that can be read has this number.
pub(crate) fn leads_nowhere(w: &mut Judgement<'_>, target: Ino) -> io::Result<bool> {
    Ok(!w.image.g.is_nid(target) || !w.space.nid_reached(target) && w.claim_of(target)?.is_none())
}

/// Takes back that a name was lost: another inode than the entry led to says that it is its own.
pub(crate) fn is_found(w: &mut Judgement<'_>, dir: Ino, name: &[u8]) -> io::Result<()> {
    if w.lost.is_empty() {
        return Ok(());
    }
    let path = path_below(w, dir, name)?;
    if let Some(at) = w.lost.iter().position(|lost| lost.path == path) {
        w.lost.remove(at);
        w.losses.lost -= 1;
    }
    Ok(())
}

/// The path of a name in a directory, as the inodes on the way say it, or the entries of those that are made anew; from
/// `inode N` on where nothing leads further up.
pub(crate) fn path_below(w: &mut Judgement<'_>, dir: Ino, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut names = vec![name.to_vec()];
    let (mut at, mut top, mut len) = (dir, Vec::new(), name.len());
    while at != w.image.g.root_ino {
        let place = if len < LONGEST_PATH { place_of(w, at)? } else { None };
        let Some((above, name)) = place else {
            top = LostFile::nameless(at);
            break;
        };
        len += 1 + name.len();
        names.push(name);
        at = above;
    }
    names.push(top);
    names.reverse();
    Ok(names.join(&b'/'))
}

/// The directory of an inode, and its name there: by the entry that led to it where it is made anew, and otherwise as
/// it says itself.
pub(crate) fn place_of(w: &mut Judgement<'_>, ino: Ino) -> io::Result<Option<(Ino, Vec<u8>)>> {
    if let Some(place) = w.anew.places.get(&ino) {
        return Ok(Some(place.clone()));
    }
    let Some((_, block)) = w.readable_inode(ino)? else { return Ok(None) };
    let inode: &RawInode = block.view();
    Ok(own_name(inode).map(|name| (inode.i_pino.get(), name.to_vec())))
}

/// Whether a name holds what none may, or is not in the bucket of its hash.
fn is_misnamed(w: &mut Judgement<'_>, name: &[u8], page: Option<u64>, dir_level: u8, place: &str) -> bool {
    if name.iter().any(|&b| b == 0 || b == b'/') {
        w.findings.add(Code::DentryName, format!("{place}: the name holds an invalid byte"));
        return true;
    }
    let is_misplaced = page.is_some_and(|page| !right_place(dentry_hash(name), page, dir_level));
    if is_misplaced {
        w.findings.add(Code::DentryPlace, format!("{place}: not in the bucket of its hash"));
    }
    is_misplaced
}

/// Whether the entry of the list of slices leads to an inode that can be read and is not that list, a file whose
/// content is in the inode.
fn is_no_list(w: &mut Judgement<'_>, (dir, name): (Ino, &[u8]), ino: Ino, place: &str) -> io::Result<bool> {
    if !w.maker().is_own_list(dir, name) {
        return Ok(false);
    }
    let Some((_, block)) = w.readable_inode(ino)? else { return Ok(false) };
    let inode: &RawInode = block.view();
    let is_file = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Regular);
    if is_file && inode.inline().contains(Inline::DATA) {
        return Ok(false);
    }
    let text = format!("{place}: inode {ino} is not the list that medfs keeps: a repair makes that anew");
    w.findings.add(Code::DentryInode, text);
    w.orphans.insert(ino); // nobody else's
    Ok(true)
}

/// The name that an entry had which has another one: one bit of it is flipped, or its inode knows it.
fn right_name(
    j: &mut Judgement<'_>,
    dir: &DirWalk,
    (ino, name): Entry<'_>,
    &Read { target, page, hash, .. }: &Read,
    place: &str,
) -> io::Result<Option<Vec<u8>>> {
    if dir.opaque {
        return Ok(dir.folds.then(|| folded_name(&mut j.findings, name, hash, place)).flatten());
    }
    match j.name_of_hash(name, hash, page, dir.dir_level, place) {
        None => name_of_inode(j, target, (ino, name), hash, place),
        right => Ok(right),
    }
}

/// The name that an inode says is its own in a directory, where the hash of its entry there is that one's, and not that
/// of the name that the entry has.
fn name_of_inode(
    j: &mut Judgement<'_>,
    ino: Ino,
    (dir, name): Entry<'_>,
    hash: u32,
    place: &str,
) -> io::Result<Option<Vec<u8>>> {
    if (hash ^ dentry_hash(name)).count_ones() < 2 {
        return Ok(None);
    }
    let claim = j.claim_of(ino)?.filter(|claim| claim.sure && claim.parent == dir);
    let own = claim.map(|claim| claim.name).filter(|own| own != name && dentry_hash(own) == hash);
    if let Some(own) = &own {
        let own = String::from_utf8_lossy(own);
        let text = format!("{place}: its hash is that of {own:?}, which inode {ino} says is its name here");
        j.findings.add(Code::DentryHash, text);
    }
    Ok(own)
}

impl Walker<'_, '_> {
    /// Judges an area of entries; `page` where it is a block. Returns whether `bytes` was changed.
    pub(crate) fn dentries(
        &mut self,
        f: &mut FileWalk,
        bytes: &mut [u8],
        page: Option<u64>,
    ) -> io::Result<bool> {
        let mut dir = f.dir.take().expect("called for directories");
        if let Some(page) = page {
            judge_level_by_block(self, &mut dir, f.ino, page, bytes);
        }
        let result = self.area(&mut dir, f.ino, bytes, page);
        f.dir = Some(dir);
        result
    }

    fn area(&mut self, dir: &mut DirWalk, ino: Ino, bytes: &mut [u8], page: Option<u64>) -> io::Result<bool> {
        let layout = if page.is_some() { AreaLayout::BLOCK } else { AreaLayout::inline(bytes.len()) };
        let mut area = Area::new(layout, bytes);
        let mut changed = false;
        let mut used = false;
        let mut slot = 0;
        while slot < area.slots() {
            if !area.in_use(slot) {
                slot += 1;
                continue;
            }
            changed |= mend_length(&mut self.findings, dir, (ino, page), &mut area, slot);
            let (mut name, hash, target, kind) = match area.entry(slot, u64::from(ino)) {
                Ok(e) => (e.name.to_vec(), e.hash, e.ino, e.kind),
                Err(e) => {
                    self.findings.add(Code::DentryLength, format!("directory {ino}: {e}"));
                    area.remove(slot, 1);
                    changed = true;
                    slot += 1;
                    continue;
                }
            };
            let place = shown_place(ino, page, slot, &name);
            let read = Read { target, kind, page, hash };
            let right = right_name(self, dir, (ino, &name), &read, &place)?;
            if let Some(right) = right.filter(|right| slots_for(right.len()) == slots_for(name.len())) {
                if let Some(kind) = kind {
                    put_again(&mut area, slot, (&right, hash), target, kind);
                    changed = true;
                }
                name = right;
            }
            let outcome = match name.as_slice() {
                b"." => self.dot(dir, 0, ino, target, kind, &place),
                // Where it was before it was removed: any directory.
                b".." if dir.is_orphan() => self.dot(dir, 1, target, target, kind, &place),
                b".." => self.dot(dir, 1, dir.parent, target, kind, &place),
                _ => self.entry(dir, (ino, &name), &read, &place)?,
            };
            let right_hash = hash_in(dir, &name).unwrap_or(hash);
            let taken = slots_taken(dir, &area, slot, &name);
            match outcome {
                None => {
                    area.remove(slot, taken * SLOT_LEN);
                    changed = true;
                }
                Some((target_now, kind_now)) => {
                    used = true;
                    if hash != right_hash {
                        let text = format!("{place}: hash {hash:#010x}, not {right_hash:#010x}");
                        self.findings.add(Code::DentryHash, text);
                        put_again(&mut area, slot, (&name, right_hash), target_now, kind_now);
                        changed = true;
                    }
                    if (target_now, Some(kind_now)) != (target, kind) {
                        area.set_target(slot, target_now, kind_now);
                        changed = true;
                    }
                }
            }
            slot += taken;
        }
        if let (true, Some(page)) = (used, page) {
            dir.depth = dir.depth.max(level_of(page, dir.dir_level) + 1);
        }
        if page.unwrap_or(0) == 0 {
            changed |= self.restore_dots(dir, ino, &mut area);
        }
        Ok(changed)
    }

    /// An ordinary entry; `None` where it must go.
    fn entry(
        &mut self,
        dir: &mut DirWalk,
        (ino, name): Entry<'_>,
        &Read { target, kind, page, hash }: &Read,
        place: &str,
    ) -> io::Result<Option<(Ino, FileKind)>> {
        let is_plain = !dir.opaque || dir.folds;
        if is_plain && is_misnamed(self, name, page.filter(|_| !dir.opaque), dir.dir_level, place) {
            return Ok(None);
        }
        let second = foldhash::fast::FixedState::with_seed(0x6d65_6466).hash_one(name);
        let key = (dentry_hash(name), second);
        if dir.names.contains(&key) {
            self.findings.add(Code::DentryTwice, format!("{place}: a second entry of this name"));
            return Ok(None);
        }
        // Its hash is that of another name, and not by a flipped bit: two entries were cut into one.
        let is_cut = !dir.opaque && (hash ^ dentry_hash(name)).count_ones() > 1;
        if is_cut && name_of_inode(self, target, (ino, name), hash, place)?.is_some() {
            return Ok(None); // it does not fit here: the file goes back under its own name
        }
        let doubts = Doubts { is_cut, is_others: dir.is_others };
        match placed_elsewhere(self, target, (ino, name), doubts)? {
            None => {}
            Some(FileKind::Directory) => {
                let text = format!("{place}: directory {target} has its name elsewhere");
                self.findings.add(Code::DirectoryTwice, text);
                return Ok(None);
            }
            Some(is) => {
                let why = if is_cut { "the hash is another name's" } else { "it has one link" };
                let text = format!("{place}: file {target} has its name elsewhere, and {why}");
                self.findings.add(Code::DentryForeign, text);
                self.foreign.add(ino, name, target, kind);
                dir.names.insert(key);
                dir.subdirs += u32::from(kind == Some(FileKind::Directory));
                return Ok(Some((target, kind.unwrap_or(is)))); // until the end of the walk
            }
        }
        if is_no_list(self, (ino, name), target, place)? {
            return Ok(None);
        }
        let mut verdict = self.visit(target, (ino, name), Via::Dentry(kind), place)?;
        if verdict == Verdict::Rejected && kind == Some(FileKind::Directory) {
            verdict = self.maker().renew_directory(target, ino, name, place)?;
            self.directories += u64::from(verdict != Verdict::Rejected);
        }
        if verdict == Verdict::Rejected
            && kind == Some(FileKind::Regular)
            && let Some((addr, mut block)) = self.maker().file_of_remains(target, ino, name, place)?
        {
            verdict = self.accept(target, addr, &mut block, ino, Via::Dentry(kind), place)?;
        }
        match verdict {
            Verdict::Rejected => note_lost(self, ino, name, target).map(|()| None),
            Verdict::Accepted(is) => {
                if kind != Some(is) {
                    self.findings.add(
                        Code::DentryType,
                        format!("{place}: type {}, but inode {target} is {is:?}", shown_kind(kind)),
                    );
                }
                dir.names.insert(key);
                dir.subdirs += u32::from(is == FileKind::Directory);
                Ok(Some((target, is)))
            }
        }
    }
}
