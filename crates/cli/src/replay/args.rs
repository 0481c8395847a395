//! Arguments of `medfs replay`.

use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

/// In which order operations are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    /// In the trace's order, one at a time: every run gives the same result
    Sequential,
    /// By as many threads as were recorded: each thread's operations in order, and each file's operations in
    /// order
    Recorded,
}

impl OrderArg {
    /// As results name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OrderArg::Sequential => "sequential",
            OrderArg::Recorded => "recorded",
        }
    }
}

#[derive(Args, Debug)]
#[command(after_long_help = REPLAY_HELP)]
pub(crate) struct ReplayArgs {
    /// The trace
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,
    /// Axes of mount options and 'device', each with its values; every combination is one column; name the
    /// trace before --matrix
    #[arg(long, value_name = "AXIS=VALUE,...", num_args = 1.., value_parser = axes)]
    pub(crate) matrix: Vec<String>,
    /// Other file systems as further columns: ext4, btrfs, xfs (on a loop device), f2fs, f2fs-lz4, f2fs-zstd
    /// (the kernel's, in a QEMU guest), or dir:PATH
    #[arg(long, value_name = "PEER,...", value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    /// Directory for one JSON file per column; columns with a result there are not run again
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The order of operations
    #[arg(long, value_enum, default_value_t = OrderArg::Sequential)]
    pub(crate) order: OrderArg,
    /// Maximum number of threads with --order=recorded
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: u16,
    /// At the recorded times instead of as fast as possible
    #[arg(long)]
    pub(crate) timed: bool,
    /// Size of the volumes
    #[arg(long, value_parser = crate::size::parse, default_value = "8G")]
    pub(crate) size: u64,
    /// Directory for temporary images [default: the system's temporary directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) scratch: Option<PathBuf>,
}

/// Axes as `--matrix` takes them. Whatever follows it is taken for one, a trace too.
fn axes(text: &str) -> Result<String, String> {
    match text.split_whitespace().find(|axis| !axis.contains('=')) {
        Some(word) => Err(format!(
            "'{word}' is not an axis: expected NAME=VALUE,... such as delta=off,full; the trace comes before --matrix"
        )),
        None => Ok(text.to_owned()),
    }
}

const REPLAY_HELP: &str = "\
Each column is replayed on a new volume. The replay first creates the initial
tree; then it runs and measures the recorded operations. It compares every
result and every byte read with the trace. After closing and reopening the
volume, it compares the final tree with the recorded one.

  medfs replay T --matrix delta=off,inline,compact,full device=memory
  medfs replay T --matrix delta=off,full compress=off,lz4 --peers ext4
  medfs replay T --matrix 'device=flash:?ftl=pm,flash:?ftl=ldc' -o R

Axes are the options of 'medfs mount' ('noatime=on,off' for those without a
value), and device=memory|file|loop|flash:[DIR][?profile=NAME&ftl=NAME&codec=NAME].
With compress= other than off, the volume has the compression feature and every
file is compressed; fpc chooses pages by itself. Each column gets a new flash
device. It stays in DIR, or is removed after the column where no DIR is given.
Its time is the trace's.

The exit code is 0 if all columns ran as recorded, otherwise 1.";
