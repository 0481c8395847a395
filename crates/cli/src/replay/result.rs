//! The result of one column, as it is stored: `docs/TRACE.md` describes the fields, which keep their names.

use medfs_flash::{Header, Stats};
use medfs_format::BLOCK_SIZE;
use medfs_trace::replay::{LatencyOf, Mismatches, Outcome};
use medfs_trace::{Ending, Head, record};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the fields.
pub(crate) const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CellResult {
    pub(crate) format: u32,
    pub(crate) kind: String,
    pub(crate) column: String,
    pub(crate) system: String,
    pub(crate) version: String,
    pub(crate) device: String,
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) volume_bytes: u64,
    pub(crate) order: String,
    pub(crate) timed: bool,
    pub(crate) machine: Machine,
    pub(crate) trace: TraceOf,
    /// Bytes that reached the device while the operations ran, until all was durable.
    pub(crate) written_bytes: Written,
    pub(crate) setup_written_bytes: u64,
    pub(crate) device_read_bytes: u64,
    pub(crate) flushes: u64,
    pub(crate) operations: BTreeMap<String, u64>,
    pub(crate) operations_total: u64,
    pub(crate) file_bytes_read: u64,
    pub(crate) file_bytes_written: u64,
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) engine_ns: u64,
    pub(crate) operations_per_second: f64,
    pub(crate) latency: Vec<LatencyOf>,
    pub(crate) verification: Verification,
    /// The engine's statistics at the end, of a volume of medfs.
    pub(crate) stats: Option<serde_json::Value>,
    /// What the NAND did meanwhile, of a volume on a flash device.
    #[serde(default)]
    pub(crate) flash: Option<FlashUse>,
}

/// What a flash device did while the operations ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FlashUse {
    pub(crate) profile: String,
    pub(crate) ftl: String,
    pub(crate) codec: String,
    pub(crate) host_written_bytes: u64,
    pub(crate) flash_written_bytes: u64,
    /// Flash bytes for each of the host's; 0 where it wrote none.
    pub(crate) write_amplification: f64,
    /// Blocks erased, of data and of the map.
    pub(crate) erases: u64,
    pub(crate) erases_map: u64,
    /// Logical pages that were compressed, for the host and by collection.
    pub(crate) compressed_pages: u64,
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

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) arch: String,
    pub(crate) cpus: usize,
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

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TraceOf {
    pub(crate) id: String,
    pub(crate) source: String,
    pub(crate) about: String,
    pub(crate) private: bool,
    pub(crate) complete: bool,
}

/// By cause; without causes of file systems that do not tell them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) total: u64,
    pub(crate) data: Option<u64>,
    pub(crate) node: Option<u64>,
    pub(crate) compact: Option<u64>,
    pub(crate) meta: Option<u64>,
    pub(crate) gc: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Verification {
    pub(crate) results: Mismatches,
    pub(crate) unverified_reads: u64,
    pub(crate) tolerated: u64,
    /// `identical`, `different`, or `unknown` where the trace does not have its end.
    pub(crate) tree: String,
    pub(crate) tree_differences: Mismatches,
}

/// What a device did between two moments.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeviceUse {
    pub(crate) written: Written,
    pub(crate) setup_written: u64,
    pub(crate) read: u64,
    pub(crate) flushes: u64,
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
            kind: "replay".into(),
            column: String::new(),
            system: String::new(),
            version: String::new(),
            device: String::new(),
            options: BTreeMap::new(),
            volume_bytes: 0,
            order: String::new(),
            timed: false,
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
            stats: None,
            flash: None,
        }
    }

    /// Whether everything was as recorded, as far as the trace tells.
    pub(crate) fn is_verified(&self) -> bool {
        self.verification.results.count == 0 && self.verification.tree != "different"
    }
}
