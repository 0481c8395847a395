//! The command line: every command, argument and option with its help.

use crate::flash::args::FlashArgs;
use crate::get::args::GetArgs;
use crate::lifetime::Card;
use clap::{Args, Parser, Subcommand, ValueHint};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
'medfs COMMAND --help' describes a command; -h is its short form, but for ls.
'medfs help damaged' says what to do about a damaged card, 'medfs help findings'
what the findings of 'medfs fsck' mean.";

/// F2FS in user space: makes, mounts, checks, inspects and fills F2FS volumes without the kernel's driver.
#[derive(Parser, Debug)]
#[command(name = "medfs", version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Make a volume, empty or filled from a directory or tar archive
    Mkfs(MkfsArgs),
    /// Mount a volume through FUSE
    #[command(after_help = crate::options::short_help(), after_long_help = crate::options::help())]
    Mount(MountArgs),
    /// Unmount a volume, and wait until its last checkpoint is on the device
    Umount(UmountArgs),
    /// Check a volume, and repair it with --repair
    #[command(after_long_help = crate::fsck::HELP)]
    Fsck(crate::fsck_args::FsckArgs),
    /// Convert plain F2FS into a volume with deltas, in place
    #[command(after_long_help = crate::convert::IMPORT_HELP)]
    Import(ImportArgs),
    /// Convert a volume with deltas into plain F2FS, which the kernel can mount, in place
    Export(ConvertArgs),
    /// Show the structures of a volume
    Dump(DumpArgs),
    /// Copy files out of a volume that is not mounted
    Get(GetArgs),
    /// Copy files into a volume that is not mounted
    Put(PutArgs),
    /// List files of a volume that is not mounted
    Ls(LsArgs),
    /// Show the state of a volume and, if it is mounted, what it has written
    #[command(after_long_help = STAT_HELP)]
    Stat(StatArgs),
    /// Print the type, UUID and label of the volume on a device, for udev and scripts; exits with 2 without one
    Probe(ProbeArgs),
    /// Write all changes of a mounted volume to its device
    Sync(crate::all_mounts::SyncArgs),
    /// Tell a mounted volume that power may fail, or is back
    Power(crate::power::PowerArgs),
    /// Tell a mounted volume that its user did something, so that commits wait for a pause of the user
    Input(crate::input::InputArgs),
    /// Say whether the fsyncs of files of a mounted volume may be put off, and of what is made in folders
    Durability(crate::durability::DurabilityArgs),
    /// Record what applications do to their files; import, inspect and export such traces
    Trace(crate::trace::args::TraceArgs),
    /// Replay a trace on combinations of mount options and on other file systems, and verify the result
    Replay(crate::replay::args::ReplayArgs),
    /// Train, show and load the decision tree that selects the files with sections of their own
    Ars(crate::ars::args::ArsArgs),
    /// Prepare, inspect and check an NVRAM that absorbs the fsyncs of a volume
    Nvram(crate::nvram::args::NvramArgs),
    /// Run SQLite on a new volume, kill the daemon, recover, and show what was written
    Demo(DemoArgs),
    /// Simulate a flash device in a file: NAND with a translation layer
    Flash(FlashArgs),
    /// Run the papers' experiments and compare the results with theirs
    #[command(subcommand)]
    Lab(LabCommand),
    /// Make a web page or a table from a directory of results
    Report(ReportArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Write the manual pages into a directory
    Man(ManArgs),
}

#[derive(Args, Debug)]
pub(crate) struct MkfsArgs {
    /// Image file or block device
    #[arg(value_name = "IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: PathBuf,
    /// Make a plain F2FS volume, which the kernel can mount too, instead of one with deltas
    #[arg(long)]
    pub(crate) plain: bool,
    /// Size of the image file, which is created if it is missing: a number with K, M, G or T (powers of 1024)
    #[arg(long, value_parser = crate::size::parse)]
    pub(crate) size: Option<u64>,
    /// Volume label
    #[arg(short, long, short_alias = 'L', default_value = "", hide_default_value = true)]
    pub(crate) label: String,
    /// Features: any of extra_attr, project_quota, inode_checksum, flexible_inline_xattr, quota, inode_crtime,
    /// lost_found, sb_checksum, compression; 'default' for the defaults, ^NAME to omit one, 'none' for none
    /// [default: extra_attr, flexible_inline_xattr, inode_checksum, sb_checksum, inode_crtime, lost_found]
    #[arg(short = 'O', long, value_name = "FEATURE,...")]
    pub(crate) features: Option<String>,
    /// Copy the content of a directory or tar archive into the volume ('-' reads an archive from standard
    /// input)
    #[arg(long, value_name = "DIR|TAR", value_hint = ValueHint::AnyPath)]
    pub(crate) from: Option<PathBuf>,
    /// Segments (2 MiB) per section: match the erase unit of the flash device
    #[arg(short = 's', long, value_name = "N", default_value_t = 1)]
    pub(crate) segs_per_sec: u32,
    /// Sections per zone
    #[arg(short = 'z', long, value_name = "N", default_value_t = 1)]
    pub(crate) secs_per_zone: u32,
    /// Over-provisioning in per cent [default: the value that leaves the most space]
    #[arg(short = 'o', long, value_name = "PERCENT")]
    pub(crate) overprovision: Option<f64>,
    /// UUID of the volume [default: random]
    #[arg(short = 'U', long, value_parser = parse_uuid)]
    pub(crate) uuid: Option<uuid::Uuid>,
    /// Timestamp of the first inodes, in seconds since 1970 [default: now, or $SOURCE_DATE_EPOCH]
    #[arg(short = 'T', long, value_name = "SECONDS")]
    pub(crate) timestamp: Option<i64>,
    /// Owner of the root directory; an omitted GID equals UID [default: the user who makes the volume]
    #[arg(short = 'R', long, value_name = "UID[:GID]", value_parser = crate::size::parse_owner)]
    pub(crate) root_owner: Option<(u32, u32)>,
    /// Overwrite any content of the image or device
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Do not discard the device first
    #[arg(long)]
    pub(crate) nodiscard: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print what was made as JSON
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json: bool,
}

fn parse_uuid(text: &str) -> Result<uuid::Uuid, String> {
    let example = "such as 01234567-89ab-cdef-0123-456789abcdef";
    text.parse().map_err(|_| format!("not a UUID: expected 32 hexadecimal digits, {example}"))
}

#[derive(Args, Debug, Clone)]
pub(crate) struct MountArgs {
    /// Image file or block device
    #[arg(value_name = "IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: PathBuf,
    /// Directory to mount on
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Mount options, separated by commas: 'medfs mount --help' and medfs(5) list them
    #[arg(short = 'o', long = "options", value_name = "OPTION,...")]
    pub(crate) options: Vec<String>,
    /// Mount read-only, as -o ro does
    #[arg(short, long, alias = "ro", alias = "readonly")]
    pub(crate) read_only: bool,
    /// Stay in the foreground until the volume is unmounted
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Append the daemon's messages to this file [default: the system's log]
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    pub(crate) log: Option<PathBuf>,
    /// This process is the daemon
    #[arg(long, hide = true)]
    pub(crate) daemon: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum LabCommand {
    /// List the experiments, the workloads, and the programs that can be driven
    List(LabListArgs),
    /// Run an experiment and write its result files
    Run(LabRunArgs),
    /// Run a workload, or drive a program, in a directory of any file system
    Work(LabWorkArgs),
}

/// Where results go, and a report comes from, unless another directory is named.
pub(crate) const LAB_OUT: &str = "medfs-lab";

#[derive(Args, Debug)]
pub(crate) struct LabListArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LabRunArgs {
    /// Experiments (see `medfs lab list`), or 'all'
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Directory for the result files, created if missing [default: medfs-lab]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Seed for all random choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Part of the full size, above 0 and at most 1 [default: the experiment's]
    #[arg(long, value_name = "PART")]
    pub(crate) scale: Option<f64>,
    /// Files and directories whose pages LDC's experiments sample; may be given several times [default: this
    /// system's programs, libraries, texts and databases]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) files: Vec<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LabWorkArgs {
    /// A workload or program (see `medfs lab list`)
    pub(crate) name: String,
    /// An empty directory to work in
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Seed for all random choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Part of the full size, above 0 and at most 1
    #[arg(long, value_name = "PART", default_value_t = 0.05)]
    pub(crate) scale: f64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `medfs report` exits with.
const REPORT_HELP: &str = "\
Result files that cannot be read or have another version are named on standard
error and on the page. The exit code is 0 if all results are shown, otherwise 1.";

#[derive(Args, Debug)]
#[command(after_long_help = REPORT_HELP)]
pub(crate) struct ReportArgs {
    /// Directory with result files
    #[arg(value_hint = ValueHint::DirPath, default_value = LAB_OUT)]
    pub(crate) dir: PathBuf,
    /// File to write; '-' is standard output [default: report.html in the directory; standard output for the
    /// other formats]
    #[arg(short, long, alias = "out", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Format
    #[arg(long, value_enum, default_value_t = ReportFormat::Html)]
    pub(crate) format: ReportFormat,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportFormat {
    /// One page that opens offline
    Html,
    /// Markdown
    Md,
    /// One JSON document
    Json,
    /// The comparison as comma-separated values
    Csv,
    /// The comparison as Parquet, in builds with the feature
    Parquet,
}

#[derive(Args, Debug)]
#[command(after_long_help = crate::umount::HELP)]
pub(crate) struct UmountArgs {
    /// Directory that the volume is mounted on, or its image file or block device
    #[arg(value_name = "DIR|IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) target: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// Image file or block device, not mounted
    #[arg(value_name = "IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: PathBuf,
    /// Copy databases of more than 3.4 MiB inside the volume, so that they take deltas: *.db, *.sqlite,
    /// *.sqlite3, *.db3
    #[arg(long)]
    pub(crate) databases: bool,
    /// Report what the import would do and whether its space suffices; change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ConvertArgs {
    /// Image file or block device, not mounted
    #[arg(value_name = "IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    /// Image file or block device
    #[arg(value_name = "IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: PathBuf,
    /// Print JSON; of a table one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) what: Option<DumpWhat>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum DumpWhat {
    /// The superblock (the default)
    Super,
    /// The newest checkpoint
    Checkpoint,
    /// The node address table: one entry, or all that are in use
    Nat {
        /// Node id
        nid: Option<u32>,
    },
    /// The segment information table: one segment, or all that hold valid blocks
    Sit {
        /// Segment number
        segno: Option<u32>,
    },
    /// An inode by its number
    Inode {
        /// Inode number
        number: u32,
    },
    /// The inode of a path
    Path {
        /// Path inside the volume
        path: String,
    },
}

#[derive(Args, Debug)]
#[command(after_long_help = crate::put::HELP, override_usage = crate::put::USAGE)]
pub(crate) struct PutArgs {
    /// Copy directories with their content
    #[arg(short, long, short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Image file or block device
    #[arg(value_name = "IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: PathBuf,
    /// Files to copy, then where to: a directory inside the volume or a new name
    #[arg(value_name = "FILE", num_args = 1.., required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct LsArgs {
    /// Also show mode, links, owner, size and time
    #[arg(short, long)]
    pub(crate) long: bool,
    /// With -l, show sizes as 1.5K, 12M (powers of 1024)
    #[arg(short, long)]
    pub(crate) human_readable: bool,
    /// Accepted for compatibility with ls(1): all names are listed, each on a line
    #[arg(short, long, short_aliases = ['A', '1'], hide = true, overrides_with = "all")]
    pub(crate) all: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
    /// List subdirectories too
    #[arg(short = 'R', long, visible_short_alias = 'r')]
    pub(crate) recursive: bool,
    /// Print JSON, one object a line: sizes in bytes, blocks of 512 bytes, times in seconds since 1970
    #[arg(long)]
    pub(crate) json: bool,
    /// Skip the blocks that a map of ddrescue or `medfs get --map` calls bad, and note new bad ones there
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) map: Option<PathBuf>,
    /// Image file or block device
    #[arg(value_name = "IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: PathBuf,
    /// Path inside the volume
    #[arg(default_value = "/")]
    pub(crate) path: PathBuf,
}

#[derive(Args, Debug)]
#[command(override_usage = "medfs stat [OPTIONS] <DIR|IMAGE>\n       medfs stat [OPTIONS] --file <FILE>")]
pub(crate) struct StatArgs {
    /// Directory of a mounted volume, or an image file or block device that is not mounted
    #[arg(value_name = "DIR|IMAGE", value_hint = ValueHint::AnyPath)]
    pub(crate) target: PathBuf,
    /// Show one file or directory of a mounted volume: its extents, how it is read and written, and where its
    /// pages go
    #[arg(long)]
    pub(crate) file: bool,
    /// Print JSON: the counters, and under `derived` the figures computed from them
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) card: Card,
}

#[derive(Args, Debug)]
pub(crate) struct ProbeArgs {
    /// Image file or block device
    #[arg(value_name = "IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) device: PathBuf,
    /// Print the file system properties that udev stores
    #[arg(long, conflicts_with = "json")]
    pub(crate) udev: bool,
    /// Print the properties as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Transactions of each run
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) transactions: u32,
    /// Size of the volume
    #[arg(long, value_parser = crate::size::parse, default_value = "32G")]
    pub(crate) size: u64,
    /// Journal modes of the database, separated by commas
    #[arg(long, value_name = "MODE,...", value_delimiter = ',', default_value = "delete,wal", value_parser = ["delete", "truncate", "persist", "wal"])]
    pub(crate) journal: Vec<String>,
    /// Seed of the workload
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) card: Card,
    /// Transactions per day of the application
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub(crate) per_day: u64,
    /// Directory for the image; the demo creates it and leaves the image there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) keep: Option<PathBuf>,
    /// Call the library directly without a mount, even if FUSE is available
    #[arg(long)]
    pub(crate) no_mount: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The client's commits are durable before they return, in every journal mode
    #[arg(long, hide = true)]
    pub(crate) extra: bool,
    /// This process is the database client
    #[arg(long, hide = true, value_name = "DATABASE")]
    pub(crate) client: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell to write the script for
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory to write the pages to
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
}

/// What the numbers of a mounted volume mean.
const STAT_HELP: &str = "\
Of an image, the last checkpoint is shown, and nothing is checked (medfs fsck).

For a mounted volume, all counts are since the mount:

deltas compression ratio (DCR): the share of the pages' bytes that their deltas
save.

pages compressed alone: with the mount option compress=fpc, pages that are
compressed in place of deltas, up to five to a block. The bytes saved are the
difference between the pages of the files in memory and their compressed form.

evicted: deltas that became pages again. Case 1: the addresses of a growing
file needed the space. Case 2: a smaller delta took the space. Case 3 (outgrown):
the page changed too much to stay a delta.

zones filled: the used share of the delta zones of the inodes in memory.

found in memory: the share of lookups of inodes, clean pages and base pages that
needed no read from the device. The kernel's page cache answers most reads before
they reach the daemon.

files by calls (Hcluster): the daemon counts the reads and writes of each file in
a window (mount option hot_window, 60 s). When the volume is idle (mount option
idle, 5 s), it groups the files by K-means. It then restores files that are read
often but not written: their deltas become pages (mount option restore). The
counts begin anew at each mount.

lifetime: years = PEC x (1 + OP) / (365 x DWPD x WA x R), Eq. 1 of MedFS. DWPD is
how many times a day the card would be written full if every delta and every page
compressed alone had been written as a whole page. R is the share of those bytes
that was written. PEC, OP and WA describe the card and are assumptions:
--pe-cycles, --card-spare and --card-wa.

df shows more space in use than 'medfs stat IMAGE': df counts the metadata areas
and the space reserved for cleaning as used, and sets room for nodes aside.";
