//! Experiments: what is measured, beside what a paper says.
//!
//! An experiment is a short TOML file (`experiments/NAME.toml`: what it is, what it runs, the paper's figures, and why ours
//! differ) and a function that runs its cells and turns them into rows. Adding one is adding both, and an entry in [`ALL`].
//! LDC's experiments need no file: `medfs-flash` has them, and they stand in the list as they are ([`ldc`]).

mod hotness;
mod latency;
pub mod ldc;
mod overhead;
mod sensitivity;
mod tables;
mod volume;

use crate::cell::{Cell, FIGURE_FORMAT, Figure, Row, file_name, write_json};
use crate::error::{Error, Result};
use crate::model::Times;
use crate::runner::{self, Job, Wanted};
use crate::scheme::{self, Scheme};
use crate::workload::{self, Recording};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

/// A figure of the paper, and why ours differs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// What is compared; must be what the function calls it.
    pub label: String,
    /// Scheme or variant, where there are several.
    #[serde(default)]
    pub scheme: String,
    /// The paper's figure; absent where it gives none as a number.
    pub value: Option<f64>,
    /// Why ours differs, in one sentence.
    #[serde(default)]
    pub reason: String,
}

/// The file of an experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Its name on the command line.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Where in which paper.
    pub paper: String,
    /// What is done, in a few sentences.
    pub about: String,
    /// What the figures cannot say.
    #[serde(default)]
    pub notes: Vec<String>,
    /// How the report draws it: `bars`, `latency`, `scatter`, `lines`, `agreement`, `table`.
    pub plot: String,
    /// What a plot of lines has across.
    #[serde(default)]
    pub across: String,
    /// Unit of the figures.
    pub unit: String,
    /// Part of the full size that is run where nobody says otherwise.
    pub scale: f64,
    /// Size of the devices, in GiB; F2FS changes its policies at 16.
    #[serde(default = "default_gib")]
    pub device_gib: u64,
    /// Times of the device model.
    pub times: Option<Times>,
    /// Workloads.
    #[serde(default)]
    pub workloads: Vec<String>,
    /// Schemes, the one that others are compared with first.
    #[serde(default)]
    pub schemes: Vec<String>,
    /// Mount options of every scheme.
    #[serde(default)]
    pub options: String,
    /// Numbers that the function varies or assumes, by name.
    #[serde(default)]
    pub numbers: BTreeMap<String, Vec<f64>>,
    /// The paper's figures.
    #[serde(default)]
    pub expect: Vec<Expect>,
}

fn default_gib() -> u64 {
    32
}

impl Spec {
    /// Reads a file; `file` names it in errors.
    pub fn parse(file: &str, text: &str) -> Result<Spec> {
        let wrong = |message: String| Error::Spec { file: file.into(), message };
        let spec: Spec = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        if !(spec.scale > 0.0 && spec.scale <= 1.0) {
            return Err(wrong(format!("scale is {}, not above 0 and at most 1", spec.scale)));
        }
        for name in &spec.schemes {
            scheme::find(name)?;
        }
        for name in &spec.workloads {
            workload::find(name)?;
        }
        Ok(spec)
    }

    /// Numbers by name; an error names the file's field.
    pub fn numbers(&self, name: &str) -> Result<&[f64]> {
        let found = self.numbers.get(name).filter(|n| !n.is_empty());
        found.map(Vec::as_slice).ok_or_else(|| Error::Spec {
            file: format!("experiments/{}.toml", self.name),
            message: format!("numbers.{name} is missing"),
        })
    }

    /// A figure of these rows.
    pub(crate) fn figure(&self, rows: Vec<Row>) -> Figure {
        Figure {
            format: FIGURE_FORMAT.into(),
            experiment: self.name.clone(),
            title: self.title.clone(),
            paper: self.paper.clone(),
            about: self.about.clone(),
            notes: self.notes.clone(),
            plot: self.plot.clone(),
            across: self.across.clone(),
            rows,
        }
    }

    /// A row: the paper's side from the file.
    pub fn row(&self, label: &str, scheme: &str, ours: Option<f64>, cells: &[String]) -> Row {
        let expect = self.expect.iter().find(|e| e.label == label && e.scheme == scheme);
        Row {
            label: label.into(),
            scheme: scheme.into(),
            paper: expect.and_then(|e| e.value),
            ours: ours.filter(|o| o.is_finite()),
            unit: self.unit.clone(),
            reason: expect.map_or_else(String::new, |e| e.reason.clone()),
            cells: cells.to_vec(),
        }
    }
}

/// An experiment in the list.
pub enum Entry {
    /// One of the lab's own.
    File {
        /// Its file, as text.
        text: &'static str,
        /// Runs its cells and makes its rows, in order.
        run: fn(&Lab<'_>) -> Result<Vec<Row>>,
    },
    /// One of LDC's.
    Flash(&'static medfs_flash::experiments::Experiment),
}

impl Entry {
    const fn file(text: &'static str, run: fn(&Lab<'_>) -> Result<Vec<Row>>) -> Entry {
        Entry::File { text, run }
    }

    /// Its file, read; of one of LDC's, what the file would say.
    pub fn spec(&self) -> Result<Spec> {
        match self {
            Entry::File { text, .. } => {
                let name = text.lines().find_map(|l| l.strip_prefix("name = ")).unwrap_or("?");
                Spec::parse(&format!("experiments/{}.toml", name.trim_matches('"')), text)
            }
            Entry::Flash(experiment) => Ok(ldc::spec(experiment)),
        }
    }

    fn run(&self, lab: &Lab<'_>) -> Result<Vec<Row>> {
        match self {
            Entry::File { run, .. } => run(lab),
            Entry::Flash(experiment) => ldc::run(lab, experiment),
        }
    }
}

/// The lab's own experiments, in the order of the list. A new one is a line here.
static FILES: &[Entry] = &[
    Entry::file(include_str!("../../experiments/medfs-tables.toml"), tables::run),
    Entry::file(include_str!("../../experiments/medfs-fig1.toml"), volume::file_types),
    Entry::file(include_str!("../../experiments/medfs-fig7.toml"), volume::reductions),
    Entry::file(include_str!("../../experiments/medfs-lifetime.toml"), volume::lifetime),
    Entry::file(include_str!("../../experiments/medfs-fig8.toml"), latency::perceived),
    Entry::file(include_str!("../../experiments/medfs-fig9.toml"), latency::io),
    Entry::file(include_str!("../../experiments/medfs-fig10.toml"), latency::hit_rates),
    Entry::file(include_str!("../../experiments/medfs-fig11a.toml"), hotness::clusters),
    Entry::file(include_str!("../../experiments/medfs-fig11b.toml"), hotness::reads),
    Entry::file(include_str!("../../experiments/medfs-fig12a.toml"), sensitivity::threshold),
    Entry::file(include_str!("../../experiments/medfs-fig12b.toml"), sensitivity::eviction),
    Entry::file(include_str!("../../experiments/medfs-overhead.toml"), overhead::run),
    Entry::file(include_str!("../../experiments/workloads.toml"), volume::reductions),
];

/// Every experiment, in the order of the list: the lab's own, then LDC's.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    static FLASH: LazyLock<Vec<Entry>> =
        LazyLock::new(|| medfs_flash::experiments::ALL.iter().map(Entry::Flash).collect());
    FILES.iter().chain(FLASH.iter())
}

/// The experiment of this name.
pub fn find(name: &str) -> Result<(&'static Entry, Spec)> {
    let mut names = Vec::new();
    for entry in all() {
        let spec = entry.spec()?;
        if spec.name == name {
            return Ok((entry, spec));
        }
        names.push(spec.name);
    }
    Err(Error::Unknown(format!("no experiment is named '{name}'; there are: {}", names.join(", "))))
}

/// Somebody who is told how far an experiment is.
pub trait Progress {
    /// So many steps are to come.
    fn begin(&self, steps: u64);
    /// The next step begins.
    fn step(&self, what: &str);
}

/// Nobody is told.
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _steps: u64) {}
    fn step(&self, _what: &str) {}
}

/// How an experiment is to be run.
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
    /// How it is run.
    pub settings: &'s Settings<'s>,
}

/// Runs an experiment and writes its result files.
pub fn run(name: &str, settings: &Settings<'_>) -> Result<Figure> {
    let (entry, spec) = find(name)?;
    let scale = settings.scale.unwrap_or(spec.scale);
    if !(scale > 0.0 && scale <= 1.0) {
        return Err(Error::Unknown(format!("the scale {scale} is not above 0 and at most 1")));
    }
    fs::create_dir_all(&settings.out).map_err(Error::io(format!("making {}", settings.out.display())))?;
    let lab = Lab { spec, scale, settings };
    let rows = entry.run(&lab)?;
    let figure = lab.spec.figure(rows);
    write_json(&settings.out, &file_name(&["figure", name]), &figure)?;
    Ok(figure)
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

    /// Writes a cell's file; returns its name.
    pub fn keep(&self, cell: &Cell) -> Result<String> {
        let name = file_name(&[&cell.experiment, &cell.workload, &cell.scheme, &cell.variant]);
        write_json(&self.settings.out, &name, cell)?;
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_right_and_names_differ() {
        let mut names: Vec<String> = all().map(|e| e.spec().unwrap().name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(find("no-such").err().unwrap().to_string().contains("medfs-fig7"));
    }

    #[test]
    fn a_wrong_file_is_named_with_its_field() {
        let fig7 = include_str!("../../experiments/medfs-fig7.toml");
        let text = fig7.replace("scale = ", "scales = ");
        let error = Spec::parse("experiments/x.toml", &text).unwrap_err().to_string();
        assert!(error.starts_with("experiments/x.toml: ") && error.contains("scales"), "{error}");
        let text = fig7.replace("\"NODC\"", "\"NADA\"");
        assert!(Spec::parse("x", &text).unwrap_err().to_string().contains("'NADA'"));
    }
}
