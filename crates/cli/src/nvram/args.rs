//! Arguments of `medfs nvram`.

use clap::{Args, Subcommand, ValueHint};
use medfs::NvramPlace;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct NvramArgs {
    #[command(subcommand)]
    pub(crate) command: NvramCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum NvramCommand {
    /// Show which volume's fsyncs an NVRAM holds, and how many
    Info(InfoArgs),
    /// Prepare an NVRAM for a volume: fill it with zeros
    Init(InitArgs),
    /// Check that an NVRAM is the one that a volume needs, and that each of its records rebuilds the fsynced
    /// page
    Check(CheckArgs),
}

#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    /// The file, block device or memory device (DAX, UIO, MTD of RAM, nvmem, /dev/mem), or a part of it
    #[arg(value_name = "PATH[@OFFSET+SIZE]", value_parser = place, value_hint = ValueHint::AnyPath)]
    pub(crate) memory: NvramPlace,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// The file, block device or memory device (DAX, UIO, MTD of RAM, nvmem, /dev/mem), or a part of it
    #[arg(value_name = "PATH[@OFFSET+SIZE]", value_parser = place, value_hint = ValueHint::AnyPath)]
    pub(crate) memory: NvramPlace,
    /// Create a file of this size if there is none: a number with K, M or G (powers of 1024)
    #[arg(long, value_parser = crate::size::parse)]
    pub(crate) size: Option<u64>,
    /// Overwrite any content, including fsyncs that a volume needs
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Accept a memory that power loss empties, as the mount option nvram_volatile does
    #[arg(long)]
    pub(crate) volatile: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The file, block device or memory device (DAX, UIO, MTD of RAM, nvmem, /dev/mem), or a part of it
    #[arg(value_name = "PATH[@OFFSET+SIZE]", value_parser = place, value_hint = ValueHint::AnyPath)]
    pub(crate) memory: NvramPlace,
    /// Image file or block device of the volume, which is not mounted
    #[arg(value_name = "IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: PathBuf,
}

pub(crate) fn place(text: &str) -> Result<NvramPlace, String> {
    NvramPlace::parse(text).ok_or_else(|| "expected a path, PATH@OFFSET or PATH@OFFSET+SIZE".into())
}
