//! What a walk is told before it begins of what is not certain, or lost, of the whole volume.

use crate::outcome::{Failure, Lost};
use crate::walk::{Older, Walk};
use medfs_format::Ino;
use medfs_fsck::{LogGaps, Reverted};
use std::collections::{BTreeMap, BTreeSet};

/// Pages that are named of a file.
const MOST_PAGES: usize = 8;

/// What is said of a file whose nodes lead to fewer blocks than it has.
pub const SHORT: &str =
    "its inode counts more blocks than it leads to: content may be missing, with zeros in its place";

impl<'v, S> Walk<'v, S> {
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
        let blocks = match gaps.blocks[..] {
            [block] => format!("block {block} of the fsync log"),
            ref blocks => format!("{} blocks of the fsync log", blocks.len()),
        };
        let reason = format!("{blocks} cannot be read: what was fsynced there is missing");
        self.outcome.fail(Failure { path: b"/".to_vec(), ino: None, reason, lost: Lost::default() });
        for (ino, name) in gaps.files {
            let named =
                if name.is_empty() { String::new() } else { format!(" (as {})", name.escape_ascii()) };
            let reason = format!("it was fsynced{named} behind {blocks}, and parts of it may be older");
            self.older.insert(ino, Older { reason, met: false });
        }
        self
    }

    /// Tells which files were made anew of their nodes and blocks, as their inodes are lost.
    pub fn with_rebuilt(mut self, files: BTreeSet<Ino>) -> Walk<'v, S> {
        for ino in files {
            let reason = "its inode is lost: it was rebuilt from its nodes and blocks, with a size up to its last page, \
                 and mode, owner, times and attributes are lost";
            self.older.insert(ino, Older { reason: reason.to_owned(), met: false });
        }
        self
    }

    /// Tells which files have pages whose last updates are lost: they are brought as they were before these.
    pub fn with_reverted(mut self, files: BTreeMap<Ino, Reverted>) -> Walk<'v, S> {
        for (ino, pages) in files {
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
            let reason =
                format!("updates of {which} are lost: what was brought of these is older or damaged");
            let rebuilt =
                "; updates of its pages that were in the inode are lost too, and these pages are older";
            self.older
                .entry(ino)
                .and_modify(|older| older.reason += rebuilt)
                .or_insert(Older { reason, met: false });
        }
        self
    }

    /// Tells which files count more blocks as their own than a repair found.
    pub fn with_short(mut self, files: BTreeSet<Ino>) -> Walk<'v, S> {
        for ino in files {
            self.older.entry(ino).or_insert(Older { reason: SHORT.to_owned(), met: false });
        }
        self
    }

    /// What is told of a file or directory that counts more blocks as its own than its nodes lead to.
    pub(crate) fn short_of(&self, ino: Ino) -> Option<String> {
        let missing = self.past.blocks_missing(ino).unwrap_or(0);
        (missing > 0).then(|| SHORT.to_owned())
    }

    /// Tells how many files and directories of the volume are lost, beside those that have left a name.
    pub fn with_gone(mut self, gone: u64) -> Walk<'v, S> {
        self.outcome.gone = gone;
        self
    }
}
