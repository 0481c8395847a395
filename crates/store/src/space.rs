//! What the volume has promised: valid blocks (reserved ones included), nodes and inodes against their limits.
//!
//! A block is counted from the moment it is reserved, before it has an address, so that acknowledged data never
//! meets a full volume. Lock: one leaf mutex.

use crate::error::{Error, Result};
use medfs_format::Geometry;
use medfs_format::checkpoint::RawCheckpoint;
use medfs_sync::Mutex;

/// Promised blocks, and the limits.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// Blocks that users can have.
    pub user_blocks: u64,
    /// Blocks in use or reserved, nodes included.
    pub valid_blocks: u64,
    /// Nodes in use.
    pub valid_nodes: u32,
    /// Inodes in use.
    pub valid_inodes: u32,
    /// Nodes that the NAT has numbers for.
    pub max_nodes: u32,
    /// Blocks reserved for pages of open atomic writes, beside those of the pages that they will replace.
    pub(crate) staged: u64,
    /// Blocks written since the last checkpoint.
    pub since_checkpoint: u64,
    /// What was valid at the last checkpoint, and what was reserved since: roll-forward finds no more valid than both
    /// together, whatever was freed meanwhile.
    pub(crate) at_checkpoint: u64,
    pub(crate) reserved_since: u64,
    /// Nodes written since that roll-forward reads, and the checkpoint after it writes again.
    pub chain_nodes: u64,
    /// Those of them that may make roll-forward enter a name.
    pub(crate) chain_names: u64,
    /// Until roll-forward has ended nothing is refused: what an fsync acknowledged fits.
    pub(crate) recovering: bool,
}

/// Blocks that entering a name may take: one of the directory, and nodes that lead to it.
const BLOCKS_OF_A_NAME: u64 = 4;

impl Counts {
    /// What the pack of a checkpoint counts; until roll-forward has ended nothing is refused.
    pub(crate) fn at_checkpoint(header: &RawCheckpoint, geo: &Geometry) -> Counts {
        Counts {
            user_blocks: header.user_block_count.get(),
            valid_blocks: header.valid_block_count.get(),
            valid_nodes: header.valid_node_count.get(),
            valid_inodes: header.valid_inode_count.get(),
            max_nodes: geo.max_nid().saturating_sub(geo.root_ino),
            staged: 0,
            since_checkpoint: 0,
            at_checkpoint: header.valid_block_count.get(),
            reserved_since: 0,
            chain_nodes: 0,
            chain_names: 0,
            recovering: true,
        }
    }

    /// Blocks that can be reserved.
    pub fn free(&self) -> u64 {
        self.user_blocks.saturating_sub(self.valid_blocks + self.staged)
    }

    fn take(&mut self, blocks: u64) -> Result<()> {
        if blocks > self.free() && !self.recovering {
            return Err(Error::NoSpace);
        }
        self.valid_blocks += blocks;
        self.reserved_since += blocks;
        Ok(())
    }

    fn take_node(&mut self, is_inode: bool) -> Result<()> {
        if self.valid_nodes >= self.max_nodes {
            return Err(Error::NoSpace);
        }
        self.take(1)?;
        self.valid_nodes += 1;
        self.valid_inodes += u32::from(is_inode);
        Ok(())
    }
}

/// The counts, under their lock.
pub struct Space(Mutex<Counts>);

impl Space {
    pub(crate) fn new(counts: Counts) -> Space {
        Space(Mutex::new(counts))
    }

    /// The counts now.
    pub fn counts(&self) -> Counts {
        *self.0.lock()
    }

    /// Percent of the blocks users can have that are in use or reserved.
    pub fn utilization(&self) -> u32 {
        let c = self.counts();
        (c.valid_blocks * 100 / c.user_blocks.max(1)).try_into().unwrap_or(u32::MAX)
    }

    /// Reserves data blocks.
    pub fn reserve(&self, blocks: u64) -> Result<()> {
        self.0.lock().take(blocks)
    }

    /// Reserves a node block.
    pub fn reserve_node(&self, is_inode: bool) -> Result<()> {
        self.0.lock().take_node(is_inode)
    }

    /// Reserves a block for a page of an open atomic write, which is none of the volume's valid blocks yet.
    pub fn stage(&self) -> Result<()> {
        let mut c = self.0.lock();
        if c.free() == 0 {
            return Err(Error::NoSpace);
        }
        c.staged += 1;
        Ok(())
    }

    /// Gives such blocks back.
    pub fn unstage(&self, blocks: u64) {
        let mut c = self.0.lock();
        c.staged = c.staged.saturating_sub(blocks);
    }

    /// Makes one of them a valid block of the volume, which is sure to have room.
    pub fn take_staged(&self) {
        let mut c = self.0.lock();
        c.staged = c.staged.saturating_sub(1);
        c.valid_blocks += 1;
        c.reserved_since += 1;
    }

    /// Takes that back.
    pub fn stage_again(&self) {
        let mut c = self.0.lock();
        c.staged += 1;
        c.valid_blocks = c.valid_blocks.saturating_sub(1);
    }

    /// Whether so many blocks could be reserved now.
    pub fn has(&self, blocks: u64) -> bool {
        let c = self.0.lock();
        c.recovering || blocks <= c.free()
    }

    /// Gives data blocks back.
    pub fn release(&self, blocks: u64) {
        let mut c = self.0.lock();
        c.valid_blocks = c.valid_blocks.saturating_sub(blocks);
    }

    /// Gives a node block back.
    pub fn release_node(&self, is_inode: bool) {
        let mut c = self.0.lock();
        c.valid_blocks = c.valid_blocks.saturating_sub(1);
        c.valid_nodes = c.valid_nodes.saturating_sub(1);
        c.valid_inodes = c.valid_inodes.saturating_sub(u32::from(is_inode));
    }

    /// Notes blocks written to the logs since the last checkpoint.
    pub fn wrote(&self, blocks: u64) {
        self.0.lock().since_checkpoint += blocks;
    }

    /// Notes nodes of the chain that roll-forward follows, and how many of them may enter a name.
    pub fn wrote_in_chain(&self, nodes: usize, names: usize) {
        let mut c = self.0.lock();
        c.chain_nodes += nodes as u64;
        c.chain_names += names as u64;
    }

    /// Whether roll-forward would find room for whatever was reserved since the last checkpoint, and so many
    /// further names.
    pub fn room_for_roll_forward(&self, names: u64) -> bool {
        let c = self.0.lock();
        let names = BLOCKS_OF_A_NAME * (c.chain_names + names);
        c.at_checkpoint + c.reserved_since + names <= c.user_blocks
    }

    /// Roll-forward has ended. Tells whether what is valid now is within the bounds of the volume.
    pub fn recovered(&self) -> bool {
        let mut c = self.0.lock();
        c.recovering = false;
        c.valid_blocks <= c.user_blocks
    }

    /// Whether so many blocks can be written again elsewhere beside what was written since the last checkpoint.
    pub fn room_for_rewriting(&self, blocks: u64) -> bool {
        let c = self.0.lock();
        c.valid_blocks + c.since_checkpoint + blocks < c.user_blocks
    }

    pub(crate) fn committed(&self) {
        let mut c = self.0.lock();
        (c.since_checkpoint, c.reserved_since, c.chain_nodes, c.chain_names) = (0, 0, 0, 0);
        c.at_checkpoint = c.valid_blocks;
    }
}
