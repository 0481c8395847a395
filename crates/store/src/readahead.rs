//! Which reads of single blocks are steps of a walk through neighbours, so that more can be read at once.
//!
//! Files that were made together lie together: a program that lists a directory and looks at each file reads
//! their inode blocks one after another. Invariant: what is read ahead is only ever a hint; the user of such
//! a block checks what it is. Locks: one mutex, a leaf.

use medfs_format::BlockAddr;
use medfs_sync::Mutex;

/// Walks followed at the same time.
const WALKS: usize = 4;
/// Blocks that a walk may skip (read already, or of no interest to it) without being lost.
const MAX_SKIP: u32 = 32;
/// Blocks of the first read ahead; each further one doubles.
const FIRST: u32 = 4;
/// Most blocks read at once.
const MOST: u32 = 32;

#[derive(Debug, Clone, Copy, Default)]
struct Walk {
    /// First block behind what was read last.
    next: BlockAddr,
    /// Blocks that were read last.
    window: u32,
}

/// Follows a few walks through block addresses.
#[derive(Debug, Default)]
pub(crate) struct Readahead {
    /// The walk that went on last comes first.
    walks: Mutex<[Walk; WALKS]>,
}

impl Readahead {
    /// How many blocks to read from `addr` on, at least one and at most `room`, now that `addr` is needed.
    pub(crate) fn blocks(&self, addr: BlockAddr, room: u32) -> u32 {
        let mut walks = self.walks.lock();
        let known = walks.iter().position(|w| w.window > 0 && (w.next..w.next + MAX_SKIP).contains(&addr));
        let window = match known {
            Some(i) => (walks[i].window * 2).clamp(FIRST, MOST),
            None => 1,
        };
        let window = window.min(room).max(1);
        walks[..=known.unwrap_or(WALKS - 1)].rotate_right(1);
        walks[0] = Walk { next: addr.saturating_add(window), window };
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_grows_and_a_jump_does_not() {
        let ahead = Readahead::default();
        let mut at = 1000;
        let mut sizes = Vec::new();
        for jump in [50_000, 90_000, 70_000, 10_000, 60_000, 20_000] {
            let n = ahead.blocks(at, 512);
            sizes.push(n);
            at += n;
            assert_eq!(ahead.blocks(jump, 512), 1);
        }
        assert_eq!(sizes, [1, 4, 8, 16, 32, 32]);
        assert_eq!(ahead.blocks(at, 3), 3, "not beyond the segment");
        assert_eq!(ahead.blocks(at + 3 + MAX_SKIP, 512), 1, "too far away");
    }

    #[test]
    fn several_walks_at_once() {
        let ahead = Readahead::default();
        let mut at = [1000, 20_000, 30_000, 40_000];
        for _ in 0..8 {
            for a in &mut at {
                *a += ahead.blocks(*a, 512);
            }
        }
        assert!(at.iter().zip([1000, 20_000, 30_000, 40_000]).all(|(a, start)| a - start > 100), "{at:?}");
    }
}
