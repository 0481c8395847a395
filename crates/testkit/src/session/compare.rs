//! What the file system tells, against the model.

use super::{Fault, Session, same};
use crate::model::{Id, Inode, PAGE, USER_FLAGS};
use crate::observe::{compare_attributes, failed, read_page};
use crate::ops::Place;
use medfs::{Attr, Error, FileKind, Posix, Seek};

impl Session {
    /// All of a file's content.
    pub(super) fn compare_content(&self, id: Id) -> Result<(), String> {
        let pages: Vec<u64> = self.model.inode(id).visible().pages().map(|(index, _)| index).collect();
        self.compare_pages(id, pages.into_iter())?;
        self.compare_attr(id)
    }

    /// A name leads where it should, or nowhere.
    pub(super) fn compare_entry(&self, at: Place) -> Result<(), String> {
        let Some(dir) = self.dir(at.dir) else { return Ok(()) };
        let actual = self.fs.lookup(self.ino(dir), &at.name());
        if let Ok(attr) = &actual {
            self.fs.release(attr.ino, 1);
        }
        let shown = || format!("{}/{}", self.model.path_of(dir), String::from_utf8_lossy(&at.name()));
        let checked = same(actual, self.model.lookup(dir, &at.name())).map_err(|fault| match fault {
            Fault::Full => format!("lookup of {}: {}", shown(), Error::NoSpace),
            Fault::Differs(e) => format!("lookup of {}: {e}", shown()),
        })?;
        if let Some((attr, id)) = checked {
            compare_attr(self.model.inode(id), &attr).map_err(|e| format!("{}: {e}", shown()))?;
        }
        self.compare_attr(dir)
    }

    pub(super) fn compare_attr(&self, id: Id) -> Result<(), String> {
        let attr = self.fs.getattr(self.ino(id)).map_err(failed("getattr"));
        let compared = attr.and_then(|attr| compare_attr(self.model.inode(id), &attr));
        compared.map_err(|e| format!("{}: {e}", self.model.path_of(id)))
    }

    pub(super) fn compare_xattrs(&self, id: Id) -> Result<(), String> {
        let ino = self.ino(id);
        let expected = &self.model.inode(id).xattrs;
        let mut names = self.fs.listxattr(ino).map_err(failed("listxattr"))?;
        names.sort();
        if !names.iter().eq(expected.keys()) {
            let shown: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            return Err(format!("listxattr gives {shown:?}, not the {} expected", expected.len()));
        }
        for (name, value) in expected {
            let actual = self.fs.getxattr(ino, name).map_err(failed("getxattr"))?;
            if actual != *value {
                return Err(format!("value of {} is wrong", String::from_utf8_lossy(name)));
            }
        }
        Ok(())
    }

    /// Content of a range and the pages around it, and the attributes.
    pub(super) fn compare_range(&self, id: Id, offset: u64, len: u64) -> Result<(), String> {
        self.compare_attr(id)?;
        let first = (offset / PAGE).saturating_sub(1);
        let last = offset.saturating_add(len) / PAGE + 1;
        self.compare_pages(id, first..=last.min(first + 80))
    }

    pub(super) fn compare_pages(&self, id: Id, pages: impl Iterator<Item = u64>) -> Result<(), String> {
        let inode = self.model.inode(id);
        let content = inode.visible();
        let size = content.size();
        for index in pages.take_while(|index| index * PAGE < size) {
            let actual = read_page(&*self.fs, inode.ino, index, size)
                .map_err(|e| format!("{}: {e}", self.model.path_of(id)))?;
            let expected = content.page(index);
            if let Some(at) = expected.iter().zip(&actual).position(|(a, b)| a != b) {
                let path = self.model.path_of(id);
                return Err(format!(
                    "{path}: page {index} differs from byte {at} on: {:#x} instead of {:#x}",
                    actual[at], expected[at]
                ));
            }
        }
        Ok(())
    }

    /// Data and holes are told truthfully: no data in what is called a hole.
    pub(super) fn compare_seek(&self, id: Id, offset: u64) -> Result<(), String> {
        let inode = self.model.inode(id);
        let size = inode.content.size();
        let first = inode.content.pages().find(|(index, page)| {
            (index + 1) * PAGE > offset && index * PAGE < size && page.iter().any(|byte| *byte != 0)
        });
        match self.fs.seek(inode.ino, offset, Seek::Data) {
            Ok(at) if offset < size && at >= offset && at < size => match first {
                Some((index, _)) if at > (index * PAGE).max(offset) => {
                    Err(format!("seeking data from {offset} on gave {at}, but page {index} has some"))
                }
                _ => Ok(()),
            },
            Ok(at) => Err(format!("seeking data from {offset} on gave {at}, size {size}")),
            Err(Error::Posix(Posix::NoSuchAddress)) if offset >= size || first.is_none() => Ok(()),
            Err(e) => Err(format!("seeking data from {offset} on: {e}")),
        }?;
        match self.fs.seek(inode.ino, offset, Seek::Hole) {
            Ok(at) if offset < size && at >= offset && at <= size => Ok(()),
            Ok(at) => Err(format!("seeking a hole from {offset} on gave {at}, size {size}")),
            Err(Error::Posix(Posix::NoSuchAddress)) if offset >= size => Ok(()),
            Err(e) => Err(format!("seeking a hole from {offset} on: {e}")),
        }
    }
}

/// Attributes as the file system tells them, against the model.
pub(super) fn compare_attr(expected: &Inode, attr: &Attr) -> Result<(), String> {
    let actual = Inode {
        kind: attr.kind,
        perm: attr.perm,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        flags: attr.flags & USER_FLAGS,
        mtime: Some(attr.mtime),
        // Compared by others.
        ..expected.clone()
    };
    compare_attributes(expected, &actual)?;
    if attr.nlink != expected.nlink {
        return Err(format!("link count {} instead of {}", attr.nlink, expected.nlink));
    }
    if expected.kind == FileKind::Regular && attr.size != expected.visible().size() {
        return Err(format!("size {} instead of {}", attr.size, expected.visible().size()));
    }
    if attr.ino != expected.ino {
        return Err(format!("inode {} instead of {}", attr.ino, expected.ino));
    }
    Ok(())
}
