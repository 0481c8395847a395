//! Extended attributes that cannot be as they read: junk in their place, names of impossible length, and an inode that
//! is called encrypted without the attribute that every such inode has.

use crate::finding::{Code, Findings};
use crate::judgement::Judgement;
use medfs_format::Ino;
use medfs_format::limits::NAME_LEN;
use medfs_format::node::{Advise, FileKind, Inline, RawInode};
use medfs_format::xattr::{self, HEADER_SIZE, NameIndex, XATTR_MAGIC, XattrEntry};
use zerocopy::IntoBytes;

/// Entries whose lengths are tried.
const MOST_TRIED: usize = 64;

/// Whether junk lies in the place of an inode's attributes, with a finding. Not judged are areas into which
/// `sload.f2fs` has put addresses, or the end of a link's target, and the zones of volumes with deltas.
pub(crate) fn is_junk(j: &mut Judgement<'_>, ino: Ino, inode: &RawInode, area: &[u8]) -> bool {
    let is_junk = is_judged(j, inode) && xattr::is_junk(area, |addr| j.image.g.in_main(addr));
    if is_junk {
        let text = format!(
            "inode {ino}: junk in the place of the extended attributes: those that were there are lost"
        );
        j.findings.add(Code::Xattr, text);
    }
    is_junk
}

fn is_judged(j: &Judgement<'_>, inode: &RawInode) -> bool {
    let goes_on = || inode.content_meets_attributes(inode.slots(j.rules.flexible()));
    !j.has_zones() && inode.inline().contains(Inline::XATTR) && !goes_on()
}

/// Turns the bit back that is set in an area which held zeros; whether there was one.
pub(crate) fn clear_lone_bit(j: &mut Judgement<'_>, ino: Ino, inode: &RawInode, area: &mut [u8]) -> bool {
    let is_address =
        |word: &[u8]| word.try_into().is_ok_and(|word| j.image.g.in_main(u32::from_le_bytes(word)));
    if !is_judged(j, inode) || !xattr::has_lone_bit(area) || area.chunks_exact(4).any(is_address) {
        return false;
    }
    area.fill(0);
    j.findings.add(
        Code::Xattr,
        format!("inode {ino}: one bit is set in the place of the xattrs, and there are none"),
    );
    true
}

/// Turns the one bit back that makes a list of attributes whole, behind its end or in the length of a name; whether
/// there was one.
pub(crate) fn turn_bit_back(ino: Ino, area: &mut [u8], findings: &mut Findings) -> bool {
    let has_magic = area.get(..4).is_some_and(|magic| magic == XATTR_MAGIC.to_le_bytes());
    let (entries, error) = xattr::parse_prefix(area, ino.into());
    if !has_magic || (entries.is_empty() && error.is_none()) || is_whole(ino, area) {
        return false;
    }
    if error.is_none() && entries.iter().all(XattrEntry::has_possible_name) {
        let end = HEADER_SIZE + entries.iter().map(XattrEntry::size).sum::<usize>();
        let behind = &mut area[end..];
        if xattr::has_lone_bit(behind) {
            behind.fill(0);
            findings.add(Code::Xattr, format!("inode {ino}: one bit is set behind the end of the xattrs"));
            return true;
        }
    }
    let mut places = vec![HEADER_SIZE];
    for entry in entries.iter().take(MOST_TRIED) {
        places.push(places[places.len() - 1] + entry.size());
    }
    places.retain(|at| at + 4 <= area.len());
    let mut right = None;
    for at in places {
        for bit in 0..u8::BITS {
            area[at + 1] ^= 1 << bit;
            let fits = is_whole(ino, area);
            area[at + 1] ^= 1 << bit;
            if fits && right.replace((at, bit)).is_some() {
                return false;
            }
        }
    }
    let Some((at, bit)) = right else { return false };
    let was = area[at + 1];
    area[at + 1] ^= 1 << bit;
    let text = format!(
        "inode {ino}: e_name_len {was} of an attribute; with one bit flipped it is {}, and all attributes are whole",
        area[at + 1]
    );
    findings.add(Code::Xattr, text);
    true
}

/// Whether an area is a list of attributes from its first to its last byte.
fn is_whole(ino: Ino, area: &[u8]) -> bool {
    let (entries, error) = xattr::parse_prefix(area, ino.into());
    error.is_none()
        && !entries.is_empty()
        && !xattr::has_more_behind_end(area, &entries)
        && entries.iter().all(XattrEntry::has_possible_name)
}

/// Takes away the attributes with names that none can have; whether there were some.
pub(crate) fn drop_impossible(ino: Ino, entries: &mut Vec<XattrEntry>, findings: &mut Findings) -> bool {
    let count = entries.len();
    entries.retain(|entry| {
        let stays = entry.has_possible_name();
        if !stays {
            let name = entry.name.escape_ascii();
            let text = format!("inode {ino}: an attribute called \"{name}\", which none can be: it is lost");
            findings.add(Code::Xattr, text);
        }
        stays
    });
    entries.len() < count
}

/// What was done about attributes of the same name as another one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Twins {
    /// Some got another name.
    pub(crate) renamed: bool,
    /// Some went, as there is no name or no room for them.
    pub(crate) dropped: bool,
}

/// Gives another name to each attribute that has the same as one before it, which alone is read. Nothing tells which of
/// both had it before a bit flipped.
pub(crate) fn part_twins(
    ino: Ino,
    entries: &mut Vec<XattrEntry>,
    room: usize,
    findings: &mut Findings,
) -> Twins {
    let mut done = Twins::default();
    let mut at = 0;
    while at < entries.len() {
        let (before, entry) = (&entries[..at], &entries[at]);
        if entry.index == NameIndex::Delta as u8 || !has_name(before, entry.index, &entry.name) {
            at += 1;
            continue;
        }
        let name = String::from_utf8_lossy(&entry.name);
        let what = format!("inode {ino}: attribute {name:?} is there twice");
        match other_name(entries, at, room) {
            Some(name) => {
                let now = String::from_utf8_lossy(&name);
                findings.add(Code::Xattr, format!("{what}; the second one is called {now:?} now"));
                entries[at].name = name;
                done.renamed = true;
                at += 1;
            }
            None => {
                findings.add(Code::Xattr, format!("{what}: the second one is lost"));
                entries.remove(at);
                done.dropped = true;
            }
        }
    }
    done
}

fn has_name(entries: &[XattrEntry], index: u8, name: &[u8]) -> bool {
    entries.iter().any(|entry| entry.index == index && entry.name == name)
}

/// A free name for an attribute of users that is called as another one: with a number behind it.
fn other_name(entries: &[XattrEntry], at: usize, room: usize) -> Option<Vec<u8>> {
    let entry = &entries[at];
    let is_users = [NameIndex::User as u8, NameIndex::Trusted as u8].contains(&entry.index);
    let mut numbered =
        (2..=entries.len() + 1).map(|n| [&entry.name[..], format!(".{n}").as_bytes()].concat());
    let name = numbered.find(|name| !has_name(entries, entry.index, name))?;
    let renamed = XattrEntry { name, ..entry.clone() };
    let others = entries[..at].iter().chain(&entries[at + 1..]);
    let fits = renamed.name.len() <= NAME_LEN && xattr::fit(others.chain([&renamed]), room);
    (is_users && fits).then_some(renamed.name)
}

/// Takes the mark of encryption off a regular file without the attribute that says how it is encrypted. One whose name
/// is called encrypted too has lost the attribute.
pub(crate) fn judge_encryption(
    j: &mut Judgement<'_>,
    ino: Ino,
    inode: &mut RawInode,
    entries: &[XattrEntry],
) {
    let is_marked = inode.advise() & (Advise::ENCRYPT | Advise::ENC_NAME) == Advise::ENCRYPT;
    let is_file = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Regular);
    let is_context = |entry: &XattrEntry| entry.index == NameIndex::Encryption as u8;
    if !is_marked || !is_file || entries.iter().any(is_context) {
        return;
    }
    let mut probe = Box::new(inode.clone());
    probe.i_inline |= Inline::XATTR.bits();
    let Some(slots) = probe.possible_slots(j.rules.flexible()) else { return };
    let area = &probe.as_bytes()[slots.inline_xattr_range()];
    let is_hidden = area.get(..4).is_some_and(|magic| magic == XATTR_MAGIC.to_le_bytes());
    if is_hidden && !inode.inline().contains(Inline::XATTR) {
        return; // the attributes are there, and the inode denies them
    }
    let text = format!("inode {ino}: marked as encrypted, without the attribute that says how");
    j.findings.add(Code::InodeField, text);
    inode.i_advise &= !Advise::ENCRYPT.bits();
}
