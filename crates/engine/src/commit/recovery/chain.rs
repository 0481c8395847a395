//! The chain of nodes written after the last checkpoint.
//!
//! It starts at the block where the checkpoint's warm node log goes on; each node's footer names the next. A node belongs
//! to the chain while its footer carries the version (and checksum) of the checkpoint. A block that cannot be read ends the chain, unless
//! there are nodes of it behind.
//!
//! An inode block whose own checksum is wrong was torn by the crash: its fsync had not returned, nor had any that wrote
//! behind it, as each ends with a flush of all before. So the chain ends there too. The same holds for a shared record node;
//! each of its entries is a link of its own, an inode block with the fsync mark that is made of its base. A node of removed names is
//! not a link: it counts at its place between two.

use crate::error::Result;
use crate::fs::Fs;
use medfs_format::checkpoint::ChainVersion;
use medfs_format::node::{RawInode, footer};
use medfs_format::summary::Log;
use medfs_format::{BLOCKS_PER_SEG, Block, BlockAddr, FormatError, Ino, SegNo, Structure, removed, shared};
use std::collections::{BTreeMap, HashMap, HashSet};

/// One node of the chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Where it is; of an entry of a shared record node: its base.
    pub(super) addr: BlockAddr,
    /// The shared record node, and which of its entries, counted from zero.
    pub(super) shared: Option<(BlockAddr, usize)>,
    pub(super) ino: Ino,
    is_inode: bool,
    fsync: bool,
    /// For the first of the nodes that an fsync of a file wrote: the inode block among them, whose layout counts.
    pub(super) layout: Option<usize>,
}

/// What the chain holds of one file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChainFile {
    /// Last node with the fsync mark.
    pub(super) last_fsync: usize,
    /// First and last fsynced inode block with the dentry mark.
    pub(super) first_dentry: Option<usize>,
    pub(super) last_dentry: Option<usize>,
}

/// A node of removed names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Removal {
    pub(super) addr: BlockAddr,
    /// How many links lie before it.
    pub(super) after: usize,
}

#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) links: Vec<Link>,
    /// The files that were fsynced. Positions are indices into `links`.
    pub(super) files: BTreeMap<Ino, ChainFile>,
    /// Nodes of removed names, in the order in which they were written.
    pub(super) removals: Vec<Removal>,
    addrs: HashSet<BlockAddr>,
}

/// Whether an inode block was stored in part, as far as the volume's features can tell.
fn is_torn(fs: &Fs, block: &Block) -> bool {
    let (inode, rules): (&RawInode, _) = (block.view(), &fs.nodes.rules);
    // Every inode of a volume with checksums has room for one: where it seems not to, the first sector is an old one.
    rules.checksum_seed().is_some_and(|seed| !inode.is_sealed(rules.layouts, seed))
}

/// Whether there are nodes of the chain behind a block that cannot be read: in its segment or, where it is the last of it, in another
/// one. Otherwise it is taken for the one that was being written when power was lost, or the one to be written next.
fn goes_on_behind(fs: &Fs, addr: BlockAddr, version: ChainVersion) -> bool {
    let end = fs.geo.seg_start(fs.geo.segno(addr)) + BLOCKS_PER_SEG;
    let belongs = |addr: BlockAddr| {
        let block = fs.io.read(addr).ok()?;
        version.belongs(footer(&block).cp_ver.get()).then_some(block)
    };
    let is_free = |segno: SegNo| {
        let mut segs = fs.segs.lock();
        segs.valid_blocks(&fs.io, segno) == 0 && !segs.is_curseg(segno)
    };
    if addr + 1 < end {
        return (addr + 1..end).any(|behind| belongs(behind).is_some());
    }
    (0..fs.geo.segment_count_main).filter(|&segno| is_free(segno)).any(|segno| {
        let blocks = fs.geo.seg_start(segno)..fs.geo.seg_start(segno) + BLOCKS_PER_SEG;
        // Other logs go on in free segments too.
        belongs(blocks.start).is_some() && blocks.filter_map(belongs).any(|block| footer(&block).is_fsync())
    })
}

impl Chain {
    /// Follows the chain. It ends at a block that does not belong to it, and, against damage, where it meets itself.
    pub(super) fn read(fs: &Fs) -> Result<Chain> {
        let version = fs.cp.lock().chain();
        let mut chain = Chain::default();
        let mut addr = fs.segs.lock().next_addr(Log::WarmNode);
        while fs.geo.in_main(addr) {
            let block = match fs.io.read(addr) {
                Ok(block) => block,
                Err(error) if goes_on_behind(fs, addr, version) => {
                    let what = format!("cannot be read ({error}), and there is more behind it");
                    return Err(super::bad_node(addr, "block", what));
                }
                Err(error) => {
                    tracing::warn!(addr, %error, "the chain of fsynced nodes ends at a block that cannot be read");
                    break;
                }
            };
            let f = footer(&block);
            if !version.belongs(f.cp_ver.get()) {
                break;
            }
            if !chain.addrs.insert(addr) {
                tracing::warn!(addr, "the chain of fsynced nodes meets itself: it ends here");
                break;
            }
            if fs.is_delta_volume() && f.nid.get() == fs.geo.node_ino {
                if removed::is_removed_names(&block, fs.geo.node_ino) {
                    chain.removals.push(Removal { addr, after: chain.links.len() });
                    addr = f.next_blkaddr.get();
                    continue;
                }
                if !shared::is_shared(&block, fs.geo.node_ino) {
                    tracing::warn!(addr, "a torn shared record node: the chain of fsynced nodes ends here");
                    break;
                }
                chain.add_shared(fs, addr, &block)?;
                addr = f.next_blkaddr.get();
                continue;
            }
            let is_inode = f.nid.get() == f.ino.get() && f.node_offset() == 0;
            if is_inode && is_torn(fs, &block) {
                tracing::warn!(addr, ino = f.ino.get(), "a torn inode: the chain of fsynced nodes ends here");
                break;
            }
            let at = chain.links.len();
            let link =
                Link { addr, shared: None, ino: f.ino.get(), is_inode, fsync: f.is_fsync(), layout: None };
            chain.links.push(link);
            if link.fsync {
                if !fs.geo.is_nid(link.ino) || link.ino == fs.geo.root_ino || !fs.geo.is_nid(f.nid.get()) {
                    return Err(super::bad_node(addr, "ino", format!("node {} of inode {}", f.nid, f.ino)));
                }
                let file = chain.files.entry(link.ino).or_default();
                file.last_fsync = at;
                if link.is_inode && f.is_dentry() {
                    file.first_dentry.get_or_insert(at);
                    file.last_dentry = Some(at);
                }
            }
            addr = f.next_blkaddr.get();
        }
        chain.find_layouts();
        Ok(chain)
    }

    /// Takes up the entries of a shared record node.
    fn add_shared(&mut self, fs: &Fs, addr: BlockAddr, block: &Block) -> Result<()> {
        for (nth, entry) in shared::entries(block, addr)?.iter().enumerate() {
            let (ino, base) = (entry.ino, entry.base);
            if !fs.geo.is_nid(ino) || ino == fs.geo.root_ino || !fs.geo.in_main(base) {
                let value = format!("{base} for inode {ino}");
                return Err(FormatError::corrupt(Structure::SharedNode, addr, "base", value).into());
            }
            self.files.entry(ino).or_default().last_fsync = self.links.len();
            let shared = Some((addr, nth));
            self.links.push(Link { addr: base, shared, ino, is_inode: true, fsync: true, layout: None });
        }
        Ok(())
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
