//! Every metadata block of volumes of several kinds damaged in turn, and several at once; see
//! [`medfs_testkit::bad_blocks`].
//!
//! Each case is repaired, and files are brought off it without a repair.
//! The sample takes some blocks of each kind, of volumes that were closed: what a crash left in the journals
//! of a checkpoint pack is lost with them. `every_block` takes all of them, `several_blocks` groups, and
//! `every_bit` ([`bits`]) flips bit by bit.
//! `MEDFS_SEED` decides the sample, the flipped bits and the groups.

mod bits;
#[path = "../common/mod.rs"]
mod common;
mod volumes;

use crate::volumes::{kinds, made, of_deltas, worked_on};
use common::{golden, load_image};
use medfs_device::{BlockDevice, Cause, Temperature, WriteTag};
use medfs_format::Block;
use medfs_testkit::bad_blocks::{Damage, Failure, Part, Target, Volume, left_of};
use medfs_testkit::fuzz::{sample_seed, variable};
use medfs_testkit::images::{DELTAS, FEATURE_SETS};
use medfs_testkit::kept::{Kept, fsck_f2fs};
use rand::seq::{IndexedRandom, IteratorRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::available_parallelism;

/// Runs, and the failures among them by their class.
type Row = (usize, BTreeMap<&'static str, usize>);

/// What went how often, and wrong.
#[derive(Default)]
struct Tally {
    runs: BTreeMap<(String, Part, Damage), Row>,
}

impl Tally {
    /// Counts a run, and shows the first failures of a class as they come.
    fn count(&mut self, volume: &Volume, hits: &[(Target, Damage)], went: Result<(), Failure>, seed: u64) {
        let (target, damage) = hits[0];
        let row = self.runs.entry((volume.name.clone(), target.part, damage)).or_default();
        row.0 += 1;
        if let Err(failure) = went {
            let known = row.1.entry(failure.class).or_default();
            *known += 1;
            if *known <= 2 {
                let line = format!("{}, seed {seed}, {hits:?}: {failure}", volume.name);
                println!("  {}", line.chars().take(700).collect::<String>());
            }
        }
    }

    fn failures(&self) -> usize {
        self.runs.values().flat_map(|row| row.1.values()).sum()
    }

    fn print(&self) {
        let mut text = String::new();
        for ((name, part, damage), (runs, failed)) in &self.runs {
            if !failed.is_empty() {
                let _ = writeln!(text, "{name}: {part:?} {damage:?}: {runs} runs, failed {failed:?}");
            }
        }
        let mut parts: BTreeMap<(Part, Damage), (usize, usize)> = BTreeMap::new();
        for ((_, part, damage), (runs, failed)) in &self.runs {
            let row = parts.entry((*part, *damage)).or_default();
            row.0 += runs;
            row.1 += failed.values().sum::<usize>();
        }
        for ((part, damage), (runs, failed)) in parts {
            let _ = writeln!(text, "{part:?} {damage:?}: {runs} runs, {failed} failures");
        }
        let runs: usize = self.runs.values().map(|row| row.0).sum();
        println!("{text}{runs} runs, {} failures", self.failures());
    }
}

/// Two blocks of each part of a volume, or the one there is, and a kind of damage for each.
fn two_of_each_part(volume: &Volume, rng: &mut Xoshiro256PlusPlus) -> Vec<(Target, Damage)> {
    let mut targets = volume.targets.clone();
    targets.shuffle(rng);
    let mut taken: BTreeMap<Part, usize> = BTreeMap::new();
    targets.retain(|target| {
        let taken = taken.entry(target.part).or_default();
        *taken += 1;
        *taken <= 2
    });
    targets.into_iter().map(|target| (target, *Damage::ALL.choose(rng).expect("some"))).collect()
}

/// Damages one block with bits that the seed and the block decide.
fn one(volume: &Volume, target: Target, damage: Damage, seed: u64, tally: &mut Tally) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ target.block);
    let hits = [(target, damage)];
    tally.count(volume, &hits, volume.strike(&hits, &mut rng), seed);
}

/// The same, but files are brought off the volume instead of repairing it.
fn bring(volume: &Volume, target: Target, damage: Damage, seed: u64, tally: &mut Tally) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ target.block);
    let hits = [(target, damage)];
    tally.count(volume, &hits, volume.rescue(&hits, &mut rng), seed);
}

/// The same, but the volume is mounted and written to without a check.
fn mount(volume: &Volume, target: Target, damage: Damage, seed: u64, tally: &mut Tally) {
    let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ target.block);
    let went = volume.mount_damaged(target, damage, &rng).map(drop);
    tally.count(volume, &[(target, damage)], went, seed);
}

/// Some blocks of each part of some volumes.
#[test]
fn some_blocks() {
    let seed = sample_seed();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tally = Tally::default();
    let mut kinds = kinds();
    kinds.shuffle(&mut rng);
    for volume in kinds.iter().map(|make| make()).filter(|v| !v.name.contains("crash")).take(3) {
        for (target, damage) in two_of_each_part(&volume, &mut rng) {
            one(&volume, target, damage, seed, &mut tally);
        }
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Blocks that once cost files which could be read.
#[test]
fn blocks_that_once_cost_files() {
    let known = [
        // Directories in which files were fsynced: the log was given up.
        ("crash-roll-forward", 4099),
        ("crash-roll-forward-features", 4099),
        ("crash-rename", 4107),
        ("crash-rename", 1025), // journals: lost+found got the number of a node that they led to
    ];
    let mut tally = Tally::default();
    for (name, block) in known {
        let image = load_image(&golden().join(format!("{name}.img.zst")));
        let volume = Volume::new(name, image, &[]);
        let target = volume.targets.iter().find(|t| t.block == block).copied().expect("it is metadata");
        [Damage::Unreadable, Damage::Zeroed].into_iter().for_each(|d| one(&volume, target, d, 7, &mut tally));
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Strikes volumes with the groups of blocks that seeds choose, and with damage among some kinds of it.
fn strike_known(known: &[(&str, u64)], among: &[Damage]) {
    let mut tally = Tally::default();
    for &(name, seed) in known {
        let volume = match name {
            "plain" => Volume::new(name, made(FEATURE_SETS[0], false), &[]),
            "plain, crashed" => Volume::new(name, made(FEATURE_SETS[0], true), &[]),
            "deltas" => of_deltas(name, ""),
            "deltas, worked on, crashed" => Volume::new(name, worked_on(DELTAS), &[]),
            _ => Volume::new(name, load_image(&golden().join(format!("{name}.img.zst"))), &[]),
        };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let hits = several(&volume, among, &mut rng);
        tally.count(&volume, &hits, volume.strike(&hits, &mut rng), seed);
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Groups of blocks that once cost files, or a repair, by the seed that chooses them, before damage was of more kinds.
#[test]
fn groups_that_once_cost_files() {
    let known = [
        ("crash-rename", 9003663), // one copy of the superblock with a feature that nobody knows
        ("crash-rename", 11000001), // both superblocks, a header of each pack: areas two blocks too early
        ("crash-rename", 11001061), // both packs' journals: an abandoned checkpoint counted after the next
        ("crash-roll-forward", 11003261), // the summary of an empty segment, into which the log had been written
        ("crash-roll-forward-features", 11003261),
        ("plain, crashed", 11004184), // a bit of an entry in the SIT's journal, and the block of the NAT
        ("tree-no-inline", 11003029), // a directory without a block for its first two entries
        ("plain", 230000810),         // a superblock that calls a user's file one of quotas
        ("plain", 700004558), // one copy of it that calls an inode one of quotas whose number is out of range
        ("deltas, worked on, crashed", 300003750), // a node with the number of a file that was fsynced since
        ("tree-no-inline", 300000254), // a directory without inode, whose only block cannot be read, made a file
        ("tree-sections", 310000576),  // the same of one whose first block cannot be read
        ("plain, crashed", 500002535), // an address in the fsync log, of a block of another file
        ("crash-orphans", 230001879), // both superblocks, and the orphans, by which a pack tells of its payload
    ];
    strike_known(&known, &[Damage::Unreadable, Damage::Zeroed, Damage::Flipped]);
}

/// The same of damage of all kinds: parts of nodes, older content, other bytes.
#[test]
fn groups_of_any_damage_that_once_cost_files() {
    let known = [
        ("crash-orphans", 72000067),
        ("crash-orphans", 72000219),
        ("crash-rename", 72000260),
        // Two blocks say that they are an inode's, and the name of one leads to it.
        ("crash-rename", 94003027),
        ("crash-journals", 72000291),
        ("crash-roll-forward", 74000073),
        ("tree-compressed", 73000471),
        ("plain", 73000111),
        // A torn summary: of a lost inode, and of an address with a bit flipped, where another node names the block.
        ("tree-plain", 94000956),
        ("tree-compressed", 94002833),
        ("tree-compressed", 94003703),
        // A head of another inode: of one in a directory without entries, of a lost one, and of one with two names.
        ("plain", 95002009),
        ("plain", 95002216),
        ("plain", 95000473),
        // A footer of another inode, which the NAT was made to lead to: the right one was left out.
        ("plain, crashed", 140000879),
        // Both superblocks and the journals: of what the NAT leads to then no inode tells that there are deltas.
        ("deltas", 140002675),
        // A footer of a lost inode, an entry cut in two, and more names than an inode counts.
        ("tree-plain", 80000166),
        ("tree-plain", 80000989),
        ("plain, crashed", 80001056),
        ("deltas", 94002210), // what two nodes name was asked before all nodes were found
        ("crash-orphans", 140003984), // zeros in the SIT's journal: one segment in several entries
        ("crash-rename", 140000211), // a footer that names its own block is that of the block before
        // An older sector of an inode names the second block of a file whose inode is lost.
        ("crash-rename", 140001219),
        // The first sector of an inode is that of one to which only the journals led.
        ("crash-roll-forward-features", 140003526),
        // An older sector of an inode names blocks of a lost one, and the next sector its own.
        ("tree-compressed", 140000265),
        ("tree-compressed", 140004484), // lost features in the first superblock, and a NAT that leads to no inode
        ("crash-roll-forward", 777000011), // a bad block behind the log's end
        ("plain", 170000296),           // an entry that names no number of an inode
        // Zeros in place of the SIT's journal, and a lost block of the NAT: nodes of a log's segment seemed free.
        ("deltas, worked on, crashed", 160001191),
        // An older block of the root in another directory, with a file of one link that was moved.
        ("crash-rename", 170000608),
        // A newer inode that has the first sector of another one, where the repair's journals seemed lost.
        ("crash-rename", 190000338),
        ("deltas, worked on, crashed", 313000074), // a lost directory's number became lost+found's
        ("crash-rename", 313000285),               // one header of the older pack: it counted as the newest
        // Lost journals and root: the older root names a removed file, which counted for a new one that it does not.
        ("crash-rename", 314000015),
        ("tree-compressed", 410000103), // a lost inode that only a lost block of the NAT led to was not told
        // fsck.f2fs counts quotas anew, and wrote to a segment of another type.
        ("tree-features", 410000363),
        ("tree-features", 410000614),
        ("tree-features", 420000282),
        ("tree-no-inline", 410000904), // an older sector gave a device the nodes of a file
    ];
    strike_known(&known, &Damage::ALL);
}

#[test]
#[ignore = "three to five faults at once: whose blocks those of a zeroed summary are; the times of a file of which an inode, a header \
    and the mark of an fsync are lost; an inode that begins as another one, where both journals are lost"]
fn groups_that_still_cost_files() {
    let known = [
        ("deltas, worked on, crashed", 210000592),
        ("crash-roll-forward", 312000739),
        ("crash-rename", 410000695),
        ("deltas", 440002335),
        ("crash-journals", 440003800),
        ("crash-journals", 440003808),
        ("crash-roll-forward", 440001855),
        ("crash-roll-forward", 440003320),
        ("crash-roll-forward", 440004107),
    ];
    strike_known(&known, &Damage::ALL);
}

#[test]
#[ignore = "a lost inode, and with it the nodes that tell compact pages from others: the file is too long"]
fn groups_that_still_make_a_file_too_long() {
    strike_known(&[("deltas", 901000899)], &[Damage::Unreadable, Damage::Zeroed, Damage::Flipped]);
}

/// Inodes of links, and of a socket that becomes one, with an older sector.
#[test]
fn links_with_an_older_sector_are_given_up() {
    let known =
        [("tree-no-inline", 4918), ("tree-no-inline", 4922), ("tree-plain", 4961), ("tree-plain", 4964)];
    let mut tally = Tally::default();
    for (name, block) in known {
        let volume = Volume::new(
            format!("kernel's {name}"),
            load_image(&golden().join(format!("{name}.img.zst"))),
            &[],
        );
        let target = volume.targets.iter().find(|t| t.block == block).copied().expect("it is metadata");
        one(&volume, target, Damage::TornOlder, 131313, &mut tally);
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Lost inodes of files with blocks or nodes beside them, of some volumes: the files are repaired, and brought off.
/// `MEDFS_BLOCKS` is how many of each volume, then of all.
#[test]
fn files_that_lost_their_inode_alone() {
    let (seed, most) = (sample_seed(), variable("MEDFS_BLOCKS"));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tally = Tally::default();
    let mut kinds = kinds();
    kinds.shuffle(&mut rng);
    kinds.truncate(if most.is_some() { kinds.len() } else { 4 });
    let most = most.unwrap_or(2) as usize;
    for volume in kinds.iter().map(|make| make()) {
        for target in volume.inodes_of_spread_files().into_iter().choose_multiple(&mut rng, most) {
            for damage in [Damage::Unreadable, Damage::Random, Damage::Beheaded] {
                one(&volume, target, damage, seed, &mut tally);
                bring(&volume, target, damage, seed, &mut tally);
            }
        }
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Zeros in a block of the NAT and in one of the SIT, or in a sector of each, of some volumes: what the NAT led to
/// comes back, though no bit says that it is in use. `MEDFS_BLOCKS` is how many pairs of each volume, then of all.
#[test]
fn both_tables_lost_zeros() {
    let (seed, most) = (sample_seed(), variable("MEDFS_BLOCKS"));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tally = Tally::default();
    let mut kinds = kinds();
    kinds.shuffle(&mut rng);
    kinds.truncate(if most.is_some() { kinds.len() } else { 3 });
    for volume in kinds.iter().map(|make| make()) {
        let of =
            |part| volume.targets.iter().filter(|target| target.part == part).copied().collect::<Vec<_>>();
        let (nat, sit) = (of(Part::Nat), of(Part::Sit));
        for _ in 0..most.unwrap_or(2) {
            // Both copies: one is in force.
            let nat = nat.chunks(2).choose(&mut rng).expect("it has files");
            let sit = sit.chunks(2).choose(&mut rng).expect("it has blocks");
            let mut zeros = || *[Damage::Zeroed, Damage::Torn].choose(&mut rng).expect("two");
            let (of_nat, of_sit) = (zeros(), zeros());
            let hits: Vec<_> =
                nat.iter().map(|&t| (t, of_nat)).chain(sit.iter().map(|&t| (t, of_sit))).collect();
            tally.count(&volume, &hits, volume.strike(&hits, &mut rng), seed);
        }
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Lost inodes of files, each with a node of the file that is lost too, or with a block of what leads to it.
/// `MEDFS_BLOCKS` is how many groups of each volume, then of all.
#[test]
fn files_that_lost_more_than_their_inode() {
    let (seed, most) = (sample_seed(), variable("MEDFS_BLOCKS"));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tally = Tally::default();
    let mut kinds = kinds();
    kinds.shuffle(&mut rng);
    kinds.truncate(if most.is_some() { kinds.len() } else { 4 });
    let most = most.unwrap_or(2) as usize;
    for volume in kinds.iter().map(|make| make()) {
        for group in volume.groups_with_inodes().into_iter().choose_multiple(&mut rng, most) {
            for damage in [Damage::Unreadable, Damage::Random] {
                let hits: Vec<_> = group.iter().rev().map(|target| (*target, damage)).collect();
                tally.count(&volume, &hits, volume.strike(&hits, &mut rng), seed);
                tally.count(&volume, &hits, volume.rescue(&hits, &mut rng), seed);
            }
        }
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

#[test]
fn files_are_brought_past_some_blocks() {
    bring_past_some_blocks(0);
}

#[test]
fn files_are_brought_past_some_blocks_of_other_volumes() {
    bring_past_some_blocks(1);
}

/// Some blocks of each part of a volume, one of those in an order by the seed: files are brought off them.
fn bring_past_some_blocks(first: usize) {
    let seed = sample_seed();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tally = Tally::default();
    let mut kinds = kinds();
    kinds.shuffle(&mut rng);
    for volume in kinds.iter().skip(first).take(1).map(|make| make()) {
        for (target, damage) in two_of_each_part(&volume, &mut rng) {
            bring(&volume, target, Damage::Unreadable, seed, &mut tally);
            bring(&volume, target, damage, seed, &mut tally);
        }
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Who reads needs no SIT: with any damage to it, what was fsynced is shown, and nothing is said.
#[test]
fn a_lost_sit_hides_nothing_that_was_fsynced() {
    let mut tally = Tally::default();
    for features in [DELTAS, FEATURE_SETS[1]] {
        let volume = Volume::new(features, worked_on(features), &[]);
        for target in volume.targets.iter().filter(|target| target.part == Part::Sit).copied() {
            Damage::ALL.into_iter().for_each(|damage| bring(&volume, target, damage, 7, &mut tally));
        }
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Some blocks of directories with any damage: no name is lost, and none leads to another file, without a word.
#[test]
fn what_a_damaged_directory_lacks_is_told() {
    let seed = sample_seed();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tally = Tally::default();
    let volume = Volume::new("directories", made(FEATURE_SETS[0], false), &[]);
    let dentries = volume.targets.iter().filter(|target| target.part == Part::Dentries).copied();
    for target in dentries.choose_multiple(&mut rng, 4) {
        bring(&volume, target, Damage::Zeroed, seed, &mut tally);
        (0..2).for_each(|flip| bring(&volume, target, Damage::Flipped, seed + flip, &mut tally));
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Zeros in place of the journals of an unmounted volume: what they led to is missing, and that is told.
#[test]
fn what_zeroed_journals_led_to_is_told_to_be_missing() {
    let mut tally = Tally::default();
    for features in [FEATURE_SETS[0], DELTAS] {
        let volume = Volume::new(features, made(features, false), &[]);
        let mut pack: Vec<_> = volume.targets.iter().filter(|t| t.part == Part::Pack(true)).collect();
        pack.pop(); // zeros in the last header are what power loss leaves
        for &target in pack {
            let went = volume.tells_what_is_missing(target);
            tally.count(&volume, &[(target, Damage::Zeroed)], went, 0);
        }
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// An older sector in one directory leads to another one, which was brought there, and told at its own place.
#[test]
fn a_directory_is_brought_to_its_own_place_where_another_entry_leads_to_it() {
    let volume = Volume::new("tree-no-inline", load_image(&golden().join("tree-no-inline.img.zst")), &[]);
    let mut tally = Tally::default();
    for block in [22068, 22092] {
        let target = volume.targets.iter().find(|t| t.block == block).copied().expect("a directory's block");
        assert_eq!(target.part, Part::Dentries);
        bring(&volume, target, Damage::TornOlder, 443000, &mut tally);
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// No healthy volume is said to lack anything.
#[test]
fn nothing_is_told_of_sound_volumes() {
    for make in kinds() {
        let volume = make();
        let outcome = volume.brought().expect("it opens");
        assert!(outcome.is_whole(), "{}: {outcome:?}", volume.name);
    }
}

/// Every block of every volume. `MEDFS_VOLUME` is a part of the name of those wanted, `MEDFS_BLOCK` the
/// block, `MEDFS_DAMAGE` one of 0 to 6; `MEDFS_RESCUE` brings files off them instead of repairing them,
/// and `MEDFS_MOUNT` mounts them and writes to them first; `MEDFS_BLOCKS` takes that many of each part.
#[test]
#[ignore = "takes minutes"]
fn every_block() {
    let seed = sample_seed();
    let wanted = std::env::var("MEDFS_VOLUME").unwrap_or_default();
    let how = match (variable("MEDFS_RESCUE"), variable("MEDFS_MOUNT")) {
        (Some(_), _) => bring,
        (None, Some(_)) => mount,
        (None, None) => one,
    };
    let (block, most, damage) = (variable("MEDFS_BLOCK"), variable("MEDFS_BLOCKS"), variable("MEDFS_DAMAGE"));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tally = Tally::default();
    for make in kinds() {
        let volume = make();
        if !volume.name.contains(&wanted) {
            continue;
        }
        let mut targets = volume.targets.clone();
        if most.is_some() {
            targets.shuffle(&mut rng);
        }
        let mut taken: BTreeMap<Part, u64> = BTreeMap::new();
        let started = std::time::Instant::now();
        let mut runs = 0;
        for target in targets.into_iter().filter(|t| block.is_none_or(|block| t.block == block)) {
            let taken = taken.entry(target.part).or_default();
            *taken += 1;
            if most.is_some_and(|most| *taken > most) {
                continue;
            }
            for one_damage in Damage::ALL.into_iter().filter(|d| damage.is_none_or(|n| *d as u64 == n)) {
                how(&volume, target, one_damage, seed, &mut tally);
                runs += 1;
            }
        }
        println!("{}: {} blocks, {runs} runs in {:?}", volume.name, volume.targets.len(), started.elapsed());
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Two to five blocks of a volume that are struck at once, and how.
fn several(volume: &Volume, among: &[Damage], rng: &mut Xoshiro256PlusPlus) -> Vec<(Target, Damage)> {
    let count = rng.random_range(2..=5);
    let struck: Vec<Target> = volume.targets.choose_multiple(rng, count).copied().collect();
    let mut damage = |part| match *among.choose(rng).expect("some") {
        Damage::Random if matches!(part, Part::Sit | Part::Ssa) && rng.random() => Damage::Misplaced,
        damage => damage,
    };
    struck.into_iter().map(|target| (target, damage(target.part))).collect()
}

/// The cases of these seeds on a volume, each of several blocks, by as many threads as there are processors.
fn strike_several(volume: &Volume, seeds: Range<u64>, tally: &Mutex<Tally>) {
    by_all_processors(seeds, |case| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(case);
        let hits = several(volume, Damage::first(variable("MEDFS_KINDS")), &mut rng);
        let went = volume.strike(&hits, &mut rng);
        tally.lock().expect("no thread panics").count(volume, &hits, went, case);
    });
}

/// Does the work of each number, in as many threads as there are processors, or in `MEDFS_JOBS`.
fn by_all_processors(numbers: Range<u64>, work: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(numbers.start);
    let one_by_one = || loop {
        match next.fetch_add(1, Ordering::Relaxed) {
            number if numbers.contains(&number) => work(number),
            _ => break,
        }
    };
    let jobs =
        variable("MEDFS_JOBS").unwrap_or_else(|| available_parallelism().map_or(1, |n| n.get() as u64));
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(one_by_one))));
}

/// Two to five blocks at once, `MEDFS_CASES` times on each volume, in `MEDFS_JOBS` threads. A failure names
/// its case: `MEDFS_SEED` with `MEDFS_CASES=1` and `MEDFS_VOLUME` plays it again, and `MEDFS_KEEP` is a file
/// for the struck volume, with the old content of blocks that cannot be read; with `MEDFS_SHOW` each repair's
/// findings are printed. `MEDFS_KINDS=3`: blocks are unreadable, zeros, or have one bit flipped.
#[test]
#[ignore = "takes minutes"]
fn several_blocks() {
    let seed = sample_seed();
    let cases = variable("MEDFS_CASES").unwrap_or(100);
    let wanted = std::env::var("MEDFS_VOLUME").unwrap_or_default();
    let tally = Mutex::new(Tally::default());
    for volume in kinds().iter().map(|make| make()).filter(|volume| volume.name.contains(&wanted)) {
        let started = std::time::Instant::now();
        strike_several(&volume, seed..seed + cases, &tally);
        let failures = tally.lock().expect("no thread panics").failures();
        println!("{}: {cases} cases in {:?}, {failures} failures so far", volume.name, started.elapsed());
    }
    let tally = tally.into_inner().expect("no thread panics");
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Repairs of a volume with these seeds' groups of struck blocks that lose power behind each `step` of their
/// writes; how many did.
fn interrupt_several(volume: &Volume, seeds: Range<u64>, step: u64, tally: &mut Tally) -> u64 {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut interrupted = 0;
    for case in seeds {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(case);
        let hits = several(volume, &Damage::ALL, &mut rng);
        let went = volume.interrupt(&hits, &mut rng, step, folder.path());
        tally.count(volume, &hits, went.map(|count| interrupted += count), case);
    }
    interrupted
}

/// A repair that loses power at some of its writes.
#[test]
fn a_repair_is_interrupted() {
    let (seed, mut tally) = (sample_seed(), Tally::default());
    let volume = Volume::new("features", made(FEATURE_SETS[1], false), &[]);
    let interrupted = interrupt_several(&volume, seed..seed + 2, 4, &mut tally);
    tally.print();
    assert!(tally.failures() == 0 && interrupted > 2, "{interrupted} were interrupted");
}

/// Repairs of every volume that lose power at each of their writes, or behind each `MEDFS_STEP` of them, of
/// `MEDFS_CASES` groups of struck blocks: each is repaired again, and once more is taken back by its undo
/// file. A failure names its case as with `several_blocks`.
#[test]
#[ignore = "takes minutes"]
fn interrupted_repairs() {
    let (seed, cases) = (sample_seed(), variable("MEDFS_CASES").unwrap_or(1));
    let step = variable("MEDFS_STEP").unwrap_or(1);
    let wanted = std::env::var("MEDFS_VOLUME").unwrap_or_default();
    let mut tally = Tally::default();
    for volume in kinds().iter().map(|make| make()).filter(|volume| volume.name.contains(&wanted)) {
        let started = std::time::Instant::now();
        let interrupted = interrupt_several(&volume, seed..seed + cases, step, &mut tally);
        println!("{}: {cases} cases, {interrupted} interruptions in {:?}", volume.name, started.elapsed());
    }
    tally.print();
    assert_eq!(tally.failures(), 0);
}

/// Each kind of damage to some blocks of each kind of plain F2FS volumes, repaired by medfs and by
/// `fsck.f2fs`: what both keep of the files, as a table. `MEDFS_BLOCKS` is how many of each kind, of each
/// volume; `MEDFS_VOLUME` is a part of the name of those wanted, and `MEDFS_BLOCK` the block; with
/// `MEDFS_SHOW` each case's files are printed that are not in their place as they were.
#[test]
#[ignore = "takes minutes"]
fn table_beside_fsck_f2fs() {
    let seed = sample_seed();
    let (block, most) = (variable("MEDFS_BLOCK"), variable("MEDFS_BLOCKS").unwrap_or(3) as usize);
    let wanted = std::env::var("MEDFS_VOLUME").unwrap_or_default();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut rows: BTreeMap<Part, (u64, Kept, Kept)> = BTreeMap::new();
    let is_plain = |v: &Volume| ["delta", "compact", "shared"].iter().all(|word| !v.name.contains(word));
    let is_wanted = |v: &Volume| is_plain(v) && v.name.contains(&wanted);
    for volume in kinds().iter().map(|make| make()).filter(is_wanted) {
        let mut targets = volume.targets.clone();
        targets.retain(|target| block.is_none_or(|block| target.block == block));
        targets.shuffle(&mut rng);
        let mut taken: BTreeMap<Part, usize> = BTreeMap::new();
        for target in targets {
            let taken = taken.entry(target.part).or_default();
            *taken += 1;
            if *taken > most {
                continue;
            }
            for damage in Damage::ALL {
                let damaged = Arc::new(volume.damaged(&[(target, damage)], &mut rng));
                let unreadable = (damage == Damage::Unreadable).then_some(target.block);
                let (theirs, still) =
                    fsck_f2fs(damaged.inner(), unreadable.as_slice()).expect("packages f2fs-tools and gcc");
                let tag = WriteTag::new(Cause::Meta, Temperature::Cold);
                let zeros = |block: u64| theirs.write(block, &[&Block::ZERO], tag).expect("memory");
                still.into_iter().for_each(zeros);
                // What a repair could not finish is counted as it is.
                let _ = Volume::repaired(&damaged, &BTreeSet::new());
                let row = rows.entry(target.part).or_default();
                row.0 += 1;
                if std::env::var_os("MEDFS_SHOW").is_some() {
                    println!("{}, {target:?} {damage:?}, by medfs and by fsck.f2fs:", volume.name);
                }
                row.1 += Kept::count(volume.shown(), &Arc::new(left_of(&damaged, &[(target, damage)])));
                row.2 += Kept::count(volume.shown(), &Arc::new(theirs));
            }
        }
    }
    println!("{}", table(&rows));
    let all = rows.values().fold((Kept::default(), Kept::default()), |mut all, row| {
        all.0 += row.1;
        all.1 += row.2;
        all
    });
    assert!(all.0.in_place >= all.1.in_place && all.0.lost <= all.1.lost, "{all:?}");
}

/// What a repair writes anew, with the bytes that could not be read, is there.
#[test]
fn files_of_a_directory_block_written_as_it_was_count_as_kept() {
    let image = load_image(&golden().join("tree-compressed.img.zst"));
    let volume = Volume::new("tree-compressed", image, &[]);
    let target =
        volume.targets.iter().find(|t| t.part == Part::Dentries).copied().expect("a directory's block");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let damaged = Arc::new(volume.damaged(&[(target, Damage::Unreadable)], &mut rng));
    Volume::repaired(&damaged, &BTreeSet::new()).expect("the repair");
    let kept = Kept::count(volume.shown(), &Arc::new(left_of(&damaged, &[(target, Damage::Unreadable)])));
    assert!(kept.in_place > 20 && kept.lost == 0, "{kept:?}");
}

fn table(rows: &BTreeMap<Part, (u64, Kept, Kept)>) -> String {
    let mut text = String::from(
        "| struck block | volumes | medfs: in place | renamed | changed | lost | fsck.f2fs: in place | renamed | changed | lost | do not open |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut line = |name: String, (runs, ours, theirs): &(u64, Kept, Kept)| {
        let cells = |k: &Kept| format!("{} | {} | {} | {}", k.in_place, k.elsewhere, k.changed, k.lost);
        let _ =
            writeln!(text, "| {name} | {runs} | {} | {} | {} |", cells(ours), cells(theirs), theirs.closed);
    };
    let mut all = (0, Kept::default(), Kept::default());
    for (part, row) in rows {
        let name = match part {
            Part::Pack(in_force) => {
                format!("checkpoint pack {}", if *in_force { "in force" } else { "before" })
            }
            Part::Inode(is_dir) => format!("inode of a {}", if *is_dir { "directory" } else { "file" }),
            part => format!("{part:?}"),
        };
        line(name, row);
        all.0 += row.0;
        all.1 += row.1;
        all.2 += row.2;
    }
    line("**all**".into(), &all);
    text
}
