//! The chain of nodes written after the last checkpoint.
//!
//! It starts at the block where the checkpoint's warm node log goes on; each node's footer names the next. A
//! node belongs to the chain while its footer carries the version (and checksum) of the checkpoint. A block
//! that cannot be read ends the chain. Where there are nodes of it behind, this is a [`Gap`]: a mount that may
//! write fails, and a read-only one shows what comes before it and names the files of those nodes.
//!
//! An inode block whose own checksum is wrong was torn by the crash: its fsync had not returned, nor had any
//! that wrote behind it, as each ends with a flush of all before. So the chain ends there too, unless one flipped bit
//! is all that is wrong, which is turned back ([`medfs_format::log_gap::Sealing`]). The same holds
//! for a shared record node; each of its entries is a link of its own, an inode block with the fsync mark
//! that is made of its base. A node of removed names is not a link: it counts at its place between two. A flipped bit
//! in a node's address of the next one is turned back too, where nodes behind it tell ([`gap`](super::gap)).
//!
//! A sealed node tells what it was written with ([`medfs_format::seal`]). Where that was not stored, the
//! node's fsync had not returned, nor had any that wrote behind it: the chain ends before it. Seals also tell
//! what a device lost after it had ended a flush: that is counted and said, as no recovery can bring it back.
//!
//! A record in NVRAM says how many blocks of the chain were placed before it; what it says of nodes are links there.
//!
//! Each block is read once: it is kept for the replay, as many as memory is given for; those beyond are read again.
//! Locks: none, as the volume is not shared yet.

use super::errors::bad_node;
use super::gap::{Gap, Met, nodes_behind, refsynced_behind};
use super::records::{PlacedRecord, Records};
use crate::error::{Error, Result};
use medfs_format::limits::NAME_LEN;
use medfs_format::log_gap::{End, FEW, SEGMENT};
use medfs_format::node::{RawInode, footer};
use medfs_format::nvram::{Base, Home, PartOf, RawPart, Tag};
use medfs_format::removed::RemovedName;
use medfs_format::seal::SealedLog;
use medfs_format::shared::{ENTRY_SIZE, RawSharedHeader};
use medfs_format::summary::Log;
use medfs_format::{Block, BlockAddr, FormatError, Ino, NULL_ADDR, Nid, Structure, removed, shared};
use medfs_store::{Io, Store};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// What makes a node block of its base: an entry of a shared record node, or of a record in NVRAM.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The shared record node; `None`: the journal in NVRAM.
    pub(super) node: Option<BlockAddr>,
    pub(super) codec: u8,
    pub(super) checksum: u32,
    /// Where its delta is there.
    pub(super) delta: Range<usize>,
}

/// One node of the chain.
#[derive(Debug, Clone)]
pub(super) struct Link {
    /// Where it is; of an entry: its base, `NULL_ADDR` for zeros.
    pub(super) addr: BlockAddr,
    /// Of an entry: what makes its block of the base.
    pub(super) entry: Option<Entry>,
    pub(super) ino: Ino,
    is_inode: bool,
    pub(super) fsync: bool,
    /// For the first of the nodes that an fsync of a file wrote: the inode block among them, whose layout counts.
    pub(super) layout: Option<usize>,
}

impl Link {
    /// Whether the roll-forward log has it, and not the journal in NVRAM.
    pub(super) fn is_of_log(&self) -> bool {
        self.entry.as_ref().is_none_or(|entry| entry.node.is_some())
    }
}

/// What the chain holds of one file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChainFile {
    /// Last node with the fsync mark; `None` where records in NVRAM hold pages of it alone.
    pub(super) last_fsync: Option<usize>,
    /// First and last fsynced inode block with the dentry mark.
    pub(super) first_dentry: Option<usize>,
    pub(super) last_dentry: Option<usize>,
    /// Records in NVRAM hold pages or nodes of it.
    is_in_records: bool,
}

impl ChainFile {
    /// Whether an fsync of it, or one that took it along, had completed.
    pub(super) fn is_fsynced(&self) -> bool {
        self.last_fsync.is_some() || self.is_in_records
    }

    /// Whether records in NVRAM hold something of it.
    pub(super) fn is_in_records(&self) -> bool {
        self.is_in_records
    }

    /// A link that is its inode says that its name is new.
    fn is_named_at(&mut self, at: usize) {
        self.first_dentry.get_or_insert(at);
        self.last_dentry = Some(at);
    }
}

/// Names that files lost together, as a node of removed names or a record in NVRAM lists them.
#[derive(Debug, Clone)]
pub(super) struct Removal {
    pub(super) names: Vec<LostName>,
    /// What lists them, and where that is.
    pub(super) listed: (Structure, u64),
    /// How many links lie before it.
    pub(super) after: usize,
}

/// A name that a file lost in a directory.
#[derive(Debug, Clone)]
pub(super) struct LostName {
    pub(super) ino: Ino,
    pub(super) dir: Ino,
    pub(super) name: Vec<u8>,
}

impl From<&RemovedName<'_>> for LostName {
    fn from(lost: &RemovedName<'_>) -> LostName {
        LostName { ino: lost.ino, dir: lost.dir, name: lost.name.to_vec() }
    }
}

/// What a record in NVRAM says of a page.
#[derive(Debug, Clone)]
pub(super) struct PageChange {
    /// How many links lie before it.
    pub(super) after: usize,
    pub(super) ino: Ino,
    pub(super) index: u32,
    pub(super) what: PageContent,
}

/// What a page's delta starts from.
#[derive(Debug, Clone)]
pub(super) enum Start {
    /// A block; zeros where it is `NULL_ADDR`.
    Block(BlockAddr),
    /// Parts of blocks, and of pages that older records have. All of them fit.
    Parts(Vec<RawPart>),
}

/// What a page is by a record in NVRAM.
#[derive(Debug, Clone)]
pub(super) enum PageContent {
    /// What a delta makes.
    Delta(Start, Entry),
    /// What it is without older records, it and so many behind it.
    Revoked(u16),
}

/// Blocks that were read.
#[derive(Debug, Default)]
struct Blocks {
    kept: HashMap<BlockAddr, Arc<Block>>,
    most: usize,
}

#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) links: Vec<Link>,
    /// The files that were fsynced. Positions are indices into `links`.
    pub(super) files: BTreeMap<Ino, ChainFile>,
    /// Names that files lost, in the order in which that became durable.
    pub(super) removals: Vec<Removal>,
    /// What records in NVRAM say of pages, in their order.
    pub(super) pages: Vec<PageChange>,
    /// Nodes that the device lost or changed after it had ended a flush of them, as far as seals tell; without seals,
    /// those behind one that it did.
    pub(super) unkept: u64,
    /// Fsynced inodes, by their place, with numbers of another node: where they are, and both numbers.
    pub(super) contradictory: Vec<(BlockAddr, Nid, Ino)>,
    /// Where it ends too early.
    pub(super) gap: Option<Gap>,
    /// It ends at a node of a newer checkpoint, which was complete then, and is lost.
    pub(super) is_succeeded: bool,
    /// Where it ends because the device lost or changed nodes, as far as others tell.
    pub(super) lost: Option<Gap>,
    /// Blocks that seals of the chain were compared with; many of them are named by none of its nodes.
    pub(super) compared: BTreeSet<BlockAddr>,
    pub(super) addrs: HashSet<BlockAddr>,
    blocks: RefCell<Blocks>,
}

/// `Corrupt` where a record is of no file.
fn check_file(store: &Store, record: &PlacedRecord<'_>, ino: Ino) -> Result<()> {
    if store.geo.is_nid(ino) && ino != store.geo.root_ino {
        return Ok(());
    }
    Err(bad_record(record, "ino", ino.to_string()))
}

/// What a delta of a record starts from; `Corrupt` where that cannot be.
fn start_of(store: &Store, record: &PlacedRecord<'_>, ino: Ino, base: Base<'_>) -> Result<Start> {
    let is_possible = |addr| store.geo.in_main(addr);
    let bad = |addr| bad_record(record, "base", format!("{addr} for inode {ino}"));
    match base {
        Base::Block(addr) if addr == NULL_ADDR || is_possible(addr) => Ok(Start::Block(addr)),
        Base::Block(addr) => Err(bad(addr)),
        Base::Parts(parts) => {
            let is_right = |part: &&RawPart| match part.of() {
                PartOf::Block(addr) => is_possible(addr) && part.ranges().is_some(),
                PartOf::Page(_) => part.ranges().is_some(),
            };
            let wrong = parts.iter().find(|part| !is_right(part));
            wrong.map_or_else(|| Ok(Start::Parts(parts.to_vec())), |part| Err(bad(part.at.get())))
        }
    }
}

fn bad_record(record: &PlacedRecord<'_>, field: &'static str, value: String) -> Error {
    FormatError::corrupt(Structure::NvramRecord, record.at, field, value).into()
}

impl Chain {
    /// Follows the chain; `most` blocks of it stay in memory. It ends at a block that does not belong to it,
    /// before a sealed node that was not stored with all that it depends on, and, against damage, where it
    /// meets itself.
    pub(super) fn read(store: &Store, most: usize, records: &Records) -> Result<Chain> {
        let mut chain =
            Chain { blocks: RefCell::new(Blocks { most, ..Blocks::default() }), ..Chain::default() };
        let mut sealed = store.sb.has_seals().then(|| SealedLog::new(store.sb.uuid, store.geo.node_ino));
        let at = chain.follow(store, None, records, sealed.as_mut())?;
        let stored = |addr| store.geo.in_main(addr).then(|| store.io.read(addr).ok()).flatten();
        let behind = match &sealed {
            Some(_) => nodes_behind(store, at, &chain.addrs),
            None if chain.gap.is_none() => refsynced_behind(store, at, &chain.addrs),
            None => Vec::new(),
        };
        let told = match &sealed {
            Some(sealed) => sealed.unkept(behind.iter().copied().filter_map(stored)),
            None => behind.len(),
        };
        // No crash lets a chain meet itself.
        let unkept = told.max(usize::from(at.is_taken && chain.contains(at.next))) as u64;
        let compared = sealed.iter().flat_map(SealedLog::compared).filter(|&addr| store.geo.in_main(addr));
        let compared = compared.collect();
        if let Some(end) = sealed.and_then(|sealed| sealed.end(stored)) {
            tracing::info!(
                addr = end,
                "the last fsync before power was lost had not ended: its nodes are left out"
            );
            chain = chain.up_to(store, end, records)?;
        }
        if unkept > 0 {
            // As if it were one of the chain, so that there is a checkpoint which leaves behind what is left of it.
            chain.addrs.extend(Some(at.next).filter(|&next| store.geo.in_main(next)));
            chain.lost = Some(Gap::of_lost(store, at, unkept, &behind));
        }
        (chain.unkept, chain.compared) = (unkept, compared);
        chain.find_layouts();
        Ok(chain)
    }

    /// The same chain ending before a node. The blocks behind it stay its own, so that nothing is written
    /// there before the next checkpoint.
    fn up_to(self, store: &Store, end: BlockAddr, records: &Records) -> Result<Chain> {
        let mut chain = Chain { blocks: self.blocks, ..Chain::default() };
        chain.follow(store, Some(end), records, None)?;
        (chain.addrs, chain.gap, chain.is_succeeded) = (self.addrs, self.gap, self.is_succeeded);
        Ok(chain)
    }

    /// Takes up the nodes of the chain in their order, up to `end`, and records in NVRAM between them; `sealed` takes
    /// up the nodes too. Returns where it ended.
    fn follow(
        &mut self,
        store: &Store,
        end: Option<BlockAddr>,
        records: &Records,
        mut sealed: Option<&mut SealedLog>,
    ) -> Result<End> {
        let version = store.cp.lock().chain();
        let start = store.segs.lock().next_addr(Log::WarmNode);
        let mut at = End { last: None, next: start, is_taken: false, is_right: false, most: FEW };
        let mut records = records.of(version)?.into_iter().peekable();
        for before in 0.. {
            while let Some(record) = records.next_if(|record| record.stamp.chain <= before) {
                self.add_record(store, &record)?;
            }
            if Some(at.next) == end {
                break;
            }
            let met = self.meet(store, at.next);
            let (addr, block) = match met {
                Met::Node(block) => (at.next, block),
                Met::Unreadable => break,
                Met::Again | Met::Other => {
                    at = self.end_at(store, at, matches!(met, Met::Again))?;
                    let Some(next) = self.turn_next(store, at, sealed.as_deref_mut())? else { break };
                    let Met::Node(block) = self.meet(store, next) else { break };
                    (next, block)
                }
            };
            self.addrs.insert(addr);
            self.add(store, addr, &block)?;
            if let Some(sealed) = sealed.as_deref_mut() {
                sealed.add(addr, &block);
            }
            let next = footer(&block).next_blkaddr.get();
            at = End { last: Some(addr), next, is_taken: false, is_right: false, most: SEGMENT };
        }
        // Nodes that they came after belonged to fsyncs that had not returned.
        records.try_for_each(|record| self.add_record(store, &record))?;
        Ok(at)
    }

    /// A block of the chain, or one that an entry of it is made of.
    pub(super) fn block(&self, io: &Io, addr: BlockAddr) -> Result<Arc<Block>> {
        let mut blocks = self.blocks.borrow_mut();
        if let Some(block) = blocks.kept.get(&addr) {
            return Ok(block.clone());
        }
        let block: Arc<Block> = io.read(addr)?.into();
        if blocks.kept.len() < blocks.most {
            blocks.kept.insert(addr, block.clone());
        }
        Ok(block)
    }

    /// Keeps a block of the chain as it was before a bit of it flipped.
    pub(super) fn keep(&self, addr: BlockAddr, mended: Arc<Block>) {
        self.blocks.borrow_mut().kept.insert(addr, mended);
    }

    /// Takes up a block of the chain.
    fn add(&mut self, store: &Store, addr: BlockAddr, block: &Block) -> Result<()> {
        let (f, geo) = (footer(block), &store.geo);
        if store.is_delta_volume() && f.nid.get() == geo.node_ino {
            if removed::is_removed_names(block, geo.node_ino) {
                let names = removed::removed_names(block, addr)?.iter().map(LostName::from).collect();
                let listed = (Structure::RemovedNames, addr.into());
                self.removals.push(Removal { names, listed, after: self.links.len() });
                return Ok(());
            }
            return self.add_shared(store, addr, block);
        }
        let is_inode = f.nid.get() == f.ino.get() && f.node_offset() == 0;
        let (ino, fsync, at) = (f.ino.get(), f.is_of_fsync(), self.links.len());
        if fsync && f.node_offset() == 0 && !is_inode && geo.is_nid(ino) {
            self.contradictory.push((addr, f.nid.get(), ino));
            return Ok(());
        }
        self.links.push(Link { addr, entry: None, ino, is_inode, fsync, layout: None });
        if fsync {
            if !geo.is_nid(ino) || ino == geo.root_ino || !geo.is_nid(f.nid.get()) {
                return Err(bad_node(addr, "ino", format!("node {} of inode {}", f.nid, f.ino)));
            }
            let is_named = is_inode && (f.is_dentry() || self.has_lost_its_mark(store, ino, block));
            let file = self.files.entry(ino).or_default();
            file.last_fsync = Some(at);
            if is_named {
                file.is_named_at(at);
            }
        }
        Ok(())
    }

    /// Whether an inode that was fsynced without the dentry mark had it: the first one of a file that the checkpoint
    /// does not know has.
    fn has_lost_its_mark(&self, store: &Store, ino: Ino, block: &Block) -> bool {
        let inode: &RawInode = block.view();
        let is_first = self.files.get(&ino).is_none_or(|file| file.first_dentry.is_none());
        is_first
            && inode.i_links.get() > 0
            && store.geo.is_nid(inode.i_pino.get())
            && (1..=NAME_LEN).contains(&(inode.i_namelen.get() as usize))
            && store.nat.peek(&store.io, ino).is_ok_and(|entry| entry.addr == NULL_ADDR)
    }

    /// Takes up the entries of a shared record node.
    fn add_shared(&mut self, store: &Store, addr: BlockAddr, block: &Block) -> Result<()> {
        let mut start = size_of::<RawSharedHeader>();
        for entry in shared::entries(block, addr)? {
            let (ino, base) = (entry.ino, entry.base);
            if !store.geo.is_nid(ino) || ino == store.geo.root_ino || !store.geo.in_main(base) {
                let value = format!("{base} for inode {ino}");
                return Err(FormatError::corrupt(Structure::SharedNode, addr, "base", value).into());
            }
            self.files.entry(ino).or_default().last_fsync = Some(self.links.len());
            let delta = start + ENTRY_SIZE..start + ENTRY_SIZE + entry.delta.len();
            start = delta.end;
            let entry = Some(Entry { node: Some(addr), codec: entry.codec, checksum: entry.checksum, delta });
            self.links.push(Link { addr: base, entry, ino, is_inode: true, fsync: true, layout: None });
        }
        Ok(())
    }

    /// Takes up what a record in NVRAM says: nodes as links, the last of each file with the fsync mark, and pages.
    fn add_record(&mut self, store: &Store, record: &PlacedRecord<'_>) -> Result<()> {
        let mut last_of: HashMap<Ino, usize> = HashMap::new();
        let mut pages = Vec::new();
        for tag in record.tags() {
            match tag {
                Tag::Removed(name) => self.add_removed(record, LostName::from(&name)),
                Tag::Revoke { ino, first, count } => {
                    check_file(store, record, ino)?;
                    pages.push((ino, first, PageContent::Revoked(count)));
                }
                Tag::Delta { ino, home, body } => {
                    check_file(store, record, ino)?;
                    let start = start_of(store, record, ino, body.base)?;
                    let delta = record.range_of(body.delta);
                    let entry = Entry { node: None, codec: body.codec, checksum: body.checksum, delta };
                    match (home, start) {
                        (Home::Page(index), start) => {
                            pages.push((ino, index, PageContent::Delta(start, entry)));
                        }
                        (home, Start::Block(addr)) => {
                            let at = self.links.len();
                            last_of.insert(ino, at);
                            if home == Home::Named {
                                self.files.entry(ino).or_default().is_named_at(at);
                            }
                            let is_inode = matches!(home, Home::Named) || home == Home::Node(ino);
                            let entry = Some(entry);
                            // Of several inodes of a file each tells how the nodes before it are laid out.
                            self.links.push(Link {
                                addr,
                                entry,
                                ino,
                                is_inode,
                                fsync: is_inode,
                                layout: None,
                            });
                        }
                        (_, Start::Parts(_)) => {
                            return Err(bad_record(record, "flags", format!("parts of a node of {ino}")));
                        }
                    }
                }
            }
        }
        for (ino, at) in last_of {
            self.links[at].fsync = true;
            let file = self.files.entry(ino).or_default();
            (file.last_fsync, file.is_in_records) = (Some(at), true);
        }
        let after = self.links.len();
        for (ino, index, what) in pages {
            self.files.entry(ino).or_default().is_in_records = true;
            self.pages.push(PageChange { after, ino, index, what });
        }
        Ok(())
    }

    /// Takes up a name that a record says a file lost, behind the nodes that it has before.
    fn add_removed(&mut self, record: &PlacedRecord<'_>, name: LostName) {
        let (listed, after) = ((Structure::NvramRecord, record.at), self.links.len());
        match self.removals.last_mut().filter(|last| (last.listed, last.after) == (listed, after)) {
            Some(last) => last.names.push(name),
            None => self.removals.push(Removal { names: vec![name], listed, after }),
        }
    }

    /// Blocks of the chain.
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockAddr> + '_ {
        self.addrs.iter().copied()
    }

    pub(super) fn contains(&self, addr: BlockAddr) -> bool {
        self.addrs.contains(&addr)
    }

    /// Finds, for the first of the nodes of each fsync, the inode block among them.
    fn find_layouts(&mut self) {
        let mut inode_of_run: HashMap<Ino, usize> = HashMap::new();
        let mut ahead: Vec<Option<usize>> = vec![None; self.links.len()];
        for (at, link) in self.links.iter().enumerate().rev() {
            if link.fsync {
                inode_of_run.remove(&link.ino);
            }
            if link.is_inode {
                inode_of_run.entry(link.ino).or_insert(at);
            }
            ahead[at] = inode_of_run.get(&link.ino).copied();
        }
        let mut running: HashSet<Ino> = HashSet::new();
        for (link, ahead) in self.links.iter_mut().zip(ahead) {
            if running.insert(link.ino) {
                link.layout = ahead;
            }
            if link.fsync {
                running.remove(&link.ino);
            }
        }
    }
}
