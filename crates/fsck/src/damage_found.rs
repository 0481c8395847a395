//! Which files and directories a pass came to that are not as they were, with their paths.

use crate::damaged::{Damage, DamagedFile, DamagedFiles, LostFile};
use crate::entry_walk::{add_lost, path_below, place_of};
use crate::judgement::Judgement;
use crate::names::own_name;
use crate::reach::Entry;
use medfs_format::Ino;
use medfs_format::log_gap::Files;
use medfs_format::node::RawInode;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Damaged files that are listed; the rest is counted.
const MOST_LISTED: usize = 10_000;

/// Those that a pass came to. `unkept` are files of whose fsyncs the log lost some.
pub(crate) fn damaged_files(j: &mut Judgement<'_>, unkept: &BTreeSet<Ino>) -> io::Result<DamagedFiles> {
    let mut all = damage(j);
    unkept.iter().for_each(|&ino| {
        all.entry(ino).or_default().insert(Damage::Unkept);
    });
    let more = all.len().saturating_sub(MOST_LISTED) as u64;
    let mut list = Vec::new();
    for (ino, damage) in all.into_iter().take(MOST_LISTED) {
        list.push(DamagedFile { path: path_of(j, ino)?, ino, damage });
    }
    Ok(DamagedFiles { list, more })
}

/// The files that lack what was fsynced of them; of those `behind` the end of a log that lacks nodes, new ones are
/// lost.
pub(crate) fn note_unkept(
    j: &mut Judgement<'_>,
    mut unkept: BTreeSet<Ino>,
    behind: Files,
) -> io::Result<BTreeSet<Ino>> {
    for (ino, name) in behind {
        let addr = j.image.nat(ino)?.block_addr.get();
        if j.image.g.in_main(addr) || j.logged.contains_key(&ino) {
            unkept.insert(ino);
        } else {
            // Its directory is told by the inode alone, which no repair takes up.
            let path = if name.is_empty() { LostFile::nameless(ino) } else { name };
            add_lost(j, path, ino);
        }
    }
    Ok(unkept)
}

/// The inodes that the checkpoint counts, but for medfs's own ones that are lost.
pub(crate) fn counted_inodes(j: &Judgement<'_>) -> u32 {
    j.image.checkpoint().valid_inode_count.get().saturating_sub(j.own_lost)
}

/// Whether an inode says of itself where an entry is that leads to it.
pub(crate) fn knows_place(inode: &RawInode, (dir, name): Entry<'_>) -> bool {
    (inode.i_pino.get(), own_name(inode)) == (dir, Some(name))
}

/// Notes where an inode is that an entry led to, if it is damaged, or a directory that does not know its place.
pub(crate) fn note_place(j: &mut Judgement<'_>, ino: Ino, (dir, name): Entry<'_>, knows_place: bool) {
    let is_damaged = j.anew.files.contains(&ino)
        || j.doubted.contains(&ino)
        || j.reverted.contains_key(&ino)
        || j.short.contains(&ino)
        || j.unreadable.contains(&ino)
        || j.cuts.list.last().is_some_and(|cut| cut.ino == ino);
    if !name.is_empty() && (is_damaged || !knows_place && !j.links.contains_key(&ino)) {
        j.anew.places.insert(ino, (dir, name.to_vec()));
    }
}

/// What happened to which inode.
fn damage(j: &Judgement<'_>) -> BTreeMap<Ino, BTreeSet<Damage>> {
    let mut all: BTreeMap<Ino, BTreeSet<Damage>> = BTreeMap::new();
    let mut note = |inos: &mut dyn Iterator<Item = Ino>, damage| {
        inos.for_each(|ino| {
            all.entry(ino).or_default().insert(damage);
        })
    };
    note(&mut j.anew.files.difference(&j.anew.emptied).copied(), Damage::Rebuilt);
    note(&mut j.anew.emptied.iter().copied(), Damage::Emptied);
    note(&mut j.anew.remade.iter().copied(), Damage::Remade);
    note(&mut j.doubted.iter().copied(), Damage::Doubted);
    note(&mut j.reverted.keys().copied(), Damage::Reverted);
    note(&mut j.short.iter().copied(), Damage::Short);
    note(&mut j.unreadable.iter().copied(), Damage::Unreadable);
    note(&mut j.nameless.iter().copied(), Damage::Nameless);
    let (pages, attributes): (Vec<_>, Vec<_>) = j.cuts.list.iter().partition(|cut| cut.pages.is_some());
    note(&mut pages.iter().map(|cut| cut.ino).filter(|ino| !j.anew.emptied.contains(ino)), Damage::Cut);
    note(&mut attributes.iter().map(|cut| cut.ino), Damage::Attributes);
    all
}

/// Where an inode is.
fn path_of(j: &mut Judgement<'_>, ino: Ino) -> io::Result<Vec<u8>> {
    if ino == j.image.g.root_ino {
        return Ok(b"/".to_vec());
    }
    match place_of(j, ino)? {
        Some((dir, name)) => path_below(j, dir, &name),
        None => Ok(LostFile::nameless(ino)),
    }
}
