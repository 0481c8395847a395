//! Blocks that are bases, in memory by their address.
//!
//! A block may be read by one thread while another overwrites it: what was read is then one or the other, and
//! not remembered. Invariant: what is remembered of an address is what its block holds.
//! Locks: `on_the_way` is a leaf, and not held during I/O.

use medfs_format::{Block, BlockAddr};
use medfs_store::{Cache, cache};
use medfs_sync::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks that are on their way.
#[derive(Default)]
struct OnTheWay {
    /// To the device.
    written: HashSet<BlockAddr>,
    /// From it, by the number of the reading, without those that were written meanwhile.
    read: HashMap<u64, Vec<BlockAddr>>,
    readings: u64,
    /// Blocks that were read ahead for one who needs them next. Among `blocks` those that are read once leave first:
    /// too early for these.
    ahead: HashMap<BlockAddr, Arc<Block>>,
}

pub(crate) struct BaseCache {
    blocks: Cache<BlockAddr, Arc<Block>>,
    capacity: usize,
    on_the_way: Mutex<OnTheWay>,
    /// Bases looked for, and those that were not in memory.
    pub(crate) wanted: AtomicU64,
    pub(crate) read: AtomicU64,
}

/// Blocks that are being read, to be remembered.
pub(crate) struct Reading<'a> {
    remembered: &'a BaseCache,
    number: u64,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.remembered.on_the_way.lock().read.remove(&self.number);
    }
}

impl Reading<'_> {
    /// Remembers what was read, unless it was being written or was written meanwhile.
    pub(crate) fn remember(&self, addr: BlockAddr, block: &Arc<Block>) {
        let on_the_way = self.remembered.on_the_way.lock();
        if on_the_way.read.get(&self.number).is_some_and(|addrs| addrs.contains(&addr)) {
            self.remembered.blocks.insert(addr, block.clone());
        }
    }

    /// The same of blocks that are needed next: until others are, or [`BaseCache::forget_ahead`].
    pub(crate) fn keep_ahead(&self, mut blocks: HashMap<BlockAddr, Arc<Block>>) {
        let on_the_way = &mut *self.remembered.on_the_way.lock();
        let still: HashSet<&BlockAddr> = on_the_way.read.get(&self.number).into_iter().flatten().collect();
        blocks.retain(|addr, _| still.contains(addr));
        on_the_way.ahead = blocks;
    }
}

impl BaseCache {
    pub(crate) fn new(capacity: usize) -> BaseCache {
        let capacity = capacity.max(64);
        BaseCache {
            blocks: cache(capacity),
            capacity,
            on_the_way: Mutex::default(),
            wanted: AtomicU64::new(0),
            read: AtomicU64::new(0),
        }
    }

    pub(crate) fn get(&self, addr: BlockAddr) -> Option<Arc<Block>> {
        self.blocks.get(&addr).or_else(|| self.on_the_way.lock().ahead.get(&addr).cloned())
    }

    /// How many blocks there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// What was read ahead was needed.
    pub(crate) fn forget_ahead(&self) {
        self.on_the_way.lock().ahead.clear();
    }

    /// How many of the bases looked for were not in memory: 0 for none, 1 for all.
    pub(crate) fn missed(&self) -> f64 {
        let (wanted, read) = (self.wanted.load(Ordering::Relaxed), self.read.load(Ordering::Relaxed));
        if wanted == 0 { 0.0 } else { read as f64 / wanted as f64 }
    }

    /// To be called before blocks are read that are to be remembered.
    pub(crate) fn begin_reading(&self, addrs: impl Iterator<Item = BlockAddr>) -> Reading<'_> {
        let mut on_the_way = self.on_the_way.lock();
        let addrs = addrs.filter(|addr| !on_the_way.written.contains(addr)).collect();
        on_the_way.readings += 1;
        let number = on_the_way.readings;
        on_the_way.read.insert(number, addrs);
        Reading { remembered: self, number }
    }

    /// Remembers what a block holds, as nobody can write it now.
    pub(crate) fn insert(&self, addr: BlockAddr, block: Arc<Block>) {
        self.blocks.insert(addr, block);
    }

    /// Before blocks are written: what they held counts no more.
    pub(crate) fn begin_writing(&self, addrs: impl Iterator<Item = BlockAddr>) {
        let mut on_the_way = self.on_the_way.lock();
        for addr in addrs {
            on_the_way.written.insert(addr);
            on_the_way.ahead.remove(&addr);
            self.blocks.remove(&addr);
        }
        let OnTheWay { written, read, .. } = &mut *on_the_way;
        read.values_mut().for_each(|addrs| addrs.retain(|addr| !written.contains(addr)));
    }

    /// After they were written. Those that failed to be are never remembered again.
    pub(crate) fn end_writing(&self, addrs: impl Iterator<Item = BlockAddr>) {
        let mut on_the_way = self.on_the_way.lock();
        for addr in addrs {
            on_the_way.written.remove(&addr);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(r: &BaseCache, addr: BlockAddr) -> Option<u8> {
        r.get(addr).map(|b| b.0[0])
    }

    #[test]
    fn what_is_read_while_it_is_written_is_not_remembered() {
        let [one, two] = [1, 2].map(|byte| Arc::new(Block([byte; 4096])));
        let r = BaseCache::new(64);
        let early = r.begin_reading([7, 8].into_iter());
        r.begin_writing([7].into_iter());
        let during = r.begin_reading([7, 8].into_iter());
        early.remember(7, &one);
        during.remember(7, &one);
        assert_eq!(held(&r, 7), None);
        during.remember(8, &two);
        assert_eq!(held(&r, 8), Some(2), "another block is not concerned");
        r.end_writing([7].into_iter());
        early.remember(7, &one);
        during.remember(7, &one);
        assert_eq!(held(&r, 7), None, "read before it was written, remembered after");
        r.begin_reading([7].into_iter()).remember(7, &two);
        assert_eq!(held(&r, 7), Some(2));
        r.begin_writing([7].into_iter());
        assert_eq!(held(&r, 7), None);
        let ahead = r.begin_reading([8, 9, 10].into_iter());
        r.begin_writing([9].into_iter());
        ahead.keep_ahead([9, 10, 11].map(|addr| (addr, one.clone())).into());
        assert_eq!([9, 10, 11].map(|addr| held(&r, addr)), [None, Some(1), None]);
        r.begin_writing([10].into_iter());
        assert_eq!(held(&r, 10), None);
        r.begin_reading([12].into_iter()).keep_ahead([(12, two.clone())].into());
        assert_eq!(held(&r, 12), Some(2));
        r.forget_ahead();
        assert_eq!(held(&r, 12), None);
        drop((early, during, ahead));
        assert!(r.on_the_way.lock().read.is_empty());
    }
}
