//! Where something is made before it takes its place: beside it, under a name that says what it is.
//!
//! The name is that of the place with `.partial` behind it, and a number where that is taken. So what was at
//! the place is there until a copy is whole, and what an interrupted copy leaves is known for what it is.

use medfs_rescue::Lost;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Longest name of a file.
const NAME_MAX: usize = 255;
/// Names that are tried.
const MOST_NAMES: u32 = 10_000;
/// Bytes of an old file that are looked at at a time.
const CHUNK: u64 = 64 << 10;

/// `NAME.partial`, `NAME.partial.1`: a long name is cut.
pub(super) fn partial(name: &[u8], number: u32) -> Vec<u8> {
    let behind = if number == 0 { ".partial".to_owned() } else { format!(".partial.{number}") };
    let kept = name.len().min(NAME_MAX - behind.len());
    [&name[..kept], behind.as_bytes()].concat()
}

/// Makes something under the first such name that is free; the name, and what was made.
pub(super) fn make<T>(
    dir: &OwnedFd,
    name: &[u8],
    mut make: impl FnMut(&OwnedFd, &[u8]) -> io::Result<T>,
) -> io::Result<(Vec<u8>, T)> {
    for number in 0..MOST_NAMES {
        let partial = partial(name, number);
        match make(dir, &partial) {
            Err(error) if error.raw_os_error() == Some(Errno::EXIST.raw_os_error()) => {}
            made => return made.map(|made| (partial, made)),
        }
    }
    Err(Errno::EXIST.into())
}

/// Whether a file of a directory, where there is one, has nothing that a copy of `size` bytes without `lost`
/// would not have in its place.
pub(super) fn has_nothing_more(dir: &OwnedFd, name: &[u8], size: u64, lost: &Lost) -> io::Result<bool> {
    let stat = match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(true),
        Err(e) => return Err(e.into()),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
        || stat.st_size as u64 > size
        || !lost.is_known()
    {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        // What cannot be looked into may hold anything.
        Err(Errno::ACCESS | Errno::PERM) => return Ok(false),
        Err(e) => return Err(e.into()),
    };
    for range in &lost.ranges {
        if !is_empty(&file, range.start, range.end.min(stat.st_size as u64))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a file has nothing but zeros and holes in a range.
fn is_empty(file: &File, start: u64, end: u64) -> io::Result<bool> {
    let mut chunk = vec![0; CHUNK as usize];
    let mut at = start;
    while at < end {
        at = match fs::seek(file.as_fd(), SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(true),
            // A file system that knows nothing of holes.
            Err(_) => at,
        };
        let wanted = end.saturating_sub(at).min(CHUNK) as usize;
        if wanted == 0 {
            return Ok(true);
        }
        let read = file.read_at(&mut chunk[..wanted], at)?;
        if read == 0 || chunk[..read].iter().any(|&byte| byte != 0) {
            return Ok(read == 0);
        }
        at += read as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(ranges: &[(u64, u64)]) -> Lost {
        let mut lost = Lost::default();
        ranges.iter().for_each(|&(start, end)| lost.add(start..end));
        lost
    }

    #[test]
    fn names_are_cut_and_counted() {
        assert_eq!(partial(b"a", 0), b"a.partial");
        assert_eq!(partial(b"a", 12), b"a.partial.12");
        let long = partial(&[b'x'; 255], 3);
        assert!(long.len() == 255 && long.ends_with(b"x.partial.3"));
    }

    #[test]
    fn what_an_old_file_has_in_the_gaps_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let dir = fs::open(folder.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let nothing_more = |size, lost: &Lost| has_nothing_more(&dir, b"old", size, lost).unwrap();
        assert!(nothing_more(0, &lost(&[(0, 4096)])), "there is none");
        let file = File::create(folder.path().join("old")).unwrap();
        file.write_all_at(&[1], 500_000).unwrap();
        assert!(nothing_more(500_001, &lost(&[(0, 500_000)])));
        assert!(!nothing_more(500_001, &lost(&[(0, 10), (400_000, 500_001)])));
        assert!(!nothing_more(500_000, &lost(&[(0, 10)])), "it is longer");
        assert!(nothing_more(1 << 40, &lost(&[(500_001, 1 << 40)])), "it ends before the gap");
        // More gaps than are kept.
        let mut many = lost(&[]);
        (0..=medfs_rescue::MOST_RANGES as u64).for_each(|i| many.add(i * 10..i * 10 + 1));
        assert!(!nothing_more(500_001, &many));
        std::fs::remove_file(folder.path().join("old")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("old")).unwrap();
        assert!(!nothing_more(1, &lost(&[(0, 1)])), "a link");
    }
}
