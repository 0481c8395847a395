//! Every workload on every method: the runs behind Fig. 8, 9 and 10.
//!
//! A run: a device of the paper's kind is filled with pages of the snapshots' distribution, uncompressed, as
//! the paper initialises the ratios of existing data; then the workload is replayed three times. The workload
//! begins where the device has free what is over-provisioned.

use super::row::{Options, Progress, Row};
use super::workload::{APPS, TOGETHER, requests};
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

/// The results of a run.
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
    cell_with(workload, ftl, profile, options, Way::default())
}

/// When requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrivals {
    /// When the workload says, so that they wait for each other.
    AsRecorded,
    /// Not before the last one has ended: latencies are those of serving.
    Apart,
}

/// What a run does otherwise than the paper's: a cause of a difference is taken away, or a compressor is another one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Way {
    pub(crate) against: Against,
    pub(crate) arrivals: Arrivals,
    /// Most pages of a request; the others are left out.
    pub(crate) pages: usize,
    /// Part of the device that is filled before the workload begins.
    pub(crate) filled: f64,
}

impl Default for Way {
    fn default() -> Way {
        Way { against: Against::LZO, arrivals: Arrivals::AsRecorded, pages: usize::MAX, filled: 1.0 }
    }
}

pub(crate) fn cell_with(
    workload: &str,
    ftl: &str,
    profile: &Profile,
    options: &Options,
    way: Way,
) -> Result<Cell> {
    let mut profile = profile.clone();
    profile.controller.compress_us *= way.against.time;
    profile.controller.expand_us *= way.against.time;
    let capacity = (profile.capacity() as f64 * options.scale) as u64 / (1 << 20) * (1 << 20);
    let device_options = DeviceOptions {
        capacity: Some(capacity.max(32 << 20)),
        ftl: ftl.into(),
        ..DeviceOptions::new(profile.clone())
    };
    let armed = Arc::new(AtomicBool::new(false));
    let method = Armed { inner: policy(ftl, &profile)?, armed: armed.clone() };
    let mut device = Device::<Described>::in_memory_with(&device_options, Box::new(method))?;
    age(&mut device, Mix::SNAPSHOT, (way.filled, 0.0), options.seed, &mut |_| ())?;
    armed.store(true, Ordering::Relaxed);
    let requests = requests(workload, device.logical_pages(), options.scale, options.seed);
    let empty: Vec<&[u8]> = vec![&[]; 512];
    for _ in 0..REPLAYS {
        let begin = device.now() + PAUSE;
        for request in &requests {
            let (mut at, count) = (begin + request.at, request.pages.len().min(way.pages));
            if way.arrivals == Arrivals::Apart {
                at = at.max(device.now());
            }
            if !request.write {
                read(&mut device, at, request.page, count as u32)?;
                continue;
            }
            for (lpn, page) in (request.page..).zip(&request.pages[..count]) {
                let (predicted, size) = page.described();
                let factor = way.against.size[crate::synth::class_of(page.ratio)];
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
    way: Way,
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
            row.push(cell_with(workload, ftl, &profile, options, way)?);
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

/// The methods of Fig. 8, in the order of a row of cells.
const METHODS: [&str; 4] = ["pm", "zftl", "sc", "ldc"];
/// Units of the workloads' rows: Fig. 8(a), (b) and (c), and of write amplification.
const OF_ZFTL: &str = "(a) % of the pages that zFTL compressed";
const ERASES: &str = "(b) % more erases than PM";
const OF_COLLECTION: &str = "(c) % of the time of PM's collection";
const FLASH: &str = "bytes of flash for each of the host";
/// How full devices are that are not full, as Fig. 8(a) is looked at again.
const LESS_FULL: f64 = 0.99;

const FULL: &str = "the share of pages that collection compresses depends on how much it collects, and the paper does not say how full its device \
                    was; ours is full, and cold data is compressed as it moves: see the row where a hundredth of it is empty";
const LOCALITY: &str = "the traces were not published: locality, and thus how many pages PM moves, is synthetic, and only a few sentences give Fig. 3's shares; on a device smaller than the paper's the open logs take a larger part, which reduces the gain";
const CLOSE: &str = "better or worse than zFTL depending on the device's size: our collector packs pages of low compressibility without gaps, which zFTL cannot, but its logs leave more blocks half full, which costs more on a device smaller than the paper's";
const MOVING: &str = "in the paper LDC collects faster than SC and zFTL; here it pays the controller's time to compress moved pages, most of which SC had left as minimally compressible, so that it gains little";

/// Fig. 8.
pub(crate) fn fig8(options: &Options, progress: Progress<'_>) -> Result<Vec<Row>> {
    let cells = all(&METHODS, Way::default(), options, &mut |part| progress(part * 0.9))?;
    let mut rows = compressed(&cells);
    rows.push(less_full(options)?);
    progress(1.0);
    rows.extend(erases(&cells));
    rows.extend(collection(&cells[WORKLOADS.len() - 1]));
    for (name, row) in WORKLOADS.iter().zip(&cells) {
        for (method, at) in [("PM", 0), ("LDC", 3)] {
            rows.push(Row::new(*name, None, row[at].amplification, FLASH).of_series(method));
        }
    }
    debug_assert_eq!(APPS.len() + 1, WORKLOADS.len());
    Ok(rows)
}

/// Fig. 8(a).
fn compressed(cells: &[Vec<Cell>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, row) in WORKLOADS.iter().zip(cells) {
        for (method, at) in [("SC", 2), ("LDC", 3)] {
            let part = row[at].compressed / row[1].compressed.max(1.0) * 100.0;
            rows.push(Row::new(*name, None, part, OF_ZFTL).of_series(method));
        }
    }
    let last = &cells[WORKLOADS.len() - 1];
    let more = change(last[3].compressed, last[2].compressed);
    rows.push(Row::new("(a) MA: pages compressed, LDC against SC", Some(7.0), more, "%").if_off(FULL));
    rows
}

/// How many more pages LDC compresses than SC where the device is less full.
fn less_full(options: &Options) -> Result<Row> {
    let profile = Profile::find("emmc")?;
    let way = Way { filled: LESS_FULL, ..Way::default() };
    let run = |ftl| cell_with(TOGETHER, ftl, &profile, options, way);
    let (sc, ldc) = (run("sc")?, run("ldc")?);
    let label = format!("(a) MA, device {:.0}% full: pages compressed, LDC against SC", LESS_FULL * 100.0);
    Ok(Row::new(label, None, change(ldc.compressed, sc.compressed), "%"))
}

/// Fig. 8(b).
fn erases(cells: &[Vec<Cell>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, row) in WORKLOADS.iter().zip(cells) {
        for (method, at) in [("zFTL", 1), ("SC", 2), ("LDC", 3)] {
            let by = change(row[at].erases, row[0].erases);
            rows.push(Row::new(*name, None, by, ERASES).of_series(method));
        }
    }
    let means = [("PM", -50.5, 0, LOCALITY), ("zFTL", 4.0, 1, CLOSE)];
    rows.extend(means.map(|(of, paper, from, why)| {
        let ours = mean_change(cells, from, 3, |cell| cell.erases);
        Row::new(format!("(b) mean: erases, LDC against {of}"), Some(paper), ours, "%").if_off(why)
    }));
    rows
}

/// Fig. 8(c), of the cells of all applications together.
fn collection(cells: &[Cell]) -> Vec<Row> {
    let total = (cells[0].move_s + cells[0].erase_s).max(1e-9);
    let of = |(method, cell): (&str, &Cell)| {
        let part = |seconds: f64| seconds / total * 100.0;
        let row = |what: &str, seconds| {
            Row::new(format!("MA: {what}"), None, part(seconds), OF_COLLECTION).of_series(method)
        };
        let moving = row("moving pages", cell.move_s);
        let explained = method == "LDC" && cell.move_s > cells[1].move_s.min(cells[2].move_s);
        [if explained { moving.because(MOVING) } else { moving }, row("erasing", cell.erase_s)]
    };
    ["PM", "zFTL", "SC", "LDC"].into_iter().zip(cells).flat_map(of).collect()
}
