//! Real SQLite databases on a [`Target`].

mod vfs;

use crate::backend::Target;
use crate::error::{Error, Result};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// SQLite has one source of chance in a process: who needs it to repeat holds this while SQLite works.
static CHANCE: Mutex<()> = Mutex::new(());

/// SQLite's journal modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JournalMode {
    /// A rollback journal that is deleted.
    Delete,
    /// One that is cut to nothing.
    Truncate,
    /// One whose header is cleared.
    Persist,
    /// A rollback journal in memory.
    Memory,
    /// A write-ahead log.
    Wal,
    /// None.
    Off,
}

impl JournalMode {
    /// All of them.
    pub const ALL: [JournalMode; 6] = [
        JournalMode::Delete,
        JournalMode::Truncate,
        JournalMode::Persist,
        JournalMode::Memory,
        JournalMode::Wal,
        JournalMode::Off,
    ];

    /// SQLite's word for it.
    pub fn name(self) -> &'static str {
        match self {
            JournalMode::Delete => "DELETE",
            JournalMode::Truncate => "TRUNCATE",
            JournalMode::Persist => "PERSIST",
            JournalMode::Memory => "MEMORY",
            JournalMode::Wal => "WAL",
            JournalMode::Off => "OFF",
        }
    }
}

/// Databases on a target. It lives until its last connection is gone.
#[derive(Clone)]
pub struct SqliteFs(Arc<vfs::Registered>);

/// A connection, and what it stands on.
pub struct Database {
    connection: Connection,
    _fs: SqliteFs,
}

impl std::ops::Deref for Database {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl SqliteFs {
    /// Databases on `target`.
    pub fn new(target: Arc<dyn Target>) -> Result<SqliteFs> {
        Ok(SqliteFs(Arc::new(vfs::Registered::new(target).map_err(Error::Unknown)?)))
    }

    /// Opens or makes a database, with `synchronous=FULL` and temporary tables in memory. Only one connection
    /// may be open for a path: nothing is locked.
    pub fn open(&self, path: &str, mode: JournalMode) -> Result<Database> {
        self.open_with(path, mode, "")
    }

    /// The same; `before` is SQL for a new database, before its journal mode is set.
    pub fn open_with(&self, path: &str, mode: JournalMode, before: &str) -> Result<Database> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags_and_vfs(path, flags, self.0.name())?;
        connection.execute_batch(
            "pragma temp_store=MEMORY; pragma locking_mode=EXCLUSIVE; pragma cache_size=-16384;",
        )?;
        connection.execute_batch(before)?;
        let got: String =
            connection.query_row(&format!("pragma journal_mode={}", mode.name()), [], |row| row.get(0))?;
        if !got.eq_ignore_ascii_case(mode.name()) {
            return Err(Error::Check(format!(
                "SQLite gives {path} journal mode {got} instead of {}",
                mode.name()
            )));
        }
        connection.execute_batch("pragma synchronous=FULL;")?;
        Ok(Database { connection, _fs: self.clone() })
    }
}

impl Database {
    /// Fails where SQLite finds the database damaged.
    pub fn check(&self) -> Result<()> {
        let found: String = self.connection.query_row("pragma integrity_check", [], |row| row.get(0))?;
        if found == "ok" {
            Ok(())
        } else {
            Err(Error::Check(format!("SQLite finds the database damaged: {found}")))
        }
    }
}

/// Makes SQLite's random numbers those of `seed` for as long as the guard lives; others wait.
pub fn chance(seed: u64) -> MutexGuard<'static, ()> {
    let guard = CHANCE.lock();
    vfs::seed_random((seed ^ (seed >> 32)) as u32);
    guard
}
