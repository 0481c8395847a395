//! `medfs report`: a directory of results as a page or a table.

use crate::args::{ReportArgs, ReportFormat};
use crate::{exit, output};
use anyhow::{Context, Result};
use medfs_lab::report::{Format, Report};
use std::io::Write;
use std::path::{Path, PathBuf};

pub(crate) fn run(args: &ReportArgs) -> Result<u8> {
    let mut report = Report::load(&args.dir)?;
    for problem in &report.problems {
        errln!("medfs report: not shown: {problem}");
    }
    let code = if report.problems.is_empty() { exit::SUCCESS } else { exit::FAILURE };
    let format = match args.format {
        ReportFormat::Html => Format::Html,
        ReportFormat::Md => Format::Markdown,
        ReportFormat::Json => Format::Json,
        ReportFormat::Csv => Format::Csv,
        ReportFormat::Parquet => Format::Parquet,
    };
    let default = if format == Format::Html { args.dir.join("report.html") } else { PathBuf::from("-") };
    let place = args.output.clone().unwrap_or(default);
    if let Some(folder) = place.parent().filter(|_| place != Path::new("-")) {
        report.link(folder, &args.dir)?;
    }
    let content = report.render(format)?;
    if place == Path::new("-") {
        output::stdout().write_all(&content)?;
        return Ok(code);
    }
    std::fs::write(&place, content).with_context(|| format!("cannot write {}", place.display()))?;
    outln!(
        "{} shows {} and {}",
        place.display(),
        counted(report.figures.len(), "experiment"),
        counted(report.cells.len(), "cell")
    );
    Ok(code)
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
