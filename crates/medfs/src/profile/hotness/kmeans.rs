//! Four groups of files by K-means, on a logarithmic scale (MedFS, section 4.2.1).
//!
//! A file is a [`Point`]: how often it is read and written in a window. Each centroid stands for one
//! [`Hotness`] from the start, so that a group keeps its name while it moves. Rounds go on from where the
//! last ones ended, or, where that makes much closer groups, from the corners of where the files are: K-means
//! alone would not leave a bad division.
//!
//! Invariants, which keep the names true whatever files there are:
//! - A cold coordinate is [`COLD_MOST`] at most, a hot one [`HOT_LEAST`] at least and [`GAP`] above every
//!   cold one of its axis. So what is read more often is never colder by that, and files that all are busy
//!   are not called cold.
//! - Each centroid has its start as a member, weighing one file: a group of no file or few goes back there.
//! - Coordinates are finite: counts are.

use super::Hotness;

/// Coordinates of the centroids at the start, and what draws them there: never, and 63 times in a window.
const START: [f32; 2] = [0.0, 6.0];
/// Largest coordinate of a cold centroid: 7 times in a window.
const COLD_MOST: f32 = 3.0;
/// Smallest coordinate of a hot centroid: 15 times in a window.
const HOT_LEAST: f32 = 4.0;
/// Distance of hot from cold: four times as often.
const GAP: f32 = 2.0;
/// Rounds of one update, which need not reach the end: the next update goes on.
const ROUNDS: usize = 8;
/// Part of the spread of the groups to which a new beginning must bring it.
const MUCH_CLOSER: f64 = 0.8;
/// Movement in a round below which the centroids stand still.
const STILL: f32 = 0.01;

/// How often a file is read and written in a window: the logarithm to base 2 of one more than that.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::profile) struct Point {
    pub(in crate::profile) reads: f32,
    pub(in crate::profile) writes: f32,
}

impl Point {
    /// The point of a file that is read and written so many times in a window.
    pub(in crate::profile) fn of(reads: f32, writes: f32) -> Point {
        Point { reads: (1.0 + reads).log2(), writes: (1.0 + writes).log2() }
    }

    /// Times in a window: what [`Point::of`] was given.
    pub(super) fn times(self) -> [f32; 2] {
        [self.reads.exp2() - 1.0, self.writes.exp2() - 1.0]
    }

    fn distance(self, other: Point) -> f32 {
        (self.reads - other.reads).powi(2) + (self.writes - other.writes).powi(2)
    }
}

/// The middle of each group, by [`Hotness::index`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Centroids(pub(super) [Point; 4]);

impl Default for Centroids {
    fn default() -> Centroids {
        Centroids(Hotness::ALL.map(|h| Point {
            reads: START[usize::from(h.is_read_hot())],
            writes: START[usize::from(h.is_write_hot())],
        }))
    }
}

impl Centroids {
    /// The group of a file; of two equally near ones the colder.
    pub(super) fn nearest(&self, point: Point) -> Hotness {
        let mut nearest = Hotness::ALL[0];
        for hotness in &Hotness::ALL[1..] {
            if point.distance(self.0[hotness.index()]) < point.distance(self.0[nearest.index()]) {
                nearest = *hotness;
            }
        }
        nearest
    }

    /// How many files each group has.
    pub(super) fn sizes(&self, points: &[Point]) -> [u64; 4] {
        let mut sizes = [0; 4];
        points.iter().for_each(|p| sizes[self.nearest(*p).index()] += 1);
        sizes
    }

    /// Moves the centroids towards the middles of their groups, for some rounds or until they stand still.
    pub(super) fn update(&mut self, points: &[Point]) {
        self.settle(points);
        let mut anew = Centroids::corners(points);
        anew.settle(points);
        if anew.spread(points) < self.spread(points) * MUCH_CLOSER {
            *self = anew;
        }
    }

    fn settle(&mut self, points: &[Point]) {
        for _ in 0..ROUNDS {
            let new = self.round(points);
            let moved = self.0.iter().zip(&new.0).map(|(a, b)| a.distance(*b)).fold(0.0, f32::max);
            *self = new;
            if moved < STILL * STILL {
                return;
            }
        }
    }

    /// The corners of the range that the points are in.
    fn corners(points: &[Point]) -> Centroids {
        let range = |of: fn(&Point) -> f32| {
            let all = || points.iter().map(of);
            [all().fold(f32::MAX, f32::min), all().fold(0.0, f32::max)]
        };
        let (reads, writes) = (range(|p| p.reads), range(|p| p.writes));
        let corner = |h: Hotness| Point {
            reads: reads[usize::from(h.is_read_hot())],
            writes: writes[usize::from(h.is_write_hot())],
        };
        Centroids(Hotness::ALL.map(corner)).separated()
    }

    /// Sum of the squared distances of the points from their centroids.
    fn spread(&self, points: &[Point]) -> f64 {
        points.iter().map(|p| f64::from(p.distance(self.0[self.nearest(*p).index()]))).sum()
    }

    fn round(&self, points: &[Point]) -> Centroids {
        let start = Centroids::default();
        // In 64 bits: the sum of many small numbers loses none.
        let mut sums = start.0.map(|p| (f64::from(p.reads), f64::from(p.writes), 1.0));
        for point in points {
            let sum = &mut sums[self.nearest(*point).index()];
            *sum = (sum.0 + f64::from(point.reads), sum.1 + f64::from(point.writes), sum.2 + 1.0);
        }
        let mean = |(reads, writes, n)| Point { reads: (reads / n) as f32, writes: (writes / n) as f32 };
        Centroids(sums.map(mean)).separated()
    }

    /// Keeps hot above cold on both axes.
    fn separated(mut self) -> Centroids {
        type Axis = (fn(Hotness) -> bool, fn(&mut Point) -> &mut f32);
        let axes: [Axis; 2] =
            [(Hotness::is_read_hot, |p| &mut p.reads), (Hotness::is_write_hot, |p| &mut p.writes)];
        for (is_hot, of) in axes {
            let mut most = 0.0f32;
            for cold in Hotness::ALL.into_iter().filter(|h| !is_hot(*h)) {
                let at = of(&mut self.0[cold.index()]);
                *at = at.min(COLD_MOST);
                most = most.max(*at);
            }
            for hot in Hotness::ALL.into_iter().filter(|h| is_hot(*h)) {
                let at = of(&mut self.0[hot.index()]);
                *at = at.max(HOT_LEAST).max(most + GAP);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn updated(points: &[Point]) -> Centroids {
        let mut centroids = Centroids::default();
        centroids.update(points);
        centroids
    }

    #[test]
    fn no_file_and_one_file() {
        assert_eq!(updated(&[]), Centroids::default());
        let one = Point::of(0.0, 1000.0);
        assert_eq!(updated(&[one]).nearest(one), Hotness::WriteHot);
        let idle = Point::of(1.0, 1.0);
        assert_eq!(updated(&[idle]).nearest(idle), Hotness::Cold);
    }

    #[test]
    fn four_groups_are_told_apart_over_a_thousandfold_range() {
        for scale in [1.0, 10.0, 100.0, 1e3] {
            let groups = [(0.1, 0.1), (50.0, 0.1), (0.1, 50.0), (50.0, 50.0)];
            let points: Vec<Point> = (0..400)
                .map(|n| {
                    let (reads, writes) = groups[n % 4];
                    let wobble = 1.0 + (n % 7) as f32 / 10.0;
                    Point::of(reads * scale * wobble, writes * scale * wobble)
                })
                .collect();
            let centroids = updated(&points);
            for (n, point) in points.iter().enumerate() {
                assert_eq!(centroids.nearest(*point), Hotness::ALL[n % 4], "scale {scale}: {centroids:?}");
            }
        }
    }

    #[test]
    fn one_file_that_is_much_busier_does_not_make_the_others_cold() {
        let mut points = vec![Point::of(0.0, 100.0); 99];
        points.push(Point::of(0.0, 50_000.0));
        assert_eq!(updated(&points).sizes(&points)[Hotness::WriteHot.index()], 100);
    }

    #[test]
    fn files_that_all_get_busy_slowly_do_not_stay_cold() {
        let mut centroids = Centroids::default();
        for step in 0..100 {
            let points = vec![Point::of(0.0, 2.0 * step as f32); 50];
            centroids.update(&points);
        }
        assert_eq!(centroids.nearest(Point::of(0.0, 198.0)), Hotness::WriteHot, "{centroids:?}");
    }

    fn points() -> impl Strategy<Value = Vec<Point>> {
        let count = prop_oneof![Just(0u32), 0u32..10, 0u32..1000, any::<u32>()];
        let point = (count.clone(), count).prop_map(|(r, w)| Point::of(r as f32, w as f32));
        prop::collection::vec(point, 0..60)
    }

    proptest! {
        #[test]
        fn hot_stays_above_cold(windows in prop::collection::vec(points(), 1..6)) {
            let mut centroids = Centroids::default();
            for points in &windows {
                centroids.update(points);
                prop_assert_eq!(centroids.sizes(points).iter().sum::<u64>(), points.len() as u64);
            }
            let all = Hotness::ALL.map(|h| (h, centroids.0[h.index()]));
            for (a, cold) in all {
                prop_assert!(cold.reads.is_finite() && cold.writes.is_finite());
                prop_assert!(cold.reads >= 0.0 && cold.writes >= 0.0);
                for (b, hot) in all {
                    prop_assert!(a.is_read_hot() || !b.is_read_hot() || hot.reads >= cold.reads + GAP);
                    prop_assert!(a.is_write_hot() || !b.is_write_hot() || hot.writes >= cold.writes + GAP);
                }
            }
        }

        #[test]
        fn more_of_it_is_never_colder(points in points(), at in (0u32..5000, 0u32..5000), more in 1u32..5000) {
            let centroids = updated(&points);
            let (reads, writes) = (at.0 as f32, at.1 as f32);
            let now = centroids.nearest(Point::of(reads, writes));
            let read_more = centroids.nearest(Point::of(reads + more as f32, writes));
            let written_more = centroids.nearest(Point::of(reads, writes + more as f32));
            prop_assert!(read_more.is_read_hot() || !now.is_read_hot());
            prop_assert!(written_more.is_write_hot() || !now.is_write_hot());
        }
    }
}
