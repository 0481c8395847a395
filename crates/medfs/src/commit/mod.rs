//! Commits: what makes changes durable together, by the chain of fsynced nodes or by a checkpoint, and what
//! finds them again.
//!
//! One pipeline: [`change_set`] stages what changed, the sinks [`nvram`], [`roll_forward_log`] and
//! [`checkpoint`] admit and commit it, [`fsync`] is the way through them; [`durability`] says when that
//! way is taken. When the device is flushed is in [`flush`].
//!
//! Invariants: those of `docs/ARCHITECTURE.md`, "Four rules".
//! Locks: `cp`, an inode's `wb`, `chain`; see `ranks.rs`.

pub(crate) mod account;
pub(crate) mod adaptive;
pub(crate) mod app_commit;
pub(crate) mod apps;
pub(crate) mod atomic;
pub(crate) mod change_set;
pub(crate) mod checkpoint;
pub(crate) mod chooser;
pub(crate) mod durability;
pub(crate) mod flush;
pub(crate) mod fsync;
pub(crate) mod group_commit;
mod holdup;
pub(crate) mod nvram;
mod pauses;
pub mod policy;
pub(crate) mod recoverable_names;
pub(crate) mod recovery;
pub(crate) mod roll_forward_log;
pub(crate) mod survivor;

use crate::error::Result;
use crate::map::inode::Scope;
use crate::options::{DurabilityMode, MountOptions};
use crate::tree::Tree;
use adaptive::Adaptive;
use apps::Apps;
use change_set::CommitSink;
use checkpoint::CheckpointSink;
use durability::{Committing, Deferred, Durability, Immediate};
use flush::FlushPolicy;
use group_commit::GroupCommit;
use medfs_device::Nvram;
use nvram::{BesideVolume, NvramJournal};
use roll_forward_log::RollForwardLog;
use std::ops::Deref;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use survivor::Survivor;

/// The ways in which changes become durable. A checkpoint takes whatever the sink refuses.
pub(crate) struct Ways {
    pub(crate) log: Arc<RollForwardLog>,
    /// Where changes become durable without a checkpoint.
    sink: Arc<dyn CommitSink>,
    /// The one of them that is a journal in NVRAM.
    pub(crate) nvram: Option<Arc<NvramJournal>>,
    /// A memory whose records a repair replays. No journal begins there, and nothing of it is changed.
    repaired: Option<Arc<dyn Nvram>>,
    /// When an fsync's changes do.
    durability: Box<dyn Durability>,
}

/// What makes changes of a tree durable.
pub(crate) struct Commit {
    tree: Tree,
    pub(crate) ways: Ways,
    /// The apps of a volume that has several, and is committed as a whole.
    apps: Option<Apps>,
    committing: Committing,
    /// Power may fail: nothing is put off.
    pub(crate) low_power: AtomicBool,
    /// The log that outlives the process, where there is one.
    pub(crate) survivor: OnceLock<Arc<Survivor>>,
}

impl Deref for Commit {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.tree
    }
}

impl Ways {
    /// As the option `durability` says: POSIX, by the roll-forward log, or the whole volume at once, later,
    /// by checkpoints.
    pub(crate) fn new(opts: &MountOptions) -> Ways {
        let log = log(opts);
        match opts.durability {
            DurabilityMode::Posix => Ways::of(log.clone(), log, Box::new(Immediate)),
            DurabilityMode::Adaptive => Ways::of(
                log,
                Arc::new(CheckpointSink),
                Box::new(Adaptive::new(opts.loss, &opts.commit_policy, &opts.apps)),
            ),
        }
    }

    /// By a journal in NVRAM, over the roll-forward log.
    pub(crate) fn with_nvram(opts: &MountOptions, memory: Arc<dyn Nvram>) -> Ways {
        let log = log(opts);
        let nvram = Arc::new(NvramJournal::new(log.clone(), memory, opts));
        Ways { nvram: Some(nvram.clone()), ..Ways::of(log, nvram, Box::new(Immediate)) }
    }

    /// The same, through a sink over the log.
    pub(crate) fn through<S: CommitSink + 'static>(
        opts: &MountOptions,
        over: impl FnOnce(Arc<RollForwardLog>) -> S,
    ) -> (Ways, Arc<S>) {
        let log = log(opts);
        let sink = Arc::new(over(log.clone()));
        (Ways::of(log, sink.clone(), Box::new(Immediate)), sink)
    }

    /// By the roll-forward log, later than an fsync returns.
    pub(crate) fn deferring(opts: &MountOptions) -> Ways {
        let log = log(opts);
        Ways::of(log.clone(), log, Box::<Deferred>::default())
    }

    /// What one commit makes durable.
    pub(crate) fn scope(&self) -> Scope {
        self.durability.scope()
    }

    fn of(log: Arc<RollForwardLog>, sink: Arc<dyn CommitSink>, durability: Box<dyn Durability>) -> Ways {
        Ways { log, sink, nvram: None, repaired: None, durability }
    }

    /// By the roll-forward log, after a repair of what a memory has.
    pub(crate) fn repairing_nvram(opts: &MountOptions, memory: Arc<dyn Nvram>) -> Ways {
        Ways { repaired: Some(memory), ..Ways::new(opts) }
    }

    /// The memory that fsyncs are in.
    pub(crate) fn beside_volume(&self) -> Option<BesideVolume<'_>> {
        let of_journal = self.nvram.as_ref().map(|nvram| (nvram.memory(), false));
        let (memory, is_repaired) = of_journal.or_else(|| Some((&**self.repaired.as_ref()?, true)))?;
        Some(BesideVolume { memory, is_repaired })
    }
}

impl Commit {
    pub(crate) fn over(tree: Tree, ways: Ways) -> Commit {
        let by_app = ways.scope() == Scope::Volume && !tree.read_only;
        let apps = by_app.then(|| Apps::begin(&tree)).flatten();
        Commit {
            tree,
            ways,
            apps,
            committing: Committing::default(),
            low_power: AtomicBool::new(false),
            survivor: OnceLock::new(),
        }
    }

    /// After a mount that may write has brought back what there was: begins a journal in NVRAM where there is
    /// one. Where there is none, the superblock names none.
    pub(crate) fn begin_nvram(&self) -> Result<()> {
        match &self.ways.nvram {
            Some(nvram) => nvram.begin(self),
            None if self.sb.nvram_in_use().is_some() => Ok(self.set_nvram(None)?),
            None => Ok(()),
        }
    }

    /// After the checkpoint of an unmount: the volume needs no NVRAM.
    pub(crate) fn end_nvram(&self) -> Result<()> {
        self.ways.nvram.as_ref().map_or(Ok(()), |nvram| nvram.end(self))
    }
}

fn log(opts: &MountOptions) -> Arc<RollForwardLog> {
    let flush = FlushPolicy::new(opts.fsync_mode);
    Arc::new(RollForwardLog::new(flush, GroupCommit::new(opts.group_commit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{self, after_power_loss, commit_on, device, new};
    use crate::commit::checkpoint::CheckpointSink;
    use crate::content::file::WriteTimes;
    use crate::types::{FileFlags, RenameFlags};
    use medfs_device::{MemDevice, MemNvram};
    use medfs_format::Ino;
    use medfs_format::node::FileKind;
    use medfs_store::ManualClock;
    use std::time::Duration;

    fn open(device: &Arc<MemDevice>) -> Arc<Commit> {
        commit_on(device, "").expect("the volume opens")
    }

    fn root(on: &Commit) -> Ino {
        on.geo.root_ino
    }

    fn make(on: &Commit, dir: Ino, name: &str, kind: FileKind) -> Ino {
        on.create(dir, name.as_bytes(), &new(kind)).expect(name).ino
    }

    fn write(on: &Commit, ino: Ino, at: u64, data: &[u8]) {
        assert_eq!(on.write(ino, at, data, WriteTimes::Now).unwrap(), data.len());
    }

    /// A durable file with some pages, each of one byte.
    fn durable_file(on: &Commit, name: &str, pages: &[u8]) -> Ino {
        let file = make(on, root(on), name, FileKind::Regular);
        pages.iter().zip(0..).for_each(|(&byte, page)| write(on, file, page * 4096, &[byte; 4096]));
        on.write_back_all().unwrap();
        on.checkpoint_now().unwrap();
        file
    }

    fn find(on: &Commit, name: &str) -> Option<Ino> {
        on.lookup(root(on), name.as_bytes()).ok().map(|attr| attr.ino)
    }

    fn content(on: &Commit, name: &str) -> Option<Vec<u8>> {
        let ino = find(on, name)?;
        let mut content = vec![0; on.getattr(ino).unwrap().size as usize];
        on.read(ino, 0, &mut content).unwrap();
        Some(content)
    }

    fn checkpoints(on: &Commit) -> u64 {
        on.counters.checkpoints.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[test]
    fn what_was_fsynced_is_found_after_power_loss_and_nothing_else() {
        let device = device();
        let on = open(&device);
        let file = make(&on, root(&on), "f", FileKind::Regular);
        write(&on, file, 0, &[1; 20_000]);
        let before = checkpoints(&on);
        on.fsync(file, false).unwrap();
        make(&on, root(&on), "g", FileKind::Regular);
        write(&on, file, 0, &[2; 10]);
        assert_eq!(checkpoints(&on), before, "by the log");
        let again = open(&after_power_loss(&device));
        assert_eq!((content(&again, "f"), find(&again, "g")), (Some(vec![1; 20_000]), None));
        assert_eq!(again.counters.recovered_inodes.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[test]
    fn small_changes_of_a_durable_file_are_deltas_that_roll_forward() {
        let device = device();
        let on = open(&device);
        let file = durable_file(&on, "f", &[1, 2, 3, 4]);
        for n in 0..40u8 {
            write(&on, file, u64::from(n % 4) * 4096 + u64::from(n), &[n; 9]);
            on.fsync(file, n % 2 == 0).unwrap();
        }
        let now = content(&on, "f");
        assert!(on.deltas.counters.stats(&on.base_cache).made > 0);
        let again = open(&after_power_loss(&device));
        assert_eq!(content(&again, "f"), now);
        CheckpointSink.for_unmount(&again).unwrap();
        assert!(again.is_read_only(), "it is closed");
    }

    #[test]
    fn an_fsync_of_a_directory_makes_its_names_durable_without_a_checkpoint() {
        let device = device();
        let on = open(&device);
        let [_, gone] = ["a", "gone"].map(|name| durable_file(&on, name, &[5]));
        let before = checkpoints(&on);
        let made = make(&on, root(&on), "new", FileKind::Regular);
        on.fsync(made, false).unwrap();
        on.rename(root(&on), b"a", root(&on), b"b", RenameFlags::empty()).unwrap();
        on.unlink(root(&on), b"gone").unwrap();
        on.release(gone, 1).unwrap();
        on.fsync(root(&on), false).unwrap();
        assert_eq!(checkpoints(&on), before);
        let again = open(&after_power_loss(&device));
        let found = ["a", "b", "gone", "new"].map(|name| find(&again, name).is_some());
        assert_eq!(found, [false, true, false, true]);
    }

    #[test]
    fn a_new_directory_or_a_second_link_takes_a_checkpoint() {
        let on = open(&device());
        let dir = make(&on, root(&on), "d", FileKind::Directory);
        let file = make(&on, dir, "f", FileKind::Regular);
        let before = checkpoints(&on);
        on.fsync(file, false).unwrap();
        on.link(file, root(&on), b"second").unwrap();
        on.fsync(file, false).unwrap();
        on.fsync(dir, false).unwrap();
        assert!(checkpoints(&on) > before);
    }

    #[test]
    fn several_files_become_durable_by_one_flush() {
        let device = device();
        let on = open(&device);
        let files: Vec<Ino> = (0..8u8).map(|n| durable_file(&on, &format!("f{n}"), &[n, n])).collect();
        files.iter().for_each(|&file| write(&on, file, 100, b"changed"));
        let flushes = || on.io.counters.flushes.load(std::sync::atomic::Ordering::Relaxed);
        let before = flushes();
        on.fsync_many(&files, false).unwrap();
        assert!(flushes() - before <= 2, "{}", flushes() - before);
        let again = open(&after_power_loss(&device));
        assert!((0..8).all(|n| content(&again, &format!("f{n}")).unwrap()[100..107] == *b"changed"));
    }

    #[test]
    fn an_atomic_write_is_there_wholly_or_not_at_all() {
        let device = device();
        let on = open(&device);
        let file = durable_file(&on, "f", &[1, 1, 1]);
        on.atomic_start(file).unwrap();
        (0..3).for_each(|page| write(&on, file, page * 4096, &[9; 4096]));
        let half = open(&after_power_loss(&device));
        assert_eq!(content(&half, "f"), Some(vec![1; 3 * 4096]));
        on.atomic(file).unwrap();
        let whole = open(&after_power_loss(&device));
        assert_eq!(content(&whole, "f"), Some(vec![9; 3 * 4096]));
        assert!(on.atomic(file).is_err(), "there is none open");
        on.atomic_start(file).unwrap();
        write(&on, file, 0, b"dropped");
        on.atomic_abort(file).unwrap();
        assert_eq!(content(&on, "f"), Some(vec![9; 3 * 4096]));
    }

    #[test]
    fn flags_make_writes_and_names_synchronous() {
        let device = device();
        let on = open(&device);
        let file = durable_file(&on, "f", &[1]);
        on.set_flags(file, FileFlags::SYNC).unwrap();
        on.set_flags(root(&on), FileFlags::DIRSYNC).unwrap();
        write(&on, file, 0, b"at once");
        on.sync_written(file).unwrap();
        make(&on, root(&on), "g", FileKind::Regular);
        on.sync_names(&[root(&on)]).unwrap();
        let again = open(&after_power_loss(&device));
        assert!(content(&again, "f").unwrap().starts_with(b"at once") && find(&again, "g").is_some());
    }

    /// Makes a file that is replaced four times by one that is made from it; returns what it holds, and the
    /// retained one.
    fn replaced(on: &Commit, mut after_each: impl FnMut(&[u8])) -> (Vec<u8>, Ino) {
        let noise = (0..12 * 4096u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8);
        let mut expected: Vec<u8> = noise.collect();
        let old = make(on, root(on), "f.xml", FileKind::Regular);
        write(on, old, 0, &expected);
        on.fsync(old, false).unwrap();
        on.release(old, 1).unwrap();
        for round in 0..4u8 {
            CheckpointSink.sync(on).unwrap();
            expected[5000..5008].fill(round);
            let new = make(on, root(on), "f.xml.new", FileKind::Regular);
            write(on, new, 0, &expected);
            on.fsync(new, false).unwrap();
            on.rename(root(on), b"f.xml.new", root(on), b"f.xml", RenameFlags::empty()).unwrap();
            on.fsync(root(on), false).unwrap();
            on.release(new, 1).unwrap();
            after_each(&expected);
        }
        let source = on.retained.files().into_iter().next().expect("the first of them is retained");
        assert!(on.refs.others_need_any(source) && on.index.file().is_some());
        (expected, source)
    }

    #[test]
    fn a_file_in_place_of_another_is_made_from_it_and_both_survive() {
        let device = device();
        let on = open(&device);
        let (_, source) = replaced(&on, |expected| {
            let again = open(&after_power_loss(&device));
            assert_eq!(content(&again, "f.xml").as_deref(), Some(expected));
        });
        drop(on.unshare(source, 0..u64::MAX).unwrap());
        assert!(!on.refs.others_need_any(source));
        let file = find(&on, "f.xml").unwrap();
        on.unlink(root(&on), b"f.xml").unwrap();
        on.release(file, 1).unwrap();
        on.hidden().release().unwrap();
        assert!(on.retained.files().is_empty());
    }

    #[test]
    fn an_orphan_whose_blocks_a_file_needs_is_freed_once_that_file_is_durable_without_it() {
        let device = device();
        let on = open(&device);
        let (expected, source) = replaced(&on, |_| ());
        // As another driver may leave it, that lists it and knows of no refs.
        on.orphans.add_at_mount(source);
        on.edit(&on.inode(source).unwrap(), medfs_store::Dirty::Full, |r| r.i_links = 0.into());
        on.checkpoint_now().unwrap();
        let again = open(&after_power_loss(&device));
        assert!(again.inode(source).is_err() && !again.orphans.contains(source));
        assert_eq!(content(&again, "f.xml"), Some(expected));
    }

    #[test]
    fn adaptive_durability_commits_the_whole_volume_later() {
        let device = device();
        let on = commit_on(&device, "durability=adaptive,durability_fsyncs=3").unwrap();
        let file = make(&on, root(&on), "f", FileKind::Regular);
        let before = checkpoints(&on);
        for n in 0..2 {
            write(&on, file, 0, &[n; 100]);
            on.fsync(file, false).unwrap();
        }
        assert_eq!(checkpoints(&on), before);
        assert!(on.adaptive_stats().is_some());
        (2..6).for_each(|n| {
            write(&on, file, 0, &[n; 100]);
            on.fsync(file, false).unwrap();
        });
        assert!(checkpoints(&on) > before);
        assert!(find(&open(&after_power_loss(&device)), "f").is_some());
    }

    #[test]
    fn what_fsyncs_put_off_is_committed_in_order_before_the_next_change() {
        let device = device();
        let options = alone::options("");
        let ways = Ways::deferring(&options);
        let clock = Arc::new(ManualClock::new(alone::START));
        let on = crate::mount::mount(device.clone(), options, clock, ways, alone::no_cleaner()).unwrap();
        let file = make(&on, root(&on), "f", FileKind::Regular);
        on.fsync(file, false).unwrap();
        assert_eq!(find(&open(&after_power_loss(&device)), "f"), None);
        write(&on, file, 0, b"later");
        assert_eq!(content(&open(&after_power_loss(&device)), "f"), Some(Vec::new()));
        on.fsync(file, false).unwrap();
        on.commit_closed().unwrap();
        assert_eq!(content(&open(&after_power_loss(&device)), "f"), Some(b"later".to_vec()));
        assert!(!on.is_due(Duration::from_secs(100)));
    }

    #[test]
    fn records_in_nvram_hold_what_little_changed() {
        let device = device();
        let memory = Arc::new(MemNvram::new(1 << 20));
        let open_with = |device: &Arc<MemDevice>, memory: Arc<MemNvram>| {
            let options = alone::options("seal=off");
            let ways = Ways::with_nvram(&options, memory);
            let clock = Arc::new(ManualClock::new(alone::START));
            let on = crate::mount::mount(device.clone(), options, clock, ways, alone::no_cleaner()).unwrap();
            on.begin_nvram().unwrap();
            on
        };
        let on = open_with(&device, memory.clone());
        let file = durable_file(&on, "f", &[1, 2, 3]);
        let written = device.snapshot();
        for n in 0..10u8 {
            write(&on, file, u64::from(n) * 700, &[n; 50]);
            on.fsync(file, false).unwrap();
        }
        assert_eq!(device.snapshot().written(), written.written(), "no block is written");
        let now = content(&on, "f");
        let again = open_with(&after_power_loss(&device), Arc::new(MemNvram::of(memory.bytes())));
        assert_eq!(content(&again, "f"), now);
        CheckpointSink.for_unmount_in_both_packs(&again).unwrap();
        again.end_nvram().unwrap();
    }

    #[test]
    fn orphans_are_freed_and_a_read_only_mount_writes_nothing() {
        let device = device();
        let on = open(&device);
        let file = durable_file(&on, "f", &[1, 2]);
        on.unlink(root(&on), b"f").unwrap();
        on.checkpoint_now().unwrap();
        let copy = after_power_loss(&device);
        let reading = commit_on(&copy, "ro").unwrap();
        assert!(reading.is_read_only() && reading.orphans.contains(file));
        let again = open(&copy);
        assert!(again.inode(file).is_err() && !again.orphans.contains(file));
    }
}
