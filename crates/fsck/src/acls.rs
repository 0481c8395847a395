//! Judging the POSIX ACLs among an inode's attributes: the kernel answers every access that such an ACL
//! decides with an error, root's too, where it cannot be read.
//!
//! One flipped bit is turned back where only one ACL can be meant. Any other is taken away. The group's
//! permission bits were the mask of an access ACL, and what the owning group itself was allowed is not known:
//! they go with it, so that nobody may do more than before.

use crate::finding::{Code, Findings};
use medfs_format::Ino;
use medfs_format::acl::Acl;
use medfs_format::node::{FileKind, RawInode};
use medfs_format::xattr::{NameIndex, XattrEntry};

const GROUP_BITS: u16 = 0o070;

/// What became of an inode's ACLs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judged {
    /// One is another one, or is gone.
    pub(crate) changed: bool,
    /// One is gone.
    pub(crate) lost: bool,
}

/// Turns flipped bits of name spaces back; whether there were some.
pub(crate) fn turn_indices_back(
    ino: Ino,
    inode: &RawInode,
    entries: &mut [XattrEntry],
    findings: &mut Findings,
) -> bool {
    let is_dir = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Directory);
    let mut changed = false;
    for entry in entries {
        if let Some(right) = entry.unflipped_index(is_dir) {
            let was = std::mem::replace(&mut entry.index, right);
            let text = format!(
                "inode {ino}: e_name_index {was} of an attribute; with one bit flipped it is {right}"
            );
            findings.add(Code::Xattr, text);
            changed = true;
        }
    }
    changed
}

/// Judges the ACLs among `entries`.
pub(crate) fn judge(
    ino: Ino,
    inode: &mut RawInode,
    entries: &mut Vec<XattrEntry>,
    findings: &mut Findings,
) -> Judged {
    let mut judged = Judged::default();
    entries.retain_mut(|entry| {
        let Some(which) = kind(entry) else { return true };
        let Err(wrong) = Acl::from_disk(&entry.value, ino) else { return true };
        judged.changed = true;
        let access = which == NameIndex::PosixAclAccess;
        let name = if access { "access ACL" } else { "default ACL" };
        let perm = access.then(|| inode.i_mode.get() & 0o777);
        if let Some(right) = Acl::unflipped(&entry.value, ino, perm) {
            entry.value = right.to_disk();
            findings.add(Code::Acl, format!("inode {ino}: {name}: {wrong}; one bit of it is flipped"));
            return true;
        }
        judged.lost = true;
        let end = if access {
            inode.i_mode = (inode.i_mode.get() & !GROUP_BITS).into();
            "a repair removes it, and the permissions of the group, which were its mask"
        } else {
            "a repair removes it"
        };
        findings.add(Code::Acl, format!("inode {ino}: {name}: {wrong}; {end}"));
        false
    });
    judged
}

/// Which ACL an attribute is.
fn kind(entry: &XattrEntry) -> Option<NameIndex> {
    let of = |which: &NameIndex| entry.name.is_empty() && entry.index == *which as u8;
    [NameIndex::PosixAclAccess, NameIndex::PosixAclDefault].into_iter().find(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_format::Block;
    use medfs_format::acl::{AclEntry, Who};

    fn acl() -> Acl {
        let entries =
            [(Who::Owner, 6), (Who::User(1000), 6), (Who::OwningGroup, 4), (Who::Mask, 6), (Who::Other, 0)];
        Acl::new(entries.map(|(who, perm)| AclEntry { who, perm }).to_vec()).unwrap()
    }

    fn judged(which: NameIndex, value: Vec<u8>) -> (Judged, Vec<XattrEntry>, u16, usize) {
        let mut block = Block::boxed();
        let inode: &mut RawInode = block.view_mut();
        inode.i_mode = 0o100664.into();
        let user = XattrEntry { index: NameIndex::User as u8, name: b"x".to_vec(), value: vec![3] };
        let mut entries = vec![XattrEntry { index: which as u8, name: Vec::new(), value }, user];
        let mut findings = Findings::new(10);
        let judged = judge(5, inode, &mut entries, &mut findings);
        assert!(findings.list.iter().all(|f| f.code == Code::Acl));
        (judged, entries, inode.i_mode.get(), findings.list.len())
    }

    #[test]
    fn a_sound_acl_is_left_alone() {
        let (judged, entries, mode, found) = judged(NameIndex::PosixAclAccess, acl().to_disk());
        assert_eq!((judged, entries.len(), mode, found), (Judged::default(), 2, 0o100664, 0));
    }

    #[test]
    fn a_flipped_bit_is_turned_back() {
        for which in [NameIndex::PosixAclAccess, NameIndex::PosixAclDefault] {
            let mut value = acl().to_disk();
            value[0] ^= 4; // the version
            let (judged, entries, mode, found) = judged(which, value);
            assert_eq!((judged, mode, found), (Judged { changed: true, lost: false }, 0o100664, 1));
            assert_eq!(entries[0].value, acl().to_disk());
        }
    }

    #[test]
    fn what_is_no_acl_goes_and_lets_nobody_do_more() {
        for (which, mode_after) in
            [(NameIndex::PosixAclAccess, 0o100604), (NameIndex::PosixAclDefault, 0o100664)]
        {
            let (judged, entries, mode, found) = judged(which, vec![0xff; 20]);
            assert_eq!((judged, mode, found), (Judged { changed: true, lost: true }, mode_after, 1));
            assert_eq!(entries.len(), 1, "the other attribute stays");
        }
    }
}
