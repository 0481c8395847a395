//! What one configuration did, as the report shows it.

use serde::{Deserialize, Serialize};

/// Blocks of 4 KiB that reached the device, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) data: u64,
    pub(super) node: u64,
    pub(super) compact: u64,
    pub(super) meta: u64,
    pub(super) gc: u64,
}

impl Written {
    pub(super) fn total(self) -> u64 {
        self.data + self.node + self.compact + self.meta + self.gc
    }

    pub(super) fn bytes(self) -> u64 {
        self.total() * medfs_format::BLOCK_SIZE as u64
    }

    pub(super) fn since(self, before: Written) -> Written {
        Written {
            data: self.data - before.data,
            node: self.node - before.node,
            compact: self.compact - before.compact,
            meta: self.meta - before.meta,
            gc: self.gc - before.gc,
        }
    }
}

/// What one configuration did.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Outcome {
    /// SQLite's journal mode; none for the built-in workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) journal_mode: Option<String>,
    pub(super) configuration: &'static str,
    /// Transactions over which writing was measured.
    pub(super) transactions: u64,
    pub(super) seconds: f64,
    /// Processor time of the file system and of the database, where they are different processes of both.
    pub(super) processor_seconds: f64,
    /// Bytes the transactions changed in rows.
    pub(super) payload_bytes: u64,
    /// Bytes the database handed to write(2), where the system counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) database_bytes: Option<u64>,
    pub(super) written_blocks: Written,
    pub(super) written_bytes: u64,
    pub(super) flushes: u64,
    /// Pages kept as deltas instead of being written, and the bytes of these deltas.
    pub(super) delta_pages: u64,
    pub(super) delta_bytes: u64,
    pub(super) crash: Crash,
}

/// What became of the transactions when the daemon was killed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Crash {
    /// Transactions whose commit had returned, from the beginning on.
    pub(super) acknowledged: u64,
    /// Transactions found after recovery; one more than acknowledged where a commit was on its way.
    pub(super) found: u64,
    pub(super) lost: u64,
    pub(super) recovery_seconds: f64,
    /// What the database's own check says.
    pub(super) integrity: String,
    pub(super) fsck_clean: bool,
}

impl Crash {
    /// Whether nothing that was acknowledged is lost, and the database and the volume are sound.
    pub(super) fn is_good(&self) -> bool {
        self.lost == 0 && self.found <= self.acknowledged + 1 && self.integrity == "ok" && self.fsck_clean
    }
}
