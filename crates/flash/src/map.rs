//! A device as a picture: how worn each block is, and how much of it is valid, at a glance.
//!
//! Two bars say how much of its life is used and what its space holds; below, every cell is a block, or the
//! mean of a few neighbours on large devices. SVG, by itself: no script, no font, no network.

use medfs_ftl::{BlockInfo, BlockUse};
use std::fmt::Write;

/// Most cells of a panel.
const CELLS_MAX: usize = 4096;
const COLUMNS: usize = 64;
/// Width of the picture and of a panel, in its own units.
const WIDTH: f64 = 1000.0;
const PANEL: f64 = 460.0;
/// How far below its title a histogram begins: its scale stands between.
const BARS_AT: f64 = 26.0;
/// From nothing to most: light to dark, told apart without colours too.
const WEAR: [&str; 6] = ["#fff5eb", "#fdd0a2", "#fdae6b", "#f16913", "#d94801", "#7f2704"];
const VALID: [&str; 6] = ["#f7fcf5", "#c7e9c0", "#a1d99b", "#41ab5d", "#238b45", "#00441b"];
const MAP: &str = "#6baed6";
const BAD: &str = "#111111";
const FREE: &str = "#ffffff";
const STALE: &str = "#c9c9c9";
/// Behind everything.
const PAPER: &str = "#fafafa";

/// The device that a picture shows.
#[derive(Debug, Clone)]
pub struct Picture<'a> {
    /// The title above it.
    pub title: &'a str,
    /// Lines below the title.
    pub lines: &'a [String],
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Cycles that a block stands.
    pub pe_cycles: u32,
    /// All blocks.
    pub blocks: &'a [BlockInfo],
}

/// Blocks that share a cell.
struct Cell {
    usage: BlockUse,
    erases: f64,
    most: u32,
    valid: f64,
    first: usize,
    count: usize,
}

fn cells(blocks: &[BlockInfo], block_bytes: u32) -> Vec<Cell> {
    let each = blocks.len().div_ceil(CELLS_MAX).max(1);
    let groups = blocks.chunks(each).enumerate();
    let cell = |(index, group): (usize, &[BlockInfo])| {
        let count = group.len() as f64;
        let most_used = [BlockUse::Full, BlockUse::Open, BlockUse::Map, BlockUse::Free, BlockUse::Bad];
        let used = most_used.into_iter().max_by_key(|u| {
            let number = group.iter().filter(|b| b.usage == *u).count();
            // The first of equals.
            (number, most_used.len() - most_used.iter().position(|x| x == u).unwrap_or(0))
        });
        Cell {
            usage: used.unwrap_or(BlockUse::Free),
            erases: group.iter().map(|b| f64::from(b.erases)).sum::<f64>() / count,
            most: group.iter().map(|b| b.erases).max().unwrap_or(0),
            valid: group.iter().map(|b| f64::from(b.valid_bytes)).sum::<f64>()
                / count
                / f64::from(block_bytes),
            first: index * each,
            count: group.len(),
        }
    };
    groups.map(cell).collect()
}

fn shade(colours: &[&'static str; 6], part: f64) -> &'static str {
    colours[((part * 6.0) as usize).min(5)]
}

/// Draws a device.
pub fn draw(picture: &Picture<'_>) -> String {
    let cells = cells(picture.blocks, picture.block_bytes);
    let rows = cells.len().div_ceil(COLUMNS).max(1);
    let side = PANEL / COLUMNS as f64;
    let bars_at = 76.0 + 18.0 * picture.lines.len() as f64;
    let top = bars_at + 96.0;
    let grid = rows as f64 * side;
    let height = top + grid + 240.0;
    let mut out = String::new();
    let o = &mut out;
    let _ = write!(
        o,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{PAPER}\"/>\n\
         <text x=\"20\" y=\"34\" font-size=\"20\" font-weight=\"bold\">{}</text>\n",
        escaped(picture.title)
    );
    for (i, line) in picture.lines.iter().enumerate() {
        let _ = writeln!(o, "<text x=\"20\" y=\"{}\" fill=\"#444\">{}</text>", 58 + 18 * i, escaped(line));
    }
    life(o, picture, (20.0, bars_at));
    space(o, picture, (520.0, bars_at));
    let most = cells.iter().map(|c| c.erases).fold(0.0, f64::max);
    let of_most = |c: &Cell| if most > 0.0 { c.erases / most } else { 0.0 };
    panel(o, &cells, (20.0, top), side, "Wear of each block, darker where it was erased more often", |c| {
        match c.usage {
            BlockUse::Bad => BAD,
            _ => shade(&WEAR, of_most(c)),
        }
    });
    panel(o, &cells, (520.0, top), side, "The same blocks, darker where more pages are valid", |c| {
        match c.usage {
            BlockUse::Bad => BAD,
            BlockUse::Map => MAP,
            BlockUse::Free => FREE,
            _ => shade(&VALID, c.valid),
        }
    });
    legend(o, (20.0, top + grid + 16.0), &WEAR, &format!("0 to {most:.0} erases"), &[(BAD, "bad")]);
    let kinds = [(FREE, "free"), (MAP, "map"), (BAD, "bad")];
    legend(o, (520.0, top + grid + 16.0), &VALID, "0 to 100 %", &kinds);
    histogram(o, picture, (20.0, top + grid + 90.0));
    valid_histogram(o, &cells, (520.0, top + grid + 90.0));
    out.push_str("</svg>\n");
    out
}

fn panel(
    o: &mut String,
    cells: &[Cell],
    (x, y): (f64, f64),
    side: f64,
    title: &str,
    colour: impl Fn(&Cell) -> &'static str,
) {
    let _ = writeln!(o, "<text x=\"{x}\" y=\"{}\" font-weight=\"bold\">{title}</text>", y - 12.0);
    let rows = cells.len().div_ceil(COLUMNS).max(1) as f64;
    let _ = writeln!(
        o,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"none\" stroke=\"#999\"/>",
        x - 1.0,
        y - 1.0,
        side * COLUMNS as f64 + 2.0,
        side * rows + 2.0
    );
    if let rest @ 1.. = cells.len() % COLUMNS {
        let left = side * rest as f64;
        let _ = writeln!(
            o,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{PAPER}\"/>",
            x + left + 0.5,
            y + side * (rows - 1.0) + 0.5,
            side * COLUMNS as f64 - left + 2.0,
            side + 2.0
        );
    }
    for (i, cell) in cells.iter().enumerate() {
        let (column, row) = ((i % COLUMNS) as f64, (i / COLUMNS) as f64);
        let names = if cell.count == 1 {
            format!("block {}", cell.first)
        } else {
            format!("blocks {} to {}", cell.first, cell.first + cell.count - 1)
        };
        let _ = writeln!(
            o,
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{}\" stroke=\"#ddd\" stroke-width=\"0.4\">\
             <title>{names}: {:?}, {:.0} erases (most {}), {:.0} % valid</title></rect>",
            x + column * side,
            y + row * side,
            side,
            side,
            colour(cell),
            cell.usage,
            cell.erases,
            cell.most,
            cell.valid * 100.0
        );
    }
}

fn legend(o: &mut String, (x, y): (f64, f64), colours: &[&str; 6], label: &str, kinds: &[(&str, &str)]) {
    for (i, colour) in colours.iter().enumerate() {
        let _ = writeln!(
            o,
            "<rect x=\"{:.0}\" y=\"{y:.0}\" width=\"22\" height=\"12\" fill=\"{colour}\" stroke=\"#bbb\"/>",
            x + 22.0 * i as f64
        );
    }
    let _ = writeln!(o, "<text x=\"{:.0}\" y=\"{:.0}\">{label}</text>", x + 142.0, y + 11.0);
    for (i, (colour, name)) in kinds.iter().enumerate() {
        let at = x + 290.0 + 62.0 * i as f64;
        let _ = writeln!(
            o,
            "<rect x=\"{at:.0}\" y=\"{y:.0}\" width=\"12\" height=\"12\" fill=\"{colour}\" stroke=\"#888\"/>\
             <text x=\"{:.0}\" y=\"{:.0}\">{name}</text>",
            at + 17.0,
            y + 11.0
        );
    }
}

/// A bar of parts of 1 with their colours, under a title.
fn bar(o: &mut String, (x, y): (f64, f64), title: &str, parts: &[(f64, &str)]) {
    let _ = writeln!(o, "<text x=\"{x}\" y=\"{y:.0}\" font-weight=\"bold\">{}</text>", escaped(title));
    let mut from = x;
    for (part, colour) in parts {
        let width = part.clamp(0.0, 1.0) * PANEL;
        let _ = writeln!(
            o,
            "<rect x=\"{from:.2}\" y=\"{:.1}\" width=\"{width:.2}\" height=\"16\" fill=\"{colour}\"/>",
            y + 8.0
        );
        from += width;
    }
    let _ = writeln!(
        o,
        "<rect x=\"{x}\" y=\"{:.1}\" width=\"{PANEL}\" height=\"16\" fill=\"none\" stroke=\"#888\"/>",
        y + 8.0
    );
}

/// How much of its life is used.
fn life(o: &mut String, picture: &Picture<'_>, (x, y): (f64, f64)) {
    let good = || picture.blocks.iter().filter(|b| b.usage != BlockUse::Bad).map(|b| f64::from(b.erases));
    let stands = f64::from(picture.pe_cycles.max(1));
    let mean = good().sum::<f64>() / good().count().max(1) as f64 / stands;
    let most = good().fold(0.0, f64::max) / stands;
    let title = format!("Life used: {:.2} %, of the most worn block {:.2} %", mean * 100.0, most * 100.0);
    bar(o, (x, y), &title, &[(mean, WEAR[4]), ((most - mean).max(0.0), WEAR[1])]);
}

/// What its space holds.
fn space(o: &mut String, picture: &Picture<'_>, (x, y): (f64, f64)) {
    let block = f64::from(picture.block_bytes.max(1));
    let [mut valid, mut stale, mut free, mut map, mut bad] = [0.0; 5];
    for b in picture.blocks {
        let part = (f64::from(b.valid_bytes) / block).min(1.0);
        match b.usage {
            BlockUse::Full => (valid, stale) = (valid + part, stale + 1.0 - part),
            BlockUse::Open => (valid, free) = (valid + part, free + 1.0 - part),
            BlockUse::Free => free += 1.0,
            BlockUse::Map => map += 1.0,
            BlockUse::Bad => bad += 1.0,
        }
    }
    let all = picture.blocks.len().max(1) as f64;
    let parts = [
        (valid, VALID[4], "valid"),
        (stale, STALE, "stale"),
        (free, FREE, "free"),
        (map, MAP, "map"),
        (bad, BAD, "bad"),
    ];
    let title = format!("Space of {:.0} blocks", all);
    bar(o, (x, y), &title, &parts.map(|(part, colour, _)| (part / all, colour)));
    let mut at = x;
    for (part, colour, name) in parts.into_iter().filter(|(part, ..)| *part > 0.0) {
        let label = format!("{name} {:.1} %", part / all * 100.0);
        let _ = writeln!(
            o,
            "<rect x=\"{at:.0}\" y=\"{:.0}\" width=\"10\" height=\"10\" fill=\"{colour}\" stroke=\"#888\"/>\
             <text x=\"{:.0}\" y=\"{:.0}\" font-size=\"12\">{label}</text>",
            y + 31.0,
            at + 14.0,
            y + 40.0
        );
        at += 24.0 + 6.4 * label.len() as f64;
    }
}

/// How many blocks were erased how often.
fn histogram(o: &mut String, picture: &Picture<'_>, at: (f64, f64)) {
    let good: Vec<u32> =
        picture.blocks.iter().filter(|b| b.usage != BlockUse::Bad).map(|b| b.erases).collect();
    let most = good.iter().copied().max().unwrap_or(0);
    let mut counts = vec![0u32; (most as usize + 1).min(32)];
    let last = counts.len() - 1;
    for erases in &good {
        let class = u64::from(*erases) * counts.len() as u64 / (u64::from(most) + 1);
        counts[(class as usize).min(last)] += 1;
    }
    let mean = good.iter().map(|e| f64::from(*e)).sum::<f64>() / good.len().max(1) as f64;
    let title =
        format!("Blocks by erases: mean {mean:.1}, most {most} (a block endures {})", picture.pe_cycles);
    bars(o, at, &title, &counts, WEAR[3], ("0", &most.to_string()));
}

fn valid_histogram(o: &mut String, cells: &[Cell], at: (f64, f64)) {
    let mut counts = [0u32; 20];
    for cell in cells.iter().filter(|c| matches!(c.usage, BlockUse::Full | BlockUse::Open)) {
        counts[((cell.valid * 20.0) as usize).min(19)] += cell.count as u32;
    }
    bars(o, at, "Data blocks by valid pages", &counts, VALID[3], ("0 %", "100 %"));
}

fn bars(o: &mut String, (x, y): (f64, f64), title: &str, counts: &[u32], colour: &str, ends: (&str, &str)) {
    let height = 90.0;
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let width = PANEL / counts.len() as f64;
    let _ = writeln!(o, "<text x=\"{x}\" y=\"{y:.0}\" font-weight=\"bold\">{title}</text>");
    for (i, count) in counts.iter().enumerate() {
        let tall = f64::from(*count) / f64::from(most) * height;
        let _ = writeln!(
            o,
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{tall:.2}\" fill=\"{colour}\"><title>{count} blocks</title></rect>",
            x + width * i as f64,
            y + BARS_AT + height - tall,
            (width - 1.0).max(0.5)
        );
    }
    let base = y + BARS_AT + height;
    let _ = writeln!(
        o,
        "<line x1=\"{x}\" y1=\"{base:.1}\" x2=\"{:.1}\" y2=\"{base:.1}\" stroke=\"#666\"/>\
         <text x=\"{x}\" y=\"{:.1}\" fill=\"#444\">{}</text><text x=\"{:.1}\" y=\"{:.1}\" fill=\"#444\" text-anchor=\"end\">{}</text>\
         <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#444\" text-anchor=\"end\">{most} blocks</text>",
        x + PANEL,
        base + 16.0,
        ends.0,
        x + PANEL,
        base + 16.0,
        ends.1,
        x + PANEL,
        y + 18.0
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(usage: BlockUse, erases: u32, valid_bytes: u32) -> BlockInfo {
        BlockInfo { usage, erases, valid_bytes, written: 64, ratio: 200 }
    }

    #[test]
    fn every_block_is_in_the_picture() {
        let mut blocks = vec![info(BlockUse::Full, 10, 1000); 100];
        blocks[7] = info(BlockUse::Bad, 99, 0);
        blocks[8] = info(BlockUse::Map, 5, 0);
        let picture = Picture {
            title: "a & b",
            lines: &["one".into()],
            block_bytes: 1000,
            pe_cycles: 3000,
            blocks: &blocks,
        };
        let svg = draw(&picture);
        assert!(svg.contains("a &amp; b") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg.matches("<title>block ").count(), 200, "two panels");
        assert_eq!(svg.matches("block 7: Bad, 99 erases").count(), 2);
        assert!(svg.contains(MAP) && svg.contains(BAD));
        // 98 blocks of data with nothing free, the map's and the bad one; 10 of 3000 cycles and a little less.
        assert!(svg.contains("valid 98.0 %") && svg.contains("map 1.0 %") && svg.contains("bad 1.0 %"));
        assert!(!svg.contains("free 0") && svg.contains("Life used: 0.33 %"));
    }

    #[test]
    fn large_devices_share_cells() {
        let blocks = vec![info(BlockUse::Full, 4, 500); 70_000];
        let cells = cells(&blocks, 1000);
        assert!(cells.len() <= CELLS_MAX);
        assert_eq!(cells.iter().map(|c| c.count).sum::<usize>(), 70_000);
        assert!(cells.iter().all(|c| c.erases == 4.0 && c.valid == 0.5));
    }
}
