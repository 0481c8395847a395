//! Fig. 9 and 10: latencies, and what the controller's clock does to them.

use super::matrix::{Arrivals, Cell, WORKLOADS, Way, all, cell, change, mean_change};
use super::row::{Options, Progress, Row};
use crate::error::Result;
use crate::profile::Profile;

/// The controller's clocks of Fig. 10 in MHz.
const CLOCKS: [f64; 7] = [140.0, 160.0, 180.0, 200.0, 220.0, 240.0, 260.0];

const MADE_UP: &str = "the traces were not published: the bursts in which requests queue are synthetic, and queueing multiplies any gain; see the rows where no request waits for another";
const SIZES: &str = "compression slows single-page requests; with Table 4's volumes larger requests dominate the time, and there programming hides it: see the rows with requests of one page each";

/// Fig. 9.
pub(crate) fn fig9(options: &Options, progress: Progress<'_>) -> Result<Vec<Row>> {
    let methods = ["pm", "zftl", "sc", "ldc", "opt"];
    let cells = all(&methods, Way::default(), options, &mut |part| progress(part * 0.45))?;
    let alone = Way { arrivals: Arrivals::Apart, ..Way::default() };
    let apart = all(&methods, alone, options, &mut |part| progress(0.45 + part * 0.45))?;
    let single = Way { pages: 1, ..alone };
    let single = all(&["pm", "zftl", "ldc"], single, options, &mut |part| progress(0.9 + part * 0.1))?;
    let mut rows = Vec::new();
    let figures: [(&str, &'static str, Of); 3] = [
        ("(a)", "(a) % more write latency than PM", WRITE),
        ("(b)", "(b) % more read latency than PM", |c| c.read_us),
        ("(c)", "(c) % more worst latency than PM", |c| c.worst_us),
    ];
    for (figure, unit, of) in figures {
        for (name, row) in WORKLOADS.iter().zip(&cells) {
            for (method, at) in [("zFTL", 1), ("SC", 2), ("LDC", 3), ("OPT", 4)] {
                let by = change(of(&row[at]), of(&row[0]));
                let paper = (figure == "(a)" && *name == "GE" && method == "zFTL").then_some(4.0);
                rows.push(Row::new(*name, paper, by, unit).of_series(method).if_off(SIZES));
            }
        }
    }
    rows.extend(means("(a) mean", &cells, MADE_UP));
    rows.extend(means("(a) mean, without queueing", &apart, MADE_UP));
    for (name, row) in WORKLOADS.iter().zip(&apart) {
        for (method, at) in [("zFTL", 1), ("LDC", 3)] {
            let by = change(row[at].write_us, row[0].write_us);
            rows.push(Row::new(*name, None, by, SERVED).of_series(method));
        }
    }
    rows.extend(of_one_page(&single));
    rows.push(Row::new("(b) mean: LDC against PM", None, mean_change(&cells, 0, 3, |c| c.read_us), "%"));
    rows.push(Row::new("(c) mean: LDC against PM", None, mean_change(&cells, 0, 3, |c| c.worst_us), "%"));
    Ok(rows)
}

/// Unit of Fig. 9(a) where no request waits.
const SERVED: &str = "(a) % more write latency than PM, without queueing";

type Of = fn(&Cell) -> f64;
const WRITE: Of = |c| c.write_us;

/// Workloads that zFTL makes slower than PM.
fn slower(cells: &[Vec<Cell>]) -> f64 {
    cells.iter().filter(|row| row[1].write_us > row[0].write_us).count() as f64
}

/// The same with requests cut to one page, none waiting for another, of cells of PM, zFTL and LDC.
fn of_one_page(cells: &[Vec<Cell>]) -> [Row; 2] {
    let of = "(a) mean, requests of one page each, without queueing";
    let more = mean_change(cells, 2, 1, WRITE);
    [
        Row::new(format!("{of}: zFTL against LDC (ratio less one)"), None, more, "%"),
        Row::new(
            format!("{of}: workloads that zFTL makes slower than PM, of 7"),
            None,
            slower(cells),
            "workloads",
        ),
    ]
}

/// What section 6.2.4 says of the mean write latencies.
fn means(of: &str, cells: &[Vec<Cell>], why: &str) -> Vec<Row> {
    let changes = [
        ("SC against PM", -17.2, 0, 2, why),
        ("LDC against PM", -18.0, 0, 3, why),
        ("zFTL against SC (ratio less one)", 9.6, 2, 1, SIZES),
        ("zFTL against LDC (ratio less one)", 10.4, 3, 1, SIZES),
    ];
    let mut rows: Vec<Row> = changes
        .into_iter()
        .map(|(what, paper, from, to, why)| {
            let ours = mean_change(cells, from, to, WRITE);
            Row::new(format!("{of}: {what}"), Some(paper), ours, "%").if_off(why)
        })
        .collect();
    let label = format!("{of}: workloads that zFTL makes slower than PM, of 7");
    rows.push(Row::new(label, Some(4.0), slower(cells), "workloads").if_off(SIZES));
    rows
}

/// Unit of Fig. 10.
const LESS: &str = "% less write latency than PM";

/// Fig. 10: the reduction of the mean write latency by LDC against PM. The paper's text gives no numbers: it
/// rises with the clock and levels off, and at 140 MHz almost nothing is compressed for the host.
pub(crate) fn fig10(options: &Options, progress: Progress<'_>) -> Result<Vec<Row>> {
    let emmc = Profile::find("emmc")?;
    let mut rows = Vec::new();
    let total = (WORKLOADS.len() * (CLOCKS.len() + 1)) as f64;
    let mut done = 0.0;
    for workload in WORKLOADS {
        let pm = cell(workload, "pm", &emmc, options)?;
        done += 1.0;
        for clock in CLOCKS {
            let ldc = cell(workload, "ldc", &emmc.at_clock(clock), options)?;
            let less = -change(ldc.write_us, pm.write_us);
            rows.push(Row::new(format!("{clock:.0} MHz"), None, less, LESS).of_series(workload));
            done += 1.0;
            progress(done / total);
        }
    }
    progress(1.0);
    Ok(rows)
}
