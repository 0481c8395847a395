//! The database client: a process of its own, so that the daemon can be killed under it.
//!
//! The workload is a recorder of sensor states, as home automation and cars have it: a transaction updates
//! the state of a few sensors and appends one line of history. Every commit is durable (`synchronous=FULL`);
//! the rest is as SQLite has it by default, so that a journal is removed after each commit, and a log lies
//! beside shared memory. Each transaction carries its number, so that what survived can be counted; the
//! client writes `ack N` when commit N has returned.

use crate::args::DemoArgs;
use crate::exit;
use anyhow::{Context, Result};
use rusqlite::Connection;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Sensors whose state is kept.
const SENSORS: u64 = 20_000;
/// Sensors a transaction updates.
const UPDATES: u64 = 3;
/// Bytes a transaction changes in rows: per update value and time, and the history line.
const PAYLOAD_BYTES: u64 = UPDATES * 16 + 40;
/// Longest wait for locks that a killed predecessor may have left.
const BUSY: Duration = Duration::from_secs(10);

/// Numbers that look random and repeat with the seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// The client process: goes on from the last transaction in the database and runs `--transactions` more.
pub(super) fn client(database: &Path, args: &DemoArgs) -> Result<u8> {
    let journal = args.journal.first().context("no journal mode is given")?;
    let mut connection = open(database, journal)?;
    if args.extra {
        connection.pragma_update(None, "synchronous", "extra")?;
    }
    create(&mut connection)?;
    let first: u64 = last_transaction(&connection)? + 1;
    let mut out = std::io::stdout();
    let written_before = bytes_written();
    for number in first..first + u64::from(args.transactions) {
        transaction(&mut connection, number, args.seed)?;
        writeln!(out, "ack {number}")?;
    }
    connection.close().map_err(|(_, e)| e)?;
    let written = bytes_written().zip(written_before).map(|(after, before)| after - before);
    writeln!(out, "wrote {}", written.map_or("-".into(), |w| w.to_string()))?;
    writeln!(out, "cpu {}", super::processor_seconds())?;
    Ok(exit::SUCCESS)
}

fn open(database: &Path, journal: &str) -> Result<Connection> {
    let connection = Connection::open(database)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", journal)?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

fn create(connection: &mut Connection) -> Result<()> {
    let exists: bool =
        connection
            .query_row("SELECT count(*) FROM sqlite_master WHERE name = 'history'", [], |r| r.get(0))?;
    if exists {
        return Ok(());
    }
    let t = connection.transaction()?;
    t.execute_batch(
        "CREATE TABLE sensor (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value REAL NOT NULL, changed INTEGER NOT NULL);
         CREATE TABLE history (number INTEGER PRIMARY KEY, sensor INTEGER NOT NULL, value REAL NOT NULL, note TEXT NOT NULL);",
    )?;
    {
        let mut insert = t.prepare("INSERT INTO sensor VALUES (?1, ?2, 0.0, 0)")?;
        for id in 0..SENSORS {
            insert
                .execute((id as i64, format!("building/floor-{}/room-{}/sensor-{id}", id % 7, id % 113)))?;
        }
    }
    t.commit()?;
    Ok(())
}

fn transaction(connection: &mut Connection, number: u64, seed: u64) -> Result<()> {
    let mut random = Random(seed ^ number.wrapping_mul(0x2545_F491_4F6C_DD1D));
    let t = connection.transaction()?;
    {
        let mut update = t.prepare_cached("UPDATE sensor SET value = ?2, changed = ?3 WHERE id = ?1")?;
        for _ in 0..UPDATES {
            let value = (random.next() % 100_000) as f64 / 100.0;
            update.execute(((random.next() % SENSORS) as i64, value, number as i64))?;
        }
        let mut insert = t.prepare_cached("INSERT INTO history VALUES (?1, ?2, ?3, ?4)")?;
        let sensor = (random.next() % SENSORS) as i64;
        insert.execute((number as i64, sensor, number as f64, format!("event {number:010}")))?;
    }
    t.commit()?;
    Ok(())
}

fn last_transaction(connection: &Connection) -> Result<u64> {
    let last: i64 = connection.query_row("SELECT coalesce(max(number), 0) FROM history", [], |r| r.get(0))?;
    Ok(last as u64)
}

/// Bytes this process handed to write(2) so far, where the system counts them.
fn bytes_written() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
}

/// A running client.
pub(super) struct Client {
    process: Child,
    output: BufReader<ChildStdout>,
}

/// What a client is to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// So many transactions.
    pub(super) transactions: u32,
    /// With `synchronous=EXTRA`: in DELETE mode a commit with `FULL` returns before the removal of the
    /// journal is durable, and SQLite may roll it back after power loss.
    pub(super) extra: bool,
}

/// How a client's output ended.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Progress {
    /// Last transaction acknowledged.
    pub(super) acknowledged: u64,
    /// Bytes handed to write(2), where it came to its end and the system counts them.
    pub(super) written: Option<u64>,
    /// Processor time, where it came to its end.
    pub(super) processor_seconds: f64,
    /// It came to its end.
    pub(super) finished: bool,
}

impl Client {
    /// Starts a client of `transactions` transactions.
    pub(super) fn start(database: &Path, journal: &str, args: &DemoArgs, run: Run) -> Result<Client> {
        let mut process = Command::new(std::env::current_exe().context("cannot find the medfs executable")?)
            .args(["demo", "--journal", journal, "--seed", &args.seed.to_string()])
            .args(["--transactions", &run.transactions.to_string()])
            .args(run.extra.then_some("--extra"))
            .arg("--client")
            .arg(database)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the database client")?;
        let output = BufReader::new(process.stdout.take().context("the client's output is not a pipe")?);
        Ok(Client { process, output })
    }

    /// Follows the client to its end; `on_ack` sees each acknowledgement.
    pub(super) fn follow(mut self, mut on_ack: impl FnMut(u64) -> Result<()>) -> Result<(Progress, String)> {
        let mut progress = Progress::default();
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("ack"), Some(number)) => {
                    progress.acknowledged = number.parse().context("the client's acknowledgement")?;
                    on_ack(progress.acknowledged)?;
                }
                (Some("wrote"), Some(bytes)) => progress.written = bytes.parse().ok(),
                (Some("cpu"), Some(seconds)) => {
                    progress.processor_seconds = seconds.parse().context("the client's processor time")?;
                }
                _ => {}
            }
            line.clear();
        }
        let ended = self.process.wait_with_output()?;
        progress.finished = ended.status.success();
        Ok((progress, String::from_utf8_lossy(&ended.stderr).trim().to_owned()))
    }
}

/// Bytes that `transactions` change in rows.
pub(super) fn payload_bytes(transactions: u64) -> u64 {
    transactions * PAYLOAD_BYTES
}

/// What a recovered database holds: how many transactions, counted and not only the last number, and what
/// SQLite's
/// own check says of it.
pub(super) fn judge(database: &Path, journal: &str) -> Result<(u64, String)> {
    let connection = open(database, journal)?;
    let integrity: String = connection.query_row("PRAGMA integrity_check", [], |r| r.get(0))?;
    let count: i64 = connection.query_row("SELECT count(*) FROM history", [], |r| r.get(0))?;
    let last = last_transaction(&connection)?;
    // A gap would be a transaction that was lost while a later one was kept.
    let found = if count as u64 == last { last } else { count as u64 };
    connection.close().map_err(|(_, e)| e)?;
    Ok((found, integrity))
}
