//! Mutated volumes: check, repair and dump neither panic, hang, nor take more than 256 MiB, and what a repair
//! leaves is clean.
//!
//! - `MEDFS_FUZZ_SECONDS`: how long (20).
//! - `MEDFS_FUZZ_SEED`: first case; printed at the start, and with every failure.
//! - `MEDFS_FUZZ_CASE`: runs one case here, to replay a failure.
//! - `MEDFS_FUZZ_JUDGE`: every so many cases, fsck.f2fs must agree with the repair (and memory is not limited).
mod common;

use common::{Bed, load, save};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::checkpoint::{self, CHECKSUM_OFFSET, RawCheckpoint};
use medfs_format::node::{RawInode, footer};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{BLOCK_SIZE, Block, crc};
use medfs_fsck::dump::Dump;
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Options, RepairError, Severity, check, repair};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Address space a child may have: the limit plus what the program, its images and the runtime take.
const MEMORY: u64 = 256 << 20;
/// No case may take longer, on a loaded machine with a debug build.
const LONGEST: Duration = Duration::from_secs(30);
const META: WriteTag = WriteTag { cause: Cause::Meta, temperature: Temperature::Cold, fua: false };

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Small volumes of every layout, saved as files in `dir`.
fn make(dir: &Path) {
    let bed = Bed::new();
    let tree = bed.path("small-tree");
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    std::fs::create_dir_all(tree.join("many")).unwrap();
    std::fs::write(tree.join("a/inline"), b"inline").unwrap();
    std::fs::write(tree.join("a/b/large"), vec![3u8; BLOCK_SIZE * 1100]).unwrap();
    let sparse = std::fs::File::create(tree.join("a/b/indirect")).unwrap();
    sparse.set_len(0).unwrap();
    std::fs::write(tree.join("a/b/indirect"), vec![4u8; BLOCK_SIZE * 3000]).unwrap();
    std::os::unix::fs::symlink("inline", tree.join("a/link")).unwrap();
    for i in 0..250 {
        std::fs::write(tree.join(format!("many/a file of some name {i}")), [5; 3]).unwrap();
    }
    let all = "extra_attr,inode_checksum,inode_crtime,lost_found,sb_checksum";
    let quota = "extra_attr,project_quota,flexible_inline_xattr,quota";
    for (i, options) in
        [&[][..], &["-O", all], &["-i", "-O", "extra_attr"], &["-O", quota]].into_iter().enumerate()
    {
        let image = bed.mkfs("base.img", 80, options);
        bed.sload(&image, &tree);
        std::fs::rename(image, dir.join(format!("base{i}.img"))).unwrap();
    }
    let (dev, ..) = common::delta_volume(60, &[0, 3, 17, 20, 21, 22, 40, 59]);
    save(&dev, &dir.join("base4.img"));
}

fn bases(dir: &Path) -> Vec<(MemDevice, Vec<u64>)> {
    let open = |i| {
        let dev = load(&dir.join(format!("base{i}.img")));
        let blocks = dev.written();
        (dev, blocks)
    };
    (0..5).map(open).collect()
}

/// A number that is likely to hurt.
fn nasty(rng: &mut SmallRng) -> u64 {
    match rng.random_range(0..7) {
        0 => 0,
        1 => u64::MAX,
        2 => rng.random_range(0..16),
        3 => 1 << rng.random_range(0..33),
        4 => rng.random_range(0..20_000),
        5 => u64::from(u32::MAX) - rng.random_range(0..3),
        _ => rng.random(),
    }
}

/// Brings checksums up to date, so that a mutation reaches what is behind them.
fn seal(dev: &MemDevice, addr: u64, block: &mut Block) {
    let sb = read_block(dev, 0).unwrap();
    let sb = RawSuperblock::in_block(&sb);
    let cp = u64::from(sb.cp_blkaddr.get());
    if addr < 2 {
        RawSuperblock::in_block_mut(block).seal();
    } else if (cp..cp + 1024).contains(&addr) {
        if RawCheckpoint::in_block(block).checksum_offset.get() as usize <= CHECKSUM_OFFSET {
            checkpoint::seal(block);
        }
    } else if footer(block).nid == footer(block).ino {
        block.view_mut::<RawInode>().seal(crc::chain(!0, &sb.uuid));
    }
}

fn mutate(rng: &mut SmallRng, dev: &MemDevice, blocks: &[u64]) {
    // The metadata comes first in the list, file content last: prefer the former, and the superblock least.
    let at = match rng.random_range(0..10) {
        0 => rng.random_range(0..2),
        1..6 => rng.random_range(0..blocks.len().min(60)),
        _ => rng.random_range(0..blocks.len()),
    };
    let addr = blocks[at];
    let mut block = read_block(dev, addr).unwrap();
    match rng.random_range(0..20) {
        0 => rng.fill(&mut block.0[..]),
        1 => *block = Block::ZERO,
        2 => block = read_block(dev, blocks[rng.random_range(0..blocks.len())]).unwrap(),
        _ => {
            for _ in 0..rng.random_range(1..4) {
                // Headers, footers and superblock are where a random byte matters.
                let start = match rng.random_range(0..4) {
                    0 => rng.random_range(0..400),
                    1 if addr < 2 => 1024 + rng.random_range(0..120),
                    2 => BLOCK_SIZE - 8 - rng.random_range(0..48),
                    _ => rng.random_range(0..BLOCK_SIZE - 8),
                };
                let width = [1, 2, 4, 8][rng.random_range(0..4)];
                let start = start / width * width;
                block.0[start..start + width].copy_from_slice(&nasty(rng).to_le_bytes()[..width]);
            }
        }
    }
    if rng.random_range(0..4) > 0 {
        seal(dev, addr, &mut block);
    }
    dev.write(addr, &[&block], META).unwrap();
}

/// Sets a field of the delta zone of some inode that has one.
fn mutate_zone(rng: &mut SmallRng, dev: &MemDevice) {
    // The first number that mkfs leaves free.
    let ino = 5;
    let n = rng.random_range(0..3);
    let (target, field) = match rng.random_range(0..10) {
        0 => (Target::Zone(ino), "version"),
        1 => (Target::Zone(ino), "used"),
        2 => (Target::FirstXattr(ino), "h_magic"),
        3 => (Target::FirstXattr(ino), "e_name_len"),
        4 => (Target::FirstXattr(ino), "e_value_size"),
        5 => (Target::Delta(ino, n), "index"),
        6 => (Target::Delta(ino, n), "size"),
        7 => (Target::Delta(ino, n), "codec"),
        8 => (Target::Delta(ino, n), "checksum"),
        _ => (Target::Delta(ino, n), "delta[1]"),
    };
    // Earlier mutations may have taken the zone away.
    let _ = inject::set(dev, &target, field, nasty(rng));
}

/// Makes a copy that fsck.f2fs reads: deltas are an attribute to it.
fn plain(dev: &MemDevice) {
    for addr in 0..2 {
        let mut block = read_block(dev, addr).unwrap();
        RawSuperblock::in_block_mut(&mut block).become_plain();
        dev.write(addr, &[&block], META).unwrap();
    }
}

fn cut(dev: &MemDevice, blocks: u64) -> MemDevice {
    let short = MemDevice::new(blocks);
    for addr in dev.written().into_iter().filter(|&a| a < blocks) {
        short.write(addr, &[&read_block(dev, addr).unwrap()], META).unwrap();
    }
    short
}

fn look(dev: &MemDevice, rng: &mut SmallRng) {
    let Ok(mut dump) = Dump::open(dev) else { return };
    let _ = dump.superblock().to_string();
    let _ = dump.checkpoint().map(|r| r.to_string());
    for n in (0..12).chain([nasty(rng) as u32]) {
        let _ = (dump.nat(n), dump.sit(n), dump.inode(n).map(|r| r.to_string()));
    }
    for path in ["/", "a/b/large", "many/a file of some name 17", "x"] {
        let _ = dump.path(path);
    }
}

/// One case; panics where something is wrong. Returns whether there was something to mend.
fn case(seed: u64, bases: &[(MemDevice, Vec<u64>)], judge_in: Option<&Path>) -> bool {
    let mut rng = SmallRng::seed_from_u64(seed);
    let which = rng.random_range(0..bases.len());
    let (base, blocks) = &bases[which];
    // What quota files say of the usage is not repaired, but fsck.f2fs judges it.
    let judge_in = judge_in.filter(|_| which != 3);
    let mut dev = base.snapshot();
    for _ in 0..rng.random_range(1..6) {
        if which == 4 && rng.random_range(0..2) == 0 {
            mutate_zone(&mut rng, &dev);
        } else {
            mutate(&mut rng, &dev, blocks);
        }
    }
    if rng.random_range(0..40) == 0 {
        dev = cut(&dev, rng.random_range(0..base.block_count()));
    }
    look(&dev, &mut rng);
    let options = Options { max_findings: 200 };
    let before = check(&dev, &options, &mut |_| {}).expect("memory does not fail");
    match repair(&dev, &options, &mut |_| {}) {
        Ok(repaired) => {
            assert_eq!(repaired.before, before);
            let worst = repaired.after.worst();
            let hopeless = worst == Some(Severity::Fatal);
            assert!(worst.is_none() || hopeless, "left after the repair: {:#?}", repaired.after.findings);
            if let (false, Some(path)) = (hopeless, judge_in) {
                plain(&dev);
                save(&dev, path);
                common::judge(path).unwrap();
            }
            repaired.changed
        }
        Err(RepairError::Unsupported(_)) => false,
        Err(RepairError::Io(e)) => panic!("memory does not fail: {e}"),
    }
}

/// Runs cases in a process of its own: here, when the parent asked for it.
#[test]
fn child() {
    let Ok(dir) = std::env::var("MEDFS_FUZZ_DIR") else { return };
    let dir = PathBuf::from(dir);
    let judge = variable("MEDFS_FUZZ_JUDGE");
    let bases = bases(&dir);
    if judge.is_none() {
        let limit = rustix::process::Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
        rustix::process::setrlimit(rustix::process::Resource::As, limit).expect("memory can be limited");
    }
    let end = Instant::now() + Duration::from_secs(variable("MEDFS_FUZZ_SECONDS").unwrap());
    let first = variable("MEDFS_FUZZ_SEED").unwrap();
    let (mut seed, mut mended) = (first, 0);
    while Instant::now() < end {
        std::fs::write(dir.join("seed"), seed.to_string()).unwrap();
        let start = Instant::now();
        let image = dir.join("judged.img");
        let judged = judge.is_some_and(|every| seed % every == 0).then_some(image.as_path());
        mended += u64::from(case(seed, &bases, judged));
        assert!(start.elapsed() < LONGEST, "case {seed} took {:?}", start.elapsed());
        seed += 1;
    }
    std::fs::write(dir.join("cases"), format!("{} {mended}", seed - first)).unwrap();
}

#[test]
fn mutated_volumes() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    if let Some(seed) = variable("MEDFS_FUZZ_CASE") {
        case(
            seed,
            &bases(dir.path()),
            variable("MEDFS_FUZZ_JUDGE").map(|_| dir.path().join("judged.img")).as_deref(),
        );
        return;
    }
    let seconds = variable("MEDFS_FUZZ_SECONDS").unwrap_or(20);
    let seed = variable("MEDFS_FUZZ_SEED").unwrap_or_else(|| rand::rng().random_range(0..1 << 40));
    println!("MEDFS_FUZZ_SEED={seed}");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads", "1"])
        .env("MEDFS_FUZZ_DIR", dir.path())
        .env("MEDFS_FUZZ_SECONDS", seconds.to_string())
        .env("MEDFS_FUZZ_SEED", seed.to_string())
        // Arenas reserve address space that is never used.
        .env("MALLOC_ARENA_MAX", "1")
        .env("RUST_BACKTRACE", "0")
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(seconds) + 2 * LONGEST;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let at = std::fs::read_to_string(dir.path().join("seed")).unwrap_or_default();
    let mut said = String::new();
    let _ = std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said);
    said.truncate(said.floor_char_boundary(3000));
    match status {
        None => panic!("hangs: MEDFS_FUZZ_CASE={at}"),
        Some(status) if !status.success() => panic!("{status}: MEDFS_FUZZ_CASE={at}\n{said}"),
        Some(_) => {}
    }
    let counts = std::fs::read_to_string(dir.path().join("cases")).unwrap();
    let (cases, mended) = counts.split_once(' ').unwrap();
    let (cases, mended): (u64, u64) = (cases.parse().unwrap(), mended.parse().unwrap());
    println!("{cases} cases, {mended} volumes mended");
    assert!(cases > 10 && mended > cases / 4, "{mended} of {cases} volumes in {seconds} s: too few");
}
