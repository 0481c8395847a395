//! The table of the entropy predictor: `cargo bench -p medfs-codec --bench entropy -- FILE...` fits it to the
//! pages of the files, prints it, how well the table in the code foretells those pages, and what foretelling
//! takes of the time of compressing: with our LZO and with the C LZO1X-1, where it is installed.

#[path = "../tests/support/peer.rs"]
mod peer;

use medfs_codec::lzo::Encoder;
use medfs_codec::{PAGE_SIZE, Page, entropy};
use std::time::Instant;

/// Pages of a file, evenly taken: large files count no more than others.
const PAGES: usize = 64;
/// Pages that are timed, rounds of which the least counts, and calls of a round.
const TIMED: usize = 1000;
const ROUNDS: usize = 12;
const CALLS: usize = 4;

/// Pages of the files, and the part of each that LZO makes of it.
fn pages(files: impl Iterator<Item = String>) -> Vec<(Box<Page>, f64)> {
    let (mut lzo, mut out, mut all) = (Encoder::default(), [0; 2 * PAGE_SIZE], Vec::new());
    for content in files.filter_map(|file| std::fs::read(file).ok()) {
        let pages = content.as_chunks::<PAGE_SIZE>().0;
        for page in pages.iter().step_by(pages.len().div_ceil(PAGES).max(1)) {
            let size = lzo.compress(page, &mut out).map_or(PAGE_SIZE, |size| size.min(PAGE_SIZE));
            all.push((Box::new(*page), size as f64 / PAGE_SIZE as f64));
        }
    }
    all
}

/// Means of the ratios at each tenth of a bit that has pages, neighbours joined until they rise: place, mean, pages.
fn rising(pages: &[(Box<Page>, f64)]) -> Vec<(f64, f64, f64)> {
    let mut sums = [(0.0, 0.0); entropy::RATIO_ENTRIES];
    for (page, ratio) in pages {
        let tenth = (entropy::whole_entropy(page) * 10 + entropy::BIT / 2) / entropy::BIT;
        let (sum, count) = &mut sums[tenth as usize];
        (*sum, *count) = (*sum + ratio, *count + 1.0);
    }
    let mut means: Vec<(f64, f64, f64)> = Vec::new();
    for (place, (sum, count)) in sums.iter().enumerate().filter(|(_, (_, count))| *count > 0.0) {
        means.push((place as f64, sum / count, *count));
        while let [.., a, b] = means[..]
            && a.1 > b.1
        {
            means.truncate(means.len() - 2);
            let count = a.2 + b.2;
            means.push(((a.0 + b.0) / 2.0, (a.1 * a.2 + b.1 * b.2) / count, count));
        }
    }
    means
}

/// The table: lines between the means.
fn table(means: &[(f64, f64, f64)]) -> Vec<u32> {
    let at = |place: f64| match means.iter().position(|mean| mean.0 >= place) {
        None => means.last().map_or(0.0, |mean| mean.1),
        Some(0) => means[0].1,
        Some(i) => {
            let (a, b) = (means[i - 1], means[i]);
            a.1 + (b.1 - a.1) * (place - a.0) / (b.0 - a.0)
        }
    };
    let entries = (0..entropy::RATIO_ENTRIES).map(|entry| at(entry as f64));
    entries.map(|ratio| (ratio * f64::from(entropy::WHOLE)).round() as u32).collect()
}

/// Nanoseconds of a call, the mean of all pages: of each the least of some rounds, in the cache, as what was
/// just received is.
fn least(pages: &[&Page], mut call: impl FnMut(&Page)) -> f64 {
    let mut of = |page: &Page| {
        let round = |_| {
            let start = Instant::now();
            (0..CALLS).for_each(|_| call(std::hint::black_box(page)));
            start.elapsed().as_nanos() as f64 / CALLS as f64
        };
        (0..ROUNDS).map(round).fold(f64::MAX, f64::min)
    };
    pages.iter().map(|page| of(page)).sum::<f64>() / pages.len() as f64
}

fn main() {
    let pages = pages(std::env::args().skip(1).filter(|arg| !arg.starts_with('-')));
    if pages.is_empty() {
        println!("entropy: no pages; name files after --");
        return;
    }
    println!("{} pages; the table: {:?}", pages.len(), table(&rising(&pages)));
    let mean = |of: &dyn Fn(&Page, f64) -> f64| {
        pages.iter().map(|(page, ratio)| of(page, *ratio)).sum::<f64>() / pages.len() as f64
    };
    let sampled = mean(&|page, _| {
        let whole = f64::from(entropy::whole_entropy(page).max(1));
        (f64::from(entropy::entropy(page)) - whole).abs() / whole
    });
    let foretold =
        mean(&|page, ratio| (f64::from(entropy::ratio(page)) / f64::from(entropy::WHOLE) - ratio).abs());
    println!("mean error: of the sampled entropy {:.1}% of it, of the ratio {foretold:.3}", sampled * 100.0);
    cost(&pages);
}

/// What foretelling takes, and compressing, of the same pages in the same run.
fn cost(pages: &[(Box<Page>, f64)]) {
    let step = pages.len().div_ceil(TIMED);
    let timed: Vec<&Page> = pages.iter().step_by(step).map(|(page, _)| &**page).collect();
    let (mut lzo, mut out) = (Encoder::default(), [0; 2 * PAGE_SIZE]);
    let foretell = least(&timed, |page| {
        std::hint::black_box(entropy::ratio(page));
    });
    println!("{} pages, ns of each: to foretell {foretell:.0}", timed.len());
    let tell = |name: &str, compress: f64| {
        println!(
            "to compress with {name} {compress:.0}: foretelling takes {:.1}% of it",
            foretell / compress * 100.0
        );
    };
    let ours = least(&timed, |page| {
        std::hint::black_box(lzo.compress(page, &mut out));
    });
    tell("our LZO", ours);
    let Some(mut c) = peer::Lzo::load() else {
        println!("no liblzo2.so.2 here: nothing more to compare with");
        return;
    };
    let mut back = [0; PAGE_SIZE];
    let length = c.compress(timed[0], &mut out);
    assert!(c.decompress(&out[..length], &mut back) == Ok(PAGE_SIZE) && back == *timed[0]);
    let theirs = least(&timed, |page| {
        std::hint::black_box(c.compress(page, &mut out));
    });
    tell("the C LZO1X-1", theirs);
}
