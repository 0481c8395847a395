//! Files of a phone's applications, written as the paper says that Facebook and Twitter write theirs.
//!
//! The traces of Mobibench that the paper learned from are not public. Known of them are the number of writes
//! (14,429 and 6,029), the share of files with more than 100 of them (19.8 and 25%), and, from Table I, how
//! many files there were: all accuracies are multiples of 1/230 and 1/150, so ten divisions judged 23 and 15
//! files, a quarter of 91 and 60. Synthesised here are as many files and writes, by programs that write at
//! the same time: SQLite's databases, journals and logs, caches of pictures, logs of text, settings, and
//! files that are written once.
//!
//! Invariant: the same seed makes the same files.

use crate::error::Result;
use crate::replayed::volume;
use crate::watch::{Seen, Watch};
use medfs::{FileKind, Files, Ino, ManualClock, NewFile, SetAttr, Timestamp};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;

const PAGE: u64 = 4096;
/// Bytes of the volume.
const VOLUME: u64 = 1 << 30;
/// Longest time between two calls, in milliseconds.
const PAUSE: u64 = 40;

/// An application.
#[derive(Debug, Clone, Copy)]
pub struct Application {
    /// Its name.
    pub name: &'static str,
    /// Files that it writes.
    pub files: u32,
    /// Of them, files with more than 100 writes.
    pub written_many: u32,
    /// Writes in all.
    pub writes: u32,
}

/// Those of the paper (section III, and Table I).
pub const APPLICATIONS: [Application; 2] = [
    Application { name: "Facebook", files: 91, written_many: 18, writes: 14_429 },
    Application { name: "Twitter", files: 60, written_many: 15, writes: 6_029 },
];

/// How a program writes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Pages at random, synced in twos.
    Database,
    /// Pages from the start, synced, then cut off.
    Journal,
    /// Frames at the end, synced in twos; from the start again once they are many.
    Log,
    /// Pieces of a page in a file of fixed size, at random, left to the page cache.
    Cache,
    /// Lines at the end, now and then synced.
    Lines,
    /// All of it anew, synced.
    Settings,
    /// In order, once.
    Once,
}

/// Manners of files that are written many times, the likelier ones more often.
const MANY: [Manner; 8] = [
    Manner::Database,
    Manner::Database,
    Manner::Database,
    Manner::Log,
    Manner::Journal,
    Manner::Journal,
    Manner::Cache,
    Manner::Lines,
];
/// Manners of the others.
const FEW: [Manner; 10] = [
    Manner::Once,
    Manner::Once,
    Manner::Once,
    Manner::Once,
    Manner::Once,
    Manner::Settings,
    Manner::Database,
    Manner::Journal,
    Manner::Cache,
    Manner::Lines,
];

/// A file that is being written.
struct Writer {
    ino: Ino,
    manner: Manner,
    left: u32,
    done: u32,
    /// Pages that it works in.
    pages: u64,
    /// Where the next write goes that is not at random, in bytes.
    at: u64,
}

impl Manner {
    fn name(self, number: u32) -> String {
        match self {
            Manner::Database => format!("{number}.db"),
            Manner::Journal => format!("{number}.db-journal"),
            Manner::Log => format!("{number}.db-wal"),
            Manner::Cache | Manner::Once => format!("{number}.png"),
            Manner::Lines => format!("{number}.log"),
            Manner::Settings => format!("{number}.xml"),
        }
    }
}

impl Writer {
    fn write(&mut self, files: &dyn Files, len: u64) -> Result<()> {
        // Content is of no matter: pages are not compressed, and there are no deltas.
        files.write(self.ino, self.at, &vec![self.done as u8 | 1; len as usize])?;
        (self.done, self.left) = (self.done + 1, self.left - 1);
        self.at += len;
        Ok(())
    }

    /// One call that writes, and the sync that belongs to it.
    fn step(&mut self, files: &dyn Files, random: &mut Xoshiro256PlusPlus) -> Result<()> {
        let sync_each = |n: u32| move |done: u32| done.is_multiple_of(n);
        let synced = match self.manner {
            Manner::Database => {
                self.at = random.random_range(0..self.pages) * PAGE;
                self.write(files, PAGE)?;
                sync_each(2)(self.done)
            }
            Manner::Cache => {
                self.at = random.random_range(0..self.pages) * PAGE + random.random_range(0..8) * 512;
                self.write(files, 512)?;
                false
            }
            Manner::Journal => {
                self.write(files, PAGE)?;
                let ends = self.at >= 4 * PAGE;
                files.fsync(self.ino, false)?;
                if ends {
                    files.setattr(self.ino, &SetAttr { size: Some(0), ..SetAttr::default() })?;
                    self.at = 0;
                }
                false
            }
            Manner::Log => {
                if self.at >= self.pages * PAGE {
                    self.at = 0;
                }
                self.write(files, PAGE + 24)?;
                sync_each(2)(self.done)
            }
            Manner::Lines => {
                self.write(files, random.random_range(40..400))?;
                sync_each(8)(self.done)
            }
            Manner::Settings => {
                self.at = 0;
                self.write(files, self.pages.min(3) * PAGE)?;
                true
            }
            Manner::Once => {
                self.write(files, random.random_range(1..=16) * PAGE)?;
                self.left == 0
            }
        };
        if synced {
            files.fsync(self.ino, false)?;
        }
        Ok(())
    }
}

/// Writes of each file, in sum as many as the application's.
fn shares(app: &Application, random: &mut Xoshiro256PlusPlus) -> Vec<u32> {
    let few: Vec<u32> = (app.written_many..app.files)
        .map(|_| {
            if random.random_range(0..4) == 0 {
                random.random_range(20..=100)
            } else {
                random.random_range(1..20)
            }
        })
        .collect();
    let left = app.writes.saturating_sub(few.iter().sum()).max(app.written_many * 101);
    // Some are written ten times as often as others.
    let weights: Vec<f64> =
        (0..app.written_many).map(|_| 10f64.powf(random.random_range(0.0..1.0))).collect();
    let (sum, spare) = (weights.iter().sum::<f64>(), f64::from(left - app.written_many * 101));
    let many = weights.iter().map(|weight| 101 + (weight / sum * spare) as u32);
    many.chain(few).collect()
}

/// The files of an application, written on logs.
///
/// # Errors
/// The volume's.
pub fn files_of_phone(app: &Application, seed: u64) -> Result<Vec<Seen>> {
    let began = Timestamp { secs: 1_720_000_000, nanos: 0 };
    let (volume, clock) = volume(VOLUME, began)?;
    let watch = Watch::new(&volume);
    write_files(app, seed, &watch, &clock)?;
    Ok(watch.finish()?)
}

/// Writes the files of an application, below the root.
///
/// # Errors
/// Those of `files`.
pub fn write_files(app: &Application, seed: u64, files: &dyn Files, clock: &ManualClock) -> Result<()> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let mut writers = Vec::new();
    for (number, left) in (0..).zip(shares(app, &mut random)) {
        let manners = if number < app.written_many { &MANY[..] } else { &FEW[..] };
        let manner = *manners.choose(&mut random).expect("there are some");
        let ino = files.create(files.root(), manner.name(number).as_bytes(), &new)?.ino;
        let pages = 1 << random.random_range(3..=9);
        writers.push(Writer { ino, manner, left, done: 0, pages, at: 0 });
    }
    writers.shuffle(&mut random);
    write_all(files, clock, &mut writers, &mut random)
}

/// Lets the programs write at the same time until each has done its part.
fn write_all(
    files: &dyn Files,
    clock: &ManualClock,
    writers: &mut Vec<Writer>,
    random: &mut Xoshiro256PlusPlus,
) -> Result<()> {
    let (mut passed, mut ticks) = (0, 0);
    while !writers.is_empty() {
        let at = random.random_range(0..writers.len());
        writers[at].step(files, random)?;
        if writers[at].left == 0 {
            writers.swap_remove(at);
        }
        let pause = random.random_range(0..PAUSE);
        clock.advance(Duration::from_millis(pause));
        passed += pause;
        if passed / 1000 > ticks {
            ticks = passed / 1000;
            files.background()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::FEW_WRITES;
    use medfs_format::ars::{Class, Feature};

    #[test]
    fn files_and_writes_are_as_many_as_the_papers() {
        for app in &APPLICATIONS {
            let seen = files_of_phone(app, 1).expect("a volume in memory");
            assert_eq!(seen.len(), app.files as usize, "{}", app.name);
            let writes = |seen: &Seen| seen.end[Feature::Writes as usize];
            let many = seen.iter().filter(|seen| writes(seen) > FEW_WRITES).count();
            assert_eq!(many, app.written_many as usize, "{}", app.name);
            let all: u32 = seen.iter().map(writes).sum();
            assert!(all.abs_diff(app.writes) < app.writes / 20, "{}: {all} writes", app.name);
            let reserve = seen.iter().filter(|seen| seen.class() == Class::Reserve).count();
            assert!((3..=many + 5).contains(&reserve), "{}: {reserve}", app.name);
            assert_eq!(seen, files_of_phone(app, 1).expect("again"), "the same seed makes the same files");
        }
    }
}
