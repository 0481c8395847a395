//! The newest checkpoint lost, repaired and worked on, again and again: what was there at that checkpoint is there
//! after each repair, and what was written before a repair never takes the place of what came after it.
//!
//! The default run takes some histories; `MEDFS_CASES` asks for more, `MEDFS_SEED` for others.

use crate::behind::headers_of_newest;
use crate::common::META;
use crate::medium::{checked, opened};
use medfs::{FileKind, Files, NewFile, RenameFlags, SetAttr, Volume};
use medfs_device::{BlockDevice, MemDevice};
use medfs_format::{BLOCK_SIZE, BLOCKS_PER_SEG, Block};
use medfs_fsck::{Code, Options, repair, repair_without_names};
use medfs_testkit::fuzz::{sample_seed, variable};
use medfs_testkit::images::{DELTAS, formatted};
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::Arc;

type Random = Xoshiro256PlusPlus;

/// Files of the root directory by their names, and numbers that tell their content.
type Wanted = BTreeMap<String, u64>;

/// Losses of one history.
const TURNS: usize = 4;

fn content(number: u64) -> Vec<u8> {
    let len = [100, 3000, 9000, 70_000][number as usize % 4];
    number.to_le_bytes().repeat(len / 8)
}

/// Writes a file anew, and maybe makes it durable.
fn write(v: &Volume, name: &str, number: u64, fsync: bool) {
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = match v.lookup(v.root(), name.as_bytes()) {
        Ok(attr) => attr.ino,
        Err(_) => v.create(v.root(), name.as_bytes(), &new).expect("create").ino,
    };
    let bytes = content(number);
    v.write(ino, 0, &bytes).expect("write");
    v.setattr(ino, &SetAttr { size: Some(bytes.len() as u64), ..SetAttr::default() }).expect("truncate");
    if fsync {
        v.fsync(ino, false).expect("fsync");
    }
    v.release(ino, 1);
}

/// Some work, and what is there behind it.
fn work(v: &Volume, wanted: &mut Wanted, rng: &mut Random, number: &mut u64) {
    for _ in 0..rng.random_range(1..25) {
        *number += 1;
        let known = wanted.keys().choose(rng).cloned();
        match (rng.random_range(0..10), known) {
            (0..=1, Some(name)) => {
                v.unlink(v.root(), name.as_bytes()).expect("unlink");
                wanted.remove(&name);
            }
            (2, Some(name)) => {
                let to = format!("moved {number}");
                v.rename(v.root(), name.as_bytes(), v.root(), to.as_bytes(), RenameFlags::empty())
                    .expect("rename");
                let content = wanted.remove(&name).expect("known");
                wanted.insert(to, content);
            }
            (3..=5, Some(name)) => {
                write(v, &name, *number, rng.random());
                wanted.insert(name, *number);
            }
            _ => {
                let name = format!("file {number}");
                write(v, &name, *number, rng.random());
                wanted.insert(name, *number);
            }
        }
    }
}

/// What is not as it is wanted.
fn differs(v: &Volume, wanted: &Wanted) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, &number) in wanted {
        let read = v.lookup(v.root(), name.as_bytes()).and_then(|attr| {
            let mut bytes = vec![0; attr.size as usize];
            v.read(attr.ino, 0, &mut bytes).map(|_| bytes)
        });
        match read {
            Ok(bytes) if bytes == content(number) => {}
            Ok(bytes) => {
                let is = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                wrong.push(format!("{name} has the content of {is}, of {number} wanted"));
            }
            Err(e) => wrong.push(format!("{name}: {e}")),
        }
    }
    wrong
}

/// Loses the newest pack: its headers, or all of it.
fn lose_newest(dev: &MemDevice, rng: &mut Random) -> &'static str {
    let [start, last] = headers_of_newest(dev);
    let mut junk = Block([0; BLOCK_SIZE]);
    rng.fill(&mut junk.0[..]);
    let (with, how) = if rng.random() { (Block::ZERO, "zeros") } else { (junk, "junk") };
    let end = start + u64::from(BLOCKS_PER_SEG);
    let blocks: Vec<u64> = if rng.random() { vec![start, last] } else { (start..end).collect() };
    blocks.into_iter().for_each(|addr| dev.write(addr, &[&with], META).expect("memory"));
    how
}

fn one_history(seed: u64, features: &str) {
    let mut rng = Random::seed_from_u64(seed);
    let dev = Arc::new(formatted(128, features).snapshot());
    let (mut wanted, mut number) = (Wanted::new(), 0);
    for turn in 0..TURNS {
        for _ in 0..rng.random_range(0..3) {
            let v = opened(dev.clone());
            work(&v, &mut wanted, &mut rng, &mut number);
            v.close().expect("closed");
        }
        let v = opened(dev.clone());
        work(&v, &mut wanted, &mut rng, &mut number);
        match rng.random() {
            true => v.close().expect("closed"),
            false => {
                v.sync().expect("a checkpoint");
                for _ in 0..rng.random_range(0..4) {
                    number += 1;
                    let name = format!("behind {number}");
                    write(&v, &name, number, true);
                    wanted.insert(name, number);
                }
            }
        }
        let how = lose_newest(&dev, &mut rng);
        let what = format!("MEDFS_SEED={seed} with {features:?}, turn {turn}, {how}");
        let found = checked(&*dev);
        // Of a checkpoint that wrote nothing but what had been fsynced nothing is missing.
        assert!(
            found.has(Code::CheckpointOlder) || found.has(Code::CheckpointPack),
            "{what}: {:?}",
            found.findings
        );
        let copy = Arc::new(dev.snapshot());
        repair_without_names(&*copy, &Options::default(), &mut |_| {}).expect("memory");
        assert_eq!(differs(&opened(copy), &wanted), Vec::<String>::new(), "{what}: a salvage");
        let done = repair(&*dev, &Options::default(), &mut |_| {}).expect("memory");
        assert_eq!(done.after.findings, [], "{what}");
        assert_eq!(
            differs(&opened(Arc::new(dev.snapshot())), &wanted),
            Vec::<String>::new(),
            "{what}: a repair"
        );
    }
}

#[test]
fn a_lost_checkpoint_costs_nothing_however_often() {
    let (seed, cases) = (sample_seed(), variable("MEDFS_CASES").unwrap_or(4));
    for case in 0..cases {
        for features in ["", DELTAS] {
            one_history(seed + case, features);
        }
    }
}
