//! The demo's result as tables of 80 columns, and what it means for a card's lifetime.

use super::outcome::{Outcome, Written};
use crate::args::DemoArgs;
use crate::lifetime::{self, Card};
use crate::size;
use crate::words::{COLUMNS, count, grouped};
use comfy_table::{CellAlignment, Table, TableComponent, presets};
use serde::Serialize;
use std::fmt;

/// Lifetime by Eq. 1 of MedFS.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Lifetime {
    card: Card,
    transactions_per_day: u64,
    /// The years of each run.
    runs: Vec<LifetimeRun>,
}

#[derive(Debug, Clone, Serialize)]
struct LifetimeRun {
    #[serde(skip_serializing_if = "Option::is_none")]
    journal_mode: Option<String>,
    configuration: &'static str,
    /// Full-card writes a day of the first configuration with this journal mode.
    drive_writes_per_day: f64,
    /// Bytes written for one byte that the first configuration writes.
    ratio: f64,
    /// What is saved against the first configuration, in per cent.
    saving_percent: f64,
    years: f64,
}

impl Lifetime {
    pub(super) fn of(runs: &[Outcome], args: &DemoArgs) -> Lifetime {
        let of_run = |run: &Outcome| {
            let first = runs.iter().find(|first| first.journal_mode == run.journal_mode).unwrap_or(run);
            let ratio = per_transaction(run) / per_transaction(first);
            let drive_writes_per_day = per_transaction(first) * args.per_day as f64 / args.size as f64;
            LifetimeRun {
                journal_mode: run.journal_mode.clone(),
                configuration: run.configuration,
                drive_writes_per_day,
                ratio,
                saving_percent: (1.0 - ratio) * 100.0,
                years: args.card.years(drive_writes_per_day, ratio),
            }
        };
        Lifetime {
            card: args.card.clone(),
            transactions_per_day: args.per_day,
            runs: runs.iter().map(of_run).collect(),
        }
    }
}

fn per_transaction(run: &Outcome) -> f64 {
    run.written_bytes as f64 / run.transactions as f64
}

/// All that is printed at the end.
pub(super) struct Text<'a> {
    pub(super) runs: &'a [Outcome],
    pub(super) lifetime: &'a Lifetime,
    pub(super) args: &'a DemoArgs,
    pub(super) mounted: bool,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transactions = count(self.args.transactions.into(), "transaction");
        let (what, end) = match self.mounted {
            true => ("SQLite, synchronous=FULL", "The daemon was killed (SIGKILL)"),
            false => (
                "built-in page updates with a rollback journal",
                "The volume was dropped without being closed",
            ),
        };
        writeln!(f, "Written to the device by {transactions} ({what}):")?;
        writeln!(f, "{}\n", self.writes())?;
        let extra = if self.mounted {
            " (synchronous=EXTRA: with FULL, SQLite may roll back the last commit in DELETE mode)"
        } else {
            ""
        };
        paragraph(
            f,
            &format!("{end} in the middle of {transactions} more{extra}, and the volume was recovered:"),
        )?;
        writeln!(f, "{}\n", self.crashes())?;
        let card = &self.lifetime.card;
        paragraph(
            f,
            &format!(
                "The card is one of {}, written by {} a day. Lifetime in years = PEC x (1 + OP) / (365 x DWPD x WA x R). Assumed: PEC = {} \
                 cycles, OP = {:.0} %, WA = {} inside the card (--pe-cycles, --card-spare, --card-wa).",
                size::show(self.args.size),
                count(self.lifetime.transactions_per_day, "transaction"),
                card.pe_cycles,
                card.spare_percent,
                card.write_amplification
            ),
        )?;
        let by_hand = "Flushes and bytes hardly depend on the machine: the volumes are mounted so that nothing is written by the \
                       clock. On a slow or busy machine more fsyncs see a changed timestamp, and the kernel forgets a deleted journal later: plain F2FS then writes an inode more often (up to 6% of DELETE's bytes). The times do depend on the machine.";
        paragraph(f, by_hand)
    }
}

fn paragraph(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    writeln!(f, "{}", textwrap::fill(text, COLUMNS))
}

impl Text<'_> {
    /// A row for each figure, a column for each run.
    fn writes(&self) -> Table {
        let header: Vec<String> = [String::new()].into_iter().chain(self.runs.iter().map(title)).collect();
        let mut table = table(&header);
        let mut row = |name: &str, value: &dyn Fn(usize, &Outcome) -> String| {
            let values = self.runs.iter().enumerate().map(|(at, run)| value(at, run));
            table.add_row([name.to_owned()].into_iter().chain(values).collect::<Vec<_>>());
        };
        let blocks =
            |of: fn(&Written) -> u64| move |_: usize, run: &Outcome| grouped(of(&run.written_blocks));
        row("bytes", &|_, run| size::show(run.written_bytes));
        row("saved", &|at, _| percent(self.lifetime.runs.get(at)));
        row("blocks of 4 KiB: data", &blocks(|w| w.data));
        row("  node", &blocks(|w| w.node));
        row("  compact pages", &blocks(|w| w.compact));
        row("  meta, cleaning", &blocks(|w| w.meta + w.gc));
        row("flushes", &|_, run| grouped(run.flushes));
        row("pages kept as deltas", &|_, run| grouped(run.delta_pages));
        row("bytes of each delta", &|_, run| {
            run.delta_bytes.checked_div(run.delta_pages).map_or("-".into(), |bytes| bytes.to_string())
        });
        row("written / by database", &|_, run| {
            run.database_bytes
                .map_or("-".into(), |bytes| format!("{:.2}", run.written_bytes as f64 / bytes as f64))
        });
        row("time a transaction", &|_, run| millis(run.seconds, run));
        row("  of processors", &|_, run| millis(run.processor_seconds, run));
        row("the card lasts", &|at, _| {
            self.lifetime.runs.get(at).map_or(String::new(), |run| lifetime::show(run.years))
        });
        table
    }

    fn crashes(&self) -> Table {
        let header = ["", "acknowledged", "found", "lost", "recovery", "SQLite", "fsck"].map(str::to_owned);
        let mut table = table(&header);
        for run in self.runs {
            let crash = &run.crash;
            table.add_row([
                title(run).replace('\n', " "),
                grouped(crash.acknowledged),
                grouped(crash.found),
                grouped(crash.lost),
                format!("{:.0} ms", crash.recovery_seconds * 1e3),
                crash.integrity.clone(),
                if crash.fsck_clean { "clean".into() } else { "FAULTY".into() },
            ]);
        }
        table
    }
}

/// Journal mode and configuration, one above the other.
fn title(run: &Outcome) -> String {
    let mode = run.journal_mode.as_deref().map_or(String::new(), |mode| format!("{}\n", mode.to_uppercase()));
    format!("{mode}{}", run.configuration)
}

fn percent(run: Option<&LifetimeRun>) -> String {
    match run {
        Some(run) if run.ratio != 1.0 => format!("{:.1} %", run.saving_percent),
        _ => "-".into(),
    }
}

fn millis(seconds: f64, run: &Outcome) -> String {
    format!("{:.2} ms", seconds / run.transactions as f64 * 1e3)
}

fn table(header: &[String]) -> Table {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::CONFIGURATIONS;
    use crate::demo::outcome::Crash;
    use clap::Parser;

    fn outcome(journal: &str, at: usize, bytes: u64) -> Outcome {
        Outcome {
            journal_mode: Some(journal.into()),
            configuration: CONFIGURATIONS[at].name,
            transactions: 1000,
            seconds: 1234.5,
            processor_seconds: 123.4,
            payload_bytes: 1,
            database_bytes: Some(bytes / 3),
            written_blocks: Written {
                data: 1_234_567,
                node: 1_234_567,
                compact: 123_456,
                meta: 123_456,
                gc: 0,
            },
            written_bytes: bytes,
            flushes: 1_234_567,
            delta_pages: 1_234_567,
            delta_bytes: 1 << 40,
            crash: Crash {
                acknowledged: 12_345,
                found: 12_345,
                lost: 0,
                recovery_seconds: 1.0,
                integrity: "ok".into(),
                fsck_clean: true,
            },
        }
    }

    #[test]
    fn each_journal_mode_is_measured_against_itself_and_all_fits_a_terminal() {
        let cli = crate::args::Cli::parse_from(["medfs", "demo"]);
        let crate::args::Command::Demo(args) = cli.command else { unreachable!() };
        assert_eq!(args.journal, ["delete", "wal"]);
        let runs = [
            outcome("delete", 0, 1 << 30),
            outcome("delete", 1, 1 << 28),
            outcome("wal", 0, 1 << 28),
            outcome("wal", 1, 1 << 27),
        ];
        let lifetime = Lifetime::of(&runs, &args);
        let savings: Vec<f64> = lifetime.runs.iter().map(|run| run.saving_percent).collect();
        assert_eq!(savings, [0.0, 75.0, 0.0, 50.0]);
        let years: Vec<f64> = lifetime.runs.iter().map(|run| run.years / lifetime.runs[0].years).collect();
        assert!(years.iter().zip([1.0, 4.0, 4.0, 8.0]).all(|(a, b)| (a - b).abs() < 1e-9), "{years:?}");
        let text = Text { runs: &runs, lifetime: &lifetime, args: &args, mounted: true }.to_string();
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS, "{}: {line}\n{text}", line.chars().count());
        }
        assert!(text.contains("DELETE") && text.contains("75.0 %"), "{text}");
    }
}
