//! Attributes of an inode, those that its permissions and its size make, and its flags.
//!
//! Locks: one inode at a time, its `wb` before the operation lock where nodes may be freed.
//! Kernel counterpart: `f2fs_setattr`, `f2fs_getattr`, `f2fs_setflags_common`.

use crate::error::{Posix, Result};
use crate::map::effects::Effect;
use crate::map::inode::{Inode, InodeState, set_atime, set_ctime, set_mtime};
use crate::map::refs::Attempt;
use crate::tree::Tree;
use crate::types::{Attr, FileFlags, SetAttr, Timestamp};
use medfs_format::{BLOCK_SIZE, Ino};
use medfs_store::Dirty;
use std::ops::Range;
use std::sync::Arc;

const PAGE: u64 = BLOCK_SIZE as u64;

/// Whether the times to be set, ctime among them, are those that the inode has.
fn times_are(inode: &Inode, set: &SetAttr) -> bool {
    inode.raw(|r| {
        let is = |wanted: Option<Timestamp>, secs: u64, nanos: u32| {
            wanted.is_none_or(|t| t == Timestamp { secs: secs as i64, nanos })
        };
        set.ctime.is_some()
            && is(set.atime, r.i_atime.get(), r.i_atime_nsec.get())
            && is(set.mtime, r.i_mtime.get(), r.i_mtime_nsec.get())
            && is(set.ctime, r.i_ctime.get(), r.i_ctime_nsec.get())
    })
}

/// Gives a file its size, or the draft of an atomic write; returns the pages, and changes nothing, where
/// some that would go are sources of other files, or of too many pages.
fn set_file_size(
    tree: &Tree,
    inode: &Arc<Inode>,
    state: &mut InodeState,
    size: u64,
) -> Result<Option<Range<u64>>> {
    inode.check_regular()?;
    tree.check_readable_content(inode)?;
    tree.check_resize_of_released(inode, size)?;
    if state.pages.draft().is_some() {
        return tree.atomic_write(inode).resize(state, size).map(|()| None);
    }
    let first = size.div_ceil(PAGE);
    let gone = first..u64::MAX;
    if size < inode.size()
        && (tree.refs.others_need(inode.ino, gone.clone()) || tree.refs.many_own(inode.ino, &gone))
    {
        return Ok(Some(gone));
    }
    tree.resize(inode, state, size).map(|()| None)
}

impl Tree {
    /// Attributes as POSIX sees them.
    pub(crate) fn attr(&self, inode: &Inode) -> Attr {
        let attr = self.attributes(inode);
        Attr { nlink: attr.nlink.saturating_sub(self.hiding().links_to(inode.ino)), ..attr }
    }

    /// The same as readers see them, who see an open atomic write.
    pub(crate) fn attr_seen(&self, inode: &Inode, state: &InodeState) -> Attr {
        let attr = self.attr(inode);
        Attr { size: state.pages.size_seen(attr.size), ..attr }
    }

    /// Attributes of an inode, with one hold on it.
    pub(crate) fn attr_held(&self, inode: &Inode) -> Attr {
        self.inodes.hold(inode.ino, 1);
        self.attr(inode)
    }

    pub(crate) fn getattr(&self, ino: Ino) -> Result<Attr> {
        let inode = self.inode(ino)?;
        let state = inode.lock.read();
        inode.check_alive(&state)?;
        Ok(self.attr_seen(&inode, &state))
    }

    pub(crate) fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let inode = self.inode(ino)?;
        self.with_unshared(|| self.try_setattr(&inode, set))
    }

    /// Sets attributes; [`Attempt::Shared`] (nothing changed) where pages that would go are sources of other files.
    fn try_setattr(&self, inode: &Arc<Inode>, set: &SetAttr) -> Result<Attempt<Attr>> {
        self.check_writable()?;
        self.make_room()?;
        // Nodes may be freed: none of them may be on its way to the device.
        let _wb = (set.size.is_some() || set.perm.is_some()).then(|| inode.wb.lock());
        let _op = self.op()?;
        let mut state = inode.lock.write();
        inode.check_alive(&state)?;
        let owner_or_mode = set.perm.is_some() || set.uid.is_some() || set.gid.is_some();
        // Times are not held back: what the kernel's page cache took from writers that append sets them too.
        if owner_or_mode || set.size.is_some() {
            inode.check_flags(FileFlags::IMMUTABLE | FileFlags::APPEND)?;
        }
        let drafted = state.pages.draft().is_some();
        if let Some(size) = set.size
            && let Some(shared) = set_file_size(self, inode, &mut state, size)?
        {
            return Ok(Attempt::Shared(inode.ino, shared));
        }
        if let Some(perm) = set.perm {
            self.acl_chmod(inode, perm & 0o7777)?;
        }
        if drafted && *set == (SetAttr { size: set.size, ..SetAttr::default() }) {
            // The rest waits for the commit too.
            return Ok(Attempt::Done(self.attr_seen(inode, &state)));
        }
        let now = self.clock.now();
        let dirty = match owner_or_mode {
            true => Dirty::Full,
            false if set.is_of_a_write() && !inode.is_dir() => Dirty::Tick,
            false => Dirty::Times,
        };
        if !owner_or_mode && set.size.is_none() && times_are(inode, set) {
            return Ok(Attempt::Done(self.attr_seen(inode, &state)));
        }
        self.edit(inode, dirty, |r| {
            if let Some(perm) = set.perm {
                r.i_mode = ((r.i_mode.get() & 0o170000) | (perm & 0o7777)).into();
            }
            if let Some(uid) = set.uid {
                r.i_uid = uid.into();
            }
            if let Some(gid) = set.gid {
                r.i_gid = gid.into();
            }
            if let Some(t) = set.atime {
                set_atime(r, t);
            }
            if let Some(t) = set.mtime {
                set_mtime(r, t);
            } else if set.size.is_some() && !drafted {
                set_mtime(r, now);
            }
            set_ctime(r, set.ctime.unwrap_or(now));
        });
        let size = set.size.filter(|_| !drafted);
        self.nodes.changes.look_again(inode.ino);
        self.effects.note(Effect::SetAttr { ino: inode.ino, set: SetAttr { size, ..*set } });
        if inode.is_dir() {
            // Roll-forward does not bring back a time that somebody set.
            self.name_journal.changed(inode.ino);
        }
        Ok(Attempt::Done(self.attr_seen(inode, &state)))
    }

    pub(crate) fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<()> {
        let mut settable = FileFlags::SYNC
            | FileFlags::IMMUTABLE
            | FileFlags::APPEND
            | FileFlags::NODUMP
            | FileFlags::NOATIME
            | FileFlags::DIRSYNC
            | FileFlags::PROJINHERIT;
        if self.has_compression() {
            settable |= FileFlags::COMPR | FileFlags::NOCOMP;
        }
        let inode = self.inode(ino)?;
        self.change_settled(&inode, |state| {
            // As the kernel: what a user cannot set cannot be cleared either, and naming it as it is does no harm.
            let old = inode.raw(|r| r.flags());
            if !flags.difference(settable | old).is_empty() {
                return Err(Posix::NotSupported.into());
            }
            let new = (flags & settable) | old.difference(settable);
            self.clusters().change_compression(&inode, state, old, new)?;
            self.edit(&inode, Dirty::Full, |r| r.i_flags = new.bits().into());
            self.touch_changed(&inode);
            self.effects.note(Effect::Flags { ino, flags });
            Ok(())
        })
    }

    pub(crate) fn set_project(&self, ino: Ino, project: u32) -> Result<()> {
        let inode = self.inode(ino)?;
        let _op = self.begin()?;
        let state = inode.lock.write();
        inode.check_alive(&state)?;
        let can = self.features.contains(medfs_format::superblock::Feature::PROJECT_QUOTA);
        let done = self.edit(&inode, Dirty::Full, |r| match r.extra_mut() {
            Some(extra) if can && extra.i_extra_isize.get() >= 8 => {
                extra.i_projid = project.into();
                true
            }
            _ => false,
        });
        if !done && project != 0 {
            return Err(Posix::NotSupported.into());
        }
        self.touch_changed(&inode);
        self.nodes.changes.look_again(ino);
        self.effects.note(Effect::Project { ino, project });
        Ok(())
    }
}
