//! `durability=`, and the bounds of what power loss may take with `adaptive`.

use super::list::{
    SIZE, SIZE_MIN, TIME, choice, choose, itself, name_of, number, number_in, show_bytes, show_time, size,
    size_row, time, time_row,
};
use super::table::Form::Value;
use super::table::MountOption;
use super::{MountOptions, PlacementPolicy};
use crate::error::{Error, Result};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Half of it is left for the commit, and the front end's timer looks as often.
const LEAST_AGE: Duration = Duration::from_millis(100);

/// When an fsync makes durable (`durability=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum DurabilityMode {
    /// Before it returns.
    #[default]
    Posix,
    /// Within bounds, in the order of all operations (MobiFS, section 3).
    Adaptive,
}

impl DurabilityMode {
    /// Its word.
    pub fn word(self) -> &'static str {
        MODES.iter().find(|(_, mode)| *mode == self).map_or("", |(word, _)| word)
    }

    /// What the value of a file's attribute ([`crate::DURABILITY_ATTRIBUTE`]) says.
    pub fn of_attribute(value: &[u8]) -> Option<DurabilityMode> {
        MODES.iter().find(|(word, _)| word.as_bytes() == value).map(|(_, mode)| *mode)
    }
}

/// With [`DurabilityMode::Adaptive`], the most that power loss may take. What reaches a bound is committed,
/// whatever else would wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossBounds {
    /// Age of the oldest change (`durability_age=30s`).
    pub age: Duration,
    /// Changed pages and nodes in bytes (`durability_bytes=16M`).
    pub bytes: u64,
    /// fsyncs that have returned (`durability_fsyncs=N`); `None`: any number.
    pub fsyncs: Option<u64>,
    /// What the device writes in this time, as measured (`holdup=TIME`); `None`: that is no bound.
    pub holdup: Option<Duration>,
}

impl Default for LossBounds {
    fn default() -> LossBounds {
        LossBounds { age: Duration::from_secs(30), bytes: 16 << 20, fsyncs: None, holdup: None }
    }
}

/// What commits within the bounds, with [`DurabilityMode::Adaptive`] (`durability_policy=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum DurabilityPolicy {
    /// Nothing: a bound does.
    #[default]
    Bounds,
    /// The peak of what overwriting saves, in the next pause (MobiFS, sections 5.2 and 5.3).
    Tpl,
    /// A fixed time from the first change.
    Interval,
    /// So many bytes of changes, each change counted.
    Staleness,
}

/// The policy, and what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitPolicy {
    /// Which one.
    pub which: DurabilityPolicy,
    /// Of `tpl`: changes that a line is laid through (`durability_points=256`, the paper's k).
    pub points: usize,
    /// Of `tpl`: pauses from here on are long (`durability_tau=2s`).
    pub tau: Duration,
    /// Of `interval` (`durability_interval=5s`).
    pub interval: Duration,
    /// Of `staleness`, in bytes (`durability_staleness=4M`).
    pub staleness: u64,
}

impl Default for CommitPolicy {
    fn default() -> CommitPolicy {
        CommitPolicy {
            which: DurabilityPolicy::default(),
            points: 256,
            tau: Duration::from_secs(2),
            interval: Duration::from_secs(5),
            staleness: 4 << 20,
        }
    }
}

const POLICIES: &[(&str, DurabilityPolicy)] = &[
    ("bounds", DurabilityPolicy::Bounds),
    ("tpl", DurabilityPolicy::Tpl),
    ("interval", DurabilityPolicy::Interval),
    ("staleness", DurabilityPolicy::Staleness),
];
/// Accepted for `durability_points`; the text of its option says the same.
const POINTS: RangeInclusive<usize> = 2..=65536;
const MODES: &[(&str, DurabilityMode)] =
    &[("posix", DurabilityMode::Posix), ("adaptive", DurabilityMode::Adaptive)];

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
    MountOption {
        name: "durability_age",
        form: Value("TIME"),
        accepts: "a time from 100 ms to a day",
        default: "30s",
        help: "With durability=adaptive, the age at which a change becomes durable.",
        set: |o, value| time(value).filter(|time| *time >= LEAST_AGE).map(|time| o.loss.age = time).is_some(),
        show: |o| vec![show_time(o.loss.age)],
    },
    size_row!(
        "durability_bytes",
        "16M",
        "With durability=adaptive, the most bytes of changed pages and nodes that are not durable yet.",
        loss.bytes
    ),
    MountOption {
        name: "durability_fsyncs",
        form: Value("N"),
        accepts: "a number from 1 on",
        default: "any number",
        help: "With durability=adaptive, the most fsyncs that have returned but are not durable yet.",
        set: |o, value| number(value).filter(|n| *n > 0).map(|n| o.loss.fsyncs = Some(n)).is_some(),
        show: |o| o.loss.fsyncs.map(|n| n.to_string()).into_iter().collect(),
    },
    MountOption {
        name: "holdup",
        form: Value("TIME"),
        accepts: "a number of seconds above 0, or one with ms, s or m, up to a day; without the option there is no such bound",
        default: "no bound",
        help: "With durability=adaptive, how long the machine runs on when its power fails, as with a capacitor or a battery: no more is changed and not durable than the device writes in that time, as its commits are measured. Whoever watches the power tells of it by SIGPWR or 'medfs power low'.",
        set: |o, value| {
            time(value).filter(|time| !time.is_zero()).map(|time| o.loss.holdup = Some(time)).is_some()
        },
        show: |o| o.loss.holdup.map(show_time).into_iter().collect(),
    },
    choice!(
        "durability_policy",
        "bounds|tpl|interval|staleness",
        "bounds",
        "With durability=adaptive, what commits before a bound is reached. bounds: nothing. tpl: the point from which waiting saves less, in the next pause. interval: the time durability_interval. staleness: durability_staleness of changes.",
        POLICIES,
        commit_policy.which,
        itself,
        Some
    ),
    MountOption {
        name: "durability_points",
        form: Value("N"),
        accepts: "a number from 2 to 65536",
        default: "256",
        help: "With durability_policy=tpl, the changes that a line is laid through: where it does not rise, waiting no longer pays.",
        set: |o, value| number_in(value, POINTS).map(|n| o.commit_policy.points = n).is_some(),
        show: |o| vec![o.commit_policy.points.to_string()],
    },
    time_row!(
        "durability_tau",
        "2s",
        "With durability_policy=tpl, the pause from which on a longer one is expected.",
        commit_policy.tau
    ),
    time_row!(
        "durability_interval",
        "5s",
        "With durability_policy=interval, the time from a first change to its commit.",
        commit_policy.interval
    ),
    size_row!(
        "durability_staleness",
        "4M",
        "With durability_policy=staleness, the bytes of changed pages, a page once for each change, that are committed together.",
        commit_policy.staleness
    ),
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
