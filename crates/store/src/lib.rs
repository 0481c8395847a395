//! The store: blocks, nodes and checkpoints of an F2FS volume.
//!
//! Purpose: everything below files. [`Store`] hands out blocks ([`Segments`]), counts what is promised
//! ([`Space`]), knows where nodes lie ([`Nat`]), keeps them in memory ([`Nodes`]) and makes them durable, by
//! the chain of fsynced nodes or by a checkpoint pack. It knows no files, names or pages: these are the
//! business of the crate `medfs`, which owns a store.
//!
//! The structures and their rules are those of the kernel's `Documentation/filesystems/f2fs.rst`.
#![forbid(unsafe_code)]

mod cache;
mod changes;
mod checkpoint;
mod clock;
mod error;
mod io;
mod journals;
mod nat;
mod node;
mod pack;
mod ranks;
mod readahead;
mod seals;
mod segment;
mod space;
mod superblock;

pub use cache::{Cache, HashMap, cache};
pub use changes::{Change, Changes};
pub use checkpoint::Checkpoint;
pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Error, Result, is_full, of_device};
pub use io::{Io, IoCounters, runs};
pub use nat::{Nat, NatEntry};
pub use node::{Changed, Dirty, NodeData, NodeMarks, NodePage, NodeRules, Nodes, node_offset};
pub use seals::{Planned, Seals};
pub use segment::{
    AllocMode, CurSeg, Fill, FreeFor, FreeSegments, Freed, Refusal, Scatter, SegEntry, Segments, Spare,
    Withheld,
};
pub use space::{Counts, Space};
pub use superblock::{read_superblock, read_superblock_with_nvram, write_superblocks};

use journals::Around;
use medfs_format::checkpoint::{BitmapPlaces, ChainVersion};
use medfs_format::summary::{Log, RawJournal};
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{FormatError, Geometry, Structure, crc};
use medfs_sync::{Mutex, Ranked};
use pack::Pack;
use segment::SegmentsAtMount;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Volumes of up to this many main segments (16 GiB) get the kernel's policies for small volumes.
const SMALL_VOLUME_SEGMENTS: u32 = 16 * 512;

/// Options for opening a store.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    /// Nothing is written.
    pub read_only: bool,
    /// The way new blocks are found; `None` decides by the size of the volume, as the kernel does.
    pub alloc_mode: Option<AllocMode>,
    /// Whether logs scatter what they write.
    pub scatter: Scatter,
    /// Node blocks kept in memory.
    pub node_limit: usize,
    /// Whether nodes of the log are sealed where the volume allows it.
    pub seal: bool,
}

/// The blocks, nodes and checkpoints of an open volume.
///
/// Invariants:
/// 1. A block is handed out only if nothing counts it, neither now nor in the checkpoint in force.
/// 2. A node in memory that is not dirty equals its block on the device, whose address the NAT holds.
/// 3. After a write or flush has failed no further one is attempted ([`Io`]).
///
/// Locks, in their order: `cp`, `chain`, those of [`Nodes`], `segs`, those of [`Nat`], then the leaves of
/// [`Space`] and [`Io`].
pub struct Store {
    /// The way to the device.
    pub io: Io,
    /// The superblock in force.
    pub sb: RawSuperblock,
    /// The areas of the volume.
    pub geo: Geometry,
    /// The volume's features.
    pub features: Feature,
    /// Time, for the ages of segments and the intervals of the layers above.
    pub clock: Arc<dyn Clock>,
    /// Node addresses.
    pub nat: Nat,
    /// Node blocks in memory.
    pub nodes: Nodes,
    /// SIT, SSA and the six logs.
    pub segs: Mutex<Segments>,
    /// The counts of promised and existing blocks.
    pub space: Space,
    /// The checkpoint in force; the lock's holder makes the next one.
    pub cp: Mutex<Checkpoint>,
    /// Order of fsynced nodes in their log.
    pub chain: Mutex<()>,
    /// Version and checksum of the checkpoint in force, as node footers carry them.
    pub cp_ver: AtomicU64,
    /// The device's write mark behind the last nodes that were written.
    pub node_mark: AtomicU64,
    /// Why the checkpoint that the volume was opened with may not be all of the last one that was made.
    pub older: Option<String>,
    /// Why a volume that is only read may not be shown as it is.
    pub doubt: Option<String>,
    /// A newer checkpoint without its second header, as power loss leaves it, or damage.
    pub unfinished: Option<u64>,
    /// Seals of the chain, on a volume whose nodes may have them.
    pub seals: Option<Arc<Seals>>,
    /// KiB written to the volume in its life before it was opened; 0 where the last checkpoint was not an unmount's.
    kbytes_at_mount: u64,
    /// `elapsed_time` of the checkpoint at mount, and the clock then.
    elapsed_base: u64,
    mounted_at: Duration,
}

impl Store {
    /// Opens a volume as its last checkpoint describes it; [`read_superblock`] gave `sb` and `geo`.
    /// `Incompatible` where the device is too small, `Corrupt` where neither pack is whole.
    pub fn open(
        mut io: Io,
        sb: RawSuperblock,
        geo: Geometry,
        options: StoreOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Store> {
        if geo.end() > io.block_count() {
            return Err(Error::Incompatible(format!(
                "the image is truncated: the volume needs {} blocks, the device has {}",
                geo.end(),
                io.block_count()
            )));
        }
        let mut pack = pack::read_pack(&io, &geo)?;
        pack::check_pack_flags(&pack.header, options.read_only)?;
        let (nat, mut segs, kbytes_at_mount, nat_journal) =
            tables(&io, &geo, &options, &mut pack, sb.is_delta_volume())?;
        if pack.alone && pack.older.is_none() {
            pack.older = pack::counts_too_few(&io, &geo, &nat, &pack.header);
        }
        let doubt = look_at_tables(&io, &pack, options.read_only, (&nat, &mut segs))?;
        let header = pack.header;
        let chain = ChainVersion::of(&header, pack.crc);
        let features = sb.features();
        let rules = NodeRules {
            geo: geo.clone(),
            delta_volume: sb.is_delta_volume(),
            layouts: sb.layouts(),
            compression: features.contains(Feature::COMPRESSION),
            seed: crc::chain(!0, &sb.uuid),
            has_checksums: features.contains(Feature::INODE_CHECKSUM),
        };
        let seals = (sb.has_seals() && !options.read_only)
            .then(|| Arc::new(Seals::new(options.seal, sb.uuid, geo.node_ino, chain.in_footers())));
        if let Some(seals) = &seals {
            io.tell(seals.clone());
        }
        Ok(Store {
            seals,
            nat,
            nodes: Nodes::new(rules, options.node_limit),
            segs: Mutex::new(segs).ranked(ranks::SEGS),
            space: Space::new(Counts::at_checkpoint(&header, &geo)),
            chain: Mutex::new(()).ranked(ranks::CHAIN),
            cp_ver: AtomicU64::new(chain.in_footers()),
            node_mark: AtomicU64::new(0),
            older: pack.older,
            doubt,
            unfinished: pack.unfinished,
            kbytes_at_mount,
            elapsed_base: header.elapsed_time.get(),
            mounted_at: clock.monotonic(),
            cp: Mutex::new(Checkpoint {
                header,
                crc: pack.crc,
                next_version: pack.next_version,
                pack: pack.pack,
                nat_journal,
            })
            .ranked(ranks::CP),
            io,
            sb,
            geo,
            features,
            clock,
        })
    }

    /// Whether the volume gets the kernel's policies for small volumes.
    pub fn is_small(geo: &Geometry) -> bool {
        geo.segment_count_main <= SMALL_VOLUME_SEGMENTS
    }

    /// The way new blocks are found, unless the user says otherwise.
    pub fn default_alloc_mode(geo: &Geometry) -> AllocMode {
        if Store::is_small(geo) { AllocMode::Reuse } else { AllocMode::Default }
    }

    /// Whether inline xattrs of inodes have the size that the inode says.
    pub fn flexible_inline_xattr(&self) -> bool {
        self.nodes.rules.layouts.is_flexible()
    }

    /// Whether the volume's magic is medfs's own: only such a volume may hold deltas.
    pub fn is_delta_volume(&self) -> bool {
        self.nodes.rules.delta_volume
    }

    /// Whether inodes keep the time of their creation.
    pub fn has_crtime(&self) -> bool {
        self.features.contains(Feature::INODE_CRTIME)
    }

    /// Version and checksum of the checkpoint in force, as node footers carry them.
    pub fn version_in_footers(&self) -> u64 {
        self.cp_ver.load(Ordering::Acquire)
    }

    /// Seconds the volume has been mounted in all its life: the time base of segment ages.
    pub fn elapsed(&self) -> u64 {
        self.elapsed_base + self.open_for().as_secs()
    }

    /// Time since the volume was opened.
    pub fn open_for(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.mounted_at)
    }
}

/// Before anything is written to a volume: that its tables are whole, and its pack. Of one that is only read: why it
/// may not be shown as it is.
fn look_at_tables(
    io: &Io,
    pack: &Pack,
    read_only: bool,
    (nat, segs): (&Nat, &mut Segments),
) -> Result<Option<String>> {
    if read_only {
        return Ok(doubt_of(io, pack, (nat, segs)));
    }
    check_tables(io, pack, (nat, segs))?;
    pack::make_whole(io, pack)?;
    Ok(None)
}

/// `Corrupt` where writing would go over what the tables of a volume have lost. Of an older checkpoint is told as such,
/// and nothing is written.
fn check_tables(io: &Io, pack: &Pack, (nat, segs): (&Nat, &mut Segments)) -> Result<()> {
    if pack.older.is_some() {
        return Ok(());
    }
    segment::counted::check(segs, io, &pack.header)?;
    nat.check_count(io, &pack.header, segs)
}

/// Why the NAT of a volume that is only read may be another one than the checkpoint's: by a SIT that is.
fn doubt_of(io: &Io, pack: &Pack, (nat, segs): (&Nat, &mut Segments)) -> Option<String> {
    if pack.older.is_some() || segment::counted::check(segs, io, &pack.header).is_err() {
        return None;
    }
    let lacks = nat.check_count(io, &pack.header, segs).is_err();
    lacks.then(|| {
        "the NAT is older than the checkpoint, or has lost entries: files may be shown as they were before, or not at all"
            .to_owned()
    })
}

/// NAT and segments as a pack describes them, the KiB written before its unmount, and the journal of the NAT.
fn tables(
    io: &Io,
    geo: &Geometry,
    options: &StoreOptions,
    pack: &mut Pack,
    is_own: bool,
) -> Result<(Nat, Segments, u64, RawJournal)> {
    let header = &pack.header.clone();
    let places = BitmapPlaces::of(header, geo);
    let bitmap = |at: usize, len: u32| {
        pack.head.get(at..at + len as usize).map(<[u8]>::to_vec).ok_or_else(|| {
            let start = geo.cp_pack(pack.pack);
            FormatError::corrupt(Structure::Checkpoint, start, "version bitmaps", "do not fit the pack")
        })
    };
    let sit_bitmap = bitmap(places.sit, header.sit_ver_bitmap_bytesize.get())?;
    let nat_bitmap = bitmap(places.nat, header.nat_ver_bitmap_bytesize.get())?;
    let read_only = options.read_only;
    let (cursegs, mut nat_journal, mut sit_journal) = pack::read_cursegs(io, geo, pack, read_only)?;
    let around = Around { io, geo, sit_bitmap: &sit_bitmap, header, is_own };
    let turned = around.turned_sit(&sit_journal);
    journals::settle(&mut sit_journal, turned, "n_sits", read_only)?;
    if read_only {
        pack::leave_wrong_sit(geo, &mut sit_journal);
    }
    let kbytes_at_mount = match pack.has_node_summaries() {
        true => cursegs[Log::HotNode as usize].summary.journal.extra_info().kbytes_written.get(),
        false => 0,
    };
    let at_mount = SegmentsAtMount {
        sit_bitmap: sit_bitmap.clone(),
        sit_journal,
        cursegs,
        free_segments: header.free_segment_count.get(),
        reserved_segments: header.rsvd_segment_count.get(),
        chain: ChainVersion::of(header, pack.crc),
        read_only,
    };
    let alloc_mode = options.alloc_mode.unwrap_or(Store::default_alloc_mode(geo));
    let mut segs = Segments::new(io, geo, at_mount, (alloc_mode, options.scatter))?;
    let next_free = header.next_free_nid.get();
    let table = Nat::new(geo, nat_bitmap.clone(), &RawJournal::EMPTY, next_free)?;
    let turned = around.turned_nat(&nat_journal, (&sit_journal, &table, &mut segs));
    journals::settle(&mut nat_journal, turned, "n_nats", read_only)?;
    if read_only {
        pack::leave_wrong_nat(geo, &mut nat_journal, pack);
    }
    let nat = Nat::new(geo, nat_bitmap, &nat_journal, next_free)?;
    Ok((nat, segs, kbytes_at_mount, nat_journal))
}
