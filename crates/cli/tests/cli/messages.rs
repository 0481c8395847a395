//! Wrong input is named in one sentence, with the exit code of the command's convention.

use crate::common::*;
use medfs::Files;
use medfs_device::{BlockDevice, Cause, FileDevice, FileOptions, Temperature, WriteTag, read_block};
use medfs_format::superblock::{DELTA_FEATURES, DELTA_MAGIC, RawSuperblock};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command as System;

#[test]
fn mkfs_refuses_what_it_cannot_do() {
    let s = Scratch::new();
    let mkfs = |args: &[&str], code: i32| error(code, medfs().arg("mkfs").args(args).arg(s.image()));
    for (args, code, expected) in [
        (&[][..], 1, "does not exist: to create it, give its size"),
        (&["--size", "8M"], 1, "8 MiB is too small: the minimum is 52 MiB"),
        (&["--size", "60M", "-s", "4"], 1, "with 4 segments per section"),
        (&["--size", "64M", "-O", "encrypt"], 2, "unknown feature 'encrypt': known are extra_attr"),
        (&["--size", "64M", "-O", "inode_checksum"], 2, "inode_checksum needs extra_attr too"),
        (&["--size", "64M", "-O", "extra_attr"], 2, "needs inode_checksum,flexible_inline_xattr too"),
        (&["--size", "64M", "-s", "0"], 2, "segments per section must be from 1 to 4096, not 0"),
        (&["--size", "64M", "-o", "99"], 2, "over-provisioning in per cent must be from 0.01 to 95, not 99"),
        (&["--size", "17T"], 1, "16 TiB"),
        (&["--size", "64M", "--from", "/nonexistent"], 1, "/nonexistent"),
    ] {
        let text = mkfs(args, code);
        assert!(text.contains(expected), "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!s.image().exists(), "{args:?} left an image behind");
    }
    let text = error(2, medfs().args(["mkfs", "--size", "1Q"]).arg(s.image()));
    assert!(text.contains("'1Q' is not a size"), "{text}");
    let text = error(1, medfs().arg("mkfs").arg("/dev/null"));
    assert!(text.contains("neither an image file nor a block device"), "{text}");
    let label = "x".repeat(512);
    let text = error(1, medfs().args(["mkfs", "--size", "64M", "-l", &label]).arg(s.image()));
    assert!(text.contains("512 UTF-16 units; at most 511"), "{text}");
}

#[test]
fn mkfs_overwrites_only_when_forced_and_never_what_is_in_use() {
    let s = Scratch::with_volume("64M");
    let text = error(1, medfs().arg("mkfs").arg(s.image()));
    assert!(text.contains("holds a medfs volume: use --force"), "{text}");
    let text = error(1, medfs().args(["mkfs", "--size", "80M"]).arg(s.image()));
    assert!(text.contains("use --force"), "{text}");
    assert_eq!(fs::metadata(s.image()).unwrap().len(), 64 << 20, "the size stays when it is refused");
    medfs()
        .args(["mkfs", "-f", "--size", "80M", "-l", "naïve", "-q"])
        .arg(s.image())
        .assert()
        .success()
        .stdout("");
    assert!(output(&["stat"], &[&s.image()]).contains("naïve"));

    let held = FileDevice::open(s.image(), FileOptions::default()).unwrap();
    for command in ["mkfs", "ls", "put"] {
        let mut run = medfs();
        run.arg(command).arg(s.image());
        match command {
            "mkfs" => run.arg("-f"),
            "put" => run.args(["/etc/hostname", "/"]),
            _ => &mut run,
        };
        let text = error(1, &mut run);
        let holder = format!("(process {}), which must end first", std::process::id());
        assert!(text.contains("is in use by cli") && text.contains(&holder), "{text}");
    }
    assert!(error(8, medfs().arg("fsck").arg(s.image())).contains("is in use"));
    drop(held);
    medfs().arg("fsck").arg(s.image()).assert().code(0);
}

#[test]
fn what_is_no_volume_is_named() {
    let s = Scratch::new();
    let image = s.image();
    let all = |expected: &str| {
        for command in ["ls", "stat", "dump"] {
            let text = error(1, medfs().arg(command).arg(&image));
            assert!(text.contains(expected), "{command}: {text}");
        }
        assert!(error(8, medfs().arg("fsck").arg(&image)).contains(expected));
        assert!(error(8, medfs().arg("fsck").arg("--repair").arg(&image)).contains(expected));
        assert!(error(32, medfs().arg("mount").arg(&image).arg(s.path("."))).contains(expected));
    };
    all("No such file or directory");
    fs::create_dir(&image).unwrap();
    for command in ["ls", "dump", "export", "import", "probe"] {
        let text = error(1, medfs().arg(command).arg(&image));
        assert!(text.contains("is a directory, not an image file or a block device"), "{command}: {text}");
    }
    fs::remove_dir(&image).unwrap();
    fs::write(&image, "short").unwrap();
    all("is too short for an F2FS volume");
    File::create(&image).unwrap().set_len(4096).unwrap();
    all("is too short for an F2FS volume: it has less than 8 KiB");
    let text = error(1, medfs().args(["get", "--salvage"]).arg(&image).arg(s.path("salvaged")));
    assert!(text.ends_with("is too short for an F2FS volume: it has less than 8 KiB\n"), "{text}");
    assert!(!s.path("salvaged").exists());
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    all(
        "holds zeros and no F2FS volume: if it had files, 'medfs help damaged' says what to do; 'medfs mkfs ",
    );
    // What holds something is not to be overwritten.
    File::options().write(true).open(&image).unwrap().write_all_at(&[0xa5; 5000], 0).unwrap();
    all("holds no F2FS volume; is it the right partition or image? 'medfs help damaged'");
    assert!(System::new("mkfs.ext4").arg("-q").arg(&image).status().unwrap().success());
    all("holds an ext2/3/4 file system, not an F2FS volume");
}

/// The second copy of its superblock lies where the first one of a volume of the whole device would.
#[test]
fn where_a_volume_begins_a_block_later_is_told() {
    let s = Scratch::with_volume("64M");
    let card = s.path("card");
    let mut bytes = vec![0; 4096];
    bytes.extend(fs::read(s.image()).unwrap());
    fs::write(&card, bytes).unwrap();
    let expected = format!(
        "holds an F2FS volume that begins at byte 4096: 'losetup -r -o 4096 --show -f {}' makes a read-only device of it",
        card.display()
    );
    for (command, code) in [("ls", 1), ("stat", 1), ("fsck", 8)] {
        let text = error(code, medfs().arg(command).arg(&card));
        assert!(text.contains(&expected), "{command}: {text}");
    }
    let text = error(32, medfs().arg("mount").arg(&card).arg(s.path(".")));
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn where_data_may_be_nothing_is_to_be_made() {
    let s = Scratch::with_volume("64M");
    let file = File::options().write(true).open(s.image()).unwrap();
    file.write_all_at(&[0; 8192], 0).unwrap();
    for (command, code) in [("ls", 1), ("stat", 1), ("export", 1)] {
        let text = error(code, medfs().arg(command).arg(s.image()));
        assert!(
            text.contains("superblocks are lost: 'medfs get --salvage ") && !text.contains("mkfs"),
            "{text}"
        );
    }
    // Zeros at the beginning, and something behind them.
    let other = s.path("other");
    let file = File::create(&other).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(b"something", 20 << 20).unwrap();
    assert!(
        error(1, medfs().arg("ls").arg(&other)).contains("holds no F2FS volume; is it the right partition")
    );
    file.write_all_at(&[0x55, 0xaa], 510).unwrap();
    let text = error(1, medfs().arg("ls").arg(&other));
    assert!(
        text.contains("a partition table, not an F2FS volume: name a partition")
            && text.contains("losetup -fP"),
        "{text}"
    );
}

#[test]
fn a_truncated_volume_is_not_mounted_and_never_said_to_be_whole() {
    let s = Scratch::with_volume("128M");
    let file = File::options().write(true).open(s.image()).unwrap();
    for keep in [100 << 20, 9 << 20, 3 << 20, 8192] {
        file.set_len(keep).unwrap();
        // The superblock and the root directory are there.
        let code = if keep == 100 << 20 { 0 } else { 1 };
        let text = error(code, medfs().arg("ls").arg(s.image()));
        assert_eq!(text.lines().filter(|line| line.starts_with("medfs ls: ")).count(), 1, "{text}");
        let code = medfs().arg("fsck").arg(s.image()).assert().get_output().status.code();
        assert!(matches!(code, Some(4 | 8)), "{keep}: {code:?}");
        error(32, medfs().arg("mount").arg(s.image()).arg(s.path(".")));
    }
}

#[test]
fn fsck_codes() {
    let s = Scratch::with_volume("128M");
    let image = s.image();
    medfs().arg("fsck").arg(&image).assert().code(0);
    medfs().arg("fsck").arg("--repair").arg(&image).assert().code(0);
    // One copy of the superblock.
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 512], 4096 + 1024).unwrap();
    let found = medfs().args(["fsck", "--json"]).arg(&image).assert().code(4);
    let json: serde_json::Value = serde_json::from_slice(&found.get_output().stdout).unwrap();
    assert_eq!(json["exit"], 4);
    assert!(json["found"]["findings"].as_array().is_some_and(|f| !f.is_empty()), "{json}");
    medfs().arg("fsck").arg("--dry-run").arg(&image).assert().code(4);
    medfs().arg("fsck").arg("--repair").arg(&image).assert().code(1);
    medfs().arg("fsck").arg(&image).assert().code(0);
    error(16, medfs().arg("fsck").arg("--no-such-flag").arg(&image));
    error(16, medfs().args(["fsck", "--repair", "--dry-run"]).arg(&image));
}

/// A file of two pages, fsynced, and then a crash.
fn crash_after_fsync(s: &Scratch) {
    let dev = std::sync::Arc::new(FileDevice::open(s.image(), FileOptions::default()).unwrap());
    let clock = std::sync::Arc::new(medfs::SystemClock);
    let volume = medfs::Volume::open(dev, medfs::MountOptions::default(), clock).unwrap();
    let new =
        medfs::NewFile { kind: medfs::FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = volume.create(volume.root(), b"fsynced", &new).unwrap().ino;
    volume.write(ino, 0, &[b'x'; 8192]).unwrap();
    volume.fsync(ino, false).unwrap();
    // Dropped without closing.
}

#[test]
fn fsck_repair_rolls_forward() {
    let s = Scratch::with_volume("128M");
    crash_after_fsync(&s);
    let text = output(&["fsck"], &[&s.image()]);
    assert!(text.contains("fsynced after the last checkpoint"), "{text}");
    let assert = medfs().arg("fsck").arg("--repair").arg(s.image()).assert().code(1);
    assert!(String::from_utf8_lossy(&assert.get_output().stdout).contains("rolled 1 fsynced file forward"));
    medfs().arg("fsck").arg("--repair").arg(s.image()).assert().code(0);
    assert_eq!(output(&["get"], &[&s.image(), Path::new("/fsynced"), Path::new("-")]), "x".repeat(8192));
    assert_clean(&s.image());
}

#[test]
fn fsck_repair_gives_up_what_of_a_log_cannot_be_replayed() {
    let s = Scratch::new();
    medfs().args(["mkfs", "--plain", "--size", "128M", "-O", "lost_found"]).arg(s.image()).assert().success();
    crash_after_fsync(&s);
    // The fsynced inode, known by its name, says of its second page that it lies behind the end of the volume.
    let file = File::options().read(true).write(true).open(s.image()).unwrap();
    let mut block = vec![0; 4096];
    let at = (0..128 << 8).map(|n| n * 4096).find(|&at| {
        file.read_exact_at(&mut block, at).unwrap();
        block[92..99] == *b"fsynced"
    });
    file.write_all_at(&0x0080_0000u32.to_le_bytes(), at.expect("the inode is on the volume") + 360 + 4)
        .unwrap();
    let (volume, refused) = (s.image(), error(32, medfs().arg("mount").arg(s.image()).arg(s.path("."))));
    assert!(refused.contains("i_addr") && refused.contains("fsck --repair"), "{refused}");
    let assert = medfs().arg("fsck").arg("--repair").arg(&volume).assert().code(1);
    let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    let left_out = "left out what was damaged of the fsyncs of 1 file ";
    assert!(text.contains(left_out) && text.contains("i_addr"), "{text}");
    medfs().arg("fsck").arg("--repair").arg(&volume).assert().code(0);
    let half = format!("{}{}", "x".repeat(4096), "\0".repeat(4096));
    assert_eq!(output(&["get"], &[&volume, Path::new("/fsynced"), Path::new("-")]), half);
    assert_clean(&volume);
}

/// The program under another name, as its links are called.
fn called(name: &str) -> System {
    let mut command = System::new(binary());
    command.arg0(format!("/sbin/{name}"));
    command
}

#[test]
fn the_other_names_say_how_they_are_called() {
    for name in ["mount", "umount", "fsck", "mkfs"] {
        for flag in ["--help", "-h"] {
            let done = called(&format!("{name}.medfs")).arg(flag).output().unwrap();
            let text = String::from_utf8(done.stdout).unwrap().to_lowercase();
            let is_told = text.contains("usage: ") && text.contains(&format!("{name}."));
            assert!(done.status.success() && is_told, "{name} {flag}: {text}");
            assert!(done.stderr.is_empty(), "{name} {flag}");
        }
    }
}

#[test]
fn the_other_names_follow_their_callers() {
    let s = Scratch::with_volume("128M");
    let image = s.image();
    let code = |command: &mut System| command.output().unwrap().status.code();
    for flags in [&["-a"][..], &["-p"], &["-n"], &["-y"], &["-f", "-a"], &["-T", "-C0", "-a"], &["-V"]] {
        assert_eq!(code(called("fsck.medfs").args(flags).arg(&image)), Some(0), "{flags:?}");
    }
    for flags in [&["-n", "-y"][..], &["-Q"], &["-a", "more"]] {
        assert_eq!(code(called("fsck.medfs").args(flags).arg(&image)), Some(16), "{flags:?}");
    }
    assert_eq!(code(called("fsck.medfs").arg("-a").arg(s.path("gone"))), Some(8));
    assert_eq!(code(called("mkfs.medfs").arg(&image)), Some(1));
    assert_eq!(code(called("mkfs.medfs").args(["-f", "-q"]).arg(&image)), Some(0));
    assert_eq!(code(called("mount.medfs").arg(&image).arg(s.path(".")).args(["-o", "bogus"])), Some(1));
    assert_eq!(
        code(called("mount.medfs").arg(&image).arg(s.path(".")).args(["-f", "-o", "rw,nofail"])),
        Some(0)
    );
    assert_eq!(code(called("mount.medfs").arg(&image)), Some(1));
    assert_eq!(code(called("mount.medfs").arg(s.path("gone")).arg(s.path("."))), Some(32));
}

#[test]
fn mount_and_its_relatives_refuse() {
    let s = Scratch::with_volume("64M");
    let text = error(32, medfs().arg("mount").arg(s.image()).arg(s.path("nodir")));
    assert!(text.contains("nodir is not a directory"), "{text}");
    let text = error(1, medfs().args(["mount", "-o", "transport=tcp"]).arg(s.image()).arg(s.path(".")));
    assert!(text.contains("invalid value 'tcp' for transport: expected auto|dev|uring"), "{text}");
    let text = error(1, medfs().args(["mount", "-o", "fsync_mode=never"]).arg(s.image()).arg(s.path(".")));
    assert!(text.contains("for fsync_mode: expected strict|posix|nobarrier"), "{text}");
    let text = error(32, medfs().arg("umount").arg(s.path(".")));
    assert!(text.contains("is not the mount point of a medfs volume"), "{text}");
    let text = error(1, medfs().arg("sync").arg(s.image()));
    assert!(text.contains("which must be a directory of a mounted volume: Not a directory\n"), "{text}");
    let text = error(1, medfs().arg("sync").arg(s.path(".")));
    assert!(text.contains("is not on a mounted medfs volume"), "{text}");
    let text = error(1, medfs().arg("stat").arg(s.path(".")));
    assert!(text.contains("is not on a mounted medfs volume"), "{text}");
    error(1, medfs().arg("mount"));
}

#[test]
fn a_damaged_directory_is_an_error_not_a_wrong_list() {
    let s = Scratch::with_volume("64M");
    // Not locked: a process that another test starts at this moment would keep the lock for a while.
    let options = FileOptions { exclusive: false, ..FileOptions::default() };
    let dev = FileDevice::open(s.image(), options).unwrap();
    // The root inode: first block of the hot node log.
    let block = medfs_device::read_block(&dev, 0).unwrap();
    let sb = medfs_format::superblock::RawSuperblock::in_block(&block);
    let root = u64::from(sb.main_blkaddr.get());
    let mut inode = medfs_device::read_block(&dev, root).unwrap();
    inode.0[100] ^= 1;
    dev.write(root, &[&inode], WriteTag::new(Cause::Node, Temperature::Hot)).unwrap();
    drop(dev);
    let text = error(1, medfs().arg("ls").arg(s.image()));
    assert!(text.contains("i_inode_checksum"), "{text}");
    medfs().arg("fsck").arg(s.image()).assert().code(4);
}

#[test]
fn databases_that_gain_nothing_by_an_import_are_named() {
    let s = Scratch::new();
    fs::create_dir_all(s.path("tree/app")).unwrap();
    for number in 1..=7 {
        fs::write(s.path(&format!("tree/app/{number}.db")), vec![number; 4 << 20]).unwrap();
    }
    fs::write(s.path("tree/small.db"), [1; 5000]).unwrap();
    fs::write(s.path("tree/large"), vec![1; 4 << 20]).unwrap();
    let (image, tree) = (s.image(), s.path("tree"));
    let mkfs = ["mkfs", "-q", "--plain", "--size", "128M", "--from"];
    medfs().args(mkfs).args([&tree, &image]).assert().success();
    let named = |number| {
        format!("no deltas for /app/{number}.db: such a file of more than 3.4 MiB has no room for them\n")
    };
    let named: String = (1..=5).map(named).collect();
    let end = format!(
        "{named}no deltas for 2 databases more\n'medfs import --databases {}' makes room for their deltas\n",
        image.display()
    );
    let text = output(&["import", "--dry-run"], &[&image]);
    assert!(text.ends_with(&format!("can be imported\n{end}")), "{text}");
    assert!(output(&["import", "--dry-run", "--databases"], &[&image]).ends_with("can be imported\n"));
    let text = output(&["import"], &[&image]);
    assert!(text.ends_with(&end), "{text}");
    let dry = ["import", "--dry-run", "--databases"];
    assert!(output(&dry, &[&image]).ends_with("--databases makes room for the deltas of databases\n"));
    let json: serde_json::Value =
        serde_json::from_str(&output(&["import", "--dry-run", "--json"], &[&image])).unwrap();
    assert_eq!(json["without_deltas"].as_array().unwrap().len(), 7);
    assert_eq!(json["without_deltas"][6], serde_json::json!({"path": "/app/7.db"}));
    assert!(output(&["import", "--databases"], &[&s.image()]).ends_with("databases take deltas now\n"));
    assert!(output(&dry, &[&image]).ends_with("nothing to do\n"));
    output(&["export"], &[&s.image()]);
    assert!(output(&["import"], &[&s.image()]).ends_with("makes it plain F2FS again)\n"));
}

/// The import that ends an interrupted one names the databases as the first one would have.
#[test]
fn an_import_that_goes_on_names_databases() {
    let s = Scratch::new();
    fs::create_dir(s.path("tree")).unwrap();
    fs::write(s.path("tree/large.db"), vec![7; 4 << 20]).unwrap();
    let mkfs = ["mkfs", "-q", "--plain", "--size", "64M", "--from"];
    medfs().args(mkfs).args([s.path("tree"), s.image()]).assert().success();
    output(&["import"], &[&s.image()]);
    interrupted_import(&s.image());
    let text = output(&["import", "--dry-run"], &[&s.image()]);
    assert!(text.contains("an import was interrupted") && text.contains("no deltas for /large.db"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&output(&["import", "--dry-run", "--databases", "--json"], &[&s.image()]))
            .unwrap();
    assert_eq!((&json["plan"]["resumes"], &json["without_deltas"]), (&true.into(), &serde_json::json!([])));
    let text = output(&["import"], &[&s.image()]);
    assert!(
        text.contains("the interrupted import is complete") && text.contains("no deltas for /large.db"),
        "{text}"
    );
}

/// A command that a message names can be copied, whatever the path.
#[test]
fn hints_quote_paths_for_a_shell() {
    let s = Scratch::new();
    let image = s.path("my card.img");
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    let text = error(1, medfs().arg("ls").arg(&image));
    let hint = format!("what to do; \"medfs mkfs '{}'\" makes a new one\n", image.display());
    assert!(text.ends_with(&hint), "{text}");
}

#[test]
fn a_volume_is_of_the_kind_asked_for_and_becomes_the_other() {
    let s = Scratch::with_volume("64M");
    let kind = |kind: &str| {
        let json: serde_json::Value =
            serde_json::from_str(&output(&["stat", "--json"], &[&s.image()])).unwrap();
        assert_eq!(json["kind"], kind);
        medfs().arg("fsck").arg(s.image()).assert().code(0);
    };
    kind("delta");
    assert!(output(&["export"], &[&s.image()]).contains("now plain F2FS"));
    kind("plain");
    assert_f2fs_clean(&s.image());
    let again: serde_json::Value =
        serde_json::from_str(&output(&["export", "--json"], &[&s.image()])).unwrap();
    assert_eq!((&again["kind"], &again["switched"]), (&"plain".into(), &false.into()));
    assert!(output(&["import"], &[&s.image()]).contains("deltas are enabled; only medfs can mount it now"));
    kind("delta");
    medfs().args(["mkfs", "-q", "-f", "--plain", "-O", "none"]).arg(s.image()).assert().success();
    kind("plain");
    let dry = output(&["import", "--dry-run"], &[&s.image()]);
    assert!(dry.contains("1 of 1 inode to convert; no free blocks are needed, and the volume has"), "{dry}");
    assert!(dry.contains("can be imported"), "{dry}");
    let dry: serde_json::Value =
        serde_json::from_str(&output(&["import", "--dry-run", "--json"], &[&s.image()])).unwrap();
    assert_eq!((&dry["kind"], &dry["plan"]["layouts"]["inodes"]), (&"plain".into(), &1.into()));
    assert!(dry["plan"]["free_blocks"].as_u64() > dry["plan"]["needed_blocks"].as_u64(), "{dry}");
    kind("plain");
    let done: serde_json::Value =
        serde_json::from_str(&output(&["import", "--json"], &[&s.image()])).unwrap();
    assert_eq!((&done["switched"], &done["layouts"]["inodes"]), (&true.into(), &1.into()));
    kind("delta");
    assert!(output(&["import", "--databases"], &[&s.image()]).contains("is already a medfs volume"));
    let without_unit = error(1, medfs().args(["mkfs", "--size", "256"]).arg(s.path("small")));
    assert_eq!(without_unit, "medfs mkfs: a size without a unit is in bytes: --size 256M is 256 MiB\n");
    assert!(!s.path("small").exists());
    for command in ["import", "export"] {
        let text = error(1, medfs().arg(command).arg(s.path("gone")));
        assert!(text.contains("gone"), "{text}");
        fs::write(s.path("text"), [7; 20_000]).unwrap();
        let text = error(1, medfs().arg(command).arg(s.path("text")));
        assert!(text.contains("holds no F2FS volume"), "{text}");
        error(2, medfs().arg(command));
    }
}

#[test]
fn an_import_that_was_interrupted_is_named_and_ended() {
    let s = Scratch::with_volume("64M");
    interrupted_import(&s.image());
    medfs().arg("fsck").arg(s.image()).assert().code(0);
    assert!(output(&["dump"], &[&s.image()]).contains("incompat 0xd"));
    let dry: serde_json::Value =
        serde_json::from_str(&output(&["import", "--dry-run", "--json"], &[&s.image()])).unwrap();
    assert_eq!((&dry["plan"]["resumes"], &dry["plan"]["switches"]), (&true.into(), &false.into()));
    let image = s.image().display().to_string();
    let way = format!(
        "an import was interrupted: 'medfs import {image}' completes it, 'medfs export {image}' reverts it"
    );
    for more in [&["import", "--dry-run"][..], &["import", "--dry-run", "--databases"], &["stat"]] {
        let text = output(more, &[&s.image()]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.ends_with(&way), "{more:?}: {text}");
    }
    let stat: serde_json::Value = serde_json::from_str(&output(&["stat", "--json"], &[&s.image()])).unwrap();
    assert_eq!(stat["import_interrupted"], true);
    assert!(output(&["import"], &[&s.image()]).contains("the interrupted import is complete"));
    assert!(!output(&["stat"], &[&s.image()]).contains("interrupted"));
    assert!(output(&["dump"], &[&s.image()]).contains("incompat 0xc"));
    interrupted_import(&s.image());
    assert!(output(&["export"], &[&s.image()]).contains("now plain F2FS"));
    assert_f2fs_clean(&s.image());
}

/// The process ends while an import writes the first copy of the superblock, or behind it.
#[test]
fn an_import_that_was_interrupted_in_the_superblock_goes_on() {
    let now = RawSuperblock::in_block(&read_block(&open(&plain().image()), 0).unwrap()).features();
    assert!(!now.contains(DELTA_FEATURES));
    for done in 0..3 {
        for command in ["import", "export"] {
            let s = plain();
            let mut block = read_block(&open(&s.image()), 0).unwrap();
            let mut sb = RawSuperblock::in_block(&block).clone();
            sb.become_delta_volume();
            let steps = sb.steps_from(RawSuperblock::in_block(&block));
            assert_eq!(steps.len(), 3);
            *RawSuperblock::in_block_mut(&mut block) = steps[done].clone();
            let image = fs::File::options().write(true).open(s.image()).unwrap();
            image.write_all_at(&block.0, 0).unwrap();
            drop(image);
            let text = output(&["import", "--dry-run"], &[&s.image()]);
            assert!(text.contains("an import was interrupted"), "{done}: {text}");
            let text = output(&[command], &[&s.image()]);
            assert_eq!(text.contains("deltas are enabled"), command == "import", "{done}: {text}");
            medfs().arg("fsck").arg(s.image()).assert().code(0);
        }
    }
}

/// A copy with a fault of its own is not what an import leaves.
#[test]
fn an_import_refuses_a_damaged_copy_of_the_superblock() {
    let s = plain();
    let mut block = read_block(&open(&s.image()), 0).unwrap();
    let sb = RawSuperblock::in_block_mut(&mut block);
    (sb.magic, sb.root_ino) = (DELTA_MAGIC.into(), 7.into());
    fs::File::options().write(true).open(s.image()).unwrap().write_all_at(&block.0, 0).unwrap();
    let text = error(1, medfs().arg("import").arg(s.image()));
    assert!(text.contains("has 1 fault, and nothing was changed"), "{text}");
}

#[test]
fn a_probe_tells_udev_what_is_there() {
    let s = Scratch::new();
    let make = |more: &[&str]| {
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        let mut mkfs = medfs();
        mkfs.args(["mkfs", "-q", "-f", "--size", "64M", "-l", "my card", "--uuid", uuid]);
        mkfs.args(more).arg(s.image()).assert().success();
        output(&["probe", "--udev"], &[&s.image()])
    };
    let expected = |kind| {
        format!(
            "ID_FS_TYPE={kind}\nID_FS_USAGE=filesystem\nID_FS_VERSION=1.15\n\
             ID_FS_UUID=01234567-89ab-cdef-0123-456789abcdef\nID_FS_UUID_ENC=01234567-89ab-cdef-0123-456789abcdef\n\
             ID_FS_LABEL=my_card\nID_FS_LABEL_ENC=my\\x20card\n"
        )
    };
    assert_eq!(make(&[]), expected("medfs"));
    assert_eq!(make(&["--plain"]), expected("f2fs"));
    for (name, size) in [("none", 0), ("short", 5000), ("zeros", 1 << 20)] {
        fs::write(s.path(name), vec![0; size]).unwrap();
        medfs().arg("probe").arg(s.path(name)).assert().code(2).stdout("").stderr("");
    }
    error(1, medfs().arg("probe").arg(s.path("gone")));
}

/// Runs the program with this as its standard output: its exit code and what it said.
fn printing_to(
    out: impl Into<std::process::Stdio>,
    command: &str,
    args: &[&str],
    image: &Path,
) -> (Option<i32>, String) {
    let mut run = System::new(binary());
    let ran = run.arg(command).args(args).arg(image).stdout(out).output().unwrap();
    (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
}

#[test]
fn what_cannot_be_printed_is_an_error_and_a_reader_that_leaves_is_none() {
    let s = Scratch::with_volume("64M");
    for (command, args, code) in [
        ("ls", &[][..], 1),
        ("ls", &["--json"], 1),
        ("dump", &[], 1),
        ("stat", &[], 1),
        ("stat", &["--json"], 1),
        ("probe", &[], 1),
        ("fsck", &[], 8),
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let expected = format!("medfs {command}: cannot write to standard output: No space left on device\n");
        assert_eq!(printing_to(full, command, args, &s.image()), (Some(code), expected), "{args:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(
            printing_to(writer, command, args, &s.image()),
            (Some(0), String::new()),
            "{command} {args:?}"
        );
    }
}

#[test]
fn a_conversion_that_cannot_print_its_report_is_complete_and_says_so() {
    let s = Scratch::with_volume("64M");
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let why = "but its report is not complete: cannot write to standard output: No space left on device\n";
    for (command, args, kind) in [
        ("export", &[][..], "f2fs"),
        ("import", &[], "medfs"),
        ("export", &["--json"], "f2fs"),
        ("import", &["--json"], "medfs"),
    ] {
        let expected = format!("medfs {command}: the {command} is complete, {why}");
        assert_eq!(printing_to(full(), command, args, &s.image()), (Some(1), expected), "{args:?}");
        assert!(output(&["probe"], &[&s.image()]).contains(&format!("TYPE={kind}\n")), "{command} {args:?}");
        medfs().arg("fsck").arg(s.image()).assert().code(0);
    }
    let (code, text) = printing_to(full(), "mkfs", &["--force"], &s.image());
    assert_eq!((code, text), (Some(1), format!("medfs mkfs: the volume is made, {why}")));
    std::os::unix::fs::FileExt::write_all_at(
        &File::options().write(true).open(s.image()).unwrap(),
        &[0xa5; 4096],
        0,
    )
    .unwrap();
    let (code, text) = printing_to(full(), "fsck", &["--repair"], &s.image());
    assert_eq!((code, text), (Some(1), format!("medfs fsck: the repair is complete, {why}")));
    medfs().arg("fsck").arg(s.image()).assert().code(0);
}

#[test]
fn help_fits_a_page() {
    let commands =
        [&["mkfs"][..], &["mount"], &["stat"], &["replay"], &["trace", "record"], &["flash", "replay"]];
    for command in commands {
        let assert = medfs().args(command).arg("--help").assert().success();
        let help = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{command:?}: {line}");
        }
    }
    let mkfs = output(&["mkfs", "--help"], &[]);
    assert!(mkfs.contains("compression"), "every feature that --features takes is named: {mkfs}");
}

#[test]
fn help_and_shell_support_exist() {
    let help = output(&["--help"], &[]);
    for command in [
        "mkfs", "mount", "umount", "fsck", "import", "export", "dump", "get", "put", "ls", "stat", "sync",
        "demo",
    ] {
        assert!(help.contains(&format!("  {command} ")), "{command}");
        medfs().arg(command).arg("--help").assert().success();
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(output(&["completions", shell], &[]).contains("medfs"));
    }
    let s = Scratch::new();
    medfs().arg("man").arg(s.path("man")).assert().success();
    assert!(
        fs::read_to_string(s.path("man/medfs-mkfs.1")).unwrap().contains("over-provisioning")
            || s.path("man/medfs.1").exists()
    );
    for page in ["medfs-import.1", "medfs-export.1"] {
        assert!(s.path("man").join(page).exists(), "{page}");
    }
    assert!(output(&["--version"], &[]).starts_with("medfs "));
}

#[test]
fn what_dump_shows_is_json_too() {
    let s = Scratch::with_volume("64M");
    let parsed = |what: &[&str]| -> Vec<serde_json::Value> {
        let image = s.image();
        let text = output(&[&["dump", "--json", image.to_str().unwrap()], what].concat(), &[]);
        serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(parsed(&["super"])[0]["root_ino"], 3);
    assert_eq!(parsed(&["path", "/"])[0]["format"], 1);
    let nat = parsed(&["nat"]);
    assert!(nat.len() > 1 && nat.iter().any(|entry| entry["nid"] == 3), "{nat:?}");
}

#[test]
fn dump_shows_the_structures() {
    let s = Scratch::with_volume("64M");
    let image = s.image();
    assert!(output(&["dump"], &[&image]).contains("segment_count_main"));
    let dump = |what: &[&str]| {
        let assert = medfs().arg("dump").arg(&image).args(what).assert().success();
        String::from_utf8(assert.get_output().stdout.clone()).unwrap()
    };
    assert!(dump(&["checkpoint"]).contains("checkpoint_ver"));
    assert_eq!(dump(&["nat"]).lines().count(), 5, "a header, two reserved numbers, root and lost+found");
    assert!(dump(&["sit"]).contains("HotNode"));
    assert!(dump(&["inode", "3"]).contains("Directory"));
    assert!(dump(&["path", "/lost+found"]).contains("Directory"));
    let text = error(1, medfs().arg("dump").arg(&image).args(["path", "/gone"]));
    assert!(text.contains("gone"), "{text}");
    error(1, medfs().arg("dump").arg(&image).args(["sit", "4000000000"]));
}

/// docs/JSON.md: every object that is printed has the version of its form.
#[test]
fn json_has_the_version_of_its_form() {
    let s = Scratch::with_volume("64M");
    let card = s.path("card");
    medfs().args(["flash", "create", "--size", "32M"]).arg(&card).assert().success();
    fs::write(s.path("log"), "").unwrap();
    let (undo, trace, log, image) = (s.path("undo"), s.path("trace"), s.path("log"), s.image());
    let commands: [(&[&str], &[&Path]); 9] = [
        (&["fsck", "--json"], &[&image]),
        (&["fsck", "--json", "--repair", "--undo"], &[&undo, &image]),
        (&["flash", "stat", "--json"], &[&card]),
        (&["flash", "check", "--json"], &[&card]),
        (&["flash", "profiles", "--json"], &[]),
        (&["flash", "profiles", "--json", "emmc"], &[]),
        (&["lab", "list", "--json"], &[]),
        (&["trace", "import", "--json", "strace", "--out"], &[&trace, &log]),
        (&["stat", "--json"], &[&image]),
    ];
    for (args, paths) in commands {
        let json: serde_json::Value = serde_json::from_str(&output(args, paths)).unwrap();
        let all = json.as_array().cloned().unwrap_or(vec![json]);
        assert!(!all.is_empty() && all.iter().all(|object| object["format"].is_u64()), "{args:?}: {all:?}");
    }
}
