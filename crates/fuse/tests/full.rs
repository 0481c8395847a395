//! Full volumes: what is acknowledged is kept, and what finds no room is refused when it is written.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::{Image, Mount, fuse_available, transports};

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
    m.volume.statfs().available * 4096
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
            assert!(put.is_err() || beyond < 0, "more than there is room for was accepted");
            m = m.again(transport);
            assert!(put.is_err() || fs::read(m.path("f")).unwrap() == content, "{beyond} KiB beyond");
            fs::remove_file(m.path("f")).unwrap();
            m.volume.sync().unwrap();
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
        while m.volume.statfs().available > 0 {
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
