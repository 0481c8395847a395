//! Delta zones: whether each delta, with its base, is the page whose checksum it carries.
//!
//! A delta that is not cannot be mended, as nothing else knows what the page was. A repair drops it, and then the page is
//! what it was before the update; so each such finding names file and page, for those who have a copy.

use crate::finding::Code;
use crate::walk::{FileWalk, Walker};
use medfs_codec::{Codecs, RebuildError};
use medfs_format::delta::{self, RawSlice, Record, ZONE_HEADER_SIZE};
use medfs_format::node::{FileKind, Inline, NAME_LEN, RawInode};
use medfs_format::path::max_pages;
use medfs_format::xattr::{HEADER_SIZE, NameIndex, RawXattrEntry, RawXattrHeader, XATTR_MAGIC, XattrEntry};
use medfs_format::{Block, BlockAddr, Ino, NEW_ADDR, is_block};
use std::io;
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// The zone of the file in hand.
pub(crate) struct Zone {
    /// Where it is in the inode block.
    range: Range<usize>,
    /// Its deltas, oldest first, each with the block of its page once that was come to.
    deltas: Vec<Delta>,
    /// Its structure was damaged behind these.
    damaged: bool,
}

struct Delta {
    index: u32,
    codec: u8,
    checksum: u32,
    slices: Vec<RawSlice>,
    bytes: Vec<u8>,
    base: Option<BlockAddr>,
}

impl Delta {
    fn record(&self) -> Record<'_> {
        Record {
            index: self.index,
            codec: self.codec,
            checksum: self.checksum,
            slices: &self.slices,
            delta: &self.bytes,
        }
    }
}

impl Zone {
    /// Notes the block of a page.
    pub(crate) fn note(&mut self, page: u64, addr: BlockAddr) {
        self.deltas.iter_mut().filter(|d| u64::from(d.index) == page).for_each(|d| d.base = Some(addr));
    }
}

/// Whether base and delta make the page that the delta was made of; otherwise why not.
pub(crate) fn judge(codecs: &mut Codecs, delta: &Record<'_>, base: &Block) -> Result<(), (Code, String)> {
    codecs.rebuild(delta.codec, delta.delta, delta.checksum, &mut base.0.clone()).map_err(|e| {
        let code = if matches!(e, RebuildError::Codec(_)) { Code::DeltaCodec } else { Code::DeltaContent };
        (code, e.to_string())
    })
}

/// Number and name of an inode, for messages.
fn name_of(f: &FileWalk, inode: &RawInode) -> String {
    let len = (inode.i_namelen.get() as usize).min(NAME_LEN);
    format!("inode {} ({:?})", f.ino, String::from_utf8_lossy(&inode.i_name[..len]))
}

/// Whether such an inode may have a zone.
fn may_have_zone(inode: &RawInode) -> bool {
    FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Regular)
        && !inode.inline().contains(Inline::DATA)
}

/// Whether an entry is a zone that may stay where it is: the first one, in an inline area of so many bytes.
fn is_right_zone(entry: &XattrEntry, inline: usize) -> bool {
    entry.index == NameIndex::Delta as u8
        && entry.name.is_empty()
        && entry.value.len() >= ZONE_HEADER_SIZE
        && HEADER_SIZE + entry.size() <= inline
}

impl Walker<'_, '_> {
    fn has_zones(&self) -> bool {
        self.image.raw_sb().is_delta_volume()
    }

    /// Where a zone lies in the inode but what leads to it is damaged, restores that.
    pub(crate) fn find_lost_zone(&mut self, f: &FileWalk, inode: &mut RawInode) {
        let range = inode.slots(self.rules.flexible()).inline_xattr_range();
        if !self.has_zones() || !may_have_zone(inode) || range.len() <= HEADER_SIZE {
            return;
        }
        let area = &inode.as_bytes()[range.clone()];
        let Ok((entry, rest)) = RawXattrEntry::ref_from_prefix(&area[HEADER_SIZE..]) else { return };
        let len = usize::from(entry.e_value_size.get());
        let is_zone = entry.e_name_index == NameIndex::Delta as u8
            && entry.e_name_len == 0
            && rest.get(..len).is_some_and(|zone| matches!(delta::parse_prefix(zone, f.ino), (_, None)));
        let magic = RawXattrHeader::ref_from_prefix(area).map_or(0, |(header, _)| header.h_magic.get());
        if !is_zone || (magic == XATTR_MAGIC && inode.inline().contains(Inline::XATTR)) {
            return;
        }
        self.findings.add(
            Code::DeltaPlace,
            format!("{}: a delta zone, but the inode denies that it has attributes", name_of(f, inode)),
        );
        inode.i_inline |= Inline::XATTR.bits();
        inode.as_mut_bytes()[range.start..range.start + 4].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
    }

    /// Sees to it that a file has one zone at most, as its first attribute and wholly inline; `true` where the attributes
    /// had to change.
    pub(crate) fn place_zone(
        &mut self,
        f: &FileWalk,
        inode: &RawInode,
        entries: &mut Vec<XattrEntry>,
        inline: usize,
    ) -> bool {
        let is_zone = |e: &XattrEntry| e.index == NameIndex::Delta as u8;
        let count = entries.iter().filter(|e| is_zone(e)).count();
        let may = may_have_zone(inode);
        let right = count == 1 && may && is_right_zone(&entries[0], inline);
        if !self.has_zones() || count == 0 || right {
            return false;
        }
        let zones: Vec<XattrEntry> = entries.iter().filter(|e| is_zone(e)).cloned().collect();
        entries.retain(|e| !is_zone(e));
        let keep = zones.iter().position(|zone| may && is_right_zone(zone, inline));
        let lost = zones.iter().enumerate().filter(|(at, _)| Some(*at) != keep).map(|(_, zone)| zone);
        let lost: Vec<String> =
            lost.flat_map(|zone| pages(&[&zone.name[..], &zone.value].concat(), f.ino)).collect();
        if let Some(keep) = keep {
            entries.insert(0, zones[keep].clone());
        }
        let name = name_of(f, inode);
        self.findings.add(
            Code::DeltaPlace,
            format!(
                "{name}: {count} delta zone(s), where one is allowed, as the first attribute of a file's inode and wholly \
                 in it; a repair drops the deltas of these pages, which are then what they were before: {}",
                if lost.is_empty() { "none".into() } else { lost.join(", ") }
            ),
        );
        true
    }

    /// Takes up the zone of a file whose attributes are in order.
    pub(crate) fn open_zone(&mut self, f: &mut FileWalk, inode: &RawInode) {
        if !self.has_zones() || !inode.inline().contains(Inline::XATTR) {
            return;
        }
        let area = inode.slots(self.rules.flexible()).inline_xattr_range();
        let bytes = inode.as_bytes();
        let Some(zone) = delta::zone_range(&bytes[area.clone()]) else { return };
        let range = area.start + zone.start..area.start + zone.end;
        let (records, error) = delta::parse_prefix(&bytes[range.clone()], f.ino);
        let copied = |r: &Record<'_>| Delta {
            index: r.index,
            codec: r.codec,
            checksum: r.checksum,
            slices: r.slices.to_vec(),
            bytes: r.delta.to_vec(),
            base: None,
        };
        let deltas: Vec<Delta> = records.iter().map(copied).collect();
        if let Some(error) = &error {
            let sound: Vec<String> = deltas.iter().map(|d| d.index.to_string()).collect();
            let text = format!(
                "{}: {error}; a repair keeps the deltas before the damage (of pages: {}) and drops what is behind it, \
                 after which other pages may be what they were before their last update",
                name_of(f, inode),
                if sound.is_empty() { "none".into() } else { sound.join(", ") }
            );
            self.findings.add(Code::DeltaZone, text);
        }
        f.zone = Some(Zone { range, deltas, damaged: error.is_some() });
    }

    /// Judges a file's deltas, once the addresses of its pages were walked; keeps the right ones.
    pub(crate) fn settle_zone(&mut self, f: &mut FileWalk, inode: &mut RawInode) -> io::Result<()> {
        let Some(zone) = f.zone.take() else { return Ok(()) };
        let name = name_of(f, inode);
        let most = max_pages(inode.slots(self.rules.flexible()).fanout());
        let mut kept: Vec<&Delta> = Vec::new();
        // The newest first: of two deltas of a page that one counts.
        for delta in zone.deltas.iter().rev() {
            let twice = kept.iter().any(|k| k.index == delta.index);
            let fault = if twice {
                Some((Code::DeltaTwice, "there is a newer one".to_owned()))
            } else {
                self.judge_delta(delta, most)?
            };
            match fault {
                None => kept.push(delta),
                Some((code, why)) => {
                    let then =
                        if twice { "the newer one counts" } else { "the page is then what it was before" };
                    let text = format!(
                        "{name}: delta of page {}: {why}; a repair drops it, and {then}",
                        delta.index
                    );
                    self.findings.add(code, text);
                }
            }
        }
        if kept.len() < zone.deltas.len() || zone.damaged {
            let records: Vec<Record<'_>> = kept.iter().rev().map(|d| d.record()).collect();
            delta::fill_zone(&mut inode.as_mut_bytes()[zone.range], &records);
        }
        Ok(())
    }

    fn judge_delta(&mut self, delta: &Delta, most: u64) -> io::Result<Option<(Code, String)>> {
        if u64::from(delta.index) >= most {
            return Ok(Some((Code::DeltaIndex, format!("a file has {most} pages at most"))));
        }
        if delta.codec == delta::NO_DELTA || !delta.slices.is_empty() {
            return Ok(None);
        }
        let base = match delta.base {
            Some(addr) if is_block(addr) => self.image.cache.read(addr)?,
            Some(NEW_ADDR) => Block::boxed(),
            _ => return Ok(Some((Code::DeltaBase, "the page has no block that could be its base".into()))),
        };
        Ok(judge(&mut self.codecs, &delta.record(), &base).err())
    }
}

/// The pages that a zone has deltas of, as far as it can be read. A zone has no name, so where there is one it is part of it.
fn pages(zone: &[u8], ino: Ino) -> Vec<String> {
    let (records, error) = delta::parse_prefix(zone, ino);
    let mut pages: Vec<String> = records.iter().map(|r| r.index.to_string()).collect();
    pages.extend(error.map(|_| "others that cannot be told".to_owned()));
    pages
}
