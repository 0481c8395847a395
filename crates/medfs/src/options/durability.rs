//! `durability=`, and the bounds of what power loss may take with `adaptive`.

use super::list::{
    TIME, choice, choose, itself, name_of, number, show_bytes, show_time, size, time, time_row,
};
use super::table::Form::Value;
use super::table::MountOption;
use super::{MountOptions, PlacementPolicy};
use crate::error::{Error, Result};
use std::time::Duration;

/// When an fsync makes durable (`durability=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum DurabilityMode {
    /// Before it returns.
    #[default]
    Posix,
    /// Within bounds, in the order of all operations (MobiFS, section 3).
    Adaptive,
}

/// With [`DurabilityMode::Adaptive`], the most that power loss may take. What reaches a bound is committed,
/// whatever else would wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossBounds {
    /// Age of the oldest change (`durability_age=30s`).
    pub age: Duration,
    /// Changed pages in bytes (`durability_bytes=16M`).
    pub bytes: u64,
    /// fsyncs that have returned (`durability_fsyncs=N`); `None`: any number.
    pub fsyncs: Option<u64>,
}

impl Default for LossBounds {
    fn default() -> LossBounds {
        LossBounds { age: Duration::from_secs(30), bytes: 16 << 20, fsyncs: None }
    }
}

const MODES: &[(&str, DurabilityMode)] =
    &[("posix", DurabilityMode::Posix), ("adaptive", DurabilityMode::Adaptive)];
/// Least for `durability_bytes`.
const BYTES_MIN: u64 = 64 << 10;

pub(super) const OPTIONS: &[MountOption<MountOptions>] = &[
    choice!(
        "durability",
        "posix|adaptive",
        "posix",
        "When fsynced data becomes durable. posix: before the fsync returns. adaptive: later, within durability_age, durability_bytes and durability_fsyncs; a power cut then loses the latest operations, and never an earlier one without those after it.",
        MODES,
        durability,
        itself,
        Some
    ),
    time_row!(
        "durability_age",
        "30s",
        "With durability=adaptive, the age at which a change becomes durable.",
        loss.age
    ),
    MountOption {
        name: "durability_bytes",
        form: Value("SIZE"),
        accepts: "a number of bytes, or one with K, M or G, at least 64K",
        default: "16M",
        help: "With durability=adaptive, the most bytes of changed pages that are not durable yet.",
        set: |o, value| size(value).filter(|n| *n >= BYTES_MIN).map(|n| o.loss.bytes = n).is_some(),
        show: |o| vec![show_bytes(o.loss.bytes)],
    },
    MountOption {
        name: "durability_fsyncs",
        form: Value("N"),
        accepts: "a number from 1 on",
        default: "any number",
        help: "With durability=adaptive, the most fsyncs that have returned but are not durable yet.",
        set: |o, value| number(value).filter(|n| *n > 0).map(|n| o.loss.fsyncs = Some(n)).is_some(),
        show: |o| o.loss.fsyncs.map(|n| n.to_string()).into_iter().collect(),
    },
];

/// `Invalid` where a reserve, which is overwritten in place, is to be committed later.
pub(super) fn check(options: &MountOptions) -> Result<()> {
    let both =
        options.durability == DurabilityMode::Adaptive && options.placement == PlacementPolicy::Reserve;
    match both {
        false => Ok(()),
        true => Err(Error::Invalid(
            "durability=adaptive, which keeps what was durable until a commit, excludes placement=reserve: expected placement=log"
                .into(),
        )),
    }
}
