//! Content over a device in memory, with what stores its pages and nothing above: for the tests of the rooms.

#![cfg(test)]

use crate::content::base_cache::BaseCache;
use crate::content::codec_pool::CodecPool;
use crate::content::file::WriteTimes;
use crate::content::page_cache::Pages;
use crate::content::placement::{KernelPlacement, Placement, Purpose};
use crate::content::record::OwnedRecord;
use crate::content::reserve::ReservePlacement;
use crate::content::storage::Sources;
use crate::content::writeback::Which;
use crate::content::{Content, Storages, reserved_files};
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::map::refs::BlockRefs;
use crate::map::since::SinceCheckpoint;
use crate::map::{Map, alone};
use crate::options::{MountOptions, PlacementPolicy};
use crate::profile::table::{MOST_FILES, Profiles};
use crate::types::FallocateMode;
use medfs_format::compress::Compression;
use medfs_format::node::FileKind;
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, Block};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// Pages that the cache of a test holds: fewer than its files have.
const CACHED: usize = 64;
const PAGE: u64 = BLOCK_SIZE as u64;

/// No file holds what another one does.
pub(crate) struct NoSources;

impl Sources for NoSources {
    fn staging(&self, _: &Inode) {}

    fn record_of(
        &self,
        _: &Arc<Inode>,
        _: &InodeState,
        _: u32,
        _: &Block,
        _: bool,
    ) -> Result<Option<(OwnedRecord, u64)>> {
        Ok(None)
    }

    fn record_like(
        &self,
        _: &Arc<Inode>,
        _: &InodeState,
        _: u32,
        _: &Block,
        _: usize,
    ) -> Result<Option<OwnedRecord>> {
        Ok(None)
    }

    fn placed_whole(&self, _: &Inode, _: &InodeState, _: u64) -> Result<()> {
        Ok(())
    }
}

/// The options of a text.
pub(crate) fn options(text: &str) -> MountOptions {
    let mut options = MountOptions::default();
    options.parse(text).expect("the options are right");
    options
}

/// Content of a new volume of 200 MiB, whose pages are stored as `storages` says.
pub(crate) fn content(
    deltas: bool,
    features: Feature,
    opts: MountOptions,
    storages: impl FnOnce(&MountOptions) -> Storages,
) -> Content {
    let store = alone::store(alone::device(200, deltas, features), opts.scatter());
    let profiles = Arc::new(Profiles::new(opts.hot_window, MOST_FILES, std::time::Duration::ZERO));
    let kernel = KernelPlacement::new(&opts);
    let placement: Box<dyn Placement> = match opts.placement {
        PlacementPolicy::Log => Box::new(kernel),
        PlacementPolicy::Reserve => {
            Box::new(ReservePlacement::new(kernel, reserved_files::of(opts.reserve_files, &profiles), None))
        }
    };
    Content {
        storages: storages(&opts),
        placement,
        pages: Pages::new(CACHED),
        base_cache: BaseCache::new(CACHED),
        codecs: CodecPool::default(),
        costs: Arc::default(),
        refs: BlockRefs::default(),
        profiles,
        map: Map::over(store, false, SinceCheckpoint::new(false)),
        opts,
    }
}

/// A new file of a name, compressed if so.
pub(crate) fn new_file(content: &Content, name: &[u8], compression: Option<Compression>) -> Arc<Inode> {
    alone::new_inode(content, FileKind::Regular, name, compression)
}

/// Writes at an offset.
pub(crate) fn write(content: &Content, inode: &Arc<Inode>, offset: u64, data: &[u8]) {
    let written = content.write_file(inode, offset, data, WriteTimes::Now).expect("there is room");
    assert_eq!(written.bytes, data.len());
}

/// The whole of a file.
pub(crate) fn read(content: &Content, inode: &Inode) -> Vec<u8> {
    let mut buf = vec![0xee; inode.size() as usize];
    assert_eq!(content.read(inode.ino, 0, &mut buf).expect("reads"), buf.len());
    buf
}

/// Writes all dirty pages of a file back.
pub(crate) fn write_back(content: &Content, inode: &Arc<Inode>, purpose: Purpose) {
    let mut from = 0;
    while let Some(batch) = content.write_batch(inode, from, purpose, Which::All, &NoSources).expect("writes")
    {
        batch.outcome.expect("is placed");
        assert!(batch.blocked.is_empty(), "{:?}", batch.blocked);
        from = batch.next;
    }
    assert!(inode.lock.read().pages.dirty(..inode.pages()).next().is_none(), "all of it is written");
}

/// Forgets what is in memory of a file's pages.
pub(crate) fn forget_clean(content: &Content, inode: &Inode) {
    let all = 0..u64::MAX;
    content.pages.remove_within(inode.ino, all.clone(), [all.clone(), 0..0]);
}

/// Bytes of a page that compress well, and differ by `seed`.
pub(crate) fn text(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| if i % 16 < 12 { b'a' + seed % 26 } else { (i / 16) as u8 ^ seed }).collect()
}

/// Changes a file at random and compares it with bytes in memory, `steps` times. Most of what is written is
/// like what was there.
pub(crate) fn follow_a_model(content: &Content, inode: &Arc<Inode>, seed: u64, steps: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut model: Vec<u8> = Vec::new();
    let most = 120 * PAGE;
    for step in 0..steps {
        let at = rng.random_range(0..=(model.len() as u64).min(most));
        let end = |model: &[u8], rng: &mut ChaCha8Rng| {
            at / PAGE * PAGE + PAGE * rng.random_range(1..=(model.len() as u64 / PAGE).clamp(1, 6))
        };
        match rng.random_range(0..15) {
            0..=2 => patch(content, inode, &mut model, at, &text(step as u8, rng.random_range(1..40))),
            3..=5 => patch(content, inode, &mut model, at, &text(step as u8, rng.random_range(1..20_000))),
            6 => {
                let size = rng.random_range(0..=most);
                let cut = content.change_alone(inode, |state| content.resize(inode, state, size));
                cut.expect("there is room");
                model.resize(size as usize, 0);
            }
            7 => {
                let until = end(&model, &mut rng).max(at + 1);
                let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
                assert!(content.allocate(inode, punch, at, until - at).expect("punches").is_none());
                let len = model.len();
                model[len.min(at as usize)..len.min(until as usize)].fill(0);
            }
            8 => {
                let until = end(&model, &mut rng).max(at + 1);
                assert!(
                    content
                        .allocate(inode, FallocateMode::ZERO_RANGE, at, until - at)
                        .expect("zeroes")
                        .is_none()
                );
                model.resize(model.len().max(until as usize), 0);
                model[at as usize..until as usize].fill(0);
            }
            9 => {
                let (from, until) = (at / PAGE * PAGE, end(&model, &mut rng));
                if until < model.len() as u64 {
                    let collapse = FallocateMode::COLLAPSE_RANGE;
                    assert!(
                        content.allocate(inode, collapse, from, until - from).expect("collapses").is_none()
                    );
                    model.drain(from as usize..until as usize);
                }
            }
            10 => {
                let (from, until) = (at / PAGE * PAGE, end(&model, &mut rng));
                if from < model.len() as u64 && (model.len() as u64) < most {
                    let insert = FallocateMode::INSERT_RANGE;
                    assert!(content.allocate(inode, insert, from, until - from).expect("inserts").is_none());
                    let gap = vec![0; (until - from) as usize];
                    model.splice(from as usize..from as usize, gap);
                }
            }
            11 => {
                let pages: Vec<u64> = (0..inode.pages()).filter(|page| page % 3 == 0).collect();
                content.move_pages(inode, &pages, &NoSources).expect("moves");
            }
            12 => write_back(content, inode, Purpose::Fsync { datasync: false }),
            13 => write_atomically(content, inode, &mut model, &mut rng),
            _ => {
                write_back(content, inode, Purpose::Background);
                forget_clean(content, inode);
            }
        }
        assert!(read(content, inode) == model, "seed {seed}, step {step}");
    }
}

/// Changes a file in an atomic write, which commits or not. `model` is what it is afterwards.
fn write_atomically(content: &Content, inode: &Arc<Inode>, model: &mut Vec<u8>, rng: &mut ChaCha8Rng) {
    if !content.atomic_write(inode).get_ready().expect("there is room") {
        return;
    }
    write_back(content, inode, Purpose::Background);
    content.atomic_write(inode).begin().expect("it is there");
    let mut draft = model.clone();
    for step in 0..rng.random_range(1..5) {
        let at = rng.random_range(0..=draft.len() as u64);
        match rng.random_range(0..3) {
            0 => patch(content, inode, &mut draft, at, &text(step, rng.random_range(1..9000))),
            1 => resize_draft(content, inode, &mut draft, at),
            _ => resize_draft(content, inode, &mut draft, at + PAGE + 7),
        }
        let mut seen = vec![0xee; draft.len() + 1];
        let read = content.read(inode.ino, 0, &mut seen).expect("reads");
        assert!(seen[..read] == draft, "readers see the draft");
    }
    let commits = rng.random_bool(0.6);
    content
        .change_alone(inode, |state| match commits {
            true => content.atomic_write(inode).apply(state).map(drop),
            false => {
                content.atomic_write(inode).drop_draft(state);
                Ok(())
            }
        })
        .expect("it ends");
    if commits {
        *model = draft;
    }
}

fn resize_draft(content: &Content, inode: &Arc<Inode>, draft: &mut Vec<u8>, size: u64) {
    content
        .change_alone(inode, |state| content.atomic_write(inode).resize(state, size))
        .expect("there is room");
    draft.resize(size as usize, 0);
}

fn patch(content: &Content, inode: &Arc<Inode>, model: &mut Vec<u8>, at: u64, data: &[u8]) {
    write(content, inode, at, data);
    model.resize(model.len().max(at as usize + data.len()), 0);
    model[at as usize..at as usize + data.len()].copy_from_slice(data);
}
