//! What waits of one app is committed without the others, by the chain of fsynced nodes.
//!
//! That is possible where all of it is of files whose names are those of the last checkpoint, and fits one node at the
//! end of the chain: one file's last node, or a node that several share. So power loss leaves all of it or nothing. In
//! every other case a checkpoint commits all apps.
//!
//! Invariants:
//! 1. No operation goes on from the moment in which an app's changes are counted to that in which they are durable. So
//!    what is committed is the app as it was after one of its operations.
//! 2. Only files of the app are staged. A page that waits for another app's file is none of this commit's: then it
//!    takes a checkpoint.
//! 3. Any change of a name leaves a directory of the app dirty until the next checkpoint, and so does what moves a
//!    directory in or out: until then checkpoints commit it. Where apps are no folders, names are not an app's own.
//! 4. Where the operations of a killed daemon are replayed from a log, no app is committed alone: the log follows the
//!    last checkpoint.
//!
//! Locks: the operation lock alone; with it those of staging and of the log. Called with none held.

use crate::commit::Commit;
use crate::commit::account::AppStats;
use crate::commit::apps::{AppId, Apps};
use crate::commit::change_set::{ChangeSet, Naming, Request};
use crate::commit::checkpoint::CheckpointSink;
use crate::commit::fsync::before_sync;
use crate::commit::recoverable_names::NameJudge;
use crate::content::placement::Purpose;
use crate::error::{Error, Result};
use crate::map::inode::Inode;
use crate::options::{FsyncMode, Survivor};
use medfs_format::Ino;
use medfs_format::node::FileKind;
use std::sync::Arc;

/// Most files that are committed so: the writeback of all keeps every operation waiting.
const MOST_FILES: usize = 64;

impl Commit {
    /// Commits the app that made a commit due, where it is one and can be alone.
    pub(crate) fn commit_due_app(&self) -> Result<bool> {
        self.ways.durability.due_app().map_or(Ok(false), |app| self.commit_app(app))
    }

    /// Commits all that waits of an app, and of no other one. `false` where a checkpoint has to.
    pub(super) fn commit_app(&self, app: AppId) -> Result<bool> {
        let Some(apps) = self.apps.as_ref().filter(|_| self.may_commit_apps()) else { return Ok(false) };
        let alone = self.ops.alone();
        let began = self.clock.monotonic();
        self.check_writable()?;
        self.count_changes();
        let Some(files) = self.plain_files(apps, app) else { return Ok(false) };
        let request = |inode| Request { inode, purpose: Purpose::App, naming: Naming::AsItWas };
        let requests: Vec<Request<'_>> = files.iter().map(request).collect();
        let (mut set, failed) = ChangeSet::of_files_alone(self, &requests, &alone);
        set.files.retain(|file| file.dirty);
        set.ask(self, &*self.ways.log);
        if !failed.is_empty() || set.files.iter().any(|file| file.refused.is_some()) {
            return Ok(false);
        }
        match self.ways.log.commit_at_once(self, &set) {
            Ok(true) => {}
            // A checkpoint finds room where the chain has none.
            Ok(false) | Err(Error::NoSpace) => return Ok(false),
            Err(error) => return Err(error),
        }
        self.nodes.changes.committed_of(&files.iter().map(|inode| inode.ino).collect::<Vec<_>>());
        let took = self.clock.monotonic().saturating_sub(began);
        self.ways.durability.app_committed(app, took);
        Ok(true)
    }

    /// A barrier for one app: makes all durable that waits of the app of a file, and of others only where a checkpoint
    /// has to. Where the volume is one app, or puts nothing off, everything is.
    pub(crate) fn sync_app(&self, ino: Ino) -> Result<()> {
        self.inode(ino)?;
        if self.read_only {
            return Ok(());
        }
        before_sync(self)?;
        if self.apps.is_some() && self.commit_app(self.app_of(ino))? {
            return Ok(());
        }
        CheckpointSink.sync(self)
    }

    /// What changed since is counted for its app, where the volume has several. No lock of a file is held. Who returns
    /// from here, and keeps every operation out, knows of all that changed.
    pub(super) fn count_changes(&self) {
        if let Some(apps) = &self.apps {
            let _counting = apps.counting();
            let named_rightly = |inode: &Inode| NameJudge { commit: self }.is_right(inode);
            let (since, moved) = apps.moved(self, self.clock.monotonic(), &named_rightly);
            self.ways.durability.count(since, &moved);
        }
    }

    /// What waits of each app; `None` where the volume is one.
    pub(crate) fn app_stats(&self) -> Option<Vec<AppStats>> {
        self.count_changes();
        let names = self.apps.as_ref()?.names();
        Some(self.ways.durability.app_stats(self.clock.monotonic(), names))
    }

    /// A user did something. Whether any commit waits for pauses of one.
    pub(crate) fn note_user(&self) -> bool {
        self.ways.durability.on_user(self.clock.monotonic())
    }

    /// The app of a file.
    pub(super) fn app_of(&self, ino: Ino) -> AppId {
        let app = self.apps.as_ref().and_then(|apps| apps.of_ino(self, ino));
        app.unwrap_or(AppId::REST)
    }

    fn may_commit_apps(&self) -> bool {
        self.opts.fsync_mode == FsyncMode::Strict && !matches!(self.opts.survivor, Survivor::In(_))
    }

    /// The files of which all is that waits of an app; `None` where something else waits, or too many do.
    fn plain_files(&self, apps: &Apps, app: AppId) -> Option<Vec<Arc<Inode>>> {
        let dirty = apps.dirty(app);
        if !apps.own_their_names(self) || dirty.len() > MOST_FILES {
            return None;
        }
        let files: Option<Vec<Arc<Inode>>> = dirty.iter().map(|ino| self.inode(*ino).ok()).collect();
        files.filter(|files| files.iter().all(|inode| self.has_its_names(inode)))
    }

    /// Whether a file is one that the last checkpoint knows by the names that it has, and whose pages may move.
    fn has_its_names(&self, inode: &Inode) -> bool {
        inode.kind() == FileKind::Regular
            && !inode.is_pinned()
            && inode.nlink() > 0
            && self.nat.peek(&self.io, inode.ino).is_ok_and(|entry| entry.checkpointed)
            && !self.since.renamed_files.lock().contains(&inode.ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{commit_on, device, new};
    use crate::content::file::WriteTimes;
    use std::time::Duration;

    /// Who has taken what changed and has not counted it keeps commits waiting: they would leave that out.
    #[test]
    fn commits_wait_for_who_counts() {
        let on = commit_on(&device(), "durability=adaptive,survivor=off,apps=top").unwrap();
        let folder = on.create(on.geo.root_ino, b"a", &new(FileKind::Directory)).unwrap().ino;
        let files = [b"f", b"g"].map(|name| on.create(folder, name, &new(FileKind::Regular)).unwrap().ino);
        let write = |byte: u8| {
            let written = files.map(|f| on.write(f, 0, &[byte; 4096], WriteTimes::Now).unwrap());
            assert_eq!(written, [4096; 2]);
        };
        let waits = |commit: &(dyn Fn() -> bool + Sync)| {
            let counting = on.apps.as_ref().expect("the volume has several").counting();
            std::thread::scope(|scope| {
                let committed = scope.spawn(commit);
                std::thread::sleep(Duration::from_millis(100));
                let is_early = committed.is_finished();
                drop(counting);
                committed.join().expect("no panic") && !is_early
            })
        };
        write(1);
        on.write_back_all().unwrap();
        assert!(waits(&|| on.checkpoint_now().is_ok()), "a checkpoint");
        write(2);
        assert!(waits(&|| on.commit_app(on.app_of(files[0])).unwrap()), "a commit of the app");
    }
}
