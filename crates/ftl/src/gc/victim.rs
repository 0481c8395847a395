//! Which block is collected next.

use super::Collector;
use crate::blocks::State;
use crate::nand::Nand;
use crate::store::Store;

/// Erases between two looks at the spread of wear.
const LEVEL_EVERY: u64 = 64;

impl Collector {
    /// Chooses what is collected next. `by_pages`: whatever frees most flash pages, whether or not the policy likes it.
    pub(super) fn choose<N: Nand>(&mut self, store: &mut Store<N>, by_pages: bool) -> bool {
        let block = match store.retiring.pop() {
            Some(block) => Some(block),
            None => match self.unlevel(store) {
                Some(block) => Some(block),
                None if by_pages => store.medium.blocks.emptiest(),
                None => store.medium.blocks.cheapest().map(|(block, _)| block),
            },
        };
        let Some(block) = block else { return false };
        if store.medium.blocks.get(block).state != State::Retiring {
            store.medium.set_state(block, State::Victim);
        }
        self.take_up(store, Some(block));
        true
    }

    /// A block is the victim from now on, or none.
    pub(super) fn take_up<N>(&mut self, store: &mut Store<N>, block: Option<u32>) {
        self.victim = block.map(|block| (block, 0));
        store.collecting = block.is_some();
    }

    /// A block of cold data whose wear is far below the others': its content moves, so that it is written again.
    fn unlevel<N: Nand>(&mut self, store: &mut Store<N>) -> Option<u32> {
        let (medium, spread) = (&mut store.medium, store.config.level_spread);
        if spread == 0 || medium.counters.erases - self.levelled_at < LEVEL_EVERY {
            return None;
        }
        self.levelled_at = medium.counters.erases;
        let (erases, block) = medium.blocks.least_worn_full()?;
        let far = medium.blocks.most_erases.saturating_sub(erases) > spread;
        medium.counters.levelled += u64::from(far);
        far.then_some(block)
    }
}
