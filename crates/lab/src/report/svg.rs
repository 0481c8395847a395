//! The pieces of plots: an SVG that takes its colours from the page, so that light and dark are the page's.

use std::fmt::Write;

/// Colours for things that are told apart.
pub(super) const COLOURS: usize = 8;

/// How much larger than drawn a plot becomes on a wide page.
const LARGEST: f64 = 1.375;

/// Text that may stand in HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// The name of a colour by number.
pub(super) fn colour(n: usize) -> String {
    format!("var(--c{})", n % COLOURS)
}

/// A plot that is being drawn.
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
    title: String,
}

/// Where a text is anchored.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

impl Svg {
    /// An empty plot of this size, with a title for those who do not see it.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Svg {
        Svg { width, height, body: String::new(), title: escape(title) }
    }

    /// A rectangle; the tip is shown when it is pointed at.
    pub(super) fn rect(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, tip: &str) {
        let tip = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
        let _ = write!(
            self.body,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\">{tip}</rect>",
            at.0,
            at.1,
            size.0.max(0.0),
            size.1.max(0.0)
        );
    }

    /// A line of a class of the page (`axis`, `grid`, `mark`).
    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let _ = write!(
            self.body,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A text of a class (`t` for text, `s` for small, `b` for bold).
    pub(super) fn text(&mut self, at: (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let _ = write!(
            self.body,
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{}\">{}</text>",
            at.0,
            at.1,
            anchor.name(),
            escape(text)
        );
    }

    /// A small text that stands upright and ends at `at`.
    pub(super) fn upright(&mut self, at: (f64, f64), text: &str) {
        let _ = write!(
            self.body,
            "<text class=\"s\" transform=\"translate({:.1} {:.1}) rotate(-90)\" text-anchor=\"end\" dy=\"4\">{}</text>",
            at.0,
            at.1,
            escape(text)
        );
    }

    /// A diamond: the mark of a paper's value.
    pub(super) fn diamond(&mut self, at: (f64, f64), size: f64, tip: &str) {
        let (x, y) = at;
        let _ = write!(
            self.body,
            "<path class=\"paper\" d=\"M{:.1} {:.1}L{:.1} {:.1}L{:.1} {:.1}L{:.1} {:.1}Z\"><title>{}</title></path>",
            x,
            y - size,
            x + size,
            y,
            x,
            y + size,
            x - size,
            y,
            escape(tip)
        );
    }

    /// A dot.
    pub(super) fn dot(&mut self, at: (f64, f64), radius: f64, fill: &str, tip: &str) {
        let _ = write!(
            self.body,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\" fill=\"{fill}\" fill-opacity=\".7\"><title>{}</title></circle>",
            at.0,
            at.1,
            escape(tip)
        );
    }

    /// A line through points.
    pub(super) fn path(&mut self, points: &[(f64, f64)], stroke: &str, tip: &str) {
        let mut d = String::new();
        for (n, (x, y)) in points.iter().enumerate() {
            let _ = write!(d, "{}{x:.1} {y:.1}", if n == 0 { 'M' } else { 'L' });
        }
        let _ = write!(
            self.body,
            "<path d=\"{d}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"2\" stroke-linejoin=\"round\"><title>{}</title></path>",
            escape(tip)
        );
    }

    /// The element. It keeps its proportions, and a width below which its folder scrolls.
    pub(super) fn finish(self, least_width: f64) -> String {
        format!(
            "<div class=\"plot\"><svg role=\"img\" viewBox=\"0 0 {:.0} {:.0}\" style=\"min-width:{least_width:.0}px;max-width:{:.0}px\"><title>{}</title>{}</svg></div>",
            self.width,
            self.height,
            self.width * LARGEST,
            self.title,
            self.body
        )
    }
}

/// Round numbers from below `low` to above `high`, about `count` of them.
pub(super) fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let span = (high - low).max(1e-9);
    let raw = span / count.max(1) as f64;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * power).find(|s| *s >= raw).unwrap_or(raw);
    let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    (first..=last).map(|n| n as f64 * step).collect()
}

/// A tick in few letters.
pub(super) fn tick_label(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{}G", value / 1e9),
        v if v >= 1e6 => format!("{}M", value / 1e6),
        v if v >= 10_000.0 => format!("{}k", value / 1e3),
        v if v == 0.0 || v >= 1.0 => format!("{}", (value * 100.0).round() / 100.0),
        _ => format!("{}", (value * 1000.0).round() / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose() {
        assert_eq!(ticks(0.0, 55.1, 5), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(ticks(-62.0, 48.0, 5), [-100.0, -50.0, 0.0, 50.0]);
        assert!(ticks(0.0, 0.0, 5).len() < 20);
    }

    #[test]
    fn nothing_from_a_result_becomes_markup() {
        let mut svg = Svg::new(10.0, 10.0, "<b>");
        svg.text((0.0, 0.0), Anchor::Start, "t", "</text><script>");
        let out = svg.finish(1.0);
        assert!(!out.contains("<script>") && !out.contains("<b>"), "{out}");
    }
}
