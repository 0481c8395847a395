//! The plots: bars with the paper's marks, stacked bars by cause, lines, distributions, scatter plots, maps.

use super::svg::{Anchor, Svg, colour, tick_label, ticks};
use super::{Named, show};
use crate::cell::{Cell, FileExtents, HotFile, Row, SegmentMap};
use std::collections::BTreeMap;

const WIDTH: f64 = 640.0;
/// Below this many pixels of width a plot scrolls.
const LEAST: f64 = 480.0;
/// Room for labels at the left.
const LEFT: f64 = 128.0;
const RIGHT: f64 = 56.0;
/// Labels of more letters stand above their bars, not beside them.
const BESIDE_MOST: usize = 18;

/// Names in the order of their first appearance, each with a colour.
#[derive(Default)]
pub(super) struct Palette(Vec<String>);

impl Palette {
    fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Palette {
        let mut palette = Palette::default();
        for name in names {
            if !palette.0.iter().any(|n| n == name) {
                palette.0.push(name.to_owned());
            }
        }
        palette
    }

    fn colour(&self, name: &str) -> String {
        colour(self.0.iter().position(|n| n == name).unwrap_or(0))
    }

    fn legend(&self) -> String {
        let entry = |(n, name): (usize, &String)| {
            format!("<span><i style=\"background:{}\"></i>{}</span>", colour(n), super::svg::escape(name))
        };
        format!("<p class=\"legend\">{}</p>", self.0.iter().enumerate().map(entry).collect::<String>())
    }
}

/// Horizontal bars of ours, with a diamond where the paper's value is.
pub(super) fn bars(title: &str, rows: &[(String, &Row)]) -> String {
    let values = rows.iter().flat_map(|(_, r)| [r.ours, r.paper]).flatten();
    let (low, high) = values.fold((0.0f64, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    if rows.is_empty() || low == high {
        return String::new();
    }
    let above = rows.iter().any(|(label, _)| label.chars().count() > BESIDE_MOST);
    let (left, label_height) = if above { (16.0, 18.0) } else { (LEFT, 0.0) };
    let (row_height, top) = (26.0 + label_height, 8.0);
    let scale = ticks(low, high, 6);
    let (first, last) = (scale[0], scale[scale.len() - 1]);
    let x = |v: f64| left + (v - first) / (last - first) * (WIDTH - left - RIGHT);
    let bottom = top + rows.len() as f64 * row_height;
    let mut svg = Svg::new(WIDTH, bottom + 40.0, title);
    for t in &scale {
        svg.line((x(*t), top), (x(*t), bottom), if *t == 0.0 { "axis" } else { "grid" });
        svg.text((x(*t), bottom + 16.0), Anchor::Middle, "s", &tick_label(*t));
    }
    let unit = rows.first().map(|(_, r)| r.unit.as_str()).unwrap_or_default();
    svg.text(((x(first) + x(last)) / 2.0, bottom + 34.0), Anchor::Middle, "s", unit);
    for (n, (label, row)) in rows.iter().enumerate() {
        let y = top + n as f64 * row_height + label_height;
        if above {
            svg.text((left, y), Anchor::Start, "t", label);
        } else {
            svg.text((left - 8.0, y + 17.0), Anchor::End, "t", label);
        }
        match row.ours {
            Some(ours) => {
                let (from, to) = (x(0.0f64.clamp(first, last)), x(ours));
                let tip = format!("{label}: {} {unit}", show(ours));
                svg.rect((from.min(to), y + 4.0), ((to - from).abs(), 18.0), "var(--ours)", &tip);
                let (at, anchor, class) = value_place(from, to, row.paper.map(x));
                svg.text((at, y + 17.0), anchor, class, &show(ours));
            }
            None => {
                svg.text((x(0.0f64.clamp(first, last)) + 8.0, y + 17.0), Anchor::Start, "s", "not available")
            }
        }
        if let Some(paper) = row.paper {
            svg.line((x(paper), y + 2.0), (x(paper), y + 24.0), "mark");
            svg.diamond((x(paper), y + 13.0), 6.0, &format!("{label}, paper: {} {unit}", show(paper)));
            svg.text((x(paper) + 9.0, y + 17.0), Anchor::Start, "p", &show(paper));
        }
    }
    let legend = "<p class=\"legend\"><span><i style=\"background:var(--ours)\"></i>measured</span>\
                  <span><i class=\"d\"></i>the paper</span></p>";
    format!(
        "<figure>{legend}{}<figcaption>{}</figcaption></figure>",
        svg.finish(LEAST),
        super::svg::escape(title)
    )
}

/// Pixels that the number of a bar takes.
const NUMBER: f64 = 42.0;

/// Where the number of a bar from `from` to `to` stands, clear of the mark at `paper` and the mark's own number: inside the bar where
/// it is long enough, otherwise on the side where nothing is.
fn value_place(from: f64, to: f64, paper: Option<f64>) -> (f64, Anchor, &'static str) {
    let away = |at: f64| paper.is_none_or(|p| at + NUMBER < p - 8.0 || at - NUMBER > p + NUMBER);
    let (inside, towards) = if to >= from { (to - 6.0, Anchor::End) } else { (to + 6.0, Anchor::Start) };
    let long = (to - from).abs() > NUMBER + 8.0;
    let marked = paper.is_some_and(|p| (p - inside).abs() < NUMBER + 8.0 && (p - to) * (to - from) <= 0.0);
    match (long && !marked, to >= from) {
        (true, _) => (inside, towards, "i"),
        (false, true) if away(to) => (to + 8.0, Anchor::Start, "b"),
        (false, false) if from - to < NUMBER => (to - 8.0, Anchor::End, "b"),
        (false, _) if long => (from + if to >= from { 6.0 } else { -6.0 }, opposite(towards), "i"),
        (false, _) => (paper.map_or(to, |p| p.max(to)) + NUMBER + 10.0, Anchor::Start, "b"),
    }
}

fn opposite(anchor: Anchor) -> Anchor {
    match anchor {
        Anchor::Start => Anchor::End,
        _ => Anchor::Start,
    }
}

/// How close ours are to the paper's: a line for each characteristic, a dot for each row at its ratio.
pub(super) fn agreement(title: &str, rows: &[Row]) -> String {
    let palette = Palette::of(rows.iter().map(|r| r.scheme.as_str()));
    let ratios: Vec<(&Row, f64)> = rows.iter().filter_map(|r| Some((r, r.ratio()?))).collect();
    if ratios.is_empty() {
        return String::new();
    }
    let (low, high) = (0.8, 1.2);
    let (row_height, top) = (30.0, 8.0);
    let bottom = top + palette.0.len() as f64 * row_height;
    let x = |v: f64| LEFT + (v.clamp(low, high) - low) / (high - low) * (WIDTH - LEFT - RIGHT);
    let mut svg = Svg::new(WIDTH, bottom + 40.0, title);
    svg.rect((x(0.9), top), (x(1.1) - x(0.9), bottom - top), "var(--empty)", "within 10%");
    for t in [0.8, 0.9, 1.0, 1.1, 1.2] {
        svg.line((x(t), top), (x(t), bottom), if t == 1.0 { "mark" } else { "grid" });
        svg.text((x(t), bottom + 16.0), Anchor::Middle, "s", &tick_label(t));
    }
    svg.text(
        (x(1.0), bottom + 34.0),
        Anchor::Middle,
        "s",
        "ours / the paper's; what is further off stands at the edge",
    );
    for (n, name) in palette.0.iter().enumerate() {
        svg.text((LEFT - 8.0, top + n as f64 * row_height + 19.0), Anchor::End, "t", name);
    }
    for (n, (row, ratio)) in ratios.iter().enumerate() {
        let line = palette.0.iter().position(|name| *name == row.scheme).unwrap_or(0);
        let y = top + (line as f64 + 0.5) * row_height + (n * 7 % 13) as f64 - 6.0;
        let of = |v: Option<f64>| v.map_or_else(String::new, show);
        let tip = format!("{} {}: {} / {} {}", row.label, row.scheme, of(row.ours), of(row.paper), row.unit);
        svg.dot((x(*ratio), y), 4.0, "var(--ours)", &tip);
    }
    format!("<figure>{}<figcaption>{}</figcaption></figure>", svg.finish(LEAST), super::svg::escape(title))
}

/// For each workload a group of stacked bars, one for each scheme: bytes written by cause, in relation to the first scheme.
pub(super) fn causes(title: &str, cells: &[&Named<Cell>], schemes: &[String]) -> String {
    let workloads = Palette::of(cells.iter().map(|c| c.result.workload.as_str())).0;
    let found = |w: &str, s: &str| {
        cells.iter().map(|c| &c.result).find(|c| c.workload == w && c.scheme == s && c.written.total > 0)
    };
    let base = |w: &str| {
        let first = schemes.iter().find_map(|s| found(w, s));
        first.map(|c| c.written.total as f64)
    };
    let groups: Vec<(&String, f64)> = workloads.iter().filter_map(|w| Some((w, base(w)?))).collect();
    if groups.is_empty() {
        return String::new();
    }
    let share = |c: &Cell, base: f64| c.written.total as f64 / base;
    let highest = groups
        .iter()
        .flat_map(|(w, base)| schemes.iter().filter_map(move |s| Some(share(found(w, s)?, *base))))
        .fold(1.0, f64::max);
    let (bar, gap, left, top, height) = (14.0, 26.0, 46.0, 14.0, 230.0);
    let group = schemes.len() as f64 * bar + gap;
    let width = (left + groups.len() as f64 * group).max(420.0);
    let scale = ticks(0.0, highest, 5);
    let y = |v: f64| top + height * (1.0 - v / scale[scale.len() - 1]);
    let mut svg = Svg::new(width, top + height + 96.0, title);
    for t in &scale {
        svg.line((left, y(*t)), (width, y(*t)), if *t == 0.0 { "axis" } else { "grid" });
        svg.text((left - 6.0, y(*t) + 4.0), Anchor::End, "s", &format!("{:.0}%", t * 100.0));
    }
    for (g, (workload, base)) in groups.iter().enumerate() {
        let x0 = left + g as f64 * group + gap / 2.0;
        for (s, scheme) in schemes.iter().enumerate() {
            let x = x0 + s as f64 * bar;
            if let Some(cell) = found(workload, scheme) {
                let mut below = 0.0;
                for (n, (cause, bytes)) in cell.written.causes().into_iter().enumerate() {
                    let part = bytes as f64 / base;
                    let tip = format!(
                        "{workload}, {scheme}: {cause} {:.1} MB, all {:.1} MB",
                        bytes as f64 / 1e6,
                        cell.written.total as f64 / 1e6
                    );
                    svg.rect(
                        (x + 1.0, y(below + part)),
                        (bar - 2.0, y(below) - y(below + part)),
                        &colour(n),
                        &tip,
                    );
                    below += part;
                }
            }
            let at = (x + bar / 2.0, top + height + 8.0);
            svg.upright(at, scheme);
        }
        svg.text(
            (x0 + (group - gap) / 2.0, top + height + 84.0),
            Anchor::Middle,
            "b",
            workload.trim_start_matches("app-"),
        );
    }
    let legend = Palette::of(["data", "node", "compact", "meta", "gc"]).legend();
    format!(
        "<figure>{legend}{}<figcaption>{}</figcaption></figure>",
        svg.finish(width.min(880.0)),
        super::svg::escape(title)
    )
}

/// A line with a name.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Lines in one plot. With `log`, the horizontal axis is logarithmic.
pub(super) fn lines(title: &str, axes: (&str, &str), all: &[Line], log: bool) -> String {
    let points = || all.iter().flat_map(|l| l.points.iter());
    if points().count() < 2 {
        return String::new();
    }
    let place = |v: f64| if log { v.max(1e-3).log10() } else { v };
    let (x_low, x_high) =
        points().fold((f64::MAX, f64::MIN), |(l, h), p| (l.min(place(p.0)), h.max(place(p.0))));
    let y_high = points().fold(0.0, |h: f64, p| h.max(p.1));
    let y_scale = ticks(0.0, y_high, 5);
    let x_scale: Vec<f64> = if log {
        (x_low.floor() as i32..=x_high.ceil() as i32).map(f64::from).collect()
    } else {
        ticks(x_low, x_high, 6)
    };
    let (left, top, width, height) = (52.0, 30.0, WIDTH - 66.0, 210.0);
    let (x0, x1) = (x_scale[0], x_scale[x_scale.len() - 1]);
    let x = |v: f64| left + (v - x0) / (x1 - x0).max(1e-9) * width;
    let y = |v: f64| top + height * (1.0 - v / y_scale[y_scale.len() - 1]);
    let mut svg = Svg::new(WIDTH, top + height + 44.0, title);
    for t in &y_scale {
        svg.line((left, y(*t)), (left + width, y(*t)), if *t == 0.0 { "axis" } else { "grid" });
        svg.text((left - 6.0, y(*t) + 4.0), Anchor::End, "s", &tick_label(*t));
    }
    for t in &x_scale {
        let label = if log { tick_label(10f64.powf(*t)) } else { tick_label(*t) };
        svg.text((x(*t), top + height + 16.0), Anchor::Middle, "s", &label);
    }
    svg.text((left + width / 2.0, top + height + 36.0), Anchor::Middle, "s", axes.0);
    svg.text((0.0, top - 18.0), Anchor::Start, "s", axes.1);
    let palette = Palette::of(all.iter().map(|l| l.name.as_str()));
    for line in all {
        let placed: Vec<(f64, f64)> = line.points.iter().map(|p| (x(place(p.0)), y(p.1))).collect();
        svg.path(&placed, &palette.colour(&line.name), &line.name);
    }
    let legend = palette.legend();
    format!(
        "<figure>{legend}{}<figcaption>{}</figcaption></figure>",
        svg.finish(LEAST),
        super::svg::escape(title)
    )
}

/// The share of operations that took no longer, by scheme.
pub(super) fn distribution(title: &str, kind: &str, cells: &[&Named<Cell>], schemes: &[String]) -> String {
    let line = |scheme: &String| {
        let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
        let found = cells.iter().filter(|c| &c.result.scheme == scheme);
        for latency in found.filter_map(|c| c.result.latency_us.get(kind)) {
            for (bound, count) in &latency.buckets {
                *sums.entry((bound * 1000.0) as u64).or_default() += count;
            }
        }
        let all: u64 = sums.values().sum();
        let mut seen = 0;
        let points = sums
            .iter()
            .map(|(bound, count)| {
                seen += count;
                (*bound as f64 / 1000.0, 100.0 * seen as f64 / all.max(1) as f64)
            })
            .collect();
        Line { name: scheme.clone(), points }
    };
    let all: Vec<Line> = schemes.iter().map(line).filter(|l| !l.points.is_empty()).collect();
    lines(title, ("microseconds, logarithmic", "% took no longer"), &all, true)
}

/// Bytes on the device for each byte the workload wrote, as it went on.
pub(super) fn amplification(title: &str, cells: &[&Named<Cell>], schemes: &[String]) -> String {
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
    lines(
        title,
        (
            "MB that the application passed to write",
            "bytes written to the device for each byte passed to write",
        ),
        &all,
        false,
    )
}

/// Files in the plane of hotness: reads across, writes up, both logarithmic.
pub(super) fn scatter(title: &str, files: &[HotFile]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let place = |n: u64| (n as f64 + 1.0).log10();
    let high = |of: fn(&HotFile) -> u64| files.iter().map(|f| place(of(f))).fold(1.0, f64::max).ceil();
    let (x_high, y_high) = (high(|f| f.reads), high(|f| f.writes));
    let (left, top, width, height) = (52.0, 30.0, WIDTH - 66.0, 320.0);
    let x = |v: f64| left + v / x_high * width;
    let y = |v: f64| top + height * (1.0 - v / y_high);
    let mut svg = Svg::new(WIDTH, top + height + 44.0, title);
    for n in 0..=x_high as i32 {
        let v = f64::from(n);
        svg.line((x(v), top), (x(v), top + height), "grid");
        svg.text(
            (x(v), top + height + 16.0),
            Anchor::Middle,
            "s",
            &tick_label(10f64.powi(n) - f64::from(n == 0)),
        );
    }
    for n in 0..=y_high as i32 {
        let v = f64::from(n);
        svg.line((left, y(v)), (left + width, y(v)), "grid");
        svg.text((left - 6.0, y(v) + 4.0), Anchor::End, "s", &tick_label(10f64.powi(n) - f64::from(n == 0)));
    }
    svg.text((left + width / 2.0, top + height + 36.0), Anchor::Middle, "s", "reads in a window");
    svg.text((0.0, top - 18.0), Anchor::Start, "s", "writes in a window");
    let palette = Palette::of([
        "read-hot-write-cold",
        "read-hot-write-hot",
        "read-cold-write-hot",
        "read-cold-write-cold",
    ]);
    for (n, f) in files.iter().enumerate() {
        // Files with the same counts would hide each other: a little to the side, always the same.
        let (dx, dy) = ((n * 7 % 11) as f64 - 5.0, (n * 5 % 9) as f64 - 4.0);
        let at = (x(place(f.reads)) + dx, y(place(f.writes)) + dy);
        let tip =
            format!("{}, window {}: {} reads, {} writes, {}", f.file, f.window, f.reads, f.writes, f.group);
        svg.dot(at, 4.0, &palette.colour(&f.group), &tip);
    }
    let legend = palette.legend();
    format!(
        "<figure>{legend}{}<figcaption>{}</figcaption></figure>",
        svg.finish(LEAST),
        super::svg::escape(title)
    )
}

/// Segments that hold anything, in order: the fuller, the more of the square is filled; the colour is the log's.
pub(super) fn segment_map(title: &str, map: &SegmentMap) -> String {
    const ACROSS: usize = 40;
    let logs = ["HotData", "WarmData", "ColdData", "HotNode", "WarmNode", "ColdNode"];
    let palette = Palette::of(logs);
    let side = WIDTH / ACROSS as f64;
    let rows = map.segments.len().div_ceil(ACROSS).max(1);
    let mut svg = Svg::new(WIDTH, rows as f64 * side + 4.0, title);
    for (n, (segno, valid, kind)) in map.segments.iter().enumerate() {
        let (x, y) = ((n % ACROSS) as f64 * side, (n / ACROSS) as f64 * side);
        let full = f64::from(*valid) / f64::from(map.blocks_per_segment.max(1));
        svg.rect((x + 1.0, y + 1.0), (side - 2.0, side - 2.0), "var(--empty)", "");
        let tip = format!("segment {segno}: {valid} of {} blocks, {kind}", map.blocks_per_segment);
        let filled = (side - 2.0) * full;
        svg.rect((x + 1.0, y + side - 1.0 - filled), (side - 2.0, filled), &palette.colour(kind), &tip);
    }
    let legend = palette.legend();
    format!(
        "<figure>{legend}{}<figcaption>{}</figcaption></figure>",
        svg.finish(LEAST),
        super::svg::escape(title)
    )
}

/// How many pieces the most scattered files have: a bar for each, divided where the file's blocks are not neighbours.
pub(super) fn extents(title: &str, files: &[FileExtents]) -> String {
    const SHOWN: usize = 12;
    let mut sorted: Vec<&FileExtents> = files.iter().filter(|f| !f.extents.is_empty()).collect();
    sorted.sort_by_key(|f| std::cmp::Reverse(f.extents.len()));
    sorted.truncate(SHOWN);
    if sorted.is_empty() {
        return String::new();
    }
    let left = 196.0;
    let (height, width) = (20.0, WIDTH - left - 80.0);
    let mut svg = Svg::new(WIDTH, sorted.len() as f64 * height + 6.0, title);
    for (n, f) in sorted.iter().enumerate() {
        let y = n as f64 * height + 4.0;
        let blocks: u64 = f.extents.iter().map(|(_, len)| len).sum();
        svg.text((left - 8.0, y + 10.5), Anchor::End, "s", &f.file);
        let mut at = 0;
        for (i, (first, len)) in f.extents.iter().enumerate() {
            let (from, to) =
                (left + width * at as f64 / blocks as f64, left + width * (at + len) as f64 / blocks as f64);
            let tip = format!("{len} blocks from {first} on");
            svg.rect((from, y), (to - from, height - 8.0), &colour(i % 2), &tip);
            at += len;
        }
        svg.text((left + width + 8.0, y + 10.5), Anchor::Start, "s", &format!("{} extents", f.extents.len()));
    }
    format!("<figure>{}<figcaption>{}</figcaption></figure>", svg.finish(LEAST), super::svg::escape(title))
}
