//! How large the memory is, and which kind of memory: what workloads write to flash beside memories of 64 KiB to
//! 64 MiB, and what the writes of the memory cost.

use super::bed::{Bed, megabytes, row};
use super::benchmarks::Models;
use super::ext4::Mode;
use crate::cell::Row;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use crate::scheme::Scheme;
use crate::workload::Recording;

/// Kinds of memory by the number of the file that has their nanoseconds: of what makes a write durable, and of a line
/// of 64 bytes.
const KINDS: [(&str, &str); 4] =
    [("DRAM", "dram_ns"), ("STT-MRAM", "stt_mram_ns"), ("PCM", "pcm_ns"), ("SPI-FRAM", "spi_fram_ns")];

/// Written volume by the size of the memory in KiB, and time by its kind.
pub(in crate::experiment) fn memories(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let kib = lab.spec.numbers("kib")?;
    lab.begin(lab.spec.workloads.len() * (2 + kib.len()));
    let mut rows = Vec::new();
    for name in &lab.spec.workloads {
        let recording = lab.record(name)?;
        rows.extend(of_model(lab, name, &recording)?);
        for scheme in &lab.schemes()? {
            rows.extend(of_volume(lab, (name, scheme), &recording)?);
        }
    }
    Ok(rows)
}

fn of_model(lab: &Lab<'_>, name: &str, recording: &Recording) -> Result<Vec<Row>> {
    let (models, scheme) = (Models::new(lab)?, format!("{name}, DJ"));
    let sizes = std::iter::once(None).chain(lab.spec.numbers("kib")?.iter().copied().map(Some));
    sizes
        .map(|kib| {
            let bytes = kib.map(|kib| (kib * 1024.0) as u64);
            let cost = models.play(recording, Mode::Journal, (bytes, true))?;
            let label = kib.map_or("none".to_owned(), |kib| kib.to_string());
            Ok(row(lab, (&label, &scheme, "MB written"), megabytes(cost.blocks()), &[]))
        })
        .collect()
}

fn of_volume(lab: &Lab<'_>, (name, scheme): (&str, &Scheme), recording: &Recording) -> Result<Vec<Row>> {
    let mib = lab.spec.device_gib << 10;
    let play = |kib: Option<f64>| {
        let label = kib.map_or("none".to_owned(), |kib| kib.to_string());
        let variant = kib.map_or_else(|| label.clone(), |kib| format!("{kib} KiB"));
        let mut bed = Bed::new(lab, (name, scheme, &variant), (mib, kib.map(|kib| (kib * 1024.0) as u64)))?;
        let played = bed.play(recording)?;
        bed.note("times emptied", played.emptied as f64);
        Ok::<_, Error>((label, played, [bed.finish()?]))
    };
    let of = format!("{name}, {}", scheme.name);
    let (label, without, cell) = play(None)?;
    let mut rows = vec![row(lab, (&label, &of, "MB written"), megabytes(without.blocks), &cell)];
    for &kib in lab.spec.numbers("kib")? {
        let (label, with, cell) = play(Some(kib))?;
        rows.push(row(lab, (&label, &of, "MB written"), megabytes(with.blocks), &cell));
        for (kind, number) in KINDS {
            let [persist, line] = [0, 1].map(|at| lab.spec.numbers(number).map(|nanos| nanos[at]));
            let nanos = persist? * with.persists as f64 + line? * with.lines as f64;
            let time = (with.time + nanos / 1000.0) / without.time;
            rows.push(row(lab, (&label, &format!("{name}, {kind}"), "of the time without"), time, &cell));
        }
    }
    Ok(rows)
}
