//! How mounts end: at once, killed in the middle, by an ordinary user, after a failure. Needs /dev/fuse, mostly root.

use crate::common::*;
use rustix::process::{Pid, Signal};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command as System, Stdio};
use std::time::{Duration, Instant};

/// An ordinary user.
const USER: u32 = 65_534;

/// The transports this kernel offers.
fn transports() -> Vec<&'static str> {
    let enabled = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    if enabled.is_ok_and(|enabled| enabled.trim() == "Y") {
        vec!["transport=dev", "transport=uring"]
    } else {
        eprintln!("FUSE over io_uring is not enabled here: only /dev/fuse is tested");
        vec!["transport=dev"]
    }
}

/// Unmounts at the end, whatever happened.
struct Dir(std::path::PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = System::new("umount").arg("-f").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

fn mount_point(s: &Scratch) -> Dir {
    fs::create_dir_all(s.path("mnt")).unwrap();
    Dir(s.path("mnt").canonicalize().unwrap())
}

/// A daemon in the foreground, which may not have mounted yet.
fn daemon(s: &Scratch, dir: &Dir, options: &str) -> Child {
    System::new(binary())
        .args(["mount", "--foreground", "-o", options])
        .arg(s.image())
        .arg(&dir.0)
        .spawn()
        .unwrap()
}

fn is_mounted(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mounts").unwrap().contains(&*dir.to_string_lossy())
}

/// Waits for something for 20 seconds.
fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn an_unmount_right_after_the_mount_is_clean() {
    if !can_mount() {
        return;
    }
    for transport in transports() {
        let s = Scratch::with_volume("64M");
        let dir = mount_point(&s);
        for round in 0..50 {
            let mut daemon = daemon(&s, &dir, transport);
            wait_for("mounted", || is_mounted(&dir.0));
            // From none to a few milliseconds: some before the daemon is ready, some after.
            std::thread::sleep(Duration::from_micros(round * 150));
            medfs().arg("umount").arg(&dir.0).assert().success();
            assert_eq!(daemon.wait().unwrap().code(), Some(0), "{transport}, round {round}");
            let state = output(&["stat"], &[&s.image()]);
            assert!(
                state.contains("last checkpoint written at unmount"),
                "{transport}, round {round}: {state}"
            );
        }
        assert_clean(&s.image());
    }
}

/// Keeps the kernel writing files back for the daemon until the mount is gone.
fn keep_seeking(dir: &Path) -> Vec<std::thread::JoinHandle<()>> {
    let seek = |path: std::path::PathBuf| {
        let Ok(file) = File::options().read(true).write(true).create(true).truncate(true).open(path) else {
            return;
        };
        while file.write_all_at(&[1; 1 << 20], 0).is_ok()
            && rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).is_ok()
        {}
    };
    (0..8).map(|n| dir.join(format!("f{n}"))).map(|path| std::thread::spawn(move || seek(path))).collect()
}

/// The children of a process.
fn children(pid: u32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn signal(pid: i32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Kills a daemon in the middle of that; then a mount that is not connected must be left, and nobody may hang.
fn kill_while_seeking(transport: &str) {
    let s = Scratch::with_volume("128M");
    let dir = mount_point(&s);
    for round in 0..4 {
        let mut daemon = daemon(&s, &dir, transport);
        wait_for("watched", || children(daemon.id()).len() == 1);
        let seekers = keep_seeking(&dir.0);
        std::thread::sleep(Duration::from_millis(300 + 50 * round));
        daemon.kill().unwrap();
        wait_for("all who use the mount are told", || seekers.iter().all(|seeker| seeker.is_finished()));
        daemon.wait().unwrap();
        medfs().arg("umount").arg(&dir.0).timeout(Duration::from_secs(20)).assert().code(32);
        assert!(!is_mounted(&dir.0));
    }
    medfs().arg("fsck").arg("--repair").arg(s.image()).output().unwrap();
    assert_clean(&s.image());
}

#[test]
fn a_daemon_killed_while_the_kernel_writes_back_for_it_leaves_no_hang() {
    if can_mount() {
        // Over io_uring the kernel itself never lets go, see the README of the fuse crate: a test would wedge
        // the machine.
        kill_while_seeking("transport=dev");
    }
}

/// Uses a mount until it is gone. A process of its own: a program that is started by one whose files are on a
/// mount that does not answer waits for it too.
#[test]
#[ignore = "a part of umount_frees_a_mount_whose_daemon_cannot_end"]
fn seekers() {
    let dir = std::env::var("MEDFS_TEST_DIR").unwrap();
    keep_seeking(Path::new(&dir)).into_iter().for_each(|seeker| seeker.join().unwrap());
}

#[test]
fn umount_frees_a_mount_whose_daemon_cannot_end() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let dir = mount_point(&s);
    for round in 0..2 {
        let mut daemon = daemon(&s, &dir, "transport=dev");
        wait_for("watched", || children(daemon.id()).len() == 1);
        let mut seekers = System::new(std::env::current_exe().unwrap());
        seekers.args(["--ignored", "--exact", "ends::seekers"]).env("MEDFS_TEST_DIR", &dir.0);
        let mut seekers = seekers.stdout(Stdio::null()).spawn().unwrap();
        wait_for("used", || dir.0.join("f7").exists());
        std::thread::sleep(Duration::from_millis(300 + 50 * round));
        signal(children(daemon.id())[0], Signal::KILL);
        daemon.kill().unwrap();
        medfs().arg("umount").arg(&dir.0).timeout(Duration::from_secs(30)).assert().code(32);
        assert!(!is_mounted(&dir.0));
        wait_for("all who use the mount are told", || seekers.try_wait().unwrap().is_some());
        daemon.wait().unwrap();
    }
    medfs().arg("fsck").arg("--repair").arg(s.image()).output().unwrap();
    assert_clean(&s.image());
}

#[test]
fn the_watchdog_leaves_a_clean_end_alone() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let dir = mount_point(&s);
    let mut daemon = daemon(&s, &dir, "noatime");
    wait_for("watched", || children(daemon.id()).len() == 1);
    let watchdog = children(daemon.id())[0];
    // As from a terminal or a service that is stopped: all processes get it.
    fs::write(dir.0.join("f"), "x").unwrap();
    signal(watchdog, Signal::TERM);
    std::thread::sleep(Duration::from_millis(50));
    signal(daemon.id() as i32, Signal::TERM);
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert!(!Path::new(&format!("/proc/{watchdog}")).exists(), "the watchdog ends with the daemon");
    assert_eq!(output(&["get"], &[&s.image(), Path::new("/f"), Path::new("-")]), "x");
}

/// The system's log, where the system has none.
struct Log(UnixDatagram);

impl Log {
    fn bind() -> Option<Log> {
        let log = Log(UnixDatagram::bind("/dev/log").ok()?);
        log.0.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Some(log)
    }

    /// The next message with a text in it; other daemons may log too.
    fn next_with(&self, text: &str) -> String {
        loop {
            let mut bytes = [0; 4096];
            let len =
                self.0.recv(&mut bytes).unwrap_or_else(|error| panic!("no message with '{text}': {error}"));
            let message = String::from_utf8_lossy(&bytes[..len]);
            if message.contains(text) {
                return message.into_owned();
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = fs::remove_file("/dev/log");
    }
}

/// A volume on a disk that is too full for it.
fn volume_on_a_full_disk(s: &Scratch) -> Dir {
    let disk = s.path("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = System::new("mount").args(["-t", "tmpfs", "-o", "size=24M", "none"]).arg(&disk).status();
    assert!(mounted.unwrap().success());
    let guard = Dir(disk.clone());
    medfs().args(["mkfs", "-q", "--size", "256M"]).arg(disk.join("image")).assert().success();
    guard
}

#[test]
fn a_copy_to_a_full_disk_fails_in_one_sentence() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let disk = volume_on_a_full_disk(&s);
    fs::write(
        s.path("large"),
        (0..40_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>(),
    )
    .unwrap();
    let text = error(1, medfs().arg("put").args([&disk.0.join("image"), &s.path("large")]).arg("/"));
    assert!(text.lines().count() == 2 && text.contains("the disk that holds it is full"), "{text}");
    assert!(text.contains("warning: ") && text.contains("nothing was copied"), "{text}");
}

#[test]
fn a_failure_of_a_detached_daemon_can_be_found() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let disk = volume_on_a_full_disk(&s);
    let dir = mount_point(&s);
    // A log of our own where the system has none; elsewhere only `medfs stat` is looked at.
    let log = Log::bind();
    medfs().arg("mount").arg(disk.0.join("image")).arg(&dir.0).assert().success();
    let fill = || {
        let file = File::create(dir.0.join("big"))?;
        (0..100).try_for_each(|n| file.write_all_at(&[7; 1 << 20], n << 20))?;
        file.sync_all()
    };
    assert!(fill().is_err(), "100 MB on a disk of 24 MB");
    let text = output(&["stat"], &[&dir.0]);
    assert!(
        text.contains("READ-ONLY after an error") && text.contains("the disk that holds it is full"),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&output(&["stat", "--json"], &[&dir.0])).unwrap();
    assert_eq!(json["read_only"], true);
    assert!(json["failure"].as_str().unwrap().contains("the disk that holds it is full"), "{json}");
    if let Some(log) = log {
        let message = log.next_with("the volume is read-only from now on");
        assert!(message.starts_with("<27>medfs["), "{message}");
    } else {
        eprintln!("this system has a log of its own: not read");
    }
    let text = error(32, medfs().arg("umount").arg(&dir.0));
    assert!(
        text.contains("the last writes are lost: ") && text.contains("the disk that holds it is full\n"),
        "{text}"
    );
    assert!(!is_mounted(&dir.0));
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    if !can_mount() {
        return;
    }
    // In the middle of making a volume, or while one is mounted; by a terminal, or by a service manager.
    for (interrupted_at, how) in
        [("demo-0.img", Signal::INT), ("mounted/states.db", Signal::INT), ("mounted/states.db", Signal::TERM)]
    {
        let s = Scratch::new();
        let temporary = s.path("temporary").canonicalize().unwrap_or_else(|_| s.path("temporary"));
        fs::create_dir(&temporary).unwrap();
        // A job in the background of a shell ignores SIGINT, and so would all that it starts.
        let mut demo = System::new("env");
        demo.arg("--default-signal=INT").arg(binary());
        demo.args(["demo", "--size", "512M", "--transactions", "100000"]);
        let mut demo = demo.env("TMPDIR", &temporary).stdout(Stdio::null()).spawn().unwrap();
        let in_one = |name: &str| {
            let folder = fs::read_dir(&temporary).unwrap().flatten().next();
            folder.is_some_and(|folder| folder.path().join(name).exists())
        };
        wait_for(interrupted_at, || in_one(interrupted_at));
        signal(demo.id() as i32, how);
        assert_eq!(demo.wait().unwrap().signal(), Some(how.as_raw()));
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(&*temporary.to_string_lossy()), "{mounts}");
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    }
}

/// Whether this test may become an ordinary user, and that one may mount.
fn an_ordinary_user_can_mount() -> bool {
    if !can_mount() || System::new("fusermount3").arg("-V").output().is_err() {
        eprintln!("SKIPPED: needs root, to become an ordinary user, and fusermount3 (package fuse3)");
        return false;
    }
    let is_open = fs::metadata("/dev/fuse").unwrap().permissions().mode() & 0o006 == 0o006;
    if !is_open {
        eprintln!("SKIPPED: needs a /dev/fuse that ordinary users may open");
    }
    is_open
}

#[test]
fn an_ordinary_user_mounts_through_fusermount3() {
    if !an_ordinary_user_can_mount() {
        return;
    }
    let s = Scratch::new();
    let home = s.path("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(home.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    chown(&home, Some(USER), Some(USER)).unwrap();
    // The program may lie where the user cannot go.
    let program = s.path("medfs");
    fs::copy(binary(), &program).unwrap();
    let as_user = |args: &[&str]| {
        let mut command = System::new(&program);
        command.args(args).uid(USER).gid(USER).current_dir(&home).env("HOME", &home);
        command.output().unwrap()
    };
    let medfs = |args: &[&str]| {
        let output = as_user(args);
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "medfs {args:?} as {USER}: {}: {text}", output.status);
        text
    };
    let user = |program: &str, script: &str| {
        System::new(program)
            .args(["-c", script])
            .uid(USER)
            .gid(USER)
            .current_dir(&home)
            .status()
            .unwrap()
            .success()
    };
    let dir = Dir(home.join("mnt"));
    assert!(user("sh", "mkdir mnt"));
    medfs(&["mkfs", "-q", "--size", "64M", "-R", &format!("{USER}:{USER}"), "image"]);
    for options in ["noatime,nosuid", "ro,noexec", "sync,dirsync", "relatime", "nodiratime,strictatime"] {
        medfs(&["mount", "-o", options, "image", "mnt"]);
        assert!(is_mounted(&dir.0));
        if options != "ro,noexec" {
            assert!(user(
                "sh",
                "mkdir -p mnt/d && echo hello > mnt/d/f && sync mnt/d/f && mv mnt/d/f mnt/g && cat mnt/g > /dev/null"
            ));
            medfs(&["sync", "mnt"]);
        }
        assert!(medfs(&["stat", "mnt"]).contains("written data"));
        for command in ["stat", "sync"] {
            let of_root = error(1, crate::common::medfs().arg(command).arg(&dir.0));
            assert!(of_root.contains("is a volume that another user mounted"), "{of_root}");
        }
        medfs(&["umount", "mnt"]);
        assert!(!is_mounted(&dir.0));
        assert!(medfs(&["stat", "image"]).contains("last checkpoint written at unmount"), "{options}");
    }
    // What root mounted, root unmounts.
    let theirs = Dir(s.path("theirs"));
    fs::create_dir(&theirs.0).unwrap();
    let image = home.join("image");
    crate::common::medfs().arg("mount").args([&image, &theirs.0]).assert().success();
    let refused = System::new(&program).arg("umount").arg(&theirs.0).uid(USER).gid(USER).output().unwrap();
    crate::common::medfs().arg("umount").arg(&theirs.0).assert().success();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("only root and the user who mounted it may ('sudo medfs umount "), "{text}");
    assert_clean(&image);
    assert!(medfs(&["demo", "--size", "512M", "--transactions", "10"]).contains("SQLite, synchronous=FULL"));
    // What is killed can be removed without root, too, at once.
    for _ in 0..10 {
        medfs(&["mount", "image", "mnt"]);
        signal(daemon_of(&home.join("image")), Signal::KILL);
        assert_eq!(as_user(&["umount", "mnt"]).status.code(), Some(32));
        assert!(!is_mounted(&dir.0));
    }
    // A reader has nothing to lose.
    medfs(&["mount", "-o", "ro", "image", "mnt"]);
    signal(daemon_of(&home.join("image")), Signal::KILL);
    medfs(&["umount", "mnt"]);
}

/// The process that holds the lock on an image.
fn daemon_of(image: &Path) -> i32 {
    let inode = format!(":{}", fs::metadata(image).unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let mut lines = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|fields| fields.contains(&"FLOCK") && fields[5].ends_with(&inode));
    line.expect("the daemon's lock")[4].parse().unwrap()
}

/// What units of systemd call reaches all volumes, those of users who let nobody else in too. In name spaces of its
/// own, of mounts and of processes: those of other tests are not asked.
#[test]
fn all_mounted_volumes_are_told_of_the_power() {
    if !an_ordinary_user_can_mount() {
        return;
    }
    let s = Scratch::new();
    fs::set_permissions(s.path("."), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(s.path("home")).unwrap();
    chown(s.path("home"), Some(USER), Some(USER)).unwrap();
    fs::copy(binary(), s.path("medfs")).unwrap();
    let script = format!(
        r#"set -eu
        for dir in $(awk '$3 ~ /medfs$/ {{ print $2 }}' /proc/self/mounts); do umount -i -l "$dir"; done
        user() {{ setpriv --reuid {USER} --regid {USER} --clear-groups "$@"; }}
        user ./medfs mkfs -q --size 64M -R {USER}:{USER} home/image
        ./medfs mkfs -q --size 64M image
        mkdir "a b" home/mnt && chown {USER} home/mnt
        trap 'user ./medfs umount home/mnt; ./medfs umount "a b"' EXIT
        ./medfs mount -o durability=adaptive,survivor=off image "a b"
        mount --bind "a b" /mnt
        user ./medfs mount -o durability=adaptive,survivor=off home/image home/mnt
        is_low() {{ "$@" | grep -q 'power may fail'; }}
        both() {{ test "$(is_low ./medfs stat "a b" && echo low) $(is_low user ./medfs stat home/mnt && echo low)" = "$1"; }}
        ./medfs sync --all; both " "
        ./medfs power low --all; both "low low"
        ./medfs power ok --all; both " "
        if user ./medfs power low --all 2>refused; then exit 9; fi
        both " low"
        umount -i /mnt"#
    );
    let said = System::new("unshare")
        .args(["--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private", "sh", "-c", &script])
        .current_dir(s.path("."))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{}{text}", String::from_utf8_lossy(&said.stdout));
    let refused = fs::read_to_string(s.path("refused")).unwrap();
    assert!(refused.contains("/mnt is a volume that another user mounted"), "{refused}");
}
