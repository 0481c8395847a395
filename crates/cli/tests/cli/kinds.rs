//! Files that `get` does not take for what a damaged inode says.

use crate::boot::patch;
use crate::common::*;
use crate::damaged::{blocks, is_inode};
use medfs::Files;
use medfs_format::node::{FileKind, RawInode};

/// A plain volume with a file of this content.
fn with_file(content: &[u8]) -> Scratch {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let ino = make(v, v.root(), "file", FileKind::Regular);
        v.write(ino, 0, content).unwrap();
    });
    s
}

fn got(s: &Scratch) -> String {
    error(1, medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("out")))
}

#[test]
fn a_file_whose_inode_says_another_kind_is_not_brought_as_that() {
    for mode in [0o140_644_u16, 0o120_644] {
        let s = with_file(&[b'x'; 3900]);
        for at in blocks(&s.image(), |block| is_inode(block, "file")) {
            patch(&s.image(), at, 0, &mode.to_le_bytes());
        }
        let text = got(&s);
        assert!(text.contains("/file: its entry is that of a regular file"), "{mode:#o}: {text}");
        assert!(s.path("out/file").symlink_metadata().is_err(), "{mode:#o}");
    }
}

#[test]
fn content_that_the_inode_denies_is_told() {
    let s = with_file(&[b'x'; 100]);
    let is_file = |block: &medfs_format::Block| is_inode(block, "file");
    assert!(damage(&s.image(), is_file, |block| block.view_mut::<RawInode>().i_inline &= !2) > 0);
    let text = got(&s);
    assert!(text.contains("/file: its inode has no blocks, but other bytes than addresses"), "{text}");
    let text = error(1, medfs().arg("get").arg(s.image()).args(["/file", "-"]));
    assert!(text.contains("other bytes than addresses"), "{text}");
}

#[test]
fn blocks_behind_the_end_of_a_file_are_told() {
    let s = with_file(&[b'x'; 40 << 12]);
    for at in blocks(&s.image(), |block| is_inode(block, "file")) {
        patch(&s.image(), at, 16, &(8_u64 << 12).to_le_bytes());
    }
    let text = got(&s);
    assert!(text.contains("/file: blocks with content lie behind its end"), "{text}");
}

#[test]
fn junk_in_place_of_attributes_is_told() {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let ino = make(v, v.root(), "file", FileKind::Regular);
        v.setxattr(ino, b"user.a", b"value", medfs::XattrMode::Set).unwrap();
    });
    let magic = medfs_format::xattr::XATTR_MAGIC.to_le_bytes();
    let junk = |block: &mut medfs_format::Block| {
        if let Some(at) = block.0.windows(4).position(|bytes| bytes == magic) {
            block.0[at..at + 200].fill(0x5b);
        }
    };
    assert!(damage(&s.image(), |block| is_inode(block, "file"), junk) > 0);
    let text = got(&s);
    assert!(text.contains("/file: some of its extended attributes cannot be read"), "{text}");
    let refused = medfs().args(["fsck", "-p"]).arg(s.image()).assert();
    assert_ne!(refused.get_output().status.code(), Some(0));
}
