//! Arguments of `medfs ars`.

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct ArsArgs {
    #[command(subcommand)]
    pub(crate) command: ArsCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ArsCommand {
    /// Train a decision tree on traces
    #[command(after_long_help = TRAIN_HELP)]
    Train(TrainArgs),
    /// Show a decision tree and its judgement of the files of traces, or of a file of a mounted volume
    Explain(ExplainArgs),
    /// Store a decision tree on a volume, which uses it from then on
    Load(LoadArgs),
    /// Show the decision tree that a volume uses
    Show(ShowArgs),
    /// Train the decision tree of a mounted volume on the files that were written since the mount
    #[command(after_long_help = RETRAIN_HELP)]
    Retrain(RetrainArgs),
}

/// Moments of a file that are learned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MomentArg {
    /// The moments at which a volume judges a file: after 16, 64, 256 .. writes; for a file with fewer, its end
    Judged,
    /// The end of the file, as in the paper
    End,
}

#[derive(Args, Debug)]
pub(crate) struct TrainArgs {
    /// The traces
    #[arg(required = true, value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub(crate) traces: Vec<PathBuf>,
    /// The tree to write
    #[arg(short, long, value_name = "TREE", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// Which moments of each file are samples
    #[arg(long, value_enum, default_value_t = MomentArg::Judged)]
    pub(crate) moments: MomentArg,
    /// Maximum depth of the tree
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=7))]
    pub(crate) depth: u32,
    /// Minimum number of samples of a leaf
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) least: u32,
    /// Size of the volumes, in memory
    #[arg(long, value_parser = crate::size::parse, default_value = "8G")]
    pub(crate) size: u64,
    /// Overwrite an existing tree
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print the tree and its scores as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The tree, or a file of a mounted volume; 'built-in' is the tree of volumes without one of their own
    #[arg(value_name = "TREE|FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tree: PathBuf,
    /// Traces whose files are judged
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub(crate) traces: Vec<PathBuf>,
    /// Size of the volumes, in memory
    #[arg(long, value_parser = crate::size::parse, default_value = "8G")]
    pub(crate) size: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    /// The tree; 'built-in' is the tree of volumes without one of their own
    #[arg(value_name = "TREE", value_hint = ValueHint::FilePath)]
    pub(crate) tree: PathBuf,
    /// Image or device that is not mounted, or the directory that a volume is mounted on
    #[arg(value_name = "IMAGE|DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) target: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// Image or device that is not mounted, or the directory that a volume is mounted on
    #[arg(value_name = "IMAGE|DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) target: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RetrainArgs {
    /// Directory that the volume is mounted on
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const RETRAIN_HELP: &str = "\
The volume must be mounted with placement=reserve and reserve_files=tree. The
daemon keeps the features of the last files that it judged, in memory. A tree is
trained on three quarters of these files, drawn at random, and tested on the rest.
It is stored on the volume and used from then on if it is right more often than
the tree in use. Otherwise nothing is written.

With the mount option reserve_retrain=on the daemon does this every ten days, in
the hour of the day in which the volume is used least.

The user who mounted the volume may run this, the owner of its root directory,
and root.";

const TRAIN_HELP: &str = "\
Each trace is replayed on a new volume in memory, on which all data goes to the
logs (placement=log, in_place=off, delta=off). A file should have been reserved
if it is written more than 100 times and its pieces end up smaller than 64 KiB.
If only one of the two holds, a database or write-ahead log should have been
reserved, and any other file should not.

The report gives the mean score of ten trees, beside that of a tree that reserves
nothing. Each of the ten is trained on three quarters of the files, drawn at
random, and tested on the rest.

'medfs ars load TREE IMAGE' stores the tree on a volume. The volume uses it when
it is mounted with placement=reserve.";
