//! What threads did to files, and what a read or a power cut may therefore show.
//!
//! Every page, size and name of a file has versions, each with the moments at which the change began and
//! returned. One thread alone changes a page, so the versions are in order. A read may show any version from
//! the last one that was there before the read began to the last one that began before the read returned.
//! After a power cut the oldest one allowed is that of the last fsync that returned.
//!
//! Locks: one mutex without points, held for the length of a note or a look.

use medfs::Ino;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes in a page.
pub const PAGE: usize = 4096;
/// A page's bytes.
pub type Page = Arc<[u8; PAGE]>;

/// The clock of a run: each moment comes once.
#[derive(Debug, Default)]
pub struct Moments(AtomicU64);

impl Moments {
    /// The next moment.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// When a change began, and when the call returned.
#[derive(Debug, Clone, Copy)]
struct Span {
    begin: u64,
    end: u64,
}

const FROM_THE_START: Span = Span { begin: 0, end: 0 };

#[derive(Debug, Clone)]
struct Version<T> {
    /// When readers come to see it.
    seen: Span,
    /// When it comes to count for power cuts: later in an atomic write.
    kept: Span,
    /// Atomic write that it belongs to, 0 for none.
    group: u64,
    value: T,
}

/// Versions of one thing, oldest first.
#[derive(Debug, Clone)]
struct Versions<T>(Vec<Version<T>>);

impl<T> Versions<T> {
    fn of(value: T) -> Versions<T> {
        Versions(vec![Version { seen: FROM_THE_START, kept: FROM_THE_START, group: 0, value }])
    }

    fn last(&self) -> &T {
        &self.0.last().expect("there is a first version").value
    }

    fn push(&mut self, value: T, begin: u64, group: u64) {
        let seen = Span { begin, end: u64::MAX };
        let kept = if group == 0 { seen } else { Span { begin: u64::MAX, end: u64::MAX } };
        self.0.push(Version { seen, kept, group, value });
    }

    /// The change that began at `begin`, where it is the last one, has returned.
    fn settle(&mut self, begin: u64, end: u64) {
        let last = self.0.last_mut().expect("there is a first version");
        if last.seen.begin != begin {
            return;
        }
        last.seen.end = last.seen.end.min(end);
        if last.group == 0 {
            last.kept.end = last.kept.end.min(end);
        }
    }

    fn allowed(&self, known: u64, until: u64, span: impl Fn(&Version<T>) -> Span) -> RangeInclusive<usize> {
        let oldest = self.0.iter().rposition(|v| span(v).end <= known).unwrap_or(0);
        let newest = self.0.iter().rposition(|v| span(v).begin <= until).unwrap_or(0);
        oldest..=newest
    }

    fn readable(&self, from: u64, until: u64) -> &[Version<T>] {
        &self.0[self.allowed(from, until, |v| v.seen)]
    }
}

/// A file.
#[derive(Debug, Clone)]
struct File {
    ino: Ino,
    pages: BTreeMap<u64, Versions<Page>>,
    size: Versions<u64>,
    name: Versions<Option<String>>,
    /// It may have gone, and its number may be another's.
    released: bool,
    /// A change failed for want of space: what it left is not known.
    unknown: bool,
}

/// What a call made durable when it returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// Content and size of a file.
    Content(usize),
    /// Those and its name.
    File(usize),
    /// The names of all files.
    Names,
    /// Everything.
    All,
}

#[derive(Default)]
struct Inner {
    files: Vec<File>,
    /// When a call began that made something durable, and when it returned.
    durable: Vec<(Durable, Span)>,
    groups: u64,
}

/// The history of a run.
#[derive(Default)]
pub struct History {
    /// Its clock.
    pub moments: Arc<Moments>,
    inner: Mutex<Inner>,
}

fn zeros() -> Page {
    Arc::new([0; PAGE])
}

/// A page as it reads where the file ends at `size`.
fn cut(page: &Page, index: u64, size: u64) -> &[u8] {
    let rest = size.saturating_sub(index * PAGE as u64).min(PAGE as u64);
    &page[..rest as usize]
}

/// What a page holds, shortly.
fn shown(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0u32, |sum, b| sum.rotate_left(5) ^ u32::from(*b));
    format!("{sum:08x}/{}", bytes.len())
}

impl History {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// The next moment.
    pub fn now(&self) -> u64 {
        self.moments.next()
    }

    /// A file that was there before anything happened, or that a thread has just made.
    pub fn add(&self, ino: Ino, content: &[u8], name: Option<String>) -> usize {
        let pages = (0..).zip(content.chunks(PAGE)).map(|(index, bytes)| {
            let mut page = [0; PAGE];
            page[..bytes.len()].copy_from_slice(bytes);
            (index, Versions::of(Arc::new(page)))
        });
        let mut inner = self.inner();
        inner.files.push(File {
            ino,
            pages: pages.collect(),
            size: Versions::of(content.len() as u64),
            name: Versions::of(name),
            released: false,
            unknown: false,
        });
        inner.files.len() - 1
    }

    /// The number of a file.
    pub fn ino(&self, file: usize) -> Ino {
        self.inner().files[file].ino
    }

    /// The content of a file as its thread knows it.
    pub fn content(&self, file: usize) -> Vec<u8> {
        let inner = self.inner();
        let file = &inner.files[file];
        let mut content = vec![0; *file.size.last() as usize];
        for (index, versions) in &file.pages {
            let at = *index as usize * PAGE;
            if at < content.len() {
                let end = content.len().min(at + PAGE);
                content[at..end].copy_from_slice(&versions.last()[..end - at]);
            }
        }
        content
    }

    /// A page as its thread knows it.
    pub fn page(&self, file: usize, index: u64) -> Page {
        self.inner().files[file].pages.get(&index).map_or_else(zeros, |page| page.last().clone())
    }

    /// The size of a file as its thread knows it.
    pub fn size(&self, file: usize) -> u64 {
        *self.inner().files[file].size.last()
    }

    /// The name of a file as its thread knows it.
    pub fn name(&self, file: usize) -> Option<String> {
        self.inner().files[file].name.last().clone()
    }

    /// The file that has a name, as its thread knows.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.inner().files.iter().rposition(|file| file.name.last().as_deref() == Some(name))
    }

    /// A number for an atomic write.
    pub fn group(&self) -> u64 {
        let mut inner = self.inner();
        inner.groups += 1;
        inner.groups
    }

    /// Bytes are about to be written; [`History::changed`] follows.
    pub fn write(&self, file: usize, offset: u64, data: &[u8], group: u64) -> u64 {
        let begin = self.now();
        let mut inner = self.inner();
        let file = &mut inner.files[file];
        let mut done = 0;
        while done < data.len() {
            let at = offset as usize + done;
            let (index, within) = ((at / PAGE) as u64, at % PAGE);
            let count = (PAGE - within).min(data.len() - done);
            let versions = file.pages.entry(index).or_insert_with(|| Versions::of(zeros()));
            let mut page = **versions.last();
            page[within..within + count].copy_from_slice(&data[done..done + count]);
            versions.push(Arc::new(page), begin, group);
            done += count;
        }
        let end = offset + data.len() as u64;
        if end > *file.size.last() {
            file.size.push(end, begin, 0);
        }
        begin
    }

    /// A file is about to end at `size`, or the whole pages of a range to be zeros; [`History::changed`] follows.
    pub fn zero(&self, file: usize, pages: std::ops::Range<u64>, size: Option<u64>) -> u64 {
        let begin = self.now();
        let mut inner = self.inner();
        let file = &mut inner.files[file];
        for (_, versions) in file.pages.range_mut(pages) {
            versions.push(zeros(), begin, 0);
        }
        if let Some(size) = size {
            if let Some(versions) = file.pages.get_mut(&(size / PAGE as u64)) {
                let mut page = **versions.last();
                page[size as usize % PAGE..].fill(0);
                versions.push(Arc::new(page), begin, 0);
            }
            file.size.push(size, begin, 0);
        }
        begin
    }

    /// A file is about to get a name, or to lose the one that it has; [`History::changed`] follows.
    pub fn rename(&self, file: usize, name: Option<String>) -> u64 {
        self.rename_since(file, name, self.now())
    }

    /// The same, of a change that began at `begin`.
    pub fn rename_since(&self, file: usize, name: Option<String>, begin: u64) -> u64 {
        self.inner().files[file].name.push(name, begin, 0);
        begin
    }

    /// The change of a file that began at `begin` has returned.
    pub fn changed(&self, file: usize, begin: u64) {
        let end = self.now();
        let mut inner = self.inner();
        let file = &mut inner.files[file];
        file.pages.values_mut().for_each(|versions| versions.settle(begin, end));
        file.size.settle(begin, end);
        file.name.settle(begin, end);
    }

    /// An atomic write is about to be committed, or has been.
    pub fn commits(&self, file: usize, group: u64, returned: bool) {
        let now = self.now();
        let mut inner = self.inner();
        let pages = inner.files[file].pages.values_mut().flat_map(|versions| &mut versions.0);
        for version in pages.filter(|version| version.group == group) {
            if returned { version.kept.end = now } else { version.kept.begin = now }
        }
    }

    /// A file may go from now on.
    pub fn release(&self, file: usize) {
        self.inner().files[file].released = true;
    }

    /// Nothing is known of a file any more.
    pub fn forget(&self, file: usize) {
        self.inner().files[file].unknown = true;
    }

    /// Whether what a call says of a file has a meaning.
    pub fn counts(&self, file: usize) -> bool {
        let inner = self.inner();
        !inner.files[file].released && !inner.files[file].unknown
    }

    /// A call that began at `begin` has returned, and made something durable.
    pub fn durable(&self, what: Durable, begin: u64) {
        let end = self.now();
        self.inner().durable.push((what, Span { begin, end }));
    }

    /// Judges a read that began at `begin` and has returned: `bytes` from page `first` on, wanted `wanted` bytes.
    pub fn judge_read(
        &self,
        file: usize,
        first: u64,
        wanted: usize,
        bytes: &[u8],
        begin: u64,
    ) -> Result<(), String> {
        let end = self.now();
        let inner = self.inner();
        let known = &inner.files[file];
        if known.released || known.unknown {
            return Ok(());
        }
        let sizes = known.size.readable(begin, end);
        let length = |size: u64| size.saturating_sub(first * PAGE as u64).min(wanted as u64);
        if !sizes.iter().any(|v| length(v.value) == bytes.len() as u64) {
            return Err(format!(
                "a read of file {file} from page {first} returned {} bytes, at sizes {:?}",
                bytes.len(),
                sizes.iter().map(|v| v.value).collect::<Vec<_>>()
            ));
        }
        for (index, read) in (first..).zip(bytes.chunks(PAGE)) {
            let nothing = Versions::of(zeros());
            let versions = known.pages.get(&index).unwrap_or(&nothing);
            let legal = versions.readable(begin, end);
            if !legal.iter().any(|v| v.value[..read.len()] == *read) {
                let was = versions.0.iter().position(|v| v.value[..read.len()] == *read);
                return Err(format!(
                    "file {file} page {index} read as {} (version {was:?} of {}), not as one of {} legal versions",
                    shown(read),
                    versions.0.len(),
                    legal.len()
                ));
            }
        }
        Ok(())
    }

    /// Judges what is found after a power cut at `at`: `find` looks a name up, `read` gives the content of a file.
    pub fn judge_cut(
        &self,
        at: u64,
        find: &mut dyn FnMut(&str) -> Result<Option<Ino>, String>,
        read: &mut dyn FnMut(Ino) -> Result<Vec<u8>, String>,
    ) -> Result<(), String> {
        let inner = self.inner();
        let names: BTreeSet<&String> =
            inner.files.iter().flat_map(|f| f.name.0.iter().filter_map(|v| v.value.as_ref())).collect();
        let mut found = BTreeMap::new();
        for name in names {
            if let Some(ino) = find(name)? {
                found.insert(name.clone(), ino);
            }
        }
        // Files that had the same number one after the other: one of them is what is found.
        let mut numbers: BTreeMap<Ino, Vec<usize>> = BTreeMap::new();
        for (number, file) in inner.files.iter().enumerate() {
            numbers.entry(file.ino).or_default().push(number);
        }
        for files in numbers.values().filter(|files| !files.iter().any(|&n| inner.files[n].unknown)) {
            let mut judge = |&number: &usize| {
                let file = &inner.files[number];
                let Some(ino) = inner.judge_name(number, file, at, &found)? else { return Ok(()) };
                let content = read(ino).map_err(|e| format!("file {number}: {e}"))?;
                inner.judge_content(number, file, at, &content)
            };
            let judged: Vec<Result<(), String>> = files.iter().map(&mut judge).collect();
            if judged.iter().all(Result::is_err) {
                judged.into_iter().collect::<Result<(), String>>()?;
            }
        }
        Ok(())
    }
}

impl Inner {
    /// When the last call began that returned before `at` and made this durable.
    fn known(&self, at: u64, makes: impl Fn(Durable) -> bool) -> u64 {
        let past = self.durable.iter().filter(|(what, span)| span.end <= at && makes(*what));
        past.map(|(_, span)| span.begin).max().unwrap_or(0)
    }

    /// The number under which a file is found, where it is.
    fn judge_name(
        &self,
        number: usize,
        file: &File,
        at: u64,
        found: &BTreeMap<String, Ino>,
    ) -> Result<Option<Ino>, String> {
        let known = self.known(at, |what| match what {
            Durable::File(n) => n == number,
            Durable::Names | Durable::All => true,
            Durable::Content(_) => false,
        });
        let legal = file.name.allowed(known, at, |v| v.kept);
        let legal: Vec<&Option<String>> = file.name.0[legal].iter().map(|v| &v.value).collect();
        let own = |name: &String| file.name.0.iter().any(|v| v.value.as_ref() == Some(name));
        let names: Vec<&String> =
            found.iter().filter(|(name, ino)| **ino == file.ino && own(name)).map(|(name, _)| name).collect();
        match names[..] {
            [] if legal.iter().any(|name| name.is_none()) || file.released => Ok(None),
            [] => Err(format!("file {number} (inode {}) is lost; its names may be {legal:?}", file.ino)),
            [name] if legal.contains(&&Some(name.clone())) => Ok(Some(file.ino)),
            _ => Err(format!("file {number} (inode {}) is found as {names:?}, not as {legal:?}", file.ino)),
        }
    }

    fn judge_content(&self, number: usize, file: &File, at: u64, content: &[u8]) -> Result<(), String> {
        let known = self.known(at, |what| match what {
            Durable::File(n) | Durable::Content(n) => n == number,
            Durable::Names => false,
            Durable::All => true,
        });
        let size = content.len() as u64;
        let sizes = &file.size.0[file.size.allowed(known, at, |v| v.kept)];
        if !sizes.iter().any(|v| v.value == size) {
            let legal: Vec<u64> = sizes.iter().map(|v| v.value).collect();
            return Err(format!("file {number} has {size} bytes, not one of {legal:?}"));
        }
        // Of each atomic write: whether pages rule out that it is there, or that it is not.
        let mut groups: BTreeMap<u64, (bool, bool)> = BTreeMap::new();
        for (index, read) in (0..).zip(content.chunks(PAGE)) {
            let nothing = Versions::of(zeros());
            let versions = file.pages.get(&index).unwrap_or(&nothing);
            let legal = versions.allowed(known, at, |v| v.kept);
            let fits: Vec<usize> =
                legal.clone().filter(|&n| cut(&versions.0[n].value, index, size) == read).collect();
            if fits.is_empty() {
                let was = versions.0.iter().position(|v| cut(&v.value, index, size) == read);
                return Err(format!(
                    "file {number} page {index} is {} (version {was:?} of {}), not one of {legal:?}",
                    shown(read),
                    versions.0.len()
                ));
            }
            for (n, version) in versions.0.iter().enumerate().filter(|(_, v)| v.group > 0) {
                let (new, old) = groups.entry(version.group).or_default();
                *new |= fits.iter().all(|&fit| fit < n);
                *old |= fits.iter().all(|&fit| fit >= n);
            }
        }
        match groups.iter().find(|(_, (new, old))| *new && *old) {
            Some((group, _)) => Err(format!("file {number} has a part of atomic write {group}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> Vec<u8> {
        vec![byte; PAGE]
    }

    /// A file of two pages whose first page was changed once.
    fn changed() -> (History, usize, u64) {
        let history = History::default();
        let file = history.add(5, &[page(1), page(1)].concat(), Some("f".into()));
        let before = history.now();
        let begin = history.write(file, 0, &page(2), 0);
        history.changed(file, begin);
        (history, file, before)
    }

    fn cut(history: &History, at: u64, content: &[u8]) -> Result<(), String> {
        history.judge_cut(at, &mut |name| Ok((name == "f").then_some(5)), &mut |_| Ok(content.to_vec()))
    }

    #[test]
    fn a_read_shows_what_was_there_while_it_ran() {
        let (history, file, before) = changed();
        let late = history.now();
        assert_eq!(history.judge_read(file, 0, PAGE, &page(1), before), Ok(()));
        assert_eq!(history.judge_read(file, 0, PAGE, &page(2), late), Ok(()));
        assert!(history.judge_read(file, 0, PAGE, &page(1), late).is_err(), "an old version");
        assert!(history.judge_read(file, 0, PAGE, &page(3), before).is_err(), "no version");
        assert!(history.judge_read(file, 0, PAGE, &[2; 9], late).is_err(), "too short");
    }

    #[test]
    fn a_power_cut_leaves_what_was_made_durable_or_newer() {
        let (history, file, before) = changed();
        let (old, new) = ([page(1), page(1)].concat(), [page(2), page(1)].concat());
        let begin = history.now();
        assert_eq!([cut(&history, begin, &old), cut(&history, begin, &new)], [Ok(()), Ok(())]);
        assert!(cut(&history, before, &new).is_err(), "from the future");
        history.durable(Durable::Content(file), begin);
        let end = history.now();
        assert!(cut(&history, end, &old).is_err(), "an fsynced page is lost");
        assert_eq!(cut(&history, end, &new), Ok(()));
        let lost = history.judge_cut(end, &mut |_| Ok(None), &mut |_| Ok(new.clone()));
        assert!(lost.is_err(), "a file without a name");
    }

    #[test]
    fn an_atomic_write_is_there_or_is_not() {
        let history = History::default();
        let file = history.add(5, &[page(1), page(1)].concat(), Some("f".into()));
        let group = history.group();
        let begin = history.write(file, 0, &[page(2), page(2)].concat(), group);
        history.changed(file, begin);
        let states = [[1, 1], [2, 2], [1, 2]].map(|pages| pages.map(page).concat());
        let allowed = |at| states.each_ref().map(|content| cut(&history, at, content).is_ok());
        assert_eq!(allowed(history.now()), [true, false, false]);
        history.commits(file, group, false);
        assert_eq!(allowed(history.now()), [true, true, false]);
    }
}
