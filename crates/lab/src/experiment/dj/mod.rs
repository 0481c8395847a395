//! Delta Journaling's experiments: a model of jbd2 and of the paper's design on it ([`jbd2`]), beside volumes with a
//! memory as NVRAM ([`bed`]).

mod applications;
mod bed;
mod jbd2;
mod overwrites;
mod traces;

pub(super) use applications::{differences, journal_writes};
pub(super) use overwrites::{synthetic, thresholds};
