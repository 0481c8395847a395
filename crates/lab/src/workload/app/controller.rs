//! What a task does next: whatever brings its characteristics towards the table's.
//!
//! Before each step the controller compares what the task wrote so far with its row: too few updates ask for
//! an update, too little difference for one that changes much, too little compression for content that
//! compresses, too few reads for reads, too small requests for more pages in a step; the type of file is the
//! one that is furthest behind its share. So the characteristics of a long enough task are the table's,
//! whatever its steps turn out to write; what is asked of SQLite is measured as everything else is.

use super::components::{Change, Files};
use super::{AppSpec, TaskSpec};
use crate::distribution::Shape;
use crate::error::Result;
use crate::random::Random;
use crate::totals::{FileType, Totals};
use crate::workload::stage::Stage;

/// Most pages of a step.
const STEP_PAGES: f64 = 256.0;
/// How much larger a step is than the one before where requests are too small, and smaller where they are too large.
const STEP_CHANGE: f64 = 1.05;
/// A task has so many steps at least, so that the last ones cannot spoil its shares.
const STEPS_MIN: f64 = 100.0;

/// Share of a page's bytes that differ when it is replaced.
const REPLACED: f64 = 0.95;
/// Where updates differ too little the next ones are drawn from so much larger a mean, and from a smaller one
/// where they differ too much: faster, as one large update outweighs many small ones.
const MEAN_CHANGES: [f64; 2] = [1.1, 1.0 / 1.3];
/// Least and largest mean that they are drawn from.
const MEANS: (f64, f64) = (0.002, 1.0);
/// One of so many updates of databases replaces rows in the one with a log, where the differences have room for it.
const LOGGED: u64 = 4;

/// How much more of what does not compress is written where pages compress too well: for each point of a
/// hundred so many.
const PACKED_GAIN: f64 = 10.0;

/// A task in progress.
pub(super) struct Task {
    /// What it is to write.
    pub(super) bytes: f64,
    updates: f64,
    difference: f64,
    /// Mean of the differences that are drawn.
    mean: f64,
    /// Updates of databases so far.
    transactions: u64,
    write_share: f64,
    compression: f64,
    /// Share of what does not compress, where all goes as it should.
    packed: f64,
    random: Random,
    types: super::Types,
    /// Bytes of a request that writes, of the whole application.
    request: f64,
    /// Pages of a step, and the least and the most.
    pages: f64,
    least: f64,
    most: f64,
    files: Files,
    done: Totals,
}

impl Task {
    /// Makes the files that the task finds.
    pub(super) fn new(
        stage: &Stage,
        app: &AppSpec,
        task: &TaskSpec,
        folder: &str,
        bytes: f64,
    ) -> Result<Task> {
        let most = (bytes / 4096.0 / STEPS_MIN).clamp(1.0, STEP_PAGES);
        let least = app.request_pages().clamp(1.0, most);
        Ok(Task {
            bytes,
            updates: task.updates / 100.0,
            difference: task.difference / 100.0,
            mean: task.difference / 100.0,
            transactions: 0,
            write_share: app.write_share / 100.0,
            compression: app.compression / 100.0,
            packed: Shape::packed_share(app.compression / 100.0),
            random: stage.random(&format!("{folder} steps")),
            types: app.types,
            request: app.request_pages() * 4096.0,
            pages: least,
            least,
            most,
            files: Files::new(stage, folder, task.small / 100.0, app.compression / 100.0)?,
            done: Totals::default(),
        })
    }

    /// How many pages of rows may be replaced without going beyond the table's difference. A database with a
    /// log writes each several times: to its log, over an older frame of it, in its place, and with the pages
    /// that lead to it.
    fn room(&self) -> u64 {
        const TIMES: f64 = 10.0;
        let (t, page) = (&self.done, 4096.0);
        let left = self.difference * t.updates as f64 * page - t.changed_bytes as f64;
        (left / (page * (REPLACED - self.difference).max(0.1) * TIMES)).max(0.0) as u64
    }

    /// What the next update is.
    fn update(&mut self, kind: FileType) -> (Change, u64) {
        let pages = self.pages as u64;
        let behind = self.done.update_difference() < self.difference;
        let change = MEAN_CHANGES[usize::from(!behind)];
        self.mean = (self.mean * change).clamp(MEANS.0, MEANS.1);
        self.transactions += u64::from(kind == FileType::Sqlite);
        let (room, turn) = (self.room(), self.transactions.is_multiple_of(LOGGED));
        if kind == FileType::Sqlite && turn && room >= 1 {
            return (Change::Replace, pages.min(room));
        }
        (Change::Update(self.mean), pages)
    }

    /// What it wrote so far.
    pub(super) fn done(&self) -> Totals {
        self.done
    }

    /// One step; `app` is what the whole application did so far, of which compression, reads and the size of
    /// requests are characteristics.
    /// Returns what the step did.
    pub(super) fn step(&mut self, stage: &Stage, app: Totals) -> Result<Totals> {
        let before = stage.meter.totals();
        let t = self.done;
        if app.writes > 0 {
            let change = if app.request_bytes() < self.request { STEP_CHANGE } else { 1.0 / STEP_CHANGE };
            self.pages = (self.pages * change).clamp(self.least, self.most);
        }
        let whole = self.pages as u64;
        let behind = |kind: &FileType| self.types.share(*kind) - t.type_share(*kind);
        let kind = FileType::ALL.into_iter().max_by(|a, b| behind(a).total_cmp(&behind(b)));
        let kind = kind.unwrap_or(FileType::Other);
        let news = t.update_ratio() > self.updates;
        let (change, pages) = if news { (Change::New, whole) } else { self.update(kind) };
        let packed = self.packed + PACKED_GAIN * (app.compression() - self.compression);
        let opaque = self.random.happens(packed.clamp(0.0, 1.0));
        self.files.write(stage, kind, change, opaque, pages)?;
        while (app + (stage.meter.totals() - before)).write_share() > self.write_share {
            self.files.read(stage, whole)?;
        }
        let step = stage.meter.totals() - before;
        self.done = self.done + step;
        Ok(step)
    }
}
