//! What a user may not do, and where nothing can be written: one sentence that names the file, and the code
//! of the command. And colours, which are for terminals that want them.

use crate::common::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command as System;

const USER: u32 = 4321;

#[test]
fn who_has_no_rights_is_told_of_what_in_one_sentence() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: needs root, to become an ordinary user");
        return;
    }
    let s = Scratch::with_volume("64M");
    fs::set_permissions(s.path("."), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(s.image(), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(s.path("closed")).unwrap();
    fs::create_dir(s.path("mine")).unwrap();
    chown(s.path("mine"), Some(USER), Some(USER)).unwrap();
    fs::write(s.path("file"), "content").unwrap();
    fs::copy(s.image(), s.path("own")).unwrap();
    chown(s.path("own"), Some(USER), Some(USER)).unwrap();
    fs::copy(s.image(), s.path("shown")).unwrap();
    fs::set_permissions(s.path("shown"), Permissions::from_mode(0o644)).unwrap();
    let program = s.path("medfs");
    fs::copy(binary(), &program).unwrap();
    let image = s.image().to_str().unwrap().to_owned();
    // A device, as it is root's. There need not be one behind its numbers.
    let device = s.path("device").to_str().unwrap().to_owned();
    let (block, numbers) = (rustix::fs::FileType::BlockDevice, rustix::fs::makedev(7, 255));
    rustix::fs::mknodat(rustix::fs::CWD, &device, block, 0o600.into(), numbers).unwrap();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["ls", &image], 1, &image),
        (&["stat", &image], 1, &image),
        (&["dump", &image, "super"], 1, &image),
        (&["get", &image, "/x", "-"], 1, &image),
        (&["put", &image, "file", "/"], 1, &image),
        (&["fsck", &image], 8, &image),
        (&["fsck", "--repair", &image], 8, &image),
        (&["mkfs", "--force", &image], 1, &image),
        (&["mkfs", "--size", "64M", "closed/new"], 1, "closed/new"),
        (&["export", &image], 1, &image),
        (&["import", &image], 1, &image),
        (&["put", "shown", "file", "/"], 1, "shown is write-protected: this user may only read it"),
        (&["fsck", "--repair", "shown"], 8, "shown is write-protected: this user may only read it"),
        (&["get", "-r", "own", "/", "closed"], 1, "closed"),
        (&["get", "--salvage", "own", "closed"], 1, "closed"),
        (&["get", "-r", "--map", "closed/map", "own", "/", "mine"], 1, "closed/map"),
        (&["fsck", "--repair", "--undo", "closed/undo", "own"], 8, "closed/undo"),
        (&["mount", &image, "."], 32, &image),
        (&["fsck", &device], 8, "Permission denied: only root may use this device (try sudo)"),
        (&["mkfs", &device], 1, "Permission denied: only root may use this device (try sudo)"),
        (&["stat", &device], 1, "Permission denied: only root may use this device (try sudo)"),
    ];
    for (args, code, named) in cases {
        let output = System::new(&program)
            .args(*args)
            .uid(USER)
            .gid(USER)
            .current_dir(s.path("."))
            .env("HOME", s.path("."))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {text}");
        let reason = text.contains("ermission denied") || text.contains("is write-protected");
        assert!(text.contains(named) && reason, "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    }
}

/// A card whose lock is on, which a loop device stands for.
#[test]
fn a_write_protected_device_is_called_so() {
    if !is_root() {
        eprintln!("SKIPPED: a loop device needs root");
        return;
    }
    let s = Scratch::with_volume("64M");
    let set =
        System::new("losetup").args(["--find", "--show", "--read-only"]).arg(s.image()).output().unwrap();
    let device = String::from_utf8(set.stdout).unwrap().trim().to_owned();
    if device.is_empty() {
        eprintln!("SKIPPED: no loop device");
        return;
    }
    let texts =
        [(8, &["fsck", "--repair"][..]), (1, &["mkfs", "--force"]), (1, &["export"]), (1, &["import"])]
            .map(|(code, args)| (args, error(code, medfs().args(args).arg(&device))));
    let readable = medfs().arg("fsck").arg(&device).output().unwrap().status.code();
    System::new("losetup").arg("--detach").arg(&device).status().unwrap();
    for (args, text) in texts {
        let expected = format!(
            "medfs {}: {device} is write-protected: by the lock switch of the card, by its system ('blockdev --setrw {device}' allows writes), or by the card itself, as worn-out ones do for good ('medfs get -r {device} / DIRECTORY' copies its files)\n",
            args[0]
        );
        assert_eq!(text, expected);
    }
    assert_eq!(readable, Some(0));
}

/// The log on a terminal, which `script` stands for.
#[test]
fn a_log_is_asked_for_and_no_color_keeps_it_without_colours() {
    let s = Scratch::with_volume("64M");
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &[0; 4096], 0).unwrap();
    let shown = |no_color: Option<&str>, log: bool| {
        let mut script = System::new("script");
        script.args(["--quiet", "--return", "--command"]);
        script.arg(format!("'{}' ls '{}'", binary().display(), s.image().display())).arg("/dev/null");
        script.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("RUST_LOG");
        if let Some(value) = no_color {
            script.env("NO_COLOR", value);
        }
        if log {
            script.env("RUST_LOG", "warn");
        }
        let output = script.output().expect("script, of Debian's bsdutils");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let [plain, none, empty] = [Some("1"), None, Some("")].map(|no_color| shown(no_color, true));
    assert!(plain.contains("WARN") && !plain.contains('\x1b'), "{plain:?}");
    assert!(none.contains('\x1b') && empty.contains('\x1b'), "{none:?} {empty:?}");
    // Who has not asked for a log reads sentences.
    let sentence = shown(None, false);
    assert!(
        sentence.starts_with("medfs: one of the two copies of the superblock is damaged"),
        "{sentence:?}"
    );
    assert!(!sentence.contains('\x1b') && !sentence.contains("WARN"), "{sentence:?}");
}
