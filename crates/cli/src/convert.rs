//! `medfs import` and `medfs export`: from plain F2FS to a volume with deltas, and back.

use crate::args::{ConvertArgs, ImportArgs};
use crate::databases::Databases;
use crate::fsck_turns::checked;
use crate::words::{count, grouped};
use crate::{exit, fsck_advice, json, output, progress, survivor, target, undo};
use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use medfs::SystemClock;
use medfs::convert::{self, Converted, Import, ImportOptions, Phase, Plan};
use medfs_device::quote::{self, hint};
use medfs_device::{BlockDevice, read_block};
use medfs_format::superblock::{DELTA_FEATURES, DELTA_MAGIC, MAGIC, RawSuperblock};
use medfs_fsck::{Code, Finding, Severity};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// What `--json` prints.
#[derive(Serialize)]
struct Outcome {
    image: String,
    /// What the volume is now: `delta` or `plain`.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Plan>,
    #[serde(flatten)]
    done: Option<Converted>,
    /// Databases that take no deltas.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_deltas: Option<Databases>,
}

impl Outcome {
    fn new(path: &Path, is_delta_volume: bool) -> Outcome {
        let kind = if is_delta_volume { "delta" } else { "plain" };
        Outcome { image: path.display().to_string(), kind, plan: None, done: None, without_deltas: None }
    }

    /// Prints it, as text in this sentence.
    fn tell(self, json: bool, text: &str) -> Result<u8> {
        if json {
            json::print(&self)?;
        } else {
            outln!("{}: {text}", self.image);
            if let Some(without) = &self.without_deltas {
                without.tell(&self.image);
            }
        }
        Ok(exit::SUCCESS)
    }
}

/// A bar for each phase of a conversion.
#[derive(Default)]
struct Bars(Option<(Phase, ProgressBar)>);

impl Bars {
    fn show(&mut self, phase: Phase, done: u64, total: u64) {
        if self.0.as_ref().is_none_or(|(shown, _)| *shown != phase) {
            self.clear();
            let what = match phase {
                Phase::Survey => "reading inodes",
                Phase::Complete => "completing inodes",
                Phase::LayOut => "converting inodes",
                Phase::Fold => "folding deltas",
            };
            self.0 = Some((phase, progress::steps(what, 1)));
        }
        if let Some((_, bar)) = &self.0 {
            bar.set_length(total.max(done));
            bar.set_position(done);
        }
    }

    fn clear(&mut self) {
        if let Some((_, bar)) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

/// What `medfs import` does to volumes of `mkfs.f2fs`'s defaults.
pub(crate) const IMPORT_HELP: &str = "\
If the volume lacks extra_attr, flexible_inline_xattr or inode_checksum, the
import adds them and rewrites every inode once. It first reads all inodes and
reports how many free blocks it needs. If the volume has fewer, nothing is
changed. The import copies a file inside the volume only if the file has more
than 3.4 MiB and no inline attribute area, as with the option noinline_xattr.

An interrupted import continues when it is run again. Until then medfs mounts the
volume, but files that the import has not reached take no deltas. 'medfs export'
reverts an interrupted import to plain F2FS.

Do not import the partition that a machine boots from: the kernel cannot mount it
afterwards. In /etc/fstab an imported volume has the type medfs.

An existing file of more than 3.4 MiB takes no deltas until it is rewritten.
--databases makes the import rewrite databases. On a volume that is already
imported, --databases does only that.";

/// `medfs import`
pub(crate) fn import(args: &ImportArgs) -> Result<u8> {
    let path = &args.image;
    let dev = if args.dry_run { target::open_to_read(path)? } else { target::open_to_write(path)? };
    target::explain_no_volume(&*dev, path)?;
    target::refuse_cut_short(dev.clone(), path)?;
    let cannot = || format!("cannot import {}", path.display());
    let checked = dev.clone();
    match args.dry_run {
        true => survivor::warn(&*dev, path),
        false => survivor::bring_back(&dev, path)?,
    }
    undo::if_ended("import", "nothing was changed");
    let mut bars = Bars::default();
    let options = ImportOptions { databases: args.databases };
    let import = Import::plan(dev, Arc::new(SystemClock), options, &mut |phase, done, total| {
        bars.show(phase, done, total)
    });
    bars.clear();
    let import = import.map_err(|error| fsck_advice::repair_first(error, path)).with_context(cannot)?;
    let plan = *import.of();
    let begun = plan.switches && is_between_kinds(&*checked);
    if plan.switches {
        check_first(&*checked, path, begun)?;
    }
    if plan.layouts.inodes > 0 && !args.json {
        outln!("{}: {}", path.display(), describe(&plan));
    }
    if args.dry_run {
        let text = match (plan.resumes || begun, plan.switches, plan.layouts.inodes) {
            (true, ..) => interrupted(path),
            (_, true, _) => "can be imported".to_owned(),
            (_, false, 0) => "this is already a medfs volume: nothing to do".to_owned(),
            (_, false, _) => "--databases makes room for the deltas of databases".to_owned(),
        };
        let without_deltas = match args.databases {
            true => Some(Databases::none()),
            false => Some(Databases::without_zone(checked, path)?),
        };
        let outcome = Outcome { plan: Some(plan), without_deltas, ..Outcome::new(path, !plan.switches) };
        return outcome.tell(args.json, &text);
    }
    undo::if_ended(
        "import",
        format_args!(
            "run it again to continue, or run {} to revert it",
            hint(format_args!("medfs export {}", quote::path(path)))
        ),
    );
    let done = import.run(&mut |phase, done, total| bars.show(phase, done, total));
    bars.clear();
    let done = done.with_context(cannot)?;
    output::done("the import is complete");
    let text = match (done.switched, done.layouts.inodes) {
        (true, _) => {
            "deltas are enabled; only medfs can mount it now ('medfs export' makes it plain F2FS again)"
        }
        _ if plan.resumes => "the interrupted import is complete",
        (false, 0) => "this is already a medfs volume: nothing to do",
        (false, _) => "databases take deltas now",
    };
    let asks = done.switched || plan.resumes || args.json;
    let without_deltas = asks.then(|| Databases::without_zone(checked, path)).transpose()?;
    Outcome { plan: Some(plan), done: Some(done), without_deltas, ..Outcome::new(path, true) }
        .tell(args.json, text)
}

/// What helps where an import was interrupted.
pub(crate) fn interrupted(path: &Path) -> String {
    let path = quote::path(path);
    let (end, back) = (hint(format_args!("medfs import {path}")), hint(format_args!("medfs export {path}")));
    format!("an import was interrupted: {end} completes it, {back} reverts it")
}

/// What a check finds of the superblock where an import or export was interrupted.
const BETWEEN_KINDS: [Code; 3] = [Code::SuperblockCopy, Code::SuperblocksDiffer, Code::SuperblockKinds];

/// Whether an import or export of a plain volume was interrupted while it wrote a copy of the superblock, or between
/// the two: the copies differ in nothing but what these write.
fn is_between_kinds(dev: &dyn BlockDevice) -> bool {
    let (Ok(first), Ok(second)) = (read_block(dev, 0), read_block(dev, 1)) else { return false };
    let copies = [RawSuperblock::in_block(&first), RawSuperblock::in_block(&second)];
    let is_plain = |sb: &&RawSuperblock| !sb.is_delta_volume() && sb.validate().is_ok();
    let Some(plain) = copies.into_iter().find(is_plain) else { return false };
    !copies[0].agrees_with(copies[1]) && copies.into_iter().all(|copy| is_on_the_way(copy, plain))
}

/// Whether a copy of the superblock is that of a plain volume but for what makes it one with deltas, or for a part of
/// that.
fn is_on_the_way(copy: &RawSuperblock, plain: &RawSuperblock) -> bool {
    let features = [plain.features(), plain.features() | DELTA_FEATURES];
    let is_known = [MAGIC, DELTA_MAGIC].contains(&copy.magic.get()) && features.contains(&copy.features());
    let as_plain = RawSuperblock {
        magic: plain.magic,
        feature: plain.feature,
        checksum_offset: plain.checksum_offset,
        delta: plain.delta,
        nvram: plain.nvram,
        ..copy.clone()
    };
    is_known && as_plain.agrees_with(plain)
}

/// Refuses a damaged volume while it is as it was: what an import meets half-way it could not take back. `begun`: what
/// an interrupted one has left of the superblock is no damage.
fn check_first(dev: &dyn BlockDevice, path: &Path, begun: bool) -> Result<()> {
    let report = checked(path, dev)?;
    let is_fault = |finding: &&Finding| !(begun && BETWEEN_KINDS.contains(&finding.code));
    let faults: Vec<&Finding> = report.findings.iter().filter(is_fault).collect();
    let is_clean = report.suppressed == 0 && faults.iter().all(|fault| fault.severity < Severity::Error);
    if !is_clean {
        let faults = count(faults.len() as u64 + report.suppressed, "fault");
        let advice = fsck_advice::advice(&report, dev, path);
        bail!("{} has {faults}, and nothing was changed; {advice}", path.display());
    }
    Ok(())
}

/// What an import is going to do, and the room for it.
fn describe(plan: &Plan) -> String {
    let layouts = &plan.layouts;
    let mut text = format!("{} of {} to convert", grouped(layouts.inodes), count(plan.inodes, "inode"));
    if layouts.moved_files > 0 {
        let (files, blocks) = (count(layouts.moved_files, "file"), count(layouts.moved_blocks, "block"));
        text += &format!(", {files} to copy, which have up to {blocks} in all");
    }
    let needed = match plan.needed_blocks {
        0 => "no free blocks are".to_owned(),
        1 => "1 free block is".to_owned(),
        n => format!("up to {} free blocks are", grouped(n)),
    };
    text + &format!("; {needed} needed, and the volume has {}", grouped(plan.free_blocks))
}

/// `medfs export`
pub(crate) fn export(args: &ConvertArgs) -> Result<u8> {
    let path = &args.image;
    let dev = target::open_to_write(path)?;
    target::explain_no_volume(&*dev, path)?;
    target::refuse_cut_short(dev.clone(), path)?;
    survivor::bring_back(&dev, path)?;
    undo::if_ended("export", "no data was lost: run it again to continue");
    let mut bars = Bars::default();
    let done =
        convert::export(dev, Arc::new(SystemClock), &mut |phase, done, total| bars.show(phase, done, total));
    bars.clear();
    let done = done.map_err(|error| fsck_advice::repair_first(error, path));
    let done = done.with_context(|| format!("cannot export {}", path.display()))?;
    output::done("the export is complete");
    let text = if done.switched {
        let folded = done.folded;
        let (pages, files) = (count(folded.pages, "page"), count(folded.files, "file"));
        match folded.pages {
            0 => "now plain F2FS".to_owned(),
            _ => format!("now plain F2FS; {pages} of {files} had been stored as deltas"),
        }
    } else {
        "this volume is already plain F2FS".to_owned()
    };
    Outcome { done: Some(done), ..Outcome::new(path, false) }.tell(args.json, &text)
}
