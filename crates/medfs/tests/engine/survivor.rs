//! The log that outlives the daemon: which logs are replayed, and what becomes of the others.

use crate::common::*;
use medfs::{FileKind, Files, Ino, ManualClock, SurvivorStats, Volume};
use medfs_device::fault::{Effect, Fault, Kind};
use medfs_device::{BlockDevice, FaultDevice, MemDevice, WriteTag};
use medfs_format::Block;
use medfs_mkfs::{MkfsOptions, format_volume};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

fn mount_on(device: Arc<dyn BlockDevice>, logs: &Path, more: &str) -> Volume {
    let options = format!("durability=adaptive,survivor={}{more}", logs.display());
    open_with(device, &options, Arc::new(ManualClock::new(START)))
}

fn told(v: &Volume) -> SurvivorStats {
    v.stats().survivor.expect("there is a log")
}

/// Names of what lies in a directory.
fn names(dir: &Path) -> Vec<String> {
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

/// A volume whose daemon was killed with three operations that are not durable.
struct Killed {
    device: Arc<MemDevice>,
    logs: TempDir,
}

impl Killed {
    fn new() -> Killed {
        Killed::of(blank_delta(64))
    }

    fn of(device: MemDevice) -> Killed {
        Killed::after(device, |_, _| ())
    }

    /// What is done first to the file that is durable.
    fn after(device: MemDevice, first: impl FnOnce(&Volume, Ino)) -> Killed {
        let (device, logs) = (Arc::new(device), tempfile::tempdir().unwrap());
        let v = mount_on(device.clone(), logs.path(), "");
        let old = file(&v, v.root(), "old");
        let before = told(&v).records;
        first(&v, old);
        let first = told(&v).records - before;
        write(&v, old, 0, &noise(1));
        write(&v, old, PAGE as u64, &noise(2));
        v.sync().unwrap();
        write(&v, old, 3, b"first");
        let new = file(&v, v.root(), "new");
        write(&v, new, 0, b"third");
        assert_eq!(told(&v).records - first, 6, "with those before the commit");
        Killed { device, logs }
    }

    fn log(&self) -> PathBuf {
        self.logs.path().join("medfs-07070707-0707-0707-0707-070707070707.log")
    }

    fn mount(&self, more: &str) -> Volume {
        mount_on(self.device.clone(), self.logs.path(), more)
    }

    /// How many of the three operations are there, which are the first ones.
    fn found(v: &Volume) -> usize {
        let mut bytes = [0; 5];
        v.read(at(v, "old").expect("it was durable").ino, 3, &mut bytes).unwrap();
        let first = bytes == *b"first";
        let Some(new) = at(v, "new") else { return usize::from(first) };
        assert!(first, "the second without the first");
        if content(v, new.ino) == b"third" { 3 } else { 2 }
    }

    /// Mounts; nothing is replayed for this reason, and the log is kept as it was.
    fn is_set_aside(&self, why: &str) {
        let before = fs::read(self.log()).unwrap();
        let v = self.mount("");
        let said = told(&v).told;
        assert!(said.len() == 1 && said[0].contains(why) && said[0].contains("nothing of it"), "{said:?}");
        let aside = format!("{}.aside1", self.log().display());
        assert!(said[0].contains(&aside), "{said:?}");
        assert!(fs::read(aside).unwrap() == before, "it changed");
        assert_eq!(told(&v).replayed, 0);
        v.close().unwrap();
    }
}

#[test]
fn a_log_is_replayed_once_and_gone_after_an_unmount() {
    let killed = Killed::new();
    let log = fs::metadata(killed.log()).unwrap();
    assert_eq!((log.mode() & 0o777, log.nlink()), (0o600, 1));
    for replayed in [3, 0, 0] {
        let v = killed.mount("");
        let log = told(&v);
        assert_eq!((Killed::found(&v), log.replayed, log.failed, log.used), (3, replayed, 0, 0));
        assert_eq!(log.told.len(), usize::from(replayed > 0), "{:?}", log.told);
    }
    killed.mount("").close().unwrap();
    assert_eq!(names(killed.logs.path()), [""; 0]);
}

#[test]
fn any_mount_that_may_write_replays_and_posix_goes_on_without_a_log() {
    let killed = Killed::new();
    let v = killed.mount(",ro");
    assert_eq!((Killed::found(&v), v.stats().survivor), (0, None), "a mount to read leaves it");
    drop(v);
    let v = killed.mount(",durability=posix");
    assert_eq!(Killed::found(&v), 3);
    assert_eq!(names(killed.logs.path()), [""; 0]);
    v.close().unwrap();
    let v = killed.mount(",durability=posix");
    assert!(v.stats().survivor.is_none() && names(killed.logs.path()).is_empty());
    drop(v);
    assert_eq!(Killed::found(&open_with(killed.device.clone(), "", Arc::new(ManualClock::new(START)))), 3);
}

#[test]
fn a_log_that_ends_early_has_what_is_before() {
    let killed = Killed::new();
    let whole = fs::read(killed.log()).unwrap();
    let mut seen = [0; 4];
    let end = whole.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let copy = killed.device.snapshot();
    for len in (4096..end + 8).step_by(5) {
        let killed = Killed { device: Arc::new(copy.snapshot()), logs: tempfile::tempdir().unwrap() };
        fs::write(killed.log(), &whole[..len.min(whole.len())]).unwrap();
        fs::set_permissions(killed.log(), fs::Permissions::from_mode(0o600)).unwrap();
        let v = killed.mount("");
        let found = Killed::found(&v);
        assert_eq!((told(&v).replayed, told(&v).failed), (found as u64, 0), "{len}");
        seen[found] += 1;
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}

#[test]
fn a_log_damaged_in_the_middle_is_kept_aside() {
    let killed = Killed::new();
    let mut bytes = fs::read(killed.log()).unwrap();
    bytes[4096 + 40] ^= 1;
    fs::write(killed.log(), bytes).unwrap();
    killed.is_set_aside("is damaged in the middle");
    assert_eq!(names(killed.logs.path()).len(), 1, "the mount's own is gone");
}

#[test]
fn a_log_of_another_volume_or_without_a_head_is_kept_aside() {
    let other = MemDevice::new(64 * 256);
    let options = MkfsOptions { deltas: true, discard: false, ..MkfsOptions::new([8; 16], START.secs) };
    format_volume(&other, &options).unwrap();
    let (killed, other) = (Killed::new(), Killed::of(other));
    let log = other.logs.path().join("medfs-08080808-0808-0808-0808-080808080808.log");
    fs::rename(log, killed.log()).unwrap();
    killed.is_set_aside("is of another volume or damaged");
    let killed = Killed::new();
    fs::write(killed.log(), vec![0xff; 10_000]).unwrap();
    killed.is_set_aside("is of another volume or damaged");
}

#[test]
fn a_log_older_or_newer_than_its_volume_is_kept_aside() {
    let killed = Killed::new();
    let v = open_with(killed.device.clone(), "", Arc::new(ManualClock::new(START)));
    file(&v, v.root(), "elsewhere");
    v.close().unwrap();
    drop(v);
    killed.is_set_aside("is older than the volume");

    let (device, logs) = (Arc::new(blank_delta(64)), tempfile::tempdir().unwrap());
    let before = Arc::new(device.snapshot());
    let v = mount_on(device, logs.path(), "");
    file(&v, v.root(), "durable");
    v.sync().unwrap();
    file(&v, v.root(), "logged");
    drop(v);
    Killed { device: before, logs }.is_set_aside("is newer than the volume");
}

#[test]
fn a_log_is_void_after_fsyncs_of_another_mount() {
    let killed = Killed::new();
    let v = open_with(killed.device.clone(), "", Arc::new(ManualClock::new(START)));
    let old = at(&v, "old").unwrap().ino;
    write(&v, old, 0, &[7; PAGE]);
    v.fsync(old, false).unwrap();
    drop(v);
    killed.is_set_aside("is older than fsyncs of another mount");
}

/// What is in the place of a log and is none of ours stays as it is, and the mount does without.
#[test]
fn what_is_not_ours_is_left_alone() {
    let plant = |what: fn(&Path)| {
        let (device, logs) = (Arc::new(blank_delta(64)), tempfile::tempdir().unwrap());
        let killed = Killed { device, logs };
        what(&killed.log());
        let v = killed.mount("");
        assert!(v.stats().survivor.is_none());
        file(&v, v.root(), "new");
        v.close().unwrap();
        assert_eq!(names(killed.logs.path()).len(), 1);
    };
    plant(|path| symlink("/dev/null", path).unwrap());
    plant(|path| fs::create_dir(path).unwrap());
    plant(|path| {
        fs::write(path, b"").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    });
}

#[test]
fn of_two_mounts_with_one_uuid_one_has_the_log() {
    let (a, b) = (Killed::new(), Killed::new());
    let first = mount_on(a.device.clone(), a.logs.path(), "");
    let second = mount_on(b.device.clone(), a.logs.path(), "");
    assert_eq!((Killed::found(&first), Killed::found(&second)), (3, 0));
    assert!(second.stats().survivor.is_none());
    second.close().unwrap();
    assert_eq!(names(a.logs.path()).len(), 1, "the first one's is there");
}

/// A device that panics where the first page of the file is read that [`Killed::new`] makes durable, or where it is
/// flushed.
struct Panics {
    inner: Arc<MemDevice>,
    on: AtomicBool,
    flushed: AtomicBool,
}

impl BlockDevice for Panics {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.inner.read(addr, blocks)?;
        let is_old = |block: &&mut Block| block.0[..] == noise(1)[..];
        assert!(!(self.on.load(Ordering::Relaxed) && blocks.iter().any(is_old)), "as the test wants it");
        Ok(())
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.inner.write(addr, blocks, tag)
    }
    fn flush(&self) -> io::Result<()> {
        assert!(!self.flushed.load(Ordering::Relaxed), "as the test wants it");
        self.inner.flush()
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.inner.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        false
    }
}

/// What ends the process in the checkpoint behind the last record is no fault of that record.
#[test]
fn a_process_that_ends_while_the_replay_becomes_durable_leaves_nothing_out() {
    let killed = Killed::new();
    let (on, flushed) = (AtomicBool::new(false), AtomicBool::new(true));
    let device = Arc::new(Panics { inner: killed.device.clone(), on, flushed });
    for _ in 0..4 {
        let (device, logs) = (device.clone(), killed.logs.path().to_owned());
        let mounted = std::thread::spawn(move || drop(mount_on(device, &logs, ""))).join();
        assert!(mounted.is_err(), "the checkpoint flushes");
    }
    let v = killed.mount("");
    assert_eq!((told(&v).replayed, told(&v).failed), (3, 0), "{:?}", told(&v).told);
    assert_eq!(Killed::found(&v), 3);
}

/// A session that ends may take the directory of its user along; then another mount may make a log there.
#[test]
fn a_log_that_was_removed_is_begun_anew_and_no_other_one_is_removed() {
    let killed = Killed::new();
    let v = killed.mount("");
    fs::remove_file(killed.log()).unwrap();
    file(&v, v.root(), "a");
    v.sync().unwrap();
    assert!(
        told(&v).told.iter().any(|said| said.contains("was removed: another one was begun")),
        "{:?}",
        told(&v)
    );
    let b = file(&v, v.root(), "b");
    write(&v, b, 0, b"logged");
    drop(v);
    let v = killed.mount("");
    assert_eq!(content(&v, at(&v, "b").unwrap().ino), b"logged");
    fs::remove_file(killed.log()).unwrap();
    fs::write(killed.log(), b"another's").unwrap();
    v.close().unwrap();
    assert_eq!(fs::read(killed.log()).unwrap(), b"another's");
}

/// A write over a page in its place leaves no node behind the checkpoint that would tell of it.
#[test]
fn a_log_is_void_after_pages_were_overwritten_in_their_places() {
    fn nothing(_: &Volume, _: Ino) {}
    fn pin(v: &Volume, old: Ino) {
        v.set_pinned(old, true).expect("it has no blocks");
    }
    for (options, first) in [("in_place=force", nothing as fn(&Volume, Ino)), ("in_place=off", pin)] {
        let killed = Killed::after(blank(64, medfs_format::superblock::Feature::empty()), first);
        let v = open_with(killed.device.clone(), options, Arc::new(ManualClock::new(START)));
        let old = at(&v, "old").unwrap().ino;
        write(&v, old, 0, b"newer");
        v.fsync(old, true).unwrap();
        assert_eq!(v.stats().in_place_blocks, 1);
        drop(v);
        killed.is_set_aside("is older than the volume");
        let v = killed.mount("");
        let mut bytes = [0; 5];
        v.read(at(&v, "old").unwrap().ino, 0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"newer");
    }
}

#[test]
fn an_operation_that_ends_the_process_twice_is_left_out_and_named() {
    let killed = Killed::new();
    let (on, flushed) = (AtomicBool::new(true), AtomicBool::new(false));
    let device = Arc::new(Panics { inner: killed.device.clone(), on, flushed });
    let logs = killed.logs.path().to_owned();
    for _ in 0..2 {
        let (device, logs) = (device.clone(), logs.clone());
        let mounted = std::thread::spawn(move || drop(mount_on(device, &logs, ""))).join();
        assert!(mounted.is_err(), "the first record needs a page that cannot be read");
    }
    let v = mount_on(device.clone(), &logs, "");
    let log = told(&v);
    assert_eq!((log.replayed, log.failed), (2, 1));
    let name = "not done again: a write of 5 bytes at 3 of inode";
    assert!(
        log.told[0].starts_with(name) && log.told[0].contains("ended the process 2 times"),
        "{:?}",
        log.told
    );
    assert!(log.told.last().unwrap().contains(".aside1"), "{:?}", log.told);
    assert_eq!(content(&v, at(&v, "new").unwrap().ino), b"third");
    drop(v);
    assert_eq!(names(&logs).len(), 2, "the log is kept beside the new one");
    assert_eq!(told(&mount_on(device, &logs, "")).replayed, 0);
}

/// Files that only callers of the killed daemon held are gone, and those that got a name are there.
#[test]
fn files_without_a_name_live_as_long_as_records_of_them_come() {
    let (device, logs) = (Arc::new(blank_delta(64)), tempfile::tempdir().unwrap());
    let v = mount_on(device.clone(), logs.path(), "");
    let tmpfile = |v: &Volume| v.tmpfile(v.root(), &new(FileKind::Regular)).unwrap().ino;
    let [linked, gone] = [tmpfile(&v), tmpfile(&v)];
    v.sync().unwrap();
    write(&v, linked, 0, b"linked");
    v.link(linked, v.root(), b"name").unwrap();
    write(&v, gone, 0, b"gone");
    let freed = file(&v, v.root(), "freed");
    v.unlink(v.root(), b"freed").unwrap();
    v.release(freed, 1);
    let again = file(&v, v.root(), "again");
    let free = v.space().files_free;
    drop(v);
    let v = mount_on(device, logs.path(), "");
    assert_eq!(told(&v).failed, 0, "{:?}", told(&v).told);
    assert_eq!((at(&v, "name").map(|a| a.ino), at(&v, "again").map(|a| a.ino)), (Some(linked), Some(again)));
    assert_eq!(content(&v, linked), b"linked");
    assert!(v.getattr(gone).is_err() && v.space().files_free >= free);
}

/// What was acknowledged before a commit failed can be kept after all.
#[test]
fn after_a_failed_commit_the_log_has_what_was_acknowledged() {
    let (mem, logs) = (Arc::new(blank_delta(64)), tempfile::tempdir().unwrap());
    let device = Arc::new(FaultDevice::new(mem.clone(), 1));
    let v = mount_on(device.clone(), logs.path(), "");
    let f = file(&v, v.root(), "f");
    write(&v, f, 0, b"acknowledged");
    v.fsync(f, false).unwrap();
    device.arm(Fault::on(Kind::Flush, Effect::IO));
    assert!(v.sync().is_err() && v.fsync(f, false).is_err() && v.fsync(f, true).is_err());
    assert!(v.fsync_now(f, false).is_err() && v.sync().is_err() && v.close().is_err());
    drop(v);
    let v = mount_on(mem, logs.path(), "");
    assert_eq!(content(&v, at(&v, "f").expect("it was acknowledged").ino), b"acknowledged");
}

/// What the log has no room for waits for a commit, before or after it is done.
#[test]
fn a_full_log_makes_operations_wait() {
    let (device, logs) = (Arc::new(blank_delta(64)), tempfile::tempdir().unwrap());
    let v = mount_on(device.clone(), logs.path(), ",survivor_size=256K");
    let f = file(&v, v.root(), "f");
    for n in 0..100 {
        write(&v, f, 0, &[n; 8 * PAGE]);
        assert!(told(&v).used <= 256 << 10);
    }
    let waited = told(&v).waited;
    assert!((5..50).contains(&waited), "{waited}");
    write(&v, f, 0, &[200; 100 * PAGE]);
    let log = told(&v);
    assert_eq!((log.unrecorded, log.used), (1, 0));
    assert!(
        fs::metadata(names(logs.path()).pop().map(|name| logs.path().join(name)).unwrap()).unwrap().len()
            <= 256 << 10
    );
    drop(v);
    let v = open_with(device, "", Arc::new(ManualClock::new(START)));
    assert_eq!(content(&v, at(&v, "f").unwrap().ino), [200; 100 * PAGE], "it was durable when it returned");
}
