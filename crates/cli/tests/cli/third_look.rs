//! What a person meets who looks a third time: disks that fill up, cards that were overwritten or fail here and there,
//! and words in another order than the command has them.

use crate::common::*;
use crate::damaged::{bad, block_of, blocks, junk_inode, page, volume};
use crate::newcomer::{says, small_disk};
use crate::second_look::with_nodes;
use medfs::{FileKind, Files};
use medfs_format::node::footer;
use medfs_format::superblock::RawSuperblock;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command as System;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// Zeros blocks of the image.
fn zero(s: &Scratch, at: u64, count: u64) {
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    image.write_all_at(&vec![0; count as usize * PAGE], at * PAGE as u64).unwrap();
}

/// Zeros the inode of the root directory.
fn lose_root(s: &Scratch) {
    for at in blocks(&s.image(), |block| footer(block).nid.get() == 3 && footer(block).ino.get() == 3) {
        zero(s, at, 1);
    }
}

/// A directory of files that do not compress, 45 MB in all.
fn make_files(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for file in 0..450u32 {
        let byte = |n: u32| ((n ^ file << 20).wrapping_mul(2_654_435_761) >> 13) as u8;
        fs::write(dir.join(format!("f{file}")), (0..100_000).map(byte).collect::<Vec<_>>()).unwrap();
    }
}

/// What a command shows on a terminal.
fn shows(s: &Scratch, command: &str, variables: &[(&str, &str)]) -> String {
    let mut script = System::new("script");
    script.args(["--quiet", "--return", "--command"]).env_remove("RUST_LOG");
    script.arg(command.replace("medfs ", &format!("'{}' ", binary().display()))).arg("/dev/null");
    script.envs(variables.iter().copied());
    let output = script.current_dir(s.path("")).output().expect("script, of Debian's bsdutils");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The program under one of its other names.
fn called(name: &str) -> System {
    let mut command = System::new(binary());
    command.arg0(format!("/sbin/{name}"));
    command
}

#[test]
fn what_put_says_that_it_copied_is_there() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let _disk = small_disk(&s, "20m");
    make_files(&s.path("src"));
    for size in ["120M", "400M"] {
        says(&s, 0, &format!("mkfs -q --size {size} tiny/image"));
        let text = says(&s, 1, "put -r tiny/image src/. /");
        let there = says(&s, 0, "ls tiny/image").lines().filter(|name| name.starts_with('f')).count();
        assert_eq!(there, 0);
        assert!(text.contains("nothing was copied"), "{size}: {text}");
        assert!(text.contains("the disk that holds it is full"), "{size}: {text}");
        assert!(text.contains("warning: tiny/image may grow to "), "{size}: {text}");
        assert!(!text.contains("partial copy"), "{size}: {text}");
        fs::remove_file(s.path("tiny/image")).unwrap();
    }
}

#[test]
fn a_message_has_its_line_for_itself() {
    if !can_mount() {
        return;
    }
    let s = Scratch::new();
    let _disk = small_disk(&s, "20m");
    make_files(&s.path("src"));
    says(&s, 0, "mkfs -q --size 400M tiny/image");
    let text = shows(&s, "medfs put -r tiny/image src/. /", &[]);
    assert!(text.contains("copying"), "{text}");
    let ends = |line: &str| line.rsplit(['\r', 'K']).next().unwrap_or_default().starts_with("medfs");
    let lines: Vec<&str> =
        text.lines().filter(|line| line.contains("medfs: ") || line.contains("medfs put")).collect();
    assert!(lines.len() >= 2 && lines.iter().all(|line| ends(line)), "{lines:?}");
}

#[test]
fn a_terminal_without_utf8_gets_a_bar_of_its_characters() {
    let s = Scratch::with_volume("64M");
    let variables = |language| [("LC_ALL", language), ("LC_CTYPE", ""), ("LANG", "")];
    let plain = shows(&s, "medfs fsck image", &variables("C"));
    assert!(plain.contains("checking") && plain.is_ascii(), "{plain}");
    assert!(!shows(&s, "medfs fsck image", &variables("C.UTF-8")).is_ascii());
}

#[test]
fn a_salvage_without_room_for_its_temporary_file_names_the_directory() {
    if !can_mount() {
        return;
    }
    let s = volume();
    lose_root(&s);
    let _disk = small_disk(&s, "8k");
    let salvage = || {
        let mut command = medfs();
        command.args(["get", "--salvage", "image", "out"]).current_dir(s.path(""));
        command
    };
    let text = error(1, salvage().env("TMPDIR", s.path("tiny")));
    let tiny = s.path("tiny").display().to_string();
    assert!(text.contains(&tiny) && text.contains("TMPDIR") && text.contains("nothing was copied"), "{text}");
    assert!(!text.contains("nothing can be salvaged"), "{text}");
    let text = error(1, salvage().env("TMPDIR", s.path("none")));
    assert!(text.contains("/none") && text.contains("TMPDIR"), "{text}");
    assert!(says(&s, 0, "get --help").contains("TMPDIR") && says(&s, 0, "help damaged").contains("TMPDIR"));
}

#[test]
fn packages_are_installed_into_a_directory_that_is_not_there_yet() {
    let s = Scratch::new();
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/install");
    let mut install = System::new("timeout");
    install.arg("30").arg(tool).args(["install", "--prefix", "/usr", "--program"]).arg(binary());
    let done = install.env("DESTDIR", s.path("not/yet")).output().unwrap();
    assert!(done.status.success(), "{:?}", done.status);
    assert!(s.path("not/yet/usr/bin/medfs").exists());
}

#[test]
fn each_command_names_both_ways_to_the_files_of_a_cut_image() {
    let s = volume();
    fs::File::options().write(true).open(s.image()).unwrap().set_len(60 << 20).unwrap();
    fs::create_dir(s.path("dir")).unwrap();
    for (words, code) in [
        ("stat image", 1),
        ("dump image", 1),
        ("import --dry-run image", 1),
        ("export image", 1),
        ("mount --foreground image dir", 32),
    ] {
        let text = says(&s, code, words);
        assert!(
            text.contains("image was cut short: the last 4 MiB of its 64 MiB are missing"),
            "{words}: {text}"
        );
        assert!(text.contains("'medfs get -r image / DIRECTORY' copies what is left"), "{words}: {text}");
    }
}

#[test]
fn dump_says_of_damage_what_it_is_and_which_file_is_meant() {
    let s = volume();
    junk_inode(&s.image(), "a");
    let text = says(&s, 1, "dump image path /dir/a");
    assert!(text.contains("/dir/a: ") && text.contains("--salvage"), "{text}");
    lose_root(&s);
    let text = says(&s, 1, "dump image path /dir");
    assert!(text.contains("damaged") && !text.contains("no such file"), "{text}");
    let text = says(&s, 1, "dump image path /none");
    assert!(text.contains("damaged") && !text.contains("no such file"), "{text}");
}

#[test]
fn dump_says_that_a_checkpoint_is_rebuilt() {
    let s = volume();
    let warning = "warning: neither checkpoint pack is usable";
    assert!(!says(&s, 0, "dump image checkpoint").contains(warning));
    zero(&s, 512, 1024);
    let text = says(&s, 0, "dump image checkpoint");
    assert!(text.contains(warning), "{text}");
}

#[test]
fn an_import_of_a_damaged_volume_says_what_comes_first() {
    let s = Scratch::with_volume("64M");
    fs::write(s.path("file"), "content").unwrap();
    says(&s, 0, "put image file /");
    junk_inode(&s.image(), "file");
    let text = says(&s, 1, "import --dry-run image");
    assert!(
        text.contains("copy the files first, 'medfs get -r image / DIRECTORY', then 'medfs fsck --repair"),
        "{text}"
    );
}

#[test]
fn a_volume_that_was_formatted_by_mistake_is_salvaged() {
    let s = Scratch::with_volume("256M");
    fs::create_dir(s.path("src")).unwrap();
    (0..300).for_each(|n| fs::write(s.path(&format!("src/{n}")), page(1, n)).unwrap());
    says(&s, 0, "put -r image src /");
    let made = System::new("mkfs.ext4").args(["-q", "-F", "-E", "nodiscard"]).arg(s.image()).output();
    if !made.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: mkfs.ext4 is not installed");
        return;
    }
    for (words, code) in [("ls image", 1), ("get -r image / out", 1), ("stat image", 1), ("fsck image", 8)] {
        let text = says(&s, code, words);
        assert!(
            text.contains("holds an ext2/3/4 file system") && text.contains("by mistake"),
            "{words}: {text}"
        );
        assert!(text.contains("'medfs get --salvage image DIRECTORY'"), "{words}: {text}");
    }
    let text = says(&s, 1, "get --salvage image all");
    // A check does not look into it, and so lists nothing.
    assert!(!text.contains("'medfs fsck image' lists them"), "{text}");
    assert!(text.contains("an ext2/3/4 file system was made over this volume and overwrote parts"), "{text}");
    assert_eq!(fs::read(s.path("all/src/7")).unwrap(), page(1, 7));
}

#[test]
fn fsck_medfs_has_the_options_of_its_page() {
    let s = volume();
    junk_inode(&s.image(), "a");
    let code = |words: &[&str]| called("fsck.medfs").args(words).current_dir(s.path("")).output().unwrap();
    let found = code(&["--json", "-n", "image"]);
    assert_eq!(found.status.code(), Some(4), "{found:?}");
    assert!(found.stdout.starts_with(b"{"), "{found:?}");
    let mended = code(&["-C0", "--repair", "--undo", "undo", "image"]);
    assert_eq!(mended.status.code(), Some(1), "{mended:?}");
    let back = code(&["--restore=undo", "image"]);
    assert_eq!(back.status.code(), Some(0), "{back:?}");
    let wrong = code(&["--undo", "undo", "image"]);
    assert_eq!(wrong.status.code(), Some(16), "{wrong:?}");
}

#[test]
fn a_mount_whose_terminal_closes_is_unmounted() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    fs::create_dir(s.path("dir")).unwrap();
    // Below nohup it would ignore the signal.
    let mut daemon = System::new("env");
    daemon.arg("--default-signal=HUP").arg(binary()).args(["mount", "--foreground", "image", "dir"]);
    let mut daemon = daemon.current_dir(s.path("")).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while fs::metadata(s.path("dir/lost+found")).is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::write(s.path("dir/file"), "content").unwrap();
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let ended = daemon.wait().unwrap();
    let _ = System::new("umount").arg("-l").arg(s.path("dir")).stderr(std::process::Stdio::null()).status();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert_eq!(says(&s, 0, "get image /file -"), "content");
}

#[test]
fn where_superblocks_cannot_be_read_the_salvage_is_named() {
    let s = volume();
    let map = bad(&s, &[0, 1]);
    for words in ["get -r --map map image / out", "ls --map map image"] {
        let text = says(&s, 1, words);
        assert!(text.contains("cannot read image: ") && text.contains("--salvage"), "{words}: {text}");
    }
    says(&s, 0, "get --salvage --map map image all");
    assert_eq!(fs::read(s.path("all/dir/b")).unwrap(), page(2, 0));
    let map = map.file_name().unwrap().to_str().unwrap();
    assert_eq!(map, "map");
    // Zeros that were never read are not called damaged.
    bad(&s, &[0]);
    let text = says(&s, 0, "ls --map map image");
    assert!(text.contains("cannot be read") && !text.contains("field magic"), "{text}");
}

#[test]
fn a_repair_of_lost_superblocks_comes_behind_the_copy_and_has_the_map() {
    let s = volume();
    zero(&s, 0, 2);
    bad(&s, &[9000]);
    let text = says(&s, 1, "get -r --map map image / out");
    assert!(text.contains("then 'medfs fsck --repair --undo FILE --map map image' rebuilds them"), "{text}");
}

#[test]
fn no_repair_is_advised_while_files_are_copied() {
    let s = volume();
    let first = u64::from(
        RawSuperblock::in_block(&medfs_device::read_block(&open(&s.image()), 0).unwrap()).cp_blkaddr.get(),
    );
    let dev = open(&s.image());
    let version = |at| {
        let block = medfs_device::read_block(&dev, at).unwrap();
        medfs_format::checkpoint::RawCheckpoint::in_block(&block).checkpoint_ver.get()
    };
    let at = if version(first) > version(first + 512) { first } else { first + 512 };
    drop(dev);
    zero(&s, at, 1);
    let text = says(&s, 0, "get -r image / out");
    assert!(text.contains("one of the two headers") && text.contains("'medfs help damaged'"), "{text}");
    assert!(!text.contains("fsck --repair"), "{text}");
}

#[test]
fn a_name_with_a_slash_is_a_directory_to_get_too() {
    let s = volume();
    let text = says(&s, 1, "get image /c none/");
    assert!(text.contains("none/ is not a directory") && !s.path("none").exists(), "{text}");
    says(&s, 0, "get -r image /dir new/");
    assert!(s.path("new/a").exists());
}

#[test]
fn a_volume_over_several_devices_is_refused_in_one_sentence() {
    let s = volume();
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    for copy in 0..2 {
        let at = copy * PAGE as u64 + 1024 + std::mem::offset_of!(RawSuperblock, devs) as u64;
        image.write_all_at(b"/dev/first", at).unwrap();
        image.write_all_at(&[20], at + 64).unwrap();
    }
    for (words, code) in [
        ("ls image", 1),
        ("get -r image / out", 1),
        ("get --salvage image all", 1),
        ("fsck image", 8),
        ("stat image", 1),
    ] {
        let text = says(&s, code, words);
        assert!(
            text.contains("spans several devices") && text.contains("the kernel's f2fs"),
            "{words}: {text}"
        );
        assert!(!text.contains("--salvage") && text.lines().count() == 1, "{words}: {text}");
    }
}

/// A flipped bit in one copy is no second device, and the other copy counts.
#[test]
fn a_path_in_one_copy_alone_is_no_second_device() {
    for copy in 0..2 {
        let s = volume();
        let image = fs::File::options().write(true).open(s.image()).unwrap();
        let at = copy * PAGE as u64 + 1024 + std::mem::offset_of!(RawSuperblock, devs) as u64;
        image.write_all_at(&[1], at).unwrap();
        says(&s, 0, "ls image");
        says(&s, 0, "get -r image / out");
        let text = says(&s, 4, "fsck image");
        assert!(!text.contains("several devices"), "{text}");
        says(&s, 1, "fsck -p image");
        says(&s, 0, "fsck image");
    }
}

#[test]
fn a_second_copy_that_completes_a_file_is_whole() {
    let s = volume();
    let at = |index| block_of(&s.image(), &page(1, index));
    bad(&s, &[at(3)]);
    says(&s, 1, "get -r --map map image / out");
    bad(&s, &[at(5)]);
    let text = says(&s, 0, "get -r --map map image / out");
    assert!(!text.contains("left as holes"), "{text}");
    assert_eq!(fs::read(s.path("out/dir/a")).unwrap(), crate::damaged::pages(1, 40));
    // What neither has is missing.
    fs::remove_dir_all(s.path("out")).unwrap();
    bad(&s, &[at(3), at(5)]);
    says(&s, 1, "get -r --map map image / out");
    bad(&s, &[at(5), at(7)]);
    let text = says(&s, 1, "get -r --map map image / out");
    assert!(text.contains("/dir/a: "), "{text}");
}

#[test]
fn words_in_another_order_are_understood() {
    let s = volume();
    fs::create_dir(s.path("dir")).unwrap();
    for (words, code, way) in [
        ("get dir image /", 2, "the image or device comes first: 'medfs get image / dir'"),
        ("get / image dir", 2, "the image or device comes first: 'medfs get image / dir'"),
        ("ls /dir image", 2, "the image or device comes first: 'medfs ls image /dir'"),
        ("mount dir image", 1, "the image or device comes first: 'medfs mount image dir'"),
        (
            "get image /",
            2,
            "a directory of this machine to copy to is missing: 'medfs get -r image / DIRECTORY'",
        ),
        ("get image /c", 2, "the place on this machine to copy to is missing: 'medfs get image /c .'"),
        ("get image /* out", 1, "no patterns"),
        ("gte image", 2, "did you mean 'get'?"),
        ("mkfs -T yesterday x.img", 2, "expected a number"),
        ("dump image inode abc", 2, "expected a number"),
        ("mkfs --size 0 x.img", 1, "is too small: the minimum is"),
        ("stat --pe-cycles 0 image", 2, "expected a number of at least 1"),
        ("stat --file", 2, "or medfs stat [OPTIONS] --file <FILE>"),
    ] {
        let text = says(&s, code, words);
        assert!(text.contains(way), "{words}: {text}");
    }
    assert!(says(&s, 0, "help --help").contains("Usage"));
    let lines = shows(&s, "medfs get image", &[]);
    assert!(lines.lines().all(|line| line.chars().count() <= 80), "{lines}");
}

#[test]
fn a_mounted_volume_is_told_by_its_directory() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    fs::create_dir(s.path("dir")).unwrap();
    says(&s, 0, "mount image dir");
    for (words, code) in [("ls dir", 1), ("get -r dir / out", 1), ("fsck dir", 8)] {
        let text = says(&s, code, words);
        assert!(text.contains("is mounted on dir") && text.contains("umount dir"), "{words}: {text}");
    }
    says(&s, 0, "power low dir");
    assert!(says(&s, 0, "stat dir").contains("'medfs power ok"));
    let done = medfs().args(["umount", "."]).current_dir(s.path("dir")).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{done:?}");
}

#[test]
fn a_mount_says_which_file_cannot_be_read() {
    if !can_mount() {
        return;
    }
    let (s, _, node) = with_nodes();
    zero(&s, node, 1);
    fs::create_dir(s.path("dir")).unwrap();
    says(&s, 0, "mount --log @/log image @/dir");
    let ino = fs::metadata(s.path("dir/big")).unwrap().ino();
    let read = fs::read(s.path("dir/big"));
    says(&s, 0, "umount dir");
    let log = fs::read_to_string(s.path("log")).unwrap();
    assert!(
        read.is_err() && log.contains("medfs help damaged") && log.contains(&format!("ino={ino} ")),
        "{log}"
    );
}

/// Also where a file on the card has the image's name.
#[test]
fn no_copy_takes_the_place_of_the_image_that_is_read() {
    let s = volume();
    with_engine(&s.image(), true, |v| {
        let ino = make(v, v.root(), "image", FileKind::Regular);
        v.write(ino, 0, b"a file of this name").unwrap();
    });
    let before = fs::read(s.image()).unwrap();
    for words in ["get image /image image", "get -r image / .", "get --salvage image ."] {
        let text = says(&s, 1, words);
        assert!(
            text.contains("image is the image that is read: name another destination"),
            "{words}: {text}"
        );
        assert!(fs::read(s.image()).unwrap() == before, "{words}");
    }
}

/// Of a card that was pulled: each commit of a database leaves a journal without a name, and so does each file that is
/// replaced by another one.
#[test]
fn a_salvage_of_a_pulled_card_brings_no_file_that_was_removed() {
    for s in [Scratch::with_volume("64M"), volume()] {
        with_engine(&s.image(), false, |v| {
            let root = v.root();
            let file = |name: &str, tag: u8| {
                let ino = make(v, root, name, FileKind::Regular);
                v.write(ino, 0, &[tag; 9000]).unwrap();
                v.fsync(ino, false).unwrap();
            };
            file("conf", 0);
            v.sync().unwrap();
            for n in 1..20 {
                file("journal", n);
                v.unlink(root, b"journal").unwrap();
                file("conf.new", n);
                v.rename(root, b"conf.new", root, b"conf", medfs::RenameFlags::empty()).unwrap();
            }
            file("last", 77);
        });
        let text = says(&s, 0, "get --salvage image all");
        let mut names: Vec<_> =
            fs::read_dir(s.path("all")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        // A name that another one has gets a number behind it; the last rename need not be durable.
        names.retain(|name| {
            name.to_string_lossy().contains(|c: char| c.is_ascii_digit()) || name == "by-inode"
        });
        assert!(names.is_empty(), "{names:?}: {text}");
        assert_eq!(fs::read(s.path("all/last")).unwrap(), [77; 9000]);
    }
}

#[test]
fn a_repair_without_room_for_its_undo_file_says_whether_it_is_half_done() {
    if !can_mount() {
        return;
    }
    let half_done = "; the repair is not complete: run it again with the same undo file, or";
    let untouched = "; nothing was changed, and tiny/undo was removed: name a file on a disk with room";
    for (room, what) in [("16k", untouched), ("24k", half_done)] {
        let s = Scratch::with_volume("64M");
        lose_root(&s);
        let before = fs::read(s.image()).unwrap();
        let _disk = small_disk(&s, room);
        let text = says(&s, 8, "fsck --repair --undo tiny/undo image");
        assert!(text.contains("cannot write the undo file: No space left"), "{room}: {text}");
        assert!(text.contains(what), "{room}: {text}");
        assert!(what == half_done || fs::read(s.image()).unwrap() == before, "{room}");
    }
}
