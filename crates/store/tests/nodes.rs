//! Nodes in memory: what of them an fsync has to write, what is read again, and what is refused.

use medfs_device::{CountingDevice, MemDevice};
use medfs_format::node::{DEFAULT_INLINE_XATTR_ADDRS, EXTRA_ISIZE, Inline, RawInode, footer};
use medfs_format::{Block, Ino, Nid, Timestamp};
use medfs_mkfs::{MkfsOptions, format_volume};
use medfs_store::{
    Dirty, Error, Io, ManualClock, NodeMarks, NodePage, Scatter, Store, StoreOptions, node_offset,
    read_superblock,
};
use std::sync::Arc;

fn formatted() -> Arc<CountingDevice<MemDevice>> {
    let device = MemDevice::new(64 << 8);
    format_volume(&device, &MkfsOptions::new([7; 16], 0)).expect("memory takes a volume");
    Arc::new(CountingDevice::new(device))
}

fn opened(device: &Arc<CountingDevice<MemDevice>>) -> Store {
    let io = Io::new(device.clone());
    let (sb, geo, _) = read_superblock(&io).expect("just made");
    let options = StoreOptions {
        read_only: false,
        alloc_mode: None,
        scatter: Scatter::No,
        node_limit: 256,
        seal: false,
    };
    Store::open(io, sb, geo, options, Arc::new(ManualClock::new(Timestamp::default()))).expect("just made")
}

/// A new inode that a mount takes.
fn new_inode(store: &Store) -> Arc<NodePage> {
    store.space.reserve_node(true).expect("room");
    let ino = store.nat.alloc(&store.io, None).expect("the table reads").expect("a free number");
    let mut block = Block::ZERO;
    let raw: &mut RawInode = block.view_mut();
    (raw.i_mode, raw.i_links, raw.i_blocks) = (0o100_644.into(), 1.into(), 1.into());
    raw.i_inline = (Inline::EXTRA_ATTR | Inline::XATTR).bits();
    let extra = raw.extra_mut().expect("just set");
    extra.i_extra_isize = EXTRA_ISIZE.into();
    extra.i_inline_xattr_size = (DEFAULT_INLINE_XATTR_ADDRS as u16).into();
    store.nodes.create(ino, ino, 0, true, block)
}

/// A new node of an inode at an offset of its tree.
fn new_node(store: &Store, ino: Ino, offset: u32) -> Arc<NodePage> {
    store.space.reserve_node(false).expect("room");
    let nid = store.nat.alloc(&store.io, Some(ino)).expect("the table reads").expect("a free number");
    store.nodes.create(nid, ino, offset, true, Block::ZERO)
}

fn write_all(store: &Store) {
    let nodes = store.nodes.take_all_dirty();
    store.write_in_order(&nodes, NodeMarks::default()).expect("written");
}

fn checkpoint(store: &Store) {
    write_all(store);
    store.write_checkpoint(&mut store.cp.lock(), &[], false, |_| ()).expect("a checkpoint");
}

fn set_mtime(store: &Store, page: &Arc<NodePage>, millis: u32) {
    store.nodes.update(page, Dirty::Tick, |block| {
        block.view_mut::<RawInode>().i_mtime_nsec = (millis * 1_000_000).into();
    });
}

fn taken(store: &Store, ino: Ino, least: Dirty) -> Vec<Nid> {
    store.nodes.take_dirty_of(ino, least).into_iter().map(|(page, _)| page.nid).collect()
}

#[test]
fn a_mark_says_what_an_fsync_must_write() {
    let store = opened(&formatted());
    let (inode, nodes) = (new_inode(&store), &store.nodes);
    let ino = inode.ino;
    assert_eq!(nodes.dirtiness_of(ino), Dirty::Full);
    write_all(&store);
    assert_eq!((nodes.dirtiness_of(ino), nodes.dirty_count()), (Dirty::Clean, 0));
    nodes.mark_shared(&inode);
    assert_eq!(
        (nodes.dirtiness_of(ino), nodes.any_dirty(), nodes.any_to_commit()),
        (Dirty::Noted, false, false)
    );
    nodes.update(&inode, Dirty::Count, |_| ());
    assert_eq!((nodes.dirtiness_of(ino), nodes.any_dirty()), (Dirty::Count, false));
    set_mtime(&store, &inode, 9);
    assert_eq!(
        (nodes.dirtiness_of(ino), nodes.any_dirty(), nodes.any_to_commit()),
        (Dirty::Tick, true, false)
    );
    set_mtime(&store, &inode, 10);
    assert_eq!((nodes.dirtiness_of(ino), nodes.any_to_commit()), (Dirty::Times, true), "ten ms make a tick");
    assert!(nodes.is_dirty(ino, ino, Dirty::Times) && !nodes.is_dirty(ino, ino, Dirty::Full));
    assert_eq!(taken(&store, ino, Dirty::Full), []);
    assert_eq!(taken(&store, ino, Dirty::Times), [ino]);
    set_mtime(&store, &inode, 12);
    assert_eq!(nodes.dirtiness_of(ino), Dirty::Tick, "from what was written last");
    nodes.mark_shared(&inode);
    assert_eq!(nodes.dirtiness_of(ino), Dirty::Tick, "a mark never says less");
    nodes.make_due(&inode, Dirty::Count);
    assert_eq!(nodes.dirtiness_of(ino), Dirty::Tick, "it was due");
    nodes.make_due(&inode, Dirty::Full);
    assert_eq!(nodes.dirtiness_of(ino), Dirty::Full);
}

#[test]
fn times_of_reading_alone_wait_for_another_reason() {
    let store = opened(&formatted());
    let inode = new_inode(&store);
    write_all(&store);
    store.nodes.update(&inode, Dirty::Tick, |block| block.view_mut::<RawInode>().i_atime = 99.into());
    assert_eq!(store.nodes.dirtiness_of(inode.ino), Dirty::Times);
    assert!(!store.nodes.any_to_commit());
}

#[test]
fn changed_addresses_are_told_as_long_as_nothing_else_changed() {
    let store = opened(&formatted());
    let (ino, nodes) = (new_inode(&store).ino, &store.nodes);
    let (direct, indirect) = (new_node(&store, ino, 1), new_node(&store, ino, 3));
    let changed = || {
        let all = nodes.changed_addresses(ino);
        all.into_iter().map(|(page, list)| (page.nid, list)).collect::<Vec<_>>()
    };
    assert_eq!(changed(), [], "all of a new node is new");
    write_all(&store);
    nodes.update_addrs(&direct, &[3, 5, 3], |_| ());
    nodes.update_addrs(&direct, &[5, 9], |_| ());
    nodes.update_addrs(&indirect, &[1], |_| ());
    assert_eq!(changed(), [(direct.nid, vec![3, 5, 9])]);
    assert_eq!(nodes.due_direct(ino, Dirty::Full).len(), 1);
    nodes.mark_noted(&direct);
    assert_eq!((changed(), nodes.due_direct(ino, Dirty::Count).len()), (vec![], 0));
    assert_eq!(nodes.due_direct(ino, Dirty::Noted).len(), 1);
    nodes.update_addrs(&direct, &[7], |_| ());
    assert_eq!(changed(), [(direct.nid, vec![7])], "what was noted is not told again");
    nodes.update(&direct, Dirty::Full, |_| ());
    assert_eq!(changed(), []);
    write_all(&store);
    let many: Vec<u16> = (0..257).collect();
    nodes.update_addrs(&direct, &many[..256], |_| ());
    assert_eq!(changed()[0].1.len(), 256);
    nodes.update_addrs(&direct, &many, |_| ());
    assert_eq!(changed(), [], "too many to remember");
}

#[test]
fn an_fsync_leaves_indirect_nodes_to_the_checkpoint() {
    let store = opened(&formatted());
    let ino = new_inode(&store).ino;
    let (direct, indirect) = (new_node(&store, ino, 1), new_node(&store, ino, 3));
    assert_eq!((node_offset(&direct), node_offset(&indirect)), (1, 3));
    assert_eq!(taken(&store, ino, Dirty::Full), [ino, direct.nid]);
    assert_eq!((store.nodes.dirtiness_of(ino), store.nodes.dirty_count()), (Dirty::Clean, 1));
    store.nodes.mark(&direct);
    let all: Vec<Nid> = store.nodes.take_all_dirty().iter().map(|(page, _)| page.nid).collect();
    assert_eq!(all, [direct.nid, indirect.nid]);
}

#[test]
fn a_node_that_changes_while_it_is_written_is_written_as_it_was() {
    let store = opened(&formatted());
    let inode = new_inode(&store);
    let taken = store.nodes.take_all_dirty();
    store.nodes.update(&inode, Dirty::Full, |block| block.view_mut::<RawInode>().i_size = 5.into());
    assert_eq!(taken[0].1.view::<RawInode>().i_size.get(), 0);
    assert_eq!((inode.read(|data| data.inode().i_size.get()), store.nodes.dirty_count()), (5, 1));
}

#[test]
fn nodes_that_are_read_again_are_what_was_written() {
    let device = formatted();
    let numbers: Vec<Ino> = {
        let store = opened(&device);
        let made: Vec<Arc<NodePage>> = (0..1000).map(|_| new_inode(&store)).collect();
        for page in &made {
            store.nodes.update(page, Dirty::Full, |b| b.view_mut::<RawInode>().i_uid = page.ino.into());
        }
        assert_eq!(store.nodes.cached(), 1000, "what is dirty stays");
        checkpoint(&store);
        made.iter().map(|page| page.ino).collect()
    };
    let store = opened(&device);
    let before = device.counts();
    for &ino in &numbers {
        let page = store.nodes.get(&store.io, &store.nat, ino).expect("reads");
        assert_eq!(page.read(|data| data.inode().i_uid.get()), ino);
    }
    assert!(store.nodes.cached() <= 2 * store.nodes.limit(), "{} in memory", store.nodes.cached());
    let reads = device.counts().reads - before.reads;
    assert!(reads < 500, "{reads} requests for nodes in the order in which they lie");
    let held = store.nodes.get(&store.io, &store.nat, numbers[0]).expect("reads");
    let again = store.nodes.get(&store.io, &store.nat, numbers[0]).expect("reads");
    assert!(Arc::ptr_eq(&held, &again), "one page for a node");
}

#[test]
fn a_node_that_is_none_is_refused() {
    let device = formatted();
    let store = opened(&device);
    let (inode, other) = (new_inode(&store), new_inode(&store));
    let refused = |nid| match store.nodes.get(&store.io, &store.nat, nid) {
        Err(Error::Corrupt(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(other.nid + 1).contains("free"));
    let unwritten = store.nat.alloc(&store.io, None).expect("reads").expect("a number");
    assert!(refused(unwritten).contains("never written"));
    write_all(&store);
    // The table names the block of another node.
    let addr = |nid| store.nat.peek(&store.io, nid).expect("reads").addr;
    store.nat.set(inode.nid, inode.ino, addr(other.nid), false);
    store.nodes.forget(inode.nid);
    assert!(refused(inode.nid).contains("nid"), "{}", refused(inode.nid));
    assert_eq!(store.nodes.dirty_count(), 0);
}

#[test]
fn an_inode_larger_than_any_file_is_refused() {
    let store = opened(&formatted());
    let inode = new_inode(&store);
    store.nodes.update(&inode, Dirty::Full, |b| b.view_mut::<RawInode>().i_size = (1 << 62).into());
    write_all(&store);
    store.nodes.forget(inode.nid);
    let Err(Error::Corrupt(error)) = store.nodes.get(&store.io, &store.nat, inode.nid) else {
        panic!("read")
    };
    assert!(error.to_string().contains("i_size"), "{error}");
}

#[test]
fn a_freed_node_is_forgotten_dirty_or_not() {
    let store = opened(&formatted());
    let (inode, cached) = (new_inode(&store), store.nodes.cached());
    store.nodes.forget(inode.nid);
    store.nodes.forget(inode.nid);
    assert_eq!((store.nodes.cached(), store.nodes.dirty_count()), (cached - 1, 0));
    assert!(store.nodes.take_all_dirty().is_empty(), "it does not come back with the next checkpoint");
}

#[test]
fn an_image_of_recovery_keeps_the_footer_of_its_block() {
    let device = formatted();
    let store = opened(&device);
    let (inode, other) = (new_inode(&store), new_inode(&store));
    write_all(&store);
    let addr = store.nat.peek(&store.io, inode.nid).expect("reads").addr;
    let base = store.io.read(addr).expect("reads");
    store.nodes.update(&inode, Dirty::Full, |b| b.view_mut::<RawInode>().i_uid = 77.into());
    let changed = inode.read(|data| data.block.clone());
    let image = store.nodes.rules.image_over(&base, &changed, &[]).expect("it is the node's");
    assert_eq!(image.view::<RawInode>().i_uid.get(), 77);
    assert_eq!(footer(&image).next_blkaddr, footer(&base).next_blkaddr);
    assert_eq!(footer(&image).cp_ver, footer(&base).cp_ver);
    let of_other = other.read(|data| data.block.clone());
    assert!(store.nodes.rules.image_over(&base, &of_other, &[]).is_none(), "another node's block");
    let mut new = changed.boxed_copy();
    assert!(store.nodes.rules.make_image(&mut new, None, &[]));
    assert_eq!((new.view::<RawInode>().i_uid.get(), footer(&new).nid.get()), (77, inode.nid));
}
