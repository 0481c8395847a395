//! `./x install` puts everything where a system looks for it, and `./x uninstall` takes exactly that away.

use crate::common::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as System;

/// Every path below a directory.
fn paths(root: &Path) -> BTreeSet<PathBuf> {
    let all = walkdir::WalkDir::new(root).min_depth(1).into_iter().map(Result::unwrap);
    all.map(|entry| entry.path().strip_prefix(root).unwrap().to_owned()).collect()
}

fn x(job: &str, destdir: Option<&Path>, prefix: &str) -> std::process::Output {
    let mut x = System::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/install"));
    x.arg(job).args(["--prefix", prefix, "--program"]).arg(binary()).env_remove("DESTDIR");
    if let Some(destdir) = destdir {
        x.env("DESTDIR", destdir);
    }
    x.output().unwrap()
}

#[test]
fn what_is_installed_is_found_and_taken_away_again() {
    let s = Scratch::new();
    let root = s.path("root");
    // Something of others.
    for path in ["usr/bin/other", "etc/udev/rules.d/10-other.rules", "usr/share/man/man1/other.1.gz"] {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), "").unwrap();
    }
    let before = paths(&root);
    for (prefix, udev, zsh) in [
        ("/usr", "usr/lib/udev/rules.d", "usr/share/zsh/vendor-completions"),
        ("/usr/local", "etc/udev/rules.d", "usr/local/share/zsh/site-functions"),
    ] {
        // Twice: an installation takes the place of an older one.
        for _ in 0..2 {
            let installed = x("install", Some(&root), prefix);
            assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        }
        let own = |path: &str| root.join(&prefix[1..]).join(path);
        for page in ["man1/medfs.1.gz", "man1/medfs-mkfs.1.gz", "man5/medfs.5.gz", "man8/mount.medfs.8.gz"] {
            assert!(own("share/man").join(page).exists(), "{page}");
        }
        assert!(own("share/bash-completion/completions/medfs").exists());
        assert!(own("share/fish/vendor_completions.d/medfs.fish").exists());
        assert!(root.join(zsh).join("_medfs").exists());
        let rule = fs::read_to_string(root.join(udev).join("60-medfs.rules")).unwrap();
        assert!(rule.contains(&format!("\"{prefix}/bin/medfs probe")), "{rule}");
        assert!(root.join(udev).join("70-medfs-power.rules").exists());
        assert!(own("lib/systemd/system/medfs-power.timer").exists());
        let units = [
            ("sleep", "power low"),
            ("sleep", "power auto"),
            ("shutdown", "power low"),
            ("power", "power auto"),
        ];
        for (unit, command) in units {
            let unit = fs::read_to_string(own(&format!("lib/systemd/system/medfs-{unit}.service"))).unwrap();
            assert!(unit.contains(&format!("{prefix}/bin/medfs {command} --all\n")), "{unit}");
        }
        for link in [
            "mkfs.medfs",
            "mount.medfs",
            "fsck.medfs",
            "umount.medfs",
            "umount.fuse.medfs",
            "mount.fuseblk.medfs",
        ] {
            let target = fs::read_link(root.join("usr/sbin").join(link)).unwrap();
            assert_eq!(target, Path::new(prefix).join("bin/medfs"), "{link}");
        }
        // What came in later is not ours.
        fs::write(own("share/medfs/notes"), "mine").unwrap();
        assert!(x("uninstall", Some(&root), prefix).status.success());
        assert_eq!(fs::read_to_string(own("share/medfs/notes")).unwrap(), "mine");
        fs::remove_dir_all(own("share/medfs")).unwrap();
        assert!(!x("uninstall", Some(&root), prefix).status.success(), "nothing is left to take away");
    }
    // The directories in which a file of others came in stay.
    let kept = ["usr/local", "usr/local/share"].map(PathBuf::from);
    let left: BTreeSet<_> = paths(&root).into_iter().filter(|path| !kept.contains(path)).collect();
    assert_eq!(left, before);
}

#[test]
fn an_ordinary_user_installs_in_a_directory_of_theirs() {
    let s = Scratch::new();
    let home = s.path("home/.local");
    fs::create_dir(s.path("home")).unwrap();
    let installed = x("install", None, home.to_str().unwrap());
    let text = String::from_utf8(installed.stdout).unwrap();
    assert!(
        installed.status.success() && text.contains("put ") && text.contains(".local/bin into PATH"),
        "{text}"
    );
    let program = home.join("sbin/mkfs.medfs");
    let made = System::new(program).args(["-q", "--size", "64M"]).arg(s.image()).status().unwrap();
    assert!(made.success());
    assert!(x("uninstall", None, home.to_str().unwrap()).status.success());
    assert!(!home.exists());
    let wrong = x("install", None, "relative");
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("expected an absolute path"));
}
