//! A volume made here is compared, block for block, with the one `mkfs.f2fs` makes of the same size and
//! options, and judged by `fsck.f2fs`. Needs f2fs-tools.

use medfs_device::{BlockDevice, FileDevice, FileOptions};
use medfs_format::nat::{RawNatBlock, RawNatEntry};
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{BLOCK_SIZE, Block};
use medfs_mkfs::{MkfsOptions, default_features, format_volume, parse_features};
use rustix::fs::{SeekFrom, seek};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const UUID: [u8; 16] = *b"\x11\x11\x11\x11\x22\x22\x33\x33\x44\x44\x55\x55\x55\x55\x55\x55";
const UUID_TEXT: &str = "11111111-2222-3333-4444-555555555555";
const TIME: i64 = 1_000_000;
/// What `mkfs.f2fs -r` takes from the C library's generator seeded with 0.
const FIXED_VERSION: u64 = 0x6B8B_4567;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const ALL: &str =
    "extra_attr,inode_checksum,sb_checksum,flexible_inline_xattr,inode_crtime,lost_found,project_quota,quota";

fn image(path: &Path, bytes: u64) {
    File::create(path).unwrap().set_len(bytes).unwrap();
}

fn options(features: &str) -> MkfsOptions {
    let mut options = MkfsOptions::new(UUID, TIME);
    options.features = parse_features(features).unwrap();
    options.checkpoint_version = Some(FIXED_VERSION);
    options.label = "golden".into();
    options
}

fn ours(path: &Path, options: &MkfsOptions) -> Result<medfs_mkfs::Summary, medfs_mkfs::Error> {
    let dev = FileDevice::open(path, FileOptions { direct: false, ..FileOptions::default() }).unwrap();
    format_volume(&dev, options)
}

fn theirs(path: &Path, options: &MkfsOptions, features: &str) -> bool {
    let mut command = Command::new("mkfs.f2fs");
    command.args(["-q", "-f", "-r", "-l", &options.label, "-U", UUID_TEXT, "-T", &TIME.to_string()]);
    command.args(["-s", &options.segs_per_sec.to_string(), "-z", &options.secs_per_zone.to_string()]);
    if !features.is_empty() {
        command.args(["-O", features]);
    }
    if let Some(percent) = options.overprovision {
        command.args(["-o", &percent.to_string()]);
    }
    let output = command.arg(path).output().expect("mkfs.f2fs from f2fs-tools is needed for this test");
    output.status.success()
}

/// All blocks that hold anything, without reading holes.
fn content(path: &Path) -> BTreeMap<u64, Box<Block>> {
    let file = File::open(path).unwrap();
    let mut blocks = BTreeMap::new();
    let mut at = 0;
    while let Ok(data) = seek(&file, SeekFrom::Data(at)) {
        let hole = seek(&file, SeekFrom::Hole(data)).unwrap();
        for addr in data / BLOCK_SIZE as u64..hole.div_ceil(BLOCK_SIZE as u64) {
            let mut block = Block::boxed();
            file.read_exact_at(&mut block.0, addr * BLOCK_SIZE as u64).unwrap();
            if block.0.iter().any(|&b| b != 0) {
                blocks.insert(addr, block);
            }
        }
        at = hole;
    }
    blocks
}

/// Takes away what rightly differs: the maker's name and the checksum over it.
fn without_maker(blocks: &mut BTreeMap<u64, Box<Block>>) {
    for addr in [0, 1] {
        let sb = RawSuperblock::in_block_mut(blocks.get_mut(&addr).unwrap());
        sb.version = [0; 256];
        sb.init_version = [0; 256];
        sb.crc = 0.into();
    }
}

fn assert_equal_to_mkfs_f2fs(bytes: u64, features: &str, change: impl Fn(&mut MkfsOptions)) {
    let dir = tempfile::tempdir().unwrap();
    let (mine, other) = (dir.path().join("mine"), dir.path().join("other"));
    let mut options = options(features);
    change(&mut options);
    let what = format!(
        "{bytes} bytes, -O {features:?}, -s {} -z {} -o {:?}",
        options.segs_per_sec, options.secs_per_zone, options.overprovision
    );
    image(&mine, bytes);
    image(&other, bytes);
    let made = ours(&mine, &options);
    let accepted = theirs(&other, &options, features);
    assert_eq!(made.is_ok(), accepted, "{what}: ours {made:?}");
    if made.is_err() {
        return;
    }
    let (mut mine_blocks, mut other_blocks) = (content(&mine), content(&other));
    without_maker(&mut mine_blocks);
    without_maker(&mut other_blocks);
    if options.features.contains(Feature::LOST_FOUND) {
        // mkfs.f2fs 1.15 leaves lost+found to the NAT journal; here the NAT block, which the journal
        // overrides, has it too.
        let sb = RawSuperblock::in_block(&mine_blocks[&0]);
        let (nat, last) = (u64::from(sb.nat_blkaddr.get()), 3 + made.unwrap().inodes as usize - 1);
        let block: &mut RawNatBlock = mine_blocks.get_mut(&nat).unwrap().view_mut();
        block.entries[last] = RawNatEntry::default();
    }
    for (addr, block) in &other_blocks {
        let Some(ours) = mine_blocks.get(addr) else { panic!("{what}: block {addr} is missing") };
        if let Some(at) = (0..BLOCK_SIZE).find(|&i| ours.0[i] != block.0[i]) {
            panic!(
                "{what}: block {addr} differs at byte {at:#x}: {:#x}, mkfs.f2fs has {:#x}",
                ours.0[at], block.0[at]
            );
        }
    }
    let surplus: Vec<&u64> = mine_blocks.keys().filter(|addr| !other_blocks.contains_key(addr)).collect();
    assert!(surplus.is_empty(), "{what}: blocks {surplus:?} are not in mkfs.f2fs's volume");
}

fn assert_fsck_clean(path: &Path, what: &str) {
    let output =
        Command::new("fsck.f2fs").args(["--dry-run", "-f"]).arg(path).output().expect("fsck.f2fs is needed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}: {text}");
    for bad in ["[FIX]", "[ASSERT]", "[Fail]"] {
        assert!(!text.contains(bad), "{what}: {bad} in\n{text}");
    }
    assert!(text.contains("Done"), "{what}: {text}");
}

#[test]
fn sizes_without_features() {
    for mib in
        (30..=80).step_by(6).chain([90, 100, 127, 128, 200, 255, 256, 333, 400, 511, 512, 513, 700, 1000])
    {
        assert_equal_to_mkfs_f2fs(mib * MIB, "", |_| ());
    }
    for gib in [1, 2, 3, 7, 8, 15, 16, 29, 32, 59, 64, 119, 128, 238, 256, 500] {
        assert_equal_to_mkfs_f2fs(gib * GIB, "", |_| ());
    }
}

#[test]
fn sizes_with_all_features() {
    for mib in [52, 64, 100, 256, 1024, 4096, 16 * 1024, 32 * 1024, 100 * 1024] {
        assert_equal_to_mkfs_f2fs(mib * MIB, ALL, |_| ());
        assert_equal_to_mkfs_f2fs(mib * MIB + 4096 * 77 + 512 * 3, ALL, |_| ());
    }
}

#[test]
fn terabytes() {
    // From 4 TiB on the SIT bitmap moves to checkpoint payload blocks.
    for gib in [1024, 2500, 3850, 4096, 6000] {
        assert_equal_to_mkfs_f2fs(gib * GIB, ALL, |_| ());
    }
}

#[test]
fn each_feature() {
    // Not project_quota alone: mkfs.f2fs 1.15 then sets the quota bit without making quota files; here they are made.
    for features in [
        "extra_attr",
        "extra_attr,inode_checksum",
        "extra_attr,flexible_inline_xattr",
        "extra_attr,inode_crtime",
        "quota",
        "lost_found",
        "lost_found,quota",
        "sb_checksum",
        "extra_attr,project_quota,quota",
    ] {
        assert_equal_to_mkfs_f2fs(128 * MIB, features, |_| ());
    }
}

#[test]
fn sections_and_zones() {
    for (segs_per_sec, secs_per_zone) in
        [(2, 1), (1, 2), (2, 2), (4, 1), (3, 5), (8, 4), (16, 1), (32, 2), (64, 1), (128, 1)]
    {
        // Whole zones only: of a rest of segments, mkfs.f2fs 1.15 counts segments as usable that are in no section.
        let zone = u64::from(segs_per_sec * secs_per_zone) * 2;
        for mib in [64, 256, 1000, 4096, 20 * 1024].map(|mib: u64| mib.next_multiple_of(zone)) {
            assert_equal_to_mkfs_f2fs(mib * MIB, ALL, |o| {
                (o.segs_per_sec, o.secs_per_zone) = (segs_per_sec, secs_per_zone);
            });
        }
    }
}

#[test]
fn overprovision() {
    for percent in [1.0, 2.5, 5.0, 10.0, 30.0, 50.0] {
        for mib in [128, 1024, 16 * 1024] {
            assert_equal_to_mkfs_f2fs(mib * MIB, "", |o| o.overprovision = Some(percent));
        }
    }
}

#[test]
fn fsck_f2fs_finds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    for features in
        ["none", "default", ALL, "default,quota", "default,^lost_found", "extra_attr,project_quota,quota"]
    {
        for bytes in [52 * MIB, 300 * MIB + 12345, 5 * GIB] {
            for (segs_per_sec, secs_per_zone) in [(1, 1), (2, 2), (8, 1)] {
                let mut options = options(features);
                (options.segs_per_sec, options.secs_per_zone) = (segs_per_sec, secs_per_zone);
                let _ = std::fs::remove_file(&path);
                image(&path, bytes);
                if ours(&path, &options).is_ok() {
                    assert_fsck_clean(
                        &path,
                        &format!("{features} {bytes} -s {segs_per_sec} -z {secs_per_zone}"),
                    );
                } else {
                    assert!(
                        bytes <= 300 * MIB && segs_per_sec * secs_per_zone > 1,
                        "{bytes} -s {segs_per_sec} -z {secs_per_zone}"
                    );
                }
            }
        }
    }
}

#[test]
fn fsck_f2fs_finds_nothing_on_a_large_volume() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image(&path, 5 << 40);
    ours(&path, &options(ALL)).unwrap();
    assert_fsck_clean(&path, "5 TiB");
}

#[test]
fn fsck_f2fs_notices_damage() {
    // The canary of the test above: one wrong bit in the root inode.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image(&path, 128 * MIB);
    ours(&path, &options("default")).unwrap();
    let root =
        content(&path).into_iter().find(|(addr, b)| *addr >= 4096 && b.0[..2] == [0xED, 0x41]).unwrap().0;
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(&[7], root * BLOCK_SIZE as u64 + 12)
        .unwrap();
    let failed = std::panic::catch_unwind(|| assert_fsck_clean(&path, "damaged"));
    assert!(failed.is_err());
}

#[test]
fn the_largest_volume_keeps_clear_of_the_address_markers() {
    // mkfs.f2fs addresses the last segment of a volume of 16 TiB, whose last blocks have the numbers of markers.
    for blocks in [(1u64 << 32) - 1, 1 << 32, (1 << 32) - 512] {
        let layout = medfs_mkfs::Layout::compute(blocks, &options("default")).unwrap();
        let end = u64::from(layout.main_blkaddr) + u64::from(layout.segment_count_main) * 512;
        assert!(end <= u64::from(u32::MAX - 1), "{end:#x}");
    }
    let error = medfs_mkfs::Layout::compute((1 << 32) + 1, &options("default")).unwrap_err();
    assert!(error.to_string().contains("16 TiB"), "{error}");
}

#[test]
fn sixteen_tebibytes_in_well_under_a_second() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image(&path, (16 << 40) - 4096);
    let start = std::time::Instant::now();
    let mut options = options("default");
    options.zeroed = true;
    let summary = ours(&path, &options).unwrap();
    eprintln!("16 TiB in {:?}", start.elapsed());
    assert!(start.elapsed().as_secs() < 1, "{:?}", start.elapsed());
    assert!(summary.user_blocks > (15 << 40) / BLOCK_SIZE as u64);
    use std::os::unix::fs::MetadataExt;
    assert!(std::fs::metadata(&path).unwrap().blocks() * 512 < MIB, "the image stays sparse");
}

#[test]
fn old_content_does_not_shine_through() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, vec![0xA5u8; 64 << 20]).unwrap();
    let mut options = options("default");
    options.discard = false;
    let summary = ours(&path, &options).unwrap();
    assert!(!summary.discarded);
    // What lies in the place of a pack's last block tells whether that checkpoint was complete.
    let bytes = std::fs::read(&path).unwrap();
    let mut first = Block::ZERO;
    first.0.copy_from_slice(&bytes[..4096]);
    let packs = RawSuperblock::in_block(&first).validate().unwrap().cp_pack(0) as usize * 4096;
    let old = bytes[packs..packs + (4 << 20)].chunks(4096).filter(|block| block.iter().all(|&b| b == 0xA5));
    assert_eq!(old.count(), 0, "blocks of old content in the checkpoint packs");
    assert_fsck_clean(&path, "no discard over garbage");
    assert_eq!(options.features, default_features());
    assert!(options.features.contains(Feature::INODE_CHECKSUM));
}

#[test]
fn too_small_says_what_would_do() {
    let options = options("default");
    let error = medfs_mkfs::Layout::compute(20 * MIB / 4096, &options).unwrap_err();
    let medfs_mkfs::Error::TooSmall { need_mib, .. } = error else { panic!("{error}") };
    assert!(medfs_mkfs::Layout::compute(need_mib * MIB / 4096, &options).is_ok());
    assert!(medfs_mkfs::Layout::compute((need_mib - 2) * MIB / 4096, &options).is_err());
}

#[test]
fn known_content_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let found = || {
        medfs_mkfs::probe::find(
            &FileDevice::open(&path, FileOptions::read_only()).unwrap() as &dyn BlockDevice
        )
        .unwrap()
    };
    image(&path, 64 * MIB);
    assert_eq!(found(), None);
    assert!(Command::new("mkfs.ext4").arg("-q").arg(&path).status().unwrap().success());
    assert_eq!(found(), Some("an ext2/3/4 file system"));
    image(&path, 64 * MIB);
    ours(&path, &options("default")).unwrap();
    assert_eq!(found(), Some("an F2FS file system"));
}
