//! `medfs lab`: lists and runs experiments and workloads.

use crate::args::{LabCommand, LabListArgs, LabRunArgs, LabWorkArgs};
use crate::exit;
use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::ProgressBar;
use medfs_lab::cell::{Figure, Row};
use medfs_lab::experiment::{self, Progress, Settings};
use medfs_lab::meter::Totals;
use medfs_lab::target::dir::DirTarget;
use medfs_lab::workload::{self, Stage, real::PROGRAMS};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Width where the terminal does not say its own.
const WIDTH: u16 = 100;

pub(crate) fn run(command: &LabCommand) -> Result<u8> {
    match command {
        LabCommand::List(args) => list(args),
        LabCommand::Run(args) => run_experiments(args),
        LabCommand::Work(args) => work(args),
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(WIDTH);
    }
    table.set_header(header);
    table
}

fn list(args: &LabListArgs) -> Result<u8> {
    let specs = experiment::all().map(|e| e.spec()).collect::<medfs_lab::Result<Vec<_>>>()?;
    if args.json {
        let experiments: Vec<_> = specs
            .iter()
            .map(|s| json!({"name": s.name, "title": s.title, "paper": s.paper, "about": s.about}))
            .collect();
        let workloads: Vec<_> =
            workload::ALL.iter().map(|w| json!({"name": w.name, "about": w.about})).collect();
        let programs: Vec<_> = PROGRAMS
            .iter()
            .map(|p| json!({"name": p.name, "about": p.about, "available": p.command().is_ok()}))
            .collect();
        let all = json!({"experiments": experiments, "workloads": workloads, "programs": programs});
        outln!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(exit::SUCCESS);
    }
    let mut experiments = table(&["experiment", "what", "where"]);
    for s in &specs {
        experiments.add_row([&s.name, &s.title, &s.paper]);
    }
    outln!("{experiments}\n");
    let mut works = table(&["workload", "what"]);
    for w in workload::ALL {
        works.add_row([w.name, w.about]);
    }
    for p in PROGRAMS {
        let missing = if p.command().is_ok() { "" } else { " (not installed here)" };
        works.add_row([p.name, &format!("{}{missing}", p.about)]);
    }
    outln!("{works}");
    Ok(exit::SUCCESS)
}

/// A bar with the name of the step.
struct Bar(ProgressBar);

impl Progress for Bar {
    fn begin(&self, steps: u64) {
        self.0.set_length(steps);
    }
    fn step(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.inc(1);
    }
}

fn run_experiments(args: &LabRunArgs) -> Result<u8> {
    let mut names = args.names.clone();
    if names.iter().any(|n| n == "all") {
        names = experiment::all().map(|e| Ok(e.spec()?.name)).collect::<medfs_lab::Result<_>>()?;
    }
    for name in &names {
        experiment::find(name)?;
    }
    let mut figures = Vec::new();
    for name in &names {
        let bar = Bar(crate::progress::steps(name, 0));
        let settings = Settings {
            out: args.out.clone(),
            seed: args.seed,
            scale: args.scale,
            files: args.files.clone(),
            progress: &bar,
        };
        let figure = experiment::run(name, &settings)?;
        bar.0.finish_and_clear();
        if !args.json {
            print(&figure, false);
        }
        figures.push(figure);
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&figures)?);
    } else {
        outln!(
            "Results are in {}; 'medfs report {}' makes a page of them.",
            args.out.display(),
            args.out.display()
        );
    }
    Ok(exit::SUCCESS)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |v| if v.abs() >= 100.0 { format!("{v:.0}") } else { format!("{v:.2}") })
}

/// The figures of an experiment: rows that the paper has a figure for, and means, unless all are wanted; the others are in the
/// files.
pub(crate) fn print(figure: &Figure, all: bool) {
    let compared = |r: &&Row| r.paper.is_some() || r.label == "mean";
    let some = !all && figure.rows.iter().any(|r| compared(&r));
    let schemes = figure.rows.iter().any(|r| !r.scheme.is_empty());
    let mut header = vec!["what", "scheme", "paper", "ours", "ratio", "unit"];
    header.retain(|name| schemes || *name != "scheme");
    let mut rows = table(&header);
    let first_number = header.len() - 4;
    for column in first_number..first_number + 3 {
        if let Some(column) = rows.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut reasons: Vec<&str> = Vec::new();
    for row in figure.rows.iter().filter(|r| !some || compared(r)) {
        let numbers = [row.paper, row.ours, row.ratio()].map(number);
        let scheme = schemes.then_some(&row.scheme);
        let numbers = numbers.iter().chain([&row.unit]);
        rows.add_row([&row.label].into_iter().chain(scheme).chain(numbers));
    }
    outln!("{}: {}\n\n{rows}\n", figure.experiment, figure.title);
    for row in figure.rows.iter().filter(|r| !r.reason.is_empty() && (!some || compared(r))) {
        if !reasons.contains(&row.reason.as_str()) {
            reasons.push(&row.reason);
            let name = if row.scheme.is_empty() { &row.label } else { &row.scheme };
            outln!("{}", wrapped(&format!("{name}: {}", row.reason)));
        }
    }
    for note in &figure.notes {
        outln!("{}", wrapped(note));
    }
    outln!("");
}

/// Text in lines of at most 80 columns, further ones indented.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let len = word.chars().count();
        if column > 0 && column + 1 + len > 80 {
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

fn work(args: &LabWorkArgs) -> Result<u8> {
    if !(args.scale > 0.0 && args.scale <= 1.0) {
        bail!("the scale {} is not above 0 and at most 1", args.scale);
    }
    must_be_empty(&args.dir)?;
    if let Some(program) = PROGRAMS.iter().find(|p| p.name == args.name) {
        let dir = args.dir.canonicalize().with_context(|| args.dir.display().to_string())?;
        program.run(&dir)?;
        outln!("{} is done in {}", program.name, args.dir.display());
        return Ok(exit::SUCCESS);
    }
    let workload = match workload::find(&args.name) {
        Ok(workload) => workload,
        Err(e) => {
            let programs: Vec<&str> = PROGRAMS.iter().map(|p| p.name).collect();
            bail!("{e}, {}", programs.join(", "));
        }
    };
    let target = DirTarget::new(&args.dir).with_context(|| args.dir.display().to_string())?;
    let _chance = medfs_lab::sqlite::chance(args.seed);
    let stage = Stage::on(Arc::new(target), args.seed, args.scale);
    let values = (workload.run)(&stage)?;
    let totals = stage.measured();
    let own = stage.meter.own_difference();
    if args.json {
        let all = json!({"workload": args.name, "seed": args.seed, "scale": args.scale, "measured": totals, "own_difference": own, "values": values});
        outln!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(exit::SUCCESS);
    }
    let mut rows = table(&["what the workload passed to the file system", ""]);
    for (name, value) in measured(&totals) {
        rows.add_row([name, value]);
    }
    for (name, value) in &values {
        rows.add_row([name.replace('_', " "), value.to_string()]);
    }
    outln!("{rows}");
    Ok(exit::SUCCESS)
}

fn must_be_empty(dir: &Path) -> Result<()> {
    let mut entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    // What mkfs leaves in a new volume is no reason.
    let other =
        |e: &std::io::Result<std::fs::DirEntry>| e.as_ref().is_ok_and(|e| e.file_name() != "lost+found");
    if entries.any(|e| other(&e)) {
        bail!("{} is not empty; a workload needs a directory of its own", dir.display());
    }
    Ok(())
}

fn measured(t: &Totals) -> Vec<(String, String)> {
    let percent = |v: f64| format!("{:.1}%", 100.0 * v);
    [
        ("written", medfs_lab::runner::size_in_words(t.bytes() as f64)),
        ("of it updates", percent(t.update_ratio())),
        ("mean change of an updated page", percent(t.update_difference())),
        ("what LZO saves of the pages", percent(t.compression())),
        ("what deltas save of the updates", percent(t.delta_compression())),
        ("writes in the requests", percent(t.write_share())),
        ("fsyncs", t.fsyncs.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
