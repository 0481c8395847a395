//! `fsck.medfs`: the arguments that fsck(8) and people used to other checkers give.

use crate::exit::{self, Coded};
use crate::fsck::run;
use crate::fsck_args::FsckArgs;
use anyhow::Result;
use std::ffi::OsString;
use std::path::PathBuf;

/// Called as `fsck.medfs`, with the flags that fsck(8) and people used to other checkers give.
pub(crate) fn helper(args: &[OsString]) -> u8 {
    match helper_args(&args[1..]) {
        Ok(Some(parsed)) => exit::run("fsck", exit::FSCK_OPERATIONAL, || run(&parsed)),
        Ok(None) => exit::SUCCESS,
        Err(e) => exit::run("fsck", exit::FSCK_USAGE, || Err(e)),
    }
}

/// How it is called.
const USAGE: &str = "usage: fsck.medfs [-a|-p|-y|-n] [-f] DEVICE";

/// `None`: the version or help is asked for.
fn helper_args(args: &[OsString]) -> Result<Option<FsckArgs>> {
    let wrong = |what: String| Coded::new(exit::FSCK_USAGE, format!("{what}; {USAGE}"));
    let mut image = None;
    let (mut mend, mut preen, mut look, mut verbose) = (false, false, false, false);
    for arg in args {
        match arg.to_str() {
            Some("-a" | "-p") => (mend, preen) = (true, true),
            Some("-y") => mend = true,
            Some("-n" | "--dry-run") => look = true,
            // Checks are always complete; fsck(8)'s own flags for titles, progress and talk change nothing here.
            Some("-f" | "-T" | "-r" | "-s") => {}
            Some("-v") => verbose = true,
            Some(flag) if flag.starts_with("-C") => {}
            Some("-V" | "--version") => {
                outln!("fsck.medfs {}", env!("CARGO_PKG_VERSION"));
                return Ok(None);
            }
            Some("-h" | "--help") => {
                outln!(
                    "{USAGE}\n-a and -p repair where nothing is lost by that, -y repairs, -n only checks (the default). See 'medfs fsck --help'."
                );
                return Ok(None);
            }
            Some(flag) if flag.starts_with('-') && flag.len() > 1 => {
                return Err(wrong(format!("unknown flag {flag}")).into());
            }
            _ if image.is_some() => return Err(wrong("more than one device".into()).into()),
            _ => image = Some(PathBuf::from(arg)),
        }
    }
    if mend && look {
        return Err(wrong("-n excludes -a, -p and -y".into()).into());
    }
    let image = image.ok_or_else(|| wrong("no device".into()))?;
    let repair = mend && !preen;
    let (undo, restore, json, force) = (None, None, false, false);
    Ok(Some(FsckArgs {
        image,
        repair,
        preen,
        undo,
        nvram: None,
        map: None,
        restore,
        dry_run: look,
        json,
        verbose,
        force,
    }))
}
