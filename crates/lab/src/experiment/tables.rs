//! Tables 1 and 2: what the synthesised applications are like, beside the paper's tables.

use super::lab::Lab;
use crate::cell::Row;
use crate::error::Result;
use crate::runner::characteristics;
use crate::workload::app::{AppSpec, TaskSpec, apps, run_spec, run_task, small_share};
use crate::workload::{Recording, record};
use medfs_flash::experiments::EXPLAINED_ABOVE;

/// Reasons that do not depend on the run.
const GMAIL_DELTAS: &str = "Of the deltas up to 256 bytes, which an inode takes; of all updates it cannot be, as the update \
difference of Table 1 shows (our figure for all of them is in the result file).";
const REQUESTS: &str = "Requests grow by steps of more pages, as far as a task has a hundred steps: at a small scale there are fewer, and \
requests stay smaller; and SQLite syncs its journal and its database apart.";
const SPREAD: &str = "How much an update changes is drawn from a distribution with a long tail, of which the mean of one task's updates is off by chance.";

/// The row with the reason where it is off.
fn if_off(row: Row, reason: &str) -> Row {
    match row.ratio() {
        Some(ratio) if (ratio - 1.0).abs() > EXPLAINED_ABOVE => Row { reason: reason.into(), ..row },
        _ => row,
    }
}

fn cell_of(lab: &Lab<'_>, workload: &str, recording: &Recording) -> Result<String> {
    let mut cell = lab.blank_cell(workload, "none: the operations alone are measured");
    characteristics(&mut cell, recording);
    lab.keep(&cell)
}

fn row(label: &str, name: &str, unit: &str, paper: f64, ours: f64, file: &str) -> Row {
    Row {
        label: label.into(),
        scheme: name.into(),
        paper: Some(paper),
        ours: Some(ours),
        unit: unit.into(),
        reason: String::new(),
        cells: vec![file.into()],
    }
}

fn task_rows(lab: &Lab<'_>, app: &AppSpec, task: &TaskSpec) -> Result<Vec<Row>> {
    let label = format!("{}: {}", app.id, task.name);
    lab.settings.progress.step(&label);
    let r = record(lab.settings.seed, lab.scale, &|stage| run_task(stage, app, task))?;
    let file = cell_of(lab, &label, &r)?;
    let runs = r.values.get("runs").copied().unwrap_or(1.0);
    let t = r.totals;
    Ok(vec![
        row(&label, "volume", "MB", task.volume_mb, t.bytes() as f64 / 1e6 / runs, &file),
        row(&label, "small files", "%", task.small, 100.0 * small_share(&r.touched), &file),
        row(&label, "UR", "%", task.updates, 100.0 * t.update_ratio(), &file),
        if_off(row(&label, "UD", "%", task.difference, 100.0 * t.update_difference(), &file), SPREAD),
    ])
}

fn app_rows(lab: &Lab<'_>, app: &AppSpec) -> Result<Vec<Row>> {
    lab.settings.progress.step(&app.name);
    let r = record(lab.settings.seed, lab.scale, &|stage| run_spec(stage, app))?;
    let file = cell_of(lab, &app.id, &r)?;
    let t = r.totals;
    let mut deltas =
        row(&app.id, "DCR", "%", app.delta_compression, 100.0 * t.small_delta_compression(), &file);
    deltas.reason = GMAIL_DELTAS.into();
    let request = row(&app.id, "request", "kB", app.request_pages() * 4.096, t.request_bytes() / 1e3, &file);
    Ok(vec![
        row(
            &app.id,
            "volume",
            "GB in half an hour",
            app.volume_gb,
            t.bytes() as f64 / 1e9 / lab.scale,
            &file,
        ),
        row(&app.id, "RW", "%", app.write_share, 100.0 * t.write_share(), &file),
        row(&app.id, "CCR", "%", app.compression, 100.0 * t.compression(), &file),
        deltas,
        if_off(request, REQUESTS),
    ])
}

/// One row for each figure of both tables.
pub(super) fn run(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let apps = apps()?;
    lab.begin(apps.iter().map(|a| a.task.len() + 1).sum());
    let mut rows = Vec::new();
    for app in apps {
        for task in &app.task {
            rows.extend(task_rows(lab, app, task)?);
        }
    }
    for app in apps {
        rows.extend(app_rows(lab, app)?);
    }
    Ok(rows)
}
