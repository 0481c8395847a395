//! Mount options: what they are, their defaults, and their text form.
//!
//! Purpose: [`MountOptions`] is what a caller of the library fills in; [`MountOptions::parse`] reads the
//! `a=b,c` strings of `mount(8)` and fstab. Names and meanings are the kernel's where the kernel has the
//! option. A wrong option is one sentence that names it and what would be accepted.

mod ignored;

use crate::compress::options::CompressOptions;
use crate::delta::INLINE_MAX;
use crate::error::{Error, Result};
use std::time::Duration;

/// How much `fsync` guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum FsyncMode {
    /// Data is durable before the node that makes it reachable is written.
    #[default]
    Strict,
    /// As the kernel's default: one flush after data and nodes together.
    Posix,
    /// No flush at all: for comparison, or for media that cannot lose what they took.
    Nobarrier,
}

/// Where new blocks are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AllocMode {
    /// Free segments first.
    Default,
    /// The start of the volume first.
    Reuse,
}

/// When a page of a file is overwritten where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InPlace {
    /// Never.
    Off,
    /// In an fdatasync, and in an fsync of few dirty pages.
    Fsync {
        /// An fsync of more dirty pages than this writes to the log (the kernel's `min_fsync_blocks`).
        min_blocks: u32,
    },
    /// Whenever it is legal.
    Force,
}

/// The kernel's `min_fsync_blocks`.
pub const MIN_FSYNC_BLOCKS: u32 = 8;

/// How background cleaning chooses the section to clean. Cleaning for want of space is always greedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum VictimPolicy {
    /// The fewest valid blocks.
    Greedy,
    /// Few valid blocks, long unchanged.
    #[default]
    CostBenefit,
}

/// When reading changes the access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Atime {
    /// Where it is older than the last change, or than a day.
    #[default]
    Relatime,
    /// Never.
    Noatime,
    /// Always.
    Strictatime,
}

/// What becomes of small updates (`delta=`). Volumes that are not medfs's own take `off` in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeltaMode {
    /// Pages are written as a whole; deltas that are there are read.
    Off,
    /// Deltas in the inode (MedFS's DCI).
    Inline,
    /// Deltas in compact pages (DCM).
    Compact,
    /// Both: in compact pages what the inode has no room for.
    #[default]
    Full,
}

/// Which files get compact pages (`compact_files=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompactFiles {
    /// Those that are written often and read seldom (MedFS, section 4.2.1).
    #[default]
    Hot,
    /// All: to compare, and to test.
    All,
}

/// What an fsync of a directory does (`dir_fsync=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirFsync {
    /// A checkpoint wherever anything changed, as the kernel does.
    Checkpoint,
    /// Nothing where roll-forward would bring back what changed, a checkpoint otherwise.
    Recover,
}

/// How a volume is opened. The default is the kernel's, except for `fsync_mode`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Write nothing (`ro`, `rw`).
    pub read_only: bool,
    /// Most memory for cached pages and nodes (`cache=64M`).
    pub cache_bytes: usize,
    /// `fsync_mode=strict|posix|nobarrier`.
    pub fsync_mode: FsyncMode,
    /// `alloc_mode=default|reuse`; `None`: by the size of the volume, as the kernel does.
    pub alloc_mode: Option<AllocMode>,
    /// `in_place=off|fsync[:N]|force`; `None`: by the size of the volume, as the kernel does.
    pub in_place: Option<InPlace>,
    /// Tell the device what is no longer needed (`discard`, `nodiscard`).
    pub discard: bool,
    /// Clean when there is nothing else to do (`background_gc=on|off`).
    pub background_gc: bool,
    /// `victim=greedy|cost-benefit`.
    pub victim: VictimPolicy,
    /// `relatime`, `noatime`, `strictatime`.
    pub atime: Atime,
    /// Keep small files in their inode (`inline_data`, `noinline_data`).
    pub inline_data: bool,
    /// Keep small directories in their inode (`inline_dentry`, `noinline_dentry`).
    pub inline_dentry: bool,
    /// Keep extended attributes in the inode where they fit (`inline_xattr`, `noinline_xattr`).
    pub inline_xattr: bool,
    /// POSIX ACLs (`acl`, `noacl`).
    pub acl: bool,
    /// `user.` attributes (`user_xattr`, `nouser_xattr`).
    pub user_xattr: bool,
    /// Roll fsynced files forward from the last checkpoint (`recover`). Without it (`disable_roll_forward`, or
    /// `norecovery`, which is only for read-only mounts) what was fsynced since is not seen, and lost by a writable mount.
    pub recover: bool,
    /// Longest time between checkpoints while there is something to write (`commit=60s`).
    pub commit_interval: Duration,
    /// `dir_fsync=checkpoint|recover`; `None`: `recover` on volumes that may hold deltas.
    pub dir_fsync: Option<DirFsync>,
    /// `delta=off|inline|compact|full`; `None`: `full`, and `off` with `compress=fpc`. See [`MountOptions::delta_mode`].
    pub delta: Option<DeltaMode>,
    /// Deltas of so many pages at least share a compact page (`compact_threshold=5`).
    pub compact_threshold: usize,
    /// Largest delta in bytes that stays in the inode (`inline_threshold=256`); `None`: 256, and with `delta=full` what a
    /// compact page would take.
    pub inline_threshold: Option<usize>,
    /// `compact_files=hot|all`.
    pub compact_files: CompactFiles,
    /// An fsync notes addresses that changed in direct nodes in the inode instead of writing these (`note_addresses=on|off`).
    pub note_addresses: bool,
    /// fsyncs of several files that wait together share a node block where each changed little (`shared_records=on|off`).
    pub shared_records: bool,
    /// Pages that have no block yet may be deltas (`append_deltas=on|off`).
    pub append_deltas: bool,
    /// Pages of SQLite's journals and logs may be deltas of the database's blocks (`repeat_deltas=on|off`);
    /// `None`: with compact pages. Without them such blocks have no other place, and what is made from them is written twice.
    pub repeat_deltas: Option<bool>,
    /// Pages of compressed clusters may be deltas of what these hold (`compress_deltas=on|off`).
    pub compress_deltas: bool,
    /// Length of the windows in which reads and writes of a file are counted (`hot_window=60s`; MedFS's T).
    pub hot_window: Duration,
    /// How long nothing must be wanted before idle work is done (`idle=5s`, the kernel's `idle_interval`).
    pub idle_after: Duration,
    /// Write pages that are deltas as blocks again where their file is read often and not written (`restore=on|off`).
    pub restore: bool,
    /// `compress=` and what belongs to it.
    pub compress: CompressOptions,
    /// Logs written at once. Six is the only number supported.
    pub active_logs: u8,
    /// Every write and every change of a name is durable when its call returns (`sync`, `async`).
    pub sync: bool,
    /// Every change of a name is (`dirsync`).
    pub dirsync: bool,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            cache_bytes: 64 << 20,
            fsync_mode: FsyncMode::default(),
            alloc_mode: None,
            in_place: None,
            discard: true,
            background_gc: true,
            victim: VictimPolicy::default(),
            atime: Atime::default(),
            inline_data: true,
            inline_dentry: true,
            inline_xattr: true,
            acl: true,
            user_xattr: true,
            recover: true,
            commit_interval: Duration::from_secs(60),
            dir_fsync: None,
            delta: None,
            compact_threshold: 5,
            inline_threshold: None,
            compact_files: CompactFiles::default(),
            note_addresses: true,
            shared_records: true,
            append_deltas: true,
            repeat_deltas: None,
            compress_deltas: true,
            hot_window: Duration::from_secs(60),
            idle_after: Duration::from_secs(5),
            restore: true,
            compress: CompressOptions::default(),
            active_logs: 6,
            sync: false,
            dirsync: false,
        }
    }
}

/// What [`MountOptions::parse`] accepts and acts upon, for messages and help texts.
pub const ACCEPTED: &str = "ro, rw, cache=SIZE, fsync_mode=strict|posix|nobarrier, alloc_mode=default|reuse, \
     in_place=off|fsync[:N]|force, discard, nodiscard, background_gc=on|off|sync, victim=greedy|cost-benefit, relatime, noatime, \
     strictatime, [no]inline_data, [no]inline_dentry, [no]inline_xattr, [no]acl, [no]user_xattr, recover, \
     disable_roll_forward, norecovery, commit=TIME, delta=off|inline|compact|full, inline_threshold=BYTES, compact_threshold=N, compact_files=hot|all, append_deltas=on|off, repeat_deltas=on|off, compress_deltas=on|off, note_addresses=on|off, shared_records=on|off, dir_fsync=checkpoint|recover, hot_window=TIME, idle=TIME, restore=on|off, active_logs=6, sync, async, dirsync, \
     compress=off|lzo|lzo-rle|lz4|zstd[:LEVEL]|fpc[:lzo|lz4|zstd], compress_log_size=2..8, compress_extension=EXT, nocompress_extension=EXT, \
     [no]compress_chksum, compress_mode=fs|user";

const CACHE_BYTES_MIN: u64 = 1 << 20;
const TIME_MAX: Duration = Duration::from_secs(86_400);

impl MountOptions {
    /// Applies a comma-separated list of options, in order; an error leaves `self` as it was.
    pub fn parse(&mut self, options: &str) -> Result<()> {
        let mut new = self.clone();
        for option in options.split(',').map(str::trim).filter(|o| !o.is_empty()) {
            if !new.apply(option)? {
                return Err(Error::Invalid(format!(
                    "unknown mount option '{option}'; accepted are {ACCEPTED}"
                )));
            }
        }
        let named = |name| options.split(',').any(|o| o.trim() == name);
        if named("norecovery") && !new.read_only {
            return Err(invalid("norecovery", "it together with 'ro'"));
        }
        new.check()?;
        *self = new;
        Ok(())
    }

    /// What becomes of small updates where the volume may hold deltas.
    pub fn delta_mode(&self) -> DeltaMode {
        match self.delta {
            Some(mode) => mode,
            None if self.compress.fpc.is_some() => DeltaMode::Off,
            None => DeltaMode::default(),
        }
    }

    /// `Invalid` where options exclude each other.
    pub(crate) fn check(&self) -> Result<()> {
        let name = match self.delta_mode() {
            DeltaMode::Off => return Ok(()),
            DeltaMode::Inline => "delta=inline",
            DeltaMode::Compact => "delta=compact",
            DeltaMode::Full => "delta=full",
        };
        match self.compress.fpc {
            None => Ok(()),
            Some(_) => Err(invalid(
                name,
                "delta=off together with compress=fpc, which compresses changed pages instead",
            )),
        }
    }

    /// Applies one option; `false` where it is not known, so that a front end may look at it.
    pub fn apply(&mut self, option: &str) -> Result<bool> {
        match option.split_once('=') {
            Some((name, value)) if self.apply_value(option, name, value)? => return Ok(true),
            None if self.apply_word(option) => return Ok(true),
            _ => {}
        }
        Ok(ignored::is_of_mount(option) || ignored::is_of_the_kernel(option)?)
    }

    /// Whether an option is accepted because the kernel's f2fs has it, and changes nothing here.
    pub fn ignores(option: &str) -> bool {
        !ignored::is_of_mount(option) && ignored::is_of_the_kernel(option).unwrap_or(false)
    }

    fn apply_word(&mut self, word: &str) -> bool {
        match word {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "relatime" => self.atime = Atime::Relatime,
            "noatime" => self.atime = Atime::Noatime,
            "strictatime" => self.atime = Atime::Strictatime,
            "recover" => self.recover = true,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            "disable_roll_forward" | "norecovery" => self.recover = false,
            _ => {
                let (on, flag) = word.strip_prefix("no").map_or((true, word), |flag| (false, flag));
                match flag {
                    "discard" => self.discard = on,
                    "inline_data" => self.inline_data = on,
                    "inline_dentry" => self.inline_dentry = on,
                    "inline_xattr" => self.inline_xattr = on,
                    "acl" => self.acl = on,
                    "user_xattr" => self.user_xattr = on,
                    "compress_chksum" => self.compress.checksum = on,
                    _ => return false,
                }
            }
        }
        true
    }

    fn apply_value(&mut self, option: &str, name: &str, value: &str) -> Result<bool> {
        match name {
            "fsync_mode" => {
                let modes = [
                    ("strict", FsyncMode::Strict),
                    ("posix", FsyncMode::Posix),
                    ("nobarrier", FsyncMode::Nobarrier),
                ];
                self.fsync_mode = choose(option, value, &modes)?;
            }
            "alloc_mode" => {
                let modes = [("default", AllocMode::Default), ("reuse", AllocMode::Reuse)];
                self.alloc_mode = Some(choose(option, value, &modes)?);
            }
            "background_gc" => {
                self.background_gc = choose(option, value, &[("on", true), ("off", false), ("sync", true)])?
            }
            "victim" => {
                let policies =
                    [("greedy", VictimPolicy::Greedy), ("cost-benefit", VictimPolicy::CostBenefit)];
                self.victim = choose(option, value, &policies)?;
            }
            "in_place" => self.in_place = Some(in_place(option, value)?),
            "dir_fsync" => {
                let modes = [("checkpoint", DirFsync::Checkpoint), ("recover", DirFsync::Recover)];
                self.dir_fsync = Some(choose(option, value, &modes)?);
            }
            "delta" => {
                let modes = [
                    ("off", DeltaMode::Off),
                    ("inline", DeltaMode::Inline),
                    ("compact", DeltaMode::Compact),
                    ("full", DeltaMode::Full),
                ];
                self.delta = Some(choose(option, value, &modes)?);
            }
            "compact_threshold" => self.compact_threshold = number_of(option, value, COMPACT_THRESHOLDS)?,
            "compact_files" => {
                let files = [("hot", CompactFiles::Hot), ("all", CompactFiles::All)];
                self.compact_files = choose(option, value, &files)?;
            }
            "note_addresses" => self.note_addresses = choose(option, value, &[("on", true), ("off", false)])?,
            "shared_records" => self.shared_records = choose(option, value, &[("on", true), ("off", false)])?,
            "append_deltas" => self.append_deltas = choose(option, value, &[("on", true), ("off", false)])?,
            "repeat_deltas" => {
                self.repeat_deltas = Some(choose(option, value, &[("on", true), ("off", false)])?)
            }
            "compress_deltas" => {
                self.compress_deltas = choose(option, value, &[("on", true), ("off", false)])?
            }
            "cache" => self.cache_bytes = cache_bytes(option, value)?,
            "commit" => self.commit_interval = time(option, value)?,
            "inline_threshold" => self.inline_threshold = Some(inline_threshold(option, value)?),
            "hot_window" => self.hot_window = time(option, value)?,
            "idle" => self.idle_after = time(option, value)?,
            "restore" => self.restore = choose(option, value, &[("on", true), ("off", false)])?,
            "active_logs" => self.active_logs = choose(option, value, &[("6", 6)])?,
            _ => return self.compress.apply(option, name, value),
        }
        Ok(true)
    }
}

/// Accepted for `compact_threshold`.
const COMPACT_THRESHOLDS: std::ops::RangeInclusive<usize> = 2..=64;

fn number_of(option: &str, value: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize> {
    value.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| {
        let name = option.split('=').next().unwrap_or(option);
        invalid(option, &format!("{name}=N with N from {} to {}", range.start(), range.end()))
    })
}

fn invalid(option: &str, accepted: &str) -> Error {
    Error::Invalid(format!("wrong mount option '{option}'; accepted is {accepted}"))
}

fn choose<T: Copy>(option: &str, value: &str, choices: &[(&str, T)]) -> Result<T> {
    choices.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice).ok_or_else(|| {
        let name = option.split('=').next().unwrap_or(option);
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        invalid(option, &format!("{name}={}", names.join("|")))
    })
}

fn in_place(option: &str, value: &str) -> Result<InPlace> {
    match value {
        "off" => return Ok(InPlace::Off),
        "force" => return Ok(InPlace::Force),
        "fsync" => return Ok(InPlace::Fsync { min_blocks: MIN_FSYNC_BLOCKS }),
        _ => {}
    }
    let blocks = value.strip_prefix("fsync:").and_then(number).and_then(|n| u32::try_from(n).ok());
    let blocks = blocks.filter(|&n| n > 0);
    let min_blocks =
        blocks.ok_or_else(|| invalid(option, "in_place=off|fsync|fsync:N|force with N from 1 on"))?;
    Ok(InPlace::Fsync { min_blocks })
}

fn cache_bytes(option: &str, value: &str) -> Result<usize> {
    let units = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("", 1)];
    let bytes =
        units.into_iter().find_map(|(unit, factor)| number(value.strip_suffix(unit)?)?.checked_mul(factor));
    bytes
        .filter(|&bytes| bytes >= CACHE_BYTES_MIN)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| invalid(option, "cache=SIZE, a number of bytes or one with K, M or G, from 1M on"))
}

fn inline_threshold(option: &str, value: &str) -> Result<usize> {
    let accepted = 64..=INLINE_MAX;
    let bytes = number(value).and_then(|bytes| usize::try_from(bytes).ok()).filter(|b| accepted.contains(b));
    bytes.ok_or_else(|| invalid(option, &format!("inline_threshold=BYTES, a number from 64 to {INLINE_MAX}")))
}

/// A time that is not zero and at most a day.
fn time(option: &str, value: &str) -> Result<Duration> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("", 1000)];
    let millis =
        units.into_iter().find_map(|(unit, factor)| number(value.strip_suffix(unit)?)?.checked_mul(factor));
    millis
        .map(Duration::from_millis)
        .filter(|interval| !interval.is_zero() && *interval <= TIME_MAX)
        .ok_or_else(|| {
            let name = option.split('=').next().unwrap_or(option);
            invalid(option, &format!("{name}=TIME, a number of seconds or one with ms, s or m, up to a day"))
        })
}

/// A decimal number: digits only.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(options: &str) -> MountOptions {
        let mut all = MountOptions::default();
        all.parse(options).unwrap_or_else(|e| panic!("{options}: {e}"));
        all
    }

    fn refused(options: &str) -> String {
        let mut all = MountOptions::default();
        let error = all.parse(options).expect_err(options);
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert_eq!(all, MountOptions::default(), "{options} changed something");
        error.to_string()
    }

    #[test]
    fn every_option_sets_its_field() {
        let all = parsed(
            "ro,cache=128M,fsync_mode=posix,alloc_mode=reuse,in_place=fsync:4,nodiscard,background_gc=off,victim=greedy,\
             noatime,noinline_data,noinline_dentry,noinline_xattr,noacl,nouser_xattr,norecovery,commit=5s,compact_threshold=3,compact_files=all,inline_threshold=512,append_deltas=off,repeat_deltas=off,compress_deltas=off,note_addresses=off,shared_records=off,hot_window=90s,idle=250ms,restore=off,delta=off,dir_fsync=checkpoint,active_logs=6,sync,dirsync",
        );
        let expected = MountOptions {
            read_only: true,
            cache_bytes: 128 << 20,
            fsync_mode: FsyncMode::Posix,
            alloc_mode: Some(AllocMode::Reuse),
            in_place: Some(InPlace::Fsync { min_blocks: 4 }),
            discard: false,
            background_gc: false,
            victim: VictimPolicy::Greedy,
            atime: Atime::Noatime,
            inline_data: false,
            inline_dentry: false,
            inline_xattr: false,
            acl: false,
            user_xattr: false,
            recover: false,
            commit_interval: Duration::from_secs(5),
            dir_fsync: Some(DirFsync::Checkpoint),
            delta: Some(DeltaMode::Off),
            compact_threshold: 3,
            compact_files: CompactFiles::All,
            inline_threshold: Some(512),
            append_deltas: false,
            note_addresses: false,
            shared_records: false,
            repeat_deltas: Some(false),
            compress_deltas: false,
            hot_window: Duration::from_secs(90),
            idle_after: Duration::from_millis(250),
            restore: false,
            compress: CompressOptions::default(),
            active_logs: 6,
            sync: true,
            dirsync: true,
        };
        assert_eq!(all, expected);
        let undone = "rw,cache=65536K,fsync_mode=strict,discard,background_gc=on,victim=cost-benefit,relatime,inline_data,\
             inline_dentry,inline_xattr,acl,user_xattr,recover,commit=60,compact_threshold=5,compact_files=hot,append_deltas=on,repeat_deltas=on,compress_deltas=on,note_addresses=on,shared_records=on,hot_window=1m,idle=5,restore=on,delta=full,async";
        let mut back = all;
        back.parse(undone).unwrap();
        assert_eq!(
            back,
            MountOptions {
                alloc_mode: expected.alloc_mode,
                in_place: expected.in_place,
                dir_fsync: expected.dir_fsync,
                repeat_deltas: Some(true),
                inline_threshold: expected.inline_threshold,
                delta: Some(DeltaMode::Full),
                dirsync: true,
                ..Default::default()
            }
        );
    }

    #[test]
    fn units() {
        assert_eq!(parsed("cache=2097152").cache_bytes, 2 << 20);
        assert_eq!(parsed("cache=1G").cache_bytes, 1 << 30);
        assert_eq!(parsed("commit=250ms").commit_interval, Duration::from_millis(250));
        assert_eq!(parsed("commit=2m").commit_interval, Duration::from_secs(120));
        assert_eq!(parsed("in_place=fsync").in_place, Some(InPlace::Fsync { min_blocks: 8 }));
        assert_eq!(parsed("in_place=force").in_place, Some(InPlace::Force));
        assert_eq!(parsed("in_place=off").in_place, Some(InPlace::Off));
    }

    #[test]
    fn fstab_words_are_ignored() {
        let words = "defaults,nofail,,nosuid,nodev, noexec,x-systemd.automount,comment=hello,user,flush_merge,lazytime,mode=adaptive";
        assert_eq!(parsed(words), MountOptions::default());
        assert_eq!(parsed(""), MountOptions::default());
    }

    #[test]
    fn the_last_one_counts() {
        assert_eq!(parsed("noatime,strictatime").atime, Atime::Strictatime);
        assert!(!parsed("ro,rw").read_only);
    }

    #[test]
    fn a_wrong_option_is_named_with_what_is_accepted() {
        let unknown = refused("noatime,frobnicate=3");
        assert!(
            unknown.contains("'frobnicate=3'") && unknown.contains("fsync_mode=strict|posix|nobarrier"),
            "{unknown}"
        );
        for (options, accepted) in [
            ("fsync_mode=fast", "fsync_mode=strict|posix|nobarrier"),
            ("alloc_mode=", "alloc_mode=default|reuse"),
            ("background_gc=fast", "background_gc=on|off|sync"),
            ("active_logs=4", "active_logs=6"),
            ("in_place=fsync:0", "in_place=off|fsync|fsync:N|force"),
            ("in_place=fsync:99999999999", "in_place=off|fsync|fsync:N|force"),
            ("cache=lots", "cache=SIZE"),
            ("cache=4K", "from 1M on"),
            ("cache=99999999999999999999G", "cache=SIZE"),
            ("cache=18014398509481985K", "cache=SIZE"),
            ("cache=+64M", "cache=SIZE"),
            ("commit=0", "commit=TIME"),
            ("commit=-1", "commit=TIME"),
            ("commit=2000000", "up to a day"),
            ("hot_window=0", "hot_window=TIME"),
            ("idle=soon", "idle=TIME"),
            ("restore=yes", "restore=on|off"),
            ("inline_threshold=63", "from 64 to 512"),
            ("inline_threshold=513", "from 64 to 512"),
            ("inline_threshold=1K", "inline_threshold=BYTES"),
            ("norecovery", "together with 'ro'"),
        ] {
            let message = refused(options);
            assert!(
                message.contains(&format!("'{options}'")) && message.contains(accepted),
                "{options}: {message}"
            );
            assert_eq!(message.lines().count(), 1);
        }
        for unknown in ["nocache", "nodefaults", "discard=1", "ro=1", "checkpoint", "fault_injection=7"] {
            assert!(refused(unknown).contains("unknown mount option"), "{unknown}");
        }
    }

    #[test]
    fn norecovery_and_ro_in_any_order() {
        assert!(!parsed("norecovery,ro").recover);
        assert!(!parsed("disable_roll_forward").recover);
    }

    proptest! {
        #[test]
        fn any_text_parses_or_fails(text in ".{0,60}", name in "cache|commit|in_place", value in "[0-9a-zA-Z:+-]{0,24}") {
            let _ = MountOptions::default().parse(&text);
            let _ = MountOptions::default().parse(&format!("{name}={value}"));
        }
    }
}
