//! Files that a decision tree chooses for sections of their own (ARS): by their habits, by their kin, by the
//! volume's own tree.

use crate::common::*;
use medfs::ars::{ATTRIBUTE, Class, Feature, Judgement, PlacedBy, Tree, TreeNode};
use medfs::{Extent, Files, Ino, SetAttr, Volume, XattrMode};
use medfs_device::{BlockDevice, Cause, Temperature, WriteTag, read_block};
use medfs_format::superblock::Feature as VolumeFeature;
use std::sync::Arc;

const TREE: &str = "placement=reserve,reserve_files=tree";
const MIB: u64 = 256;
const TAG: WriteTag = WriteTag::new(Cause::Node, Temperature::Warm);
/// Pages of a file that is written at random.
const PAGES: u64 = 300;

fn extents(v: &Volume, f: Ino) -> usize {
    Extent::of(v, f).expect("extents").len()
}

fn judgement(v: &Volume, f: Ino) -> Judgement {
    Judgement::of(v, f).expect("the file").expect("it was written")
}

/// Writes pages at random, each synced.
fn scattered(v: &Volume, f: Ino, pages: u64, seed: u64) {
    let mut order: Vec<u64> = (0..pages).collect();
    let mut random = Random(seed + 77);
    for n in (1..order.len()).rev() {
        order.swap(n, random.below(n as u64 + 1) as usize);
    }
    for index in order {
        write(v, f, index * PAGE as u64, &noise(index + seed * 1000));
        v.fsync(f, false).expect("fsync");
    }
}

/// A tree that is one answer.
fn always(class: Class) -> Tree {
    Tree::new(vec![TreeNode::Leaf { class, confidence: 100 }]).expect("a tree")
}

fn load(v: &Volume, tree: &Tree) {
    v.setxattr(v.root(), ATTRIBUTE, &tree.to_bytes(), XattrMode::Set).expect("the tree is taken");
}

#[test]
fn a_file_that_fragments_is_reserved_and_its_like_from_their_first_write() {
    for device in [Arc::new(blank(MIB, all_features())), Arc::new(blank_delta(MIB))] {
        let v = open_device(&device, TREE);
        let first = file(&v, v.root(), "a1.db");
        scattered(&v, first, PAGES, 1);
        assert!(extents(&v, first) > 20, "what was written before it was judged is in the log");
        let known = judgement(&v, first);
        assert_eq!((known.class, known.said().0, known.reserved.len()), (Class::Reserve, Class::Reserve, 1));
        let second = file(&v, v.root(), "a22.db");
        scattered(&v, second, PAGES, 2);
        assert_eq!(extents(&v, second), 1);
        // Another name, another directory: nothing is known of them.
        for (dir, name) in [(v.root(), "a22.bin"), (dir(&v, v.root(), "d"), "a22.db")] {
            let f = file(&v, dir, name);
            write(&v, f, 0, &noise(1));
            assert_eq!(judgement(&v, f).class, Class::Log, "{name}");
        }
        v.close().expect("close");
        judge(&device);
        let v = open_device(&device, "placement=log");
        let f = file(&v, v.root(), "a3.db");
        scattered(&v, f, PAGES, 3);
        assert!(extents(&v, f) > 100);
        assert_eq!((judgement(&v, f).class, judgement(&v, f).said().0), (Class::Log, Class::Reserve));
        v.close().expect("close");
    }
}

#[test]
fn files_that_do_not_fragment_take_no_section() {
    let device = Arc::new(blank(MIB, all_features()));
    let v = open_device(&device, TREE);
    let (once, _) = noisy_file(&v, "once.png", PAGES);
    let appended = file(&v, v.root(), "log.txt");
    for n in 0..200u64 {
        write(&v, appended, n * 100, &noise(n)[..100]);
        v.fsync(appended, true).expect("fdatasync");
    }
    let journal = file(&v, v.root(), "a.db-journal");
    for n in 0..40 {
        for page in 0..4 {
            write(&v, journal, page * PAGE as u64, &noise(n));
            v.fsync(journal, false).expect("fsync");
        }
        v.setattr(journal, &SetAttr { size: Some(0), ..SetAttr::default() }).expect("truncate");
    }
    for f in [once, appended, journal] {
        let known = judgement(&v, f);
        assert_eq!((known.class, known.reserved), (Class::Log, vec![]), "{:?}", known.features);
    }
    let counted = judgement(&v, journal).features;
    let of = |feature: Feature| counted[feature as usize];
    assert_eq!(
        [of(Feature::Writes), of(Feature::Fsyncs), of(Feature::Truncations), of(Feature::Kind)],
        [160, 160, 40, 2]
    );
    assert_eq!((of(Feature::Size), of(Feature::Overwritten)), (4, 0));
}

#[test]
fn the_volumes_tree_is_used_from_when_it_is_set_and_after_a_remount() {
    let device = Arc::new(blank(MIB, all_features()));
    let v = open_device(&device, TREE);
    load(&v, &always(Class::Log));
    let f = file(&v, v.root(), "never");
    scattered(&v, f, PAGES, 1);
    assert_eq!(judgement(&v, f).class, Class::Log);
    load(&v, &always(Class::Reserve));
    v.close().expect("close");
    judge(&device);
    let v = open_device(&device, TREE);
    let f = file(&v, v.root(), "always");
    for n in 0..32 {
        assert_eq!(judgement_after(&v, f, n), Class::Log, "after {n} writes");
    }
    assert_eq!(judgement_after(&v, f, 32), Class::Reserve, "two judgements agree");
    v.removexattr(v.root(), ATTRIBUTE).expect("removed");
    assert_eq!(judgement(&v, f).said().0, Class::Log, "the built-in tree knows no file without fsyncs");
    // What was judged stands until two judgements say otherwise; then what is not written is the logs' again.
    assert_eq!(judgement_after(&v, f, 64), Class::Reserve);
    v.sync().expect("sync");
    assert_eq!(judgement(&v, f).reserved.len(), 1);
    assert_eq!(judgement_after(&v, f, 128), Class::Log);
    assert_eq!(judgement(&v, f).reserved, []);
    v.close().expect("close");
    judge(&device);
}

/// What is judged of a file once it was written so many times.
fn judgement_after(v: &Volume, f: Ino, writes: u32) -> Class {
    let done = || Judgement::of(v, f).expect("the file").map_or(0, |j| j.features[Feature::Writes as usize]);
    while done() < writes {
        write(v, f, u64::from(done()) % 100 * PAGE as u64, &noise(done().into()));
    }
    Judgement::of(v, f).expect("the file").map_or(Class::Log, |j| j.class)
}

#[test]
fn what_is_no_tree_is_refused_and_passed_by_where_it_is_found() {
    let device = Arc::new(blank(MIB, VolumeFeature::empty()));
    let v = open_device(&device, TREE);
    let good = always(Class::Reserve).to_bytes();
    let mut torn = good.clone();
    torn[12] ^= 1;
    for bad in [&b""[..], b"a tree", &good[..19], &torn] {
        let error = v.setxattr(v.root(), ATTRIBUTE, bad, XattrMode::Set).expect_err("it is no tree");
        assert_eq!(error.errno(), 22, "{error}");
    }
    assert_eq!(v.getxattr(v.root(), ATTRIBUTE).expect_err("nothing was set").errno(), 61);
    // The same on the volume, under a name that is no tree's while it is set.
    v.setxattr(v.root(), b"trusted.medfs.arx", &torn, XattrMode::Set).expect("any bytes");
    v.close().expect("close");
    let mut renamed = 0;
    for addr in 0..device.block_count() {
        let mut block = read_block(&*device, addr).expect("memory");
        if let Some(at) = find(&block.0, b"medfs.arx") {
            block.0[at + 8] = b's';
            device.write(addr, &[&block], TAG).expect("memory");
            renamed += 1;
        }
    }
    assert!(renamed > 0);
    let v = open_device(&device, TREE);
    assert_eq!(v.getxattr(v.root(), ATTRIBUTE).expect("it is there"), torn);
    let f = file(&v, v.root(), "f.db");
    scattered(&v, f, PAGES, 1);
    assert_eq!(judgement(&v, f).class, Class::Reserve, "by the built-in tree");
    v.close().expect("close");
}

/// Overwrites pages of a file, so many before each fsync: with other noise, or with a few other bytes.
fn overwritten(v: &Volume, f: Ino, fsyncs: u64, pages: u64, unlike: bool) {
    let mut random = Random(5);
    for n in 0..fsyncs {
        for _ in 0..pages {
            let index = random.below(PAGES);
            let (at, bytes) = (index * PAGE as u64, noise(n * 1000 + index + 70_000));
            match unlike {
                true => write(v, f, at, &bytes),
                false => write(v, f, at + 100, &bytes[..30]),
            }
        }
        v.fsync(f, false).expect("fsync");
    }
}

#[test]
fn updates_that_are_like_nothing_are_written_at_home_without_deltas_and_others_as_deltas() {
    let device = Arc::new(blank_delta(MIB));
    let v = open_device(&device, &format!("{TREE},in_place=off"));
    let [(unlike, _), (alike, _)] = ["a.db", "b.db"].map(|name| noisy_file(&v, name, PAGES));
    overwritten(&v, unlike, 140, 8, true);
    overwritten(&v, alike, 140, 8, false);
    let known = [unlike, alike].map(|f| judgement(&v, f));
    let chosen = known.each_ref().map(|known| (known.placed, known.deltas));
    assert_eq!(chosen[0], ((Class::Reserve, PlacedBy::Tree), false), "{:?}", known[0]);
    assert_eq!(chosen[1], ((Class::Log, PlacedBy::Cost), true), "{:?}", known[1]);
    assert_eq!((known[1].said().0, known[1].reserved.len()), (Class::Reserve, 0));
    // No base is read, but for each sixteenth fsync, which tries deltas; so the file has them again when they pay.
    overwritten(&v, unlike, 1920, 8, false);
    let again = judgement(&v, unlike);
    assert!(again.deltas, "{again:?}");
    v.close().expect("close");
    judge(&device);
}

/// Bases are read where pages are compared: with deltas, and now and then without.
#[test]
fn pages_that_are_written_as_a_whole_are_compared_with_nothing() {
    let device = Arc::new(blank_delta(MIB));
    let v = open_device(&device, &format!("{TREE},in_place=off"));
    let (f, _) = noisy_file(&v, "a.db", PAGES);
    overwritten(&v, f, 140, 8, true);
    assert!(!judgement(&v, f).deltas);
    let wanted = || v.stats().deltas.bases;
    let before = wanted();
    overwritten(&v, f, 15, 8, true);
    assert!(wanted() - before <= 8, "{} bases for 120 pages", wanted() - before);
    v.close().expect("close");
}

#[test]
fn a_file_on_a_small_volume_is_in_no_more_pieces_than_without_reserves() {
    let [log, reserved] = ["placement=log", TREE].map(|options| {
        let device = Arc::new(blank(MIB, all_features()));
        let v = open_device(&device, options);
        let (f, _) = noisy_file(&v, "a.db", PAGES);
        v.sync().expect("sync");
        let nodes = v.stats().written.node;
        overwritten(&v, f, 200, 3, true);
        let (nodes, pieces) = (v.stats().written.node - nodes, extents(&v, f));
        v.close().expect("close");
        judge(&device);
        (pieces, nodes)
    });
    assert_eq!(reserved, log);
    assert_eq!(log.0, 1);
}

/// A policy asks for a page to be overwritten, and the seal of the fsync before needs its block. The next one finds it
/// free.
#[test]
fn a_page_that_a_seal_keeps_from_being_overwritten_is_counted() {
    let device = Arc::new(blank_delta(MIB));
    let v = open_device(&device, &format!("{TREE},in_place=fsync,delta=off"));
    let f = file(&v, v.root(), "a.db");
    let barred = |n| {
        write(&v, f, 7 * PAGE as u64, &noise(n));
        v.fsync(f, true).expect("fdatasync");
        judgement(&v, f).synced.barred
    };
    let [first, second, third] = [1, 2, 3].map(barred);
    assert!(first == 0.0 && second > 0.1 && third < second, "{first} {second} {third}");
    v.close().expect("close");
    judge(&device);
}

/// A page that had no block yet was not overwritten, wherever the file ends.
#[test]
fn what_is_written_into_holes_is_not_counted_as_overwritten() {
    for device in [Arc::new(blank(MIB, all_features())), Arc::new(blank_delta(MIB))] {
        let v = open_device(&device, TREE);
        let f = file(&v, v.root(), "f.db");
        let size = Some(PAGES * PAGE as u64);
        v.setattr(f, &SetAttr { size, ..SetAttr::default() }).expect("truncate");
        let overwritten = || judgement(&v, f).features[Feature::Overwritten as usize];
        scattered(&v, f, PAGES, 1);
        assert_eq!(overwritten(), 0);
        scattered(&v, f, PAGES, 2);
        assert_eq!(overwritten(), 50);
        v.close().expect("close");
    }
}

/// Sixteen pages to an fsync: the fourth fsync is told by the 64th write, and confirmed by the 128th.
#[test]
fn a_file_of_large_fsyncs_has_its_reserve_after_eight_of_them() {
    let device = Arc::new(blank(MIB, all_features()));
    let v = open_device(&device, &format!("{TREE},in_place=off"));
    let f = file(&v, v.root(), "a.db");
    v.setattr(f, &SetAttr { size: Some(PAGES * PAGE as u64), ..SetAttr::default() }).expect("truncate");
    overwritten(&v, f, 7, 16, true);
    assert_eq!(judgement(&v, f).class, Class::Log);
    overwritten(&v, f, 1, 16, true);
    assert_eq!(judgement(&v, f).class, Class::Reserve);
    v.close().expect("close");
    judge(&device);
}

/// Where no policy overwrites pages, a reserve does: also what lies together elsewhere.
#[test]
fn pages_that_lie_together_are_overwritten_where_they_are() {
    let device = Arc::new(blank(MIB, all_features()));
    let v = open_device(&device, &format!("{TREE},in_place=off"));
    load(&v, &always(Class::Reserve));
    let first = file(&v, v.root(), "0");
    write(&v, first, 0, &noise(1));
    v.fsync(first, false).expect("fsync");
    let (f, _) = noisy_file(&v, "a.db", PAGES);
    v.sync().expect("sync");
    overwritten(&v, f, 40, 3, true);
    let (before, pieces) = (v.stats().in_place_blocks, extents(&v, f));
    overwritten(&v, f, 40, 3, true);
    let again = extents(&v, f);
    assert!(v.stats().in_place_blocks - before > 60, "{}", v.stats().in_place_blocks - before);
    assert!(again <= pieces, "{pieces} pieces, then {again}");
    v.close().expect("close");
    judge(&device);
}

/// A file is judged in the middle: of its pages some are in a log and some at home, and some come home.
#[test]
fn every_crash_shows_what_was_fsynced_while_a_file_is_judged() {
    const FEW: u64 = 4;
    for device in [blank(MIB, all_features()), blank_delta(MIB)] {
        let device = Arc::new(device);
        let v = open_device(&device, TREE);
        load(&v, &always(Class::Reserve));
        file(&v, v.root(), "f");
        v.close().expect("close");
        let workload = |v: &Volume, mark: &dyn Fn(u64)| {
            let f = at(v, "f").expect("the file").ino;
            for n in 1..=58 {
                write(v, f, n % FEW * PAGE as u64, &page(n as u8));
                // Not each of them, to have few states before the file is judged.
                if !(2 * FEW..28).contains(&n) {
                    v.fsync(f, n % 2 == 0).expect("fsync");
                    mark(n);
                }
                if n == 43 {
                    v.checkpoint().expect("checkpoint");
                }
            }
            assert_eq!(judgement(v, f).reserved.len(), 1);
        };
        crash(&device, &format!("{TREE},in_place=off,delta=off"), workload, |v, mark| {
            let bytes = content(v, at(v, "f").expect("the file").ino);
            for (index, found) in (0..FEW).zip(bytes.chunks(PAGE)) {
                let found = u64::from(version(found));
                let last = (0..=mark).rev().find(|n| n % FEW == index).unwrap_or(0);
                assert!(found >= last, "page {index}: {found} after fsync {mark}");
                assert!(found == 0 || found % FEW == index, "page {index} is another's");
            }
            assert!(
                mark < FEW || bytes.len() == FEW as usize * PAGE,
                "{} bytes after fsync {mark}",
                bytes.len()
            );
        });
    }
}
