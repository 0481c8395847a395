//! The paper's figures, each a function from a seed and a scale to rows with its value beside ours.
//!
//! Nothing here is tuned to meet a number: workloads are made from what the paper's text and tables say
//! (Tables 1 and 4, section 4), and a row that is further than 20% from the paper's says why.

mod beyond;
mod content;
mod latency;
mod matrix;
mod row;
mod workload;

pub use content::{Sample, sample_files};
pub use matrix::{Cell, cell};
pub use row::{EXPLAINED_ABOVE, Options, Progress, Row};
pub use workload::{APPS, App, Kind};

use crate::error::{FlashError, Result};

/// The paper that all of them are of.
pub const PAPER: &str = "Lightweight Data Compression for Mobile Flash Storage (LDC)";

/// Smallest and largest [`Options::scale`].
pub const SCALES: std::ops::RangeInclusive<f64> = 0.001..=4.0;

/// An experiment.
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// The figure or section of the paper.
    pub figure: &'static str,
    /// Its title.
    pub title: &'static str,
    /// A sentence or two on what is done.
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
