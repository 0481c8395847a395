//! Results of replayed traces (`medfs replay`), read as cells: a column of a matrix is a scheme, the trace is
//! the workload.
//!
//! What a result does not say stays empty, so that a report shows what there is.

use crate::cell::{CELL_FORMAT, Cell, Latency, Machine, WrittenBytes};
use medfs_replay::{CellResult, FlashUse, Written};
use medfs_trace::replay::LatencyOf;
use serde_json::Value;

/// The experiment that such cells belong to in a report.
pub const EXPERIMENT: &str = "replay";

/// A cell of a result; `None` where the document is something else.
pub fn cell(value: &Value) -> Option<Cell> {
    let result: CellResult = serde_json::from_value(value.clone()).ok()?;
    result.is_known().then(|| of(result))
}

fn first_of<const N: usize>(texts: [String; N]) -> String {
    texts.into_iter().find(|t| !t.is_empty()).unwrap_or_default()
}

fn of(r: CellResult) -> Cell {
    let options = r.options.iter().map(|(name, value)| format!("{name}={value}"));
    let mut cell = Cell {
        format: CELL_FORMAT.into(),
        experiment: EXPERIMENT.into(),
        workload: first_of([r.trace.about, r.trace.source, r.trace.id]),
        scheme: first_of([r.column, r.system]),
        program: r.version,
        machine: Machine {
            processor: String::new(),
            cores: r.machine.cpus as u64,
            kernel: r.machine.kernel,
            architecture: r.machine.arch,
        },
        scale: 1.0,
        options: options.collect::<Vec<_>>().join(","),
        device: r.device,
        written: written(&r.written_bytes),
        read_bytes: r.device_read_bytes,
        flushes: r.flushes,
        wall_seconds: r.wall_ns as f64 / 1e9,
        stats: r.stats,
        operations: r.operations,
        latency_us: r.latency.iter().map(|of| (of.operation.clone(), latency(of))).collect(),
        check_findings: Some(r.verification.results.count + r.verification.tree_differences.count),
        ..Cell::default()
    };
    cell.values.extend(r.flash.iter().flat_map(flash));
    cell
}

fn latency(of: &LatencyOf) -> Latency {
    let (of, micros) = (&of.latency, |ns: u64| ns as f64 / 1000.0);
    Latency {
        count: of.count,
        mean: of.mean_ns / 1000.0,
        p50: micros(of.p50_ns),
        p90: micros(of.p90_ns),
        p99: micros(of.p99_ns),
        max: micros(of.max_ns),
        buckets: Vec::new(),
    }
}

fn flash(of: &FlashUse) -> impl Iterator<Item = (String, f64)> + use<> {
    [
        ("flash_host_written_bytes", of.host_written_bytes as f64),
        ("flash_flash_written_bytes", of.flash_written_bytes as f64),
        ("flash_write_amplification", of.write_amplification),
        ("flash_erases", of.erases as f64),
        ("flash_erases_map", of.erases_map as f64),
        ("flash_compressed_pages", of.compressed_pages as f64),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
}

fn written(of: &Written) -> WrittenBytes {
    let mut bytes = WrittenBytes {
        data: of.data.unwrap_or(0),
        node: of.node.unwrap_or(0),
        compact: of.compact.unwrap_or(0),
        meta: of.meta.unwrap_or(0),
        gc: of.gc.unwrap_or(0),
        total: of.total,
    };
    // A file system that tells no causes: seen from outside, everything is data.
    if bytes.causes().iter().all(|(_, n)| *n == 0) {
        bytes.data = bytes.total;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_replayed_trace_is_a_cell() {
        let result = json!({
            "format": 1, "kind": "replay", "column": "delta=full,device=memory", "version": "0.1.0",
            "options": {"delta": "full"}, "trace": {"about": "chat-app"}, "machine": {"cpus": 2, "kernel": "6.18"},
            "written_bytes": {"total": 8192, "data": 4096, "node": 4096}, "operations": {"fsync": 7},
            "latency": [{"operation": "fsync", "count": 7, "mean_ns": 2000, "p99_ns": 5000}], "wall_ns": 2_000_000_000u64,
            "flash": {"ftl": "ldc", "erases": 3, "write_amplification": 1.5},
            "verification": {"results": {"count": 2}, "tree_differences": {"count": 1}}
        });
        let cell = cell(&result).unwrap();
        assert_eq!((cell.workload.as_str(), cell.scheme.as_str()), ("chat-app", "delta=full,device=memory"));
        assert_eq!((cell.written.node, cell.written.total, cell.operations["fsync"]), (4096, 8192, 7));
        assert_eq!(cell.check_findings, Some(3));
        assert_eq!((cell.values["flash_erases"], cell.values["flash_write_amplification"]), (3.0, 1.5));
        assert_eq!(cell.values.len(), 6);
        assert_eq!((cell.latency_us["fsync"].mean, cell.wall_seconds), (2.0, 2.0));
        let peer = json!({"format": 1, "kind": "replay", "system": "ext4", "written_bytes": {"total": 5}});
        let peer = super::cell(&peer).unwrap();
        assert_eq!((peer.scheme.as_str(), peer.written.data), ("ext4", 5));
        assert_eq!(super::cell(&json!({"format": 1})), None);
    }
}
