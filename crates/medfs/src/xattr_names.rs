//! Names of extended attributes: `user.colour` to the name space and rest that F2FS stores, and back.
//!
//! Purpose: the one table of name spaces. An attribute is stored as an index byte and the name without
//! its prefix; the two ACLs and `system.advise` are whole names of their own and store no rest.

use crate::error::{Posix, Result};
use medfs_format::xattr::NameIndex;

/// Longest full name, as Linux has it.
pub const NAME_MAX: usize = 255;

/// Name spaces whose prefix is followed by a name.
const PREFIXES: [(&[u8], NameIndex); 3] =
    [(b"user.", NameIndex::User), (b"trusted.", NameIndex::Trusted), (b"security.", NameIndex::Security)];

/// Names that stand alone.
const WHOLE: [(&[u8], NameIndex); 3] = [
    (b"system.posix_acl_access", NameIndex::PosixAclAccess),
    (b"system.posix_acl_default", NameIndex::PosixAclDefault),
    (b"system.advise", NameIndex::Advise),
];

/// Splits a full name into its name space and the rest that is stored (empty for whole names).
///
/// Fails as Linux does: `Range` where it is empty or too long, `NotSupported` for a name space that
/// F2FS does not have, `InvalidArgument` where nothing follows the prefix.
pub fn split(full: &[u8]) -> Result<(NameIndex, &[u8])> {
    if full.is_empty() || full.len() > NAME_MAX {
        return Err(Posix::Range.into());
    }
    if let Some((_, index)) = WHOLE.iter().find(|(name, _)| *name == full) {
        return Ok((*index, b""));
    }
    match PREFIXES.iter().find_map(|(prefix, index)| Some((*index, full.strip_prefix(*prefix)?))) {
        Some((_, b"")) => Err(Posix::InvalidArgument.into()),
        Some(found) => Ok(found),
        None => Err(Posix::NotSupported.into()),
    }
}

/// The full name of a stored attribute; `None` where no system call names it (encryption, verity,
/// name spaces that are not known), so that it is neither listed nor read nor changed.
pub fn join(index: u8, rest: &[u8]) -> Option<Vec<u8>> {
    if let Some((name, _)) = WHOLE.iter().find(|(_, i)| *i as u8 == index) {
        return Some(name.to_vec());
    }
    let (prefix, _) = PREFIXES.iter().find(|(_, i)| *i as u8 == index)?;
    Some([*prefix, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn error(full: &[u8]) -> Posix {
        match split(full) {
            Err(Error::Posix(e)) => e,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_split_and_join_again() {
        for (full, index, rest) in [
            (&b"user.a.b"[..], 1, &b"a.b"[..]),
            (b"trusted.overlay.opaque", 4, b"overlay.opaque"),
            (b"security.capability", 6, b"capability"),
            (b"system.posix_acl_access", 2, b""),
            (b"system.posix_acl_default", 3, b""),
            (b"system.advise", 7, b""),
        ] {
            let (i, r) = split(full).unwrap();
            assert_eq!((i as u8, r), (index, rest));
            assert_eq!(join(i as u8, r).as_deref(), Some(full));
        }
    }

    #[test]
    fn other_names_are_refused_as_linux_does() {
        assert_eq!(error(b"user."), Posix::InvalidArgument);
        assert_eq!(error(b"user"), Posix::NotSupported);
        assert_eq!(error(b"User.x"), Posix::NotSupported);
        assert_eq!(error(b"system.posix_acl_accessx"), Posix::NotSupported);
        assert_eq!(error(b"lustre.x"), Posix::NotSupported);
        assert_eq!(error(b""), Posix::Range);
        assert!(split(&[b"user.", &[b'x'; 250][..]].concat()).is_ok());
        assert_eq!(error(&[b"user.", &[b'x'; 251][..]].concat()), Posix::Range);
    }

    #[test]
    fn hidden_name_spaces_have_no_name() {
        for index in [0, NameIndex::Lustre as u8, NameIndex::Encryption as u8, NameIndex::Verity as u8, 200] {
            assert_eq!(join(index, b"c"), None);
        }
    }
}
