//! The page that ends a checkpoint: without it nothing of the checkpoint counts.

use crate::error::{FtlError, Result};
use crate::format::VERSION;
use crate::nand::Geometry;
use crate::oob::u32_at;
use alloc::vec;
use alloc::vec::Vec;

/// First bytes of a commit page.
const MAGIC: [u8; 7] = *b"MEDFTL\x00";

/// What a commit page says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) seq: u64,
    pub(crate) clean: bool,
    /// Of the policy: another one counts differently.
    pub(crate) policy: u32,
    /// Runs of flash pages that hold the tables.
    pub(crate) tables: Vec<(u32, u32)>,
}

impl Commit {
    /// The flash pages of the tables.
    pub(crate) fn table_pages(&self) -> impl Iterator<Item = u32> {
        self.tables.iter().flat_map(|(from, count)| *from..from.saturating_add(*count))
    }

    pub(super) fn write(&self, g: &Geometry, logical_pages: u32) -> Vec<u8> {
        let mut out = vec![0; g.page_bytes as usize];
        let mut bytes = Vec::from(MAGIC);
        bytes.push(VERSION);
        for number in [logical_pages, g.page_bytes, g.spare_bytes, g.pages_per_block, g.blocks, self.policy] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.seq.to_le_bytes());
        bytes.extend(u32::from(self.clean).to_le_bytes());
        bytes.extend((self.tables.len() as u32).to_le_bytes());
        for (from, count) in &self.tables {
            bytes.extend(from.to_le_bytes());
            bytes.extend(count.to_le_bytes());
        }
        let end = bytes.len().min(out.len());
        out[..end].copy_from_slice(&bytes[..end]);
        out
    }

    /// Reads a commit page of this medium.
    pub(crate) fn read(bytes: &[u8], g: &Geometry, logical_pages: u32, page: u32) -> Result<Commit> {
        let corrupt = FtlError::Corrupt("a commit page", page);
        let number = |at: usize| bytes.get(at..at + 4).map(|b| u32_at(b, 0));
        if bytes.get(..7) != Some(&MAGIC) {
            return Err(corrupt);
        }
        if bytes[7] != VERSION {
            return Err(FtlError::Incompatible("version", u64::from(bytes[7]), u64::from(VERSION)));
        }
        let fields = [
            ("logical pages", logical_pages),
            ("bytes of a flash page", g.page_bytes),
            ("out-of-band bytes", g.spare_bytes),
            ("pages of a block", g.pages_per_block),
            ("blocks", g.blocks),
        ];
        for (i, (name, wanted)) in fields.into_iter().enumerate() {
            let is = number(8 + 4 * i).ok_or(corrupt)?;
            if is != wanted {
                return Err(FtlError::Incompatible(name, u64::from(is), u64::from(wanted)));
            }
        }
        let seq = u64::from(number(32).ok_or(corrupt)?) | u64::from(number(36).ok_or(corrupt)?) << 32;
        let runs = number(44).ok_or(corrupt)? as usize;
        let mut tables = Vec::new();
        for run in 0..runs.min(bytes.len() / 8) {
            let at = 48 + 8 * run;
            tables.push((number(at).ok_or(corrupt)?, number(at + 4).ok_or(corrupt)?));
        }
        let policy = number(28).ok_or(corrupt)?;
        Ok(Commit { seq, clean: number(40) == Some(1), policy, tables })
    }
}
