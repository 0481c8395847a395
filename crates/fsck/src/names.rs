//! Names of files: what an inode says of its own, and where a directory has room for one.

use medfs_format::Ino;
use medfs_format::dentry::{MAX_DEPTH, bucket_blocks, bucket_start, buckets};
use medfs_format::hash::dentry_hash;
use medfs_format::node::{Advise, FileFlags, NAME_LEN, RawInode};

/// Hash level of a directory page.
pub(crate) fn level_of(page: u64, dir_level: u8) -> u32 {
    let mut end = 0u64;
    for level in 0..MAX_DEPTH {
        end = end.saturating_add(buckets(level, dir_level) * bucket_blocks(level));
        if page < end {
            return level;
        }
    }
    MAX_DEPTH
}

/// Whether an entry of this hash may be in this page.
pub(crate) fn right_place(hash: u32, page: u64, dir_level: u8) -> bool {
    let level = level_of(page, dir_level);
    let start = bucket_start(level, dir_level, u64::from(hash) % buckets(level, dir_level));
    page >= start && page < start + bucket_blocks(level)
}

/// Whether names of a directory are stored in a form whose hash cannot be computed here (encrypted, case-insensitive).
pub(crate) fn is_opaque(inode: &RawInode) -> bool {
    is_encrypted(inode) || inode.flags().contains(FileFlags::CASEFOLD)
}

/// Whether a directory takes no name that is made here. Where only case is ignored, numbers and lost+found
/// have the hash that they always have.
pub(crate) fn is_encrypted(inode: &RawInode) -> bool {
    inode.advise().contains(Advise::ENCRYPT)
}

/// The hash of a name of ASCII where case is ignored.
pub(crate) fn folded(name: &[u8]) -> u32 {
    dentry_hash(&name.to_ascii_lowercase())
}

/// The hash of a name in a directory. Of names that are not ASCII it is not known where case is ignored, nor of any
/// that is encrypted: it is then another one.
pub(crate) fn hash_of(inode: &RawInode, name: &[u8]) -> u32 {
    let folds = inode.flags().contains(FileFlags::CASEFOLD) && !is_encrypted(inode);
    if folds && name.is_ascii() { folded(name) } else { dentry_hash(name) }
}

/// The pages of a level in which a name may be.
pub(crate) fn bucket(inode: &RawInode, level: u32, name: &[u8]) -> std::ops::Range<u64> {
    let index = u64::from(hash_of(inode, name)) % buckets(level, inode.i_dir_level);
    let start = bucket_start(level, inode.i_dir_level, index);
    start..start + bucket_blocks(level)
}

/// The name that an inode says it has.
pub(crate) fn own_name(inode: &RawInode) -> Option<&[u8]> {
    inode.i_name.get(..inode.i_namelen.get() as usize)
}

/// Whether bytes can be the name of a file.
pub(crate) fn may_be_a_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|&b| b == 0 || b == b'/')
}

/// Number and name of an inode, for messages.
pub(crate) fn inode_name(ino: Ino, inode: &RawInode) -> String {
    let len = (inode.i_namelen.get() as usize).min(NAME_LEN);
    format!("inode {ino} ({:?})", String::from_utf8_lossy(&inode.i_name[..len]))
}
