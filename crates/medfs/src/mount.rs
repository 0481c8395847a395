//! Opening a volume: the store, the layers over it, orphans, roll-forward.
//!
//! Steps: both superblock copies; feature check; the store as of its last checkpoint; orphans freed; fsynced
//! files rolled forward: until then there is a [`Tree`] without anything above it that could make a
//! checkpoint. Then what commits and what cleans take their places, and a checkpoint is made where anything
//! changed. A read-only mount rolls forward in memory.
//! Invariant: on a read-only mount nothing is written.

use crate::cluster::{ClusterBlocks, Clusters};
use crate::commit::checkpoint::CheckpointSink;
use crate::commit::flush::FlushPolicy;
use crate::commit::fsync::FromBelow;
use crate::commit::nvram::{Pending, pending};
use crate::commit::recovery::{self, Records, RecoverySource, newer_is_lost};
use crate::commit::survivor::{self, OpClock, Survivor};
use crate::commit::{Commit, Ways};
use crate::content::base_cache::BaseCache;
use crate::content::codec_pool::CodecPool;
use crate::content::cost_model::Costs;
use crate::content::page_cache::Pages;
use crate::content::placement::{KernelPlacement, Placement};
use crate::content::plain::Plain;
use crate::content::reserve::ReservePlacement;
use crate::content::reserved_files;
use crate::content::storage::{Below, PageStorage, Updates};
use crate::content::update_costs::Pricing;
use crate::content::{Content, Storages};
use crate::delta::{BASES_PART, Deltas};
use crate::error::{Error, Posix, Result};
use crate::file_ops::FileOps;
use crate::file_ops::above::Reclaim;
use crate::map::Map;
use crate::map::inode::Scope;
use crate::map::refs::BlockRefs;
use crate::map::since::SinceCheckpoint;
use crate::options::{
    self, DirFsync, DurabilityMode, InPlace, MountOptions, PlacementPolicy, Recover, ReserveFiles,
};
use crate::profile::table::{MOST_FILES, Profiles};
use crate::stats::Counters;
use crate::tree::Tree;
use crate::tree::name_journal::NameJournal;
use crate::xref::Xref;
use medfs_device::BlockDevice;
use medfs_format::checkpoint::CpFlags;
use medfs_format::node::RawInode;
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{BLOCK_SIZE, FormatError, Ino, Structure};
use medfs_store::{Clock, Io, Store, StoreOptions, read_superblock_with_nvram};
use medfs_sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A device to be mounted, and how.
#[derive(Clone)]
struct Mount {
    dev: Arc<dyn BlockDevice>,
    opts: MountOptions,
    clock: Arc<dyn Clock>,
    scope: Scope,
}

/// Opens a volume and brings it to a consistent state: everything up to what makes its changes durable, in these ways.
pub(crate) fn mount(
    dev: Arc<dyn BlockDevice>,
    opts: MountOptions,
    clock: Arc<dyn Clock>,
    ways: Ways,
    gc: Arc<dyn Reclaim>,
) -> Result<Arc<Commit>> {
    let clock: Arc<dyn Clock> = match &opts.survivor {
        options::Survivor::In(_) => Arc::new(OpClock(clock)),
        _ => clock,
    };
    let mount = Mount { dev, opts, clock, scope: ways.scope() };
    let mut tree = mount.at_checkpoint()?;
    let survivor = survivor::find(&tree);
    let pending = pending(&tree.sb, &tree.cp.lock().header, &tree.opts, ways.beside_volume())?;
    if let Err(error) = recover(&tree, pending) {
        if !tree.read_only {
            return Err(error);
        }
        tree = mount.at_checkpoint()?;
        tree.damage.note_unrecovered(None, &error);
        recovery::note_all_logged(&tree);
        tree.hidden().load_to_hide();
    }
    let commit = Arc::new(Commit::over(tree, ways));
    if commit.read_only {
        return Ok(commit);
    }
    match commit_recovered(&commit, gc, survivor.as_deref()) {
        // What was recovered is shown, and stays on the volume as it is for the next mount.
        Err(Error::NoSpace) => commit.io.stop_writing("there is no room to write what was recovered"),
        done => done?,
    }
    if let Some(survivor) = survivor {
        survivor.clone().begin(&commit)?;
        let _ = commit.survivor.set(survivor);
    }
    Ok(commit)
}

/// The tree of a volume as of its last checkpoint, with nothing above it.
#[cfg(test)]
pub(crate) fn tree_at_checkpoint(
    dev: Arc<dyn BlockDevice>,
    opts: MountOptions,
    clock: Arc<dyn Clock>,
) -> Result<Tree> {
    Mount { dev, opts, clock, scope: Scope::File }.at_checkpoint()
}

impl Mount {
    /// Opens a volume as its last checkpoint describes it.
    fn at_checkpoint(&self) -> Result<Tree> {
        let opts = &self.opts;
        let io = Io::new(self.dev.clone());
        let (sb, geo, stale_copies) = read_superblock_with_nvram(&io)?;
        if sb.has_unknown_ro_compat() && !opts.read_only {
            tracing::info!(
                "the volume has features that only a newer medfs can write ({:#x}): opened read-only",
                sb.delta.ro_compat
            );
        }
        let read_only = opts.read_only || io.device_read_only() || sb.has_unknown_ro_compat();
        check_features(sb.features(), read_only)?;
        check_devices(&sb)?;
        let options = StoreOptions {
            read_only,
            alloc_mode: opts.alloc_mode,
            scatter: opts.scatter(),
            node_limit: opts.cache_bytes / BLOCK_SIZE / 4,
            seal: opts.seal,
        };
        let store = Store::open(io, sb, geo, options, self.clock.clone())?;
        let tree = over(store, opts.clone(), read_only, self.scope);
        // Where fsyncs may lie in an NVRAM nothing is written before that is looked at, and both copies are
        // written then.
        if !read_only && tree.sb.nvram_in_use().is_none() {
            tree.restore_superblocks(&stale_copies)?;
        }
        if let Some(why) = &tree.store.older {
            if !read_only {
                // What is written would make the loss of the newer checkpoint final.
                return Err(newer_is_lost(&tree.store));
            }
            tree.damage.note_older_checkpoint(why);
        }
        if let Some(why) = &tree.store.doubt {
            tree.damage.note_older_checkpoint(why);
        }
        tree.orphans()?.into_iter().for_each(|ino| tree.orphans.add_at_mount(ino));
        Ok(tree)
    }
}

/// Brings back what became durable, from its sources in their order. On a read-only mount nothing is written:
/// the next mount that may write finds the same.
fn recover(tree: &Tree, pending: Pending) -> Result<()> {
    let recovers = tree.opts.recover != Recover::Nothing && !matches!(pending, Pending::Leave(_));
    let records = match pending {
        Pending::Records(records) => records,
        Pending::Leave(Some(why)) => {
            tree.damage.note_left_behind(&why);
            Records::default()
        }
        Pending::Nothing | Pending::Leave(None) => Records::default(),
    };
    for source in &mut recovery::sources(records) {
        if !recovers {
            source.leave(tree)?;
        } else if !tree.read_only || shows(tree, source.as_mut())? {
            let recovered = source.replay(tree)?;
            Counters::add(&tree.counters.recovered_inodes, recovered.inodes);
            Counters::add(&tree.counters.unkept_nodes, recovered.unkept);
        }
    }
    Ok(())
}

/// Whether a read-only mount shows what a source has.
fn shows(tree: &Tree, source: &mut dyn RecoverySource) -> Result<bool> {
    if !source.has_more(tree)? {
        return Ok(false);
    }
    let shown = SHOWN.contains(tree.features) && !tree.sb.has_unknown_ro_compat();
    if !shown && source.is_newer() {
        let why = format!(
            "medfs cannot replay the fsync log of a volume with {}",
            names(unwritable(tree.features))
        );
        tree.damage.note_left_behind(&format!("{why}; the volume is shown as of its last checkpoint"));
    }
    Ok(shown || !source.is_newer())
}

/// Makes a checkpoint of what was recovered, where there is any, and begins to clean. What an fsync
/// acknowledged fits, on volumes of this engine.
fn commit_recovered(commit: &Arc<Commit>, gc: Arc<dyn Reclaim>, log: Option<&Survivor>) -> Result<()> {
    if !commit.space.recovered() {
        return Err(Error::NoSpace);
    }
    // Data recovered may lie where a log was to go on.
    commit.segs.lock().step_over_pinned(&commit.io)?;
    commit.above.begin(Box::new(FromBelow::of(commit)), gc);
    commit.hidden().list_recovered()?;
    // Those whose blocks other files need: these become durable first.
    commit.free_orphans_at_mount()?;
    // Records follow the checkpoint in force until they are done again.
    if let Some(log) = log {
        log.after_roll_forward(commit)?;
    }
    let is_unmounted = commit.cp.lock().header.flags().contains(CpFlags::UMOUNT);
    commit.since.of_killed.store(!is_unmounted, Ordering::Relaxed);
    if !log.is_some_and(Survivor::is_pending) {
        if commit.has_changes_to_commit() {
            commit.checkpoint_now()?;
        } else if leaves_no_trace(commit) {
            CheckpointSink.though_unchanged(commit)?;
        }
    }
    if commit.opts.seal { Ok(commit.allow_seals()?) } else { Ok(()) }
}

/// Whether a log elsewhere may follow the checkpoint in force ([`survivor`]), and this mount may change what that
/// log would be replayed over, and leave the checkpoint in force: where pages are overwritten in their places. Where
/// that is done to pinned and cold files alone, the first fsync of one makes a checkpoint.
fn leaves_no_trace(commit: &Commit) -> bool {
    let may_be_followed = commit.since.of_killed.load(Ordering::Relaxed);
    let overwrites = commit.opts.in_place.is_some_and(|policies| !policies.is_empty())
        || commit.opts.placement == PlacementPolicy::Reserve;
    may_be_followed && overwrites && commit.opts.durability == DurabilityMode::Posix && !commit.is_read_only()
}

/// Features that mount read-write.
const WRITABLE: Feature = Feature::EXTRA_ATTR
    .union(Feature::PROJECT_QUOTA)
    .union(Feature::INODE_CHECKSUM)
    .union(Feature::FLEXIBLE_INLINE_XATTR)
    .union(Feature::QUOTA)
    .union(Feature::INODE_CRTIME)
    .union(Feature::LOST_FOUND)
    .union(Feature::SB_CHECKSUM)
    .union(Feature::COMPRESSION)
    .union(Feature::ATOMIC_WRITE);

/// Features with which a read-only mount replays the fsync log: nodes and names are as without them.
const SHOWN: Feature = WRITABLE.union(Feature::ENCRYPT).union(Feature::VERITY).union(Feature::CASEFOLD);

/// Features that can be read safely: files that need more give an error of their own.
const READABLE: Feature = WRITABLE
    .union(Feature::ENCRYPT)
    .union(Feature::VERITY)
    .union(Feature::CASEFOLD)
    .union(Feature::BLKZONED)
    .union(Feature::RO);

/// Whether a volume with these features, as its superblock has them, may be written.
pub fn can_be_written(features: u32) -> bool {
    unwritable(Feature::from_bits_retain(features)).is_empty()
}

/// Those of a volume's features that keep it from being written.
pub(crate) fn unwritable(features: Feature) -> Feature {
    features.difference(WRITABLE)
}

/// Features by name, for messages.
pub(crate) fn names(features: Feature) -> String {
    let mut names: Vec<String> = features.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    let unknown = features.bits() & !Feature::all().iter_names().fold(0, |acc, (_, b)| acc | b.bits());
    if unknown != 0 {
        names.push(format!("unknown feature bits {unknown:#x}"));
    }
    names.join(", ")
}

fn check_features(features: Feature, read_only: bool) -> Result<()> {
    let unreadable = features.difference(READABLE);
    if !unreadable.is_empty() {
        return Err(Error::Incompatible(format!(
            "the volume uses {}, which this version cannot read; mount it with the kernel's f2fs",
            names(unreadable)
        )));
    }
    let unwritable = unwritable(features);
    if !unwritable.is_empty() && !read_only {
        return Err(Error::Incompatible(format!(
            "the volume uses {}, which this version can only read, with 'medfs get' or 'medfs mount -o ro'",
            names(unwritable)
        )));
    }
    Ok(())
}

fn check_devices(sb: &RawSuperblock) -> Result<()> {
    let first = &sb.devs[0];
    if first.path[0] != 0 && first.total_segments.get() != 0 {
        return Err(Error::Incompatible(
            "the volume spans several devices, which is not supported; mount it with the kernel's f2fs"
                .into(),
        ));
    }
    Ok(())
}

/// The policy that says where data blocks go. Pinned files have sections of their own in any case.
fn placement(opts: &MountOptions, profiles: &Arc<Profiles>, costs: &Arc<Mutex<Costs>>) -> Box<dyn Placement> {
    let files = match opts.placement {
        PlacementPolicy::Log => ReserveFiles::Pinned,
        PlacementPolicy::Reserve => opts.reserve_files,
    };
    let pricing = (files == ReserveFiles::Tree).then(|| Pricing::new(opts, costs));
    Box::new(ReservePlacement::new(KernelPlacement::new(opts), reserved_files::of(files, profiles), pricing))
}

/// The options in force on a volume, defaults that depend on it filled in.
fn settled(opts: &MountOptions, store: &Store, deltas: &Deltas, read_only: bool) -> MountOptions {
    let small = Store::is_small(&store.geo);
    let in_place = if small { InPlace::FORCE } else { InPlace::FSYNC };
    let dir_fsync = if store.is_delta_volume() { DirFsync::Recover } else { DirFsync::Checkpoint };
    MountOptions {
        read_only,
        alloc_mode: opts.alloc_mode.or(Some(Store::default_alloc_mode(&store.geo))),
        in_place: opts.in_place.or(Some(in_place)),
        dir_fsync: opts.dir_fsync.or(Some(dir_fsync)),
        delta: Some(deltas.mode),
        cross_file_deltas: Some(deltas.makes_repeats()),
        ..opts.clone()
    }
}

/// The layers over a store up to the names, with nothing in memory yet.
fn over(store: Store, opts: MountOptions, read_only: bool, scope: Scope) -> Tree {
    let cache_blocks = opts.cache_bytes / BLOCK_SIZE;
    let delta_volume = store.is_delta_volume();
    let bases = if delta_volume { cache_blocks / BASES_PART } else { 0 };
    let blocks = Arc::new(ClusterBlocks::default());
    let compressed = store.features.contains(Feature::COMPRESSION);
    let below: Option<Arc<dyn Below>> = if compressed { Some(blocks.clone()) } else { None };
    let deltas = Arc::new(if delta_volume { Deltas::new(&opts, below) } else { Deltas::none(&opts) });
    let plain: Arc<dyn Updates> = if delta_volume { deltas.clone() } else { Arc::new(Plain) };
    let clusters = Arc::new(Clusters::new(blocks, plain.clone()));
    let settled = settled(&opts, &store, &deltas, read_only);
    let profiles = Arc::new(Profiles::new(opts.hot_window, MOST_FILES, store.clock.monotonic()));
    let since = SinceCheckpoint::new(FlushPolicy::new(opts.fsync_mode).orders_names());
    let costs = Arc::new(Mutex::default());
    let content = Content {
        placement: placement(&settled, &profiles, &costs),
        pages: Pages::new(cache_blocks / 4 * 3 - bases),
        base_cache: BaseCache::new(bases),
        codecs: CodecPool::default(),
        costs,
        refs: BlockRefs::default(),
        profiles,
        storages: Storages { plain, clusters: compressed.then(|| clusters.clone() as Arc<dyn PageStorage>) },
        opts,
        map: Map::over(store, read_only, since),
    };
    let files = FileOps::over(Xref::over(content, deltas, clusters), settled.in_force(), scope);
    let names = files.since.names.clone();
    Tree::over(files, NameJournal::new(settled.dir_fsync == Some(DirFsync::Recover), names))
}

/// The root directory, checked to be one.
pub(crate) fn check_root(tree: &Tree) -> Result<Ino> {
    let ino = tree.geo.root_ino;
    let root = match tree.inode(ino) {
        Err(Error::Posix(Posix::Stale)) => {
            return Err(FormatError::corrupt(
                Structure::NatEntry,
                ino,
                "block_addr",
                "the root directory is not in use",
            )
            .into());
        }
        root => root?,
    };
    if !root.is_dir() {
        let mode = root.raw(|r: &RawInode| r.i_mode.get());
        return Err(FormatError::corrupt(
            Structure::Inode,
            root.ino,
            "i_mode",
            format!("{mode:#o}, not a directory"),
        )
        .into());
    }
    Ok(root.ino)
}
