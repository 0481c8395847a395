//! Thresholds and their price: how small a delta must be for a compact page (Fig. 12a), and how long a write
//! can take when deltas give way (Fig. 12b).

use super::lab::{Lab, Outcome};
use crate::cell::Row;
use crate::error::Result;

/// Fig. 12a: what is written, and how often the page cache is hit, by the number of deltas that must share a
/// compact page.
pub(super) fn threshold(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let schemes = lab.schemes()?;
    let thresholds = lab.spec.numbers("thresholds")?;
    lab.begin(lab.spec.workloads.len() * (2 + thresholds.len()));
    let mut rows = Vec::new();
    for workload in &lab.spec.workloads {
        let recording = lab.record(workload)?;
        let Outcome::Ran(base, base_file) = lab.cell(workload, &schemes[0], "", &recording)? else {
            continue;
        };
        let app = workload.trim_start_matches("app-").to_uppercase();
        let series = |what: &str| format!("{app} {what}");
        let mut written: Vec<(u64, f64, String)> = Vec::new();
        for &n in thresholds {
            let scheme = schemes[1].with(&format!("compact_threshold={n}"));
            let variant = format!("threshold={n}");
            let Outcome::Ran(cell, file) = lab.cell(workload, &scheme, &variant, &recording)? else {
                continue;
            };
            let files = [file.clone(), base_file.clone()];
            let share = 100.0 * cell.written.total as f64 / base.written.total as f64;
            rows.push(lab.spec.row(&n.to_string(), &series("written"), Some(share), &files));
            let hits = cell.values.get("page_hit_rate").map(|h| 100.0 * h);
            let mut row = lab.spec.row(&n.to_string(), &series("page hits"), hits, &files[..1]);
            row.unit = "% of look-ups that hit".into();
            rows.push(row);
            written.push((n as u64, cell.written.total as f64, file));
        }
        for (from, to) in [(6, 5), (3, 2)] {
            let of = |n: u64| written.iter().find(|(t, ..)| *t == n);
            if let (Some(a), Some(b)) = (of(from), of(to)) {
                let less = 100.0 * (1.0 - b.1 / a.1);
                let files = [a.2.clone(), b.2.clone()];
                let mut row =
                    lab.spec.row(&format!("{from} to {to}"), &series("less written"), Some(less), &files);
                row.unit = "% less written".into();
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Fig. 12b: the longest that a write or an fsync takes where deltas are in the inode alone, in milliseconds.
pub(super) fn eviction(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let schemes = lab.schemes()?;
    lab.begin(lab.spec.workloads.len() * (1 + schemes.len()));
    let mut rows = Vec::new();
    let mut extremes: Vec<(f64, String)> = Vec::new();
    for workload in &lab.spec.workloads {
        let recording = lab.record(workload)?;
        let label = workload.trim_start_matches("app-").to_uppercase();
        for scheme in &schemes {
            let Outcome::Ran(cell, file) = lab.cell(workload, scheme, "", &recording)? else { continue };
            let longest = ["write", "fsync"].iter().filter_map(|k| cell.latency_us.get(*k)).map(|l| l.max);
            let longest = longest.fold(0.0, f64::max) / 1e3;
            rows.push(lab.spec.row(&label, &scheme.name, Some(longest), std::slice::from_ref(&file)));
            if scheme.name == "DCI" {
                extremes.push((longest, file));
            }
        }
    }
    extremes.sort_by(|a, b| a.0.total_cmp(&b.0));
    if let (Some(low), Some(high)) = (extremes.first(), extremes.last()) {
        rows.push(lab.spec.row("lowest", "DCI", Some(low.0), std::slice::from_ref(&low.1)));
        rows.push(lab.spec.row("highest", "DCI", Some(high.0), std::slice::from_ref(&high.1)));
    }
    Ok(rows)
}
