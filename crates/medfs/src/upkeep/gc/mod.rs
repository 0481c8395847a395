//! Making room: checkpoints when memory is short, cleaning when free sections are.
//!
//! Cleaning empties a section by moving what is valid in it: nodes are marked and leave with the next checkpoint, pages
//! of files are rewritten to the cold data log. The section is free after that checkpoint; until then the old blocks
//! stay as they are (rule 1 of docs/ARCHITECTURE.md), so a crash in the middle loses nothing.
//!
//! Invariants: the section being emptied is withheld from the logs ([`medfs_store::Withheld`]). A block that
//! cannot be moved (pinned file, no room) stays valid where it is, and its section is left alone for a while;
//! one that is damaged or cannot be read, until the next mount. No writer hears of that.
//! Locks: `gc` for the whole of a cleaning; the others as [`crate::ranks`] orders them, none across steps.
//! Kernel counterpart: `gc.c`, `f2fs_balance_fs` in `segment.c`.

mod evacuate;
mod room;
mod tests;
mod victim;

use crate::error::{Error, Result};
use crate::file_ops::FileOps;
use crate::file_ops::above::Reclaim;
use crate::ranks;
use crate::stats::Counters;
use evacuate::{Emptied, Evacuation};
use medfs_format::BLOCKS_PER_SEG;
use medfs_store::FreeFor;
use medfs_sync::{Mutex, Ranked};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Dirty NAT entries that make a checkpoint due.
const MAX_DIRTY_NAT: usize = 1 << 16;
/// Prefree segments that make a checkpoint due, as a part of the main area (the kernel's 5 %).
const PREFREE_PART: u32 = 20;
/// Most prefree segments in any case (the kernel's 4 GiB).
const MAX_PREFREE: u32 = 2048;
/// Sections emptied between two checkpoints.
const SECTIONS_PER_CHECKPOINT: u32 = 4;
/// Changes of names, and the like, noted since the last checkpoint, that make one due.
const MAX_NOTED: usize = 1 << 16;
/// Writes that pass after a cleaning without success before the next is tried.
const REST_AFTER_FAILURE: u64 = 256;
/// Background cleaning waits until this part (in percent) of the unused space lies in holes between valid blocks.
const HOLES_PERCENT: u64 = 60;

/// What cleaning remembers.
#[derive(Debug, Default)]
struct Cleaner {
    /// Section where the search for the next victim of background cleaning starts.
    next: u32,
    /// Sections that could not be emptied.
    stuck: BTreeSet<u32>,
    /// Sections that hold something which cannot be read: they are left alone until the next mount.
    damaged: BTreeSet<u32>,
    /// No cleaning for want of space before the device's write mark reaches this.
    rest_until: u64,
}

/// The cleaner of a volume, and what makes room for its operations.
pub(crate) struct Gc {
    cleaner: Mutex<Cleaner>,
}

impl Default for Gc {
    fn default() -> Gc {
        Gc { cleaner: Mutex::default().ranked(ranks::GC) }
    }
}

impl Reclaim for Gc {
    /// Keeps what a checkpoint has to
    /// write, and the free sections, within bounds. Where nothing can be gained it returns all the same; reservations
    /// then refuse what does not fit.
    fn make_room(&self, fs: &FileOps) -> Result<()> {
        if fs.is_read_only() {
            return Ok(());
        }
        match self.try_to_make_room(fs) {
            Err(Error::NoSpace) => Ok(()),
            made => made,
        }
    }

    fn make_room_for(&self, fs: &FileOps, blocks: u64) -> Result<()> {
        self.find_room_for(fs, blocks)
    }
}

impl Gc {
    fn try_to_make_room(&self, fs: &FileOps) -> Result<()> {
        fs.placement.relieve(&fs.store);
        room::keep_for_checkpoint(fs)?;
        if fs.nodes.dirty_count() > fs.nodes.limit() / 2
            || fs.nat.dirty_count() > MAX_DIRTY_NAT
            || noted_since_checkpoint(fs) > MAX_NOTED
        {
            fs.checkpoint_now()?;
        }
        let room = Room::of(fs);
        if room.prefree > MAX_PREFREE.min(fs.geo.segment_count_main / PREFREE_PART).max(2) {
            fs.checkpoint_now()?;
        }
        if room.is_short() { self.clean_for_space(fs) } else { Ok(()) }
    }

    /// Cleans until free sections suffice, or until that brings nothing.
    fn clean_for_space(&self, fs: &FileOps) -> Result<()> {
        if fs.placement.give_back(&fs.store) && !Room::of(fs).is_short() {
            return Ok(());
        }
        let mut cleaner = self.cleaner.lock();
        if fs.io.write_mark() < cleaner.rest_until {
            return Ok(());
        }
        loop {
            let room = Room::of(fs);
            if !room.is_short() {
                return Ok(());
            }
            // What was freed since the last checkpoint comes first: it costs no moving.
            if room.prefree > 0 || fs.space.counts().since_checkpoint >= u64::from(BLOCKS_PER_SEG) {
                fs.checkpoint_now()?;
                if !Room::of(fs).is_short() {
                    return Ok(());
                }
            }
            let before = Room::of(fs).free;
            let most = SECTIONS_PER_CHECKPOINT.min(room.wanted + 1 - before);
            cleaner.clean_sections(fs, most)?;
            if Room::of(fs).free <= before {
                cleaner.rest_until = fs.io.write_mark() + REST_AFTER_FAILURE;
                cleaner.stuck.clear();
                return Ok(());
            }
        }
    }

    /// Cleans one section if much of the unused space lies in holes. The caller has seen that the volume is idle.
    /// Tells whether it did anything.
    pub(crate) fn clean_in_background(&self, fs: &FileOps) -> Result<bool> {
        if fs.is_read_only() || !is_cleaning_worthwhile(fs) {
            return Ok(false);
        }
        let mut cleaner = self.cleaner.lock();
        fs.segs.lock().free.end_evacuation();
        let Some(section) = cleaner.find_victim(fs, victim::policy(fs.opts.victim))? else {
            return Ok(false);
        };
        cleaner.clean_section(fs, section)?;
        Ok(true)
    }
}

impl Cleaner {
    /// Empties sections, and makes the checkpoint that frees them.
    fn clean_sections(&mut self, fs: &FileOps, most: u32) -> Result<()> {
        let cleaned = self.empty_sections(fs, most);
        let cleaned = cleaned.and_then(|emptied| if emptied > 0 { fs.checkpoint_now() } else { Ok(()) });
        fs.segs.lock().free.end_evacuation();
        cleaned
    }

    fn empty_sections(&mut self, fs: &FileOps, most: u32) -> Result<u32> {
        let mut emptied = 0;
        while emptied < most
            && let Some(section) = self.find_victim(fs, &victim::Greedy)?
        {
            self.clean_section(fs, section)?;
            Counters::add(&fs.counters.gc_foreground, 1);
            emptied += 1;
        }
        Ok(emptied)
    }

    /// Empties one section. Damage and want of space leave it as it is.
    fn clean_section(&mut self, fs: &FileOps, section: u32) -> Result<()> {
        Counters::add(&fs.counters.gc_sections, 1);
        {
            let mut segs = fs.segs.lock();
            segs.reserving(&fs.io).release(section);
            segs.free.begin_evacuation(section);
        }
        fs.op().map(|_op| fs.since.cut_off.free_all(fs))?;
        let emptied = match (Evacuation { fs }).evacuate(section) {
            Ok(Emptied::Wholly) => return Ok(()),
            Ok(emptied) => emptied,
            Err(e) if fs.is_damage(&e) => {
                fs.note_damage("the cleaner skips a section", 0, &e);
                Emptied::Damaged
            }
            Err(e @ (Error::NoSpace | Error::Posix(_))) => {
                tracing::warn!(section, error = %e, "the cleaner skipped a section");
                Emptied::InPart
            }
            Err(e) => return Err(e),
        };
        let left = if emptied == Emptied::Damaged { &mut self.damaged } else { &mut self.stuck };
        left.insert(section);
        Ok(())
    }
}

/// What is noted, of names most of all, until the next checkpoint.
fn noted_since_checkpoint(fs: &FileOps) -> usize {
    fs.since.moved_names.lock().len()
        + fs.since.left_by_dirs.lock().len()
        + fs.since.trans_dirs.lock().len()
        + fs.since.renamed_files.lock().len()
        + fs.since.cut_trees.lock().len()
        + fs.since.names.load(Ordering::Relaxed)
}

/// Whether writing so many blocks could lead to cleaning, or to a checkpoint for want of space.
pub(crate) fn is_nearly_full(fs: &FileOps, blocks: usize) -> bool {
    let room = Room::of(fs);
    let sections = (blocks as u32).div_ceil(fs.geo.blocks_per_section());
    room.free <= room.wanted + sections || !fs.space.room_for_rewriting(blocks as u64)
}

fn is_cleaning_worthwhile(fs: &FileOps) -> bool {
    let counts = fs.space.counts();
    let unused = counts.user_blocks.saturating_sub(counts.valid_blocks);
    let spare = u64::from(fs.geo.main_blocks()).saturating_sub(counts.user_blocks);
    let segs = fs.segs.lock();
    let free =
        u64::from(segs.free.segments(FreeFor::Volume) + segs.prefree_segments()) * u64::from(BLOCKS_PER_SEG);
    let in_holes = unused.saturating_sub(free.saturating_sub(spare));
    in_holes * 100 > unused * HOLES_PERCENT
}

/// Free sections against what is wanted.
#[derive(Debug, Clone, Copy)]
struct Room {
    free: u32,
    /// Segments that a checkpoint would free.
    prefree: u32,
    /// Sections that the next checkpoint may need, and those kept for cleaning.
    wanted: u32,
}

impl Room {
    fn of(fs: &FileOps) -> Room {
        let per_section = fs.geo.blocks_per_section() as usize;
        let nodes = fs.nodes.dirty_count().div_ceil(per_section) as u32;
        let dentries = u32::from(fs.pages.dirty() > 0);
        let segs = fs.segs.lock();
        Room {
            free: segs.free.sections(),
            prefree: segs.prefree_segments(),
            wanted: segs.reserved_sections() + nodes + dentries,
        }
    }

    fn is_short(&self) -> bool {
        self.free <= self.wanted
    }
}
