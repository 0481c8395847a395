//! Fig. 4 and 5: the size of compressed differences, and the time that compressing takes, of the paper's codecs and of
//! this program's deltas.
//!
//! The times are this machine's wall clock, as ratios to LZO's in the same run; each is the best of several rounds.

use super::bed::{FromSetup, row};
use super::ext4::{Ext4, Mode, Settings};
use super::jbd2::Model;
use super::lzf::Lzf;
use super::traces::{Bytes, difference, xor};
use crate::cell::Row;
use crate::content::{Content, Writer};
use crate::distribution::Shape;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use crate::random::Random;
use crate::workload::Recording;
use flate2::{Compress, Compression, FlushCompress, Status};
use medfs_codec::compress::{Compressor, Lz4, Lzo};
use medfs_codec::{Codecs, PAGE_SIZE, Page};
use std::hint::black_box;
use std::time::Instant;
use weezl::BitOrder;
use weezl::encode::Encoder;

/// Pages of a set, and rounds of which the best counts.
const PAGES: usize = 200;
const ROUNDS: usize = 5;
/// Bytes around a deflate stream that make it gzip's: its head, a checksum and a length.
const GZIP: usize = 10 + 8;

/// A page before and after an update.
type Pair = (Page, Page);

/// What compresses a pair of pages, and returns the bytes it takes.
trait Subject {
    fn name(&self) -> &'static str;
    fn compress(&mut self, pair: &Pair, difference: &Page) -> Result<usize>;
}

/// One of this program's codecs of pages.
struct Plain<C>(&'static str, C, Vec<u8>);

impl<C: Compressor> Subject for Plain<C> {
    fn name(&self) -> &'static str {
        self.0
    }
    fn compress(&mut self, _pair: &Pair, difference: &Page) -> Result<usize> {
        Ok(self.1.compress(difference, &mut self.2).unwrap_or(PAGE_SIZE))
    }
}

struct OfLzf(Lzf, Vec<u8>);

impl Subject for OfLzf {
    fn name(&self) -> &'static str {
        "LZF"
    }
    fn compress(&mut self, _pair: &Pair, difference: &Page) -> Result<usize> {
        self.0.compress(difference, &mut self.1);
        Ok(self.1.len())
    }
}

struct Gzip(Compress, Vec<u8>);

impl Subject for Gzip {
    fn name(&self) -> &'static str {
        "gzip"
    }
    fn compress(&mut self, _pair: &Pair, difference: &Page) -> Result<usize> {
        self.0.reset();
        let status = self.0.compress(difference, &mut self.1, FlushCompress::Finish);
        match status {
            Ok(Status::StreamEnd) => Ok(self.0.total_out() as usize + GZIP),
            other => Err(Error::Check(format!("gzip does not compress a page: {other:?}"))),
        }
    }
}

struct Lzw(Encoder, Vec<u8>);

impl Subject for Lzw {
    fn name(&self) -> &'static str {
        "LZW"
    }
    fn compress(&mut self, _pair: &Pair, difference: &Page) -> Result<usize> {
        self.0.reset();
        let done = self.0.encode_bytes(difference, &mut self.1);
        match done.status {
            Ok(weezl::LzwStatus::Ok | weezl::LzwStatus::Done) => {}
            other => return Err(Error::Check(format!("LZW does not compress a page: {other:?}"))),
        }
        self.0.finish();
        let rest = self.0.encode_bytes(&[], &mut self.1[done.consumed_out..]);
        Ok(done.consumed_out + rest.consumed_out)
    }
}

/// This program's deltas, which see both pages.
struct Deltas(Codecs, Vec<u8>);

impl Subject for Deltas {
    fn name(&self) -> &'static str {
        "delta"
    }
    fn compress(&mut self, (base, page): &Pair, _difference: &Page) -> Result<usize> {
        Ok(self.0.encode(base, page, &mut self.1).map_or(PAGE_SIZE, |encoded| encoded.len))
    }
}

/// LZO first: the times are set against its.
fn subjects() -> Vec<Box<dyn Subject>> {
    let out = || vec![0; 2 * PAGE_SIZE];
    vec![
        Box::new(Plain("LZO", Lzo::default(), out())),
        Box::new(Plain("LZ4", Lz4::default(), out())),
        Box::new(OfLzf(Lzf::default(), out())),
        Box::new(Gzip(Compress::new(Compression::default(), false), out())),
        Box::new(Lzw(Encoder::new(BitOrder::Msb, 8), out())),
        Box::new(Deltas(Codecs::default(), vec![0; PAGE_SIZE])),
    ]
}

/// Pages of records, and what they become by this difference.
fn synthetic(lab: &Lab<'_>, part: f64, bytes: Bytes) -> Vec<Pair> {
    let (mut writer, mut random) = (Writer::new(lab.settings.seed), Random::new(lab.settings.seed, "codecs"));
    (0..PAGES)
        .map(|_| {
            let content = writer.pages(&mut random, Content::Json, Shape::Structured, PAGE_SIZE);
            let base: Page = content.try_into().expect("a page was asked for");
            let added = difference(part, bytes, &mut random);
            (base, xor(&base, &added))
        })
        .collect()
}

/// Updates of a workload, from all over it: pages that were durable before, and as they are synced.
fn updates_of(recording: &Recording) -> Result<Vec<Pair>> {
    let model = Model { memory: None, waits: true, meanwhile: 1.0, part: 1.0 };
    let ext4 = Ext4::new(Settings { mode: Mode::Journal, model, fdatasync: true, metadata_delta: 0 });
    let played = recording.tape.play(&ext4, &mut FromSetup(&mut || ext4.keep_updates()));
    played.map_err(Error::io("playing a workload on the model of ext4"))?;
    let updates = ext4.updates();
    let step = updates.len().div_ceil(PAGES).max(1);
    Ok(updates.into_iter().step_by(step).collect())
}

/// Mean bytes, and nanoseconds of a page, of each subject. The rounds of all take turns.
fn measure(subjects: &mut [Box<dyn Subject>], pairs: &[Pair]) -> Result<Vec<(f64, f64)>> {
    let differences: Vec<Page> = pairs.iter().map(|(base, page)| xor(base, page)).collect();
    let mut figures = vec![(0.0, f64::MAX); subjects.len()];
    for _ in 0..ROUNDS {
        for (subject, (bytes, nanos)) in subjects.iter_mut().zip(&mut figures) {
            let (started, mut sum) = (Instant::now(), 0);
            for (pair, difference) in pairs.iter().zip(&differences) {
                sum += subject.compress(black_box(pair), black_box(difference))?;
            }
            *nanos = nanos.min(started.elapsed().as_secs_f64() * 1e9 / pairs.len() as f64);
            *bytes = sum as f64 / pairs.len() as f64;
        }
    }
    Ok(figures)
}

/// Pages that are compressed alike.
struct Set {
    label: String,
    /// The sets whose times are told as one.
    group: String,
    pairs: Vec<Pair>,
}

fn sets(lab: &Lab<'_>) -> Result<Vec<Set>> {
    let runs = lab.spec.numbers("runs")?[0] as usize;
    let kinds = [("inverted", "inv", Bytes::Inverted { runs }), ("any", "any", Bytes::Random)];
    let mut sets = Vec::new();
    for (name, short, bytes) in kinds {
        for &percent in lab.spec.numbers(name)? {
            let (label, pairs) = (format!("{percent}% {short}"), synthetic(lab, percent / 100.0, bytes));
            sets.push(Set { label, group: short.into(), pairs });
        }
    }
    for name in &lab.spec.workloads {
        let pairs = updates_of(&lab.record(name)?)?;
        sets.push(Set { label: name.clone(), group: name.clone(), pairs });
    }
    Ok(sets)
}

/// The size of each set of pages by each codec, and the time of each group of sets.
pub(in crate::experiment) fn compressed(lab: &Lab<'_>) -> Result<Vec<Row>> {
    lab.begin(1 + lab.spec.workloads.len());
    let (sets, mut subjects) = (sets(lab)?, subjects());
    lab.settings.progress.step("compressing");
    let (mut rows, mut times): (Vec<Row>, Vec<(&str, Vec<f64>)>) = (Vec::new(), Vec::new());
    for set in &sets {
        if times.last().is_none_or(|(group, _)| *group != set.group) {
            times.push((&set.group, vec![0.0; subjects.len()]));
        }
        let figures = measure(&mut subjects, &set.pairs)?;
        for (n, (bytes, nanos)) in figures.into_iter().enumerate() {
            let part = 100.0 * bytes / PAGE_SIZE as f64;
            rows.push(row(lab, (&set.label, subjects[n].name(), "% of a block"), part, &[]));
            if let Some((_, of)) = times.last_mut() {
                of[n] += nanos;
            }
        }
    }
    for (group, of) in &times {
        for (subject, time) in subjects.iter().zip(of) {
            let label = format!("time, {group}");
            rows.push(row(lab, (&label, subject.name(), "of LZO's"), time / of[0], &[]));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Decompress;
    use flate2::FlushDecompress;
    use weezl::decode::Decoder;

    fn pair() -> (Pair, Page) {
        let mut random = Random::new(3, "pair");
        let base = difference(0.7, Bytes::Random, &mut random);
        let added = difference(0.1, Bytes::Inverted { runs: 7 }, &mut random);
        ((base, xor(&base, &added)), added)
    }

    #[test]
    fn streams_of_the_libraries_are_whole() {
        let (pair, added) = pair();
        let mut gzip = Gzip(Compress::new(Compression::default(), false), vec![0; 2 * PAGE_SIZE]);
        let mut lzw = Lzw(Encoder::new(BitOrder::Msb, 8), vec![0; 2 * PAGE_SIZE]);
        // Twice, as nothing of a page may be left for the next.
        for _ in 0..2 {
            let len = gzip.compress(&pair, &added).unwrap() - GZIP;
            let mut back = [0; PAGE_SIZE];
            let status =
                Decompress::new(false).decompress(&gzip.1[..len], &mut back, FlushDecompress::Finish);
            assert!(matches!(status, Ok(Status::StreamEnd)) && back == added);
            let len = lzw.compress(&pair, &added).unwrap();
            assert!(Decoder::new(BitOrder::Msb, 8).decode(&lzw.1[..len]).unwrap() == added);
        }
    }

    #[test]
    fn each_codec_has_its_strength() {
        let (pair, added) = pair();
        let sizes = |pair: &Pair, added: &Page| -> Vec<(&str, usize)> {
            subjects().iter_mut().map(|s| (s.name(), s.compress(pair, added).unwrap())).collect()
        };
        let of = |sizes: &[(&str, usize)], name: &str| sizes.iter().find(|(n, _)| *n == name).unwrap().1;
        let runs = sizes(&pair, &added);
        assert!(runs.iter().all(|(_, bytes)| *bytes < PAGE_SIZE / 4), "{runs:?}");
        assert!(of(&runs, "gzip") < of(&runs, "LZO"), "{runs:?}");
        // Bytes that do not repeat.
        let added = difference(0.1, Bytes::Random, &mut Random::new(4, "added"));
        let any = sizes(&(pair.0, xor(&pair.0, &added)), &added);
        assert!(any.iter().all(|(name, bytes)| *name == "delta" || *bytes > of(&any, "delta")), "{any:?}");
    }
}
