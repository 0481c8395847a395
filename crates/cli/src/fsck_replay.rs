//! What a crash left to be done, as `medfs fsck` does it: fsynced files are rolled forward, orphans freed.
//!
//! The engine does both when it opens a volume. A check opens it to read, which replays in memory: a node that cannot
//! be replayed is a finding before anything is written.

use crate::fsck_advice::waits_for_memory;
use crate::target;
use anyhow::{Context, Result};
use medfs::{LEFT_OUT, MountOptions, PastDamage, Recover, Survivor, SystemClock, Volume};
use medfs_fsck::{Code, Finding, Report};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// What a crash left to be done.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct LooseEnds {
    /// Inodes restored from the fsync log.
    pub(crate) rolled_forward: u64,
    /// Inodes whose fsynced changes could not be restored.
    pub(crate) given_up: u64,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) given_up_because: Option<String>,
    /// Orphan inodes freed.
    pub(crate) orphans_freed: u64,
    /// What of the records in an NVRAM was given up, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) given_up_of_nvram: Vec<String>,
}

impl LooseEnds {
    /// What was done in one more turn.
    pub(crate) fn add(&mut self, more: LooseEnds) {
        self.rolled_forward += more.rolled_forward;
        self.given_up += more.given_up;
        self.orphans_freed += more.orphans_freed;
        self.given_up_because = more.given_up_because.or(self.given_up_because.take());
        self.given_up_of_nvram.extend(more.given_up_of_nvram);
    }
}

/// Adds what a roll-forward would leave out to what a check found; whether there is anything.
pub(crate) fn foresee(dev: &target::Target, report: &mut Report) -> bool {
    if report.log_to_replay.nodes == 0 || !report.is_clean() || waits_for_memory(report) {
        return false;
    }
    let options = MountOptions { read_only: true, survivor: Survivor::Off, ..MountOptions::default() };
    let left_out = match Volume::open(dev.clone(), options, Arc::new(SystemClock)) {
        Ok(volume) => PastDamage::of(&volume).unrecovered(),
        Err(error) => {
            vec![(None, format!("{LEFT_OUT}{error}"))]
        }
    };
    for (ino, why) in &left_out {
        let of = ino.map_or(String::new(), |ino| format!("inode {ino}: "));
        let code = Code::LogNode;
        let message = format!("{of}what was fsynced cannot be rolled forward as it is: {}", reason(why));
        report.findings.push(Finding { code, severity: code.severity(), message });
    }
    !left_out.is_empty()
}

/// Rolls fsynced inodes forward and frees orphans, by opening the volume. Of a log that is damaged what can be replayed
/// is kept; one that cannot be read is given up: the volume then is that of the last checkpoint. `logged`: inodes in
/// the log.
pub(crate) fn tie_up(
    dev: &target::Target,
    image: &Path,
    logged: u64,
    survivor: Survivor,
) -> Result<LooseEnds> {
    let open = |recover| {
        let options = MountOptions { recover, survivor: survivor.clone(), ..MountOptions::default() };
        target::open_volume(dev.clone(), image, options)
    };
    let mut ends = LooseEnds::default();
    let volume = match open(Recover::WhatFits) {
        Ok(volume) => {
            let left_out = PastDamage::of(&volume).unrecovered();
            let files: BTreeSet<_> = left_out.iter().map(|(ino, _)| ino).collect();
            (ends.given_up, ends.given_up_because) =
                (files.len() as u64, left_out.first().map(|(_, why)| reason(why)));
            volume
        }
        Err(e) => match e.downcast_ref::<medfs::Error>() {
            Some(reason @ medfs::Error::Corrupt(_)) => {
                (ends.given_up, ends.given_up_because) = (logged, Some(reason.to_string()));
                open(Recover::Nothing)?
            }
            _ => return Err(e),
        },
    };
    ends.add(closed(volume, image)?);
    Ok(ends)
}
/// Why something is left out, alone.
fn reason(why: &str) -> String {
    why.strip_prefix(LEFT_OUT).unwrap_or(why).to_owned()
}

/// Closes a volume; what its mount tied up.
pub(crate) fn closed(volume: Volume, image: &Path) -> Result<LooseEnds> {
    let stats = volume.stats();
    volume.close().with_context(|| format!("cannot finish writing {}", image.display()))?;
    let (rolled_forward, orphans_freed) = (stats.recovered_inodes, stats.orphans_freed);
    Ok(LooseEnds { rolled_forward, orphans_freed, ..LooseEnds::default() })
}
