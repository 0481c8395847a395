//! Which of a stage's pending writes are stored: all choices where they are few, otherwise prefixes, single
//! blocks and a sample.

use super::{Choice, CrashPlan, Event, Pending, Stage, block, latest};
use std::collections::HashSet;

/// A small seeded generator (splitmix64), to keep the enumeration independent of any library's version.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Blocks that are stored, with what of them.
pub(super) type Selection = Vec<(u64, Choice)>;

/// Draws moments and choices one at a time.
pub(super) struct Draw(Random);

impl Draw {
    pub(super) fn new(seed: u64) -> Draw {
        Draw(Random(seed))
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0.below(n)
    }

    /// The first writes of a stage, or any version of any blocks.
    pub(super) fn some(&mut self, stage: &Stage, log: &[Event]) -> Selection {
        if self.0.below(2) == 0 {
            let stored = latest(&stage.pending[..self.0.below(stage.pending.len() + 1)], log);
            return stored.into_iter().map(|(addr, event)| (addr, whole(event))).collect();
        }
        sample(&versions_of(stage, log), &mut self.0)
    }
}

/// Events of each pending block, oldest first.
fn versions_of(stage: &Stage, log: &[Event]) -> Pending {
    let mut versions = Pending::new();
    for &event in &stage.pending {
        let addr = block(&log[event]).expect("pending events have a block");
        versions.entry(addr).or_default().push(event);
    }
    versions
}

/// Any version of any blocks.
fn sample(versions: &Pending, random: &mut Random) -> Selection {
    // How many blocks are lost varies as much as which.
    let bias = 1 + random.below(7);
    let mut selection = Selection::new();
    for (&addr, events) in versions {
        if random.below(8) < bias {
            selection.push((addr, whole(events[random.below(events.len())])));
        }
    }
    selection
}

/// The newest version of a block, whole.
fn whole(event: usize) -> Choice {
    Choice { event, sectors: u8::MAX }
}

/// What may be stored of a stage's pending writes, without repeats.
pub(super) fn selections(stage: &Stage, log: &[Event], plan: &CrashPlan, seed: u64) -> Vec<Selection> {
    let mut selections =
        Selections { stage, log, plan, random: Random(seed), seen: HashSet::new(), found: Vec::new() };
    let versions = versions_of(stage, log);
    let total = versions.values().try_fold(1usize, |n, v| n.checked_mul(v.len() + 1)).unwrap_or(usize::MAX);
    if total <= plan.exhaustive {
        selections.every(&versions, total);
    } else {
        selections.in_order();
        selections.one_apart();
        selections.sampled(&versions);
    }
    if plan.torn.is_some() {
        selections.torn();
    }
    selections.found
}

/// Selections as they are found.
struct Selections<'a> {
    stage: &'a Stage,
    log: &'a [Event],
    plan: &'a CrashPlan,
    random: Random,
    seen: HashSet<Selection>,
    found: Vec<Selection>,
}

impl Selections<'_> {
    fn show(&mut self, selection: Selection) {
        if self.seen.insert(selection.clone()) {
            self.found.push(selection);
        }
    }

    /// Every combination: a number in mixed radix, one digit a block, 0 for the old content.
    fn every(&mut self, versions: &Pending, total: usize) {
        for mut number in 0..total {
            let mut selection = Selection::new();
            for (&addr, events) in versions {
                let digit = number % (events.len() + 1);
                number /= events.len() + 1;
                if digit > 0 {
                    selection.push((addr, whole(events[digit - 1])));
                }
            }
            self.show(selection);
        }
    }

    /// The first writes, as many as there may be.
    fn in_order(&mut self) {
        for length in 0..=self.stage.pending.len() {
            let stored = latest(&self.stage.pending[..length], self.log);
            self.show(stored.into_iter().map(|(addr, event)| (addr, whole(event))).collect());
        }
    }

    /// All blocks but one, and one alone.
    fn one_apart(&mut self) {
        let all = latest(&self.stage.pending, self.log);
        for (&addr, &event) in &all {
            let others = all.iter().filter(|(at, _)| **at != addr).map(|(&at, &event)| (at, whole(event)));
            self.show(others.collect());
            self.show(vec![(addr, whole(event))]);
        }
    }

    /// Any version of any blocks.
    fn sampled(&mut self, versions: &Pending) {
        for _ in 0..self.plan.samples {
            let selection = sample(versions, &mut self.random);
            self.show(selection);
        }
    }

    /// Each torn write alone in an otherwise complete state, and in a random one.
    fn torn(&mut self) {
        let all = latest(&self.stage.pending, self.log);
        for (&addr, &event) in &all {
            for choice in self.torn_of(addr, event) {
                let others =
                    all.iter().filter(|(at, _)| **at != addr).map(|(&at, &event)| (at, whole(event)));
                let mut selection: Selection = others.collect();
                selection.push((addr, choice));
                selection.sort_unstable_by_key(|(addr, _)| *addr);
                let fewer = selection.iter().filter(|(at, _)| *at == addr || self.random.below(2) == 0);
                let fewer = fewer.copied().collect();
                self.show(selection);
                self.show(fewer);
            }
        }
    }

    /// Ways in which a write is torn, where the plan has any.
    fn torn_of(&mut self, addr: u64, event: usize) -> Vec<Choice> {
        let tearable = match (&self.plan.torn, &self.log[event]) {
            (Some(filter), Event::Write { content, cause, .. }) => filter(addr, *cause, content),
            _ => false,
        };
        let count = if tearable { self.plan.torn_each } else { 0 };
        (0..count).map(|_| Choice { event, sectors: 1 + self.random.below(254) as u8 }).collect()
    }
}
