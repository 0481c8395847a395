//! What an experiment takes and gives: options, and rows with the paper's value beside ours.

use serde::Serialize;
use std::path::PathBuf;

/// Relative difference from the paper above which a row gives its reason.
pub const EXPLAINED_ABOVE: f64 = 0.2;

/// One number of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Label of the row.
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
    pub(super) fn new(label: impl Into<String>, paper: Option<f64>, ours: f64, unit: &'static str) -> Row {
        Row { label: label.into(), series: String::new(), paper, ours, unit, reason: None }
    }

    pub(super) fn of_series(mut self, series: &str) -> Row {
        self.series = series.to_owned();
        self
    }

    pub(super) fn because(mut self, reason: &str) -> Row {
        self.reason = Some(reason.to_owned());
        self
    }

    /// The reason only where the row differs from the paper.
    pub(super) fn if_off(self, reason: &str) -> Row {
        if self.is_off() { self.because(reason) } else { self }
    }

    /// Whether it differs from the paper by more than [`EXPLAINED_ABOVE`].
    pub fn is_off(&self) -> bool {
        self.paper.is_some_and(|paper| (self.ours - paper).abs() > EXPLAINED_ABOVE * paper.abs())
    }
}

/// Options of a run of experiments.
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
}
