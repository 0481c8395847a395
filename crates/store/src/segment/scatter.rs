//! Logs that scatter what they write, to age a volume: the kernel's `mode=fragment:segment` and `mode=fragment:block`.
//!
//! Purpose: after months of use free segments lie apart and files in pieces. A scattered volume is so from
//! the beginning. Every log is scattered, those of nodes too, as in the kernel.
//! Invariants:
//! - What is left out is free as any hole: a log that fills holes takes it, once the segment is left.
//! - Where free sections are few nothing is left out, so a scattered volume takes as much as another.
//! - The same operations on the same volume are scattered alike: the generator begins with the version of the
//!   checkpoint at mount.
//!
//! Locks: those of [`super::Segments`]. Kernel counterpart: `f2fs_need_rand_seg`, `__refresh_next_blkoff` in
//! `segment.c`.

use medfs_format::SegNo;
use medfs_format::summary::{LOG_COUNT, Log};

/// Whether logs scatter what they write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Scatter {
    /// They do not.
    #[default]
    No,
    /// The next segment is any free one.
    Segments,
    /// That, and in a free segment runs of 1 to `chunk` blocks take turns with holes of 1 to `hole` blocks.
    Blocks {
        /// Most blocks of a run.
        chunk: u16,
        /// Most blocks of a hole.
        hole: u16,
    },
}

/// What scattering remembers.
pub(super) struct Scattering {
    pub(super) how: Scatter,
    /// State of the generator (SplitMix64).
    random: u64,
    /// Blocks that are left of the present run of each log.
    left: [u16; LOG_COUNT],
}

impl Scattering {
    pub(super) fn new(how: Scatter, seed: u64) -> Scattering {
        Scattering { how, random: seed, left: [0; LOG_COUNT] }
    }

    /// Whether what a log will write cannot be foretold.
    pub(super) fn is_on(&self) -> bool {
        self.how != Scatter::No
    }

    /// A number below `end`.
    fn below(&mut self, end: u32) -> u32 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % u64::from(end.max(1))) as u32
    }

    /// Blocks that a log leaves out behind the one that it hands out.
    pub(super) fn hole(&mut self, log: Log) -> usize {
        let Scatter::Blocks { chunk, hole } = self.how else { return 0 };
        let left = self.left[log as usize];
        if left > 1 {
            self.left[log as usize] = left - 1;
            return 0;
        }
        self.left[log as usize] = self.below(chunk.into()) as u16 + 1;
        self.below(hole.into()) as usize + 1
    }

    /// Where the search for the next of so many begins, if it is scattered.
    pub(super) fn start(&mut self, count: u32) -> Option<u32> {
        self.is_on().then(|| self.below(count))
    }

    /// The segments of a section behind one, in the order in which a log that is there looks for its next.
    pub(super) fn rest_of_section(&mut self, current: SegNo, per_section: u32) -> Vec<SegNo> {
        let mut rest: Vec<SegNo> = (current + 1..(current / per_section + 1) * per_section).collect();
        if let Some(start) = self.start(rest.len() as u32) {
            rest.rotate_left(start as usize);
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_holes_have_the_lengths_asked_for() {
        let mut scattering = Scattering::new(Scatter::Blocks { chunk: 4, hole: 3 }, 5);
        let (mut run, mut runs, mut holes) = (0, [0; 5], [0; 4]);
        scattering.hole(Log::WarmData);
        for _ in 0..10_000 {
            run += 1;
            let hole = scattering.hole(Log::WarmData);
            if hole > 0 {
                runs[run] += 1;
                holes[hole] += 1;
                run = 0;
            }
        }
        assert_eq!((runs[0], holes[0]), (0, 0));
        assert!(runs[1..].iter().chain(&holes[1..]).all(|&n| n > 500), "{runs:?} {holes:?}");
    }

    #[test]
    fn nothing_is_left_out_unless_blocks_are_scattered() {
        for how in [Scatter::No, Scatter::Segments] {
            let mut scattering = Scattering::new(how, 5);
            assert!((0..100).all(|_| scattering.hole(Log::HotNode) == 0));
            assert_eq!(scattering.start(100).is_some(), how != Scatter::No);
        }
    }
}
