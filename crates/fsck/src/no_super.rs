//! A superblock where no copy is usable, from what the volume shows.
//!
//! A checkpoint pack, found by the checksums of its headers, or by one of them where no pack is whole, says
//! how large SIT, NAT and the main area are, and lies at the beginning of all. What it does not say is how
//! far the SSA is padded, and so where the main area begins: that is where the summaries name the nodes that
//! the NAT leads to or, where it is lost too, that look like nodes. Sections and zones are what `mkfs` would
//! have chosen for these numbers. What inodes are like is seen later ([`crate::traits`]).
//!
//! Headers that are left of both packs say where these begin; where some are lost, what has most of them
//! where they should be is right, however many summaries agree by chance.
//!
//! Invariant: where two places fit equally well none is taken. All that is guessed is said.

use crate::cache::Cache;
use crate::finding::{Code, Findings};
use crate::image::Stop;
use crate::medium::Medium;
use crate::no_header;
use crate::no_pack;
use crate::pack;
use foldhash::{HashSet, HashSetExt};
use medfs_device::BlockDevice;
use medfs_format::checkpoint::{
    self, BitmapPlaces, CHECKSUM_OFFSET, CpFlags, HEADER_SIZE, RawCheckpoint, RawOrphanBlock,
};
use medfs_format::nat::{self, RawNatBlock};
use medfs_format::node::footer;
use medfs_format::sit::test_bit;
use medfs_format::summary::{LOG_COUNT, RawSummaryBlock, SUM_TYPE_NODE};
use medfs_format::superblock::{MAGIC, RawSuperblock};
use medfs_format::{
    BLOCK_SIZE, BLOCKS_PER_SEG, Block, BlockAddr, Geometry, LOG_BLOCKS_PER_SEG, Nid, overprovision,
};
use std::io;

/// Blocks at the beginning in which a checkpoint pack is looked for (256 MiB): volumes of larger zones are
/// found by hand.
const LOOKED_THROUGH: u64 = 1 << 16;
/// Headers without the other one of their pack that are asked.
const MOST_HALVES: usize = 8;
/// Nodes that are asked where the main area begins.
const ASKED: usize = 256;
/// Blocks behind the NAT in which nodes are looked for where it leads to none (2 GiB).
const LOOKED_FOR_NODES: u64 = 1 << 19;
/// Segments of padding behind the SSA, at most.
const MOST_PADDING: u32 = 1 << 12;

/// A superblock made of what the volume shows, but for what its inodes tell.
pub(crate) struct Rebuilt {
    pub(crate) sb: Box<Block>,
    pub(crate) g: Geometry,
}

/// A checkpoint pack, by a header of it with a right checksum.
struct Seen {
    at: BlockAddr,
    cp: RawCheckpoint,
    payload: u32,
}

/// Where the areas may be, how many headers of packs are where they should be then, and how many nodes agree.
struct Candidate {
    headers: usize,
    votes: usize,
    sb: RawSuperblock,
    g: Geometry,
    /// Reserved and over-provisioned segments.
    kept: (u32, u32),
}

/// Makes a superblock, and says so. The error is that nothing fits, or two things do.
pub(crate) fn rebuild(medium: &Medium<'_>, findings: &mut Findings) -> Result<Rebuilt, Stop> {
    let mut candidates = Vec::new();
    for seen in packs(medium)? {
        // It may be the first of the two packs or the second.
        let starts = [Some(seen.at), seen.at.checked_sub(BLOCKS_PER_SEG).filter(|&at| at >= 2)];
        for (index, start) in starts.into_iter().enumerate() {
            let Some(start) = start else { continue };
            candidates.extend(seen.candidates(medium, start, index)?);
        }
    }
    candidates.retain(|c| c.votes > 0);
    candidates.sort_by_key(|c| std::cmp::Reverse((c.headers, c.votes, c.g.main_blkaddr, c.g.cp_blkaddr)));
    candidates.dedup_by_key(|c| (c.g.main_blkaddr, c.g.cp_blkaddr, c.g.segment_count_main));
    let mut best = candidates.into_iter();
    let Some(first) = best.next() else {
        if medium.guesses_layout()
            && let Some((sb, g)) = no_header::usual(medium)?
        {
            findings.add(Code::SuperblockLost, text_of(&g, "as mkfs lays out a device of this size"));
            return Ok(Rebuilt { sb: block_of(sb), g });
        }
        let text = "neither copy of the superblock is usable, and nothing shows where the areas begin: this is not an F2FS volume, or it is destroyed";
        findings.add(Code::NoSuperblock, text);
        return Err(Stop::Fatal);
    };
    if let Some(begin) = volume_behind(medium, first.g.cp_blkaddr)? {
        findings.add(Code::NoSuperblock, begins_elsewhere(begin));
        return Err(Stop::Fatal);
    }
    if let Some(second) = best.next().filter(|c| (c.headers, c.votes) == (first.headers, first.votes)) {
        let text = format!(
            "neither copy of the superblock is usable, and the main area may begin at block {} or at {}",
            first.g.main_blkaddr, second.g.main_blkaddr
        );
        findings.add(Code::NoSuperblock, text);
        return Err(Stop::Fatal);
    }
    let (sb, g) = first.with_sections();
    findings.add(Code::SuperblockLost, text_of(&g, "from the layout of the volume"));
    Ok(Rebuilt { sb: block_of(sb), g })
}

fn block_of(sb: RawSuperblock) -> Box<Block> {
    let mut block = Block::boxed();
    *RawSuperblock::in_block_mut(&mut block) = sb;
    block
}

/// What is said of a superblock that is rebuilt.
fn text_of(g: &Geometry, how: &str) -> String {
    format!(
        "neither copy of the superblock is usable; one is rebuilt {how}: areas from block {}, {} segments from block {}, \
         sections of {} and zones of {} segments. Label, UUID and the list of hot and cold extensions are lost",
        g.cp_blkaddr,
        g.segment_count_main,
        g.main_blkaddr,
        g.segs_per_sec,
        g.segs_per_sec * g.secs_per_zone
    )
}

/// The byte at which a volume begins that does not begin where the device does: behind a partition table that
/// is lost, say. It has a superblock before block `before`, where the first pack is at most, as behind that an
/// image of another volume may be a file of this one; and a checkpoint pack as far behind it as that says.
pub(crate) fn volume_behind(medium: &Medium<'_>, before: BlockAddr) -> io::Result<Option<u64>> {
    for at in 1..before {
        let Ok(g) = RawSuperblock::in_block(&*medium.read(at)?).validate() else { continue };
        let has_pack = |begin: u32| -> io::Result<bool> {
            for pack in 0..2 {
                let start = begin.saturating_add(g.cp_pack(pack));
                if u64::from(start) < medium.block_count() && header(medium, start)?.is_some() {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        // It is the first copy or the second.
        for begin in [at, at - 1] {
            if has_pack(begin)? {
                return Ok((begin > 0).then_some(u64::from(begin) * BLOCK_SIZE as u64));
            }
        }
    }
    Ok(None)
}

/// Whether there is a superblock.
fn is_superblock(medium: &Medium<'_>, at: BlockAddr) -> io::Result<bool> {
    Ok(RawSuperblock::in_block(&*medium.read(at)?).validate().is_ok())
}

pub(crate) fn begins_elsewhere(begin: u64) -> String {
    format!(
        "the volume begins at byte {begin} of the device, and not where that does ('losetup -r -o {begin} --show -f IMAGE' makes a read-only device of it, and without -r a writable one)"
    )
}

/// The byte at which the volume of a device begins, where that is not the first.
pub fn begins_at(dev: &dyn BlockDevice) -> io::Result<Option<u64>> {
    let medium = Medium::lenient(dev);
    if dev.block_count() < 2 || is_superblock(&medium, 0)? {
        return Ok(None);
    }
    if is_superblock(&medium, 1)? {
        return volume_behind(&medium, 2);
    }
    let first = packs(&medium)?.first().map_or(0, |pack| pack.at);
    volume_behind(&medium, first)
}

/// Whether a device without a usable superblock shows where the areas of a volume are.
pub fn shows_volume(dev: &dyn BlockDevice) -> io::Result<bool> {
    match rebuild(&Medium::lenient(dev), &mut Findings::new(0)) {
        Ok(_) => Ok(true),
        Err(Stop::Fatal) => Ok(false),
        Err(Stop::Io(e)) => Err(e),
    }
}

/// The packs that are whole, as far as can be said without a superblock; where there is none, those with one
/// of their two headers.
fn packs(medium: &Medium<'_>) -> io::Result<Vec<Seen>> {
    let (mut whole, mut halves) = (Vec::<Seen>::new(), Vec::<Seen>::new());
    let mut end = medium.block_count().min(LOOKED_THROUGH) as u32;
    let mut at = 2;
    while at < end {
        if let Some(header) = header(medium, at)? {
            let last = at + header.cp_pack_total_block_count.get() - 1;
            if is_other_header(medium, &header, last)? {
                end = end.min(whole.first().map_or(at, |first| first.at) + BLOCKS_PER_SEG + 1);
                whole.extend(Seen::at(medium, at, &header)?);
            } else {
                // It may be the last block of a pack.
                let first = (at + 1).checked_sub(header.cp_pack_total_block_count.get());
                for start in [Some(at), first.filter(|&first| first >= 2)].into_iter().flatten() {
                    halves.extend(Seen::at(medium, start, &header)?);
                }
            }
        }
        at += 1;
    }
    halves.truncate(MOST_HALVES);
    Ok(if whole.is_empty() { halves } else { whole })
}

/// A block as the first or last one of a pack.
fn header(medium: &Medium<'_>, at: BlockAddr) -> io::Result<Option<RawCheckpoint>> {
    let block = medium.read(at)?;
    let cp = RawCheckpoint::in_block(&block);
    let in_pack = (2..BLOCKS_PER_SEG).contains(&cp.cp_pack_total_block_count.get());
    Ok((in_pack && checkpoint::verify_checksum(&block, at).is_ok()).then(|| cp.clone()))
}

/// Whether a pack with this first block has this last one.
fn is_other_header(medium: &Medium<'_>, first: &RawCheckpoint, last: BlockAddr) -> io::Result<bool> {
    let block = medium.read(last)?;
    let same = RawCheckpoint::in_block(&block).checkpoint_ver == first.checkpoint_ver;
    Ok(same && checkpoint::verify_checksum(&block, last).is_ok())
}

/// Blocks that `mkfs` keeps behind a header for the bitmaps of this size.
fn usual_payload(cp: &RawCheckpoint) -> u32 {
    let sit = cp.sit_ver_bitmap_bytesize.get() as usize;
    let both = sit + cp.nat_ver_bitmap_bytesize.get() as usize;
    let room = CHECKSUM_OFFSET - HEADER_SIZE;
    let behind = if both <= room {
        0
    } else if cp.flags().contains(CpFlags::LARGE_NAT_BITMAP) {
        both - room
    } else {
        sit
    };
    behind.div_ceil(BLOCK_SIZE) as u32
}

impl Seen {
    /// A pack that begins there, with this header; `None` where that cannot be.
    fn at(medium: &Medium<'_>, at: BlockAddr, cp: &RawCheckpoint) -> io::Result<Option<Seen>> {
        // Behind payload and orphans the summaries start.
        let before = cp.cp_pack_start_sum.get();
        if !(1..cp.cp_pack_total_block_count.get()).contains(&before) {
            return Ok(None);
        }
        let payload = if cp.flags().contains(CpFlags::ORPHAN_PRESENT) {
            match medium.read(at + before - 1)?.view::<RawOrphanBlock>().blk_count.get() {
                // It is lost.
                0 => Some(usual_payload(cp)),
                orphans => (before - 1).checked_sub(orphans.into()),
            }
        } else {
            Some(before - 1)
        };
        Ok(payload.map(|payload| Seen { at, cp: cp.clone(), payload }))
    }

    /// Headers that are the first or the last block of a pack, where the first of two begins at `start`.
    fn headers(medium: &Medium<'_>, start: BlockAddr) -> io::Result<usize> {
        let end = medium.block_count().min(LOOKED_THROUGH) as u32;
        let mut count = 0;
        for at in (start..end).take(2 * BLOCKS_PER_SEG as usize) {
            let offset = (at - start) % BLOCKS_PER_SEG;
            let is_one = |cp: RawCheckpoint| [1, cp.cp_pack_total_block_count.get()].contains(&(offset + 1));
            count += usize::from(header(medium, at)?.is_some_and(is_one));
        }
        Ok(count)
    }

    /// The layouts that this pack allows where the areas begin at `start` and it is one of two.
    fn candidates(&self, medium: &Medium<'_>, start: BlockAddr, index: usize) -> io::Result<Vec<Candidate>> {
        let mut found = Vec::new();
        let mut cache = Cache::new(medium.again());
        let mut asked: Option<Asked> = None;
        let headers = Self::headers(medium, start)?;
        let least = self.main_segments().div_ceil(BLOCKS_PER_SEG);
        for ssa in least..=least + MOST_PADDING {
            let Some(sb) = self.superblock(start, ssa, medium.block_count()) else { break };
            let Ok(g) = sb.validate() else { break };
            if asked.is_none() {
                // Nothing before the main area depends on its place.
                let bytes = match pack::read_header(&mut cache, &g, index)? {
                    Ok((bytes, ..)) => Some(bytes),
                    Err(_) => no_pack::pack_of_one_header(&mut cache, &g)?.map(|(_, bytes, _)| bytes),
                };
                let Some(bytes) = bytes else { return Ok(found) };
                let summaries = pack::read_summaries(&mut cache, &g, &self.cp, self.at)?;
                asked = Some(Asked {
                    nodes: some_nodes(&mut cache, &g, (&self.cp, &bytes), &summaries)?,
                    summaries,
                });
            }
            let Some(asked) = &asked else { break };
            let votes = asked.votes(&mut cache, &g, &self.cp)?;
            let kept = (self.cp.rsvd_segment_count.get(), self.cp.overprov_segment_count.get());
            found.push(Candidate { headers, votes, sb, g, kept });
        }
        Ok(found)
    }

    fn main_segments(&self) -> u32 {
        let users = self.cp.user_block_count.get() / u64::from(BLOCKS_PER_SEG);
        u32::try_from(users).unwrap_or(u32::MAX).saturating_add(self.cp.overprov_segment_count.get())
    }

    /// The superblock of a volume with so many segments of SSA; `None` where the device is too short for it.
    fn superblock(&self, start: BlockAddr, ssa: u32, blocks: u64) -> Option<RawSuperblock> {
        let per_segment = BLOCKS_PER_SEG / 8; // bytes of a bitmap
        let sit = self.cp.sit_ver_bitmap_bytesize.get() / per_segment * 2;
        let nat = self.cp.nat_ver_bitmap_bytesize.get() / per_segment * 2;
        let main = self.main_segments();
        let segments = [2, sit, nat, ssa, main].into_iter().map(u64::from).sum::<u64>();
        let end = u64::from(start) + segments * u64::from(BLOCKS_PER_SEG);
        if end > blocks.min(u64::from(u32::MAX)) {
            return None;
        }
        let mut block = Block::boxed();
        let sb = RawSuperblock::in_block_mut(&mut block);
        (sb.magic, sb.major_ver, sb.minor_ver) = (MAGIC.into(), 1.into(), 15.into());
        (sb.log_sectorsize, sb.log_sectors_per_block, sb.log_blocksize) = (9.into(), 3.into(), 12.into());
        (sb.log_blocks_per_seg, sb.block_count) = (LOG_BLOCKS_PER_SEG.into(), blocks.into());
        (sb.segment_count_ckpt, sb.segment_count_sit, sb.segment_count_nat) =
            (2.into(), sit.into(), nat.into());
        (sb.segment_count_ssa, sb.segment_count_main) = (ssa.into(), main.into());
        sb.segment_count = (segments as u32).into();
        let mut at = start;
        sb.segment0_blkaddr = start.into();
        for (place, size) in [
            (&mut sb.cp_blkaddr, 2),
            (&mut sb.sit_blkaddr, sit),
            (&mut sb.nat_blkaddr, nat),
            (&mut sb.ssa_blkaddr, ssa),
            (&mut sb.main_blkaddr, main),
        ] {
            *place = at.into();
            at += size * BLOCKS_PER_SEG;
        }
        (sb.node_ino, sb.meta_ino, sb.root_ino) = (1.into(), 2.into(), 3.into());
        sb.cp_payload = self.payload.into();
        (sb.segs_per_sec, sb.secs_per_zone, sb.section_count) = (1.into(), 1.into(), main.into());
        Some(sb.clone())
    }
}

impl Candidate {
    /// With the sections and zones for which `mkfs` keeps as much back, and pads as far. Where there are
    /// none, every segment is one, which is a right reading of every volume.
    fn with_sections(self) -> (RawSuperblock, Geometry) {
        let g = &self.g;
        let usable = g.segment_count_main;
        let before_ssa = 2 + g.segment_count_sit + g.segment_count_nat;
        let metadata = before_ssa + g.segment_count_ssa;
        let fits = |section: u32, zone: u32| {
            let segments = section * zone;
            let main = usable - usable % segments;
            let needed = before_ssa + (main + g.segment_count_ssa + 1).div_ceil(BLOCKS_PER_SEG);
            // `mkfs.f2fs` reckons with the segments behind the last zone too.
            let kept = |main: u32, section| overprovision::segments(main, section) == self.kept;
            main / segments > LOG_COUNT as u32
                && needed.next_multiple_of(segments) == metadata
                && (kept(main, section) || kept(usable, usable.div_ceil(main / section)))
        };
        // Zones begin and end with the metadata.
        let pairs = (1..=metadata).filter(|s| metadata.is_multiple_of(*s)).flat_map(|segments| {
            (1..=segments).filter(move |s| segments.is_multiple_of(*s)).map(move |s| (s, segments / s))
        });
        // As little as possible is left behind the last zone, and one zone before the first where the volume
        // is not a part of a disk.
        let best = pairs.filter(|&(section, zone)| fits(section, zone)).min_by_key(|&(section, zone)| {
            let segments = section * zone;
            (usable % segments, segments * BLOCKS_PER_SEG != g.segment0_blkaddr, section, zone)
        });
        let (section, zone) = best.unwrap_or((1, 1));
        let mut sb = self.sb.clone();
        let sections = usable / (section * zone) * zone;
        (sb.segs_per_sec, sb.secs_per_zone, sb.section_count) =
            (section.into(), zone.into(), sections.into());
        sb.segment_count_main = (sections * section).into();
        sb.segment_count = (metadata + sections * section).into();
        match sb.validate() {
            Ok(g) => (sb, g),
            Err(_) => (self.sb, self.g),
        }
    }
}

/// Nodes with their addresses, and what the pack says of the segments in hand.
struct Asked {
    nodes: Vec<(Nid, BlockAddr)>,
    summaries: pack::Summaries,
}

impl Asked {
    /// How many of the nodes are where the summaries say, if the main area begins there.
    fn votes(&self, cache: &mut Cache<'_>, g: &Geometry, cp: &RawCheckpoint) -> io::Result<usize> {
        let mut votes = 0;
        for &(nid, addr) in self.nodes.iter().filter(|(_, addr)| g.in_main(*addr)) {
            let (segno, offset) = (g.segno(addr), g.offset_in_seg(addr) as usize);
            let log = (0..LOG_COUNT).find(|&log| cp.curseg(log).0 == segno);
            let agrees = match log {
                Some(log) if log < 3 => false,
                Some(log) if !self.summaries.known[log] => offset < usize::from(cp.curseg(log).1),
                Some(log) => self.summaries.blocks[log].entries[offset].nid.get() == nid,
                None => {
                    let sum: &RawSummaryBlock = cache.get(g.ssa_block(segno))?.view();
                    sum.footer.entry_type == SUM_TYPE_NODE && sum.entries[offset].nid.get() == nid
                }
            };
            votes += usize::from(agrees);
        }
        Ok(votes)
    }
}

/// Some nodes to which the NAT and its journal lead or, where they lead to none, that are behind it.
fn some_nodes(
    cache: &mut Cache<'_>,
    g: &Geometry,
    (cp, head): (&RawCheckpoint, &[u8]),
    summaries: &pack::Summaries,
) -> io::Result<Vec<(Nid, BlockAddr)>> {
    let (places, end) = (BitmapPlaces::of(cp, g), cache.medium.block_count());
    let (mut nodes, mut seen) = (Vec::new(), HashSet::new());
    let journal = summaries.nat_journal.nat_entries().unwrap_or_default();
    let journal: Vec<_> = journal.iter().map(|e| (e.nid.get(), e.entry)).collect();
    for index in 0..=g.nat_blocks() {
        let entries = if index == 0 {
            journal.clone()
        } else {
            let second = test_bit(&head[places.nat..], index as usize - 1);
            let block = cache.read(g.nat_block(index - 1, second))?;
            let first = (index - 1) * nat::ENTRIES_PER_BLOCK as u32;
            (first..).zip(block.view::<RawNatBlock>().entries.iter().copied()).collect()
        };
        for (nid, entry) in entries {
            let at = entry.block_addr.get();
            if !g.is_nid(nid) || at <= g.ssa_blkaddr || u64::from(at) >= end {
                continue;
            }
            let f = footer(cache.get(at)?);
            if f.nid.get() == nid && f.ino == entry.ino && seen.insert(at) {
                nodes.push((nid, at));
            }
            if nodes.len() == ASKED {
                return Ok(nodes);
            }
        }
    }
    if nodes.is_empty() { nodes_behind(cache, g, cp) } else { Ok(nodes) }
}

/// Blocks behind the NAT that end as nodes do which are not newer than the checkpoint. What is none by chance
/// no summary calls so.
fn nodes_behind(
    cache: &mut Cache<'_>,
    g: &Geometry,
    cp: &RawCheckpoint,
) -> io::Result<Vec<(Nid, BlockAddr)>> {
    let end = cache.medium.block_count().min(u64::from(g.ssa_blkaddr) + LOOKED_FOR_NODES) as u32;
    let mut nodes = Vec::new();
    for at in g.ssa_blkaddr..end {
        let block = cache.medium.read(at)?;
        let f = footer(&block);
        let (nid, ino, version) = (f.nid.get(), f.ino.get(), f.cp_ver.get() as u32);
        if g.is_nid(nid) && g.is_nid(ino) && (1..=cp.checkpoint_ver.get() as u32).contains(&version) {
            nodes.push((nid, at));
        }
        if nodes.len() == ASKED {
            break;
        }
    }
    Ok(nodes)
}
