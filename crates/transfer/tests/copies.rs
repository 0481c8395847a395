//! Trees and archives put into a volume in memory.

use medfs::{FileKind, Files, MountOptions, SystemClock, Volume};
use medfs_device::MemDevice;
use medfs_mkfs::{MkfsOptions, format_volume};
use medfs_transfer::{Filler, copy_in, paths, tarball};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn volume() -> Volume {
    let dev = Arc::new(MemDevice::new(64 << 8));
    format_volume(&*dev, &MkfsOptions::new([7; 16], 0)).unwrap();
    Volume::open(dev, MountOptions::default(), Arc::new(SystemClock)).unwrap()
}

fn content(volume: &Volume, path: &str) -> Vec<u8> {
    let held = paths::find(volume, Path::new(path)).unwrap();
    let mut content = vec![0; held.attr.size as usize];
    assert_eq!(volume.read(held.ino(), 0, &mut content).unwrap(), content.len());
    content
}

fn names(volume: &Volume) -> Vec<String> {
    let (entries, gap) = paths::list(volume, volume.root());
    assert_eq!(gap, None);
    entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
}

/// `dir/sub/file`, a hard link and a symbolic link to it, and a file that is a hole.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let sub = dir.path().join("sub");
    fs::create_dir(&sub).unwrap();
    fs::write(sub.join("file"), b"content").unwrap();
    fs::set_permissions(sub.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(sub.join("file"), dir.path().join("linked")).unwrap();
    symlink("sub/file", dir.path().join("pointer")).unwrap();
    fs::File::create(dir.path().join("hole")).unwrap().set_len(1 << 20).unwrap();
    dir
}

#[test]
fn a_directory_fills_a_volume() {
    let (dir, volume, told) = (tree(), volume(), AtomicU64::new(0));
    let count = |bytes| {
        told.fetch_add(bytes, Relaxed);
    };
    let filled = Filler::new(&volume, &count).fill(dir.path(), true).unwrap();
    assert_eq!((filled.entries, filled.bytes), (5, 7));
    assert_eq!(told.load(Relaxed), 7, "of a hole at the end nothing is told");
    let find = |path: &str| paths::find(&volume, Path::new(path)).unwrap().attr.clone();
    assert_eq!((find("/linked").ino, find("/linked").nlink), (find("/sub/file").ino, 2));
    assert_eq!(find("/pointer").kind, FileKind::Symlink);
    assert_eq!((find("/hole").size, find("/hole").blocks), (1 << 20, find("/hole").blocks.min(1)));
    assert_eq!((find("/sub/file").perm, find("/sub/file").atime), (0o640, find("/sub/file").mtime));
    assert_eq!(content(&volume, "/sub/file"), b"content");
    assert_eq!(copy_in::content_bytes(dir.path()), (1 << 20) + 14);
}

#[test]
fn a_file_takes_the_place_of_another_one_and_no_directory_s() {
    let (dir, volume) = (tree(), volume());
    let nothing = |_| ();
    let root = volume.root();
    let mut filler = Filler::into_old(&volume, &nothing);
    filler.put(&dir.path().join("sub/file"), root, b"name").unwrap();
    fs::write(dir.path().join("sub/file"), b"newer").unwrap();
    filler.put(&dir.path().join("sub/file"), root, b"name").unwrap();
    filler.put(&dir.path().join("sub"), root, b"directory").unwrap();
    let refused = filler.put(&dir.path().join("hole"), root, b"directory").unwrap_err();
    assert_eq!(filler.filled().entries, 4);
    filler.end().unwrap();
    assert_eq!(content(&volume, "/name"), b"newer");
    let cause = std::error::Error::source(&refused).expect("a cause").to_string();
    assert_eq!(cause, "a directory of that name exists in the volume");
    assert_eq!(names(&volume), ["directory", "lost+found", "name"], "nothing is left of what was begun");
}

#[test]
fn what_is_not_there_is_told_apart() {
    let (dir, volume) = (tree(), volume());
    Filler::new(&volume, &|_| ()).fill(dir.path(), false).unwrap();
    let missing = paths::find(&volume, Path::new("/sub/other")).err().expect("nothing is there");
    assert!(missing.is_not_found() && !missing.is_no_space());
    assert_eq!(missing.to_string(), "/sub/other in the volume");
    let link = volume.symlink(volume.root(), b"circle", b"circle", 0, 0).unwrap();
    volume.release(link.ino, 1);
    let circle = paths::find(&volume, Path::new("/circle/x")).err().expect("it leads nowhere");
    assert!(!circle.is_not_found(), "{circle}");
}

#[test]
fn a_volume_without_room_says_so() {
    let (dir, volume) = (tempfile::tempdir().unwrap(), volume());
    fs::write(dir.path().join("large"), vec![1; 80 << 20]).unwrap();
    let mut filler = Filler::into_old(&volume, &|_| ());
    let error = filler.put(&dir.path().join("large"), volume.root(), b"large").unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert_eq!(names(&volume), ["lost+found"], "what did not become whole is gone");
}

#[test]
fn an_archive_fills_a_volume() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("a.tar");
    let mut builder = tar::Builder::new(fs::File::create(&archive).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_size(7);
    header.set_mode(0o600);
    header.set_mtime(1_700_000_000);
    header.set_uid(5);
    header.set_gid(6);
    builder.append_data(&mut header, "implied/file", &b"content"[..]).unwrap();
    builder.into_inner().unwrap();

    let volume = volume();
    let opened = tarball::open(&archive).unwrap();
    assert_eq!(opened.size(), Some(fs::metadata(&archive).unwrap().len()));
    let filled = tarball::read(&volume, opened, &|_| ()).unwrap();
    assert_eq!((filled.entries, filled.bytes), (2, 7));
    assert_eq!(content(&volume, "/implied/file"), b"content");
    let attr = paths::find(&volume, Path::new("/implied/file")).unwrap().attr.clone();
    assert_eq!((attr.uid, attr.gid, attr.perm, attr.mtime.secs), (5, 6, 0o600, 1_700_000_000));
    fs::write(&archive, b"\x1F\x8B and so on").unwrap();
    let refused = tarball::open(&archive).err().expect("a compressed archive is refused");
    assert!(refused.to_string().contains("gzip -dc ARCHIVE"));
}
