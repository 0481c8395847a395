//! POSIX access control lists as the model knows them: entries, and what Linux makes of them.
//!
//! Written apart from the engine's, on the values that `setxattr` and `getxattr` carry.

/// Name of the access ACL.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the ACL that a directory hands down.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP_OWNER: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NOBODY: u32 = u32::MAX;

/// A list: tag, permissions and id of each entry, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl(Vec<(u16, u16, u32)>);

impl Acl {
    /// One of a few kinds: what the nine lower bits of `perm` say, with (1) nobody else, (2) a user, (3) a user and two
    /// groups, or (else) the mask alone; the mask is in the three upper bits.
    pub fn of(kind: u8, perm: u16) -> Acl {
        let mask = (MASK, perm >> 9 & 7, NOBODY);
        let users = [(USER, 6, 1000), (USER, 3, 70_000)];
        let groups = [(GROUP, 5, 100), (GROUP, 7, 101)];
        let (users, groups, mask) = match kind {
            1 => (&users[..0], &groups[..0], None),
            2 => (&users[..1], &groups[..0], Some(mask)),
            3 => (&users[..], &groups[..], Some(mask)),
            _ => (&users[..0], &groups[..0], Some(mask)),
        };
        let mut entries = vec![(OWNER, perm >> 6 & 7, NOBODY)];
        entries.extend(users);
        entries.push((GROUP_OWNER, perm >> 3 & 7, NOBODY));
        entries.extend(groups);
        entries.extend(mask);
        entries.push((OTHER, perm & 7, NOBODY));
        Acl(entries)
    }

    /// The value that `setxattr` takes.
    pub fn value(&self) -> Vec<u8> {
        let mut value = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in &self.0 {
            value.extend(tag.to_le_bytes());
            value.extend(perm.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// Reads such a value back. Panics where it is none.
    pub fn from_value(value: &[u8]) -> Acl {
        let entry = |e: &[u8]| {
            let half = |at| u16::from_le_bytes([e[at], e[at + 1]]);
            (half(0), half(2), u32::from_le_bytes([e[4], e[5], e[6], e[7]]))
        };
        Acl(value[4..].chunks_exact(8).map(entry).collect())
    }

    /// The tag that the group's permission bits stand for.
    fn group_tag(&self) -> u16 {
        if self.0.iter().any(|e| e.0 == MASK) { MASK } else { GROUP_OWNER }
    }

    fn perm_of(&self, tag: u16) -> u16 {
        self.0.iter().find(|e| e.0 == tag).map_or(0, |e| e.1)
    }

    /// The permission bits that go with it.
    pub fn mode(&self) -> u16 {
        self.perm_of(OWNER) << 6 | self.perm_of(self.group_tag()) << 3 | self.perm_of(OTHER)
    }

    /// Whether the bits say as much.
    pub fn is_mode(&self) -> bool {
        self.0.iter().all(|e| matches!(e.0, OWNER | GROUP_OWNER | OTHER))
    }

    /// The list after the bits became what `change` makes of owner, group and others.
    fn with(mut self, change: impl Fn(u16, u16) -> u16) -> Acl {
        let group = self.group_tag();
        for entry in &mut self.0 {
            let shift = match entry.0 {
                OWNER => 6,
                OTHER => 0,
                tag if tag == group => 3,
                _ => continue,
            };
            entry.1 = change(entry.1, shift) & 7;
        }
        self
    }

    /// After `chmod`.
    pub fn after_chmod(self, perm: u16) -> Acl {
        self.with(|_, shift| perm >> shift)
    }

    /// As the access ACL of what is made with `perm` under this default ACL.
    pub fn handed_down(self, perm: u16) -> Acl {
        self.with(|old, shift| old & perm >> shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_bits() {
        let acl = Acl::of(2, 0o5_754);
        assert_eq!(Acl::from_value(&acl.value()), acl);
        assert_eq!((acl.mode(), acl.is_mode()), (0o754, false));
        assert_eq!(acl.clone().after_chmod(0o621).mode(), 0o621);
        assert_eq!(acl.clone().handed_down(0o640).mode(), 0o640);
        assert_eq!(acl.handed_down(0o717).mode(), 0o714);
        assert!(Acl::of(1, 0o644).is_mode() && !Acl::of(4, 0o644).is_mode());
    }
}
