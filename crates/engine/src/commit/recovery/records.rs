//! The records of a journal in NVRAM, as a mount finds them.
//!
//! A record counts while the checkpoint is in force that was when it was made.

use crate::error::Result;
use medfs_format::checkpoint::ChainVersion;
use medfs_format::nvram::{Meta, Record, Stamp, Tag, scan};
use std::ops::Range;

/// The bytes of a memory that holds records of the volume; empty where there is none.
#[derive(Debug, Default)]
pub(crate) struct Records {
    memory: Vec<u8>,
    meta: Option<Meta>,
}

/// A record, and where it lies.
pub(super) struct PlacedRecord<'a> {
    pub(super) at: u64,
    pub(super) stamp: Stamp,
    record: Record<'a>,
    memory: &'a [u8],
}

impl Records {
    /// Those of a journal.
    pub(crate) fn new(memory: Vec<u8>, meta: Meta) -> Records {
        Records { memory, meta: Some(meta) }
    }

    /// Those that were made under this checkpoint, in their order.
    pub(super) fn of(&self, version: ChainVersion) -> Result<Vec<PlacedRecord<'_>>> {
        let Some(meta) = &self.meta else { return Ok(Vec::new()) };
        let memory = &self.memory[..];
        let records = scan(memory, meta)?.records.into_iter();
        let records = records.map(|(at, record)| PlacedRecord { at, stamp: record.stamp, record, memory });
        Ok(records.filter(|record| version.belongs(record.stamp.checkpoint)).collect())
    }

    /// Bytes of the memory.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.memory.get(range).unwrap_or_default()
    }
}

impl<'a> PlacedRecord<'a> {
    /// What it says, in order.
    pub(super) fn tags(&self) -> impl Iterator<Item = Tag<'a>> + use<'a> {
        self.record.tags()
    }

    /// Where bytes of it lie in the memory.
    pub(super) fn range_of(&self, bytes: &[u8]) -> Range<usize> {
        let start = bytes.as_ptr().addr() - self.memory.as_ptr().addr();
        start..start + bytes.len()
    }
}
