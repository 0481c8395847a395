//! Files whose inode is lost: what is left of them makes them again, in their place or in lost+found.

use crate::common::{META, compressed_volume, updated_clusters};
use crate::medium::{
    SPARSE, addr_of, checked, content, large_files, node_addr, noise, opened, pages_of, repaired, superblock,
    without,
};
use medfs::{FileFlags, FileKind, Files, Ino, NewFile, Volume};
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::node::{RawInode, footer};
use medfs_format::{BLOCK_SIZE, Block};
use medfs_fsck::Code;
use medfs_testkit::delta_volume::{COMPACT, delta_volume};
use medfs_testkit::images::{DELTAS, formatted};
use std::sync::Arc;

/// Of a file whose inode cannot be read, or is another block, its nodes and its own blocks are left: it is
/// there again, under each of its names.
#[test]
fn a_file_whose_inode_is_lost_is_made_of_its_nodes() {
    use medfs_testkit::images::{COMPRESSED, FEATURE_SETS};
    for features in [FEATURE_SETS[0], FEATURE_SETS[1], COMPRESSED[0]] {
        let (dev, [file, sparse]) = large_files(features);
        let dev = Arc::new(dev);
        let v = opened(dev.clone());
        let dir = NewFile { kind: FileKind::Directory, perm: 0o755, umask: 0, uid: 3, gid: 4, rdev: 0 };
        let dir = v.create(v.root(), b"dir", &dir).expect("create").ino;
        v.link(file, dir, b"other name").expect("link");
        v.close().expect("close");
        drop(v);
        let whole = content(&opened(Arc::new(dev.snapshot())), file);
        for damage in 0..3 {
            let addr = node_addr(&dev, file);
            let faulty = without(&dev, addr);
            if damage > 0 {
                let junk = if damage == 1 { Block::ZERO } else { Block([0xa5; BLOCK_SIZE]) };
                faulty.inner().write(addr, &[&junk], META).unwrap();
                faulty.heal();
            }
            let what = format!("{features:?}, damage {damage}");
            let found = checked(&*faulty);
            let told = |f: &medfs_fsck::Finding| {
                f.code == Code::FileRebuilt && f.message.contains("a size up to its last page, 6144000;")
            };
            assert!(found.findings.iter().any(told), "{what}: {:?}", found.findings);
            assert_eq!((found.losses.lost, found.losses.cut), (0, 0), "{what}");
            let done = repaired(&*faulty);
            assert_eq!(done.after.findings, [], "{what}");
            assert_eq!(done.before, found, "{what}: a check tells what a repair does");
            let v = opened(faulty.clone());
            assert!(content(&v, file) == whole, "{what}");
            let attr = v.lookup(v.root(), b"file").expect("it has its name");
            let owner = v.getattr(v.root()).expect("attributes").uid;
            assert_eq!((attr.ino, attr.nlink, attr.perm, attr.uid), (file, 2, 0o600, owner), "{what}");
            assert_eq!(v.lookup(dir, b"other name").expect("and the other one").ino, file, "{what}");
            v.write(file, 2000 * BLOCK_SIZE as u64, b"more").expect("it is a file as any other");
            v.close().expect("close");
            assert_eq!(checked(&*faulty).findings, [], "{what}");
        }
        let faulty = without(&dev, node_addr(&dev, sparse));
        let done = repaired(&*faulty);
        assert_eq!(done.after.findings, [], "{features:?}");
        let v = opened(faulty);
        let size = v.lookup(v.root(), b"sparse").expect("it has its name").size;
        assert_eq!(size, (SPARSE[4] + 2) * BLOCK_SIZE as u64, "{features:?}");
        for page in SPARSE {
            let mut bytes = vec![0; 2 * BLOCK_SIZE];
            v.read(sparse, page * BLOCK_SIZE as u64, &mut bytes).expect("readable");
            assert!(bytes == noise(page, 2 * BLOCK_SIZE), "{features:?}, page {page}");
        }
    }
}

/// Where a summary is lost too, the pages that the inode alone led to are holes, and the finding counts them.
#[test]
fn of_a_file_whose_inode_is_lost_it_is_said_what_is_missing() {
    let (dev, [file, _]) = large_files("");
    let whole = content(&opened(Arc::new(dev.snapshot())), file);
    let segment = (addr_of(&dev, file, 0) - superblock(&dev, "main_blkaddr") as u32) / 512;
    let in_segment = |page: &usize| {
        (addr_of(&dev, file, *page) - superblock(&dev, "main_blkaddr") as u32) / 512 == segment
    };
    let missing = (0..800).filter(in_segment).count();
    assert!(missing > 100, "{missing}");
    let faulty = without(&dev, node_addr(&dev, file));
    let summary = superblock(&dev, "ssa_blkaddr") + u64::from(segment);
    faulty.arm(Fault::on(Kind::Read, Effect::IO).within(summary..summary + 1).until_written());
    let done = repaired(&*faulty);
    let text = format!("; {} bytes at its beginning may be missing", missing * BLOCK_SIZE);
    assert!(
        done.before.findings.iter().any(|f| f.message.contains(&text)),
        "{text}: {:?}",
        done.before.findings
    );
    assert_eq!((done.after.findings.len(), done.before.losses.cut), (0, 1));
    let found = content(&opened(faulty), file);
    assert_eq!(found.len(), whole.len());
    let holes = found.iter().zip(&whole).filter(|(is, was)| is != was).count();
    assert_eq!(holes, missing);
}

/// A device on which these blocks cannot be read until they are written.
fn without_all(dev: &MemDevice, blocks: &[u64]) -> Arc<FaultDevice<MemDevice>> {
    let faulty = Arc::new(FaultDevice::new(dev.snapshot(), 1));
    for &block in blocks {
        faulty.arm(Fault::on(Kind::Read, Effect::IO).within(block..block + 1).until_written());
    }
    faulty
}

/// The inode of a name below lost+found.
fn in_lost_and_found(v: &Volume, name: &str) -> Option<Ino> {
    let home = v.lookup(v.root(), b"lost+found").ok()?.ino;
    v.lookup(home, name.as_bytes()).ok().map(|attr| attr.ino)
}

/// The marks of compressed clusters were in the inode, and so was how they were compressed: their content tells both.
#[test]
fn a_compressed_file_whose_inode_is_lost_is_expanded() {
    for pages in [20, 1200] {
        let (dev, ino, whole) = compressed_volume(pages);
        let faulty = without(&dev, node_addr(&dev, ino));
        let done = repaired(&*faulty);
        assert_eq!(done.after.findings, [], "{pages}");
        assert!(done.before.has(Code::FileRebuilt));
        let v = opened(faulty.clone());
        assert!(content(&v, ino) == pages_of(&whole), "{pages}");
        v.write(ino, 5 * BLOCK_SIZE as u64, &[7; 9000]).expect("it is a file as any other");
        v.close().expect("close");
        assert_eq!(checked(&*faulty).findings, []);
    }
}

/// No node holds part of a cluster, also where none is compressed. Where nothing tells whether a file has clusters, its
/// nodes would lead to other pages, and it does not come back.
#[test]
fn no_page_of_a_file_whose_inode_is_lost_is_another_one() {
    let (dev, _, _) = compressed_volume(20);
    let dev = Arc::new(dev);
    let v = opened(dev.clone());
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = v.create(v.root(), b"noise", &new).expect("create").ino;
    v.set_flags(ino, FileFlags::COMPR).expect("chattr +c");
    let mut state = 7u64;
    let random: Vec<u8> = (0..4 * BLOCK_SIZE)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        })
        .collect();
    for page in [0, 2000] {
        v.write(ino, page * BLOCK_SIZE as u64, &random).expect("write");
    }
    v.close().expect("close");
    drop(v);
    let faulty = without(&dev, node_addr(&dev, ino));
    assert_eq!(repaired(&*faulty).after.findings, []);
    let v = opened(faulty);
    assert!(v.lookup(v.root(), b"noise").is_err(), "{:?}", content(&v, ino).len());
}

/// Pages that had deltas in the lost inode are what the cluster holds; all others are as they were.
#[test]
fn of_a_compressed_file_with_deltas_the_clusters_come_back() {
    let (dev, ino, whole) = updated_clusters(40, &[2, 9]);
    let faulty = without(&dev, node_addr(&dev, ino));
    assert_eq!(repaired(&*faulty).after.findings, []);
    let (found, whole) = (content(&opened(faulty), ino), pages_of(&whole));
    let other: Vec<_> = (0..40).filter(|&page| found[page] != whole[page]).collect();
    assert_eq!(other, [2, 9]);
}

/// A block of a cluster that cannot be read either takes its cluster along, and that is counted.
#[test]
fn a_cluster_that_cannot_be_read_is_cut_off_a_file_whose_inode_is_lost() {
    let (dev, ino, whole) = compressed_volume(40);
    let addr = u64::from(addr_of(&dev, ino, 9));
    let faulty = without_all(&dev, &[node_addr(&dev, ino), addr]);
    assert_eq!(repaired(&*faulty).after.findings, []);
    let (found, whole) = (content(&opened(faulty), ino), pages_of(&whole));
    let other: Vec<_> = (0..40).filter(|&page| found[page] != whole[page]).collect();
    assert_eq!(other, [8, 9, 10, 11]);
    assert!(other.iter().all(|&page| found[page] == Some(vec![0; BLOCK_SIZE])));
}

/// The zone that said that there are compact pages was in the inode: they count all the same.
#[test]
fn updates_in_compact_pages_outlive_the_inode() {
    let made = delta_volume("delta=compact");
    let file = made.file(COMPACT);
    let faulty = without(&made.dev, node_addr(&made.dev, file.ino));
    assert_eq!(repaired(&*faulty).after.findings, []);
    let found = content(&opened(faulty), file.ino);
    let (now, old) = (pages_of(&file.now), pages_of(&file.old));
    let updated = (0..now.len()).filter(|&page| now[page] != old[page]).count();
    let kept = (0..now.len()).filter(|&page| now[page] != old[page] && found[page] == now[page]).count();
    assert!(kept > updated / 2, "{kept} of {updated} updated pages");
    assert!(
        (0..now.len()).all(|page| found[page] == now[page] || found[page] == old[page]),
        "no third content"
    );
}

/// Files of which neither the inode nor the entry is left go to lost+found.
#[test]
fn a_file_whose_inode_and_entry_are_lost_is_in_lost_and_found() {
    let (dev, [file, sparse]) = large_files("");
    let dev = Arc::new(dev);
    let v = opened(dev.clone());
    let new = NewFile { kind: FileKind::Directory, perm: 0o755, umask: 0, uid: 3, gid: 4, rdev: 0 };
    let dir = v.create(v.root(), b"dir", &new).expect("create").ino;
    for (ino, name) in [(file, b"file"), (sparse, b"text")] {
        v.link(ino, dir, name).expect("link");
    }
    v.unlink(v.root(), b"file").expect("unlink");
    v.close().expect("close");
    drop(v);
    let whole = content(&opened(Arc::new(dev.snapshot())), file);
    let faulty = without_all(&dev, &[node_addr(&dev, file), node_addr(&dev, dir)]);
    let found = checked(&*faulty);
    let done = repaired(&*faulty);
    assert_eq!((done.after.findings, done.before.losses), (Vec::new(), found.losses));
    assert_eq!((found.losses.rebuilt, found.losses.nameless), (1, 1));
    let v = opened(faulty);
    assert_eq!(in_lost_and_found(&v, &file.to_string()), Some(file));
    assert!(content(&v, file) == whole);
    assert_eq!(v.getattr(file).expect("attributes").nlink, 1);
}

/// What was no user's file makes none: nothing is left but an empty directory.
#[test]
fn an_empty_directory_whose_inode_and_entry_are_lost_leaves_nothing() {
    let (dev, _) = large_files("");
    let dev = Arc::new(dev);
    let v = opened(dev.clone());
    let new = NewFile { kind: FileKind::Directory, perm: 0o755, umask: 0, uid: 3, gid: 4, rdev: 0 };
    let dir = v.create(v.root(), b"dir", &new).expect("create").ino;
    // So many names that it has a block, and then none.
    for i in 0..200 {
        let ino = v.create(dir, format!("a name as long as this {i}").as_bytes(), &new).expect("create").ino;
        v.release(ino, 1);
    }
    for i in 0..200 {
        v.rmdir(dir, format!("a name as long as this {i}").as_bytes()).expect("rmdir");
    }
    v.close().expect("close");
    drop(v);
    let faulty = without_all(&dev, &[node_addr(&dev, dir), node_addr(&dev, 3)]);
    assert_eq!(repaired(&*faulty).after.findings, []);
    assert_eq!(in_lost_and_found(&opened(faulty), &dir.to_string()), None);
}

/// An indirect node that is lost with the inode is made of the footers of those below it; of a direct one the summaries
/// know the blocks, and where it was is told where one place is left.
#[test]
fn nodes_that_are_lost_with_the_inode_cost_nothing_where_one_place_is_left() {
    let (dev, [file, sparse]) = large_files("");
    let before = opened(Arc::new(dev.snapshot()));
    let (whole, size) = (content(&before, file), before.getattr(sparse).expect("attributes").size);
    let read = |v: &Volume, page: u64| {
        let mut bytes = vec![0; 2 * BLOCK_SIZE];
        v.read(sparse, page * BLOCK_SIZE as u64, &mut bytes).map(|_| bytes).ok()
    };
    let inode = read_block(&dev, node_addr(&dev, sparse)).expect("memory");
    let nids = inode.view::<RawInode>().i_nid.map(|nid| nid.get());
    for (at, nid) in nids.into_iter().enumerate() {
        let faulty = without_all(&dev, &[node_addr(&dev, sparse), node_addr(&dev, nid)]);
        let done = repaired(&*faulty);
        assert_eq!((done.after.findings, done.before.losses.cut), (Vec::new(), 0), "node {at}");
        let v = opened(faulty);
        assert_eq!(v.getattr(sparse).expect("attributes").size, size, "node {at}");
        assert!(SPARSE.iter().all(|&page| read(&v, page) == read(&before, page)), "node {at}");
    }
    let inode = read_block(&dev, node_addr(&dev, file)).expect("memory");
    let nid = inode.view::<RawInode>().i_nid[0].get();
    let faulty = without_all(&dev, &[node_addr(&dev, file), node_addr(&dev, nid)]);
    assert_eq!(repaired(&*faulty).after.findings, []);
    assert!(content(&opened(faulty), file) == whole);
}

/// What was fsynced of a file whose inode is lost is in the log, with the place of the file.
#[test]
fn a_file_whose_entry_and_inode_are_lost_is_taken_from_the_log() {
    let (dev, [file, _]) = large_files("");
    let dev = Arc::new(dev);
    let v = opened(dev.clone());
    v.write(file, 1500 * BLOCK_SIZE as u64, b"fsynced").expect("write");
    v.fsync(file, false).expect("fsync");
    let crashed = dev.snapshot();
    let whole = content(&opened(Arc::new(dev.snapshot())), file);
    drop(v);
    let lost = node_addr(&crashed, file);
    assert_eq!(footer(&read_block(&crashed, lost).expect("memory")).ino.get(), file);
    let faulty = without_all(&crashed, &[lost, node_addr(&crashed, 3)]);
    let done = repaired(&*faulty);
    assert_eq!(done.after.findings, []);
    let v = opened(faulty);
    assert_eq!(v.lookup(v.root(), b"file").expect("its own name").ino, file);
    assert!(content(&v, file) == whole);
}

/// Nothing is lost with the inode of a sparse file among others, of which `syncs` older copies were written.
fn a_sparse_file_without_its_inode(others: &[&[u64]], syncs: usize) {
    let dev = Arc::new(formatted(64, DELTAS).snapshot());
    let v = opened(dev.clone());
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let write = |ino, pages: &[u64]| {
        for &page in pages {
            v.write(ino, page * BLOCK_SIZE as u64, &noise(page, BLOCK_SIZE)).expect("write");
        }
    };
    let make = |name: &str, pages: &[u64]| {
        let ino = v.create(v.root(), name.as_bytes(), &new).expect("create").ino;
        write(ino, pages);
        v.release(ino, 1);
        ino
    };
    for (i, pages) in others.iter().enumerate() {
        make(&format!("other {i}"), pages);
    }
    let pages: Vec<u64> = (0..30).chain([930, 5000, 1_100_000]).collect();
    let sparse = make("sparse", &pages);
    for _ in 0..syncs {
        v.sync().expect("sync");
        write(sparse, &pages[..1]);
    }
    v.close().expect("close");
    drop(v);
    let faulty = without(&dev, node_addr(&dev, sparse));
    assert_eq!(repaired(&*faulty).after.findings, []);
    let v = opened(faulty);
    let size = v.lookup(v.root(), b"sparse").expect("it has its name").size;
    assert_eq!(size, 1_100_001 * BLOCK_SIZE as u64);
    for page in pages {
        let mut bytes = vec![0; BLOCK_SIZE];
        v.read(sparse, page * BLOCK_SIZE as u64, &mut bytes).expect("readable");
        assert!(bytes == noise(page, BLOCK_SIZE), "page {page}");
    }
}

/// How large the area for attributes is depends on the size of a file where there are deltas: those of small files say
/// nothing of a large one, whose pages would all be elsewhere.
#[test]
fn a_sparse_file_among_small_ones_keeps_its_size_without_its_inode() {
    let (large, small) = ((0..500).collect::<Vec<_>>(), [0, 1]);
    let others: Vec<&[u64]> = (0..41).map(|i| if i == 40 { &large } else { &small[..i % 3] }).collect();
    a_sparse_file_without_its_inode(&others, 0);
}

/// Where no other file is large, an older copy of the inode says how it was laid out.
#[test]
fn a_sparse_file_is_laid_out_as_an_older_copy_of_its_inode_was() {
    let small = [0, 1];
    let others: Vec<&[u64]> = (0..40).map(|i| &small[..i % 3]).collect();
    a_sparse_file_without_its_inode(&others, 3);
}
