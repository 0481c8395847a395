//! Upright bars in groups: a label's rows beside each other, one for each scheme.

use super::{Palette, figure, scale_up};
use crate::cell::Row;
use crate::report::numbers::{show, show_paper};
use crate::report::svg::{Anchor, Svg, tick_label, ticks};

const LEFT: f64 = 52.0;
const TOP: f64 = 30.0;
const HEIGHT: f64 = 220.0;
/// Between two groups.
const GAP: f64 = 20.0;
/// All groups together are as wide as this, if their bars become neither too thin nor too thick.
const ACROSS: f64 = 588.0;
const THIN: f64 = 7.0;
const THICK: f64 = 26.0;
/// Below this width the plot scrolls.
const SCROLLS: f64 = 480.0;

/// Groups of bars with a diamond where the paper's value is.
pub(in crate::report) fn groups(title: &str, unit: &str, rows: &[&Row]) -> String {
    let values = rows.iter().flat_map(|r| [r.ours, r.paper]).flatten();
    let (low, high) = values.fold((0.0f64, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    if low == high {
        return String::new();
    }
    let labels = Palette::of(rows.iter().map(|r| r.label.as_str())).0;
    let schemes = Palette::of(rows.iter().map(|r| r.scheme.as_str()));
    let each = ACROSS / labels.len() as f64 - GAP;
    let bar = (each / schemes.0.len() as f64).clamp(THIN, THICK);
    let group = bar * schemes.0.len() as f64 + GAP;
    let width = LEFT + group * labels.len() as f64;
    let scale = ticks(low, high, 5);
    let (first, last) = (scale[0], scale[scale.len() - 1]);
    let y = |v: f64| TOP + HEIGHT * (last - v) / (last - first);
    let mut svg = Svg::new(width.max(SCROLLS), TOP + HEIGHT + 26.0, title);
    scale_up(&mut svg, &scale, (LEFT, width), &y, tick_label);
    svg.text((0.0, 12.0), Anchor::Start, "s", unit);
    for (n, label) in labels.iter().enumerate() {
        let from = LEFT + n as f64 * group + GAP / 2.0;
        let middle = from + (group - GAP) / 2.0;
        svg.text((middle, TOP + HEIGHT + 18.0), Anchor::Middle, "t", label);
        for row in rows.iter().filter(|r| r.label == *label) {
            let place = schemes.0.iter().position(|s| *s == row.scheme).unwrap_or(0);
            let x = from + place as f64 * bar;
            upright(&mut svg, row, (x, bar), &schemes.colour(&row.scheme), &y);
        }
    }
    figure(title, &schemes.legend(), &svg.finish(SCROLLS))
}

/// A bar from zero to ours, and the mark of the paper's.
fn upright(svg: &mut Svg, row: &Row, (x, width): (f64, f64), colour: &str, y: &dyn Fn(f64) -> f64) {
    if let Some(ours) = row.ours {
        let (zero, end) = (y(0.0), y(ours));
        let tip = format!("{}: {} {}", row.name(), show(ours), row.unit);
        svg.rect((x + 1.0, zero.min(end)), (width - 2.0, (zero - end).abs()), colour, &tip);
    }
    if let Some(paper) = row.paper {
        let tip = format!("{}, paper: {} {}", row.name(), show_paper(paper), row.unit);
        svg.diamond((x + width / 2.0, y(paper)), 5.0, &tip);
    }
}
