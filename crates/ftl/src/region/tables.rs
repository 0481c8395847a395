//! The tables of a checkpoint: where each chunk of the map is, and every block's state.

use super::{Commit, Region, table_pages};
use crate::blocks::{Block, State};
use crate::error::{FtlError, Result};
use crate::format::{BLOCK_BYTES, BLOCK_CLEAN, RawBlockRow};
use crate::map::{NOWHERE, Paged};
use crate::medium::Medium;
use crate::nand::Nand;
use crate::oob::{Kind, u32_at};
use alloc::vec;
use alloc::vec::Vec;
use zerocopy::{FromBytes, IntoBytes};

/// Bits of a row's state that are the block's.
const STATE: u8 = 7;
/// Where the log begins.
const LOG_SHIFT: u8 = 4;

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
            bytes.extend(row(block).as_bytes());
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
        let rows =
            bytes[at..].chunks_exact(BLOCK_BYTES).filter_map(|row| RawBlockRow::ref_from_bytes(row).ok());
        for (block, row) in (0..medium.g.blocks).zip(rows) {
            take_row(medium, block, row)?;
        }
        Ok(())
    }
}

fn row(b: &Block) -> RawBlockRow {
    let [r0, r1, r2, _] = b.ratios.to_le_bytes();
    RawBlockRow {
        erases: b.erases.into(),
        occupied: b.occupied.into(),
        ratios: [r0, r1, r2],
        state: b.state as u8 | if b.clean { BLOCK_CLEAN } else { 0 } | b.log << LOG_SHIFT,
        written: b.written.into(),
        plain: b.plain.into(),
        live: b.live.into(),
    }
}

fn take_row<N: Nand>(medium: &mut Medium<N>, block: u32, row: &RawBlockRow) -> Result<()> {
    let state = State::from(row.state & STATE);
    let (written, live) = (row.written.get(), row.live.get());
    let sound = u32::from(written) <= medium.g.pages_per_block && live <= written;
    let Some(state) = state.filter(|_| sound) else {
        return Err(FtlError::Corrupt("a block in the tables", medium.g.first_page(block)));
    };
    let b = medium.blocks.get_mut(block);
    let [r0, r1, r2] = row.ratios;
    (b.erases, b.occupied) = (row.erases.get(), row.occupied.get());
    b.ratios = u32::from_le_bytes([r0, r1, r2, 0]);
    (b.written, b.plain, b.live) = (written, row.plain.get(), live);
    (b.clean, b.log) = (row.state & BLOCK_CLEAN != 0, row.state >> LOG_SHIFT);
    medium.blocks.most_erases = medium.blocks.most_erases.max(row.erases.get());
    medium.set_state(block, state);
    Ok(())
}
