//! The roll-forward log: nodes that fsync wrote after the checkpoint, in the warm node log's chain.
//!
//! Counted, and not changed but for what the engine would refuse to replay, each mended in one write:
//!
//! - Entries of shared record nodes that stand for no inode block, and names of no file, are taken out: the
//!   file then is as its fsync before left it.
//! - An inode with one flipped bit, as its checksum tells, and a node of no inode are mended ([`crate::log_node`]).
//! - A block that two nodes name belongs to one of them, where the other's address has a flipped bit
//!   ([`crate::log_addresses`]).
//! - A node that cannot be read is overwritten: the log ends there. One at the end is taken for the one that
//!   was being written when power was lost, and a warning; with others behind it, it is an error.
//! - A flipped bit in a node's address of the next one is turned back, where nodes behind it tell.
//!
//! The log ends before a sealed node that was not stored with all that it depends on, as for the engine. A
//! repair that changes nodes would break the seals of those behind them, so it takes the volume's word back
//! that there are any ([`unseal`]).
//!
//! The walk is bounded: no block is visited twice.

use crate::finding::{Code, Findings};
use crate::image::{CANNOT_BE_READ, Image};
use crate::log_node::is_torn;
use crate::slots::has_no_addresses;
use crate::{log_addresses, log_gap, log_node};
use foldhash::{HashMap, HashSet, HashSetExt};
use medfs_codec::Codecs;
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::log_gap::{End, Files};
use medfs_format::node::{RawDirectNode, RawInode, footer, footer_mut};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::removed::{RemovedName, is_removed_names, removed_names, removed_names_node};
use medfs_format::seal::SealedLog;
use medfs_format::shared::{self, SharedEntry, entries};
use medfs_format::summary::Log;
use medfs_format::{Block, BlockAddr, Ino, NULL_ADDR, Nid, SegNo};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Files that a finding names.
const MOST_SHOWN: usize = 8;

/// What an engine would replay when it opens the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct FsyncLog {
    /// Inodes with fsynced changes.
    pub inodes: u64,
    /// Node blocks in the chain.
    pub nodes: u64,
    /// Those of them that several files share.
    pub shared: u64,
    /// Names that files lost.
    pub removed: u64,
}

/// The log, with what a repair must leave alone.
#[derive(Default)]
pub(crate) struct LogWalk {
    pub(crate) summary: FsyncLog,
    /// The sealed node that ends it, where its fsync had not returned.
    end: Option<BlockAddr>,
    /// Blocks of its nodes.
    pub(crate) blocks: HashSet<BlockAddr>,
    /// Segments that hold its nodes or data.
    pub(crate) segments: HashSet<SegNo>,
    /// Node ids it uses.
    pub(crate) nids: HashSet<Nid>,
    /// Blocks of its shared record nodes.
    pub(crate) shared: Vec<BlockAddr>,
    /// Blocks of its nodes of removed names.
    pub(crate) removed: Vec<BlockAddr>,
    /// The last inode block of each file in it.
    pub(crate) latest: HashMap<Ino, BlockAddr>,
    /// Files with nodes that the device may have changed after it had stored them.
    pub(crate) unkept: BTreeSet<Ino>,
    /// Files of nodes that lie behind the end of it, where it lacks some: what was fsynced by these is lost.
    pub(crate) behind: Files,
    /// The directories in which it has names, each with the inode blocks that say so.
    pub(crate) homes: BTreeMap<Ino, Vec<BlockAddr>>,
}

impl LogWalk {
    /// Takes up what an inode block that was fsynced says of its place.
    fn take_inode(&mut self, addr: BlockAddr, block: &Block) {
        let f = footer(block);
        if !f.is_of_fsync() || f.nid != f.ino {
            return;
        }
        self.latest.insert(f.ino.get(), addr);
        if f.is_dentry() {
            self.homes.entry(block.view::<RawInode>().i_pino.get()).or_default().push(addr);
        }
    }
}

/// Follows the chain from the warm node log's next block. The caller has [unsealed](unseal) it where it is to
/// be mended.
pub(crate) fn walk(image: &mut Image<'_>, findings: &mut Findings, fix: bool) -> io::Result<LogWalk> {
    let sealed = look_at_seals(image)?;
    sealed.report(findings);
    let end = sealed.end;
    let mut log = LogWalk { end, unkept: sealed.doubted, ..LogWalk::default() };
    let version = image.chain_version();
    let deltas = image.raw_sb().is_delta_volume();
    let (mut inodes, mut nodes, mut last) = (HashSet::<Ino>::new(), Vec::new(), None);
    let warm = &image.cursegs[Log::WarmNode as usize];
    let mut addr = image.g.seg_start(warm.segno) + warm.blkoff;
    while Some(addr) != end {
        let is_new = image.g.in_main(addr) && !log.blocks.contains(&addr);
        let (mut block, bit) = if is_new { log_node::read(image, addr)? } else { (Block::boxed(), None) };
        if is_new && image.cache.medium.tell_unreadable(addr) {
            end_at_unreadable(image, addr, findings, fix)?;
            break;
        }
        if !is_new || !version.belongs(footer(&block).cp_ver.get()) || is_torn(image, &block) {
            let at = log_gap::end_at(image, last, addr, &log.blocks)?;
            let Some(next) = goes_on(image, at, &log.blocks, findings, fix)? else {
                break; // no fsync that wrote it ended, and as little came behind it
            };
            addr = next;
            continue;
        }
        let is_mended = log_node::judge(image, addr, &mut block, bit, findings)?;
        if fix && is_mended {
            let tag = WriteTag::new(Cause::Node, Temperature::Warm);
            image.cache.medium.write(addr, &[&block], tag)?;
        }
        let f = footer(&block);
        log.summary.nodes += 1;
        log.blocks.insert(addr);
        log.segments.insert(image.g.segno(addr));
        if deltas && f.nid.get() == image.g.node_ino {
            take_of_chain(image, addr, &block, &mut log, &mut inodes, findings, fix)?;
        } else {
            log.nids.insert(f.nid.get());
            if f.is_of_fsync() {
                inodes.insert(f.ino.get());
            }
            log.take_inode(addr, &block);
            nodes.push(addr);
            keep_data(image, &block, &mut log);
        }
        last = Some(addr);
        addr = f.next_blkaddr.get();
    }
    log_addresses::judge(image, &nodes, findings, fix)?;
    log.summary.inodes = inodes.len() as u64;
    if findings.log_lacks {
        let end = log_gap::end_at(image, last, addr, &log.blocks)?;
        log.behind = log_gap::files_behind(image, end, &log.blocks)?;
    }
    Ok(log)
}

/// Takes up a node of removed names, or one that files share, and mends it.
fn take_of_chain(
    image: &mut Image<'_>,
    addr: BlockAddr,
    block: &Block,
    log: &mut LogWalk,
    inodes: &mut HashSet<Ino>,
    findings: &mut Findings,
    fix: bool,
) -> io::Result<()> {
    let content = if is_removed_names(block, image.g.node_ino) {
        judge_names(image, addr, block, log, findings).map(|kept| removed_names_node(&kept))
    } else {
        log.summary.shared += 1;
        log.shared.push(addr);
        let kept = judge_entries(image, addr, block, log, inodes, findings)?;
        kept.map(|kept| shared::shared_node(&kept))
    };
    match content.filter(|_| fix) {
        Some(content) => mend(image, addr, block, content),
        None => Ok(()),
    }
}

/// What the seals of the log say.
#[derive(Debug, Default)]
struct Sealed {
    /// The node that ends the log, as not all that it was written with was stored: its fsync had not returned.
    end: Option<BlockAddr>,
    /// Nodes that the device lost or changed after it had ended a flush of them.
    unkept: usize,
    /// The files whose nodes may be such.
    doubted: BTreeSet<Ino>,
}

impl Sealed {
    fn report(&self, findings: &mut Findings) {
        if self.unkept > 0 {
            let what = "the device lost or changed nodes of the fsync log that it had reported as stored";
            let lost = "what was fsynced by them is lost or damaged, and what lies behind the end of the log";
            let shown: Vec<String> = self.doubted.iter().take(MOST_SHOWN).map(Ino::to_string).collect();
            let more = if self.doubted.len() > MOST_SHOWN { " and others" } else { "" };
            let files = match shown.len() {
                0 => String::new(),
                1 => format!(", of inode {}", shown[0]),
                _ => format!(", of inodes {}{more}", shown.join(", ")),
            };
            findings.add(Code::LogUnkept, format!("{what}, {} by their seals{files}: {lost}", self.unkept));
        }
    }
}

fn look_at_seals(image: &mut Image<'_>) -> io::Result<Sealed> {
    if !image.raw_sb().has_seals() {
        return Ok(Sealed::default());
    }
    let mut log = SealedLog::new(image.raw_sb().uuid, image.g.node_ino);
    let mut last = None;
    let course = log_gap::course(image, &mut |addr, block| match last.replace(addr) {
        Some(before) if before == addr => log.renew_last(block),
        _ => log.add(addr, block),
    })?;
    let behind = log_gap::nodes_behind(image, course.end, &course.blocks)?;
    let medium = &image.cache.medium;
    let read = |addr| {
        let block = image.g.in_main(addr).then(|| medium.read(addr)).transpose()?;
        Ok(block.filter(|_| !medium.tell_unreadable(addr)))
    };
    let mut failed: Option<io::Error> = None;
    let mut stored = |addr| read(addr).unwrap_or_else(|error| failed.replace(error).and(None));
    let end = log.end(&mut stored);
    let unkept = log.unkept(behind.into_iter().filter_map(&mut stored));
    let owners = log.in_doubt().filter_map(&mut stored).map(|block| footer(&block).ino.get());
    let doubted = owners.filter(|&ino| image.g.is_nid(ino)).collect();
    failed.map_or(Ok(Sealed { end, unkept, doubted }), Err)
}

/// Before the nodes of a sealed log are mended: ends it where it ends by its seals. What it holds counts from
/// then on whatever seals say; returns whether the superblock has to say so.
pub(crate) fn unseal(image: &mut Image<'_>) -> io::Result<bool> {
    if !image.raw_sb().has_seals() {
        return Ok(false);
    }
    let mut found = Findings::new(1);
    let end = walk(image, &mut found, false)?.end;
    if found.list.is_empty() {
        return Ok(false);
    }
    if let Some(end) = end {
        let tag = WriteTag::new(Cause::Node, Temperature::Warm);
        image.cache.medium.write(end, &[&Block::ZERO], tag)?;
        image.cache.medium.flush()?;
    }
    Ok(true)
}

/// Lets the log end at a block that cannot be read.
fn end_at_unreadable(
    image: &mut Image<'_>,
    addr: BlockAddr,
    findings: &mut Findings,
    fix: bool,
) -> io::Result<()> {
    let (code, text) = if log_gap::goes_on_behind(image, addr)? {
        let lost = "what was fsynced by it and behind it is lost, and a repair ends the log there";
        (Code::LogNode, format!("node of the fsync log in block {addr} {CANNOT_BE_READ}: {lost}"))
    } else {
        let lost = "an fsync that was the last to write before power was lost may be lost";
        (Code::LogEnd, format!("block {addr}, where the fsync log ends, {CANNOT_BE_READ}: {lost}"))
    };
    findings.add(code, text);
    if fix {
        let tag = WriteTag::new(Cause::Node, Temperature::Warm);
        image.cache.medium.write(addr, &[&Block::ZERO], tag)?;
    }
    Ok(())
}

/// Where the log seems to end: the node at which it goes on, as a bit of the address in its last node flipped.
fn goes_on(
    image: &mut Image<'_>,
    end: End,
    met: &HashSet<BlockAddr>,
    findings: &mut Findings,
    fix: bool,
) -> io::Result<Option<BlockAddr>> {
    let next = log_gap::turned_next(image, end, met)?;
    let (Some(last), Some(next)) = (end.last, next) else {
        end_before_fsynced(image, end, met, findings, fix)?;
        return Ok(None);
    };
    let what = format!("node of the fsync log in block {last} names block {} as the next one", end.next);
    findings
        .add(Code::LogAddress, format!("{what}: with one bit flipped that is {next}, where the log goes on"));
    if fix {
        log_gap::lead_on(image, last, next)?;
    }
    Ok(Some(next))
}

/// Where a log ends that met itself, or a log without seals at a block, and nodes behind it tell that it went on: a
/// repair leaves them behind.
fn end_before_fsynced(
    image: &mut Image<'_>,
    mut end: End,
    met: &HashSet<BlockAddr>,
    findings: &mut Findings,
    fix: bool,
) -> io::Result<()> {
    let is_sealed = image.raw_sb().has_seals(); // which tell, but of a loop
    let mut behind = if is_sealed { Vec::new() } else { log_gap::refsynced_behind(image, end, met)? };
    let is_possible = !end.is_taken && image.g.in_main(end.next);
    let (addr, lost) = (end.next, "is lost, and a repair ends the log there");
    let text = match end.last {
        Some(last) if met.contains(&addr) => {
            let what = "which is of it already: the device changed that address";
            format!(
                "node of the fsync log in block {last} leads back to block {addr}, {what}; what was fsynced behind it {lost}"
            )
        }
        _ if behind.is_empty() => return Ok(()),
        Some(last) if !is_possible => {
            let what = "where no log goes on, but nodes of it lie behind: the device changed that address";
            format!(
                "node of the fsync log in block {last} leads to block {addr}, {what}; what was fsynced behind it {lost}"
            )
        }
        _ => {
            let what = "is no node of it, but what lies behind it was fsynced more than once: the device lost or changed the \
                        node after it had reported it as stored";
            format!(
                "block {addr}, where the fsync log ends, {what}; what was fsynced by it and behind it {lost}"
            )
        }
    };
    findings.add(Code::LogUnkept, text);
    if !fix {
        return Ok(());
    }
    if let Some(last) = end.last.filter(|_| met.contains(&addr)) {
        log_gap::lead_on(image, last, NULL_ADDR)?;
        end = log_gap::end_at(image, Some(last), NULL_ADDR, met)?;
    }
    let tag = WriteTag::new(Cause::Node, Temperature::Warm);
    let mut written = HashSet::new();
    loop {
        // What cannot be written is there still.
        behind.retain(|&addr| written.insert(addr));
        if behind.is_empty() {
            return Ok(());
        }
        behind.iter().try_for_each(|&addr| image.cache.medium.write(addr, &[&Block::ZERO], tag))?;
        behind = log_gap::refsynced_behind(image, end, met)?;
    }
}

/// Keeps what the inode blocks name that the entries of a shared record node stand for; those to keep, where
/// not all stand for one.
fn judge_entries<'b>(
    image: &mut Image<'_>,
    addr: BlockAddr,
    block: &'b Block,
    log: &mut LogWalk,
    inodes: &mut HashSet<Ino>,
    findings: &mut Findings,
) -> io::Result<Option<Vec<SharedEntry<'b>>>> {
    let found = match entries(block, addr) {
        Ok(found) => found,
        Err(e) => {
            let lost = "what the fsyncs of some files since the checkpoint made durable cannot be told";
            findings.add(Code::SharedNode, format!("{e}; {lost}"));
            return Ok(Some(Vec::new()));
        }
    };
    let (count, mut kept) = (found.len(), Vec::with_capacity(found.len()));
    let mut codecs = Codecs::default();
    for entry in found {
        inodes.insert(entry.ino);
        log.nids.insert(entry.ino);
        if image.g.in_main(entry.base) {
            log.segments.insert(image.g.segno(entry.base));
        }
        match inode_block(image, &mut codecs, &entry)? {
            Ok(inode) => {
                keep_data(image, &inode, log);
                kept.push(entry);
            }
            Err(fault) => {
                let what = format!("shared record node at block {addr}: entry of inode {}", entry.ino);
                findings.add(Code::SharedNode, format!("{what}: {fault}; an fsync of the file is lost"));
            }
        }
    }
    Ok((kept.len() < count).then_some(kept))
}

/// Counts the names that a node says are gone; those to keep, where not all can be meant.
fn judge_names<'b>(
    image: &Image<'_>,
    addr: BlockAddr,
    block: &'b Block,
    log: &mut LogWalk,
    findings: &mut Findings,
) -> Option<Vec<RemovedName<'b>>> {
    log.removed.push(addr);
    let names = match removed_names(block, addr) {
        Ok(names) => names,
        Err(e) => {
            findings
                .add(Code::SharedNode, format!("{e}; names that files lost since the checkpoint come back"));
            return Some(Vec::new());
        }
    };
    log.summary.removed += names.len() as u64;
    let meant =
        |n: &RemovedName<'_>| image.g.is_nid(n.dir) && image.g.is_nid(n.ino) && n.ino != image.g.root_ino;
    let (kept, wrong): (Vec<_>, Vec<_>) = names.into_iter().partition(meant);
    for name in &kept {
        log.homes.entry(name.dir).or_default();
    }
    for name in &wrong {
        let what = format!("a name of inode {} in directory {}", name.ino, name.dir);
        findings.add(
            Code::SharedNode,
            format!("node of removed names at block {addr}: {what}: there is no such file"),
        );
    }
    (!wrong.is_empty()).then_some(kept)
}

/// The inode block that an entry stands for, or why it stands for none.
pub(crate) fn inode_block(
    image: &Image<'_>,
    codecs: &mut Codecs,
    entry: &SharedEntry<'_>,
) -> io::Result<Result<Box<Block>, String>> {
    if !image.g.is_nid(entry.ino) || entry.ino == image.g.root_ino {
        return Ok(Err("there is no such file".into()));
    }
    if !image.g.in_main(entry.base) {
        return Ok(Err(format!("its base, block {}, is outside the main area", entry.base)));
    }
    let mut inode = image.cache.medium.read(entry.base)?;
    let owner = (footer(&inode).nid.get(), footer(&inode).ino.get());
    if owner != (entry.ino, entry.ino) {
        return Ok(Err(format!("its base, block {}, is node {} of inode {}", entry.base, owner.0, owner.1)));
    }
    let rebuilt = codecs.rebuild(entry.codec, entry.delta, entry.checksum, &mut inode.0);
    Ok(rebuilt.map(|()| inode).map_err(|e| e.to_string()))
}

/// Writes a node of the chain anew with other content.
fn mend(image: &Image<'_>, addr: BlockAddr, block: &Block, content: Block) -> io::Result<()> {
    let mut mended = Box::new(content);
    *footer_mut(&mut mended) = *footer(block);
    shared::seal(&mut mended);
    let tag = WriteTag::new(Cause::Node, Temperature::Warm);
    image.cache.medium.write(addr, &[&mended], tag)
}

fn keep_data(image: &Image<'_>, block: &Block, log: &mut LogWalk) {
    let addrs: &[_] = match node_kind(footer(block).node_offset()) {
        NodeKind::Inode if has_no_addresses(block.view()) => &[],
        NodeKind::Inode => &block.view::<RawInode>().i_addr,
        NodeKind::Direct => &block.view::<RawDirectNode>().addr,
        NodeKind::Indirect | NodeKind::Xattr => &[],
    };
    for addr in addrs {
        if image.g.in_main(addr.get()) {
            log.segments.insert(image.g.segno(addr.get()));
        }
    }
}
