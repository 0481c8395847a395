//! `medfs durability`: folders and files say whether their fsyncs may be put off.

use crate::ars::mounted;
use crate::common::{Scratch, can_mount, error, medfs, output};
use std::fs;

#[test]
fn folders_and_files_say_whether_their_fsyncs_wait() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let (dir, image) = (s.path("mnt"), s.image());
    let (mounted, notice) = mounted(&s, "durability=adaptive,survivor=off,apps=top,durability_age=600s");
    let (folder, other) = (dir.join("folder"), dir.join("other"));
    fs::create_dir(&folder).unwrap();
    fs::write(&other, "x").unwrap();
    medfs().args(["durability", "posix"]).args([&folder, &other]).assert().success();
    fs::write(folder.join("made"), "x").unwrap();
    let says = |path: &std::path::Path| output(&["stat", "--file"], &[path]);
    let (made, own) = (says(&folder.join("made")), says(&other));
    medfs().args(["durability", "inherit"]).arg(&other).assert().success();
    let inherited = says(&other);
    let outside = error(1, medfs().args(["durability", "posix"]).arg(&image));
    medfs().arg("umount").arg(&dir).assert().success();
    drop(mounted);
    assert!(notice.contains("of changes, of each app"), "{notice}");
    for text in [made, own] {
        assert!(text.contains("fsyncs      posix, as its own attribute says"), "{text}");
    }
    assert!(inherited.contains("fsyncs      adaptive, as the mount says"), "{inherited}");
    assert!(outside.contains("is not on a mounted medfs volume"), "{outside}");
}
