//! `medfs replay`: a trace on every column of a matrix, verified, one result file each.
//!
//! A column whose result is in the output directory already, for the same trace and the same way to replay it, is not run
//! again: a matrix that was stopped goes on where it was. A result is written whole or not at all.

pub(crate) mod args;
mod cell;
mod device;
mod guest;
mod matrix;
mod peer;
mod process;
mod result;

use crate::{exit, progress, size};
use anyhow::{Context, Result, bail};
use args::{OrderArg, ReplayArgs};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::ProgressBar;
use matrix::{Matrix, System};
use medfs_trace::TraceReader;
use medfs_trace::replay::{Options, Order};
use result::{CellResult, FORMAT};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// A trace that is being read.
pub(crate) type Reader = TraceReader<BufReader<File>>;

/// What a column needs to know.
pub(crate) struct Run<'a> {
    pub(crate) args: &'a ReplayArgs,
    pub(crate) bar: ProgressBar,
}

impl Run<'_> {
    /// The trace, from its beginning.
    pub(crate) fn open(&self) -> Result<Reader> {
        crate::trace::open(&self.args.trace)
    }

    pub(crate) fn options(&self) -> Options {
        let order = match self.args.order {
            OrderArg::Sequential => Order::Sequential,
            OrderArg::Recorded => Order::Recorded { threads: usize::from(self.args.threads) },
        };
        Options { order, timed: self.args.timed }
    }
}

pub(crate) fn run(args: &ReplayArgs) -> Result<u8> {
    let head = crate::trace::open(&args.trace)?.head().clone();
    let matrix = Matrix::parse(&args.matrix, &args.peers, peer::check);
    for wrong in &matrix.wrong {
        errln!("medfs replay: {wrong}");
    }
    if matrix.columns.is_empty() {
        bail!("no column is left to run");
    }
    if let Some(out) = &args.out {
        crate::trace::private_folder(out)?;
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
        let job = Run { args, bar };
        let ran = match system {
            System::Medfs { options, device } => cell::run(&job, options, device),
            System::Peer(name) => peer::column(&job, name),
        };
        job.bar.finish_and_clear();
        match ran {
            Ok(mut result) => {
                result.column = system.to_string();
                (result.order, result.timed) = (args.order.name().into(), args.timed);
                tell_mismatches(&result);
                failed |= !result.is_verified();
                if let Some(path) = &path {
                    store(path, &result)?;
                }
                results.push(result);
            }
            Err(error) => {
                failed = true;
                errln!("medfs replay: {system}: {}", exit::sentence(&error));
            }
        }
    }
    if results.iter().any(|result| !result.trace.complete) {
        errln!(
            "medfs replay: {} was cut short: what is there was replayed, but it does not tell the tree at the end",
            args.trace.display()
        );
    }
    print(&results, args.json)?;
    Ok(if failed { exit::FAILURE } else { exit::SUCCESS })
}

/// The result of a column that ran before, where it is one of the same replay.
fn finished(path: &Path, trace: &str, args: &ReplayArgs) -> Option<CellResult> {
    let result: CellResult = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    let same = result.format == FORMAT
        && result.trace.id == trace
        && (&*result.order, result.timed) == (args.order.name(), args.timed)
        && result.is_verified();
    same.then_some(result)
}

/// Writes a result, whole or not at all.
fn store(path: &Path, result: &CellResult) -> Result<()> {
    let temporary = path.with_extension("json.new");
    let text = serde_json::to_string_pretty(result)?;
    std::fs::write(&temporary, text + "\n")
        .and_then(|()| std::fs::rename(&temporary, path))
        .with_context(|| format!("cannot write {}", path.display()))
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
            let erases = |f: &result::FlashUse| (f.erases + f.erases_map).to_string();
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
