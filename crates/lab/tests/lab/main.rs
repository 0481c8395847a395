//! The lab from end to end, small: experiments run, results are traceable, damaged ones are named, the same
//! seed gives the same bytes, and the page opens in a browser without errors and without a network.

mod power_cuts;

use medfs_lab::backend::dir::DirTarget;
use medfs_lab::backend::volume::VolumeTarget;
use medfs_lab::backend::{Open, Target};
use medfs_lab::cell::{CELL_FORMAT, Cell, ResultFile, read_result};
use medfs_lab::experiment::{self, Settings, Silent};
use medfs_lab::report::{Format, Report};
use medfs_lab::sqlite::{JournalMode, SqliteFs};
use medfs_lab::workload::{self, Stage};
use medfs_lab::{runner, scheme};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn run(name: &str, out: &Path, scale: f64) -> medfs_lab::cell::Figure {
    let settings =
        Settings { out: out.to_owned(), seed: 1, scale: Some(scale), files: Vec::new(), progress: &Silent };
    experiment::run(name, &settings).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn memory_volume() -> VolumeTarget {
    let memory = medfs_device::MemDevice::new(1 << 16);
    let scheme = scheme::find("medfs").unwrap();
    medfs_mkfs::format_volume(&memory, &scheme.mkfs_options(1)).unwrap();
    VolumeTarget::mount(Arc::new(memory), scheme.mount_options().unwrap(), None).unwrap()
}

/// What SQLite leaves through the glue is a database that SQLite itself reads, in every journal mode.
#[test]
fn databases_are_sqlites_own() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::on(Arc::new(DirTarget::new(dir.path()).unwrap()), 1, 0.05);
    workload::sqlite_rows::all(&stage).unwrap();
    let mut found = 0;
    for entry in fs::read_dir(dir.path()).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "db") {
            let db = rusqlite::Connection::open(&path).unwrap();
            let ok: String = db.query_row("pragma integrity_check", [], |r| r.get(0)).unwrap();
            let rows: i64 = db.query_row("select count(*) from items", [], |r| r.get(0)).unwrap();
            assert!(ok == "ok" && rows >= 200, "{}: {ok}, {rows} rows", path.display());
            found += 1;
        }
    }
    assert_eq!(found, 18);
}

/// A transaction that SQLite acknowledged is found after a crash: its fsyncs reach the engine.
#[test]
fn committed_rows_survive_a_crash_of_the_volume() {
    for mode in [JournalMode::Delete, JournalMode::Truncate, JournalMode::Persist, JournalMode::Wal] {
        let memory = Arc::new(medfs_device::MemDevice::new(1 << 16));
        let scheme = scheme::find("medfs").unwrap();
        medfs_mkfs::format_volume(&memory, &scheme.mkfs_options(1)).unwrap();
        let mount = || {
            let options = scheme.mount_options().unwrap();
            Arc::new(VolumeTarget::mount(memory.clone(), options, None).unwrap())
        };
        {
            let db = SqliteFs::new(mount()).unwrap().open("a.db", mode).unwrap();
            db.execute_batch("create table t (x)").unwrap();
            for n in 0..20 {
                db.execute("insert into t values (?)", [n]).unwrap();
            }
            // Neither the database nor the volume is closed: what is open when the power goes is forgotten.
            std::mem::forget(db);
        }
        let db = SqliteFs::new(mount()).unwrap().open("a.db", mode).unwrap();
        let rows: i64 = db.query_row("select count(*) from t", [], |r| r.get(0)).unwrap();
        assert_eq!(rows, 20, "{}", mode.name());
        db.check().unwrap();
    }
}

#[test]
fn every_workload_runs_and_the_engine_reads_back_what_was_recorded() {
    for w in workload::ALL.iter().filter(|w| !w.name.starts_with("app-")) {
        let recording = workload::record(3, 0.01, &w.run).unwrap_or_else(|e| panic!("{}: {e}", w.name));
        assert!(recording.totals.pages > 0 && !recording.tape.is_empty(), "{}", w.name);
        let job = runner::Job {
            experiment: "test",
            workload: w.name,
            scheme: scheme::find("medfs").unwrap(),
            variant: "",
            seed: 3,
            scale: 0.01,
            blocks: 8 << 18,
            times: None,
            wanted: runner::Wanted::default(),
        };
        let cell = runner::run(&job, &recording).unwrap_or_else(|e| panic!("{}: {e}", w.name));
        assert_eq!(cell.check_findings, Some(0), "{}", w.name);
        assert!(cell.written.total > 0);
    }
}

#[test]
fn the_same_seed_writes_the_same_bytes() {
    let cell = |seed| {
        let recording = workload::record(seed, 0.004, &workload::find("app-tw").unwrap().run).unwrap();
        let job = runner::Job {
            experiment: "test",
            workload: "app-tw",
            scheme: scheme::find("MedFS").unwrap(),
            variant: "",
            seed,
            scale: 0.004,
            blocks: 8 << 18,
            times: None,
            wanted: runner::Wanted { segments: true, extents: true },
        };
        let cell = runner::run(&job, &recording).unwrap();
        (cell.written, cell.read_bytes, cell.flushes, cell.segments, cell.extents, cell.values)
    };
    let (first, again, other) = (cell(5), cell(5), cell(6));
    assert_eq!(first, again);
    assert_ne!(first.0, other.0);
    assert!(first.4.iter().any(|f| !f.extents.is_empty()), "no file has extents");
}

/// A device that loses or changes what it was given is noticed by the tape.
#[test]
fn a_read_that_differs_is_noticed() {
    struct Liar(VolumeTarget);
    impl Target for Liar {
        fn open(&self, path: &str, how: Open) -> std::io::Result<medfs_lab::backend::Handle> {
            self.0.open(path, how)
        }
        fn close(&self, file: medfs_lab::backend::Handle) -> std::io::Result<()> {
            self.0.close(file)
        }
        fn read(&self, file: medfs_lab::backend::Handle, at: u64, buf: &mut [u8]) -> std::io::Result<usize> {
            let read = self.0.read(file, at, buf)?;
            buf[..read].iter_mut().skip(2000).take(1).for_each(|b| *b ^= 1);
            Ok(read)
        }
        fn write(&self, file: medfs_lab::backend::Handle, at: u64, data: &[u8]) -> std::io::Result<()> {
            self.0.write(file, at, data)
        }
        fn truncate(&self, file: medfs_lab::backend::Handle, len: u64) -> std::io::Result<()> {
            self.0.truncate(file, len)
        }
        fn size(&self, file: medfs_lab::backend::Handle) -> std::io::Result<u64> {
            self.0.size(file)
        }
        fn fsync(&self, file: medfs_lab::backend::Handle, datasync: bool) -> std::io::Result<()> {
            self.0.fsync(file, datasync)
        }
        fn fsync_dir(&self, path: &str) -> std::io::Result<()> {
            self.0.fsync_dir(path)
        }
        fn mkdir(&self, path: &str) -> std::io::Result<()> {
            self.0.mkdir(path)
        }
        fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
            self.0.rename(from, to)
        }
        fn unlink(&self, path: &str) -> std::io::Result<()> {
            self.0.unlink(path)
        }
        fn exists(&self, path: &str) -> std::io::Result<bool> {
            self.0.exists(path)
        }
        fn sync(&self) -> std::io::Result<()> {
            self.0.sync()
        }
        fn pass(&self, time: std::time::Duration) -> std::io::Result<()> {
            self.0.pass(time)
        }
    }
    struct Nobody;
    impl medfs_lab::tape::Watch for Nobody {
        fn setup_done(&mut self) -> std::io::Result<()> {
            Ok(())
        }
        fn played(&mut self, _written: u64) {}
    }
    let recording = workload::record(1, 0.01, &workload::small_updates::run).unwrap();
    recording.tape.play(&memory_volume(), &mut Nobody).unwrap();
    let error = recording.tape.play(&Liar(memory_volume()), &mut Nobody).unwrap_err().to_string();
    assert!(error.contains("are not what they were"), "{error}");
}

#[test]
fn results_are_traceable_and_damaged_ones_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let figure = run("medfs-fig11b", dir.path(), 0.004);
    for row in &figure.rows {
        for file in &row.cells {
            let Ok(Some(ResultFile::Cell(cell))) = read_result(&dir.path().join(file)) else {
                panic!("{file} is no cell");
            };
            assert_eq!((cell.experiment.as_str(), cell.format.as_str()), ("medfs-fig11b", CELL_FORMAT));
        }
        assert!(!row.cells.is_empty() && row.ours.is_some(), "{row:?}");
    }
    fs::write(dir.path().join("cut.json"), "{\"format\": \"medfs-cell/1\", \"wri").unwrap();
    fs::write(dir.path().join("new.json"), "{\"format\": \"medfs-cell/9\"}").unwrap();
    fs::write(dir.path().join("mine.json"), "[1, 2]").unwrap();
    let report = Report::load(dir.path()).unwrap();
    assert_eq!(report.problems.len(), 2, "{:?}", report.problems);
    assert!(report.problems[0].contains("cut.json") && report.problems[1].contains("medfs-cell/9"));
    let csv = String::from_utf8(report.render(Format::Csv).unwrap()).unwrap();
    assert_eq!(csv.lines().count(), 1 + figure.rows.len());
    let markdown = String::from_utf8(report.render(Format::Markdown).unwrap()).unwrap();
    assert!(markdown.contains("with Hcluster") && markdown.contains("cut.json"));
    let json: serde_json::Value = serde_json::from_slice(&report.render(Format::Json).unwrap()).unwrap();
    assert_eq!(json["cells"].as_array().unwrap().len(), report.cells.len());
    let empty = tempfile::tempdir().unwrap();
    assert!(Report::load(empty.path()).unwrap_err().to_string().contains("holds no result file"));
}

/// Ours of a row.
fn ours(figure: &medfs_lab::cell::Figure, label: &str, scheme: &str, unit: &str) -> f64 {
    let is = |r: &&medfs_lab::cell::Row| r.label == label && r.scheme == scheme && r.unit.starts_with(unit);
    figure.rows.iter().find(is).and_then(|r| r.ours).unwrap_or_else(|| panic!("{label} {scheme}"))
}

/// What is reserved lies in one piece, and reads as what was written in order; logs leave a piece for each page.
#[test]
fn pieces_cost_what_the_model_says() {
    let dir = tempfile::tempdir().unwrap();
    let figure = run("ars-fig1", dir.path(), 0.02);
    for scheme in ["F2FS", "IPU", "FORCE"] {
        assert!(ours(&figure, "extents", scheme, "extents") > 400.0);
        assert!(ours(&figure, "time against in order", scheme, "x") > 2.0);
    }
    for scheme in ["ARS", "ARS+IPU"] {
        assert_eq!(ours(&figure, "extents", scheme, "extents"), 1.0);
        assert!((0.9..1.1).contains(&ours(&figure, "time against in order", scheme, "x")));
        assert!(ours(&figure, "bandwidth against F2FS", scheme, "%") > 100.0);
    }
    let figure = run("ars-fig2", dir.path(), 0.02);
    let time = |kib: &str| ours(&figure, kib, "F2FS", "x");
    assert!(time("4") > time("16") && time("16") > time("64") && time("256") < 1.5);
}

/// What differs little or by nearly all of a block is a delta, and what differs by half of it goes to flash.
#[test]
fn a_memory_takes_what_the_paper_says() {
    let dir = tempfile::tempdir().unwrap();
    let figure = run("dj-fig9", dir.path(), 0.02);
    for (label, least, most) in
        [("512 MB, 10%", 8.0, 30.0), ("512 MB, 50%", 0.9, 1.5), ("512 MB, 90%", 8.0, 30.0)]
    {
        let faster = ours(&figure, label, "DJ", "x");
        assert!((least..most).contains(&faster), "{label}: {faster}");
    }
    let of_ext4 = |label: &str, scheme: &str| ours(&figure, label, scheme, "of ext4's blocks");
    // A log writes a block once, where a journal writes it twice.
    for label in ["512 MB, 10%", "512 MB, 50%", "512 MB, 90%"] {
        assert!(of_ext4(label, "NVRAM") < 0.55 && of_ext4(label, "NVRAM-population") < 0.55, "{label}");
    }

    let figure = run("dj-thresholds", dir.path(), 0.01);
    let journal =
        |label: &str, scheme: &str| ours(&figure, &format!("journal, {label}"), scheme, "% of updates");
    for scheme in ["DJ", "NVRAM-population"] {
        assert!(journal("W1, 75%", scheme) < 1.0 && journal("W3, 75%", scheme) > 10.0, "{scheme}");
        assert!((5.0..12.0).contains(&journal("W2, 75%", scheme)), "{scheme}");
    }
    assert!(journal("W1, 100%", "DJ") > journal("W1, 75%", "DJ"), "a full memory sends blocks to flash");
}

/// To 15%, in two journal modes of SQLite and two modes of ext4.
#[test]
fn the_model_of_ext4_writes_what_a_kernels_ext4_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let figure = run("dj-ext4", dir.path(), 1.0);
    let compared: Vec<_> =
        figure.rows.iter().filter(|row| row.unit == "MB" || row.label.ends_with("flushes")).collect();
    assert_eq!(compared.len(), 8);
    for row in compared {
        assert!((row.ratio().unwrap() - 1.0).abs() < 0.15, "{row:?}");
    }
}

/// TPC-C's transactions, and Postmark's that sync, are faster beside a memory, and a larger one saves more.
#[test]
fn benchmarks_are_faster_beside_a_memory() {
    let dir = tempfile::tempdir().unwrap();
    let figure = run("dj-fig11", dir.path(), 0.05);
    let faster =
        |label: &str, scheme: &str| ours(&figure, &format!("faster, tpcc-truncate, {label}"), scheme, "%");
    assert!((20.0..30.0).contains(&faster("ordered", "DJ")), "{}", faster("ordered", "DJ"));
    assert!(faster("journal", "DJ") > faster("journal", "DJ, written back"));
    assert!(faster("journal", "DJ, written back") > faster("ordered", "DJ"));
    assert!(faster("ordered", "NVRAM-ordered") > 5.0 && faster("journal", "NVRAM") > 10.0);
    let part = ours(&figure, "deltas, tpcc-truncate, journal", "DJ", "%");
    assert!((2.0..6.0).contains(&part), "the paper's is 3.7: {part}");

    let figure = run("dj-fig10", dir.path(), 0.005);
    let blocks = |scheme: &str, mode: &str| ours(&figure, &format!("blocks, 100 K, {mode}"), scheme, "of");
    assert!(blocks("DJ", "synced, ordered") < 0.3 && blocks("DJ", "synced, journal") < 0.3);
    assert!(blocks("NVRAM", "synced, journal") < 0.3);
    let unsynced = ours(&figure, "faster, 100 K, ordered", "DJ", "%");
    assert!((0.5..25.0).contains(&unsynced), "{unsynced}");

    let figure = run("dj-sizes", dir.path(), 0.05);
    let written =
        |kib: &str, scheme: &str| ours(&figure, kib, &format!("tpcc-truncate, {scheme}"), "MB written");
    for scheme in ["DJ", "NVRAM"] {
        assert!(written("none", scheme) > written("64", scheme), "{scheme}");
        assert!(written("64", scheme) >= written("1024", scheme), "{scheme}");
    }
    let time = |kind: &str| ours(&figure, "16384", &format!("tpcc-truncate, {kind}"), "of the time");
    assert!(time("DRAM") < time("STT-MRAM") && time("STT-MRAM") < time("PCM"));
    assert!(time("PCM") < time("SPI-FRAM") && time("SPI-FRAM") < 1.0);
}

/// gzip's differences are the smallest where they repeat, and deltas of both pages those of TPC-C.
#[test]
fn differences_are_compressed_by_each_codec_of_the_paper() {
    let dir = tempfile::tempdir().unwrap();
    let figure = run("dj-fig4", dir.path(), 0.01);
    let part = |label: &str, codec: &str| ours(&figure, label, codec, "% of a block");
    for codec in ["LZO", "LZ4", "LZF", "gzip", "LZW"] {
        assert!(part("10% inv", codec) < 25.0 && part("50% any", codec) > 45.0, "{codec}");
        assert!(part("10% inv", codec) >= part("10% inv", "gzip"), "{codec}");
        assert!(part("tpcc-truncate", codec) > part("tpcc-truncate", "delta"), "{codec}");
        assert!(ours(&figure, "time, tpcc-wal", codec, "of LZO's") > 0.0);
    }
}

/// On an aged volume too.
#[test]
#[ignore = "minutes: cargo test -p medfs-lab --test lab -- --ignored ages timed"]
fn a_reserved_file_stays_in_its_pieces_while_a_volume_ages() {
    let dir = tempfile::tempdir().unwrap();
    let figure = run("ars-fig4", dir.path(), 0.1);
    for label in ["Low, extents", "High, extents"] {
        assert!(ours(&figure, label, "F2FS", "extents") > 300.0, "{label}");
        assert!(ours(&figure, label, "ARS", "extents") <= 5.0, "{label}");
    }
    let figure = run("ars-fig5", dir.path(), 0.1);
    let all: f64 = (1..=7).map(|n| ours(&figure, &format!("L{n}"), "ARS", "%")).sum();
    assert!((all - 100.0).abs() < 0.001);
}

#[test]
#[ignore = "minutes: cargo test -p medfs-lab --test lab -- --ignored ages timed"]
fn transactions_and_applications_are_timed() {
    let dir = tempfile::tempdir().unwrap();
    let figure = run("ars-fig6", dir.path(), 0.05);
    assert!(ours(&figure, "69% full, most against F2FS", "ARS", "x") > 0.5);
    let figure = run("ars-fig7", dir.path(), 0.3);
    assert_eq!(ours(&figure, "Facebook, Low", "IPU", "%"), 0.0);
    let figure = run("ars-table2", dir.path(), 0.03);
    assert!(ours(&figure, "Twitter, training", "tree", "s") < 60.0);
}

/// A cell that another program wrote, with little in it, is shown.
#[test]
fn trees_judge_files_better_than_reserving_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let figure = run("ars-table1", dir.path(), 0.1);
    for app in ["Facebook", "Twitter"] {
        let row = |what: &str, scheme: &str| {
            let label = format!("{app}, {what}");
            let row = figure.rows.iter().find(|r| r.label == label && r.scheme == scheme);
            row.unwrap_or_else(|| panic!("{label}, {scheme}: {:?}", figure.rows))
        };
        for moment in ["at the end", "when judged"] {
            let (tree, nothing) =
                (row("accuracy", moment), row("accuracy", &format!("reserve nothing, {moment}")));
            assert!(tree.ours > nothing.ours.map(|share| share + 5.0), "{tree:?} {nothing:?}");
        }
        assert!(row("recall", "at the end").paper.is_some());
    }
}

#[test]
fn cells_of_other_programs_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let cell =
        "{\"format\": \"medfs-cell/1\", \"workload\": \"<script>alert(1)</script>\", \"scheme\": \"ext4\"}";
    fs::write(dir.path().join("a.json"), cell).unwrap();
    let page = String::from_utf8(Report::load(dir.path()).unwrap().render(Format::Html).unwrap()).unwrap();
    assert!(page.contains("ext4") && !page.contains("<script>alert"), "the page takes results for markup");
    let read: Cell = serde_json::from_str(cell).unwrap();
    assert_eq!(read.written.total, 0);
}

fn browser() -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |name: &&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    ["chromium", "google-chrome", "chromium-browser"].into_iter().find(found)
}

/// What a headless browser says of a page: faults on the console or of resources, plots that have a size,
/// resources that were asked for, and whether the script ran and sorts.
fn probe(browser: &str, dir: &Path, page: &str) -> serde_json::Value {
    // What the page would do wrong is noted in its own text, where --dump-dom shows it.
    let watch = "<script>window.faults=[];addEventListener('error',e=>faults.push(e.message||'resource'),true);\
                 console.error=(...a)=>faults.push(a.join(' '));console.warn=console.error;\
                 addEventListener('load',()=>setTimeout(()=>{const d=document.createElement('pre');d.id='probe';\
                 const sized=[...document.querySelectorAll('svg')].filter(s=>s.getBoundingClientRect().height>20).length;\
                 const sort=document.querySelector('th button');sort?.click();\
                 d.textContent=JSON.stringify({faults,sized,requests:performance.getEntriesByType('resource').map(r=>r.name),\
                 sorted:sort?.parentElement.getAttribute('aria-sort'),ready:document.documentElement.dataset.ready,\
                 wide:document.documentElement.scrollWidth>innerWidth});document.body.append(d)},50))</script>";
    let probed = dir.join("probed.html");
    fs::write(&probed, page.replace("<head>", &format!("<head>{watch}"))).unwrap();
    let said = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=500,900",
            "--virtual-time-budget=3000",
        ])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .args(["--dump-dom", &format!("file://{}", probed.display())])
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&said.stdout);
    let probe = dom.split("id=\"probe\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    serde_json::from_str(probe.expect("the page's script did not run")).unwrap()
}

/// What is wrong with a page by what the browser says of it; empty where all is well.
fn wrong(probe: &serde_json::Value, plots: usize) -> Vec<&'static str> {
    let none = |list: &str| probe[list].as_array().is_some_and(Vec::is_empty);
    let checks = [
        ("faults", none("faults")),
        ("requests", none("requests")),
        ("plots", probe["sized"] == plots),
        ("script", probe["ready"] == "yes"),
        ("sorting", probe["sorted"] == "ascending"),
        ("wider than a phone's screen", probe["wide"] == false),
    ];
    checks.into_iter().filter(|(_, well)| !well).map(|(name, _)| name).collect()
}

/// The page in a headless browser: the script has run, every plot is there and has a size, nothing was said
/// on the console, and no name was looked up or connection made. That each of these can fail is shown by
/// pages that were spoilt.
#[test]
fn the_page_opens_in_a_browser_without_errors_and_without_a_network() {
    let Some(browser) = browser() else {
        println!("NOTE: no headless browser here: the page was not opened");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    run("medfs-fig11b", dir.path(), 0.004);
    run("medfs-fig11a", dir.path(), 0.004);
    let page = String::from_utf8(Report::load(dir.path()).unwrap().render(Format::Html).unwrap()).unwrap();
    let plots = page.matches("<svg ").count();
    assert!(plots >= 2, "{plots} plots");
    let said = probe(browser, dir.path(), &page);
    assert_eq!(wrong(&said, plots), [""; 0], "{said}");
    let spoilt = [
        ("<main>", "<main><script>console.error('x')</script>", "faults"),
        ("<main>", "<main><img src=\"http://127.0.0.1:9/x.png\">", "requests"),
        ("<svg ", "<span ", "plots"),
        ("dataset.ready = \"yes\"", "dataset.ready = never", "script"),
        ("\"ascending\" : \"descending\"", "\"\" : \"\"", "sorting"),
        ("<main>", "<main><p style=\"width:2000px;max-width:none\">x</p>", "wider than a phone's screen"),
    ];
    for (from, to, expected) in spoilt {
        assert!(page.contains(from), "{from}");
        let said = probe(browser, dir.path(), &page.replace(from, to));
        assert!(wrong(&said, plots).contains(&expected), "{expected}: {said}");
    }
}
