//! One pass over a volume, with or without mending, and the repair that repeats it until nothing is left.
//!
//! Order of a mending pass: superblock copies; nodes and entries in place during the walk; summaries; NAT and SIT
//! in the copies not in force; flush; the checkpoint, last. Until then the old checkpoint is in force with its own
//! NAT and SIT, so that a crash at any moment leaves a volume on which the same repair starts over.

use crate::damage_found::{counted_inodes, damaged_files, note_unkept};
use crate::damaged::{DamagedFiles, LostFile};
use crate::finding::{Altered, Code, Cut, Finding, Findings, Losses, Severity, counted};
use crate::gone::gone;
use crate::image::{Image, Stop};
use crate::judgement::Judgement;
use crate::log::{self, FsyncLog};
use crate::lost;
use crate::lost_names;
use crate::mend::{Held, Mend};
use crate::options::Options;
use crate::pack;
use crate::quota;
use crate::reach::{Verdict, Via};
use crate::untold;
use crate::walk::Walker;
use medfs_device::{BlockDevice, Cause, Temperature, WriteTag};
use medfs_format::checkpoint::CpFlags;
use medfs_format::node::{FileKind, RawInode};
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{Ino, Nid};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io;
use thiserror::Error;

/// Rounds of mending before a repair gives up.
pub(crate) const MAX_ROUNDS: usize = 16;

/// What a check saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// What is wrong, in the order of the walk.
    pub findings: Vec<Finding>,
    /// Findings beyond [`Options::max_findings`], those that stay not counted.
    pub suppressed: u64,
    /// What there is, unless not even the root directory was reached.
    #[serde(flatten)]
    pub counted: Option<Counted>,
    /// Unlinked files that were open; whoever mounts the volume next frees them. Not a fault.
    pub orphans: u64,
    /// Fsynced changes since the checkpoint; whoever mounts the volume next replays them. Not a fault.
    pub log_to_replay: FsyncLog,
    /// What a repair would cost.
    pub losses: Losses,
    /// Which names have lost their inodes, the first of them.
    pub lost: Vec<LostFile>,
    /// Which files and directories are there, though not as they were.
    #[serde(flatten)]
    pub damaged: DamagedFiles,
    /// Files with nodes of the fsync log that the device changed after it had stored them.
    #[serde(skip)]
    pub unkept: BTreeSet<Ino>,
    /// Symbolic links that are given up because their targets are lost.
    #[serde(skip)]
    pub targets_lost: BTreeSet<Ino>,
    /// One header of the checkpoint in force is damaged, which a repair writes anew, though power loss can leave it so:
    /// other programs may take the checkpoint before for the newest.
    #[serde(skip)]
    pub lacks_header: bool,
    /// The seed of the volume's checksums, which its UUID gives; where the superblocks are lost, the inodes tell it.
    #[serde(skip)]
    pub seed: Option<u32>,
}

/// What a check came to, where it went through the volume.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Counted {
    /// Directories reached.
    pub directories: u64,
    /// Other files reached. Those that users do not see are in neither number.
    pub files: u64,
    /// Blocks in use, reserved ones included.
    pub blocks: u64,
}

impl Report {
    /// Adds the lost and damaged files of a pass that neither this nor another report tells of.
    fn tell_of_files(&mut self, pass: &Report, other: &Report) {
        let told: BTreeSet<Ino> = self.lost.iter().chain(&other.lost).map(|file| file.ino).collect();
        self.lost.extend(pass.lost.iter().filter(|file| !told.contains(&file.ino)).cloned());
        self.losses.lost = self.lost.len() as u64;
        self.losses.gone = pass.losses.gone.saturating_sub(other.losses.gone).max(self.losses.gone);
        self.damaged.add_unknown(&pass.damaged, &other.damaged);
    }

    /// Whether it tells of no lost or damaged file.
    pub fn tells_of_no_file(&self) -> bool {
        self.lost.is_empty() && self.damaged.list.is_empty() && self.losses.gone == 0
    }

    /// Files but for directories that were reached: 0 where not even the root directory was.
    pub fn files(&self) -> u64 {
        self.counted.map_or(0, |counted| counted.files)
    }

    /// Directories that were reached, likewise.
    pub fn directories(&self) -> u64 {
        self.counted.map_or(0, |counted| counted.directories)
    }

    /// The worst severity, if anything was found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|f| f.severity).max()
    }

    /// Whether nothing is wrong (a warning is no fault).
    pub fn is_clean(&self) -> bool {
        self.worst() < Some(Severity::Error) && self.suppressed == 0
    }

    /// Whether something was found that is not to stay: a repair changes the volume, or cannot.
    pub fn asks_for_repair(&self) -> bool {
        self.suppressed > 0 || self.findings.iter().any(|finding| !finding.code.stays())
    }

    /// Whether there is nothing that a repair would change, or could.
    pub(crate) fn is_final(&self) -> bool {
        !(self.asks_for_repair() || self.lacks_header) || self.worst() == Some(Severity::Fatal)
    }

    /// Whether a finding of this code is in it.
    pub fn has(&self, code: Code) -> bool {
        self.findings.iter().any(|f| f.code == code)
    }
}

/// What a repair did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Repair {
    /// What was wrong before.
    pub before: Report,
    /// What is wrong now: nothing, unless [`Report::findings`] says so.
    pub after: Report,
    /// Lost and damaged files that the check did not come to, but the repair: without a root directory a check ends
    /// there. Nothing else is in it.
    pub later: Report,
    /// Whether the volume was changed.
    pub changed: bool,
    /// Why findings are left, where some are that a repair mends: one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<String>,
}

impl Repair {
    /// Nothing was done.
    fn none(before: Report) -> Repair {
        Repair { after: before.clone(), before, later: Report::default(), changed: false, unfinished: None }
    }
}

/// Why a repair was not begun.
#[derive(Debug, Error)]
pub enum RepairError {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The volume uses something a repair cannot handle.
    #[error("the volume uses {0}, which can be checked but not repaired here: use fsck.f2fs")]
    Unsupported(String),
}

/// Checks a volume. `progress` is called with the fraction done, 0 to 1.
pub fn check(dev: &dyn BlockDevice, options: &Options, progress: &mut dyn FnMut(f64)) -> io::Result<Report> {
    let (report, _) = pass(dev, options, Mend::Nothing, progress)?;
    progress(1.0);
    Ok(report)
}

/// Checks a volume and mends what is wrong. A volume without findings is not touched.
///
/// Orphans are freed and fsynced changes are kept for the next mount when there is something to mend.
pub fn repair(
    dev: &dyn BlockDevice,
    options: &Options,
    progress: &mut dyn FnMut(f64),
) -> Result<Repair, RepairError> {
    let before = check(dev, options, progress)?;
    repair_found(dev, before, options, progress)
}

/// Mends what [`check`] has found on a volume, pass after pass until one finds nothing.
pub fn repair_found(
    dev: &dyn BlockDevice,
    before: Report,
    options: &Options,
    progress: &mut dyn FnMut(f64),
) -> Result<Repair, RepairError> {
    if before.is_final() {
        return Ok(Repair::none(before));
    }
    supported(dev, options)?;
    let (mut after, mut unfinished, mut later) = (before.clone(), None, Report::default());
    for round in 1..=MAX_ROUNDS {
        let (mended, ends) = pass(dev, options, Mend::All, progress)?;
        later.tell_of_files(&mended, &before);
        let mut found = check(dev, options, progress)?;
        found.findings.extend(mended.findings.into_iter().filter(|f| f.code == Code::Unwritable));
        let same = (&found.findings, found.suppressed) == (&after.findings, after.suppressed);
        after = found;
        if after.is_final() {
            break;
        }
        if same || round == MAX_ROUNDS {
            let left = after.findings.len() as u64 + after.suppressed;
            unfinished = Some(ends.held.why().unwrap_or_else(|| {
                let (left, passes) = (counted(left, "finding"), counted(round as u64, "turn"));
                format!("the repair did not converge: {left} left after {passes}")
            }));
            break;
        }
    }
    if unfinished.is_some() && !after.is_clean() {
        match Image::load(options.medium(dev), &mut Findings::new(0)) {
            Ok(mut image) => pack::note_errors(&mut image)?,
            Err(Stop::Io(e)) => return Err(e.into()),
            Err(Stop::Fatal) => {}
        }
    }
    Ok(Repair { before, after, later, changed: true, unfinished })
}

/// Refuses volumes whose allocation rules a repair would break.
pub(crate) fn supported(dev: &dyn BlockDevice, options: &Options) -> Result<(), RepairError> {
    let mut findings = Findings::new(0);
    let image = match Image::load(options.medium(dev), &mut findings) {
        Ok(image) => image,
        Err(Stop::Io(e)) => return Err(e.into()),
        Err(Stop::Fatal) => return Ok(()),
    };
    let unknown = Feature::from_bits_retain(!((Feature::DEVICE_ALIAS.bits() << 1) - 1));
    let refused = [
        (Feature::BLKZONED, "a zoned device"),
        (Feature::RO, "the read-only layout"),
        (Feature::DEVICE_ALIAS, "device aliases"),
        (unknown, "unknown features"),
    ];
    for (feature, name) in refused {
        if image.features.intersects(feature) {
            return Err(RepairError::Unsupported(name.into()));
        }
    }
    let first = &image.raw_sb().devs[0];
    if first.path[0] != 0 && first.total_segments.get() != 0 {
        return Err(RepairError::Unsupported("several devices".into()));
    }
    Ok(())
}

/// What a pass tells beside its report.
#[derive(Default)]
pub(crate) struct Ends {
    /// Files that it kept without a name.
    pub(crate) held: Held,
    pub(crate) cuts: Vec<Cut>,
    /// Inodes that the checkpoint counts, 0 where there is none, but for medfs's own ones that are lost, and those that
    /// were reached.
    pub(crate) inodes: Option<(u32, u32)>,
    /// Files that are not as they were.
    pub(crate) altered: Altered,
    /// No checkpoint was left, so that the one that it wrote is as nodes say.
    pub(crate) reckoned: bool,
    /// What the journals said of removed files is lost, and nothing else tells of them.
    pub(crate) journals_lost: bool,
    /// New files that were fsynced behind a lost checkpoint.
    pub(crate) fsynced: BTreeSet<Ino>,
}

/// Judges links, logs and NAT; the first free node id.
fn settle_links(w: &mut Walker<'_, '_>) -> io::Result<Nid> {
    if w.fix {
        w.tables().check_links()?;
    }
    w.tables().check_cursegs()?;
    let free_nid = w.tables().check_nat()?;
    if !w.fix {
        if w.findings.unreachable {
            w.foresee_rescue()?;
        }
        // Files that get a name back may lack others.
        w.tables().check_links()?;
    }
    Ok(free_nid)
}

/// One pass, and what it found.
pub(crate) fn pass(
    dev: &dyn BlockDevice,
    options: &Options,
    mend: Mend,
    progress: &mut dyn FnMut(f64),
) -> io::Result<(Report, Ends)> {
    let mut findings = Findings::new(options.max_findings);
    let mut image = match Image::load(options.medium(dev), &mut findings) {
        Ok(image) => image,
        Err(Stop::Io(e)) => return Err(e),
        Err(Stop::Fatal) => return Ok((report_of(findings), Ends::default())),
    };
    if mend != Mend::Nothing {
        mend_before_walk(&mut image)?;
    }
    let mut w = Walker::new(Judgement::new(image, findings, mend), progress);
    let log = log::walk(&mut w.j.image, &mut w.j.findings, w.j.fix)?;
    w.slices.expect_replay(&log.nids);
    let orphans = w.image.orphans.clone();
    if w.image.checkpoint().flags().intersects(CpFlags::ERROR | CpFlags::FSCK) {
        w.findings.add(Code::CheckpointFlagged, "checkpoint: a mount saw an error and asked for a check");
    }
    w.supply.taken.extend(log.segments.iter());
    w.supply.nids.extend(log.nids.iter().chain(log.homes.keys()));
    (w.anew.homes, w.logged, w.image.strays.logged) = (log.homes, log.latest, log.blocks);
    if !w.visit_root()? {
        w.tell_medium();
        return Ok((report_of(w.j.findings), Ends::default()));
    }
    w.drain()?;
    check_quota_files(&mut w)?;
    let orphans = settle_names(&mut w, orphans, mend)?;
    w.settle_slices()?;
    let free_nid = settle_links(&mut w)?;
    let free_segments = w.tables().check_sit()?;
    let mut counts = w.tables().check_counts(free_segments, free_nid);
    let inodes = Some((counted_inodes(&w), counts.inodes));
    let gone = gone(&mut w, counts.inodes)?;
    counts.recount = judge_quotas(&mut w.j)?;
    if w.fix {
        let (space, image) = (&mut w.j.space, &mut w.j.image);
        space.renew_ssa(&mut image.cache, &image.g)?;
        image.cache.medium.flush()?;
        pack::write(image, &counts, log.summary.nodes > 0)?;
        image.cache.renew_copies(&image.g)?;
    }
    w.tell_medium();
    let unkept = note_unkept(&mut w.j, log.unkept, log.behind)?;
    let report = Report {
        lacks_header: !w.image.unflipped.is_empty(),
        seed: w.image.inode_seed(),
        counted: Some(Counted { directories: w.directories, files: w.files, blocks: w.space.blocks }),
        orphans: orphans.len() as u64,
        log_to_replay: log.summary,
        losses: Losses { reverted: w.reverted.len() as u64, gone, ..w.losses },
        damaged: damaged_files(&mut w.j, &unkept)?,
        lost: w.j.lost,
        targets_lost: w.j.targets_lost,
        unkept,
        ..report_of(w.j.findings)
    };
    let altered = w.j.anew.altered(w.j.reverted, w.j.short, w.j.doubted);
    let (reckoned, journals_lost) = (w.j.image.reckoned, w.j.removed_may_be_back);
    let cuts = w.j.cuts.list;
    let fsynced = w.j.image.strays.fsynced;
    Ok((report, Ends { held: w.held, cuts, inodes, altered, reckoned, journals_lost, fsynced }))
}

/// The orphans of a list that may be damaged: none of them has links.
fn without_links(w: &mut Walker<'_, '_>, listed: Vec<Ino>) -> io::Result<Vec<Ino>> {
    let mut orphans = Vec::new();
    for ino in listed {
        let links = match w.readable_inode(ino)? {
            Some((_, block)) if !w.space.nid_reached(ino) => {
                let inode: &RawInode = block.view();
                if w.rules.is_doubtful(inode) { 0 } else { inode.i_links.get() }
            }
            _ => 0,
        };
        if links == 0 {
            orphans.push(ino);
            continue;
        }
        let text = format!("orphan list: inode {ino} has {}: it was not removed", counted(links, "link"));
        w.findings.add(Code::OrphanInode, text);
    }
    Ok(orphans)
}

/// Orphans, what only the journals led to, and what has no name or another file's.
fn settle_names(w: &mut Walker<'_, '_>, orphans: Vec<Ino>, mend: Mend) -> io::Result<Vec<Ino>> {
    let orphans = without_links(w, orphans)?;
    if !w.fix {
        for &ino in &orphans {
            w.visit(ino, (0, b""), Via::Orphan, "orphan list")?;
        }
        w.drain()?;
        lost_names::take_up(w)?;
        w.settle_homes()?;
        lost::lead_foreign(w)?;
        return Ok(orphans);
    }
    // Orphans are not walked: what they hold becomes free.
    // But for those whose blocks other files need: these get a name.
    let needed = |ino: &&u32| w.slices.is_source(**ino);
    let free: Vec<_> = orphans.iter().filter(|ino| mend == Mend::All && !needed(ino)).copied().collect();
    w.orphans.extend(free);
    w.j.image.find_strays(&mut w.j.findings)?;
    orphans.iter().try_for_each(|&ino| w.image.take_up(ino))?;
    lost_names::take_up(w)?;
    w.settle_homes()?;
    lost::lead_foreign(w)?;
    w.rescue()?;
    untold::tell(w)?;
    lost::remove_foreign(w)?;
    Ok(orphans)
}

/// Judges what the quota files say; whether they have to be made anew.
fn judge_quotas(j: &mut Judgement<'_>) -> io::Result<bool> {
    quota::judge(&mut j.image, &j.space.usage, &mut j.findings, &mut j.losses.quotas, j.fix)
}

/// Walks the quota files, with or without the feature, as fsck.f2fs does. One that cannot be used, or is a user's file
/// on a volume without quotas, is taken out of the superblock: whoever needs it makes a new one.
fn check_quota_files(w: &mut Walker<'_, '_>) -> io::Result<()> {
    let mut changed = false;
    for kind in 0..3 {
        let ino = w.image.raw_sb().qf_ino[kind].get();
        let is_users = ino != 0 && !w.image.features.contains(Feature::QUOTA) && has_name(w, ino)?;
        if ino == 0
            || !is_users
                && w.visit(ino, (0, b""), Via::Superblock, "quota file")?
                    == Verdict::Accepted(FileKind::Regular)
        {
            continue;
        }
        w.findings.add(
            Code::QuotaFile,
            format!("superblock: inode {ino} of quota type {kind} is not a usable file"),
        );
        RawSuperblock::in_block_mut(&mut w.image.sb).qf_ino[kind] = 0.into();
        let may_be_one = w.image.features.contains(Feature::QUOTA) || w.image.g.is_nid(ino);
        w.losses.quotas += u64::from(!is_users && may_be_one);
        changed = true;
    }
    if changed && w.fix {
        w.image.bad_copies = vec![1, 0];
        mend_superblocks(&w.image)?;
    }
    Ok(())
}

/// Whether a directory led to an inode, or it says that it has a name: quota files have none.
fn has_name(w: &mut Walker<'_, '_>, ino: Ino) -> io::Result<bool> {
    Ok(w.image.g.is_nid(ino)
        && (w.space.nid_reached(ino) || w.claim_of(ino)?.is_some_and(|claim| !claim.name.is_empty())))
}

fn report_of(findings: Findings) -> Report {
    Report { findings: findings.list, suppressed: findings.suppressed, ..Report::default() }
}

/// Writes the superblocks and the pack as they must be, and notes where seals do not tell any more where the log ends.
fn mend_before_walk(image: &mut Image<'_>) -> io::Result<()> {
    mend_superblocks(image)?;
    image.mend_pack()?;
    if log::unseal(image)? {
        RawSuperblock::in_block_mut(&mut image.sb).leave_seals();
        image.bad_copies = vec![1, 0];
        mend_superblocks(image)?;
    }
    Ok(())
}

fn mend_superblocks(image: &Image<'_>) -> io::Result<()> {
    let medium = &image.cache.medium;
    let tag = WriteTag::new(Cause::Meta, Temperature::Cold);
    for &copy in &image.bad_copies {
        let now = medium.read(copy)?;
        let mut block = image.sb.clone();
        let mut sb = RawSuperblock::in_block(&block).clone();
        sb.seal();
        for step in sb.steps_from(RawSuperblock::in_block(&now)) {
            *RawSuperblock::in_block_mut(&mut block) = step;
            medium.write(copy, &[&block], tag)?;
            medium.flush()?;
        }
    }
    Ok(())
}
