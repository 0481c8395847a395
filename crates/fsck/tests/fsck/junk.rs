//! Junk over one block of metadata after another of volumes that were filled: after a repair each file is as
//! it was, or a finding names it.

use medfs::Files as _;
use medfs::{Error, FileKind, Ino, ManualClock, MountOptions, NewFile, Timestamp, Volume};
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::checkpoint::{CpFlags, RawCheckpoint};
use medfs_format::sit::{RawSitBlock, RawSitEntry, VALID_MAP_SIZE};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Geometry};
use medfs_fsck::{Code, Options, Repair, check, repair};
use medfs_testkit::fuzz::sample_seed;
use rand::{Rng, RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{META, number};

/// A path: a directory and a name.
type Place = (String, String);
/// Files by their path.
type Files = BTreeMap<Place, Vec<u8>>;

const NEW: NewFile = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };

/// A filled volume.
struct Filled {
    dev: MemDevice,
    g: Geometry,
    files: Files,
}

fn opened(dev: Arc<MemDevice>, read_only: bool) -> Result<Volume, Error> {
    let clock = ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 });
    Volume::open(dev, MountOptions { read_only, ..MountOptions::default() }, Arc::new(clock))
}

fn geometry(dev: &MemDevice) -> Geometry {
    let block = read_block(dev, 0).unwrap();
    RawSuperblock::in_block(&block).validate().unwrap()
}

/// How a volume is filled and ended.
#[derive(Debug, Clone, Copy)]
struct How {
    deltas: bool,
    /// Checkpoints between the files: so that either pack is the last one.
    checkpoints: usize,
    both_packs: bool,
}

impl Filled {
    /// A volume with so many files of mixed sizes in some directories. Files that were there at a checkpoint
    /// grow and change after it.
    fn with(files: usize, how: How) -> Filled {
        let dev = Arc::new(MemDevice::new(64 << 8));
        let options =
            medfs_mkfs::MkfsOptions { deltas: how.deltas, ..medfs_mkfs::MkfsOptions::new([9; 16], 1) };
        medfs_mkfs::format_volume(&*dev, &options).expect("a volume can be made");
        let v = opened(dev.clone(), false).expect("the volume opens");
        let mut rng = Random::seed_from_u64(files as u64);
        let mut all = Files::new();
        let dirs: Vec<(String, Ino)> = (0..7)
            .map(|i| {
                let name = format!("d{i}");
                let ino = v.create(
                    v.root(),
                    name.as_bytes(),
                    &NewFile { kind: FileKind::Directory, perm: 0o755, ..NEW },
                );
                (name, ino.unwrap().ino)
            })
            .collect();
        let every = files / (how.checkpoints + 1);
        for i in 0..files {
            let (dir, parent) = &dirs[i % dirs.len()];
            let name = format!("f{i}");
            let sizes = [0, 10, 500, 3000, 5000, 20_000, 100_000, 300_000];
            let mut content = vec![0; sizes[rng.random_range(0..sizes.len())]];
            rng.fill_bytes(&mut content);
            let ino = v.create(*parent, name.as_bytes(), &NEW).unwrap().ino;
            v.write(ino, 0, &content).unwrap();
            v.release(ino, 1);
            all.insert((dir.clone(), name), content);
            if i % every == every - 1 && i / every < how.checkpoints {
                v.checkpoint().unwrap();
            }
        }
        match how.both_packs {
            true => medfs::convert::close_in_both_packs(&v).unwrap(),
            false => v.close().unwrap(),
        }
        drop(v);
        let dev = dev.snapshot();
        let report = check(&dev, &Options::default(), &mut |_| {}).unwrap();
        assert_eq!(report.findings, [], "{how:?}");
        Filled { g: geometry(&dev), dev, files: all }
    }

    /// A volume that was written in two mounts: nodes have older copies all over the logs.
    fn worked_on(deltas: bool) -> Filled {
        let dev = Arc::new(MemDevice::new(100 << 8));
        let options = medfs_mkfs::MkfsOptions { deltas, ..medfs_mkfs::MkfsOptions::new([9; 16], 1) };
        medfs_mkfs::format_volume(&*dev, &options).expect("a volume can be made");
        let mut rng = Random::seed_from_u64(5);
        let mut files = Files::new();
        let dir = NewFile { kind: FileKind::Directory, perm: 0o755, ..NEW };
        for round in 0..2 {
            let v = opened(dev.clone(), false).expect("the volume opens");
            let parent = match round {
                0 => v.create(v.root(), b"many", &dir).unwrap().ino,
                _ => v.lookup(v.root(), b"many").unwrap().ino,
            };
            let sizes = if round == 0 { vec![3000; 260] } else { vec![1_900_000; 8] };
            for (i, size) in sizes.into_iter().enumerate() {
                let mut content = vec![0; size];
                rng.fill_bytes(&mut content);
                let name = format!("{round}-{i}");
                let ino = v.create(parent, name.as_bytes(), &NEW).unwrap().ino;
                v.write(ino, 0, &content).unwrap();
                v.release(ino, 1);
                files.insert(("many".into(), name), content);
            }
            for _ in 0..300 * round {
                let name = format!("0-{}", rng.random_range(0..260));
                let ino = v.lookup(parent, name.as_bytes()).unwrap().ino;
                let (at, mut some) = (rng.random_range(0..2900), [0; 40]);
                rng.fill_bytes(&mut some);
                v.write(ino, at as u64, &some).unwrap();
                v.fsync(ino, false).unwrap();
                v.release(ino, 1);
                files.get_mut(&("many".into(), name)).unwrap()[at..at + 40].copy_from_slice(&some);
            }
            v.close().unwrap();
        }
        let dev = dev.snapshot();
        Filled { g: geometry(&dev), dev, files }
    }

    /// The same volume after power was lost in a third mount: files that were there and new ones were fsynced.
    fn cut_off(deltas: bool) -> Filled {
        let Filled { dev, g, mut files } = Filled::worked_on(deltas);
        let dev = Arc::new(dev);
        let v = opened(dev.clone(), false).expect("the volume opens");
        let mut rng = Random::seed_from_u64(6);
        let parent = v.lookup(v.root(), b"many").unwrap().ino;
        for i in 0..60 {
            let name = if i % 3 == 0 { format!("2-{i}") } else { format!("0-{}", i * 4) };
            let mut some = vec![0; if i % 3 == 0 { 6000 } else { 40 }];
            rng.fill_bytes(&mut some);
            let ino = match i % 3 {
                0 => v.create(parent, name.as_bytes(), &NEW).unwrap().ino,
                _ => v.lookup(parent, name.as_bytes()).unwrap().ino,
            };
            v.write(ino, 100, &some).unwrap();
            v.fsync(ino, false).unwrap();
            v.release(ino, 1);
            let content = files.entry(("many".into(), name)).or_insert_with(|| vec![0; 6100]);
            content[100..100 + some.len()].copy_from_slice(&some);
        }
        let dev = dev.snapshot();
        let report = check(&dev, &Options::default(), &mut |_| {}).unwrap();
        assert!(report.log_to_replay.inodes >= 40 && report.findings.is_empty(), "{report:?}");
        Filled { g, dev, files }
    }

    /// The same volume with these blocks written over.
    fn damaged(&self, blocks: &[(BlockAddr, Block)]) -> Arc<MemDevice> {
        let dev = self.dev.snapshot();
        for (addr, block) in blocks {
            dev.write(u64::from(*addr), &[block], META).unwrap();
        }
        Arc::new(dev)
    }

    /// Files that read otherwise than they were written: as something else, or not at all.
    fn differing(&self, v: &Volume) -> (Vec<&Place>, Vec<&Place>) {
        let (mut wrong, mut lost) = (Vec::new(), Vec::new());
        for (path, content) in &self.files {
            match read(v, path, content.len()) {
                Ok(found) if found == *content => {}
                Ok(_) => wrong.push(path),
                Err(_) => lost.push(path),
            }
        }
        (wrong, lost)
    }

    /// Blocks of metadata that have something in them.
    fn metadata(&self) -> Vec<BlockAddr> {
        let zero = |&addr: &BlockAddr| read_block(&self.dev, addr.into()).unwrap().0.iter().all(|&b| b == 0);
        (0..self.g.main_blkaddr).filter(|addr| !zero(addr)).collect()
    }

    /// Repairs the damaged volume; every file is there as it was.
    fn keeps_all(&self, what: &str, blocks: &[(BlockAddr, Block)]) -> Repair {
        let dev = self.damaged(blocks);
        let done = repair(&*dev, &Options::default(), &mut |_| {}).expect("a repair ends");
        assert!(done.after.is_clean(), "{what}: {:?}", done.after.findings);
        let (wrong, lost) = self.differing(&opened(dev, true).unwrap_or_else(|e| panic!("{what}: {e}")));
        assert!(wrong.is_empty() && lost.is_empty(), "{what}: {wrong:?} differ, {lost:?} are lost");
        done
    }

    /// Repairs the damaged volume, and judges it: before, as it is read without a repair.
    fn judge(&self, what: &str, blocks: &[(BlockAddr, Block)]) -> Repair {
        let dev = self.damaged(blocks);
        if let Ok(v) = opened(dev.clone(), true) {
            let (wrong, _) = self.differing(&v);
            assert!(wrong.is_empty(), "{what}: read as something else before a repair: {wrong:?}");
        }
        let done = repair(&*dev, &Options::default(), &mut |_| {}).expect("a repair ends");
        assert!(done.after.is_clean(), "{what}: {:?}", done.after.findings);
        let v = opened(dev, true).unwrap_or_else(|e| panic!("{what}: {e}"));
        let (wrong, lost) = self.differing(&v);
        let unnamed: Vec<_> = wrong.into_iter().chain(lost).filter(|path| !names(&done, path)).collect();
        assert!(unnamed.is_empty(), "{what}: no finding names {unnamed:?}: {:?}", done.before.findings);
        done
    }
}

fn read(v: &Volume, (dir, name): &Place, len: usize) -> Result<Vec<u8>, Error> {
    let dir = v.lookup(v.root(), dir.as_bytes())?.ino;
    let file = v.lookup(dir, name.as_bytes())?;
    let mut content = vec![0; len.max(file.size as usize)];
    let read = v.read(file.ino, 0, &mut content)?;
    content.truncate(read);
    v.release(file.ino, 1);
    v.release(dir, 1);
    Ok(content)
}

/// Whether a finding names a file.
fn names(done: &Repair, (dir, name): &Place) -> bool {
    let path = format!("/{dir}/{name}");
    done.before
        .findings
        .iter()
        .any(|f| f.message.split(|c: char| c.is_whitespace() || ":',".contains(c)).any(|word| word == path))
}

/// Every other block; which, `MEDFS_SEED` says.
fn sampled(blocks: &[BlockAddr]) -> impl Iterator<Item = BlockAddr> + '_ {
    blocks.iter().copied().skip((sample_seed() % 2) as usize).step_by(2)
}

fn junk(seed: u64) -> Block {
    let mut block = Block::ZERO;
    Random::seed_from_u64(seed).fill_bytes(&mut block.0);
    block
}

fn hows() -> impl Iterator<Item = How> {
    [true, false].into_iter().flat_map(|deltas| {
        [(0, true), (1, true), (1, false), (2, false)].map(|(checkpoints, both_packs)| How {
            deltas,
            checkpoints,
            both_packs,
        })
    })
}

#[test]
fn junk_over_any_block_of_metadata_costs_no_file_its_content() {
    for how in hows() {
        let filled = Filled::with(120, how);
        for addr in sampled(&filled.metadata()) {
            for (what, block) in [("junk", junk(addr.into())), ("zeros", Block::ZERO)] {
                if what == "zeros" && addr == pack_in_force(&filled).2 && !how.both_packs {
                    continue; // as power loss leaves a checkpoint
                }
                filled.judge(&format!("{how:?}: {what} over block {addr}"), &[(addr, block)]);
            }
        }
    }
}

#[test]
fn junk_over_any_block_of_metadata_brings_no_older_content_back() {
    for deltas in [true, false] {
        let filled = Filled::worked_on(deltas);
        let last = pack_in_force(&filled).2;
        for addr in sampled(&filled.metadata()) {
            for seed in 0..2 {
                filled.judge(
                    &format!("junk {seed} over block {addr}"),
                    &[(addr, junk(seed << 32 | u64::from(addr)))],
                );
            }
            if addr != last {
                filled.judge(&format!("zeros over block {addr}"), &[(addr, Block::ZERO)]);
            }
        }
    }
}

/// With fsyncs to roll forward, other bytes in a block of SIT, NAT or SSA cost none of them: neither junk,
/// nor what another block holds, nor an older version of the block.
#[test]
fn junk_over_any_block_of_the_tables_costs_no_fsync() {
    let seed = sample_seed();
    for deltas in [true, false] {
        let filled = Filled::cut_off(deltas);
        let tables = filled.g.sit_blkaddr..filled.g.main_blkaddr;
        let all = filled.metadata();
        for (i, &addr) in all.iter().enumerate().filter(|(_, addr)| tables.contains(addr)) {
            let over = junk(seed << 32 | u64::from(addr));
            filled.keeps_all(&format!("junk {seed} over block {addr}"), &[(addr, over)]);
            filled.keeps_all(&format!("zeros over block {addr}"), &[(addr, Block::ZERO)]);
            for other in [all[(i + 7) % all.len()], filled.g.other_copy(addr).unwrap_or(addr)] {
                let over = *read_block(&filled.dev, other.into()).unwrap();
                filled.keeps_all(&format!("block {other} over block {addr}"), &[(addr, over)]);
            }
        }
    }
}

/// A SIT that calls every block in use, or holds junk, keeps neither the fsync log from being rolled forward nor a
/// repair from what needs new blocks: a directory whose inode is lost.
#[test]
fn a_sit_that_calls_anything_in_use_costs_no_fsync() {
    let sit_of = |map: u8| {
        let mut block = Block::ZERO;
        let entry = RawSitEntry::new(4, map.count_ones() as u16 * 64, [map; VALID_MAP_SIZE], 0);
        block.view_mut::<RawSitBlock>().entries.fill(entry);
        block
    };
    for deltas in [true, false] {
        let filled = Filled::cut_off(deltas);
        let sit = filled.g.sit_blkaddr..filled.g.nat_blkaddr;
        let over = |block: &Block| sit.clone().map(|addr| (addr, block.clone())).collect::<Vec<_>>();
        for map in [0xff, 0xaa, 0x55, 0xf0] {
            filled.keeps_all(&format!("a SIT of {map:#x}"), &over(&sit_of(map)));
        }
        let mut dump = medfs_fsck::dump::Dump::open(&filled.dev).unwrap();
        let dir = number(dump.path("/many").unwrap().get("ino"));
        let inode = number(dump.nat(dir).unwrap().get("block_addr"));
        for seed in 0..3 {
            let mut blocks = over(&junk(seed));
            filled.keeps_all("a SIT of junk", &blocks);
            blocks.push((inode, Block::ZERO));
            filled.keeps_all("a SIT of junk and a lost directory", &blocks);
        }
    }
}

/// Each two of the tables that lie in front of the main area, both copies of all blocks: the checkpoint and
/// the nodes tell the rest.
#[test]
fn two_tables_erased_together_cost_no_file() {
    let filled = [true, false].map(Filled::worked_on);
    let others =
        [true, false].map(|deltas| Filled::with(120, How { deltas, checkpoints: 1, both_packs: false }));
    for (n, filled) in filled.iter().chain(&others).enumerate() {
        let g = &filled.g;
        let (sit, nat, ssa) =
            (g.sit_blkaddr..g.nat_blkaddr, g.nat_blkaddr..g.ssa_blkaddr, g.ssa_blkaddr..g.main_blkaddr);
        let done = filled.keeps_all(
            &format!("volume {n}: SIT"),
            &sit.clone().map(|addr| (addr, Block::ZERO)).collect::<Vec<_>>(),
        );
        assert!(done.before.has(Code::SitMissing), "{:?}", done.before.findings);
        for (which, areas) in [
            ("SIT, NAT", [sit.clone(), nat.clone()]),
            ("SIT, SSA", [sit, ssa.clone()]),
            ("NAT, SSA", [nat, ssa]),
        ] {
            let erased: Vec<_> = areas.into_iter().flatten().map(|addr| (addr, Block::ZERO)).collect();
            filled.keeps_all(&format!("volume {n}: {which}"), &erased);
        }
    }
}

/// What was written to each other's place is whole all the same.
#[test]
fn inodes_in_each_others_place_are_found() {
    for deltas in [true, false] {
        let filled = Filled::with(60, How { deltas, checkpoints: 1, both_packs: true });
        let mut dump = medfs_fsck::dump::Dump::open(&filled.dev).unwrap();
        let inodes: Vec<(BlockAddr, Block)> = filled
            .files
            .keys()
            .map(|(dir, name)| {
                let ino = number(dump.path(&format!("/{dir}/{name}")).unwrap().get("ino"));
                let addr = number(dump.nat(ino).unwrap().get("block_addr"));
                (addr, *read_block(&filled.dev, addr.into()).unwrap())
            })
            .collect();
        for pair in inodes.windows(2) {
            let [(a, of_a), (b, of_b)] = pair else { continue };
            filled.keeps_all(&format!("blocks {a} and {b}"), &[(*a, of_b.clone()), (*b, of_a.clone())]);
        }
    }
}

/// The pack in force, its first block and its last.
fn pack_in_force(filled: &Filled) -> (usize, BlockAddr, BlockAddr) {
    let header = |index| {
        let start = filled.g.cp_pack(index);
        let block = read_block(&filled.dev, start.into()).unwrap();
        let cp = RawCheckpoint::in_block(&block);
        (cp.checkpoint_ver.get(), index, start, start + cp.cp_pack_total_block_count.get() - 1)
    };
    let (_, index, first, last) = header(0).max(header(1));
    (index, first, last)
}

#[test]
fn one_header_of_the_pack_in_force_is_enough() {
    for checkpoints in [1, 2] {
        let filled = Filled::with(60, How { deltas: false, checkpoints, both_packs: false });
        let (_, first, last) = pack_in_force(&filled);
        for addr in [first, last] {
            let done = filled.judge("a header", &[(addr, junk(7))]);
            assert!(done.before.has(Code::CheckpointHeader), "{:?}", done.before.findings);
        }
    }
}

/// Everything else of a pack is durable before its last block is written: a part of that block, by sectors as
/// power loss tears it or with some wrong bytes, shows that the checkpoint is complete.
#[test]
fn a_last_header_that_is_there_in_part_is_enough() {
    for checkpoints in [1, 2] {
        let filled = Filled::with(60, How { deltas: false, checkpoints, both_packs: false });
        let (_, first, last) = pack_in_force(&filled);
        let header = *read_block(&filled.dev, last.into()).unwrap();
        let zeros = |range: std::ops::Range<usize>| {
            let mut block = header.clone();
            block.0[range].fill(0);
            block
        };
        let wrong = |places: &[usize]| {
            let mut block = header.clone();
            places.iter().for_each(|&at| block.0[at] ^= 0xFF);
            block
        };
        let parts = [
            zeros(512..BLOCK_SIZE),
            zeros(0..BLOCK_SIZE - 512),
            wrong(&[2000]),
            wrong(&[0]),
            wrong(&[7, 100, 4000]),
        ];
        for (n, block) in parts.into_iter().enumerate() {
            let done = filled.keeps_all(&format!("part {n}"), &[(last, block.clone())]);
            assert!(done.before.has(Code::CheckpointTorn), "part {n}: {:?}", done.before.findings);
            // Power loss leaves it so; a repair writes it all the same, as others may count the checkpoint before.
            assert!(!done.before.asks_for_repair() && done.changed, "part {n}: {:?}", done.before.findings);
            assert_eq!(done.after.findings, [], "part {n}");
            // The next checkpoint goes into the other pack: this one is whole by then.
            let dev = filled.damaged(&[(last, block)]);
            drop(opened(dev.clone(), false).unwrap());
            assert_eq!(read_block(&*dev, last.into()).unwrap().0, header.0, "part {n}");
        }
        for bytes in [&[2000][..], &[0], &[7, 100, 4000]] {
            let done = filled.keeps_all("the first header", &[(first, wrong(bytes))]);
            assert!(done.before.has(Code::CheckpointHeader), "{bytes:?}: {:?}", done.before.findings);
        }
    }
}

/// Zeros in the place of the last header, as power loss leaves them: a check says which checkpoint counts, and who
/// brings files off gets those of the newer one, where nothing else of it is missing.
#[test]
fn a_checkpoint_without_its_last_header_is_a_warning_and_can_be_brought() {
    for deltas in [false, true] {
        let filled = Filled::with(60, How { deltas, checkpoints: 1, both_packs: false });
        let (_, _, last) = pack_in_force(&filled);
        let dev = filled.damaged(&[(last, Block::ZERO)]);
        let report = check(&*dev, &Options::default(), &mut |_| {}).unwrap();
        let torn = report.findings.iter().find(|f| f.code == Code::CheckpointTorn).expect("it is told");
        assert!(torn.message.contains("get --salvage"), "{torn}");
        assert!(!report.asks_for_repair(), "{:?}", report.findings);
        let (_, lost) = filled.differing(&opened(dev.clone(), true).unwrap());
        assert!(!lost.is_empty(), "the checkpoint before is shown");
        let bared = medfs_fsck::repair_without_names(&*dev, &Options::default(), &mut |_| {}).unwrap();
        assert!(bared.unfinished && bared.before.has(Code::CheckpointTorn));
        let (wrong, lost) = filled.differing(&opened(dev, true).unwrap());
        assert!(wrong.is_empty() && lost.is_empty(), "{wrong:?} differ, {lost:?} are lost");
    }
}

/// Where more of the newer checkpoint is missing, who brings files off gets what its nodes say.
#[test]
fn of_a_checkpoint_that_is_not_complete_the_nodes_are_brought() {
    for deltas in [false, true] {
        let filled = Filled::with(120, How { deltas, checkpoints: 1, both_packs: false });
        let (_, first, last) = pack_in_force(&filled);
        let dev = filled.damaged(&[(first + 1, Block::ZERO), (last, Block::ZERO)]);
        let report = check(&*dev, &Options::default(), &mut |_| {}).unwrap();
        assert!(report.has(Code::CheckpointTorn) && !report.asks_for_repair(), "{:?}", report.findings);
        let bared = medfs_fsck::repair_without_names(&*dev, &Options::default(), &mut |_| {}).unwrap();
        assert!(!bared.unfinished && bared.reckoned, "{:?}", bared.before.findings);
        let (wrong, lost) = filled.differing(&opened(dev, true).unwrap());
        assert!(wrong.is_empty() && lost.is_empty(), "{wrong:?} differ, {lost:?} are lost");
    }
}

/// Linux makes a checkpoint that power loss has ended again under the same number: what is left of the last block
/// of the first attempt says nothing of the second.
#[test]
fn a_part_of_the_last_header_of_another_attempt_is_not_enough() {
    let filled = Filled::with(60, How { deltas: false, checkpoints: 1, both_packs: false });
    let (_, first, last) = pack_in_force(&filled);
    let mut left = *read_block(&filled.dev, last.into()).unwrap();
    let mut second = left.clone();
    let cp = RawCheckpoint::in_block_mut(&mut second);
    cp.elapsed_time = (cp.elapsed_time.get() + 1).into();
    medfs_format::checkpoint::seal(&mut second);
    left.0[512..].fill(0);
    let dev = filled.damaged(&[(first, second), (last, left)]);
    let report = check(&*dev, &Options::default(), &mut |_| {}).unwrap();
    let torn = report.findings.iter().find(|f| f.code == Code::CheckpointTorn).expect("it is told");
    assert!(torn.message.contains("which has no second header"), "{torn}");
}

/// Power loss tears a first header, and summaries lie over the last one of the pack that was there before. That
/// is no damage, though files were fsynced since the checkpoint in force.
#[test]
fn a_first_header_that_is_torn_is_no_lost_checkpoint() {
    let mut filled = Filled::with(60, How { deltas: false, checkpoints: 1, both_packs: false });
    let dev = Arc::new(filled.dev.snapshot());
    let v = opened(dev.clone(), false).unwrap();
    let dir = v.lookup(v.root(), b"d0").unwrap().ino;
    let ino = v.create(dir, b"fsynced", &NEW).unwrap().ino;
    v.write(ino, 0, b"content").unwrap();
    v.fsync(ino, false).unwrap();
    filled.dev = dev.snapshot();
    drop(v);
    filled.files.insert(("d0".into(), "fsynced".into()), b"content".to_vec());
    let (index, in_force, _) = pack_in_force(&filled);
    let (start, version) =
        (filled.g.cp_pack(1 - index), |block: &Block| RawCheckpoint::in_block(block).checkpoint_ver.get());
    let newer = version(&read_block(&filled.dev, in_force.into()).unwrap()) + 1;
    for sector in [newer, newer - 2] {
        let mut torn = *read_block(&filled.dev, start.into()).unwrap();
        RawCheckpoint::in_block_mut(&mut torn).checkpoint_ver = sector.into();
        torn.0[2048..2560].fill(0x11);
        let over = (start + 1..start + 512).map(|addr| (addr, Block([0x11; BLOCK_SIZE])));
        let changed: Vec<_> = std::iter::once((start, torn)).chain(over).collect();
        let dev = filled.damaged(&changed);
        let report = check(&*dev, &Options::default(), &mut |_| {}).unwrap();
        assert!(report.has(Code::CheckpointTorn) && !report.asks_for_repair(), "{:?}", report.findings);
        let v = opened(dev.clone(), true).unwrap();
        assert_eq!(medfs::PastDamage::of(&v).unrecovered(), []);
        let (wrong, lost) = filled.differing(&opened(dev, false).unwrap());
        assert!(wrong.is_empty() && lost.is_empty(), "{wrong:?} differ, {lost:?} are lost");
    }
}

/// The write of the first header is lost: the last one is newer, which power loss does not leave.
#[test]
fn a_lost_write_of_the_first_header_is_damage_and_costs_nothing() {
    for checkpoints in [2, 3, 4] {
        let filled = Filled::with(60, How { deltas: false, checkpoints, both_packs: false });
        let (index, first, last) = pack_in_force(&filled);
        for blocks in [last - first + 1, last - first, last - first + 3] {
            // A header of two checkpoints before, whole in itself, of a pack of this many blocks.
            let mut header = *read_block(&filled.dev, first.into()).unwrap();
            let cp = RawCheckpoint::in_block_mut(&mut header);
            cp.checkpoint_ver = (cp.checkpoint_ver.get() - 2).into();
            cp.cp_pack_total_block_count = blocks.into();
            medfs_format::checkpoint::seal(&mut header);
            let what = format!("pack {index}, {blocks} blocks");
            let mut changed = vec![(first, header.clone())];
            let done = filled.keeps_all(&what, &changed);
            assert!(done.before.has(Code::CheckpointHeader) && done.changed, "{:?}", done.before.findings);
            if blocks > last - first + 1 {
                // The pack of that time is whole by its two headers.
                changed.push((first + blocks - 1, header));
                let done = filled.keeps_all(&format!("{what}, whole"), &changed);
                assert!(done.before.has(Code::CheckpointHeader), "{:?}", done.before.findings);
            }
            let (wrong, lost) = filled.differing(&opened(filled.damaged(&changed), true).unwrap());
            assert!(wrong.is_empty() && lost.is_empty(), "{what}: {wrong:?} differ, {lost:?} are lost");
        }
    }
}

/// Nodes name a checkpoint only when it is complete: with an fsync after it, its second header was there.
#[test]
fn a_checkpoint_that_was_followed_by_an_fsync_is_complete() {
    for deltas in [false, true] {
        let mut filled = Filled::with(60, How { deltas, checkpoints: 1, both_packs: false });
        let dev = Arc::new(filled.dev.snapshot());
        let v = opened(dev.clone(), false).unwrap();
        let dir = v.lookup(v.root(), b"d0").unwrap().ino;
        let create = |name: &str, files: &mut Files| {
            let ino = v.create(dir, name.as_bytes(), &NEW).unwrap().ino;
            v.write(ino, 0, name.as_bytes()).unwrap();
            files.insert(("d0".into(), name.into()), name.as_bytes().to_vec());
            ino
        };
        create("in-the-checkpoint", &mut filled.files);
        v.checkpoint().unwrap();
        let ino = create("fsynced", &mut filled.files);
        v.fsync(ino, false).unwrap();
        filled.dev = dev.snapshot();
        drop(v);
        let (_, _, last) = pack_in_force(&filled);
        let dev = filled.damaged(&[(last, Block::ZERO)]);
        let report = check(&*dev, &Options::default(), &mut |_| {}).unwrap();
        assert!(report.has(Code::CheckpointHeader), "{:?}", report.findings);
        let (wrong, lost) = filled.differing(&opened(dev, false).unwrap());
        assert!(wrong.is_empty() && lost.is_empty(), "{wrong:?} differ, {lost:?} are lost");
    }
}

#[test]
fn a_volume_that_was_filled_has_its_last_checkpoint_in_both_packs() {
    for deltas in [true, false] {
        let filled = Filled::with(60, How { deltas, checkpoints: 1, both_packs: true });
        let (_, first, last) = pack_in_force(&filled);
        let pack: Vec<_> = (first..=last).map(|addr| (addr, junk(addr.into()))).collect();
        let dev = filled.damaged(&pack);
        let (wrong, lost) = filled.differing(&opened(dev, true).unwrap());
        assert!(wrong.is_empty() && lost.is_empty(), "{wrong:?} {lost:?}");
        filled.judge("a whole pack", &pack);
    }
}

/// Sectors of the pack that cannot be read: its journals are made anew from the nodes, and the checkpoint
/// before stays where it is.
#[test]
fn journals_that_cannot_be_read_cost_no_file_of_the_last_checkpoint() {
    for deltas in [false, true] {
        let filled = Filled::with(60, How { deltas, checkpoints: 1, both_packs: false });
        let (_, first, last) = pack_in_force(&filled);
        for addr in first + 1..last {
            let dev = Arc::new(FaultDevice::new(filled.dev.snapshot(), 1));
            dev.inner().write(addr.into(), &[&Block::ZERO], META).unwrap();
            dev.arm(
                Fault::on(Kind::Read, Effect::IO).within(addr.into()..u64::from(addr) + 1).until_written(),
            );
            let done = repair(&*dev, &Options::default(), &mut |_| {}).unwrap();
            assert!(done.before.asks_for_repair(), "block {addr}: {:?}", done.before.findings);
            assert!(done.after.is_clean(), "block {addr}: {:?}", done.after.findings);
            let (wrong, lost) = filled.differing(&opened(Arc::new(dev.inner().snapshot()), true).unwrap());
            assert!(wrong.is_empty() && lost.is_empty(), "block {addr}: {wrong:?} differ, {lost:?} are lost");
        }
    }
}

/// A reader opens the volume all the same, and sees what it would see were the sector zeros; that the
/// checkpoint is not whole is told.
#[test]
fn journals_that_cannot_be_read_do_not_keep_a_reader_out() {
    for deltas in [false, true] {
        let filled = Filled::with(60, How { deltas, checkpoints: 1, both_packs: false });
        let (_, first, last) = pack_in_force(&filled);
        for addr in first + 1..last {
            let zeros = filled.differing(&opened(filled.damaged(&[(addr, Block::ZERO)]), true).unwrap());
            let dev = Arc::new(FaultDevice::new(filled.dev.snapshot(), 1));
            dev.arm(Fault::on(Kind::Read, Effect::IO).within(addr.into()..u64::from(addr) + 1));
            let options = MountOptions { read_only: true, ..MountOptions::default() };
            let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
            let v = Volume::open(dev, options, clock).unwrap_or_else(|e| panic!("block {addr}: {e}"));
            assert_eq!(filled.differing(&v), zeros, "block {addr}");
            let told = medfs::PastDamage::of(&v).unrecovered();
            assert!(told.len() == 1 && told[0].1.contains("is not whole"), "block {addr}: {told:?}");
        }
    }
}

/// So does one whose NAT journal holds what no journal holds.
#[test]
fn a_journal_that_is_not_valid_does_not_keep_a_reader_out() {
    let filled = Filled::with(60, How { deltas: false, checkpoints: 1, both_packs: false });
    let (_, first, _) = pack_in_force(&filled);
    let mut block = *read_block(&filled.dev, u64::from(first) + 1).unwrap();
    block.0[..2].fill(0xFF);
    let dev = filled.damaged(&[(first + 1, block)]);
    assert!(opened(dev.clone(), false).is_err());
    let told = medfs::PastDamage::of(&opened(dev, true).unwrap()).unrecovered();
    assert!(told.len() == 1 && told[0].1.contains("is not whole"), "{told:?}");
}

#[test]
fn a_volume_that_is_as_of_an_older_checkpoint_is_a_finding() {
    let filled = Filled::with(60, How { deltas: false, checkpoints: 1, both_packs: false });
    let (_, first, last) = pack_in_force(&filled);
    let pack: Vec<_> = (first..=last).map(|addr| (addr, junk(addr.into()))).collect();
    let dev = filled.damaged(&pack);
    let told = medfs::PastDamage::of(&opened(dev.clone(), true).unwrap()).unrecovered();
    assert!(told.len() == 1 && told[0].1.contains("the previous checkpoint"), "{told:?}");
    let report = check(&*dev, &Options::default(), &mut |_| {}).unwrap();
    assert!(report.has(Code::CheckpointOlder) && !report.is_clean(), "{:?}", report.findings);
    let done = repair(&*dev, &Options::default(), &mut |_| {}).unwrap();
    assert!(done.after.is_clean(), "{:?}", done.after.findings);
}

/// A pack has a copy in the other one: where it is lost as a whole, a check says so, whichever of them it is,
/// and whatever is in its place.
#[test]
fn a_pack_that_is_lost_as_a_whole_asks_for_a_repair() {
    for checkpoints in [0, 1] {
        let filled = Filled::with(60, How { deltas: false, checkpoints, both_packs: false });
        for pack in 0..2 {
            let start = filled.g.cp_pack(pack);
            for with in [|_| Block::ZERO, |addr: BlockAddr| junk(addr.into())] {
                let blocks: Vec<_> = (start..start + 512).map(|addr| (addr, with(addr))).collect();
                let dev = filled.damaged(&blocks);
                let report = check(&*dev, &Options::default(), &mut |_| {}).unwrap();
                assert!(report.asks_for_repair() && !report.is_clean(), "{pack}: {:?}", report.findings);
                let done = repair(&*dev, &Options::default(), &mut |_| {}).unwrap();
                assert!(done.changed && done.after.findings.is_empty(), "{pack}: {:?}", done.after.findings);
            }
        }
    }
}

#[test]
fn a_checkpoint_that_was_not_written_to_its_end_does_not_count() {
    let filled = Filled::with(60, How { deltas: false, checkpoints: 1, both_packs: false });
    let (index, first, last) = pack_in_force(&filled);
    let older = read_block(&filled.dev, filled.g.cp_pack(1 - index).into()).unwrap();
    for block in [Block::ZERO, *older, *read_block(&filled.dev, u64::from(last) - 1).unwrap()] {
        let dev = filled.damaged(&[(last, block)]);
        let report = check(&*dev, &Options::default(), &mut |_| {}).unwrap();
        assert!(
            !report.has(Code::CheckpointHeader) && report.has(Code::CheckpointTorn),
            "{:?}",
            report.findings
        );
        assert!(!report.asks_for_repair(), "{:?}", report.findings);
        assert!(!repair(&*dev, &Options::default(), &mut |_| {}).unwrap().changed);
    }
    let header = read_block(&filled.dev, first.into()).unwrap();
    assert!(RawCheckpoint::in_block(&header).flags().contains(CpFlags::UMOUNT));
    assert_eq!(header.0.len(), BLOCK_SIZE);
}

#[test]
fn an_export_leaves_no_pack_with_deltas() {
    let (dev, ino, _, content) = crate::common::delta_volume(12, &[1, 5, 9]);
    let dev = Arc::new(dev);
    let clock = ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 });
    medfs::convert::export(dev.clone(), Arc::new(clock), &mut |_, _, _| ()).unwrap();
    let dev = dev.snapshot();
    let filled = Filled { g: geometry(&dev), dev, files: Files::new() };
    let (_, first, last) = pack_in_force(&filled);
    let pack: Vec<_> = (first..=last).map(|addr| (addr, junk(addr.into()))).collect();
    let v = opened(filled.damaged(&pack), true).unwrap();
    let mut found = vec![0; content.len()];
    v.read(ino, 0, &mut found).unwrap();
    assert!(found == content, "an exported file reads as it was before its deltas");
}

#[test]
fn a_file_whose_inode_is_lost_is_named_with_its_path() {
    let filled = Filled::with(60, How { deltas: false, checkpoints: 0, both_packs: true });
    // Its content was in the inode: of another file the blocks are left.
    let small = filled.files.iter().find(|(_, content)| (1..=3000).contains(&content.len()));
    let path = small.map(|((dir, name), _)| format!("/{dir}/{name}")).unwrap();
    let mut dump = medfs_fsck::dump::Dump::open(&filled.dev).unwrap();
    let ino = number(dump.path(&path).unwrap().get("ino"));
    let addr = number(dump.nat(ino).unwrap().get("block_addr"));
    let dev = filled.damaged(&[(addr, junk(1))]);
    let found = check(&*dev, &Options::default(), &mut |_| {}).unwrap();
    assert_eq!(found.losses.lost, 1, "{:?}", found.findings);
    assert_eq!(found.lost[0].path, path.as_bytes());
    let done = repair(&*dev, &Options::default(), &mut |_| {}).unwrap();
    assert_eq!((done.before.lost.len(), done.after.losses.lost), (1, 0));
}
