//! What programs cost a device: Fig. 10, 11 and 12 and Table 1. A volume with `durability=adaptive`, beside a model of
//! ext4 in ordered mode, on the same model of a device.
//!
//! Energy is a model of bytes, and no more: what is written, times one factor that falls out of every comparison. The
//! paper's is that of a whole phone.

use super::{programs, row};
use crate::cell::Row;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use crate::experiment::dj::{Bed, Mode, Models, Played};
use crate::model::Times;
use crate::scheme::Scheme;
use crate::sqlite::JournalMode;
use crate::workload::sqlite_rows::{self, Mix};
use crate::workload::{Recording, Stage, Values, record};
use medfs_format::BLOCK_SIZE;

/// A program that is run on both sides.
struct Program {
    label: &'static str,
    /// Whether its fsyncs leave times alone, as those of SQLite do.
    fdatasync: bool,
    run: fn(&Stage) -> Result<Values>,
}

const fn program(label: &'static str, fdatasync: bool, run: fn(&Stage) -> Result<Values>) -> Program {
    Program { label, fdatasync, run }
}

/// What ext4 writes, and how long its programs wait for it, in microseconds.
struct OfExt4 {
    blocks: f64,
    waited: f64,
}

/// Both sides of an experiment.
struct Contest<'l, 's> {
    lab: &'l Lab<'s>,
    times: Times,
}

fn less(ours: f64, theirs: f64) -> f64 {
    100.0 * (1.0 - ours / theirs)
}

impl<'l, 's> Contest<'l, 's> {
    fn new(lab: &'l Lab<'s>) -> Result<Contest<'l, 's>> {
        Ok(Contest { lab, times: lab.times()? })
    }

    fn record(&self, what: &str, run: &dyn Fn(&Stage) -> Result<Values>) -> Result<Recording> {
        self.lab.settings.progress.step(&format!("recording {what}"));
        record(self.lab.settings.seed, self.lab.scale, run)
    }

    fn ext4(&self, recording: &Recording, mode: Mode, fdatasync: bool) -> Result<OfExt4> {
        let cost = Models::new(self.lab)?.syncing(fdatasync).play(recording, mode, (None, true))?;
        let in_memory = self.times.hit * recording.tape.len() as f64;
        Ok(OfExt4 { blocks: cost.blocks() as f64, waited: cost.time(&self.times) + in_memory })
    }

    /// Every scheme of the file: its name, what it cost, and the cell.
    fn volumes(&self, label: &str, recording: &Recording) -> Result<Vec<(String, Played, String)>> {
        let run = |scheme: Scheme| {
            let mib = self.lab.spec.device_gib << 10;
            let mut bed = Bed::new(self.lab, (label, &scheme, ""), (mib, None))?;
            let played = bed.play(recording)?;
            Ok::<_, Error>((scheme.name.clone(), played, bed.finish()?))
        };
        self.lab.schemes()?.into_iter().map(run).collect()
    }
}

fn megabytes(blocks: f64) -> f64 {
    blocks * BLOCK_SIZE as f64 / 1e6
}

/// Fig. 10: 8 MB sixteen times. *ext4-simu.* journals all data, when the paper's MobiFS flushes.
pub(in crate::experiment) fn sixteen(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let contest = Contest::new(lab)?;
    lab.begin(2 + lab.spec.schemes.len());
    let program = contest.record("8 MB sixteen times", &|stage| programs::sixteen_times(stage, 2))?;
    let seldom =
        contest.record("the same, flushed half as often", &|stage| programs::sixteen_times(stage, 4))?;
    let ext4 = contest.ext4(&program, Mode::Ordered, false)?;
    let simulated = contest.ext4(&seldom, Mode::Journal, false)?;
    let mut rows = vec![row(lab, ("written", "ext4", "MB"), megabytes(ext4.blocks), &[])];
    let mut against = |scheme: &str, blocks: f64, cells: &[String]| {
        rows.push(row(lab, ("written", scheme, "MB"), megabytes(blocks), cells));
        rows.push(row(lab, ("flushed", scheme, "of ext4's"), blocks / ext4.blocks, cells));
        rows.push(row(lab, ("energy, by bytes", scheme, "% less"), less(blocks, ext4.blocks), cells));
    };
    against("ext4-simu.", simulated.blocks, &[]);
    for (scheme, played, cell) in contest.volumes("8 MB sixteen times", &program)? {
        against(&scheme, played.blocks as f64, &[cell]);
    }
    Ok(rows)
}

const MOBIBENCH: [Program; 6] = [
    program("sequential writes", false, |stage| programs::records(stage, false)),
    program("random writes", false, |stage| programs::records(stage, true)),
    program("SQLite insert, PERSIST", true, |s| sqlite_rows::run(s, JournalMode::Persist, Mix::Insert)),
    program("SQLite update, PERSIST", true, |s| sqlite_rows::run(s, JournalMode::Persist, Mix::Update)),
    program("SQLite insert, WAL", true, |s| sqlite_rows::run(s, JournalMode::Wal, Mix::Insert)),
    program("SQLite update, WAL", true, |s| sqlite_rows::run(s, JournalMode::Wal, Mix::Update)),
];

/// Fig. 11: Mobibench, by how many times ext4's throughput, with the barrier that makes all durable at the end and
/// without it.
pub(in crate::experiment) fn mobibench(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let contest = Contest::new(lab)?;
    lab.begin(MOBIBENCH.len() * (1 + lab.spec.schemes.len()));
    let mut rows = Vec::new();
    for Program { label, fdatasync, run } in MOBIBENCH {
        let recording = contest.record(label, &run)?;
        let ext4 = contest.ext4(&recording, Mode::Ordered, fdatasync)?;
        for (scheme, played, cell) in contest.volumes(label, &recording)? {
            let cells = [cell];
            rows.push(row(lab, (label, &scheme, "x ext4's"), ext4.waited / played.waited, &cells));
            let durable = format!("{label}, durable");
            rows.push(row(lab, (&durable, &scheme, "x ext4's"), ext4.waited / played.waited_in_all, &cells));
        }
    }
    Ok(rows)
}

/// Fig. 12: what three applications wait for, and what they write.
pub(in crate::experiment) fn applications(lab: &Lab<'_>) -> Result<Vec<Row>> {
    const THREE: [Program; 3] = [
        program("Browser", true, |stage| programs::application(stage, "WB")),
        program("Facebook", true, |stage| programs::application(stage, "FB")),
        program("Twitter", true, |stage| programs::application(stage, "TT")),
    ];
    against_ext4(lab, &THREE)
}

/// Table 1: RL Benchmark.
pub(in crate::experiment) fn benchmarks(lab: &Lab<'_>) -> Result<Vec<Row>> {
    against_ext4(lab, &[program("RL", true, programs::thirteen)])
}

/// Of each program: by how much less is waited, with the last barrier and without, and less is written.
fn against_ext4(lab: &Lab<'_>, all: &[Program]) -> Result<Vec<Row>> {
    let contest = Contest::new(lab)?;
    lab.begin(all.len() * (1 + lab.spec.schemes.len()));
    let mut rows = Vec::new();
    for Program { label, fdatasync, run } in all {
        let recording = contest.record(label, run)?;
        let ext4 = contest.ext4(&recording, Mode::Ordered, *fdatasync)?;
        rows.push(row(lab, (&format!("{label}, waiting"), "ext4", "s"), ext4.waited / 1e6, &[]));
        rows.push(row(lab, (&format!("{label}, written"), "ext4", "MB"), megabytes(ext4.blocks), &[]));
        for (scheme, played, cell) in contest.volumes(label, &recording)? {
            let cells = [cell];
            for (what, ours, theirs) in [
                ("waiting", played.waited, ext4.waited),
                ("waiting, durable", played.waited_in_all, ext4.waited),
                ("energy, by bytes", played.blocks as f64, ext4.blocks),
            ] {
                let label = format!("{label}, {what}");
                rows.push(row(lab, (&label, &scheme, "% less"), less(ours, theirs), &cells));
            }
        }
    }
    Ok(rows)
}
