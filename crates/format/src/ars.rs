//! The decision tree that says which files get sections of their own (ARS): what it asks of a file, and its bytes.
//!
//! The bytes are the value of the root directory's attribute [`ATTRIBUTE`], and a file of `medfs ars`:
//!
//! ```text
//! | header | node 0, the root | node 1 | ..      a node: a question and two nodes behind it, or an answer
//! ```
//!
//! Invariants: a [`Tree`] has a node at least, children stand behind their parent, and each node but the
//! first is the child of exactly one. So a judgement takes as many compares as the tree is deep, and ends.

use crate::{FormatError, Structure, crc};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a tree.
pub const TREE_MAGIC: u32 = 0x5254_464d;
/// Version of its layout.
pub const TREE_VERSION: u8 = 1;
/// Most nodes of a tree: their numbers are bytes.
pub const MAX_NODES: usize = 255;
/// In place of a feature: the node is an answer.
pub const LEAF: u8 = 0xff;
/// The root directory's attribute that holds the volume's tree.
pub const ATTRIBUTE: &[u8] = b"trusted.medfs.ars";

/// The head of a tree (12 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawTreeHeader {
    /// [`TREE_MAGIC`].
    pub magic: U32,
    /// [`TREE_VERSION`].
    pub version: u8,
    /// Zero.
    pub reserved: u8,
    /// Number of nodes that follow.
    pub nodes: U16,
    /// F2FS's CRC of all the bytes, with zeros here.
    pub checksum: U32,
}

/// A node of a tree (8 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawTreeNode {
    /// The feature that is asked for ([`Feature`]), or [`LEAF`].
    pub feature: u8,
    /// Of an answer, percent of the files it was learned from of which it was right; else zero.
    pub confidence: u8,
    /// The node for values up to the threshold; of an answer, the [`Class`].
    pub left: u8,
    /// The node for larger values; of an answer, zero.
    pub right: u8,
    /// Largest value that leads to the left; of an answer, zero.
    pub threshold: U32,
}

const HEADER: usize = size_of::<RawTreeHeader>();
const NODE: usize = size_of::<RawTreeNode>();
const _: () = assert!(HEADER == 12 && NODE == 8);

/// A feature of a file. The numbers are those on the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Feature {
    /// Pages that the file had at its largest.
    Size,
    /// Seconds from the first write to the last.
    Interval,
    /// Write requests.
    Writes,
    /// Percent of the pages read that followed the one before.
    ReadsInOrder,
    /// fsyncs.
    Fsyncs,
    /// Percent of the pages written that the file had already.
    Overwritten,
    /// Times that it was made shorter.
    Truncations,
    /// The kind that its name tells: 0 nothing, 1 a database, 2 its rollback journal, 3 its write-ahead log.
    Kind,
}

/// Number of features.
pub const FEATURES: usize = Feature::ALL.len();

/// The features of a file, by [`Feature`].
pub type Values = [u32; FEATURES];

impl Feature {
    /// All of them, by number.
    pub const ALL: [Feature; 8] = [
        Feature::Size,
        Feature::Interval,
        Feature::Writes,
        Feature::ReadsInOrder,
        Feature::Fsyncs,
        Feature::Overwritten,
        Feature::Truncations,
        Feature::Kind,
    ];

    /// Its name, for people and files.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Size => "size_pages",
            Feature::Interval => "interval_seconds",
            Feature::Writes => "writes",
            Feature::ReadsInOrder => "reads_in_order_percent",
            Feature::Fsyncs => "fsyncs",
            Feature::Overwritten => "overwritten_percent",
            Feature::Truncations => "truncations",
            Feature::Kind => "kind",
        }
    }
}

/// The place for a file's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Class {
    /// In the logs.
    #[default]
    Log,
    /// In sections of the file's own.
    Reserve,
}

impl Class {
    /// Its name, for people and files.
    pub fn name(self) -> &'static str {
        match self {
            Class::Log => "log",
            Class::Reserve => "reserve",
        }
    }
}

/// A node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeNode {
    /// A question.
    Split {
        /// What is compared.
        feature: Feature,
        /// Largest value that leads to the left.
        threshold: u32,
        /// The node for values up to it.
        left: u8,
        /// The node for larger ones.
        right: u8,
    },
    /// An answer.
    Leaf {
        /// Where the file's pages belong.
        class: Class,
        /// Percent of the files it was learned from of which it was right.
        confidence: u8,
    },
}

/// A decision tree that is sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree(Vec<TreeNode>);

fn bad(node: usize, field: &'static str, value: impl ToString) -> FormatError {
    FormatError::corrupt(Structure::DecisionTree, node as u64, field, value)
}

impl Tree {
    /// A tree of these nodes, the first one its root. Errors name the node and the field.
    pub fn new(nodes: Vec<TreeNode>) -> Result<Tree, FormatError> {
        if nodes.is_empty() || nodes.len() > MAX_NODES {
            return Err(bad(0, "nodes", format!("{}, expected 1 to {MAX_NODES}", nodes.len())));
        }
        let mut has_parent = vec![false; nodes.len()];
        has_parent[0] = true;
        for (at, node) in nodes.iter().enumerate() {
            match *node {
                TreeNode::Leaf { confidence, .. } if confidence > 100 => {
                    return Err(bad(at, "confidence", format!("{confidence} percent")));
                }
                TreeNode::Leaf { .. } => {}
                TreeNode::Split { left, right, .. } => {
                    for (field, child) in [("left", left), ("right", right)] {
                        let is_new = usize::from(child) > at
                            && has_parent
                                .get_mut(usize::from(child))
                                .is_some_and(|had| !std::mem::replace(had, true));
                        if !is_new {
                            return Err(bad(at, field, format!("{child} of {} nodes", nodes.len())));
                        }
                    }
                }
            }
        }
        match has_parent.iter().position(|had| !had) {
            Some(alone) => Err(bad(alone, "nodes", "no other node leads there")),
            None => Ok(Tree(nodes)),
        }
    }

    /// The tree that these bytes are.
    pub fn parse(bytes: &[u8]) -> Result<Tree, FormatError> {
        let Ok((header, rest)) = RawTreeHeader::ref_from_prefix(bytes) else {
            return Err(bad(0, "magic", format!("{} bytes in all", bytes.len())));
        };
        if header.magic.get() != TREE_MAGIC {
            return Err(bad(0, "magic", format!("{:#x}", header.magic.get())));
        }
        if header.version != TREE_VERSION {
            return Err(bad(0, "version", format!("{}, expected {TREE_VERSION}", header.version)));
        }
        let nodes = usize::from(header.nodes.get());
        if rest.len() != nodes * NODE {
            return Err(bad(0, "nodes", format!("{nodes}, in {} bytes", rest.len())));
        }
        if header.checksum.get() != checksum(bytes) {
            return Err(bad(0, "checksum", format!("{:#x}", header.checksum.get())));
        }
        let raw = <[RawTreeNode]>::ref_from_bytes(rest).map_err(|_| bad(0, "nodes", nodes))?;
        Tree::new(raw.iter().enumerate().map(|(at, raw)| node(at, raw)).collect::<Result<_, _>>()?)
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let header = RawTreeHeader {
            magic: TREE_MAGIC.into(),
            version: TREE_VERSION,
            reserved: 0,
            nodes: (self.0.len() as u16).into(),
            checksum: 0.into(),
        };
        let mut bytes = header.as_bytes().to_vec();
        self.0.iter().for_each(|node| bytes.extend_from_slice(raw(node).as_bytes()));
        let sum = checksum(&bytes);
        bytes[HEADER - 4..HEADER].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Its nodes, the root first.
    pub fn nodes(&self) -> &[TreeNode] {
        &self.0
    }

    /// The numbers of the nodes that a file comes through, from the root to the answer.
    pub fn path<'a>(&'a self, values: &'a Values) -> impl Iterator<Item = usize> + 'a {
        std::iter::successors(Some(0), |&at| self.next(at, values))
    }

    /// Judges a file: the place for its pages, and the confidence in percent.
    pub fn judge(&self, values: &Values) -> (Class, u8) {
        let mut at = 0;
        while let Some(next) = self.next(at, values) {
            at = next;
        }
        match self.0[at] {
            TreeNode::Leaf { class, confidence } => (class, confidence),
            TreeNode::Split { .. } => unreachable!("a question has two nodes behind it"),
        }
    }

    fn next(&self, at: usize, values: &Values) -> Option<usize> {
        match self.0[at] {
            TreeNode::Split { feature, threshold, left, right } => {
                Some(usize::from(if values[feature as usize] <= threshold { left } else { right }))
            }
            TreeNode::Leaf { .. } => None,
        }
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc::f2fs_without(bytes, HEADER - 4..HEADER)
}

fn node(at: usize, raw: &RawTreeNode) -> Result<TreeNode, FormatError> {
    let zero = |field, value: u32| if value == 0 { Ok(()) } else { Err(bad(at, field, value)) };
    if raw.feature == LEAF {
        zero("right", raw.right.into())?;
        zero("threshold", raw.threshold.get())?;
        let class = match raw.left {
            0 => Class::Log,
            1 => Class::Reserve,
            other => return Err(bad(at, "left", format!("class {other}"))),
        };
        return Ok(TreeNode::Leaf { class, confidence: raw.confidence });
    }
    zero("confidence", raw.confidence.into())?;
    let feature =
        *Feature::ALL.get(usize::from(raw.feature)).ok_or_else(|| bad(at, "feature", raw.feature))?;
    Ok(TreeNode::Split { feature, threshold: raw.threshold.get(), left: raw.left, right: raw.right })
}

fn raw(node: &TreeNode) -> RawTreeNode {
    match *node {
        TreeNode::Split { feature, threshold, left, right } => {
            RawTreeNode { feature: feature as u8, confidence: 0, left, right, threshold: threshold.into() }
        }
        TreeNode::Leaf { class, confidence } => {
            RawTreeNode { feature: LEAF, confidence, left: class as u8, right: 0, threshold: 0.into() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(class: Class) -> TreeNode {
        TreeNode::Leaf { class, confidence: 90 }
    }

    fn split(feature: Feature, threshold: u32, left: u8, right: u8) -> TreeNode {
        TreeNode::Split { feature, threshold, left, right }
    }

    fn sample() -> Vec<TreeNode> {
        vec![
            split(Feature::Writes, 100, 1, 2),
            leaf(Class::Log),
            split(Feature::Kind, 0, 4, 3),
            leaf(Class::Reserve),
            leaf(Class::Log),
        ]
    }

    /// Bytes with a checksum that is right, whatever they say.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let sum = checksum(&bytes);
        bytes[HEADER - 4..HEADER].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_tree_is_its_bytes_and_judges_by_them() {
        let tree = Tree::new(sample()).unwrap();
        let bytes = tree.to_bytes();
        assert_eq!(bytes.len(), HEADER + 5 * NODE);
        let read = Tree::parse(&bytes).unwrap();
        assert_eq!(read, tree);
        let mut values = Values::default();
        for (writes, kind, class, path) in [
            (100, 1, Class::Log, &[0, 1][..]),
            (101, 1, Class::Reserve, &[0, 2, 3]),
            (u32::MAX, 0, Class::Log, &[0, 2, 4]),
        ] {
            (values[Feature::Writes as usize], values[Feature::Kind as usize]) = (writes, kind);
            assert_eq!(read.judge(&values), (class, 90));
            assert_eq!(read.path(&values).collect::<Vec<_>>(), path);
        }
    }

    #[test]
    fn features_have_their_numbers_and_names_of_their_own() {
        let names: std::collections::BTreeSet<_> = Feature::ALL.iter().map(|f| f.name()).collect();
        assert_eq!(names.len(), FEATURES);
        assert!(Feature::ALL.iter().enumerate().all(|(n, f)| *f as usize == n));
    }

    #[test]
    fn what_is_no_tree_is_refused_with_the_field() {
        let wrong = |nodes: Vec<TreeNode>| Tree::new(nodes).unwrap_err().to_string();
        let with = |at: usize, node: TreeNode| {
            let mut nodes = sample();
            nodes[at] = node;
            wrong(nodes)
        };
        assert!(wrong(vec![]).contains("field nodes"));
        assert!(wrong(vec![leaf(Class::Log); 256]).contains("field nodes"));
        assert!(with(2, split(Feature::Kind, 0, 0, 3)).contains("decision tree 2: field left"), "a cycle");
        assert!(with(2, split(Feature::Kind, 0, 2, 3)).contains("field left"), "its own child");
        assert!(with(2, split(Feature::Kind, 0, 4, 4)).contains("field right"), "two parents");
        assert!(with(2, split(Feature::Kind, 0, 4, 5)).contains("field right is wrong (5 of 5 nodes)"));
        assert!(with(2, leaf(Class::Log)).contains("decision tree 3: field nodes"), "out of reach");
        let apart = [leaf(Class::Log), split(Feature::Kind, 0, 2, 3), split(Feature::Kind, 0, 1, 4)];
        let apart = apart.into_iter().chain([leaf(Class::Log); 2]).collect();
        assert!(wrong(apart).contains("decision tree 2: field left"), "a cycle out of reach");
        assert!(with(1, TreeNode::Leaf { class: Class::Log, confidence: 101 }).contains("field confidence"));
    }

    #[test]
    fn damaged_bytes_and_unknown_numbers_are_refused() {
        let bytes = Tree::new(sample()).unwrap().to_bytes();
        for at in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 0x10;
            assert!(Tree::parse(&torn).is_err(), "byte {at}");
            assert!(Tree::parse(&bytes[..at]).is_err(), "{at} bytes");
        }
        let changed = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            Tree::parse(&sealed(bytes)).unwrap_err().to_string()
        };
        assert!(changed(4, 2).contains("field version"));
        assert!(changed(6, 6).contains("field nodes"));
        assert!(changed(HEADER, FEATURES as u8).contains("field feature"));
        assert!(changed(HEADER + 1, 1).contains("field confidence"));
        assert!(changed(HEADER + NODE + 2, 2).contains("field left is wrong (class 2)"));
        assert!(changed(HEADER + NODE + 3, 1).contains("field right"));
        assert!(changed(HEADER + NODE + 7, 1).contains("field threshold"));
    }

    #[test]
    fn any_bytes_are_a_tree_that_answers_or_none() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        let mut trees = 0;
        for _ in 0..20_000 {
            let mut bytes = Tree::new(sample()).unwrap().to_bytes();
            for _ in 0..=random() % 3 {
                let at = random() as usize % bytes.len();
                bytes[at] = if random() % 2 == 0 { random() as u8 % 8 } else { LEAF };
            }
            if let Ok(tree) = Tree::parse(&sealed(bytes)) {
                trees += 1;
                let values: Values = std::array::from_fn(|_| random());
                assert!(tree.path(&values).count() <= tree.nodes().len());
                tree.judge(&values);
            }
        }
        assert!(trees > 100, "{trees}");
    }
}
