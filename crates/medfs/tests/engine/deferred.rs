//! fsyncs that are committed later: in their order, and each as its file was when it was closed.

use crate::common::*;
use medfs::testing::{commit_closed, open_deferring};
use medfs::{Files, ManualClock, MountOptions, SetAttr, Volume};
use medfs_device::MemDevice;
use std::sync::Arc;

fn deferring(device: &Arc<MemDevice>) -> Volume {
    open_deferring(device.clone(), MountOptions::default(), Arc::new(ManualClock::new(START)))
        .expect("the volume opens")
}

#[test]
fn an_fsync_is_durable_when_it_is_asked_for() {
    let device = Arc::new(blank_delta(64));
    let v = deferring(&device);
    let [a, b] = two_files(&v);
    write(&v, a, 0, &[2; PAGE]);
    let written = v.stats().written;
    v.fsync(a, false).unwrap();
    assert_eq!(v.stats().written, written, "nothing is written by the fsync itself");
    assert_eq!(found(&device, [a, b]), [1, 1]);
    commit_closed(&v).unwrap();
    assert_eq!(found(&device, [a, b]), [2, 1]);
    assert!(v.fsync(4_000, false).is_err(), "there is no such file");
}

/// The version that an fsync closed is committed before the file changes: what comes later is not part of it.
#[test]
fn a_closed_version_is_committed_as_it_was() {
    for device in [blank(64, all_features()), blank_delta(64)] {
        let device = Arc::new(device);
        let v = deferring(&device);
        let [a, b] = two_files(&v);
        write(&v, a, 0, &[2; PAGE]);
        v.fsync(a, false).unwrap();
        write(&v, a, 0, &[3; PAGE]);
        assert_eq!(found(&device, [a, b]), [2, 1], "the change came after the version was closed");
        commit_closed(&v).unwrap();
        assert_eq!(found(&device, [a, b]), [2, 1]);
        write(&v, b, 0, &[4; PAGE]);
        v.fsync_many(&[a, b], true).unwrap();
        v.setattr(a, &SetAttr { size: Some(10), ..SetAttr::default() }).unwrap();
        assert_eq!(found(&device, [a, b]), [3, 4]);
        assert_eq!(open_device(&Arc::new(device.snapshot()), "").getattr(a).unwrap().size, PAGE as u64);
    }
}
