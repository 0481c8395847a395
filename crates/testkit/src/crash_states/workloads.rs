//! The workloads of crash testing, and the tree that is there before them.

use super::{PERSISTS, Persist, Step, Workload};
use crate::ops::{DATABASE, DOCUMENT, JOURNAL, LOG, Op, Place, TEMPORARY, Target, place};
use medfs::{FallocateMode, FileFlags, FileKind, RenameFlags, XattrMode};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// The tree that is durable before a workload: `/f0` (two pages and a bit, with an xattr), `/f1` (inline), `/d0/f0`
/// (many pages), `/d0/f1` (hard link of `/f1`), `/f5` (symlink), `/d1` (empty directory).
pub fn preparation() -> Vec<Op> {
    let (reg, dir) = (FileKind::Regular, FileKind::Directory);
    let file = |dir, name| Target::Path(place(dir, name));
    vec![
        Op::Create { at: place(0, 6), kind: dir, perm: 0o755 },
        Op::Create { at: place(0, 7), kind: dir, perm: 0o755 },
        Op::Create { at: place(0, 0), kind: reg, perm: 0o644 },
        Op::Create { at: place(0, 1), kind: reg, perm: 0o600 },
        Op::Create { at: place(1, 0), kind: reg, perm: 0o640 },
        Op::Link { from: place(0, 1), to: place(1, 1) },
        Op::Symlink { at: place(0, 5), len: 30 },
        Op::Write { file: file(0, 0), offset: 0, len: 9000, seed: 1 },
        Op::Write { file: file(0, 1), offset: 0, len: 100, seed: 2 },
        Op::Write { file: file(1, 0), offset: 0, len: 40_000, seed: 3 },
        Op::SetXattr { file: file(0, 0), name: 0, len: 20, mode: XattrMode::Set },
        Op::Sync,
    ]
}

/// The operations of the bounded space, each with the file it is about. Seeds count on their order.
pub fn operations() -> Vec<(Op, Place)> {
    let mut list = Vec::new();
    for part in [creations, changes_of_content, changes_of_names, changes_of_attributes] {
        part(&mut |op, subject| list.push((op, subject)));
    }
    list
}

/// Takes an operation and the file it is about.
type Add<'a> = dyn FnMut(Op, Place) + 'a;

fn creations(add: &mut Add<'_>) {
    let (reg, dir) = (FileKind::Regular, FileKind::Directory);
    for at in [place(0, 2), place(1, 2)] {
        add(Op::Create { at, kind: reg, perm: 0o644 }, at);
    }
    for at in [place(1, 7), place(2, 6)] {
        add(Op::Create { at, kind: dir, perm: 0o755 }, at);
    }
    add(Op::Symlink { at: place(1, 2), len: 50 }, place(1, 2));
    add(Op::Create { at: place(0, 3), kind: FileKind::Fifo, perm: 0o644 }, place(0, 3));
}

fn changes_of_content(add: &mut Add<'_>) {
    use FallocateMode as F;
    for at in [place(0, 0), place(0, 1), place(1, 0)] {
        let file = Target::Path(at);
        add(Op::Write { file, offset: 100, len: 50, seed: 11 }, at);
        add(Op::Write { file, offset: 0, len: 8192, seed: 12 }, at);
        add(Op::Truncate { file, size: 60 }, at);
    }
    for at in [place(0, 0), place(1, 0)] {
        let file = Target::Path(at);
        add(Op::Write { file, offset: if at.dir == 0 { 9000 } else { 40_000 }, len: 6000, seed: 13 }, at);
        add(Op::Write { file, offset: 4096, len: 4096, seed: 14 }, at);
        add(Op::Patch { file, first: 0, count: 3, len: 5, seed: 17 }, at);
        add(Op::Patch { file, first: 1, count: 9, len: 220, seed: 18 }, at);
        add(Op::Patch { file, first: 0, count: 40, len: 100, seed: 19 }, at);
        add(Op::Truncate { file, size: 100_000 }, at);
        add(Op::Fallocate { file, mode: F::empty(), offset: 4096, len: 65_536 }, at);
        add(Op::Fallocate { file, mode: F::KEEP_SIZE, offset: 40_960, len: 16_384 }, at);
        add(Op::Fallocate { file, mode: F::PUNCH_HOLE | F::KEEP_SIZE, offset: 1000, len: 7000 }, at);
        add(Op::Fallocate { file, mode: F::ZERO_RANGE, offset: 4096, len: 8192 }, at);
        add(Op::Fallocate { file, mode: F::COLLAPSE_RANGE, offset: 0, len: 4096 }, at);
        add(Op::Fallocate { file, mode: F::INSERT_RANGE, offset: 4096, len: 4096 }, at);
    }
    // Beyond the inode's own addresses: needs a direct node.
    let at = place(0, 0);
    add(Op::Write { file: Target::Path(at), offset: 930 * 4096, len: 5000, seed: 15 }, at);
}

fn changes_of_names(add: &mut Add<'_>) {
    for to in [place(0, 2), place(1, 2)] {
        add(Op::Link { from: place(0, 0), to }, to);
    }
    for at in [place(0, 0), place(0, 1), place(1, 0), place(0, 5)] {
        add(Op::Unlink { at }, at);
    }
    add(Op::Rmdir { at: place(0, 7) }, place(0, 7));
    for (from, to) in [
        (place(0, 0), place(0, 2)),
        (place(0, 0), place(1, 2)),
        (place(1, 0), place(0, 0)),
        (place(0, 0), place(0, 1)),
        (place(0, 6), place(0, 2)),
        (place(0, 6), place(2, 6)),
    ] {
        add(Op::Rename { from, to, flags: RenameFlags::empty() }, to);
    }
    for (from, to) in [(place(0, 0), place(1, 0)), (place(0, 0), place(0, 7))] {
        add(Op::Rename { from, to, flags: RenameFlags::EXCHANGE }, to);
    }
    add(Op::Rename { from: place(0, 0), to: place(1, 2), flags: RenameFlags::WHITEOUT }, place(1, 2));
}

fn changes_of_attributes(add: &mut Add<'_>) {
    let at = place(0, 0);
    for len in [10, 700] {
        add(Op::SetXattr { file: Target::Path(at), name: 1, len, mode: XattrMode::Set }, at);
    }
    add(Op::RemoveXattr { file: Target::Path(at), name: 0 }, at);
    add(Op::Chmod { file: Target::Path(at), perm: 0o400 }, at);
    for (flags, at) in
        [(FileFlags::NODUMP, at), (FileFlags::IMMUTABLE, at), (FileFlags::NOATIME, place(0, 6))]
    {
        add(Op::SetFlags { file: Target::Path(at), flags }, at);
    }
    for (at, default) in [(at, false), (place(0, 6), true)] {
        add(Op::SetAcl { file: Target::Path(at), default, kind: 3, perm: 0o4751 }, at);
    }
    for at in [place(0, 0), place(0, 1), place(1, 0)] {
        let file = Target::Path(at);
        for commit in [true, false] {
            add(Op::AtomicUpdate { file, offsets: [0, 8192], len: 5000, seed: 16, commit }, at);
        }
    }
}

/// All workloads of one operation.
pub fn seq1() -> Vec<Workload> {
    let steps = operations().into_iter().flat_map(|(op, subject)| {
        PERSISTS.map(|persist| Workload(vec![Step { op: op.clone(), subject, persist }]))
    });
    steps.collect()
}

/// All workloads of two operations, in an order that the seed decides, so that any first part is a fair sample.
pub fn seq2(seed: u64) -> Vec<Workload> {
    let operations = operations();
    let mut all = Vec::new();
    for first in &operations {
        for second in &operations {
            for one in PERSISTS {
                for two in PERSISTS {
                    let step = |(op, subject): &(Op, Place), persist| Step {
                        op: op.clone(),
                        subject: *subject,
                        persist,
                    };
                    all.push(Workload(vec![step(first, one), step(second, two)]));
                }
            }
        }
    }
    all.shuffle(&mut ChaCha12Rng::seed_from_u64(seed));
    all
}

/// `count` workloads of five operations each on files with deltas: pages patched, written whole, cut off and punched,
/// deltas that give way to others and to addresses.
pub fn on_deltas(seed: u64, count: usize) -> Vec<Workload> {
    use FallocateMode as F;
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: usize| random.random_range(0..n);
    let mut step = || {
        let at = [place(1, 0), place(0, 0)][pick(2)];
        let (file, seed) = (Target::Path(at), pick(200) as u8);
        let page = pick(10) as u64 * 4096;
        let op = match pick(12) {
            0..=2 => Op::Patch { file, first: pick(4) as u16, count: 3, len: 5, seed },
            3 => Op::Patch { file, first: 0, count: 10, len: 240, seed },
            4..=5 => Op::Patch { file, first: 0, count: 40, len: 90, seed },
            6 => Op::Write { file, offset: page, len: 4096, seed },
            7 => Op::Write { file, offset: 0, len: 40_000, seed },
            8 => Op::Write { file, offset: 860 * 4096, len: 30 * 4096, seed },
            9 => Op::Truncate { file, size: page + 100 },
            10 => Op::Fallocate { file, mode: F::PUNCH_HOLE | F::KEEP_SIZE, offset: page, len: 8192 },
            _ => Op::AtomicUpdate { file, offsets: [page, 20_480], len: 70, seed, commit: true },
        };
        Step { op, subject: at, persist: PERSISTS[pick(PERSISTS.len())] }
    };
    (0..count).map(|_| Workload((0..5).map(|_| step()).collect())).collect()
}

/// `count` workloads of seven operations each on a database, its log and its journal: frames, the log taken
/// over, the log begun anew, files that lose what other files are made from.
pub fn on_databases(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: usize| random.random_range(0..n);
    let database = place(0, DATABASE);
    let mut step = || {
        let journal = pick(3) == 0;
        let at = place(0, if journal { JOURNAL } else { LOG });
        let (file, seed, page) = (Target::Path(at), pick(200) as u8, pick(10) as u64 * 4096);
        let (op, subject) = match pick(16) {
            0..=5 => {
                let (first, count) = ([0, 0, 3, 8][pick(4)], 1 + pick(8) as u8);
                (Op::Frames { dir: 0, journal, first, count, seed }, at)
            }
            6..=8 => {
                (Op::Patch { file: Target::Path(database), first: 0, count: 12, len: 90, seed }, database)
            }
            9..=10 => (
                Op::Write { file: Target::Path(database), offset: page, len: 8192, seed: seed | 1 },
                database,
            ),
            11 => (Op::Truncate { file, size: page }, at),
            // Where the inode has no addresses.
            12..=13 => (Op::Write { file, offset: 120 * 4096 + page, len: 8192, seed: seed | 1 }, at),
            14 => (Op::Truncate { file: Target::Path(database), size: page + 4096 }, database),
            _ => (Op::Unlink { at }, at),
        };
        Step { op, subject, persist: PERSISTS[pick(PERSISTS.len())] }
    };
    let begin = |at: Place, op: Op| Step { op, subject: at, persist: Persist::Fsync };
    let regular = FileKind::Regular;
    (0..count)
        .map(|_| {
            let mut steps = vec![
                begin(database, Op::Create { at: database, kind: regular, perm: 0o644 }),
                begin(database, Op::Write { file: Target::Path(database), offset: 0, len: 50_000, seed: 3 }),
                begin(place(0, LOG), Op::Create { at: place(0, LOG), kind: regular, perm: 0o644 }),
                begin(place(0, JOURNAL), Op::Create { at: place(0, JOURNAL), kind: regular, perm: 0o644 }),
            ];
            steps.extend((0..7).map(|_| step()));
            Workload(steps)
        })
        .collect()
}

/// `count` workloads on a document that is replaced three times by a file written for that, much of which is
/// the same: made durable in several ways, with other changes of both in between.
pub fn on_replacements(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: usize| random.random_range(0..n);
    let (document, new) = (place(0, DOCUMENT), place(0, TEMPORARY));
    let step = |op: Op, subject: Place, persist| Step { op, subject, persist };
    let mut workload = |_| {
        let mut steps = Vec::new();
        for round in 0..4 {
            let file = Target::Path(new);
            let (first, pages, seed) = (pick(8) as u16, 1 + pick(6) as u8, pick(200) as u8);
            // The first rounds see to it that there is something to be made from.
            let durable = if round < 1 { Persist::Sync } else { PERSISTS[pick(PERSISTS.len())] };
            let synced = if round < 1 || pick(4) > 0 { Persist::Fsync } else { Persist::Nothing };
            let create = Op::Create { at: new, kind: FileKind::Regular, perm: 0o644 };
            steps.push(step(create, new, Persist::Nothing));
            let write = Op::Write { file, offset: 0, len: 50_000 - 3000 * pick(3) as u32, seed: 3 };
            steps.push(step(write, new, if pick(3) == 0 { Persist::Fsync } else { Persist::Nothing }));
            let patch = Op::Patch { file, first, count: pages, len: 30, seed };
            steps.push(step(patch, new, synced));
            let to = if pick(8) == 0 { place(1, DOCUMENT) } else { document };
            let rename = Op::Rename { from: new, to, flags: medfs::RenameFlags::empty() };
            steps.push(step(rename, to, durable));
            let file = Target::Path(document);
            let other = match pick(8) {
                0 => Op::Patch { file, first, count: pages, len: 90, seed },
                1 => Op::Write { file, offset: 4096 * u64::from(first), len: 8192, seed: seed | 1 },
                2 => Op::Truncate { file, size: 20_000 },
                3 if round > 1 => Op::Unlink { at: document },
                4 => {
                    Op::Rename { from: document, to: place(1, DOCUMENT), flags: medfs::RenameFlags::empty() }
                }
                _ => continue,
            };
            steps.push(step(other, document, PERSISTS[pick(PERSISTS.len())]));
        }
        Workload(steps)
    };
    (0..count).map(&mut workload).collect()
}

/// `count` workloads on a file whose pages are copied to other places and changed a little, as trees are that never
/// overwrite what is in use: sources that are overwritten, cut off and punched, of a database that lends blocks to
/// its log too.
pub fn on_copies(seed: u64, count: usize) -> Vec<Workload> {
    use FallocateMode as F;
    const PAGES: usize = 24;
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: usize| random.random_range(0..n);
    let step = |op: Op, subject: Place, persist| Step { op, subject, persist };
    let workload = |_| {
        let at = place(0, [0, DATABASE][pick(2)]);
        let file = Target::Path(at);
        let create = |at| Op::Create { at, kind: FileKind::Regular, perm: 0o644 };
        // What lies in a page of the file is copied from a file of the same content.
        let twin = place(0, 1);
        let first = |file| Op::Write { file, offset: 0, len: PAGES as u32 * 4096, seed: 3 };
        let mut steps = vec![
            step(create(at), at, Persist::Fsync),
            step(create(place(0, LOG)), place(0, LOG), Persist::Fsync),
            step(create(twin), twin, Persist::Nothing),
            step(first(Target::Path(twin)), twin, Persist::Fsync),
            step(first(file), at, if pick(2) == 0 { Persist::Sync } else { Persist::Fsync }),
        ];
        for _ in 0..9 {
            let (from, to, seed) =
                (pick(PAGES) as u64 * 4096, pick(PAGES + 6) as u64 * 4096, pick(200) as u8);
            let persist = PERSISTS[pick(PERSISTS.len())];
            let op = match pick(14) {
                0..=6 => {
                    let pages = 3 + pick(3) as u8;
                    let len = 4096 * u64::from(pages);
                    let copy = Op::Copy {
                        from: Target::Path(twin),
                        from_offset: from,
                        to: file,
                        to_offset: to,
                        len,
                    };
                    steps.push(step(copy, at, Persist::Nothing));
                    if pick(3) == 0 {
                        // What was there moves, and the place gets something else in the same fsync.
                        let reuse = Op::Write { file, offset: from, len: len as u32, seed: seed | 1 };
                        steps.push(step(reuse, at, Persist::Nothing));
                    }
                    let len = [5, 60, 200][pick(3)];
                    Op::Patch { file, first: (to / 4096) as u16, count: pages, len, seed }
                }
                7..=8 => Op::Write { file, offset: from, len: 4096, seed: seed | 1 },
                9 => Op::Patch { file, first: 0, count: 20, len: 60, seed },
                10 => Op::Fallocate { file, mode: F::PUNCH_HOLE | F::KEEP_SIZE, offset: from, len: 8192 },
                11 => Op::Truncate { file, size: from + 4096 * 4 },
                12 => Op::Fallocate { file, mode: F::COLLAPSE_RANGE, offset: from, len: 4096 },
                _ => {
                    let frames = Op::Frames { dir: 0, journal: false, first: 0, count: 4, seed };
                    steps.push(step(frames, place(0, LOG), persist));
                    continue;
                }
            };
            steps.push(step(op, at, persist));
        }
        Workload(steps)
    };
    (0..count).map(workload).collect()
}

/// `count` workloads on a file that a program cuts off and writes anew whenever a little of it changes, as it does
/// with its state. There are fsyncs, checkpoints, other files and other changes before it is written again, or in the
/// midst of it.
pub fn on_rewrites(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed ^ 0x72_6577_7269_7465);
    (0..count).map(|_| rewrites(&mut |n| random.random_range(0..n))).collect()
}

fn rewrites(pick: &mut dyn FnMut(usize) -> usize) -> Workload {
    use FallocateMode as F;
    let (at, other) = (place(0, [0, DATABASE][pick(2)]), place(0, 1));
    let (file, size) = (Target::Path(at), (1 + pick(9) as u32) * 4096 + pick(4096) as u32);
    let step = |op, persist| Step { op, subject: at, persist };
    let create = Op::Create { at, kind: FileKind::Regular, perm: 0o644 };
    let content =
        |offset: u32, end: u32, seed| Op::Write { file, offset: offset.into(), len: end - offset, seed };
    let beside = |seed| Op::Write { file: Target::Path(other), offset: 0, len: 9000, seed };
    let mut steps = vec![step(create.clone(), Persist::Fsync)];
    steps.push(Step {
        op: Op::Create { at: other, kind: FileKind::Regular, perm: 0o644 },
        subject: other,
        persist: Persist::Fsync,
    });
    steps.push(step(content(0, size, 3), [Persist::Fsync, Persist::Sync][pick(2)]));
    for _ in 0..7 {
        let (seed, first, persist) = (pick(200) as u8, pick(9) as u16, PERSISTS[pick(PERSISTS.len())]);
        let surely = [persist, Persist::Fsync, Persist::Fsync][pick(3)];
        // Sometimes more than the zone of an inode has room for.
        let patch = match pick(3) {
            0 => Op::Patch { file, first: 0, count: 10, len: [300, 700][pick(2)], seed },
            _ => Op::Patch { file, first, count: 1 + pick(3) as u8, len: [5, 60, 200][pick(3)], seed },
        };
        let op = match pick(12) {
            0..=7 => {
                let cut = if pick(5) == 0 { u64::from(size) / 2 } else { 0 };
                steps.push(step(Op::Truncate { file, size: cut }, Persist::Nothing));
                match pick(12) {
                    0 => steps.push(step(Op::Fsync { file, datasync: false }, Persist::Nothing)),
                    1 => steps.push(step(Op::Checkpoint, Persist::Nothing)),
                    2 => steps.push(step(Op::Background, Persist::Nothing)),
                    3 => steps.push(Step { op: beside(seed), subject: other, persist }),
                    4 => steps.push(step(Op::Truncate { file, size: u64::from(size) }, persist)),
                    5 => steps.push(step(Op::Idle { file }, Persist::Nothing)),
                    _ => {}
                }
                let end = if pick(4) == 0 { 1 + pick(size as usize) as u32 } else { size };
                let halfway = if pick(3) == 0 { pick(end as usize) as u32 } else { 0 };
                let seed = if pick(6) == 0 { seed | 1 } else { 3 };
                if halfway > 0 {
                    steps.push(step(content(0, halfway, seed), [Persist::Nothing, persist][pick(2)]));
                }
                steps.push(step(content(halfway, end, seed), Persist::Nothing));
                steps.push(step(patch, surely));
                continue;
            }
            8 => patch,
            9 => content(0, size, seed | 1),
            10 => Op::Fallocate { file, mode: F::PUNCH_HOLE | F::KEEP_SIZE, offset: 4096, len: 8192 },
            _ => {
                steps.push(step(Op::Unlink { at }, [Persist::Nothing, Persist::FsyncParent][pick(2)]));
                steps.push(step(create.clone(), Persist::Nothing));
                content(0, size, 3)
            }
        };
        steps.push(step(op, surely));
    }
    Workload(steps)
}

/// `count` workloads on chains of pages, each of which looks like the old block of the page behind it: made by copies
/// to the page before, one or several to an fsync. Pages anywhere in a chain are then overwritten, punched and cut off,
/// with checkpoints in between. The file may be a log, whose chains hang from pages that are made of its database.
pub fn on_chains(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed ^ 0x6368_6169_6e73);
    (0..count).map(|_| chains(&mut |n| random.random_range(0..n))).collect()
}

fn chains(pick: &mut dyn FnMut(usize) -> usize) -> Workload {
    use FallocateMode as F;
    const PAGES: u64 = 20;
    const DATABASE_PAGES: u64 = 12;
    let (log, database) = (place(0, LOG), place(0, DATABASE));
    let at = [place(0, 0), database, log, log][pick(4)];
    let file = Target::Path(at);
    let step = |op, subject, persist| Step { op, subject, persist };
    let create = |at| step(Op::Create { at, kind: FileKind::Regular, perm: 0o644 }, at, Persist::Fsync);
    let write = |at, first: u64, pages: u32, seed| {
        let op = Op::Write { file: Target::Path(at), offset: first * 4096, len: 4096 * pages, seed };
        move |persist| step(op, at, persist)
    };
    let frames = |first: u64, count, seed| {
        let op = Op::Frames { dir: 0, journal: false, first: first as u8, count, seed };
        move |persist| step(op, log, persist)
    };
    let mut steps = vec![create(at), create(database), create(log)];
    steps.push(write(database, 0, DATABASE_PAGES as u32, 3)(Persist::Sync));
    // The list of files that are made from others is made when it is first wanted.
    steps.push(frames(PAGES + 2, 2, 7)(Persist::Sync));
    steps.push(write(at, 0, PAGES as u32, 5)([Persist::Fsync, Persist::Sync][pick(2)]));
    // Where the last chain ends.
    let mut end = 4;
    for _ in 0..8 {
        let (seed, persist) = (pick(200) as u8, PERSISTS[pick(PERSISTS.len())]);
        let surely = [persist, Persist::Fsync, Persist::Sync][pick(3)];
        let near = (end + pick(3) as u64).saturating_sub(1);
        let page = if pick(2) == 0 { near } else { pick(PAGES as usize) as u64 };
        let op = match pick(16) {
            0..=6 => {
                let (first, links) = (1 + pick(8) as u16, 2 + pick(8) as u8);
                let parts = if pick(2) == 0 { links } else { 1 };
                for part in 0..u16::from(parts) {
                    let (from, to, len) = (first + part + 1, first + part, [5, 60, 200][pick(3)]);
                    let copy = Op::CopyChanged { file, from, to, count: links / parts, len, seed };
                    steps.push(step(copy, at, surely));
                }
                end = u64::from(first) + u64::from(links);
                // The log has a page that is made of one of the database, which is durable, and changes then: the
                // chain of the log begins with the former, or that of the database with the latter.
                let (record, seed, hook) = match at.name {
                    LOG => (end, seed, (end * 7 + u64::from(seed)) % DATABASE_PAGES),
                    DATABASE => (PAGES, (end % PAGES) as u8, end % PAGES),
                    _ => continue,
                };
                steps.push(step(Op::Sync, at, Persist::Nothing));
                steps.push(frames(record, 1, seed)([surely, Persist::Sync][pick(2)]));
                steps.push(write(database, hook, 1, seed | 1)(surely));
                continue;
            }
            7..=8 => {
                steps.push(write(at, page, 1 + pick(2) as u32, seed | 1)(persist));
                continue;
            }
            9..=10 => {
                steps.push(write(database, pick(9) as u64, 4, seed | 1)(surely));
                continue;
            }
            11 => Op::Patch { file, first: 0, count: PAGES as u8, len: 60, seed },
            12 => Op::Fallocate { file, mode: F::PUNCH_HOLE | F::KEEP_SIZE, offset: page * 4096, len: 8192 },
            13 => Op::Truncate { file, size: page * 4096 + 100 },
            14 => Op::Fallocate { file, mode: F::COLLAPSE_RANGE, offset: page * 4096, len: 4096 },
            _ => Op::Checkpoint,
        };
        steps.push(step(op, at, persist));
    }
    Workload(steps)
}
