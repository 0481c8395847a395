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
//! 3. What must always be overwritten in place (pinned files, reserved homes) is in no cover: while such a
//!    block is new, no node is sealed.
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
    /// It is new, and will always be overwritten in place.
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
