//! The harness catches planted bugs, shrinks them, and passes what is right.

use medfs_device::MemDevice;
use medfs_testkit::harness::{Setup, run, run_seed, shrink};
use medfs_testkit::ops::Generator;
use medfs_testkit::planted::{Bug, mounter};
use std::sync::Arc;
use std::time::Duration;

fn setup(bug: Bug) -> Setup {
    Setup {
        image: Arc::new(MemDevice::new(16)),
        mounter: Arc::new(move || mounter(bug)),
        clock: None,
        checks: Vec::new(),
        check_every: 1,
        compare_every: 200,
        crowded: false,
    }
}

#[test]
fn without_a_bug_everything_passes() {
    for seed in 0..3 {
        let report = run_seed(&setup(Bug::None), seed, 3000, |_| {});
        assert!(report.crashes > 5 && report.remounts > 5, "{report:?}");
    }
}

#[test]
fn every_planted_bug_is_caught_and_shrunk() {
    let bugs = [
        Bug::TruncateLeavesTail,
        Bug::MisplacedWrite,
        Bug::RenameLosesSource,
        Bug::FdatasyncForgets,
        Bug::XattrsNotDurable,
        Bug::FlagsNotDurable,
        Bug::CommitForgets,
        Bug::AbortCommits,
    ];
    for bug in bugs {
        let setup = setup(bug);
        let ops = Generator::new(3).ops(5000);
        let failure = run(&setup, &ops).expect_err(&format!("{bug:?} is caught"));
        let (minimal, cause) = shrink(&setup, &ops, &failure, Duration::from_secs(10));
        println!("{bug:?}: {failure}; {} operations suffice: {minimal:?} ({cause})", minimal.len());
        assert!(minimal.len() <= 12, "{bug:?}: {minimal:?}");
        assert!(run(&setup, &minimal).is_err());
    }
}
