//! Where blocks go: in-place update policies, and logs that scatter what they write.

use crate::common::*;
use medfs::{Extent, Files, Volume};
use medfs_device::MemDevice;
use medfs_format::superblock::Feature;
use std::sync::Arc;

/// Pages of a file that is written in order.
const PAGES: u64 = 600;
/// Blocks of a segment, which begins at a multiple of them.
const SEGMENT: u32 = 512;

/// A volume of one segment a section, and one of four.
fn volumes() -> [Arc<MemDevice>; 2] {
    let sections =
        medfs_mkfs::MkfsOptions { segs_per_sec: 2, ..medfs_mkfs::MkfsOptions::new([7; 16], START.secs) };
    let device = MemDevice::new(1024 * 256);
    medfs_mkfs::format_volume(&device, &sections).expect("a volume of large sections");
    [Arc::new(blank(512, all_features())), Arc::new(device)]
}

/// The extents of a file that is written in order with some options, then read back, before and after an unmount.
fn extents_in(device: &Arc<MemDevice>, options: &str) -> Vec<Extent> {
    let v = open_device(device, options);
    let (f, expected) = noisy_file(&v, "f", PAGES);
    let extents = Extent::of(&v, f).expect("extents");
    assert_eq!(extents.iter().map(|e| e.len).sum::<u64>(), PAGES);
    assert!(content(&v, f) == expected);
    v.close().expect("close");
    judge(device);
    let v = open_device(device, "");
    let f = at(&v, "f").expect("the file").ino;
    assert!(content(&v, f) == expected);
    v.unlink(v.root(), b"f").expect("unlink");
    v.release(f, 1);
    v.close().expect("close");
    extents
}

/// The same extents, each within a segment: a log leaves no hole between a segment and the next one.
fn in_segments(extents: Vec<Extent>) -> Vec<Extent> {
    let split = |e: Extent| {
        let first = e.len.min(u64::from(SEGMENT - e.addr % SEGMENT));
        let rest = Extent { addr: e.addr + first as u32, page: e.page + first, len: e.len - first };
        [Extent { len: first, ..e }, rest]
    };
    extents.into_iter().flat_map(split).filter(|e| e.len > 0).collect()
}

#[test]
fn scattered_blocks_make_many_extents_of_the_lengths_asked_for() {
    for device in volumes() {
        assert!(extents_in(&device, "mode=adaptive").len() < 8);
        for (options, chunk, hole) in [
            ("mode=fragment:block", 4, 4),
            ("mode=fragment:block,max_fragment_chunk=1,max_fragment_hole=2", 1, 2),
        ] {
            let extents = in_segments(extents_in(&device, options));
            assert!(extents.len() as u64 >= PAGES / chunk, "{} extents", extents.len());
            assert!(extents.iter().all(|e| e.len <= chunk), "{options}");
            let segment = |extent: &Extent| extent.addr / SEGMENT;
            let near = |pair: &&[Extent]| {
                pair[0].addr < pair[1].addr
                    && pair[1].addr - pair[0].addr < 64
                    && segment(&pair[0]) == segment(&pair[1])
            };
            for pair in extents.windows(2).filter(near) {
                let between = u64::from(pair[1].addr - pair[0].addr) - pair[0].len;
                assert!((1..=hole).contains(&between), "{options}: {pair:?}");
            }
        }
    }
}

#[test]
fn scattered_segments_lie_apart() {
    let device = Arc::new(blank(512, all_features()));
    let apart = |options: &str| {
        let v = open_device(&device, options);
        let name = format!("f{options}");
        let f = file(&v, v.root(), &name);
        write(&v, f, 0, &vec![7; 3000 * PAGE]);
        v.sync().expect("sync");
        let extents = Extent::of(&v, f).expect("extents");
        v.close().expect("close");
        extents.windows(2).filter(|pair| pair[0].addr + pair[0].len as u32 != pair[1].addr).count()
    };
    assert!(apart("") <= 1);
    assert!(apart("mode=fragment:segment") >= 4);
    judge(&device);
}

#[test]
fn a_scattered_volume_takes_as_much_as_another() {
    let full = |options: &str| {
        let device = Arc::new(blank(160, all_features()));
        let v = open_device(&device, options);
        let f = file(&v, v.root(), "f");
        let mut at = 0;
        while v.write(f, at, &noise(at)).is_ok_and(|n| n == PAGE) {
            at += PAGE as u64;
            if at.is_multiple_of(64 * PAGE as u64) && v.fsync(f, false).is_err() {
                break;
            }
        }
        v.sync().expect("sync");
        v.close().expect("close");
        judge(&device);
        at
    };
    let (plain, scattered) = (full(""), full("mode=fragment:block"));
    assert!(scattered * 100 >= plain * 98, "{scattered} of {plain}");
}

#[test]
fn a_crash_of_a_scattered_volume_recovers_what_was_fsynced() {
    let base = blank(512, all_features());
    let options = "mode=fragment:block";
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        let f = file(v, v.root(), "f");
        for n in 1..=6u8 {
            write(v, f, u64::from(n % 3) * PAGE as u64, &page(n));
            v.fsync(f, false).expect("fsync");
            mark(n.into());
        }
    };
    crash(&base, options, workload, |v, mark| {
        let Some(f) = at(v, "f") else { return assert_eq!(mark, 0) };
        let bytes = content(v, f.ino);
        let newest = bytes.chunks(PAGE).map(|page| u64::from(version(page))).max().unwrap_or(0);
        assert!(newest >= mark, "{newest} of {mark}");
    });
}

/// Blocks of a file before and after it was overwritten, once by fdatasync and once by the background.
fn stays(options: &str, mib: u64) -> [bool; 2] {
    let v = open_device(&Arc::new(blank(mib, Feature::empty())), options);
    let (f, _) = noisy_file(&v, "f", 200);
    let addrs = |v: &Volume| Extent::of(v, f).expect("extents");
    let before = addrs(&v);
    write(&v, f, 5 * PAGE as u64, &page(1));
    v.fsync(f, true).expect("fdatasync");
    let after_fdatasync = addrs(&v) == before;
    let before = addrs(&v);
    write(&v, f, 7 * PAGE as u64, &page(2));
    v.sync().expect("sync");
    [after_fdatasync, addrs(&v) == before]
}

#[test]
fn each_in_place_policy_acts_when_it_should() {
    for (options, expected) in [
        ("in_place=off", [false, false]),
        ("in_place=force", [true, true]),
        ("in_place=fsync", [true, false]),
        ("in_place=async", [false, true]),
        ("in_place=fsync+async", [true, true]),
        ("in_place=nocache+honor_opu_write", [false, false]),
        ("in_place=util", [false, false]),
        ("in_place=util,min_ipu_util=0", [true, true]),
        ("in_place=ssr+ssr_util", [true, true]),
        ("in_place=ssr_util", [false, false]),
        ("ipu_policy=48", [true, true]),
        ("ipu_policy=0", [false, false]),
    ] {
        assert_eq!(stays(options, 64), expected, "{options}");
    }
    // Where free sections are many, no log fills holes.
    assert_eq!(stays("in_place=ssr", 512), [false, false]);
}
