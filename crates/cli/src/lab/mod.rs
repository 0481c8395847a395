//! `medfs lab`: lists and runs experiments and workloads.

mod list;
mod print;

use crate::args::{LAB_OUT, LabCommand, LabRunArgs, LabWorkArgs};
use crate::exit::{self, Coded};
use crate::undo;
use anyhow::{Context, Result, bail};
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::ProgressBar;
use medfs_device::quote::{self, hint};
use medfs_lab::backend::dir::DirTarget;
use medfs_lab::experiment::{self, Progress, Settings};
use medfs_lab::report::show;
use medfs_lab::totals::Totals;
use medfs_lab::workload::real::{PROGRAMS, Program};
use medfs_lab::workload::{self, Stage, Workload};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use print::print;

/// Width where the output is no terminal.
const WIDTH: u16 = 80;

pub(crate) fn run(command: &LabCommand) -> Result<u8> {
    match command {
        LabCommand::List(args) => list::run(args),
        LabCommand::Run(args) => run_experiments(args),
        LabCommand::Work(args) => work(args),
    }
}

/// A table as wide as the terminal at most.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(WIDTH);
    }
    table.set_header(header);
    table
}

/// Without the spaces at the ends of lines.
fn trimmed(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
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
        experiment::find(name).map_err(usage)?;
    }
    check_scale(args.scale)?;
    let out = out_of(args);
    undo::if_ended("lab", format_args!("{} has the results of the experiments that ended", out.display()));
    let mut figures = Vec::new();
    for (at, name) in names.iter().enumerate() {
        if names.len() > 1 {
            errln!("Experiment {} of {}: {name}", at + 1, names.len());
        }
        let bar = Bar(crate::progress::steps(name, 0));
        let settings = Settings {
            out: out.clone(),
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
        crate::json::print(&figures)?;
    } else {
        let report = hint(format_args!("medfs report {}", quote::path(&out)));
        outln!("Results are in {}; {report} makes a page of them.", out.display());
    }
    Ok(exit::SUCCESS)
}

/// The directory for results; where nobody named one, it is said which it is before anything runs.
fn out_of(args: &LabRunArgs) -> PathBuf {
    args.out.clone().unwrap_or_else(|| {
        errln!("Results go to {LAB_OUT}; --out DIR names another directory.");
        LAB_OUT.into()
    })
}

/// An error that is one of the arguments.
fn usage(error: impl ToString) -> Coded {
    Coded::new(exit::USAGE, error)
}

fn check_scale(scale: Option<f64>) -> Result<()> {
    match scale {
        Some(scale) if !(scale > 0.0 && scale <= 1.0) => {
            Err(usage(format!("the scale {scale} is not above 0 and at most 1")).into())
        }
        _ => Ok(()),
    }
}

/// What `medfs lab work` can run.
enum Work {
    Program(&'static Program),
    Workload(&'static Workload),
}

fn find(name: &str) -> Result<Work, Coded> {
    if let Some(program) = PROGRAMS.iter().find(|p| p.name == name) {
        return Ok(Work::Program(program));
    }
    let programs = || PROGRAMS.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
    workload::find(name).map(Work::Workload).map_err(|e| usage(format!("{e}, {}", programs())))
}

fn work(args: &LabWorkArgs) -> Result<u8> {
    check_scale(Some(args.scale))?;
    let work = find(&args.name)?;
    must_be_empty(&args.dir)?;
    undo::if_ended("lab", format_args!("empty {} before you run it again", args.dir.display()));
    match work {
        Work::Program(program) => {
            let dir = args.dir.canonicalize().with_context(|| args.dir.display().to_string())?;
            program.run(&dir)?;
            outln!("{} is done in {}", program.name, args.dir.display());
            Ok(exit::SUCCESS)
        }
        Work::Workload(workload) => in_directory(workload, args),
    }
}

fn in_directory(workload: &Workload, args: &LabWorkArgs) -> Result<u8> {
    let target = DirTarget::new(&args.dir).with_context(|| args.dir.display().to_string())?;
    let _chance = medfs_lab::sqlite::chance(args.seed);
    let stage = Stage::on(Arc::new(target), args.seed, args.scale);
    let values = (workload.run)(&stage)?;
    let totals = stage.measured();
    let own = stage.meter.own_difference();
    if args.json {
        let all = json!({"workload": args.name, "seed": args.seed, "scale": args.scale, "measured": totals, "own_difference": own, "values": values});
        crate::json::print(&all)?;
        return Ok(exit::SUCCESS);
    }
    let mut rows = table(&["bytes that the workload passed to the file system", ""]);
    for (name, value) in measured(&totals) {
        rows.add_row([name, value]);
    }
    for (name, value) in &values {
        rows.add_row([name.replace('_', " "), show(*value)]);
    }
    outln!("{}", trimmed(&rows));
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
        ("bytes of the pages that LZO saves", percent(t.compression())),
        ("bytes of the updates that deltas save", percent(t.delta_compression())),
        ("writes in the requests", percent(t.write_share())),
        ("fsyncs", t.fsyncs.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
