//! What a file's name says of how it will be written.

use medfs_format::node::RawInode;

/// Kinds of files that SQLite's users and SQLite itself name in a way that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    /// A database.
    Database,
    /// A rollback journal: the database's pages as they were.
    Journal,
    /// A write-ahead log: the database's pages as they will be.
    Log,
    /// Any other.
    Other,
}

const JOURNAL: &[u8] = b"-journal";
const LOG: &[u8] = b"-wal";
const DATABASE: [&[u8]; 4] = [b".db", b".sqlite", b".sqlite3", b".db3"];

impl Name {
    /// What the name that an inode records is.
    pub(crate) fn of(r: &RawInode) -> Name {
        let name = bytes(r);
        if name.ends_with(JOURNAL) {
            Name::Journal
        } else if name.ends_with(LOG) {
            Name::Log
        } else if DATABASE.iter().any(|suffix| name.ends_with(suffix)) {
            Name::Database
        } else {
            Name::Other
        }
    }
}

/// The name that an inode records.
fn bytes(r: &RawInode) -> &[u8] {
    &r.i_name[..(r.i_namelen.get() as usize).min(r.i_name.len())]
}

/// Whether this is the name that an inode records.
pub(crate) fn is_named(r: &RawInode, name: &[u8]) -> bool {
    bytes(r) == name
}

/// The name of the database to which a journal or log belongs.
pub(crate) fn database_of(r: &RawInode) -> Option<Vec<u8>> {
    let name = bytes(r);
    let database = name.strip_suffix(JOURNAL).or_else(|| name.strip_suffix(LOG))?;
    (!database.is_empty()).then(|| database.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    fn named(name: &[u8]) -> RawInode {
        let mut r = RawInode::new_zeroed();
        r.i_namelen = (name.len() as u32).into();
        r.i_name[..name.len()].copy_from_slice(name);
        r
    }

    #[test]
    fn names_are_told_apart() {
        assert_eq!(Name::of(&named(b"mmssms.db")), Name::Database);
        assert_eq!(Name::of(&named(b"mmssms.db-wal")), Name::Log);
        assert_eq!(Name::of(&named(b"mmssms.db-journal")), Name::Journal);
        assert_eq!(Name::of(&named(b"mmssms.txt")), Name::Other);
        assert_eq!(database_of(&named(b"Cookies-journal")).unwrap(), b"Cookies");
        assert_eq!(database_of(&named(b"Cookies-wal")).unwrap(), b"Cookies");
        assert_eq!(database_of(&named(b"-wal")), None);
        assert_eq!(database_of(&named(b"Cookies")), None);
    }
}
