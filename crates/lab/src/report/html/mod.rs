//! The page. Templates are in `templates/`; plots are chosen by [`plots`] and made by [`super::charts`].

mod plots;

use super::numbers::{NONE, ours_or_dash, paper_or_dash, ratio_or_dash, show, show_paper};
use super::results::{Named, Report};
use crate::cell::{Cell, Figure, Machine, Row};
use crate::error::{Error, Result};
use crate::runner::size_in_words;
use crate::scheme;
use askama::Template;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'p> {
    sections: Vec<Section>,
    headline: Vec<Headline>,
    /// The designs that are compared, each with what it is.
    designs: Vec<(String, String)>,
    runs: Vec<Run>,
    raw: Vec<Raw>,
    problems: &'p [String],
    base: &'p str,
    program: String,
}

/// A figure beside the paper's that stands at the head of the page.
struct Headline {
    scheme: String,
    ours: String,
    paper: String,
    unit: String,
    section: String,
    title: String,
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
    /// Why ours differ: of which rows, and the sentence.
    reasons: Vec<(String, String)>,
    file: String,
}

/// A table of figures; a folded one opens when it is asked to.
struct Figures<'s> {
    rows: Vec<&'s Line>,
    folded: bool,
}

impl Section {
    /// All figures in one table where they are few; of many those that sum up or have the paper's beside
    /// them, and all, folded.
    fn tables(&self) -> Vec<Figures<'_>> {
        let all: Vec<&Line> = self.rows.iter().collect();
        if all.len() <= ROWS_OPEN {
            return vec![Figures { rows: all, folded: false }];
        }
        let main: Vec<&Line> = all.iter().copied().filter(|l| l.main).collect();
        let mut tables = vec![Figures { rows: all, folded: true }];
        if !main.is_empty() && main.len() <= MAIN_OPEN {
            tables.insert(0, Figures { rows: main, folded: false });
        }
        tables
    }
}

impl Figures<'_> {
    /// Whether its rows have schemes.
    fn schemes(&self) -> bool {
        self.rows.iter().any(|line| !line.scheme.is_empty())
    }

    /// Whether any has the paper's figure.
    fn compared(&self) -> bool {
        self.rows.iter().any(|line| line.paper != NONE)
    }

    /// Whether any says with which options it ran.
    fn options(&self) -> bool {
        self.rows.iter().any(|line| !line.options.is_empty())
    }
}

/// A table of more rows is folded; of more rows that sum up, too.
const ROWS_OPEN: usize = 16;
const MAIN_OPEN: usize = 24;

struct Line {
    /// Whether it sums up, or has the paper's beside it.
    main: bool,
    label: String,
    scheme: String,
    paper: String,
    ours: String,
    ratio: String,
    unit: String,
    options: String,
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
const CELLS_SHOWN: usize = 1;

fn line(row: &Row, figure_file: &str) -> Line {
    let cells = if row.cells.is_empty() { vec![figure_file.to_owned()] } else { row.cells.clone() };
    Line {
        main: row.is_mean() || row.paper.is_some(),
        label: row.label.clone(),
        scheme: row.scheme.clone(),
        paper: paper_or_dash(row.paper),
        ours: ours_or_dash(row.ours),
        ratio: ratio_or_dash(row.ratio()),
        unit: row.unit.clone(),
        options: String::new(),
        more: cells.len().saturating_sub(CELLS_SHOWN),
        cells: cells.into_iter().take(CELLS_SHOWN).collect(),
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
        plots: plots::of(figure, &cells),
        rows: figure.rows.iter().map(|r| line(r, &named.file)).collect(),
        reasons: figure.reasons(|_| true).into_iter().map(|(of, why)| (of, why.to_owned())).collect(),
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
            paper: NONE.into(),
            ours: show(c.written.total as f64 / 1e6),
            ratio: NONE.into(),
            unit: "MB written".into(),
            options: c.options.clone(),
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
        plots: plots::common(&cells),
        rows: rows.collect(),
        reasons: Vec::new(),
        file: String::new(),
    }
}

fn machine(m: &Machine) -> String {
    let cores = if m.cores == 1 { "1 core".into() } else { format!("{} cores", m.cores) };
    let parts = [m.processor.clone(), cores, format!("Linux {}", m.kernel), m.architecture.clone()];
    parts.join(", ")
}

fn seconds(took: f64) -> String {
    if took < 1.0 { "< 1 s".into() } else { format!("{took:.0} s") }
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
            wall: seconds(cells.iter().map(|c| c.wall_seconds).sum()),
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
        findings: c.check_findings.map_or_else(|| NONE.into(), |n| n.to_string()),
    }
}

/// The means of Fig. 7 where they are there, otherwise of the first experiment that has means.
fn headline(report: &Report) -> Vec<Headline> {
    let has_means = |f: &&Named<Figure>| f.result.rows.iter().any(|r| r.is_mean() && r.ours.is_some());
    let preferred = report.figures.iter().find(|f| f.result.experiment == "medfs-fig7");
    let Some(figure) = preferred.or_else(|| report.figures.iter().find(has_means)) else { return Vec::new() };
    let rows = figure.result.rows.iter().filter(|r| r.is_mean());
    rows.map(|r| Headline {
        scheme: r.scheme.clone(),
        ours: ours_or_dash(r.ours),
        paper: r.paper.map_or_else(|| "paper: none".into(), |paper| format!("paper {}", show_paper(paper))),
        unit: r.unit.clone(),
        section: figure.result.experiment.clone(),
        title: figure.result.title.clone(),
    })
    .collect()
}

/// The designs that results are of, as far as this version knows them.
fn designs(report: &Report) -> Vec<(String, String)> {
    let used = |name: &str| report.cells.iter().any(|c| c.result.scheme == name);
    let known = scheme::all().unwrap_or_default();
    known.iter().filter(|s| used(&s.name)).map(|s| (s.name.clone(), s.about.clone())).collect()
}

/// The whole page.
pub(super) fn page(report: &Report) -> Result<String> {
    let mut sections: Vec<Section> = report.figures.iter().map(|f| section(report, f)).collect();
    sections.extend(report.loose().into_iter().map(|name| loose_section(report, name)));
    let page = Page {
        sections,
        headline: headline(report),
        designs: designs(report),
        runs: runs(report),
        raw: report.cells.iter().map(raw).collect(),
        problems: &report.problems,
        base: &report.base,
        program: concat!("medfs ", env!("CARGO_PKG_VERSION")).into(),
    };
    page.render().map_err(|e| Error::Unknown(format!("writing the page: {e}")))
}
