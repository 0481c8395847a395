//! Which app a file belongs to, where `apps=` says that the volume has several.
//!
//! Owners and project ids are in the inode. A folder is an app where a pattern names it; what lies below it belongs to
//! it. That is found from the names that inodes record, from the file up to a folder that is known, and each folder in
//! memory remembers it. So nothing of apps is on the volume, and a mount finds the same ones again.
//!
//! Invariants:
//! 1. There are at most [`MOST_APPS`] apps; what would be one more belongs to [`AppId::REST`], as does what is in none.
//! 2. What a folder remembers is void once any directory has moved (`dirs_moved` of [`medfs_store::Changes`]).
//! 3. An inode is counted for one app, the one that it was in when it was looked at last. What is kept of it goes when
//!    nothing of it is dirty.
//!
//! 4. Between the moment in which changes are taken and that in which they are counted nobody looks at what is counted,
//!    and no commit ends: `counting` is held for both.
//!
//! Locks: `counting`, with inodes looked up; the others are leaves, and inodes are looked up with none of these held.

use crate::map::inode::Inode;
use crate::options::{self, FolderPattern};
use crate::ranks;
use crate::tree::Tree;
use crate::tree::name_journal::recorded_name;
use medfs_format::Ino;
use medfs_format::node::{Advise, FileKind};
use medfs_format::superblock::Feature;
use medfs_store::{Change, HashMap};
use medfs_sync::{Mutex, MutexGuard, Ranked};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Apps that are told apart.
const MOST_APPS: usize = 1024;
/// Folders further below a known one, as in a circle on a damaged volume, belong to no app.
const DEEPEST: usize = 4096;
/// Bytes of a name that is shown.
const NAME_SHOWN: usize = 512;

/// An app, by its place in the table of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AppId(pub(super) usize);

impl AppId {
    /// What belongs to no app, and all files where the volume is one.
    pub(super) const REST: AppId = AppId(0);
}

/// What makes files an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Folder(Ino),
    /// An owner or a project, as the kind of id says.
    Id(&'static str, u32),
}

/// Where a folder lies, as far as patterns are concerned.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// What lies in it belongs to this app.
    app: AppId,
    /// Names on its path.
    depth: usize,
    /// The patterns that fit its path so far.
    fitting: u64,
    /// `dirs_moved` of [`medfs_store::Changes`] when it was found.
    moved: u64,
}

/// What a folder in memory remembers.
#[derive(Debug, Default)]
struct Remembered(Mutex<Option<Place>>);

/// Apps that were seen.
#[derive(Debug, Default)]
struct Table {
    known: HashMap<Key, AppId>,
    /// By [`AppId`], without the rest.
    names: Vec<String>,
}

/// What is counted of an inode, and for whom.
#[derive(Debug, Clone, Copy)]
struct Counted {
    app: AppId,
    pages: i64,
    nodes: i64,
}

/// What changed of an app since it was asked last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moved {
    pub(super) app: AppId,
    pub(super) change: Change,
}

/// The apps of a volume.
#[derive(Debug)]
pub(crate) struct Apps {
    rule: options::Apps,
    counting: Mutex<()>,
    table: Mutex<Table>,
    /// When changes were taken last: those that are taken next are not older.
    seen: Mutex<Duration>,
    /// Inodes of which something is dirty.
    counted: Mutex<HashMap<Ino, Counted>>,
    /// `dirs_moved` of [`medfs_store::Changes`] at the last checkpoint.
    moved_before: AtomicU64,
    /// A file changed since the last checkpoint of which it is not sure which app it is in.
    doubted: AtomicBool,
}

impl Apps {
    /// The apps of a volume that has several. What is dirty already counts.
    pub(crate) fn begin(tree: &Tree) -> Option<Apps> {
        let rule = tree.opts.apps.clone();
        if rule == options::Apps::Volume {
            return None;
        }
        tree.nodes.begin_changes();
        for inode in tree.inodes.dirty() {
            tree.nodes.changes.pages(inode.ino, inode.lock.read().pages.held().pages as i64);
        }
        let apps = Apps {
            rule,
            counting: Mutex::new(()).ranked(ranks::COUNTING),
            table: Mutex::default(),
            seen: Mutex::new(tree.clock.monotonic()),
            counted: Mutex::default(),
            moved_before: AtomicU64::new(0),
            doubted: AtomicBool::new(false),
        };
        apps.tell_of_missing_folders(tree);
        Some(apps)
    }

    /// A pattern may be a slip: nothing belongs to it until its folder is made. Projects need their feature.
    fn tell_of_missing_folders(&self, tree: &Tree) {
        if self.rule == options::Apps::Project && !tree.features.contains(Feature::PROJECT_QUOTA) {
            tracing::warn!("apps=project: the volume has no project_quota, so all files are in one app");
        }
        let options::Apps::Folders(patterns) = &self.rule else { return };
        for pattern in patterns.iter().filter(|pattern| !has_folder(tree, pattern)) {
            tracing::warn!("apps={pattern}: the volume has no such folder yet, so no file is in such an app");
        }
    }

    /// Waits for who counts; nobody does until what is returned is dropped.
    pub(super) fn counting(&self) -> MutexGuard<'_, ()> {
        self.counting.lock()
    }

    /// What changed since this was asked last, and since when at most, app by app. `counting` is held until it is
    /// counted, and no lock further in.
    /// `named_rightly`: whether an inode's one name is the one that it records.
    pub(super) fn moved(
        &self,
        tree: &Tree,
        now: Duration,
        named_rightly: &dyn Fn(&Inode) -> bool,
    ) -> (Duration, Vec<Moved>) {
        let (since, changes) = {
            let mut seen = self.seen.lock();
            (std::mem::replace(&mut *seen, now), tree.nodes.changes.take())
        };
        let with_app = |(ino, change)| {
            self.look_for_links(tree, ino, named_rightly);
            (ino, change, self.of_ino(tree, ino))
        };
        let changes: Vec<(Ino, Change, Option<AppId>)> = changes.into_iter().map(with_app).collect();
        let mut counted = self.counted.lock();
        let mut moved = Vec::with_capacity(changes.len());
        for (ino, change, app) in changes {
            let known = counted.get(&ino).map(|known| known.app);
            let app = app.or(known).unwrap_or(AppId::REST);
            let now = counted.entry(ino).or_insert(Counted { app, pages: 0, nodes: 0 });
            if now.app != app {
                moved.extend(now.moves_to(app));
            }
            (now.pages, now.nodes) = (now.pages + change.pages, now.nodes + change.nodes);
            if (now.pages, now.nodes) == (0, 0) {
                counted.remove(&ino);
            }
            moved.push(Moved { app, change });
        }
        (since, moved)
    }

    /// A file with several links, or whose inode records a name that it has not, may be seen in another app than the
    /// one that it is counted for.
    fn look_for_links(&self, tree: &Tree, ino: Ino, named_rightly: &dyn Fn(&Inode) -> bool) {
        let Ok(inode) = tree.inode(ino) else { return };
        let lost = inode.raw(|r| r.advise().contains(Advise::LOST_PINO));
        let doubted = inode.nlink() > 1 || (inode.nlink() == 1 && lost);
        if !inode.is_dir() && doubted && !named_rightly(&inode) {
            self.doubted.store(true, Ordering::Release);
        }
    }

    /// The app of a file; `None` where the file is gone, or cannot be read.
    pub(super) fn of_ino(&self, tree: &Tree, ino: Ino) -> Option<AppId> {
        let inode = tree.inode(ino).ok()?;
        let (kind, id) = match &self.rule {
            options::Apps::Volume => return Some(AppId::REST),
            options::Apps::Uid => ("uid", inode.raw(|r| r.i_uid.get())),
            options::Apps::Project => ("project", tree.attributes(&inode).project),
            options::Apps::Folders(_) => {
                let parent = |file| tree.inode(recorded_name(file).0).ok();
                let folder = if inode.is_dir() { inode } else { parent(&inode)? };
                return self.place(tree, folder).map(|place| place.app);
            }
        };
        Some(self.of_key(Key::Id(kind, id), || format!("{kind} {id}")))
    }

    /// The app that a key makes; `name` is asked where it is new, with no lock held.
    fn of_key(&self, key: Key, name: impl FnOnce() -> String) -> AppId {
        let known = {
            let table = self.table.lock();
            let full = (table.names.len() >= MOST_APPS).then_some(AppId::REST);
            table.known.get(&key).copied().or(full)
        };
        known.unwrap_or_else(|| {
            let name = name();
            let mut table = self.table.lock();
            let Table { known, names } = &mut *table;
            *known.entry(key).or_insert_with(|| {
                names.push(name);
                AppId(names.len())
            })
        })
    }

    /// Where a folder lies, by the names up to one that remembers it.
    fn place(&self, tree: &Tree, folder: Arc<Inode>) -> Option<Place> {
        let moved = tree.nodes.changes.dirs_moved();
        let root = Place { app: AppId::REST, depth: 0, fitting: self.rule.all_patterns(), moved };
        let (mut at, mut path) = (folder, Vec::new());
        let mut place = loop {
            if at.ino == tree.geo.root_ino {
                break root;
            }
            let known = at.memory.of::<Remembered>();
            if let Some(place) = known.0.lock().filter(|place| place.moved == moved) {
                break place;
            }
            if path.len() == DEEPEST || !at.is_dir() {
                return None;
            }
            let (parent, name) = recorded_name(&at);
            path.push((std::mem::replace(&mut at, tree.inode(parent).ok()?), name));
        };
        for (inode, name) in path.into_iter().rev() {
            let (fitting, ends) = self.rule.fitting(place.fitting, place.depth, &name);
            let app = if ends {
                self.of_key(Key::Folder(inode.ino), || path_shown(tree, &inode))
            } else {
                place.app
            };
            place = Place { app, depth: place.depth + 1, fitting, moved };
            *inode.memory.of::<Remembered>().0.lock() = Some(place);
        }
        Some(place)
    }

    /// All is durable.
    pub(super) fn checkpointed(&self, tree: &Tree) {
        self.moved_before.store(tree.nodes.changes.dirs_moved(), Ordering::Release);
        self.doubted.store(false, Ordering::Release);
    }

    /// Whether what apps change of names is in their own folders, and which files are in these is as the last
    /// checkpoint has it.
    pub(super) fn own_their_names(&self, tree: &Tree) -> bool {
        let moved = tree.nodes.changes.dirs_moved() != self.moved_before.load(Ordering::Acquire);
        matches!(self.rule, options::Apps::Folders(_)) && !moved && !self.doubted.load(Ordering::Acquire)
    }

    /// The inodes of an app of which something is dirty, as they were counted, by their numbers.
    pub(super) fn dirty(&self, app: AppId) -> Vec<Ino> {
        let counted = self.counted.lock();
        let of_app = counted.iter().filter(|(_, counted)| counted.app == app);
        let mut inodes: Vec<Ino> = of_app.map(|(ino, _)| *ino).collect();
        inodes.sort_unstable();
        inodes
    }

    /// The names of apps, by their places in the table.
    pub(super) fn names(&self) -> Vec<String> {
        let rest = std::iter::once("others".to_owned());
        rest.chain(self.table.lock().names.iter().cloned()).collect()
    }
}

impl Counted {
    /// The inode belongs to another app from now on.
    fn moves_to(&mut self, app: AppId) -> [Moved; 2] {
        let change = Change { pages: self.pages, nodes: self.nodes, waits: true, ..Change::default() };
        let gone = Change { pages: -self.pages, nodes: -self.nodes, ..Change::default() };
        let from = std::mem::replace(&mut self.app, app);
        [Moved { app: from, change: gone }, Moved { app, change }]
    }
}

/// Whether the names of a pattern that are not any name lead to a folder.
fn has_folder(tree: &Tree, pattern: &FolderPattern) -> bool {
    let mut at = tree.geo.root_ino;
    pattern.fixed().all(|name| {
        let found = tree.lookup(at, name.as_bytes());
        found.is_ok_and(|attr| {
            let _ = tree.release(attr.ino, 1);
            at = attr.ino;
            attr.kind == FileKind::Directory
        })
    })
}

/// The path of a folder, as it is shown.
fn path_shown(tree: &Tree, folder: &Arc<Inode>) -> String {
    let (mut at, mut names) = (folder.clone(), Vec::new());
    while at.ino != tree.geo.root_ino && names.len() < DEEPEST {
        let (parent, name) = recorded_name(&at);
        names.push(String::from_utf8_lossy(&name).into_owned());
        let Ok(above) = tree.inode(parent) else { break };
        at = above;
    }
    let path: String = names.iter().rev().map(|name| format!("/{name}")).collect();
    path.chars().take(NAME_SHOWN).collect()
}
