//! The delta layer over a volume's content: what its methods look at.

use super::state::Deltas;
use super::zone::Zone;
use crate::content::Content;
use crate::map::inode::Inode;
use std::ops::Deref;

/// Pages of files that may have deltas.
#[derive(Clone, Copy)]
pub(crate) struct DeltaPages<'a> {
    pub(crate) content: &'a Content,
    pub(super) deltas: &'a Deltas,
}

/// Compact pages of files.
#[derive(Clone, Copy)]
pub(crate) struct CompactPages<'a>(pub(super) DeltaPages<'a>);

impl Deref for DeltaPages<'_> {
    type Target = Content;

    fn deref(&self) -> &Content {
        self.content
    }
}

impl<'a> Deref for CompactPages<'a> {
    type Target = DeltaPages<'a>;

    fn deref(&self) -> &DeltaPages<'a> {
        &self.0
    }
}

impl Deltas {
    /// The layer over a volume's content.
    pub(crate) fn over<'a>(&'a self, content: &'a Content) -> DeltaPages<'a> {
        DeltaPages { content, deltas: self }
    }
}

impl<'a> DeltaPages<'a> {
    /// The zone of a file.
    pub(crate) fn zone(&self, inode: &'a Inode) -> Zone<'a> {
        Zone { content: self.content, deltas: self.deltas, inode }
    }

    pub(crate) fn compact(&self) -> CompactPages<'a> {
        CompactPages(*self)
    }
}
