//! Mount options are told about wherever a user looks: in the help, in medfs(5), in the error, and in
//! `medfs stat` of a mount.

use crate::common::*;
use std::fs;
use std::process::Command as System;

#[test]
fn help_and_manual_tell_of_options() {
    let s = Scratch::new();
    medfs().arg("man").arg(s.path("man")).assert().success();
    let manual = fs::read_to_string(s.path("man/medfs.5")).unwrap();
    let help = output(&["mount", "--help"], &[]);
    for (place, text) in [("mount --help", &help), ("medfs(5)", &manual)] {
        for option in ["cross_file_deltas", "allow_other", "trace_private"] {
            assert!(text.contains(option), "{place}: {option}");
        }
    }
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    // What is taken from an fstab of the kernel's f2fs and changes nothing is told too.
    assert!(manual.contains("checkpoint_merge") && manual.contains("x\\-"));
}

#[test]
fn the_manual_is_without_faults() {
    let s = Scratch::new();
    medfs().arg("man").arg(s.path("man")).assert().success();
    let judge =
        System::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(s.path("man/medfs.5")).output();
    match judge {
        Ok(judged) => assert_eq!(String::from_utf8_lossy(&judged.stderr), ""),
        Err(_) => eprintln!("SKIPPED: groff is not installed"),
    }
}

#[test]
fn a_misspelt_option_gets_the_nearest() {
    let s = Scratch::with_volume("64M");
    for (given, nearest) in [
        ("delat", "delta"),
        ("delat=full", "delta"),
        ("noatme", "noatime"),
        ("allow_others", "allow_other"),
        ("thread=4", "threads"),
        ("trce=/tmp/x", "trace"),
        ("fsync-mode=posix", "fsync_mode"),
        ("checkpoint_merg", "checkpoint_merge"),
        ("x_systemd.automount", ""),
        ("frobnicate", ""),
    ] {
        let name = given.split('=').next().unwrap();
        let told = match nearest {
            "" => format!("unknown option '{name}': 'medfs mount --help' and medfs(5) list all"),
            nearest => format!("unknown option '{name}', did you mean '{nearest}'?"),
        };
        for options in [given.to_owned(), format!("ro,{given}"), format!("remount,{given}")] {
            let text = error(1, medfs().args(["mount", "-o", &options]).arg(s.image()).arg(s.path(".")));
            assert!(text.trim_end().ends_with(&told) && text.lines().count() == 1, "{options}: {text}");
            if options.starts_with("remount") {
                break;
            }
        }
    }
}

#[test]
fn a_wrong_value_is_told_with_what_is_expected() {
    let s = Scratch::with_volume("64M");
    for (given, told) in [
        ("delta=ful", "invalid value 'ful' for delta: expected off|inline|compact|full"),
        ("threads=0", "invalid value '0' for threads: expected N, a number from 1 to 256"),
        ("transport=tcp", "invalid value 'tcp' for transport: expected auto|dev|uring"),
        ("trace=", "invalid value '' for trace: expected FILE"),
        ("discard=maybe", "invalid value 'maybe' for discard: expected on|off"),
        ("delta", "delta needs a value: expected delta=off|inline|compact|full"),
        ("noatime=1", "noatime takes no value"),
        ("errors=explode", "invalid value 'explode' for errors: expected remount-ro|continue|panic"),
    ] {
        let text = error(1, medfs().args(["mount", "-o", given]).arg(s.image()).arg(s.path(".")));
        assert_eq!(text, format!("medfs mount: {told}\n"));
    }
}

#[test]
fn stat_of_a_mount_shows_the_options_in_force() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("128M");
    let dir = s.path("mnt");
    fs::create_dir(&dir).unwrap();
    let given =
        "noatime,cache=128M,delta=inline,threads=3,nodiscard,compress_extension=txt,commit=90s,nosuid";
    medfs().args(["mount", "-o", given]).arg(s.image()).arg(&dir).assert().success();
    let (json, text) = (output(&["stat", "--json"], &[&dir]), output(&["stat"], &[&dir]));
    medfs().arg("umount").arg(&dir).assert().success();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let options: Vec<&str> =
        json["options"].as_array().unwrap().iter().map(|o| o.as_str().unwrap()).collect();
    for option in given.split(',').chain([
        "rw",
        "alloc_mode=reuse",
        "in_place=force",
        "dir_fsync=recover",
        "fsync_mode=strict",
    ]) {
        let shown = if option == "commit=90s" { "commit=90s" } else { option };
        assert!(options.contains(&shown), "{option}: {options:?}");
        assert!(text.contains(shown), "{option}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // They can be given to a mount again as they are shown.
    let again = options.join(",");
    medfs().args(["mount", "-o", &again]).arg(s.image()).arg(&dir).assert().success();
    let json = output(&["stat", "--json"], &[&dir]);
    medfs().arg("umount").arg(&dir).assert().success();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let second: Vec<&str> = json["options"].as_array().unwrap().iter().map(|o| o.as_str().unwrap()).collect();
    assert_eq!(second, options);
}
