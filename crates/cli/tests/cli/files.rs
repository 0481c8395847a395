//! Files go into volumes and come out again as they were, without mounting.

use crate::common::*;
use medfs::Files;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command as System;

#[test]
fn a_folder_goes_in_and_comes_out() {
    for (kind, judge) in [(&[][..], assert_clean as fn(&Path)), (&["--plain"], assert_f2fs_clean)] {
        let s = Scratch::new();
        make_tree(&s.path("tree"));
        let text = output(
            &[&["mkfs", "--size", "300M"], kind, &["--from"]].concat(),
            &[&s.path("tree"), &s.image()],
        );
        assert!(text.contains("filled with"), "{text}");
        judge(&s.image());
        medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("back")).assert().success();
        assert_eq!(describe(&s.path("back")), describe(&s.path("tree")));
        let blocks =
            |path: &Path| std::os::unix::fs::MetadataExt::blocks(&fs::metadata(path.join("sparse")).unwrap());
        assert!(blocks(&s.path("back")) < 200, "holes stay holes");
    }
}

#[test]
fn an_archive_goes_in_and_comes_out() {
    let s = Scratch::new();
    make_tree(&s.path("tree"));
    let tar = |format: &str, extra: &[&str], name: &str| {
        let status = System::new("tar")
            .args(["--format", format, "-C"])
            .arg(s.path("tree"))
            .args(extra)
            .arg("-cf")
            .arg(s.path(name))
            .arg(".")
            .status()
            .unwrap();
        assert!(status.success());
    };
    tar("pax", &["--xattrs"], "pax.tar");
    medfs()
        .args(["mkfs", "-q", "--size", "300M", "--from"])
        .arg(s.path("pax.tar"))
        .arg(s.image())
        .assert()
        .success();
    assert_clean(&s.image());
    medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("back")).assert().success();
    assert_eq!(describe(&s.path("back")), describe(&s.path("tree")));

    // GNU's sparse entries, through standard input. That format has no attributes and whole seconds only.
    tar("gnu", &["--sparse"], "gnu.tar");
    medfs()
        .args(["mkfs", "-q", "-f", "--from", "-"])
        .arg(s.image())
        .pipe_stdin(s.path("gnu.tar"))
        .unwrap()
        .assert()
        .success();
    assert_clean(&s.image());
    medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("gnu")).assert().success();
    let coarse = |root: &Path| -> Vec<String> {
        let lines = describe(root).into_iter();
        lines
            .map(|l| l.split(" [").next().unwrap().replace(".789000001", ".000000000"))
            .map(|l| without_fraction(&l))
            .collect()
    };
    assert_eq!(coarse(&s.path("gnu")), coarse(&s.path("tree")));
}

fn without_fraction(line: &str) -> String {
    line.split(' ')
        .map(|w| if w.len() > 10 && w.rfind('.') == Some(w.len() - 10) { &w[..w.len() - 10] } else { w })
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn archives_that_lead_out_or_are_compressed_are_refused() {
    let s = Scratch::new();
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o644);
    header.as_gnu_mut().unwrap().name[..12].copy_from_slice(b"a/../../evil");
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend([b'x'; 512]);
    bytes.extend([0; 1024]);
    fs::write(s.path("evil.tar"), &bytes).unwrap();
    let text = error(
        1,
        medfs().args(["mkfs", "-q", "--size", "64M", "--from"]).arg(s.path("evil.tar")).arg(s.image()),
    );
    assert!(text.contains("leads out of the archive"), "{text}");
    assert!(!s.image().exists(), "an image that was made and could not be filled is removed");

    fs::write(s.path("a.tar.gz"), b"\x1F\x8B\x08\0rest").unwrap();
    let text = error(
        1,
        medfs().args(["mkfs", "-q", "--size", "64M", "--from"]).arg(s.path("a.tar.gz")).arg(s.image()),
    );
    assert!(text.contains("gzip -dc"), "{text}");

    fs::write(s.path("no.tar"), [7; 2000]).unwrap();
    let text = error(
        1,
        medfs().args(["mkfs", "-q", "--size", "64M", "--from"]).arg(s.path("no.tar")).arg(s.image()),
    );
    assert!(text.contains("not a tar archive"), "{text}");

    // What an image holds stays where it is to be overwritten, and nothing of the file is printed.
    fs::write(s.path("old"), vec![9; 64 << 20]).unwrap();
    for (name, bytes) in [("text", b"hello\x1b[31m there\n".repeat(100)), ("short", b"x".to_vec())] {
        fs::write(s.path(name), bytes).unwrap();
        let mut from = medfs();
        from.args(["mkfs", "--force", "--from"]).arg(s.path(name)).arg(s.path("old"));
        let assert = from.assert().code(1);
        let text = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        let expected = format!("cannot fill the volume from {}: not a tar archive\n", s.path(name).display());
        assert_eq!(text, format!("medfs mkfs: {expected}"));
        assert!(assert.get_output().stdout.is_empty());
        assert!(fs::read(s.path("old")).unwrap().iter().all(|&b| b == 9), "the image is as it was");
    }
    // Damage further on is told by the last name before it.
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    builder.append_data(&mut header, "first", &b"abc"[..]).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    bytes.truncate(1024);
    bytes.extend(b"\x1b[31mgarbage".repeat(400));
    fs::write(s.path("damaged.tar"), &bytes).unwrap();
    let mut from = medfs();
    from.args(["mkfs", "-q", "--size", "64M", "--from"]).arg(s.path("damaged.tar")).arg(s.image());
    let text = error(1, &mut from);
    assert!(
        text.contains(": the tar archive is damaged or cut short after first; ") && !text.contains('\x1b'),
        "{text}"
    );
    assert!(!s.image().exists());

    // An image of a volume begins with zeros, as an empty archive does, which is one.
    medfs().args(["mkfs", "-q", "--size", "64M"]).arg(s.path("volume")).assert().success();
    let mut from = medfs();
    from.args(["mkfs", "--size", "64M", "--from"]).arg(s.path("volume")).arg(s.image());
    assert!(error(1, &mut from).contains("not a tar archive"));
    assert!(!s.image().exists());
    fs::write(s.path("empty.tar"), [0; 10240]).unwrap();
    let mut from = medfs();
    from.args(["mkfs", "-q", "--size", "64M", "--from"]).arg(s.path("empty.tar")).arg(s.image());
    from.assert().success();

    let mut from = medfs();
    from.args(["mkfs", "--size", "64M", "--from"]).arg(s.path("gone")).arg(s.path("new"));
    let printed = from.assert().code(1).get_output().stdout.clone();
    assert!(printed.is_empty(), "nothing is made, and nothing is told as if it were");
}

#[test]
fn a_file_does_not_take_the_place_of_a_device() {
    let s = Scratch::with_volume("64M");
    fs::write(s.path("file"), "content").unwrap();
    medfs().arg("put").arg(s.image()).arg(s.path("file")).arg("/").assert().success();
    let pipe = s.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let text = error(1, medfs().arg("get").arg(s.image()).arg("/file").arg(&pipe));
    assert!(text.contains("is not a regular file: '-' in its place"), "{text}");
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&fs::symlink_metadata(&pipe).unwrap().file_type()));
    // A tree with such files can be copied over itself.
    medfs().args(["put", "-r"]).arg(s.image()).arg(&pipe).arg("/").assert().success();
    medfs().arg("get").arg(s.image()).arg("/pipe").arg(&pipe).assert().success();
}

#[test]
fn the_same_input_makes_the_same_image() {
    let s = Scratch::new();
    make_tree(&s.path("tree"));
    for name in ["one", "two"] {
        medfs()
            .args(["mkfs", "-q", "--size", "200M", "--uuid", "01234567-89ab-cdef-0123-456789abcdef"])
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .arg("--from")
            .arg(s.path("tree"))
            .arg(s.path(name))
            .assert()
            .success();
    }
    let status = System::new("cmp").arg(s.path("one")).arg(s.path("two")).status().unwrap();
    assert!(status.success(), "the two images differ");
}

/// KiB written in a volume's life, as its checkpoint tells: behind the 512 entries of the summary of the hot
/// node log, which is the third block before the pack's last one, and behind the count of the journal's
/// entries.
fn kbytes_on_device(image: &Path) -> u64 {
    let dump = output(&["dump"], &[image, Path::new("checkpoint")]);
    let field = |name: &str| -> u64 {
        let line = dump.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.and_then(|line| line.split_whitespace().nth(1))
            .unwrap_or_else(|| panic!("{dump}"))
            .parse()
            .unwrap()
    };
    let pack = 512 + (field("pack") - 1) * 512;
    let mut bytes = [0; 8];
    let at = (pack + field("cp_pack_total_block_count") - 4) * 4096 + 7 * 512 + 2;
    std::os::unix::fs::FileExt::read_exact_at(&fs::File::open(image).unwrap(), &mut bytes, at).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), field("kbytes_written"));
    field("kbytes_written")
}

#[test]
fn what_a_volume_is_written_is_counted_over_its_life() {
    let s = Scratch::with_volume("128M");
    let image = s.image();
    fs::write(s.path("a"), noise(5_000_000)).unwrap();
    let put = |name: &str| {
        medfs().arg("put").args([&image, &s.path("a")]).arg(format!("/{name}")).assert().success();
        kbytes_on_device(&image)
    };
    let (first, second) = (put("one"), put("two"));
    assert!((5_000_000 / 1024..10_000).contains(&first), "{first}");
    assert!((first + 5_000_000 / 1024..2 * first + 1000).contains(&second), "{second} after {first}");
    let json: serde_json::Value = serde_json::from_str(&output(&["stat", "--json"], &[&image])).unwrap();
    assert_eq!(json["kbytes_written"], second);
    // Looking changes nothing, and what no volume can have been written does not overflow.
    output(&["ls"], &[&image]);
    assert_eq!(kbytes_on_device(&image), second);
    assert!(output(&["stat"], &[&image]).contains("written     "));
    medfs().arg("export").arg(&image).assert().success();
    assert!(kbytes_on_device(&image) > second, "an export is writing");
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 7u64;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

#[test]
fn put_get_and_ls() {
    let s = Scratch::with_volume("128M");
    fs::write(s.path("a"), "first").unwrap();
    fs::write(s.path("b"), "second").unwrap();
    fs::create_dir(s.path("folder")).unwrap();
    fs::write(s.path("folder/inside"), "third").unwrap();
    let image = s.image();
    medfs().arg("put").args([&image, &s.path("a"), &s.path("b")]).arg("/").assert().success();
    medfs().arg("put").arg("-r").args([&image, &s.path("folder")]).arg("/").assert().success();
    medfs().arg("put").args([&image, &s.path("b")]).arg("/folder/renamed").assert().success();
    assert_eq!(output(&["ls"], &[&image]), "a\nb\nfolder\nlost+found\n");
    assert_eq!(output(&["get"], &[&image, Path::new("/folder/renamed"), Path::new("-")]), "second");
    // Replaced, not appended to.
    fs::write(s.path("a"), "1").unwrap();
    medfs().arg("put").args([&image, &s.path("a")]).arg("/").assert().success();
    assert_eq!(output(&["get"], &[&image, Path::new("a"), Path::new("-")]), "1");
    medfs().arg("get").arg(&image).args(["/a", "/folder/inside"]).arg(s.path("folder")).assert().success();
    assert_eq!(fs::read_to_string(s.path("folder/a")).unwrap(), "1");
    let long = output(&["ls", "-lR"], &[&image]);
    assert!(long.contains("/folder:\n-rw-r--r--") && long.contains("drwx------"), "{long}");
    let json = output(&["ls", "--json", "-r"], &[&image]);
    let inside = json
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap())
        .find(|v| v["path"] == "/folder/inside");
    let inside = inside.unwrap();
    assert_eq!((&inside["size"], &inside["format"]), (&5.into(), &1.into()));
    assert!(inside["mtime"].is_i64() && inside["mtime_nanos"].is_u64(), "{inside}");
    assert_clean(&image);

    let text = error(1, medfs().arg("get").arg(&image).arg("/folder").arg(s.path("x")));
    assert!(text.contains("/folder is a directory: -r copies a directory"), "{text}");
    let text = error(1, medfs().arg("get").arg(&image).arg("/nothing").arg(s.path("x")));
    assert!(text.contains("/nothing in the volume: no such file"), "{text}");
    let text = error(1, medfs().arg("put").args([&image, &s.path("folder")]).arg("/"));
    assert!(text.contains("is a directory: -r copies a directory"), "{text}");
    let text = error(1, medfs().arg("put").args([&image, &s.path("gone")]).arg("/"));
    assert!(text.contains("cannot read") && text.contains("gone"), "{text}");
    let text = error(1, medfs().arg("put").args([&image, &s.path("a"), &s.path("b")]).arg("/elsewhere"));
    assert!(text.contains("not a directory"), "{text}");
    let text = error(1, medfs().arg("put").args([&image, &s.path("a")]).arg("/folder/inside/below"));
    assert!(text.contains("no directory") || text.contains("not a directory"), "{text}");
}

#[test]
fn a_full_volume_says_so_and_stays_sound() {
    let s = Scratch::with_volume("64M");
    let file = File::create(s.path("big")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; 40 << 20], 0).unwrap();
    let text = error(1, medfs().arg("put").args([&s.image(), &s.path("big")]).arg("/"));
    assert!(text.contains("no space left on the volume") && text.contains("big"), "{text}");
    assert_clean(&s.image());
    let text = error(
        1,
        medfs().args(["mkfs", "-q", "--size", "64M", "--from"]).arg(s.path("big")).arg(s.path("new")),
    );
    assert!(!text.is_empty() && !s.path("new").exists(), "{text}");
}

/// Files of random sizes are put until some find no room, new ones and over old ones: each that is refused
/// leaves what was there, and nothing else.
#[test]
fn what_finds_no_room_leaves_the_volume_as_it_was() {
    let s = Scratch::new();
    medfs().args(["mkfs", "-q", "--plain", "--size", "52M"]).arg(s.image()).assert().success();
    let mut rng = crate::mounts::Rng::new(5);
    let mut there: std::collections::BTreeMap<String, Vec<u8>> = Default::default();
    let mut refused = (0, 0);
    for round in 0u8..14 {
        let size = rng.below(9 << 20) as usize;
        let content = [&[round; 1000][..], &vec![round ^ 0x55; size]].concat();
        fs::write(s.path("new"), &content).unwrap();
        let name = format!("f{}.db", rng.below(4));
        let done =
            medfs().arg("put").args([&s.image(), &s.path("new")]).arg(format!("/{name}")).output().unwrap();
        let text = String::from_utf8(done.stderr).unwrap();
        if done.status.success() {
            there.insert(name, content);
        } else {
            let told = text.contains("new: no space left on the volume; nothing was copied\n");
            assert!(told && text.lines().count() == 1, "{text}");
            refused.0 += usize::from(!there.contains_key(&name));
            refused.1 += usize::from(there.contains_key(&name));
        }
        let listed: Vec<String> = output(&["ls"], &[&s.image()]).lines().map(str::to_owned).collect();
        let expected = there.keys().cloned().chain(["lost+found".into()]);
        assert_eq!(listed, expected.collect::<Vec<_>>(), "round {round}");
    }
    assert!(refused.0 > 0 && refused.1 > 0 && there.len() > 1, "{refused:?}");
    medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("out")).assert().success();
    there.iter().for_each(|(name, content)| {
        assert!(fs::read(s.path("out").join(name)).unwrap() == *content, "{name}")
    });
    medfs().arg("fsck").arg(s.image()).assert().code(0);
    assert_f2fs_clean(&s.image());
}

#[test]
fn stat_of_a_volume_that_crashed_after_an_fsync_says_so() {
    let s = Scratch::with_volume("64M");
    let stat = || output(&["stat"], &[&s.image()]);
    assert!(stat().contains("last checkpoint written at unmount"));
    with_engine(&s.image(), false, |v| {
        let ino = make(v, v.root(), "a", medfs_format::node::FileKind::Regular);
        v.write(ino, 0, b"fsynced").unwrap();
        v.fsync(ino, false).unwrap();
    });
    let words = stat().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("not cleanly unmounted: 1 file fsynced since the last checkpoint"), "{words}");
    let json: serde_json::Value = serde_json::from_str(&output(&["stat", "--json"], &[&s.image()])).unwrap();
    assert_eq!((&json["last_checkpoint_at_unmount"], &json["fsynced_since"]), (&false.into(), &1.into()));
}

#[test]
fn a_directory_that_finds_no_room_says_what_was_copied() {
    let s = Scratch::with_volume("52M");
    fs::create_dir(s.path("dir")).unwrap();
    fs::write(s.path("dir/a"), "small").unwrap();
    fs::hard_link(s.path("dir/a"), s.path("dir/b")).unwrap();
    std::os::unix::fs::symlink("a", s.path("dir/c")).unwrap();
    fs::write(s.path("dir/large"), vec![1; 60 << 20]).unwrap();
    fs::write(s.path("old"), "old").unwrap();
    // Over files of the same names, of another kind each.
    medfs().args(["put", "-r"]).args([&s.image(), &s.path("dir/a")]).arg("/").assert().success();
    // The second time the directory is there.
    for copied in [4, 3] {
        let text = error(1, medfs().args(["put", "-r"]).args([&s.image(), &s.path("dir")]).arg("/"));
        let told = format!(
            "dir/large: no space left on the volume; it was not copied; {copied} files and directories before it were copied\n"
        );
        assert!(text.ends_with(&told), "{text}");
        let listed = output(&["ls"], &[&s.image(), Path::new("/dir")]);
        assert_eq!(listed, "a\nb\nc\n");
    }
    medfs().arg("put").args([&s.image(), &s.path("old")]).arg("/dir/c").assert().success();
    medfs().arg("put").args([&s.image(), &s.path("dir/c")]).arg("/dir/b").assert().success();
    let long = output(&["ls", "-l"], &[&s.image(), Path::new("/dir")]);
    assert!(long.contains(" b -> a"), "{long}");
    assert_eq!(output(&["get"], &[&s.image(), Path::new("/dir/c"), Path::new("-")]), "old");
    assert_clean(&s.image());
}

/// As `cp -a` does, whatever they lead to. The source of a new volume is the directory that a link leads to.
#[test]
fn symbolic_links_that_are_named_are_copied_themselves() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let s = Scratch::with_volume("64M");
    fs::create_dir(s.path("dir")).unwrap();
    fs::set_permissions(s.path("dir"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::write(s.path("dir/inside"), "inside").unwrap();
    for (link, target) in [("dangling", "nowhere"), ("to-dir", "dir"), ("to-file", "dir/inside")] {
        symlink(target, s.path(link)).unwrap();
        for flags in [&["put"][..], &["put", "-r"]] {
            medfs().args(flags).args([&s.image(), &s.path(link)]).arg("/").assert().success();
        }
    }
    let listed = output(&["ls", "-l"], &[&s.image(), Path::new("/")]);
    assert_eq!(listed.lines().count(), 4, "with lost+found: {listed}");
    for link in ["dangling -> nowhere", "to-dir -> dir", "to-file -> dir/inside"] {
        assert!(listed.contains(link), "{listed}");
    }
    assert_clean(&s.image());
    let new = s.path("new.img");
    medfs().args(["mkfs", "--size", "64M", "--from"]).args([&s.path("to-dir"), &new]).assert().success();
    assert_eq!(output(&["get"], &[&new, Path::new("/inside"), Path::new("-")]), "inside");
    medfs().args(["get", "-r"]).args([&new, Path::new("/"), &s.path("out")]).assert().success();
    assert_eq!(fs::metadata(s.path("out")).unwrap().permissions().mode() & 0o7777, 0o750);
}

#[test]
fn names_that_are_not_utf8_are_listed_without_loss() {
    use std::os::unix::ffi::OsStrExt;
    let s = Scratch::with_volume("64M");
    let name = std::ffi::OsStr::from_bytes(b"a\xFFb");
    fs::create_dir(s.path("tree")).unwrap();
    fs::write(s.path("tree").join(name), "").unwrap();
    std::os::unix::fs::symlink(name, s.path("tree/link")).unwrap();
    medfs().arg("put").arg("-r").args([&s.image(), &s.path("tree")]).arg("/").assert().success();
    let json = output(&["ls", "--json"], &[&s.image(), Path::new("/tree")]);
    let all: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let hex = "2f747265652f61ff62";
    let file = all.iter().find(|file| file["path_hex"] == hex).unwrap_or_else(|| panic!("{json}"));
    assert_eq!(file["path"], "/tree/a\u{FFFD}b");
    let link = all.iter().find(|file| file["path"] == "/tree/link").unwrap();
    assert!(link.get("path_hex").is_none() && link["target_hex"] == "61ff62", "{link}");
}
