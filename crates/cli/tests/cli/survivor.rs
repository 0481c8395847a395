//! `durability=adaptive` and the log that outlives the daemon: after a kill the next mount has every transaction of
//! real SQLite that was acknowledged, and what cannot be replayed is kept and named.
//!
//! `MEDFS_ROUNDS` says how long the long run is, `MEDFS_SEED` repeats a run's choices.

use crate::common::*;
use crate::damaged::stderr;
use crate::full_sqlite::{Database, databases};
use crate::mounts::{Mounted, Rng, seed};
use medfs_device::read_block;
use medfs_format::superblock::RawSuperblock;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
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
        format!("durability=adaptive,durability_age=1s,durability_bytes=1M,survivor={}", logs.0.display());
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

const NO_LOG: &str = "durability=adaptive,survivor=off";

/// Writes a file, with an fsync.
fn fsync_file(mounted: &Mounted, name: &str) {
    let mut file = File::create(mounted.dir.join(name)).unwrap();
    file.write_all(name.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

/// Mounts, does something, kills the daemon without a log; whether a file is there after another mount.
fn is_kept(options: &str, name: &str, act: impl FnOnce(&Mounted)) -> bool {
    let s = Scratch::with_volume("128M");
    let mounted = Mounted::new(&s, options);
    act(&mounted);
    mounted.kill();
    drop(mounted);
    let mounted = Mounted::new(&s, NO_LOG);
    let kept = fs::read(mounted.dir.join(name)).is_ok_and(|content| content == name.as_bytes());
    mounted.unmount();
    kept
}

#[test]
fn what_is_synchronous_is_durable_without_a_log() {
    if !can_mount() {
        return;
    }
    let write = |mounted: &Mounted, flags: i32| {
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        let mut file = std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags)
            .open(mounted.dir.join("f"))
            .unwrap();
        file.write_all(b"f").unwrap();
        file
    };
    assert!(!is_kept(NO_LOG, "f", |m| fsync_file(m, "f")), "an fsync alone waits");
    assert!(is_kept(NO_LOG, "f", |m| drop(write(m, libc::O_SYNC))), "O_SYNC");
    assert!(is_kept(NO_LOG, "f", |m| {
        fsync_file(m, "f");
        medfs().arg("sync").arg(&m.dir).assert().success();
    }));
    assert!(is_kept(&format!("{NO_LOG},sync"), "f", |m| drop(write(m, 0))), "the option sync");
    assert!(is_kept(&format!("{NO_LOG},dirsync"), "f", |m| {
        fsync_file(m, "f");
        File::create(m.dir.join("a name that is durable")).unwrap();
    }));
    assert!(is_kept(NO_LOG, "f", |m| {
        File::create(m.dir.join("f")).unwrap();
        let flagged = std::process::Command::new("chattr").arg("+S").arg(m.dir.join("f")).status().unwrap();
        assert!(flagged.success());
        drop(write(m, 0));
    }));
}

#[test]
fn an_unmount_and_a_sigterm_commit_first() {
    if !can_mount() {
        return;
    }
    for terminate in [false, true] {
        let s = Scratch::with_volume("128M");
        let logs = Logs(logs(&s));
        let mounted = Mounted::new(&s, &format!("durability=adaptive,survivor={}", logs.0.display()));
        fsync_file(&mounted, "f");
        fs::write(mounted.dir.join("g"), "g").unwrap();
        assert_eq!(fs::read_dir(&logs.0).unwrap().count(), 1);
        if terminate {
            mounted.signal(rustix::process::Signal::TERM);
            mounted.ended();
        } else {
            mounted.unmount();
        }
        assert_eq!(fs::read_dir(&logs.0).unwrap().count(), 0);
        for name in ["/f", "/g"] {
            assert_eq!(output(&["get"], &[&s.image(), name.as_ref(), "-".as_ref()]), name[1..]);
        }
    }
}

#[test]
fn when_power_may_fail_nothing_is_put_off_until_it_is_back() {
    if !can_mount() {
        return;
    }
    let power = |mounted: &Mounted, state: &str| {
        medfs().args(["power", state]).arg(&mounted.dir).assert().success();
    };
    assert!(is_kept(NO_LOG, "before", |m| {
        fs::write(m.dir.join("before"), "before").unwrap();
        power(m, "low");
    }));
    assert!(is_kept(NO_LOG, "during", |m| {
        power(m, "low");
        fsync_file(m, "during");
        assert_eq!(stats(m)["low_power"], true);
    }));
    assert!(!is_kept(NO_LOG, "after", |m| {
        power(m, "low");
        power(m, "ok");
        fsync_file(m, "after");
    }));
    assert!(is_kept(NO_LOG, "signal", |m| {
        fsync_file(m, "signal");
        m.signal(rustix::process::Signal::POWER);
        wait(|| is_all_durable(m));
    }));
}

fn wait(is_done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the daemon has committed since it heard that power may fail.
fn is_all_durable(mounted: &Mounted) -> bool {
    let stats = stats(mounted);
    stats["low_power"] == true && stats["adaptive"]["oldest_millis"].is_null()
}

/// What was written and not fsynced lies in the kernel's page cache, and a file that is open keeps the volume mounted.
#[test]
fn signals_of_an_end_reach_what_the_page_cache_holds() {
    if !can_mount() {
        return;
    }
    let mut open = None;
    let mut cached = |m: &Mounted| {
        let mut file = File::create(m.dir.join("cached")).unwrap();
        file.write_all(b"cached").unwrap();
        open = Some(file);
    };
    assert!(is_kept(NO_LOG, "cached", |m| {
        cached(m);
        m.signal(rustix::process::Signal::POWER);
        wait(|| is_all_durable(m));
    }));
    assert!(is_kept(NO_LOG, "cached", |m| {
        cached(m);
        let device = || fs::metadata(&m.dir).unwrap().dev();
        let mounted = device();
        m.signal(rustix::process::Signal::TERM);
        wait(|| device() != mounted);
    }));
}

/// A volume whose daemon was killed after it acknowledged an fsync of `/f`, with the log where commands look for one;
/// `None` where no file system is in memory.
fn with_log_that_waits() -> Option<(Scratch, PathBuf)> {
    let s = Scratch::with_volume("128M");
    let mounted = Mounted::new(&s, "durability=adaptive");
    let log = stats(&mounted)["survivor"]["place"].as_str().map(PathBuf::from)?;
    fsync_file(&mounted, "f");
    mounted.kill();
    drop(mounted);
    Some((s, log))
}

#[test]
fn what_waits_in_a_log_is_told_and_no_repair_makes_it_void() {
    let Some((s, log)) = can_mount().then(with_log_that_waits).flatten() else { return };
    let before = fs::read(s.image()).unwrap();
    for command in ["fsck", "stat", "ls"] {
        let told = stderr(&medfs().arg(command).arg(s.image()).assert().code(0));
        assert!(told.contains(&*log.to_string_lossy()), "{command}: {told}");
    }
    let told = stderr(&medfs().args(["import", "--dry-run"]).arg(s.image()).assert().code(0));
    assert!(told.contains("brings it back"), "{told}");
    // One copy of the superblock is lost, or a bit of its UUID is flipped, or both are lost: a repair would write.
    let uuid = RawSuperblock::in_block(&read_block(&open(&s.image()), 0).unwrap()).uuid;
    let at = before.windows(16).position(|bytes| *bytes == uuid).unwrap();
    let damages: [fn(&mut [u8], usize); 3] =
        [|bytes, _| bytes[4096..8192].fill(0), |bytes, at| bytes[at] ^= 1, |bytes, _| bytes[..8192].fill(0)];
    for (damage, why) in damages.into_iter().zip(["makes void", "makes void", "the superblocks are lost"]) {
        let mut damaged = before.clone();
        damage(&mut damaged, at);
        fs::write(s.image(), &damaged).unwrap();
        let refused = medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(4);
        let told = String::from_utf8_lossy(&refused.get_output().stdout).into_owned();
        assert!(told.contains("NOT REPAIRED") && told.contains(why), "{told}");
        assert!(told.contains(&*log.to_string_lossy()), "{told}");
        assert!(fs::read(s.image()).unwrap() == damaged, "nothing was written");
        let out = s.path(&why.replace(' ', "-"));
        let told = stderr(&medfs().args(["get", "--salvage"]).arg(s.image()).arg(&out).assert().code(1));
        assert!(told.contains(&*log.to_string_lossy()), "{told}");
    }
    fs::write(s.image(), &before).unwrap();
    let mounted = Mounted::new(&s, "");
    assert_eq!(fs::read_to_string(mounted.dir.join("f")).unwrap(), "f");
    mounted.unmount();
    assert!(!log.exists());
    let told = stderr(&medfs().arg("fsck").arg(s.image()).assert().code(0));
    assert_eq!(told, "");
}

/// A log in which nothing waits is no news, and a salvage says of one that does.
#[test]
fn logs_are_told_of_where_something_waits_in_them() {
    let Some((s, log)) = can_mount().then(with_log_that_waits).flatten() else { return };
    let told = stderr(&medfs().args(["get", "--salvage"]).arg(s.image()).arg(s.path("out")).assert().code(1));
    assert_eq!(told.matches(&*log.to_string_lossy()).count(), 1, "{told}");
    let told = stderr(&medfs().args(["import", "--dry-run"]).arg(s.image()).assert().code(0));
    assert_eq!(told.matches(&*log.to_string_lossy()).count(), 1, "{told}");
    fs::write(s.path("g"), "g").unwrap();
    let told = stderr(&medfs().arg("put").arg(s.image()).arg(s.path("g")).arg("/").assert().code(0));
    assert!(!told.contains("only a mount"), "put brings it back: {told}");
    assert_eq!(output(&["get"], &[&s.image(), "/f".as_ref(), "-".as_ref()]), "f");
    let mounted = Mounted::new(&s, "durability=adaptive");
    fsync_file(&mounted, "h");
    medfs().arg("sync").arg(&mounted.dir).assert().success();
    mounted.kill();
    drop(mounted);
    assert!(log.exists());
    for command in ["ls", "stat", "fsck"] {
        let told = stderr(&medfs().arg(command).arg(s.image()).assert().code(0));
        assert!(!told.contains(&*log.to_string_lossy()), "{command}: {told}");
    }
    Mounted::new(&s, "").unmount();
    assert!(!log.exists());
}

/// What a log has of a volume that was overwritten is of no use, and takes memory.
#[test]
fn a_volume_that_is_overwritten_takes_its_log_along() {
    let Some((s, log)) = can_mount().then(with_log_that_waits).flatten() else { return };
    let told = stderr(&medfs().args(["mkfs", "-q", "-f"]).arg(s.image()).assert().code(0));
    assert!(told.contains(&format!("removed {}", log.display())), "{told}");
    assert!(!log.exists());
}

#[test]
fn an_export_and_an_import_have_what_waited_in_a_log() {
    let Some((s, log)) = can_mount().then(with_log_that_waits).flatten() else { return };
    medfs().arg("export").arg(s.image()).assert().success();
    assert_eq!(output(&["get"], &[&s.image(), "/f".as_ref(), "-".as_ref()]), "f");
    assert!(!log.exists());
    // A plain volume has such a log too.
    let mounted = Mounted::new(&s, "durability=adaptive");
    fsync_file(&mounted, "g");
    mounted.kill();
    drop(mounted);
    medfs().arg("import").arg(s.image()).assert().success();
    assert_eq!(output(&["get"], &[&s.image(), "/g".as_ref(), "-".as_ref()]), "g");
    assert!(!log.exists());
}

/// The kernel tells of earlier writes that found no room when it is next asked: that keeps nothing from the volume.
#[test]
fn a_sync_after_a_volume_was_full_makes_durable_what_there_is() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("300M");
    let mounted = Mounted::new(&s, "");
    let big = mounted.dir.join("big");
    let mut file = File::create(&big).unwrap();
    while file.write_all(&[7; 1 << 20]).is_ok() {}
    drop(file);
    fs::remove_file(&big).unwrap();
    // The kernel lets go of a removed file some time after the call.
    let begin = Instant::now();
    while mounted.dir.join("f").metadata().map_or(0, |meta| meta.len()) == 0 {
        std::thread::sleep(Duration::from_millis(500));
        let _ = fs::write(mounted.dir.join("f"), "f");
        assert!(begin.elapsed() < Duration::from_secs(20), "there is room again");
    }
    let synced = medfs().arg("sync").arg(&mounted.dir).output().unwrap();
    let told = String::from_utf8_lossy(&synced.stderr).into_owned();
    assert!(synced.status.success() || told.contains("what it took is durable"), "{told}");
    mounted.kill();
    drop(mounted);
    let mounted = Mounted::new(&s, "");
    assert_eq!(fs::read_to_string(mounted.dir.join("f")).unwrap(), "f");
    mounted.unmount();
}

/// Another user's log is neither read nor replayed by root, who is told of it. What would make it void without a need
/// is refused.
#[test]
fn root_is_told_of_the_log_of_another_user() {
    let shared = PathBuf::from("/dev/shm");
    if !is_root() || !shared.is_dir() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let uuid = RawSuperblock::in_block(&read_block(&open(&s.image()), 0).unwrap()).uuid;
    let dir = Logs(shared.join(format!("medfs-test-other-{}", std::process::id())));
    fs::create_dir_all(&dir.0).unwrap();
    let log = dir.0.join(format!("medfs-{}.log", uuid::Uuid::from_bytes(uuid)));
    fs::write(&log, "not root's to read").unwrap();
    let quiet = stderr(&medfs().arg("stat").arg(s.image()).assert().code(0));
    std::os::unix::fs::chown(&log, Some(65_534), None).unwrap();
    for command in [&["stat"][..], &["fsck"], &["import", "--dry-run"]] {
        let told = stderr(&medfs().args(command).arg(s.image()).assert().code(0));
        let who = "what a daemon of user 65534 acknowledged";
        assert!(told.contains(who) && told.contains(&*log.to_string_lossy()), "{command:?}: {told}");
    }
    fs::write(s.path("g"), "g").unwrap();
    let put = stderr(&medfs().arg("put").arg(s.image()).arg(s.path("g")).arg("/").assert().code(0));
    assert!(put.contains("it is not replayed"), "{put}");
    assert!(!quiet.contains("acknowledged"), "{quiet}");
    assert_eq!(fs::read(&log).unwrap(), b"not root's to read", "it stays as it is");
}
