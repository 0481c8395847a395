//! The engine in this process as a target: a volume on a device in memory, counted, with a clock that the
//! workload moves.
//!
//! With a [`Timeline`] each operation has a time in virtual microseconds: see [`crate::model`].
//!
//! Locks: one mutex over open files and known folders, held to look something up. The volume locks for itself.

use super::{Handle, Open, Target, split};
use crate::model::{Kind, Timeline};
use medfs::{
    Clock, Error, FileKind, Files, Ino, ManualClock, MountOptions, NewFile, Posix, RenameFlags, SetAttr,
    Timestamp, Volume,
};
use medfs_device::{BlockDevice, Nvram};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The most that `pass` lets go by between two steps of background work, as a front end's timer does.
const TICK: Duration = Duration::from_secs(1);

/// When workloads begin: some moment of 2024.
pub fn start_of_time() -> Timestamp {
    Timestamp { secs: 1_720_000_000, nanos: 0 }
}

/// A mounted volume and the time it lives in.
pub struct VolumeTarget {
    volume: Volume,
    clock: Arc<ManualClock>,
    timeline: Option<Arc<Timeline>>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    open: HashMap<u64, Ino>,
    folders: HashMap<String, Ino>,
    next: u64,
    /// Time that passed since the last step of background work.
    waited: Duration,
}

/// The error for a handle that is not open.
pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the file is not open")
}

fn to_io(e: Error) -> io::Error {
    match e.errno() {
        libc::ENOENT => io::Error::new(io::ErrorKind::NotFound, e),
        libc::ENOSPC => io::Error::new(io::ErrorKind::StorageFull, e),
        _ => io::Error::other(e),
    }
}

impl VolumeTarget {
    /// Mounts the volume on `device`.
    pub fn mount(
        device: Arc<dyn BlockDevice>,
        options: MountOptions,
        timeline: Option<Arc<Timeline>>,
    ) -> medfs::Result<VolumeTarget> {
        let clock = Arc::new(ManualClock::new(start_of_time()));
        let volume = Volume::open(device, options, clock.clone() as Arc<dyn Clock>)?;
        Ok(VolumeTarget { volume, clock, timeline, table: Mutex::default() })
    }

    /// The same with a memory that takes fsyncs (`nvram=`).
    pub fn mount_with_nvram(
        device: Arc<dyn BlockDevice>,
        memory: Arc<dyn Nvram>,
        options: MountOptions,
        timeline: Option<Arc<Timeline>>,
    ) -> medfs::Result<VolumeTarget> {
        let clock = Arc::new(ManualClock::new(start_of_time()));
        let volume = medfs::open_with_nvram(device, memory, options, clock.clone() as Arc<dyn Clock>)?;
        Ok(VolumeTarget { volume, clock, timeline, table: Mutex::default() })
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The time that it lives in.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// The inode number of a path; it is not held.
    pub fn ino(&self, path: &str) -> medfs::Result<Ino> {
        let (folder, name) = split(path);
        let parent = self.folder(folder)?;
        let ino = self.volume.lookup(parent, name.as_bytes())?.ino;
        self.volume.release(ino, 1);
        Ok(ino)
    }

    /// Writes everything and closes the volume.
    pub fn unmount(&self) -> medfs::Result<()> {
        let mut table = self.table.lock();
        for (_, ino) in std::mem::take(&mut table.open) {
            self.volume.release(ino, 1);
        }
        for (_, ino) in std::mem::take(&mut table.folders) {
            self.volume.release(ino, 1);
        }
        self.volume.close()
    }

    /// The inode of a folder. It stays held, as the kernel holds folders that are in use.
    fn folder(&self, path: &str) -> medfs::Result<Ino> {
        if path.is_empty() {
            return Ok(self.volume.root());
        }
        if let Some(ino) = self.table.lock().folders.get(path) {
            return Ok(*ino);
        }
        let (above, name) = split(path);
        let ino = self.volume.lookup(self.folder(above)?, name.as_bytes())?.ino;
        if self.table.lock().folders.insert(path.to_owned(), ino).is_some() {
            self.volume.release(ino, 1);
        }
        Ok(ino)
    }

    fn ino_of(&self, file: Handle) -> io::Result<Ino> {
        self.table.lock().open.get(&file.0).copied().ok_or_else(closed)
    }

    fn new_file(kind: FileKind, perm: u16) -> NewFile {
        NewFile { kind, perm, umask: 0, uid: 0, gid: 0, rdev: 0 }
    }

    /// Runs an operation and tells the timeline what it took.
    fn timed<T>(&self, kind: Kind, op: impl FnOnce(&Volume) -> medfs::Result<T>) -> io::Result<T> {
        if let Some(timeline) = &self.timeline {
            timeline.begin(kind);
        }
        let result = op(&self.volume);
        if let Some(timeline) = &self.timeline {
            timeline.end(kind);
        }
        result.map_err(to_io)
    }

    fn open_ino(&self, path: &str, how: Open) -> medfs::Result<Ino> {
        let (folder, name) = split(path);
        let parent = self.folder(folder)?;
        match self.volume.lookup(parent, name.as_bytes()) {
            Ok(attr) => {
                if how == Open::Truncate && attr.size > 0 {
                    self.volume.setattr(attr.ino, &SetAttr { size: Some(0), ..SetAttr::default() })?;
                }
                Ok(attr.ino)
            }
            Err(Error::Posix(Posix::NotFound)) if how != Open::Existing => {
                let new = VolumeTarget::new_file(FileKind::Regular, 0o600);
                Ok(self.volume.create(parent, name.as_bytes(), &new)?.ino)
            }
            Err(e) => Err(e),
        }
    }
}

impl Target for VolumeTarget {
    fn open(&self, path: &str, how: Open) -> io::Result<Handle> {
        let ino = self.timed(Kind::Name, |_| self.open_ino(path, how))?;
        let mut table = self.table.lock();
        table.next += 1;
        let handle = table.next;
        table.open.insert(handle, ino);
        Ok(Handle(handle))
    }
    fn close(&self, file: Handle) -> io::Result<()> {
        let ino = self.table.lock().open.remove(&file.0).ok_or_else(closed)?;
        self.volume.release(ino, 1);
        Ok(())
    }
    fn read(&self, file: Handle, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let ino = self.ino_of(file)?;
        self.timed(Kind::Read, |v| v.read(ino, offset, buf))
    }
    fn write(&self, file: Handle, offset: u64, data: &[u8]) -> io::Result<()> {
        let ino = self.ino_of(file)?;
        let mut done = 0;
        while done < data.len() {
            done += self.timed(Kind::Write, |v| v.write(ino, offset + done as u64, &data[done..]))?;
        }
        Ok(())
    }
    fn truncate(&self, file: Handle, len: u64) -> io::Result<()> {
        let ino = self.ino_of(file)?;
        let set = SetAttr { size: Some(len), ..SetAttr::default() };
        self.timed(Kind::Name, |v| v.setattr(ino, &set)).map(drop)
    }
    fn size(&self, file: Handle) -> io::Result<u64> {
        self.volume.getattr(self.ino_of(file)?).map(|attr| attr.size).map_err(to_io)
    }
    fn fsync(&self, file: Handle, datasync: bool) -> io::Result<()> {
        let ino = self.ino_of(file)?;
        self.timed(Kind::Fsync, |v| v.fsync(ino, datasync))
    }
    fn fsync_dir(&self, path: &str) -> io::Result<()> {
        let ino = self.folder(path).map_err(to_io)?;
        self.timed(Kind::Fsync, |v| v.fsync(ino, false))
    }
    fn mkdir(&self, path: &str) -> io::Result<()> {
        let (folder, name) = split(path);
        let parent = self.folder(folder).map_err(to_io)?;
        let new = VolumeTarget::new_file(FileKind::Directory, 0o700);
        match self.volume.create(parent, name.as_bytes(), &new) {
            Ok(attr) => {
                self.volume.release(attr.ino, 1);
                Ok(())
            }
            Err(Error::Posix(Posix::Exists)) => Ok(()),
            Err(e) => Err(to_io(e)),
        }
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let ((a, name), (b, new)) = (split(from), split(to));
        let (a, b) = (self.folder(a).map_err(to_io)?, self.folder(b).map_err(to_io)?);
        self.timed(Kind::Name, |v| v.rename(a, name.as_bytes(), b, new.as_bytes(), RenameFlags::empty()))
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        let (folder, name) = split(path);
        let parent = self.folder(folder).map_err(to_io)?;
        self.timed(Kind::Name, |v| v.unlink(parent, name.as_bytes()))
    }
    fn exists(&self, path: &str) -> io::Result<bool> {
        match self.ino(path) {
            Ok(_) => Ok(true),
            Err(Error::Posix(Posix::NotFound)) => Ok(false),
            Err(e) => Err(to_io(e)),
        }
    }
    fn sync(&self) -> io::Result<()> {
        self.timed(Kind::Fsync, |v| v.sync())
    }
    fn pass(&self, time: Duration) -> io::Result<()> {
        let mut left = time;
        while !left.is_zero() {
            let waited = self.table.lock().waited;
            let step = left.min(TICK - waited);
            self.clock.advance(step);
            if let Some(timeline) = &self.timeline {
                timeline.pass(step);
            }
            left -= step;
            let due = {
                let mut table = self.table.lock();
                table.waited += step;
                let due = table.waited >= TICK;
                if due {
                    table.waited = Duration::ZERO;
                }
                due
            };
            if due {
                self.volume.background().map_err(to_io)?;
            }
        }
        Ok(())
    }
}
