//! Both copies of the superblock are lost: one is rebuilt from the layout of the volume, and all files are in place.

use crate::common::{Bed, META, load};
use medfs::{FileKind, Files, MountOptions, NewFile, Volume};
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::checkpoint::RawCheckpoint;
use medfs_format::node::{RawInode, footer};
use medfs_format::superblock::{Feature, RawNvramInfo, RawSuperblock};
use medfs_format::{Block, Geometry};
use medfs_fsck::undo::{UndoDevice, restore};
use medfs_fsck::{Code, Options, check, repair};
use medfs_testkit::delta_volume::delta_volume;
use medfs_testkit::kept::Kept;
use medfs_testkit::model::Model;
use medfs_testkit::observe::observe;
use medfs_testkit::power_cut::PowerCut;
use medfs_testkit::volume::test_clock;
use std::sync::Arc;
use zerocopy::IntoBytes;

fn shown(dev: MemDevice) -> Model {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    observe(&Volume::open(Arc::new(dev), options, test_clock()).expect("it opens")).expect("it is sound")
}

fn superblock(dev: &dyn BlockDevice) -> RawSuperblock {
    RawSuperblock::in_block(&read_block(dev, 0).unwrap()).clone()
}

fn geometry(dev: &dyn BlockDevice) -> Geometry {
    superblock(dev).validate().expect("a superblock")
}

fn without_superblocks(dev: &MemDevice) -> MemDevice {
    let damaged = dev.snapshot();
    damaged.write(0, &[&Block::ZERO, &Block::ZERO], META).unwrap();
    damaged
}

/// Repairs a copy without superblocks, and compares areas and files with what was there.
fn comes_back(name: &str, dev: &MemDevice) -> MemDevice {
    let model = shown(dev.snapshot());
    let damaged = without_superblocks(dev);
    let repaired = repair(&damaged, &Options::default(), &mut |_| {}).unwrap();
    assert!(repaired.before.has(Code::SuperblockLost), "{name}: {:?}", repaired.before.findings);
    assert_eq!(repaired.after.findings, [], "{name}");
    let only = |code| matches!(code, Code::SuperblockCopy | Code::SuperblockLost);
    let others: Vec<_> = repaired.before.findings.iter().filter(|f| !only(f.code)).collect();
    assert!(others.is_empty(), "{name}: {others:?}");
    let (was, is) = (geometry(dev), geometry(&damaged));
    assert_eq!(format!("{was:?}"), format!("{is:?}"), "{name}");
    let files = model.inodes().filter(|(_, inode)| !inode.is_dir()).count() as u64;
    let kept = Kept::count(&model, &Arc::new(damaged.snapshot()));
    assert_eq!(kept, Kept { in_place: files, ..Kept::default() }, "{name}");
    damaged
}

#[test]
fn volumes_of_every_layout_get_their_superblock_back() {
    let bed = Bed::new();
    let all = "extra_attr,inode_checksum,inode_crtime,flexible_inline_xattr,sb_checksum";
    for (mib, options) in [
        (80, &[][..]),
        (80, &["-O", all]),
        (300, &["-s", "2"]),
        (400, &["-s", "3"]),
        (700, &["-s", "7"]),
        (200, &["-z", "3"]),
        (400, &["-s", "2", "-z", "2"]),
        (200, &["-o", "12"]),
        (80, &["-i"]),
    ] {
        let image = bed.mkfs("layout.img", mib, options);
        bed.sload(&image, &bed.tree());
        let name = format!("{mib} MiB, {options:?}");
        let mended = comes_back(&name, &load(&image));
        bed.judge(&mended).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn features_and_checksums_are_those_of_the_inodes() {
    let bed = Bed::new();
    let all = "extra_attr,inode_checksum,inode_crtime,flexible_inline_xattr,project_quota,quota";
    let dev = load(&bed.filled("features.img", &["-O", all]));
    let mended = comes_back("features", &dev);
    let (was, is) = (superblock(&dev), superblock(&mended));
    assert_eq!(was.features(), is.features());
    assert_eq!(was.qf_ino, is.qf_ino);
    let seed = |sb: &RawSuperblock| medfs_format::crc::chain(!0, &sb.uuid);
    assert!(was.uuid != is.uuid && seed(&was) == seed(&is));
}

/// medfs writes checksums into inodes that have room for them, also where the volume does not ask for any.
#[test]
fn checksums_of_some_inodes_are_no_feature_of_a_volume_whose_root_has_none() {
    let bed = Bed::new();
    let dev = Arc::new(load(&bed.mkfs("some.img", 64, &["-O", "extra_attr,flexible_inline_xattr"])));
    let v = Volume::open(dev.clone(), MountOptions::default(), test_clock()).expect("it opens");
    for name in [&b"one"[..], b"other", b"third"] {
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let ino = v.create(v.root(), name, &new).expect("create").ino;
        v.write(ino, 0, name).expect("write");
        v.release(ino, 1);
    }
    v.close().expect("closed");
    drop(v);
    let dev = comes_back("extra_attr", &dev.snapshot());
    assert_eq!(superblock(&dev).features() & Feature::INODE_CHECKSUM, Feature::empty());
    bed.judge(&dev).unwrap();
}

#[test]
fn volumes_with_deltas_and_compressed_files_get_their_superblock_back() {
    for (name, dev) in [
        ("deltas", delta_volume("").dev.snapshot()),
        ("compact pages", delta_volume("delta=compact").dev.snapshot()),
        ("compressed", crate::common::compressed_volume(300).0),
        ("compressed with deltas", crate::common::updated_clusters(300, &[3, 40]).0),
    ] {
        let mended = comes_back(name, &dev);
        let (was, is) = (superblock(&dev), superblock(&mended));
        assert_eq!(was.is_delta_volume(), is.is_delta_volume(), "{name}");
        let compressed = |sb: &RawSuperblock| sb.features().contains(Feature::COMPRESSION);
        assert!(!name.starts_with("compressed") || compressed(&is), "{name}");
    }
}

/// A bit of a feature that a volume has from its beginning, or of one that nobody knows, flipped in either copy.
#[test]
fn a_feature_that_one_copy_alone_has_is_a_flipped_bit() {
    let dev = plain();
    let (model, features) = (shown(dev.snapshot()), superblock(&dev).features());
    let files = model.inodes().filter(|(_, inode)| !inode.is_dir()).count() as u64;
    for (copy, bit) in [0, 1].into_iter().flat_map(|copy| [1, 14, 15, 16, 23, 31].map(|bit| (copy, bit))) {
        let damaged = dev.snapshot();
        let mut block = read_block(&damaged, copy).unwrap();
        let sb = RawSuperblock::in_block_mut(&mut block);
        sb.feature = (sb.feature.get() ^ 1 << bit).into();
        damaged.write(copy, &[&block], META).unwrap();
        assert_eq!(Kept::count(&model, &Arc::new(damaged.snapshot())).in_place, files, "{copy} {bit}");
        let repaired = repair(&damaged, &Options::default(), &mut |_| {}).unwrap();
        assert!(repaired.before.has(Code::SuperblocksDiffer), "{copy} {bit}: {:?}", repaired.before.findings);
        assert_eq!(repaired.before.findings.len(), 1, "{copy} {bit}");
        assert_eq!(superblock(&damaged).features(), features, "{copy} {bit}");
        assert_eq!(check(&damaged, &Options::default(), &mut |_| {}).unwrap().findings, [], "{copy} {bit}");
    }
}

/// A bit in any field of a superblock without checksum: the volume opens with all its files, and a repair
/// takes the right copy, wherever the volume tells.
#[test]
fn a_flipped_bit_of_a_superblock_without_checksum_is_found_by_what_the_volume_says() {
    let bed = Bed::new();
    let dev = load(&bed.filled("bits.img", &["-O", "extra_attr,inode_checksum"]));
    let (right, files) = (superblock(&dev), files_of(&dev));
    // That the device has some blocks more, by the lowest byte of their count, nothing contradicts.
    let offset = std::mem::offset_of!(RawSuperblock, cp_payload);
    let uuid = std::mem::offset_of!(RawSuperblock, uuid);
    let devs = std::mem::offset_of!(RawSuperblock, devs);
    let label = std::mem::offset_of!(RawSuperblock, volume_name);
    let told = [(offset, 4), (uuid, 16), (devs, 2), (label + 40, 1), (0, 36), (37, 71)];
    let mut wrong = Vec::new();
    for at in told.into_iter().flat_map(|(start, len)| start..start + len) {
        let (copy, bit) = if at.is_multiple_of(2) { (0, at % 8) } else { (1, (at + 3) % 8) };
        let damaged = dev.snapshot();
        let mut block = read_block(&damaged, copy).unwrap();
        block.0[1024 + at] ^= 1 << bit;
        damaged.write(copy, &[&block], META).unwrap();
        let what = format!("byte {at}, bit {bit} of copy {copy}");
        let opened = Volume::open(
            Arc::new(damaged.snapshot()),
            MountOptions { read_only: true, ..MountOptions::default() },
            test_clock(),
        );
        match opened.map(|v| v.superblock().as_bytes() == right.as_bytes()) {
            Ok(true) => {}
            other => wrong.push(format!("{what}: opened {:?}", other.map_err(|e| e.to_string()))),
        }
        let done = repair(&damaged, &Options::default(), &mut |_| {});
        if done.is_err() || superblock(&damaged).as_bytes() != right.as_bytes() {
            let found = done.map(|done| done.before.findings).map_err(|e| e.to_string());
            wrong.push(format!("{what}: repaired {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of the bits: {:#?}", wrong.len(), &wrong[..wrong.len().min(12)]);
    assert_eq!(files_of(&dev), files);
}

fn files_of(dev: &MemDevice) -> u64 {
    check(dev, &Options::default(), &mut |_| {}).unwrap().files()
}

/// Both copies have a flipped bit, each in another field: of each the right one is taken.
#[test]
fn what_is_right_is_taken_of_both_superblocks() {
    let bed = Bed::new();
    let dev = load(&bed.filled("both.img", &["-O", "extra_attr,inode_checksum"]));
    let right = superblock(&dev);
    let damaged = dev.snapshot();
    let flip = |copy, change: fn(&mut RawSuperblock)| {
        let mut block = read_block(&damaged, copy).unwrap();
        change(RawSuperblock::in_block_mut(&mut block));
        damaged.write(copy, &[&block], META).unwrap();
    };
    flip(0, |sb| sb.uuid[5] ^= 4);
    flip(1, |sb| sb.cp_payload = 8.into());
    let done = repair(&damaged, &Options::default(), &mut |_| {}).unwrap();
    assert!(done.before.has(Code::SuperblocksDiffer), "{:?}", done.before.findings);
    assert_eq!(done.before.findings.len(), 1, "{:?}", done.before.findings);
    for copy in 0..2 {
        let block = read_block(&damaged, copy).unwrap();
        assert!(RawSuperblock::in_block(&block).as_bytes() == right.as_bytes(), "copy {copy}");
    }
    assert_eq!(done.after.findings, []);
}

#[test]
fn copies_that_cannot_be_read_are_written_anew() {
    let bed = Bed::new();
    let dev = FaultDevice::new(load(&bed.filled("unreadable.img", &[])), 1);
    let was = geometry(dev.inner());
    dev.inner().write(0, &[&Block::ZERO, &Block::ZERO], META).unwrap();
    dev.arm(Fault::on(Kind::Read, Effect::IO).within(0..2).until_written());
    assert_eq!(repair(&dev, &Options::default(), &mut |_| {}).unwrap().after.findings, []);
    assert_eq!(format!("{was:?}"), format!("{:?}", geometry(&dev)));
    bed.judge(dev.inner()).unwrap();
}

/// Once both packs counted as lost.
#[test]
fn one_header_of_a_checkpoint_pack_is_enough() {
    for (name, dev) in [("deltas", delta_volume("").dev.snapshot()), ("plain", plain())] {
        let model = shown(dev.snapshot());
        let files = model.inodes().filter(|(_, inode)| !inode.is_dir()).count() as u64;
        let [other, in_force] = headers(&dev);
        for left in in_force {
            let damaged = without_superblocks(&dev);
            for addr in other.into_iter().chain(in_force).filter(|&addr| addr != left) {
                damaged.write(addr, &[&Block::ZERO], META).unwrap();
            }
            let repaired = repair(&damaged, &Options::default(), &mut |_| {}).unwrap();
            assert!(repaired.before.has(Code::SuperblockLost), "{name}: {:?}", repaired.before.findings);
            assert_eq!(repaired.after.findings, [], "{name}, header {left}");
            assert_eq!(
                format!("{:?}", geometry(&dev)),
                format!("{:?}", geometry(&damaged)),
                "{name}, {left}"
            );
            let kept = Kept::count(&model, &Arc::new(damaged.snapshot()));
            assert_eq!(kept, Kept { in_place: files, ..Kept::default() }, "{name}, header {left}");
        }
    }
}

/// One pack is lost, and of the other one block of summaries: that of the only nodes to which the NAT leads
/// without its journal, too.
#[test]
fn some_summaries_are_enough_for_a_superblock() {
    for (name, dev) in [("deltas", delta_volume("").dev.snapshot()), ("plain", plain())] {
        let [other, [first, last]] = headers(&dev);
        for lost in first + 1..last {
            let sound = dev.snapshot();
            for addr in other.into_iter().chain([lost]) {
                sound.write(addr, &[&Block::ZERO], META).unwrap();
            }
            let report = check(&without_superblocks(&sound), &Options::default(), &mut |_| {}).unwrap();
            assert!(report.has(Code::SuperblockLost), "{name}, block {lost}: {:?}", report.findings);
        }
    }
}

fn plain() -> MemDevice {
    let bed = Bed::new();
    load(&bed.filled("plain.img", &[]))
}

/// The first and the last block of the pack that is not in force, and of the one that is.
fn headers(dev: &MemDevice) -> [[u64; 2]; 2] {
    let cp = u64::from(geometry(dev).cp_blkaddr);
    let packs = [cp, cp + 512].map(|first| {
        let block = read_block(dev, first).unwrap();
        let pack = RawCheckpoint::in_block(&block);
        (pack.checkpoint_ver.get(), [first, first + u64::from(pack.cp_pack_total_block_count.get()) - 1])
    });
    let [one, two] = packs;
    if one.0 < two.0 { [one.1, two.1] } else { [two.1, one.1] }
}

#[test]
fn nothing_is_made_of_what_shows_nothing() {
    let bed = Bed::new();
    let whole = load(&bed.mkfs("nothing.img", 64, &[]));
    let cp = u64::from(geometry(&whole).cp_blkaddr);
    let dev = without_superblocks(&whole);
    for block in cp..cp + 1024 {
        dev.write(block, &[&Block::ZERO], META).unwrap();
    }
    let report = check(&dev, &Options::default(), &mut |_| {}).unwrap();
    assert!(report.has(Code::NoSuperblock), "{:?}", report.findings);
    let zeros = MemDevice::new(1 << 15);
    assert!(check(&zeros, &Options::default(), &mut |_| {}).unwrap().has(Code::NoSuperblock));
}

/// A whole card is named, whose partition table is lost: what is made for its beginning would ruin the volume
/// behind it.
#[test]
fn a_volume_that_begins_elsewhere_is_left_alone() {
    let volume = delta_volume("").dev.snapshot();
    for begin in [1, 2, 256, 512, 1024] {
        let card = MemDevice::new(begin + volume.block_count());
        for addr in 0..volume.block_count() {
            card.write(begin + addr, &[&*read_block(&volume, addr).unwrap()], META).unwrap();
        }
        let before = card.snapshot();
        let done = repair(&card, &Options::default(), &mut |_| {}).unwrap();
        let found = &done.before.findings;
        let place = format!("begins at byte {} of", begin * 4096);
        assert!(
            found.iter().any(|f| f.code == Code::NoSuperblock && f.message.contains(&place)),
            "{found:?}"
        );
        let same = |addr| read_block(&card, addr).unwrap().0 == read_block(&before, addr).unwrap().0;
        assert!((0..card.block_count()).all(same), "nothing is written");
        assert_eq!(medfs_fsck::begins_at(&card).unwrap(), Some(begin * 4096));
    }
}

/// The other way round: of a volume that begins with the device the second copy is never taken for a first one.
#[test]
fn a_volume_without_its_first_superblock_begins_with_the_device() {
    let volume = delta_volume("").dev.snapshot();
    volume.write(0, &[&Block::ZERO], META).unwrap();
    assert_eq!(medfs_fsck::begins_at(&volume).unwrap(), None);
    let done = repair(&volume, &Options::default(), &mut |_| {}).unwrap();
    assert!(done.before.has(Code::SuperblockCopy) && done.after.is_clean(), "{:?}", done.before.findings);
}

#[test]
fn an_inode_whose_sizes_cannot_be_tells_nothing_of_the_superblock() {
    let dev = delta_volume("").dev.snapshot();
    let main = u64::from(geometry(&dev).main_blkaddr);
    let damaged = without_superblocks(&dev);
    for addr in main..dev.block_count() {
        let mut block = read_block(&dev, addr).unwrap();
        let (nid, ino) = (footer(&block).nid.get(), footer(&block).ino.get());
        let Some(extra) = block.view_mut::<RawInode>().extra_mut().filter(|_| nid == ino && nid > 3) else {
            continue;
        };
        extra.i_inline_xattr_size = u16::MAX.into();
        damaged.write(addr, &[&block], META).unwrap();
    }
    let report = check(&damaged, &Options::default(), &mut |_| {}).unwrap();
    assert!(report.has(Code::SuperblockLost), "{:?}", report.findings);
}

#[test]
fn a_superblock_that_was_made_can_be_taken_back() {
    let bed = Bed::new();
    let damaged = without_superblocks(&load(&bed.filled("undo.img", &[])));
    let (dev, file) = (damaged.snapshot(), bed.path("undo"));
    let undo = UndoDevice::create(&file, PowerCut::never(&dev)).unwrap();
    assert_eq!(repair(&undo, &Options::default(), &mut |_| {}).unwrap().after.findings, []);
    undo.finish().unwrap();
    drop(undo);
    geometry(&dev);
    restore(&file, &dev).unwrap();
    let same = |addr| read_block(&dev, addr).unwrap().0 == read_block(&damaged, addr).unwrap().0;
    assert!((0..dev.block_count()).all(same));
}

/// What an NVRAM holds of the volume is part of it: without that nothing is judged, and nothing is written.
#[test]
fn a_volume_that_waits_for_its_nvram_is_left_alone() {
    for copies in [&[0u64, 1][..], &[0], &[1]] {
        let dev = delta_volume("").dev.snapshot();
        for &copy in copies {
            let mut block = read_block(&dev, copy).unwrap();
            let sb = RawSuperblock::in_block_mut(&mut block);
            sb.set_nvram(Some(RawNvramInfo::new(4, 9, "/dev/fram")));
            dev.write(copy, &[&block], META).unwrap();
        }
        let before = dev.snapshot();
        let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
        assert!(!repaired.changed, "{copies:?}");
        let [finding] = &repaired.before.findings[..] else { panic!("{:?}", repaired.before.findings) };
        assert_eq!(finding.code, Code::NvramPending);
        assert!(finding.message.contains("/dev/fram (journal 0000000000000004)"), "{}", finding.message);
        for addr in 0..dev.block_count() {
            assert!(
                read_block(&dev, addr).unwrap().0 == read_block(&before, addr).unwrap().0,
                "block {addr}"
            );
        }
    }
}

/// Of volumes without a checksum of the superblock, what says which features they have is zeros in both copies.
#[test]
fn features_that_both_copies_lack_are_those_of_the_inodes() {
    let bed = Bed::new();
    for options in [&[][..], &["-O", "extra_attr,inode_checksum,inode_crtime,flexible_inline_xattr"]] {
        let image = bed.mkfs("features.img", 80, options);
        bed.sload(&image, &bed.tree());
        let dev = load(&image);
        let model = shown(dev.snapshot());
        let damaged = dev.snapshot();
        for copy in 0..2 {
            let mut block = read_block(&damaged, copy).unwrap();
            block.0[6 * 512..7 * 512].fill(0);
            damaged.write(copy, &[&block], META).unwrap();
        }
        let repaired = repair(&damaged, &Options::default(), &mut |_| {}).unwrap();
        assert_eq!(repaired.before.losses, Default::default(), "{:?}", repaired.before.findings);
        assert_eq!(repaired.after.findings, [], "{options:?}");
        let files = model.inodes().filter(|(_, inode)| !inode.is_dir()).count() as u64;
        let kept = Kept::count(&model, &Arc::new(damaged.snapshot()));
        assert_eq!(kept, Kept { in_place: files, ..Kept::default() }, "{options:?}");
        assert_eq!(superblock(&damaged).uuid, superblock(&dev).uuid);
        bed.judge(&damaged).unwrap_or_else(|e| panic!("{options:?}: {e}"));
    }
}

/// A number of blocks that nothing can have would be copied over the sound superblock, and overflow what counts bytes.
#[test]
fn more_blocks_than_have_addresses_are_no_superblock() {
    let bed = Bed::new();
    let dev = load(&bed.mkfs("blocks.img", 80, &[]));
    let mut block = read_block(&dev, 0).unwrap();
    for bit in 33..64 {
        let sb = RawSuperblock::in_block_mut(&mut block);
        let count = sb.block_count.get();
        sb.block_count = (count | 1 << bit).into();
        assert!(sb.validate().is_err(), "bit {bit}");
        sb.block_count = count.into();
        assert!(sb.validate().is_ok());
    }
}
