//! `medfs fsck`: checks a volume, and repairs it if asked.
//!
//! What a repair will cost is said before anything is written ([`crate::fsck_turns`]); with `--undo` all of it can be
//! taken back.

use crate::exit::{self, Coded};
use crate::fsck_advice::{advice, waits_for_memory};
use crate::fsck_args::FsckArgs;
use crate::fsck_costs::{print_costs, print_damaged, print_gone, print_lost};
use crate::fsck_refusal::refusal;
use crate::fsck_replay::LooseEnds;
use crate::fsck_turns::{Ended, Mended, found_on, rehearse, replays, take_turns};
use crate::get::map;
use crate::{findings, json, log, output, survivor, target, undo, words};
use anyhow::{Context, Result};
use medfs::Survivor;
use medfs_device::BlockDevice;
use medfs_device::quote::{self, hint};
use medfs_fsck::undo::{UndoDevice, UndoError, check_resume, restore};
use medfs_fsck::{Code, Report};
use serde::Serialize;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// What else its help says.
pub(crate) const HELP: &str = "\
Before the first repair of a damaged card, copy its files: 'medfs get -r', or
'medfs get --salvage' if the volume does not open. --restore takes back a repair
that was made with --undo; keep FILE on another disk. 'medfs help damaged', or
medfs-damaged(7), gives all steps in order.

A repair that has fsyncs to replay is rehearsed before anything is written: a file
in the directory that the environment variable TMPDIR names, otherwise /tmp, holds
what it would change.

The content of files is not checked, as F2FS has no checksums for it.
'medfs help findings', or medfs-findings(7), says what each finding means.

Exits with 0 if the volume is clean, 1 if it was repaired, 4 if errors are left,
8 if it could not be checked, 16 for wrong arguments, 130 after Ctrl-C.";

/// What `--json` prints.
#[derive(Serialize)]
struct Outcome<'a> {
    image: String,
    /// What was wrong at first.
    found: &'a Report,
    /// What only the checks found after what was fsynced had been replayed, where there was some.
    #[serde(skip_serializing_if = "<[Report]>::is_empty")]
    found_later: &'a [Report],
    /// What is wrong after the repair, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<&'a Report>,
    #[serde(flatten)]
    ends: LooseEnds,
    changed: bool,
    /// Why the repair is not complete, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfinished: Option<String>,
    /// Blocks that the undo file keeps, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    undo_blocks: Option<u64>,
    exit: u8,
}

/// `medfs fsck`
pub(crate) fn run(args: &FsckArgs) -> Result<u8> {
    log::without_damage(); // it is a finding
    let repairs = args.repair || args.preen;
    let writes = repairs || args.restore.is_some();
    if args.restore.is_some() && args.map.is_some() {
        let way = "put back the copy of the map that was made before the repair";
        return Err(Coded::new(exit::FSCK_USAGE, format!("--restore changes no map: {way}")).into());
    }
    map::must_exist(args.map.as_deref(), exit::FSCK_USAGE)?;
    let opened = if writes { target::open_to_write(&args.image) } else { target::open_to_read(&args.image) };
    let dev = match opened {
        Err(refused) if args.preen => return look_instead(args, refused),
        dev => dev?,
    };
    if let Some(file) = &args.restore {
        return take_back(args, &*dev, file);
    }
    if repairs {
        mend(args, dev)
    } else {
        map::past(args.map.as_deref(), &args.image, dev, |dev| look(args, &dev))
    }
}

/// Checks a volume that cannot be written, and fails only where a repair is called for.
fn look_instead(args: &FsckArgs, refused: anyhow::Error) -> Result<u8> {
    let Ok(dev) = target::open_to_read(&args.image) else { return Err(refused) };
    match map::past(args.map.as_deref(), &args.image, dev, |dev| look(args, &dev))? {
        exit::SUCCESS => Ok(exit::SUCCESS),
        _ => Err(refused),
    }
}

/// What a volume has to be for a check, and what is said of it before one.
fn prepare(image: &Path, dev: &dyn BlockDevice) -> Result<()> {
    target::explain_nothing_to_check(dev, image)?;
    survivor::warn(dev, image);
    Ok(())
}

fn look(args: &FsckArgs, dev: &target::Target) -> Result<u8> {
    prepare(&args.image, &**dev)?;
    undo::if_ended("fsck", "nothing was changed");
    let report = found_on(&args.image, dev)?;
    let code = if report.asks_for_repair() { exit::FSCK_ERRORS_LEFT } else { exit::SUCCESS };
    if args.json {
        print_json(&args.image, &report, None, code)?;
        return Ok(code);
    }
    findings::print(&report, args.verbose);
    print_costs(&report);
    print_counts(&args.image, &report, state(&report));
    if report.log_to_replay.nodes > 0 {
        outln!("{}", after_checkpoint(&**dev, &report));
    }
    if code != exit::SUCCESS {
        outln!("{}: NOT CLEAN, {}", args.image.display(), advice(&report, &**dev, &args.image));
    }
    Ok(code)
}

/// What there is behind the last checkpoint, where so many files were fsynced.
fn after_checkpoint(dev: &dyn BlockDevice, report: &Report) -> String {
    let who = match (target::can_be_written(dev), report.has(Code::CheckpointOlder)) {
        (true, false) => "the next mount, or --repair,",
        (true, true) => "--repair", // a mount is refused
        (false, _) => "the kernel's next mount",
    };
    match report.log_to_replay.inodes {
        0 => format!("nodes were written after the last checkpoint, but no fsync ended: {who} drops them"),
        1 => format!("1 file was fsynced after the last checkpoint: {who} rolls it forward"),
        _ => {
            let files = words::count(report.log_to_replay.inodes, "file");
            format!("{files} were fsynced after the last checkpoint: {who} rolls them forward")
        }
    }
}

fn mend(args: &FsckArgs, dev: target::Target) -> Result<u8> {
    undo::if_ended("fsck", "nothing was changed");
    let volume = dev.clone();
    let past_map = |dev, what: &mut dyn FnMut(target::Target) -> Result<Mended>| {
        map::past(args.map.as_deref(), &args.image, dev, what)
    };
    let (found, refused) = map::past(args.map.as_deref(), &args.image, dev.clone(), |dev| {
        prepare(&args.image, &*dev)?;
        if let Some(file) = &args.undo {
            check_undo(file, &args.image, &*dev)?;
        }
        let found = found_on(&args.image, &dev)?;
        let refused = refusal(args, &*dev, &found);
        Ok((found, refused))
    })?;
    if !args.json {
        findings::print(&found, args.verbose);
        print_costs(&found);
        tell_unused_memory(args, &found);
    }
    if let Some((why, advice)) = refused {
        let code = exit::FSCK_ERRORS_LEFT;
        match args.json {
            true => print_json(&args.image, &found, None, code)?,
            false => outln!("{}: NOT REPAIRED, as {why}: {advice}", args.image.display()),
        }
        return Ok(code);
    }
    if args.preen && waits_for_memory(&found) {
        return leave_to_mount(args, &found);
    }
    if replays(args, &found) {
        let rehearsed = past_map(dev.clone(), &mut |dev| rehearse(args, dev, found.clone()))?;
        if !args.json {
            print_rehearsed(args, &found, &rehearsed);
        }
    }
    undo::if_ended("fsck", half_way(args));
    let turns =
        |dev: target::Target, ended: Ended<'_>| take_turns(args, &dev, found.clone(), Survivor::Auto, ended);
    let mended = match &args.undo {
        None => past_map(dev, &mut |dev| turns(dev, &|| half_way(args)))?,
        Some(file) => {
            // It keeps what the device holds, also where the map calls that bad.
            let kept = Arc::new(open_undo(args, file, dev)?);
            let ended = || if kept.kept() == 0 { unchanged(file) } else { half_way(args) };
            let mended = past_map(kept.clone(), &mut |over| turns(over, &ended))?;
            let blocks = kept.finish().with_context(|| format!("cannot finish {}", file.display()))?;
            Mended { undo_blocks: Some(blocks), ..mended }
        }
    };
    let code = match (mended.left.is_clean(), mended.changed) {
        (false, _) => exit::FSCK_ERRORS_LEFT,
        (true, true) => exit::FSCK_REPAIRED,
        (true, false) => exit::SUCCESS,
    };
    if mended.changed {
        output::done("the repair is complete");
    }
    if args.json {
        print_json(&args.image, &found, Some(&mended), code)?;
    } else {
        print_mended(args, &*volume, &found, &mended, code);
    }
    Ok(code)
}

/// At boot a volume whose fsyncs lie in an NVRAM, and which is sound but for that, is what its mount expects.
fn leave_to_mount(args: &FsckArgs, found: &Report) -> Result<u8> {
    match args.json {
        true => print_json(&args.image, found, None, exit::SUCCESS)?,
        false => {
            outln!("{}: left to the mount, which brings the fsyncs in the NVRAM back", args.image.display())
        }
    }
    Ok(exit::SUCCESS)
}

/// Says that a memory was named which the volume does not need.
fn tell_unused_memory(args: &FsckArgs, found: &Report) {
    if let Some(place) = args.nvram.as_ref().filter(|_| !waits_for_memory(found)) {
        let image = args.image.display();
        match found.has(Code::SuperblockLost) {
            true => outln!(
                "{image}: whether fsyncs of it lie in an NVRAM was told by its superblocks, which are lost: {place} is not used"
            ),
            false => outln!("{image}: no fsyncs of it lie in an NVRAM: {place} is not used"),
        }
    }
}

/// What is told of a repair that the user or an error ends.
fn half_way(args: &FsckArgs) -> String {
    match &args.undo {
        None => "the repair is not complete: run it again".into(),
        Some(file) => format!(
            "the repair is not complete: run it again with the same undo file, or {} takes it back",
            take_back_hint(file, &args.image)
        ),
    }
}

/// What is told of a repair whose undo file has no room for its first block.
fn unchanged(undo: &Path) -> String {
    format!("nothing was changed, and {} was removed: name a file on a disk with room", undo.display())
}

fn take_back_hint(file: &Path, image: &Path) -> String {
    hint(format_args!("medfs fsck --restore {} {}", quote::path(file), quote::path(image)))
}

/// What a repair will give up of the log and of a memory, and what only the checks behind their replay found.
fn print_rehearsed(args: &FsckArgs, found: &Report, rehearsed: &Mended) {
    let LooseEnds { given_up, given_up_because, given_up_of_nvram, .. } = &rehearsed.ends;
    if let Some(reason) = given_up_because {
        let files = words::count(*given_up, "file");
        outln!(
            "a repair will leave out what is damaged of the fsyncs of {files} since the last checkpoint: {reason}"
        );
    }
    for what in given_up_of_nvram {
        outln!("a repair will drop of the NVRAM: {what}");
    }
    for later in rehearsed.later_than(found) {
        outln!("after what was fsynced is replayed:");
        findings::print(&later, args.verbose);
        print_costs(&later);
    }
}

fn print_mended(args: &FsckArgs, dev: &dyn BlockDevice, found: &Report, mended: &Mended, code: u8) {
    let (ends, left) = (&mended.ends, &mended.left);
    if ends.rolled_forward > 0 {
        outln!("rolled {} forward", words::count(ends.rolled_forward, "fsynced file"));
    }
    if let Some(reason) = &ends.given_up_because {
        let files = words::count(ends.given_up, "file");
        outln!("left out what was damaged of the fsyncs of {files} since the last checkpoint: {reason}");
    }
    for what in &ends.given_up_of_nvram {
        outln!("dropped of the NVRAM: {what}");
    }
    if ends.orphans_freed > 0 {
        outln!("freed {}", words::count(ends.orphans_freed, "orphan"));
    }
    if !left.is_clean() {
        outln!("left after the repair:");
        findings::print(left, args.verbose);
    }
    print_lost(found, "lost: ");
    print_gone(found);
    print_damaged(found, "damaged: ");
    mended.later_than(found).iter().for_each(|later| {
        print_lost(later, "lost: ");
        print_gone(later);
        print_damaged(later, "damaged: ");
    });
    if args.preen && left.log_to_replay.nodes > 0 {
        outln!("{}", after_checkpoint(dev, left));
    }
    let state = if code == exit::FSCK_REPAIRED { "repaired" } else { state(left) };
    print_counts(&args.image, left, state);
    if code == exit::FSCK_ERRORS_LEFT {
        outln!("{}: ERRORS ARE LEFT", args.image.display());
    }
    if let Some(reason) = &mended.unfinished {
        outln!("{}: {reason}", args.image.display());
    }
    match (&args.undo, mended.undo_blocks) {
        (Some(file), Some(0)) => outln!("nothing was changed: the undo file {} was removed", file.display()),
        (Some(file), Some(blocks)) => outln!(
            "{} as before the repair in {}: {} takes it back until the volume is mounted for writing (medfs ls, medfs get and mount -o ro change nothing)",
            words::count(blocks, "block"),
            file.display(),
            take_back_hint(file, &args.image)
        ),
        _ => {}
    }
}

/// A new undo file, or that of a repair of the same volume which was interrupted.
fn open_undo(args: &FsckArgs, file: &Path, dev: target::Target) -> Result<UndoDevice<target::Target>> {
    if file.symlink_metadata().is_err() {
        return UndoDevice::create(file, dev).map_err(|error| not_made(&error.into(), file));
    }
    let kept = UndoDevice::resume(file, dev).map_err(|error| not_resumed(error, file, &args.image))?;
    if kept.kept() > 0 && !args.json {
        let (file, blocks) = (file.display(), words::count(kept.kept(), "block"));
        outln!("{file} holds {blocks} of an interrupted repair: it will take back both repairs");
    }
    Ok(kept)
}

/// That an undo file cannot be made, and what that means.
fn not_made(error: &anyhow::Error, file: &Path) -> anyhow::Error {
    let (name, why) = (file.display(), exit::sentence(error));
    refused(format!("nothing was repaired: cannot create {name}: {why}; name a file on a disk with room"))
}

/// Why a file that is there is not gone on with.
fn not_resumed(error: UndoError, file: &Path, image: &Path) -> anyhow::Error {
    let name = file.display();
    match error {
        UndoError::Io(error) => anyhow::Error::from(error).context(format!("cannot open {name}")),
        UndoError::Changed(..) => refused(format!(
            "{name} is of an interrupted repair, and {} was used since: name another undo file",
            image.display()
        )),
        _ => refused(format!(
            "{name} exists: an undo file must not exist beforehand, except that of an interrupted repair of {}; a second repair needs \
             one of its own, which is restored before the first",
            image.display()
        )),
    }
}

/// Whether an undo file can be made, somewhere else than on the device that is repaired, or one that is there can be
/// gone on with: before the check, which may take hours.
fn check_undo(file: &Path, image: &Path, dev: &dyn BlockDevice) -> Result<()> {
    let name = file.display();
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let metadata = folder.metadata().map_err(|error| not_made(&error.into(), file))?;
    let on_it =
        image.metadata().is_ok_and(|of| of.file_type().is_block_device() && of.rdev() == metadata.dev());
    if on_it {
        return Err(refused(format!(
            "{name} is on {}, the volume to be repaired: keep the undo file on another disk",
            image.display()
        )));
    }
    if file.symlink_metadata().is_ok() {
        return check_resume(file, dev).map_err(|error| not_resumed(error, file, image));
    }
    tempfile::tempfile_in(folder).map_err(|error| not_made(&error.into(), file))?;
    Ok(())
}

fn refused(why: String) -> anyhow::Error {
    Coded::new(exit::FSCK_OPERATIONAL, why).into()
}

/// `--restore`
fn take_back(args: &FsckArgs, dev: &dyn BlockDevice, file: &Path) -> Result<u8> {
    undo::if_ended("fsck", "some blocks may not be restored yet: run it again");
    let is_empty = std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
    if is_empty {
        let name = file.display();
        return Err(refused(format!(
            "{name} is empty, and nothing is restored: the repair was interrupted before it changed anything, or the file has \
             lost what was in it"
        )));
    }
    let blocks = restore(file, dev).map_err(|e| match e {
        UndoError::Io(e) => named(e, file),
        other => other.into(),
    })?;
    let image = args.image.display();
    if args.json {
        json::print(
            &serde_json::json!({ "image": image.to_string(), "restored_blocks": blocks, "exit": 0 }),
        )?;
    } else if blocks == 0 {
        outln!("{image}: nothing to take back: the repair was interrupted before it changed anything");
    } else {
        outln!("{image}: {} as before the repair", words::count(blocks, "block"));
    }
    Ok(exit::SUCCESS)
}

fn named(error: io::Error, file: &Path) -> anyhow::Error {
    if error.kind() == io::ErrorKind::NotFound {
        let name = file.display();
        return refused(format!("there is no undo file {name}: a repair that changes nothing leaves none"));
    }
    anyhow::Error::from(error).context(format!("cannot restore from {}", file.display()))
}

fn state(report: &Report) -> &'static str {
    if report.is_clean() { "clean" } else { "faulty" }
}

fn print_counts(image: &Path, r: &Report, state: &str) {
    let image = image.display();
    let Some(counted) = r.counted else {
        outln!("{image}: {state}, its files cannot be counted");
        return;
    };
    outln!(
        "{image}: {state}, {}, {}, {} in use",
        words::count(counted.directories, "directory"),
        words::count(counted.files, "file"),
        words::count(counted.blocks, "block"),
    );
}

fn print_json(image: &Path, found: &Report, mended: Option<&Mended>, exit: u8) -> Result<()> {
    let image = OsStr::to_string_lossy(image.as_os_str()).into_owned();
    let outcome = Outcome {
        image,
        found,
        found_later: mended.map_or(&[], |m| &m.later),
        left: mended.map(|m| &m.left),
        ends: mended.map_or_else(LooseEnds::default, |m| m.ends.clone()),
        changed: mended.is_some_and(|m| m.changed),
        unfinished: mended.and_then(|m| m.unfinished.clone()),
        undo_blocks: mended.and_then(|m| m.undo_blocks),
        exit,
    };
    json::print(&outcome)
}
