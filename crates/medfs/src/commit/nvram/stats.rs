//! What a journal in NVRAM tells of itself.

use medfs_device::nvram::LINE;
use serde::Serialize;

/// With `nvram=`: what the memory holds, and what it took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct NvramStats {
    /// Where it is.
    pub place: String,
    /// Bytes of its ring.
    pub bytes: u64,
    /// Bytes of it in use by records that count.
    pub used: u64,
    /// fsyncs that became a record, since the volume was opened.
    pub records: u64,
    /// Bytes of all records.
    pub record_bytes: u64,
    /// Pages in them.
    pub pages: u64,
    /// Pages of them that start from what their file repeats, or from what an older record made.
    pub from_parts: u64,
    /// Nodes in them.
    pub nodes: u64,
    /// Pages that they revoke.
    pub revoked: u64,
    /// Pages that were written to the volume for records, as no record was to hold them.
    pub placed: u64,
    /// Records of changes that nothing synced.
    pub unsynced: u64,
    /// Writes that were made durable, by a fence or a request of their own: records and metadata.
    pub persists: u64,
    /// Cache lines of 64 bytes that they touched.
    pub lines: u64,
    /// Writes of the line that was written most often.
    pub most_written_line: u64,
    /// Pages that only records hold now.
    pub pages_held: u64,
    /// Of these pages, those of which memory has no more than what they differ by from their blocks.
    pub pages_away: u64,
    /// Records that a flush came before, as their base blocks were not durable.
    pub flushed_first: u64,
    /// Checkpoints that made records void.
    pub emptied: u64,
    /// Records made of all others, which then went.
    pub compactions: u64,
    /// Bytes of the ring that these gave back.
    pub compacted: u64,
    /// fsyncs that went to the volume as atomic writes and compressed files do.
    pub left_for_kind: u64,
    /// Those of which too much changed.
    pub left_for_size: u64,
    /// Those for which there was no room.
    pub left_for_room: u64,
    /// Those whose bases could not be read.
    pub left_unreadable: u64,
    /// Those after the memory failed.
    pub left_after_failure: u64,
}

impl NvramStats {
    pub(super) fn note_written(&mut self, at: u64, bytes: u64) {
        self.persists += 1;
        self.lines += (at + bytes).div_ceil(LINE) - at / LINE;
    }
}
