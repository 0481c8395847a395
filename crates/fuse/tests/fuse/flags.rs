//! chattr flags through a mount: what they forbid, what they make durable, and the ctime they leave.

use crate::support::{Image, Mount, fuse_available, run, transports};
use medfs::Files;
use medfs_fuse::Transport;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::time::Duration;

fn on_each_transport(test: impl Fn(&Mount)) {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let mount = Mount::new(transport);
        test(&mount);
        mount.finish();
    }
}

fn chattr(flags: &str, path: &Path) {
    run("chattr", &[flags, path.to_str().unwrap()]);
}

/// The time of a file's last change: what stat(2) shows, and what the engine has.
fn ctimes(m: &Mount, name: &str) -> [(i64, i64); 2] {
    let shown = fs::symlink_metadata(m.path(name)).unwrap();
    let attr = m.volume.lookup(m.volume.root(), name.as_bytes()).unwrap();
    m.volume.release(attr.ino, 1);
    [(shown.ctime(), shown.ctime_nsec()), (attr.ctime.secs, i64::from(attr.ctime.nanos))]
}

/// Runs a change and says whether stat(2) shows a new ctime.
fn shows_new_ctime(m: &Mount, name: &str, change: impl FnOnce()) -> bool {
    let [before, _] = ctimes(m, name);
    // Longer than the kernel's clock takes from one value to the next.
    std::thread::sleep(Duration::from_millis(20));
    change();
    let [shown, stored] = ctimes(m, name);
    assert!(stored > before || shown > before, "nothing changed at all");
    shown > before
}

#[test]
fn a_change_of_flags_shows_a_new_ctime() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        for writeback in [true, false] {
            let m = Mount::with(Image::new(), transport, |config| config.writeback = writeback);
            fs::create_dir(m.path("d")).unwrap();
            fs::write(m.path("f"), b"x").unwrap();
            assert!(shows_new_ctime(&m, "d", || chattr("+d", &m.path("d"))), "a directory's flags");
            assert!(shows_new_ctime(&m, "d", || chattr("-d", &m.path("d"))), "a directory's flags");
            let project = || drop(run("chattr", &["-p", "7", m.path("d").to_str().unwrap()]));
            assert!(shows_new_ctime(&m, "d", project), "a directory's project");
            // Under the writeback cache ctime of a regular file is the kernel's, and it does not take ours.
            if !writeback {
                assert!(shows_new_ctime(&m, "f", || chattr("+d", &m.path("f"))), "a file's flags");
            }
            m.finish();
        }
    }
}

#[test]
fn other_changes_show_a_new_ctime() {
    on_each_transport(|m| {
        for name in ["f", "d"] {
            if name == "f" {
                fs::write(m.path("f"), b"x").unwrap();
            } else {
                fs::create_dir(m.path("d")).unwrap();
            }
            let path = m.path(name);
            let set = |key: &str, value: &[u8]| {
                rustix::fs::setxattr(&path, key, value, rustix::fs::XattrFlags::empty()).unwrap();
            };
            assert!(shows_new_ctime(m, name, || set("user.key", b"value")), "setxattr of {name}");
            let remove = || rustix::fs::removexattr(&path, "user.key").unwrap();
            assert!(shows_new_ctime(m, name, remove), "removexattr of {name}");
            let acl = || drop(run("setfacl", &["-m", "u:1234:r", path.to_str().unwrap()]));
            assert!(shows_new_ctime(m, name, acl), "an ACL of {name}");
            let rename = || {
                fs::rename(&path, m.path("other")).unwrap();
                fs::rename(m.path("other"), &path).unwrap();
            };
            assert!(shows_new_ctime(m, name, rename), "a rename of {name}");
        }
        let link = || fs::hard_link(m.path("f"), m.path("g")).unwrap();
        assert!(shows_new_ctime(m, "f", link), "a further name");
        assert!(shows_new_ctime(m, "f", || fs::remove_file(m.path("g")).unwrap()), "a name less");
    });
}

/// Why opening a file failed, 0 where it did not.
fn open_error(path: &Path, options: &mut OpenOptions) -> i32 {
    options.open(path).err().map_or(0, |error| error.raw_os_error().unwrap())
}

#[test]
fn flags_forbid_writing_also_for_root() {
    on_each_transport(|m| {
        let path = m.path("f");
        fs::write(&path, b"before").unwrap();
        let writing = || open_error(&path, OpenOptions::new().write(true));
        let appending = || open_error(&path, OpenOptions::new().append(true));
        let truncating = || open_error(&path, OpenOptions::new().write(true).truncate(true));
        let appending_truncated =
            || open_error(&path, OpenOptions::new().append(true).read(true).custom_flags(libc::O_TRUNC));
        let touch = |time: &str| {
            std::process::Command::new("touch")
                .args(["-d", time])
                .arg(&path)
                .output()
                .unwrap()
                .status
                .success()
        };
        assert_eq!([writing(), appending()], [0, 0]);
        chattr("+i", &path);
        assert_eq!([writing(), appending(), truncating()], [libc::EPERM; 3], "immutable");
        assert_eq!(open_error(&path, OpenOptions::new().read(true)), 0);
        let truncated = rustix::fs::fallocate(
            OpenOptions::new().read(true).open(&path).unwrap(),
            rustix::fs::FallocateFlags::empty(),
            0,
            100_000,
        );
        assert!(truncated.is_err());
        assert!(!touch("2001-01-01"), "the times of an immutable file");
        chattr("-i", &path);
        chattr("+a", &path);
        assert_eq!([writing(), truncating(), appending_truncated()], [libc::EPERM; 3], "append-only");
        let cut = std::process::Command::new("truncate").args(["-s", "3"]).arg(&path).output().unwrap();
        assert!(!cut.status.success(), "an append-only file was cut");
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b" and after").unwrap();
        file.sync_all().unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"before and after");
        chattr("-a", &path);
        assert_eq!([writing(), appending(), truncating()], [0; 3]);
        assert!(touch("2001-01-01"));
    });
}

/// What is found on the volume after a loss of power at this moment: the names in a directory, and the
/// content of files.
fn after_power_loss<T>(m: &Mount, look: impl FnOnce(&medfs::Volume) -> T) -> T {
    let copy = m.image.dir.path().join("copy");
    run("cp", &["--sparse=always", m.image.path().to_str().unwrap(), copy.to_str().unwrap()]);
    let found = look(&crate::support::open(&copy));
    fs::remove_file(copy).unwrap();
    found
}

fn names(volume: &medfs::Volume, dir: &str) -> Vec<String> {
    let Ok(dir) = volume.lookup(volume.root(), dir.as_bytes()) else { return Vec::new() };
    let mut names = Vec::new();
    let take = &mut |entry: medfs::DirEntry| {
        names.push(String::from_utf8(entry.name).unwrap());
        true
    };
    volume.readdir(dir.ino, 0, take).unwrap();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

fn check_names_are_durable(m: &Mount) {
    let d = |name: &str| m.path(&format!("d/{name}"));
    let expect = |what: &str, expected: &[&str]| {
        assert_eq!(after_power_loss(m, |volume| names(volume, "d")), expected, "{what}");
    };
    File::create(d("a")).unwrap();
    expect("a new file", &["a"]);
    fs::create_dir(d("b")).unwrap();
    expect("a new directory", &["a", "b"]);
    symlink("a", d("c")).unwrap();
    expect("a new link", &["a", "b", "c"]);
    fs::hard_link(d("a"), d("e")).unwrap();
    expect("a further name", &["a", "b", "c", "e"]);
    fs::rename(d("e"), d("f")).unwrap();
    expect("a rename", &["a", "b", "c", "f"]);
    fs::rename(d("f"), m.path("outside")).unwrap();
    expect("a rename away", &["a", "b", "c"]);
    fs::remove_file(d("c")).unwrap();
    expect("a removal", &["a", "b"]);
    fs::remove_dir(d("b")).unwrap();
    expect("a directory's removal", &["a"]);
}

#[test]
fn names_in_a_synchronous_directory_are_durable_at_once() {
    on_each_transport(|m| {
        fs::create_dir(m.path("d")).unwrap();
        chattr("+D", &m.path("d"));
        check_names_are_durable(m);
    });
}

#[test]
fn a_synchronous_file_is_durable_as_it_is_written() {
    on_each_transport(|m| {
        let path = m.path("f");
        fs::write(&path, [1; 10_000]).unwrap();
        chattr("+S", &path);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.write_all_at(&[2; 5000], 8000).unwrap();
        let found = after_power_loss(m, |volume| {
            let ino = volume.lookup(volume.root(), b"f").unwrap().ino;
            let mut bytes = vec![0; 20_000];
            let len = volume.read(ino, 0, &mut bytes).unwrap();
            bytes.truncate(len);
            bytes
        });
        let expected = [vec![1; 8000], vec![2; 5000]].concat();
        assert!(found == expected, "{} bytes", found.len());
        assert!(fs::read(&path).unwrap() == expected, "what is read through the mount");
    });
}

#[test]
fn a_mount_option_makes_all_directories_synchronous() {
    if !fuse_available() {
        return;
    }
    let image = Image::new();
    let mut options = medfs::MountOptions::default();
    options.parse("dirsync").unwrap();
    let m = Mount::open_with(image, Transport::Dev, options);
    fs::create_dir(m.path("d")).unwrap();
    check_names_are_durable(&m);
    m.finish();
}

/// The page that msync(2) waits for comes from the kernel's cache by a handle that goes past it.
#[test]
fn a_mapping_of_a_synchronous_file_is_written() {
    on_each_transport(|m| {
        let path = m.path("f");
        fs::write(&path, [b'x'; 8192]).unwrap();
        chattr("+S", &path);
        let store = "import mmap, os, sys\nm = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)\nm[0:4] = b'mmap'\nm.flush()";
        let mut child = std::process::Command::new("python3").args(["-c", store]).arg(&path).spawn().unwrap();
        let ended = (0..400).find_map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            child.try_wait().unwrap()
        });
        assert!(ended.expect("msync returns").success());
        assert!(fs::read(&path).unwrap().starts_with(b"mmapx"));
    });
}
