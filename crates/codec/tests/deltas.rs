//! Every codec: what is encoded decodes, within every budget; what is damaged is an error and nothing worse.

#[path = "support/fresh.rs"]
mod fresh;
#[path = "support/pages.rs"]
mod pages;

use medfs_codec::compress::{Compressor, Lz4, Lzo, Zstd};
use medfs_codec::{CodecError, CodecTag, Codecs, PAGE_SIZE, Page, entropy, page_checksum};
use proptest::prelude::*;

/// How an application changes a page.
#[derive(Debug, Clone)]
enum Edit {
    /// New bytes at a place.
    Write { at: usize, bytes: Vec<u8> },
    /// A piece is copied to another place, as SQLite does with cells.
    Copy { from: usize, to: usize, len: usize },
    /// What follows a place moves back, as in a text file that grew.
    Insert { at: usize, bytes: Vec<u8> },
    /// What follows a place moves forward.
    Remove { at: usize, len: usize },
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = 0..PAGE_SIZE;
    let bytes = |max| proptest::collection::vec(any::<u8>(), 1..max);
    prop_oneof![
        (place.clone(), bytes(400)).prop_map(|(at, bytes)| Edit::Write { at, bytes }),
        (place.clone(), place.clone(), 1..1500usize).prop_map(|(from, to, len)| Edit::Copy { from, to, len }),
        (place.clone(), bytes(40)).prop_map(|(at, bytes)| Edit::Insert { at, bytes }),
        (place, 1..100usize).prop_map(|(at, len)| Edit::Remove { at, len }),
    ]
}

fn apply(page: &mut Page, edit: &Edit) {
    match edit {
        Edit::Write { at, bytes } => {
            let end = (at + bytes.len()).min(PAGE_SIZE);
            page[*at..end].copy_from_slice(&bytes[..end - at]);
        }
        Edit::Copy { from, to, len } => {
            let len = *len.min(&(PAGE_SIZE - from.max(to)));
            page.copy_within(*from..from + len, *to);
        }
        Edit::Insert { at, bytes } => {
            let end = (at + bytes.len()).min(PAGE_SIZE);
            page.copy_within(*at..PAGE_SIZE - (end - at), end);
            page[*at..end].copy_from_slice(&bytes[..end - at]);
        }
        Edit::Remove { at, len } => page.copy_within((at + len).min(PAGE_SIZE).., *at),
    }
}

/// A page: of text-like bytes, of any bytes, or of one byte.
fn page() -> impl Strategy<Value = Page> {
    let of = |bytes: &Vec<u8>| -> Page {
        std::array::from_fn(|i| bytes[i % bytes.len()].wrapping_add((i / 511) as u8))
    };
    prop_oneof![
        proptest::collection::vec(any::<u8>(), PAGE_SIZE).prop_map(move |bytes| of(&bytes)),
        proptest::collection::vec(97..105u8, PAGE_SIZE).prop_map(move |bytes| of(&bytes)),
        any::<u8>().prop_map(|byte| [byte; PAGE_SIZE]),
    ]
}

fn pair() -> impl Strategy<Value = (Page, Page)> {
    let edited = (page(), proptest::collection::vec(edit(), 0..12)).prop_map(|(base, edits)| {
        let mut page = base;
        edits.iter().for_each(|edit| apply(&mut page, edit));
        (base, page)
    });
    let new = page().prop_map(|page| ([0; PAGE_SIZE], page));
    prop_oneof![4 => edited, 1 => (page(), page()), 1 => new]
}

/// Bytes no codec may write, before and behind what it is given.
const GUARD: [u8; 32] = [0xA5; 32];

/// Encodes with guards around a budget, and checks them, the size, and what is decoded.
fn check(
    codecs: &mut Codecs,
    tag: Option<CodecTag>,
    base: &Page,
    page: &Page,
    budget: usize,
) -> Option<usize> {
    let mut buffer = vec![GUARD[0]; GUARD.len() + budget + GUARD.len()];
    let out = &mut buffer[GUARD.len()..GUARD.len() + budget];
    let encoded = match tag {
        Some(tag) => codecs.encode_with(tag, base, page, out),
        None => codecs.encode(base, page, out),
    };
    assert_eq!(buffer[..GUARD.len()], GUARD);
    assert_eq!(buffer[GUARD.len() + budget..], GUARD);
    let encoded = encoded?;
    assert!(encoded.len <= budget.min(PAGE_SIZE), "{} bytes of {}", encoded.len, encoded.tag.name());
    assert!(tag.is_none_or(|tag| tag == encoded.tag));
    let mut rebuilt = [0x5A; PAGE_SIZE];
    let delta = &buffer[GUARD.len()..][..encoded.len];
    codecs.decode(encoded.tag, base, delta, &mut rebuilt).expect("what was encoded decodes");
    assert!(rebuilt == *page, "{} rebuilds another page", encoded.tag.name());
    assert_eq!(page_checksum(&rebuilt), page_checksum(page));
    rebuilt = *base;
    codecs.patch(encoded.tag, &mut rebuilt, delta).expect("what decodes patches");
    assert!(rebuilt == *page, "{} patches to another page", encoded.tag.name());
    rebuilt = *base;
    codecs.patch_copy(encoded.tag, base, &mut rebuilt, delta).expect("what decodes patches a copy");
    assert!(rebuilt == *page, "{} patches a copy to another page", encoded.tag.name());
    Some(encoded.len)
}

proptest! {
    #[test]
    fn what_is_encoded_decodes((base, page) in pair(), budget in 0..=PAGE_SIZE + 100) {
        let mut codecs = Codecs::default();
        for tag in CodecTag::ALL {
            let whole = check(&mut codecs, Some(tag), &base, &page, PAGE_SIZE + 100);
            let within = check(&mut codecs, Some(tag), &base, &page, budget);
            prop_assert_eq!(within, whole.filter(|len| *len <= budget), "{}", tag.name());
        }
    }

    #[test]
    fn the_choice_fits_and_is_never_larger_than_a_page((base, page) in pair(), budget in 0..PAGE_SIZE) {
        let mut codecs = Codecs::default();
        let whole = check(&mut codecs, None, &base, &page, PAGE_SIZE);
        prop_assert!(whole.is_some_and(|len| len <= PAGE_SIZE));
        let within = check(&mut codecs, None, &base, &page, budget);
        // Of a base of zeros there is nothing to move.
        let both = [CodecTag::XorSparse, CodecTag::Moves];
        for tag in both.into_iter().take(1 + usize::from(base != [0; PAGE_SIZE])) {
            let alone = check(&mut codecs, Some(tag), &base, &page, budget);
            prop_assert!(alone.is_none() || within.is_some(), "{} fits and was not chosen", tag.name());
        }
    }

    #[test]
    fn codecs_forget_what_they_did_before((base, page) in pair(), (other_base, other) in pair()) {
        let mut used = Codecs::default();
        for tag in CodecTag::ALL {
            let (mut first, mut second) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
            used.encode_with(tag, &other_base, &other, &mut first);
            let after = used.encode_with(tag, &base, &page, &mut first);
            let fresh = Codecs::default().encode_with(tag, &base, &page, &mut second);
            prop_assert_eq!(after, fresh);
            let len = fresh.map_or(0, |encoded| encoded.len);
            prop_assert!(first[..len] == second[..len], "{}", tag.name());
        }
    }

    #[test]
    fn any_bytes_are_a_page_or_an_error(
        base in page(),
        delta in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..300),
            proptest::collection::vec(any::<u8>(), 0..PAGE_SIZE + 300),
        ],
    ) {
        let mut codecs = Codecs::default();
        for tag in CodecTag::ALL {
            // The page is all a codec can reach: that it does not panic is what is shown.
            let _ = codecs.decode(tag, &base, &delta, &mut [0; PAGE_SIZE]);
            let _ = codecs.patch(tag, &mut base.clone(), &delta);
            let _ = codecs.patch_copy(tag, &base, &mut base.clone(), &delta);
        }
    }

    #[test]
    fn damaged_deltas_are_a_page_or_an_error(
        (base, page) in pair(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut codecs = Codecs::default();
        for tag in CodecTag::ALL {
            let mut delta = [0; PAGE_SIZE];
            let Some(encoded) = codecs.encode_with(tag, &base, &page, &mut delta) else { continue };
            let delta = &mut delta[..encoded.len];
            let _ = codecs.decode(tag, &base, &delta[..cut.index(delta.len() + 1)], &mut [0; PAGE_SIZE]);
            for (at, byte) in damage.iter().filter(|_| encoded.len > 0) {
                delta[at.index(encoded.len)] = *byte;
            }
            let _ = codecs.decode(tag, &base, delta, &mut [0; PAGE_SIZE]);
            let _ = codecs.patch(tag, &mut page.clone(), delta);
            let _ = codecs.patch_copy(tag, &base, &mut base.clone(), delta);
            // A codec that met damage reads the next delta as ever.
            check(&mut codecs, Some(tag), &base, &page, PAGE_SIZE);
        }
    }
}

#[test]
fn real_pages_come_back() {
    let mut codecs = Codecs::default();
    let real = pages::real();
    let fresh = fresh::sets(&real);
    for set in real.into_iter().chain(fresh).chain([pages::grid(5, 16, 20), pages::grid(25, 4, 20)]) {
        for (base, page) in set.pairs.iter().step_by(5) {
            for tag in CodecTag::ALL {
                let whole = check(&mut codecs, Some(tag), base, page, PAGE_SIZE);
                let Some(len) = whole.filter(|len| *len > 0) else { continue };
                assert_eq!(check(&mut codecs, Some(tag), base, page, len), whole, "{} just fits", tag.name());
                assert_eq!(check(&mut codecs, Some(tag), base, page, len - 1), None, "{}", tag.name());
            }
            check(&mut codecs, None, base, page, PAGE_SIZE)
                .unwrap_or_else(|| panic!("{}: with a page's room one fits", set.name));
        }
    }
}

/// Bytes of the smallest delta that fits, of those that all codecs make; a page's where none fits.
fn least(codecs: &mut Codecs, base: &Page, page: &Page, budget: usize) -> usize {
    let mut out = vec![0; budget];
    let all = CodecTag::ALL.map(|tag| codecs.encode_with(tag, base, page, &mut out).map(|made| made.len));
    all.into_iter().flatten().min().unwrap_or(PAGE_SIZE)
}

#[test]
fn large_budgets_get_nearly_the_smallest_delta_of_all() {
    let real = pages::real();
    let fresh = fresh::sets(&real);
    for budget in [819, 4000] {
        let (mut bytes, mut least_bytes) = (0, 0);
        for set in real.iter().chain(&fresh) {
            let (mut codecs, mut others) = (Codecs::default(), Codecs::default());
            let (mut set_bytes, mut set_least, mut pages) = (0, 0, 0);
            for (base, page) in set.pairs.iter().step_by(set.pairs.len().div_ceil(100)) {
                set_bytes += check(&mut codecs, None, base, page, budget).unwrap_or(PAGE_SIZE);
                set_least += least(&mut others, base, page, budget);
                pages += 1;
            }
            let name = &set.name;
            // Small ones are made by what takes the least time: `dense` would make those of `moves` a tenth smaller.
            let allowed = set_least * 6 / 5 + 8 * pages;
            assert!(set_bytes <= allowed, "{name} in {budget}: {set_bytes}, not {set_least}");
            (bytes, least_bytes) = (bytes + set_bytes, least_bytes + set_least);
        }
        assert!(bytes * 100 <= least_bytes * 102, "all in {budget}: {bytes}, not {least_bytes}");
    }
}

#[test]
fn pages_without_a_base_are_compressed_alone() {
    let mut codecs = Codecs::default();
    for set in fresh::sets(&pages::real()) {
        for (base, page) in set.pairs.iter().step_by(7) {
            check(&mut codecs, None, base, page, 4000);
        }
        if ["new: JSON", "new: XML", "new: sources"].contains(&set.name.as_str()) {
            let (base, page) = &set.pairs[1];
            let made = codecs.encode(base, page, &mut [0; 2200]).expect("text is halved");
            assert_eq!(made.tag, CodecTag::ZstdPrefix, "{}", set.name);
        }
    }
}

#[test]
fn a_frame_of_any_claimed_size_takes_no_memory() {
    // What this process may write to, in pages: an allocator sets address space aside for a new thread. What the tests
    // beside this one take is less than 64 MiB.
    let size = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("this process");
        statm.split(' ').nth(5).and_then(|pages| pages.parse::<usize>().ok()).expect("its size")
    };
    let (mut codecs, base, mut page) = (Codecs::default(), noise(1), [0; PAGE_SIZE]);
    let _ = codecs.decode(CodecTag::ZstdPrefix, &base, &[0], &mut page);
    let before = size();
    // Frame headers: 8 bytes of content size, alone and behind a window of up to 2 GiB; then a last block of one byte
    // that says it repeats.
    for claimed in [1u64 << 20, 1 << 27, 1 << 30, 1 << 33, u64::MAX] {
        for head in [&[0xE0][..], &[0xC0, 0xA8], &[0xC0, 0xFF]] {
            let frame = [head, &claimed.to_le_bytes(), &[0x03, 0x00, 0x08, 7]].concat();
            let damaged = Err(CodecError::Damaged(CodecTag::ZstdPrefix));
            assert_eq!(codecs.decode(CodecTag::ZstdPrefix, &base, &frame, &mut page), damaged);
            let frame = [&[0x28, 0xB5, 0x2F, 0xFD], &frame[..]].concat();
            let damaged = Err(CodecError::Damaged(CodecTag::XorZstd));
            assert_eq!(codecs.decode(CodecTag::XorZstd, &base, &frame, &mut page), damaged);
        }
    }
    let grown = size().saturating_sub(before) * 4096;
    assert!(grown < 64 << 20, "{grown} bytes more");
}

#[test]
fn entropy_foretells_what_lzo_makes_of_real_pages() {
    let (mut lzo, mut out) = (Lzo::default(), [0; 2 * PAGE_SIZE]);
    let (mut errors, mut sampling, mut count) = (0.0, 0.0, 0.0);
    let sets = pages::real();
    for (_, page) in sets.iter().flat_map(|set| set.pairs.iter().step_by(7)) {
        let size = lzo.compress(&page[..], &mut out).expect("the worst case fits");
        let ratio = f64::from(entropy::ratio(page)) / f64::from(entropy::WHOLE);
        let whole = f64::from(entropy::whole_entropy(page));
        errors += (ratio - size as f64 / PAGE_SIZE as f64).abs();
        sampling += (f64::from(entropy::entropy(page)) - whole).abs() / whole;
        count += 1.0;
    }
    assert!(errors / count < 0.1, "mean error of the ratio {:.3}", errors / count);
    assert!(sampling / count < 0.05, "mean error of the sampled entropy {:.3}", sampling / count);
}

#[test]
fn equal_pages_take_nothing() {
    let encoded =
        Codecs::default().encode(&[7; PAGE_SIZE], &[7; PAGE_SIZE], &mut []).expect("no byte is needed");
    assert_eq!((encoded.tag, encoded.len), (CodecTag::XorSparse, 0));
}

#[test]
fn a_wrong_base_is_what_the_checksum_finds() {
    let (base, mut page, mut wrong) = ([1; PAGE_SIZE], [1; PAGE_SIZE], [1; PAGE_SIZE]);
    (page[100], wrong[2000]) = (2, 9);
    let mut codecs = Codecs::default();
    let (mut delta, mut rebuilt) = ([0; 64], [0; PAGE_SIZE]);
    let encoded = codecs.encode(&base, &page, &mut delta).expect("fits");
    codecs.decode(encoded.tag, &wrong, &delta[..encoded.len], &mut rebuilt).expect("decodes");
    assert_ne!(page_checksum(&rebuilt), page_checksum(&page));
}

#[test]
fn a_base_that_begins_like_a_dictionary_does_no_harm() {
    let mut base = [3; PAGE_SIZE];
    base[..4].copy_from_slice(&[0x37, 0xA4, 0x30, 0xEC]);
    let (mut page, mut codecs) = (base, Codecs::default());
    page[7] = 1;
    assert_eq!(codecs.encode_with(CodecTag::ZstdPrefix, &base, &page, &mut [0; PAGE_SIZE]), None);
    check(&mut codecs, None, &base, &page, PAGE_SIZE).expect("others do");
    let (mut delta, plain) = ([0; PAGE_SIZE], [3; PAGE_SIZE]);
    let made = codecs.encode_with(CodecTag::ZstdPrefix, &plain, &page, &mut delta).expect("fits");
    let decoded = codecs.decode(made.tag, &base, &delta[..made.len], &mut page);
    assert_eq!(decoded, Err(CodecError::Damaged(CodecTag::ZstdPrefix)));
}

/// A page whose bytes do not repeat.
fn noise(seed: u64) -> Page {
    let mut state = seed;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

/// `base` with `len` bytes at 3000 that are new, or its own from 1000.
fn changed(base: &Page, len: usize, new: bool) -> Page {
    let mut page = *base;
    let source = if new { noise(base[0].into()) } else { *base };
    page[3000..3000 + len].copy_from_slice(&source[1000..1000 + len]);
    page
}

#[test]
fn moves_rests_after_tries_in_vain_and_comes_back() {
    let (mut codecs, base) = (Codecs::default(), noise(1));
    let mut tag = |new| codecs.encode(&base, &changed(&base, 100, new), &mut [0; 255]).map(|made| made.tag);
    assert_eq!(tag(false), Some(CodecTag::Moves));
    (0..10).for_each(|_| assert_eq!(tag(true), Some(CodecTag::XorSparse)));
    assert_eq!(tag(false), Some(CodecTag::XorSparse), "it rests");
    assert!((0..70).any(|_| tag(false) == Some(CodecTag::Moves)), "it comes back");
    assert_eq!(tag(false), Some(CodecTag::Moves), "what succeeds is tried again");
}

#[test]
fn glances_rest_after_many_in_vain_and_come_back() {
    let (mut codecs, base) = (Codecs::default(), noise(1));
    let mut text = base;
    text[3000..3400].iter_mut().enumerate().for_each(|(i, byte)| *byte = b'a' + (i * i / 7 % 5) as u8);
    let mut tag = |page: &Page| codecs.encode(&base, page, &mut [0; 1000]).map(|made| made.tag);
    assert_eq!(tag(&text), Some(CodecTag::Dense));
    (0..30).for_each(|_| assert_eq!(tag(&changed(&base, 400, true)), Some(CodecTag::XorSparse)));
    assert_eq!(tag(&text), Some(CodecTag::XorSparse), "they rest");
    assert!((0..70).any(|_| tag(&text) == Some(CodecTag::Dense)), "they come back");
    (0..10).for_each(|_| assert_eq!(tag(&text), Some(CodecTag::Dense), "what shrinks is looked at"));
}

#[test]
fn what_only_moves_makes_fit_fits_even_where_it_rests() {
    let (mut codecs, base) = (Codecs::default(), noise(1));
    let made = codecs.encode(&base, &changed(&base, 500, false), &mut [0; 1000]);
    assert_eq!(made.map(|made| made.tag), Some(CodecTag::Moves), "it is tried where others fit too");
    for _ in 0..10 {
        let made = codecs.encode(&base, &changed(&base, 500, true), &mut [0; 1000]);
        assert_eq!(made.map(|made| made.tag), Some(CodecTag::XorSparse));
    }
    let made = codecs.encode(&base, &changed(&base, 500, false), &mut [0; 255]);
    assert_eq!(made.map(|made| made.tag), Some(CodecTag::Moves));
}

#[test]
fn what_only_a_large_delta_of_moves_makes_fit_fits() {
    // Few values, so that it does not look like noise; new ones first, so that not much of it seems to be in the base.
    let base = noise(1).map(|byte| byte % 56);
    let mut page = base;
    page.copy_within(1000..PAGE_SIZE - 200, 1200);
    page[..1200].copy_from_slice(&noise(2).map(|byte| byte % 56)[..1200]);
    let made = Codecs::default().encode(&base, &page, &mut [0; 1260]);
    assert!(made.is_some());
}

#[test]
fn deltas_of_less_or_more_than_a_page_are_damaged() {
    let (mut codecs, base, mut page) = (Codecs::default(), noise(1), [0; PAGE_SIZE]);
    let mut damaged = |tag, delta: &[u8]| {
        assert_eq!(codecs.decode(tag, &base, delta, &mut page), Err(CodecError::Damaged(tag)));
        assert_eq!(codecs.patch(tag, &mut page, delta), Err(CodecError::Damaged(tag)));
    };
    for size in [0, 1, 100, PAGE_SIZE - 1, PAGE_SIZE + 1] {
        let data = vec![5; size];
        let compressed = |compressor: &mut dyn Compressor| {
            let mut out = vec![0; 200];
            let len = compressor.compress(&data, &mut out).expect("fits");
            out[..len].to_vec()
        };
        let (lzo, lz4) = (compressed(&mut Lzo::default()), compressed(&mut Lz4::default()));
        let zstd = compressed(&mut Zstd::default());
        damaged(CodecTag::Raw, &data);
        damaged(CodecTag::XorLzo, &lzo);
        damaged(CodecTag::XorLz4, &lz4);
        damaged(CodecTag::XorZstd, &zstd);
        damaged(CodecTag::Lz4Dict, &lz4);
        damaged(CodecTag::ZstdPrefix, &zstd[4..]);
    }
}

#[test]
fn tags_are_those_of_the_disk() {
    let bytes: Vec<u8> = CodecTag::ALL.iter().map(|tag| *tag as u8).collect();
    assert_eq!(bytes, (1..=9).collect::<Vec<u8>>());
    for tag in CodecTag::ALL {
        assert_eq!(CodecTag::try_from(tag as u8), Ok(tag));
        assert_eq!(Codecs::default().codec(tag).tag(), tag);
    }
    assert_eq!(CodecTag::try_from(0), Err(CodecError::UnknownTag(0)));
    assert_eq!(CodecTag::try_from(10), Err(CodecError::UnknownTag(10)));
}
