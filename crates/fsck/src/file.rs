//! What the walk of one file gathers: as a directory, with deltas, with compact pages, compressed.

use crate::deltas::Deltas;
use crate::names::{inode_name, is_encrypted, is_opaque};
use foldhash::{HashSet, HashSetExt};
use medfs_format::compress::Compression;
use medfs_format::delta::{self, Tie};
use medfs_format::node::{ADDRS_PER_BLOCK, NAME_LEN, RawExtent, RawInode};
use medfs_format::{BLOCK_SIZE, Ino};
use std::collections::BTreeMap;
use std::ops::Range;

/// One file's walk.
pub(crate) struct FileWalk {
    pub(crate) ino: Ino,
    pub(crate) dir: Option<DirWalk>,
    pub(crate) zone: Option<Zone>,
    /// Its name, where it is compressed: a repair may cost content.
    pub(crate) name: String,
    /// How the file is compressed, and whether it gave back what that saved.
    pub(crate) compression: Option<Compression>,
    pub(crate) released: bool,
    /// Slots of compressed clusters that name no block.
    pub(crate) saved: u64,
    /// Where its compact pages would be, on a volume that may have some.
    pub(crate) region: Option<Region>,
    pub(crate) addrs_per_block: usize,
    pub(crate) blocks: u64,
    pub(crate) extent: RawExtent,
    pub(crate) extent_hits: u32,
    pub(crate) last_page: Option<u64>,
    /// The first page behind its end, or behind the cluster that this is in.
    pub(crate) end: u64,
    /// Pages from there on that have blocks.
    pub(crate) past_end: u64,
    /// Bits of its size that were turned, as no file has the one that was read.
    pub(crate) size_turned: u32,
    pub(crate) cut: bool,
    /// Blocks and nodes that were cut off.
    pub(crate) lost: u64,
    /// Addresses among these: of what is no block of the file.
    pub(crate) strange: u64,
    /// Nodes that are lost, and were below an indirect node that is lost too.
    pub(crate) unplaced: u64,
    /// The checksum of its inode is wrong.
    pub(crate) doubtful: bool,
}

impl FileWalk {
    /// Nothing gathered yet of a file that is no directory.
    pub(crate) fn new(ino: Ino, inode: &RawInode, compression: Option<Compression>) -> FileWalk {
        let cluster = compression.map_or(1, Compression::cluster_pages);
        FileWalk {
            ino,
            dir: None,
            zone: None,
            name: compression.map_or(String::new(), |_| {
                let len = (inode.i_namelen.get() as usize).min(NAME_LEN);
                String::from_utf8_lossy(&inode.i_name[..len]).into_owned()
            }),
            compression,
            released: inode.saved_blocks_released(),
            saved: 0,
            region: None,
            addrs_per_block: ADDRS_PER_BLOCK / cluster * cluster,
            blocks: 1,
            extent: inode.i_ext,
            extent_hits: 0,
            last_page: None,
            end: inode.i_size.get().div_ceil(BLOCK_SIZE as u64).next_multiple_of(cluster as u64),
            past_end: 0,
            size_turned: 0,
            cut: false,
            lost: 0,
            strange: 0,
            unplaced: 0,
            doubtful: false,
        }
    }
}

/// What a directory's walk gathers.
pub(crate) struct DirWalk {
    pub(crate) parent: Ino,
    pub(crate) dir_level: u8,
    /// Names that fit this level, before addresses were put back.
    pub(crate) level_fits: usize,
    /// The hashes of names are not those of their bytes (encrypted, case-insensitive).
    pub(crate) opaque: bool,
    /// Of these: case is ignored, and the names are as users see them.
    pub(crate) folds: bool,
    /// `.` and `..` were seen.
    pub(crate) dots: [bool; 2],
    /// The first block is another directory's, as `.` says.
    pub(crate) is_others: bool,
    pub(crate) subdirs: u32,
    /// Deepest hash level in use, plus one.
    pub(crate) depth: u32,
    /// The dentry hash and a second, independent hash of each name seen.
    pub(crate) names: HashSet<(u32, u64)>,
}

impl DirWalk {
    /// Whether it has no name any more: removed while it was open, and still on the orphan list.
    pub(crate) fn is_orphan(&self) -> bool {
        self.parent == 0
    }

    pub(crate) fn new(inode: &RawInode, level_fits: usize, parent: Ino) -> DirWalk {
        DirWalk {
            parent,
            dir_level: inode.i_dir_level,
            level_fits,
            opaque: is_opaque(inode),
            folds: is_opaque(inode) && !is_encrypted(inode),
            dots: [false; 2],
            is_others: false,
            subdirs: 0,
            depth: 0,
            names: HashSet::new(),
        }
    }
}

/// The zone of the file in hand.
pub(crate) struct Zone {
    /// Where it is in the inode block.
    pub(crate) range: Range<usize>,
    /// Its records, and those of the compact pages that the walk came to.
    pub(crate) deltas: Deltas,
    /// Its structure was damaged behind these records.
    pub(crate) damaged: bool,
    /// Its header was: flag and first sequence number must be written anew.
    pub(crate) header_damaged: bool,
    /// The file has compact pages.
    pub(crate) compact: bool,
    /// Which it denied.
    pub(crate) denied: bool,
    /// Which compact pages it says that the file has.
    pub(crate) tie: Option<Tie>,
    /// Sequence number, and number in the tie, of the compact pages that the walk came to, by their places.
    pub(crate) places: BTreeMap<u32, (u32, u32)>,
    /// That one of them goes was told, with what the file loses by it.
    pub(crate) told: bool,
}

/// What of a file decides whether a block is a compact page.
pub(crate) struct Region {
    /// The first page of the index that may be one.
    pub(crate) start: u64,
    /// Pages up to the file's end.
    pub(crate) end: u64,
    /// How messages name the file.
    pub(crate) name: String,
}

impl Region {
    pub(crate) fn of(f: &FileWalk, inode: &RawInode, flexible: bool) -> Region {
        Region {
            start: delta::compact_start(inode.slots(flexible).fanout()),
            end: inode.i_size.get().div_ceil(BLOCK_SIZE as u64),
            name: inode_name(f.ino, inode),
        }
    }
}
