//! The demo's result as a table, and what it means for a card's lifetime.

use super::Outcome;
use crate::args::DemoArgs;
use crate::lifetime::{self, Card};
use crate::size;
use comfy_table::{CellAlignment, Table, TableComponent, presets};
use serde::Serialize;

/// Lifetime by Eq. 1 of MedFS.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Lifetime {
    card: Card,
    transactions_per_day: u64,
    /// Full-card writes a day of the first configuration.
    drive_writes_per_day: f64,
    /// Years of each configuration.
    runs: Vec<LifetimeRun>,
}

#[derive(Debug, Clone, Serialize)]
struct LifetimeRun {
    configuration: &'static str,
    /// Bytes written for one byte the first configuration writes.
    ratio: f64,
    /// What is saved against the first configuration, in per cent.
    saving_percent: f64,
    years: f64,
}

impl Lifetime {
    pub(super) fn of(runs: &[Outcome], args: &DemoArgs) -> Lifetime {
        let stock = runs.first().map_or(0.0, per_transaction);
        let dwpd = stock * args.per_day as f64 / args.size as f64;
        let of_run = |run: &Outcome| {
            let ratio = per_transaction(run) / stock;
            let saving_percent = (1.0 - ratio) * 100.0;
            LifetimeRun {
                configuration: run.configuration,
                ratio,
                saving_percent,
                years: args.card.years(dwpd, ratio),
            }
        };
        Lifetime {
            card: args.card.clone(),
            transactions_per_day: args.per_day,
            drive_writes_per_day: dwpd,
            runs: runs.iter().map(of_run).collect(),
        }
    }
}

/// Bytes of a block.
const BLOCK: f64 = medfs_format::BLOCK_SIZE as f64;

fn per_transaction(run: &Outcome) -> f64 {
    run.written_bytes as f64 / run.transactions as f64
}

fn each(bytes: f64) -> String {
    if bytes < 1024.0 { format!("{bytes:.0} B") } else { format!("{:.1} KiB", bytes / 1024.0) }
}

/// Prints everything.
pub(super) fn print(runs: &[Outcome], lifetime: &Lifetime, args: &DemoArgs, mounted: bool) {
    let what = if mounted {
        format!("SQLite, journal_mode={}, synchronous=FULL", args.journal)
    } else {
        "built-in page updates with a rollback journal".to_owned()
    };
    outln!();
    outln!("Written to the device by {} transactions ({what}), in all and by each:", args.transactions);
    outln!("{}", writes(runs));
    outln!();
    for run in lifetime.runs.iter().skip(1) {
        outln!("Saved with {}: {:.1} % of what was written.", run.configuration, run.saving_percent);
    }
    let end = if mounted {
        "The daemon was killed (SIGKILL)"
    } else {
        "The volume was dropped without being closed"
    };
    outln!("{end} in the middle of {} more; then it was recovered:", args.transactions);
    outln!("{}", crashes(runs));
    outln!();
    outln!(
        "Lifetime of a {} card at {} transactions a day ({:.4} full-card writes a day):",
        size::show(args.size),
        lifetime.transactions_per_day,
        lifetime.drive_writes_per_day
    );
    outln!("{}", lifetimes(lifetime));
    outln!(
        "years = PEC x (1 + OP) / (365 x DWPD x WA x R), with PEC = {} cycles, OP = {:.0} %, WA = {} inside the card \
         (assumed: --pe-cycles, --card-spare, --card-wa).",
        lifetime.card.pe_cycles,
        lifetime.card.spare_percent,
        lifetime.card.write_amplification
    );
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    for lines_between_rows in [
        TableComponent::HorizontalLines,
        TableComponent::MiddleIntersections,
        TableComponent::LeftBorderIntersections,
        TableComponent::RightBorderIntersections,
    ] {
        table.remove_style(lines_between_rows);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Causes in rows, configurations in columns.
fn writes(runs: &[Outcome]) -> Table {
    let mut header = vec![""];
    for run in runs {
        header.extend([run.configuration, "each"]);
    }
    let mut t = table(&header);
    type Row = (&'static str, fn(&Outcome) -> Option<f64>);
    let rows: [Row; 8] = [
        ("rows changed by the application", |r| Some(r.payload_bytes as f64)),
        ("handed to write(2) by the database", |r| r.database_bytes.map(|b| b as f64)),
        ("device: data", |r| Some(r.written_blocks.data as f64 * BLOCK)),
        ("device: node", |r| Some(r.written_blocks.node as f64 * BLOCK)),
        ("device: compact", |r| Some(r.written_blocks.compact as f64 * BLOCK)),
        ("device: meta (checkpoint, NAT, SIT, SSA)", |r| Some(r.written_blocks.meta as f64 * BLOCK)),
        ("device: gc", |r| Some(r.written_blocks.gc as f64 * BLOCK)),
        ("device: all", |r| Some(r.written_bytes as f64)),
    ];
    for (name, value) in rows {
        let mut row = vec![name.to_owned()];
        for run in runs {
            let value = value(run);
            row.push(value.map_or("-".into(), |v| size::show(v as u64)));
            row.push(value.map_or("-".into(), |v| each(v / run.transactions as f64)));
        }
        t.add_row(row);
    }
    let mut amplification = vec!["write amplification: device / write(2)".to_owned()];
    let mut of_rows = vec!["write amplification: device / rows changed".to_owned()];
    let mut flushes = vec!["flushes".to_owned()];
    let mut speed = vec!["time".to_owned()];
    for run in runs {
        let ratio = run.database_bytes.map(|b| run.written_bytes as f64 / b as f64);
        amplification.extend([String::new(), ratio.map_or("-".into(), |r| format!("{r:.2}"))]);
        of_rows
            .extend([String::new(), format!("{:.0}", run.written_bytes as f64 / run.payload_bytes as f64)]);
        flushes.extend([
            run.flushes.to_string(),
            format!("{:.2}", run.flushes as f64 / run.transactions as f64),
        ]);
        let millis = run.seconds / run.transactions as f64 * 1e3;
        speed.extend([format!("{:.2} s", run.seconds), format!("{millis:.2} ms")]);
    }
    let mut deltas = vec!["pages kept as deltas, and bytes of each".to_owned()];
    for run in runs {
        let each_delta = run.delta_bytes.checked_div(run.delta_pages);
        deltas.extend([run.delta_pages.to_string(), each_delta.map_or("-".into(), |b| format!("{b} B"))]);
    }
    for row in [deltas, amplification, of_rows, flushes, speed] {
        t.add_row(row);
    }
    t
}

fn crashes(runs: &[Outcome]) -> Table {
    let mut t = table(&["", "acknowledged", "found", "lost", "recovery", "integrity_check", "fsck"]);
    for run in runs {
        let c = &run.crash;
        t.add_row([
            run.configuration.to_owned(),
            c.acknowledged.to_string(),
            c.found.to_string(),
            c.lost.to_string(),
            format!("{:.0} ms", c.recovery_seconds * 1e3),
            c.integrity.clone(),
            if c.fsck_clean { "clean".into() } else { "FAULTY".into() },
        ]);
    }
    t
}

fn lifetimes(lifetime: &Lifetime) -> Table {
    let mut t = table(&["", "R (bytes written / stock)", "lifetime"]);
    for run in &lifetime.runs {
        t.add_row([run.configuration.to_owned(), format!("{:.2}", run.ratio), lifetime::show(run.years)]);
    }
    t
}
