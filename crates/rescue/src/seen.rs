//! A set of inode numbers, a bit each.

use medfs_format::Ino;

#[derive(Debug, Default)]
pub(crate) struct Seen(Vec<u64>);

impl Seen {
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.0.get(ino as usize / 64).is_some_and(|word| word & (1 << (ino % 64)) != 0)
    }

    /// Adds a number that the volume can have; `false` where it was there.
    pub(crate) fn insert(&mut self, ino: Ino) -> bool {
        let at = ino as usize / 64;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        let new = !self.contains(ino);
        self.0[at] |= 1 << (ino % 64);
        new
    }
}
