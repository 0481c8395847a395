//! What a person meets who has just met medfs: each message says what is the case, and what to do next.

use crate::common::*;
use crate::damaged::{blocks, fsync_often, is_inode, page, pages, volume};
use medfs::{FileKind, Files, RenameFlags, Volume};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command as System, Stdio};

const PAGE: usize = 4096;
const USER: u32 = 4321;

/// What a command says on both outputs, which must end with a code.
fn said(command: &mut assert_cmd::Command, code: i32) -> String {
    let assert = command.assert().code(code);
    let output = assert.get_output();
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// The same of a command in words; `@` stands for the directory of the test.
pub(crate) fn says(s: &Scratch, code: i32, words: &str) -> String {
    let here = s.path("").display().to_string();
    let words: Vec<String> =
        words.split(' ').map(|word| word.replace("@", here.trim_end_matches('/'))).collect();
    said(medfs().args(words).current_dir(s.path("")), code)
}

/// What is mounted on a directory of a test: it is unmounted at the end.
pub(crate) struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = System::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

fn mount(s: &Scratch, options: &str) -> Mounted {
    fs::create_dir_all(s.path("mnt")).unwrap();
    medfs().args(["mount", "-o", options]).arg(s.image()).arg(s.path("mnt")).assert().success();
    Mounted(s.path("mnt").canonicalize().unwrap())
}

/// A file system in memory of so much room.
pub(crate) fn small_disk(s: &Scratch, size: &str) -> Mounted {
    fs::create_dir_all(s.path("tiny")).unwrap();
    let options = format!("size={size}");
    let mounted =
        System::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(s.path("tiny")).status();
    assert!(mounted.unwrap().success());
    Mounted(s.path("tiny"))
}

fn cut(s: &Scratch, to: u64) {
    fs::File::options().write(true).open(s.image()).unwrap().set_len(to).unwrap();
}

/// A new volume with deltas whose file `/text` was replaced by versions of itself: it has medfs's own records.
fn volume_with_own_records() -> (Scratch, Vec<u8>) {
    let s = Scratch::with_volume("64M");
    let mut text: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 15) as u8).collect();
    with_engine(&s.image(), true, |v| {
        let write = |v: &Volume, name: &str, text: &[u8]| {
            let ino = make(v, v.root(), name, FileKind::Regular);
            v.write(ino, 0, text).unwrap();
            v.fsync(ino, false).unwrap();
        };
        write(v, "text", &text);
        v.checkpoint().unwrap();
        for version in 0..4 {
            text[1000 * version..1000 * version + 4].copy_from_slice(b"abcd");
            text.splice(70_000..70_000, *b"hello");
            write(v, "text.tmp", &text);
            v.rename(v.root(), b"text.tmp", v.root(), b"text", RenameFlags::empty()).unwrap();
            v.checkpoint().unwrap();
        }
    });
    (s, text)
}

#[test]
fn a_volume_is_unmounted_by_its_image_or_device() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let text = says(&s, 32, "umount image");
    assert!(text.contains("image is not mounted by medfs"), "{text}");
    let _mounted = mount(&s, "noatime");
    says(&s, 0, "umount image");
    let text = says(&s, 32, "umount mnt");
    assert!(text.contains("mnt is not the mount point of a medfs volume"), "{text}");
    let looped = System::new("losetup").args(["--find", "--show"]).arg(s.image()).output().unwrap();
    assert!(looped.status.success(), "{looped:?}");
    let device = String::from_utf8(looped.stdout).unwrap().trim().to_owned();
    let mounted = medfs().arg("mount").arg(&device).arg(s.path("mnt")).ok().is_ok();
    let unmounted = medfs().arg("umount").arg(&device).ok().is_ok();
    let _ = System::new("losetup").args(["--detach", &device]).status();
    assert!(mounted && unmounted, "{mounted} {unmounted}");
}

#[test]
fn who_uses_a_mount_is_named() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let mounted = mount(&s, "noatime");
    let mut user = System::new("sleep").arg("60").current_dir(&mounted.0).spawn().unwrap();
    let text = says(&s, 32, "umount mnt");
    user.kill().unwrap();
    user.wait().unwrap();
    let by = format!("mnt is in use by sleep (process {}): close its files", user.id());
    assert!(text.contains(&by), "{text}");
    fs::create_dir(mounted.0.join("in")).unwrap();
    let inner = System::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(mounted.0.join("in")).status();
    assert!(inner.unwrap().success());
    let inner = Mounted(mounted.0.join("in"));
    let text = says(&s, 32, "umount mnt");
    assert!(text.contains("/in is mounted in it") && text.contains("comes first"), "{text}");
    drop(inner);
    says(&s, 0, "umount mnt");
}

/// An image that has lost its name is only in its mount: an unmount would lose the files.
#[test]
fn an_image_that_was_removed_or_replaced_under_its_mount_is_told_of() {
    if !can_mount() {
        return;
    }
    for (replaced, told) in [(false, "was removed while it was mounted"), (true, "took the place of")] {
        let s = Scratch::with_volume("64M");
        let _mounted = mount(&s, "noatime");
        fs::write(s.path("mnt/file"), "content").unwrap();
        let (name, aside) = (s.image(), s.path("aside"));
        fs::rename(&name, &aside).unwrap();
        if replaced {
            fs::copy(&aside, &name).unwrap();
        }
        let text = says(&s, 0, "stat mnt");
        assert!(text.contains(if replaced { "IMAGE REPLACED" } else { "IMAGE REMOVED" }), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let text = says(&s, 32, "umount mnt");
        assert!(text.contains(told) && text.contains("'umount -l ") && text.contains("cp -a "), "{text}");
        assert_eq!(fs::read(s.path("mnt/file")).unwrap(), b"content");
        // Once it is back all is well.
        fs::rename(&aside, &name).unwrap();
        says(&s, 0, "umount mnt");
        let shown = says(&s, 0, "get image /file -");
        assert_eq!(shown, "content");
    }
}

#[test]
fn put_says_that_the_image_comes_first_and_what_is_missing() {
    let s = Scratch::with_volume("64M");
    fs::create_dir(s.path("src")).unwrap();
    fs::write(s.path("file"), "content").unwrap();
    for (words, told) in [
        ("put -r src/. image /", "the image or device comes first: 'medfs put -r image src/. /'"),
        ("put file image /to", "the image or device comes first: 'medfs put image file /to'"),
        ("put file image", "the image or device comes first: 'medfs put image file /'"),
        ("put -r src nothing", "src is a directory: the image or device comes first"),
        ("put image file", "the place in the volume to copy to is missing: 'medfs put image file /' copies"),
    ] {
        let text = says(&s, 2, words);
        assert!(text.contains(told) && text.lines().count() == 1, "{words}: {text}");
    }
    let text = says(&s, 1, "mount image mnt -o");
    assert!(text.contains("lacks its value") && !text.contains("was supplied"), "{text}");
}

#[test]
fn put_copies_the_contents_of_a_directory_as_cp_does() {
    let s = Scratch::with_volume("64M");
    fs::create_dir_all(s.path("src/sub")).unwrap();
    fs::set_permissions(s.path("src"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(s.path("src/.hidden"), "hidden").unwrap();
    fs::write(s.path("src/sub/file"), "file").unwrap();
    let names = |path: &str| says(&s, 0, &format!("ls image {path}")).replace("lost+found\n", "");
    let before = says(&s, 0, "dump image path /");
    for source in ["src/.", "src/sub/.."] {
        says(&s, 0, &format!("put -r image {source} /"));
        assert_eq!(names("/"), ".hidden\nsub\n", "{source}");
    }
    // The directory in the volume stays what it was.
    let field = |text: &str, name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let after = says(&s, 0, "dump image path /");
    assert_eq!(field(&after, "i_mode"), field(&before, "i_mode"));
    says(&s, 0, "put -r image src/. /new");
    assert_eq!(names("/new"), ".hidden\nsub\n");
    says(&s, 0, "put -r image src /");
    assert_eq!(names("/"), ".hidden\nnew\nsrc\nsub\n");
    assert!(says(&s, 0, "put --help").contains("SRC/."));
}

#[test]
fn a_full_disk_is_told_with_what_was_not_tried() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    fs::create_dir(s.path("src")).unwrap();
    (0..30).for_each(|n| fs::write(s.path(&format!("src/f{n:02}")), pages(n, 20)).unwrap());
    says(&s, 0, "put -r image src/. /");
    let _tiny = small_disk(&s, "1M");
    let text = says(&s, 1, "get -r image / tiny/out");
    let copied = fs::read_dir(s.path("tiny/out"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().metadata().unwrap().len() == 20 * PAGE as u64);
    // The root directory and lost+found are copied too, and one file is begun.
    let whole = copied.count() as u64 + 2;
    let counts = format!(
        "{whole} files and directories were copied whole, 1 in part or not at all, {} not tried: make room",
        31 - whole
    );
    assert!(text.contains("No space left on device") && text.contains(&counts), "{text}");
    // The file that found no room, and one sentence.
    assert_eq!(text.lines().count(), 2, "{text}");
    let text = says(&s, 1, "get --salvage image tiny/all");
    assert!(text.contains("copied whole, ") && text.contains("not tried: make room"), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    let text = says(&s, 1, "get -r --json image / tiny/json");
    assert!(text.contains("\"exit\": 1") && text.contains("\"not_tried\": "), "{text}");
    assert!(!text.contains("\"failed\": []"), "{text}");
    // What is on the full disk is no undo file.
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    let inode = blocks(&s.image(), |block| is_inode(block, "f07"));
    image.write_all_at(&[0; PAGE], inode[0] * PAGE as u64).unwrap();
    let before = fs::read(s.image()).unwrap();
    fs::write(s.path("tiny/rest"), [1; 1 << 20]).unwrap_err();
    let text = says(&s, 8, "fsck --repair --undo tiny/undo image");
    assert!(text.contains("nothing was repaired: cannot create tiny/undo: No space left"), "{text}");
    assert!(fs::read(s.image()).unwrap() == before);
}

/// An image that lacks an end in which nothing was.
#[test]
fn an_image_that_lacks_nothing_but_room_is_called_whole() {
    let s = volume();
    cut(&s, 60 << 20);
    let text = says(&s, 0, "get -r image / out");
    let whole = "the last 4 MiB of its volume are missing; all 5 files and directories were copied whole\n";
    assert!(text.ends_with(whole), "{text}");
    let text = says(&s, 0, "get image /c c");
    assert!(text.ends_with("are missing; 1 file or directory was copied whole\n"), "{text}");
    let text = says(&s, 0, "ls -R image");
    assert!(
        text.ends_with("are missing; 'medfs get -r image / DIRECTORY' tells which files lack content\n"),
        "{text}"
    );
    let way = "the last 4 MiB of its 64 MiB are missing; 'medfs get -r image / DIRECTORY' copies what";
    for command in ["stat image", "dump image"] {
        let text = says(&s, 1, command);
        assert!(text.contains(way) && !text.contains("F0104"), "{command}: {text}");
    }
    fs::create_dir(s.path("mnt")).unwrap();
    let text = says(&s, 32, "mount image mnt");
    let way = way.replace("image", &s.image().canonicalize().unwrap().display().to_string());
    assert!(text.contains(&way), "{text}");
}

/// What a salvage does that a copy does not is said in words that fit.
#[test]
fn a_salvage_is_advised_for_what_it_does() {
    let s = volume();
    let sound = fs::read(s.image()).unwrap();
    assert!(damage(&s.image(), |block| is_inode(block, "b"), |block| block.0.fill(0)) > 0);
    for words in ["get -r image / out", "ls -R image"] {
        let text = says(&s, 1, words);
        assert!(text.contains("also rebuilds files whose inode is damaged"), "{text}");
        assert!(!text.contains("no longer lead to"), "{text}");
    }
    fs::write(s.image(), sound).unwrap();
    assert!(damage(&s.image(), |block| is_inode(block, "dir"), |block| block.0.fill(0)) > 0);
    let text = says(&s, 1, "ls -R image");
    assert!(text.contains("also looks for files that the directories no longer lead to"), "{text}");
}

/// Of inodes that cannot be read it is not said that they are there without a directory entry.
#[test]
fn inodes_that_cannot_be_read_are_not_said_to_be_there() {
    let s = volume();
    for name in ["dir", "b"] {
        assert!(damage(&s.image(), |block| is_inode(block, name), |block| block.0.fill(0)) > 0);
    }
    let text = says(&s, 1, "get -r image / out");
    assert!(text.contains("1 file or directory without a directory entry is in the volume"), "{text}");
    assert!(text.contains("1 file or directory more cannot be read"), "{text}");
    assert!(text.contains("no longer lead to, and rebuilds files whose inode is damaged"), "{text}");
    let text = says(&s, 1, "get -r --json image / json");
    assert!(text.contains("\"not_named\": 1") && text.contains("\"not_read\": 1"), "{text}");
}

#[test]
fn one_missing_path_keeps_no_other_from_being_copied() {
    let s = volume();
    fs::create_dir(s.path("out")).unwrap();
    let text = says(&s, 1, "get image /c /nosuch /dir/b out");
    assert!(text.contains("medfs get: /nosuch: no such file or directory"), "{text}");
    assert_eq!(fs::read(s.path("out/c")).unwrap(), pages(3, 2));
    assert_eq!(fs::read(s.path("out/b")).unwrap(), page(2, 0));
    let text = says(&s, 1, "get image /no /none out");
    assert!(text.contains("nothing was copied: /no: ") && text.contains("/none: "), "{text}");
    let assert = medfs().arg("get").arg(s.image()).args(["/nosuch", "/c", "-"]).assert().code(1);
    assert_eq!(assert.get_output().stdout, pages(3, 2));
}

/// A card whose beginning was overwritten, and what is no volume at all.
#[test]
fn what_is_no_volume_is_said_with_what_it_may_be() {
    let s = Scratch::new();
    fs::write(
        s.image(),
        (0..20u32 << 18).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect::<Vec<u8>>(),
    )
    .unwrap();
    for (words, code) in [("ls image", 1), ("fsck image", 8), ("get --salvage image out", 1)] {
        let text = says(&s, code, words);
        let way = "is it the right partition or image? 'medfs help damaged' says what to do";
        assert!(text.contains(way), "{words}: {text}");
    }
    // ext4's magic number, in its superblock.
    let ext = fs::File::create(s.image()).unwrap();
    ext.set_len(64 << 20).unwrap();
    ext.write_all_at(&[0x53, 0xef], 1024 + 56).unwrap();
    let text = says(&s, 1, "get --salvage image out");
    assert!(text.contains("image holds an ext2/3/4 file system"), "{text}");
    // A volume behind its partition table.
    let whole = Scratch::with_volume("64M");
    let volume = fs::read(whole.image()).unwrap();
    let disk = fs::File::create(s.image()).unwrap();
    disk.write_all_at(&volume, 4 << 20).unwrap();
    for words in ["ls image", "get --salvage image out"] {
        let text = says(&s, 1, words);
        assert!(
            text.contains("'losetup -r -o 4194304 --show -f image' makes a read-only device of it"),
            "{text}"
        );
    }
}

/// Who has no rights to an image is told whose it is, and is not told of a mount that does not come.
#[test]
fn who_may_not_use_an_image_is_told_whose_it_is() {
    if !is_root() {
        eprintln!("SKIPPED: needs root, to become an ordinary user");
        return;
    }
    let s = Scratch::with_volume("64M");
    fs::set_permissions(s.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let program = s.path("medfs");
    fs::copy(binary(), &program).unwrap();
    fs::create_dir(s.path("mnt")).unwrap();
    let nobody = |args: &[&str]| {
        let mut command = System::new(&program);
        let output = command.args(args).uid(USER).gid(USER).current_dir(s.path("")).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    fs::set_permissions(s.image(), fs::Permissions::from_mode(0o600)).unwrap();
    let text = nobody(&["ls", "image"]);
    assert!(text.contains("Permission denied: the file belongs to root (chmod, or sudo)"), "{text}");
    // It may be read, and nothing can be mounted where the directory is not the user's.
    fs::set_permissions(s.image(), fs::Permissions::from_mode(0o644)).unwrap();
    let text = nobody(&["mount", "image", "mnt"]);
    assert!(!text.is_empty() && !text.contains("mounted read-only"), "{text}");
    // A device that a group may use too.
    let device = s.path("device");
    let (block, numbers) = (rustix::fs::FileType::BlockDevice, rustix::fs::makedev(7, 255));
    rustix::fs::mknodat(rustix::fs::CWD, &device, block, 0o660.into(), numbers).unwrap();
    chown(&device, Some(0), Some(6)).unwrap();
    fs::set_permissions(&device, fs::Permissions::from_mode(0o660)).unwrap();
    let text = nobody(&["fsck", "device"]);
    assert!(text.contains("only root and the group disk may use this device (try sudo)"), "{text}");
}

#[test]
fn what_others_call_an_option_is_taken() {
    let s = Scratch::with_volume("64M");
    says(&s, 0, "fsck -v image");
    says(&s, 0, "import -n image");
    let help = says(&s, 0, "get --help");
    assert!(help.contains("Print as JSON how much was copied"), "{help}");
}

/// A path that begins as an option does is one that can be pasted.
#[test]
fn a_name_that_begins_with_a_dash_can_be_pasted() {
    let s = volume();
    fs::rename(s.image(), s.path("-x.img")).unwrap();
    cut_named(&s.path("-x.img"), 60 << 20);
    let text = said(medfs().args(["fsck", "--", "-x.img"]).current_dir(s.path("")), 4);
    assert!(text.contains("'medfs get --salvage ./-x.img DIRECTORY'"), "{text}");
}

fn cut_named(image: &Path, to: u64) {
    fs::File::options().write(true).open(image).unwrap().set_len(to).unwrap();
}

/// A second of use says nothing of a life.
#[test]
fn a_flash_device_has_no_life_expectancy_after_a_second() {
    let s = Scratch::new();
    says(&s, 0, "flash create card.nand --size 64M");
    says(&s, 0, "mkfs -q flash:card.nand");
    let text = says(&s, 0, "flash stat card.nand");
    assert!(text.contains("estimated after a minute of use") && !text.contains(" days"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// An NVRAM whose volume was unmounted holds nothing that could be lost.
#[test]
fn a_used_nvram_without_fsyncs_is_made_ready() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let memory = dir.path().join("nvram");
    let init = |code: i32| said(medfs().args(["nvram", "init"]).arg(&memory), code);
    medfs().args(["nvram", "init", "--size", "1M"]).arg(&memory).assert().success();
    let mounted = mount(&s, &format!("nvram={}", memory.display()));
    let file = fs::File::create(mounted.0.join("file")).unwrap();
    file.write_all_at(b"content", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let text = says(&s, 0, "stat mnt");
    assert!(text.contains("to the NVRAM, or at least a block each"), "{text}");
    let columns = text.lines().filter(|line| line.contains("pages given blocks"));
    let end = |line: &str| line.find(" written and").map(|at| line[..at].trim_end().len());
    assert_eq!(columns.map(end).collect::<Vec<_>>(), [Some(40)], "{text}");
    says(&s, 0, "umount mnt");
    let text = init(0);
    assert!(text.contains("is ready for a volume"), "{text}");
    assert!(fs::read(&memory).unwrap().iter().all(|byte| *byte == 0));
}

/// Medfs's own records are no file of a user, and no loss of one.
#[test]
fn records_of_medfs_are_no_files_of_users() {
    let (s, content) = volume_with_own_records();
    let text = says(&s, 0, "stat image");
    let inodes = text.lines().find(|line| line.starts_with("  inodes")).unwrap().to_owned();
    assert!(inodes.contains("2 of them hold medfs's own records"), "{inodes}");
    junk_own_list(&s);
    let text = says(&s, 4, "fsck image");
    assert!(!text.contains("cannot keep") && !text.contains("/.medfs (inode"), "{text}");
    assert!(text.contains("F0915"), "{text}");
    let text = says(&s, 0, "get -r image / out");
    assert_eq!(text, "");
    assert_eq!(fs::read(s.path("out/text")).unwrap(), content);
    let text = says(&s, 0, "get --salvage image all");
    assert!(!text.contains("/.medfs") && !text.contains("lost"), "{text}");
    assert_eq!(fs::read(s.path("all/text")).unwrap(), content);
}

/// The list of what files need of others is made anew: a mount would free what it does not name.
#[test]
fn a_repair_makes_the_list_of_needed_files_anew() {
    let (s, content) = volume_with_own_records();
    junk_own_list(&s);
    says(&s, 1, "fsck -p image");
    says(&s, 0, "fsck image");
    for n in 0..3 {
        with_engine(&s.image(), true, |v| {
            let ino = make(v, v.root(), &format!("more{n}"), FileKind::Regular);
            v.write(ino, 0, &pages(n, 500)).unwrap();
            v.checkpoint().unwrap();
        });
        assert_eq!(medfs().arg("get").arg(s.image()).args(["/text", "-"]).output().unwrap().stdout, content);
        says(&s, 0, "fsck image");
    }
}

/// Zeros in place of the inode of `.medfs`.
fn junk_own_list(s: &Scratch) {
    let list = blocks(&s.image(), |block| is_inode(block, ".medfs"));
    let shown = says(s, 0, "dump image path /.medfs");
    let addr = shown
        .lines()
        .find_map(|line| line.strip_prefix("block_addr"))
        .unwrap()
        .trim()
        .parse::<u64>()
        .unwrap();
    assert!(list.contains(&addr), "{shown}");
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    image.write_all_at(&[0; PAGE], addr * PAGE as u64).unwrap();
}

/// That the log may go on behind the end of an image is said once.
#[test]
fn a_log_that_may_go_on_behind_the_end_is_told_of_once() {
    let s = plain();
    with_engine(&s.image(), false, fsync_often);
    let last = *blocks(&s.image(), |block| is_inode(block, "file")).last().unwrap();
    cut(&s, (last + 1) * PAGE as u64);
    for words in ["ls image", "get -r image / out"] {
        let text = says(&s, 1, words);
        assert_eq!(text.matches("may go on").count(), 1, "{words}: {text}");
        assert!(!text.contains("chain of fsynced nodes"), "{text}");
    }
}

/// A damaged volume is not converted, and its files are copied before it is repaired.
#[test]
fn copies_come_before_repairs() {
    let s = volume();
    for n in ["a", "b", "c"] {
        assert!(damage(&s.image(), |block| is_inode(block, n), |block| block.0.fill(0)) > 0);
    }
    for words in ["import image", "import --dry-run image"] {
        let text = says(&s, 1, words);
        assert!(text.contains("copy the files first, 'medfs get "), "{words}: {text}");
    }
}

#[test]
fn a_compressed_image_and_a_memory_that_is_not_needed_are_named_as_such() {
    let s = Scratch::with_volume("64M");
    let mut gz = vec![0; 1 << 16];
    gz[..4].copy_from_slice(&[0x1f, 0x8b, 8, 0]);
    fs::write(s.path("card.img.gz"), gz).unwrap();
    let text = error(1, medfs().arg("ls").arg(s.path("card.img.gz")));
    assert!(text.contains("is compressed (gz): decompress it first"), "{text}");
    fs::write(s.path("nvram"), vec![0; 1 << 20]).unwrap();
    let out =
        medfs().args(["fsck", "--repair", "--nvram"]).args([s.path("nvram"), s.image()]).assert().code(0);
    let text = String::from_utf8_lossy(&out.get_output().stdout).into_owned();
    assert!(text.contains("nvram is not used"), "{text}");
}
