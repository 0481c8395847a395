//! Making inodes: what a new one looks like, and giving it its name.
//!
//! An inode is complete, with `.` and `..`, link target, inherited ACLs, before it gets its name; adding the
//! name is the last step that can fail, and an inode without one is taken apart again.
//! Locks: the parent's, then the new inode's.
//! Kernel counterpart: `f2fs_new_inode`, `f2fs_init_inode_metadata`, `f2fs_init_acl`.

use crate::dir::{Dir, directory};
use crate::error::{Error, Posix, Result};
use crate::map::effects::{Effect, OpLog};
use crate::map::inode::{Inode, InodeState, encode_dev, set_atime, set_ctime, set_mtime};
use crate::map::xattr_area::XattrArea;
use crate::tree::Tree;
use crate::tree::durability::OwnDurability;
use crate::tree::namei::{LINK_MAX, add_links, check_new_name};
use crate::types::{Attr, NewFile, Timestamp};
use medfs_format::acl::Acl;
use medfs_format::node::{
    Advise, DEFAULT_INLINE_XATTR_ADDRS, EXTRA_ISIZE, FileFlags, FileKind, Inline, RawInode,
};
use medfs_format::superblock::{EXTENSION_LEN, Feature, MAX_EXTENSIONS, RawSuperblock};
use medfs_format::xattr::{NameIndex, XattrEntry};
use medfs_format::{BLOCK_SIZE, Block, Ino, NULL_ADDR};
use medfs_store::Dirty;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Flags that a directory hands down.
const INHERITED: FileFlags = FileFlags::SYNC
    .union(FileFlags::NODUMP)
    .union(FileFlags::NOATIME)
    .union(FileFlags::DIRSYNC)
    .union(FileFlags::PROJINHERIT);
/// Of them, those only a directory has.
const DIRECTORY_ONLY: FileFlags = FileFlags::DIRSYNC.union(FileFlags::PROJINHERIT);
/// Of them, those that files neither regular nor directories have.
const OTHER_FILES: FileFlags = FileFlags::NODUMP.union(FileFlags::NOATIME);

/// A new inode's mode, ACLs, owner and durability as its parent and creator make them.
struct Inherited {
    perm: u16,
    gid: u32,
    access: Option<Acl>,
    default: Option<Acl>,
    durability: Option<XattrEntry>,
}

impl Tree {
    /// Makes a file of any kind but a symbolic link; takes a hold.
    pub(crate) fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> Result<Attr> {
        if new.kind == FileKind::Symlink {
            return Err(Posix::InvalidArgument.into());
        }
        self.make(parent, name, new, None)
    }

    /// Makes a symbolic link; takes a hold.
    pub(crate) fn symlink(
        &self,
        parent: Ino,
        name: &[u8],
        target: &[u8],
        uid: u32,
        gid: u32,
    ) -> Result<Attr> {
        if target.len() >= BLOCK_SIZE {
            return Err(Posix::NameTooLong.into());
        }
        if target.is_empty() || target.contains(&0) {
            return Err(Posix::InvalidArgument.into());
        }
        let new = NewFile { kind: FileKind::Symlink, perm: 0o777, umask: 0, uid, gid, rdev: 0 };
        self.make(parent, name, &new, Some(target))
    }

    fn make(&self, parent: Ino, name: &[u8], new: &NewFile, target: Option<&[u8]>) -> Result<Attr> {
        check_new_name(name, Posix::Exists)?;
        let _op = self.begin()?;
        let dir = directory(self, parent)?;
        let mut state = dir.lock.write();
        self.check_can_add(&dir, &state)?;
        let search = Dir::of(self, &dir).search(&state, name)?;
        if search.found.is_some() {
            return Err(Posix::Exists.into());
        }
        let directory = new.kind == FileKind::Directory;
        if directory && dir.nlink() == LINK_MAX {
            return Err(Posix::TooManyLinks.into());
        }
        let inode = self.new_inode(&dir, Some(name), new, target)?;
        if let Err(e) = self.changing(&dir).add(&mut state, &search, name, inode.ino, new.kind) {
            self.discard(&inode);
            return Err(e);
        }
        if directory {
            self.edit(&dir, Dirty::Full, |r| add_links(r, 1));
        } else if new.kind == FileKind::Regular {
            self.name_journal.made(dir.ino, name, inode.ino);
            self.xref.named(&inode, &dir, &state);
        }
        self.touch_modified(&dir);
        let ino = inode.ino;
        self.effects.note(match target {
            Some(target) => Effect::Symlink { ino, parent, name, target, uid: new.uid, gid: new.gid },
            None => Effect::Create { ino, parent, name, new: *new },
        });
        Ok(self.attr_held(&inode))
    }

    /// Makes a file without a name; takes a hold, without which it would be gone.
    pub(crate) fn tmpfile(&self, parent: Ino, new: &NewFile) -> Result<Attr> {
        if new.kind != FileKind::Regular {
            return Err(Posix::InvalidArgument.into());
        }
        let _op = self.begin()?;
        let dir = directory(self, parent)?;
        let state = dir.lock.read();
        self.check_can_add(&dir, &state)?;
        let inode = self.new_inode(&dir, None, new, None)?;
        self.effects.note(Effect::Tmpfile { ino: inode.ino, parent, new: *new });
        Ok(self.attr_held(&inode))
    }

    /// Makes an inode, without an entry in `dir`. Without a name it is an orphan with no links.
    /// The caller holds the lock of `dir` and the operation lock.
    pub(crate) fn new_inode(
        &self,
        dir: &Inode,
        name: Option<&[u8]>,
        new: &NewFile,
        target: Option<&[u8]>,
    ) -> Result<Arc<Inode>> {
        let inherited = self.inherit(dir, new)?;
        self.space.reserve_node(true)?;
        let wanted = self.effects.log().and_then(OpLog::wanted);
        let ino = match self.nat.alloc_inode(&self.io, wanted) {
            Ok(Some(ino)) => ino,
            other => {
                self.space.release_node(true);
                return Err(other.err().map_or(Error::NoSpace, Error::from));
            }
        };
        if name.is_none()
            && let Err(e) = self.orphans.add(ino)
        {
            self.nat.set(ino, ino, NULL_ADDR, false);
            self.space.release_node(true);
            return Err(e);
        }
        if name.is_none() {
            self.since.renamed_files.lock().insert(ino);
        }
        let mut block = Block::ZERO;
        self.fill_inode(block.view_mut(), ino, dir, name, new, &inherited);
        let inode = self.adopt_inode(self.nodes.create(ino, ino, 0, new.kind != FileKind::Directory, block));
        // A statement of its own: taking the inode apart needs the lock again.
        let filled = self.fill_content(&inode, &mut inode.lock.write(), dir.ino, target, inherited);
        if let Err(e) = filled {
            self.discard(&inode);
            return Err(e);
        }
        Ok(inode)
    }

    /// Takes an inode apart that has just been made. The caller holds the operation lock.
    pub(crate) fn discard(&self, inode: &Arc<Inode>) {
        let undone = self.destroy(inode, &mut inode.lock.write());
        self.orphans.remove(inode.ino);
        if let Err(error) = undone {
            tracing::error!(ino = inode.ino, %error, "an inode without a name is left until the volume is checked");
        }
    }

    fn inherit(&self, dir: &Inode, new: &NewFile) -> Result<Inherited> {
        let directory = new.kind == FileKind::Directory;
        let default = if new.kind == FileKind::Symlink { None } else { self.default_acl(dir)? };
        let (mut perm, access) = match &default {
            Some(acl) => {
                let inherited = acl.inherit(new.perm & 0o7777);
                (inherited.perm, inherited.access)
            }
            None => (new.perm & 0o7777 & !new.umask, None),
        };
        let (mode, gid) = dir.raw(|r| (r.i_mode.get(), r.i_gid.get()));
        let setgid = mode & 0o2000 != 0;
        if setgid && directory {
            perm |= 0o2000;
        }
        Ok(Inherited {
            perm,
            gid: if setgid { gid } else { new.gid },
            access,
            default: default.filter(|_| directory),
            durability: OwnDurability { map: self, inode: dir }.hands_down(new.kind)?,
        })
    }

    /// The fields of a new inode block: who it is, what it inherits, and how its content will be laid out.
    fn fill_inode(
        &self,
        r: &mut RawInode,
        ino: Ino,
        dir: &Inode,
        name: Option<&[u8]>,
        new: &NewFile,
        inherited: &Inherited,
    ) {
        let directory = new.kind == FileKind::Directory;
        let now = self.clock.now();
        r.i_mode = (new.kind.mode_bits() | inherited.perm).into();
        r.i_uid = new.uid.into();
        r.i_gid = inherited.gid.into();
        r.i_links = match name {
            Some(_) if directory => 2,
            Some(_) => 1,
            None => 0,
        }
        .into();
        r.i_blocks = 1.into();
        set_atime(r, now);
        set_mtime(r, now);
        set_ctime(r, now);
        r.i_generation = generation(self.cp_ver.load(Ordering::Acquire), now, ino).into();
        r.i_current_depth = u32::from(directory).into();
        if let Some(name) = name {
            self.set_name(ino, r, dir.ino, name);
        }
        r.i_flags = inherited_flags(dir, new.kind).bits().into();
        if new.kind == FileKind::Regular
            && let Some(name) = name
        {
            r.i_advise = temperature(&self.sb, name).bits();
        }
        self.lay_out(r, dir, new.kind, now);
        // The hidden file must have inline content.
        if !name.is_some_and(|name| self.hiding().is_name(dir.ino, name)) {
            self.clusters().compress_new(dir.raw(RawInode::flags), new.kind, name, r);
        }
        if matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            let at = r.slots(self.flexible_inline_xattr()).extra;
            let [old, wide] = encode_dev(new.rdev);
            r.i_addr[at] = old.into();
            r.i_addr[at + 1] = wide.into();
        }
    }

    /// What a new inode has inline, and its extra attributes.
    fn lay_out(&self, r: &mut RawInode, dir: &Inode, kind: FileKind, now: Timestamp) {
        let inlines = [
            (Inline::EXTRA_ATTR, self.features.contains(Feature::EXTRA_ATTR)),
            (Inline::XATTR, self.opts.inline_xattr),
            (Inline::DENTRY, self.opts.inline_dentry && kind == FileKind::Directory),
            (Inline::DATA, self.opts.inline_data && kind == FileKind::Regular),
        ];
        r.i_inline =
            inlines.iter().filter(|(_, on)| *on).fold(Inline::empty(), |all, (flag, _)| all | *flag).bits();
        let Some(extra) = r.extra_mut() else { return };
        extra.i_extra_isize = EXTRA_ISIZE.into();
        if self.flexible_inline_xattr() && self.opts.inline_xattr {
            extra.i_inline_xattr_size = (DEFAULT_INLINE_XATTR_ADDRS as u16).into();
        }
        if self.features.contains(Feature::PROJECT_QUOTA) && dir.has_flags(FileFlags::PROJINHERIT) {
            extra.i_projid = self.attr(dir).project.into();
        }
        if self.has_crtime() {
            extra.i_crtime = (now.secs as u64).into();
            extra.i_crtime_nsec = now.nanos.into();
        }
    }

    /// What needs more than the inode block's fields: entries, link target, attributes.
    fn fill_content(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        parent: Ino,
        target: Option<&[u8]>,
        inherited: Inherited,
    ) -> Result<()> {
        if inode.is_dir() {
            Dir::of(self, inode).make_empty(state, parent)?;
        }
        if let Some(target) = target {
            self.write_target(inode, state, target)?;
        }
        let entry =
            |acl: &Acl, index| XattrEntry { index: index as u8, name: Vec::new(), value: acl.to_disk() };
        let access = inherited.access.as_ref().map(|acl| entry(acl, NameIndex::PosixAclAccess));
        let default = inherited.default.as_ref().map(|acl| entry(acl, NameIndex::PosixAclDefault));
        let entries: Vec<XattrEntry> =
            default.into_iter().chain(access).chain(inherited.durability).collect();
        if entries.is_empty() { Ok(()) } else { XattrArea { map: self, inode }.write(entries) }
    }

    /// Writes the target of a new symbolic link: inline where it fits, else into page 0.
    fn write_target(&self, inode: &Arc<Inode>, state: &mut InodeState, target: &[u8]) -> Result<()> {
        let range = self.slots(inode).inline_content_range();
        if self.opts.inline_data && target.len() <= range.len() {
            self.nodes.update(&inode.node, Dirty::Full, |b| {
                b.0[range.start..range.start + target.len()].copy_from_slice(target);
                b.view_mut::<RawInode>().i_inline |= (Inline::DATA | Inline::DATA_EXIST).bits();
            });
        } else {
            self.change_page(inode, state, 0, None, true, |b| b.0[..target.len()].copy_from_slice(target))?;
        }
        self.set_size(inode, target.len() as u64);
        Ok(())
    }
}

/// Flags that a new inode of a kind has from its directory, and the one that every directory has.
fn inherited_flags(dir: &Inode, kind: FileKind) -> FileFlags {
    let flags = dir.raw(|d| d.flags()) & INHERITED;
    match kind {
        FileKind::Directory => flags | FileFlags::INDEX,
        FileKind::Regular => flags - DIRECTORY_ONLY,
        _ => flags & OTHER_FILES,
    }
}

/// A generation that no earlier inode of this number had: a number is used again only after a checkpoint.
fn generation(cp_ver: u64, now: Timestamp, ino: Ino) -> u32 {
    let mut x =
        cp_ver ^ (now.secs as u64).rotate_left(32) ^ u64::from(now.nanos) ^ u64::from(ino).rotate_left(16);
    // The finishing step of MurmurHash3, which is a bijection.
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (x ^ x >> 33) as u32
}

/// The hint that the superblock's list of extensions gives a file by its name.
fn temperature(sb: &RawSuperblock, name: &[u8]) -> Advise {
    let cold = (sb.extension_count.get() as usize).min(MAX_EXTENSIONS);
    let hot = usize::from(sb.hot_ext_count).min(MAX_EXTENSIONS - cold);
    match sb.extension_list[..cold + hot].iter().position(|e| has_extension(name, e)) {
        Some(at) if at < cold => Advise::COLD,
        Some(_) => Advise::HOT,
        None => Advise::empty(),
    }
}

/// Whether a name is `stem.extension`, or that and a further extension, in either case.
fn has_extension(name: &[u8], extension: &[u8; EXTENSION_LEN]) -> bool {
    let len = extension.iter().position(|&b| b == 0).unwrap_or(EXTENSION_LEN);
    let extension = &extension[..len];
    if extension == b"*" {
        return true;
    }
    let stem_and_dot = 2;
    len > 0
        && name.len() >= len + stem_and_dot
        && name.windows(len + 1).skip(1).any(|w| w[0] == b'.' && w[1..].eq_ignore_ascii_case(extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(text: &str) -> [u8; EXTENSION_LEN] {
        let mut e = [0; EXTENSION_LEN];
        e[..text.len()].copy_from_slice(text.as_bytes());
        e
    }

    #[test]
    fn extensions_match_as_in_the_kernel() {
        let mp4 = extension("mp4");
        for (name, expected) in [
            ("a.mp4", true),
            ("a.MP4", true),
            ("a.mp4.part", true),
            ("a.mp4x", true), // the kernel compares only as many characters as the extension has
            (".mp4", false),
            ("mp4", false),
            ("a.mp", false),
            ("a_mp4", false),
            ("", false),
        ] {
            assert_eq!(has_extension(name.as_bytes(), &mp4), expected, "{name}");
        }
        assert!(has_extension(b"x", &extension("*")));
        assert!(!has_extension(b"a.b", &extension("")));
        assert!(has_extension(b"a.longname", &extension("longname")));
    }

    #[test]
    fn generations_differ_between_uses_of_a_number() {
        let now = Timestamp { secs: 1_700_000_000, nanos: 5 };
        assert_ne!(generation(7, now, 9), generation(8, now, 9));
        assert_ne!(generation(7, now, 9), generation(7, now, 10));
    }
}
