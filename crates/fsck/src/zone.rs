//! Delta zones: whether each record that counts, with its base, is the page whose checksum it carries.
//!
//! A delta that is not cannot be mended, as nothing else knows what the page was. A repair drops it, and then
//! the page is what it was before the update; so each such finding names file and page, for those who have a
//! copy. Where older records of the page may be in compact pages, a mark takes its place, so that none of
//! them comes to count again.
//!
//! Records with slices wait for the end of the walk ([`crate::slices`]).

use crate::compact::settle_tie;
use crate::deltas::{Bases, Delta, Deltas, Faulty, zone_range};
use crate::file::{FileWalk, Zone};
use crate::finding::Code;
use crate::judgement::Judgement;
use crate::names::inode_name;
use medfs_device::Cause;
use medfs_format::delta::{self, RawZoneHeader, Record, ZONE_HEADER_SIZE};
use medfs_format::node::{FileKind, Inline, RawInode};
use medfs_format::path::max_pages;
use medfs_format::xattr::{HEADER_SIZE, NameIndex, RawXattrEntry, RawXattrHeader, XATTR_MAGIC, XattrEntry};
use medfs_format::{BLOCK_SIZE, BlockAddr, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

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

impl Judgement<'_> {
    pub(crate) fn has_zones(&self) -> bool {
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
            format!(
                "{}: a delta zone, but the inode says that it has no attributes",
                inode_name(f.ino, inode)
            ),
        );
        inode.i_inline |= Inline::XATTR.bits();
        inode.as_mut_bytes()[range.start..range.start + 4].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
    }

    /// Sees to it that a file has one zone at most, as its first attribute and wholly inline; `true` where
    /// the attributes had to change.
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
        if !lost.is_empty() {
            self.revert(f.ino, None);
        }
        if let Some(keep) = keep {
            entries.insert(0, zones[keep].clone());
        }
        let name = inode_name(f.ino, inode);
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
        if !self.has_zones() {
            return;
        }
        let Some(range) = zone_range(inode, self.rules.flexible()) else { return };
        let mut zone = inode.as_bytes()[range.clone()].to_vec();
        let header = delta::zone_header(&zone, f.ino);
        // Of a damaged header the number is taken as far as it may be one: without it no compact page would count.
        let (raw, _) = RawZoneHeader::read_from_prefix(&zone).expect("a zone has a header");
        let first = Some(raw.first.get()).filter(|&first| first < u32::MAX).unwrap_or(0);
        if header.is_err() {
            delta::untie(&mut zone);
            delta::set_compact(&mut zone, false, first);
        }
        let (records, error) = delta::parse_prefix(&zone, f.ino);
        let records: Vec<Delta> = records.iter().map(Delta::from).collect();
        let error = header.as_ref().err().cloned().or(error);
        if let Some(error) = &error {
            let sound: Vec<String> = records.iter().map(|d| d.index.to_string()).collect();
            let text = format!(
                "{}: {error}; a repair keeps the deltas before the damage (of pages: {}) and drops what is behind it, \
                 after which other pages may be what they were before their last update",
                inode_name(f.ino, inode),
                if sound.is_empty() { "none".into() } else { sound.join(", ") }
            );
            self.findings.add(Code::DeltaZone, text);
            self.revert(f.ino, None);
        }
        f.zone = Some(Zone {
            range,
            deltas: Deltas::new(records, Default::default(), first),
            damaged: error.is_some(),
            header_damaged: header.is_err(),
            compact: header.is_ok_and(|h| h.flags & delta::ZONE_COMPACT != 0),
            denied: false,
            tie: delta::tie(&zone),
            places: BTreeMap::new(),
            told: false,
        });
    }

    /// Judges a file's deltas, once the addresses of its pages were walked; keeps the right ones.
    pub(crate) fn settle_zone(&mut self, f: &mut FileWalk, inode: &mut RawInode) -> io::Result<()> {
        let Some(mut zone) = f.zone.take() else { return Ok(()) };
        if zone.denied || zone.header_damaged {
            let first = zone.deltas.first;
            let bytes = &mut inode.as_mut_bytes()[zone.range.clone()];
            delta::untie(bytes);
            delta::set_compact(bytes, zone.compact, first);
        }
        let addrs = inode.slots(self.rules.flexible()).fanout();
        let most = if zone.compact { delta::compact_start(addrs) } else { max_pages(addrs) };
        let marks_below = if zone.compact { most } else { 0 };
        let (mut faulty, mut stale) = (Faulty { marks_below, ..Faulty::default() }, Vec::new());
        let mut kept: Vec<u32> = Vec::new();
        // The newest first: of two deltas of a page that one counts.
        for (at, delta) in zone.deltas.zone.iter().enumerate().rev() {
            if kept.contains(&delta.index) {
                let text = format!(
                    "{}: delta of page {}: there is a newer one; a repair drops it, and the newer one counts",
                    inode_name(f.ino, inode),
                    delta.index
                );
                self.findings.add(Code::DeltaTwice, text);
                stale.push(at);
                continue;
            }
            kept.push(delta.index);
            self.judge_delta(f, inode, delta, most, &mut faulty)?;
        }
        if !stale.is_empty() || !faulty.pages.is_empty() || zone.damaged {
            let all = zone.deltas.zone.iter().enumerate();
            let single = all.filter(|(at, _)| !stale.contains(at)).map(|(_, delta)| delta.clone());
            store_zone(inode, zone.range.clone(), &faulty.without(single));
        }
        settle_tie(self, f, inode, &mut zone)?;
        if zone.compact { self.settle_compact(f, inode, &mut zone, most) } else { Ok(()) }
    }

    /// Judges the records that count in a file's compact pages.
    fn settle_compact(
        &mut self,
        f: &FileWalk,
        inode: &RawInode,
        zone: &mut Zone,
        most: u64,
    ) -> io::Result<()> {
        let deltas = &mut zone.deltas;
        deltas.rank(&mut self.image, f.ino)?;
        for (&sequence, &addr) in &deltas.pages {
            let records = deltas.page(&mut self.image, f.ino, addr)?;
            let mut faulty = Faulty { marks_below: most, ..Faulty::default() };
            for delta in records.iter().filter(|d| deltas.counts(sequence, d.index)) {
                self.judge_delta(f, inode, delta, most, &mut faulty)?;
            }
            self.rewrite_compact(addr, records, &faulty)?;
        }
        Ok(())
    }

    /// Writes a compact page anew, in its place, without records that are wrong.
    pub(crate) fn rewrite_compact(
        &mut self,
        addr: BlockAddr,
        records: Vec<Delta>,
        faulty: &Faulty,
    ) -> io::Result<()> {
        if faulty.pages.is_empty() {
            return Ok(());
        }
        let left = faulty.without(records);
        let left: Vec<Record<'_>> = left.iter().map(Delta::record).collect();
        let page = delta::compact_page_with(self.image.cache.get(addr)?, &left);
        self.write(addr, &page, Cause::Data)
    }

    /// Judges a record that counts; one with slices is kept for later.
    fn judge_delta(
        &mut self,
        f: &FileWalk,
        inode: &RawInode,
        delta: &Delta,
        most: u64,
        faulty: &mut Faulty,
    ) -> io::Result<()> {
        let verdict = if u64::from(delta.index) >= most {
            Err((Code::DeltaIndex, format!("a file has {most} pages at most")))
        } else if !delta.slices.is_empty() {
            self.slices.note(f.ino, &delta.slices);
            return Ok(());
        } else {
            Bases::new(&self.rules, &mut self.codecs).judge(&mut self.image, inode, &delta.record())?
        };
        if let Err((code, why)) = verdict {
            self.drop_delta((f.ino, &inode_name(f.ino, inode)), delta, code, &why, faulty);
        }
        Ok(())
    }

    /// The finding about a record that is wrong.
    pub(crate) fn drop_delta(
        &mut self,
        (ino, name): (Ino, &str),
        delta: &Delta,
        code: Code,
        why: &str,
        faulty: &mut Faulty,
    ) {
        let page = delta.index;
        if code.stays() {
            let at = u64::from(page) * BLOCK_SIZE as u64;
            let text = format!("{name}: page {page} (offset {at}): {why}; it and its delta stay as they are");
            self.findings.add(code, text);
            return;
        }
        let text = format!(
            "{name}: delta of page {page}: {why}; a repair drops it, and the page is then its base, which is older or damaged"
        );
        self.findings.add(code, text);
        self.revert(ino, Some(BTreeSet::from([page])));
        faulty.pages.insert(page);
    }
}

/// Writes what is left of a zone's records into it.
pub(crate) fn store_zone(inode: &mut RawInode, range: Range<usize>, records: &[Delta]) {
    let records: Vec<Record<'_>> = records.iter().map(Delta::record).collect();
    let fits = delta::fill_zone(&mut inode.as_mut_bytes()[range], &records);
    debug_assert!(fits, "what is left of a zone fits it");
}

/// The pages that a zone has deltas of, as far as it can be read. A zone has no name, so where there is one
/// it is part of it.
fn pages(zone: &[u8], ino: Ino) -> Vec<String> {
    let (records, error) = delta::parse_prefix(zone, ino);
    let mut pages: Vec<String> = records.iter().map(|r| r.index.to_string()).collect();
    pages.extend(error.map(|_| "others that cannot be told".to_owned()));
    pages
}
