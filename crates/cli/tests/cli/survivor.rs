//! `durability=adaptive` and the log that outlives the daemon: after a kill the next mount has every transaction of
//! real SQLite that was acknowledged, and what cannot be replayed is kept and named.
//!
//! `MEDFS_ROUNDS` says how long the long run is, `MEDFS_SEED` repeats a run's choices.

use crate::common::*;
use crate::full_sqlite::{Database, databases};
use crate::mounts::{Mounted, Rng, seed};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where the log is: in memory, where the machine has that.
fn logs(s: &Scratch) -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    let name = format!("medfs-test-{}", s.image().parent().unwrap().file_name().unwrap().to_string_lossy());
    let dir = if shared.is_dir() { shared.join(name) } else { s.path("logs") };
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Removes the logs at the end.
struct Logs(PathBuf);

impl Drop for Logs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn stats(mounted: &Mounted) -> Value {
    serde_json::from_str(&output(&["stat", "--json"], &[&mounted.dir])).unwrap()
}

fn round(s: &Scratch, options: &str, databases: &mut [Database], rng: &mut Rng, sums: &mut [u64; 2]) {
    let mounted = Mounted::new(s, options);
    let log = &stats(&mounted)["survivor"];
    assert_eq!(log["failed"], 0, "{log}");
    sums[0] += log["replayed"].as_u64().unwrap();
    databases.iter_mut().for_each(|database| database.verify(&mounted.dir, false));
    let [stop, killed, refused] = [false; 3].map(AtomicBool::new);
    std::thread::scope(|scope| {
        for database in &mut *databases {
            scope.spawn(|| database.run(&mounted.dir, &stop, &killed, &refused));
        }
        std::thread::sleep(Duration::from_millis(100 + rng.below(500)));
        let adaptive = &stats(&mounted)["adaptive"];
        sums[1] += adaptive["fsyncs_deferred"].as_u64().unwrap();
        std::thread::sleep(Duration::from_millis(rng.below(50)));
        killed.store(true, Ordering::Release);
        mounted.kill();
        stop.store(true, Ordering::Release);
    });
    assert!(!refused.into_inner(), "there was room");
}

/// So many kills; returns the transactions that were acknowledged.
fn rounds(count: u64) {
    if !can_mount() {
        return;
    }
    let (s, seed, begin) = (Scratch::with_volume("256M"), seed(), Instant::now());
    let logs = Logs(logs(&s));
    let options =
        format!("durability=adaptive,durability_age=300ms,durability_bytes=1M,survivor={}", logs.0.display());
    let (mut databases, mut rng, mut sums) = (databases(seed), Rng::new(seed), [0; 2]);
    for _ in 0..count {
        round(&s, &options, &mut databases, &mut rng, &mut sums);
    }
    let mounted = Mounted::new(&s, &options);
    databases.iter_mut().for_each(|database| database.verify(&mounted.dir, false));
    mounted.unmount();
    assert_eq!(fs::read_dir(&logs.0).unwrap().count(), 0, "an unmount leaves no log");
    medfs().arg("fsck").arg(s.image()).assert().code(0);
    let transactions: u64 = databases.iter().map(|database| database.transactions).sum();
    let [replayed, deferred] = sums;
    eprintln!(
        "{count} kills, {transactions} transactions begun, {deferred} fsyncs put off, {replayed} operations replayed, {:?}",
        begin.elapsed()
    );
    assert!(replayed > 0 && deferred > 0);
}

#[test]
fn no_acknowledged_transaction_is_lost_when_the_daemon_is_killed() {
    rounds(4);
}

#[test]
#[ignore = "MEDFS_ROUNDS kills, a second each"]
fn no_acknowledged_transaction_is_lost_in_many_kills() {
    rounds(std::env::var("MEDFS_ROUNDS").map_or(100, |n| n.parse().expect("MEDFS_ROUNDS is a number")));
}

/// Without the log the same test fails: what was acknowledged is gone.
#[test]
fn without_the_log_a_kill_loses_what_is_not_durable() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let logs = Logs(logs(&s));
    for (survivor, kept) in [("off".to_owned(), false), (logs.0.display().to_string(), true)] {
        let options = format!("durability=adaptive,survivor={survivor}");
        let mounted = Mounted::new(&s, &options);
        let mut file = File::create(mounted.dir.join("file")).unwrap();
        file.write_all(b"acknowledged").unwrap();
        file.sync_all().unwrap();
        mounted.kill();
        drop((file, mounted));
        let mounted = Mounted::new(&s, &options);
        assert_eq!(mounted.dir.join("file").exists(), kept, "survivor={survivor}");
        mounted.unmount();
    }
}
