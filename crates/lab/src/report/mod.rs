//! A folder of result files as a page, a text, or a table.
//!
//! Everything that is shown comes from a result file, and says from which. Files that are no results are left
//! alone; damaged ones are named in the report, and the others are shown all the same.

mod charts;
mod html;
mod numbers;
#[cfg(feature = "parquet")]
mod parquet;
mod results;
mod svg;
mod text;

#[cfg(not(feature = "parquet"))]
use crate::error::Error;
use crate::error::Result;

pub use numbers::{show, show_paper, show_ratio};
pub use results::{Named, Report};

/// The format of a report.
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

impl Report {
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
}
