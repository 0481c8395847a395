//! What a trace holds, in numbers.

use crate::error::Result;
use crate::format::Head;
use crate::reader::{Ending, Item, TraceReader};
use crate::record::{NAMES, Op, Run};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::io::Read;

/// The numbers of a trace.
#[derive(Debug, Clone, Serialize)]
pub struct Info {
    /// The origin of the trace.
    pub head: Head,
    /// Whether it ends as its writer wanted.
    pub complete: bool,
    /// Byte up to which a trace that was cut short is whole.
    pub cut_at: Option<u64>,
    /// Operations that make the tree as it was before.
    pub setup_operations: u64,
    /// Recorded operations.
    pub operations: u64,
    /// Of these by name.
    pub by_name: BTreeMap<&'static str, u64>,
    /// Of these with an error.
    pub failed: u64,
    /// Files that they name.
    pub files: u64,
    /// Processes that asked for them.
    pub processes: u64,
    /// Threads that did.
    pub threads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes of contents that its source did not tell.
    pub bytes_unknown: u64,
    /// Nanoseconds from the start to the end of the last operation.
    pub duration_ns: u64,
    /// Files of the tree at the end, where it has them.
    pub tree_files: Option<u64>,
    /// Bytes of the trace.
    pub trace_bytes: u64,
    /// Lines that an importer did not understand.
    pub skipped: Vec<(String, u64)>,
}

/// Reads a trace to its end. Memory: a few bytes for each file, process and thread.
pub fn info<R: Read>(reader: &mut TraceReader<R>) -> Result<Info> {
    let mut info = Info {
        head: reader.head().clone(),
        complete: false,
        cut_at: None,
        setup_operations: 0,
        operations: 0,
        by_name: BTreeMap::new(),
        failed: 0,
        files: 0,
        processes: 0,
        threads: 0,
        bytes_read: 0,
        bytes_written: 0,
        bytes_unknown: 0,
        duration_ns: 0,
        tree_files: None,
        trace_bytes: 0,
        skipped: Vec::new(),
    };
    let mut counts = [0u64; NAMES.len()];
    let (mut files, mut processes, mut threads) = (HashSet::new(), HashSet::new(), HashSet::new());
    while let Some(item) = reader.next()? {
        let record = match item {
            Item::Setup(_) => {
                info.setup_operations += 1;
                continue;
            }
            Item::Tree(_) => continue,
            Item::Operation(record) => record,
        };
        info.operations += 1;
        counts[record.op.kind()] += 1;
        info.failed += u64::from(record.errno != 0);
        files.extend(record.op.files().into_iter().flatten());
        processes.insert(record.process);
        threads.insert(record.thread);
        info.duration_ns = info.duration_ns.max(record.at.saturating_add(record.took));
        let Some(content) = record.op.content() else { continue };
        for run in &content.0 {
            if let Run::Unknown { len } = run {
                info.bytes_unknown += u64::from(*len);
            }
        }
        let bytes = reader.window().len_of(content).unwrap_or(0);
        match record.op {
            Op::Read { .. } => info.bytes_read += bytes,
            _ if record.errno == 0 => info.bytes_written += bytes,
            _ => {}
        }
    }
    info.by_name = NAMES.iter().copied().zip(counts).filter(|(_, count)| *count > 0).collect();
    (info.files, info.processes, info.threads) =
        (files.len() as u64, processes.len() as u64, threads.len() as u64);
    info.trace_bytes = reader.position();
    match reader.ending() {
        Ending::Complete(end) => {
            info.complete = true;
            info.tree_files = end.tree;
            info.skipped = end.skipped.clone();
        }
        Ending::Cut(at) => info.cut_at = Some(*at),
        Ending::Open => {}
    }
    Ok(info)
}
