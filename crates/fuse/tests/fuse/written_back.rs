//! `medfs sync` and its like reach what the kernel's page cache holds, and wait until the volume has it.

use crate::support::{Image, Mount, fuse_available, open, transports};
use medfs::{Files, MountOptions, Volume};
use medfs_fuse::control;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// The volume as it is after a crash at this moment.
fn durable(m: &Mount) -> Arc<Volume> {
    let copy = m.image.dir.path().join("copy");
    fs::copy(m.image.path(), &copy).unwrap();
    open(&copy)
}

/// Each file is found by the names that it and the directories above it have now.
#[test]
fn a_sync_waits_for_what_the_page_cache_holds() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let m = Mount::with(Image::sized(64), transport, |_| {});
        fs::create_dir_all(m.path("a/b")).unwrap();
        for round in 0..10 {
            let mut written: Vec<(File, u64)> = Vec::new();
            for name in (0..40).flat_map(|i| ["f", "a/g", "a/b/h"].map(|name| format!("{name}{round}-{i}"))) {
                let mut file = File::create(m.path(&name)).unwrap();
                file.write_all(name.as_bytes()).unwrap();
                written.push((file, name.len() as u64));
            }
            // Found by the names that they have now.
            fs::rename(m.path(&format!("f{round}-1")), m.path(&format!("a/renamed{round}"))).unwrap();
            fs::rename(m.path("a/b"), m.path("a/c")).unwrap();
            fs::rename(m.path("a/c"), m.path("a/b")).unwrap();
            let inos = written.iter().map(|(file, _)| file.metadata().unwrap().ino() as u32);
            let inos: Vec<u32> = inos.collect();
            control::sync(&m.path("")).unwrap();
            let durable = durable(&m);
            for (ino, (_, size)) in inos.into_iter().zip(&written) {
                assert_eq!(durable.getattr(ino).unwrap().size, *size, "{transport}, round {round}");
            }
        }
    }
}

/// syncfs(2) on such a mount begins to write back and does not wait: some of these were as before.
/// A mapping has no descriptor, and no writeback cache is needed for the kernel to hold its writes back.
#[test]
#[allow(unsafe_code)]
fn a_sync_waits_for_what_was_written_to_a_mapping() {
    if !fuse_available() {
        return;
    }
    for (writeback, transport) in transports().into_iter().flat_map(|t| [(true, t), (false, t)]) {
        let m = Mount::with(Image::sized(64), transport, |config| config.writeback = writeback);
        let mut mappings = Vec::new();
        for name in (0..60).map(|i| format!("f{i}")) {
            fs::write(m.path(&name), [0; 4096]).unwrap();
            let file = OpenOptions::new().read(true).write(true).open(m.path(&name)).unwrap();
            let ino = file.metadata().unwrap().ino() as u32;
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            // SAFETY: a new mapping, which nothing else knows of until it is unmapped.
            let mapped = unsafe { mmap(std::ptr::null_mut(), 4096, protection, flags, &file, 0) }.unwrap();
            mappings.push((ino, mapped));
        }
        for round in 1..10u8 {
            for (_, mapped) in &mappings {
                // SAFETY: it is as long as a page, and writable.
                unsafe { mapped.cast::<u8>().write_volatile(round) };
            }
            control::sync(&m.path("")).unwrap();
            let durable = durable(&m);
            for (ino, _) in &mappings {
                let mut byte = [0];
                durable.read(*ino, 0, &mut byte).unwrap();
                assert_eq!(byte[0], round, "{transport}, writeback {writeback}");
            }
        }
        for (_, mapped) in mappings {
            // SAFETY: what was mapped above.
            unsafe { munmap(mapped, 4096) }.unwrap();
        }
    }
}

/// What the page cache holds of the app is durable when the call returns, whichever of its files is asked. What it
/// holds of another app the daemon has then, and keeps.
#[test]
fn a_barrier_for_an_app_reaches_what_the_page_cache_holds_of_it() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let mut options = MountOptions::default();
        options.parse("durability=adaptive,survivor=off,apps=top,durability_age=600s").unwrap();
        let m = Mount::open_with(Image::sized(64), transport, options);
        ["a", "b"].iter().for_each(|folder| fs::create_dir(m.path(folder)).unwrap());
        let names = ["a/x", "a/y", "b/x"];
        let mut files = names.map(|name| File::create(m.path(name)).unwrap());
        files.iter_mut().for_each(|file| file.write_all(b"old").unwrap());
        control::sync(&m.path("")).unwrap();
        let inos = names.map(|name| fs::metadata(m.path(name)).unwrap().ino() as u32);
        // One file of the app changes: of several only a volume with deltas commits an app alone.
        for (size, said) in [(6, "a/y"), (9, "a")] {
            [0, 2].into_iter().for_each(|n: usize| files[n].write_all(b"new").unwrap());
            control::sync_app(&m.path(said)).unwrap();
            let durable = durable(&m);
            let sizes = inos.map(|ino| durable.getattr(ino).unwrap().size);
            assert_eq!(sizes, [size, 3, 3], "{transport}, {said}");
        }
        assert!(control::sync_app(m.image.path().as_path()).is_err(), "it is on no such volume");
    }
}
