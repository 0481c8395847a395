//! The contract of a volume whose apps are the folders of its root, each of which may be committed alone.
//!
//! Of each app, and of what is in no folder, the tree is that after one operation, with all before it and none after
//! it. Which operation that is may differ from app to app. So the part of the tree that is an app's is compared with
//! the same part of all states. What names the folders themselves have belongs to what is in none.

use super::History;
use crate::model::{Id, Inode, Model, ROOT};
use crate::observe::compare;
use crate::session::Durable;
use medfs::{FileKind, NewFile};
use std::collections::BTreeSet;

/// A folder of the root, or what is in none.
type App = Option<Vec<u8>>;

impl History {
    /// Judges a tree where each folder of the root is an app: see the head of this file. Of each app at most `fsyncs`
    /// acknowledged ones are lost.
    pub fn judge_apps(
        &self,
        found: &Model,
        acknowledged: usize,
        issued: usize,
        fsyncs: u64,
    ) -> Result<(), String> {
        let folders: BTreeSet<Vec<u8>> = self.states.iter().chain([found]).flat_map(folders).collect();
        let apps = folders.iter().cloned().map(Some).chain([None]);
        for app in apps {
            let first = self.first_of_app(&app, acknowledged, fsyncs);
            let part_of = |model: &Model| part(model, &app, &folders);
            let found = part_of(found);
            let within = |at: usize| self.within.get(&at).into_iter().flatten().filter(move |_| at > first);
            let states = (first..=issued)
                .flat_map(|at| within(at).chain([&self.states[at]]).map(move |state| (at, state)));
            let differs =
                |(at, state): (usize, &Model)| compare(&part_of(state), &found).err().map(|e| (at, e));
            let nearest: Option<Vec<(usize, String)>> = states.map(differs).collect();
            if let Some(nearest) = nearest {
                let name =
                    app.as_ref().map_or("what is in no folder".into(), |name| String::from_utf8_lossy(name));
                let nearest: String =
                    nearest.iter().map(|(at, e)| format!("\n    after operation {at}: {e}")).collect();
                return Err(format!("{name} is that after no operation from {first} to {issued}:{nearest}"));
            }
        }
        Ok(())
    }

    /// The earliest state that an app may be found in.
    fn first_of_app(&self, app: &App, acknowledged: usize, fsyncs: u64) -> usize {
        let mut lost = 0;
        for at in (0..acknowledged).rev() {
            let of_app = |id: &Id| app_of(&self.states[at + 1], *id) == *app;
            lost += match self.durable[at] {
                Durable::All | Durable::Metadata | Durable::Atomic { .. } => return at + 1,
                Durable::App { id } if of_app(&id) => return at + 1,
                Durable::File { id, .. } | Durable::Directory { id, .. } => u64::from(of_app(&id)),
                Durable::Several { ids, .. } => {
                    let ids: BTreeSet<Id> = ids.into_iter().flatten().filter(of_app).collect();
                    ids.len() as u64
                }
                Durable::App { .. } | Durable::Nothing => 0,
            };
            if lost > fsyncs {
                return at + 1;
            }
        }
        0
    }
}

/// The names of the root's folders.
fn folders(model: &Model) -> impl Iterator<Item = Vec<u8>> {
    let entries = model.inode(ROOT).entries.iter();
    entries.filter(|(_, id)| model.inode(**id).is_dir()).map(|(name, _)| name.clone())
}

/// The app of a file, by one of its names.
fn app_of(model: &Model, id: Id) -> App {
    let mut at = id;
    while let Some((dir, name)) = model.names_of(at).first() {
        if *dir == ROOT {
            return model.inode(at).is_dir().then(|| name.clone());
        }
        at = *dir;
    }
    None
}

/// What an app has of a tree.
fn part(model: &Model, app: &App, folders: &BTreeSet<Vec<u8>>) -> Model {
    let mut part = model.clone();
    let root = part.inode_mut(ROOT);
    match app {
        Some(app) => {
            // The root itself is not the folder's.
            let new = NewFile { kind: FileKind::Directory, perm: 0, umask: 0, uid: 0, gid: 0, rdev: 0 };
            let entries = root.entries.iter().filter(|(name, _)| *name == app);
            let entries = entries.map(|(name, id)| (name.clone(), *id)).collect();
            *root = Inode { entries, ..Inode::new(root.ino, &new) };
        }
        None => root.entries.retain(|name, _| !folders.contains(name)),
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two folders with two files each of which one is fsynced, then the other; one write each to all in turn.
    fn history() -> (History, Vec<Id>) {
        let new = |kind| NewFile { kind, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let mut model = Model::new(Inode::new(3, &new(FileKind::Directory)));
        let mut files = Vec::new();
        for (folder, first) in [(&b"a"[..], 10), (b"b", 20)] {
            let dir = model.create(ROOT, folder, &new(FileKind::Directory)).unwrap();
            model.inode_mut(dir).ino = first;
            for (name, ino) in [(&b"x"[..], first + 1), (b"y", first + 2)] {
                let id = model.create(dir, name, &new(FileKind::Regular)).unwrap();
                model.inode_mut(id).ino = ino;
                files.push(id);
            }
        }
        let mut history = History::new(model.clone());
        for &id in &files {
            model.content_mut(id).write(0, &[1; 100]);
            history.push(model.clone(), Durable::File { id, datasync: false });
        }
        (history, files)
    }

    #[test]
    fn each_app_may_be_after_an_operation_of_its_own_and_no_part_of_it_may() {
        let (history, files) = history();
        for (written, fsyncs, allowed) in [
            (&[][..], 2, true),
            (&[0], 2, true),
            (&[0, 1, 2], 2, true),
            // One app before the other, and the other way round.
            (&[2, 3], 2, true),
            (&[0, 2], 2, true),
            // The second file of an app without the first.
            (&[1], 2, false),
            (&[0, 1, 3], 2, false),
            // More fsyncs of one app are lost than may be.
            (&[2, 3], 1, false),
            (&[0, 2], 1, true),
        ] {
            let mut found = history.first().clone();
            written.iter().for_each(|&n: &usize| found.content_mut(files[n]).write(0, &[1; 100]));
            assert_eq!(history.judge_apps(&found, 4, 4, fsyncs).is_ok(), allowed, "{written:?}, {fsyncs}");
        }
    }
}
