//! A repair as turns: of medfs-fsck, and of the engine, which replays what was fsynced after the last checkpoint and
//! frees orphans. They go on until nothing is left of either, so that one run is enough.
//!
//! What a replay lays bare only the check behind it finds. So a repair that has something to replay is rehearsed on an
//! overlay: all that it costs is known before anything is written. A check at boot replays nothing, as the mount will.

use crate::fsck_advice::waits_for_memory;
use crate::fsck_args::FsckArgs;
use crate::fsck_replay::{self, LooseEnds, closed, tie_up};
use crate::progress::Scan;
use crate::target::Target;
use crate::{nvram, words};
use anyhow::{Context, Result, anyhow};
use medfs::{NvramPlace, PastDamage, Survivor};
use medfs_device::{BlockDevice, CountingDevice, Overlay};
use medfs_format::BLOCK_SIZE;
use medfs_fsck::{Code, Finding, Options, RepairError, Report, check, repair_found};
use std::path::Path;
use std::sync::Arc;

/// Turns of repair and roll-forward before they are given up.
const TURNS: usize = 4;

/// Says what it means that an error ends a repair.
pub(crate) type Ended<'a> = &'a dyn Fn() -> String;

/// What a repair came to.
#[derive(Default)]
pub(crate) struct Mended {
    pub(crate) left: Report,
    /// What the checks behind each replay found, and the files that only a repair came to.
    pub(crate) later: Vec<Report>,
    pub(crate) ends: LooseEnds,
    pub(crate) changed: bool,
    pub(crate) unfinished: Option<String>,
    pub(crate) undo_blocks: Option<u64>,
}

impl Mended {
    /// What the checks behind each replay found that the first one had not.
    pub(crate) fn later_than(&self, found: &Report) -> Vec<Report> {
        let unknown = self.later.iter().map(|later| {
            let mut later = later.clone();
            later.findings.retain(|finding| !found.findings.contains(finding));
            later.lost.retain(|lost| !found.lost.contains(lost));
            later.damaged.list.retain(|damaged| !found.damaged.list.contains(damaged));
            later
        });
        unknown.filter(|later| !later.findings.is_empty() || !later.tells_of_no_file()).collect()
    }

    /// Repairs what the last check found.
    fn repair(&mut self, args: &FsckArgs, dev: &Target, options: &Options, ended: Ended<'_>) -> Result<()> {
        let found = std::mem::take(&mut self.left);
        let repair = scanning("repairing", &**dev, |dev, at| repair_found(dev, found, options, at))
            .map_err(|error| not_repaired(&args.image, &error, ended))?;
        self.changed |= repair.changed;
        if !repair.later.tells_of_no_file() {
            self.later.push(repair.later);
        }
        (self.left, self.unfinished) = (repair.after, repair.unfinished);
        Ok(())
    }

    /// Notes what was replayed, and checks the volume again.
    fn replayed(&mut self, args: &FsckArgs, dev: &Target, ends: LooseEnds) -> Result<()> {
        self.changed |= ends != LooseEnds::default();
        self.ends.add(ends);
        self.left = checked(&args.image, &**dev)?;
        if self.left.asks_for_repair() {
            self.later.push(self.left.clone());
        }
        Ok(())
    }

    /// Replays what a memory holds: over the last checkpoint as it is, or repaired where anything of it is damaged, as
    /// a record of a file that cannot be come to would be left out.
    fn replay_memory(
        &mut self,
        args: &FsckArgs,
        dev: &Target,
        place: &NvramPlace,
        ended: Ended<'_>,
    ) -> Result<()> {
        let past = Options { past_nvram: true, ..Options::default() };
        let replay = || nvram::replay(place, dev, &args.image);
        let is_pending = |finding: &Finding| finding.code == Code::NvramPending;
        let is_right = self.left.findings.iter().all(|finding| is_pending(finding) || finding.code.stays());
        let replayed = if is_right { Some(replay()) } else { None };
        let volume = match replayed {
            Some(Err(error)) if !is_damage(&error) => return Err(error),
            Some(Ok(volume)) => volume,
            Some(Err(_)) | None => {
                self.left = checked_as(&args.image, &**dev, &past)?;
                self.repair(args, dev, &past, ended)?;
                replay()?
            }
        };
        let given_up = PastDamage::of(&volume).unrecovered().into_iter().map(|(_, what)| what);
        // No record counts without those before it.
        let given_up_of_nvram = nvram::behind_damage(place)?.into_iter().chain(given_up).collect();
        let ends = LooseEnds { given_up_of_nvram, ..closed(volume, &args.image)? };
        self.changed = true;
        self.replayed(args, dev, ends)
    }
}

/// Whether a volume, and not what was asked of it, is why it does not open.
fn is_damage(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(medfs::Error::Corrupt(_) | medfs::Error::Io(_)))
}

/// What is wrong with a volume: where its fsyncs lie in an NVRAM that too, and what is wrong at its last checkpoint.
pub(crate) fn found_on(image: &Path, dev: &Target) -> Result<Report> {
    let mut found = checked(image, &**dev)?;
    if waits_for_memory(&found) {
        let past = checked_as(image, &**dev, &Options { past_nvram: true, ..Options::default() })?;
        let pending = found.findings.into_iter().filter(|finding| finding.code == Code::NvramPending);
        found = Report { findings: pending.chain(past.findings.iter().cloned()).collect(), ..past };
    }
    fsck_replay::foresee(dev, &mut found);
    Ok(found)
}

/// Checks a device, with a bar.
pub(crate) fn checked(image: &Path, dev: &dyn BlockDevice) -> Result<Report> {
    checked_as(image, dev, &Options::default())
}

fn checked_as(image: &Path, dev: &dyn BlockDevice, options: &Options) -> Result<Report> {
    scanning("checking", dev, |dev, at| check(dev, options, at))
        .with_context(|| format!("cannot check {}", image.display()))
}

/// Does something that reads the device, with a bar.
fn scanning<T>(
    what: &str,
    dev: &dyn BlockDevice,
    work: impl FnOnce(&dyn BlockDevice, &mut dyn FnMut(f64)) -> T,
) -> T {
    let counted = CountingDevice::new(dev);
    let bar = Scan::new(what);
    let done = work(&counted, &mut |done| bar.at(done, counted.counts().blocks_read * BLOCK_SIZE as u64));
    bar.end();
    done
}

/// Whether a repair replays what was fsynced.
pub(crate) fn replays(args: &FsckArgs, found: &Report) -> bool {
    !args.preen && (found.log_to_replay.nodes > 0 || waits_for_memory(found))
}

/// What a repair will come to. Nothing is changed.
pub(crate) fn rehearse(args: &FsckArgs, dev: Target, found: Report) -> Result<Mended> {
    let folder = std::env::temp_dir();
    let changes = tempfile::tempfile().with_context(|| {
        format!(
            "nothing was repaired: cannot create a file in {}, where the repair is rehearsed",
            folder.display()
        )
    })?;
    let over: Target = Arc::new(Overlay::new(dev, changes));
    let ended = || {
        format!(
            "nothing was repaired: the repair was rehearsed in {}, and TMPDIR=DIRECTORY names another place",
            folder.display()
        )
    };
    take_turns(args, &over, found, Survivor::Off, &ended)
}

/// Repairs, replays what was fsynced and frees orphans, until nothing is left of either.
pub(crate) fn take_turns(
    args: &FsckArgs,
    dev: &Target,
    found: Report,
    survivor: Survivor,
    ended: Ended<'_>,
) -> Result<Mended> {
    let mut mended = Mended { left: found, ..Mended::default() };
    if let Some(place) = args.nvram.as_ref().filter(|_| waits_for_memory(&mended.left)) {
        mended.replay_memory(args, dev, place, ended)?;
    }
    for turn in 1..=TURNS {
        mended.repair(args, dev, &Options::default(), ended)?;
        let log = mended.left.log_to_replay;
        if args.preen || !mended.left.is_clean() || (log.nodes == 0 && mended.left.orphans == 0) {
            break;
        }
        let ends = match tie_up(dev, &args.image, log.inodes, survivor.clone()) {
            Err(error) if is_foreign(&error) => {
                mended.unfinished =
                    Some(format!("what was fsynced is left to the kernel's mount: {error:#}"));
                break;
            }
            ends => ends?,
        };
        mended.replayed(args, dev, ends)?;
        if mended.left.worst().is_none() {
            break;
        }
        if turn == TURNS && !mended.left.is_clean() {
            let left = words::count(mended.left.findings.len() as u64, "finding");
            mended.unfinished = Some(format!("left after {TURNS} turns of repair and roll-forward: {left}"));
        }
    }
    Ok(mended)
}

/// Whether a volume has a feature with which medfs can only read it.
fn is_foreign(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(medfs::Error::Incompatible(_)))
}

/// That a repair failed, and whether it ended in the middle.
fn not_repaired(image: &Path, error: &RepairError, ended: Ended<'_>) -> anyhow::Error {
    let image = image.display();
    match error {
        RepairError::Io(_) => anyhow!("cannot repair {image}: {error}; {}", ended()),
        RepairError::Unsupported(_) => anyhow!("cannot repair {image}: {error}"),
    }
}
