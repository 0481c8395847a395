//! Where a page goes when it is written: over its old block, or to which log.
//!
//! The default policy is the kernel's (`segment.c`: in-place update policies and `__get_segment_type_6`).

use crate::content::update_costs::Prices;
use crate::map::inode::Inode;
use crate::map::node_tree::Slot;
use crate::options::{DurabilityMode, InPlace, MountOptions, Occasion};
use crate::profile::{FileSample, Known};
use medfs_format::ars::{Class, Tree};
use medfs_format::node::{Advise, FileKind, Inline};
use medfs_format::summary::Log;
use medfs_format::{BLOCK_SIZE, BlockAddr, Ino};
use medfs_store::{Dirty, Spare, Store};
use std::ops::Range;

/// Why pages are being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An fsync; `datasync` for fdatasync.
    Fsync { datasync: bool },
    /// Memory is short, or time has passed.
    Background,
    /// A checkpoint writes directories and symbolic links.
    Checkpoint,
    /// An atomic write commits: old content must survive until the node is durable.
    Atomic,
    /// All that waits of an app becomes durable, as at one moment: what was durable of it must survive until then.
    App,
    /// Cleaning moves the page.
    Move,
    /// Pages of a file that lie apart are brought together.
    Defragment,
    /// A page that is a delta becomes a block again, as its file is read often.
    Restore,
}

impl Purpose {
    /// What the page's block may be taken from.
    pub(crate) fn spare(self) -> Spare {
        match self {
            Purpose::Checkpoint => Spare::Use,
            Purpose::Move => Spare::Clean,
            _ => Spare::Keep,
        }
    }

    /// Whether the page's old block must survive it.
    pub(crate) fn leaves_old(self) -> bool {
        matches!(
            self,
            Purpose::Move | Purpose::Defragment | Purpose::Atomic | Purpose::App | Purpose::Restore
        )
    }

    /// The mark from which on the inode is written for this purpose.
    pub(crate) fn least_to_write(self) -> Dirty {
        match self {
            Purpose::Fsync { datasync: true } => Dirty::Full,
            Purpose::App => Dirty::Tick,
            _ => Dirty::Times,
        }
    }

    /// The mark from which on deltas go into the inode: one that could wait as well takes no more than the
    /// page's block.
    pub(crate) fn least_for_deltas(self) -> Dirty {
        match self.least_to_write() {
            Dirty::Times => Dirty::Tick,
            mark => mark,
        }
    }
}

/// Pages of one file that are written for one purpose: what the policy may look at of all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    pub(super) ino: Ino,
    pub(crate) purpose: Purpose,
    is_dir: bool,
    /// A regular file that is not compressed.
    pub(super) is_plain_file: bool,
    advise: Advise,
    pub(super) pinned: bool,
    /// Dirty pages the file has.
    pub(crate) dirty_pages: usize,
    /// Pages up to the file's end.
    pub(super) pages: u64,
    /// Those of them that the file fills: the one behind them changes again when it grows.
    whole_pages: u64,
}

impl Batch {
    /// Pages of a file that has so many dirty ones.
    pub(crate) fn of(inode: &Inode, purpose: Purpose, dirty_pages: usize) -> Batch {
        let (size, kind) = (inode.size(), inode.kind());
        inode.raw(|r| Batch {
            ino: inode.ino,
            purpose,
            is_plain_file: kind == FileKind::Regular && r.compression().is_none(),
            is_dir: kind == FileKind::Directory,
            advise: r.advise(),
            pinned: r.inline().contains(Inline::PIN_FILE),
            dirty_pages,
            pages: size.div_ceil(BLOCK_SIZE as u64),
            whole_pages: size / BLOCK_SIZE as u64,
        })
    }

    /// A page of them whose old block must stay as it is, or that has none.
    pub(crate) fn new_block(self) -> PageRef {
        PageRef { batch: self, index: None, own: None, compressed: false }
    }

    /// A page of them whose block, at `own`, nothing else needs.
    pub(crate) fn overwritable(self, own: BlockAddr) -> PageRef {
        PageRef { batch: self, index: None, own: Some(own), compressed: false }
    }

    /// A block of a compressed cluster.
    pub(crate) fn compressed(self) -> PageRef {
        PageRef { batch: self, index: None, own: None, compressed: true }
    }
}

/// A data block that is to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageRef {
    pub(super) batch: Batch,
    /// Which page of the file it is, where that decides where it belongs: it does not of compact pages.
    pub(super) index: Option<u64>,
    /// The page's own block, where it may be overwritten.
    pub(super) own: Option<BlockAddr>,
    /// It is a block of a compressed cluster.
    pub(super) compressed: bool,
}

impl PageRef {
    /// Whether a new block of it will be overwritten before long, or always: its file is pinned or grows within
    /// it, or the page was written before and comes home.
    pub(crate) fn stays(&self) -> bool {
        let grows = self.index.is_some_and(|index| index >= self.batch.whole_pages);
        self.batch.pinned || grows || self.own.is_some()
    }

    /// The log that data of this kind goes to, as in the kernel.
    pub(crate) fn log(&self) -> Log {
        let Batch { purpose, is_dir, advise, .. } = self.batch;
        if purpose == Purpose::Move || self.compressed {
            Log::ColdData
        } else if is_dir {
            Log::HotData
        } else if advise.contains(Advise::COLD) {
            Log::ColdData
        } else if advise.contains(Advise::HOT) || purpose == Purpose::Atomic {
            Log::HotData
        } else {
            Log::WarmData
        }
    }
}

/// Where a data block goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Over the page's own block: only where [`PageRef::own`] names it.
    InPlace,
    /// To the next block of a log.
    Append(Log),
    /// To this block, which is reserved for the file.
    At(BlockAddr),
}

/// Decides for each data block.
pub(crate) trait Placement: Send + Sync {
    /// Where the block of a slot goes, on this volume as it is now.
    fn target(&self, page: &PageRef, slot: &Slot, store: &Store) -> Target;

    /// Whether such pages of a file are overwritten where nothing else needs their blocks, as far as can be
    /// told of all of them.
    fn overwrites(&self, batch: &Batch, store: &Store) -> bool;

    /// The log that such pages of a file go to where they are not overwritten; `None` where they go elsewhere too.
    fn log(&self, batch: &Batch) -> Option<Log>;

    /// Before an operation: gives back what is reserved where the logs are short of segments or the volume is
    /// nearly full. Tells whether that was anything.
    fn relieve(&self, _: &Store) -> bool {
        false
    }

    /// Gives back all that is reserved; tells whether that was anything.
    fn give_back(&self, _: &Store) -> bool {
        false
    }

    /// A write is about to change a file of which so much is known by now: it is judged where its pages belong.
    fn judge(&self, _: &Inode, _: &Known, _: &Store) {}

    /// The decision tree to judge by from now on.
    fn learn(&self, _: Tree) {}

    /// Files that it judged, and what became of them.
    fn samples(&self) -> Vec<FileSample> {
        Vec::new()
    }

    /// What became of most earlier files of the same directory and name pattern as a file, where that counts.
    fn kin(&self, _: &Inode) -> Option<Class> {
        None
    }

    /// Whether what fsyncs write of files is counted, and what requests of the device take.
    fn counts(&self) -> bool {
        false
    }

    /// What each way costs to keep the pages of a file of which so much is known, where that is asked.
    fn prices(&self, _: &Inode, _: &Known, _: &Store) -> Option<Prices> {
        None
    }

    /// Whether pages of a file that are written now are to be whole, though the volume holds deltas.
    fn is_whole(&self, _: &Batch) -> bool {
        false
    }

    /// The windows of a file that have sections of their own: window and section.
    fn reserved(&self, _: Ino) -> Vec<(u64, u32)> {
        Vec::new()
    }

    /// The windows of files that have sections of their own, by file.
    fn windows(&self) -> Vec<(Ino, u64)> {
        Vec::new()
    }

    /// Whether pages of a file that are written now go to its sections.
    fn reserves_for(&self, _: &Inode) -> bool {
        false
    }

    /// Pages of a file, from one on and up to another, will be written: reserves what the policy gives them.
    fn prepare(&self, _: &Batch, _: Range<u64>, _: &Store) {}

    /// Reserves windows of a pinned file that it keeps, as all of their blocks are counted as its own; with
    /// each the section in which its blocks lie, if it has any. `false`, with nothing new reserved or kept,
    /// where too few sections are free.
    fn keep(&self, _: Ino, _: &[(u64, Option<u32>)], _: &Store) -> bool {
        true
    }

    /// Gives back a section that is kept; `false` where there is none.
    fn give_back_kept(&self, _: &Store) -> bool {
        false
    }

    /// Pages of a file go, with their blocks: their windows are kept no more.
    fn cut(&self, _: Ino, _: Range<u64>, _: &Store) {}

    /// A file has nothing reserved any more.
    fn release(&self, _: Ino, _: &Store) {}

    /// A file is gone.
    fn forget(&self, _: &Inode, _: &Store) {}
}

/// The kernel's policy: over the page's own block where an in-place update policy says so, otherwise to a log.
#[derive(Debug)]
pub(crate) struct KernelPlacement {
    in_place: InPlace,
    /// Whether pages of cold files are overwritten too.
    cold: bool,
    min_util: u32,
    min_fsync_blocks: usize,
}

impl KernelPlacement {
    /// The policy of these options.
    pub(crate) fn new(opts: &MountOptions) -> KernelPlacement {
        // Where an fsync is put off, what was committed last must stay until the next commit.
        let posix = opts.durability == DurabilityMode::Posix;
        KernelPlacement {
            in_place: opts.in_place.filter(|_| posix).unwrap_or(InPlace::empty()),
            cold: posix,
            min_util: opts.min_ipu_util,
            min_fsync_blocks: opts.min_fsync_blocks as usize,
        }
    }

    /// Whether a page that may be overwritten is.
    fn in_place(&self, batch: &Batch, store: &Store) -> bool {
        if batch.is_dir || batch.purpose.leaves_old() {
            return false;
        }
        batch.pinned
            || (self.cold && batch.advise.contains(Advise::COLD))
            || self.in_place.applies(self.occasion(batch, store))
    }

    fn occasion(&self, batch: &Batch, store: &Store) -> Occasion {
        let occasion = Occasion {
            fsync: match batch.purpose {
                Purpose::Fsync { datasync } => datasync || batch.dirty_pages <= self.min_fsync_blocks,
                _ => false,
            },
            waited_for: batch.purpose != Purpose::Background,
            ..Occasion::default()
        };
        if !self.in_place.needs_fill() {
            return occasion;
        }
        let is_full = store.space.utilization() > self.min_util;
        Occasion { fills_holes: store.segs.lock().prefers_ssr(), is_full, ..occasion }
    }
}

impl Placement for KernelPlacement {
    fn target(&self, page: &PageRef, _: &Slot, store: &Store) -> Target {
        match page.own {
            Some(_) if self.in_place(&page.batch, store) => Target::InPlace,
            _ => Target::Append(page.log()),
        }
    }

    fn overwrites(&self, batch: &Batch, store: &Store) -> bool {
        self.in_place(batch, store)
    }

    fn log(&self, batch: &Batch) -> Option<Log> {
        Some(batch.new_block().log())
    }
}
