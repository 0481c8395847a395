//! How the next thread is chosen.
//!
//! - [`Policy::Walk`]: at each point, once in so many, any other thread.
//! - [`Policy::Pct`]: threads have priorities, and at a few points that are drawn at random the running one
//!   gets the lowest (Burckhardt and others, "A Randomized Scheduler with Probabilistic Guarantees of Finding
//!   Bugs", 2010). What takes few preemptions at the right places is found with a probability that does not
//!   depend on how many points there are between.
//! - [`Policy::Replay`]: the switches of another run, or some of them.

use std::panic::Location;

/// Points without a switch after which a thread goes behind the others: one that waits for them by trying
/// must not run for ever.
const PATIENCE: u64 = 50_000;

/// A change from one thread to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// The thread that ran.
    pub thread: usize,
    /// Points that it had come to.
    pub step: u64,
    /// The one that runs now.
    pub to: usize,
    /// The point.
    pub at: &'static Location<'static>,
}

/// The choice of the next thread.
#[derive(Debug, Clone)]
pub enum Policy {
    /// A random walk.
    Walk {
        /// Decides all.
        seed: u64,
        /// Points between two switches, on average.
        one_in: u64,
    },
    /// Priorities, changed at a few points.
    Pct {
        /// Decides all.
        seed: u64,
        /// How many points change a priority.
        depth: usize,
        /// Among how many points these are drawn.
        length: u64,
    },
    /// These switches, and none beside but where a thread cannot go on: then the first one that can.
    Replay(Vec<Switch>),
}

/// SplitMix64.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit.max(1)
    }
}

#[derive(Debug)]
enum Kind {
    Walk { one_in: u64 },
    Pct { changes: Vec<u64> },
    Replay(Vec<Switch>),
}

pub(super) struct Chooser {
    kind: Kind,
    random: Random,
    /// By thread; the highest one runs.
    priorities: Vec<i64>,
    lowest: i64,
    /// The thread that ran last, and how many points ago it began.
    run: (usize, u64),
}

impl Chooser {
    pub(super) fn new(policy: Policy, threads: usize) -> Chooser {
        let (kind, mut random) = match policy {
            Policy::Walk { seed, one_in } => (Kind::Walk { one_in }, Random(seed)),
            Policy::Pct { seed, depth, length } => {
                let mut random = Random(seed);
                let changes = (0..depth).map(|_| 1 + random.below(length)).collect();
                (Kind::Pct { changes }, random)
            }
            Policy::Replay(switches) => (Kind::Replay(switches), Random(0)),
        };
        let mut priorities: Vec<i64> = (1..=threads as i64).collect();
        for n in (1..threads).rev() {
            priorities.swap(n, random.below(n as u64 + 1) as usize);
        }
        Chooser { kind, random, priorities, lowest: 0, run: (0, 0) }
    }

    pub(super) fn put_last(&mut self, thread: usize) {
        self.lowest -= 1;
        self.priorities[thread] = self.lowest;
    }

    fn highest(&self, ready: &[usize]) -> usize {
        *ready.iter().max_by_key(|&&n| self.priorities[n]).expect("a thread is ready")
    }

    /// The first thread.
    pub(super) fn begin(&mut self, ready: &[usize]) -> usize {
        match &self.kind {
            Kind::Walk { .. } => ready[self.random.below(ready.len() as u64) as usize],
            Kind::Pct { .. } => self.highest(ready),
            Kind::Replay(switches) => {
                let begin = switches.iter().find(|s| s.step == 0).map(|s| s.to);
                begin.filter(|to| ready.contains(to)).unwrap_or(ready[0])
            }
        }
    }

    /// The thread that runs next, of those that are ready: `thread` came to its `step`th point, the `all`th of the run.
    pub(super) fn next(&mut self, thread: usize, step: u64, all: u64, ready: &[usize]) -> usize {
        let stays = ready.contains(&thread);
        self.run = if self.run.0 == thread { (thread, self.run.1 + 1) } else { (thread, 0) };
        match &self.kind {
            Kind::Walk { one_in } => {
                if stays && self.random.below(*one_in) != 0 {
                    return thread;
                }
                let others: Vec<usize> = ready.iter().copied().filter(|&n| n != thread).collect();
                if others.is_empty() {
                    thread
                } else {
                    others[self.random.below(others.len() as u64) as usize]
                }
            }
            Kind::Pct { changes } => {
                if changes.contains(&all) || self.run.1 > PATIENCE {
                    self.run.1 = 0;
                    self.put_last(thread);
                }
                self.highest(ready)
            }
            Kind::Replay(switches) => {
                let wanted = switches.iter().find(|s| s.thread == thread && s.step == step && step > 0);
                let wanted = wanted.map(|s| s.to).filter(|to| ready.contains(to));
                wanted.unwrap_or(if stays { thread } else { ready[0] })
            }
        }
    }
}
