//! Names in traces without contents, of files and of extended attributes.
//!
//! A name's stem is replaced by digits of a keyed hash: the same stem always by the same ones, and a reader
//! who lacks the key, which is kept nowhere, cannot tell whether a guess is right. What says which kind of
//! file it is stays: the extension, where it is a common one, and the suffixes of SQLite's logs and journals,
//! by which they belong to their database.

/// Extensions that stay.
const KINDS: [&str; 34] = [
    "bak", "bin", "c", "cfg", "conf", "css", "csv", "dat", "db", "db3", "gif", "gz", "h", "htm", "html",
    "ini", "jpeg", "jpg", "js", "json", "lock", "log", "m4a", "mp3", "mp4", "pb", "pdf", "png", "sqlite",
    "sqlite3", "tmp", "txt", "webp", "xml",
];

/// What SQLite puts behind a database's name.
const SUFFIXES: [&str; 3] = ["-wal", "-journal", "-shm"];

/// Replaces names.
#[derive(Debug)]
pub(crate) struct Names {
    key: [u8; 32],
}

impl Names {
    /// With a key that must not be told.
    pub(crate) fn new(key: [u8; 32]) -> Names {
        Names { key }
    }

    fn digits(&self, bytes: &[u8]) -> String {
        blake3::keyed_hash(&self.key, bytes).to_hex()[..10].to_owned()
    }

    /// What stands for a name.
    pub(crate) fn name(&self, name: &[u8]) -> Vec<u8> {
        if matches!(name, b"." | b".." | b"") {
            return name.to_vec();
        }
        let text = String::from_utf8_lossy(name);
        let suffix = SUFFIXES.into_iter().find(|suffix| text.ends_with(suffix)).unwrap_or_default();
        let rest = &name[..name.len() - suffix.len()];
        let dot = rest.iter().rposition(|&b| b == b'.');
        let kind = dot
            .and_then(|dot| std::str::from_utf8(&rest[dot + 1..]).ok())
            .filter(|kind| KINDS.contains(kind));
        let stem = kind.map_or(rest, |kind| &rest[..rest.len() - kind.len() - 1]);
        let kind = kind.map_or_else(String::new, |kind| format!(".{kind}"));
        format!("{}{kind}{suffix}", self.digits(stem)).into_bytes()
    }

    /// What stands for a path.
    pub(crate) fn path(&self, path: &[u8]) -> Vec<u8> {
        let parts: Vec<Vec<u8>> = path.split(|&b| b == b'/').map(|part| self.name(part)).collect();
        parts.join(&b'/')
    }

    /// What stands for an attribute's name. Its name space stays, as it decides what can be done; so do those
    /// of the system, which have a form.
    pub(crate) fn attribute(&self, name: &[u8]) -> Vec<u8> {
        let dot = name.iter().position(|&b| b == b'.').map_or(0, |dot| dot + 1);
        let (space, rest) = name.split_at(dot);
        match space {
            b"system." => name.to_vec(),
            b"user." | b"trusted." | b"security." if rest.is_empty() => name.to_vec(),
            b"user." | b"trusted." | b"security." => [space, self.digits(rest).as_bytes()].concat(),
            // None that exists, and one that does not exist either.
            _ => self.digits(name).into_bytes(),
        }
    }

    /// What stands for an attribute's value: as many bytes.
    pub(crate) fn value(&self, value: &[u8]) -> Vec<u8> {
        let mut digits = vec![0; value.len()];
        blake3::Hasher::new_keyed(&self.key).update(value).finalize_xof().fill(&mut digits);
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_together_stays_together() {
        let names = Names::new([7; 32]);
        let name = |text: &str| String::from_utf8(names.name(text.as_bytes())).unwrap();
        let (database, log, journal) = (name("chats.db"), name("chats.db-wal"), name("chats.db-journal"));
        assert!(database.ends_with(".db") && !database.contains("chats"), "{database}");
        assert_eq!((log, journal), (format!("{database}-wal"), format!("{database}-journal")));
        assert_eq!(name("plain-journal"), format!("{}-journal", name("plain")));
        assert!(!name("anna.miller").contains("miller"), "no extension");
        assert_ne!(name("a.txt"), String::from_utf8(Names::new([8; 32]).name(b"a.txt")).unwrap());
        assert_eq!(
            names.path(b"../x/y.db"),
            [b"../".as_slice(), &names.name(b"x"), b"/", &names.name(b"y.db")].concat()
        );
        assert_eq!(names.value(b"secret").len(), 6);
    }

    #[test]
    fn of_an_attributes_name_its_space_alone_stays() {
        let names = Names::new([7; 32]);
        let name = |text: &str| String::from_utf8(names.attribute(text.as_bytes())).unwrap();
        for space in ["user.", "trusted.", "security."] {
            let hidden = name(&format!("{space}com.example.secret"));
            assert!(hidden.starts_with(space) && hidden.len() == space.len() + 10, "{hidden}");
            assert_eq!(name(space), space, "no name: refused as before");
        }
        assert_eq!(name("system.posix_acl_access"), "system.posix_acl_access");
        for unknown in ["secret", "secret.space", ""] {
            assert!(!name(unknown).contains(['.', 's']), "{unknown}");
        }
        assert_eq!(name("user.a"), name("user.a"));
        assert_ne!(name("user.a"), name("user.b"));
    }
}
