//! A cache that is smaller than what the records in an NVRAM make: pages leave it, and come back.

use crate::common::*;
use crate::nvram::{crashed, opened, stats};
use medfs::{FallocateMode, Files, Ino, RenameFlags, SetAttr, Volume};
use medfs_device::{MemDevice, MemNvram};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Dirty pages of which a cache of 1 MiB has room: half of three quarters, but for bases.
const MOST_IN_MEMORY: u64 = 96;

struct Mounted {
    v: Volume,
    device: Arc<MemDevice>,
    memory: Arc<MemNvram>,
}

fn mounted(size: u64, options: &str) -> Mounted {
    let (device, memory) = (Arc::new(blank_delta(128)), Arc::new(MemNvram::new(size)));
    let v = opened(&device, &memory, options).expect("mounts");
    Mounted { v, device, memory }
}

impl Mounted {
    fn after_power_loss(&self, options: &str) -> Mounted {
        let (device, memory) = crashed(&self.device, &self.memory);
        Mounted { v: opened(&device, &memory, options).expect("mounts again"), device, memory }
    }
}

/// 1500 pages change by 150 bytes each, and are fsynced, where the cache has room for fewer than 100: none is written
/// before the volume is synced, all are read as they are, and come back after power loss, also into such a cache.
#[test]
fn small_updates_of_many_pages_stay_unwritten_in_a_small_cache() {
    for options in ["cache=1M", "cache=1M,delta=off", "cache=1M,in_place=force"] {
        let mounted = mounted(1 << 20, options);
        let (f, mut expected) = noisy_file(&mounted.v, "f", 1500);
        mounted.v.sync().expect("sync");
        let before = mounted.v.stats().written;
        for page in 0..1500 {
            patch(&mounted.v, f, &mut expected, page * PAGE + page % 3000, &noise(page as u64)[..150]);
            mounted.v.fsync(f, true).expect("fsync");
            let stats = mounted.v.stats();
            let here = stats.dirty_pages - stats.nvram.as_ref().map_or(0, |nvram| nvram.pages_away);
            assert!(here <= MOST_IN_MEMORY, "{options}: {here} pages in memory");
        }
        assert_eq!(mounted.v.stats().written, before, "{options}: nothing is written");
        let stats = stats(&mounted.v);
        assert!(stats.pages_away > 1300 && stats.pages_held == 1500, "{options}: {stats:?}");
        assert!(content(&mounted.v, f) == expected, "{options}");
        for cache in ["cache=1M", "cache=16M", "ro,cache=1M"] {
            let again = mounted.after_power_loss(cache);
            assert!(content(&again.v, f) == expected, "{options}, then {cache}");
        }
        mounted.v.sync().expect("sync");
        assert_eq!(crate::nvram::stats(&mounted.v).pages_away, 0);
        assert!(content(&mounted.v, f) == expected, "{options}");
        assert!(content(&mounted.after_power_loss("").v, f) == expected, "{options}, synced");
    }
}

/// Pages that left memory change again and again: a record that takes the place of all others has them too.
#[test]
fn records_of_pages_that_left_memory_are_compacted() {
    let mounted = mounted(256 << 10, "cache=1M");
    let (f, mut expected) = noisy_file(&mounted.v, "f", 300);
    mounted.v.sync().expect("sync");
    let before = stats(&mounted.v).emptied;
    for round in 0..12usize {
        for page in 0..300 {
            patch(&mounted.v, f, &mut expected, page * PAGE + round * 7, &noise(page as u64)[..9]);
            mounted.v.fsync(f, true).expect("fsync");
        }
    }
    let stats = stats(&mounted.v);
    assert!(stats.compactions > 1 && stats.pages_away > 200, "{stats:?}");
    assert_eq!(stats.emptied, before, "no checkpoint was needed");
    assert!(content(&mounted.v, f) == expected);
    assert!(content(&mounted.after_power_loss("cache=1M").v, f) == expected);
}

/// Writes into a file, or beyond its end.
fn put(v: &Volume, ino: Ino, expected: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    expected.resize(expected.len().max(at + bytes.len()), 0);
    patch(v, ino, expected, at, bytes);
}

/// Files of some hundred pages in a cache that has room for fewer.
struct Files3 {
    mounted: Mounted,
    random: ChaCha8Rng,
    files: BTreeMap<usize, (Ino, Vec<u8>)>,
}

impl Files3 {
    fn some(&mut self) -> usize {
        let names: Vec<usize> = self.files.keys().copied().collect();
        *names.choose(&mut self.random).expect("there are some")
    }

    fn step(&mut self) {
        let name = self.some();
        let (v, random) = (&self.mounted.v, &mut self.random);
        let (ino, expected) = self.files.get_mut(&name).expect("it is there");
        let at = random.random_range(0..expected.len().max(1));
        match random.random_range(0..1000) {
            0..700 => put(v, *ino, expected, at, &noise(random.random())[..random.random_range(1..200)]),
            700..720 => put(v, *ino, expected, at / PAGE * PAGE, &noise(random.random())),
            720..890 => v.fsync(*ino, random.random()).expect("fsync"),
            890..894 => {
                let size = random.random_range(0..600 * PAGE);
                let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                v.setattr(*ino, &set).expect("cut");
                expected.resize(size, 0);
            }
            894..904 => {
                let (from, len) = (at / PAGE * PAGE, random.random_range(1..40) * PAGE);
                let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
                v.fallocate(*ino, mode, from as u64, len as u64).expect("punched");
                let end = expected.len().min(from + len);
                expected[from.min(end)..end].fill(0);
            }
            904..984 => {
                let mut page = vec![0; PAGE];
                let read = v.read(*ino, at as u64, &mut page).expect("read");
                assert!(page[..read] == expected[at..(at + PAGE).min(expected.len())], "{name}: {at}");
            }
            984..986 => v.sync().expect("sync"),
            986..990 => {
                v.atomic_start(*ino).expect("begun");
                put(v, *ino, expected, at, &[7; 100]);
                v.atomic_commit(*ino).expect("committed");
            }
            990..992 => self.replace(name),
            _ if expected.len() > 2 * PAGE => {
                v.fallocate(*ino, FallocateMode::COLLAPSE_RANGE, 0, PAGE as u64).expect("collapsed");
                expected.drain(..PAGE);
            }
            _ => {}
        }
    }

    /// Another file takes the name of one.
    fn replace(&mut self, name: usize) {
        let v = &self.mounted.v;
        let (new, expected) = noisy_file(v, "new", self.random.random_range(1..200));
        let (root, to) = (v.root(), format!("f{name}"));
        v.fsync(new, false).expect("fsync");
        v.rename(root, b"new", root, to.as_bytes(), RenameFlags::empty()).expect("renamed");
        let (old, _) = self.files.insert(name, (new, expected)).expect("it was there");
        v.release(old, 1);
    }

    /// All is fsynced, and power lost.
    fn lose_power(&mut self, options: &str) {
        let v = &self.mounted.v;
        self.files.values().for_each(|(ino, _)| v.fsync(*ino, false).expect("fsync"));
        v.fsync(v.root(), false).expect("fsync");
        self.mounted = self.mounted.after_power_loss(options);
        for (name, (ino, expected)) in &mut self.files {
            *ino = at(&self.mounted.v, &format!("f{name}")).expect("it is there").ino;
            assert!(content(&self.mounted.v, *ino) == *expected, "f{name}");
        }
    }
}

#[test]
fn whatever_is_done_to_files_that_are_away_they_are_as_they_were_left() {
    let seeds = std::env::var("MEDFS_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut away = 0;
    for seed in seeds.map_or(0..4u64, |seed: u64| seed..seed + 60) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let more =
            ["", ",delta=off", ",in_place=force", ",in_place=off,compact_files=all"][seed as usize % 4];
        let options = format!("cache=1M{more}");
        println!("seed {seed}, {options}");
        let mounted = mounted(*[128 << 10, 1 << 20].choose(&mut random).expect("one"), &options);
        let files = (0..3).map(|n| (n, noisy_file(&mounted.v, &format!("f{n}"), 400))).collect();
        mounted.v.sync().expect("sync");
        let mut all = Files3 { mounted, random, files };
        for _ in 0..4 {
            for _ in 0..1500 {
                all.step();
                away += stats(&all.mounted.v).pages_away;
            }
            all.lose_power(&options);
        }
    }
    assert!(away > 10_000, "pages were away: {away}");
}
