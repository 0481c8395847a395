//! Experiments: what is measured, beside what a paper says.
//!
//! An experiment is a short TOML file (`experiments/NAME.toml`: what it is, what it runs, the paper's
//! figures, and why ours differ) and a function that runs its cells and turns them into rows. Adding one is
//! adding both, and an entry in `FILES`. LDC's experiments need no file: `medfs-flash` has them, and they
//! stand in the list as they are ([`ldc`]).

mod ars;
mod dj;
mod hotness;
mod lab;
mod latency;
pub mod ldc;
mod mobifs;
mod overhead;
mod sensitivity;
mod spec;
mod tables;
mod volume;

pub use lab::{Lab, Outcome, Progress, Settings, Silent};
pub use spec::{Expect, Spec};

use crate::cell::{Figure, Row, file_name, write_json};
use crate::error::{Error, Result};
use std::fs;
use std::sync::LazyLock;

/// An experiment in the list.
pub enum Entry {
    /// One of the lab's own.
    File {
        /// Its file, as text.
        text: &'static str,
        /// Runs its cells and makes its rows, in order.
        run: fn(&Lab<'_>) -> Result<Vec<Row>>,
    },
    /// One of LDC's.
    Flash(&'static medfs_flash::experiments::Experiment),
}

impl Entry {
    const fn file(text: &'static str, run: fn(&Lab<'_>) -> Result<Vec<Row>>) -> Entry {
        Entry::File { text, run }
    }

    /// Its file, read; of one of LDC's, what the file would say.
    pub fn spec(&self) -> Result<Spec> {
        match self {
            Entry::File { text, .. } => {
                let name = text.lines().find_map(|l| l.strip_prefix("name = ")).unwrap_or("?");
                Spec::parse(&format!("experiments/{}.toml", name.trim_matches('"')), text)
            }
            Entry::Flash(experiment) => Ok(ldc::spec(experiment)),
        }
    }

    fn run(&self, lab: &Lab<'_>) -> Result<Vec<Row>> {
        match self {
            Entry::File { run, .. } => run(lab),
            Entry::Flash(experiment) => ldc::run(lab, experiment),
        }
    }
}

/// The lab's own experiments, in the order of the list. A new one is a line here.
static FILES: &[Entry] = &[
    Entry::file(include_str!("../../experiments/medfs-tables.toml"), tables::run),
    Entry::file(include_str!("../../experiments/medfs-fig1.toml"), volume::file_types),
    Entry::file(include_str!("../../experiments/medfs-fig7.toml"), volume::reductions),
    Entry::file(include_str!("../../experiments/medfs-lifetime.toml"), volume::lifetime),
    Entry::file(include_str!("../../experiments/medfs-fig8.toml"), latency::perceived),
    Entry::file(include_str!("../../experiments/medfs-fig9.toml"), latency::io),
    Entry::file(include_str!("../../experiments/medfs-fig10.toml"), latency::hit_rates),
    Entry::file(include_str!("../../experiments/medfs-fig11a.toml"), hotness::clusters),
    Entry::file(include_str!("../../experiments/medfs-fig11b.toml"), hotness::reads),
    Entry::file(include_str!("../../experiments/medfs-fig12a.toml"), sensitivity::threshold),
    Entry::file(include_str!("../../experiments/medfs-fig12b.toml"), sensitivity::eviction),
    Entry::file(include_str!("../../experiments/medfs-overhead.toml"), overhead::run),
    Entry::file(include_str!("../../experiments/ars-fig1.toml"), ars::one_file),
    Entry::file(include_str!("../../experiments/ars-fig2.toml"), ars::pieces),
    Entry::file(include_str!("../../experiments/ars-fig4.toml"), ars::io),
    Entry::file(include_str!("../../experiments/ars-fig5.toml"), ars::free_space),
    Entry::file(include_str!("../../experiments/ars-fig6.toml"), ars::transactions),
    Entry::file(include_str!("../../experiments/ars-fig7.toml"), ars::applications),
    Entry::file(include_str!("../../experiments/ars-table1.toml"), ars::table),
    Entry::file(include_str!("../../experiments/ars-table2.toml"), ars::costs),
    Entry::file(include_str!("../../experiments/dj-fig1.toml"), dj::differences),
    Entry::file(include_str!("../../experiments/dj-fig4.toml"), dj::compressed),
    Entry::file(include_str!("../../experiments/dj-thresholds.toml"), dj::thresholds),
    Entry::file(include_str!("../../experiments/dj-fig9.toml"), dj::synthetic),
    Entry::file(include_str!("../../experiments/dj-fig10.toml"), dj::postmark),
    Entry::file(include_str!("../../experiments/dj-fig11.toml"), dj::throughput),
    Entry::file(include_str!("../../experiments/dj-fig12.toml"), dj::journal_writes),
    Entry::file(include_str!("../../experiments/dj-ext4.toml"), dj::against_kernel),
    Entry::file(include_str!("../../experiments/dj-sizes.toml"), dj::memories),
    Entry::file(include_str!("../../experiments/mobifs-fig1.toml"), mobifs::curves),
    Entry::file(include_str!("../../experiments/mobifs-fig3.toml"), mobifs::fixed_points),
    Entry::file(include_str!("../../experiments/mobifs-fig5.toml"), mobifs::growth),
    Entry::file(include_str!("../../experiments/mobifs-fig6.toml"), mobifs::intervals),
    Entry::file(include_str!("../../experiments/mobifs-fig7.toml"), mobifs::followed),
    Entry::file(include_str!("../../experiments/mobifs-fig8.toml"), mobifs::conflicts),
    Entry::file(include_str!("../../experiments/mobifs-fig9.toml"), mobifs::lengths),
    Entry::file(include_str!("../../experiments/mobifs-fig10.toml"), mobifs::sixteen),
    Entry::file(include_str!("../../experiments/mobifs-fig11.toml"), mobifs::mobibench),
    Entry::file(include_str!("../../experiments/mobifs-fig12.toml"), mobifs::applications),
    Entry::file(include_str!("../../experiments/mobifs-fig13.toml"), mobifs::flushed),
    Entry::file(include_str!("../../experiments/mobifs-table1.toml"), mobifs::benchmarks),
    Entry::file(include_str!("../../experiments/workloads.toml"), volume::reductions),
];

/// Every experiment, in the order of the list: the lab's own, then LDC's.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    static FLASH: LazyLock<Vec<Entry>> =
        LazyLock::new(|| medfs_flash::experiments::ALL.iter().map(Entry::Flash).collect());
    FILES.iter().chain(FLASH.iter())
}

/// The experiment of this name.
pub fn find(name: &str) -> Result<(&'static Entry, Spec)> {
    let mut names = Vec::new();
    for entry in all() {
        let spec = entry.spec()?;
        if spec.name == name {
            return Ok((entry, spec));
        }
        names.push(spec.name);
    }
    Err(Error::Unknown(format!("no experiment is named '{name}'; there are: {}", names.join(", "))))
}

/// Runs an experiment and writes its result files.
pub fn run(name: &str, settings: &Settings<'_>) -> Result<Figure> {
    let (entry, spec) = find(name)?;
    let scale = settings.scale.unwrap_or(spec.scale);
    if !(scale > 0.0 && scale <= 1.0) {
        return Err(Error::Unknown(format!("the scale {scale} is not above 0 and at most 1")));
    }
    fs::create_dir_all(&settings.out).map_err(Error::io(format!("making {}", settings.out.display())))?;
    let lab = Lab { spec, scale, settings };
    let rows = entry.run(&lab)?;
    let figure = lab.spec.figure(rows);
    write_json(&settings.out, &file_name(&["figure", name]), &figure)?;
    Ok(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_right_and_names_differ() {
        let mut names: Vec<String> = all().map(|e| e.spec().unwrap().name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(find("no-such").err().unwrap().to_string().contains("medfs-fig7"));
    }
}
