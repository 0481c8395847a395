//! Names: looking up, making, removing, renaming, listing.

use super::context::{Context, Done};
use crate::abi::{
    AttrData, CreateIn, Dirent, EntryOut, LinkIn, MkdirIn, MknodIn, ReadIn, Rename2In, RenameIn,
};
use crate::request::{Errno, Reply, Request, name, split_name};
use medfs::{DirEntry, FileKind, NewFile, Posix, RenameFlags};

/// Whether an operation failed because there is no such name.
fn is_not_found(error: &medfs::Error) -> bool {
    matches!(error, medfs::Error::Posix(Posix::NotFound))
}

/// Bytes of a directory entry in a reply.
fn dirent_size(name: &[u8]) -> usize {
    (size_of::<Dirent>() + name.len()).next_multiple_of(8)
}

/// The kind of a file in a directory entry, as the upper bits of its mode.
fn kind_mode(entry: &DirEntry) -> u32 {
    entry.kind.map_or(0, |kind| u32::from(kind.mode_bits()))
}

fn push_dirent(reply: &mut Reply<'_>, entry: &DirEntry) -> Done {
    let head = Dirent {
        ino: u64::from(entry.ino),
        off: entry.next,
        namelen: entry.name.len() as u32,
        kind: kind_mode(entry) >> 12,
    };
    reply.push(&head)?;
    reply.bytes(&entry.name)?;
    reply.bytes(&[0; 7][..dirent_size(&entry.name) - size_of::<Dirent>() - entry.name.len()])
}

/// Operations on names.
pub(super) struct Names<'c>(pub(super) &'c Context);

impl Names<'_> {
    pub(super) fn lookup(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        match self.0.files.lookup(self.0.subject(request)?, name(request.rest())?) {
            Ok(attr) => self.0.push_entry(reply, &attr),
            // That a name does not exist may be kept like one that does.
            Err(error) if is_not_found(&error) => {
                reply.push(&EntryOut { entry_valid: self.0.valid, ..EntryOut::default() })
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn readlink(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        reply.bytes(&self.0.files.readlink(self.0.subject(request)?)?)
    }

    pub(super) fn symlink(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let (link, rest) = split_name(request.rest())?;
        let header = &request.header;
        let attr =
            self.0.files.symlink(self.0.subject(request)?, link, name(rest)?, header.uid, header.gid)?;
        self.0.push_entry(reply, &attr)
    }

    /// What a new file is to be, by the request's mode, umask and caller.
    fn new_file(request: &Request<'_>, kind: FileKind, mode: u32, umask: u32, rdev: u32) -> NewFile {
        NewFile {
            kind,
            perm: (mode & 0o7777) as u16,
            umask: (umask & 0o777) as u16,
            uid: request.header.uid,
            gid: request.header.gid,
            rdev: u64::from(rdev),
        }
    }

    pub(super) fn mknod(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let (arg, rest) = request.arg_and_rest::<MknodIn>()?;
        let kind = match FileKind::from_mode((arg.mode & 0o170000) as u16) {
            Some(kind) if kind != FileKind::Directory && kind != FileKind::Symlink => kind,
            _ => return Err(Errno::INVAL),
        };
        let new = Self::new_file(request, kind, arg.mode, arg.umask, arg.rdev);
        let attr = self.0.files.create(self.0.subject(request)?, name(rest)?, &new)?;
        self.0.push_entry(reply, &attr)
    }

    pub(super) fn mkdir(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let (arg, rest) = request.arg_and_rest::<MkdirIn>()?;
        let new = Self::new_file(request, FileKind::Directory, arg.mode, arg.umask, 0);
        let attr = self.0.files.create(self.0.subject(request)?, name(rest)?, &new)?;
        self.0.push_entry(reply, &attr)
    }

    pub(super) fn create(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let (arg, rest) = request.arg_and_rest::<CreateIn>()?;
        let new = Self::new_file(request, FileKind::Regular, arg.mode, arg.umask, 0);
        let attr = self.0.files.create(self.0.subject(request)?, name(rest)?, &new)?;
        self.0.push_entry(reply, &attr)?;
        reply.push(&self.0.opened(&attr, arg.flags, false))
    }

    pub(super) fn tmpfile(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let arg: CreateIn = request.arg()?;
        let new = Self::new_file(request, FileKind::Regular, arg.mode, arg.umask, 0);
        let attr = self.0.files.tmpfile(self.0.subject(request)?, &new)?;
        self.0.push_entry(reply, &attr)?;
        reply.push(&self.0.opened(&attr, arg.flags, false))
    }

    pub(super) fn link(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let (arg, rest) = request.arg_and_rest::<LinkIn>()?;
        let attr = self.0.files.link(self.0.ino(arg.oldnodeid)?, self.0.subject(request)?, name(rest)?)?;
        self.0.push_entry(reply, &attr)
    }

    pub(super) fn unlink(&self, request: &Request<'_>) -> Done {
        Ok(self.0.files.unlink(self.0.subject(request)?, name(request.rest())?)?)
    }

    pub(super) fn rmdir(&self, request: &Request<'_>) -> Done {
        Ok(self.0.files.rmdir(self.0.subject(request)?, name(request.rest())?)?)
    }

    pub(super) fn rename(&self, request: &Request<'_>) -> Done {
        let (arg, rest) = request.arg_and_rest::<RenameIn>()?;
        self.do_rename(request, arg.newdir, rest, 0)
    }

    pub(super) fn rename2(&self, request: &Request<'_>) -> Done {
        let (arg, rest) = request.arg_and_rest::<Rename2In>()?;
        self.do_rename(request, arg.newdir, rest, arg.flags)
    }

    fn do_rename(&self, request: &Request<'_>, new_parent: u64, names: &[u8], flags: u32) -> Done {
        let (old, rest) = split_name(names)?;
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        Ok(self.0.files.rename(self.0.subject(request)?, old, self.0.ino(new_parent)?, name(rest)?, flags)?)
    }

    pub(super) fn readdir(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let arg: ReadIn = request.arg()?;
        let mut result = Ok(());
        self.0.files.readdir(self.0.subject(request)?, arg.offset, &mut |entry| {
            if reply.len() + dirent_size(&entry.name) > arg.size as usize {
                return false;
            }
            result = push_dirent(reply, &entry);
            result.is_ok()
        })?;
        result
    }

    /// READDIR with a LOOKUP of each entry. The entries are collected first: the engine is not called from
    /// within itself.
    pub(super) fn readdirplus(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let arg: ReadIn = request.arg()?;
        let directory = self.0.subject(request)?;
        let mut entries = Vec::new();
        let mut room = arg.size as usize;
        self.0.files.readdir(directory, arg.offset, &mut |entry| {
            let Some(left) = room.checked_sub(size_of::<EntryOut>() + dirent_size(&entry.name)) else {
                return false;
            };
            room = left;
            entries.push(entry);
            true
        })?;
        for entry in &entries {
            // The kernel takes no reference to `.` and `..`. A name that was removed meanwhile is only listed.
            let found = match &entry.name[..] {
                b"." | b".." => None,
                name => self.0.files.lookup(directory, name).ok(),
            };
            match found {
                Some(attr) => self.0.push_entry(reply, &attr)?,
                None => reply.push(&EntryOut {
                    attr: AttrData {
                        ino: u64::from(entry.ino),
                        mode: kind_mode(entry),
                        ..AttrData::default()
                    },
                    ..EntryOut::default()
                })?,
            }
            push_dirent(reply, entry)?;
        }
        Ok(())
    }
}
