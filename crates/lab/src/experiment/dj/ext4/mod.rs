//! ext4 as far as its writes go: which blocks an application's calls change, and which of them an fsync writes home or
//! to the journal ([`Journal`]). It keeps files in memory and is a target, so that a tape plays on it.
//!
//! In ordered mode an fsync writes the file's pages home. A transaction of metadata follows where a size, a block or a
//! name changed. In journal mode every fsync commits what changed, pages too. A commit leaves its pages dirty for the
//! kernel, so the next fsync of the file writes them home, but for those that changed again. With a memory, a block
//! that became a delta waits for a checkpoint instead, as Delta Journaling has it.
//!
//! Metadata are inode tables, bitmaps, a group descriptor, blocks of directories and the orphan file, each numbered as
//! a block; their content is not kept. A log of SQLite (`-wal`) has its index beside it (`-shm`), which SQLite changes
//! in mapped memory: in journal mode its pages are in every transaction.
//!
//! Locks: one mutex over everything.

mod cost;
mod target;

use super::jbd2::{Journal, Model, Update, runs};
use super::traces::{delta, xor};
use crate::backend::volume::closed;
use crate::backend::{Handle, split};
use medfs_codec::{Codecs, PAGE_SIZE, Page};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::time::Duration;

pub(in crate::experiment) use cost::Cost;

/// How often jbd2 commits by itself, and how long pages wait that nothing syncs.
const COMMIT: Duration = Duration::from_secs(5);
const WRITE_BACK: Duration = Duration::from_secs(30);
/// When a checkpoint is due by time (section IV.A).
const CHECKPOINT: Duration = Duration::from_secs(300);
/// Inodes of a block of their table, and names of a block of a directory.
const INODES: u64 = 16;
const NAMES: u64 = 128;
/// Bits of a page's number within a file; metadata are numbered above all files.
const PAGE_BITS: u32 = 24;
const METADATA: u64 = 1 << 62;
const INODE_BITMAP: u64 = METADATA | 1 << 48;
const BLOCK_BITMAP: u64 = METADATA | 2 << 48;
const GROUP: u64 = METADATA | 3 << 48;
const ORPHANS: u64 = METADATA | 4 << 48;
const DIRECTORIES: u64 = METADATA | 5 << 48;
/// SQLite's log: bytes of its head, of a frame's head, of a frame.
const LOG_HEAD: usize = 32;
const FRAME_HEAD: usize = 24;
const FRAME: usize = FRAME_HEAD + PAGE_SIZE;
/// Its index: frames of a part, where their page numbers begin, and the table of 8192 slots that finds them.
const INDEXED: usize = 4096;
const NUMBERS: usize = 136;
const SLOTS: usize = 8192;
const PART: usize = INDEXED * 4 + SLOTS * 2;

/// What the journal holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::experiment) enum Mode {
    /// Metadata alone.
    Ordered,
    /// Pages too.
    Journal,
}

/// What it is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) mode: Mode,
    pub(super) model: Model,
    /// Whether programs sync by fdatasync, which leaves times alone.
    pub(super) fdatasync: bool,
    /// Bytes of the delta of a block of metadata.
    pub(super) metadata_delta: u64,
}

#[derive(Default)]
struct File {
    now: Vec<u8>,
    /// Pages that changed since the last commit or writeback, as they were; none of new ones.
    dirty: BTreeMap<u32, Option<Box<Page>>>,
    /// Pages that have a block.
    allocated: BTreeSet<u32>,
    /// Whether the running transaction has its size or a block of it, and whether it has anything of it.
    grown: bool,
    touched: bool,
    /// The block of the directory that has its name.
    named_in: u64,
    /// The index of a log of SQLite.
    index: Option<u64>,
}

struct State {
    settings: Settings,
    journal: Journal,
    codecs: Codecs,
    cost: Cost,
    names: HashMap<String, u64>,
    files: BTreeMap<u64, File>,
    /// Numbers of directories, and how many names each was given.
    folders: HashMap<String, (u64, u64)>,
    open: HashMap<Handle, u64>,
    next: u64,
    /// Metadata of the running transaction, and files of which it has something.
    transaction: BTreeSet<u64>,
    changed: BTreeSet<u64>,
    /// Whether the device was written to since its last flush.
    volatile: bool,
    since_commit: Duration,
    since_write_back: Duration,
    since_checkpoint: Duration,
    before: Cost,
    /// Pages before and after each update, where they are wanted.
    updates: Option<Vec<(Page, Page)>>,
}

/// See the module.
pub(super) struct Ext4(Mutex<State>);

fn pages_of(file: u64) -> Range<u64> {
    file << PAGE_BITS..(file + 1) << PAGE_BITS
}

fn page_at(content: &[u8], page: u32) -> Page {
    let mut out = [0; PAGE_SIZE];
    let at = page as usize * PAGE_SIZE;
    if let Some(rest) = content.get(at..) {
        let len = rest.len().min(PAGE_SIZE);
        out[..len].copy_from_slice(&rest[..len]);
    }
    out
}

fn not_found(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, path.to_owned())
}

impl File {
    /// Notes that bytes of a range are about to change; whether that takes new blocks.
    fn touch(&mut self, range: Range<usize>) -> bool {
        let mut grows = false;
        for page in (range.start / PAGE_SIZE) as u32..range.end.div_ceil(PAGE_SIZE) as u32 {
            let old = !self.allocated.insert(page);
            let now = &self.now;
            self.dirty.entry(page).or_insert_with(|| old.then(|| Box::new(page_at(now, page))));
            grows |= !old;
        }
        grows
    }
}

impl State {
    fn inode(&mut self, file: u64) {
        self.changed.insert(file);
        self.transaction.insert(METADATA | (file / INODES));
    }

    fn blocks_changed(&mut self) {
        self.transaction.extend([BLOCK_BITMAP, GROUP]);
    }

    fn folder(&mut self, path: &str) -> (u64, u64) {
        if !self.folders.contains_key(path) {
            self.next += 1;
            let number = self.next;
            self.folders.insert(path.to_owned(), (number, 0));
        }
        self.folders[path]
    }

    /// A name is made: the block of the directory that has it.
    fn name(&mut self, path: &str) -> u64 {
        let folder = split(path).0.to_owned();
        let (number, names) = self.folder(&folder);
        self.folders.insert(folder, (number, names + 1));
        let block = DIRECTORIES | number << 24 | (names / NAMES);
        if names.is_multiple_of(NAMES) {
            self.blocks_changed();
        }
        self.inode(number);
        self.transaction.insert(block);
        block
    }

    /// A name is taken away that this block has.
    fn unname(&mut self, path: &str, block: u64) {
        let (number, _) = self.folder(split(path).0);
        self.inode(number);
        self.transaction.insert(block);
    }

    fn create(&mut self, path: &str) -> u64 {
        let index = path.strip_suffix("-wal").map(|database| self.create(&format!("{database}-shm")));
        self.next += 1;
        let number = self.next;
        let named_in = self.name(path);
        self.inode(number);
        self.transaction.extend([INODE_BITMAP, GROUP]);
        self.files.insert(number, File { named_in, index, grown: true, touched: true, ..File::default() });
        self.names.insert(path.to_owned(), number);
        number
    }

    /// The file is gone with its last name.
    fn remove(&mut self, path: &str, number: u64) {
        self.inode(number);
        self.transaction.extend([INODE_BITMAP, GROUP, ORPHANS]);
        if let Some(file) = self.files.remove(&number) {
            if let (Some(index), Some(database)) = (file.index, path.strip_suffix("-wal")) {
                self.names.remove(&format!("{database}-shm"));
                self.remove(&format!("{database}-shm"), index);
            }
            self.unname(path, file.named_in);
            if !file.allocated.is_empty() {
                self.blocks_changed();
            }
        }
        self.journal.revoke(pages_of(number));
    }

    fn file(&mut self, handle: Handle) -> io::Result<(u64, &mut File)> {
        let number = *self.open.get(&handle).ok_or_else(closed)?;
        let file = self.files.get_mut(&number).ok_or_else(|| not_found("a file that was removed"))?;
        Ok((number, file))
    }

    fn write(&mut self, handle: Handle, offset: usize, data: &[u8]) -> io::Result<()> {
        let (number, file) = self.file(handle)?;
        let index = file.index;
        self.write_file(number, offset, data)?;
        match index {
            Some(index) if data.len() == FRAME_HEAD => self.index_frame(index, offset, data),
            _ => Ok(()),
        }
    }

    /// The head of a frame at this place says of which page it is: SQLite notes it, and where it is found.
    fn index_frame(&mut self, index: u64, offset: usize, head: &[u8]) -> io::Result<()> {
        let frame = offset.saturating_sub(LOG_HEAD) / FRAME;
        let page = usize::from(head[2]) << 8 | usize::from(head[3]);
        let (part, at) = (frame / INDEXED * PART, frame % INDEXED);
        let slot = part + INDEXED * 4 + (page * 383) % SLOTS * 2;
        self.write_file(index, 0, &(frame as u32).to_le_bytes())?;
        self.write_file(index, part + NUMBERS + at * 4, &(page as u32).to_le_bytes())?;
        self.write_file(index, slot, &(at as u16 + 1).to_le_bytes())
    }

    fn write_file(&mut self, number: u64, offset: usize, data: &[u8]) -> io::Result<()> {
        let file = self.files.get_mut(&number).ok_or_else(|| not_found("a file that was removed"))?;
        let to = offset + data.len();
        let new_blocks = file.touch(offset..to);
        file.grown |= new_blocks || to > file.now.len();
        file.touched = true;
        if file.now.len() < to {
            file.now.resize(to, 0);
        }
        file.now[offset..to].copy_from_slice(data);
        self.inode(number);
        if new_blocks {
            self.blocks_changed();
        }
        Ok(())
    }

    fn truncate(&mut self, handle: Handle, len: usize) -> io::Result<()> {
        let (number, file) = self.file(handle)?;
        let pages = len.div_ceil(PAGE_SIZE) as u32;
        (file.grown, file.touched) = (true, true);
        if len < file.now.len() && !len.is_multiple_of(PAGE_SIZE) {
            file.touch(len..len + 1);
        }
        file.now.resize(len, 0);
        file.dirty.retain(|&page, _| page < pages);
        let freed = !file.allocated.split_off(&pages).is_empty();
        self.inode(number);
        self.transaction.insert(ORPHANS);
        if freed {
            self.blocks_changed();
        }
        let all = pages_of(number);
        self.journal.revoke(all.start + u64::from(pages)..all.end);
        Ok(())
    }

    /// Ordered mode: the pages of a file go home.
    fn write_pages(&mut self, number: u64) {
        let Some(file) = self.files.get_mut(&number) else { return };
        let pages: Vec<u64> = std::mem::take(&mut file.dirty).into_keys().map(u64::from).collect();
        self.cost.pages += pages.len() as u64;
        self.cost.page_requests += runs(&pages);
        self.volatile |= !pages.is_empty();
    }

    /// Journal mode: what the last commit left of a file goes home, but for pages that changed again.
    fn write_committed(&mut self, number: u64) {
        let Some(file) = self.files.get(&number) else { return };
        let all = pages_of(number);
        let mut start = all.start;
        let changed = file.dirty.keys().map(|&page| all.start + u64::from(page));
        for end in changed.chain([all.end]) {
            self.volatile |= self.journal.write_home(start..end) > 0;
            start = end + 1;
        }
    }

    /// Commits the running transaction, if there is one.
    fn commit(&mut self) -> bool {
        let with_memory = self.settings.model.memory.is_some();
        let metadata = with_memory.then_some(self.settings.metadata_delta);
        let mut updates: Vec<Update> = std::mem::take(&mut self.transaction)
            .into_iter()
            .map(|block| Update { block, delta: metadata })
            .collect();
        for number in std::mem::take(&mut self.changed) {
            let Some(file) = self.files.get_mut(&number) else { continue };
            (file.grown, file.touched) = (false, false);
            if self.settings.mode == Mode::Ordered {
                continue;
            }
            for (page, before) in std::mem::take(&mut file.dirty) {
                let now = page_at(&file.now, page);
                if let (Some(updates), Some(before)) = (&mut self.updates, &before) {
                    updates.push((**before, now));
                }
                let difference = before.filter(|_| with_memory).map(|before| xor(&before, &now));
                let delta = difference.and_then(|difference| delta(&mut self.codecs, &difference));
                updates.push(Update { block: pages_of(number).start + u64::from(page), delta });
            }
        }
        self.since_commit = Duration::ZERO;
        if updates.is_empty() {
            return false;
        }
        let written = self.journal.commit(&updates);
        self.volatile |= written > 0;
        if with_memory {
            self.flush();
        } else {
            // The commit block waits for all before it, and is durable itself.
            self.cost.commits += 1;
            self.cost.flushes += 2;
            self.volatile = false;
        }
        true
    }

    fn flush(&mut self) {
        self.cost.flushes += u64::from(std::mem::take(&mut self.volatile));
    }

    fn fsync(&mut self, handle: Handle, datasync: bool) -> io::Result<()> {
        let datasync = datasync || self.settings.fdatasync;
        let (number, file) = self.file(handle)?;
        let changed = file.grown || !datasync && file.touched;
        let committed = match self.settings.mode {
            Mode::Ordered => {
                self.write_pages(number);
                changed && self.commit()
            }
            Mode::Journal => {
                self.write_committed(number);
                self.commit()
            }
        };
        if !committed {
            self.flush();
        }
        Ok(())
    }

    fn write_back(&mut self) {
        let files: Vec<u64> = self.files.keys().copied().collect();
        for file in files {
            match self.settings.mode {
                Mode::Ordered => self.write_pages(file),
                Mode::Journal => self.write_committed(file),
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        for since in [&mut self.since_commit, &mut self.since_write_back, &mut self.since_checkpoint] {
            *since += time;
        }
        if self.since_write_back >= WRITE_BACK {
            self.since_write_back = Duration::ZERO;
            self.write_back();
        }
        if self.since_commit >= COMMIT {
            self.commit();
        }
        if self.since_checkpoint >= CHECKPOINT {
            self.since_checkpoint = Duration::ZERO;
            self.journal.begin();
        }
    }

    fn cost(&self) -> Cost {
        Cost { journal: self.journal.written, ..self.cost }
    }
}

impl Ext4 {
    pub(super) fn new(settings: Settings) -> Ext4 {
        Ext4(Mutex::new(State {
            journal: Journal::new(settings.model),
            settings,
            codecs: Codecs::default(),
            cost: Cost::default(),
            names: HashMap::new(),
            files: BTreeMap::new(),
            folders: HashMap::new(),
            open: HashMap::new(),
            next: 0,
            transaction: BTreeSet::new(),
            changed: BTreeSet::new(),
            volatile: false,
            since_commit: Duration::ZERO,
            since_write_back: Duration::ZERO,
            since_checkpoint: Duration::ZERO,
            before: Cost::default(),
            updates: None,
        }))
    }

    /// What was written since measuring began.
    pub(super) fn cost(&self) -> Cost {
        let state = self.0.lock();
        state.cost().since(state.before)
    }

    /// From now on, keeps the pages that commits of journal mode update.
    pub(super) fn keep_updates(&self) {
        self.0.lock().updates = Some(Vec::new());
    }

    /// What was kept.
    pub(super) fn updates(&self) -> Vec<(Page, Page)> {
        self.0.lock().updates.take().unwrap_or_default()
    }

    /// Measuring begins.
    pub(super) fn start_measuring(&self) {
        let mut state = self.0.lock();
        state.before = state.cost();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Open, Target};
    use crate::experiment::dj::jbd2::Memory;

    fn on(mode: Mode, memory: Option<Memory>) -> Ext4 {
        let model = Model { memory, waits: true, meanwhile: 1.0, part: 1.0 };
        Ext4::new(Settings { mode, model, fdatasync: true, metadata_delta: 64 })
    }

    /// A file of eight pages that are home, and then the first changes a little and is synced, twice.
    fn updated(target: &Ext4) -> Cost {
        let file = target.open("file", Open::Create).unwrap();
        target.write(file, 0, &[7; 8 * PAGE_SIZE]).unwrap();
        target.sync().unwrap();
        target.start_measuring();
        for byte in [1, 2] {
            target.write(file, 0, &[byte; 16]).unwrap();
            target.fsync(file, true).unwrap();
        }
        target.cost()
    }

    #[test]
    fn ordered_mode_writes_pages_home_and_journal_mode_twice() {
        let cost = updated(&on(Mode::Ordered, None));
        assert_eq!((cost.pages, cost.journal.journal, cost.commits, cost.flushes), (2, 0, 0, 2));
        // Page, inode, descriptor and commit block, and nothing goes home that changed again.
        let cost = updated(&on(Mode::Journal, None));
        assert_eq!((cost.pages, cost.journal.journal, cost.journal.home), (0, 8, 0));
        assert_eq!((cost.commits, cost.flushes), (2, 4));
        let memory = Some(Memory { bytes: 1 << 20, threshold: 75 });
        let cost = updated(&on(Mode::Journal, memory));
        assert_eq!((cost.blocks(), cost.flushes, cost.journal.deltas), (0, 0, 4));
    }

    #[test]
    fn the_next_fsync_writes_home_what_the_last_one_committed() {
        let target = on(Mode::Journal, None);
        let file = target.open("file", Open::Create).unwrap();
        target.write(file, 0, &[7; 8 * PAGE_SIZE]).unwrap();
        target.fsync(file, true).unwrap();
        assert_eq!(target.cost().journal.home, 0);
        target.write(file, 3 * PAGE_SIZE as u64, &[1]).unwrap();
        target.fsync(file, true).unwrap();
        assert_eq!((target.cost().journal.home, target.cost().journal.home_requests), (7, 2));
    }

    /// A frame of a log changes the head of its index, its page's number and a slot.
    #[test]
    fn the_index_of_a_log_is_in_the_transaction() {
        let written = |mode| {
            let target = on(mode, None);
            let log = target.open("a-wal", Open::Create).unwrap();
            assert!(target.exists("a-shm").unwrap());
            target.write(log, 0, &[7; LOG_HEAD]).unwrap();
            target.fsync(log, true).unwrap();
            target.start_measuring();
            let mut head = [0; FRAME_HEAD];
            head[2] = 0x10;
            target.write(log, LOG_HEAD as u64, &head).unwrap();
            target.fsync(log, true).unwrap();
            let cost = target.cost();
            target.unlink("a-wal").unwrap();
            assert!(!target.exists("a-shm").unwrap());
            (cost.pages, cost.journal.journal)
        };
        // The page of the log and two of the index; the inodes, bitmap and group for these two; two blocks around them.
        assert_eq!(written(Mode::Journal), (0, 3 + 3 + 2));
        assert_eq!(written(Mode::Ordered), (1, 3 + 2));
    }

    #[test]
    fn a_new_file_is_a_transaction_and_removed_pages_do_not_go_home() {
        let target = on(Mode::Ordered, None);
        let file = target.open("a", Open::Create).unwrap();
        target.write(file, 0, &[7; PAGE_SIZE]).unwrap();
        target.fsync(file, true).unwrap();
        // Inodes of file and directory in one block, both bitmaps, the group and the directory; two more around them.
        assert_eq!((target.cost().pages, target.cost().journal.journal), (1, 5 + 2));
        let target = on(Mode::Journal, None);
        let file = target.open("a", Open::Create).unwrap();
        target.write(file, 0, &[7; 20 * PAGE_SIZE]).unwrap();
        target.fsync(file, true).unwrap();
        target.unlink("a").unwrap();
        target.sync().unwrap();
        assert_eq!(target.cost().journal.home, 6, "the blocks of metadata alone");
        assert!(!target.exists("a").unwrap());
    }
}
