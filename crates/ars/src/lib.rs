//! Decision trees that say which files will fragment (ARS, section IV-A): learned from replayed traces, and judged.
//!
//! Purpose: a trace is replayed on a volume whose data goes to the logs ([`samples_of`]). Each file is
//! a [`Sample`]: its features as the engine counts them, at the moments at which the engine judges, and
//! whether it ended in many small pieces. [`train`] makes a tree of samples; [`Score`] says how good one is
//! on files that it was not learned from. [`Retrainer`] does both with the samples of a mounted volume.
//!
//! Invariants: the same trace makes the same samples, and the same samples the same tree, in any order of them.
#![forbid(unsafe_code)]

mod cart;
mod error;
mod label;
mod phone;
mod replayed;
mod retrain;
mod sample;
mod score;
mod watch;

pub use cart::{Limits, train};
pub use error::{Error, Result};
pub use label::{FEW_WRITES, SMALL_PIECE, fragments, label};
pub use phone::{APPLICATIONS, Application, files_of_phone, write_files};
pub use replayed::samples_of;
pub use retrain::{LEAST_FILES, Retrainer};
pub use sample::{Moment, Sample};
pub use score::{Score, cross_validated};
pub use watch::{Seen, Watch};
