//! Which section to clean.

use super::Cleaner;
use crate::error::Result;
use crate::options::VictimPolicy;
use medfs_format::BLOCKS_PER_SEG;
use medfs_store::Segments;
use medfs_store::Store;

/// Sections that one search looks at closely.
const SEARCH: u32 = 4096;

/// What a policy may look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    /// Valid blocks, in percent of the section.
    used_percent: u64,
    valid: u64,
    /// Age between 0 (the youngest section of this search) and 100 (the oldest).
    age: u64,
}

/// Puts a price on cleaning a section; the cheapest is cleaned.
pub(super) trait Victim {
    /// Whether the age counts, which has to be read.
    fn needs_age(&self) -> bool;
    fn cost(&self, candidate: &Candidate) -> u64;
}

/// The fewest blocks to move.
#[derive(Debug)]
pub(super) struct Greedy;

impl Victim for Greedy {
    fn needs_age(&self) -> bool {
        false
    }
    fn cost(&self, c: &Candidate) -> u64 {
        c.valid
    }
}

/// Free space gained, times age, for the work of moving: what is old changes rarely and stays where it is put.
#[derive(Debug)]
pub(super) struct CostBenefit;

impl Victim for CostBenefit {
    fn needs_age(&self) -> bool {
        true
    }
    fn cost(&self, c: &Candidate) -> u64 {
        u64::from(u32::MAX) - 100 * (100 - c.used_percent) * c.age / (100 + c.used_percent)
    }
}

/// The policy that a mount option names.
pub(super) fn policy(option: VictimPolicy) -> &'static dyn Victim {
    match option {
        VictimPolicy::Greedy => &Greedy,
        VictimPolicy::CostBenefit => &CostBenefit,
    }
}

impl Cleaner {
    /// The section to clean next; `None` where cleaning would gain nothing.
    pub(super) fn find_victim(&mut self, store: &Store, policy: &dyn Victim) -> Result<Option<u32>> {
        let sections = store.geo.section_count;
        let per = store.geo.segs_per_sec;
        let capacity = u64::from(per * BLOCKS_PER_SEG);
        let mut segs = store.segs.lock();
        segs.learn_all(&store.io);
        let (start, look_at) =
            if policy.needs_age() { (self.next % sections, SEARCH) } else { (0, u32::MAX) };
        let mut found: Vec<(u32, u64, u64)> = Vec::new();
        for section in (0..sections).map(|i| (start + i) % sections) {
            if self.stuck.contains(&section) || self.damaged.contains(&section) {
                continue;
            }
            let Some(valid) = movable(store, &mut segs, section) else { continue };
            if valid == 0 || valid >= capacity {
                continue;
            }
            let mut time = 0;
            if policy.needs_age() {
                for segno in section * per..(section + 1) * per {
                    time += segs.entry(&store.io, segno).map_or(0, |e| e.mtime / u64::from(per));
                }
            }
            found.push((section, valid, time));
            if found.len() as u32 >= look_at {
                break;
            }
        }
        drop(segs);
        let oldest = found.iter().map(|f| f.2).min().unwrap_or(0);
        let youngest = found.iter().map(|f| f.2).max().unwrap_or(0);
        let price = |&&(_, valid, time): &&(u32, u64, u64)| {
            let age = if youngest > oldest {
                (100 * u128::from(youngest - time) / u128::from(youngest - oldest)) as u64
            } else {
                100
            };
            policy.cost(&Candidate { used_percent: valid * 100 / capacity, valid, age })
        };
        let victim = found.iter().min_by_key(price).map(|f| f.0);
        if let Some(section) = victim
            && policy.needs_age()
        {
            self.next = section + 1;
        }
        Ok(victim)
    }
}

/// Valid blocks of a section; `None` where a log writes to it or it is being emptied.
fn movable(store: &Store, segs: &mut Segments, section: u32) -> Option<u64> {
    let per = store.geo.segs_per_sec;
    let mut valid = 0;
    for segno in section * per..(section + 1) * per {
        if segs.is_curseg(segno) || segs.free.withheld(segno).is_some() {
            return None;
        }
        valid += u64::from(segs.valid_blocks(&store.io, segno));
    }
    Some(valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(valid: u64, age: u64) -> Candidate {
        Candidate { used_percent: valid * 100 / 512, valid, age }
    }

    #[test]
    fn greedy_ignores_age() {
        assert!(Greedy.cost(&candidate(10, 0)) < Greedy.cost(&candidate(11, 100)));
    }

    #[test]
    fn cost_benefit_waits_for_young_sections() {
        let old_and_fuller = candidate(300, 90);
        let young_and_emptier = candidate(200, 10);
        assert!(CostBenefit.cost(&old_and_fuller) < CostBenefit.cost(&young_and_emptier));
        assert!(CostBenefit.cost(&candidate(100, 50)) < CostBenefit.cost(&candidate(400, 50)));
    }
}
