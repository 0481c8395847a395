//! Mount options: what they are, their defaults, and their text form.
//!
//! Purpose: [`MountOptions`] is what a caller of the library fills in; [`MountOptions::parse`] reads the
//! `a=b,c` strings of `mount(8)` and fstab. Names and meanings are the kernel's where the kernel has the
//! option. A wrong option is one sentence that names it and what would be accepted, or the nearest one.
//! What there is to say of an option is a row of a table ([`MountOption`]).

mod apps;
mod compress;
mod durability;
mod ignored;
mod in_place;
mod list;
pub(crate) mod nvram;
mod parse;
mod placing;
mod recover;
mod survivor;
pub(crate) mod table;

pub use apps::{Apps, FolderPattern};
pub use compress::{CompressMode, CompressOptions};
pub use durability::{CommitPolicy, DurabilityMode, DurabilityPolicy, LossBounds};
pub use in_place::{InPlace, MIN_FSYNC_BLOCKS, MIN_IPU_UTIL, Occasion};
pub use nvram::{NvramAdmit, NvramMode, NvramOption, NvramPlace};
pub use parse::{described, names, without_effect, words_of_mount};
pub use recover::Recover;
pub use survivor::Survivor;
pub use table::{Described, Form, MountOption, nearest, unknown};

use medfs_format::node::ADDRS_PER_BLOCK;
use medfs_store::{AllocMode, Scatter};
use std::time::Duration;

/// How much `fsync` guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum FsyncMode {
    /// After power loss a node counts only if its data is durable: by a flush before it, or by its seal.
    #[default]
    Strict,
    /// As the kernel's default: one flush after data and nodes together. Files with deltas are as with `Strict`.
    Posix,
    /// No flush at all: for comparison, or for media that cannot lose what they took.
    Nobarrier,
}

/// Where data blocks go (`placement=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum PlacementPolicy {
    /// To the logs, or over the page's own block where `in_place=` says so.
    #[default]
    Log,
    /// Files of `reserve_files=` have sections of their own (ARS), in which each page has its place; others
    /// as with `Log`.
    Reserve,
}

/// Which files get sections of their own (`reserve_files=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum ReserveFiles {
    /// Those that a decision tree says will fragment in a log, and pinned ones.
    #[default]
    Tree,
    /// Pinned ones.
    Pinned,
    /// All that are not compressed (ARS, Fig. 3, the second scheme).
    All,
}

/// What the ways to keep a file's pages are compared by (`goal=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Goal {
    /// The blocks that are written.
    #[default]
    Wear,
    /// The time of the device.
    Time,
    /// Both alike, each as a part of what the other way costs.
    Balance,
}

impl Goal {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Goal::Wear => "wear",
            Goal::Time => "time",
            Goal::Balance => "balance",
        }
    }
}

/// How logs lie on the volume (`mode=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Mode {
    /// One segment after the other, or through holes where free sections are few.
    #[default]
    Adaptive,
    /// Free segments are taken at random.
    FragmentSegment,
    /// That, and free segments are filled with holes between runs.
    FragmentBlock,
}

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
    /// `placement=log|reserve`.
    pub placement: PlacementPolicy,
    /// `reserve_files=tree|pinned|all`.
    pub reserve_files: ReserveFiles,
    /// `goal=wear|time|balance`.
    pub goal: Goal,
    /// Bytes that idle work may write a day to bring pages of reserved files home (`defragment_budget=64M`).
    pub defragment_budget: u64,
    /// Train the decision tree anew every ten days (`reserve_retrain=on|off`).
    pub reserve_retrain: bool,
    /// `mode=adaptive|fragment:segment|fragment:block`.
    pub mode: Mode,
    /// With `mode=fragment:block`, most blocks of a run (`max_fragment_chunk=4`).
    pub max_fragment_chunk: u16,
    /// With `mode=fragment:block`, most blocks of a hole (`max_fragment_hole=4`).
    pub max_fragment_hole: u16,
    /// `in_place=off|force|...`, `ipu_policy=N`; `None`: by the size of the volume, as the kernel does.
    pub in_place: Option<InPlace>,
    /// For [`InPlace::UTIL`]: percent of the volume that must be in use (`min_ipu_util=70`).
    pub min_ipu_util: u32,
    /// For [`InPlace::FSYNC`]: most dirty pages of such an fsync (`min_fsync_blocks=8`).
    pub min_fsync_blocks: u32,
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
    /// Roll fsynced files forward from the last checkpoint (`recover`), or not (`disable_roll_forward`, or
    /// `norecovery`, which is only for read-only mounts).
    pub recover: Recover,
    /// Longest time between checkpoints while there is something to write (`commit=60s`).
    pub commit_interval: Duration,
    /// `dir_fsync=checkpoint|recover`; `None`: `recover` on volumes that may hold deltas.
    pub dir_fsync: Option<DirFsync>,
    /// `delta=off|inline|compact|full`; `None`: `full`, and `off` with `compress=fpc`. See
    /// [`MountOptions::delta_mode`].
    pub delta: Option<DeltaMode>,
    /// Deltas of so many pages at least share a compact page (`compact_threshold=5`).
    pub compact_threshold: usize,
    /// Most compact pages of a file (`compact_pages=1018`): at most as many as a direct node has addresses.
    pub compact_pages: usize,
    /// Largest delta in bytes that stays in the inode (`inline_threshold=256`); `None`: 256, and with
    /// `delta=full` what a compact page would take.
    pub inline_threshold: Option<usize>,
    /// `compact_files=hot|all`.
    pub compact_files: CompactFiles,
    /// An fsync notes addresses that changed in direct nodes in the inode instead of writing these
    /// (`addr_redo=on|off`).
    pub addr_redo: bool,
    /// fsyncs of several files that wait together share a node block where each changed little
    /// (`group_commit=on|off`).
    pub group_commit: bool,
    /// The last node of an fsync is written with what it names, and one flush serves both (`seal=on|off`).
    pub seal: bool,
    /// Pages that have no block yet may be deltas (`zero_base_deltas=on|off`).
    pub zero_base_deltas: bool,
    /// Pages of SQLite's journals and logs may be deltas of the database's blocks (`cross_file_deltas=on|off`);
    /// `None`: with compact pages. Without them such blocks have no other place, and what is made from them
    /// is written twice.
    pub cross_file_deltas: Option<bool>,
    /// Pages may be deltas of other blocks of their file that look like them (`similar_deltas=on|off`), with
    /// compact pages.
    pub similar_deltas: bool,
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
    /// Number of active logs. Only six is supported.
    pub active_logs: u8,
    /// `durability=posix|adaptive`.
    pub durability: DurabilityMode,
    /// `durability_age=30s,durability_bytes=16M,durability_fsyncs=N`.
    pub loss: LossBounds,
    /// `durability_policy=bounds|tpl|interval|staleness` and what belongs to it.
    pub commit_policy: CommitPolicy,
    /// `apps=volume|top|uid|project|FOLDERS`.
    pub apps: Apps,
    /// `survivor=auto|off|DIR`.
    pub survivor: Survivor,
    /// Most bytes of its log (`survivor_size=32M`).
    pub survivor_bytes: u64,
    /// `nvram=PATH[@OFFSET[+SIZE]]|discard`.
    pub nvram: Option<NvramOption>,
    /// Percent of the NVRAM in use that make a checkpoint due (`nvram_threshold=75`).
    pub nvram_threshold: u32,
    /// `nvram_mode=journal|ordered`.
    pub nvram_mode: NvramMode,
    /// `nvram_admit=size|population`.
    pub nvram_admit: NvramAdmit,
    /// How often changes that nothing synced are recorded (`nvram_commit=5s`).
    pub nvram_commit: Duration,
    /// Whether the NVRAM may be one that power loss empties (`nvram_volatile`).
    pub nvram_volatile: bool,
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
            placement: PlacementPolicy::default(),
            reserve_files: ReserveFiles::default(),
            goal: Goal::default(),
            defragment_budget: 64 << 20,
            reserve_retrain: false,
            mode: Mode::default(),
            max_fragment_chunk: 4,
            max_fragment_hole: 4,
            in_place: None,
            min_ipu_util: MIN_IPU_UTIL,
            min_fsync_blocks: MIN_FSYNC_BLOCKS,
            discard: true,
            background_gc: true,
            victim: VictimPolicy::default(),
            atime: Atime::default(),
            inline_data: true,
            inline_dentry: true,
            inline_xattr: true,
            acl: true,
            user_xattr: true,
            recover: Recover::All,
            commit_interval: Duration::from_secs(60),
            dir_fsync: None,
            delta: None,
            compact_threshold: 5,
            compact_pages: ADDRS_PER_BLOCK,
            inline_threshold: None,
            compact_files: CompactFiles::default(),
            addr_redo: true,
            group_commit: true,
            seal: true,
            zero_base_deltas: true,
            cross_file_deltas: None,
            similar_deltas: true,
            compress_deltas: true,
            hot_window: Duration::from_secs(60),
            idle_after: Duration::from_secs(5),
            restore: true,
            compress: CompressOptions::default(),
            active_logs: 6,
            durability: DurabilityMode::default(),
            loss: LossBounds::default(),
            commit_policy: CommitPolicy::default(),
            apps: Apps::default(),
            survivor: Survivor::default(),
            survivor_bytes: 32 << 20,
            nvram: None,
            nvram_threshold: 75,
            nvram_mode: NvramMode::Journal,
            nvram_admit: NvramAdmit::Size,
            nvram_commit: Duration::from_secs(5),
            nvram_volatile: false,
            sync: false,
            dirsync: false,
        }
    }
}

impl MountOptions {
    /// How logs scatter what they write.
    pub(crate) fn scatter(&self) -> Scatter {
        match self.mode {
            Mode::Adaptive => Scatter::No,
            Mode::FragmentSegment => Scatter::Segments,
            Mode::FragmentBlock => {
                Scatter::Blocks { chunk: self.max_fragment_chunk, hole: self.max_fragment_hole }
            }
        }
    }

    /// What becomes of small updates where the volume may hold deltas.
    pub fn delta_mode(&self) -> DeltaMode {
        match self.delta {
            Some(mode) => mode,
            None if self.compress.fpc.is_some() => DeltaMode::Off,
            None => DeltaMode::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
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
            "ro,cache=128M,fsync_mode=posix,alloc_mode=reuse,in_place=fsync+ssr_util,min_fsync_blocks=4,min_ipu_util=80,nodiscard,background_gc=off,victim=greedy,\
             placement=reserve,reserve_files=all,goal=balance,defragment_budget=0,reserve_retrain=on,mode=fragment:block,max_fragment_chunk=2,max_fragment_hole=512,noatime,noinline_data,noinline_dentry,noinline_xattr,noacl,nouser_xattr,norecovery,commit=5s,compact_threshold=3,compact_pages=4,compact_files=all,inline_threshold=512,zero_base_deltas=off,cross_file_deltas=off,similar_deltas=off,compress_deltas=off,addr_redo=off,group_commit=off,seal=off,hot_window=90s,idle=250ms,restore=off,delta=off,dir_fsync=checkpoint,active_logs=6,sync,dirsync,durability=posix,durability_age=5s,durability_bytes=1M,durability_fsyncs=9,holdup=400ms,durability_policy=tpl,durability_points=9,durability_tau=3s,durability_interval=9s,durability_staleness=64K,apps=/a/*:/b,survivor=/s,survivor_size=2M,nvram=/n@4K+1M,nvram_threshold=50,nvram_mode=ordered,nvram_admit=population,nvram_commit=9s,nvram_volatile",
        );
        let expected = MountOptions {
            read_only: true,
            cache_bytes: 128 << 20,
            fsync_mode: FsyncMode::Posix,
            alloc_mode: Some(AllocMode::Reuse),
            placement: PlacementPolicy::Reserve,
            reserve_files: ReserveFiles::All,
            goal: Goal::Balance,
            defragment_budget: 0,
            reserve_retrain: true,
            mode: Mode::FragmentBlock,
            max_fragment_chunk: 2,
            max_fragment_hole: 512,
            in_place: Some(InPlace::FSYNC | InPlace::SSR_UTIL),
            min_ipu_util: 80,
            min_fsync_blocks: 4,
            discard: false,
            background_gc: false,
            victim: VictimPolicy::Greedy,
            atime: Atime::Noatime,
            inline_data: false,
            inline_dentry: false,
            inline_xattr: false,
            acl: false,
            user_xattr: false,
            recover: Recover::Nothing,
            commit_interval: Duration::from_secs(5),
            dir_fsync: Some(DirFsync::Checkpoint),
            delta: Some(DeltaMode::Off),
            compact_threshold: 3,
            compact_pages: 4,
            compact_files: CompactFiles::All,
            inline_threshold: Some(512),
            zero_base_deltas: false,
            addr_redo: false,
            group_commit: false,
            seal: false,
            cross_file_deltas: Some(false),
            similar_deltas: false,
            compress_deltas: false,
            hot_window: Duration::from_secs(90),
            idle_after: Duration::from_millis(250),
            restore: false,
            compress: CompressOptions::default(),
            active_logs: 6,
            durability: DurabilityMode::Posix,
            loss: LossBounds {
                age: Duration::from_secs(5),
                bytes: 1 << 20,
                fsyncs: Some(9),
                holdup: Some(Duration::from_millis(400)),
            },
            commit_policy: CommitPolicy {
                which: DurabilityPolicy::Tpl,
                points: 9,
                tau: Duration::from_secs(3),
                interval: Duration::from_secs(9),
                staleness: 64 << 10,
            },
            apps: parsed("apps=/a/*:/b").apps,
            survivor: Survivor::In("/s".into()),
            survivor_bytes: 2 << 20,
            nvram: Some(NvramOption::At(NvramPlace { path: "/n".into(), offset: 4096, size: Some(1 << 20) })),
            nvram_threshold: 50,
            nvram_mode: NvramMode::Ordered,
            nvram_admit: NvramAdmit::Population,
            nvram_commit: Duration::from_secs(9),
            nvram_volatile: true,
            sync: true,
            dirsync: true,
        };
        assert_eq!(all, expected);
        let undone = "rw,placement=log,reserve_files=tree,goal=wear,defragment_budget=65536K,reserve_retrain=off,mode=adaptive,max_fragment_chunk=4,max_fragment_hole=4,min_ipu_util=70,min_fsync_blocks=8,cache=65536K,fsync_mode=strict,discard,background_gc=on,victim=cost-benefit,relatime,inline_data,\
             inline_dentry,inline_xattr,acl,user_xattr,recover,commit=60,compact_threshold=5,compact_pages=1018,compact_files=hot,zero_base_deltas=on,cross_file_deltas=on,similar_deltas=on,compress_deltas=on,addr_redo=on,group_commit=on,seal=on,hot_window=1m,idle=5,restore=on,delta=full,durability_age=30s,durability_bytes=16M,durability_policy=bounds,durability_points=256,durability_tau=2s,durability_interval=5s,durability_staleness=4M,apps=volume,survivor=auto,survivor_size=32M,nvram_threshold=75,nvram_mode=journal,nvram_admit=size,nvram_commit=5,async";
        let mut back = all;
        back.parse(undone).unwrap();
        assert_eq!(
            back,
            MountOptions {
                nvram: expected.nvram,
                nvram_volatile: true,
                alloc_mode: expected.alloc_mode,
                in_place: expected.in_place,
                dir_fsync: expected.dir_fsync,
                cross_file_deltas: Some(true),
                inline_threshold: expected.inline_threshold,
                delta: Some(DeltaMode::Full),
                loss: LossBounds {
                    fsyncs: expected.loss.fsyncs,
                    holdup: expected.loss.holdup,
                    ..LossBounds::default()
                },
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
        assert_eq!(parsed("in_place=force").in_place, Some(InPlace::FORCE));
        assert_eq!(parsed("in_place=off").in_place, Some(InPlace::empty()));
        assert_eq!(parsed("ipu_policy=18").in_place, parsed("in_place=ssr+fsync").in_place);
        assert_eq!(parsed("ipu_policy=0").in_place, Some(InPlace::empty()));
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
        assert_eq!(parsed("noatime,atime").atime, Atime::Relatime);
        assert_eq!(parsed("strictatime,nostrictatime").atime, Atime::Relatime);
        assert!(!parsed("ro,rw").read_only);
    }

    #[test]
    fn a_wrong_option_is_named_with_what_is_accepted() {
        for (options, told) in [
            ("noatime,frobnicate=3", "unknown option 'frobnicate': "),
            ("delat=full", "unknown option 'delat', did you mean 'delta'?"),
            ("nodelta", "unknown option 'nodelta', did you mean 'delta'?"),
            ("fsync_mode=fast", "invalid value 'fast' for fsync_mode: expected strict|posix|nobarrier"),
            ("alloc_mode=", "invalid value '' for alloc_mode: expected default|reuse"),
            ("background_gc=fast", "expected on|off|sync"),
            ("active_logs=4", "invalid value '4' for active_logs: expected 6"),
            (
                "in_place=often",
                "expected off|POLICY[+...], POLICY is one of force, ssr, util, ssr_util, fsync, async",
            ),
            (
                "ipu_policy=256",
                "invalid value '256' for ipu_policy: expected N, the sum of the kernel's bits, up to 255",
            ),
            ("min_ipu_util=101", "a number up to 100"),
            ("max_fragment_hole=0", "a number from 1 to 512"),
            ("mode=lfs", "mode=lfs is not supported"),
            ("mode=fragment", "expected adaptive|fragment:segment|fragment:block"),
            ("cache=lots", "expected SIZE, a number of bytes, or one with K, M or G, at least 1M"),
            ("cache=4K", "at least 1M"),
            ("cache=99999999999999999999G", "expected SIZE"),
            ("cache=18014398509481985K", "expected SIZE"),
            ("cache=+64M", "expected SIZE"),
            ("commit=0", "for commit: expected TIME"),
            ("commit=-1", "expected TIME"),
            ("commit=2000000", "up to a day"),
            ("hot_window=0", "for hot_window: expected TIME"),
            ("idle=soon", "for idle: expected TIME"),
            ("restore=yes", "for restore: expected on|off"),
            ("discard=1", "for discard: expected on|off"),
            ("inline_threshold=63", "from 64 to 512"),
            ("inline_threshold=513", "from 64 to 512"),
            ("inline_threshold=1K", "for inline_threshold: expected BYTES"),
            ("compact_threshold=+3", "for compact_threshold: expected N"),
            ("compact_pages=1019", "for compact_pages: expected N"),
            ("cache", "cache needs a value: expected cache=SIZE"),
            ("ro=1", "ro takes no value"),
            ("noacl=on", "noacl takes no value"),
            ("norecovery", "norecovery needs ro"),
        ] {
            let message = refused(options);
            assert!(message.contains(told), "{options}: {message}");
            assert_eq!(message.lines().count(), 1);
        }
        for unknown in ["nocache", "nodefaults", "fault_injection=7", "nono_heap", "nonoacl", "noro"] {
            assert!(refused(unknown).starts_with("unknown option"), "{unknown}");
        }
    }

    /// Values of an option that its form lists.
    fn listed(option: &Described) -> Vec<String> {
        let Form::Value(values) = option.form else { return Vec::new() };
        let lower = |text: &str| !text.contains(|c: char| c.is_ascii_uppercase() || "[]".contains(c));
        values
            .split('|')
            .filter(|value| lower(value))
            .map(|value| format!("{}={value}", option.name))
            .collect()
    }

    #[test]
    fn every_row_takes_what_its_text_says_and_shows_what_it_took() {
        let mut seen = std::collections::BTreeSet::new();
        for option in described() {
            assert!(seen.insert(option.name), "{} is there twice", option.name);
            assert!(option.help.ends_with('.') && !option.help.contains("  "), "{}", option.name);
            let mut given = listed(&option);
            match option.form {
                Form::Word => given.push(option.name.into()),
                Form::Switch => {
                    let name = option.name;
                    given.extend([
                        name.to_owned(),
                        format!("no{name}"),
                        format!("{name}=on"),
                        format!("{name}=off"),
                    ]);
                }
                Form::Value(_) => assert!(refused(option.name).contains("needs a value")),
            }
            for given in given {
                let given = if given == "norecovery" { "ro,norecovery".into() } else { given };
                let all = parsed(&given);
                let shown = all.in_force().join(",");
                assert_eq!(parsed(&shown), all, "{given}: {shown}");
            }
        }
        assert!(seen.len() > 40);
    }

    #[test]
    fn the_defaults_are_those_that_are_told() {
        let shown = MountOptions::default().in_force();
        for option in described() {
            let told = match (option.form, option.default) {
                (Form::Switch, "on") => option.name.to_owned(),
                (Form::Switch, "off") => format!("no{}", option.name),
                (Form::Value(_), default) if !default.is_empty() && !default.contains(' ') => {
                    format!("{}={default}", option.name)
                }
                _ => continue,
            };
            assert!(shown.contains(&told), "{told}: {shown:?}");
        }
    }

    #[test]
    fn what_was_taken_is_shown_as_it_would_be_given() {
        let given = "ro,noatime,sync,dirsync,disable_roll_forward,cache=3M,commit=250ms,fsync_mode=posix,dir_fsync=checkpoint,\
                     alloc_mode=reuse,in_place=ssr+fsync,min_fsync_blocks=4,mode=fragment:segment,nodiscard,background_gc=off,victim=greedy,noinline_data,noacl,delta=inline,\
                     inline_threshold=512,compact_threshold=3,compact_files=all,nocross_file_deltas,hot_window=90s,compress=zstd:7,\
                     compress_log_size=4,compress_chksum,compress_mode=user,compress_extension=txt,compress_extension=so,\
                     nocompress_extension=zip";
        let shown = parsed(given).in_force();
        for option in given.split(',') {
            assert!(shown.iter().any(|s| s == option), "{option}: {shown:?}");
        }
        assert_eq!(parsed(&shown.join(",")), parsed(given));
    }

    #[test]
    fn norecovery_and_ro_in_any_order() {
        assert_eq!(parsed("norecovery,ro").recover, Recover::Nothing);
        assert_eq!(parsed("disable_roll_forward").recover, Recover::Nothing);
    }

    proptest! {
        #[test]
        fn any_text_parses_or_fails(text in ".{0,60}", name in "cache|commit|in_place", value in "[0-9a-zA-Z:+-]{0,24}") {
            let _ = MountOptions::default().parse(&text);
            let _ = MountOptions::default().parse(&format!("{name}={value}"));
        }
    }
}
