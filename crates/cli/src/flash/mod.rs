//! `medfs flash`: flash devices, made, aged, looked at, and traces and experiments on them.

pub(crate) mod args;
mod experiment;
mod replay;
mod report;

use crate::{exit, json, progress, size, undo, words};
use anyhow::{Context, Result, bail};
use args::{AgeArgs, CreateArgs, DeviceArgs, FlashArgs, FlashCommand, Making, MapArgs, ProfilesArgs};
use medfs_flash::synth::Mix;
use medfs_flash::{Described, Device, DeviceOptions, PageCodec, Profile, stats_of};
use std::fs::{File, TryLockError};
use std::path::Path;

/// Steps of a progress bar.
const STEPS: u64 = 1000;

/// `medfs flash`
pub(crate) fn run(args: &FlashArgs) -> Result<u8> {
    match &args.command {
        FlashCommand::Create(a) => create(a),
        FlashCommand::Profiles(a) => profiles(a),
        FlashCommand::Stat(a) => stat(a),
        FlashCommand::Map(a) => map(a),
        FlashCommand::Age(a) => age(a),
        FlashCommand::Check(a) => check(a),
        FlashCommand::Replay(a) => replay::run(a),
        FlashCommand::Experiment(a) => experiment::run(a),
    }?;
    Ok(exit::SUCCESS)
}

fn options(making: &Making, ftl: &str) -> Result<DeviceOptions> {
    Ok(DeviceOptions {
        profile: Profile::find(&making.profile)?,
        ftl: ftl.to_owned(),
        codec: making.codec.clone(),
        capacity: making.size,
        seed: making.seed,
    })
}

fn create(args: &CreateArgs) -> Result<()> {
    let options = options(&args.making, &args.ftl)?;
    if args.force && args.device.exists() {
        stats_of(&args.device).context("--force replaces a flash device, and nothing else")?;
        if is_in_use(&args.device) {
            bail!("{} is in use", args.device.display());
        }
        std::fs::remove_file(&args.device)
            .with_context(|| format!("cannot replace {}", args.device.display()))?;
    }
    if args.no_content {
        Device::<Described>::create(&args.device, &options)?.close()?;
    } else {
        Device::<PageCodec>::create(&args.device, &options)?.close()?;
    }
    let (header, ..) = stats_of(&args.device)?;
    outln!(
        "{}: {} device of {}, {} blocks, {} with {}",
        args.device.display(),
        header.profile.name,
        size::show(u64::from(header.logical_pages) * 4096),
        header.blocks,
        header.ftl,
        header.codec
    );
    Ok(())
}

fn profiles(args: &ProfilesArgs) -> Result<()> {
    if let Some(name) = &args.name {
        let profile = Profile::find(name)?;
        if args.json {
            return json::print(&profile);
        }
        let text = toml::to_string(&profile).context("cannot write the profile")?;
        outln!("{}", text.trim_end());
        return Ok(());
    }
    let all = Profile::built_in();
    if args.json {
        return json::print(&all);
    }
    for profile in all {
        outln!("{}", words::filled(&profile.description, &format!("{:8} ", profile.name)));
    }
    Ok(())
}

fn stat(args: &DeviceArgs) -> Result<()> {
    let (header, stats, wear) = stats_of(&args.device)?;
    let report = report::Report::of(&header, &stats, &wear);
    if args.json {
        json::print(&report)?;
    } else {
        outln!("{}", report.text(&args.device).trim_end());
        let killed = match (stats.open, is_in_use(&args.device)) {
            (_, true) => {
                outln!("\n  in use: the numbers are as of the device's last save");
                stats.killed
            }
            (open, false) => stats.killed + u64::from(open),
        };
        if killed > 0 {
            let programs = words::count(killed, "program");
            outln!("\n  {programs} killed: the numbers omit all work after the device's last save");
        }
    }
    Ok(())
}

/// Whether a program holds the device.
fn is_in_use(device: &Path) -> bool {
    let locked = File::open(device).map(|file| file.try_lock_shared());
    matches!(locked, Ok(Err(TryLockError::WouldBlock)))
}

/// Opens a device with content or without, whichever it is, and works on it.
macro_rules! on_device {
    ($path:expr, |$device:ident| $work:expr) => {{
        let (header, ..) = stats_of($path)?;
        if header.content {
            let mut opened = Device::<PageCodec>::open($path, None)?;
            let $device = &mut opened;
            let done = $work;
            opened.close()?;
            done
        } else {
            let mut opened = Device::<Described>::open($path, None)?;
            let $device = &mut opened;
            let done = $work;
            opened.close()?;
            done
        }
    }};
}
pub(crate) use on_device;

fn map(args: &MapArgs) -> Result<()> {
    let (header, stats, wear) = stats_of(&args.device)?;
    // The NAND counts erases from its first day on, the translation layer from its format.
    let mut blocks: Vec<_> = on_device!(&args.device, |device| { device.ftl().blocks().collect() });
    for (block, (erases, _)) in blocks.iter_mut().zip(&wear) {
        block.erases = *erases;
    }
    let report = report::Report::of(&header, &stats, &wear);
    let name = args.device.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let title = format!(
        "{name}: {} device of {}, {}",
        header.profile.name,
        size::show(report.size_bytes),
        header.ftl
    );
    let picture = medfs_flash::map::Picture {
        title: &title,
        lines: &report.lines(),
        block_bytes: header.profile.geometry(header.blocks).block_bytes(),
        pe_cycles: header.profile.endurance.pe_cycles,
        blocks: &blocks,
    };
    let svg = medfs_flash::map::draw(&picture);
    if args.output == Path::new("-") {
        outln!("{}", svg.trim_end());
        return Ok(());
    }
    std::fs::write(&args.output, svg).with_context(|| format!("cannot write {}", args.output.display()))
}

fn age(args: &AgeArgs) -> Result<()> {
    let mix = Mix::parse(&args.content.mix)?;
    if args.fill > 100.0 {
        bail!("cannot fill a device to {} %: the maximum is 100 %", args.fill);
    }
    let parts = (args.fill / 100.0, args.overwrite / 100.0);
    let seed = args.content.content_seed;
    let bar = progress::share("ageing", STEPS);
    let mut tell = |part: f64| bar.set_position((part * STEPS as f64) as u64);
    undo::if_ended("flash", format_args!("{} is as of its last save", args.device.display()));
    let report: (u64, u32) = on_device!(&args.device, |device| {
        medfs_flash::replay::age(device, mix, parts, seed, &mut tell)?;
        (device.ftl().nand().counts().erases, device.ftl().free_blocks())
    });
    bar.finish_and_clear();
    outln!(
        "{}: filled to {} %; {} erases, {} blocks free",
        args.device.display(),
        args.fill,
        report.0,
        report.1
    );
    Ok(())
}

fn check(args: &DeviceArgs) -> Result<()> {
    let name = args.device.display().to_string();
    let checked = on_device!(&args.device, |device| device
        .ftl_mut()
        .check()
        .map_err(|e| medfs_flash::FlashError::Ftl(name.clone(), e))?);
    if args.json {
        let value = serde_json::json!({
            "mapped": checked.mapped, "compressed": checked.compressed, "across": checked.across,
            "damaged": checked.damaged
        });
        json::print(&value)?;
    } else {
        outln!(
            "{name}: map and pages agree; {} pages in use, {} of them compressed, {} spanning two flash pages",
            checked.mapped,
            checked.compressed,
            checked.across
        );
    }
    match checked.first_damaged {
        Some(page) => bail!(
            "{name}: {} flash page{} with a wrong checksum, the first is number {page}",
            checked.damaged,
            if checked.damaged == 1 { "" } else { "s" }
        ),
        None => Ok(()),
    }
}
