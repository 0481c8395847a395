//! Which kind of operation each is.

use super::attributes::Attributes;
use super::content::Contents;
use super::durable::Durability;
use super::names::Names;
use super::{Applied, Session};
use crate::ops::Op;

impl Session {
    /// Hands an operation to those of its kind.
    pub(super) fn apply_some(&mut self, op: &Op) -> Applied {
        match *op {
            Op::Create { at, kind, perm } => Names(self).create(at, kind, perm),
            Op::Symlink { at, len } => Names(self).symlink(at, len),
            Op::Link { from, to } => Names(self).link(from, to),
            Op::Unlink { at } => Names(self).unlink(at),
            Op::Rmdir { at } => Names(self).rmdir(at),
            Op::Rename { from, to, flags } => Names(self).rename(from, to, flags),
            Op::Fill { dir, first, count, remove } => Names(self).fill(dir, first, count, remove),
            Op::Open { at, slot } => Names(self).open(at, slot),
            Op::Tmpfile { slot } => Names(self).tmpfile(slot),
            Op::LinkSlot { slot, to } => Names(self).link_slot(slot, to),
            Op::Close { slot } => Names(self).close(slot),
            Op::Write { file, offset, len, seed } => Contents(self).write_pattern(file, offset, len, seed),
            Op::Patch { file, .. } => Contents(self).patch(op, file),
            Op::CopyChanged { file, .. } => Contents(self).copy_changed(op, file),
            Op::Frames { dir, journal, first, count, seed } => {
                Contents(self).frames(dir, journal, first, count, seed)
            }
            Op::Read { file, offset, len } => Contents(self).read(file, offset, len),
            Op::Truncate { file, size } => Contents(self).truncate(file, size),
            Op::Fallocate { file, mode, offset, len } => Contents(self).fallocate(file, mode, offset, len),
            Op::Copy { from, from_offset, to, to_offset, len } => {
                Contents(self).copy(from, from_offset, to, to_offset, len)
            }
            Op::AtomicStart { file } => Contents(self).atomic_start(file),
            Op::AtomicEnd { file, commit } => Contents(self).end_atomic(file, commit),
            Op::AtomicUpdate { file, offsets, len, seed, commit } => {
                Contents(self).atomic_update(file, offsets, len, seed, commit)
            }
            Op::SetXattr { file, name, len, mode } => Attributes(self).set_xattr(file, name, len, mode),
            Op::RemoveXattr { file, name } => Attributes(self).remove_xattr(file, name),
            Op::SetFlags { file, flags } => Attributes(self).set_flags(file, flags),
            Op::SetAcl { file, default, kind, perm } => Attributes(self).set_acl(file, default, kind, perm),
            Op::Chmod { file, perm } => Attributes(self).chmod(file, perm),
            Op::Chown { file, uid, gid } => Attributes(self).chown(file, uid, gid),
            Op::Utimes { file, secs } => Attributes(self).utimes(file, secs),
            Op::Fsync { file, datasync } => Durability(self).fsync(file, datasync),
            Op::FsyncDir { dir } => Durability(self).fsync_dir(dir),
            Op::FsyncMany { files, datasync, threads } => {
                Durability(self).fsync_many(files, datasync, threads)
            }
            Op::Sync => Durability(self).sync(),
            Op::SyncApp { dir } => Durability(self).sync_app(dir),
            Op::Checkpoint => Durability(self).checkpoint(),
            Op::Background => Durability(self).background(),
            Op::Idle { file } => Durability(self).idle(file),
            Op::Remount | Op::Crash => Err(format!("{op:?} is not for a session").into()),
        }
    }
}
