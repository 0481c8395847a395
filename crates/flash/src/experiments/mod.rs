//! The paper's figures, each a function from a seed and a scale to rows with its value beside ours.
//!
//! Nothing here is tuned to meet a number: workloads are made from what the paper's text and tables say (Tables 1 and 4, section 4), and a
//! row that is further than 20% from the paper's says why.

mod beyond;
mod content;
mod latency;
mod matrix;
mod workload;

pub use content::{Sample, sample_files};
pub use matrix::{Cell, cell};
pub use workload::{APPS, App, Kind};

use crate::error::{FlashError, Result};
use serde::Serialize;
use std::path::PathBuf;

/// The paper that all of them are of.
pub const PAPER: &str = "Lightweight Data Compression for Mobile Flash Storage (LDC)";

/// Smallest and largest [`Options::scale`].
pub const SCALES: std::ops::RangeInclusive<f64> = 0.001..=4.0;

/// Relative difference from the paper above which a row gives its reason.
pub const EXPLAINED_ABOVE: f64 = 0.2;

/// One number of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What it is.
    pub label: String,
    /// The line that it is a point of, where an experiment varies a parameter and the label is its value.
    pub series: String,
    /// The paper's value; `None` where the paper gives no number.
    pub paper: Option<f64>,
    /// Ours.
    pub ours: f64,
    /// Of both.
    pub unit: &'static str,
    /// Why they differ, where they do by more than [`EXPLAINED_ABOVE`]; otherwise what is to be known of the row.
    pub reason: Option<String>,
}

impl Row {
    fn new(label: impl Into<String>, paper: Option<f64>, ours: f64, unit: &'static str) -> Row {
        Row { label: label.into(), series: String::new(), paper, ours, unit, reason: None }
    }

    fn of_series(mut self, series: &str) -> Row {
        self.series = series.to_owned();
        self
    }

    fn because(mut self, reason: &str) -> Row {
        self.reason = Some(reason.to_owned());
        self
    }

    /// The reason only where the row differs from the paper.
    fn if_off(self, reason: &str) -> Row {
        if self.is_off() { self.because(reason) } else { self }
    }

    /// Whether it differs from the paper by more than [`EXPLAINED_ABOVE`].
    pub fn is_off(&self) -> bool {
        self.paper.is_some_and(|paper| (self.ours - paper).abs() > EXPLAINED_ABOVE * paper.abs())
    }
}

/// What experiments are run with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Seed of everything.
    pub seed: u64,
    /// Of the paper's 16 GB device and its workloads: 1 is all of it.
    pub scale: f64,
    /// Files and folders whose pages are looked at, where an experiment looks at real content.
    pub files: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        let files = ["/usr/bin", "/usr/lib", "/usr/share", "/var/lib"].map(PathBuf::from).to_vec();
        Options { seed: 1, scale: 0.125, files }
    }
}

/// Hears how far an experiment is, from 0 to 1.
pub type Progress<'a> = &'a mut dyn FnMut(f64);

/// An experiment.
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// Where in the paper.
    pub figure: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What is done, in a sentence or two.
    pub about: &'static str,
    /// The parameter that is varied; empty where none is.
    pub across: &'static str,
    /// Runs it.
    pub run: fn(&Options, Progress<'_>) -> Result<Vec<Row>>,
}

/// What the runs of all methods on all workloads are.
const RUNS: &str = "A device of the paper's kind, as large as the scale says, is filled with pages of known compressibility; then each workload is \
    replayed three times on each method. Times are those of the device's own clock.";

/// All experiments, in the paper's order.
pub const ALL: [Experiment; 7] = [
    Experiment {
        name: "ldc-fig2",
        figure: "Fig. 2",
        title: "Compressibility of volume snapshots",
        about: "Pages of files of this machine, sampled, compressed one by one with LZO.",
        across: "",
        run: content::fig2,
    },
    Experiment {
        name: "ldc-fig3",
        figure: "Fig. 3 and Table 4",
        title: "Compressibility and size of the workloads' writes",
        about: "The workloads that the other experiments replay, beside what the paper says of its traces.",
        across: "",
        run: workload::fig3,
    },
    Experiment {
        name: "ldc-fig5",
        figure: "Fig. 5, Table 2 and section 5.1",
        title: "Entropy and ratio, the predictor's error and cost",
        about: "Pages of files of this machine, sampled: their entropy beside what LZO makes of them, and the time of both.",
        across: "",
        run: content::fig5,
    },
    Experiment {
        name: "ldc-fig8",
        figure: "Fig. 8",
        title: "Pages compressed, erases, time of garbage collection",
        about: RUNS,
        across: "",
        run: matrix::fig8,
    },
    Experiment {
        name: "ldc-fig9",
        figure: "Fig. 9",
        title: "Write, read and worst-case latency",
        about: RUNS,
        across: "",
        run: latency::fig9,
    },
    Experiment {
        name: "ldc-fig10",
        figure: "Fig. 10",
        title: "Write latency by the controller's clock",
        about: RUNS,
        across: "MHz of the controller's clock",
        run: latency::fig10,
    },
    Experiment {
        name: "ldc-beyond",
        figure: "beyond the paper",
        title: "LZ4 and zstd, a better predictor, hot and cold apart",
        about: "What the paper does not have, each beside the paper's way, on the same workload.",
        across: "",
        run: beyond::beyond,
    },
];

/// An experiment by its name.
///
/// # Errors
/// No such experiment.
pub fn find(name: &str) -> Result<&'static Experiment> {
    let names: Vec<&str> = ALL.iter().map(|e| e.name).collect();
    ALL.iter()
        .find(|e| e.name == name)
        .ok_or_else(|| FlashError::Usage(format!("no experiment '{name}': use one of {}", names.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_when_they_are_off() {
        assert!(!Row::new("", Some(100.0), 119.0, "%").is_off());
        assert!(Row::new("", Some(-50.0), -20.0, "%").is_off());
        assert!(!Row::new("", None, 1.0, "%").is_off());
        assert!(Row::new("", Some(1.0), 2.0, "").if_off("so").reason.is_some());
        assert!(Row::new("", Some(1.0), 1.1, "").if_off("so").reason.is_none());
    }

    #[test]
    fn every_figure_runs_small_and_explains_itself() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..40u64 {
            let ratio = i as f64 / 40.0;
            let pages: Vec<u8> = (0..20).flat_map(|p| crate::synth::bytes(ratio, i * 100 + p)).collect();
            std::fs::write(dir.path().join(format!("{i}.so")), pages).unwrap();
        }
        let options = Options { seed: 3, scale: 0.004, files: vec![dir.path().to_owned()] };
        for experiment in &ALL {
            let mut last = 0.0;
            let rows = (experiment.run)(&options, &mut |part| last = part).unwrap();
            assert!(rows.len() >= 4, "{}: {} rows", experiment.name, rows.len());
            for row in &rows {
                assert!(row.ours.is_finite(), "{}: {row:?}", experiment.name);
                assert!(
                    !row.is_off() || row.reason.is_some(),
                    "{}: {row:?} gives no reason",
                    experiment.name
                );
            }
            assert!(last > 0.9, "{}: {last}", experiment.name);
        }
    }
}
