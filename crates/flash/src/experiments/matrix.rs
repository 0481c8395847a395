//! Every workload on every method: the runs behind Fig. 8, 9 and 10.
//!
//! A run: a device of the paper's kind is filled with pages of the snapshots' distribution, uncompressed, as the paper initialises the ratios of
//! existing data; then the workload is replayed three times. The workload begins where the device has free what is over-provisioned.

use super::workload::{APPS, TOGETHER, requests};
use super::{Options, Progress, Row};
use crate::codecs::Described;
use crate::device::{Device, DeviceOptions, policy};
use crate::error::Result;
use crate::profile::Profile;
use crate::replay::{age, read};
use crate::stats::Stats;
use crate::synth::Mix;
use medfs_ftl::{Collect, Geometry, Hint, Policy};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Times each workload is replayed (section 6.1).
const REPLAYS: u64 = 3;
/// Nanoseconds between two replays.
const PAUSE: u64 = 1_000_000_000;
/// The workloads, the last one all together.
pub(crate) const WORKLOADS: [&str; 7] = ["FB", "TW", "ME", "GE", "CH", "CA", TOGETHER];

/// What a run comes to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    /// Pages compressed, for the host and by collection.
    pub compressed: f64,
    /// Of these by collection.
    pub collected: f64,
    /// Blocks erased.
    pub erases: f64,
    /// Seconds of moving pages.
    pub move_s: f64,
    /// Seconds of erasing.
    pub erase_s: f64,
    /// Mean write latency in microseconds.
    pub write_us: f64,
    /// Mean read latency in microseconds.
    pub read_us: f64,
    /// Worst latency in microseconds.
    pub worst_us: f64,
    /// Flash bytes written for each byte of the host's.
    pub amplification: f64,
}

/// A method that compresses nothing until it is told to: how a device is filled with uncompressed data of known ratios.
struct Armed {
    inner: Box<dyn Policy>,
    armed: Arc<AtomicBool>,
}

impl Policy for Armed {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn threshold(&self, pages: u32) -> Option<u8> {
        if self.armed.load(Ordering::Relaxed) { self.inner.threshold(pages) } else { None }
    }
    fn predicts(&self) -> bool {
        self.inner.predicts()
    }
    fn is_free(&self) -> bool {
        self.inner.is_free()
    }
    fn groups(&self) -> u8 {
        self.inner.groups()
    }
    fn group(&self, ratio: u8, hint: Hint, collected: bool) -> u8 {
        self.inner.group(ratio, hint, collected)
    }
    fn collect(&self, ratio: u8, compressed: bool) -> Collect {
        self.inner.collect(ratio, compressed)
    }
    fn occupies(&self, size: u16, ratio: u8, compressed: bool, geometry: &Geometry) -> u32 {
        self.inner.occupies(size, ratio, compressed, geometry)
    }
    fn score(&self, occupied: u32, plain: u32, ratios: u32) -> u32 {
        self.inner.score(occupied, plain, ratios)
    }
}

/// How a compressor differs from LZO: factors of its time and of the size that it makes, by class of compressibility.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Against {
    pub(crate) time: f64,
    pub(crate) size: [f64; 4],
}

impl Against {
    pub(crate) const LZO: Against = Against { time: 1.0, size: [1.0; 4] };
}

/// Runs a workload on a method.
///
/// # Errors
/// No such method or workload; the device's.
pub fn cell(workload: &str, ftl: &str, profile: &Profile, options: &Options) -> Result<Cell> {
    cell_with(workload, ftl, profile, options, (Against::LZO, Arrivals::AsRecorded))
}

/// When requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrivals {
    /// When the workload says, so that they wait for each other.
    AsRecorded,
    /// Not before the last one has ended: latencies are those of serving.
    Apart,
}

pub(crate) fn cell_with(
    workload: &str,
    ftl: &str,
    profile: &Profile,
    options: &Options,
    (against, arrivals): (Against, Arrivals),
) -> Result<Cell> {
    let mut profile = profile.clone();
    profile.controller.compress_us *= against.time;
    profile.controller.expand_us *= against.time;
    let capacity = (profile.capacity() as f64 * options.scale) as u64 / (1 << 20) * (1 << 20);
    let device_options = DeviceOptions {
        capacity: Some(capacity.max(32 << 20)),
        ftl: ftl.into(),
        ..DeviceOptions::new(profile.clone())
    };
    let armed = Arc::new(AtomicBool::new(false));
    let method = Armed { inner: policy(ftl, &profile)?, armed: armed.clone() };
    let mut device = Device::<Described>::in_memory_with(&device_options, Box::new(method))?;
    age(&mut device, Mix::SNAPSHOT, (1.0, 0.0), options.seed, &mut |_| ())?;
    armed.store(true, Ordering::Relaxed);
    let requests = requests(workload, device.logical_pages(), options.scale, options.seed);
    let empty: Vec<&[u8]> = vec![&[]; 512];
    for _ in 0..REPLAYS {
        let begin = device.now() + PAUSE;
        for request in &requests {
            let (mut at, count) = (begin + request.at, request.pages.len());
            if arrivals == Arrivals::Apart {
                at = at.max(device.now());
            }
            if !request.write {
                read(&mut device, at, request.page, count as u32)?;
                continue;
            }
            for (lpn, page) in (request.page..).zip(&request.pages) {
                let (predicted, size) = page.described();
                let factor = against.size[crate::synth::class_of(page.ratio)];
                let size = (f64::from(size) * factor).round().clamp(1.0, 4096.0) as u16;
                let predicted = (f64::from(predicted) * factor).round().min(200.0) as u8;
                device.ftl_mut().codec_mut().describe(lpn, predicted, size);
            }
            device.write(at, request.page, &empty[..count], Hint::Warm)?;
        }
    }
    Ok(outcome(&device.stats(), profile.geometry.page_bytes))
}

fn outcome(stats: &Stats, page_bytes: u32) -> Cell {
    let l = &stats.latency;
    Cell {
        compressed: (stats.ftl.compressed_host + stats.ftl.compressed_collected) as f64,
        collected: stats.ftl.compressed_collected as f64,
        erases: stats.ftl.erases as f64,
        move_s: stats.ftl.move_ns as f64 / 1e9,
        erase_s: stats.ftl.erase_ns as f64 / 1e9,
        write_us: l.write.mean() / 1e3,
        read_us: l.read.mean() / 1e3,
        worst_us: l.write.worst().max(l.read.worst()) as f64 / 1e3,
        amplification: stats.write_amplification(page_bytes),
    }
}

/// Cells of several methods on all workloads: by workload, then by method.
pub(crate) fn all(
    ftls: &[&str],
    arrivals: Arrivals,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Vec<Vec<Cell>>> {
    let profile = Profile::find("emmc")?;
    let total = (WORKLOADS.len() * ftls.len()) as f64;
    let mut done = 0.0;
    let mut cells = Vec::new();
    for workload in WORKLOADS {
        let mut row = Vec::new();
        for ftl in ftls {
            row.push(cell_with(workload, ftl, &profile, options, (Against::LZO, arrivals))?);
            done += 1.0;
            progress(done / total);
        }
        cells.push(row);
    }
    Ok(cells)
}

/// `ours` over `base` less one, in per cent; 0 where there is no base.
pub(crate) fn change(ours: f64, base: f64) -> f64 {
    if base == 0.0 { 0.0 } else { (ours / base - 1.0) * 100.0 }
}

/// Mean over the workloads of the change of a value from one method to another.
pub(crate) fn mean_change(cells: &[Vec<Cell>], from: usize, to: usize, of: impl Fn(&Cell) -> f64) -> f64 {
    let sum: f64 = cells.iter().map(|row| change(of(&row[to]), of(&row[from]))).sum();
    sum / cells.len() as f64
}

/// Fig. 8.
pub(crate) fn fig8(options: &Options, progress: Progress<'_>) -> Result<Vec<Row>> {
    let cells = all(&["pm", "zftl", "sc", "ldc"], Arrivals::AsRecorded, options, progress)?;
    let mut rows = Vec::new();
    for (name, row) in WORKLOADS.iter().zip(&cells) {
        for (method, at) in [("SC", 2), ("LDC", 3)] {
            let part = row[at].compressed / row[1].compressed.max(1.0) * 100.0;
            rows.push(Row::new(format!("(a) {name}: pages {method} compressed, of zFTL's"), None, part, "%"));
        }
    }
    let last = &cells[WORKLOADS.len() - 1];
    let more = change(last[3].compressed, last[2].compressed);
    let few = "the share of pages that collection compresses depends on how much is collected, and the paper does not say how \
               full its device was; ours is full, and cold data is compressed as it moves";
    rows.push(Row::new("(a) MA: pages compressed, LDC against SC", Some(7.0), more, "%").if_off(few));
    for (name, row) in WORKLOADS.iter().zip(&cells) {
        for (method, at) in [("zFTL", 1), ("SC", 2), ("LDC", 3)] {
            let by = change(row[at].erases, row[0].erases);
            rows.push(Row::new(format!("(b) {name}: erases, {method} against PM"), None, by, "%"));
        }
    }
    let erases = |cell: &Cell| cell.erases;
    let less = "traces were not published: locality, and with it how much PM must move, is made up, and Fig. 3's shares are known \
                by a few sentences only";
    rows.push(
        Row::new("(b) mean: erases, LDC against PM", Some(-50.5), mean_change(&cells, 0, 3, erases), "%")
            .if_off(less),
    );
    let close = "close as in the paper, but on either side of it: our collector packs what is of low compressibility without gaps, which zFTL \
                 cannot, and its logs leave more blocks half full on a small device";
    rows.push(
        Row::new("(b) mean: erases, LDC against zFTL", Some(4.0), mean_change(&cells, 1, 3, erases), "%")
            .if_off(close),
    );
    for (method, at) in [("PM", 0), ("zFTL", 1), ("SC", 2), ("LDC", 3)] {
        let total = (last[0].move_s + last[0].erase_s).max(1e-9);
        rows.push(Row::new(
            format!("(c) MA: {method}: moving pages, of PM's collection"),
            None,
            last[at].move_s / total * 100.0,
            "%",
        ));
        rows.push(Row::new(
            format!("(c) MA: {method}: erasing, of PM's collection"),
            None,
            last[at].erase_s / total * 100.0,
            "%",
        ));
    }
    for (name, row) in WORKLOADS.iter().zip(&cells) {
        rows.push(Row::new(format!("{name}: write amplification of PM"), None, row[0].amplification, ""));
        rows.push(Row::new(format!("{name}: write amplification of LDC"), None, row[3].amplification, ""));
    }
    debug_assert_eq!(APPS.len() + 1, WORKLOADS.len());
    Ok(rows)
}
