//! The map's region after opening: the newest commit that can be read, and what was written behind it.

use crate::error::{FtlError, Result};
use crate::medium::Medium;
use crate::nand::{Nand, NandError};
use crate::oob::Kind;
use crate::region::{Commit, Region};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A page of the map's region: sequence number, page, kind.
type MapPage = (u64, u32, Kind);

/// What the map's region holds.
pub(super) struct Found {
    pub(super) commit: Commit,
    pub(super) commit_page: u32,
    /// Pages behind the commit: sequence number, page, kind.
    pub(super) after: Vec<MapPage>,
    /// The block of the commit, and its first page that was not written.
    pub(super) last: (u32, u32),
}

impl Found {
    /// Looks for the newest commit that can be read.
    pub(super) fn find<N: Nand>(
        medium: &mut Medium<N>,
        region: &Region,
        logical_pages: u32,
    ) -> Result<Found> {
        let mut blocks = Vec::new();
        for block in 0..region.blocks {
            if let Some(seq) = medium.first_seq(block)? {
                blocks.push((seq, block));
            }
        }
        blocks.sort_unstable_by_key(|found| Reverse(*found));
        let mut after = Vec::new();
        let mut other = None;
        let mut bytes = vec![0; medium.g.page_bytes as usize];
        for (_, block) in blocks {
            let (pages, next) = scan_block(medium, block)?;
            for (seq, page, kind) in pages.into_iter().rev() {
                if kind != Kind::Commit {
                    after.push((seq, page, kind));
                    continue;
                }
                match region.read(medium, page, (Kind::Commit, 0), &mut bytes) {
                    Ok(_) => {}
                    Err(e @ FtlError::Nand(NandError::PowerLost | NandError::Host)) => return Err(e),
                    Err(_) => continue,
                }
                match Commit::read(&bytes, &medium.g, logical_pages, page) {
                    Ok(commit) => {
                        return Ok(Found { commit, commit_page: page, after, last: (block, next) });
                    }
                    Err(e) => other = other.or(Some(e)),
                }
            }
        }
        Err(other.unwrap_or(FtlError::Unformatted))
    }

    /// The highest sequence number in the region.
    pub(super) fn seq(&self) -> u64 {
        self.after.iter().map(|(seq, ..)| *seq).max().unwrap_or(0).max(self.commit.seq + 1)
    }

    /// Whether nothing follows the commit.
    pub(super) fn is_clean(&self) -> bool {
        self.commit.clean && self.after.is_empty()
    }
}

/// The readable pages of a block of the region, and how many pages are written.
fn scan_block<N: Nand>(medium: &mut Medium<N>, block: u32) -> Result<(Vec<MapPage>, u32)> {
    let mut found = Vec::new();
    for page in medium.pages(block) {
        if medium.nand.is_blank(page)? {
            return Ok((found, page - medium.g.first_page(block)));
        }
        if let Some(spare) = medium.spare_of(page)? {
            found.push((spare.seq, page, spare.kind));
        }
    }
    Ok((found, medium.g.pages_per_block))
}
