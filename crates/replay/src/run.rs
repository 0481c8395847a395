//! How a column is run: the trace, the way to replay it, and what surrounds it.

use crate::cleanup::Cleanup;
use crate::error::{Context, Error, Result};
use medfs_trace::TraceReader;
use medfs_trace::replay::Options;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// A trace that is being read.
pub type Reader = TraceReader<BufReader<File>>;

/// The input of a column's run.
pub struct Run<'a> {
    /// The trace.
    pub trace: &'a Path,
    /// Options of the replay.
    pub options: Options,
    /// Bytes of the column's volume.
    pub size: u64,
    /// Directory for images while they are used; `None`: the system's for temporary files.
    pub scratch: Option<&'a Path>,
    /// The program `medfs` itself, which runs in a guest for the kernel's f2fs.
    pub program: &'a Path,
    /// The list of actions that take back what the run did.
    pub cleanup: &'a dyn Cleanup,
    /// Hears how many bytes of the trace were read.
    pub at: &'a dyn Fn(u64),
}

impl Run<'_> {
    /// The trace, from its beginning.
    pub(crate) fn open(&self) -> Result<Reader> {
        open(self.trace)
    }
}

/// Opens a trace to read it.
///
/// # Errors
/// It cannot be opened, or is none.
pub fn open(path: &Path) -> Result<Reader> {
    let file = File::open(path).context(|| format!("cannot open {}", path.display()))?;
    TraceReader::new(BufReader::with_capacity(1 << 20, file))
        .map_err(|source| Error::Within { what: path.display().to_string(), source: Box::new(source.into()) })
}
