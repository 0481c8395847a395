//! Input that nobody's `mkfs` made: one sentence, and memory that does not grow with what it claims.

use crate::common::*;
use medfs::Files;
use medfs_format::BLOCK_SIZE;
use medfs_format::node::{FileKind, RawInode, footer};
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command as System, Output};

/// What a command gets for all that it maps, of which some 20 MB are used, beside tables that have a bit for
/// each block of the volume.
const ADDRESS_SPACE_KIB: u64 = 256 << 10;

/// Runs medfs in little memory.
fn in_little_memory(s: &Scratch, args: &[&str]) -> Output {
    let blocks = fs::metadata(s.image()).map_or(0, |image| image.len() / BLOCK_SIZE as u64);
    let limit = ADDRESS_SPACE_KIB + 2 * (blocks / 8 / 1024);
    let mut sh = System::new("sh");
    sh.args(["-c", &format!("ulimit -v {limit} && exec \"$0\" \"$@\"")]).arg(binary());
    sh.args(args).current_dir(s.path(".")).env_remove("RUST_LOG").output().unwrap()
}

/// Runs it, and what it says of errors.
fn ends(s: &Scratch, args: &[&str], code: i32) -> String {
    let output = in_little_memory(s, args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    text
}

#[test]
fn a_sparse_image_of_1_tib_takes_no_memory() {
    is_used_in_little_memory(1);
}

/// The largest that most file systems take a file of: F2FS ends at 16 TiB.
#[test]
#[ignore = "takes minutes"]
fn a_sparse_image_of_15_tib_takes_no_memory() {
    is_used_in_little_memory(15);
}

/// All commands on a sparse image of so many TiB.
fn is_used_in_little_memory(tib: u64) {
    let s = Scratch::new();
    fs::write(s.path("file"), "content").unwrap();
    fs::File::create(s.path("zeros")).unwrap().set_len(tib << 40).expect("the file system takes it");
    for (args, code) in [
        (&["ls", "zeros"][..], 1),
        (&["stat", "zeros"], 1),
        (&["fsck", "zeros"], 8),
        (&["get", "--salvage", "zeros", "out"], 1),
    ] {
        let text = ends(&s, args, code);
        assert!(text.lines().count() == 1 && text.contains("zeros"), "{args:?}: {text}");
    }
    let size = format!("{tib}T");
    for args in [
        &["mkfs", "--quiet", "--size", &size, "image"][..],
        &["put", "image", "file", "/file"],
        &["ls", "image"],
        &["stat", "image"],
        &["fsck", "image"],
        &["get", "-r", "image", "/", "got"],
    ] {
        ends(&s, args, 0);
    }
    assert_eq!(fs::read_to_string(s.path("got/file")).unwrap(), "content");
    // Without superblocks.
    fs::File::options().write(true).open(s.image()).unwrap().write_all_at(&[0; 8192], 0).unwrap();
    ends(&s, &["fsck", "image"], 4);
    ends(&s, &["get", "--salvage", "image", "salvaged"], 0);
    assert_eq!(fs::read_to_string(s.path("salvaged/file")).unwrap(), "content");
}

/// Superblocks with the bytes of each number the other way round: no volume by them, but one whose
/// superblocks are lost.
#[test]
fn superblocks_of_another_endianness_are_none() {
    let s = plain();
    let image = fs::File::options().read(true).write(true).open(s.image()).unwrap();
    for copy in 0..2 {
        let mut sb = [0; 3072];
        let at = copy * BLOCK_SIZE as u64 + 1024;
        image.read_exact_at(&mut sb, at).unwrap();
        sb.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        image.write_all_at(&sb, at).unwrap();
    }
    for (command, code) in [("ls", 1), ("stat", 1)] {
        let text = ends(&s, &[command, "image"], code);
        assert!(text.contains("superblocks are lost") && text.lines().count() == 1, "{text}");
    }
    ends(&s, &["fsck", "image"], 4);
}

/// A file and a directory that claim a terabyte each, and a checkpoint that counts four billion inodes.
#[test]
fn a_terabyte_that_is_claimed_takes_no_memory() {
    let s = plain();
    let (mut file, mut dir) = (0, 0);
    with_engine(&s.image(), true, |v| {
        file = make(v, v.root(), "file", FileKind::Regular);
        v.write(file, 0, &[7; 9000]).unwrap();
        dir = make(v, v.root(), "dir", FileKind::Directory);
    });
    for ino in [file, dir] {
        let is_inode = |block: &medfs_format::Block| {
            let f = footer(block);
            (f.nid.get(), f.ino.get()) == (ino, ino)
        };
        let claimed = damage(&s.image(), is_inode, |block| {
            let inode: &mut RawInode = block.view_mut();
            (inode.i_size, inode.i_blocks) = ((1 << 40).into(), (1 << 28).into());
        });
        assert!(claimed > 0);
    }
    let started = std::time::Instant::now();
    ends(&s, &["ls", "-lR", "image"], 0);
    ends(&s, &["fsck", "image"], 4);
    in_little_memory(&s, &["get", "-r", "image", "/", "out"]);
    let got = fs::File::open(s.path("out/file")).expect("it is brought");
    let mut begins = [0; 9000];
    got.read_exact_at(&mut begins, 0).unwrap();
    assert_eq!(begins, [7; 9000]);
    ends(&s, &["fsck", "--repair", "image"], 1);
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}
