//! Replaying requests on a device: with real bytes, or with what is known of pages that carry none.

use crate::codecs::{Described, PageCodec, in_two_hundredths};
use crate::device::Device;
use crate::error::{FlashError, Result};
use crate::synth::{Drawn, Mix, Synth, bytes};
use crate::trace::{Op, Request};
use medfs_ftl::{Codec, Hint, PAGE};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

/// A compressor that pages can be replayed with.
pub trait Replayable: Codec {
    /// A page of this kind is about to be written to `lpn`; returns its bytes, none where pages have no content.
    fn prepare(&mut self, lpn: u32, drawn: &Drawn, described: (u8, u16), seed: u64) -> Vec<u8>;
}

impl Replayable for Described {
    fn prepare(&mut self, lpn: u32, _drawn: &Drawn, (predicted, size): (u8, u16), _seed: u64) -> Vec<u8> {
        self.describe(lpn, predicted, size);
        Vec::new()
    }
}

impl Replayable for PageCodec {
    fn prepare(&mut self, _lpn: u32, drawn: &Drawn, _described: (u8, u16), seed: u64) -> Vec<u8> {
        bytes(drawn.ratio, seed).to_vec()
    }
}

/// Options of a replay.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// The content assumed for pages of which the trace says nothing.
    pub mix: Mix,
    /// Seed of these.
    pub seed: u64,
    /// Requests beyond the device go to its beginning; otherwise they are an error.
    pub wrap: bool,
}

/// The results of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Requests.
    pub requests: u64,
    /// Pages written.
    pub written: u64,
    /// Pages read.
    pub read: u64,
    /// Of the pages written, those whose ratio the trace told.
    pub told: u64,
    /// Requests that were moved to the beginning.
    pub wrapped: u64,
}

/// Replays requests; times count from the device's now. `name` is the trace's, for errors.
///
/// # Errors
/// A request beyond the device; the trace's; the device's.
pub fn replay<C: Replayable>(
    device: &mut Device<C>,
    name: &str,
    requests: impl Iterator<Item = Result<Request>>,
    options: &ReplayOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Replayed> {
    let synth = Synth::new(options.mix, options.seed);
    let begin = device.now();
    let mut done = Replayed::default();
    for request in requests {
        let request = request?;
        let at = begin + request.at;
        let logical = u64::from(device.logical_pages());
        let mut page = request.page;
        if page + u64::from(request.pages) > logical {
            if !options.wrap || u64::from(request.pages) > logical {
                let what = format!(
                    "page {page} and {} pages are beyond the device's {logical}: let them wrap, or create a larger device",
                    request.pages
                );
                return Err(FlashError::Trace(name.to_owned(), request.line, what));
            }
            page %= logical - u64::from(request.pages) + 1;
            done.wrapped += 1;
        }
        one(device, &request, page as u32, at, &synth, &mut done)?;
        done.requests += 1;
        if done.requests.is_multiple_of(1024) {
            progress(done.requests);
        }
    }
    progress(done.requests);
    Ok(done)
}

fn one<C: Replayable>(
    device: &mut Device<C>,
    request: &Request,
    page: u32,
    at: u64,
    synth: &Synth,
    done: &mut Replayed,
) -> Result<()> {
    match request.op {
        Op::Write => {
            done.written += u64::from(request.pages);
            done.told += if request.ratios.is_empty() { 0 } else { u64::from(request.pages) };
            let pages: Vec<Vec<u8>> = (0..request.pages)
                .map(|i| {
                    let (lpn, seed) = (page + i, done.written ^ u64::from(i) << 32);
                    let drawn = drawn_for(request, i as usize, lpn, synth);
                    device.ftl_mut().codec_mut().prepare(lpn, &drawn, drawn.described(), seed)
                })
                .collect();
            let slices: Vec<&[u8]> = pages.iter().map(|p| &p[..]).collect();
            device.write(at, page, &slices, Hint::Warm)?;
        }
        Op::Read => {
            done.read += u64::from(request.pages);
            read(device, at, page, request.pages)?;
        }
        Op::Trim => {
            device.trim(at, page, request.pages)?;
        }
        Op::Flush => {
            device.flush(at)?;
        }
    }
    Ok(())
}

/// Reads pages and forgets them.
pub(crate) fn read<C: Codec>(device: &mut Device<C>, at: u64, page: u32, count: u32) -> Result<u64> {
    let mut pages = vec![vec![0; if C::CONTENT { PAGE } else { 0 }]; count as usize];
    let mut slices: Vec<&mut [u8]> = pages.iter_mut().map(|p| &mut p[..]).collect();
    device.read(at, page, &mut slices)
}

/// A page as the trace tells it, or drawn.
fn drawn_for(request: &Request, index: usize, lpn: u32, synth: &Synth) -> Drawn {
    let Some((entropy, ratio)) = request.ratios.get(index).or(request.ratios.first()) else {
        return synth.page(lpn, request.line);
    };
    let predicted = entropy.map_or(*ratio, |bits| {
        let thousandths = medfs_entropy::ratio_of((bits * f64::from(medfs_entropy::BIT)) as u32);
        f64::from(in_two_hundredths(thousandths)) / 200.0
    });
    Drawn { ratio: *ratio, predicted }
}

/// Fills a device with pages of a distribution, in order, and then overwrites a part of it at random places:
/// what a used device is like. Its statistics begin anew afterwards.
///
/// # Errors
/// The device's.
pub fn age<C: Replayable>(
    device: &mut Device<C>,
    mix: Mix,
    (fill, overwrite): (f64, f64),
    seed: u64,
    progress: &mut dyn FnMut(f64),
) -> Result<()> {
    let synth = Synth::new(mix, seed);
    let filled = (f64::from(device.logical_pages()) * fill.clamp(0.0, 1.0)) as u32;
    let overwritten = (f64::from(filled) * overwrite.max(0.0)) as u64;
    let total = f64::from(filled) + overwritten as f64;
    let mut lpn = 0;
    while lpn < filled {
        let count = (filled - lpn).min(128);
        put(device, lpn, count, &synth, 0)?;
        lpn += count;
        progress(f64::from(lpn) / total.max(1.0));
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for at in 0..overwritten {
        put(device, rng.random_range(0..filled), 1, &synth, at + 1)?;
        if at.is_multiple_of(4096) {
            progress((f64::from(filled) + at as f64) / total);
        }
    }
    device.reset_stats();
    Ok(())
}

fn put<C: Replayable>(
    device: &mut Device<C>,
    lpn: u32,
    count: u32,
    synth: &Synth,
    version: u64,
) -> Result<()> {
    let pages: Vec<Vec<u8>> = (lpn..lpn + count)
        .map(|lpn| {
            let drawn = synth.page(lpn, version);
            device.ftl_mut().codec_mut().prepare(
                lpn,
                &drawn,
                drawn.described(),
                u64::from(lpn) ^ version << 32,
            )
        })
        .collect();
    let slices: Vec<&[u8]> = pages.iter().map(|p| &p[..]).collect();
    let now = device.now();
    device.write(now, lpn, &slices, Hint::Cold)?;
    Ok(())
}
