//! Rates and times made of a mounted volume's counters. Shares are from 0 to 1, `None` where there is nothing
//! to divide.

use super::report::at;
use crate::lifetime::{Card, SHORTEST};
use serde::Serialize;
use serde_json::Value;

const DAY_MILLIS: f64 = 86_400_000.0;

/// What `medfs stat` adds to the daemon's counters.
#[derive(Debug, Serialize)]
pub(super) struct Derived {
    /// Bytes of the pages that became deltas or were compressed, and so were not written, beside what was
    /// written instead.
    pub(super) saved_bytes: u64,
    /// Of all that would have been written.
    pub(super) saved_share: Option<f64>,
    /// MedFS's DCR: the part of the pages' bytes that deltas did not take.
    pub(super) delta_compression_ratio: Option<f64>,
    /// Bytes in use of the zones of the files in memory.
    pub(super) zones_filled: Option<f64>,
    /// Inodes that were in memory when they were looked for.
    pub(super) inode_hit_rate: Option<f64>,
    /// Pages that were.
    pub(super) page_hit_rate: Option<f64>,
    /// Bases of deltas that were.
    pub(super) base_hit_rate: Option<f64>,
    /// What this means for the card.
    pub(super) lifetime: Option<Lifetime>,
}

/// Eq. 1 of MedFS, for a volume that is used from now on as it was since the mount.
#[derive(Debug, Serialize)]
pub(super) struct Lifetime {
    pub(super) card: Card,
    /// Full-card writes a day, had each page been written that became a delta or was compressed.
    pub(super) drive_writes_per_day: f64,
    /// The part of that which was written.
    pub(super) ratio: f64,
    pub(super) years: f64,
    pub(super) years_without: f64,
}

impl Derived {
    pub(super) fn of(stats: &Value, card: &Card) -> Derived {
        let number = |path: &str| at(stats, path).as_u64().unwrap_or(0) as f64;
        let share = |part: f64, of: f64| (of > 0.0).then(|| part / of);
        let pages = number("deltas.made") * medfs_format::BLOCK_SIZE as f64;
        let compressed = number("fpc.made") * medfs_format::BLOCK_SIZE as f64;
        let (hits, misses) = (number("page_hits"), number("page_misses"));
        let bases = number("deltas.bases");
        let (written, saved) = (number("written_bytes"), pages + compressed);
        Derived {
            saved_bytes: saved as u64,
            saved_share: share(saved, written + saved),
            delta_compression_ratio: share(pages - number("deltas.bytes"), pages),
            zones_filled: share(number("zones.used"), number("zones.bytes")),
            inode_hit_rate: share(number("inode_hits"), number("inode_lookups")),
            page_hit_rate: share(hits, hits + misses),
            base_hit_rate: share(bases - number("deltas.bases_read"), bases),
            lifetime: Lifetime::of(written, saved, stats, card),
        }
    }
}

impl Lifetime {
    fn of(written: f64, saved: f64, stats: &Value, card: &Card) -> Option<Lifetime> {
        let millis = at(stats, "open_millis").as_u64().filter(|millis| *millis >= SHORTEST)?;
        let size = at(stats, "volume_bytes").as_u64().filter(|size| *size > 0)?;
        if written == 0.0 {
            return None;
        }
        let drive_writes_per_day = (written + saved) / size as f64 / (millis as f64 / DAY_MILLIS);
        let ratio = written / (written + saved);
        let years = |ratio| card.years(drive_writes_per_day, ratio);
        Some(Lifetime {
            card: card.clone(),
            drive_writes_per_day,
            ratio,
            years: years(ratio),
            years_without: years(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_and_lifetime_of_known_counters() {
        let card = Card { pe_cycles: 1000, spare_percent: 0.0, write_amplification: 1.0 };
        let stats = json!({
            "deltas": {"made": 100, "bytes": 4096, "bases": 10, "bases_read": 1},
            "zones": {"bytes": 1000, "used": 250}, "inode_lookups": 4, "inode_hits": 3,
            "page_hits": 1, "page_misses": 3, "written_bytes": 4096 * 100, "volume_bytes": 4096 * 200,
            "open_millis": 86_400_000u64,
        });
        let d = Derived::of(&stats, &card);
        assert_eq!(d.delta_compression_ratio, Some(0.99));
        assert_eq!((d.saved_bytes, d.saved_share), (4096 * 100, Some(0.5)));
        assert_eq!((d.zones_filled, d.inode_hit_rate, d.page_hit_rate), (Some(0.25), Some(0.75), Some(0.25)));
        assert_eq!(d.base_hit_rate, Some(0.9));
        // As much again would have been written: a whole card a day, halved.
        let life = d.lifetime.expect("a day is long enough");
        assert_eq!((life.drive_writes_per_day, life.ratio), (1.0, 0.5));
        assert!((life.years - 2.0 * 1000.0 / 365.0).abs() < 1e-9 && life.years_without * 2.0 == life.years);
        let nothing = Derived::of(&json!({}), &card);
        assert!(nothing.lifetime.is_none() && nothing.page_hit_rate.is_none());
    }
}
