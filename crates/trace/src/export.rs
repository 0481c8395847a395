//! The operations of a trace as a table: one row each, with the columns of [`Row`]. Contents are left out.

use crate::error::{Error, Result};
use crate::reader::{Item, TraceReader};
use crate::record::{Op, Run};
use serde::Serialize;
use std::io::{Read, Write};

#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
pub use parquet::parquet;

/// An operation as a row. Columns that an operation has no use for are null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Place in the trace, from 0.
    pub number: u64,
    /// Nanoseconds since 1970; of an import without times since the log began.
    pub time_ns: i64,
    /// Nanoseconds that it took.
    pub took_ns: u64,
    /// Process, 0 where it was no process.
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// Name of the operation.
    pub operation: &'static str,
    /// The file; of operations on names the directory.
    pub file: Option<u64>,
    /// The other file: that which a name stands for, or what is copied to.
    pub other: Option<u64>,
    /// The name, as far as it is UTF-8.
    pub name: Option<String>,
    /// The new name of a rename, or a link's target.
    pub to: Option<String>,
    /// Offset in the file.
    pub offset: Option<u64>,
    /// Bytes asked for.
    pub length: Option<u64>,
    /// Bytes that came or went.
    pub bytes: Option<u64>,
    /// Of these, zeros.
    pub zero_bytes: Option<u64>,
    /// 0, or the error.
    pub errno: u16,
}

/// Gives `each` every recorded operation; returns their number.
pub fn rows<R: Read>(reader: &mut TraceReader<R>, mut each: impl FnMut(Row) -> Result<()>) -> Result<u64> {
    let began = reader.head().began;
    let mut number = 0;
    while let Some(item) = reader.next()? {
        let Item::Operation(record) = item else { continue };
        let [file, other, _] = record.op.files();
        let lossy = |bytes: &[u8]| Some(String::from_utf8_lossy(bytes).into_owned());
        let mut row = Row {
            number,
            time_ns: began.saturating_add_unsigned(record.at),
            took_ns: record.took,
            process: record.process,
            thread: record.thread,
            operation: record.op.name(),
            file,
            other,
            name: None,
            to: None,
            offset: None,
            length: None,
            bytes: None,
            zero_bytes: None,
            errno: record.errno,
        };
        match &record.op {
            Op::Lookup { name, .. }
            | Op::Create { name, .. }
            | Op::Link { name, .. }
            | Op::Unlink { name, .. }
            | Op::Rmdir { name, .. }
            | Op::SetXattr { name, .. }
            | Op::GetXattr { name, .. }
            | Op::RemoveXattr { name, .. } => row.name = lossy(name),
            Op::Symlink { name, target, .. } => (row.name, row.to) = (lossy(name), lossy(target)),
            Op::Rename { name, to_name, .. } => (row.name, row.to) = (lossy(name), lossy(to_name)),
            Op::Read { offset, len, content, .. } | Op::Write { offset, len, content, .. } => {
                let zeros = content
                    .0
                    .iter()
                    .map(|run| if let Run::Zeros { len } = run { u64::from(*len) } else { 0 });
                (row.offset, row.length) = (Some(*offset), Some(u64::from(*len)));
                row.zero_bytes = Some(zeros.sum());
                row.bytes = reader.window().len_of(content).ok();
            }
            Op::Fallocate { offset, len, .. } => (row.offset, row.length) = (Some(*offset), Some(*len)),
            Op::CopyRange { to_offset, len, copied, .. } => {
                (row.offset, row.length, row.bytes) = (Some(*to_offset), Some(*len), Some(*copied));
            }
            Op::Seek { offset, .. } => row.offset = Some(*offset),
            Op::SetAttr { set, .. } => row.length = set.size,
            Op::GetAttr { size, .. } => row.length = Some(*size),
            _ => {}
        }
        each(row)?;
        number += 1;
    }
    Ok(number)
}

/// Writes one JSON object a line; returns the number of operations.
pub fn json_lines<R: Read>(reader: &mut TraceReader<R>, mut out: impl Write) -> Result<u64> {
    let written = rows(reader, |row| {
        let line = serde_json::to_writer(&mut out, &row).map_err(std::io::Error::from);
        line.and_then(|()| out.write_all(b"\n")).map_err(Error::io("cannot write the table"))
    })?;
    out.flush().map_err(Error::io("cannot write the table"))?;
    Ok(written)
}
