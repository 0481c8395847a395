//! What the walk through the directories has not come to: it is brought under numbers, or counted.

use crate::place::Place;
use crate::seen::Seen;
use crate::sink::Sink;
use crate::walk::Walk;
use medfs::{FileKind, Ino};
use std::io;

/// Longest name.
const NAME_MAX: usize = 255;
/// Where what nothing names goes, below the top.
const BY_INODE: &str = "by-inode";

impl<S: Sink> Walk<'_, S> {
    /// Of a walk from the root: counts what the volume has and no directory has led to, and tells of which files names are missing. What is being removed is
    /// not counted.
    pub fn count_unmet(&mut self, top: &Place) {
        let mut next = 0;
        while let Some(ino) = self.next_unseen(next, top) {
            next = ino + 1;
            let is_removed = self.volume.getattr(ino).is_ok_and(|attr| attr.nlink == 0);
            self.outcome.unmet += u64::from(!is_removed);
        }
        self.tell_names_unmet();
    }

    /// Brings what no directory names, under numbers in a directory below the top.
    pub fn unnamed(&mut self, top: &Place) -> io::Result<()> {
        let home = self.home(top);
        let mut is_made = false;
        // First the directories that no other one names, then those in circles, then files.
        let named = self.named_by_others();
        for round in 0..3 {
            let mut next = 0;
            while let Some(ino) = self.next_unseen(next, &home) {
                next = ino + 1;
                let is_dir = self.volume.getattr(ino).is_ok_and(|attr| attr.kind == FileKind::Directory);
                if round < 2 && (!is_dir || (round == 0 && named.contains(ino))) {
                    continue;
                }
                if !std::mem::replace(&mut is_made, true) {
                    self.sink.enter(&home)?;
                }
                let before = self.outcome.files + self.outcome.directories;
                self.below(ino, home.below(&self.number_and_name(ino)), None)?;
                self.outcome.unnamed += u64::from(self.outcome.files + self.outcome.directories > before);
            }
        }
        Ok(())
    }

    /// A name below the top that nothing in the root directory has.
    fn home(&self, top: &Place) -> Place {
        let mut taken = Vec::new();
        // What of it cannot be read cannot be brought either.
        let _ = self.past.readdir(self.volume.root(), &mut |entry| {
            let name = entry.ok().map(|entry| entry.name);
            taken.extend(name.filter(|name| name.starts_with(BY_INODE.as_bytes())));
            true
        });
        let mut name = BY_INODE.to_owned();
        let mut tried = 0;
        while taken.iter().any(|taken| taken == name.as_bytes()) {
            tried += 1;
            name = format!("{BY_INODE}.{tried}");
        }
        top.below(name.as_bytes())
    }

    /// The directories that were not brought and that an entry of another one of them names.
    fn named_by_others(&mut self) -> Seen {
        let mut named = Seen::default();
        let mut next = 0;
        while let Ok(Some(ino)) = self.past.next_inode(next) {
            next = ino + 1;
            let is_dir = self.volume.getattr(ino).is_ok_and(|attr| attr.kind == FileKind::Directory);
            if self.seen.contains(ino) || !is_dir {
                continue;
            }
            let _ = self.past.readdir(ino, &mut |entry| {
                if let Ok(entry) = entry
                    && entry.ino != ino
                    && entry.name != b"."
                    && entry.name != b".."
                    && self.volume.geometry().is_nid(entry.ino)
                {
                    named.insert(entry.ino);
                }
                true
            });
        }
        named
    }

    /// The first inode from a number on that was not brought.
    fn next_unseen(&mut self, from: Ino, home: &Place) -> Option<Ino> {
        let mut from = from;
        loop {
            match self.past.next_inode(from) {
                Ok(Some(ino)) if self.seen.contains(ino) || self.is_own(ino) => from = ino + 1,
                Ok(found) => return found,
                Err(error) => {
                    self.fail(home, None, format!("inodes cannot be looked for any further: {error}"));
                    return None;
                }
            }
        }
    }

    /// Whether an inode is the volume's, and no user's.
    fn is_own(&self, ino: Ino) -> bool {
        self.volume.superblock().qf_ino.iter().any(|quota| quota.get() == ino) || self.past.is_hidden(ino)
    }

    /// `INO.NAME`, with the last name that the inode was given; `INO` where it says none.
    fn number_and_name(&self, ino: Ino) -> Vec<u8> {
        let mut text = ino.to_string().into_bytes();
        let (_, name) = self.past.own_name(ino).unwrap_or_default();
        if !name.is_empty() {
            text.push(b'.');
            text.extend_from_slice(&name);
            text.truncate(NAME_MAX);
        }
        text
    }
}
