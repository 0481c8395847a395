//! Where the directories of a salvaged volume are among what was brought, and what is done with them at the end.
//!
//! An inode says its last name and the directory of that. What no directory names goes there, where the
//! directory was brought, or where at least its own name is known. So no directory is left, with the mode and
//! the times that it had, before all of them are filled.
//!
//! Memory: an entry for each directory.

use crate::place::Place;
use crate::sink::Meta;
use medfs_format::Ino;
use medfs_fsck::LostFile;
use std::cmp::Reverse;
use std::collections::HashMap;

/// The directories.
pub(crate) struct Homes {
    brought: HashMap<Ino, Place>,
    /// Paths whose inode is lost.
    lost: HashMap<Ino, Vec<u8>>,
    left: Vec<(Place, Box<Meta>)>,
}

/// Where the directory of a name is.
pub(crate) enum Home {
    /// It was brought.
    Brought(Place),
    /// Its name is known, and it has to be made.
    Lost(Place),
}

impl Homes {
    pub(crate) fn new(lost: &[LostFile]) -> Homes {
        let lost =
            lost.iter().filter(|lost| lost.has_place()).map(|lost| (lost.ino, lost.path.clone())).collect();
        Homes { brought: HashMap::new(), lost, left: Vec::new() }
    }

    pub(crate) fn add(&mut self, ino: Ino, at: Place) {
        self.brought.insert(ino, at);
    }

    /// A directory, below the top.
    pub(crate) fn get(&self, ino: Ino, top: &Place) -> Option<Home> {
        if let Some(at) = self.brought.get(&ino) {
            return Some(Home::Brought(at.clone()));
        }
        let mut names =
            self.lost.get(&ino)?.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).peekable();
        names.peek()?;
        Some(Home::Lost(names.fold(top.clone(), |at, name| at.below(name))))
    }

    /// Keeps what a directory is to get when it is left.
    pub(crate) fn leave_later(&mut self, at: Place, meta: Box<Meta>) {
        self.left.push((at, meta));
    }

    /// The directories to be left, each before the one it is in.
    pub(crate) fn into_left(mut self) -> Vec<(Place, Box<Meta>)> {
        self.left.sort_by_key(|(at, _)| Reverse(at.level()));
        self.left
    }
}
