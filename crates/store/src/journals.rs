//! The journals of NAT and SIT in a checkpoint pack, whose counts no checksum covers.
//!
//! A flipped bit in a count leaves out what the last checkpoint changed, or takes up what an earlier one did: files
//! show old content, and what is written then goes over blocks in use. What is around a journal tells its count:
//!
//! - An entry of the NAT's is in force where its block holds the node and is in use, and that of the table does not.
//! - With the right entries of the SIT's, all segments together have as many nodes in use as the checkpoint counts, and
//!   no more blocks, and the segments of the logs are of their types. Behind the last one medfs leaves zeros.
//!
//! Purpose: to find the one count, a flipped bit away, that explains everything. Where there is none nothing is turned.
//! A sound volume costs a look at the SIT for each entry in force. Where entries that are not are left behind these, as
//! the kernel leaves them, each costs a look at the table and at two nodes.

use crate::error::Result;
use crate::io::Io;
use crate::nat::Nat;
use crate::segment::Segments;
use medfs_format::checkpoint::RawCheckpoint;
use medfs_format::node::footer;
use medfs_format::sit::{ENTRIES_PER_BLOCK, RawSitBlock, test_bit};
use medfs_format::summary::{Log, NAT_JOURNAL_ENTRIES, RawJournal, RawNatJournalEntry, SIT_JOURNAL_ENTRIES};
use medfs_format::{BlockAddr, FormatError, Geometry, NULL_ADDR, Nid, Structure};
use zerocopy::IntoBytes;

/// What the blocks of the SIT say of each segment: how many blocks are in use, and its type.
struct InUse(Vec<(u16, u8)>);

impl InUse {
    fn read(io: &Io, geo: &Geometry, bitmap: &[u8]) -> Result<InUse> {
        let mut counts = Vec::new();
        for index in 0..geo.sit_blocks() {
            let block = io.read(geo.sit_block(index, test_bit(bitmap, index as usize)))?;
            let left = geo.segment_count_main as usize - index as usize * ENTRIES_PER_BLOCK;
            let entries = &block.view::<RawSitBlock>().entries[..left.min(ENTRIES_PER_BLOCK)];
            counts.extend(entries.iter().map(|entry| (entry.valid_blocks(), entry.seg_type())));
        }
        Ok(InUse(counts))
    }

    /// The same with the entries of a journal, where these can be such.
    fn with(&self, journal: &RawJournal) -> Option<InUse> {
        let mut all = self.0.clone();
        for entry in journal.sit_entries().ok()? {
            let segno = entry.segno.get();
            entry.entry.validate(segno).ok()?;
            *all.get_mut(segno as usize)? = (entry.entry.valid_blocks(), entry.entry.seg_type());
        }
        Some(InUse(all))
    }

    /// Nodes in use.
    fn nodes(&self) -> u64 {
        let of_nodes = self.0.iter().filter(|(_, of)| *of >= Log::HotNode as u8);
        of_nodes.map(|(count, _)| u64::from(*count)).sum()
    }

    /// Blocks in use.
    fn blocks(&self) -> u64 {
        self.0.iter().map(|(count, _)| u64::from(*count)).sum()
    }

    /// Segments without blocks in use, but for those of the logs.
    fn free_segments(&self, header: &RawCheckpoint) -> u32 {
        let is_log =
            |segno: usize| Log::ALL.iter().any(|log| header.curseg(*log as usize).0 as usize == segno);
        self.0.iter().enumerate().filter(|(segno, (count, _))| *count == 0 && !is_log(*segno)).count() as u32
    }

    /// Whether it is what a checkpoint counts: its nodes, its free segments, and no more blocks, as it counts those
    /// that are reserved alone among them; and whether the segments of the logs are of their types.
    fn is_counted_by(&self, header: &RawCheckpoint, geo: &Geometry) -> bool {
        let is_typed = |log: &Log| {
            let (segno, _) = header.curseg(*log as usize);
            self.0.get(segno as usize).is_none_or(|(_, of)| *of == *log as u8)
        };
        let is_free = !counts_segments(geo) || self.free_segments(header) == header.free_segment_count.get();
        self.nodes() == u64::from(header.valid_node_count.get())
            && self.blocks() <= header.valid_block_count.get()
            && is_free
            && Log::ALL.iter().all(is_typed)
    }
}

/// Whether the free segments that a checkpoint counts are all of them: `mkfs.f2fs` leaves some out of larger sections.
pub(crate) fn counts_segments(geo: &Geometry) -> bool {
    geo.segs_per_sec == 1 && geo.secs_per_zone == 1
}

/// What a journal is judged by.
pub(crate) struct Around<'a> {
    pub(crate) io: &'a Io,
    pub(crate) geo: &'a Geometry,
    /// Which copies of the SIT's blocks are in force.
    pub(crate) sit_bitmap: &'a [u8],
    /// What counts the nodes and blocks in use. Blocks that are reserved alone are among the latter.
    pub(crate) header: &'a RawCheckpoint,
    /// Whether medfs wrote the checkpoint: it leaves zeros behind the last entry.
    pub(crate) is_own: bool,
}

impl Around<'_> {
    /// The journal of the SIT as it was before a bit of its count flipped; `None` where nothing says that one did.
    pub(crate) fn turned_sit(&self, journal: &RawJournal) -> Option<RawJournal> {
        let places = journal.sit_places();
        let is_blank = |at: usize| places[at].as_bytes().iter().all(|&byte| byte == 0);
        let filled = (0..places.len()).rev().find(|&at| !is_blank(at)).map_or(0, |last| last + 1);
        if usize::from(journal.count.get()) == filled {
            return None;
        }
        let counts = InUse::read(self.io, self.geo, self.sit_bitmap).ok()?;
        let is_right = |journal: &RawJournal| {
            let is_filled = usize::from(journal.count.get()) == filled;
            self.are_counted(&counts, journal) && (is_filled || !self.is_own || filled == 0)
        };
        if is_right(journal) {
            return None;
        }
        let turned = journal.counts_a_bit_away(SIT_JOURNAL_ENTRIES).map(|count| journal.counted(count));
        sole(turned.filter(is_right))
    }

    /// The same of the journal of the NAT. `table` is the NAT without it, and `sit` what the SIT's own journal says.
    pub(crate) fn turned_nat(
        &self,
        journal: &RawJournal,
        (sit, table, segs): (&RawJournal, &Nat, &mut Segments),
    ) -> Option<RawJournal> {
        let (places, count) = (journal.nat_places(), usize::from(journal.count.get()));
        let is_usual = |(at, entry): (usize, &RawNatJournalEntry)| match entry.entry.block_addr.get() {
            _ if at >= count => entry.nid.get() == 0,
            addr => entry.nid.get() != 0 && (addr == NULL_ADDR || self.is_used(segs, addr) != Some(false)),
        };
        if count <= places.len() && places.iter().enumerate().all(is_usual) {
            return None;
        }
        let said: Vec<Option<bool>> =
            places.iter().map(|entry| self.is_in_force(table, segs, entry)).collect();
        let is_sound = |count: usize| {
            count <= said.len()
                && said[..count].iter().all(|said| *said != Some(false))
                && said[count..].iter().all(|said| *said != Some(true))
                && journal.counted(count).nat_entries().is_ok()
        };
        if is_sound(count) {
            return None;
        }
        // Else what the SIT says of blocks may be what is wrong.
        let counts = InUse::read(self.io, self.geo, self.sit_bitmap).ok()?;
        if !self.are_counted(&counts, sit) {
            return None;
        }
        let turned = journal.counts_a_bit_away(NAT_JOURNAL_ENTRIES).filter(|&count| is_sound(count));
        sole(turned).map(|count| journal.counted(count))
    }

    /// Whether the checkpoint counts what is in use with a journal of the SIT.
    fn are_counted(&self, counts: &InUse, journal: &RawJournal) -> bool {
        counts.with(journal).is_some_and(|counts| counts.is_counted_by(self.header, self.geo))
    }

    /// Whether an entry of the NAT's journal is in force, as its block and that in the table tell; `None` where they do
    /// not.
    fn is_in_force(&self, table: &Nat, segs: &mut Segments, entry: &RawNatJournalEntry) -> Option<bool> {
        let (nid, addr) = (entry.nid.get(), entry.entry.block_addr.get());
        if !self.geo.is_nid(nid) {
            return Some(false);
        }
        let other = table.peek(self.io, nid).ok()?.addr;
        let own = self.has_node(segs, addr, nid)?;
        let others = self.has_node(segs, other, nid)?;
        match (addr == other, own, others) {
            (true, _, _) | (false, true, true) => None,
            (false, true, false) => Some(true),
            (false, false, true) => Some(false),
            // A node that is gone, or was never there.
            (false, false, false) if addr == NULL_ADDR => Some(true),
            (false, false, false) if other == NULL_ADDR => Some(false),
            (false, false, false) => None,
        }
    }

    /// Whether a block is in use; `None` where the SIT does not tell.
    fn is_used(&self, segs: &mut Segments, addr: BlockAddr) -> Option<bool> {
        if self.geo.in_main(addr) { segs.is_valid(self.io, addr).ok() } else { Some(false) }
    }

    /// Whether a block is in use and holds this node.
    fn has_node(&self, segs: &mut Segments, addr: BlockAddr, nid: Nid) -> Option<bool> {
        if !self.is_used(segs, addr)? {
            return Some(false);
        }
        Some(footer(&*self.io.read(addr).ok()?).nid.get() == nid)
    }
}

fn sole<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

/// Takes the journal with the right count, where a bit of it flipped: in memory, for those who only read. Nothing is
/// written by what was guessed: else it is `Corrupt`.
pub(crate) fn settle(
    journal: &mut RawJournal,
    turned: Option<RawJournal>,
    count: &'static str,
    read_only: bool,
) -> Result<()> {
    let Some(turned) = turned else { return Ok(()) };
    let (is, was) = (journal.count, turned.count);
    let what = format!("{is}, and what is in use says {was}: a bit of it flipped");
    let error = FormatError::corrupt(Structure::Journal, 0u32, count, what);
    if !read_only {
        return Err(error.into());
    }
    tracing::warn!(%error, "read with the count turned back");
    *journal = turned;
    Ok(())
}
