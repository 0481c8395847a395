//! Bad sectors: every block that a workload reads fails once, for ever, or comes with a flipped bit; every
//! block that it writes cannot be written, once or for ever. The workload goes on; what is not on that block
//! must stay readable and must be committed.
//!
//! A *scene* is a volume with its options, what is made durable on it first, and a workload. It runs once
//! undisturbed, on a device that tells what is read and written ([`Base`]). Each block of these is then
//! struck in a run of its own ([`Base::strike`]). What is on the block is found out without knowing the
//! engine: [`Hit`] is what a read-only mount cannot read while the block cannot be read.
//!
//! After an error of reading: no call fails but those about what is hit; `sync` succeeds where nothing but
//! content of plain pages is hit; a new file is made durable; the volume closes; the medium without the fault
//! shows all that was not hit as it was last, and a check finds nothing that a repair would pay for with it.
//! After an error of writing: reading goes on; the medium shows what a crash at that moment may leave
//! ([`crate::oracle`]). After a flipped bit where no checksum tells (addresses, names, tables) nothing is
//! asked but that there is no panic.

mod hit;
mod run;

use crate::crash_states::{Setup, Workload, on_databases, on_deltas, on_replacements, preparation, prepared};
use crate::harness::guarded;
use crate::images::{COMPRESSED, DELTAS, FEATURE_SETS, FsckMedfs, formatted, options_for};
use crate::model::{Model, PAGE};
use crate::observe::{observe, read_page};
use crate::ops::Op;
use crate::oracle::History;
use crate::session::{Durable, Session};
use crate::subject::{Check, FileSystem, Mounter};
use crate::volume::{mounter, test_clock};
use crate::watched::Watched;
use crate::workloads::{crowded, mixed, on_names};
use hit::Hit;
use medfs::MountOptions;
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::trace::{Operation, TracingDevice};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::superblock;
pub use run::Went;
use run::{Struck, WITNESS};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The device's error.
const EIO: i32 = 5;

/// What happens to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// One read of it fails.
    ReadOnce,
    /// Two reads of it fail.
    ReadTwice,
    /// It cannot be read until it is written.
    ReadForever,
    /// It comes with a flipped bit until it is written.
    Flip,
    /// One write to it fails.
    WriteOnce,
    /// It cannot be written.
    WriteForever,
}

impl Trouble {
    /// Those of blocks that are read.
    pub const READS: [Trouble; 4] =
        [Trouble::ReadOnce, Trouble::ReadTwice, Trouble::ReadForever, Trouble::Flip];
    /// Those of blocks that are written.
    pub const WRITES: [Trouble; 2] = [Trouble::WriteOnce, Trouble::WriteForever];

    fn fault(self, block: u64) -> Fault {
        let fault = match self {
            Trouble::ReadOnce => Fault::on(Kind::Read, Effect::IO).times(1),
            Trouble::ReadTwice => Fault::on(Kind::Read, Effect::IO).times(2),
            Trouble::ReadForever => Fault::on(Kind::Read, Effect::IO),
            Trouble::Flip => Fault::on(Kind::Read, Effect::FlipBits(1)),
            Trouble::WriteOnce => Fault::on(Kind::Write, Effect::Partial(EIO)).times(1),
            Trouble::WriteForever => Fault::on(Kind::Write, Effect::IO),
        };
        let fault = fault.within(block..block + 1);
        if Trouble::WRITES.contains(&self) { fault } else { fault.until_written() }
    }
}

/// A volume, what is on it, and what is done to it.
#[derive(Debug, Clone)]
pub struct Scene {
    features: &'static str,
    options: String,
    preparation: Vec<Op>,
    workload: Workload,
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}: {}", self.features, self.options, self.workload)
    }
}

/// Kinds of volumes with their options.
const KINDS: [(&str, &str); 8] = [
    (FEATURE_SETS[1], "rw"),
    (DELTAS, "delta=off"),
    (DELTAS, "delta=inline,cross_file_deltas=on"),
    (DELTAS, "delta=compact,compact_files=all"),
    (DELTAS, "delta=full,compact_files=all"),
    (DELTAS, "compress=fpc:lz4,compact_files=all"),
    (COMPRESSED[0], "cache=1M"),
    (COMPRESSED[1], "delta=full,compact_files=all,cache=1M"),
];

/// Of each kind of volume a scene of each kind of workload, and scenes on volumes that must be cleaned.
pub fn scenes(seed: u64) -> Vec<Scene> {
    type Workloads = fn(u64, usize) -> Vec<Workload>;
    let families: [Workloads; 5] = [on_deltas, on_databases, on_replacements, on_names, mixed];
    let mut scenes = Vec::new();
    for (n, (features, options)) in KINDS.into_iter().enumerate() {
        let options = format!("{},{options}", options_for(features));
        let scene = |preparation: Vec<Op>, workload| Scene {
            features,
            options: options.clone(),
            preparation,
            workload,
        };
        for family in families {
            let mut two = family(seed.wrapping_mul(31).wrapping_add(n as u64), 2).into_iter();
            let (before, workload) = (two.next().expect("two"), two.next().expect("two"));
            let mut ops = preparation();
            ops.extend(before.ops());
            ops.push(Op::Sync);
            scenes.push(scene(ops, workload));
        }
        if [0, 4, 7].contains(&n) {
            scenes.push(scene(crowded(), mixed(seed.wrapping_add(77 + n as u64), 1).remove(0)));
        }
    }
    scenes
}

fn mounter_of(options: &str) -> Mounter {
    let mut parsed = MountOptions::default();
    parsed.parse(options).unwrap_or_else(|e| panic!("{options}: {e}"));
    mounter(parsed, test_clock())
}

/// A scene before its workload, and what the workload reads and writes where nothing disturbs it.
pub struct Base {
    scene: Scene,
    ops: Vec<Op>,
    image: MemDevice,
    start: Model,
    history: History,
    main: u64,
    /// Blocks that it reads and has not written before.
    pub reads: Vec<u64>,
    /// Blocks that it writes.
    pub writes: Vec<u64>,
}

impl Base {
    /// Makes the volume, and runs the workload once.
    pub fn new(scene: &Scene) -> Result<Base, String> {
        let mounter = mounter_of(&scene.options);
        let mut setup = Setup::new(formatted(64, scene.features), mounter.clone());
        setup.preparation.clone_from(&scene.preparation);
        let image = prepared(&setup)?;
        let geometry = superblock::RawSuperblock::in_block(&read_block(&image, 0).expect("memory"))
            .validate()
            .map_err(|e| e.to_string())?;
        let ops = scene.workload.ops();
        let device = Arc::new(TracingDevice::ring(image.snapshot(), usize::MAX));
        let fs = mounter(device.clone()).map_err(|e| format!("mount: {e}"))?;
        let mut session = Session::new(fs)?;
        let start = session.model.clone();
        device.take();
        // What the comparison above has read is in memory now: a second mount reads it in the workload.
        drop(session);
        let device = Arc::new(TracingDevice::ring(image.snapshot(), usize::MAX));
        let fs = mounter(device.clone()).map_err(|e| format!("mount: {e}"))?;
        device.take();
        session = Session::remounted(fs, start.clone());
        session.crowded = true;
        let mut history = History::new(start.clone());
        for op in &ops {
            let durable = session.apply(op).map_err(|e| format!("{op:?}: {e}"))?;
            history.push(session.model.clone(), durable);
        }
        session.fs.unmount().map_err(|e| format!("close: {e}"))?;
        history.push(session.model.clone(), Durable::All);
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
        for record in device.take() {
            match record.operation {
                Operation::Read { addr, count } => {
                    let new = (addr..addr + count).filter(|b| !written.contains(b) && read.insert(*b));
                    reads.extend(new);
                }
                Operation::Write { addr, count, .. } => {
                    writes.extend((addr..addr + count).filter(|b| written.insert(*b)));
                }
                _ => {}
            }
        }
        let main = u64::from(geometry.main_blkaddr);
        Ok(Base { scene: scene.clone(), ops, image, start, history, main, reads, writes })
    }

    /// Runs the workload with trouble on a block. `Err` says what went wrong that must not.
    pub fn strike(&self, block: u64, trouble: Trouble) -> Result<Went, String> {
        guarded(|| match Trouble::WRITES.contains(&trouble) {
            true => self.strike_write(block, trouble),
            false => self.strike_read(block, trouble),
        })
    }

    fn mount(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn FileSystem>, String> {
        mounter_of(&self.scene.options)(device).map_err(|e| format!("mount: {e}"))
    }

    fn strike_read(&self, block: u64, trouble: Trouble) -> Result<Went, String> {
        let hit = Hit::of(self, block);
        let plain = hit.is_plain_page(self, block);
        let lenient = trouble == Trouble::Flip && !hit.is_told(self, block);
        let device = Arc::new(FaultDevice::new(self.image.snapshot(), block));
        let watched = Arc::new(Watched::new(self.mount(device.clone())?));
        device.arm(trouble.fault(block));
        let mut session = Session::remounted(watched.clone(), self.start.clone());
        session.crowded = true;
        let mut run = Struck {
            hit,
            repaired: false,
            plain,
            flipped: trouble == Trouble::Flip,
            went: Went::default(),
            watched,
        };
        for op in &self.ops {
            let done = run.step(&mut session, op);
            if !lenient {
                done.map_err(|e| format!("{op:?}: {e}"))?;
            } else if done.as_ref().is_err_and(|e| e.starts_with("panicked")) {
                done?;
            }
        }
        let sync = session.fs.sync();
        run.went.told |= sync.is_err();
        run.went.met = device.hits() > 0;
        if lenient {
            let _ = session.fs.unmount();
            drop(session);
            if let Ok(fs) = self.mount(Arc::new(device.inner().snapshot())) {
                let _ = observe(&*fs);
            }
            return Ok(run.went);
        }
        run.may_fail("sync", sync)?;
        let witness = run.witness(&mut session)?;
        run.judge(&*session.fs, &session.model, false).map_err(|e| format!("before the end: {e}"))?;
        let closed = session.fs.unmount();
        run.went.told |= closed.is_err();
        run.may_fail("close", closed)?;
        let model = session.model.clone();
        drop(session);
        let medium = Arc::new(device.inner().snapshot());
        self.judge_medium(&medium, &run, &model, witness)?;
        if let Err(found) = FsckMedfs.check(medium.clone()) {
            let options = medfs_fsck::Options { max_findings: 12, ..medfs_fsck::Options::default() };
            let repaired =
                medfs_fsck::repair(&*medium, &options, &mut |_| {}).map_err(|e| format!("{found}: {e}"))?;
            if !repaired.after.is_clean() {
                return Err(format!("not repaired: {found}"));
            }
            run.repaired = true;
            self.judge_medium(&medium, &run, &model, witness)
                .map_err(|e| format!("after a repair of {found}: {e}"))?;
        }
        Ok(run.went)
    }

    fn judge_medium(
        &self,
        medium: &Arc<MemDevice>,
        run: &Struck,
        model: &Model,
        witness: bool,
    ) -> Result<(), String> {
        let fs = self.mount(medium.clone())?;
        run.judge(&*fs, model, true).map_err(|e| format!("on the medium: {e}"))?;
        if witness {
            let found = fs.lookup(fs.root(), WITNESS).map_err(|e| format!("what was made since: {e}"))?;
            let page = read_page(&*fs, found.ino, 0, PAGE)?;
            if page != [7; PAGE as usize] {
                return Err("what was made since has another content".into());
            }
        }
        fs.unmount().map_err(|e| format!("close of the medium: {e}"))
    }

    fn strike_write(&self, block: u64, trouble: Trouble) -> Result<Went, String> {
        let device = Arc::new(FaultDevice::new(self.image.snapshot(), block));
        let fs = self.mount(device.clone())?;
        device.arm(trouble.fault(block));
        let mut session = Session::remounted(fs, self.start.clone());
        session.crowded = true;
        let mut acknowledged = 0;
        let mut went = Went::default();
        for op in &self.ops {
            match guarded(|| session.apply(op).map(drop)) {
                Ok(()) => acknowledged += 1,
                Err(e) if e.starts_with("panicked") => return Err(format!("{op:?}: {e}")),
                Err(e) if device.hits() == 0 => return Err(format!("{op:?}: {e}")),
                Err(_) => break,
            }
        }
        if acknowledged == self.ops.len() {
            let closed = session.fs.unmount();
            went.told = closed.is_err();
            acknowledged += usize::from(closed.is_ok());
        } else {
            went.failed = 1;
            // Every file can be read as before.
            observe(&*session.fs).map_err(|e| format!("reading does not go on: {e}"))?;
            if session.fs.unmount().is_ok() {
                return Err("close knows nothing of the error".into());
            }
        }
        went.met = device.hits() > 0;
        drop(session);
        let medium = Arc::new(device.inner().snapshot());
        let fs = self.mount(medium.clone())?;
        let issued = (acknowledged + 1).min(self.history.len());
        self.history.judge(&observe(&*fs)?, acknowledged, issued)?;
        fs.unmount().map_err(|e| format!("close of the medium: {e}"))?;
        FsckMedfs.check(medium)?;
        if trouble == Trouble::WriteForever {
            // On a device that stays so the volume may refuse, and says so.
            let dead = Arc::new(FaultDevice::new(device.inner().snapshot(), block));
            dead.arm(trouble.fault(block));
            if let Ok(fs) = self.mount(dead.clone()) {
                observe(&*fs).map_err(|e| format!("on a device that stays dead: {e}"))?;
            }
        }
        Ok(went)
    }
}
