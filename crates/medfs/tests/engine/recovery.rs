//! Roll-forward: what was fsynced is there after a crash, on chains of our own and on every chain that the kernel's
//! comment at the head of `recovery.c` tells of.
//!
//! A crash is a volume that is dropped without being closed. Chains in orders that this implementation does not write
//! itself are made from real ones by putting their nodes in another order with other marks.

use crate::common::*;
use medfs::{FallocateMode, Files, Ino, ManualClock, MountOptions, SetAttr, Volume, XattrMode};
use medfs_device::crash::{CrashPlan, RecordingDevice};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::checkpoint::{RawCheckpoint, verify_checksum};
use medfs_format::node::{RawInode, footer, footer_mut};
use medfs_format::summary::Log;
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{Block, Geometry, crc};
use std::sync::Arc;

/// Runs `work` on a copy of `base` and crashes.
fn crashed(base: &MemDevice, options: &str, work: impl FnOnce(&Volume)) -> Arc<MemDevice> {
    let device = Arc::new(base.snapshot());
    let volume = open_device(&device, options);
    work(&volume);
    drop(volume);
    device
}

/// Opens a crashed device, lets `look` see what was recovered, and has the result judged, before and after a clean end.
#[track_caller]
fn recovered(device: &Arc<MemDevice>, look: impl Fn(&Volume)) {
    let volume = open_device(device, "");
    look(&volume);
    drop(volume);
    judge(device);
    let volume = open_device(device, "");
    assert_eq!(volume.stats().recovered_inodes, 0, "the checkpoint after recovery leaves nothing to recover");
    look(&volume);
    volume.close().expect("closed");
    judge(device);
}

fn ino_of(v: &Volume, name: &str) -> Ino {
    at(v, name).unwrap_or_else(|| panic!("{name} is missing")).ino
}

fn read_page(v: &Volume, ino: Ino, index: u64) -> Vec<u8> {
    let mut buf = page(0xee);
    let n = v.read(ino, index * PAGE as u64, &mut buf).expect("read");
    buf.truncate(n);
    buf
}

fn write_page(v: &Volume, ino: Ino, index: u64, tag: u8) {
    write(v, ino, index * PAGE as u64, &page(tag));
}

// --- Chains ---------------------------------------------------------------------------------------------------------

/// The nodes written after the last checkpoint of a crashed device, and what is needed to write them otherwise.
struct Chain {
    geometry: Geometry,
    start: u32,
    version: u64,
    seed: Option<u32>,
    addrs: Vec<u32>,
    nodes: Vec<Block>,
}

/// One node of a chain to be made: which of the real ones, and its marks.
#[derive(Clone, Copy)]
struct Step(usize, bool, bool);

impl Chain {
    fn of(device: &MemDevice) -> Chain {
        let sb = read_block(device, 0).unwrap();
        let sb = RawSuperblock::in_block(&sb);
        let geometry = sb.validate().unwrap();
        let seed = sb.features().contains(Feature::INODE_CHECKSUM).then(|| crc::chain(!0, &sb.uuid));
        let pack = |i: usize| {
            let addr = geometry.cp_pack(i);
            let block = read_block(device, addr.into()).unwrap();
            let crc = verify_checksum(&block, addr).ok()?;
            let header = RawCheckpoint::in_block(&block).clone();
            let version = header.checkpoint_ver.get();
            Some((version, version | (u64::from(crc) << 32), header))
        };
        let (_, version, header) =
            [pack(0), pack(1)].into_iter().flatten().max_by_key(|p| p.0).expect("a pack");
        let (segno, next) = header.curseg(Log::WarmNode as usize);
        let start = geometry.seg_start(segno) + u32::from(next);
        let mut chain = Chain { geometry, start, version, seed, addrs: Vec::new(), nodes: Vec::new() };
        let mut addr = start;
        while chain.geometry.in_main(addr) {
            let block = read_block(device, addr.into()).unwrap();
            if footer(&block).cp_ver.get() != version {
                break;
            }
            chain.addrs.push(addr);
            addr = footer(&block).next_blkaddr.get();
            chain.nodes.push(*block);
        }
        chain
    }

    /// Position of the node of a file at a node offset, the last one.
    fn find(&self, ino: Ino, offset: u32) -> usize {
        self.nodes
            .iter()
            .rposition(|n| footer(n).ino.get() == ino && footer(n).node_offset() == offset)
            .unwrap_or_else(|| panic!("the chain has no node {offset} of inode {ino}"))
    }

    /// Replaces the chain on the device by these steps.
    fn write(&self, device: &MemDevice, steps: &[Step]) {
        let tag = WriteTag::new(Cause::Node, Temperature::Warm);
        for (i, &Step(node, fsync, dentry)) in steps.iter().enumerate() {
            let mut block = self.nodes[node].clone();
            let f = footer_mut(&mut block);
            f.set_fsync(fsync);
            f.set_dentry(dentry);
            f.cp_ver = self.version.into();
            f.next_blkaddr = (self.start + i as u32 + 1).into();
            self.seal(&mut block);
            device.write(u64::from(self.start) + i as u64, &[&block], tag).unwrap();
        }
        device.write(u64::from(self.start) + steps.len() as u64, &[&Block::ZERO], tag).unwrap();
    }

    fn seal(&self, block: &mut Block) {
        let f = footer(block);
        if f.nid == f.ino
            && let Some(seed) = self.seed
        {
            block.view_mut::<RawInode>().seal(seed);
        }
    }
}

const FAR: u64 = 1000; // a page of the first direct node

/// A file with two pages, one in the inode and one in a direct node, changed and fsynced after a checkpoint (`old`), or
/// made after it. Gives the device and the positions of inode and direct node in the chain.
fn two_nodes(base: &MemDevice, old: bool) -> (Arc<MemDevice>, Chain, usize, usize) {
    let mut ino = 0;
    let device = crashed(base, "in_place=off", |v| {
        if old {
            ino = file(v, v.root(), "f");
            write_page(v, ino, 0, 1);
            write_page(v, ino, FAR, 1);
            write_page(v, ino, FAR + 1, 1);
        }
        file(v, v.root(), "other");
        v.sync().unwrap();
        if !old {
            ino = file(v, v.root(), "f");
        }
        write_page(v, ino, 0, 2);
        write_page(v, ino, FAR, 2);
        v.setattr(ino, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
        v.fsync(ino, false).unwrap();
    });
    let chain = Chain::of(&device);
    let (inode, direct) = (chain.find(ino, 0), chain.find(ino, 1));
    (device, chain, inode, direct)
}

/// What of `f` is there: mode, tag of page 0, tag of the far page.
fn seen(v: &Volume) -> Option<(u16, u8, u8)> {
    let attr = at(v, "f")?;
    Some((attr.perm, read_page(v, attr.ino, 0)[0], read_page(v, attr.ino, FAR)[0]))
}

#[test]
fn the_kernels_eight_cases() {
    // (exists at the checkpoint, chain of (is inode, fsync, dentry), what must be there)
    type Case = (bool, [(bool, bool, bool); 2], Option<(u16, u8, u8)>);
    let (i, d) = (true, false);
    let cases: [Case; 8] = [
        (true, [(i, false, false), (d, true, false)], Some((0o600, 2, 2))),
        (true, [(i, true, false), (d, true, false)], Some((0o600, 2, 2))),
        (true, [(d, true, false), (i, false, false)], Some((0o644, 1, 2))),
        (true, [(d, true, false), (i, true, false)], Some((0o600, 2, 2))),
        (false, [(i, false, false), (d, true, false)], None),
        (false, [(i, true, true), (d, true, false)], Some((0o600, 2, 2))),
        (false, [(d, true, false), (i, true, true)], Some((0o600, 2, 2))),
        (false, [(d, true, false), (i, false, false)], None),
    ];
    for base in bases() {
        for (number, (old, steps, expected)) in cases.iter().enumerate() {
            let (device, chain, inode, direct) = two_nodes(&base, *old);
            let steps: Vec<Step> = steps
                .iter()
                .map(|&(is_inode, f, d)| Step(if is_inode { inode } else { direct }, f, d))
                .collect();
            chain.write(&device, &steps);
            recovered(&device, |v| assert_eq!(seen(v), *expected, "case {}", number + 1));
        }
    }
}

/// The kernel moves blocks between pages and files without writing them, and leaves it to recovery to find
/// that a block of the checkpoint has another owner now.
#[test]
fn blocks_that_change_their_owner() {
    for base in bases() {
        let (mut a, mut b) = (0, 0);
        let device = crashed(&base, "in_place=off", |v| {
            (a, b) = (file(v, v.root(), "a"), file(v, v.root(), "b"));
            for i in 0..8 {
                write_page(v, a, i, 1 + i as u8);
                write_page(v, b, i, 101 + i as u8);
            }
            v.sync().unwrap();
            for ino in [a, b] {
                v.setattr(ino, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
                v.fsync(ino, false).unwrap();
            }
        });
        let mut chain = Chain::of(&device);
        let (of_a, of_b) = (chain.find(a, 0), chain.find(b, 0));
        let flexible = chain.seed.is_some();
        let first = |chain: &Chain, node: usize| chain.nodes[node].view::<RawInode>().slots(flexible).extra;
        // Inside `a` all pages move one up; page 0 of `b` becomes page 7 of `a`, page 0 of `a` that of `b`.
        let (in_a, in_b) = (first(&chain, of_a), first(&chain, of_b));
        let from_b = chain.nodes[of_b].view::<RawInode>().i_addr[in_b];
        let raw: &mut RawInode = chain.nodes[of_a].view_mut();
        let to_b = raw.i_addr[in_a];
        raw.i_addr.copy_within(in_a + 1..in_a + 8, in_a);
        raw.i_addr[in_a + 7] = from_b;
        chain.nodes[of_b].view_mut::<RawInode>().i_addr[in_b] = to_b;
        chain.write(&device, &[Step(of_b, true, false), Step(of_a, true, false)]);
        recovered(&device, |v| {
            let tags =
                |name: &str| content(v, ino_of(v, name)).chunks(PAGE).map(|c| c[0]).collect::<Vec<u8>>();
            assert_eq!(tags("a"), [2, 3, 4, 5, 6, 7, 8, 101]);
            assert_eq!(tags("b"), [1, 102, 103, 104, 105, 106, 107, 108]);
        });
    }
}

#[test]
fn a_chain_that_meets_itself_ends_there() {
    for base in bases() {
        let (device, chain, inode, direct) = two_nodes(&base, false);
        chain.write(&device, &[Step(direct, false, false), Step(inode, true, true)]);
        let tag = WriteTag::new(Cause::Node, Temperature::Warm);
        let mut last = *read_block(&*device, u64::from(chain.start) + 1).unwrap();
        footer_mut(&mut last).next_blkaddr = chain.start.into();
        chain.seal(&mut last);
        device.write(u64::from(chain.start) + 1, &[&last], tag).unwrap();
        recovered(&device, |v| assert_eq!(seen(v), Some((0o600, 2, 2))));
    }
}

// --- What fsync promises --------------------------------------------------------------------------------------------

#[test]
fn content_attributes_and_xattrs_come_back() {
    for base in bases() {
        let value = vec![7u8; 3000];
        let device = crashed(&base, "", |v| {
            let old = file(v, v.root(), "old");
            write(v, old, 0, b"inline at first");
            let emptied = file(v, v.root(), "emptied");
            (0..1200).for_each(|i| write_page(v, emptied, i, 3));
            v.setxattr(emptied, b"user.gone", &value, XattrMode::Set).unwrap();
            v.sync().unwrap();

            write(v, old, 0, &vec![9; 9 * PAGE + 5]);
            v.setxattr(old, b"user.big", &value, XattrMode::Set).unwrap();
            v.fsync(old, false).unwrap();

            let set = SetAttr { size: Some(100), uid: Some(1), gid: Some(2), ..SetAttr::default() };
            v.setattr(emptied, &set).unwrap();
            v.removexattr(emptied, b"user.gone").unwrap();
            v.fsync(emptied, false).unwrap();

            let small = file(v, v.root(), "small");
            write(v, small, 0, b"a few bytes");
            v.setxattr(small, b"user.s", b"short", XattrMode::Set).unwrap();
            v.fsync(small, true).unwrap();

            let lost = file(v, v.root(), "lost");
            write_page(v, lost, 0, 1);
        });
        recovered(&device, |v| {
            let old = ino_of(v, "old");
            assert_eq!(content(v, old), vec![9; 9 * PAGE + 5]);
            assert_eq!(v.getxattr(old, b"user.big").unwrap(), value);
            let emptied = at(v, "emptied").unwrap();
            assert_eq!((emptied.size, emptied.uid, emptied.gid), (100, 1, 2));
            assert!(emptied.blocks <= 8, "{} sectors for one page", emptied.blocks);
            assert_eq!(content(v, emptied.ino), vec![3; 100]);
            assert_eq!(v.getxattr(emptied.ino, b"user.gone").unwrap_err().errno(), 61);
            let small = ino_of(v, "small");
            assert_eq!(content(v, small), b"a few bytes");
            assert_eq!(v.getxattr(small, b"user.s").unwrap(), b"short");
            assert!(at(v, "lost").is_none());
        });
    }
}

#[test]
fn trees_of_nodes_come_back() {
    // Pages in the inode, in both direct nodes and below an indirect node, old and new, and holes between.
    let pages = [0, 5, 900, 950, 1900, 2000, 3000, 3500, 4500];
    for base in bases() {
        for old in [false, true] {
            let device = crashed(&base, "", |v| {
                let mut ino = 0;
                if old {
                    ino = file(v, v.root(), "f");
                    (0..4000).step_by(7).for_each(|i| write_page(v, ino, i, 1));
                }
                v.sync().unwrap();
                if !old {
                    ino = file(v, v.root(), "f");
                }
                for (n, &i) in pages.iter().enumerate() {
                    write_page(v, ino, i, 10 + n as u8);
                    v.fsync(ino, n % 2 == 0).unwrap();
                }
            });
            recovered(&device, |v| {
                let attr = at(v, "f").unwrap();
                assert_eq!(attr.size, 4501 * PAGE as u64);
                for i in 0..4501u64 {
                    let expected = match pages.iter().position(|&p| p == i) {
                        Some(n) => 10 + n as u8,
                        None => u8::from(old && i < 4000 && i % 7 == 0),
                    };
                    assert_eq!(read_page(v, attr.ino, i), page(expected), "page {i}");
                }
            });
        }
    }
}

/// Nodes that an fsynced truncation freed do not show through the hole that takes their place.
#[test]
fn a_hole_where_nodes_were_stays_a_hole() {
    const PAGES: u64 = 5000; // the last are below an indirect node
    for base in [blank(128, Feature::empty()), blank(128, all_features())] {
        for kept in [0, 10, 1500, 3500] {
            let device = crashed(&base, "", |v| {
                let ino = file(v, v.root(), "f");
                (0..PAGES).for_each(|i| write_page(v, ino, i, 1));
                v.sync().unwrap();
                for size in [kept, PAGES] {
                    v.setattr(ino, &SetAttr { size: Some(size * PAGE as u64), ..SetAttr::default() })
                        .unwrap();
                }
                write_page(v, ino, PAGES - 1, 2);
                v.fsync(ino, false).unwrap();
            });
            recovered(&device, |v| {
                let ino = ino_of(v, "f");
                for i in 0..PAGES {
                    let expected = if i < kept { 1 } else { 2 * u8::from(i == PAGES - 1) };
                    assert_eq!(read_page(v, ino, i), page(expected), "page {i} of {kept} kept");
                }
            });
        }
    }
}

#[test]
fn moved_and_freed_ranges_come_back() {
    for base in bases() {
        let device = crashed(&base, "", |v| {
            for name in ["collapsed", "inserted", "punched", "reserved"] {
                let ino = file(v, v.root(), name);
                (0..40).for_each(|i| write_page(v, ino, i, 1 + i as u8));
            }
            v.sync().unwrap();
            let p = PAGE as u64;
            for (name, mode, from, len) in [
                ("collapsed", FallocateMode::COLLAPSE_RANGE, 3, 10),
                ("inserted", FallocateMode::INSERT_RANGE, 3, 10),
                ("punched", FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 3, 10),
                ("reserved", FallocateMode::KEEP_SIZE, 40, 10),
            ] {
                let ino = ino_of(v, name);
                v.fallocate(ino, mode, from * p, len * p).unwrap();
                v.fsync(ino, false).unwrap();
            }
        });
        recovered(&device, |v| {
            let tags = |name: &str| {
                let bytes = content(v, ino_of(v, name));
                bytes.chunks(PAGE).map(|c| c[0]).collect::<Vec<u8>>()
            };
            let old: Vec<u8> = (1..=40).collect();
            assert_eq!(tags("collapsed"), [&old[..3], &old[13..]].concat());
            assert_eq!(tags("inserted"), [&old[..3], &[0; 10], &old[3..]].concat());
            assert_eq!(tags("punched"), [&old[..3], &[0; 10], &old[13..]].concat());
            assert_eq!(tags("reserved"), old);
        });
    }
}

#[test]
fn a_replaced_name_frees_the_old_file() {
    for base in bases() {
        let mut free = 0;
        // Strict mode makes a checkpoint here; posix mode leaves it to recovery.
        let device = crashed(&base, "fsync_mode=posix", |v| {
            free = v.space().free;
            let old = file(v, v.root(), "a");
            (0..300).for_each(|i| write_page(v, old, i, 1));
            v.sync().unwrap();
            v.unlink(v.root(), b"a").unwrap();
            let new = file(v, v.root(), "a");
            write_page(v, new, 0, 2);
            v.fsync(new, false).unwrap();
            assert_eq!(v.stats().fsyncs_with_checkpoint, 0);
            // The old file is open still, and is fsynced after the new one.
            write_page(v, old, 0, 3);
            v.fsync(old, false).unwrap();
        });
        recovered(&device, |v| {
            assert_eq!(content(v, ino_of(v, "a")), page(2));
            assert!(free - v.space().free <= 4, "{} blocks are gone", free - v.space().free);
        });
    }
}

#[test]
fn many_files_over_several_segments() {
    for base in bases() {
        let device = crashed(&base, "", |v| {
            v.sync().unwrap();
            for n in 0..400u64 {
                let ino = file(v, v.root(), &format!("f{n}"));
                write_page(v, ino, 0, n as u8);
                v.fsync(ino, false).unwrap();
                write_page(v, ino, 1, (n as u8).wrapping_add(1));
                v.fsync(ino, true).unwrap();
                v.release(ino, 1);
            }
        });
        recovered(&device, |v| {
            for n in 0..400u64 {
                let found = content(v, ino_of(v, &format!("f{n}")));
                assert_eq!(found, [page(n as u8), page((n as u8).wrapping_add(1))].concat(), "f{n}");
            }
        });
    }
}

// --- Crashes of the recovery itself, damage -------------------------------------------------------------------------

/// A crashed volume with something of everything in its chain.
fn busy(base: &MemDevice) -> Arc<MemDevice> {
    crashed(base, "in_place=off,fsync_mode=posix", |v| {
        let old = file(v, v.root(), "old");
        (0..1100).for_each(|i| write_page(v, old, i, 1));
        let gone = file(v, v.root(), "gone");
        (0..50).for_each(|i| write_page(v, gone, i, 1));
        v.sync().unwrap();
        v.unlink(v.root(), b"gone").unwrap();
        v.release(gone, 1);
        for n in 0..20u8 {
            let ino = file(v, v.root(), &format!("new{n}"));
            write_page(v, ino, 0, n);
            v.setxattr(ino, b"user.x", &[n; 2000], XattrMode::Set).unwrap();
            v.fsync(ino, false).unwrap();
            write_page(v, old, u64::from(n) * 50, 100 + n);
            v.fsync(old, true).unwrap();
        }
    })
}

fn busy_is_whole(v: &Volume) {
    let old = ino_of(v, "old");
    for n in 0..20u8 {
        let ino = ino_of(v, &format!("new{n}"));
        assert_eq!(content(v, ino), page(n));
        assert_eq!(v.getxattr(ino, b"user.x").unwrap(), [n; 2000]);
        assert_eq!(read_page(v, old, u64::from(n) * 50), page(100 + n));
    }
    assert_eq!(read_page(v, old, 1099), page(1));
}

#[test]
fn a_recovery_that_is_cut_short_is_done_again() {
    for base in bases() {
        let device = busy(&base);
        let recorder = Arc::new(RecordingDevice::new(&device));
        let volume = open_with(recorder.clone(), "", Arc::new(ManualClock::new(START)));
        busy_is_whole(&volume);
        // Life goes on: after the checkpoint the chain's blocks may be overwritten.
        for n in 0..60u64 {
            let ino = file(&volume, volume.root(), &format!("later{n}"));
            write_page(&volume, ino, 0, 7);
            volume.fsync(ino, false).unwrap();
        }
        drop(volume);
        let plan = CrashPlan { exhaustive: 8, samples: 3, seed: 5, ..CrashPlan::default() };
        let mut states = 0;
        for state in recorder.recording().states(&plan) {
            let again = Arc::new(state.device());
            let volume = open_device(&again, "");
            let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| busy_is_whole(&volume)));
            if let Err(e) = looked {
                eprintln!("seed {}: {state:?}", plan.seed);
                std::panic::resume_unwind(e);
            }
            drop(volume);
            if states % 64 == 0 {
                judge(&again);
            }
            states += 1;
        }
        assert!(states > 50, "only {states} crash states");
    }
}

#[test]
fn a_read_only_mount_shows_what_was_fsynced_and_writes_nothing() {
    for base in bases() {
        let device = busy(&base);
        device.set_read_only(true);
        let volume = open_device(&device, "ro");
        busy_is_whole(&volume);
        volume.sync().expect("there is nothing to write");
        volume.close().expect("closed");
        drop(volume);
        let volume = open_device(&device, "ro,norecovery");
        assert!(at(&volume, "new0").is_none());
        assert_eq!(read_page(&volume, ino_of(&volume, "old"), 0), page(1));
        drop(volume);
        device.set_read_only(false);
        recovered(&device, busy_is_whole);
    }
}

#[test]
fn what_is_not_rolled_forward_does_not_come_back_later() {
    for base in bases() {
        let device = busy(&base);
        let volume = open_device(&device, "disable_roll_forward");
        assert!(at(&volume, "new0").is_none());
        let ino = file(&volume, volume.root(), "x");
        write_page(&volume, ino, 0, 1);
        volume.fsync(ino, false).unwrap();
        drop(volume);
        recovered(&device, |v| {
            assert_eq!(content(v, ino_of(v, "x")), page(1));
            assert!((0..20).all(|n| at(v, &format!("new{n}")).is_none()), "the old chain was continued");
            assert_eq!(read_page(v, ino_of(v, "old"), 0), page(1));
        });
    }
}

#[test]
fn damaged_chains_never_panic_or_hang() {
    let mut refused = 0;
    for (b, base) in bases().iter().enumerate() {
        let device = busy(base);
        let chain = Chain::of(&device);
        assert!(chain.nodes.len() > 40);
        for seed in 1..=300u64 {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let copy = Arc::new(device.snapshot());
            for _ in 0..1 + random.below(4) {
                let at = random.below(chain.nodes.len() as u64) as usize;
                let addr = u64::from(chain.addrs[at]);
                let mut block = *read_block(&*copy, addr).unwrap();
                // Whole fields get values that mean something elsewhere: other nids, addresses, sizes.
                let word = 4 * random.below(1018 + 6) as usize;
                let value: u32 = match random.below(5) {
                    0 => random.below(64) as u32,
                    1 => chain.addrs[random.below(chain.addrs.len() as u64) as usize],
                    2 => {
                        chain.geometry.main_blkaddr
                            + random.below(u64::from(chain.geometry.main_blocks())) as u32
                    }
                    3 => u32::MAX - random.below(4) as u32,
                    _ => random.below(1 << 32) as u32,
                };
                block.0[word..word + 4].copy_from_slice(&value.to_le_bytes());
                footer_mut(&mut block).cp_ver = chain.version.into();
                chain.seal(&mut block);
                copy.write(addr, &[&block], WriteTag::new(Cause::Node, Temperature::Warm)).unwrap();
            }
            let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                match Volume::open(copy.clone(), MountOptions::default(), Arc::new(ManualClock::new(START))) {
                    Ok(v) => v.close().map(|()| false),
                    Err(e) => {
                        assert!(e.to_string().contains("medfs fsck --repair") || e.errno() != 117, "{e}");
                        Ok(true)
                    }
                }
            }));
            match opened {
                Ok(Ok(was_refused)) => refused += u32::from(was_refused),
                Ok(Err(e)) => eprintln!("base {b} seed {seed}: closing: {e}"),
                Err(e) => {
                    eprintln!("base {b} seed {seed}");
                    std::panic::resume_unwind(e);
                }
            }
        }
    }
    assert!(refused > 0, "no damage was noticed");
}

/// The kernel writes such volumes, and its crashes leave a log.
#[test]
fn what_was_fsynced_is_shown_of_volumes_that_can_only_be_read() {
    for feature in [Feature::ENCRYPT, Feature::VERITY, Feature::CASEFOLD] {
        for base in bases() {
            let device = busy(&base);
            for copy in 0..2 {
                let mut block = read_block(&*device, copy).expect("a superblock");
                let sb = RawSuperblock::in_block_mut(&mut block);
                sb.feature = (sb.feature.get() | feature.bits()).into();
                sb.seal();
                device.write(copy, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold)).expect("memory");
            }
            busy_is_whole(&open_device(&device, "ro"));
        }
    }
}
