//! The decision tree that a volume brings along (ARS).
//!
//! Purpose: it lies in an attribute of the root directory, [`ATTRIBUTE`]. It is read when the volume is opened and when
//! the attribute changes. What is no tree is refused where somebody sets it, and passed by with a warning where it is
//! found: then the built-in one counts. Locks: those of reading and setting an attribute, and leaves.

use crate::content::reserved_files;
use crate::error::{Error, Posix, Result};
use crate::options::{PlacementPolicy, ReserveFiles};
use crate::tree::Tree as Names;
use crate::types::XattrMode;
use medfs_format::Ino;
use medfs_format::ars::{ATTRIBUTE, Tree};

/// Whether an attribute is the volume's tree.
pub(crate) fn is_tree(fs: &Names, ino: Ino, name: &[u8]) -> bool {
    ino == fs.geo.root_ino && name == ATTRIBUTE
}

/// `InvalidArgument` where a value is no tree.
pub(crate) fn check(value: &[u8]) -> Result<()> {
    match Tree::parse(value) {
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "the decision tree is not valid");
            Err(Posix::InvalidArgument.into())
        }
    }
}

/// The tree that volumes without one judge by.
pub fn built_in() -> Tree {
    reserved_files::built_in::tree()
}

/// The volume's tree, or the built-in one.
pub(super) fn of(fs: &Names) -> Tree {
    let found = match fs.getxattr(fs.geo.root_ino, ATTRIBUTE) {
        Ok(bytes) => Tree::parse(&bytes).map_err(Error::from),
        Err(Error::Posix(Posix::NoAttribute)) => Ok(built_in()),
        Err(error) => Err(error),
    };
    found.unwrap_or_else(|error| {
        tracing::warn!(%error, "the volume's decision tree cannot be used: the built-in one takes its place");
        built_in()
    })
}

/// Whether a tree chooses the files with reserves.
pub(super) fn is_asked(fs: &Names) -> bool {
    fs.opts.placement == PlacementPolicy::Reserve && fs.opts.reserve_files == ReserveFiles::Tree
}

/// Makes a tree the volume's.
pub(super) fn keep(fs: &Names, tree: &Tree) -> Result<()> {
    fs.setxattr(fs.geo.root_ino, ATTRIBUTE, &tree.to_bytes(), XattrMode::Set)?;
    learn(fs);
    Ok(())
}

/// Judges by the volume's tree from now on, or by the built-in one.
pub(crate) fn learn(fs: &Names) {
    if is_asked(fs) {
        fs.placement.learn(of(fs));
    }
}
