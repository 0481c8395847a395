//! The six applications of the paper's Table 1, and all of them together, from Table 4 and what section 4.2
//! says of their writes.
//!
//! A request belongs to a kind of data; its kind says where it goes and how well its pages compress. Journal
//! and inodes are overwritten again and again, databases with a preference for some pages; other files are
//! written in order wherever there is room. Requests come in bursts; the figures of sizes are Table 4's means
//! with 77% of requests of 8 KiB at most, which section 5.2 reports.

use super::row::{Options, Progress, Row};
use crate::error::Result;
use crate::synth::{Drawn, Mix, class_of, draw};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Kinds of data that are written (section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The file system's journal.
    Journal = 0,
    /// Inodes, bitmaps.
    Meta = 1,
    /// Databases, their journals and logs.
    Sqlite = 2,
    /// Pictures and films.
    Multimedia = 3,
    /// All other files.
    Others = 4,
}

const KINDS: [Kind; 5] = [Kind::Journal, Kind::Meta, Kind::Sqlite, Kind::Multimedia, Kind::Others];

/// An application.
#[derive(Debug, Clone, Copy)]
pub struct App {
    /// The paper's abbreviation.
    pub name: &'static str,
    /// Requests (Table 4).
    pub requests: u32,
    /// Part of them that write.
    pub writes: f64,
    /// Megabytes (10^6) read and written.
    pub volume_mb: f64,
    /// Shares of what is written by kind of data.
    pub kinds: [f64; 5],
    /// How its databases compress: Google Earth keeps pictures in them.
    sqlite: Mix,
    /// Requests of a burst, on average.
    burst: f64,
    /// The share of high and medium compressibility, where the paper gives it.
    pub compressible: Option<f64>,
}

const TEXT: Mix = Mix([0.30, 0.45, 0.20, 0.05]);
const TILES: Mix = Mix([0.12, 0.33, 0.30, 0.25]);
const JOURNAL: Mix = Mix([0.55, 0.35, 0.08, 0.02]);
const META: Mix = Mix([0.70, 0.25, 0.05, 0.0]);
const PICTURES: Mix = Mix([0.0, 0.0, 0.05, 0.95]);
const CACHED: Mix = Mix([0.05, 0.10, 0.20, 0.65]);

/// The applications, with Table 4's numbers and Fig. 3's shares as far as the text tells them.
pub const APPS: [App; 6] = [
    App {
        name: "FB",
        requests: 17428,
        writes: 0.90,
        volume_mb: 336.1,
        kinds: [0.20, 0.05, 0.22, 0.02, 0.51],
        sqlite: TEXT,
        burst: 12.0,
        compressible: Some(46.0),
    },
    App {
        name: "TW",
        requests: 7869,
        writes: 0.85,
        volume_mb: 119.7,
        kinds: [0.20, 0.05, 0.23, 0.03, 0.49],
        sqlite: TEXT,
        burst: 12.0,
        compressible: Some(46.0),
    },
    App {
        name: "ME",
        requests: 7573,
        writes: 0.66,
        volume_mb: 136.6,
        kinds: [0.28, 0.06, 0.34, 0.02, 0.30],
        sqlite: TEXT,
        burst: 12.0,
        compressible: None,
    },
    App {
        name: "GE",
        requests: 25831,
        writes: 0.95,
        volume_mb: 237.4,
        kinds: [0.18, 0.04, 0.70, 0.0, 0.08],
        sqlite: TILES,
        burst: 200.0,
        compressible: Some(50.0),
    },
    App {
        name: "CH",
        requests: 6953,
        writes: 0.83,
        volume_mb: 140.1,
        kinds: [0.22, 0.05, 0.22, 0.01, 0.50],
        sqlite: TEXT,
        burst: 12.0,
        compressible: Some(50.0),
    },
    App {
        name: "CA",
        requests: 2301,
        writes: 0.96,
        volume_mb: 65.3,
        kinds: [0.06, 0.02, 0.07, 0.83, 0.02],
        sqlite: TEXT,
        burst: 12.0,
        compressible: None,
    },
];

/// All of them at once.
pub(crate) const TOGETHER: &str = "MA";
/// Seconds that each application is used (section 4.2: at least five minutes).
const SECONDS: f64 = 300.0;
/// Nanoseconds between two requests of a burst, on average.
const BURST_GAP: f64 = 1_500_000.0;
/// Pages of the areas of journal, inodes and database at full scale: 32, 2 and 16 MiB.
const AREAS: [u32; 3] = [8192, 512, 4096];

/// One request of an application.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub(crate) at: u64,
    pub(crate) write: bool,
    pub(crate) page: u32,
    pub(crate) kind: Kind,
    /// What is written, or as many pages that are read.
    pub(crate) pages: Vec<Drawn>,
}

struct Maker<'a> {
    app: &'a App,
    index: u32,
    scale: f64,
    device_pages: u32,
    rng: Xoshiro256PlusPlus,
    journal: u32,
    /// The file being written: next page and pages left.
    file: (u32, u32),
}

impl Maker<'_> {
    /// Pages of a request: 52% one, 25% two, and a tail whose mean makes Table 4's.
    fn size(&mut self) -> u32 {
        let mean = self.app.volume_mb * 1e6 / 4096.0 / f64::from(self.app.requests);
        let tail = (mean - (0.52 + 2.0 * 0.25)) / 0.23;
        match self.rng.random::<f64>() {
            ..0.52 => 1,
            ..0.77 => 2,
            _ => {
                let more = -(1.0 - self.rng.random::<f64>()).ln() * (tail - 3.0).max(0.1);
                3 + (more.round() as u32).min(253)
            }
        }
    }

    fn area(&self, which: usize) -> (u32, u32) {
        let size = |area: u32| ((f64::from(area) * self.scale) as u32).max(288);
        let before: u32 = AREAS[..which].iter().map(|a| size(*a)).sum();
        let all: u32 = AREAS.iter().map(|a| size(*a)).sum();
        (self.index * all + before, size(AREAS[which]))
    }

    fn place(&mut self, kind: Kind, pages: u32) -> u32 {
        match kind {
            Kind::Journal => {
                let (from, size) = self.area(0);
                if self.journal + pages > size {
                    self.journal = 0;
                }
                self.journal += pages;
                from + self.journal - pages
            }
            Kind::Meta | Kind::Sqlite => {
                let (from, size) = self.area(kind as usize);
                // Some pages much oftener than others.
                let at = self.rng.random::<f64>().powi(3) * f64::from(size - pages);
                from + at as u32
            }
            Kind::Multimedia | Kind::Others => self.place_in_file(pages),
        }
    }

    fn place_in_file(&mut self, pages: u32) -> u32 {
        if self.file.1 < pages {
            let first = 6 * (0..3).map(|a| self.area(a).1).sum::<u32>();
            let length = self.rng.random_range(64..512).max(pages);
            let last = self.device_pages.saturating_sub(length).max(first + 1);
            self.file = (self.rng.random_range(first..last), length);
        }
        let at = self.file.0;
        self.file = (at + pages, self.file.1 - pages);
        at
    }

    fn kind(&mut self) -> Kind {
        let mut at = self.rng.random::<f64>();
        let found = KINDS.iter().find(|kind| {
            at -= self.app.kinds[**kind as usize];
            at < 0.0
        });
        *found.unwrap_or(&Kind::Others)
    }

    fn pages(&mut self, kind: Kind, count: u32) -> Vec<Drawn> {
        let mix = match kind {
            Kind::Journal => JOURNAL,
            Kind::Meta => META,
            Kind::Sqlite => self.app.sqlite,
            Kind::Multimedia => PICTURES,
            Kind::Others => CACHED,
        };
        // The pages of a file are alike, those of databases and journals are not.
        let one = mix.class(self.rng.random());
        let alike = matches!(kind, Kind::Multimedia | Kind::Others);
        (0..count)
            .map(|_| {
                let class = if alike { one } else { mix.class(self.rng.random()) };
                draw(class, &mut self.rng)
            })
            .collect()
    }
}

/// The requests of an application, in order of arrival, on a device of so many pages.
pub(crate) fn requests(name: &str, device_pages: u32, scale: f64, seed: u64) -> Vec<Request> {
    let chosen = (0..).zip(&APPS).filter(|(_, app)| name == TOGETHER || app.name == name);
    let mut all: Vec<Request> =
        chosen.flat_map(|(index, app)| of_app(index, app, device_pages, scale, seed)).collect();
    all.sort_by_key(|r| r.at);
    all
}

fn of_app(index: u32, app: &App, device_pages: u32, scale: f64, seed: u64) -> Vec<Request> {
    let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ u64::from(index) << 8);
    let mut maker = Maker { app, index, scale, device_pages, rng, journal: 0, file: (0, 0) };
    let count = (f64::from(app.requests) * scale).ceil() as u32;
    let rate = SECONDS * 1e9 / f64::from(app.requests);
    // What is left of the mean distance of requests goes between bursts.
    let pause = ((rate - BURST_GAP) * app.burst).max(BURST_GAP);
    let mut at = 0.0;
    (0..count)
        .map(|_| {
            let pause = if maker.rng.random::<f64>() < 1.0 / app.burst { pause } else { 0.0 };
            at += -(1.0 - maker.rng.random::<f64>()).ln() * (BURST_GAP + pause);
            let write = maker.rng.random::<f64>() < app.writes;
            let (kind, size) = (maker.kind(), maker.size());
            let page = maker.place(kind, size);
            let pages = maker.pages(kind, size);
            Request { at: at as u64, write, page, kind, pages }
        })
        .collect()
}

/// Fig. 3 and Table 4, of the requests that the other experiments replay.
pub(crate) fn fig3(options: &Options, progress: Progress<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let made = "the paper's figure has no numbers in its text; shares by kind are set so that what the text does say holds";
    for (i, app) in APPS.iter().enumerate() {
        let requests = requests(app.name, 4 << 20, 1.0, options.seed);
        let pages = || requests.iter().filter(|r| r.write).flat_map(|r| r.pages.iter());
        let total = pages().count() as f64;
        let share = |classes: &[usize]| {
            pages().filter(|p| classes.contains(&class_of(p.ratio))).count() as f64 / total * 100.0
        };
        let n = app.name;
        rows.push(
            Row::new(
                format!("{n}: written pages of high or medium compressibility"),
                app.compressible,
                share(&[0, 1]),
                "%",
            )
            .if_off(made),
        );
        rows.push(Row::new(format!("{n}: low"), None, share(&[2]), "%"));
        rows.push(Row::new(format!("{n}: minimal"), None, share(&[3]), "%"));
        let volume = requests.iter().map(|r| r.pages.len() as f64 * 4096.0).sum::<f64>() / 1e6;
        rows.push(Row::new(format!("{n}: volume"), Some(app.volume_mb), volume, "MB"));
        let writes = requests.iter().filter(|r| r.write).count() as f64 / requests.len() as f64 * 100.0;
        rows.push(Row::new(format!("{n}: requests that write"), Some(app.writes * 100.0), writes, "%"));
        let small =
            requests.iter().filter(|r| r.pages.len() <= 2).count() as f64 / requests.len() as f64 * 100.0;
        let paper = (n == "FB").then_some(77.0);
        rows.push(Row::new(format!("{n}: requests of 8 KiB at most"), paper, small, "%"));
        progress((i + 1) as f64 / APPS.len() as f64);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_those_of_table_4() {
        for app in &APPS {
            let made = requests(app.name, 4 << 20, 1.0, 9);
            let volume = made.iter().map(|r| r.pages.len() as f64 * 4096.0).sum::<f64>() / 1e6;
            assert!((volume / app.volume_mb - 1.0).abs() < 0.1, "{}: {volume} MB", app.name);
            let writes = made.iter().filter(|r| r.write).count() as f64 / made.len() as f64;
            assert!((writes - app.writes).abs() < 0.03, "{}: {writes}", app.name);
            assert_eq!(made.len(), app.requests as usize);
            assert!(made.iter().all(|r| u64::from(r.page) + r.pages.len() as u64 <= 4 << 20));
            let seconds = made.last().unwrap().at as f64 / 1e9;
            assert!((200.0..500.0).contains(&seconds), "{}: {seconds} s", app.name);
        }
        assert_eq!(requests(TOGETHER, 4 << 20, 1.0, 9).len(), 67955, "Table 4's last line");
        assert_eq!(requests("FB", 4 << 20, 0.01, 9), requests("FB", 4 << 20, 0.01, 9));
    }

    #[test]
    fn shares_add_up() {
        for app in &APPS {
            assert!((app.kinds.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{}", app.name);
        }
        for mix in [TEXT, TILES, JOURNAL, META, PICTURES, CACHED, Mix::SNAPSHOT] {
            assert!((mix.0.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{mix:?}");
        }
    }
}
