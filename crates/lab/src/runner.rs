//! Runs one cell: a tape under a scheme, on a new volume in memory, counted, and checked afterwards.
//!
//! What is measured begins with the end of the tape's set-up and ends with a sync, so that everything the
//! workload wrote is on the device and paid for. The volume is then closed and checked as `medfs fsck` does;
//! a finding is an error of the run.

use crate::backend::Target;
use crate::backend::volume::VolumeTarget;
use crate::cell::{CELL_FORMAT, Cell, FileExtents, HotFile, Machine, SegmentMap, WrittenBytes};
use crate::error::{Error, Result};
use crate::model::{ModelDevice, Timeline, Times};
use crate::scheme::Scheme;
use crate::tape::Watch;
use crate::workload::Recording;
use medfs_device::{BlockDevice, CountingDevice, IoCounts, MemDevice};
use medfs_format::BLOCK_SIZE;
use medfs_fsck::dump::{Dump, Value};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Points of the line of what was written over time.
const PROGRESS_POINTS: u64 = 100;
/// Most extents of a file that are kept.
const EXTENTS_MAX: usize = 4096;

/// Extents and use of segments are asked for rarely: reading them takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// The map of segments.
    pub segments: bool,
    /// Extents of the files that were written.
    pub extents: bool,
}

/// The work of a cell.
pub struct Job<'j> {
    /// Experiment it belongs to.
    pub experiment: &'j str,
    /// Workload's name.
    pub workload: &'j str,
    /// Scheme.
    pub scheme: &'j Scheme,
    /// The name that tells it apart within its experiment.
    pub variant: &'j str,
    /// Seed and part of the full size that the recording was made with.
    pub seed: u64,
    /// See `seed`.
    pub scale: f64,
    /// Size of the device in blocks.
    pub blocks: u64,
    /// Times of the device, where latencies are wanted.
    pub times: Option<&'j Times>,
    /// Other results.
    pub wanted: Wanted,
}

type Device = CountingDevice<MemDevice>;

/// Follows a tape: takes counts at the set-up's end, and points on the way.
struct Points<'p> {
    device: &'p Device,
    target: &'p VolumeTarget,
    timeline: Option<&'p Timeline>,
    before: IoCounts,
    stats_before: Option<medfs::Stats>,
    every: u64,
    next: u64,
    points: Vec<(u64, u64)>,
}

impl Watch for Points<'_> {
    fn setup_done(&mut self) -> io::Result<()> {
        self.before = self.device.counts();
        self.stats_before = Some(self.target.volume().stats());
        if let Some(timeline) = self.timeline {
            timeline.start_measuring();
        }
        Ok(())
    }

    fn played(&mut self, written: u64) {
        if written >= self.next {
            self.next = written + self.every;
            let reached = (self.device.counts() - self.before).blocks_written() * BLOCK_SIZE as u64;
            self.points.push((written, reached));
        }
    }
}

fn written(counts: IoCounts) -> WrittenBytes {
    let bytes = |cause| counts.cause(cause).blocks * BLOCK_SIZE as u64;
    use medfs_device::Cause;
    WrittenBytes {
        data: bytes(Cause::Data),
        node: bytes(Cause::Node),
        compact: bytes(Cause::Compact),
        meta: bytes(Cause::Meta),
        gc: bytes(Cause::Gc),
        total: counts.blocks_written() * BLOCK_SIZE as u64,
    }
}

/// Runs a cell. A scheme that this version does not have is an [`Error::Unknown`] of one sentence.
pub fn run(job: &Job<'_>, recording: &Recording) -> Result<Cell> {
    let what = format!("{} on {}", job.workload, job.scheme.name);
    let options = job.scheme.mount_options().map_err(Error::Unknown)?;
    let started = Instant::now();
    let memory = MemDevice::new(job.blocks);
    medfs_mkfs::format_volume(&memory, &job.scheme.mkfs_options(job.seed))?;
    let device = Arc::new(CountingDevice::new(memory));
    let timeline = job.times.map(|times| Arc::new(Timeline::new(times.clone())));
    let below: Arc<dyn BlockDevice> = match &timeline {
        Some(timeline) => Arc::new(ModelDevice::new(device.clone(), timeline.clone())),
        None => device.clone(),
    };
    let target = VolumeTarget::mount(below, options, timeline.clone())
        .map_err(Error::engine(format!("{what}: mounting")))?;
    let mut points = Points {
        device: &device,
        target: &target,
        timeline: timeline.as_deref(),
        before: IoCounts::default(),
        stats_before: None,
        every: (recording.totals.bytes() / PROGRESS_POINTS).max(1),
        next: 0,
        points: Vec::new(),
    };
    recording.tape.play(&target, &mut points).map_err(Error::io(format!("{what}: playing")))?;
    target.sync().map_err(Error::io(format!("{what}: syncing the end")))?;
    let counts = device.counts() - points.before;
    let (stats_before, progress) = (points.stats_before.take(), std::mem::take(&mut points.points));
    let stats = target.volume().stats();
    let mut cell = described(job);
    cell.written = written(counts);
    cell.read_bytes = counts.blocks_read * BLOCK_SIZE as u64;
    cell.flushes = counts.flushes;
    cell.progress = progress;
    characteristics(&mut cell, recording);
    engine_values(&mut cell, stats_before.as_ref(), &stats);
    cell.stats = serde_json::to_value(&stats).ok();
    if let Some(timeline) = &timeline {
        cell.latency_us = timeline.latencies();
        cell.values.insert("device_busy_us".into(), timeline.device_time());
        cell.values.insert("elapsed_us".into(), timeline.elapsed());
    }
    let files: Vec<(String, u32)> = if job.wanted.extents {
        recording.touched.keys().filter_map(|p| Some((p.clone(), target.ino(p).ok()?))).collect()
    } else {
        Vec::new()
    };
    target.unmount().map_err(Error::engine(format!("{what}: unmounting")))?;
    judge(&what, &device, &mut cell)?;
    if job.wanted.segments {
        cell.segments = Some(segments(&device)?);
    }
    for (file, ino) in files {
        cell.extents.push(FileExtents { file, extents: extents(&device, ino)? });
    }
    cell.wall_seconds = started.elapsed().as_secs_f64();
    Ok(cell)
}

/// A cell that says what is run.
fn described(job: &Job<'_>) -> Cell {
    Cell {
        format: CELL_FORMAT.into(),
        experiment: job.experiment.into(),
        workload: job.workload.into(),
        scheme: job.scheme.name.clone(),
        variant: job.variant.into(),
        program: concat!("medfs ", env!("CARGO_PKG_VERSION")).into(),
        machine: Machine::here(),
        seed: job.seed,
        scale: job.scale,
        options: job.scheme.options.clone(),
        device: describe(job),
        ..Cell::default()
    }
}

fn describe(job: &Job<'_>) -> String {
    let gib = job.blocks as f64 * BLOCK_SIZE as f64 / f64::from(1 << 30);
    let model = if job.times.is_some() { ", with the times of a model" } else { "" };
    format!("memory, {gib:.0} GiB{model}")
}

/// What the workload was like, into the cell.
pub(crate) fn characteristics(cell: &mut Cell, recording: &Recording) {
    let t = &recording.totals;
    cell.operations = [
        ("tape", recording.tape.len() as u64),
        ("write_requests", t.writes),
        ("read_requests", t.reads),
        ("fsyncs", t.fsyncs),
        ("pages", t.pages),
        ("updates", t.updates),
    ]
    .into_iter()
    .map(|(name, n)| (name.to_owned(), n))
    .collect();
    cell.values.extend(recording.values.iter().map(|(name, v)| (name.clone(), *v)));
    let shares = [
        ("update_ratio", t.update_ratio()),
        ("update_difference", t.update_difference()),
        ("compression", t.compression()),
        ("half_saved", t.half_saved()),
        ("updates_below_tenth", t.below_tenth_share()),
        ("small_delta_compression", t.small_delta_compression()),
        ("delta_compression", t.delta_compression()),
        ("write_share", t.write_share()),
        ("small_files", crate::workload::app::small_share(&recording.touched)),
        ("application_bytes", t.bytes() as f64),
        ("request_bytes", t.request_bytes()),
    ];
    cell.values.extend(recording.own_difference.map(|own| ("own_difference".to_owned(), own)));
    cell.values.extend(shares.map(|(name, v)| (name.to_owned(), v)));
    for kind in crate::totals::FileType::ALL {
        let updates = t.updates_by_type[kind as usize] as f64 / t.updates.max(1) as f64;
        cell.values.insert(format!("written_{}", kind.name()), t.type_share(kind));
        cell.values.insert(format!("updates_{}", kind.name()), updates);
    }
}

fn engine_values(cell: &mut Cell, before: Option<&medfs::Stats>, after: &medfs::Stats) {
    let since = |of: fn(&medfs::Stats) -> u64| of(after) - before.map_or(0, of);
    let rate = |hits: u64, all: u64| if all == 0 { f64::NAN } else { hits as f64 / all as f64 };
    let (hits, misses) = (since(|s| s.page_hits), since(|s| s.page_misses));
    let values = [
        ("page_hit_rate", rate(hits, hits + misses)),
        ("inode_hit_rate", rate(since(|s| s.inode_hits), since(|s| s.inode_lookups))),
        ("deltas_made", since(|s| s.deltas.made) as f64),
        ("delta_bytes", since(|s| s.deltas.bytes) as f64),
        ("compact_pages", since(|s| s.deltas.compact_pages) as f64),
        ("evicted", since(|s| s.deltas.evicted_by_growth + s.deltas.evicted_by_delta) as f64),
        ("checkpoints", since(|s| s.checkpoints) as f64),
    ];
    cell.values.extend(values.into_iter().filter(|(_, v)| v.is_finite()).map(|(n, v)| (n.to_owned(), v)));
}

/// Checks the volume as `medfs fsck` does.
fn judge(what: &str, device: &Device, cell: &mut Cell) -> Result<()> {
    let report = medfs_fsck::check(device, &medfs_fsck::Options::default(), &mut |_| {})
        .map_err(Error::io(format!("{what}: checking the volume")))?;
    cell.check_findings = Some(report.findings.len() as u64);
    match report.findings.first() {
        Some(finding) => Err(Error::Check(format!("{what}: the check of the volume finds: {finding}"))),
        None => Ok(()),
    }
}

fn dump_error(e: impl std::fmt::Display) -> Error {
    Error::Check(format!("reading the volume's structures: {e}"))
}

fn number(value: Option<&Value>) -> u64 {
    match value {
        Some(Value::Number(n)) => *n,
        _ => 0,
    }
}

/// The segments that hold anything.
fn segments(device: &dyn BlockDevice) -> Result<SegmentMap> {
    let mut dump = Dump::open(device).map_err(dump_error)?;
    let count = number(dump.superblock().get("segment_count_main"));
    let mut map = SegmentMap { blocks_per_segment: medfs_format::BLOCKS_PER_SEG, ..SegmentMap::default() };
    for segno in 0..count as u32 {
        let entry = dump.sit(segno).map_err(dump_error)?;
        let valid = number(entry.get("valid_blocks"));
        if valid > 0 {
            let kind = match entry.get("type_name") {
                Some(Value::Text(kind)) => kind.clone(),
                _ => String::new(),
            };
            map.segments.push((segno, valid as u32, kind));
        }
    }
    Ok(map)
}

/// The runs of blocks of a file, from the addresses that its inode shows.
fn extents(device: &dyn BlockDevice, ino: u32) -> Result<Vec<(u64, u64)>> {
    let mut dump = Dump::open(device).map_err(dump_error)?;
    let record = dump.inode(ino).map_err(dump_error)?;
    let Some(Value::Text(runs)) = record.get("i_addr") else { return Ok(Vec::new()) };
    Ok(runs.split(' ').filter_map(run_of).take(EXTENTS_MAX).collect())
}

/// First block and length of a run as `medfs dump` shows it: `page:first-last` or `page:first`; none of pages
/// without a block.
fn run_of(shown: &str) -> Option<(u64, u64)> {
    let (_, place) = shown.split_once(':')?;
    let (first, last) = place.split_once('-').unwrap_or((place, place));
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    Some((first, last.checked_sub(first)? + 1))
}

/// The plane of hotness: each file that was read or written in a window, with the group it is judged to be in
/// at its end.
pub fn hotness_of(target: &VolumeTarget, window: u64, counts: &[(String, u64, u64)]) -> Vec<HotFile> {
    let name = |h: medfs::Hotness| match h {
        medfs::Hotness::Cold => "read-cold-write-cold",
        medfs::Hotness::ReadHot => "read-hot-write-cold",
        medfs::Hotness::WriteHot => "read-cold-write-hot",
        medfs::Hotness::BothHot => "read-hot-write-hot",
    };
    let judged = |(file, reads, writes): &(String, u64, u64)| {
        let ino = target.ino(file).ok()?;
        let group = name(target.volume().hotness(ino)).to_owned();
        Some(HotFile { file: file.clone(), window, reads: *reads, writes: *writes, group })
    };
    counts.iter().filter_map(judged).collect()
}

/// Bytes in words.
pub fn size_in_words(bytes: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let step = (bytes.max(1.0).log10() / 3.0).floor().clamp(0.0, 4.0);
    let digits = if step == 0.0 { 0 } else { 1 };
    format!("{:.digits$} {}", bytes / 1000f64.powf(step), units[step as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_as_they_are_shown() {
        let read = |text: &str| text.split(' ').filter_map(run_of).collect::<Vec<_>>();
        assert_eq!(read("0:5-7 4:8 5-6:new 9:compressed 10:20"), [(5, 3), (8, 1), (20, 1)]);
        assert_eq!(read("x 1:9-3 :"), []);
    }

    #[test]
    fn sizes_in_words() {
        let words: Vec<String> = [0.0, 999.0, 4096.0, 3.12e9].map(size_in_words).into();
        assert_eq!(words, ["0 B", "999 B", "4.1 kB", "3.1 GB"]);
    }
}
