//! Names of directory entries that their hashes know better: lengths with a flipped bit, and names in directories that
//! ignore case. These hash a name in lower case, which is computed here for names of ASCII.

use crate::file::DirWalk;
use crate::finding::{Code, Findings};
use crate::names::folded;
use medfs_format::Ino;
use medfs_format::dentry::{Area, SLOT_LEN, slots_for};
use medfs_format::hash::dentry_hash;
use medfs_format::node::FileKind;

/// Whether most entries of an area have the hashes of their names, in a directory that ignores case or another one.
pub(crate) fn are_hashed(area: &Area<&[u8]>) -> bool {
    let of_name = |name: &[u8], hash| dentry_hash(name) == hash || (name.is_ascii() && folded(name) == hash);
    let mut right_ones_ahead = 0;
    for entry in area.entries(0, 0) {
        right_ones_ahead += if entry.is_ok_and(|e| of_name(e.name, e.hash)) { 1 } else { -1 };
    }
    right_ones_ahead > 0
}

/// The hash that a name has in a directory, where that can be computed.
pub(crate) fn hash_in(dir: &DirWalk, name: &[u8]) -> Option<u32> {
    match dir.opaque {
        false => Some(dentry_hash(name)),
        true => (dir.folds && name.is_ascii()).then(|| folded(name)),
    }
}

/// The name of ASCII that an entry had, where case is ignored, before one of its bits was flipped.
pub(crate) fn folded_name(findings: &mut Findings, name: &[u8], hash: u32, place: &str) -> Option<Vec<u8>> {
    // Of a name and its hash, the one with one bit flipped is wrong.
    if name.is_ascii() && (folded(name) ^ hash).count_ones() <= 1 {
        return None;
    }
    let mut tried = name.to_vec();
    for at in 0..name.len() {
        for bit in 0..u8::BITS {
            tried[at] ^= 1 << bit;
            let may_be = tried[at] != 0 && tried[at] != b'/' && tried.is_ascii();
            if may_be && folded(&tried) == hash {
                let text = format!(
                    "{place}: one bit flipped, its hash is that of {:?}",
                    String::from_utf8_lossy(&tried)
                );
                findings.add(Code::DentryHash, text);
                return Some(tried);
            }
            tried[at] ^= 1 << bit;
        }
    }
    None
}

/// Turns the bit of a name's length back that alone makes it a name with its hash; whether there was one. Without the
/// hash the name must end where no more of its last slot is filled.
pub(crate) fn mend_length(
    findings: &mut Findings,
    dir: &DirWalk,
    (ino, page): (Ino, Option<u64>),
    area: &mut Area<&mut [u8]>,
    slot: usize,
) -> bool {
    let (len, hash) = (area.raw(slot).name_len.get(), area.raw(slot).hash_code.get());
    if dir.opaque && !dir.folds || area.possible_name(slot, len.into()).is_some() {
        return false;
    }
    let fits = |len: &u16| {
        let len = usize::from(*len);
        let Some(name) = area.possible_name(slot, len) else { return false };
        match hash_in(dir, name) {
            Some(right) => right == hash,
            None => !len.is_multiple_of(SLOT_LEN) && area.possible_name(slot, len + 1).is_none(),
        }
    };
    let mut right = (0..u16::BITS).map(|bit| len ^ 1 << bit).filter(fits);
    let (Some(right), None) = (right.next(), right.next()) else { return false };
    let name = area.possible_name(slot, right.into()).unwrap_or_default();
    let place = page.map_or("inline".to_owned(), |page| format!("page {page},"));
    let text = format!(
        "directory {ino}, {place} slot {slot}: name_len is {len}; with one bit flipped it is {right}, that of {:?}",
        String::from_utf8_lossy(name)
    );
    findings.add(Code::DentryLength, text);
    area.set_name_len(slot, right);
    true
}

/// Writes an entry where it is, with a name and the hash of that.
pub(crate) fn put_again(
    area: &mut Area<&mut [u8]>,
    slot: usize,
    (name, hash): (&[u8], u32),
    ino: Ino,
    kind: FileKind,
) {
    area.insert_at(slot, name, ino, kind);
    area.set_hash(slot, hash);
}

/// How many slots an entry takes. A name that none can be may reach over other entries, which are not its own.
pub(crate) fn slots_taken(dir: &DirWalk, area: &Area<&mut [u8]>, slot: usize, name: &[u8]) -> usize {
    let is_plain = !dir.opaque || dir.folds;
    let is_name = !name.iter().any(|&byte| byte == 0 || byte == b'/');
    let all = slots_for(name.len());
    if !is_plain || is_name { all } else { area.own_slots(slot).min(all) }
}
