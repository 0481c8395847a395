//! What a walk is told before it begins of what is not certain, or lost, of the whole volume.

use crate::doubt;
use crate::homes::Homes;
use crate::outcome::{Failure, Lost};
use crate::place::Place;
use crate::sink::Settled;
use crate::walk::{Older, Walk};
use medfs::{Attr, Error, FileKind, Files, Posix};
use medfs_format::{BLOCK_SIZE, Ino};
use medfs_fsck::{Altered, Cut, LogGaps, LostFile};
use std::collections::BTreeSet;

/// Pages that are named of a file.
const MOST_PAGES: usize = 8;

/// What is said of a file whose nodes lead to fewer blocks than it has.
pub const SHORT: &str =
    "its inode counts more blocks than it leads to: content may be missing, with zeros in its place";

/// What is said of a compressed file whose clusters do not fit its count.
pub(crate) const UNMARKED: &str = "its inode counts other blocks as saved by compression than its clusters save: parts of the content may be \
     compressed bytes";

/// What is said of a file whose content seems to be in its inode, which denies that.
pub(crate) const STRANGE: &str =
    "its inode has no blocks, but other bytes than addresses in their place: zeros were brought of it";

/// What is said of a file whose size may be wrong.
pub(crate) const BEHIND_END: &str =
    "blocks with content lie behind its end: its size may be wrong, and content missing";

/// What is said of a file of holes where no checkpoint tells that it is one.
const EMPTY: &str = "it has a size, but no content: what it held may have been written, and is not found";

/// What is said of a name whose inode is lost.
const INODE_LOST: &str = "its inode is lost";

/// What is said of a symbolic link that leads nowhere.
const TARGET_LOST: &str = "its target is lost";

/// Why the target of a symbolic link is not told. Of one that is lost nothing is found in its place.
pub fn why_no_target(error: &Error) -> String {
    match error {
        Error::Posix(Posix::NotFound) => TARGET_LOST.to_owned(),
        error => format!("the link's target cannot be read: {error}"),
    }
}

/// What is not as it was of a file that was brought, under each of its names.
pub(crate) struct Fault {
    pub(crate) reason: String,
    pub(crate) lost: Lost,
}

impl Fault {
    /// Whether an earlier copy in this place had all that is missing.
    pub(crate) fn is_mended(&self, settled: &Settled, at: &Place) -> bool {
        self.lost.bytes > 0 && settled.whole && settled.place.is(at)
    }
}

impl<'v, S> Walk<'v, S> {
    /// Says that what no directory names is to be brought too, by [`Walk::unnamed`]. `lost`: names that have
    /// lost their inodes, and so are not come to.
    pub fn for_unnamed(mut self, lost: &[LostFile]) -> Walk<'v, S> {
        self.homes = Some(Homes::new(lost));
        for LostFile { path, ino } in lost {
            let reason = INODE_LOST.to_owned();
            self.outcome.fail(Failure { path: path.clone(), ino: Some(*ino), reason, lost: Lost::default() });
        }
        self
    }

    /// Tells what a repair has cut off the files of the volume.
    pub fn with_cuts(mut self, cuts: Vec<Cut>) -> Walk<'v, S> {
        for cut in cuts {
            self.cuts.entry(cut.ino).or_default().push(cut);
        }
        self
    }

    /// Tells that no checkpoint is left: the content of a file may not have been written when its inode was.
    pub fn without_checkpoint(mut self, is_lost: bool) -> Walk<'v, S> {
        self.has_checkpoint &= !is_lost;
        self
    }

    /// Tells that a file that no directory names may have been removed: it does not get its own name beside others, as
    /// a database would replay an old journal. `but`: those that were not, where that is so.
    pub fn without_journals(mut self, but: Option<BTreeSet<Ino>>) -> Walk<'v, S> {
        self.not_removed = but;
        self
    }

    /// Tells of which of the lost names the inodes are symbolic links that have lost their targets.
    pub fn with_targets_lost(mut self, links: &BTreeSet<Ino>) -> Walk<'v, S> {
        for failure in &mut self.outcome.failures {
            if failure.reason == INODE_LOST && failure.ino.is_some_and(|ino| links.contains(&ino)) {
                failure.reason = TARGET_LOST.to_owned();
            }
        }
        self
    }

    /// Tells why not all of the content is certain.
    pub fn with_doubt(mut self, doubt: Option<String>) -> Walk<'v, S> {
        if let Some(reason) = doubt {
            self.outcome.fail(Failure { path: b"/".to_vec(), ino: None, reason, lost: Lost::default() });
        }
        self
    }

    /// Tells which files may lack a part of what was fsynced, as blocks of the fsync log could not be read.
    pub fn with_log_gaps(mut self, gaps: Option<LogGaps>) -> Walk<'v, S> {
        let Some(gaps) = gaps else { return self };
        let (blocks, are) = match gaps.blocks[..] {
            [block] => (format!("block {block} of the fsync log"), "is"),
            ref blocks => (format!("{} blocks of the fsync log", blocks.len()), "are"),
        };
        let reason = format!("{blocks} {are} lost or cannot be read: what was fsynced there is missing");
        self.outcome.fail(Failure { path: b"/".to_vec(), ino: None, reason, lost: Lost::default() });
        for (ino, name) in gaps.files {
            let named =
                if name.is_empty() { String::new() } else { format!(" (as {})", name.escape_ascii()) };
            let reason = format!("it was fsynced{named} behind {blocks}, and parts of it may be older");
            self.older.insert(ino, Older { reason, met: false });
        }
        self
    }

    /// Tells which files and directories are not as they were.
    pub fn with_altered(mut self, altered: Altered) -> Walk<'v, S> {
        for &ino in &altered.emptied {
            let reason = "the first sector of its inode is lost, and what it held with it: it is empty here, and mode, owner, \
                 times and attributes are lost";
            self.add_reason(ino, reason);
        }
        for &ino in altered.rebuilt.difference(&altered.emptied) {
            let reason = "its inode is lost: it was rebuilt from its nodes and blocks, with a size up to its last page, \
                 and mode, owner, times and attributes are lost";
            self.add_reason(ino, reason);
        }
        for ino in altered.remade {
            let reason = "its inode is lost: the directory was created again, and mode, owner, times and attributes are lost";
            self.add_reason(ino, reason);
        }
        for ino in altered.doubted {
            let reason =
                "the checksum of its inode is wrong, or a field: what was brought of it may be wrong too";
            self.add_reason(ino, reason);
        }
        for ino in altered.unkept {
            let reason =
                "the device changed what was fsynced of it: what was brought may be older or damaged";
            self.add_reason(ino, reason);
        }
        for (ino, pages) in altered.reverted {
            let reason = match pages {
                None => "some of its latest changes are lost, and nothing tells which: parts of it may be older or damaged, so \
                     check its content before you rely on it"
                    .to_owned(),
                Some(pages) => {
                    let shown: Vec<String> = pages.iter().take(MOST_PAGES).map(u32::to_string).collect();
                    let more = pages.len().saturating_sub(MOST_PAGES);
                    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                    let what = if pages.len() == 1 { "page" } else { "pages" };
                    let which = format!("{what} {}{more}", shown.join(", "));
                    format!("updates of {which} are lost: what was brought of these is older or damaged")
                }
            };
            self.add_reason(ino, &reason);
        }
        for ino in altered.short {
            self.older.entry(ino).or_insert(Older { reason: SHORT.to_owned(), met: false });
        }
        self
    }

    /// Tells one more thing of a file.
    fn add_reason(&mut self, ino: Ino, reason: &str) {
        self.older
            .entry(ino)
            .and_modify(|older| older.reason = format!("{}; {reason}", older.reason))
            .or_insert_with(|| Older { reason: reason.to_owned(), met: false });
    }

    /// What is told of a file or directory that counts more blocks as its own than its nodes lead to.
    pub(crate) fn short_of(&self, ino: Ino) -> Option<String> {
        doubt::of_content(self.volume, ino).or_else(|| {
            (!self.has_checkpoint && doubt::is_all_holes(self.volume, ino)).then(|| EMPTY.to_owned())
        })
    }

    /// Adds what a repair has cut off a file, within its size.
    pub(crate) fn add_cuts(&mut self, ino: Ino, lost: &mut Lost, reason: &mut Option<String>) {
        const PAGE: u64 = BLOCK_SIZE as u64;
        let Some(cuts) = self.cuts.get(&ino) else { return };
        let size = self.volume.getattr(ino).map_or(0, |attr| attr.size);
        for pages in cuts.iter().filter_map(|cut| cut.pages.as_ref()) {
            let bytes = pages.start.saturating_mul(PAGE)..pages.end.saturating_mul(PAGE).min(size);
            if bytes.start < bytes.end {
                reason.get_or_insert("its blocks, or the nodes that lead to them, are damaged".into());
                lost.add(bytes);
            }
        }
    }

    /// Notes what is wrong with a file that was brought, under one of its names.
    pub(crate) fn tell(&mut self, ino: Ino, at: &Place, settled: &Settled, faults: &[Fault]) {
        for Fault { reason, lost } in faults.iter().filter(|fault| !fault.is_mended(settled, at)) {
            let mut reason = reason.clone();
            if lost.bytes > 0 && settled.filled {
                reason += "; the pages of an earlier copy fill them";
            }
            if (lost.bytes > 0 || lost.unsure) && !settled.place.is(at) {
                let called = settled.place.names().last().map(|name| name.escape_ascii().to_string());
                let called = called.unwrap_or_default();
                let why = if lost.bytes > 0 { "has more" } else { "differs" };
                reason += &format!("; the existing file {why} and stays, and the copy is named {called}");
            }
            self.outcome.fail(Failure { path: at.path(), ino: Some(ino), reason, lost: lost.clone() });
        }
    }

    /// Whether extended attributes of a file are lost, by a repair or by junk in their place.
    pub(crate) fn lacks_attributes(&self, ino: Ino) -> bool {
        let is_cut = self.cuts.get(&ino).is_some_and(|cuts| cuts.iter().any(|cut| cut.pages.is_none()));
        is_cut || self.past.has_junk_for_attributes(ino).unwrap_or(false)
    }

    /// Whether a file is not to be brought: it is no regular file or directory, and its entry says another kind. That
    /// is told, as it is of a file that is brought all the same.
    pub(crate) fn is_of_other_kind(&mut self, attr: &Attr, says: Option<FileKind>, at: &Place) -> bool {
        let Some(reason) = doubt::of_kind(attr, says) else { return false };
        self.outcome.torn += 1;
        let (path, ino, lost) = (at.path(), Some(attr.ino), Lost::default());
        self.outcome.fail(Failure { path, ino, reason, lost });
        !matches!(attr.kind, FileKind::Regular | FileKind::Directory)
    }

    /// Tells how many files and directories of the volume are lost, beside those that have left a name.
    pub fn with_gone(mut self, gone: u64) -> Walk<'v, S> {
        self.outcome.gone = gone;
        self
    }
}
