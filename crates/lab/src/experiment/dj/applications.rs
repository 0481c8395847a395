//! Fig. 1 and 12: how much TPC-C changes of a block, and what its fsyncs write to flash beside a memory.

use super::bed::{Bed, FromSetup, NVRAM};
use crate::cell::Row;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use medfs_codec::PAGE_SIZE;

/// Fig. 1, and the mean delta of section IV.C: updated blocks of each workload.
pub(in crate::experiment) fn differences(lab: &Lab<'_>) -> Result<Vec<Row>> {
    lab.begin(lab.spec.workloads.len());
    let mut rows = Vec::new();
    for name in &lab.spec.workloads {
        let totals = lab.record(name)?.totals;
        let row = |what: &str, ours: f64| lab.spec.row(&format!("{name}, {what}"), "", Some(ours), &[]);
        rows.push(row("updates that change less than a tenth", 100.0 * totals.below_tenth_share()));
        let bytes = (totals.updates * PAGE_SIZE as u64).max(1) as f64;
        rows.push(row("mean delta by LZO", 100.0 * totals.delta_bytes as f64 / bytes));
    }
    Ok(rows)
}

/// Fig. 12: what each workload's fsyncs write to the volume, by mode.
pub(in crate::experiment) fn journal_writes(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let schemes = lab.schemes()?;
    lab.begin(lab.spec.workloads.len() * (schemes.len() + 1));
    let mut rows = Vec::new();
    for name in &lab.spec.workloads {
        let recording = lab.record(name)?;
        for scheme in &schemes {
            let mut bed = Bed::new(lab, (name, scheme, ""), (lab.spec.device_gib << 10, Some(NVRAM)))?;
            recording
                .tape
                .play(&bed.target, &mut FromSetup(&mut || ()))
                .map_err(Error::io("playing a workload"))?;
            let (stats, nvram) = (bed.stats(), bed.nvram());
            let records = nvram.records.max(1) as f64;
            let page = nvram.record_bytes as f64 / nvram.pages.max(1) as f64;
            bed.note("fsyncs that became records", nvram.records as f64);
            bed.note("pages that fsyncs wrote", nvram.placed as f64);
            bed.note("node blocks", stats.written.node as f64);
            let cell = [bed.finish()?];
            let row = |what: &str, unit: &str, ours: f64| Row {
                unit: unit.into(),
                ..lab.spec.row(&format!("{name}, {what}"), &scheme.name, Some(ours), &cell)
            };
            rows.push(row("nodes written", "an fsync", stats.written.node as f64 / records));
            rows.push(row("pages written before records", "an fsync", nvram.placed as f64 / records));
            // Ordered mode has none.
            if nvram.pages > 0 {
                rows.push(row("bytes of records", "% of a page, for each", 100.0 * page / PAGE_SIZE as f64));
            }
        }
    }
    Ok(rows)
}
