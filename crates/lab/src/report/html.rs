//! The page. Templates are in `templates/`; plots are made by [`super::charts`].

use super::charts;
use super::{Named, Report, show, show_or_dash};
use crate::cell::{Cell, Figure, Machine, Row};
use crate::error::{Error, Result};
use crate::runner::size_in_words;
use askama::Template;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'p> {
    sections: Vec<Section>,
    headline: Vec<Headline>,
    runs: Vec<Run>,
    raw: Vec<Raw>,
    problems: &'p [String],
    program: String,
}

/// A figure beside the paper's that stands at the head of the page.
struct Headline {
    scheme: String,
    ours: String,
    paper: String,
    unit: String,
    section: String,
}

struct Section {
    id: String,
    title: String,
    paper: String,
    about: String,
    notes: Vec<String>,
    /// Plots, as markup that was escaped where it was made.
    plots: String,
    rows: Vec<Line>,
    file: String,
}

/// A table of figures; a folded one opens when it is asked to.
struct Figures<'s> {
    rows: Vec<&'s Line>,
    folded: bool,
}

impl Section {
    /// All figures in one table where they are few; of many those that sum up or have the paper's beside them, and all, folded.
    fn tables(&self) -> Vec<Figures<'_>> {
        let all: Vec<&Line> = self.rows.iter().collect();
        if all.len() <= ROWS_OPEN {
            return vec![Figures { rows: all, folded: false }];
        }
        let main: Vec<&Line> = all.iter().copied().filter(|l| l.main).collect();
        let mut tables = vec![Figures { rows: all, folded: true }];
        if !main.is_empty() && main.len() <= ROWS_OPEN {
            tables.insert(0, Figures { rows: main, folded: false });
        }
        tables
    }
}

/// A table of more rows is folded.
const ROWS_OPEN: usize = 24;

struct Line {
    /// Whether it sums up, or has the paper's beside it.
    main: bool,
    label: String,
    scheme: String,
    paper: String,
    ours: String,
    ratio: String,
    unit: String,
    reason: String,
    cells: Vec<String>,
    more: usize,
}

/// What was run where.
struct Run {
    experiment: String,
    cells: usize,
    program: String,
    machine: String,
    seed: String,
    scale: String,
    wall: String,
}

struct Raw {
    file: String,
    anchor: String,
    workload: String,
    scheme: String,
    options: String,
    device: String,
    written: String,
    causes: String,
    findings: String,
}

fn anchor(file: &str) -> String {
    format!("raw-{}", file.trim_end_matches(".json"))
}

/// Files named in a row; further ones are counted.
const CELLS_SHOWN: usize = 2;

fn line(row: &Row, figure_file: &str) -> Line {
    let cells = if row.cells.is_empty() { vec![figure_file.to_owned()] } else { row.cells.clone() };
    Line {
        main: row.label == "mean" || row.paper.is_some(),
        label: row.label.clone(),
        scheme: row.scheme.clone(),
        paper: show_or_dash(row.paper),
        ours: show_or_dash(row.ours),
        ratio: show_or_dash(row.ratio()),
        unit: row.unit.clone(),
        reason: row.reason.clone(),
        more: cells.len().saturating_sub(CELLS_SHOWN),
        cells: cells.into_iter().take(CELLS_SHOWN).collect(),
    }
}

fn schemes_of(cells: &[&Named<Cell>]) -> Vec<String> {
    let order = ["NODC", "DC", "DC+", "FPC", "DCI", "DCM", "MedFS", "medfs"];
    let mut names: Vec<String> =
        cells.iter().map(|c| c.result.scheme.clone()).filter(|s| !s.is_empty()).collect();
    names.sort_by_key(|n| (order.iter().position(|o| o == n).unwrap_or(order.len()), n.clone()));
    names.dedup();
    names
}

/// More bars than these are shown where the paper has a number only; all are in the table.
const BARS_MOST: usize = 24;

/// The rows that sum an experiment up: means, or all where there are few.
fn summary(figure: &Figure) -> Vec<(String, &Row)> {
    let means: Vec<&Row> = figure.rows.iter().filter(|r| r.label == "mean").collect();
    if !means.is_empty() {
        return means.into_iter().map(|r| (r.scheme.clone(), r)).collect();
    }
    let both =
        |r: &Row| if r.scheme.is_empty() { r.label.clone() } else { format!("{} {}", r.label, r.scheme) };
    figure.rows.iter().map(|r| (both(r), r)).collect()
}

/// Bars of the rows that sum an experiment up, a plot for each unit; where the paper has many numbers, of those.
fn bars_by_unit(figure: &Figure) -> String {
    let mut rows = summary(figure);
    if rows.len() > BARS_MOST && rows.iter().any(|(_, r)| r.paper.is_some()) {
        rows.retain(|(_, r)| r.paper.is_some());
    }
    let mut units: Vec<&str> = Vec::new();
    for (_, row) in &rows {
        if !units.contains(&row.unit.as_str()) {
            units.push(&row.unit);
        }
    }
    let one = |unit: &&str| {
        let of: Vec<(String, &Row)> = rows.iter().filter(|(_, r)| r.unit == **unit).cloned().collect();
        charts::bars(&figure.title, &of)
    };
    units.iter().map(one).collect()
}

/// Lines over labels that are numbers (`20%`, `5`), one for each scheme.
fn swept(figure: &Figure) -> Vec<charts::Line> {
    let number = |label: &str| label.trim_end_matches('%').parse::<f64>().ok();
    let mut lines: Vec<charts::Line> = Vec::new();
    for row in &figure.rows {
        let (Some(x), Some(y)) = (number(&row.label), row.ours) else { continue };
        match lines.iter_mut().find(|l| l.name == row.scheme) {
            Some(line) => line.points.push((x, y)),
            None => lines.push(charts::Line { name: row.scheme.clone(), points: vec![(x, y)] }),
        }
    }
    lines.iter_mut().for_each(|l| l.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines
}

fn first_workload<'c>(cells: &[&'c Named<Cell>]) -> Vec<&'c Named<Cell>> {
    let Some(first) = cells.first().map(|c| c.result.workload.clone()) else { return Vec::new() };
    cells.iter().copied().filter(|c| c.result.workload == first).collect()
}

/// Plots that any cells have: by cause, over time, maps.
fn common_plots(cells: &[&Named<Cell>]) -> String {
    let schemes = schemes_of(cells);
    let plain: Vec<&Named<Cell>> = cells.iter().copied().filter(|c| c.result.variant.is_empty()).collect();
    let mut out = String::new();
    if schemes.len() > 1 {
        out += &charts::causes("Written by cause, in relation to the first scheme", &plain, &schemes);
        let one = first_workload(&plain);
        if let Some(name) = one.first().map(|c| c.result.workload.clone()) {
            out += &charts::amplification(&format!("Write amplification over time, {name}"), &one, &schemes);
        }
    }
    for cell in cells.iter().filter(|c| !c.result.extents.is_empty()).take(1) {
        let title = format!(
            "Extents of the most scattered files, {} on {}",
            cell.result.workload, cell.result.scheme
        );
        out += &charts::extents(&title, &cell.result.extents);
    }
    let maps: Vec<_> = cells.iter().filter_map(|c| Some((c, c.result.segments.as_ref()?))).collect();
    let shown = [maps.first(), maps.last()].into_iter().flatten();
    let mut before = "";
    for (cell, map) in shown {
        if before != cell.file {
            let title = format!(
                "Segments that hold anything, in order, {} on {}: filled as far as their blocks are valid",
                cell.result.workload, cell.result.scheme
            );
            out += &charts::segment_map(&title, map);
        }
        before = &cell.file;
    }
    out
}

fn plots(figure: &Figure, cells: &[&Named<Cell>]) -> String {
    let schemes = schemes_of(cells);
    match figure.plot.as_str() {
        "table" => String::new(),
        "agreement" => charts::agreement(
            "Each characteristic of each task and application against the tables",
            &figure.rows,
        ),
        "lines" => {
            let lines = swept(figure);
            let unit = figure.rows.first().map(|r| r.unit.clone()).unwrap_or_default();
            charts::lines(&figure.title, (&figure.across, &unit), &lines, false)
        }
        "scatter" => {
            let files: Vec<_> = cells.iter().flat_map(|c| c.result.hotness.iter().cloned()).collect();
            charts::scatter(&figure.title, &files) + &charts::bars("Groups", &summary(figure))
        }
        "latency" => {
            charts::bars(&figure.title, &summary(figure))
                + &charts::distribution(
                    "Reads: share that took no longer, all workloads",
                    "read",
                    cells,
                    &schemes,
                )
                + &charts::distribution(
                    "fsyncs: share that took no longer, all workloads",
                    "fsync",
                    cells,
                    &schemes,
                )
        }
        _ => bars_by_unit(figure) + &common_plots(cells),
    }
}

fn section(report: &Report, named: &Named<Figure>) -> Section {
    let figure = &named.result;
    let cells: Vec<&Named<Cell>> = report.cells_of(&figure.experiment).collect();
    Section {
        id: figure.experiment.clone(),
        title: figure.title.clone(),
        paper: figure.paper.clone(),
        about: figure.about.clone(),
        notes: figure.notes.clone(),
        plots: plots(figure, &cells),
        rows: figure.rows.iter().map(|r| line(r, &named.file)).collect(),
        file: named.file.clone(),
    }
}

/// Cells without a figure.
fn loose_section(report: &Report, name: &str) -> Section {
    let cells: Vec<&Named<Cell>> = report.cells_of(name).collect();
    let rows = cells.iter().map(|named| {
        let c = &named.result;
        Line {
            main: true,
            label: c.workload.clone(),
            scheme: [c.scheme.as_str(), c.variant.as_str()].join(" ").trim().to_owned(),
            paper: "–".into(),
            ours: show(c.written.total as f64 / 1e6),
            ratio: "–".into(),
            unit: "MB written".into(),
            reason: c.options.clone(),
            cells: vec![named.file.clone()],
            more: 0,
        }
    });
    Section {
        id: if name.is_empty() { "runs".into() } else { name.to_owned() },
        title: if name.is_empty() { "Runs".into() } else { name.to_owned() },
        paper: String::new(),
        about: "Results without a paper's figure beside them.".into(),
        notes: Vec::new(),
        plots: common_plots(&cells),
        rows: rows.collect(),
        file: String::new(),
    }
}

fn machine(m: &Machine) -> String {
    let cores = if m.cores == 1 { "1 core".into() } else { format!("{} cores", m.cores) };
    let parts = [m.processor.clone(), cores, format!("Linux {}", m.kernel), m.architecture.clone()];
    parts.join(", ")
}

fn runs(report: &Report) -> Vec<Run> {
    let mut names: Vec<&str> = report.figures.iter().map(|f| f.result.experiment.as_str()).collect();
    names.extend(report.loose());
    let run = |name: &&str| {
        let cells: Vec<&Cell> = report.cells_of(name).map(|c| &c.result).collect();
        let first = cells.first()?;
        Some(Run {
            experiment: (*name).to_owned(),
            cells: cells.len(),
            program: first.program.clone(),
            machine: machine(&first.machine),
            seed: first.seed.to_string(),
            scale: first.scale.to_string(),
            wall: format!("{:.0} s", cells.iter().map(|c| c.wall_seconds).sum::<f64>()),
        })
    };
    names.iter().filter_map(run).collect()
}

fn raw(named: &Named<Cell>) -> Raw {
    let c = &named.result;
    let causes = c.written.causes().into_iter().filter(|(_, bytes)| *bytes > 0);
    let causes: Vec<String> =
        causes.map(|(name, bytes)| format!("{name} {}", size_in_words(bytes as f64))).collect();
    Raw {
        file: named.file.clone(),
        anchor: anchor(&named.file),
        workload: c.workload.clone(),
        scheme: [c.scheme.as_str(), c.variant.as_str()].join(" ").trim().to_owned(),
        options: c.options.clone(),
        device: c.device.clone(),
        written: size_in_words(c.written.total as f64),
        causes: causes.join(", "),
        findings: c.check_findings.map_or_else(|| "–".into(), |n| n.to_string()),
    }
}

/// The means of Fig. 7 where they are there, otherwise of the first experiment that has means.
fn headline(report: &Report) -> Vec<Headline> {
    let has_means = |f: &&Named<Figure>| f.result.rows.iter().any(|r| r.label == "mean" && r.ours.is_some());
    let preferred = report.figures.iter().find(|f| f.result.experiment == "medfs-fig7");
    let Some(figure) = preferred.or_else(|| report.figures.iter().find(has_means)) else { return Vec::new() };
    let rows = figure.result.rows.iter().filter(|r| r.label == "mean");
    rows.map(|r| Headline {
        scheme: r.scheme.clone(),
        ours: show_or_dash(r.ours),
        paper: show_or_dash(r.paper),
        unit: r.unit.clone(),
        section: figure.result.experiment.clone(),
    })
    .collect()
}

/// The whole page.
pub(super) fn page(report: &Report) -> Result<String> {
    let mut sections: Vec<Section> = report.figures.iter().map(|f| section(report, f)).collect();
    sections.extend(report.loose().into_iter().map(|name| loose_section(report, name)));
    let page = Page {
        sections,
        headline: headline(report),
        runs: runs(report),
        raw: report.cells.iter().map(raw).collect(),
        problems: &report.problems,
        program: concat!("medfs ", env!("CARGO_PKG_VERSION")).into(),
    };
    page.render().map_err(|e| Error::Unknown(format!("writing the page: {e}")))
}
