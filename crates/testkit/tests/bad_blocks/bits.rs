//! One flipped bit and no other damage: bit by bit of what is in use of each block. `every_block` flips one bit of
//! a block, which seldom is one of those that a file hangs on.

use crate::volumes::{kinds, made, of_deltas, worked_on};
use crate::{Tally, by_all_processors};
use medfs_testkit::bad_blocks::{Damage, Failure, Part, Target, Volume};
use medfs_testkit::delta_volume::shared_volume;
use medfs_testkit::fuzz::{sample_seed, variable};
use medfs_testkit::images::{DELTAS, FEATURE_SETS};
use rand::SeedableRng;
use rand::seq::IteratorRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Mutex;

/// Flips a bit and repairs the volume; with `MEDFS_MOUNT` mounts it to be written to instead.
fn struck(volume: &Volume, target: Target, bit: usize) -> Result<(), Failure> {
    match variable("MEDFS_MOUNT") {
        Some(_) => volume.mount_flipped(target, bit).map(drop),
        None => volume.flip(target, bit),
    }
}

/// Flips so many bits of each of these blocks, or all that are in use, one at a time; how many.
fn flip(volume: &Volume, targets: &[Target], most: Option<u64>, seed: u64, tally: &Mutex<Tally>) -> u64 {
    let mut flips = Vec::new();
    for &target in targets {
        let bits = 0..volume.bytes_in_use(target) * 8;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ target.block);
        let some = match most {
            Some(most) => bits.choose_multiple(&mut rng, most as usize),
            None => bits.collect(),
        };
        flips.extend(some.into_iter().map(|bit| (target, bit)));
    }
    by_all_processors(0..flips.len() as u64, |number| {
        let (target, bit) = flips[number as usize];
        let went = struck(volume, target, bit);
        tally.lock().expect("no thread panics").count(volume, &[(target, Damage::Flipped)], went, bit as u64);
    });
    flips.len() as u64
}

/// Some bits of each block of a checkpoint pack that was in force when power was lost.
#[test]
fn some_bits_of_a_pack() {
    let (seed, tally) = (sample_seed(), Mutex::default());
    for volume in [
        Volume::new("plain, crashed", made(FEATURE_SETS[0], true), &[]),
        Volume::new("shared nodes, crashed", shared_volume().dev, &[]),
    ] {
        let in_force = |target: &&Target| target.part == Part::Pack(true);
        let pack: Vec<Target> = volume.targets.iter().filter(in_force).copied().collect();
        assert!(flip(&volume, &pack, Some(8), seed, &tally) >= 24, "{pack:?}");
    }
    let tally = tally.into_inner().expect("no thread panics");
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// A flipped bit in the count of a journal, which would show old content, is found by a mount that may write.
#[test]
fn a_mount_finds_the_flipped_bit_of_a_journal_s_count() {
    let mut tally = Tally::default();
    for volume in [
        Volume::new("plain", made(FEATURE_SETS[0], false), &[]),
        Volume::new("plain, crashed", made(FEATURE_SETS[0], true), &[]),
        of_deltas("deltas", ""),
    ] {
        let mut refused = 0;
        for (target, bit) in
            volume.journal_counts().into_iter().flat_map(|(t, bits)| bits.map(move |b| (t, b)))
        {
            let went = volume.mount_flipped(target, bit).map(|is_refused| refused += u32::from(is_refused));
            tally.count(&volume, &[(target, Damage::Flipped)], went, bit as u64);
            let went = volume.flip(target, bit);
            tally.count(&volume, &[(target, Damage::Flipped)], went, bit as u64);
        }
        assert!(refused > 20, "{}: {refused} mounts were refused", volume.name);
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Zeros in place of a block of the SIT, over whose blocks a mount would write, are found by it.
#[test]
fn a_mount_finds_a_lost_block_of_the_sit() {
    let (mut tally, mut refused) = (Tally::default(), 0);
    for features in [DELTAS, FEATURE_SETS[1]] {
        let volume = Volume::new(features, worked_on(features), &[]);
        for target in volume.targets.iter().filter(|target| target.part == Part::Sit) {
            let rng = Xoshiro256PlusPlus::seed_from_u64(0);
            let went = volume
                .mount_damaged(*target, Damage::Zeroed, &rng)
                .map(|is_refused| refused += u32::from(is_refused));
            tally.count(&volume, &[(*target, Damage::Zeroed)], went, 0);
        }
    }
    tally.print();
    assert!(tally.failures() == 0 && refused >= 1, "{refused} mounts were refused");
}

/// Zeros in place of a block of the NAT, or of one entry, some of them: its number would be given to a new file.
#[test]
fn a_mount_finds_lost_entries_of_the_nat() {
    let (mut tally, mut refused) = (Tally::default(), 0);
    for features in [DELTAS, FEATURE_SETS[1]] {
        let volume = Volume::new(features, worked_on(features), &[]);
        for target in volume.targets.iter().filter(|target| target.part == Part::Nat).copied() {
            let mut count = |went: Result<bool, Failure>, place: usize| {
                let went = went.map(|is_refused| refused += u32::from(is_refused));
                tally.count(&volume, &[(target, Damage::Zeroed)], went, place as u64);
            };
            let rng = Xoshiro256PlusPlus::seed_from_u64(0);
            count(volume.mount_damaged(target, Damage::Zeroed, &rng), 0);
            let places = volume.entries_in_use(target).into_iter().skip(sample_seed() as usize % 19);
            places.step_by(19).for_each(|place| count(volume.mount_without_entry(target, place), place));
        }
    }
    tally.print();
    assert!(tally.failures() == 0 && refused >= 10, "{refused} mounts were refused");
}

/// An older block of SIT or NAT, as a lost write leaves it, is found by a mount, or costs nothing.
#[test]
fn a_mount_finds_an_older_block_of_the_tables() {
    let (mut tally, mut refused) = (Tally::default(), 0);
    for features in [DELTAS, FEATURE_SETS[1]] {
        let volume = Volume::new(features, worked_on(features), &[]);
        for target in volume.targets.iter().filter(|t| matches!(t.part, Part::Nat | Part::Sit)).copied() {
            let went = volume.mount_older(target).map(|is_refused| refused += u32::from(is_refused));
            tally.count(&volume, &[(target, Damage::TornOlder)], went, 0);
        }
    }
    tally.print();
    assert!(tally.failures() == 0 && refused >= 2, "{refused} mounts were refused");
}

/// Each bit in use of the blocks of every volume, or `MEDFS_BITS` of each block. `MEDFS_VOLUME` is a part of the name
/// of the volumes wanted, `MEDFS_PARTS` one of the names of those blocks' parts (`Pack(true)`), `MEDFS_BLOCK` the
/// block and `MEDFS_BIT` the bit. What a failure calls a seed is the bit. With `MEDFS_MOUNT` the volume is mounted and
/// written to rather than repaired.
#[test]
#[ignore = "takes minutes"]
fn every_bit() {
    let seed = sample_seed();
    let text = |name: &str| std::env::var(name).unwrap_or_default();
    let (wanted, parts) = (text("MEDFS_VOLUME"), text("MEDFS_PARTS"));
    let (block, bit) = (variable("MEDFS_BLOCK"), variable("MEDFS_BIT"));
    let tally = Mutex::new(Tally::default());
    for volume in kinds().iter().map(|make| make()).filter(|volume| volume.name.contains(&wanted)) {
        let started = std::time::Instant::now();
        let is_wanted = |target: &&Target| {
            format!("{:?}", target.part).contains(&parts) && block.is_none_or(|block| block == target.block)
        };
        let targets: Vec<Target> = volume.targets.iter().filter(is_wanted).copied().collect();
        let flips = match (bit, &targets[..]) {
            (Some(bit), &[target]) => {
                let went = struck(&volume, target, bit as usize);
                tally.lock().expect("no thread panics").count(
                    &volume,
                    &[(target, Damage::Flipped)],
                    went,
                    bit,
                );
                1
            }
            _ => flip(&volume, &targets, variable("MEDFS_BITS"), seed, &tally),
        };
        let failures = tally.lock().expect("no thread panics").failures();
        println!("{}: {flips} bits in {:?}, {failures} failures so far", volume.name, started.elapsed());
    }
    let tally = tally.into_inner().expect("no thread panics");
    tally.print();
    assert_eq!(tally.failures(), 0);
}
