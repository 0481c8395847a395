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
    /// Run a command and record what it asks of the files in a directory
    #[command(after_long_help = RECORD_HELP)]
    Record(RecordArgs),
    /// Make a trace of another tool's log
    #[command(after_long_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Say what a trace holds
    Info(InfoArgs),
    /// Write the operations of a trace as a table
    Export(ExportArgs),
}

/// How much of what a command does reaches the recorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cache {
    /// Every read and write as it was asked for
    None,
    /// Every write as it was asked for; reads that the page cache answers are not seen
    Through,
    /// As below a medfs mount: the page cache gathers writes, and nobody in particular makes them
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
    /// Keep neither contents nor names, only what replay needs to make pages with the same properties
    #[arg(long)]
    pub(crate) private: bool,
    /// How much of what the command does reaches the recorder
    #[arg(long, value_enum, default_value_t = Cache::None)]
    pub(crate) cache: Cache,
    /// Let idle processors sleep between operations: less power, but every operation takes longer
    #[arg(long)]
    pub(crate) no_alert: bool,
    /// Overwrite the trace where it exists
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Directory that is recorded; its files stay where they are
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
    /// What wrote the log
    #[arg(value_enum)]
    pub(crate) format: Log,
    /// The log; '-' reads standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) log: PathBuf,
    /// The trace to write
    #[arg(short, long, value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// Take only what happens below this directory, which becomes the trace's root (strace, mobibench, fio)
    #[arg(long, value_name = "PATH")]
    pub(crate) root: Option<PathBuf>,
    /// The event at which a request counts: Q queued, D issued or C completed (blkparse)
    #[arg(long, value_name = "LETTER", default_value = "Q", value_parser = ["Q", "D", "C"])]
    pub(crate) event: String,
    /// Overwrite the trace where it exists
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print what was understood as JSON
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
    /// Apache Parquet, of a medfs that was built with it
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
    /// Overwrite the table where it exists
    #[arg(short, long)]
    pub(crate) force: bool,
}

const RECORD_HELP: &str = "\
DIR is covered by a mount while the command runs. What is there before becomes
the trace's first part, and what is there after its last, so that a replay can
be verified. The exit code is that of the command.

What the page cache answers cannot be recorded. By default it is bypassed:
every read and write of the command is in the trace as it was asked for. With
--cache=through reads that it answers are missing, with --cache=writeback also
who wrote, and when. Stores through a mapping are recorded when the kernel
writes them back.

As root, idle processors stay awake while operations come close to each other,
and 5 ms longer: to wake one takes longer than an operation. --no-alert lets
them sleep.

A medfs volume is recorded with 'medfs mount -o trace=TRACE'.";

const IMPORT_HELP: &str = "\
strace: what was written is known as far as -s lets strace print it. Without
-ttt there are no times. Files that are not opened within the log are taken to
exist, and to hold what is read from them.

blkparse: a trace of one file, 'device', that is as large as the last byte
touched. It has no contents: they are replayed as noise, as those of fio and
Mobibench are.

What is not understood is counted and listed, never guessed. A line that does
not follow the format ends the import with its number.";
