//! Delta Journaling's experiments: a model of jbd2 and of the paper's design on it ([`jbd2`]), of ext4 over it
//! ([`ext4`]), beside volumes with a memory as NVRAM ([`bed`]).

mod applications;
mod bed;
mod benchmarks;
mod codecs;
mod ext4;
mod jbd2;
mod lzf;
mod overwrites;
mod sizes;
mod traces;

pub(super) use bed::{Bed, Played};
pub(super) use benchmarks::Models;
pub(super) use ext4::Mode;

pub(super) use applications::{differences, journal_writes};
pub(super) use benchmarks::{against_kernel, postmark, throughput};
pub(super) use codecs::compressed;
pub(super) use overwrites::{synthetic, thresholds};
pub(super) use sizes::memories;
