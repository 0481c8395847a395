//! The reference model: a POSIX file system in memory.
//!
//! It knows names, links, sizes, content, attributes and extended attributes, and nothing of blocks. A copy of
//! a model is cheap (inodes are shared until changed), so that a history can keep one for each operation.
//!
//! Permissions are the caller's business, as they are for the engine. Times are known only where they were set
//! explicitly and nothing has changed the file since.

mod content;
mod inode;

use crate::acl::{ACCESS, Acl, DEFAULT};
pub use content::{Content, PAGE, Page};
use inode::{FIXED, handed_down};
pub use inode::{Inode, USER_FLAGS};
use medfs::{
    DURABILITY_ATTRIBUTE, FallocateMode, FileFlags, FileKind, NewFile, Posix, RenameFlags, XattrMode,
};
use medfs_format::Ino;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Identity of an inode in the model; never used again, unlike inode numbers.
pub type Id = u64;
/// Longest name.
pub const NAME_MAX: usize = 255;

type Result<T, E = Posix> = std::result::Result<T, E>;

/// The file system.
#[derive(Debug, Clone)]
pub struct Model {
    inodes: BTreeMap<Id, Arc<Inode>>,
    next: Id,
    /// What inodes are found by, from when that is asked for to the next change.
    index: OnceLock<Arc<Index>>,
}

/// What inodes are found by.
#[derive(Debug, Default)]
struct Index {
    /// Directories and names of each inode.
    names: BTreeMap<Id, Vec<(Id, Vec<u8>)>>,
    /// The inode of each number.
    numbers: BTreeMap<Ino, Id>,
}

/// The root's identity.
pub const ROOT: Id = 0;

impl Model {
    /// An empty file system with this root directory.
    pub fn new(root: Inode) -> Model {
        Model { inodes: BTreeMap::from([(ROOT, Arc::new(root))]), next: ROOT + 1, index: OnceLock::new() }
    }
    /// All inodes.
    pub fn inodes(&self) -> impl Iterator<Item = (Id, &Inode)> {
        self.inodes.iter().map(|(&id, inode)| (id, &**inode))
    }
    /// An inode, where it exists.
    pub fn get(&self, id: Id) -> Option<&Inode> {
        self.inodes.get(&id).map(|inode| &**inode)
    }
    /// An inode that is known to exist. Panics otherwise.
    pub fn inode(&self, id: Id) -> &Inode {
        self.get(id).unwrap_or_else(|| panic!("the model has no inode {id}"))
    }
    /// An inode to be changed. Panics where it does not exist.
    pub fn inode_mut(&mut self, id: Id) -> &mut Inode {
        self.index.take();
        Arc::make_mut(self.inodes.get_mut(&id).unwrap_or_else(|| panic!("the model has no inode {id}")))
    }
    /// Adds an inode without a name.
    pub fn add(&mut self, inode: Inode) -> Id {
        let id = self.next;
        self.next += 1;
        self.inodes.insert(id, Arc::new(inode));
        id
    }
    /// Goes on numbering where `other` stopped, so that identities of the two are never confused.
    pub fn number_after(&mut self, other: &Model) {
        self.next = self.next.max(other.next);
    }
    /// All names of an inode: directory and name.
    pub fn names_of(&self, id: Id) -> &[(Id, Vec<u8>)] {
        self.index().names.get(&id).map_or(&[], Vec::as_slice)
    }
    /// The inode of a number, where there is one.
    pub fn of_ino(&self, ino: Ino) -> Option<(Id, &Inode)> {
        let id = *self.index().numbers.get(&ino)?;
        Some((id, self.inode(id)))
    }
    fn index(&self) -> &Index {
        self.index.get_or_init(|| {
            let mut index = Index::default();
            for (&id, inode) in &self.inodes {
                index.numbers.entry(inode.ino).or_insert(id);
                for (name, &target) in &inode.entries {
                    index.names.entry(target).or_default().push((id, name.clone()));
                }
            }
            Arc::new(index)
        })
    }
    /// A path of an inode, for messages.
    pub fn path_of(&self, id: Id) -> String {
        let mut path = String::new();
        let mut at = id;
        for _ in 0..64 {
            if at == ROOT {
                return if path.is_empty() { "/".into() } else { path };
            }
            let Some((dir, name)) = self.names_of(at).first() else { break };
            path = format!("/{}{path}", String::from_utf8_lossy(name));
            at = *dir;
        }
        format!("(no name, inode {id}){path}")
    }
    /// Whether `id` is `ancestor` or below it.
    pub fn is_below(&self, id: Id, ancestor: Id) -> bool {
        id == ancestor
            || self
                .inode(ancestor)
                .entries
                .values()
                .any(|&child| self.inode(child).is_dir() && self.is_below(id, child))
    }

    /// The entry of a name.
    pub fn lookup(&self, dir: Id, name: &[u8]) -> Result<Id> {
        if name.len() > NAME_MAX {
            return Err(Posix::NameTooLong);
        }
        if !self.inode(dir).is_dir() {
            return Err(Posix::NotDirectory);
        }
        self.inode(dir).entries.get(name).copied().ok_or(Posix::NotFound)
    }

    fn vacant(&self, dir: Id, name: &[u8]) -> Result<()> {
        match self.lookup(dir, name) {
            Ok(_) => Err(Posix::Exists),
            Err(Posix::NotFound) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn enter(&mut self, dir: Id, name: &[u8], id: Id) {
        let is_dir = self.inode(id).is_dir();
        let parent = self.inode_mut(dir);
        parent.entries.insert(name.to_vec(), id);
        parent.nlink += u32::from(is_dir);
        parent.mtime = None;
    }

    fn leave(&mut self, dir: Id, name: &[u8]) -> Id {
        let id = self.inode(dir).entries[name];
        let is_dir = self.inode(id).is_dir();
        let parent = self.inode_mut(dir);
        parent.entries.remove(name);
        parent.nlink -= u32::from(is_dir);
        parent.mtime = None;
        id
    }

    /// Removes one link; what has neither link nor hold goes.
    fn drop_link(&mut self, id: Id) {
        let inode = self.inode_mut(id);
        inode.nlink = if inode.is_dir() { 0 } else { inode.nlink - 1 };
        self.reap(id);
    }

    fn reap(&mut self, id: Id) {
        let inode = self.inode(id);
        if inode.nlink == 0 && inode.held == 0 {
            self.inodes.remove(&id);
            self.index.take();
        }
    }

    /// `NotPermitted` where the inode has any of these flags.
    fn allowed(&self, id: Id, forbidding: FileFlags) -> Result<()> {
        if self.inode(id).flags.intersects(forbidding) { Err(Posix::NotPermitted) } else { Ok(()) }
    }
    fn may_add(&self, dir: Id, name: &[u8]) -> Result<()> {
        if name.len() > NAME_MAX {
            return Err(Posix::NameTooLong);
        }
        self.allowed(dir, FileFlags::IMMUTABLE)
    }
    fn may_remove(&self, dir: Id, name: &[u8]) -> Result<()> {
        self.may_add(dir, name)?;
        self.allowed(dir, FIXED)
    }

    /// A new inode as the directory that it is made in has it: flags, ACLs, and whether its fsyncs are put off.
    fn born(&self, dir: Id, new: &NewFile) -> Inode {
        let parent = self.inode(dir);
        let mut inode = Inode { flags: handed_down(parent.flags, new.kind), ..Inode::new(0, new) };
        let default = parent.xattrs.get(DEFAULT).filter(|_| new.kind != FileKind::Symlink);
        if let Some(value) = default {
            let access = Acl::from_value(value).handed_down(new.perm);
            inode.perm = new.perm & !0o777 | access.mode();
            if !access.is_mode() {
                inode.xattrs.insert(ACCESS.to_vec(), access.value());
            }
            if new.kind == FileKind::Directory {
                inode.xattrs.insert(DEFAULT.to_vec(), value.clone());
            }
        }
        let durability = parent.xattrs.get(DURABILITY_ATTRIBUTE);
        if let (Some(value), FileKind::Regular | FileKind::Directory) = (durability, new.kind) {
            inode.xattrs.insert(DURABILITY_ATTRIBUTE.to_vec(), value.clone());
        }
        inode
    }

    /// A new file of any kind.
    pub fn create(&mut self, dir: Id, name: &[u8], new: &NewFile) -> Result<Id> {
        self.may_add(dir, name)?;
        self.vacant(dir, name)?;
        let id = self.add(self.born(dir, new));
        self.enter(dir, name, id);
        Ok(id)
    }
    /// A file without a name, held once.
    pub fn tmpfile(&mut self, dir: Id, new: &NewFile) -> Result<Id> {
        self.allowed(dir, FileFlags::IMMUTABLE)?;
        Ok(self.add(Inode { nlink: 0, held: 1, nameless: true, ..self.born(dir, new) }))
    }
    /// A symbolic link.
    pub fn symlink(&mut self, dir: Id, name: &[u8], target: &[u8]) -> Result<Id> {
        let new = NewFile { kind: FileKind::Symlink, perm: 0o777, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let id = self.create(dir, name, &new)?;
        self.inode_mut(id).target = target.to_vec();
        Ok(id)
    }
    /// Another name.
    pub fn link(&mut self, id: Id, dir: Id, name: &[u8]) -> Result<()> {
        if name.len() > NAME_MAX {
            return Err(Posix::NameTooLong);
        }
        if self.inode(id).is_dir() {
            return Err(Posix::NotPermitted);
        }
        self.may_add(dir, name)?;
        self.allowed(id, FIXED)?;
        self.vacant(dir, name)?;
        let inode = self.inode_mut(id);
        inode.nlink += 1;
        inode.nameless = false;
        self.enter(dir, name, id);
        Ok(())
    }
    /// Removes a name of what is no directory.
    pub fn unlink(&mut self, dir: Id, name: &[u8]) -> Result<()> {
        self.may_remove(dir, name)?;
        let id = self.lookup(dir, name)?;
        self.allowed(id, FIXED)?;
        if self.inode(id).is_dir() {
            return Err(Posix::IsDirectory);
        }
        self.leave(dir, name);
        self.drop_link(id);
        Ok(())
    }
    /// Removes an empty directory.
    pub fn rmdir(&mut self, dir: Id, name: &[u8]) -> Result<()> {
        self.may_remove(dir, name)?;
        let id = self.lookup(dir, name)?;
        self.allowed(id, FIXED)?;
        if !self.inode(id).is_dir() {
            return Err(Posix::NotDirectory);
        }
        if !self.inode(id).entries.is_empty() {
            return Err(Posix::NotEmpty);
        }
        self.leave(dir, name);
        self.drop_link(id);
        Ok(())
    }
    /// Renames. Moving a directory below itself is the caller's to refuse.
    pub fn rename(&mut self, dir: Id, name: &[u8], to: Id, to_name: &[u8], flags: RenameFlags) -> Result<()> {
        // What is wrong with a name, or cannot change, comes first.
        if name.len().max(to_name.len()) > NAME_MAX {
            return Err(Posix::NameTooLong);
        }
        self.may_remove(dir, name)?;
        self.may_add(to, to_name)?;
        let id = self.lookup(dir, name)?;
        let target = self.inode(to).entries.get(to_name).copied();
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        match target {
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Posix::Exists),
            Some(target) if target == id => return Ok(()),
            None if exchange => return Err(Posix::NotFound),
            _ => {}
        }
        self.allowed(id, FIXED)?;
        if let Some(target) = target {
            self.may_remove(to, to_name)?;
            self.allowed(target, FIXED)?;
        }
        if let (Some(other), true) = (target, exchange) {
            self.leave(dir, name);
            self.leave(to, to_name);
            self.enter(dir, name, other);
            self.enter(to, to_name, id);
            return Ok(());
        }
        if let Some(target) = target {
            match (self.inode(id).is_dir(), self.inode(target).is_dir()) {
                (true, false) => return Err(Posix::NotDirectory),
                (false, true) => return Err(Posix::IsDirectory),
                (true, true) if !self.inode(target).entries.is_empty() => return Err(Posix::NotEmpty),
                _ => {}
            }
            self.leave(to, to_name);
            self.drop_link(target);
        }
        self.leave(dir, name);
        self.enter(to, to_name, id);
        if flags.contains(RenameFlags::WHITEOUT) {
            let new = NewFile { kind: FileKind::CharDevice, perm: 0, umask: 0, uid: 0, gid: 0, rdev: 0 };
            let whiteout = self.add(self.born(dir, &new));
            self.enter(dir, name, whiteout);
        }
        Ok(())
    }
    /// Takes a hold.
    pub fn hold(&mut self, id: Id) {
        self.inode_mut(id).held += 1;
    }
    /// Gives a hold back.
    pub fn release(&mut self, id: Id) {
        self.inode_mut(id).held -= 1;
        self.reap(id);
    }
    /// Forgets all holds and open atomic writes, as an unmount does.
    pub fn release_all(&mut self) {
        let open: Vec<Id> = self.inodes().filter(|(_, i)| i.staged.is_some()).map(|(id, _)| id).collect();
        open.into_iter().for_each(|id| self.atomic_end(id, false));
        let held: Vec<Id> = self.inodes().filter(|(_, inode)| inode.held > 0).map(|(id, _)| id).collect();
        for id in held {
            self.inode_mut(id).held = 0;
            self.reap(id);
        }
    }

    /// Changes content; the modification time becomes unknown.
    pub fn content_mut(&mut self, id: Id) -> &mut Content {
        let inode = self.inode_mut(id);
        inode.mtime = None;
        &mut inode.content
    }
    /// Whether bytes may be written.
    pub fn may_write(&self, id: Id) -> Result<()> {
        self.allowed(id, FileFlags::IMMUTABLE)
    }
    /// Writes bytes, into the file or aside while an atomic write is open.
    pub fn write(&mut self, id: Id, offset: u64, data: &[u8]) {
        match &mut self.inode_mut(id).staged {
            Some(staged) => staged.write(offset, data),
            None => self.content_mut(id).write(offset, data),
        }
    }
    /// Sets the size, of what is aside while an atomic write is open.
    pub fn truncate(&mut self, id: Id, size: u64) -> Result<()> {
        self.allowed(id, FIXED)?;
        match &mut self.inode_mut(id).staged {
            Some(staged) => staged.truncate(size),
            None => self.content_mut(id).truncate(size),
        }
        Ok(())
    }
    /// Changes allocation or content, in all modes.
    pub fn fallocate(&mut self, id: Id, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let only_adds = (mode - FallocateMode::KEEP_SIZE).is_empty();
        self.allowed(id, if only_adds { FileFlags::IMMUTABLE } else { FIXED })?;
        self.content_mut(id).fallocate(mode, offset, len)
    }
    /// Starts an atomic write; one that is open goes on.
    pub fn atomic_start(&mut self, id: Id) {
        let inode = self.inode_mut(id);
        if inode.staged.is_none() {
            inode.staged = Some(inode.content.clone());
        }
    }
    /// Ends an atomic write: all of it is in the file, or nothing.
    pub fn atomic_end(&mut self, id: Id, commit: bool) {
        if let (Some(staged), true) = (self.inode_mut(id).staged.take(), commit) {
            *self.content_mut(id) = staged;
        }
    }
    /// Changes permission bits and owner, each where it is given.
    pub fn set_owner(&mut self, id: Id, perm: Option<u16>, owner: Option<(u32, u32)>) -> Result<()> {
        self.allowed(id, FIXED)?;
        let inode = self.inode_mut(id);
        (inode.uid, inode.gid) = owner.unwrap_or((inode.uid, inode.gid));
        if let Some(perm) = perm {
            inode.perm = perm;
            if let Some(value) = inode.xattrs.get_mut(ACCESS) {
                *value = Acl::from_value(value).after_chmod(perm).value();
            }
        }
        Ok(())
    }
    /// Sets the chattr flags.
    pub fn set_flags(&mut self, id: Id, flags: FileFlags) {
        self.inode_mut(id).flags = flags & USER_FLAGS;
    }
    /// Sets or removes the access or default ACL.
    pub fn set_acl(&mut self, id: Id, default: bool, acl: Option<&Acl>) -> Result<()> {
        self.allowed(id, FIXED)?;
        let inode = self.inode_mut(id);
        match (inode.kind, default) {
            (FileKind::Symlink, _) => return Err(Posix::NotSupported),
            (FileKind::Directory, true) | (_, false) => {}
            _ => return if acl.is_some() { Err(Posix::AccessDenied) } else { Ok(()) },
        }
        let name = if default { DEFAULT } else { ACCESS };
        inode.xattrs.remove(name);
        if let Some(acl) = acl {
            if !default {
                inode.perm = inode.perm & !0o777 | acl.mode();
            }
            if default || !acl.is_mode() {
                inode.xattrs.insert(name.to_vec(), acl.value());
            }
        }
        Ok(())
    }
    /// Sets an extended attribute.
    pub fn setxattr(&mut self, id: Id, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.allowed(id, FIXED)?;
        match (self.inode(id).xattrs.contains_key(name), mode) {
            (true, XattrMode::Create) => Err(Posix::Exists),
            (false, XattrMode::Replace) => Err(Posix::NoAttribute),
            _ => {
                self.inode_mut(id).xattrs.insert(name.to_vec(), value.to_vec());
                Ok(())
            }
        }
    }
    /// Removes an extended attribute.
    pub fn removexattr(&mut self, id: Id, name: &[u8]) -> Result<()> {
        self.allowed(id, FIXED)?;
        match self.inode(id).xattrs.contains_key(name) {
            false => Err(Posix::NoAttribute),
            true => {
                self.inode_mut(id).xattrs.remove(name);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        Model::new(Inode::new(3, &new(FileKind::Directory)))
    }

    fn new(kind: FileKind) -> NewFile {
        NewFile { kind, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 }
    }

    #[test]
    fn sparse_content() {
        let mut content = Content::default();
        content.write(10_000, b"abc");
        assert_eq!(content.size(), 10_003);
        assert_eq!(content.read(9_999, 100), b"\0abc");
        content.truncate(10_001);
        content.truncate(20_000);
        assert_eq!(content.read(10_000, 3), b"a\0\0");
        content.write(0, &[7; 12_288]);
        content.zero(4_000, 200);
        assert_eq!(content.read(3_999, 202), [&[7][..], &[0; 200], &[7]].concat());
    }

    #[test]
    fn fallocate_moves_pages() {
        let mut content = Content::default();
        for page in 0..4u8 {
            content.write(u64::from(page) * PAGE, &[page + 1; 4096]);
        }
        content.fallocate(FallocateMode::COLLAPSE_RANGE, PAGE, PAGE).unwrap();
        let firsts = |c: &Content| (0..c.size() / PAGE).map(|p| c.page(p)[0]).collect::<Vec<_>>();
        assert_eq!(firsts(&content), [1, 3, 4]);
        content.fallocate(FallocateMode::INSERT_RANGE, 0, 2 * PAGE).unwrap();
        assert_eq!(firsts(&content), [0, 0, 1, 3, 4]);
        assert_eq!(
            content.fallocate(FallocateMode::INSERT_RANGE, 5 * PAGE, PAGE),
            Err(Posix::InvalidArgument)
        );
        content.fallocate(FallocateMode::ZERO_RANGE, 4 * PAGE, 2 * PAGE).unwrap();
        assert_eq!(firsts(&content), [0, 0, 1, 3, 0, 0]);
    }

    #[test]
    fn links_and_renames() {
        let mut m = model();
        let dir = m.create(ROOT, b"d", &new(FileKind::Directory)).unwrap();
        let file = m.create(dir, b"f", &new(FileKind::Regular)).unwrap();
        m.link(file, ROOT, b"g").unwrap();
        assert_eq!((m.inode(file).nlink, m.inode(ROOT).nlink), (2, 3));
        assert_eq!(m.rmdir(ROOT, b"d"), Err(Posix::NotEmpty));
        assert_eq!(m.rename(ROOT, b"g", ROOT, b"d", RenameFlags::empty()), Err(Posix::IsDirectory));
        m.rename(dir, b"f", ROOT, b"g", RenameFlags::empty()).unwrap();
        assert_eq!(m.names_of(file).len(), 2, "renaming one link onto another does nothing");
        m.rename(ROOT, b"g", ROOT, b"d", RenameFlags::EXCHANGE).unwrap();
        assert_eq!(m.lookup(ROOT, b"d").unwrap(), file);
        m.hold(file);
        m.unlink(ROOT, b"d").unwrap();
        m.unlink(dir, b"f").unwrap();
        assert_eq!(m.inode(file).nlink, 0);
        m.release(file);
        assert!(m.get(file).is_none());
        m.rmdir(ROOT, b"g").unwrap();
        assert_eq!(m.inode(ROOT).nlink, 2);
    }
}
