//! The page that ends a checkpoint: without it nothing of the checkpoint counts.

use crate::error::{FtlError, Result};
use crate::format::{COMMIT_MAGIC, RawMapCommit, RawRun, VERSION};
use crate::nand::Geometry;
use alloc::vec::Vec;
use zerocopy::{FromBytes, IntoBytes};

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
        let head = RawMapCommit {
            magic: COMMIT_MAGIC,
            version: VERSION,
            logical_pages: logical_pages.into(),
            page_bytes: g.page_bytes.into(),
            spare_bytes: g.spare_bytes.into(),
            pages_per_block: g.pages_per_block.into(),
            blocks: g.blocks.into(),
            policy: self.policy.into(),
            seq: self.seq.into(),
            clean: u32::from(self.clean).into(),
            runs: (self.tables.len() as u32).into(),
        };
        let mut page = Vec::from(head.as_bytes());
        self.tables.iter().for_each(|run| page.extend(RawRun::new(*run).as_bytes()));
        page.resize(g.page_bytes as usize, 0);
        page
    }

    /// Reads a commit page of this medium.
    pub(crate) fn read(bytes: &[u8], g: &Geometry, logical_pages: u32, page: u32) -> Result<Commit> {
        let corrupt = FtlError::Corrupt("a commit page", page);
        let (head, runs) = RawMapCommit::ref_from_prefix(bytes).map_err(|_| corrupt)?;
        if head.magic != COMMIT_MAGIC {
            return Err(corrupt);
        }
        if head.version != VERSION {
            return Err(FtlError::Incompatible("version", u64::from(head.version), u64::from(VERSION)));
        }
        let fields = [
            ("logical pages", head.logical_pages, logical_pages),
            ("bytes of a flash page", head.page_bytes, g.page_bytes),
            ("out-of-band bytes", head.spare_bytes, g.spare_bytes),
            ("pages of a block", head.pages_per_block, g.pages_per_block),
            ("blocks", head.blocks, g.blocks),
        ];
        for (name, is, wanted) in fields {
            if is != wanted {
                return Err(FtlError::Incompatible(name, u64::from(is.get()), u64::from(wanted)));
            }
        }
        let count = head.runs.get() as usize;
        if count > runs.len() / size_of::<RawRun>() {
            return Err(corrupt);
        }
        let tables = RawRun::all(runs).take(count).collect();
        Ok(Commit { seq: head.seq.get(), clean: head.clean == 1, policy: head.policy.get(), tables })
    }
}
