//! The public face: a mounted volume. Its operations on files are in `volume/operations.rs`.

mod operations;

use crate::ars::kept_tree;
use crate::ars::retraining::{Retraining, TrainedStats, Trainer};
use crate::commit::checkpoint::CheckpointSink;
use crate::commit::{Commit, Ways};
use crate::error::{Error, Posix, Result};
use crate::file_ops::Folded;
use crate::mount::{check_root, mount};
use crate::options::{self, DeltaMode, MountOptions, NvramOption, NvramPlace, Recover};
use crate::profile::Hotness;
use crate::types::*;
use crate::upkeep::Upkeep;
use crate::upkeep::gc::Gc;
use crate::upkeep::idle::IdleReport;
use crate::upkeep::restore::restore_file;
use crate::upkeep::trim::trim;
use medfs_device::{BlockDevice, Nvram, NvramAccess, open_nvram};
use medfs_format::Geometry;
#[cfg(doc)]
use medfs_format::compress::Algorithm;
use medfs_format::summary::LOG_COUNT;
use medfs_format::superblock::RawSuperblock;
use medfs_store::{Clock, Refusal};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A mounted F2FS volume. Its operations on files are those of [`crate::Files`]. All may be called from many threads.
///
/// Errors: every operation fails with [`Error::Corrupt`] where it meets bytes that cannot be trusted, [`Error::Io`]
/// where the device fails, and, where it changes something, [`Error::ReadOnly`] on a read-only volume and
/// [`Error::NoSpace`] on a full one. After a failed write the volume is read-only; what was acknowledged stays.
///
/// Dropping a volume without [`Volume::close`] equals a crash: the next open recovers what was made durable.
pub struct Volume {
    pub(crate) commit: Arc<Commit>,
    pub(crate) upkeep: Upkeep,
    pub(crate) retraining: Retraining,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume")
            .field("label", &self.commit.sb.label())
            .field("read_only", &self.is_read_only())
            .finish()
    }
}

/// Opens a volume whose changes become durable in this way.
pub(crate) fn open_with(
    dev: Arc<dyn BlockDevice>,
    opts: MountOptions,
    clock: Arc<dyn Clock>,
    ways: Ways,
) -> Result<Volume> {
    opts.check()?;
    let gc = Arc::new(Gc::default());
    let commit = mount(dev, opts, clock, ways, gc.clone())?;
    check_root(&commit)?;
    if !commit.is_read_only() {
        commit.begin_nvram()?;
    }
    kept_tree::learn(&commit);
    let now = commit.clock.monotonic();
    Ok(Volume { commit, upkeep: Upkeep::new(gc, now), retraining: Retraining::new(now) })
}

/// Opens a volume with deltas whose fsyncs of little changes go to a memory beside it, and come from there
/// after a crash: the option `nvram=` with that memory in place of a path. `Incompatible` where the memory
/// holds those of another volume, or not those of this one.
pub fn open_with_nvram(
    dev: Arc<dyn BlockDevice>,
    memory: Arc<dyn Nvram>,
    opts: MountOptions,
    clock: Arc<dyn Clock>,
) -> Result<Volume> {
    options::nvram::check_with_memory(&opts)?;
    // A record may come between the nodes that a seal counts.
    let opts = MountOptions { seal: false, ..opts };
    let ways = Ways::with_nvram(&opts, memory);
    open_with(dev, opts, clock, ways)
}

/// Opens a volume with the fsyncs that lie in a memory beside it, and leaves the memory as it is: the volume
/// needs it no more. What is damaged there is given up alone, and told by
/// [`PastDamage::unrecovered`](crate::PastDamage::unrecovered).
pub fn repair_with_nvram(
    dev: Arc<dyn BlockDevice>,
    memory: Arc<dyn Nvram>,
    clock: Arc<dyn Clock>,
) -> Result<Volume> {
    // As in `open_with_nvram`. A node that cannot be replayed costs its own file the fsync.
    let opts = MountOptions { seal: false, recover: Recover::WhatFits, ..MountOptions::default() };
    let ways = Ways::repairing_nvram(&opts, memory);
    open_with(dev, opts, clock, ways)
}

impl Volume {
    /// Opens a volume: checks it, frees orphans, rolls fsynced files forward.
    pub fn open(dev: Arc<dyn BlockDevice>, opts: MountOptions, clock: Arc<dyn Clock>) -> Result<Volume> {
        match &opts.nvram {
            Some(NvramOption::At(NvramPlace { path, offset, size })) => {
                opts.check()?;
                let access = NvramAccess { read_only: opts.read_only, volatile: opts.nvram_volatile };
                match open_nvram(path, *offset, *size, access) {
                    Ok(memory) => open_with_nvram(dev, memory, opts, clock),
                    Err(error) if opts.read_only => {
                        tracing::warn!("nvram=: {error}");
                        let ways = Ways::new(&opts);
                        open_with(dev, opts, clock, ways)
                    }
                    Err(error) => Err(Error::Invalid(format!("nvram=: {error}"))),
                }
            }
            _ => {
                let ways = Ways::new(&opts);
                open_with(dev, opts, clock, ways)
            }
        }
    }

    /// Writes everything and a final checkpoint. Afterwards every call that changes something fails. Where some
    /// file cannot be written as blocks of it cannot be read, all else is, and the first such error is returned.
    pub fn close(&self) -> Result<()> {
        if self.commit.read_only || self.commit.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        CheckpointSink.for_unmount(&self.commit)?;
        if let Some(survivor) = self.commit.survivor.get() {
            survivor.end()?;
        }
        self.commit.end_nvram()
    }

    /// The options the volume was opened with.
    pub fn options(&self) -> &MountOptions {
        &self.commit.opts
    }

    /// The superblock.
    pub fn superblock(&self) -> &RawSuperblock {
        &self.commit.sb
    }

    /// Where the areas of the volume are.
    pub fn geometry(&self) -> &Geometry {
        &self.commit.geo
    }

    /// Refuses all further writes, as after a failed one, for a reason that [`Volume::stats`] then tells: for
    /// a front end that no longer trusts what is in memory. What was fsynced is found when the volume is
    /// opened again.
    pub fn stop_writing(&self, why: &str) {
        self.commit.io.stop_writing(why);
    }

    /// Whether writes are refused: by option, by the device, after a failure, or after [`Volume::close`].
    pub fn is_read_only(&self) -> bool {
        self.commit.is_read_only()
    }

    /// What becomes of small updates: `Off` on a plain F2FS volume, whatever was asked for.
    pub fn delta_mode(&self) -> DeltaMode {
        self.commit.deltas.mode
    }

    /// Writes every page that is a delta as a whole and takes the zones away, on a volume opened with
    /// `delta=off` (`Invalid` otherwise); durable with the next checkpoint. `progress` is told how many
    /// inodes of how many are done.
    pub fn fold_deltas(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Folded> {
        let folded = self.commit.fold_deltas(progress)?;
        self.commit.hidden().remove()?;
        Ok(folded)
    }

    /// Makes everything but the dirty pages of regular files durable.
    pub fn checkpoint(&self) -> Result<()> {
        self.commit.checkpoint_now()
    }

    /// Idle work (MedFS's BGRes), for a caller that knows that nothing is wanted: makes the groups of hotness
    /// anew once in a `hot_window`, and writes about `budget` pages to restore files that are read often.
    /// Stops when an operation begins. [`crate::Files::background`] calls it where the volume was idle for as long
    /// as the option `idle` says.
    pub fn idle_work(&self, budget: u64) -> Result<IdleReport> {
        self.upkeep.idle_work(&self.commit, budget)
    }

    /// Who makes decision trees of the files that were judged: with `reserve_retrain=on` from time to time.
    pub fn train_with(&self, trainer: Box<dyn Trainer>) {
        self.retraining.train_with(trainer);
    }

    /// Trains the decision tree anew, which becomes the volume's where it is better. `NotSupported` where no
    /// tree chooses the files with reserves, or nobody makes trees.
    pub fn retrain(&self) -> Result<TrainedStats> {
        self.upkeep.note_wanted();
        let trained = self.retraining.retrain(&self.commit)?;
        self.keep(trained.into())
    }

    /// How busy a file is, as far as is known.
    pub fn hotness(&self, ino: Ino) -> Hotness {
        self.commit.profiles.hotness(ino)
    }

    /// Space of the volume.
    pub fn space(&self) -> StatFs {
        let c = self.commit.space.counts();
        let geo = &self.commit.geo;
        let free = c.free();
        let files = u64::from(c.max_nodes).min(c.user_blocks);
        StatFs {
            blocks: geo.block_count - u64::from(geo.segment0_blkaddr),
            free,
            available: free.saturating_sub(nodes_of_file(free)),
            files,
            files_free: files.saturating_sub(u64::from(c.valid_inodes)).min(free),
        }
    }

    /// For tests: from the block of this log on that is handed out next but `after`, as many attempts to take
    /// one find it the last of its segment, and no other segment.
    #[doc(hidden)]
    pub fn refuse_blocks(&self, log: usize, after: u64, times: u64) {
        self.commit.segs.lock().refusal = Some(Refusal::new(log, after, times));
    }

    /// For tests: blocks handed out from each log since the volume was opened.
    #[doc(hidden)]
    pub fn blocks_taken(&self) -> [u64; LOG_COUNT] {
        self.commit.segs.lock().taken
    }

    /// Discards free space of a byte range in runs of at least `min_len` bytes; returns the bytes discarded.
    pub fn trim(&self, start: u64, len: u64, min_len: u64) -> Result<u64> {
        trim(&self.commit, start, len, min_len)
    }

    /// The volume, of which something is wanted: it is not idle.
    fn wanted(&self) -> &Commit {
        self.upkeep.note_wanted();
        &self.commit
    }

    /// What an operation that changed something returns, once that is durable or in the log that outlives the process.
    fn keep<R>(&self, returned: R) -> Result<R> {
        self.commit.keep_up()?;
        Ok(returned)
    }

    /// Blocks that compression saves in a file (`i_compr_blocks`). Of this and the six calls below:
    /// `NotSupported` where the volume has no compression, `InvalidArgument` where the file is not
    /// compressed.
    pub fn saved_blocks(&self, ino: Ino) -> Result<u64> {
        self.wanted().clusters().saved_blocks(ino)
    }

    /// Gives the blocks that compression saves in a file back to the volume, and returns their number. Until
    /// [`Volume::reserve_saved_blocks`] the file can be read and cut between clusters only (`NotPermitted`).
    pub fn release_saved_blocks(&self, ino: Ino) -> Result<u64> {
        let fs = self.wanted();
        fs.write_back_compressed(ino)?;
        // What is cut later must need no room, which opening a cluster for the sake of its deltas would.
        restore_file(fs, ino)?;
        let released = fs.release_saved(ino)?;
        self.keep(released)
    }

    /// Whether that was done, so that the file cannot be written.
    pub fn saved_blocks_released(&self, ino: Ino) -> Result<bool> {
        self.wanted().clusters().saved_blocks_released(ino)
    }

    /// Takes the blocks again that [`Volume::release_saved_blocks`] gave back, and returns their number.
    pub fn reserve_saved_blocks(&self, ino: Ino) -> Result<u64> {
        let taken = self.wanted().reserve_saved(ino)?;
        self.keep(taken)
    }

    /// Algorithm (see [`Algorithm`]) and log2 of the pages of a cluster; `NoAttribute` of a file that is not
    /// compressed.
    pub fn compress_option(&self, ino: Ino) -> Result<(u8, u8)> {
        self.wanted().clusters().compress_option(ino)
    }

    /// Chooses these for a compressed file; `FileTooLarge` where it has blocks already.
    pub fn set_compress_option(&self, ino: Ino, algorithm: u8, log_cluster_size: u8) -> Result<()> {
        self.wanted().set_compress_option(ino, algorithm, log_cluster_size)?;
        self.keep(())
    }

    /// Writes a compressed file anew: its clusters compressed, or not. Only with `compress_mode=user`, else
    /// `NotSupported`.
    pub fn rewrite_compressed(&self, ino: Ino, compress: bool) -> Result<()> {
        self.wanted().rewrite_clusters(ino, compress)
    }

    /// Whether a file is pinned: its blocks stay where they are.
    pub fn is_pinned(&self, ino: Ino) -> Result<bool> {
        self.wanted().is_pinned(ino)
    }

    /// Pins a file, or lets it go. Pages of a pinned file that have blocks are always overwritten there, and
    /// cleaning moves none; [`crate::Files::fallocate`] gives it whole sections, which are zeros until they
    /// are written. `FileTooLarge` where the file has blocks already, `InvalidArgument` where it is no regular
    /// file or an atomic write of it is open, `NotSupported` where it is compressed.
    pub fn set_pinned(&self, ino: Ino, pin: bool) -> Result<()> {
        self.wanted().set_pinned(ino, pin)?;
        self.keep(())
    }

    /// Writes the pages of a range of bytes anew that lie apart, so that they lie together; returns the bytes
    /// that were written. Pages that are deltas, or that others are made from, stay. `InvalidArgument` where
    /// the range is not of whole pages, or the file no regular one, pinned, or open for an atomic write;
    /// `NotSupported` where it is compressed.
    pub fn defragment(&self, ino: Ino, start: u64, len: u64) -> Result<u64> {
        self.wanted().defragment(ino, start, len)
    }

    /// Sets the project id; `NotSupported` where the volume keeps none.
    pub fn set_project(&self, ino: Ino, project: u32) -> Result<()> {
        self.wanted().set_project(ino, project)?;
        self.keep(())
    }
}

const _: fn() = || {
    fn assert_shareable<T: Send + Sync>() {}
    assert_shareable::<Volume>();
    let _: Option<(Error, Posix)> = None;
};

/// Most nodes of a file of so many blocks, its inode among them.
fn nodes_of_file(blocks: u64) -> u64 {
    let direct = blocks.div_ceil(medfs_format::node::ADDRS_PER_BLOCK as u64);
    1 + direct + direct.div_ceil(medfs_format::node::NIDS_PER_BLOCK as u64) + 1
}
