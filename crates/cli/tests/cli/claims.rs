//! Who gets a device that two want, and what is left of a mount. Needs root, /dev/fuse and loop devices;
//! skipped aloud without.
//!
//! `MEDFS_ROUNDS` says how often each race is run.

use crate::common::*;
use medfs_device::Holder;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as System, Output, Stdio};
use std::time::{Duration, Instant};

fn rounds(few: usize) -> usize {
    std::env::var("MEDFS_ROUNDS").map_or(few, |text| text.parse().expect("MEDFS_ROUNDS is a number"))
}

/// A mount point; nothing is left mounted on it.
struct Dir(PathBuf);

impl Dir {
    fn new(s: &Scratch, name: &str) -> Dir {
        fs::create_dir_all(s.path(name)).unwrap();
        Dir(s.path(name).canonicalize().unwrap())
    }

    fn is_mounted(&self) -> bool {
        fs::read_to_string("/proc/self/mounts").unwrap().contains(&format!(" {} ", self.0.display()))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        while self.is_mounted() {
            if !System::new("umount").args(["-i", "-l"]).arg(&self.0).status().unwrap().success() {
                break;
            }
        }
    }
}

/// A loop device, which is detached at the end.
struct Loop(PathBuf);

impl Loop {
    fn on(image: &Path) -> Option<Loop> {
        let output = System::new("losetup").args(["--show", "-f"]).arg(image).output().ok()?;
        if !output.status.success() {
            eprintln!("SKIPPED: no loop devices here");
            return None;
        }
        Some(Loop(String::from_utf8(output.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = System::new("losetup").arg("-d").arg(&self.0).status();
    }
}

fn start(args: &[&str], paths: &[&Path]) -> Child {
    let mut command = System::new(binary());
    command.args(args).args(paths).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn run(args: &[&str], paths: &[&Path]) -> Output {
    start(args, paths).wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Fails unless a command was refused because of a user that it names, without advice to repair.
fn assert_names_the_holder(output: &Output) {
    let text = said(output);
    assert!(text.contains("is in use") && text.contains("(process "), "{text}");
    assert!(!text.contains("--repair") && !text.contains("not mend") && text.lines().count() <= 2, "{text}");
}

fn fsync_files(dir: &Path, content: &str) {
    for n in 0..6 {
        let mut file = File::create(dir.join(format!("kept{n}"))).unwrap();
        file.write_all(content.repeat(2000).as_bytes()).unwrap();
        file.sync_all().unwrap();
    }
}

fn assert_kept(dir: &Path, content: &str) {
    for n in 0..6 {
        let kept = fs::read_to_string(dir.join(format!("kept{n}"))).unwrap();
        assert!(kept == content.repeat(2000), "file {n}: acknowledged content is lost");
    }
}

/// Kills the daemon of a mount and takes the mount away.
fn kill(device: &Path, dir: &Dir) {
    let daemon = Holder::of(device).process.expect("a daemon").pid;
    kill_process(Pid::from_raw(daemon as i32).unwrap(), Signal::KILL).unwrap();
    medfs().arg("umount").arg(&dir.0).timeout(Duration::from_secs(30)).assert().failure();
}

/// What is run beside a mount.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Rival {
    Mount,
    Repair,
    Mkfs,
}

/// One race of a mount of `first` with a rival on `second`; both name the same bytes. `content`: what is
/// acknowledged so far. Returns what is acknowledged now.
fn race(rival: Rival, first: &Path, second: &Path, dirs: [&Dir; 2], before: &str, round: usize) -> String {
    let (mounts, rivals) = std::thread::scope(|scope| {
        // Each has its turn to begin.
        let pause = Duration::from_millis((round as u64 * 7) % 40);
        let (early, late) =
            if round.is_multiple_of(2) { (pause, Duration::ZERO) } else { (Duration::ZERO, pause) };
        let mount = scope.spawn(move || {
            std::thread::sleep(early);
            run(&["mount", "-o", "nodiscard"], &[first, &dirs[0].0])
        });
        let other = scope.spawn(move || {
            std::thread::sleep(late);
            match rival {
                Rival::Mount => run(&["mount", "-o", "nodiscard"], &[second, &dirs[1].0]),
                Rival::Repair => run(&["fsck", "--repair"], &[second]),
                Rival::Mkfs => run(&["mkfs", "-f", "-q"], &[second]),
            }
        });
        (mount.join().unwrap(), other.join().unwrap())
    });
    let (mounted, other) = (mounts.status.success(), matches!(rivals.status.code(), Some(0 | 1)));
    let other = if rival == Rival::Repair { other } else { rivals.status.success() };
    let story = format!("{rival:?}, round {round}: {}{}", said(&mounts), said(&rivals));
    assert!(mounted || other, "nobody got it: {story}");
    // A check that was done when the mount began is no rival.
    assert!(!(mounted && other) || rival != Rival::Mount, "both got it: {story}");
    if !mounted {
        assert_names_the_holder(&mounts);
    }
    if !other {
        assert_names_the_holder(&rivals);
    }
    let (winner, device) = if mounted { (dirs[0], first) } else { (dirs[1], second) };
    if !mounted && rival != Rival::Mount {
        medfs().arg("mount").arg(device).arg(&winner.0).assert().success();
    }
    if !(rival == Rival::Mkfs && other) {
        assert_kept(&winner.0, before);
    }
    let content = format!("round {round}. ");
    fsync_files(&winner.0, &content);
    kill(device, winner);
    content
}

/// Runs races of each kind on a pair of names for the same bytes.
fn races(rival: Rival, rounds: usize) {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let Some(device) = Loop::on(&s.image()) else { return };
    let dirs = [&Dir::new(&s, "a"), &Dir::new(&s, "b")];
    let (image, device) = (s.image(), device.0.clone());
    let mut content = "at first. ".to_owned();
    medfs().arg("mount").arg(&image).arg(&dirs[0].0).assert().success();
    fsync_files(&dirs[0].0, &content);
    kill(&image, dirs[0]);
    for round in 0..rounds {
        let (first, second) = match round % 4 {
            0 => (&device, &device),
            1 => (&image, &device),
            2 => (&device, &image),
            _ => (&image, &image),
        };
        content = race(rival, first, second, dirs, &content, round);
    }
    medfs().args(["fsck", "--repair"]).arg(&image).assert().code(clean_or_repaired());
    medfs().arg("fsck").arg(&image).assert().code(0);
}

/// Clean or repaired.
fn clean_or_repaired() -> Vec<i32> {
    vec![0, 1]
}

#[test]
fn of_two_mounts_of_a_device_one_gets_it() {
    races(Rival::Mount, rounds(8));
}

#[test]
fn a_mount_and_a_repair_never_meet() {
    races(Rival::Repair, rounds(4));
}

#[test]
fn a_mount_and_mkfs_never_meet() {
    races(Rival::Mkfs, rounds(4));
}

/// How a mount is ended.
#[derive(Clone, Copy, Debug)]
enum Way {
    Command,
    Helper,
    System,
    Fusermount,
}

impl Way {
    fn end(self, dir: &Dir) -> Output {
        let mut command = match self {
            Way::Command | Way::Helper => System::new(binary()),
            Way::System => System::new("umount"),
            Way::Fusermount => System::new("fusermount3"),
        };
        let command = match self {
            Way::Command => command.arg("umount").arg(&dir.0),
            // As umount(8) calls it.
            Way::Helper => {
                command.arg0("/sbin/umount.fuse.medfs").arg(&dir.0).args(["-v", "-t", "fuse.medfs"])
            }
            Way::System => command.arg("-i").arg(&dir.0),
            Way::Fusermount => command.arg("-u").arg(&dir.0),
        };
        command.output().unwrap()
    }
}

/// Unmounts, again where that fails for a moment: a process that another test has forked has what this one had
/// open below the mount, until it runs its program.
fn unmount(way: Way, dir: &Dir) {
    let start = Instant::now();
    loop {
        let output = way.end(dir);
        if output.status.success() {
            return;
        }
        let text = said(&output);
        let is_for_a_moment = text.contains("busy") && start.elapsed() < Duration::from_secs(5);
        assert!(is_for_a_moment, "{way:?}: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_device_is_free_when_it_is_unmounted() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let Some(device) = Loop::on(&s.image()) else { return };
    let dir = Dir::new(&s, "mnt");
    let flash = PathBuf::from(format!("flash:{}", s.path("card").display()));
    medfs().args(["mkfs", "-q", "--size", "64M"]).arg(&flash).assert().success();
    let has_fusermount = System::new("fusermount3").arg("-V").output().is_ok();
    for round in 0..rounds(1) {
        for way in [Way::Command, Way::Helper, Way::System, Way::Fusermount] {
            if matches!(way, Way::Fusermount) && !has_fusermount {
                continue;
            }
            for target in [&s.image(), &device.0, &flash] {
                let mount = || {
                    let output = run(&["mount"], &[target, &dir.0]);
                    assert!(output.status.success(), "{way:?}, round {round}: {}", said(&output));
                };
                mount();
                fs::write(dir.0.join(format!("f{}", round % 10)), vec![7; 1 << 20]).unwrap();
                unmount(way, &dir);
                let checked = run(&["fsck"], &[target]);
                let text = said(&checked);
                assert_eq!(checked.status.code(), Some(0), "{way:?}, round {round}: {text}");
                mount();
                unmount(way, &dir);
                mount();
                unmount(Way::Command, &dir);
            }
        }
    }
}

#[test]
fn who_has_a_device_is_named_by_whatever_name_it_is_wanted() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let Some(device) = Loop::on(&s.image()) else { return };
    let dir = Dir::new(&s, "mnt");
    let (linked, symbolic) = (s.path("linked"), s.path("symbolic"));
    fs::hard_link(s.image(), &linked).unwrap();
    std::os::unix::fs::symlink(s.image(), &symbolic).unwrap();
    for mounted in [&s.image(), &device.0] {
        medfs().arg("mount").arg(mounted).arg(&dir.0).assert().success();
        for name in [&s.image(), &linked, &symbolic, &device.0] {
            for command in [&["ls"][..], &["fsck"], &["fsck", "--repair"], &["mkfs", "-f"], &["export"]] {
                let start = Instant::now();
                let output = run(command, &[name]);
                assert!(!output.status.success());
                assert_names_the_holder(&output);
                let text = said(&output);
                let on = format!("it is mounted on {} by medfs mount (process ", dir.0.display());
                assert!(text.contains(&on), "{mounted:?}, {command:?} {name:?}: {text}");
                assert!(text.contains("medfs umount"), "{text}");
                assert!(start.elapsed() < Duration::from_secs(5), "waited for a mount");
            }
            // Looking is allowed.
            medfs().arg("stat").arg(name).assert().success();
        }
        medfs().arg("umount").arg(&dir.0).assert().success();
    }
    // A mount of the kernel's.
    assert!(System::new("mkfs.ext4").args(["-q", "-F"]).arg(&device.0).status().unwrap().success());
    if !System::new("mount").args(["-t", "ext4"]).arg(&device.0).arg(&dir.0).status().unwrap().success() {
        eprintln!("SKIPPED: no ext4 here");
        return;
    }
    for name in [&s.image(), &linked, &device.0] {
        let text = error(1, medfs().args(["mkfs", "-f", "-q"]).arg(name));
        assert!(text.contains(&format!("it is mounted on {}", dir.0.display())), "{text}");
    }
}

#[test]
fn a_failure_of_the_last_checkpoint_is_the_callers() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let disk = Dir::new(&s, "disk");
    let made = System::new("mount").args(["-t", "tmpfs", "-o", "size=24M", "none"]).arg(&disk.0).status();
    assert!(made.unwrap().success());
    let image = disk.0.join("image");
    medfs().args(["mkfs", "-q", "--size", "256M"]).arg(&image).assert().success();
    for way in [Way::Command, Way::Helper] {
        let dir = Dir::new(&s, "mnt");
        medfs().arg("mount").arg(&image).arg(&dir.0).assert().success();
        fs::write(dir.0.join("late"), vec![7; 256 << 10]).unwrap();
        let mut full = File::create(disk.0.join("full")).unwrap();
        while full.write_all(&[1; 1 << 16]).is_ok() {}
        let output = match way {
            Way::Command => run(&["umount"], &[&dir.0]),
            _ => System::new(binary()).arg0("umount.fuse.medfs").arg(&dir.0).output().unwrap(),
        };
        let text = said(&output);
        assert_eq!(output.status.code(), Some(32), "{text}");
        assert!(
            text.contains("is unmounted, but the last writes")
                && text.contains("cannot grow: the disk that holds it is full"),
            "{text}"
        );
        assert!(!dir.is_mounted());
        drop(full);
        fs::remove_file(disk.0.join("full")).unwrap();
        medfs().args(["fsck", "--repair"]).arg(&image).assert().code(clean_or_repaired());
    }
}

#[test]
fn a_mount_whose_daemon_and_watchdog_were_killed_is_freed() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let Some(device) = Loop::on(&s.image()) else { return };
    let dir = Dir::new(&s, "mnt");
    for target in [&s.image(), &device.0] {
        medfs().arg("mount").arg(target).arg(&dir.0).assert().success();
        let file = File::create(dir.0.join("open")).unwrap();
        let daemon = Holder::of(target).process.expect("a daemon").pid;
        let list = fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children")).unwrap();
        let watchdogs: Vec<i32> = list.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(watchdogs.len(), 1, "{list}");
        for pid in watchdogs.into_iter().chain([daemon as i32]) {
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        }
        let start = Instant::now();
        while fs::metadata(dir.0.join("open")).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(20), "the daemon goes on");
        }
        let on = dir.0.display();
        let ended = format!(
            "the daemon of the volume mounted on {on} has ended: unmount it with 'medfs umount {on}'."
        );
        for (code, args) in [(1, &["stat"][..]), (1, &["stat", "--file"]), (1, &["sync"])] {
            let text = error(code, medfs().args(args).arg(&dir.0));
            assert!(text.contains(&ended) && text.contains("system's log"), "{text}");
        }
        assert!(error(1, medfs().arg("stat").arg(dir.0.join("open"))).contains(&ended));
        let text = error(32, medfs().arg("mount").arg(target).arg(&dir.0));
        assert!(text.contains(&ended), "{text}");
        let done = medfs().arg("umount").arg(&dir.0).timeout(Duration::from_secs(30)).assert().code(32);
        let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
        assert!(
            said.contains("had ended before its last checkpoint: the next mount brings back what was durable, and what lies in the NVRAM or the survivor log, and no more"),
            "{said}"
        );
        assert!(!dir.is_mounted());
        drop(file);
        medfs().arg("mount").arg(target).arg(&dir.0).assert().success();
        medfs().arg("umount").arg(&dir.0).assert().success();
    }
}

#[test]
fn readers_of_a_volume_are_unmounted_one_by_one() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let dirs = ["first", "second", "third"].map(|name| Dir::new(&s, name));
    for dir in &dirs {
        medfs().args(["mount", "-o", "ro"]).arg(s.image()).arg(&dir.0).assert().success();
    }
    for (nth, dir) in dirs.iter().enumerate() {
        let start = Instant::now();
        medfs().arg("umount").arg(&dir.0).timeout(Duration::from_secs(20)).assert().success().stderr("");
        assert!(start.elapsed() < Duration::from_secs(20), "{nth}");
        assert!(dirs[nth + 1..].iter().all(Dir::is_mounted), "{nth}");
    }
}

#[test]
fn a_mount_that_another_namespace_keeps_is_said_to_be_there() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let dir = Dir::new(&s, "mnt");
    medfs().arg("mount").arg(s.image()).arg(&dir.0).assert().success();
    // The mounts of other tests are not to be kept.
    let script = r#"
        for dir in $(awk '$3 ~ /medfs$/ { print $2 }' /proc/self/mounts); do
            test "$dir" = "$1" || umount -i -l "$dir"
        done
        exec sleep 1000"#;
    let mut keeper =
        System::new("unshare").args(["--mount", "sh", "-c", script, "sh"]).arg(&dir.0).spawn().unwrap();
    let program = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    while program(keeper.id()) != "sleep\n" {
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = medfs().arg("umount").arg(&dir.0).timeout(Duration::from_secs(60)).output().unwrap();
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("still mounted on") && said.contains("namespace of sleep"), "{said}");
    // With the namespace goes the mount.
    medfs().args(["fsck", "--wait"]).arg(s.image()).output().unwrap();
}
