//! What a task does next: whatever brings its characteristics towards the table's.
//!
//! Before each step the controller compares what the task wrote so far with its row: too few updates ask for an update, too
//! little difference for one that changes much, too little compression for content that compresses, too few reads for
//! reads; the type of file is the one that is furthest behind its share. So the characteristics of a long enough task are the
//! table's, whatever its steps turn out to write; what is asked of SQLite is measured as everything else is.

use super::parts::{Change, Files};
use super::{AppSpec, TaskSpec};
use crate::error::Result;
use crate::meter::{FileType, Totals};
use crate::workload::Stage;

/// Least and most pages of a step.
const STEP_PAGES: (f64, f64) = (1.0, 64.0);
/// A task has so many steps at least, so that the last ones cannot spoil its shares.
const STEPS_MIN: f64 = 100.0;

/// Share of a page's bytes that differ when it is replaced.
const REPLACED: f64 = 0.95;

/// A task in progress.
pub(super) struct Task {
    /// What it is to write.
    pub(super) bytes: f64,
    updates: f64,
    difference: f64,
    write_share: f64,
    compression: f64,
    types: super::Types,
    pages: u64,
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
        let delta = (1.0 - app.delta_compression / 100.0) * 4096.0;
        let least = task.difference / 100.0 * 4096.0 * 0.6;
        let most = bytes / 4096.0 / STEPS_MIN;
        Ok(Task {
            bytes,
            updates: task.updates / 100.0,
            difference: task.difference / 100.0,
            write_share: app.write_share / 100.0,
            compression: app.compression / 100.0,
            types: app.types,
            pages: app.request_pages().clamp(STEP_PAGES.0, STEP_PAGES.1).min(most).max(1.0) as u64,
            files: Files::new(stage, folder, task.small / 100.0, app.compression / 100.0, delta, least)?,
            done: Totals::default(),
        })
    }

    /// How many pages may be replaced without going beyond the table's difference. A database writes each several times: to its
    /// log, over an older frame of it, in its place, and with the pages that lead to it.
    fn room(&self, kind: FileType) -> u64 {
        let (t, page) = (&self.done, 4096.0);
        let left = self.difference * t.updates as f64 * page - t.changed_bytes as f64;
        let pages = left / (page * (REPLACED - self.difference).max(0.1));
        let times = if kind == FileType::Sqlite { 10.0 } else { 1.0 };
        (pages / times).max(0.0) as u64
    }

    /// What it wrote so far.
    pub(super) fn done(&self) -> Totals {
        self.done
    }

    /// One step; `app` is what the whole application did so far, of which compression and reads are characteristics.
    /// Returns what the step did.
    pub(super) fn step(&mut self, stage: &Stage, app: Totals) -> Result<Totals> {
        let before = stage.meter.totals();
        let t = self.done;
        let behind = |kind: &FileType| self.types.share(*kind) - t.type_share(*kind);
        let kind = FileType::ALL.into_iter().max_by(|a, b| behind(a).total_cmp(&behind(b)));
        let kind = kind.unwrap_or(FileType::Other);
        let room = self.room(kind);
        let (change, pages) = match (t.update_ratio() > self.updates, room >= 1) {
            (true, _) => (Change::New, self.pages),
            (false, true) => (Change::Much, self.pages.min(room)),
            (false, false) => (Change::Little, self.pages),
        };
        let opaque = app.compression() > self.compression;
        self.files.write(stage, kind, change, opaque, pages)?;
        while (app + (stage.meter.totals() - before)).write_share() > self.write_share {
            self.files.read(stage, self.pages)?;
        }
        let step = stage.meter.totals() - before;
        self.done = self.done + step;
        Ok(step)
    }
}
