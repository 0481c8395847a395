//! Content for traces that have none: how well pages compress, drawn from a stated distribution, the same for
//! the same seed.
//!
//! The classes are the paper's (section 4): *high* compressibility is a ratio below 0.25, *medium* below
//! 0.65, *low* below 0.95, *minimal* above. Within a class ratios are even. Pages of 64 KiB of the logical
//! space that begin together are alike, as pages of a file are.

use crate::codecs::Described;
use crate::error::{FlashError, Result};
use medfs_ftl::{PAGE, WHOLE};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// Names of the classes.
pub const CLASSES: [&str; 4] = ["high", "medium", "low", "minimal"];
/// Bounds of the ratios of each class. The most compressible pages still take a fiftieth.
pub const RANGES: [(f64, f64); 4] = [(0.02, 0.25), (0.25, 0.65), (0.65, 0.95), (0.95, 1.0)];
/// Pages that are alike.
const ALIKE: u32 = 16;
/// How far predictions are off, relative to the ratio, either way: LDC, section 5.1, measured less than 5%.
const PREDICTED_OFF: f64 = 0.05;

/// Shares of the classes of compressibility; they add up to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mix(pub [f64; 4]);

impl Mix {
    /// The volumes of the paper's five phones (Fig. 2): 84 to 91% of their space is of low or minimal compressibility.
    pub const SNAPSHOT: Mix = Mix([0.05, 0.075, 0.275, 0.6]);

    /// Reads `high=0.3,medium=0.2,low=0.2,minimal=0.3`; shares that are left out are 0.
    ///
    /// # Errors
    /// An unknown class, no number, or shares that do not add up to 1.
    pub fn parse(text: &str) -> Result<Mix> {
        let mut shares = [0.0; 4];
        for part in text.split(',') {
            let parsed = part.split_once('=').and_then(|(name, share)| {
                let class = CLASSES.iter().position(|c| *c == name.trim())?;
                let share: f64 = share.trim().parse().ok()?;
                (0.0..=1.0).contains(&share).then_some((class, share))
            });
            let Some((class, share)) = parsed else {
                let message = format!(
                    "'{part}' is not a share of a class: use one of {} and a number from 0 to 1",
                    CLASSES.join(", ")
                );
                return Err(FlashError::Usage(message));
            };
            shares[class] = share;
        }
        let sum: f64 = shares.iter().sum();
        if (sum - 1.0).abs() > 0.001 {
            return Err(FlashError::Usage(format!("the shares in '{text}' add up to {sum:.3}, not 1")));
        }
        Ok(Mix(shares))
    }

    /// A class, from a number that is even from 0 to 1.
    pub fn class(&self, at: f64) -> usize {
        let mut sum = 0.0;
        let found = self.0.iter().position(|share| {
            sum += share;
            at < sum
        });
        found.unwrap_or(3)
    }
}

/// The class of a ratio.
pub fn class_of(ratio: f64) -> usize {
    RANGES.iter().position(|(_, end)| ratio < *end).unwrap_or(3)
}

/// Draws pages.
#[derive(Debug, Clone)]
pub struct Synth {
    mix: Mix,
    seed: u64,
}

/// A page that was drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drawn {
    /// Compressed size over the page's.
    pub ratio: f64,
    /// The ratio that a predictor would tell.
    pub predicted: f64,
}

impl Drawn {
    /// What of it the translation layer is told: predicted ratio in two-hundredths, and bytes when compressed.
    pub fn described(&self) -> (u8, u16) {
        let predicted = (self.predicted * f64::from(WHOLE)).round().clamp(0.0, f64::from(WHOLE));
        let size = (self.ratio * PAGE as f64).round().clamp(1.0, PAGE as f64);
        (predicted as u8, size as u16)
    }
}

impl Synth {
    /// Draws from this distribution.
    pub fn new(mix: Mix, seed: u64) -> Synth {
        Synth { mix, seed }
    }

    /// The page that is written to this logical page as the `version`th.
    pub fn page(&self, lpn: u32, version: u64) -> Drawn {
        let family = self.seed ^ u64::from(lpn / ALIKE).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version << 40;
        let class = self.mix.class(Xoshiro256PlusPlus::seed_from_u64(family).random());
        draw(
            class,
            &mut Xoshiro256PlusPlus::seed_from_u64(
                family ^ u64::from(lpn).wrapping_mul(0xd1b5_4a32_d192_ed03),
            ),
        )
    }
}

/// A page of a class.
pub fn draw(class: usize, rng: &mut Xoshiro256PlusPlus) -> Drawn {
    let (from, to) = RANGES[class.min(3)];
    let ratio = rng.random_range(from..to);
    let predicted = ratio * (1.0 + rng.random_range(-PREDICTED_OFF..PREDICTED_OFF));
    Drawn { ratio, predicted: predicted.clamp(0.0, 1.0) }
}

/// Bytes that LZO compresses to about this ratio: noise in runs of 16 bytes among a byte that repeats.
pub fn bytes(ratio: f64, seed: u64) -> [u8; PAGE] {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut page = [rng.random::<u8>() & 0x3f; PAGE];
    // A change between noise and repetition takes LZO about five bytes.
    let noise = ((ratio - 0.01).max(0.0) * PAGE as f64) as usize;
    let runs = (noise / 64).max(1);
    let each = (noise / runs).saturating_sub(5);
    for run in 0..runs {
        let from = run * PAGE / runs;
        let to = if ratio >= 0.95 { (run + 1) * PAGE / runs } else { (from + each).min(PAGE) };
        rng.fill(&mut page[from..to]);
    }
    page
}

impl Described {
    /// Takes over what was drawn.
    pub fn describe_drawn(&mut self, lpn: u32, drawn: &Drawn) {
        let (predicted, size) = drawn.described();
        self.describe(lpn, predicted, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_codec::compress::{Compressor, Lzo};

    #[test]
    fn the_shares_are_those_that_were_asked_for() {
        let synth = Synth::new(Mix([0.1, 0.2, 0.3, 0.4]), 5);
        let mut seen = [0.0f64; 4];
        (0..160_000).for_each(|lpn| seen[class_of(synth.page(lpn, 1).ratio)] += 1.0 / 160_000.0);
        for (seen, wanted) in seen.iter().zip([0.1, 0.2, 0.3, 0.4]) {
            assert!((seen - wanted).abs() < 0.02, "{seen} of {wanted}");
        }
        assert_eq!(synth.page(77, 3), synth.page(77, 3));
        assert_ne!(synth.page(77, 3), Synth::new(Mix([0.1, 0.2, 0.3, 0.4]), 6).page(77, 3));
    }

    #[test]
    fn made_up_bytes_compress_as_stated() {
        let mut lzo = Lzo::default();
        for percent in 3..100 {
            let ratio = f64::from(percent) / 100.0;
            let mut out = [0; PAGE + 512];
            let size = lzo.compress(&bytes(ratio, 7), &mut out).unwrap();
            let is = (size as f64 / PAGE as f64).min(1.0);
            assert!((is - ratio).abs() < 0.06, "{ratio}: {is:.3}");
        }
    }

    #[test]
    fn shares_are_read_or_refused() {
        assert_eq!(Mix::parse("high=0.5, minimal=0.5").unwrap(), Mix([0.5, 0.0, 0.0, 0.5]));
        for (text, named) in [
            ("high=0.5", "0.500"),
            ("tall=1", "'tall=1'"),
            ("high=x", "'high=x'"),
            ("", "''"),
            ("low=2", "'low=2'"),
        ] {
            let error = Mix::parse(text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
