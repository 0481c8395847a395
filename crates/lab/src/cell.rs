//! Result files: one JSON file for each cell of an experiment (a workload under a scheme), and one for its figures.
//!
//! The names of the fields are documented in `docs/LAB.md` and stay as they are; a reader ignores what it
//! does not know. Other programs write cells too (a replayed trace does): only `format` and `workload` must
//! be there.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The value of [`Cell::format`].
pub const CELL_FORMAT: &str = "medfs-cell/1";
/// The value of [`Figure::format`].
pub const FIGURE_FORMAT: &str = "medfs-figure/1";
/// The label of a mean over all workloads.
pub(crate) const MEAN: &str = "mean";
/// Largest result file that is read, in bytes.
const FILE_MAX: u64 = 64 << 20;

/// Bytes written to the device, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WrittenBytes {
    /// File content and directory entries.
    pub data: u64,
    /// Nodes.
    pub node: u64,
    /// Compact pages.
    pub compact: u64,
    /// Checkpoints and tables.
    pub meta: u64,
    /// Moved by cleaning.
    pub gc: u64,
    /// All of these.
    pub total: u64,
}

impl WrittenBytes {
    /// The causes by name.
    pub fn causes(&self) -> [(&'static str, u64); 5] {
        [
            ("data", self.data),
            ("node", self.node),
            ("compact", self.compact),
            ("meta", self.meta),
            ("gc", self.gc),
        ]
    }
}

/// A distribution of latencies, in microseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Operations.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90%.
    pub p90: f64,
    /// 99%.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// Upper bound and operations up to it (and above the one before), bounds doubling.
    pub buckets: Vec<(f64, u64)>,
}

/// A file in the plane of hotness: what reached the engine in one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotFile {
    /// Its path.
    pub file: String,
    /// Number of the window.
    pub window: u64,
    /// Calls that read it.
    pub reads: u64,
    /// Calls that wrote it.
    pub writes: u64,
    /// `read-hot-write-cold`, `read-hot-write-hot`, `read-cold-write-hot`, `read-cold-write-cold`.
    pub group: String,
}

/// How a device is used in the end: the segments of the main area that hold anything.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SegmentMap {
    /// Blocks in a segment.
    pub blocks_per_segment: u32,
    /// Number, valid blocks, and the log it belongs to (`HotData`, ..., as `medfs dump` names them).
    pub segments: Vec<(u32, u32, String)>,
}

/// The extents of a file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FileExtents {
    /// Its path.
    pub file: String,
    /// Runs of neighbouring blocks: first block address and length.
    pub extents: Vec<(u64, u64)>,
}

/// The result of one cell.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cell {
    /// [`CELL_FORMAT`].
    pub format: String,
    /// Experiment it belongs to.
    pub experiment: String,
    /// Workload.
    pub workload: String,
    /// Scheme: a name for the options.
    pub scheme: String,
    /// The name that tells it apart within its experiment (`threshold=5`).
    pub variant: String,
    /// Program and version that ran.
    pub program: String,
    /// Machine that it ran on.
    pub machine: Machine,
    /// Seed of the workload.
    pub seed: u64,
    /// Part of the full size that was run.
    pub scale: f64,
    /// Mount options.
    pub options: String,
    /// Device, in words.
    pub device: String,
    /// Bytes that reached the device while measured.
    pub written: WrittenBytes,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Flushes of the device.
    pub flushes: u64,
    /// Operations of the workload, by kind.
    pub operations: BTreeMap<String, u64>,
    /// Latencies by kind of operation, in microseconds of virtual time where the device is a model.
    pub latency_us: BTreeMap<String, Latency>,
    /// Bytes the workload made durable so far, and bytes that had reached the device then.
    pub progress: Vec<(u64, u64)>,
    /// Measured figures with names of their own.
    pub values: BTreeMap<String, f64>,
    /// Groups of hotness.
    pub hotness: Vec<HotFile>,
    /// Use of the device at the end.
    pub segments: Option<SegmentMap>,
    /// Extents of files at the end.
    pub extents: Vec<FileExtents>,
    /// Wall-clock seconds of the run; they say nothing where other programs ran.
    pub wall_seconds: f64,
    /// Findings of the check of the volume afterwards; must be 0.
    pub check_findings: Option<u64>,
    /// The engine's statistics, as `medfs stat --json` has them.
    pub stats: Option<Value>,
}

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Processor.
    pub processor: String,
    /// Processors that can be used.
    pub cores: u64,
    /// Kernel.
    pub kernel: String,
    /// Architecture.
    pub architecture: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|l| l.strip_prefix("model name")?.split_once(':').map(|(_, v)| v.trim()));
        Machine {
            processor: model.unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
        }
    }
}

/// One figure of a paper beside ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The compared thing: `TG`, `mean of the seven`.
    pub label: String,
    /// Scheme or variant, where there are several.
    #[serde(default)]
    pub scheme: String,
    /// The paper's figure; `None` where it gives none as a number.
    pub paper: Option<f64>,
    /// Ours; `None` where it could not be measured.
    pub ours: Option<f64>,
    /// Unit of both.
    pub unit: String,
    /// Why they differ, or what is to be known; may be empty.
    #[serde(default)]
    pub reason: String,
    /// Result files that ours comes from.
    #[serde(default)]
    pub cells: Vec<String>,
}

impl Row {
    /// Whether it is a mean over all workloads.
    pub fn is_mean(&self) -> bool {
        self.label == MEAN
    }

    /// Its name in a few words: of a mean the scheme alone.
    pub fn name(&self) -> String {
        match (self.is_mean(), self.scheme.is_empty()) {
            (_, true) => self.label.clone(),
            (true, false) => self.scheme.clone(),
            (false, false) => format!("{} {}", self.label, self.scheme),
        }
    }

    /// Ours in relation to the paper's.
    pub fn ratio(&self) -> Option<f64> {
        match (self.ours, self.paper) {
            (Some(ours), Some(paper)) if paper != 0.0 => Some(ours / paper),
            _ => None,
        }
    }
}

/// The figures of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// [`FIGURE_FORMAT`].
    pub format: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Its title.
    pub title: String,
    /// The figure or table of the paper.
    pub paper: String,
    /// A description of the set-up.
    pub about: String,
    /// Limits of the figures.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The report's drawing: `bars`, `latency`, `scatter`, `lines`, `agreement`, `table`.
    pub plot: String,
    /// The horizontal axis of a plot of lines.
    #[serde(default)]
    pub across: String,
    /// The comparison.
    pub rows: Vec<Row>,
}

/// Rows that a reason names; further ones are counted.
const NAMED: usize = 4;

impl Figure {
    /// Why ours differ from the paper's: each sentence once, with the rows that it is of.
    pub fn reasons(&self, of: impl Fn(&Row) -> bool) -> Vec<(String, &str)> {
        let mut found: Vec<(Vec<String>, &str)> = Vec::new();
        for row in self.rows.iter().filter(|r| !r.reason.is_empty() && of(r)) {
            match found.iter_mut().find(|(_, reason)| *reason == row.reason) {
                Some((names, _)) => names.push(row.name()),
                None => found.push((vec![row.name()], &row.reason)),
            }
        }
        found.into_iter().map(|(names, reason)| (listed(&names), reason)).collect()
    }
}

fn listed(names: &[String]) -> String {
    if names.len() <= NAMED {
        return names.join(", ");
    }
    format!("{} and {} more", names[..NAMED - 1].join(", "), names.len() + 1 - NAMED)
}

/// A file name made of words: what is no letter, digit, point or dash becomes a dash.
pub fn file_name(words: &[&str]) -> String {
    let joined = words.iter().filter(|w| !w.is_empty()).copied().collect::<Vec<_>>().join("_");
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '-' };
    format!("{}.json", joined.chars().map(plain).collect::<String>())
}

/// Writes a result so that a reader never sees half of it.
pub fn write_json<T: Serialize>(dir: &Path, name: &str, value: &T) -> Result<PathBuf> {
    let path = dir.join(name);
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::Result { file: path.clone(), message: e.to_string() })?;
    text.push('\n');
    let temporary = dir.join(format!(".{name}.new"));
    let io = |e| Error::io(format!("writing {}", path.display()))(e);
    fs::write(&temporary, text).map_err(io)?;
    fs::rename(&temporary, &path).map_err(Error::io(format!("writing {}", path.display())))?;
    Ok(path)
}

/// The content of a result file.
#[derive(Debug, Clone, PartialEq)]
pub enum ResultFile {
    /// A cell.
    Cell(Box<Cell>),
    /// The figures of an experiment.
    Figure(Box<Figure>),
}

/// Reads a result file; `None` where it is JSON of another kind.
pub fn read_result(path: &Path) -> Result<Option<ResultFile>> {
    let wrong = |message: String| Error::Result { file: path.to_owned(), message };
    let size = fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
    if size > FILE_MAX {
        return Err(wrong(format!("{size} bytes are too many for a result; at most {FILE_MAX}")));
    }
    let text = fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    let value: Value = serde_json::from_str(&text).map_err(|e| wrong(format!("not JSON: {e}")))?;
    match value.get("format").and_then(Value::as_str) {
        Some(CELL_FORMAT) => {
            let cell = serde_json::from_value(value).map_err(|e| wrong(e.to_string()))?;
            Ok(Some(ResultFile::Cell(Box::new(cell))))
        }
        Some(FIGURE_FORMAT) => {
            let figure = serde_json::from_value(value).map_err(|e| wrong(e.to_string()))?;
            Ok(Some(ResultFile::Figure(Box::new(figure))))
        }
        Some(other) if other.starts_with("medfs-cell/") || other.starts_with("medfs-figure/") => {
            Err(wrong(format!(
                "its format {other} is not known to this version, which reads {CELL_FORMAT} and {FIGURE_FORMAT}"
            )))
        }
        _ => Ok(crate::replayed::cell(&value).map(|cell| ResultFile::Cell(Box::new(cell)))),
    }
}
