//! Whether an entry of a directory leads to the file whose name it is, as far as the file itself tells.
//!
//! An inode keeps its last name and the directory of that. Linux does not always write them anew, so they
//! prove nothing alone: an entry is doubted where an inode of one link is led to by its own name too.

use medfs::{Attr, FileKind, Files, Ino, PastDamage, Volume};

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
    let leads = volume.lookup(home, &own).is_ok_and(|there| {
        volume.release(there.ino, 1);
        there.ino == ino
    });
    if leads {
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

/// Why entries are doubted, of which more lead to a file than it has links.
pub(crate) fn of_many(attr: &Attr, met: u32) -> String {
    let (ino, links) = (attr.ino, attr.nlink);
    format!(
        "its entry leads to inode {ino}, which has {links} names, and this is one more ({met}): under one of them the content is another file's"
    )
}
