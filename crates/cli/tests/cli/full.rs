//! Volumes that are full again and again, through the mount: what was acknowledged is found after each
//! remount, be it a clean one or after the daemon was killed, and what found no room was refused with ENOSPC.
//!
//! Eight writers fill a small volume with files, in every way in which the page cache can be written through or past.
//! Of each page the versions are known that it may have. `MEDFS_SEED` repeats a run's choices, `MEDFS_MINUTES` says
//! how long the long run takes, `MEDFS` names another program than the one just built.

use crate::common::*;
use crate::mounts::{Mounted, Rng, minutes, seed};
use rustix::fs::FallocateFlags;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const WRITERS: u64 = 8;

/// A page's content: zeros, or what its file, place and version make.
fn page_content(file: u64, page: u64, version: u32) -> [u64; PAGE / 8] {
    let mut content = [0; PAGE / 8];
    if version > 0 {
        let mut rng = Rng::new(file << 40 ^ page << 20 ^ u64::from(version));
        content.fill_with(|| rng.next());
        (content[0], content[1], content[2]) = (file, page, version.into());
    }
    content
}

/// What is known of a page.
#[derive(Clone)]
struct Page {
    /// It is one of these versions; the last one was written last.
    versions: Vec<u32>,
    /// It is the last one, unless the daemon dies before the next fsync.
    sure: bool,
}

impl Page {
    const HOLE: fn() -> Page = || Page { versions: vec![0], sure: true };

    fn wrote(&mut self, version: u32, accepted: bool) {
        self.versions.push(version);
        self.sure = accepted;
    }

    fn synced(&mut self) {
        if self.sure {
            self.versions.drain(..self.versions.len() - 1);
        }
    }
}

/// A file of one writer.
struct Known {
    id: u64,
    path: PathBuf,
    pages: Vec<Page>,
    handle: Option<File>,
    /// It was written through a mapping since the last fsync.
    mapped: bool,
    direct: bool,
    synchronous: bool,
    next: u32,
}

#[derive(Default)]
struct Told {
    writes: AtomicU64,
    refused: AtomicU64,
    refused_late: AtomicU64,
    fsyncs: AtomicU64,
}

/// What one writer knows, over all mounts.
struct Writer {
    rng: Rng,
    files: BTreeMap<u64, Known>,
    next_id: u64,
    /// It may store through mappings: where the daemon is killed a store is a SIGBUS.
    maps: bool,
}

/// Memory that O_DIRECT takes.
#[repr(align(4096))]
#[derive(Clone)]
#[allow(dead_code)] // it is read as bytes
struct Aligned([u64; PAGE / 8]);

fn bytes(pages: &[Aligned]) -> &[u8] {
    // SAFETY: the pages are plain integers in one piece of memory.
    #[allow(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts(pages.as_ptr().cast(), pages.len() * PAGE)
    }
}

fn no_space(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSPC)
}

impl Known {
    fn ensure(&mut self, pages: usize) {
        if self.pages.len() < pages {
            self.pages.resize_with(pages, Page::HOLE);
        }
    }

    fn fail(&mut self) {
        for page in self.pages.iter_mut().filter(|page| page.versions.len() > 1) {
            page.sure = false;
        }
    }

    /// Writes pages in one call.
    fn write(&mut self, at: usize, count: usize, told: &Told) -> io::Result<()> {
        self.ensure(at + count);
        self.next += 1;
        let version = self.next;
        let data: Vec<_> =
            (at..at + count).map(|page| Aligned(page_content(self.id, page as u64, version))).collect();
        let file = self.handle.as_ref().unwrap();
        let mut done = 0;
        let result = loop {
            match file.write_at(&bytes(&data)[done..], (at * PAGE + done) as u64) {
                // A write past the page cache may end within a page.
                Ok(written) => {
                    done += written;
                    if done == count * PAGE {
                        break Ok(());
                    }
                    if self.direct && done % PAGE != 0 {
                        break Err(io::Error::from_raw_os_error(libc::ENOSPC));
                    }
                }
                Err(error) => break Err(error),
            }
        };
        told.writes.fetch_add(1, Ordering::Relaxed);
        for (i, page) in self.pages[at..at + count].iter_mut().enumerate() {
            page.wrote(version, (i + 1) * PAGE <= done);
            if self.synchronous && result.is_ok() {
                page.synced();
            }
        }
        if result.is_err() && self.mapped {
            // The error may be that of a store, and stand for more than this write.
            self.fail();
        }
        result
    }

    /// Stores through a mapping, in holes too.
    fn store(&mut self, at: usize, count: usize) -> io::Result<()> {
        self.ensure(at + count);
        let file = self.handle.as_ref().unwrap();
        if (file.metadata()?.len() as usize) < (at + count) * PAGE {
            file.set_len(((at + count) * PAGE) as u64)?;
        }
        self.next += 1;
        let version = self.next;
        let len = count * PAGE;
        // SAFETY: the mapping lies within the file, and ends before this function returns.
        #[allow(unsafe_code)]
        let synced = unsafe {
            let (protection, offset) = (libc::PROT_READ | libc::PROT_WRITE, (at * PAGE) as i64);
            let map = libc::mmap64(
                std::ptr::null_mut(),
                len,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            );
            if map == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            for page in 0..count {
                let content = page_content(self.id, (at + page) as u64, version);
                std::ptr::copy_nonoverlapping(
                    content.as_ptr().cast(),
                    map.cast::<u8>().add(page * PAGE),
                    PAGE,
                );
            }
            let synced = if libc::msync(map, len, libc::MS_SYNC) == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            };
            libc::munmap(map, len);
            synced
        };
        self.mapped = true;
        for page in &mut self.pages[at..at + count] {
            page.wrote(version, false);
        }
        if synced.is_err() {
            self.fail();
            return synced;
        }
        for page in &mut self.pages[at..at + count] {
            page.versions.drain(..page.versions.len() - 1);
            page.sure = true;
        }
        Ok(())
    }

    fn fsync(&mut self, data: bool, told: &Told) -> io::Result<()> {
        let file = self.handle.as_ref().unwrap();
        let synced = if data { file.sync_data() } else { file.sync_all() };
        told.fsyncs.fetch_add(1, Ordering::Relaxed);
        match &synced {
            Ok(()) => self.pages.iter_mut().for_each(Page::synced),
            Err(error) => {
                if no_space(error) && !self.mapped {
                    told.refused_late.fetch_add(1, Ordering::Relaxed);
                }
                self.fail();
            }
        }
        self.mapped = false;
        synced
    }

    fn cut(&mut self, pages: usize) -> io::Result<()> {
        self.handle.as_ref().unwrap().set_len((pages * PAGE) as u64)?;
        for page in self.pages.iter_mut().skip(pages) {
            page.wrote(0, true);
        }
        Ok(())
    }

    fn open(&mut self, rng: &mut Rng) -> io::Result<()> {
        // What was refused at a close is not told to `File`; here it counts as a failed fsync.
        if let Some(file) = self.handle.take()
            && close(file.into()).is_err()
        {
            self.fail();
        }
        let mut flags = 0;
        self.direct = rng.below(6) == 0;
        if self.direct {
            flags |= libc::O_DIRECT;
        }
        self.synchronous = rng.below(6) == 0;
        if self.synchronous {
            flags |= libc::O_SYNC;
        }
        let mut options = OpenOptions::new();
        options.write(true).read(rng.below(2) == 0).create(true).truncate(false).custom_flags(flags);
        self.handle = Some(options.open(&self.path)?);
        Ok(())
    }

    /// Compares with what is there now, which then is what is known.
    fn verify(&mut self, clean: bool) {
        let content = fs::read(&self.path).unwrap_or_else(|error| {
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{}: {error}", self.path.display());
            Vec::new()
        });
        for (index, page) in self.pages.iter_mut().enumerate() {
            let mut now = [0; PAGE];
            if let Some(rest) = content.get(index * PAGE..) {
                let len = rest.len().min(PAGE);
                now[..len].copy_from_slice(&rest[..len]);
            }
            let is = |version: &u32| {
                let expected = page_content(self.id, index as u64, *version);
                expected.iter().zip(now.chunks(8)).all(|(word, bytes)| word.to_ne_bytes() == bytes)
            };
            let found = page.versions.iter().rev().find(|version| is(version));
            let allowed =
                found.is_some_and(|found| !(clean && page.sure) || Some(found) == page.versions.last());
            assert!(
                allowed,
                "{}, page {index}: found version {found:?} of {:?}, sure {}, clean {clean}, first words {:?}",
                self.path.display(),
                page.versions,
                page.sure,
                &now[..24]
            );
            *page = Page { versions: vec![*found.unwrap()], sure: true };
        }
    }
}

fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is ours and not used again.
    #[allow(unsafe_code)]
    let closed = unsafe { libc::close(fd.into_raw_fd()) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Writer {
    fn new(number: u64, seed: u64) -> Writer {
        Writer {
            rng: Rng::new(seed ^ number << 32),
            files: BTreeMap::new(),
            next_id: number << 24,
            maps: false,
        }
    }

    fn step(&mut self, dir: &Path, told: &Told) -> io::Result<()> {
        let rng = &mut self.rng;
        if self.files.len() < 2 || rng.below(12) == 0 {
            self.next_id += 1;
            let (id, path) = (self.next_id, dir.join(format!("f{}", self.next_id)));
            let file = Known {
                id,
                path,
                pages: Vec::new(),
                handle: None,
                mapped: false,
                direct: false,
                synchronous: false,
                next: 0,
            };
            self.files.insert(id, file);
        }
        let many = self.files.len();
        let nth = rng.below(many as u64) as usize;
        let file = self.files.values_mut().nth(nth).unwrap();
        if file.handle.is_none() || rng.below(20) == 0 {
            file.open(rng)?;
        }
        let size = file.pages.len();
        match rng.below(40) {
            0..=11 => file.write(size, 1 + rng.below(32) as usize, told),
            12..=14 => file.write(size, 1 + rng.below(512) as usize, told),
            15..=21 => file.write(rng.below(size as u64 + 1) as usize, 1 + rng.below(4) as usize, told),
            22..=24 => file.write(size + rng.below(300) as usize, 1 + rng.below(8) as usize, told),
            25 => {
                let flags =
                    if rng.below(2) == 0 { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
                let (at, len) = (rng.below(size as u64 + 64), 1 + rng.below(256));
                let page = PAGE as u64;
                Ok(rustix::fs::fallocate(file.handle.as_ref().unwrap(), flags, at * page, len * page)?)
            }
            26 => file.cut(rng.below(size as u64 + 1) as usize),
            27..=28 if self.maps => {
                // A mapping that is written to needs a descriptor that can read.
                let readable = rustix::fs::fcntl_getfl(file.handle.as_ref().unwrap())?
                    .contains(rustix::fs::OFlags::RDWR);
                let at = rng.below(size as u64 + 8) as usize;
                if readable { file.store(at, 1 + rng.below(8) as usize) } else { Ok(()) }
            }
            29..=30 if many > 2 => {
                let id = *self.files.keys().nth(nth).unwrap();
                self.remove(id)
            }
            _ => file.fsync(rng.below(2) == 0, told),
        }
    }

    fn remove(&mut self, id: u64) -> io::Result<()> {
        let file = self.files.remove(&id).unwrap();
        match fs::remove_file(&file.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Works until `stop`; an error that is not about room ends it, once the daemon was `killed`.
    fn run(&mut self, dir: &Path, stop: &AtomicBool, killed: &AtomicBool, told: &Told) {
        while !stop.load(Ordering::Acquire) {
            let Err(error) = self.step(dir, told) else { continue };
            if !no_space(&error) {
                let deadline = Instant::now() + Duration::from_secs(10);
                while !killed.load(Ordering::Acquire) {
                    assert!(Instant::now() < deadline, "neither about room nor about the end: {error}");
                    std::thread::sleep(Duration::from_millis(1));
                }
                return;
            }
            told.refused.fetch_add(1, Ordering::Relaxed);
            if self.files.len() > 1 && self.rng.below(2) == 0 {
                let nth = self.rng.below(self.files.len() as u64) as usize;
                let id = *self.files.keys().nth(nth).unwrap();
                let _ = self.remove(id);
            }
        }
    }
}

/// One mount's life: writers, an end, and what is found afterwards.
fn round(s: &Scratch, writers: &mut [Writer], number: u64, work: Duration, told: &Told) {
    let clean = number.is_multiple_of(2);
    let mounted = Mounted::new(s, "");
    let (stop, killed) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for writer in &mut *writers {
            writer.maps = clean;
            scope.spawn(|| writer.run(&mounted.dir, &stop, &killed, told));
        }
        std::thread::sleep(work);
        if !clean {
            mounted.kill();
            killed.store(true, Ordering::Release);
        }
        stop.store(true, Ordering::Release);
    });
    for file in writers.iter_mut().flat_map(|writer| writer.files.values_mut()) {
        if let Some(handle) = file.handle.take()
            && close(handle.into()).is_err()
        {
            file.fail();
        }
    }
    if clean {
        mounted.unmount()
    } else {
        drop(mounted)
    }
    let mounted = Mounted::new(s, "");
    let expected: Vec<_> =
        writers.iter().flat_map(|writer| writer.files.values().map(|file| file.path.clone())).collect();
    for entry in fs::read_dir(&mounted.dir).unwrap().map(|entry| entry.unwrap().path()) {
        // What was removed but not durably.
        if entry.is_file() && !expected.contains(&entry) {
            fs::remove_file(entry).unwrap();
        }
    }
    for file in writers.iter_mut().flat_map(|writer| writer.files.values_mut()) {
        file.verify(clean);
    }
    mounted.unmount();
    medfs().arg("fsck").arg(s.image()).assert().code(0);
}

fn rounds(until: impl Fn(u64) -> bool, work: Duration) {
    if !can_mount() {
        return;
    }
    let seed = seed();
    let s = Scratch::with_volume("100M");
    let mut writers: Vec<_> = (0..WRITERS).map(|number| Writer::new(number + 1, seed)).collect();
    let told = Told::default();
    let mut number = 0;
    while until(number) {
        round(&s, &mut writers, number, work, &told);
        number += 1;
    }
    eprintln!(
        "{number} rounds: {} writes, {} fsyncs, {} calls refused, of them {} fsyncs of what no mapping wrote",
        told.writes.load(Ordering::Relaxed),
        told.fsyncs.load(Ordering::Relaxed),
        told.refused.load(Ordering::Relaxed),
        told.refused_late.load(Ordering::Relaxed)
    );
    assert!(told.refused.load(Ordering::Relaxed) > 0, "the volume was never full");
}

#[test]
fn what_eight_writers_were_told_is_there_after_each_remount() {
    rounds(|number| number < 3, Duration::from_secs(2));
}

#[test]
#[ignore = "takes MEDFS_MINUTES"]
fn what_eight_writers_were_told_is_there_for_minutes() {
    let end = Instant::now() + minutes();
    rounds(|_| Instant::now() < end, Duration::from_secs(5));
}
