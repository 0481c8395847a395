//! A volume that is watched: each operation is handed on, and of each file that is written its features and
//! its pieces are kept.
//!
//! Purpose: the features are those that the engine counts, read when it would judge. Pieces are counted
//! before they go: when a file is cut off, loses its name or ends.
//! Locks: one mutex over what was seen. Operations come one after the other; concurrent ones are safe, and
//! what is kept of them is of some order.

use crate::label::{fragments, label};
use crate::sample::{Moment, Sample};
use medfs::{
    Attr, DirEntry, Extent, FallocateMode, FileFlags, Files, Ino, NewFile, RenameFlags, Result, Seek,
    SetAttr, StatFs, Volume, XattrMode, ars,
};
use medfs_format::ars::{Class, Feature, Values};
use medfs_sync::Mutex;
use std::collections::BTreeMap;

/// A file that was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The last name that it was made with or found by.
    pub name: Vec<u8>,
    /// Its features when it was judged, and in the end.
    pub judged: Vec<Values>,
    /// Its features in the end.
    pub end: Values,
    /// Most pieces that it was in, and its pages then.
    pub extents: u64,
    /// See `extents`.
    pub pages: u64,
}

impl Seen {
    /// Its label.
    pub fn class(&self) -> Class {
        label(&self.end, fragments(self.pages, self.extents))
    }

    /// Its samples, as file number `file`.
    pub fn samples(&self, file: usize, moment: Moment) -> impl Iterator<Item = Sample> {
        let class = self.class();
        let end = [self.end];
        let moments = match moment {
            Moment::Judged if !self.judged.is_empty() => &self.judged[..],
            _ => &end[..],
        };
        moments.iter().map(|&features| Sample { features, class, file }).collect::<Vec<_>>().into_iter()
    }
}

#[derive(Default)]
struct Table {
    /// Files that are there, by number.
    files: BTreeMap<Ino, Seen>,
    /// Names that numbers were made with or found by.
    names: BTreeMap<Ino, Vec<u8>>,
    /// Files whose numbers others have now.
    gone: Vec<Seen>,
}

/// A volume that is watched.
pub struct Watch<'v> {
    volume: &'v Volume,
    table: Mutex<Table>,
}

impl<'v> Watch<'v> {
    /// Watches a volume.
    pub fn new(volume: &'v Volume) -> Watch<'v> {
        Watch { volume, table: Mutex::default() }
    }

    /// Every file that was written, in the order in which they ended, then by number.
    ///
    /// # Errors
    /// Those of writing what is in memory, without which it has no place yet.
    pub fn finish(self) -> Result<Vec<Seen>> {
        self.volume.sync()?;
        let inos: Vec<Ino> = self.table.lock().files.keys().copied().collect();
        inos.iter().for_each(|&ino| self.count_pieces(ino));
        let table = self.table.into_inner();
        Ok(table.gone.into_iter().chain(table.files.into_values()).collect())
    }

    /// Forgets what happened so far: it was before what is to be learned from.
    pub fn begin(&self) {
        let mut table = self.table.lock();
        table.files.clear();
        table.gone.clear();
    }

    fn named(&self, attr: &Attr, name: &[u8], is_new: bool) {
        let mut table = self.table.lock();
        if is_new && let Some(before) = table.files.remove(&attr.ino) {
            table.gone.push(before);
        }
        table.names.insert(attr.ino, name.to_vec());
    }

    /// Keeps what is known of a file, after a call that counted.
    fn look(&self, ino: Ino, wrote: bool) {
        let Ok(Some(features)) = ars::features(self.volume, ino) else { return };
        let mut table = self.table.lock();
        let name = table.names.get(&ino).cloned().unwrap_or_default();
        let seen = table.files.entry(ino).or_insert_with(|| Seen { name, ..Seen::default() });
        seen.end = features;
        if wrote && ars::is_judged_at(features[Feature::Writes as usize]) {
            seen.judged.push(features);
        }
    }

    /// Counts the pieces of a file, before some or all may go.
    fn count_pieces(&self, ino: Ino) {
        if !self.table.lock().files.contains_key(&ino) {
            return;
        }
        let Ok(extents) = Extent::of(self.volume, ino) else { return };
        let (count, pages) = (extents.len() as u64, extents.iter().map(|e| e.len).sum());
        let mut table = self.table.lock();
        if let Some(seen) = table.files.get_mut(&ino).filter(|seen| seen.extents <= count) {
            (seen.extents, seen.pages) = (count, pages);
        }
    }

    fn before_loss(&self, parent: Ino, name: &[u8]) {
        if let Ok(attr) = self.volume.lookup(parent, name) {
            self.count_pieces(attr.ino);
            self.volume.release(attr.ino, 1);
        }
    }
}

impl Files for Watch<'_> {
    fn root(&self) -> Ino {
        self.volume.root()
    }
    fn volume(&self) -> Option<&Volume> {
        Some(self.volume)
    }
    fn background(&self) -> Result<()> {
        self.volume.background()
    }
    fn hold(&self, ino: Ino, count: u64) -> Result<()> {
        self.volume.hold(ino, count)
    }
    fn statfs(&self) -> Result<StatFs> {
        Ok(self.volume.space())
    }
    fn sync(&self) -> Result<()> {
        self.volume.sync()
    }
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let attr = self.volume.lookup(parent, name)?;
        self.named(&attr, name, false);
        Ok(attr)
    }
    fn release(&self, ino: Ino, count: u64) {
        self.volume.release(ino, count);
    }
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.volume.getattr(ino)
    }
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        if set.size.is_some() {
            self.count_pieces(ino);
        }
        let attr = self.volume.setattr(ino, set)?;
        if set.size.is_some() {
            self.look(ino, false);
        }
        Ok(attr)
    }
    fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> Result<Attr> {
        let attr = self.volume.create(parent, name, new)?;
        self.named(&attr, name, true);
        Ok(attr)
    }
    fn tmpfile(&self, parent: Ino, new: &NewFile) -> Result<Attr> {
        let attr = self.volume.tmpfile(parent, new)?;
        self.named(&attr, b"", true);
        Ok(attr)
    }
    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Attr> {
        self.volume.symlink(parent, name, target, uid, gid)
    }
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.volume.readlink(ino)
    }
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.volume.link(ino, parent, name)
    }
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.before_loss(parent, name);
        self.volume.unlink(parent, name)
    }
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.volume.rmdir(parent, name)
    }
    fn rename(&self, parent: Ino, name: &[u8], to: Ino, to_name: &[u8], flags: RenameFlags) -> Result<()> {
        self.before_loss(to, to_name);
        self.volume.rename(parent, name, to, to_name, flags)
    }
    fn readdir(&self, ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.volume.readdir(ino, position, emit)
    }
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.volume.read(ino, offset, buf)
    }
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let written = self.volume.write(ino, offset, data)?;
        self.look(ino, !data.is_empty());
        Ok(written)
    }
    fn write_cached(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let written = self.volume.write_cached(ino, offset, data)?;
        self.look(ino, !data.is_empty());
        Ok(written)
    }
    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.volume.fallocate(ino, mode, offset, len)
    }
    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        self.volume.seek(ino, offset, whence)
    }
    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        self.volume.copy_range(from, from_offset, to, to_offset, len)
    }
    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.volume.fsync(ino, datasync)?;
        self.look(ino, false);
        Ok(())
    }
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.volume.getxattr(ino, name)
    }
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.volume.listxattr(ino)
    }
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.volume.setxattr(ino, name, value, mode)
    }
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.volume.removexattr(ino, name)
    }
    fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<()> {
        self.volume.set_flags(ino, flags)
    }
    fn atomic_start(&self, ino: Ino) -> Result<()> {
        self.volume.atomic_start(ino)
    }
    fn atomic_commit(&self, ino: Ino) -> Result<()> {
        self.volume.atomic_commit(ino)
    }
    fn atomic_abort(&self, ino: Ino) -> Result<()> {
        self.volume.atomic_abort(ino)
    }
}
