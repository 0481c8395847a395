//! Extended attributes: an area of entries that may lie partly inline, partly in a node.
//!
//! The logical area is the inline bytes followed by the xattr node's bytes (without its footer):
//! a header of 24 bytes, then entries `[index, name length, value length, name, value]` padded to 4
//! bytes, then four zero bytes. Where there is no inline area, the header is in the node.

use crate::acl::Acl;
use crate::{BLOCK_SIZE, FormatError, Structure};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Magic of the header.
pub const XATTR_MAGIC: u32 = 0xF2F5_2011;
/// Bytes of the header.
pub const HEADER_SIZE: usize = size_of::<RawXattrHeader>();
/// Usable bytes of an xattr node.
pub const NODE_BYTES: usize = BLOCK_SIZE - 24;

/// The header of an xattr area (24 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawXattrHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_reserved: [U32; 4],
}

/// The fixed part of an entry (4 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawXattrEntry {
    pub e_name_index: u8,
    pub e_name_len: u8,
    pub e_value_size: U16,
}

const _: () = assert!(HEADER_SIZE == 24 && size_of::<RawXattrEntry>() == 4);

/// Name spaces, as the index byte of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum NameIndex {
    User = 1,
    PosixAclAccess = 2,
    PosixAclDefault = 3,
    Trusted = 4,
    Lustre = 5,
    Security = 6,
    Advise = 7,
    Encryption = 9,
    Verity = 11,
    /// The delta zone: ours, and no part of F2FS (see [`crate::delta`]).
    Delta = 0x6d,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XattrEntry {
    /// Name space: a [`NameIndex`] or one that is not known, kept as it is.
    pub index: u8,
    /// Name without its prefix.
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// Names that only the name space `security` has.
const OF_SECURITY: [&[u8]; 7] =
    [b"capability", b"selinux", b"ima", b"evm", b"apparmor", b"SMACK64", b"SMACK64EXEC"];

impl XattrEntry {
    /// Whether the entry can be in its name space, of those that medfs knows: ACLs have no name, and a default one is a
    /// directory's; others have a name.
    fn is_possible(&self, is_dir: bool) -> bool {
        match self.index {
            1 | 4 | 6 => !self.name.is_empty(),
            2 => self.name.is_empty(),
            3 => self.name.is_empty() && is_dir,
            5 | 7 | 9 | 11 => true,
            index => index == NameIndex::Delta as u8,
        }
    }

    /// Whether the name can be one: it has no byte of 0, and is empty only where the name space has no names. A delta
    /// zone may be its name.
    pub fn has_possible_name(&self) -> bool {
        let is_missing = self.name.is_empty() && matches!(self.index, 1 | 4 | 6);
        self.index == NameIndex::Delta as u8 || !(is_missing || self.name.contains(&0))
    }

    /// The name space of an entry that cannot be in its own, where the content says so and one bit is between them.
    pub fn unflipped_index(&self, is_dir: bool) -> Option<u8> {
        if self.is_possible(is_dir) {
            return None;
        }
        let is_acl = self.name.is_empty() && matches!(Acl::from_disk(&self.value, 0), Ok(Some(_)));
        let fits = |index: u8| match index {
            2 => is_acl,
            3 => is_acl && is_dir,
            6 => !self.name.is_empty(),
            1 | 4 => !self.name.is_empty() && !OF_SECURITY.contains(&&self.name[..]),
            _ => false,
        };
        let mut near = (0..u8::BITS).map(|bit| self.index ^ 1 << bit).filter(|index| fits(*index));
        let only = near.next()?;
        near.next().is_none().then_some(only)
    }

    /// Bytes the entry takes in the area.
    pub fn size(&self) -> usize {
        (4 + self.name.len() + self.value.len()).next_multiple_of(4)
    }
}

/// Whether an area that has attributes begins with another magic. Tools of F2FS leave other content in areas without.
pub fn has_wrong_header(area: &[u8]) -> bool {
    let Ok((header, behind)) = RawXattrHeader::ref_from_prefix(area) else { return false };
    match (header.h_magic.get() ^ XATTR_MAGIC).count_ones() {
        0 => false,
        1 => true,
        _ => is_whole(behind, &entries_in(behind, 0)),
    }
}

/// Whether there are entries, all of which can be, and nothing but zeros behind them.
fn is_whole(behind: &[u8], (entries, error): &(Vec<XattrEntry>, Option<FormatError>)) -> bool {
    let all_can_be = || entries.iter().all(|entry| entry.is_possible(true) && entry.has_possible_name());
    error.is_none() && !entries.is_empty() && !has_more(behind, entries) && all_can_be()
}

/// Whether the area of an inode that has one holds neither attributes nor zeros. `is_address` knows the addresses that
/// `sload.f2fs` leaves there where a file has no attributes.
pub fn is_junk(area: &[u8], is_address: impl Fn(u32) -> bool) -> bool {
    if area.starts_with(&XATTR_MAGIC.to_le_bytes()) || has_wrong_header(area) || has_lone_bit(area) {
        return false;
    }
    let mut words = area.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    words.any(|word| word != 0 && !is_address(word))
}

/// Whether one bit is set in an area, and nothing else: it held zeros, and the bit flipped.
pub fn has_lone_bit(area: &[u8]) -> bool {
    area.iter().map(|byte| byte.count_ones()).sum::<u32>() == 1
}

/// Whether what follows a header has more than these entries, with which it begins.
fn has_more(behind: &[u8], entries: &[XattrEntry]) -> bool {
    let used: usize = entries.iter().map(XattrEntry::size).sum();
    behind[used..].iter().any(|&byte| byte != 0)
}

/// Parses an area (header included). `id` identifies it in errors.
///
/// An area with another magic is empty, but for one with a flipped bit, and for entries that only zeros follow.
pub fn parse(area: &[u8], id: u64) -> Result<Vec<XattrEntry>, FormatError> {
    match parse_prefix(area, id) {
        (entries, None) => Ok(entries),
        (_, Some(error)) => Err(error),
    }
}

/// Parses an area as far as it is sound: the entries before the first wrong one, and what is wrong with it.
pub fn parse_prefix(area: &[u8], id: u64) -> (Vec<XattrEntry>, Option<FormatError>) {
    let Some(behind) = area.get(HEADER_SIZE..) else { return (Vec::new(), None) };
    let has_magic = area[..4] == XATTR_MAGIC.to_le_bytes();
    if has_magic || has_wrong_header(area) { entries_in(behind, id) } else { (Vec::new(), None) }
}

/// Whether something lies behind the end of the entries that a sound area was found to have: whoever removes one leaves
/// zeros, so that more entries were there, and the end is a sector of zeros in their midst.
pub fn has_more_behind_end(area: &[u8], entries: &[XattrEntry]) -> bool {
    !entries.is_empty() && area.get(HEADER_SIZE..).is_some_and(|behind| has_more(behind, entries))
}

/// The entries of an area behind its header, likewise.
fn entries_in(mut rest: &[u8], id: u64) -> (Vec<XattrEntry>, Option<FormatError>) {
    let bad = |field, value: String| Some(FormatError::corrupt(Structure::Xattr, id, field, value));
    let mut entries = Vec::new();
    loop {
        let Ok((raw, tail)) = RawXattrEntry::ref_from_prefix(rest) else {
            let error =
                if rest.iter().all(|&b| b == 0) { None } else { bad("e_name_index", "no end mark".into()) };
            return (entries, error);
        };
        if raw.as_bytes() == [0; 4] {
            return (entries, None);
        }
        let (name_len, value_len) = (usize::from(raw.e_name_len), usize::from(raw.e_value_size.get()));
        let size = (4 + name_len + value_len).next_multiple_of(4);
        if size > rest.len() {
            return (
                entries,
                bad("e_value_size", format!("entry of {size} bytes in the last {}", rest.len())),
            );
        }
        entries.push(XattrEntry {
            index: raw.e_name_index,
            name: tail[..name_len].to_vec(),
            value: tail[name_len..name_len + value_len].to_vec(),
        });
        rest = &rest[size..];
    }
}

/// Whether attributes fit in an area of so many bytes, with its header and the four zero bytes behind the last one.
pub fn fit<'a>(entries: impl IntoIterator<Item = &'a XattrEntry>, area: usize) -> bool {
    HEADER_SIZE + entries.into_iter().map(XattrEntry::size).sum::<usize>() + 4 <= area
}

/// Writes entries into an area; `false` (area untouched) where they do not fit.
/// As the kernel does, four bytes are kept for the end mark.
pub fn write(area: &mut [u8], entries: &[XattrEntry]) -> bool {
    if !fit(entries, area.len()) {
        return false;
    }
    area.fill(0);
    let header = RawXattrHeader {
        h_magic: U32::new(XATTR_MAGIC),
        h_refcount: U32::new(1),
        h_reserved: [U32::new(0); 4],
    };
    area[..HEADER_SIZE].copy_from_slice(header.as_bytes());
    let mut at = HEADER_SIZE;
    for e in entries {
        let raw = RawXattrEntry {
            e_name_index: e.index,
            e_name_len: e.name.len() as u8,
            e_value_size: U16::new(e.value.len() as u16),
        };
        area[at..at + 4].copy_from_slice(raw.as_bytes());
        area[at + 4..at + 4 + e.name.len()].copy_from_slice(&e.name);
        area[at + 4 + e.name.len()..at + 4 + e.name.len() + e.value.len()].copy_from_slice(&e.value);
        at += e.size();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::{AclEntry, Who};

    fn entry(index: u8, name: &[u8], value: Vec<u8>) -> XattrEntry {
        XattrEntry { index, name: name.to_vec(), value }
    }

    #[test]
    fn junk_is_told_from_what_tools_leave() {
        let is_address = |word: u32| (100..200).contains(&word);
        let mut area = [0; 200];
        assert!(!is_junk(&area, is_address) && !is_junk(&[], is_address));
        area[8] = 150;
        assert!(!is_junk(&area, is_address));
        area[60] = 99;
        assert!(is_junk(&area, is_address));
        let mut area = [0; 200];
        assert!(write(&mut area, &[entry(1, b"a", vec![1])]));
        assert!(!is_junk(&area, is_address));
        area[..4].fill(0);
        assert!(!is_junk(&area, is_address), "its entries are whole");
        area[28] = 0; // the name
        assert!(is_junk(&area, is_address) && parse(&area, 1).unwrap().is_empty());
    }

    #[test]
    fn zeros_in_the_midst_of_entries_are_no_end() {
        let mut area = [0; 3000];
        assert!(write(&mut area, &[entry(1, b"a", vec![1; 900]), entry(1, b"b", vec![2; 900])]));
        let has_more = |area: &[u8]| has_more_behind_end(area, &parse(area, 1).unwrap());
        assert!(!has_more(&area));
        area[512..1024].fill(0);
        assert!(has_more(&area) && parse(&area, 1).unwrap().len() == 1);
        assert!(!has_more(&[0; 100]) && !has_more(&[7; 100]) && !has_more(&[]));
    }

    #[test]
    fn name_spaces_with_a_flipped_bit_are_told_by_what_they_hold() {
        let who =
            [(Who::Owner, 6), (Who::User(9), 7), (Who::OwningGroup, 4), (Who::Mask, 7), (Who::Other, 0)];
        let acl = Acl::new(who.map(|(who, perm)| AclEntry { who, perm }).to_vec()).unwrap().to_disk();
        let of_acl = |index, is_dir| entry(index, b"", acl.clone()).unflipped_index(is_dir);
        for index in [0, 10, 18, 34, 66, 130] {
            assert_eq!(of_acl(index, false), Some(2), "{index}");
        }
        assert_eq!((of_acl(2, false), of_acl(3, true), of_acl(3, false)), (None, None, Some(2)));
        assert_eq!((of_acl(19, true), of_acl(19, false)), (Some(3), None));
        for (index, name, right) in [
            (14, &b"capability"[..], Some(6)),
            (2, b"capability", Some(6)),
            (33, b"comment", Some(1)),
            (3, b"comment", Some(1)),
            (0, b"comment", None), // of `user` or of `trusted`
            (1, b"comment", None),
            (200, b"later", None),
        ] {
            assert_eq!(entry(index, name, vec![1]).unflipped_index(false), right, "{index}");
        }
    }

    #[test]
    fn entries_behind_another_magic_count_where_they_are_whole() {
        let entries = [entry(1, b"a", vec![1; 30]), entry(6, b"b", vec![2; 5])];
        let mut area = [0; 200];
        assert!(write(&mut area, &entries));
        for byte in [1, 0xff] {
            let mut area = area;
            area[1] ^= byte;
            assert!(has_wrong_header(&area));
            assert_eq!(parse(&area, 1).unwrap(), entries);
            // What tools leave in an area without attributes.
            area[190] = 1;
            assert_eq!(
                (has_wrong_header(&area), parse(&area, 1).unwrap().is_empty()),
                (byte == 1, byte != 1)
            );
        }
        assert!(!has_wrong_header(&area) && !has_wrong_header(&[0; 200]));
    }
}
