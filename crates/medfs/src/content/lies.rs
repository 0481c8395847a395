//! How pages of a file lie that has reserved sections, or gets some: in a piece with their neighbours, as at home, in a
//! section without others' blocks.
//!
//! Locks: `segs`, and leaves of the store, held for a look.

use crate::map::node_tree::Slot;
use medfs_format::summary::Log;
use medfs_format::{BLOCKS_PER_SEG, BlockAddr, Ino};
use medfs_store::Store;

/// Nodes that may own the blocks of a section which is adopted: a window's addresses are in so many, and one more.
const NODES_OF_WINDOW: usize = 4;

/// How the own block of a page lies.
#[derive(Clone, Copy)]
pub(super) struct Lies {
    index: u64,
    own: BlockAddr,
    /// Beside that of the page before or behind.
    pub(super) in_piece: bool,
}

impl Lies {
    pub(super) fn of(index: u64, own: BlockAddr, slot: &Slot) -> Lies {
        let addr = |index: u64| slot.step_to(index).map(|slot| slot.addr());
        let before = index.checked_sub(1).and_then(addr);
        let in_piece = before == own.checked_sub(1) || addr(index + 1) == Some(own + 1);
        Lies { index, own, in_piece }
    }

    /// Whether it lies in its section as a page at home does.
    pub(super) fn as_at_home(self, blocks: u64, store: &Store) -> bool {
        let from_start = self.own.checked_sub(store.geo.seg_start(0));
        from_start.is_some_and(|at| u64::from(at) % blocks == self.index % blocks)
    }
}

/// The section in which the other pages of a window are at home, most of those that are there, where it holds
/// nothing else: after a remount it is the window's again. A log fills sections with pages of one file too.
pub(super) fn adopted(key: (Ino, u64), slot: &Slot, store: &Store) -> Option<u32> {
    let blocks = u64::from(store.geo.blocks_per_section());
    let (ino, window) = key;
    let main = store.geo.seg_start(0);
    // Section of each page, and whether it is at home there.
    let lies = |index: u64| {
        let addr = slot.step_to(index)?.addr();
        // Where the slot's node was divided anew since, a word may be no address.
        let from_start = u64::from(store.geo.in_main(addr).then(|| addr - main)?);
        Some(((from_start / blocks) as u32, from_start % blocks == index % blocks))
    };
    let pages = || (window * blocks..(window + 1) * blocks).filter_map(lies);
    let section = pages().find_map(|(section, at_home)| at_home.then_some(section))?;
    let at_home = pages().filter(|&page| page == (section, true)).count();
    if 2 * at_home < pages().filter(|&(other, _)| other == section).count()
        || !holds_only(store, section, ino)
    {
        return None;
    }
    adopt(store, section, ino).then_some(section)
}

/// Reserves a section in which a file has blocks.
pub(super) fn adopt(store: &Store, section: u32, ino: Ino) -> bool {
    store.segs.lock().reserving(&store.io).adopt(section, ino)
}

/// Whether a section holds blocks of a file, and no others. Not where this cannot be read.
pub(super) fn holds_only(store: &Store, section: u32, ino: Ino) -> bool {
    let mut nids = Vec::new();
    {
        let mut segs = store.segs.lock();
        for segno in store.geo.segments_of(section) {
            if segs.valid_blocks(&store.io, segno) == 0 {
                continue;
            }
            let (Ok(summary), Ok(entry)) = (segs.summary(&store.io, segno), segs.entry(&store.io, segno))
            else {
                return false;
            };
            if entry.seg_type >= Log::HotNode as u8 {
                return false;
            }
            let valid = (0..BLOCKS_PER_SEG as usize).filter(|&o| medfs_format::sit::test_bit(&entry.cur, o));
            for nid in valid.map(|o| summary.entries[o].nid.get()) {
                if !nids.contains(&nid) {
                    nids.push(nid);
                }
                if nids.len() > NODES_OF_WINDOW * store.geo.segs_per_sec as usize {
                    return false;
                }
            }
        }
    }
    !nids.is_empty()
        && nids
            .iter()
            .all(|&nid| store.nodes.get(&store.io, &store.nat, nid).is_ok_and(|node| node.ino == ino))
}
