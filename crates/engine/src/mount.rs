//! Opening a volume: superblock, checkpoint pack, logs, orphans, roll-forward.
//!
//! Steps: both superblock copies; feature check; the newer whole pack; bitmaps; summaries of the logs; orphans freed;
//! fsynced files rolled forward; a checkpoint where anything changed. A read-only mount rolls forward in memory.
//! Invariant: on a read-only mount nothing is written.

use crate::bgres::Restorer;
use crate::checkpoint::{Checkpoint, compact_blocks, read_compact, stored_checksum};
use crate::clock::Clock;
use crate::compress::Compress;
use crate::damage::Damage;
use crate::delta::dependents::Dependents;
use crate::delta::{BASES_PART, Deltas};
use crate::dir_log::DirLog;
use crate::error::{Error, Result};
use crate::evict::Orphans;
use crate::fs::Fs;
use crate::hotness::{Hcluster, MOST_FILES};
use crate::idle::Activity;
use crate::inode::Inodes;
use crate::io::Io;
use crate::nat::{self, Nat};
use crate::node::{NodeRules, Nodes};
use crate::options::{AllocMode, DirFsync, InPlace, MIN_FSYNC_BLOCKS, MountOptions};
use crate::pages::Pages;
use crate::placement::KernelPlacement;
use crate::ranks;
use crate::segment::{self, CurSeg, Fill, Segments, SegmentsAtMount, sum_type};
use crate::shared::Sharing;
use crate::space::{Counts, Space};
use crate::stats::Counters;
use medfs_device::{BlockDevice, Cause, Temperature, WriteTag};
use medfs_format::checkpoint::{
    BitmapPlaces, ChainVersion, CpFlags, RawCheckpoint, RawOrphanBlock, verify_checksum,
};
use medfs_format::node::{RawInode, footer};
use medfs_format::summary::{Log, RawJournal, RawSummary, RawSummaryBlock};
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{BLOCK_SIZE, BLOCKS_PER_SEG, Block, FormatError, Geometry, Ino, Structure, crc};
use medfs_sync::{Mutex, Ranked, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zerocopy::{FromZeros, IntoBytes};

/// Volumes of up to this many main segments (16 GiB) get the kernel's policies for small volumes.
const SMALL_VOLUME_SEGMENTS: u32 = 16 * 512;

/// A checkpoint pack that was found whole.
struct Pack {
    header: RawCheckpoint,
    /// The blocks before the orphans: header and payload.
    head: Vec<u8>,
    crc: u32,
    pack: usize,
    /// Version of the next checkpoint.
    next_version: u64,
}

impl Pack {
    fn has_node_summaries(&self) -> bool {
        self.header.flags().intersects(CpFlags::UMOUNT | CpFlags::FASTBOOT)
    }
}

impl Fs {
    /// Opens a volume and brings it to a consistent state.
    pub(crate) fn mount(dev: Arc<dyn BlockDevice>, opts: MountOptions, clock: Arc<dyn Clock>) -> Result<Fs> {
        let fs = Fs::at_checkpoint(dev.clone(), opts.clone(), clock.clone())?;
        match fs.bring_up_to_date() {
            Err(error) if fs.read_only => {
                tracing::warn!(%error, "what was fsynced cannot be shown; the volume is shown as of its last checkpoint");
                let fs = Fs::at_checkpoint(dev, opts, clock)?;
                fs.load_bases_to_hide();
                Ok(fs)
            }
            done => done.map(|()| fs),
        }
    }

    /// Opens a volume as its last checkpoint describes it.
    fn at_checkpoint(dev: Arc<dyn BlockDevice>, opts: MountOptions, clock: Arc<dyn Clock>) -> Result<Fs> {
        let io = Io::new(dev);
        let (sb, geo, stale_copies) = read_superblock(&io)?;
        if sb.has_unknown_ro_compat() && !opts.read_only {
            tracing::info!(
                "the volume holds additions that only a newer medfs may write ({:#x}): opened read-only",
                sb.delta.ro_compat
            );
        }
        let read_only = opts.read_only || io.device_read_only() || sb.has_unknown_ro_compat();
        check_features(sb.features(), read_only)?;
        check_devices(&sb)?;
        if geo.end() > io.block_count() {
            return Err(Error::Incompatible(format!(
                "the image is truncated: the volume needs {} blocks, the device has {}",
                geo.end(),
                io.block_count()
            )));
        }
        let pack = read_pack(&io, &geo)?;
        check_pack_flags(&pack.header, read_only)?;
        let fs = assemble(io, sb, geo, opts, clock, read_only, pack)?;
        if !read_only {
            fs.restore_superblocks(&stale_copies)?;
        }
        fs.load_orphans()?;
        Ok(fs)
    }

    /// Makes both superblock copies equal, which also ends a switch between the kinds of volumes that was interrupted.
    /// A copy that cannot be written is left to `fsck`: the other one will do.
    fn restore_superblocks(&self, copies: &[u32]) -> Result<()> {
        for &addr in copies {
            tracing::warn!(
                copy = addr,
                "a superblock copy was damaged or stale and is written again from the other one"
            );
            for block in superblock_copy(&self.io, &self.sb, addr) {
                if let Err(error) = self.io.write_if_possible(addr, &block) {
                    tracing::warn!(copy = addr, %error, "the superblock copy cannot be written");
                }
                self.io.flush()?;
            }
        }
        Ok(())
    }

    fn load_orphans(&self) -> Result<()> {
        let cp = self.cp.lock();
        if !cp.header.flags().contains(CpFlags::ORPHAN_PRESENT) {
            return Ok(());
        }
        let start = self.geo.cp_pack(cp.pack) + 1 + self.geo.cp_payload;
        let count = cp.header.cp_pack_start_sum.get() - 1 - self.geo.cp_payload;
        for addr in start..start + count {
            let block = match self.io.read(addr) {
                Ok(block) => block,
                Err(error) => {
                    let lost = "files that were removed while they were open stay on the volume until `medfs fsck --repair`";
                    tracing::warn!(addr, %error, "an orphan block cannot be read: {lost}");
                    continue;
                }
            };
            for ino in block.view::<RawOrphanBlock>().inodes(addr)? {
                if !self.geo.is_nid(ino) {
                    return Err(FormatError::corrupt(Structure::OrphanBlock, addr, "ino", ino).into());
                }
                self.orphans.add_at_mount(ino);
            }
        }
        Ok(())
    }

    /// Frees orphans and rolls fsynced files forward; what changed becomes a checkpoint.
    fn bring_up_to_date(&self) -> Result<()> {
        if self.read_only {
            self.load_bases_to_hide();
            return self.roll_forward_in_memory();
        }
        self.load_registry()?;
        self.free_orphans_at_mount()?;
        if self.opts.recover {
            let recovered = self.roll_forward()?;
            Counters::add(&self.counters.recovered_inodes, recovered.inodes);
        } else {
            self.abandon_chain()?;
        }
        let done = self.write_recovered();
        self.mounting.store(false, Ordering::Release);
        if matches!(done, Err(Error::NoSpace)) { self.show_without_writing() } else { done }
    }

    /// Shows what was fsynced on a read-only mount. Nothing is written: the next mount that may write finds the same.
    fn roll_forward_in_memory(&self) -> Result<()> {
        if !self.opts.recover || !self.roll_forward_needed()? {
            return Ok(());
        }
        if !WRITABLE.contains(self.features) || self.sb.has_unknown_ro_compat() {
            tracing::warn!(
                "fsynced files were not checkpointed; the volume is shown as of its last checkpoint"
            );
            return Ok(());
        }
        let recovered = self.roll_forward()?;
        Counters::add(&self.counters.recovered_inodes, recovered.inodes);
        self.mounting.store(false, Ordering::Release);
        Ok(())
    }

    /// Makes a checkpoint of what was recovered. What an fsync acknowledged fits, on volumes of this engine.
    fn write_recovered(&self) -> Result<()> {
        if !self.space.recovered() {
            return Err(Error::NoSpace);
        }
        // Data recovered may lie where a log was to go on.
        self.segs.lock().step_over_pinned(&self.io)?;
        self.mounting.store(false, Ordering::Release);
        self.list_recovered()?;
        if self.has_changes_to_commit() { self.checkpoint_now() } else { Ok(()) }
    }

    /// Where there is no room for the checkpoint after a roll-forward: what was recovered is shown, and stays on the volume
    /// as it is for the next mount.
    fn show_without_writing(&self) -> Result<()> {
        self.io.stop_writing("there is no room to write what was recovered");
        Ok(())
    }
}

/// Reads both superblock copies; returns the one that counts and the addresses of those that differ from it.
pub(crate) fn read_superblock(io: &Io) -> Result<(RawSuperblock, Geometry, Vec<u32>)> {
    if io.block_count() < 2 {
        return Err(Error::Incompatible("the image is too small to hold a superblock".into()));
    }
    let (mut first_error, mut unreadable) = (None, None);
    let mut copies = Vec::new();
    for addr in 0..2u32 {
        let block = io.read(addr).unwrap_or_else(|error| {
            tracing::warn!(copy = addr, %error, "superblock copy cannot be read");
            unreadable.get_or_insert(error);
            Block::boxed()
        });
        let raw = RawSuperblock::in_block(&block).clone();
        let geometry = raw.validate();
        if let Err(e) = &geometry {
            tracing::warn!(copy = addr, error = %e, "superblock copy is not usable");
            first_error.get_or_insert(e.clone());
        }
        copies.push((addr, raw, geometry.ok()));
    }
    let valid: Vec<&RawSuperblock> =
        copies.iter().filter(|(_, _, geo)| geo.is_some()).map(|(_, raw, _)| raw).collect();
    let Some(sb) = RawSuperblock::in_force(&valid).cloned() else {
        if let Some(error) = unreadable {
            return Err(error);
        }
        return Err(match first_error {
            Some(FormatError::Corrupt { field: "magic", .. }) => Error::Incompatible(
                "no F2FS volume found: both superblock copies lack F2FS's magic number and medfs's".into(),
            ),
            Some(e) => e.into(),
            None => Error::Incompatible("no superblock".into()),
        });
    };
    let geo = sb.validate()?;
    let differs = |raw: &RawSuperblock| raw.as_bytes() != sb.as_bytes();
    let stale = copies.iter().filter(|(_, raw, _)| differs(raw)).map(|(addr, ..)| *addr).collect();
    Ok((sb, geo, stale))
}

/// Writes the copies of the superblock at these addresses, one after the other: each is durable before the next begins.
pub(crate) fn write_superblocks(io: &Io, sb: &RawSuperblock, copies: &[u32]) -> Result<()> {
    for &addr in copies {
        for block in superblock_copy(io, sb, addr) {
            io.write(addr, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold))?;
            io.flush()?;
        }
    }
    Ok(())
}

/// The blocks to write one after the other for a copy of the superblock, with what is before it, where that can be read.
fn superblock_copy(io: &Io, sb: &RawSuperblock, addr: u32) -> Vec<Block> {
    let now = io.read(addr).unwrap_or_else(|_| Block::boxed());
    let steps = sb.steps_from(RawSuperblock::in_block(&now)).into_iter();
    let with = |step| {
        let mut block = (*now).clone();
        *RawSuperblock::in_block_mut(&mut block) = step;
        block
    };
    steps.map(with).collect()
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

/// Features that can be read safely: files that need more give an error of their own.
const READABLE: Feature = WRITABLE
    .union(Feature::ENCRYPT)
    .union(Feature::VERITY)
    .union(Feature::CASEFOLD)
    .union(Feature::BLKZONED)
    .union(Feature::RO);

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
            "the volume uses {}, which this version can only read; mount it with -o ro",
            names(unwritable)
        )));
    }
    Ok(())
}

fn check_devices(sb: &RawSuperblock) -> Result<()> {
    if sb.devs[0].path[0] != 0 {
        return Err(Error::Incompatible(
            "the volume spans several devices, which is not supported; mount it with the kernel's f2fs"
                .into(),
        ));
    }
    Ok(())
}

fn check_pack_flags(header: &RawCheckpoint, read_only: bool) -> Result<()> {
    let flags = header.flags();
    if flags.intersects(CpFlags::RESIZEFS) && !read_only {
        return Err(Error::Incompatible(
            "a resize of the volume was interrupted; run fsck.f2fs on it, or mount it with -o ro".into(),
        ));
    }
    if flags.intersects(CpFlags::ERROR | CpFlags::FSCK) {
        tracing::warn!("the volume is marked as damaged; run `medfs fsck` on it");
    }
    Ok(())
}

/// How blocks of a pack are read: from the device, or from one that is about to be written.
type ReadBlock<'a> = &'a dyn Fn(u32) -> Result<Box<Block>>;

/// Reads a pack as a mount does, with everything in it that a mount may refuse.
pub(crate) fn check_pack(geo: &Geometry, pack: usize, read: ReadBlock<'_>) -> Result<()> {
    let pack = try_pack(read, geo, pack)?;
    let (_, nat, sit) = read_summaries(read, geo, &pack)?;
    nat::journal_entries(geo, &nat)?;
    segment::journal_entries(geo, &sit)?;
    Ok(())
}

fn read_pack(io: &Io, geo: &Geometry) -> Result<Pack> {
    let read = |addr| io.read(addr);
    let (first, second) = (try_pack(&read, geo, 0), try_pack(&read, geo, 1));
    match (first, second) {
        (Ok(a), Ok(b)) => {
            let newer = b.header.checkpoint_ver.get().wrapping_sub(a.header.checkpoint_ver.get()) as i64 > 0;
            Ok(if newer { b } else { a })
        }
        (Ok(whole), Err(_)) | (Err(_), Ok(whole)) => beside_a_broken_one(io, geo, whole),
        (Err(a), Err(_)) => Err(a),
    }
}

/// A pack that is the only whole one. The other may have been in force before it was damaged, with nodes of its version behind it: that
/// version is not used again. Versions stay odd in one pack and even in the other.
fn beside_a_broken_one(io: &Io, geo: &Geometry, pack: Pack) -> Result<Pack> {
    let version = pack.header.checkpoint_ver.get();
    let other = io
        .read(geo.cp_pack(1 - pack.pack))
        .map_or(0, |block| RawCheckpoint::in_block(&block).checkpoint_ver.get());
    let ahead = other.wrapping_sub(version);
    let ahead = if ahead < MOST_VERSIONS_AHEAD { ahead } else { 0 };
    Ok(Pack { next_version: version.wrapping_add(ahead.div_ceil(2) * 2 + 3), ..pack })
}

/// How far a broken pack's version may be ahead of the whole one's; beyond it is no version.
const MOST_VERSIONS_AHEAD: u64 = 1 << 10;

fn try_pack(read: ReadBlock<'_>, geo: &Geometry, pack: usize) -> Result<Pack> {
    let start = geo.cp_pack(pack);
    let first = read(start)?;
    let crc = verify_checksum(&first, start)?;
    let header = RawCheckpoint::in_block(&first).clone();
    header.validate(start, geo)?;
    let end = start + header.cp_pack_total_block_count.get() - 1;
    let last = read(end)?;
    verify_checksum(&last, end)?;
    if RawCheckpoint::in_block(&last).checkpoint_ver != header.checkpoint_ver {
        return Err(FormatError::corrupt(
            Structure::Checkpoint,
            end,
            "checkpoint_ver",
            "differs from the first block's",
        )
        .into());
    }
    let mut head = first.0.to_vec();
    for i in 1..=geo.cp_payload {
        head.extend_from_slice(&read(start + i)?.0);
    }
    debug_assert_eq!(crc, stored_checksum(&first));
    let next_version = header.checkpoint_ver.get().wrapping_add(1);
    Ok(Pack { header, head, crc, pack, next_version })
}

fn assemble(
    io: Io,
    sb: RawSuperblock,
    geo: Geometry,
    opts: MountOptions,
    clock: Arc<dyn Clock>,
    read_only: bool,
    pack: Pack,
) -> Result<Fs> {
    let header = &pack.header;
    let places = BitmapPlaces::of(header, &geo);
    let bitmap = |at: usize, len: u32| {
        pack.head.get(at..at + len as usize).map(<[u8]>::to_vec).ok_or_else(|| {
            FormatError::corrupt(
                Structure::Checkpoint,
                geo.cp_pack(pack.pack),
                "version bitmaps",
                "do not fit the pack",
            )
        })
    };
    let sit_bitmap = bitmap(places.sit, header.sit_ver_bitmap_bytesize.get())?;
    let nat_bitmap = bitmap(places.nat, header.nat_ver_bitmap_bytesize.get())?;
    let (cursegs, nat_journal, sit_journal) = read_cursegs(&io, &geo, &pack)?;
    let kbytes_at_mount = match pack.has_node_summaries() {
        true => cursegs[Log::HotNode as usize].summary.journal.extra_info().kbytes_written.get(),
        false => 0,
    };
    let small = geo.segment_count_main <= SMALL_VOLUME_SEGMENTS;
    let alloc_mode = opts.alloc_mode.unwrap_or(if small { AllocMode::Reuse } else { AllocMode::Default });
    let default_in_place =
        if small { InPlace::Force } else { InPlace::Fsync { min_blocks: MIN_FSYNC_BLOCKS } };
    let in_place = opts.in_place.unwrap_or(default_in_place);
    let at_mount = SegmentsAtMount {
        sit_bitmap,
        sit_journal,
        cursegs,
        free_segments: header.free_segment_count.get(),
        reserved_segments: header.rsvd_segment_count.get(),
        chain: ChainVersion::of(header, pack.crc),
    };
    let segs = Segments::new(&io, &geo, at_mount, alloc_mode)?;
    let nat = Nat::new(&geo, nat_bitmap, &nat_journal, header.next_free_nid.get())?;
    let features = sb.features();
    let cache_blocks = opts.cache_bytes / BLOCK_SIZE;
    let rules = NodeRules {
        geo: geo.clone(),
        layouts: sb.layouts(),
        compression: features.contains(Feature::COMPRESSION),
        seed: crc::chain(!0, &sb.uuid),
        has_checksums: features.contains(Feature::INODE_CHECKSUM),
    };
    let nodes = Nodes::new(rules, cache_blocks / 4);
    let counts = Counts {
        user_blocks: header.user_block_count.get(),
        valid_blocks: header.valid_block_count.get(),
        valid_nodes: header.valid_node_count.get(),
        valid_inodes: header.valid_inode_count.get(),
        max_nodes: geo.max_nid().saturating_sub(geo.root_ino),
        staged: 0,
        since_checkpoint: 0,
        at_checkpoint: header.valid_block_count.get(),
        reserved_since: 0,
        chain_nodes: 0,
        chain_names: 0,
        recovering: true,
    };
    let mounted_at = clock.monotonic();
    let limit = nodes.limit();
    let delta_volume = sb.is_delta_volume();
    let (deltas, bases, dir_fsync) = if delta_volume {
        let bases = cache_blocks / BASES_PART;
        (Deltas::new(&opts, bases), bases, DirFsync::Recover)
    } else {
        (Deltas::none(&opts), 0, DirFsync::Checkpoint)
    };
    let dir_fsync = opts.dir_fsync.unwrap_or(dir_fsync);
    let in_force = MountOptions {
        read_only,
        alloc_mode: Some(alloc_mode),
        in_place: Some(in_place),
        dir_fsync: Some(dir_fsync),
        delta: Some(deltas.mode),
        repeat_deltas: Some(deltas.makes_repeats()),
        ..opts.clone()
    };
    Ok(Fs {
        placement: Box::new(KernelPlacement { in_place }),
        delta_volume,
        deltas,
        dependents: Dependents::default(),
        registry: Mutex::default().ranked(ranks::REGISTRY),
        bases: Mutex::default(),
        elapsed_base: header.elapsed_time.get(),
        cp_ver: AtomicU64::new(ChainVersion::of(header, pack.crc).in_footers()),
        cp: Mutex::new(Checkpoint {
            header: header.clone(),
            crc: pack.crc,
            next_version: pack.next_version,
            pack: pack.pack,
            nat_journal,
        })
        .ranked(ranks::CP),
        nat,
        nodes,
        segs: Mutex::new(segs).ranked(ranks::SEGS),
        space: Space::new(counts),
        inodes: Inodes::new(limit / 2),
        pages: Pages::new(cache_blocks / 4 * 3 - bases),
        orphans: Orphans::new(&geo),
        trans_dirs: Mutex::default(),
        moved_names: Mutex::default(),
        renamed_files: Mutex::default(),
        left_by_dirs: Mutex::default(),
        cut_trees: Mutex::default(),
        compress: Compress::default(),
        dir_log: DirLog::new(dir_fsync == DirFsync::Recover),
        ops: RwLock::new(()).ranked(ranks::OPS),
        renames: Mutex::new(()).ranked(ranks::RENAMES),
        chain: Mutex::new(()).ranked(ranks::CHAIN),
        sharing: Sharing::default(),
        gc: Mutex::default().ranked(ranks::GC),
        read_only,
        kbytes_at_mount,
        in_force: in_force.in_force(),
        mounting: AtomicBool::new(true),
        closed: AtomicBool::new(false),
        mounted_at,
        last_checkpoint_at: Mutex::new(mounted_at),
        counters: Counters::default(),
        hotness: Hcluster::new(opts.hot_window, MOST_FILES, mounted_at),
        activity: Activity::new(mounted_at),
        restorer: Restorer::default(),
        damage: Damage::default(),
        io,
        sb,
        geo,
        features,
        opts,
        clock,
    })
}

/// Reads the summaries of the six logs, and the journals.
fn read_cursegs(io: &Io, geo: &Geometry, pack: &Pack) -> Result<([CurSeg; 6], RawJournal, RawJournal)> {
    let (mut cursegs, nat, sit) = read_summaries(&|addr| io.read(addr), geo, pack)?;
    if !pack.has_node_summaries() {
        for c in &mut cursegs[3..] {
            restore_node_summary(io, geo, c);
        }
    }
    Ok((cursegs, nat, sit))
}

/// Reads the summaries and journals that a pack has: those of the node logs only after an unmount.
fn read_summaries(
    read: ReadBlock<'_>,
    geo: &Geometry,
    pack: &Pack,
) -> Result<([CurSeg; 6], RawJournal, RawJournal)> {
    let header = &pack.header;
    let mut cursegs = Log::ALL.map(|log| {
        let (segno, next) = header.curseg(log as usize);
        let fill = if header.alloc_type[log as usize] == Fill::Ssr as u8 { Fill::Ssr } else { Fill::Lfs };
        let mut summary: Box<RawSummaryBlock> = RawSummaryBlock::new_box_zeroed().expect("4 KiB");
        summary.footer.entry_type = sum_type(log);
        CurSeg { segno, next, fill, summary }
    });
    let start = geo.cp_pack(pack.pack) + header.cp_pack_start_sum.get();
    let end = geo.cp_pack(pack.pack) + header.cp_pack_total_block_count.get() - 1;
    let read = |addr: u32| {
        if addr >= end {
            let e = FormatError::corrupt(
                Structure::Checkpoint,
                addr,
                "cp_pack_start_sum",
                "summaries end too early",
            );
            return Err(Error::from(e));
        }
        read(addr)
    };
    let compact = header.flags().contains(CpFlags::COMPACT_SUM);
    let (nat, sit) = if compact {
        let count = compact_blocks(cursegs[..3].iter().map(CurSeg::summary_len).sum());
        let blocks: Vec<Block> =
            (start..end).take(count).map(|addr| Ok(*read(addr)?)).collect::<Result<_>>()?;
        read_compact(&blocks, &mut cursegs[..3])?
    } else {
        for (i, c) in cursegs[..3].iter_mut().enumerate() {
            *c.summary = read(start + i as u32)?.view::<RawSummaryBlock>().clone();
        }
        let journal = |log: Log| cursegs[log as usize].summary.journal;
        (journal(Log::HotData), journal(Log::ColdData))
    };
    if pack.has_node_summaries() {
        let first = end - 3;
        for (i, c) in cursegs[3..].iter_mut().enumerate() {
            *c.summary = read(first + i as u32)?.view::<RawSummaryBlock>().clone();
        }
    }
    Ok((cursegs, nat, sit))
}

/// Rebuilds the summary of a node log from the footers of the blocks in its segment. A block that cannot be read has no owner there:
/// cleaning leaves it where it is.
fn restore_node_summary(io: &Io, geo: &Geometry, c: &mut CurSeg) {
    let start = geo.seg_start(c.segno);
    let mut blocks = vec![Block::ZERO; BLOCKS_PER_SEG as usize];
    if io.read_into(start, &mut blocks.iter_mut().collect::<Vec<_>>()).is_err() {
        for (addr, block) in (start..).zip(&mut blocks) {
            if let Err(error) = io.read_into(addr, &mut [&mut *block]) {
                tracing::warn!(addr, %error, "a block in the segment of a node log cannot be read");
                *block = Block::ZERO;
            }
        }
    }
    for (entry, block) in c.summary.entries.iter_mut().zip(&blocks) {
        *entry = RawSummary { nid: footer(block).nid, ..RawSummary::default() };
    }
}

impl Fs {
    /// The root directory, checked to be one.
    pub(crate) fn check_root(&self) -> Result<Ino> {
        let root = self.inode(self.geo.root_ino)?;
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
}
