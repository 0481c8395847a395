//! What the volume has promised: valid blocks (reserved ones included), nodes and inodes against their limits.
//!
//! A block is counted from the moment it is reserved, before it has an address, so that acknowledged data never
//! meets a full volume. Lock: one leaf mutex.

use crate::error::{Error, Result};
use medfs_sync::Mutex;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) user_blocks: u64,
    pub(crate) valid_blocks: u64,
    pub(crate) valid_nodes: u32,
    pub(crate) valid_inodes: u32,
    pub(crate) max_nodes: u32,
    /// Blocks written since the last checkpoint that roll-forward may have to account for.
    pub(crate) since_checkpoint: u64,
}

pub(crate) struct Space(Mutex<Counts>);

impl Space {
    pub(crate) fn new(counts: Counts) -> Space {
        Space(Mutex::new(counts))
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.0.lock()
    }

    /// Reserves data blocks.
    pub(crate) fn reserve(&self, blocks: u64) -> Result<()> {
        let mut c = self.0.lock();
        if c.valid_blocks + blocks > c.user_blocks {
            return Err(Error::NoSpace);
        }
        c.valid_blocks += blocks;
        Ok(())
    }

    /// Reserves a node block.
    pub(crate) fn reserve_node(&self, is_inode: bool) -> Result<()> {
        let mut c = self.0.lock();
        if c.valid_blocks + 1 > c.user_blocks || c.valid_nodes >= c.max_nodes {
            return Err(Error::NoSpace);
        }
        c.valid_blocks += 1;
        c.valid_nodes += 1;
        c.valid_inodes += u32::from(is_inode);
        Ok(())
    }

    /// Gives data blocks back.
    pub(crate) fn release(&self, blocks: u64) {
        let mut c = self.0.lock();
        c.valid_blocks = c.valid_blocks.saturating_sub(blocks);
    }

    /// Gives a node block back.
    pub(crate) fn release_node(&self, is_inode: bool) {
        let mut c = self.0.lock();
        c.valid_blocks = c.valid_blocks.saturating_sub(1);
        c.valid_nodes = c.valid_nodes.saturating_sub(1);
        c.valid_inodes = c.valid_inodes.saturating_sub(u32::from(is_inode));
    }

    /// Notes blocks written to the logs since the last checkpoint.
    pub(crate) fn wrote(&self, blocks: u64) {
        self.0.lock().since_checkpoint += blocks;
    }

    /// Whether roll-forward would still find room for what was written since the last checkpoint.
    pub(crate) fn room_for_roll_forward(&self) -> bool {
        self.room_for_rewriting(0)
    }

    /// The same after so many blocks were written again elsewhere.
    pub(crate) fn room_for_rewriting(&self, blocks: u64) -> bool {
        let c = self.0.lock();
        c.valid_blocks + c.since_checkpoint + blocks < c.user_blocks
    }

    pub(crate) fn committed(&self) {
        self.0.lock().since_checkpoint = 0;
    }
}
