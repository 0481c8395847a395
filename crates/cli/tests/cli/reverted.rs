//! Pages that lose their last updates: a repair at boot leaves them alone, and a salvage names them.

use crate::boot::patch;
use crate::common::*;
use medfs::{FileKind, Files};
use medfs_device::{BlockDevice, read_block};
use medfs_format::delta;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE: usize = 4096;

/// A volume with a file whose page 2 is a delta; the base of that is overwritten.
fn with_damaged_base() -> Scratch {
    let s = Scratch::with_volume("64M");
    let bytes = (0..8 * PAGE as u32 / 4).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes());
    let content: Vec<u8> = bytes.collect();
    with_engine(&s.image(), true, |v| {
        let ino = make(v, v.root(), "db", FileKind::Regular);
        v.write(ino, 0, &content).unwrap();
        v.sync().unwrap();
        v.write(ino, 2 * PAGE as u64 + 50, b"the last update").unwrap();
        v.sync().unwrap();
        assert_eq!(v.stats().deltas.made, 1, "the page is a delta");
    });
    let base = &content[2 * PAGE..3 * PAGE];
    let image = fs::read(s.image()).unwrap();
    let block = image.chunks(PAGE).position(|block| block == base).expect("the base is a block");
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    image.write_all_at(&[0x5a; PAGE], (block * PAGE) as u64).unwrap();
    s
}

#[test]
fn a_lost_update_is_not_dropped_at_boot_and_is_named_by_a_salvage() {
    let s = with_damaged_base();
    let before = fs::read(s.image()).unwrap();
    let assert = medfs().args(["fsck", "-p"]).arg(s.image()).assert().code(4);
    let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    assert!(
        text.contains("a repair will lose the latest changes to 1 file, where these were kept as deltas\n"),
        "{text}"
    );
    assert!(text.contains("NOT REPAIRED, as that loses something"), "{text}");
    assert!(fs::read(s.image()).unwrap() == before, "nothing was written");
    let assert =
        medfs().args(["get", "--salvage"]).args([&s.image(), Path::new(&s.path("out"))]).assert().code(1);
    let text = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(text.contains("/db: updates of page 2 are lost"), "{text}");
    medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
}

/// The base of a delta that was fsynced and not checkpointed: only the check behind the roll-forward finds it.
#[test]
fn what_only_a_roll_forward_lays_bare_is_told_before_a_repair_and_left_alone_at_boot() {
    let s = Scratch::with_volume("64M");
    let bytes = (0..8 * PAGE as u32 / 4).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes());
    let content: Vec<u8> = bytes.collect();
    with_engine(&s.image(), false, |v| {
        let ino = make(v, v.root(), "db", FileKind::Regular);
        v.write(ino, 0, &content).unwrap();
        v.sync().unwrap();
        v.write(ino, 2 * PAGE as u64 + 50, b"the last update").unwrap();
        v.fsync(ino, false).unwrap();
        assert_eq!(v.stats().deltas.made, 1, "the page is a delta");
    });
    let base = &content[2 * PAGE..3 * PAGE];
    let before = fs::read(s.image()).unwrap();
    let block = before.chunks(PAGE).position(|block| block == base).expect("the base is a block");
    patch(&s.image(), block as u64, 0, &[0x5a; PAGE]);
    let before = fs::read(s.image()).unwrap();
    medfs().arg("fsck").arg(s.image()).assert().code(0);
    medfs().args(["fsck", "-p"]).arg(s.image()).assert().code(0);
    assert!(fs::read(s.image()).unwrap() == before, "the mount rolls forward");
    medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("out")).assert().code(1);
    let repair = medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
    let text = String::from_utf8_lossy(&repair.get_output().stdout).into_owned();
    let cost = text.find("a repair will lose the latest changes to 1 file").expect("the cost");
    assert!(text.find("F0907").is_some_and(|at| at < cost), "{text}");
    assert!(text.find("rolled 1 fsynced file forward").is_some_and(|at| cost < at), "{text}");
}

/// A device lost the write of a compact page: where it should be there is an older one of the same file.
#[test]
fn an_older_compact_page_is_told_by_all_and_left_alone_at_boot() {
    let s = Scratch::with_volume("64M");
    let noise = |seed: u32, len: usize| -> Vec<u8> {
        (0..len as u32).map(|n| ((n + seed * 7919).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    };
    with_engine(&s.image(), true, |v| {
        let ino = make(v, v.root(), "x.db", FileKind::Regular);
        v.write(ino, 0, &noise(0, 60 * PAGE)).unwrap();
        v.sync().unwrap();
        for round in 1..7 {
            for page in 0..60u64 {
                v.write(
                    ino,
                    page * PAGE as u64 + 400 * u64::from(round),
                    &noise(round * 60 + page as u32, 200),
                )
                .unwrap();
            }
            v.fsync(ino, false).unwrap();
        }
        make(v, v.root(), "other", FileKind::Regular);
    });
    let dev = open(&s.image());
    let mut pages: Vec<(u32, u64)> = (0..dev.block_count())
        .filter_map(|addr| {
            let block = read_block(&dev, addr).unwrap();
            let ino = u32::from_le_bytes(block.0[4..8].try_into().unwrap());
            Some((delta::compact_records(&block, ino).ok()?.0, addr))
        })
        .collect();
    pages.sort_unstable();
    let ((_, older), (_, last)) = (pages[0], *pages.last().expect("compact pages"));
    let older = read_block(&dev, older).unwrap();
    drop(dev);
    fs::File::options()
        .write(true)
        .open(s.image())
        .unwrap()
        .write_all_at(&older.0, last * PAGE as u64)
        .unwrap();
    let before = fs::read(s.image()).unwrap();
    let out = |assert: assert_cmd::assert::Assert| {
        let output = assert.get_output().clone();
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    };
    let text = out(medfs().arg("fsck").arg(s.image()).assert().code(4));
    assert!(text.contains("(\"x.db\"): compact page") && text.contains("F0916"), "{text}");
    let text = out(medfs().args(["fsck", "-p"]).arg(s.image()).assert().code(4));
    assert!(
        text.contains("a repair will lose the latest changes to 1 file, where these were kept as deltas\n"),
        "{text}"
    );
    assert!(fs::read(s.image()).unwrap() == before, "nothing was written");
    let text = out(medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("r")).assert().code(1));
    assert!(text.contains("/x.db: ") && text.contains("compact page"), "{text}");
    let text = out(medfs().args(["get", "--salvage"]).arg(s.image()).arg(s.path("out")).assert().code(1));
    assert!(text.contains("/x.db: "), "{text}");
    let text = out(medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1));
    assert!(
        text.contains("a repair will lose the latest changes to 1 file, where these were kept as deltas\n"),
        "{text}"
    );
    assert_clean(&s.image());
}
