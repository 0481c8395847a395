//! Through directories, past damage.
//!
//! Directories wait in a list, and what is found in one goes to the sink as it is found, so that neither
//! depth nor size of a directory becomes memory. A directory that was met before is not entered again:
//! neither circles nor second names make a walk without end.

use crate::doubt;
use crate::homes::Homes;
use crate::names::BadNames;
use crate::outcome::{Failure, Lost, Outcome};
use crate::place::{MOST_LEVELS, Place};
use crate::seen::Seen;
use crate::sink::{Meta, Settled, Sink};
use crate::told::{Fault, why_no_target};
use medfs::{Attr, DirEntry, FileKind, Files, Ino, PastDamage, Piece, Volume};
use medfs_fsck::Cut;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, ErrorKind};

/// A walk, and what came of it so far.
pub struct Walk<'v, S> {
    pub(crate) volume: &'v Volume,
    pub(crate) past: PastDamage<'v>,
    /// Where files go.
    pub sink: S,
    pub(crate) outcome: Outcome,
    /// What the present tree has led to.
    pub(crate) seen: Seen,
    /// Files that have several names.
    pub(crate) links: HashMap<Ino, Brought>,
    /// What a repair has cut off files.
    pub(crate) cuts: HashMap<Ino, Vec<Cut>>,
    /// Files that are not as they were last: newer content was fsynced than is shown, or they were made anew.
    pub(crate) older: BTreeMap<Ino, Older>,
    /// Of a salvage: where directories are, for what no directory names.
    pub(crate) homes: Option<Homes>,
    /// Whether it was told that a part of the NAT cannot be read.
    pub(crate) is_gap_told: bool,
    /// Whether files are as of a checkpoint, where one with a size and no content is one that is all holes.
    pub(crate) has_checkpoint: bool,
    /// Where what no directory names may have been removed: what was not.
    pub(crate) not_removed: Option<BTreeSet<Ino>>,
    /// The kind of file that the entry in hand says.
    pub(crate) says: Option<FileKind>,
    /// Directories to which an entry leads whose own entry is elsewhere, and where that would put them: they are
    /// entered there where nothing else leads to them.
    misled: Vec<(Ino, Place)>,
}

/// A file of several names that was brought under one of them.
pub(crate) struct Brought {
    pub(crate) place: Place,
    faults: Vec<Fault>,
    /// Whether something was told of it under its first name.
    pub(crate) is_flawed: bool,
    /// How many names it has, and how many of them are in the present tree.
    pub(crate) names: u32,
    pub(crate) met: u32,
}

/// Why a file is not as it was last.
pub(crate) struct Older {
    pub(crate) reason: String,
    /// A name has led to it.
    pub(crate) met: bool,
}

/// What is to be done, the last first.
enum Task {
    /// `bool`: something is told of it already.
    Enter(Ino, Place, bool),
    Leave(Place, Box<Meta>),
}

impl<'v, S: Sink> Walk<'v, S> {
    /// A walk that has brought nothing yet.
    pub fn new(volume: &'v Volume, sink: S) -> Walk<'v, S> {
        let (seen, links, cuts, says) = (Seen::default(), HashMap::new(), HashMap::new(), None);
        let past = PastDamage::of(volume);
        let mut outcome = Outcome::default();
        let mut older = BTreeMap::new();
        for (ino, reason) in past.unrecovered() {
            match ino {
                Some(ino) => drop(older.insert(ino, Older { reason, met: false })),
                None => outcome.fail(Failure { path: b"/".to_vec(), ino, reason, lost: Lost::default() }),
            }
        }
        let (homes, is_gap_told, has_checkpoint) = (None, false, true);
        Walk {
            volume,
            past,
            sink,
            outcome,
            seen,
            links,
            cuts,
            older,
            homes,
            is_gap_told,
            has_checkpoint,
            not_removed: None,
            says,
            misled: Vec::new(),
        }
    }

    /// What came of it, and the sink.
    pub fn finish(mut self) -> (Outcome, S) {
        for (at, meta) in self.homes.take().map_or_else(Vec::new, Homes::into_left) {
            let left = self.sink.leave(&at, &meta);
            // That nothing more can be written was told where it was met.
            let _ = self.pass(&at, Some(meta.attr.ino), left);
        }
        // Files that nothing has led to: they may be new since the last checkpoint.
        for (ino, older) in std::mem::take(&mut self.older).into_iter().filter(|(_, older)| !older.met) {
            let path = format!("inode {ino}").into_bytes();
            self.outcome.fail(Failure { path, ino: Some(ino), reason: older.reason, lost: Lost::default() });
        }
        (self.outcome, self.sink)
    }

    /// Brings a file, or a directory with all below it; `entry` is the directory and the name that led to it,
    /// where that is known. An error ends the walk: nothing more can be written to the sink.
    pub fn tree(&mut self, ino: Ino, at: Place, entry: Option<(Ino, &[u8])>) -> io::Result<()> {
        // Trees that are asked for may overlap.
        self.seen = Seen::default();
        self.links.values_mut().for_each(|brought| brought.met = 0);
        self.says = entry.and_then(|(dir, name)| doubt::kind_in(self.volume, dir, name));
        self.below(ino, at, entry)
    }

    /// The same, as a part of the present tree.
    pub(crate) fn below(&mut self, ino: Ino, at: Place, entry: Option<(Ino, &[u8])>) -> io::Result<()> {
        let mut tasks = Vec::new();
        self.one(ino, at, entry, &mut tasks)?;
        loop {
            while let Some(task) = tasks.pop() {
                match task {
                    Task::Enter(ino, at, is_flawed) => self.enter(ino, at, is_flawed, &mut tasks)?,
                    Task::Leave(at, meta) => self.leave(at, meta)?,
                }
            }
            let Some((ino, at)) = self.misled.pop() else { return Ok(()) };
            self.one(ino, at, None, &mut tasks)?;
        }
    }

    fn leave(&mut self, at: Place, meta: Box<Meta>) -> io::Result<()> {
        match &mut self.homes {
            Some(homes) => homes.leave_later(at, meta),
            None => {
                let left = self.sink.leave(&at, &meta);
                self.pass(&at, Some(meta.attr.ino), left)?;
            }
        }
        Ok(())
    }

    fn enter(&mut self, ino: Ino, at: Place, is_flawed: bool, tasks: &mut Vec<Task>) -> io::Result<()> {
        let (past, mut ended) = (self.past, Ok(()));
        let mut lost = Lost::default();
        let mut reason = None;
        let mut bad = BadNames::default();
        let listed = past.readdir(ino, &mut |entry| {
            match entry {
                Ok(entry) if bad.note(&entry.name) => {}
                Ok(entry) => ended = self.entry((ino, &at), entry, tasks),
                Err(gap) => {
                    reason.get_or_insert(gap.error.to_string());
                    lost.add(gap.bytes);
                }
            }
            ended.is_ok()
        });
        ended?;
        self.add_cuts(ino, &mut lost, &mut reason);
        if let Err(error) = listed {
            reason.get_or_insert(error.to_string());
        }
        if let Some(names) = bad.told() {
            reason = Some(match reason {
                Some(reason) => format!("{reason}; {names}"),
                None => names,
            });
        }
        if let Some(reason) = reason.or_else(|| self.short_of(ino)) {
            let reason = format!("the directory is damaged, and names may be missing: {reason}");
            self.outcome.torn += 1;
            self.outcome.flawed += u64::from(!is_flawed);
            self.outcome.fail(Failure { path: at.path(), ino: Some(ino), reason, lost });
        }
        Ok(())
    }

    fn entry(
        &mut self,
        (dir, place): (Ino, &Place),
        entry: DirEntry,
        tasks: &mut Vec<Task>,
    ) -> io::Result<()> {
        if entry.name == b"." || entry.name == b".." {
            return Ok(());
        }
        let at = place.below(&entry.name);
        self.says = entry.kind;
        let is_read = self.one(entry.ino, at, Some((dir, &entry.name)), tasks)?;
        self.outcome.torn += u64::from(!is_read && entry.kind == Some(FileKind::Directory));
        self.outcome.unread += u64::from(!is_read && entry.kind == Some(FileKind::Regular));
        Ok(())
    }

    /// Brings a file, or makes a directory that is to be entered; `false`: its inode cannot be read.
    fn one(
        &mut self,
        ino: Ino,
        at: Place,
        entry: Option<(Ino, &[u8])>,
        tasks: &mut Vec<Task>,
    ) -> io::Result<bool> {
        let says = self.says.take();
        if let Err(error) = self.volume.hold(ino, 1) {
            if self.volume.geometry().is_nid(ino) {
                self.seen.insert(ino);
            }
            self.fail(&at, Some(ino), format!("its inode cannot be read: {error}"));
            return Ok(false);
        }
        let attr = self.volume.getattr(ino);
        let brought = match attr {
            Ok(attr) => self.held(attr, at, (entry, says), tasks),
            Err(error) => self.pass(&at, Some(ino), Err(io::Error::other(error))).map(drop),
        };
        self.volume.release(ino, 1);
        brought.map(|()| true)
    }

    fn held(
        &mut self,
        attr: Attr,
        at: Place,
        (entry, says): (Option<(Ino, &[u8])>, Option<FileKind>),
        tasks: &mut Vec<Task>,
    ) -> io::Result<()> {
        let ino = attr.ino;
        if let Some((dir, name)) = entry
            && self.misled.len() < doubt::MOST_MISLED
            && doubt::is_misled(self.volume, &attr, dir, name)
        {
            self.misled.push((ino, at));
            return Ok(());
        }
        let is_new = self.seen.insert(ino);
        let told = self.outcome.told();
        if let Some(older) = self.older.get_mut(&ino) {
            older.met = true;
            let reason = older.reason.clone();
            self.fail(&at, Some(ino), reason);
        }
        if self.is_of_other_kind(&attr, says, &at) {
            return Ok(());
        }
        if attr.kind == FileKind::Directory {
            return self.directory(attr, at, is_new.then_some(told), tasks);
        }
        let doubt = entry.and_then(|(dir, name)| doubt::of(self.volume, &attr, dir, name, is_new));
        if let Some(doubt) = doubt {
            self.outcome.torn += 1;
            self.fail(&at, Some(ino), doubt);
        }
        let brought = match self.file(&attr, &at) {
            // Two entries of one name, in a damaged directory.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let other = at.renamed(format!(".{ino}").as_bytes());
                let text =
                    format!("another file has its name: the copy is named {}", other.path().escape_ascii());
                self.fail(&at, Some(ino), text);
                let brought = self.file(&attr, &other);
                self.or_failed(&other, ino, brought)?
            }
            brought => self.or_failed(&at, ino, brought)?,
        };
        let is_flawed = self.outcome.told() > told;
        self.outcome.files += u64::from(brought);
        self.outcome.flawed += u64::from(brought && is_flawed);
        if let Some(link) = self.links.get_mut(&ino).filter(|link| link.met == 1) {
            link.is_flawed = is_flawed;
        }
        Ok(())
    }

    /// Makes a directory that is to be entered. `told` is how much had been told before anything was of it;
    /// `None` where it was met before.
    fn directory(
        &mut self,
        attr: Attr,
        at: Place,
        told: Option<u64>,
        tasks: &mut Vec<Task>,
    ) -> io::Result<()> {
        let ino = attr.ino;
        let Some(told) = told else {
            self.fail(&at, Some(ino), format!("directory {ino} has a second name or contains itself"));
            return Ok(());
        };
        if at.level() >= MOST_LEVELS {
            self.fail(&at, Some(ino), format!("it is more than {MOST_LEVELS} directories deep"));
            self.leave_below(ino, &at);
            return Ok(());
        }
        let made = self.sink.enter(&at);
        if self.pass(&at, Some(ino), made)? {
            let (meta, faults) = self.meta(attr);
            self.tell(ino, &at, &Settled::at(&at), &faults);
            self.outcome.directories += 1;
            let is_flawed = self.outcome.told() > told;
            self.outcome.flawed += u64::from(is_flawed);
            if let Some(homes) = &mut self.homes {
                homes.add(ino, at.clone());
            }
            tasks.push(Task::Leave(at.clone(), Box::new(meta)));
            tasks.push(Task::Enter(ino, at, is_flawed));
        } else {
            self.leave_below(ino, &at);
        }
        Ok(())
    }

    /// Brings a file that is no directory, or its next name; `false` where nothing of it was.
    fn file(&mut self, attr: &Attr, at: &Place) -> io::Result<bool> {
        if let Some(mut first) = self.links.remove(&attr.ino) {
            first.met += 1;
            if first.met > attr.nlink {
                self.fail(at, Some(attr.ino), doubt::of_many(attr, first.met));
            }
            let whole = Lost::default();
            let lost =
                first.faults.iter().map(|fault| &fault.lost).find(|lost| lost.bytes > 0 || lost.unsure);
            let linked = self.sink.link(&first.place, at, lost.unwrap_or(&whole));
            if let Ok(settled) = &linked {
                self.tell(attr.ino, at, settled, &first.faults);
            }
            self.links.insert(attr.ino, first);
            return linked.map(|_| true);
        }
        let (meta, mut faults) = self.meta(attr.clone());
        let at_place = || Settled::at(at);
        let settled = if meta.attr.kind == FileKind::Regular {
            self.content(at, &meta, &mut faults)?
        } else {
            self.special(at, &meta)?.then(at_place)
        };
        let is_brought = settled.is_some();
        let settled = settled.unwrap_or_else(at_place);
        self.tell(attr.ino, at, &settled, &faults);
        if !is_brought {
            return Ok(false);
        }
        if attr.nlink > 1 {
            faults.retain(|fault| !fault.is_mended(&settled, at));
            let place = settled.place;
            self.links
                .insert(attr.ino, Brought { place, faults, is_flawed: false, names: attr.nlink, met: 1 });
        }
        Ok(true)
    }

    /// `false`, and noted, where one file met an error.
    fn or_failed(&mut self, at: &Place, ino: Ino, brought: io::Result<bool>) -> io::Result<bool> {
        match brought {
            Ok(brought) => Ok(brought),
            Err(error) => self.pass(at, Some(ino), Err(error)),
        }
    }

    /// Attributes and extended attributes, as far as they can be read.
    fn meta(&self, attr: Attr) -> (Meta, Vec<Fault>) {
        let ino = attr.ino;
        let mut xattrs = Vec::new();
        let mut first = None;
        match self.volume.listxattr(ino) {
            Ok(names) => {
                for name in names {
                    match self.volume.getxattr(ino, &name) {
                        Ok(value) => xattrs.push((name, value)),
                        Err(error) => drop(first.get_or_insert(error.to_string())),
                    }
                }
            }
            Err(error) => first = Some(error.to_string()),
        }
        if self.lacks_attributes(ino) {
            first.get_or_insert("they are damaged".into());
        }
        let of_nobody = [attr.uid, attr.gid].contains(&u32::MAX);
        let owner = of_nobody.then(|| "its owner or group is none that a file can have".to_owned());
        let fault = first.map(|reason| format!("some of its extended attributes cannot be read: {reason}"));
        let faults = owner.into_iter().chain(fault);
        (Meta { attr, xattrs }, faults.map(|reason| Fault { reason, lost: Lost::default() }).collect())
    }

    /// Brings a regular file: where it is now, or `None` where nothing of it was brought.
    fn content(&mut self, at: &Place, meta: &Meta, faults: &mut Vec<Fault>) -> io::Result<Option<Settled>> {
        let (ino, bytes) = (meta.attr.ino, self.outcome.bytes);
        self.sink.begin(at)?;
        let (mut lost, mut reason, mut written) = (Lost::default(), None, Ok(()));
        let (sink, outcome) = (&mut self.sink, &mut self.outcome);
        let read = self.past.read(ino, &mut |piece| {
            match piece {
                Piece::Data(offset, bytes) => {
                    written = sink.data(offset, bytes);
                    outcome.bytes += bytes.len() as u64;
                }
                Piece::Lost(range, error) => {
                    reason.get_or_insert(error.to_string());
                    lost.add(range);
                    sink.gap();
                }
            }
            written.is_ok()
        });
        if let Err(error) = written.and(read.map_err(io::Error::other)) {
            self.sink.give_up(at);
            self.outcome.bytes = bytes;
            return self.not_brought(at, ino, error);
        }
        self.add_cuts(ino, &mut lost, &mut reason);
        let short = self.short_of(ino);
        lost.unsure = short.is_some() || self.older.contains_key(&ino);
        let ended = self.sink.end(at, meta, &lost);
        if ended.as_ref().is_ok_and(|settled| lost.bytes == 0 && !settled.place.is(at)) {
            let reason = lost.why_beside().to_owned();
            faults.push(Fault { reason, lost: lost.clone() });
        }
        if let Some(reason) = reason {
            let reason =
                format!("{lost} of {} cannot be read and were left as holes: {reason}", meta.attr.size);
            faults.push(Fault { reason, lost });
        } else if let Some(reason) = short {
            faults.push(Fault { reason, lost });
        }
        match ended {
            Ok(settled) => Ok(Some(settled)),
            Err(error) => {
                if is_final(&error) {
                    self.outcome.bytes = bytes;
                }
                self.not_brought(at, ino, error)
            }
        }
    }

    /// Notes an error of a file that is not brought. One that every file would meet is noted by whoever ends the walk.
    fn not_brought(&mut self, at: &Place, ino: Ino, error: io::Error) -> io::Result<Option<Settled>> {
        if is_final(&error) {
            return Err(error);
        }
        self.fail(at, Some(ino), error.to_string());
        Ok(None)
    }

    fn special(&mut self, at: &Place, meta: &Meta) -> io::Result<bool> {
        let ino = meta.attr.ino;
        let target = match meta.attr.kind {
            FileKind::Symlink => match self.volume.readlink(ino) {
                Ok(target) => target,
                Err(error) => {
                    self.fail(at, Some(ino), why_no_target(&error));
                    return Ok(false);
                }
            },
            _ => Vec::new(),
        };
        self.sink.special(at, meta, &target).map(|()| true)
    }

    /// Notes an error of one file and goes on: `false`. One that every file would meet ends the walk, and is noted too.
    fn pass(&mut self, at: &Place, ino: Option<Ino>, result: io::Result<()>) -> io::Result<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if is_final(&error) => {
                self.fail(at, ino, error.to_string());
                Err(error)
            }
            Err(error) => {
                self.fail(at, ino, error.to_string());
                Ok(false)
            }
        }
    }

    pub(crate) fn fail(&mut self, at: &Place, ino: Option<Ino>, reason: String) {
        self.outcome.fail(Failure { path: at.path(), ino, reason, lost: Lost::default() });
    }
}

/// Whether the next file would meet the same error.
fn is_final(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem)
}
