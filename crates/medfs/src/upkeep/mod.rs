//! Upkeep: what the engine does of its own accord: cleaning, restoring, bringing pages home, discarding.
//!
//! Invariant: nothing here is needed for a promise; an error of reading ends the step, not the volume.
//! Locks: `gc`; see `ranks.rs`.

pub(crate) mod gc;
pub(crate) mod homecoming;
pub(crate) mod idle;
pub(crate) mod restore;
pub(crate) mod rewrite_window;
pub(crate) mod trim;

use crate::commit::Commit;
use crate::commit::checkpoint::CheckpointSink;
use crate::error::Result;
use crate::stats::RestoreStats;
use gc::Gc;
use idle::{IdleReport, IdleWork, STEP_PAGES};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Work that nobody asks for. The front end's timer goes through the list; each task says whether it is due.
pub(crate) trait UpkeepTask: Send + Sync {
    /// Whether there is something to do, by the monotonic clock of the volume.
    fn is_due(&self, on: &Commit, now: Duration) -> bool;

    /// Does a part of it. `Break`: that was enough for this time.
    fn step(&self, on: &Commit) -> Result<ControlFlow<()>>;
}

/// The upkeep of a volume.
pub(crate) struct Upkeep {
    /// The most urgent first.
    tasks: Vec<Box<dyn UpkeepTask>>,
    idle: Arc<IdleWork>,
}

impl Upkeep {
    pub(crate) fn new(gc: Arc<Gc>, now: Duration) -> Upkeep {
        let idle = Arc::new(IdleWork::new(now));
        let tasks: Vec<Box<dyn UpkeepTask>> = vec![
            Box::new(RecordTimer),
            Box::new(RecordCompaction),
            Box::new(CommitTimer),
            Box::new(BackgroundCleaning(gc)),
            Box::new(WhenIdle(idle.clone())),
        ];
        Upkeep { tasks, idle }
    }

    /// One round of what is due.
    pub(crate) fn background(&self, on: &Commit) -> Result<()> {
        let now = on.clock.monotonic();
        for task in &self.tasks {
            if task.is_due(on, now) && task.step(on)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Something is wanted of the volume: it is not idle.
    pub(crate) fn note_wanted(&self) {
        self.idle.activity.note();
    }

    /// Whether anything was since the timer last looked.
    pub(crate) fn was_wanted(&self) -> bool {
        self.idle.activity.is_busy()
    }

    /// One step of idle work, of about `budget` pages.
    pub(crate) fn idle_work(&self, on: &Commit, budget: u64) -> Result<IdleReport> {
        self.idle.step(on, budget)
    }

    pub(crate) fn restored(&self) -> RestoreStats {
        self.idle.restorer.stats()
    }
}

/// Records in NVRAM what has waited for as long as the option `nvram_commit` allows.
struct RecordTimer;

impl UpkeepTask for RecordTimer {
    fn is_due(&self, on: &Commit, now: Duration) -> bool {
        on.records_are_due(now)
    }

    fn step(&self, on: &Commit) -> Result<ControlFlow<()>> {
        on.record_unsynced()?;
        Ok(ControlFlow::Continue(()))
    }
}

/// Makes room in the NVRAM by one record for all, where that saves a checkpoint.
struct RecordCompaction;

impl UpkeepTask for RecordCompaction {
    fn is_due(&self, on: &Commit, _: Duration) -> bool {
        on.ways.nvram.as_ref().is_some_and(|nvram| nvram.is_to_compact())
    }

    fn step(&self, on: &Commit) -> Result<ControlFlow<()>> {
        on.ways.nvram.iter().for_each(|nvram| nvram.compact(on));
        Ok(ControlFlow::Continue(()))
    }
}

/// Commits what has waited for as long as the option `commit` allows, or the durability. Records in NVRAM that hold all
/// of it are durable already.
struct CommitTimer;

impl UpkeepTask for CommitTimer {
    fn is_due(&self, on: &Commit, now: Duration) -> bool {
        let held_at = on.ways.nvram.as_ref().map_or(Duration::ZERO, |nvram| nvram.all_held_at());
        let since = now.saturating_sub(held_at.max(*on.last_checkpoint_at.lock()));
        on.has_changes_to_commit() && (since >= on.opts.commit_interval || on.is_due(now))
    }

    fn step(&self, on: &Commit) -> Result<ControlFlow<()>> {
        // Several apps may be due.
        while on.commit_due_app()? {
            if !on.is_due(on.clock.monotonic()) {
                return Ok(ControlFlow::Break(()));
            }
        }
        let now = on.clock.monotonic();
        if on.ways.nvram.as_ref().is_some_and(|nvram| !nvram.is_due(now)) && on.records_hold_all()? {
            return Ok(ControlFlow::Continue(()));
        }
        CheckpointSink.sync(on)?;
        Ok(ControlFlow::Break(()))
    }
}

/// Cleans a section where much of the unused space lies in holes.
struct BackgroundCleaning(Arc<Gc>);

impl UpkeepTask for BackgroundCleaning {
    fn is_due(&self, on: &Commit, _: Duration) -> bool {
        on.opts.background_gc
    }

    fn step(&self, on: &Commit) -> Result<ControlFlow<()>> {
        self.0.clean_in_background(on)?;
        Ok(ControlFlow::Continue(()))
    }
}

/// Regroups and restores files and brings pages home, where nothing was wanted for as long as the option `idle` says.
struct WhenIdle(Arc<IdleWork>);

impl UpkeepTask for WhenIdle {
    fn is_due(&self, on: &Commit, now: Duration) -> bool {
        self.0.activity.idle_for(now) >= on.opts.idle_after
    }

    fn step(&self, on: &Commit) -> Result<ControlFlow<()>> {
        self.0.step(on, STEP_PAGES)?;
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{self, device, new};
    use crate::commit::Ways;
    use crate::content::file::WriteTimes;
    use crate::mount::mount;
    use crate::upkeep::restore::restore_file;
    use crate::upkeep::trim::trim;
    use medfs_device::MemDevice;
    use medfs_format::Ino;
    use medfs_format::node::FileKind;
    use medfs_store::ManualClock;
    use std::sync::atomic::Ordering;

    struct Opened {
        on: Arc<Commit>,
        upkeep: Upkeep,
        gc: Arc<Gc>,
        clock: Arc<ManualClock>,
    }

    fn open(device: &Arc<MemDevice>, text: &str) -> Opened {
        let (options, clock) = (alone::options(text), Arc::new(ManualClock::new(alone::START)));
        let (gc, ways) = (Arc::new(Gc::default()), Ways::new(&options));
        let on = mount(device.clone(), options, clock.clone(), ways, gc.clone()).expect("the volume opens");
        let upkeep = Upkeep::new(gc.clone(), on.clock.monotonic());
        Opened { on, upkeep, gc, clock }
    }

    fn file(on: &Commit, name: &str, pages: u64) -> Ino {
        let file = on.create(on.geo.root_ino, name.as_bytes(), &new(FileKind::Regular)).expect(name).ino;
        for page in 0..pages {
            let byte = [page as u8 ^ name.len() as u8; 4096];
            on.write(file, page * 4096, &byte, WriteTimes::Now).unwrap();
        }
        file
    }

    #[test]
    fn the_commit_timer_commits_when_the_interval_has_passed() {
        let Opened { on, upkeep, clock, .. } = open(&device(), "commit=5s");
        file(&on, "f", 3);
        upkeep.background(&on).unwrap();
        assert!(on.pages.dirty() > 0);
        clock.advance(Duration::from_secs(6));
        upkeep.background(&on).unwrap();
        assert_eq!((on.pages.dirty(), on.has_changes_to_commit()), (0, false));
    }

    #[test]
    fn cleaning_gives_back_the_holes_of_a_full_volume() {
        let Opened { on, gc, .. } = open(&device(), "");
        let mut files = Vec::new();
        for n in 0.. {
            let before = on.space.counts().free();
            if before < 3000 {
                break;
            }
            files.push(file(&on, &format!("f{n}"), 100));
            on.write_back_all().unwrap();
        }
        on.checkpoint_now().unwrap();
        for &file in &files {
            for page in (0..100).step_by(2) {
                let punch = crate::types::FallocateMode::PUNCH_HOLE | crate::types::FallocateMode::KEEP_SIZE;
                on.fallocate(file, punch, page * 4096, 4096).unwrap();
            }
        }
        on.checkpoint_now().unwrap();
        let cleaned = || on.counters.gc_sections.load(Ordering::Relaxed);
        assert_eq!(cleaned(), 0);
        assert!(gc.clean_in_background(&on).unwrap());
        assert_eq!(cleaned(), 1);
        on.checkpoint_now().unwrap();
        while gc.clean_in_background(&on).unwrap() {
            on.checkpoint_now().unwrap();
        }
        on.make_room_for(500).unwrap();
        assert!(on.make_room_for(1 << 20).is_err(), "more than the volume has");
        let mut page = [0; 4096];
        for &file in &files {
            on.read(file, 4096, &mut page).unwrap();
            assert!(page.iter().all(|&byte| byte == page[0]) && page[0] != 0);
        }
    }

    #[test]
    fn idle_work_restores_what_is_read_often() {
        let Opened { on, upkeep, clock, .. } = open(&device(), "hot_window=10s,idle=1s");
        let hot = file(&on, "hot", 8);
        on.write_back_all().unwrap();
        on.checkpoint_now().unwrap();
        for page in 0..8 {
            on.write(hot, page * 4096 + 9, b"small", WriteTimes::Now).unwrap();
        }
        on.fsync(hot, false).unwrap();
        let inode = on.inode(hot).unwrap();
        let deltas = || on.deltas().delta_pages(&inode, 0..u64::MAX).unwrap().len();
        assert!(deltas() > 0);
        let mut buf = vec![0; 8 * 4096];
        for _ in 0..200 {
            on.read(hot, 0, &mut buf).unwrap();
        }
        // A file that is only written gives the groups something to tell apart.
        let cold = file(&on, "cold", 4);
        for round in 0..50 {
            on.write(cold, 0, &[round; 100], WriteTimes::Now).unwrap();
        }
        clock.advance(Duration::from_secs(11));
        on.profiles.tick(on.clock.monotonic());
        assert!(upkeep.idle_work(&on, 64).unwrap().reclustered);
        for _ in 0..10 {
            upkeep.idle_work(&on, 64).unwrap();
        }
        restore_file(&on, hot).unwrap();
        assert_eq!(deltas(), 0);
        upkeep.note_wanted();
        assert!(upkeep.restored().files <= 1);
        clock.advance(Duration::from_secs(30));
        upkeep.background(&on).unwrap();
        let mut again = vec![0; 8 * 4096];
        on.read(hot, 0, &mut again).unwrap();
        assert_eq!(again, buf);
    }

    #[test]
    fn trim_discards_what_is_free() {
        let Opened { on, .. } = open(&device(), "");
        let size = on.geo.block_count * 4096;
        assert!(trim(&on, 0, size, 4096).unwrap() > size / 2);
        assert_eq!(trim(&on, 0, 4096, 4096).unwrap(), 0, "before the main area");
        assert!(trim(&on, size, 4096, 0).is_err() && trim(&on, 0, 100, 0).is_err());
    }
}
