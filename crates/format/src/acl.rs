//! POSIX access control lists.
//!
//! Purpose: pure functions between the three shapes of an ACL: the value of Linux's
//! `system.posix_acl_*` attributes (version 2), the value F2FS stores (version 1), and [`Acl`], with
//! what creation, `chmod` and `setxattr` do to an ACL and the permission bits beside it.
//!
//! ```text
//! Linux:  | version = 2 (4) | tag (2) perm (2) id (4) | ...          id = ~0 where the tag has none
//! F2FS:   | version = 1 (4) | tag (2) perm (2) [id (4)] | ...        id only for named users and groups
//! ```
//!
//! Invariants: an [`Acl`] has one entry each for owner, owning group and others, at most one mask and
//! one wherever a user or group is named, in the order owner, users, group, groups, mask, others; permissions
//! are three bits. All numbers are little-endian. Only bits that agree with [`Acl::mode`] stand beside
//! an access ACL, and an ACL that says no more than the bits is not stored.

use crate::{FormatError, Structure};
use thiserror::Error;

const XATTR_VERSION: u32 = 2;
const DISK_VERSION: u32 = 1;
const NO_ID: u32 = u32::MAX;
const RWX: u16 = 0o7;
/// Longest stored value of which [`Acl::unflipped`] looks for the flipped bit, in bytes: more than 120 entries.
const MOST_LOOKED_THROUGH: usize = 1024;

/// Why bytes are no value of a `system.posix_acl_*` attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AclError {
    /// Another version than Linux's.
    #[error("an ACL of another version")]
    Version,
    /// The ACL is invalid, with the reason.
    #[error("an invalid ACL: {0}")]
    Invalid(&'static str),
}

/// Whom an entry speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The owner of the file.
    Owner,
    /// A named user.
    User(u32),
    /// The owning group.
    OwningGroup,
    /// A named group.
    Group(u32),
    /// The most that named users and all groups are given.
    Mask,
    /// All others.
    Other,
}

impl Who {
    fn from_raw(tag: u16, id: u32) -> Option<Who> {
        Some(match tag {
            0x01 => Who::Owner,
            0x02 => Who::User(id),
            0x04 => Who::OwningGroup,
            0x08 => Who::Group(id),
            0x10 => Who::Mask,
            0x20 => Who::Other,
            _ => return None,
        })
    }

    /// The tag that both formats use; its order is the order of entries.
    fn tag(self) -> u16 {
        match self {
            Who::Owner => 0x01,
            Who::User(_) => 0x02,
            Who::OwningGroup => 0x04,
            Who::Group(_) => 0x08,
            Who::Mask => 0x10,
            Who::Other => 0x20,
        }
    }

    fn id(self) -> Option<u32> {
        match self {
            Who::User(id) | Who::Group(id) => Some(id),
            _ => None,
        }
    }
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclEntry {
    /// Whom it speaks of.
    pub who: Who,
    /// Read 4, write 2, execute 1.
    pub perm: u16,
}

/// A valid access control list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl(Vec<AclEntry>);

/// The access and default ACL that a new file inherits from its parent's default ACL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inherited {
    /// Permission bits.
    pub perm: u16,
    /// Access ACL to store; `None` where the bits say it all.
    pub access: Option<Acl>,
}

impl Acl {
    /// Checks entries; the message says what is wrong.
    pub fn new(entries: Vec<AclEntry>) -> Result<Acl, &'static str> {
        if entries.iter().any(|e| e.perm & !RWX != 0) {
            return Err("a permission beyond rwx");
        }
        if entries.iter().any(|e| e.who.id() == Some(NO_ID)) {
            return Err("a named user or group without an id");
        }
        if entries.windows(2).any(|w| w[0].who.tag() > w[1].who.tag()) {
            return Err("entries out of order");
        }
        let count = |who: Who| entries.iter().filter(|e| e.who == who).count();
        if [Who::Owner, Who::OwningGroup, Who::Other].into_iter().any(|who| count(who) != 1) {
            return Err("not exactly one entry for owner, owning group and others");
        }
        match (count(Who::Mask), entries.iter().any(|e| e.who.id().is_some())) {
            (1, _) | (0, false) => Ok(Acl(entries)),
            (0, true) => Err("a named user or group but no mask"),
            _ => Err("more than one mask"),
        }
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }

    /// Reads the value of a `system.posix_acl_*` attribute; `None` where it has no entries, which
    /// means: remove the ACL.
    pub fn from_xattr(value: &[u8]) -> Result<Option<Acl>, AclError> {
        if value.is_empty() {
            return Ok(None);
        }
        let (version, rest) = value.split_first_chunk::<4>().ok_or(AclError::Invalid("no version"))?;
        if u32::from_le_bytes(*version) != XATTR_VERSION {
            return Err(AclError::Version);
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let (raw, []) = rest.as_chunks::<8>() else { return Err(AclError::Invalid("half an entry")) };
        let entries = raw.iter().map(|&[t0, t1, p0, p1, id @ ..]| {
            let who = Who::from_raw(u16::from_le_bytes([t0, t1]), u32::from_le_bytes(id))?;
            Some(AclEntry { who, perm: u16::from_le_bytes([p0, p1]) })
        });
        let entries = entries.collect::<Option<Vec<_>>>().ok_or(AclError::Invalid("an unknown tag"))?;
        Acl::new(entries).map(Some).map_err(AclError::Invalid)
    }

    /// The value of a `system.posix_acl_*` attribute.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut value = XATTR_VERSION.to_le_bytes().to_vec();
        for e in &self.0 {
            value.extend(e.who.tag().to_le_bytes());
            value.extend(e.perm.to_le_bytes());
            value.extend(e.who.id().unwrap_or(NO_ID).to_le_bytes());
        }
        value
    }

    /// Reads the value stored for inode `ino`; `None` where it has no entries.
    pub fn from_disk(value: &[u8], ino: u32) -> Result<Option<Acl>, FormatError> {
        let bad = |field, value: String| FormatError::corrupt(Structure::Xattr, ino, field, value);
        let mut rest = value;
        let version = take_u32(&mut rest);
        if version != Some(DISK_VERSION) {
            return Err(bad("a_version", format!("{version:?}, expected {DISK_VERSION}")));
        }
        let mut entries = Vec::with_capacity(rest.len() / 4);
        while !rest.is_empty() {
            let at = value.len() - rest.len();
            let raw = take_u32(&mut rest).ok_or_else(|| bad("e_tag", format!("cut off at byte {at}")))?;
            let (tag, perm) = (raw as u16, (raw >> 16) as u16);
            let named = Who::from_raw(tag, 0).ok_or_else(|| bad("e_tag", tag.to_string()))?.id().is_some();
            let id = if named { take_u32(&mut rest) } else { Some(NO_ID) };
            let id = id.ok_or_else(|| bad("e_id", format!("cut off after byte {at}")))?;
            entries.extend(Who::from_raw(tag, id).map(|who| AclEntry { who, perm }));
        }
        if entries.is_empty() {
            return Ok(None);
        }
        Acl::new(entries).map(Some).map_err(|why| bad("ACL", why.to_string()))
    }

    /// The value to store.
    pub fn to_disk(&self) -> Vec<u8> {
        let mut value = DISK_VERSION.to_le_bytes().to_vec();
        for e in &self.0 {
            value.extend(e.who.tag().to_le_bytes());
            value.extend(e.perm.to_le_bytes());
            value.extend(e.who.id().into_iter().flat_map(u32::to_le_bytes));
        }
        value
    }

    /// The ACL that a stored value was before one of its bits was flipped, of inode `ino`; `None` where more
    /// than one is possible. `perm` are the permission bits beside an access ACL: where some of those
    /// possible have these bits, the others are not meant.
    pub fn unflipped(value: &[u8], ino: u32, perm: Option<u16>) -> Option<Acl> {
        if value.len() > MOST_LOOKED_THROUGH {
            return None;
        }
        let mut tried = value.to_vec();
        let mut possible = Vec::new();
        for bit in 0..value.len() * 8 {
            tried[bit / 8] ^= 1 << (bit % 8);
            possible.extend(Acl::from_disk(&tried, ino).ok().flatten());
            tried[bit / 8] ^= 1 << (bit % 8);
        }
        let fits = |acl: &Acl| perm.is_some_and(|perm| acl.mode() == perm & 0o777);
        if possible.iter().any(fits) {
            possible.retain(fits);
        }
        match possible.len() {
            1 => possible.pop(),
            _ => None,
        }
    }

    /// The nine permission bits that `stat` shows beside this access ACL.
    pub fn mode(&self) -> u16 {
        let group = if self.find(Who::Mask).is_some() { Who::Mask } else { Who::OwningGroup };
        let bits = |who| self.find(who).map_or(0, |e| e.perm);
        bits(Who::Owner) << 6 | bits(group) << 3 | bits(Who::Other)
    }

    /// Whether the permission bits say all that this ACL says.
    pub fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// What `setxattr` makes of an access ACL on a file with `perm` (12 bits): the new bits, and the
    /// ACL to store, `None` where the bits say it all.
    pub fn into_access(self, perm: u16) -> (u16, Option<Acl>) {
        let perm = perm & !0o777 | self.mode();
        (perm, (!self.is_mode()).then_some(self))
    }

    /// What a new file, asked for with `perm` (12 bits, no umask applied), gets from its parent's
    /// default ACL `self`. A new directory also takes `self` as its own default ACL.
    pub fn inherit(&self, perm: u16) -> Inherited {
        let mut access = self.clone();
        let group = if self.find(Who::Mask).is_some() { Who::Mask } else { Who::OwningGroup };
        for e in &mut access.0 {
            match e.who {
                Who::Owner => e.perm &= perm >> 6,
                Who::Other => e.perm &= perm,
                who if who == group => e.perm &= perm >> 3,
                _ => {}
            }
        }
        let (perm, access) = access.into_access(perm);
        Inherited { perm, access }
    }

    /// The access ACL after `chmod` to `perm`: owner, others and the mask (the owning group where there
    /// is none) follow the bits.
    #[must_use]
    pub fn with_mode(mut self, perm: u16) -> Acl {
        let group = if self.find(Who::Mask).is_some() { Who::Mask } else { Who::OwningGroup };
        for e in &mut self.0 {
            match e.who {
                Who::Owner => e.perm = perm >> 6 & RWX,
                Who::Other => e.perm = perm & RWX,
                who if who == group => e.perm = perm >> 3 & RWX,
                _ => {}
            }
        }
        self
    }

    fn find(&self, who: Who) -> Option<&AclEntry> {
        self.0.iter().find(|e| e.who == who)
    }
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*first))
}

#[cfg(test)]
mod tests {
    //! Values marked `setfacl` were made by that tool on ext4 and read back with getxattr and stat.
    use super::*;
    use proptest::prelude::*;

    fn hex(s: &str) -> Vec<u8> {
        s.as_bytes()
            .chunks(2)
            .map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap())
            .collect()
    }

    fn acl(entries: &[(Who, u16)]) -> Acl {
        Acl::new(entries.iter().map(|&(who, perm)| AclEntry { who, perm }).collect()).unwrap()
    }

    /// setfacl -m u:1000:rw,g:50:r on a file of mode 640.
    const NAMED: &str = "0200000001000600ffffffff02000600e803000004000400ffffffff080004003200000010000600ffffffff20000000ffffffff";
    /// The same after chmod 705.
    const NAMED_705: &str = "0200000001000700ffffffff02000600e803000004000400ffffffff080004003200000010000000ffffffff20000500ffffffff";
    /// setfacl -d -m u::rwx,u:7:rwx,g::rx,m::rwx,o::rx on a directory.
    const DEFAULT: &str =
        "0200000001000700ffffffff020007000700000004000500ffffffff10000700ffffffff20000500ffffffff";
    /// What a file made in it with mode 666 under umask 077 got.
    const INHERITED: &str =
        "0200000001000600ffffffff020007000700000004000500ffffffff10000600ffffffff20000400ffffffff";

    fn from(value: &str) -> Acl {
        Acl::from_xattr(&hex(value)).unwrap().unwrap()
    }

    #[test]
    fn setfacl_value_reads_and_writes() {
        let a = from(NAMED);
        let expected = acl(&[
            (Who::Owner, 6),
            (Who::User(1000), 6),
            (Who::OwningGroup, 4),
            (Who::Group(50), 4),
            (Who::Mask, 6),
            (Who::Other, 0),
        ]);
        assert_eq!(a, expected);
        assert_eq!(a.to_xattr(), hex(NAMED));
        assert_eq!((a.mode(), a.is_mode()), (0o660, false));
    }

    #[test]
    fn disk_form_has_ids_only_where_somebody_is_named() {
        let disk = from(NAMED).to_disk();
        assert_eq!(disk, hex("010000000100060002000600e80300000400040008000400320000001000060020000000"));
        assert_eq!(Acl::from_disk(&disk, 9).unwrap(), Some(from(NAMED)));
        assert_eq!(Acl::from_disk(&hex("01000000"), 9).unwrap(), None);
    }

    #[test]
    fn chmod_moves_owner_mask_and_others() {
        assert_eq!(from(NAMED).with_mode(0o4705), from(NAMED_705));
        assert_eq!(from(NAMED_705).mode(), 0o705);
        let plain = acl(&[(Who::Owner, 7), (Who::OwningGroup, 7), (Who::Other, 7)]);
        assert_eq!(plain.with_mode(0o641).mode(), 0o641);
    }

    #[test]
    fn a_new_file_inherits_as_with_setfacl() {
        let got = from(DEFAULT).inherit(0o666);
        assert_eq!(got, Inherited { perm: 0o664, access: Some(from(INHERITED)) });
        let dir = from(DEFAULT).inherit(0o1777);
        assert_eq!((dir.perm, dir.access), (0o1775, Some(from(DEFAULT))));
        let plain = acl(&[(Who::Owner, 7), (Who::OwningGroup, 5), (Who::Other, 0)]);
        assert_eq!(plain.inherit(0o2666), Inherited { perm: 0o2640, access: None });
    }

    #[test]
    fn an_acl_that_equals_the_bits_is_not_stored() {
        let plain = acl(&[(Who::Owner, 6), (Who::OwningGroup, 4), (Who::Other, 0)]);
        assert_eq!(plain.into_access(0o4777), (0o4640, None));
        let masked = acl(&[(Who::Owner, 6), (Who::OwningGroup, 4), (Who::Mask, 6), (Who::Other, 0)]);
        assert_eq!(masked.clone().into_access(0), (0o660, Some(masked)));
    }

    #[test]
    fn wrong_values_fail_as_on_linux() {
        assert_eq!(
            Acl::from_xattr(&hex("0100000001000600ffffffff04000400ffffffff20000000ffffffff")),
            Err(AclError::Version)
        );
        for (what, value) in [
            ("short header", "020000"),
            ("half an entry", "0200000001000600"),
            ("unknown tag", "0200000003000600ffffffff04000400ffffffff20000000ffffffff"),
            ("permission 8", "0200000001000e00ffffffff04000400ffffffff20000000ffffffff"),
            ("order", "0200000004000600ffffffff01000400ffffffff20000000ffffffff"),
            ("no others", "0200000001000600ffffffff04000400ffffffff"),
            ("two owners", "0200000001000600ffffffff01000600ffffffff04000400ffffffff20000000ffffffff"),
            ("named, no mask", "0200000001000600ffffffff020006000500000004000400ffffffff20000000ffffffff"),
            (
                "user ~0",
                "0200000001000600ffffffff02000600ffffffff04000400ffffffff10000700ffffffff20000000ffffffff",
            ),
        ] {
            assert!(matches!(Acl::from_xattr(&hex(value)), Err(AclError::Invalid(_))), "{what}");
        }
        assert_eq!(Acl::from_xattr(b"").unwrap(), None);
        assert_eq!(Acl::from_xattr(&hex("02000000")).unwrap(), None);
        // Unsorted and repeated names are allowed, and an id where there should be none is ignored.
        from(
            "0200000001000600ffffffff0200060009000000020006000500000004000400ffffffff10000700ffffffff20000000ffffffff",
        );
        from("020000000100060003000000040004000000000020000000ffffffff");
    }

    #[test]
    fn one_flipped_bit_is_found_where_it_can_be_told() {
        let right = from(NAMED);
        let disk = right.to_disk();
        let (mut told, mut wrong) = (0, 0);
        for bit in 0..disk.len() * 8 {
            let mut flipped = disk.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if Acl::from_disk(&flipped, 9).is_ok() {
                continue; // another permission, or another user
            }
            wrong += 1;
            told += u32::from(Acl::unflipped(&flipped, 9, Some(right.mode())) == Some(right.clone()));
        }
        assert!(wrong > 150 && told * 10 > wrong * 9, "{told} of {wrong}");
        // Two bits.
        let mut flipped = disk;
        (flipped[0], flipped[4]) = (3, 3);
        assert_eq!(Acl::unflipped(&flipped, 9, Some(right.mode())), None);
        assert_eq!(Acl::unflipped(&[1; 4096], 9, None), None);
    }

    #[test]
    fn wrong_disk_values_name_the_field() {
        let message = |value: &str| Acl::from_disk(&hex(value), 9).unwrap_err().to_string();
        for (value, field) in [
            ("", "a_version"),
            ("02000000", "a_version"),
            ("010000000100", "e_tag"),
            ("0100000007000100", "e_tag"),
            ("010000000100060002000600e803", "e_id"),
            ("0100000001000600", "ACL"),
        ] {
            assert!(message(value).contains(field), "{value}: {}", message(value));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(Some(a)) = Acl::from_disk(&bytes, 1) {
                prop_assert_eq!(a.to_disk(), bytes.clone());
            }
            if let Ok(Some(a)) = Acl::from_xattr(&bytes) {
                prop_assert_eq!(Acl::from_xattr(&a.to_xattr()).unwrap(), Some(a));
            }
        }

        #[test]
        fn all_shapes_agree(
            users in proptest::collection::vec((0..9u32, 0..8u16), 0..3),
            groups in proptest::collection::vec((0..9u32, 0..8u16), 0..3),
            mask in proptest::option::of(0..8u16), base in 0..0o1000u16, chmod in 0..0o1000u16,
        ) {
            let mask = mask.or((!users.is_empty() || !groups.is_empty()).then_some(5));
            let mut e = vec![(Who::Owner, base >> 6)];
            e.extend(users.iter().map(|&(id, p)| (Who::User(id), p)));
            e.push((Who::OwningGroup, base >> 3 & 7));
            e.extend(groups.iter().map(|&(id, p)| (Who::Group(id), p)));
            e.extend(mask.map(|p| (Who::Mask, p)));
            e.push((Who::Other, base & 7));
            let a = acl(&e);
            prop_assert_eq!(Acl::from_xattr(&a.to_xattr()).unwrap(), Some(a.clone()));
            prop_assert_eq!(Acl::from_disk(&a.to_disk(), 1).unwrap(), Some(a.clone()));
            prop_assert_eq!(a.clone().with_mode(chmod).mode(), chmod);
            let got = a.inherit(chmod);
            prop_assert_eq!(got.perm, a.mode() & chmod);
            prop_assert_eq!(got.access.as_ref().map_or(got.perm, Acl::mode), got.perm);
        }
    }
}
