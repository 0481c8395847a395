//! One database or two attached ones, in which each transaction changes a counter and several rows.

use medfs_lab::backend::{Target, read_file};
use medfs_lab::error::Result;
use medfs_lab::random::Random;
use medfs_lab::sqlite::{Database, JournalMode, SqliteFs};
use rusqlite::params;
use rusqlite::types::ValueRef;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The folder of the databases.
pub(super) const FOLDER: &str = "shop";
/// Names of databases in a connection.
const SCHEMAS: [&str; 2] = ["main", "b"];
/// Rows that are there before.
const ROWS: u64 = 60;

/// The state of each database of a connection.
pub(super) type States = Vec<u64>;

/// A connection, and what draws its transactions.
pub(super) struct Rows {
    pub(super) db: Database,
    schemas: &'static [&'static str],
    random: Random,
    last: i64,
}

/// Opens one database, or two of which one is attached. A COMMIT that returns has fsynced all that it needs.
pub(super) fn open(target: Arc<dyn Target>, mode: JournalMode, attached: bool) -> Result<Database> {
    let db = SqliteFs::new(target)?.open(&format!("{FOLDER}/a.db"), mode)?;
    settle(&db, mode, "main")?;
    if attached {
        db.execute_batch(&format!("attach '{FOLDER}/b.db' as b; pragma b.journal_mode={}", mode.name()))?;
        settle(&db, mode, "b")?;
    }
    Ok(db)
}

/// With locks that are held a journal would not be deleted; a log needs them. FULL does not sync the directory after a
/// journal was deleted.
pub(super) fn settle(db: &Database, mode: JournalMode, schema: &str) -> Result<()> {
    if mode != JournalMode::Wal {
        db.execute_batch("pragma locking_mode=NORMAL")?;
    }
    let synchronous = if mode == JournalMode::Delete { "EXTRA" } else { "FULL" };
    db.execute_batch(&format!("pragma {schema}.synchronous={synchronous}"))?;
    Ok(())
}

/// Whether the first database has a rollback journal that counts.
pub(super) fn is_interrupted(target: &dyn Target) -> bool {
    let journal = read_file(target, &format!("{FOLDER}/a.db-journal"));
    journal.is_ok_and(|journal| journal.len() > 512 && journal.starts_with(b"\xd9\xd5\x05\xf9"))
}

/// The databases of a connection.
fn schemas(attached: bool) -> &'static [&'static str] {
    &SCHEMAS[..1 + usize::from(attached)]
}

/// What is in the databases: a number for each that no other state has.
pub(super) fn states(db: &Database, attached: bool) -> Result<States> {
    schemas(attached).iter().map(|schema| state(db, schema)).collect()
}

fn state(db: &Database, schema: &str) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for query in ["select last from {}.n", "select id, stamp, body from {}.t order by id"] {
        let mut query = db.prepare(&query.replace("{}", schema))?;
        let columns = query.column_count();
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                match row.get_ref(column)? {
                    ValueRef::Integer(value) => value.hash(&mut hasher),
                    other => other.as_bytes().unwrap_or_default().hash(&mut hasher),
                }
            }
        }
    }
    Ok(hasher.finish())
}

/// What SQLite finds wrong.
pub(super) fn integrity(db: &Database, attached: bool) -> Result<std::result::Result<(), String>> {
    for schema in schemas(attached) {
        let found: String =
            db.query_row(&format!("pragma {schema}.integrity_check"), [], |row| row.get(0))?;
        if found != "ok" {
            return Ok(Err(format!("{schema}: {found}")));
        }
    }
    Ok(Ok(()))
}

impl Rows {
    /// Makes the tables.
    pub(super) fn made(db: Database, attached: bool, random: Random) -> Result<Rows> {
        let mut rows = Rows { db, schemas: schemas(attached), random, last: 0 };
        for schema in rows.schemas {
            rows.db.execute_batch(&format!(
                "create table {schema}.t (id integer primary key, stamp integer, body blob);
                 create index {schema}.by_stamp on t (stamp);
                 create table {schema}.n (last integer); insert into {schema}.n values (0); begin"
            ))?;
            (0..ROWS).try_for_each(|_| rows.insert(schema))?;
            rows.db.execute_batch("commit")?;
        }
        Ok(rows)
    }

    /// Goes on with tables that are there. With a small cache SQLite writes pages before it commits them.
    pub(super) fn open(db: Database, attached: bool, mut random: Random) -> Result<Rows> {
        let (cache, log) = (*random.pick(&[4, 1000]), *random.pick(&[4, 16, 64]));
        for schema in schemas(attached) {
            db.execute_batch(&format!(
                "pragma {schema}.cache_size={cache}; pragma {schema}.wal_autocheckpoint={log}"
            ))?;
        }
        Ok(Rows { db, schemas: schemas(attached), random, last: 0 })
    }

    fn body(&mut self) -> Vec<u8> {
        let most = *self.random.pick(&[20, 300, 9000]);
        let mut body = vec![0; self.random.between(1, most) as usize];
        // Half of it can be compressed.
        let half = body.len() / 2;
        self.random.fill(&mut body[half..]);
        body
    }

    fn insert(&mut self, schema: &str) -> Result<()> {
        let (last, body) = (self.last, self.body());
        let sql = format!("insert into {schema}.t (stamp, body) values (?,?)");
        self.db.prepare_cached(&sql)?.execute(params![last, body])?;
        Ok(())
    }

    fn change(&mut self, schema: &str) -> Result<()> {
        let id = self.random.between(1, ROWS + 10) as i64;
        match self.random.below(8) {
            0 => self.insert(schema)?,
            1 => {
                self.db.prepare_cached(&format!("delete from {schema}.t where id = ?"))?.execute([id])?;
            }
            2 => {
                let body = self.body();
                let sql = format!("update {schema}.t set stamp = ?, body = ? where id = ?");
                self.db.prepare_cached(&sql)?.execute(params![self.last, body, id])?;
            }
            _ => {
                let sql = format!("update {schema}.t set stamp = ? where id = ?");
                self.db.prepare_cached(&sql)?.execute([self.last, id])?;
            }
        }
        Ok(())
    }

    /// A transaction in each database, which commits or is rolled back.
    pub(super) fn transaction(&mut self, commits: bool) -> Result<()> {
        self.last += i64::from(commits);
        self.db.execute_batch("begin")?;
        for schema in self.schemas {
            self.db.prepare_cached(&format!("update {schema}.n set last = ?"))?.execute([self.last])?;
            let changes = self.random.between(1, 6);
            (0..changes).try_for_each(|_| self.change(schema))?;
        }
        self.db.execute_batch(if commits { "commit" } else { "rollback" })?;
        Ok(())
    }
}
