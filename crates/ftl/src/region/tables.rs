//! The tables of a checkpoint: where each chunk of the map is, and every block's state.

use super::{Commit, Region, table_pages};
use crate::blocks::{Block, State};
use crate::error::{FtlError, Result};
use crate::format::BLOCK_BYTES;
use crate::map::{NOWHERE, Paged};
use crate::medium::Medium;
use crate::nand::Nand;
use crate::oob::{Kind, u32_at};
use alloc::vec;
use alloc::vec::Vec;

/// Bit of a block's state and log: it is erased, and nothing happened since.
const CLEAN: u8 = 8;

impl Region {
    /// Writes the tables, and returns the runs of flash pages that hold them.
    pub(super) fn write_tables<N: Nand>(
        &mut self,
        medium: &mut Medium<N>,
        chunks: &Paged,
    ) -> Result<Vec<(u32, u32)>> {
        let mut bytes = Vec::new();
        for place in &chunks.places {
            bytes.extend(place.to_le_bytes());
        }
        for (_, block) in medium.blocks.iter() {
            write_block(block, &mut bytes);
        }
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let page_bytes = medium.g.page_bytes as usize;
        for (index, part) in (0..).zip(bytes.chunks(page_bytes)) {
            let mut page = vec![0; page_bytes];
            page[..part.len()].copy_from_slice(part);
            let place = self.write(medium, Kind::Table, index, &page)?;
            match runs.last_mut() {
                Some((from, count)) if *from + *count == place => *count += 1,
                _ => runs.push((place, 1)),
            }
        }
        Ok(runs)
    }

    /// Reads the tables of a checkpoint.
    pub(crate) fn read_tables<N: Nand>(
        &self,
        medium: &mut Medium<N>,
        chunks: &mut Paged,
        commit: &Commit,
    ) -> Result<()> {
        let wanted = table_pages(&medium.g, chunks.len()) as usize;
        let pages =
            commit.tables.iter().flat_map(|(from, count)| (*from..).take((*count as usize).min(wanted)));
        let pages: Vec<u32> = pages.take(wanted).collect();
        let mut bytes = Vec::new();
        for (index, page) in (0..).zip(&pages) {
            let mut part = vec![0; medium.g.page_bytes as usize];
            self.read(medium, *page, (Kind::Table, index), &mut part)?;
            bytes.extend(part);
        }
        let at = chunks.len() * 4;
        if bytes.len() < at + medium.g.blocks as usize * BLOCK_BYTES {
            return Err(FtlError::Corrupt(
                "a checkpoint with too few tables",
                commit.tables.first().map_or(0, |t| t.0),
            ));
        }
        for (chunk, place) in bytes[..at].chunks_exact(4).enumerate() {
            let place = u32_at(place, 0);
            if place != NOWHERE && u64::from(place) >= medium.g.pages() {
                return Err(FtlError::Corrupt("the place of a chunk of the map", place));
            }
            chunks.places[chunk] = place;
        }
        for (block, bytes) in (0..medium.g.blocks).zip(bytes[at..].chunks_exact(BLOCK_BYTES)) {
            read_block(medium, block, bytes)?;
        }
        Ok(())
    }
}

fn write_block(b: &Block, bytes: &mut Vec<u8>) {
    bytes.extend(b.erases.to_le_bytes());
    bytes.extend(b.occupied.to_le_bytes());
    bytes.extend(b.ratios.to_le_bytes()[..3].iter());
    bytes.push(b.state as u8 | if b.clean { CLEAN } else { 0 } | b.log << 4);
    bytes.extend(b.written.to_le_bytes());
    bytes.extend(b.plain.to_le_bytes());
    bytes.extend(b.live.to_le_bytes());
}

fn read_block<N: Nand>(medium: &mut Medium<N>, block: u32, bytes: &[u8]) -> Result<()> {
    let number = |at: usize| u32_at(bytes, at);
    let state = State::from(bytes[11] & 7);
    let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let (written, plain, live) = (short(12), short(14), short(16));
    let sound = u32::from(written) <= medium.g.pages_per_block && live <= written;
    let Some(state) = state.filter(|_| sound) else {
        return Err(FtlError::Corrupt("a block in the tables", medium.g.first_page(block)));
    };
    let b = medium.blocks.get_mut(block);
    (b.erases, b.occupied, b.ratios) = (number(0), number(4), number(8) & 0xff_ffff);
    (b.written, b.plain, b.live) = (written, plain, live);
    (b.clean, b.log) = (bytes[11] & CLEAN != 0, bytes[11] >> 4);
    medium.blocks.most_erases = medium.blocks.most_erases.max(number(0));
    medium.set_state(block, state);
    Ok(())
}
