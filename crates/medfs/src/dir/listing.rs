//! The entries of one area of a directory, past those that are damaged.

use crate::types::DirEntry;
use medfs_format::dentry::{Area, slots_for};
use medfs_format::{FormatError, Ino, Structure};

/// Entries of an area from a slot on; `start` is the position of its first slot. An entry that is none is left
/// out, with those that the kernel would refuse a whole directory for; the first of them is the error.
pub(super) fn list(
    area: &Area<&[u8]>,
    from: usize,
    start: u64,
    dir: Ino,
) -> (Vec<DirEntry>, Option<FormatError>) {
    // The slot may by now be in the middle of a name, which the name length 0 tells.
    let mut slot = from;
    while slot < area.slots() && area.in_use(slot) && area.raw(slot).name_len.get() == 0 {
        slot += 1;
    }
    let (mut entries, mut wrong) = (Vec::new(), None);
    while slot < area.slots() {
        if !area.in_use(slot) {
            slot += 1;
            continue;
        }
        let entry = area.entry(slot, dir.into()).and_then(|entry| {
            match entry.name.iter().any(|byte| [b'/', 0].contains(byte)) {
                true => Err(FormatError::corrupt(Structure::Dentry, dir, "name", entry.name.escape_ascii())),
                false => Ok(entry),
            }
        });
        match entry {
            Ok(e) => {
                slot += slots_for(e.name.len());
                let next = start + slot as u64;
                entries.push(DirEntry { ino: e.ino, kind: e.kind, name: e.name.to_vec(), next });
            }
            Err(error) => {
                slot += 1;
                wrong.get_or_insert(error);
            }
        }
    }
    (entries, wrong)
}
