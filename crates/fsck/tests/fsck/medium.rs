//! Sectors that cannot be read or written: each is a finding, what has another copy loses nothing, and
//! neither a check nor a repair ends at one.

use crate::common::{Bed, META, delta_volume, load, number, updated_clusters};
use medfs::{FileKind, Files, Ino, ManualClock, MountOptions, NewFile, Timestamp, Volume};
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::node::{RawInode, footer};
use medfs_format::{BLOCK_SIZE, Block, COMPRESS_ADDR};
use medfs_fsck::dump::Dump;
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Options, Repair, Report, check, repair};
use std::sync::Arc;

pub(crate) type Faulty = Arc<FaultDevice<MemDevice>>;

pub(crate) fn ino(dev: &MemDevice, path: &str) -> Ino {
    number(Dump::open(dev).unwrap().path(path).unwrap().get("ino"))
}

pub(crate) fn node_addr(dev: &MemDevice, nid: u32) -> u64 {
    number(Dump::open(dev).unwrap().nat(nid).unwrap().get("block_addr")).into()
}

pub(crate) fn superblock(dev: &MemDevice, field: &str) -> u64 {
    number(Dump::open(dev).unwrap().superblock().get(field)).into()
}

/// Address in a slot of an inode of a volume with extra attributes (36 bytes), or without.
pub(crate) fn addr_of(dev: &MemDevice, ino: Ino, page: usize) -> u32 {
    let block = read_block(dev, node_addr(dev, ino)).unwrap();
    let inode: &RawInode = block.view();
    inode.i_addr[inode.extra().map_or(0, |e| usize::from(e.i_extra_isize.get()) / 4) + page].get()
}

/// A device one of whose blocks cannot be read until it is written.
pub(crate) fn without(dev: &MemDevice, block: u64) -> Faulty {
    let faulty = Arc::new(FaultDevice::new(dev.snapshot(), 1));
    faulty.arm(Fault::on(Kind::Read, Effect::IO).within(block..block + 1).until_written());
    faulty
}

pub(crate) fn checked(dev: &dyn BlockDevice) -> Report {
    check(dev, &Options::default(), &mut |_| {}).expect("a check ends")
}

pub(crate) fn repaired(dev: &dyn BlockDevice) -> Repair {
    repair(dev, &Options::default(), &mut |_| {}).expect("a repair ends")
}

pub(crate) fn opened(dev: Arc<dyn BlockDevice>) -> Volume {
    let clock = ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 });
    Volume::open(dev, MountOptions::default(), Arc::new(clock)).expect("the volume opens")
}

/// The content of a file, by its number; what cannot be read is `None`.
pub(crate) fn content(v: &Volume, ino: Ino) -> Vec<Option<Vec<u8>>> {
    let pages = v.getattr(ino).expect("attributes").size.div_ceil(BLOCK_SIZE as u64);
    let page = |index: u64| {
        let mut bytes = vec![0; BLOCK_SIZE];
        let read = v.read(ino, index * BLOCK_SIZE as u64, &mut bytes);
        read.ok().map(|n| bytes[..n].to_vec())
    };
    (0..pages).map(page).collect()
}

pub(crate) fn pages_of(content: &[u8]) -> Vec<Option<Vec<u8>>> {
    content.chunks(BLOCK_SIZE).map(|page| Some(page.to_vec())).collect()
}

#[test]
fn metadata_that_has_another_copy_or_can_be_made_anew_costs_nothing() {
    let bed = Bed::new();
    let dev = load(&bed.filled("copies.img", &["-O", "extra_attr,inode_checksum,sb_checksum"]));
    let direct = ino(&dev, "direct");
    let summary = (addr_of(&dev, direct, 3) - superblock(&dev, "main_blkaddr") as u32) / 512;
    let blocks = [
        ("a superblock copy", Code::SuperblockCopy, 0),
        ("the other one", Code::SuperblockCopy, 1),
        ("the first pack of two of one version", Code::CheckpointHeader, superblock(&dev, "cp_blkaddr")),
        ("the other pack", Code::CheckpointPack, superblock(&dev, "cp_blkaddr") + 512),
        ("SIT", Code::Unreadable, superblock(&dev, "sit_blkaddr")),
        ("NAT", Code::Unreadable, superblock(&dev, "nat_blkaddr")),
        ("SSA", Code::Unreadable, superblock(&dev, "ssa_blkaddr") + u64::from(summary)),
        ("the root directory's inode", Code::NoRoot, node_addr(&dev, 3)),
    ];
    let all = checked(&dev);
    for (what, code, block) in blocks {
        let faulty = without(&dev, block);
        let found = checked(&*faulty);
        if !found.has(code) && !found.findings.is_empty() {
            panic!("{what}: {:?}", found.findings);
        }
        let mended = repaired(&*faulty);
        assert_eq!(mended.after.findings, [], "{what}");
        // Mode, owner and times of the root are lost with its inode; a check without a root ends there.
        let all_damaged = found.damaged.list.iter().chain(&mended.later.damaged.list);
        let damaged: Vec<_> = all_damaged.map(|file| &file.path[..]).collect();
        assert_eq!(damaged, if code == Code::NoRoot { vec![&b"/"[..]] } else { vec![] }, "{what}");
        let after = checked(&*faulty);
        assert_eq!(after.findings, [], "{what}");
        assert_eq!((after.files(), after.directories()), (all.files(), all.directories()), "{what}");
        bed.judge(&faulty.inner().snapshot()).unwrap_or_else(|e| panic!("{what}: {e}"));
        ino(faulty.inner(), "many/file number 00123 with a longish name");
    }
}

#[test]
fn a_table_that_is_zeros_is_made_anew_from_the_nodes() {
    let bed = Bed::new();
    let dev = load(&bed.filled("zeros.img", &[]));
    let all = checked(&dev);
    for copy in [0, 512] {
        let zeroed = dev.snapshot();
        zeroed.write(superblock(&dev, "nat_blkaddr") + copy, &[&Block::ZERO], META).unwrap();
        let found = checked(&zeroed);
        // One of the copies is in force.
        assert_eq!(found.has(Code::NatLost), !found.is_clean(), "{:?}", found.findings);
        let after = repaired(&zeroed).after;
        assert_eq!((after.findings.len(), after.files()), (0, all.files()));
        bed.judge(&zeroed).unwrap();
    }
}

#[test]
fn an_unreadable_node_or_dentry_block_costs_what_is_in_it_alone() {
    let bed = Bed::new();
    let dev = load(&bed.filled("nodes.img", &[]));
    let all = checked(&dev);
    let many = ino(&dev, "many");
    let page = (0..20).map(|page| addr_of(&dev, many, page)).find(|addr| *addr != 0);
    let cases = [
        ("an inode", node_addr(&dev, ino(&dev, "small")), 1),
        ("a dentry block", page.expect("it has blocks").into(), 0),
        ("a directory's inode", node_addr(&dev, ino(&dev, "deep/er")), 0),
    ];
    for (what, block, lost) in cases {
        let faulty = without(&dev, block);
        let found = checked(&*faulty);
        assert!(found.has(Code::Unreadable), "{what}: {:?}", found.findings);
        assert_eq!(repaired(&*faulty).after.findings, [], "{what}");
        let after = checked(&*faulty);
        assert_eq!((after.findings.len(), after.files()), (0, all.files() - lost), "{what}");
        bed.judge(&faulty.inner().snapshot()).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

/// Pages of the sparse file that have blocks, each with the one behind it.
pub(crate) const SPARSE: [u64; 5] = [930, 1950, 2990, 1_100_000, 2_200_000];

/// A volume with a file that has nodes, and a sparse one that has nodes of each kind.
pub(crate) fn large_files(features: &str) -> (MemDevice, [Ino; 2]) {
    let dev = Arc::new(medfs_testkit::images::formatted(64, features).snapshot());
    let v = opened(dev.clone());
    let files = ["file", "sparse"].map(|name| {
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 7, gid: 8, rdev: 0 };
        v.create(v.root(), name.as_bytes(), &new).expect("create").ino
    });
    v.write(files[0], 0, &noise(1, 1500 * BLOCK_SIZE)).expect("write");
    for page in SPARSE {
        v.write(files[1], page * BLOCK_SIZE as u64, &noise(page, 2 * BLOCK_SIZE)).expect("write");
    }
    v.close().expect("close");
    drop(v);
    (dev.snapshot(), files)
}

/// The summaries know the blocks of a direct node, the footers of its nodes those of an indirect one.
#[test]
fn a_node_below_an_inode_that_cannot_be_read_costs_nothing() {
    let (dev, [file, sparse]) = large_files("");
    let shown = |dev: &MemDevice| {
        let v = opened(Arc::new(dev.snapshot()));
        let read = |ino, page: u64| {
            let mut bytes = vec![0; 2 * BLOCK_SIZE];
            v.read(ino, page * BLOCK_SIZE as u64, &mut bytes).expect("readable");
            bytes
        };
        let pages = SPARSE.map(|page| read(sparse, page));
        (content(&v, file), pages)
    };
    let whole = shown(&dev);
    let max = superblock(&dev, "main_blkaddr");
    let nodes = (max..dev.block_count()).filter(|&addr| {
        let block = read_block(&dev, addr).unwrap();
        let f = footer(&block);
        [file, sparse].contains(&f.ino.get()) && f.ino != f.nid && node_addr(&dev, f.nid.get()) == addr
    });
    let nodes: Vec<u64> = nodes.collect();
    assert!(nodes.len() > 9, "of each kind: {nodes:?}");
    for node in nodes {
        for zeroed in [false, true] {
            let faulty = without(&dev, node);
            if zeroed {
                faulty.inner().write(node, &[&Block::ZERO], META).unwrap();
                faulty.heal();
            }
            assert!(checked(&*faulty).has(Code::NodeRebuilt), "block {node}");
            assert_eq!(repaired(&*faulty).after.findings, [], "block {node}");
            assert!(shown(faulty.inner()) == whole, "block {node}");
        }
    }
}

pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 3 + i / BLOCK_SIZE * 7 + seed as usize * 31) as u8 | 1).collect()
}

/// Content that cannot be read is the owner's business: the sector may be readable again.
#[test]
fn unreadable_content_is_named_and_left() {
    let (dev, ino, _, content_of_deltas) = delta_volume(9, &[2, 5]);
    let base = u64::from(addr_of(&dev, ino, 5));
    let plain = u64::from(addr_of(&dev, ino, 7));
    let (clusters, file, content_of_clusters) = updated_clusters(12, &[5]);
    assert_eq!(addr_of(&clusters, file, 4), COMPRESS_ADDR);
    let cluster = u64::from(addr_of(&clusters, file, 5));
    for (dev, ino, block, pages, named) in [
        (&dev, ino, base, 5..6, Some("page 5 (offset 20480)")),
        (&dev, ino, plain, 7..8, None),
        (&clusters, file, cluster, 4..8, Some("offset 16384")),
    ] {
        let faulty = without(dev, block);
        let found = checked(&*faulty);
        if let Some(named) = named {
            let told = |f: &medfs_fsck::Finding| f.code == Code::UnreadableData && f.message.contains(named);
            assert!(found.findings.iter().any(told), "{:?}", found.findings);
        }
        assert!(found.is_clean(), "nothing is wrong with the volume: {:?}", found.findings);
        let done = repaired(&*faulty);
        assert!(!done.changed && done.after == done.before);
        let whole = if std::ptr::eq(dev, &clusters) { &content_of_clusters } else { &content_of_deltas };
        let mut expected = pages_of(whole);
        expected[pages.start..pages.end].fill(None);
        assert_eq!(content(&opened(faulty.clone()), ino), expected);
        faulty.heal();
        assert_eq!(content(&opened(faulty), ino), pages_of(whole), "the sector is well again");
    }
}

#[test]
fn a_sector_that_cannot_be_written_is_told_and_ends_nothing() {
    let bed = Bed::new();
    let dev = load(&bed.filled("unwritable.img", &[]));
    let inode = node_addr(&dev, ino(&dev, "direct"));
    for block in [1, superblock(&dev, "cp_blkaddr") + 512, inode] {
        let faulty = without(&dev, block);
        faulty.arm(Fault::on(Kind::Write, Effect::IO).within(block..block + 1));
        let done = repaired(&*faulty);
        let unwritable = done.after.findings.iter().filter(|f| f.code == Code::Unwritable).count();
        // An inode that cannot be read goes, and nothing is written there.
        assert_eq!((unwritable, done.after.is_clean()), if block == inode { (0, true) } else { (1, false) });
    }
}

/// A direct node is no inode: what would be damage there is content here.
#[test]
fn the_nodes_of_a_file_that_lost_its_name_stay_as_they_are() {
    let (dev, ino, content_of_file, _) = delta_volume(1100, &[]);
    inject::set(&dev, &Target::Dentry(3, b"file"), "used", 0).unwrap();
    assert!(checked(&dev).has(Code::NatUnreachable));
    assert_eq!(repaired(&dev).after.findings, []);
    assert!(content(&opened(Arc::new(dev)), ino) == pages_of(&content_of_file), "as it was");
}

/// What the last checkpoint changed is in the journals alone.
#[test]
fn journals_that_are_zeros_cost_nothing_of_a_volume_that_was_closed() {
    let volume = medfs_testkit::delta_volume::delta_volume("");
    let packs = superblock(&volume.dev, "cp_blkaddr");
    for journals in [packs + 1, packs + 513] {
        let zeroed = volume.dev.snapshot();
        zeroed.write(journals, &[&Block::ZERO], META).unwrap();
        assert_eq!(repaired(&zeroed).after.findings, []);
        let v = opened(Arc::new(zeroed));
        for file in &volume.files {
            assert!(content(&v, file.ino) == pages_of(&file.now), "{} as it was", file.name);
        }
    }
}

/// Zeros lie between the end of the content and the next sector, so that the size is right.
#[test]
fn a_sector_of_junk_behind_inline_content_changes_no_size() {
    let bed = Bed::new();
    let dev = load(&bed.filled("tail.img", &[]));
    let (small, at) = (ino(&dev, "small"), node_addr(&dev, ino(&dev, "small")));
    let whole = read_block(&dev, at).unwrap();
    let mut block = whole.clone();
    for (i, byte) in block.0[1024..1536].iter_mut().enumerate() {
        *byte = (i * 7) as u8 | 1;
    }
    dev.write(at, &[&block], META).unwrap();
    assert!(checked(&dev).has(Code::InodeField));
    assert_eq!(repaired(&dev).after.findings, []);
    let (is, was) = (read_block(&dev, node_addr(&dev, small)).unwrap(), &whole.view::<RawInode>());
    let is: &RawInode = is.view();
    assert_eq!((is.i_size, is.i_addr), (was.i_size, was.i_addr));
}
