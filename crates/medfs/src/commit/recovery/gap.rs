//! Where the chain of fsynced nodes seems to end, and goes on: at a block that cannot be read, at one that the device
//! lost, or as a node names another block than it did.

use super::chain::Chain;
use super::errors::bad_node;
use crate::error::{Error, Result};
use medfs_device::is_behind_end;
use medfs_format::checkpoint::CpFlags;
use medfs_format::log_gap::{self, End, LogReader, Sealing, Step};
use medfs_format::node::{footer, footer_mut};
use medfs_format::seal::SealedLog;
use medfs_format::summary::Log;
use medfs_format::{Block, BlockAddr, SegNo};
use medfs_store::Store;
use std::collections::HashSet;
use std::sync::Arc;

/// What has checksums in the chain of a volume.
fn sealing(store: &Store) -> Sealing {
    let node_ino = store.is_delta_volume().then_some(store.geo.node_ino);
    Sealing { layouts: store.nodes.rules.layouts, seed: store.nodes.rules.checksum_seed(), node_ino }
}

/// What a chain meets at an address.
pub(super) enum Met {
    /// A node of it.
    Node(Arc<Block>),
    /// One that it met before.
    Again,
    /// A block that cannot be read.
    Unreadable,
    /// Nothing of it.
    Other,
}

impl Chain {
    /// What the chain meets at an address.
    pub(super) fn meet(&mut self, store: &Store, addr: BlockAddr) -> Met {
        if !store.geo.in_main(addr) {
            return Met::Other;
        }
        if self.contains(addr) {
            return Met::Again;
        }
        let block = match self.block(&store.io, addr) {
            Ok(block) => self.turned_back(store, addr, block),
            Err(error) => {
                self.gap = Gap::at(store, addr, &error);
                // Who meets a gap tells of it, and behind an unmount nothing was fsynced.
                if self.gap.is_none() && !is_unmounted(store) {
                    tracing::warn!(addr, %error, "the chain of fsynced nodes ends at a block that cannot be read");
                }
                return Met::Unreadable;
            }
        };
        let version = store.cp.lock().chain();
        if !version.belongs(footer(&block).cp_ver.get()) {
            self.is_succeeded |= !version.is_of_repair() && version.is_succeeded_by(&block, &store.geo);
            return Met::Other;
        }
        if sealing(store).is_torn(&block) {
            let ino = footer(&block).ino.get();
            tracing::warn!(addr, ino, "a torn node: the chain of fsynced nodes ends here");
            self.addrs.insert(addr);
            return Met::Other;
        }
        Met::Node(block)
    }

    /// A block of the chain with the bit turned back that made its checksum wrong, which is kept so.
    fn turned_back(&self, store: &Store, addr: BlockAddr, block: Arc<Block>) -> Arc<Block> {
        let version = store.cp.lock().chain();
        let Some(bit) = sealing(store).flipped_bit(&block, version) else { return block };
        tracing::warn!(addr, "{bit} of a node in the chain of fsynced nodes was flipped: it is turned back");
        let mut mended = (*block).clone();
        bit.flip(&mut mended);
        let mended = Arc::new(mended);
        self.keep(addr, mended.clone());
        mended
    }

    /// The same end, with what is known of the block that the last node names.
    pub(super) fn end_at(&self, store: &Store, at: End, is_met: bool) -> Result<End> {
        let Some(last) = at.last else { return Ok(at) };
        if is_met {
            tracing::warn!(addr = at.next, "the chain of fsynced nodes loops: it ends here");
        }
        let is_taken = is_met || is_used(store, at.next);
        let is_right = sealing(store).is_whole(&*self.block(&store.io, last)?);
        Ok(End { is_taken, is_right, ..at })
    }

    /// The node at which the chain goes on that seems to end, as a bit of the address in its last node flipped. The bit
    /// is turned back there.
    pub(super) fn turn_next(
        &self,
        store: &Store,
        at: End,
        sealed: Option<&mut SealedLog>,
    ) -> Result<Option<BlockAddr>> {
        let Some(last) = at.last else { return Ok(None) };
        let next = behind(store, &self.addrs, |log| log.turned_next(at));
        let Some(next) = next else { return Ok(None) };
        tracing::warn!(
            addr = last,
            next,
            "a bit of the next node's address in a node of the chain was flipped: it is turned back"
        );
        let mut mended = (*self.block(&store.io, last)?).clone();
        footer_mut(&mut mended).next_blkaddr = next.into();
        if let Some(sealed) = sealed {
            sealed.renew_last(&mended);
        }
        self.keep(last, Arc::new(mended));
        Ok(Some(next))
    }
}

/// The files of the nodes of the chain from a block on, also past blocks that cannot be read, each with the last name
/// that these say; `None` where nothing is there.
fn files_from(store: &Store, addr: BlockAddr) -> Option<log_gap::Files> {
    let version = store.cp.lock().chain();
    let node_ino = store.is_delta_volume().then_some(store.geo.node_ino);
    let mut read = |addr| store.io.read(addr).ok();
    let mut files = None;
    let mut log = LogReader { geo: &store.geo, version, is_free: &mut is_free(store), read: &mut read };
    log.walk(addr, &mut |step| {
        let files = files.get_or_insert_with(log_gap::Files::new);
        if let Step::Node(addr, block) = step {
            log_gap::add_files(files, addr, block, node_ino);
        }
    });
    files
}

/// The nodes behind the end of a chain without seals that met these, where they tell that it went on.
pub(super) fn refsynced_behind(store: &Store, at: End, met: &HashSet<BlockAddr>) -> Vec<BlockAddr> {
    behind(store, met, |log| log.refsynced_behind(at))
}

/// All nodes behind the end of a chain that met these.
pub(super) fn nodes_behind(store: &Store, at: End, met: &HashSet<BlockAddr>) -> Vec<BlockAddr> {
    behind(store, met, |log| log.nodes_behind(at))
}

/// Asks what lies behind the end of a chain that met these nodes.
fn behind<T>(store: &Store, met: &HashSet<BlockAddr>, asks: impl FnOnce(&mut LogReader<'_>) -> T) -> T {
    let version = store.cp.lock().chain();
    let (mut is_free, mut read) = (is_free(store), reading(store, met));
    asks(&mut LogReader { geo: &store.geo, version, is_free: &mut is_free, read: &mut read })
}

/// Reads whole nodes of the chain, but those that were met, and none in use.
fn reading<'a>(
    store: &'a Store,
    met: &'a HashSet<BlockAddr>,
) -> impl FnMut(BlockAddr) -> Option<Box<Block>> + 'a {
    let version = store.cp.lock().chain();
    let sealing = sealing(store);
    move |addr| {
        if met.contains(&addr) {
            return None;
        }
        let block = store.io.read(addr).ok()?;
        let is_node = version.belongs(footer(&block).cp_ver.get()) && !sealing.is_torn(&block);
        (is_node && !is_used(store, addr)).then_some(block)
    }
}

/// Whether the last checkpoint has a block in use or nothing tells, or the segment of it is that of another log there.
fn is_used(store: &Store, addr: BlockAddr) -> bool {
    let geo = &store.geo;
    if !geo.in_main(addr) {
        return false;
    }
    let mut segs = store.segs.lock();
    let is_own = geo.segno(addr) == geo.segno(segs.next_addr(Log::WarmNode));
    (!is_own && segs.is_curseg(geo.segno(addr))) || segs.is_valid(&store.io, addr).unwrap_or(true)
}

/// Tells whether a segment is free.
fn is_free(store: &Store) -> impl FnMut(SegNo) -> bool + '_ {
    move |segno| {
        let mut segs = store.segs.lock();
        segs.valid_blocks(&store.io, segno) == 0 && !segs.is_curseg(segno)
    }
}

/// Whether the checkpoint is that of an unmount.
fn is_unmounted(store: &Store) -> bool {
    store.cp.lock().header.flags().contains(CpFlags::UMOUNT)
}

/// The files of all nodes of the chain that can be read.
pub(super) fn logged_files(store: &Store) -> log_gap::Files {
    let start = store.segs.lock().next_addr(Log::WarmNode);
    files_from(store, start).unwrap_or_default()
}

/// What is said of a block of the chain that an image does not have.
const BEHIND_END: &str = "is behind the end of the image, and the log may go on there";

/// What of the chain cannot be read, where there are nodes of it behind.
#[derive(Debug)]
pub(super) struct Gap {
    pub(super) error: Error,
    /// The files of the nodes behind it, each with the last name that these say.
    pub(super) files: log_gap::Files,
}

impl Gap {
    /// The gap that begins at a block; `None` where the chain does not go on behind it. The block is then taken
    /// for the one that was being written when power was lost, or the one to be written next. Where an image was
    /// cut short before it, that cannot be told.
    pub(super) fn at(store: &Store, addr: BlockAddr, error: &Error) -> Option<Gap> {
        let is_cut_short = !is_unmounted(store) && matches!(error, Error::Io(error) if is_behind_end(error));
        let (files, what) = match files_from(store, addr) {
            Some(files) => (files, format!("cannot be read ({error}), and there is more behind it")),
            None if is_cut_short => (log_gap::Files::new(), BEHIND_END.to_owned()),
            None => return None,
        };
        let error = bad_node(addr, "block", what);
        Some(Gap { error, files })
    }

    /// The gap that begins where the chain ends, at what is no whole node of it any more, as others tell: those behind.
    pub(super) fn of_lost(store: &Store, at: End, nodes: u64, behind: &[BlockAddr]) -> Gap {
        let files = behind.first().and_then(|&first| files_from(store, first)).unwrap_or_default();
        if let Some(last) = at.last.filter(|_| at.is_taken || !store.geo.in_main(at.next)) {
            let what = format!("{}, where no log goes on: the device changed it", at.next);
            return Gap { error: bad_node(last, "next_blkaddr", what), files };
        }
        let by = if store.sb.has_seals() {
            format!("by the seals of {nodes} nodes")
        } else {
            format!("as {nodes} nodes behind it were fsynced")
        };
        let what = format!("is not what was written there, {by}: the device lost or changed it");
        Gap { error: bad_node(at.next, "block", what), files }
    }
}
