//! Tables that are too large to be read at once: the mapping (8 bytes for each logical page) and the counts
//! of valid records (a byte for each flash page). Chunks of a flash page are read when first needed and stay;
//! changed ones are written by the next checkpoint.

use super::entry::Entry;
use crate::error::{FtlError, Result};
use crate::format::ENTRY_BYTES;
use crate::nand::{Geometry, Nand};
use crate::oob::{Kind, Spare};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// A chunk that is nowhere on flash: all zeros.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Both tables.
///
/// 1. A chunk that is not in memory is what `places` names on flash, or all zeros where it is [`NOWHERE`].
/// 2. A chunk in memory that differs from the one on flash is dirty; `dirty_count` is how many are.
pub(crate) struct Paged {
    chunk_bytes: usize,
    /// Binary logarithm of `chunk_bytes`.
    shift: u32,
    chunks: Vec<Option<Box<[u8]>>>,
    /// Where each chunk is on flash.
    pub(crate) places: Vec<u32>,
    dirty: Vec<bool>,
    dirty_count: u32,
    /// The first chunk of the counts.
    counts: usize,
    spare: Vec<u8>,
    flash_pages: u64,
}

/// Chunks of both tables.
pub(crate) fn chunks_of(g: &Geometry, logical_pages: u32) -> (usize, usize) {
    let bytes = u64::from(g.page_bytes);
    (
        (u64::from(logical_pages) * ENTRY_BYTES as u64).div_ceil(bytes) as usize,
        g.pages().div_ceil(bytes) as usize,
    )
}

impl Paged {
    pub(crate) fn new(g: &Geometry, logical_pages: u32) -> Paged {
        let (map, counts) = chunks_of(g, logical_pages);
        Paged {
            chunk_bytes: g.page_bytes as usize,
            shift: g.page_bytes.ilog2(),
            chunks: vec![None; map + counts],
            places: vec![NOWHERE; map + counts],
            dirty: vec![false; map + counts],
            dirty_count: 0,
            counts: map,
            spare: vec![0; g.spare_bytes as usize],
            flash_pages: g.pages(),
        }
    }

    /// Chunks in all.
    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Chunks that the next checkpoint writes.
    pub(crate) fn dirty_count(&self) -> u32 {
        self.dirty_count
    }

    /// A chunk that the next checkpoint writes.
    pub(crate) fn first_dirty(&self) -> Option<usize> {
        self.dirty.iter().position(|dirty| *dirty)
    }

    pub(crate) fn is_dirty(&self, chunk: usize) -> bool {
        self.dirty[chunk]
    }

    /// The chunk is on flash as it is.
    pub(crate) fn written(&mut self, chunk: usize, place: u32) {
        self.places[chunk] = place;
        if core::mem::take(&mut self.dirty[chunk]) {
            self.dirty_count -= 1;
        }
    }

    pub(crate) fn soil(&mut self, chunk: usize) {
        if !core::mem::replace(&mut self.dirty[chunk], true) {
            self.dirty_count += 1;
        }
    }

    /// Where an entry is mapped to.
    pub(crate) fn entry(&mut self, nand: &mut impl Nand, lpn: u32) -> Result<Option<Entry>> {
        let (chunk, at) = self.place_of(lpn);
        if self.chunks[chunk].is_none() && self.places[chunk] == NOWHERE {
            return Ok(None);
        }
        let bytes = self.chunk(nand, chunk)?;
        let bits = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let entry = Entry::unpack(bits);
        if entry.is_some_and(|e| !e.is_sound(self.flash_pages)) {
            return Err(FtlError::Corrupt("an entry of the map", self.places[chunk]));
        }
        Ok(entry)
    }

    /// Maps a logical page, or makes it nowhere.
    pub(crate) fn set_entry(&mut self, nand: &mut impl Nand, lpn: u32, entry: Option<Entry>) -> Result<()> {
        let (chunk, at) = self.place_of(lpn);
        let bits = entry.map_or(0, Entry::pack);
        self.chunk(nand, chunk)?[at..at + 8].copy_from_slice(&bits.to_le_bytes());
        self.soil(chunk);
        Ok(())
    }

    /// Maps a logical page, and returns where it was.
    pub(crate) fn replace(&mut self, nand: &mut impl Nand, lpn: u32, entry: Entry) -> Result<Option<Entry>> {
        let (chunk, at) = self.place_of(lpn);
        let place = self.places[chunk];
        let bytes = &mut self.chunk(nand, chunk)?[at..at + 8];
        let old = Entry::unpack(u64::from_le_bytes((&*bytes).try_into().unwrap_or_default()));
        bytes.copy_from_slice(&entry.pack().to_le_bytes());
        self.soil(chunk);
        if old.is_some_and(|e| !e.is_sound(self.flash_pages)) {
            return Err(FtlError::Corrupt("an entry of the map", place));
        }
        Ok(old)
    }

    /// Whether no logical page of the chunk that `lpn` is in was ever mapped, and how many pages on the next
    /// chunk begins.
    pub(crate) fn empty_from(&self, lpn: u32) -> Option<u32> {
        let (chunk, at) = self.place_of(lpn);
        let none = self.chunks[chunk].is_none() && self.places[chunk] == NOWHERE;
        none.then_some(((self.chunk_bytes - at) / 8) as u32)
    }

    /// Valid records of a flash page.
    pub(crate) fn count(&mut self, nand: &mut impl Nand, page: u32) -> Result<u8> {
        let (chunk, at) = self.count_place(page);
        if self.chunks[chunk].is_none() && self.places[chunk] == NOWHERE {
            return Ok(0);
        }
        Ok(self.chunk(nand, chunk)?[at])
    }

    /// The first of these flash pages that holds anything valid.
    pub(crate) fn next_live(&mut self, nand: &mut impl Nand, from: u32, to: u32) -> Result<Option<u32>> {
        let mut page = from;
        while page < to {
            let (chunk, at) = self.count_place(page);
            let here = (self.chunk_bytes - at).min((to - page) as usize);
            if self.chunks[chunk].is_some() || self.places[chunk] != NOWHERE {
                let counts = &self.chunk(nand, chunk)?[at..at + here];
                if let Some(live) = counts.iter().position(|count| *count > 0) {
                    return Ok(Some(page + live as u32));
                }
            }
            page += here as u32;
        }
        Ok(None)
    }

    /// Changes the count of a flash page by one, and returns what it is now.
    pub(crate) fn change_count(&mut self, nand: &mut impl Nand, page: u32, up: bool) -> Result<u8> {
        let (chunk, at) = self.count_place(page);
        let place = self.places[chunk];
        let count = &mut self.chunk(nand, chunk)?[at];
        let changed = if up { count.checked_add(1) } else { count.checked_sub(1) };
        let changed = changed.ok_or(FtlError::Corrupt("a count of valid records", place))?;
        *count = changed;
        self.soil(chunk);
        Ok(changed)
    }

    /// Makes all counts zero, without reading them.
    pub(crate) fn clear_counts(&mut self) {
        for chunk in self.counts..self.chunks.len() {
            self.chunks[chunk] = None;
            if self.places[chunk] != NOWHERE {
                self.chunks[chunk] = Some(vec![0; self.chunk_bytes].into_boxed_slice());
                self.soil(chunk);
            }
        }
    }

    /// The bytes of a chunk.
    pub(crate) fn bytes(&mut self, nand: &mut impl Nand, chunk: usize) -> Result<&[u8]> {
        Ok(&*self.chunk(nand, chunk)?)
    }

    /// Memory in use, in bytes.
    pub(crate) fn ram_bytes(&self) -> usize {
        let loaded = self.chunks.iter().flatten().count();
        loaded * self.chunk_bytes + self.chunks.len() * (size_of::<Option<Box<[u8]>>>() + 4 + 1)
    }

    fn place_of(&self, lpn: u32) -> (usize, usize) {
        let at = lpn as usize * ENTRY_BYTES;
        (at >> self.shift, at & (self.chunk_bytes - 1))
    }

    fn count_place(&self, page: u32) -> (usize, usize) {
        let page = page as usize;
        (self.counts + (page >> self.shift), page & (self.chunk_bytes - 1))
    }

    fn chunk(&mut self, nand: &mut impl Nand, chunk: usize) -> Result<&mut [u8]> {
        if self.chunks[chunk].is_none() {
            let read = self.load(nand, chunk)?;
            self.chunks[chunk] = Some(read);
        }
        Ok(self.chunks[chunk].as_deref_mut().unwrap_or_default())
    }

    fn load(&mut self, nand: &mut impl Nand, chunk: usize) -> Result<Box<[u8]>> {
        let mut bytes = vec![0; self.chunk_bytes].into_boxed_slice();
        let place = self.places[chunk];
        if place == NOWHERE {
            return Ok(bytes);
        }
        nand.read(place, &mut bytes, &mut self.spare)?;
        let spare =
            Spare::read(&self.spare).ok_or(FtlError::Corrupt("out-of-band bytes of the map", place))?;
        let wanted = (Kind::Chunk, chunk as u32, Some(crc32fast::hash(&bytes)));
        if (spare.kind, spare.index, spare.content) != wanted {
            return Err(FtlError::Corrupt("a chunk of the map", place));
        }
        Ok(bytes)
    }

    /// Whether every chunk is where a checkpoint may have put it.
    pub(crate) fn places_are_in(&self, first_data_page: u32) -> bool {
        self.places.iter().all(|place| *place == NOWHERE || *place < first_data_page)
    }

    /// The chunks in this block change, so that the next checkpoint writes them elsewhere.
    pub(crate) fn soil_in(&mut self, block: u32, g: &Geometry) {
        for chunk in 0..self.len() {
            let place = self.places[chunk];
            if place != NOWHERE && g.block_of(place) == block {
                self.soil(chunk);
            }
        }
    }

    /// All chunks that are on flash change.
    pub(crate) fn soil_all(&mut self) {
        for chunk in 0..self.len() {
            if self.places[chunk] != NOWHERE {
                self.soil(chunk);
            }
        }
    }
}
