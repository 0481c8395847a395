//! Compact pages: where records go for which the zone has no room (MedFS's DCM, sections 4.2 and 5).
//!
//! A compact page is a page of its file, beyond any end the file can have; so it is written, moved, recovered
//! and freed as every page is, and its commit point is the file's own inode. It carries its own index and a
//! sequence number, in place of a meta-page; the [`CompactMap`] of a file is made from all of its compact
//! pages when it is first asked for.
//!
//! Invariants:
//! - A compact page is never changed. It is freed when no record in it counts any more.
//! - A record that must not count any more, but is in a compact page, is masked by a record of the same page
//!   in the zone or in a later compact page: a new delta, or the word that there is none.
//! - Compact pages that are not yet written are dirty pages of their file, and go with the next checkpoint.
//! - The zone says which compact pages there are ([`delta::Tie`]), so that an older one in the place of one whose
//!   write a device lost is damage, and no other content. On volumes that may not have ties yet, zones stay without.
//!
//! Locks: as for pages; the map's mutex is taken with the inode's lock held, before the leaves.

use super::compact_map::CompactMap;
use super::layer::CompactPages;
use crate::content::record::OwnedRecord;
use crate::error::Result;
use crate::map::inode::Inode;
use crate::ranks;
use medfs_format::delta::{self, Tie};
use medfs_format::node::ADDRS_PER_BLOCK;
use medfs_format::{Block, FormatError, NULL_ADDR, Structure, is_block};
use medfs_sync::{Mutex, Ranked};
use std::ops::Range;
use std::sync::Arc;

/// Most compact pages of a file: what one direct node addresses.
const MOST_PAGES: usize = ADDRS_PER_BLOCK;
/// The map of a file as its inode remembers it: `None` until it is first asked for.
struct CompactMemory(Mutex<Option<CompactMap>>);

impl Default for CompactMemory {
    fn default() -> CompactMemory {
        CompactMemory(Mutex::new(None).ranked(ranks::DELTAS))
    }
}

impl CompactPages<'_> {
    /// Looks at, or changes, the map of a file that has compact pages.
    pub(super) fn with_map<R>(&self, inode: &Inode, f: impl FnOnce(&mut CompactMap) -> R) -> Result<R> {
        let memory = inode.memory.of::<CompactMemory>();
        let mut map = memory.0.lock();
        if map.is_none() {
            *map = Some(self.load_map(inode)?);
        }
        Ok(f(map.as_mut().expect("just made")))
    }

    /// Reads all compact pages of a file.
    fn load_map(&self, inode: &Inode) -> Result<CompactMap> {
        let mut map = CompactMap::default();
        let Some(header) = self.zone_header(inode)? else { return Ok(map) };
        map.next_sequence = header.first.get();
        let start = self.compact_start(inode);
        let mut near = None;
        for place in 0..MOST_PAGES as u32 {
            let slot = self.find_slot_near(inode, near.as_ref(), start + u64::from(place))?;
            let Some(slot) = slot else { break };
            let addr = slot.addr();
            self.check_addr(inode, start + u64::from(place), addr)?;
            if is_block(addr) {
                let block = self.io.read(addr)?;
                let (sequence, records) = delta::compact_records(&block, inode.ino)?;
                if map.has_sequence(sequence) {
                    let value = format!("{sequence} twice");
                    let corrupt = FormatError::corrupt(Structure::CompactPage, inode.ino, "sequence", value);
                    return Err(corrupt.into());
                }
                let counts = sequence >= header.first.get();
                let place = (place, delta::compact_id(&block));
                let records: Vec<_> = records.iter().filter(|_| counts).map(OwnedRecord::from).collect();
                map.add(sequence, place, None, &records);
            }
            near = Some(slot);
        }
        self.check_tie(inode, map.tie)?;
        self.zone(inode).with_records(|records| records.iter().for_each(|r| map.mask(r.index)))?;
        Ok(map)
    }

    /// That the compact pages which the addresses lead to are those of which the zone speaks, where it does.
    fn check_tie(&self, inode: &Inode, found: Tie) -> Result<()> {
        let Some(tie) = self.zone(inode).tie().filter(|tie| *tie != found) else { return Ok(()) };
        let value = match tie.differs_at(found, MOST_PAGES as u32) {
            Some(place) => format!("another one than compact page {place}"),
            None => "others than the zone says".to_owned(),
        };
        Err(FormatError::corrupt(Structure::CompactPage, inode.ino, "sequence", value).into())
    }

    /// What compact pages say of a page that has no record in the zone.
    pub(crate) fn compact_record(&self, inode: &Inode, index: u64) -> Result<Option<OwnedRecord>> {
        let Ok(index) = u32::try_from(index) else { return Ok(None) };
        let found = self.with_map(inode, |map| map.delta_of(index))?;
        let Some((place, unwritten)) = found else { return Ok(None) };
        let block = match unwritten {
            Some(block) => block,
            None => self.compact_block(inode, place)?,
        };
        let (_, records) = delta::compact_records(&block, inode.ino)?;
        Ok(records.iter().find(|r| r.index == index).map(OwnedRecord::from))
    }

    fn compact_block(&self, inode: &Inode, place: u32) -> Result<Arc<Block>> {
        let index = self.compact_start(inode) + u64::from(place);
        if let Some(block) = self.pages.get(inode.ino, index) {
            return Ok(block);
        }
        let addr = self.find_slot(inode, index)?.map_or(NULL_ADDR, |slot| slot.addr());
        if !is_block(addr) {
            let value = format!("{addr:#x} for compact page {place}");
            return Err(FormatError::corrupt(Structure::CompactPage, inode.ino, "i_addr", value).into());
        }
        let block = Arc::new(*self.io.read(addr)?);
        self.pages.insert(inode.ino, index, block.clone());
        Ok(block)
    }

    /// The pages of a range that have deltas in compact pages.
    pub(crate) fn compact_pages_in(&self, inode: &Inode, pages: &Range<u64>) -> Result<Vec<u64>> {
        self.with_map(inode, |map| map.deltas_in(indices(pages)).map(u64::from).collect())
    }

    /// Forgets the map of a file: it is read again when it is next asked for.
    pub(crate) fn forget_compact_map(&self, inode: &Inode) {
        *inode.memory.of::<CompactMemory>().0.lock() = None;
    }

    /// The pages of a file whose compact pages are known that may be compressed alone, with the bytes of their records.
    pub(crate) fn maybe_alone(&self, inode: &Inode) -> Vec<(u32, usize)> {
        inode.memory.of::<CompactMemory>().0.lock().as_ref().map(CompactMap::maybe_alone).unwrap_or_default()
    }

    /// Notes that the zone has a record of a page now.
    pub(crate) fn mask_compact(&self, inode: &Inode, index: u32) {
        if let Some(map) = inode.memory.of::<CompactMemory>().0.lock().as_mut() {
            map.mask(index);
        }
    }

    /// Notes that a compact page has been written.
    pub(crate) fn compact_written(&self, inode: &Inode, index: u64) {
        let place = index.saturating_sub(self.compact_start(inode)) as u32;
        if let Some(map) = inode.memory.of::<CompactMemory>().0.lock().as_mut() {
            map.written(place);
        }
    }

    /// Records in compact pages that count: of one of them, or of all.
    pub(super) fn counting_records(&self, inode: &Inode, of: Option<u32>) -> Result<Vec<OwnedRecord>> {
        let indices = self.with_map(inode, |map| map.counting(of))?;
        let mut records = Vec::with_capacity(indices.len());
        for (index, delta) in indices {
            if !delta {
                records.push(OwnedRecord::tombstone(index));
            } else if let Some(record) = self.compact_record(inode, index.into())? {
                records.push(record);
            }
        }
        Ok(records)
    }

    /// All records of a file that count: in the zone and in compact pages.
    pub(crate) fn all_records(&self, inode: &Inode) -> Result<Vec<OwnedRecord>> {
        let mut records = self.zone(inode).records()?;
        if self.has_compact(inode) {
            records.extend(self.counting_records(inode, None)?);
        }
        records.retain(OwnedRecord::is_delta);
        Ok(records)
    }
}

/// A range of pages as records number them.
pub(super) fn indices(pages: &Range<u64>) -> Range<u32> {
    let clamp = |page: u64| u32::try_from(page).unwrap_or(u32::MAX);
    let start = clamp(pages.start);
    start..clamp(pages.end).max(start)
}
