//! The seven applications of MedFS's Tables 1 and 2, synthesised: the measured characteristics of each task
//! are those of the table, and so is what the task is made of (databases, temporary files, data files).
//!
//! A task does one small thing after the other; which one is decided by how far its characteristics are from
//! the table's so far (`controller`). What it does is real: transactions of SQLite, edits of records in
//! place, new versions of files, downloads (`components`). The tables are in `experiments/apps.toml`.

mod components;
mod controller;

use super::stage::{Stage, Values};
use crate::error::{Error, Result};
use crate::totals::{FileType, SMALL_FILE, Totals};
use serde::Deserialize;
use std::sync::LazyLock;
use std::time::Duration;

use controller::Task;

/// Where the tables are.
const FILE: &str = "experiments/apps.toml";
/// A task writes at least so much before its characteristics mean anything; shorter ones are repeated.
const LEAST_BYTES: f64 = 10e6;
/// More steps in a row never write nothing.
const IDLE_STEPS: u32 = 64;
/// How long the paper used each application.
const HALF_AN_HOUR: Duration = Duration::from_secs(1800);

/// A row of Table 1. Shares are in per cent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// The task.
    pub name: String,
    /// Volume written, in MB (10^6 bytes).
    pub volume_mb: f64,
    /// Files below 3.69 MB.
    pub small: f64,
    /// UR: updates in what is written.
    pub updates: f64,
    /// UD: mean change of an updated page.
    pub difference: f64,
}

/// Shares of types of files in what is written, in per cent.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Types {
    /// Databases with their journals and logs.
    pub sqlite: f64,
    /// Temporary files.
    pub temp: f64,
    /// The rest.
    pub other: f64,
}

impl Types {
    /// The share of a type, from 0 to 1.
    pub fn share(&self, kind: FileType) -> f64 {
        let percent = match kind {
            FileType::Sqlite => self.sqlite,
            FileType::Temp => self.temp,
            FileType::Other => self.other,
        };
        percent / 100.0
    }
}

/// A row of Table 2, and its tasks. Shares are in per cent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppSpec {
    /// The paper's two letters.
    pub id: String,
    /// The application.
    pub name: String,
    /// Volume written in half an hour, in GB (10^9 bytes).
    pub volume_gb: f64,
    /// Requests in half an hour.
    pub requests: f64,
    /// RW: writes in the requests.
    pub write_share: f64,
    /// CCR: what LZO saves.
    pub compression: f64,
    /// DCR: what deltas save.
    pub delta_compression: f64,
    /// Types of files.
    pub types: Types,
    /// Tasks.
    pub task: Vec<TaskSpec>,
}

impl AppSpec {
    /// Mean pages of a request that writes.
    pub fn request_pages(&self) -> f64 {
        self.volume_gb * 1e9 / (self.requests * self.write_share / 100.0) / 4096.0
    }

    /// A characteristic of Table 1 over all tasks, each weighted by what it writes.
    pub fn weighted(&self, of: impl Fn(&TaskSpec) -> f64) -> f64 {
        let all: f64 = self.task.iter().map(|t| t.volume_mb).sum();
        self.task.iter().map(|t| of(t) * t.volume_mb / all).sum()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Apps {
    app: Vec<AppSpec>,
}

static APPS: LazyLock<std::result::Result<Vec<AppSpec>, String>> = LazyLock::new(|| {
    toml::from_str::<Apps>(include_str!("../../../experiments/apps.toml"))
        .map(|a| a.app)
        .map_err(|e| e.to_string())
});

/// The seven applications.
pub fn apps() -> Result<&'static [AppSpec]> {
    match &*APPS {
        Ok(apps) => Ok(apps),
        Err(message) => Err(Error::Spec { file: FILE.into(), message: message.clone() }),
    }
}

/// The application of these two letters.
pub fn app(id: &str) -> Result<&'static AppSpec> {
    apps()?
        .iter()
        .find(|a| a.id == id)
        .ok_or_else(|| Error::Unknown(format!("no application is named '{id}'")))
}

/// Uses an application for half an hour times the scale: its tasks in turn, each as often as the others.
pub fn run(stage: &Stage, id: &str) -> Result<Values> {
    run_spec(stage, app(id)?)
}

/// The same for an application that is described elsewhere.
pub fn run_spec(stage: &Stage, spec: &AppSpec) -> Result<Values> {
    let bytes = spec.volume_gb * 1e9 * stage.scale;
    let all: f64 = spec.task.iter().map(|t| t.volume_mb).sum();
    let mut tasks = Vec::new();
    for (n, task) in spec.task.iter().enumerate() {
        let folder = format!("{}-{n}", spec.id.to_lowercase());
        tasks.push(Task::new(stage, spec, task, &folder, bytes * task.volume_mb / all)?);
    }
    stage.setup_done()?;
    let pace = HALF_AN_HOUR.as_secs_f64() / (spec.volume_gb * 1e9);
    let (mut app, mut idle) = (Totals::default(), 0);
    while (app.bytes() as f64) < bytes {
        let behind = |t: &Task| t.done().bytes() as f64 / t.bytes;
        let next = (0..tasks.len()).min_by(|a, b| behind(&tasks[*a]).total_cmp(&behind(&tasks[*b])));
        let Some(task) = next.map(|n| &mut tasks[n]) else { break };
        let step = task.step(stage, app)?;
        idle = progress(idle, step)?;
        app = app + step;
        pass(stage, step.bytes() as f64 * pace)?;
    }
    Ok(Values::new())
}

/// One task of an application, as often as is needed to write `LEAST_BYTES` at this scale; the value `runs`
/// says how often.
pub fn run_task(stage: &Stage, spec: &AppSpec, task: &TaskSpec) -> Result<Values> {
    let once = task.volume_mb * 1e6;
    let wanted = (once * stage.scale).max(LEAST_BYTES);
    let runs = if once < LEAST_BYTES { (LEAST_BYTES / once).ceil() } else { wanted / once };
    let bytes = once * runs;
    let mut playing = Task::new(stage, spec, task, &spec.id.to_lowercase(), bytes)?;
    stage.setup_done()?;
    let pace = HALF_AN_HOUR.as_secs_f64() / (spec.volume_gb * 1e9);
    let mut idle = 0;
    while (playing.done().bytes() as f64) < bytes {
        let step = playing.step(stage, playing.done())?;
        idle = progress(idle, step)?;
        pass(stage, step.bytes() as f64 * pace)?;
    }
    Ok(Values::from([("runs".to_owned(), runs)]))
}

/// Steps in a row that wrote nothing, after one more; too many mean that syncs do not reach what measures them.
fn progress(idle: u32, step: Totals) -> Result<u32> {
    match (step.pages, idle) {
        (0, IDLE_STEPS..) => {
            Err(Error::Check("the application's syncs write nothing: it would never end".into()))
        }
        (0, _) => Ok(idle + 1),
        _ => Ok(0),
    }
}

fn pass(stage: &Stage, seconds: f64) -> Result<()> {
    stage.target.pass(Duration::from_secs_f64(seconds)).map_err(Error::io("letting time pass"))
}

/// Share of files below 3.69 MB among those that were written.
pub fn small_share(touched: &std::collections::BTreeMap<String, u64>) -> f64 {
    if touched.is_empty() {
        return 1.0;
    }
    touched.values().filter(|size| **size < SMALL_FILE).count() as f64 / touched.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_whole() {
        let apps = apps().unwrap();
        assert_eq!(apps.len(), 7);
        assert_eq!(apps.iter().map(|a| a.task.len()).sum::<usize>(), 23);
        for app in apps {
            let t = app.types;
            assert!((t.sqlite + t.temp + t.other - 100.0).abs() < 0.01, "{}", app.id);
        }
        // Section 3: 77.1% of what is written are updates, which change 13.8% of their page, on average.
        let mean = |of: fn(&TaskSpec) -> f64| {
            let all: Vec<f64> = apps.iter().flat_map(|a| a.task.iter().map(of)).collect();
            all.iter().sum::<f64>() / all.len() as f64
        };
        assert!((mean(|t| t.updates) - 77.1).abs() < 2.0, "{}", mean(|t| t.updates));
        assert!((mean(|t| t.difference) - 13.8).abs() < 1.0, "{}", mean(|t| t.difference));
        let types = |of: fn(&Types) -> f64| apps.iter().map(|a| of(&a.types)).sum::<f64>() / 7.0;
        assert!((types(|t| t.sqlite) - 54.4).abs() < 0.5 && (types(|t| t.temp) - 14.5).abs() < 0.5);
    }
}
