//! Small concurrent programs from a seed: what each thread does to a cast of files.
//!
//! Every file has one thread that changes it; all threads read it, fsync it, clean, and make checkpoints. One
//! file is shared: each thread changes the page of its own number. Programs are plain values that print.

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The parts that files play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A document that new versions replace.
    Document,
    /// A database.
    Database,
    /// Its write-ahead log.
    Log,
    /// Its rollback journal.
    Journal,
    /// A file beyond what its inode addresses alone: no zone, direct nodes.
    Long,
    /// A file of a few pages.
    Short,
    /// The one that all threads change.
    Shared,
}

/// All parts but the shared one.
pub const OWNED: [Part; 6] =
    [Part::Document, Part::Database, Part::Log, Part::Journal, Part::Long, Part::Short];
/// All parts.
pub const PARTS: [Part; 7] =
    [Part::Document, Part::Database, Part::Log, Part::Journal, Part::Long, Part::Short, Part::Shared];

impl Part {
    /// The name of the file at the start.
    pub fn name(self) -> &'static str {
        match self {
            Part::Document => "doc.xml",
            Part::Database => "x.db",
            Part::Log => "x.db-wal",
            Part::Journal => "x.db-journal",
            Part::Long => "long",
            Part::Short => "short",
            Part::Shared => "shared",
        }
    }

    /// Pages at the start.
    pub fn pages(self) -> u64 {
        match self {
            Part::Document => 6,
            Part::Database => 20,
            Part::Log | Part::Journal => 5,
            Part::Long => 960,
            Part::Short => 3,
            Part::Shared => MOST_THREADS as u64,
        }
    }

    /// Pages that threads change and read.
    pub fn range(self) -> std::ops::Range<u64> {
        match self {
            // Across the end of what the inode addresses.
            Part::Long => 860..944,
            part => 0..part.pages(),
        }
    }
}

/// Parts as often as they are on stage: those more that others are made from.
const OFTEN: [Part; 12] = [
    Part::Document,
    Part::Document,
    Part::Document,
    Part::Database,
    Part::Database,
    Part::Database,
    Part::Log,
    Part::Log,
    Part::Journal,
    Part::Long,
    Part::Short,
    Part::Shared,
];

/// Most threads of a program.
pub const MOST_THREADS: usize = 4;

/// What a thread does next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    /// A few bytes in each of some pages, a call for each page.
    Patch {
        part: Part,
        first: u64,
        count: u64,
        seed: u64,
    },
    /// Whole pages in one call, like the pages of before but for a few bytes.
    Pages {
        part: Part,
        first: u64,
        count: u64,
        seed: u64,
    },
    /// Whole pages of new content in one call.
    Rewrite {
        part: Part,
        first: u64,
        count: u64,
        seed: u64,
    },
    /// Bytes behind the end.
    Append {
        part: Part,
        bytes: usize,
        seed: u64,
    },
    Truncate {
        part: Part,
        size: u64,
    },
    Punch {
        part: Part,
        first: u64,
        count: u64,
    },
    /// An atomic write of some pages.
    Atomic {
        part: Part,
        first: u64,
        count: u64,
        seed: u64,
    },
    /// Pages of the database into its log or journal.
    Frames {
        part: Part,
        first: u64,
        count: u64,
        seed: u64,
    },
    /// Another version of the file takes its name.
    Replace {
        part: Part,
        fsync: bool,
        seed: u64,
    },
    /// A thread that need not be the file's writes, under a name of its own, what may replace the file,
    /// fsyncs it, and takes it away again.
    Draft {
        part: Part,
        draft: usize,
        seed: u64,
    },
    /// The file gets another name, or its first one again.
    Rename {
        part: Part,
    },
    /// Its name goes; it stays held.
    Unlink {
        part: Part,
    },
    Fsync {
        part: Part,
        datasync: bool,
    },
    FsyncMany {
        parts: Vec<Part>,
        datasync: bool,
    },
    FsyncDir,
    Read {
        part: Part,
        first: u64,
        count: u64,
    },
    Sync,
    Checkpoint,
    /// Time passes, and background work is done.
    Background {
        seconds: u64,
    },
    Idle,
    /// Reads so much of other files that caches hold nothing else.
    Evict,
    /// Reads a part so often that it counts as read-hot.
    Heat {
        part: Part,
    },
}

/// What each thread does.
pub type Programs = Vec<Vec<Op>>;

/// Programs of a seed's random numbers.
pub fn programs(random: &mut Xoshiro256PlusPlus) -> Programs {
    let threads = random.random_range(2..=MOST_THREADS);
    // Few parts, so that threads meet.
    let stage: Vec<Part> = (0..random.random_range(1..=3)).map(|_| any(random, &OFTEN)).collect();
    let owner: Vec<usize> = PARTS.iter().map(|_| random.random_range(0..threads)).collect();
    let own = |thread: usize| -> Vec<Part> {
        let owned = |part: &Part| *part == Part::Shared || owner[*part as usize] == thread;
        stage.iter().copied().filter(owned).collect()
    };
    match random.random_range(0..6) {
        0 => return overwriting(random, threads),
        1 => return meeting(random, threads),
        _ => {}
    }
    let long = random.random_range(0..3) == 0;
    (0..threads)
        .map(|thread| {
            let own = own(thread);
            let ops = random.random_range(1..=if long { 10 } else { 4 });
            let mut program = Vec::new();
            while program.len() < ops {
                if own.is_empty() || random.random_range(0..5) < 2 {
                    program.push(attend(random, &stage, thread));
                } else {
                    let part = any(random, &own);
                    program.push(change(random, part, thread));
                    if random.random_range(0..3) > 0 {
                        program.push(Op::Fsync { part, datasync: random.random() });
                    }
                }
            }
            program
        })
        .collect()
}

/// A thread overwrites pages in place, forgets them, and changes them again, while the others make files from theirs.
fn overwriting(random: &mut Xoshiro256PlusPlus, threads: usize) -> Programs {
    let part = any(random, &[Part::Document, Part::Document, Part::Database, Part::Short]);
    let first = random.random_range(0..part.pages() - 1);
    let mut edits = Vec::new();
    for _ in 0..random.random_range(1..3) {
        let count = random.random_range(1..=(part.pages() - first).min(4));
        let seed = random.random_range(1..1_000_000);
        edits.extend([Op::Patch { part, first, count, seed }, Op::Fsync { part, datasync: true }]);
        if random.random() {
            edits.push(Op::Evict);
        }
        edits.extend([Op::Pages { part, first, count, seed }, Op::Fsync { part, datasync: random.random() }]);
    }
    let others = (1..threads).map(|thread| {
        let ops = random.random_range(1..3);
        let draft = |seed| Op::Draft { part, draft: thread, seed };
        (0..ops)
            .map(|_| match random.random_range(0..3) {
                0 => attend(random, &[part], thread),
                _ => draft(random.random_range(1..1_000_000)),
            })
            .collect()
    });
    let others: Programs = others.collect();
    [edits].into_iter().chain(others).collect()
}

/// Each thread changes a file of its own a little and fsyncs it, so that fsyncs wait at the same moment.
fn meeting(random: &mut Xoshiro256PlusPlus, threads: usize) -> Programs {
    let parts = [Part::Document, Part::Database, Part::Short, Part::Long];
    let program = |&part: &Part| {
        let mut program = Vec::new();
        for _ in 0..random.random_range(1..4) {
            let (first, count) = pages(random, part, 2);
            program.push(Op::Patch { part, first, count, seed: random.random_range(1..1_000_000) });
            program.push(match random.random_range(0..4) {
                0 => Op::FsyncMany { parts: parts[..threads].to_vec(), datasync: random.random() },
                _ => Op::Fsync { part, datasync: false },
            });
        }
        program
    };
    parts[..threads].iter().map(program).collect()
}

fn any<T: Copy>(random: &mut Xoshiro256PlusPlus, of: &[T]) -> T {
    of[random.random_range(0..of.len())]
}

/// Some pages of a part.
fn pages(random: &mut Xoshiro256PlusPlus, part: Part, most: u64) -> (u64, u64) {
    let range = part.range();
    // Mostly the same ones, so that what was done to a page meets what is done to it.
    let span = if random.random_range(0..3) > 0 { range.start..range.start + 2 } else { range.clone() };
    let first = random.random_range(span);
    (first, random.random_range(1..=most).min(range.end - first))
}

/// What the thread of a part does with it.
fn change(random: &mut Xoshiro256PlusPlus, part: Part, thread: usize) -> Op {
    let seed = random.random_range(1..1_000_000);
    if part == Part::Shared {
        let first = thread as u64;
        return match random.random_range(0..4) {
            0 => Op::Rewrite { part, first, count: 1, seed },
            1 => Op::Pages { part, first, count: 1, seed },
            _ => Op::Patch { part, first, count: 1, seed },
        };
    }
    if matches!(part, Part::Log | Part::Journal) && random.random_range(0..3) > 0 {
        let first = random.random_range(0..4);
        return Op::Frames { part, first, count: random.random_range(1..=4), seed };
    }
    let (first, count) = pages(random, part, 8);
    match random.random_range(0..20) {
        0..5 => Op::Patch { part, first, count, seed },
        5..9 => Op::Pages { part, first, count, seed },
        9..11 => Op::Rewrite { part, first, count, seed },
        11 => Op::Append { part, bytes: random.random_range(1..9000), seed },
        12 => Op::Truncate { part, size: first * 4096 + random.random_range(0..4096) },
        13 => Op::Punch { part, first, count },
        14 => Op::Atomic { part, first, count, seed },
        15..18 if part != Part::Long => Op::Replace { part, fsync: random.random(), seed },
        18 => Op::Unlink { part },
        19 => Op::Rename { part },
        _ => Op::Patch { part, first, count, seed },
    }
}

/// What any thread does.
fn attend(random: &mut Xoshiro256PlusPlus, stage: &[Part], thread: usize) -> Op {
    let part = any(random, stage);
    let (first, count) = pages(random, part, 16);
    match random.random_range(0..20) {
        0..3 => Op::Fsync { part, datasync: random.random() },
        3..5 if part != Part::Long => {
            Op::Draft { part, draft: thread, seed: random.random_range(1..1_000_000) }
        }
        3..7 => Op::FsyncMany { parts: stage.to_vec(), datasync: random.random() },
        7 => Op::FsyncDir,
        8..11 => Op::Read { part, first, count },
        11..13 => Op::Sync,
        13..15 => Op::Checkpoint,
        15 => Op::Background { seconds: any(random, &[1, 10, 100]) },
        16 => Op::Idle,
        17 | 18 => Op::Evict,
        _ => Op::Heat { part },
    }
}
