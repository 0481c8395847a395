//! Pages of compressed files: their clusters, and what changed of them since.

use super::blocks::{ClusterBlocks, ClusterReader};
use crate::content::Content;
use crate::content::storage::Updates;
use std::ops::Deref;
use std::sync::Arc;

/// What stores the pages of compressed files.
pub(crate) struct Clusters {
    pub(crate) blocks: Arc<ClusterBlocks>,
    /// What keeps changes of pages while their clusters stay.
    pub(super) updates: Arc<dyn Updates>,
}

/// Pages of compressed files of a volume.
#[derive(Clone, Copy)]
pub(crate) struct ClusterPages<'a> {
    reader: ClusterReader<'a>,
    pub(super) updates: &'a dyn Updates,
}

impl<'a> Deref for ClusterPages<'a> {
    type Target = ClusterReader<'a>;

    fn deref(&self) -> &ClusterReader<'a> {
        &self.reader
    }
}

impl Clusters {
    /// With changes kept by `updates`.
    pub(crate) fn new(blocks: Arc<ClusterBlocks>, updates: Arc<dyn Updates>) -> Clusters {
        Clusters { blocks, updates }
    }

    /// The layer over a volume's content.
    pub(crate) fn over<'a>(&'a self, content: &'a Content) -> ClusterPages<'a> {
        ClusterPages { reader: ClusterReader { content, blocks: &self.blocks }, updates: &*self.updates }
    }
}
