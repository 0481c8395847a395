//! What a change of a file takes away of the privileges it lends: set-id bits and file capabilities.
//!
//! Purpose: with HANDLE_KILLPRIV_V2 the kernel leaves this to the daemon. It says so of writes and
//! truncations (a flag, set where the caller lacks CAP_FSETID), and says nothing of fallocate, of copies
//! between files, and of direct writes to files with capabilities.
//!
//! Invariants: the rules are those of `setattr_should_drop_suidgid` and `file_remove_privs` in the kernel. A file loses
//! its privileges before its content changes. The kernel's copy of the attributes is dropped with them.

use super::context::{Context, Done};
use crate::credentials::{Capability, Credentials};
use crate::request::Request;
use medfs::{Attr, FileKind, Files, Ino, Posix, SetAttr};

const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;
const CAPABILITY: &[u8] = b"security.capability";

/// Permission bits without the set-id bits. `keeps_set_gid`: the caller may have the set-gid bit of a file
/// that its group cannot execute, which is no privilege then but means mandatory locking.
fn without_set_id(perm: u16, keeps_set_gid: bool) -> u16 {
    let keeps_set_gid = keeps_set_gid && perm & S_IXGRP == 0;
    perm & !S_ISUID & !(if keeps_set_gid { 0 } else { S_ISGID })
}

impl Context {
    /// The permission bits that a file has after a change of its content or owner, where they are others than before.
    pub(super) fn unprivileged(attr: &Attr, caller: &Credentials) -> Option<u16> {
        let no_bits = attr.perm & (S_ISUID | S_ISGID) == 0;
        if no_bits || attr.kind == FileKind::Directory {
            return None;
        }
        let keeps = || caller.in_group(attr.gid) || caller.has(Capability::Fsetid);
        let perm = without_set_id(attr.perm, attr.perm & S_ISGID != 0 && keeps());
        (perm != attr.perm).then_some(perm)
    }

    /// Takes set-id bits and capabilities away before a change of content of which the kernel says nothing.
    pub(super) fn remove_privileges(&self, request: &Request<'_>, nodeid: u64, ino: Ino) -> Done {
        let attr = self.files.getattr(ino)?;
        let caller = Credentials::of(&request.header);
        if let Some(perm) = Self::unprivileged(&attr, &caller)
            && attr.kind == FileKind::Regular
            && !caller.has(Capability::Fsetid)
        {
            self.set_perm(nodeid, ino, perm)?;
        }
        self.remove_capability(ino)
    }

    /// Takes set-id bits and capabilities away before a write; `kill`: of the bits the kernel says so.
    pub(super) fn remove_privileges_of_writing(&self, request: &Request<'_>, ino: Ino, kill: bool) -> Done {
        if kill
            && let Some(perm) =
                Self::unprivileged(&self.files.getattr(ino)?, &Credentials::of(&request.header))
        {
            self.set_perm(request.nodeid(), ino, perm)?;
        }
        self.remove_capability(ino)
    }

    /// Takes the set-gid bit away, as setting an ACL outside one's groups does.
    pub(super) fn kill_set_gid(&self, nodeid: u64, ino: Ino) -> Done {
        let perm = self.files.getattr(ino)?.perm;
        if perm & S_ISGID != 0 {
            self.set_perm(nodeid, ino, perm & !S_ISGID)?;
        }
        Ok(())
    }

    /// Sets permission bits of which the kernel knows others.
    fn set_perm(&self, nodeid: u64, ino: Ino, perm: u16) -> Done {
        self.files.setattr(ino, &SetAttr { perm: Some(perm), ..SetAttr::default() })?;
        self.notifier.inval_attr(nodeid)
    }

    /// Removes file capabilities where there are any.
    pub(super) fn remove_capability(&self, ino: Ino) -> Done {
        // Asked of the volume itself: that nothing is to be done is no operation to be recorded.
        if let Some(volume) = self.files.volume()
            && volume.getxattr(ino, CAPABILITY).is_err()
        {
            return Ok(());
        }
        match self.files.removexattr(ino, CAPABILITY) {
            Ok(()) | Err(medfs::Error::Posix(Posix::NoAttribute | Posix::NotSupported)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_go_as_linux_takes_them() {
        assert_eq!(without_set_id(0o6755, true), 0o755);
        assert_eq!(without_set_id(0o6745, true), 0o2745, "no group execution: mandatory locking stays");
        assert_eq!(without_set_id(0o6745, false), 0o745);
        assert_eq!(without_set_id(0o1777, false), 0o1777);
    }
}
