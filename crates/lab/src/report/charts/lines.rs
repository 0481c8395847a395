//! Plots of lines: figures over a parameter, shares over time, amplification over what was written.

use super::{LEAST, Palette, WIDTH, figure, scale_up};
use crate::cell::Cell;
use crate::report::numbers::show;
use crate::report::results::Named;
use crate::report::svg::{Anchor, Svg, tick_label, ticks};
use std::collections::BTreeMap;

const PLACE_LEFT: f64 = 52.0;
const TOP: f64 = 30.0;
const ACROSS: f64 = WIDTH - 66.0;
const HEIGHT: f64 = 210.0;
/// The points of a line that has no more are marked.
const MARKED: usize = 12;
/// The vertical axis begins near the smallest value where that is more than this part of the largest.
const NEAR: f64 = 0.5;

/// A line with a name.
pub(in crate::report) struct Line {
    pub(in crate::report) name: String,
    pub(in crate::report) points: Vec<(f64, f64)>,
}

/// What the axes say, and how they are divided.
pub(in crate::report) struct Axes<'a> {
    pub(in crate::report) across: &'a str,
    pub(in crate::report) up: &'a str,
    /// Across in powers of ten.
    pub(in crate::report) logarithmic: bool,
    /// Up from zero in any case.
    pub(in crate::report) from_zero: bool,
    /// Few points are marked, as each was measured by itself.
    pub(in crate::report) marked: bool,
}

/// The two scales of a plot.
struct Scales {
    x: Vec<f64>,
    y: Vec<f64>,
    logarithmic: bool,
}

impl Scales {
    fn new(axes: &Axes<'_>, points: &[(f64, f64)]) -> Scales {
        let logarithmic = axes.logarithmic;
        let place = |v: f64| if logarithmic { v.max(1e-3).log10() } else { v };
        let range = |of: &dyn Fn(&(f64, f64)) -> f64| {
            points.iter().map(of).fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)))
        };
        let ((x_low, x_high), (y_low, y_high)) = (range(&|p| place(p.0)), range(&|p| p.1));
        let near = !axes.from_zero && y_low > NEAR * y_high;
        let y = ticks(if near { y_low } else { y_low.min(0.0) }, y_high.max(0.0), 5);
        let x = match logarithmic {
            true => (x_low.floor() as i32..=x_high.ceil() as i32).map(f64::from).collect(),
            false => ticks(x_low, x_high, 6),
        };
        Scales { x, y, logarithmic }
    }

    fn x(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(1e-3).log10() } else { value };
        let (first, last) = (self.x[0], self.x[self.x.len() - 1]);
        PLACE_LEFT + (value - first) / (last - first).max(1e-9) * ACROSS
    }

    fn y(&self, value: f64) -> f64 {
        let (first, last) = (self.y[0], self.y[self.y.len() - 1]);
        TOP + HEIGHT * (1.0 - (value - first) / (last - first).max(1e-9))
    }

    fn draw(&self, svg: &mut Svg, axes: &Axes<'_>) {
        scale_up(svg, &self.y, (PLACE_LEFT, PLACE_LEFT + ACROSS), &|value| self.y(value), tick_label);
        for t in &self.x {
            let value = if self.logarithmic { 10f64.powf(*t) } else { *t };
            svg.text((self.x(value), TOP + HEIGHT + 16.0), Anchor::Middle, "s", &tick_label(value));
        }
        svg.text((PLACE_LEFT + ACROSS / 2.0, TOP + HEIGHT + 36.0), Anchor::Middle, "s", axes.across);
        svg.text((0.0, TOP - 18.0), Anchor::Start, "s", axes.up);
    }
}

/// Lines in one plot.
pub(in crate::report) fn lines(title: &str, axes: &Axes<'_>, all: &[Line]) -> String {
    let points: Vec<(f64, f64)> = all.iter().flat_map(|l| l.points.iter().copied()).collect();
    if points.len() < 2 {
        return String::new();
    }
    let scales = Scales::new(axes, &points);
    let mut svg = Svg::new(WIDTH, TOP + HEIGHT + 44.0, title);
    scales.draw(&mut svg, axes);
    let palette = Palette::of(all.iter().map(|l| l.name.as_str()));
    for line in all {
        let colour = palette.colour(&line.name);
        let placed: Vec<(f64, f64)> = line.points.iter().map(|p| (scales.x(p.0), scales.y(p.1))).collect();
        svg.path(&placed, &colour, &line.name);
        if axes.marked && line.points.len() <= MARKED {
            for (at, (x, y)) in placed.iter().zip(&line.points) {
                svg.dot(*at, 3.5, &colour, &format!("{}, {}: {} {}", line.name, show(*x), show(*y), axes.up));
            }
        }
    }
    figure(title, &palette.legend(), &svg.finish(LEAST))
}

/// The share of operations that took no longer, by scheme.
pub(in crate::report) fn distribution(
    title: &str,
    kind: &str,
    cells: &[&Named<Cell>],
    schemes: &[String],
) -> String {
    let line = |scheme: &String| {
        let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
        let found = cells.iter().filter(|c| &c.result.scheme == scheme);
        for latency in found.filter_map(|c| c.result.latency_us.get(kind)) {
            for (bound, count) in &latency.buckets {
                *sums.entry((bound * 1000.0) as u64).or_default() += *count as f64;
            }
        }
        let all: f64 = sums.values().sum();
        let mut seen = 0.0;
        let points = sums.iter().map(|(bound, count)| {
            seen += count;
            (*bound as f64 / 1000.0, 100.0 * seen / all.max(1.0))
        });
        Line { name: scheme.clone(), points: points.collect() }
    };
    let all: Vec<Line> = schemes.iter().map(line).filter(|l| !l.points.is_empty()).collect();
    let across = "microseconds, logarithmic";
    lines(
        title,
        &Axes { across, up: "% took no longer", logarithmic: true, from_zero: true, marked: false },
        &all,
    )
}

/// Bytes on the device for each byte the workload wrote, as it went on.
pub(in crate::report) fn amplification(title: &str, cells: &[&Named<Cell>], schemes: &[String]) -> String {
    let line = |scheme: &String| {
        let cell = cells.iter().find(|c| &c.result.scheme == scheme)?;
        let points = cell.result.progress.iter().filter(|(app, _)| *app > 0);
        let points: Vec<(f64, f64)> =
            points.map(|(app, dev)| (*app as f64 / 1e6, *dev as f64 / *app as f64)).collect();
        // The first points are of a few pages only.
        let skip = points.len() / 20;
        Some(Line { name: scheme.clone(), points: points.into_iter().skip(skip).collect() })
    };
    let all: Vec<Line> = schemes.iter().filter_map(line).collect();
    let axes = Axes {
        across: "MB that the application passed to write",
        up: "bytes written to the device for each byte passed to write",
        logarithmic: false,
        from_zero: true,
        marked: true,
    };
    lines(title, &axes, &all)
}
