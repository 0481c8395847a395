//! Why a volume could not be made.

use medfs_format::FormatError;
use std::io;
use thiserror::Error;

/// What went wrong.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("{}", too_small(*have_mib, *need_mib, *segs_per_sec, *secs_per_zone))]
    TooSmall { have_mib: u64, need_mib: u64, segs_per_sec: u32, secs_per_zone: u32 },
    #[error("{have_gib} GiB is too large: the maximum is 16 TiB")]
    TooLarge { have_gib: u64 },
    #[error("{what} must be from {min} to {max}, not {value}")]
    Range { what: &'static str, min: String, max: String, value: String },
    #[error("the label has {units} UTF-16 units; at most 511 fit")]
    LabelTooLong { units: usize },
    #[error("unknown feature '{name}': known are {known}")]
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

/// Sections and zones are told of where they are not the usual ones.
fn too_small(have_mib: u64, need_mib: u64, segs_per_sec: u32, secs_per_zone: u32) -> String {
    let have = if have_mib == 0 { "less than 1 MiB".into() } else { format!("{have_mib} MiB") };
    let of = |count: u32, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let zones = match (segs_per_sec, secs_per_zone) {
        (1, 1) => String::new(),
        _ => format!(
            " with {} per section and {} per zone",
            of(segs_per_sec, "segment"),
            of(secs_per_zone, "section")
        ),
    };
    format!("{have} is too small: the minimum is {need_mib} MiB{zones}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_too_small_is_said_in_numbers_that_fit_their_nouns() {
        assert_eq!(super::too_small(0, 52, 1, 1), "less than 1 MiB is too small: the minimum is 52 MiB");
        let zoned =
            "60 MiB is too small: the minimum is 80 MiB with 2 segments per section and 1 section per zone";
        assert_eq!(super::too_small(60, 80, 2, 1), zoned);
    }
}
