//! What a workload is like: volume, updates, how much they change, how it compresses (MedFS, Tables 1 and 2).
//!
//! A [`Meter`] stands between a workload and its target and sees what would leave the page cache, as the
//! paper's traces were taken below it: pages count when they are synced, and what is not synced within
//! [`WRITE_BACK`] counts then. A page that was durable before is an *update*; its *difference* is the share
//! of its bytes that changed. Neighbouring pages of one sync are one request. A read is a request where it
//! asks for a page or more (SQLite's looks at its change counter are not) of which something was not written
//! since the set-up: what was written is in the page cache.
//!
//! A file that is removed before it was synced was never written. Renaming keeps a file's pages.
//!
//! Locks: one mutex over everything; the target is called outside of it.

use crate::backend::{Handle, Open, Target};
use crate::totals::{FileType, Totals};
use medfs_codec::PAGE_SIZE;
use medfs_codec::lzo::Encoder;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// After this long what was not synced is written, as the kernel's flusher does.
pub const WRITE_BACK: Duration = Duration::from_secs(30);
/// Most pages of one request.
const REQUEST_PAGES: u32 = 128;
/// Deltas up to this size stay in the inode (MedFS, section 6.3).
const INLINE_DELTA: usize = 256;

/// How the logarithm of what updates change is spread: over all updates of a page, for pages that were
/// updated twice at least.
#[derive(Debug, Clone, Copy, Default)]
struct Spread {
    updates: f64,
    sum: f64,
    squares: f64,
}

impl Spread {
    fn add(&mut self, changed: u64) {
        let x = (changed.max(1) as f64).ln();
        *self = Spread { updates: self.updates + 1.0, sum: self.sum + x, squares: self.squares + x * x };
    }

    /// Sum of the squared distances from the mean.
    fn scatter(&self) -> f64 {
        self.squares - self.sum * self.sum / self.updates.max(1.0)
    }
}

/// A page as it was when it was last durable; `None` where it never was.
type Before = Option<Box<[u8; PAGE_SIZE]>>;

#[derive(Default)]
struct FileState {
    now: Vec<u8>,
    dirty: BTreeMap<u32, Before>,
    /// Pages that were durable once: a hole or a page beyond the end was not.
    durable: Vec<bool>,
    /// Pages that were written since the set-up.
    recent: Vec<bool>,
}

#[derive(Default)]
struct State {
    files: HashMap<u64, FileState>,
    names: HashMap<String, u64>,
    open: HashMap<Handle, (u64, String)>,
    next: u64,
    totals: Totals,
    touched: BTreeMap<String, u64>,
    unsynced: Duration,
    encoder: Encoder,
    /// By file and page, in order: sums of floating-point numbers depend on it.
    spreads: BTreeMap<(u64, u32), Spread>,
}

/// Measures what passes to a target.
pub struct Meter {
    inner: Arc<dyn Target>,
    state: Mutex<State>,
}

fn page_of(bytes: &[u8], page: u32) -> [u8; PAGE_SIZE] {
    let mut out = [0; PAGE_SIZE];
    let at = page as usize * PAGE_SIZE;
    if let Some(rest) = bytes.get(at..) {
        let len = rest.len().min(PAGE_SIZE);
        out[..len].copy_from_slice(&rest[..len]);
    }
    out
}

fn set(bits: &mut Vec<bool>, at: usize) {
    if bits.len() <= at {
        bits.resize(at + 1, false);
    }
    bits[at] = true;
}

impl FileState {
    /// Whether all of a range was written since the set-up.
    fn is_recent(&self, from: usize, to: usize) -> bool {
        (from / PAGE_SIZE..to.div_ceil(PAGE_SIZE)).all(|page| self.recent.get(page).copied().unwrap_or(false))
    }

    /// Notes that bytes from `from` to `to` are about to change.
    fn touch(&mut self, from: usize, to: usize) {
        for page in from / PAGE_SIZE..to.div_ceil(PAGE_SIZE) {
            let was = self.durable.get(page).copied().unwrap_or(false);
            let now = &self.now;
            self.dirty.entry(page as u32).or_insert_with(|| was.then(|| Box::new(page_of(now, page as u32))));
            set(&mut self.recent, page);
        }
    }

    fn truncate(&mut self, len: usize) {
        if len < self.now.len() && !len.is_multiple_of(PAGE_SIZE) {
            self.touch(len, len + 1);
        }
        self.now.resize(len, 0);
        let pages = len.div_ceil(PAGE_SIZE);
        self.durable.truncate(pages);
        self.dirty.retain(|page, _| (*page as usize) < pages);
    }
}

impl State {
    /// Returns how many bytes of the page differ from what it was, if it was durable.
    fn count_page(
        &mut self,
        kind: FileType,
        before: Option<&[u8; PAGE_SIZE]>,
        now: &[u8; PAGE_SIZE],
    ) -> Option<u64> {
        let mut out = [0; PAGE_SIZE];
        let t = &mut self.totals;
        t.pages += 1;
        t.pages_by_type[kind as usize] += 1;
        let size = self.encoder.compress(now, &mut out).unwrap_or(PAGE_SIZE);
        t.lzo_bytes += size as u64;
        t.saved_tenths[((PAGE_SIZE - size) * 10 / PAGE_SIZE).min(9)] += 1;
        let before = before?;
        t.updates += 1;
        t.updates_by_type[kind as usize] += 1;
        let xor: [u8; PAGE_SIZE] = std::array::from_fn(|n| before[n] ^ now[n]);
        let changed = xor.iter().filter(|&&b| b != 0).count() as u64;
        t.changed_bytes += changed;
        t.below_tenth += u64::from(changed * 10 < PAGE_SIZE as u64);
        let delta = self.encoder.compress(&xor, &mut out).unwrap_or(PAGE_SIZE);
        t.delta_bytes += delta as u64;
        if delta <= INLINE_DELTA {
            t.small_deltas += 1;
            t.small_delta_bytes += delta as u64;
        }
        Some(changed)
    }

    fn flush(&mut self, file: u64, path: &str) {
        let Some(mut state) = self.files.remove(&file) else { return };
        let kind = FileType::of(path);
        let (mut last, mut run) = (None, 0);
        for (page, before) in std::mem::take(&mut state.dirty) {
            if last.is_none_or(|l| l + 1 != page) || run == REQUEST_PAGES {
                self.totals.writes += 1;
                run = 0;
            }
            (last, run) = (Some(page), run + 1);
            let changed = self.count_page(kind, before.as_deref(), &page_of(&state.now, page));
            if let Some(changed) = changed {
                self.spreads.entry((file, page)).or_default().add(changed);
            }
            set(&mut state.durable, page as usize);
        }
        if last.is_some() {
            self.touched.insert(path.to_owned(), state.now.len() as u64);
        }
        self.files.insert(file, state);
    }

    fn flush_all(&mut self) {
        let mut names: Vec<(String, u64)> = self.names.iter().map(|(n, f)| (n.clone(), *f)).collect();
        names.sort();
        for (name, file) in names {
            self.flush(file, &name);
        }
        self.unsynced = Duration::ZERO;
    }

    /// Runs `op` on an open file.
    fn with(&mut self, handle: Handle, op: impl FnOnce(&mut FileState)) {
        if let Some((file, _)) = self.open.get(&handle)
            && let Some(state) = self.files.get_mut(file)
        {
            op(state);
        }
    }

    /// Forgets files that have no name and are not held open.
    fn forget(&mut self, file: u64) {
        let named = self.names.values().any(|f| *f == file);
        if !named && !self.open.values().any(|(f, _)| *f == file) {
            self.files.remove(&file);
        }
    }
}

impl Meter {
    /// Measures what passes to `inner`, which holds nothing that will be used yet.
    pub fn new(inner: Arc<dyn Target>) -> Meter {
        Meter { inner, state: Mutex::default() }
    }

    /// The totals so far.
    pub fn totals(&self) -> Totals {
        self.state.lock().totals
    }

    /// Counts what is not synced yet as written now.
    pub fn settle(&self) {
        self.state.lock().flush_all();
    }

    /// The set-up is done: forgets which files and pages were touched.
    pub fn setup_done(&self) {
        let mut state = self.state.lock();
        state.touched.clear();
        state.spreads.clear();
        state.files.values_mut().for_each(|f| f.recent.clear());
    }

    /// How much of the variance of what updates change (its logarithm) since then is between pages: 1 where
    /// each page changes as much every time, 0 where a page's updates differ as any two do. Of pages with two
    /// updates at least; `None` without any.
    pub fn own_difference(&self) -> Option<f64> {
        let state = self.state.lock();
        let (mut all, mut within) = (Spread::default(), 0.0);
        for page in state.spreads.values().filter(|s| s.updates > 1.0) {
            all = Spread {
                updates: all.updates + page.updates,
                sum: all.sum + page.sum,
                squares: all.squares + page.squares,
            };
            within += page.scatter();
        }
        (all.scatter() > 0.0).then(|| (1.0 - within / all.scatter()).clamp(0.0, 1.0))
    }

    /// Files of which something was written since, with their sizes then, by path.
    pub fn touched(&self) -> BTreeMap<String, u64> {
        self.state.lock().touched.clone()
    }
}

impl Target for Meter {
    fn open(&self, path: &str, how: Open) -> io::Result<Handle> {
        let handle = self.inner.open(path, how)?;
        let mut state = self.state.lock();
        let file = match state.names.get(path) {
            Some(file) => *file,
            None => {
                state.next += 1;
                let file = state.next;
                state.names.insert(path.to_owned(), file);
                state.files.insert(file, FileState::default());
                file
            }
        };
        state.open.insert(handle, (file, path.to_owned()));
        if how == Open::Truncate {
            state.with(handle, |f| f.truncate(0));
        }
        Ok(handle)
    }
    fn close(&self, file: Handle) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some((number, _)) = state.open.remove(&file) {
            state.forget(number);
        }
        drop(state);
        self.inner.close(file)
    }
    fn read(&self, file: Handle, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(file, offset, buf)?;
        if read >= PAGE_SIZE {
            let (mut cold, mut state) = (false, self.state.lock());
            let from = offset as usize;
            state.with(file, |f| cold = !f.is_recent(from, from + read));
            state.totals.reads += u64::from(cold);
        }
        Ok(read)
    }
    fn write(&self, file: Handle, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(file, offset, data)?;
        let (from, to) = (offset as usize, offset as usize + data.len());
        self.state.lock().with(file, |f| {
            f.touch(from, to);
            if f.now.len() < to {
                f.now.resize(to, 0);
            }
            f.now[from..to].copy_from_slice(data);
        });
        Ok(())
    }
    fn truncate(&self, file: Handle, len: u64) -> io::Result<()> {
        self.inner.truncate(file, len)?;
        self.state.lock().with(file, |f| f.truncate(len as usize));
        Ok(())
    }
    fn size(&self, file: Handle) -> io::Result<u64> {
        self.inner.size(file)
    }
    fn fsync(&self, file: Handle, datasync: bool) -> io::Result<()> {
        self.inner.fsync(file, datasync)?;
        let mut state = self.state.lock();
        state.totals.fsyncs += 1;
        if let Some((number, path)) = state.open.get(&file).cloned() {
            state.flush(number, &path);
        }
        Ok(())
    }
    fn fsync_dir(&self, path: &str) -> io::Result<()> {
        self.state.lock().totals.fsyncs += 1;
        self.inner.fsync_dir(path)
    }
    fn mkdir(&self, path: &str) -> io::Result<()> {
        self.inner.mkdir(path)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)?;
        let mut state = self.state.lock();
        if let Some(file) = state.names.remove(from) {
            let replaced = state.names.insert(to.to_owned(), file);
            for (number, path) in state.open.values_mut() {
                if *number == file {
                    *path = to.to_owned();
                }
            }
            if let Some(old) = replaced {
                state.forget(old);
            }
        }
        Ok(())
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        self.inner.unlink(path)?;
        let mut state = self.state.lock();
        if let Some(file) = state.names.remove(path) {
            state.forget(file);
        }
        Ok(())
    }
    fn exists(&self, path: &str) -> io::Result<bool> {
        self.inner.exists(path)
    }
    fn sync(&self) -> io::Result<()> {
        self.inner.sync()?;
        self.state.lock().flush_all();
        Ok(())
    }
    fn pass(&self, time: Duration) -> io::Result<()> {
        self.inner.pass(time)?;
        let mut state = self.state.lock();
        state.unsynced += time;
        if state.unsynced >= WRITE_BACK {
            state.flush_all();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::MemoryTarget;
    use crate::backend::write_file;

    fn meter() -> Meter {
        Meter::new(Arc::new(MemoryTarget::default()))
    }

    fn open(m: &Meter, path: &str) -> Handle {
        m.open(path, Open::Create).unwrap()
    }

    #[test]
    fn pages_count_when_they_are_synced_and_updates_when_they_were_durable() {
        let m = meter();
        let f = open(&m, "a/x.db");
        m.write(f, 0, &[1; 3 * PAGE_SIZE]).unwrap();
        assert_eq!(m.totals(), Totals::default(), "nothing left the cache yet");
        m.fsync(f, false).unwrap();
        let first = m.totals();
        assert_eq!((first.pages, first.updates, first.writes, first.fsyncs), (3, 0, 1, 1));
        m.write(f, PAGE_SIZE as u64 + 100, &[9; 8]).unwrap();
        m.write(f, PAGE_SIZE as u64 + 100, &[7; 8]).unwrap();
        m.write(f, 4 * PAGE_SIZE as u64, &[2; 10]).unwrap();
        m.fsync(f, true).unwrap();
        let then = m.totals() - first;
        assert_eq!((then.pages, then.updates, then.changed_bytes, then.writes), (2, 1, 8, 2));
        assert_eq!((then.pages_by_type, then.updates_by_type), ([2, 0, 0], [1, 0, 0]));
        assert!(then.small_deltas == 1 && then.small_delta_bytes < 100, "{then:?}");
        m.fsync(f, false).unwrap();
        assert_eq!((m.totals() - first).pages, 2, "a clean file writes nothing");
    }

    #[test]
    fn what_is_removed_in_time_was_never_written_and_a_rename_keeps_pages() {
        let m = meter();
        write_file(&m, "tmp/short", &[1; 9000], false).unwrap();
        m.unlink("tmp/short").unwrap();
        write_file(&m, "a", &[1; 9000], true).unwrap();
        m.rename("a", "b").unwrap();
        let f = open(&m, "b");
        m.write(f, 0, &[2; 4]).unwrap();
        m.truncate(f, 4096).unwrap();
        m.truncate(f, 9000).unwrap();
        m.pass(WRITE_BACK).unwrap();
        let t = m.totals();
        assert_eq!((t.pages, t.updates, t.changed_bytes), (3 + 1, 1, 4));
        assert_eq!(m.touched().keys().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn reads_are_requests_where_the_page_was_not_written() {
        let m = meter();
        write_file(&m, "media.jpg", &[1; 8 * PAGE_SIZE], true).unwrap();
        m.setup_done();
        let f = open(&m, "media.jpg");
        let mut buf = vec![0; PAGE_SIZE];
        m.read(f, 0, &mut buf).unwrap();
        m.read(f, 0, &mut buf[..100]).unwrap();
        m.write(f, 0, &[2; PAGE_SIZE]).unwrap();
        m.read(f, 0, &mut buf).unwrap();
        assert_eq!(m.totals().reads, 1);
        assert_eq!(m.touched().len(), 0);
    }
}
