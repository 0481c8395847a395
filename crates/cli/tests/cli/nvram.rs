//! `medfs nvram`: a memory is made ready, holds fsyncs of a volume whose daemon was killed, and is shown and checked.

use crate::boot::patch;
use crate::common::{error, medfs, open};
use crate::damaged::{blocks, is_inode};
use medfs::{FileKind, Files, MountOptions, NewFile, SystemClock, Volume, nvram_journal, open_with_nvram};
use medfs_device::{Nvram, NvramAccess, open_nvram};
use medfs_format::nvram::{Found, scan};
use serde_json::Value;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const NEW: NewFile = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };

const WRITES: NvramAccess = NvramAccess { read_only: false, volatile: false };

/// A program that another test starts has this one's files, and their locks, until it runs.
fn memory_at(path: &Path) -> Arc<dyn Nvram> {
    let mut opened = open_nvram(path, 0, None, WRITES);
    for _ in 0..100 {
        if !matches!(&opened, Err(error) if error.kind() == ErrorKind::ResourceBusy) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        opened = open_nvram(path, 0, None, WRITES);
    }
    opened.expect("the memory opens")
}

fn opened(image: &Path, memory: &Path) -> Volume {
    let nvram = memory_at(memory);
    open_with_nvram(Arc::new(open(image)), nvram, MountOptions::default(), Arc::new(SystemClock))
        .expect("mounts")
}

/// A new volume and a memory that is ready for it, in a directory of their own.
fn card_with_memory() -> (TempDir, [PathBuf; 2]) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let [image, memory] = ["card.img", "nvram"].map(|name| dir.path().join(name));
    medfs().args(["mkfs", "--quiet", "--size", "64M"]).arg(&image).assert().success();
    medfs().args(["nvram", "init", "--size", "1M"]).arg(&memory).assert().success();
    (dir, [image, memory])
}

/// Flips a bit of the only place where a file has these bytes.
fn flip(file: &Path, what: &[u8]) {
    let mut bytes = std::fs::read(file).expect("the file");
    let mut places =
        bytes.windows(what.len()).enumerate().filter(|(_, some)| *some == what).map(|(at, _)| at);
    let at = places.next().expect("content");
    assert!(places.next().is_none(), "there is another");
    bytes[at] ^= 1;
    std::fs::write(file, bytes).expect("written");
}

/// Fsyncs ten files of a new volume into a memory, and leaves it as a crash does.
fn crashed(image: &Path, memory: &Path) {
    let v = opened(image, memory);
    for n in 0..10 {
        let file = v.create(v.root(), format!("file {n}").as_bytes(), &NEW).expect("made").ino;
        v.write(file, 0, b"some words").expect("written");
        v.fsync(file, false).expect("fsynced");
    }
}

#[test]
fn a_memory_is_made_ready_shown_and_checked() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let [image, memory, other] = ["card.img", "nvram", "other.img"].map(|name| dir.path().join(name));
    for volume in [&image, &other] {
        medfs().args(["mkfs", "--quiet", "--size", "64M"]).arg(volume).assert().success();
    }
    let run = |verb: &str, more: &[&Path]| medfs().args(["nvram", verb]).args(more).assert();
    let said = |assert: assert_cmd::assert::Assert| {
        let output = assert.get_output();
        String::from_utf8([output.stdout.clone(), output.stderr.clone()].concat()).expect("UTF-8")
    };
    run("info", &[&memory]).failure();
    medfs().args(["nvram", "init", "--size", "1M"]).arg(&memory).assert().success();
    let text = error(1, medfs().args(["nvram", "init", "--size", "16M"]).arg(&memory));
    assert!(text.contains("has 1 MiB, not 16 MiB: leave --size out to use it as it is"), "{text}");
    assert!(said(run("info", &[&memory]).success()).contains("ready for a volume"));
    crashed(&image, &memory);

    let shown: Value = serde_json::from_str(&said(
        medfs().args(["nvram", "info", "--json"]).arg(&memory).assert().success(),
    ))
    .expect("JSON");
    assert_eq!(
        (&shown["records"], &shown["files"], &shown["holds"]),
        (&10.into(), &10.into(), &"journal".into())
    );
    assert!(said(run("check", &[&memory, &image]).success()).contains("10 records can be recovered"));
    // The two may be told apart where they are swapped, and the advice names the memory.
    let text = said(run("check", &[&image, &memory]).failure());
    let (image_shown, memory_shown) = (image.display(), memory.display());
    let swapped = format!(
        "is a volume, and the NVRAM is named first: 'medfs nvram check {memory_shown} {image_shown}'"
    );
    assert!(text.contains(&swapped), "{text}");
    let text = said(run("check", &[&memory, &other]).failure());
    let discard = format!("discard all fsyncs in that one with 'medfs nvram init --force {memory_shown}'");
    assert!(text.contains("belongs to the volume") && text.contains(&discard), "{text}");
    // What fsck, stat and a repair say while fsyncs lie there: once, with the way on.
    let text = said(medfs().args(["fsck", "--repair"]).arg(&image).assert().code(4));
    let repair = format!("'medfs fsck --repair --nvram {memory_shown} {image_shown}'");
    assert!(text.matches("F0107").count() == 1 && text.contains(&repair), "{text}");
    let stat: Value =
        serde_json::from_str(&said(medfs().args(["stat", "--json"]).arg(&image).assert().success()))
            .expect("JSON");
    assert_eq!(stat["nvram"].as_str(), memory.to_str());
    let text = said(medfs().arg("stat").arg(&image).assert().success());
    assert!(text.contains("'medfs mount -o nvram="), "{text}");
    assert!(said(medfs().arg("dump").arg(&image).assert().success()).contains("may lie in the NVRAM"));
    assert!(said(run("init", &[&memory]).failure()).contains("may hold fsyncs of the volume"));

    // A bit of the sixth record, of ten: those behind it show that it is damaged.
    let mut bytes = std::fs::read(&memory).expect("the memory");
    let at =
        bytes.windows(10).enumerate().filter(|(_, some)| some == b"some words").nth(5).expect("content").0;
    bytes[at] ^= 1;
    std::fs::write(&memory, bytes).expect("written");
    assert!(said(run("info", &[&memory]).failure()).contains("damaged"));
    assert!(said(run("check", &[&memory, &image]).failure()).contains("is damaged"));
    medfs().args(["nvram", "init", "--force"]).arg(&memory).assert().success();
    assert!(said(run("info", &[&memory]).success()).contains("ready for a volume"));
    assert!(said(run("check", &[&memory, &image]).failure()).contains("is blank"));
}

#[test]
fn what_is_no_memory_is_left_alone() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = dir.path().join("a letter");
    std::fs::write(&file, vec![b'x'; 1 << 17]).expect("written");
    let text = error(1, medfs().args(["nvram", "init"]).arg(&file));
    assert!(text.contains("data other than a journal") && text.contains("--force"), "{text}");
    assert!(std::fs::read(&file).expect("the letter").iter().all(|&byte| byte == b'x'));
    let image = dir.path().join("card.img");
    medfs().args(["mkfs", "--quiet", "--size", "64M"]).arg(&image).assert().success();
    let text = error(1, medfs().args(["nvram", "init"]).arg(&image));
    assert!(text.contains("holds an F2FS volume: use --force to destroy that"), "{text}");
    std::fs::write(&file, b"short").expect("written");
    let text = error(1, medfs().args(["nvram", "info"]).arg(&file));
    assert!(text.contains("at least 65536"), "{text}");
}

/// A block that a record starts from changed: `check` says so, and a repair gives up that page alone.
#[test]
fn a_repair_replays_a_memory_and_gives_up_what_is_not_what_it_was() {
    let (dir, [image, memory]) = card_with_memory();
    let undo = dir.path().join("undo");
    let page = |n: u64| -> Vec<u8> {
        (0..512u64).flat_map(|k| (k * 8 + n).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect()
    };
    let v = opened(&image, &memory);
    let file = v.create(v.root(), b"letters", &NEW).expect("made").ino;
    for n in 0..3 {
        v.write(file, n * 4096, &page(n)).expect("written");
    }
    v.close().expect("closed");
    drop(v);
    let v = opened(&image, &memory);
    for n in 0..3 {
        v.write(file, n * 4096 + 10, b"fsynced").expect("written");
    }
    v.fsync(file, false).expect("fsynced");
    drop(v);
    flip(&image, &page(1)[2000..2100]);
    let before = std::fs::read(&memory).expect("the memory");

    let text = error(1, medfs().args(["nvram", "check"]).arg(&memory).arg(&image));
    assert!(text.contains("page 1 of inode") && text.contains("(letters)"), "{text}");
    medfs().args(["fsck", "--repair"]).arg(&image).assert().code(4);
    let repair = medfs()
        .args(["fsck", "--repair", "--undo"])
        .arg(&undo)
        .arg("--nvram")
        .args([&memory, &image])
        .assert();
    let output = repair.code(1).get_output().stdout.clone();
    let text = String::from_utf8(output).expect("UTF-8");
    assert!(text.contains("dropped of the NVRAM: ") && text.contains("page 1 of inode"), "{text}");
    assert!(std::fs::read(&memory).expect("the memory") == before);
    let copied = medfs().args(["get"]).arg(&image).args(["/letters", "-"]).assert().success();
    let content = copied.get_output().stdout.clone();
    let has = [0, 1, 2].map(|n| &content[n * 4096 + 10..n * 4096 + 17] == b"fsynced");
    assert_eq!(has, [true, false, true]);
    // Taken back, it waits for the memory again.
    medfs().args(["fsck", "--restore"]).arg(&undo).arg(&image).assert().success();
    error(1, medfs().args(["nvram", "check"]).arg(&memory).arg(&image));
}

/// A record in the midst is damaged: those behind it go too, and their number is said.
#[test]
fn records_behind_a_damaged_one_are_counted() {
    let (_dir, [image, memory]) = card_with_memory();
    crashed(&image, &memory);
    let journal = nvram_journal(&*memory_at(&memory));
    let Ok(Found::Meta(meta)) = journal else { panic!("no journal") };
    let mut bytes = std::fs::read(&memory).expect("the memory");
    let records: Vec<u64> = scan(&bytes, &meta).expect("sound").records.iter().map(|(at, _)| *at).collect();
    assert!(records.len() > 5, "{records:?}");
    bytes[records[2] as usize + 20] ^= 1;
    std::fs::write(&memory, bytes).expect("written");
    let repair = medfs().args(["fsck", "--repair", "--nvram"]).args([&memory, &image]).assert().code(1);
    let text = String::from_utf8(repair.get_output().stdout.clone()).expect("UTF-8");
    let told = format!("a repair will drop of the NVRAM: {} records of ", records.len() - 3);
    assert!(text.contains(&told) && text.contains(" behind a damaged one, as none counts"), "{text}");
}

/// Overwrites the blocks of an image that hold the inode of a name.
fn lose_inode(image: &Path, name: &str) {
    let lost = blocks(image, |block| is_inode(block, name));
    assert!(!lost.is_empty(), "{name}");
    lost.iter().for_each(|&at| patch(image, at, 0, &[0; 4096]));
}

/// The rest of the volume is damaged, too: all costs are told before anything is written, and no fsync of another
/// file is lost.
#[test]
fn a_damaged_volume_is_repaired_before_its_fsyncs_are_replayed_from_a_memory() {
    let (_dir, [image, memory]) = card_with_memory();
    let v = opened(&image, &memory);
    let files = ["lost", "kept"].map(|name| v.create(v.root(), name.as_bytes(), &NEW).expect("made").ino);
    for ino in files {
        let content: Vec<u8> =
            (0..9000u32).map(|n| (n.wrapping_mul(2_654_435_761 + ino) >> 13) as u8).collect();
        v.write(ino, 0, &content).expect("written");
    }
    v.close().expect("closed");
    drop(v);
    let v = opened(&image, &memory);
    for ino in files {
        v.write(ino, 0, b"fsynced").expect("written");
        v.fsync(ino, false).expect("fsynced");
    }
    drop(v);
    lose_inode(&image, "lost");
    let said = |command: &mut assert_cmd::Command, code| {
        let output = command.assert().code(code).get_output().clone();
        String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8")
    };
    let text = said(medfs().arg("fsck").arg(&image), 4);
    assert!(
        text.contains("F0107") && text.contains("F0702") && text.contains("a repair cannot keep 1 file"),
        "{text}"
    );
    assert!(text.contains("' repairs it and brings them back"), "{text}");
    let text = said(medfs().args(["fsck", "-p"]).arg(&image), 4);
    assert!(text.contains("NOT REPAIRED, as fsyncs may lie in an NVRAM"), "{text}");
    let error = said(medfs().args(["fsck", "-p", "--nvram"]).args([&memory, &image]), 16);
    assert!(error.contains("cannot be used with"), "{error}");
    let mount = said(medfs().args(["nvram", "check"]).args([&memory, &image]), 1);
    assert!(mount.contains("what was fsynced"), "{mount}");
    let text = said(medfs().args(["fsck", "--repair", "--nvram"]).args([&memory, &image]), 1);
    let [cost, dropped] = ["a repair cannot keep 1 file", "a repair will drop of the NVRAM: "]
        .map(|words| text.find(words).unwrap_or_else(|| panic!("{words}: {text}")));
    let done = text.find("dropped of the NVRAM: ").expect("what was dropped");
    assert!(cost < done && dropped < done, "{text}");
    let copied = medfs().args(["get"]).arg(&image).args(["/kept", "-"]).assert().success();
    assert_eq!(&copied.get_output().stdout[..7], b"fsynced");
}

/// The journals of the checkpoint are zeros, and with them entries of the NAT: records of files that it lacks were
/// passed by, the memory was emptied, and nothing was left to rebuild the entries from.
#[test]
fn lost_entries_of_the_nat_cost_no_fsync_in_a_memory() {
    let (_dir, [image, memory]) = card_with_memory();
    let v = opened(&image, &memory);
    let files = ["one", "two"].map(|name| v.create(v.root(), name.as_bytes(), &NEW).expect("made").ino);
    for ino in files {
        v.write(ino, 0, &[7; 9000]).expect("written");
    }
    v.close().expect("closed");
    drop(v);
    let v = opened(&image, &memory);
    for ino in files {
        v.write(ino, 0, b"fsynced").expect("written");
        v.fsync(ino, false).expect("fsynced");
    }
    drop(v);
    let bytes = std::fs::read(&image).expect("the image");
    let version = |block: usize| u64::from_le_bytes(bytes[block * 4096..][..8].try_into().expect("eight"));
    let pack = if version(512) > version(1024) { 512 } else { 1024 };
    for len in [512, 4096] {
        std::fs::write(&image, &bytes).expect("the image");
        patch(&image, pack as u64 + 1, 0, &vec![0; len]);
        let before = std::fs::read(&memory).expect("the memory");
        let mount = medfs().args(["nvram", "check"]).args([&memory, &image]).assert().code(1);
        let text = String::from_utf8_lossy(&mount.get_output().stderr).into_owned();
        assert!(text.contains(if len == 512 { "field block_addr" } else { "field summaries" }), "{text}");
        assert!(std::fs::read(&memory).expect("the memory") == before);
        medfs().args(["fsck", "--repair", "--nvram"]).args([&memory, &image]).assert().code(1);
        for name in ["/one", "/two"] {
            let copied = medfs().args(["get"]).arg(&image).args([name, "-"]).assert().success();
            assert_eq!(&copied.get_output().stdout[..8], b"fsynced\x07", "{name}");
        }
    }
}

/// A power cut with `nvram=` is no damage: the mount at boot has the memory.
#[test]
fn a_check_at_boot_leaves_fsyncs_in_a_memory_to_the_mount() {
    let (_dir, [image, memory]) = card_with_memory();
    crashed(&image, &memory);
    let before = std::fs::read(&image).expect("the image");
    let check = medfs().args(["fsck", "-p"]).arg(&image).assert().code(0);
    let text = String::from_utf8(check.get_output().stdout.clone()).expect("UTF-8");
    assert!(text.contains("left to the mount, which brings the fsyncs in the NVRAM back"), "{text}");
    assert!(std::fs::read(&image).expect("the image") == before);
}
