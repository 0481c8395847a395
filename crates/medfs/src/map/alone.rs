//! A map over a device in memory, with nothing above it: for the tests of the rooms.

#![cfg(test)]

use crate::map::Map;
use crate::map::inode::{Inode, set_name};
use crate::map::op::Op;
use crate::map::since::SinceCheckpoint;
use crate::types::Timestamp;
use medfs_device::{BlockDevice, MemDevice};
use medfs_format::compress::Compression;
use medfs_format::node::{DEFAULT_INLINE_XATTR_ADDRS, EXTRA_ISIZE, FileFlags, FileKind, Inline, RawInode};
use medfs_format::summary::{Log, RawSummary};
use medfs_format::superblock::Feature;
use medfs_format::{Block, BlockAddr};
use medfs_mkfs::{MkfsOptions, format_volume};
use medfs_store::{
    Io, ManualClock, NodeMarks, Scatter, Spare, Store, StoreOptions, read_superblock_with_nvram,
};
use std::ops::Deref;
use std::sync::Arc;

/// Time at which the tests begin.
pub(crate) const START: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

/// An empty volume of so many MiB.
pub(crate) fn device(mib: u64, deltas: bool, features: Feature) -> Arc<MemDevice> {
    let device = MemDevice::new(mib << 8);
    let mkfs = MkfsOptions { deltas, ..MkfsOptions::new([7; 16], START.secs) };
    format_volume(&device, &MkfsOptions { features: mkfs.features | features, ..mkfs }).expect("formats");
    Arc::new(device)
}

/// The store of a volume, with nothing to be rolled forward.
pub(crate) fn store(device: Arc<dyn BlockDevice>, scatter: Scatter) -> Store {
    let io = Io::new(device);
    let (sb, geo, _) = read_superblock_with_nvram(&io).expect("just made");
    let options = StoreOptions { read_only: false, alloc_mode: None, scatter, node_limit: 1024, seal: false };
    let store = Store::open(io, sb, geo, options, Arc::new(ManualClock::new(START))).expect("just made");
    assert!(store.space.recovered(), "from here on what does not fit is refused");
    store
}

/// The map of a volume.
pub(crate) fn map_of(device: Arc<dyn BlockDevice>) -> Map {
    Map::over(store(device, Scatter::No), false, SinceCheckpoint::new(true))
}

/// The map of an empty volume of 64 MiB.
pub(crate) fn map() -> Map {
    map_of(device(64, false, Feature::COMPRESSION))
}

/// A new inode of a kind, compressed if so, which has no blocks.
pub(crate) fn new_inode(
    map: &Map,
    kind: FileKind,
    name: &[u8],
    compression: Option<Compression>,
) -> Arc<Inode> {
    let _op = map.op().expect("it is writable");
    map.space.reserve_node(true).expect("there is room");
    let ino = map.nat.alloc(&map.io, None).expect("reads").expect("there are numbers");
    let mut block = Block::ZERO;
    let r: &mut RawInode = block.view_mut();
    r.i_mode = (kind.mode_bits() | 0o644).into();
    (r.i_links, r.i_blocks) = (1.into(), 1.into());
    set_name(r, map.geo.root_ino, name);
    r.i_inline = (Inline::EXTRA_ATTR | Inline::XATTR).bits();
    let extra = r.extra_mut().expect("just set");
    extra.i_extra_isize = EXTRA_ISIZE.into();
    extra.i_inline_xattr_size = (DEFAULT_INLINE_XATTR_ADDRS as u16).into();
    if let Some(compression) = compression {
        assert!(compression.store(r), "it has all extra attributes");
        r.i_flags = (r.flags() | FileFlags::COMPR).bits().into();
    }
    map.adopt_inode(map.nodes.create(ino, ino, 0, kind != FileKind::Directory, block))
}

/// A new regular file.
pub(crate) fn new_file(map: &Map) -> Arc<Inode> {
    new_inode(map, FileKind::Regular, b"f", None)
}

/// Gives a page that has none a block, as a writeback does.
pub(crate) fn give_block(map: &Map, inode: &Inode, index: u64) -> BlockAddr {
    let _op = map.op().expect("it is writable");
    let slot = map.make_slot(inode, index).expect("there is room");
    map.space.reserve(1).expect("there is room");
    let owner = RawSummary { nid: slot.node.nid.into(), version: 0, ofs_in_node: slot.offset.into() };
    let addr =
        map.segs.lock().allocate(&map.io, Log::WarmData, owner, 0, Spare::Keep).expect("there is room");
    map.set_addr(inode, &slot, addr);
    map.count_block(inode);
    addr
}

/// Writes every dirty node, and the pack that makes them count.
pub(crate) fn checkpoint(map: &Map) {
    let mut cp = map.cp.lock();
    let _ops = map.ops.alone();
    let nodes = map.nodes.take_all_dirty();
    map.write_in_order(&nodes, NodeMarks::default()).expect("there is room");
    map.store.write_checkpoint(&mut cp, &map.orphans.list(), false, |_| ()).expect("writes");
    map.since.committed();
}

/// A map within an operation.
pub(crate) struct InOp<'a> {
    _op: Op<'a>,
    map: &'a Map,
}

impl Deref for InOp<'_> {
    type Target = Map;

    fn deref(&self) -> &Map {
        self.map
    }
}

/// For one change.
pub(crate) fn in_op(map: &Map) -> InOp<'_> {
    InOp { _op: map.op().expect("it is writable"), map }
}
