//! The files of a task, and what can be done to them: a database for each kind of transaction, temporary
//! files, data files small and large, downloads.

use crate::backend::{Open, write_file};
use crate::content::{Content, Writer};
use crate::distribution::Shape;
use crate::error::{Error, Result};
use crate::random::Random;
use crate::sqlite::{Database, JournalMode, SqliteFs};
use crate::totals::{FileType, SMALL_FILE};
use crate::workload::stage::Stage;
use rusqlite::params;

const PAGE: usize = 4096;
/// Files besides the databases'.
const FILES_MIN: usize = 8;
const FILES_MAX: usize = 24;
/// Files that belong to the four databases: each with its journal or log.
const DATABASE_FILES: usize = 8;
/// Pages of a small data file and of a temporary one.
const SMALL_PAGES: usize = 96;
/// Pages of a large one: just above 3.69 MB.
const LARGE_PAGES: usize = (SMALL_FILE / PAGE as u64) as usize + 9;
/// Rows of a table that is updated.
const STATE_ROWS: u64 = STATE_ROWS_PAGE * 160;
/// Fewest rows of a transaction.
const ROWS_MIN: u64 = 4;
/// Pages of a file that is only read.
const MEDIA_PAGES: usize = 512;
/// Rows of the table whose content is replaced, per class.
const BLOB_ROWS: u64 = BLOB_ROWS_PAGE * 200;
/// A table of messages is emptied when it has so many rows.
const MESSAGES_MAX: u64 = 1600;
/// Rows of a table of states on a page, and of messages and cached answers.
const STATE_ROWS_PAGE: u64 = 9;
const BLOB_ROWS_PAGE: u64 = 2;

/// Bytes of a row's payload in a table of states.
const PAYLOAD: usize = 400;
/// Standard deviation of the logarithm of how much of a page an update changes. With it 70% of the updates
/// change less than a tenth where the mean is 13.8%: the two figures that MedFS gives (sections 1 and 3).
const DIFFERENCE_SPREAD: f64 = 1.48;
/// How much of that is the page's own: pages that change a lot do so again. Of TPC-C on SQLite
/// (`tpcc-truncate`) it is this share of the variance, as `medfs lab work` shows.
const DIFFERENCE_OWN: f64 = 0.5;
/// Bytes that a new counter and a new stamp change, and least bytes of an update.
const COUNTER: usize = 12;
/// An update of more bytes than this replaces the page; one of fewer changes fields of at most so many.
const WHOLE: usize = 3600;
const FIELD: usize = 512;

/// What a step does to what is there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Change {
    /// Adds pages that did not exist.
    New,
    /// Updates pages, this share of their bytes on average: some hardly, few wholly.
    Update(f64),
    /// Replaces rows in the database with a log.
    Replace,
}

/// The files of a task.
pub(super) struct Files {
    folder: String,
    /// Settings and state by class, updated in place: a rollback journal that is kept.
    state: [Database; 2],
    /// Messages that come in: a journal that is cut to nothing.
    messages: Database,
    message_rows: u64,
    /// A cache whose rows are replaced: a log.
    cache: Database,
    /// Data files by class, small and large ones mixed: path and pages.
    data: [Vec<(String, usize)>; 2],
    /// Temporary files by class.
    temps: [Vec<(String, usize)>; 2],
    turn: u64,
    /// Updates of data files, and of temporary ones.
    picks: [usize; 2],
    /// What compressors save of the rows of messages and cached answers that are being made.
    body_saves: f64,
    writer: Writer,
    seed: u64,
    random: Random,
}

impl Files {
    /// Makes them. `small` is the share of files below 3.69 MB, `compression` what LZO shall save of the content.
    pub(super) fn new(stage: &Stage, folder: &str, small: f64, compression: f64) -> Result<Files> {
        let (large, total) = population(small);
        let fs = SqliteFs::new(stage.target.clone())?;
        let io = || Error::io(format!("making the files of {folder}"));
        for path in [
            folder.to_owned(),
            format!("{folder}/databases"),
            format!("{folder}/files"),
            format!("{folder}/tmp"),
        ] {
            stage.target.mkdir(&path).map_err(io())?;
        }
        let db = |name: &str, mode, before: &str| {
            fs.open_with(&format!("{folder}/databases/{name}.db"), mode, before)
        };
        let mut files = Files {
            folder: folder.to_owned(),
            state: [db("state", JournalMode::Persist, "")?, db("tokens", JournalMode::Persist, "")?],
            messages: db("messages", JournalMode::Truncate, "pragma auto_vacuum=FULL;")?,
            message_rows: 0,
            cache: db("cache", JournalMode::Wal, "")?,
            data: Default::default(),
            temps: Default::default(),
            turn: 0,
            picks: [0; 2],
            body_saves: 0.0,
            writer: Writer::new(stage.seed),
            seed: stage.seed,
            random: stage.random(folder),
        };
        files.fill_databases()?;
        files.fill_files(stage, large, total, Shape::packed_share(compression))?;
        Ok(files)
    }

    fn fill_databases(&mut self) -> Result<()> {
        for (state, shape) in self.state.iter().zip(Shape::ALL) {
            state.execute_batch(
                "create table state (id integer primary key, count integer, stamp text, payload blob); begin;",
            )?;
            let mut saved = 0.0;
            for id in 0..STATE_ROWS {
                if id % STATE_ROWS_PAGE == 0 {
                    saved = shape.draw(&mut self.random);
                }
                let payload = self.writer.saving(&mut self.random, Content::Json, saved, PAYLOAD);
                let row = params![id as i64, 1_000_000i64, stamp(id), payload];
                state.prepare_cached("insert into state values (?,?,?,?)")?.execute(row)?;
            }
            state.execute_batch("commit")?;
        }
        self.cache.execute_batch(
            "pragma wal_autocheckpoint=32; create table cache (id integer primary key, body blob); begin;",
        )?;
        for id in 0..2 * BLOB_ROWS {
            let body = self.body(usize::from(id >= BLOB_ROWS), id);
            self.cache.prepare_cached("insert into cache values (?,?)")?.execute(params![id as i64, body])?;
        }
        self.cache.execute_batch("commit; pragma wal_checkpoint(truncate);")?;
        self.messages.execute_batch("create table messages (id integer primary key, body blob);")?;
        Ok(())
    }

    /// What a row of messages or cached answers holds. The rows of a page compress alike.
    fn body(&mut self, class: usize, row: u64) -> Vec<u8> {
        if row.is_multiple_of(BLOB_ROWS_PAGE) {
            self.body_saves = Shape::ALL[class].draw(&mut self.random);
        }
        self.writer.saving(&mut self.random, Content::Json, self.body_saves, 1900)
    }

    fn fill_files(&mut self, stage: &Stage, large: usize, total: usize, packed: f64) -> Result<()> {
        let plain = total - large - DATABASE_FILES;
        for n in 0..plain + large {
            let class = n % 2;
            let is_large = n < large;
            let pages = if is_large { LARGE_PAGES } else { SMALL_PAGES };
            let kind = if class == 0 { Content::Json } else { Content::Proto };
            let temp = !is_large && n >= large + plain * 2 / 3;
            let (path, list) = if temp {
                (format!("{}/tmp/todelete_{n:02x}", self.folder), &mut self.temps[class])
            } else {
                let end = ["json", "dat"][class];
                (format!("{}/files/data{n}.{end}", self.folder), &mut self.data[class])
            };
            list.push((path.clone(), pages));
            let mut content = Vec::with_capacity(pages * PAGE);
            for _ in 0..pages {
                // A large file has pages of both kinds, as many as the application.
                let class = if is_large { usize::from(self.random.happens(packed)) } else { class };
                content.extend(self.writer.pages(&mut self.random, kind, Shape::ALL[class], PAGE));
            }
            write_file(&*stage.target, &path, &content, false)
                .map_err(Error::io(format!("making {path}")))?;
        }
        let content = self.writer.make(&mut self.random, Content::Picture, MEDIA_PAGES * PAGE);
        let path = self.media();
        write_file(&*stage.target, &path, &content, false).map_err(Error::io(format!("making {path}")))
    }

    fn media(&self) -> String {
        format!("{}/files/media.jpg", self.folder)
    }

    /// Writes about `pages` pages; `opaque` asks for content that does not compress.
    pub(super) fn write(
        &mut self,
        stage: &Stage,
        kind: FileType,
        change: Change,
        opaque: bool,
        pages: u64,
    ) -> Result<()> {
        self.turn += 1;
        let class = usize::from(opaque);
        match (kind, change) {
            (FileType::Sqlite, Change::New) => self.insert(class, pages),
            (FileType::Sqlite, Change::Update(mean)) => self.count(class, pages, mean),
            (_, Change::Replace) => self.replace_rows(class, pages),
            (FileType::Temp, Change::New) => self.new_file(stage, "tmp/todelete_new", class, pages),
            (FileType::Other, Change::New) => self.new_file(stage, "files/download", class, pages),
            (_, Change::Update(mean)) => self.update(stage, kind == FileType::Temp, class, pages, mean),
        }
    }

    /// Reads about `pages` pages of the media, which is never written.
    pub(super) fn read(&mut self, stage: &Stage, pages: u64) -> Result<()> {
        let path = self.media();
        let from = self.random.below(MEDIA_PAGES as u64 - pages);
        let mut buf = vec![0; pages as usize * PAGE];
        let io = || Error::io(format!("reading {path}"));
        let file = stage.target.open(&path, Open::Existing).map_err(io())?;
        stage.target.read(file, from * PAGE as u64, &mut buf).map_err(io())?;
        stage.target.close(file).map_err(io())
    }

    /// Messages come in: rows are added, and all are removed when there are many.
    fn insert(&mut self, class: usize, pages: u64) -> Result<()> {
        if self.message_rows > MESSAGES_MAX {
            self.messages.execute_batch("delete from messages")?;
            self.message_rows = 0;
        }
        self.messages.execute_batch("begin")?;
        let rows = (pages * 2).max(ROWS_MIN);
        for row in 0..rows {
            let body = self.body(class, row);
            self.messages.prepare_cached("insert into messages (body) values (?)")?.execute(params![body])?;
        }
        self.messages.execute_batch("commit")?;
        self.message_rows += rows;
        Ok(())
    }

    /// Bytes that an update changes of a page of a file.
    fn changed(&mut self, of: &str, page: u64, mean: f64) -> usize {
        let own = Random::new(self.seed.wrapping_add(page << 20), of).normal();
        let drawn = DIFFERENCE_OWN.sqrt() * own + (1.0 - DIFFERENCE_OWN).sqrt() * self.random.normal();
        let share = mean * (DIFFERENCE_SPREAD * drawn - DIFFERENCE_SPREAD * DIFFERENCE_SPREAD / 2.0).exp();
        ((share * PAGE as f64) as usize).clamp(COUNTER, PAGE)
    }

    /// New content for a field or a part of a payload: numbers where there is room for nothing else.
    fn field(&mut self, class: usize, len: usize) -> Vec<u8> {
        if len <= 4 * COUNTER {
            return digits(&mut self.random, len);
        }
        let saved = Shape::ALL[class].draw(&mut self.random);
        self.writer.saving(&mut self.random, Content::Json, saved, len)
    }

    /// Counters and stamps of the same rows move on, one row to a page, and payloads around them where more changes.
    fn count(&mut self, class: usize, pages: u64, mean: f64) -> Result<()> {
        // Of what a transaction writes about half is the journal.
        let pages = (pages / 2).clamp(ROWS_MIN, STATE_ROWS / STATE_ROWS_PAGE - 1);
        self.state[class].execute_batch("begin")?;
        for page in 0..pages {
            let first = page * STATE_ROWS_PAGE;
            let sql = "update state set count = count + 1, stamp = ? where id = ?";
            let row = params![stamp(self.turn), (first + STATE_ROWS_PAGE / 2) as i64];
            self.state[class].prepare_cached(sql)?.execute(row)?;
            let mut left = self.changed(["state", "tokens"][class], page, mean) - COUNTER;
            for row in first..first + STATE_ROWS_PAGE {
                let len = left.min(PAYLOAD);
                if len < COUNTER {
                    break;
                }
                self.change_payload(class, row, len)?;
                left -= len;
            }
        }
        self.state[class].execute_batch("commit")?;
        Ok(())
    }

    /// The first bytes of a row's payload change.
    fn change_payload(&mut self, class: usize, row: u64, len: usize) -> Result<()> {
        let field = self.field(class, len);
        let state = &self.state[class];
        let sql = "select payload from state where id = ?";
        let mut payload: Vec<u8> = state.prepare_cached(sql)?.query_row([row as i64], |r| r.get(0))?;
        payload[..len].copy_from_slice(&field);
        let sql = "update state set payload = ? where id = ?";
        state.prepare_cached(sql)?.execute(params![payload, row as i64])?;
        Ok(())
    }

    /// Cached answers are replaced by newer ones.
    fn replace_rows(&mut self, class: usize, pages: u64) -> Result<()> {
        let rows = (pages * 2).min(BLOB_ROWS);
        let first = class as u64 * BLOB_ROWS + self.random.below(BLOB_ROWS - rows + 1);
        self.cache.execute_batch("begin")?;
        for id in first..first + rows {
            let body = self.body(class, id - first);
            self.cache
                .prepare_cached("update cache set body = ? where id = ?")?
                .execute(params![body, id as i64])?;
        }
        self.cache.execute_batch("commit")?;
        Ok(())
    }

    /// A file that comes anew under a name that is used in turn; the one before is removed.
    fn new_file(&mut self, stage: &Stage, name: &str, class: usize, pages: u64) -> Result<()> {
        let path = format!("{}/{name}", self.folder);
        let io = || Error::io(format!("making {path}"));
        let len = pages as usize * PAGE;
        let content = match Shape::ALL[class] {
            Shape::Structured => self.writer.pages(&mut self.random, Content::Xml, Shape::Structured, len),
            Shape::Packed => self.writer.make(&mut self.random, Content::Picture, len),
        };
        if stage.target.exists(&path).map_err(io())? {
            stage.target.unlink(&path).map_err(io())?;
        }
        write_file(&*stage.target, &path, &content, true).map_err(io())
    }

    /// The next file of its kind: each has its turn.
    fn pick(&mut self, temp: bool, class: usize) -> (String, usize) {
        let lists = if temp && self.temps.iter().any(|l| !l.is_empty()) { &self.temps } else { &self.data };
        let list = if lists[class].is_empty() { &lists[1 - class] } else { &lists[class] };
        let turn = &mut self.picks[usize::from(temp)];
        *turn += 1;
        list[*turn % list.len()].clone()
    }

    /// Neighbouring pages of a file change in place.
    fn update(&mut self, stage: &Stage, temp: bool, class: usize, pages: u64, mean: f64) -> Result<()> {
        let (path, size) = self.pick(temp, class);
        let pages = (pages as usize).min(size);
        // A file is updated around a few places.
        let places = (size / pages).clamp(1, 3);
        let first = self.random.below(places as u64) as usize * (size - pages) / places;
        let io = || Error::io(format!("updating {path}"));
        let file = stage.target.open(&path, Open::Existing).map_err(io())?;
        for page in first..first + pages {
            for (at, content) in self.changes(&path, class, page, mean) {
                stage.target.write(file, (page * PAGE + at) as u64, &content).map_err(io())?;
            }
        }
        stage.target.fsync(file, false).map_err(io())?;
        stage.target.close(file).map_err(io())
    }

    /// What changes of a page of a file, and where in it: the same fields again and again, as counters and times are.
    fn changes(&mut self, path: &str, class: usize, page: usize, mean: f64) -> Vec<(usize, Vec<u8>)> {
        let bytes = self.changed(path, page as u64, mean);
        if bytes > WHOLE {
            let shape = Shape::ALL[class];
            return vec![(0, self.writer.pages(&mut self.random, Content::Json, shape, PAGE))];
        }
        let fields = bytes.div_ceil(FIELD);
        let (len, apart) = (bytes / fields, PAGE / fields);
        let start = (page * 1237 % apart).min(apart - len);
        (0..fields).map(|n| (n * apart + start, self.field(class, len))).collect()
    }
}

fn digits(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| b'0' + random.below(10) as u8).collect()
}

fn stamp(turn: u64) -> String {
    format!("2024-07-03T{:02}:{:02}:{:02}", turn / 3600 % 24, turn / 60 % 60, turn % 60)
}

/// How many files are large, of how many, for this share of small ones: the fewest files that come close.
fn population(small: f64) -> (usize, usize) {
    let (low, high) = (FILES_MIN + DATABASE_FILES, FILES_MAX + DATABASE_FILES);
    let large = |total: usize| {
        ((total as f64) * (1.0 - small)).round().min((total - DATABASE_FILES - 2) as f64) as usize
    };
    let off = |total: usize| ((total - large(total)) as f64 / total as f64 - small).abs();
    let best = (low..=high).min_by(|a, b| off(a.to_owned()).total_cmp(&off(b.to_owned()))).unwrap_or(low);
    let total = (low..=high).find(|t| off(*t) < small * 0.03).unwrap_or(best);
    (large(total), total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn populations_have_the_share() {
        for small in [1.0, 0.999, 0.948, 0.887, 0.82, 0.721, 0.644, 0.529, 0.517] {
            let (large, total) = population(small);
            let share = (total - large) as f64 / total as f64;
            assert!((share - small).abs() < small * 0.04, "{small}: {large} of {total}");
            assert!(total >= large + DATABASE_FILES + 2);
        }
    }
}
