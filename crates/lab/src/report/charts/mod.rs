//! The plots, each a figure of the page: bars with the paper's marks, stacked bars by cause, lines,
//! distributions, planes, maps.

mod bars;
mod causes;
mod groups;
mod lines;
mod planes;

pub(super) use bars::{agreement, bars};
pub(super) use causes::causes;
pub(super) use groups::groups;
pub(super) use lines::{Axes, Line, amplification, distribution, lines};
pub(super) use planes::{extents, scatter, segment_map};

use super::svg::{Anchor, Svg, colour, escape};

const WIDTH: f64 = 640.0;
/// Below this many pixels of width a plot scrolls.
const LEAST: f64 = 480.0;
/// Room for labels at the left.
const LEFT: f64 = 128.0;

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
            format!("<span><i style=\"background:{}\"></i>{}</span>", colour(n), escape(name))
        };
        format!("<p class=\"legend\">{}</p>", self.0.iter().enumerate().map(entry).collect::<String>())
    }
}

/// The upright scale of a plot: a line across, from `left` to `right`, at each of its ticks, and what `label`
/// makes of that.
fn scale_up(
    svg: &mut Svg,
    ticks: &[f64],
    (left, right): (f64, f64),
    y: &dyn Fn(f64) -> f64,
    label: impl Fn(f64) -> String,
) {
    for tick in ticks {
        let at = y(*tick);
        svg.line((left, at), (right, at), if *tick == 0.0 { "axis" } else { "grid" });
        svg.text((left - 6.0, at + 4.0), Anchor::End, "s", &label(*tick));
    }
}

/// A plot, or several, with the title above and what the colours mean.
fn figure(title: &str, legend: &str, plots: &str) -> String {
    format!("<figure>{legend}{plots}<figcaption>{}</figcaption></figure>", escape(title))
}
