//! Shows a volume's structures: each `dump` value is serialisable (for JSON) and prints as text.
//!
//! [`Dump::open`] reads the volume as a check does (it works on damaged volumes, as far as they can be read);
//! then [`Dump::superblock`], [`Dump::checkpoint`], [`Dump::nat`], [`Dump::sit`], [`Dump::inode`] and
//! [`Dump::path`] give one structure each. Every value is a [`Record`]: named fields in on-disk order, spelled as
//! the kernel spells them.

mod deltas;
mod record;
mod runs;
mod shared;

use crate::finding::{Code, Findings};
use crate::image::{Image, Stop};
use crate::inode::Rules;
use crate::log;
use crate::medium::Medium;
use crate::names::right_place;
use crate::slots::has_no_addresses;
use medfs_codec::CodecTag;
use medfs_device::BlockDevice;
use medfs_format::checkpoint::CpFlags;
use medfs_format::dentry::{Area, AreaLayout};
use medfs_format::hash::dentry_hash;
use medfs_format::node::{self, Advise, FileKind, Inline, RawInode, footer};
use medfs_format::path::max_pages;
use medfs_format::summary::Log;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Ino, Nid, SegNo, xattr};
use record::text;
use runs::runs;
use std::io;
use thiserror::Error;
use zerocopy::IntoBytes;

pub use record::{Record, Value};

/// Shared record nodes that are shown.
const MOST_SHARED_NODES: usize = 1000;

/// Why nothing can be shown.
#[derive(Debug, Error)]
pub enum DumpError {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The volume is not readable; the sentences of the check.
    #[error("{0}")]
    Unreadable(String),
    /// What was asked for is not there.
    #[error("{0}")]
    NotFound(String),
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn uuid(b: &[u8; 16]) -> String {
    [&b[..4], &b[4..6], &b[6..8], &b[8..10], &b[10..]].map(hex).join("-")
}

fn c_string(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).trim_end().to_string()
}

fn flag_names<F: bitflags::Flags>(flags: F) -> String {
    let names: Vec<String> = flags.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    names.join(" ")
}

/// A directory entry and its place (only tests, which change entries, need the place).
#[cfg_attr(not(feature = "test-support"), allow(dead_code))]
pub(crate) struct Found {
    pub(crate) ino: Ino,
    /// Block it is in.
    pub(crate) addr: BlockAddr,
    /// Bytes of that block that are the entry area.
    pub(crate) area: std::ops::Range<usize>,
    pub(crate) layout: AreaLayout,
    pub(crate) slot: usize,
}

/// An opened volume to look at.
pub struct Dump<'d> {
    pub(crate) image: Image<'d>,
    rules: Rules,
    has_checkpoint: bool,
}

impl<'d> Dump<'d> {
    /// Reads superblock and checkpoint.
    pub fn open(dev: &'d dyn BlockDevice) -> Result<Dump<'d>, DumpError> {
        let mut findings = Findings::new(100);
        match Image::load(Medium::lenient(dev).of_last_checkpoint(), &mut findings) {
            Ok(mut image) => {
                // What has two copies was read from either. The rest is shown as it is.
                image.cache.medium.be_strict();
                image.lost_sit.clear();
                let has_checkpoint = findings.list.iter().all(|found| found.code != Code::CheckpointLost);
                Ok(Dump { rules: Rules::of(&image), image, has_checkpoint })
            }
            Err(Stop::Io(e)) => Err(e.into()),
            Err(Stop::Fatal) => {
                let sentences: Vec<String> = findings.list.iter().map(|f| f.to_string()).collect();
                Err(DumpError::Unreadable(sentences.join("; ")))
            }
        }
    }

    /// Whether a checkpoint pack is usable. Where none is, what is shown is what a repair begins with.
    pub fn has_checkpoint(&self) -> bool {
        self.has_checkpoint
    }

    /// Whether the volume may hold deltas.
    pub fn is_delta_volume(&self) -> bool {
        self.image.raw_sb().is_delta_volume()
    }

    /// Whether an import was interrupted: inodes may lack the layout that deltas need.
    pub fn has_old_layouts(&self) -> bool {
        self.image.raw_sb().has_old_layouts()
    }

    /// The NVRAM in which fsyncs since the last checkpoint may lie.
    pub fn nvram_in_use(&self) -> Option<String> {
        self.image.raw_sb().nvram_in_use().map(|nvram| nvram.place())
    }

    /// The superblock in force.
    pub fn superblock(&self) -> Record {
        let sb = self.image.raw_sb();
        let mut r = Record::default();
        r.put("magic", text(format_args!("{:#010x}", sb.magic)));
        r.put("version", text(format_args!("{}.{}", sb.major_ver, sb.minor_ver)));
        for (name, value) in [
            ("log_sectorsize", sb.log_sectorsize),
            ("log_sectors_per_block", sb.log_sectors_per_block),
            ("log_blocksize", sb.log_blocksize),
            ("log_blocks_per_seg", sb.log_blocks_per_seg),
            ("segs_per_sec", sb.segs_per_sec),
            ("secs_per_zone", sb.secs_per_zone),
            ("checksum_offset", sb.checksum_offset),
        ] {
            r.add(name, value.get());
        }
        r.add("block_count", sb.block_count.get());
        for (name, value) in [
            ("section_count", sb.section_count),
            ("segment_count", sb.segment_count),
            ("segment_count_ckpt", sb.segment_count_ckpt),
            ("segment_count_sit", sb.segment_count_sit),
            ("segment_count_nat", sb.segment_count_nat),
            ("segment_count_ssa", sb.segment_count_ssa),
            ("segment_count_main", sb.segment_count_main),
            ("segment0_blkaddr", sb.segment0_blkaddr),
            ("cp_blkaddr", sb.cp_blkaddr),
            ("sit_blkaddr", sb.sit_blkaddr),
            ("nat_blkaddr", sb.nat_blkaddr),
            ("ssa_blkaddr", sb.ssa_blkaddr),
            ("main_blkaddr", sb.main_blkaddr),
            ("root_ino", sb.root_ino),
            ("node_ino", sb.node_ino),
            ("meta_ino", sb.meta_ino),
        ] {
            r.add(name, value.get());
        }
        r.put("uuid", text(uuid(&sb.uuid)));
        r.put("volume_name", text(sb.label()));
        r.add("cp_payload", sb.cp_payload.get());
        r.put("feature", text(flag_names(sb.features())));
        r.put("feature_bits", text(format_args!("{:#x}", sb.feature)));
        r.put("qf_ino", Value::List(sb.qf_ino.iter().map(|q| q.get().into()).collect()));
        if sb.is_delta_volume() {
            r.add("delta_version", sb.delta.version.get());
            let (compat, ro, incompat) = (sb.delta.compat, sb.delta.ro_compat, sb.delta.incompat);
            let additions =
                format_args!("compat {compat:#x}, ro_compat {ro:#x}, incompat {incompat:#x}").to_string();
            r.put("delta_additions", text(additions));
        }
        r.put("written_by", text(c_string(&sb.version)));
        r.put("made_by", text(c_string(&sb.init_version)));
        r.put("crc", text(format_args!("{:#010x}", sb.crc)));
        r
    }

    /// The checkpoint in force, with the logs, the journals' sizes, orphans, and the log to replay.
    pub fn checkpoint(&mut self) -> Result<Record, DumpError> {
        let cp = self.image.checkpoint();
        let mut r = Record::default();
        r.add("pack", self.image.pack as u64 + 1);
        r.add("checkpoint_ver", cp.checkpoint_ver.get());
        r.put("ckpt_flags", text(flag_names::<CpFlags>(cp.flags())));
        for (name, value) in
            [("user_block_count", cp.user_block_count), ("valid_block_count", cp.valid_block_count)]
        {
            r.add(name, value.get());
        }
        for (name, value) in [
            ("rsvd_segment_count", cp.rsvd_segment_count),
            ("overprov_segment_count", cp.overprov_segment_count),
            ("free_segment_count", cp.free_segment_count),
            ("cp_pack_total_block_count", cp.cp_pack_total_block_count),
            ("cp_pack_start_sum", cp.cp_pack_start_sum),
            ("valid_node_count", cp.valid_node_count),
            ("valid_inode_count", cp.valid_inode_count),
            ("next_free_nid", cp.next_free_nid),
            ("sit_ver_bitmap_bytesize", cp.sit_ver_bitmap_bytesize),
            ("nat_ver_bitmap_bytesize", cp.nat_ver_bitmap_bytesize),
            ("checksum_offset", cp.checksum_offset),
        ] {
            r.add(name, value.get());
        }
        r.add("elapsed_time", cp.elapsed_time.get());
        let logs = Log::ALL.iter().zip(&self.image.cursegs).map(|(log, c)| {
            let mut l = Record::default();
            l.put("log", text(format_args!("{log:?}")));
            l.add("segno", c.segno);
            l.add("next_blkoff", c.blkoff);
            l.put("alloc_type", text(if c.alloc_type == 0 { "LFS" } else { "SSR" }));
            Value::Record(l)
        });
        r.put("logs", Value::List(logs.collect()));
        r.add("nat_journal_entries", self.image.nat_journal.len() as u64);
        r.add("sit_journal_entries", self.image.sit_journal.len() as u64);
        r.put("orphans", Value::List(self.image.orphans.iter().map(|&o| o.into()).collect()));
        let walk = log::walk(&mut self.image, &mut Findings::new(0), false)?;
        let log = walk.summary;
        r.add("log_to_replay_inodes", log.inodes);
        r.add("log_to_replay_nodes", log.nodes);
        r.add("log_to_replay_shared_nodes", log.shared);
        r.add("log_to_replay_removed_names", log.removed);
        let shown = walk.shared.iter().take(MOST_SHARED_NODES);
        let nodes: Result<Vec<Value>, DumpError> = shown.map(|&addr| self.shared_node(addr)).collect();
        r.put("shared_nodes", Value::List(nodes?));
        let shown = walk.removed.iter().take(MOST_SHARED_NODES);
        let nodes: Result<Vec<Value>, DumpError> = shown.map(|&addr| self.removed_names(addr)).collect();
        r.put("removed_names", Value::List(nodes?));
        Ok(r)
    }

    /// A node id's NAT entry.
    pub fn nat(&mut self, nid: Nid) -> Result<Record, DumpError> {
        let max = self.image.g.max_nid();
        if nid >= max {
            return Err(DumpError::NotFound(format!("node id {nid}: the volume's go up to {}", max - 1)));
        }
        let entry = self.image.nat(nid)?;
        let mut r = Record::default();
        r.add("nid", nid);
        r.add("version", entry.version);
        r.add("ino", entry.ino.get());
        r.add("block_addr", entry.block_addr.get());
        Ok(r)
    }

    /// A segment's SIT entry.
    pub fn sit(&mut self, segno: SegNo) -> Result<Record, DumpError> {
        let main = self.image.g.segment_count_main;
        if segno >= main {
            return Err(DumpError::NotFound(format!("segment {segno}: the main area has {main}")));
        }
        let entry = self.image.sit(segno)?;
        let mut r = Record::default();
        r.add("segno", segno);
        r.add("start_blkaddr", self.image.g.seg_start(segno));
        r.add("type", entry.seg_type());
        r.put(
            "type_name",
            text(Log::ALL.get(entry.seg_type() as usize).map_or("?".into(), |l| format!("{l:?}"))),
        );
        r.add("valid_blocks", entry.valid_blocks());
        r.add("mtime", entry.mtime.get());
        r.put("valid_map", text(hex(&entry.valid_map)));
        r.put(
            "current_log",
            text(self.image.curseg_of(segno).map_or("-".into(), |l| format!("{:?}", Log::ALL[l]))),
        );
        Ok(r)
    }

    /// An inode with its addresses, nodes and extended attributes' names; a directory with its inline entries.
    pub fn inode(&mut self, ino: Ino) -> Result<Record, DumpError> {
        let (addr, block) = self.inode_block(ino)?;
        let mut vetted = block.view::<RawInode>().clone();
        let sound = self.rules.vet(&mut vetted, ino);
        let inode: &RawInode = block.view();
        let mut r = Record::default();
        r.add("ino", ino);
        r.add("block_addr", addr);
        let faults: Vec<Value> = match sound {
            Ok(list) => {
                list.into_iter().map(|(code, sentence)| text(format_args!("{code} {sentence}"))).collect()
            }
            Err(reason) => vec![text(reason)],
        };
        if !faults.is_empty() {
            r.put("faults", Value::List(faults));
        }
        let kind = FileKind::from_mode(inode.i_mode.get());
        r.put("kind", text(kind.map_or("?".into(), |k| format!("{k:?}"))));
        r.put("i_mode", text(format_args!("{:#o}", inode.i_mode)));
        r.put("i_advise", text(flag_names::<Advise>(inode.advise())));
        r.put("i_inline", text(flag_names::<Inline>(inode.inline())));
        for (name, value) in [("i_uid", inode.i_uid), ("i_gid", inode.i_gid), ("i_links", inode.i_links)] {
            r.add(name, value.get());
        }
        r.add("i_size", inode.i_size.get());
        r.add("i_blocks", inode.i_blocks.get());
        for (name, seconds, nanoseconds) in [
            ("i_atime", inode.i_atime, inode.i_atime_nsec),
            ("i_ctime", inode.i_ctime, inode.i_ctime_nsec),
            ("i_mtime", inode.i_mtime, inode.i_mtime_nsec),
        ] {
            r.put(name, text(format_args!("{}.{:09}", seconds.get() as i64, nanoseconds.get())));
        }
        for (name, value) in [
            ("i_generation", inode.i_generation),
            ("i_current_depth", inode.i_current_depth),
            ("i_xattr_nid", inode.i_xattr_nid),
            ("i_flags", inode.i_flags),
            ("i_pino", inode.i_pino),
        ] {
            r.add(name, value.get());
        }
        let name_len = (inode.i_namelen.get() as usize).min(node::NAME_LEN);
        r.put("i_name", text(String::from_utf8_lossy(&inode.i_name[..name_len])));
        r.add("i_dir_level", inode.i_dir_level);
        let extent =
            format!("page {} block {} length {}", inode.i_ext.fofs, inode.i_ext.blk, inode.i_ext.len);
        r.put("i_ext", text(extent));
        self.extra(inode, &mut r);
        self.contents(&vetted, kind, &mut r);
        r.put("xattrs", Value::List(self.xattrs(&vetted)?));
        self.deltas(&vetted, ino, &mut r)?;
        let f = footer(&block);
        r.add("footer_flag", f.flag.get());
        r.put("footer_cp_ver", text(format_args!("{:#x}", f.cp_ver)));
        r.add("footer_next_blkaddr", f.next_blkaddr.get());
        Ok(r)
    }

    fn extra(&self, inode: &RawInode, r: &mut Record) {
        let Some(extra) = inode.extra() else { return };
        r.add("i_extra_isize", extra.i_extra_isize.get());
        r.add("i_inline_xattr_size", extra.i_inline_xattr_size.get());
        if inode.extra_fits(8) {
            r.add("i_projid", extra.i_projid.get());
        }
        if inode.extra_fits(12) {
            r.put("i_inode_checksum", text(format_args!("{:#010x}", extra.i_inode_checksum)));
        }
        if inode.extra_fits(24) {
            r.put(
                "i_crtime",
                text(format_args!("{}.{:09}", extra.i_crtime.get() as i64, extra.i_crtime_nsec.get())),
            );
        }
        if let Some(compression) = inode.compression().filter(|_| self.rules.has_compression()) {
            r.add("i_compr_blocks", extra.i_compr_blocks.get());
            r.put("i_compress_algorithm", text(compression.algorithm.name()));
            r.add("i_log_cluster_size", compression.log_cluster_size);
            r.put("i_compress_flag", text(format_args!("{:#06x}", extra.i_compress_flag)));
        }
    }

    /// Addresses as runs, node ids, or inline entries.
    fn contents(&self, inode: &RawInode, kind: Option<FileKind>, r: &mut Record) {
        let slots = inode.slots(self.rules.flexible());
        if inode.inline().contains(Inline::DENTRY) {
            let bytes = &inode.as_bytes()[slots.inline_content_range()];
            let area = Area::new(AreaLayout::inline(bytes.len()), bytes);
            let entries = area.entries(0, 0).map_while(Result::ok).map(|e| {
                let mut d = Record::default();
                d.put("name", text(String::from_utf8_lossy(e.name)));
                d.add("ino", e.ino);
                d.put("kind", text(e.kind.map_or("?".into(), |k| format!("{k:?}"))));
                Value::Record(d)
            });
            r.put("dentries", Value::List(entries.collect()));
        } else if inode.inline().contains(Inline::DATA) {
            if kind == Some(FileKind::Symlink) {
                let range = slots.inline_content_range();
                let len = inode.i_size.get().min(range.len() as u64) as usize;
                r.put("target", text(String::from_utf8_lossy(&inode.as_bytes()[range][..len])));
            }
        } else if !has_no_addresses(inode) {
            r.put(
                "i_addr",
                text(runs(inode.i_addr[slots.extra..slots.extra + slots.addrs()].iter().map(|a| a.get()))),
            );
            r.put("i_nid", Value::List(inode.i_nid.iter().map(|n| n.get().into()).collect()));
        }
    }

    fn xattrs(&mut self, inode: &RawInode) -> Result<Vec<Value>, DumpError> {
        let mut area = Vec::new();
        if inode.inline().contains(Inline::XATTR) {
            area.extend_from_slice(
                &inode.as_bytes()[inode.slots(self.rules.flexible()).inline_xattr_range()],
            );
        }
        if inode.i_xattr_nid.get() != 0 {
            let addr = self.image.nat(inode.i_xattr_nid.get())?.block_addr.get();
            if self.image.g.in_main(addr) {
                area.extend_from_slice(&self.image.cache.get(addr)?.0[..xattr::NODE_BYTES]);
            }
        }
        let (entries, _) = xattr::parse_prefix(&area, 0);
        let show = |e: &xattr::XattrEntry| {
            let mut x = Record::default();
            x.add("index", e.index);
            x.put("name", text(String::from_utf8_lossy(&e.name)));
            x.add("size", e.value.len() as u64);
            Value::Record(x)
        };
        Ok(entries.iter().map(show).collect())
    }

    /// The inode that a path leads to (symbolic links are not followed).
    pub fn path(&mut self, path: &str) -> Result<Record, DumpError> {
        let mut ino = self.image.g.root_ino;
        for name in path.split('/').filter(|n| !n.is_empty() && *n != ".") {
            ino = self.lookup(ino, name.as_bytes())?.ok_or_else(|| {
                DumpError::NotFound(format!("{path}: no entry \"{name}\" in directory {ino}"))
            })?;
        }
        self.inode(ino)
    }

    fn lookup(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, DumpError> {
        Ok(self.entry(dir, name)?.map(|e| e.ino))
    }

    /// Where a directory's entry is.
    pub(crate) fn entry(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Found>, DumpError> {
        let (inode_addr, mut block) = self.inode_block(dir)?;
        let vetted = self.rules.vet(block.view_mut::<RawInode>(), dir);
        let inode: &RawInode = block.view();
        if vetted.is_err() || FileKind::from_mode(inode.i_mode.get()) != Some(FileKind::Directory) {
            return Err(DumpError::NotFound(format!("inode {dir} is not a directory")));
        }
        let slots = inode.slots(self.rules.flexible());
        if inode.inline().contains(Inline::DENTRY) {
            let range = slots.inline_content_range();
            let layout = AreaLayout::inline(range.len());
            let area = Area::new(layout, &inode.as_bytes()[range.clone()]);
            let found = area.find(name, dir.into()).ok().flatten();
            return Ok(found.map(|e| Found {
                ino: e.ino,
                addr: inode_addr,
                area: range,
                layout,
                slot: e.slot,
            }));
        }
        let pages = inode.i_size.get().div_ceil(BLOCK_SIZE as u64).min(max_pages(slots.fanout()));
        let pages = pages.min(u64::from(self.image.g.main_blocks()));
        for page in (0..pages).filter(|&p| right_place(dentry_hash(name), p, inode.i_dir_level)) {
            let addr = self.image.address(inode, page)?;
            if self.image.g.in_main(addr) {
                let layout = AreaLayout::BLOCK;
                let area = Area::new(layout, &self.image.cache.get(addr)?.0);
                if let Ok(Some(e)) = area.find(name, dir.into()) {
                    return Ok(Some(Found { ino: e.ino, addr, area: 0..BLOCK_SIZE, layout, slot: e.slot }));
                }
            }
        }
        Ok(None)
    }

    fn inode_block(&mut self, ino: Ino) -> Result<(BlockAddr, Box<Block>), DumpError> {
        if !self.image.g.is_nid(ino) {
            return Err(DumpError::NotFound(format!("inode number {ino} is out of range")));
        }
        let addr = self.image.nat(ino)?.block_addr.get();
        if !self.image.g.in_main(addr) {
            return Err(DumpError::NotFound(format!("inode {ino} does not exist")));
        }
        let block = self.image.cache.read(addr)?;
        let f = footer(&block);
        if f.nid.get() != ino || f.ino.get() != ino {
            return Err(DumpError::NotFound(format!("node {ino} (block {addr}) is not an inode")));
        }
        Ok((addr, block))
    }
}

/// What a delta is encoded with.
fn codec_name(tag: u8) -> Value {
    let codec = CodecTag::try_from(tag);
    text(codec.map_or_else(|_| format!("unknown {tag}"), |codec| codec.name().into()))
}
