//! Whether an entry of a directory leads to the file whose name it is, as far as the file itself tells.
//!
//! An inode keeps its last name and the directory of that. Linux does not always write them anew, so they
//! prove nothing alone: an entry is doubted where an inode of one link is led to by its own name too.
//! An entry also says which kind of file it leads to.

use crate::told::{BEHIND_END, SHORT, STRANGE, UNMARKED};
use medfs::{Attr, FileKind, Files, Ino, PastDamage, Seek, Volume};

/// Directories that a walk puts off as [`is_misled`], until it was in all others.
pub(crate) const MOST_MISLED: usize = 1000;

/// Why an entry of a directory is doubted that led to a file. `is_new`: no entry has led to it before.
pub fn of(volume: &Volume, attr: &Attr, dir: Ino, name: &[u8], is_new: bool) -> Option<String> {
    if attr.kind == FileKind::Directory || attr.nlink != 1 {
        return None;
    }
    let ino = attr.ino;
    let (home, own) = PastDamage::of(volume).own_name(ino).unwrap_or_default();
    if (home, &own[..]) == (dir, name) {
        return None;
    }
    if leads(volume, home, &own, ino) {
        let own = own.escape_ascii();
        let place = if home == dir { "in the same directory".into() } else { format!("in directory {home}") };
        return Some(format!(
            "its entry leads to inode {ino}, which has one name, {own} {place}: the content is that file's"
        ));
    }
    (!is_new).then(|| {
        format!(
            "its entry leads to inode {ino}, which has one name and was met under another: the content of one of the two is another file's"
        )
    })
}

/// Whether an entry leads to a directory that is in another one, by its own name.
pub(crate) fn is_misled(volume: &Volume, attr: &Attr, dir: Ino, name: &[u8]) -> bool {
    if attr.kind != FileKind::Directory {
        return false;
    }
    let (home, own) = PastDamage::of(volume).own_name(attr.ino).unwrap_or_default();
    (home, &own[..]) != (dir, name) && leads(volume, home, &own, attr.ino)
}

/// Whether a name in a directory leads to an inode.
fn leads(volume: &Volume, home: Ino, name: &[u8], ino: Ino) -> bool {
    volume.lookup(home, name).is_ok_and(|there| {
        volume.release(there.ino, 1);
        there.ino == ino
    })
}

/// Why entries are doubted, of which more lead to a file than it has links.
pub(crate) fn of_many(attr: &Attr, met: u32) -> String {
    let (ino, links) = (attr.ino, attr.nlink);
    format!(
        "its entry leads to inode {ino}, which has {links} names, and this is one more ({met}): under one of them the content is another file's"
    )
}

/// The kind of file that an entry of a directory says, where it says one.
pub fn kind_in(volume: &Volume, dir: Ino, name: &[u8]) -> Option<FileKind> {
    let mut kind = None;
    // What cannot be read of the directory is told by who lists it.
    let _ = PastDamage::of(volume).readdir(dir, &mut |entry| match entry {
        Ok(entry) if entry.name == name => {
            kind = entry.kind;
            false
        }
        _ => true,
    });
    kind
}

/// Why a file is doubted whose entry says another kind than its inode.
pub fn of_kind(attr: &Attr, says: Option<FileKind>) -> Option<String> {
    let says = says.filter(|says| *says != attr.kind)?;
    Some(format!(
        "its entry is that of {says}, but its inode {} is that of {}: one of the two is damaged",
        attr.ino, attr.kind
    ))
}

/// Why the content of a file or directory is doubted that can be read.
pub fn of_content(volume: &Volume, ino: Ino) -> Option<String> {
    let past = PastDamage::of(volume);
    let reason = if past.blocks_missing(ino).unwrap_or(0) > 0 {
        SHORT
    } else if past.has_wrong_clusters(ino).unwrap_or(false) {
        UNMARKED
    } else if past.has_strange_slots(ino).unwrap_or(false) {
        STRANGE
    } else if past.has_pages_behind_end(ino).unwrap_or(false) {
        BEHIND_END
    } else {
        return None;
    };
    Some(reason.to_owned())
}

/// Whether a regular file has a size, and a hole from its first byte to its last.
pub(crate) fn is_all_holes(volume: &Volume, ino: Ino) -> bool {
    volume.getattr(ino).is_ok_and(|attr| attr.kind == FileKind::Regular && attr.size > 0)
        && volume.seek(ino, 0, Seek::Data).is_err()
}
