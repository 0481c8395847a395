//! Workloads: what applications do to files, deterministic and seeded, on any [`Target`](crate::backend::Target).
//!
//! A workload is a function over a [`Stage`] and an entry in [`ALL`]. It first makes what was there before
//! (files, databases), says so with [`Stage::setup_done`], and then does what is measured. Its size is its
//! own at scale 1; the scale shortens it, not its files.

pub mod app;
pub mod contacts;
pub mod logs;
pub mod media;
pub mod postmark;
pub mod real;
pub mod recorder;
pub mod small_updates;
pub mod sqlite_rows;
mod stage;
pub mod tpcc;

use crate::error::{Error, Result};
use crate::tape::Tape;
use crate::totals::Totals;
use std::collections::BTreeMap;

pub use stage::{Stage, Values};

/// A workload in the list.
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// Does it.
    pub run: fn(&Stage) -> Result<Values>,
}

/// Every workload that needs nothing but a target. Real programs ([`real`]) need a directory.
pub static ALL: &[Workload] = &[
    Workload { name: "app-gm", about: "Gmail of MedFS, Tables 1 and 2", run: |s| app::run(s, "GM") },
    Workload { name: "app-ps", about: "Polish, edits photos", run: |s| app::run(s, "PS") },
    Workload { name: "app-st", about: "Spotify", run: |s| app::run(s, "ST") },
    Workload { name: "app-tg", about: "Telegram", run: |s| app::run(s, "TG") },
    Workload { name: "app-tw", about: "Twitter", run: |s| app::run(s, "TW") },
    Workload { name: "app-wc", about: "WeChat", run: |s| app::run(s, "WC") },
    Workload { name: "app-zm", about: "Zoom", run: |s| app::run(s, "ZM") },
    Workload {
        name: "sqlite",
        about: "single-row transactions in each of SQLite's journal modes: update, insert, mixed",
        run: sqlite_rows::all,
    },
    Workload { name: "tpcc-wal", about: "TPC-C on SQLite with a write-ahead log", run: tpcc::wal },
    Workload { name: "tpcc-truncate", about: "TPC-C on SQLite with a rollback journal", run: tpcc::truncate },
    Workload {
        name: "tpcc-peer-wal",
        about: "the smaller TPC-C that was measured on kernel file systems, with a write-ahead log",
        run: tpcc::peer::wal,
    },
    Workload {
        name: "tpcc-peer-truncate",
        about: "the same with a rollback journal",
        run: tpcc::peer::truncate,
    },
    Workload { name: "postmark", about: "Postmark: small files of a mail server", run: postmark::run },
    Workload {
        name: "small-updates",
        about: "a file of 1 MB, small changes of its pages, random reads (MedFS, section 6.2.5)",
        run: small_updates::run,
    },
    Workload { name: "contacts", about: "100 contacts imported into an address book", run: contacts::run },
    Workload { name: "log-append", about: "a log that grows line by line, rotated", run: logs::run },
    Workload { name: "photos", about: "photos taken, with previews and an index", run: media::photos },
    Workload {
        name: "download",
        about: "a large download in pieces that do not compress",
        run: media::download,
    },
    Workload {
        name: "editor",
        about: "an editor's save: new file, fsync, rename over the old one",
        run: recorder::editor,
    },
    Workload {
        name: "home-automation",
        about: "a home-automation recorder: states and events of sensors, purged nightly",
        run: recorder::home,
    },
];

/// The workload of this name.
pub fn find(name: &str) -> Result<&'static Workload> {
    ALL.iter().find(|w| w.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|w| w.name).collect();
        Error::Unknown(format!("no workload is named '{name}'; there are: {}", names.join(", ")))
    })
}

/// A workload's operations, what they are like, and what it says of itself.
pub struct Recording {
    /// The operations.
    pub tape: Tape,
    /// Their characteristics, without the set-up.
    pub totals: Totals,
    /// Files that were written after the set-up, with their sizes.
    pub touched: BTreeMap<String, u64>,
    /// The share of the variance of what updates change that is between pages, see
    /// [`own_difference`](crate::meter::Meter::own_difference).
    pub own_difference: Option<f64>,
    /// The workload's own figures.
    pub values: Values,
}

/// Runs a workload in memory and records it.
pub fn record(seed: u64, scale: f64, run: &dyn Fn(&Stage) -> Result<Values>) -> Result<Recording> {
    let (stage, recorder) = Stage::recorded(seed, scale);
    let values = {
        let _chance = crate::sqlite::chance(seed);
        run(&stage)?
    };
    stage.target.sync().map_err(Error::io("syncing the end"))?;
    Ok(Recording {
        totals: stage.measured(),
        touched: stage.meter.touched(),
        own_difference: stage.meter.own_difference(),
        tape: recorder.take(),
        values,
    })
}
