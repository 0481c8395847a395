//! Traces as tables.

use crate::common::{random_records, write_trace};
use medfs_trace::{Phase, TraceReader, export};

fn trace() -> Vec<u8> {
    write_trace(|writer| {
        for record in random_records(9, 500) {
            writer.push(Phase::Recorded, &record).unwrap();
        }
    })
}

#[test]
fn json_lines_have_one_operation_each() {
    let trace = trace();
    let mut out = Vec::new();
    let count = export::json_lines(&mut TraceReader::new(&trace[..]).unwrap(), &mut out).unwrap();
    let lines: Vec<serde_json::Value> = out
        .split(|&b| b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    assert_eq!((count, lines.len()), (500, 500));
    for (line, record) in lines.iter().zip(random_records(9, 500)) {
        assert_eq!(line["operation"], record.op.name());
        assert_eq!(line["time_ns"], 1_700_000_000_000_000_000i64 + record.at as i64);
        assert_eq!(line["errno"], record.errno);
    }
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_has_the_same_rows() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    let (trace, dir) = (trace(), tempfile::tempdir().unwrap());
    let path = dir.path().join("t.parquet");
    let file = std::fs::File::create(&path).unwrap();
    assert_eq!(export::parquet(&mut TraceReader::new(&trace[..]).unwrap(), file).unwrap(), 500);
    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let mut rows = reader.get_row_iter(None).unwrap();
    let mut expected = Vec::new();
    export::rows(&mut TraceReader::new(&trace[..]).unwrap(), |row| {
        expected.push(row);
        Ok(())
    })
    .unwrap();
    for want in &expected {
        let row = rows.next().unwrap().unwrap();
        assert_eq!(row.get_long(0).unwrap() as u64, want.number);
        assert_eq!(row.get_string(5).unwrap(), want.operation);
        assert_eq!(row.get_string(8).ok(), want.name.as_ref());
        assert_eq!(row.get_long(10).ok().map(|v| v as u64), want.offset);
    }
    assert!(rows.next().is_none());
}
