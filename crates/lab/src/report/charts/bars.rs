//! Bars of what was measured with the paper's marks, and how close all figures of a table are to the paper's.
//!
//! Numbers stand in columns at the right, so that none lies on a bar, a mark or another number.

use super::{LEAST, LEFT, Palette, WIDTH, figure};
use crate::cell::Row;
use crate::report::numbers::{show, show_paper};
use crate::report::svg::{Anchor, Svg, tick_label, ticks};

/// Where the columns of numbers end.
const OURS: f64 = WIDTH - 60.0;
const PAPER: f64 = WIDTH - 4.0;
/// Room at the right: for both columns, for ours alone.
const BOTH: f64 = 128.0;
const ALONE: f64 = 76.0;
/// Labels of more letters stand above their bars, not beside them.
const BESIDE_MOST: usize = 18;
/// Height of a bar's row, and of a label above it.
const ROW: f64 = 26.0;
const ABOVE: f64 = 18.0;

/// A plot of bars while it is drawn.
struct Bars<'r> {
    svg: Svg,
    rows: &'r [(String, &'r Row)],
    unit: &'r str,
    /// The first and the last tick, and where they are.
    scale: Vec<f64>,
    across: (f64, f64),
    top: f64,
    above: bool,
    compared: bool,
}

impl<'r> Bars<'r> {
    fn new(title: &str, rows: &'r [(String, &'r Row)], (low, high): (f64, f64)) -> Bars<'r> {
        let above = rows.iter().any(|(label, _)| label.chars().count() > BESIDE_MOST);
        let compared = rows.iter().any(|(_, row)| row.paper.is_some());
        let left = if above { 16.0 } else { LEFT };
        let right = WIDTH - if compared { BOTH } else { ALONE };
        let top = if compared { 24.0 } else { 8.0 };
        let height = top + rows.len() as f64 * Bars::height(above) + 40.0;
        let unit = rows.first().map(|(_, r)| r.unit.as_str()).unwrap_or_default();
        let scale = ticks(low, high, 6);
        Bars {
            svg: Svg::new(WIDTH, height, title),
            rows,
            unit,
            scale,
            across: (left, right),
            top,
            above,
            compared,
        }
    }

    fn height(above: bool) -> f64 {
        if above { ROW + ABOVE } else { ROW }
    }

    fn x(&self, value: f64) -> f64 {
        let (first, last) = (self.scale[0], self.scale[self.scale.len() - 1]);
        let (left, right) = self.across;
        left + (value - first) / (last - first) * (right - left)
    }

    fn axes(&mut self) {
        let bottom = self.top + self.rows.len() as f64 * Bars::height(self.above);
        for t in self.scale.clone() {
            let x = self.x(t);
            self.svg.line((x, self.top), (x, bottom), if t == 0.0 { "axis" } else { "grid" });
            self.svg.text((x, bottom + 16.0), Anchor::Middle, "s", &tick_label(t));
        }
        let middle = (self.across.0 + self.across.1) / 2.0;
        self.svg.text((middle, bottom + 34.0), Anchor::Middle, "s", self.unit);
        if self.compared {
            self.svg.text((OURS, 14.0), Anchor::End, "s", "measured");
            self.svg.text((PAPER, 14.0), Anchor::End, "p", "paper");
        }
    }

    fn row(&mut self, n: usize, label: &str, row: &Row) {
        let begin = self.top + n as f64 * Bars::height(self.above);
        let y = if self.above { begin + ABOVE } else { begin };
        if self.above {
            self.svg.text((self.across.0, y), Anchor::Start, "t", label);
        } else {
            self.svg.text((self.across.0 - 8.0, y + 17.0), Anchor::End, "t", label);
        }
        self.ours(y, label, row);
        if let Some(paper) = row.paper {
            let x = self.x(paper);
            let tip = format!("{label}, paper: {} {}", show_paper(paper), self.unit);
            self.svg.line((x, y + 2.0), (x, y + 24.0), "mark");
            self.svg.diamond((x, y + 13.0), 6.0, &tip);
            self.svg.text((PAPER, y + 17.0), Anchor::End, "p", &show_paper(paper));
        }
    }

    fn ours(&mut self, y: f64, label: &str, row: &Row) {
        let column = if self.compared { OURS } else { PAPER };
        let Some(ours) = row.ours else {
            return self.svg.text((column, y + 17.0), Anchor::End, "s", "not measured");
        };
        let (from, to) = (self.x(0.0), self.x(ours));
        let tip = format!("{label}: {} {}", show(ours), self.unit);
        self.svg.rect((from.min(to), y + 4.0), ((to - from).abs(), 18.0), "var(--ours)", &tip);
        self.svg.text((column, y + 17.0), Anchor::End, "b", &show(ours));
    }

    fn legend(&self) -> String {
        let measured = "<span><i style=\"background:var(--ours)\"></i>measured</span>";
        let paper = if self.compared { "<span><i class=\"d\"></i>the paper</span>" } else { "" };
        format!("<p class=\"legend\">{measured}{paper}</p>")
    }
}

/// Horizontal bars of ours, with a diamond where the paper's value is.
pub(in crate::report) fn bars(title: &str, rows: &[(String, &Row)]) -> String {
    let values = rows.iter().flat_map(|(_, r)| [r.ours, r.paper]).flatten();
    let (low, high) = values.fold((0.0f64, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    if rows.is_empty() || low == high {
        return String::new();
    }
    let mut plot = Bars::new(title, rows, (low, high));
    plot.axes();
    for (n, (label, row)) in rows.iter().enumerate() {
        plot.row(n, label, row);
    }
    let legend = plot.legend();
    figure(title, &legend, &plot.svg.finish(LEAST))
}

/// How close ours are to the paper's: a line for each characteristic, a dot for each row at its ratio.
pub(in crate::report) fn agreement(title: &str, rows: &[Row]) -> String {
    let palette = Palette::of(rows.iter().map(|r| r.scheme.as_str()));
    let ratios: Vec<(&Row, f64)> = rows.iter().filter_map(|r| Some((r, r.ratio()?))).collect();
    if ratios.is_empty() {
        return String::new();
    }
    let (low, high) = (0.8, 1.2);
    let (row_height, top) = (30.0, 8.0);
    let bottom = top + palette.0.len() as f64 * row_height;
    let x = |v: f64| LEFT + (v.clamp(low, high) - low) / (high - low) * (WIDTH - LEFT - 56.0);
    let mut svg = Svg::new(WIDTH, bottom + 40.0, title);
    svg.rect((x(0.9), top), (x(1.1) - x(0.9), bottom - top), "var(--empty)", "within 10%");
    for t in [0.8, 0.9, 1.0, 1.1, 1.2] {
        svg.line((x(t), top), (x(t), bottom), if t == 1.0 { "mark" } else { "grid" });
        svg.text((x(t), bottom + 16.0), Anchor::Middle, "s", &tick_label(t));
    }
    let below = "ours / the paper's; what is further off stands at the edge";
    svg.text((x(1.0), bottom + 34.0), Anchor::Middle, "s", below);
    for (n, name) in palette.0.iter().enumerate() {
        svg.text((LEFT - 8.0, top + n as f64 * row_height + 19.0), Anchor::End, "t", name);
    }
    for (n, (row, ratio)) in ratios.iter().enumerate() {
        let line = palette.0.iter().position(|name| *name == row.scheme).unwrap_or(0);
        let y = top + (line as f64 + 0.5) * row_height + (n * 7 % 13) as f64 - 6.0;
        let (ours, paper) =
            (row.ours.map_or_else(String::new, show), row.paper.map_or_else(String::new, show_paper));
        svg.dot(
            (x(*ratio), y),
            4.0,
            "var(--ours)",
            &format!("{}: {ours} / {paper} {}", row.name(), row.unit),
        );
    }
    figure(title, "", &svg.finish(LEAST))
}
