//! `medfs flash replay`: a trace on one device, or on new ones of several methods side by side.

use super::args::ReplayArgs;
use super::{STEPS, on_device, options};
use crate::progress;
use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use medfs_flash::replay::{ReplayOptions, Replayed, age, replay};
use medfs_flash::synth::Mix;
use medfs_flash::trace::{Format, Trace};
use medfs_flash::{Described, Device, DeviceCodec, PageCodec, Stats, stats_of};
use serde::Serialize;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};

/// What a replay came to.
#[derive(Debug, Serialize)]
struct Outcome {
    ftl: String,
    replayed: Replayed,
    write_amplification: f64,
    stats: Stats,
}

pub(super) fn run(args: &ReplayArgs) -> Result<()> {
    let content = ReplayOptions {
        mix: Mix::parse(&args.content.mix)?,
        seed: args.content.content_seed,
        wrap: args.wrap,
    };
    let format = args.format.as_deref().map(Format::find).transpose()?;
    // Standard input is read once and may be replayed many times.
    let piped = if args.trace.as_os_str() == "-" { Some(piped()?) } else { None };
    let mut outcomes = Vec::new();
    if let Some(path) = &args.device {
        let (header, ..) = stats_of(path)?;
        let outcome = on_device!(path, |device| {
            device.reset_stats();
            several(args, format, piped.as_deref(), device, &content, &header.ftl)?
        });
        outcomes.push(outcome);
    } else {
        for ftl in &args.ftl {
            let mut device = Device::<Described>::in_memory(&options(&args.making, ftl)?)?;
            let bar = progress::share("ageing", STEPS);
            let mut tell = |part: f64| bar.set_position((part * STEPS as f64) as u64);
            age(&mut device, content.mix, (args.fill.min(100.0) / 100.0, 0.0), content.seed, &mut tell)?;
            bar.finish_and_clear();
            outcomes.push(several(args, format, piped.as_deref(), &mut device, &content, ftl)?);
        }
    }
    if args.json {
        crate::json::print(&outcomes)?;
    } else {
        print(&outcomes);
    }
    Ok(())
}

fn piped() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(4 << 30).read_to_end(&mut bytes).context("cannot read standard input")?;
    Ok(bytes)
}

fn several<C: DeviceCodec + medfs_flash::replay::Replayable>(
    args: &ReplayArgs,
    format: Option<Format>,
    piped: Option<&[u8]>,
    device: &mut Device<C>,
    content: &ReplayOptions,
    ftl: &str,
) -> Result<Outcome> {
    let name = args.trace.display().to_string();
    let mut sum = Replayed::default();
    for _ in 0..args.repeat {
        let input: Box<dyn BufRead + '_> = match piped {
            Some(bytes) => Box::new(Cursor::new(bytes)),
            None => Box::new(BufReader::new(
                File::open(&args.trace).with_context(|| format!("cannot open {name}"))?,
            )),
        };
        let (format, input) = told(format, input, &name)?;
        let bar = progress::unknown(&format!("replaying on {ftl}"));
        let trace = Trace::new(input, &name, format);
        let done = replay(device, &name, trace, content, &mut |count| bar.set_position(count))?;
        bar.finish_and_clear();
        if done.requests == 0 {
            bail!("{name} holds no requests");
        }
        sum.requests += done.requests;
        sum.written += done.written;
        sum.read += done.read;
        sum.told += done.told;
        sum.wrapped += done.wrapped;
    }
    let stats = device.stats();
    let page_bytes = device.header().profile.geometry.page_bytes;
    Ok(Outcome {
        ftl: ftl.to_owned(),
        replayed: sum,
        write_amplification: stats.write_amplification(page_bytes),
        stats,
    })
}

/// The form of a trace, asked for or told by its first line, which is not lost.
fn told<'a>(
    format: Option<Format>,
    mut input: Box<dyn BufRead + 'a>,
    name: &str,
) -> Result<(Format, Box<dyn BufRead + 'a>)> {
    if let Some(format) = format {
        return Ok((format, input));
    }
    let first = input.fill_buf().with_context(|| format!("cannot read {name}"))?;
    let line = first.split(|b| *b == b'\n').next().unwrap_or_default();
    match Format::guess(&String::from_utf8_lossy(line)) {
        Some(format) => Ok((format, input)),
        None => bail!("{name}: unknown format; give it with --format blkparse, msr, fio or csv"),
    }
}

fn print(outcomes: &[Outcome]) {
    if let Some(first) = outcomes.first() {
        let r = &first.replayed;
        outln!(
            "{} requests: {} pages written ({} with known ratios), {} read, {} requests wrapped\n",
            r.requests,
            r.written,
            r.told,
            r.read,
            r.wrapped
        );
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["ftl", "erases", "WA", "compressed", "write us", "99 %", "read us", "worst us"]);
    for o in outcomes {
        let (w, r) = (o.stats.latency.write.summary(), o.stats.latency.read.summary());
        table.add_row([
            o.ftl.clone(),
            o.stats.ftl.erases.to_string(),
            format!("{:.3}", o.write_amplification),
            (o.stats.ftl.compressed_host + o.stats.ftl.compressed_collected).to_string(),
            format!("{:.0}", w.mean_us),
            format!("{:.0}", w.p99_us),
            format!("{:.0}", r.mean_us),
            format!("{:.0}", w.worst_us.max(r.worst_us)),
        ]);
    }
    for column in 1..8 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    outln!("{}", table.trim_fmt());
}
