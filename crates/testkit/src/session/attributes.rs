//! Operations on attributes, extended ones and ACLs among them.

use super::{Applied, NOTHING, Session, refused, same};
use crate::acl::{ACCESS, Acl, DEFAULT};
use crate::model::Id;
use crate::ops::{Target, xattr_name, xattr_value};
use medfs::{FileFlags, FileKind, SetAttr, Timestamp, XattrMode};

/// Operations on attributes.
pub(super) struct Attributes<'s>(pub(super) &'s mut Session);

impl Attributes<'_> {
    pub(super) fn set_xattr(&mut self, file: Target, name: u8, len: u16, mode: XattrMode) -> Applied {
        let Some(id) = self.0.target(file).filter(|id| self.takes_xattrs(*id)) else { return Ok(None) };
        let (name, value) = (xattr_name(name), xattr_value(name, len));
        let actual = self.0.fs.setxattr(self.0.ino(id), name, &value, mode);
        same(actual, self.0.model.setxattr(id, name, &value, mode))?;
        self.0.compare_xattrs(id)?;
        NOTHING
    }

    pub(super) fn remove_xattr(&mut self, file: Target, name: u8) -> Applied {
        let Some(id) = self.0.target(file).filter(|id| self.takes_xattrs(*id)) else { return Ok(None) };
        let actual = self.0.fs.removexattr(self.0.ino(id), xattr_name(name));
        same(actual, self.0.model.removexattr(id, xattr_name(name)))?;
        self.0.compare_xattrs(id)?;
        NOTHING
    }

    pub(super) fn set_flags(&mut self, file: Target, flags: FileFlags) -> Applied {
        let Some(id) = self.0.target(file) else { return Ok(None) };
        // Whether a file is compressed is not the model's matter.
        let own = self.0.fs.getattr(self.0.ino(id)).map_err(refused("stat"))?.flags & FileFlags::COMPR;
        self.0.fs.set_flags(self.0.ino(id), flags | own).map_err(refused("chattr"))?;
        self.0.model.set_flags(id, flags);
        self.0.compare_attr(id)?;
        NOTHING
    }

    pub(super) fn set_acl(&mut self, file: Target, default: bool, kind: u8, perm: u16) -> Applied {
        let Some(id) = self.0.target(file) else { return Ok(None) };
        let acl = (kind > 0).then(|| Acl::of(kind, perm));
        let name = if default { DEFAULT } else { ACCESS };
        let actual = match &acl {
            Some(acl) => self.0.fs.setxattr(self.0.ino(id), name, &acl.value(), XattrMode::Set),
            None => self.0.fs.removexattr(self.0.ino(id), name),
        };
        same(actual, self.0.model.set_acl(id, default, acl.as_ref()))?;
        self.0.compare_attr(id)?;
        if self.takes_xattrs(id) {
            self.0.compare_xattrs(id)?;
        }
        NOTHING
    }

    pub(super) fn chmod(&mut self, file: Target, perm: u16) -> Applied {
        let takes = |id: &Id| self.0.model.inode(*id).kind != FileKind::Symlink;
        let Some(id) = self.0.target(file).filter(takes) else { return Ok(None) };
        let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
        let actual = self.0.fs.setattr(self.0.ino(id), &set);
        same(actual, self.0.model.set_owner(id, Some(perm), None))?;
        self.0.compare_attr(id)?;
        NOTHING
    }

    pub(super) fn chown(&mut self, file: Target, uid: u32, gid: u32) -> Applied {
        let Some(id) = self.0.target(file) else { return Ok(None) };
        let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        let actual = self.0.fs.setattr(self.0.ino(id), &set);
        same(actual, self.0.model.set_owner(id, None, Some((uid, gid))))?;
        self.0.compare_attr(id)?;
        NOTHING
    }

    pub(super) fn utimes(&mut self, file: Target, secs: i64) -> Applied {
        let Some(id) = self.0.target(file) else { return Ok(None) };
        let time = Timestamp { secs, nanos: 123_456_789 };
        let set = SetAttr { atime: Some(time), mtime: Some(time), ..SetAttr::default() };
        self.0.fs.setattr(self.0.ino(id), &set).map_err(refused("utimes"))?;
        self.0.model.inode_mut(id).mtime = Some(time);
        self.0.compare_attr(id)?;
        NOTHING
    }

    fn takes_xattrs(&self, id: Id) -> bool {
        matches!(self.0.model.inode(id).kind, FileKind::Regular | FileKind::Directory)
    }
}
