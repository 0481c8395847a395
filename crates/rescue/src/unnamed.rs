//! What the walk through the directories has not come to: it is brought where its inodes say that it was, or
//! under numbers, or counted.

use crate::homes::Home;
use crate::outcome::{Failure, Lost};
use crate::place::{MOST_LEVELS, Place};
use crate::seen::Seen;
use crate::sink::Sink;
use crate::walk::Walk;
use medfs::{FileKind, Files, Ino};
use std::io;

/// Longest name.
const NAME_MAX: usize = 255;
/// Where what nothing names goes, below the top.
const BY_INODE: &str = "by-inode";

impl<S: Sink> Walk<'_, S> {
    /// Of a walk from the root: counts what the volume has and no directory has led to, and tells of which
    /// files names are missing. What is being removed is not counted.
    pub fn count_unmet(&mut self, top: &Place) {
        let mut next = 0;
        while let Some(ino) = self.next_unseen(next, top) {
            next = ino + 1;
            match self.volume.getattr(ino) {
                Ok(attr) => self.outcome.unmet += u64::from(attr.nlink > 0),
                Err(_) => self.outcome.unmet_unread += 1,
            }
        }
        self.tell_names_unmet();
        // Where the table cannot be read, that was told above.
        self.tell_missing(top, self.past.inodes_missing().unwrap_or(0));
    }

    /// Of a walk from the root: tells of which files of several names some were not met. Such a file is incomplete.
    fn tell_names_unmet(&mut self) {
        let unmet = self.links.iter().filter(|(_, file)| (1..file.names).contains(&file.met));
        let mut unmet: Vec<_> = unmet
            .map(|(&ino, file)| (ino, file.place.path(), file.is_flawed, file.names, file.met))
            .collect();
        unmet.sort_unstable();
        for (ino, path, is_flawed, names, met) in unmet {
            let were = if met == 1 { "was" } else { "were" };
            let reason = format!("it has {names} names, of which {met} {were} found");
            self.outcome.torn += 1;
            self.outcome.flawed += u64::from(!is_flawed);
            self.outcome.fail(Failure { path, ino: Some(ino), reason, lost: Lost::default() });
        }
    }

    /// Of a directory that is not entered: takes what is below it as met, as that has its names, and tells how much
    /// it is.
    pub(crate) fn leave_below(&mut self, dir: Ino, at: &Place) {
        let (past, mut left, mut dirs) = (self.past, 0, vec![dir]);
        while let Some(dir) = dirs.pop() {
            let mut found = Vec::new();
            let listed = past.readdir(dir, &mut |entry| {
                found.extend(entry.ok().filter(|entry| entry.name != b"." && entry.name != b".."));
                true
            });
            self.outcome.torn += u64::from(listed.is_err());
            for entry in found.into_iter().filter(|entry| self.volume.geometry().is_nid(entry.ino)) {
                if self.seen.insert(entry.ino) {
                    left += 1;
                    dirs.extend((entry.kind == Some(FileKind::Directory)).then_some(entry.ino));
                }
            }
        }
        if left > 0 {
            let s = if left == 1 { "file or directory" } else { "files and directories" };
            self.fail(at, Some(dir), format!("{left} {s} below it were not copied"));
        }
    }

    /// Of a walk from the root that ended before all was brought: counts what it has not come to.
    pub fn count_untried(&mut self) {
        let mut untried = 0;
        // What an inode says of itself is not read: a device may be dying.
        let own: Vec<Ino> = self.past.hidden_by_name().chain(self.quota_files()).collect();
        for ino in self.past.inodes(0).map_while(Result::ok) {
            untried += u64::from(!self.seen.contains(ino) && !own.contains(&ino));
        }
        self.outcome.untried = Some(untried);
    }

    /// Of a walk of a part: tells how many inodes were lost with the journals of the checkpoint.
    pub fn tell_lost_with_journals(&mut self) {
        // Where the table cannot be read, that is told of what it leads to.
        let missing = self.past.inodes_lost_with_journals().unwrap_or(0);
        self.tell_missing(&Place::top(None, b"/"), missing);
    }

    fn tell_missing(&mut self, top: &Place, missing: u32) {
        if missing > 0 {
            self.outcome.torn += 1;
            self.fail(top, None, missing_inodes(missing));
        }
    }

    /// Brings what no directory names: to the directory and under the name that its inode says, or else under
    /// its number in a directory below the top.
    pub fn unnamed(&mut self, top: &Place) -> io::Result<()> {
        let mut tops = Tops { top: top.clone(), by_inode: self.home(top), is_made: false };
        // First the directories that no other one names, then those in circles, then files.
        let named = self.named_by_others();
        for round in 0..3 {
            let mut next = 0;
            while let Some(ino) = self.next_unseen(next, &tops.by_inode) {
                next = ino + 1;
                if round < 2 && (!self.is_dir(ino) || (round == 0 && named.contains(ino))) {
                    continue;
                }
                // What it is in comes before it.
                for ino in self.way_to(ino) {
                    self.one_unnamed(ino, &mut tops)?;
                }
            }
        }
        self.tell_names_unmet();
        Ok(())
    }

    fn one_unnamed(&mut self, ino: Ino, tops: &mut Tops) -> io::Result<()> {
        if self.seen.contains(ino) {
            return Ok(());
        }
        let (dir, name) = self.past.own_name(ino).unwrap_or_default();
        let home = self.homes.as_ref().filter(|_| !name.is_empty() && dir != ino);
        let home = match home.and_then(|homes| homes.get(dir, &tops.top)) {
            Some(Home::Brought(_)) if self.may_be_removed(ino, dir) => None,
            Some(Home::Brought(at)) => Some(at),
            Some(Home::Lost(at)) => self.sink.enter(&at).is_ok().then_some(at),
            None => None,
        };
        let is_placed = home.is_some();
        let at = match home {
            Some(home) => home.below(&name),
            None => {
                if !std::mem::replace(&mut tops.is_made, true) {
                    self.sink.enter(&tops.by_inode)?;
                }
                tops.by_inode.below(&number_and_name(ino, &name))
            }
        };
        let before = self.outcome.files + self.outcome.directories;
        self.below(ino, at, None)?;
        let is_brought = self.outcome.files + self.outcome.directories > before;
        self.outcome.unnamed += u64::from(is_brought);
        self.outcome.placed += u64::from(is_brought && is_placed);
        Ok(())
    }

    /// Whether a file was removed, for all that is known: the directory that it says it is in names all that it did.
    fn may_be_removed(&self, ino: Ino, dir: Ino) -> bool {
        let is_known = self.cuts.contains_key(&dir) || self.older.contains_key(&dir) || self.is_dir(ino);
        !is_known && self.not_removed.as_ref().is_some_and(|known| !known.contains(&ino))
    }

    /// An inode, behind the directories that say that they lead to it and were not brought; by itself where
    /// they say that they are in each other.
    fn way_to(&self, ino: Ino) -> Vec<Ino> {
        let mut way = vec![ino];
        let mut at = ino;
        while let Ok((dir, _)) = self.past.own_name(at) {
            if !self.volume.geometry().is_nid(dir) || self.seen.contains(dir) || !self.is_dir(dir) {
                break;
            }
            if way.contains(&dir) || way.len() > MOST_LEVELS as usize {
                return vec![ino];
            }
            way.push(dir);
            at = dir;
        }
        way.reverse();
        way
    }

    fn is_dir(&self, ino: Ino) -> bool {
        self.volume.getattr(ino).is_ok_and(|attr| attr.kind == FileKind::Directory)
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
        for ino in self.past.inodes(0).flatten() {
            if self.seen.contains(ino) || !self.is_dir(ino) {
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

    /// The first inode from a number on that was not brought. The first part of the NAT that cannot be read is told.
    fn next_unseen(&mut self, from: Ino, home: &Place) -> Option<Ino> {
        for found in self.past.inodes(from) {
            match found {
                Ok(ino) if self.seen.contains(ino) || self.is_own(ino) => {}
                Ok(ino) => return Some(ino),
                Err(_) if self.is_gap_told => {}
                Err(error) => {
                    self.is_gap_told = true;
                    self.fail(
                        home,
                        None,
                        format!("the scan for inodes passed over a part of the NAT: {error}"),
                    );
                }
            }
        }
        None
    }

    /// Whether an inode is the volume's, and no user's.
    fn is_own(&self, ino: Ino) -> bool {
        self.quota_files().any(|quota| quota == ino) || self.past.is_hidden(ino)
    }

    fn quota_files(&self) -> impl Iterator<Item = Ino> + use<S> {
        self.volume.superblock().qf_ino.into_iter().map(|quota| quota.get())
    }
}

/// What is said of a volume whose checkpoint counts more inodes than it leads to.
pub fn missing_inodes(missing: u32) -> String {
    format!("the checkpoint counts {missing} more inodes than the volume leads to")
}

/// Where what no directory names goes.
struct Tops {
    /// The root directory's place.
    top: Place,
    /// Of what has no other place, and whether it was made.
    by_inode: Place,
    is_made: bool,
}

/// `INO.NAME`, with the last name that the inode was given; `INO` where it says none.
fn number_and_name(ino: Ino, name: &[u8]) -> Vec<u8> {
    let mut text = ino.to_string().into_bytes();
    if !name.is_empty() {
        text.push(b'.');
        text.extend_from_slice(name);
        text.truncate(NAME_MAX);
    }
    text
}
