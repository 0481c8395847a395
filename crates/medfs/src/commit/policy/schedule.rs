//! Which of several apps is committed in a pause (MobiFS, section 5.4).
//!
//! Three queues hold the apps whose transactions have ended, by how often they were skipped. The paper's rules, of
//! which the first two are titled there for what the other says:
//!
//! 1. An app that a pause skips moves to a queue of higher priority, where there is one.
//! 2. An app enters the lowest queue. Where none fits, the shortest of the highest queue that has one is committed.
//! 3. An app fits where its commit is shorter than what is left of the pause.
//! 4. What an app changes behind its commit enters the lowest queue again, when that has ended in turn.
//!
//! The paper does not say how often rule 2 applies. Here it does once in a pause, and only where nothing fitted in it:
//! otherwise each pause would commit all. Starvation is none of the rules' concern: the bound of age beats them.
//!
//! Invariant: an app is in one queue at most.

use std::collections::VecDeque;
use std::time::Duration;

/// An app that may be committed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub app: usize,
    /// How long its commit takes, as far as is known.
    pub length: Duration,
    /// How long nothing is expected that its commit would keep waiting.
    pub room: Duration,
}

impl Candidate {
    fn fits(&self) -> bool {
        self.length < self.room
    }
}

/// The three queues.
#[derive(Debug, Clone, Default)]
pub struct Schedule {
    /// The lowest priority first.
    queues: [VecDeque<usize>; 3],
    /// When the pause began that was asked for last.
    pause: Option<Duration>,
    /// What this pause skipped.
    skipped: Vec<usize>,
    /// Something was committed in this pause.
    served: bool,
}

impl Schedule {
    /// A transaction of an app has ended: it waits for a pause, behind those that do.
    pub fn enqueue(&mut self, app: usize) {
        if !self.queues.iter().any(|queue| queue.contains(&app)) {
            self.queues[0].push_back(app);
        }
    }

    /// Which of these to commit next in the pause that began at `pause`; `None`: none in this one. Those that wait and
    /// are not among them are neither chosen nor skipped.
    pub fn next(&mut self, pause: Duration, candidates: &[Candidate]) -> Option<usize> {
        if self.pause != Some(pause) {
            (self.pause, self.served) = (Some(pause), false);
            self.skipped.clear();
        }
        let of = |app: &usize| candidates.iter().find(|candidate| candidate.app == *app).copied();
        // As it is before any of them moves up.
        let waiting: Vec<Vec<Candidate>> =
            self.queues.iter().rev().map(|queue| queue.iter().filter_map(of).collect()).collect();
        let in_order = || waiting.iter().flatten();
        let fitting = in_order().find(|candidate| candidate.fits());
        let shortest = || {
            let highest = waiting.iter().find(|queue| !queue.is_empty())?;
            highest.iter().min_by_key(|candidate| candidate.length)
        };
        let chosen = fitting.or_else(|| if self.served { None } else { shortest() }).map(|one| one.app);
        for candidate in in_order().take_while(|one| Some(one.app) != chosen || !one.fits()) {
            if Some(candidate.app) != chosen {
                self.skip(candidate.app);
            }
        }
        self.served |= chosen.is_some();
        chosen
    }

    /// Rule 1, once in a pause.
    fn skip(&mut self, app: usize) {
        if self.skipped.contains(&app) {
            return;
        }
        self.skipped.push(app);
        let at = self.queues.iter().position(|queue| queue.contains(&app));
        if let Some(at) = at.filter(|at| at + 1 < self.queues.len()) {
            self.queues[at].retain(|one| *one != app);
            self.queues[at + 1].push_back(app);
        }
    }

    /// Nothing of an app waits any more, whyever it was committed.
    pub fn committed(&mut self, app: usize) {
        self.queues.iter_mut().for_each(|queue| queue.retain(|one| *one != app));
    }
}

/// How long commits take, as measured: a part that each takes, and one for each page.
#[derive(Debug, Clone, Default)]
pub struct WriteCost {
    /// Pages and time of the last commits.
    last: VecDeque<(u64, Duration)>,
}

impl WriteCost {
    /// Commits that are remembered.
    const REMEMBERED: usize = 16;

    /// A commit of so many pages, one at least, took this long.
    pub fn note(&mut self, pages: u64, took: Duration) {
        if self.last.len() == Self::REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back((pages, took));
    }

    /// How long a commit of so many pages takes; nothing where none was measured. The fastest of the last commits is
    /// what each takes whatever is in it. What the others took beyond that is their pages'.
    pub fn of(&self, pages: u64) -> Duration {
        let Some(&(least, fixed)) = self.last.iter().min_by_key(|(_, took)| *took) else {
            return Duration::ZERO;
        };
        let sum = |of: fn(&(u64, Duration)) -> Duration| self.last.iter().map(of).sum::<Duration>();
        let beyond = sum(|(_, took)| *took).saturating_sub(fixed * self.last.len() as u32);
        let of_them = self.last.iter().map(|(pages, _)| pages.saturating_sub(least)).sum::<u64>();
        // Where all were of one size their time is taken for their pages'.
        match u32::try_from(of_them) {
            Ok(0) | Err(_) => scaled(fixed, pages, least),
            Ok(of_them) => fixed + scaled(beyond, pages.saturating_sub(least), of_them.into()),
        }
    }
}

/// A time by `part` of `whole`, where there is a whole.
fn scaled(time: Duration, part: u64, whole: u64) -> Duration {
    let nanos = time.as_nanos().saturating_mul(part.into()) / u128::from(whole.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Apps by their numbers, with the length of each; all have the same pause.
    fn in_a_pause<const N: usize>(of: [(usize, u64); N], room: u64) -> [Candidate; N] {
        of.map(|(app, length)| Candidate { app, length: ms(length), room: ms(room) })
    }

    fn enqueued<const N: usize>(apps: [usize; N]) -> Schedule {
        let mut schedule = Schedule::default();
        apps.into_iter().for_each(|app| schedule.enqueue(app));
        schedule
    }

    #[test]
    fn the_first_that_fits_is_next_and_who_it_passes_by_moves_up() {
        let mut schedule = enqueued([1, 2, 3, 2]);
        let all = in_a_pause([(1, 500), (2, 50), (3, 10)], 100);
        assert_eq!(schedule.next(ms(0), &all), Some(2));
        assert_eq!(
            schedule.queues.each_ref().map(|queue| queue.len()),
            [2, 1, 0],
            "app 1 was skipped, 3 was not"
        );
        schedule.committed(2);
        assert_eq!(schedule.next(ms(0), &all), Some(3), "the same pause");
        schedule.committed(3);
        assert_eq!(schedule.next(ms(0), &all), None, "rule 2 is for pauses in which nothing fitted");
        assert_eq!(schedule.queues[1], [1], "once in a pause");
        schedule.enqueue(2);
        assert_eq!(
            schedule.next(ms(9), &in_a_pause([(1, 500), (2, 50)], 600)),
            Some(1),
            "it has priority now"
        );
    }

    #[test]
    fn where_none_fits_the_shortest_of_the_most_urgent_is_committed() {
        let mut schedule = enqueued([1, 2, 3]);
        let long = in_a_pause([(1, 500), (2, 400), (3, 300)], 100);
        assert_eq!(schedule.next(ms(0), &long[..2]), Some(2), "the third is not in a pause");
        schedule.committed(2);
        assert_eq!(schedule.next(ms(0), &long), None, "once in a pause");
        assert_eq!(schedule.queues.each_ref().map(|queue| queue.len()), [0, 2, 0]);
        schedule.enqueue(4);
        let longer = in_a_pause([(4, 150), (1, 500), (3, 300)], 100);
        assert_eq!(schedule.next(ms(1), &longer), Some(3), "4 is shorter, and less urgent");
        schedule.committed(3);
        assert_eq!(schedule.queues, [VecDeque::new(), [4].into(), [1].into()]);
        assert_eq!(schedule.next(ms(2), &longer), Some(1));
    }

    /// Rule 4, and no fourth queue.
    #[test]
    fn what_is_left_begins_in_the_lowest_queue() {
        let mut schedule = enqueued([1, 2]);
        let long = in_a_pause([(1, 500), (2, 50)], 100);
        for pause in 0..5 {
            assert_eq!(schedule.next(ms(pause), &long), Some(2));
            schedule.committed(2);
            schedule.enqueue(2);
        }
        assert_eq!(schedule.queues, [[2].into(), VecDeque::new(), [1].into()]);
    }

    #[test]
    fn lengths_are_what_commits_took() {
        let mut cost = WriteCost::default();
        assert_eq!(cost.of(1000), Duration::ZERO, "nothing is known");
        cost.note(10, ms(30));
        assert_eq!(cost.of(20), ms(60), "one size tells no fixed part");
        cost.note(110, ms(130));
        assert_eq!([10, 60, 1010].map(|pages| cost.of(pages)), [30, 80, 1030].map(ms));
        (0..16).for_each(|_| cost.note(10, ms(300)));
        assert_eq!(cost.of(10), ms(300), "the device became slower");
    }
}
