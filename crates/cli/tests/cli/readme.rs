//! README.md is followed word by word, by whoever runs the tests; `tools/readme` does it in fresh roots of
//! Debian, as root and as a user.

use crate::common::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command as System, Output};

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Follows the README of a checkout; what takes long is left out, and mounts where this process cannot mount.
fn follow(checkout: &Path) -> Output {
    let mut follow = System::new(checkout.join("tools/readme"));
    follow.args(["--here", "--program"]).arg(binary()).env("README_SHORT", "yes").env_remove("DESTDIR");
    if !can_mount() {
        follow.env("README_NO_MOUNT", "yes");
    }
    follow.output().unwrap()
}

#[test]
fn every_shell_block_is_followed() {
    let followed = follow(&checkout());
    let (said, errors) =
        (String::from_utf8_lossy(&followed.stdout), String::from_utf8_lossy(&followed.stderr));
    assert!(followed.status.success(), "{said}{errors}");
    let blocks = fs::read_to_string(checkout().join("README.md")).unwrap().matches("```sh\n").count();
    assert!(blocks >= 4, "{blocks} blocks");
    assert_eq!(said.matches(" is followed, ").count(), blocks, "{said}");
}

/// A line that does not work is found, by its number.
#[test]
fn a_line_that_fails_is_named() {
    let s = Scratch::new();
    for path in ["README.md", "tools/readme", "tools/install", "crates/trace/tests/trace/logs/strace.log"] {
        let to = s.path(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(checkout().join(path), to).unwrap();
    }
    let text = fs::read_to_string(s.path("README.md")).unwrap();
    let line = text.lines().position(|line| line.starts_with("medfs ls card.img")).unwrap();
    fs::write(s.path("README.md"), text.replace("medfs ls card.img", "medfs list card.img")).unwrap();
    let followed = follow(&s.path(""));
    assert!(!followed.status.success());
    let errors = String::from_utf8_lossy(&followed.stderr);
    assert!(errors.contains(&format!("FAILED, README.md line {}: medfs list", line + 1)), "{errors}");
}
