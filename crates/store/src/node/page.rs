//! One node in memory: its block, and how much of it is due.
//!
//! Invariant: a mark of [`Dirty`] never says less than what differs from the block on the device.
//! Locks: a page's lock guards its content; the list of dirty nodes is [`super::Nodes`]'s.

use medfs_format::node::{RawInode, footer};
use medfs_format::{Block, Ino, Nid, Timestamp};
use medfs_sync::RwLock;
use std::sync::Arc;
use std::time::Duration;

/// The urgency with which a node must be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dirty {
    /// Equal to the block on disk.
    Clean,
    /// Roll-forward has what differs from elsewhere in the chain, so no fsync needs it: addresses from what
    /// fsynced blocks of the inode note, an inode from a shared record node.
    Noted,
    /// Only the block count of an inode differs, by blocks that other nodes name: roll-forward counts them again, so
    /// no fsync needs it.
    Count,
    /// Only that count differs, and times that an operation left behind: as long as these are less than [`TICK`] from
    /// those that were last written, no fsync needs it. Then the node is due as [`Dirty::Times`].
    Tick,
    /// Only times, or what is above, differ: rides on the next write, forces none by fdatasync.
    Times,
    /// Content differs.
    Full,
}

/// The changes of a node since it was last written, or its addresses noted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// These addresses, by their index in a direct node.
    Addresses(Vec<u16>),
    /// More than that.
    More,
}

impl Changed {
    pub(super) const NOTHING: Changed = Changed::Addresses(Vec::new());

    pub(super) fn add(&mut self, address: u16) {
        match self {
            Changed::Addresses(list) if list.contains(&address) => {}
            Changed::Addresses(list) if list.len() < MOST_CHANGED => list.push(address),
            _ => *self = Changed::More,
        }
    }
}

/// Changed addresses that are remembered of a node.
const MOST_CHANGED: usize = 256;

/// Times of operations that lie closer together than this need not be told apart after a crash: a tick of a kernel that
/// has a hundred of them in a second, and stamps files with their beginning.
const TICK: Duration = Duration::from_millis(10);

/// The times of an inode that operations set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamps([Timestamp; 3]);

impl Stamps {
    fn of(block: &Block) -> Stamps {
        let r: &RawInode = block.view();
        let time = |secs: u64, nanos: u32| Timestamp { secs: secs as i64, nanos: nanos % 1_000_000_000 };
        Stamps([
            time(r.i_atime.get(), r.i_atime_nsec.get()),
            time(r.i_mtime.get(), r.i_mtime_nsec.get()),
            time(r.i_ctime.get(), r.i_ctime_nsec.get()),
        ])
    }

    /// Whether each is less than a tick from the other's, earlier or later.
    fn within_a_tick_of(&self, other: &Stamps) -> bool {
        self.is_near(other, 0)
    }

    /// The same without the time of the last access.
    fn modified_within_a_tick_of(&self, other: &Stamps) -> bool {
        self.is_near(other, 1)
    }

    fn is_near(&self, other: &Stamps, from: usize) -> bool {
        self.0[from..].iter().zip(&other.0[from..]).all(|(a, b)| *a.max(b) < *a.min(b) + TICK)
    }
}

/// Content of a node in memory.
#[derive(Debug)]
pub struct NodeData {
    /// The block as it would be written.
    pub block: Arc<Block>,
    /// The highest mark that a change left; [`NodeData::due`] tells what an fsync makes of it.
    pub(crate) dirty: Dirty,
    pub(super) changed: Changed,
    /// Of an inode: the times that it was last read or written with; `None` where it never was, and for other nodes.
    written: Option<Stamps>,
}

impl NodeData {
    /// The block to change; copies it where a write of it is in flight.
    pub(crate) fn block_mut(&mut self) -> &mut Block {
        Arc::make_mut(&mut self.block)
    }
    /// The block as an inode.
    pub fn inode(&self) -> &RawInode {
        self.block.view()
    }

    pub(super) fn new(block: Block, dirty: Dirty, changed: Changed) -> NodeData {
        NodeData { block: Arc::new(block), dirty, changed, written: None }
    }

    pub(super) fn read_from_disk(block: Block) -> NodeData {
        let mut data = NodeData::new(block, Dirty::Clean, Changed::NOTHING);
        data.note_written();
        data
    }

    fn note_written(&mut self) {
        let f = footer(&self.block);
        self.written = (f.nid.get() == f.ino.get()).then(|| Stamps::of(&self.block));
    }

    /// How urgently an fsync must write the node.
    pub(super) fn due(&self) -> Dirty {
        match self.dirty {
            Dirty::Tick if !self.written.is_some_and(|w| w.within_a_tick_of(&Stamps::of(&self.block))) => {
                Dirty::Times
            }
            dirty => dirty,
        }
    }

    /// Whether the commit interval makes the node durable: times that were set, and those of a change that
    /// are not durable to a tick. A time of reading alone waits for another reason.
    pub(super) fn is_to_commit(&self) -> bool {
        match self.dirty {
            Dirty::Tick => {
                !self.written.is_some_and(|w| w.modified_within_a_tick_of(&Stamps::of(&self.block)))
            }
            dirty => dirty >= Dirty::Times,
        }
    }

    /// The content to write; the node counts as written.
    pub(super) fn take(&mut self) -> Arc<Block> {
        self.dirty = Dirty::Clean;
        self.changed = Changed::NOTHING;
        self.note_written();
        self.block.clone()
    }
}

/// A node in memory, filled or about to be.
#[derive(Debug)]
pub struct NodePage {
    /// Its number.
    pub nid: Nid,
    /// The inode that it belongs to; its own number where it is the inode.
    pub ino: Ino,
    /// `None` while the block is being read for the first time, or where that failed.
    pub(super) data: RwLock<Option<NodeData>>,
}

impl NodePage {
    /// Reads the node. The page must come from [`Nodes::get`] or [`Nodes::create`], which fill it.
    pub fn read<R>(&self, f: impl FnOnce(&NodeData) -> R) -> R {
        f(self.data.read().as_ref().expect("pages handed out are filled"))
    }
    pub(super) fn write<R>(&self, f: impl FnOnce(&mut NodeData) -> R) -> R {
        f(self.data.write().as_mut().expect("pages handed out are filled"))
    }
}
