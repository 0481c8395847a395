//! How long the user will do nothing (MobiFS, section 5.3): the time to commit in.
//!
//! Figure 4's labels are not in the paper's text, and `tau` is not defined there. Here `tau` ends the class of
//! quick operations, and intervals count from the last operation:
//!
//! | state | the user, before `tau` | from `tau` on, before `t_l` | timer |
//! |---|---|---|---|
//! | short | short | | `tau`: long |
//! | long | short | shorter, which records it: long | `t_l` (the paper's delta): longer |
//! | longer | | when the user comes: records it: long | waits |
//!
//! `t_s` and `t_l` are the shortest of the last `k` intervals that the states short and long recorded.

use super::History;
use std::time::Duration;

/// Predicts how long a user will do nothing.
pub trait Prediction: Send {
    /// The user did something.
    fn user(&mut self, now: Duration);

    /// How long nothing is expected from `now` on; `None` where nothing can be said.
    fn quiet(&mut self, now: Duration) -> Option<Duration>;

    /// When the answer will change without the user.
    fn wakes(&self) -> Option<Duration> {
        None
    }
}

/// What a prediction is made of where it has no states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Shortest,
    Mean,
}

/// The last min model and the last average model (LMM, LAM): the shortest, or the mean, of the last `k`
/// intervals.
#[derive(Debug, Clone)]
pub struct Last {
    of: Of,
    history: History,
    last: Option<Duration>,
}

impl Last {
    /// LMM over `k` intervals.
    pub fn min(k: usize) -> Last {
        Last { of: Of::Shortest, history: History::of(k), last: None }
    }

    /// LAM over `k` intervals.
    pub fn average(k: usize) -> Last {
        Last { of: Of::Mean, history: History::of(k), last: None }
    }
}

impl Prediction for Last {
    fn user(&mut self, now: Duration) {
        if let Some(last) = self.last.replace(now) {
            self.history.record(now.saturating_sub(last));
        }
    }

    fn quiet(&mut self, now: Duration) -> Option<Duration> {
        let length = match self.of {
            Of::Shortest => self.history.shortest(),
            Of::Mean => self.history.mean(),
        };
        left(length?, now.saturating_sub(self.last?))
    }
}

fn left(length: Duration, passed: Duration) -> Option<Duration> {
    length.checked_sub(passed).filter(|left| !left.is_zero())
}

/// A state of [`IntervalFsm`]. The paper's *shorter* is left as soon as it is entered, and so is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// The user operates with short intervals.
    Short,
    /// With long ones.
    Long,
    /// Longer than was predicted.
    Longer,
}

/// The paper's finite-state machine.
#[derive(Debug, Clone)]
pub struct IntervalFsm {
    tau: Duration,
    state: State,
    short: History,
    long: History,
    last: Option<Duration>,
}

impl IntervalFsm {
    /// One that keeps `k` intervals of each state, and takes those below `tau` for short.
    pub fn new(k: usize, tau: Duration) -> IntervalFsm {
        let (short, long) = (History::of(k), History::of(k));
        IntervalFsm { tau, state: State::Short, short, long, last: None }
    }

    /// The state at a time.
    pub fn state(&mut self, now: Duration) -> State {
        self.pass(now);
        self.state
    }

    /// `t_l`; `tau` where no long interval was seen.
    fn long_length(&self) -> Duration {
        self.long.shortest().unwrap_or(self.tau).max(self.tau)
    }

    fn passed(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last.unwrap_or(now))
    }

    /// What the timers did until now.
    fn pass(&mut self, now: Duration) {
        let passed = self.passed(now);
        if self.state == State::Short && passed >= self.tau {
            self.state = State::Long;
        }
        if self.state == State::Long && passed >= self.long_length() {
            self.state = State::Longer;
        }
    }
}

impl Prediction for IntervalFsm {
    fn user(&mut self, now: Duration) {
        self.pass(now);
        let first = self.last.is_none();
        let interval = self.passed(now);
        self.last = Some(self.last.unwrap_or(now).max(now));
        if first {
            return;
        }
        if interval < self.tau {
            self.short.record(interval);
            self.state = State::Short;
        } else {
            self.long.record(interval);
            self.state = State::Long;
        }
    }

    /// In *longer* as long again as has passed: the paper says nothing there.
    fn quiet(&mut self, now: Duration) -> Option<Duration> {
        self.last?;
        self.pass(now);
        let passed = self.passed(now);
        match self.state {
            State::Short => left(self.short.shortest()?, passed),
            State::Long => left(self.long_length(), passed),
            State::Longer => Some(passed),
        }
    }

    fn wakes(&self) -> Option<Duration> {
        let timer = match self.state {
            State::Short => self.tau,
            State::Long => self.long_length(),
            State::Longer => return None,
        };
        Some(self.last? + timer)
    }
}

/// Operations that lie no further apart than `within` are one: a drag is one operation of the user, and a
/// burst of writes one of a program.
#[derive(Debug, Clone)]
pub struct Combined<P> {
    within: Duration,
    last: Option<Duration>,
    inner: P,
}

impl<P: Prediction> Combined<P> {
    /// One that tells `inner` of each burst once, at its begin.
    pub fn new(within: Duration, inner: P) -> Combined<P> {
        Combined { within, last: None, inner }
    }

    /// When the last operation was.
    pub fn last(&self) -> Option<Duration> {
        self.last
    }
}

impl<P: Prediction> Prediction for Combined<P> {
    fn user(&mut self, now: Duration) {
        let last = self.last;
        self.last = last.max(Some(now));
        if last.is_none_or(|last| now.saturating_sub(last) > self.within) {
            self.inner.user(now);
        }
    }

    /// A burst may go on for as long as its parts lie apart.
    fn quiet(&mut self, now: Duration) -> Option<Duration> {
        (now.saturating_sub(self.last?) > self.within).then(|| self.inner.quiet(now))?
    }

    fn wakes(&self) -> Option<Duration> {
        self.inner.wakes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    type Case = (&'static str, &'static [u64], State, Option<u64>, Option<u64>);

    /// The drawing of Fig. 4, row by row: intervals in ms, then the state, `t_s` and `t_l` behind them.
    #[test]
    fn the_states_follow_the_drawing() {
        let cases: [Case; 7] = [
            ("nothing came", &[], State::Short, None, None),
            ("short loops", &[300, 200, 400], State::Short, Some(200), None),
            ("the user came behind tau", &[300, 5000], State::Long, Some(300), Some(5000)),
            ("long, then before tau", &[5000, 300], State::Short, Some(300), Some(5000)),
            ("shorter", &[5000, 2000], State::Long, None, Some(2000)),
            ("longer", &[2000, 9000], State::Long, None, Some(2000)),
            ("history of three ends", &[2000, 9000, 8000, 7000], State::Long, None, Some(7000)),
        ];
        for (what, intervals, state, short, long) in cases {
            let mut fsm = IntervalFsm::new(3, ms(1000));
            let mut now = ms(50);
            fsm.user(now);
            for &interval in intervals {
                now += ms(interval);
                fsm.user(now);
            }
            assert_eq!(fsm.state(now), state, "{what}");
            assert_eq!(fsm.short.shortest(), short.map(ms), "{what}");
            assert_eq!(fsm.long.shortest(), long.map(ms), "{what}");
        }
    }

    #[test]
    fn timers_lead_from_short_over_long_to_longer() {
        let mut fsm = IntervalFsm::new(3, ms(1000));
        assert_eq!((fsm.quiet(ms(5)), fsm.wakes()), (None, None), "no user was seen");
        [0, 4000, 4200].into_iter().for_each(|at| fsm.user(ms(at)));
        assert_eq!((fsm.state(ms(4300)), fsm.quiet(ms(4300))), (State::Short, Some(ms(100))));
        assert_eq!((fsm.quiet(ms(4500)), fsm.wakes()), (None, Some(ms(5200))), "t_s has passed");
        assert_eq!((fsm.state(ms(5200)), fsm.quiet(ms(5200))), (State::Long, Some(ms(3000))));
        assert_eq!(fsm.wakes(), Some(ms(8200)));
        assert_eq!((fsm.state(ms(8200)), fsm.quiet(ms(9200))), (State::Longer, Some(ms(5000))));
        fsm.user(ms(9200));
        assert_eq!(fsm.state(ms(9200)), State::Long);
        fsm.user(ms(9000));
        assert_eq!(fsm.wakes(), Some(ms(10_200)), "a clock that runs backwards makes no interval");
    }

    #[test]
    fn the_last_models_say_the_shortest_and_the_mean() {
        let predicted = |mut model: Last| {
            [0, 100, 400, 1000, 1500].into_iter().for_each(|at| model.user(ms(at)));
            [1500, 1700].map(|at| model.quiet(ms(at)))
        };
        assert_eq!(predicted(Last::min(3)), [Some(ms(300)), Some(ms(100))]);
        assert_eq!(predicted(Last::average(2)), [Some(ms(550)), Some(ms(350))]);
        assert_eq!(predicted(Last::min(4)), [Some(ms(100)), None]);
    }

    #[test]
    fn a_drag_is_one_operation() {
        let mut model = Combined::new(ms(20), Last::min(5));
        [0, 10, 20, 30, 500, 505, 700].into_iter().for_each(|at| model.user(ms(at)));
        assert_eq!(model.quiet(ms(710)), None, "it may go on");
        assert_eq!(model.quiet(ms(730)), Some(ms(170)));
    }
}
