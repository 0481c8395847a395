//! BGRes: pages of files that are read often, not written, and stored as deltas or compressed alone become blocks again
//! (MedFS, section 4.2.1).
//!
//! A round begins when the groups of hotness were made anew: it lists the files that have such pages. Each
//! step of idle work goes on in the list and judges each file when its turn comes. A file is restored in
//! parts of a few megabytes. Of one that is read in order, neighbours of restored pages are written with them
//! where that makes a window whole ([`crate::upkeep::rewrite_window`]).
//!
//! Invariants: a page goes to a new block, and its base stays until a checkpoint has made the inode without
//! the delta durable, as `make_whole` of [`crate::delta`] arranges: a crash shows the same content either
//! way. A neighbour goes to a new block as what it was, and its old one stays until then too. A file that
//! cannot be restored (damage, want of space) stays as it is and hinders no other.
//! Locks: `pending` is a leaf; files are written back as in [`crate::content::writeback`].

use crate::content::placement::{Batch, Purpose};
use crate::error::{Error, Result};
use crate::file_ops::FileOps;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use crate::profile::Hotness;
use crate::stats::{Counters, RestoreStats};
use crate::upkeep::gc::is_nearly_full;
use crate::upkeep::idle::{Activity, IdleReport};
use crate::upkeep::rewrite_window::{BlockState, RewriteBudget, WINDOW_PAGES, Window};
use medfs_device::Cause;
use medfs_format::node::{FileKind, Inline};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Ino, is_block};
use medfs_sync::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::IntoBytes;

/// Windows with pages to restore that make a part of a file.
const PART: usize = 16;

/// What restoring remembers.
#[derive(Debug, Default)]
pub(crate) struct Restorer {
    /// Files of this round that are yet to be judged.
    pending: Mutex<VecDeque<Ino>>,
    rounds: AtomicU64,
    files: AtomicU64,
    pages: AtomicU64,
    moved: AtomicU64,
}

impl Restorer {
    pub(crate) fn stats(&self) -> RestoreStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RestoreStats {
            rounds: get(&self.rounds),
            files: get(&self.files),
            pages: get(&self.pages),
            moved: get(&self.moved),
        }
    }

    fn note(&self, part: RestoreStep) {
        Counters::add(&self.files, u64::from(part.ends_file()));
        Counters::add(&self.pages, part.pages);
        Counters::add(&self.moved, part.moved);
    }
}

/// What became of a part of a file.
#[derive(Debug, Clone, Copy)]
struct RestoreStep {
    /// Pages that are blocks again.
    pages: u64,
    /// Neighbours that were written with them.
    moved: u64,
    /// The file has more pages to restore.
    more: bool,
}

impl RestoreStep {
    fn ends_file(self) -> bool {
        self.pages > 0 && !self.more
    }
}

impl Restorer {
    /// Begins a round; what is left of the last one is listed again.
    pub(crate) fn begin(&self, fs: &FileOps) {
        if restores(fs) {
            let files = files_with_compact_pages(fs);
            *self.pending.lock() = files.into();
            Counters::add(&self.rounds, 1);
        }
    }

    /// Judges files and writes about `budget` pages to restore some, until the round ends or something is
    /// wanted of the volume.
    pub(crate) fn restore_some(
        &self,
        fs: &FileOps,
        activity: &Activity,
        budget: u64,
        did: &mut IdleReport,
    ) -> Result<()> {
        let has_budget = |did: &IdleReport| did.pages_restored + did.pages_moved < budget;
        while restores(fs) && has_budget(did) && !activity.is_busy() {
            let Some(ino) = self.pending.lock().pop_front() else { break };
            did.files_judged += 1;
            if fs.profiles.hotness(ino) != Hotness::ReadHot {
                continue;
            }
            let part = match (Restoring { fs, restorer: self })
                .restore_part(ino, fs.profiles.is_read_in_order(ino))
            {
                Ok(part) => part,
                Err(e) if fs.is_damage(&e) || matches!(e, Error::NoSpace | Error::Posix(_)) => {
                    fs.note_damage("a file keeps its deltas, as it cannot be restored", ino, &e);
                    continue;
                }
                Err(e) => return Err(e),
            };
            did.files_restored += u64::from(part.ends_file());
            did.pages_restored += part.pages;
            did.pages_moved += part.moved;
            self.note(part);
            if part.more {
                self.pending.lock().push_front(ino);
            }
        }
        Ok(())
    }
}

fn restores(fs: &FileOps) -> bool {
    fs.opts.restore && fs.deltas.makes_records()
}

/// Files that have pages to restore: those in memory, where every file is that was read lately.
fn files_with_compact_pages(fs: &FileOps) -> Vec<Ino> {
    let mut files: Vec<Ino> = fs
        .inodes
        .loaded()
        .iter()
        .filter(|inode| inode.kind() == FileKind::Regular && fs.deltas().has_deltas(inode))
        .map(|inode| inode.ino)
        .collect();
    files.sort_unstable();
    files
}

/// Writes each page of a file that is a delta to a block of its own, or its cluster anew.
pub(crate) fn restore_file(fs: &FileOps, ino: Ino) -> Result<()> {
    let restorer = Restorer::default();
    while (Restoring { fs, restorer: &restorer }).restore_part(ino, false)?.more {}
    Ok(())
}

/// Restoring a file of a volume.
struct Restoring<'a> {
    fs: &'a FileOps,
    restorer: &'a Restorer,
}

impl Restoring<'_> {
    /// The same for a part of the file, with windows made whole where that is asked for and pays. A part that
    /// is not the last may write some compact pages that say which pages have no delta any more.
    fn restore_part(&self, ino: Ino, whole_windows: bool) -> Result<RestoreStep> {
        let inode = self.fs.inode(ino)?;
        self.fs.check_writable()?;
        self.fs.make_room()?;
        let _wb = inode.wb.lock();
        let _op = self.fs.op()?;
        self.fs.xref.find_companion(&inode);
        let mut state = inode.lock.write();
        inode.check_alive(&state)?;
        if self.fs.is_released(&inode) {
            return Ok(RestoreStep { pages: 0, moved: 0, more: false });
        }
        let mut pages = self.fs.deltas().delta_pages(&inode, 0..u64::MAX)?;
        // What others are made from would take its users along, or get the same delta again.
        pages.retain(|&page| !self.fs.refs.is_source(ino, page));
        // Clusters are not divided.
        let more = self.fs.compression(&inode).is_none() && keep_part(&mut pages);
        let neighbours =
            if whole_windows { self.neighbours(&inode, &state, &pages)? } else { BTreeMap::new() };
        let whole = pages.iter().try_for_each(|&page| self.fs.deltas().make_whole(&inode, &mut state, page));
        let left = self.leave_emptied(&inode, &mut state);
        for (&index, page) in neighbours.iter().filter(|_| whole.is_ok()) {
            self.fs.pages.remove(ino, index);
            self.fs.add_dirty_page(&inode, &mut state, index, page.clone());
            pages.push(index);
        }
        pages.sort_unstable();
        let placing = self.fs.place_pages(&inode, &mut state, &pages, Purpose::Restore, &self.fs.xref);
        let placed = placing.pages.iter().filter(|page| !page.compact).count() as u64;
        let moved = placing.pages.iter().filter(|page| neighbours.contains_key(&page.index)).count() as u64;
        drop(state);
        let written = self.fs.write_placing(&inode, placing, Cause::Data).and_then(|(_, outcome)| outcome);
        written.and(whole).and(left)?;
        Ok(RestoreStep { pages: placed - moved, moved, more })
    }

    /// Frees the compact pages of a file that has no deltas any more: who reads it would have to read them.
    fn leave_emptied(&self, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        match self.fs.deltas().delta_pages(inode, 0..u64::MAX)?.is_empty() {
            true => self.fs.deltas().compact().leave_compact(inode, state),
            false => Ok(()),
        }
    }
}

/// Leaves the first windows of sorted pages, as many as make a part; tells whether there are more.
fn keep_part(pages: &mut Vec<u64>) -> bool {
    let windows = pages.chunk_by(|a, b| a / WINDOW_PAGES == b / WINDOW_PAGES);
    let kept = windows.take(PART).map(<[u64]>::len).sum();
    let more = kept < pages.len();
    pages.truncate(kept);
    more
}

impl Restoring<'_> {
    /// The pages that are written with those to restore, so that the windows of these lie in one piece.
    fn neighbours(
        &self,
        inode: &Arc<Inode>,
        state: &InodeState,
        pages: &[u64],
    ) -> Result<BTreeMap<u64, Arc<Block>>> {
        let mut found = BTreeMap::new();
        if self.fs.compression(inode).is_some() || inode.raw(|r| r.inline().contains(Inline::PIN_FILE)) {
            return Ok(found);
        }
        let RestoreStats { pages: restored, moved, .. } = self.restorer.stats();
        let mut policy = RewriteBudget::new(self.fs.costs.lock().reading(), restored, moved);
        let ahead = self.ahead(inode)?;
        let mut ahead = &ahead[..];
        for restored in pages.chunk_by(|a, b| a / WINDOW_PAGES == b / WINDOW_PAGES) {
            let window = self.window(inode, state, restored)?;
            let mut written = restored.len();
            if policy.take(&window, ahead) {
                let neighbours = self.read_neighbours(inode, state, &window)?;
                written += neighbours.len();
                found.extend(neighbours);
            }
            ahead = ahead.get(written..).unwrap_or_default();
        }
        Ok(found)
    }

    /// The window of some pages that are restored; without neighbours where it has pages that are to be written anyway.
    fn window(&self, inode: &Inode, state: &InodeState, restored: &[u64]) -> Result<Window> {
        let mut window = Window { pages: restored.iter().map(|&page| (page, BlockState::Moving)).collect() };
        let first = restored[0] / WINDOW_PAGES * WINDOW_PAGES;
        if state.pages.dirty(first..first + WINDOW_PAGES).next().is_some() {
            return Ok(window);
        }
        let mut near: Option<Slot> = None;
        for index in (first..inode.pages().min(first + WINDOW_PAGES)).filter(|i| !restored.contains(i)) {
            near = self.fs.find_slot_near(inode, near.as_ref(), index)?;
            let Some(addr) = near.as_ref().map(Slot::addr).filter(|&addr| is_block(addr)) else { continue };
            let fixed = self.fs.refs.is_source(inode.ino, index);
            window
                .pages
                .push((index, if fixed { BlockState::Pinned(addr) } else { BlockState::Movable(addr) }));
        }
        Ok(window)
    }

    /// Reads what a window's neighbours hold; none of them where that cannot be done, so that they stay where they are.
    fn read_neighbours(
        &self,
        inode: &Inode,
        state: &InodeState,
        window: &Window,
    ) -> Result<Vec<(u64, Arc<Block>)>> {
        let indices: Vec<u64> = window.neighbours().collect();
        let (Some(&first), Some(&last)) = (indices.first(), indices.last()) else { return Ok(Vec::new()) };
        let mut read = vec![Block::ZERO; (last - first) as usize + 1];
        match self.fs.read_range(inode, state, first * BLOCK_SIZE as u64, read.as_mut_bytes()) {
            Ok(()) => {}
            Err(e) if self.fs.is_damage(&e) => {
                self.fs.note_damage("a window stays in pieces", inode.ino, &e);
                return Ok(Vec::new());
            }
            Err(e) => return Err(e),
        }
        Ok(indices
            .into_iter()
            .map(|index| (index, Arc::new(read[(index - first) as usize].clone())))
            .collect())
    }

    /// The blocks that pages of a file will get, as far as these can be told; none where the volume is so
    /// full that it cleans, or nearly: what moves needs another block until the next checkpoint.
    fn ahead(&self, inode: &Inode) -> Result<Vec<BlockAddr>> {
        let most = PART * WINDOW_PAGES as usize;
        if is_nearly_full(self.fs, most) {
            return Ok(Vec::new());
        }
        match self.fs.placement.log(&Batch::of(inode, Purpose::Restore, 0)) {
            Some(log) => Ok(self.fs.segs.lock().ahead(&self.fs.io, log, most)?),
            None => Ok(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::file_ops;
    use crate::content::file::WriteTimes;
    use crate::map::alone::{device, new_inode};
    use medfs_format::superblock::Feature;
    use std::time::Duration;

    /// A file of blocks in a row, with deltas of these pages.
    fn with_deltas(pages: u64, deltas: impl IntoIterator<Item = u64>) -> (FileOps, Arc<Inode>, Vec<u8>) {
        let fs =
            file_ops(device(64, true, Feature::empty()), "delta=full,compact_files=all,zero_base_deltas=off");
        let inode = new_inode(&fs, FileKind::Regular, b"a.db", None);
        let mut model: Vec<u8> = (0..pages * 4096).map(|at| (at / 4096) as u8).collect();
        fs.write(inode.ino, 0, &model, WriteTimes::Now).unwrap();
        fs.write_back(&inode).unwrap();
        for page in deltas {
            fs.write(inode.ino, page * 4096 + 50, b"changed", WriteTimes::Now).unwrap();
            model[page as usize * 4096 + 50..][..7].copy_from_slice(b"changed");
        }
        fs.write_back_for(&inode, Purpose::Fsync { datasync: false }).unwrap();
        (fs, inode, model)
    }

    fn deltas(fs: &FileOps, inode: &Inode) -> Vec<u64> {
        fs.deltas().delta_pages(inode, 0..u64::MAX).unwrap()
    }

    fn addrs(fs: &FileOps, inode: &Inode, pages: std::ops::Range<u64>) -> Vec<BlockAddr> {
        pages.map(|page| fs.find_slot(inode, page).unwrap().unwrap().addr()).collect()
    }

    fn content(fs: &FileOps, inode: &Inode) -> Vec<u8> {
        fs.pages.remove_within(inode.ino, 0..u64::MAX, [0..u64::MAX, 0..0]);
        let mut buf = vec![0; inode.size() as usize];
        fs.read(inode.ino, 0, &mut buf).unwrap();
        buf
    }

    fn restore(fs: &FileOps, inode: &Inode, whole_windows: bool) -> Result<RestoreStep> {
        let restorer = Restorer::default();
        (Restoring { fs, restorer: &restorer }).restore_part(inode.ino, whole_windows)
    }

    #[test]
    fn a_window_of_a_file_read_in_order_is_written_again_as_a_whole() {
        let (fs, inode, model) = with_deltas(96, 0..6);
        let before = addrs(&fs, &inode, 0..96);
        assert_eq!(deltas(&fs, &inode), [0, 1, 2, 3, 4, 5]);
        let step = restore(&fs, &inode, true).unwrap();
        assert_eq!((step.pages, step.moved, step.ends_file()), (6, 26, true));
        let after = addrs(&fs, &inode, 0..96);
        assert!(after[..32].windows(2).all(|two| two[1] == two[0] + 1), "{:?}", &after[..32]);
        assert_eq!(after[32..], before[32..], "windows without deltas stay");
        assert!(deltas(&fs, &inode).is_empty() && content(&fs, &inode) == model);
    }

    #[test]
    fn neighbours_stay_where_they_cost_too_much_or_are_not_to_move() {
        // One page of a window may not take 31 along.
        let (fs, inode, model) = with_deltas(64, [3]);
        let step = restore(&fs, &inode, true).unwrap();
        assert_eq!((step.pages, step.moved), (1, 0));
        assert!(content(&fs, &inode) == model);
        for why in ["not read in order", "pinned", "dirty", "a source"] {
            let (fs, inode, mut model) = with_deltas(64, 0..6);
            match why {
                "pinned" => {
                    fs.edit(&inode, medfs_store::Dirty::Full, |r| r.i_inline |= Inline::PIN_FILE.bits())
                }
                "dirty" => {
                    fs.write(inode.ino, 20 * 4096, &[7; 4096], WriteTimes::Now).unwrap();
                    model[20 * 4096..21 * 4096].fill(7);
                }
                "a source" => assert!(fs.refs.add(999, 0, (6..32).map(|page| (inode.ino, page)).collect())),
                _ => {}
            }
            let before = addrs(&fs, &inode, 6..64);
            let step = restore(&fs, &inode, why != "not read in order").unwrap();
            assert_eq!((step.pages, step.moved), (6, 0), "{why}");
            assert_eq!(addrs(&fs, &inode, 6..64), before, "{why}");
            assert!(content(&fs, &inode) == model, "{why}");
        }
    }

    #[test]
    fn pages_that_others_are_made_from_keep_their_deltas() {
        let (fs, inode, model) = with_deltas(8, 0..4);
        assert!(fs.refs.add(999, 0, vec![(inode.ino, 2)]));
        let made = || fs.deltas.counters.made.load(std::sync::atomic::Ordering::Relaxed);
        let before = made();
        assert_eq!(restore(&fs, &inode, false).unwrap().pages, 3);
        assert_eq!((deltas(&fs, &inode), made()), (vec![2], before), "that delta is not made again");
        assert!(content(&fs, &inode) == model);
    }

    #[test]
    fn a_large_file_is_restored_in_parts() {
        let (fs, inode, model) = with_deltas(20 * 32, (0..20).map(|window| window * 32));
        let first = restore(&fs, &inode, false).unwrap();
        assert_eq!((first.pages, first.more, first.ends_file()), (16, true, false));
        assert_eq!(deltas(&fs, &inode).len(), 4);
        let last = restore(&fs, &inode, false).unwrap();
        assert_eq!((last.pages, last.more), (4, false));
        assert!(deltas(&fs, &inode).is_empty() && !fs.deltas().has_deltas(&inode));
        assert!(content(&fs, &inode) == model);
    }

    #[test]
    fn a_round_lists_files_with_deltas_and_judges_each_once() {
        let (fs, inode, model) = with_deltas(40, 0..6);
        let plain = new_inode(&fs, FileKind::Regular, b"plain", None);
        let (restorer, activity) = (Restorer::default(), Activity::new(Duration::ZERO));
        restorer.begin(&fs);
        assert_eq!(*restorer.pending.lock(), [inode.ino]);
        assert!(plain.ino != inode.ino && restorer.stats().rounds == 1);
        let mut did = IdleReport::default();
        activity.note();
        restorer.restore_some(&fs, &activity, 64, &mut did).unwrap();
        assert_eq!(did, IdleReport::default(), "something is wanted");
        activity.idle_for(Duration::ZERO);
        restorer.restore_some(&fs, &activity, 0, &mut did).unwrap();
        assert_eq!(did, IdleReport::default(), "there is no budget");
        restorer.restore_some(&fs, &activity, 64, &mut did).unwrap();
        assert_eq!((did.files_judged, did.files_restored), (1, 0), "nobody reads it often");
        assert!(restorer.pending.lock().is_empty() && deltas(&fs, &inode).len() == 6);
        assert!(content(&fs, &inode) == model);
    }

    #[test]
    fn nothing_is_restored_where_nothing_can_be_written() {
        let (fs, inode, _) = with_deltas(8, 0..4);
        fs.io.stop_writing("a test says so");
        assert!(matches!(restore(&fs, &inode, false), Err(Error::ReadOnly)));
        let did = crate::upkeep::idle::IdleWork::new(Duration::ZERO).step(&fs, 64);
        assert_eq!(did.unwrap(), IdleReport::default());
        inode.lock.write().dead = true;
        assert_eq!(deltas(&fs, &inode).len(), 4);
    }
}
