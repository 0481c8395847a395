//! Nodes, and blocks of data, that the node above them names in each other's places: a node's footer, and a block's
//! summary, tell where each belongs.
//!
//! Nodes have no checksum, and on many volumes inodes have none either. Where several of what one node names say that
//! other places of the same node are theirs, and those are free or left by others that say so, these places are right:
//! one damaged node explains what would take as many damaged footers or summaries otherwise. A block of data that is
//! alone in that may as well have a damaged summary, and stays.
//!
//! Invariant: nothing is moved to the place of what says that it is right there.

use crate::address::{home, own_offset};
use crate::finding::{Code, counted};
use crate::judgement::Judgement;
use crate::space::{Kind, Owner, agrees_with_nodes, recorded};
use medfs_format::{BlockAddr, Ino, NULL_ADDR, is_block};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use zerocopy::little_endian::U32;

/// Moves nodes to the places that they say are their own; `offset_of` gives those of the slots in the file. Whether one
/// moved.
pub(crate) fn put_nodes_in_their_places(
    j: &mut Judgement<'_>,
    ino: Ino,
    nids: &mut [U32],
    offset_of: impl Fn(usize) -> u32,
    place: &str,
) -> io::Result<bool> {
    let mut strays = Vec::new();
    for (slot, nid) in nids.iter().enumerate().filter(|(_, nid)| nid.get() != 0) {
        if let Some(own) = own_offset(j, ino, nid.get())?.filter(|own| *own != offset_of(slot)) {
            strays.push((slot, own));
        }
    }
    if strays.is_empty() {
        return Ok(false);
    }
    let slots: BTreeMap<u32, usize> = (0..nids.len()).map(|slot| (offset_of(slot), slot)).collect();
    let strays = strays.into_iter().filter_map(|(from, own)| Some((from, *slots.get(&own)?)));
    let moves = moves(strays, |slot| nids[slot].get() == 0);
    if moves.is_empty() {
        return Ok(false);
    }
    apply(&moves, nids);
    let nodes = counted(moves.len() as u64, "node");
    let text = format!("{place}: {nodes} named in other places of the file than their footers say");
    j.findings.add(Code::AddressMissing, text);
    Ok(true)
}

/// What the summaries of blocks say of the slots of a node that name them.
pub(crate) struct Placed {
    /// Of each slot, the block whose summary names it.
    sure: Vec<BlockAddr>,
    /// Whether some blocks moved.
    pub(crate) moved: bool,
}

impl Placed {
    /// The block of a slot that names `addr`, and what is known of its owner ([`home`]).
    pub(crate) fn home(
        &self,
        j: &mut Judgement<'_>,
        (slot, owner): (usize, Owner),
        page: u64,
        addr: BlockAddr,
        place: &str,
    ) -> io::Result<(BlockAddr, Owner)> {
        match self.sure[slot] == addr {
            true => Ok((addr, owner.known())),
            false => home(j, owner, page, addr, place),
        }
    }
}

/// Moves blocks to the slots of the same node that their summaries name; `first` is the first slot.
pub(crate) fn put_blocks_in_their_places(
    j: &mut Judgement<'_>,
    addrs: &mut [U32],
    first: Owner,
    place: &str,
) -> io::Result<Placed> {
    let (mut strays, mut sure) = (Vec::new(), vec![NULL_ADDR; addrs.len()]);
    for (slot, addr) in addrs.iter().enumerate().filter(|(_, addr)| is_block(addr.get())) {
        let addr = addr.get();
        if !j.image.g.in_main(addr) {
            continue;
        }
        let Some(summary) = recorded(&mut j.image, addr, Kind::Data)? else { continue };
        if first.behind(slot).is_now_of(&summary) {
            sure[slot] = addr;
            continue;
        }
        let to = usize::from(summary.ofs_in_node.get()).wrapping_sub(first.ofs_in_node.into());
        let is_near = to != slot && to < addrs.len() && first.behind(to).is_now_of(&summary);
        if is_near && !j.space.is_claimed(&j.image.g, addr) && j.image.is_valid(addr)? {
            strays.push((slot, to));
        }
    }
    let moves = moves(strays.into_iter(), |slot| addrs[slot].get() == 0);
    let moved = moves.len() > 1 && !are_summaries_displaced(j, &moves, addrs)?;
    if moved {
        apply(&moves, addrs);
        let blocks = counted(moves.len() as u64, "block");
        let text = format!("{place}: {blocks} named in other slots of the node than their summaries say");
        j.findings.add(Code::AddressMissing, text);
    }
    Ok(Placed { sure, moved })
}

/// Whether it is rather the summary blocks that are in each other's places, or older: most blocks of a segment are not
/// where its summaries say.
fn are_summaries_displaced(
    j: &mut Judgement<'_>,
    moves: &BTreeMap<usize, usize>,
    addrs: &[U32],
) -> io::Result<bool> {
    let segments: BTreeSet<_> = moves.values().map(|from| j.image.g.segno(addrs[*from].get())).collect();
    for segno in segments {
        if !agrees_with_nodes(&mut j.image, segno)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Which slot each place takes its content from: those of `strays`, from a slot to another one, whose place is empty or
/// left by one that moves too.
fn moves(
    strays: impl Iterator<Item = (usize, usize)>,
    is_empty: impl Fn(usize) -> bool,
) -> BTreeMap<usize, usize> {
    let mut moves = BTreeMap::new();
    for (from, to) in strays {
        if moves.insert(to, from).is_some() {
            return BTreeMap::new(); // two say that it is theirs
        }
    }
    loop {
        let (before, leaving) = (moves.len(), moves.values().copied().collect::<BTreeSet<_>>());
        moves.retain(|to, _| is_empty(*to) || leaving.contains(to));
        if moves.len() == before {
            return moves;
        }
    }
}

fn apply(moves: &BTreeMap<usize, usize>, slots: &mut [U32]) {
    let moved: Vec<(usize, U32)> = moves.iter().map(|(to, from)| (*to, slots[*from])).collect();
    moves.values().for_each(|from| slots[*from] = 0.into());
    moved.into_iter().for_each(|(to, content)| slots[to] = content);
}
