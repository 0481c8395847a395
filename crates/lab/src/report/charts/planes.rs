//! Plots of places: files in the plane of hotness, segments, extents of files.

use super::{LEAST, Palette, WIDTH, figure};
use crate::cell::{FileExtents, HotFile, SegmentMap};
use crate::report::svg::{Anchor, Svg, colour, tick_label};

/// The plane of hotness: where it begins, how large it is, and how far its edge is from zero, as dots are
/// moved a little aside.
const LEFT: f64 = 58.0;
const TOP: f64 = 30.0;
const ACROSS: f64 = WIDTH - 72.0;
const HEIGHT: f64 = 320.0;
const EDGE: f64 = 12.0;

/// An axis of counts: zero, then powers of ten.
struct Counts {
    highest: i32,
    length: f64,
}

impl Counts {
    fn new(highest: u64, length: f64) -> Counts {
        Counts { highest: (highest.max(2) as f64).log10().ceil() as i32, length }
    }

    /// Pixels from the axis' begin.
    fn place(&self, count: f64) -> f64 {
        let most = (10f64.powi(self.highest) + 1.0).log10();
        EDGE + (count + 1.0).log10() / most * (self.length - EDGE)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        std::iter::once(0.0).chain((0..=self.highest).map(|n| 10f64.powi(n)))
    }
}

/// Files in the plane of hotness: reads across, writes up, both logarithmic.
pub(in crate::report) fn scatter(title: &str, files: &[HotFile]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let most = |of: fn(&HotFile) -> u64| files.iter().map(of).max().unwrap_or(0);
    let (across, up) = (Counts::new(most(|f| f.reads), ACROSS), Counts::new(most(|f| f.writes), HEIGHT));
    let bottom = TOP + HEIGHT;
    let mut svg = Svg::new(WIDTH, bottom + 44.0, title);
    for n in across.ticks() {
        let x = LEFT + across.place(n);
        svg.line((x, TOP), (x, bottom), "grid");
        svg.text((x, bottom + 16.0), Anchor::Middle, "s", &tick_label(n));
    }
    for n in up.ticks() {
        let y = bottom - up.place(n);
        svg.line((LEFT, y), (LEFT + ACROSS, y), "grid");
        svg.text((LEFT - 6.0, y + 4.0), Anchor::End, "s", &tick_label(n));
    }
    svg.text((LEFT + ACROSS / 2.0, bottom + 36.0), Anchor::Middle, "s", "reads in a window");
    svg.text((0.0, TOP - 18.0), Anchor::Start, "s", "writes in a window");
    let palette = Palette::of([
        "read-hot-write-cold",
        "read-hot-write-hot",
        "read-cold-write-hot",
        "read-cold-write-cold",
    ]);
    for (n, f) in files.iter().enumerate() {
        // Files with the same counts would hide each other: a little to the side, always the same.
        let (dx, dy) = ((n * 7 % 11) as f64 - 5.0, (n * 5 % 9) as f64 - 4.0);
        let at = (LEFT + across.place(f.reads as f64) + dx, bottom - up.place(f.writes as f64) + dy);
        let tip =
            format!("{}, window {}: {} reads, {} writes, {}", f.file, f.window, f.reads, f.writes, f.group);
        svg.dot(at, 4.0, &palette.colour(&f.group), &tip);
    }
    figure(title, &palette.legend(), &svg.finish(LEAST))
}

/// Segments that hold anything, in order: the fuller, the more of the square is filled; the colour is the log's.
pub(in crate::report) fn segment_map(title: &str, map: &SegmentMap) -> String {
    const IN_A_ROW: usize = 40;
    let logs = ["HotData", "WarmData", "ColdData", "HotNode", "WarmNode", "ColdNode"];
    let palette = Palette::of(logs);
    let side = WIDTH / IN_A_ROW as f64;
    let rows = map.segments.len().div_ceil(IN_A_ROW).max(1);
    let mut svg = Svg::new(WIDTH, rows as f64 * side + 4.0, title);
    for (n, (segno, valid, kind)) in map.segments.iter().enumerate() {
        let (x, y) = ((n % IN_A_ROW) as f64 * side, (n / IN_A_ROW) as f64 * side);
        let full = f64::from(*valid) / f64::from(map.blocks_per_segment.max(1));
        svg.rect((x + 1.0, y + 1.0), (side - 2.0, side - 2.0), "var(--empty)", "");
        let tip = format!("segment {segno}: {valid} of {} blocks, {kind}", map.blocks_per_segment);
        let filled = (side - 2.0) * full;
        svg.rect((x + 1.0, y + side - 1.0 - filled), (side - 2.0, filled), &palette.colour(kind), &tip);
    }
    figure(title, &palette.legend(), &svg.finish(LEAST))
}

/// How many pieces the most scattered files have: a bar for each, divided where the file's blocks are not neighbours.
pub(in crate::report) fn extents(title: &str, files: &[FileExtents]) -> String {
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
        let blocks: f64 = f.extents.iter().map(|(_, len)| *len as f64).sum();
        svg.text((left - 8.0, y + 10.5), Anchor::End, "s", &f.file);
        let mut at = 0.0;
        for (i, (first, len)) in f.extents.iter().enumerate() {
            let part = |blocks_before: f64| left + width * blocks_before / blocks.max(1.0);
            let (from, to) = (part(at), part(at + *len as f64));
            let tip = format!("{len} blocks from {first} on");
            svg.rect((from, y), (to - from, height - 8.0), &colour(i % 2), &tip);
            at += *len as f64;
        }
        svg.text((left + width + 8.0, y + 10.5), Anchor::Start, "s", &format!("{} extents", f.extents.len()));
    }
    figure(title, "", &svg.finish(LEAST))
}
