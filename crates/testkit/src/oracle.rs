//! The durability contract as a judge: which trees a crash may leave.
//!
//! Given the history of an execution (the model after each operation, and what each acknowledged operation made
//! durable) and the tree that recovery produced, the judge asks:
//!
//! - each entry of a directory is one that existed since the last moment at which the entry was made durable:
//!   by a sync or checkpoint, by an fsync of the directory, or by an fsync of the file, which makes durable the
//!   names by which the file is reached, with all directories above;
//! - what existed in all states since it was made durable can be reached, under exactly as many names as it has links;
//! - each page of a file reads as one of its versions since the last fsync or fdatasync, at least as new as
//!   that; so does the size;
//! - a file whose atomic write was about to be committed reads as before it or as after it;
//! - mode, owner, flags, extended attributes and times set are as new as the last fsync.
//!
//! That the tree can be read at all, and that its link counts are consistent, is [`crate::observe`]'s part.

mod apps;

use crate::model::{Content, Id, Inode, Model, PAGE, ROOT};
use crate::observe::{compare, compare_attributes};
use crate::ops::MANY;
use crate::session::Durable;
use medfs::FileKind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// What is promised of a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    /// What was made durable is there: [`History::judge`].
    Posix,
    /// The tree is that after one operation, and at most so many acknowledged fsyncs are lost:
    /// [`History::judge_order`].
    Order {
        /// Most of them.
        fsyncs: u64,
    },
    /// The same of each folder of the root: [`History::judge_apps`].
    Apps {
        /// Most acknowledged fsyncs of each that are lost.
        fsyncs: u64,
    },
}

/// An execution so far.
pub struct History {
    /// The model at the start and after each operation.
    states: Vec<Model>,
    /// What each operation made durable.
    durable: Vec<Durable>,
    /// The states after the single writes of an operation, where they were noted.
    within: BTreeMap<usize, Vec<Model>>,
}

/// From which state on each thing may be seen.
struct Bounds {
    /// Everything.
    all: usize,
    /// Everything but content.
    metadata: usize,
    content: HashMap<Id, usize>,
    attributes: HashMap<Id, usize>,
    entries: HashMap<(Id, Vec<u8>), usize>,
    /// All entries of a directory.
    directories: HashMap<Id, usize>,
    /// The file whose atomic write may have been committing: its content is all old or all new.
    committing: Option<Id>,
}

impl History {
    /// Starts with a state that is durable.
    pub fn new(start: Model) -> History {
        History { states: vec![start], durable: Vec::new(), within: BTreeMap::new() }
    }

    /// Adds an operation: the state after it, and what it made durable when it was acknowledged.
    pub fn push(&mut self, state: Model, durable: Durable) {
        self.states.push(state);
        self.durable.push(durable);
    }

    /// Notes states within the operation that was added last.
    pub fn note_within(&mut self, states: Vec<Model>) {
        self.within.insert(self.len(), states);
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.durable.len()
    }

    /// Whether nothing happened yet.
    pub fn is_empty(&self) -> bool {
        self.durable.is_empty()
    }

    /// The state before all operations.
    pub fn first(&self) -> &Model {
        self.states.first().expect("there is a start")
    }

    /// The state after all operations.
    pub fn last(&self) -> &Model {
        self.states.last().expect("there is a start")
    }

    /// Forgets what no crash from now on can show.
    pub fn trim(&mut self) {
        if let Some(sync) = self.durable.iter().rposition(|durable| *durable == Durable::All) {
            self.states.drain(..=sync);
            self.durable.drain(..=sync);
        }
    }

    fn bounds(&self, acknowledged: usize, issued: usize) -> Bounds {
        let past = &self.durable[..acknowledged];
        let last = |wanted| past.iter().rposition(|durable| *durable == wanted).map_or(0, |op| op + 1);
        let all = last(Durable::All);
        let mut bounds = Bounds {
            all,
            metadata: all.max(last(Durable::Metadata)),
            content: HashMap::new(),
            attributes: HashMap::new(),
            entries: HashMap::new(),
            directories: HashMap::new(),
            committing: match self.durable[acknowledged..issued].last() {
                Some(Durable::Atomic { id }) => Some(*id),
                _ => None,
            },
        };
        for at in all + 1..=acknowledged {
            let (ids, datasync) = match self.durable[at - 1] {
                Durable::File { id, datasync } | Durable::Directory { id, datasync } => {
                    ([Some(id); MANY], datasync)
                }
                Durable::Atomic { id } => ([Some(id); MANY], false),
                Durable::Several { ids, datasync } => (ids, datasync),
                _ => continue,
            };
            let ids: BTreeSet<Id> = ids.into_iter().flatten().collect();
            ids.into_iter().for_each(|id| self.fsynced(&mut bounds, at, id, datasync));
        }
        bounds
    }

    /// What an fsync of one file or directory, the operation before state `at`, means for later states.
    fn fsynced(&self, bounds: &mut Bounds, at: usize, id: Id, datasync: bool) {
        let state = &self.states[at];
        let known = bounds.content.get(&id).copied().unwrap_or(bounds.all);
        let reachable = self.states[known].get(id).is_some_and(|inode| inode.nlink > 0);
        bounds.content.insert(id, at);
        if state.get(id).is_some_and(Inode::is_dir) {
            bounds.directories.insert(id, at);
        }
        if at <= bounds.metadata {
            return;
        }
        if !datasync {
            bounds.attributes.insert(id, at);
        }
        if datasync && reachable {
            return;
        }
        let mut names = state.names_of(id).to_vec();
        while let Some((dir, name)) = names.pop() {
            bounds.entries.insert((dir, name), at);
            if dir != ROOT {
                names.extend_from_slice(state.names_of(dir));
            }
        }
    }

    /// Judges a tree by what was promised.
    pub fn judge_by(
        &self,
        contract: Contract,
        found: &Model,
        acknowledged: usize,
        issued: usize,
    ) -> Result<(), String> {
        match contract {
            Contract::Posix => self.judge(found, acknowledged, issued),
            Contract::Order { fsyncs } => self.judge_order(found, acknowledged, issued, fsyncs),
            Contract::Apps { fsyncs } => self.judge_apps(found, acknowledged, issued, fsyncs),
        }
    }

    /// Judges a tree where commits are of the whole volume: it is that after some operation, with all before
    /// it and none after it; after the last one that was made durable at once, and so late that at most
    /// `fsyncs` acknowledged ones are lost.
    pub fn judge_order(
        &self,
        found: &Model,
        acknowledged: usize,
        issued: usize,
        fsyncs: u64,
    ) -> Result<(), String> {
        let first = self.first_in_order(acknowledged, fsyncs);
        let mut nearest = String::new();
        let within = |at: usize| self.within.get(&at).into_iter().flatten();
        let states = (first..=issued).flat_map(|at| {
            let before = within(at).filter(move |_| at > first);
            before.chain(std::iter::once(&self.states[at])).map(move |state| (at, state))
        });
        for (at, state) in states {
            match compare(state, found) {
                Ok(()) => return Ok(()),
                Err(difference) => nearest = format!("{nearest}\n    after operation {at}: {difference}"),
            }
        }
        let earlier = (0..first).rev().find(|at| compare(&self.states[*at], found).is_ok());
        Err(match earlier {
            Some(at) => {
                format!("the tree is that after operation {at}, and {first} of {acknowledged} were durable")
            }
            None => format!("the tree is that after no operation from {first} to {issued}:{nearest}"),
        })
    }

    /// The earliest state that [`History::judge_order`] allows.
    fn first_in_order(&self, acknowledged: usize, fsyncs: u64) -> usize {
        let mut lost = 0;
        for at in (0..acknowledged).rev() {
            lost += match self.durable[at] {
                Durable::All | Durable::App { .. } | Durable::Metadata | Durable::Atomic { .. } => {
                    return at + 1;
                }
                Durable::File { .. } | Durable::Directory { .. } => 1,
                Durable::Several { ids, .. } => {
                    ids.into_iter().flatten().collect::<BTreeSet<Id>>().len() as u64
                }
                Durable::Nothing => 0,
            };
            if lost > fsyncs {
                return at + 1;
            }
        }
        0
    }

    /// Judges a tree found after a crash at a moment when the first `acknowledged` operations had returned and no
    /// more than the first `issued` had begun.
    pub fn judge(&self, found: &Model, acknowledged: usize, issued: usize) -> Result<(), String> {
        let bounds = self.bounds(acknowledged, issued);
        let paired = self.pair(found, &bounds, issued)?;
        let newest = &self.states[issued];

        // What is known to exist all the time can be reached.
        for (id, inode) in newest.inodes() {
            let from = bounds.content.get(&id).copied().unwrap_or(0).max(bounds.metadata);
            let named = |state: &Model| state.get(id).is_some_and(|inode| inode.nlink > 0);
            if self.states[from..=issued].iter().all(named) && !paired.contains_key(&id) {
                return Err(format!("{} (inode {}) cannot be reached", newest.path_of(id), inode.ino));
            }
        }

        for (&id, &at) in &paired {
            self.judge_inode(&bounds, id, found.inode(at), issued)
                .map_err(|e| format!("{}: {e}", found.path_of(at)))?;
        }
        Ok(())
    }

    /// Judges entries: pairs the inodes of the history with those that were found.
    fn pair(&self, found: &Model, bounds: &Bounds, issued: usize) -> Result<BTreeMap<Id, Id>, String> {
        let since = |from: usize| &self.states[from..=issued];
        let show = |dir: Id, name: &[u8]| {
            let at = self.states[..=issued].iter().rev().find(|state| state.get(dir).is_some());
            let path = at.map_or_else(|| "?".into(), |state| state.path_of(dir));
            format!("{}/{}", path.trim_end_matches('/'), String::from_utf8_lossy(name))
        };

        let mut paired: BTreeMap<Id, Id> = BTreeMap::new();
        let mut todo = vec![(ROOT, ROOT)];
        while let Some((id, at)) = todo.pop() {
            if let Some(&before) = paired.get(&id) {
                if before != at {
                    return Err(format!("{}: two inodes for one", self.states[issued].path_of(id)));
                }
                continue;
            }
            paired.insert(id, at);
            let actual = &found.inode(at).entries;
            let mut names: BTreeSet<&Vec<u8>> = actual.keys().collect();
            names.extend(
                since(bounds.metadata)
                    .iter()
                    .filter_map(|state| state.get(id))
                    .flat_map(|dir| dir.entries.keys()),
            );
            for name in names {
                let own = bounds.entries.get(&(id, name.clone())).copied().unwrap_or(0);
                let listed = bounds.directories.get(&id).copied().unwrap_or(0);
                let from = own.max(listed).max(bounds.metadata);
                let entry = |state: &Model| state.get(id).and_then(|dir| dir.entries.get(name).copied());
                let allowed: HashSet<Option<Id>> = since(from).iter().map(entry).collect();
                let Some(&child) = actual.get(name) else {
                    if !allowed.contains(&None) {
                        return Err(format!("{} is lost", show(id, name)));
                    }
                    continue;
                };
                let ino = found.inode(child).ino;
                let same_ino = |candidate: &Id| {
                    since(from)
                        .iter()
                        .any(|state| state.get(*candidate).is_some_and(|inode| inode.ino == ino))
                };
                // A number may have been used again: the file that fits is meant, else the newest is reported.
                let mut candidates: Vec<Id> = allowed.iter().flatten().copied().filter(same_ino).collect();
                candidates.sort_unstable_by_key(|id| Reverse(*id));
                let fits = |id: &&Id| self.judge_inode(bounds, **id, found.inode(child), issued).is_ok();
                match candidates.iter().find(fits).or(candidates.first()) {
                    Some(&candidate) => todo.push((candidate, child)),
                    None => {
                        let expected: Vec<_> = allowed
                            .iter()
                            .map(|id| {
                                id.and_then(|id| since(from).iter().find_map(|s| s.get(id)).map(|i| i.ino))
                            })
                            .collect();
                        let shown = show(id, name);
                        return Err(format!(
                            "{shown} leads to inode {ino}, allowed (None: absent) are {expected:?}"
                        ));
                    }
                }
            }
        }
        Ok(paired)
    }

    /// Attributes and content of one inode.
    fn judge_inode(&self, bounds: &Bounds, id: Id, actual: &Inode, issued: usize) -> Result<(), String> {
        let versions = |bound: &HashMap<Id, usize>, otherwise: usize| -> Vec<&Inode> {
            let from = bound.get(&id).copied().unwrap_or(otherwise);
            self.states[from..=issued].iter().filter_map(|state| state.get(id)).collect()
        };
        judge_attributes(&versions(&bounds.attributes, bounds.metadata), actual)?;
        let contents = versions(&bounds.content, bounds.all);
        match actual.kind {
            FileKind::Regular => {
                let contents: Vec<&Content> = contents.iter().map(|inode| &inode.content).collect();
                match contents.split_last() {
                    Some((new, old)) if bounds.committing == Some(id) && !old.is_empty() => {
                        judge_content(old, &actual.content).or_else(|before| {
                            judge_content(&[new], &actual.content).map_err(|after| {
                                format!("neither before an atomic write ({before}) nor after ({after})")
                            })
                        })
                    }
                    _ => judge_content(&contents, &actual.content),
                }
            }
            FileKind::Symlink if contents.iter().all(|inode| inode.target != actual.target) => {
                Err("wrong target".into())
            }
            _ => Ok(()),
        }
    }
}

/// Attributes and extended attributes: each one as in some version.
fn judge_attributes(versions: &[&Inode], actual: &Inode) -> Result<(), String> {
    let newest = versions.last().ok_or("it did not exist in any state that is allowed")?;
    for name in actual.xattrs.keys().chain(versions.iter().flat_map(|version| version.xattrs.keys())) {
        if actual.kind == FileKind::Symlink
            || versions.iter().any(|v| v.xattrs.get(name) == actual.xattrs.get(name))
        {
            continue;
        }
        let len = actual.xattrs.get(name).map(Vec::len);
        let name = String::from_utf8_lossy(name);
        return Err(format!("extended attribute {name} (length {len:?}) has none of its allowed values"));
    }
    // Times on their own: recovering an entry changes its directory's.
    if versions.iter().all(|version| version.mtime.is_some() && version.mtime != actual.mtime) {
        return Err(format!("mtime {:?}, the newest is {:?}", actual.mtime, newest.mtime));
    }
    let plain = |version: &Inode| Inode { xattrs: actual.xattrs.clone(), mtime: None, ..version.clone() };
    if versions.iter().any(|version| compare_attributes(&plain(version), actual).is_ok()) {
        return Ok(());
    }
    compare_attributes(&plain(newest), actual)
}

/// Size and each page as in some version.
fn judge_content(versions: &[&Content], actual: &Content) -> Result<(), String> {
    let size = actual.size();
    if versions.iter().all(|version| version.size() != size) {
        let sizes: BTreeSet<u64> = versions.iter().map(|version| version.size()).collect();
        return Err(format!("size {size}, allowed are {sizes:?}"));
    }
    let pages: BTreeSet<u64> = versions
        .iter()
        .flat_map(|version| version.pages().map(|(index, _)| index))
        .chain(actual.pages().map(|(index, _)| index))
        .filter(|index| index * PAGE < size)
        .collect();
    for index in pages {
        let within = (size - index * PAGE).min(PAGE) as usize;
        let content = &actual.page(index)[..within];
        if versions.iter().all(|version| version.page(index)[..within] != *content) {
            let differs = |version: &&Content| {
                version.page(index)[..within].iter().zip(content).position(|(a, b)| a != b).unwrap_or(within)
            };
            let from: Vec<usize> = versions.iter().map(differs).collect();
            let zeros = within - content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            return Err(format!(
                "page {index} reads as none of its versions (size {size}; its last {zeros} of {within} bytes are zeros; \
                 versions, oldest first, differ from byte {from:?} on)"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs::NewFile;

    const FILE: NewFile = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    const DIR: NewFile = NewFile { kind: FileKind::Directory, ..FILE };

    /// Root with a file `f` of one page of ones, durable; then overwritten by twos, unless fsynced pending;
    /// then renamed to `g`.
    fn history(fsync: bool) -> (History, Id) {
        let mut model = Model::new(Inode::new(3, &DIR));
        let id = model.create(ROOT, b"f", &FILE).unwrap();
        model.inode_mut(id).ino = 4;
        model.content_mut(id).write(0, &[1; 4096]);
        let mut history = History::new(model.clone());
        model.content_mut(id).write(0, &[2; 4096]);
        history.push(model.clone(), Durable::Nothing);
        history
            .push(model.clone(), if fsync { Durable::File { id, datasync: true } } else { Durable::Nothing });
        model.rename(ROOT, b"f", ROOT, b"g", medfs::RenameFlags::empty()).unwrap();
        history.push(model, Durable::Nothing);
        (history, id)
    }

    #[test]
    fn old_and_new_are_allowed_until_fsync() {
        for (fsync, old_content_allowed) in [(false, true), (true, false)] {
            let (history, _) = history(fsync);
            for (state, allowed) in [(0, old_content_allowed), (1, true), (3, true)] {
                assert_eq!(history.judge(&history.states[state], 3, 3).is_ok(), allowed, "{fsync} {state}");
            }
            assert!(history.judge(&history.states[0], 0, 1).is_ok(), "nothing acknowledged yet");
        }
    }

    #[test]
    fn losing_a_file_in_a_rename_is_caught() {
        let (history, _) = history(false);
        let mut lost = history.states[3].clone();
        lost.unlink(ROOT, b"g").unwrap();
        assert!(history.judge(&lost, 3, 3).unwrap_err().contains("cannot be reached"));
        assert!(history.judge(&lost, 2, 2).unwrap_err().contains("lost"));
    }

    #[test]
    fn foreign_content_is_caught() {
        let (history, id) = history(false);
        let mut wrong = history.states[1].clone();
        wrong.content_mut(id).write(100, &[3]);
        assert!(history.judge(&wrong, 3, 3).unwrap_err().contains("versions"));
        let mut short = history.states[1].clone();
        short.content_mut(id).truncate(10);
        assert!(history.judge(&short, 3, 3).unwrap_err().contains("size"));
    }

    #[test]
    fn half_an_atomic_write_is_caught() {
        let mut model = Model::new(Inode::new(3, &DIR));
        let id = model.create(ROOT, b"f", &FILE).unwrap();
        model.inode_mut(id).ino = 4;
        model.content_mut(id).write(0, &[1; 8192]);
        let mut history = History::new(model.clone());
        model.content_mut(id).write(0, &[2; 8192]);
        history.push(model.clone(), Durable::Atomic { id });
        for (found, commit_is_acknowledged, allowed) in [
            ([1, 1], false, true),
            ([2, 2], false, true),
            ([2, 1], false, false),
            ([1, 2], false, false),
            ([1, 1], true, false),
            ([2, 2], true, true),
        ] {
            let mut state = model.clone();
            state.content_mut(id).write(0, &[found[0]; 4096]);
            state.content_mut(id).write(4096, &[found[1]; 4096]);
            let judged = history.judge(&state, usize::from(commit_is_acknowledged), 1);
            assert_eq!(judged.is_ok(), allowed, "{found:?} {commit_is_acknowledged}: {judged:?}");
        }
    }

    #[test]
    fn a_stranger_inode_is_caught() {
        let (history, _) = history(false);
        let mut wrong = history.states[1].clone();
        let stranger = wrong.create(ROOT, b"x", &FILE).unwrap();
        wrong.inode_mut(stranger).ino = 9;
        assert!(history.judge(&wrong, 3, 3).unwrap_err().contains("leads to inode 9"));
    }
}
