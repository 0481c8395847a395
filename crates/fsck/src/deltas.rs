//! What a file's records say, wherever they are kept: the zone's and those of compact pages, which of them count, and
//! whether each makes the page whose checksum it carries. Check and dump judge by it.
//!
//! Invariants: nothing here writes. Memory: the zone, an entry for each compact page, and one for each page of the file
//! that a compact page has a record of (345 thousand at most).

use crate::finding::Code;
use crate::image::{CANNOT_BE_READ, Image};
use crate::inode::Rules;
use foldhash::{HashMap, HashMapExt};
use medfs_codec::compress::{Compressor, Compressors};
use medfs_codec::{Codecs, RebuildError};
use medfs_format::compress::{Algorithm, Cluster, Compression, cluster_content};
use medfs_format::delta::{self, NO_DELTA, RawSlice, Record};
use medfs_format::node::{ADDRS_PER_BLOCK, FileKind, Inline, RawInode};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Ino, NEW_ADDR, crc, is_block};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use zerocopy::IntoBytes;

/// Places for compact pages in a file.
pub(crate) const PLACES: u64 = ADDRS_PER_BLOCK as u64;

/// A record, copied out of where it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Delta {
    pub(crate) index: u32,
    codec: u8,
    checksum: u32,
    pub(crate) slices: Vec<RawSlice>,
    bytes: Vec<u8>,
}

impl From<&Record<'_>> for Delta {
    fn from(r: &Record<'_>) -> Delta {
        Delta {
            index: r.index,
            codec: r.codec,
            checksum: r.checksum,
            slices: r.slices.to_vec(),
            bytes: r.delta.to_vec(),
        }
    }
}

impl Delta {
    /// The word that a page is its block. No record is smaller, so it fits wherever one was.
    fn mark(index: u32) -> Delta {
        Delta { index, codec: NO_DELTA, checksum: 0, slices: Vec::new(), bytes: Vec::new() }
    }

    pub(crate) fn is_mark(&self) -> bool {
        self.codec == NO_DELTA
    }

    pub(crate) fn record(&self) -> Record<'_> {
        Record {
            index: self.index,
            codec: self.codec,
            checksum: self.checksum,
            slices: &self.slices,
            delta: &self.bytes,
        }
    }
}

/// What becomes of records that a repair takes away.
#[derive(Debug, Default)]
pub(crate) struct Faulty {
    /// Pages whose record goes.
    pub(crate) pages: BTreeSet<u32>,
    /// Pages below this one get a mark in its place, so that no older record comes to count.
    pub(crate) marks_below: u64,
}

impl Faulty {
    /// The records that a repair leaves of `all`.
    pub(crate) fn without(&self, all: impl IntoIterator<Item = Delta>) -> Vec<Delta> {
        let kept = |delta: Delta| match self.pages.contains(&delta.index) {
            false => Some(delta),
            true => (u64::from(delta.index) < self.marks_below).then(|| Delta::mark(delta.index)),
        };
        all.into_iter().filter_map(kept).collect()
    }
}

/// The records of a file.
#[derive(Debug, Default)]
pub(crate) struct Deltas {
    /// Those of the zone as far as it is sound, oldest first.
    pub(crate) zone: Vec<Delta>,
    /// Blocks of the sound compact pages, by sequence number.
    pub(crate) pages: BTreeMap<u32, BlockAddr>,
    /// First sequence number that counts.
    pub(crate) first: u32,
    /// Sequence number of the compact page whose record of a page counts.
    newest: HashMap<u32, u32>,
}

impl Deltas {
    pub(crate) fn new(zone: Vec<Delta>, pages: BTreeMap<u32, BlockAddr>, first: u32) -> Deltas {
        Deltas { zone, pages, first, newest: HashMap::new() }
    }

    /// Finds out which records of compact pages count.
    pub(crate) fn rank(&mut self, image: &mut Image<'_>, ino: Ino) -> io::Result<()> {
        let masked: BTreeSet<u32> = self.zone.iter().map(|d| d.index).collect();
        self.newest = HashMap::new();
        for (&sequence, &addr) in self.pages.range(self.first..) {
            if let Ok((_, records)) = delta::compact_records(image.cache.get(addr)?, ino) {
                let unmasked = records.iter().filter(|r| !masked.contains(&r.index));
                // By rising sequence: the last one stays.
                self.newest.extend(unmasked.map(|r| (r.index, sequence)));
            }
        }
        Ok(())
    }

    /// Whether the record of a page in a compact page counts.
    pub(crate) fn counts(&self, sequence: u32, index: u32) -> bool {
        self.newest.get(&index) == Some(&sequence)
    }

    /// All records of a compact page; nothing where it is not sound.
    pub(crate) fn page(&self, image: &mut Image<'_>, ino: Ino, addr: BlockAddr) -> io::Result<Vec<Delta>> {
        let records = delta::compact_records(image.cache.get(addr)?, ino);
        Ok(records.map(|(_, records)| records.iter().map(Delta::from).collect()).unwrap_or_default())
    }
}

/// Where in an inode that was vetted its zone is.
pub(crate) fn zone_range(inode: &RawInode, flexible: bool) -> Option<Range<usize>> {
    if !inode.inline().contains(Inline::XATTR) {
        return None;
    }
    let area = inode.slots(flexible).inline_xattr_range();
    let zone = delta::zone_range(&inode.as_bytes()[area.clone()])?;
    Some(area.start + zone.start..area.start + zone.end)
}

/// The addresses at the places for compact pages that name blocks.
pub(crate) fn places(image: &mut Image<'_>, inode: &RawInode) -> io::Result<Vec<(u64, BlockAddr)>> {
    let start = delta::compact_start(inode.slots(image.flexible()).fanout());
    let mut found = Vec::new();
    for place in 0..PLACES {
        let addr = image.address(inode, start + place)?;
        if is_block(addr) && image.g.in_main(addr) {
            found.push((place, addr));
        }
    }
    Ok(found)
}

/// All records of a file whose inode was vetted, but for those of compact pages that are not sound.
pub(crate) fn load(image: &mut Image<'_>, inode: &RawInode, ino: Ino) -> io::Result<Deltas> {
    let Some(range) = zone_range(inode, image.flexible()) else { return Ok(Deltas::default()) };
    let zone = &inode.as_bytes()[range];
    let Ok(header) = delta::zone_header(zone, ino) else { return Ok(Deltas::default()) };
    let (records, _) = delta::parse_prefix(zone, ino);
    let records = records.iter().map(Delta::from).collect();
    let mut pages = BTreeMap::new();
    if header.flags & delta::ZONE_COMPACT != 0 {
        for (_, addr) in places(image, inode)? {
            if let Ok((sequence, _)) = delta::compact_records(image.cache.get(addr)?, ino) {
                // Of two with one number the first stays.
                pages.entry(sequence).or_insert(addr);
            }
        }
    }
    let mut deltas = Deltas::new(records, pages, header.first.get());
    deltas.rank(image, ino)?;
    Ok(deltas)
}

/// Finds what bases are made of.
pub(crate) struct Bases<'r> {
    rules: &'r Rules,
    codecs: &'r mut Codecs,
    compressors: Compressors,
    /// The file that the last slice was of.
    source: Option<(Ino, Box<RawInode>)>,
}

type Fault = (Code, String);

/// That a block which is part of a base could be read. Where it cannot, nothing is known of the record.
fn readable(image: &Image<'_>, addr: BlockAddr) -> Result<(), Fault> {
    match image.cache.medium.tell_unreadable(addr) {
        true => Err((Code::UnreadableData, format!("its base, block {addr}, {CANNOT_BE_READ}"))),
        false => Ok(()),
    }
}

impl<'r> Bases<'r> {
    pub(crate) fn new(rules: &'r Rules, codecs: &'r mut Codecs) -> Bases<'r> {
        Bases { rules, codecs, compressors: Compressors::default(), source: None }
    }

    /// Whether a record, with its base, makes the page that it was made of; otherwise why not. `inode`, whose
    /// record it is, was vetted.
    pub(crate) fn judge(
        &mut self,
        image: &mut Image<'_>,
        inode: &RawInode,
        record: &Record<'_>,
    ) -> io::Result<Result<(), Fault>> {
        if record.codec == NO_DELTA {
            return Ok(Ok(()));
        }
        let addr = image.address(inode, record.index.into())?;
        let cluster = match record.slices {
            [] => self.page_of_cluster(image, inode, record.index.into())?,
            _ => None,
        };
        let usable = addr == NEW_ADDR || (is_block(addr) && image.g.in_main(addr));
        if !usable && cluster.is_none() {
            let why = "the page has no block that could be its base, nor a place for one";
            return Ok(Err((Code::DeltaBase, why.into())));
        }
        let mut page = Block::boxed();
        if let Some(held) = cluster {
            match held {
                Ok(held) => page = held,
                Err(fault) => return Ok(Err(fault)),
            }
        } else if !record.slices.is_empty() {
            for slice in record.slices {
                if let Err(fault) = self.copy_slice(image, slice, &mut page)? {
                    return Ok(Err(fault));
                }
            }
        } else if addr != NEW_ADDR {
            page = image.cache.read(addr)?;
            if let Err(fault) = readable(image, addr) {
                return Ok(Err(fault));
            }
        }
        let rebuilt = self.codecs.rebuild(record.codec, record.delta, record.checksum, &mut page.0);
        Ok(rebuilt.map_err(|e| match e {
            RebuildError::Codec(_) => (Code::DeltaCodec, e.to_string()),
            _ => (Code::DeltaContent, e.to_string()),
        }))
    }

    /// What the compressed cluster of a page holds of it, or why that cannot be told; `None` where it is in none.
    fn page_of_cluster(
        &mut self,
        image: &mut Image<'_>,
        inode: &RawInode,
        index: u64,
    ) -> io::Result<Option<Result<Box<Block>, Fault>>> {
        let compression = if self.rules.has_compression() { inode.compression() } else { None };
        let Some((compression, addrs)) = cluster_of(image, inode, compression, index)? else {
            return Ok(None);
        };
        let Ok(Cluster::Compressed(count)) = Cluster::of(&addrs) else { return Ok(None) };
        let mut blocks = Vec::with_capacity(count * BLOCK_SIZE);
        for &addr in &addrs[1..=count] {
            if !image.g.in_main(addr) {
                let why = format!("its cluster: a block at {addr}, outside the main area");
                return Ok(Some(Err((Code::DeltaBase, why))));
            }
            blocks.extend_from_slice(&image.cache.get(addr)?.0);
            if let Err((code, why)) = readable(image, addr) {
                return Ok(Some(Err((code, format!("its cluster: {why}")))));
            }
        }
        let within = (index % addrs.len() as u64) as usize * BLOCK_SIZE;
        let content = content_of(&mut self.compressors, compression, &blocks, addrs.len());
        let content = content.map_err(|why| (Code::ClusterDamaged, format!("its cluster: {why}")));
        Ok(Some(content.map(|content| {
            let mut page = Block::boxed();
            page.0.copy_from_slice(&content[within..within + BLOCK_SIZE]);
            page
        })))
    }

    fn copy_slice(
        &mut self,
        image: &mut Image<'_>,
        slice: &RawSlice,
        base: &mut Block,
    ) -> io::Result<Result<(), Fault>> {
        let (ino, page) = (slice.ino.get(), slice.page.get());
        let fault = |why: &str| {
            let text = format!("its base has a slice of page {page} of inode {ino}, {why}");
            Ok(Err((Code::SliceSource, text)))
        };
        if self.source.as_ref().is_none_or(|(last, _)| *last != ino) {
            self.source = read_source(image, self.rules, ino)?.map(|inode| (ino, inode));
        }
        let Some((_, source)) = &self.source else { return fault("which is not a file with blocks") };
        if u64::from(page) >= most_pages(source, self.rules.flexible(), ino) {
            return fault("which cannot have that page");
        }
        let addr = image.address(source, page.into())?;
        match slice.ranges() {
            Some((from, to)) if is_block(addr) && image.g.in_main(addr) => {
                base.0[to].copy_from_slice(&image.cache.get(addr)?.0[from]);
                Ok(readable(image, addr))
            }
            _ => fault("which has no block"),
        }
    }
}

/// How the cluster of a page is compressed, and its addresses; `None` where the file has no clusters.
fn cluster_of(
    image: &mut Image<'_>,
    inode: &RawInode,
    compression: Option<Compression>,
    index: u64,
) -> io::Result<Option<(Compression, Vec<BlockAddr>)>> {
    let Some(compression) = compression else { return Ok(None) };
    let pages = compression.cluster_pages() as u64;
    let first = index / pages * pages;
    let addrs = (first..first + pages).map(|page| image.address(inode, page)).collect::<io::Result<_>>()?;
    Ok(Some((compression, addrs)))
}

/// Whether a page of a file, on a volume with compressed files, is in a compressed cluster.
pub(crate) fn in_cluster(image: &mut Image<'_>, inode: &RawInode, index: u64) -> io::Result<bool> {
    let found = cluster_of(image, inode, inode.compression(), index)?;
    Ok(found.is_some_and(|(_, addrs)| matches!(Cluster::of(&addrs), Ok(Cluster::Compressed(_)))))
}

/// The pages that a file can have, whose inode was vetted.
pub(crate) fn most_pages(inode: &RawInode, flexible: bool, ino: Ino) -> u64 {
    let addrs = inode.slots(flexible).fanout();
    let header = zone_range(inode, flexible).map(|zone| delta::zone_header(&inode.as_bytes()[zone], ino));
    match header {
        Some(Ok(header)) if header.flags & delta::ZONE_COMPACT != 0 => delta::compact_start(addrs),
        _ => medfs_format::path::max_pages(addrs),
    }
}

/// The inode of a regular file whose content is in blocks.
fn read_source(image: &mut Image<'_>, rules: &Rules, ino: Ino) -> io::Result<Option<Box<RawInode>>> {
    if !image.g.is_nid(ino) {
        return Ok(None);
    }
    let entry = image.nat(ino)?;
    if entry.ino.get() != ino || !image.g.in_main(entry.block_addr.get()) {
        return Ok(None);
    }
    let block = image.cache.get(entry.block_addr.get())?;
    let mut inode: Box<RawInode> = Box::new(block.view::<RawInode>().clone());
    let usable = rules.vet(&mut inode, ino).is_ok()
        && FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Regular)
        && !inode.inline().contains(Inline::DATA);
    Ok(usable.then_some(inode))
}

/// The pages that the blocks of a cluster hold; the error says why they do not hold as many as it has.
pub(crate) fn content_of(
    all: &mut Compressors,
    compression: Compression,
    blocks: &[u8],
    pages: usize,
) -> Result<Vec<u8>, String> {
    let (header, content) = cluster_content(blocks).map_err(|clen| {
        format!("its header announces {clen} bytes in {} blocks", blocks.len() / BLOCK_SIZE)
    })?;
    let computed = crc::f2fs(content);
    if compression.checksum && header.chksum.get() != computed {
        return Err(format!("its checksum is {:#010x}, computed {computed:#010x}", header.chksum));
    }
    let compressor: &mut dyn Compressor = match compression.algorithm {
        Algorithm::Lzo | Algorithm::LzoRle => &mut all.lzo,
        Algorithm::Lz4 => &mut all.lz4,
        Algorithm::Zstd => &mut all.zstd,
    };
    let mut out = vec![0; pages * BLOCK_SIZE];
    match compressor.expand(content, &mut out) {
        Ok(len) if len == out.len() => Ok(out),
        Ok(len) => Err(format!("it holds {len} bytes, expected {}", out.len())),
        Err(_) => Err(format!("its {} content cannot be expanded", compression.algorithm.name())),
    }
}
