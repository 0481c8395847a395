//! The node tree of a file: from a page index to the path of nodes that leads to its address.
//!
//! ```text
//! offset 0            inode: addresses of pages 0..A            (A depends on the inode's slots)
//! offset 1, 2         direct nodes                               i_nid[0], i_nid[1]
//! offset 3            indirect node, its children from 4 on      i_nid[2]
//! offset 4 + 1018     indirect node, its children follow         i_nid[3]
//! offset 5 + 2*1018   double indirect node                       i_nid[4]
//! ```

use crate::limits::{ADDRS_PER_BLOCK, NIDS_PER_BLOCK};

const A: u64 = ADDRS_PER_BLOCK as u64;
const N: u64 = NIDS_PER_BLOCK as u64;

/// Number of addresses that the nodes of a file hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fanout {
    /// The inode.
    pub inode: u64,
    /// Each direct node.
    pub block: u64,
}

impl Fanout {
    /// Of a file that is not compressed, whose inode holds `addrs_per_inode` addresses.
    pub const fn plain(addrs_per_inode: usize) -> Fanout {
        Fanout { inode: addrs_per_inode as u64, block: A }
    }
}

/// The path to the slot of a page's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePath {
    /// Index at each level: `index[0]` in `i_nid` (or, at depth 0, the slot in the inode), the last the address slot.
    index: [u16; 4],
    /// Node offset of the node reached at each level below the inode.
    offset: [u32; 4],
    /// Number of nodes below the inode on the path: 0 (in the inode) to 3.
    pub depth: usize,
}

impl NodePath {
    /// Path of page `index` in a file with this fan-out; `None` beyond the largest file.
    pub fn of(index: u64, fanout: Fanout) -> Option<NodePath> {
        let Fanout { inode: direct, block: per } = fanout;
        let mut p = NodePath { index: [0; 4], offset: [0; 4], depth: 0 };
        let mut block = index;
        if block < direct {
            p.index[0] = block as u16;
            return Some(p);
        }
        block -= direct;
        for i in 0..2u32 {
            if block < per {
                p.index = [i as u16, block as u16, 0, 0];
                p.offset = [0, 1 + i, 0, 0];
                p.depth = 1;
                return Some(p);
            }
            block -= per;
        }
        for i in 0..2u32 {
            if block < per * N {
                let base = 3 + i * (N as u32 + 1);
                let child = (block / per) as u32;
                p.index = [2 + i as u16, child as u16, (block % per) as u16, 0];
                p.offset = [0, base, base + 1 + child, 0];
                p.depth = 2;
                return Some(p);
            }
            block -= per * N;
        }
        if block < per * N * N {
            let base = 5 + 2 * N as u32;
            let outer = (block / (per * N)) as u32;
            let inner = (block / per % N) as u32;
            let mid = base + 1 + outer * (N as u32 + 1);
            p.index = [4, outer as u16, inner as u16, (block % per) as u16];
            p.offset = [0, base, mid, mid + 1 + inner];
            p.depth = 3;
            return Some(p);
        }
        None
    }

    /// Index of the first nid: which of the inode's `i_nid` the path starts with. Only for `depth > 0`.
    pub fn inode_nid(&self) -> usize {
        usize::from(self.index[0])
    }

    /// Index of the next nid inside the indirect node at `level` (1-based); only for `level < depth`.
    pub fn child_index(&self, level: usize) -> usize {
        usize::from(self.index[level])
    }

    /// Node offset of the node at `level` (1-based).
    pub fn node_offset(&self, level: usize) -> u32 {
        self.offset[level]
    }

    /// Slot of the address inside the last node of the path.
    pub fn slot(&self) -> usize {
        usize::from(self.index[self.depth])
    }
}

/// Largest number of pages of a file with this fan-out.
pub const fn max_pages(fanout: Fanout) -> u64 {
    fanout.inode + 2 * fanout.block + 2 * fanout.block * N + fanout.block * N * N
}

/// The kind of the node at an offset of the node tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// The inode itself.
    Inode,
    /// A direct node.
    Direct,
    /// An indirect node, of either level.
    Indirect,
    /// The node that holds extended attributes.
    Xattr,
}

/// Offsets in a file's tree of the nodes that its inode names.
pub const BELOW_INODE: [u32; 5] = [1, 2, 3, 4 + NIDS_PER_BLOCK as u32, 5 + 2 * NIDS_PER_BLOCK as u32];

/// Node offset that marks an xattr node.
pub const XATTR_NODE_OFFSET: u32 = (u32::MAX << 3) >> 3;

/// Kind of the node at `offset`.
pub fn node_kind(offset: u32) -> NodeKind {
    let n = N as u32;
    if offset == 0 {
        return NodeKind::Inode;
    }
    if offset == XATTR_NODE_OFFSET {
        return NodeKind::Xattr;
    }
    let indirect = offset == 3
        || offset == 4 + n
        || offset == 5 + 2 * n
        || (offset > 5 + 2 * n && (offset - 6 - 2 * n).is_multiple_of(n + 1));
    if indirect { NodeKind::Indirect } else { NodeKind::Direct }
}

/// First page whose address the direct node at `offset` (or the inode, offset 0) holds;
/// `None` where the offset is that of an indirect or an xattr node.
pub fn first_page(offset: u32, fanout: Fanout) -> Option<u64> {
    let n = N as u32;
    let direct_nodes_before = match node_kind(offset) {
        NodeKind::Inode => return Some(0),
        NodeKind::Indirect | NodeKind::Xattr => return None,
        NodeKind::Direct if offset <= 2 => offset - 1,
        NodeKind::Direct if offset <= 3 + n => offset - 2,
        NodeKind::Direct if offset <= 4 + 2 * n => offset - 3,
        NodeKind::Direct => {
            let below_double = offset - (6 + 2 * n);
            2 + 2 * n + below_double / (n + 1) * n + below_double % (n + 1) - 1
        }
    };
    Some(u64::from(direct_nodes_before) * fanout.block + fanout.inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_page_inverts_the_path() {
        let clustered = Fanout { inode: 860, block: 1016 };
        for fanout in [923, 873, 864, 14].map(Fanout::plain).into_iter().chain([clustered]) {
            let (addrs, per) = (fanout.inode, fanout.block);
            let interesting = [0, 1, 2, 3, per - 1, per, per + 1, 2 * per, 2 * per + 1];
            let bounds = [0, addrs, addrs + 2 * per, addrs + 2 * per + per * N];
            let last = addrs + 2 * per + 2 * per * N;
            for base in bounds.into_iter().chain([last, last + per * N, last + 7 * per * N]) {
                for delta in interesting {
                    for page in [base + delta, base + delta * per] {
                        let path = NodePath::of(page, fanout).unwrap();
                        let offset = if path.depth == 0 { 0 } else { path.node_offset(path.depth) };
                        let first = first_page(offset, fanout).unwrap();
                        assert_eq!(first + path.slot() as u64, page, "{path:?}");
                        for level in 1..path.depth {
                            assert_eq!(node_kind(path.node_offset(level)), NodeKind::Indirect, "{path:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_largest_file_ends_the_tree() {
        let fanout = Fanout::plain(923);
        let max = max_pages(fanout);
        assert!(NodePath::of(max - 1, fanout).is_some());
        assert!(NodePath::of(max, fanout).is_none());
    }
}
