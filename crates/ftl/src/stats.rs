//! What the layer has done, counted.

/// Pages written to flash, by why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
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
    /// Flash pages read for the host.
    pub reads_host: u64,
    /// Flash pages read by collection.
    pub reads_collected: u64,
    /// Blocks of data erased.
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

impl core::ops::AddAssign for Counters {
    fn add_assign(&mut self, more: Counters) {
        self.host_hints.iter_mut().zip(more.host_hints).for_each(|(sum, more)| *sum += more);
        self.programs.host += more.programs.host;
        self.programs.collected += more.programs.collected;
        self.programs.map += more.programs.map;
        self.host_writes += more.host_writes;
        self.host_reads += more.host_reads;
        self.trimmed += more.trimmed;
        self.flushes += more.flushes;
        self.reads_host += more.reads_host;
        self.reads_collected += more.reads_collected;
        self.erases += more.erases;
        self.erases_map += more.erases_map;
        self.compressed_host += more.compressed_host;
        self.compressed_vain += more.compressed_vain;
        self.compressed_collected += more.compressed_collected;
        self.compressed_bytes += more.compressed_bytes;
        self.across += more.across;
        self.moved += more.moved;
        self.collections_waited += more.collections_waited;
        self.collections_idle += more.collections_idle;
        self.levelled += more.levelled;
        self.padded += more.padded;
        self.move_ns += more.move_ns;
        self.erase_ns += more.erase_ns;
        self.checkpoints += more.checkpoints;
        self.grown_bad += more.grown_bad;
    }
}

impl core::ops::SubAssign for Counters {
    fn sub_assign(&mut self, less: Counters) {
        self.host_hints.iter_mut().zip(less.host_hints).for_each(|(left, less)| *left -= less);
        self.programs.host -= less.programs.host;
        self.programs.collected -= less.programs.collected;
        self.programs.map -= less.programs.map;
        self.host_writes -= less.host_writes;
        self.host_reads -= less.host_reads;
        self.trimmed -= less.trimmed;
        self.flushes -= less.flushes;
        self.reads_host -= less.reads_host;
        self.reads_collected -= less.reads_collected;
        self.erases -= less.erases;
        self.erases_map -= less.erases_map;
        self.compressed_host -= less.compressed_host;
        self.compressed_vain -= less.compressed_vain;
        self.compressed_collected -= less.compressed_collected;
        self.compressed_bytes -= less.compressed_bytes;
        self.across -= less.across;
        self.moved -= less.moved;
        self.collections_waited -= less.collections_waited;
        self.collections_idle -= less.collections_idle;
        self.levelled -= less.levelled;
        self.padded -= less.padded;
        self.move_ns -= less.move_ns;
        self.erase_ns -= less.erase_ns;
        self.checkpoints -= less.checkpoints;
        self.grown_bad -= less.grown_bad;
    }
}
