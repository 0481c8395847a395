//! The engine's mount options: the table, and how each value is read and shown.

use super::recover::Recover;
use super::table::Form::{Switch, Value, Word};
use super::table::MountOption;
use super::{Atime, CompactFiles, DeltaMode, DirFsync, FsyncMode, MountOptions, VictimPolicy};
use medfs_format::node::ADDRS_PER_BLOCK;
use std::ops::RangeInclusive;
use std::time::Duration;

const FSYNC_MODES: &[(&str, FsyncMode)] =
    &[("strict", FsyncMode::Strict), ("posix", FsyncMode::Posix), ("nobarrier", FsyncMode::Nobarrier)];
const BACKGROUND_GC: &[(&str, bool)] = &[("on", true), ("off", false), ("sync", true)];
const VICTIMS: &[(&str, VictimPolicy)] =
    &[("greedy", VictimPolicy::Greedy), ("cost-benefit", VictimPolicy::CostBenefit)];
const DELTA_MODES: &[(&str, DeltaMode)] = &[
    ("off", DeltaMode::Off),
    ("inline", DeltaMode::Inline),
    ("compact", DeltaMode::Compact),
    ("full", DeltaMode::Full),
];
const COMPACT_FILES: &[(&str, CompactFiles)] = &[("hot", CompactFiles::Hot), ("all", CompactFiles::All)];
const DIR_FSYNCS: &[(&str, DirFsync)] =
    &[("checkpoint", DirFsync::Checkpoint), ("recover", DirFsync::Recover)];

const CACHE_BYTES_MIN: u64 = 1 << 20;
const TIME_MAX: Duration = Duration::from_secs(86_400);
/// Accepted for `compact_threshold`.
const COMPACT_THRESHOLDS: RangeInclusive<usize> = 2..=64;
/// Accepted for `compact_pages`; the text of its option says the same.
const COMPACT_PAGES: RangeInclusive<usize> = 1..=ADDRS_PER_BLOCK;
const _: () = assert!(ADDRS_PER_BLOCK == 1018);
/// Largest inline delta in bytes that may be asked for (MedFS, section 6.3).
const INLINE_MAX: usize = 512;
/// Accepted for `inline_threshold`; the text of its option says the same.
const INLINE_THRESHOLDS: RangeInclusive<usize> = 64..=INLINE_MAX;
const _: () = assert!(INLINE_MAX == 512);

/// Least that a size row accepts; [`SIZE`] says the same.
pub(super) const SIZE_MIN: u64 = 64 << 10;
pub(super) const SIZE: &str = "a number of bytes, or one with K, M or G, at least 64K";
pub(super) const TIME: &str = "a number of seconds, or one with ms, s or m, up to a day";

type Row = MountOption<MountOptions>;

pub(super) const fn word(
    name: &'static str,
    help: &'static str,
    set: fn(&mut MountOptions, &str) -> bool,
    show: fn(&MountOptions) -> Vec<String>,
) -> Row {
    MountOption { name, form: Word, accepts: "", default: "", help, set, show }
}

/// A row for a switch that is a field of its own.
macro_rules! switch {
    ($name:literal, $($field:ident).+, $default:literal, $help:literal) => {
        MountOption {
            name: $name,
            form: Switch,
            accepts: "",
            default: $default,
            help: $help,
            set: |o: &mut MountOptions, value| {
                o.$($field).+ = value == "on";
                true
            },
            show: |o: &MountOptions| vec![if o.$($field).+ { "on" } else { "off" }.into()],
        }
    };
}

pub(super) use switch;

/// A row for a value that is one of some names.
macro_rules! choice {
    ($name:literal, $values:literal, $default:literal, $help:literal, $choices:ident, $($field:ident).+, $kept:expr, $held:expr) => {
        MountOption {
            name: $name,
            form: Value($values),
            accepts: "",
            default: $default,
            help: $help,
            set: |o: &mut MountOptions, value| choose($choices, value).map(|v| o.$($field).+ = $kept(v)).is_some(),
            show: |o: &MountOptions| $held(o.$($field).+).map(|v| name_of($choices, v)).into_iter().collect(),
        }
    };
}

pub(super) use choice;

/// A row for a time.
macro_rules! time_row {
    ($name:literal, $default:literal, $help:literal, $($field:ident).+) => {
        MountOption {
            name: $name,
            form: Value("TIME"),
            accepts: TIME,
            default: $default,
            help: $help,
            set: |o: &mut MountOptions, value| time(value).map(|t| o.$($field).+ = t).is_some(),
            show: |o: &MountOptions| vec![show_time(o.$($field).+)],
        }
    };
}

pub(super) use time_row;

/// A row for a number of bytes that are not too few.
macro_rules! size_row {
    ($name:literal, $default:literal, $help:literal, $($field:ident).+) => {
        MountOption {
            name: $name,
            form: Value("SIZE"),
            accepts: SIZE,
            default: $default,
            help: $help,
            set: |o: &mut MountOptions, value| {
                size(value).filter(|n| *n >= SIZE_MIN).map(|n| o.$($field).+ = n).is_some()
            },
            show: |o: &MountOptions| vec![show_bytes(o.$($field).+)],
        }
    };
}

pub(super) use size_row;

pub(super) fn itself<T>(value: T) -> T {
    value
}

/// The options that no file beside this one has.
pub(super) const OPTIONS: &[Row] = &[
    word("rw", "Read and write (the default).", |o, _| put(&mut o.read_only, false), |o| given(!o.read_only)),
    word(
        "ro",
        "Write nothing to the device. Fsyncs since the last checkpoint are visible all the same.",
        |o, _| put(&mut o.read_only, true),
        |o| given(o.read_only),
    ),
    word(
        "relatime",
        "Reading changes the access time where it is older than the last change, or than a day (the default).",
        |o, _| put(&mut o.atime, Atime::Relatime),
        |o| given(o.atime == Atime::Relatime),
    ),
    word(
        "noatime",
        "Reading never changes the access time.",
        |o, _| put(&mut o.atime, Atime::Noatime),
        |o| given(o.atime == Atime::Noatime),
    ),
    word(
        "strictatime",
        "Reading always changes the access time.",
        |o, _| put(&mut o.atime, Atime::Strictatime),
        |o| given(o.atime == Atime::Strictatime),
    ),
    word(
        "atime",
        "Undoes an earlier noatime.",
        |o, _| take_back(&mut o.atime, Atime::Noatime),
        |_| Vec::new(),
    ),
    word(
        "nostrictatime",
        "Undoes an earlier strictatime.",
        |o, _| take_back(&mut o.atime, Atime::Strictatime),
        |_| Vec::new(),
    ),
    word("async", "Undoes an earlier sync (the default).", |o, _| put(&mut o.sync, false), |_| Vec::new()),
    word(
        "sync",
        "Every write and every change of a name is durable when its call returns.",
        |o, _| put(&mut o.sync, true),
        |o| given(o.sync),
    ),
    word(
        "dirsync",
        "Every change of a name is durable when its call returns.",
        |o, _| put(&mut o.dirsync, true),
        |o| given(o.dirsync),
    ),
    word(
        "recover",
        "Roll fsynced files forward from the last checkpoint (the default).",
        |o, _| put(&mut o.recover, Recover::All),
        |_| Vec::new(),
    ),
    word(
        "disable_roll_forward",
        "Do not roll forward: fsyncs since the last checkpoint are not visible, and a writable mount loses them.",
        |o, _| put(&mut o.recover, Recover::Nothing),
        |o| given(o.recover == Recover::Nothing),
    ),
    word(
        "norecovery",
        "The same as disable_roll_forward, for read-only mounts.",
        |o, _| put(&mut o.recover, Recover::Nothing),
        |_| Vec::new(),
    ),
    MountOption {
        name: "cache",
        form: Value("SIZE"),
        accepts: "a number of bytes, or one with K, M or G, at least 1M",
        default: "64M",
        help: "Most memory for cached pages and nodes.",
        set: |o, value| cache_bytes(value).map(|bytes| o.cache_bytes = bytes).is_some(),
        show: |o| vec![show_bytes(o.cache_bytes as u64)],
    },
    time_row!(
        "commit",
        "60s",
        "Longest time between checkpoints while there is something to write.",
        commit_interval
    ),
    choice!(
        "fsync_mode",
        "strict|posix|nobarrier",
        "strict",
        "How fsync orders its writes. strict: after power loss a node counts only if its data is durable, by a flush before it or by its seal. posix: one \
         flush after both, as the kernel does by default; files with deltas as with strict. nobarrier: no flush at all.",
        FSYNC_MODES,
        fsync_mode,
        itself,
        Some
    ),
    choice!(
        "dir_fsync",
        "checkpoint|recover",
        "recover on volumes that may hold deltas, otherwise checkpoint",
        "What an fsync of a directory does. checkpoint: a checkpoint after any change, as in the kernel. recover: nothing where roll-forward restores the changes, otherwise a checkpoint.",
        DIR_FSYNCS,
        dir_fsync,
        Some,
        itself
    ),
    switch!("discard", discard, "on", "Tell the device which blocks are no longer needed."),
    MountOption {
        name: "background_gc",
        form: Value("on|off|sync"),
        accepts: "",
        default: "on",
        help: "Clean segments while the volume is idle; sync is the same as on.",
        set: |o, value| choose(BACKGROUND_GC, value).map(|on| o.background_gc = on).is_some(),
        show: |o| vec![on_off(o.background_gc)],
    },
    choice!(
        "victim",
        "greedy|cost-benefit",
        "cost-benefit",
        "Which segment background cleaning picks: the one with the fewest valid blocks, or one with few that have long been unchanged.",
        VICTIMS,
        victim,
        itself,
        Some
    ),
    MountOption {
        name: "active_logs",
        form: Value("6"),
        accepts: "",
        default: "6",
        help: "Number of active logs. Only six is supported.",
        set: |o, value| (value == "6").then(|| o.active_logs = 6).is_some(),
        show: |o| vec![o.active_logs.to_string()],
    },
    switch!("inline_data", inline_data, "on", "Keep small files in their inode."),
    switch!("inline_dentry", inline_dentry, "on", "Keep small directories in their inode."),
    switch!("inline_xattr", inline_xattr, "on", "Keep extended attributes in the inode where they fit."),
    switch!("user_xattr", user_xattr, "on", "Extended attributes of users (user.*)."),
    switch!("acl", acl, "on", "POSIX access control lists."),
    choice!(
        "delta",
        "off|inline|compact|full",
        "full on volumes that may hold deltas, and off with compress=fpc",
        "How small updates are stored. off: as whole pages. inline: deltas in the inode. compact: deltas in \
         compact pages. full: in the inode, and in compact pages when the inode is full.",
        DELTA_MODES,
        delta,
        Some,
        itself
    ),
    MountOption {
        name: "inline_threshold",
        form: Value("BYTES"),
        accepts: "a number from 64 to 512",
        default: "256; with delta=full the size at which a compact page would take less",
        help: "Largest delta that stays in the inode.",
        set: |o, value| number_in(value, INLINE_THRESHOLDS).map(|n| o.inline_threshold = Some(n)).is_some(),
        show: |o| o.inline_threshold.map(|bytes| bytes.to_string()).into_iter().collect(),
    },
    MountOption {
        name: "compact_threshold",
        form: Value("N"),
        accepts: "a number from 2 to 64",
        default: "5",
        help: "The fewest pages whose deltas share a compact page.",
        set: |o, value| number_in(value, COMPACT_THRESHOLDS).map(|n| o.compact_threshold = n).is_some(),
        show: |o| vec![o.compact_threshold.to_string()],
    },
    MountOption {
        name: "compact_pages",
        form: Value("N"),
        accepts: "a number from 1 to 1018",
        default: "1018",
        help: "The most compact pages of a file. Where it has as many, a new one takes the place of one that holds few deltas.",
        set: |o, value| number_in(value, COMPACT_PAGES).map(|n| o.compact_pages = n).is_some(),
        show: |o| vec![o.compact_pages.to_string()],
    },
    choice!(
        "compact_files",
        "hot|all",
        "hot",
        "Which files get compact pages: those that are written often and read seldom, or all.",
        COMPACT_FILES,
        compact_files,
        itself,
        Some
    ),
    switch!("zero_base_deltas", zero_base_deltas, "on", "Pages that have no block yet may become deltas."),
    MountOption {
        name: "cross_file_deltas",
        form: Switch,
        accepts: "",
        default: "on with compact pages",
        help: "Pages of SQLite's journals and logs may become deltas of the database's blocks.",
        set: |o, value| {
            o.cross_file_deltas = Some(value == "on");
            true
        },
        show: |o| o.cross_file_deltas.map(on_off).into_iter().collect(),
    },
    switch!(
        "similar_deltas",
        similar_deltas,
        "on",
        "With compact pages: pages may become deltas of other blocks of their file that look like them."
    ),
    switch!(
        "compress_deltas",
        compress_deltas,
        "on",
        "Small updates of compressed files may become deltas of their clusters' pages."
    ),
    switch!(
        "addr_redo",
        addr_redo,
        "on",
        "An fsync notes addresses that changed in direct nodes in the inode instead of writing these nodes."
    ),
    switch!(
        "group_commit",
        group_commit,
        "on",
        "Concurrent fsyncs of several files share a node block where each changed little."
    ),
    switch!(
        "seal",
        seal,
        "on",
        "An fsync flushes once: its last node carries a seal by which recovery sees whether all its blocks were stored. off: an fsync flushes twice."
    ),
    time_row!(
        "hot_window",
        "60s",
        "Length of the windows in which reads and writes of a file are counted.",
        hot_window
    ),
    time_row!("idle", "5s", "How long a volume must be idle before background work begins.", idle_after),
    switch!(
        "restore",
        restore,
        "on",
        "Write deltas back as whole pages where their file is read often and not written."
    ),
];

pub(super) fn put<T>(field: &mut T, value: T) -> bool {
    *field = value;
    true
}

/// The default where what is taken back holds.
fn take_back(atime: &mut Atime, what: Atime) -> bool {
    if *atime == what {
        *atime = Atime::default();
    }
    true
}

/// What a word shows that is in force, or is not.
pub(super) fn given(holds: bool) -> Vec<String> {
    holds.then(String::new).into_iter().collect()
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.into()
}

pub(super) fn choose<T: Copy>(choices: &[(&str, T)], value: &str) -> Option<T> {
    choices.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice)
}

pub(super) fn name_of<T: PartialEq + Copy>(choices: &[(&str, T)], value: T) -> String {
    choices.iter().find(|(_, choice)| *choice == value).map_or_else(String::new, |(name, _)| (*name).into())
}

pub(super) fn number_in(value: &str, range: RangeInclusive<usize>) -> Option<usize> {
    number(value).and_then(|n| usize::try_from(n).ok()).filter(|n| range.contains(n))
}

fn cache_bytes(value: &str) -> Option<usize> {
    let bytes = size(value)?;
    (bytes >= CACHE_BYTES_MIN).then(|| usize::try_from(bytes).ok())?
}

/// A number of bytes.
pub(super) fn size(value: &str) -> Option<u64> {
    with_unit(value, &[("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("", 1)])
}

pub(super) fn show_bytes(bytes: u64) -> String {
    [("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)]
        .into_iter()
        .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit))
        .map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

/// A time that is not zero and at most a day.
pub(super) fn time(value: &str) -> Option<Duration> {
    let millis = with_unit(value, &[("ms", 1), ("s", 1000), ("m", 60_000), ("", 1000)])?;
    Some(Duration::from_millis(millis)).filter(|time| !time.is_zero() && *time <= TIME_MAX)
}

pub(super) fn show_time(time: Duration) -> String {
    match time.subsec_nanos() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

/// A number with one of some units; the one without a name comes last.
fn with_unit(value: &str, units: &[(&str, u64)]) -> Option<u64> {
    units.iter().find_map(|(unit, factor)| number(value.strip_suffix(unit)?)?.checked_mul(*factor))
}

/// A decimal number: digits only.
pub(super) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}
