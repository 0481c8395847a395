//! Volumes formatted by the real `mkfs.f2fs`, and the real `fsck.f2fs` as an independent judge.
//!
//! Both come with Debian's `f2fs-tools`; without them the tests that need them fail and say so.

use crate::model::Model;
use crate::observe::{compare, observe};
use crate::subject::Check;
use crate::volume::test_clock;
use medfs::convert::export;
use medfs::{MountOptions, Volume};
use medfs_device::crash::TornFilter;
use medfs_device::{
    BlockDevice, Cause, FileDevice, FileOptions, MemDevice, Temperature, WriteTag, read_block,
};
use medfs_format::superblock::{self, RawSuperblock};
use medfs_format::{BLOCK_SIZE, Block, checkpoint, node};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// The feature sets that volumes are tested with: none (the default of `mkfs.f2fs`), and all that deltas need.
pub const FEATURE_SETS: [&str; 2] =
    ["", "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum"];

/// A volume for deltas: the second feature set, with medfs's own magic.
pub const DELTAS: &str = "deltas";

/// Volumes whose files are compressed, see [`options_for`]: F2FS, and one with medfs's own magic.
pub const COMPRESSED: [&str; 2] = [
    "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum,compression",
    "deltas,compression",
];

/// What is tested on every kind of volume is tested on these.
pub const VOLUMES: [&str; 5] = [FEATURE_SETS[0], FEATURE_SETS[1], DELTAS, COMPRESSED[0], COMPRESSED[1]];

/// Mount options that belong to a kind of volume: all files are compressed where that is possible.
pub fn options_for(features: &str) -> &'static str {
    if COMPRESSED.contains(&features) { "compress_extension=*,compress_chksum" } else { "rw" }
}

/// A freshly formatted volume of `mebibytes`, in memory; made once a process. Panics where `mkfs.f2fs` is
/// missing or fails.
pub fn formatted(mebibytes: u64, features: &str) -> Arc<MemDevice> {
    type Made = BTreeMap<(u64, String), Arc<MemDevice>>;
    static MADE: Mutex<Made> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock();
    let key = (mebibytes, features.to_owned());
    made.entry(key).or_insert_with(|| Arc::new(format(mebibytes, features))).clone()
}

fn format(mebibytes: u64, features: &str) -> MemDevice {
    if let Some((_, plain)) =
        [(DELTAS, FEATURE_SETS[1]), (COMPRESSED[1], COMPRESSED[0])].iter().find(|(own, _)| *own == features)
    {
        let device = format(mebibytes, plain);
        change_superblocks(&device, RawSuperblock::become_delta_volume).expect("memory takes it");
        return device;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("image");
    let options = FileOptions { direct: false, ..FileOptions::default() };
    drop(FileDevice::create(&path, mebibytes << 20, options).expect("a temporary file"));
    let mut command = Command::new("mkfs.f2fs");
    command.args(["-f", "-q"]);
    if !features.is_empty() {
        command.args(["-O", features]);
    }
    let output = command.arg(&path).output().expect("mkfs.f2fs runs (package f2fs-tools)");
    assert!(output.status.success(), "mkfs.f2fs: {}", String::from_utf8_lossy(&output.stdout));
    let file = FileDevice::open(&path, options).expect("the image just made");
    MemDevice::copy_of(&file).expect("the image is readable")
}

/// Changes both copies of the superblock.
fn change_superblocks(device: &MemDevice, change: impl Fn(&mut RawSuperblock)) -> io::Result<()> {
    for addr in 0..2 {
        let mut block = read_block(device, addr)?;
        change(RawSuperblock::in_block_mut(&mut block));
        device.write(addr, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold))?;
    }
    Ok(())
}

/// A copy that other tools take for F2FS: deltas are nothing but an extended attribute to them.
pub fn as_plain(device: &dyn BlockDevice) -> io::Result<MemDevice> {
    let copy = MemDevice::copy_of(device)?;
    if RawSuperblock::in_block(&*read_block(&copy, 0)?).is_delta_volume() {
        change_superblocks(&copy, RawSuperblock::become_plain)?;
    }
    Ok(copy)
}

/// Saves a device as a sparse file.
pub fn save(device: &dyn BlockDevice, path: &Path) -> io::Result<()> {
    save_memory(&MemDevice::copy_of(device)?, path)
}

fn save_memory(device: &MemDevice, path: &Path) -> io::Result<()> {
    let file = File::create_new(path)?;
    file.set_len(device.block_count() * BLOCK_SIZE as u64)?;
    for addr in device.written() {
        file.write_all_at(&read_block(device, addr)?.0, addr * BLOCK_SIZE as u64)?;
    }
    Ok(())
}

/// Runs `fsck.f2fs` without repairs on a copy.
pub struct FsckF2fs;

impl Check for FsckF2fs {
    fn name(&self) -> &str {
        "fsck.f2fs"
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<(), String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let path = dir.path().join("image");
        let plain = as_plain(&*device).map_err(|e| format!("copying the image: {e}"))?;
        save_memory(&plain, &path).map_err(|e| format!("saving the image: {e}"))?;
        let output = Command::new("fsck.f2fs")
            .args(["-f", "--dry-run"])
            .arg(&path)
            .output()
            .map_err(|e| format!("fsck.f2fs does not run (package f2fs-tools): {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // Lines of information are none of its findings: it calls the NAT bits of a fresh `mkfs.f2fs` "corrupted".
        let bad = ["[Fail]", "[ASSERT]", "[FIX]"];
        // Quotas to be counted anew it writes itself, and then finds another type of the segment that it wrote to.
        let own = |line: &str| line.contains("check_sit_types") && text.contains("Fixing Quota file");
        let is_bad = |line: &&str| bad.iter().any(|word| line.contains(word)) && !own(line);
        let findings: Vec<&str> = text.lines().filter(is_bad).collect();
        if findings.is_empty() && output.status.success() && text.contains("Done") {
            return Ok(());
        }
        let findings = if findings.is_empty() { text.lines().collect() } else { findings };
        Err(format!("{}: {}", output.status, findings[findings.len().saturating_sub(12)..].join(" | ")))
    }
}

/// The checker of this project, for every state: it runs in the process.
pub struct FsckMedfs;

impl Check for FsckMedfs {
    fn name(&self) -> &str {
        "fsck.medfs"
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<(), String> {
        let options = medfs_fsck::Options { max_findings: 12, ..medfs_fsck::Options::default() };
        let report = medfs_fsck::check(&*device, &options, &mut |_| {}).map_err(|e| e.to_string())?;
        if report.is_clean() {
            return Ok(());
        }
        let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        Err(findings.join(" | "))
    }
}

/// Exports a copy of a volume with deltas: it shows the same as before, and `fsck.f2fs` finds nothing wrong with it.
pub struct Exported;

impl Check for Exported {
    fn name(&self) -> &str {
        "export"
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<(), String> {
        let copy = Arc::new(MemDevice::copy_of(&*device).map_err(|e| e.to_string())?);
        if !RawSuperblock::in_block(&*read_block(&*copy, 0).map_err(|e| e.to_string())?).is_delta_volume() {
            return Ok(());
        }
        let shown = |when: &str| -> Result<Model, String> {
            let options = MountOptions { read_only: true, ..MountOptions::default() };
            let volume = Volume::open(copy.clone(), options, test_clock());
            observe(&volume.map_err(|e| format!("{when}: {e}"))?).map_err(|e| format!("{when}: {e}"))
        };
        let before = shown("before")?;
        export(copy.clone(), test_clock(), &mut |_, _, _| {}).map_err(|e| e.to_string())?;
        FsckF2fs.check(copy.clone())?;
        compare(&before, &shown("afterwards")?).map_err(|e| format!("it shows something else: {e}"))
    }
}

/// Which blocks carry a checksum and may be torn: the two ends of a checkpoint pack, and inodes where the volume's
/// features say so.
pub fn checksummed(image: &MemDevice) -> TornFilter {
    let block = read_block(image, 0).expect("memory is readable");
    let superblock = RawSuperblock::in_block(&block);
    let geometry = superblock.validate().expect("a formatted image");
    let inodes = superblock.features().contains(superblock::Feature::INODE_CHECKSUM);
    let packs = [u64::from(geometry.cp_pack(0)), u64::from(geometry.cp_pack(1))];
    Arc::new(move |addr, cause, content| match cause {
        Cause::Node => {
            let block = Block(*content);
            let footer = node::footer(&block);
            inodes && footer.nid == footer.ino
        }
        Cause::Meta => {
            let in_pack = packs.iter().any(|pack| (*pack..pack + 512).contains(&addr));
            in_pack && checkpoint::verify_checksum(&Block(*content), addr as u32).is_ok()
        }
        _ => false,
    })
}

/// A page of content that depends on `seed`, and that does not repeat.
pub fn noise(seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 24) as u8
    };
    (0..BLOCK_SIZE).map(next).collect()
}

/// Where a text begins in a block.
pub fn find(block: &[u8], text: &[u8]) -> Option<usize> {
    block.windows(text.len()).position(|window| window == text)
}

/// How often a text is in a block.
pub fn occurrences(block: &[u8], text: &[u8]) -> usize {
    block.windows(text.len()).filter(|window| *window == text).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_judge_accepts_and_rejects() {
        for features in VOLUMES {
            let image = formatted(64, features);
            FsckF2fs.check(image.clone()).unwrap();
            FsckMedfs.check(image.clone()).unwrap();
            // Canary: a volume without its first node is nothing a judge may accept.
            let broken = image.snapshot();
            let superblock = read_block(&image, 0).unwrap();
            let geometry = medfs_format::superblock::RawSuperblock::in_block(&superblock).validate().unwrap();
            let root = image.written().into_iter().find(|addr| *addr >= u64::from(geometry.seg_start(0)));
            broken.discard(root.expect("a root inode"), 1).unwrap();
            let broken = Arc::new(broken);
            assert!(FsckF2fs.check(broken.clone()).is_err());
            assert!(FsckMedfs.check(broken).is_err());
        }
    }
}
