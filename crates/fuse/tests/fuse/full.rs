//! Full volumes: what is acknowledged is kept, and what finds no room is refused when it is written.

use crate::support::{Image, Mount, fuse_available, transports};
use medfs::Files;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes that are unlike on every page.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len).collect()
}

fn room(m: &Mount) -> u64 {
    m.volume.space().available * 4096
}

/// Waits until a removed file has given its room back: the kernel tells that it is gone a moment later.
fn wait_for_room(m: &Mount, wanted: u64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while room(m) < wanted {
        assert!(Instant::now() < deadline, "no room comes back");
        std::thread::sleep(Duration::from_millis(5));
        m.volume.sync().unwrap();
    }
}

/// Writes a file in calls of `chunk` bytes and fsyncs it.
fn put(path: &Path, content: &[u8], chunk: usize) -> io::Result<()> {
    let mut file = File::create(path)?;
    content.chunks(chunk).try_for_each(|piece| file.write_all(piece))?;
    file.sync_all()
}

fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSPC)
}

#[test]
fn a_file_that_was_fsynced_on_a_full_volume_is_whole() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        // One volume for all: each file is as large as what is left, and a little less or more.
        let mut m = Mount::with(Image::sized(64), transport, |_| {});
        for (round, beyond) in [-400i64, -100, -52, -48, -4, 0, 4, 100, 1000].into_iter().enumerate() {
            let content = noise((room(&m) as i64 + beyond * 1024) as usize, round as u64 + 1);
            let put = put(&m.path("f"), &content, 1 << 20);
            if let Err(error) = &put {
                assert!(is_full(error), "{error}");
            }
            // What is shown as available leaves out the nodes, of which fewer may be needed.
            assert!(put.is_err() || beyond < 100, "more than there is room for was accepted");
            m = m.again(transport);
            assert!(put.is_err() || fs::read(m.path("f")).unwrap() == content, "{beyond} KiB beyond");
            fs::remove_file(m.path("f")).unwrap();
            wait_for_room(&m, 8 << 20);
        }
        m.finish();
    }
}

#[test]
fn what_is_overwritten_on_a_full_volume_is_written_beside_what_is_refused() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let m = Mount::with(Image::sized(64), transport, |_| {});
        let path = m.path("f");
        let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
        // Every second page is a hole.

        for page in (0..256).step_by(2) {
            file.write_all_at(&noise(4096, page + 1), page * 4096).unwrap();
        }
        file.sync_all().unwrap();
        while m.volume.space().available > 0 {
            let _ = put(&m.path(&format!("filler{}", room(&m))), &noise(room(&m) as usize, 3), 4096);
        }
        // One request of the page cache carries them all.
        let mut refused = 0;
        for page in 0..256 {
            refused += usize::from(file.write_all_at(&noise(4096, page + 1000), page * 4096).is_err());
        }
        assert!(refused > 0 || file.sync_all().is_err_and(|error| is_full(&error)), "all were accepted");
        drop(file);
        let m = m.again(transport);
        let now = fs::read(m.path("f")).unwrap();
        for page in (0..256).step_by(2) {
            assert!(now[page * 4096..][..4096] == noise(4096, page as u64 + 1000), "page {page}");
        }
        m.finish();
    }
}

/// What a writer that asks for nothing but room was told: how many bytes were accepted, and what ended it.
fn fill(file: &File, seed: u64, chunk: usize, most: usize) -> (Vec<u8>, Option<io::Error>) {
    let mut accepted = Vec::new();
    let mut file = file;
    while accepted.len() < most {
        let piece = noise(chunk, seed + accepted.len() as u64);
        match file.write(&piece) {
            Ok(taken) => accepted.extend_from_slice(&piece[..taken]),
            Err(error) => return (accepted, Some(error)),
        }
    }
    (accepted, None)
}

#[test]
fn a_direct_write_that_finds_no_room_says_so() {
    if !fuse_available() {
        return;
    }
    #[repr(align(4096))]
    struct Aligned([u8; 4096 * 3000]);
    for transport in transports() {
        let m = Mount::with(Image::sized(64), transport, |_| {});
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).custom_flags(libc::O_DIRECT).open(m.path(name))
        };
        let file = open("f").unwrap();
        let data = Box::new(Aligned([7; _]));
        let error = loop {
            if let Err(error) = (&file).write_all(&data.0) {
                break error;
            }
        };
        assert!(is_full(&error), "{error}");
        drop(file);
        m.finish();
    }
}

#[test]
fn a_write_that_finds_no_room_is_refused_when_it_is_made() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        for (reads, chunk) in [(false, 1 << 20), (true, 1 << 20), (true, 16384), (false, 64 << 20)] {
            let m = Mount::with(Image::sized(100), transport, |_| {});
            fs::write(m.path("g"), "").unwrap();
            let room = room(&m) as usize;
            let file = OpenOptions::new().read(reads).write(true).create_new(true).open(m.path("f")).unwrap();
            let (accepted, error) = fill(&file, 7, chunk, 2 * room);
            assert!(error.is_some_and(|error| is_full(&error)), "of {room} bytes {} taken", accepted.len());
            assert!(accepted.len() + chunk >= room - (2 << 20), "{} of {room}", accepted.len());
            let size = file.metadata().unwrap().len() as usize;
            assert!(size <= accepted.len() + chunk, "{size} for {} accepted", accepted.len());
            drop(file);
            // Whoever opens a file now is refused at once too, and takes what is left.
            let other = OpenOptions::new().write(true).open(m.path("g")).unwrap();
            let (beside, error) = fill(&other, 9, 4096, room);
            assert!(error.is_some_and(|error| is_full(&error)));
            assert_eq!(other.metadata().unwrap().len() as usize, beside.len());
            drop(other);
            let m = m.again(transport);
            assert!(fs::read(m.path("f")).unwrap()[..accepted.len()] == accepted, "{reads} {chunk}");
            assert!(fs::read(m.path("g")).unwrap() == beside, "{reads} {chunk}");
            m.finish();
        }
    }
}
