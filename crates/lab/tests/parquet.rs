//! The comparison as a Parquet file: what was written is what is read back. Needs the feature `parquet`.

use medfs_lab::cell::{FIGURE_FORMAT, Figure, Row, write_json};
use medfs_lab::report::{Format, Report};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

fn row(label: &str, paper: Option<f64>, ours: Option<f64>) -> Row {
    Row {
        label: label.into(),
        scheme: "MedFS".into(),
        paper,
        ours,
        unit: "% less".into(),
        reason: "\u{c4}nderung, \"quoted\"".into(),
        cells: vec!["a.json".into(), "b.json".into()],
    }
}

#[test]
fn rows_come_back_as_they_were() {
    let rows =
        vec![row("both", Some(50.0), Some(25.0)), row("ours", None, Some(-3.5)), row("neither", None, None)];
    let figure = Figure {
        format: FIGURE_FORMAT.into(),
        experiment: "test".into(),
        title: String::new(),
        paper: String::new(),
        about: String::new(),
        notes: Vec::new(),
        plot: "bars".into(),
        across: String::new(),
        rows: rows.clone(),
    };
    let dir = tempfile::tempdir().unwrap();
    write_json(dir.path(), "figure_test.json", &figure).unwrap();
    let bytes = Report::load(dir.path()).unwrap().render(Format::Parquet).unwrap();
    let file = dir.path().join("rows.parquet");
    std::fs::write(&file, bytes).unwrap();
    let reader = SerializedFileReader::new(std::fs::File::open(&file).unwrap()).unwrap();
    let read: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(read.len(), rows.len());
    for (read, row) in read.iter().zip(&rows) {
        let texts = [0, 1, 2, 6, 7, 8].map(|n| read.get_string(n).unwrap().as_str());
        let cells = row.cells.join(" ");
        assert_eq!(texts, ["test", &row.label, &row.scheme, &row.unit, &row.reason, &cells]);
        let numbers = [3, 4, 5].map(|n| read.get_double(n).ok());
        assert_eq!(numbers, [row.paper, row.ours, row.ratio()], "{}", row.label);
    }
}
