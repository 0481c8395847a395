//! Every combination of what deltas, compression and the extensions can be set to.
//!
//! A seed decides its combination ([`Combination::of_seed`]), so that a failure replays from the seed alone,
//! and as many seeds in a row as there are combinations meet each once. What else a volume is mounted with
//! (caches, writing in place) varies with the seed too.

use crate::crash_states::Report;
use crate::fuzz::variable;
use crate::images::{COMPRESSED, DELTAS, formatted, options_for};
use medfs::ars::{ATTRIBUTE, Class, Tree, TreeNode};
use medfs::{Files, ManualClock, MountOptions, Timestamp, Volume, XattrMode};
use medfs_device::MemDevice;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Values of `delta=`.
const DELTA: [&str; 4] = ["off", "inline", "compact", "full"];
/// Values of `compress=` beside deltas.
const COMPRESS: [&str; 4] = ["off", "lzo", "lz4", "zstd"];
/// Each extension of deltas with its options, on and off.
const EXTENSIONS: [(&str, [&str; 2]); 4] = [
    ("zero_base_deltas", ["zero_base_deltas=on", "zero_base_deltas=off"]),
    ("dir_fsync and addr_redo", ["dir_fsync=recover,addr_redo=on", "dir_fsync=checkpoint,addr_redo=off"]),
    ("cross_file_deltas", ["cross_file_deltas=on", "cross_file_deltas=off"]),
    (
        "group_commit and similar_deltas",
        ["group_commit=on,similar_deltas=on", "group_commit=off,similar_deltas=off"],
    ),
];
/// Ways of the extensions.
const WAYS: usize = 1 << EXTENSIONS.len();
/// Pairs of `delta=` and `compress=`: each with each, and `compress=fpc`, which has no deltas beside it.
const KINDS: usize = DELTA.len() * COMPRESS.len() + 1;

/// The same volume with a decision tree by which every file belongs in a reserve.
fn with_tree(image: &MemDevice) -> MemDevice {
    let device = Arc::new(image.snapshot());
    let tree =
        Tree::new(vec![TreeNode::Leaf { class: Class::Reserve, confidence: 100 }]).expect("one answer");
    let clock = Arc::new(ManualClock::new(Timestamp::default()));
    let volume = Volume::open(device.clone(), MountOptions::default(), clock).expect("a new volume opens");
    volume.setxattr(volume.root(), ATTRIBUTE, &tree.to_bytes(), XattrMode::Set).expect("the tree is taken");
    volume.close().expect("it closes");
    device.snapshot()
}

/// A combination, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Combination(usize);

impl Combination {
    /// How many there are.
    pub const COUNT: usize = KINDS * WAYS;

    /// All of them.
    pub fn all() -> impl Iterator<Item = Combination> {
        (0..Combination::COUNT).map(Combination)
    }

    /// The one that a seed decides.
    pub fn of_seed(seed: u64) -> Combination {
        // Has no divisor in common with their number, so that neighbours differ much and none is left out.
        const STRIDE: u64 = 101;
        Combination((seed % Combination::COUNT as u64 * STRIDE % Combination::COUNT as u64) as usize)
    }

    /// `delta=` and `compress=`; the second is `fpc` in the last kind.
    fn kind(self) -> (&'static str, &'static str) {
        let kind = self.0 / WAYS;
        match DELTA.get(kind / COMPRESS.len()) {
            Some(delta) => (delta, COMPRESS[kind % COMPRESS.len()]),
            None => ("off", "fpc"),
        }
    }

    /// Whether changed pages may become deltas.
    pub fn has_deltas(self) -> bool {
        self.kind().0 != "off"
    }

    /// Whether blocks that look alike may be bases of each other, in all files.
    pub fn finds_likeness(self) -> bool {
        matches!(self.kind(), ("compact" | "full", "off"))
    }

    /// The volume that it takes, as [`crate::images::formatted`] names them.
    pub fn features(self) -> &'static str {
        if COMPRESS[1..].contains(&self.kind().1) { COMPRESSED[1] } else { DELTAS }
    }

    fn off(self, extension: usize) -> usize {
        self.0 >> extension & 1
    }

    /// Mount options, without what does not belong to the combination.
    pub fn options(self) -> String {
        let (delta, compress) = self.kind();
        let mut options = vec![options_for(self.features()).to_owned()];
        options.push(format!("delta={delta},compress={compress}"));
        options.extend((0..EXTENSIONS.len()).map(|n| EXTENSIONS[n].1[self.off(n)].to_owned()));
        options.join(",")
    }

    /// Whether files have sections of their own under a seed: each second time that a combination is met.
    fn reserves(seed: u64) -> bool {
        seed / Combination::COUNT as u64 % 2 == 1
    }

    /// Whether a decision tree chooses those files: each second time of these.
    fn has_tree(seed: u64) -> bool {
        Combination::reserves(seed) && seed / Combination::COUNT as u64 % 4 == 3
    }

    /// A new volume for a seed. Where a tree chooses the files of reserves, it is one that chooses all that
    /// are judged by their habits, or like a file that ended before.
    pub fn image_of(self, seed: u64) -> Arc<MemDevice> {
        let image = formatted(Combination::mebibytes_of(seed), self.features());
        if Combination::has_tree(seed) { Arc::new(with_tree(&image)) } else { image }
    }

    /// MiB of the volume under a seed: a small one has no section to reserve.
    pub fn mebibytes_of(seed: u64) -> u64 {
        if Combination::reserves(seed) { 256 } else { 64 }
    }

    /// Mount options with what varies with a seed beside: caches, writing in place, placement, the algorithm
    /// of `compress=fpc`.
    pub fn options_of(self, seed: u64) -> String {
        let pick = |step: u64, of: &[&'static str]| of[(seed / step % of.len() as u64) as usize];
        let in_place = pick(1, &["off", "fsync", "force"]);
        let cache = pick(3, &["64M", "1M"]);
        let window = pick(2, &["1s", "2s"]);
        let mut options = self.options();
        if self.kind().1 == "fpc" {
            let named = format!("compress={}", pick(1, &["fpc:lzo", "fpc:lz4", "fpc:zstd"]));
            options = options.replace("compress=fpc", &named);
        }
        // Where some files stay as they are, others of compressed ones may be made from them.
        if self.features() == COMPRESSED[1] && seed % 2 == 1 {
            options += ",nocompress_extension=db,nocompress_extension=xml";
        }
        if Combination::reserves(seed) {
            options += ",defragment_budget=1024G,placement=reserve,reserve_files=";
            options += if Combination::has_tree(seed) { "tree" } else { "all" };
        }
        // So few that all are taken soon.
        let places = pick(7, &["1018", "1018", "3"]);
        format!(
            "{options},in_place={in_place},cache={cache},hot_window={window},compact_files=all,compact_pages={places}"
        )
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "combination {} of {}: {}", self.0, Combination::COUNT, self.options())
    }
}

/// Which combinations were met, and how often.
#[derive(Debug, Clone)]
pub struct Coverage([u32; Combination::COUNT]);

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage([0; Combination::COUNT])
    }
}

impl Coverage {
    /// One more.
    pub fn add(&mut self, met: Combination) {
        self.0[met.0] += 1;
    }

    /// How many were met at all.
    pub fn met(&self) -> usize {
        self.0.iter().filter(|n| **n > 0).count()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of {} combinations were met", self.met(), Combination::COUNT)?;
        for (n, (name, _)) in EXTENSIONS.iter().enumerate() {
            let row = (0..WAYS).map(|way| if way >> n & 1 == 0 { "  on" } else { " off" });
            writeln!(f, "{name:>28} {}", row.collect::<String>())?;
        }
        for (kind, row) in self.0.chunks(WAYS).enumerate() {
            let (delta, compress) = Combination(kind * WAYS).kind();
            let name = format!("delta={delta} compress={compress}");
            let row = row.iter().map(|n| format!("{n:>4}"));
            writeln!(f, "{name:>28} {}", row.collect::<String>())?;
        }
        Ok(())
    }
}

/// Crash states between two words of how far a long run is.
const TELL_EVERY: usize = 5000;

/// A long run: seeds from `MEDFS_SEED` on, until there were `MEDFS_STATES` crash states. Prints now and then
/// how far it is, and in the end what was met.
pub fn until_enough(mut one: impl FnMut(u64) -> (Option<Combination>, Report)) -> Report {
    let first = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    let states = variable("MEDFS_STATES").unwrap_or(100_000) as usize;
    let start = Instant::now();
    let (mut coverage, mut total, mut told) = (Coverage::default(), Report::default(), 0);
    let mut seed = first;
    while total.states < states {
        let (combination, report) = one(seed);
        combination.into_iter().for_each(|met| coverage.add(met));
        total += report;
        seed += 1;
        if total.states / TELL_EVERY > told {
            told = total.states / TELL_EVERY;
            println!("{} of {states} states, next seed {seed}, {:.0?}", total.states, start.elapsed());
        }
    }
    println!("{} seeds from {first} on, in {:.1?}: {total}", seed - first, start.elapsed());
    println!("{coverage}{}", total.happened());
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn seeds_in_a_row_meet_every_combination_once() {
        for first in [0, 7, u64::MAX - 5000] {
            let mut coverage = Coverage::default();
            (0..Combination::COUNT as u64).for_each(|n| coverage.add(Combination::of_seed(first + n)));
            assert!(coverage.0.iter().all(|n| *n == 1), "from {first}:\n{coverage}");
        }
    }

    #[test]
    fn all_are_different_and_accepted() {
        let parsed = |options: String| {
            let mut parsed = MountOptions::default();
            parsed.parse(&options).unwrap_or_else(|e| panic!("{options}: {e}"));
            format!("{parsed:?}")
        };
        let all: BTreeSet<String> = Combination::all().map(|c| parsed(c.options())).collect();
        assert_eq!(all.len(), Combination::COUNT);
        for seed in 0..1000 {
            parsed(Combination::of_seed(seed).options_of(seed));
        }
    }
}
