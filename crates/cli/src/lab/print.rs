//! The figures of an experiment as text: a table, why ours differ, and what is to be known.

use super::{table, trimmed};
use crate::words::COLUMNS;
use comfy_table::CellAlignment;
use medfs_lab::cell::{Figure, Row};
use medfs_lab::report::{show, show_paper, show_ratio};

/// The figures of an experiment: rows that the paper has a figure for, and means, unless all are wanted; the
/// others are in the files.
pub(crate) fn print(figure: &Figure, all: bool) {
    let compared = |r: &Row| r.paper.is_some() || r.is_mean();
    let some = !all && figure.rows.iter().any(compared);
    let shown = |r: &Row| !some || compared(r);
    let rows: Vec<&Row> = figure.rows.iter().filter(|r| shown(r)).collect();
    outln!("{}: {}\n\n{}\n", figure.experiment, figure.title, rows_of(&rows));
    let left_out = figure.rows.len() - rows.len();
    if left_out > 0 {
        outln!("{left_out} more figures are in the result files and on the page.\n");
    }
    let mut told = false;
    for (of, reason) in figure.reasons(shown) {
        outln!("{}", wrapped(&format!("{of}: {reason}")));
        told = true;
    }
    for note in &figure.notes {
        outln!("{}", wrapped(note));
        told = true;
    }
    if told {
        outln!("");
    }
}

/// A column: its name, whether any row has something in it, and what a row has.
type Column = (&'static str, bool, fn(&Row) -> String);

/// A table without the columns that would be empty.
fn rows_of(rows: &[&Row]) -> String {
    let (schemes, compared) =
        (rows.iter().any(|r| !r.scheme.is_empty()), rows.iter().any(|r| r.paper.is_some()));
    let columns: Vec<Column> = vec![
        ("what", true, |r| r.label.clone()),
        ("scheme", schemes, |r| r.scheme.clone()),
        ("paper", compared, |r| r.paper.map_or_else(|| "-".into(), show_paper)),
        ("ours", true, |r| r.ours.map_or_else(|| "-".into(), show)),
        ("ratio", compared, |r| r.ratio().map_or_else(|| "-".into(), show_ratio)),
        ("unit", true, |r| r.unit.clone()),
    ];
    let columns: Vec<Column> = columns.into_iter().filter(|(_, any, _)| *any).collect();
    let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
    let mut out = table(&names);
    for (n, name) in names.iter().enumerate() {
        if let (Some(column), true) = (out.column_mut(n), ["paper", "ours", "ratio"].contains(name)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for row in rows {
        out.add_row(columns.iter().map(|(.., of)| of(row)));
    }
    trimmed(&out)
}

/// Text in lines of at most 80 columns, further ones indented.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let len = word.chars().count();
        if column > 0 && column + 1 + len > COLUMNS {
            out.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += len;
    }
    out
}
