//! What an fsync of a file costs, by the way in which its pages are kept (ARS beside MedFS): in a log or at home in
//! sections of its own, each with deltas and without.
//!
//! Purpose: a tree says which files will fragment in a log. These costs say whether a reserve, and deltas, pay for the
//! one at hand on this volume and this device, by the goal that the mount names (`goal=`).
//! Counted is what fsyncs of the file write ([`Synced`]); times are those that were measured of the device.
//!
//! What an fsync of `u` pages writes, of which a part `f` fits as deltas:
//!
//! | class | pages | nodes |
//! |---|---|---|
//! | log | `u` | the inode, and nodes that name pages, but for those which a policy overwrites, as far as it may |
//! | delta | `u (1 - f)` | the same of these |
//! | reserve | `u` | the inode, and the nodes that name pages which are new, or must not be overwritten |
//! | reserve+delta | `u (1 - f)` | the inode, and nodes of pages that are new, or were deltas over a base |
//!
//! Locks: `costs` is a leaf, held for a copy.

use crate::content::cost_model::{Costs, RequestTimes};
use crate::options::{DeltaMode, Goal, MountOptions};
use crate::profile::{Known, Synced};
use medfs_format::ars::{Class, Feature};
use medfs_format::node::{ADDRS_PER_BLOCK, DEF_ADDRS_PER_INODE};
use medfs_sync::Mutex;
use std::sync::Arc;

/// Part of a cost that is no difference.
const ALIKE: f64 = 0.01;
/// Pieces that an fsync makes in a log, from which on a reserve pays that saves nothing else.
const PIECES: f64 = 0.5;
/// Part of the nodes that is none.
const TINY: f64 = 1e-4;
/// Pages of the largest request that reads in order: 128 KiB.
const WINDOW: f64 = 32.0;

/// A way in which the pages of a file are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateClass {
    /// Whole, in a log or where a policy overwrites them.
    Log,
    /// The same, or as deltas.
    Delta,
    /// Whole, in sections of the file's own.
    Reserve,
    /// The same, or as deltas.
    ReserveDelta,
}

impl UpdateClass {
    /// The one of these pages.
    pub fn of(place: Class, whole: bool) -> UpdateClass {
        match (place, whole) {
            (Class::Log, true) => UpdateClass::Log,
            (Class::Log, false) => UpdateClass::Delta,
            (Class::Reserve, true) => UpdateClass::Reserve,
            (Class::Reserve, false) => UpdateClass::ReserveDelta,
        }
    }

    /// Where its pages lie.
    pub fn place(self) -> Class {
        match self {
            UpdateClass::Log | UpdateClass::Delta => Class::Log,
            UpdateClass::Reserve | UpdateClass::ReserveDelta => Class::Reserve,
        }
    }

    /// Whether pages are written as a whole.
    pub fn is_whole(self) -> bool {
        matches!(self, UpdateClass::Log | UpdateClass::Reserve)
    }

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            UpdateClass::Log => "log",
            UpdateClass::Delta => "delta",
            UpdateClass::Reserve => "reserve",
            UpdateClass::ReserveDelta => "reserve+delta",
        }
    }
}

/// What an fsync costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// The way in which pages are kept.
    pub class: UpdateClass,
    /// Blocks that are written for it, by a later checkpoint too.
    pub blocks: f64,
    /// Time of the device, and what comparing and reading pages takes.
    pub nanos: f64,
    /// Pieces more in which it leaves the file.
    pub pieces: f64,
}

/// What there is to know of a file's volume.
#[derive(Debug, Clone, Copy)]
struct Ground {
    /// Nodes that name pages wait for the checkpoint.
    nodes_wait: bool,
    /// A policy overwrites the file's pages where they lie.
    overwrites: bool,
    costs: Costs,
}

/// An fsync of a file, on average.
#[derive(Debug, Clone, Copy)]
struct Fsync {
    synced: Synced,
    /// Part of the pages that nodes beside the inode name, and these nodes.
    named: (f64, f64),
    /// fsyncs from one checkpoint to the next.
    to_checkpoint: f64,
}

impl Fsync {
    /// Of a file of which so much is known, with so many seconds from one checkpoint to the next.
    fn of(known: &Known, checkpoint_seconds: f64) -> Fsync {
        let count = |feature| f64::from(known.count(feature));
        let size = count(Feature::Size).max(1.0);
        let beside = (size - DEF_ADDRS_PER_INODE as f64).max(0.0);
        let a_second = count(Feature::Fsyncs) / (count(Feature::Interval) + 1.0);
        Fsync {
            synced: known.synced,
            named: (beside / size, (beside / ADDRS_PER_BLOCK as f64).ceil()),
            to_checkpoint: (a_second * checkpoint_seconds).max(1.0),
        }
    }

    /// Nodes beside the inode that name so many pages anywhere in the file.
    fn nodes_of(&self, pages: f64, nodes_wait: bool) -> f64 {
        let (part, nodes) = self.named;
        let together = if nodes_wait { self.to_checkpoint } else { 1.0 };
        let named = pages * together * part;
        // Up to one each is named by another node.
        if named <= 1.0 || nodes <= 1.0 {
            return named.min(nodes) / together;
        }
        let missed = power(1.0 - 1.0 / nodes, named);
        nodes * (1.0 - missed) / together
    }

    fn price(&self, class: UpdateClass, ground: &Ground) -> Price {
        let costs = &ground.costs;
        let Synced { pages, runs, new, barred, fit, read_in_order, .. } = self.synced;
        let fit = if class.is_whole() { 0.0 } else { f64::from(fit.unwrap_or_default()) };
        let (pages, new) = (f64::from(pages), f64::from(new));
        let written = pages * (1.0 - fit);
        let is_home = class.place() == Class::Reserve;
        // Pages that get another block. The one of a page that was a delta is the base of what is durable, and seals
        // and records need the blocks of others.
        let kept = fit.max(f64::from(barred));
        let moved = if is_home || ground.overwrites { written * (new + (1.0 - new) * kept) } else { written };
        let nodes = 1.0 + self.nodes_of(moved, ground.nodes_wait);
        let runs_of = |pages: f64| f64::from(runs) * pages / f64::from(self.synced.pages);
        // A log takes them together.
        let requests = if is_home { runs_of(written) } else { runs_of(written - moved) + moved.min(1.0) };
        let pieces = if is_home { 0.0 } else { runs_of(moved) };
        let comparing = if class.is_whole() { 0.0 } else { pages * costs.decoding() };
        let writing = time(costs.writing(), written, requests) + time(costs.writing(), nodes, 1.0);
        let RequestTimes { first, next } = costs.reading();
        let begins = (pieces / pages).min(1.0);
        let page_read = begins * first + (1.0 - begins) * (first / WINDOW + next) + fit * costs.decoding();
        let reading = f64::from(read_in_order) * page_read;
        Price { class, blocks: written + nodes, nanos: writing + comparing + reading, pieces }
    }
}

/// A number up to 1 to an exponent of 1 at least; in between whole exponents a straight line.
fn power(base: f64, exponent: f64) -> f64 {
    let mut left = exponent as u32;
    let part = exponent - f64::from(left);
    let (mut power, mut square) = (1.0 - part * (1.0 - base), base);
    while left > 0 && power > TINY {
        if left & 1 == 1 {
            power *= square;
        }
        square *= square;
        left >>= 1;
    }
    power
}

/// What so many blocks take in so many requests.
fn time(RequestTimes { first, next }: RequestTimes, blocks: f64, requests: f64) -> f64 {
    let requests = requests.min(blocks);
    requests * first + (blocks - requests) * next
}

/// What each way costs that the pages of a file can be kept in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    all: [Option<Price>; 4],
    goal: Goal,
}

impl Prices {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Price> {
        self.all.iter().flatten()
    }

    /// What they are compared by.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// How much more one costs than another, as a part of what that one costs: by the goal, and by what decides
    /// where that is no difference.
    fn more(&self, one: &Price, other: &Price) -> (f64, f64) {
        let (blocks, nanos) = (one.blocks / other.blocks - 1.0, one.nanos / other.nanos - 1.0);
        match self.goal {
            Goal::Wear => (blocks, nanos),
            Goal::Time => (nanos, blocks),
            Goal::Balance => ((blocks + nanos) / 2.0, blocks),
        }
    }

    /// The one that costs least of those in a place. Of two that are alike, deltas have to save time.
    fn cheapest(&self, place: Class) -> Option<&Price> {
        let in_place = self.all().filter(|price| price.class.place() == place);
        in_place.reduce(|least, price| {
            let (more, then) = self.more(price, least);
            let is_less = more < -ALIKE || (more <= ALIKE && then < 0.0);
            if is_less { price } else { least }
        })
    }

    /// The way to keep a file that the tree has in this place. A reserve that it asks for is made where that costs
    /// less than a log, or as much and the log would leave pieces.
    pub fn choice(&self, said: Class) -> UpdateClass {
        let (Some(log), Some(reserve)) = (self.cheapest(Class::Log), self.cheapest(Class::Reserve)) else {
            return UpdateClass::of(said, false);
        };
        let (more, _) = self.more(reserve, log);
        let pays = more < -ALIKE || (more <= ALIKE && log.pieces >= PIECES);
        if said == Class::Reserve && pays { reserve.class } else { log.class }
    }
}

/// Says what the ways to keep a file's pages cost on a volume.
pub(crate) struct Pricing {
    goal: Goal,
    costs: Arc<Mutex<Costs>>,
    deltas: bool,
    nodes_wait: bool,
    checkpoint_seconds: f64,
}

impl Pricing {
    /// By the options in force, and what is measured of the device.
    pub(crate) fn new(opts: &MountOptions, costs: &Arc<Mutex<Costs>>) -> Pricing {
        let deltas = opts.delta_mode() != DeltaMode::Off;
        Pricing {
            goal: opts.goal,
            costs: costs.clone(),
            deltas,
            nodes_wait: deltas && opts.addr_redo,
            checkpoint_seconds: opts.commit_interval.as_secs_f64(),
        }
    }

    /// What they cost of a file of which so much is known, whose pages a policy overwrites or not in a log. `None`
    /// where none of its fsyncs was counted.
    pub(crate) fn prices(&self, known: &Known, overwrites: bool) -> Option<Prices> {
        use UpdateClass::{Delta, Log, Reserve, ReserveDelta};
        if known.synced.count == 0 {
            return None;
        }
        // Without deltas, once they were tried.
        let whole = !self.deltas || known.synced.fit.is_some();
        let classes = [(Log, whole), (Delta, self.deltas), (Reserve, whole), (ReserveDelta, self.deltas)];
        let ground = Ground { nodes_wait: self.nodes_wait, overwrites, costs: *self.costs.lock() };
        let fsync = Fsync::of(known, self.checkpoint_seconds);
        let all = classes.map(|(class, is_asked)| is_asked.then(|| fsync.price(class, &ground)));
        Some(Prices { all, goal: self.goal })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Flushed, Profiles, Wrote};
    use medfs_format::Ino;
    use std::time::Duration;

    const PAGE: u64 = 4096;
    const FILE: Ino = 7;

    /// Fsyncs of a file, all alike: pages in runs, of which some become deltas.
    struct Habit {
        size: u64,
        new: bool,
        pages: u32,
        runs: u32,
        barred: u32,
        deltas: Option<u32>,
        read: u64,
    }

    const NO_HABIT: Habit =
        Habit { size: 100, new: false, pages: 1, runs: 1, barred: 0, deltas: None, read: 0 };
    /// Random updates of a large file that look like nothing there is.
    const UNLIKE: Habit = Habit { size: 32_768, pages: 16, runs: 16, ..NO_HABIT };
    /// A database in TRUNCATE mode.
    const DATABASE: Habit = Habit { size: 500, pages: 4, runs: 3, deltas: Some(4), ..NO_HABIT };
    /// Pages that are written once, in no order.
    const AT_RANDOM: Habit = Habit { new: true, size: 4096, ..NO_HABIT };

    impl Habit {
        fn known(&self) -> Known {
            let profiles = Profiles::new(Duration::from_secs(60), 100, Duration::ZERO);
            profiles.note_write(FILE, &Wrote::new(0, PAGE as usize, self.size * PAGE));
            for n in 0..100 {
                profiles.note_read(FILE, 0, self.read);
                profiles.note_fsync(FILE);
                // Of the pages of a database one in ten is no delta.
                let deltas =
                    self.deltas.map(|deltas| if n % 2 == 0 { deltas } else { deltas.saturating_sub(1) });
                let new = if self.new { self.pages } else { 0 };
                let Habit { pages, runs, barred, .. } = *self;
                profiles.note_flushed(FILE, Flushed { pages, runs, new, barred, deltas });
            }
            profiles.known(FILE).expect("it was written")
        }

        fn prices(&self, options: &str, overwrites: bool) -> Prices {
            let mut opts = MountOptions::default();
            opts.parse(options).expect("the options are right");
            let pricing = Pricing::new(&opts, &Arc::default());
            pricing.prices(&self.known(), overwrites).expect("its fsyncs were counted")
        }

        fn choice(&self, options: &str) -> UpdateClass {
            self.prices(options, false).choice(Class::Reserve)
        }
    }

    #[test]
    fn a_database_takes_deltas_and_random_unlike_updates_a_reserve_without() {
        assert_eq!(DATABASE.choice("delta=full"), UpdateClass::Delta);
        let unlike = Habit { deltas: Some(0), ..UNLIKE };
        for options in ["delta=full", "delta=full,addr_redo=off"] {
            assert_eq!(unlike.choice(options), UpdateClass::Reserve, "{options}");
        }
        assert_eq!(UNLIKE.choice("delta=full"), UpdateClass::ReserveDelta, "deltas have to be tried first");
        assert_eq!(UNLIKE.choice("delta=off"), UpdateClass::Reserve);
        let some = Habit { deltas: Some(8), ..UNLIKE };
        assert_eq!(some.choice("delta=full,addr_redo=off"), UpdateClass::ReserveDelta);
    }

    #[test]
    fn what_the_tree_leaves_in_the_log_stays_there() {
        let journal = Habit { new: true, size: 5, pages: 5, ..NO_HABIT };
        assert_eq!(journal.prices("delta=off", false).choice(Class::Log), UpdateClass::Log);
        let whole = Habit { deltas: Some(0), ..journal };
        assert_eq!(whole.prices("delta=full", false).choice(Class::Log), UpdateClass::Log);
        let like_its_database = Habit { deltas: Some(5), ..journal };
        assert_eq!(like_its_database.prices("delta=full", false).choice(Class::Log), UpdateClass::Delta);
    }

    #[test]
    fn where_pages_are_overwritten_anyway_only_what_is_new_is_worth_a_reserve() {
        let choice = |habit: &Habit| habit.prices("delta=off", true).choice(Class::Reserve);
        assert_eq!((choice(&UNLIKE), choice(&DATABASE)), (UpdateClass::Log, UpdateClass::Log));
        assert_eq!(choice(&AT_RANDOM), UpdateClass::Reserve, "it would lie in pieces");
        let appended = Habit { pages: 64, runs: 1, ..AT_RANDOM };
        assert_eq!(choice(&Habit { new: false, ..appended }), UpdateClass::Log);
    }

    /// A policy asks for them to be overwritten, and what is durable keeps them from it.
    #[test]
    fn where_most_pages_are_barred_from_being_overwritten_a_reserve_keeps_them_together() {
        let barred = Habit { deltas: Some(0), barred: 12, ..UNLIKE };
        let prices = barred.prices("delta=full", true);
        assert_eq!(prices.choice(Class::Reserve), UpdateClass::Reserve);
        let [Some(log), _, Some(reserve), _] = prices.all else { panic!("{prices:?}") };
        assert_eq!((log.pieces, reserve.pieces), (12.0, 0.0));
        assert_eq!(log.blocks, reserve.blocks, "their addresses change in both");
        let free = Habit { barred: 0, ..barred };
        assert_eq!(free.prices("delta=full", true).choice(Class::Reserve), UpdateClass::Log);
    }

    #[test]
    fn powers_are_exact_for_whole_exponents_and_near_in_between() {
        for base in [0.0, 0.5, 0.9, 0.97, 0.999, 1.0f64] {
            for exponent in [1.0, 1.5, 2.0, 3.25, 16.0, 100.5, 4000.0] {
                let (found, exact) = (power(base, exponent), base.powf(exponent));
                assert!((found - exact).abs() < 0.025, "{base} to {exponent}: {found}, {exact}");
            }
        }
        assert!((power(0.9, 37.0) - 0.9f64.powi(37)).abs() < 1e-12);
    }

    #[test]
    fn the_goal_says_what_counts() {
        let choice = |goal: &str| UNLIKE.choice(&format!("delta=off,goal={goal}"));
        assert_eq!(choice("wear"), UpdateClass::Reserve);
        // Sixteen requests in place of one, on a device on which each takes long.
        assert_eq!((choice("time"), choice("balance")), (UpdateClass::Log, UpdateClass::Log));
        let read = Habit { read: 2000, ..UNLIKE };
        let choice = |goal: &str| read.choice(&format!("delta=off,goal={goal}"));
        assert_eq!((choice("time"), choice("balance")), (UpdateClass::Reserve, UpdateClass::Reserve));
    }

    #[test]
    fn an_fsync_of_random_overwrites_writes_half_as_much_at_home() {
        let prices = UNLIKE.prices("delta=off", false);
        let [Some(log), None, Some(reserve), None] = prices.all else { panic!("{prices:?}") };
        assert_eq!((reserve.blocks, reserve.pieces), (17.0, 0.0));
        // 16 pages are named by 12 or 13 of 32 nodes.
        assert!((28.5..30.5).contains(&log.blocks) && log.pieces == 16.0, "{log:?}");
        let waiting = UNLIKE.prices("delta=full", false);
        assert!(waiting.all().all(|price| price.blocks < 17.1), "nodes wait: {waiting:?}");
    }

    #[test]
    fn of_a_file_without_fsyncs_nothing_is_said() {
        let profiles = Profiles::new(Duration::from_secs(60), 100, Duration::ZERO);
        profiles.note_write(FILE, &Wrote::of_pages(1));
        let known = profiles.known(FILE).expect("it was written");
        assert_eq!(Pricing::new(&MountOptions::default(), &Arc::default()).prices(&known, false), None);
    }
}
