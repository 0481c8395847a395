//! `medfs ars`: a tree is learned from a log of system calls, shown, and kept on a volume.

use crate::common::{Scratch, can_mount, error, medfs, output};
use serde_json::Value;
use std::fmt::Write;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Databases that are written at random and synced, each page once; and pictures that are written once.
fn script() -> String {
    let mut script = String::new();
    let mut micros = 0;
    let mut call = |text: String| {
        micros += 50_000;
        writeln!(script, "1 {micros} {text}").unwrap();
    };
    for file in 0..30u64 {
        let database = file % 3 == 0;
        let ending = if database { "bin" } else { "png" };
        call(format!("open \"/app/{file}.{ending}\" O_RDWR|O_CREAT {file}"));
        match database {
            true => (0..128u64).for_each(|n| {
                call(format!("pwrite {file} {} 4096", (n * 37 + file) % 128 * 4096));
                call(format!("fsync {file}"));
            }),
            false => call(format!("pwrite {file} 0 65536")),
        }
        call(format!("close {file}"));
    }
    script
}

fn trace(s: &Scratch) -> PathBuf {
    let (log, trace) = (s.path("log"), s.path("trace"));
    fs::write(&log, script()).unwrap();
    medfs().args(["trace", "import", "mobibench", "--out"]).args([&trace, &log]).assert().success();
    trace
}

#[test]
fn a_tree_is_learned_shown_and_kept_on_a_volume() {
    let s = Scratch::with_volume("64M");
    let (trace, tree) = (trace(&s), s.path("tree"));
    let learned = output(&["ars", "train", "--json", "--size", "1G", "-o"], &[&tree, &trace]);
    let learned: Value = serde_json::from_str(&learned).unwrap();
    assert_eq!((&learned["files"], &learned["files_to_reserve"]), (&30.into(), &10.into()), "{learned}");
    assert_eq!(learned["score"]["accuracy"], 1.0, "{learned}");
    assert!(learned["score"]["accuracy_of_reserving_nothing"].as_f64() < Some(0.9), "{learned}");

    let trained = output(&["ars", "train", "--force", "--size", "1G", "-o"], &[&tree, &trace]);
    assert!(
        trained.contains("for files held back, at the moments at which a volume judges a file"),
        "{trained}"
    );
    let text = output(&["ars", "explain", "--size", "1G"], &[&tree, &trace]);
    assert!(text.contains("for these files, at the end of each"), "{text}");
    assert!(text.contains("<=") && text.contains("yes: log, 100% sure"), "{text}");
    let row =
        text.lines().find(|line| line.trim_start().starts_with("27.bin")).unwrap_or_else(|| panic!("{text}"));
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((cells[1], cells[2], cells[4], cells[6]), ("128", "128", "reserve", "reserve"), "{row}");
    assert!(cells[3].parse::<u64>().unwrap() > 50, "{row}");
    let explained: Value = serde_json::from_str(&output(&["ars", "explain", "--json"], &[&tree])).unwrap();
    assert_eq!(explained["nodes"], learned["nodes"]);

    let image = s.image();
    let shown = |flags: &[&str]| output(&[&["ars", "show"], flags].concat(), &[&image]);
    assert!(
        shown(&[]).contains(": none of its own: the built-in decision tree\n\nfsyncs <= 2?"),
        "{}",
        shown(&[])
    );
    let loaded = output(&["ars", "load"], &[&tree, &image]);
    assert!(loaded.contains("has a decision tree of 3 nodes now"), "{loaded}");
    assert!(shown(&[]).contains(": a decision tree of its own\n\n"), "{}", shown(&[]));
    let json: Value = serde_json::from_str(&shown(&["--json"])).unwrap();
    assert_eq!((&json["is_own"], &json["nodes"]), (&true.into(), &learned["nodes"]), "{json}");
    let kept = fs::read(&tree).unwrap();
    assert!(
        fs::read(&image).unwrap().windows(kept.len()).any(|bytes| bytes == kept),
        "the volume holds the tree"
    );
    medfs().args(["fsck"]).arg(&image).assert().success();
    medfs().args(["ars", "load", "built-in"]).arg(&image).assert().success();
}

#[test]
fn what_is_no_tree_and_what_has_no_writes_is_said() {
    let s = Scratch::with_volume("64M");
    let (log, trace, tree) = (s.path("log"), s.path("trace"), s.path("tree"));
    fs::write(&log, "1 1 stat \"/app\"\n").unwrap();
    medfs().args(["trace", "import", "mobibench", "--out"]).args([&trace, &log]).assert().success();
    let text = error(1, medfs().args(["ars", "train", "--size", "256M", "-o"]).args([&tree, &trace]));
    assert!(text.contains("writes no file") && !tree.exists(), "{text}");
    fs::write(&tree, "words").unwrap();
    let text = error(1, medfs().args(["ars", "train", "-o"]).args([&tree, &trace]));
    assert!(text.contains("exists: use --force"), "{text}");
    let image = s.image();
    let text = error(1, medfs().args(["ars", "load"]).args([&tree, &image]));
    assert!(text.contains("not a decision tree") && text.contains("magic"), "{text}");
    let folder = s.path("folder");
    fs::create_dir(&folder).unwrap();
    let text = error(1, medfs().args(["ars", "load", "built-in"]).arg(&folder));
    assert!(text.contains("is not the mount point of a medfs volume"), "{text}");
}

/// Unmounts at the end, whatever happened.
pub(crate) struct Mounted(PathBuf);

/// The volume of a scratch directory, mounted at `mnt` in it, and what the mount said.
pub(crate) fn mounted(s: &Scratch, options: &str) -> (Mounted, String) {
    let mounted = Mounted(s.path("mnt"));
    fs::create_dir(&mounted.0).unwrap();
    let mount = medfs().args(["mount", "-o", options]).args([&s.image(), &mounted.0]).assert().success();
    (mounted, String::from_utf8(mount.get_output().stderr.clone()).unwrap())
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_file_of_a_mount_is_explained() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("256M");
    let (dir, image) = (s.path("mnt"), s.image());
    let (mounted, _) = mounted(&s, "placement=reserve,delta=off");
    let path = dir.join("scattered");
    let file = File::create(&path).unwrap();
    for n in 0..256u64 {
        file.write_all_at(&[n as u8 | 1; 4096], n * 37 % 256 * 4096).unwrap();
        file.sync_data().unwrap();
    }
    let json = output(&["stat", "--file", "--json"], &[&path]);
    let text = output(&["stat", "--file"], &[&path]);
    let same = [output(&["ars", "explain"], &[&path]), output(&["ars", "explain", "--json"], &[&path])];
    let kept = dir.join("tree");
    fs::write(&kept, medfs::ars::built_in().to_bytes()).unwrap();
    let tree = output(&["ars", "explain"], &[&kept]);
    let few = dir.join("scattered2");
    fs::write(&few, [7; 8192]).unwrap();
    File::open(&few).unwrap().sync_all().unwrap();
    let kin = output(&["ars", "explain"], &[&few]);
    let root = output(&["stat", "--file"], &[&dir]);
    let budget = output(&["stat"], &[&dir]);
    let shown = output(&["ars", "show"], &[&dir]);
    drop(file);
    medfs().arg("umount").arg(&dir).assert().success();
    // For all files: what the tree says decides nothing.
    let options = ["mount", "-o", "placement=reserve,reserve_files=all,delta=off"];
    medfs().args(options).args([&image, &dir]).assert().success();
    fs::write(dir.join("once"), vec![7; 1 << 20]).unwrap();
    medfs().arg("sync").arg(&dir).assert().success();
    let all = output(&["stat", "--file"], &[&dir.join("once")]);
    let file = File::open(&path).unwrap();
    medfs().args(["ars", "load", "built-in"]).arg(&dir).assert().success();
    drop(file);
    medfs().arg("umount").arg(&dir).assert().success();
    drop(mounted);
    let stat: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&stat["format"], &stat["size_bytes"], &stat["pages"]),
        (&1.into(), &(1 << 20).into(), &256.into()),
        "{stat}"
    );
    assert_eq!(same, [text.clone(), json.clone()]);
    assert!(tree.contains("fsyncs <= 2?"), "{tree}");
    for line in ["kin         log: most earlier files", "pages go    to log, as its kin does"] {
        assert!(kin.contains(line), "{line}: {kin}");
    }
    let judged = &stat["judged"];
    assert_eq!((&judged["placed_by"], &judged["kin"]), (&"tree".into(), &"reserve".into()), "{stat}");
    assert_eq!(judged["reserved_sections"].as_array().unwrap().len(), 1, "{stat}");
    assert_eq!((&judged["class"], &judged["said"]), (&"reserve".into(), &"reserve".into()), "{stat}");
    assert_eq!(judged["features"]["writes"], 256, "{stat}");
    assert!(judged["path"].as_array().unwrap().len() > 1, "{stat}");
    assert!(stat["extents"].as_u64() < Some(140), "the last three quarters are at home: {stat}");
    assert!(budget.contains("in idle time: at most 64 MiB a day"), "{budget}");
    assert!(shown.contains("mnt: none of its own: the built-in decision tree"), "{shown}");
    let costs: Vec<&str> =
        judged["costs"].as_array().unwrap().iter().map(|cost| cost["class"].as_str().unwrap()).collect();
    assert_eq!(
        (costs, &judged["goal"], &judged["deltas"]),
        (vec!["log", "reserve"], &"wear".into(), &false.into())
    );
    for line in [
        "an fsync    log            2.0 blocks,",
        "reserve        2.0 blocks,",
        "goal=wear decides",
        "256 pages in",
        "writes 256",
        "tree says   reserve",
        "pages go    to reserve",
        "reserved    1 section",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    for line in [
        "tree says   log, 90% sure, but is not asked\n",
        "pages go    to reserve, as the mount options say for all files\n",
        "reserved    1 section\n",
    ] {
        assert!(all.contains(line), "{line}: {all}");
    }
    assert!(root.contains("not since the mount"), "{root}");
    let fifo = s.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let text = error(1, medfs().args(["ars", "explain"]).arg(&fifo));
    assert!(text.contains("no regular file"), "it is not waited for: {text}");
    let text = error(1, medfs().args(["stat", "--file"]).arg(&image));
    assert!(text.contains("not on a mounted medfs volume"), "{text}");
}

/// Files that are written at random, and files that are appended to: the built-in tree takes all of them for
/// files that will fragment.
#[test]
fn the_tree_of_a_mount_is_trained_on_what_was_written_there() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("256M");
    let (dir, image) = (s.path("mnt"), s.image());
    let (mounted, _) = mounted(&s, "placement=reserve,delta=off");
    let few = output(&["ars", "retrain"], &[&dir]);
    for n in 0..40u64 {
        let file = File::create(dir.join(format!("{n}.bin"))).unwrap();
        let (writes, step) = if n % 2 == 0 { (102, 37) } else { (64, 1) };
        for at in 0..writes {
            file.write_all_at(&[n as u8 | 1; 4096], at * step % writes * 4096).unwrap();
            file.sync_data().unwrap();
        }
    }
    let growing = output(&["ars", "retrain"], &[&dir]);
    (0..40u64).filter(|n| n % 2 == 1).for_each(|n| fs::remove_file(dir.join(format!("{n}.bin"))).unwrap());
    let json: Value = serde_json::from_str(&output(&["ars", "retrain", "--json"], &[&dir])).unwrap();
    let text = output(&["ars", "retrain"], &[&dir]);
    medfs().arg("umount").arg(&dir).assert().success();
    medfs().args(["mount"]).args([&image, &dir]).assert().success();
    let untrained = error(1, medfs().args(["ars", "retrain"]).arg(&dir));
    medfs().arg("umount").arg(&dir).assert().success();
    drop(mounted);
    let known = |files| {
        format!("what became of {files} files is known since the mount, and 40 are needed: the tree stays\n")
    };
    assert_eq!(few, known(0));
    assert_eq!(growing, known(20), "what is there may still be written a lot");
    assert_eq!((&json["files"], &json["adopted"]), (&40.into(), &true.into()), "{json}");
    assert_eq!(json["accuracies"]["new"], 1.0, "{json}");
    assert!(json["accuracies"]["in_force"].as_f64() < Some(0.9), "{json}");
    assert_eq!(
        text,
        "Of 40 files, the new tree is right about 100.0% of what was held back, the one in use about 100.0%: that one stays\n"
    );
    assert!(untrained.contains("mount with placement=reserve,reserve_files=tree"), "{untrained}");
    medfs().args(["fsck"]).arg(&image).assert().success();
}
