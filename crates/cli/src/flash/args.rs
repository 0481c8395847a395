//! `medfs flash`: its commands and options.

use clap::{Args, Subcommand, ValueHint};
use medfs_flash::experiments::SCALES;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct FlashArgs {
    #[command(subcommand)]
    pub(crate) command: FlashCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum FlashCommand {
    /// Create a flash device in a file
    Create(CreateArgs),
    /// List the device profiles, or print one as TOML to derive another from
    Profiles(ProfilesArgs),
    /// Show the statistics of a device: writes, amplification, erases, latencies, remaining life
    Stat(DeviceArgs),
    /// Draw the wear and the valid pages of all blocks as SVG
    Map(MapArgs),
    /// Age a device: fill it, and overwrite random pages
    Age(AgeArgs),
    /// Check a device's map against its pages
    Check(DeviceArgs),
    /// Replay a block trace on a device, or on a new one in memory for each of several methods
    Replay(ReplayArgs),
    /// Print the figures of "Lightweight Data Compression for Mobile Flash Storage" (LDC); 'medfs lab run
    /// ldc-fig8' keeps them
    Experiment(ExperimentArgs),
}

/// What a new device is made of.
#[derive(Args, Debug, Clone)]
pub(crate) struct Making {
    /// Kind of device: emmc, ufs31, sdcard, qlc, or the path of a TOML file
    #[arg(long, value_name = "NAME|TOML", default_value = "emmc")]
    pub(crate) profile: String,
    /// Compressor: lzo, lz4 or zstd
    #[arg(long, value_name = "NAME", default_value = "lzo")]
    pub(crate) codec: String,
    /// Size that the host sees [default: the profile's]
    #[arg(long, value_parser = crate::size::parse)]
    pub(crate) size: Option<u64>,
    /// Seed for the differences between devices, such as bad blocks
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// File to create
    #[arg(value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    pub(crate) device: PathBuf,
    #[command(flatten)]
    pub(crate) making: Making,
    /// Translation layer: pm, zftl, sc, ldc, opt or ldc-hc
    #[arg(long, value_name = "NAME", default_value = "ldc")]
    pub(crate) ftl: String,
    /// Keep no content: for traces of many gigabytes; the device holds no files
    #[arg(long)]
    pub(crate) no_content: bool,
    /// Replace the flash device that the file holds
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ProfilesArgs {
    /// Kind of device to print as TOML
    pub(crate) name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DeviceArgs {
    /// File of the device
    #[arg(value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    pub(crate) device: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct MapArgs {
    /// File of the device
    #[arg(value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    pub(crate) device: PathBuf,
    /// SVG to write; '-' is standard output
    #[arg(short, long, alias = "out", value_name = "FILE", default_value = "-", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
}

/// Content where none is known.
#[derive(Args, Debug, Clone)]
pub(crate) struct Content {
    /// Compressibility of pages with unknown content: shares of high (ratio below 0.25), medium (0.65), low
    /// (0.95) and minimal
    /// compressibility
    #[arg(
        long,
        value_name = "CLASS=SHARE,...",
        default_value = "high=0.05,medium=0.075,low=0.275,minimal=0.6"
    )]
    pub(crate) mix: String,
    /// Seed of the unknown content
    #[arg(long, default_value_t = 1)]
    pub(crate) content_seed: u64,
}

#[derive(Args, Debug)]
pub(crate) struct AgeArgs {
    /// File of the device
    #[arg(value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    pub(crate) device: PathBuf,
    /// Part of the device to fill, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0, value_parser = percent)]
    pub(crate) fill: f64,
    /// Share of the filled pages to overwrite afterwards at random, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub(crate) overwrite: f64,
    #[command(flatten)]
    pub(crate) content: Content,
}

#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// Trace: text of blkparse, MSR Cambridge's CSV, a log of fio, or a CSV with
    /// 'time_us,op,offset,bytes,entropy,ratio'; '-' is standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,
    /// Format of the trace: blkparse, msr, fio or csv [default: guessed from its first line]
    #[arg(long)]
    pub(crate) format: Option<String>,
    /// Device to replay on [default: a new one in memory]
    #[arg(long, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    pub(crate) device: Option<PathBuf>,
    /// Translation layers to compare, each on a new device: any of pm, zftl, sc, ldc, opt, ldc-hc
    #[arg(
        long,
        value_name = "NAME,...",
        default_value = "pm,ldc",
        value_delimiter = ',',
        conflicts_with = "device"
    )]
    pub(crate) ftl: Vec<String>,
    #[command(flatten)]
    pub(crate) making: Making,
    #[command(flatten)]
    pub(crate) content: Content,
    /// Part of a new device to fill before the replay, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0, value_parser = percent, conflicts_with = "device")]
    pub(crate) fill: f64,
    /// Number of times to replay the trace
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) repeat: u32,
    /// Wrap requests beyond the device's end to its beginning
    #[arg(long)]
    pub(crate) wrap: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ExperimentArgs {
    /// ldc-fig2, ldc-fig3, ldc-fig5, ldc-fig8, ldc-fig9, ldc-fig10, ldc-beyond, or all [default: a list of
    /// them]
    pub(crate) name: Option<String>,
    /// Part of the paper's 16 GB device and its workloads
    #[arg(long, default_value_t = 0.125, value_parser = scale)]
    pub(crate) scale: f64,
    /// Seed for all random choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Files and directories whose pages are sampled [default: this system's programs, libraries, texts and
    /// databases]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let value = text.trim_end_matches('%').parse().ok().filter(|v| (0.0..=10_000.0).contains(v));
    value.ok_or_else(|| format!("'{text}' is not a percentage: expected a number such as 80"))
}

fn scale(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|v| SCALES.contains(v));
    let (least, most) = (SCALES.start(), SCALES.end());
    value.ok_or_else(|| format!("'{text}' is not a scale: expected a number from {least} to {most}"))
}
