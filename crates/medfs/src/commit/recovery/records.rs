//! The records of a journal in NVRAM, as a mount finds them.
//!
//! A record counts while the checkpoint is in force that was when it was made.

use medfs_format::FormatError;
use medfs_format::checkpoint::ChainVersion;
use medfs_format::nvram::{Meta, Record, Scanned, Stamp, Tag, scan, scan_to_damage};
use std::ops::Range;

/// The bytes of a memory that holds records of the volume; empty where there is none.
#[derive(Debug, Default)]
pub(crate) struct Records {
    memory: Vec<u8>,
    /// Where each of them begins, in their order.
    starts: Vec<u64>,
    on_damage: OnDamage,
}

/// What a replay does about records that are damaged, and about what their deltas do not make.
#[derive(Debug, Default)]
enum OnDamage {
    /// It is an error.
    #[default]
    Refuse,
    /// It is given up, and all else is kept.
    GiveUp {
        /// The damage of a record, where there is some: it and those behind it are given up.
        damage: Option<FormatError>,
        /// The records of a checkpoint that is lost, where there are some.
        later: Option<String>,
    },
}

/// A record, and where it lies.
pub(super) struct PlacedRecord<'a> {
    pub(super) at: u64,
    pub(super) stamp: Stamp,
    record: Record<'a>,
    memory: &'a [u8],
}

impl Records {
    /// Those of a journal. `Corrupt` where it is damaged.
    pub(crate) fn of_journal(memory: Vec<u8>, meta: &Meta) -> Result<Records, FormatError> {
        let starts = starts(scan(&memory, meta)?);
        Ok(Records { memory, starts, on_damage: OnDamage::Refuse })
    }

    /// The same for a repair, which gives up what is damaged. `Corrupt` where none can be read.
    pub(crate) fn of_damaged_journal(memory: Vec<u8>, meta: &Meta) -> Result<Records, FormatError> {
        let (scanned, damage) = scan_to_damage(&memory, meta)?;
        let starts = starts(scanned);
        Ok(Records { memory, starts, on_damage: OnDamage::GiveUp { damage, later: None } })
    }

    /// Whether what cannot be made of a record is given up.
    pub(super) fn are_given_up(&self) -> bool {
        matches!(self.on_damage, OnDamage::GiveUp { .. })
    }

    /// What is wrong with the first record that is given up.
    pub(super) fn damage(&self) -> Option<&FormatError> {
        match &self.on_damage {
            OnDamage::GiveUp { damage, .. } => damage.as_ref(),
            OnDamage::Refuse => None,
        }
    }

    /// Leaves out the records that follow a later checkpoint than that of the volume, which is lost then: no end of
    /// power takes a checkpoint away that records follow, or that emptied the journal. `Err` says which of the two,
    /// where the records are not given up.
    pub(crate) fn leave_later(&mut self, meta: &Meta, checkpoint: u64) -> Result<(), String> {
        let is_later = |at: &u64| {
            let memory = self.memory.get(*at as usize..).unwrap_or_default();
            Record::parse(memory, *at).is_ok_and(|record| record.stamp.checkpoint as u32 > checkpoint as u32)
        };
        let later = self.starts.iter().filter(|at| is_later(at)).count();
        let what = match later {
            0 if meta.checkpoint as u32 <= checkpoint as u32 => return Ok(()),
            0 => "was emptied by a later checkpoint than the volume has".into(),
            _ => format!("has {later} records that follow a later checkpoint than the volume has"),
        };
        match &mut self.on_damage {
            OnDamage::Refuse => Err(what),
            OnDamage::GiveUp { later, .. } => {
                *later = Some(format!("the NVRAM {what}"));
                Ok(())
            }
        }
    }

    /// What is said of records that are given up with the checkpoint that they follow.
    pub(super) fn later(&self) -> Option<&String> {
        match &self.on_damage {
            OnDamage::GiveUp { later, .. } => later.as_ref(),
            OnDamage::Refuse => None,
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Those that were made under this checkpoint, in their order.
    pub(super) fn of(&self, version: ChainVersion) -> Result<Vec<PlacedRecord<'_>>, FormatError> {
        let memory = &self.memory[..];
        let placed = self.starts.iter().map(|&at| {
            let record = Record::parse(memory.get(at as usize..).unwrap_or_default(), at)?;
            Ok(PlacedRecord { at, stamp: record.stamp, record, memory })
        });
        let counts = |record: &PlacedRecord<'_>| version.belongs(record.stamp.checkpoint);
        placed.filter(|placed| placed.as_ref().map_or(true, counts)).collect()
    }

    /// Bytes of the memory.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.memory.get(range).unwrap_or_default()
    }
}

fn starts(scanned: Scanned<'_>) -> Vec<u64> {
    scanned.records.into_iter().map(|(at, _)| at).collect()
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
