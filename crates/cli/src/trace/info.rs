//! `medfs trace info` and `medfs trace export`.

use super::args::{ExportArgs, InfoArgs, Table};
use super::file::new_file;
use crate::words::{self, count};
use crate::{exit, json, output, progress, size};
use anyhow::{Context, Result};
use comfy_table::{CellAlignment, presets};
use medfs_trace::export;
use medfs_trace::info::Info;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

pub(crate) fn info(args: &InfoArgs) -> Result<u8> {
    let mut reader = medfs_replay::open(&args.trace)?;
    let info = medfs_trace::info::info(&mut reader).with_context(|| args.trace.display().to_string())?;
    if args.json {
        json::print(&info)?;
    } else {
        show(&info);
    }
    Ok(exit::SUCCESS)
}

fn show(info: &Info) {
    let head = &info.head;
    let line = |label: &str, value: &str| outln!("{}", words::field(11, label, value));
    match head.source.as_str() {
        "mount" => outln!("trace of a directory"),
        "volume" => outln!("trace of a volume"),
        log => outln!("trace of a log of {log}"),
    }
    match head.private {
        true => line("command", "not recorded, nor are contents and names"),
        false => line(if head.source == "volume" { "volume" } else { "command" }, &head.about),
    }
    line("id", &head.id);
    line("written by", &head.writer);
    if !head.cache.is_empty() {
        line("page cache", &head.cache);
    }
    let end = match info.cut_at {
        Some(at) => format!("cut short at byte {at}: everything before it is intact"),
        None => format!(
            "complete, {} at the end",
            info.tree_files.map_or("an unknown number of files".into(), |n| count(n, "file"))
        ),
    };
    line("end", &end);
    outln!("  duration    {:.3} s", Duration::from_nanos(info.duration_ns).as_secs_f64());
    let (processes, threads) = (count(info.processes, "process"), count(info.threads, "thread"));
    line("asked by", &format!("{processes}, {threads}"));
    let (files, operations) = (count(info.files, "file"), count(info.operations, "operation"));
    line("files", &format!("{files}, {operations}, of which {} failed", info.failed));
    line("read", &size::show(info.bytes_read));
    line("written", &size::show(info.bytes_written));
    if info.bytes_unknown > 0 {
        line("not stored", &format!("{} of these contents", size::show(info.bytes_unknown)));
    }
    line(
        "trace",
        &format!(
            "{}, {} operations rebuild the initial tree",
            size::show(info.trace_bytes),
            info.setup_operations
        ),
    );
    let mut table = comfy_table::Table::new();
    table.load_preset(presets::NOTHING);
    for (name, number) in &info.by_name {
        table.add_row([(*name).to_owned(), number.to_string()]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    outln!("{table}");
    for (kind, number) in &info.skipped {
        outln!("  not imported: {number} {kind}");
    }
}

pub(crate) fn export(args: &ExportArgs) -> Result<u8> {
    let mut reader = medfs_replay::open(&args.trace)?;
    let total = std::fs::metadata(&args.trace).map_or(0, |meta| meta.len());
    let bar = progress::bytes("exporting", total);
    let failed = || args.out.display().to_string();
    let exported = match args.format {
        Table::Jsonl if args.out == Path::new("-") => {
            let out = BufWriter::new(output::stdout());
            export::json_lines(&mut reader, out).with_context(failed)?
        }
        Table::Jsonl => {
            let out = BufWriter::new(new_file(&args.out, args.force)?);
            export::json_lines(&mut reader, bar.wrap_write(out)).with_context(failed)?
        }
        Table::Parquet => parquet(&mut reader, args)?,
    };
    bar.finish_and_clear();
    if args.out != Path::new("-") {
        outln!("{}: {}", args.out.display(), count(exported, "operation"));
    }
    std::io::stdout().flush()?;
    Ok(exit::SUCCESS)
}

type Reader = medfs_trace::TraceReader<std::io::BufReader<std::fs::File>>;

#[cfg(feature = "parquet")]
fn parquet(reader: &mut Reader, args: &ExportArgs) -> Result<u64> {
    let out = BufWriter::new(new_file(&args.out, args.force)?);
    export::parquet(reader, out).with_context(|| args.out.display().to_string())
}

#[cfg(not(feature = "parquet"))]
fn parquet(_reader: &mut Reader, _args: &ExportArgs) -> Result<u64> {
    anyhow::bail!(
        "this medfs was built without Parquet: build it with 'cargo build --release --features parquet', or export jsonl"
    )
}
