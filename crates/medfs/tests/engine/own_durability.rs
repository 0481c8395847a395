//! `trusted.medfs.durability`: files and folders that say themselves whether their fsyncs are put off.

use crate::adaptive::opened;
use crate::common::*;
use medfs::ars::FileStats;
use medfs::{DURABILITY_ATTRIBUTE, Files, Ino, Posix, Volume, XattrMode};
use std::sync::Arc;

fn say(v: &Volume, ino: Ino, value: &[u8]) {
    v.setxattr(ino, DURABILITY_ATTRIBUTE, value, XattrMode::Set).unwrap();
}

/// Whether an fsync of a file waited for a commit.
fn is_at_once(v: &Volume, f: Ino) -> bool {
    write(v, f, 0, b"changed");
    let before = v.stats().checkpoints;
    v.fsync(f, false).unwrap();
    v.stats().checkpoints > before
}

#[test]
fn what_is_made_in_a_posix_folder_is_durable_as_its_fsync_returns() {
    for device in [blank(64, all_features()), blank_delta(64)] {
        let (v, device, _) = opened(device, "");
        let folder = dir(&v, v.root(), "posix");
        let before = file(&v, folder, "before");
        say(&v, folder, b"posix");
        let [inside, below] = [folder, dir(&v, folder, "below")].map(|folder| file(&v, folder, "f"));
        let outside = file(&v, v.root(), "f");
        assert!(is_at_once(&v, inside) && is_at_once(&v, below) && is_folder_at_once(&v, folder));
        assert!(
            !is_at_once(&v, outside) && !is_at_once(&v, before),
            "they do not lie in it, or were there before"
        );
        // Once with the volume closed, which keeps what was said.
        v.close().unwrap();
        drop(v);
        let (v, device, _) = opened(device.snapshot(), "");
        assert!(is_at_once(&v, below) && !is_at_once(&v, outside));
        v.removexattr(below, DURABILITY_ATTRIBUTE).unwrap();
        say(&v, inside, b"adaptive");
        assert!(!is_at_once(&v, below) && !is_at_once(&v, inside));
        v.close().unwrap();
        judge(&device);
    }
}

/// The same of a folder in which a file is made.
fn is_folder_at_once(v: &Volume, folder: Ino) -> bool {
    file(v, folder, "another");
    let before = v.stats().checkpoints;
    v.fsync(folder, false).unwrap();
    v.stats().checkpoints > before
}

/// What others did before is never behind what such an fsync makes durable.
#[test]
fn an_fsync_at_once_takes_along_what_others_did_before() {
    let (v, device, _) = opened(blank_delta(64), ",apps=top");
    let [a, b] = two_files(&v);
    say(&v, b, b"posix");
    write(&v, a, 0, &[2; PAGE]);
    write(&v, b, 0, &[3; PAGE]);
    v.fsync(a, false).unwrap();
    assert_eq!(found(&device, [a, b]), [1, 1]);
    v.fsync(b, false).unwrap();
    assert_eq!(found(&device, [a, b]), [2, 3]);
    write(&v, a, 0, &[4; PAGE]);
    write(&v, b, 0, &[5; PAGE]);
    v.fsync_many(&[a, b], true).unwrap();
    assert_eq!(found(&device, [a, b]), [4, 5], "together with others too");
}

#[test]
fn a_value_that_means_nothing_is_refused_and_a_posix_mount_only_keeps_it() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, "");
    let folder = dir(&v, v.root(), "d");
    for wrong in [&b""[..], b"posix\0", b"Posix", b"inherit"] {
        let error = v.setxattr(folder, DURABILITY_ATTRIBUTE, wrong, XattrMode::Set).unwrap_err();
        assert_eq!(error.errno(), medfs::Error::Posix(Posix::InvalidArgument).errno());
    }
    say(&v, folder, b"adaptive");
    let f = file(&v, folder, "f");
    assert_eq!(v.getxattr(f, DURABILITY_ATTRIBUTE).unwrap(), b"adaptive");
    let link = v.symlink(folder, b"s", b"f", 0, 0).unwrap().ino;
    assert!(v.getxattr(link, DURABILITY_ATTRIBUTE).is_err());
    write(&v, f, 0, &[1; PAGE]);
    v.fsync(f, false).unwrap();
    assert_eq!(found(&device, [f]), [1]);
    let told = |v: &Volume, ino| {
        let stats = FileStats::of(v, ino).unwrap();
        (stats.durability, stats.durability_is_own)
    };
    assert_eq!(told(&v, f), ("posix", false));
    v.close().unwrap();
    let v = open_device(&device, "durability=adaptive");
    assert_eq!((told(&v, f), told(&v, v.root())), (("adaptive", true), ("adaptive", false)));
}
