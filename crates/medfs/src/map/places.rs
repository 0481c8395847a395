//! Nodes and the places in their files: a node's footer says where it belongs, and what names it has to agree.

use crate::error::Result;
use medfs_format::path::BELOW_INODE;
use medfs_format::superblock::Feature;
use medfs_format::{FormatError, Ino, NULL_ADDR, Nid, Structure};
use medfs_store::{NodePage, Store, node_offset};
use std::sync::Arc;

/// A node of a file, checked to be the one that is meant at this place of it.
pub(super) fn child_of(store: &Store, ino: Ino, nid: Nid, offset: u32) -> Result<Arc<NodePage>> {
    let page = store.nodes.get(&store.io, &store.nat, nid)?;
    if page.ino != ino || node_offset(&page) != offset {
        let (of, at) = (page.ino, node_offset(&page));
        let found = format!("inode {of} offset {at}, expected {ino} and {offset}");
        return Err(FormatError::corrupt(Structure::NodeFooter, nid, "ino", found).into());
    }
    Ok(page)
}

/// Checks nodes that a damaged inode may name in each other's places: those behind a place without one. What lies
/// before the end of a file would read as a hole otherwise, and nothing else comes to the node.
pub(super) fn check_places(store: &Store, node: &NodePage) -> Result<()> {
    if store.sb.features().contains(Feature::INODE_CHECKSUM) {
        return Ok(()); // which covers what it names
    }
    let nids = node.read(|d| d.inode().i_nid.map(|nid| nid.get()));
    let behind_hole = nids.into_iter().zip(BELOW_INODE).skip_while(|(nid, _)| *nid != NULL_ADDR);
    for (nid, offset) in behind_hole.filter(|(nid, _)| *nid != NULL_ADDR) {
        child_of(store, node.nid, nid, offset)?;
    }
    Ok(())
}
