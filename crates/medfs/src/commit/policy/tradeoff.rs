//! Where a transaction ends (MobiFS, section 5.2): at the peak of what overwriting saves for each page that
//! would be lost.
//!
//! *Staleness* `s` is the number of pages that writes touched since the last end, *overlap* `o` how many of
//! them need not be written, as they were overwritten or are gone. `e = o/s` is in thousandths. The paper gives
//! neither `k` nor its limits: they are parameters. It does not say what a flat line means either. Here it
//! ends the transaction: waiting saves nothing.

use std::collections::VecDeque;
use std::time::Duration;

/// What was written since the last end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Pages that writes touched, a page once for each write (`s`).
    pub staleness: u64,
    /// Those of them that need not be written any more (`o`).
    pub overlap: u64,
}

impl Written {
    /// The energy efficiency ratio `e = o/s` in thousandths, below 1000; 0 where nothing was written.
    pub fn efficiency(self) -> u64 {
        (self.overlap * 1000).checked_div(self.staleness).unwrap_or(0)
    }
}

/// Why a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// `e` has its peak here (TPL).
    Tradeoff,
    /// Too many pages were written.
    Staleness,
    /// Too much time has passed.
    Interval,
}

/// Decides where transactions end.
pub trait Transactioning: Send {
    /// The first write of a transaction is about to be done.
    fn begins(&mut self, _now: Duration) {}

    /// A write was done: `written` counts it, and what came since the last end. `Some`: the transaction ends
    /// with it.
    fn wrote(&mut self, now: Duration, written: Written) -> Option<End>;

    /// Whether it ends now though nothing is written.
    fn is_over(&self, _now: Duration) -> Option<End> {
        None
    }

    /// When it ends though nothing is written.
    fn ends_at(&self) -> Option<Duration> {
        None
    }

    /// It ended, for whatever reason: the next write is the first of the next one.
    fn ended(&mut self);
}

/// Bounds of a transaction, in pages and in time from its first write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most staleness in pages.
    pub staleness: u64,
    /// Longest time.
    pub time: Duration,
}

/// No end but those of others.
impl Default for Limits {
    fn default() -> Limits {
        Limits { staleness: u64::MAX, time: Duration::MAX }
    }
}

/// Ends transactions at limits alone: the baselines of a fixed staleness and of a fixed interval.
#[derive(Debug, Clone, Default)]
pub struct Fixed {
    limits: Limits,
    first: Option<Duration>,
}

impl Fixed {
    /// One that ends at these limits.
    pub fn at(limits: Limits) -> Fixed {
        Fixed { limits, first: None }
    }

    /// One that ends after this time.
    pub fn interval(time: Duration) -> Fixed {
        Fixed::at(Limits { time, ..Limits::default() })
    }

    /// One that ends after so many pages.
    pub fn staleness(staleness: u64) -> Fixed {
        Fixed::at(Limits { staleness, ..Limits::default() })
    }
}

impl Transactioning for Fixed {
    fn begins(&mut self, now: Duration) {
        self.first.get_or_insert(now);
    }

    fn wrote(&mut self, now: Duration, written: Written) -> Option<End> {
        self.first.get_or_insert(now);
        if written.staleness >= self.limits.staleness {
            return Some(End::Staleness);
        }
        self.is_over(now)
    }

    fn is_over(&self, now: Duration) -> Option<End> {
        let passed = now.saturating_sub(self.first?);
        (passed >= self.limits.time).then_some(End::Interval)
    }

    fn ends_at(&self) -> Option<Duration> {
        self.first?.checked_add(self.limits.time)
    }

    fn ended(&mut self) {
        self.first = None;
    }
}

/// Points whose memory is kept between transactions.
const POINTS_KEPT: usize = 256;

/// Tradeoff point location: a line through the last `k` points of the `e` curve no longer rises.
#[derive(Debug, Clone)]
pub struct Tpl {
    window: usize,
    points: VecDeque<(i128, i128)>,
    /// Of the points: staleness, efficiency, and the products of both.
    sums: [i128; 3],
    limits: Fixed,
}

impl Tpl {
    /// One with a window of `k` points, at least 2.
    pub fn new(k: usize, limits: Limits) -> Tpl {
        Tpl { window: k.max(2), points: VecDeque::new(), sums: [0; 3], limits: Fixed::at(limits) }
    }

    fn add(&mut self, (s, e): (i128, i128), sign: i128) {
        for (sum, term) in self.sums.iter_mut().zip([s, e, s * e]) {
            *sum += sign * term;
        }
    }

    fn note(&mut self, written: Written) {
        let point = (i128::from(written.staleness), i128::from(written.efficiency()));
        self.points.push_back(point);
        self.add(point, 1);
        if self.points.len() > self.window
            && let Some(oldest) = self.points.pop_front()
        {
            self.add(oldest, -1);
        }
    }

    /// The numerator of the least-squares line's slope over a full window: its denominator is above 0, as
    /// each write adds to the staleness.
    fn slope(&self) -> Option<i128> {
        let [s, e, product] = self.sums;
        (self.points.len() == self.window).then_some(self.window as i128 * product - s * e)
    }
}

impl Transactioning for Tpl {
    fn begins(&mut self, now: Duration) {
        self.limits.begins(now);
    }

    fn wrote(&mut self, now: Duration, written: Written) -> Option<End> {
        self.note(written);
        match self.slope() {
            Some(slope) if slope <= 0 => Some(End::Tradeoff),
            _ => self.limits.wrote(now, written),
        }
    }

    fn is_over(&self, now: Duration) -> Option<End> {
        self.limits.is_over(now)
    }

    fn ends_at(&self) -> Option<Duration> {
        self.limits.ends_at()
    }

    fn ended(&mut self) {
        self.points.clear();
        // Of many apps few are busy.
        self.points.shrink_to(POINTS_KEPT);
        self.sums = [0; 3];
        self.limits.ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// Where these pages, written one a second, end transactions.
    fn ends(policy: &mut dyn Transactioning, pages: &[u64]) -> Vec<(usize, End)> {
        let (mut open, mut written, mut found) = (BTreeSet::new(), Written::default(), Vec::new());
        for (n, page) in pages.iter().enumerate() {
            written.staleness += 1;
            written.overlap += u64::from(!open.insert(page));
            if let Some(end) = policy.wrote(second(n as u64), written) {
                found.push((n + 1, end));
                policy.ended();
                (open, written) = Default::default();
            }
        }
        found
    }

    /// The paper's section 3: two pages to one address make the staleness 2, and one of them is overwritten.
    #[test]
    fn efficiency_is_in_thousandths_and_below_one() {
        let of = |staleness, overlap| Written { staleness, overlap }.efficiency();
        assert_eq!([of(0, 0), of(1, 0), of(2, 1), of(3, 2), of(1000, 999)], [0, 0, 500, 666, 999]);
    }

    /// Fig. 3: the curve rises while four pages are written again and again, and falls where new ones come.
    #[test]
    fn a_transaction_ends_behind_the_peak_and_the_curve_begins_anew() {
        let rising: Vec<u64> = (0..40).map(|n| n % 4).collect();
        let falling = 100..140;
        let pages: Vec<u64> = rising.iter().copied().chain(falling.clone()).collect();
        let found = ends(&mut Tpl::new(5, Limits::default()), &pages);
        assert_eq!(found[0], (41, End::Tradeoff), "the first page behind the peak");
        assert!(found.windows(2).all(|two| two[1].0 - two[0].0 == 5), "flat: small transactions");
    }

    /// A window that is too small takes a dent for the peak: the paper fits a line for that.
    #[test]
    fn a_wider_window_passes_over_dents() {
        let mut pages: Vec<u64> = (0..200).map(|n| n % 8).collect();
        for dent in [40, 41, 42, 100, 101] {
            pages[dent] = 1000 + dent as u64;
        }
        let narrow = ends(&mut Tpl::new(4, Limits::default()), &pages);
        let wide = ends(&mut Tpl::new(32, Limits::default()), &pages);
        assert!(narrow.len() > 10 && wide.len() <= 2, "{narrow:?} {wide:?}");
    }

    #[test]
    fn limits_end_what_rises_for_ever() {
        let same = [7; 100];
        let cases = [
            (Limits { staleness: 30, ..Limits::default() }, End::Staleness, 30),
            (Limits { time: second(10), ..Limits::default() }, End::Interval, 11),
        ];
        for (limits, cause, each) in cases {
            let mut policies: [Box<dyn Transactioning>; 2] =
                [Box::new(Tpl::new(3, limits)), Box::new(Fixed::at(limits))];
            for policy in &mut policies {
                let found = ends(policy.as_mut(), &same);
                assert_eq!(found.first(), Some(&(each, cause)));
                assert_eq!(found.len(), 100 / each);
            }
        }
    }

    #[test]
    fn a_fixed_interval_counts_from_the_first_write_and_needs_no_other() {
        let mut policy = Fixed::interval(second(5));
        assert_eq!(policy.is_over(second(100)), None, "nothing was written");
        let one = Written { staleness: 1, overlap: 0 };
        assert_eq!(policy.wrote(second(100), one), None);
        assert_eq!([104, 105].map(|at| policy.is_over(second(at))), [None, Some(End::Interval)]);
        policy.ended();
        assert_eq!(policy.is_over(second(200)), None);
        assert_eq!(ends(&mut Fixed::staleness(10), &[1; 25]), [(10, End::Staleness), (20, End::Staleness)]);
    }
}
