//! Fields that no checksum covers: sizes, extended attributes, entries of directories that ignore case, and the mark of
//! encryption. One bit comes back, and what none explains is told before a repair settles it.

use crate::common::{Bed, META, load};
use crate::medium::{ino, node_addr, opened, repaired};
use crate::torn::costs_nothing;
use medfs::{FileKind, Files, Ino, NewFile, PastDamage, Volume, XattrMode};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::Block;
use medfs_format::node::{FileFlags, Inline, RawInode};
use medfs_format::xattr::{HEADER_SIZE, XATTR_MAGIC};
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Losses};
use medfs_testkit::images::formatted;
use std::sync::Arc;
use zerocopy::IntoBytes;

const PLAIN: &str = "";

/// A plain volume with a file that this fills.
fn with_file(fill: impl FnOnce(&Volume, Ino)) -> (MemDevice, Ino) {
    let dev = Arc::new(formatted(128, PLAIN).snapshot());
    let v = opened(dev.clone());
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = v.create(v.root(), b"file", &new).expect("create").ino;
    fill(&v, ino);
    v.release(ino, 1);
    v.close().expect("closed");
    drop(v);
    (dev.snapshot(), ino)
}

/// The same, with a file of this content.
fn with_content(content: &[u8]) -> (MemDevice, Ino) {
    with_file(|v, ino| assert_eq!(v.write(ino, 0, content).expect("write"), content.len()))
}

/// A copy with another inode block of a file.
fn changed(dev: &MemDevice, ino: Ino, change: impl FnOnce(&mut Block)) -> MemDevice {
    let dev = dev.snapshot();
    let at = node_addr(&dev, ino);
    let mut block = read_block(&dev, at).expect("memory");
    change(&mut block);
    dev.write(at, &[&block], META).expect("memory");
    dev
}

fn with_size(dev: &MemDevice, ino: Ino, size: u64) -> MemDevice {
    changed(dev, ino, |block| block.view_mut::<RawInode>().i_size = size.into())
}

fn size_of(dev: &MemDevice, ino: Ino) -> u64 {
    let block = read_block(dev, node_addr(dev, ino)).expect("memory");
    block.view::<RawInode>().i_size.get()
}

fn doubted(count: u64) -> Losses {
    Losses { doubted: count, ..Losses::default() }
}

#[test]
fn a_size_that_lost_a_bit_comes_back() {
    let size: u64 = 5 << 20 | 1 << 16 | 3 << 13 | 100;
    let (dev, ino) = with_content(&vec![b'x'; size as usize]);
    for bit in [13, 16, 22] {
        let dev = with_size(&dev, ino, size ^ 1 << bit);
        let mended = repaired(&dev);
        costs_nothing(&mended, &format!("bit {bit}"));
        assert!(mended.before.has(Code::InodeField), "{:?}", mended.before.findings);
        assert_eq!(size_of(&dev, ino), size);
    }
    // What no bit explains stays, and is told.
    let dev = with_size(&dev, ino, 12_345);
    let mended = repaired(&dev);
    assert_eq!(mended.before.losses, doubted(1), "{:?}", mended.before.findings);
    assert_eq!((mended.after.findings, size_of(&dev, ino)), (vec![], 12_345));
}

#[test]
fn a_size_that_no_file_has_becomes_one_up_to_the_last_page() {
    let size: usize = 5 << 20;
    let (dev, ino) = with_content(&vec![b'x'; size]);
    for junk in [1 << 62, u64::MAX, 0x6D6D_6D6D_6D6D_6D6D] {
        let dev = with_size(&dev, ino, junk);
        let mended = repaired(&dev);
        assert_eq!(mended.before.losses, doubted(1), "{junk:#x}: {:?}", mended.before.findings);
        assert_eq!((mended.after.findings, size_of(&dev, ino)), (vec![], size as u64), "{junk:#x}");
    }
    let dev = with_size(&dev, ino, size as u64 | 1 << 53);
    costs_nothing(&repaired(&dev), "one bit");
    assert_eq!(size_of(&dev, ino), size as u64);
}

#[test]
fn the_size_of_inline_content_loses_the_bit_that_does_not_fit() {
    let (dev, ino) = with_content(b"eleven byte");
    for bit in [12, 20, 40, 63] {
        let dev = with_size(&dev, ino, 11 | 1 << bit);
        costs_nothing(&repaired(&dev), &format!("bit {bit}"));
        assert_eq!(size_of(&dev, ino), 11);
    }
    let dev = with_size(&dev, ino, 0x1234_5678);
    let mended = repaired(&dev);
    assert_eq!(mended.before.losses, doubted(1), "{:?}", mended.before.findings);
    assert_eq!(mended.after.findings, []);
}

#[test]
fn the_size_of_inline_content_gets_back_the_bit_that_it_lost() {
    let (dev, ino) = with_content(&[b'x'; 1200]);
    for bit in [4, 5, 7, 10] {
        let dev = with_size(&dev, ino, 1200 ^ 1 << bit);
        let mended = repaired(&dev);
        costs_nothing(&mended, &format!("bit {bit}"));
        assert!(mended.before.has(Code::InodeField), "{:?}", mended.before.findings);
        assert_eq!(size_of(&dev, ino), 1200);
    }
}

#[test]
fn a_bit_behind_inline_content_changes_no_size() {
    for len in [0, 11, 97, 485, 970] {
        let (dev, ino) = with_content(&vec![b'x'; len]);
        for behind in [0, 1, 30, 700] {
            let dev = changed(&dev, ino, |block| {
                let inode: &mut RawInode = block.view_mut();
                let range = inode.slots(false).inline_content_range();
                inode.as_mut_bytes()[range][len + behind] ^= 0x20;
            });
            let mended = repaired(&dev);
            costs_nothing(&mended, &format!("{len} bytes, {behind} behind them"));
            assert!(mended.before.has(Code::InodeField), "{:?}", mended.before.findings);
            assert_eq!(size_of(&dev, ino), len as u64);
        }
    }
}

/// Attributes are no addresses that speak against those of blocks.
#[test]
fn a_file_of_a_few_blocks_with_attributes_is_not_taken_for_an_inline_one() {
    let content = vec![b'x'; 9000];
    let (dev, ino) = with_file(|v, ino| {
        v.write(ino, 0, &content).expect("write");
        v.setxattr(ino, b"security.selinux", b"u:object_r:system_file:s0", XattrMode::Set).expect("a label");
    });
    let dev = changed(&dev, ino, |block| block.view_mut::<RawInode>().i_inline |= Inline::DATA.bits());
    costs_nothing(&repaired(&dev), "inline data");
    let mut bytes = vec![0; content.len()];
    assert_eq!(opened(Arc::new(dev)).read(ino, 0, &mut bytes).expect("it can be read"), bytes.len());
    assert!(bytes == content);
}

/// A count of a file that is pinned no more, and a flag that old kernels let users set, are no faults.
#[test]
fn what_other_kernels_leave_is_sound() {
    let (dev, ino) = with_content(b"content");
    for change in [
        |inode: &mut RawInode| inode.i_current_depth = 1.into(),
        |inode: &mut RawInode| inode.i_flags = FileFlags::COMPR.bits().into(),
    ] {
        let dev = changed(&dev, ino, |block| change(block.view_mut()));
        assert_eq!(repaired(&dev).before.findings, []);
    }
}

/// Where the attributes of an inode begin.
fn attributes(block: &Block) -> usize {
    let magic = XATTR_MAGIC.to_le_bytes();
    block.0.windows(4).position(|bytes| bytes == magic).expect("in the inode")
}

#[test]
fn junk_in_place_of_attributes_costs_them() {
    let (dev, ino) =
        with_file(|v, ino| v.setxattr(ino, b"user.a", b"value", XattrMode::Set).expect("an attribute"));
    let dev = changed(&dev, ino, |block| {
        let start = attributes(block);
        block.0[start..start + 200]
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = (at as u8).wrapping_mul(7) | 1);
    });
    let mended = repaired(&dev);
    let expected = Losses { attributes: 1, ..Losses::default() };
    assert_eq!(mended.before.losses, expected, "{:?}", mended.before.findings);
    assert!(mended.before.has(Code::Xattr) && mended.after.findings.is_empty());
}

#[test]
fn a_bit_in_an_empty_place_of_attributes_costs_none() {
    let (dev, ino) = with_content(b"no attributes");
    let block = read_block(&dev, node_addr(&dev, ino)).expect("memory");
    let inode: &RawInode = block.view();
    assert!(inode.inline().contains(Inline::XATTR), "it has a place for them");
    assert_eq!(inode.as_bytes()[inode.slots(false).inline_xattr_range()], [0; 200]);
    for at in [0, 4, 24, 132] {
        let dev = changed(&dev, ino, |block| {
            let inode: &mut RawInode = block.view_mut();
            let range = inode.slots(false).inline_xattr_range();
            inode.as_mut_bytes()[range][at] ^= 0x10;
        });
        let v = opened(Arc::new(dev.snapshot()));
        assert!(!PastDamage::of(&v).has_junk_for_attributes(ino).expect("it reads"), "byte {at}");
        let mended = repaired(&dev);
        costs_nothing(&mended, &format!("byte {at}"));
        assert!(mended.before.has(Code::Xattr), "{:?}", mended.before.findings);
        assert!(opened(Arc::new(dev)).listxattr(ino).expect("it reads").is_empty());
    }
}

#[test]
fn the_length_of_the_name_of_an_attribute_comes_back() {
    let name = b"trusted.a";
    let (dev, ino) = with_file(|v, ino| {
        v.setxattr(ino, name, b"b", XattrMode::Set).expect("an attribute");
        v.setxattr(ino, b"trusted.other", b"more", XattrMode::Set).expect("an attribute");
    });
    for bit in [2, 4] {
        let dev = changed(&dev, ino, |block| {
            let entry = attributes(block) + HEADER_SIZE;
            block.0[entry + 1] ^= 1 << bit;
        });
        let mended = repaired(&dev);
        costs_nothing(&mended, &format!("bit {bit}"));
        assert!(mended.before.has(Code::Xattr), "{:?}", mended.before.findings);
        let v = opened(Arc::new(dev));
        assert_eq!(v.getxattr(ino, name).expect("it is there"), b"b");
        assert_eq!(v.getxattr(ino, b"trusted.other").expect("it is there"), b"more");
    }
}

#[test]
fn a_bit_behind_the_attributes_costs_none_of_them() {
    let (dev, ino) = with_file(|v, ino| {
        v.setxattr(ino, b"user.name", b"value", XattrMode::Set).expect("an attribute");
        v.setxattr(ino, b"user.other", b"more", XattrMode::Set).expect("an attribute");
    });
    for behind in [60, 95, 140] {
        let dev = changed(&dev, ino, |block| {
            let start = attributes(block);
            block.0[start + behind] ^= 0x40;
        });
        let mended = repaired(&dev);
        costs_nothing(&mended, &format!("byte {behind}"));
        assert!(mended.before.has(Code::Xattr), "{:?}", mended.before.findings);
        let v = opened(Arc::new(dev));
        assert_eq!(v.getxattr(ino, b"user.name").expect("it is there"), b"value");
        assert_eq!(v.getxattr(ino, b"user.other").expect("it is there"), b"more");
    }
}

#[test]
fn of_two_attributes_of_one_name_the_second_gets_another() {
    let (dev, ino) = with_file(|v, ino| {
        v.setxattr(ino, b"user.name0", b"first", XattrMode::Set).expect("an attribute");
        v.setxattr(ino, b"user.name1", b"second", XattrMode::Set).expect("an attribute");
        v.setxattr(ino, b"security.a", b"first", XattrMode::Set).expect("an attribute");
        v.setxattr(ino, b"security.b", b"second", XattrMode::Set).expect("an attribute");
    });
    let flip = |names: &[(&[u8], u8)]| {
        changed(&dev, ino, |block| {
            for &(entry, bit) in names {
                let at = block.0.windows(entry.len()).position(|bytes| bytes == entry).expect("it is there");
                block.0[at + entry.len() - 1] ^= bit;
            }
        })
    };
    let dev = flip(&[(b"name1", 1)]);
    let mended = repaired(&dev);
    costs_nothing(&mended, "of a user");
    assert!(mended.before.has(Code::Xattr), "{:?}", mended.before.findings);
    let v = opened(Arc::new(dev));
    assert_eq!(v.getxattr(ino, b"user.name0").expect("it is there"), b"first");
    assert_eq!(v.getxattr(ino, b"user.name0.2").expect("it is there"), b"second");
    assert_eq!(v.listxattr(ino).expect("it reads").len(), 4);

    let dev = flip(&[(b"\x06\x01\x06\0b", 3)]);
    let mended = repaired(&dev);
    assert_eq!((mended.before.losses.attributes, mended.before.has(Code::Xattr)), (1, true));
    let v = opened(Arc::new(dev));
    assert_eq!(v.getxattr(ino, b"security.a").expect("it is there"), b"first");
    assert_eq!(v.listxattr(ino).expect("it reads").len(), 3);
}

#[test]
fn names_in_a_directory_that_ignores_case_are_judged_as_plain_ones() {
    let bed = Bed::new();
    let whole = load(&bed.filled("folded.img", &["-C", "utf8", "-O", "casefold"]));
    inject::set(&whole, &Target::Inode(3), "i_flags", 0x4000_0000).expect("set");
    let small = ino(&whole, "small");
    let changes = [("name_len", 133, Code::DentryLength), ("hash_code", 7, Code::DentryHash)];
    for (field, value, code) in changes {
        let dev = whole.snapshot();
        inject::set(&dev, &Target::Dentry(3, b"small"), field, value).expect("set");
        let mended = repaired(&dev);
        costs_nothing(&mended, field);
        assert!(mended.before.has(code), "{field}: {:?}", mended.before.findings);
        assert_eq!(ino(&dev, "small"), small, "{field}");
        bed.judge(&dev).unwrap_or_else(|e| panic!("{field}: {e}"));
    }
}

#[test]
fn the_length_of_a_plain_name_comes_back() {
    let bed = Bed::new();
    let dev = load(&bed.filled("length.img", &[]));
    let small = ino(&dev, "small");
    inject::set(&dev, &Target::Dentry(3, b"small"), "name_len", 133).expect("set");
    let mended = repaired(&dev);
    costs_nothing(&mended, "name_len");
    assert_eq!(ino(&dev, "small"), small);
    bed.judge(&dev).unwrap();
}

#[test]
fn a_file_without_a_context_is_not_encrypted() {
    let bed = Bed::new();
    let dev = load(&bed.filled("context.img", &["-O", "encrypt"]));
    inject::set(&dev, &Target::Inode(ino(&dev, "direct")), "i_advise", 4).expect("set");
    let mended = repaired(&dev);
    costs_nothing(&mended, "i_advise");
    assert!(mended.before.has(Code::InodeField), "{:?}", mended.before.findings);
    bed.judge(&dev).unwrap();
}

type NamedContent = (&'static [u8], Vec<u8>);

/// A plain volume as a crash leaves it after its first checkpoint: with a small file, and one of several nodes.
fn crashed_volume() -> (MemDevice, [NamedContent; 2]) {
    let dev = Arc::new(formatted(128, PLAIN).snapshot());
    let v = opened(dev.clone());
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let large: Vec<u8> = (0..2_000_000u32).flat_map(|n| n.to_le_bytes()).collect();
    let files: [NamedContent; 2] = [(b"small", b"content".to_vec()), (b"large", large)];
    for (name, content) in &files {
        let ino = v.create(v.root(), name, &new).expect("create").ino;
        assert_eq!(v.write(ino, 0, content).expect("write"), content.len());
        v.release(ino, 1);
    }
    v.sync().expect("a checkpoint");
    (dev.snapshot(), files)
}

#[test]
fn a_flipped_bit_of_the_nat_s_journal_costs_no_file() {
    let (dev, files) = crashed_volume();
    let large = ino(&dev, "large");
    let inode = read_block(&dev, node_addr(&dev, large)).expect("memory");
    let direct = inode.view::<RawInode>().i_nid[0].get();
    for (nid, of) in [(ino(&dev, "small"), ino(&dev, "small")), (large, large), (direct, large)] {
        // An entry of the journal: number, version, inode, address.
        let is_entry = |bytes: &[u8]| {
            bytes[..4] == nid.to_le_bytes()
                && bytes[5..9] == of.to_le_bytes()
                && bytes[9..] == node_addr(&dev, nid).to_le_bytes()[..4]
        };
        let (block, at) = (512..2048)
            .find_map(|block| {
                let bytes = read_block(&dev, block).expect("memory");
                Some((block, bytes.0.windows(13).position(is_entry)?))
            })
            .expect("the journal has it");
        for bit in 0..13 * 8 {
            let dev = dev.snapshot();
            let mut bytes = read_block(&dev, block).expect("memory");
            bytes.0[at + bit / 8] ^= 1 << (bit % 8);
            dev.write(block, &[&bytes], META).expect("memory");
            let mended = repaired(&dev);
            assert_eq!(mended.before.losses.lost, 0, "node {nid}, bit {bit}: {:?}", mended.before.findings);
            let v = opened(Arc::new(dev));
            for (name, content) in &files {
                let found = v.lookup(v.root(), name).expect("it is there").ino;
                let mut read = vec![0; content.len()];
                assert_eq!(v.read(found, 0, &mut read).expect("it reads"), content.len());
                assert!(read == *content, "node {nid}, bit {bit}");
            }
        }
    }
}
