//! Operations whose k-th request to the device fails, for every k: afterwards everything is as it was before the
//! operation or as it is after it, in memory and on the medium.
//!
//! `MEDFS_SEED=7 cargo test -p medfs --test engine nth_request` chooses the requests of the short run.
//! `MEDFS_OPERATION=4` takes one operation, by the number that a failure prints, and `MEDFS_NTH=12` one request.

use crate::common::*;
use crate::halfway::{Kind, Operation, Result, find, kinds, operations, size};
use medfs::{FallocateMode, Files, ManualClock, Volume};
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind as FaultKind};
use medfs_device::trace::{Operation as Request, TracingDevice};
use medfs_testkit::fuzz::{sample_seed, variable};
use medfs_testkit::harness::guarded;
use medfs_testkit::images::{DELTAS, FEATURE_SETS, FsckMedfs, options_for};
use medfs_testkit::model::Model;
use medfs_testkit::observe::{compare, is_between, observe};
use medfs_testkit::subject::Check;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha12Rng;
use std::sync::Arc;

const P: u64 = PAGE as u64;
/// Pages of a direct node.
const NODE: u64 = 1018;
/// Direct nodes of a file that has more than the smallest cache of nodes holds.
const WIDE: u64 = 400;

/// Operations that are done wholly or not at all. Of the others each step is.
const WHOLE: [&str; 20] = [
    "grow",
    "unlink",
    "replace",
    "collapse",
    "insert",
    "atomic write",
    "atomic write and cut",
    "attribute",
    "no attribute",
    "move a directory",
    "whiteout",
    "link",
    "collapse clusters",
    "reserve",
    "wide: cut atomically",
    "wide: cut some atomically",
    "wide: write atomically",
    "wide: collapse",
    "wide: insert",
    "wide: unlink",
];

/// What passes through a state that is neither the one nor the other.
const COMPOSED: [&str; 1] = ["cut and grow"];

/// How requests fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// A read fails, and all behind it, until the operation is over.
    Reads,
    /// One read fails.
    Read,
    /// One write fails.
    Write,
    /// One flush fails.
    Flush,
}

impl Trouble {
    fn fault(self, n: u64) -> Fault {
        match self {
            Trouble::Reads => Fault::on(FaultKind::Read, Effect::IO).after(n),
            Trouble::Read => Fault::on(FaultKind::Read, Effect::IO).nth(n),
            Trouble::Write => Fault::on(FaultKind::Write, Effect::IO).nth(n),
            Trouble::Flush => Fault::on(FaultKind::Flush, Effect::IO).nth(n),
        }
    }

    fn is_of_reading(self) -> bool {
        matches!(self, Trouble::Reads | Trouble::Read)
    }
}

/// Files with more nodes than are kept in memory.
fn wide_kinds() -> Vec<Kind> {
    let base = |mib: u64, features: &'static str, options: &str| {
        let options = format!("{},{options},cache=1M", options_for(features));
        let device = Arc::new(medfs_testkit::images::formatted(mib, features).snapshot());
        let v = open_device(&device, &options);
        let f = file(&v, v.root(), "wide");
        for node in 0..WIDE {
            write(&v, f, (node * NODE + 930) * P, &noise(node + 1)[..100]);
        }
        write(&v, f, 0, &noise(5000));
        v.sync().expect("sync");
        for node in (0..WIDE).step_by(7) {
            write(&v, f, (node * NODE + 930) * P + 50, b"changed");
        }
        v.close().expect("close");
        Kind { features, device, options, compressed: false, wide: true }
    };
    vec![base(256, FEATURE_SETS[1], "rw"), base(256, DELTAS, "delta=full,compact_files=all")]
}

fn atomically(v: &Volume, change: impl FnOnce(u32) -> Result<()>) -> Result<()> {
    let f = find(v, "wide")?;
    let _ = v.atomic_abort(f);
    v.atomic_start(f)?;
    change(f)?;
    v.atomic_commit(f)
}

fn wide_operations() -> Vec<Operation> {
    vec![
        ("wide: truncate", |v| size(v, "wide", 5 * P + 100)),
        ("wide: cut atomically", |v| {
            atomically(v, |f| {
                v.write(f, 5, b"abc")?;
                size(v, "wide", 9 * P + 100)
            })
        }),
        ("wide: cut some atomically", |v| {
            atomically(v, |f| {
                let end = v.getattr(f)?.size;
                size(v, "wide", 9 * P + 100)?;
                for node in (0..WIDE).step_by(50) {
                    v.write(f, (node * NODE + 930) * P + 9, b"abc")?;
                }
                size(v, "wide", end)
            })
        }),
        ("wide: write atomically", |v| {
            atomically(v, |f| {
                // So their nodes are in some parts of the cache, and more than these hold.
                (0..WIDE)
                    .step_by(4)
                    .try_for_each(|node| v.write(f, (node * NODE + 930) * P + 9, b"abc").map(drop))
            })
        }),
        ("wide: punch", |v| {
            let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            v.fallocate(find(v, "wide")?, punch, 100, (WIDE - 2) * NODE * P)
        }),
        ("wide: collapse", |v| {
            v.fallocate(find(v, "wide")?, FallocateMode::COLLAPSE_RANGE, P, 20 * NODE * P)
        }),
        ("wide: insert", |v| v.fallocate(find(v, "wide")?, FallocateMode::INSERT_RANGE, P, 20 * NODE * P)),
        ("wide: unlink", |v| v.unlink(v.root(), b"wide")),
        ("wide: write and fsync", |v| {
            let f = find(v, "wide")?;
            for node in (0..WIDE).step_by(3) {
                v.write(f, (node * NODE + 930) * P + 70, b"written")?;
            }
            v.fsync(f, false)
        }),
    ]
}

/// An operation on a volume, with what the volume is before and after it.
struct Scene<'a> {
    kind: &'a Kind,
    operation: Operation,
    before: Model,
    after: Model,
}

impl Scene<'_> {
    fn new(kind: &Kind, operation: Operation) -> Scene<'_> {
        let Kind { device, options, .. } = kind;
        let undisturbed = open_device(&Arc::new(device.snapshot()), options);
        let before = observe(&undisturbed).expect("it is readable");
        operation.1(&undisturbed).unwrap_or_else(|e| panic!("{}: {e}", operation.0));
        let after = observe(&undisturbed).expect("it is readable");
        Scene { kind, operation, before, after }
    }

    /// A volume that is as after the operation, or as before it, or between the two.
    fn judge(&self, found: &Model) -> std::result::Result<(), String> {
        if compare(&self.after, found).is_ok() || COMPOSED.contains(&self.operation.0) {
            return Ok(());
        }
        match WHOLE.contains(&self.operation.0) {
            true => compare(&self.before, found),
            false => is_between(&self.before, &self.after, found),
        }
    }

    /// Runs the operation, on a device in trouble from the `n`-th request on. Whether that was met.
    fn strike(&self, trouble: Trouble, n: u64) -> std::result::Result<bool, String> {
        let options = &self.kind.options;
        let device = Arc::new(FaultDevice::new(self.kind.device.snapshot(), 1));
        let v = open_with(device.clone(), options, Arc::new(ManualClock::new(START)));
        device.arm(trouble.fault(n));
        let mut told = self.operation.1(&v);
        if !trouble.is_of_reading() {
            told = told.and_then(|()| v.sync());
        }
        let met = device.hits() > 0;
        device.heal();
        // What is open of an atomic write is nobody's after the unmount.
        let _ = ["big", "wide"].map(|name| find(&v, name).map(|f| v.atomic_abort(f)));
        let found = observe(&v).map_err(|e| format!("{told:?}: {e}"))?;
        match told {
            Ok(()) => compare(&self.after, &found).map_err(|e| format!("done, but {e}"))?,
            Err(_) => self.judge(&found).map_err(|e| format!("{told:?}: {e}"))?,
        }
        let closed = v.close();
        drop(v);
        if trouble.is_of_reading() {
            closed.as_ref().map_err(|e| format!("{told:?}, close: {e}"))?;
        }
        let medium = Arc::new(device.inner().snapshot());
        if closed.is_ok() {
            FsckMedfs.check(medium.clone()).map_err(|e| format!("{told:?}, fsck: {e}"))?;
        }
        let on_medium = observe(&open_device(&medium, options))?;
        match closed.is_ok() {
            true => compare(&found, &on_medium),
            false => self.judge(&on_medium),
        }
        .map_err(|e| format!("{told:?}, on the medium: {e}"))?;
        Ok(met)
    }

    /// How many requests the operation makes of each kind, with what follows it in [`Scene::strike`].
    fn requests(&self) -> [u64; 3] {
        let traced = Arc::new(TracingDevice::ring(self.kind.device.snapshot(), 1 << 20));
        let v = open_with(traced.clone(), &self.kind.options, Arc::new(ManualClock::new(START)));
        traced.take();
        self.operation.1(&v).expect("nothing is in its way");
        v.sync().expect("nothing is in its way");
        let mut counts = [0; 3];
        for record in traced.take() {
            match record.operation {
                Request::Read { .. } => counts[0] += 1,
                Request::Write { .. } => counts[1] += 1,
                Request::Flush => counts[2] += 1,
                _ => {}
            }
        }
        counts
    }
}

/// Strikes requests of operations: of so many operations so many requests, as the seed chooses.
fn sweep(seed: u64, operations_of: usize, requests: usize) {
    let (narrow, wide) = (kinds(), wide_kinds());
    let of = |kind: &Kind| if kind.wide { wide_operations() } else { operations(kind.compressed) };
    let all = narrow.iter().chain(&wide).flat_map(|kind| of(kind).into_iter().map(move |o| (kind, o)));
    let mut all: Vec<(usize, (&Kind, Operation))> = all.enumerate().collect();
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    match variable("MEDFS_OPERATION") {
        Some(one) => all.retain(|(number, _)| *number as u64 == one),
        None => {
            all.shuffle(&mut random);
            all.truncate(operations_of);
        }
    }
    let (mut faults, mut runs, mut met) = (Vec::new(), 0, 0);
    for (number, (kind, operation)) in all {
        let name = format!("MEDFS_OPERATION={number}, {} {}: {}", kind.features, kind.options, operation.0);
        let scene = Scene::new(kind, operation);
        let [reads, writes, flushes] = scene.requests();
        let mut found = 0;
        for (trouble, count) in [
            (Trouble::Reads, reads),
            (Trouble::Read, reads),
            (Trouble::Write, writes),
            (Trouble::Flush, flushes),
        ] {
            let mut which: Vec<u64> = (0..count).collect();
            which.shuffle(&mut random);
            which.truncate(requests);
            if let Some(one) = variable("MEDFS_NTH") {
                which = vec![one];
            }
            for n in which {
                runs += 1;
                match guarded(|| scene.strike(trouble, n)) {
                    Ok(was_met) => met += usize::from(was_met),
                    // Of one operation this tells enough.
                    Err(_) if found >= 5 => {}
                    Err(e) => {
                        found += 1;
                        let fault = format!("{name}, MEDFS_NTH={n} {trouble:?}: {e}");
                        eprintln!("{fault}");
                        faults.push(fault);
                    }
                }
            }
        }
    }
    println!("{runs} runs, {met} met the failure, {} faults", faults.len());
    assert!(faults.is_empty(), "MEDFS_SEED={seed}, {} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(met > 0, "no request failed");
}

#[test]
fn an_operation_whose_nth_request_fails_is_done_or_not() {
    sweep(sample_seed(), 10, 2);
}

/// Strikes every so many-th read of an operation on a file with many nodes, and all behind it.
fn strike_wide(operation: &str, every: usize) {
    for kind in &wide_kinds() {
        let named = wide_operations().into_iter().find(|(name, _)| *name == operation);
        let scene = Scene::new(kind, named.expect("there is one of that name"));
        for n in (0..scene.requests()[0]).step_by(every) {
            let struck = guarded(|| scene.strike(Trouble::Reads, n));
            struck.unwrap_or_else(|e| panic!("{}, from read {n} on: {e}", kind.options));
        }
    }
}

#[test]
fn an_atomic_write_whose_cut_cannot_be_read_again_leaves_the_file_as_it_was() {
    strike_wide("wide: cut atomically", 3);
}

#[test]
fn an_atomic_write_to_more_nodes_than_are_kept_becomes_durable_as_a_whole() {
    strike_wide("wide: write atomically", 9);
}

#[test]
fn what_a_cut_that_fails_leaves_is_no_older_page() {
    ["wide: truncate", "wide: punch"].into_iter().for_each(|operation| strike_wide(operation, 5));
}

/// Every request.
#[test]
#[ignore = "takes long"]
fn every_request_of_every_operation() {
    sweep(sample_seed(), usize::MAX, variable("MEDFS_REQUESTS").map_or(usize::MAX, |most| most as usize));
}
