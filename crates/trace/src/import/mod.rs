//! Traces made of other tools' logs.
//!
//! A log is read twice ([`import`]): once to find out what must have been there before, which becomes the
//! trace's first part, and once for the operations. What a line says is taken as it is; what cannot be
//! understood is counted by its kind; a line that does not follow its format ends the import with its number.
//!
//! Memory: a few words for each file that the log names, and the ranges of a file that are known.

mod blkparse;
mod fio;
mod mobibench;
mod model;
mod parser;
mod ranges;
mod strace;

use crate::error::{Error, Result};
use crate::format::{End, Head, WINDOW};
use crate::writer::TraceWriter;
use model::Model;
use parser::Parser;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};

/// Logs that are understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// `strace -f -y -xx -s N`, with or without times.
    Strace,
    /// blkparse's text; requests count at the event with this letter.
    Blkparse(char),
    /// fio's iolog, version 2 or 3.
    Fio,
    /// MobiGen's script for Mobibench.
    Mobibench,
}

impl Format {
    /// As traces name it.
    fn name(&self) -> &'static str {
        match self {
            Format::Strace => "strace",
            Format::Blkparse(_) => "blkparse",
            Format::Fio => "fio",
            Format::Mobibench => "mobibench",
        }
    }
}

/// Most bytes of a line: a call that writes a few megabytes, in hexadecimal.
const LINE_MAX: u64 = 64 << 20;

/// Makes a trace of a log, which `open` opens from its beginning, twice. Paths count below `root`.
pub fn import<R: BufRead>(
    format: &Format,
    open: impl Fn() -> std::io::Result<R>,
    root: &[u8],
    out: impl Write + Send + 'static,
    about: &str,
    id: [u8; 16],
) -> Result<End> {
    let head = Head {
        id: id.iter().map(|b| format!("{b:02x}")).collect(),
        source: format.name().into(),
        writer: format!("medfs {}", env!("CARGO_PKG_VERSION")),
        began: 0,
        about: about.into(),
        private: false,
        cache: String::new(),
        window: WINDOW,
    };
    let mut writer = TraceWriter::new(out, &head)?;
    let mut first = Model::new(&mut writer, root, BTreeMap::new(), true);
    pass(format, &open, &mut first)?;
    let sizes = first.finish_setup()?;
    let mut second = Model::new(&mut writer, root, sizes, false);
    pass(format, &open, &mut second)?;
    let skipped = second.finish()?;
    writer.skipped(skipped);
    writer.finish()
}

fn pass<R: BufRead>(
    format: &Format,
    open: impl Fn() -> std::io::Result<R>,
    model: &mut Model<'_>,
) -> Result<()> {
    let mut log = open().map_err(Error::io("cannot open the log"))?;
    let mut parser: Box<dyn Parser> = match format {
        Format::Strace => Box::new(strace::Strace::default()),
        Format::Blkparse(event) => Box::new(blkparse::Blkparse::new(*event)),
        Format::Fio => Box::new(fio::Fio::default()),
        Format::Mobibench => Box::new(mobibench::Mobibench::default()),
    };
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        number += 1;
        let limited = std::io::Read::take(&mut log, LINE_MAX);
        let len = { limited }.read_until(b'\n', &mut line).map_err(Error::io("cannot read the log"))?;
        if len == 0 {
            return Ok(());
        }
        let wrong = |what: String| Error::Line { line: number, what };
        if len as u64 == LINE_MAX {
            return Err(wrong(format!("it has more than {LINE_MAX} bytes")));
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        parser.line(text.strip_suffix(b"\r").unwrap_or(text), model).map_err(wrong)?;
        model.failed()?;
    }
}
