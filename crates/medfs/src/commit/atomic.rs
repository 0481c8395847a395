//! The commit of an atomic write: [`crate::content::atomic`] keeps a draft of the file aside until then.
//!
//! Invariant: a commit that fails before its pages are the file's leaves the draft open.
//! Locks: called with none held.

use crate::commit::Commit;
use crate::commit::change_set::{Naming, Request};
use crate::content::placement::Purpose;
use crate::error::{Posix, Result};
use crate::map::effects::{Atomic, Effect};
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::HeldNodes;
use crate::map::page_versions::Draft;
use medfs_format::Ino;
use std::sync::Arc;

impl Commit {
    /// Commits an open atomic write: all of its pages, or none.
    pub(crate) fn atomic(&self, ino: Ino) -> Result<()> {
        let inode = self.inode(ino)?;
        let draft = |draft: &Draft| (draft.pages.len(), draft.first_cut());
        let draft = inode.lock.read().pages.draft().map(draft);
        let Some((pages, first_cut)) = draft else { return Err(Posix::InvalidArgument.into()) };
        self.check_writable()?;
        self.make_room()?;
        self.make_room_for(pages as u64)?;
        // What is cut off goes from the file in the moment of the commit, and waits for nobody then.
        let _frozen = match first_cut < inode.pages() {
            true => Some(self.unshare(ino, first_cut..u64::MAX)?),
            false => None,
        };
        let request = Request { inode: &inode, purpose: Purpose::Atomic, naming: Naming::AsItWas };
        let mut held = HeldNodes::default();
        self.one(request, |state| {
            held = self.apply_draft(&inode, state)?;
            Ok(())
        })
        .map(drop)
    }

    /// Makes the draft the file. The nodes that name its pages are to be held until it is durable.
    fn apply_draft(&self, inode: &Arc<Inode>, state: &mut InodeState) -> Result<HeldNodes> {
        let draft = state.pages.draft().filter(|_| self.effects.are_kept());
        let told = draft.map(|draft| {
            let pages: Vec<_> = draft.pages.iter().map(|(&index, page)| (index, page.clone())).collect();
            (draft.kept, draft.size, pages)
        });
        let held = self.atomic_write(inode).apply(state)?;
        if let Some((kept, size, pages)) = told {
            self.effects.note(Effect::Atomic(Atomic { ino: inode.ino, kept, size, pages: &pages }));
        }
        Ok(held)
    }
}
