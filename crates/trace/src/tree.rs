//! The tree of a file system as a list: what recorder and replay compare.
//!
//! Files come in the order of a walk that lists each directory by its sorted names, a directory before what it holds. A
//! `lost+found` in the root is the file system's own and left out. Memory: the names of the directories on
//! the path.

use crate::error::{Error, Result};
use crate::record::{Bytes, PAGE, TreeEntry};
use medfs::{Attr, FileKind, Files, Ino};

/// Bytes read at a time.
const READ_SIZE: usize = 64 * PAGE;

/// Names of a directory, sorted, without `.` and `..`, nor what is the file system's own.
pub fn names(files: &dyn Files, directory: Ino) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let mut position = 0;
    loop {
        let before = names.len();
        let mut last = position;
        files
            .readdir(directory, position, &mut |entry| {
                last = entry.next;
                names.push(entry.name);
                true
            })
            .map_err(Error::files("cannot list a directory"))?;
        if names.len() == before {
            break;
        }
        position = last;
    }
    let root = directory == files.root();
    names.retain(|name| name != b"." && name != b".." && !(root && name == b"lost+found"));
    names.sort_unstable();
    Ok(names)
}

/// Is shown each file of a walk: the number of its parent, its attributes, its path.
pub type Visit<'a> = &'a mut dyn FnMut(Ino, &Attr, &[u8]) -> Result<()>;

/// A directory on the path of a walk: its number, its path, and the names that are still to come, the next one last.
struct Level {
    ino: Ino,
    path: Vec<u8>,
    names: Vec<Vec<u8>>,
}

impl Level {
    fn new(files: &dyn Files, ino: Ino, path: Vec<u8>) -> Result<Level> {
        let mut names = names(files, ino)?;
        names.reverse();
        Ok(Level { ino, path, names })
    }
}

/// Shows every file below the root to `visit`; it is held meanwhile.
pub fn walk(files: &dyn Files, visit: Visit<'_>) -> Result<()> {
    let mut levels = vec![Level::new(files, files.root(), Vec::new())?];
    let result = walk_levels(files, &mut levels, visit);
    for level in levels.drain(..).skip(1) {
        files.release(level.ino, 1);
    }
    result
}

fn walk_levels(files: &dyn Files, levels: &mut Vec<Level>, visit: Visit<'_>) -> Result<()> {
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            if let Some(done) = levels.pop()
                && !levels.is_empty()
            {
                files.release(done.ino, 1);
            }
            continue;
        };
        let path = if level.path.is_empty() { name.clone() } else { [&level.path[..], b"/", &name].concat() };
        let found = files.lookup(level.ino, &name);
        let attr = found.map_err(Error::files(format!("cannot find {}", String::from_utf8_lossy(&path))))?;
        let parent = level.ino;
        let deeper = visit(parent, &attr, &path).and_then(|()| match attr.kind {
            FileKind::Directory => Level::new(files, attr.ino, path).map(Some),
            _ => Ok(None),
        });
        match deeper {
            Ok(Some(level)) => levels.push(level),
            other => {
                files.release(attr.ino, 1);
                other?;
            }
        }
    }
    Ok(())
}

/// Shows every file below the root as an entry of the list.
pub fn list(files: &dyn Files, visit: &mut dyn FnMut(TreeEntry) -> Result<()>) -> Result<()> {
    walk(files, &mut |_, attr, path| visit(entry(files, attr, path)?))
}

/// A file as an entry of the list.
pub fn entry(files: &dyn Files, attr: &Attr, path: &[u8]) -> Result<TreeEntry> {
    let failed = |what: &str| Error::files(format!("cannot {what} {}", String::from_utf8_lossy(path)));
    let directory = attr.kind == FileKind::Directory;
    let device = matches!(attr.kind, FileKind::BlockDevice | FileKind::CharDevice);
    let content = match attr.kind {
        FileKind::Regular => content(files, attr).map_err(failed("read"))?,
        FileKind::Symlink => short(&blake3::hash(&files.readlink(attr.ino).map_err(failed("read"))?)),
        _ => [0; 16],
    };
    Ok(TreeEntry {
        path: Bytes::from(path.to_vec()),
        mode: attr.kind.mode_bits() | attr.perm,
        uid: attr.uid,
        gid: attr.gid,
        links: if directory { 0 } else { attr.nlink },
        rdev: if device { attr.rdev } else { 0 },
        size: if directory { 0 } else { attr.size },
        content,
        attributes: attributes(files, attr.ino).map_err(failed("read the attributes of"))?,
    })
}

fn short(hash: &blake3::Hash) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&hash.as_bytes()[..16]);
    short
}

fn content(files: &dyn Files, attr: &Attr) -> medfs::Result<[u8; 16]> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; attr.size.clamp(1, READ_SIZE as u64) as usize];
    let mut offset = 0;
    while offset < attr.size {
        let len = files.read(attr.ino, offset, &mut buffer)?;
        if len == 0 {
            break;
        }
        hasher.update(&buffer[..len]);
        offset += len as u64;
    }
    Ok(short(&hasher.finalize()))
}

fn attributes(files: &dyn Files, ino: Ino) -> medfs::Result<[u8; 16]> {
    let mut names = match files.listxattr(ino) {
        // Where they are not supported there are none.
        Err(e) if e.errno() == libc::EOPNOTSUPP => Vec::new(),
        other => other?,
    };
    names.retain(|name| name.starts_with(b"user."));
    if names.is_empty() {
        return Ok([0; 16]);
    }
    names.sort_unstable();
    let mut hasher = blake3::Hasher::new();
    for name in names {
        let value = files.getxattr(ino, &name)?;
        for part in [&name, &value] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
    }
    Ok(short(&hasher.finalize()))
}

/// The difference of two files that should be the same, in words; `None` where they do not differ.
pub fn difference(want: &TreeEntry, got: &TreeEntry, private: bool) -> Option<String> {
    let path = String::from_utf8_lossy(&want.path).into_owned();
    let tell = |what: &str, a: String, b: String| Some(format!("{path}: {what} {b} instead of {a}"));
    if want.path != got.path {
        let other = String::from_utf8_lossy(&got.path);
        return Some(format!("{path} is missing, or {other} should not be there"));
    }
    if want.mode != got.mode {
        return tell("mode", format!("{:o}", want.mode), format!("{:o}", got.mode));
    }
    if (want.uid, want.gid) != (got.uid, got.gid) {
        return tell("owner", format!("{}:{}", want.uid, want.gid), format!("{}:{}", got.uid, got.gid));
    }
    if want.links != got.links {
        return tell("links", want.links.to_string(), got.links.to_string());
    }
    // The names in a link's target are others in a trace that has none.
    let replaced = private && want.mode & 0o170000 == FileKind::Symlink.mode_bits();
    if want.size != got.size && !replaced {
        return tell("size", want.size.to_string(), got.size.to_string());
    }
    if want.rdev != got.rdev {
        return tell("device", want.rdev.to_string(), got.rdev.to_string());
    }
    let differ = (want.content != got.content, want.attributes != got.attributes);
    match differ {
        (true, _) if !private => Some(format!("{path}: other content")),
        (_, true) if !private => Some(format!("{path}: other extended attributes")),
        _ => None,
    }
}
