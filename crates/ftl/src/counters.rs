//! What the layer has done, counted.

/// Pages written to flash, by why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// For the host.
    pub host: u64,
    /// By garbage collection and wear levelling.
    pub collected: u64,
    /// Map, checkpoints, trims.
    pub map: u64,
}

impl PageCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.host + self.collected + self.map
    }
}

/// Counts since the medium was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Logical pages the host wrote.
    pub host_writes: u64,
    /// Of these, hinted as hot, warm and cold.
    pub host_hints: [u64; 3],
    /// Logical pages the host read.
    pub host_reads: u64,
    /// Logical pages trimmed that held something.
    pub trimmed: u64,
    /// Flushes.
    pub flushes: u64,
    /// Flash pages programmed.
    pub programs: PageCounts,
    /// Flash pages read for the host, and by collection.
    pub reads_host: u64,
    /// Flash pages read by collection.
    pub reads_collected: u64,
    /// Blocks erased: of data, and of the map.
    pub erases: u64,
    /// Blocks of the map erased.
    pub erases_map: u64,
    /// Logical pages compressed for the host.
    pub compressed_host: u64,
    /// Logical pages that the host wrote, compressed, and that did not become smaller.
    pub compressed_vain: u64,
    /// Logical pages compressed by collection.
    pub compressed_collected: u64,
    /// Bytes of logical pages, compressed, that the host's pages became.
    pub compressed_bytes: u64,
    /// Compressed pages that lie across two flash pages.
    pub across: u64,
    /// Logical pages moved by collection.
    pub moved: u64,
    /// Blocks collected while a write waited.
    pub collections_waited: u64,
    /// Blocks collected while nothing waited.
    pub collections_idle: u64,
    /// Blocks moved to level wear.
    pub levelled: u64,
    /// Flash pages programmed before they were full.
    pub padded: u64,
    /// Nanoseconds of collection: moving pages.
    pub move_ns: u64,
    /// Nanoseconds of collection: erasing.
    pub erase_ns: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Blocks that went bad.
    pub grown_bad: u64,
}
