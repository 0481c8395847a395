//! When `medfs fsck` leaves a damaged volume as it is: a repair would give up what something else brings back.

use crate::fsck_advice::{advice, is_sound_but_for_memory, waits_for_memory};
use crate::fsck_args::FsckArgs;
use crate::fsck_costs::loses;
use crate::{damaged, nvram, survivor};
use medfs_device::BlockDevice;
use medfs_fsck::{Code, Report};

/// Why a volume is left as it is, and what helps.
pub(crate) fn refusal(
    args: &FsckArgs,
    dev: &dyn BlockDevice,
    found: &Report,
) -> Option<(&'static str, String)> {
    let advice = || advice(found, dev, &args.image);
    // At boot the mount will have the memory.
    let is_for_mount = args.preen && is_sound_but_for_memory(found);
    if waits_for_memory(found) && args.nvram.is_none() && !is_for_mount {
        return Some(("fsyncs may lie in an NVRAM", advice()));
    }
    if found.has(Code::Truncated) {
        return Some(("no repair brings back the end of an image", advice()));
    }
    if args.preen && loses(found) {
        return Some(("that loses something", advice()));
    }
    if !found.asks_for_repair() {
        return None;
    }
    if let Some(log) = survivor::waiting(dev) {
        let advice = format!("mount the volume first or, where that fails, move {} away", log.display());
        return Some(("that makes void what a daemon acknowledged before it was killed", advice));
    }
    if let Some((log, user)) = survivor::of_another_user(dev) {
        let advice = format!(
            "mount the volume as user {user} first or, where that fails, move {} away",
            log.display()
        );
        return Some((
            "that makes void what a daemon of another user acknowledged before it was killed",
            advice,
        ));
    }
    if !found.has(Code::SuperblockLost) {
        return None;
    }
    if let Some(place) = args.nvram.as_ref().filter(|place| nvram::holds_fsyncs_of(place, found.seed)) {
        let advice = format!(
            "copy the files first, {}; a repair without --nvram gives up the fsyncs in {place}",
            damaged::salvage(&args.image)
        );
        return Some((
            "the superblocks are lost, without which no fsync in an NVRAM can be replayed",
            advice,
        ));
    }
    let log = found.seed.and_then(survivor::waiting_for_seed)?;
    let advice = format!(
        "copy the files first, {}; then move {} away, which is of no use for the volume that a repair makes",
        damaged::salvage(&args.image),
        log.display()
    );
    Some((
        "the superblocks are lost, and with them the way to what a daemon acknowledged before it was killed",
        advice,
    ))
}
