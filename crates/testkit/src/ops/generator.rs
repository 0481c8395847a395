//! The seeded generator of operations. The same seed gives the same operations, in this version and in every later one.

mod copies;

use super::{
    BALLAST, DATABASE, DIRS, DOCUMENT, FILLERS, JOURNAL, LOG, Op, Place, SLOTS, TEMPORARY, Target, place,
};
use medfs::{FallocateMode, FileFlags, FileKind, RenameFlags, XattrMode};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use std::collections::VecDeque;

/// Offsets and sizes at which something changes in the format.
const EDGES: &[u64] = &[
    0,
    1,
    3400,
    3488,
    3600,
    3688,
    4095,
    4096,
    8192,
    65536,
    872 * 4096,
    873 * 4096,
    (873 + 1018) * 4096,
    923 * 4096,
    (923 + 1018) * 4096,
    (923 + 2 * 1018) * 4096,
    (923 + 2 * 1018 + 1018 * 1018) * 4096,
    1 << 32,
    1 << 40,
];

/// Generates operations from a seed.
pub struct Generator {
    random: ChaCha12Rng,
    /// What is to come of something that takes several operations.
    pending: VecDeque<Op>,
    /// Whether [`Op::Crash`] is among them.
    pub crashes: bool,
    /// Mebibytes to be filled for good before the first operation. Where there are any, files are large too, so that a
    /// small volume is full much of the time.
    pub crowded: u32,
    /// Most operations change little of a few files, so that there are deltas in every state that they can be in.
    pub patching: bool,
    /// Most operations copy pages of a few files to other places in them, changed a little.
    pub copying: bool,
    /// Most operations write clusters of a few files as a whole, change parts of them, and cut them.
    pub clustering: bool,
}

impl Generator {
    /// The same seed gives the same operations.
    pub fn new(seed: u64) -> Generator {
        Generator {
            random: ChaCha12Rng::seed_from_u64(seed),
            pending: VecDeque::new(),
            crashes: true,
            crowded: 0,
            patching: false,
            copying: false,
            clustering: false,
        }
    }

    fn place(&mut self) -> Place {
        let dir = *[0, 0, 1, 1, 2, 3].choose(&mut self.random).expect("not empty");
        let name = match self.random.random_range(0..100) {
            0..=79 => self.random.random_range(0..6),
            80..=94 => self.random.random_range(6..8),
            95..=97 => 8,
            98 => 9,
            _ => self.random.random_range(FILLERS..=255),
        };
        place(dir, name)
    }

    fn target(&mut self) -> Target {
        match self.random.random_range(0..4) {
            0 => Target::Slot(self.random.random_range(0..SLOTS)),
            _ => Target::Path(self.place()),
        }
    }

    fn offset(&mut self) -> u64 {
        let near = self.random.random_range(0..5000);
        match self.random.random_range(0..10) {
            0..=2 => self.random.random_range(0..20_000),
            3..=4 => self.random.random_range(0..64) * 4096,
            5 => EDGES.choose(&mut self.random).expect("not empty") + near,
            6 => EDGES.choose(&mut self.random).expect("not empty").saturating_sub(near),
            7 => self.random.random_range(0..400_000),
            _ => *EDGES[..10].choose(&mut self.random).expect("not empty"),
        }
    }

    fn len(&mut self) -> u32 {
        if self.crowded > 0 && self.random.random_range(0..3) == 0 {
            return self.random.random_range(1 << 18..3 << 20);
        }
        match self.random.random_range(0..20) {
            0..=5 => self.random.random_range(0..200),
            6..=9 => self.random.random_range(1..5000),
            10..=14 => 4096 * self.random.random_range(1..5),
            15..=18 => self.random.random_range(4096..40_000),
            _ => self.random.random_range(40_000..300_000),
        }
    }

    fn fallocate(&mut self) -> Op {
        let mode = *[
            FallocateMode::empty(),
            FallocateMode::KEEP_SIZE,
            FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
            FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
            FallocateMode::ZERO_RANGE,
            FallocateMode::ZERO_RANGE | FallocateMode::KEEP_SIZE,
            FallocateMode::COLLAPSE_RANGE,
            FallocateMode::INSERT_RANGE,
        ]
        .choose(&mut self.random)
        .expect("not empty");
        let (mut offset, mut len) = (self.offset(), u64::from(self.len()));
        if mode.intersects(FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE) {
            offset %= 1 << 20;
            if self.random.random_range(0..20) != 0 {
                offset = offset / 4096 * 4096;
                len = len.div_ceil(4096) * 4096;
            }
        }
        Op::Fallocate { file: self.target(), mode, offset, len }
    }

    fn patch(&mut self, file: Target) -> Op {
        let (first, seed) = (self.random.random_range(0..6), self.random.random());
        let count = *[1, 1, 2, 5, 12, 40].choose(&mut self.random).expect("not empty");
        let len = *[1, 4, 30, 90, 200, 300].choose(&mut self.random).expect("not empty");
        Op::Patch { file, first, count, len, seed }
    }

    /// An operation on a database, its log or its journal.
    fn database_op(&mut self) -> Op {
        let dir = self.random.random_range(0..2);
        let name = *[DATABASE, LOG, LOG, JOURNAL].choose(&mut self.random).expect("not empty");
        let (at, seed) = (place(dir, name), self.random.random());
        let (file, database) = (Target::Path(at), Target::Path(place(dir, DATABASE)));
        let page = self.random.random_range(0..40) * 4096;
        match self.random.random_range(0..100) {
            0..=5 => Op::Create { at, kind: FileKind::Regular, perm: 0o644 },
            6..=9 => {
                // Content that does not compress, so that the pages have blocks for others to be made from.
                let (len, seed) = (4096 * self.random.random_range(2..30), seed | 1);
                Op::Write { file: database, offset: page, len, seed }
            }
            10..=44 => {
                let (first, count) = (self.random.random_range(0..30), self.random.random_range(1..9));
                Op::Frames { dir, journal: self.random.random_range(0..4) == 0, first, count, seed }
            }
            45..=64 => Op::Fsync { file, datasync: self.random.random() },
            65..=74 => self.patch(database),
            75..=84 => Op::Fsync { file: database, datasync: self.random.random() },
            85..=88 => Op::Truncate { file, size: page },
            89..=90 => Op::Unlink { at },
            91 => Op::Rename { from: at, to: place(1 - dir, name), flags: RenameFlags::empty() },
            92 => Op::Fallocate {
                file,
                mode: FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
                offset: page,
                len: 8192,
            },
            93 => {
                Op::AtomicUpdate { file: database, offsets: [page, page + 4100], len: 90, seed, commit: true }
            }
            94 => Op::Write { file, offset: page, len: 8192, seed },
            95 => Op::Checkpoint,
            96..=97 => Op::Remount,
            _ if self.crashes => Op::Crash,
            _ => Op::Background,
        }
    }

    /// A document that is written anew and renamed over what it replaces, made durable in one of several ways, and what
    /// may happen to it between that. Each operation may be missing.
    fn document(&mut self) -> Vec<Op> {
        let dir = self.random.random_range(0..2);
        let away = self.random.random_range(0..8) == 0;
        let (new, at) = (place(dir, TEMPORARY), place(if away { 1 - dir } else { dir }, DOCUMENT));
        let (file, document) = (Target::Path(new), Target::Path(at));
        let (seed, slot): (u8, u8) = (self.random.random(), self.random.random_range(0..SLOTS));
        let len = 50_000 - 3000 * self.random.random_range(0..3);
        let mut ops = vec![
            Op::Create { at: new, kind: FileKind::Regular, perm: 0o644 },
            Op::Write { file, offset: 0, len, seed: 3 },
            self.patch(file),
            Op::Fsync { file, datasync: self.random.random() },
        ];
        if self.random.random_range(0..4) == 0 {
            ops.push(Op::Open { at, slot });
        }
        ops.push(Op::Rename { from: new, to: at, flags: RenameFlags::empty() });
        let other = place(1 - at.dir, DOCUMENT);
        ops.extend(match self.random.random_range(0..8) {
            0 => vec![Op::FsyncDir { dir: at.dir }, Op::FsyncDir { dir }],
            1..3 => vec![Op::FsyncDir { dir: at.dir }],
            3 => vec![Op::Fsync { file: document, datasync: false }],
            4 => vec![Op::FsyncMany {
                files: [document, file, Target::Slot(slot)],
                datasync: false,
                threads: false,
            }],
            5 => vec![Op::Sync],
            _ => vec![],
        });
        ops.extend(match self.random.random_range(0..10) {
            0 => vec![self.patch(document), Op::Fsync { file: document, datasync: true }],
            1 => vec![Op::Write { file: document, offset: 8192, len: 8192, seed: seed | 1 }],
            2 => vec![Op::Truncate { file: document, size: 20_000 }],
            3 => vec![Op::Unlink { at }, Op::FsyncDir { dir: at.dir }],
            4 => vec![
                Op::Rename { from: at, to: other, flags: RenameFlags::empty() },
                Op::FsyncDir { dir: at.dir },
                Op::FsyncDir { dir: other.dir },
            ],
            5 => vec![Op::Rename { from: at, to: other, flags: RenameFlags::EXCHANGE }],
            6 => vec![Op::Close { slot }],
            7 if self.crashes => vec![Op::Crash],
            _ => vec![],
        });
        ops.retain(|_| self.random.random_range(0..10) > 0);
        ops
    }

    /// fsyncs of files that belong together.
    fn fsync_many(&mut self) -> Op {
        let dir = self.random.random_range(0..2);
        let names = *[[0, 1, 2], [DATABASE, LOG, JOURNAL], [DOCUMENT, TEMPORARY, 0]]
            .choose(&mut self.random)
            .expect("not empty");
        let files = names.map(|name| Target::Path(place(if name < FILLERS { 0 } else { dir }, name)));
        Op::FsyncMany { files, datasync: self.random.random(), threads: self.random.random_range(0..3) == 0 }
    }

    /// An operation on one of a few files with deltas.
    fn patching_op(&mut self) -> Op {
        match self.random.random_range(0..12) {
            0..4 => return self.database_op(),
            4 => {
                self.pending = self.document().into();
                return self.fsync_many();
            }
            5 => return self.fsync_many(),
            _ => {}
        }
        const FILES: u8 = 3;
        let at = place(0, self.random.random_range(0..FILES));
        let file = Target::Path(at);
        let page = self.random.random_range(0..50) * 4096;
        let seed = self.random.random();
        match self.random.random_range(0..100) {
            0..=44 => self.patch(file),
            45..=63 => Op::Fsync { file, datasync: self.random.random() },
            64..=71 => Op::Write { file, offset: page, len: 4096 * self.random.random_range(1..4), seed },
            72..=73 => Op::Truncate { file, size: page + self.random.random_range(0..4096) },
            74..=75 => Op::Idle { file },
            76..=79 => {
                let modes = [
                    FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
                    FallocateMode::ZERO_RANGE,
                    FallocateMode::COLLAPSE_RANGE,
                    FallocateMode::INSERT_RANGE,
                    FallocateMode::empty(),
                ];
                let mode = *modes.choose(&mut self.random).expect("not empty");
                Op::Fallocate { file, mode, offset: page, len: 4096 * self.random.random_range(1..9) }
            }
            80..=82 => Op::Create { at, kind: FileKind::Regular, perm: 0o644 },
            83..=85 => {
                let offset = self.random.random_range(0..1000) * 4096;
                Op::Write { file, offset, len: self.random.random_range(1..200_000), seed }
            }
            86..=88 => Op::AtomicUpdate { file, offsets: [page, page + 4100], len: 90, seed, commit: true },
            89..=90 => Op::SetXattr { file, name: 1, len: page as u16 % 1500, mode: XattrMode::Set },
            91..=92 => {
                Op::Rename { from: at, to: place(0, (at.name + 1) % FILES), flags: RenameFlags::empty() }
            }
            93..=94 => Op::Background,
            95 => Op::Checkpoint,
            96..=97 => Op::Remount,
            _ if self.crashes => Op::Crash,
            _ => Op::Sync,
        }
    }

    /// An operation on one of a few files with compressed clusters.
    fn clustering_op(&mut self) -> Op {
        const FILES: u8 = 4;
        let at = place(0, self.random.random_range(0..FILES));
        let file = Target::Path(at);
        // Around the inode's addresses there are clusters of two nodes.
        let start = *[0, 0, 840 * 4096, 1872 * 4096].choose(&mut self.random).expect("not empty");
        let page = start + self.random.random_range(0..80) * 4096;
        let within = self.random.random_range(0..4096) * self.random.random_range(0..2);
        let seed: u8 = self.random.random();
        // Three of four can be compressed.
        let seed = if self.random.random() { seed & !1 } else { seed };
        match self.random.random_range(0..100) {
            0..=29 => {
                let (offset, len) = (page / 16384 * 16384, self.random.random_range(1..40) * 8192);
                Op::Write { file, offset, len, seed }
            }
            30..=44 => {
                Op::Write { file, offset: page + within, len: self.random.random_range(1..9000), seed }
            }
            45..=59 => Op::Fsync { file, datasync: self.random.random() },
            60..=66 => Op::Truncate { file, size: page + within },
            67..=74 => {
                let modes = [
                    FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
                    FallocateMode::ZERO_RANGE,
                    FallocateMode::COLLAPSE_RANGE,
                    FallocateMode::INSERT_RANGE,
                    FallocateMode::empty(),
                    FallocateMode::KEEP_SIZE,
                ];
                let mode = *modes.choose(&mut self.random).expect("not empty");
                Op::Fallocate { file, mode, offset: page, len: 4096 * self.random.random_range(1..17) }
            }
            75..=77 => Op::Create { at, kind: FileKind::Regular, perm: 0o644 },
            78..=80 => Op::AtomicUpdate { file, offsets: [page, page + 4100], len: 9000, seed, commit: true },
            81..=83 => {
                Op::Rename { from: at, to: place(0, (at.name + 1) % FILES), flags: RenameFlags::empty() }
            }
            84..=90 => Op::Background,
            91..=93 => Op::Checkpoint,
            94..=96 => Op::Remount,
            _ if self.crashes => Op::Crash,
            _ => Op::Sync,
        }
    }

    fn set_flags(&mut self) -> Op {
        let one = [
            FileFlags::IMMUTABLE,
            FileFlags::APPEND,
            FileFlags::NODUMP,
            FileFlags::NOATIME | FileFlags::SYNC,
            FileFlags::DIRSYNC | FileFlags::PROJINHERIT,
        ];
        let some = *one.choose(&mut self.random).expect("not empty");
        // What is fixed should not stay so for long.
        let flags = if self.random.random_range(0..3) == 0 { some } else { FileFlags::empty() };
        Op::SetFlags { file: self.target(), flags }
    }

    fn atomic(&mut self) -> Op {
        let (file, commit) = (self.target(), self.random.random_range(0..4) > 0);
        match self.random.random_range(0..6) {
            0 => Op::AtomicStart { file },
            1..3 => Op::AtomicEnd { file, commit },
            _ => {
                let (offsets, seed) = ([self.offset(), self.offset()], self.random.random());
                Op::AtomicUpdate { file, offsets, len: self.len().min(40_000), seed, commit }
            }
        }
    }

    /// The next operation.
    pub fn op(&mut self) -> Op {
        if !self.pending.is_empty() && self.random.random_range(0..5) != 0 {
            return self.pending.pop_front().expect("not empty");
        }
        if self.copying && self.random.random_range(0..4) != 0 {
            return self.copying_op();
        }
        if self.patching && self.random.random_range(0..5) != 0 {
            return self.patching_op();
        }
        if self.clustering && self.random.random_range(0..5) != 0 {
            return self.clustering_op();
        }
        let perm = self.random.random_range(0..0o1000);
        match self.random.random_range(0..1000) {
            kind @ 0..=357 => self.names_op(kind, perm),
            kind @ 358..=714 => self.content_op(kind),
            kind => self.other_op(kind, perm),
        }
    }

    /// An operation that makes, moves or removes names; `kind` is below 358.
    fn names_op(&mut self, kind: i32, perm: u16) -> Op {
        match kind {
            0..=64 => Op::Create { at: self.place(), kind: FileKind::Regular, perm },
            65..=79 => self.set_flags(),
            80..=99 => self.atomic(),
            100..=149 => {
                let at = place(self.random.random_range(0..DIRS), self.random.random_range(6..8));
                Op::Create { at, kind: FileKind::Directory, perm }
            }
            150..=159 => {
                let kinds = [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice];
                let kind = *kinds.choose(&mut self.random).expect("not empty");
                Op::Create { at: self.place(), kind, perm }
            }
            160..=179 => Op::Symlink { at: self.place(), len: self.random.random_range(1..4095) },
            180..=209 => Op::Link { from: self.place(), to: self.place() },
            210..=264 => Op::Unlink { at: self.place() },
            265..=279 => {
                Op::Rmdir { at: place(self.random.random_range(0..DIRS), self.random.random_range(6..8)) }
            }
            280..=349 => {
                let flags = match self.random.random_range(0..8) {
                    0 => RenameFlags::NOREPLACE,
                    1..=2 => RenameFlags::EXCHANGE,
                    3 => RenameFlags::WHITEOUT,
                    _ => RenameFlags::empty(),
                };
                Op::Rename { from: self.place(), to: self.place(), flags }
            }
            _ => {
                let first = self.random.random_range(FILLERS..=255);
                let count = self.random.random_range(1..=255 - first.min(254));
                let dir = self.random.random_range(0..DIRS);
                Op::Fill { dir, first, count, remove: self.random.random() }
            }
        }
    }

    /// An operation on content; `kind` is from 358 to 714.
    fn content_op(&mut self, kind: i32) -> Op {
        match kind {
            358..=437 => {
                let file = self.target();
                self.patch(file)
            }
            438..=559 => {
                let (offset, len, seed) = (self.offset(), self.len(), self.random.random());
                Op::Write { file: self.target(), offset, len, seed }
            }
            560..=589 => Op::Read { file: self.target(), offset: self.offset(), len: self.len() },
            590..=639 => Op::Truncate { file: self.target(), size: self.offset() },
            640..=699 => self.fallocate(),
            _ => {
                let (from_offset, to_offset, len) = (self.offset(), self.offset(), u64::from(self.len()));
                Op::Copy { from: self.target(), from_offset, to: self.target(), to_offset, len }
            }
        }
    }

    /// An operation on attributes, on what is open, or on the volume; `kind` is below 1000.
    fn other_op(&mut self, kind: i32, perm: u16) -> Op {
        match kind {
            715..=754 => {
                let len = *[0, 1, 10, 60, 200, 700].choose(&mut self.random).expect("not empty");
                let modes = [XattrMode::Set, XattrMode::Set, XattrMode::Create, XattrMode::Replace];
                let mode = *modes.choose(&mut self.random).expect("not empty");
                Op::SetXattr { file: self.target(), name: self.random.random_range(0..5), len, mode }
            }
            755..=769 => Op::RemoveXattr { file: self.target(), name: self.random.random_range(0..5) },
            770..=779 => Op::Chmod { file: self.target(), perm },
            780..=789 => {
                let (uid, gid) = (self.random.random_range(0..3000), self.random.random_range(0..3000));
                Op::Chown { file: self.target(), uid, gid }
            }
            790..=799 => Op::Utimes { file: self.target(), secs: self.random.random_range(-10..1 << 33) },
            800..=824 => Op::Open { at: self.place(), slot: self.random.random_range(0..SLOTS) },
            825..=834 => Op::Tmpfile { slot: self.random.random_range(0..SLOTS) },
            835..=839 => Op::LinkSlot { slot: self.random.random_range(0..SLOTS), to: self.place() },
            840..=854 => Op::Close { slot: self.random.random_range(0..SLOTS) },
            855..=924 => Op::Fsync { file: self.target(), datasync: self.random.random() },
            925..=934 => Op::FsyncDir { dir: self.random.random_range(0..DIRS) },
            935..=944 => Op::Sync,
            945..=951 => Op::Checkpoint,
            952..=969 => Op::Background,
            970..=983 => {
                let (default, kind) = (self.random.random(), self.random.random_range(0..5));
                Op::SetAcl { file: self.target(), default, kind, perm: self.random.random_range(0..0o10000) }
            }
            984..=991 => Op::Remount,
            _ if self.crashes => Op::Crash,
            _ => Op::Remount,
        }
    }

    /// The next `count` operations; on a crowded volume after those that fill most of it with what stays.
    pub fn ops(&mut self, count: usize) -> Vec<Op> {
        let fill = (0..self.crowded).flat_map(|piece| {
            let at = place(0, BALLAST + piece as u8 / 64);
            let file = Target::Path(at);
            let create = Op::Create { at, kind: FileKind::Regular, perm: 0o600 };
            let write =
                Op::Write { file, offset: u64::from(piece % 64) << 20, len: 1 << 20, seed: piece as u8 };
            [create, write]
        });
        let fill: Vec<Op> = fill.chain((self.crowded > 0).then_some(Op::Sync)).collect();
        fill.into_iter().chain((0..count).map(|_| self.op())).collect()
    }
}
