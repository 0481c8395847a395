//! Workloads for crash states that mix what the ones of [`crate::crash_states`] do: names that go round,
//! fsyncs of several files at once, idle work, and a volume on which every operation may have to clean.

use crate::crash_states::{Persist, Step, Workload, on_databases, on_deltas, on_replacements, preparation};
use crate::ops::{DATABASE, DOCUMENT, LOG, Op, TEMPORARY, Target, place};
use medfs::{FallocateMode, FileKind, RenameFlags, XattrMode};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// `count` workloads of six operations each on three names in each of two directories: files made, replaced,
/// linked, moved within and between directories and removed, with fsyncs of files and directories after them.
pub fn on_names(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: usize| random.random_range(0..n);
    let mut step = || {
        let mut name = || place(pick(2) as u8, pick(3) as u8);
        let (at, to) = (name(), name());
        let file = Target::Path(at);
        let flags = if pick(5) == 0 { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
        let (op, subject) = match pick(12) {
            0..2 => (Op::Create { at, kind: FileKind::Regular, perm: 0o640 }, at),
            2..8 => (Op::Rename { from: at, to, flags }, if pick(3) == 0 { at } else { to }),
            8 => (Op::Unlink { at }, at),
            9 => (Op::Link { from: at, to }, to),
            _ => (Op::Write { file, offset: 4096 * pick(3) as u64, len: 300, seed: pick(200) as u8 }, at),
        };
        use Persist::{Fdatasync, Fsync, FsyncParent, Nothing, Sync, Together};
        let ways = [Nothing, Nothing, Fsync, Fsync, FsyncParent, FsyncParent, Fdatasync, Together, Sync];
        Step { op, subject, persist: ways[pick(ways.len())] }
    };
    (0..count).map(|_| Workload((0..6).map(|_| step()).collect())).collect()
}

/// `count` workloads of twelve operations each on three files that are durable: little changes that are
/// fsynced, between them pages written whole, cut off, punched and moved, names that change, and as much
/// unsynced data as makes a small cache write back what it holds.
pub fn on_small_updates(seed: u64, count: usize) -> Vec<Workload> {
    use FallocateMode as F;
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: usize| random.random_range(0..n);
    let mut step = || {
        let at = [place(0, 0), place(0, 1), place(1, 0)][pick(3)];
        let (file, seed) = (Target::Path(at), pick(200) as u8);
        let (first, page) = (pick(10) as u16, pick(10) as u64 * 4096);
        let small = [1, 9, 40, 120][pick(4)];
        let (op, subject) = match pick(24) {
            0..=9 => (Op::Patch { file, first, count: 1 + pick(2) as u8, len: small, seed }, at),
            10 => (Op::Write { file, offset: page + 50, len: small.into(), seed }, at),
            11..=12 => (Op::Write { file, offset: page, len: 4096, seed }, at),
            13 => (Op::Write { file, offset: 930 * 4096 + page, len: 70, seed }, at),
            14..=15 => (Op::Truncate { file, size: page + 7 }, at),
            16 => (Op::Fallocate { file, mode: F::PUNCH_HOLE | F::KEEP_SIZE, offset: page, len: 8192 }, at),
            17 => (Op::Fallocate { file, mode: F::empty(), offset: page, len: 12_288 }, at),
            18 => (Op::Fallocate { file, mode: F::COLLAPSE_RANGE, offset: page, len: 4096 }, at),
            19 => (Op::Fallocate { file, mode: F::INSERT_RANGE, offset: page, len: 4096 }, at),
            20 => {
                let other = Target::Path(place(1, 0));
                return Step {
                    op: Op::Write { file: other, offset: 40_960, len: 700_000, seed },
                    subject: place(1, 0),
                    persist: Persist::Nothing,
                };
            }
            21 => {
                let (from, to) = [(place(0, 0), place(0, 2)), (place(0, 2), place(0, 0))][pick(2)];
                (Op::Rename { from, to, flags: RenameFlags::empty() }, to)
            }
            22 => (Op::SetXattr { file, name: 1, len: 30, mode: XattrMode::Set }, at),
            _ => (Op::Chmod { file, perm: 0o600 + pick(64) as u16 }, at),
        };
        use Persist::{Fdatasync, Fsync, FsyncParent, Nothing, Sync, Together};
        let ways =
            [Nothing, Nothing, Fsync, Fsync, Fsync, Fsync, Fdatasync, Fdatasync, Together, FsyncParent, Sync];
        Step { op, subject, persist: ways[pick(ways.len())] }
    };
    (0..count).map(|_| Workload((0..12).map(|_| step()).collect())).collect()
}

/// Two folders with three files each, and one in neither, all durable: see [`on_apps`].
pub fn apps() -> Vec<Op> {
    let folders =
        [6, 7].map(|name| Op::Create { at: place(0, name), kind: FileKind::Directory, perm: 0o755 });
    let files =
        [place(0, 0)].into_iter().chain((1..3).flat_map(|dir| (0..3).map(move |name| place(dir, name))));
    let filled = files.flat_map(|at| {
        let write = Op::Write { file: Target::Path(at), offset: 0, len: 9000, seed: 1 + at.name };
        [Op::Create { at, kind: FileKind::Regular, perm: 0o640 }, write]
    });
    folders.into_iter().chain(filled).chain([Op::Sync]).collect()
}

/// `count` workloads of sixteen operations each on the files of [`apps`]: most write a little here and there, so that
/// an app can be committed alone; some make, move and remove files, cut them, or change attributes.
pub fn on_apps(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: usize| random.random_range(0..n);
    let mut step = || {
        let dir = [1, 1, 1, 2, 2, 2, 0][pick(7)];
        let at = place(dir, if dir == 0 { 0 } else { pick(3) as u8 });
        let (file, seed) = (Target::Path(at), pick(200) as u8);
        let offset = pick(12_000) as u64;
        let (op, subject) = match pick(30) {
            0..=14 => (Op::Write { file, offset, len: 1 + pick(300) as u32, seed }, at),
            15..=19 => (Op::Write { file, offset: offset / 4096 * 4096, len: 4096, seed }, at),
            20 => (Op::Write { file, offset: 930 * 4096 + offset, len: 70, seed }, at),
            21 => (Op::Truncate { file, size: offset }, at),
            22 => (Op::Chmod { file, perm: 0o600 + pick(64) as u16 }, at),
            23 => (Op::Utimes { file, secs: 1_000_000 + offset as i64 }, at),
            24 => (Op::SetXattr { file, name: 1, len: 30, mode: XattrMode::Set }, at),
            25 => (Op::Create { at: place(dir, 3), kind: FileKind::Regular, perm: 0o640 }, place(dir, 3)),
            26 => (Op::Unlink { at: place(dir, 3) }, at),
            27 => {
                let to = place([1, 2][pick(2)], 3 + pick(2) as u8);
                (Op::Rename { from: at, to, flags: RenameFlags::empty() }, to)
            }
            28 => {
                let to = place([1, 2][pick(2)], 4);
                (Op::Rename { from: to, to: at, flags: RenameFlags::empty() }, at)
            }
            _ => (Op::Patch { file, first: 0, count: 3, len: 40, seed }, at),
        };
        use Persist::{Fdatasync, Fsync, FsyncParent, Nothing, Sync, SyncApp};
        let ways = [Nothing, Nothing, Nothing, Nothing, Fsync, Fsync, Fsync, Fsync, Fdatasync, FsyncParent];
        let persist = match pick(60) {
            0 => Sync,
            1..=3 => SyncApp,
            _ => ways[pick(ways.len())],
        };
        Step { op, subject, persist }
    };
    (0..count).map(|_| Workload((0..16).map(|_| step()).collect())).collect()
}

/// `count` workloads of eight fsyncs each on three pages of a file that is durable: little changes, and pages
/// written as a whole that no codec makes small, by turns.
pub fn on_rewritten_pages(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: usize| random.random_range(0..n);
    let at = place(0, 0);
    let file = Target::Path(at);
    let mut step = || {
        let (page, seed) = (pick(3) as u16, pick(100) as u8 * 2 + 1);
        let op = match pick(5) {
            0..=2 => Op::Patch { file, first: page, count: 1, len: 30, seed },
            _ => Op::Write { file, offset: u64::from(page) * 4096, len: 4096, seed },
        };
        Step { op, subject: at, persist: [Persist::Fsync, Persist::Fdatasync][pick(2)] }
    };
    (0..count).map(|_| Workload((0..8).map(|_| step()).collect())).collect()
}

/// `count` workloads on a file whose inode has no room for another delta: large deltas, for which small ones
/// are given up, or which give way to several of these.
pub fn on_full_zones(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: usize| random.random_range(0..n);
    let at = place(0, 2);
    let file = Target::Path(at);
    let step = |op| Step { op, subject: at, persist: Persist::Fsync };
    let mut workload = |_| {
        let patch = |first, count, len, seed| Op::Patch { file, first, count, len, seed };
        let mut steps = vec![
            step(Op::Create { at, kind: FileKind::Regular, perm: 0o640 }),
            step(Op::Write { file, offset: 0, len: 250_000, seed: 5 }),
            step(patch(0, 10 + pick(4) as u8, 225, pick(200) as u8)),
        ];
        for _ in 0..4 {
            let (first, len) = (14 + pick(20) as u16, [8, 20, 60, 200][pick(4)]);
            steps.push(step(patch(first, 10 + pick(10) as u8, len, pick(200) as u8)));
        }
        Workload(steps)
    };
    (0..count).map(&mut workload).collect()
}

/// Blocks of the file that [`on_refills`] makes room with.
pub const REFILLED: u64 = 24;

/// `count` workloads on a volume that has room for [`REFILLED`] blocks and a few: a file takes it and is
/// checkpointed, gives all or some of it back, and others that are fsynced take it again. Until the next
/// checkpoint what was given back is still the old file's.
pub fn on_refills(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: u64| random.random_range(0..n);
    let (old, new) = (place(0, 2), [place(0, 3), place(1, 1), place(0, 4)]);
    let file = Target::Path(old);
    let create = |at, persist| Step {
        op: Op::Create { at, kind: FileKind::Regular, perm: 0o640 },
        subject: at,
        persist,
    };
    let write = |at, pages: u64, seed, persist| {
        let op = Op::Write { file: Target::Path(at), offset: 0, len: 4096 * pages as u32, seed };
        Step { op, subject: at, persist }
    };
    let mut workload = |_| {
        let mut steps =
            vec![create(old, Persist::Nothing), write(old, REFILLED, pick(200) as u8, Persist::Sync)];
        let left = 4096 * pick(4);
        let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        let op = match pick(4) {
            0 | 1 => Op::Unlink { at: old },
            2 => Op::Truncate { file, size: left },
            _ => Op::Fallocate { file, mode: punch, offset: left, len: REFILLED * 4096 },
        };
        steps.push(Step {
            op,
            subject: old,
            persist: [Persist::Nothing, Persist::FsyncParent][pick(2) as usize],
        });
        let mut room = REFILLED;
        for at in new {
            let pages = 1 + pick(room.max(2) - 1);
            let persist = [Persist::Fsync, Persist::Fdatasync][pick(2) as usize];
            steps.extend([create(at, Persist::Nothing), write(at, pages, pick(200) as u8, persist)]);
            room = room.saturating_sub(pages + 1);
        }
        Workload(steps)
    };
    (0..count).map(&mut workload).collect()
}

/// `count` workloads of all kinds, with fsyncs of several files, checkpoints and idle work among their operations.
pub fn mixed(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed ^ 0x6d69_7865_6400);
    let each = count.div_ceil(5);
    let mut kinds = [
        on_deltas(seed, each).into_iter(),
        on_databases(seed, each).into_iter(),
        on_replacements(seed, each).into_iter(),
        on_names(seed, each).into_iter(),
        on_full_zones(seed, each).into_iter(),
    ];
    let all = (0..count).filter_map(|n| kinds[n % kinds.len()].next());
    all.map(|workload| enriched(workload, &mut random)).collect()
}

fn enriched(workload: Workload, random: &mut ChaCha12Rng) -> Workload {
    let mut steps = Vec::new();
    for mut step in workload.0 {
        if matches!(step.persist, Persist::Fsync | Persist::Fdatasync) && random.random_range(0..3) == 0 {
            step.persist = Persist::Together;
        }
        let subject = step.subject;
        steps.push(step);
        let between = match random.random_range(0..12) {
            0 => Op::Idle { file: Target::Path(subject) },
            1 => Op::Checkpoint,
            2 => Op::Background,
            _ => continue,
        };
        steps.push(Step { op: between, subject, persist: Persist::Nothing });
    }
    Workload(steps)
}

/// Pieces of 64 KiB that fill a volume of 64 MiB.
const PIECES: u64 = 250;
/// In these nothing stays but the files that workloads are about, so that cleaning takes their sections first.
const OF_FILES: std::ops::Range<u64> = 90..170;

/// A volume without a free section to spare, most of which is holes between blocks of files that workloads
/// change: their first operation has to clean. Besides what [`preparation`] makes there are deltas, a
/// database with its log, and a document.
pub fn crowded() -> Vec<Op> {
    let (stays, goes) = (place(2, 10), place(2, 11));
    let create = |at| Op::Create { at, kind: FileKind::Regular, perm: 0o644 };
    let write = |at, offset, len| Op::Write { file: Target::Path(at), offset, len, seed: 1 };
    let mut ops = preparation();
    ops.extend([create(stays), create(goes)]);
    let mut files = files_with_deltas().into_iter();
    for piece in 0..PIECES {
        let of_files = OF_FILES.contains(&piece);
        if of_files {
            ops.extend(files.by_ref().take(1));
        } else {
            ops.push(write(stays, piece * 8192, 8192));
        }
        ops.push(write(goes, piece * 65_536, if of_files { 65_536 } else { 57_344 }));
        if piece % 16 == 15 {
            ops.push(Op::Sync);
        }
    }
    ops.extend([Op::Sync, Op::Unlink { at: goes }, Op::Sync]);
    ops
}

fn files_with_deltas() -> Vec<Op> {
    let file = |dir, name| Target::Path(place(dir, name));
    let fsync = |file| Op::Fsync { file, datasync: false };
    let create = |name| Op::Create { at: place(0, name), kind: FileKind::Regular, perm: 0o644 };
    let mut ops = Vec::new();
    for at in [file(1, 0), file(0, 0)] {
        ops.push(Op::Write { file: at, offset: 0, len: 160_000, seed: 5 });
        ops.push(fsync(at));
        for round in 0..6 {
            ops.push(Op::Patch { file: at, first: 3 * round, count: 20, len: 90, seed: round as u8 });
            ops.push(fsync(at));
        }
    }
    ops.extend([create(DATABASE), Op::Write { file: file(0, DATABASE), offset: 0, len: 90_000, seed: 3 }]);
    ops.extend([fsync(file(0, DATABASE)), create(LOG), Op::Sync]);
    for first in [0, 4, 8] {
        ops.push(Op::Frames { dir: 0, journal: false, first, count: 4, seed: 7 });
        ops.push(fsync(file(0, LOG)));
    }
    for seed in [1, 2] {
        ops.extend([
            create(TEMPORARY),
            Op::Write { file: file(0, TEMPORARY), offset: 0, len: 50_000, seed: 3 },
        ]);
        ops.push(Op::Patch { file: file(0, TEMPORARY), first: 2, count: 3, len: 30, seed });
        ops.push(fsync(file(0, TEMPORARY)));
        let (from, to) = (place(0, TEMPORARY), place(0, DOCUMENT));
        ops.push(Op::Rename { from, to, flags: RenameFlags::empty() });
        ops.push(Op::FsyncDir { dir: 0 });
    }
    ops
}

/// `count` workloads of some dozens of operations each on three files and their names. Most are fsyncs of little, which
/// an NVRAM takes, over and over on the same pages; between them are atomic writes, which go to the volume.
pub fn on_both_ways(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed ^ 0x0062_6f74_6800);
    let mut pick = |n: usize| random.random_range(0..n);
    let mut workload = |n| {
        // Every second one does without atomic writes: nothing lies between its records, and they become many.
        let (atomic, count) = if n % 2 == 0 { (true, 24) } else { (false, 56) };
        let mut steps = with_direct_nodes(pick(200) as u8);
        steps.extend((0..count).map(|_| by_either_way(&mut pick, atomic)));
        Workload(steps)
    };
    (0..count).map(&mut workload).collect()
}

/// A file with pages of a direct node and with deltas, so that its inode can note addresses.
fn with_direct_nodes(seed: u8) -> Vec<Step> {
    let (at, persist) = (place(0, 0), Persist::Sync);
    let file = Target::Path(at);
    let far = Op::Write { file, offset: 930 * 4096, len: 30 * 4096, seed: seed | 1 };
    let patches = Op::Patch { file, first: 0, count: 2, len: 30, seed };
    [far, patches].map(|op| Step { op, subject: at, persist }).into()
}

fn by_either_way(pick: &mut impl FnMut(usize) -> usize, atomic: bool) -> Step {
    use Persist::{Fdatasync, Fsync, FsyncParent, Nothing};
    let at = [place(0, 0), place(0, 0), place(0, 2), place(1, 0)][pick(4)];
    let (file, seed) = (Target::Path(at), pick(200) as u8);
    let (first, page) = (pick(4) as u16, pick(4) as u64 * 4096);
    let patch = Op::Patch { file, first, count: 1 + pick(3) as u8, len: [9, 40, 120][pick(3)], seed };
    let persist = [Fsync, Fsync, Fdatasync][pick(3)];
    let step = |op, persist| Step { op, subject: at, persist };
    match pick(20) {
        0..=2 if atomic => {
            step(Op::AtomicUpdate { file, offsets: [page, 9000], len: 60, seed, commit: true }, Nothing)
        }
        3 => step(Op::Truncate { file, size: page + 300 }, persist),
        4 => step(Op::Write { file, offset: page + 4096, len: 6000, seed }, persist),
        5 => step(Op::Create { at, kind: FileKind::Regular, perm: 0o640 }, [Fsync, FsyncParent][pick(2)]),
        6 => step(Op::Unlink { at }, [Nothing, FsyncParent][pick(2)]),
        7..=8 => {
            let to = [place(0, 2), place(0, 3), place(0, 0)][pick(3)];
            let op = Op::Rename { from: at, to, flags: RenameFlags::empty() };
            Step { op, subject: to, persist: [Fsync, FsyncParent][pick(2)] }
        }
        9 => step(Op::SetXattr { file, name: 1, len: 30 + u16::from(seed), mode: XattrMode::Set }, persist),
        10..=11 => step(Op::Write { file, offset: 935 * 4096 + page, len: 4096, seed: seed | 1 }, persist),
        _ => step(patch, persist),
    }
}
