//! What all records hold, made anew as one, so that the others can go: a page or node that a later record has again
//! takes room until a checkpoint otherwise.
//!
//! Invariants:
//! 1. The new record makes the same alone and behind those that it is made of. It has the last version of each page and
//!    node, each inode that has more to say than the last one, and each name that a file lost, in the order of their
//!    records.
//! 2. It is one record: a part of it behind the others would take pages and names back to what they were before.
//! 3. No node of the roll-forward log lies between the records that it is made of.
//! 4. Its pages start from blocks that these start from, and from pages that it has itself. The checksum of each is
//!    that of its last record.
//!
//! Locks: called with the ring's held; takes leaves.

use super::admission::Admission;
use crate::content::away::AwayPages;
use crate::tree::Tree;
use medfs_codec::page_checksum;
use medfs_format::node::RawInode;
use medfs_format::nvram::{Base, Body, Home, MAX_PARTS, PartOf, RawPart, Record, RecordBuilder, Tag};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Ino, NULL_ADDR, Nid};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Why records stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// The new record would take too much.
    Much,
    /// It cannot be made as things are now.
    ForNow,
}

/// What a record says of a page.
struct Version<'a> {
    ino: Ino,
    index: u32,
    body: Body<'a>,
    /// The record's number.
    sequence: u64,
    /// For each of its parts: the version of a page that it is one of.
    of: Vec<Option<usize>>,
}

/// See the module.
pub(super) struct Compaction<'a> {
    tree: &'a Tree,
    versions: Vec<Version<'a>>,
    /// The last version of each page, as far as it counts.
    last: HashMap<(Ino, u32), usize>,
    /// Most bytes of the new record.
    most: usize,
}

impl<'a> Compaction<'a> {
    /// What these records hold, in one of at most so many bytes.
    pub(super) fn of(
        tree: &'a Tree,
        records: &[(u64, Record<'a>)],
        most: usize,
    ) -> Result<RecordBuilder, Kept> {
        let mut made = RecordBuilder::default();
        Nodes { tree, bases: HashMap::new() }.add(records, &mut made)?;
        let mut pages = Compaction { tree, versions: Vec::new(), last: HashMap::new(), most };
        pages.take(records);
        pages.add(&mut made)?;
        if made.is_empty() || !made.fits() || made.size() > most { Err(Kept::Much) } else { Ok(made) }
    }

    /// Finds the versions of all pages, and which are the last ones.
    fn take(&mut self, records: &[(u64, Record<'a>)]) {
        for (_, record) in records {
            for tag in record.tags() {
                match tag {
                    Tag::Delta { ino, home: Home::Page(index), body } => {
                        let of = self.pages_of_parts(ino, body.base);
                        self.last.insert((ino, index), self.versions.len());
                        let sequence = record.stamp.sequence;
                        self.versions.push(Version { ino, index, body, sequence, of });
                    }
                    Tag::Revoke { ino, first, count } => {
                        let revoked = first..first.saturating_add(count.into());
                        self.last.retain(|&(of, index), _| of != ino || !revoked.contains(&index));
                    }
                    _ => {}
                }
            }
        }
        let (versions, in_nvram) = (&self.versions, &self.tree.since.in_nvram);
        self.last.retain(|&(ino, _), at| versions[*at].sequence >= in_nvram.counts_from(ino));
    }

    fn pages_of_parts(&self, ino: Ino, base: Base<'_>) -> Vec<Option<usize>> {
        let Base::Parts(parts) = base else { return Vec::new() };
        let version = |part: &RawPart| match part.of() {
            PartOf::Page(index) => self.last.get(&(ino, index)).copied(),
            PartOf::Block(_) => None,
        };
        parts.iter().map(version).collect()
    }

    fn is_last(&self, at: usize) -> bool {
        let Version { ino, index, .. } = self.versions[at];
        self.last.get(&(ino, index)) == Some(&at)
    }

    /// Whether a part is of something that the new record may name: a block, or a page that it has before.
    fn stays(&self, part: &RawPart, of: Option<usize>) -> bool {
        matches!(part.of(), PartOf::Block(_)) || of.is_some_and(|of| self.is_last(of))
    }

    /// What each version can start from in the new record. Of a page that it does not have, that is what this one
    /// starts from.
    fn starts(&self) -> Vec<Vec<RawPart>> {
        let mut starts: Vec<Vec<RawPart>> = Vec::with_capacity(self.versions.len());
        for version in &self.versions {
            let mut start = match version.body.base {
                Base::Block(NULL_ADDR) => Vec::new(),
                Base::Block(addr) => vec![RawPart::whole(addr)],
                Base::Parts(parts) => {
                    let found = parts.iter().zip(&version.of).flat_map(|(part, &of)| match of {
                        _ if self.stays(part, of) => vec![*part],
                        Some(of) => part.clipped(&starts[of]),
                        None => Vec::new(),
                    });
                    found.collect()
                }
            };
            start.truncate(MAX_PARTS);
            starts.push(start);
        }
        starts
    }

    /// Adds the last version of each page.
    fn add(&self, made: &mut RecordBuilder) -> Result<(), Kept> {
        let starts = self.starts();
        let mut last: Vec<usize> = self.last.values().copied().collect();
        last.sort_unstable();
        for at in last {
            let version = &self.versions[at];
            let same = match version.body.base {
                Base::Block(_) => true,
                Base::Parts(parts) => parts.iter().zip(&version.of).all(|(part, &of)| self.stays(part, of)),
            };
            if same {
                made.delta(version.ino, Home::Page(version.index), version.body);
            } else {
                self.add_anew(at, &starts[at], made)?;
            }
            if made.size() > self.most {
                return Err(Kept::Much);
            }
        }
        Ok(())
    }

    /// Adds a version with another start than its record has.
    fn add_anew(&self, at: usize, parts: &[RawPart], made: &mut RecordBuilder) -> Result<(), Kept> {
        let version = &self.versions[at];
        let content = self.content(at).ok_or(Kept::ForNow)?;
        let mut start = Block::boxed();
        for part in parts {
            let Some((from, to)) = part.ranges() else { return Err(Kept::ForNow) };
            let source = match part.of() {
                PartOf::Block(addr) => self.tree.base(addr).ok(),
                PartOf::Page(index) => {
                    let of = self.last.get(&(version.ino, index));
                    of.and_then(|&of| self.content(of))
                }
            };
            start.0[to].copy_from_slice(&source.ok_or(Kept::ForNow)?.0[from]);
        }
        let encoded = self.tree.deltas.with_codecs(|codecs| {
            Admission::Size.encode(codecs, &start, &content, BLOCK_SIZE).ok_or(Kept::ForNow)
        })?;
        let base = if parts.is_empty() { Base::Block(NULL_ADDR) } else { Base::Parts(parts) };
        let (checksum, codec, delta) = (version.body.checksum, encoded.codec as u8, &encoded.bytes[..]);
        made.delta(version.ino, Home::Page(version.index), Body { base, checksum, codec, delta });
        Ok(())
    }

    /// What a version is. The last one of a page memory may have; otherwise its records make it, where they start from
    /// blocks and from the page itself.
    fn content(&self, at: usize) -> Option<Arc<Block>> {
        let Version { ino, index, body, .. } = &self.versions[at];
        let page = u64::from(*index);
        let held = self.tree.since.in_nvram.of(*ino, |held| held.get(&page).cloned().flatten());
        let held = held.filter(|held| page_checksum(&held.0) == body.checksum);
        held.or_else(|| self.replayed(at))
    }

    /// The same from its records alone.
    fn replayed(&self, at: usize) -> Option<Arc<Block>> {
        let (mut first, mut later) = (at, Vec::new());
        while let [Some(before)] = self.versions[first].of[..] {
            if self.versions[before].index != self.versions[first].index {
                return None;
            }
            later.push(first);
            first = before;
        }
        let start = match self.versions[first].body.base {
            Base::Block(NULL_ADDR) => Vec::new(),
            Base::Block(addr) => vec![RawPart::whole(addr)],
            Base::Parts(parts) => parts.to_vec(),
        };
        let is_of_blocks = start.iter().all(|part| matches!(part.of(), PartOf::Block(_)));
        let mut block = AwayPages(self.tree).start_of(&start).ok().filter(|_| is_of_blocks)?;
        for at in [first].into_iter().chain(later.into_iter().rev()) {
            let Body { codec, checksum, delta, .. } = self.versions[at].body;
            let made = &mut Arc::make_mut(&mut block).0;
            self.tree.deltas.with_codecs(|codecs| codecs.rebuild(codec, delta, checksum, made)).ok()?;
        }
        Some(block)
    }
}

/// Nodes that records have, and the blocks that they start from.
struct Nodes<'a> {
    tree: &'a Tree,
    bases: HashMap<BlockAddr, Box<Block>>,
}

impl Nodes<'_> {
    /// Adds the last version of each node, each inode that has more to say than that, and the names that files lost.
    fn add(&mut self, records: &[(u64, Record<'_>)], made: &mut RecordBuilder) -> Result<(), Kept> {
        let tags = || records.iter().flat_map(|(_, record)| record.tags()).enumerate();
        let mut last: HashMap<(Ino, Nid), (usize, Body<'_>)> = HashMap::new();
        for (at, tag) in tags() {
            if let Tag::Delta { ino, home, body } = tag
                && let Some(nid) = node_of(ino, home)
            {
                last.insert((ino, nid), (at, body));
            }
        }
        for (at, tag) in tags() {
            match tag {
                Tag::Removed(name) => made.removed(&name),
                Tag::Delta { ino, home, body } => {
                    let Some(nid) = node_of(ino, home) else { continue };
                    let (last, newest) = last[&(ino, nid)];
                    let stays = at == last || home == Home::Named;
                    if stays || (nid == ino && self.says_more(ino, body, newest)?) {
                        made.delta(ino, home, body);
                    }
                }
                Tag::Revoke { .. } => {}
            }
        }
        Ok(())
    }

    /// Whether an inode says what a newer one does not: what changed of its direct nodes, as no later one notes that
    /// again, or that the file had no nodes where it has some now, and those that it had before are gone.
    fn says_more(&mut self, ino: Ino, body: Body<'_>, newest: Body<'_>) -> Result<bool, Kept> {
        let block = self.inode(body)?;
        if let Some(zone) = self.tree.zone_range(&block) {
            let notes = medfs_format::delta::notes(&block.0[zone], ino).map_err(|_| Kept::ForNow)?;
            if !notes.is_empty() {
                return Ok(true);
            }
        }
        let newest = self.inode(newest)?;
        let (before, after): (&RawInode, &RawInode) = (block.view(), newest.view());
        let mut nodes = before.i_nid.iter().zip(&after.i_nid);
        Ok(nodes.any(|(before, after)| before.get() == 0 && after.get() != 0))
    }

    /// An inode as a record has it.
    fn inode(&mut self, body: Body<'_>) -> Result<Box<Block>, Kept> {
        let mut block = match body.base {
            Base::Block(NULL_ADDR) => Block::boxed(),
            Base::Block(addr) => self.base(addr)?.boxed_copy(),
            Base::Parts(_) => return Err(Kept::ForNow),
        };
        let rebuilt = self
            .tree
            .deltas
            .with_codecs(|codecs| codecs.rebuild(body.codec, body.delta, body.checksum, &mut block.0));
        rebuilt.map(|()| block).map_err(|_| Kept::ForNow)
    }

    fn base(&mut self, addr: BlockAddr) -> Result<&Block, Kept> {
        match self.bases.entry(addr) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => Ok(new.insert(self.tree.io.read(addr).map_err(|_| Kept::ForNow)?)),
        }
    }
}

fn node_of(ino: Ino, home: Home) -> Option<Nid> {
    match home {
        Home::Page(_) => None,
        Home::Node(nid) => Some(nid),
        Home::Named => Some(ino),
    }
}
