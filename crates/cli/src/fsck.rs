//! `medfs fsck` and `fsck.medfs`: checks a volume, and repairs it if asked.
//!
//! A repair also opens and closes the volume, which replays what was fsynced after the last checkpoint and frees
//! orphans: `fsck.f2fs` leaves that to the kernel.

use crate::args::FsckArgs;
use crate::exit::{self, Coded};
use crate::{progress, target};
use anyhow::{Context, Result};
use medfs::MountOptions;
use medfs_device::BlockDevice;
use medfs_fsck::{Options, Report, check, repair};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// What `--json` prints.
#[derive(Serialize)]
struct Outcome<'a> {
    image: String,
    /// What was wrong at first.
    found: &'a Report,
    /// What is wrong after the repair, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<&'a Report>,
    #[serde(flatten)]
    ends: LooseEnds,
    changed: bool,
    exit: u8,
}

/// What a crash left to be done.
#[derive(Debug, Default, PartialEq, Serialize)]
struct LooseEnds {
    /// Inodes restored from the fsync log.
    rolled_forward: u64,
    /// Inodes whose fsynced changes could not be restored.
    given_up: u64,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    given_up_because: Option<String>,
    /// Orphan inodes freed.
    orphans_freed: u64,
}

/// Called as `fsck.medfs`, with the flags that fsck(8) and people used to other checkers give.
pub(crate) fn helper(args: &[OsString]) -> u8 {
    match helper_args(&args[1..]) {
        Ok(Some(parsed)) => exit::run("fsck", exit::FSCK_OPERATIONAL, || run(&parsed)),
        Ok(None) => {
            outln!("fsck.medfs {}", env!("CARGO_PKG_VERSION"));
            exit::SUCCESS
        }
        Err(e) => exit::run("fsck", exit::FSCK_USAGE, || Err(e)),
    }
}

/// `None`: the version is asked for.
fn helper_args(args: &[OsString]) -> Result<Option<FsckArgs>> {
    let wrong = |what: String| {
        Coded::new(exit::FSCK_USAGE, format!("{what}; usage: fsck.medfs [-a|-p|-y|-n] [-f] DEVICE"))
    };
    let mut image = None;
    let (mut mend, mut look) = (false, false);
    for arg in args {
        match arg.to_str() {
            Some("-a" | "-p" | "-y") => mend = true,
            Some("-n" | "--dry-run") => look = true,
            // Checks are always complete; fsck(8)'s own flags for titles, progress and talk change nothing here.
            Some("-f" | "-v" | "-T" | "-r" | "-s") => {}
            Some(flag) if flag.starts_with("-C") => {}
            Some("-V" | "--version") => return Ok(None),
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
    Ok(Some(FsckArgs { image, repair: mend, dry_run: look, json: false }))
}

/// `medfs fsck`
pub(crate) fn run(args: &FsckArgs) -> Result<u8> {
    let dev =
        if args.repair { target::open_to_write(&args.image)? } else { target::open_to_read(&args.image)? };
    target::explain_no_volume(&*dev, &args.image)?;
    if args.repair { mend(args, dev) } else { look(args, &*dev) }
}

fn look(args: &FsckArgs, dev: &dyn BlockDevice) -> Result<u8> {
    let bar = progress::steps("checking", PROGRESS_STEPS);
    let report =
        check(dev, &Options::default(), &mut |done| bar.set_position((done * PROGRESS_STEPS as f64) as u64))
            .with_context(|| format!("cannot check {}", args.image.display()))?;
    bar.finish_and_clear();
    let code = if report.is_clean() { exit::SUCCESS } else { exit::FSCK_ERRORS_LEFT };
    if args.json {
        print_json(&args.image, &report, None, LooseEnds::default(), false, code)?;
        return Ok(code);
    }
    print_findings(&report);
    print_counts(&args.image, &report);
    if report.log_to_replay.nodes > 0 {
        outln!(
            "{} inode(s) were fsynced after the last checkpoint: the next mount, or --repair, rolls them forward",
            report.log_to_replay.inodes
        );
    }
    if code != exit::SUCCESS {
        outln!("{}: NOT CLEAN, use --repair to mend it", args.image.display());
    }
    Ok(code)
}

const PROGRESS_STEPS: u64 = 1000;

fn mend(args: &FsckArgs, dev: target::Target) -> Result<u8> {
    let bar = progress::steps("checking and mending", PROGRESS_STEPS);
    let done = repair(&*dev, &Options::default(), &mut |done| {
        bar.set_position((done * PROGRESS_STEPS as f64) as u64)
    })
    .with_context(|| format!("cannot repair {}", args.image.display()))?;
    bar.finish_and_clear();
    let mut left = done.after;
    let mut ends = LooseEnds::default();
    if left.is_clean() && (left.log_to_replay.nodes > 0 || left.orphans > 0) {
        ends = tie_up(args, &dev, left.log_to_replay.inodes)?;
        left = check(&*dev, &Options::default(), &mut |_| ())?;
    }
    let changed = done.changed || ends != LooseEnds::default();
    let code = match (left.is_clean(), changed) {
        (false, _) => exit::FSCK_ERRORS_LEFT,
        (true, true) => exit::FSCK_REPAIRED,
        (true, false) => exit::SUCCESS,
    };
    if args.json {
        print_json(&args.image, &done.before, Some(&left), ends, changed, code)?;
        return Ok(code);
    }
    print_findings(&done.before);
    if ends.rolled_forward > 0 {
        outln!("rolled {} fsynced inode(s) forward", ends.rolled_forward);
    }
    if let Some(reason) = &ends.given_up_because {
        outln!("gave up what was fsynced to {} inode(s) since the last checkpoint: {reason}", ends.given_up);
    }
    if ends.orphans_freed > 0 {
        outln!("freed {} orphan inode(s)", ends.orphans_freed);
    }
    if !left.is_clean() {
        outln!("left after the repair:");
        print_findings(&left);
    }
    print_counts(&args.image, &left);
    match code {
        exit::FSCK_REPAIRED => outln!("{}: repaired", args.image.display()),
        exit::FSCK_ERRORS_LEFT => outln!("{}: ERRORS ARE LEFT", args.image.display()),
        _ => {}
    }
    Ok(code)
}

/// Rolls fsynced inodes forward and frees orphans, by opening the volume. A log that cannot be replayed is given up: the
/// volume then is that of the last checkpoint. `logged`: inodes in the log.
fn tie_up(args: &FsckArgs, dev: &target::Target, logged: u64) -> Result<LooseEnds> {
    let open = |recover| {
        let options = MountOptions { recover, ..MountOptions::default() };
        target::open_volume(dev.clone(), &args.image, options)
    };
    let mut ends = LooseEnds::default();
    let volume = match open(true) {
        Ok(volume) => volume,
        Err(e) => match e.downcast_ref::<medfs::Error>() {
            Some(reason @ medfs::Error::Corrupt(_)) => {
                (ends.given_up, ends.given_up_because) = (logged, Some(reason.to_string()));
                open(false)?
            }
            _ => return Err(e),
        },
    };
    let stats = volume.stats();
    (ends.rolled_forward, ends.orphans_freed) = (stats.recovered_inodes, stats.orphans_freed);
    volume.close().with_context(|| format!("cannot finish writing {}", args.image.display()))?;
    Ok(ends)
}

fn print_findings(report: &Report) {
    for finding in &report.findings {
        outln!("{finding}");
    }
    if report.suppressed > 0 {
        outln!("and {} more", report.suppressed);
    }
}

fn print_counts(image: &Path, r: &Report) {
    let state = if r.is_clean() { "clean" } else { "faulty" };
    outln!(
        "{}: {state}, {} directories, {} files, {} blocks in use",
        image.display(),
        r.directories,
        r.files,
        r.blocks
    );
}

fn print_json(
    image: &Path,
    found: &Report,
    left: Option<&Report>,
    ends: LooseEnds,
    changed: bool,
    exit: u8,
) -> Result<()> {
    let image = OsStr::to_string_lossy(image.as_os_str()).into_owned();
    let outcome = Outcome { image, found, left, ends, changed, exit };
    outln!("{}", serde_json::to_string_pretty(&outcome)?);
    Ok(())
}
