//! What makes things durable, and work in the background.

use super::{Applied, Durable, NOTHING, Session, refused};
use crate::model::PAGE;
use crate::ops::{MANY, Target};
use medfs::{Ino, Result as FsResult};

/// Reads of a file that is to be read-hot.
const READS_BEFORE_IDLE: u64 = 200;

/// What makes things durable.
pub(super) struct Durability<'s>(pub(super) &'s mut Session);

impl Durability<'_> {
    pub(super) fn fsync(&mut self, file: Target, datasync: bool) -> Applied {
        let Some(id) = self.0.target(file) else { return Ok(None) };
        self.0.fs.fsync(self.0.ino(id), datasync).map_err(refused("fsync"))?;
        Ok(Some(match self.0.model.inode(id).is_dir() {
            true => Durable::Directory { id, datasync },
            false => Durable::File { id, datasync },
        }))
    }

    pub(super) fn fsync_dir(&mut self, dir: u8) -> Applied {
        let Some(id) = self.0.dir(dir) else { return Ok(None) };
        self.0.fs.fsync(self.0.ino(id), false).map_err(refused("fsync of a directory"))?;
        Ok(Some(Durable::Directory { id, datasync: false }))
    }

    pub(super) fn fsync_many(&mut self, files: [Target; MANY], datasync: bool, threads: bool) -> Applied {
        let ids = files.map(|file| self.0.target(file));
        let inos: Vec<Ino> = ids.iter().flatten().map(|id| self.0.ino(*id)).collect();
        match threads {
            true => self.fsync_at_once(&inos, datasync),
            false => self.0.fs.fsync_many(&inos, datasync),
        }
        .map_err(refused("fsync of several files"))?;
        Ok(Some(Durable::Several { ids, datasync }))
    }

    pub(super) fn sync(&mut self) -> Applied {
        self.0.fs.sync().map_err(refused("sync"))?;
        Ok(Some(Durable::All))
    }

    pub(super) fn sync_app(&mut self, dir: u8) -> Applied {
        let Some(id) = self.0.dir(dir) else { return Ok(None) };
        self.0.fs.sync_app(self.0.ino(id)).map_err(refused("sync of an app"))?;
        Ok(Some(Durable::App { id }))
    }

    pub(super) fn checkpoint(&mut self) -> Applied {
        self.0.fs.checkpoint().map_err(refused("checkpoint"))?;
        Ok(Some(Durable::Metadata))
    }

    pub(super) fn background(&mut self) -> Applied {
        self.0.fs.background().map_err(refused("background work"))?;
        NOTHING
    }

    pub(super) fn idle(&mut self, file: Target) -> Applied {
        let Some(id) = self.0.regular(file) else { return Ok(None) };
        for page in 0..READS_BEFORE_IDLE {
            let offset = page % 8 * PAGE;
            self.0.fs.read(self.0.ino(id), offset, &mut [0; 100]).map_err(refused("read"))?;
        }
        self.0.fs.idle().map_err(refused("idle work"))?;
        NOTHING
    }

    /// fsyncs files, each by a thread of its own. The first error.
    fn fsync_at_once(&self, inos: &[Ino], datasync: bool) -> FsResult<()> {
        std::thread::scope(|scope| {
            let fsync = |ino: Ino| scope.spawn(move || self.0.fs.fsync(ino, datasync));
            let threads: Vec<_> = inos.iter().map(|ino| fsync(*ino)).collect();
            let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            ended.into_iter().try_for_each(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }
}
