//! Reserved files from outside (ARS): the decision tree that a volume brings along ([`kept_tree`]), how it is trained
//! anew ([`retraining`]), and what is known and judged of a file.
//!
//! Locks: those of reading an attribute, and leaves.

use crate::error::Result;
use crate::extents::Extent;
use crate::options::{DeltaMode, PlacementPolicy, ReserveFiles};
use crate::profile::Known;
use crate::profile::judging::FIRST_JUDGED;
use crate::tree::Tree as Names;
use crate::volume::Volume;
use medfs_format::Ino;
use serde::Serialize;
use std::collections::BTreeMap;

pub(crate) mod kept_tree;
pub(crate) mod retraining;

pub use crate::content::update_costs::{Price, Prices, UpdateClass};
pub use crate::profile::{Fate, FileSample, Synced, is_judged_at};
pub use kept_tree::built_in;
pub use medfs_format::ars::{ATTRIBUTE, Class, Feature, Tree, TreeNode, Values};
pub use retraining::{Accuracies, Trained, TrainedStats, Trainer};

/// The features of a file that was written since the volume was opened; see [`Judgement::of`].
pub fn features(volume: &Volume, ino: Ino) -> Result<Option<Values>> {
    let inode = volume.commit.inode(ino)?;
    let fs = &volume.commit;
    Ok(fs.profiles.known(ino).map(|known| known.features(fs.class(&inode))))
}

/// What says where the pages of a file go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacedBy {
    /// The file is pinned.
    Pin,
    /// `placement=log`, or `reserve_files=pinned` or `all`: for every file.
    Options,
    /// The decision tree.
    Tree,
    /// What became of earlier files like it: it was not written often enough for the tree.
    Kin,
    /// What it costs: the tree asks for a reserve that does not pay.
    Cost,
}

impl PlacedBy {
    fn of(fs: &Names, is_pinned: bool, known: &Known, pays: bool) -> (Class, PlacedBy) {
        let judge = match (known.writes() < FIRST_JUDGED, pays, known.standing.class) {
            (true, ..) => PlacedBy::Kin,
            (_, false, Class::Log) => PlacedBy::Cost,
            _ => PlacedBy::Tree,
        };
        match (is_pinned, fs.opts.placement, fs.opts.reserve_files) {
            (true, ..) => (Class::Reserve, PlacedBy::Pin),
            (_, PlacementPolicy::Log, _) | (_, _, ReserveFiles::Pinned) => (Class::Log, PlacedBy::Options),
            (_, _, ReserveFiles::All) => (Class::Reserve, PlacedBy::Options),
            (_, _, ReserveFiles::Tree) => (known.standing.class, judge),
        }
    }
}

/// What is known of a file that was written since the volume was opened, and what the tree says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// Its features.
    pub features: Values,
    /// The nodes of the tree that it comes through, the answer last.
    pub path: Vec<TreeNode>,
    /// What the tree made of it. It changes where two judgements in a row say so.
    pub class: Class,
    /// What became of most earlier files of its directory and name pattern, where that is asked.
    pub kin: Option<Class>,
    /// What each way to keep its pages costs, where that is asked.
    pub prices: Option<Prices>,
    /// What its fsyncs write, on average.
    pub synced: Synced,
    /// Where its pages go, and what says so.
    pub placed: (Class, PlacedBy),
    /// Whether its pages may become deltas.
    pub deltas: bool,
    /// Its windows that have sections of their own: window and section.
    pub reserved: Vec<(u64, u32)>,
}

impl Judgement {
    /// Of a file; `None` where it was not written since the volume was opened, or long ago and among many
    /// others. Errors: no such inode.
    pub fn of(volume: &Volume, ino: Ino) -> Result<Option<Judgement>> {
        let fs = &volume.commit;
        let inode = fs.inode(ino)?;
        let Some(known) = fs.profiles.known(ino) else { return Ok(None) };
        let features = known.features(fs.class(&inode));
        let tree = kept_tree::of(fs);
        let path = tree.path(&features).map(|at| tree.nodes()[at]).collect();
        let said = tree.judge(&features).0;
        let prices = fs.placement.prices(&inode, &known, &fs.store);
        let pays = prices.as_ref().is_none_or(|prices| prices.choice(said).place() == said);
        let may_have = fs.is_delta_volume() && fs.opts.delta_mode() != DeltaMode::Off;
        Ok(Some(Judgement {
            features,
            path,
            class: known.standing.class,
            kin: fs.placement.kin(&inode),
            prices,
            synced: known.synced,
            placed: PlacedBy::of(fs, inode.is_pinned(), &known, pays),
            deltas: may_have && !known.standing.whole,
            reserved: fs.placement.reserved(ino),
        }))
    }

    /// What the tree says now, and how sure that is in percent.
    pub fn said(&self) -> (Class, u8) {
        match self.path.last() {
            Some(TreeNode::Leaf { class, confidence }) => (*class, *confidence),
            _ => (Class::Log, 0),
        }
    }
}

/// A file, for `medfs stat --file`.
#[derive(Debug, Clone, Serialize)]
pub struct FileStats {
    /// Its inode number.
    pub ino: Ino,
    /// Its size.
    pub size_bytes: u64,
    /// Pieces that its pages lie in, of those that have blocks.
    pub extents: u64,
    /// Pages that have blocks.
    pub pages: u64,
    /// When its fsyncs make it durable: `posix` or `adaptive`.
    pub durability: &'static str,
    /// Whether its own attribute says so, or else the mount.
    pub durability_is_own: bool,
    /// What is known of how it is written; none where it was not written since the volume was opened.
    pub judged: Option<JudgedStats>,
}

/// What is known of how a file is written, and what was judged of it.
#[derive(Debug, Clone, Serialize)]
pub struct JudgedStats {
    /// Its features, by name.
    pub features: BTreeMap<&'static str, u32>,
    /// Where its pages go: `log` or `reserve`.
    pub class: &'static str,
    /// What says so.
    pub placed_by: PlacedBy,
    /// Where earlier files of its directory and name pattern belonged: none where nobody asks.
    pub kin: Option<&'static str>,
    /// Whether they may become deltas.
    pub deltas: bool,
    /// What the ways to keep them are compared by: `wear`, `time` or `balance`; none where nobody asks.
    pub goal: Option<&'static str>,
    /// What an fsync of the file costs in each way, where that is asked and was counted.
    pub costs: Vec<CostStats>,
    /// Where the tree says that they should go, and how sure that is in percent.
    pub said: &'static str,
    /// See `said`.
    pub confidence: u8,
    /// The questions of the tree that led there.
    pub path: Vec<StepStats>,
    /// Windows of it that have sections of their own.
    pub reserved_windows: Vec<u64>,
    /// These sections, in the same order.
    pub reserved_sections: Vec<u32>,
}

/// What an fsync of a file costs, on average.
#[derive(Debug, Clone, Serialize)]
pub struct CostStats {
    /// How its pages are kept: `log`, `delta`, `reserve` or `reserve+delta`.
    pub class: &'static str,
    /// Blocks that are written.
    pub blocks: f64,
    /// Microseconds of the device, and of comparing pages.
    pub micros: f64,
    /// Pieces more of the file.
    pub pieces: f64,
}

impl From<&Price> for CostStats {
    fn from(price: &Price) -> CostStats {
        let hundredths = |value: f64| (value * 100.0).round() / 100.0;
        CostStats {
            class: price.class.name(),
            blocks: hundredths(price.blocks),
            micros: hundredths(price.nanos / 1000.0),
            pieces: hundredths(price.pieces),
        }
    }
}

/// A question of the tree.
#[derive(Debug, Clone, Serialize)]
pub struct StepStats {
    /// The feature.
    pub feature: &'static str,
    /// What the file has of it.
    pub value: u32,
    /// Largest value that leads to the left.
    pub threshold: u32,
}

impl FileStats {
    /// Of a file. Errors: no such inode, and those of reading the file's nodes.
    pub fn of(volume: &Volume, ino: Ino) -> Result<FileStats> {
        let extents = Extent::of(volume, ino)?;
        let (durability, durability_is_own) = volume.commit.durability_of(ino)?;
        Ok(FileStats {
            ino,
            durability: durability.word(),
            durability_is_own,
            size_bytes: volume.commit.inode(ino)?.size(),
            extents: extents.len() as u64,
            pages: extents.iter().map(|extent| extent.len).sum(),
            judged: Judgement::of(volume, ino)?.map(JudgedStats::from),
        })
    }
}

impl From<Judgement> for JudgedStats {
    fn from(judgement: Judgement) -> JudgedStats {
        let (said, confidence) = judgement.said();
        let features = judgement.features;
        let step = |node: &TreeNode| match *node {
            TreeNode::Split { feature, threshold, .. } => {
                Some(StepStats { feature: feature.name(), value: features[feature as usize], threshold })
            }
            TreeNode::Leaf { .. } => None,
        };
        JudgedStats {
            features: Feature::ALL.iter().map(|f| (f.name(), features[*f as usize])).collect(),
            class: judgement.placed.0.name(),
            placed_by: judgement.placed.1,
            kin: judgement.kin.map(Class::name),
            deltas: judgement.deltas,
            goal: judgement.prices.as_ref().map(|prices| prices.goal().name()),
            costs: judgement.prices.iter().flat_map(|prices| prices.all()).map(CostStats::from).collect(),
            said: said.name(),
            confidence,
            path: judgement.path.iter().filter_map(step).collect(),
            reserved_windows: judgement.reserved.iter().map(|(window, _)| *window).collect(),
            reserved_sections: judgement.reserved.iter().map(|(_, section)| *section).collect(),
        }
    }
}
