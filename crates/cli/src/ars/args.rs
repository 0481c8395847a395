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
    /// Learn a decision tree from traces
    #[command(after_long_help = TRAIN_HELP)]
    Train(TrainArgs),
    /// Show a decision tree, and what it says of the files of traces
    Explain(ExplainArgs),
    /// Keep a decision tree on a volume, which judges by it from then on
    Load(LoadArgs),
}

/// Moments of a file that are learned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MomentArg {
    /// When a volume would judge it: at 16, 64, 256 .. writes; of a file with fewer, its end
    Judged,
    /// Its end, as the paper does
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
    /// Which moments of files are learned from
    #[arg(long, value_enum, default_value_t = MomentArg::Judged)]
    pub(crate) moments: MomentArg,
    /// Most questions one after the other
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=7))]
    pub(crate) depth: u32,
    /// Fewest samples of an answer
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) least: u32,
    /// Size of the volumes, in memory
    #[arg(long, value_parser = crate::size::parse, default_value = "8G")]
    pub(crate) size: u64,
    /// Overwrite the tree where it exists
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print what was learned as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The tree; 'built-in' is the one that volumes without one judge by
    #[arg(value_name = "TREE", value_hint = ValueHint::FilePath)]
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
    /// The tree; 'built-in' is the one that volumes without one judge by
    #[arg(value_name = "TREE", value_hint = ValueHint::FilePath)]
    pub(crate) tree: PathBuf,
    /// Image or device that is not mounted, or the directory that a volume is mounted on
    #[arg(value_name = "IMAGE|DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) target: PathBuf,
}

const TRAIN_HELP: &str = "\
Each trace is replayed on a new volume in memory, on which all data goes to the
logs (placement=log, in_place=off, delta=off). A file that is written more than
100 times and ends in pieces below 64 KiB should have been reserved. Where only
one of the two is so, a database or write-ahead log should have been, and any
other file not.

What is printed is how well trees that were learned from three quarters of the
files judged the others, in the mean of ten divisions, beside a tree that
reserves nothing.

'medfs ars load TREE IMAGE' keeps the tree on a volume. It is used where the
volume is mounted with placement=reserve.";
