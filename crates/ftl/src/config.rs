//! How a medium is used.

use crate::PAGE;
use crate::nand::Geometry;
use crate::policy::Policy;
use crate::{region, streams};

/// Parameters of the layer on its medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Logical pages the host sees.
    pub logical_pages: u32,
    /// Flash pages programmed between two checkpoints of the map, which bounds what recovery reads; 0: only when asked.
    pub checkpoint_every: u64,
    /// Largest difference of erase counts before a block of cold data is moved; 0: never.
    pub level_spread: u32,
    /// The write buffer survives power loss, so a flush need not program it.
    pub capacitor: bool,
    /// Free blocks beyond what a write needs that idle collection provides.
    pub idle_blocks: u32,
}

impl Config {
    /// Blocks a medium of this geometry needs for the map.
    pub fn map_blocks(&self, g: &Geometry) -> u32 {
        region::blocks_for(g, self.logical_pages)
    }

    /// Blocks for data that a medium needs at least for its logical pages, with this policy.
    pub fn data_blocks_min(&self, g: &Geometry, policy: &dyn Policy) -> u32 {
        let bytes = u64::from(self.logical_pages) * PAGE as u64;
        bytes.div_ceil(u64::from(g.block_bytes())) as u32 + streams::reserve(g, policy) + 4
    }
}
