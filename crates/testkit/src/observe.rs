//! Reads a whole file system into a [`Model`], checking on the way what must hold in any state.

use crate::model::{Id, Inode, Model, PAGE, ROOT, USER_FLAGS};
use crate::subject::{FileSystem, list};
use medfs::{Attr, Error, FileKind, Ino, NewFile, Posix, Seek};
use std::collections::{BTreeMap, BTreeSet};

/// Files up to this size are read as a whole, larger ones where they say that there is data.
const READ_WHOLE: u64 = 256 << 10;
/// Entries taken by one readdir call: few, so that resuming is exercised.
const ENTRIES: usize = 23;
/// More entries than any test makes: a directory that never ends is an error, not a hang.
const MAX_ENTRIES: usize = 100_000;

/// Names an error of the file system under test.
pub(crate) fn failed(what: impl std::fmt::Display) -> impl FnOnce(Error) -> String {
    move |e| format!("{what}: {e} ({e:?})")
}

/// Reads the tree. An error is a broken promise: nothing in a mounted file system may fail to be read.
pub fn observe(fs: &dyn FileSystem) -> Result<Model, String> {
    observe_but(fs, &BTreeSet::new())
}

/// The same, of a volume on which these files may fail to be read: they are shown without content then.
pub fn observe_but(fs: &dyn FileSystem, damaged: &BTreeSet<Ino>) -> Result<Model, String> {
    let root = fs.getattr(fs.root()).map_err(failed("getattr of the root"))?;
    let mut model = Model::new(inode(fs, &root, "/")?);
    let mut known: BTreeMap<Ino, Id> = BTreeMap::from([(root.ino, ROOT)]);
    let mut todo = vec![(ROOT, root.ino, root.ino, String::new())];
    while let Some((dir, ino, parent, path)) = todo.pop() {
        for (name, child, kind) in entries(fs, ino, parent, &path)? {
            let path = format!("{path}/{}", String::from_utf8_lossy(&name));
            let attr = fs.lookup(ino, &name).map_err(failed(format_args!("lookup of {path}")))?;
            fs.release(attr.ino, 1);
            if attr.ino != child {
                return Err(format!("{path}: readdir says inode {child}, lookup says {}", attr.ino));
            }
            if kind.is_some_and(|kind| kind != attr.kind) {
                return Err(format!("{path}: the entry says {kind:?}, the inode {:?}", attr.kind));
            }
            let id = match known.get(&child) {
                Some(_) if attr.kind == FileKind::Directory => {
                    return Err(format!("{path}: inode {child}, a directory, is entered more than once"));
                }
                Some(&id) => id,
                None => {
                    let read = inode(fs, &attr, &path);
                    let id = model.add(match damaged.contains(&child) {
                        true => read.unwrap_or_else(|_| bare(&attr)),
                        false => read?,
                    });
                    known.insert(child, id);
                    if attr.kind == FileKind::Directory {
                        todo.push((id, child, ino, path));
                    }
                    id
                }
            };
            model.inode_mut(dir).entries.insert(name, id);
        }
    }
    check_links(&model)?;
    Ok(model)
}

/// Link counts agree with the names.
fn check_links(model: &Model) -> Result<(), String> {
    let mut names: BTreeMap<Id, u32> = BTreeMap::new();
    for (_, inode) in model.inodes() {
        for &child in inode.entries.values() {
            *names.entry(child).or_default() += 1;
        }
    }
    for (id, inode) in model.inodes() {
        let expected = if inode.is_dir() {
            2 + inode.entries.values().filter(|child| model.inode(**child).is_dir()).count() as u32
        } else {
            names.get(&id).copied().unwrap_or(0)
        };
        if inode.nlink != expected {
            let path = model.path_of(id);
            return Err(format!(
                "{path} (inode {}): link count {} instead of {expected}",
                inode.ino, inode.nlink
            ));
        }
    }
    Ok(())
}

/// Entries of a directory without `.` and `..`, which must be right.
#[allow(clippy::type_complexity)]
fn entries(
    fs: &dyn FileSystem,
    ino: Ino,
    parent: Ino,
    path: &str,
) -> Result<Vec<(Vec<u8>, Ino, Option<FileKind>)>, String> {
    let mut found: BTreeMap<Vec<u8>, (Ino, Option<FileKind>)> = BTreeMap::new();
    let mut position = 0;
    loop {
        let part = list(fs, ino, position, ENTRIES).map_err(failed(format_args!("readdir of {path}/")))?;
        let Some(last) = part.last() else { break };
        position = last.next;
        for entry in part {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if found.insert(entry.name, (entry.ino, entry.kind)).is_some() {
                return Err(format!("{path}/: readdir gives {name:?} twice"));
            }
        }
        if found.len() > MAX_ENTRIES {
            return Err(format!("{path}/: readdir does not end"));
        }
    }
    for (name, expected) in [(&b"."[..], ino), (b"..", parent)] {
        match found.remove(name) {
            Some((actual, _)) if actual == expected => {}
            other => {
                let name = String::from_utf8_lossy(name);
                return Err(format!("{path}/: entry {name:?} is {other:?} instead of inode {expected}"));
            }
        }
    }
    Ok(found.into_iter().map(|(name, (ino, kind))| (name, ino, kind)).collect())
}

/// What the attributes of an inode say.
fn bare(attr: &Attr) -> Inode {
    let Attr { ino, kind, perm, uid, gid, rdev, .. } = *attr;
    let mut inode = Inode::new(ino, &NewFile { kind, perm, umask: 0, uid, gid, rdev });
    inode.nlink = attr.nlink;
    inode.mtime = Some(attr.mtime);
    inode.flags = attr.flags & USER_FLAGS;
    inode
}

/// Reads everything about an inode but its entries.
pub(crate) fn inode(fs: &dyn FileSystem, attr: &Attr, path: &str) -> Result<Inode, String> {
    let (ino, kind, mut inode) = (attr.ino, attr.kind, bare(attr));
    if kind == FileKind::Symlink {
        inode.target = fs.readlink(ino).map_err(failed(format_args!("readlink of {path}")))?;
    } else {
        for name in fs.listxattr(ino).map_err(failed(format_args!("listxattr of {path}")))? {
            let shown = String::from_utf8_lossy(&name).into_owned();
            let value =
                fs.getxattr(ino, &name).map_err(failed(format_args!("getxattr {shown} of {path}")))?;
            if inode.xattrs.insert(name, value).is_some() {
                return Err(format!("{path}: listxattr gives {shown} twice"));
            }
        }
    }
    if kind == FileKind::Regular {
        inode.content.truncate(attr.size);
        let mut at = 0;
        while at < attr.size {
            let mut end = attr.size;
            if attr.size > READ_WHOLE {
                at = match fs.seek(ino, at, Seek::Data) {
                    Ok(data) if data >= at && data < attr.size => data / PAGE * PAGE,
                    Ok(data) => {
                        return Err(format!(
                            "{path}: seeking data from {at} on gave {data}, size {}",
                            attr.size
                        ));
                    }
                    Err(Error::Posix(Posix::NoSuchAddress)) => break,
                    Err(e) => return Err(format!("seeking data of {path} from {at} on: {e}")),
                };
                end =
                    fs.seek(ino, at, Seek::Hole).map_err(failed(format_args!("seeking a hole in {path}")))?;
                if end <= at || end > attr.size {
                    return Err(format!(
                        "{path}: seeking a hole from data at {at} on gave {end}, size {}",
                        attr.size
                    ));
                }
            }
            while at < end {
                let page = read_page(fs, ino, at / PAGE, attr.size).map_err(|e| format!("{path}: {e}"))?;
                if page != [0; PAGE as usize] {
                    inode.content.put_page(at / PAGE, page);
                }
                at += PAGE;
            }
        }
    }
    Ok(inode)
}

/// One page; zeros after the end of the file.
pub(crate) fn read_page(
    fs: &dyn FileSystem,
    ino: Ino,
    index: u64,
    size: u64,
) -> Result<[u8; PAGE as usize], String> {
    let mut page = [0; PAGE as usize];
    let expected = size.saturating_sub(index * PAGE).min(PAGE) as usize;
    let read = fs.read(ino, index * PAGE, &mut page).map_err(failed(format_args!("reading page {index}")))?;
    if read != expected {
        return Err(format!("reading page {index} gave {read} bytes instead of {expected}, size {size}"));
    }
    page[read..].fill(0);
    Ok(page)
}

/// Compares what was observed with what a model says, path by path. `Err` names the first difference.
pub fn compare(model: &Model, observed: &Model) -> Result<(), String> {
    let mut todo = vec![(ROOT, ROOT)];
    let mut pairs: BTreeMap<Id, Id> = BTreeMap::new();
    while let Some((expected_id, actual_id)) = todo.pop() {
        let (expected, actual) = (model.inode(expected_id), observed.inode(actual_id));
        let path = || model.path_of(expected_id);
        if let Some(&before) = pairs.get(&expected_id) {
            if before != actual_id {
                return Err(format!("{}: the names of one inode lead to two", path()));
            }
            continue;
        }
        pairs.insert(expected_id, actual_id);
        compare_inode(expected, actual).map_err(|e| format!("{}: {e}", path()))?;
        for (name, &child) in &expected.entries {
            match actual.entries.get(name) {
                Some(&found) => todo.push((child, found)),
                None => {
                    return Err(format!("{}: entry {:?} is missing", path(), String::from_utf8_lossy(name)));
                }
            }
        }
        if let Some(extra) = actual.entries.keys().find(|name| !expected.entries.contains_key(*name)) {
            return Err(format!("{}: entry {:?} should not exist", path(), String::from_utf8_lossy(extra)));
        }
    }
    Ok(())
}

/// Compares two inodes, entries apart.
pub(crate) fn compare_inode(expected: &Inode, actual: &Inode) -> Result<(), String> {
    compare_attributes(expected, actual)?;
    if expected.nlink != actual.nlink {
        return Err(format!("link count {} instead of {}", actual.nlink, expected.nlink));
    }
    if expected.target != actual.target {
        return Err(format!("target {:?} instead of {:?}", actual.target, expected.target));
    }
    if expected.content.size() != actual.content.size() {
        return Err(format!("size {} instead of {}", actual.content.size(), expected.content.size()));
    }
    let pages = expected.content.pages().chain(actual.content.pages());
    for (index, _) in pages {
        let (expected, actual) = (expected.content.page(index), actual.content.page(index));
        if let Some(at) = expected.iter().zip(actual).position(|(a, b)| a != b) {
            return Err(format!(
                "page {index} differs from byte {at} on: {:#x} instead of {:#x}",
                actual[at], expected[at]
            ));
        }
    }
    Ok(())
}

/// Compares kind, permissions, owner, device number, flags, times and extended attributes.
pub(crate) fn compare_attributes(expected: &Inode, actual: &Inode) -> Result<(), String> {
    let brief = |inode: &Inode| (inode.kind, inode.perm, inode.uid, inode.gid, inode.rdev, inode.flags);
    if brief(expected) != brief(actual) {
        return Err(format!(
            "kind, mode, uid, gid, rdev, flags are {:?} instead of {:?}",
            brief(actual),
            brief(expected)
        ));
    }
    if expected.mtime.is_some() && actual.mtime.is_some() && expected.mtime != actual.mtime {
        return Err(format!("mtime {:?} instead of {:?}", actual.mtime, expected.mtime));
    }
    if expected.kind != FileKind::Symlink && expected.xattrs != actual.xattrs {
        let brief = |inode: &Inode| {
            let names = inode.xattrs.iter();
            names
                .map(|(name, value)| format!("{}={} bytes", String::from_utf8_lossy(name), value.len()))
                .collect::<Vec<_>>()
        };
        return Err(format!(
            "extended attributes {:?} instead of {:?} (or their values)",
            brief(actual),
            brief(expected)
        ));
    }
    Ok(())
}

/// Whether what was observed is, in each entry, each attribute and each page, what it was `before` an operation
/// or what it is `after` it: what an operation of many steps may leave that failed. `Err` names the first
/// difference from both.
pub fn is_between(before: &Model, after: &Model, observed: &Model) -> Result<(), String> {
    let by_number =
        |model: &Model| -> BTreeMap<Ino, Id> { model.inodes().map(|(id, inode)| (inode.ino, id)).collect() };
    let (first, last) = (by_number(before), by_number(after));
    for (id, found) in observed.inodes() {
        let was = first.get(&found.ino).map(|&id| before.inode(id));
        let is = last.get(&found.ino).map(|&id| after.inode(id));
        let path = observed.path_of(id);
        match (was, is) {
            (Some(was), Some(is)) => inode_is_between(was, is, found).map_err(|e| format!("{path}: {e}"))?,
            (Some(one), None) => inode_is_between(one, one, found).map_err(|e| format!("{path}: {e}"))?,
            // What is new has its number from who asked first.
            (None, _) => {}
        }
    }
    let kept = first.iter().filter(|(ino, _)| last.contains_key(ino));
    let found = by_number(observed);
    match kept.map(|(ino, _)| ino).find(|ino| !found.contains_key(ino)) {
        Some(ino) => Err(format!("inode {ino} is gone")),
        None => Ok(()),
    }
}

fn inode_is_between(was: &Inode, is: &Inode, found: &Inode) -> Result<(), String> {
    compare_attributes(was, found).or_else(|e| compare_attributes(is, found).map_err(|_| e))?;
    let names = was.entries.keys().chain(is.entries.keys()).chain(found.entries.keys());
    for name in names {
        let has = found.entries.contains_key(name);
        if has != was.entries.contains_key(name) && has != is.entries.contains_key(name) {
            let name = String::from_utf8_lossy(name);
            return Err(format!(
                "entry {name:?} is {}there, as neither before nor after",
                if has { "" } else { "not " }
            ));
        }
    }
    let sizes = [was.content.size(), is.content.size()];
    let size = found.content.size();
    if size < sizes[0].min(sizes[1]) || size > sizes[0].max(sizes[1]) {
        return Err(format!("size {size}, before {}, after {}", sizes[0], sizes[1]));
    }
    let pages =
        [was, is, found].map(|inode| inode.content.pages().map(|(index, _)| index).collect::<Vec<_>>());
    let unlike = pages.concat().into_iter().filter(|index| index * PAGE < size).find(|&index| {
        let page = found.content.page(index);
        // The page in which a file ends holds nothing behind its end.
        let end = (size - index * PAGE).min(PAGE) as usize;
        page[..end] != was.content.page(index)[..end] && page[..end] != is.content.page(index)[..end]
    });
    match unlike {
        Some(index) => Err(format!("page {index} is neither that of before nor that of after")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64, pages: &[(u64, u8)]) -> Model {
        let new = |kind| NewFile { kind, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let mut model = Model::new(Inode::new(3, &new(FileKind::Directory)));
        let mut inode = Inode::new(4, &new(FileKind::Regular));
        inode.content.truncate(size);
        pages.iter().for_each(|&(index, byte)| inode.content.put_page(index, [byte; PAGE as usize]));
        let id = model.add(inode);
        model.inode_mut(ROOT).entries.insert(b"f".to_vec(), id);
        model
    }

    #[test]
    fn what_is_of_neither_state_is_found() {
        let before = file(3 * PAGE, &[(0, 1), (1, 1), (2, 1)]);
        let after = file(2 * PAGE, &[(0, 2), (1, 2)]);
        let judge = |found: &Model| is_between(&before, &after, found);
        for found in
            [&before, &after, &file(3 * PAGE, &[(0, 2), (1, 1), (2, 1)]), &file(3 * PAGE, &[(0, 1), (1, 2)])]
        {
            judge(found).unwrap();
        }
        for (found, what) in [
            (file(3 * PAGE, &[(0, 2), (2, 1)]), "page 1"),
            (file(3 * PAGE, &[(0, 2), (1, 3), (2, 1)]), "page 1"),
            (file(PAGE, &[(0, 2)]), "size"),
            (file(4 * PAGE, &[(0, 2), (1, 2)]), "size"),
        ] {
            assert!(judge(&found).unwrap_err().contains(what), "{what}");
        }
        let mut without = file(2 * PAGE, &[(0, 2), (1, 2)]);
        without.inode_mut(ROOT).entries.clear();
        assert!(judge(&without).unwrap_err().contains("not there"));
    }
}
