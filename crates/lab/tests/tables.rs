//! The seven applications are as MedFS's Tables 1 and 2 say: each measured characteristic within 10% of the table.
//!
//! Run with `--nocapture` to see both sides. What has not the time for all tasks checks those of three
//! applications: the one with the largest difference, the one with the largest files, the one with the
//! smallest requests.

use medfs_lab::workload::app::{AppSpec, TaskSpec, apps, run_spec, run_task, small_share};
use medfs_lab::workload::{Recording, record};

/// Seed of the checked run.
const SEED: u64 = 1;
/// Part of the half hours, and of the tasks of Table 1.
const SCALE: f64 = 0.02;
/// How far a characteristic may be from the table's.
const TOLERANCE: f64 = 0.10;

/// One characteristic: name, the table's, ours.
type Side = (&'static str, f64, f64);

fn far(what: &str, sides: &[Side]) -> Vec<String> {
    let text: Vec<String> = sides.iter().map(|(n, t, o)| format!("{n} {t:.1}/{o:.1}")).collect();
    println!("{what:34} table/ours: {}", text.join("  "));
    let off = sides.iter().filter(|(_, table, ours)| (ours / table - 1.0).abs() > TOLERANCE);
    off.map(|(name, table, ours)| format!("{what}: {name} is {ours:.2}, the table says {table:.2}")).collect()
}

fn task(app: &AppSpec, task: &TaskSpec) -> Vec<String> {
    let r = record(SEED, SCALE, &|stage| run_task(stage, app, task)).expect("the task runs");
    let t = r.totals;
    let runs = r.values["runs"];
    let sides = [
        ("MB", task.volume_mb, t.bytes() as f64 / 1e6 / runs),
        ("small", task.small, 100.0 * small_share(&r.touched)),
        ("UR", task.updates, 100.0 * t.update_ratio()),
        ("UD", task.difference, 100.0 * t.update_difference()),
    ];
    far(&format!("{} {}", app.id, task.name), &sides)
}

fn application(app: &AppSpec) -> (Vec<String>, Recording) {
    let r = record(SEED, SCALE, &|stage| run_spec(stage, app)).expect("the application runs");
    let t = r.totals;
    let sides = [
        ("GB", app.volume_gb * SCALE, t.bytes() as f64 / 1e9),
        ("RW", app.write_share, 100.0 * t.write_share()),
        ("CCR", app.compression, 100.0 * t.compression()),
        ("DCR", app.delta_compression, 100.0 * t.small_delta_compression()),
        ("UR", app.weighted(|t| t.updates), 100.0 * t.update_ratio()),
        ("UD", app.weighted(|t| t.difference), 100.0 * t.update_difference()),
    ];
    println!(
        "{:34} request KB {:.1}/{:.1}, DCR of all updates {:.1}, sqlite {:.1} temp {:.1} other {:.1}",
        "",
        app.request_pages() * 4.096,
        t.request_bytes() / 1e3,
        100.0 * t.delta_compression(),
        100.0 * t.type_share(medfs_lab::totals::FileType::Sqlite),
        100.0 * t.type_share(medfs_lab::totals::FileType::Temp),
        100.0 * t.type_share(medfs_lab::totals::FileType::Other),
    );
    (far(app.name.as_str(), &sides), r)
}

fn check_tasks(of: &[&str]) {
    let apps = apps().expect("the tables parse");
    let wanted = apps.iter().filter(|a| of.contains(&a.id.as_str()));
    let off: Vec<String> = wanted.flat_map(|a| a.task.iter().flat_map(|t| task(a, t))).collect();
    assert!(off.is_empty(), "{} characteristics are off:\n{}", off.len(), off.join("\n"));
}

#[test]
fn tasks_are_as_table_1_says() {
    check_tasks(&["GM", "TG", "ST"]);
}

#[test]
#[ignore = "takes half a minute"]
fn all_tasks_are_as_table_1_says() {
    check_tasks(&["GM", "PS", "ST", "TG", "TW", "WC", "ZM"]);
}

#[test]
fn applications_are_as_table_2_says() {
    let apps = apps().expect("the tables parse");
    let off: Vec<String> = apps.iter().flat_map(|a| application(a).0).collect();
    assert!(off.is_empty(), "{} characteristics are off:\n{}", off.len(), off.join("\n"));
}
