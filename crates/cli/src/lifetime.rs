//! How long a card lasts: Eq. 1 of MedFS, for the demo and for a mounted volume.

use clap::Args;
use serde::Serialize;

/// What is assumed of the card.
#[derive(Args, Debug, Clone, Serialize)]
pub(crate) struct Card {
    /// Program/erase cycles each block of the card endures
    #[arg(long, value_name = "CYCLES", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pe_cycles: u32,
    /// Spare space inside the card, in per cent of its size
    #[arg(long = "card-spare", value_name = "PERCENT", default_value_t = 7.0, value_parser = spare)]
    pub(crate) spare_percent: f64,
    /// Write amplification inside the card
    #[arg(long = "card-wa", value_name = "FACTOR", default_value_t = 4.0, value_parser = amplification)]
    pub(crate) write_amplification: f64,
}

impl Card {
    /// years = PEC x (1 + OP) / (365 x DWPD x WA x R): `dwpd` full-card writes a day without saving, `ratio`
    /// the part of them that is left.
    pub(crate) fn years(&self, dwpd: f64, ratio: f64) -> f64 {
        let spare = self.spare_percent / 100.0;
        f64::from(self.pe_cycles) * (1.0 + spare) / (365.0 * dwpd * self.write_amplification * ratio)
    }
}

/// Most spare space, in per cent: beyond any card's.
const SPARE_MAX: f64 = 1000.0;
/// Most write amplification: beyond any card's.
const AMPLIFICATION_MAX: f64 = 1000.0;

fn spare(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=SPARE_MAX).contains(percent));
    percent.ok_or_else(|| format!("expected per cent from 0 to {SPARE_MAX}"))
}

fn amplification(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| *factor > 0.0 && *factor <= AMPLIFICATION_MAX);
    factor.ok_or_else(|| format!("expected a factor above 0 and up to {AMPLIFICATION_MAX}"))
}

/// Shortest time from which a day is told, in milliseconds.
pub(crate) const SHORTEST: u64 = 60_000;

/// `4.9 years`, `120 days`.
pub(crate) fn show(years: f64) -> String {
    match years {
        y if !y.is_finite() => "-".into(),
        y if y >= 1000.0 => "over 1000 years".into(),
        y if y >= 1.0 => format!("{y:.1} years"),
        y => format!("{:.0} days", y * 365.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_example() {
        // MedFS, section 6.2.1: 131 GB a month on 128 GB of 1000 cycles, amplified by 2 and 8.27: 4.9 years; 55.1% less
        // is 11.
        let card = Card { pe_cycles: 1000, spare_percent: 0.0, write_amplification: 2.0 * 8.27 };
        let dwpd = 131.0 * 12.0 / 365.0 / 128.0;
        assert!((card.years(dwpd, 1.0) - 4.9).abs() < 0.05, "{}", card.years(dwpd, 1.0));
        assert!((card.years(dwpd, 1.0 - 0.551) - 11.0).abs() < 0.1);
    }

    #[test]
    fn cards_that_there_are() {
        assert_eq!((spare("0"), amplification("1.5")), (Ok(0.0), Ok(1.5)));
        for wrong in ["-1", "nan", "inf", "x"] {
            assert!(spare(wrong).is_err() && amplification(wrong).is_err(), "{wrong}");
        }
        assert!(amplification("0").is_err());
    }

    #[test]
    fn times_as_people_say_them() {
        assert_eq!(show(4.92), "4.9 years");
        assert_eq!(show(0.5), "182 days");
        assert_eq!(show(f64::INFINITY), "-");
    }
}
