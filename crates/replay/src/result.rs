//! The result of one column, as it is stored: `docs/TRACE.md` describes the fields, which keep their names.
//!
//! A field that is missing reads as empty, so that results of programs that know less are still shown.

use crate::error::{Context, Error, Result};
use medfs_flash::{Header, Stats};
use medfs_format::BLOCK_SIZE;
use medfs_trace::replay::{LatencyOf, Mismatches, Outcome};
use medfs_trace::{Ending, Head, record};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the fields.
pub const FORMAT: u32 = 1;
/// The kind that results give themselves.
pub const KIND: &str = "replay";

/// The result of one column.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CellResult {
    /// Version of the fields: [`FORMAT`].
    pub format: u32,
    /// [`KIND`].
    pub kind: String,
    /// The column's name.
    pub column: String,
    /// The file system.
    pub system: String,
    /// Its version.
    pub version: String,
    /// The device it ran on.
    pub device: String,
    /// Axes and their values, of a volume of medfs.
    pub options: BTreeMap<String, String>,
    /// The volume's size.
    pub volume_bytes: u64,
    /// In which order operations were asked for.
    pub order: String,
    /// In recorded time.
    pub timed: bool,
    /// The machine it ran on.
    pub machine: Machine,
    /// The replayed trace.
    pub trace: TraceOf,
    /// Bytes that reached the device while the operations ran, until all was durable.
    pub written_bytes: Written,
    /// Bytes that reached the device before, while the tree was made.
    pub setup_written_bytes: u64,
    /// Bytes read from the device while the operations ran.
    pub device_read_bytes: u64,
    /// Flushes of the device.
    pub flushes: u64,
    /// Operations by name.
    pub operations: BTreeMap<String, u64>,
    /// All of them.
    pub operations_total: u64,
    /// Bytes that reads returned.
    pub file_bytes_read: u64,
    /// Bytes that were written.
    pub file_bytes_written: u64,
    /// From the first operation to the end of the last.
    pub wall_ns: u64,
    /// Processor time of the process meanwhile.
    pub cpu_ns: u64,
    /// Time within the operations, of all threads together.
    pub engine_ns: u64,
    /// Operations of a second.
    pub operations_per_second: f64,
    /// Latencies by operation.
    pub latency: Vec<LatencyOf>,
    /// Whether everything was as recorded.
    pub verification: Verification,
    /// The engine's statistics at the end, of a volume of medfs.
    pub stats: Option<serde_json::Value>,
    /// The use of the NAND meanwhile, of a volume on a flash device.
    pub flash: Option<FlashUse>,
}

/// The use of a flash device while the operations ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlashUse {
    /// The device's profile.
    pub profile: String,
    /// Its method.
    pub ftl: String,
    /// Its compressor.
    pub codec: String,
    /// Bytes that the volume wrote.
    pub host_written_bytes: u64,
    /// Bytes that were programmed.
    pub flash_written_bytes: u64,
    /// Flash bytes for each of the host's; 0 where it wrote none.
    pub write_amplification: f64,
    /// Blocks erased, of data and of the map.
    pub erases: u64,
    /// Those of the map.
    pub erases_map: u64,
    /// Logical pages that were compressed, for the host and by collection.
    pub compressed_pages: u64,
}

impl FlashUse {
    /// Between two moments of the device.
    pub(crate) fn between(header: &Header, since: &Stats, end: &Stats) -> FlashUse {
        let (a, b) = (&since.ftl, &end.ftl);
        let page_bytes = header.profile.geometry(header.blocks).page_bytes;
        let host = (b.host_writes - a.host_writes) * BLOCK_SIZE as u64;
        let flash = (b.programs.total() - a.programs.total()) * u64::from(page_bytes);
        let compressed = |of: &Stats| of.ftl.compressed_host + of.ftl.compressed_collected;
        FlashUse {
            profile: header.profile.name.clone(),
            ftl: header.ftl.clone(),
            codec: header.codec.clone(),
            host_written_bytes: host,
            flash_written_bytes: flash,
            write_amplification: if host > 0 { flash as f64 / host as f64 } else { 0.0 },
            erases: b.erases - a.erases,
            erases_map: b.erases_map - a.erases_map,
            compressed_pages: compressed(end) - compressed(since),
        }
    }
}

/// The machine a column ran on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// The processor's architecture.
    pub arch: String,
    /// Processors.
    pub cpus: usize,
}

impl Machine {
    pub(crate) fn this() -> Machine {
        let uname = rustix::system::uname();
        Machine {
            kernel: uname.release().to_string_lossy().into_owned(),
            arch: uname.machine().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The trace that was replayed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceOf {
    /// Its number.
    pub id: String,
    /// Its recorder: `mount`, `volume` or a tool.
    pub source: String,
    /// In words.
    pub about: String,
    /// It has no contents.
    pub private: bool,
    /// It has its end.
    pub complete: bool,
}

/// By cause; without causes of file systems that do not tell them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Written {
    /// All of them.
    pub total: u64,
    /// Pages of files.
    pub data: Option<u64>,
    /// Nodes.
    pub node: Option<u64>,
    /// Compact pages.
    pub compact: Option<u64>,
    /// Checkpoints and tables.
    pub meta: Option<u64>,
    /// Pages and nodes that cleaning moved.
    pub gc: Option<u64>,
}

/// Whether everything was as recorded.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Verification {
    /// Results that were not as recorded.
    pub results: Mismatches,
    /// Reads whose bytes the trace does not tell.
    pub unverified_reads: u64,
    /// Results that may differ between file systems and did.
    pub tolerated: u64,
    /// `identical`, `different`, or `unknown` where the trace does not have its end.
    pub tree: String,
    /// Differences in the tree.
    pub tree_differences: Mismatches,
}

/// The use of a device between two moments.
#[derive(Debug, Clone, Default)]
pub struct DeviceUse {
    /// Bytes written, by cause.
    pub written: Written,
    /// Bytes written before.
    pub setup_written: u64,
    /// Bytes read.
    pub read: u64,
    /// Flushes of the device.
    pub flushes: u64,
}

impl CellResult {
    /// What is the same for every system.
    pub(crate) fn new(
        head: &Head,
        ending: &Ending,
        outcome: &Outcome,
        tree: Option<Mismatches>,
        used: DeviceUse,
    ) -> CellResult {
        let counts = record::NAMES.iter().zip(outcome.counts).filter(|(_, count)| *count > 0);
        let seconds = outcome.wall_ns as f64 / 1e9;
        let state = match &tree {
            None => "unknown",
            Some(differences) if differences.count == 0 => "identical",
            Some(_) => "different",
        };
        CellResult {
            format: FORMAT,
            kind: KIND.into(),
            machine: Machine::this(),
            trace: TraceOf {
                id: head.id.clone(),
                source: head.source.clone(),
                about: head.about.clone(),
                private: head.private,
                complete: matches!(ending, Ending::Complete(_)),
            },
            written_bytes: used.written,
            setup_written_bytes: used.setup_written,
            device_read_bytes: used.read,
            flushes: used.flushes,
            operations: counts.map(|(name, count)| ((*name).to_owned(), count)).collect(),
            operations_total: outcome.operations(),
            file_bytes_read: outcome.bytes_read,
            file_bytes_written: outcome.bytes_written,
            wall_ns: outcome.wall_ns,
            cpu_ns: outcome.cpu_ns,
            engine_ns: outcome.engine_ns,
            operations_per_second: if seconds > 0.0 { outcome.operations() as f64 / seconds } else { 0.0 },
            latency: outcome.latency.summaries(),
            verification: Verification {
                results: outcome.mismatches.clone(),
                unverified_reads: outcome.unverified_reads,
                tolerated: outcome.tolerated,
                tree: state.into(),
                tree_differences: tree.unwrap_or_default(),
            },
            ..CellResult::default()
        }
    }

    /// The result in a file.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<CellResult> {
        let result: CellResult = serde_json::from_slice(&std::fs::read(path)?)?;
        if !result.is_known() {
            return Err(Error::refused(format!("{} holds no result of a replay", path.display())));
        }
        Ok(result)
    }

    /// Writes it into a file, whole or not at all.
    ///
    /// # Errors
    /// The system's.
    pub fn store(&self, path: &Path) -> Result<()> {
        let temporary = path.with_extension("json.new");
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(&temporary, text + "\n")
            .and_then(|()| std::fs::rename(&temporary, path))
            .context(|| format!("cannot write {}", path.display()))
    }

    /// Whether it is a result of this version.
    pub fn is_known(&self) -> bool {
        self.format == FORMAT && self.kind == KIND
    }

    /// Whether everything was as recorded, as far as the trace tells.
    pub fn is_verified(&self) -> bool {
        self.verification.results.count == 0 && self.verification.tree != "different"
    }
}
