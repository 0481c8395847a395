//! `nvram=`: the memory beside the volume that takes fsyncs.

use super::list::{
    TIME, choice, choose, given, itself, name_of, number, put, show_bytes, show_time, size, time, time_row,
    word,
};
use super::table::Form::Value;
use super::table::MountOption;
use super::{DurabilityMode, FsyncMode, MountOptions};
use crate::error::{Error, Result};
use std::fmt;
use std::path::PathBuf;

/// What becomes of fsyncs in an NVRAM (`nvram=`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NvramOption {
    /// They go there, and come from there after a crash.
    At(NvramPlace),
    /// Those that lie in one are given up, with all that was fsynced since the last checkpoint.
    Discard,
}

/// What a record in the NVRAM holds (`nvram_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvramMode {
    /// Changed pages and nodes.
    Journal,
    /// Nodes alone: pages are written to the volume first, and flushed.
    Ordered,
}

/// Which changed pages records hold (`nvram_admit`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvramAdmit {
    /// Those that a codec makes small.
    Size,
    /// Those whose bits are mostly as they were, or mostly inverted, where LZO makes the difference small (Delta
    /// Journaling, section III.C).
    Population,
}

const MODES: &[(&str, NvramMode)] = &[("journal", NvramMode::Journal), ("ordered", NvramMode::Ordered)];
const ADMITS: &[(&str, NvramAdmit)] = &[("size", NvramAdmit::Size), ("population", NvramAdmit::Population)];

/// A file, a block device or a memory device ([`medfs_device::open_nvram`] has the kinds), or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvramPlace {
    /// Where it is.
    pub path: PathBuf,
    /// First byte.
    pub offset: u64,
    /// Bytes; `None`: all behind the first.
    pub size: Option<u64>,
}

impl NvramPlace {
    /// `PATH[@OFFSET[+SIZE]]`; `None` where the text is empty, or what is behind the `@` no size.
    pub fn parse(text: &str) -> Option<NvramPlace> {
        let whole = NvramPlace { path: text.into(), offset: 0, size: None };
        let part = text.rsplit_once('@').and_then(|(path, part)| {
            let (offset, bytes) = part.split_once('+').map_or((part, None), |(o, s)| (o, Some(s)));
            let size = match bytes {
                Some(bytes) => Some(size(bytes)?),
                None => None,
            };
            Some(NvramPlace { path: path.into(), offset: size_from_zero(offset)?, size })
        });
        Some(part.unwrap_or(whole)).filter(|place| !place.path.as_os_str().is_empty())
    }
}

impl fmt::Display for NvramPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        match (self.offset, self.size) {
            (0, None) if !self.path.as_os_str().as_encoded_bytes().contains(&b'@') => Ok(()),
            (offset, None) => write!(f, "@{offset}"),
            (offset, Some(size)) => write!(f, "@{offset}+{}", show_bytes(size)),
        }
    }
}

fn size_from_zero(text: &str) -> Option<u64> {
    if text == "0" { Some(0) } else { size(text) }
}

/// Accepted for `nvram_threshold`.
const THRESHOLDS: std::ops::RangeInclusive<u64> = 10..=95;

pub(super) const OPTIONS: &[MountOption<MountOptions>] = &[
    MountOption {
        name: "nvram",
        form: Value("PATH|discard"),
        accepts: "a file or block device on another disk, a memory device, a part of these as PATH@OFFSET+SIZE, or discard",
        default: "no memory",
        help: "Small fsyncs go to this NVRAM instead of the volume. Needs a volume with deltas. discard: the NVRAM is lost; drop the fsyncs since the last checkpoint.",
        set: |o, value| {
            o.nvram = match value {
                "discard" => Some(NvramOption::Discard),
                place => NvramPlace::parse(place).map(NvramOption::At),
            };
            o.nvram.is_some()
        },
        show: |o| match &o.nvram {
            None => Vec::new(),
            Some(NvramOption::Discard) => vec!["discard".into()],
            Some(NvramOption::At(place)) => vec![place.to_string()],
        },
    },
    MountOption {
        name: "nvram_threshold",
        form: Value("PERCENT"),
        accepts: "a number from 10 to 95",
        default: "75",
        help: "With nvram=, how full the NVRAM becomes before a checkpoint empties it.",
        set: |o, value| {
            let percent = number(value).filter(|n: &u64| THRESHOLDS.contains(n));
            percent.map(|n| o.nvram_threshold = n as u32).is_some()
        },
        show: |o| vec![o.nvram_threshold.to_string()],
    },
    choice!(
        "nvram_mode",
        "journal|ordered",
        "journal",
        "With nvram=, what an fsync leaves there: changes of pages and nodes, or of nodes alone, after the pages were written to the volume and flushed.",
        MODES,
        nvram_mode,
        itself,
        Some
    ),
    choice!(
        "nvram_admit",
        "size|population",
        "size",
        "With nvram_mode=journal, which changed pages go to the NVRAM: those that compress well, or those of which few bits differ, or nearly all, as the Delta Journaling paper has it. The others are written to the volume.",
        ADMITS,
        nvram_admit,
        itself,
        Some
    ),
    word(
        "nvram_volatile",
        "With nvram=, also accept a memory that power loss empties, as a file on tmpfs: what was fsynced there is lost then. To test.",
        |o, _| put(&mut o.nvram_volatile, true),
        |o| given(o.nvram_volatile),
    ),
    time_row!(
        "nvram_commit",
        "5s",
        "With nvram_mode=journal, how often changes that nothing synced go to the NVRAM, if they fit there.",
        nvram_commit
    ),
];

/// `Invalid` where what is fsynced into a memory would rest on blocks that are not durable.
pub(super) fn check(options: &MountOptions) -> Result<()> {
    match options.nvram {
        Some(NvramOption::At(_)) => check_with_memory(options),
        Some(NvramOption::Discard) | None => Ok(()),
    }
}

/// The same where a memory is given, by an option or by the caller.
pub(crate) fn check_with_memory(options: &MountOptions) -> Result<()> {
    let excluded = if options.fsync_mode == FsyncMode::Nobarrier {
        "fsync_mode=nobarrier, which makes no block durable: expected fsync_mode=strict or posix"
    } else if options.durability == DurabilityMode::Adaptive {
        "durability=adaptive, whose fsyncs return at once: expected durability=posix"
    } else {
        return Ok(());
    };
    Err(Error::Invalid(format!("nvram= excludes {excluded}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_told_from_a_path_with_an_at() {
        let place = |text| NvramPlace::parse(text).map(|p| (p.path.display().to_string(), p.offset, p.size));
        assert_eq!(place("/dev/sdb"), Some(("/dev/sdb".into(), 0, None)));
        assert_eq!(place("/a@b/n"), Some(("/a@b/n".into(), 0, None)));
        assert_eq!(place("/n@4K"), Some(("/n".into(), 4096, None)));
        assert_eq!(place("/n@0+1M"), Some(("/n".into(), 0, Some(1 << 20))));
        assert_eq!(place(""), None);
        assert_eq!(place("@0"), None);
        for text in ["/n", "/a@b/n", "/n@4K@0", "/n@4096", "/n@0+1M", "/n@8192+64K"] {
            let place = NvramPlace::parse(text).unwrap();
            assert_eq!(NvramPlace::parse(&place.to_string()), Some(place), "{text}");
        }
    }
}
