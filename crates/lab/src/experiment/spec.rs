//! The file of an experiment: what it is, what it runs, and the paper's figures.

use crate::cell::{FIGURE_FORMAT, Figure, Row};
use crate::error::{Error, Result};
use crate::model::Times;
use crate::{scheme, workload};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A figure of the paper, and why ours differs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The compared thing; must be what the function calls it.
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
    /// The paper, and the figure or table in it.
    pub paper: String,
    /// A few sentences on what is done.
    pub about: String,
    /// Limits of the figures.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The report's drawing: `bars`, `latency`, `scatter`, `lines`, `agreement`, `table`.
    pub plot: String,
    /// The horizontal axis of a plot of lines.
    #[serde(default)]
    pub across: String,
    /// Unit of the figures.
    pub unit: String,
    /// Part of the full size that is run by default.
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

#[cfg(test)]
mod tests {
    use super::*;

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
