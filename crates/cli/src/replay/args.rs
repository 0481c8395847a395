//! Arguments of `medfs replay`.

use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

/// In which order operations are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    /// One after the other as the trace has them: the same result each time
    Sequential,
    /// By as many threads as were recorded, each in its order, and on each file in the trace's
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
    /// What to replay it on: axes of mount options and 'device', each with its values; every combination is one
    /// column; the trace comes before it
    #[arg(long, value_name = "AXIS=VALUE,...", num_args = 1.., value_parser = axes)]
    pub(crate) matrix: Vec<String>,
    /// Other file systems as further columns: ext4, btrfs, xfs (on a loop device), f2fs, f2fs-lz4, f2fs-zstd
    /// (the kernel's, in a QEMU guest), or dir:PATH
    #[arg(long, value_name = "PEER,...", value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    /// Directory for one JSON file for each column; columns that are there already are not run again
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The order of operations
    #[arg(long, value_enum, default_value_t = OrderArg::Sequential)]
    pub(crate) order: OrderArg,
    /// Most threads of --order=recorded
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: u16,
    /// In recorded time instead of as fast as possible
    #[arg(long)]
    pub(crate) timed: bool,
    /// Size of the volumes
    #[arg(long, value_parser = crate::size::parse, default_value = "8G")]
    pub(crate) size: u64,
    /// Directory for images while they are used [default: the system's for temporary files]
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
A column is replayed on a new volume: the tree as it was before the recording is
made, then what was recorded runs, and is what is measured. Every result and
every byte read is compared with the trace, and the tree at the end with the
recorded one, after the volume was closed and opened again.

  medfs replay T --matrix delta=off,inline,compact,full device=memory
  medfs replay T --matrix delta=off,full compress=off,lz4 --peers ext4
  medfs replay T --matrix 'device=flash:?ftl=pm,flash:?ftl=ldc' -o R

Axes are the options of 'medfs mount' ('noatime=on,off' for those without a
value), and device=memory|file|loop|flash:[DIR][?profile=NAME&ftl=NAME&codec=NAME].
With compress= other than off the volume has the feature, and every file is
compressed but with fpc, which chooses pages by itself. Each column gets a new flash device, which stays in DIR or, without
one, goes with the column; its time is the trace's.

The exit code is 0 where all columns ran and were as recorded, otherwise 1.";
