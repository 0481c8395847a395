//! What a repair keeps of a volume's files, by the engine's eyes: in their place, under another name, with
//! other content, or not at all.
//!
//! Unlike [`crate::observe`] nothing here asks for a sound volume: what cannot be read is passed by, so that
//! what any checker leaves can be counted. A file is found by its inode number; one is kept only where all of
//! its content is as it was.

use crate::harness::guarded;
use crate::model::{Inode, Model, PAGE};
use crate::volume::test_clock;
use medfs::{FileKind, Files, Ino, MountOptions, Recover, Volume};
use medfs_device::{BlockDevice, MemDevice};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Files that were there before the damage, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// Under a name that they had.
    pub in_place: u64,
    /// Under another name.
    pub elsewhere: u64,
    /// With other content, or none that can be read.
    pub changed: u64,
    /// Without a name.
    pub lost: u64,
    /// Volumes that do not open.
    pub closed: u64,
}

impl AddAssign for Kept {
    fn add_assign(&mut self, more: Kept) {
        self.in_place += more.in_place;
        self.elsewhere += more.elsewhere;
        self.changed += more.changed;
        self.lost += more.lost;
        self.closed += more.closed;
    }
}

impl Kept {
    /// Counts the files of `shown` on what a checker left, which is opened as after its repair: rolled
    /// forward where that is possible, and only for reading where medfs would not write to it.
    pub fn count(shown: &Model, dev: &Arc<MemDevice>) -> Kept {
        let files = shown.inodes().filter(|(_, inode)| !inode.is_dir());
        let open = |recover, read_only| {
            let options = MountOptions { recover, read_only, ..MountOptions::default() };
            Volume::open(dev.clone() as Arc<dyn BlockDevice>, options, test_clock())
        };
        let opened = guarded(|| {
            open(Recover::WhatFits, false)
                .or_else(|_| open(Recover::Nothing, false))
                .or_else(|_| open(Recover::Nothing, true))
                .map_err(|e| e.to_string())
        });
        let Ok(volume) = opened else {
            return Kept { lost: files.count() as u64, closed: 1, ..Kept::default() };
        };
        let names = names(&volume);
        let mut kept = Kept::default();
        for (id, inode) in files {
            let had: BTreeSet<Vec<u8>> = shown
                .names_of(id)
                .iter()
                .map(|(dir, name)| {
                    [shown.path_of(*dir).trim_end_matches('/').as_bytes(), b"/", name].concat()
                })
                .collect();
            let (count, what) = match names.get(&inode.ino) {
                None => (&mut kept.lost, "lost"),
                Some(_) if !is_as_it_was(&volume, inode) => (&mut kept.changed, "changed"),
                Some(now) if had.is_disjoint(now) => (&mut kept.elsewhere, "renamed"),
                Some(_) => (&mut kept.in_place, ""),
            };
            *count += 1;
            if !what.is_empty() && std::env::var_os("MEDFS_SHOW").is_some() {
                println!("  {what}: inode {}, {}", inode.ino, shown.path_of(id));
            }
        }
        kept
    }
}

/// Every name that leads to an inode that can be read; each is held by the lookup that found it.
fn names(volume: &Volume) -> BTreeMap<Ino, BTreeSet<Vec<u8>>> {
    let mut names: BTreeMap<Ino, BTreeSet<Vec<u8>>> = BTreeMap::new();
    let mut todo = vec![(volume.root(), Vec::new())];
    let mut walked = BTreeSet::new();
    while let Some((dir, path)) = todo.pop() {
        if !walked.insert(dir) {
            continue;
        }
        let mut entries = Vec::new();
        let _ = volume.readdir(dir, 0, &mut |entry| {
            entries.push(entry.name);
            true
        });
        for name in entries.into_iter().filter(|name| name != b"." && name != b"..") {
            let Ok(attr) = volume.lookup(dir, &name) else { continue };
            let path = [&path, &b"/"[..], &name].concat();
            if attr.kind == FileKind::Directory {
                todo.push((attr.ino, path.clone()));
            }
            names.entry(attr.ino).or_default().insert(path);
        }
    }
    names
}

fn is_as_it_was(volume: &Volume, was: &Inode) -> bool {
    let Ok(attr) = volume.getattr(was.ino) else { return false };
    if attr.kind != was.kind {
        return false;
    }
    match was.kind {
        FileKind::Symlink => volume.readlink(was.ino).is_ok_and(|target| target == was.target),
        FileKind::Regular => {
            let same = |index: u64| {
                let mut bytes = [0; PAGE as usize];
                let read = volume.read(was.ino, index * PAGE, &mut bytes);
                let wanted = was.content.read(index * PAGE, PAGE);
                read.is_ok_and(|len| bytes[..len] == wanted)
            };
            attr.size == was.content.size() && was.content.pages().all(|(index, _)| same(index))
        }
        _ => true,
    }
}

/// Has `fsck.f2fs` repair a device of which some blocks cannot be read until they are written: what it
/// leaves, and those of the blocks that it did not write. An error where it does not run.
pub fn fsck_f2fs(dev: &MemDevice, unreadable: &[u64]) -> std::io::Result<(MemDevice, Vec<u64>)> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("image");
    crate::images::save(dev, &path)?;
    let mut fsck = Command::new("timeout");
    fsck.args(["120", "fsck.f2fs", "-f", "-y"]).arg(&path);
    fsck.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let written = dir.path().join("written");
    if !unreadable.is_empty() {
        let blocks: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
        fsck.env("LD_PRELOAD", preloaded(dir.path())?).env("UNREADABLE", blocks.join(","));
        fsck.env("WRITTEN", &written);
    }
    fsck.status()?;
    let written = std::fs::read_to_string(&written).unwrap_or_default();
    let is_written = |block: &u64| written.lines().any(|line| line == block.to_string());
    Ok((load(&path)?, unreadable.iter().copied().filter(|block| !is_written(block)).collect()))
}

/// What makes blocks unreadable for another program, compiled.
fn preloaded(dir: &Path) -> std::io::Result<PathBuf> {
    let (source, library) = (dir.join("unreadable.c"), dir.join("unreadable.so"));
    std::fs::write(&source, include_str!("unreadable.c"))?;
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    if cc.status()?.success() { Ok(library) } else { Err(std::io::Error::other("cc failed")) }
}

fn load(path: &Path) -> std::io::Result<MemDevice> {
    let file = medfs_device::FileDevice::open(path, medfs_device::FileOptions::read_only())?;
    MemDevice::copy_of(&file)
}
