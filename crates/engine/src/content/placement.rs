//! Where a page goes when it is written: over its old block, or to which log.
//!
//! The default policy is the kernel's (`segment.c`: in-place update policies and `__get_segment_type_6`).

use crate::options::InPlace;
use medfs_format::node::Advise;
use medfs_format::summary::Log;
use medfs_store::Dirty;
use medfs_store::Spare;

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
    /// Cleaning moves the page.
    Move,
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

    /// The mark from which on the inode is written for this purpose.
    pub(crate) fn least_to_write(self) -> Dirty {
        match self {
            Purpose::Fsync { datasync: true } => Dirty::Full,
            _ => Dirty::Times,
        }
    }

    /// The mark from which on deltas go into the inode: one that could wait as well takes no more than the page's block.
    pub(crate) fn least_for_deltas(self) -> Dirty {
        match self.least_to_write() {
            Dirty::Times => Dirty::Tick,
            mark => mark,
        }
    }
}

/// What the policy may look at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    pub(crate) purpose: Purpose,
    pub(crate) is_dir: bool,
    pub(crate) advise: Advise,
    pub(crate) pinned: bool,
    /// Dirty pages the file has.
    pub(crate) dirty_pages: usize,
    /// Whether pages may be kept as deltas.
    pub(crate) deltas: bool,
    /// Whether the inode has to be written anyway, so that a delta in it saves a block.
    pub(crate) inode_due: bool,
}

impl Page {
    /// A block that cleaning moves as it is.
    pub(crate) fn moved(advise: Advise) -> Page {
        Page {
            purpose: Purpose::Move,
            is_dir: false,
            advise,
            pinned: false,
            dirty_pages: 0,
            deltas: false,
            inode_due: true,
        }
    }
}

/// Decides for each page.
pub(crate) trait Placement: Send + Sync {
    /// Whether to overwrite the page's block, given that it has one.
    fn in_place(&self, page: &Page) -> bool;
    /// The log otherwise.
    fn log(&self, page: &Page) -> Log;
}

/// The kernel's policy.
#[derive(Debug)]
pub(crate) struct KernelPlacement {
    pub(crate) in_place: InPlace,
}

impl Placement for KernelPlacement {
    fn in_place(&self, page: &Page) -> bool {
        if page.is_dir || matches!(page.purpose, Purpose::Move | Purpose::Atomic | Purpose::Restore) {
            return false;
        }
        if page.pinned || page.advise.contains(Advise::COLD) {
            return true;
        }
        match self.in_place {
            InPlace::Off => false,
            InPlace::Force => true,
            InPlace::Fsync { min_blocks } => match page.purpose {
                Purpose::Fsync { datasync } => datasync || page.dirty_pages <= min_blocks as usize,
                _ => false,
            },
        }
    }

    fn log(&self, page: &Page) -> Log {
        if page.purpose == Purpose::Move {
            Log::ColdData
        } else if page.is_dir {
            Log::HotData
        } else if page.advise.contains(Advise::COLD) {
            Log::ColdData
        } else if page.advise.contains(Advise::HOT) || page.purpose == Purpose::Atomic {
            Log::HotData
        } else {
            Log::WarmData
        }
    }
}
