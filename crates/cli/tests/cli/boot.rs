//! What a check at boot leaves alone, as it would cost files, and what a salvage brings of it.

use crate::common::*;
use crate::damaged::{bad, blocks, is_inode, page, pages, volume};
use crate::erased::{INO_OF_DOT, NAMES};
use crate::newcomer::says;
use medfs::{FileKind, Files, XattrMode};
use medfs_device::{BlockDevice, read_block};
use medfs_format::Block;
use medfs_format::node::footer;
use medfs_format::superblock::RawSuperblock;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE: u64 = 4096;

fn zero(image: &Path, at: &[u64]) {
    let image = fs::File::options().write(true).open(image).unwrap();
    at.iter().for_each(|at| image.write_all_at(&[0; PAGE as usize], at * PAGE).unwrap());
}

/// A check at boot does nothing, and says that a repair loses something; what a salvage says.
fn left_alone(s: &Scratch, salvage: i32) -> String {
    let before = fs::read(s.image()).unwrap();
    let assert = medfs().args(["fsck", "-p"]).arg(s.image()).assert().code(4);
    let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    assert!(text.contains("NOT REPAIRED, as that loses something"), "{text}");
    // What a copy by name does not have comes first.
    let behind = ["F0217", "F0707", "F0712"].iter().any(|code| text.contains(code));
    assert!(!behind || text.contains("medfs get --salvage"), "{text}");
    assert!(fs::read(s.image()).unwrap() == before, "nothing was written");
    let mut get = medfs();
    get.args(["get", "--salvage"]).arg(s.image()).arg(s.path("all"));
    String::from_utf8_lossy(&get.assert().code(salvage).get_output().stderr).into_owned()
}

/// The blocks of the newest checkpoint pack.
fn newest_pack(image: &Path) -> Vec<u64> {
    let dev = open(image);
    let block = read_block(&dev, 0).unwrap();
    let g = RawSuperblock::in_block(&block).validate().unwrap();
    let heads = [0, 1].map(|pack| {
        let block = read_block(&dev, g.cp_pack(pack).into()).unwrap();
        let cp = medfs_format::checkpoint::RawCheckpoint::in_block(&block);
        (cp.checkpoint_ver.get(), g.cp_pack(pack), cp.cp_pack_total_block_count.get())
    });
    assert!(dev.block_count() > 0);
    let (_, start, blocks) = heads.into_iter().max().unwrap();
    (start.into()..u64::from(start + blocks)).collect()
}

#[test]
fn an_older_checkpoint_is_not_taken_at_boot_and_a_salvage_brings_what_came_behind_it() {
    for s in [plain(), Scratch::with_volume("64M")] {
        for (name, tag) in [("old", 1), ("new", 2)] {
            with_engine(&s.image(), true, |v| {
                let ino = make(v, v.root(), name, FileKind::Regular);
                v.write(ino, 0, &pages(tag, 5)).unwrap();
            });
        }
        zero(&s.image(), &newest_pack(&s.image()));
        let text = left_alone(&s, 1);
        assert!(text.contains("/: the newest checkpoint is lost"), "{text}");
        for (name, tag) in [("old", 1), ("new", 2)] {
            assert!(fs::read(s.path("all").join(name)).unwrap() == pages(tag, 5), "{name}");
        }
    }
}

/// A volume on which five files were fsynced since the last checkpoint, `new0` and on.
fn with_a_log(s: &Scratch) {
    with_engine(&s.image(), false, |v| {
        v.sync().unwrap();
        for n in 0..5 {
            let ino = make(v, v.root(), &format!("new{n}"), FileKind::Regular);
            v.write(ino, 0, &pages(n, 2)).unwrap();
            v.fsync(ino, false).unwrap();
        }
    });
}

/// Writes a part of a block.
pub(crate) fn patch(image: &Path, block: u64, at: u64, bytes: &[u8]) {
    let image = fs::File::options().write(true).open(image).unwrap();
    image.write_all_at(bytes, block * PAGE + at).unwrap();
}

#[test]
fn a_fsync_log_with_a_lost_node_is_not_cut_at_boot_and_a_salvage_goes_past_it() {
    let old = b"what was there before ".repeat(190);
    let damage =
        [(0, &[0; PAGE as usize][..]), (1024, &[0xff; 512]), (3584, &[0; 512]), (0, &old[..PAGE as usize])];
    for (at, bytes) in damage {
        let s = Scratch::with_volume("64M");
        with_a_log(&s);
        let of_new1 = blocks(&s.image(), |b| is_inode(b, "new1") && footer(b).is_fsync());
        of_new1.iter().for_each(|&block| patch(&s.image(), block, at, bytes));
        let listed = says(&s, 4, "fsck image");
        // What no directory of the checkpoint has yet has no other name.
        for n in [2, 3, 4] {
            assert!(listed.contains(&format!("  new{n}: what led there is lost")), "{listed}");
        }
        let text = left_alone(&s, 1);
        for n in [0, 2, 3, 4] {
            assert!(
                fs::read(s.path("all").join(format!("new{n}"))).ok() == Some(pages(n, 2)),
                "new{n}: {text}"
            );
        }
        let mut get = medfs();
        let get = get.args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("named")).assert().code(1);
        let named = String::from_utf8_lossy(&get.get_output().stderr).into_owned();
        for n in [2, 3, 4] {
            assert!(text.contains(&format!("/new{n}: it was fsynced (as new{n}) behind")), "{text}");
            assert!(
                named.contains(&format!("its last fsync (as new{n}) is in a part of the fsync log")),
                "{named}"
            );
        }
    }
}

/// The entries of the root, and of the directory with the second names, are lost: what comes back has one name.
#[test]
fn names_that_a_repair_loses_are_counted_and_keep_it_from_being_made_at_boot() {
    let s = plain();
    let mut lost = [3, 0];
    with_engine(&s.image(), true, |v| {
        let [a, b] = ["a", "b"].map(|name| make(v, v.root(), name, FileKind::Directory));
        lost[1] = b;
        for n in 0..60 {
            // So many have blocks of entries.
            make(v, v.root(), &format!("a file of the root with the number {n}"), FileKind::Regular);
            let ino = make(v, a, &format!("a file with the number {n}"), FileKind::Regular);
            v.link(ino, b, format!("the other name of file {n}").as_bytes()).unwrap();
        }
    });
    let own = |block: &Block| u32::from_le_bytes(block.0[INO_OF_DOT..][..4].try_into().unwrap());
    let first = |block: &Block| block.0[NAMES..].starts_with(b".\0") && lost.contains(&own(block));
    let found = blocks(&s.image(), first);
    found.iter().for_each(|&at| patch(&s.image(), at, 0, &[0xff; PAGE as usize]));
    let listed = says(&s, 4, "fsck image");
    assert!(listed.contains(" names of files that have others"), "{listed}");
    left_alone(&s, 1);
}

/// A sector of both superblocks reads as ones: what they then say of devices, or of an NVRAM, is not believed.
#[test]
fn superblocks_with_a_wrong_checksum_send_nobody_elsewhere() {
    for sector in [6, 7] {
        let s = Scratch::with_volume("64M");
        with_engine(&s.image(), true, |v| {
            make(v, v.root(), "a", FileKind::Regular);
        });
        (0..2).for_each(|copy| patch(&s.image(), copy, sector * 512, &[0xff; 512]));
        let listed = says(&s, 4, "fsck image");
        assert!(listed.contains("F0101") && !listed.contains("NVRAM"), "{listed}");
        says(&s, 0, "get --salvage image all");
        assert!(s.path("all/a").exists());
    }
}

/// Summaries that a map calls bad, of segments in use and of free ones: one repair is enough.
#[test]
fn a_repair_of_summaries_that_cannot_be_read_ends_at_once() {
    let s = Scratch::with_volume("64M");
    for tag in [1, 2] {
        with_engine(&s.image(), true, |v| {
            for n in 0..30 {
                let name = format!("{n}");
                let found = v.lookup(v.root(), name.as_bytes()).map(|attr| attr.ino);
                let ino = found.unwrap_or_else(|_| make(v, v.root(), &name, FileKind::Regular));
                v.write(ino, 0, &pages(tag, 60)).unwrap();
            }
        });
    }
    let superblock = read_block(&open(&s.image()), 0).unwrap();
    let g = RawSuperblock::in_block(&superblock).validate().unwrap();
    let all: Vec<u64> = (0..g.segment_count_main).map(|segno| g.ssa_block(segno).into()).collect();
    zero(&s.image(), &all);
    bad(&s, &all);
    says(&s, 1, "fsck --repair --map map image");
    says(&s, 0, "fsck --repair --map map image");
    says(&s, 0, "fsck image");
}

#[test]
fn an_erased_head_of_an_inode_is_told_and_costs_no_other_file() {
    for (is_plain, byte) in [(true, 0), (true, 0xff), (false, 0), (false, 0xff)] {
        for lost in ["dir", "a"] {
            let s = if is_plain { plain() } else { Scratch::with_volume("64M") };
            with_engine(&s.image(), true, |v| {
                let dir = make(v, v.root(), "dir", FileKind::Directory);
                for (parent, name, tag) in [(dir, "a", 1), (dir, "b", 2), (v.root(), "c", 3)] {
                    let ino = make(v, parent, name, FileKind::Regular);
                    v.write(ino, 0, &pages(tag, 3)).unwrap();
                }
            });
            blocks(&s.image(), |b| is_inode(b, lost))
                .iter()
                .for_each(|&at| patch(&s.image(), at, 0, &[byte; 512]));
            let mut get = medfs();
            let get = get.args(["get", "--salvage"]).arg(s.image()).arg(s.path("all")).assert().code(1);
            let text = String::from_utf8_lossy(&get.get_output().stderr).into_owned();
            let place = if lost == "dir" { "/dir: its inode is lost" } else { "/dir/a: its inode is lost" };
            assert!(text.contains(place), "{text}");
            medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
            medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("repaired")).assert().code(0);
            for copies in ["all", "repaired"] {
                for (name, tag) in [("dir/a", 1), ("dir/b", 2), ("c", 3)] {
                    assert!(
                        fs::read(s.path(copies).join(name)).unwrap() == pages(tag, 3),
                        "{copies}/{name}: {text}"
                    );
                }
            }
        }
    }
}

/// What is in the inode of a small file, or which block a link's target is in, nothing else tells.
#[test]
fn an_erased_head_of_a_small_file_is_left_alone_at_boot() {
    for is_plain in [true, false] {
        let s = if is_plain { plain() } else { Scratch::with_volume("64M") };
        with_engine(&s.image(), true, |v| {
            let ino = make(v, v.root(), "small", FileKind::Regular);
            v.write(ino, 0, &[b'x'; 1000]).unwrap();
        });
        let inode = blocks(&s.image(), |b| is_inode(b, "small"));
        inode.iter().for_each(|&at| patch(&s.image(), at, 0, &[0; 512]));
        let text = left_alone(&s, 1);
        assert!(text.contains("/small: "), "{text}");
        assert!(text.contains("its inode is lost"), "{text}");
        let repair = medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
        let told = String::from_utf8_lossy(&repair.get_output().stdout).into_owned();
        assert!(told.contains("rebuild 1 file whose inode is lost"), "{told}");
        let kept = medfs().args(["get"]).arg(s.image()).args(["/small", "-"]).assert().code(0);
        let kept = &kept.get_output().stdout;
        assert!(
            kept.len() == 1000 && kept.iter().filter(|&&byte| byte == b'x').count() > 800,
            "{}",
            kept.len()
        );
    }
}

#[test]
fn an_inode_with_a_wrong_checksum_is_left_alone_at_boot_and_named_by_a_salvage() {
    let s = Scratch::with_volume("64M");
    with_engine(&s.image(), true, |v| {
        let ino = make(v, v.root(), "small", FileKind::Regular);
        v.write(ino, 0, &[b'x'; 1000]).unwrap();
    });
    blocks(&s.image(), |b| is_inode(b, "small")).iter().for_each(|&at| patch(&s.image(), at, 512, &[0; 300]));
    let text = left_alone(&s, 1);
    assert!(text.contains("/small: the checksum of its inode is wrong"), "{text}");
    let repair = medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
    let told = String::from_utf8_lossy(&repair.get_output().stdout).into_owned();
    assert!(told.contains("keep 1 inode as read, of which the checksum or a field is wrong"), "{told}");
}

#[test]
fn an_owner_that_no_file_can_have_is_told() {
    let s = volume();
    let at = blocks(&s.image(), |b| is_inode(b, "b"));
    patch(&s.image(), at[0], 4, &[0xff; 8]);
    let mut get = medfs();
    let get = get.args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("copy")).assert().code(1);
    let text = String::from_utf8_lossy(&get.get_output().stderr).into_owned();
    assert!(text.contains("/dir/b: its owner or group is none that a file can have"), "{text}");
    assert!(fs::read(s.path("copy/c")).unwrap() == pages(3, 2), "{text}");
    medfs().arg("fsck").arg(s.image()).assert().code(4);
    medfs().args(["fsck", "-p"]).arg(s.image()).assert().code(1);
    medfs().arg("fsck").arg(s.image()).assert().code(0);
}

/// The file keeps its other name, in another directory.
#[test]
fn a_name_in_a_lost_block_of_a_directory_is_not_left_out_at_boot() {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let [one, two] = ["one", "two"].map(|name| make(v, v.root(), name, FileKind::Directory));
        let ino = make(v, one, "first", FileKind::Regular);
        v.write(ino, 0, &page(3, 1)).unwrap();
        v.link(ino, two, b"second").unwrap();
        for n in 0..300 {
            make(v, two, &format!("a name of some length {n}"), FileKind::Regular);
        }
    });
    let lost = blocks(&s.image(), |b| {
        !["two", "second"].iter().any(|name| is_inode(b, name))
            && b.0.windows(6).any(|bytes| bytes == b"second")
    });
    zero(&s.image(), &lost);
    let text = left_alone(&s, 1);
    assert!(text.contains("it has 2 names, of which 1 was found"), "{text}");
}

#[test]
fn a_lost_root_directory_gets_no_other_owner_at_boot() {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        make(v, v.root(), "file", FileKind::Regular);
    });
    let root = blocks(&s.image(), |b| footer(b).nid.get() == 3 && footer(b).ino.get() == 3);
    zero(&s.image(), &root);
    let text = left_alone(&s, 1);
    assert!(text.contains("/: its inode is lost: the directory was created again"), "{text}");
    assert!(s.path("all/file").exists());
}

#[test]
fn directories_of_a_lost_one_are_salvaged_into_it() {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let home = make(v, v.root(), "home", FileKind::Directory);
        let pi = make(v, home, "pi", FileKind::Directory);
        make(v, pi, "file", FileKind::Regular);
        make(v, home, "list", FileKind::Regular);
    });
    zero(&s.image(), &blocks(&s.image(), |b| is_inode(b, "home")));
    let text = left_alone(&s, 1);
    assert!(text.contains("/home: its inode is lost: the directory was created again"), "{text}");
    assert!(s.path("all/home/pi/file").exists() && s.path("all/home/list").exists());
}

/// The others are rolled forward by a repair, which says which one it leaves a part of out.
#[test]
fn a_log_with_a_node_that_cannot_be_replayed_is_left_alone_at_boot() {
    let s = plain();
    with_a_log(&s);
    let at = blocks(&s.image(), |b| is_inode(b, "new1") && footer(b).is_fsync());
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    // An address of the inode, whatever precedes it.
    for slot in 0..20u64 {
        let mut was = [0; 4];
        image_at(&s.image(), at[0] * PAGE + 360 + slot * 4, &mut was);
        if (4000..16384).contains(&u32::from_le_bytes(was)) {
            image.write_all_at(&0x4000_0000u32.to_le_bytes(), at[0] * PAGE + 360 + slot * 4).unwrap();
            break;
        }
    }
    let text = left_alone(&s, 1);
    assert!(text.contains("/new1: what was fsynced since the last checkpoint is left out"), "{text}");
    let check = medfs().arg("fsck").arg(s.image()).assert().code(4);
    let text = String::from_utf8_lossy(&check.get_output().stdout).into_owned();
    assert!(text.contains("what was fsynced cannot be rolled forward as it is"), "{text}");
    let repair = medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
    let text = String::from_utf8_lossy(&repair.get_output().stdout).into_owned();
    assert!(
        text.contains("left out what was damaged of the fsyncs of 1 file since the last checkpoint"),
        "{text}"
    );
    medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("after")).assert().code(0);
    for n in [0, 2, 3, 4] {
        assert!(fs::read(s.path("after").join(format!("new{n}"))).unwrap() == pages(n, 2), "new{n}");
    }
}

fn image_at(image: &Path, at: u64, bytes: &mut [u8]) {
    fs::File::open(image).unwrap().read_exact_at(bytes, at).unwrap();
}

/// The attributes in it are lost, and nothing else tells that there were some.
#[test]
fn an_inode_without_its_last_sector_is_left_alone_at_boot_and_named_by_a_salvage() {
    for s in [plain(), Scratch::with_volume("64M")] {
        with_engine(&s.image(), true, |v| {
            let ino = make(v, v.root(), "some", FileKind::Regular);
            v.write(ino, 0, &[b'x'; 9000]).unwrap();
            v.setxattr(ino, b"user.mine", b"a value", XattrMode::Set).unwrap();
        });
        blocks(&s.image(), |b| is_inode(b, "some"))
            .iter()
            .for_each(|&at| patch(&s.image(), at, 3584, &[0; 512]));
        let text = left_alone(&s, 1);
        assert!(text.contains("/some: "), "{text}");
    }
}

/// As fsck does: the volume is not shown as of the checkpoint before.
#[test]
fn a_flipped_bit_in_each_header_of_a_checkpoint_is_turned_back_by_who_reads() {
    for (one, other) in [(2, 48), (48, 2), (2, 2)] {
        let s = Scratch::with_volume("64M");
        for name in ["old", "new"] {
            with_engine(&s.image(), true, |v| {
                make(v, v.root(), name, FileKind::Regular);
            });
        }
        let pack = newest_pack(&s.image());
        let image = fs::read(s.image()).unwrap();
        for (block, byte) in [(pack[0], one), (*pack.last().unwrap(), other)] {
            patch(&s.image(), block, byte, &[image[(block * PAGE + byte) as usize] ^ 1]);
        }
        medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("copy")).assert().code(0);
        assert!(Path::new(&s.path("copy/new")).exists(), "{one} {other}");
        with_engine(&s.image(), true, |v| {
            make(v, v.root(), "newer", FileKind::Regular);
        });
        medfs().arg("fsck").arg(s.image()).assert().code(0);
    }
}
