//! What was committed, exactly and in order, against what a crash at that moment brings back.
//!
//! A run applies operations to a volume whose commits are held in memory as well. After each operation that
//! makes something durable, power is cut: what the device stored without its cache is opened as another
//! volume, and every file that is held must be there as it was committed. A page of it may be newer where the
//! volume has that newer page too: pages may be overwritten in place.

use crate::ops::Op;
use crate::session::{Durable, Session};
use medfs::testing::{Committed, CommittedFile, Held, open_holding};
use medfs::{Clock, Files, Ino, ManualClock, MountOptions, Volume};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag};
use medfs_format::{BLOCK_SIZE, Block};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A device with a cache that a cut of power empties.
struct Cached {
    stored: MemDevice,
    seen: MemDevice,
    cache: Mutex<Vec<(u64, Block)>>,
}

impl Cached {
    fn over(image: &MemDevice) -> Cached {
        Cached { stored: image.snapshot(), seen: image.snapshot(), cache: Mutex::default() }
    }
}

impl BlockDevice for Cached {
    fn block_count(&self) -> u64 {
        self.seen.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.seen.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.cache.lock().extend((addr..).zip(blocks.iter().map(|block| (*block).clone())));
        self.seen.write(addr, blocks, tag)?;
        // More than that is allowed to: a cache may be emptied at any time.
        if tag.fua { self.flush() } else { Ok(()) }
    }
    fn flush(&self) -> io::Result<()> {
        for (addr, block) in self.cache.lock().drain(..) {
            self.stored.write(addr, &[&block], WriteTag::new(Cause::Data, Temperature::Warm))?;
        }
        Ok(())
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.seen.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        false
    }
}

/// What a run did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// Cuts of power.
    pub cuts: u64,
    /// Files that were compared, and pages of them.
    pub files: u64,
    /// Pages that were as they were committed.
    pub pages: u64,
}

/// A run.
pub struct Setup<'a> {
    /// A formatted device.
    pub image: &'a MemDevice,
    /// How the volume is opened.
    pub options: MountOptions,
    /// How it is opened after a cut of power.
    pub after_a_cut: MountOptions,
    /// The clock of all.
    pub clock: Arc<ManualClock>,
}

/// Applies operations; `Err` says after which one something was not brought back, and what.
pub fn run(setup: &Setup<'_>, ops: &[Op]) -> Result<Report, String> {
    let device = Arc::new(Cached::over(setup.image));
    let clock: Arc<dyn Clock> = setup.clock.clone();
    let (volume, held) = open_holding(device.clone(), setup.options.clone(), clock.clone())
        .map_err(|e| format!("mount: {e}"))?;
    let volume = Arc::new(volume);
    let mut session = Session::new(volume.clone())?;
    let mut report = Report::default();
    for (at, op) in ops.iter().enumerate().filter(|(_, op)| !matches!(op, Op::Remount | Op::Crash)) {
        setup.clock.advance(Duration::from_millis(700));
        let durable = session.apply(op)?;
        if matches!(durable, Durable::Nothing) {
            continue;
        }
        let stored = Arc::new(device.stored.snapshot());
        let found = Volume::open(stored, setup.after_a_cut.clone(), clock.clone())
            .map_err(|e| format!("operation {at}, {op:?}: mount after a cut: {e}"))?;
        compare(&held, &volume, &found, &mut report)
            .map_err(|what| format!("operation {at}, {op:?}: {what}"))?;
    }
    Ok(report)
}

/// The last commit of each file that is held.
fn last_commits(held: &Held) -> BTreeMap<Ino, CommittedFile> {
    let mut files = BTreeMap::new();
    for committed in held.all() {
        match committed {
            Committed::Files(some) => files.extend(some.into_iter().map(|file| (file.ino, file))),
            Committed::Names(gone) => gone.iter().for_each(|ino| drop(files.remove(ino))),
        }
    }
    files
}

fn compare(held: &Held, now: &Volume, found: &Volume, report: &mut Report) -> Result<(), String> {
    report.cuts += 1;
    for (ino, file) in last_commits(held) {
        // A file without a name is freed by the mount.
        if !now.getattr(ino).is_ok_and(|attr| attr.nlink > 0) {
            continue;
        }
        let attr = found.getattr(ino).map_err(|e| format!("inode {ino} was committed: {e}"))?;
        let committed = (file.size, file.mode & 0o7777, file.owner);
        let brought = (attr.size, attr.perm, (attr.uid, attr.gid));
        if committed != brought {
            return Err(format!("inode {ino}: {committed:?} was committed, {brought:?} was brought back"));
        }
        report.files += 1;
        for (index, page) in &file.pages {
            let len = (file.size - index * BLOCK_SIZE as u64).min(BLOCK_SIZE as u64) as usize;
            let brought = read(found, ino, *index, len)?;
            if brought != page.0[..len] && Ok(&brought) != read(now, ino, *index, len).as_ref() {
                return Err(format!("page {index} of inode {ino} is not as it was committed"));
            }
            report.pages += 1;
        }
    }
    Ok(())
}

fn read(volume: &Volume, ino: Ino, index: u64, len: usize) -> Result<Vec<u8>, String> {
    let mut page = vec![0; len];
    let read = volume.read(ino, index * BLOCK_SIZE as u64, &mut page);
    let read = read.map_err(|e| format!("page {index} of inode {ino}: {e}"))?;
    page.truncate(read);
    Ok(page)
}
