//! The tree: names, directories, attributes that have names, and the end of inodes that lost their last one.
//!
//! Purpose: operations on names ([`namei`], [`create`], [`rename`]), attributes ([`attr`], [`xattr`]), files
//! that are not to be seen ([`hidden`], [`hiding`]), and what an fsync has to know of names
//! ([`name_journal`]).
//! Invariants:
//! 1. An operation that fails leaves names, link counts and inodes as they were.
//! 2. An inode has a name, or is an orphan, at every moment in which the operation lock is free.
//! 3. Every change of an entry is counted in [`NameJournal`] ([`Tree::changing`]).
//!
//! Locks, outermost first: `renames`, where two directories are involved; those of the inodes concerned, a
//! parent before its child; the journal of names is a leaf.

pub(crate) mod attr;
pub(crate) mod create;
pub(crate) mod durability;
pub(crate) mod hidden;
pub(crate) mod hiding;
pub(crate) mod inode_free;
pub(crate) mod name_journal;
pub(crate) mod namei;
pub(crate) mod rename;
pub(crate) mod xattr;

use crate::dir::Dir;
use crate::file_ops::FileOps;
use crate::map::inode::Inode;
use crate::ranks;
use hiding::Hiding;
use medfs_sync::{Mutex, Ranked};
use name_journal::NameJournal;
use std::ops::Deref;
use std::sync::Arc;

/// Names over files.
pub(crate) struct Tree {
    pub(crate) files: FileOps,
    /// What changed in directories since the last checkpoint, and whether an fsync of one looks there first.
    pub(crate) name_journal: NameJournal,
    renames: Mutex<()>,
}

impl Deref for Tree {
    type Target = FileOps;

    fn deref(&self) -> &FileOps {
        &self.files
    }
}

impl Tree {
    pub(crate) fn over(files: FileOps, name_journal: NameJournal) -> Tree {
        Tree { files, name_journal, renames: Mutex::new(()).ranked(ranks::RENAMES) }
    }

    /// What users do not see.
    pub(crate) fn hiding(&self) -> Hiding<'_> {
        Hiding { xref: self }
    }

    /// A directory an entry of which is about to change.
    pub(crate) fn changing<'a>(&'a self, dir: &'a Arc<Inode>) -> Dir<'a> {
        self.name_journal.changed(dir.ino);
        Dir::of(self, dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{new, tree};
    use crate::error::{Posix, Result};
    use crate::types::{FileFlags, RenameFlags, SetAttr, XattrMode};
    use medfs_format::Ino;
    use medfs_format::node::FileKind;
    use std::collections::BTreeSet;

    fn make(tree: &Tree, dir: Ino, name: &str, kind: FileKind) -> Ino {
        tree.create(dir, name.as_bytes(), &new(kind)).expect(name).ino
    }

    fn names(tree: &Tree, dir: Ino) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        tree.readdir(dir, 0, &mut |entry| names.insert(String::from_utf8(entry.name).unwrap())).unwrap();
        names
    }

    fn set(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(|&name| name.to_owned()).collect()
    }

    fn errno<T>(result: Result<T>) -> Option<i32> {
        result.err().map(|error| error.errno())
    }

    fn write(tree: &Tree, ino: Ino, data: &[u8]) {
        tree.write(ino, 0, data, crate::content::file::WriteTimes::Now).unwrap();
    }

    fn all(tree: &Tree, ino: Ino) -> Vec<u8> {
        let mut content = vec![0; tree.getattr(ino).unwrap().size as usize];
        tree.read(ino, 0, &mut content).unwrap();
        content
    }

    #[test]
    fn names_are_given_found_and_taken() {
        let tree = tree();
        let root = tree.geo.root_ino;
        let (dir, file) =
            (make(&tree, root, "d", FileKind::Directory), make(&tree, root, "f", FileKind::Regular));
        write(&tree, file, b"content");
        assert_eq!((tree.getattr(root).unwrap().nlink, tree.getattr(dir).unwrap().nlink), (4, 2));
        assert_eq!(errno(tree.create(root, b"f", &new(FileKind::Regular))), Some(17));
        assert_eq!(tree.link(file, dir, b"g").unwrap().nlink, 2);
        let link = tree.symlink(dir, b"s", &[b't'; 4000], 0, 0).unwrap().ino;
        assert_eq!(tree.readlink(link).unwrap(), [b't'; 4000]);
        let short = tree.symlink(dir, b"short", b"f", 0, 0).unwrap().ino;
        assert_eq!((tree.readlink(short).unwrap(), errno(tree.readlink(file))), (b"f".to_vec(), Some(22)));
        assert_eq!(names(&tree, dir), set(&[".", "..", "g", "s", "short"]));
        assert_eq!(tree.lookup(dir, b"g").unwrap().ino, file);
        assert_eq!(
            (tree.lookup(dir, b"..").unwrap().ino, tree.lookup(root, b"..").unwrap().ino),
            (root, root)
        );
        assert_eq!(tree.lookup(file, b".").unwrap().ino, file);
        assert_eq!((errno(tree.lookup(dir, b"x")), errno(tree.lookup(file, b"x"))), (Some(2), Some(20)));
        assert_eq!((errno(tree.rmdir(root, b"d")), errno(tree.unlink(root, b"d"))), (Some(39), Some(21)));
        assert_eq!(errno(tree.rmdir(root, b"f")), Some(20));
        for name in [&b"g"[..], b"s", b"short"] {
            tree.unlink(dir, name).unwrap();
        }
        tree.rmdir(root, b"d").unwrap();
        tree.unlink(root, b"f").unwrap();
        assert_eq!(all(&tree, file), b"content", "it is held");
        assert!(tree.orphans.contains(file) && tree.orphans.contains(dir));
        assert_eq!(errno(tree.lookup(file, b".")), Some(116));
        // A hold for the creation, and one for each time it was found.
        tree.release(file, 4).unwrap();
        assert_eq!((errno(tree.getattr(file)), tree.getattr(root).unwrap().nlink), (Some(116), 3));
    }

    #[test]
    fn a_file_without_a_name_gets_one() {
        let tree = tree();
        let root = tree.geo.root_ino;
        let file = tree.tmpfile(root, &new(FileKind::Regular)).unwrap();
        assert!(file.nlink == 0 && tree.orphans.contains(file.ino));
        tree.link(file.ino, root, b"named").unwrap();
        assert!(!tree.orphans.contains(file.ino));
        let other = tree.tmpfile(root, &new(FileKind::Regular)).unwrap().ino;
        tree.release(other, 1).unwrap();
        assert_eq!(errno(tree.getattr(other)), Some(116));
        assert_eq!(errno(tree.tmpfile(root, &new(FileKind::Directory))), Some(22));
    }

    #[test]
    fn a_directory_grows_out_of_its_inode_and_is_listed_page_by_page() {
        let tree = tree();
        let dir = make(&tree, tree.geo.root_ino, "d", FileKind::Directory);
        let name = |n: u32| format!("a name of some length, number {n}");
        for n in 0..600 {
            make(&tree, dir, &name(n), FileKind::Regular);
        }
        assert_eq!(names(&tree, dir).len(), 602);
        for n in (0..600).filter(|n| n % 7 != 0) {
            tree.unlink(dir, name(n).as_bytes()).unwrap();
        }
        let left: BTreeSet<String> = (0..600).step_by(7).map(name).chain([".".into(), "..".into()]).collect();
        assert_eq!(names(&tree, dir), left);
        let (mut position, mut found) = (0, Vec::new());
        loop {
            let mut next = None;
            tree.readdir(dir, position, &mut |entry| {
                next = Some((entry.next, entry.name));
                false
            })
            .unwrap();
            let Some((after, name)) = next else { break };
            found.push(name);
            position = after;
        }
        assert_eq!(found.len(), left.len(), "one at a time");
    }

    #[test]
    fn a_rename_moves_replaces_exchanges_and_leaves_a_whiteout() {
        let tree = tree();
        let root = tree.geo.root_ino;
        let [a, b] = ["a", "b"].map(|name| make(&tree, root, name, FileKind::Directory));
        let [f, g] = ["f", "g"].map(|name| make(&tree, a, name, FileKind::Regular));
        let sub = make(&tree, a, "sub", FileKind::Directory);
        let rename = |from: (Ino, &str), to: (Ino, &str), flags| {
            tree.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags)
        };
        let plain = RenameFlags::empty();
        rename((a, "f"), (b, "f"), plain).unwrap();
        rename((b, "f"), (a, "g"), plain).unwrap();
        assert_eq!((tree.lookup(a, b"g").unwrap().ino, tree.getattr(g).unwrap().nlink), (f, 0));
        rename((a, "sub"), (b, "sub"), plain).unwrap();
        assert_eq!(tree.lookup(sub, b"..").unwrap().ino, b);
        let links = |ino| tree.getattr(ino).unwrap().nlink;
        assert_eq!((links(a), links(b)), (2, 3));
        assert_eq!(errno(rename((root, "b"), (sub, "b"), plain)), Some(22), "below itself");
        assert_eq!(errno(rename((b, "sub"), (root, "b"), plain)), Some(39), "above it");
        assert_eq!(errno(rename((a, "g"), (b, "sub"), plain)), Some(21));
        assert_eq!(errno(rename((b, "sub"), (a, "g"), plain)), Some(20));
        assert_eq!(errno(rename((a, "g"), (b, "sub"), RenameFlags::NOREPLACE)), Some(17));
        assert_eq!(errno(rename((a, "g"), (b, "none"), RenameFlags::EXCHANGE)), Some(2));
        assert_eq!(
            errno(rename((a, "g"), (b, "x"), RenameFlags::EXCHANGE | RenameFlags::NOREPLACE)),
            Some(22)
        );
        assert_eq!(errno(rename((a, "none"), (b, "x"), plain)), Some(2));
        rename((a, "g"), (a, "g"), plain).unwrap();
        rename((a, "g"), (b, "sub"), RenameFlags::EXCHANGE).unwrap();
        assert_eq!((tree.lookup(a, b"g").unwrap().ino, tree.lookup(b, b"sub").unwrap().ino), (sub, f));
        assert_eq!((links(a), links(b), tree.lookup(sub, b"..").unwrap().ino), (3, 2, a));
        rename((b, "sub"), (b, "moved"), RenameFlags::WHITEOUT).unwrap();
        let white = tree.lookup(b, b"sub").unwrap();
        assert_eq!((white.kind, white.rdev), (FileKind::CharDevice, 0));
        assert_eq!(names(&tree, b), set(&[".", "..", "moved", "sub"]));
    }

    #[test]
    fn attributes_and_flags_are_set() {
        let tree = tree();
        let root = tree.geo.root_ino;
        let file = make(&tree, root, "f", FileKind::Regular);
        write(&tree, file, &[7; 9000]);
        let change =
            SetAttr { perm: Some(0o600), uid: Some(5), gid: Some(6), size: Some(4097), ..SetAttr::default() };
        let attr = tree.setattr(file, &change).unwrap();
        assert_eq!((attr.perm, attr.uid, attr.gid, attr.size), (0o600, 5, 6, 4097));
        let mut all_sevens = all(&tree, file);
        all_sevens.retain(|&byte| byte == 7);
        assert_eq!(all_sevens.len(), 4097);
        let time = crate::types::Timestamp { secs: 12, nanos: 34 };
        let times = SetAttr { atime: Some(time), mtime: Some(time), ..SetAttr::default() };
        assert_eq!(tree.setattr(file, &times).unwrap().mtime, time);
        tree.set_flags(file, FileFlags::IMMUTABLE).unwrap();
        assert_eq!(errno(tree.setattr(file, &change)), Some(1));
        assert_eq!(errno(tree.unlink(root, b"f")), Some(1));
        assert_eq!(errno(tree.set_flags(file, FileFlags::from_bits_retain(1 << 27))), Some(95));
        tree.set_flags(file, FileFlags::empty()).unwrap();
        assert_eq!(errno(tree.setattr(root, &SetAttr { size: Some(0), ..SetAttr::default() })), Some(21));
        let project = tree.set_project(file, 9);
        assert_eq!(tree.getattr(file).unwrap().project, if project.is_ok() { 9 } else { 0 });
    }

    #[test]
    fn extended_attributes_leave_the_inode_when_they_are_large() {
        let tree = tree();
        let root = tree.geo.root_ino;
        let file = make(&tree, root, "f", FileKind::Regular);
        let node = || tree.inode(file).unwrap().raw(|r| r.i_xattr_nid.get());
        tree.setxattr(file, b"user.small", b"1", XattrMode::Create).unwrap();
        assert_eq!(node(), 0);
        tree.setxattr(file, b"user.large", &[3; 3000], XattrMode::Set).unwrap();
        assert_ne!(node(), 0);
        assert_eq!(tree.getxattr(file, b"user.large").unwrap(), [3; 3000]);
        assert_eq!(tree.listxattr(file).unwrap(), [b"user.small".to_vec(), b"user.large".to_vec()]);
        assert_eq!(errno(tree.setxattr(file, b"user.small", b"2", XattrMode::Create)), Some(17));
        assert_eq!(errno(tree.setxattr(file, b"user.none", b"2", XattrMode::Replace)), Some(61));
        assert_eq!(errno(tree.setxattr(file, b"user.huge", &[0; 5000], XattrMode::Set)), Some(7));
        tree.removexattr(file, b"user.large").unwrap();
        assert_eq!((node(), errno(tree.getxattr(file, b"user.large"))), (0, Some(61)));
        assert_eq!(tree.getxattr(file, b"system.advise").unwrap(), [0]);
        tree.setxattr(file, b"system.advise", &[1], XattrMode::Set).unwrap();
        assert_eq!(tree.getxattr(file, b"system.advise").unwrap(), [1]);
        assert_eq!(errno(tree.setxattr(file, b"none.such", b"", XattrMode::Set)), Some(95));
    }

    #[test]
    fn a_default_acl_is_handed_down_and_a_change_of_mode_keeps_to_it() {
        let tree = tree();
        let root = tree.geo.root_ino;
        let dir = make(&tree, root, "d", FileKind::Directory);
        // Version 2: user rwx, user 7 r-x, group r-x, mask rwx, other ---.
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in
            [(1u16, 7u16, u32::MAX), (2, 5, 7), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)]
        {
            acl.extend(tag.to_le_bytes());
            acl.extend(perm.to_le_bytes());
            acl.extend(id.to_le_bytes());
        }
        let (access, default) = (&b"system.posix_acl_access"[..], &b"system.posix_acl_default"[..]);
        tree.setxattr(dir, default, &acl, XattrMode::Set).unwrap();
        let file = make(&tree, dir, "f", FileKind::Regular);
        assert!(tree.getxattr(file, access).is_ok());
        let below = make(&tree, dir, "below", FileKind::Directory);
        assert_eq!(tree.getxattr(below, default).unwrap(), acl);
        tree.setattr(file, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
        assert_eq!(tree.getattr(file).unwrap().perm, 0o600);
        tree.setxattr(file, access, &acl, XattrMode::Set).unwrap();
        assert_eq!(tree.getattr(file).unwrap().perm, 0o770);
        tree.removexattr(file, access).unwrap();
        assert_eq!(errno(tree.getxattr(file, access)), Some(61));
        assert_eq!(errno(tree.setxattr(file, default, &acl, XattrMode::Set)), Some(13));
    }

    #[test]
    fn hidden_files_are_made_when_they_are_wanted_and_leave_no_trace() {
        let tree = tree();
        let root = tree.geo.root_ino;
        let before = tree.getattr(root).unwrap();
        tree.hidden().make().unwrap();
        assert_eq!((tree.index.file(), tree.retained.dir()), (None, None), "not wanted");
        assert!(!tree.can_retain().unwrap() && !tree.can_be_listed(9));
        tree.hidden().make().unwrap();
        let (list, dir) = (tree.index.file().unwrap(), tree.retained.dir().unwrap());
        assert_eq!(
            (names(&tree, root), tree.getattr(root).unwrap()),
            (set(&[".", "..", "lost+found"]), before)
        );
        assert_eq!(errno(tree.lookup(list, b".")), Some(116));
        assert!(tree.hiding().is_name(root, b".medfs") && !tree.hiding().is_name(dir, b".medfs"));
        assert_eq!(errno(tree.hiding().refuse(root, b".medfs.d", Posix::NotFound)), Some(2));
        assert!(tree.can_be_listed(9));
        // As a mount finds them.
        assert!(tree.index.end() && tree.retained.end() == Some(dir));
        tree.hidden().load().unwrap();
        assert_eq!((tree.index.file(), tree.retained.dir()), (Some(list), Some(dir)));
        tree.hidden().remove().unwrap();
        assert_eq!((tree.index.file(), tree.retained.dir()), (None, None));
        tree.hidden().load().unwrap();
        assert_eq!(tree.index.file(), None);
    }

    #[test]
    fn a_retained_file_has_no_link_that_is_seen_until_nothing_needs_it() {
        let tree = tree();
        let root = tree.geo.root_ino;
        let _ = tree.can_retain().unwrap();
        tree.hidden().make().unwrap();
        let file = make(&tree, root, "f", FileKind::Regular);
        let inode = tree.inode(file).unwrap();
        {
            let _op = tree.begin().unwrap();
            let _state = inode.lock.write();
            assert!(tree.hidden().retain(&inode).unwrap());
        }
        assert_eq!((inode.nlink(), tree.getattr(file).unwrap().nlink), (1, 0));
        {
            let _op = tree.begin().unwrap();
            let _state = inode.lock.write();
            tree.hidden().take_back(&inode, root, b"f").unwrap();
            assert!(!tree.retained.contains(file));
            assert!(tree.hidden().retain(&inode).unwrap());
        }
        tree.hidden().release().unwrap();
        assert_eq!((inode.nlink(), tree.retained.contains(file)), (0, false));
    }
}
