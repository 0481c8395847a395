//! `medfs durability`: folders and files say whether their fsyncs may be put off.

use crate::ars::mounted;
use crate::common::{Scratch, can_mount, error, medfs, output};
use crate::mounts::Mounted;
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

/// The daemon is killed after the command: what the app had written is there, and of another one what was durable
/// before.
#[test]
fn a_sync_of_one_app_leaves_others_waiting() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let options = "durability=adaptive,survivor=off,apps=top,durability_age=600s";
    let mounted = Mounted::new(&s, options);
    let names = ["a/x", "a/y", "b/x"].map(|name| mounted.dir.join(name));
    ["a", "b"].iter().for_each(|folder| fs::create_dir(mounted.dir.join(folder)).unwrap());
    names.iter().for_each(|name| fs::write(name, "old").unwrap());
    medfs().arg("sync").arg(&mounted.dir).assert().success();
    names.iter().for_each(|name| fs::write(name, "newer").unwrap());
    medfs().args(["sync", "--app"]).arg(&names[1]).assert().success();
    let outside = error(1, medfs().args(["sync", "--app"]).arg(s.image()));
    let missing = error(1, medfs().args(["sync", "--app"]).arg(mounted.dir.join("none")));
    medfs().args(["sync", "--app"]).arg(&names[0]).arg(&mounted.dir).assert().code(2);
    mounted.kill();
    drop(mounted);
    let mounted = Mounted::new(&s, options);
    let found = names.clone().map(|name| fs::read_to_string(name).unwrap());
    mounted.unmount();
    assert_eq!(found, ["newer", "newer", "old"]);
    assert!(outside.contains("not a medfs") || outside.contains("is not on a mounted medfs"), "{outside}");
    assert!(missing.contains("No such file"), "{missing}");
}

/// Kept for a mount that has it, and said so: with `posix` nothing is put off.
#[test]
fn adaptive_says_where_the_mount_puts_nothing_off() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    for (options, told) in [("", 1), ("durability=adaptive,survivor=off", 0)] {
        let mounted = Mounted::new(&s, options);
        let files = ["a", "b"].map(|name| mounted.dir.join(name));
        files.iter().for_each(|file| fs::write(file, "x").unwrap());
        let said = medfs().args(["durability", "adaptive"]).args(&files).assert().success();
        let said = String::from_utf8(said.get_output().stderr.clone()).unwrap();
        assert_eq!(
            said.matches("only where the volume is mounted with durability=adaptive").count(),
            told,
            "{said}"
        );
        assert_eq!(said.lines().count(), told, "once: {said}");
        let said = medfs().args(["durability", "posix"]).args(&files).assert().success();
        assert!(said.get_output().stderr.is_empty(), "{options}");
        mounted.unmount();
    }
    let refused = error(
        1,
        medfs().args(["mount", "-o", "durability=adaptive,holdup=0"]).arg(s.image()).arg(s.path(".")),
    );
    assert!(refused.contains("seconds above 0") && refused.contains("no such bound"), "{refused}");
}
