//! What a log implies of the files it speaks of.
//!
//! Parsers tell the model what was done to which path; it gives files their numbers, makes the operations of
//! the trace, and in the first of two passes finds out what must have been there before the log began: paths
//! that are met without having been made, bytes that are read without having been written, sizes that are
//! seen. Both passes see the same calls and so give the same numbers; the first writes only what was there,
//! the second only what was done.

use super::parser::parts;
use super::ranges::{REQUEST, Ranges, behind, first, requests};
use crate::error::Result;
use crate::record::{Attributes, Bytes, Content, FileId, NewNode, Op, Record, Run};
use crate::writer::{Phase, TraceWriter, pieces};
use medfs::FileKind;
use std::collections::{BTreeMap, HashMap};

/// Index of a file in the model.
pub(super) type Node = usize;

/// The root directory.
const ROOT: Node = 0;

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
enum Entry {
    There {
        node: Node,
        /// An operation has looked it up since it is there.
        found: bool,
    },
    /// A call has failed because of that.
    Absent,
}

#[derive(Debug, Default)]
struct File {
    id: FileId,
    directory: bool,
    entries: HashMap<Vec<u8>, Entry>,
    size: u64,
    /// It was there before.
    before: bool,
    /// Bytes it had before, as far as the log shows.
    size_before: u64,
    /// Where it is to be made, of a file that was there or may have been, until the trace's first part has
    /// it: its directory, name and permissions.
    place: Option<(Node, Vec<u8>, u16)>,
    /// Ranges that the log has written, or shown as they were before; begin and end.
    known: Ranges,
}

/// When and by whom something is done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct When {
    /// Nanoseconds since the log began.
    pub(super) at: u64,
    /// Nanoseconds it took.
    pub(super) took: u64,
    pub(super) process: u32,
    pub(super) thread: u32,
}

/// See the module.
pub(super) struct Model<'w> {
    writer: &'w mut TraceWriter,
    root: Vec<Vec<u8>>,
    files: Vec<File>,
    sizes: BTreeMap<FileId, u64>,
    first_pass: bool,
    skipped: BTreeMap<String, u64>,
    when: When,
    error: Option<crate::error::Error>,
}

impl<'w> Model<'w> {
    /// `sizes`: what the first pass found out of files that were there.
    pub(super) fn new(
        writer: &'w mut TraceWriter,
        root: &[u8],
        sizes: BTreeMap<FileId, u64>,
        first_pass: bool,
    ) -> Model<'w> {
        let files = vec![File { directory: true, before: true, ..File::default() }];
        let root = parts(root);
        let (skipped, when) = (BTreeMap::new(), When::default());
        Model { writer, root, files, sizes, first_pass, skipped, when, error: None }
    }

    /// What comes next is done then.
    pub(super) fn at(&mut self, when: When) {
        self.when = when;
    }

    /// Counts what is not understood.
    pub(super) fn skip(&mut self, kind: &str) {
        // The log chooses the kinds: those beyond a bound share one.
        let full = self.skipped.len() >= 500 && !self.skipped.contains_key(kind);
        *self.skipped.entry(if full { "others" } else { kind }.to_owned()).or_default() += 1;
    }

    /// The error that writing the trace met.
    pub(super) fn failed(&mut self) -> Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Ends the first pass: sizes of files that were there.
    pub(super) fn finish_setup(mut self) -> Result<BTreeMap<FileId, u64>> {
        for node in 0..self.files.len() {
            if self.files[node].before {
                self.settle(node);
            }
        }
        let sizes: BTreeMap<FileId, u64> =
            self.files.iter().filter(|f| f.before && !f.directory).map(|f| (f.id, f.size_before)).collect();
        for (&file, &size) in &sizes {
            self.write(
                Phase::Setup,
                0,
                Op::SetAttr { file, set: Attributes { size: Some(size), ..Attributes::default() } },
            );
        }
        self.failed()?;
        Ok(sizes)
    }

    /// Ends the second pass: what was not understood.
    pub(super) fn finish(mut self) -> Result<Vec<(String, u64)>> {
        self.failed()?;
        Ok(self.skipped.into_iter().collect())
    }

    fn write(&mut self, phase: Phase, errno: u16, op: Op) {
        if (phase == Phase::Setup) != self.first_pass || self.error.is_some() {
            return;
        }
        let When { at, took, process, thread } = if self.first_pass { When::default() } else { self.when };
        let record = Record { at, took, process, thread, errno, op };
        self.error = self.writer.push(phase, &record).err();
    }

    fn done(&mut self, op: Op) {
        self.write(Phase::Recorded, 0, op);
    }

    /// The names of a path below the root; `None` where it is elsewhere.
    fn below(&mut self, path: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut names = parts(path);
        if names.len() < self.root.len() || names[..self.root.len()] != self.root[..] {
            self.skip("outside of the root");
            return None;
        }
        names.drain(..self.root.len());
        Some(names)
    }

    fn add(&mut self, directory: bool, before: bool) -> Node {
        let id = self.files.len() as FileId;
        let size = if before { self.sizes.get(&id).copied().unwrap_or(0) } else { 0 };
        self.files.push(File { id, directory, before, size, size_before: size, ..File::default() });
        self.files.len() - 1
    }

    /// The file under a name of a directory, found by an operation; one that the log did not make was there before.
    fn child(&mut self, parent: Node, name: &[u8], directory: bool) -> Option<Node> {
        let (node, found) = match self.files[parent].entries.get(name) {
            Some(&Entry::There { node, found }) => (node, found),
            // Where it was seen missing, or its directory is new, a process has made it that the log does not show.
            None if self.files[parent].before => (self.was_there(parent, name, directory), false),
            _ => {
                self.skip("a file whose creation was not logged");
                return None;
            }
        };
        let file = &mut self.files[node];
        if directory && !file.directory && file.before && file.place.is_some() {
            // Nothing had shown yet that it is one.
            file.directory = true;
            file.place = file.place.take().map(|(parent, name, _)| (parent, name, 0o755));
        }
        if !found {
            self.files[parent].entries.insert(name.to_vec(), Entry::There { node, found: true });
            let (parent, file) = (self.files[parent].id, self.files[node].id);
            self.done(Op::Lookup { parent, name: Bytes::from(name.to_vec()), file });
        }
        Some(node)
    }

    fn was_there(&mut self, parent: Node, name: &[u8], directory: bool) -> Node {
        let node = self.add(directory, true);
        self.files[parent].entries.insert(name.to_vec(), Entry::There { node, found: false });
        self.files[node].place = Some((parent, name.to_vec(), if directory { 0o755 } else { 0o644 }));
        node
    }

    /// The directory of a path, and the last name; `None` where it is the root or elsewhere.
    fn parent(&mut self, path: &[u8]) -> Option<(Node, Vec<u8>)> {
        let mut names = self.below(path)?;
        let last = names.pop()?;
        let mut at = ROOT;
        for name in names {
            at = self.child(at, &name, true)?;
            if !self.files[at].directory {
                self.skip("a path through a file");
                return None;
            }
        }
        Some((at, last))
    }

    /// The file at a path that a call has found there.
    pub(super) fn find(&mut self, path: &[u8], directory: bool) -> Option<Node> {
        if self.below(path)?.is_empty() {
            return Some(ROOT);
        }
        let (parent, name) = self.parent(path)?;
        self.child(parent, &name, directory)
    }

    /// A call has failed because there is nothing at a path.
    pub(super) fn missing(&mut self, path: &[u8]) {
        let Some((parent, name)) = self.parent(path) else { return };
        match self.files[parent].entries.get(&name) {
            Some(Entry::There { .. }) => return self.skip("a file that vanished"),
            Some(Entry::Absent) => return,
            None => drop(self.files[parent].entries.insert(name.clone(), Entry::Absent)),
        }
        let parent = self.files[parent].id;
        let op = Op::Lookup { parent, name: Bytes::from(name), file: crate::record::ROOT };
        self.write(Phase::Recorded, libc::ENOENT as u16, op);
    }

    /// Makes a file or directory.
    pub(super) fn make(&mut self, path: &[u8], kind: FileKind, perm: u16) -> Option<Node> {
        let (parent, name) = self.parent(path)?;
        let node = self.add(kind == FileKind::Directory, false);
        self.enter(parent, &name, node);
        let (parent, file) = (self.files[parent].id, self.files[node].id);
        self.done(Op::Create { parent, name: Bytes::from(name), file, new: NewNode::plain(kind, perm) });
        Some(node)
    }

    /// Opens a file that is made where it is not there. Which it was shows later, in the first pass: where
    /// bytes are seen that the log did not write it was there. `true`: it was made.
    pub(super) fn make_or_find(&mut self, path: &[u8], perm: u16) -> Option<(Node, bool)> {
        let (parent, name) = self.parent(path)?;
        if let Some(Entry::There { .. }) = self.files[parent].entries.get(&name) {
            return Some((self.child(parent, &name, false)?, false));
        }
        let unseen = !self.files[parent].entries.contains_key(&name) && self.files[parent].before;
        if !unseen {
            return Some((self.make(path, FileKind::Regular, perm)?, true));
        }
        let next = self.files.len() as FileId;
        if !self.first_pass && self.sizes.contains_key(&next) {
            let node = self.add(false, true);
            self.files[parent].entries.insert(name.clone(), Entry::There { node, found: false });
            return Some((self.child(parent, &name, false)?, false));
        }
        let node = self.make(path, FileKind::Regular, perm)?;
        self.files[node].place = Some((parent, name, perm));
        Some((node, true))
    }

    /// Bytes of a file were seen that the log did not write: it was there.
    fn seen_before(&mut self, node: Node) {
        if self.first_pass && self.files[node].place.is_some() {
            self.files[node].before = true;
        }
        if self.files[node].before {
            self.settle(node);
        }
    }

    /// Writes a file that was there into the trace's first part, and its directories before it.
    fn settle(&mut self, node: Node) {
        let Some((parent, name, perm)) = self.files[node].place.take() else { return };
        self.settle(parent);
        let kind = if self.files[node].directory { FileKind::Directory } else { FileKind::Regular };
        let (parent, file) = (self.files[parent].id, self.files[node].id);
        let new = NewNode::plain(kind, perm);
        self.write(Phase::Setup, 0, Op::Create { parent, name: Bytes::from(name), file, new });
    }

    fn enter(&mut self, parent: Node, name: &[u8], node: Node) {
        self.files[parent].entries.insert(name.to_vec(), Entry::There { node, found: true });
    }

    /// Makes a symbolic link.
    pub(super) fn symlink(&mut self, path: &[u8], target: &[u8]) {
        let Some((parent, name)) = self.parent(path) else { return };
        let node = self.add(false, false);
        self.enter(parent, &name, node);
        let (parent, file) = (self.files[parent].id, self.files[node].id);
        let (name, target) = (Bytes::from(name), Bytes::from(target.to_vec()));
        self.done(Op::Symlink { parent, name, target, file, uid: 0, gid: 0 });
    }

    /// Gives a file another name.
    pub(super) fn link(&mut self, from: &[u8], to: &[u8]) {
        let Some(node) = self.find(from, false) else { return };
        let Some((parent, name)) = self.parent(to) else { return };
        self.enter(parent, &name, node);
        let (parent, file) = (self.files[parent].id, self.files[node].id);
        self.done(Op::Link { file, parent, name: Bytes::from(name) });
    }

    /// Removes a name.
    pub(super) fn remove(&mut self, path: &[u8], directory: bool) {
        if self.find(path, directory).is_none() {
            return;
        }
        let Some((parent, name)) = self.parent(path) else { return };
        self.files[parent].entries.insert(name.clone(), Entry::Absent);
        let (parent, name) = (self.files[parent].id, Bytes::from(name));
        self.done(if directory { Op::Rmdir { parent, name } } else { Op::Unlink { parent, name } });
    }

    /// Moves a name; `flags` are those of `renameat2`.
    pub(super) fn rename(&mut self, from: &[u8], to: &[u8], flags: u32) {
        const EXCHANGE: u32 = 2;
        let Some(node) = self.find(from, false) else { return };
        let other = if flags & EXCHANGE != 0 { self.find(to, false) } else { None };
        let (Some((from, name)), Some((to, to_name))) = (self.parent(from), self.parent(to)) else { return };
        let left = other.map_or(Entry::Absent, |node| Entry::There { node, found: true });
        self.files[from].entries.insert(name.clone(), left);
        self.enter(to, &to_name, node);
        let (parent, to) = (self.files[from].id, self.files[to].id);
        self.done(Op::Rename { parent, name: Bytes::from(name), to, to_name: Bytes::from(to_name), flags });
    }

    /// The file was seen to have so many bytes.
    pub(super) fn seen_size(&mut self, node: Node, size: u64) {
        if size > 0 && self.files[node].known.is_empty() {
            self.seen_before(node);
        }
        let file = &mut self.files[node];
        if self.first_pass && file.before && !file.directory && file.known.is_empty() {
            file.size_before = file.size_before.max(size);
            file.size = file.size.max(size);
        }
    }

    /// Its bytes as far as they are known.
    pub(super) fn size(&self, node: Node) -> u64 {
        self.files[node].size
    }

    /// Its attributes were asked for.
    pub(super) fn look(&mut self, node: Node) {
        let file = &self.files[node];
        let (file, size) = (file.id, if file.directory { 0 } else { file.size });
        self.done(Op::GetAttr { file, size });
    }

    /// A directory was listed.
    pub(super) fn list(&mut self, node: Node) {
        let file = self.files[node].id;
        self.done(Op::Readdir { file, position: 0 });
    }

    /// Bytes were read: `len` were asked for, `came` came, of which `bytes` are the first ones known.
    pub(super) fn read(&mut self, node: Node, offset: u64, len: u64, came: u64, bytes: &[u8]) {
        let bytes = first(bytes, came);
        self.show(node, offset, came, bytes);
        for (at, part) in requests(came.max(len.min(REQUEST))) {
            let (offset, came) = (offset + at, came.saturating_sub(at).min(part));
            let content = self.content(offset, came, behind(bytes, at));
            // At the end of the file more was asked for than came.
            let file = self.files[node].id;
            self.done(Op::Read { file, offset, len: part as u32, content });
        }
    }

    /// What a read shows of a file as it was before.
    fn show(&mut self, node: Node, offset: u64, came: u64, bytes: &[u8]) {
        let end = offset.saturating_add(came);
        if !self.files[node].known.gaps(offset, end).is_empty() {
            self.seen_before(node);
        }
        let file = &mut self.files[node];
        if file.directory {
            return;
        }
        file.size = file.size.max(end);
        if !self.first_pass || !file.before {
            return;
        }
        let gaps = file.known.gaps(offset, end);
        if let Some((_, last)) = gaps.last() {
            file.size_before = file.size_before.max(*last);
        }
        file.known.cover(offset, end);
        for (from, to) in gaps {
            let known = first(behind(bytes, from - offset), to - from).to_vec();
            for (at, part) in requests(known.len() as u64) {
                let bytes = &known[at as usize..(at + part) as usize];
                self.write_content(Phase::Setup, node, from + at, bytes, part);
            }
        }
    }

    /// Bytes were written: `len`, of which `bytes` are the first ones known.
    pub(super) fn write_at(&mut self, node: Node, offset: u64, len: u64, bytes: &[u8]) {
        let bytes = first(bytes, len);
        for (at, part) in requests(len) {
            let known = first(behind(bytes, at), part).to_vec();
            self.write_content(Phase::Recorded, node, offset + at, &known, part);
        }
        let file = &mut self.files[node];
        let end = offset.saturating_add(len);
        file.size = file.size.max(end);
        file.known.cover(offset, end);
    }

    fn write_content(&mut self, phase: Phase, node: Node, offset: u64, bytes: &[u8], len: u64) {
        if (phase == Phase::Setup) != self.first_pass {
            return;
        }
        let content = self.content(offset, len, bytes);
        let file = self.files[node].id;
        self.write(phase, 0, Op::Write { file, offset, len: len as u32, cached: false, content });
    }

    fn content(&mut self, offset: u64, len: u64, bytes: &[u8]) -> Content {
        let bytes = first(bytes, len);
        let mut content = match self.writer.content(&pieces(offset, bytes, None)) {
            Ok(content) => content,
            Err(error) => {
                self.error = Some(error);
                return Content::default();
            }
        };
        if (bytes.len() as u64) < len {
            content.0.push(Run::Unknown { len: (len - bytes.len() as u64) as u32 });
        }
        content
    }

    /// The file was cut or extended.
    pub(super) fn truncate(&mut self, node: Node, size: u64) {
        let file = &mut self.files[node];
        file.size = size;
        // What is behind is known from now on: nothing, or zeros.
        file.known.cover(size, u64::MAX);
        let file = file.id;
        self.done(Op::SetAttr { file, set: Attributes { size: Some(size), ..Attributes::default() } });
    }

    /// Its permissions were changed.
    pub(super) fn chmod(&mut self, node: Node, perm: u16) {
        let file = self.files[node].id;
        self.done(Op::SetAttr { file, set: Attributes { perm: Some(perm), ..Attributes::default() } });
    }

    /// Room was asked for, or given back.
    pub(super) fn fallocate(&mut self, node: Node, mode: u32, offset: u64, len: u64) {
        const KEEP_SIZE: u32 = 1;
        let file = &mut self.files[node];
        let end = offset.saturating_add(len);
        if mode & KEEP_SIZE == 0 {
            file.size = file.size.max(end);
        }
        file.known.cover(offset, end);
        let file = file.id;
        self.done(Op::Fallocate { file, mode, offset, len });
    }

    /// The file was made durable.
    pub(super) fn fsync(&mut self, node: Node, datasync: bool) {
        let file = self.files[node].id;
        self.done(Op::Fsync { file, datasync });
    }

    /// Everything was.
    pub(super) fn sync(&mut self) {
        self.done(Op::Sync);
    }

    /// The file was opened or closed.
    pub(super) fn opened(&mut self, node: Node, flags: i32) {
        let file = self.files[node].id;
        self.done(Op::Open { file, flags });
    }

    /// The file was closed.
    pub(super) fn closed(&mut self, node: Node) {
        let file = self.files[node].id;
        self.done(Op::Close { file });
    }
}
