//! `medfs power`: tells the daemon of a mounted volume that power may fail, or is back.

use crate::abandoned;
use crate::exit;
use anyhow::Result;
use clap::{Args, ValueEnum, ValueHint};
use medfs_fuse::control;
use std::path::PathBuf;

/// What is known of the power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Power {
    /// It may fail: commit everything now, and make each fsync durable before it returns
    Low,
    /// It is back: fsyncs wait as the mount options say
    Ok,
}

#[derive(Args, Debug)]
pub(crate) struct PowerArgs {
    /// State of the power
    #[arg(value_enum, hide_possible_values = true, value_name = "low|ok")]
    power: Power,
    /// Directory of a mounted volume
    #[arg(value_hint = ValueHint::DirPath)]
    dir: PathBuf,
}

pub(crate) fn run(args: &PowerArgs) -> Result<u8> {
    abandoned::refuse(&args.dir)?;
    control::power(&args.dir, args.power == Power::Low)?;
    Ok(exit::SUCCESS)
}
