//! The daemon: mounting, unmounting, signals, kills, fstab's helper. Needs root and /dev/fuse; skipped aloud without.

use crate::common::*;
use medfs_device::{BlockDevice, Cause, FileDevice, FileOptions, Temperature, WriteTag, read_block};
use medfs_format::superblock::RawSuperblock;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as System, Stdio};
use std::time::{Duration, Instant};

/// Unmounts at the end, whatever happened.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = System::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

fn mount(s: &Scratch, options: &str) -> Mounted {
    let dir = s.path("mnt");
    fs::create_dir_all(&dir).unwrap();
    medfs().args(["mount", "-o", options]).arg(s.image()).arg(&dir).assert().success();
    Mounted(dir)
}

/// A daemon in the foreground, whose process is ours to end.
fn foreground(s: &Scratch) -> (Child, Mounted) {
    let dir = s.path("mnt");
    fs::create_dir_all(&dir).unwrap();
    let child =
        System::new(binary()).args(["mount", "--foreground"]).arg(s.image()).arg(&dir).spawn().unwrap();
    let start = Instant::now();
    while !fs::read_to_string("/proc/self/mounts")
        .unwrap()
        .contains(&*dir.canonicalize().unwrap().to_string_lossy())
    {
        assert!(start.elapsed() < Duration::from_secs(20), "not mounted");
        std::thread::sleep(Duration::from_millis(10));
    }
    (child, Mounted(dir))
}

fn fsync_file(path: &Path, content: &str) {
    let mut file = File::create(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn mount_use_sync_stat_unmount() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("256M");
    let m = mount(&s, "noatime");
    make_tree(&m.0.join("tree"));
    make_tree(&s.path("tree"));
    medfs().arg("sync").arg(&m.0).assert().success();
    let json: serde_json::Value = serde_json::from_str(&output(&["stat", "--json"], &[&m.0])).unwrap();
    assert!(json["written"]["data"].as_u64().unwrap() > 2000, "{json}");
    assert!(output(&["stat"], &[&m.0]).contains("written data"));
    let text = error(32, medfs().arg("mount").arg(s.image()).arg(s.path("tree")));
    assert!(text.contains("is in use"), "{text}");
    let text = output(&["stat"], &[&s.image()]);
    let dir = m.0.canonicalize().unwrap().display().to_string();
    assert!(text.contains(&format!("  state       mounted on {dir}\n")), "{text}");
    let now =
        format!("These numbers are as of the last checkpoint. 'medfs stat {dir}' shows the current ones.\n");
    assert!(text.ends_with(&now), "{text}");
    let json: serde_json::Value = serde_json::from_str(&output(&["stat", "--json"], &[&s.image()])).unwrap();
    assert_eq!(json["mounted_on"], *dir);

    let busy = File::open(m.0.join("tree/tiny")).unwrap();
    let text = error(32, medfs().arg("umount").arg(&m.0));
    assert!(text.contains("is in use by ") && text.contains("close its files"), "{text}");
    drop(busy);
    medfs().arg("umount").arg(&m.0).assert().success();
    // The image is complete when the command returns.
    assert!(output(&["stat"], &[&s.image()]).contains("last checkpoint written at unmount"));
    assert_clean(&s.image());
    medfs().args(["get", "-r"]).arg(s.image()).arg("/tree").arg(s.path("back")).assert().success();
    assert_eq!(describe(&s.path("back")).len(), describe(&s.path("tree")).len());
    assert_eq!(fs::read(s.path("back/sub/big")).unwrap(), fs::read(s.path("tree/sub/big")).unwrap());
}

#[test]
fn sigterm_leaves_a_clean_checkpoint() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let (mut daemon, m) = foreground(&s);
    fs::write(m.0.join("not fsynced"), "written all the same").unwrap();
    let pid = rustix::process::Pid::from_raw(daemon.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert!(output(&["stat"], &[&s.image()]).contains("last checkpoint written at unmount"));
    assert_eq!(
        output(&["get"], &[&s.image(), Path::new("/not fsynced"), Path::new("-")]),
        "written all the same"
    );
    assert_clean(&s.image());
}

#[test]
fn sigkill_loses_nothing_that_was_fsynced() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let (mut daemon, m) = foreground(&s);
    fsync_file(&m.0.join("kept"), "durable");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    drop(m);
    medfs().arg("fsck").arg("--repair").arg(s.image()).assert().code(1);
    assert_eq!(output(&["get"], &[&s.image(), Path::new("/kept"), Path::new("-")]), "durable");
    assert_clean(&s.image());
}

/// A volume of which a kernel, or a repair that left errors, says that it wants a check.
#[test]
fn a_mount_says_that_the_volume_is_marked_as_damaged() {
    use medfs_format::checkpoint::{self, RawCheckpoint};
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let dir = s.path("mnt");
    fs::create_dir_all(&dir).unwrap();
    let mounted = |marked: bool| {
        let assert = medfs().arg("mount").arg(s.image()).arg(&dir).assert().success();
        let m = Mounted(dir.clone());
        let text = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        medfs().arg("umount").arg(&m.0).assert().success();
        let told =
            text.lines().filter(|line| line.contains("marked as damaged; run 'medfs fsck' on it")).count();
        assert_eq!(told, usize::from(marked), "{text}");
    };
    mounted(false);
    let dev = FileDevice::open(s.image(), FileOptions::default()).unwrap();
    let start = u64::from(RawSuperblock::in_block(&read_block(&dev, 0).unwrap()).cp_blkaddr.get());
    for pack in [start, start + 512] {
        let mut block = read_block(&dev, pack).unwrap();
        let cp = RawCheckpoint::in_block_mut(&mut block);
        let last = pack + u64::from(cp.cp_pack_total_block_count.get()) - 1;
        cp.ckpt_flags = (cp.ckpt_flags.get() | 0x10).into();
        checkpoint::seal(&mut block);
        let tag = WriteTag::new(Cause::Meta, Temperature::Hot);
        [pack, last].into_iter().for_each(|addr| dev.write(addr, &[&block], tag).unwrap());
    }
    drop(dev);
    // The checkpoint of an unmount keeps the mark.
    mounted(true);
    mounted(true);
    let found = medfs().arg("fsck").arg(s.image()).assert().code(4);
    assert!(String::from_utf8_lossy(&found.get_output().stdout).contains("F0209"));
    medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
    mounted(false);
}

#[test]
fn an_image_that_was_cut_short_under_its_mount_is_told_of() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let mounted = mount(&s, "delta=full");
    fs::write(s.path("mnt/file"), "content").unwrap();
    File::options().write(true).open(s.image()).unwrap().set_len(60 << 20).unwrap();
    let text = error(32, medfs().arg("umount").arg(s.path("mnt")));
    drop(mounted);
    let expected = format!(
        "{} became shorter while it was mounted: the last 4 MiB are missing\n",
        s.image().canonicalize().unwrap().display()
    );
    assert!(text.ends_with(&expected), "{text}");
}

#[test]
fn stat_shows_one_mode() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let mounted = mount(&s, "delta=full");
    let remount =
        medfs().args(["mount", "-o", "remount,ro"]).arg(s.image()).arg(s.path("mnt")).output().unwrap();
    let text = output(&["stat"], &[&s.path("mnt")]);
    drop(mounted);
    assert!(remount.status.success(), "{remount:?}");
    assert!(
        text.contains("read-only\n") && text.contains("    ro, ") && !text.contains("    rw, "),
        "{text}"
    );
}

#[test]
fn read_only_mounts() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let before = fs::read(s.image()).unwrap();
    let m = mount(&s, "ro");
    assert_eq!(File::create(m.0.join("x")).unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    medfs().arg("umount").arg(&m.0).assert().success();
    assert!(before == fs::read(s.image()).unwrap(), "a read-only mount changed the image");
}

#[test]
fn a_mount_says_what_becomes_of_deltas() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let dir = s.path("mnt");
    fs::create_dir_all(&dir).unwrap();
    let _m = Mounted(dir.clone());
    let says = |options: &str, wanted: &str| {
        let assert = medfs().args(["mount", "-o", options]).arg(s.image()).arg(&dir).assert().success();
        let text = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert_eq!(text.lines().count(), usize::from(!wanted.is_empty()), "{options}: {text}");
        assert!(text.contains(wanted), "{options}: {text}");
    };
    let unmount = || {
        medfs().arg("umount").arg(&dir).assert().success();
    };
    interrupted_import(&s.image());
    says(
        "rw",
        "was interrupted; the files that it had not reached take no deltas until 'medfs import' ends it",
    );
    unmount();
    medfs().arg("import").arg(s.image()).assert().success();
    says("delta=inline", "");
    let path = dir.join("file");
    fsync_file(&path, &"a page that stays as it is, but for some bytes. ".repeat(200));
    medfs().arg("sync").arg(&dir).assert().success();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"DELTA", 100).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let stat = output(&["stat"], &[&dir]);
    let (_, ratio) = stat.split_once("deltas compression ratio").expect(&stat);
    let percent: f64 = ratio.split_whitespace().next().unwrap().parse().unwrap();
    assert!((95.0..100.0).contains(&percent), "{stat}");
    let json: serde_json::Value = serde_json::from_str(&output(&["stat", "--json"], &[&dir])).unwrap();
    let derived = json["derived"]["delta_compression_ratio"].as_f64().unwrap() * 100.0;
    assert!((derived - percent).abs() < 0.1, "{json}");
    assert!(stat.lines().all(|line| line.chars().count() <= 80 || line.starts_with('/')), "{stat}");
    unmount();
    assert_clean(&s.image());

    medfs().arg("export").arg(s.image()).assert().success();
    for options in ["noatime", "delta=off", "delta=inline,delta=off"] {
        says(options, "");
        unmount();
    }
    says("delta=inline", "is plain F2FS and takes no deltas");
    unmount();
    says("compress=fpc", "is plain F2FS, where compress=fpc compresses no page");
    assert_eq!(&fs::read(&path).unwrap()[100..105], b"DELTA");
    unmount();

    medfs().arg("import").arg(s.image()).assert().success();
    let dev = FileDevice::open(s.image(), FileOptions::default()).unwrap();
    for copy in 0..2 {
        let mut block = read_block(&dev, copy).unwrap();
        let sb = RawSuperblock::in_block_mut(&mut block);
        sb.delta.ro_compat = 1.into();
        sb.seal();
        dev.write(copy, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold)).unwrap();
    }
    drop(dev);
    let assert = medfs().arg("mount").arg(s.image()).arg(&dir).assert().success();
    let text = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(text.contains("only a newer medfs can write: mounted read-only"), "{text}");
    assert_eq!(File::create(dir.join("x")).unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    unmount();
}

#[test]
fn mount8_and_a_loop_device() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let attach = |flags: &[&str]| {
        let output =
            System::new("losetup").args(flags).args(["--show", "-f"]).arg(s.image()).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    let detach = |device: &str| System::new("losetup").arg("-d").arg(device).status().unwrap();
    let Some(device) = attach(&[]) else {
        eprintln!("SKIPPED: no loop devices here");
        return;
    };
    let dir = s.path("mnt");
    fs::create_dir_all(&dir).unwrap();
    let m = Mounted(dir.clone());
    let mut helper = System::new(binary());
    helper.arg0("/sbin/mount.medfs").arg(&device).arg(&dir).args([
        "-n",
        "-o",
        "rw,nofail,_netdev,nosuid,noatime",
    ]);
    assert!(helper.status().unwrap().success());
    let text = error(1, medfs().args(["mkfs", "-f"]).arg(&device));
    assert!(text.contains("is in use"), "{text}");
    fs::write(dir.join("file"), "on a block device").unwrap();
    // Of a fuseblk mount the kernel's own syncfs reaches the volume.
    assert!(System::new("sync").arg("-f").arg(&dir).status().unwrap().success());
    medfs().arg("umount").arg(&dir).assert().success();
    drop(m);
    assert_eq!(
        output(&["get"], &[Path::new(&device), Path::new("/file"), Path::new("-")]),
        "on a block device"
    );
    detach(&device);
    assert_clean(&s.image());

    let device = attach(&["-r"]).unwrap();
    let text = error(1, medfs().args(["mkfs", "-f"]).arg(&device));
    assert!(text.contains(&device) && text.lines().count() == 1, "{text}");
    let _mounted = Mounted(dir.clone());
    let assert = medfs().arg("mount").arg(&device).arg(&dir).assert().success();
    assert!(
        String::from_utf8_lossy(&assert.get_output().stderr).contains("write-protected: mounted read-only")
    );
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "on a block device");
    medfs().arg("umount").arg(&dir).assert().success();
    detach(&device);
}

/// What the demo prints as JSON.
fn demo(args: &[&str]) -> serde_json::Value {
    let assert = medfs().args(["demo", "--size", "512M", "--json"]).args(args).assert().success();
    serde_json::from_slice(&assert.get_output().stdout).unwrap()
}

#[test]
fn the_demo_loses_nothing() {
    for mode in [&[][..], &["--no-mount"]] {
        let json = demo(&[&["--transactions", "40"], mode].concat());
        let runs = json["runs"].as_array().unwrap();
        for run in runs {
            assert_eq!(run["crash"]["lost"], 0);
            assert_eq!(run["crash"]["integrity"], "ok");
            assert_eq!(run["crash"]["fsck_clean"], true);
            let written = &run["written_blocks"];
            let sum: u64 =
                ["data", "node", "compact", "meta", "gc"].iter().map(|c| written[c].as_u64().unwrap()).sum();
            assert_eq!(sum * 4096, run["written_bytes"].as_u64().unwrap());
            assert!(run["processor_seconds"].as_f64().unwrap() > 0.0);
        }
        let number = |run: usize, field: &str| runs[run][field].as_u64().unwrap();
        for first in (0..runs.len()).step_by(2) {
            assert_eq!(number(first, "delta_pages"), 0);
            assert!(number(first + 1, "delta_pages") > 20);
            assert!(number(first + 1, "written_bytes") < number(first, "written_bytes"));
            assert!(json["lifetime"]["runs"][first + 1]["saving_percent"].as_f64().unwrap() > 0.0);
            assert!(json["lifetime"]["runs"][first]["years"].as_f64().unwrap() > 0.0);
        }
        assert_eq!(json["format"], 1);
    }
}

#[test]
fn the_demo_shows_journal_modes_as_people_use_them_and_repeats() {
    if !can_mount() {
        return;
    }
    let runs = || {
        let json = demo(&["--transactions", "200"]);
        json["runs"].as_array().unwrap().clone()
    };
    let (first, second) = (runs(), runs());
    let bytes = |run: &serde_json::Value| run["written_bytes"].as_f64().unwrap();
    let modes: Vec<_> = first.iter().map(|run| run["journal_mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["delete", "delete", "wal", "wal"]);
    // A journal that is made and removed by each transaction costs its directory and inode too.
    let saved = 1.0 - bytes(&first[1]) / bytes(&first[0]);
    assert!(saved > 0.7, "DELETE saves {saved}");
    // An fsync within a tick of the last one has no new time to write, and a deleted journal that a busy
    // kernel has not forgotten when the next checkpoint is made costs its inode's block again; a file that is
    // closed sooner or later, a few blocks of its deltas.
    let by_the_kernel = |run: &serde_json::Value| {
        let deletes = run["journal_mode"] == "delete" && run["configuration"] == "plain F2FS";
        if deletes { run["transactions"].as_f64().unwrap() * 2.0 * 4096.0 } else { 16.0 * 4096.0 }
    };
    let flushes = |run: &serde_json::Value| run["flushes"].as_i64().unwrap();
    for (first, second) in first.iter().zip(&second) {
        let change = (bytes(first) - bytes(second)).abs();
        assert!(change < 0.01 * bytes(first) + by_the_kernel(first), "{change}: {first} {second}");
        assert!((flushes(first) - flushes(second)).abs() <= 8, "{first} {second}");
    }
}

/// An owner who goes on writing to a damaged volume learned of it from the log alone, which had the colours of a
/// terminal.
#[test]
fn a_mounted_volume_says_that_operations_failed_on_damage() {
    if !can_mount() {
        return;
    }
    let s = crate::damaged::volume();
    for block in crate::damaged::blocks(&s.image(), |block| crate::damaged::is_inode(block, "c")) {
        crate::boot::patch(&s.image(), block, 0, &[0; 4096]);
    }
    let dir = s.path("mnt");
    fs::create_dir_all(&dir).unwrap();
    let log = s.path("log");
    medfs().args(["mount", "--log"]).args([&log, &s.image(), &dir]).assert().success();
    let mounted = Mounted(dir.clone());
    let stat = || String::from_utf8(medfs().arg("stat").arg(&dir).output().unwrap().stdout).unwrap();
    assert!(!stat().contains("failed on damage"));
    assert_eq!(fs::read(dir.join("c")).unwrap_err().raw_os_error(), Some(117));
    let text = stat();
    assert!(text.contains("failed on damage: 'medfs help damaged' says what to do"), "{text}");
    drop(mounted);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("an operation on a file failed") && !log.contains('\x1b'), "{log}");
}
