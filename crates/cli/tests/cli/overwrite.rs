//! `medfs mkfs` overwrites nothing that means something to somebody, makes no files among devices, and gives
//! a user's volume to the user.

use crate::common::*;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command as System;

const SIZE: u64 = 64 << 20;

/// What `medfs mkfs` says of an existing file that it refuses; the file stays as it was.
fn refusal(path: &Path) -> String {
    let before = (fs::metadata(path).unwrap().len(), first_bytes(path));
    for size in [&["--size", "80M"][..], &[]] {
        let text = error(1, medfs().arg("mkfs").args(size).arg(path));
        assert!(text.contains("--force") && text.lines().count() == 1, "{text}");
        assert_eq!((fs::metadata(path).unwrap().len(), first_bytes(path)), before, "{}", path.display());
    }
    error(1, medfs().args(["mkfs", "--size", "80M"]).arg(path))
}

fn first_bytes(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    let len = File::open(path).unwrap().read_at(&mut bytes, 0).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn files_that_hold_something_are_overwritten_only_when_forced() {
    let s = Scratch::new();
    let mut zip = b"PK\x03\x04".to_vec();
    zip.resize(9000, 1);
    for (content, what) in [
        (&b"Dear diary,\n"[..], "text"),
        ("Größe".as_bytes(), "text"),
        (b"#!/bin/sh\necho\n", "text"),
        (&[0x1F, 0x8B, 8, 0, 1, 2, 3], "an archive (gz)"),
        (&zip, "an archive (zip)"),
        (b"\x89PNG\r\n\x1A\n\0\0", "an image (png)"),
        (&[0, 0, 0, 0, 7], "data"),
    ] {
        fs::write(s.image(), content).unwrap();
        let text = refusal(&s.image());
        assert!(text.contains(&format!("holds {what}: use --force")), "{what}: {text}");
        medfs().args(["mkfs", "-q", "--force", "--size", "64M"]).arg(s.image()).assert().success();
        medfs().arg("fsck").arg(s.image()).assert().success();
    }
    fs::copy(binary(), s.image()).unwrap();
    assert!(refusal(&s.image()).contains("holds a program (elf): use --force"));
}

#[test]
fn files_of_zeros_are_free_and_a_byte_anywhere_is_found() {
    let s = Scratch::new();
    fs::write(s.image(), vec![0; SIZE as usize]).unwrap();
    medfs().args(["mkfs", "-q"]).arg(s.image()).assert().success();
    let sparse = |len: u64| {
        let file = File::create(s.image()).unwrap();
        file.set_len(len).unwrap();
        file
    };
    sparse(SIZE);
    medfs().args(["mkfs", "-q"]).arg(s.image()).assert().success();
    sparse(0);
    medfs().args(["mkfs", "-q", "--size", "64M"]).arg(s.image()).assert().success();
    for len in [SIZE, 1 << 40] {
        sparse(len).write_all_at(&[1], len - 1).unwrap();
        assert!(refusal(&s.image()).contains("holds data: use --force"), "{len}");
    }
}

#[test]
fn volumes_of_others_are_found_wherever_they_leave_their_mark() {
    let s = Scratch::new();
    let run = |program: &str, args: &[&str]| {
        File::create(s.image()).unwrap().set_len(SIZE).unwrap();
        let made = System::new(program).args(args).arg(s.image()).output();
        assert!(made.unwrap_or_else(|e| panic!("{program}: {e}")).status.success(), "{program}");
        refusal(&s.image())
    };
    assert!(run("mkfs.ext4", &["-q"]).contains("an ext2/3/4 file system"));
    assert!(run("mkswap", &["-q"]).contains("swap space"));
    assert!(run("mkswap", &["-q", "-p", "65536"]).contains("swap space"));
    let file = File::create(s.image()).unwrap();
    file.set_len(SIZE).unwrap();
    file.write_all_at(b"EFI PART", 512).unwrap();
    file.write_all_at(b"EFI PART", SIZE - 512).unwrap();
    assert!(refusal(&s.image()).contains("a GPT partition table"));
    // The copy at the end is left.
    file.write_all_at(&[0; 4096], 0).unwrap();
    assert!(refusal(&s.image()).contains("the end of a GPT partition table"));
}

#[test]
fn a_volume_that_lost_its_superblocks_is_not_overwritten() {
    let s = Scratch::with_volume("64M");
    File::options().write(true).open(s.image()).unwrap().write_all_at(&[0; 8192], 0).unwrap();
    let image = s.image().display().to_string();
    let expected = format!(
        "medfs mkfs: {image} holds an F2FS volume whose superblocks are lost: 'medfs fsck --repair --undo FILE {image}' rebuilds them, and --force overwrites all\n"
    );
    assert_eq!(error(1, medfs().arg("mkfs").arg(s.image())), expected);
}

#[test]
fn a_volume_that_is_not_filled_says_what_it_is() {
    let s = Scratch::with_volume("64M");
    fs::create_dir(s.path("tree")).unwrap();
    fs::write(s.path("tree/much"), vec![7; 60 << 20]).unwrap();
    let text = error(1, medfs().args(["mkfs", "--force", "--from"]).args([s.path("tree"), s.image()]));
    let left = format!("; {} is a new volume without all of the files\n", s.image().display());
    assert!(text.contains("no space left on the volume") && text.ends_with(&left), "{text}");
    let text = error(1, medfs().args(["mkfs", "--size", "99T"]).arg(s.path("new")));
    assert!(
        text.ends_with("99 TiB is too large: the maximum is 16 TiB\n") && !s.path("new").exists(),
        "{text}"
    );
}

#[test]
fn no_file_is_made_among_devices() {
    for path in ["/dev/medfs-test-none", "/dev/../dev/medfs-test-none", "flash:/dev/medfs-test-none"] {
        for force in [&[][..], &["--force"]] {
            let refused = medfs().args(["mkfs", "--size", "64M"]).args(force).arg(path).output().unwrap();
            let text = String::from_utf8(refused.stderr).unwrap();
            let made = Path::new("/dev/medfs-test-none");
            let exists = made.exists();
            let _ = fs::remove_file(made);
            assert!(!exists && text.contains("no such device"), "{path}: {text}");
        }
    }
}

/// Owner of the root directory.
fn root_owner(image: &Path) -> (u64, u64) {
    let dump = output(&["dump"], &[image, Path::new("path"), Path::new("/")]);
    let number = |name: &str| {
        let line = dump.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{dump}"));
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (number("i_uid"), number("i_gid"))
}

#[test]
fn a_volume_belongs_to_who_makes_it_or_to_whom_it_is_given() {
    let s = Scratch::new();
    let made = |options: &[&str]| {
        medfs().args(["mkfs", "-q", "-f", "--size", "64M"]).args(options).arg(s.image()).assert().success();
        root_owner(&s.image())
    };
    let me = (rustix::process::geteuid().as_raw().into(), rustix::process::getegid().as_raw().into());
    assert_eq!(made(&[]), me);
    assert_eq!(made(&["--root-owner", "7:8"]), (7, 8));
    assert_eq!(made(&["-R", "7"]), (7, 7));
    fs::create_dir(s.path("tree")).unwrap();
    let tree = s.path("tree");
    assert_eq!(made(&["--root-owner", "7:8", "--from", tree.to_str().unwrap()]), (7, 8));
    error(2, medfs().args(["mkfs", "--root-owner", "me"]).arg(s.image()));
    if !is_root() {
        return;
    }
    assert_eq!(made(&["--from", tree.to_str().unwrap()]), (0, 0));
    // As an ordinary user, who has to reach the program.
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(s.path("."), open).unwrap();
    let program = s.path("medfs");
    fs::copy(binary(), &program).unwrap();
    let own = s.path("own");
    let mut mkfs = System::new(&program);
    let made = mkfs.args(["mkfs", "-q", "--size", "64M"]).arg(&own).uid(1234).gid(2345).status().unwrap();
    assert!(made.success());
    assert_eq!(root_owner(&own), (1234, 2345));
}
