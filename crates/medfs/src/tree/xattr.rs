//! Extended attributes and POSIX ACLs of an inode.
//!
//! Where they lie is in [`crate::map::xattr_area`].
//! Invariant: entries of name spaces that are not known are neither listed nor read nor changed here.
//! Locks: the functions that take an [`Inode`] are called with its lock held, exclusive to change, which needs its `wb`
//! (an fsync may be writing the xattr node) and the operation lock too; those that take a number lock it themselves.
//! Kernel counterpart: `xattr.c`, `acl.c`.

use crate::error::{Posix, Result};
use crate::map::effects::Effect;
use crate::map::inode::Inode;
use crate::map::xattr_area::XattrArea;
use crate::tree::Tree;
use crate::tree::durability::{self, OwnDurability};
use crate::types::XattrMode;
use crate::xattr_names;
use medfs_format::Ino;
use medfs_format::acl::Acl;
use medfs_format::node::{Advise, FileFlags, FileKind};
use medfs_format::xattr::{HEADER_SIZE, NODE_BYTES, NameIndex, XattrEntry};
use medfs_store::Dirty;

/// Hints that `system.advise` may change.
const ADVISE_MODIFIABLE: Advise = Advise::COLD.union(Advise::HOT);

impl Tree {
    /// The value of an attribute, by its full name.
    pub(crate) fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let (index, rest) = self.xattr_name(name)?;
        let inode = self.inode(ino)?;
        let state = inode.lock.read();
        inode.check_alive(&state)?;
        let none = || Posix::NoAttribute.into();
        match index {
            NameIndex::Advise => Ok(vec![inode.raw(|r| r.i_advise)]),
            NameIndex::PosixAclAccess | NameIndex::PosixAclDefault => {
                self.xattrs(&inode).check_acl_kind()?;
                self.xattrs(&inode).acl(index)?.map(|acl| acl.to_xattr()).ok_or_else(none)
            }
            _ => self.xattrs(&inode).value(index, rest)?.ok_or_else(none),
        }
    }

    /// The full names of all attributes that have one.
    pub(crate) fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let inode = self.inode(ino)?;
        let state = inode.lock.read();
        inode.check_alive(&state)?;
        let entries = XattrArea { map: self, inode: &inode }.read()?;
        let shown = |e: &&XattrEntry| match e.index {
            i if i == NameIndex::User as u8 => self.opts.user_xattr,
            i if is_acl(i) => self.opts.acl,
            _ => true,
        };
        Ok(entries.iter().filter(shown).filter_map(|e| xattr_names::join(e.index, &e.name)).collect())
    }

    /// Sets an attribute, by its full name.
    pub(crate) fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.change_xattr(ino, name, Some(value), mode)
    }

    /// Removes an attribute, by its full name.
    pub(crate) fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.change_xattr(ino, name, None, XattrMode::Replace)
    }

    fn change_xattr(&self, ino: Ino, name: &[u8], value: Option<&[u8]>, mode: XattrMode) -> Result<()> {
        let (index, rest) = self.xattr_name(name)?;
        let inode = self.inode(ino)?;
        self.change_settled(&inode, |_| {
            inode.check_flags(FileFlags::IMMUTABLE | FileFlags::APPEND)?;
            if let (durability::ATTRIBUTE, Some(value)) = (name, value) {
                OwnDurability { map: self, inode: &inode }.check(value)?;
            }
            match index {
                NameIndex::Advise => self.xattrs(&inode).set_advise(value)?,
                NameIndex::PosixAclAccess => self.xattrs(&inode).set_access_acl(value)?,
                NameIndex::PosixAclDefault => self.xattrs(&inode).set_default_acl(value)?,
                NameIndex::User if !matches!(inode.kind(), FileKind::Regular | FileKind::Directory) => {
                    return Err(Posix::NotPermitted.into());
                }
                _ => self.xattrs(&inode).set_value(index, rest, value, mode)?,
            }
            self.touch_changed(&inode);
            self.effects.note(Effect::Xattr { ino, name, value, mode });
            Ok(())
        })
    }

    /// Splits a full name; `NotSupported` where the mount options exclude its name space.
    fn xattr_name<'a>(&self, name: &'a [u8]) -> Result<(NameIndex, &'a [u8])> {
        let (index, rest) = xattr_names::split(name)?;
        let off = match index {
            NameIndex::User => !self.opts.user_xattr,
            NameIndex::PosixAclAccess | NameIndex::PosixAclDefault => !self.opts.acl,
            _ => false,
        };
        if off { Err(Posix::NotSupported.into()) } else { Ok((index, rest)) }
    }

    fn xattrs<'a>(&'a self, inode: &'a Inode) -> Xattrs<'a> {
        Xattrs { tree: self, inode }
    }

    /// The default ACL that a directory gives to what is made in it.
    pub(crate) fn default_acl(&self, dir: &Inode) -> Result<Option<Acl>> {
        if self.opts.acl { self.xattrs(dir).acl(NameIndex::PosixAclDefault) } else { Ok(None) }
    }

    /// What `chmod` to `perm` does to an access ACL. The caller sets the mode.
    pub(crate) fn acl_chmod(&self, inode: &Inode, perm: u16) -> Result<()> {
        if !self.opts.acl || inode.kind() == FileKind::Symlink {
            return Ok(());
        }
        let xattrs = self.xattrs(inode);
        match xattrs.acl(NameIndex::PosixAclAccess)? {
            Some(acl) => xattrs.store_acl(NameIndex::PosixAclAccess, Some(&acl.with_mode(perm))),
            None => Ok(()),
        }
    }
}

/// The extended attributes of an inode, by their meaning.
#[derive(Clone, Copy)]
struct Xattrs<'a> {
    tree: &'a Tree,
    inode: &'a Inode,
}

impl<'a> Xattrs<'a> {
    fn area(self) -> XattrArea<'a> {
        XattrArea { map: self.tree, inode: self.inode }
    }

    fn set_advise(self, value: Option<&[u8]>) -> Result<()> {
        let new = value.and_then(|v| v.first().copied()).map(Advise::from_bits_retain);
        match new {
            Some(new) if ADVISE_MODIFIABLE.contains(new) => {
                self.tree.edit(self.inode, Dirty::Full, |r| {
                    r.i_advise = ((r.advise() - ADVISE_MODIFIABLE) | new).bits();
                });
                Ok(())
            }
            _ => Err(Posix::InvalidArgument.into()),
        }
    }

    /// The stored value of an attribute.
    fn value(self, index: NameIndex, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let entries = self.area().read()?;
        Ok(entries.into_iter().find(|e| is(e, index, name)).map(|e| e.value))
    }

    /// Sets or removes (`None`) a stored value.
    fn set_value(self, index: NameIndex, name: &[u8], value: Option<&[u8]>, mode: XattrMode) -> Result<()> {
        let room = self.area().inline_range().len() + NODE_BYTES;
        if value.is_some_and(|v| v.len() > room - HEADER_SIZE - 4) {
            return Err(Posix::TooBig.into());
        }
        let mut entries = self.area().read()?;
        let old = entries.iter().position(|e| is(e, index, name));
        match (old, mode) {
            (Some(_), XattrMode::Create) => return Err(Posix::Exists.into()),
            (None, XattrMode::Replace) => return Err(Posix::NoAttribute.into()),
            (Some(at), _) if Some(&entries[at].value[..]) == value => return Ok(()),
            (Some(at), _) => {
                entries.remove(at);
            }
            (None, _) => {}
        }
        if let Some(value) = value {
            entries.push(XattrEntry { index: index as u8, name: name.to_vec(), value: value.to_vec() });
        }
        self.area().write(entries)
    }

    /// The stored access or default ACL.
    fn acl(self, index: NameIndex) -> Result<Option<Acl>> {
        match self.value(index, b"")? {
            Some(value) => Ok(Acl::from_disk(&value, self.inode.ino)?),
            None => Ok(None),
        }
    }

    fn check_acl_kind(self) -> Result<()> {
        if self.inode.kind() == FileKind::Symlink { Err(Posix::NotSupported.into()) } else { Ok(()) }
    }

    /// Sets the access ACL and the permission bits that go with it. The caller has decided about the set-gid bit.
    fn set_access_acl(self, value: Option<&[u8]>) -> Result<()> {
        self.check_acl_kind()?;
        let Some(acl) = value.map(Acl::from_xattr).transpose()?.flatten() else {
            return self.store_acl(NameIndex::PosixAclAccess, None);
        };
        let (perm, acl) = acl.into_access(self.inode.raw(|r| r.i_mode.get() & 0o7777));
        self.store_acl(NameIndex::PosixAclAccess, acl.as_ref())?;
        self.tree.edit(self.inode, Dirty::Full, |r| r.i_mode = ((r.i_mode.get() & !0o7777) | perm).into());
        Ok(())
    }

    fn set_default_acl(self, value: Option<&[u8]>) -> Result<()> {
        self.check_acl_kind()?;
        let acl = value.map(Acl::from_xattr).transpose()?.flatten();
        if !self.inode.is_dir() {
            return if acl.is_some() { Err(Posix::AccessDenied.into()) } else { Ok(()) };
        }
        self.store_acl(NameIndex::PosixAclDefault, acl.as_ref())
    }

    /// Stores an ACL, or removes it.
    fn store_acl(self, index: NameIndex, acl: Option<&Acl>) -> Result<()> {
        let value = acl.map(Acl::to_disk);
        if value.is_none() && self.value(index, b"")?.is_none() {
            return Ok(());
        }
        self.set_value(index, b"", value.as_deref(), XattrMode::Set)
    }
}

fn is(entry: &XattrEntry, index: NameIndex, name: &[u8]) -> bool {
    entry.index == index as u8 && entry.name == name
}

fn is_acl(index: u8) -> bool {
    index == NameIndex::PosixAclAccess as u8 || index == NameIndex::PosixAclDefault as u8
}
