//! Experiments on real pages: Fig. 2, Fig. 5, Table 2, and what section 5.1 says of the predictor.
//!
//! The paper's phones are not to be had; the pages are those of whatever files are named, by default this
//! machine's programs, libraries, texts and databases. A page whose end is beyond the file's is left out.

use super::row::{Options, Progress, Row};
use crate::codecs::{CODECS, PageCodec};
use crate::error::{FlashError, Result};
use crate::synth::{Mix, class_of};
use medfs_entropy::{BIT, WHOLE};
use medfs_ftl::{Codec, PAGE};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

/// Pages that are looked at, at full scale.
const PAGES: f64 = 40_000.0;
/// Most pages of one file.
const OF_ONE_FILE: usize = 64;

/// A page of a file.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The kind of file (Fig. 2(b)).
    pub kind: &'static str,
    /// Its bytes.
    pub page: Box<[u8; PAGE]>,
    /// LZO's size over the page's, at most 1.
    pub ratio: f64,
}

fn kind_of(path: &Path) -> &'static str {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    match extension {
        "db" | "sqlite" | "sqlite3" | "db-wal" | "db-journal" => "SQLite",
        "jpg" | "jpeg" | "png" | "gif" | "webp" | "mp3" | "mp4" | "ogg" | "gz" | "xz" | "zst" | "bz2"
        | "zip" | "woff2" => "multimedia and archives",
        "so" | "odex" | "dex" | "apk" | "ko" | "a" | "rlib" | "pyc" => "executable",
        _ if name.contains(".so.") || path.components().any(|c| c.as_os_str() == "bin") => "executable",
        _ => "other",
    }
}

/// Pages of files, drawn by seed: the same files give the same pages.
///
/// # Errors
/// No page found.
pub fn sample_files(options: &Options, progress: Progress<'_>) -> Result<Vec<Sample>> {
    let walk = options.files.iter().flat_map(|root| walkdir::WalkDir::new(root).sort_by_file_name());
    let files = walk.filter_map(std::result::Result::ok).filter(|e| e.file_type().is_file());
    let mut files: Vec<_> = files.map(walkdir::DirEntry::into_path).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(options.seed);
    files.shuffle(&mut rng);
    let wanted = (PAGES * options.scale).ceil().max(200.0) as usize;
    let mut lzo = PageCodec::new("lzo")?;
    let mut samples = Vec::new();
    for path in files {
        if samples.len() >= wanted {
            break;
        }
        pages_of(&path, &mut |page| {
            let mut out = vec![0; 2 * PAGE];
            let size = lzo.compress(0, &page[..], &mut out).unwrap_or(PAGE);
            samples.push(Sample { kind: kind_of(&path), page, ratio: (size as f64 / PAGE as f64).min(1.0) });
        });
        progress((samples.len() as f64 / wanted as f64).min(1.0));
    }
    if samples.is_empty() {
        return Err(FlashError::Usage("none of the files has a page of 4 KiB: name others".into()));
    }
    Ok(samples)
}

/// Whole pages of a file, evenly from all of it.
fn pages_of(path: &Path, take: &mut dyn FnMut(Box<[u8; PAGE]>)) {
    // Files that cannot be read, or vanish, are not looked at.
    let Ok(mut file) = std::fs::File::open(path) else { return };
    let Ok(length) = file.metadata().map(|m| m.len()) else { return };
    let pages = length / PAGE as u64;
    let step = pages.div_ceil(OF_ONE_FILE as u64).max(1);
    for at in (0..pages).step_by(step as usize) {
        let mut page = Box::new([0; PAGE]);
        if std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(at * PAGE as u64)).is_err()
            || file.read_exact(&mut page[..]).is_err()
        {
            return;
        }
        take(page);
    }
}

/// Fig. 2.
pub(crate) fn fig2(options: &Options, progress: Progress<'_>) -> Result<Vec<Row>> {
    let samples = sample_files(options, progress)?;
    let total = samples.len() as f64;
    let share =
        |class: usize| samples.iter().filter(|s| class_of(s.ratio) == class).count() as f64 / total * 100.0;
    let phones = "pages of this machine's files, mostly programs and texts; phones hold mostly photos";
    let aged = (Mix::SNAPSHOT.0[2] + Mix::SNAPSHOT.0[3]) * 100.0;
    let mut rows = vec![
        Row::new(
            "(a) low or minimal: how devices are aged here (five phones: 84 to 91)",
            Some(87.5),
            aged,
            "%",
        ),
        Row::new("(a) low or minimal: pages of the files", Some(87.5), share(2) + share(3), "%")
            .if_off(phones),
    ];
    for (class, name) in crate::synth::CLASSES.iter().enumerate() {
        rows.push(
            Row::new(format!("(a) {name}: pages of the files"), None, share(class), "%").because(phones),
        );
    }
    for class in [2, 3] {
        let of_class: Vec<_> = samples.iter().filter(|s| class_of(s.ratio) == class).collect();
        for kind in ["SQLite", "multimedia and archives", "executable", "other"] {
            let part =
                of_class.iter().filter(|s| s.kind == kind).count() as f64 / of_class.len().max(1) as f64;
            let label = format!("(b) {}: {kind}", crate::synth::CLASSES[class]);
            rows.push(Row::new(label, None, part * 100.0, "%"));
        }
    }
    progress(1.0);
    Ok(rows)
}

fn bits(entropy: u32) -> f64 {
    f64::from(entropy) / f64::from(BIT)
}

/// The definition, Eq. 3.
fn exact_entropy(page: &[u8; PAGE]) -> f64 {
    let mut counts = [0u32; 256];
    page.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let p = |count: &u32| f64::from(*count) / PAGE as f64;
    counts.iter().filter(|count| **count > 0).map(|count| -p(count) * p(count).log2()).sum()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), v| (sum + v, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Fig. 5, Table 2, section 5.1.
pub(crate) fn fig5(options: &Options, progress: Progress<'_>) -> Result<Vec<Row>> {
    let samples = sample_files(options, &mut |part| progress(part * 0.7))?;
    let known: Vec<(f64, &Sample)> = samples.iter().map(|s| (exact_entropy(&s.page), s)).collect();
    let mut rows = Vec::new();
    // Table 2, and Fig. 5 at every half bit.
    let table = [0.11, 0.12, 0.13, 0.14, 0.16, 0.17, 0.18, 0.20, 0.22];
    let ours = "the table is fitted to pages of a Debian system, and those of such entropy are for the most part zeros with values scattered \
                between them, as parts of programs are: see the row that counts them";
    for (tenths, paper) in (10..).zip(table) {
        let ratio = f64::from(medfs_entropy::ratio_of(tenths * BIT / 10)) / f64::from(WHOLE);
        let label = format!("Table 2: ratio at an entropy of {:.1}", f64::from(tenths) / 10.0);
        rows.push(Row::new(label, Some(paper), ratio, "of its size").if_off(ours));
    }
    rows.push(Row::new("Table 2: pages of these entropies that are zeros by half", None, zeros(&known), "%"));
    for half in 1..=16 {
        let at = f64::from(half) / 2.0;
        let near: Vec<f64> =
            known.iter().filter(|(e, _)| (e - at).abs() <= 0.25).map(|(_, s)| s.ratio).collect();
        if !near.is_empty() {
            let label = format!("Fig. 5: 1 / ratio at an entropy of {at:.1} ({} pages)", near.len());
            rows.push(Row::new(label, None, 1.0 / mean(near.into_iter()).max(1e-3), "times smaller"));
        }
    }
    rows.extend(errors(&known));
    progress(0.8);
    rows.extend(cost(&samples));
    progress(1.0);
    Ok(rows)
}

/// Of the pages whose entropies Table 2 has, per cent of which at least half is zeros.
fn zeros(known: &[(f64, &Sample)]) -> f64 {
    let half = |s: &Sample| s.page.iter().filter(|byte| **byte == 0).count() * 2 >= PAGE;
    let of_table = known.iter().filter(|(e, _)| (0.95..1.85).contains(e));
    mean(of_table.map(|(_, s)| if half(s) { 100.0 } else { 0.0 }))
}

/// How far off the predictor is. Pages of one byte value have no entropy to be off from.
fn errors(known: &[(f64, &Sample)]) -> Vec<Row> {
    let off = |of: &dyn Fn(&Sample) -> f64| {
        mean(known.iter().filter(|(e, _)| *e > 0.1).map(|(e, s)| (of(s) - e).abs() / e)) * 100.0
    };
    let integers = off(&|s| bits(medfs_entropy::whole_entropy(&s.page)));
    let sampled = off(&|s| bits(medfs_entropy::entropy(&s.page)));
    let ratio = |s: &Sample| f64::from(medfs_entropy::ratio(&s.page)) / f64::from(WHOLE);
    let of_ratio = mean(known.iter().map(|(_, s)| (ratio(s) - s.ratio).abs()));
    let better = "smaller is better: the paper gives an upper bound";
    vec![
        Row::new("error of the entropy in integers (less than)", Some(1.7), integers, "%").if_off(better),
        Row::new("error of the entropy from a tenth of the bytes (less than)", Some(5.0), sampled, "%")
            .if_off(better),
        Row::new("mean error of the predicted ratio, of a page", None, of_ratio * 100.0, "%"),
    ]
}

/// Nanoseconds of a page, the mean of all: of each the best of some rounds, with its bytes in the cache, as
/// what was just received is.
pub(crate) fn best_of(rounds: usize, samples: &[Sample], mut work: impl FnMut(&Sample)) -> f64 {
    const CALLS: u32 = 4;
    let of = |sample: &Sample| {
        let round = |_| {
            let begun = Instant::now();
            (0..CALLS).for_each(|_| work(std::hint::black_box(sample)));
            begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
        };
        (0..rounds).map(round).fold(f64::INFINITY, f64::min)
    };
    mean(samples.iter().map(of))
}

/// What predicting costs, of compressing: both in this run, of the same pages.
fn cost(samples: &[Sample]) -> Vec<Row> {
    let some = &samples[..samples.len().min(2000)];
    let predict = best_of(6, some, |s| {
        std::hint::black_box(medfs_entropy::ratio(&s.page));
    });
    let mut rows = Vec::new();
    for name in CODECS {
        let Ok(mut codec) = PageCodec::new(name) else { continue };
        let mut out = vec![0; 2 * PAGE];
        let compress = best_of(3, some, |s| {
            std::hint::black_box(codec.compress(0, &s.page[..], &mut out));
        });
        let paper = (name == "lzo").then_some(1.8);
        let why = "counting 408 bytes one by one takes a processor of today 3% of LZO's time alone, as it compresses a page in a third of the cycles \
                   that the paper's controller takes; the C LZO1X-1 is as fast as ours (cargo bench -p medfs-codec --bench entropy)";
        let label = format!("cost of a prediction, of compressing with {name}");
        rows.push(Row::new(label, paper, predict / compress * 100.0, "%").if_off(why));
    }
    rows
}
