//! `medfs durability`: which files of a mounted volume have their fsyncs put off, kept on the volume as an attribute.

use crate::exit;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum, ValueHint};
use medfs::{DURABILITY_ATTRIBUTE, DurabilityMode};
use medfs_device::quote;
use medfs_fuse::control;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of an attribute that says something.
const MOST: usize = 64;

/// What is said of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Says {
    /// Its fsyncs make it durable before they return, whatever the mount says
    Posix,
    /// Its fsyncs are put off where the mount has durability=adaptive
    Adaptive,
    /// What the folder says in which it lies; where that says nothing, what the mount says
    Inherit,
}

#[derive(Args, Debug)]
pub(crate) struct DurabilityArgs {
    /// What to say: posix, their fsyncs are never put off; adaptive, they are where the mount has durability=adaptive;
    /// inherit, what the folder says in which each lies
    #[arg(value_enum, hide_possible_values = true, value_name = "posix|adaptive|inherit")]
    says: Says,
    /// Files and folders of a mounted volume. A folder hands it down to what is made in it from now on
    #[arg(required = true, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(args: &DurabilityArgs) -> Result<u8> {
    let (mut code, mut kept) = (exit::SUCCESS, Vec::new());
    for path in &args.paths {
        // One that cannot be told keeps none of the others from it.
        if let Err(error) = say(args.says, path) {
            errln!("medfs durability: {}", exit::sentence(&error));
            code = exit::FAILURE;
        } else {
            kept.push(path);
        }
    }
    if args.says == Says::Adaptive
        && let Some(path) = kept.into_iter().find(|path| puts_nothing_off(path))
    {
        errln!(
            "medfs durability: {} keeps it, but its fsyncs are put off only where the volume is mounted with durability=adaptive, and now it is not",
            quote::path(path)
        );
    }
    Ok(code)
}

fn say(says: Says, path: &Path) -> Result<()> {
    let shown = quote::path(path);
    let whole = path.canonicalize().with_context(|| format!("cannot access {shown}"))?;
    if !control::is_file_of_medfs(&whole) {
        bail!("{shown} is not on a mounted medfs volume");
    }
    let mode = match says {
        Says::Posix => Some(DurabilityMode::Posix),
        Says::Adaptive => Some(DurabilityMode::Adaptive),
        Says::Inherit => of_folder(&whole)?,
    };
    let done = match mode {
        Some(mode) => {
            let value = mode.word().as_bytes();
            rustix::fs::setxattr(&whole, DURABILITY_ATTRIBUTE, value, XattrFlags::empty())
        }
        None => match rustix::fs::removexattr(&whole, DURABILITY_ATTRIBUTE) {
            Err(Errno::NODATA) => Ok(()),
            removed => removed,
        },
    };
    if done == Err(Errno::PERM) {
        bail!("only root may say it of {shown}");
    }
    done.map_err(io::Error::from).with_context(|| format!("cannot keep it on {shown}"))
}

/// Whether the mount that a file is on puts no fsyncs off, whatever the file says.
fn puts_nothing_off(path: &Path) -> bool {
    let stats = control::file_stats_json(path).unwrap_or_default();
    let stats: Value = serde_json::from_str(&stats).unwrap_or_default();
    stats["durability"] == DurabilityMode::Posix.word() && stats["durability_is_own"] == false
}

/// What the folder says in which a file of a volume lies; the volume's root lies in none.
fn of_folder(path: &Path) -> Result<Option<DurabilityMode>> {
    let Some(folder) = path.parent() else { return Ok(None) };
    if control::find_mount(path)?.is_some_and(|mount| mount.on == path) {
        return Ok(None);
    }
    let mut value = [0; MOST];
    match rustix::fs::getxattr(folder, DURABILITY_ATTRIBUTE, &mut value[..]) {
        Ok(len) => Ok(DurabilityMode::of_attribute(&value[..len])),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(io::Error::from(error)).with_context(|| {
            let folder = quote::path(folder);
            format!("cannot read what {folder} says")
        }),
    }
}
