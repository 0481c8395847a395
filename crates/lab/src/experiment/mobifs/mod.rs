//! MobiFS's experiments. Those on its policies run the engine's own types ([`medfs::policy`]) on traces of made-up
//! applications and users ([`apps`]), without a volume; those of [`device`] run programs on volumes.

mod apps;
mod device;
mod idle;
mod programs;
mod writes;

pub(super) use device::{applications, benchmarks, mobibench, sixteen};
pub(super) use idle::{conflicts, lengths};
pub(super) use writes::{curves, fixed_points, flushed, followed, growth, intervals};

use super::Lab;
use crate::cell::Row;
use crate::error::Result;

/// A row of another unit than the experiment's.
fn row(lab: &Lab<'_>, (label, scheme, unit): (&str, &str, &str), ours: f64, cells: &[String]) -> Row {
    Row { unit: unit.into(), ..lab.spec.row(label, scheme, Some(ours), cells) }
}

/// Writes what was measured of a variant as one cell, with the seed; returns its file.
fn keep(lab: &Lab<'_>, variant: &str, values: &[(String, f64)]) -> Result<Vec<String>> {
    let cell = crate::cell::Cell {
        variant: variant.into(),
        values: values.iter().cloned().collect(),
        ..lab.blank_cell("made-up applications", "none")
    };
    Ok(vec![lab.keep(&cell)?])
}

/// The geometric mean of numbers above 0.
fn geometric(of: &[f64]) -> f64 {
    (of.iter().map(|n| n.ln()).sum::<f64>() / of.len().max(1) as f64).exp()
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len().max(1) as f64
}
