//! Files go into volumes and come out again as they were, without mounting.

mod common;

use common::*;
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
    assert!(text.contains("no tar archive"), "{text}");

    // An image of a volume begins with zeros, as an empty archive does, which is one.
    medfs().args(["mkfs", "-q", "--size", "64M"]).arg(s.path("volume")).assert().success();
    let mut from = medfs();
    from.args(["mkfs", "--size", "64M", "--from"]).arg(s.path("volume")).arg(s.image());
    assert!(error(1, &mut from).contains("no tar archive"));
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
    assert!(text.contains("is no regular file: '-' in its place"), "{text}");
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
    assert_eq!(inside.unwrap()["size"], 5);
    assert_clean(&image);

    let text = error(1, medfs().arg("get").arg(&image).arg("/folder").arg(s.path("x")));
    assert!(text.contains("/folder is a directory: use -r"), "{text}");
    let text = error(1, medfs().arg("get").arg(&image).arg("/nothing").arg(s.path("x")));
    assert!(text.contains("/nothing in the volume: no such file"), "{text}");
    let text = error(1, medfs().arg("put").args([&image, &s.path("folder")]).arg("/"));
    assert!(text.contains("is a folder: use -r"), "{text}");
    let text = error(1, medfs().arg("put").args([&image, &s.path("gone")]).arg("/"));
    assert!(text.contains("cannot read") && text.contains("gone"), "{text}");
    let text = error(1, medfs().arg("put").args([&image, &s.path("a"), &s.path("b")]).arg("/elsewhere"));
    assert!(text.contains("no directory"), "{text}");
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
