//! Beyond the paper: other compressors, a predictor that is right more often, hot and cold data apart.
//!
//! Compressors are measured on real pages against LZO, in time and size, in this run; the simulated
//! controller is then slower or faster by that factor. The other predictor counts as many bytes, in runs of
//! eight, and how often four in a row were seen before: entropy does not see that a page repeats itself. Both
//! predictors' tables are fitted to one half of the files' pages and judged on the other.

use super::content::{Sample, best_of, sample_files};
use super::matrix::{Against, Way, cell, cell_with, change};
use super::row::{Options, Progress, Row};
use crate::codecs::PageCodec;
use crate::error::Result;
use crate::profile::Profile;
use crate::synth::class_of;
use medfs_entropy::{BIT, WHOLE};
use medfs_ftl::{Codec, PAGE};

/// Runs of bytes that the predictor looks at, and their length: 408 bytes, as many as the paper's sample has.
const RUNS: usize = 51;
const RUN: usize = 8;
/// Distance of the runs: odd multiples of 8 bytes reach every place of a record.
const STRIDE: usize = 80;
/// Classes of repetition.
const REPEATS: usize = 6;

/// What the other predictor sees of a page: entropy in tenths of a bit, and class of repetition.
fn features(page: &[u8; PAGE]) -> (usize, usize) {
    let mut counts = [0u16; 256];
    let mut seen = [0u64; 16];
    let mut repeated = 0;
    for run in 0..RUNS {
        let bytes = &page[run * STRIDE..run * STRIDE + RUN];
        bytes.iter().for_each(|b| counts[usize::from(*b)] += 1);
        for four in bytes.windows(4).step_by(2) {
            let word = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
            let hash = word.wrapping_mul(0x9e37_79b1) >> 22;
            let (word, bit) = ((hash >> 6) as usize, 1u64 << (hash & 63));
            repeated += usize::from(seen[word] & bit != 0);
            seen[word] |= bit;
        }
    }
    let entropy = medfs_entropy::of_counts(&counts, (RUNS * RUN) as u32);
    let of = RUNS * 3;
    ((entropy * 10 / BIT).min(80) as usize, (repeated * REPEATS / of).min(REPEATS - 1))
}

/// A table of ratios by features, fitted to pages: the mean of those that are alike, or of the same entropy
/// where there are few.
struct Table(Vec<[f64; REPEATS]>);

impl Table {
    fn fit(samples: &[&Sample], of: impl Fn(&Sample) -> (usize, usize)) -> Table {
        let mut sums = vec![[(0.0, 0.0); REPEATS]; 81];
        for s in samples {
            let (entropy, repeats) = of(s);
            let cell = &mut sums[entropy][repeats];
            (cell.0, cell.1) = (cell.0 + s.ratio, cell.1 + 1.0);
        }
        let row = |at: usize| {
            let near = sums[at.saturating_sub(2)..(at + 3).min(81)].iter().flatten();
            let (sum, count) = near.fold((0.0, 0.0), |(s, c), cell| (s + cell.0, c + cell.1));
            if count > 0.0 { sum / count } else { (at as f64 / 80.0).powi(2) }
        };
        let value = |at: usize, repeats: usize| {
            let near = sums[at.saturating_sub(2)..(at + 3).min(81)].iter().map(|r| r[repeats]);
            let (sum, count) = near.fold((0.0, 0.0), |(s, c), cell: (f64, f64)| (s + cell.0, c + cell.1));
            // Few pages say little: the entropy alone counts as ten.
            (sum + 10.0 * row(at)) / (count + 10.0)
        };
        Table((0..81).map(|at| std::array::from_fn(|repeats| value(at, repeats))).collect())
    }

    fn ratio(&self, (entropy, repeats): (usize, usize)) -> f64 {
        self.0[entropy][repeats]
    }
}

/// How good predictions are: mean error, and the share of pages for which compressing a single page is decided rightly.
fn judge(samples: &[&Sample], threshold: f64, predict: impl Fn(&Sample) -> f64) -> (f64, f64) {
    let n = samples.len().max(1) as f64;
    let error: f64 = samples.iter().map(|s| (predict(s) - s.ratio).abs()).sum();
    let right = samples.iter().filter(|s| (predict(s) <= threshold) == (s.ratio <= threshold)).count();
    (error / n * 100.0, right as f64 / n * 100.0)
}

fn predictors(samples: &[Sample], threshold: f64) -> Vec<Row> {
    let fit: Vec<&Sample> = samples.iter().step_by(2).collect();
    let test: Vec<&Sample> = samples.iter().skip(1).step_by(2).collect();
    let sampled = |s: &Sample| ((medfs_entropy::entropy(&s.page) * 10 / BIT).min(80) as usize, 0);
    let other = |s: &Sample| features(&s.page);
    let (entropy, both) = (Table::fit(&fit, sampled), Table::fit(&fit, other));
    let shipped = judge(&test, threshold, |s| f64::from(medfs_entropy::ratio(&s.page)) / f64::from(WHOLE));
    let alone = judge(&test, threshold, |s| entropy.ratio(sampled(s)));
    let repeats = judge(&test, threshold, |s| both.ratio(other(s)));
    let some = &samples[..samples.len().min(2000)];
    let before = best_of(6, some, |s| {
        std::hint::black_box(medfs_entropy::ratio(&s.page));
    });
    let after = best_of(6, some, |s| {
        std::hint::black_box(features(&s.page));
    });
    let mut rows = Vec::new();
    for (name, (error, right)) in [
        ("predictor: entropy, the table that is shipped", shipped),
        ("predictor: entropy, a table fitted to these files", alone),
        ("predictor: entropy and repetition, fitted to these files", repeats),
    ] {
        rows.push(Row::new(format!("{name}: mean error of the ratio"), None, error, "% of a page"));
        rows.push(Row::new(
            format!("{name}: single pages decided correctly"),
            None,
            right,
            "% of single pages",
        ));
    }
    rows.push(Row::new(
        "predictor: time with repetition, of that without",
        None,
        after / before * 100.0,
        "% of the time without",
    ));
    rows
}

/// Time and sizes of a compressor against LZO's, on pages, by class.
fn against_lzo(name: &str, samples: &[Sample]) -> Result<Against> {
    let some = &samples[..samples.len().min(2000)];
    let (mut lzo, mut codec) = (PageCodec::new("lzo")?, PageCodec::new(name)?);
    let mut out = vec![0; 2 * PAGE];
    let base = best_of(3, some, |s| {
        std::hint::black_box(lzo.compress(0, &s.page[..], &mut out));
    });
    let time = best_of(3, some, |s| {
        std::hint::black_box(codec.compress(0, &s.page[..], &mut out));
    });
    let mut sums = [(0.0, 0.0); 4];
    for s in some {
        let size = codec.compress(0, &s.page[..], &mut out).unwrap_or(PAGE).min(PAGE) as f64 / PAGE as f64;
        let sum = &mut sums[class_of(s.ratio)];
        (sum.0, sum.1) = (sum.0 + size, sum.1 + s.ratio);
    }
    Ok(Against {
        time: time / base,
        size: sums.map(|(size, base)| if base > 0.0 { size / base } else { 1.0 }),
    })
}

/// All rows beyond the paper.
pub(crate) fn beyond(options: &Options, progress: Progress<'_>) -> Result<Vec<Row>> {
    let emmc = Profile::find("emmc")?;
    let samples = sample_files(options, &mut |part| progress(part * 0.3))?;
    let threshold = f64::from(emmc.costs().threshold(1).unwrap_or(0)) / 200.0;
    let mut rows = predictors(&samples, threshold);
    progress(0.4);
    let pm = cell("MA", "pm", &emmc, options)?;
    let ldc = cell("MA", "ldc", &emmc, options)?;
    progress(0.6);
    let mut compare = |name: &str, cell: &super::Cell| {
        rows.push(Row::new(
            format!("{name}: erases against PM, MA"),
            None,
            change(cell.erases, pm.erases),
            "% against PM",
        ));
        rows.push(Row::new(
            format!("{name}: write latency against PM, MA"),
            None,
            change(cell.write_us, pm.write_us),
            "% against PM",
        ));
    };
    compare("ldc with LZO", &ldc);
    let mut factors = Vec::new();
    for name in ["lz4", "zstd"] {
        let against = against_lzo(name, &samples)?;
        compare(
            &format!("ldc with {name}"),
            &cell_with("MA", "ldc", &emmc, options, Way { against, ..Way::default() })?,
        );
        factors.push((name, against));
    }
    progress(0.8);
    compare("ldc-hc (hot and cold apart) with LZO", &cell("MA", "ldc-hc", &emmc, options)?);
    for (name, against) in factors {
        rows.push(Row::new(
            format!("{name}: time of compressing, of LZO's"),
            None,
            against.time * 100.0,
            "% of LZO's",
        ));
        for (class, size) in crate::synth::CLASSES.iter().zip(against.size) {
            rows.push(Row::new(
                format!("{name}: size of pages of {class} compressibility, of LZO's"),
                None,
                size * 100.0,
                "% of LZO's",
            ));
        }
    }
    progress(1.0);
    Ok(rows)
}
