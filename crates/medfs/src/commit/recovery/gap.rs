//! Where the chain of fsynced nodes cannot be read, and goes on.

use super::chain::sealing;
use super::errors::bad_node;
use crate::error::Error;
use medfs_device::is_behind_end;
use medfs_format::log_gap::{self, Step};
use medfs_format::node::footer;
use medfs_format::summary::Log;
use medfs_format::{Block, BlockAddr, SegNo};
use medfs_store::Store;

/// The files of the nodes of the chain from a block on, also past blocks that cannot be read or are `lost`, each with
/// the last name that these say; `None` where nothing is there.
fn files_from(store: &Store, addr: BlockAddr, lost: Option<BlockAddr>) -> Option<log_gap::Files> {
    let version = store.cp.lock().chain();
    let node_ino = store.is_delta_volume().then_some(store.geo.node_ino);
    let mut read = |addr| store.io.read(addr).ok().filter(|_| lost != Some(addr));
    let mut files = None;
    log_gap::walk(&store.geo, addr, version, &mut is_free(store), &mut read, &mut |step| {
        let files = files.get_or_insert_with(log_gap::Files::new);
        if let Step::Node(addr, block) = step {
            log_gap::add_files(files, addr, block, node_ino);
        }
    });
    files
}

/// How many nodes lie behind the end of a chain without seals, where they tell that it went on.
pub(super) fn refsynced_behind(store: &Store, end: BlockAddr) -> u64 {
    let (version, sealing) = (store.cp.lock().chain(), sealing(store));
    let is_whole = |block: &Block| version.belongs(footer(block).cp_ver.get()) && !sealing.is_torn(block);
    let mut read = |addr| store.io.read(addr).ok().filter(|block| is_whole(block));
    log_gap::refsynced_behind(&store.geo, end, version, &mut is_free(store), &mut read).len() as u64
}

/// Tells whether a segment is free.
fn is_free(store: &Store) -> impl FnMut(SegNo) -> bool + '_ {
    move |segno| {
        let mut segs = store.segs.lock();
        segs.valid_blocks(&store.io, segno) == 0 && !segs.is_curseg(segno)
    }
}

/// The files of all nodes of the chain that can be read.
pub(super) fn logged_files(store: &Store) -> log_gap::Files {
    let start = store.segs.lock().next_addr(Log::WarmNode);
    files_from(store, start, None).unwrap_or_default()
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
        let is_cut_short = matches!(error, Error::Io(error) if is_behind_end(error));
        let (files, what) = match files_from(store, addr, None) {
            Some(files) => (files, format!("cannot be read ({error}), and there is more behind it")),
            None if is_cut_short => (log_gap::Files::new(), BEHIND_END.to_owned()),
            None => return None,
        };
        let error = bad_node(addr, "block", what);
        Some(Gap { error, files })
    }

    /// The gap that begins at a block which is no whole node of the chain any more, as others tell.
    pub(super) fn of_lost(store: &Store, addr: BlockAddr, nodes: u64) -> Gap {
        let files = files_from(store, addr, Some(addr)).unwrap_or_default();
        let by = if store.sb.has_seals() {
            format!("by the seals of {nodes} nodes")
        } else {
            format!("as {nodes} nodes behind it were fsynced")
        };
        let what = format!("is not what was written there, {by}: the device lost or changed it");
        Gap { error: bad_node(addr, "block", what), files }
    }
}
