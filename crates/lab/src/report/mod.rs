//! A folder of result files as a page, a text, or a table.
//!
//! Everything that is shown comes from a result file, and says from which. Files that are no results are left alone; damaged ones
//! are named in the report, and the others are shown all the same.

mod charts;
mod html;
#[cfg(feature = "parquet")]
mod parquet;
mod svg;
mod text;

use crate::cell::{Cell, Figure, ResultFile, read_result};
use crate::error::{Error, Result};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One page that opens offline.
    Html,
    /// Markdown.
    Markdown,
    /// One JSON document.
    Json,
    /// The comparison as comma-separated values.
    Csv,
    /// The comparison as a Parquet file; needs the feature `parquet`.
    Parquet,
}

/// A result, and the name of its file.
#[derive(Debug, Clone, Serialize)]
pub struct Named<T> {
    /// File name within the folder.
    pub file: String,
    /// What it holds.
    pub result: T,
}

/// The results of a folder.
#[derive(Debug, Clone, Serialize, Default)]
pub struct Report {
    /// Figures, in the order of the list of experiments, then by name.
    pub figures: Vec<Named<Figure>>,
    /// Cells by file name.
    pub cells: Vec<Named<Cell>>,
    /// Files that could not be read, each with the reason.
    pub problems: Vec<String>,
    /// What stands before a file's name in the links of a page: nothing where the page lies beside the files.
    #[serde(skip)]
    pub base: String,
}

fn order(experiment: &str) -> usize {
    let names = crate::experiment::all().map(|e| e.spec().map(|s| s.name).unwrap_or_default());
    names.into_iter().position(|n| n == experiment).unwrap_or(usize::MAX)
}

impl Report {
    /// Reads every result file of a folder.
    pub fn load(dir: &Path) -> Result<Report> {
        let listed = fs::read_dir(dir).map_err(Error::io(format!("reading {}", dir.display())))?;
        let mut names: Vec<String> = listed
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.ends_with(".json") && !name.starts_with('.'))
            .collect();
        names.sort();
        let mut report = Report::default();
        for file in names {
            match read_result(&dir.join(&file)) {
                Ok(Some(ResultFile::Cell(cell))) => report.cells.push(Named { file, result: *cell }),
                Ok(Some(ResultFile::Figure(figure))) => report.figures.push(Named { file, result: *figure }),
                Ok(None) => {}
                Err(e) => report.problems.push(e.to_string()),
            }
        }
        if report.cells.is_empty() && report.figures.is_empty() {
            let why = report.problems.first().map_or_else(String::new, |p| format!("; {p}"));
            return Err(Error::Unknown(format!("{} holds no result file{why}", dir.display())));
        }
        report.figures.sort_by_key(|f| (order(&f.result.experiment), f.result.experiment.clone()));
        Ok(report)
    }

    /// The page will lie in the folder `page`, the files in `files`: its links lead from one to the other.
    ///
    /// # Errors
    /// A folder that cannot be found.
    pub fn link(&mut self, page: &Path, files: &Path) -> Result<()> {
        let real = |dir: &Path| {
            let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            fs::canonicalize(dir).map_err(Error::io(format!("looking for {}", dir.display())))
        };
        self.base = way(&real(page)?, &real(files)?);
        Ok(())
    }

    /// Writes it.
    pub fn render(&self, format: Format) -> Result<Vec<u8>> {
        match format {
            Format::Html => html::page(self).map(String::into_bytes),
            Format::Markdown => Ok(text::markdown(self).into_bytes()),
            Format::Json => text::json(self),
            Format::Csv => text::csv(self),
            #[cfg(feature = "parquet")]
            Format::Parquet => parquet::table(self),
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => Err(Error::Unknown(
                "this medfs was built without Parquet; build it with --features parquet".into(),
            )),
        }
    }

    /// Cells of an experiment.
    fn cells_of<'r>(&'r self, experiment: &'r str) -> impl Iterator<Item = &'r Named<Cell>> {
        self.cells.iter().filter(move |c| c.result.experiment == experiment)
    }

    /// Experiments that have cells but no figure: traces that were replayed, and runs that were stopped.
    fn loose(&self) -> Vec<&str> {
        let has_figure = |name: &str| self.figures.iter().any(|f| f.result.experiment == name);
        let mut names: Vec<&str> = self.cells.iter().map(|c| c.result.experiment.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !has_figure(name));
        names
    }
}

/// The relative address of a folder, seen from another: empty, or with a slash at its end.
fn way(from: &Path, to: &Path) -> String {
    let (from, to): (Vec<_>, Vec<_>) = (from.components().collect(), to.components().collect());
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = "../".repeat(from.len() - common);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+".contains(&byte);
    let encoded = |name: &std::ffi::OsStr| -> String {
        let one =
            |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
        name.as_encoded_bytes().iter().map(one).collect()
    };
    let down = to[common..].iter().map(|part| encoded(part.as_os_str()) + "/");
    up + &down.collect::<String>()
}

/// Where there is no number.
const NONE: &str = "–";

/// A measured number as a reader wants it: three figures that count, whole numbers as they are.
pub fn show(value: f64) -> String {
    if value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    // What it is rounded to decides how many digits stand behind the point.
    let exponent =
        format!("{value:.2e}").split_once('e').and_then(|(_, e)| e.parse::<i32>().ok()).unwrap_or(0);
    format!("{value:.*}", (2 - exponent).clamp(0, 3) as usize)
}

/// A paper's number as the paper prints it; of one that was computed, four figures.
pub fn show_paper(value: f64) -> String {
    format!("{value:.3e}").parse::<f64>().unwrap_or(value).to_string()
}

/// A ratio: two digits behind the point are enough, unless it is small.
pub fn show_ratio(value: f64) -> String {
    if value == 0.0 || value.abs() >= 0.1 { format!("{value:.2}") } else { show(value) }
}

fn ratio_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.into(), show_ratio)
}

fn ours_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.into(), show)
}

fn paper_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.into(), show_paper)
}

/// A workload as plots name it: an application of MedFS's tables by its letters.
fn workload_name(workload: &str) -> String {
    workload.strip_prefix("app-").map_or_else(|| workload.to_owned(), str::to_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_finds_its_files_from_anywhere() {
        let of = |from: &str, to: &str| way(Path::new(from), Path::new(to));
        assert_eq!(of("/a/b", "/a/b"), "");
        assert_eq!(of("/a", "/a/b c"), "b%20c/");
        assert_eq!(of("/a/x/y", "/a/b"), "../../b/");
    }

    #[test]
    fn numbers_have_three_figures_and_papers_are_as_printed() {
        let shown = [0.0, 7.0, -28.81, 6.984, 41.67, 99.97, 9.996, 122.7, 1234.6, 0.0261, 0.1426].map(show);
        assert_eq!(
            shown,
            ["0", "7", "-28.8", "6.98", "41.7", "100", "10.0", "123", "1235", "0.026", "0.143"]
        );
        assert_eq!(
            [0.0, 0.886, -2.64, 0.0261, 25.68].map(show_ratio),
            ["0.00", "0.89", "-2.64", "0.026", "25.68"]
        );
        let papers = [4.9, 11.0, -50.5, 99.97, 122.7, 475.0, 0.17, 54.033_51].map(show_paper);
        assert_eq!(papers, ["4.9", "11", "-50.5", "99.97", "122.7", "475", "0.17", "54.03"]);
    }
}
