//! The results of a folder, as all forms of a report show them.

use crate::cell::{Cell, Figure, ResultFile, read_result};
use crate::error::{Error, Result};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// A result, and the name of its file.
#[derive(Debug, Clone, Serialize)]
pub struct Named<T> {
    /// File name within the folder.
    pub file: String,
    /// Its content.
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
    /// The path before a file's name in the links of a page: empty where the page lies beside the files.
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

    /// Cells of an experiment.
    pub(super) fn cells_of<'r>(&'r self, experiment: &'r str) -> impl Iterator<Item = &'r Named<Cell>> {
        self.cells.iter().filter(move |c| c.result.experiment == experiment)
    }

    /// Experiments that have cells but no figure: traces that were replayed, and runs that were stopped.
    pub(super) fn loose(&self) -> Vec<&str> {
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
}
