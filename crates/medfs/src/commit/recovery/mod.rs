//! Recovery: brings back at mount what became durable, from a list of sources: the last checkpoint, and what
//! was fsynced after it, by the chain of nodes and by the journal in NVRAM, merged in their order
//! ([`RecoverySource`]).
//!
//! The nodes that fsyncs wrote form a chain in the warm node log (see [`chain`]). Recovery replays it into memory in
//! the order in which it was written: attributes, extended attributes, inline content and addresses ([`file`]), and the
//! names of new files ([`dentry`]).
//!
//! Invariants:
//! - Nothing is written here, and no block is allocated: what recovery changes waits in memory for the checkpoint that
//!   the caller makes next. Until that checkpoint is durable every block of the chain, every block it names, and every
//!   block that its seals were compared with is pinned, so that a crash at any point finds the same chain again.
//! - The layout of an inode's address slots (`i_inline_xattr_size`) is taken from the fsynced block before any of its
//!   addresses is touched: it says where they are.
//!
//! Locks: none are needed, as the volume is not shared yet; contracts of the functions used are kept.
//! Kernel counterpart: `recovery.c`.

mod chain;
mod dentry;
mod errors;
mod fault;
mod file;
mod gap;
mod page;
mod records;
mod xattr;

pub(crate) use records::Records;

use crate::error::{Error, Result};
use crate::map::inode::Inode;
use crate::tree::Tree;
use crate::tree::name_journal::recorded_name;
use chain::{Chain, ChainFile, Entry};
use errors::bad_node;
pub(crate) use errors::newer_is_lost;
use medfs_format::node::{RawInode, footer};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::summary::Log;
use medfs_format::{BLOCK_SIZE, Block, FormatError, Ino, NULL_ADDR, Structure, is_block};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One block in so many of the cache is given to blocks of the chain while it is replayed.
const KEPT_PART: usize = 4;

/// What a roll-forward brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Recovered {
    /// Inodes that were fsynced.
    pub(crate) inodes: u64,
    /// Data blocks that changed their owner.
    data_blocks: u64,
    /// Node blocks replayed.
    nodes: u64,
    /// Nodes that the device lost or changed after it had ended a flush of them, as far as seals tell.
    pub(crate) unkept: u64,
}

/// A replay in progress.
struct Replay<'a> {
    tree: &'a Tree,
    chain: &'a Chain,
    inodes: BTreeMap<Ino, Arc<Inode>>,
    /// Names that the checkpoint's inodes of renamed files say, which these files have lost.
    old_names: BTreeMap<Ino, (Ino, Vec<u8>)>,
    /// Inodes whose last name was replaced.
    nameless: BTreeMap<Ino, Arc<Inode>>,
    /// Directories whose names were replaced, each with the one above it and its name.
    replaced_dirs: Vec<(Arc<Inode>, Arc<Inode>, Vec<u8>)>,
    /// Those of which the chain held an inode block, so that their size is known.
    sized: BTreeSet<Ino>,
    /// What the last inode block of a file in the log counts as its own.
    counted: BTreeMap<Ino, u64>,
    /// Pages that records in NVRAM hold, as far as was replayed.
    pages: page::Journaled,
    records: &'a Records,
    recovered: Recovered,
    /// See [`Replay::lacks_nodes`], once it was asked.
    lacks_nodes: Option<bool>,
}

/// Where a mount finds what became durable. Mounting walks a list of sources, the oldest state first: each
/// brings back what is newer.
pub(crate) trait RecoverySource {
    /// Whether what it has is newer than the last checkpoint.
    fn is_newer(&self) -> bool;

    /// Whether it has anything that the sources before it do not have. Changes nothing.
    fn has_more(&mut self, tree: &Tree) -> Result<bool>;

    /// Brings back in memory what it has. After an error the volume must not be written to.
    fn replay(&mut self, tree: &Tree) -> Result<Recovered>;

    /// Leaves it behind, as the user asked for: what is written later must not lead into it.
    fn leave(&mut self, tree: &Tree) -> Result<()>;
}

/// The sources of a volume, in the order of their age.
pub(crate) fn sources(records: Records) -> [Box<dyn RecoverySource>; 2] {
    [Box::new(LastCheckpoint), Box::new(Fsynced { chain: None, records })]
}

/// The last checkpoint: what it lists of hidden files, and files without a name, which are freed unless the
/// volume is read-only.
struct LastCheckpoint;

impl RecoverySource for LastCheckpoint {
    fn is_newer(&self) -> bool {
        false
    }

    fn has_more(&mut self, _: &Tree) -> Result<bool> {
        Ok(true)
    }

    fn replay(&mut self, tree: &Tree) -> Result<Recovered> {
        if tree.read_only {
            tree.hidden().load_to_hide();
        } else {
            tree.hidden().load()?;
            tree.free_orphans_at_mount()?;
        }
        Ok(Recovered::default())
    }

    /// There is nothing older to go back to.
    fn leave(&mut self, tree: &Tree) -> Result<()> {
        self.replay(tree).map(drop)
    }
}

/// Notes of each file of the fsync log, as far as that can be read, that its last fsync is not shown.
pub(crate) fn note_all_logged(tree: &Tree) {
    let files = gap::logged_files(tree);
    files.iter().for_each(|(&ino, name)| tree.damage.note_last_fsync(ino, name));
}

/// The chain of fsynced nodes, which is read when it is first asked for, once, and the records in NVRAM that
/// lie between them.
struct Fsynced {
    chain: Option<Chain>,
    records: Records,
}

impl Fsynced {
    fn chain(&mut self, tree: &Tree) -> Result<&Chain> {
        let chain = match self.chain.take() {
            Some(chain) => chain,
            None => Fsynced::read(tree, &self.records)?,
        };
        Ok(self.chain.insert(chain))
    }

    /// A gap costs a read-only mount what is behind it, which is noted. Otherwise it is an error. Records in
    /// NVRAM would rest on what is behind it too.
    fn read(tree: &Tree, records: &Records) -> Result<Chain> {
        let mut chain = Chain::read(tree, tree.opts.cache_bytes / BLOCK_SIZE / KEPT_PART, records)?;
        if chain.is_succeeded && !tree.read_only {
            return Err(newer_is_lost(tree));
        }
        if chain.is_succeeded {
            let version = tree.version_in_footers();
            let why = format!("the volume is shown as of checkpoint {version}, and a newer one was complete");
            tree.damage.note_older_checkpoint(&why);
        }
        let gap = chain.gap.take();
        let must_be_whole = !tree.read_only || !records.is_empty();
        if must_be_whole && let Some(gap) = gap {
            return Err(gap.error);
        }
        for gap in gap.into_iter().chain(chain.lost.take()) {
            tree.damage.note_unrecovered(None, &gap.error);
            gap.files.iter().for_each(|(&ino, name)| tree.damage.note_last_fsync(ino, name));
        }
        Ok(chain)
    }
}

impl RecoverySource for Fsynced {
    fn is_newer(&self) -> bool {
        true
    }

    fn has_more(&mut self, tree: &Tree) -> Result<bool> {
        let chain = self.chain(tree)?;
        if !chain.removals.is_empty() || chain.unkept > 0 {
            return Ok(true);
        }
        for (&ino, file) in &chain.files {
            if file.first_dentry.is_some() || file.is_fsynced() || is_block(tree.nat.get(&tree.io, ino)?.addr)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn replay(&mut self, tree: &Tree) -> Result<Recovered> {
        let records = std::mem::take(&mut self.records);
        let read = self.chain.take().map_or_else(|| Fsynced::read(tree, &records), Ok);
        let replayed = read.and_then(|chain| replay(tree, self.chain.insert(chain), &records));
        replayed.map_err(|e| match e {
            Error::Corrupt(FormatError::Corrupt { structure, id, field, value }) => {
                let way_out = match structure {
                    Structure::NvramRecord => {
                        "'medfs fsck --repair --nvram' gives up that alone, and 'nvram=discard' all fsyncs since the last checkpoint"
                    }
                    _ if !self.records.is_empty() => "'medfs fsck --repair --nvram' keeps what can be read of it",
                    _ => "'medfs fsck --repair' keeps what can be read of it",
                };
                let value = format!("{value}; found while replaying what was fsynced: {way_out}");
                Error::Corrupt(FormatError::Corrupt { structure, id, field, value })
            }
            other => other,
        })
    }

    /// As after a replay there is now something for a checkpoint to write, so that nodes written later do not
    /// lead into the old chain.
    fn leave(&mut self, tree: &Tree) -> Result<()> {
        if tree.read_only { Ok(()) } else { pin(tree, self.chain(tree)?) }
    }
}

fn replay(tree: &Tree, chain: &Chain, records: &Records) -> Result<Recovered> {
    if !tree.read_only {
        pin(tree, chain)?;
    }
    if let Some(damage) = records.damage() {
        tree.damage.note_given_up(None, damage);
    }
    if let Some(later) = records.later() {
        tree.damage.note_given_up(None, later);
    }
    let mut replay = Replay {
        tree,
        chain,
        inodes: BTreeMap::new(),
        old_names: BTreeMap::new(),
        nameless: BTreeMap::new(),
        replaced_dirs: Vec::new(),
        sized: BTreeSet::new(),
        counted: BTreeMap::new(),
        pages: page::Journaled::default(),
        records,
        recovered: Recovered { unkept: chain.unkept, ..Recovered::default() },
        lacks_nodes: None,
    };
    let op = tree.ops.shared();
    replay.load_inodes()?;
    replay.nodes()?;
    replay.settle()?;
    drop(op);
    replay.finish()?;
    if !tree.read_only {
        keep_compared(tree, chain)?;
    }
    let r = replay.recovered;
    if r.unkept > 0 {
        tracing::warn!(
            nodes = r.unkept,
            "the device lost or changed fsynced data after it had reported it as stored: it does not keep what a flush promises, or is damaged"
        );
    }
    if r.nodes > 0 {
        tracing::info!(inodes = r.inodes, nodes = r.nodes, data_blocks = r.data_blocks, "rolled forward");
    }
    Ok(r)
}

/// Keeps the chain from being overwritten, and so makes a checkpoint necessary even where nothing is recovered.
fn pin(tree: &Tree, chain: &Chain) -> Result<()> {
    let mut segs = tree.segs.lock();
    Ok(chain.blocks().try_for_each(|addr| segs.pin(&tree.io, addr))?)
}

/// Keeps blocks that seals were compared with from being handed out, so that the seals hold after a second crash too.
/// The chain names no file for some of them. Where it does, the page is clean: there are no records in NVRAM beside
/// seals. This comes after the replay, as a segment with a pinned block no longer counts as free.
fn keep_compared(tree: &Tree, chain: &Chain) -> Result<()> {
    let mut segs = tree.segs.lock();
    Ok(chain.compared.iter().try_for_each(|&addr| segs.pin(&tree.io, addr))?)
}

impl Replay<'_> {
    /// Finds the inodes to recover, making those that the checkpoint does not know.
    fn load_inodes(&mut self) -> Result<()> {
        let tree = self.tree;
        for &(addr, nid, ino) in &self.chain.contradictory {
            let what = format!("node {nid} of inode {ino} in an inode's place");
            self.pass_by::<()>(ino, Err(bad_node(addr, "nid", what)))?;
        }
        for (&ino, file) in &self.chain.files {
            let loaded = self.load_inode(ino, file);
            let Some(inode) = self.pass_by(ino, loaded)?.flatten() else { continue };
            // Held, so that a name that is replaced meanwhile does not free the inode under our hands.
            tree.inodes.hold(ino, 1);
            self.inodes.insert(ino, inode);
        }
        Ok(())
    }

    /// The inode of a file of the chain; `None` where no fsync of it had completed.
    fn load_inode(&mut self, ino: Ino, file: &ChainFile) -> Result<Option<Arc<Inode>>> {
        let tree = self.tree;
        let entry = tree.nat.get(&tree.io, ino)?;
        if entry.addr != NULL_ADDR {
            if entry.ino != ino {
                let what = format!("{}, but the chain has an inode of this number", entry.ino);
                return Err(FormatError::corrupt(Structure::NatEntry, ino, "ino", what).into());
            }
            let inode = tree.inode(ino)?;
            if file.first_dentry.is_some() && tree.is_delta_volume() {
                self.old_names.insert(ino, recorded_name(&inode));
            }
            return Ok(Some(inode));
        }
        let Some(at) = file.first_dentry else {
            if file.is_fsynced() && (file.is_in_records() || self.lacks_nodes()) {
                let what = "none, but the file was fsynced since the checkpoint, and not as a new one";
                return Err(FormatError::corrupt(Structure::NatEntry, ino, "block_addr", what).into());
            }
            tracing::debug!(ino, "nodes of an unknown file are dropped");
            return Ok(None);
        };
        Ok(Some(self.make_inode(ino, &*self.read_link(at)?)?))
    }

    /// Whether the checkpoint counts other nodes than the NAT has, of which a part is lost then.
    fn lacks_nodes(&mut self) -> bool {
        let tree = self.tree;
        *self.lacks_nodes.get_or_insert_with(|| {
            let nodes = tree.nat.used(&tree.io, tree.geo.root_ino).flatten().count();
            nodes as u64 != u64::from(tree.space.counts().valid_nodes)
        })
    }

    /// The node block of a link; of an entry, the node block that it stands for.
    fn read_link(&self, at: usize) -> Result<Arc<Block>> {
        let tree = self.tree;
        let link = &self.chain.links[at];
        let mut block = match link.addr {
            NULL_ADDR => Arc::new(Block::ZERO),
            addr => self.chain.block(&tree.io, addr)?,
        };
        if let Some(entry) = &link.entry {
            self.rebuild(entry, &mut block, || format!("inode {}", link.ino))?;
        }
        Ok(block)
    }

    /// Makes of a base what an entry stands for.
    fn rebuild(&self, entry: &Entry, block: &mut Arc<Block>, of: impl Fn() -> String) -> Result<()> {
        let node = entry.node.map(|node| self.chain.block(&self.tree.io, node)).transpose()?;
        let delta = match &node {
            Some(node) => &node.0[entry.delta.clone()],
            None => self.records.bytes(entry.delta.clone()),
        };
        let made = &mut Arc::make_mut(block).0;
        let rebuilt =
            self.tree.deltas.with_codecs(|codecs| codecs.rebuild(entry.codec, delta, entry.checksum, made));
        Ok(rebuilt.map_err(|e| {
            let (structure, at) = match entry.node {
                Some(node) => (Structure::SharedNode, u64::from(node)),
                None => (Structure::NvramRecord, entry.delta.start as u64),
            };
            FormatError::corrupt(structure, at, "delta", format!("{e} for {}", of()))
        })?)
    }

    /// Replays every node up to the last fsync of its file, and the removal of names in between.
    fn nodes(&mut self) -> Result<()> {
        let mut removals = self.chain.removals.iter().peekable();
        let mut pages = self.chain.pages.iter().peekable();
        for (at, link) in self.chain.links.iter().enumerate() {
            while let Some(removal) = removals.next_if(|r| r.after <= at) {
                self.remove_names(removal)?;
            }
            while let Some(change) = pages.next_if(|change| change.after <= at) {
                self.take_page(change);
            }
            let Some(inode) = self.inodes.get(&link.ino).cloned() else { continue };
            let file = &self.chain.files[&link.ino];
            if file.last_fsync.is_none_or(|last| at > last) {
                continue;
            }
            if link.is_of_log() && link.fsync {
                // It came with all pages that had changed until then.
                self.pages.forget(link.ino);
            }
            let replayed = self.link(&inode, file, at, link.layout);
            self.pass_by(link.ino, replayed)?;
        }
        pages.for_each(|change| self.take_page(change));
        removals.try_for_each(|removal| self.remove_names(removal))
    }

    fn link(&mut self, inode: &Arc<Inode>, file: &ChainFile, at: usize, layout: Option<usize>) -> Result<()> {
        if let Some(of_inode) = layout {
            self.adopt_layout(inode, &*self.read_link(of_inode)?)?;
        }
        let block = self.read_link(at)?;
        self.node(inode, file, at, &block)?;
        self.recovered.nodes += 1;
        Ok(())
    }

    fn node(&mut self, inode: &Arc<Inode>, file: &ChainFile, at: usize, block: &Block) -> Result<()> {
        let offset = footer(block).node_offset();
        match node_kind(offset) {
            NodeKind::Inode => {
                self.adopt_layout(inode, block)?;
                self.attributes(inode, block);
                self.counted.insert(inode.ino, block.view::<RawInode>().i_blocks.get());
                let mut named = Ok(());
                if file.first_dentry == Some(at) {
                    named = self.leave_old_name(inode);
                }
                if file.last_dentry == Some(at) {
                    named = named.and_then(|()| self.dentry(inode, block));
                }
                self.pass_by(inode.ino, named)?;
                self.inline_xattr(inode, block)?;
                if self.inline_data(inode, block)? {
                    return Ok(());
                }
                self.drop_missing_subtrees(inode, block)?;
                self.addresses(inode, 0, block)?;
                self.noted_addresses(inode, block)
            }
            NodeKind::Direct => {
                self.leave_inline(inode);
                self.addresses(inode, offset, block)
            }
            NodeKind::Xattr => self.xattr_node(inode, block),
            // Rebuilt from the direct nodes.
            NodeKind::Indirect => Ok(()),
        }
    }

    /// Frees what lies beyond the end of the recovered files, and directories whose names files have now.
    fn settle(&mut self) -> Result<()> {
        for (&ino, inode) in &self.inodes {
            let blocks = |inode: &Inode| inode.raw(|r| r.i_blocks.get());
            let before = blocks(inode);
            let trimmed = self.trim(inode);
            let freed = before.saturating_sub(blocks(inode));
            self.pass_by(ino, trimmed.and_then(|()| self.tree.clusters().recount_saved(inode)))?;
            self.note_if_short(inode, freed);
            self.tree.deltas().compact().forget_compact_map(inode);
            self.tree.refs.drop_pages(ino, 0..u64::MAX);
            self.tree.load_dependents(inode);
            self.recovered.inodes += 1;
            self.tree.inodes.release(ino, 1);
        }
        self.settle_replaced_dirs()
    }

    /// Frees an inode that has no name any more. Where nothing is written it stays, and is known to be gone.
    fn let_go(&self, inode: &Arc<Inode>) {
        match self.tree.read_only && inode.nlink() == 0 {
            true => self.tree.damage.note_removed(inode.ino),
            false => self.tree.free_if_unused(inode),
        }
    }

    /// Frees inodes whose last name was replaced; those that their successors are made from are kept.
    fn finish(&mut self) -> Result<()> {
        // What the chain's files were made from before counts no more: its blocks stay until the next
        // checkpoint anyway.
        self.tree.refs.committed();
        for (&ino, inode) in &self.nameless {
            if self.tree.refs.others_need_any(ino) {
                self.tree.hidden().retain(inode)?;
            }
            self.let_go(inode);
        }
        self.inodes.values().for_each(|inode| self.let_go(inode));
        self.journaled_pages()
    }
}

/// The log under which recovered data is recorded where its segment was free in the checkpoint.
const RECOVERED_LOG: Log = Log::WarmData;
