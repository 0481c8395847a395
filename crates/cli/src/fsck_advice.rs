//! What `medfs fsck` advises for a volume that is not clean, and who else meets one.

use crate::get::map;
use crate::{damaged, exit, nvram, target};
use medfs_device::BlockDevice;
use medfs_device::quote::{self, hint};
use medfs_fsck::{Code, Report, Severity};
use std::path::Path;

/// What helps: no repair brings the end of an image back, nor what lies in an NVRAM.
pub(crate) fn advice(report: &Report, dev: &dyn BlockDevice, image: &Path) -> String {
    if report.has(Code::Truncated) {
        copies_what_is_left(image)
    } else if waits_for_memory(report) {
        let place = nvram::in_use(dev).unwrap_or_else(|| "FILE".into());
        match is_sound_but_for_memory(report) {
            true => damaged::ways_to_fsyncs(&place, image),
            false => format!("{} repairs it and brings them back", damaged::repair_with_nvram(&place, image)),
        }
    } else {
        way_out(image, report)
    }
}

/// Whether a volume can be opened, to copy its files by their names. What that tells of it the copying will tell.
fn opens(image: &Path) -> bool {
    let open = || {
        let open = |dev| target::open_volume_read_only(dev, image);
        map::past(damaged::map(), image, target::open_to_look(image)?, open)
    };
    tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), open).is_ok()
}

/// How the files of an image that was cut short are copied.
fn copies_what_is_left(image: &Path) -> String {
    if opens(image) { damaged::copies_what_is_left(image) } else { damaged::salvage_copies(image) }
}

/// How a damaged volume is repaired without a regret.
fn way_out(image: &Path, report: &Report) -> String {
    let is_fatal = report.worst() == Some(Severity::Fatal);
    // Where the table of nodes is lost, names lead to nothing; a salvage alone goes behind an older checkpoint, past
    // what the fsync log lacks, to files without a name, and to blocks that no node names.
    let losses = &report.losses;
    let has_names = losses.nameless + losses.renamed + losses.rebuilt + losses.remade == 0;
    let past_names =
        [Code::NatLost, Code::CheckpointOlder, Code::LogNode, Code::LogUnkept, Code::AddressMissing];
    let leads_to_all = has_names && !past_names.iter().any(|code| report.has(*code));
    copy_then_repair(image, !is_fatal && leads_to_all && opens(image))
}

/// What comes before a repair, and the repair. `by_names`: the names of the volume lead to its files.
fn copy_then_repair(image: &Path, by_names: bool) -> String {
    let (name, map) = (quote::path(image), damaged::map_option());
    let copy = match by_names {
        true => hint(format_args!("medfs get -r {map}{name} / DIRECTORY")),
        false => damaged::salvage(image),
    };
    let repair = hint(format_args!("medfs fsck --repair --undo FILE {map}{name}"));
    format!("copy the files first, {copy}, then {repair}")
}

/// Damage that a conversion meets, with what helps.
pub(crate) fn repair_first(error: medfs::Error, image: &Path) -> anyhow::Error {
    match error {
        medfs::Error::Corrupt(_) => {
            anyhow::anyhow!("{}; {}", exit::damage(&error), copy_then_repair(image, opens(image)))
        }
        other => other.into(),
    }
}

/// Whether fsyncs of the volume may lie in an NVRAM.
pub(crate) fn waits_for_memory(report: &Report) -> bool {
    report.has(Code::NvramPending)
}

/// Whether nothing else is wrong than that fsyncs may lie in an NVRAM.
pub(crate) fn is_sound_but_for_memory(report: &Report) -> bool {
    waits_for_memory(report) && report.findings.iter().all(|finding| finding.code == Code::NvramPending)
}
