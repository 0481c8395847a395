//! What users do not see: names of the hidden files ([`super::hidden`]), those files, and the links that they add.
//!
//! Locks: leaves of [`crate::xref`].

use crate::error::{Posix, Result};
use crate::xref::Xref;
use medfs_format::Ino;

pub(crate) use medfs_format::dentry::{HIDDEN_DIR as DIR, HIDDEN_LIST as LIST};

/// Tells what is hidden.
#[derive(Clone, Copy)]
pub(crate) struct Hiding<'a> {
    pub(crate) xref: &'a Xref,
}

impl Hiding<'_> {
    /// Whether a name is that of the list or the directory.
    pub(crate) fn is_name(self, parent: Ino, name: &[u8]) -> bool {
        self.xref.is_delta_volume() && parent == self.xref.geo.root_ino && [LIST, DIR].contains(&name)
    }

    /// Whether an inode is the list or the directory. (The files in the directory have no link that is seen.)
    pub(crate) fn contains(self, ino: Ino) -> bool {
        self.xref.index.file() == Some(ino) || self.xref.retained.dir() == Some(ino)
    }

    /// Fails where a name is not for users.
    pub(crate) fn refuse(self, parent: Ino, name: &[u8], error: Posix) -> Result<()> {
        if self.is_name(parent, name) { Err(error.into()) } else { Ok(()) }
    }

    /// Links of an inode that are not to be seen: a retained file's name, and the hidden directory's entry `..`.
    pub(crate) fn links_to(self, ino: Ino) -> u32 {
        let retained = &self.xref.retained;
        let above = ino == self.xref.geo.root_ino && retained.dir().is_some();
        u32::from(above || retained.contains(ino))
    }
}
