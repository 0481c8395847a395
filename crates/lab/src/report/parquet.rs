//! The comparison as a Parquet file, for DuckDB, pandas and others.

use super::results::Report;
use crate::cell::Row;
use crate::error::{Error, Result};
use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use std::sync::Arc;

const SCHEMA: &str = "message rows {
  required binary experiment (utf8);
  required binary label (utf8);
  required binary scheme (utf8);
  optional double paper;
  optional double ours;
  optional double ratio;
  required binary unit (utf8);
  required binary reason (utf8);
  required binary cells (utf8);
}";

/// Every row of every figure, with the columns of the CSV form.
pub(super) fn table(report: &Report) -> Result<Vec<u8>> {
    write(report).map_err(|e| Error::Unknown(format!("writing Parquet: {e}")))
}

/// A column of texts, or of numbers that may be missing.
enum Column {
    Text(fn(&str, &Row) -> String),
    Number(fn(&Row) -> Option<f64>),
}

const COLUMNS: [Column; super::text::COLUMNS.len()] = [
    Column::Text(|experiment, _| experiment.to_owned()),
    Column::Text(|_, row| row.label.clone()),
    Column::Text(|_, row| row.scheme.clone()),
    Column::Number(|row| row.paper),
    Column::Number(|row| row.ours),
    Column::Number(Row::ratio),
    Column::Text(|_, row| row.unit.clone()),
    Column::Text(|_, row| row.reason.clone()),
    Column::Text(|_, row| row.cells.join(" ")),
];

fn write(report: &Report) -> std::result::Result<Vec<u8>, ParquetError> {
    let rows: Vec<(&str, &Row)> = report
        .figures
        .iter()
        .flat_map(|f| f.result.rows.iter().map(|row| (f.result.experiment.as_str(), row)))
        .collect();
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    let mut group = file.next_row_group()?;
    for column in COLUMNS {
        let Some(mut writer) = group.next_column()? else { break };
        match column {
            Column::Text(of) => {
                let values: Vec<ByteArray> = rows.iter().map(|(e, row)| of(e, row).as_str().into()).collect();
                writer.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            }
            Column::Number(of) => {
                let values: Vec<f64> = rows.iter().filter_map(|(_, row)| of(row)).collect();
                let present: Vec<i16> = rows.iter().map(|(_, row)| i16::from(of(row).is_some())).collect();
                writer.typed::<DoubleType>().write_batch(&values, Some(&present), None)?;
            }
        }
        writer.close()?;
    }
    group.close()?;
    file.into_inner()
}
