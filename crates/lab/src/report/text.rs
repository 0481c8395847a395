//! Reports that other programs read: Markdown, JSON, CSV.

use super::numbers::{ours_or_dash, paper_or_dash, ratio_or_dash};
use super::results::Report;
use crate::error::{Error, Result};
use std::fmt::Write;

/// One line of a Markdown table never breaks it.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Every figure as a table.
pub(super) fn markdown(report: &Report) -> String {
    let mut out = String::from("# medfs lab\n");
    for named in &report.figures {
        let figure = &named.result;
        let _ = writeln!(
            out,
            "\n## {} (`{}`)\n\n{}. {}\n",
            figure.title, figure.experiment, figure.paper, figure.about
        );
        let _ = writeln!(out, "| what | scheme | paper | ours | ratio | unit | why they differ | from |");
        let _ = writeln!(out, "|---|---|---:|---:|---:|---|---|---|");
        for row in &figure.rows {
            let from = match row.cells.as_slice() {
                [] => named.file.clone(),
                [one] => one.clone(),
                [one, ..] => format!("{one} and {} more", row.cells.len() - 1),
            };
            let fields = [
                cell(&row.label),
                cell(&row.scheme),
                paper_or_dash(row.paper),
                ours_or_dash(row.ours),
                ratio_or_dash(row.ratio()),
                cell(&row.unit),
                cell(&row.reason),
                cell(&from),
            ];
            let _ = writeln!(out, "| {} |", fields.join(" | "));
        }
        for note in &figure.notes {
            let _ = writeln!(out, "\n{note}");
        }
    }
    for name in report.loose() {
        let _ = writeln!(
            out,
            "\n## {name}\n\n| workload | scheme | options | MB written | from |\n|---|---|---|---:|---|"
        );
        for named in report.cells_of(name) {
            let c = &named.result;
            let megabytes = c.written.total as f64 / 1e6;
            let fields = [&c.workload, &c.scheme, &c.options].map(|f| cell(f)).join(" | ");
            let _ = writeln!(out, "| {fields} | {megabytes:.2} | {} |", cell(&named.file));
        }
    }
    for problem in &report.problems {
        let _ = writeln!(out, "\nNot shown: {problem}");
    }
    out
}

/// Everything in one document.
pub(super) fn json(report: &Report) -> Result<Vec<u8>> {
    let mut text =
        serde_json::to_vec_pretty(report).map_err(|e| Error::Unknown(format!("writing JSON: {e}")))?;
    text.push(b'\n');
    Ok(text)
}

/// The columns of tables for programs.
pub(super) const COLUMNS: [&str; 9] =
    ["experiment", "label", "scheme", "paper", "ours", "ratio", "unit", "reason", "cells"];

/// Every row of every figure.
pub(super) fn csv(report: &Report) -> Result<Vec<u8>> {
    let wrong = |e: csv::Error| Error::Unknown(format!("writing CSV: {e}"));
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(COLUMNS).map_err(wrong)?;
    let number = |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
    for named in &report.figures {
        for row in &named.result.rows {
            let fields = [
                named.result.experiment.clone(),
                row.label.clone(),
                row.scheme.clone(),
                number(row.paper),
                number(row.ours),
                number(row.ratio()),
                row.unit.clone(),
                row.reason.clone(),
                row.cells.join(" "),
            ];
            out.write_record(&fields).map_err(wrong)?;
        }
    }
    out.into_inner().map_err(|e| Error::Unknown(format!("writing CSV: {e}")))
}
