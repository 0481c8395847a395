//! What nothing refers to gets a name again: its own in its own directory, where that fits, or else a number
//! in lost+found.
//!
//! Directories come before files, and parents before their children, as a directory that has a name again
//! reaches what its entries name. Memory: two bits for each node id, and an entry for each directory on the
//! way up from one of them.
//!
//! Invariant: an inode that reads is never freed. Where the volume has no room for a name it is kept without one.

use crate::entries::{lead_entry_to, remove_entry};
use crate::entry_walk::{is_found, leads_nowhere, note_lost};
use crate::head::Heads;
use crate::lost_names;
use crate::names::{is_encrypted, is_opaque, own_name};
use crate::reach::{Claim, Entry, Verdict, Via};
use crate::slices::Nids;
use crate::untold;
use crate::walk::Walker;
use foldhash::{HashSet, HashSetExt};
use medfs_format::node::{FileKind, NAME_LEN, RawInode};
use medfs_format::superblock::Feature;
use medfs_format::{Ino, Nid};
use std::io;

const NAME: &[u8] = b"lost+found";
/// Names tried for lost+found, where one is taken by something else, and for a number in it.
const NAMES_TRIED: u32 = 100;
/// How messages say where a file was met that no entry names.
const NO_ENTRY: &str = "without a name";

/// Which way a file came to have no name, and which way it goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Into its own directory, under its own name.
    Back,
    /// The same, when that directory was made anew.
    Anew,
    /// To its own entry, which leads to another file.
    Instead,
    /// To lost+found.
    Lost,
}

impl Walker<'_, '_> {
    /// Gives every unreached inode that can be read a name.
    pub(crate) fn rescue(&mut self) -> io::Result<()> {
        for ino in self.lost_but_in_log()? {
            self.maker().inode_of_log(ino, NO_ENTRY)?;
        }
        let (dirs, files) = self.nameless()?;
        for waiting in [&dirs, &files] {
            for nid in waiting.iter() {
                self.bring_back(nid, &dirs)?;
            }
        }
        for ino in self.lost_inodes()? {
            self.bring_back_remains(ino)?;
        }
        Ok(())
    }

    /// Counts what [`Walker::rescue`] would do, without doing it.
    pub(crate) fn foresee_rescue(&mut self) -> io::Result<()> {
        let (dirs, files) = self.nameless()?;
        for waiting in [&dirs, &files] {
            for nid in waiting.iter() {
                for nid in self.way_down_to(nid, &dirs)? {
                    self.foresee(nid)?;
                }
            }
        }
        for ino in self.lost_but_in_log()? {
            self.maker().inode_of_log(ino, NO_ENTRY)?;
            self.losses.renamed += 1;
        }
        let root = self.image.g.root_ino;
        for ino in self.lost_inodes()? {
            let found = self.maker().file_of_remains(ino, root, &[], NO_ENTRY)?;
            if found.is_some() {
                self.losses.nameless += 1;
                self.j.nameless.insert(ino);
            }
        }
        untold::tell(self)
    }

    /// Counts what becomes of a file without a name, and walks what it holds.
    fn foresee(&mut self, nid: Nid) -> io::Result<()> {
        let Some(claim) = self.claim_of(nid)?.filter(|_| !self.space.nid_reached(nid)) else { return Ok(()) };
        if self.foreign.led.contains(&nid) {
            self.losses.renamed += 1;
            return Ok(());
        }
        let way = self.way(nid, &claim)?;
        if way == Way::Anew {
            self.renew_in_lost_and_found(claim.parent)?;
        }
        if self.visit(nid, (claim.parent, b""), Via::Dentry(None), NO_ENTRY)? == Verdict::Rejected {
            return note_lost(self, claim.parent, &claim.name, nid);
        }
        self.drain()?;
        match way {
            Way::Back | Way::Instead => is_found(self, claim.parent, &claim.name)?,
            Way::Anew | Way::Lost => {}
        }
        if way == Way::Lost {
            self.j.nameless.insert(nid);
        }
        *(if way == Way::Lost { &mut self.losses.nameless } else { &mut self.losses.renamed }) += 1;
        Ok(())
    }

    /// Lost inodes that no entry names, of which the fsync log has newer versions.
    fn lost_but_in_log(&mut self) -> io::Result<Vec<Ino>> {
        let mut lost = Vec::new();
        let mut logged: Vec<Ino> = self.logged.keys().copied().collect();
        logged.sort_unstable();
        for ino in logged {
            let entry = self.image.nat(ino)?;
            let is_lost = entry.ino.get() == ino && self.image.is_lost_node(ino, entry.block_addr.get())?;
            if is_lost && self.maker().is_lost(ino)? {
                lost.push(ino);
            }
        }
        Ok(lost)
    }

    /// Lost inodes that no entry names, of files of which something is left.
    fn lost_inodes(&mut self) -> io::Result<Vec<Ino>> {
        let mut lost = Vec::new();
        if self.image.features.contains(Feature::ENCRYPT) {
            return Ok(lost); // their keys are lost too
        }
        self.unreached(|w, nid| {
            if w.maker().leaves_a_file(nid)? {
                lost.push(nid);
            }
            Ok(())
        })?;
        Ok(lost)
    }

    /// Makes a file anew whose inode is lost and that no entry names, in lost+found.
    fn bring_back_remains(&mut self, ino: Ino) -> io::Result<()> {
        let home = if self.names { self.lost_and_found()? } else { None };
        let mut to = None;
        if let Some(home) = home
            && let Some(name) = self.free_name(home, ino.to_string().as_bytes())?
            && let Some(spot) = self.maker().room_in(home, &name)?
        {
            to = Some((home, name, spot));
        }
        let kind = FileKind::Regular;
        let (parent, name, via) = match &to {
            Some((home, name, _)) => (*home, &name[..], Via::Dentry(Some(kind))),
            None => (self.image.g.root_ino, &[][..], Via::Superblock),
        };
        let Some((addr, mut block)) = self.maker().file_of_remains(ino, parent, name, NO_ENTRY)? else {
            return Ok(());
        };
        if self.accept(ino, addr, &mut block, parent, via, NO_ENTRY)? == Verdict::Rejected {
            return Ok(());
        }
        let named = match to {
            Some((home, name, spot)) => self.maker().put(home, spot, &name, ino, kind)?,
            None => false,
        };
        if named { Ok(()) } else { self.keep_nameless() }
    }

    /// The directories that nothing reached, and the other files.
    fn nameless(&mut self) -> io::Result<(Nids, Nids)> {
        let (mut dirs, mut files) = (Nids::default(), Nids::default());
        self.unreached(|w, nid| {
            if w.orphans.contains(&nid) {
                return Ok(());
            }
            if Heads(w).forget_headless(nid)? {
                return Ok(()); // it is made again from what is left
            }
            let claim = w.claim_of(nid)?;
            // A directory of that number may be made anew.
            w.supply.nids.extend(claim.as_ref().map(|claim| claim.parent));
            match claim.map(|claim| claim.kind) {
                Some(FileKind::Directory) => dirs.insert(nid),
                Some(_) => files.insert(nid),
                None => {}
            }
            Ok(())
        })?;
        Ok((dirs, files))
    }

    /// Where a file without a name goes.
    fn way(&mut self, nid: Nid, claim: &Claim) -> io::Result<Way> {
        let parent = claim.parent;
        if !claim.sure || parent == nid || !self.image.g.is_nid(parent) {
            return Ok(Way::Lost);
        }
        if self.maker().is_planned(parent) {
            return Ok(Way::Back);
        }
        if !self.space.nid_reached(parent) {
            return Ok(if self.maker().is_lost(parent)? { Way::Anew } else { Way::Lost });
        }
        let Some((_, block)) = self.readable_inode(parent)? else { return Ok(Way::Lost) };
        let inode: &RawInode = block.view();
        let may = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Directory) && !is_opaque(inode);
        if !may {
            return Ok(Way::Lost);
        }
        let file = claim.kind != FileKind::Directory;
        // It may have been removed: under its own name, a database would replay an old journal.
        if file && lost_names::may_be_removed(self, nid, parent) {
            return Ok(Way::Lost);
        }
        Ok(match self.find(parent, &claim.name)? {
            None => Way::Back,
            Some(other) if leads_nowhere(self, other)? => Way::Back, // which goes, or has gone
            Some(_) if self.foreign.has(parent, &claim.name) => Way::Instead,
            Some(other) if file && is_mistaken(self, other, parent, &claim.name)? => Way::Instead,
            Some(_) => Way::Lost,
        })
    }

    /// A file, behind the directories without a name that it says it is in, from the uppermost on.
    fn way_down_to(&mut self, nid: Nid, dirs: &Nids) -> io::Result<Vec<Nid>> {
        let mut on_path = HashSet::new();
        let mut path = Vec::new();
        let mut next = nid;
        // Up to one that has a name, or was met before: parents can make a circle.
        while !self.space.nid_reached(next) && !on_path.contains(&next) {
            let Some(claim) = self.claim_of(next)? else { break };
            path.push(next);
            if !dirs.contains(claim.parent) {
                break;
            }
            on_path.insert(next);
            next = claim.parent;
        }
        path.reverse();
        Ok(path)
    }

    /// Gives a file a name, after the directories without one that it says it is in.
    fn bring_back(&mut self, nid: Nid, dirs: &Nids) -> io::Result<()> {
        for nid in self.way_down_to(nid, dirs)? {
            if !self.space.nid_reached(nid) {
                self.give_name(nid)?;
            }
        }
        Ok(())
    }

    fn give_name(&mut self, nid: Nid) -> io::Result<()> {
        let Some(claim) = self.claim_of(nid)? else { return Ok(()) };
        let mut way = self.way(nid, &claim)?;
        if way == Way::Instead {
            return set_right(self, claim.parent, &claim.name, nid, claim.kind);
        }
        if !self.names {
            return self.hold(nid, claim.parent);
        }
        if way == Way::Anew {
            self.renew_in_lost_and_found(claim.parent)?;
            way = self.way(nid, &claim)?;
        }
        if way == Way::Back
            && let Some(named) = self.adopt(claim.parent, &claim.name, nid, claim.kind)?
        {
            return if named { Ok(()) } else { self.keep_nameless() };
        }
        let Some(home) = self.lost_and_found()?.filter(|&home| home != nid) else {
            return self.hold(nid, claim.parent);
        };
        let Some(name) = self.free_name(home, nid.to_string().as_bytes())? else {
            return self.hold(nid, claim.parent);
        };
        match self.adopt(home, &name, nid, claim.kind)? {
            Some(true) => Ok(()),
            Some(false) => self.keep_nameless(),
            None => self.hold(nid, claim.parent),
        }
    }

    /// Names an unreached inode in a directory; `None` where that has no room, `Some(false)` where its block
    /// ran out when the inode was taken already.
    fn adopt(&mut self, home: Ino, name: &[u8], nid: Nid, kind: FileKind) -> io::Result<Option<bool>> {
        let Some(spot) = self.maker().room_in(home, name)? else { return Ok(None) };
        if self.visit(nid, (home, b""), Via::Dentry(None), "lost+found")? == Verdict::Rejected {
            note_lost(self, home, name, nid)?;
            return Ok(Some(true));
        }
        let named = self.maker().put(home, spot, name, nid, kind)?;
        let addr = self.image.nat(nid)?.block_addr.get();
        let mut block = self.image.cache.read(addr)?;
        let inode: &mut RawInode = block.view_mut();
        if named && (inode.i_pino.get(), own_name(inode)) != (home, Some(name)) {
            inode.i_pino = home.into();
            inode.i_namelen = (name.len() as u32).into();
            inode.i_name = [0; NAME_LEN];
            inode.i_name[..name.len()].copy_from_slice(name);
            self.write_inode(addr, &mut block)?;
        }
        self.drain()?;
        Ok(Some(named))
    }

    /// Keeps an inode that can have no name, with all that it holds, and the directory in which it says it was.
    fn hold(&mut self, nid: Nid, parent: Ino) -> io::Result<()> {
        let is_possible = self.image.g.is_nid(parent) && parent != nid;
        let parent = if is_possible { parent } else { self.image.g.root_ino };
        if self.visit(nid, (parent, b""), Via::Superblock, "a file without a name")? == Verdict::Rejected {
            return Ok(());
        }
        self.drain()?;
        self.keep_nameless()
    }

    fn keep_nameless(&mut self) -> io::Result<()> {
        self.held.count += 1;
        Ok(())
    }

    /// A name that nothing in a directory has, made of another one.
    pub(crate) fn free_name(&mut self, dir: Ino, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
        for i in 0..NAMES_TRIED {
            let mut tried = name.to_vec();
            if i > 0 {
                tried.extend_from_slice(format!(".{i}").as_bytes());
            }
            if self.find(dir, &tried)?.is_none() {
                return Ok(Some(tried));
            }
        }
        Ok(None)
    }

    /// lost+found, made where it is missing; `None` where that is impossible.
    pub(crate) fn lost_and_found(&mut self) -> io::Result<Option<Ino>> {
        if let Some(home) = self.home {
            return Ok(Some(home));
        }
        let root = self.image.g.root_ino;
        let Some((_, block)) = self.readable_inode(root)? else { return Ok(None) };
        if is_encrypted(block.view()) {
            self.held.sealed_root = true;
            return Ok(None);
        }
        for i in 0..NAMES_TRIED {
            let mut name = NAME.to_vec();
            if i > 0 {
                name.extend_from_slice(format!(".{i}").as_bytes());
            }
            let home = match self.find(root, &name)? {
                Some(ino) => self.is_home(ino)?.then_some(ino),
                None => {
                    return self.maker().make_directory(root, &name, None).inspect(|home| self.home = *home);
                }
            };
            if home.is_some() {
                self.home = home;
                return Ok(home);
            }
        }
        Ok(None)
    }

    fn is_home(&mut self, ino: Ino) -> io::Result<bool> {
        if !self.image.g.is_nid(ino) || !self.space.nid_reached(ino) {
            return Ok(false);
        }
        let Some((_, block)) = self.readable_inode(ino)? else { return Ok(false) };
        let inode: &RawInode = block.view();
        Ok(FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Directory) && !is_encrypted(inode))
    }
}

/// Whether an inode that an entry names is there by mistake.
fn is_mistaken(w: &mut Walker<'_, '_>, ino: Ino, dir: Ino, name: &[u8]) -> io::Result<bool> {
    if w.links.get(&ino).is_none_or(|links| links.found <= links.claimed) {
        return Ok(false);
    }
    let Some((_, block)) = w.readable_inode(ino)? else { return Ok(false) };
    let inode: &RawInode = block.view();
    Ok((inode.i_pino.get(), own_name(inode)) != (dir, Some(name)))
}

/// Lets an entry lead to the file that it belongs to.
fn set_right(w: &mut Walker<'_, '_>, dir: Ino, name: &[u8], ino: Ino, kind: FileKind) -> io::Result<()> {
    let Some(mistaken) = w.find(dir, name)? else { return Ok(()) };
    lead_entry_to(w, dir, name, ino, kind)?;
    let foreign = w.foreign.entries.remove(&(dir, name.to_vec())).is_some();
    if let Some(links) = w.links.get_mut(&mistaken).filter(|_| !foreign) {
        links.found -= 1;
    }
    w.visit(ino, (dir, name), Via::Dentry(Some(kind)), "an entry with another inode's number")?;
    w.drain()
}

/// Lets entries with another file's number lead to the one that lacks a name and whose number is a flipped bit away.
pub(crate) fn lead_foreign(w: &mut Walker<'_, '_>) -> io::Result<()> {
    let entries: Vec<_> = w.foreign.entries.iter().map(|(place, lead)| (place.clone(), *lead)).collect();
    for ((dir, name), (target, kind)) in entries {
        if is_lacking(w, target, (dir, &name), kind)? {
            w.foreign.entries.remove(&(dir, name));
            continue;
        }
        let mut meant = Vec::new();
        for bit in 0..Ino::BITS {
            meant.extend(may_be_meant(w, target ^ 1 << bit, dir, &name, kind)?);
        }
        let surest = meant.iter().map(|meant| meant.sure).max().unwrap_or_default();
        meant.retain(|meant| meant.sure == surest);
        let [Meant { ino, kind, named, .. }] = meant[..] else { continue };
        match w.j.links.get_mut(&ino).filter(|_| named) {
            Some(links) => links.found += 1,
            None if !w.j.fix => drop(w.foreign.led.insert(ino)),
            None => {}
        }
        if !w.fix {
            continue;
        }
        w.foreign.entries.remove(&(dir, name.clone()));
        lead_entry_to(w, dir, &name, ino, kind)?;
        if !named {
            w.visit(ino, (dir, &name), Via::Dentry(Some(kind)), "an entry with another inode's number")?;
            w.drain()?;
        }
    }
    Ok(())
}

/// Whether a file lacks a name, which an entry is then that leads to it: of one with several links, as a file that has
/// one has it elsewhere.
fn is_lacking(
    w: &mut Walker<'_, '_>,
    ino: Ino,
    entry: Entry<'_>,
    kind: Option<FileKind>,
) -> io::Result<bool> {
    let Some(claim) = w.claim_of(ino)?.filter(|claim| claim.links > 1) else { return Ok(false) };
    if !w.space.nid_reached(ino) {
        return Ok(!claim.sure && w.visit(ino, entry, Via::Dentry(kind), NO_ENTRY)? != Verdict::Rejected);
    }
    let links = w.j.links.get_mut(&ino).filter(|links| links.found < links.claimed);
    Ok(links.map(|links| links.found += 1).is_some())
}

/// A file that an entry may have led to.
struct Meant {
    ino: Ino,
    kind: FileKind,
    /// It says so itself.
    sure: bool,
    /// It has other names.
    named: bool,
}

/// Whether a file lacks a name, and may have had this one.
fn may_be_meant(
    w: &mut Walker<'_, '_>,
    ino: Ino,
    dir: Ino,
    name: &[u8],
    kind: Option<FileKind>,
) -> io::Result<Option<Meant>> {
    if !w.image.g.is_nid(ino) || w.orphans.contains(&ino) || w.foreign.led.contains(&ino) {
        return Ok(None);
    }
    let named = w.space.nid_reached(ino);
    if named && w.links.get(&ino).is_none_or(|links| links.found == 0 || links.found >= links.claimed) {
        return Ok(None);
    }
    let Some(claim) = w.claim_of(ino)?.filter(|claim| kind.is_none_or(|kind| kind == claim.kind)) else {
        return Ok(None);
    };
    let sure = claim.sure && (claim.parent, &claim.name[..]) == (dir, name);
    let elsewhere = claim.sure && !sure && !named;
    Ok((!elsewhere).then_some(Meant { ino, kind: claim.kind, sure, named }))
}

/// Takes those entries away that led to no file that can be told.
pub(crate) fn remove_foreign(w: &mut Walker<'_, '_>) -> io::Result<()> {
    for ((dir, name), (target, _)) in std::mem::take(&mut w.foreign.entries) {
        if w.find(dir, &name)? == Some(target) {
            remove_entry(w, dir, &name)?;
        }
    }
    Ok(())
}
