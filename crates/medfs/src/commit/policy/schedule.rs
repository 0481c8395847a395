//! Whose transactions are committed in a quiet time (MobiFS, section 5.4): three queues and four rules.
//!
//! The paper's titles of rules 1 and 2 do not say what the rules say; here is what they say:
//!
//! 1. An app that is passed over moves to the next higher queue.
//! 2. New apps enter the lowest queue. Where no choice is feasible, the shortest transaction of the highest
//!    queue is committed.
//! 3. An app can be chosen where its first transaction takes no longer than the time that is left.
//! 4. An app that cannot commit all moves to the lowest queue.
//!
//! Once an app is chosen, its other transactions come next: they merge. Lengths are times, by what writing was
//! measured to take. What is too old is not decided here: a bound beats all rules.

use std::collections::VecDeque;
use std::time::Duration;

/// Number of an app.
pub type App = u32;

const QUEUES: usize = 3;

/// An app that is to commit its first transactions, so many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// The app.
    pub app: App,
    /// How many of its transactions, the oldest first.
    pub transactions: usize,
}

/// Decides which closed transactions are committed.
pub trait Scheduling: Send {
    /// A transaction of an app was closed; writing it takes about so long.
    fn closed(&mut self, app: App, length: Duration);

    /// Takes out what is to be committed in a time that is expected to be quiet.
    fn choose(&mut self, quiet: Duration) -> Vec<Chosen>;

    /// How many apps wait.
    fn waiting(&self) -> usize;
}

#[derive(Debug, Clone)]
struct Waiting {
    app: App,
    lengths: VecDeque<Duration>,
}

/// The paper's queues, the highest first.
#[derive(Debug, Clone, Default)]
pub struct Queues([VecDeque<Waiting>; QUEUES]);

impl Queues {
    /// The queue of an app that waits; 0 is the highest.
    pub fn queue_of(&self, app: App) -> Option<usize> {
        self.0.iter().position(|queue| queue.iter().any(|waiting| waiting.app == app))
    }

    /// Takes the transactions of an app that fit; those left over are in `late`.
    fn take(waiting: Waiting, left: &mut Duration, late: &mut Vec<Waiting>) -> Chosen {
        let Waiting { app, mut lengths } = waiting;
        let mut transactions = 0;
        while let Some(rest) = lengths.front().and_then(|&length| left.checked_sub(length)) {
            (*left, transactions) = (rest, transactions + 1);
            lengths.pop_front();
        }
        if !lengths.is_empty() {
            late.push(Waiting { app, lengths });
        }
        Chosen { app, transactions }
    }

    /// Rule 2: commits the shortest first transaction of the highest queue that is not empty.
    fn shortest(&mut self) -> Option<Chosen> {
        let queue = self.0.iter_mut().find(|queue| !queue.is_empty())?;
        let (at, _) = queue.iter().enumerate().min_by_key(|(_, waiting)| waiting.lengths.front())?;
        let mut waiting = queue.remove(at)?;
        waiting.lengths.pop_front();
        let app = waiting.app;
        if !waiting.lengths.is_empty() {
            self.0[QUEUES - 1].push_back(waiting);
        }
        Some(Chosen { app, transactions: 1 })
    }
}

impl Scheduling for Queues {
    fn closed(&mut self, app: App, length: Duration) {
        match self.0.iter_mut().flatten().find(|waiting| waiting.app == app) {
            Some(waiting) => waiting.lengths.push_back(length),
            None => self.0[QUEUES - 1].push_back(Waiting { app, lengths: [length].into() }),
        }
    }

    fn choose(&mut self, quiet: Duration) -> Vec<Chosen> {
        let (mut left, mut chosen, mut late) = (quiet, Vec::new(), Vec::new());
        let mut passed: [Vec<Waiting>; QUEUES] = Default::default();
        for (queue, passed) in self.0.iter_mut().zip(&mut passed) {
            for waiting in std::mem::take(queue) {
                match waiting.lengths.front().is_some_and(|&length| length <= left) {
                    true => chosen.push(Queues::take(waiting, &mut left, &mut late)),
                    false => passed.push(waiting),
                }
            }
        }
        if chosen.is_empty() {
            self.0 = passed.clone().map(VecDeque::from);
            let Some(shortest) = self.shortest() else { return chosen };
            passed.iter_mut().for_each(|queue| queue.retain(|waiting| waiting.app != shortest.app));
            late.extend(self.0[QUEUES - 1].iter().filter(|waiting| waiting.app == shortest.app).cloned());
            chosen.push(shortest);
        }
        self.0 = Default::default();
        for (queue, passed) in passed.into_iter().enumerate() {
            self.0[queue.saturating_sub(1)].extend(passed);
        }
        self.0[QUEUES - 1].extend(late);
        chosen
    }

    fn waiting(&self) -> usize {
        self.0.iter().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn queues(closed: &[(App, u64)]) -> Queues {
        let mut queues = Queues::default();
        closed.iter().for_each(|&(app, length)| queues.closed(app, ms(length)));
        queues
    }

    fn choose(queues: &mut Queues, quiet: u64) -> Vec<(App, usize)> {
        queues.choose(ms(quiet)).iter().map(|chosen| (chosen.app, chosen.transactions)).collect()
    }

    /// What is shown; apps and lengths that were closed; the quiet time; what is chosen; who is in which queue.
    type Case = (&'static str, &'static [(App, u64)], u64, &'static [(App, usize)], &'static [(App, usize)]);

    #[test]
    fn rules_one_by_one() {
        let cases: [Case; 7] = [
            ("nothing waits", &[], 100, &[], &[]),
            ("affinity: all of one app", &[(1, 10), (2, 10), (1, 10)], 25, &[(1, 2)], &[(2, 1)]),
            ("rule 1: what is passed over moves up", &[(1, 200), (2, 50)], 100, &[(2, 1)], &[(1, 1)]),
            ("rule 2: the shortest where none fits", &[(1, 300), (2, 200)], 100, &[(2, 1)], &[(1, 1)]),
            ("rule 3: no longer than the time", &[(1, 100)], 100, &[(1, 1)], &[]),
            ("rule 4: what is left is last", &[(1, 60), (1, 60)], 100, &[(1, 1)], &[(1, 2)]),
            ("rules 2 and 4", &[(1, 300), (1, 10), (2, 400)], 100, &[(1, 1)], &[(1, 2), (2, 1)]),
        ];
        for (what, closed, quiet, chosen, queue) in cases {
            let mut queues = queues(closed);
            assert_eq!(choose(&mut queues, quiet), chosen, "{what}");
            queue.iter().for_each(|&(app, at)| assert_eq!(queues.queue_of(app), Some(at), "{what}: {app}"));
            assert_eq!(queues.waiting(), queue.len(), "{what}");
        }
    }

    /// A long transaction rises to the highest queue, and is committed there though it never fits.
    #[test]
    fn what_never_fits_is_committed_once_it_is_the_oldest() {
        let mut queues = queues(&[(9, 1000)]);
        for round in 0..3 {
            queues.closed(round, ms(10));
            assert_eq!(choose(&mut queues, 50), [(round, 1)]);
        }
        assert_eq!(queues.queue_of(9), Some(0));
        queues.closed(5, ms(100));
        assert_eq!(choose(&mut queues, 50), [(9, 1)], "the highest queue, not the shortest of all");
        assert_eq!((queues.waiting(), queues.queue_of(5)), (1, Some(1)));
    }
}
