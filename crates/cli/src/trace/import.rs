//! `medfs trace import`: a trace of another tool's log.

use super::args::{ImportArgs, Log};
use super::file::new_file;
use crate::{exit, size};
use anyhow::{Context, Result};
use medfs_trace::End;
use medfs_trace::import::{Format, import};
use std::fs::File;
use std::io::{BufReader, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) fn run(args: &ImportArgs) -> Result<u8> {
    let log = spooled(&args.log)?;
    let out = new_file(&args.out, args.force)?;
    let format = match args.format {
        Log::Strace => Format::Strace,
        Log::Blkparse => Format::Blkparse(args.event.chars().next().unwrap_or('Q')),
        Log::Fio => Format::Fio,
        Log::Mobibench => Format::Mobibench,
    };
    let open = || {
        let mut log = log.try_clone()?;
        log.rewind()?;
        Ok(BufReader::with_capacity(1 << 20, log))
    };
    let root = args.root.as_deref().unwrap_or(Path::new("/"));
    let about = format!("{} log {}", format_name(args.format), args.log.display());
    let id = uuid::Uuid::new_v4().into_bytes();
    let imported = import(&format, open, root.as_os_str().as_bytes(), out, &about, id);
    let end = match imported {
        Ok(end) => end,
        Err(error) => {
            // Half of a log is no trace of it.
            let _ = std::fs::remove_file(&args.out);
            return Err(error).with_context(|| args.log.display().to_string());
        }
    };
    tell(args, &end)?;
    Ok(exit::SUCCESS)
}

fn format_name(log: Log) -> &'static str {
    match log {
        Log::Strace => "strace",
        Log::Blkparse => "blkparse",
        Log::Fio => "fio",
        Log::Mobibench => "Mobibench",
    }
}

/// The log as a file that can be read twice.
fn spooled(path: &Path) -> Result<File> {
    if path == Path::new("-") {
        let mut file = tempfile::tempfile().context("cannot create a temporary file")?;
        std::io::copy(&mut std::io::stdin().lock(), &mut file).context("cannot read standard input")?;
        return Ok(file);
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut seekable = file.try_clone()?;
    if seekable.rewind().is_ok() {
        return Ok(file);
    }
    let mut copy = tempfile::tempfile().context("cannot create a temporary file")?;
    std::io::copy(&mut &file, &mut copy).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(copy)
}

/// What a trace of strace's lacks of the contents, where it lacks some.
pub(crate) fn lacking(trace: &Path) -> Option<String> {
    let info = medfs_trace::info::info(&mut medfs_replay::open(trace).ok()?).ok()?;
    let unknown = size::show(info.bytes_unknown);
    (info.head.source == "strace" && info.bytes_unknown > 0).then(|| {
        format!("the log lacks {unknown} of contents, in whose place a replay writes noise: 'strace -s 1048576' logs all")
    })
}

fn tell(args: &ImportArgs, end: &End) -> Result<()> {
    if args.json {
        crate::json::print(end)?;
        return Ok(());
    }
    outln!("{}: {} operations", args.out.display(), end.operations);
    for (kind, count) in &end.skipped {
        outln!("  not imported: {count} {kind}");
    }
    if matches!(args.format, Log::Strace)
        && let Some(lacks) = lacking(&args.out)
    {
        outln!("  {lacks}");
    }
    Ok(())
}
