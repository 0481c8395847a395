//! How much of the main area is kept from users, as `mkfs.f2fs` chooses it.

use crate::summary::LOG_COUNT;

/// Segments that cleaning needs in reserve at an over-provisioning ratio in percent.
pub fn reserved(ratio: f64, segs_per_sec: u32) -> f64 {
    (2.0 * (100.0 / ratio + 1.0) + LOG_COUNT as f64) * f64::from(segs_per_sec)
}

/// The ratio in percent that leaves users most space.
pub fn best_ratio(main_segments: u32, segs_per_sec: u32) -> f64 {
    let (mut candidate, end, step) = if main_segments < 256 { (10.0, 95.0, 5.0) } else { (0.01, 10.0, 0.01) };
    let (mut best, mut best_space) = (candidate, 0.0f64);
    while candidate <= end {
        let reserved = reserved(candidate, segs_per_sec);
        let over = (f64::from(main_segments) - reserved) * candidate / 100.0;
        if over >= 0.0 {
            let space = f64::from(main_segments) - reserved - over;
            if best_space < space {
                (best, best_space) = (candidate, space);
            }
        }
        candidate += step;
    }
    best
}

/// Reserved and over-provisioned segments of a volume at its best ratio; both are possible whatever the volume's size.
pub fn segments(main_segments: u32, segs_per_sec: u32) -> (u32, u32) {
    let ratio = best_ratio(main_segments, segs_per_sec);
    let reserved = reserved(ratio, segs_per_sec) as u32;
    let over = (f64::from(main_segments.saturating_sub(reserved)) * ratio / 100.0) as u32 + reserved;
    let most = main_segments.saturating_sub(1).max(1);
    (reserved.clamp(1, most), over.clamp(1, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_leaves_room() {
        for main in 8..3000 {
            let (reserved, over) = segments(main, 1);
            assert!(reserved > 0 && reserved <= over && over < main, "{main}: {reserved}, {over}");
        }
    }
}
