//! Seals of the roll-forward log as it is written: what the next sealed node covers, and which blocks must
//! stay as sealed nodes found them.
//!
//! Purpose: the last node of an fsync is written with the blocks that it names, and one flush serves all of
//! them ([`medfs_format::seal`]).
//!
//! Invariants:
//! 1. A block that a sealed node covers is not overwritten in place until a node that knows the sealed one to
//!    be durable is durable itself, or a checkpoint: recovery compares it. Blocks are not given to others
//!    before the next checkpoint anyway.
//! 2. Blocks that were overwritten in place since the last flush are in no cover, as they would be barred
//!    again and again. A node that says more of their file than times waits for a flush.
//! 3. What must always be overwritten in place (pinned files), or will be before long, is in no cover: while
//!    such a block is new, no node is sealed.
//! 4. Nodes are taken up in the order in which the log has them, each with the content that is written.
//!
//! Locks: one, a leaf; not held during I/O, nor while content is hashed. A thread that places nodes holds
//! `chain`, or keeps all operations out.

use medfs_format::seal::{self, Cover, MAX_COVERED, Seal, SealKey};
use medfs_format::{Block, BlockAddr, Ino};
use medfs_sync::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The treatment of a data block that is about to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planned {
    /// It is overwritten, of this file.
    InPlace(Ino),
    /// It is new, and will be overwritten in place: always, or before long.
    Stays,
}

/// A data block written since the last flush.
#[derive(Debug, Clone, Copy)]
struct Pending {
    hash: u64,
    /// The write mark behind it.
    mark: u64,
    planned: Option<Planned>,
}

/// A node of the log.
#[derive(Debug, Clone, Copy)]
struct Node {
    hash: u64,
    /// The write mark behind it; none while it is on its way.
    mark: Option<u64>,
    /// What its seal says to be durable.
    claims: u32,
}

#[derive(Debug)]
struct State {
    key: SealKey,
    pending: BTreeMap<BlockAddr, Pending>,
    /// Writes up to this mark are not all in `pending`.
    incomplete: u64,
    planned: HashMap<BlockAddr, Planned>,
    /// Nodes from position `first` on: the last that was known to be durable, and those behind it.
    nodes: VecDeque<Node>,
    first: u32,
    /// Nodes that are known to be durable.
    durable: u32,
    /// Nodes of which durable nodes say that they are durable.
    settled: u32,
    /// Covered blocks, each with the position behind the last node that covers it.
    barred: HashMap<BlockAddr, u32>,
    /// The writes that were durable when this was last brought up to date.
    caught_up: u64,
    /// A page could not be overwritten for its seal: the next node gets none, so that the page can be after that.
    wants_flush: bool,
}

impl State {
    fn new(key: SealKey) -> State {
        State {
            key,
            pending: BTreeMap::new(),
            incomplete: 0,
            planned: HashMap::new(),
            nodes: VecDeque::new(),
            first: 0,
            durable: 0,
            settled: 0,
            barred: HashMap::new(),
            caught_up: 0,
            wants_flush: false,
        }
    }

    /// Takes up what flushes have made durable: writes up to this mark.
    fn catch_up(&mut self, durable_writes: u64) {
        if self.caught_up == durable_writes {
            return;
        }
        self.caught_up = durable_writes;
        self.pending.retain(|_, pending| pending.mark > durable_writes);
        let durable = |node: &Node| node.mark.is_some_and(|mark| mark <= durable_writes);
        while let Some(node) =
            self.nodes.get((self.durable - self.first) as usize).filter(|node| durable(node))
        {
            self.settled = self.settled.max(node.claims);
            self.durable += 1;
        }
        while self.first + 1 < self.durable {
            self.nodes.pop_front();
            self.first += 1;
        }
        let settled = self.settled;
        self.barred.retain(|_, behind| *behind > settled);
    }
}

/// The seals of a volume.
#[derive(Debug)]
pub struct Seals {
    /// Whether any node is sealed; where none is, seals are taken away all the same.
    on: bool,
    uuid: [u8; 16],
    node_ino: Ino,
    state: Mutex<State>,
}

impl Seals {
    /// Of the volume with this UUID, whose last checkpoint nodes name so in their footers. `node_ino` is the
    /// reserved inode of the nodes; `on`: whether any node is sealed.
    pub fn new(on: bool, uuid: [u8; 16], node_ino: Ino, cp_ver: u64) -> Seals {
        Seals { on, uuid, node_ino, state: Mutex::new(State::new(SealKey::new(&uuid, cp_ver))) }
    }

    /// A checkpoint is durable: the log begins anew.
    pub(crate) fn checkpointed(&self, cp_ver: u64) {
        *self.state.lock() = State::new(SealKey::new(&self.uuid, cp_ver));
    }

    /// Says of a data block that is about to be written what must become of it.
    pub fn plan(&self, addr: BlockAddr, planned: Planned) {
        if self.on {
            self.state.lock().planned.insert(addr, planned);
        }
    }

    /// Whether a block must not be overwritten for the sake of a seal.
    pub fn bars(&self, addr: BlockAddr, durable_writes: u64) -> bool {
        let mut state = self.state.lock();
        if !state.barred.contains_key(&addr) {
            return false;
        }
        state.catch_up(durable_writes);
        let bars = state.barred.contains_key(&addr);
        state.wants_flush |= bars;
        bars
    }

    /// Data blocks were written; `mark` is the write mark behind them, `durable_writes` that of the last flush.
    pub(crate) fn wrote(&self, addr: BlockAddr, blocks: &[&Block], mark: u64, durable_writes: u64) {
        if !self.on {
            return;
        }
        let key = {
            let mut state = self.state.lock();
            if state.pending.len() + blocks.len() > MAX_COVERED {
                state.catch_up(durable_writes);
            }
            if state.pending.len() + blocks.len() > MAX_COVERED {
                state.incomplete = state.incomplete.max(mark);
                for at in (addr..).take(blocks.len()) {
                    state.planned.remove(&at);
                }
                return;
            }
            state.key
        };
        let hashes: Vec<u64> = blocks.iter().map(|block| key.of_block(block)).collect();
        let mut state = self.state.lock();
        for (addr, hash) in (addr..).zip(hashes) {
            let planned = state.planned.remove(&addr);
            let before = state.pending.get(&addr).filter(|before| before.mark > durable_writes);
            // What is overwritten before it was durable is as new as before.
            let planned = before.map_or(planned, |before| before.planned);
            state.pending.insert(addr, Pending { hash, mark, planned });
        }
    }

    /// The blocks that a seal made now would cover; `None` where the node cannot be sealed, so that a flush is needed.
    pub fn cover(&self, durable_writes: u64) -> Option<Cover> {
        if !self.on {
            return None;
        }
        let mut state = self.state.lock();
        state.catch_up(durable_writes);
        if std::mem::take(&mut state.wants_flush) || state.incomplete > durable_writes {
            return None;
        }
        let mut blocks = Vec::with_capacity(state.pending.len());
        for (&addr, pending) in &state.pending {
            match pending.planned {
                None => blocks.push((addr, pending.hash)),
                Some(Planned::InPlace(_)) => {}
                Some(Planned::Stays) => return None,
            }
        }
        Cover::of(state.key, &blocks)
    }

    /// Whether blocks of a file, or of any, were overwritten since the last flush, or may have been.
    pub fn overwrote(&self, of: Option<Ino>, durable_writes: u64) -> bool {
        let mut state = self.state.lock();
        state.catch_up(durable_writes);
        state.incomplete > durable_writes
            || state.pending.values().any(|pending| match pending.planned {
                Some(Planned::InPlace(ino)) => of.is_none_or(|of| of == ino),
                Some(Planned::Stays) | None => false,
            })
    }

    /// Whether a node has room for a seal of these blocks.
    pub fn fit(&self, node: &Block, cover: &Cover) -> bool {
        seal::fits(node, self.node_ino, cover)
    }

    /// Seals the node that is placed next, or takes the seal away that it had. Returns how many nodes the
    /// seal says to be durable.
    pub fn seal(&self, node: &mut Block, cover: Option<&Cover>, durable_writes: u64) -> u32 {
        let Some(cover) = cover.filter(|cover| self.fit(node, cover)) else {
            seal::clear(node, self.node_ino);
            return 0;
        };
        let mut state = self.state.lock();
        state.catch_up(durable_writes);
        let position = state.first + state.nodes.len() as u32;
        let durable = state.durable;
        let before = state.key.of_nodes(state.nodes.iter().map(|node| node.hash));
        Seal { position, durable, before, cover: cover.clone() }.put(node, self.node_ino);
        for addr in cover.addrs() {
            state.barred.insert(addr, position + 1);
        }
        durable
    }

    /// Takes up a node of the log as it is written, whose seal says that so many are durable.
    pub fn placed(&self, node: &Block, claims: u32) {
        if self.on {
            let key = self.state.lock().key;
            let hash = key.of_block(node);
            self.state.lock().nodes.push_back(Node { hash, mark: None, claims });
        }
    }

    /// The nodes that were taken up are written; `mark` is the write mark behind them.
    pub(crate) fn nodes_written(&self, mark: u64) {
        let mut state = self.state.lock();
        state
            .nodes
            .iter_mut()
            .rev()
            .take_while(|node| node.mark.is_none())
            .for_each(|node| node.mark = Some(mark));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_format::node::footer_mut;

    const NODE_INO: Ino = 1;

    fn seals() -> Seals {
        Seals::new(true, [3; 16], NODE_INO, 5)
    }

    fn inode(ino: Ino) -> Block {
        let mut block = Block::ZERO;
        let f = footer_mut(&mut block);
        (f.nid, f.ino) = (ino.into(), ino.into());
        block
    }

    fn covered(seals: &Seals, durable: u64) -> Option<Vec<BlockAddr>> {
        seals.cover(durable).map(|cover| cover.addrs().collect())
    }

    /// Writes a node of the log as an fsync does; `mark` is behind it.
    fn log(seals: &Seals, node: &mut Block, mark: u64, durable: u64) {
        let cover = seals.cover(durable).expect("it can be sealed");
        let claims = seals.seal(node, Some(&cover), durable);
        seals.placed(node, claims);
        seals.nodes_written(mark);
    }

    fn seal_of(node: &Block) -> Seal {
        Seal::of(node, NODE_INO).expect("it is sealed")
    }

    #[test]
    fn what_is_new_since_the_flush_is_covered_and_what_was_overwritten_is_not() {
        let seals = seals();
        seals.wrote(100, &[&Block::ZERO, &Block::ZERO], 2, 0);
        seals.plan(200, Planned::InPlace(50));
        seals.wrote(200, &[&Block::ZERO], 3, 0);
        assert_eq!(covered(&seals, 0), Some(vec![100, 101]));
        assert!(seals.overwrote(None, 0) && seals.overwrote(Some(50), 0) && !seals.overwrote(Some(51), 0));
        assert_eq!(covered(&seals, 2), Some(vec![]), "a flush made them durable");
        assert!(seals.overwrote(Some(50), 2) && !seals.overwrote(None, 3));
    }

    #[test]
    fn what_is_written_twice_before_a_flush_is_as_new_as_before() {
        let seals = seals();
        let mut other = Block::ZERO;
        other.0[0] = 1;
        seals.wrote(100, &[&Block::ZERO], 1, 0);
        let first = seals.cover(0);
        seals.plan(100, Planned::InPlace(50));
        seals.wrote(100, &[&other], 2, 0);
        assert_eq!(covered(&seals, 0), Some(vec![100]));
        assert_ne!(seals.cover(0), first, "with the content that it has now");
        assert!(!seals.overwrote(None, 0));
    }

    #[test]
    fn a_new_block_that_stays_in_place_keeps_nodes_from_being_sealed() {
        let seals = seals();
        seals.plan(300, Planned::Stays);
        seals.wrote(300, &[&Block::ZERO], 4, 3);
        assert_eq!((covered(&seals, 3), seals.overwrote(None, 3)), (None, false));
        assert_eq!(covered(&seals, 4), Some(vec![]));
    }

    #[test]
    fn a_covered_block_is_barred_until_a_durable_node_knows_that_its_own_is() {
        let seals = seals();
        seals.wrote(100, &[&Block::ZERO], 1, 0);
        let mut first = inode(10);
        log(&seals, &mut first, 2, 0);
        assert!(seals.bars(100, 0) && !seals.bars(101, 0));
        assert_eq!(covered(&seals, 0), None, "the page is to be overwritten: a flush is wanted");
        assert!(covered(&seals, 0).is_some(), "once");
        assert!(seals.bars(100, 2), "that the node is durable is in no node yet");
        assert_eq!(covered(&seals, 2), None);
        let mut second = inode(11);
        log(&seals, &mut second, 3, 2);
        assert_eq!((seal_of(&second).position, seal_of(&second).durable), (1, 1));
        assert!(seals.bars(100, 2), "the second node may be lost");
        assert!(!seals.bars(100, 3));
    }

    #[test]
    fn seals_follow_the_nodes_before_them_with_what_is_durable() {
        let seals = seals();
        let mut nodes = [inode(10), inode(11), inode(12)];
        for (node, mark) in nodes.iter_mut().zip(1..) {
            log(&seals, node, mark, mark / 3);
        }
        let of = nodes.each_ref().map(seal_of);
        assert_eq!(of.each_ref().map(|seal| (seal.position, seal.durable)), [(0, 0), (1, 0), (2, 1)]);
        let key = SealKey::new(&[3; 16], 5);
        let hashes = [key.of_block(&nodes[0]), key.of_block(&nodes[1])];
        assert_eq!(of[2].before, key.of_nodes(hashes), "from the last durable one on");
        // Once more of them are durable, those before need not be known.
        let mut last = inode(13);
        log(&seals, &mut last, 9, 3);
        assert_eq!((seal_of(&last).position, seal_of(&last).durable), (3, 3));
        assert_eq!(seal_of(&last).before, key.of_nodes([key.of_block(&nodes[2])]));
    }

    #[test]
    fn more_blocks_than_a_seal_covers_need_a_flush() {
        let seals = seals();
        let blocks = vec![&Block::ZERO; MAX_COVERED];
        seals.wrote(1000, &blocks, 1, 0);
        assert_eq!(covered(&seals, 0).map(|all| all.len()), Some(MAX_COVERED));
        seals.plan(9000, Planned::InPlace(50));
        seals.wrote(9000, &[&Block::ZERO], 2, 0);
        assert!(covered(&seals, 0).is_none() && seals.overwrote(Some(51), 0), "nobody knows of what");
        assert!(covered(&seals, 1).is_none());
        assert_eq!((covered(&seals, 2), seals.overwrote(None, 2)), (Some(vec![]), false));
        seals.wrote(5000, &blocks, 3, 2);
        seals.wrote(9000, &[&Block::ZERO], 4, 3);
        assert_eq!(covered(&seals, 3), Some(vec![9000]), "a flush makes room");
    }

    #[test]
    fn a_node_without_room_or_cover_loses_the_seal_that_it_had() {
        let seals = seals();
        let mut node = inode(10);
        log(&seals, &mut node, 1, 0);
        assert!(Seal::of(&node, NODE_INO).is_some());
        assert_eq!((seals.seal(&mut node, None, 0), Seal::of(&node, NODE_INO)), (0, None));
        let (mut direct, cover) = (inode(10), seals.cover(0).expect("it can be sealed"));
        footer_mut(&mut direct).nid = 11.into();
        assert!(!seals.fit(&direct, &cover) && seals.fit(&node, &cover));
        assert_eq!((seals.seal(&mut direct, Some(&cover), 0), Seal::of(&direct, NODE_INO)), (0, None));
    }

    #[test]
    fn after_a_checkpoint_the_log_begins_anew() {
        let seals = seals();
        seals.wrote(100, &[&Block::ZERO], 1, 0);
        let mut node = inode(10);
        log(&seals, &mut node, 2, 0);
        seals.checkpointed(6);
        assert!(!seals.bars(100, 0) && covered(&seals, 0) == Some(vec![]));
        let mut next = inode(10);
        log(&seals, &mut next, 3, 0);
        assert_eq!(seal_of(&next).position, 0);
        assert_ne!(seal_of(&next).before, seal_of(&node).before, "of another key");
    }

    #[test]
    fn where_none_is_sealed_nothing_is_barred_and_seals_are_taken_away() {
        let on = seals();
        let mut node = inode(10);
        log(&on, &mut node, 1, 0);
        let off = Seals::new(false, [3; 16], NODE_INO, 5);
        off.plan(100, Planned::Stays);
        off.wrote(100, &[&Block::ZERO], 1, 0);
        off.placed(&node, 0);
        assert!(off.cover(0).is_none() && !off.overwrote(None, 0) && !off.bars(100, 0));
        assert_eq!((off.seal(&mut node, None, 0), Seal::of(&node, NODE_INO)), (0, None));
    }
}
