//! What a walk is told before it begins of what is not certain, or lost, of the whole volume.

use crate::homes::Homes;
use crate::outcome::{Failure, Lost};
use crate::walk::{Older, Walk};
use medfs::{Error, Posix};
use medfs_format::Ino;
use medfs_fsck::{Altered, LogGaps, LostFile};
use std::collections::BTreeSet;

/// Pages that are named of a file.
const MOST_PAGES: usize = 8;

/// What is said of a file whose nodes lead to fewer blocks than it has.
pub const SHORT: &str =
    "its inode counts more blocks than it leads to: content may be missing, with zeros in its place";

/// What is said of a compressed file whose clusters do not fit its count.
const UNMARKED: &str = "its inode counts other blocks as saved by compression than its clusters save: parts of the content may be \
     compressed bytes";

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
            let reason = "the checksum of its inode is wrong, or a field: what was brought of it may be wrong too";
            self.add_reason(ino, reason);
        }
        for ino in altered.unkept {
            let reason =
                "the device changed what was fsynced of it: what was brought may be older or damaged";
            self.add_reason(ino, reason);
        }
        for (ino, pages) in altered.reverted {
            let which = match pages {
                None => "pages that cannot be told".to_owned(),
                Some(pages) => {
                    let shown: Vec<String> = pages.iter().take(MOST_PAGES).map(u32::to_string).collect();
                    let more = pages.len().saturating_sub(MOST_PAGES);
                    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                    let what = if pages.len() == 1 { "page" } else { "pages" };
                    format!("{what} {}{more}", shown.join(", "))
                }
            };
            self.add_reason(
                ino,
                &format!("updates of {which} are lost: what was brought of these is older or damaged"),
            );
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
        if self.past.blocks_missing(ino).unwrap_or(0) > 0 {
            return Some(SHORT.to_owned());
        }
        self.past.has_wrong_clusters(ino).unwrap_or(false).then(|| UNMARKED.to_owned())
    }

    /// Tells how many files and directories of the volume are lost, beside those that have left a name.
    pub fn with_gone(mut self, gone: u64) -> Walk<'v, S> {
        self.outcome.gone = gone;
        self
    }
}
