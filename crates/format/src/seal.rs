//! Seals: what the last node of an fsync says of the blocks that were written with it, so that one flush
//! serves all of them.
//!
//! Without a seal everything that a marked node of the roll-forward log names is durable before the node is
//! written: a flush lies between. A sealed node is written with the blocks that it depends on. After power
//! was lost, roll-forward looks whether all of them were stored. Where one was not, the flush that the fsync
//! waited for had not ended, nor had any later one: the log ends before that node.
//!
//! A seal lies in an inode block behind the file's name, in the bytes of `i_name` that the name does not
//! take; in a shared record node behind its entries:
//!
//! ```text
//! | magic: u32 | position: u32 | durable: u32 | before: u64 | digest: u64 | runs: u16 | run | run | ..
//!      run: | address: u32 | blocks: u16 |
//! ```
//!
//! `position` counts the nodes of the log before this one, since the checkpoint. Those before `durable`, and
//! the blocks that they name, were known to be durable when the node was written. `before` is a hash of the
//! nodes from the last of those up to this one, `digest` one of the blocks in the runs, with their addresses:
//! every data block that was written since the last flush, of whatever file, except those that were
//! overwritten. The hashes are XXH3 of 64 bits, with a seed of the volume and the checkpoint ([`SealKey`]).
//!
//! Invariants:
//! 1. A node whose seal says `durable` proves by itself that everything before that was durable, whatever has
//!    happened to it since.
//! 2. Nodes from the greatest `durable` on are looked at in their order; the first that does not prove itself
//!    ends the log.
//! 3. Seals count in nodes that carry the version of the checkpoint in force, and there alone.

use crate::footer::footer;
use crate::node::{NAME_LEN, RawInode};
use crate::shared::RawSharedHeader;
use crate::{BLOCK_SIZE, Block, BlockAddr, Ino};
use std::mem::offset_of;
use std::ops::Range;
use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a seal.
pub const SEAL_MAGIC: u32 = 0x4c53_464d;
/// Most runs of a seal.
pub const MAX_RUNS: usize = 16;
/// Most blocks that a seal covers.
pub const MAX_COVERED: usize = 4096;
/// Bytes of the largest seal.
pub const SEAL_ROOM: usize = seal_size(MAX_RUNS);

/// The fixed part of a seal (30 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSeal {
    /// [`SEAL_MAGIC`].
    pub magic: U32,
    /// Nodes of the log before this one, since the checkpoint.
    pub position: U32,
    /// Number of them that were durable, with all that they name.
    pub durable: U32,
    /// Hash of the nodes from the last durable one up to this one.
    pub before: U64,
    /// Hash of the blocks in the runs.
    pub digest: U64,
    /// Runs that follow.
    pub runs: U16,
}

/// Neighbouring blocks that a sealed node depends on (6 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawRun {
    /// The first of them.
    pub addr: U32,
    /// Number of blocks, at least one.
    pub blocks: U16,
}

const _: () = assert!(size_of::<RawSeal>() == 30 && size_of::<RawRun>() == 6);

const fn seal_size(runs: usize) -> usize {
    size_of::<RawSeal>() + runs * size_of::<RawRun>()
}

/// The seed of the hashes of a volume's seals, between two checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealKey(u64);

impl SealKey {
    /// The key of the volume with this UUID, after the checkpoint that nodes name so in their footers.
    pub fn new(uuid: &[u8; 16], cp_ver: u64) -> SealKey {
        SealKey(XxHash3_64::oneshot_with_seed(cp_ver, uuid))
    }

    /// The hash of a block's content.
    pub fn of_block(self, block: &Block) -> u64 {
        XxHash3_64::oneshot_with_seed(self.0, &block.0)
    }

    /// The hash of nodes in a row, of their hashes.
    pub fn of_nodes(self, nodes: impl IntoIterator<Item = u64>) -> u64 {
        let bytes: Vec<u8> = nodes.into_iter().flat_map(u64::to_le_bytes).collect();
        XxHash3_64::oneshot_with_seed(self.0, &bytes)
    }

    /// The hash of blocks at their addresses, in ascending order, of their hashes.
    fn of_blocks(self, blocks: impl IntoIterator<Item = (BlockAddr, u64)>) -> u64 {
        self.of_nodes(blocks.into_iter().flat_map(|(addr, hash)| [u64::from(addr), hash]))
    }
}

/// The blocks that a sealed node depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cover {
    runs: Vec<RawRun>,
    digest: u64,
}

impl Cover {
    /// Covers these blocks, whose hashes are given, in ascending order of their addresses; `None` where they
    /// are too many, or too many runs.
    pub fn of(key: SealKey, blocks: &[(BlockAddr, u64)]) -> Option<Cover> {
        if blocks.len() > MAX_COVERED {
            return None;
        }
        let mut runs: Vec<RawRun> = Vec::new();
        for &(addr, _) in blocks {
            match runs.last_mut() {
                Some(run) if addr == run.addr.get() + u32::from(run.blocks.get()) => run.blocks += 1,
                _ => runs.push(RawRun { addr: addr.into(), blocks: 1.into() }),
            }
        }
        if runs.len() > MAX_RUNS {
            return None;
        }
        Some(Cover { runs, digest: key.of_blocks(blocks.iter().copied()) })
    }

    /// The blocks, in ascending order.
    pub fn addrs(&self) -> impl Iterator<Item = BlockAddr> + '_ {
        self.runs
            .iter()
            .flat_map(|run| (0..u32::from(run.blocks.get())).map(|n| run.addr.get().saturating_add(n)))
    }

    /// Whether the blocks on the volume are those that were covered. `read` gives `None` for a block that
    /// cannot be read.
    fn is_stored(&self, key: SealKey, mut read: impl FnMut(BlockAddr) -> Option<Box<Block>>) -> bool {
        let found: Option<Vec<(BlockAddr, u64)>> =
            self.addrs().map(|addr| Some((addr, key.of_block(&*read(addr)?)))).collect();
        found.is_some_and(|found| key.of_blocks(found) == self.digest)
    }
}

/// A node's seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// Nodes of the log before the node, since the checkpoint.
    pub position: u32,
    /// Number of them that were durable, with all that they name.
    pub durable: u32,
    /// Hash of the nodes from the last durable one up to this one.
    pub before: u64,
    /// The blocks that the node depends on.
    pub cover: Cover,
}

/// Bytes of a node in which a seal may lie; `None` where the node has no room for any.
fn room(block: &Block, node_ino: Ino) -> Option<Range<usize>> {
    let f = footer(block);
    if f.nid.get() == node_ino {
        let (header, _) = RawSharedHeader::ref_from_prefix(&block.0).ok()?;
        let start = size_of::<RawSharedHeader>() + usize::from(header.used.get());
        let end = BLOCK_SIZE - size_of_val(f);
        return (header.magic.get() == crate::shared::SHARED_MAGIC && start <= end).then_some(start..end);
    }
    if f.nid != f.ino || f.node_offset() != 0 {
        return None;
    }
    let name = offset_of!(RawInode, i_name);
    let len = block.view::<RawInode>().i_namelen.get() as usize;
    (len <= NAME_LEN).then_some(name + len..name + NAME_LEN)
}

impl Seal {
    /// The seal of a node, if it has one. `node_ino` is the reserved inode of the nodes.
    pub fn of(block: &Block, node_ino: Ino) -> Option<Seal> {
        let (raw, rest) = RawSeal::ref_from_prefix(&block.0[room(block, node_ino)?]).ok()?;
        let count = usize::from(raw.runs.get());
        if raw.magic.get() != SEAL_MAGIC || count > MAX_RUNS {
            return None;
        }
        let (runs, _) = <[RawRun]>::ref_from_prefix_with_elems(rest, count).ok()?;
        let blocks: usize = runs.iter().map(|run| usize::from(run.blocks.get())).sum();
        if blocks > MAX_COVERED || runs.iter().any(|run| run.blocks == 0) {
            return None;
        }
        let cover = Cover { runs: runs.to_vec(), digest: raw.digest.get() };
        let (position, durable) = (raw.position.get(), raw.durable.get());
        Some(Seal { position, durable, before: raw.before.get(), cover })
    }

    /// The first of the nodes before it whose hashes a seal at this place of the log has.
    fn first_answered(&self, at: usize) -> usize {
        (self.durable as usize).saturating_sub(1).min(at)
    }

    /// Puts the seal into a node that [`fits`] it, in place of the one that it had.
    pub fn put(&self, block: &mut Block, node_ino: Ino) {
        clear(block, node_ino);
        let Some(room) = room(block, node_ino) else { return };
        let raw = RawSeal {
            magic: SEAL_MAGIC.into(),
            position: self.position.into(),
            durable: self.durable.into(),
            before: self.before.into(),
            digest: self.cover.digest.into(),
            runs: (self.cover.runs.len() as u16).into(),
        };
        let bytes = [raw.as_bytes(), self.cover.runs.as_bytes()].concat();
        if let Some(place) = block.0[room].get_mut(..bytes.len()) {
            place.copy_from_slice(&bytes);
        }
    }
}

/// Whether a node has room for a seal of these blocks.
pub fn fits(block: &Block, node_ino: Ino, cover: &Cover) -> bool {
    room(block, node_ino).is_some_and(|room| seal_size(cover.runs.len()) <= room.len())
}

/// Takes a node's seal away, if it can have one.
pub fn clear(block: &mut Block, node_ino: Ino) {
    if let Some(room) = room(block, node_ino) {
        block.0[room].fill(0);
    }
}

/// The nodes of the roll-forward log as they are met, to tell where it ends.
#[derive(Debug)]
pub struct SealedLog {
    uuid: [u8; 16],
    /// Of the checkpoint that its nodes name: a repair may have written another one since that leaves them in force.
    key: Option<SealKey>,
    node_ino: Ino,
    nodes: Vec<(BlockAddr, u64)>,
    seals: Vec<SealedNode>,
    /// Nodes that are known to have been durable, by the seals that hold.
    durable: usize,
}

/// A sealed node of the log.
#[derive(Debug)]
struct SealedNode {
    /// Its place among the nodes.
    at: usize,
    seal: Seal,
    /// It is where its seal says, behind the nodes that it says.
    is_intact: bool,
}

impl SealedLog {
    /// Nothing met yet, of the volume with this UUID. `node_ino` is the reserved inode of the nodes.
    pub fn new(uuid: [u8; 16], node_ino: Ino) -> SealedLog {
        SealedLog { uuid, key: None, node_ino, nodes: Vec::new(), seals: Vec::new(), durable: 0 }
    }

    /// Takes up the next node.
    pub fn add(&mut self, addr: BlockAddr, block: &Block) {
        let key = *self.key.get_or_insert_with(|| SealKey::new(&self.uuid, footer(block).cp_ver.get()));
        if footer(block).is_fsync()
            && let Some(seal) = Seal::of(block, self.node_ino)
        {
            let at = self.nodes.len();
            let is_intact = self.is_intact(key, at, &seal);
            if is_intact {
                self.durable = self.durable.max(seal.durable as usize);
            }
            self.seals.push(SealedNode { at, seal, is_intact });
        }
        self.nodes.push((addr, key.of_block(block)));
    }

    /// Whether a node is where its seal says, behind the nodes that it says.
    fn is_intact(&self, key: SealKey, at: usize, seal: &Seal) -> bool {
        let answered = &self.nodes[seal.first_answered(at)..at];
        seal.position as usize == at
            && seal.durable <= seal.position
            && key.of_nodes(answered.iter().map(|&(_, hash)| hash)) == seal.before
    }

    /// Takes the last node up anew, of which a bit was turned back.
    pub fn renew_last(&mut self, block: &Block) {
        if let Some(((_, hash), key)) = self.nodes.last_mut().zip(self.key) {
            *hash = key.of_block(block);
        }
    }

    /// Nodes that the device lost or changed after it had ended a flush of them, as far as seals tell: in the log, and
    /// before those behind its end that it kept ([`crate::log_gap::LogReader::nodes_behind`]).
    pub fn unkept(&self, behind: impl IntoIterator<Item = Box<Block>>) -> usize {
        let missing = behind.into_iter().map(|block| self.missing(&block));
        self.broken().count() + missing.max().unwrap_or(0)
    }

    /// Seals that prove nothing any more though a later one says that their nodes were durable: the device lost or
    /// changed a node after it had ended a flush of it. A later seal that does not hold itself is not believed.
    fn broken(&self) -> impl Iterator<Item = &SealedNode> {
        self.seals.iter().filter(|node| node.at < self.durable && !node.is_intact)
    }

    /// The nodes that broken seals answer for, and their own: some of them were changed.
    pub fn in_doubt(&self) -> impl Iterator<Item = BlockAddr> + '_ {
        let nodes = |of: &SealedNode| &self.nodes[of.seal.first_answered(of.at)..=of.at];
        self.broken().flat_map(move |of| nodes(of).iter().map(|(addr, _)| *addr))
    }

    /// Nodes that the log lacks at its end, by the seal of a node that was found further on: it was written when
    /// they were durable.
    fn missing(&self, further_on: &Block) -> usize {
        let seal = footer(further_on).is_fsync().then(|| Seal::of(further_on, self.node_ino)).flatten();
        let durable =
            seal.filter(|seal| seal.durable <= seal.position).map_or(0, |seal| seal.durable as usize);
        durable.saturating_sub(self.nodes.len())
    }

    /// The first node of an fsync that had not returned, as not all that it depends on was stored: the log
    /// ends before it. `read` gives `None` for a block that cannot be read, or that is none of the volume's
    /// data.
    pub fn end(&self, mut read: impl FnMut(BlockAddr) -> Option<Box<Block>>) -> Option<BlockAddr> {
        let key = self.key?;
        let is_unproven = |node: &&SealedNode| !node.is_intact || !node.seal.cover.is_stored(key, &mut read);
        self.in_question().find(is_unproven).map(|node| self.nodes[node.at].0)
    }

    /// The blocks whose content decides where the log ends: while it is in force, they must stay as they are.
    pub fn compared(&self) -> impl Iterator<Item = BlockAddr> + '_ {
        self.in_question().flat_map(|node| node.seal.cover.addrs())
    }

    /// The seals of nodes that no intact seal counts as durable.
    fn in_question(&self) -> impl Iterator<Item = &SealedNode> {
        self.seals.iter().filter(|node| node.at >= self.durable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footer::footer_mut;
    use crate::shared::{self, SharedEntry};

    const NODE_INO: Ino = 1;
    const UUID: [u8; 16] = [7; 16];

    fn inode(ino: Ino, name: &[u8]) -> Block {
        let mut block = Block::ZERO;
        let f = footer_mut(&mut block);
        (f.nid, f.ino, f.cp_ver) = (ino.into(), ino.into(), 5.into());
        f.set_fsync(true);
        let raw: &mut RawInode = block.view_mut();
        raw.i_namelen = (name.len() as u32).into();
        raw.i_name[..name.len()].copy_from_slice(name);
        block
    }

    fn key() -> SealKey {
        SealKey::new(&UUID, 5)
    }

    fn data(seed: u8) -> Block {
        let mut block = Block::ZERO;
        block.0.fill(seed);
        block
    }

    fn covering(addrs: &[BlockAddr]) -> Cover {
        let blocks: Vec<_> = addrs.iter().map(|&addr| (addr, key().of_block(&data(addr as u8)))).collect();
        Cover::of(key(), &blocks).expect("few")
    }

    fn stored(addr: BlockAddr) -> Option<Box<Block>> {
        Some(Box::new(data(addr as u8)))
    }

    /// A log of sealed inodes, each with what it says to be durable and the block that it covers; block 100 + n.
    fn log(durable: &[u32]) -> Vec<Block> {
        let mut nodes: Vec<Block> = Vec::new();
        for (position, &durable) in durable.iter().enumerate() {
            let from = (durable as usize).saturating_sub(1);
            let before = key().of_nodes(nodes[from..].iter().map(|node| key().of_block(node)));
            let mut node = inode(10 + position as u32, b"name");
            let cover = covering(&[200 + position as u32]);
            Seal { position: position as u32, durable, before, cover }.put(&mut node, NODE_INO);
            nodes.push(node);
        }
        nodes
    }

    fn end_of(nodes: &[Block], read: impl FnMut(BlockAddr) -> Option<Box<Block>>) -> Option<BlockAddr> {
        let mut log = SealedLog::new(UUID, NODE_INO);
        nodes.iter().enumerate().for_each(|(n, node)| log.add(100 + n as u32, node));
        log.end(read)
    }

    #[test]
    fn a_seal_lies_behind_the_name_and_is_taken_away() {
        for name in [&b""[..], b"a-file.db", &[b'x'; 190]] {
            let mut block = inode(9, name);
            let before = block.clone();
            assert_eq!(Seal::of(&block, NODE_INO), None);
            let cover = covering(&[50, 51, 53]);
            assert!(fits(&block, NODE_INO, &cover));
            let seal = Seal { position: 3, durable: 2, before: 77, cover };
            seal.put(&mut block, NODE_INO);
            assert_eq!(Seal::of(&block, NODE_INO), Some(seal));
            assert_eq!(&block.view::<RawInode>().i_name[..name.len()], name);
            clear(&mut block, NODE_INO);
            assert!(block.0 == before.0);
        }
        assert!(!fits(&inode(9, &[b'x'; 230]), NODE_INO, &covering(&[50])), "the name leaves no room");
    }

    #[test]
    fn a_shared_node_has_its_seal_behind_its_entries() {
        let entry = SharedEntry { ino: 4, base: 600, checksum: 1, codec: 1, delta: b"delta" };
        let mut block = shared::shared_node(&[entry]);
        (footer_mut(&mut block).nid, footer_mut(&mut block).ino) = (NODE_INO.into(), NODE_INO.into());
        let seal = Seal { position: 0, durable: 0, before: 1, cover: covering(&[50]) };
        seal.put(&mut block, NODE_INO);
        shared::seal(&mut block);
        assert_eq!(Seal::of(&block, NODE_INO), Some(seal));
        assert_eq!(shared::entries(&block, 9).expect("sound"), [entry]);
    }

    #[test]
    fn neighbours_are_one_run_and_too_many_are_refused() {
        assert_eq!(covering(&[50, 51, 53]).runs.len(), 2);
        assert_eq!(covering(&[50, 51, 53]).addrs().collect::<Vec<_>>(), [50, 51, 53]);
        let apart: Vec<_> = (0..=MAX_RUNS as u32).map(|n| (n * 2, 0)).collect();
        assert!(Cover::of(key(), &apart).is_none() && Cover::of(key(), &apart[1..]).is_some());
        let long: Vec<_> = (0..=MAX_COVERED as u32).map(|addr| (addr, 0)).collect();
        assert!(Cover::of(key(), &long).is_none() && Cover::of(key(), &long[1..]).is_some());
    }

    #[test]
    fn the_log_ends_before_the_first_node_whose_blocks_were_not_stored() {
        let nodes = log(&[0, 0, 0, 0]);
        assert_eq!(end_of(&nodes, stored), None);
        for lost in 0..4 {
            let old = |addr| if addr == 200 + lost { Some(Box::new(data(0))) } else { stored(addr) };
            assert_eq!(end_of(&nodes, old), Some(100 + lost));
            assert_eq!(
                end_of(&nodes, |addr| stored(addr).filter(|_| addr != 200 + lost)),
                Some(100 + lost),
                "unreadable"
            );
        }
    }

    #[test]
    fn what_a_later_node_says_to_be_durable_is_not_looked_at() {
        let nodes = log(&[0, 1, 2, 3]);
        for changed in 0..3 {
            assert_eq!(end_of(&nodes, |addr| stored(addr).filter(|_| addr != 200 + changed)), None);
        }
        assert_eq!(end_of(&nodes, |addr| stored(addr).filter(|_| addr != 203)), Some(103));
        let mut log = SealedLog::new(UUID, NODE_INO);
        nodes.iter().enumerate().for_each(|(n, node)| log.add(100 + n as u32, node));
        assert_eq!(log.compared().collect::<Vec<_>>(), [203]);
        let mut damaged = nodes;
        damaged[0].0[40] ^= 1;
        assert_eq!(end_of(&damaged, stored), None, "a durable node that was damaged costs none behind it");
    }

    #[test]
    fn a_node_in_front_that_was_torn_ends_the_log_at_the_sealed_one_behind_it() {
        let mut nodes = log(&[0, 1, 1]);
        nodes[1].0[3000] ^= 1;
        assert_eq!(end_of(&nodes, stored), Some(102));
    }

    #[test]
    fn a_stale_node_is_not_where_its_seal_says() {
        let mut nodes = log(&[0, 1, 2]);
        nodes.remove(1);
        assert_eq!(end_of(&nodes, stored), Some(101));
    }

    #[test]
    fn what_a_device_lost_after_a_flush_is_told_by_later_seals() {
        let logged = |nodes: &[Block]| {
            let mut log = SealedLog::new(UUID, NODE_INO);
            nodes.iter().enumerate().for_each(|(n, node)| log.add(100 + n as u32, node));
            log
        };
        let nodes = log(&[0, 1, 1, 3]);
        assert_eq!(logged(&nodes).broken().count(), 0);
        // Node 1 was durable when node 3 was written, and is covered by the seal of node 2.
        let mut changed = nodes.clone();
        changed[1].0[3000] ^= 1;
        assert_eq!(logged(&changed).broken().count(), 1);
        let doubted: Vec<BlockAddr> = logged(&changed).in_doubt().collect();
        assert_eq!((doubted, logged(&nodes).in_doubt().count()), (vec![100, 101, 102], 0));
        // Of node 2 nothing says that it was durable before the last node, which then proves nothing.
        let mut torn = nodes.clone();
        torn[2].0[3000] ^= 1;
        assert_eq!(logged(&torn).broken().count(), 0);
        // The log ends before a node that is not there: node 3 knows three of them to be durable.
        assert_eq!((logged(&nodes[..1]).missing(&nodes[3]), logged(&nodes[..3]).missing(&nodes[3])), (2, 0));
        assert_eq!(logged(&nodes[..1]).missing(&nodes[2]), 0, "what it says to be durable is there");
        assert_eq!(logged(&[]).missing(&nodes[3]), 3);
        assert_eq!(logged(&[]).missing(&data(7)), 0);
        let behind = [&nodes[2], &nodes[3]].map(|node| Box::new(node.clone()));
        assert_eq!((logged(&nodes[..1]).unkept(behind), logged(&nodes).unkept([])), (2, 0));
        // A node that is taken up anew is the one that later seals answer for.
        let mut turned = logged(&nodes[..2]);
        turned.renew_last(&changed[1]);
        turned.add(102, &nodes[2]);
        turned.add(103, &nodes[3]);
        assert_eq!(turned.broken().count(), 1);
    }

    #[test]
    fn bytes_from_a_disk_never_panic() {
        let sealed = &log(&[0, 1])[1];
        let name = offset_of!(RawInode, i_namelen);
        for at in (name..name + 4 + NAME_LEN).chain(BLOCK_SIZE - 24..BLOCK_SIZE) {
            for value in [0, 1, 0x7f, 0xff] {
                let mut block = sealed.clone();
                block.0[at] = value;
                let _ = Seal::of(&block, NODE_INO);
                let mut log = SealedLog::new(UUID, NODE_INO);
                let _ = log.missing(&block);
                log.add(100, &block);
                let _ = (log.broken().count(), end_of(&[block], |_| None));
            }
        }
    }
}
