//! The host's directory that files are copied to.
//!
//! Invariant: nothing is written outside that directory. Every name is opened from its directory's descriptor, one component at a time, and no symbolic
//! link below it is followed, whoever put it there.

use super::map::Keeper;
use crate::metadata::Metadata;
use indicatif::ProgressBar;
use medfs::FileKind;
use medfs_rescue::{Meta, Place, Sink};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const DIR: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Where files go.
pub(super) struct Host<'a> {
    root: OwnedFd,
    /// What the user calls it.
    shown: PathBuf,
    /// The directory that was used last.
    recent: Option<(Place, OwnedFd)>,
    /// The regular file that is being written.
    file: Option<(File, Place)>,
    /// Files that were made here, by device and number: none gives way to another.
    made: HashSet<(u64, u64)>,
    bar: ProgressBar,
    keeper: &'a mut Keeper,
}

impl<'a> Host<'a> {
    /// Below a directory that is there, by whatever name the user has for it.
    pub(super) fn new(root: &Path, bar: ProgressBar, keeper: &'a mut Keeper) -> io::Result<Host<'a>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = fs::open(root, flags, Mode::empty()).map_err(io::Error::from)?;
        Ok(Host {
            root: opened,
            shown: root.to_owned(),
            recent: None,
            file: None,
            made: HashSet::new(),
            bar,
            keeper,
        })
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

    /// Opens a directory, name by name.
    fn open(&self, names: &[&[u8]]) -> io::Result<OwnedFd> {
        let mut dir = self.root.try_clone()?;
        for name in names {
            dir = fs::openat(&dir, *name, DIR | OFlags::PATH, Mode::empty())?;
        }
        Ok(dir)
    }

    /// The directory that a place is in, and its name there.
    fn parent<'p>(&mut self, at: &'p Place) -> io::Result<(&OwnedFd, &'p [u8])> {
        let names = at.names();
        let Some((name, above)) = names.split_last() else {
            return Err(io::Error::other("the destination itself"));
        };
        let Some(dir) = at.above() else { return Ok((&self.root, name)) };
        if !self.recent.as_ref().is_some_and(|(recent, _)| recent.is(dir)) {
            self.recent = Some((dir.clone(), self.open(above)?));
        }
        match &self.recent {
            Some((_, opened)) => Ok((opened, name)),
            None => Ok((&self.root, name)),
        }
    }

    /// Makes way for a file of the same name. A directory stays and is an error, and so is a device or pipe, which nobody wants
    /// replaced by a regular file.
    fn remove_old(&mut self, at: &Place, regular: bool) -> io::Result<()> {
        let (dir, name) = self.parent(at)?;
        let old = match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        if self.made.contains(&(old.st_dev, old.st_ino)) {
            let text = format!("{} was copied from another file just now", self.shown(at));
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let (dir, name) = self.parent(at)?;
        let old = FileType::from_raw_mode(old.st_mode);
        if old == FileType::Directory {
            let text = format!("{} is a directory: a file cannot take its place", self.shown(at));
            return Err(io::Error::other(text));
        }
        if regular && old != FileType::RegularFile && old != FileType::Symlink {
            let what = "is not a regular file: '-' in its place copies to standard output";
            return Err(io::Error::other(format!("{} {what}", self.shown(at))));
        }
        let removed = fs::unlinkat(dir, name, AtFlags::empty());
        removed.map_err(|e| self.failed("replace", at, e.into()))
    }

    fn create(&mut self, at: &Place) -> io::Result<File> {
        let (dir, name) = self.parent(at)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
        let stat = fs::fstat(&file)?;
        self.made.insert((stat.st_dev, stat.st_ino));
        Ok(file.into())
    }

    fn make_special(&mut self, at: &Place, meta: &Meta, target: &[u8]) -> io::Result<()> {
        let (dir, name) = self.parent(at)?;
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
}

impl Sink for Host<'_> {
    fn enter(&mut self, at: &Place) -> io::Result<()> {
        if at.names().is_empty() {
            return Ok(());
        }
        let (dir, name) = self.parent(at)?;
        match fs::mkdirat(dir, name, Mode::RWXU) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(()),
                _ => Err(io::Error::other(format!("{} is there, and is not a directory", self.shown(at)))),
            },
            Err(e) => Err(self.failed("make", at, e.into())),
        }
    }

    fn leave(&mut self, at: &Place, meta: &Meta) -> io::Result<()> {
        let opened = self.open(&at.names()).and_then(|path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(fs::openat(&path, ".", flags, Mode::empty())?)
        });
        let set = opened.and_then(|dir| Metadata::from(meta).apply_to_open(dir.as_fd()));
        set.map_err(|e| self.failed("set owner, mode and times of", at, e))
    }

    fn begin(&mut self, at: &Place) -> io::Result<()> {
        self.remove_old(at, true)?;
        let file = self.create(at).map_err(|e| self.failed("make", at, e))?;
        self.file = Some((file, at.clone()));
        Ok(())
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some((file, at)) = &self.file else { return Err(io::Error::other("no file has begun")) };
        file.write_all_at(bytes, offset).map_err(|e| self.failed("write", at, e))?;
        self.bar.inc(bytes.len() as u64);
        self.keeper.keep();
        Ok(())
    }

    fn gap(&mut self) {
        self.keeper.keep();
    }

    fn end(&mut self, at: &Place, meta: &Meta) -> io::Result<()> {
        let Some((file, _)) = self.file.take() else { return Err(io::Error::other("no file has begun")) };
        let sized = file.set_len(meta.attr.size);
        let set = sized.and_then(|()| Metadata::from(meta).apply_to_open(file.as_fd()));
        set.map_err(|e| self.failed("finish", at, e))
    }

    fn give_up(&mut self, at: &Place) {
        self.file = None;
        if let Ok((dir, name)) = self.parent(at)
            && let Err(error) = fs::unlinkat(dir, name, AtFlags::empty())
        {
            tracing::warn!("cannot remove {}: {error}", self.shown(at));
        }
    }

    fn special(&mut self, at: &Place, meta: &Meta, target: &[u8]) -> io::Result<()> {
        self.remove_old(at, false)?;
        self.make_special(at, meta, target).map_err(|e| self.failed("make", at, e))?;
        let (dir, name) = self.parent(at)?;
        let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        self.made.insert((stat.st_dev, stat.st_ino));
        let (dir, name) = self.parent(at)?;
        let set = Metadata::from(meta).apply_at(dir.as_fd(), OsStr::from_bytes(name));
        set.map_err(|e| self.failed("set owner, mode and times of", at, e))
    }

    fn link(&mut self, first: &Place, at: &Place) -> io::Result<()> {
        let names = first.names();
        // Two entries of one name, in a damaged directory: the file is there.
        if names == at.names() {
            return Ok(());
        }
        self.remove_old(at, false)?;
        let Some((old, above)) = names.split_last() else { return Ok(()) };
        let from = self.open(above)?;
        let (dir, name) = self.parent(at)?;
        let linked = fs::linkat(from, *old, dir, name, AtFlags::empty());
        linked.map_err(|e| self.failed("make", at, e.into()))
    }
}
