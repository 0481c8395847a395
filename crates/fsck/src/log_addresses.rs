//! Blocks that two nodes name, one of the fsync log and another one of it or of the last checkpoint: a roll-forward
//! would take such a block from the file that had it first.
//!
//! An address is the wrong one where it is a flipped bit away from what the same slot holds in the last
//! checkpoint, or from what the slots before and behind it lead to expect, and that is so of one of the two
//! nodes alone, which is of the log. Without such a sign nothing is changed: the kernel may give a block that a file
//! gave up since the checkpoint to another one.
//!
//! Memory: [`MOST_SUSPECTS`] addresses, and those that name the same blocks.

use crate::finding::{Code, Findings};
use crate::image::Image;
use crate::log_node;
use crate::slots::has_no_addresses;
use crate::space::{Kind, recorded};
use foldhash::{HashMap, HashMapExt};
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::node::{ADDR_OFFSET, ADDRS_PER_BLOCK, RawInode, footer};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::{Block, BlockAddr, Nid};
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::ops::Range;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// Addresses a flipped bit away from an expected one that are looked into: blocks that were merely written
/// elsewhere can be among them.
const MOST_SUSPECTS: usize = 1 << 16;

/// The slot of a node.
type Slot = (Nid, usize);

/// An address that may have a flipped bit.
#[derive(Debug, Clone, Copy)]
struct Suspect {
    /// The node's block in the log.
    at: BlockAddr,
    slot: Slot,
    right: BlockAddr,
}

/// Judges the addresses in the nodes of the log, which are in these blocks.
pub(crate) fn judge(
    image: &mut Image<'_>,
    nodes: &[BlockAddr],
    findings: &mut Findings,
    fix: bool,
) -> io::Result<()> {
    let mut suspects: HashMap<BlockAddr, Vec<Suspect>> = HashMap::new();
    let mut count = 0;
    for &at in nodes {
        for (named, suspect) in suspects_in(image, at)? {
            if count < MOST_SUSPECTS {
                suspects.entry(named).or_default().push(suspect);
                count += 1;
            }
        }
    }
    if suspects.is_empty() {
        return Ok(());
    }
    let mut named: HashMap<BlockAddr, BTreeSet<Slot>> = HashMap::new();
    let mut logged = HashSet::new();
    for &at in nodes {
        let (block, _) = log_node::read(image, at)?;
        let nid = footer(&block).nid.get();
        logged.insert(nid);
        for slot in slots(&block, image.flexible()) {
            let addr = addresses(&block)[slot].get();
            if suspects.contains_key(&addr) {
                named.entry(addr).or_default().insert((nid, slot));
            }
        }
    }
    for (addr, slots) in named {
        let guilty: BTreeSet<Slot> = suspects[&addr].iter().map(|suspect| suspect.slot).collect();
        if guilty.len() != 1 || (slots.len() < 2 && !is_of_checkpoint(image, addr, &logged)?) {
            continue;
        }
        for suspect in &suspects[&addr] {
            mend(image, addr, *suspect, findings, fix)?;
        }
    }
    Ok(())
}

/// The addresses of a node that are a flipped bit away from an expected one.
fn suspects_in(image: &mut Image<'_>, at: BlockAddr) -> io::Result<Vec<(BlockAddr, Suspect)>> {
    let (block, _) = log_node::read(image, at)?;
    let nid = footer(&block).nid.get();
    let before = node_of_checkpoint(image, nid, &block)?;
    let (slots, mut found) = (slots(&block, image.flexible()), Vec::new());
    for slot in slots.clone() {
        let of = |block: &Block, slot: usize| addresses(block)[slot].get();
        let addr = of(&block, slot);
        let beside = (slot > slots.start && slot + 1 < slots.end)
            .then(|| (of(&block, slot - 1).wrapping_add(1), of(&block, slot + 1).wrapping_sub(1)))
            .filter(|(behind, ahead)| behind == ahead)
            .map(|(expected, _)| expected);
        let expected = [before.as_ref().map(|before| of(before, slot)), beside];
        let right = expected.into_iter().flatten().find(|right| (right ^ addr).count_ones() == 1);
        if let Some(right) = right.filter(|&right| image.g.in_main(right) && image.g.in_main(addr)) {
            found.push((addr, Suspect { at, slot: (nid, slot), right }));
        }
    }
    Ok(found)
}

/// Whether a block was in use at the last checkpoint by a node of which the log has no newer version.
fn is_of_checkpoint(image: &mut Image<'_>, addr: BlockAddr, logged: &HashSet<Nid>) -> io::Result<bool> {
    if !image.is_valid(addr)? {
        return Ok(false);
    }
    let Some(summary) = recorded(image, addr, Kind::Data)? else { return Ok(false) };
    let nid = summary.nid.get();
    if !image.g.is_nid(nid) || logged.contains(&nid) {
        return Ok(false);
    }
    let at = image.nat(nid)?.block_addr.get();
    if !image.g.in_main(at) {
        return Ok(false);
    }
    let block = image.cache.read(at)?;
    let mut own = addresses(&block)[slots(&block, image.flexible())].iter();
    Ok(footer(&block).nid.get() == nid
        && own.nth(summary.ofs_in_node.get().into()).is_some_and(|a| a.get() == addr))
}

/// A node as it is in the last checkpoint, where its slots are those of `now`.
fn node_of_checkpoint(image: &mut Image<'_>, nid: Nid, now: &Block) -> io::Result<Option<Box<Block>>> {
    let addr = if image.g.is_nid(nid) { image.nat(nid)?.block_addr.get() } else { 0 };
    if !image.g.in_main(addr) {
        return Ok(None);
    }
    let block = image.cache.read(addr)?;
    let (was, is) = (footer(&block), footer(now));
    let same = was.nid == is.nid && was.ino == is.ino && was.node_offset() == is.node_offset();
    let flexible = image.flexible();
    Ok((same && slots(&block, flexible) == slots(now, flexible)).then_some(block))
}

/// Which of a node's [`addresses`] are addresses.
fn slots(block: &Block, flexible: bool) -> Range<usize> {
    match node_kind(footer(block).node_offset()) {
        NodeKind::Inode => {
            let inode: &RawInode = block.view();
            let slots = inode.possible_slots(flexible).filter(|_| !has_no_addresses(inode));
            let range = slots.map(|slots| slots.extra..slots.extra + slots.addrs()).unwrap_or_default();
            range.start + ADDR_OFFSET / 4..range.end + ADDR_OFFSET / 4
        }
        NodeKind::Direct => 0..ADDRS_PER_BLOCK,
        NodeKind::Indirect | NodeKind::Xattr => 0..0,
    }
}

/// A block as numbers.
fn addresses(block: &Block) -> &[U32] {
    <[U32]>::ref_from_bytes(&block.0).expect("a block is a whole number of them")
}

fn mend(
    image: &mut Image<'_>,
    addr: BlockAddr,
    suspect: Suspect,
    findings: &mut Findings,
    fix: bool,
) -> io::Result<()> {
    let Suspect { at, slot: (nid, slot), right } = suspect;
    findings.add(
        Code::LogAddress,
        format!("node {nid} of the fsync log, in block {at}: block {addr} is another file's; with one bit flipped it is {right}"),
    );
    if !fix {
        return Ok(());
    }
    let mut block = image.cache.medium.read(at)?;
    block.0[slot * 4..slot * 4 + 4].copy_from_slice(&right.to_le_bytes());
    image.cache.medium.write(at, &[&block], WriteTag::new(Cause::Node, Temperature::Warm))
}
