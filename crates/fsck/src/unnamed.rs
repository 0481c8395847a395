//! What nobody names, of the blocks and nodes that are in use ([`crate::named`]).

use foldhash::{HashMap, HashSet};
use medfs_format::node::NIDS_PER_BLOCK;
use medfs_format::{BlockAddr, Ino, Nid};

/// Node ids of an indirect node.
const N: u32 = NIDS_PER_BLOCK as u32;
/// Places of the indirect nodes that an inode names, and of the double one.
const FIRST: u32 = 3;
const SECOND: u32 = 4 + N;
const DOUBLE: u32 = 5 + 2 * N;

/// Slots of a node, each with the block that is its own.
pub(crate) type Slots = Vec<(u16, BlockAddr)>;

/// What is in use and named by nobody, or by others than it says.
#[derive(Default)]
pub(crate) struct Unnamed {
    /// Blocks that more than one slot names.
    pub(crate) twice: HashSet<BlockAddr>,
    /// The inodes that name such a block as their first.
    pub(crate) namers: HashMap<BlockAddr, Vec<Ino>>,
    /// Blocks by the node whose they are, each with its slot, in the order of these; no two of one slot.
    pub(crate) blocks: HashMap<Nid, Slots>,
    /// The nodes of each file that have such blocks.
    pub(crate) holders: HashMap<Ino, Vec<Nid>>,
    /// Nodes by their file, each with its place there, in the order of these.
    pub(crate) nodes: HashMap<Ino, Vec<(u32, Nid)>>,
    /// The slot that names a block, where the summary names another one.
    pub(crate) disputed: HashMap<BlockAddr, (Nid, u16)>,
}

impl Unnamed {
    /// The block in use that nobody names, of which the summary says that this slot has it; `None` where there is none,
    /// or more than one.
    pub(crate) fn block_of(&self, nid: Nid, slot: u16) -> Option<BlockAddr> {
        let blocks = self.blocks.get(&nid)?;
        blocks.binary_search_by_key(&slot, |(slot, _)| *slot).ok().map(|at| blocks[at].1)
    }

    /// The node in use that nobody names, and which says that this is its place in the file.
    pub(crate) fn node_at(&self, ino: Ino, offset: u32) -> Option<Nid> {
        let nodes = self.nodes.get(&ino)?;
        nodes.binary_search_by_key(&offset, |(place, _)| *place).ok().map(|at| nodes[at].1)
    }

    /// Whether a block is another slot's than its summary says: one names it that has no other.
    pub(crate) fn is_anothers(&self, addr: BlockAddr) -> bool {
        let Some(&(nid, slot)) = self.disputed.get(&addr) else { return false };
        self.block_of(nid, slot).is_none()
    }
}

/// Takes out what two have a claim to.
pub(crate) fn leave_single<T: Copy>(sorted: &mut Vec<T>, key: impl Fn(&T) -> u64) {
    let single: Vec<T> =
        sorted.chunk_by(|a, b| key(a) == key(b)).filter(|same| same.len() == 1).flatten().copied().collect();
    *sorted = single;
}

/// The place of the node above one of a file, and where in it that is named; `None` where the inode names it, as all
/// that no node above could name.
pub(crate) fn above(offset: u32) -> Option<(u32, usize)> {
    let below = |above: u32| (above, (offset - above - 1) as usize);
    match offset {
        _ if [0, 1, 2, FIRST, SECOND, DOUBLE].contains(&offset) => None,
        0..DOUBLE if offset < SECOND => Some(below(FIRST)),
        0..DOUBLE => Some(below(SECOND)),
        _ => {
            let within = offset - DOUBLE - 1;
            let indirect = DOUBLE + 1 + within / (N + 1) * (N + 1);
            match offset == indirect {
                true => Some((DOUBLE, (within / (N + 1)) as usize)),
                false => Some(below(indirect)),
            }
        }
    }
}
