//! How well pages compress, page by page: not as evenly as a mean says.
//!
//! The shape was measured, of files of a Debian machine, each page of 4 KiB by LZO alone (`docs/LAB.md` has
//! the rows; `crates/lab/tests/pages.rs` measures again). Pages are of two kinds: pictures and what is
//! compressed already, of which hardly a page gets smaller, and everything else, of which pages save from a
//! quarter to nearly all. An application whose mean is between the two holds both; the mean says how much of
//! each.

use crate::random::Random;

/// Per cent of pages that save so many tenths, from none to nine: the mean over six kinds of files, which
/// weigh the same.
const STRUCTURED: [f64; 10] = [0.0, 0.2, 1.8, 8.5, 11.9, 20.0, 17.2, 19.2, 6.3, 14.9];
/// The same of pictures.
const PACKED: [f64; 10] = [82.6, 6.8, 3.4, 2.4, 1.8, 0.8, 0.8, 0.7, 0.4, 0.3];
/// Of packed pages that save less than a tenth nearly all save nothing: the largest share drawn for them.
const PACKED_FIRST: f64 = 0.02;

/// The compressibility of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Databases, text, XML, JSON, records.
    Structured,
    /// Pictures, sound, archives.
    Packed,
}

impl Shape {
    /// Both, the one that compresses first.
    pub const ALL: [Shape; 2] = [Shape::Structured, Shape::Packed];

    fn tenths(self) -> &'static [f64; 10] {
        match self {
            Shape::Structured => &STRUCTURED,
            Shape::Packed => &PACKED,
        }
    }

    /// Where in the tenth of this number a share is drawn from: its start and its length.
    fn range(self, tenth: usize) -> (f64, f64) {
        match (self, tenth) {
            (Shape::Packed, 0) => (0.0, PACKED_FIRST),
            _ => (tenth as f64 / 10.0, 0.1),
        }
    }

    /// Draws what a compressor shall save of a page, from 0 to 1.
    pub fn draw(self, random: &mut Random) -> f64 {
        let all: f64 = self.tenths().iter().sum();
        let mut at = random.unit() * all;
        for (tenth, weight) in self.tenths().iter().enumerate() {
            if at < *weight {
                let (start, length) = self.range(tenth);
                return start + length * at / weight;
            }
            at -= weight;
        }
        1.0
    }

    /// The mean saving.
    pub fn mean(self) -> f64 {
        let all: f64 = self.tenths().iter().sum();
        let middle = |tenth| self.range(tenth).0 + self.range(tenth).1 / 2.0;
        self.tenths().iter().enumerate().map(|(n, weight)| weight * middle(n)).sum::<f64>() / all
    }

    /// The share of packed pages where so much is saved of all on average.
    pub fn packed_share(saved: f64) -> f64 {
        let (structured, packed) = (Shape::Structured.mean(), Shape::Packed.mean());
        ((structured - saved) / (structured - packed)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_as_the_tenths_say() {
        let mut random = Random::new(1, "shape");
        for shape in Shape::ALL {
            let mut seen = [0.0; 10];
            let mut sum = 0.0;
            for _ in 0..100_000 {
                let saved = shape.draw(&mut random);
                seen[((saved * 10.0) as usize).min(9)] += 0.001;
                sum += saved / 100_000.0;
            }
            let all: f64 = shape.tenths().iter().sum();
            for (n, weight) in shape.tenths().iter().enumerate() {
                assert!((seen[n] - 100.0 * weight / all).abs() < 0.7, "{shape:?}: {seen:?}");
            }
            assert!((sum - shape.mean()).abs() < 0.003, "{shape:?}: {sum}, {}", shape.mean());
        }
    }

    #[test]
    fn a_mean_says_how_much_is_packed() {
        for saved in [0.246, 0.377, 0.531] {
            let packed = Shape::packed_share(saved);
            let mean = packed * Shape::Packed.mean() + (1.0 - packed) * Shape::Structured.mean();
            assert!((mean - saved).abs() < 1e-9, "{saved}: {mean}");
        }
        assert_eq!((Shape::packed_share(0.0), Shape::packed_share(1.0)), (1.0, 0.0));
    }
}
