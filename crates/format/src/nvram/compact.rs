//! Which of the tags of a journal still matter, and the records that hold these alone.
//!
//! Invariant: replaying what is kept, from the same volume, makes what replaying all makes. Every record that is kept
//! has its tags in their order, and the stamp that it had, but for number and generation.

use super::record::{Base, Home, PartOf, Record, RecordBuilder, Stamp, Tag};
use crate::Ino;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What the records behind one say, from the last one back.
#[derive(Debug, Default)]
struct Behind {
    /// Pages that a later record makes, or says nothing of any more.
    superseded: HashMap<Ino, Pages>,
    /// Pages, as they are just before, that later ones which are kept start from.
    needed: HashSet<(Ino, u32)>,
    /// Files of which a later record has the inode, made after so many blocks of the chain.
    inodes: HashMap<Ino, u64>,
    /// Files of which records have other nodes too: which of these a tree had between them only all records tell.
    with_nodes: HashSet<Ino>,
}

/// Ranges of pages that do not touch: the end of each by its first page.
#[derive(Debug, Default)]
struct Pages(BTreeMap<u64, u64>);

impl Pages {
    fn contains(&self, page: u32) -> bool {
        let before = self.0.range(..=u64::from(page)).next_back();
        before.is_some_and(|(_, &end)| u64::from(page) < end)
    }

    fn insert(&mut self, mut first: u64, mut end: u64) {
        while let Some((&start, &stop)) = self.0.range(..=end).next_back().filter(|&(_, &stop)| stop >= first)
        {
            self.0.remove(&start);
            (first, end) = (first.min(start), end.max(stop));
        }
        self.0.insert(first, end);
    }
}

impl Behind {
    fn of(records: &[(u64, Record<'_>)]) -> Behind {
        let tags = records.iter().flat_map(|(_, record)| record.tags());
        let with_nodes = tags.filter_map(|tag| match tag {
            Tag::Delta { ino, home: Home::Node(nid), .. } => (nid != ino).then_some(ino),
            _ => None,
        });
        Behind { with_nodes: with_nodes.collect(), ..Behind::default() }
    }

    /// Whether a tag matters, given those behind it.
    fn keeps(&mut self, tag: &Tag<'_>, stamp: &Stamp) -> bool {
        match *tag {
            Tag::Removed(_) => true,
            Tag::Revoke { ino, first, count } => {
                let pages = self.superseded.entry(ino).or_default();
                pages.insert(first.into(), u64::from(first) + u64::from(count));
                true
            }
            Tag::Delta { ino, home: Home::Page(page), body } => {
                let is_needed = self.needed.remove(&(ino, page));
                let pages = self.superseded.entry(ino).or_default();
                if !is_needed && pages.contains(page) {
                    return false;
                }
                pages.insert(page.into(), u64::from(page) + 1);
                if let Base::Parts(parts) = body.base {
                    let pages = parts.iter().filter_map(|part| match part.of() {
                        PartOf::Page(index) => Some((ino, index)),
                        PartOf::Block(_) => None,
                    });
                    self.needed.extend(pages);
                }
                true
            }
            Tag::Delta { ino, home: Home::Named, .. } => {
                self.inodes.insert(ino, stamp.chain);
                true
            }
            Tag::Delta { ino, .. } if self.with_nodes.contains(&ino) => true,
            Tag::Delta { ino, .. } => self.inodes.insert(ino, stamp.chain) != Some(stamp.chain),
        }
    }
}

/// The records that are left of these without what later ones of them supersede.
pub fn without_superseded(records: &[(u64, Record<'_>)]) -> Vec<(Stamp, RecordBuilder)> {
    let mut behind = Behind::of(records);
    let mut left = Vec::new();
    for (_, record) in records.iter().rev() {
        let tags: Vec<_> = record.tags().collect();
        let mut kept: Vec<_> = tags.iter().rev().filter(|tag| behind.keeps(tag, &record.stamp)).collect();
        kept.reverse();
        if kept.is_empty() {
            continue;
        }
        let mut builder = RecordBuilder::default();
        kept.into_iter().for_each(|tag| builder.add(tag));
        left.push((record.stamp, builder));
    }
    left.reverse();
    left
}

#[cfg(test)]
mod tests {
    use super::super::record::{Body, RawPart};
    use super::*;
    use proptest::prelude::*;

    /// What a tag is to say of a page of a file, or of its nodes.
    #[derive(Debug, Clone)]
    enum Said {
        Page { from: Option<u32>, delta: u8 },
        Revoked { count: u16 },
        Inode { named: bool, delta: u8 },
        Node,
    }

    fn said() -> impl Strategy<Value = (Ino, u32, Said)> {
        let said = prop_oneof![
            6 => (proptest::option::of(0..4u32), any::<u8>()).prop_map(|(from, delta)| Said::Page { from, delta }),
            1 => (1..3u16).prop_map(|count| Said::Revoked { count }),
            3 => (any::<bool>(), any::<u8>()).prop_map(|(named, delta)| Said::Inode { named, delta }),
            1 => Just(Said::Node),
        ];
        (1..4u32, 0..4u32, said)
    }

    fn record(tags: &[(Ino, u32, Said)], stamp: Stamp) -> Vec<u8> {
        let mut builder = RecordBuilder::default();
        for (ino, page, said) in tags {
            let body = |base, delta| Body { base, checksum: 0, codec: 2, delta };
            match said {
                Said::Page { from: None, delta } => {
                    builder.delta(*ino, Home::Page(*page), body(Base::Block(9), &[*delta]));
                }
                Said::Page { from: Some(from), delta } => {
                    let parts = [RawPart::new(PartOf::Page(*from), 0, 0, 4096)];
                    builder.delta(*ino, Home::Page(*page), body(Base::Parts(&parts), &[*delta]));
                }
                Said::Revoked { count } => builder.revoke(*ino, *page, *count),
                Said::Inode { named, delta } => {
                    let home = if *named { Home::Named } else { Home::Node(*ino) };
                    builder.delta(*ino, home, body(Base::Block(9), &[*delta]));
                }
                Said::Node => builder.delta(*ino, Home::Node(100), body(Base::Block(9), &[1])),
            }
        }
        builder.seal(stamp)
    }

    type Replayed = (HashMap<(Ino, u32), Vec<u8>>, HashMap<Ino, Vec<u8>>);

    /// Pages as lists of what made them, and the last inode of each file.
    fn replay<'a>(records: impl Iterator<Item = Record<'a>>) -> Replayed {
        let (mut pages, mut inodes) = Replayed::default();
        for tag in records.flat_map(|record| record.tags().collect::<Vec<_>>()) {
            match tag {
                Tag::Delta { ino, home: Home::Page(page), body } => {
                    let mut made = match body.base {
                        Base::Block(_) => Vec::new(),
                        Base::Parts(parts) => {
                            pages.get(&(ino, parts[0].at.get())).cloned().unwrap_or_else(|| vec![0])
                        }
                    };
                    made.extend_from_slice(body.delta);
                    pages.insert((ino, page), made);
                }
                Tag::Delta { ino, home: Home::Node(nid), .. } if nid != ino => {}
                Tag::Delta { ino, body, .. } => drop(inodes.insert(ino, body.delta.to_vec())),
                Tag::Revoke { ino, first, count } => {
                    let behind = first + u32::from(count);
                    pages.retain(|&(of, page), _| of != ino || !(first..behind).contains(&page));
                }
                Tag::Removed(_) => {}
            }
        }
        (pages, inodes)
    }

    proptest! {
        #[test]
        fn what_is_left_makes_the_same(
            tags in proptest::collection::vec(proptest::collection::vec(said(), 1..5), 1..25),
            again in proptest::collection::vec(any::<bool>(), 25),
        ) {
            let mut chain = 0;
            let stamped = tags.iter().zip(0..).map(|(tags, sequence)| {
                chain += u64::from(again[sequence as usize]);
                record(tags, Stamp { sequence, chain, ..Stamp::default() })
            });
            let bytes: Vec<Vec<u8>> = stamped.collect();
            let records: Vec<_> = bytes.iter().map(|bytes| (0, Record::parse(bytes, 0).unwrap())).collect();
            let left = without_superseded(&records);
            let kept: Vec<_> = left.iter().map(|(stamp, builder)| builder.seal(*stamp)).collect();
            let replayed = replay(kept.iter().map(|bytes| Record::parse(bytes, 0).unwrap()));
            prop_assert_eq!(replayed, replay(records.into_iter().map(|(_, record)| record)));
        }
    }

    #[test]
    fn a_page_that_is_changed_again_and_again_is_left_once() {
        let page = |delta| (1, 2, Said::Page { from: None, delta });
        let inode = |delta| (1, 0, Said::Inode { named: false, delta });
        let bytes: Vec<_> = (0..9u8)
            .map(|n| record(&[inode(n), page(n)], Stamp { sequence: n.into(), ..Stamp::default() }))
            .collect();
        let records: Vec<_> = bytes.iter().map(|bytes| (0, Record::parse(bytes, 0).unwrap())).collect();
        let left = without_superseded(&records);
        assert_eq!((left.len(), left[0].0.sequence), (1, 8));
    }
}
