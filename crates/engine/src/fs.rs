//! The mounted file system: who owns what, and the order of locks.
//!
//! ```text
//! Fs ── io        the device, flush merging, the read-only state
//!    ── nat       node addresses              ── segs    SIT, SSA, the six logs
//!    ── nodes     node blocks in memory       ── space   what is promised against what there is
//!    ── inodes    inodes and their dirty pages── pages   clean pages
//!    ── cp        the checkpoint pack         ── orphans unlinked inodes that are still held
//!    ── hotness   how busy each file is       ── restorer, activity: what is done while nobody wants anything
//! ```
//!
//! Lock order, outermost first:
//!  1. `gc` (one cleaning at a time), `cp` (one checkpoint at a time)
//!  2. an inode's `wb`
//!  3. `ops`: shared by every operation that changes the volume, exclusive for a checkpoint. Never taken twice by a thread.
//!  4. `renames` (one rename between two directories at a time)
//!  5. inode locks: a parent before its child; otherwise by inode number
//!  6. `chain` (order of fsynced nodes in their log)
//!  7. leaves: `orphans`, `trans_dirs`, `moved_names`, `renamed_files`, `left_by_dirs`, `cut_trees`, `dir_log`, `dependents`, `registry`, `bases`, `sharing`, `nodes`, `nat`, `segs`, `space`, `inodes`, `pages`,
//!     `hotness`, `restorer`, `activity`, `damage`, `io`; `nodes` before `segs` before `nat`.
//!
//! A checkpoint that an fsync needs is made after the fsync has given back its locks.

use crate::bgres::Restorer;
use crate::checkpoint::Checkpoint;
use crate::clock::Clock;
use crate::compress::Compress;
use crate::damage::Damage;
use crate::delta::Deltas;
use crate::delta::bases::Bases;
use crate::delta::dependents::Dependents;
use crate::delta::registry::Registry;
use crate::dir_log::DirLog;
use crate::error::{Error, Result};
use crate::evict::Orphans;
use crate::hotness::Hcluster;
use crate::idle::Activity;
use crate::inode::Inodes;
use crate::io::Io;
use crate::nat::Nat;
use crate::node::{NodePage, Nodes};
use crate::options::MountOptions;
use crate::pages::Pages;
use crate::placement::Placement;
use crate::segment::{Segments, Spare};
use crate::shared::Sharing;
use crate::space::Space;
use crate::stats::Counters;
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::delta::RawNote;
use medfs_format::node::{RawInode, footer_mut};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::summary::{Log, RawSummary};
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{Block, BlockAddr, Geometry, Ino, Nid};
use medfs_sync::{Mutex, RwLock, RwLockReadGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) struct Fs {
    pub(crate) io: Io,
    pub(crate) sb: RawSuperblock,
    pub(crate) geo: Geometry,
    pub(crate) features: Feature,
    /// The options in force, as text.
    pub(crate) in_force: Vec<String>,
    /// KiB written to the volume in its life before it was opened; 0 where the last checkpoint was not an unmount's.
    pub(crate) kbytes_at_mount: u64,
    pub(crate) opts: MountOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) placement: Box<dyn Placement>,
    /// Whether the volume's magic is medfs's own: only such a volume may hold deltas.
    pub(crate) delta_volume: bool,
    pub(crate) deltas: Deltas,
    pub(crate) compress: Compress,
    /// Which blocks other files need, and the list of those files.
    pub(crate) dependents: Dependents,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) bases: Mutex<Bases>,
    pub(crate) nat: Nat,
    pub(crate) nodes: Nodes,
    pub(crate) segs: Mutex<Segments>,
    pub(crate) space: Space,
    pub(crate) inodes: Inodes,
    pub(crate) pages: Pages,
    pub(crate) cp: Mutex<Checkpoint>,
    /// Version and checksum of the last checkpoint, as node footers carry them.
    pub(crate) cp_ver: AtomicU64,
    pub(crate) orphans: Orphans,
    /// Directories that were moved, or whose attributes changed, since the last checkpoint (strict fsync mode).
    pub(crate) trans_dirs: Mutex<BTreeSet<Ino>>,
    /// Names taken from inodes that live on, since the last checkpoint, and those inodes (strict fsync mode). A new file of
    /// such a name must not be recovered before the other inode's new name is durable.
    pub(crate) moved_names: Mutex<BTreeMap<(Ino, Vec<u8>), Ino>>,
    /// Files whose names are not those of the last checkpoint, unless an fsync has recorded them since. Of any other file
    /// roll-forward leaves the names and links alone, however many it has.
    pub(crate) renamed_files: Mutex<BTreeSet<Ino>>,
    /// Names that directories lost since the last checkpoint. Roll-forward must not give one to a file: the directory would go
    /// then, with all that was in it.
    pub(crate) left_by_dirs: Mutex<BTreeSet<(Ino, Vec<u8>)>>,
    /// Files that lost nodes at or below an indirect node since the last checkpoint: indirect nodes are not part of the
    /// chain of fsynced nodes, so roll-forward could not tell.
    pub(crate) cut_trees: Mutex<BTreeSet<Ino>>,
    /// What changed in directories since the last checkpoint, and whether an fsync of one looks there first.
    pub(crate) dir_log: DirLog,
    pub(crate) ops: RwLock<()>,
    pub(crate) renames: Mutex<()>,
    pub(crate) chain: Mutex<()>,
    /// fsyncs whose last nodes wait to be written together.
    pub(crate) sharing: Sharing,
    pub(crate) gc: Mutex<crate::gc::Cleaner>,
    pub(crate) read_only: bool,
    /// Until orphans are freed and fsynced files rolled forward, nothing may make a checkpoint of its own accord.
    pub(crate) mounting: AtomicBool,
    pub(crate) closed: AtomicBool,
    /// `elapsed_time` of the checkpoint at mount, and the clock then.
    pub(crate) elapsed_base: u64,
    pub(crate) mounted_at: std::time::Duration,
    pub(crate) last_checkpoint_at: Mutex<std::time::Duration>,
    pub(crate) counters: Counters,
    pub(crate) damage: Damage,
    pub(crate) hotness: Hcluster,
    pub(crate) activity: Activity,
    pub(crate) restorer: Restorer,
}

/// Proof that a changing operation holds the operation lock.
pub(crate) struct Op<'a> {
    _guard: RwLockReadGuard<'a, ()>,
    io: &'a Io,
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        // Before the lock is free: no checkpoint makes durable what the operation left half done.
        if std::thread::panicking() {
            self.io.stop_writing("an operation panicked");
        }
    }
}

impl Fs {
    /// Starts an operation that changes the volume: makes room first, then takes the operation lock.
    /// `ReadOnly` where the volume is. Call it with no other lock of the engine held.
    pub(crate) fn begin(&self) -> Result<Op<'_>> {
        self.check_writable()?;
        self.make_room()?;
        self.op()
    }

    /// Takes the operation lock alone, for callers that made room before taking their first lock.
    pub(crate) fn op(&self) -> Result<Op<'_>> {
        let op = Op { _guard: self.ops.read(), io: &self.io };
        self.check_writable()?;
        Ok(op)
    }

    /// `ReadOnly` where the volume is, from the start or since a failure.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only || self.io.failed() || self.closed.load(Ordering::Acquire)
    }

    /// Whether a checkpoint would write anything.
    pub(crate) fn has_changes(&self) -> bool {
        self.nodes.any_dirty() || self.has_more_than_nodes()
    }

    /// Whether a checkpoint would write anything that must be durable when the commit interval has passed.
    pub(crate) fn has_changes_to_commit(&self) -> bool {
        self.nodes.any_to_commit() || self.has_more_than_nodes()
    }

    fn has_more_than_nodes(&self) -> bool {
        self.nat.dirty_count() > 0 || self.segs.lock().dirty_sit_count() > 0 || self.inodes.any_dirty()
    }

    pub(crate) fn flexible_inline_xattr(&self) -> bool {
        self.nodes.rules.layouts.is_flexible()
    }

    pub(crate) fn has_crtime(&self) -> bool {
        self.features.contains(Feature::INODE_CRTIME)
    }

    /// Seconds the volume has been mounted in all its life: the time base of segment ages.
    pub(crate) fn elapsed(&self) -> u64 {
        self.elapsed_base + self.clock.monotonic().saturating_sub(self.mounted_at).as_secs()
    }

    /// The log a node belongs to.
    fn node_log(block: &Block) -> Log {
        let f = medfs_format::node::footer(block);
        match node_kind(f.node_offset()) {
            NodeKind::Indirect => Log::ColdNode,
            _ if !f.is_cold() => Log::HotNode,
            _ => Log::WarmNode,
        }
    }

    /// Gives nodes their addresses and footers, in order, and writes them. The NAT is updated.
    /// The caller holds the `chain` lock or the operation lock exclusively. After an error those that had a place are written
    /// all the same, as the nodes before name their blocks; the caller marks all of them dirty again.
    pub(crate) fn write_in_order(
        &self,
        nodes: &[(Arc<NodePage>, Arc<Block>)],
        marks: NodeMarks<'_>,
    ) -> Result<()> {
        let mut placed = Vec::with_capacity(nodes.len());
        let outcome = self.place_nodes(nodes, marks, &mut placed);
        self.write_nodes(&placed)?;
        outcome
    }

    /// Gives nodes their addresses and footers, in order, and adds the sealed blocks to those that the caller writes, in
    /// this order and after an error too.
    pub(crate) fn place_nodes(
        &self,
        nodes: &[(Arc<NodePage>, Arc<Block>)],
        marks: NodeMarks<'_>,
        placed: &mut Vec<(BlockAddr, Box<Block>)>,
    ) -> Result<()> {
        let before = placed.len();
        self.nodes.note_placed();
        let outcome = nodes.iter().try_for_each(|(page, content)| {
            let mut block = Block::boxed();
            block.0.copy_from_slice(&content.0);
            self.place_node(page, block, marks, placed)
        });
        self.space.wrote((placed.len() - before) as u64);
        outcome
    }

    fn place_node(
        &self,
        page: &NodePage,
        mut block: Box<Block>,
        marks: NodeMarks<'_>,
        placed: &mut Vec<(BlockAddr, Box<Block>)>,
    ) -> Result<()> {
        if page.nid == page.ino {
            self.write_notes(&mut block, marks.notes);
        }
        let now = self.elapsed();
        let log = Self::node_log(&block);
        let entry = self.nat.get(&self.io, page.nid)?;
        let owner = RawSummary { nid: page.nid.into(), version: entry.version, ofs_in_node: 0.into() };
        let mut segs = self.segs.lock();
        let addr = segs.replace(&self.io, log, owner, (now, Spare::Use), entry.addr)?;
        let next = segs.next_addr(log);
        drop(segs);
        self.seal_node(&mut block, next, marks);
        self.nat.set(page.nid, page.ino, addr, marks.fsync);
        placed.push((addr, block));
        Ok(())
    }

    /// Fills what a node's footer says of its place.
    pub(crate) fn fill_footer(&self, block: &mut Block, next: BlockAddr, marks: NodeMarks<'_>) {
        let f = footer_mut(block);
        f.cp_ver = self.cp_ver.load(Ordering::Acquire).into();
        f.next_blkaddr = next.into();
        f.set_fsync(marks.fsync);
        f.set_dentry(marks.dentry);
    }

    /// Fills what a node's footer says of its place and the inode's checksum.
    pub(crate) fn seal_node(&self, block: &mut Block, next: BlockAddr, marks: NodeMarks<'_>) {
        self.fill_footer(block, next, marks);
        let f = footer_mut(block);
        let is_inode = f.nid.get() == f.ino.get();
        if is_inode {
            block.view_mut::<RawInode>().seal(self.nodes.rules.seed);
        }
    }

    /// Writes nodes that [`Fs::place_nodes`] has placed.
    pub(crate) fn write_nodes(&self, placed: &[(BlockAddr, Box<Block>)]) -> Result<()> {
        let refs: Vec<(BlockAddr, &Block)> = placed.iter().map(|(a, b)| (*a, &**b)).collect();
        self.io.write_scattered(&refs, WriteTag::new(Cause::Node, Temperature::Warm))
    }

    /// NAT version of a node, as summaries carry it.
    pub(crate) fn node_version(&self, nid: Nid) -> Result<u8> {
        Ok(self.nat.peek(&self.io, nid)?.version)
    }
}

/// What a node block carries of the moment in which it is written: marks in its footer, and notes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeMarks<'a> {
    pub(crate) fsync: bool,
    pub(crate) dentry: bool,
    /// What an inode block says of nodes that are not written with it.
    pub(crate) notes: &'a [RawNote],
}
