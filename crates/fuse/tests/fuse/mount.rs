//! A mounted volume does what a Linux file system does, over each transport, and is clean afterwards.

use crate::support::{Image, Mount, fuse_available, run, transports};
use medfs::Files;
use medfs_device::{FileDevice, FileOptions};
use medfs_fuse::{BlockMount, Transport, control};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, RenameFlags, SeekFrom, XattrFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// Runs a test on a fresh mount over each transport.
fn on_each_transport(test: impl Fn(&Mount)) {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let mount = Mount::new(transport);
        assert_eq!(mount.session().info().transport, transport);
        test(&mount);
        mount.finish();
    }
}

fn read_write(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Bytes that are unlike at every offset.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

#[test]
fn files_and_names() {
    on_each_transport(|m| {
        fs::write(m.path("a"), b"hello").unwrap();
        assert_eq!(fs::read(m.path("a")).unwrap(), b"hello");
        fs::create_dir_all(m.path("d/e")).unwrap();
        fs::rename(m.path("a"), m.path("d/e/b")).unwrap();
        assert!(!m.path("a").exists());
        fs::hard_link(m.path("d/e/b"), m.path("c")).unwrap();
        assert_eq!(fs::metadata(m.path("c")).unwrap().nlink(), 2);
        symlink("d/e/b", m.path("l")).unwrap();
        assert_eq!(fs::read_link(m.path("l")).unwrap(), Path::new("d/e/b"));
        assert_eq!(fs::read(m.path("l")).unwrap(), b"hello");
        fs::remove_file(m.path("c")).unwrap();
        assert_eq!(fs::metadata(m.path("d/e/b")).unwrap().nlink(), 1);
        assert!(fs::remove_dir(m.path("d")).is_err());
        fs::write(m.path("x"), b"x").unwrap();
        let exchange = |flags| rustix::fs::renameat_with(CWD, m.path("x"), CWD, m.path("d/e/b"), flags);
        assert_eq!(exchange(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
        exchange(RenameFlags::EXCHANGE).unwrap();
        assert_eq!(
            (fs::read(m.path("x")).unwrap(), fs::read(m.path("d/e/b")).unwrap()),
            (b"hello".into(), b"x".into())
        );
        rustix::fs::mknodat(CWD, m.path("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(fs::metadata(m.path("fifo")).unwrap().file_type().is_fifo());
        rustix::fs::mknodat(
            CWD,
            m.path("null"),
            rustix::fs::FileType::CharacterDevice,
            Mode::RUSR,
            rustix::fs::makedev(1, 3),
        )
        .unwrap();
        assert_eq!(fs::metadata(m.path("null")).unwrap().rdev(), rustix::fs::makedev(1, 3));
        let mut names: Vec<_> = fs::read_dir(m.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["d", "fifo", "l", "null", "x"]);
        assert_eq!(
            fs::write(m.path(&"n".repeat(256)), b"").unwrap_err().raw_os_error(),
            Some(libc::ENAMETOOLONG)
        );
    });
}

#[test]
fn many_names_are_listed_once_each() {
    on_each_transport(|m| {
        const FILES: usize = 3000;
        for i in 0..FILES {
            fs::write(m.path(&format!("file-with-a-longer-name-{i}")), []).unwrap();
        }
        let listed: std::collections::HashSet<_> = fs::read_dir(m.path(""))
            .unwrap()
            .map(|e| e.unwrap())
            .map(|e| (e.file_name(), e.metadata().unwrap().ino()))
            .collect();
        assert_eq!(listed.len(), FILES);
        for i in 0..FILES {
            fs::remove_file(m.path(&format!("file-with-a-longer-name-{i}"))).unwrap();
        }
        assert_eq!(fs::read_dir(m.path("")).unwrap().count(), 0);
    });
}

#[test]
fn content_survives_a_remount() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let m = Mount::new(transport);
        let data = pattern(5_000_001, 1);
        fs::write(m.path("big"), &data).unwrap();
        let file = read_write(&m.path("sparse"));
        file.write_all_at(b"far", 1 << 30).unwrap();
        drop(file);
        fs::set_permissions(m.path("big"), fs::Permissions::from_mode(0o640)).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
        File::open(m.path("big")).unwrap().set_modified(time).unwrap();
        let m = m.again(transport);
        assert!(fs::read(m.path("big")).unwrap() == data, "the content differs");
        let meta = fs::metadata(m.path("big")).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.modified().unwrap()), (0o640, time));
        let file = File::open(m.path("sparse")).unwrap();
        let mut tail = [0; 6];
        file.read_exact_at(&mut tail, (1 << 30) - 3).unwrap();
        assert_eq!(&tail, b"\0\0\0far");
        assert!(fs::metadata(m.path("sparse")).unwrap().blocks() < 100);
        drop(file);
        m.finish();
    }
}

#[test]
#[allow(unsafe_code)]
fn stores_through_a_mapping_are_written() {
    on_each_transport(|m| {
        use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
        let file = read_write(&m.path("mapped"));
        file.set_len(8192).unwrap();
        // SAFETY: a new mapping of our own file, used within its 8192 bytes and unmapped once.
        unsafe {
            let address = mmap(
                std::ptr::null_mut(),
                8192,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
            .unwrap();
            address.cast::<u8>().add(5000).copy_from(b"mapped".as_ptr(), 6);
            msync(address, 8192, MsyncFlags::SYNC).unwrap();
            munmap(address, 8192).unwrap();
        }
        file.sync_all().unwrap();
        let ino = m.volume.lookup(m.volume.root(), b"mapped").unwrap().ino;
        let mut bytes = [0; 6];
        m.volume.read(ino, 5000, &mut bytes).unwrap();
        m.volume.release(ino, 1);
        assert_eq!(&bytes, b"mapped", "the engine has what was stored");
    });
}

#[test]
fn truncation_holes_and_seeking() {
    on_each_transport(|m| {
        let file = read_write(&m.path("f"));
        file.write_all_at(&pattern(20 * 4096, 2), 0).unwrap();
        // Not written back yet: the kernel has to be asked first.
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap(), 0);
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap(), 20 * 4096);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 4 * 4096, 8 * 4096).unwrap();
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap(), 4 * 4096);
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(4 * 4096)).unwrap(), 12 * 4096);
        let mut bytes = [1; 4096];
        file.read_exact_at(&mut bytes, 5 * 4096).unwrap();
        assert_eq!(bytes, [0; 4096]);
        file.set_len(4096 * 3 + 100).unwrap();
        file.set_len(4096 * 6).unwrap();
        file.read_exact_at(&mut bytes, 3 * 4096).unwrap();
        assert_eq!(bytes[..100], pattern(20 * 4096, 2)[3 * 4096..][..100]);
        assert_eq!(bytes[100..], [0; 4096 - 100]);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        file.sync_all().unwrap();
        let blocks = file.metadata().unwrap().blocks();
        assert!(blocks >= 2048, "{blocks} blocks for 1 MiB reserved");
        let copy = read_write(&m.path("copy"));
        let copied = rustix::fs::copy_file_range(&file, Some(&mut 0), &copy, Some(&mut 0), 8192).unwrap();
        assert_eq!(copied, 8192);
        let mut bytes = [0; 8192];
        copy.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..] == pattern(20 * 4096, 2)[..8192]);
    });
}

#[test]
fn unlinked_files_live_until_they_are_closed() {
    on_each_transport(|m| {
        let file = read_write(&m.path("gone"));
        file.write_all_at(b"still here", 0).unwrap();
        fs::remove_file(m.path("gone")).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.sync_all().unwrap();
        let mut text = String::new();
        (&file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "still here");
        let mut temporary =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(m.path("")).unwrap();
        temporary.write_all(b"nameless").unwrap();
        let descriptor = format!("/proc/self/fd/{}", temporary.as_raw_fd());
        rustix::fs::linkat(CWD, descriptor, CWD, m.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(fs::read(m.path("named")).unwrap(), b"nameless");
    });
}

/// A POSIX ACL in Linux' xattr representation: (tag, permission, id).
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&perm.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

const NO_ID: u32 = u32::MAX;

#[test]
fn extended_attributes_and_acls() {
    on_each_transport(|m| {
        let path = m.path("f");
        fs::write(&path, b"secret").unwrap();
        let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
        set("user.key", b"value", XattrFlags::CREATE).unwrap();
        assert_eq!(set("user.key", b"other", XattrFlags::CREATE), Err(rustix::io::Errno::EXIST));
        let mut buffer = [0; 64];
        assert_eq!(rustix::fs::getxattr(&path, "user.key", &mut buffer[..2]), Err(rustix::io::Errno::RANGE));
        let len = rustix::fs::getxattr(&path, "user.key", &mut buffer[..]).unwrap();
        assert_eq!(&buffer[..len], b"value");
        let len = rustix::fs::listxattr(&path, &mut buffer[..]).unwrap();
        assert_eq!(&buffer[..len], b"user.key\0");
        rustix::fs::removexattr(&path, "user.key").unwrap();
        assert_eq!(rustix::fs::getxattr(&path, "user.key", &mut buffer[..]), Err(rustix::io::Errno::NODATA));

        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!readable_by(&path, 1234));
        // u::rw-, u:1234:r--, g::---, m::r--, o::---
        let entries = [(1, 6, NO_ID), (2, 4, 1234), (4, 0, NO_ID), (16, 4, NO_ID), (32, 0, NO_ID)];
        set("system.posix_acl_access", &acl(&entries), XattrFlags::empty()).unwrap();
        assert_eq!(mode(&path), 0o640, "the mask is the group's bits");
        assert!(readable_by(&path, 1234));
        assert!(!readable_by(&path, 1235));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!readable_by(&path, 1234), "chmod has changed the mask");

        // A default ACL replaces the umask.
        let inherited = [(1, 7, NO_ID), (4, 7, NO_ID), (32, 5, NO_ID)];
        fs::create_dir(m.path("d")).unwrap();
        rustix::fs::setxattr(m.path("d"), "system.posix_acl_default", &acl(&inherited), XattrFlags::empty())
            .unwrap();
        run("sh", &["-c", &format!("umask 077; touch {0}/d/f {0}/f-with-umask", m.path("").display())]);
        assert_eq!((mode(&m.path("d/f")), mode(&m.path("f-with-umask"))), (0o664, 0o600));
    });
}

fn readable_by(path: &Path, uid: u32) -> bool {
    use std::os::unix::process::CommandExt;
    // The temporary directory itself is root's alone.
    for ancestor in path.ancestors().skip(1).take(2) {
        fs::set_permissions(ancestor, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let status = Command::new("cat").arg(path).uid(uid).gid(uid).output().unwrap().status;
    status.success()
}

#[test]
fn set_id_bits_go_when_they_must() {
    on_each_transport(|m| {
        let path = m.path("f");
        fs::write(&path, b"x").unwrap();
        let chmod = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        chmod(0o6755);
        std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
        assert_eq!(mode(&path), 0o755, "after a change of owner");
        chmod(0o6777);
        fs::OpenOptions::new().write(true).open(&path).unwrap().write_all(b"root").unwrap();
        assert_eq!(mode(&path), 0o6777, "root's writes leave them");
        assert!(readable_by(&path, 1001));
        let script = format!("echo x >> {}", path.display());
        use std::os::unix::process::CommandExt;
        assert!(Command::new("sh").args(["-c", &script]).uid(1001).gid(1001).status().unwrap().success());
        assert_eq!(mode(&path), 0o777, "after a write by another");
    });
}

#[test]
fn chattr_flags_statfs_and_trim() {
    on_each_transport(|m| {
        let path = m.path("f");
        fs::write(&path, b"x").unwrap();
        run("chattr", &["+di", path.to_str().unwrap()]);
        let listed = run("lsattr", &[path.to_str().unwrap()]);
        assert!(listed.starts_with("----i-d"), "{listed}");
        assert_eq!(fs::remove_file(&path).unwrap_err().raw_os_error(), Some(libc::EPERM));
        run("chattr", &["-i", path.to_str().unwrap()]);
        fs::remove_file(&path).unwrap();
        let stat = rustix::fs::statvfs(m.path("")).unwrap();
        assert!(
            stat.f_bsize == 4096
                && stat.f_blocks > 30_000
                && stat.f_bfree < stat.f_blocks
                && stat.f_namemax == 255
        );
        run("fstrim", &[m.path("").to_str().unwrap()]);
        let birth = run("stat", &["-c", "%W", m.path("").to_str().unwrap()]);
        assert_ne!(birth.trim(), "", "statx is served");
    });
}

#[test]
fn the_daemon_is_reached_through_the_mount() {
    on_each_transport(|m| {
        assert!(control::is_medfs(&m.path("")).unwrap());
        assert!(!control::is_medfs(Path::new("/proc")).unwrap());
        fs::write(m.path("f"), b"x").unwrap();
        fs::create_dir(m.path("d")).unwrap();
        let before = m.volume.stats().checkpoints;
        control::sync(&m.path("d")).unwrap();
        assert!(m.volume.stats().checkpoints > before);
        let stats: serde_json::Value =
            serde_json::from_str(&control::stats_json(&m.path("")).unwrap()).unwrap();
        assert!(stats["checkpoints"].as_u64().unwrap() > before, "{stats}");
        let error = control::sync(Path::new("/tmp")).unwrap_err().to_string();
        assert!(error.contains("/tmp is not on a mounted medfs volume"), "{error}");
    });
}

#[test]
fn a_busy_mount_is_reported_and_can_go_lazily() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let m = Mount::new(transport);
        let file = read_write(&m.path("f"));
        let error = m.session().unmount().unwrap_err();
        assert!(matches!(error, medfs_fuse::Error::Busy(_)), "{error}");
        file.write_all_at(b"x", 0).unwrap();
        drop(file);
        m.finish();
    }
}

#[test]
fn a_daemon_without_a_writeback_cache_serves_as_well() {
    if !fuse_available() {
        return;
    }
    let m = Mount::with(Image::new(), Transport::Dev, |config| config.writeback = false);
    let data = pattern(3_000_000, 3);
    fs::write(m.path("f"), &data).unwrap();
    assert!(fs::read(m.path("f")).unwrap() == data);
    m.finish();
}

#[test]
fn several_writers_at_once() {
    on_each_transport(|m| {
        std::thread::scope(|scope| {
            for writer in 0..8u8 {
                let dir = m.path(&format!("d{writer}"));
                scope.spawn(move || {
                    fs::create_dir(&dir).unwrap();
                    for i in 0..40 {
                        let path = dir.join(format!("f{i}"));
                        let data = pattern(10_000 + i * 997, writer);
                        let mut file = File::create(&path).unwrap();
                        file.write_all(&data).unwrap();
                        if i % 4 == 0 {
                            file.sync_all().unwrap();
                        }
                        assert!(fs::read(&path).unwrap() == data);
                        if i % 3 == 0 {
                            fs::remove_file(&path).unwrap();
                        }
                    }
                });
            }
        });
    });
}

/// A process that may not claim the device is told so, until the mount has ended.
fn is_claimed(device: &str) -> bool {
    let opened = FileDevice::open(device, FileOptions::read_only());
    opened.is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy)
}

#[test]
fn a_block_device_is_the_kernels_until_the_volume_is_closed() {
    if !fuse_available() {
        return;
    }
    let image = Image::new();
    let device = run("losetup", &["--find", "--show", image.path().to_str().unwrap()]).trim().to_owned();
    for transport in transports() {
        let config = image.config(transport);
        let claimed = BlockMount::claim(&config, Path::new(&device)).unwrap();
        assert!(is_claimed(&device), "before it is read");
        assert!(matches!(BlockMount::claim(&config, Path::new(&device)), Err(medfs_fuse::Error::InUse(_))));
        let volume = crate::support::open(Path::new(&device));
        let (closing, claims) = (volume.clone(), device.clone());
        let claimed_at_end = Arc::new(Mutex::new(None));
        let seen = claimed_at_end.clone();
        let close = move || {
            // umount(2) is to wait for this.
            std::thread::sleep(Duration::from_millis(300));
            closing.close().unwrap();
            *seen.lock().unwrap() = Some(is_claimed(&claims));
        };
        let session = medfs_fuse::mount_block(volume.clone(), config, claimed, close).unwrap();
        fs::write(image.mountpoint().join("f"), b"x").unwrap();
        assert!(is_claimed(&device));
        session.unmount().unwrap();
        assert_eq!(
            *claimed_at_end.lock().unwrap(),
            Some(true),
            "umount(2) came back before the volume was closed"
        );
        assert!(!is_claimed(&device));
        assert!(volume.is_read_only(), "closed");
        session.wait().unwrap();
    }
    run("losetup", &["--detach", &device]);
    image.check();
}

#[test]
fn a_block_device_that_cannot_be_mounted_is_given_back() {
    if !fuse_available() {
        return;
    }
    let image = Image::new();
    let device = run("losetup", &["--find", "--show", image.path().to_str().unwrap()]).trim().to_owned();
    let mut config = image.config(Transport::Dev);
    drop(BlockMount::claim(&config, Path::new(&device)).unwrap());
    assert!(!is_claimed(&device), "claimed for nothing");
    config.mountpoint = "/nonexistent/place".into();
    let claimed = BlockMount::claim(&config, Path::new(&device)).unwrap();
    let volume = crate::support::open(Path::new(&device));
    assert!(medfs_fuse::mount_block(volume, config, claimed, || ()).is_err());
    assert!(!is_claimed(&device), "not mounted");
    run("losetup", &["--detach", &device]);
}

#[test]
fn syncfs_reaches_the_volume_on_a_block_device() {
    if !fuse_available() {
        return;
    }
    let image = Image::new();
    let device = run("losetup", &["--find", "--show", image.path().to_str().unwrap()]).trim().to_owned();
    for transport in transports() {
        let volume = crate::support::open(Path::new(&device));
        let config = image.config(transport);
        let claimed = BlockMount::claim(&config, Path::new(&device)).unwrap();
        let session = medfs_fuse::mount_block(volume.clone(), config, claimed, || ()).unwrap();
        assert!(session.info().block);
        let path = image.mountpoint().join(format!("f-{transport}"));
        fs::write(&path, b"x").unwrap();
        let before = volume.stats().checkpoints;
        rustix::fs::syncfs(File::open(&path).unwrap()).unwrap();
        assert!(volume.stats().checkpoints > before, "syncfs(2) did not reach the volume");
        session.unmount().unwrap();
        session.wait().unwrap();
        volume.close().unwrap();
    }
    run("losetup", &["--detach", &device]);
    image.check();
}

/// The daemon of the next test: serves the image named by the environment until it is killed.
#[test]
#[ignore = "a part of a_killed_daemon_leaves_a_mount_that_can_be_removed"]
fn daemon() {
    let image = std::env::var("MEDFS_TEST_IMAGE").unwrap();
    let mountpoint = std::env::var("MEDFS_TEST_MOUNTPOINT").unwrap();
    let mut config = medfs_fuse::MountConfig::new(mountpoint, &image);
    config.transport = std::env::var("MEDFS_TEST_TRANSPORT").unwrap().parse().unwrap();
    medfs_fuse::mount(crate::support::open(Path::new(&image)), config).unwrap().wait().unwrap();
}

#[test]
fn a_killed_daemon_leaves_a_mount_that_can_be_removed() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let image = Image::new();
        let mut daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "mount::daemon", "--nocapture"])
            .env("MEDFS_TEST_IMAGE", image.path())
            .env("MEDFS_TEST_MOUNTPOINT", image.mountpoint())
            .env("MEDFS_TEST_TRANSPORT", transport.to_string())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !control::is_medfs(&image.mountpoint()).unwrap_or(false) {
            assert!(Instant::now() < deadline, "the daemon did not mount");
            std::thread::sleep(Duration::from_millis(20));
        }
        let path = image.mountpoint().join("kept");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"fsynced").unwrap();
        file.sync_all().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        drop(file);
        // What is under way when the connection breaks is aborted; from then on it is not connected.
        while fs::metadata(&path).err().and_then(|error| error.raw_os_error()) != Some(libc::ENOTCONN) {
            assert!(Instant::now() < deadline, "the mount does not say that its daemon is gone");
            std::thread::sleep(Duration::from_millis(20));
        }
        control::unmount(&image.mountpoint()).unwrap();
        // The next mount has what was fsynced.
        let m = Mount::with(image, transport, |_| {});
        assert_eq!(fs::read(m.path("kept")).unwrap(), b"fsynced");
        m.finish();
    }
}

#[test]
fn what_cannot_be_mounted_is_explained() {
    if !fuse_available() {
        return;
    }
    let image = Image::new();
    let mut config = image.config(Transport::Dev);
    config.mountpoint = "/nonexistent/place".into();
    let error = medfs_fuse::mount(image.open(), config).err().unwrap().to_string();
    assert!(error.contains("/nonexistent/place") && error.contains("No such file"), "{error}");
}
