//! What is written: by scheme (Fig. 7), by type of file (Fig. 1), and what it means for the flash's life.

use super::lab::{Lab, Outcome};
use crate::cell::{Cell, MEAN, Row};
use crate::error::{Error, Result};
use crate::runner::Wanted;
use crate::totals::{FileType, SMALL_FILE};
use crate::workload::Recording;
use std::collections::BTreeMap;

/// Percentages of one scheme by workload, with the files they are from.
#[derive(Default)]
pub(super) struct Column {
    pub(super) values: Vec<(String, f64, Vec<String>)>,
    pub(super) reason: Option<String>,
}

/// Per cent that `cell` writes less than `base`.
fn less(cell: &Cell, base: &Cell) -> f64 {
    100.0 * (1.0 - cell.written.total as f64 / base.written.total as f64)
}

/// Rows of a column: one for each workload, and their mean.
pub(super) fn rows_of(lab: &Lab<'_>, scheme: &str, column: &Column) -> Vec<Row> {
    let mut rows: Vec<Row> =
        column.values.iter().map(|(label, v, cells)| lab.spec.row(label, scheme, Some(*v), cells)).collect();
    let mean = column.values.iter().map(|(_, v, _)| v).sum::<f64>() / column.values.len() as f64;
    let cells: Vec<String> = column.values.iter().flat_map(|(.., cells)| cells.clone()).collect();
    let mut row = lab.spec.row(MEAN, scheme, Some(mean), &cells);
    if let Some(reason) = &column.reason {
        row.reason = reason.clone();
    }
    rows.push(row);
    rows
}

/// Every scheme on every workload; each compared with the first scheme by `of`.
fn compare(lab: &Lab<'_>, of: fn(&Cell, &Cell) -> f64) -> Result<Vec<Row>> {
    let schemes = lab.schemes()?;
    let mut columns: BTreeMap<usize, Column> = BTreeMap::new();
    lab.begin(lab.spec.workloads.len() * (1 + schemes.len()));
    for workload in &lab.spec.workloads {
        let recording = lab.record(workload)?;
        let label = workload.trim_start_matches("app-").to_uppercase();
        let mut base: Option<(Box<Cell>, String)> = None;
        for (n, scheme) in schemes.iter().enumerate() {
            let wanted = Wanted { segments: workload == &lab.spec.workloads[0], extents: false };
            match (lab.cell_wanting(workload, scheme, "", &recording, wanted)?, &base) {
                (Outcome::NotAvailable(sentence), _) => columns.entry(n).or_default().reason = Some(sentence),
                (Outcome::Ran(cell, file), None) => base = Some((cell, file)),
                (Outcome::Ran(cell, file), Some((first, first_file))) => {
                    let value = (label.clone(), of(&cell, first), vec![file, first_file.clone()]);
                    columns.entry(n).or_default().values.push(value);
                }
            }
        }
    }
    Ok(columns.iter().flat_map(|(n, column)| rows_of(lab, &schemes[*n].name, column)).collect())
}

/// Fig. 7: per cent written less than without compression.
pub(super) fn reductions(lab: &Lab<'_>) -> Result<Vec<Row>> {
    compare(lab, less)
}

/// Section 6.2.1: years of a phone's flash by Eq. 1, and how much longer it lasts.
pub(super) fn lifetime(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let [written, capacity, cycles, wa_fs, wa_flash] = lab.spec.numbers("phone")? else {
        let message = "numbers.phone needs GB a month, GB, cycles, and two write amplifications".into();
        return Err(Error::Spec { file: "experiments/medfs-lifetime.toml".into(), message });
    };
    // Eq. 1 without spare space: the days until each block was written as often as it stands.
    let years = |share: f64| cycles * capacity / (written * 12.0 * wa_fs * wa_flash * share);
    let rows = reductions(lab)?;
    let Some(mean) = rows.iter().find(|r| r.is_mean()) else { return Ok(Vec::new()) };
    let share = 1.0 - mean.ours.unwrap_or(f64::NAN) / 100.0;
    let mut longer = lab.spec.row("longer life", "MedFS", Some(100.0 * (1.0 / share - 1.0)), &mean.cells);
    longer.unit = "%".into();
    Ok(vec![
        longer,
        lab.spec.row("years", "NODC", Some(years(1.0)), &[]),
        lab.spec.row("years", "MedFS", Some(years(share)), &mean.cells),
    ])
}

/// Mean share of the inode that is free for deltas, over the small files that were written.
fn free_inline(recording: &Recording) -> f64 {
    let small: Vec<f64> = recording
        .touched
        .values()
        .filter(|size| **size < SMALL_FILE)
        .map(|size| 1.0 - size.div_ceil(4096) as f64 * 4.0 / (SMALL_FILE / 4096 * 4) as f64)
        .collect();
    100.0 * small.iter().sum::<f64>() / small.len().max(1) as f64
}

/// Fig. 1: what is written by type of file, free inline area, and hit rates of inodes and pages.
pub(super) fn file_types(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let schemes = lab.schemes()?;
    lab.begin(lab.spec.workloads.len() * (1 + schemes.len()));
    let mut columns: BTreeMap<String, Column> = BTreeMap::new();
    for workload in &lab.spec.workloads {
        let recording = lab.record(workload)?;
        let label = workload.trim_start_matches("app-").to_uppercase();
        let wanted = Wanted { segments: true, extents: true };
        let Outcome::Ran(cell, file) = lab.cell_wanting(workload, &schemes[0], "", &recording, wanted)?
        else {
            continue;
        };
        let mut put = |name: &str, value: f64| {
            columns.entry(name.into()).or_default().values.push((label.clone(), value, vec![file.clone()]));
        };
        for kind in FileType::ALL {
            put(kind.name(), 100.0 * recording.totals.type_share(kind));
        }
        put("free inline area", free_inline(&recording));
        for (name, value) in [("inode hits", "inode_hit_rate"), ("page hits", "page_hit_rate")] {
            put(name, 100.0 * cell.values.get(value).copied().unwrap_or(f64::NAN));
        }
    }
    Ok(columns.iter().flat_map(|(name, column)| rows_of(lab, name, column)).collect())
}
