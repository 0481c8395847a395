//! What a file's name says of how it will be written.

use medfs_format::node::RawInode;

/// Kinds of files that SQLite's users and SQLite itself name in a way that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileClass {
    /// A database.
    Database,
    /// A rollback journal: the database's pages as they were.
    RollbackJournal,
    /// A write-ahead log: the database's pages as they will be.
    Wal,
    /// Any other.
    Other,
}

const JOURNAL: &[u8] = b"-journal";
const LOG: &[u8] = b"-wal";
const DATABASE: [&[u8]; 4] = [b".db", b".sqlite", b".sqlite3", b".db3"];

impl FileClass {
    /// What the name that an inode records is.
    pub(crate) fn of(r: &RawInode) -> FileClass {
        let name = bytes(r);
        if name.ends_with(JOURNAL) {
            FileClass::RollbackJournal
        } else if name.ends_with(LOG) {
            FileClass::Wal
        } else if DATABASE.iter().any(|suffix| name.ends_with(suffix)) {
            FileClass::Database
        } else {
            FileClass::Other
        }
    }

    /// Whether it holds pages of a database.
    pub(crate) fn is_journal(self) -> bool {
        matches!(self, FileClass::Wal | FileClass::RollbackJournal)
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
fn database_of(r: &RawInode) -> Option<Vec<u8>> {
    let name = bytes(r);
    let database = name.strip_suffix(JOURNAL).or_else(|| name.strip_suffix(LOG))?;
    (!database.is_empty()).then(|| database.to_vec())
}

/// How files are named that are about to replace another one.
enum Temporary {
    /// Its name with an ending: most editors, Android, version control.
    Ending(&'static [u8]),
    /// Its name with a dot and so many letters and digits (mkstemp).
    Random(usize),
    /// The same behind a dot (rsync).
    DotRandom(usize),
    /// Its name between two others (Emacs).
    Between(&'static [u8], &'static [u8]),
}

const TEMPORARY: [Temporary; 11] = [
    Temporary::Ending(b".tmp"),
    Temporary::Ending(b".new"),
    Temporary::Ending(b".temp"),
    Temporary::Ending(b".part"),
    Temporary::Ending(b".lock"),
    Temporary::Ending(b"-tmp"),
    Temporary::Ending(b"~"),
    Temporary::Between(b"#", b"#"),
    Temporary::Between(b".", b".tmp"),
    Temporary::DotRandom(6),
    Temporary::Random(6),
];

impl Temporary {
    fn replaces<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        let random = |name: &'a [u8], letters: usize| {
            let (rest, random) = name.split_at_checked(name.len().checked_sub(letters)?)?;
            random.iter().all(u8::is_ascii_alphanumeric).then(|| rest.strip_suffix(b"."))?
        };
        match *self {
            Temporary::Ending(ending) => name.strip_suffix(ending),
            Temporary::Random(letters) => random(name, letters),
            Temporary::DotRandom(letters) => random(name.strip_prefix(b".")?, letters),
            Temporary::Between(before, after) => name.strip_prefix(before)?.strip_suffix(after),
        }
    }
}

/// The names of the files that one of this name may be about to replace.
fn replaced_by(r: &RawInode) -> impl Iterator<Item = &[u8]> {
    TEMPORARY.iter().filter_map(|kind| kind.replaces(bytes(r))).filter(|name| !name.is_empty())
}

/// Whether the name says that the file may be about to replace another one.
pub(crate) fn replaces_another(r: &RawInode) -> bool {
    replaced_by(r).next().is_some()
}

/// The names of the files of whose blocks the pages of one of this name are likely made: the database of a
/// journal or log, or what another file may be about to replace.
pub(crate) fn companions(r: &RawInode) -> Vec<Vec<u8>> {
    match FileClass::of(r).is_journal() {
        true => database_of(r).into_iter().collect(),
        false => replaced_by(r).map(<[u8]>::to_vec).collect(),
    }
}

/// Whether a name is `stem.extension` in either case; `*` is every name's.
pub(crate) fn has_last_extension(name: &[u8], extension: &[u8]) -> bool {
    let Some(dot) = name.len().checked_sub(extension.len() + 1).filter(|&dot| dot > 0) else {
        return extension == b"*";
    };
    extension == b"*" || (name[dot] == b'.' && name[dot + 1..].eq_ignore_ascii_case(extension))
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
        assert_eq!(FileClass::of(&named(b"mmssms.db")), FileClass::Database);
        assert_eq!(FileClass::of(&named(b"mmssms.db-wal")), FileClass::Wal);
        assert_eq!(FileClass::of(&named(b"mmssms.db-journal")), FileClass::RollbackJournal);
        assert_eq!(FileClass::of(&named(b"mmssms.txt")), FileClass::Other);
        assert_eq!(database_of(&named(b"Cookies-journal")).unwrap(), b"Cookies");
        assert_eq!(database_of(&named(b"Cookies-wal")).unwrap(), b"Cookies");
        assert_eq!(database_of(&named(b"-wal")), None);
        assert_eq!(database_of(&named(b"Cookies")), None);
    }

    #[test]
    fn what_a_temporary_file_replaces_is_told_by_its_name() {
        let replaced = |name: &[u8]| -> Vec<String> {
            let file = named(name);
            replaced_by(&file).map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
        };
        for name in
            ["a.xml.tmp", "a.xml.new", "a.xml~", "#a.xml#", "a.xml.lock", "a.xml.Xk3_9a", ".a.xml.Xk3z9a"]
        {
            let found = replaced(name.as_bytes());
            assert_eq!(found.contains(&"a.xml".to_owned()), !name.contains('_'), "{name}: {found:?}");
        }
        assert_eq!(replaced(b"a.xml"), Vec::<String>::new());
        assert_eq!(replaced(b".tmp"), Vec::<String>::new());
    }

    #[test]
    fn the_last_extension_decides_about_compression() {
        for (name, expected) in [
            ("a.txt", true),
            ("a.b.TXT", true),
            (".txt", false),
            ("txt", false),
            ("a.txt.gz", false),
            ("", false),
        ] {
            assert_eq!(has_last_extension(name.as_bytes(), b"txt"), expected, "{name}");
        }
        assert!(has_last_extension(b"x", b"*") && has_last_extension(b"long.name", b"*"));
    }
}
