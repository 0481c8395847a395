//! Which plots a section has: the experiment says what kind, its cells what else there is to draw.

use crate::cell::{Cell, Figure, Row};
use crate::report::charts::{self, Axes};
use crate::report::numbers::workload_name;
use crate::report::results::Named;

/// The schemes of cells, in the order in which they are compared.
fn schemes_of(cells: &[&Named<Cell>]) -> Vec<String> {
    let order = ["NODC", "DC", "DC+", "FPC", "DCI", "DCM", "MedFS", "medfs"];
    let mut names: Vec<String> =
        cells.iter().map(|c| c.result.scheme.clone()).filter(|s| !s.is_empty()).collect();
    names.sort_by_key(|n| (order.iter().position(|o| o == n).unwrap_or(order.len()), n.clone()));
    names.dedup();
    names
}

/// The rows that sum an experiment up: means and what the paper has a number for; all where there are none.
fn summary(figure: &Figure) -> Vec<(String, &Row)> {
    let main: Vec<&Row> = figure.rows.iter().filter(|r| r.is_mean() || r.paper.is_some()).collect();
    let alone = main.is_empty() || figure.rows.len() <= BARS_FEW;
    let rows = if alone { figure.rows.iter().collect() } else { main };
    rows.into_iter().map(|r| (r.name(), r)).collect()
}

/// As many rows are all drawn.
const BARS_FEW: usize = 16;

/// The units of rows, in the order of their first appearance.
fn units<'r>(rows: impl Iterator<Item = &'r Row>) -> Vec<&'r str> {
    let mut units: Vec<&str> = Vec::new();
    for row in rows {
        if !units.contains(&row.unit.as_str()) {
            units.push(&row.unit);
        }
    }
    units
}

/// The title of one of several plots, each of a unit.
fn title_of(figure: &Figure, unit: &str, of: usize) -> String {
    if of > 1 && !unit.is_empty() { format!("{}: {unit}", figure.title) } else { figure.title.clone() }
}

/// Bars of the rows that sum an experiment up, a plot for each unit.
fn bars_by_unit(figure: &Figure) -> String {
    bars_of(figure, &summary(figure))
}

fn bars_of(figure: &Figure, rows: &[(String, &Row)]) -> String {
    let units = units(rows.iter().map(|(_, r)| *r));
    let one = |unit: &&str| {
        let of: Vec<(String, &Row)> = rows.iter().filter(|(_, r)| r.unit == **unit).cloned().collect();
        charts::bars(&title_of(figure, unit, units.len()), &of)
    };
    units.iter().map(one).collect()
}

/// Series of a plot of groups, as many as there are colours.
const SERIES_MOST: usize = 8;

/// The rows of a unit that make groups: each label with several schemes.
fn group_rows<'f>(figure: &'f Figure, unit: &str) -> Vec<&'f Row> {
    let of_unit = |r: &&Row| r.unit == unit && !r.scheme.is_empty() && !r.is_mean();
    let mut rows: Vec<&Row> = figure.rows.iter().filter(of_unit).collect();
    let all = rows.clone();
    rows.retain(|row| all.iter().any(|other| other.label == row.label && other.scheme != row.scheme));
    let count = |of: fn(&Row) -> &str| {
        let mut names: Vec<&str> = rows.iter().map(|r| of(r)).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    };
    let (labels, schemes) = (count(|r| &r.label), count(|r| &r.scheme));
    if labels < 2 || !(2..=SERIES_MOST).contains(&schemes) { Vec::new() } else { rows }
}

/// Bars, and a plot of groups for each unit whose rows make any; rows in groups are no bars of their own
/// unless they are the paper's.
fn bars_and_groups(figure: &Figure) -> String {
    let units = units(figure.rows.iter());
    let grouped: Vec<(&str, Vec<&Row>)> =
        units.iter().map(|unit| (*unit, group_rows(figure, unit))).collect();
    let in_group = |row: &Row| grouped.iter().any(|(unit, rows)| row.unit == *unit && !rows.is_empty());
    let mut bars = summary(figure);
    bars.retain(|(_, r)| r.is_mean() || r.paper.is_some() || !in_group(r));
    let groups = grouped.iter().filter(|(_, rows)| !rows.is_empty());
    let draw = |(unit, rows): &(&str, Vec<&Row>)| charts::groups(&title_of(figure, unit, 2), unit, rows);
    bars_of(figure, &bars) + &groups.map(draw).collect::<String>()
}

/// The number that a label is, where it is one, with its unit or without: `20%`, `5`, `140 MHz`.
fn number(label: &str) -> Option<f64> {
    let digits = label.trim_end_matches(|c: char| c == '%' || c == ' ' || c.is_ascii_alphabetic());
    digits.parse().ok().filter(|n: &f64| n.is_finite())
}

/// Lines over labels that are numbers, one for each scheme with this unit.
fn swept(figure: &Figure, unit: &str) -> Vec<charts::Line> {
    let mut lines: Vec<charts::Line> = Vec::new();
    for row in figure.rows.iter().filter(|r| r.unit == unit) {
        let (Some(x), Some(y)) = (number(&row.label), row.ours) else { continue };
        match lines.iter_mut().find(|l| l.name == row.scheme) {
            Some(line) => line.points.push((x, y)),
            None => lines.push(charts::Line { name: row.scheme.clone(), points: vec![(x, y)] }),
        }
    }
    lines.iter_mut().for_each(|l| l.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines
}

/// A plot of lines for each unit that has any.
fn lines_by_unit(figure: &Figure) -> String {
    let swept_rows = figure.rows.iter().filter(|r| number(&r.label).is_some());
    let units = units(swept_rows);
    let one = |unit: &&str| {
        let logarithmic = figure.across.ends_with("logarithmic");
        let axes =
            Axes { across: &figure.across, up: unit, logarithmic, from_zero: logarithmic, marked: true };
        charts::lines(&title_of(figure, unit, units.len()), &axes, &swept(figure, unit))
    };
    units.iter().map(one).collect()
}

fn first_workload<'c>(cells: &[&'c Named<Cell>]) -> Vec<&'c Named<Cell>> {
    let Some(first) = cells.first().map(|c| c.result.workload.clone()) else { return Vec::new() };
    cells.iter().copied().filter(|c| c.result.workload == first).collect()
}

/// What was written: by cause, and over time.
fn written(cells: &[&Named<Cell>], schemes: &[String]) -> String {
    let plain: Vec<&Named<Cell>> = cells.iter().copied().filter(|c| c.result.variant.is_empty()).collect();
    let one = first_workload(&plain);
    let Some(first) = one.first().filter(|_| schemes.len() > 1) else { return String::new() };
    let title = format!("Write amplification over time, {}", workload_name(&first.result.workload));
    charts::causes("Written by cause, in relation to the first scheme", &plain, schemes)
        + &charts::amplification(&title, &one, schemes)
}

fn on(cell: &Cell) -> String {
    format!("{} on {}", workload_name(&cell.workload), cell.scheme)
}

/// Maps of segments: of the first scheme, and of the last.
fn maps(cells: &[&Named<Cell>], schemes: &[String]) -> String {
    let place = |cell: &Cell| schemes.iter().position(|s| *s == cell.scheme);
    let mut maps: Vec<_> =
        cells.iter().filter_map(|c| Some((&c.result, c.result.segments.as_ref()?))).collect();
    maps.sort_by_key(|(cell, _)| place(cell));
    let last = maps.len().saturating_sub(1);
    let shown = maps.iter().enumerate().filter(|(n, _)| *n == 0 || *n == last);
    let draw = |(_, (cell, map)): (usize, &(&Cell, &crate::cell::SegmentMap))| {
        let title = format!(
            "Segments that hold anything, in order, {}: filled as far as their blocks are valid",
            on(cell)
        );
        charts::segment_map(&title, map)
    };
    shown.map(draw).collect()
}

/// Plots that any cells have: by cause, over time, maps.
pub(super) fn common(cells: &[&Named<Cell>]) -> String {
    let schemes = schemes_of(cells);
    let scattered = cells.iter().find(|c| !c.result.extents.is_empty()).map(|c| {
        let title = format!("Extents of the most scattered files, {}", on(&c.result));
        charts::extents(&title, &c.result.extents)
    });
    written(cells, &schemes) + &scattered.unwrap_or_default() + &maps(cells, &schemes)
}

fn latency(figure: &Figure, cells: &[&Named<Cell>]) -> String {
    let schemes = schemes_of(cells);
    let of = |title: &str, kind: &str| charts::distribution(title, kind, cells, &schemes);
    charts::bars(&figure.title, &summary(figure))
        + &of("Reads: share that took no longer, all workloads", "read")
        + &of("fsyncs: share that took no longer, all workloads", "fsync")
}

/// The plots of an experiment.
pub(super) fn of(figure: &Figure, cells: &[&Named<Cell>]) -> String {
    match figure.plot.as_str() {
        "table" => String::new(),
        "agreement" => {
            let title = "Each characteristic of each task and application against the tables";
            charts::agreement(title, &figure.rows)
        }
        "lines" => lines_by_unit(figure),
        "scatter" => {
            let files: Vec<_> = cells.iter().flat_map(|c| c.result.hotness.iter().cloned()).collect();
            charts::scatter(&figure.title, &files) + &bars_by_unit(figure)
        }
        "latency" => latency(figure, cells),
        "bars-alone" => bars_and_groups(figure),
        _ => bars_by_unit(figure) + &common(cells),
    }
}
