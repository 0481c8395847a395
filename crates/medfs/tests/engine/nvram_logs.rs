//! Logs of SQLite whose fsyncs go to an NVRAM: pages of them start from the database's blocks and from earlier frames.

use crate::common::*;
use crate::nvram::{SIZE, crashed, opened, stats};
use crate::sqlite_deltas::Database;
use medfs::{Files, Volume};
use medfs_device::{MemDevice, MemNvram};
use std::sync::Arc;

fn with_database(more: &str) -> (Volume, Arc<MemDevice>, Arc<MemNvram>, Database) {
    let (device, memory) = (Arc::new(blank_delta(64)), Arc::new(MemNvram::new(SIZE)));
    let v = opened(&device, &memory, more).expect("mounts");
    let database = Database::new(&v);
    v.sync().expect("sync");
    (v, device, memory, database)
}

/// Frames of noise are little beside the database's blocks, and beside earlier frames where the database changed since.
#[test]
fn frames_are_small_records_and_come_back() {
    let (v, device, memory, mut database) = with_database("in_place=force");
    let before = (v.stats().written, stats(&v));
    for n in 0..30 {
        database.append(&v, n * 3 % 10, format!("change {n}").as_bytes());
        v.fsync(database.log, true).expect("fsync");
        database.check(&opened_again(&device, &memory));
    }
    let after = stats(&v);
    assert_eq!((v.stats().written, after.records - before.1.records), (before.0, 30));
    assert!(after.from_parts - before.1.from_parts >= 30, "{after:?}");
    let mean = (after.record_bytes - before.1.record_bytes) / 30;
    assert!(mean < 600, "{mean} bytes a record");
}

fn opened_again(device: &MemDevice, memory: &MemNvram) -> Volume {
    let (device, memory) = crashed(device, memory);
    opened(&device, &memory, "").expect("mounts")
}

/// What a frame starts from stays, whatever becomes of the database: overwritten in place, made durable by
/// the log, cut off, removed.
#[test]
fn the_database_may_change_after_its_log() {
    for (what, cuts) in [("written", false), ("cut", true)] {
        let (v, device, memory, mut database) = with_database("in_place=force");
        for page in 0..10 {
            database.append(&v, page, b"before");
        }
        v.fsync(database.log, false).expect("fsync");
        let by_record = stats(&v).from_parts;
        assert!(by_record >= 10, "{what}: {by_record}");
        let before = database_of(&database);
        if cuts {
            let empty = medfs::SetAttr { size: Some(0), ..Default::default() };
            v.setattr(database.db, &empty).expect("truncated");
            v.fsync(database.db, false).expect("fsync");
        } else {
            database.replace(&v, 0, 10);
            v.fsync(database.db, false).expect("fsync");
        }
        // Others' pages take what room there is.
        for n in 0..200 {
            let other = file(&v, v.root(), &format!("other {n}"));
            write(&v, other, 0, &noise(n).repeat(4));
            v.fsync(other, false).expect("fsync");
        }
        let again = opened_again(&device, &memory);
        let log = at(&again, "x.db-wal").expect("the log").ino;
        assert!(content(&again, log) == before, "{what}");
        again.close().expect("unmounted");
    }
}

fn database_of(database: &Database) -> Vec<u8> {
    database.log_bytes().to_vec()
}

/// A log that begins anew overwrites what earlier frames start from.
#[test]
fn a_log_that_begins_anew_is_what_it_was_fsynced_as() {
    let (v, device, memory, mut database) = with_database("");
    for turn in 0..4 {
        for n in 0..12 {
            database.append(&v, (n * 5 + turn) % 8, format!("turn {turn} change {n}").as_bytes());
            if n % 3 == 0 {
                v.fsync(database.log, true).expect("fsync");
            }
        }
        v.fsync(database.log, false).expect("fsync");
        database.check(&opened_again(&device, &memory));
        if turn == 2 {
            v.sync().expect("sync");
        }
        database.begin_anew();
    }
}

/// The roll-forward log may write nothing but pages over their blocks: then nothing in it says that an older
/// record does not count.
#[test]
fn pages_of_a_record_are_not_older_than_what_the_log_wrote_in_place() {
    for options in ["in_place=force", "in_place=force,delta=off", ""] {
        let (v, device, memory, mut database) = with_database(options);
        let fill = |database: &mut Database, what: &str, count: usize| {
            database.begin_anew();
            for n in 0..count {
                database.append(&v, n % 40, format!("{what} {n}").as_bytes());
            }
        };
        fill(&mut database, "first", 270);
        v.sync().expect("sync");
        fill(&mut database, "a few", 5);
        let before = stats(&v).from_parts;
        v.fsync(database.log, true).expect("fsync");
        assert!(stats(&v).from_parts >= before + 5, "{options}: {:?}", stats(&v));
        fill(&mut database, "all", 270);
        v.fsync(database.log, true).expect("fsync");
        assert!(stats(&v).placed > 0, "{options}");
        database.check(&opened_again(&device, &memory));
    }
}

/// A frame starts from the last one of its page, whose end lies in a page that the same record has.
#[test]
fn frames_of_one_page_in_a_row_start_from_each_other() {
    let (v, device, memory, mut database) = with_database("");
    let before = stats(&v);
    for n in 0..30 {
        for more in 0..=n % 3 {
            database.append(&v, 3, format!("change {n} and {more}").repeat(20).as_bytes());
        }
        v.fsync(database.log, true).expect("fsync");
        database.check(&opened_again(&device, &memory));
    }
    let mean = (stats(&v).record_bytes - before.record_bytes) / 30;
    assert!(mean < 1200, "{mean} bytes a record");
}
