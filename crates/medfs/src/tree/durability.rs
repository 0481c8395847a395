//! `trusted.medfs.durability`: what an fsync of a file means, whatever the mount says.
//!
//! The attribute says `posix` or `adaptive`. A new file or folder has that of the folder in which it is made, so a
//! folder decides for all that is made below it from then on. Without the attribute the option `durability` decides,
//! and on a mount with `durability=posix` it changes nothing.
//! Locks: an inode's is held where its attribute is read.

use crate::error::{Posix, Result};
use crate::map::Map;
use crate::map::inode::Inode;
use crate::map::xattr_area::XattrArea;
use crate::options::DurabilityMode;
use medfs_format::node::FileKind;
use medfs_format::xattr::{NameIndex, XattrEntry};

/// The attribute's full name.
pub const ATTRIBUTE: &[u8] = b"trusted.medfs.durability";
/// The name as it is stored, among those that begin with `trusted.`.
const STORED: &[u8] = b"medfs.durability";

/// What an inode says of its own durability.
#[derive(Clone, Copy)]
pub(crate) struct OwnDurability<'a> {
    pub(crate) map: &'a Map,
    pub(crate) inode: &'a Inode,
}

impl OwnDurability<'_> {
    /// What the attribute says; `None` without one, or with a value that means nothing.
    pub(crate) fn says(self) -> Result<Option<DurabilityMode>> {
        let entries = XattrArea { map: self.map, inode: self.inode }.read()?;
        let own = entries.iter().find(|entry| is_durability(entry));
        Ok(own.and_then(|entry| DurabilityMode::of_attribute(&entry.value)))
    }

    /// The attribute that a new inode in this folder has.
    pub(super) fn hands_down(self, kind: FileKind) -> Result<Option<XattrEntry>> {
        if !matches!(kind, FileKind::Regular | FileKind::Directory) {
            return Ok(None);
        }
        Ok(self.says()?.map(|mode| XattrEntry {
            index: NameIndex::Trusted as u8,
            name: STORED.to_vec(),
            value: mode.word().as_bytes().to_vec(),
        }))
    }

    /// `InvalidArgument` where a value of the attribute would mean nothing.
    pub(super) fn check(self, value: &[u8]) -> Result<()> {
        let takes = matches!(self.inode.kind(), FileKind::Regular | FileKind::Directory);
        let means = DurabilityMode::of_attribute(value).is_some();
        if takes && means { Ok(()) } else { Err(Posix::InvalidArgument.into()) }
    }
}

fn is_durability(entry: &XattrEntry) -> bool {
    entry.index == NameIndex::Trusted as u8 && entry.name == STORED
}
