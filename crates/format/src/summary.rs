//! Segment summaries: which node refers to each block of a segment; and the NAT and SIT journals
//! that ride in the summary blocks of the current segments.

use crate::nat::RawNatEntry;
use crate::sit::RawSitEntry;
use crate::{BLOCK_SIZE, FormatError, Structure};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Number of active logs.
pub const LOG_COUNT: usize = 6;

/// The six active logs, in the order of F2FS's segment types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Log {
    HotData = 0,
    WarmData = 1,
    ColdData = 2,
    HotNode = 3,
    WarmNode = 4,
    ColdNode = 5,
}

impl Log {
    /// All logs in order.
    pub const ALL: [Log; LOG_COUNT] =
        [Log::HotData, Log::WarmData, Log::ColdData, Log::HotNode, Log::WarmNode, Log::ColdNode];
    /// Whether the log holds nodes.
    pub fn is_node(self) -> bool {
        self as u8 >= Log::HotNode as u8
    }
}

/// Summary entries in a block: one for each block of the segment.
pub const ENTRIES_PER_BLOCK: usize = 512;
/// Bytes of the journal area.
pub const JOURNAL_SIZE: usize = BLOCK_SIZE - size_of::<RawSummaryFooter>() - 7 * ENTRIES_PER_BLOCK;
/// NAT entries a journal holds.
pub const NAT_JOURNAL_ENTRIES: usize = (JOURNAL_SIZE - 2) / size_of::<RawNatJournalEntry>();
/// SIT entries a journal holds.
pub const SIT_JOURNAL_ENTRIES: usize = (JOURNAL_SIZE - 2) / size_of::<RawSitJournalEntry>();
/// Footer type of a data segment's summary.
pub const SUM_TYPE_DATA: u8 = 0;
/// Footer type of a node segment's summary.
pub const SUM_TYPE_NODE: u8 = 1;

/// Owner of one block (7 bytes).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawSummary {
    /// Node that holds the block's address (data), or the node itself (node blocks).
    pub nid: U32,
    /// NAT version of `nid` when the block was written.
    pub version: u8,
    /// Index of the address in the node; 0 for node blocks.
    pub ofs_in_node: U16,
}

/// End of a summary block (5 bytes).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSummaryFooter {
    /// [`SUM_TYPE_DATA`] or [`SUM_TYPE_NODE`].
    pub entry_type: u8,
    /// Unused by the kernel.
    pub check_sum: U32,
}

/// One NAT entry in a journal (13 bytes).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawNatJournalEntry {
    /// The node id.
    pub nid: U32,
    /// Its NAT entry, newer than the table's.
    pub entry: RawNatEntry,
}

/// One SIT entry in a journal (78 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSitJournalEntry {
    /// The segment number.
    pub segno: U32,
    /// Its SIT entry, newer than the table's.
    pub entry: RawSitEntry,
}

/// The journal area of a summary block (507 bytes): NAT in the hot data log, SIT in the cold data log,
/// [`RawExtraInfo`] in the hot node log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawJournal {
    /// Number of entries.
    pub count: U16,
    /// The entries' bytes.
    pub bytes: [u8; JOURNAL_SIZE - 2],
}

/// What the kernel calls `f2fs_extra_info`, in the entries' place of the hot node log's journal.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawExtraInfo {
    /// KiB written to the volume in its life. Known after an unmount only: other checkpoints have no
    /// summaries of node logs.
    pub kbytes_written: U64,
}

/// Entries of a journal, or the error if two have the same number: a journal is changed in place.
fn each_once<'j, T>(
    entries: &'j [T],
    field: &'static str,
    number: impl Fn(&T) -> u32,
) -> Result<&'j [T], FormatError> {
    match sole(entries, &number).count() == entries.len() {
        true => Ok(entries),
        false => Err(FormatError::corrupt(Structure::Journal, 0u32, field, "in more than one entry")),
    }
}

/// The entries whose number no other one has.
fn sole<T>(entries: &[T], number: impl Fn(&T) -> u32) -> impl Iterator<Item = &T> {
    entries
        .iter()
        .filter(move |entry| entries.iter().filter(|other| number(other) == number(entry)).nth(1).is_none())
}

impl RawJournal {
    /// The content of the hot node log's journal.
    pub fn extra_info(&self) -> RawExtraInfo {
        RawExtraInfo::read_from_prefix(&self.bytes).expect("the journal is larger").0
    }

    /// The journal of a hot node log.
    pub fn of_extra_info(info: RawExtraInfo) -> RawJournal {
        let mut journal = RawJournal::EMPTY;
        journal.bytes[..size_of::<RawExtraInfo>()].copy_from_slice(info.as_bytes());
        journal
    }

    /// An empty journal.
    pub const EMPTY: RawJournal = RawJournal { count: U16::new(0), bytes: [0; JOURNAL_SIZE - 2] };

    /// The NAT entries, or the error if there are more than fit, or two of one node.
    pub fn nat_entries(&self) -> Result<&[RawNatJournalEntry], FormatError> {
        each_once(self.entries(NAT_JOURNAL_ENTRIES)?, "nid", |entry| entry.nid.get())
    }

    /// The SIT entries, or the error if there are more than fit, or two of one segment.
    pub fn sit_entries(&self) -> Result<&[RawSitJournalEntry], FormatError> {
        each_once(self.entries(SIT_JOURNAL_ENTRIES)?, "segno", |entry| entry.segno.get())
    }

    /// What is in the places of all NAT entries that fit, whatever the count says.
    pub fn nat_places(&self) -> &[RawNatJournalEntry] {
        self.places(NAT_JOURNAL_ENTRIES)
    }

    /// What is in the places of all SIT entries that fit, whatever the count says.
    pub fn sit_places(&self) -> &[RawSitJournalEntry] {
        self.places(SIT_JOURNAL_ENTRIES)
    }

    /// The same entries with another count.
    pub fn counted(&self, count: usize) -> RawJournal {
        RawJournal { count: U16::new(count as u16), ..*self }
    }

    /// The counts that one flipped bit of the count may have been, where as many entries fit.
    pub fn counts_a_bit_away(&self, max: usize) -> impl Iterator<Item = usize> {
        let count = self.count.get();
        (0..u16::BITS).map(move |bit| usize::from(count ^ 1 << bit)).filter(move |&count| count <= max)
    }

    /// The NAT entries of nodes that have just one, where no more are counted than fit: what a repair may take.
    pub fn sole_nat_entries(&self) -> impl Iterator<Item = &RawNatJournalEntry> {
        let entries: &[RawNatJournalEntry] = self.entries(NAT_JOURNAL_ENTRIES).unwrap_or_default();
        sole(entries, |entry| entry.nid.get())
    }

    /// The same of SIT entries, of segments.
    pub fn sole_sit_entries(&self) -> impl Iterator<Item = &RawSitJournalEntry> {
        let entries: &[RawSitJournalEntry] = self.entries(SIT_JOURNAL_ENTRIES).unwrap_or_default();
        sole(entries, |entry| entry.segno.get())
    }

    /// Replaces the contents by NAT entries; `false` (and nothing changed) where they do not fit.
    pub fn set_nat(&mut self, entries: &[RawNatJournalEntry]) -> bool {
        self.set(entries.as_bytes(), entries.len(), NAT_JOURNAL_ENTRIES)
    }

    /// Replaces the contents by SIT entries; `false` (and nothing changed) where they do not fit.
    pub fn set_sit(&mut self, entries: &[RawSitJournalEntry]) -> bool {
        self.set(entries.as_bytes(), entries.len(), SIT_JOURNAL_ENTRIES)
    }

    fn entries<T: FromBytes + Immutable + KnownLayout + Unaligned>(
        &self,
        max: usize,
    ) -> Result<&[T], FormatError> {
        let count = usize::from(self.count.get());
        if count > max {
            return Err(FormatError::corrupt(
                Structure::Journal,
                0u32,
                "count",
                format!("{count}, at most {max}"),
            ));
        }
        Ok(self.places(count))
    }

    fn places<T: FromBytes + Immutable + KnownLayout + Unaligned>(&self, count: usize) -> &[T] {
        <[T]>::ref_from_bytes_with_elems(&self.bytes[..count * size_of::<T>()], count)
            .expect("sized by the caller")
    }

    fn set(&mut self, bytes: &[u8], count: usize, max: usize) -> bool {
        if count > max {
            return false;
        }
        self.count = U16::new(count as u16);
        self.bytes.fill(0);
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        true
    }
}

/// A whole summary block.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSummaryBlock {
    /// One entry for each block of the segment.
    pub entries: [RawSummary; ENTRIES_PER_BLOCK],
    /// Journal; meaningful only in the checkpoint pack's copies of the current segments.
    pub journal: RawJournal,
    /// Type of the segment.
    pub footer: RawSummaryFooter,
}

const _: () = assert!(
    size_of::<RawSummary>() == 7
        && size_of::<RawSummaryFooter>() == 5
        && size_of::<RawNatJournalEntry>() == 13
        && size_of::<RawSitJournalEntry>() == 78
        && size_of::<RawExtraInfo>() == 8
        && size_of::<RawJournal>() == JOURNAL_SIZE
        && JOURNAL_SIZE == 507
        && NAT_JOURNAL_ENTRIES == 38
        && SIT_JOURNAL_ENTRIES == 6
        && size_of::<RawSummaryBlock>() == BLOCK_SIZE
);

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn a_number_in_two_entries_of_a_journal_is_in_neither() {
        let of = |nid: u32| RawNatJournalEntry { nid: nid.into(), ..RawNatJournalEntry::new_zeroed() };
        let mut journal = RawJournal::EMPTY;
        assert!(journal.set_nat(&[of(4), of(5), of(6)]));
        assert_eq!(journal.nat_entries().map(<[_]>::len), Ok(3));
        assert!(journal.set_nat(&[of(4), of(5), of(4)]));
        let error = journal.nat_entries().expect_err("two of node 4").to_string();
        assert!(error.contains("nid") && error.contains("more than one entry"), "{error}");
        assert_eq!(journal.sole_nat_entries().map(|entry| entry.nid.get()).collect::<Vec<_>>(), [5]);

        let of = |segno: u32| RawSitJournalEntry { segno: segno.into(), ..RawSitJournalEntry::new_zeroed() };
        assert!(journal.set_sit(&[of(0), of(0), of(7), of(0)]));
        assert!(journal.sit_entries().is_err());
        assert_eq!(journal.sole_sit_entries().map(|entry| entry.segno.get()).collect::<Vec<_>>(), [7]);
        journal.count = 1000.into();
        assert!(journal.sit_entries().is_err() && journal.sole_sit_entries().next().is_none());
    }
}
