//! Paths inside a volume: finding, holding and listing what they name.

use crate::error::{During, Error, Result};
use medfs::{Attr, DirEntry, FileKind, Files, Ino, PastDamage, Volume};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most symbolic links followed for one path, as Linux has it.
const MAX_LINKS: u32 = 40;

/// A file of the volume that stays alive while this exists.
#[must_use]
pub struct Held<'v> {
    volume: &'v Volume,
    /// Its attributes as they were when it was found.
    pub attr: Attr,
    /// The directory and the name that led to it.
    entry: Option<(Ino, Vec<u8>)>,
}

impl<'v> Held<'v> {
    /// Takes over the hold that lookup and the creating calls return.
    pub fn new(volume: &'v Volume, attr: Attr) -> Held<'v> {
        Held { volume, attr, entry: None }
    }

    /// An inode by its number.
    pub fn of(volume: &'v Volume, ino: Ino) -> medfs::Result<Held<'v>> {
        volume.hold(ino, 1)?;
        match volume.getattr(ino) {
            Ok(attr) => Ok(Held::new(volume, attr)),
            Err(error) => {
                volume.release(ino, 1);
                Err(error)
            }
        }
    }

    /// The root directory.
    pub fn root(volume: &'v Volume) -> Result<Held<'v>> {
        Ok(Held::of(volume, volume.root())?)
    }

    /// The volume it is in.
    pub fn volume(&self) -> &'v Volume {
        self.volume
    }

    /// The directory and the name by which it was found, where a path led to it.
    pub fn entry(&self) -> Option<(Ino, &[u8])> {
        self.entry.as_ref().map(|(dir, name)| (*dir, &name[..]))
    }

    /// Its inode number.
    pub fn ino(&self) -> Ino {
        self.attr.ino
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.attr.kind == FileKind::Directory
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.volume.release(self.attr.ino, 1);
    }
}

/// The file a path names. Symbolic links on the way are followed, one at the end is not.
pub fn find<'v>(volume: &'v Volume, path: &Path) -> Result<Held<'v>> {
    let mut links = 0;
    let mut pending: Vec<Vec<u8>> = components(path.as_os_str().as_bytes());
    // From the root, which is never left.
    let mut chain = vec![Held::root(volume)?];
    while let Some(name) = pending.pop() {
        if name == b".." {
            if chain.len() > 1 {
                chain.pop();
            }
            continue;
        }
        let parent = chain.last().map_or(volume.root(), Held::ino);
        let mut held = lookup(volume, parent, &name).during(|| in_the_volume(path))?;
        held.entry = Some((parent, name));
        if held.attr.kind != FileKind::Symlink || pending.is_empty() {
            chain.push(held);
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Error::refused("too many symbolic links")).during(|| in_the_volume(path));
        }
        let link = volume.readlink(held.ino())?;
        if link.starts_with(b"/") {
            chain.truncate(1);
        }
        pending.extend(components(&link));
    }
    chain.pop().map_or_else(|| Held::root(volume), Ok)
}

fn in_the_volume(path: &Path) -> String {
    format!("{} in the volume", path.display())
}

/// Names of a path, the first one last.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&b| b == b'/').filter(|c| !c.is_empty() && *c != b".").rev().map(<[u8]>::to_vec).collect()
}

/// A name in a directory. Where blocks of the directory are damaged, it is looked for in the others.
fn lookup<'v>(volume: &'v Volume, parent: Ino, name: &[u8]) -> medfs::Result<Held<'v>> {
    let error = match volume.lookup(parent, name) {
        Ok(attr) => return Ok(Held::new(volume, attr)),
        Err(error @ (medfs::Error::Io(_) | medfs::Error::Corrupt(_))) => error,
        Err(error) => return Err(error),
    };
    let mut found = None;
    PastDamage::of(volume).readdir(parent, &mut |entry| {
        found = entry.ok().filter(|entry| entry.name == name);
        found.is_none()
    })?;
    found.map_or(Err(error), |entry| Held::of(volume, entry.ino))
}

/// Entries of a directory sorted by name, without `.` and `..`, and why there may be more.
pub fn list(volume: &Volume, dir: Ino) -> (Vec<DirEntry>, Option<String>) {
    let (mut all, mut gap) = (Vec::new(), None);
    let listed = PastDamage::of(volume).readdir(dir, &mut |entry| {
        match entry {
            Ok(entry) if entry.name == b"." || entry.name == b".." => {}
            Ok(entry) => all.push(entry),
            Err(unreadable) => drop(gap.get_or_insert(unreadable.error.to_string())),
        }
        true
    });
    if let Err(error) = listed {
        gap.get_or_insert(error.to_string());
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    (all, gap)
}

/// Whether a name from a volume may be used on the host as it is.
pub fn is_safe_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

/// `/a/b` from `/a` and `b`.
pub fn join(dir: &Path, name: &[u8]) -> PathBuf {
    dir.join(std::ffi::OsStr::from_bytes(name))
}
