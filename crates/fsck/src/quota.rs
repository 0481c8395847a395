//! Judging the content of quota files: their tree, and what it says that users, groups and projects use.
//!
//! A repair writes a wrong file anew, in its place, with the limits that can be read. Where that has no room
//! it marks the volume for the recount that `fsck.f2fs` makes, and the kernel leaves such files alone until
//! then. On a volume that is marked already nothing is judged.
//!
//! Memory: an entry for each user, group and project that has files, one for each block of a tree, and a file
//! that is written.

use crate::finding::{Code, Findings, counted};
use crate::image::{CANNOT_BE_READ, Image};
use foldhash::{HashMap, HashSet};
use medfs_device::Cause;
use medfs_format::checkpoint::CpFlags;
use medfs_format::node::RawInode;
use medfs_format::quota::{
    LEAF_RECORDS, QUOTA_BLOCK, RawQuotaHeader, RawQuotaRecord, TREE_DEPTH, TREE_ROOT, build, record,
    records_of_leaf, references,
};
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, BLOCKS_PER_SEG, Block, Ino};
use std::collections::BTreeMap;
use std::io;
use zerocopy::FromBytes;

/// How a file that can be read is wrong.
enum Differs {
    /// In what ids use.
    Counts(String),
    /// Its tree does not lead to records that its leaves have.
    Tree(String),
    /// Ids that have files are in none of its leaves, and with them their limits: it lost a part.
    Ids(String),
}

/// What an id uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Used {
    inodes: u64,
    bytes: u64,
}

/// What users, groups and projects use, by the walk.
pub(crate) struct Usage {
    by_id: [HashMap<u32, Used>; 3],
    /// Quota files, which do not count.
    files: [Ino; 3],
}

impl Usage {
    pub(crate) fn of(image: &Image<'_>) -> Usage {
        Usage { by_id: Default::default(), files: image.raw_sb().qf_ino.map(|ino| ino.get()) }
    }

    /// Counts an inode with so many blocks, its own among them.
    pub(crate) fn count(&mut self, ino: Ino, inode: &RawInode, blocks: u64) {
        if self.files.contains(&ino) {
            return;
        }
        let project = inode.extra().filter(|_| inode.extra_fits(8)).map_or(0, |extra| extra.i_projid.get());
        let ids = [inode.i_uid.get(), inode.i_gid.get(), project];
        for (used, id) in self.by_id.iter_mut().zip(ids) {
            let used = used.entry(id).or_default();
            used.inodes += 1;
            used.bytes += (blocks - 1) * BLOCK_SIZE as u64;
        }
    }
}

/// Which files say what is used; none where nothing is to be judged.
fn files(image: &Image<'_>) -> [Ino; 3] {
    let counts = image.features.contains(Feature::QUOTA)
        && !image.checkpoint().flags().contains(CpFlags::QUOTA_NEED_FSCK);
    if counts { image.raw_sb().qf_ino.map(|ino| ino.get()) } else { [0; 3] }
}

/// Judges the quota files, and with `fix` writes the wrong ones; `true` where one could not be written. `damaged`
/// counts those that cannot be read whole: limits in them may be lost.
pub(crate) fn judge(
    image: &mut Image<'_>,
    usage: &Usage,
    findings: &mut Findings,
    damaged: &mut u64,
    fix: bool,
) -> io::Result<bool> {
    // What is lost of other things is not in use any more.
    let sound = findings.list.is_empty();
    let mut recount = false;
    let files = files(image);
    for (kind, ino) in files.into_iter().enumerate().filter(|(_, ino)| *ino != 0) {
        if let Some(other) = files[..kind].iter().position(|&other| other == ino) {
            // It can say what one of them says: the kernel makes both anew.
            let text =
                format!("quota file of type {kind} is inode {ino}, which is also that of type {other}");
            findings.add(Code::QuotaContent, text);
            recount |= fix;
            continue;
        }
        let counted = &usage.by_id[kind];
        let Some(mut file) = QuotaFile::open(image, ino)? else { continue };
        let (fault, shown) = match file.differs(kind, counted)? {
            Ok(None) => continue,
            Ok(Some(Differs::Counts(other))) => (other, sound),
            Ok(Some(Differs::Tree(unled))) => (unled, true),
            Ok(Some(Differs::Ids(missing))) => {
                *damaged += 1;
                (missing, true)
            }
            Err(fault) => {
                *damaged += 1;
                (fault, true)
            }
        };
        if shown {
            findings.add(Code::QuotaContent, format!("quota file of type {kind}, inode {ino}: {fault}"));
        }
        recount |= fix && !file.write(kind, counted)?;
    }
    Ok(recount)
}

/// A quota file that is read.
struct QuotaFile<'i, 'd> {
    image: &'i mut Image<'d>,
    inode: Box<RawInode>,
    blocks: u32,
    /// Blocks of the tree that were come to.
    seen: HashSet<u32>,
    /// Ids that the tree has.
    ids: u64,
}

/// A block of a quota file, or what is wrong.
type Read<T> = io::Result<Result<T, String>>;

impl<'i, 'd> QuotaFile<'i, 'd> {
    /// `None` where its inode cannot be read, which is another finding.
    fn open(image: &'i mut Image<'d>, ino: Ino) -> io::Result<Option<QuotaFile<'i, 'd>>> {
        let addr = if image.g.is_nid(ino) { image.nat(ino)?.block_addr.get() } else { 0 };
        if !image.g.in_main(addr) {
            return Ok(None);
        }
        let inode: Box<RawInode> = Box::new(image.cache.get(addr)?.view::<RawInode>().clone());
        let readable = inode.possible_slots(image.flexible()).is_some();
        Ok(readable.then(|| QuotaFile { image, inode, blocks: 1, seen: HashSet::default(), ids: 0 }))
    }

    /// What it says otherwise than the walk, in the outer result where it can be read.
    fn differs(&mut self, kind: usize, counted: &HashMap<u32, Used>) -> Read<Option<Differs>> {
        let first = match self.block(0)? {
            Ok(first) => first,
            Err(fault) => return Ok(Err(fault)),
        };
        let (header, _) = RawQuotaHeader::ref_from_prefix(&first).expect("a block is larger");
        if let Some(fault) = header.fault(kind, self.inode.i_size.get()) {
            return Ok(Err(fault));
        }
        self.blocks = header.blocks.get();
        let mut tally = Tally { counted, matched: 0, differs: None };
        if let Err(fault) = self.tree(TREE_ROOT, 0, 0, &mut tally)? {
            return Ok(Err(fault));
        }
        let unled = counted.len() as u64 - tally.matched;
        if unled == 0 {
            return Ok(Ok(tally.differs.map(Differs::Counts)));
        }
        let known: HashSet<u32> = self.leaves()?.iter().map(|record| record.id.get()).collect();
        let missing = counted.keys().filter(|id| !known.contains(id)).count();
        Ok(Ok(Some(match missing {
            0 => Differs::Tree(format!("its tree does not lead to the records of {unled} ids with files")),
            missing => Differs::Ids(format!("{missing} ids with files are not in it")),
        })))
    }

    /// The records of all leaves, whether the tree leads to them or not.
    fn leaves(&mut self) -> io::Result<Vec<RawQuotaRecord>> {
        let per_page = (BLOCK_SIZE / QUOTA_BLOCK) as u64;
        // It has no holes.
        let room = u64::from(self.image.g.segment_count_main) * u64::from(BLOCKS_PER_SEG);
        let most = self.inode.i_blocks.get().min(room) * per_page;
        let blocks = u64::from(self.blocks).min(most) as u32;
        let mut records = Vec::new();
        for block in TREE_ROOT + 1..blocks {
            if let Ok(bytes) = self.block(block)? {
                records.extend(records_of_leaf(&bytes));
            }
        }
        Ok(records)
    }

    /// A block of the tree on a level, with those below it; `id` is what leads to it.
    fn tree(&mut self, block: u32, level: u32, id: u32, tally: &mut Tally<'_>) -> Read<()> {
        if !self.seen.insert(block) {
            return Ok(Err(format!("block {block} is named twice in the tree")));
        }
        let bytes = match self.block(block)? {
            Ok(bytes) => bytes,
            Err(fault) => return Ok(Err(fault)),
        };
        for (i, next) in references(&bytes).iter().enumerate().filter(|(_, next)| next.get() != 0) {
            let (next, id) = (next.get(), id << 8 | i as u32);
            if next <= TREE_ROOT || next >= self.blocks {
                return Ok(Err(format!("block {block} names block {next} of {}", self.blocks)));
            }
            let below = match level + 1 < TREE_DEPTH {
                true => self.tree(next, level + 1, id, tally)?,
                false => self.leaf(next, id, tally)?,
            };
            if below.is_err() {
                return Ok(below);
            }
        }
        Ok(Ok(()))
    }

    /// The record of an id.
    fn leaf(&mut self, block: u32, id: u32, tally: &mut Tally<'_>) -> Read<()> {
        self.ids += 1;
        if self.ids > u64::from(self.blocks) * LEAF_RECORDS as u64 {
            return Ok(Err("more ids than it has room for".into()));
        }
        let bytes = match self.block(block)? {
            Ok(bytes) => bytes,
            Err(fault) => return Ok(Err(fault)),
        };
        let Some(record) = record(&bytes, id) else {
            return Ok(Err(format!("block {block} has no record of id {id}")));
        };
        tally.take(id, Used { inodes: record.inodes.get(), bytes: record.space.get() });
        Ok(Ok(()))
    }

    /// Writes the file anew; `false` where it has too little room.
    fn write(&mut self, kind: usize, counted: &HashMap<u32, Used>) -> io::Result<bool> {
        let size = self.inode.i_size.get();
        let header = self.block(0)?.map_or_else(
            |_| RawQuotaHeader::default(),
            |block| RawQuotaHeader::read_from_prefix(&block).expect("a block is larger").0,
        );
        self.blocks = u32::try_from(size / QUOTA_BLOCK as u64).unwrap_or(u32::MAX);
        (self.seen, self.ids) = (HashSet::default(), 0);
        let mut records = BTreeMap::new();
        self.gather(TREE_ROOT, 0, 0, &mut records)?;
        for record in self.leaves()?.into_iter().filter(sets_limits) {
            let without_use = RawQuotaRecord { inodes: 0.into(), space: 0.into(), ..record };
            records.entry(record.id.get()).or_insert(without_use);
        }
        for (&id, used) in counted {
            let record = records.entry(id).or_insert(RawQuotaRecord { id: id.into(), ..Default::default() });
            (record.inodes, record.space) = (used.inodes.into(), used.bytes.into());
        }
        let records: Vec<RawQuotaRecord> = records.into_values().collect();
        let blocks = build(kind, &header, &records);
        if (blocks.len() * QUOTA_BLOCK) as u64 > size {
            return Ok(false);
        }
        let mut pages = Vec::new();
        for (page, blocks) in (0..).zip(blocks.chunks(BLOCK_SIZE / QUOTA_BLOCK)) {
            let addr = self.image.address(&self.inode, page)?;
            if !self.image.g.in_main(addr) {
                return Ok(false);
            }
            let mut block = Block::boxed();
            block.0[..blocks.len() * QUOTA_BLOCK].copy_from_slice(blocks.as_flattened());
            pages.push((addr, block));
        }
        for (addr, block) in pages {
            self.image.cache.write(addr, &block, Cause::Data)?;
        }
        Ok(true)
    }

    /// Takes up the records that set a limit, as far as the tree leads to them.
    fn gather(
        &mut self,
        block: u32,
        level: u32,
        id: u32,
        records: &mut BTreeMap<u32, RawQuotaRecord>,
    ) -> io::Result<()> {
        if level < TREE_DEPTH && !self.seen.insert(block) {
            return Ok(());
        }
        let Ok(bytes) = self.block(block)? else { return Ok(()) };
        if level == TREE_DEPTH {
            if let Some(&found) = record(&bytes, id).filter(|record| sets_limits(record)) {
                records.insert(id, RawQuotaRecord { inodes: 0.into(), space: 0.into(), ..found });
            }
            return Ok(());
        }
        for (i, next) in references(&bytes).iter().enumerate() {
            let next = next.get();
            self.ids += u64::from(level + 1 == TREE_DEPTH && next != 0);
            let possible = next > TREE_ROOT && next < self.blocks;
            if possible && self.ids <= u64::from(self.blocks) * LEAF_RECORDS as u64 {
                self.gather(next, level + 1, id << 8 | i as u32, records)?;
            }
        }
        Ok(())
    }

    fn block(&mut self, block: u32) -> Read<[u8; QUOTA_BLOCK]> {
        let per_page = (BLOCK_SIZE / QUOTA_BLOCK) as u32;
        let addr = self.image.address(&self.inode, u64::from(block / per_page))?;
        if !self.image.g.in_main(addr) {
            return Ok(Err(format!("block {block} is a hole")));
        }
        let page = self.image.cache.get(addr)?;
        let start = (block % per_page) as usize * QUOTA_BLOCK;
        let bytes = page.0[start..start + QUOTA_BLOCK].try_into().expect("sized");
        if self.image.cache.medium.tell_unreadable(addr) {
            return Ok(Err(format!("block {block}, in block {addr} of the volume, {CANNOT_BE_READ}")));
        }
        Ok(Ok(bytes))
    }
}

fn sets_limits(r: &RawQuotaRecord) -> bool {
    [r.inode_hard, r.inode_soft, r.block_hard, r.block_soft].iter().any(|limit| limit.get() != 0)
}

/// Compares what a file says with what was counted.
struct Tally<'u> {
    counted: &'u HashMap<u32, Used>,
    matched: u64,
    /// The first difference.
    differs: Option<String>,
}

impl Tally<'_> {
    fn take(&mut self, id: u32, says: Used) {
        let is = self.counted.get(&id).copied();
        self.matched += u64::from(is.is_some());
        let is = is.unwrap_or_default();
        if is != says && self.differs.is_none() {
            self.differs = Some(format!(
                "id {id} uses {} and {}, but counted {} and {}",
                counted(says.inodes, "inode"),
                counted(says.bytes, "byte"),
                is.inodes,
                is.bytes
            ));
        }
    }
}
