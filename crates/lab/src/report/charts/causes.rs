//! Stacked bars: bytes written by cause, in relation to the first scheme.

use super::{Palette, figure, scale_up};
use crate::cell::Cell;
use crate::report::numbers::workload_name;
use crate::report::results::Named;
use crate::report::svg::{Anchor, Svg, colour, tick_label, ticks};

const BAR: f64 = 14.0;
/// Between two workloads.
const GAP: f64 = 26.0;
const LEFT: f64 = 46.0;
const TOP: f64 = 14.0;
const HEIGHT: f64 = 230.0;
/// Room for the names of schemes and of the workload.
const BELOW: f64 = 96.0;
/// A row of groups that would be wider is divided.
const WIDEST: f64 = 1040.0;
/// Below this width a row scrolls.
const SCROLLS: f64 = 880.0;

/// A workload: its name, what the first scheme wrote, and the cell of each scheme.
struct Group<'c> {
    name: String,
    base: f64,
    cells: Vec<Option<&'c Cell>>,
}

impl Group<'_> {
    fn highest(&self) -> f64 {
        self.cells.iter().flatten().map(|c| c.written.total as f64 / self.base).fold(1.0, f64::max)
    }
}

fn groups<'c>(cells: &[&'c Named<Cell>], schemes: &[String]) -> Vec<Group<'c>> {
    let workloads = Palette::of(cells.iter().map(|c| c.result.workload.as_str())).0;
    let of = |workload: &String| {
        let found = |scheme: &String| {
            let mut of_workload = cells.iter().map(|c| &c.result).filter(|c| c.workload == *workload);
            of_workload.find(|c| c.scheme == *scheme && c.written.total > 0)
        };
        let cells: Vec<Option<&Cell>> = schemes.iter().map(found).collect();
        let base = cells.iter().flatten().next()?.written.total as f64;
        Some(Group { name: workload_name(workload), base, cells })
    };
    workloads.iter().filter_map(of).collect()
}

fn stack(svg: &mut Svg, x: f64, y: &dyn Fn(f64) -> f64, group: &Group<'_>, scheme: &str, cell: &Cell) {
    let mut below = 0.0;
    for (n, (cause, bytes)) in cell.written.causes().into_iter().enumerate() {
        let part = bytes as f64 / group.base;
        let (of, all) = (bytes as f64 / 1e6, cell.written.total as f64 / 1e6);
        let tip = format!("{}, {scheme}: {cause} {of:.1} MB, all {all:.1} MB", group.name);
        let height = y(below) - y(below + part);
        svg.rect((x + 1.0, y(below + part)), (BAR - 2.0, height), &colour(n), &tip);
        below += part;
    }
}

/// Some groups side by side, with room for `each`, so that all rows are drawn alike.
fn row_of(title: &str, groups: &[Group<'_>], each: usize, schemes: &[String], scale: &[f64]) -> String {
    let group_width = schemes.len() as f64 * BAR + GAP;
    let width = (LEFT + each as f64 * group_width).max(420.0);
    let y = |v: f64| TOP + HEIGHT * (1.0 - v / scale[scale.len() - 1]);
    let mut svg = Svg::new(width, TOP + HEIGHT + BELOW, title);
    scale_up(&mut svg, scale, (LEFT, width), &y, |share| format!("{}%", tick_label(share * 100.0)));
    for (g, group) in groups.iter().enumerate() {
        let x0 = LEFT + g as f64 * group_width + GAP / 2.0;
        for (s, (scheme, cell)) in schemes.iter().zip(&group.cells).enumerate() {
            let x = x0 + s as f64 * BAR;
            if let Some(cell) = cell {
                stack(&mut svg, x, &y, group, scheme, cell);
            }
            svg.upright((x + BAR / 2.0, TOP + HEIGHT + 8.0), scheme);
        }
        let middle = x0 + (group_width - GAP) / 2.0;
        svg.text((middle, TOP + HEIGHT + 84.0), Anchor::Middle, "b", &group.name);
    }
    svg.finish(width.min(SCROLLS))
}

/// For each workload a group of stacked bars, one for each scheme: bytes written by cause, in relation to the
/// first scheme.
pub(in crate::report) fn causes(title: &str, cells: &[&Named<Cell>], schemes: &[String]) -> String {
    let groups = groups(cells, schemes);
    if groups.is_empty() {
        return String::new();
    }
    let scale = ticks(0.0, groups.iter().map(Group::highest).fold(1.0, f64::max), 5);
    let most = ((WIDEST - LEFT) / (schemes.len() as f64 * BAR + GAP)).max(1.0) as usize;
    let each = groups.len().div_ceil(groups.len().div_ceil(most));
    let rows = groups.chunks(each).map(|some| row_of(title, some, each, schemes, &scale));
    let legend = Palette::of(["data", "node", "compact", "meta", "gc"]).legend();
    figure(title, &legend, &rows.collect::<String>())
}
