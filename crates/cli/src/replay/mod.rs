//! `medfs replay`: a trace on every column of a matrix, verified, one result file each.
//!
//! A column whose result is in the output directory already, for the same trace and the same way to replay
//! it, is not run again: a matrix that was stopped goes on where it was. A result is written whole or not at
//! all.

pub(crate) mod args;

use crate::undo::Undo;
use crate::{exit, progress, size};
use anyhow::{Result, bail};
use args::{OrderArg, ReplayArgs};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use medfs_replay::{CellResult, FlashUse, Matrix, Run, System};
use medfs_trace::replay::{Options, Order};
use std::path::Path;

/// What a replay takes back is taken back when a signal ends the command, too.
struct AtSignals;

impl medfs_replay::Cleanup for AtSignals {
    fn note(&self, action: Box<dyn FnOnce() + Send>) -> Box<dyn medfs_replay::Guard> {
        Box::new(Undo::new(action))
    }
}

impl medfs_replay::Guard for Undo {
    fn disarm(self: Box<Self>) {
        Undo::disarm(*self);
    }
}

fn options(args: &ReplayArgs) -> Options {
    let order = match args.order {
        OrderArg::Sequential => Order::Sequential,
        OrderArg::Recorded => Order::Recorded { threads: usize::from(args.threads) },
    };
    Options { order, timed: args.timed }
}

pub(crate) fn run(args: &ReplayArgs) -> Result<u8> {
    let head = medfs_replay::open(&args.trace)?.head().clone();
    let matrix = Matrix::parse(&args.matrix, &args.peers, medfs_replay::check_peer);
    for wrong in &matrix.wrong {
        errln!("medfs replay: {wrong}");
    }
    if matrix.columns.is_empty() {
        bail!("no column is left to run");
    }
    if let Some(out) = &args.out {
        medfs_replay::private_folder(out)?;
    }
    let total = std::fs::metadata(&args.trace).map_or(0, |meta| meta.len());
    let mut failed = !matrix.wrong.is_empty();
    let mut results = Vec::new();
    for (index, system) in matrix.columns.iter().enumerate() {
        let path = args.out.as_ref().map(|out| out.join(system.file_name()));
        if let Some(done) = path.as_deref().and_then(|path| finished(path, &head.id, args)) {
            results.push(done);
            continue;
        }
        let bar = progress::bytes(&format!("{}/{} {system}", index + 1, matrix.columns.len()), total);
        let ran = run_column(args, system, &|bytes| bar.set_position(bytes));
        bar.finish_and_clear();
        match ran {
            Ok(mut result) => {
                result.column = system.to_string();
                (result.order, result.timed) = (args.order.name().into(), args.timed);
                tell_mismatches(&result);
                failed |= !result.is_verified();
                if let Some(path) = &path {
                    result.store(path)?;
                }
                results.push(result);
            }
            Err(error) => {
                failed = true;
                errln!("medfs replay: {system}: {}", exit::sentence(&error));
            }
        }
    }
    let mismatched = |result: &CellResult| result.verification.results.count > 0;
    if results.iter().any(mismatched)
        && let Some(lacks) = crate::trace::import::lacking(&args.trace)
    {
        errln!("medfs replay: what is read there is not as recorded: {lacks}");
    }
    if results.iter().any(|result| !result.trace.complete) {
        errln!(
            "medfs replay: {} was cut short: its operations were replayed, but the final tree cannot be verified",
            args.trace.display()
        );
    }
    print(&results, args.json)?;
    Ok(if failed { exit::FAILURE } else { exit::SUCCESS })
}

fn run_column(args: &ReplayArgs, system: &System, at: &dyn Fn(u64)) -> Result<CellResult> {
    if matches!(system, System::Peer(_)) {
        crate::trace::file::raise_descriptor_limit();
    }
    let run = Run {
        trace: &args.trace,
        options: options(args),
        size: args.size,
        scratch: args.scratch.as_deref(),
        program: &std::env::current_exe()?,
        cleanup: &AtSignals,
        at,
    };
    Ok(medfs_replay::column(&run, system)?)
}

/// The result of a column that ran before, where it is one of the same replay.
fn finished(path: &Path, trace: &str, args: &ReplayArgs) -> Option<CellResult> {
    let result = CellResult::read(path).ok()?;
    let same = result.trace.id == trace
        && (&*result.order, result.timed) == (args.order.name(), args.timed)
        && result.is_verified();
    same.then_some(result)
}

fn tell_mismatches(result: &CellResult) {
    let checks = [
        ("not as recorded", &result.verification.results),
        ("in the tree", &result.verification.tree_differences),
    ];
    for (what, mismatches) in checks.into_iter().filter(|(_, mismatches)| mismatches.count > 0) {
        errln!("medfs replay: {}: {} {what}, first:", result.column, mismatches.count);
        for text in &mismatches.first {
            errln!("  {text}");
        }
    }
}

fn print(results: &[CellResult], json: bool) -> Result<()> {
    if json {
        // One line, so that it can be told from what other programs print around it.
        outln!("{}", crate::json::versioned(&serde_json::json!({ "columns": results }))?);
        return Ok(());
    }
    if results.is_empty() {
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    let flash = results.iter().any(|result| result.flash.is_some());
    let mut header = vec!["column", "written", "of first", "flushes", "ops/s", "p99 fsync", "verified"];
    if flash {
        header.splice(3..3, ["flash wrote", "erases"]);
    }
    let columns = header.len();
    table.set_header(header);
    let first = results[0].written_bytes.total;
    for result in results {
        let ratio = if first > 0 { result.written_bytes.total as f64 / first as f64 } else { 1.0 };
        let mut row = vec![
            result.column.clone(),
            size::show(result.written_bytes.total),
            format!("{ratio:.3}"),
            result.flushes.to_string(),
            format!("{:.0}", result.operations_per_second),
            fsync_latency(result),
            verdict(result),
        ];
        if flash {
            let nand = result.flash.as_ref();
            let erases = |f: &FlashUse| (f.erases + f.erases_map).to_string();
            let cells = [nand.map(|f| size::show(f.flash_written_bytes)), nand.map(erases)];
            row.splice(3..3, cells.map(|cell| cell.unwrap_or_else(|| "-".into())));
        }
        table.add_row(row);
    }
    for column in 1..columns - 1 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    outln!("{table}");
    Ok(())
}

fn fsync_latency(result: &CellResult) -> String {
    let slowest = result.latency.iter().filter(|of| matches!(&*of.operation, "fsync" | "fdatasync"));
    let p99 = slowest.map(|of| of.latency.p99_ns).max();
    p99.map_or_else(|| "-".into(), |ns| format!("{:.0} us", ns as f64 / 1000.0))
}

fn verdict(result: &CellResult) -> String {
    match (&*result.verification.tree, result.verification.results.count) {
        ("identical", 0) => "yes".into(),
        ("unknown", 0) => "all but the tree".into(),
        _ => "NO".into(),
    }
}
