//! Databases that gain nothing by an import: they are named after it, with what helps.

use crate::target::{self, Target};
use crate::words::count;
use anyhow::Result;
use medfs::{FileKind, Files, Ino, Volume, convert};
use medfs_transfer::paths;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Paths that are named.
const SHOWN: usize = 5;

/// Names the databases of a volume, which was imported just now, that take no deltas.
pub(crate) fn tell(dev: Target, image: &Path) -> Result<()> {
    let volume = target::open_volume_read_only(dev, image)?;
    let without: HashSet<Ino> = convert::databases_without_zone(&volume)?.into_iter().collect();
    if without.is_empty() {
        return Ok(());
    }
    let found = named(&volume, &without);
    for path in found.iter().take(SHOWN) {
        outln!("no deltas for {}: it had more than 3.4 MiB before the import", path.display());
    }
    let more = (without.len() as u64).saturating_sub(SHOWN.min(found.len()) as u64);
    if more > 0 {
        outln!("no deltas for {} more", count(more, "database"));
    }
    outln!("'medfs import --databases {}' makes room for their deltas", image.display());
    Ok(())
}

/// A path of each of these inodes that has one.
fn named(volume: &Volume, of: &HashSet<Ino>) -> Vec<PathBuf> {
    let (mut left, mut found) = (of.clone(), Vec::new());
    let mut dirs = vec![(volume.root(), PathBuf::from("/"))];
    while let Some((dir, path)) = dirs.pop() {
        for entry in paths::list(volume, dir).0 {
            let path = paths::join(&path, &entry.name);
            if entry.kind == Some(FileKind::Directory) {
                dirs.push((entry.ino, path));
            } else if left.remove(&entry.ino) {
                found.push(path);
            }
        }
        if left.is_empty() {
            break;
        }
    }
    found.sort();
    found
}
