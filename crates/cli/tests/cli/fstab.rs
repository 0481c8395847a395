//! What `mount(8)` and fstab ask: options written for the kernel's f2fs, and remounting. Needs root and
//! /dev/fuse; skipped aloud without.

use crate::common::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command as System, Stdio};

/// Unmounts at the end, whatever happened.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = System::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

fn mountpoint(s: &Scratch) -> Mounted {
    let dir = s.path("mnt");
    fs::create_dir_all(&dir).unwrap();
    Mounted(dir)
}

/// What mounting printed on standard error.
fn mount(source: &Path, dir: &Path, options: &str) -> String {
    let assert = medfs().args(["mount", "-o", options]).arg(source).arg(dir).assert().success();
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

#[test]
fn options_of_the_kernels_f2fs_are_taken_and_named_in_one_line() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let m = mountpoint(&s);
    let options = "rw,noatime,nofail,_netdev,user,x-systemd.automount,discard,background_gc=sync,active_logs=6,fsync_mode=posix,\
         atgc,errors=remount-ro,nobarrier,reserve_root=32768,resuid=0,lazytime,usrquota";
    let text = mount(&s.image(), &m.0, options);
    let named = "atgc, nobarrier, reserve_root=32768, resuid=0, usrquota\n";
    assert!(text.lines().count() == 1 && text.ends_with(named), "{text}");
    medfs().arg("umount").arg(&m.0).assert().success();
    assert_eq!(mount(&s.image(), &m.0, "defaults,noatime"), "");
    medfs().arg("umount").arg(&m.0).assert().success();
    let text = error(1, medfs().args(["mount", "-o", "atgc,frobnicate"]).arg(s.image()).arg(&m.0));
    assert!(text.contains("'frobnicate'"), "{text}");
}

/// The names in the root of a volume as power loss at this moment would leave it.
fn after_power_loss(s: &Scratch) -> String {
    let copy = s.path("copy");
    let copied = System::new("cp").arg("--sparse=always").arg(s.image()).arg(&copy).status().unwrap();
    assert!(copied.success());
    let names = output(&["ls"], &[&copy, Path::new("/")]);
    fs::remove_file(copy).unwrap();
    names
}

/// `remount` as `remount("ro")`: makes a mount read-only and writable again, and looks at what that does.
fn check_remounts(s: &Scratch, dir: &Path, remount: impl Fn(&str) -> bool) {
    fs::write(dir.join("before"), "written before").unwrap();
    assert!(!after_power_loss(s).contains("before"), "it is durable already");
    assert!(remount("ro"));
    assert!(after_power_loss(s).contains("before"), "a remount leaves what is not durable");
    let refused = fs::write(dir.join("while"), "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read_to_string(dir.join("before")).unwrap(), "written before");
    assert!(remount("rw"));
    fs::write(dir.join("after"), "").unwrap();
    let busy = fs::File::create(dir.join("busy")).unwrap();
    assert!(!remount("ro"), "a file is open for writing");
    drop(busy);
    medfs().arg("umount").arg(dir).assert().success();
    let names = output(&["ls"], &[&s.image(), Path::new("/")]);
    assert!(["before", "after", "busy"].iter().all(|name| names.contains(name)), "{names}");
    assert_clean(&s.image());
}

#[test]
fn a_remount_of_a_block_device_makes_durable_what_was_written() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let out = System::new("losetup").args(["--show", "-f"]).arg(s.image()).output().unwrap();
    if !out.status.success() {
        return eprintln!("SKIPPED: no loop devices here");
    }
    let device = PathBuf::from(String::from_utf8(out.stdout).unwrap().trim());
    let m = mountpoint(&s);
    mount(&device, &m.0, "noatime");
    let remount = |flag: &str| {
        System::new("mount")
            .arg("-o")
            .arg(format!("remount,{flag}"))
            .arg(&m.0)
            .output()
            .unwrap()
            .status
            .success()
    };
    check_remounts(&s, &m.0, remount);
    System::new("losetup").arg("-d").arg(&device).status().unwrap();
}

#[test]
fn a_remount_of_an_image_makes_durable_what_was_written() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let m = mountpoint(&s);
    mount(&s.image(), &m.0, "noatime");
    // As mount(8) calls it, through mount.fuse(8).
    let remount = |flag: &str| {
        let options = format!("{flag},noatime,remount,user_id=0,group_id=0,default_permissions");
        let mut call = System::new(binary());
        call.arg(s.image()).arg(&m.0).args(["-o", &options, "-t", "fuse.medfs"]);
        call.output().unwrap().status.success()
    };
    check_remounts(&s, &m.0, remount);
}

#[test]
fn a_read_only_mount_is_not_remounted_to_write() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let m = mountpoint(&s);
    mount(&s.image(), &m.0, "ro");
    let mut call = medfs();
    call.arg(s.image()).arg(&m.0).args(["-o", "rw,remount"]);
    let text = error(32, &mut call);
    assert!(text.contains("was mounted read-only") && text.lines().count() == 1, "{text}");
    let mut call = medfs();
    call.arg(s.image()).arg(&m.0).args(["-o", "ro,remount,frobnicate"]);
    assert!(error(1, &mut call).contains("'frobnicate'"));
    medfs().arg("umount").arg(&m.0).assert().success();
}

#[test]
fn a_remount_names_what_only_a_new_mount_can_change() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let m = mountpoint(&s);
    mount(&s.image(), &m.0, "noatime,cache=32M,threads=3");
    let remount = |options: &str| {
        let mut call = medfs();
        call.arg(s.image()).arg(&m.0).args(["-o", &format!("{options},remount,user_id=0")]);
        call
    };
    let text = error(32, &mut remount("ro,noatime,delta=off,cache=32M,commit=5s,threads=4,nofail,atgc"));
    assert!(text.contains("a remount cannot change delta=off, commit=5s, threads=4: unmount"), "{text}");
    assert_eq!(text.lines().count(), 1);
    fs::write(m.0.join("still writable"), "").unwrap();
    // What is in force, what the kernel carries out, and what changes nothing may be given.
    remount("ro,noatime,cache=32M,threads=3,nosuid,nofail,atgc").assert().success();
    let text = output(&["stat"], &[&m.0]);
    assert!(text.lines().any(|line| line.contains("mode") && line.contains("read-only")), "{text}");
    let json: serde_json::Value = serde_json::from_str(&output(&["stat", "--json"], &[&m.0])).unwrap();
    assert_eq!(json["read_only"], true);
    remount("rw,noatime").assert().success();
    let text = output(&["stat"], &[&m.0]);
    assert!(text.lines().any(|line| line.contains("mode") && line.contains("read-write")), "{text}");
    let text = error(32, &mut remount("rw,strictatime"));
    assert!(text.contains("strictatime"), "{text}");
    medfs().arg("umount").arg(&m.0).assert().success();
}

#[test]
fn an_image_on_a_full_disk_is_told_from_a_dying_card() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let small = s.path("small");
    fs::create_dir(&small).unwrap();
    let tmpfs =
        System::new("mount").args(["-t", "tmpfs", "-o", "size=24M", "tmpfs"]).arg(&small).status().unwrap();
    if !tmpfs.success() {
        return eprintln!("SKIPPED: tmpfs cannot be mounted");
    }
    let _small = Mounted(small.clone());
    let image = small.join("image");
    medfs().args(["mkfs", "-q", "--size", "128M"]).arg(&image).assert().success();
    let noise: Vec<u8> = (0..40_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(s.path("file"), noise).unwrap();
    let text = error(1, medfs().arg("put").args([&image, &s.path("file")]).arg("/"));
    assert!(text.contains("image cannot grow: the disk that holds it is full"), "{text}");
    assert!(!text.contains("on the device"), "{text}");
}
