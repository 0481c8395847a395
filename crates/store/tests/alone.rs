//! The store by itself, on a device in memory: nodes, blocks and checkpoints without a file system above.

use medfs_device::{Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::node::{RawInode, footer};
use medfs_format::summary::{Log, RawSummary};
use medfs_format::{Block, BlockAddr, Ino, NULL_ADDR, Timestamp};
use medfs_mkfs::{MkfsOptions, format_volume};
use medfs_store::{
    Error, FreeFor, Io, ManualClock, NodeMarks, Scatter, Spare, Store, StoreOptions, read_superblock,
    write_superblocks,
};
use std::sync::Arc;

/// Blocks of a volume, 64 MiB.
const VOLUME: u64 = 64 << 8;

fn formatted() -> Arc<MemDevice> {
    let device = MemDevice::new(VOLUME);
    format_volume(&device, &MkfsOptions::new([7; 16], 0)).expect("memory takes a volume");
    Arc::new(device)
}

fn try_open(device: &Arc<MemDevice>) -> Result<Store, Error> {
    let io = Io::new(device.clone());
    let (sb, geo, _) = read_superblock(&io)?;
    let options = StoreOptions {
        read_only: false,
        alloc_mode: None,
        scatter: Scatter::No,
        node_limit: 1000,
        seal: true,
    };
    Store::open(io, sb, geo, options, Arc::new(ManualClock::new(Timestamp::default())))
}

fn opened(device: &Arc<MemDevice>) -> Store {
    try_open(device).expect("a store")
}

/// Makes an inode, as far as the store knows of any.
fn make_inode(store: &Store) -> Ino {
    store.space.reserve_node(true).expect("room");
    let ino = store.nat.alloc(&store.io, None).expect("the table reads").expect("a free number");
    let mut block = Block::ZERO;
    block.view_mut::<RawInode>().i_links = 1.into();
    store.nodes.create(ino, ino, 0, false, block);
    ino
}

fn write_nodes(store: &Store, fsync: bool) {
    let nodes = store.nodes.take_all_dirty();
    store.write_in_order(&nodes, NodeMarks { fsync, ..NodeMarks::default() }).expect("written");
}

fn checkpoint(store: &Store) {
    write_nodes(store, false);
    let freed = store.write_checkpoint(&mut store.cp.lock(), &[], false, |_| ()).expect("a checkpoint");
    store.discard(freed).expect("nothing fails");
}

fn address_of(store: &Store, ino: Ino) -> BlockAddr {
    store.nat.peek(&store.io, ino).expect("an entry").addr
}

/// The pack in force and its version.
fn in_force(store: &Store) -> (usize, u64) {
    let cp = store.cp.lock();
    (cp.pack, cp.header.checkpoint_ver.get())
}

fn spoil(device: &MemDevice, addr: BlockAddr) {
    use medfs_device::BlockDevice;
    let tag = WriteTag::new(Cause::Meta, Temperature::Hot);
    device.write(addr.into(), &[&Block::ZERO], tag).expect("memory takes it");
}

#[test]
fn a_node_is_where_the_last_checkpoint_says() {
    let device = formatted();
    let store = opened(&device);
    let ino = make_inode(&store);
    checkpoint(&store);
    let (addr, before) = (address_of(&store, ino), in_force(&store));
    drop(store);

    let store = opened(&device);
    assert_eq!((in_force(&store), address_of(&store, ino)), (before, addr));
    let block = read_block(&*device, addr.into()).expect("read");
    assert_eq!((footer(&block).nid.get(), footer(&block).ino.get()), (ino, ino));
    // Its mode is none that an inode can have: what comes from the device is judged.
    assert!(matches!(store.nodes.get(&store.io, &store.nat, ino), Err(Error::Corrupt(_))));
    store.nodes.get(&store.io, &store.nat, store.geo.root_ino).expect("the root directory");
}

#[test]
fn what_no_checkpoint_holds_is_gone() {
    let device = formatted();
    let store = opened(&device);
    let before = store.space.counts().valid_nodes;
    let ino = make_inode(&store);
    write_nodes(&store, true);
    store.io.flush().expect("memory flushes");
    drop(store);

    let store = opened(&device);
    assert_eq!((store.space.counts().valid_nodes, address_of(&store, ino)), (before, NULL_ADDR));
}

#[test]
fn nodes_of_an_fsync_name_the_block_that_follows() {
    let device = formatted();
    let store = opened(&device);
    let first = make_inode(&store);
    write_nodes(&store, true);
    let second = make_inode(&store);
    write_nodes(&store, false);
    let block = read_block(&*device, address_of(&store, first).into()).expect("read");
    assert_eq!(footer(&block).next_blkaddr.get(), address_of(&store, second));
    assert_eq!(footer(&block).cp_ver.get(), store.version_in_footers());
    assert!(footer(&block).is_fsync());
    let block = read_block(&*device, address_of(&store, second).into()).expect("read");
    assert!(!footer(&block).is_fsync());
}

#[test]
fn packs_take_turns_and_a_torn_one_does_not_count() {
    let device = formatted();
    let store = opened(&device);
    checkpoint(&store);
    let (old, before) = in_force(&store);
    let ino = make_inode(&store);
    checkpoint(&store);
    let total = store.cp.lock().header.cp_pack_total_block_count.get();
    let (pack, after) = in_force(&store);
    assert_eq!((pack, after), (1 - old, before + 1));
    spoil(&device, store.geo.cp_pack(pack) + total - 1);
    drop(store);

    let store = opened(&device);
    assert_eq!(in_force(&store), (old, before));
    let next = store.cp.lock().next_version;
    assert!(next > before + 1, "nodes of the torn pack's version would count again");
    assert_eq!(address_of(&store, ino), NULL_ADDR);
}

#[test]
fn without_a_whole_pack_there_is_no_store() {
    let device = formatted();
    let geo = opened(&device).geo.clone();
    spoil(&device, geo.cp_pack(0));
    spoil(&device, geo.cp_pack(1));
    assert!(matches!(try_open(&device), Err(Error::Corrupt(_))));
}

#[test]
fn a_lost_copy_of_the_superblock_is_written_again() {
    let device = formatted();
    spoil(&device, 0);
    let io = Io::new(device.clone());
    let (sb, _, stale) = read_superblock(&io).expect("the other copy");
    assert_eq!(stale, [0]);
    opened(&device).restore_superblocks(&stale).expect("written");
    assert!(read_superblock(&io).expect("two copies").2.is_empty());
    write_superblocks(&io, &sb, &[0, 1]).expect("written");
    assert!(read_superblock(&io).expect("two copies").2.is_empty());
}

#[test]
fn a_freed_block_is_not_handed_out_before_the_checkpoint() {
    let device = formatted();
    let store = opened(&device);
    let owner = RawSummary { nid: store.geo.root_ino.into(), version: 0, ofs_in_node: 0.into() };
    let log = Log::WarmData;
    let take = || store.segs.lock().allocate(&store.io, log, owner, 0, Spare::Keep);
    let free = |addr| store.segs.lock().mark_invalid(&store.io, addr, 0).expect("marked");
    let kept = take().expect("a block");
    checkpoint(&store);
    free(kept);
    let taken: Vec<BlockAddr> = std::iter::from_fn(|| take().ok()).collect();
    assert!(taken.len() > 4 * 512, "{} blocks of 64 MiB", taken.len());
    assert!(!taken.contains(&kept), "the last checkpoint counts block {kept}");
    taken.iter().copied().for_each(free);
    checkpoint(&store);
    assert!(std::iter::from_fn(|| take().ok()).any(|addr| addr == kept), "block {kept} never came back");
}

#[test]
fn what_is_promised_ends_with_the_volume() {
    let store = opened(&formatted());
    assert!(store.space.recovered(), "a new volume is within its bounds");
    store.space.reserve(store.space.counts().free()).expect("all of it");
    assert!(matches!(store.space.reserve(1), Err(Error::NoSpace)));
    assert!(matches!(store.space.reserve_node(true), Err(Error::NoSpace)));
    store.space.release(1);
    store.space.reserve_node(false).expect("one block is free");
}

#[test]
fn once_writing_has_stopped_nothing_is_written() {
    let device = formatted();
    let store = opened(&device);
    make_inode(&store);
    store.io.stop_writing("a test says so");
    let before = device.written();
    assert!(matches!(store.write_checkpoint(&mut store.cp.lock(), &[], false, |_| ()), Err(Error::ReadOnly)));
    assert_eq!(device.written(), before);
}

#[test]
fn a_device_that_is_too_small_for_its_volume_is_refused() {
    let whole = formatted();
    let cut = Arc::new(MemDevice::new(VOLUME / 2));
    for addr in 0..VOLUME / 2 {
        use medfs_device::BlockDevice;
        let block = read_block(&*whole, addr).expect("read");
        cut.write(addr, &[&*block], WriteTag::new(Cause::Meta, Temperature::Cold)).expect("written");
    }
    let Err(Error::Incompatible(message)) = try_open(&cut) else { panic!("opened") };
    assert!(message.contains("truncated"), "{message}");
}

/// Blocks of a larger volume, 256 MiB.
const LARGE: u64 = 256 << 8;

#[test]
fn what_is_reserved_is_free_on_the_volume_and_not_for_logs() {
    let device = Arc::new(MemDevice::new(LARGE));
    format_volume(&device, &MkfsOptions::new([7; 16], 0)).expect("memory takes a volume");
    let store = opened(&device);
    let free = store.segs.lock().free.segments(FreeFor::Volume);
    let section = {
        let mut segs = store.segs.lock();
        let mut segs = segs.reserving(&store.io);
        let section = segs.find_run(1).expect("a free section");
        assert!(segs.reserve(section, 50) && !segs.reserve(section, 51));
        section
    };
    let start = store.geo.seg_start(section);
    {
        let segs = store.segs.lock();
        assert_eq!(segs.free.segments(FreeFor::Volume), free);
        assert_eq!(segs.free.segments(FreeFor::Logs), free - 1);
    }
    // A log that fills the volume goes around it.
    let owner = RawSummary { nid: 3.into(), ..RawSummary::default() };
    let mut taken = Vec::new();
    while let Ok(addr) = store.segs.lock().allocate(&store.io, Log::WarmData, owner, 1, Spare::Keep) {
        assert!(store.geo.segno(addr) != section);
        taken.push(addr);
    }
    assert!(taken.len() > 20_000, "{}", taken.len());
    // A block of it is handed out by its address, once, and its owner is in the SSA after the checkpoint.
    let home = start + 7;
    {
        let mut segs = store.segs.lock();
        let mut segs = segs.reserving(&store.io);
        assert!(segs.is_writable(home).expect("readable"));
        segs.replace((home, Log::WarmData), owner, 1, NULL_ADDR).expect("a free block");
        assert!(!segs.is_writable(home).expect("readable"));
        assert!(segs.replace((home, Log::WarmData), owner, 1, NULL_ADDR).is_err());
    }
    checkpoint(&store);
    let header = store.cp.lock().header.free_segment_count.get();
    assert_eq!(header, store.segs.lock().free.segments(FreeFor::Volume));
    drop(store);
    let store = opened(&device);
    let summary = store.segs.lock().summary(&store.io, section).expect("the SSA reads");
    assert_eq!(summary.entries[7].nid.get(), 3);
    assert!(store.segs.lock().is_valid(&store.io, home).expect("readable"));
    // Nothing on the volume says that it was reserved; a file that has blocks there may take it up again.
    let mut segs = store.segs.lock();
    let mut segs = segs.reserving(&store.io);
    assert!(segs.adopt(section, 50) && !segs.adopt(section, 50));
    segs.release(section);
    assert!(segs.adopt(section, 51));
}
