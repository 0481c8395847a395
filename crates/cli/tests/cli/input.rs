//! `medfs input`: commits wait for pauses of a user who is told of.

use crate::common::{Scratch, can_mount, error, medfs, output};
use crate::mounts::Mounted;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TPL: &str = "durability=adaptive,survivor=off,durability_age=600s,durability_policy=tpl,durability_points=8,durability_tau=1s";

/// What the user did, and commits in pauses.
fn told(mounted: &Mounted) -> (u64, u64) {
    let stats: Value = serde_json::from_str(&output(&["stat", "--json"], &[&mounted.dir])).unwrap();
    let number = |name: &str| stats["adaptive"][name].as_u64().unwrap();
    (number("user_events"), number("commits_by_tradeoff"))
}

/// Pages that are written over and over, then others, each once.
fn a_peak(dir: &Path) {
    let file = File::create(dir.join("f")).unwrap();
    for page in (0..64).map(|n| n % 4).chain(100..116) {
        file.write_all_at(&[7; 4096], page * 4096).unwrap();
        file.sync_data().unwrap();
    }
}

#[test]
fn commits_wait_for_a_pause_of_the_user() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let mounted = Mounted::new(&s, TPL);
    let device = s.path("event");
    assert!(Command::new("mkfifo").arg(&device).status().unwrap().success());
    let follower = Command::new(crate::common::binary())
        .args(["input", "--from"])
        .args([&device, &mounted.dir])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut touched = OpenOptions::new().write(true).open(&device).unwrap();
    touched.write_all(&[0; 24]).unwrap();
    a_peak(&mounted.dir);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        // More than anybody types.
        touched.write_all(&[0; 24 * 100]).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    let (events, commits) = told(&mounted);
    assert!((10..200).contains(&events) && commits == 0, "{events} events, {commits} commits");
    let begin = Instant::now();
    while told(&mounted).1 == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "the user pauses");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(touched);
    let ended = follower.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("is followed no longer") && said.contains("no input device is left"), "{said}");
    let before = told(&mounted).0;
    medfs().arg("input").arg(&mounted.dir).assert().success();
    assert_eq!(told(&mounted).0, before + 1, "once");
    mounted.unmount();
}

#[test]
fn what_is_no_input_device_and_mounts_that_wait_for_nobody_are_refused() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let mounted = Mounted::new(&s, "");
    let without = error(1, medfs().arg("input").arg(&mounted.dir));
    let file = error(1, medfs().args(["input", "--from"]).args([&s.image(), &mounted.dir]));
    let missing = error(1, medfs().args(["input", "--from"]).args([&s.path("none"), &mounted.dir]));
    let outside = error(1, medfs().arg("input").arg(s.path(".")));
    medfs().args(["input", "--all", "--from"]).arg(s.image()).assert().code(2);
    mounted.unmount();
    assert!(without.contains("mounted without durability_policy=tpl"), "{without}");
    assert!(file.contains("is not an input device"), "{file}");
    assert!(missing.contains("cannot open"), "{missing}");
    assert!(outside.contains("medfs"), "{outside}");
}
