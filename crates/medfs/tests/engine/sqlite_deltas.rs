//! Pages of logs and journals that repeat their database: what they cost, and that the blocks they are made from stay.

use crate::common::*;
use medfs::{Files, Ino, ManualClock, Volume};
use medfs_device::MemDevice;
use medfs_testkit::images::FsckMedfs;
use medfs_testkit::subject::Check;
use std::cell::RefCell;
use std::sync::Arc;

const PAGES: u64 = 40;
const FRAME: usize = 24 + PAGE;
const LOG_HEADER: usize = 32;

/// A database and its log, as SQLite writes them.
pub(crate) struct Database {
    pub(crate) db: Ino,
    pub(crate) log: Ino,
    pages: Vec<u8>,
    frames: Vec<u8>,
    /// Where the next frame goes.
    end: usize,
}

impl Database {
    /// A database of noise, durable, with a log that has a header alone.
    pub(crate) fn new(v: &Volume) -> Database {
        let (db, pages) = noisy_file(v, "x.db", PAGES);
        let log = file(v, v.root(), "x.db-wal");
        let words = [0x377f_0682u32, 3_007_000, 4096, 0, 1, 2, 3, 4];
        let frames: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        write(v, log, 0, &frames);
        v.fsync(log, false).expect("fsync");
        v.sync().expect("sync");
        // The first records come when there is a list to put the file on.
        let mut database = Database { db, log, pages, frames, end: LOG_HEADER };
        database.append(v, 0, b"first");
        v.fsync(log, true).expect("fsync");
        v.fsync(log, true).expect("fsync");
        database
    }

    /// The frame of a page, with a few bytes changed.
    fn frame(&self, page: usize, change: &[u8]) -> Vec<u8> {
        let mut frame = vec![7; 24];
        frame[..4].copy_from_slice(&(page as u32 + 1).to_be_bytes());
        frame.extend(&self.pages[page * PAGE..(page + 1) * PAGE]);
        frame[24 + 100..24 + 100 + change.len()].copy_from_slice(change);
        frame
    }

    /// Appends the frame of a page.
    pub(crate) fn append(&mut self, v: &Volume, page: usize, change: &[u8]) {
        let frame = self.frame(page, change);
        write(v, self.log, self.end as u64, &frame);
        let end = self.end + frame.len();
        if self.frames.len() < end {
            self.frames.resize(end, 0);
        }
        self.frames[self.end..end].copy_from_slice(&frame);
        self.end = end;
    }

    fn filled(v: &Volume) -> Database {
        let mut database = Database::new(v);
        for n in 0..20 {
            database.append(v, n * 3 % PAGES as usize, format!("change {n}").as_bytes());
            v.fsync(database.log, true).expect("fsync");
        }
        database
    }

    /// Overwrites pages of the database altogether.
    pub(crate) fn replace(&mut self, v: &Volume, first: usize, count: usize) {
        let new: Vec<u8> = (0..count).flat_map(|n| noise(1000 + n as u64)).collect();
        write(v, self.db, (first * PAGE) as u64, &new);
        self.pages[first * PAGE..first * PAGE + new.len()].copy_from_slice(&new);
    }

    /// What the log holds.
    pub(crate) fn log_bytes(&self) -> &[u8] {
        &self.frames
    }

    /// Appends over what the log holds, behind its header. Its file stays as long as it is.
    pub(crate) fn begin_anew(&mut self) {
        self.end = LOG_HEADER;
    }

    pub(crate) fn check(&self, v: &Volume) {
        let of = |name| at(v, name).expect("the file").ino;
        assert!(content(v, of("x.db-wal")) == self.frames, "the log is another one");
        assert!(content(v, of("x.db")) == self.pages, "the database is another one");
    }
}

/// A page of rows that look like a table's.
fn rows(seed: u64) -> Vec<u8> {
    let mut page: Vec<u8> = Vec::new();
    for n in 0.. {
        if page.len() >= PAGE {
            break;
        }
        let x = (seed * 131 + n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        page.extend(format!("|{n}|user {:08x}|subscribed to channel {}", x >> 32, x >> 50).bytes());
    }
    page.truncate(PAGE);
    page
}

fn crashed(device: &MemDevice) -> Volume {
    open(Arc::new(device.snapshot()))
}

#[test]
fn a_frame_costs_the_logs_inode_alone() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let mut database = Database::new(&v);
    let before = v.stats();
    for n in 0..10 {
        database.append(&v, n, b"a transaction");
        v.fsync(database.log, true).expect("fsync");
    }
    let after = v.stats();
    assert_eq!(after.written.data - before.written.data, 0);
    assert_eq!(after.written.node - before.written.node, 10);
    assert!(after.deltas.repeated - before.deltas.repeated >= 10, "{:?}", after.deltas);
    database.check(&v);
    database.check(&crashed(&device));
}

#[test]
fn the_database_changes_only_after_the_log_is_whole() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let mut database = Database::filled(&v);
    database.replace(&v, 0, PAGES as usize);
    v.fsync(database.db, true).expect("fsync");
    database.check(&v);
    database.check(&crashed(&device));
}

#[test]
fn an_fsync_on_a_full_volume_leaves_no_page_of_the_database_behind() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let mut database = Database::filled(&v);
    let filler = file(&v, v.root(), "filler");
    let mut at = 0;
    for pages in [64, 1] {
        while v.write(filler, at, &vec![1; pages * PAGE]).is_ok_and(|n| n == pages * PAGE) {
            at = v.getattr(filler).expect("attributes").size;
        }
    }
    v.sync().expect("sync");
    // Pages that the log is made from, for which a compact page would be the place: there is no room for one.
    let new: Vec<u8> = (0..20).flat_map(|n| rows(5000 + n)).collect();
    write(&v, database.db, 0, &new);
    database.pages[..new.len()].copy_from_slice(&new);
    v.fsync(database.db, true).expect("fsync");
    database.check(&crashed(&device));
}

#[test]
fn without_compact_pages_the_log_is_written_as_a_whole_first() {
    let device = Arc::new(blank_delta(64));
    let v = open_with(device.clone(), "delta=inline,cross_file_deltas=on", Arc::new(ManualClock::new(START)));
    let mut database = Database::filled(&v);
    assert!(v.stats().deltas.repeated > 5);
    database.replace(&v, 0, PAGES as usize);
    v.fsync(database.db, true).expect("fsync");
    assert!(v.stats().deltas.released > 0, "{:?}", v.stats().deltas);
    database.check(&crashed(&device));
}

#[test]
fn who_depends_is_known_after_a_mount() {
    for sync in [true, false] {
        let device = Arc::new(blank_delta(64));
        let v = open(device.clone());
        let mut database = Database::filled(&v);
        if sync {
            v.close().expect("close");
        }
        let device = Arc::new(device.snapshot());
        drop(v);
        let v = open(device.clone());
        database.db = at(&v, "x.db").expect("the database").ino;
        database.replace(&v, 5, 20);
        v.fsync(database.db, true).expect("fsync");
        database.check(&crashed(&device));
        drop(v);
    }
}

/// A crash may come before any checkpoint has the list; what roll-forward brings back is listed all the same,
/// or made whole.
#[test]
fn who_depends_is_known_in_the_second_mount_after_a_crash() {
    for options in ["", "noinline_data", "delta=off", "delta=inline"] {
        let device = Arc::new(blank_delta(64));
        let v = open(device.clone());
        let mut database = Database::filled(&v);
        assert!(v.stats().deltas.repeated > 10);
        let device = Arc::new(device.snapshot());
        drop(v);
        open_device(&device, options).close().expect("close");
        let v = open_device(&device, "in_place=force");
        database.check(&v);
        database.db = at(&v, "x.db").expect("the database").ino;
        database.replace(&v, 5, 20);
        v.sync().expect("sync");
        v.close().expect("close");
        drop(v);
        database.check(&crashed(&device));
        FsckMedfs.check(device).unwrap_or_else(|e| panic!("{options}: {e}"));
    }
}

#[test]
fn an_export_leaves_the_roots_times() {
    let device = Arc::new(blank_delta(64));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(device.clone(), "", clock.clone());
    let database = Database::filled(&v);
    let times = |v: &Volume| v.getattr(v.root()).map(|attr| (attr.mtime, attr.ctime)).expect("attributes");
    let before = times(&v);
    v.close().expect("close");
    drop(v);
    clock.advance(std::time::Duration::from_secs(100));
    medfs::convert::export(device.clone(), clock, &mut |_, _, _| {}).expect("export");
    let v = open(device);
    assert_eq!(times(&v), before);
    database.check(&v);
}

/// A log that is cut off in memory is still what it was on the device.
#[test]
fn a_log_cut_off_but_not_durably_keeps_its_sources() {
    for delta in ["full", "inline"] {
        let device = Arc::new(blank_delta(64));
        let v = open_with(
            device.clone(),
            &format!("delta={delta},cross_file_deltas=on"),
            Arc::new(ManualClock::new(START)),
        );
        let mut database = Database::filled(&v);
        let set = medfs::SetAttr { size: Some(0), ..medfs::SetAttr::default() };
        v.setattr(database.log, &set).expect("cut off");
        database.replace(&v, 0, PAGES as usize);
        v.fsync(database.db, true).expect("fsync");
        let v = crashed(&device);
        assert!(content(&v, at(&v, "x.db").expect("the database").ino) == database.pages);
        let log = content(&v, at(&v, "x.db-wal").expect("the log").ino);
        assert!(log.is_empty() || log == database.frames, "{delta}: {} bytes", log.len());
    }
}

#[test]
fn a_database_that_goes_leaves_its_log_readable() {
    for how in ["unlink", "truncate", "punch", "replace"] {
        let device = Arc::new(blank_delta(64));
        let v = open(device.clone());
        let database = Database::filled(&v);
        let root = v.root();
        match how {
            "unlink" => {
                v.unlink(root, b"x.db").expect("unlinked");
                v.release(database.db, 1);
            }
            "truncate" => {
                let set = medfs::SetAttr { size: Some(0), ..medfs::SetAttr::default() };
                v.setattr(database.db, &set).expect("cut off");
            }
            "punch" => {
                let mode = medfs::FallocateMode::PUNCH_HOLE | medfs::FallocateMode::KEEP_SIZE;
                v.fallocate(database.db, mode, 0, PAGES * PAGE as u64).expect("punched");
            }
            _ => {
                let other = file(&v, root, "other");
                v.release(other, 1);
                v.rename(root, b"other", root, b"x.db", medfs::RenameFlags::empty()).expect("renamed");
                v.release(database.db, 1);
            }
        }
        assert!(content(&v, database.log) == database.frames, "{how}");
        v.sync().expect("sync");
        let v = crashed(&device);
        let log = at(&v, "x.db-wal").expect("the log").ino;
        assert!(content(&v, log) == database.frames, "{how}, after a crash");
    }
}

#[test]
fn the_list_is_hidden_and_goes_with_an_export() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let database = Database::filled(&v);
    let root = v.root();
    assert_eq!(names(&v, root), ["lost+found", "x.db", "x.db-wal"]);
    assert_eq!(v.lookup(root, b".medfs").expect_err("hidden").errno(), 2);
    assert_eq!(v.unlink(root, b".medfs").expect_err("hidden").errno(), 2);
    let taken = v.create(root, b".medfs", &new(medfs::FileKind::Regular));
    assert_eq!(taken.expect_err("taken").errno(), 1);
    v.close().expect("close");
    drop(v);
    let report = medfs_fsck::check(&*device, &Default::default(), &mut |_| ()).expect("memory");
    assert_eq!((report.directories(), report.files()), (2, 2), "what users see is counted");
    let clock = Arc::new(ManualClock::new(START));
    medfs::convert::export(device.clone(), clock.clone(), &mut |_, _, _| {}).expect("exported");
    let v = open(device.clone());
    database.check(&v);
    assert_eq!(names(&v, v.root()), ["lost+found", "x.db", "x.db-wal"]);
    let own = file(&v, v.root(), ".medfs");
    v.release(own, 1);
    v.close().expect("close");
    drop(v);
    let refused = medfs::convert::import(device, clock).expect_err("the name is taken").to_string();
    assert!(refused.contains(".medfs"), "{refused}");
}

/// Frames of pages that the database does not have, or not like that, are made from earlier frames; and the
/// log begins anew.
#[test]
fn a_log_is_made_from_its_own_frames() {
    for options in ["", "in_place=force"] {
        made_from_own_frames(options);
    }
}

fn made_from_own_frames(options: &str) {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, options);
    let mut database = Database::new(&v);
    let before = v.stats().written.data;
    let log = |v: &Volume| content(v, at(v, "x.db-wal").expect("the log").ino);
    for round in 0..3u64 {
        // Changed altogether, in the log alone.
        let new: Vec<u8> = (0..4).flat_map(|n| rows(5000 + 10 * round + n)).collect();
        database.pages[..4 * PAGE].copy_from_slice(&new);
        for n in 0..40usize {
            let at = 32 + n * FRAME;
            let frame = database.frame(n % 4, format!("round {round}, change {n}").as_bytes());
            write(&v, database.log, at as u64, &frame);
            database.frames.resize(database.frames.len().max(at + FRAME), 0);
            database.frames[at..at + FRAME].copy_from_slice(&frame);
            v.fsync(database.log, true).expect("fsync");
            assert!(
                log(&crashed(&device)) == database.frames,
                "{options}: round {round}, frame {n}, after a crash"
            );
        }
        assert!(log(&v) == database.frames, "{options}: round {round}");
    }
    assert!(v.stats().deltas.repeated > 60, "{:?}", v.stats().deltas);
    let data = v.stats().written.data - before;
    assert!(data < 160, "{data} blocks of data for 120 frames, which lie over 240 pages");
}

/// Frames that others are made from are overwritten, in place where the option allows: at every moment a
/// crash shows each page of the log as it was or as it is to be.
#[test]
fn a_frame_that_others_need_is_not_overwritten() {
    for options in ["", "in_place=force"] {
        let base = Arc::new(blank_delta(64));
        let v = open_device(&base, options);
        let mut database = Database::new(&v);
        v.close().expect("close");
        drop(v);
        let versions = RefCell::new(vec![database.frames.clone()]);
        let the_log = |v: &Volume| at(v, "x.db-wal").expect("the log").ino;
        let workload = |v: &Volume, mark: &dyn Fn(u64)| {
            for (round, n) in (0..3u64).flat_map(|round| (0..9usize).map(move |n| (round, n))) {
                if n == 0 {
                    // Changed altogether, in the log alone.
                    let new: Vec<u8> = (0..3).flat_map(|n| noise(700 + 10 * round + n)).collect();
                    database.pages[..3 * PAGE].copy_from_slice(&new);
                }
                let at = 32 + n * FRAME;
                let frame = database.frame(n % 3, format!("round {round}, change {n}").as_bytes());
                write(v, the_log(v), at as u64, &frame);
                database.frames.resize(database.frames.len().max(at + FRAME), 0);
                database.frames[at..at + FRAME].copy_from_slice(&frame);
                v.fsync(the_log(v), true).expect("fsync");
                versions.borrow_mut().push(database.frames.clone());
                mark(versions.borrow().len() as u64 - 1);
            }
            assert!(v.stats().deltas.repeated > 6, "{:?}", v.stats().deltas);
        };
        crash(&base, options, workload, |v, done| {
            let (found, versions) = (content(v, the_log(v)), versions.borrow());
            let next = (done as usize + 1).min(versions.len() - 1);
            for (n, page) in found.chunks(PAGE).enumerate() {
                let is =
                    |version: usize| versions[version].chunks(PAGE).nth(n).is_some_and(|p| alike(p, page));
                assert!(is(done as usize) || is(next), "{options}: page {n} after write {done}");
            }
        });
    }
}

/// Whether pages are the same as far as both go.
fn alike(a: &[u8], b: &[u8]) -> bool {
    let len = a.len().min(b.len());
    a[..len] == b[..len]
}
