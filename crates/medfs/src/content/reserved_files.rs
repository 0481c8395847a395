//! Which files get sections of their own (`reserve_files=`): all, those with F2FS's pin flag, or those that a
//! decision tree says will fragment in a log (ARS, section IV-A).
//!
//! Purpose: one policy each. [`JudgedFiles`] judges a file at its first write, by what became of its kin, and
//! then by the tree at its 16th, 64th, 256th .. write. A change takes two judgements in agreement, of which the
//! second comes after half of the writes up to the next; what a file became is told to its kin.
//! Invariant: a judgement takes as many compares as the tree is deep, and allocates nothing.
//! Locks: `tree`, `kin` and `samples` are leaves, held for a look; so is what [`Profiles`] takes.

use crate::content::placement::Batch;
use crate::content::update_costs::{Prices, UpdateClass};
use crate::map::inode::Inode;
use crate::options::ReserveFiles;
use crate::profile::judging::FIRST_JUDGED;
use crate::profile::kin::{Kin, KinKey};
use crate::profile::samples::Samples;
use crate::profile::{FileSample, Known, Profiles, Standing, is_judged_at};
use medfs_format::Ino;
use medfs_format::ars::{Class, Tree, Values};
use medfs_format::node::RawInode;
use medfs_sync::Mutex;
use std::sync::Arc;

/// Of a file whose pages are written as a whole, one fsync of so many tries deltas all the same.
const TRIED: u32 = 16;

/// Says which files have sections of their own.
pub(crate) trait ReservedFiles: Send + Sync {
    /// Whether the file of these pages is one. It is not compressed.
    fn has(&self, batch: &Batch) -> bool;

    /// A write is about to change a file of which so much is known by now, and for which so much has to be paid.
    fn judge(&self, _: &Inode, _: &Known, _: Option<&Prices>) {}

    /// Whether its pages are to be written as a whole now, though the volume holds deltas.
    fn is_whole(&self, _: &Batch) -> bool {
        false
    }

    /// The decision tree to judge by from now on.
    fn learn(&self, _: Tree) {}

    /// Files that it judged, and what became of them.
    fn samples(&self) -> Vec<FileSample> {
        Vec::new()
    }

    /// What became of most earlier files like one, where that is asked.
    fn kin(&self, _: &Inode) -> Option<Class> {
        None
    }

    /// A file is gone, and what was counted of it goes next.
    fn ended(&self, _: &Inode) {}
}

/// The policy of an option.
pub(crate) fn of(option: ReserveFiles, profiles: &Arc<Profiles>) -> Box<dyn ReservedFiles> {
    match option {
        ReserveFiles::All => Box::new(AllFiles),
        ReserveFiles::Pinned => Box::new(PinnedFiles),
        ReserveFiles::Tree => Box::new(JudgedFiles {
            profiles: profiles.clone(),
            tree: Mutex::new(Arc::new(built_in::tree())),
            kin: Mutex::default(),
            samples: Mutex::default(),
        }),
    }
}

/// All of them (ARS, Fig. 3, the second scheme).
struct AllFiles;

impl ReservedFiles for AllFiles {
    fn has(&self, _: &Batch) -> bool {
        true
    }
}

/// Pinned ones.
struct PinnedFiles;

impl ReservedFiles for PinnedFiles {
    fn has(&self, batch: &Batch) -> bool {
        batch.pinned
    }
}

/// Those that the tree chooses, and pinned ones.
struct JudgedFiles {
    profiles: Arc<Profiles>,
    tree: Mutex<Arc<Tree>>,
    kin: Mutex<Kin>,
    samples: Mutex<Samples>,
}

impl JudgedFiles {
    /// What the tree says of a file with these features.
    fn said(&self, features: &Values) -> Class {
        let tree = self.tree.lock().clone();
        tree.judge(features).0
    }

    fn features(&self, ino: Ino, known: &Known, r: &RawInode) -> Values {
        known.features(self.profiles.class(ino, r))
    }
}

impl ReservedFiles for JudgedFiles {
    fn has(&self, batch: &Batch) -> bool {
        batch.pinned || self.profiles.standing(batch.ino).class == Class::Reserve
    }

    fn is_whole(&self, batch: &Batch) -> bool {
        self.profiles.is_whole(batch.ino, TRIED)
    }

    fn judge(&self, inode: &Inode, known: &Known, prices: Option<&Prices>) {
        let standing = inode.raw(|r| {
            let key = KinKey::of(r);
            if known.writes() < FIRST_JUDGED {
                return Standing { class: self.kin.lock().expected(key), ..Standing::default() };
            }
            let features = self.features(inode.ino, known, r);
            if is_judged_at(known.writes()) {
                self.samples.lock().judged(inode.ino, &features, known);
            }
            let said = self.said(&features);
            let choice = prices.map_or(UpdateClass::of(said, false), |prices| prices.choice(said));
            let standing = known.standing.judged(choice.place(), choice.is_whole());
            if known.writes() > FIRST_JUDGED && !standing.doubted {
                self.kin.lock().note(key, standing.class);
            }
            standing
        });
        self.profiles.judged(inode.ino, standing);
    }

    fn learn(&self, tree: Tree) {
        *self.tree.lock() = Arc::new(tree);
    }

    fn ended(&self, inode: &Inode) {
        let known = self.profiles.known(inode.ino);
        if let Some(known) = &known {
            inode.raw(|r| {
                // Twice judged: what it costs counts as well.
                let became = match known.writes() >= 4 * FIRST_JUDGED {
                    true => known.standing.class,
                    false => self.said(&self.features(inode.ino, known, r)),
                };
                self.kin.lock().note(KinKey::of(r), became);
            });
        }
        // Of one that is not remembered there may be samples.
        if known.as_ref().is_none_or(|known| known.writes() >= FIRST_JUDGED) {
            self.samples.lock().ended(inode.ino, known.as_ref());
        }
    }

    fn kin(&self, inode: &Inode) -> Option<Class> {
        Some(inode.raw(|r| self.kin.lock().expected(KinKey::of(r))))
    }

    fn samples(&self) -> Vec<FileSample> {
        self.samples.lock().all(|ino| self.profiles.known(ino))
    }
}

/// The tree that is used where the volume has none.
pub(crate) mod built_in {
    use medfs_format::ars::{Class, Feature, Tree, TreeNode};

    const fn split(feature: Feature, threshold: u32, left: u8, right: u8) -> TreeNode {
        TreeNode::Split { feature, threshold, left, right }
    }

    const fn leaf(class: Class, confidence: u8) -> TreeNode {
        TreeNode::Leaf { class, confidence }
    }

    /// Files of more than 64 KiB that are written in many pieces, synced in between, and neither cut off nor
    /// only appended to: below that size fragments are few, and a file that is cut off has its homes freed
    /// before each checkpoint.
    const NODES: [TreeNode; 11] = [
        split(Feature::Fsyncs, 2, 1, 2),
        leaf(Class::Log, 90),
        split(Feature::Size, 16, 3, 4),
        leaf(Class::Log, 90),
        split(Feature::Truncations, 3, 5, 6),
        split(Feature::Writes, 15, 7, 8),
        leaf(Class::Log, 80),
        leaf(Class::Log, 80),
        split(Feature::Kind, 1, 9, 10),
        leaf(Class::Reserve, 80),
        leaf(Class::Log, 70),
    ];

    /// The tree.
    pub(crate) fn tree() -> Tree {
        Tree::new(NODES.to_vec()).expect("a test says that it is sound")
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use medfs_format::ars::Values;

        #[test]
        fn it_is_sound_and_a_file_without_writes_is_nothing_special() {
            assert_eq!(tree().judge(&Values::default()).0, Class::Log);
        }
    }
}
