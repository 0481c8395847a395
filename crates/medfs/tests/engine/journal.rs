//! The SIT journal across mounts: an entry that is only in the journal, of a page not in memory, survives the
//! checkpoint that empties the journal.

use crate::common::*;
use medfs::{FileKind, Files, ManualClock};
use medfs_device::MemDevice;
use medfs_testkit::images::FsckF2fs;
use medfs_testkit::subject::Check;
use std::sync::Arc;

#[test]
fn journal_entries_of_pages_not_in_memory_are_kept() {
    const SEGMENT: usize = 512 * PAGE;
    let device: Arc<MemDevice> = Arc::new(blank(1024, all_features()));
    let open = || open_with(device.clone(), "", Arc::new(ManualClock::new(START)));
    for round in 0..3 {
        // A little more than a segment: its entry goes to the journal, and the logs move on to later SIT pages.
        let v = open();
        let ino = file(&v, v.root(), &format!("big{round}"));
        for i in 0..60 {
            write(&v, ino, (i * SEGMENT / 4) as u64, &vec![round + 1; SEGMENT / 4]);
        }
        v.sync().unwrap();
        write(&v, ino, 0, &[round + 1; 2 * PAGE]);
        v.close().unwrap();
        // Changes in more segments than the journal holds.
        let v = open();
        for i in 0..4 {
            let dir = dir(&v, v.root(), &format!("d{round}-{i}"));
            for n in 0..600 {
                let name = format!("f{n}");
                let ino = v.create(dir, name.as_bytes(), &new(FileKind::Regular)).unwrap().ino;
                write(&v, ino, 0, &[7; PAGE]);
            }
            v.sync().unwrap();
            for n in (0..600).step_by(2) {
                v.unlink(dir, format!("f{n}").as_bytes()).unwrap();
            }
        }
        v.close().unwrap();
        FsckF2fs.check(device.clone()).unwrap_or_else(|e| panic!("round {round}: {e}"));
    }
}
