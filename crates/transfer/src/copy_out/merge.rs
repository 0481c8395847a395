//! An incomplete copy takes over what an earlier one of the same file has in its gaps.
//!
//! Invariant: two copies are of one version of a file where size and time of change are the same and where no
//! page in which both have something differs. Of others nothing is taken over. A gap is a page of zeros.

use medfs_rescue::Lost;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;
/// Bytes that are looked at at a time.
const CHUNK: u64 = 64 << 10;

fn open(dir: &OwnedFd, name: &[u8], how: OFlags) -> io::Result<File> {
    let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(fs::openat(dir, name, flags, Mode::empty())?))
}

/// Fills `lost` of a new copy with what an old one has there, and tells whether that was something in each of its
/// pages; `None`, and nothing is changed, where they are not of one version.
pub(super) fn take_over(dir: &OwnedFd, new: &[u8], old: &[u8], lost: &Lost) -> io::Result<Option<bool>> {
    let Ok(old) = open(dir, old, OFlags::RDONLY) else { return Ok(None) };
    let new = open(dir, new, OFlags::RDWR)?;
    let (was, is) = (fs::fstat(&old)?, fs::fstat(&new)?);
    if FileType::from_raw_mode(was.st_mode) != FileType::RegularFile
        || (was.st_size, was.st_mtime, was.st_mtime_nsec) != (is.st_size, is.st_mtime, is.st_mtime_nsec)
        || !lost.is_known()
    {
        return Ok(None);
    }
    let size = is.st_size as u64;
    let mut ranges = lost.ranges.clone();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut at = 0;
    for range in ranges.into_iter().chain(std::iter::once(size..size)) {
        if !agree(&old, &new, at..range.start)? {
            return Ok(None);
        }
        at = at.max(range.end);
    }
    let mut left = 0;
    for range in &lost.ranges {
        let range = range.start..range.end.min(size);
        left += range.end.saturating_sub(range.start);
        each_chunk(&old, range, |bytes, at| {
            for (page, at) in bytes.chunks(PAGE).zip((at..).step_by(PAGE)) {
                if page.iter().any(|&byte| byte != 0) {
                    new.write_all_at(page, at)?;
                    left = left.saturating_sub(page.len() as u64);
                }
            }
            Ok(true)
        })?;
    }
    let time = |sec, nsec| Timespec { tv_sec: sec, tv_nsec: nsec as _ };
    let last_access = time(is.st_atime, is.st_atime_nsec);
    let times = Timestamps { last_access, last_modification: time(is.st_mtime, is.st_mtime_nsec) };
    fs::futimens(new.as_fd(), &times)?;
    Ok(Some(left == 0))
}

/// Whether a file has all that is in another one of the same directory, a regular file.
pub(super) fn contains(dir: &OwnedFd, file: &[u8], other: &[u8]) -> io::Result<bool> {
    let (file, other) = (open(dir, file, OFlags::RDONLY)?, open(dir, other, OFlags::RDONLY)?);
    let (has, had) = (fs::fstat(&file)?, fs::fstat(&other)?);
    let fits = FileType::from_raw_mode(had.st_mode) == FileType::RegularFile && had.st_size <= has.st_size;
    Ok(fits && agree(&other, &file, 0..had.st_size as u64)?)
}

/// Whether two copies have the same in every page of a range in which the old one has something.
fn agree(old: &File, new: &File, range: Range<u64>) -> io::Result<bool> {
    let mut other = vec![0; CHUNK as usize];
    each_chunk(old, range, |bytes, at| {
        let other = &mut other[..bytes.len()];
        new.read_exact_at(other, at)?;
        let mut pages = bytes.chunks(PAGE).zip(other.chunks(PAGE));
        Ok(pages.all(|(page, other)| page == other || page.iter().all(|&byte| byte == 0)))
    })
}

/// Hands out what a file has in a range, without its holes, until one answer is `false`, which is then the result.
fn each_chunk(
    file: &File,
    range: Range<u64>,
    mut take: impl FnMut(&[u8], u64) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut chunk = vec![0; CHUNK as usize];
    let mut at = range.start;
    loop {
        at = match fs::seek(file.as_fd(), SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(true),
            // A file system that knows nothing of holes.
            Err(_) => at,
        };
        let wanted = range.end.saturating_sub(at).min(CHUNK) as usize;
        if wanted == 0 {
            return Ok(true);
        }
        file.read_exact_at(&mut chunk[..wanted], at)?;
        if !take(&chunk[..wanted], at)? {
            return Ok(false);
        }
        at += wanted as u64;
    }
}
