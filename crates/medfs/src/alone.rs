//! Layers on a device in memory, for the tests of the rooms: each is built with what lies below it and nothing above.

#![cfg(test)]

use crate::commit::{Commit, Ways};
use crate::error::Result;
use crate::file_ops::FileOps;
use crate::file_ops::above::Reclaim;
use crate::mount::{mount, tree_at_checkpoint};
use crate::options::MountOptions;
use crate::tree::Tree;
use crate::types::{NewFile, Timestamp};
use medfs_device::MemDevice;
use medfs_format::node::FileKind;
use medfs_mkfs::{MkfsOptions, format_volume};
use medfs_store::ManualClock;
use std::sync::Arc;

/// Time at which the tests begin.
pub(crate) const START: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

/// An empty volume of 64 MiB that may hold deltas.
pub(crate) fn device() -> Arc<MemDevice> {
    let device = MemDevice::new(64 << 8);
    let options = MkfsOptions { deltas: true, discard: false, ..MkfsOptions::new([7; 16], START.secs) };
    format_volume(&device, &options).expect("a volume of this size can be made");
    Arc::new(device)
}

pub(crate) fn options(text: &str) -> MountOptions {
    let mut options = MountOptions::default();
    options.parse(text).expect("the options are right");
    options
}

/// The tree of a volume as of its last checkpoint: nothing makes room, and nothing can make a checkpoint.
pub(crate) fn tree_on(device: &Arc<MemDevice>) -> Tree {
    tree_at_checkpoint(device.clone(), options(""), Arc::new(ManualClock::new(START)))
        .expect("the volume opens")
}

/// Operations on the files of a volume as of its last checkpoint, with nothing above them and nothing to roll forward.
pub(crate) fn file_ops(device: Arc<MemDevice>, text: &str) -> FileOps {
    let tree = tree_at_checkpoint(device, options(text), Arc::new(ManualClock::new(START)));
    let files = tree.expect("the volume opens").files;
    assert!(files.space.recovered(), "from here on what does not fit is refused");
    files
}

/// The tree of an empty volume.
pub(crate) fn tree() -> Tree {
    tree_on(&device())
}

/// A volume with what makes its changes durable, and no cleaner.
pub(crate) fn commit_on(device: &Arc<MemDevice>, text: &str) -> Result<Arc<Commit>> {
    let options = options(text);
    let ways = Ways::new(&options);
    mount(device.clone(), options, Arc::new(ManualClock::new(START)), ways, no_cleaner())
}

/// What a device would hold had power gone now.
pub(crate) fn after_power_loss(device: &MemDevice) -> Arc<MemDevice> {
    Arc::new(device.snapshot())
}

/// A new file of a kind.
pub(crate) fn new(kind: FileKind) -> NewFile {
    let perm = if kind == FileKind::Directory { 0o755 } else { 0o644 };
    NewFile { kind, perm, umask: 0, uid: 0, gid: 0, rdev: 0 }
}

/// Stands in for a cleaner.
pub(crate) fn no_cleaner() -> Arc<dyn Reclaim> {
    Arc::new(NoCleaner)
}

/// Takes things as they are.
struct NoCleaner;

impl Reclaim for NoCleaner {
    fn make_room(&self, _: &FileOps) -> Result<()> {
        Ok(())
    }

    fn make_room_for(&self, _: &FileOps, _: u64) -> Result<()> {
        Ok(())
    }
}
