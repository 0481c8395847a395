//! One flipped bit in what has no checksum: what else is known of it says what it was.

use crate::common::META;
use crate::medium::{addr_of, checked, node_addr, opened, repaired};
use medfs::{FileKind, Files, Ino, NewFile, Volume, XattrMode};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::Block;
use medfs_format::dentry::{Area, AreaLayout};
use medfs_format::node::{RawInode, footer_mut};
use medfs_fsck::{Code, Repair};
use medfs_testkit::images::{FEATURE_SETS, formatted};
use std::sync::Arc;

const PAGE: usize = 4096;
/// Without checksums of inodes.
const PLAIN: &str = FEATURE_SETS[0];

fn make(v: &Volume, dir: Ino, name: &str, kind: FileKind) -> Ino {
    let new = NewFile { kind, perm: 0o644, umask: 0, uid: 3, gid: 4, rdev: 0 };
    let ino = v.create(dir, name.as_bytes(), &new).expect("create").ino;
    v.release(ino, 1);
    ino
}

/// A volume that `fill` has filled, closed.
fn volume<T>(features: &str, fill: impl FnOnce(&Volume) -> T) -> (MemDevice, T) {
    let dev = Arc::new(formatted(64, features).snapshot());
    let v = opened(dev.clone());
    let made = fill(&v);
    v.close().expect("closed");
    drop(v);
    (dev.snapshot(), made)
}

fn change(dev: &MemDevice, addr: u64, change: impl FnOnce(&mut Block)) {
    let mut block = read_block(dev, addr).expect("memory");
    change(&mut block);
    dev.write(addr, &[&block], META).expect("memory");
}

fn change_inode(dev: &MemDevice, ino: Ino, set: impl FnOnce(&mut RawInode)) {
    change(dev, node_addr(dev, ino), |block| set(block.view_mut()));
}

fn costs_nothing(mended: &Repair) {
    assert_eq!(mended.before.losses, Default::default(), "{:?}", mended.before.findings);
    assert_eq!(mended.after.findings, []);
}

fn pages(tag: u8, count: usize) -> Vec<u8> {
    (0..count * PAGE).map(|at| (at / PAGE) as u8 ^ tag).collect()
}

fn content(dev: &MemDevice, ino: Ino) -> Vec<u8> {
    let v = opened(Arc::new(dev.snapshot()));
    let mut bytes = vec![0; v.getattr(ino).expect("there").size as usize];
    v.read(ino, 0, &mut bytes).expect("readable");
    bytes
}

/// Another kind that is one: the entry has a number for it that no single bit leads to.
#[test]
fn a_file_does_not_become_a_link_by_one_bit_nor_a_link_a_file() {
    let (dev, [file, link]) = volume(PLAIN, |v| {
        let file = make(v, v.root(), "file", FileKind::Regular);
        v.write(file, 0, b"short").expect("write");
        let link = v.symlink(v.root(), b"link", b"file", 3, 4).expect("a link").ino;
        v.release(link, 1);
        [file, link]
    });
    for (ino, kind) in [(file, FileKind::Regular), (link, FileKind::Symlink)] {
        let dev = dev.snapshot();
        change_inode(&dev, ino, |inode| inode.i_mode = (inode.i_mode.get() ^ 0o020000).into());
        let mended = repaired(&dev);
        costs_nothing(&mended);
        assert!(mended.before.has(Code::Inode), "{:?}", mended.before.findings);
        assert_eq!(opened(Arc::new(dev)).getattr(ino).expect("there").kind, kind);
    }
}

#[test]
fn a_node_of_attributes_is_found_whose_number_has_a_flipped_bit() {
    let (dev, ino) = volume(PLAIN, |v| {
        let ino = make(v, v.root(), "file", FileKind::Regular);
        v.setxattr(ino, b"user.long", &[7; 3000], XattrMode::Set).expect("an attribute");
        ino
    });
    let nid = read_block(&dev, node_addr(&dev, ino)).expect("memory").view::<RawInode>().i_xattr_nid.get();
    assert_ne!(nid, 0, "it needs a node");
    change_inode(&dev, ino, |inode| inode.i_xattr_nid = (nid ^ 0x4000).into());
    costs_nothing(&repaired(&dev));
    let v = opened(Arc::new(dev));
    assert_eq!(v.getxattr(ino, b"user.long").expect("it is there"), [7; 3000]);
}

/// The kernel does not look at the magic, and shows what is behind it.
#[test]
fn attributes_behind_another_magic_are_whole() {
    for (name, value) in [(&b"user.short"[..], vec![7; 20]), (b"user.long", vec![7; 3000])] {
        let (dev, ino) = volume(PLAIN, |v| {
            let ino = make(v, v.root(), "file", FileKind::Regular);
            v.setxattr(ino, name, &value, XattrMode::Set).expect("an attribute");
            ino
        });
        let magic = |block: &Block| {
            let magic = medfs_format::xattr::XATTR_MAGIC.to_le_bytes();
            block.0.windows(4).position(|bytes| bytes == magic).expect("in the inode")
        };
        for change in [4, 0xff] {
            let dev = dev.snapshot();
            let at = node_addr(&dev, ino);
            let mut block = read_block(&dev, at).expect("memory");
            let magic = magic(&block);
            block.0[magic] ^= change;
            dev.write(at, &[&block], META).expect("memory");
            let v = opened(Arc::new(dev.snapshot()));
            assert_eq!(v.getxattr(ino, name).expect("it is there"), value);
            let mended = repaired(&dev);
            assert!(mended.before.has(Code::Xattr), "{:?}", mended.before.findings);
            costs_nothing(&mended);
        }
    }
}

/// No bit in the number of links explains it: a name is lost, and the file keeps another one.
#[test]
fn a_name_that_a_repair_leaves_out_is_counted_before() {
    for features in FEATURE_SETS {
        let (dev, (dir, ino)) = volume(features, |v| {
            let dir = make(v, v.root(), "dir", FileKind::Directory);
            let ino = make(v, v.root(), "file", FileKind::Regular);
            for i in 0..70 {
                make(v, dir, &format!("other file number {i}"), FileKind::Regular);
            }
            v.link(ino, dir, b"second name").expect("a name");
            v.release(ino, 1);
            (dir, ino)
        });
        for page in 0.. {
            let at = u64::from(addr_of(&dev, dir, page));
            assert_ne!(at, 0, "no page has the name");
            let mut block = read_block(&dev, at).expect("memory");
            let area = Area::new(AreaLayout::BLOCK, &block.0[..]);
            let Some(slot) = area.find(b"second name", 0).expect("sound").map(|entry| entry.slot) else {
                continue;
            };
            // Its bit in the map of those in use.
            block.0[slot / 8] ^= 1 << (slot % 8);
            dev.write(at, &[&block], META).expect("memory");
            break;
        }
        let found = checked(&dev);
        assert_eq!(found.losses.names, 1, "{features:?}: {:?}", found.findings);
        assert_eq!(repaired(&dev).after.findings, []);
        assert_eq!(opened(Arc::new(dev)).getattr(ino).expect("there").nlink, 1);
    }
}

/// An entry whose hash, number and length are another directory's, under a name that is cut: it is none more of a file
/// that has all its names.
#[test]
fn an_entry_cut_of_two_gives_a_file_with_several_links_no_name() {
    let (dev, (dir, many, one)) = volume(PLAIN, |v| {
        let dir = make(v, v.root(), "dir", FileKind::Directory);
        let many = make(v, v.root(), "many", FileKind::Regular);
        v.link(many, v.root(), b"more").expect("a name");
        v.release(many, 1);
        let one = make(v, dir, "level", FileKind::Regular);
        v.write(one, 0, &pages(5, 3)).expect("write");
        (dir, many, one)
    });
    let at = node_addr(&dev, dir);
    change(&dev, at, |block| {
        let range = block.view::<RawInode>().slots(false).inline_content_range();
        let bytes = &mut block.0[range];
        let layout = AreaLayout::inline(bytes.len());
        let slot = Area::new(layout, &*bytes).find(b"level", 0).expect("sound").expect("there").slot;
        let entry = &mut bytes[layout.entry_at(slot)..];
        entry[..4].copy_from_slice(&0x1234_5678u32.to_le_bytes());
        entry[4..8].copy_from_slice(&many.to_le_bytes());
        entry[8..10].copy_from_slice(&4u16.to_le_bytes());
    });
    let mended = repaired(&dev);
    assert!(mended.before.has(Code::DentryForeign), "{:?}", mended.before.findings);
    assert_eq!(mended.after.findings, []);
    let v = opened(Arc::new(dev.snapshot()));
    assert_eq!(v.getattr(many).expect("there").nlink, 2);
    assert_eq!(v.lookup(dir, b"level").expect("its name").ino, one);
    v.release(one, 1);
    assert!(v.lookup(dir, b"leve").is_err());
    drop(v);
    assert!(content(&dev, one) == pages(5, 3));
}

/// The sector of the footer is that of a lost inode: the NAT knows the block as another one's, and the log that was
/// being written has no summaries.
#[test]
fn a_block_with_the_footer_of_a_lost_inode_is_not_taken_for_it() {
    for features in FEATURE_SETS {
        let (dev, files) = volume(features, |v| {
            [1, 2].map(|tag| {
                let ino = make(v, v.root(), &format!("file{tag}"), FileKind::Regular);
                v.write(ino, 0, &pages(tag, 3)).expect("write");
                ino
            })
        });
        let [lost, other] = files.map(|ino| node_addr(&dev, ino));
        change(&dev, other, |block| {
            let numbers = footer_mut(block);
            (numbers.nid, numbers.ino) = (files[0].into(), files[0].into());
        });
        change(&dev, lost, |block| *block = Block::ZERO);
        let mended = repaired(&dev);
        assert_eq!(mended.after.findings, [], "{features:?}");
        for (ino, tag) in files.into_iter().zip([1, 2]) {
            assert!(content(&dev, ino) == pages(tag, 3), "{features:?}, {tag}: {:?}", mended.before.findings);
        }
    }
}

/// An inode without a checksum names blocks of another one, and no summary is left that says whose they are.
#[test]
fn an_inode_that_names_more_than_it_counts_takes_no_block_of_another_one() {
    let (dev, files) = volume(PLAIN, |v| {
        [(1, 100), (2, 700)].map(|(tag, count)| {
            let ino = make(v, v.root(), &format!("file{tag}"), FileKind::Regular);
            v.write(ino, 0, &pages(tag, count)).expect("write");
            ino
        })
    });
    let [small, large] = files.map(|ino| node_addr(&dev, ino));
    let theirs = read_block(&dev, large).expect("memory");
    change(&dev, small, |block| block.0[2048..2560].copy_from_slice(&theirs.0[2048..2560]));
    let g = {
        let block = read_block(&dev, 0).expect("memory");
        medfs_format::superblock::RawSuperblock::in_block(&block).validate().expect("a volume")
    };
    for segno in 0..g.segment_count_main {
        dev.write(g.ssa_block(segno).into(), &[&Block::ZERO], META).expect("memory");
    }
    for pack in [0, 1] {
        // Behind the head of each, up to its end: what is kept there of the logs.
        let head = u64::from(g.cp_pack(pack));
        let cp = read_block(&dev, head).expect("memory");
        let cp = medfs_format::checkpoint::RawCheckpoint::in_block(&cp);
        let end = head + u64::from(cp.cp_pack_total_block_count.get()) - 1;
        for at in head + u64::from(cp.cp_pack_start_sum.get())..end {
            dev.write(at, &[&Block::ZERO], META).expect("memory");
        }
    }
    let mended = repaired(&dev);
    assert_eq!(mended.after.findings, []);
    for (ino, tag, count) in [(files[0], 1, 100), (files[1], 2, 700)] {
        assert!(content(&dev, ino) == pages(tag, count), "{tag}: {:?}", mended.before.findings);
    }
}
