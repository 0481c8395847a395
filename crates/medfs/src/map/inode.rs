//! Inodes in memory: the inode's node block, its dirty pages, and the table that finds them.
//!
//! Invariants: there is at most one [`Inode`] for a number; attributes live in the inode's node block alone. An inode
//! with dirty pages or in use stays in the table.
//! Locks: the table's mutex is a leaf. An inode's `wb` (one writeback at a time) is taken before its `lock`.

use crate::error::{Error, Posix, Result};
use crate::map::Map;
use crate::map::memory::Memory;
use crate::map::page_versions::PageVersions;
use crate::map::places::check_places;
use crate::ranks;
use crate::types::{Attr, FileFlags, Timestamp};
use medfs_format::node::{FileKind, Inline, RawExtraAttr, RawInode, Slots};
use medfs_format::{FormatError, Ino, Structure};
use medfs_store::HashMap;
use medfs_store::{Dirty, NodePage};
use medfs_sync::{Mutex, Ranked, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::sync::Arc;

/// End of the creation time inside the extra attributes.
const CRTIME_END: usize = offset_of!(RawExtraAttr, i_compr_blocks);
/// End of the project id inside the extra attributes.
const PROJECT_END: usize = offset_of!(RawExtraAttr, i_inode_checksum);

/// What one commit makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Files by themselves, and what is needed to reach them.
    File,
    /// The whole volume, as it was at one moment: every checkpoint takes the dirty pages of all files along.
    Volume,
}

/// What an inode has in memory beyond its node block.
#[derive(Debug, Default)]
pub(crate) struct InodeState {
    /// Pages not yet written, or being written, and what an open atomic write keeps aside.
    pub(crate) pages: PageVersions,
    /// The device's write mark after the last page of this file was written, or the last of another file that
    /// its records are made from.
    pub(crate) data_mark: u64,
    /// Among the dirty pages are some whose older content the file's nodes no longer name: it moved out of
    /// the inode block, or to another place in the file, or lies beyond the end now. A checkpoint writes
    /// these pages, so that it does not lose what was durable.
    pub(crate) with_checkpoint: bool,
    /// Dirty pages whose delta is gone from the zone: their old block may be its base on disk, so that they
    /// must go to a new one.
    pub(crate) whole: BTreeSet<u64>,
    /// Whether whole clusters are compressed as they are written, where a user asked for it; else the mount says it.
    pub(crate) compress: Option<bool>,
    /// Freed: its number may belong to another file.
    pub(crate) dead: bool,
}

impl InodeState {
    /// Whether the next checkpoint writes the dirty pages of such a file.
    pub(crate) fn goes_with_checkpoint(&self, kind: FileKind, scope: Scope) -> bool {
        kind != FileKind::Regular || self.with_checkpoint || scope == Scope::Volume
    }
}

#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) node: Arc<NodePage>,
    /// Held while pages and nodes of the file are being written.
    pub(crate) wb: Mutex<()>,
    pub(crate) lock: RwLock<InodeState>,
    /// What rooms above remember of it.
    pub(crate) memory: Memory,
}

impl Inode {
    /// Reads fields of the inode block.
    pub(crate) fn raw<R>(&self, f: impl FnOnce(&RawInode) -> R) -> R {
        self.node.read(|d| f(d.inode()))
    }
    pub(crate) fn kind(&self) -> FileKind {
        self.raw(|r| FileKind::from_mode(r.i_mode.get())).expect("validated when read")
    }
    pub(crate) fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory
    }
    pub(crate) fn size(&self) -> u64 {
        self.raw(|r| r.i_size.get())
    }
    pub(crate) fn nlink(&self) -> u32 {
        self.raw(|r| r.i_links.get())
    }
    fn has_open_atomic_write(&self) -> bool {
        self.lock.try_read().is_none_or(|state| state.pages.draft().is_some())
    }
    pub(crate) fn pages(&self) -> u64 {
        self.size().div_ceil(medfs_format::BLOCK_SIZE as u64)
    }
    /// Whether its pages stay in their blocks.
    pub(crate) fn is_pinned(&self) -> bool {
        self.raw(|r| r.inline().contains(Inline::PIN_FILE))
    }
}

/// Inodes in memory, and how often each number is held from outside.
pub(crate) struct Inodes {
    table: Mutex<Table>,
    limit: usize,
}

struct Table {
    loaded: HashMap<Ino, Arc<Inode>>,
    holds: HashMap<Ino, u64>,
    /// Inodes with dirty pages: directories and others.
    dirty: BTreeMap<Ino, Arc<Inode>>,
    lookups: u64,
    hits: u64,
    sweeps: Sweeps,
}

/// When inodes that can be forgotten are looked for, among all in memory.
#[derive(Debug, Default)]
struct Sweeps {
    /// Inodes there are when the next look is due, where that is more than the limit.
    at: usize,
}

impl Sweeps {
    fn is_due(&self, loaded: usize, limit: usize) -> bool {
        loaded >= self.at.max(limit)
    }

    /// A look has ended, and left so many. Where it did not find `enough`, the next one waits until there are
    /// an eighth more: looking at all of them for each that comes would cost more with every file that is in
    /// use.
    fn ended(&mut self, loaded: usize, enough: bool) {
        self.at = if enough { 0 } else { loaded + loaded / 8 };
    }
}

impl Table {
    /// Forgets a quarter of `limit` inodes that are not in use, or as many as there are.
    fn sweep(&mut self, limit: usize) {
        let mut spare = limit / 4;
        self.loaded.retain(|_, inode| {
            let keep = spare == 0 || Arc::strong_count(inode) > 1 || inode.has_open_atomic_write();
            spare -= usize::from(!keep);
            keep
        });
        self.sweeps.ended(self.loaded.len(), spare == 0);
    }
}

impl Inodes {
    pub(crate) fn new(limit: usize) -> Inodes {
        let (loaded, holds) = (HashMap::default(), HashMap::default());
        let table =
            Table { loaded, holds, dirty: BTreeMap::new(), lookups: 0, hits: 0, sweeps: Sweeps::default() };
        Inodes { table: Mutex::new(table), limit: limit.max(64) }
    }

    fn find(&self, ino: Ino) -> Option<Arc<Inode>> {
        let mut t = self.table.lock();
        let found = t.loaded.get(&ino).cloned();
        t.lookups += 1;
        t.hits += u64::from(found.is_some());
        found
    }

    /// `data_mark`: the device's write mark now, as nobody knows whether earlier pages of the file are durable.
    fn insert(&self, ino: Ino, node: Arc<NodePage>, data_mark: u64) -> Arc<Inode> {
        let mut t = self.table.lock();
        if let Some(inode) = t.loaded.get(&ino)
            && Arc::ptr_eq(&inode.node, &node)
        {
            return inode.clone();
        }
        if t.sweeps.is_due(t.loaded.len(), self.limit) {
            t.sweep(self.limit);
        }
        let state = InodeState { data_mark, ..InodeState::default() };
        let inode = Arc::new(Inode {
            ino,
            node,
            wb: Mutex::new(()).ranked(ranks::WB),
            lock: RwLock::new(state).ranked(ranks::INODE),
            memory: Memory::default(),
        });
        t.loaded.insert(ino, inode.clone());
        inode
    }

    /// Inodes in memory.
    pub(crate) fn loaded(&self) -> Vec<Arc<Inode>> {
        self.table.lock().loaded.values().cloned().collect()
    }

    /// Lookups of inodes that were in memory, and all.
    pub(crate) fn lookups(&self) -> (u64, u64) {
        let t = self.table.lock();
        (t.hits, t.lookups)
    }

    /// Forgets a freed inode.
    pub(crate) fn forget(&self, ino: Ino) {
        let mut t = self.table.lock();
        t.loaded.remove(&ino);
        t.dirty.remove(&ino);
    }

    /// Notes that an inode has dirty pages.
    pub(crate) fn set_dirty(&self, inode: &Arc<Inode>) {
        self.table.lock().dirty.insert(inode.ino, inode.clone());
    }

    /// Notes that an inode's pages have been written.
    pub(crate) fn set_clean(&self, ino: Ino) {
        self.table.lock().dirty.remove(&ino);
    }

    pub(crate) fn any_dirty(&self) -> bool {
        !self.table.lock().dirty.is_empty()
    }

    /// Inodes with dirty pages.
    pub(crate) fn dirty(&self) -> Vec<Arc<Inode>> {
        self.table.lock().dirty.values().cloned().collect()
    }

    pub(crate) fn hold(&self, ino: Ino, count: u64) {
        let mut t = self.table.lock();
        let held = t.holds.entry(ino).or_insert(0);
        *held = held.saturating_add(count);
    }

    /// Gives holds back; `true` where none is left.
    pub(crate) fn release(&self, ino: Ino, count: u64) -> bool {
        let mut t = self.table.lock();
        let Some(held) = t.holds.get_mut(&ino) else { return false };
        *held = held.saturating_sub(count);
        let gone = *held == 0;
        if gone {
            t.holds.remove(&ino);
        }
        gone
    }

    pub(crate) fn is_held(&self, ino: Ino) -> bool {
        self.table.lock().holds.contains_key(&ino)
    }
}

impl Map {
    /// The inode with this number. `Stale` where there is none.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        if let Some(inode) = self.inodes.find(ino) {
            return Ok(inode);
        }
        if !self.geo.is_nid(ino) {
            return Err(Posix::Stale.into());
        }
        let entry = self.nat.peek(&self.io, ino)?;
        if entry.addr == medfs_format::NULL_ADDR || entry.ino != ino {
            return Err(Posix::Stale.into());
        }
        let node = self.nodes.get(&self.io, &self.nat, ino)?;
        self.check_inode_features(&node)?;
        check_places(self, &node)?;
        Ok(self.inodes.insert(ino, node, self.io.write_mark()))
    }

    /// An inode that was just made.
    pub(crate) fn adopt_inode(&self, node: Arc<NodePage>) -> Arc<Inode> {
        self.inodes.insert(node.nid, node, self.io.write_mark())
    }

    fn check_inode_features(&self, node: &NodePage) -> Result<()> {
        node.read(|d| {
            let r = d.inode();
            if r.i_links.get() == 0 && !self.orphans.contains(node.nid) {
                return Err(FormatError::corrupt(
                    Structure::Inode,
                    node.nid,
                    "i_links",
                    "0 but not an orphan",
                )
                .into());
            }
            Ok(())
        })
    }

    /// Division of an inode's address slots.
    pub(crate) fn slots(&self, inode: &Inode) -> Slots {
        inode.raw(|r| r.slots(self.flexible_inline_xattr()))
    }

    /// Changes the inode block.
    pub(crate) fn edit<R>(&self, inode: &Inode, dirty: Dirty, f: impl FnOnce(&mut RawInode) -> R) -> R {
        self.nodes.update(&inode.node, dirty, |b| f(b.view_mut()))
    }

    /// Sets `i_size`.
    pub(crate) fn set_size(&self, inode: &Inode, size: u64) {
        self.ops.check_within();
        self.edit(inode, Dirty::Full, |r| r.i_size = size.into());
    }

    /// Adds to `i_blocks`.
    pub(crate) fn add_blocks(&self, inode: &Inode, delta: i64) {
        self.ops.check_within();
        self.edit(inode, Dirty::Full, |r| {
            r.i_blocks = r.i_blocks.get().saturating_add_signed(delta).max(1).into();
        });
    }

    /// Adds one to `i_blocks` for a block that is, or will be, named by the inode or one of its nodes:
    /// whichever it is gets dirty by that.
    pub(crate) fn count_block(&self, inode: &Inode) {
        self.ops.check_within();
        self.edit(inode, Dirty::Count, |r| r.i_blocks = r.i_blocks.get().saturating_add(1).into());
    }

    /// Sets mtime and ctime to now; by itself this forces no write, in an fsync within a tick of the last one.
    pub(crate) fn touch_modified(&self, inode: &Inode) {
        let now = self.clock.now();
        self.edit(inode, Dirty::Tick, |r| {
            set_mtime(r, now);
            set_ctime(r, now);
        });
    }

    /// Sets ctime to now.
    pub(crate) fn touch_changed(&self, inode: &Inode) {
        let now = self.clock.now();
        self.edit(inode, Dirty::Tick, |r| set_ctime(r, now));
    }

    /// Attributes as the inode block has them.
    pub(crate) fn attributes(&self, inode: &Inode) -> Attr {
        let rdev = self.device_number(inode);
        inode.raw(|r| Attr {
            ino: inode.ino,
            generation: r.i_generation.get(),
            kind: FileKind::from_mode(r.i_mode.get()).expect("validated when read"),
            perm: r.i_mode.get() & 0o7777,
            nlink: r.i_links.get(),
            uid: r.i_uid.get(),
            gid: r.i_gid.get(),
            rdev,
            size: r.i_size.get(),
            blocks: r.i_blocks.get().saturating_sub(1).saturating_mul(8).saturating_add(inline_sectors(r)),
            atime: Timestamp { secs: r.i_atime.get() as i64, nanos: r.i_atime_nsec.get() % 1_000_000_000 },
            mtime: Timestamp { secs: r.i_mtime.get() as i64, nanos: r.i_mtime_nsec.get() % 1_000_000_000 },
            ctime: Timestamp { secs: r.i_ctime.get() as i64, nanos: r.i_ctime_nsec.get() % 1_000_000_000 },
            crtime: r.extra().filter(|_| r.extra_fits(CRTIME_END) && self.has_crtime()).map(|e| Timestamp {
                secs: e.i_crtime.get() as i64,
                nanos: e.i_crtime_nsec.get() % 1_000_000_000,
            }),
            flags: r.flags(),
            project: r.extra().filter(|_| r.extra_fits(PROJECT_END)).map_or(0, |e| e.i_projid.get()),
        })
    }

    fn device_number(&self, inode: &Inode) -> u64 {
        let slots = self.slots(inode);
        inode.raw(|r| {
            if !matches!(
                FileKind::from_mode(r.i_mode.get()),
                Some(FileKind::CharDevice | FileKind::BlockDevice)
            ) {
                return 0;
            }
            let (old, new) = (r.i_addr[slots.extra].get(), r.i_addr[slots.extra + 1].get());
            if old != 0 {
                make_dev(u64::from(old >> 8 & 0xff), u64::from(old & 0xff))
            } else {
                let major = u64::from((new & 0xfff00) >> 8);
                make_dev(major, u64::from((new & 0xff) | ((new >> 12) & 0xfff00)))
            }
        })
    }
}

/// Notes that inodes have other names: they may belong to other apps, as may what lies below a directory.
pub(crate) fn note_renamed(map: &Map, inodes: [Option<&Arc<Inode>>; 2]) {
    for inode in inodes.into_iter().flatten() {
        map.nodes.changes.look_again(inode.ino);
        if inode.is_dir() {
            map.nodes.changes.note_moved_dir();
        }
    }
}

/// Linux's encoding of device numbers in user space, for the 32 bits a file system keeps.
fn make_dev(major: u64, minor: u64) -> u64 {
    ((major & 0xfff) << 8) | (minor & 0xff) | ((minor & 0xfff00) << 12)
}

/// The two address slots that hold a device number.
pub(crate) fn encode_dev(rdev: u64) -> [u32; 2] {
    let major = ((rdev >> 8) & 0xfff) as u32;
    let minor = ((rdev & 0xff) | ((rdev >> 12) & 0xfff00)) as u32;
    if major < 256 && minor < 256 {
        [(major << 8) | minor, 0]
    } else {
        [0, (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)]
    }
}

pub(crate) fn set_atime(r: &mut RawInode, t: Timestamp) {
    r.i_atime = (t.secs as u64).into();
    r.i_atime_nsec = t.nanos.into();
}

pub(crate) fn set_mtime(r: &mut RawInode, t: Timestamp) {
    r.i_mtime = (t.secs as u64).into();
    r.i_mtime_nsec = t.nanos.into();
}

pub(crate) fn set_ctime(r: &mut RawInode, t: Timestamp) {
    r.i_ctime = (t.secs as u64).into();
    r.i_ctime_nsec = t.nanos.into();
}

/// Writes into an inode which name it has.
pub(crate) fn set_name(r: &mut RawInode, parent: Ino, name: &[u8]) {
    r.i_pino = parent.into();
    r.i_namelen = (name.len() as u32).into();
    r.i_name[..name.len()].copy_from_slice(name);
}

impl Inode {
    /// Fails where the inode was freed while the caller waited for its lock.
    pub(crate) fn check_alive(&self, state: &InodeState) -> Result<()> {
        if state.dead { Err(Error::Posix(Posix::Stale)) } else { Ok(()) }
    }

    /// Whether the content is in the inode block.
    pub(crate) fn is_inline(&self) -> bool {
        self.raw(|r| r.inline().contains(Inline::DATA))
    }

    /// Fails where the inode is not that of a regular file.
    pub(crate) fn check_regular(&self) -> Result<()> {
        match self.kind() {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Posix::IsDirectory.into()),
            _ => Err(Posix::InvalidArgument.into()),
        }
    }

    /// Whether the inode has any of these chattr flags.
    pub(crate) fn has_flags(&self, flags: FileFlags) -> bool {
        self.raw(|r| r.flags().intersects(flags))
    }

    /// `NotPermitted` where the inode has any of these chattr flags, which forbid what the caller is about to do.
    pub(crate) fn check_flags(&self, forbidding: FileFlags) -> Result<()> {
        if self.has_flags(forbidding) { Err(Posix::NotPermitted.into()) } else { Ok(()) }
    }
}

/// Sectors that the kernel shows for content inside the inode, so that it does not look like a hole.
fn inline_sectors(r: &RawInode) -> u64 {
    let shown = match FileKind::from_mode(r.i_mode.get()) {
        Some(FileKind::Regular) => Inline::DATA,
        Some(FileKind::Directory) => Inline::DENTRY,
        _ => return 0,
    };
    if r.inline().contains(shown) { r.i_size.get().div_ceil(512) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inodes looked at while so many come of which none can go, for each.
    fn looked_at(files: usize) -> usize {
        let (mut sweeps, mut looks) = (Sweeps::default(), 0);
        for loaded in 0..files {
            if sweeps.is_due(loaded, 1000) {
                looks += loaded;
                sweeps.ended(loaded, false);
            }
        }
        looks / files
    }

    #[test]
    fn an_inode_that_comes_costs_the_same_however_many_are_in_use() {
        let looks = [2000, 20_000, 200_000, 2_000_000].map(looked_at);
        assert!(looks.iter().all(|&n| n <= 9), "{looks:?}");
    }

    #[test]
    fn inodes_are_looked_for_at_the_limit_again_once_enough_were_found() {
        let mut sweeps = Sweeps::default();
        sweeps.ended(4000, false);
        assert!(!sweeps.is_due(4400, 1000) && sweeps.is_due(4500, 1000));
        sweeps.ended(750, true);
        assert!(!sweeps.is_due(999, 1000) && sweeps.is_due(1000, 1000));
    }
}
