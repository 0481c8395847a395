//! Operations on files whose pages are copied within them.

use super::Generator;
use crate::ops::{DATABASE, LOG, Op, Target, place};
use medfs::FileKind;
use rand::Rng;
use rand::seq::IndexedRandom;

impl Generator {
    /// Copies of pages within a file, or what they are made from is overwritten with what nothing looks like. Most
    /// pages move by one, so that each is made from the old block of the next.
    pub(super) fn copying_op(&mut self) -> Op {
        const PAGES: u16 = 24;
        let name = *[5, 5, DATABASE, LOG].choose(&mut self.random).expect("not empty");
        let at = place(0, name);
        let file = Target::Path(at);
        let (to, seed): (u16, u8) = (self.random.random_range(0..PAGES), self.random.random());
        match self.random.random_range(0..20) {
            0..=8 => {
                let from = if self.random.random() { to + 1 } else { self.random.random_range(0..PAGES) };
                let (count, len) = (self.random.random_range(1..6), self.random.random_range(1..200));
                Op::CopyChanged { file, from, to, count, len, seed }
            }
            9..=14 => Op::Fsync { file, datasync: self.random.random() },
            15..=16 => Op::Write { file, offset: 0, len: u32::from(PAGES) * 4096, seed: seed | 1 },
            17 => Op::Create { at, kind: FileKind::Regular, perm: 0o644 },
            _ => Op::Write { file, offset: u64::from(to) * 4096, len: 8192, seed: seed | 1 },
        }
    }
}
