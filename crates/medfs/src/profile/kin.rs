//! Kin: what became of earlier files of the same directory and name pattern, for files of which nothing is known yet.
//!
//! Purpose: a file is judged at its first write, when nothing was counted of it.
//! Invariants: a fixed number of patterns is remembered; a newer one takes the place of another with the same
//! slot. Nothing is on disk. Locks: none of its own.

use medfs_format::ars::Class;
use medfs_format::node::{NAME_LEN, RawInode};
use medfs_format::{Ino, crc};

/// Patterns remembered: a power of two.
const SLOTS: usize = 1024;
/// Files of a pattern that count: older ones weigh half as much from then on.
const MOST: u8 = 8;

/// A directory and a pattern of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KinKey(u32);

impl KinKey {
    /// The one that an inode is of: numbers in its name are all alike.
    pub(crate) fn of(r: &RawInode) -> KinKey {
        let name = &r.i_name[..(r.i_namelen.get() as usize).min(NAME_LEN)];
        KinKey::new(r.i_pino.get(), name)
    }

    fn new(dir: Ino, name: &[u8]) -> KinKey {
        let mut pattern = [0; NAME_LEN];
        let mut len = 0;
        for &byte in name {
            let byte = if byte.is_ascii_digit() { b'0' } else { byte };
            if byte != b'0' || len == 0 || pattern[len - 1] != b'0' {
                pattern[len] = byte;
                len += 1;
            }
        }
        KinKey(crc::chain(dir, &pattern[..len]))
    }

    fn slot(self) -> usize {
        self.0 as usize % SLOTS
    }
}

/// Files of a pattern, by what became of them.
#[derive(Debug, Clone, Copy)]
struct Became {
    key: KinKey,
    log: u8,
    reserve: u8,
}

/// What became of files.
#[derive(Debug)]
pub(crate) struct Kin(Box<[Option<Became>]>);

impl Default for Kin {
    fn default() -> Kin {
        Kin(vec![None; SLOTS].into())
    }
}

impl Kin {
    /// Notes what a file of a pattern became.
    pub(crate) fn note(&mut self, key: KinKey, class: Class) {
        let slot = &mut self.0[key.slot()];
        let mut became =
            slot.filter(|became| became.key == key).unwrap_or(Became { key, log: 0, reserve: 0 });
        if became.log.max(became.reserve) >= MOST {
            (became.log, became.reserve) = (became.log / 2, became.reserve / 2);
        }
        match class {
            Class::Log => became.log += 1,
            Class::Reserve => became.reserve += 1,
        }
        *slot = Some(became);
    }

    /// What a new file of a pattern will become: what most before it did, and nothing special where that is not known.
    pub(crate) fn expected(&self, key: KinKey) -> Class {
        match self.0[key.slot()] {
            Some(became) if became.key == key && became.reserve > became.log => Class::Reserve,
            _ => Class::Log,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_alike_and_directories_are_not() {
        let key = |dir, name: &str| KinKey::new(dir, name.as_bytes());
        assert_eq!(key(3, "img_0034.png"), key(3, "img_7.png"));
        assert_eq!(key(3, "1-2"), key(3, "11-22"));
        assert_ne!(key(3, "img_1.png"), key(4, "img_1.png"));
        assert_ne!(key(3, "a.db"), key(3, "a.db-wal"));
        assert_ne!(key(3, "img"), key(3, "img1"));
        let long = "9a".repeat(200);
        assert_eq!(key(3, &long[..NAME_LEN]), key(3, &long[..NAME_LEN]));
    }

    #[test]
    fn most_of_the_last_files_say_what_the_next_becomes() {
        let (mut kin, key) = (Kin::default(), KinKey::new(3, b"a"));
        assert_eq!(kin.expected(key), Class::Log);
        kin.note(key, Class::Reserve);
        assert_eq!(kin.expected(key), Class::Reserve);
        assert_eq!(kin.expected(KinKey::new(3, b"b")), Class::Log);
        kin.note(key, Class::Log);
        assert_eq!(kin.expected(key), Class::Log, "as many of one as of the other");
        (0..100).for_each(|_| kin.note(key, Class::Reserve));
        assert_eq!(kin.expected(key), Class::Reserve);
        (0..2 * MOST).for_each(|_| kin.note(key, Class::Log));
        assert_eq!(kin.expected(key), Class::Log, "long ago counts less");
    }
}
