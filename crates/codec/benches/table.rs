//! The table of codecs: `cargo bench -p medfs-codec --bench table`, `... -- new/WAL` for the sets of these
//! names. Bytes, nanoseconds to encode and to decode, of every codec, on a synthetic grid, on versions of
//! real pages and on pages without a base, beside the C LZO in the same run on one core.
//!
//! Each figure is the mean over the pairs of a set, the least of several rounds; in each round every codec takes its
//! turn, so that a busy moment of the machine hits all of them. XOR and copies are included on both sides.

#[path = "../tests/support/fresh.rs"]
mod fresh;
#[path = "../tests/support/pages.rs"]
mod pages;
#[path = "../tests/support/peer.rs"]
mod peer;

use medfs_codec::diff::Diff;
use medfs_codec::{CodecError, CodecTag, Codecs, DeltaCodec, PAGE_SIZE, Page, page_checksum};
use pages::{Pair, Set};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha12Rng;
use std::hint::black_box;
use std::time::Instant;

/// Rounds of which the least time counts.
const ROUNDS: usize = 15;
/// Passes over a set in each.
const PASSES: usize = 4;
/// Pairs that are timed: two of them fit the second cache level often enough to time codecs rather than memory.
const TIMED: usize = 128;
/// What a delta may take: the threshold of inline deltas, that of five to a compact page, all of such a page.
const BUDGETS: [usize; 3] = [INLINE, 819, 4000];
/// The threshold of inline deltas (MedFS, section 6.3).
const INLINE: usize = 256;
/// Worst case of LZO.
const LZO_MAX: usize = PAGE_SIZE + PAGE_SIZE / 16 + 67;

/// A page as the engine has it: aligned for direct I/O.
#[derive(Clone)]
#[repr(align(4096))]
struct Aligned(Page);

/// A pair of a set, so.
struct Versions {
    base: Box<Aligned>,
    page: Box<Aligned>,
}

impl From<&Pair> for Versions {
    fn from((base, page): &Pair) -> Self {
        Versions { base: Box::new(Aligned(**base)), page: Box::new(Aligned(**page)) }
    }
}

/// The paper's codec, by the C library: XOR, then LZO. No byte is copied that need not be: the XOR is one
/// pass, and what is compressed goes to where it is wanted, which must hold the worst case.
struct CLzo {
    lzo: peer::Lzo,
    xor: Aligned,
}

impl CLzo {
    fn load() -> Option<Self> {
        Some(CLzo { lzo: peer::Lzo::load()?, xor: Aligned([0; PAGE_SIZE]) })
    }
}

fn xor_into(page: &mut Page, other: &Page) {
    page.iter_mut().zip(other).for_each(|(a, b)| *a ^= b);
}

impl DeltaCodec for CLzo {
    fn tag(&self) -> CodecTag {
        CodecTag::XorLzo
    }

    fn encode(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<usize> {
        self.xor.0.iter_mut().zip(base.iter().zip(page)).for_each(|(xor, (a, b))| *xor = a ^ b);
        Some(self.lzo.compress(&self.xor.0, out))
    }

    fn decode(&mut self, base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> {
        self.lzo.decompress(delta, page).map_err(|_| CodecError::Damaged(CodecTag::XorLzo))?;
        xor_into(page, base);
        Ok(())
    }

    fn patch(&mut self, page: &mut Page, delta: &[u8]) -> Result<(), CodecError> {
        self.lzo.decompress(delta, &mut self.xor.0).map_err(|_| CodecError::Damaged(CodecTag::XorLzo))?;
        xor_into(page, &self.xor.0);
        Ok(())
    }
}

/// A column of the table.
enum Subject {
    C(Box<CLzo>),
    One(CodecTag, Box<Codecs>),
    /// Within a budget.
    Chosen(Box<Codecs>, usize),
}

impl Subject {
    /// The C LZO where it is, and what is chosen.
    fn chosen(budget: usize) -> Vec<Subject> {
        let mut all: Vec<Subject> = CLzo::load().map(Box::new).map(Subject::C).into_iter().collect();
        all.push(Subject::Chosen(Box::default(), budget));
        all
    }

    fn all() -> Vec<Subject> {
        let mut all = Subject::chosen(PAGE_SIZE);
        all.extend(CodecTag::ALL.into_iter().skip(1).map(|tag| Subject::One(tag, Box::default())));
        all
    }

    fn name(&self) -> &'static str {
        match self {
            Subject::C(_) => "C LZO",
            Subject::One(tag, _) => tag.name(),
            Subject::Chosen(..) => "chosen",
        }
    }

    fn encode(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<(CodecTag, usize)> {
        match self {
            Subject::C(c) => c.encode(base, page, out).map(|len| (CodecTag::XorLzo, len)),
            Subject::One(tag, codecs) => codecs.encode_with(*tag, base, page, out).map(|e| (e.tag, e.len)),
            Subject::Chosen(codecs, budget) => {
                codecs.encode(base, page, &mut out[..*budget]).map(|e| (e.tag, e.len))
            }
        }
    }

    fn decode(&mut self, base: &Page, delta: &Delta, page: &mut Page) -> Result<(), CodecError> {
        match self {
            Subject::C(c) => c.decode(base, &delta.bytes, page),
            Subject::One(_, codecs) | Subject::Chosen(codecs, _) => {
                codecs.decode(delta.tag, base, &delta.bytes, page)
            }
        }
    }

    fn patch(&mut self, page: &mut Page, delta: &Delta) -> Result<(), CodecError> {
        match self {
            Subject::C(c) => c.patch(page, &delta.bytes),
            Subject::One(_, codecs) | Subject::Chosen(codecs, _) => {
                codecs.patch(delta.tag, page, &delta.bytes)
            }
        }
    }
}

struct Delta {
    tag: CodecTag,
    bytes: Vec<u8>,
}

/// Means over a set.
#[derive(Clone, Copy)]
struct Figures {
    bytes: f64,
    encode: f64,
    decode: f64,
    patch: f64,
}

/// Deltas of all pairs, each checked to decode. What does not fit a page is the page.
fn deltas(subject: &mut Subject, pairs: &[Pair]) -> Vec<Delta> {
    let (mut out, mut rebuilt) = ([0; LZO_MAX], [0; PAGE_SIZE]);
    let one = |(base, page): &Pair| {
        let Some((tag, len)) = subject.encode(base, page, &mut out) else {
            return Delta { tag: CodecTag::Raw, bytes: page.to_vec() };
        };
        let delta = Delta { tag, bytes: out[..len].to_vec() };
        subject.decode(base, &delta, &mut rebuilt).expect("decodes");
        assert!(rebuilt == **page, "{} rebuilds the page", subject.name());
        delta
    };
    pairs.iter().map(one).collect()
}

/// Nanoseconds for each of `count` calls: the least of a few passes, for the first one finds the caches cold.
fn time(count: usize, mut call: impl FnMut(usize)) -> f64 {
    let pass = |_| {
        let start = Instant::now();
        (0..count).for_each(&mut call);
        start.elapsed().as_nanos() as f64 / count as f64
    };
    (0..PASSES).map(pass).fold(f64::MAX, f64::min)
}

/// One round of one subject, timed into `least`.
fn round(subject: &mut Subject, timed: &[Versions], deltas: &[Delta], least: &mut Figures) {
    let (mut out, mut rebuilt) = ([0; LZO_MAX], Box::new(Aligned([0; PAGE_SIZE])));
    let mut pages: Vec<Box<Aligned>> = timed.iter().map(|pair| pair.base.clone()).collect();
    let raw = |i: usize| deltas[i].tag == CodecTag::Raw;
    let encode = time(timed.len(), |i| {
        black_box(subject.encode(&timed[i].base.0, &timed[i].page.0, black_box(&mut out)));
    });
    let decode = time(timed.len(), |i| {
        if raw(i) {
            rebuilt.0.copy_from_slice(&deltas[i].bytes);
        } else {
            let _ = black_box(subject.decode(&timed[i].base.0, &deltas[i], black_box(&mut rebuilt.0)));
        }
    });
    let patch = time(timed.len(), |i| {
        if raw(i) {
            pages[i].0.copy_from_slice(&deltas[i].bytes);
        } else {
            let _ = black_box(subject.patch(black_box(&mut pages[i].0), &deltas[i]));
        }
    });
    least.encode = least.encode.min(encode);
    least.decode = least.decode.min(decode);
    least.patch = least.patch.min(patch);
}

/// Measures every subject on a set.
fn measure(subjects: &mut [Subject], set: &Set) -> Vec<Figures> {
    let step = set.pairs.len().div_ceil(TIMED);
    let timed: Vec<Versions> = set.pairs.iter().step_by(step).map(Versions::from).collect();
    let mut figures = Vec::new();
    let mut timed_deltas = Vec::new();
    for subject in subjects.iter_mut() {
        let all = deltas(subject, &set.pairs);
        let bytes = all.iter().map(|d| d.bytes.len()).sum::<usize>() as f64 / all.len() as f64;
        figures.push(Figures { bytes, encode: f64::MAX, decode: f64::MAX, patch: f64::MAX });
        timed_deltas.push(all.into_iter().step_by(step).collect::<Vec<_>>());
    }
    for _ in 0..ROUNDS {
        for ((subject, deltas), least) in subjects.iter_mut().zip(&timed_deltas).zip(&mut figures) {
            round(subject, &timed, deltas, least);
        }
    }
    figures
}

fn print_all(subjects: &[Subject], sets: &[Set], figures: &[Vec<Figures>]) {
    println!("\nBytes / ns to encode / ns to decode into another page, of each codec, without a budget\n");
    print!("| pages | pairs |");
    subjects.iter().for_each(|s| print!(" {} |", s.name()));
    println!("\n|---|---|{}", "---|".repeat(subjects.len()));
    for (set, figures) in sets.iter().zip(figures) {
        print!("| {} | {} |", set.name, set.pairs.len());
        figures.iter().for_each(|f| print!(" {:.0} / {:.0} / {:.0} |", f.bytes, f.encode, f.decode));
        println!();
    }
}

/// The pairs whose deltas fit a budget.
fn fitting(set: &Set, budget: usize) -> Set {
    let (mut codecs, mut out) = (Codecs::default(), [0; PAGE_SIZE]);
    let fits = |(base, page): &&Pair| codecs.encode(base, page, &mut out[..budget]).is_some();
    Set { name: set.name.clone(), pairs: set.pairs.iter().filter(fits).cloned().collect() }
}

/// What is chosen within a budget beside the C LZO, on the pages that fit.
fn print_goal_within(sets: &[Set], budget: usize) {
    let mut subjects = Subject::chosen(budget);
    let sets: Vec<Set> =
        sets.iter().map(|set| fitting(set, budget)).filter(|set| !set.pairs.is_empty()).collect();
    let figures: Vec<Vec<Figures>> = sets.iter().map(|set| measure(&mut subjects, set)).collect();
    println!("\nWithin {budget} bytes, on the pages that fit them");
    print_goal(&sets, &figures);
}

/// Ours beside the C LZO, and what misses the goal.
fn print_goal(sets: &[Set], figures: &[Vec<Figures>]) {
    println!(
        "\nThe chosen codec beside the C LZO: smaller, 5 times as fast to encode, 10 times to decode?\n"
    );
    println!(
        "| pages | pairs | bytes | encode | decode into another page | decode in place | misses |\n|---|---|---|---|---|---|---|"
    );
    for (set, figures) in sets.iter().zip(figures) {
        let (c, ours) = (figures[0], figures[1]);
        let pair = |c: f64, ours: f64| format!("{c:.0} : {ours:.0} = {:.1}", c / ours);
        let mut misses = Vec::new();
        misses.extend((ours.bytes >= c.bytes).then_some("bytes"));
        misses.extend((c.encode < 5.0 * ours.encode).then_some("encode"));
        misses.extend((c.decode < 10.0 * ours.decode).then_some("decode"));
        misses.extend((c.patch < 10.0 * ours.patch).then_some("in place"));
        println!(
            "| {} | {} | {:.0} : {:.0} | {} | {} | {} | {} |",
            set.name,
            set.pairs.len(),
            c.bytes,
            ours.bytes,
            pair(c.encode, ours.encode),
            pair(c.decode, ours.decode),
            pair(c.patch, ours.patch),
            misses.join(", ")
        );
    }
}

/// What the choice gives away: beside all codecs tried, within budgets.
fn print_choice(sets: &[Set]) {
    println!(
        "\nThe choice beside the smallest of all codecs tried: pages that fit, their mean bytes, ns a page\n"
    );
    println!(
        "| pages | budget | fit | of those all fit | bytes | of all | ns | of all | codecs |\n|---|---|---|---|---|---|---|---|---|"
    );
    for set in sets {
        BUDGETS.iter().for_each(|budget| print_budget(set, *budget));
    }
}

fn print_budget(set: &Set, budget: usize) {
    let mut codecs = Codecs::default();
    let mut out = [0; PAGE_SIZE];
    let (mut fit, mut all_fit, mut bytes, mut all_bytes) = (0, 0, 0, 0);
    let mut counts = [0; CodecTag::ALL.len() + 1];
    for (base, page) in &set.pairs {
        let all =
            CodecTag::ALL.map(|tag| codecs.encode_with(tag, base, page, &mut out[..budget]).map(|e| e.len));
        let least = all.into_iter().flatten().min();
        let chosen = codecs.encode(base, page, &mut out[..budget]);
        all_fit += usize::from(least.is_some());
        if let (Some(chosen), Some(least)) = (chosen, least) {
            (fit, bytes, all_bytes) = (fit + 1, bytes + chosen.len, all_bytes + least);
            counts[chosen.tag as usize] += 1;
        }
    }
    let mean = |sum: usize| sum as f64 / fit.max(1) as f64;
    let (ns, all_ns) = choice_times(&mut codecs, set, budget);
    let used = CodecTag::ALL.iter().filter(|tag| counts[**tag as usize] > 0);
    let used: Vec<String> = used.map(|tag| format!("{} {}", counts[*tag as usize], tag.name())).collect();
    println!(
        "| {} | {budget} | {fit} | {all_fit} | {:.1} | {:.1} | {ns:.0} | {all_ns:.0} | {} |",
        set.name,
        mean(bytes),
        mean(all_bytes),
        used.join(", ")
    );
}

/// Nanoseconds a page: the choice, and all codecs one after the other.
fn choice_times(codecs: &mut Codecs, set: &Set, budget: usize) -> (f64, f64) {
    let step = set.pairs.len().div_ceil(TIMED);
    let timed: Vec<Versions> = set.pairs.iter().step_by(step).map(Versions::from).collect();
    let mut out = [0; PAGE_SIZE];
    let (mut least, mut all_least) = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        let ns = time(timed.len(), |i| {
            black_box(codecs.encode(&timed[i].base.0, &timed[i].page.0, black_box(&mut out[..budget])));
        });
        let all_ns = time(timed.len(), |i| {
            for tag in CodecTag::ALL {
                black_box(codecs.encode_with(
                    tag,
                    &timed[i].base.0,
                    &timed[i].page.0,
                    black_box(&mut out[..budget]),
                ));
            }
        });
        (least, all_least) = (least.min(ns), all_least.min(all_ns));
    }
    (least, all_least)
}

fn print_parts(set: &Set) {
    let pairs: Vec<Versions> = set.pairs.iter().map(Versions::from).collect();
    let (mut look, mut checksum, mut copy) = (f64::MAX, f64::MAX, f64::MAX);
    let mut page = Box::new(Aligned([0; PAGE_SIZE]));
    for _ in 0..ROUNDS {
        look = look.min(time(pairs.len(), |i| {
            black_box(Diff::new(&pairs[i].base.0, &pairs[i].page.0).is_empty());
        }));
        checksum = checksum.min(time(pairs.len(), |i| {
            black_box(page_checksum(&pairs[i].page.0));
        }));
        copy = copy.min(time(pairs.len(), |i| page.0 = *black_box(&pairs[i].base.0)));
        black_box(&page);
    }
    println!("\nns: first look {look:.0}, page checksum {checksum:.0}, copy of a page {copy:.0}");
}

/// All pairs in random order: what the choice learns of one kind of page is no use with the next.
fn shuffled(sets: &[Set]) -> Set {
    let mut pairs: Vec<Pair> = sets.iter().flat_map(|set| set.pairs.iter().cloned()).collect();
    pairs.shuffle(&mut ChaCha12Rng::seed_from_u64(1));
    Set { name: "all of these, shuffled".to_owned(), pairs }
}

/// Keeps this thread on the core it runs on.
fn pin() {
    let mut core = rustix::thread::CpuSet::new();
    core.set(rustix::thread::sched_getcpu());
    if let Err(error) = rustix::thread::sched_setaffinity(None, &core) {
        println!("not pinned to a core: {error}");
    }
}

fn main() {
    // `cargo bench` passes --bench; `cargo test --benches` does not, and only builds.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    pin();
    let only: Option<String> = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let grid = [1, 5, 10, 25].into_iter().flat_map(|percent| [1, 4, 16].map(|clusters| (percent, clusters)));
    let mut sets: Vec<Set> = grid.map(|(percent, clusters)| pages::grid(percent, clusters, TIMED)).collect();
    let real = pages::real();
    let fresh = fresh::sets(&real);
    sets.extend(real);
    sets.extend(fresh);
    let wanted =
        |set: &Set| only.as_ref().is_none_or(|only| only.split('/').any(|one| set.name.contains(one)));
    sets.retain(wanted);
    let mut subjects = Subject::all();
    let figures: Vec<Vec<Figures>> = sets.iter().map(|set| measure(&mut subjects, set)).collect();
    print_all(&subjects, &sets, &figures);
    match &subjects[0] {
        Subject::C(_) => {
            print_goal_within(&sets, INLINE);
            println!("\nWithin a page");
            print_goal(&sets, &figures);
        }
        _ => println!("\nno liblzo2.so.2 here: nothing to compare with"),
    }
    sets.push(shuffled(&sets));
    print_choice(&sets);
    sets.first().into_iter().for_each(print_parts);
}
