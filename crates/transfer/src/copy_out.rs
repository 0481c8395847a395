//! Copying out of a volume: the host's directory that files are copied to.
//!
//! Invariant: nothing is written outside that directory. Every name is opened from its directory's
//! descriptor, one component at a time, and no symbolic link below it is followed, whoever put it there. What
//! is there gives way to a whole copy alone, or to one that lacks nothing it has ([`beside`]) or takes it
//! over ([`merge`]).

mod beside;
mod merge;

use crate::metadata::Metadata;
use medfs::FileKind;
use medfs_rescue::{Lost, Meta, Place, Settled, Sink};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Access, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const DIR: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Directories that stay open on the way to the one that is written: of a deeper tree all are opened again now and
/// then.
const KEPT_OPEN: usize = 64;

/// A directory of the host as the [`Sink`] of a walk of medfs-rescue.
pub struct HostDir<'a> {
    root: OwnedFd,
    /// What the user calls it.
    shown: PathBuf,
    /// The way to the directory that was used last, up to [`KEPT_OPEN`] of it: each is in the one before.
    way: Vec<(Place, OwnedFd)>,
    /// The regular file that is being written, and its name until then.
    file: Option<(File, Vec<u8>, Place)>,
    /// Files that were made here, by device and number: none gives way to another.
    made: HashSet<(u64, u64)>,
    /// The file that is read, by the same.
    source: Option<(u64, u64)>,
    /// Told the bytes of each piece that was written, and 0 of one that cannot be read.
    copied: Box<dyn FnMut(u64) + 'a>,
}

impl<'a> HostDir<'a> {
    /// Below a directory that is there, by whatever name the user has for it. `copied` is told the bytes of each
    /// piece that was written, and 0 of one that cannot be read.
    ///
    /// # Errors
    ///
    /// Where the directory cannot be opened or nothing can be made in it.
    pub fn new(root: &Path, copied: impl FnMut(u64) + 'a) -> io::Result<HostDir<'a>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = fs::open(root, flags, Mode::empty()).map_err(io::Error::from)?;
        // Each file would fail for the same reason.
        fs::accessat(&opened, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
        Ok(HostDir {
            root: opened,
            shown: root.to_owned(),
            way: Vec::new(),
            file: None,
            made: HashSet::new(),
            source: None,
            copied: Box::new(copied),
        })
    }

    /// Lets no file take the place of the image that is read.
    pub fn sparing(self, image: &Path) -> HostDir<'a> {
        let source = fs::stat(image).ok().map(|stat| (stat.st_dev, stat.st_ino));
        HostDir { source, ..self }
    }

    /// A path for messages.
    fn shown(&self, at: &Place) -> String {
        let mut path = self.shown.clone();
        path.extend(at.names().into_iter().map(OsStr::from_bytes));
        path.display().to_string()
    }

    /// An error with what was not done; its kind stays.
    fn failed(&self, what: &str, at: &Place, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("cannot {what} {}: {error}", self.shown(at)))
    }

    /// Opens a directory, name by name from the nearest above it that is open.
    fn open(&mut self, dir: &Place) -> io::Result<&OwnedFd> {
        let (mut below, mut at) = (Vec::new(), Some(dir));
        let mut kept = 0;
        while let Some(place) = at {
            if let Some(found) = self.way.iter().rposition(|(opened, _)| opened.is(place)) {
                kept = found + 1;
                break;
            }
            below.push(place);
            at = place.above();
        }
        self.way.truncate(kept);
        while let Some(place) = below.pop() {
            let above = self.way.last().map_or(&self.root, |(_, opened)| opened);
            let opened = match place.name() {
                b"" => above.try_clone()?,
                name => fs::openat(above, name, DIR | OFlags::PATH, Mode::empty())?,
            };
            if self.way.len() == KEPT_OPEN {
                self.way.remove(0);
            }
            self.way.push((place.clone(), opened));
        }
        Ok(self.way.last().map_or(&self.root, |(_, opened)| opened))
    }

    /// The directory that a place is in, and its name there.
    fn parent<'p>(&mut self, at: &'p Place) -> io::Result<(&OwnedFd, &'p [u8])> {
        if at.name().is_empty() {
            return Err(io::Error::other("the destination itself"));
        }
        match at.above() {
            None => Ok((&self.root, at.name())),
            Some(dir) => Ok((self.open(dir)?, at.name())),
        }
    }

    /// Whether a new file may take a place. A directory stays and is an error, and so is a device or pipe,
    /// which nobody wants replaced by a regular file.
    fn check_place(&mut self, at: &Place, regular: bool) -> io::Result<()> {
        let (dir, name) = self.parent(at)?;
        let old = match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        if self.source == Some((old.st_dev, old.st_ino)) {
            let text = format!("{} is the image that is read: name another destination", self.shown(at));
            return Err(io::Error::other(text));
        }
        if self.made.contains(&(old.st_dev, old.st_ino)) {
            let text = format!("{} was copied from another file just now", self.shown(at));
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let old = FileType::from_raw_mode(old.st_mode);
        if old == FileType::Directory {
            let text = format!("{} is a directory: a file cannot take its place", self.shown(at));
            return Err(io::Error::other(text));
        }
        if regular && old != FileType::RegularFile && old != FileType::Symlink {
            let what = "is not a regular file: '-' in its place copies to standard output";
            return Err(io::Error::other(format!("{} {what}", self.shown(at))));
        }
        Ok(())
    }

    /// Makes something beside its place; the name it has there.
    fn make_beside<T>(
        &mut self,
        at: &Place,
        make: impl FnMut(&OwnedFd, &[u8]) -> io::Result<T>,
    ) -> io::Result<(Vec<u8>, T)> {
        let (dir, name) = self.parent(at)?;
        let (beside, made) = beside::make(dir, name, make).map_err(|e| self.failed("make", at, e))?;
        let (dir, _) = self.parent(at)?;
        let stat = fs::statat(dir, &beside[..], AtFlags::SYMLINK_NOFOLLOW)?;
        self.made.insert((stat.st_dev, stat.st_ino));
        Ok((beside, made))
    }

    /// Whether what is at a place, if anything, gives way to a copy of `size` bytes without `lost`, which is beside it.
    fn gives_way(&mut self, at: &Place, beside: &[u8], size: u64, lost: &Lost) -> io::Result<bool> {
        let (dir, name) = self.parent(at)?;
        let mut nothing_more = lost.bytes == 0 || beside::has_nothing_more(dir, name, size, lost)?;
        if nothing_more && lost.unsure && fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            nothing_more = merge::contains(dir, beside, name).unwrap_or(false);
        }
        let old = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        Ok(nothing_more && !old.is_some_and(|old| self.made.contains(&(old.st_dev, old.st_ino))))
    }

    /// Whether there is a copy at a place already, of equal size and time: where its content differs, the device may
    /// have lost some.
    fn has_earlier_copy(&mut self, at: &Place, beside: &[u8]) -> io::Result<bool> {
        let (dir, name) = self.parent(at)?;
        let Ok(old) = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(false) };
        let new = fs::statat(dir, beside, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_file = FileType::from_raw_mode(old.st_mode) == FileType::RegularFile;
        let is_equal =
            (old.st_size, old.st_mtime, old.st_mtime_nsec) == (new.st_size, new.st_mtime, new.st_mtime_nsec);
        Ok(is_file && is_equal)
    }

    /// Fills the gaps of what was made beside a place with what an earlier copy there has, and tells whether no gap is
    /// left; `None` where what is there is none.
    fn takes_over(&mut self, beside: &[u8], at: &Place, lost: &Lost) -> io::Result<Option<bool>> {
        let (dir, name) = self.parent(at)?;
        let old = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if lost.unsure || self.made.contains(&(old.st_dev, old.st_ino)) {
            return Ok(None);
        }
        let (dir, name) = self.parent(at)?;
        merge::take_over(dir, beside, name, lost).map_err(|e| self.failed("take over what is in", at, e))
    }

    /// Removes what interrupted runs left beside a file that is there now. A leftover with content that the
    /// file lacks stays, as does one that cannot be read: nothing is lost by this.
    fn clear_partials(&mut self, at: &Place) {
        for number in 0.. {
            let Ok((dir, name)) = self.parent(at) else { return };
            let partial = beside::partial(name, number);
            let Ok(stat) = fs::statat(dir, &partial[..], AtFlags::SYMLINK_NOFOLLOW) else { return };
            // A copy that ended has the mode of its file; it was named to the user.
            let is_old = !self.made.contains(&(stat.st_dev, stat.st_ino)) && stat.st_mode & 0o7777 == 0o600;
            let Ok((dir, name)) = self.parent(at) else { return };
            if is_old && merge::contains(dir, name, &partial).unwrap_or(false) {
                let _ = fs::unlinkat(dir, &partial[..], AtFlags::empty());
            }
        }
    }

    /// Puts what was made beside a place there or, where it lacks what is there and cannot take it over, as
    /// near as can be.
    fn settle(&mut self, at: &Place, beside: &[u8], size: u64, lost: &Lost) -> io::Result<Settled> {
        let first = beside::partial(self.parent(at)?.1, 0);
        let (mut filled, mut whole) = (false, false);
        for place in [at.clone(), at.called(&first)] {
            let is_there = self.parent(&place)?.1 == beside;
            if !is_there && !self.gives_way(&place, beside, size, lost)? {
                let Some(is_whole) = self.takes_over(beside, &place, lost)? else { continue };
                (filled, whole) = (true, is_whole);
            }
            let (dir, name) = self.parent(&place)?;
            // Of a file that is there already this does nothing.
            let renamed = fs::renameat(dir, beside, dir, name);
            renamed.map_err(|e| self.failed("replace", &place, e.into()))?;
            return Ok(Settled { place, filled, whole });
        }
        Ok(Settled { place: at.called(beside), filled, whole })
    }
}

fn make_special(dir: &OwnedFd, name: &[u8], meta: &Meta, target: &[u8]) -> io::Result<()> {
    let kind = match meta.attr.kind {
        FileKind::Symlink => return Ok(fs::symlinkat(target, dir, name)?),
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::Regular | FileKind::Directory => return Err(io::Error::other("it has content")),
    };
    Ok(fs::mknodat(dir, name, kind, Mode::RUSR | Mode::WUSR, meta.attr.rdev)?)
}

impl Sink for HostDir<'_> {
    fn enter(&mut self, at: &Place) -> io::Result<()> {
        if at.names().is_empty() {
            return Ok(());
        }
        let (dir, name) = self.parent(at)?;
        match fs::mkdirat(dir, name, Mode::RWXU) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(()),
                _ => Err(io::Error::other(format!("{} exists and is not a directory", self.shown(at)))),
            },
            Err(e) => Err(self.failed("make", at, e.into())),
        }
    }

    fn leave(&mut self, at: &Place, meta: &Meta) -> io::Result<()> {
        let opened = self.open(at).and_then(|path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(fs::openat(path, ".", flags, Mode::empty())?)
        });
        let set = opened.and_then(|dir| metadata(meta).apply_to_open(dir.as_fd()));
        set.map_err(|e| self.failed("set owner, mode and times of", at, e))
    }

    fn begin(&mut self, at: &Place) -> io::Result<()> {
        self.check_place(at, true)?;
        let (beside, file) = self.make_beside(at, |dir, name| {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Ok(File::from(fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?))
        })?;
        self.file = Some((file, beside, at.clone()));
        Ok(())
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some((file, _, at)) = &self.file else { return Err(io::Error::other("no file has begun")) };
        file.write_all_at(bytes, offset).map_err(|e| self.failed("write", at, e))?;
        (self.copied)(bytes.len() as u64);
        Ok(())
    }

    fn gap(&mut self) {
        (self.copied)(0);
    }

    fn end(&mut self, at: &Place, meta: &Meta, lost: &Lost) -> io::Result<Settled> {
        let Some((file, beside, place)) = self.file.take() else {
            return Err(io::Error::other("no file has begun"));
        };
        if let Err(error) = file.set_len(meta.attr.size) {
            self.file = Some((file, beside, place));
            self.give_up(at);
            return Err(self.failed("finish", at, error));
        }
        let set = metadata(meta).apply_to_open(file.as_fd());
        let unsure = lost.unsure || lost.bytes == 0 && self.has_earlier_copy(at, &beside)?;
        let settled = self.settle(at, &beside, meta.attr.size, &Lost { unsure, ..lost.clone() })?;
        if settled.place.names() == at.names() {
            self.clear_partials(at);
        }
        set.map_err(|e| self.failed("finish", &settled.place, e))?;
        Ok(settled)
    }

    fn give_up(&mut self, at: &Place) {
        let Some((_, beside, _)) = self.file.take() else { return };
        if let Ok((dir, _)) = self.parent(at)
            && let Err(error) = fs::unlinkat(dir, &beside[..], AtFlags::empty())
        {
            tracing::warn!("cannot remove {}: {error}", self.shown(&at.called(&beside)));
        }
    }

    fn special(&mut self, at: &Place, meta: &Meta, target: &[u8]) -> io::Result<()> {
        self.check_place(at, false)?;
        let (beside, ()) = self.make_beside(at, |dir, name| make_special(dir, name, meta, target))?;
        let (dir, _) = self.parent(at)?;
        let set = metadata(meta).apply_at(dir.as_fd(), OsStr::from_bytes(&beside));
        let place = self.settle(at, &beside, 0, &Lost::default())?.place;
        set.map_err(|e| self.failed("set owner, mode and times of", &place, e))
    }

    fn link(&mut self, first: &Place, at: &Place, lost: &Lost) -> io::Result<Settled> {
        // Two entries of one name, in a damaged directory: the file is there.
        if first.names() == at.names() {
            return Ok(Settled::at(at));
        }
        self.check_place(at, false)?;
        let (from, old) = self.parent(first)?;
        let from = from.try_clone()?;
        let size = fs::statat(&from, old, AtFlags::SYMLINK_NOFOLLOW)?.st_size as u64;
        let link = |dir: &OwnedFd, name: &[u8]| Ok(fs::linkat(&from, old, dir, name, AtFlags::empty())?);
        let (beside, ()) = self.make_beside(at, link)?;
        self.settle(at, &beside, size, lost)
    }
}

/// What a file gets besides its content.
fn metadata(meta: &Meta) -> Metadata {
    Metadata::of_volume(&meta.attr, &meta.xattrs)
}
