//! After the walk: NAT, SIT and checkpoint against what was reached; when fixing, their new versions.
//!
//! SIT and NAT are written to the copy that is not in force and take effect with the checkpoint.

use crate::finding::{Code, Findings, counted};
use crate::image::{Image, is_nat_blank};
use crate::judgement::Judgement;
use crate::names::{inode_name, own_name};
use crate::pack::Counts;
use crate::reach::Links;
use crate::space::Kind;
use medfs_device::Cause;
use medfs_format::nat::{self, RawNatBlock, RawNatEntry};
use medfs_format::node::{RawInode, footer};
use medfs_format::sit::{self, RawSitBlock, RawSitEntry, VALID_MAP_SIZE, test_bit};
use medfs_format::{BLOCKS_PER_SEG, BlockAddr, Ino, NULL_ADDR, Nid};
use std::io;
use std::ops::{Deref, DerefMut};

/// The tables of a volume under judgement.
pub(crate) struct Tables<'j, 'd>(&'j mut Judgement<'d>);

impl<'d> Judgement<'d> {
    pub(crate) fn tables(&mut self) -> Tables<'_, 'd> {
        Tables(self)
    }
}

impl<'d> Deref for Tables<'_, 'd> {
    type Target = Judgement<'d>;
    fn deref(&self) -> &Judgement<'d> {
        self.0
    }
}

impl DerefMut for Tables<'_, '_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0
    }
}

impl Tables<'_, '_> {
    /// Names whose number is not `i_links` and inodes whose `i_links` says so.
    pub(crate) fn check_links(&mut self) -> io::Result<()> {
        let mut wrong: Vec<_> =
            self.links.iter().filter(|(_, l)| l.found != l.claimed).map(|(&i, &l)| (i, l)).collect();
        wrong.sort_unstable_by_key(|&(ino, _)| ino);
        for (ino, l) in wrong {
            self.findings.add(
                Code::InodeLinks,
                format!("inode {ino}: i_links is {}, but it has {}", l.claimed, counted(l.found, "name")),
            );
            if self.lacks_names(ino, l)? {
                self.losses.names += u64::from(l.claimed.saturating_sub(l.found));
            }
            // Who brings files off learns from it that a name is missing, or another file's.
            if self.fix && (self.names || self.anew.files.contains(&ino)) {
                let addr = self.image.nat(ino)?.block_addr.get();
                let mut block = self.image.cache.read(addr)?;
                block.view_mut::<RawInode>().i_links = l.found.into();
                self.write_inode(addr, &mut block)?;
            }
        }
        Ok(())
    }

    /// Whether a file with fewer names than links has lost some: else a flipped bit in their number explains it.
    fn lacks_names(&mut self, ino: Ino, links: Links) -> io::Result<bool> {
        let (_, block) = self.inode_block(ino)?;
        let is_proven = self.rules.seed.is_some() && !self.rules.is_doubtful(block.view());
        let is_a_bit = (links.claimed ^ links.found).is_power_of_two();
        Ok(links.claimed > links.found && (self.findings.lost_names || is_proven || !is_a_bit))
    }

    /// Compares the NAT with the nodes reached; when fixing, frees the others. Returns the first free node id.
    pub(crate) fn check_nat(&mut self) -> io::Result<Nid> {
        let mut free = None;
        for index in 0..self.image.g.nat_blocks() {
            let first = index * nat::ENTRIES_PER_BLOCK as u32;
            if is_nat_blank(&self.image, index) && index > 0 {
                free = free.or(Some(first));
                continue;
            }
            let (mut block, mut changed) = self.image.nat_block(index)?;
            for (i, entry) in block.view_mut::<RawNatBlock>().entries.iter_mut().enumerate() {
                let nid = first + i as u32;
                if nid < self.image.g.root_ino {
                    changed |= mend_reserved(nid, entry, &mut self.findings);
                    continue;
                }
                if !self.image.g.is_nid(nid) {
                    continue;
                }
                if entry.block_addr.get() == NULL_ADDR {
                    free = free.or(Some(nid));
                } else if !self.space.nid_reached(nid) {
                    let text = unreachable(&mut self.image, nid, entry)?;
                    self.findings.add(Code::NatUnreachable, text);
                    let version = entry.version.wrapping_add(1);
                    *entry = RawNatEntry { version, ..RawNatEntry::default() };
                    changed = true;
                    free = free.or(Some(nid));
                }
            }
            if changed && self.fix {
                let to = self.image.g.nat_block(index, !self.image.nat_second(index));
                self.image.cache.write(to, &block, Cause::Meta)?;
                let bitmap = self.image.places().nat;
                self.image.flip(bitmap, index);
            }
        }
        Ok(free.unwrap_or(self.image.g.root_ino))
    }

    /// Compares the SIT with the blocks reached; when fixing, writes what was reached. Returns the free segments.
    pub(crate) fn check_sit(&mut self) -> io::Result<u32> {
        let main = self.image.g.segment_count_main;
        let mut free = 0;
        for index in 0..self.image.g.sit_blocks() {
            self.check_below_journal(index)?;
            let (mut block, mut changed) = self.image.sit_block(index)?;
            let first = index * sit::ENTRIES_PER_BLOCK as u32;
            for i in 0..sit::ENTRIES_PER_BLOCK as u32 {
                let segno = first + i;
                if segno >= main {
                    break;
                }
                let entry = &mut block.view_mut::<RawSitBlock>().entries[i as usize];
                let right = match self.image.sit_unreadable(segno) {
                    true => self.right_sit_entry(segno, entry),
                    false => self.sit_entry(segno, entry),
                };
                if right != *entry {
                    *entry = right;
                    changed = true;
                }
                free += u32::from(right.valid_blocks() == 0 && self.image.curseg_of(segno).is_none());
            }
            if changed && self.fix {
                let to = self.image.g.sit_block(index, !self.image.sit_second(index));
                self.image.cache.write(to, &block, Cause::Meta)?;
                let bitmap = self.image.places().sit;
                self.image.flip(bitmap, index);
            }
        }
        Ok(free)
    }

    /// Entries of the table that the journal replaces: who mounts the volume judges them too.
    fn check_below_journal(&mut self, index: u32) -> io::Result<()> {
        let first = index * sit::ENTRIES_PER_BLOCK as u32;
        let replaced = |image: &crate::image::Image<'_>, segno| image.sit_journal.contains_key(&segno);
        let segments = first..(first + sit::ENTRIES_PER_BLOCK as u32).min(self.image.g.segment_count_main);
        if !segments.clone().any(|segno| replaced(&self.image, segno)) {
            return Ok(());
        }
        let addr = self.image.g.sit_block(index, self.image.sit_second(index));
        let block = self.image.cache.read(addr)?;
        let entries = &block.view::<RawSitBlock>().entries;
        let Judgement { image, findings, .. } = &mut *self.0;
        for (segno, entry) in segments.zip(entries).filter(|(segno, _)| replaced(image, *segno)) {
            if let Err(e) = entry.validate(segno) {
                findings.add(Code::SitEntry, format!("{e}, below the entry in the journal"));
            }
        }
        Ok(())
    }

    fn sit_entry(&mut self, segno: u32, entry: &RawSitEntry) -> RawSitEntry {
        if let Err(e) = entry.validate(segno) {
            self.findings.add(Code::SitEntry, e.to_string());
        }
        let map = self.space.segment(segno);
        let start = self.image.g.seg_start(segno);
        let missing = only_in(&map, &entry.valid_map, start);
        let leaked = only_in(&entry.valid_map, &map, start);
        if let Some(first) = missing.first() {
            self.findings.add(
                Code::SitMissing,
                format!(
                    "segment {segno}: {} in use but marked free, the first is {first}",
                    counted(missing.len() as u64, "block")
                ),
            );
        }
        if let Some(first) = leaked.first() {
            self.findings.add(
                Code::SitLeaked,
                format!(
                    "segment {segno}: {} marked in use but unreferenced, the first is {first}",
                    counted(leaked.len() as u64, "block")
                ),
            );
        }
        let right = self.right_sit_entry(segno, entry);
        let (seg_type, right_type) = (entry.seg_type(), right.seg_type());
        if right_type != seg_type && seg_type < 6 {
            self.findings.add(
                Code::SitType,
                format!("segment {segno}: type {seg_type}, but its blocks are of type {right_type}"),
            );
        }
        right
    }

    /// What the walk says of a segment.
    fn right_sit_entry(&self, segno: u32, entry: &RawSitEntry) -> RawSitEntry {
        let seg_type = entry.seg_type();
        let right_type = match (self.space.kind(segno), self.image.curseg_of(segno)) {
            (_, Some(log)) => log as u8,
            (Kind::Data, _) if seg_type > 2 => 1,
            (Kind::Node, _) if !(3..6).contains(&seg_type) => 4,
            (Kind::Unknown, _) if seg_type > 5 => 0,
            _ => seg_type,
        };
        let map = self.space.segment(segno);
        let count: u32 = map.iter().map(|b| b.count_ones()).sum();
        RawSitEntry::new(right_type, count as u16, map, entry.mtime.get())
    }

    /// Whether each log's next block is free and, where it appends, all behind it. When fixing, moves the log.
    pub(crate) fn check_cursegs(&mut self) -> io::Result<()> {
        for log in 0..self.image.cursegs.len() {
            let c = &self.image.cursegs[log];
            let (segno, next, appends) = (c.segno, c.blkoff as usize, c.alloc_type == 0);
            let map = self.space.segment(segno);
            let used = |i: usize| test_bit(&map, i);
            if used(next) {
                self.findings.add(
                    Code::CursegNext,
                    format!("log {log}: next block {next} of segment {segno} is in use"),
                );
            } else if appends && (next + 1..BLOCKS_PER_SEG as usize).any(used) {
                self.findings.add(
                    Code::CursegTail,
                    format!("log {log}: blocks behind {next} of segment {segno} are in use"),
                );
            } else {
                continue;
            }
            if self.fix {
                let end = (0..BLOCKS_PER_SEG as usize).rev().find(|&i| used(i)).map_or(0, |i| i + 1);
                let hole = (0..BLOCKS_PER_SEG as usize).find(|&i| !used(i));
                if end < BLOCKS_PER_SEG as usize {
                    let c = &mut self.image.cursegs[log];
                    (c.blkoff, c.alloc_type) = (end as u32, 0);
                } else if let Some(fresh) = self.maker().free_segment()? {
                    self.move_log(log, fresh)?;
                } else if let Some(hole) = hole {
                    let c = &mut self.image.cursegs[log];
                    (c.blkoff, c.alloc_type) = (hole as u32, 1);
                }
            }
        }
        Ok(())
    }

    /// Lets a log go on in a free segment.
    fn move_log(&mut self, log: usize, segno: u32) -> io::Result<()> {
        let fresh = crate::pack::empty_summary(log >= 3);
        let c = &mut self.image.cursegs[log];
        let old = c.segno;
        let sum = std::mem::replace(&mut c.sum, fresh);
        (c.segno, c.blkoff, c.alloc_type, c.known) = (segno, 0, 0, true);
        self.0.space.set_ssa(&mut self.0.image, old, &sum)
    }

    /// Segments of the device behind the last whole zone: `mkfs.f2fs` counts them as free, until the first checkpoint.
    fn beyond_sections(&self) -> u32 {
        let sb = self.image.raw_sb();
        let behind = self.image.cache.medium.block_count().saturating_sub(sb.segment0_blkaddr.get().into());
        let segments = behind / u64::from(BLOCKS_PER_SEG);
        let beyond = segments.saturating_sub(sb.segment_count.get().into());
        let zone = u64::from(sb.segs_per_sec.get()) * u64::from(sb.secs_per_zone.get());
        if beyond < zone { beyond as u32 } else { 0 }
    }

    /// The checkpoint's counts against those of the walk.
    pub(crate) fn check_counts(&mut self, free_segments: u32, free_nid: Nid) -> Counts {
        let cp = self.image.checkpoint();
        let s = &self.space;
        let next = cp.next_free_nid.get();
        let counts = Counts {
            blocks: s.blocks,
            nodes: s.nodes,
            inodes: s.inodes,
            free_segments,
            next_free_nid: if self.image.g.is_nid(next) { next } else { free_nid },
            recount: false,
            is_older: self.findings.is_older,
        };
        for (code, field, says, is) in [
            (Code::ValidBlockCount, "valid_block_count", cp.valid_block_count.get(), counts.blocks),
            (Code::ValidNodeCount, "valid_node_count", cp.valid_node_count.get().into(), counts.nodes.into()),
            (
                Code::ValidInodeCount,
                "valid_inode_count",
                cp.valid_inode_count.get().into(),
                counts.inodes.into(),
            ),
            (
                Code::FreeSegmentCount,
                "free_segment_count",
                cp.free_segment_count.get().into(),
                free_segments.into(),
            ),
        ] {
            let fresh = code == Code::FreeSegmentCount && says == is + u64::from(self.beyond_sections());
            if says != is && !fresh {
                self.findings.add(code, format!("checkpoint: {field} is {says}, but counted {is}"));
            }
        }
        if next != counts.next_free_nid {
            self.findings
                .add(Code::NextFreeNid, format!("checkpoint: next_free_nid {next} is not a node id"));
        }
        counts
    }
}

/// Entries below the root's are no nodes: number 0 is none, and the node and meta inodes of the kernel's
/// memory have block 1. Tells whether the entry was another one.
fn mend_reserved(nid: Nid, entry: &mut RawNatEntry, findings: &mut Findings) -> bool {
    let block_addr = u32::from(nid != 0);
    if (entry.ino.get(), entry.block_addr.get()) == (nid, block_addr) {
        return false;
    }
    let found = format!("reserved node {nid} has inode {}, block {}", entry.ino, entry.block_addr);
    findings.add(Code::NatReserved, format!("{found} instead of {nid}, {block_addr}"));
    *entry = RawNatEntry { version: entry.version, ino: nid.into(), block_addr: block_addr.into() };
    true
}

/// The blocks of a segment from `start` on that one map has and the other lacks.
fn only_in(map: &[u8; VALID_MAP_SIZE], other: &[u8; VALID_MAP_SIZE], start: BlockAddr) -> Vec<BlockAddr> {
    let differing = map.iter().zip(other).enumerate().filter(|(_, (byte, other))| *byte & !*other != 0);
    let bits = differing.flat_map(|(at, _)| 8 * at..8 * (at + 1));
    bits.filter(|&i| test_bit(map, i) && !test_bit(other, i)).map(|i| start + i as u32).collect()
}

/// That no file leads to a node of the NAT: a file without a name, by the one that its inode says.
fn unreachable(image: &mut Image<'_>, nid: Nid, entry: &RawNatEntry) -> io::Result<String> {
    let (ino, addr) = (entry.ino.get(), entry.block_addr.get());
    let what = format!("node {nid} of inode {ino} (block {addr})");
    if !image.g.in_main(addr) {
        return Ok(format!("{what} is not in use by any file"));
    }
    let block = image.cache.get(addr)?;
    if footer(block).nid.get() != nid {
        let is = if medfs_format::dentry::is_blank(block) { "zeros" } else { "another one's" };
        return Ok(format!("{what} is lost: that block is {is}"));
    }
    let inode: &RawInode = block.view();
    Ok(match own_name(inode) {
        Some([_, ..]) if nid == ino => {
            format!("{} (block {addr}) is in no directory", inode_name(ino, inode))
        }
        _ => format!("{what} is not in use by any file"),
    })
}
