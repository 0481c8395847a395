//! How a person meets the program: words of other tools, the first look at a volume, and Ctrl-C.

use crate::common::*;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command as System, Stdio};
use std::time::{Duration, Instant};

#[test]
fn who_asks_for_nothing_or_for_help_gets_it() {
    let text = error(2, &mut medfs());
    assert!(text.contains("Usage: medfs <COMMAND>") && text.contains("help damaged"), "{text}");
    for args in [&["help"][..], &["--help"], &["-h"], &["help", "fsck"]] {
        assert!(output(args, &[]).contains("Usage: medfs"), "{args:?}");
    }
    for args in [["--version"], ["-V"]] {
        assert_eq!(output(&args, &[]), concat!("medfs ", env!("CARGO_PKG_VERSION"), "\n"));
    }
    let text = error(2, medfs().arg("frobnicate"));
    assert_eq!(text, "medfs: unknown command 'frobnicate': 'medfs --help' lists all\n");
    assert_eq!(error(2, medfs().arg("mkf")), "medfs: unknown command 'mkf': did you mean 'mkfs'?\n");
    let page = output(&["help", "damaged"], &[]);
    assert!(page.contains("medfs get -r --map card.map CARD / files") && !page.contains('#'), "{page}");
    let s = Scratch::new();
    medfs().arg("man").arg(s.path("man")).assert().success();
    let page = fs::read_to_string(s.path("man/medfs-damaged.7")).unwrap();
    assert!(page.contains("SALVAGE") && page.contains("card.undo"), "{page}");
    let page = fs::read_to_string(s.path("man/medfs-findings.7")).unwrap();
    assert!(page.contains("F0217") && page.contains("FSYNC LOG"), "{page}");
}

#[test]
fn what_a_finding_means_is_told_by_its_number() {
    let all = output(&["help", "findings"], &[]);
    let one = output(&["help", "findings", "F0217"], &[]);
    assert!(one.starts_with("F0217  error    The newest checkpoint is lost"), "{one}");
    assert!(all.contains("  F0217  error    The newest checkpoint is lost"), "{all}");
    assert_eq!(output(&["help", "findings", "217"], &[]), one);
    let text = error(2, medfs().args(["help", "findings", "F9999"]));
    assert_eq!(text, "medfs help: no finding has the number 'F9999': 'medfs help findings' lists all\n");
}

#[test]
fn commands_of_other_tools_are_named_here() {
    for (word, here) in [
        ("repair", "'medfs fsck --repair' repairs a volume\n"),
        ("check", "'medfs fsck' checks a volume\n"),
        ("format", "'medfs mkfs' makes a volume\n"),
        ("version", "'medfs --version' prints it\n"),
    ] {
        let expected = format!("medfs: unknown command '{word}': {here}");
        assert_eq!(error(2, medfs().args([word, "card.img"])), expected);
        assert_eq!(error(2, medfs().args(["help", word])), expected);
    }
    // Below a command the parser lists the commands of that one.
    let text = error(2, medfs().args(["ars", "list"]));
    assert_eq!(text, "medfs ars: unknown command 'list': 'medfs ars --help' lists all\n");
    // No command of the program itself: the watchdog is a name of it.
    error(2, medfs().args(["watchdog", "1"]));
}

#[test]
fn wrong_arguments_are_one_sentence_with_the_way_on() {
    for (code, args, expected) in [
        (2, &["ls"][..], "medfs ls: <IMAGE|DEVICE> is missing; usage: medfs ls <IMAGE|DEVICE> [PATH]"),
        (
            1,
            &["umount", "-l", "dir"],
            "medfs umount: unknown option '-l': 'umount -l DIR' detaches a volume that is in use",
        ),
        (
            2,
            &["ls", "-t", "x"],
            "medfs ls: unknown option '-t': names are sorted; --json has times and sizes to sort by",
        ),
        (
            2,
            &["put", "--recursiv", "x"],
            "medfs put: unknown option '--recursiv': did you mean '--recursive'?",
        ),
        (2, &["trace", "rec"], "medfs trace: unknown command 'rec': did you mean 'record'?"),
        (
            2,
            &["nvram", "info", "a", "b"],
            "medfs nvram info: 'b' is one argument too many: 'medfs nvram info --help' describes it",
        ),
        (
            2,
            &["mkfs", "--size", "9X", "x"],
            "medfs mkfs: --size <SIZE>: '9X' is not a size: expected a number, with K, M, G or T for powers of 1024, such as 512M or 1.5G",
        ),
    ] {
        assert_eq!(error(code, medfs().args(args)), format!("{expected}\n"), "{args:?}");
    }
}

#[test]
fn flags_of_other_programs_are_taken() {
    let s = Scratch::new();
    medfs().args(["mkfs", "-q", "--size", "64M", "-L", "card"]).arg(s.image()).assert().success();
    assert!(output(&["stat"], &[&s.image()]).contains("label       card"));
    fs::write(s.path("file"), vec![1; 5000]).unwrap();
    medfs().args(["put", "-R"]).args([&s.image(), &s.path("file"), Path::new("/.hidden")]).assert().success();
    assert_eq!(output(&["ls", "-a1"], &[&s.image()]), ".hidden\nlost+found\n");
    let long = output(&["ls", "-lh"], &[&s.image()]);
    assert!(long.contains(" 4.9K ") && !long.contains("5000"), "{long}");
    assert!(output(&["ls", "--help"], &[]).contains("--human-readable"));
    if !can_mount() {
        return;
    }
    fs::create_dir(s.path("dir")).unwrap();
    for flag in ["-r", "--ro", "--read-only"] {
        medfs().args(["mount", flag]).args([s.image(), s.path("dir")]).assert().success();
        let refused = fs::write(s.path("dir/x"), "").unwrap_err();
        medfs().arg("umount").arg(s.path("dir")).assert().success();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
}

/// A volume with a fault that costs nothing to repair: one copy of the superblock.
fn faulty() -> Scratch {
    let s = Scratch::with_volume("64M");
    let file = File::options().write(true).open(s.image()).unwrap();
    file.write_all_at(&[0; 512], 4096 + 1024).unwrap();
    s
}

#[test]
fn flags_of_other_checkers_are_taken() {
    for (flags, code) in
        [(&["-n"][..], 4), (&["-f"], 4), (&["-y"], 1), (&["-fy"], 1), (&["-a"], 1), (&["-p"], 1)]
    {
        let s = faulty();
        medfs().arg("fsck").args(flags).arg(s.image()).assert().code(code);
        medfs().arg("fsck").arg(s.image()).assert().code(if code == 1 { 0 } else { 4 });
    }
    for flags in [["-n", "-y"], ["-p", "-y"], ["-n", "-a"]] {
        error(16, medfs().arg("fsck").args(flags).arg("image"));
    }
}

#[test]
fn mount_options_of_file_systems_without_owners_are_explained() {
    let s = Scratch::with_volume("64M");
    for option in ["uid=1000", "gid=1000", "umask=022", "dmask=0", "fmask=0"] {
        let text = error(1, medfs().args(["mount", "-o", option]).arg(s.image()).arg(s.path(".")));
        let name = option.split('=').next().unwrap();
        let expected = format!(
            "medfs mount: F2FS keeps the owner and mode of each file itself, so there is no option '{name}': use chown and chmod\n"
        );
        assert_eq!(text, expected);
    }
    let text = error(1, medfs().args(["mount", "-o", "help"]).arg(s.image()).arg(s.path(".")));
    assert_eq!(text, "medfs mount: 'medfs mount --help' and medfs(5) describe the options\n");
}

#[test]
fn an_option_that_needs_another_one_is_named() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    fs::create_dir(s.path("dir")).unwrap();
    for (options, expected) in [
        (
            "placement=reserve,reserve_files=all,reserve_retrain",
            "medfs mount: reserve_retrain has no effect without placement=reserve,reserve_files=tree\n",
        ),
        ("durability_age=5s", "medfs mount: durability_age has no effect without durability=adaptive\n"),
        ("nvram_threshold=50", "medfs mount: nvram_threshold has no effect without nvram=PATH\n"),
        ("reserve_files=all", "medfs mount: reserve_files has no effect without placement=reserve\n"),
        ("reserve_files=all,placement=reserve", ""),
    ] {
        let mut mount = medfs();
        mount.args(["mount", "-o", options]).arg(s.image()).arg(s.path("dir"));
        mount.assert().success().stderr(expected);
        medfs().arg("umount").arg(s.path("dir")).assert().success();
    }
}

#[test]
fn a_disk_too_small_for_the_image_is_told_at_once() {
    let s = Scratch::new();
    let disk = rustix::fs::statvfs(s.path(".")).unwrap();
    let size = disk.f_bavail * disk.f_frsize + (1 << 30);
    let mkfs = |size: u64| {
        let mut mkfs = medfs();
        mkfs.args(["mkfs", "--force", "--size", &size.to_string()]).arg(s.image());
        let assert = mkfs.assert();
        assert.success().get_output().stderr.clone()
    };
    assert_eq!(mkfs(64 << 20), b"");
    if size > 15 << 40 {
        eprintln!("SKIPPED: the disk is larger than a volume can be");
        return;
    }
    let text = String::from_utf8(mkfs(size)).unwrap();
    assert!(text.starts_with("medfs mkfs: warning: ") && text.lines().count() == 1, "{text}");
    assert!(text.contains(" may grow to ") && text.contains("once the disk is full"), "{text}");
}

#[test]
fn a_mount_begins_with_what_its_owner_wants_to_know() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    fs::create_dir(s.path("dir")).unwrap();
    let stat = |options: &str| {
        medfs().args(["mount", "-o", options]).arg(s.image()).arg(s.path("dir")).assert().success();
        let file = File::options().create(true).append(true).open(s.path("dir/file")).unwrap();
        let mut line = vec![b'x'; 9000];
        for _ in 0..20 {
            (&file).write_all(&line).unwrap();
            file.sync_all().unwrap();
            line = b"a line\n".to_vec();
        }
        drop(file);
        let text = output(&["stat"], &[&s.path("dir")]);
        let of_file = error(1, medfs().arg("stat").arg(s.path("dir/file")));
        let file = s.path("dir/file").display().to_string();
        assert_eq!(
            of_file,
            format!(
                "medfs stat: {file} is a file of a mounted volume: 'medfs stat --file {file}' shows it\n"
            )
        );
        medfs().arg("umount").arg(s.path("dir")).assert().success();
        text
    };
    let text = stat("rw");
    let first: Vec<&str> = text.lines().skip(1).take(3).map(|line| &line[2..22]).collect();
    assert_eq!(first, ["written to the card ", "saved by deltas     ", "lifetime of the card"], "{text}");
    assert!(text.contains("deltas made") && !text.contains("pages compressed alone"), "{text}");
    let text = stat("delta=off");
    assert!(!text.contains("saved by deltas") && !text.contains("deltas made"), "{text}");
}

/// The program as a terminal starts it: a job in the background of a shell ignores SIGINT, and so would all that it
/// starts.
fn with_interrupt(args: &[&str]) -> System {
    let mut command = System::new("env");
    command.arg("--default-signal=INT").arg(binary()).args(args);
    command
}

/// The state that things are in is told, and the process ends by the signal: a shell shows 130.
/// An experiment or a demo that is ended is not silent.
#[test]
fn ctrl_c_says_what_is_left_of_experiments() {
    let s = Scratch::new();
    let made = ["lab", "demo"].map(|name| s.path(name));
    let [lab, demo] = made.each_ref().map(|path| path.display().to_string());
    let demo = ["demo", "--no-mount", "--transactions", "1000000", "--keep", &demo];
    let lab_run = ["lab", "run", "all", "--scale", "1", "--out", &lab];
    let said = ["medfs lab: interrupted: ", "medfs demo: interrupted: "];
    for ((args, expected), made) in [&lab_run[..], &demo[..]].into_iter().zip(said).zip(&made) {
        let mut child = with_interrupt(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // On a busy machine it may take long until it listens.
        (0..300).take_while(|_| !made.exists()).for_each(|_| std::thread::sleep(Duration::from_millis(100)));
        std::thread::sleep(Duration::from_secs(1));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut text).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn ctrl_c_says_what_is_left() {
    let s = Scratch::new();
    let image = s.image().display().to_string();
    let mut mkfs = with_interrupt(&["mkfs", "-q", "--size", "64M", "--from", "-", &image]);
    let mut mkfs = mkfs.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The header of a file of 8 MiB in a tar archive, and a part of its content: more is waited for.
    let mut header = tar::Header::new_gnu();
    header.set_path("file").unwrap();
    header.set_size(8 << 20);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    let mut input = mkfs.stdin.take().unwrap();
    input.write_all(header.as_bytes()).unwrap();
    input.write_all(&[1; 1 << 20]).unwrap();
    let start = Instant::now();
    while !s.image().exists() {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(100));
    kill_process(Pid::from_child(&mkfs), Signal::INT).unwrap();
    let ended = mkfs.wait_with_output().unwrap();
    assert_eq!(ended.status.signal(), Some(2));
    let expected = format!("medfs mkfs: interrupted: {} was removed\n", s.image().display());
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), expected);
    assert!(!s.image().exists());
}
