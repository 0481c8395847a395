//! Fsyncs of which some are records in an NVRAM, and others nodes of the roll-forward log: a mount replays both in the
//! order in which they were made.

use crate::common::*;
use crate::nvram::{SIZE, crashed, opened, stats};
use medfs::{Files, RenameFlags, SetAttr, Volume};
use medfs_device::{MemDevice, MemNvram};
use std::sync::Arc;

struct Mounted {
    v: Volume,
    device: Arc<MemDevice>,
    memory: Arc<MemNvram>,
}

impl Mounted {
    fn new(options: &str) -> Mounted {
        let (device, memory) = (Arc::new(blank_delta(64)), Arc::new(MemNvram::new(SIZE)));
        let v = opened(&device, &memory, options).expect("mounts");
        Mounted { v, device, memory }
    }

    fn after_power_loss(&self) -> Volume {
        let (device, memory) = crashed(&self.device, &self.memory);
        opened(&device, &memory, "").expect("mounts again")
    }

    /// An fsync that becomes a record.
    fn record(&self, ino: u32) {
        let before = (stats(&self.v).records, stats(&self.v).left_for_kind);
        self.v.fsync(ino, false).expect("fsync");
        assert_eq!((stats(&self.v).records, stats(&self.v).left_for_kind), (before.0 + 1, before.1));
    }

    /// An fsync that the roll-forward log takes, and no checkpoint.
    fn by_log(&self, fsync: impl FnOnce(&Volume)) {
        let before = (stats(&self.v).left_for_kind, self.v.stats().checkpoints);
        fsync(&self.v);
        assert_eq!((stats(&self.v).left_for_kind, self.v.stats().checkpoints), (before.0 + 1, before.1));
    }

    /// A write of some bytes that is atomic.
    fn atomic(&self, ino: u32, offset: u64, data: &[u8]) {
        self.by_log(|v| {
            v.atomic_start(ino).expect("begun");
            write(v, ino, offset, data);
            v.atomic_commit(ino).expect("committed");
        });
    }
}

/// The log's node says that the file is as it is there: a record behind it changed a page, its size, or cut it off.
#[test]
fn content_is_that_of_the_last_fsync_by_whichever_way() {
    for options in ["", "delta=off", "delta=off,in_place=force", "nvram_mode=ordered,delta=off,in_place=off"]
    {
        let mounted = Mounted::new(options);
        let v = &mounted.v;
        let (f, mut expected) = noisy_file(v, "f", 8);
        for round in 0..3u8 {
            patch(v, f, &mut expected, 100, &[round; 40]);
            mounted.record(f);
            for (at, byte) in [(100, 50 + round), (2 * PAGE, 60 + round)] {
                mounted.atomic(f, at as u64, &[byte; 30]);
                expected[at..at + 30].fill(byte);
            }
            patch(v, f, &mut expected, 110, &[100 + round; 10]);
            patch(v, f, &mut expected, 3 * PAGE, &[110 + round; 10]);
            mounted.record(f);
            let again = mounted.after_power_loss();
            assert!(content(&again, f) == expected, "{options}, round {round}: pages");

            mounted.atomic(f, 4096, &[70 + round; 9]);
            expected[4096..4105].fill(70 + round);
            let longer = expected.len() + 300;
            write(v, f, expected.len() as u64, &[80 + round; 300]);
            expected.resize(longer, 80 + round);
            mounted.record(f);
            let again = mounted.after_power_loss();
            assert!(content(&again, f) == expected, "{options}, round {round}: more");

            mounted.atomic(f, expected.len() as u64, &[90 + round; 5000]);
            expected.truncate(6 * PAGE + 70 * usize::from(round));
            let size = Some(expected.len() as u64);
            v.setattr(f, &SetAttr { size, ..SetAttr::default() }).expect("truncated");
            mounted.record(f);
            let again = mounted.after_power_loss();
            assert!(content(&again, f) == expected, "{options}, round {round}: less");
        }
    }
}

/// Fsyncs of a pinned file go to the log, with its name where that is new.
#[test]
fn names_are_those_of_the_last_fsync_by_whichever_way() {
    let mounted = Mounted::new("");
    let (v, root) = (&mounted.v, mounted.v.root());
    let rename = |from: &str, to: &str| {
        v.rename(root, from.as_bytes(), root, to.as_bytes(), RenameFlags::empty()).expect("renamed")
    };
    let found = || ["a", "b", "c"].map(|name| at(&mounted.after_power_loss(), name).map(|attr| attr.ino));
    let f = file(v, root, "a");
    mounted.record(f);
    assert_eq!(found(), [Some(f), None, None], "made by a record");
    v.set_pinned(f, true).expect("it has no blocks");
    rename("a", "b");
    mounted.by_log(|v| v.fsync(f, false).expect("fsync"));
    assert_eq!(found(), [None, Some(f), None], "renamed by the log");
    v.set_pinned(f, false).expect("not any more");
    rename("b", "c");
    mounted.record(f);
    assert_eq!(found(), [None, None, Some(f)], "renamed by a record");
    v.unlink(root, b"c").expect("unlinked");
    v.release(f, 1);
    v.fsync(root, false).expect("fsync");
    assert_eq!(found(), [None; 3], "removed by a record");

    let made_by_log = file(v, root, "a");
    v.set_pinned(made_by_log, true).expect("it has no blocks");
    mounted.by_log(|v| v.fsync(made_by_log, false).expect("fsync"));
    assert_eq!(found(), [Some(made_by_log), None, None], "made by the log");
    v.unlink(root, b"a").expect("unlinked");
    v.release(made_by_log, 1);
    let before = stats(v).records;
    v.fsync(root, false).expect("fsync");
    assert_eq!(stats(v).records, before + 1);
    assert_eq!(found(), [None; 3], "and removed by a record");
}

/// The name that a file got by a record is another's in the log, and the other way round.
#[test]
fn a_name_goes_from_file_to_file_by_both_ways() {
    let mounted = Mounted::new("");
    let (v, root) = (&mounted.v, mounted.v.root());
    let mut last = None;
    for round in 0..6u8 {
        let new = file(v, root, "new");
        let pinned = round % 2 == 1;
        if pinned {
            v.set_pinned(new, true).expect("it has no blocks");
        }
        write(v, new, 0, &[round + 1; 50]);
        let fsync = |v: &Volume| v.fsync(new, false).expect("fsync");
        if pinned {
            mounted.by_log(fsync)
        } else {
            mounted.record(new)
        }
        v.rename(root, b"new", root, b"document", RenameFlags::empty()).expect("renamed");
        v.fsync(root, false).expect("fsync");
        last.into_iter().for_each(|old| v.release(old, 1));
        last = Some(new);
        let again = mounted.after_power_loss();
        let found = at(&again, "document").expect("the document").ino;
        assert_eq!((found, content(&again, found)), (new, vec![round + 1; 50]), "round {round}");
        assert!(at(&again, "new").is_none(), "round {round}");
    }
}
