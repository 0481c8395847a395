//! Whether a repair tells of every file that is not as it was, by its path.

use super::*;
use crate::model::{Id, Inode, ROOT};
use crate::observe::compare_inode;
use medfs_fsck::Report;

/// What the checks of a repair told of files.
#[derive(Clone, Default)]
pub struct Told {
    /// The paths of those that are kept, though not as they were.
    damaged: BTreeMap<Ino, String>,
    lost: BTreeSet<Ino>,
    /// How many files the checkpoint counts of which nothing tells the names.
    gone: u64,
    /// Whether it is told that the volume is as of another checkpoint, or without a part of its log.
    is_older: bool,
}

impl Told {
    pub(super) fn add(&mut self, report: &Report) {
        let path = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        self.damaged.extend(report.damaged.list.iter().map(|file| (file.ino, path(&file.path))));
        self.gone += report.losses.gone;
        self.lost.extend(report.lost.iter().map(|file| file.ino));
        let older = [Code::CheckpointOlder, Code::CheckpointLost, Code::LogNode, Code::LogUnkept];
        self.is_older |= older.iter().any(|code| report.has(*code));
    }

    /// What was told of files later is told too.
    pub(super) fn also(&mut self, later: Told) {
        self.damaged.extend(later.damaged);
        self.lost.extend(later.lost);
        self.gone += later.gone;
        self.is_older |= later.is_older;
    }
}

impl Volume {
    /// Every file that is gone is told as lost, and every one that is there and another one than before as damaged,
    /// with its path. One flipped bit, or a part of a block that was written, nothing may tell.
    pub(super) fn judge_told(
        &self,
        hits: &[(Target, Damage)],
        found: &Model,
        told: &Told,
    ) -> Result<(), Failure> {
        let is_of_log = |part| matches!(part, Part::Log | Part::Pack(true) | Part::Superblock);
        let may_be_unseen =
            |(target, damage): &(Target, Damage)| Damage::IN_PART.contains(damage) || is_of_log(target.part);
        if told.is_older || hits.iter().any(may_be_unseen) {
            return Ok(());
        }
        let by_ino: BTreeMap<Ino, &Inode> = found.inodes().map(|(_, inode)| (inode.ino, inode)).collect();
        for (id, was) in self.shown.inodes().filter(|(id, _)| *id != ROOT) {
            let (ino, path) = (was.ino, self.shown.path_of(id));
            let Some(&is) = by_ino.get(&ino) else {
                match told.lost.contains(&ino) || told.gone > 0 {
                    true => continue,
                    false => return fail("untold", format!("{path} (inode {ino}) is lost")),
                }
            };
            let was = Inode {
                nlink: is.nlink,
                mtime: if was.is_dir() { is.mtime } else { was.mtime },
                ..was.clone()
            };
            let Err(difference) = compare_inode(&was, is) else { continue };
            match told.damaged.get(&ino) {
                // Its number is another one's now.
                None if told.lost.contains(&ino) => {}
                None => return fail("untold", format!("{path} (inode {ino}): {difference}")),
                // Of one that is told as lost remains may come to lost+found.
                Some(shown)
                    if *shown != path && !told.lost.contains(&ino) && is_way_whole(self, id, hits) =>
                {
                    return fail("path", format!("{path} (inode {ino}) is told as {shown}"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Whether neither a directory on the way to a file with one name nor the file itself was struck.
fn is_way_whole(volume: &Volume, id: Id, hits: &[(Target, Damage)]) -> bool {
    let struck: BTreeSet<u64> = hits.iter().map(|(target, _)| target.block).collect();
    let mut at = id;
    while at != ROOT {
        let &[(above, _)] = volume.shown.names_of(at) else { return false };
        if volume.is_struck(volume.shown.inode(above).ino, &struck) {
            return false;
        }
        at = above;
    }
    true
}
