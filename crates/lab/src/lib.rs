//! The lab: workloads of real applications, experiments that stand beside the papers' figures, and the page
//! that shows them.
#![deny(unsafe_code)]

pub mod backend;
pub mod cell;
pub mod content;
pub mod distribution;
pub mod error;
pub mod experiment;
pub mod meter;
pub mod model;
pub mod random;
pub mod replayed;
pub mod report;
pub mod runner;
pub mod scheme;
pub mod sqlite;
pub mod tape;
pub mod totals;
pub mod workload;

pub use error::{Error, Result};
