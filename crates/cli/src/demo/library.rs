//! A run without FUSE: the library driven directly. SQLite needs a mount, so the workload is one of its own that writes
//! as SQLite's rollback journal does: old pages to a journal, fsync, new pages to the file, fsync, journal truncated.
//!
//! The kill is a volume that is dropped without being closed: nothing it had not written itself reaches the image.

use super::outcome::{Crash, Outcome, Written};
use super::{Configuration, fsck_is_clean, processor_seconds};
use crate::args::DemoArgs;
use crate::target;
use anyhow::{Context, Result};
use medfs::{FileKind, Files, Ino, ManualClock, MountOptions, NewFile, SetAttr, Timestamp, Volume};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the user is told.
pub(super) const WHY: &str = "The library is driven directly, without a mount. SQLite needs one, so a built-in workload \
rewrites pages as SQLite's rollback journal does.";

const PAGE: usize = 4096;
/// Pages of the file that is updated.
const PAGES: u64 = 512;
/// Pages a transaction changes.
const UPDATES: usize = 3;
/// Time that passes between transactions.
const BETWEEN: Duration = Duration::from_millis(20);
/// Bytes changed in each of them.
const CHANGE: usize = 16;

/// The file, its journal, and what the pages should hold.
struct Pages<'v> {
    volume: &'v Volume,
    file: Ino,
    journal: Ino,
    random: u64,
}

impl<'v> Pages<'v> {
    fn create(volume: &'v Volume, seed: u64) -> Result<Pages<'v>> {
        let file = make(volume, b"pages.db")?;
        let journal = make(volume, b"pages.db-journal")?;
        let pages = Pages { volume, file, journal, random: seed | 1 };
        for page in 0..PAGES {
            write_all(volume, file, page * PAGE as u64, &[0; PAGE])?;
        }
        volume.sync()?;
        Ok(pages)
    }

    fn next(&mut self) -> u64 {
        // xorshift64: repeats with the seed.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// One transaction; when it returns it is durable. Returns the pages changed.
    fn transaction(&mut self, number: u64) -> Result<[u64; UPDATES]> {
        let pages: [u64; UPDATES] = std::array::from_fn(|_| self.next() % PAGES);
        let mut content = vec![0; UPDATES * PAGE];
        for (page, buf) in pages.iter().zip(content.chunks_exact_mut(PAGE)) {
            self.volume.read(self.file, page * PAGE as u64, buf)?;
        }
        write_all(self.volume, self.journal, 0, &content)?;
        self.volume.fsync(self.journal, true)?;
        for page in pages {
            let offset = page * PAGE as u64 + (self.next() % (PAGE / CHANGE) as u64).max(1) * CHANGE as u64;
            write_all(self.volume, self.file, offset, &number.to_le_bytes())?;
            write_all(self.volume, self.file, page * PAGE as u64, &number.to_le_bytes())?;
        }
        self.volume.fsync(self.file, true)?;
        self.volume.setattr(self.journal, &SetAttr { size: Some(0), ..SetAttr::default() })?;
        self.volume.fsync(self.journal, true)?;
        Ok(pages)
    }
}

fn make(volume: &Volume, name: &[u8]) -> Result<Ino> {
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    // The hold ends with the volume.
    Ok(volume.create(volume.root(), name, &new)?.ino)
}

fn write_all(volume: &Volume, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        done += volume.write(ino, offset + done as u64, &data[done..])?;
    }
    Ok(())
}

/// Runs one configuration.
pub(super) fn run(configuration: &Configuration, image: &Path, args: &DemoArgs) -> Result<Outcome> {
    let mut options = MountOptions::default();
    options.parse(configuration.options)?;
    // Time is passed in: what is written does not depend on the machine.
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
    let open =
        || target::open_volume_at(target::open_to_write(image)?, image, options.clone(), clock.clone());
    let volume = open()?;
    let mut pages = Pages::create(&volume, args.seed)?;
    let mut newest = vec![0u64; PAGES as usize];
    let mut acknowledged = 0;
    let mut go_on = |pages: &mut Pages<'_>, count: u32| -> Result<()> {
        for _ in 0..count {
            for page in pages.transaction(acknowledged + 1)? {
                newest[page as usize] = acknowledged + 1;
            }
            clock.advance(BETWEEN);
            acknowledged += 1;
        }
        Ok(())
    };

    let before = volume.stats();
    let (start, processor) = (Instant::now(), processor_seconds());
    go_on(&mut pages, args.transactions)?;
    volume.sync()?;
    let seconds = start.elapsed().as_secs_f64();
    let processor_seconds = processor_seconds() - processor;
    let after = volume.stats();
    go_on(&mut pages, args.transactions / 2)?;
    drop(volume);

    let start = Instant::now();
    let volume = open()?;
    let recovery_seconds = start.elapsed().as_secs_f64();
    let wrong = compare(&volume, &newest)?;
    volume.close()?;
    drop(volume);
    let transactions = u64::from(args.transactions);
    let written_blocks = written(&after.written).since(written(&before.written));
    Ok(Outcome {
        journal_mode: None,
        configuration: configuration.name,
        transactions,
        seconds,
        processor_seconds,
        payload_bytes: transactions * (UPDATES * CHANGE) as u64,
        database_bytes: Some(transactions * (2 * UPDATES * PAGE) as u64),
        written_blocks,
        written_bytes: written_blocks.bytes(),
        flushes: after.flushes - before.flushes,
        delta_pages: after.deltas.made - before.deltas.made,
        delta_bytes: after.deltas.bytes - before.deltas.bytes,
        crash: Crash {
            acknowledged,
            found: acknowledged - wrong.min(acknowledged),
            lost: wrong,
            recovery_seconds,
            integrity: if wrong == 0 {
                "ok".into()
            } else {
                format!("{wrong} of {PAGES} pages are not the newest")
            },
            fsck_clean: fsck_is_clean(image)?,
        },
    })
}

/// Pages that do not hold the newest acknowledged transaction's number.
fn compare(volume: &Volume, newest: &[u64]) -> Result<u64> {
    let attr = volume.lookup(volume.root(), b"pages.db").context("the file is gone after the crash")?;
    let mut wrong = 0;
    for (page, &number) in newest.iter().enumerate() {
        let mut bytes = [0; 8];
        volume.read(attr.ino, (page * PAGE) as u64, &mut bytes)?;
        wrong += u64::from(u64::from_le_bytes(bytes) != number);
    }
    volume.release(attr.ino, 1);
    Ok(wrong)
}

fn written(w: &medfs::Written) -> Written {
    Written { data: w.data, node: w.node, compact: w.compact, meta: w.meta, gc: w.gc }
}
