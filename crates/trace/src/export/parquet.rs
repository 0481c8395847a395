//! The table as Apache Parquet: one row group for each [`GROUP`] operations, zstd, no Arrow.

use super::{Row, rows};
use crate::error::{Error, Result};
use crate::reader::TraceReader;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::io::{Read, Write};
use std::sync::Arc;

/// Operations in a row group.
pub(super) const GROUP: usize = 100_000;

/// The columns in order: name, type, whether it may be null.
const COLUMNS: [(&str, Physical, bool); 15] = [
    ("number", Physical::INT64, false),
    ("time_ns", Physical::INT64, false),
    ("took_ns", Physical::INT64, false),
    ("process", Physical::INT32, false),
    ("thread", Physical::INT32, false),
    ("operation", Physical::BYTE_ARRAY, false),
    ("file", Physical::INT64, true),
    ("other", Physical::INT64, true),
    ("name", Physical::BYTE_ARRAY, true),
    ("to", Physical::BYTE_ARRAY, true),
    ("offset", Physical::INT64, true),
    ("length", Physical::INT64, true),
    ("bytes", Physical::INT64, true),
    ("zero_bytes", Physical::INT64, true),
    ("errno", Physical::INT32, false),
];

fn failed(error: ParquetError) -> Error {
    Error::io("cannot write the table")(std::io::Error::other(error))
}

/// Writes a Parquet file; returns the number of operations.
pub fn parquet<R: Read>(reader: &mut TraceReader<R>, out: impl Write + Send) -> Result<u64> {
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let schema = Arc::new(schema().map_err(failed)?);
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(failed)?;
    let mut group = Vec::with_capacity(GROUP);
    let count = rows(reader, |row| {
        group.push(row);
        if group.len() < GROUP {
            return Ok(());
        }
        let full = write_group(&mut file, &group).map_err(failed);
        group.clear();
        full
    })?;
    if !group.is_empty() {
        write_group(&mut file, &group).map_err(failed)?;
    }
    file.close().map_err(failed)?;
    Ok(count)
}

fn schema() -> parquet::errors::Result<Type> {
    let column = |(name, physical, nullable): (&str, Physical, bool)| {
        let repetition = if nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let text = (physical == Physical::BYTE_ARRAY).then_some(LogicalType::String);
        let column = Type::primitive_type_builder(name, physical).with_repetition(repetition);
        column.with_logical_type(text).build().map(Arc::new)
    };
    let fields = COLUMNS.into_iter().map(column).collect::<parquet::errors::Result<Vec<_>>>()?;
    Type::group_type_builder("operations").with_fields(fields).build()
}

fn write_group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    rows: &[Row],
) -> parquet::errors::Result<()> {
    let mut group = file.next_row_group()?;
    let group_ref = &mut group;
    let some = |value: u64| Some(value as i64);
    let long = |value: Option<u64>| value.map(|value| value as i64);
    let text = |value: &Option<String>| value.as_deref().map(ByteArray::from);
    column::<Int64Type, W>(group_ref, rows, |r| some(r.number))?;
    column::<Int64Type, W>(group_ref, rows, |r| Some(r.time_ns))?;
    column::<Int64Type, W>(group_ref, rows, |r| some(r.took_ns))?;
    column::<Int32Type, W>(group_ref, rows, |r| Some(r.process as i32))?;
    column::<Int32Type, W>(group_ref, rows, |r| Some(r.thread as i32))?;
    column::<ByteArrayType, W>(group_ref, rows, |r| Some(ByteArray::from(r.operation)))?;
    column::<Int64Type, W>(group_ref, rows, |r| long(r.file))?;
    column::<Int64Type, W>(group_ref, rows, |r| long(r.other))?;
    column::<ByteArrayType, W>(group_ref, rows, |r| text(&r.name))?;
    column::<ByteArrayType, W>(group_ref, rows, |r| text(&r.to))?;
    column::<Int64Type, W>(group_ref, rows, |r| long(r.offset))?;
    column::<Int64Type, W>(group_ref, rows, |r| long(r.length))?;
    column::<Int64Type, W>(group_ref, rows, |r| long(r.bytes))?;
    column::<Int64Type, W>(group_ref, rows, |r| long(r.zero_bytes))?;
    column::<Int32Type, W>(group_ref, rows, |r| Some(i32::from(r.errno)))?;
    group.close().map(drop)
}

/// Writes the next column: its values, and which of them are there where it may be null.
fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Row],
    value: impl Fn(&Row) -> Option<T::T>,
) -> parquet::errors::Result<()> {
    let missing = || ParquetError::General("the schema has fewer columns".into());
    let mut writer = group.next_column()?.ok_or_else(missing)?;
    let all: Vec<Option<T::T>> = rows.iter().map(value).collect();
    let levels: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = all.into_iter().flatten().collect();
    writer.typed::<T>().write_batch(&values, Some(&levels), None)?;
    writer.close()
}
