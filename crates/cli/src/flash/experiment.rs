//! `medfs flash experiment`: the paper's figures, its value beside ours.

use super::STEPS;
use super::args::ExperimentArgs;
use crate::progress;
use anyhow::Result;
use medfs_flash::experiments::{ALL, Experiment, Options, Row, find};
use serde::Serialize;

/// An experiment's rows, for machines.
#[derive(Serialize)]
struct Outcome {
    name: &'static str,
    title: &'static str,
    seed: u64,
    scale: f64,
    rows: Vec<Row>,
}

pub(super) fn run(args: &ExperimentArgs) -> Result<()> {
    let Some(name) = &args.name else {
        for experiment in &ALL {
            outln!("{:12} {}", experiment.name, experiment.title);
        }
        return Ok(());
    };
    let mut options = Options { seed: args.seed, scale: args.scale, ..Options::default() };
    if !args.files.is_empty() {
        options.files.clone_from(&args.files);
    }
    let chosen: Vec<&Experiment> = if name == "all" { ALL.iter().collect() } else { vec![find(name)?] };
    let mut outcomes = Vec::new();
    for experiment in chosen {
        let bar = progress::steps(experiment.name, STEPS);
        let rows = (experiment.run)(&options, &mut |part| bar.set_position((part * STEPS as f64) as u64))?;
        bar.finish_and_clear();
        if args.json {
            let (name, title) = (experiment.name, experiment.title);
            outcomes.push(Outcome { name, title, seed: options.seed, scale: options.scale, rows });
        } else {
            print(experiment, &options, &rows);
        }
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&outcomes)?);
    }
    Ok(())
}

fn print(experiment: &Experiment, options: &Options, rows: &[Row]) {
    outln!("{}: {} (scale {}, seed {})", experiment.name, experiment.title, options.scale, options.seed);
    outln!("{:>10} {:>10}  ", "paper", "ours");
    let mut reasons: Vec<&str> = Vec::new();
    for row in rows {
        let paper = row.paper.map_or_else(|| "-".into(), |paper| number(paper, row.unit));
        let mark = match &row.reason {
            None => String::new(),
            Some(reason) => {
                let at = reasons.iter().position(|known| known == reason).unwrap_or_else(|| {
                    reasons.push(reason);
                    reasons.len() - 1
                });
                format!(" [{}]", at + 1)
            }
        };
        outln!("{paper:>10} {:>10}  {}{mark}", number(row.ours, row.unit), row.label);
    }
    for (i, reason) in reasons.iter().enumerate() {
        outln!("[{}] {reason}", i + 1);
    }
    outln!("");
}

fn number(value: f64, unit: &str) -> String {
    let text = if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    if unit.is_empty() { text } else { format!("{text} {unit}") }
}
