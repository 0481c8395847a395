//! Addresses with a flipped bit in nodes that have no checksum: the page comes back, and nobody gets another file's.

use crate::common::META;
use crate::medium::{addr_of, checked, node_addr, opened, repaired, superblock};
use medfs::{FileKind, Files, Ino, NewFile, PastDamage, Piece, Volume};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::Block;
use medfs_format::dentry::{Area, AreaLayout};
use medfs_format::node::{RawDirectNode, RawIndirectNode, RawInode};
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Options, repair_without_names};
use medfs_testkit::images::{FEATURE_SETS, formatted};
use rand::{Rng, RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;

const PAGE: usize = 4096;
/// Where the entries of a block begin: behind the bitmap and what is reserved.
const DENTRIES_AT: usize = 30;
/// Pages of each file: some in its inode, some in direct nodes.
const PAGES: usize = 3000;

fn filled(v: &Volume, name: &str, seed: u64) -> (Ino, Vec<u8>) {
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = v.create(v.root(), name.as_bytes(), &new).expect("create").ino;
    let mut content = vec![0; PAGES * PAGE];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut content);
    v.write(ino, 0, &content).expect("write");
    v.release(ino, 1);
    (ino, content)
}

/// A volume of two files.
fn volume() -> (MemDevice, [(Ino, Vec<u8>); 2]) {
    let dev = Arc::new(formatted(128, FEATURE_SETS[0]).snapshot());
    let v = opened(dev.clone());
    let files = [filled(&v, "one", 1), filled(&v, "two", 2)];
    v.close().expect("closed");
    drop(v);
    (dev.snapshot(), files)
}

/// The block of a direct node of a file.
fn direct(dev: &MemDevice, ino: Ino, which: usize) -> u64 {
    let inode = read_block(dev, node_addr(dev, ino)).expect("the inode");
    node_addr(dev, inode.view::<RawInode>().i_nid[which].get())
}

fn read_addr(dev: &MemDevice, node: u64, slot: usize) -> u32 {
    read_block(dev, node).expect("the node").view::<RawDirectNode>().addr[slot].get()
}

fn set_addr(dev: &MemDevice, node: u64, slot: usize, addr: u32) {
    let mut block = read_block(dev, node).expect("the node");
    block.view_mut::<RawDirectNode>().addr[slot] = addr.into();
    dev.write(node, &[&block], META).expect("written");
}

fn content(dev: &MemDevice, ino: Ino) -> Vec<u8> {
    let (v, mut bytes) = (opened(Arc::new(dev.snapshot())), vec![0; PAGES * PAGE]);
    v.read(ino, 0, &mut bytes).expect("it can be read");
    bytes
}

#[test]
fn an_address_with_any_bit_flipped_comes_back() {
    let (dev, [(one, expected), (two, other)]) = volume();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    for bit in 0..32 {
        let dev = dev.snapshot();
        let (node, slot) = (direct(&dev, one, rng.random_range(0..2)), rng.random_range(0..1000));
        let addr = read_addr(&dev, node, slot);
        set_addr(&dev, node, slot, addr ^ 1 << bit);
        let mended = repaired(&dev);
        let told = mended.before.findings.iter().any(|f| f.code == Code::AddressBit);
        assert!(told, "bit {bit} of {addr}: {:?}", mended.before.findings);
        assert_eq!(mended.before.losses, Default::default(), "bit {bit}");
        assert_eq!(checked(&dev).findings, [], "bit {bit} of {addr}");
        assert!(content(&dev, one) == expected && content(&dev, two) == other, "bit {bit} of {addr}");
    }
}

#[test]
fn an_address_that_is_anothers_comes_back_or_becomes_a_hole_where_nothing_knows_it() {
    let (dev, [(one, expected), (two, other)]) = volume();
    let node = direct(&dev, one, 0);
    let right = read_addr(&dev, node, 7);
    set_addr(&dev, node, 7, addr_of(&dev, two, 100) ^ if addr_of(&dev, two, 100) & 1 == 0 { 1 } else { 3 });
    let known = dev.snapshot();
    let mended = repaired(&known);
    assert!(mended.before.has(Code::AddressMissing), "{:?}", mended.before.findings);
    assert!(mended.after.findings.is_empty() && content(&known, one) == expected);
    inject::set(&dev, &Target::Summary(right), "nid", 0).expect("the field is there");
    let mended = repaired(&dev);
    assert!(
        mended.before.has(Code::BlockTwice) && mended.before.losses.blocks == 1,
        "{:?}",
        mended.before.findings
    );
    assert_eq!(checked(&dev).findings, []);
    assert!(content(&dev, two) == other);
}

#[test]
fn who_copies_files_off_a_volume_gets_no_block_of_another_file() {
    let (dev, [(one, expected), (two, other)]) = volume();
    let (node, taken) = (direct(&dev, one, 1), addr_of(&dev, two, 100));
    set_addr(&dev, node, 9, taken);
    let main = superblock(&dev, "main_blkaddr");
    assert!(u64::from(taken) >= main);
    let v = opened(Arc::new(dev.snapshot()));
    for (ino, whole) in [(one, &expected), (two, &other)] {
        let (mut lost, mut wrong) = (Vec::new(), 0);
        PastDamage::of(&v)
            .read(ino, &mut |piece| {
                match piece {
                    Piece::Data(at, bytes) => {
                        wrong += usize::from(whole[at as usize..][..bytes.len()] != *bytes);
                    }
                    Piece::Lost(range, error) => lost.push((range, error.to_string())),
                }
                true
            })
            .expect("it can be read");
        assert_eq!(wrong, 0, "inode {ino}");
        assert_eq!(lost.len(), usize::from(ino == one), "{lost:?}");
        assert!(
            lost.iter()
                .all(|(range, why)| range.end - range.start == 4096 && why.contains("a block of node"))
        );
    }
}

/// The nodes of a file below an inode's third and first double one: an indirect node and a direct one of it are zeros.
#[test]
fn pages_below_two_lost_nodes_are_told_before_a_repair_and_by_a_salvage() {
    let dev = Arc::new(formatted(128, FEATURE_SETS[0]).snapshot());
    let v = opened(dev.clone());
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = v.create(v.root(), b"sparse", &new).expect("create").ino;
    for at in [7700, 9000u64] {
        v.write(ino, at * PAGE as u64, &[7; 3 * PAGE]).expect("write");
    }
    v.close().expect("closed");
    drop(v);
    let indirect = direct(&dev, ino, 2);
    let child = {
        let block = read_block(&*dev, indirect).expect("the node");
        let nids = block.view::<RawIndirectNode>().nid;
        node_addr(&dev, nids.iter().find(|nid| nid.get() != 0).expect("a child").get())
    };
    for node in [indirect, child] {
        dev.write(node, &[&Block::ZERO], META).expect("written");
    }
    let bared = repair_without_names(&dev.snapshot(), &Options::default(), &mut |_| {}).expect("memory");
    let mended = repaired(&*dev);
    assert!(mended.before.losses.blocks > 0 && mended.before.losses.cut == 1, "{:?}", mended.before.losses);
    let cut = |page: u64| {
        let within =
            |cut: &medfs_fsck::Cut| cut.ino == ino && cut.pages.as_ref().is_some_and(|p| p.contains(&page));
        bared.cuts.iter().any(within)
    };
    assert!(cut(7700) && cut(7702) && !cut(9000), "{:?}", bared.cuts);
    assert_eq!(checked(&*dev).findings, []);
}

/// The entry of a file leads to another number: the file itself says where it belongs, and is not lost.
#[test]
fn what_an_entry_with_a_flipped_bit_led_to_is_not_called_lost() {
    let dev = Arc::new(formatted(128, FEATURE_SETS[0]).snapshot());
    let v = opened(dev.clone());
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let dir = NewFile { kind: FileKind::Directory, perm: 0o755, ..new };
    let dir = v.create(v.root(), b"d", &dir).expect("mkdir").ino;
    let inos: Vec<Ino> =
        (0..600).map(|n| v.create(dir, format!("f{n}").as_bytes(), &new).expect("create").ino).collect();
    v.close().expect("closed");
    drop(v);
    let (mut flipped, ino) = (0, inos[7].to_le_bytes());
    for page in 0..64 {
        let addr = u64::from(addr_of(&dev, dir, page));
        if addr < superblock(&dev, "main_blkaddr") || flipped > 0 {
            continue;
        }
        let mut block = read_block(&*dev, addr).expect("entries");
        let area = Area::new(AreaLayout::BLOCK, &mut block.0[..]);
        let Some(slot) =
            (0..area.slots()).find(|&slot| area.in_use(slot) && area.raw(slot).ino.get() == inos[7])
        else {
            continue;
        };
        let at = DENTRIES_AT + slot * 11 + 4;
        assert_eq!(block.0[at..at + 4], ino);
        block.0[at + 3] ^= 0x80;
        dev.write(addr, &[&block], META).expect("written");
        flipped += 1;
    }
    assert_eq!(flipped, 1);
    let mended = repaired(&*dev);
    assert_eq!(
        (mended.before.losses.lost, mended.before.losses.renamed),
        (0, 1),
        "{:?}",
        mended.before.losses
    );
    assert!(mended.before.lost.is_empty());
    let v = opened(dev.clone());
    assert_eq!(v.lookup(dir, b"f7").expect("it is back").ino, inos[7]);
}
