//! An experiment while it runs: records workloads, runs cells, keeps their files.

use super::spec::Spec;
use crate::cell::{CELL_FORMAT, Cell, Machine, file_name, write_json};
use crate::error::{Error, Result};
use crate::model::Times;
use crate::runner::{self, Job, Wanted};
use crate::scheme::{self, Scheme};
use crate::workload::{self, Recording};
use std::path::PathBuf;

/// An observer that is told how far an experiment is.
pub trait Progress {
    /// So many steps are to come.
    fn begin(&self, steps: u64);
    /// The next step begins.
    fn step(&self, what: &str);
}

/// An observer that does nothing.
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _steps: u64) {}
    fn step(&self, _what: &str) {}
}

/// Settings of a run.
pub struct Settings<'s> {
    /// Folder for result files; it is made.
    pub out: PathBuf,
    /// Seed of all workloads.
    pub seed: u64,
    /// Instead of the experiment's own scale.
    pub scale: Option<f64>,
    /// Files and folders whose pages LDC's experiments look at; empty: this system's.
    pub files: Vec<PathBuf>,
    /// Is told how far it is.
    pub progress: &'s dyn Progress,
}

/// An experiment while it runs.
pub struct Lab<'s> {
    /// Its file.
    pub spec: Spec,
    /// Part of the full size.
    pub scale: f64,
    /// The settings.
    pub settings: &'s Settings<'s>,
}

/// A cell that ran, and its file; or the sentence that says why it did not.
pub enum Outcome {
    /// It ran.
    Ran(Box<Cell>, String),
    /// It is not available here.
    NotAvailable(String),
}

impl Lab<'_> {
    /// Tells the progress what is to come.
    pub fn begin(&self, steps: usize) {
        self.settings.progress.begin(steps as u64);
    }

    /// What requests take, which the file has to say.
    ///
    /// # Errors
    /// It does not.
    pub fn times(&self) -> Result<Times> {
        self.spec.times.clone().ok_or_else(|| Error::Spec {
            file: format!("experiments/{}.toml", self.spec.name),
            message: "times are missing".into(),
        })
    }

    /// Records a workload of the list.
    pub fn record(&self, name: &str) -> Result<Recording> {
        self.settings.progress.step(&format!("recording {name}"));
        workload::record(self.settings.seed, self.scale, &workload::find(name)?.run)
    }

    /// The schemes of the file, with its options.
    pub fn schemes(&self) -> Result<Vec<Scheme>> {
        self.spec.schemes.iter().map(|name| Ok(scheme::find(name)?.with(&self.spec.options))).collect()
    }

    /// Runs a cell and writes its file.
    pub fn cell(
        &self,
        workload: &str,
        scheme: &Scheme,
        variant: &str,
        recording: &Recording,
    ) -> Result<Outcome> {
        self.cell_wanting(workload, scheme, variant, recording, Wanted::default())
    }

    /// The same with more results.
    pub fn cell_wanting(
        &self,
        workload: &str,
        scheme: &Scheme,
        variant: &str,
        recording: &Recording,
        wanted: Wanted,
    ) -> Result<Outcome> {
        let step = [workload, scheme.name.as_str(), variant].into_iter().filter(|w| !w.is_empty());
        self.settings.progress.step(&step.collect::<Vec<_>>().join(" "));
        if let Err(sentence) = scheme.mount_options() {
            return Ok(Outcome::NotAvailable(sentence));
        }
        let job = Job {
            experiment: &self.spec.name,
            workload,
            scheme,
            variant,
            seed: self.settings.seed,
            scale: self.scale,
            blocks: self.spec.device_gib << 18,
            times: self.spec.times.as_ref(),
            wanted,
        };
        let cell = runner::run(&job, recording)?;
        let file = self.keep(&cell)?;
        Ok(Outcome::Ran(Box::new(cell), file))
    }

    /// A cell of the experiment in which nothing is measured yet, of a workload on such a device.
    pub fn blank_cell(&self, workload: &str, device: impl Into<String>) -> Cell {
        Cell {
            format: CELL_FORMAT.into(),
            experiment: self.spec.name.clone(),
            workload: workload.into(),
            program: concat!("medfs ", env!("CARGO_PKG_VERSION")).into(),
            machine: Machine::here(),
            seed: self.settings.seed,
            scale: self.scale,
            device: device.into(),
            ..Cell::default()
        }
    }

    /// Writes a cell's file; returns its name.
    pub fn keep(&self, cell: &Cell) -> Result<String> {
        let name = file_name(&[&cell.experiment, &cell.workload, &cell.scheme, &cell.variant]);
        write_json(&self.settings.out, &name, cell)?;
        Ok(name)
    }
}
