//! Roll-forward: brings back at mount what was fsynced after the last checkpoint.
//!
//! The nodes that fsyncs wrote form a chain in the warm node log (see [`chain`]). Recovery replays it into memory in
//! the order in which it was written: attributes, extended attributes, inline content and addresses ([`file`]), and the
//! names of new files ([`dentry`]).
//!
//! Invariants:
//! - Nothing is written here, and no block is allocated: what recovery changes waits in memory for the checkpoint that
//!   the caller makes next. Until that checkpoint is durable every block of the chain, and every block it names, is
//!   pinned, so that a crash at any point finds the same chain again.
//! - The layout of an inode's address slots (`i_inline_xattr_size`) is taken from the fsynced block before any of its
//!   addresses is touched: it says where they are.
//!
//! Locks: none are needed, as the volume is not shared yet; contracts of the functions used are kept.
//! Kernel counterpart: `recovery.c`.

mod chain;
mod dentry;
mod file;
mod xattr;

use crate::commit::name_journal::recorded_name;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::map::inode::Inode;
use chain::{Chain, ChainFile};
use medfs_format::node::footer;
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::summary::Log;
use medfs_format::{Block, BlockAddr, FormatError, Ino, NULL_ADDR, Structure, is_block, shared};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a roll-forward brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Recovered {
    /// Inodes that were fsynced.
    pub(crate) inodes: u64,
    /// Data blocks that changed their owner.
    pub(crate) data_blocks: u64,
    /// Node blocks replayed.
    pub(crate) nodes: u64,
}

/// A replay in progress.
struct Replay<'a> {
    fs: &'a Fs,
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
    recovered: Recovered,
}

impl Fs {
    /// Whether there is anything to roll forward. Changes nothing.
    pub(crate) fn roll_forward_needed(&self) -> Result<bool> {
        let chain = Chain::read(self)?;
        if !chain.removals.is_empty() {
            return Ok(true);
        }
        for (&ino, file) in &chain.files {
            if file.first_dentry.is_some() || is_block(self.nat.get(&self.io, ino)?.addr) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Replays the chain of fsynced nodes into memory. Called once at mount, after the orphans of the checkpoint were
    /// freed; the caller makes a checkpoint afterwards. After an error the volume must not be written to.
    pub(crate) fn roll_forward(&self) -> Result<Recovered> {
        self.replay().map_err(|e| match e {
            Error::Corrupt(FormatError::Corrupt { structure, id, field, value }) => {
                let value = format!(
                    "{value}; found while replaying what was fsynced: `medfs fsck --repair` keeps what can be read of it"
                );
                Error::Corrupt(FormatError::Corrupt { structure, id, field, value })
            }
            other => other,
        })
    }

    fn replay(&self) -> Result<Recovered> {
        let chain = Chain::read(self)?;
        if !self.read_only {
            self.pin_chain(&chain)?;
        }
        let mut replay = Replay {
            fs: self,
            chain: &chain,
            inodes: BTreeMap::new(),
            old_names: BTreeMap::new(),
            nameless: BTreeMap::new(),
            replaced_dirs: Vec::new(),
            sized: BTreeSet::new(),
            recovered: Recovered::default(),
        };
        replay.load_inodes()?;
        replay.nodes()?;
        replay.finish()?;
        let r = replay.recovered;
        if r.nodes > 0 {
            tracing::info!(inodes = r.inodes, nodes = r.nodes, data_blocks = r.data_blocks, "rolled forward");
        }
        Ok(r)
    }

    /// Leaves what was fsynced behind. As after a roll-forward there is now something for a checkpoint to write, so that
    /// nodes written later do not lead into the old chain.
    pub(crate) fn abandon_chain(&self) -> Result<()> {
        self.pin_chain(&Chain::read(self)?)
    }

    /// Keeps the chain from being overwritten, and so makes a checkpoint necessary even where nothing is recovered.
    fn pin_chain(&self, chain: &Chain) -> Result<()> {
        let mut segs = self.segs.lock();
        Ok(chain.blocks().try_for_each(|addr| segs.pin(&self.io, addr))?)
    }
}

impl Replay<'_> {
    /// Finds the inodes to recover, making those that the checkpoint does not know.
    fn load_inodes(&mut self) -> Result<()> {
        let fs = self.fs;
        for (&ino, file) in &self.chain.files {
            let loaded = self.load_inode(ino, file);
            let Some(inode) = self.pass_by(ino, loaded)?.flatten() else { continue };
            // Held, so that a name that is replaced meanwhile does not free the inode under our hands.
            fs.inodes.hold(ino, 1);
            self.inodes.insert(ino, inode);
        }
        Ok(())
    }

    /// The inode of a file of the chain; `None` where no fsync of it had completed.
    fn load_inode(&mut self, ino: Ino, file: &ChainFile) -> Result<Option<Arc<Inode>>> {
        let fs = self.fs;
        let entry = fs.nat.get(&fs.io, ino)?;
        if entry.addr != NULL_ADDR {
            if entry.ino != ino {
                let what = format!("{}, but the chain has an inode of this number", entry.ino);
                return Err(FormatError::corrupt(Structure::NatEntry, ino, "ino", what).into());
            }
            let inode = fs.inode(ino)?;
            if file.first_dentry.is_some() && fs.is_delta_volume() {
                self.old_names.insert(ino, recorded_name(&inode));
            }
            return Ok(Some(inode));
        }
        let Some(at) = file.first_dentry else {
            tracing::debug!(ino, "nodes of an unknown file are dropped");
            return Ok(None);
        };
        Ok(Some(self.make_inode(ino, &*self.read_link(at)?)?))
    }

    /// On a read-only mount damage costs the file that it is of, which is noted: `None`. Otherwise it is an error.
    fn pass_by<T>(&self, ino: Ino, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.fs.read_only && self.fs.is_damage(&error) => {
                self.fs.damage.note_unrecovered(Some(ino), &error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn read_link(&self, at: usize) -> Result<Box<Block>> {
        let link = &self.chain.links[at];
        let mut block = self.fs.io.read(link.addr)?;
        if let Some((node, nth)) = link.shared {
            self.apply_entry(&mut block, node, nth)?;
        }
        Ok(block)
    }

    /// Makes the inode block of a base that an entry of a shared record node stands for.
    fn apply_entry(&self, block: &mut Block, node: BlockAddr, nth: usize) -> Result<()> {
        let fs = self.fs;
        let shared_node = fs.io.read(node)?;
        let entries = shared::entries(&shared_node, node)?;
        let bad = |field, value: String| FormatError::corrupt(Structure::SharedNode, node, field, value);
        let Some(entry) = entries.get(nth) else { return Err(bad("used", format!("no entry {nth}")).into()) };
        let rebuilt = fs
            .deltas
            .with_codecs(|codecs| codecs.rebuild(entry.codec, entry.delta, entry.checksum, &mut block.0));
        Ok(rebuilt.map_err(|e| bad("delta", format!("{e} for inode {}", entry.ino)))?)
    }

    /// Replays every node up to the last fsync of its file, and the removal of names in between.
    fn nodes(&mut self) -> Result<()> {
        let mut removals = self.chain.removals.iter().peekable();
        for (at, link) in self.chain.links.iter().enumerate() {
            while let Some(removal) = removals.next_if(|r| r.after <= at) {
                self.remove_names(removal.addr)?;
            }
            let Some(inode) = self.inodes.get(&link.ino).cloned() else { continue };
            let file = &self.chain.files[&link.ino];
            if at > file.last_fsync {
                continue;
            }
            let replayed = self.link(&inode, file, at, link.layout);
            self.pass_by(link.ino, replayed)?;
        }
        removals.try_for_each(|removal| self.remove_names(removal.addr))
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

    /// Frees what lies beyond the end of the recovered files, and inodes whose last name was replaced; those that their
    /// successors are made from are kept.
    fn finish(&mut self) -> Result<()> {
        for (&ino, inode) in &self.inodes {
            let trimmed = self.trim(inode).and_then(|()| self.fs.recount_saved(inode));
            self.pass_by(ino, trimmed)?;
            self.fs.forget_compact_map(inode);
            self.fs.dependents.drop_pages(ino, 0..u64::MAX);
            self.fs.load_dependents(inode);
            self.recovered.inodes += 1;
            self.fs.inodes.release(ino, 1);
        }
        self.settle_replaced_dirs()?;
        // What the chain's files were made from before counts no more: its blocks stay until the next checkpoint anyway.
        self.fs.dependents.committed();
        for (&ino, inode) in &self.nameless {
            if self.fs.dependents.others_need(ino, 0..u64::MAX) {
                self.fs.keep_base(inode)?;
            }
            self.fs.free_if_unused(inode);
        }
        self.inodes.values().for_each(|inode| self.fs.free_if_unused(inode));
        Ok(())
    }
}

/// The log under which recovered data is recorded where its segment was free in the checkpoint.
const RECOVERED_LOG: Log = Log::WarmData;

/// Reports a node of the chain.
fn bad_node(addr: BlockAddr, field: &'static str, value: impl ToString) -> Error {
    FormatError::corrupt(Structure::NodeFooter, addr, field, value).into()
}
