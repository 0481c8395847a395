//! Results of replayed traces (`medfs replay`), read as cells: a column of a matrix is a scheme, the trace is the workload.
//!
//! Their fields are those of the trace's own documentation; what is missing stays empty, so that a report shows what there is.

use crate::cell::{CELL_FORMAT, Cell, Latency, Machine, WrittenBytes};
use serde_json::Value;

/// The experiment that such cells belong to in a report.
pub const EXPERIMENT: &str = "replay";

/// A cell of a result of version 1; `None` where the document is something else.
pub fn cell(value: &Value) -> Option<Cell> {
    if value.get("format").and_then(Value::as_u64) != Some(1) || text(value, "kind") != "replay" {
        return None;
    }
    let trace = value.get("trace").unwrap_or(&Value::Null);
    let about = [text(trace, "about"), text(trace, "source"), text(trace, "id")];
    let machine = value.get("machine").unwrap_or(&Value::Null);
    let mut cell = Cell {
        format: CELL_FORMAT.into(),
        experiment: EXPERIMENT.into(),
        workload: about.into_iter().find(|t| !t.is_empty()).unwrap_or_default(),
        scheme: [text(value, "column"), text(value, "system")]
            .into_iter()
            .find(|t| !t.is_empty())
            .unwrap_or_default(),
        program: text(value, "version"),
        machine: Machine {
            processor: String::new(),
            cores: number(machine, "cpus"),
            kernel: text(machine, "kernel"),
            architecture: text(machine, "arch"),
        },
        scale: 1.0,
        options: options(value),
        device: text(value, "device"),
        written: written(value.get("written_bytes").unwrap_or(&Value::Null)),
        read_bytes: number(value, "device_read_bytes"),
        flushes: number(value, "flushes"),
        wall_seconds: number(value, "wall_ns") as f64 / 1e9,
        stats: value.get("stats").filter(|s| !s.is_null()).cloned(),
        ..Cell::default()
    };
    if let Some(flash) = value.get("flash").and_then(Value::as_object) {
        let numbers = flash.iter().filter_map(|(name, v)| Some((format!("flash_{name}"), v.as_f64()?)));
        cell.values.extend(numbers);
    }
    if let Some(verification) = value.get("verification") {
        let wrong = |name: &str| verification.get(name).map_or(0, |found| number(found, "count"));
        cell.check_findings = Some(wrong("results") + wrong("tree_differences"));
    }
    for (name, count) in value.get("operations").and_then(Value::as_object).into_iter().flatten() {
        cell.operations.insert(name.clone(), count.as_u64().unwrap_or(0));
    }
    for of in value.get("latency").and_then(Value::as_array).into_iter().flatten() {
        let micros = |name: &str| of.get(name).and_then(Value::as_f64).unwrap_or(0.0) / 1000.0;
        let latency = Latency {
            count: number(of, "count"),
            mean: micros("mean_ns"),
            p50: micros("p50_ns"),
            p90: micros("p90_ns"),
            p99: micros("p99_ns"),
            max: micros("max_ns"),
            buckets: Vec::new(),
        };
        cell.latency_us.insert(text(of, "operation"), latency);
    }
    Some(cell)
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn options(value: &Value) -> String {
    let all = value.get("options").and_then(Value::as_object).into_iter().flatten();
    let one = |(name, v): (&String, &Value)| format!("{name}={}", v.as_str().unwrap_or_default());
    all.map(one).collect::<Vec<_>>().join(",")
}

fn written(value: &Value) -> WrittenBytes {
    let of = |name| number(value, name);
    let mut bytes = WrittenBytes {
        data: of("data"),
        node: of("node"),
        compact: of("compact"),
        meta: of("meta"),
        gc: of("gc"),
        total: of("total"),
    };
    // A file system that tells no causes: everything is data to whoever looks from outside.
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
        assert_eq!(cell.values.len(), 2);
        assert_eq!((cell.latency_us["fsync"].mean, cell.wall_seconds), (2.0, 2.0));
        let peer = json!({"format": 1, "kind": "replay", "system": "ext4", "written_bytes": {"total": 5}});
        let peer = super::cell(&peer).unwrap();
        assert_eq!((peer.scheme.as_str(), peer.written.data), ("ext4", 5));
        assert_eq!(super::cell(&json!({"format": 1})), None);
    }
}
