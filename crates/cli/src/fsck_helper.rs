//! `fsck.medfs`: the arguments that fsck(8) and people used to other checkers give.

use crate::exit;
use crate::fsck::run;
use crate::fsck_args::FsckArgs;
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// The options of `medfs fsck`, under its other name.
#[derive(clap::Parser)]
#[command(name = "fsck.medfs", about = "Check a volume, and repair it if asked", version)]
#[command(after_help = "-T, -r, -s, -C and -C<N> of fsck(8) change nothing here.")]
#[command(disable_version_flag = true)]
struct Helper {
    #[command(flatten)]
    args: FsckArgs,
}

/// Called as `fsck.medfs`, with the options that fsck(8) and people used to other checkers give, and those of
/// `medfs fsck`.
pub(crate) fn helper(args: &[OsString]) -> u8 {
    if args[1..].iter().any(|arg| arg == "-V" || arg == "--version") {
        outln!("fsck.medfs {}", env!("CARGO_PKG_VERSION"));
        return exit::SUCCESS;
    }
    let parsed = Helper::command().try_get_matches_from(known(args));
    match parsed.and_then(|matches| Helper::from_arg_matches(&matches)) {
        Ok(helper) => exit::run("fsck", exit::FSCK_OPERATIONAL, || run(&helper.args)),
        Err(error) => exit::usage(&error, "fsck"),
    }
}

/// Without what changes nothing: checks are always complete, fsck(8) has flags for titles, progress and talk, and who
/// asks for the repairs of a boot too asks for no others.
fn known(args: &[OsString]) -> Vec<OsString> {
    let preens = args.iter().any(|arg| arg == "-a" || arg == "-p");
    let is_mute = |arg: &&OsString| {
        let text = arg.to_str().unwrap_or_default();
        ["-T", "-r", "-s"].contains(&text) || text.starts_with("-C") || (preens && text == "-y")
    };
    args.iter().filter(|arg| !is_mute(arg)).cloned().collect()
}
