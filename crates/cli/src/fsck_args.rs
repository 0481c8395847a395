//! Arguments of `medfs fsck`.

use crate::nvram::args::place;
use clap::{Args, ValueHint};
use medfs::NvramPlace;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct FsckArgs {
    /// Image file or block device
    #[arg(value_name = "IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: PathBuf,
    /// Repair all faults, and roll forward the fsyncs after the last checkpoint
    #[arg(short = 'y', long, group = "writing", conflicts_with = "dry_run")]
    pub(crate) repair: bool,
    /// Make only repairs that lose no data, as the system does at boot (also -a)
    #[arg(short = 'p', long, short_alias = 'a', group = "writing", conflicts_with_all = ["repair", "dry_run", "restore"])]
    pub(crate) preen: bool,
    /// Save every block that the repair changes to FILE, for --restore. FILE is a new one, or that of an interrupted
    /// repair of this volume
    #[arg(long, value_name = "FILE", requires = "writing", conflicts_with_all = ["restore", "dry_run"], value_hint = ValueHint::FilePath)]
    pub(crate) undo: Option<PathBuf>,
    /// With --repair, the NVRAM that holds fsyncs of the volume: replay them first, except for what is damaged there.
    /// The NVRAM is not changed
    #[arg(long, value_name = "PATH[@OFFSET+SIZE]", requires = "repair", conflicts_with = "preen", value_parser = place, value_hint = ValueHint::AnyPath)]
    pub(crate) nvram: Option<NvramPlace>,
    /// Undo a repair: write back the blocks that --undo saved to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["repair", "dry_run"], value_hint = ValueHint::FilePath)]
    pub(crate) restore: Option<PathBuf>,
    /// Treat the blocks that a map of ddrescue or medfs calls bad as unreadable, not as zeros; what a repair writes is
    /// noted there
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) map: Option<PathBuf>,
    /// Check only; change nothing (the default)
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Accepted as other checkers have it: every check is complete
    #[arg(short)]
    pub(crate) force: bool,
    /// Print up to 10,000 findings, even if there are many of one kind
    #[arg(short, long)]
    pub(crate) verbose: bool,
}
