//! The public face: a mounted volume.

use crate::ars;
use crate::commit::checkpoint::CheckpointSink;
use crate::commit::{Commit, Ways};
use crate::content::file::WriteTimes;
use crate::error::{Error, Posix, Result};
use crate::file_ops::Folded;
use crate::mount::{check_root, mount};
use crate::options::{self, DeltaMode, MountOptions, NvramOption, NvramPlace};
use crate::profile::hotness::Hotness;
use crate::types::*;
use crate::upkeep::Upkeep;
use crate::upkeep::gc::Gc;
use crate::upkeep::idle::IdleReport;
use crate::upkeep::restore::restore_file;
use crate::upkeep::trim::trim;
use medfs_device::{BlockDevice, FileNvram, Nvram};
use medfs_format::Geometry;
#[cfg(doc)]
use medfs_format::compress::Algorithm;
use medfs_format::summary::LOG_COUNT;
use medfs_format::superblock::RawSuperblock;
use medfs_store::{Clock, Refusal};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A mounted F2FS volume. All operations may be called from many threads.
///
/// Errors: every operation fails with [`Error::Corrupt`] where it meets bytes that cannot be trusted, [`Error::Io`]
/// where the device fails, and, where it changes something, [`Error::ReadOnly`] on a read-only volume and
/// [`Error::NoSpace`] on a full one. After a failed write the volume is read-only; what was acknowledged stays.
///
/// Dropping a volume without [`Volume::close`] equals a crash: the next open recovers what was made durable.
pub struct Volume {
    pub(crate) commit: Arc<Commit>,
    pub(crate) upkeep: Upkeep,
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
    ars::learn(&commit);
    let upkeep = Upkeep::new(gc, commit.clock.monotonic());
    Ok(Volume { commit, upkeep })
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

impl Volume {
    /// Opens a volume: checks it, frees orphans, rolls fsynced files forward.
    pub fn open(dev: Arc<dyn BlockDevice>, opts: MountOptions, clock: Arc<dyn Clock>) -> Result<Volume> {
        match &opts.nvram {
            Some(NvramOption::At(NvramPlace { path, offset, size })) => {
                opts.check()?;
                let memory = FileNvram::open(path, *offset, *size, opts.read_only);
                let memory = memory.map_err(|e| Error::Invalid(format!("nvram=: {e}")))?;
                open_with_nvram(dev, Arc::new(memory), opts, clock)
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

    /// Makes everything durable: dirty pages of all files, then a checkpoint. Where some file cannot be written
    /// as blocks of it cannot be read, all else is durable, and the first such error is returned.
    pub fn sync(&self) -> Result<()> {
        if self.commit.read_only { Ok(()) } else { CheckpointSink.sync(&self.commit) }
    }

    /// Makes everything but the dirty pages of regular files durable.
    pub fn checkpoint(&self) -> Result<()> {
        self.commit.checkpoint_now()
    }

    /// One step of background work: a checkpoint where the commit interval has passed, one section cleaned
    /// where that is worthwhile, and idle work where nothing was wanted for a while. Front ends call it about
    /// every second.
    pub fn background(&self) -> Result<()> {
        self.commit.hotness.tick(self.commit.clock.monotonic());
        if self.commit.is_read_only() { Ok(()) } else { self.upkeep.background(&self.commit) }
    }

    /// Idle work (MedFS's BGRes), for a caller that knows that nothing is wanted: makes the groups of hotness
    /// anew once in a `hot_window`, and writes about `budget` pages to restore files that are read often.
    /// Stops when an operation begins. [`Volume::background`] calls it where the volume was idle for as long
    /// as the option `idle` says.
    pub fn idle_work(&self, budget: u64) -> Result<IdleReport> {
        self.upkeep.idle_work(&self.commit, budget)
    }

    /// How busy a file is, as far as is known.
    pub fn hotness(&self, ino: Ino) -> Hotness {
        self.commit.hotness.of(ino)
    }

    /// Space of the volume.
    pub fn statfs(&self) -> StatFs {
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

    /// Inode number of the root directory.
    pub fn root(&self) -> Ino {
        self.commit.geo.root_ino
    }

    /// Keeps an inode alive, were it unlinked, until it is released as often.
    pub fn hold(&self, ino: Ino, count: u64) -> Result<()> {
        self.commit.inode(ino)?;
        self.commit.inodes.hold(ino, count);
        Ok(())
    }

    /// Gives holds back; the last one of an unlinked inode frees it.
    pub fn release(&self, ino: Ino, count: u64) {
        if let Err(e) = self.commit.release(ino, count) {
            tracing::warn!(ino, error = %e, "an unlinked inode could not be freed; the next mount frees it");
        }
    }

    /// The volume, of which something is wanted: it is not idle.
    fn wanted(&self) -> &Commit {
        self.upkeep.note_wanted();
        &self.commit
    }

    /// Finds a name. The inode returned is held once.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.commit.hiding().refuse(parent, name, Posix::NotFound)?;
        self.wanted().lookup(parent, name)
    }

    /// Attributes of an inode.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.wanted().getattr(ino)
    }

    /// Changes attributes.
    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.wanted().setattr(ino, set)
    }

    /// Makes a file, directory, device, FIFO or socket. The inode returned is held once.
    pub fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> Result<Attr> {
        self.commit.hiding().refuse(parent, name, Posix::NotPermitted)?;
        let attr = self.wanted().create(parent, name, new)?;
        self.named(attr, parent)
    }

    /// Makes a file without a name. It is held once and freed with the last release, unless linked before.
    pub fn tmpfile(&self, parent: Ino, new: &NewFile) -> Result<Attr> {
        self.wanted().tmpfile(parent, new)
    }

    /// Makes a symbolic link. The inode returned is held once.
    pub fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Attr> {
        self.commit.hiding().refuse(parent, name, Posix::NotPermitted)?;
        let attr = self.wanted().symlink(parent, name, target, uid, gid)?;
        self.named(attr, parent)
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.wanted().readlink(ino)
    }

    /// Gives an inode another name. The inode returned is held once.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.commit.hiding().refuse(parent, name, Posix::NotPermitted)?;
        let attr = self.wanted().link(ino, parent, name)?;
        self.named(attr, parent)
    }

    /// Ends an operation that gave an inode a name and took a hold.
    fn named(&self, attr: Attr, parent: Ino) -> Result<Attr> {
        match self.commit.sync_names(&[parent]) {
            Ok(()) => Ok(attr),
            Err(error) => {
                self.release(attr.ino, 1);
                Err(error)
            }
        }
    }

    /// Removes a name of a file that is no directory.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.commit.hiding().refuse(parent, name, Posix::NotFound)?;
        self.wanted().unlink(parent, name)?;
        self.commit.sync_names(&[parent])
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.commit.hiding().refuse(parent, name, Posix::NotFound)?;
        self.wanted().rmdir(parent, name)?;
        self.commit.sync_names(&[parent])
    }

    /// Moves a name, in one step that is atomic over a crash.
    pub fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.commit.hiding().refuse(parent, name, Posix::NotFound)?;
        self.commit.hiding().refuse(new_parent, new_name, Posix::NotPermitted)?;
        self.wanted().rename(parent, name, new_parent, new_name, flags)?;
        self.commit.sync_names(&[parent, new_parent])
    }

    /// Lists a directory from a position on (0: the start) until `emit` returns `false`, which means that the entry was
    /// not taken.
    pub fn readdir(&self, ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.wanted().readdir(ino, position, emit)
    }

    /// Reads bytes; fewer than asked for only at the end of the file.
    pub fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.wanted().read(ino, offset, buf)
    }

    /// Writes bytes; fewer than given only where space ran out in the middle.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let written = self.wanted().write(ino, offset, data, WriteTimes::Now)?;
        self.commit.sync_written(ino)?;
        Ok(written)
    }

    /// Like [`Volume::write`] for a page cache above that keeps the file's times itself: mtime and ctime stay as they
    /// are until it sets them. Without this, pages written back long after they were modified would make a new mtime
    /// each time, and each fsync an inode block that nobody needs.
    pub fn write_cached(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.wanted().write(ino, offset, data, WriteTimes::Kept)
    }

    /// `fallocate(2)`.
    pub fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.wanted().fallocate(ino, mode, offset, len)
    }

    /// Finds data or a hole; `NoSuchAddress` where there is none, or beyond the end.
    pub fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        self.wanted().seek(ino, offset, whence)
    }

    /// Copies bytes between files; returns how many.
    pub fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        let copied = self.wanted().copy_range(from, from_offset, to, to_offset, len)?;
        self.commit.sync_written(to)?;
        Ok(copied)
    }

    /// Makes a file durable: content and attributes, or, with `datasync`, all but times. With
    /// `durability=adaptive` it returns at once, and the volume is committed as a whole within the bounds of
    /// [`crate::LossBounds`]; after a failed commit it is an error.
    pub fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.commit.hotness.note_fsync(ino);
        self.wanted().fsync(ino, datasync)
    }

    /// As [`Volume::fsync`] of each of these files, in fewer blocks where little of each is to be written.
    /// After power loss each file is as some fsync left it or as it is now; all are as now once this returns.
    pub fn fsync_many(&self, files: &[Ino], datasync: bool) -> Result<()> {
        files.iter().for_each(|&ino| self.commit.hotness.note_fsync(ino));
        self.wanted().fsync_many(files, datasync)
    }

    /// Value of an extended attribute, by its full name (`user.x`).
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.wanted().getxattr(ino, name)
    }

    /// Full names of the extended attributes.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.wanted().listxattr(ino)
    }

    /// Sets an extended attribute.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let is_tree = ars::is_tree(&self.commit, ino, name);
        if is_tree {
            ars::check(value)?;
        }
        self.wanted().setxattr(ino, name, value, mode)?;
        if is_tree {
            ars::learn(&self.commit);
        }
        Ok(())
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.wanted().removexattr(ino, name)?;
        if ars::is_tree(&self.commit, ino, name) {
            ars::learn(&self.commit);
        }
        Ok(())
    }

    /// Sets the chattr flags; `NotSupported` where one cannot be changed. `SYNC` and `DIRSYNC` make later
    /// changes durable before their calls return.
    pub fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<()> {
        self.wanted().set_flags(ino, flags)
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
        fs.release_saved(ino)
    }

    /// Whether that was done, so that the file cannot be written.
    pub fn saved_blocks_released(&self, ino: Ino) -> Result<bool> {
        self.wanted().clusters().saved_blocks_released(ino)
    }

    /// Takes the blocks again that [`Volume::release_saved_blocks`] gave back, and returns their number.
    pub fn reserve_saved_blocks(&self, ino: Ino) -> Result<u64> {
        self.wanted().reserve_saved(ino)
    }

    /// Algorithm (see [`Algorithm`]) and log2 of the pages of a cluster; `NoAttribute` of a file that is not
    /// compressed.
    pub fn compress_option(&self, ino: Ino) -> Result<(u8, u8)> {
        self.wanted().clusters().compress_option(ino)
    }

    /// Chooses these for a compressed file; `FileTooLarge` where it has blocks already.
    pub fn set_compress_option(&self, ino: Ino, algorithm: u8, log_cluster_size: u8) -> Result<()> {
        self.wanted().set_compress_option(ino, algorithm, log_cluster_size)
    }

    /// Writes a compressed file anew: its clusters compressed, or not. Only with `compress_mode=user`, else
    /// `NotSupported`.
    pub fn rewrite_compressed(&self, ino: Ino, compress: bool) -> Result<()> {
        self.wanted().rewrite_clusters(ino, compress)
    }

    /// Sets the project id; `NotSupported` where the volume keeps none.
    pub fn set_project(&self, ino: Ino, project: u32) -> Result<()> {
        self.wanted().set_project(ino, project)
    }

    /// Starts an atomic write: writes are kept aside until the commit.
    pub fn atomic_start(&self, ino: Ino) -> Result<()> {
        self.wanted().atomic_start(ino)
    }

    /// Makes everything written since the start durable, all of it or, after a crash, nothing.
    pub fn atomic_commit(&self, ino: Ino) -> Result<()> {
        self.wanted().atomic(ino)
    }

    /// Drops everything written since the start.
    pub fn atomic_abort(&self, ino: Ino) -> Result<()> {
        self.wanted().atomic_abort(ino)
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
