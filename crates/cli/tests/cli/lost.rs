//! Inodes that are lost: what comes back, and what is said of the others.

use crate::common::*;
use crate::damaged::{
    bad, blocks, fsync_often, get, is_inode, junk_inode, page, pages, stderr, volume, volume_with_small_file,
};
use medfs::Files;
use medfs_device::read_block;
use medfs_format::checkpoint::RawCheckpoint;
use medfs_format::node::{FileKind, footer};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{BLOCK_SIZE, Block};
use std::fs;
use std::os::unix::fs::FileExt;

const PAGE: usize = BLOCK_SIZE;

#[test]
fn a_file_whose_inode_is_lost_comes_back_with_its_pages() {
    let s = volume();
    junk_inode(&s.image(), "b");
    let assert = medfs().args(["get", "--salvage"]).arg(s.image()).arg(s.path("out")).assert().code(1);
    let text = stderr(&assert);
    assert!(text.contains("/dir/b: its inode is lost: it was rebuilt from its nodes and blocks"), "{text}");
    assert_eq!(fs::read(s.path("out/dir/b")).unwrap(), page(2, 0));
    let assert = medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(text.contains("a repair will rebuild 1 file whose inode is lost, without mode"), "{text}");
    medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("all")).assert().code(0);
    assert_eq!(fs::read(s.path("all/dir/b")).unwrap(), page(2, 0));
}

#[test]
fn a_small_file_whose_content_was_in_a_lost_sector_is_said_to_be_empty() {
    let s = volume_with_small_file();
    let hit = damage(&s.image(), |block| is_inode(block, "small"), |block| block.0[..512].fill(0));
    assert!(hit > 0);
    let assert = medfs().args(["get", "--salvage"]).arg(s.image()).arg(s.path("out")).assert().code(1);
    let text = stderr(&assert);
    assert!(
        text.contains("/dir/small: the first sector of its inode is lost, and what it held with it"),
        "{text}"
    );
    assert!(fs::read(s.path("out/dir/small")).unwrap().is_empty());
    let assert = medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(text.contains("a repair keeps an empty file, as its content was there"), "{text}");
}

#[test]
fn a_salvage_and_a_repair_name_what_they_cannot_bring() {
    let s = volume_with_small_file();
    junk_inode(&s.image(), "small");
    let assert = medfs().args(["get", "--salvage"]).arg(s.image()).arg(s.path("out")).assert().code(1);
    let text = stderr(&assert);
    assert!(text.contains("/dir/small: its inode is lost"), "{text}");
    let assert = medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(text.contains("a repair cannot keep 1 file or directory:\n  /dir/small (inode "), "{text}");
    assert!(text.contains("\nlost: /dir/small (inode "), "{text}");
}

/// Neither its name nor its inode is left: its content is.
#[test]
fn a_file_that_lost_inode_and_entry_is_salvaged_under_its_number() {
    let s = volume();
    let mut number = 0;
    with_engine(&s.image(), false, |v| {
        let dir = v.lookup(v.root(), b"dir").unwrap().ino;
        number = v.lookup(dir, b"b").unwrap().ino;
    });
    ["b", "dir"].into_iter().for_each(|name| junk_inode(&s.image(), name));
    let assert = medfs().args(["get", "--salvage"]).arg(s.image()).arg(s.path("out")).assert().code(1);
    let text = stderr(&assert);
    let told = format!("medfs get: /by-inode/{number}: its inode is lost: it was rebuilt");
    assert!(text.contains(&told), "{text}");
    assert_eq!(fs::read(s.path("out/by-inode").join(number.to_string())).unwrap(), page(2, 0));
    assert_eq!(fs::read(s.path("out/dir/a")).unwrap(), pages(1, 40), "{text}");
}

/// The last node of a segment cannot be read, and with it what says in which one the fsync log goes on.
#[test]
fn what_was_fsynced_behind_the_last_node_of_a_segment_is_named_and_salvaged() {
    let s = plain();
    with_engine(&s.image(), false, |v| {
        fsync_often(v);
        let new = make(v, v.root(), "new", FileKind::Regular);
        v.write(new, 0, &page(7, 0)).unwrap();
        v.fsync(new, false).unwrap();
    });
    let dev = open(&s.image());
    let main = u64::from(RawSuperblock::in_block(&read_block(&dev, 0).unwrap()).main_blkaddr.get());
    drop(dev);
    let mut nodes = blocks(&s.image(), |block| is_inode(block, "file"));
    nodes.retain(|addr| (addr - main) % 512 == 511);
    assert_eq!(nodes.len(), 1, "the log goes on in a second segment");
    let map = bad(&s, &nodes);
    let text = stderr(&get(&s, &["-r"], &map, &["/"], "out").code(1));
    assert!(text.contains("(as new)") && !s.path("out/new").exists(), "{text}");
    let mut list = medfs();
    list.args(["ls", "--map"]).arg(&map).arg(s.image()).arg("/");
    let text = stderr(&list.assert().code(1));
    assert!(text.contains("(as new)"), "{text}");
    let text = stderr(&get(&s, &["--salvage"], &map, &[], "all").code(1));
    assert!(
        text.contains(&format!("block {} of the fsync log is lost or cannot be read", nodes[0])),
        "{text}"
    );
    assert_eq!(fs::read(s.path("all/file")).unwrap(), 599_u32.to_le_bytes());
    assert_eq!(fs::read(s.path("all/new")).unwrap(), page(7, 0));
}

/// Zeros in a node of the fsync log end it on a volume without seals: a file that was fsynced twice behind it tells
/// that it went on.
#[test]
fn zeros_in_the_midst_of_the_fsync_log_hide_nothing_from_a_salvage() {
    for (s, fsyncs) in [(plain(), 2_usize), (plain(), 1), (Scratch::with_volume("64M"), 1)] {
        let superblock = read_block(&open(&s.image()), 0).unwrap();
        let is_told = fsyncs == 2 || RawSuperblock::in_block(&superblock).has_seals();
        with_engine(&s.image(), false, |v| {
            for n in 0..4 {
                let ino = make(v, v.root(), &format!("new{n}"), FileKind::Regular);
                for fsync in 0..fsyncs {
                    v.write(ino, (fsync * PAGE) as u64, &page(n, fsync)).unwrap();
                    v.fsync(ino, false).unwrap();
                }
            }
        });
        let found = damage(&s.image(), |b| is_inode(b, "new1") && footer(b).is_fsync(), |b| *b = Block::ZERO);
        assert_eq!(found, fsyncs);
        let copy = |name: &str| fs::read(s.path("out").join(name)).ok();
        let checked = medfs().arg("fsck").arg(s.image()).output().unwrap();
        let text = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert_eq!((checked.status.code() == Some(4), text.contains("F0712")), (is_told, is_told), "{text}");
        let saved = medfs().args(["get", "--salvage"]).arg(s.image()).arg(s.path("out")).output().unwrap();
        let text = String::from_utf8_lossy(&saved.stderr).into_owned();
        assert_eq!(
            (saved.status.code() == Some(1), text.contains("(as new3)")),
            (is_told, is_told),
            "{text}"
        );
        assert!(copy("new0") == Some(pages(0, fsyncs)), "{text}");
        for n in [2, 3] {
            assert!(copy(&format!("new{n}")) == is_told.then(|| pages(n, fsyncs)), "new{n}: {text}");
        }
        medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1); // what was fsynced before it
        medfs().arg("fsck").arg(s.image()).assert().code(0);
    }
}

/// Zeros in place of the journals of a checkpoint: what they led to is missing, wherever one looks.
#[test]
fn what_zeroed_journals_led_to_is_missing_in_a_part_too() {
    let s = volume();
    with_engine(&s.image(), true, |v| {
        let many = make(v, v.root(), "many", FileKind::Directory);
        for i in 0..60 {
            make(v, many, &format!("more than journals take {i}"), FileKind::Regular);
        }
    });
    with_engine(&s.image(), true, |v| {
        make(v, v.root(), "new", FileKind::Directory);
    });
    let dev = open(&s.image());
    let sb = RawSuperblock::in_block(&read_block(&dev, 0).unwrap()).clone();
    let packs = [0, 512].map(|at| u64::from(sb.cp_blkaddr.get()) + at);
    let version = |pack: u64| RawCheckpoint::in_block(&read_block(&dev, pack).unwrap()).checkpoint_ver.get();
    let pack = packs.into_iter().max_by_key(|pack| version(*pack)).unwrap();
    drop(dev);
    fs::File::options()
        .write(true)
        .open(s.image())
        .unwrap()
        .write_all_at(&[0; PAGE], (pack + 1) * PAGE as u64)
        .unwrap();
    let said = "more inodes than the volume leads to";
    for path in ["/", "/dir"] {
        let text = stderr(&medfs().arg("ls").arg(s.image()).arg(path).assert().code(1));
        assert!(text.contains(&format!("medfs ls: /: the checkpoint counts 1 {said}")), "{path}: {text}");
        assert!(text.contains("medfs get --salvage"), "{path}: {text}");
        let to = s.path(&format!("out{}", path.len()));
        let text = stderr(&medfs().args(["get", "-r"]).arg(s.image()).arg(path).arg(to).assert().code(1));
        assert!(text.contains(&format!("medfs get: /: the checkpoint counts 1 {said}")), "{path}: {text}");
        assert!(text.contains("medfs get --salvage"), "{path}: {text}");
    }
}
