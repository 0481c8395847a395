//! `medfs demo`: a database on a new volume, a daemon killed at work, recovery, and what it all cost the card.
//!
//! Each [`Configuration`] is run alike, with SQLite's journal modes as people use them, DELETE (the default) and WAL:
//! make a volume, mount it, run a fixed number of transactions and count what reaches the device,
//! go on and kill the daemon in the middle, mount again, let SQLite and `fsck` judge, and compare what was acknowledged
//! with what is found. Where FUSE cannot be used, [`library`] does the same without mounting, with a workload of its
//! own in place of SQLite.
//!
//! Invariant: what is written does not depend on how fast the machine is, to 1 %. Nothing is done by the clock.

mod library;
mod mounted;
mod outcome;
mod report;
mod sqlite;

use crate::args::DemoArgs;
use crate::undo::TemporaryFolder;
use crate::{exit, json, undo};
use anyhow::{Context, Result};
use medfs_device::{FileDevice, FileOptions};
use medfs_mkfs::{MkfsOptions, format_volume};
use outcome::Outcome;
use rustix::process::{getegid, geteuid};
use serde::Serialize;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A way to run the volume.
pub(crate) struct Configuration {
    /// Name in the report.
    name: &'static str,
    /// What it is, for the reader.
    about: &'static str,
    /// Whether the volume may hold deltas, or is plain F2FS.
    deltas: bool,
    /// Mount options.
    options: &'static str,
}

/// What is compared; for each journal mode; the first is what the others are measured against.
const CONFIGURATIONS: [Configuration; 2] = [
    Configuration {
        name: "plain F2FS",
        about: "plain F2FS, every page written as a whole",
        deltas: false,
        options: "delta=off",
    },
    Configuration {
        name: "deltas",
        about: "a medfs volume, small updates kept as deltas",
        deltas: true,
        options: "delta=full",
    },
];

/// All that `--json` prints.
#[derive(Serialize)]
struct Demo<'a> {
    mounted: bool,
    volume_bytes: u64,
    seed: u64,
    runs: &'a [Outcome],
    lifetime: report::Lifetime,
}

/// `medfs demo`
pub(crate) fn run(args: &DemoArgs) -> Result<u8> {
    if let Some(database) = &args.client {
        return sqlite::client(database, args);
    }
    let temporary = TemporaryFolder::new(None)?;
    let folder = match &args.keep {
        Some(folder) => {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            folder.clone()
        }
        None => temporary.path().to_owned(),
    };
    match &args.keep {
        Some(folder) => {
            undo::if_ended("demo", format_args!("the images made so far are in {}", folder.display()))
        }
        None => undo::if_ended("demo", "nothing is left of it"),
    }
    let mounted = !args.no_mount && mounted::is_possible();
    if !mounted && !args.json {
        if !args.no_mount {
            outln!("FUSE cannot be used here: /dev/fuse, and either root or fusermount3, are needed.");
        }
        outln!("{}", library::WHY);
    }
    // The built-in workload has no modes.
    let journals: Vec<Option<&str>> =
        if mounted { args.journal.iter().map(|mode| Some(mode.as_str())).collect() } else { vec![None] };
    let mut runs = Vec::new();
    for journal in journals {
        for configuration in &CONFIGURATIONS {
            let image = folder.join(format!("demo-{}.img", runs.len()));
            make_volume(configuration, &image, args)?;
            if !args.json {
                let mode = journal.map_or(String::new(), |mode| format!("journal_mode={mode}, "));
                outln!("{mode}{}: {}", configuration.name, configuration.about);
            }
            let outcome = match journal {
                Some(journal) => mounted::run(configuration, journal, &image, temporary.path(), args),
                None => library::run(configuration, &image, args),
            };
            runs.push(outcome.with_context(|| format!("the run with {}", configuration.name))?);
        }
    }
    let lifetime = report::Lifetime::of(&runs, args);
    let good = runs.iter().all(|r| r.crash.is_good());
    if args.json {
        let demo = Demo { mounted, volume_bytes: args.size, seed: args.seed, runs: &runs, lifetime };
        json::print(&demo)?;
    } else {
        outln!("\n{}", report::Text { runs: &runs, lifetime: &lifetime, args, mounted });
    }
    if let Some(folder) = args.keep.as_ref().filter(|_| !args.json) {
        outln!("The images are in {}.", folder.display());
    }
    Ok(if good { exit::SUCCESS } else { exit::FAILURE })
}

fn make_volume(configuration: &Configuration, image: &Path, args: &DemoArgs) -> Result<()> {
    if image.exists() {
        std::fs::remove_file(image).with_context(|| format!("cannot replace {}", image.display()))?;
    }
    let dev = FileDevice::create(image, args.size, FileOptions::default())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
    let uuid = *uuid::Uuid::from_u64_pair(args.seed, u64::from(configuration.deltas)).as_bytes();
    // Whoever runs the demo is the one to make the database.
    let root_owner = (geteuid().as_raw(), getegid().as_raw());
    let options = MkfsOptions { deltas: configuration.deltas, root_owner, ..MkfsOptions::new(uuid, now) };
    format_volume(&dev, &options)
        .with_context(|| format!("cannot create a volume on {}", image.display()))?;
    Ok(())
}

/// Whether a check finds the image without fault.
fn fsck_is_clean(image: &Path) -> Result<bool> {
    let dev = crate::target::open_to_read(image)?;
    Ok(medfs_fsck::check(&*dev, &medfs_fsck::Options::default(), &mut |_| ())?.is_clean())
}

/// Processor time of this process.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
