//! What is there when recording begins, as operations that make it: the trace's first part.

use super::Recorder;
use crate::error::{Error, Result};
use crate::record::{Attributes, Content, FileId, NewNode, Op, PAGE, ROOT};
use crate::tree;
use crate::write_queue::Carried;
use crate::writer::Phase;
use medfs::{Attr, FileKind, Ino, Seek};
use std::collections::HashMap;
use std::time::Duration;

impl Recorder {
    /// Records what is there as operations that make it.
    pub(super) fn snapshot(&self) -> Result<()> {
        let mut numbers: HashMap<Ino, FileId> = HashMap::from([(self.inner.root(), ROOT)]);
        tree::walk(&*self.inner, &mut |parent, attr, path| {
            let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
            let (parent, name) = (numbers.get(&parent).copied().unwrap_or(ROOT), self.name(name));
            if let Some(&file) = numbers.get(&attr.ino) {
                self.setup(Op::Link { file, parent, name });
                return Ok(());
            }
            let file = self.ids.lock().found(attr, false);
            self.ids.lock().release(attr.ino, 1);
            // Only these are met again.
            let again = attr.kind == FileKind::Directory || attr.nlink > 1;
            if again {
                numbers.insert(attr.ino, file);
            }
            let (uid, gid) = (attr.uid, attr.gid);
            let kind = attr.kind.mode_bits();
            let new = NewNode { kind, perm: attr.perm, umask: 0, uid, gid, rdev: attr.rdev };
            if attr.kind == FileKind::Symlink {
                let target = self.inner.readlink(attr.ino).map_err(Error::files("cannot read a link"))?;
                self.setup(Op::Symlink { parent, name, target: self.target(&target), file, uid, gid });
            } else {
                self.setup(Op::Create { parent, name, file, new });
            }
            if attr.kind == FileKind::Regular {
                self.snapshot_content(attr, file)?;
            }
            self.snapshot_attributes(attr.ino, file)?;
            if !again {
                self.setup(Op::Forget { file });
            }
            // The failure itself is told at the end.
            if self.queue.failed() { self.queue.finish().map(drop) } else { Ok(()) }
        })
    }

    fn setup(&self, op: Op) {
        self.write_down(Phase::Setup, Duration::ZERO, 0, op, None);
    }

    fn snapshot_content(&self, attr: &Attr, file: FileId) -> Result<()> {
        let failed = || Error::files(format!("cannot read file {}", attr.ino));
        let mut buffer = vec![0; 32 * PAGE];
        let mut offset = 0;
        while offset < attr.size {
            offset = match self.inner.seek(attr.ino, offset, Seek::Data) {
                Ok(data) => data - data % PAGE as u64,
                Err(e) if e.errno() == libc::ENXIO => break,
                // Where holes are not told they are read.
                Err(_) => offset,
            };
            let len = self.inner.read(attr.ino, offset, &mut buffer).map_err(failed())?;
            if len == 0 {
                break;
            }
            let carried = Carried { offset, bytes: &buffer[..len], before: self.nothing_before() };
            let op = Op::Write { file, offset, len: len as u32, cached: false, content: Content::default() };
            self.write_down(Phase::Setup, Duration::ZERO, 0, op, Some(carried));
            offset += len as u64;
        }
        // Its end may be a hole.
        self.setup(Op::SetAttr { file, set: Attributes { size: Some(attr.size), ..Attributes::default() } });
        Ok(())
    }

    fn snapshot_attributes(&self, ino: Ino, file: FileId) -> Result<()> {
        let names = match self.inner.listxattr(ino) {
            Err(e) if e.errno() == libc::EOPNOTSUPP => return Ok(()),
            other => other.map_err(Error::files("cannot list extended attributes"))?,
        };
        for name in
            names.iter().filter(|name| name.starts_with(b"user.") || name.starts_with(b"system.posix_acl"))
        {
            let value =
                self.inner.getxattr(ino, name).map_err(Error::files("cannot read an extended attribute"))?;
            let value = self.value(name, &value);
            self.setup(Op::SetXattr { file, name: self.attribute(name), value, mode: 0 });
        }
        Ok(())
    }
}
