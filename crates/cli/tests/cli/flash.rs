//! `medfs flash`, and flash devices wherever an image is named.

use crate::common::*;
use std::fs;

#[test]
fn a_volume_lives_on_a_flash_device() {
    let s = Scratch::new();
    let target = format!("flash:{}?profile=emmc&ftl=ldc", s.path("card").display());
    let plain = format!("flash:{}", s.path("card").display());
    medfs().args(["mkfs", "-q", "--size", "300M", &target]).assert().success();
    make_tree(&s.path("tree"));
    medfs().args(["put", "-r", &plain]).arg(s.path("tree")).arg("/").assert().success();
    medfs().args(["fsck", &plain]).assert().success();
    medfs().args(["get", "-r", &plain, "/tree"]).arg(s.path("back")).assert().success();
    assert_eq!(describe(&s.path("back")), describe(&s.path("tree")));
    medfs().args(["stat", &plain]).assert().success();

    let check = output(&["flash", "check"], &[&s.path("card")]);
    assert!(check.contains("map and pages agree"), "{check}");
    let stat: serde_json::Value =
        serde_json::from_str(&output(&["flash", "stat", "--json"], &[&s.path("card")])).unwrap();
    assert!(stat["host_written_bytes"].as_u64().unwrap() > 4096 * 10, "{stat}");
    assert!(stat["counters"]["ftl"]["compressed_host"].as_u64().unwrap() > 0, "{stat}");
    let svg = output(&["flash", "map"], &[&s.path("card")]);
    assert!(svg.starts_with("<svg") && svg.contains("Wear"), "{}", &svg[..100]);

    // Another method reads what this one wrote.
    let other = format!("{plain}?ftl=pm");
    medfs().args(["fsck", &other]).assert().success();
}

#[test]
fn wrong_devices_are_named() {
    let s = Scratch::new();
    let card = s.path("card").display().to_string();
    let fails = |args: &[&str]| error(1, medfs().args(args));
    assert!(fails(&["flash", "create", &card, "--profile", "emmd"]).contains("emmc, ufs31"));
    assert!(fails(&["flash", "create", &card, "--ftl", "lsm"]).contains("pm, zftl"));
    medfs().args(["flash", "create", &card, "--size", "64M"]).assert().success();
    assert!(fails(&["flash", "create", &card]).contains("exists"));
    medfs().args(["flash", "create", "--force", &card, "--size", "64M"]).assert().success();
    let letter = s.path("letter").display().to_string();
    fs::write(&letter, "words").unwrap();
    assert!(
        fails(&["flash", "create", "--force", &letter]).contains("replaces a flash device, and nothing else")
    );
    assert_eq!(fs::read(&letter).unwrap(), b"words");
    assert!(fails(&["ls", &format!("flash:{card}?profile=qlc")]).contains("made with the profile 'emmc'"));
    assert!(fails(&["ls", &format!("flash:{card}?codec=lz4")]).contains("made with codec=lzo"));
    assert!(fails(&["ls", &format!("flash:{card}")]).contains("holds no F2FS volume"));
    assert!(fails(&["ls", &card]).contains(&format!("simulated flash device: its volume is 'flash:{card}'")));
    assert!(fails(&["ls", &format!("flash:{card}?bogus=1")]).contains("'bogus'"));

    let bytes = fs::read(&card).unwrap();
    fs::write(&card, &bytes[..bytes.len() - 5]).unwrap();
    assert!(fails(&["flash", "stat", &card]).contains("cut short"));
    let mut damaged = bytes.clone();
    damaged[40] ^= 1;
    fs::write(&card, &damaged).unwrap();
    assert!(fails(&["flash", "stat", &card]).contains("checksum"));
    fs::write(&card, b"hello").unwrap();
    assert!(fails(&["flash", "stat", &card]).contains("too short"));
    fs::write(&card, [7; 4096]).unwrap();
    assert!(fails(&["flash", "check", &card]).contains("not a flash device"));
}

#[test]
fn traces_are_replayed_or_refused() {
    let s = Scratch::new();
    let trace = s.path("t.csv");
    let mut text = "time_us,op,offset,bytes,entropy,ratio\n".to_owned();
    for i in 0..3000u64 {
        text.push_str(&format!("{},write,{},4096,4.0,0.3\n", i * 500, i * 7919 % 4000 * 4096));
    }
    fs::write(&trace, &text).unwrap();
    let run = |args: &[&str]| {
        let out = medfs()
            .args(["flash", "replay", "--json", "--size", "32M"])
            .args(args)
            .arg(&trace)
            .assert()
            .success();
        serde_json::from_slice::<serde_json::Value>(&out.get_output().stdout).unwrap()
    };
    let out = run(&["--ftl", "pm,ldc"]);
    assert_eq!(out[0]["replayed"]["requests"], 3000);
    assert_eq!(out[1]["replayed"]["told"], 3000);
    let programs = |at: usize| out[at]["stats"]["ftl"]["programs"]["host"].as_u64().unwrap();
    assert!(programs(1) * 2 < programs(0), "what compresses to a third takes less than half: {out}");
    assert_eq!(run(&["--ftl", "pm,ldc"]), out, "the same again");

    fs::write(&trace, text.replacen("500,write", "500,wipe", 1)).unwrap();
    let message = error(1, medfs().args(["flash", "replay", "--size", "32M"]).arg(&trace));
    assert!(message.contains("line 3: 'wipe'"), "{message}");
    fs::write(&trace, "time_us,op,offset,bytes,entropy,ratio\n0,write,999999999999,4096,,\n").unwrap();
    let message = error(1, medfs().args(["flash", "replay", "--size", "32M"]).arg(&trace));
    assert!(message.contains("line 2: page") && message.contains("beyond"), "{message}");
    fs::write(&trace, "what is this\n").unwrap();
    let message = error(1, medfs().args(["flash", "replay", "--size", "32M"]).arg(&trace));
    assert!(message.contains("unknown format"), "{message}");
}

#[test]
fn a_daemon_that_was_killed_is_told_of() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let (card, dir) = (s.path("card"), s.path("mnt"));
    fs::create_dir(&dir).unwrap();
    let target = format!("flash:{}", card.display());
    medfs().args(["mkfs", "-q", "--size", "64M", &target]).assert().success();
    let stat = || output(&["flash", "stat"], &[&card]);
    assert!(!stat().contains("killed"));
    let mut daemon = std::process::Command::new(binary())
        .args(["mount", "--foreground", &target])
        .arg(&dir)
        .spawn()
        .unwrap();
    let there = |path: &std::path::Path| {
        (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            path.exists()
        })
    };
    assert!(there(&dir.join("lost+found")));
    fs::write(dir.join("file"), vec![7; 100_000]).unwrap();
    fs::File::open(dir.join("file")).unwrap().sync_all().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let _ = std::process::Command::new("umount").arg("-l").arg(&dir).status();
    assert!(stat().contains("1 program killed: the numbers omit all work after"), "{}", stat());
    // Whoever uses it next goes on counting, and it is not forgotten.
    assert_eq!(output(&["ls", &target], &[]), "file\nlost+found\n");
    medfs().args(["fsck", "--repair", &target]).assert().code(1);
    assert!(stat().contains("1 program killed"), "{}", stat());
    let json: serde_json::Value =
        serde_json::from_str(&output(&["flash", "stat", "--json"], &[&card])).unwrap();
    assert_eq!((&json["counters"]["killed"], &json["counters"]["open"]), (&1.into(), &false.into()));
}
