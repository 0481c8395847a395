//! Section 6.4: time of the codecs, space of compact pages, time of clustering.
//!
//! The times of this experiment are this machine's wall clock, unlike all others; each is the best of several rounds.

use super::hotness::{Seen, watch};
use super::lab::{Lab, Outcome};
use crate::cell::{Cell, Row};
use crate::content::{Content, Writer};
use crate::distribution::Shape;
use crate::error::{Error, Result};
use crate::random::Random;
use medfs_codec::compress::{Compressor, Lzo};
use medfs_codec::{Codecs, PAGE_SIZE, Page};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

/// Pages of the sample.
const PAGES: usize = 400;
/// Rounds, of which the best counts.
const ROUNDS: usize = 7;

/// Pages of records, and what they become by a small update.
fn sample(seed: u64) -> Vec<(Page, Page)> {
    let (mut writer, mut random) = (Writer::new(seed), Random::new(seed, "overhead"));
    (0..PAGES)
        .map(|_| {
            let bytes = writer.pages(&mut random, Content::Json, Shape::Structured, PAGE_SIZE);
            let base: Page = bytes.try_into().expect("a page was asked for");
            let mut page = base;
            for _ in 0..4 {
                let at = random.below(PAGE_SIZE as u64 - 16) as usize;
                page[at..at + 16].iter_mut().for_each(|b| *b = b'0' + random.below(10) as u8);
            }
            (base, page)
        })
        .collect()
}

/// Mean microseconds of one call over the sample, the best of the rounds.
fn best(mut round: impl FnMut()) -> f64 {
    let once = |round: &mut dyn FnMut()| {
        let started = Instant::now();
        round();
        started.elapsed().as_secs_f64() * 1e6 / PAGES as f64
    };
    (0..ROUNDS).map(|_| once(&mut round)).fold(f64::MAX, f64::min)
}

/// Times of the codecs, by name.
fn codec_times(seed: u64) -> BTreeMap<String, f64> {
    let sample = sample(seed);
    let mut lzo = Lzo::default();
    let mut out = vec![0; 2 * PAGE_SIZE];
    let compressed: Vec<Vec<u8>> = sample
        .iter()
        .map(|(_, page)| {
            let len = lzo.compress(page, &mut out).unwrap_or(0);
            out[..len].to_vec()
        })
        .collect();
    let compress = best(|| {
        for (_, page) in &sample {
            black_box(lzo.compress(black_box(page), &mut out));
        }
    });
    let expand = best(|| {
        for bytes in &compressed {
            black_box(lzo.expand(black_box(bytes), &mut out).is_ok());
        }
    });
    let mut codecs = Codecs::default();
    let mut delta = [0; 256];
    let deltas: Vec<_> =
        sample.iter().map(|(base, page)| codecs.encode(base, page, &mut delta).map(|e| (e, delta))).collect();
    let encode = best(|| {
        for (base, page) in &sample {
            black_box(codecs.encode(black_box(base), page, &mut delta).is_some());
        }
    });
    let mut page = [0; PAGE_SIZE];
    let decode = best(|| {
        for ((base, _), made) in sample.iter().zip(&deltas) {
            if let Some((encoded, bytes)) = made {
                black_box(
                    codecs.decode(encoded.tag, black_box(base), &bytes[..encoded.len], &mut page).is_ok(),
                );
            }
        }
    });
    [("LZO compress", compress), ("LZO expand", expand), ("delta compress", encode), ("delta expand", decode)]
        .map(|(name, v)| (name.to_owned(), v))
        .into()
}

/// Rows of section 6.4.
pub(super) fn run(lab: &Lab<'_>) -> Result<Vec<Row>> {
    lab.begin(4);
    let workload = &lab.spec.workloads[0];
    let recording = lab.record(workload)?;
    lab.settings.progress.step("codecs");
    let mut values = codec_times(lab.settings.seed);
    lab.settings.progress.step("clustering");
    let Seen { files, regroup_micros, volume } = watch(lab, &recording)?;
    let mut inos: Vec<u32> = files.iter().filter_map(|h| volume.ino(&h.file).ok()).collect();
    inos.truncate(PAGES);
    if !inos.is_empty() {
        let calls = PAGES / inos.len() + 1;
        let judge = best(|| {
            for _ in 0..calls {
                for ino in &inos {
                    black_box(volume.volume().hotness(*ino));
                }
            }
        });
        values.insert("Hcluster judge".into(), judge * PAGES as f64 / (calls * inos.len()) as f64);
    }
    values.extend(regroup_micros.map(|micros| ("Hcluster centroids".to_owned(), micros)));
    volume.unmount().map_err(Error::engine("unmounting"))?;
    let cell = Cell { values: values.clone(), ..lab.blank_cell("codecs", "none") };
    let file = lab.keep(&cell)?;
    let mut rows: Vec<Row> = [
        "LZO compress",
        "LZO expand",
        "delta compress",
        "delta expand",
        "traversal",
        "Hcluster judge",
        "Hcluster centroids",
    ]
    .iter()
    .map(|name| lab.spec.row(name, "", values.get(*name).copied(), std::slice::from_ref(&file)))
    .collect();
    rows.push(storage(lab, workload, &recording)?);
    Ok(rows)
}

/// What compact pages take of what was written.
fn storage(lab: &Lab<'_>, workload: &str, recording: &crate::workload::Recording) -> Result<Row> {
    let scheme = lab.schemes()?.remove(0);
    let ours = match lab.cell(workload, &scheme, "", recording)? {
        Outcome::Ran(cell, file) => {
            let share = cell
                .values
                .get("compact_pages")
                .map(|p| 100.0 * p * 4096.0 / recording.totals.bytes() as f64);
            (share, vec![file])
        }
        Outcome::NotAvailable(_) => (None, Vec::new()),
    };
    let mut row = lab.spec.row("compact pages", "", ours.0, &ours.1);
    row.unit = "% of what is written".into();
    Ok(row)
}
