//! The file system that front ends see: each operation is handed on and written down.

use super::{CALLER, Recorder};
use crate::record::{Attributes, Content, NewNode, Op, xattr_mode_number};
use crate::write_queue::Carried;
use crate::writer::Phase;
use medfs::{
    Attr, Caller, DirEntry, FallocateMode, FileFlags, FileKind, Files, Ino, NewFile, RenameFlags, Seek,
    SetAttr, StatFs, Volume, XattrMode,
};

impl Files for Recorder {
    fn root(&self) -> Ino {
        self.inner.root()
    }

    fn volume(&self) -> Option<&Volume> {
        self.inner.volume()
    }

    fn on_behalf(&self, caller: Caller) {
        CALLER.set(caller);
        self.inner.on_behalf(caller);
    }

    fn hold(&self, ino: Ino, count: u64) -> medfs::Result<()> {
        self.inner.hold(ino, count)
    }

    fn background(&self) -> medfs::Result<()> {
        self.queue.flush();
        self.inner.background()
    }

    fn next_background(&self) -> std::time::Duration {
        self.inner.next_background()
    }

    fn statfs(&self) -> medfs::Result<StatFs> {
        self.inner.statfs()
    }

    fn sync(&self) -> medfs::Result<()> {
        self.observe(|| self.inner.sync(), |_| Op::Sync)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> medfs::Result<Attr> {
        let _order = self.stripe(parent).read();
        let from = self.file(parent);
        self.observe(
            || self.inner.lookup(parent, name),
            |result| Op::Lookup { parent: from, name: self.name(name), file: self.found(result, false) },
        )
    }

    fn release(&self, ino: Ino, count: u64) {
        let began = self.now();
        self.inner.release(ino, count);
        let _forgotten = self.forgetting.write();
        let gone = self.ids.lock().release(ino, count);
        if let Some(file) = gone {
            self.record(began, &Ok(()), Op::Forget { file });
        }
    }

    fn getattr(&self, ino: Ino) -> medfs::Result<Attr> {
        let _order = self.stripe(ino).read();
        self.observe(
            || self.inner.getattr(ino),
            |result| {
                let regular = result.as_ref().ok().filter(|attr| attr.kind == FileKind::Regular);
                Op::GetAttr { file: self.file(ino), size: regular.map_or(0, |attr| attr.size) }
            },
        )
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> medfs::Result<Attr> {
        let _order = self.stripe(ino).write();
        self.observe(
            || self.inner.setattr(ino, set),
            |_| Op::SetAttr { file: self.file(ino), set: Attributes::from(set) },
        )
    }

    fn open(&self, ino: Ino, flags: i32) -> medfs::Result<Attr> {
        let _order = self.stripe(ino).write();
        self.observe(|| self.inner.open(ino, flags), |_| Op::Open { file: self.file(ino), flags })
    }

    fn close(&self, ino: Ino) {
        let _order = self.stripe(ino).write();
        let began = self.now();
        self.inner.close(ino);
        self.record(began, &Ok(()), Op::Close { file: self.file(ino) });
    }

    fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> medfs::Result<Attr> {
        let _order = self.stripe(parent).write();
        let from = self.file(parent);
        self.observe(
            || self.inner.create(parent, name, new),
            |result| Op::Create {
                parent: from,
                name: self.name(name),
                file: self.found(result, true),
                new: NewNode::from(new),
            },
        )
    }

    fn tmpfile(&self, parent: Ino, new: &NewFile) -> medfs::Result<Attr> {
        let _order = self.stripe(parent).write();
        let from = self.file(parent);
        self.observe(
            || self.inner.tmpfile(parent, new),
            |result| Op::Tmpfile { parent: from, file: self.found(result, true), new: NewNode::from(new) },
        )
    }

    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> medfs::Result<Attr> {
        let _order = self.stripe(parent).write();
        let from = self.file(parent);
        self.observe(
            || self.inner.symlink(parent, name, target, uid, gid),
            |result| Op::Symlink {
                parent: from,
                name: self.name(name),
                target: self.target(target),
                file: self.found(result, true),
                uid,
                gid,
            },
        )
    }

    fn readlink(&self, ino: Ino) -> medfs::Result<Vec<u8>> {
        self.observe(|| self.inner.readlink(ino), |_| Op::Readlink { file: self.file(ino) })
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> medfs::Result<Attr> {
        let _order = self.both_stripes(ino, parent);
        self.observe(
            || self.inner.link(ino, parent, name),
            |result| {
                self.found(result, false);
                Op::Link { file: self.file(ino), parent: self.file(parent), name: self.name(name) }
            },
        )
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> medfs::Result<()> {
        let _order = self.stripe(parent).write();
        let from = self.file(parent);
        self.observe(
            || self.inner.unlink(parent, name),
            |_| Op::Unlink { parent: from, name: self.name(name) },
        )
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> medfs::Result<()> {
        let _order = self.stripe(parent).write();
        let from = self.file(parent);
        self.observe(|| self.inner.rmdir(parent, name), |_| Op::Rmdir { parent: from, name: self.name(name) })
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        to: Ino,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> medfs::Result<()> {
        let _order = self.both_stripes(parent, to);
        self.observe(
            || self.inner.rename(parent, name, to, to_name, flags),
            |_| Op::Rename {
                parent: self.file(parent),
                name: self.name(name),
                to: self.file(to),
                to_name: self.name(to_name),
                flags: flags.bits(),
            },
        )
    }

    fn readdir(&self, ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> medfs::Result<()> {
        self.observe(
            || self.inner.readdir(ino, position, emit),
            |_| Op::Readdir { file: self.file(ino), position },
        )
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> medfs::Result<usize> {
        let _order = self.stripe(ino).read();
        let began = self.now();
        let result = self.inner.read(ino, offset, buf);
        let read = result.as_ref().map_or(0, |&read| read.min(buf.len()));
        let errno = result.as_ref().err().map_or(0, medfs::Error::errno);
        let op =
            Op::Read { file: self.file(ino), offset, len: buf.len() as u32, content: Content::default() };
        let carried = Carried { offset, bytes: &buf[..read], before: self.nothing_before() };
        self.write_down(Phase::Recorded, began, errno, op, Some(carried));
        result
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> medfs::Result<usize> {
        self.write_with(ino, offset, data, false, || self.inner.write(ino, offset, data))
    }

    fn write_cached(&self, ino: Ino, offset: u64, data: &[u8]) -> medfs::Result<usize> {
        self.write_with(ino, offset, data, true, || self.inner.write_cached(ino, offset, data))
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(
            || self.inner.fallocate(ino, mode, offset, len),
            |_| Op::Fallocate { file: self.file(ino), mode: mode.bits(), offset, len },
        )
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> medfs::Result<u64> {
        let _order = self.stripe(ino).read();
        self.observe(
            || self.inner.seek(ino, offset, whence),
            |_| Op::Seek { file: self.file(ino), offset, hole: whence == Seek::Hole },
        )
    }

    fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> medfs::Result<u64> {
        let _order = self.both_stripes(from, to);
        self.observe(
            || self.inner.copy_range(from, from_offset, to, to_offset, len),
            |result| Op::CopyRange {
                from: self.file(from),
                from_offset,
                to: self.file(to),
                to_offset,
                len,
                copied: result.as_ref().map_or(0, |&copied| copied),
            },
        )
    }

    fn fsync(&self, ino: Ino, datasync: bool) -> medfs::Result<()> {
        let _order = self.stripe(ino).read();
        self.observe(|| self.inner.fsync(ino, datasync), |_| Op::Fsync { file: self.file(ino), datasync })
    }

    fn fsync_now(&self, ino: Ino, datasync: bool) -> medfs::Result<()> {
        let _order = self.stripe(ino).read();
        self.observe(|| self.inner.fsync_now(ino, datasync), |_| Op::Fsync { file: self.file(ino), datasync })
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> medfs::Result<Vec<u8>> {
        let _order = self.stripe(ino).read();
        self.observe(
            || self.inner.getxattr(ino, name),
            |_| Op::GetXattr { file: self.file(ino), name: self.attribute(name) },
        )
    }

    fn listxattr(&self, ino: Ino) -> medfs::Result<Vec<Vec<u8>>> {
        let _order = self.stripe(ino).read();
        self.observe(|| self.inner.listxattr(ino), |_| Op::ListXattr { file: self.file(ino) })
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(
            || self.inner.setxattr(ino, name, value, mode),
            |_| Op::SetXattr {
                file: self.file(ino),
                name: self.attribute(name),
                value: self.value(name, value),
                mode: xattr_mode_number(mode),
            },
        )
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(
            || self.inner.removexattr(ino, name),
            |_| Op::RemoveXattr { file: self.file(ino), name: self.attribute(name) },
        )
    }

    fn set_flags(&self, ino: Ino, flags: FileFlags) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(
            || self.inner.set_flags(ino, flags),
            |_| Op::SetFlags { file: self.file(ino), flags: flags.bits() },
        )
    }

    fn atomic_start(&self, ino: Ino) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(|| self.inner.atomic_start(ino), |_| Op::AtomicStart { file: self.file(ino) })
    }

    fn atomic_commit(&self, ino: Ino) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(|| self.inner.atomic_commit(ino), |_| Op::AtomicCommit { file: self.file(ino) })
    }

    fn atomic_abort(&self, ino: Ino) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(|| self.inner.atomic_abort(ino), |_| Op::AtomicAbort { file: self.file(ino) })
    }
}
