//! Pages without a base, of what files hold, and pages that are assembled from slices of others.

use super::pages::{Pair, Set, text};
use medfs_codec::{PAGE_SIZE, Page};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha12Rng;
use std::fmt::Write;

/// Pages of a kind.
const PAGES: usize = 64;
/// Bytes that SQLite puts before each page of a write-ahead log, and around each one of a journal.
const FRAME_HEADER: usize = 24;
const JOURNAL_FRAME: usize = 8;

/// Pages of `content`, evenly taken, each with a base of zeros.
fn appended(name: &str, content: &[u8]) -> Set {
    let pages = content.as_chunks::<PAGE_SIZE>().0;
    let taken = pages.iter().step_by(pages.len().div_ceil(PAGES).max(1));
    let pairs = taken.map(|page| (Box::new([0; PAGE_SIZE]), Box::new(*page))).collect();
    Set { name: format!("new: {name}"), pairs }
}

/// Text that `line` writes.
fn lines(mut line: impl FnMut(&mut String, &mut ChaCha12Rng, usize)) -> Vec<u8> {
    let (mut random, mut content) = (ChaCha12Rng::seed_from_u64(3), String::new());
    for i in 0.. {
        line(&mut content, &mut random, i);
        if content.len() >= PAGES * PAGE_SIZE {
            break;
        }
    }
    content.into_bytes()
}

fn json() -> Vec<u8> {
    lines(|out, random, i| {
        let (name, note) = (text(random, 14), text(random, 40));
        let (price, stock) = (random.random_range(100..99_999), random.random_bool(0.3));
        let _ = writeln!(
            out,
            "  {{\"id\": {i}, \"name\": \"{name}\", \"price\": {price}, \"stock\": {stock}, \"note\": \"{note}\"}},"
        );
    })
}

fn xml() -> Vec<u8> {
    lines(|out, random, i| {
        let (value, hash) = (text(random, 24), random.next_u64());
        let _ = writeln!(out, "    <entry id=\"{i}\" hash=\"{hash:016x}\"><value>{value}</value></entry>");
    })
}

fn log() -> Vec<u8> {
    lines(|out, random, i| {
        let (level, part) = (["INFO", "INFO", "DEBUG", "WARN"][i % 4], ["net", "ui", "db"][i % 3]);
        let (pid, took) = (random.random_range(900..1400), random.random_range(10..90_000));
        let message = text(random, 30);
        let (minute, second) = (i / 600 % 60, i / 10 % 60);
        let _ = writeln!(
            out,
            "2024-05-17 08:{minute:02}:{second:02} {pid} {level} {part}: {message} took {took} us"
        );
    })
}

/// Bytes that `word` makes, eight by eight.
fn words(mut word: impl FnMut(u64, &mut ChaCha12Rng) -> u64) -> Vec<u8> {
    let mut random = ChaCha12Rng::seed_from_u64(5);
    (0..(PAGES * PAGE_SIZE / 8) as u64).flat_map(|i| word(i, &mut random).to_le_bytes()).collect()
}

/// A table of records: a number that counts, a small one and one of 32 random bits.
fn records() -> Vec<u8> {
    words(|i, random| i << 40 | u64::from(random.random_range(0..16u8)) << 32 | u64::from(random.next_u32()))
}

/// Random numbers, each of which occurs about twice in its page.
fn repeated_numbers() -> Vec<u8> {
    words(|i, random| {
        let number = (i / 512) << 8 | u64::from(random.random_range(0..=255u8));
        (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}

/// This program's source and code.
fn sources() -> Vec<u8> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .expect("this crate")
        .flatten()
        .map(|f| f.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files.iter().flat_map(|file| std::fs::read(file).expect("a source file")).collect()
}

fn program() -> Vec<u8> {
    let program = std::env::current_exe().expect("a program");
    let mut content = std::fs::read(program).expect("this program");
    content.truncate(4 << 20);
    content
}

/// A page of a log of pages: `at` bytes of one, what is between two, and the next one's head.
fn spliced(first: &Page, second: &Page, at: usize, between: &[u8]) -> Box<Page> {
    let mut page = Box::new([0; PAGE_SIZE]);
    let (tail, rest) = page.split_at_mut(at);
    tail.copy_from_slice(&first[PAGE_SIZE - at..]);
    let (middle, head) = rest.split_at_mut(between.len().min(PAGE_SIZE - at));
    middle.copy_from_slice(&between[..middle.len()]);
    head.copy_from_slice(&second[..head.len()]);
    page
}

/// Pages of a log that hold new versions of the two database pages whose old ones its base holds, at the same place.
fn log_of(name: &str, set: &Set, header: usize) -> Set {
    let mut random = ChaCha12Rng::seed_from_u64(9);
    let mut between = vec![0; header];
    let splice = |(i, pairs): (usize, &[Pair; 2])| {
        let at = i * 37 % (PAGE_SIZE - header);
        random.fill_bytes(&mut between);
        let base = spliced(&pairs[0].0, &pairs[1].0, at, &between);
        random.fill_bytes(&mut between);
        (base, spliced(&pairs[0].1, &pairs[1].1, at, &between))
    };
    Set {
        name: name.to_owned(),
        pairs: set.pairs.as_chunks::<2>().0.iter().enumerate().map(splice).collect(),
    }
}

/// Pages of which nothing shrinks, moved behind a piece that is new.
fn moved_noise() -> Set {
    let mut random = ChaCha12Rng::seed_from_u64(6);
    let pair = |i: usize| {
        let (mut base, mut page) = (Box::new([0; PAGE_SIZE]), Box::new([0; PAGE_SIZE]));
        random.fill_bytes(&mut *base);
        let new = 200 + i * 40;
        random.fill_bytes(&mut page[..new]);
        page[new..].copy_from_slice(&base[..PAGE_SIZE - new]);
        (base, page)
    };
    Set { name: "noise, moved".to_owned(), pairs: (0..PAGES).map(pair).collect() }
}

/// All kinds. `real` are the versions of real pages.
pub(crate) fn sets(real: &[Set]) -> Vec<Set> {
    let named = |name: &str| real.iter().find(|set| set.name == name).expect("a set of this name");
    let pages = |name: &str| -> Vec<u8> { named(name).pairs.iter().flat_map(|(_, page)| **page).collect() };
    let mut half = pages("inserts");
    half.as_chunks_mut::<PAGE_SIZE>().0.iter_mut().for_each(|page| page[1024..].fill(0));
    let mut noise = vec![0; PAGES * PAGE_SIZE];
    ChaCha12Rng::seed_from_u64(4).fill_bytes(&mut noise);
    vec![
        appended("SQLite", &pages("mixed")),
        appended("WAL file", &pages("WAL file, mixed")),
        appended("journal file", &pages("journal file, mixed")),
        appended("JSON", &json()),
        appended("XML", &xml()),
        appended("log", &log()),
        appended("sources", &sources()),
        appended("program", &program()),
        appended("records", &records()),
        appended("repeated numbers", &repeated_numbers()),
        appended("first quarter", &half),
        appended("noise", &noise),
        moved_noise(),
        log_of("spliced as in a WAL", named("mixed"), FRAME_HEADER),
        log_of("spliced as in a journal", named("mixed"), JOURNAL_FRAME),
    ]
}
