//! Lost files that no entry names: their inode is lost, and so is the directory, or the part of it, that led there.
//! What is left of the blocks of lost directories tells their names.

use crate::damaged::LostFile;
use crate::entry_walk::{add_lost, path_below};
use crate::judgement::Judgement;
use foldhash::{HashMap, HashMapExt};
use medfs_format::dentry::{Area, AreaLayout};
use medfs_format::node::footer;
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::{BlockAddr, Ino, Nid};
use std::io;

/// Adds the lost files that nothing reached and nothing told of yet. Whoever calls has brought back what can be.
pub(crate) fn tell(j: &mut Judgement<'_>) -> io::Result<()> {
    let mut lost = Vec::new();
    j.unreached(|j, nid| {
        if is_lost(j, nid)? {
            lost.push(nid);
        }
        Ok(())
    })?;
    if lost.is_empty() {
        return Ok(());
    }
    let names = names_of_lost_directories(j, &lost)?;
    for ino in lost {
        let path = match names.get(&ino) {
            Some((dir, name)) => path_in(j, *dir, name)?,
            None => LostFile::nameless(ino),
        };
        add_lost(j, path, ino);
    }
    Ok(())
}

/// Whether a node that nothing reached was the inode of a file in use, cannot be read, and was not told of.
fn is_lost(j: &mut Judgement<'_>, nid: Nid) -> io::Result<bool> {
    let entry = j.image.nat(nid)?;
    let (ino, addr) = (entry.ino.get(), entry.block_addr.get());
    let is_known = j.told.contains(&nid)
        || j.orphans.contains(&nid)
        || j.image.orphans.contains(&nid)
        || j.anew.files.contains(&nid)
        || j.anew.remade.contains(&nid)
        || j.logged.contains_key(&nid)
        || j.image.raw_sb().qf_ino.iter().any(|quota| quota.get() == nid);
    if ino != nid || is_known || !j.image.g.in_main(addr) || j.claim_of(nid)?.is_some() {
        return Ok(false);
    }
    let at = *footer(j.image.cache.get(addr)?);
    let is_itself = (at.nid.get(), at.ino.get()) == (nid, nid) && j.image.is_valid(addr)?;
    Ok(is_itself || j.image.is_lost_node(nid, addr)?)
}

/// The names of inodes in what is left of lost directories, each with the directory.
fn names_of_lost_directories(
    j: &mut Judgement<'_>,
    lost: &[Ino],
) -> io::Result<HashMap<Ino, (Ino, Vec<u8>)>> {
    let mut directories: Vec<Ino> = lost.to_vec();
    directories.extend(j.told.iter().chain(&j.anew.remade).copied());
    directories.retain(|&dir| j.image.g.is_nid(dir)); // an entry may name any number
    directories.sort_unstable();
    directories.dedup();
    let mut names = HashMap::new();
    for dir in directories {
        for addr in blocks_of(j, dir)? {
            let block = j.image.cache.get(addr)?;
            let area = Area::new(AreaLayout::BLOCK, &block.0[..]);
            for entry in area.entries(0, dir.into()).map_while(Result::ok) {
                if ![&b"."[..], b".."].contains(&entry.name) {
                    names.entry(entry.ino).or_insert((dir, entry.name.to_vec()));
                }
            }
        }
    }
    Ok(names)
}

/// The blocks that are left of a lost directory; none where it was another kind of file.
fn blocks_of(j: &mut Judgement<'_>, dir: Ino) -> io::Result<Vec<BlockAddr>> {
    let Some(remains) = j.image.remains(dir)? else { return Ok(Vec::new()) };
    let mut blocks: Vec<BlockAddr> = remains.blocks.iter().map(|(_, addr)| *addr).collect();
    let Some(&first) = blocks.first().filter(|addr| j.image.g.in_main(**addr)) else { return Ok(Vec::new()) };
    let area = Area::new(AreaLayout::BLOCK, &j.image.cache.get(first)?.0[..]);
    if !area.find(b".", dir.into()).is_ok_and(|dot| dot.is_some_and(|dot| dot.ino == dir)) {
        return Ok(Vec::new());
    }
    let direct = |(offset, _): &&(u32, Nid)| node_kind(*offset) == NodeKind::Direct;
    for &(_, nid) in remains.nodes.iter().filter(direct) {
        blocks.extend(j.image.addrs_of(nid)?);
    }
    blocks.retain(|addr| j.image.g.in_main(*addr));
    Ok(blocks)
}

/// The path of a name in a lost directory.
fn path_in(j: &mut Judgement<'_>, dir: Ino, name: &[u8]) -> io::Result<Vec<u8>> {
    let above = match j.anew.places.get(&dir).cloned() {
        Some((parent, of)) => path_below(j, parent, &of)?,
        None => j
            .lost
            .iter()
            .find(|lost| lost.ino == dir)
            .map_or(LostFile::nameless(dir), |lost| lost.path.clone()),
    };
    Ok([&above[..], b"/", name].concat())
}
