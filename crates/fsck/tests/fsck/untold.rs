//! Losses that a check has to tell before a repair makes them final, where no entry leads to what is lost any more; and
//! what speaks for names, lengths and places that a repair must not write over.

use crate::common::META;
use crate::medium::{addr_of, checked, node_addr, opened, repaired, superblock};
use crate::torn::{PAGES, content, costs_nothing, nodes, same, volume};
use medfs::{FileKind, Files, Ino, NewFile, Volume};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::Block;
use medfs_format::node::RawInode;
use medfs_fsck::Code;
use medfs_testkit::images::{FEATURE_SETS, formatted};
use std::collections::BTreeSet;
use std::sync::Arc;

fn make(v: &Volume, dir: Ino, name: &str, kind: FileKind) -> Ino {
    let new = NewFile { kind, perm: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = v.create(dir, name.as_bytes(), &new).expect("create").ino;
    if kind == FileKind::Regular {
        v.write(ino, 0, name.as_bytes()).expect("write");
    }
    ino
}

/// A volume that this makes, closed.
fn made<T>(features: &str, make: impl FnOnce(&Volume) -> T) -> (MemDevice, T) {
    let dev = Arc::new(formatted(128, features).snapshot());
    let v = opened(dev.clone());
    let found = make(&v);
    v.close().expect("closed");
    drop(v);
    (dev.snapshot(), found)
}

fn erase(dev: &MemDevice, blocks: &[u64]) {
    blocks.iter().for_each(|&block| dev.write(block, &[&Block::ZERO], META).expect("memory"));
}

/// Changes an inode, whose checksum is not made anew.
fn change(dev: &MemDevice, ino: Ino, change: impl FnOnce(&mut RawInode)) {
    let at = node_addr(dev, ino);
    let mut block = read_block(dev, at).expect("memory");
    change(block.view_mut());
    dev.write(at, &[&block], META).expect("memory");
}

/// A directory of three hundred files in blocks, and two of its files.
fn many(v: &Volume) -> (Ino, Vec<Ino>) {
    let dir = make(v, v.root(), "many", FileKind::Directory);
    let files = (0..300).map(|n| make(v, dir, &format!("a file with a longish name {n}"), FileKind::Regular));
    (dir, files.collect())
}

#[test]
fn without_a_root_what_else_is_lost_is_told() {
    for features in FEATURE_SETS {
        let (dev, (root, gone)) = made(features, |v| {
            let d = make(v, v.root(), "d", FileKind::Directory);
            make(v, d, "kept", FileKind::Regular);
            (v.root(), make(v, d, "gone", FileKind::Regular))
        });
        erase(&dev, &[root, gone].map(|ino| node_addr(&dev, ino)));
        let mended = repaired(&dev);
        let (before, findings) = (&mended.before, &mended.before.findings);
        let lost: Vec<&[u8]> = before.lost.iter().map(|lost| &lost.path[..]).collect();
        assert_eq!(
            (before.losses.lost, &lost[..]),
            (1, &[&b"/d/gone"[..]][..]),
            "{features:?}: {findings:?}"
        );
        assert_eq!((before.files(), mended.after.findings.len()), (1, 0), "{features:?}: {findings:?}");
    }
}

#[test]
fn files_that_are_lost_with_what_led_to_them_are_counted_and_named() {
    for features in FEATURE_SETS {
        let (dev, (dir, files)) = made(features, many);
        let blocks: Vec<u64> =
            (0..6).map(|page| addr_of(&dev, dir, page)).filter(|a| *a > 1).map(Into::into).collect();
        let inodes = |range: std::ops::Range<usize>| files[range].iter().map(|&ino| node_addr(&dev, ino));
        let lost_of = |dev: &MemDevice| {
            let mended = repaired(dev);
            assert_eq!(mended.after.findings, [], "{features:?}: {:?}", mended.before.findings);
            let before = mended.before;
            (before.losses.lost, before.lost.into_iter().map(|lost| lost.path).collect::<BTreeSet<_>>())
        };
        // The inodes, and the blocks that name them.
        let struck = dev.snapshot();
        erase(&struck, &blocks);
        erase(&struck, &inodes(10..20).collect::<Vec<_>>());
        let (count, paths) = lost_of(&struck);
        let nameless = format!("inode {}", files[10]).into_bytes();
        assert_eq!((count, paths.len(), paths.contains(&nameless)), (10, 10, true), "{features:?}");
        // The inodes, and that of the directory, whose blocks are left.
        let struck = dev.snapshot();
        erase(&struck, &[node_addr(&dev, dir)]);
        erase(&struck, &inodes(10..20).collect::<Vec<_>>());
        let (count, paths) = lost_of(&struck);
        let named = (10..20).map(|n| format!("/many/a file with a longish name {n}").into_bytes());
        assert_eq!((count, paths), (10, named.collect()), "{features:?}");
    }
}

#[test]
fn a_link_below_a_lost_directory_that_lost_its_target_too_is_told() {
    for features in FEATURE_SETS {
        let (dev, (dir, link)) = made(features, |v| {
            let (dir, _) = many(v);
            (dir, v.symlink(dir, b"long", &[b'x'; 3900], 0, 0).expect("symlink").ino)
        });
        let target = u64::from(addr_of(&dev, link, 0));
        let blocks = (0..6).map(|page| u64::from(addr_of(&dev, dir, page))).filter(|addr| *addr > 1);
        erase(&dev, &blocks.chain([target]).collect::<Vec<_>>());
        let mended = repaired(&dev);
        let lost: Vec<_> = mended.before.lost.iter().map(|lost| lost.path.clone()).collect();
        assert_eq!((lost, mended.after.findings.len()), (vec![b"/many/long".to_vec()], 0), "{features:?}");
    }
}

/// The hash of an entry and the inode agree on the name, which the entry itself has lost.
#[test]
fn a_name_that_hash_and_inode_know_comes_back() {
    for features in FEATURE_SETS {
        let (dev, (dir, files)) = made(features, many);
        let block =
            (0..6).map(|page| u64::from(addr_of(&dev, dir, page))).find(|addr| *addr > 1).expect("a block");
        let was = read_block(&dev, block).expect("memory");
        let name = b"a file with a longish name ";
        let at = was.0.windows(name.len()).position(|bytes| bytes == name).expect("a name");
        let wrong = b"a FILE with a longish NAME";
        let mut changed = was.clone();
        changed.0[at..at + wrong.len()].copy_from_slice(wrong);
        dev.write(block, &[&changed], META).expect("memory");
        let mended = repaired(&dev);
        assert_eq!((mended.before.losses.lost, mended.after.findings.len()), (0, 0), "{features:?}");
        let v = opened(Arc::new(dev));
        for (n, &ino) in files.iter().enumerate() {
            let found = v.lookup(dir, format!("a file with a longish name {n}").as_bytes());
            assert_eq!(
                found.map(|attr| attr.ino).ok(),
                Some(ino),
                "{features:?}: {:?}",
                mended.before.findings
            );
        }
    }
}

#[test]
fn the_length_of_a_link_and_its_target_tell_which_is_wrong() {
    for features in FEATURE_SETS {
        let long = [b'x'; 3900];
        let (dev, link) = made(features, |v| v.symlink(v.root(), b"link", &long, 0, 0).expect("symlink").ino);
        for size in [0, 8192, 3900 ^ 8, 1 << 40] {
            let dev = dev.snapshot();
            change(&dev, link, |inode| inode.i_size = size.into());
            let mended = repaired(&dev);
            assert!(!mended.before.is_clean() && mended.after.findings.is_empty(), "{features:?}, {size}");
            assert_eq!(opened(Arc::new(dev)).readlink(link).expect("a link"), long, "{features:?}, {size}");
        }
        for lost in [512..4096, 1024..1536] {
            let dev = dev.snapshot();
            let at = u64::from(addr_of(&dev, link, 0));
            let mut block = read_block(&dev, at).expect("memory");
            block.0[lost.clone()].fill(0);
            dev.write(at, &[&block], META).expect("memory");
            let mended = repaired(&dev);
            assert_eq!(
                (mended.before.losses.lost, mended.after.findings.len()),
                (1, 0),
                "{features:?}, {lost:?}"
            );
        }
    }
}

/// A sector ends where the target does: what is behind it is lost, whatever the length is.
#[test]
fn a_target_that_ends_with_a_sector_is_cut() {
    for features in FEATURE_SETS {
        let dir = |v: &Volume| v.symlink(v.root(), b"link", &[b'x'; 3840], 0, 0).expect("symlink").ino;
        let (dev, link) = made(features, dir);
        let at = u64::from(addr_of(&dev, link, 0));
        let mut block = read_block(&dev, at).expect("memory");
        block.0[3584..].fill(0); // one bit of 3840 makes it 3584
        dev.write(at, &[&block], META).expect("memory");
        assert_eq!(repaired(&dev).before.losses.lost, 1, "{features:?}");
    }
}

/// The level and the addresses of a directory are junk, as a lost sector leaves them: its names stay in their places.
#[test]
fn a_directory_with_a_level_that_no_name_fits_keeps_its_names() {
    for features in FEATURE_SETS {
        let (dev, (dir, files)) = made(features, many);
        for level in [248, 20] {
            let dev = dev.snapshot();
            let named: Vec<u32> =
                (0..6).map(|page| addr_of(&dev, dir, page)).filter(|addr| *addr > 1).collect();
            change(&dev, dir, |inode| {
                inode.i_dir_level = level;
                let slots = inode.i_addr.iter_mut().filter(|addr| named.contains(&addr.get()));
                slots.for_each(|addr| *addr = 266_126_404.into());
            });
            let mended = repaired(&dev);
            assert_eq!(mended.after.findings, [], "{features:?}, {level}: {:?}", mended.before.findings);
            let v = opened(Arc::new(dev));
            for (n, &ino) in files.iter().enumerate() {
                let found = v.lookup(dir, format!("a file with a longish name {n}").as_bytes());
                assert_eq!(found.map(|attr| attr.ino).ok(), Some(ino), "{features:?}, {level}: {n}");
            }
        }
    }
}

/// Pointers of an inode a segment apart that are exchanged look as exchanged summaries do.
#[test]
fn addresses_a_segment_apart_come_back() {
    for features in FEATURE_SETS {
        let (dev, [(one, expected), _]) = volume(features);
        change(&dev, one, |inode| {
            let first = inode.extra().map_or(0, |extra| usize::from(extra.i_extra_isize.get()) / 4);
            inode.i_addr.swap(first + 5, first + 517);
        });
        let mended = repaired(&dev);
        same(&content(&dev, one, PAGES), &expected, features, &mended);
    }
}

/// Without the root, its entry tells what the damaged inode of a link was.
#[test]
fn a_link_without_its_first_sector_below_a_lost_root_is_the_same_to_check_and_repair() {
    for features in FEATURE_SETS {
        let (dev, (root, link)) = made(features, |v| {
            let d = make(v, v.root(), "d", FileKind::Directory);
            make(v, d, "kept", FileKind::Regular);
            (v.root(), v.symlink(d, b"link", b"somewhere", 0, 0).expect("symlink").ino)
        });
        for byte in [0, 0x6D] {
            let dev = dev.snapshot();
            erase(&dev, &[node_addr(&dev, root)]);
            let at = node_addr(&dev, link);
            let mut block = read_block(&dev, at).expect("memory");
            block.0[..512].fill(byte);
            dev.write(at, &[&block], META).expect("memory");
            let mended = repaired(&dev);
            let (before, after) = (&mended.before, &mended.after);
            assert_eq!(after.findings, [], "{features:?}: {:?}", before.findings);
            // Without checksums junk may pass for another kind of inode.
            assert!(before.losses.lost == 1 || byte != 0, "{features:?}: {:?}", before.findings);
            assert_eq!(after.files(), before.files(), "{features:?}, {byte:#x}");
        }
    }
}

/// Two blocks of summaries in each other's places, of segments that one file fills: the file is right.
#[test]
fn summaries_that_are_exchanged_move_no_block() {
    for features in FEATURE_SETS {
        let (dev, [(one, expected), (two, other)]) = volume(features);
        let main = superblock(&dev, "main_blkaddr");
        let summaries = superblock(&dev, "ssa_blkaddr");
        let direct = read_block(&dev, nodes(&dev, one)[1]).expect("memory");
        let addrs = &direct.view::<medfs_format::node::RawDirectNode>().addr;
        let segments: BTreeSet<u64> = addrs.iter().map(|addr| (u64::from(addr.get()) - main) / 512).collect();
        assert!(segments.len() > 1, "{segments:?}");
        let segments: Vec<u64> = segments.into_iter().collect();
        for pair in segments.windows(2) {
            let dev = dev.snapshot();
            let [a, b] = [pair[0], pair[1]].map(|segno| summaries + segno);
            let [of_a, of_b] = [a, b].map(|at| read_block(&dev, at).expect("memory"));
            dev.write(a, &[&of_b], META).expect("memory");
            dev.write(b, &[&of_a], META).expect("memory");
            assert!(checked(&dev).has(Code::SsaOwner), "{pair:?}");
            let mended = repaired(&dev);
            costs_nothing(&mended, &format!("{features:?}, {pair:?}"));
            same(&content(&dev, one, PAGES), &expected, "one", &mended);
            same(&content(&dev, two, PAGES), &other, "two", &mended);
        }
    }
}
