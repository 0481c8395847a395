//! The commit of an atomic write: [`crate::content::atomic`] keeps its pages aside until then.
//!
//! Invariant: a commit that fails before its pages are the file's leaves them staged.
//! Locks: called with none held.

use crate::commit::Commit;
use crate::commit::change_set::{Naming, Request};
use crate::content::placement::Purpose;
use crate::error::{Posix, Result};
use medfs_format::Ino;

impl Commit {
    /// Commits an open atomic write: all of its pages, or none.
    pub(crate) fn atomic(&self, ino: Ino) -> Result<()> {
        let inode = self.inode(ino)?;
        let pages = inode.lock.read().atomic.as_ref().map(|staged| staged.pages.len());
        let Some(pages) = pages else { return Err(Posix::InvalidArgument.into()) };
        self.check_writable()?;
        self.make_room()?;
        self.make_room_for(pages as u64)?;
        let request = Request { inode: &inode, purpose: Purpose::Atomic, naming: Naming::AsItWas };
        self.one(request, |state| self.apply_staged(&inode, state)).map(drop)
    }
}
