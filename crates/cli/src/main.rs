//! The `medfs` command.
//!
//! One binary, several names: as `mkfs.medfs`, `mount.medfs`, `umount.fuse.medfs` and `fsck.medfs` it follows
//! the conventions of the programs that call these. Sub-commands translate arguments, call the library and
//! print; nothing is decided here.
//!
//! Errors are one sentence on standard error; exit codes follow each command's convention ([`exit`]).
#![forbid(unsafe_code)]

#[macro_use]
mod output;

mod abandoned;
mod all_mounts;
mod args;
mod ars;
mod completions;
mod content;
mod convert;
mod damaged;
mod databases;
mod demo;
mod dump;
mod durability;
mod exit;
mod finding_codes;
mod findings;
mod flash;
mod fsck;
mod fsck_advice;
mod fsck_args;
mod fsck_costs;
mod fsck_helper;
mod fsck_refusal;
mod fsck_replay;
mod fsck_turns;
mod generate;
mod get;
mod habits;
mod help;
mod input;
mod json;
mod lab;
mod lifetime;
mod lifetime_writes;
mod list;
mod log;
mod mkfs;
mod mount;
mod nvram;
mod options;
mod outcome;
mod partitions;
mod power;
mod probe;
mod progress;
mod put;
mod remount;
mod replay;
mod report;
mod size;
mod source;
mod stat;
mod survivor;
mod target;
mod trace;
mod umount;
mod undo;
mod users;
mod watchdog;
mod words;

use args::{Cli, Command};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches};
use medfs::options::nearest;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    log::start();
    let args: Vec<OsString> = std::env::args_os().collect();
    let called_as =
        args.first().and_then(|a| Path::new(a).file_name()).and_then(OsStr::to_str).unwrap_or("medfs");
    let code = match called_as {
        "mount.medfs" | "mount.fuse.medfs" | "mount.fuseblk.medfs" => mount::helper(&args),
        "umount.medfs" | "umount.fuse.medfs" | "umount.fuseblk.medfs" => umount::helper(&args),
        "fsck.medfs" => fsck_helper::helper(&args),
        "mkfs.medfs" => mkfs::helper(&args),
        watchdog::NAME => watchdog::helper(&args),
        _ if is_call_of_mount_fuse(&args) => mount::helper(&args),
        _ => medfs(&args),
    };
    ExitCode::from(code)
}

/// As mount.fuse(8) calls the program that serves a type: `medfs SOURCE DIR -o OPTIONS`. No sub-command is a
/// path.
fn is_call_of_mount_fuse(args: &[OsString]) -> bool {
    let is_path = |arg: &OsString| Path::new(arg).is_absolute();
    args.get(1).is_some_and(is_path)
        && args.get(2).is_some_and(is_path)
        && args[3..].iter().any(|arg| arg == "-o")
}

fn medfs(args: &[OsString]) -> u8 {
    match args {
        [_, help, topic] if help == "help" && topic == "damaged" => return damaged::help(),
        [_, help, topic, codes @ ..] if help == "help" && topic == "findings" => {
            return finding_codes::help(codes);
        }
        _ => {}
    }
    // 'medfs help --help' asks for what 'medfs help' shows.
    let args = match args {
        [name, help, option] if help == "help" && (option == "--help" || option == "-h") => {
            &[name.clone(), help.clone()][..]
        }
        args => args,
    };
    let parsed = help::flowing(Cli::command()).try_get_matches_from(args);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(e) => return exit::usage(&with_nearest(e, args), &understood(args)),
    };
    match cli.command {
        Command::Mkfs(a) => exit::run("mkfs", exit::FAILURE, || mkfs::run(&a)),
        Command::Mount(a) => exit::run("mount", exit::MOUNT_FAILURE, || mount::run(&a)),
        Command::Umount(a) => exit::run("umount", exit::MOUNT_FAILURE, || umount::run(&a)),
        Command::Fsck(a) => exit::run("fsck", exit::FSCK_OPERATIONAL, || fsck::run(&a)),
        Command::Import(a) => exit::run("import", exit::FAILURE, || convert::import(&a)),
        Command::Export(a) => exit::run("export", exit::FAILURE, || convert::export(&a)),
        Command::Dump(a) => exit::run("dump", exit::FAILURE, || dump::run(&a)),
        Command::Get(a) => exit::run("get", exit::FAILURE, || get::run(&a)),
        Command::Put(a) => exit::run("put", exit::FAILURE, || put::run(&a)),
        Command::Ls(a) => exit::run("ls", exit::FAILURE, || list::run(&a)),
        Command::Stat(a) => exit::run("stat", exit::FAILURE, || stat::run(&a)),
        Command::Probe(a) => exit::run("probe", exit::FAILURE, || probe::run(&a)),
        Command::Sync(a) => exit::run("sync", exit::FAILURE, || all_mounts::sync(a)),
        Command::Durability(a) => exit::run("durability", exit::FAILURE, || durability::run(&a)),
        Command::Input(a) => exit::run("input", exit::FAILURE, || input::run(&a)),
        Command::Power(a) => exit::run("power", exit::FAILURE, || power::run(&a)),
        Command::Trace(a) => exit::run("trace", exit::FAILURE, || trace::run(&a)),
        Command::Replay(a) => exit::run("replay", exit::FAILURE, || replay::run(&a)),
        Command::Ars(a) => exit::run("ars", exit::FAILURE, || ars::run(&a)),
        Command::Nvram(a) => exit::run("nvram", exit::FAILURE, || nvram::run(&a)),
        Command::Demo(a) => exit::run("demo", exit::FAILURE, || demo::run(&a)),
        Command::Flash(a) => exit::run("flash", exit::FAILURE, || flash::run(&a)),
        Command::Lab(a) => exit::run("lab", exit::FAILURE, || lab::run(&a)),
        Command::Report(a) => exit::run("report", exit::FAILURE, || report::run(&a)),
        Command::Completions(a) => exit::run("completions", exit::FAILURE, || completions::completions(&a)),
        Command::Man(a) => exit::run("man", exit::FAILURE, || generate::man(&a)),
    }
}

/// An error about a command that is unknown, with the nearest one where the parser knows none.
fn with_nearest(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(named)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return error;
    }
    let all = Cli::command();
    let command = understood_by(&all, args).0;
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    if let Some(near) = nearest(named, below.map(|below| below.get_name().to_owned())) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![near]));
    }
    error
}

/// The command of these arguments, as far as it is one: `trace import`.
fn understood(args: &[OsString]) -> String {
    understood_by(&Cli::command(), args).1.join(" ")
}

fn understood_by<'c>(all: &'c clap::Command, args: &[OsString]) -> (&'c clap::Command, Vec<String>) {
    let (mut command, mut names) = (all, Vec::new());
    for arg in args[1..].iter().filter(|arg| *arg != "help") {
        let Some(below) = arg.to_str().and_then(|arg| command.find_subcommand(arg)) else { break };
        names.push(below.get_name().to_owned());
        command = below;
    }
    (command, names)
}
