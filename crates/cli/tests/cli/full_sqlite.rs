//! SQLite on a volume that is full again and again: what COMMIT acknowledged is found after each remount, be
//! it a clean one or after the daemon was killed.
//!
//! A database for each durable journal mode grows and shrinks beside writers of pages, which take what room
//! is left and give it back; a ballast leaves them little room from the start. A round of work lasts until
//! somebody was refused, however slow the machine. `MEDFS_SEED` repeats a run's choices, `MEDFS_ROUNDS` says
//! how long the long run is, `MEDFS` names another program than the one just built.

use crate::common::*;
use crate::mounts::{Mounted, Rng, seed};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MODES: [&str; 4] = ["DELETE", "TRUNCATE", "PERSIST", "WAL"];
const ROWS: u64 = 1000;

/// Of what is free on the new volume, in bytes: all but room for the databases at their largest, their
/// journals, and a few files.
const BALLAST: usize = 20 << 20;
/// What SQLite needs to roll back and to make its log, in bytes.
const ROOM: u64 = 6 << 20;
/// How long a round waits for a refusal.
const PATIENCE: Duration = Duration::from_secs(90);

/// What a row may hold: the version acknowledged last, and those whose COMMIT did not end well since.
#[derive(Default, Clone)]
struct Row {
    acknowledged: u64,
    tried: Vec<u64>,
}

pub(crate) struct Database {
    mode: &'static str,
    rng: Rng,
    rows: BTreeMap<i64, Row>,
    next: u64,
    made: bool,
    pub(crate) transactions: u64,
    /// How often each of SQLite's extended codes was the answer.
    errors: BTreeMap<i32, u64>,
}

/// A row's content: its version, and as many bytes as that says.
fn content(version: u64) -> Vec<u8> {
    let mut rng = Rng::new(version);
    let len = 8 + rng.below(6000) as usize;
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.resize_with(len, || rng.next() as u8);
    bytes
}

fn open(path: &Path, mode: &str) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", mode)?;
    // FULL does not make it durable that a journal is gone, which is what commits in DELETE mode.
    db.pragma_update(None, "synchronous", "EXTRA")?;
    db.pragma_update(None, "cache_size", 50)?;
    db.execute_batch("CREATE TABLE IF NOT EXISTS t(i INTEGER PRIMARY KEY, v BLOB)")?;
    Ok(db)
}

fn code(error: &rusqlite::Error) -> i32 {
    error.sqlite_error().map_or(-1, |error| error.extended_code)
}

/// Whether SQLite says by this that there is no room: full, or its way of telling of a failed call.
fn is_about_room(code: i32) -> bool {
    matches!(
        code & 0xff,
        rusqlite::ffi::SQLITE_FULL | rusqlite::ffi::SQLITE_IOERR | rusqlite::ffi::SQLITE_CANTOPEN
    )
}

impl Database {
    fn name(&self) -> String {
        format!("{}.db", self.mode)
    }

    /// One transaction of a few rows; what it tried is known either way.
    ///
    /// A COMMIT that ends well after the daemon was `killed` acknowledges nothing: SQLite takes it for a
    /// success where it cannot open the directory, whose fsync makes the removal of a journal durable.
    fn transact(&mut self, db: &Connection, killed: &AtomicBool) -> rusqlite::Result<()> {
        let changes: Vec<_> = (0..1 + self.rng.below(6))
            .map(|_| {
                self.next += 1;
                // Version 0: no row.
                let version = if self.rng.below(4) == 0 { 0 } else { self.next };
                (self.rng.below(ROWS) as i64, version)
            })
            .collect();
        let result = (|| {
            db.execute_batch("BEGIN")?;
            for &(row, version) in &changes {
                if version == 0 {
                    db.execute("DELETE FROM t WHERE i = ?", params![row])?;
                } else {
                    db.execute("REPLACE INTO t VALUES(?, ?)", params![row, content(version)])?;
                }
            }
            db.execute_batch("COMMIT")
        })();
        self.transactions += 1;
        let acknowledged = result.is_ok() && !killed.load(Ordering::Acquire);
        for (row, version) in changes {
            let row = self.rows.entry(row).or_default();
            if acknowledged {
                *row = Row { acknowledged: version, tried: Vec::new() };
            } else {
                row.tried.push(version);
            }
        }
        if result.is_err() {
            let _ = db.execute_batch("ROLLBACK");
        }
        result
    }

    pub(crate) fn run(&mut self, dir: &Path, stop: &AtomicBool, killed: &AtomicBool, refused: &AtomicBool) {
        let mut connection = None;
        while !stop.load(Ordering::Acquire) {
            let result = match &connection {
                None => open(&dir.join(self.name()), self.mode).map(|db| {
                    self.made = true;
                    connection = Some(db);
                }),
                Some(db) => self.transact(db, killed),
            };
            let Err(error) = result else { continue };
            if killed.load(Ordering::Acquire) {
                break;
            }
            assert!(is_about_room(code(&error)), "{}: {error}", self.mode);
            refused.store(true, Ordering::Release);
            *self.errors.entry(code(&error)).or_default() += 1;
            if self.rng.below(4) == 0 {
                connection = None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Compares with what is there; that is what is known from now on.
    pub(crate) fn verify(&mut self, dir: &Path, clean: bool) {
        if !self.made {
            return;
        }
        let db = open(&dir.join(self.name()), self.mode).unwrap();
        let check: String = db.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
        assert_eq!(check, "ok", "{}, clean {clean}, errors {:?}", self.mode, self.errors);
        let mut found = BTreeMap::new();
        let mut rows = db.prepare("SELECT i, v FROM t").unwrap();
        let rows = rows.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?))).unwrap();
        for row in rows {
            let (row, bytes) = row.unwrap();
            let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert!(bytes == content(version), "{}: row {row} is not what was written", self.mode);
            found.insert(row, version);
        }
        for (row, known) in &mut self.rows {
            let version = found.remove(row).unwrap_or(0);
            assert!(
                version == known.acknowledged || known.tried.contains(&version),
                "{}: row {row} has version {version}, acknowledged {}, tried {:?}",
                self.mode,
                known.acknowledged,
                known.tried
            );
            *known = Row { acknowledged: version, tried: Vec::new() };
        }
        assert!(found.is_empty(), "{}: rows that were never written", self.mode);
    }
}

/// Writes pages to files of its own until the volume is full, with an fsync each now and then, then removes some.
fn fill_with_pages(
    dir: &Path,
    rng: &mut Rng,
    fsynced: &mut BTreeMap<u64, Vec<u8>>,
    number: &mut u64,
    stop: &AtomicBool,
    refused: &AtomicBool,
) {
    let page = |rng: &mut Rng| -> Vec<u8> { (0..512).flat_map(|_| rng.next().to_le_bytes()).collect() };
    while !stop.load(Ordering::Acquire) {
        *number += 1;
        let path = dir.join(format!("pages{number}"));
        let mut written = Vec::new();
        let mut put = || -> std::io::Result<()> {
            let mut file = File::create(&path)?;
            for _ in 0..1 + rng.below(2000) {
                let page = page(rng);
                file.write_all(&page)?;
                written.extend(page);
            }
            file.sync_all()
        };
        match put() {
            Ok(()) => {
                fsynced.insert(*number, written);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                refused.store(true, Ordering::Release);
                let _ = fs::remove_file(&path);
                std::thread::sleep(Duration::from_millis(rng.below(200)));
                for _ in 0..rng.below(4) {
                    let Some(oldest) = fsynced.keys().next().copied() else { break };
                    fsynced.remove(&oldest);
                    let _ = fs::remove_file(dir.join(format!("pages{oldest}")));
                }
            }
            Err(error) => {
                let gone = [libc::ENOTCONN, libc::ECONNABORTED, libc::EIO];
                assert!(error.raw_os_error().is_some_and(|error| gone.contains(&error)), "{error}");
                return;
            }
        }
    }
}

struct Pages {
    rng: Rng,
    fsynced: BTreeMap<u64, Vec<u8>>,
    number: u64,
}

fn round(
    s: &Scratch,
    options: &str,
    databases: &mut [Database],
    pages: &mut [Pages],
    clean: bool,
    work: Duration,
) {
    let mounted = Mounted::new(s, options);
    let [stop, killed, refused] = [false; 3].map(AtomicBool::new);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for database in &mut *databases {
            scope.spawn(|| database.run(&mounted.dir, &stop, &killed, &refused));
        }
        for Pages { rng, fsynced, number } in &mut *pages {
            scope.spawn(|| fill_with_pages(&mounted.dir, rng, fsynced, number, &stop, &refused));
        }
        std::thread::sleep(work);
        while !refused.load(Ordering::Acquire) && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        if !clean {
            killed.store(true, Ordering::Release);
            mounted.kill();
        }
        stop.store(true, Ordering::Release);
    });
    if clean {
        mounted.unmount()
    } else {
        drop(mounted)
    }
    assert!(refused.into_inner(), "the volume was never full");
    let mounted = Mounted::new(s, options);
    for (number, written) in pages.iter().flat_map(|pages| &pages.fsynced) {
        let found = fs::read(mounted.dir.join(format!("pages{number}"))).unwrap();
        assert!(found == *written, "pages{number}: {} bytes of {}", found.len(), written.len());
    }
    let known: Vec<_> =
        pages.iter().flat_map(|pages| pages.fsynced.keys()).map(|n| format!("pages{n}")).collect();
    for entry in fs::read_dir(&mounted.dir).unwrap().map(|entry| entry.unwrap().file_name()) {
        let name = entry.to_string_lossy();
        if name.starts_with("pages") && !known.contains(&name.to_string()) {
            fs::remove_file(mounted.dir.join(&entry)).unwrap();
        }
    }
    make_room(&mounted.dir, pages);
    medfs().arg("sync").arg(&mounted.dir).assert().success();
    for database in databases {
        database.verify(&mounted.dir, clean);
    }
    mounted.unmount();
    medfs().arg("fsck").arg(s.image()).assert().code(0);
}

/// Removes files of pages, the oldest first, and then cuts the ballast, until SQLite has room.
fn make_room(dir: &Path, pages: &mut [Pages]) {
    let available = || {
        let stat = rustix::fs::statvfs(dir).unwrap();
        stat.f_bavail * stat.f_frsize
    };
    while available() < ROOM {
        let oldest = pages.iter_mut().filter_map(|pages| pages.fsynced.pop_first()).map(|(number, _)| number);
        let oldest: Vec<_> = oldest.collect();
        for number in &oldest {
            fs::remove_file(dir.join(format!("pages{number}"))).unwrap();
        }
        if oldest.is_empty() {
            let ballast = File::options().write(true).open(dir.join("ballast")).unwrap();
            let left = ballast.metadata().unwrap().len();
            assert!(left > 0, "no room though nothing is left to remove");
            ballast.set_len(left.saturating_sub(ROOM)).unwrap();
        }
    }
}

/// A database for each journal mode.
pub(crate) fn databases(seed: u64) -> [Database; 4] {
    MODES.map(|mode| Database {
        mode,
        rng: Rng::new(seed ^ mode.len() as u64),
        rows: BTreeMap::new(),
        next: 0,
        made: false,
        transactions: 0,
        errors: BTreeMap::new(),
    })
}

fn rounds(options: &str, count: u64, work: Duration) {
    if !can_mount() {
        return;
    }
    let seed = seed();
    let s = Scratch::with_volume("100M");
    let mut databases = databases(seed);
    let mut pages =
        [1, 2].map(|n| Pages { rng: Rng::new(seed ^ n << 40), fsynced: BTreeMap::new(), number: n << 32 });
    let mounted = Mounted::new(&s, options);
    let mut rng = Rng::new(seed);
    let ballast: Vec<u8> = (0..BALLAST / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
    fs::write(mounted.dir.join("ballast"), ballast).unwrap();
    mounted.unmount();
    let begin = Instant::now();
    for number in 0..count {
        round(&s, options, &mut databases, &mut pages, number.is_multiple_of(2), work);
    }
    for Database { mode, transactions, errors, .. } in &databases {
        eprintln!("{mode}: {transactions} transactions, errors by code {errors:?}");
    }
    eprintln!("{count} rounds in {:?}", begin.elapsed());
}

#[test]
fn acknowledged_transactions_are_there_after_each_remount() {
    rounds("", 3, Duration::from_secs(2));
}

#[test]
#[ignore = "takes MEDFS_ROUNDS rounds of some seconds for each set of options"]
fn acknowledged_transactions_are_there_for_many_rounds() {
    let many = std::env::var("MEDFS_ROUNDS").map_or(20, |n| n.parse().expect("MEDFS_ROUNDS is a number"));
    for options in ["", "cross_file_deltas=off", "delta=off"] {
        eprintln!("options '{options}'");
        rounds(options, many, Duration::from_secs(3));
    }
}
