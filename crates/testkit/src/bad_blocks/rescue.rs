//! What can be brought off a volume with damaged metadata, without repairing it: `medfs get -r` and
//! `medfs get --salvage`.
//!
//! - Of blocks that cannot be read, and of blocks of directories and of the SIT with any damage: what `get -r` brings
//!   without a word is right, under its name too, and what it does not bring, or not whole, it names, or
//!   counts. Of a file that it names pages are missing only where it says so. A file is brought whole where
//!   no block was struck of it, of the directories on its way, or of what leads to all files. The SIT is not among
//!   these: who reads does not need it.
//! - Of any damage: `--salvage` brings what a repair keeps, by the same judge.
//! - Neither writes to the device.

use super::*;
use crate::model::{Id, Inode, PAGE, Page, ROOT, USER_FLAGS};
use crate::observe::compare_inode;
use medfs::Files;
use medfs_device::CountingDevice;
use medfs_rescue::{Lost, Meta, Outcome, Place, Settled, Sink, Walk, salvage};
use std::collections::HashMap;
use std::io;

/// Keeps what is brought as a model.
struct Kept {
    model: Model,
    places: HashMap<Vec<Vec<u8>>, Id>,
    file: Option<Id>,
}

fn names(at: &Place) -> Vec<Vec<u8>> {
    at.names().into_iter().map(<[u8]>::to_vec).collect()
}

impl Kept {
    fn new() -> Kept {
        Kept {
            model: Model::new(empty(FileKind::Directory)),
            places: HashMap::from([(Vec::new(), ROOT)]),
            file: None,
        }
    }

    /// Two files of one name are a damaged directory's.
    fn add(&mut self, at: &Place, id: Id) -> io::Result<()> {
        let names = names(at);
        let (name, above) = names.split_last().expect("no top");
        let dir = self.places[above];
        assert!(!name.is_empty() && !name.contains(&b'/') && name != b"..", "{name:?}");
        if self.places.contains_key(&names) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.model.inode_mut(dir).entries.insert(name.clone(), id);
        self.places.insert(names, id);
        Ok(())
    }

    fn set(&mut self, id: Id, meta: &Meta) {
        let inode = self.model.inode_mut(id);
        let attr = &meta.attr;
        (inode.ino, inode.kind, inode.perm, inode.nlink) = (attr.ino, attr.kind, attr.perm, attr.nlink);
        (inode.uid, inode.gid, inode.rdev) = (attr.uid, attr.gid, attr.rdev);
        (inode.mtime, inode.flags) = (Some(attr.mtime), attr.flags & USER_FLAGS);
        inode.xattrs = meta.xattrs.iter().cloned().collect();
    }
}

fn empty(kind: FileKind) -> Inode {
    Inode::new(0, &medfs::NewFile { kind, perm: 0, umask: 0, uid: 0, gid: 0, rdev: 0 })
}

impl Sink for Kept {
    fn enter(&mut self, at: &Place) -> io::Result<()> {
        let there = self.places.get(&names(at)).map(|&id| self.model.inode(id).is_dir());
        if there != Some(true) {
            let id = self.model.add(empty(FileKind::Directory));
            self.add(at, id)?;
        }
        Ok(())
    }
    fn leave(&mut self, at: &Place, meta: &Meta) -> io::Result<()> {
        let id = self.places[&names(at)];
        self.set(id, meta);
        Ok(())
    }
    fn begin(&mut self, at: &Place) -> io::Result<()> {
        let id = self.model.add(empty(FileKind::Regular));
        self.add(at, id)?;
        self.file = Some(id);
        Ok(())
    }
    fn data(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let id = self.file.expect("begun");
        assert_eq!(offset % PAGE, 0);
        for (index, part) in (offset / PAGE..).zip(bytes.chunks(PAGE as usize)) {
            let mut page: Page = [0; PAGE as usize];
            page[..part.len()].copy_from_slice(part);
            if page.iter().any(|&b| b != 0) {
                self.model.content_mut(id).truncate((index + 1) * PAGE);
                self.model.content_mut(id).put_page(index, page);
            }
        }
        Ok(())
    }
    fn end(&mut self, at: &Place, meta: &Meta, _lost: &Lost) -> io::Result<Settled> {
        let id = self.file.take().expect("begun");
        self.model.content_mut(id).truncate(meta.attr.size);
        self.set(id, meta);
        Ok(Settled::at(at))
    }
    fn give_up(&mut self, at: &Place) {
        let mut names = names(at);
        self.places.remove(&names);
        let name = names.pop().expect("no top");
        let dir = self.places[&names];
        self.model.inode_mut(dir).entries.remove(&name);
    }
    fn special(&mut self, at: &Place, meta: &Meta, target: &[u8]) -> io::Result<()> {
        let id = self.model.add(empty(meta.attr.kind));
        self.add(at, id)?;
        self.set(id, meta);
        self.model.inode_mut(id).target = target.to_vec();
        Ok(())
    }
    fn link(&mut self, first: &Place, at: &Place, _lost: &Lost) -> io::Result<Settled> {
        let id = self.places[&names(first)];
        self.add(at, id)?;
        Ok(Settled::at(at))
    }
}

impl Volume {
    /// Damages these blocks of a copy, and judges what is brought off it: by names where all damage is blocks
    /// that cannot be read, and as a salvage.
    pub fn rescue(&self, hits: &[(Target, Damage)], rng: &mut Xoshiro256PlusPlus) -> Result<(), Failure> {
        let dev = Arc::new(CountingDevice::new(self.damaged(hits, rng)));
        let told = |(target, damage): &(Target, Damage)| {
            *damage == Damage::Unreadable || matches!(target.part, Part::Dentries | Part::Sit)
        };
        if hits.iter().all(told) {
            let brought = guarded(|| Ok(self.by_names(dev.clone())));
            match brought {
                Err(panic) => return fail("panic", format!("get: {panic}")),
                Ok(Some((found, outcome))) => {
                    self.judge_names(hits, &found, &outcome)?;
                    self.judge_places(hits, &found, &outcome)?;
                    let needs_no_sit = hits.iter().all(|(target, _)| target.part == Part::Sit);
                    if needs_no_sit && !outcome.is_whole() {
                        return fail("told", format!("get: without the SIT: {:?}", outcome.failures));
                    }
                }
                Ok(None) if self.leads_to_all(hits) => {}
                Ok(None) => return fail("mount", "get: the volume does not open"),
            }
        }
        let salvaged = guarded(|| Self::salvaged(dev.clone()));
        let (found, outcome) = match salvaged {
            Ok(salvaged) => salvaged,
            Err(e) if e.starts_with("panicked") => return fail("panic", format!("salvage: {e}")),
            Err(e) => return fail("salvage", e),
        };
        if dev.counts().writes() > 0 {
            return fail("written", format!("{} writes", dev.counts().writes()));
        }
        self.judge(hits, &found).map_err(|f| Failure {
            text: format!(
                "salvage: {}; {} failures, the first {:?}",
                f.text,
                outcome.failed(),
                outcome.failures.first()
            ),
            ..f
        })
    }

    /// What is said where nothing is damaged; `None` where the volume does not open.
    pub fn brought(&self) -> Option<Outcome> {
        self.by_names(Arc::new(self.dev.snapshot())).map(|(_, outcome)| outcome)
    }

    /// With a block of the pack in force zeroed, `get -r` brings every inode, or says that it does not.
    pub fn tells_what_is_missing(&self, target: Target) -> Result<(), Failure> {
        let dev = self.dev.snapshot();
        dev.write(target.block, &[&Block::ZERO], META).expect("memory");
        let Some((found, outcome)) = self.by_names(Arc::new(dev)) else { return Ok(()) };
        let there: BTreeSet<Ino> = found.inodes().map(|(_, inode)| inode.ino).collect();
        let lost = self.shown.inodes().filter(|(_, inode)| !there.contains(&inode.ino)).count();
        match lost > 0 && outcome.is_whole() {
            true => fail("lost", format!("get: {lost} inodes are missing, and nothing is said")),
            false => Ok(()),
        }
    }

    /// Copies the tree of a volume as it is; `None` where it does not open.
    fn by_names(&self, dev: Arc<dyn BlockDevice>) -> Option<(Model, Outcome)> {
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        let volume = Engine::open(dev, options, test_clock()).ok()?;
        let mut walk = Walk::new(&volume, Kept::new());
        let top = Place::top(None, b"/");
        walk.tree(volume.root(), top.clone(), None).expect("memory takes everything");
        walk.count_unmet(&top);
        let (outcome, kept) = walk.finish();
        Some((kept.model, outcome))
    }

    fn salvaged(dev: Arc<dyn BlockDevice>) -> Result<(Model, Outcome), String> {
        let changes = tempfile::tempfile().map_err(|e| e.to_string())?;
        let salvaged = salvage::open(dev, changes, test_clock(), &mut |_| {}).map_err(|e| e.to_string())?;
        let volume = salvaged.volume;
        let mut walk =
            Walk::new(&volume, Kept::new()).with_cuts(salvaged.cuts).for_unnamed(&salvaged.found.lost);
        walk = walk.without_journals(salvaged.journals_lost);
        walk = walk.with_altered(salvaged.altered);
        let top = Place::top(None, b"/");
        walk.tree(volume.root(), top.clone(), None)
            .and_then(|()| walk.unnamed(&top))
            .map_err(|e| e.to_string())?;
        let (outcome, kept) = walk.finish();
        Ok((kept.model, outcome))
    }

    /// Whether a block was struck that leads to all files: then the volume may not open, or show older files.
    fn leads_to_all(&self, hits: &[(Target, Damage)]) -> bool {
        let root = &self.own[&self.shown.inode(ROOT).ino];
        let part = |t: &Target| matches!(t.part, Part::Superblock | Part::Pack(_) | Part::Nat | Part::Log);
        hits.iter().any(|(t, _)| part(t) || root.contains(&t.block))
    }

    fn judge_names(
        &self,
        hits: &[(Target, Damage)],
        found: &Model,
        outcome: &Outcome,
    ) -> Result<(), Failure> {
        let struck: BTreeSet<u64> = hits.iter().map(|(t, _)| t.block).collect();
        let older = hits.iter().any(|(t, _)| matches!(t.part, Part::Log | Part::Pack(true)));
        let mut allowed = vec![&self.shown];
        if older {
            allowed.push(&self.at_checkpoint);
            allowed.extend(&self.by_other_pack);
        }
        let by_ino: BTreeMap<Ino, Id> = found.inodes().map(|(id, inode)| (inode.ino, id)).collect();
        let told: BTreeMap<Ino, &medfs_rescue::Failure> =
            outcome.failures.iter().filter_map(|f| Some((f.ino?, f))).collect();
        for (id, inode) in self.shown.inodes().filter(|(_, inode)| !inode.nameless) {
            let path = self.shown.path_of(id);
            let untold = !self.way_of(id).iter().any(|ino| told.contains_key(ino));
            let Some(&at) = by_ino.get(&inode.ino) else {
                if untold && outcome.unmet == 0 && !older {
                    return fail("lost", format!("get: {path} (inode {}), and nothing is said", inode.ino));
                }
                continue;
            };
            let struck_of = |ino: &Ino| self.is_struck(*ino, &struck);
            let is_older = |f: &medfs_rescue::Failure| f.reason.contains("was fsynced");
            if outcome.failures.iter().any(|f| is_older(f) && f.ino.is_none_or(|ino| ino == inode.ino)) {
                continue; // as at the checkpoint, or at some fsync
            }
            let nat = hits.iter().any(|(t, _)| matches!(t.part, Part::Nat | Part::Log | Part::Pack(true)));
            // An entry that leads to the file by mistake says something of itself.
            let is_its_own = |f: &&&medfs_rescue::Failure| {
                id == ROOT && f.path == b"/"
                    || self.shown.names_of(id).iter().any(|(_, name)| f.path.ends_with(name))
            };
            if !nat
                && let Some(failure) = told.get(&inode.ino).filter(is_its_own)
                && !self.ways_of(id).iter().any(struck_of)
            {
                let told = String::from_utf8_lossy(&failure.path);
                return fail(
                    "told",
                    format!("get: inode {}: {}; {told}, not {path}", inode.ino, failure.reason),
                );
            }
            let versions = allowed.iter().filter_map(|m| m.of_ino(inode.ino));
            let judged =
                versions.map(|(_, was)| judge_content(was, found.inode(at), told.get(&inode.ino).copied()));
            if let Some(Err(e)) = judged.reduce(Result::or)
                && !(older && self.was_fsynced(inode))
            {
                return fail("content", format!("get: {path} (inode {}): {e}", inode.ino));
            }
        }
        Ok(())
    }

    /// Whether every name leads to its file, as far as nothing is said.
    fn judge_places(
        &self,
        hits: &[(Target, Damage)],
        found: &Model,
        outcome: &Outcome,
    ) -> Result<(), Failure> {
        if outcome.torn + outcome.unmet > 0
            || hits.iter().any(|(t, _)| matches!(t.part, Part::Log | Part::Pack(_)))
        {
            return Ok(());
        }
        let places = |model: &Model| -> BTreeMap<(String, Vec<u8>), Ino> {
            let entries = |(id, inode): (Id, &Inode)| {
                let (dir, inode) = (model.path_of(id), inode.clone());
                inode
                    .entries
                    .into_iter()
                    .map(move |(name, id)| ((dir.clone(), name), model.inode(id).ino))
                    .collect::<Vec<_>>()
            };
            model.inodes().flat_map(entries).collect()
        };
        let is = places(found);
        for ((dir, name), ino) in places(&self.shown) {
            let path = [dir.trim_end_matches('/').as_bytes(), &name].join(&b'/');
            let there = is.get(&(dir, name));
            if there != Some(&ino) && !outcome.failures.iter().any(|f| path.starts_with(&f.path)) {
                let path = path.escape_ascii();
                return fail(
                    "place",
                    format!("get: {path} is inode {there:?} instead of {ino}, and nothing is said"),
                );
            }
        }
        Ok(())
    }

    /// Whether a file was fsynced since the checkpoint: it may be as at any of its fsyncs.
    fn was_fsynced(&self, inode: &Inode) -> bool {
        let at = self.at_checkpoint.of_ino(inode.ino);
        at.is_none_or(|(_, before)| compare_inode(before, inode).is_err())
    }

    /// The same with the directories of all its names.
    pub(super) fn ways_of(&self, id: Id) -> Vec<Ino> {
        let above = self.shown.names_of(id).iter().flat_map(|(dir, _)| self.way_of(*dir));
        self.way_of(id).into_iter().chain(above).collect()
    }

    /// A file and the directories on the way to it.
    fn way_of(&self, id: Id) -> Vec<Ino> {
        let mut way = vec![self.shown.inode(id).ino];
        let mut at = id;
        while let Some((above, _)) = self.shown.names_of(at).first() {
            way.push(self.shown.inode(*above).ino);
            if *above == ROOT {
                break;
            }
            at = *above;
        }
        way
    }
}

/// A file that was brought is as it was, but for what is told of it.
fn judge_content(was: &Inode, is: &Inode, told: Option<&medfs_rescue::Failure>) -> Result<(), String> {
    if was.is_dir() {
        return Ok(());
    }
    let Some(told) = told else { return compare_inode(was, is) };
    if was.content.size() != is.content.size() {
        return Err(format!("size {} instead of {}", is.content.size(), was.content.size()));
    }
    for (index, _) in was.content.pages().chain(is.content.pages()) {
        let lost = told.lost.ranges.iter().any(|r| r.start <= index * PAGE && r.end > index * PAGE);
        let (was, is) = (was.content.page(index), is.content.page(index));
        if (lost && is.iter().any(|&b| b != 0)) || (!lost && was != is) {
            return Err(format!("page {index} is another one, told is {:?}", told.lost.ranges));
        }
    }
    Ok(())
}
