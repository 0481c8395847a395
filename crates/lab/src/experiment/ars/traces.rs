//! ARS's Fig. 7 and Table II: what the writes of two applications take where a learned tree reserves for their
//! files, and what learning and creating cost.

use super::aged::{Ageing, age};
use super::bed::Bed;
use super::fragments::row;
use crate::cell::Row;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use crate::scheme::Scheme;
use medfs::{Files, XattrMode, ars::ATTRIBUTE};
use medfs_ars::{APPLICATIONS, Application, Limits, Moment, Sample, files_of_phone, train, write_files};
use medfs_format::ars::Tree;
use std::time::Instant;

fn ars(error: medfs_ars::Error) -> Error {
    Error::Ars(Box::new(error))
}

/// What a tree is learned from: files of the same application that are written by another seed.
fn samples(app: &Application, seed: u64) -> Result<Vec<Sample>> {
    let files = files_of_phone(app, seed).map_err(ars)?;
    Ok(files.iter().enumerate().flat_map(|(n, seen)| seen.samples(n, Moment::Judged)).collect())
}

/// Microseconds of the device for an application's writes, and the cell's file.
fn running(
    lab: &Lab<'_>,
    app: &Application,
    scheme: &Scheme,
    (state, used, tree): (&str, f64, &Tree),
) -> Result<(f64, String)> {
    let number = |name: &str| Ok::<f64, Error>(lab.spec.numbers(name)?[0]);
    let mib = ((number("device_mib")? * lab.scale) as u64).max(256);
    let mut bed = Bed::new(lab, (app.name, scheme, state), mib)?;
    let root = bed.target().volume().root();
    let kept = bed.target().volume().setxattr(root, ATTRIBUTE, &tree.to_bytes(), XattrMode::Set);
    kept.map_err(Error::engine("keeping the tree"))?;
    if used > 0.0 {
        age(&bed, &Ageing { first: (number("first_kib")? as u64) << 10, fill: used, leave: used })?;
    }
    let target = bed.target().clone();
    let time =
        bed.timed(|| write_files(app, lab.settings.seed, target.volume(), target.clock()).map_err(ars))?;
    drop(target);
    bed.note("device_busy_us", time);
    Ok((time, bed.finish()?))
}

/// Fig. 7: the time of an application's writes against IPU, on a new and on a half-full volume.
pub(in crate::experiment) fn applications(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let schemes = lab.schemes()?;
    let moderate = lab.spec.numbers("moderate")?[0];
    lab.begin(2 * APPLICATIONS.len() * schemes.len());
    let mut rows = Vec::new();
    for app in &APPLICATIONS {
        let tree = train(&samples(app, lab.settings.seed.wrapping_add(1))?, Limits::default());
        for (state, used) in [("Low", 0.0), ("Moderate", moderate)] {
            let mut first = None;
            for scheme in &schemes {
                let (time, cell) = running(lab, app, scheme, (state, used, &tree))?;
                let base = *first.get_or_insert(time);
                let label = format!("{}, {state}", app.name);
                let less = 100.0 * (1.0 - time / base);
                rows.push(row(lab, (&label, &scheme.name, "% less time than IPU"), less, &[cell]));
            }
        }
    }
    Ok(rows)
}

/// Files that are made to see what making one costs.
const CREATED: u64 = 2000;
/// Rounds of which the fastest counts.
const ROUNDS: usize = 5;

/// Seconds to make files of a page, synced.
fn creating(lab: &Lab<'_>, scheme: &Scheme) -> Result<(f64, String)> {
    let count = ((CREATED as f64 * lab.scale) as u64).max(50);
    let (mut fastest, mut cell) = (f64::MAX, String::new());
    for round in 0..ROUNDS {
        let mut bed = Bed::new(lab, ("create", scheme, ""), 1024)?;
        let started = Instant::now();
        for n in 0..count {
            let file = bed.create(&format!("new{n}.db"), false)?;
            bed.write(file, 0, 4096, round as u8 + 1)?;
        }
        fastest = fastest.min(started.elapsed().as_secs_f64());
        bed.note("seconds of the fastest round", fastest);
        cell = bed.finish()?;
    }
    Ok((fastest, cell))
}

/// Table II: what learning a tree takes, and how much longer a file takes to make.
pub(in crate::experiment) fn costs(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let schemes = lab.schemes()?;
    lab.begin(schemes.len() * ROUNDS);
    let mut rows = Vec::new();
    for app in &APPLICATIONS {
        let samples = samples(app, lab.settings.seed)?;
        let started = Instant::now();
        train(&samples, Limits::default());
        let seconds = started.elapsed().as_secs_f64();
        rows.push(row(lab, (&format!("{}, training", app.name), "tree", "s"), seconds, &[]));
    }
    let mut first = None;
    for scheme in &schemes {
        let (seconds, cell) = creating(lab, scheme)?;
        let base = *first.get_or_insert(seconds);
        let more = 100.0 * (seconds / base - 1.0);
        rows.push(row(lab, ("creating a file, synthetic", &scheme.name, "% longer"), more, &[cell]));
    }
    Ok(rows)
}
