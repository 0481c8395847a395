//! Arguments of `medfs trace`.

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    pub(crate) command: TraceCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum TraceCommand {
    /// Run a command and record its file operations in a directory
    #[command(after_long_help = RECORD_HELP)]
    Record(RecordArgs),
    /// Convert another tool's log into a trace
    #[command(after_long_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Show a summary of a trace
    Info(InfoArgs),
    /// Export the operations of a trace as a table
    Export(ExportArgs),
}

/// How much of what a command does reaches the recorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cache {
    /// Every read and write as the command issued it
    None,
    /// Every write as the command issued it; reads that the page cache serves are missing
    Through,
    /// As below a medfs mount: the page cache gathers writes, and the writing process is not known
    Writeback,
}

impl Cache {
    /// As traces name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Cache::None => "none",
            Cache::Through => "through",
            Cache::Writeback => "writeback",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct RecordArgs {
    /// The trace to write
    #[arg(short, long, value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// Record neither contents nor names, only the properties of pages that a replay needs
    #[arg(long)]
    pub(crate) private: bool,
    /// Which of the command's requests reach the recorder
    #[arg(long, value_enum, default_value_t = Cache::None)]
    pub(crate) cache: Cache,
    /// Let idle processors sleep between operations: less power, but every operation takes longer
    #[arg(long)]
    pub(crate) no_alert: bool,
    /// Overwrite an existing trace
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Directory to record; its files stay in place
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Logs that can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Log {
    /// `strace -f -y -xx -s 1048576 [-ttt] [-T] -o LOG`
    Strace,
    /// The text that blkparse prints
    Blkparse,
    /// fio's iolog, version 2 or 3
    Fio,
    /// The script that MobiGen writes and Mobibench replays
    Mobibench,
}

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// Format of the log
    #[arg(value_enum)]
    pub(crate) format: Log,
    /// The log; '-' reads standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) log: PathBuf,
    /// The trace to write
    #[arg(short, long, value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// Import only operations below this directory, which becomes the trace's root (strace, mobibench, fio)
    #[arg(long, value_name = "PATH")]
    pub(crate) root: Option<PathBuf>,
    /// The event at which a request counts: Q queued, D issued or C completed (blkparse)
    #[arg(long, value_name = "LETTER", default_value = "Q", value_parser = ["Q", "D", "C"])]
    pub(crate) event: String,
    /// Overwrite an existing trace
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print a summary of the import as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    /// The trace
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Tables that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    /// One JSON object a line
    Jsonl,
    /// Apache Parquet, if medfs was built with it
    Parquet,
}

#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    /// The trace
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,
    /// The table to write; '-' for standard output (jsonl)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// Its format
    #[arg(long, value_enum, default_value_t = Table::Jsonl)]
    pub(crate) format: Table,
    /// Overwrite an existing table
    #[arg(short, long)]
    pub(crate) force: bool,
}

const RECORD_HELP: &str = "\
While the command runs, a recording file system is mounted over DIR. The trace
begins with the tree as it was before and ends with the tree as it was after, so
that a replay can be verified. The exit code is that of the command.

Requests that the page cache serves cannot be recorded. By default the cache is
bypassed: the trace has every read and write as the command issued it. With
--cache=through, reads served by the cache are missing. With --cache=writeback,
the writing process and the time of each write are missing as well. Stores
through a mapping are recorded when the kernel writes them back.

As root, idle processors stay awake between operations that follow each other
closely, and for 5 ms more, because a wake-up takes longer than an operation.
--no-alert lets them sleep.

To record a medfs volume, use 'medfs mount -o trace=TRACE'.";

const IMPORT_HELP: &str = "\
strace: written data is known as far as -s lets strace print it. Without -ttt
the trace has no times. A file that is not opened within the log is assumed to
exist with the content that is read from it.

blkparse: the trace has a single file, 'device', which ends at the last byte
accessed. The log has no contents, as fio's and Mobibench's have none: a replay
writes noise.

Calls that the importer does not understand are counted and listed, never
guessed. The import fails at the first line that violates the format, and gives
its number.";
