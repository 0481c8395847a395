//! Single-row transactions on SQLite, as Mobibench does them: update, insert and both mixed, in each journal mode.

use super::stage::{Stage, Values};
use crate::content::{Content, Writer};
use crate::error::{Error, Result};
use crate::random::Random;
use crate::sqlite::{Database, JournalMode, SqliteFs};
use rusqlite::params;
use std::time::Duration;

/// Rows that are there before, and transactions of each kind at scale 1.
const ROWS: u64 = 4000;
const TRANSACTIONS: u64 = 1000;

/// The statements of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Changes the fields of a row.
    Update,
    /// Adds a row.
    Insert,
    /// Half of either.
    Mixed,
}

impl Mix {
    /// All of them.
    pub const ALL: [Mix; 3] = [Mix::Update, Mix::Insert, Mix::Mixed];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Update => "update",
            Mix::Insert => "insert",
            Mix::Mixed => "mixed",
        }
    }
}

struct Rows {
    db: Database,
    random: Random,
    writer: Writer,
    rows: u64,
}

impl Rows {
    fn insert(&mut self) -> Result<()> {
        self.rows += 1;
        let body = self.writer.make(&mut self.random, Content::Text, 200);
        let sql = "insert into items (id, count, changed, body) values (?,?,?,?)";
        self.db.prepare_cached(sql)?.execute(params![self.rows as i64, 0, self.rows as i64, body])?;
        Ok(())
    }

    fn update(&mut self, n: u64) -> Result<()> {
        let id = 1 + self.random.below(self.rows);
        let sql = "update items set count = count + 1, changed = ? where id = ?";
        self.db.prepare_cached(sql)?.execute(params![1_720_000_000 + n as i64, id as i64])?;
        Ok(())
    }
}

/// Transactions of one kind in one mode.
pub fn run(stage: &Stage, mode: JournalMode, mix: Mix) -> Result<Values> {
    let mut rows = open(stage, mode, mix)?;
    stage.setup_done()?;
    transactions(stage, &mut rows, mix)?;
    rows.db.check()?;
    Ok(Values::new())
}

/// All kinds in all modes, one after the other.
pub fn all(stage: &Stage) -> Result<Values> {
    let mut open_ones = Vec::new();
    for mode in JournalMode::ALL {
        for mix in Mix::ALL {
            open_ones.push((open(stage, mode, mix)?, mix));
        }
    }
    stage.setup_done()?;
    for (rows, mix) in &mut open_ones {
        transactions(stage, rows, *mix)?;
    }
    for (rows, _) in &open_ones {
        rows.db.check()?;
    }
    Ok(Values::new())
}

fn open(stage: &Stage, mode: JournalMode, mix: Mix) -> Result<Rows> {
    let name = format!("{}-{}.db", mode.name().to_lowercase(), mix.name());
    let db = SqliteFs::new(stage.target.clone())?.open(&name, mode)?;
    db.execute_batch(
        "create table items (id integer primary key, count integer, changed integer, body text); begin",
    )?;
    let mut rows = Rows { db, random: stage.random(&name), writer: Writer::new(stage.seed), rows: 0 };
    for _ in 0..stage.scaled(ROWS, 200) {
        rows.insert()?;
    }
    rows.db.execute_batch("commit")?;
    Ok(rows)
}

fn transactions(stage: &Stage, rows: &mut Rows, mix: Mix) -> Result<()> {
    for n in 0..stage.scaled(TRANSACTIONS, 20) {
        match mix {
            Mix::Insert => rows.insert()?,
            Mix::Mixed if n % 2 == 0 => rows.insert()?,
            _ => rows.update(n)?,
        }
        stage.target.pass(Duration::from_millis(50)).map_err(Error::io("letting time pass"))?;
    }
    Ok(())
}
