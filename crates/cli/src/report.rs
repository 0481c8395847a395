//! `medfs report`: a folder of results as a page or a table.

use crate::args::{ReportArgs, ReportFormat};
use crate::exit;
use anyhow::{Context, Result};
use medfs_lab::report::{Format, Report};
use std::io::Write;
use std::path::{Path, PathBuf};

pub(crate) fn run(args: &ReportArgs) -> Result<u8> {
    let report = Report::load(&args.dir)?;
    for problem in &report.problems {
        let _ = writeln!(std::io::stderr(), "medfs report: not shown: {problem}");
    }
    let format = match args.format {
        ReportFormat::Html => Format::Html,
        ReportFormat::Md => Format::Markdown,
        ReportFormat::Json => Format::Json,
        ReportFormat::Csv => Format::Csv,
        ReportFormat::Parquet => Format::Parquet,
    };
    let content = report.render(format)?;
    let default = if format == Format::Html { args.dir.join("report.html") } else { PathBuf::from("-") };
    let output = args.output.clone().unwrap_or(default);
    if output == Path::new("-") {
        std::io::stdout().lock().write_all(&content)?;
        return Ok(exit::SUCCESS);
    }
    std::fs::write(&output, content).with_context(|| output.display().to_string())?;
    outln!(
        "{} shows {} cells and {} experiments",
        output.display(),
        report.cells.len(),
        report.figures.len()
    );
    Ok(exit::SUCCESS)
}
