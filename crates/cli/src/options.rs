//! Everything that is told about mount options: the help of `medfs mount`, medfs(5), and the nearest to one
//! that is unknown.
//!
//! The options are those of the tables that parse them: the engine's, the mount's, and the recorder's.

use crate::habits;
use crate::trace::tap;
use crate::words::COLUMNS;
use medfs::options::{self, Described, Form, MountOption};
use medfs::options::{PlacementPolicy, ReserveFiles};
use medfs::{DurabilityMode, DurabilityPolicy, MountOptions};
use medfs_fuse::MountConfig;
use roff::{Roff, bold, italic, roman};

/// Column at which descriptions begin.
const INDENT: usize = 6;

/// The flags of `mount(2)`, which mount(8) describes.
const FLAGS: &str = "nosuid, suid, nodev, dev, noexec, exec, nodiratime, diratime";

/// Which options are told of where. Those that no group names are told of under [`TUNING`], before what comes
/// behind it.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Daily use",
        &[
            "ro",
            "rw",
            "relatime",
            "noatime",
            "strictatime",
            "cache",
            "discard",
            "acl",
            "user_xattr",
            "allow_other",
            "sync",
            "dirsync",
        ],
    ),
    (
        "Durability",
        &[
            "commit",
            "durability",
            "durability_age",
            "durability_bytes",
            "durability_fsyncs",
            "durability_policy",
            "durability_points",
            "durability_tau",
            "durability_interval",
            "durability_staleness",
            "apps",
            "nvram",
            "nvram_threshold",
            "nvram_mode",
            "nvram_admit",
            "nvram_commit",
            "nvram_volatile",
            "fsync_mode",
            "seal",
            "dir_fsync",
            "recover",
            "disable_roll_forward",
            "addr_redo",
            "group_commit",
        ],
    ),
    (
        "Deltas",
        &[
            "delta",
            "inline_threshold",
            "compact_threshold",
            "compact_pages",
            "compact_files",
            "zero_base_deltas",
            "cross_file_deltas",
            "similar_deltas",
            "compress_deltas",
            "restore",
        ],
    ),
    (
        "Compression",
        &[
            "compress",
            "compress_extension",
            "nocompress_extension",
            "compress_log_size",
            "compress_chksum",
            "compress_mode",
        ],
    ),
    (
        "Placement",
        &[
            "placement",
            "reserve_files",
            "goal",
            "defragment_budget",
            "reserve_retrain",
            "alloc_mode",
            "in_place",
            "min_ipu_util",
            "min_fsync_blocks",
            "background_gc",
            "victim",
        ],
    ),
    (TUNING, &[]),
    ("Recording", &["trace", "trace_private"]),
    (
        COMPATIBILITY,
        &[
            "atime",
            "nostrictatime",
            "async",
            "norecovery",
            "active_logs",
            "compress_algorithm",
            "ipu_policy",
            "mode",
            "max_fragment_chunk",
            "max_fragment_hole",
        ],
    ),
];
const TUNING: &str = "Tuning";
const COMPATIBILITY: &str = "Compatibility and experiments";

/// All options, by who needs them.
fn groups() -> Vec<(&'static str, Vec<Described>)> {
    let all: Vec<Described> = sections().into_iter().flat_map(|(_, all)| all).collect();
    let group_of = |option: &Described| {
        GROUPS.iter().find(|(_, names)| names.contains(&option.name)).map_or(TUNING, |(title, _)| title)
    };
    let group = |&(title, names): &(&'static str, &[&str])| {
        let mut group: Vec<Described> =
            all.iter().filter(|option| group_of(option) == title).copied().collect();
        group.sort_by_key(|option| names.iter().position(|name| *name == option.name));
        (title, group)
    };
    GROUPS.iter().map(group).collect()
}

/// All options, by who takes them.
fn sections() -> [(&'static str, Vec<Described>); 3] {
    [
        ("The volume", options::described().collect()),
        ("The mount", medfs_fuse::OPTIONS.iter().map(MountOption::described).collect()),
        ("Recording", tap::OPTIONS.iter().map(MountOption::described).collect()),
    ]
}

/// The sentence about an option that nobody knows.
pub(crate) fn unknown(option: &str) -> String {
    if let Some(sentence) = habits::mount_option(option) {
        return sentence;
    }
    let beside = sections().into_iter().skip(1).flat_map(|(_, all)| all).flat_map(|option| option.names());
    let flags = MountConfig::flags_known().chain(["remount"]).map(str::to_owned);
    options::unknown(option, options::names().chain(beside).chain(flags))
}

/// Options that change nothing without another one, and whether that is in force.
type Companion = (&'static [&'static str], &'static str, fn(&MountOptions) -> bool);
const COMPANIONS: &[Companion] = &[
    (
        &[
            "durability_age",
            "durability_bytes",
            "durability_fsyncs",
            "durability_policy",
            "apps",
            "survivor_size",
        ],
        "durability=adaptive",
        |o| o.durability == DurabilityMode::Adaptive,
    ),
    (&["durability_points", "durability_tau"], "durability_policy=tpl", |o| {
        o.commit_policy.which == DurabilityPolicy::Tpl
    }),
    (&["durability_interval"], "durability_policy=interval", |o| {
        o.commit_policy.which == DurabilityPolicy::Interval
    }),
    (&["durability_staleness"], "durability_policy=staleness", |o| {
        o.commit_policy.which == DurabilityPolicy::Staleness
    }),
    (
        &["nvram_threshold", "nvram_mode", "nvram_admit", "nvram_commit", "nvram_volatile"],
        "nvram=PATH",
        |o| o.nvram.is_some(),
    ),
    (&["reserve_files", "defragment_budget"], "placement=reserve", |o| {
        o.placement == PlacementPolicy::Reserve
    }),
    (&["goal", "reserve_retrain"], "placement=reserve,reserve_files=tree", |o| {
        (o.placement, o.reserve_files) == (PlacementPolicy::Reserve, ReserveFiles::Tree)
    }),
];

/// A sentence about each option that changes nothing without another one.
pub(crate) fn without_companion(given: &[&str], options: &MountOptions) -> Vec<String> {
    let of = |name: &str| COMPANIONS.iter().find(|(names, ..)| names.contains(&name));
    let names = given.iter().map(|option| option.split('=').next().unwrap_or(option));
    let lonely =
        |name| of(name).filter(|(.., in_force)| !in_force(options)).map(|(_, needs, _)| (name, *needs));
    names.filter_map(lonely).map(|(name, needs)| format!("{name} has no effect without {needs}")).collect()
}

/// Whether an option is taken by somebody; the error is about its value.
pub(crate) fn is_known(option: &str) -> Result<bool, String> {
    let mut config = MountConfig::new("/", "");
    Ok(tap::Tap::default().set_option(option)?
        || config.set_option(option).map_err(|error| error.to_string())?
        || MountOptions::default().apply(option).map_err(|error| error.to_string())?)
}

/// Values without what may follow them: of `off|zstd[:LEVEL]` it is `off|zstd`.
fn without_brackets(values: &str) -> String {
    let mut depth = 0;
    let outside = |c: &char| {
        let inside = depth > 0 || *c == '[';
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        !inside
    };
    values.chars().filter(outside).collect()
}

/// The options as a shell completes them: `noatime`, `cache=`, `delta=off`, and of a switch the word that
/// changes something.
pub(crate) fn completed() -> Vec<String> {
    let words = |option: Described| match option.form {
        Form::Word => vec![option.name.to_owned()],
        Form::Switch if option.default == "on" => vec![format!("no{}", option.name)],
        Form::Switch => vec![option.name.to_owned()],
        Form::Value(values) => {
            let is_word = |value: &String| {
                !value.is_empty()
                    && value
                        .chars()
                        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-:".contains(c))
            };
            let values = without_brackets(values);
            let all: Vec<String> = values.split('|').map(str::to_owned).filter(is_word).collect();
            match all.is_empty() {
                true => vec![format!("{}=", option.name)],
                false => all.iter().map(|value| format!("{}={value}", option.name)).collect(),
            }
        }
    };
    let flags = FLAGS.split(", ").chain(["remount"]).map(str::to_owned);
    groups().into_iter().flat_map(|(_, all)| all).flat_map(words).chain(flags).collect()
}

/// What is said after the text of an option: accepted values, and the default.
fn details(option: &Described) -> String {
    let mut text = option.help.to_owned();
    if let (Form::Value(values), false) = (option.form, option.accepts.is_empty()) {
        let word: String = values.chars().take_while(char::is_ascii_uppercase).collect();
        let subject = if word.is_empty() { String::new() } else { format!("{word} is ") };
        text.push_str(&format!(" {}.", capital(&format!("{subject}{}", option.accepts))));
    }
    if !option.default.is_empty() {
        text.push_str(&format!(" [default: {}]", option.default));
    }
    text
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn wrapped(text: &str, indent: usize) -> String {
    let space = " ".repeat(indent);
    textwrap::fill(text, textwrap::Options::new(COLUMNS).initial_indent(&space).subsequent_indent(&space))
}

/// The end of `medfs mount --help`.
pub(crate) fn help() -> String {
    let mut text = String::from("Mount options (-o), separated by commas:\n");
    for (title, all) in groups() {
        text.push_str(&format!("\n{title}\n"));
        for option in all {
            text.push_str(&format!("  {option}\n{}\n", wrapped(&details(&option), INDENT)));
        }
        if title == COMPATIBILITY {
            let flags = format!("{FLAGS}, remount: as mount(8) describes them.");
            text.push_str(&format!("{}\n", wrapped(&flags, 2)));
        }
    }
    text.push('\n');
    text.push_str(&wrapped(
        "Words of mount(8) and fstab(5), such as defaults, nofail and x-..., are accepted. So are the other options of the kernel's f2fs, which have no effect here: medfs(5) lists them.",
        0,
    ));
    text
}

/// The end of `medfs mount -h`: what a user needs every day.
pub(crate) fn short_help() -> String {
    let mut text = String::from("Mount options (-o), separated by commas:\n");
    for (_, daily) in groups().into_iter().take(1) {
        for option in daily {
            let help = option.help.split(". ").next().unwrap_or_default().trim_end_matches('.');
            let default = if option.default.is_empty() {
                String::new()
            } else {
                // Kept in one piece.
                format!(" [default:\u{a0}{}]", option.default)
            };
            let name = format!("  {:<18} ", option.to_string());
            let below = " ".repeat(name.len());
            let lines = textwrap::Options::new(COLUMNS).initial_indent(&name).subsequent_indent(&below);
            let filled = textwrap::fill(&format!("{help}{default}"), lines).replace('\u{a0}', " ");
            text.push_str(&format!("{filled}\n"));
        }
    }
    text + "'medfs mount --help' lists all options."
}

/// Words of mount(8) and fstab(5) that are no flags of the mount.
fn words_without_effect() -> Vec<&'static str> {
    let is_flag = |word: &&str| MountConfig::flags_known().any(|flag| flag == *word);
    options::words_of_mount().iter().copied().filter(|word| !is_flag(word)).collect()
}

/// medfs(5).
pub(crate) fn manual() -> String {
    let mut page = Roff::new();
    page.control("TH", ["medfs", "5", "", concat!("medfs ", env!("CARGO_PKG_VERSION")), "File Formats"]);
    page.control("SH", ["NAME"]);
    page.text([roman("medfs - mount options of F2FS volumes in user space")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([
        bold("medfs mount"),
        roman(" [-o "),
        italic("OPTION"),
        roman(",...] "),
        italic("IMAGE|DEVICE DIR"),
    ]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(
        "A medfs volume is mounted by medfs-mount(1), or by mount(8) and a line of fstab(5) with the type medfs. Where the kernel's \
         f2fs has an option, its name and meaning are the kernel's. Of options that exclude each other the last one counts. A switch \
         may also be written with a value: discard=on, discard=off.",
    )]);
    page.control("PP", []);
    page.text([
        roman("The options in force in a mount are shown by "),
        bold("medfs stat"),
        roman(" "),
        italic("DIR"),
        roman("."),
    ]);
    for (title, all) in groups() {
        page.control("SH", [format!("OPTIONS: {}", title.to_uppercase()).as_str()]);
        for option in all {
            page.control("TP", []);
            page.text([bold(option.to_string())]);
            page.text([roman(details(&option))]);
        }
    }
    page.control("SH", ["FLAGS OF THE MOUNT"]);
    page.text([roman(format!("{FLAGS} and remount have the meaning that mount(8) gives them."))]);
    page.control("SH", ["WORDS OF MOUNT(8) AND FSTAB(5)"]);
    page.text([roman("Words that mount(8) or fstab(5) handles, and any word that begins with x- or X-, have no effect on the volume:")]);
    page.control("PP", []);
    page.text([roman(words_without_effect().join(", "))]);
    page.control("PP", []);
    page.text([roman("Other options of the kernel's f2fs are accepted without effect; the mount command names those that it was given:")]);
    page.control("PP", []);
    page.text([roman(options::without_effect().collect::<Vec<_>>().join(", "))]);
    page.control("SH", ["EXAMPLES"]);
    page.text([roman("A line of /etc/fstab:")]);
    page.control("nf", []);
    page.text([roman("/dev/mmcblk0p3  /srv  medfs  defaults,allow_other,noatime,nofail  0  2")]);
    page.control("fi", []);
    page.control("PP", []);
    page.text([roman("A comparison without deltas:")]);
    page.control("nf", []);
    page.text([roman("medfs mount -o delta=off card.img /mnt")]);
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"]);
    page.text([roman("medfs(1), medfs-mount(1), medfs-stat(1), mount(8), fstab(5)")]);
    page.to_roff()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_option_is_told_of_once() {
        let names = |all: Vec<Described>| all.into_iter().map(|option| option.name).collect::<Vec<_>>();
        let mut told: Vec<&str> = groups().into_iter().flat_map(|(_, all)| names(all)).collect();
        let mut all: Vec<&str> = sections().into_iter().flat_map(|(_, all)| names(all)).collect();
        told.sort_unstable();
        all.sort_unstable();
        assert_eq!(told, all);
        let unknown = GROUPS.iter().flat_map(|(_, names)| *names).filter(|name| !all.contains(name));
        assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&&str>::new());
        assert_eq!(names(groups().swap_remove(0).1)[..2], ["ro", "rw"]);
    }

    #[test]
    fn help_and_manual_name_every_option() {
        let manual = ["\\fB", "\\fI", "\\fR"].iter().fold(manual(), |text, font| text.replace(font, " "));
        for (place, text) in [("mount --help", help()), ("medfs(5)", manual)] {
            let words: BTreeSet<&str> =
                text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
            let all = sections().into_iter().flat_map(|(_, all)| all).map(|option| option.name);
            assert_eq!(all.filter(|name| !words.contains(name)).collect::<Vec<_>>(), [""; 0], "{place}");
        }
    }

    #[test]
    fn every_option_that_is_told_is_taken() {
        for (_, all) in sections() {
            for option in all {
                let value = match option.form {
                    Form::Value(values) => values.split(['|', '[']).next().unwrap(),
                    _ => "",
                };
                let value = match value {
                    "SIZE" => "1M",
                    "TIME" => "5s",
                    "BYTES" => "100",
                    "N" => "4",
                    "PERCENT" => "50",
                    "EXTENSION" => "txt",
                    value => value,
                };
                let given = if value.is_empty() {
                    option.name.to_owned()
                } else {
                    format!("{}={value}", option.name)
                };
                assert_eq!(is_known(&given), Ok(true), "{given}");
            }
        }
        for flag in FLAGS.split(", ") {
            assert!(!words_without_effect().contains(&flag), "{flag} is told of twice");
            assert!(MountConfig::flags_known().any(|known| known == flag), "{flag}");
        }
    }
}
