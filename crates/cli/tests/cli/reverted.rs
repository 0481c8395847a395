//! Pages that lose their last updates: a repair at boot leaves them alone, and a salvage names them.

use crate::boot::patch;
use crate::common::*;
use medfs::{FileKind, Files};
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
    assert!(text.contains("a repair will drop the last updates of pages of 1 file\n"), "{text}");
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
    let cost = text.find("a repair will drop the last updates of pages of 1 file").expect("the cost");
    assert!(text.find("F0907").is_some_and(|at| at < cost), "{text}");
    assert!(text.find("rolled 1 fsynced file forward").is_some_and(|at| cost < at), "{text}");
}
