//! Pages of reserved files come home while nobody wants anything (ARS), as far as a budget of writes goes.
//!
//! Purpose: a page lies beside its home where it was written before its window had a section, or while its home
//! was not free. Few such pages come home of themselves, as that takes another write after a checkpoint. A round
//! lists the windows that have sections, where a checkpoint freed homes since the last one, or a file was passed over
//! as it was written often then. Each window is judged when its turn comes ([`Lies::pays`]), and its pages move in
//! parts.
//!
//! Invariants:
//! 1. A page moves to its home alone, and only while that may be written. Its old block stays until the next
//!    checkpoint, so a crash shows the same content either way.
//! 2. What is dirty stays, as it gets its place when it is written. What deltas and other pages are made from
//!    stays as well, and so do pinned and compressed files, files with an open atomic write, files of which too little
//!    is remembered to reserve for them, and files that are written often: their pages come home without help.
//! 3. A window is begun only where [`Allowance`] pays for all of it: none stays in more pieces for want of the
//!    rest.
//!
//! Locks: `state` is a leaf; pages are written as in [`crate::content::writeback`].

use crate::content::placement::Purpose;
use crate::error::{Error, Result};
use crate::file_ops::FileOps;
use crate::file_ops::defragment::{follows, home_of};
use crate::map::inode::Inode;
use crate::options::PlacementPolicy;
use crate::stats::Counters;
use crate::upkeep::idle::{Activity, IdleReport};
use medfs_format::node::FileKind;
use medfs_format::{BLOCK_SIZE, BlockAddr, Ino};
use medfs_sync::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Pages below which a piece of a file is small: 64 KiB, below which fragments are serious (ARS, Fig. 2).
const SMALL_PIECE: usize = 16;
/// Pages from which on a file is large, and comes together also where nobody reads it in order: 1 MiB.
const LARGE: u64 = 256;
/// Nodes that name the pages of a part, which the next checkpoint writes.
const NODES: u64 = 2;
const DAY: Duration = Duration::from_secs(86_400);

/// Blocks that may be written: so many a day, saved up for a day at most. A mount begins with none, so
/// mounting often gives no more.
#[derive(Debug)]
struct Allowance {
    began: Duration,
    /// Blocks that were written, or not used in time.
    spent: u64,
}

impl Allowance {
    /// Takes so many blocks, where they are there.
    fn pay(&mut self, blocks: u64, now: Duration, a_day: u64) -> bool {
        let passed = now.saturating_sub(self.began).as_millis();
        let earned = u128::from(a_day).saturating_mul(passed) / DAY.as_millis();
        let earned = u64::try_from(earned).unwrap_or(u64::MAX);
        self.spent = self.spent.max(earned.saturating_sub(a_day));
        let pays = earned.saturating_sub(self.spent) >= blocks;
        self.spent += if pays { blocks } else { 0 };
        pays
    }
}

/// Pages of a window of a file, with their blocks.
#[derive(Debug, Default)]
struct Lies {
    pages: Vec<(u64, BlockAddr)>,
    /// Of these, those that can come home now, and their homes.
    coming: BTreeMap<u64, BlockAddr>,
}

impl Lies {
    /// Of the pages of a window as they are now.
    fn of(fs: &FileOps, inode: &Inode, window: Range<u64>) -> Result<Lies> {
        let state = inode.lock.read();
        inode.check_alive(&state)?;
        if state.pages.draft().is_some() || !may_move(inode) || !fs.placement.reserves_for(inode) {
            return Ok(Lies::default());
        }
        let pages = fs.blocks_of(inode, window.start..window.end.min(inode.pages()))?;
        let reserved = fs.placement.reserved(inode.ino);
        let mut coming = BTreeMap::new();
        for &(page, addr) in &pages {
            let Some(home) = home_of(&fs.geo, &reserved, page).filter(|home| *home != addr) else { continue };
            if !state.pages.is_dirty(page) && fs.segs.lock().reserving(&fs.io).is_writable(home)? {
                coming.insert(page, home);
            }
        }
        let off_home: Vec<u64> = coming.keys().copied().collect();
        let free = fs.free_to_move(inode, &off_home)?;
        coming.retain(|page, _| free.binary_search(page).is_ok());
        Ok(Lies { pages, coming })
    }

    /// Whether they should come home: that takes no more writes for each piece fewer than a small piece has
    /// pages, and they are read in order or lie in small pieces.
    fn pays(&self, is_read_in_order: bool) -> bool {
        let now = self.pages.chunk_by(follows).count();
        let home = |&(page, addr)| (page, self.coming.get(&page).copied().unwrap_or(addr));
        let then: Vec<(u64, BlockAddr)> = self.pages.iter().map(home).collect();
        let fewer = now.saturating_sub(then.chunk_by(follows).count());
        fewer > 0
            && self.coming.len() <= fewer * SMALL_PIECE
            && (is_read_in_order || self.pages.len() < now * SMALL_PIECE)
    }
}

/// Whether pages of a file may move at all.
fn may_move(inode: &Inode) -> bool {
    inode.kind() == FileKind::Regular
        && !inode.is_inline()
        && !inode.is_pinned()
        && inode.raw(|r| r.compression().is_none())
}

/// Pages of a window that are to come home.
#[derive(Debug)]
struct Move {
    ino: Ino,
    pages: VecDeque<u64>,
    paid: bool,
}

#[derive(Debug)]
struct State {
    allowance: Allowance,
    /// Checkpoints that there had been when the last round began.
    checkpoints: Option<u64>,
    /// Windows of this round that are yet to be judged.
    pending: VecDeque<(Ino, u64)>,
    /// A window of this round was passed over, as its file was written often.
    passed_over: bool,
    /// What was decided and is not done.
    begun: Option<Move>,
}

/// What the task remembers.
#[derive(Debug)]
pub(crate) struct Homecoming {
    state: Mutex<State>,
}

impl Homecoming {
    /// Of a volume that is opened `now`.
    pub(crate) fn new(now: Duration) -> Homecoming {
        let allowance = Allowance { began: now, spent: 0 };
        let (pending, passed_over) = (VecDeque::new(), false);
        let state = State { allowance, checkpoints: None, pending, passed_over, begun: None };
        Homecoming { state: Mutex::new(state) }
    }

    /// Begins a round, where a checkpoint was made since the last one, or that passed a file over.
    pub(crate) fn begin(&self, fs: &FileOps) {
        if blocks_a_day(fs) == 0 {
            return;
        }
        let checkpoints = fs.counters.checkpoints.load(Ordering::Relaxed);
        {
            let mut state = self.state.lock();
            let is_later = state.checkpoints.replace(checkpoints) != Some(checkpoints);
            if !is_later && !state.passed_over {
                return;
            }
            state.passed_over = false;
        }
        let windows = fs.placement.windows();
        self.state.lock().pending = windows.into();
    }

    /// Brings about `budget` pages home, until the round ends, the allowance does, or something is wanted of
    /// the volume.
    pub(crate) fn bring_some(
        &self,
        fs: &FileOps,
        activity: &Activity,
        budget: u64,
        did: &mut IdleReport,
    ) -> Result<()> {
        // What was to move counts, wherever it went.
        let mut left = budget.saturating_sub(did.pages_written());
        while left > 0 && !activity.is_busy() {
            let Some(mut begun) = self.next(fs, activity)? else { break };
            let most = begun.pages.len().min(left as usize);
            left -= most as u64;
            let part: Vec<u64> = begun.pages.drain(..most).collect();
            let Some(brought) = pass_by(fs, begun.ino, bring(fs, begun.ino, &part))? else { continue };
            did.pages_brought_home += brought;
            Counters::add(&fs.counters.brought_home, brought);
            if !begun.pages.is_empty() {
                self.state.lock().begun = Some(begun);
            }
        }
        Ok(())
    }

    /// The move that is next, once it is paid for.
    fn next(&self, fs: &FileOps, activity: &Activity) -> Result<Option<Move>> {
        let begun = self.state.lock().begun.take();
        let Some(mut next) = begun.map_or_else(|| self.judge(fs, activity), |begun| Ok(Some(begun)))? else {
            return Ok(None);
        };
        let mut state = self.state.lock();
        let price = next.pages.len() as u64 + NODES;
        next.paid = next.paid || state.allowance.pay(price, fs.clock.monotonic(), blocks_a_day(fs));
        if next.paid {
            return Ok(Some(next));
        }
        if price <= blocks_a_day(fs) {
            state.begun = Some(next);
        }
        Ok(None)
    }

    /// Judges windows until one is to come home, or something is wanted of the volume.
    fn judge(&self, fs: &FileOps, activity: &Activity) -> Result<Option<Move>> {
        while !activity.is_busy() {
            let Some((ino, window)) = self.state.lock().pending.pop_front() else { break };
            if fs.profiles.hotness(ino).is_write_hot() {
                self.state.lock().passed_over = true;
                continue;
            }
            let Some(pages) = pass_by(fs, ino, coming(fs, ino, window))? else { continue };
            if !pages.is_empty() {
                return Ok(Some(Move { ino, pages, paid: false }));
            }
        }
        Ok(None)
    }
}

/// Blocks that may be written for this a day; none where nobody asked for reserves.
fn blocks_a_day(fs: &FileOps) -> u64 {
    match fs.opts.placement {
        PlacementPolicy::Reserve => fs.opts.defragment_budget / BLOCK_SIZE as u64,
        PlacementPolicy::Log => 0,
    }
}

/// A file that is gone, or cannot be moved, hinders no other.
fn pass_by<T>(fs: &FileOps, ino: Ino, result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(Error::NoSpace | Error::Posix(_)) => Ok(None),
        Err(e) if fs.is_damage(&e) => {
            fs.note_damage("a file keeps its fragments, as its pages cannot be moved", ino, &e);
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// The pages of a window of a file that are to come home.
fn coming(fs: &FileOps, ino: Ino, window: u64) -> Result<VecDeque<u64>> {
    let inode = fs.inode(ino)?;
    let is_read_in_order = fs.profiles.is_read_in_order(ino);
    if !is_read_in_order && inode.pages() < LARGE {
        return Ok(VecDeque::new());
    }
    let lies = Lies::of(fs, &inode, pages_of(fs, window))?;
    Ok(if lies.pays(is_read_in_order) { lies.coming.into_keys().collect() } else { VecDeque::new() })
}

/// Moves pages of a window home that still can be; returns how many are there now.
fn bring(fs: &FileOps, ino: Ino, part: &[u64]) -> Result<u64> {
    fs.make_room_to_write()?;
    let inode = fs.inode(ino)?;
    let (Some(&first), Some(&last)) = (part.first(), part.last()) else { return Ok(0) };
    let mut coming = Lies::of(fs, &inode, first..last + 1)?.coming;
    coming.retain(|page, _| part.binary_search(page).is_ok());
    let pages: Vec<u64> = coming.keys().copied().collect();
    fs.rewrite_pages(&inode, &pages, Purpose::Defragment, &fs.xref)?;
    let now = Lies::of(fs, &inode, first..last + 1)?.pages;
    Ok(now.iter().filter(|(page, addr)| coming.get(page) == Some(addr)).count() as u64)
}

/// The pages of a window.
fn pages_of(fs: &FileOps, window: u64) -> Range<u64> {
    let blocks = u64::from(fs.geo.blocks_per_section());
    window * blocks..(window + 1) * blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn an_allowance_is_earned_over_a_day_and_saved_for_one() {
        let began = 5 * HOUR;
        let mut allowance = Allowance { began, spent: 0 };
        let mut pay = |blocks, hours: u32| allowance.pay(blocks, began + hours * HOUR, 240);
        assert!(!pay(1, 0), "a mount begins with nothing");
        assert!(pay(10, 1) && !pay(1, 1));
        assert!(!pay(11, 2) && pay(10, 2));
        assert!(!pay(241, 24 * 100) && pay(240, 24 * 100) && !pay(1, 24 * 100));
        let mut large = Allowance { began: Duration::ZERO, spent: 0 };
        assert!(large.pay(1 << 40, Duration::MAX, u64::MAX));
    }

    /// Pages of a window from page 0 on, with their blocks; homes begin at block 1000.
    fn lies(addrs: impl IntoIterator<Item = BlockAddr>) -> Lies {
        let pages: Vec<(u64, BlockAddr)> = (0..).zip(addrs).collect();
        let home = |page: u64| 1000 + page as BlockAddr;
        let coming =
            pages.iter().filter(|&&(page, addr)| addr != home(page)).map(|&(page, _)| (page, home(page)));
        Lies { coming: coming.collect(), pages }
    }

    #[test]
    fn pieces_are_worth_a_small_piece_of_writes_each() {
        // One piece in the middle lies elsewhere: two pieces fewer.
        let apart = |len: u32| {
            lies(
                (0..200)
                    .map(move |page| if (50..50 + len).contains(&page) { 9000 + page } else { 1000 + page }),
            )
        };
        assert!(apart(1).pays(true) && apart(32).pays(true));
        assert!(!apart(33).pays(true));
        assert!(!apart(1).pays(false), "few pieces hurt nobody who does not read in order");
        assert!(!apart(0).pays(true) && !lies([]).pays(true));
        let whole = lies((0..40).map(|page| 9000 + page));
        assert!(!whole.pays(true), "it is in one piece elsewhere");
    }

    #[test]
    fn small_pieces_come_together_whoever_reads_them() {
        let scattered = |step: u32| lies((0..100).map(move |page| 9000 + page * 3 - page % step * 2));
        assert!(scattered(1).pays(false) && scattered(12).pays(false));
        assert!(!scattered(17).pays(false));
    }

    #[test]
    fn what_stays_counts_in_both_ways() {
        let mut lies = lies((0..64).map(|page| if page % 2 == 0 { 9000 + page * 3 } else { 1000 + page }));
        assert!(lies.pays(true));
        lies.coming.clear();
        assert!(!lies.pays(true));
    }
}
