//! Fig. 9 and 10: latencies, and what the controller's clock does to them.

use super::matrix::{Cell, WORKLOADS, all, cell, change, mean_change};
use super::{Options, Progress, Row};
use crate::error::Result;
use crate::profile::Profile;

/// The controller's clocks of Fig. 10 in MHz.
const CLOCKS: [f64; 7] = [140.0, 160.0, 180.0, 200.0, 220.0, 240.0, 260.0];

const MADE_UP: &str = "arrivals are made up: the paper's traces were not published, and waiting in the queue, which bursts decide, \
                       multiplies every gain in service time";

/// Fig. 9.
pub(crate) fn fig9(options: &Options, progress: Progress<'_>) -> Result<Vec<Row>> {
    let cells = all(&["pm", "zftl", "sc", "ldc", "opt"], options, progress)?;
    let mut rows = Vec::new();
    let methods = [("zFTL", 1), ("SC", 2), ("LDC", 3), ("OPT", 4)];
    type Of = fn(&Cell) -> f64;
    let figures: [(&str, &str, Of); 3] = [
        ("(a)", "write latency", |c| c.write_us),
        ("(b)", "read latency", |c| c.read_us),
        ("(c)", "worst latency", |c| c.worst_us),
    ];
    for (figure, what, of) in figures {
        for (name, row) in WORKLOADS.iter().zip(&cells) {
            for (method, at) in methods {
                let by = change(of(&row[at]), of(&row[0]));
                let paper = (figure == "(a)" && *name == "GE" && method == "zFTL").then_some(4.0);
                let label = format!("{figure} {name}: {what}, {method} against PM");
                rows.push(Row::new(label, paper, by, "%").if_off(MADE_UP));
            }
        }
    }
    let write: Of = |c| c.write_us;
    rows.push(
        Row::new("(a) mean: SC against PM", Some(-17.2), mean_change(&cells, 0, 2, write), "%")
            .if_off(MADE_UP),
    );
    rows.push(
        Row::new("(a) mean: LDC against PM", Some(-18.0), mean_change(&cells, 0, 3, write), "%")
            .if_off(MADE_UP),
    );
    rows.push(
        Row::new(
            "(a) mean: zFTL against SC (ratio less one)",
            Some(9.6),
            mean_change(&cells, 2, 1, write),
            "%",
        )
        .if_off(MADE_UP),
    );
    rows.push(
        Row::new(
            "(a) mean: zFTL against LDC (ratio less one)",
            Some(10.4),
            mean_change(&cells, 3, 1, write),
            "%",
        )
        .if_off(MADE_UP),
    );
    let slower = cells.iter().filter(|row| row[1].write_us > row[0].write_us).count() as f64;
    rows.push(
        Row::new("(a) workloads that zFTL makes slower than PM, of 7", Some(4.0), slower, "").if_off(MADE_UP),
    );
    rows.push(Row::new("(b) mean: LDC against PM", None, mean_change(&cells, 0, 3, |c| c.read_us), "%"));
    rows.push(Row::new("(c) mean: LDC against PM", None, mean_change(&cells, 0, 3, |c| c.worst_us), "%"));
    Ok(rows)
}

/// Fig. 10: the reduction of the mean write latency by LDC against PM. The paper's text gives no numbers: it rises with the clock and levels off, and at
/// 140 MHz almost nothing is compressed for the host.
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
            let label = format!("{workload} at {clock:.0} MHz: write latency, LDC against PM");
            rows.push(Row::new(label, None, change(ldc.write_us, pm.write_us), "%"));
            done += 1.0;
            progress(done / total);
        }
    }
    progress(1.0);
    Ok(rows)
}
