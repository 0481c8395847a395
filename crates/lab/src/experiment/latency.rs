//! What takes how long, on a device model in virtual time: I/O latency (Fig. 9), what a user waits for (Fig.
//! 8), and how often the page cache is hit (Fig. 10).

use super::lab::{Lab, Outcome};
use super::volume::{Column, rows_of};
use crate::cell::{Cell, Row};
use crate::error::Result;
use crate::workload::app::{self, AppSpec, TaskSpec, Types};
use crate::workload::{Recording, record};
use std::collections::BTreeMap;

/// Per cent that `ours` is below `base`.
fn lower(ours: f64, base: f64) -> f64 {
    100.0 * (1.0 - ours / base)
}

fn mean_latency(cell: &Cell, kinds: &[&str]) -> f64 {
    let of = |kind: &&str| cell.latency_us.get(*kind);
    let count: u64 = kinds.iter().filter_map(of).map(|l| l.count).sum();
    total_latency(cell, kinds) / count as f64
}

fn total_latency(cell: &Cell, kinds: &[&str]) -> f64 {
    kinds.iter().filter_map(|kind| cell.latency_us.get(*kind)).map(|l| l.mean * l.count as f64).sum()
}

/// Measures of a cell: name, and the value of a cell against the first scheme's.
type Measure = (&'static str, fn(&Cell, &Cell) -> f64);

/// Runs every scheme on every recording; the columns are named `SCHEME` and measure.
fn columns(
    lab: &Lab<'_>,
    recordings: &mut dyn Iterator<Item = Result<(String, Recording)>>,
    with_first: bool,
    measures: &[Measure],
) -> Result<Vec<Row>> {
    let schemes = lab.schemes()?;
    let mut columns: BTreeMap<(usize, usize), Column> = BTreeMap::new();
    for recorded in recordings {
        let (name, recording) = recorded?;
        let label = name.trim_start_matches("app-").to_uppercase();
        let mut base: Option<(Box<Cell>, String)> = None;
        for (n, scheme) in schemes.iter().enumerate() {
            match lab.cell(&name, scheme, "", &recording)? {
                Outcome::NotAvailable(sentence) => {
                    for m in 0..measures.len() {
                        columns.entry((m, n)).or_default().reason = Some(sentence.clone());
                    }
                }
                Outcome::Ran(cell, file) => {
                    let first = base.get_or_insert_with(|| (cell.clone(), file.clone()));
                    if n == 0 && !with_first {
                        continue;
                    }
                    for (m, (_, measure)) in measures.iter().enumerate() {
                        let files = vec![file.clone(), first.1.clone()];
                        columns.entry((m, n)).or_default().values.push((
                            label.clone(),
                            measure(&cell, &first.0),
                            files,
                        ));
                    }
                }
            }
        }
    }
    let named = |(m, n): &(usize, usize)| match measures[*m].0 {
        "" => schemes[*n].name.clone(),
        measure => format!("{} {measure}", schemes[*n].name),
    };
    Ok(columns.iter().flat_map(|(key, column)| rows_of(lab, &named(key), column)).collect())
}

/// Fig. 9: per cent that reads and writes are faster than without deltas.
pub(super) fn io(lab: &Lab<'_>) -> Result<Vec<Row>> {
    lab.begin(lab.spec.workloads.len() * (1 + lab.spec.schemes.len()));
    let mut recordings = lab.spec.workloads.iter().map(|w| Ok((w.clone(), lab.record(w)?)));
    let measures: [Measure; 2] = [
        ("read", |c, b| lower(mean_latency(c, &["read"]), mean_latency(b, &["read"]))),
        ("write", |c, b| lower(mean_latency(c, &["fsync"]), mean_latency(b, &["fsync"]))),
    ];
    columns(lab, &mut recordings, false, &measures)
}

/// Fig. 10: hit rate of the page cache in per cent.
pub(super) fn hit_rates(lab: &Lab<'_>) -> Result<Vec<Row>> {
    lab.begin(lab.spec.workloads.len() * (1 + lab.spec.schemes.len()));
    let mut recordings = lab.spec.workloads.iter().map(|w| Ok((w.clone(), lab.record(w)?)));
    let hits: Measure = ("", |c, _| 100.0 * c.values.get("page_hit_rate").copied().unwrap_or(f64::NAN));
    columns(lab, &mut recordings, true, &[hits])
}

/// An application that was used before it is switched away from: section 6.2.2 gives the type of file that
/// dominates; updates and their difference are the averages of section 3.
fn switching(id: &str, name: &str, sqlite: f64, temp: f64) -> AppSpec {
    AppSpec {
        id: id.into(),
        name: name.into(),
        volume_gb: 0.5,
        requests: 20_000.0,
        write_share: 78.0,
        compression: 36.8,
        delta_compression: 97.4,
        types: Types { sqlite, temp, other: 100.0 - sqlite - temp },
        task: vec![TaskSpec {
            name: format!("use {name}, then switch"),
            volume_mb: 80.0,
            small: 90.0,
            updates: 77.1,
            difference: 13.8,
        }],
    }
}

/// Fig. 8: per cent that the I/O of what a user waits for is faster.
pub(super) fn perceived(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let (seed, scale) = (lab.settings.seed, lab.scale);
    let launch = |id: &str| -> Result<Recording> {
        let spec = app::app(id)?;
        record(seed, scale, &|stage| app::run_task(stage, spec, &spec.task[0]))
    };
    let switch = |spec: AppSpec| record(seed, scale, &|stage| app::run_task(stage, &spec, &spec.task[0]));
    lab.begin(5 * (1 + lab.spec.schemes.len()));
    let mut recordings = ["GM", "PS", "EA", "FB", "IM"].into_iter().map(|scenario| {
        lab.settings.progress.step(&format!("recording {scenario}"));
        let recording = match scenario {
            "GM" | "PS" => launch(scenario)?,
            "EA" => switch(switching("EA", "Earth", 86.3, 5.0))?,
            "FB" => switch(switching("FB", "Facebook", 15.0, 74.5))?,
            _ => record(seed, scale, &crate::workload::contacts::run)?,
        };
        Ok((scenario.to_owned(), recording))
    });
    let waits: Measure = ("", |c, b| {
        let all = ["read", "write", "fsync", "name"];
        lower(total_latency(c, &all), total_latency(b, &all))
    });
    columns(lab, &mut recordings, false, &[waits])
}
