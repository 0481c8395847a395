//! Hcluster: into which groups files fall (Fig. 11a), and what it does for files that are read (Fig. 11b).

use super::lab::{Lab, Outcome};
use crate::backend::volume::VolumeTarget;
use crate::backend::{Handle, Open, Target};
use crate::cell::{Cell, HotFile, Row};
use crate::error::{Error, Result};
use crate::runner::hotness_of;
use crate::tape::Watch;
use crate::workload::small_updates;
use crate::workload::{Recording, record};
use medfs_device::MemDevice;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The paper's groups.
const GROUPS: [&str; 4] =
    ["read-hot-write-cold", "read-hot-write-hot", "read-cold-write-hot", "read-cold-write-cold"];

/// Counts calls of each file in windows, and asks for groups at the end of each.
///
/// Lock: one mutex, not held while the volume is called.
struct Windows {
    volume: Arc<VolumeTarget>,
    length: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<Handle, String>,
    counts: BTreeMap<String, (u64, u64)>,
    elapsed: Duration,
    number: u64,
    measuring: bool,
    seen: Vec<HotFile>,
    /// Wall-clock time of making the groups anew, and how often that was.
    regrouping: (Duration, u32),
}

/// What was seen of the hotness of files.
pub(super) struct Seen {
    /// Files in the plane, window by window.
    pub(super) files: Vec<HotFile>,
    /// Mean microseconds of making the groups anew, on this machine's clock.
    pub(super) regroup_micros: Option<f64>,
    /// The volume, still mounted.
    pub(super) volume: Arc<VolumeTarget>,
}

impl Windows {
    fn count(&self, file: Handle, read: u64, written: u64) {
        let mut state = self.state.lock();
        if let Some(path) = state.open.get(&file).cloned()
            && state.measuring
        {
            let (reads, writes) = state.counts.entry(path).or_default();
            *reads += read;
            *writes += written;
        }
    }

    /// Ends windows that have passed: groups are made anew, as when the phone is idle for a moment, and then asked for.
    fn turn(&self) -> io::Result<()> {
        let (number, counts) = {
            let mut state = self.state.lock();
            if state.elapsed < self.length {
                return Ok(());
            }
            state.elapsed = Duration::ZERO;
            state.number += 1;
            (state.number, std::mem::take(&mut state.counts))
        };
        let started = Instant::now();
        let did = self.volume.volume().idle_work(0).map_err(io::Error::other)?;
        if did.reclustered {
            let mut state = self.state.lock();
            state.regrouping = (state.regrouping.0 + started.elapsed(), state.regrouping.1 + 1);
        }
        let list: Vec<(String, u64, u64)> = counts.into_iter().map(|(path, (r, w))| (path, r, w)).collect();
        let seen = hotness_of(&self.volume, number, &list);
        self.state.lock().seen.extend(seen);
        Ok(())
    }
}

impl Target for Windows {
    fn open(&self, path: &str, how: Open) -> io::Result<Handle> {
        let handle = self.volume.open(path, how)?;
        self.state.lock().open.insert(handle, path.to_owned());
        Ok(handle)
    }
    fn close(&self, file: Handle) -> io::Result<()> {
        self.state.lock().open.remove(&file);
        self.volume.close(file)
    }
    fn read(&self, file: Handle, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.count(file, 1, 0);
        self.volume.read(file, offset, buf)
    }
    fn write(&self, file: Handle, offset: u64, data: &[u8]) -> io::Result<()> {
        self.count(file, 0, 1);
        self.volume.write(file, offset, data)
    }
    fn truncate(&self, file: Handle, len: u64) -> io::Result<()> {
        self.volume.truncate(file, len)
    }
    fn size(&self, file: Handle) -> io::Result<u64> {
        self.volume.size(file)
    }
    fn fsync(&self, file: Handle, datasync: bool) -> io::Result<()> {
        self.volume.fsync(file, datasync)
    }
    fn fsync_dir(&self, path: &str) -> io::Result<()> {
        self.volume.fsync_dir(path)
    }
    fn mkdir(&self, path: &str) -> io::Result<()> {
        self.volume.mkdir(path)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.volume.rename(from, to)
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        self.volume.unlink(path)
    }
    fn exists(&self, path: &str) -> io::Result<bool> {
        self.volume.exists(path)
    }
    fn sync(&self) -> io::Result<()> {
        self.volume.sync()
    }
    fn pass(&self, time: Duration) -> io::Result<()> {
        self.volume.pass(time)?;
        self.state.lock().elapsed += time;
        self.turn()
    }
}

struct Begin<'b>(&'b Windows);

impl Watch for Begin<'_> {
    fn setup_done(&mut self) -> io::Result<()> {
        self.0.state.lock().measuring = true;
        Ok(())
    }
    fn played(&mut self, _written: u64) {}
}

/// Plays a recording and watches the hotness of its files.
pub(super) fn watch(lab: &Lab<'_>, recording: &Recording) -> Result<Seen> {
    // Half an hour is shortened by the scale, and so is the window.
    let window = Duration::from_secs_f64((60.0 * lab.scale).max(0.001));
    let scheme = lab.schemes()?.remove(0).with(&format!("hot_window={}ms", window.as_millis().max(1)));
    let memory = MemDevice::new(lab.spec.device_gib << 18);
    medfs_mkfs::format_volume(&memory, &scheme.mkfs_options(lab.settings.seed))?;
    let mount = scheme.mount_options().map_err(Error::Unknown)?;
    let volume =
        Arc::new(VolumeTarget::mount(Arc::new(memory), mount, None).map_err(Error::engine("mounting"))?);
    let windows = Windows { volume: volume.clone(), length: window, state: Mutex::default() };
    recording.tape.play(&windows, &mut Begin(&windows)).map_err(Error::io("playing"))?;
    let mut state = windows.state.lock();
    let (spent, times) = state.regrouping;
    let regroup_micros = (times > 0).then(|| spent.as_secs_f64() * 1e6 / f64::from(times));
    Ok(Seen { files: std::mem::take(&mut state.seen), regroup_micros, volume })
}

/// Fig. 11a: the share of each group, and of files whose group changes.
pub(super) fn clusters(lab: &Lab<'_>) -> Result<Vec<Row>> {
    lab.begin(2);
    let workload = &lab.spec.workloads[0];
    let recording = lab.record(workload)?;
    lab.settings.progress.step("watching hotness");
    let Seen { files: seen, volume, .. } = watch(lab, &recording)?;
    let stats = volume.volume().stats();
    volume.unmount().map_err(Error::engine("unmounting"))?;
    let mut groups: BTreeMap<&str, HashSet<&str>> = BTreeMap::new();
    for hot in &seen {
        groups.entry(&hot.file).or_default().insert(&hot.group);
    }
    let changing = groups.values().filter(|g| g.len() > 1).count() as f64 / groups.len().max(1) as f64;
    let share = |group: &str| {
        100.0 * seen.iter().filter(|h| h.group == group).count() as f64 / seen.len().max(1) as f64
    };
    let shares: Vec<f64> = GROUPS.iter().map(|g| share(g)).collect();
    let cell = Cell {
        scheme: lab.spec.schemes[0].clone(),
        values: [("reclusterings".to_owned(), stats.hotness.reclusterings as f64)].into(),
        hotness: seen,
        stats: serde_json::to_value(&stats).ok(),
        ..lab.blank_cell(workload, "memory")
    };
    let file = lab.keep(&cell)?;
    let mut rows: Vec<Row> = GROUPS
        .iter()
        .zip(shares)
        .map(|(g, share)| lab.spec.row(g, "", Some(share), std::slice::from_ref(&file)))
        .collect();
    let mut change = lab.spec.row("files that change their group", "", Some(100.0 * changing), &[file]);
    change.unit = "% of files".into();
    rows.push(change);
    Ok(rows)
}

/// Fig. 11b: mean time to read a page of a file of which a part was updated, with Hcluster and without.
pub(super) fn reads(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let scheme = lab.schemes()?.remove(0);
    let shares = lab.spec.numbers("updated_percent")?;
    let ways =
        [("with Hcluster", "compact_files=hot"), ("without Hcluster", "compact_files=all,restore=off")];
    lab.begin(shares.len() * 3);
    let mut rows = Vec::new();
    for &percent in shares {
        lab.settings.progress.step(&format!("recording {percent}%"));
        let recording =
            record(lab.settings.seed, lab.scale, &|s| small_updates::updated(s, percent / 100.0))?;
        for (way, options) in ways {
            let variant = format!("{percent}% {way}");
            let run = lab.cell("small-updates", &scheme.with(options), &variant, &recording)?;
            if let Outcome::Ran(cell, file) = run {
                let mean = cell.latency_us.get("read").map(|l| l.mean);
                rows.push(lab.spec.row(&format!("{percent}%"), way, mean, &[file]));
            }
        }
    }
    Ok(rows)
}
