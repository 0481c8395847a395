//! Collected blocks: they are erased once everything that replaced their content is on flash.

use super::Store;
use crate::blocks::State;
use crate::error::Result;
use crate::nand::Nand;

impl<N: Nand> Store<N> {
    /// A block holds nothing valid any more.
    pub(crate) fn drain(&mut self, block: u32) {
        self.medium.set_state(block, State::Drained);
        self.drained.push(block);
    }

    /// Blocks that are free, or will be once they are erased.
    pub(crate) fn free_or_drained(&self) -> usize {
        self.medium.blocks.free_count() as usize + self.drained.len()
    }

    /// Since when the oldest change waits that is not on flash.
    fn oldest_pending(&self) -> u64 {
        self.streams.oldest().min(self.trims.born())
    }

    /// Erases drained blocks whose content is replaced on flash, so many at most; `force` sees to it that all
    /// are. Returns whether there were any.
    pub(crate) fn release_drained(&mut self, force: bool, most: u32) -> Result<bool> {
        if self.drained.is_empty() || most == 0 {
            return Ok(false);
        }
        if force {
            self.write_trims()?;
            self.settle_all()?;
        }
        let pending = self.oldest_pending();
        let (mut at, mut released) = (0, 0);
        while at < self.drained.len() && released < most {
            let block = self.drained[at];
            if self.medium.blocks.get(block).touched >= pending {
                at += 1;
                continue;
            }
            self.drained.swap_remove(at);
            self.medium.blocks.get_mut(block).clean = false;
            self.medium.set_state(block, State::Free);
            self.medium.erase(block)?;
            released += 1;
        }
        Ok(released > 0)
    }
}
