//! `medfs flash experiment`: LDC's figures printed; `medfs lab run` runs the same and keeps the results.

use super::STEPS;
use super::args::ExperimentArgs;
use crate::{lab, progress, undo};
use anyhow::Result;
use medfs_flash::experiments::{ALL, Experiment, Options, find};
use medfs_lab::experiment::ldc;

pub(super) fn run(args: &ExperimentArgs) -> Result<()> {
    let Some(name) = &args.name else {
        for experiment in &ALL {
            outln!("{:12} {}: {}", experiment.name, experiment.figure, experiment.title);
        }
        return Ok(());
    };
    let mut options = Options { seed: args.seed, scale: args.scale, ..Options::default() };
    if !args.files.is_empty() {
        options.files.clone_from(&args.files);
    }
    let chosen: Vec<&Experiment> = if name == "all" { ALL.iter().collect() } else { vec![find(name)?] };
    undo::if_ended("flash", "'medfs lab run' keeps the results of experiments that ended; this keeps none");
    let mut figures = Vec::new();
    for experiment in chosen {
        let bar = progress::share(experiment.name, STEPS);
        let mut tell = |part: f64| bar.set_position((part * STEPS as f64) as u64);
        let figure = ldc::figure(experiment, &options, &mut tell)?;
        bar.finish_and_clear();
        if !args.json {
            lab::print(&figure, true);
        }
        figures.push(figure);
    }
    if args.json {
        crate::json::print(&figures)?;
    }
    Ok(())
}
