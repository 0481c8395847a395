//! What an inode of this volume may say, and where its delta zone is.

use medfs_format::delta::{self, RawNote};
use medfs_format::node::{DEF_ADDRS_PER_INODE, Inline, Layouts, RawInode, footer, footer_mut};
use medfs_format::path::{Fanout, max_pages};
use medfs_format::{BLOCK_SIZE, Block, FormatError, Geometry, Ino, Structure};
use std::ops::Range;

/// Validation of nodes as they come from disk, fixed for a volume.
#[derive(Debug, Clone)]
pub struct NodeRules {
    pub(crate) geo: Geometry,
    /// Whether the volume's magic is medfs's own: only such a volume may hold deltas.
    pub delta_volume: bool,
    /// The division of slots in its inodes.
    pub layouts: Layouts,
    pub(crate) compression: bool,
    /// Seed of the inodes' checksums. Every inode that has room for one gets it.
    pub seed: u32,
    /// Whether checksums must be right.
    pub(crate) has_checksums: bool,
}

/// Bytes of the largest file there can be: those that calculate with sizes need not fear overflow.
const MAX_SIZE: u64 = max_pages(Fanout::plain(DEF_ADDRS_PER_INODE)) * BLOCK_SIZE as u64;

impl NodeRules {
    /// Seed of the inodes' checksums, where these must be right.
    pub fn checksum_seed(&self) -> Option<u32> {
        self.has_checksums.then_some(self.seed)
    }

    /// Bytes of an inode block that are its delta zone; `None` where there is none.
    pub fn zone_range(&self, block: &Block) -> Option<Range<usize>> {
        let raw: &RawInode = block.view();
        if !self.delta_volume || !raw.inline().contains(Inline::XATTR) {
            return None;
        }
        let area = raw.slots(self.layouts.is_flexible()).inline_xattr_range();
        let zone = delta::zone_range(&block.0[area.clone()])?;
        Some(area.start + zone.start..area.start + zone.end)
    }

    /// Gives an inode block that is about to be written the notes it is to have, and takes those away that it had.
    pub fn write_notes(&self, block: &mut Block, notes: &[RawNote]) {
        if let Some(zone) = self.zone_range(block) {
            let fits = delta::set_notes(&mut block.0[zone], notes);
            debug_assert!(fits || notes.is_empty(), "the room was there when they were taken");
        }
    }

    /// What a node is to be when recovery makes it of the block `base` that the NAT names, and not of one
    /// that the roll-forward log has: it keeps the block's footer, and an inode its seal, and gets `notes`.
    /// `None` where the block is not this node's.
    pub fn image_over(&self, base: &Block, block: &Block, notes: &[RawNote]) -> Option<Box<Block>> {
        let mut image = block.boxed_copy();
        self.make_image(&mut image, Some(base), notes).then_some(image)
    }

    /// Makes the same of a node's content in its place. Without a base: of a node that has no block yet.
    /// `false` where the base is not this node's.
    pub fn make_image(&self, image: &mut Block, base: Option<&Block>, notes: &[RawNote]) -> bool {
        if let Some(base) = base {
            let (is, was) = (footer(image), footer(base));
            if (is.nid.get(), is.ino.get()) != (was.nid.get(), was.ino.get()) {
                return false;
            }
            if is_inode(image) {
                image.view_mut::<RawInode>().keep_seal_of(base.view());
            }
            *footer_mut(image) = *was;
        }
        if is_inode(image) {
            self.write_notes(image, notes);
            image.view_mut::<RawInode>().seal(self.seed);
        }
        true
    }

    /// Checks an inode as it came from disk.
    pub fn validate(&self, ino: Ino, raw: &RawInode) -> Result<(), FormatError> {
        raw.validate(ino, &self.geo, self.layouts, self.checksum_seed())?;
        if self.compression {
            raw.validate_compression(ino)?;
        }
        match raw.i_size.get() {
            size if size > MAX_SIZE => Err(FormatError::corrupt(Structure::Inode, ino, "i_size", size)),
            _ => Ok(()),
        }
    }
}

fn is_inode(block: &Block) -> bool {
    let footer = footer(block);
    footer.nid.get() == footer.ino.get()
}
