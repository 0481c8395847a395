//! Why a volume could not be made.

use medfs_format::FormatError;
use std::io;
use thiserror::Error;

/// What went wrong.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error(
        "{have_mib} MiB is too small: the minimum is {need_mib} MiB with {segs_per_sec} segments per section and {secs_per_zone} sections per zone"
    )]
    TooSmall { have_mib: u64, need_mib: u64, segs_per_sec: u32, secs_per_zone: u32 },
    #[error("{have_gib} GiB is too large: the maximum is 16 TiB")]
    TooLarge { have_gib: u64 },
    #[error("{what} must be from {min} to {max}, not {value}")]
    Range { what: &'static str, min: String, max: String, value: String },
    #[error("the label has {units} UTF-16 units; at most 511 fit")]
    LabelTooLong { units: usize },
    #[error("unknown feature {name:?}; known are: {known}")]
    UnknownFeature { name: String, known: String },
    #[error("feature {feature} needs {needs} too: add it to -O")]
    FeatureNeeds { feature: &'static str, needs: &'static str },
    #[error(
        "a volume with deltas needs {missing} too: add what is missing to -O, or give --plain for an F2FS volume without deltas"
    )]
    DeltasNeed { missing: String },
    #[error("the device is read-only")]
    ReadOnly,
    #[error("I/O error on the device: {0}")]
    Io(#[from] io::Error),
    #[error("the computed layout is not a valid volume: {0}")]
    Format(FormatError),
}

/// Result of making a volume.
pub type Result<T, E = Error> = std::result::Result<T, E>;
