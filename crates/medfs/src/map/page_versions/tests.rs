//! Versions, against copies of everything.

use super::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn attributes(size: u64) -> Attributes {
    let time = Timestamp { secs: 0, nanos: 0 };
    Attributes { size, mode: 0o100644, owner: (0, 0), mtime: time, ctime: time }
}

fn page(value: u8) -> Arc<Block> {
    let mut page = Block::ZERO;
    page.0[0] = value;
    Arc::new(page)
}

fn value(page: Option<&Arc<Block>>) -> Option<u8> {
    page.map(|page| page.0[0])
}

#[test]
fn a_page_that_changes_is_copied_once_for_all_versions_that_see_it() {
    let mut pages = PageVersions::default();
    (0..3).for_each(|index| pages.insert(index, page(1)));
    let first = pages.close(attributes(1));
    let second = pages.close(attributes(2));
    assert_eq!(pages.held().pages, 3, "closing copies nothing");
    for value in 2..5 {
        pages.change(1).unwrap().0[0] = value;
    }
    assert_eq!(pages.held().pages, 4, "one copy");
    for version in [first, second] {
        assert_eq!(value(pages.page_in(version, 1)), Some(1));
        assert!(pages.is_as_in(version, 0) && !pages.is_as_in(version, 1));
    }
    assert_eq!(value(pages.get(1)), Some(4));
    pages.drop_version(first);
    assert_eq!((pages.held().pages, value(pages.page_in(second, 1))), (4, Some(1)));
    pages.drop_version(second);
    assert_eq!(pages.held().pages, 3, "no version sees the copy");
}

#[test]
fn a_version_that_a_newer_one_replaces_takes_its_pages_along() {
    let mut pages = PageVersions::default();
    pages.insert(0, page(0));
    let versions: Vec<VersionId> = (0..50)
        .map(|n| {
            pages.change(0).unwrap().0[0] = n;
            pages.close(attributes(u64::from(n)))
        })
        .collect();
    pages.change(0).unwrap().0[0] = 99;
    assert_eq!(pages.held().pages, 51);
    let (last, others) = versions.split_last().unwrap();
    others.iter().for_each(|&version| pages.drop_version(version));
    assert_eq!((pages.held().pages, value(pages.page_in(*last, 0))), (2, Some(49)));
    assert_eq!(pages.attributes(*last).unwrap().size, 49);
    assert_eq!(pages.attributes(others[0]), None);
}

#[test]
fn what_is_cut_off_stays_in_closed_versions() {
    let mut pages = PageVersions::default();
    pages.insert(5, page(1));
    let before = pages.close(attributes(6));
    pages.cut(5);
    let between = pages.close(attributes(0));
    pages.insert(5, page(2));
    assert_eq!(value(pages.page_in(before, 5)), Some(1));
    assert_eq!(value(pages.page_in(between, 5)), None);
    assert_eq!(value(pages.get(5)), Some(2));
    pages.drop_version(before);
    assert_eq!(pages.held().pages, 1);
}

/// Against copies of everything, made as each version is closed.
#[test]
fn versions_are_what_they_were_when_they_were_closed() {
    for seed in 0..40 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut pages = PageVersions::default();
        let mut open: BTreeMap<u64, u8> = BTreeMap::new();
        let mut closed: Vec<(VersionId, u64, BTreeMap<u64, u8>)> = Vec::new();
        for step in 0..300u64 {
            let (index, byte) = (rng.random_range(0..8), step as u8);
            match rng.random_range(0..8) {
                0..=1 => {
                    pages.insert(index, page(byte));
                    open.insert(index, byte);
                }
                2..=3 => {
                    let changed = pages.change(index).map(|page| page.0[0] = byte).is_some();
                    assert_eq!(changed, open.contains_key(&index));
                    open.entry(index).and_modify(|value| *value = byte);
                }
                4 => {
                    pages.cut(index);
                    open.remove(&index);
                }
                5..=6 => closed.push((pages.close(attributes(step)), step, open.clone())),
                _ if !closed.is_empty() => {
                    let (version, ..) = closed.remove(rng.random_range(0..closed.len()));
                    pages.drop_version(version);
                }
                _ => {}
            }
            for (version, size, was) in &closed {
                let is: BTreeMap<u64, u8> = (0..8)
                    .filter_map(|index| Some((index, value(pages.page_in(*version, index))?)))
                    .collect();
                assert_eq!((&is, pages.attributes(*version).unwrap().size), (was, *size), "seed {seed}");
            }
            assert_eq!(pages.dirty_len(), open.len());
        }
        closed.iter().for_each(|(version, ..)| pages.drop_version(*version));
        assert_eq!(pages.held().pages, open.len(), "no copy is left");
    }
}
#[test]
fn a_watched_file_knows_each_page_that_is_not_what_it_was() {
    let mut rng = ChaCha8Rng::seed_from_u64(16);
    let mut pages = PageVersions::default();
    (0..40).for_each(|index| pages.insert(index, page(0)));
    for epoch in 1..200 {
        assert_eq!(pages.touched(epoch), None, "it is not watched since the last checkpoint");
        pages.watch(epoch, BTreeSet::new());
        let before: BTreeMap<u64, Arc<Block>> = pages.dirty_here(..).map(|(i, p)| (i, p.clone())).collect();
        for _ in 0..rng.random_range(0..20) {
            let index = rng.random_range(0..60);
            match rng.random_range(0..5) {
                0 => pages.insert(index, page(1)),
                1 => pages.cut(index),
                2 => pages.clean(index),
                _ => drop(pages.change(index).map(|page| page.0[1] = 1)),
            }
        }
        let touched = pages.touched(epoch).unwrap();
        let same = |index: u64| match (before.get(&index), pages.get(index)) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        assert!((0..60).all(|index| same(index) || touched.contains(&index)));
    }
    (0..=MOST_TOUCHED as u64).for_each(|index| pages.insert(index, page(1)));
    assert_eq!(pages.touched(199), None, "too many to remember");
}
