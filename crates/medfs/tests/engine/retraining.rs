//! Training the decision tree of reserved files anew (ARS): what is learned from, when, and what becomes of the tree.

use crate::common::*;
use medfs::ars::{ATTRIBUTE, Accuracies, Class, Fate, FileSample, Trained, Trainer, Tree, TreeNode};
use medfs::{Files, Ino, ManualClock, Volume};
use medfs_device::MemDevice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TREE: &str = "placement=reserve,reserve_files=tree";
const HOUR: u64 = 3600;

/// A trainer that keeps what it was asked, and whose tree is better as long as it is another one.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<Vec<FileSample>>>>);

impl Asked {
    fn times(&self) -> usize {
        self.0.lock().expect("no test panicked").len()
    }

    fn last(&self) -> Vec<FileSample> {
        self.0.lock().expect("no test panicked").last().expect("it was asked").clone()
    }
}

impl Trainer for Asked {
    fn train(&self, samples: &[FileSample], in_force: &Tree) -> Trained {
        self.0.lock().expect("no test panicked").push(samples.to_vec());
        let better = Some(always(Class::Reserve)).filter(|tree| tree != in_force);
        let accuracies = Some(Accuracies { in_force: 0.5, new: 0.75 });
        Trained { files: 1, least_files: 1, accuracies, better }
    }
}

/// A tree that is one answer.
fn always(class: Class) -> Tree {
    Tree::new(vec![TreeNode::Leaf { class, confidence: 100 }]).expect("a tree")
}

fn tree_of(v: &Volume) -> Option<Tree> {
    v.getxattr(v.root(), ATTRIBUTE).ok().map(|bytes| Tree::parse(&bytes).expect("a tree"))
}

fn errno<T>(result: medfs::Result<T>) -> i32 {
    result.err().map_or(0, |e| e.errno())
}

fn opened(options: &str) -> (Volume, Asked, Arc<ManualClock>, Arc<MemDevice>) {
    let (device, clock) = (Arc::new(blank(256, all_features())), Arc::new(ManualClock::new(START)));
    let (v, asked) = (open_with(device.clone(), options, clock.clone()), Asked::default());
    v.train_with(Box::new(asked.clone()));
    (v, asked, clock, device)
}

/// Writes pages of a file in an order, each synced.
fn written(v: &Volume, name: &str, order: impl Iterator<Item = u64>) -> Ino {
    let f = file(v, v.root(), name);
    for index in order {
        write(v, f, index * PAGE as u64, &noise(index));
        v.fsync(f, false).expect("fsync");
    }
    f
}

#[test]
fn a_better_tree_becomes_the_volumes_and_stays_where_none_is_better() {
    let (v, asked, _, device) = opened(TREE);
    assert_eq!(tree_of(&v), None);
    let trained = v.retrain().expect("a tree is in force");
    assert!(trained.adopted && trained.accuracies.is_some());
    assert_eq!(tree_of(&v), Some(always(Class::Reserve)));
    // It is asked from then on.
    let f = written(&v, "f", (0..64).map(|n| n * 7 % 64));
    assert_eq!(medfs::ars::Judgement::of(&v, f).expect("the file").expect("written").class, Class::Reserve);
    v.sync().expect("sync");
    let before = v.stats().written;
    assert!(!v.retrain().expect("a tree is in force").adopted);
    v.sync().expect("sync");
    assert_eq!((asked.times(), v.stats().written), (2, before), "nothing is written for it");
    v.close().expect("close");
    judge(&device);
    let v = open_device(&device, TREE);
    assert_eq!(tree_of(&v), Some(always(Class::Reserve)));
}

#[test]
fn only_a_tree_that_is_asked_is_trained() {
    for options in ["", "placement=reserve,reserve_files=all", "placement=reserve,reserve_files=pinned"] {
        let (v, asked, ..) = opened(options);
        assert_eq!(errno(v.retrain()), 95, "{options}");
        assert_eq!((asked.times(), tree_of(&v)), (0, None));
    }
    let v = open_device(&Arc::new(blank(256, all_features())), TREE);
    assert_eq!(errno(v.retrain()), 95, "nobody makes trees");
    let (v, asked, _, device) = opened(TREE);
    v.close().expect("close");
    assert_eq!((errno(v.retrain()), asked.times()), (30, 0));
    drop(v);
    let v = open_device(&device, &format!("{TREE},ro"));
    v.train_with(Box::new(asked.clone()));
    assert_eq!((errno(v.retrain()), asked.times()), (30, 0));
}

/// The timer looks each hour for some days; in all but one hour of the day something is wanted.
fn days(v: &Volume, clock: &ManualClock, quiet: i64, days: u64, mut each: impl FnMut(u64)) {
    for hour in 0..days * 24 {
        clock.advance(Duration::from_secs(HOUR));
        let now = medfs::Clock::now(clock).secs / HOUR as i64 % 24;
        if now != quiet {
            v.getattr(v.root()).expect("attributes");
        }
        v.background().expect("background");
        each(hour + 1);
    }
}

#[test]
fn each_ten_days_in_the_quietest_hour() {
    let (v, asked, clock, _) = opened(&format!("{TREE},reserve_retrain=on"));
    let mut when = Vec::new();
    days(&v, &clock, 2, 25, |hour| {
        if asked.times() > when.len() {
            when.push((hour, medfs::Clock::now(&*clock).secs / HOUR as i64 % 24));
        }
    });
    assert_eq!(when.iter().map(|(_, hour)| *hour).collect::<Vec<_>>(), [2, 2]);
    assert!((240..264).contains(&when[0].0) && when[1].0 - when[0].0 == 240, "{when:?}");
    assert_eq!(tree_of(&v), Some(always(Class::Reserve)));
}

#[test]
fn nothing_is_trained_that_nobody_asked_for() {
    for options in [TREE, "reserve_retrain=on", "placement=reserve,reserve_files=all,reserve_retrain=on"] {
        let (v, asked, clock, _) = opened(options);
        days(&v, &clock, 2, 12, |_| ());
        assert_eq!((asked.times(), tree_of(&v)), (0, None), "{options}");
    }
}

/// The same whether the file has sections of its own or not, so that a tree does not learn its own answers.
#[test]
fn samples_say_what_was_done_to_a_file_and_not_where_it_lies() {
    let fates = [Class::Log, Class::Reserve].map(|class| {
        let (v, asked, ..) = opened(TREE);
        v.setxattr(v.root(), ATTRIBUTE, &always(class).to_bytes(), medfs::XattrMode::Set).expect("a tree");
        written(&v, "scattered", (0..200).map(|n| n * 37 % 200));
        written(&v, "in order", 0..200);
        written(&v, "short", 0..15);
        v.unlink(v.root(), b"scattered").expect("unlink");
        v.retrain().expect("a tree is in force");
        asked.last()
    });
    for samples in &fates {
        let files: Vec<u32> = samples.iter().map(|sample| sample.file).collect();
        assert_eq!(files, [1, 1, 2, 2], "at the 16th and the 64th write of two files");
        let [scattered, _, in_order, _] = samples[..] else { panic!("{samples:?}") };
        assert!(scattered.fate.pieces > 180, "{scattered:?}");
        assert_eq!(in_order.fate, Fate { writes: 200, pages: 200, pieces: 1 });
    }
    let [log, reserved] = fates.map(|samples| samples.iter().map(|s| s.fate).collect::<Vec<_>>());
    assert_eq!(log, reserved);
}
