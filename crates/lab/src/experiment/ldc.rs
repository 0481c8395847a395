//! LDC's experiments, which are `medfs-flash`'s: its rows become figures and a cell, and nothing of them is
//! repeated here.

use super::lab::Lab;
use super::spec::Spec;
use crate::cell::{CELL_FORMAT, Cell, Figure, Machine, Row};
use crate::error::{Error, Result};
use medfs_flash::experiments::{Experiment, Options, PAPER, Progress, SCALES};
use std::cell::Cell as Count;
use std::collections::BTreeMap;

/// What the cells call the workload.
const WORKLOAD: &str = "ldc";
/// Steps of an experiment that its progress is told in.
const STEPS: usize = 100;

/// What a file of the experiment would say.
pub(super) fn spec(experiment: &Experiment) -> Spec {
    Spec {
        name: experiment.name.into(),
        title: experiment.title.into(),
        paper: format!("{PAPER}, {}", experiment.figure),
        about: experiment.about.into(),
        notes: Vec::new(),
        plot: if experiment.across.is_empty() { "bars-alone" } else { "lines" }.into(),
        across: experiment.across.into(),
        unit: String::new(),
        scale: Options::default().scale,
        device_gib: 0,
        times: None,
        workloads: Vec::new(),
        schemes: Vec::new(),
        options: String::new(),
        numbers: BTreeMap::new(),
        expect: Vec::new(),
    }
}

/// Runs an experiment without a folder for results.
///
/// # Errors
/// The experiment's, and a scale that it does not have.
pub fn figure(experiment: &Experiment, options: &Options, progress: Progress<'_>) -> Result<Figure> {
    Ok(spec(experiment).figure(rows(experiment, options, progress)?))
}

/// The name of a row's value in the result file: rows of several units have the same name.
fn value_name(row: &Row) -> String {
    [row.name(), row.unit.clone()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// A reason with a capital letter and a full stop, as all others are.
fn sentence(reason: &str) -> String {
    let mut letters = reason.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

fn rows(experiment: &Experiment, options: &Options, progress: Progress<'_>) -> Result<Vec<Row>> {
    if !SCALES.contains(&options.scale) {
        let (least, most) = (SCALES.start(), SCALES.end());
        let message =
            format!("{}: the scale {} is not from {least} to {most}", experiment.name, options.scale);
        return Err(Error::Unknown(message));
    }
    let of = |row: medfs_flash::experiments::Row| Row {
        label: row.label,
        scheme: row.series,
        paper: row.paper,
        ours: Some(row.ours),
        unit: row.unit.into(),
        reason: row.reason.map_or_else(String::new, |reason| sentence(&reason)),
        cells: Vec::new(),
    };
    let found = (experiment.run)(options, progress).map_err(|e| Error::Flash(experiment.name.into(), e))?;
    Ok(found.into_iter().map(of).collect())
}

/// Runs an experiment of the list; its cell has every row's figure by its label.
pub(super) fn run(lab: &Lab<'_>, experiment: &Experiment) -> Result<Vec<Row>> {
    let mut options = Options { seed: lab.settings.seed, scale: lab.scale, ..Options::default() };
    if !lab.settings.files.is_empty() {
        options.files.clone_from(&lab.settings.files);
    }
    lab.begin(STEPS);
    let told = Count::new(0);
    let started = std::time::Instant::now();
    let mut rows = rows(experiment, &options, &mut |part| {
        while told.get() < (part * STEPS as f64) as usize {
            told.set(told.get() + 1);
            lab.settings.progress.step(experiment.title);
        }
    })?;
    let cell = Cell {
        format: CELL_FORMAT.into(),
        experiment: experiment.name.into(),
        workload: WORKLOAD.into(),
        program: concat!("medfs ", env!("CARGO_PKG_VERSION")).into(),
        machine: Machine::here(),
        seed: options.seed,
        scale: options.scale,
        device: "models of flash devices in memory".into(),
        values: rows.iter().filter_map(|row| Some((value_name(row), row.ours?))).collect(),
        wall_seconds: started.elapsed().as_secs_f64(),
        ..Cell::default()
    };
    let file = lab.keep(&cell)?;
    rows.iter_mut().for_each(|row| row.cells.push(file.clone()));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Settings, Silent, find, run};
    use medfs_flash::experiments::{ALL, Row as FlashRow};

    #[test]
    fn rows_of_several_units_have_values_of_their_own() {
        let row = |scheme: &str, unit: &str| Row {
            label: "GE".into(),
            scheme: scheme.into(),
            paper: None,
            ours: Some(1.0),
            unit: unit.into(),
            reason: String::new(),
            cells: Vec::new(),
        };
        assert_eq!(value_name(&row("zFTL", "(a) % more")), "GE zFTL, (a) % more");
        assert_ne!(value_name(&row("zFTL", "(a) % more")), value_name(&row("zFTL", "(b) % more")));
        assert_eq!(value_name(&row("", "")), "GE");
    }

    #[test]
    fn every_experiment_of_the_flash_crate_is_in_the_list() {
        for experiment in &ALL {
            let (_, spec) = find(experiment.name).unwrap();
            assert!(spec.paper.contains(experiment.figure), "{}", spec.paper);
        }
    }

    #[test]
    fn rows_are_the_flash_crates_and_name_their_cell() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            out: dir.path().into(),
            seed: 3,
            scale: Some(0.004),
            files: Vec::new(),
            progress: &Silent,
        };
        let figure = run("ldc-fig3", &settings).unwrap();
        let options = Options { seed: 3, scale: 0.004, ..Options::default() };
        let fig3 = medfs_flash::experiments::find("ldc-fig3").unwrap();
        let theirs: Vec<FlashRow> = (fig3.run)(&options, &mut |_| ()).unwrap();
        assert_eq!(figure.rows.len(), theirs.len());
        for (row, of) in figure.rows.iter().zip(&theirs) {
            assert_eq!(
                (&row.label, row.paper, row.ours, &*row.unit),
                (&of.label, of.paper, Some(of.ours), of.unit)
            );
            assert_eq!(row.cells, ["ldc-fig3_ldc.json"]);
            assert_eq!(row.reason.is_empty(), of.reason.is_none());
        }
        let cell = std::fs::read(dir.path().join("ldc-fig3_ldc.json")).unwrap();
        let cell: Cell = serde_json::from_slice(&cell).unwrap();
        assert_eq!(cell.values.len(), figure.rows.len(), "each row has its value in the file");
        let small = Settings { scale: Some(0.0001), ..settings };
        let error = run("ldc-fig3", &small).unwrap_err().to_string();
        assert!(error.contains("0.0001") && error.contains("0.001"), "{error}");
    }
}
