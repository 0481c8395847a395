//! Paths inside a volume: finding, holding and listing what they name.

use anyhow::{Context, Result, bail};
use medfs::{Attr, DirEntry, FileKind, Ino, Volume};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most symbolic links followed for one path, as Linux has it.
const MAX_LINKS: u32 = 40;
/// Entries taken from the volume in one call.
const LIST_CHUNK: usize = 1024;

/// A file of the volume that stays alive while this exists.
pub(crate) struct Held<'v> {
    volume: &'v Volume,
    pub(crate) attr: Attr,
}

impl<'v> Held<'v> {
    /// Takes over the hold that lookup and the creating calls return.
    pub(crate) fn new(volume: &'v Volume, attr: Attr) -> Held<'v> {
        Held { volume, attr }
    }

    /// The root directory.
    pub(crate) fn root(volume: &'v Volume) -> Result<Held<'v>> {
        volume.hold(volume.root(), 1)?;
        Ok(Held { volume, attr: volume.getattr(volume.root())? })
    }

    pub(crate) fn ino(&self) -> Ino {
        self.attr.ino
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.attr.kind == FileKind::Directory
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.volume.release(self.attr.ino, 1);
    }
}

/// The file a path names. Symbolic links on the way are followed, one at the end is not.
pub(crate) fn find<'v>(volume: &'v Volume, path: &Path) -> Result<Held<'v>> {
    let mut links = 0;
    let mut pending: Vec<Vec<u8>> = components(path.as_os_str().as_bytes());
    let mut chain = vec![Held::root(volume)?];
    while let Some(name) = pending.pop() {
        if name == b".." {
            if chain.len() > 1 {
                chain.pop();
            }
            continue;
        }
        let parent = chain.last().context("the root is never left")?.ino();
        let found =
            volume.lookup(parent, &name).with_context(|| format!("{} in the volume", path.display()))?;
        let held = Held::new(volume, found);
        if held.attr.kind != FileKind::Symlink || pending.is_empty() {
            chain.push(held);
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            bail!("{} in the volume: too many symbolic links", path.display());
        }
        let link = volume.readlink(held.ino())?;
        if link.starts_with(b"/") {
            chain.truncate(1);
        }
        pending.extend(components(&link));
    }
    chain.pop().context("the root is never left")
}

/// Names of a path, the first one last.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&b| b == b'/').filter(|c| !c.is_empty() && *c != b".").rev().map(<[u8]>::to_vec).collect()
}

/// Entries of a directory sorted by name, without `.` and `..`.
pub(crate) fn list(volume: &Volume, dir: Ino) -> Result<Vec<DirEntry>> {
    let mut all = Vec::new();
    let mut position = 0;
    loop {
        let mut chunk: Vec<DirEntry> = Vec::new();
        volume.readdir(dir, position, &mut |entry| {
            if chunk.len() == LIST_CHUNK {
                return false;
            }
            chunk.push(entry);
            true
        })?;
        let Some(last) = chunk.last() else { break };
        position = last.next;
        all.extend(chunk.into_iter().filter(|e| e.name != b"." && e.name != b".."));
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Whether a name from a volume may be used on the host as it is.
pub(crate) fn is_safe_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

/// `/a/b` from `/a` and `b`.
pub(crate) fn join(dir: &Path, name: &[u8]) -> PathBuf {
    dir.join(std::ffi::OsStr::from_bytes(name))
}
