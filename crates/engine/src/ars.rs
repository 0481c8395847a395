//! Reserved files from outside (ARS): the decision tree that a volume brings along, and what is known and judged of a file.
//!
//! Purpose: the tree lies in an attribute of the root directory, [`ATTRIBUTE`]. It is read when the volume is opened and when the attribute
//! changes. What is no tree is refused where somebody sets it, and passed by with a warning where it is found: then the built-in one counts.
//! Locks: those of reading an attribute, and leaves.

use crate::content::reserved_files::{built_in, features};
use crate::error::{Error, Posix, Result};
use crate::fs::Fs;
use crate::options::{PlacementPolicy, ReserveFiles};
use crate::volume::Volume;
use medfs_format::Ino;

pub use medfs_format::ars::{ATTRIBUTE, Class, Feature, Tree, TreeNode, Values};

/// Whether an attribute is the volume's tree.
pub(crate) fn is_tree(fs: &Fs, ino: Ino, name: &[u8]) -> bool {
    ino == fs.geo.root_ino && name == ATTRIBUTE
}

/// `InvalidArgument` where a value is no tree.
pub(crate) fn check(value: &[u8]) -> Result<()> {
    match Tree::parse(value) {
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "the decision tree is refused");
            Err(Posix::InvalidArgument.into())
        }
    }
}

/// The volume's tree, or the built-in one.
fn tree(fs: &Fs) -> Tree {
    let found = match fs.getxattr(fs.geo.root_ino, ATTRIBUTE) {
        Ok(bytes) => Tree::parse(&bytes).map_err(Error::from),
        Err(Error::Posix(Posix::NoAttribute)) => Ok(built_in::tree()),
        Err(error) => Err(error),
    };
    found.unwrap_or_else(|error| {
        tracing::warn!(%error, "the volume's decision tree cannot be used, the built-in one is");
        built_in::tree()
    })
}

/// Judges by the volume's tree from now on, or by the built-in one.
pub(crate) fn learn(fs: &Fs) {
    if fs.opts.placement == PlacementPolicy::Reserve && fs.opts.reserve_files == ReserveFiles::Tree {
        fs.placement.learn(tree(fs));
    }
}

/// What is known of a file that was written since the volume was opened, and what the tree says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Its features.
    pub features: Values,
    /// The nodes of the tree that it comes through, the answer last.
    pub path: Vec<TreeNode>,
    /// Where its pages go. It changes where two judgements in a row say so.
    pub class: Class,
    /// Its windows that have sections of their own: window and section.
    pub reserved: Vec<(u64, u32)>,
}

impl Judgement {
    /// Of a file; `None` where it was not written since the volume was opened, or long ago and among many others. Errors: no such inode.
    pub fn of(volume: &Volume, ino: Ino) -> Result<Option<Judgement>> {
        let fs = &volume.fs;
        let inode = fs.inode(ino)?;
        let Some(profile) = fs.hotness.profile(ino) else { return Ok(None) };
        let features = inode.raw(|r| features(&profile, r));
        let tree = tree(fs);
        let path = tree.path(&features).map(|at| tree.nodes()[at]).collect();
        Ok(Some(Judgement {
            features,
            path,
            class: profile.standing.class,
            reserved: fs.placement.reserved(ino),
        }))
    }

    /// What the tree says now, and how sure that is in percent.
    pub fn said(&self) -> (Class, u8) {
        match self.path.last() {
            Some(TreeNode::Leaf { class, confidence }) => (*class, *confidence),
            _ => (Class::Log, 0),
        }
    }
}
