//! Tests of the layout alone: what is made is read, and what is changed, torn or made up is not.

use super::*;
use crate::Timestamp;
use crate::removed::RemovedName;
use proptest::prelude::*;

const META: Meta = Meta {
    uuid: [7; 16],
    generation: 3,
    previous: 2,
    checkpoint: 77,
    update: 1,
    first: RING_START,
    sequence: 40,
    size: MIN_SIZE,
    unit: 64,
};

/// A delta, or a revoke where there is none.
type Said = (u32, u32, bool, Option<Vec<u8>>);

fn said() -> impl Strategy<Value = Said> {
    let delta = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..60));
    let of_inode = any::<bool>();
    (any::<u32>(), any::<u32>(), any::<bool>(), delta, of_inode).prop_map(
        |(ino, home, node, delta, of_inode)| {
            let node = node && delta.is_some();
            (ino, if node && of_inode { ino } else { home }, node, delta)
        },
    )
}

/// Parts that some pages start from.
fn parts(home: u32) -> Vec<RawPart> {
    let of = |n: u32| if n.is_multiple_of(2) { PartOf::Block(home ^ n) } else { PartOf::Page(home ^ n) };
    (0..home % (MAX_PARTS as u32 + 1)).map(|n| RawPart::new(of(n), n as u16, 3, 4096 - 16)).collect()
}

fn base(home: u32, node: bool, parts: &[RawPart]) -> Base<'_> {
    if node || parts.is_empty() { Base::Block(home ^ 5) } else { Base::Parts(parts) }
}

fn name(dir: u32) -> String {
    "n".repeat(1 + dir as usize % 255)
}

fn builder(said: &[Said]) -> RecordBuilder {
    let mut builder = RecordBuilder::default();
    for (ino, home, node, delta) in said {
        let parts = parts(*home);
        match delta {
            Some(delta) => {
                let body = Body { base: base(*home, *node, &parts), checksum: ino ^ 9, codec: 2, delta };
                let of_node = if home == ino { Home::Named } else { Home::Node(*home) };
                builder.delta(*ino, if *node { of_node } else { Home::Page(*home) }, body);
            }
            None if home.is_multiple_of(2) => {
                builder.removed(&RemovedName { ino: *ino, dir: *home, name: name(*home).as_bytes() });
            }
            None => builder.revoke(*ino, *home, *ino as u16),
        }
    }
    builder
}

fn told(record: &Record<'_>) -> Vec<Said> {
    let told = record.tags().map(|tag| match tag {
        Tag::Delta { ino, home, body } => {
            let (home, node) = match home {
                Home::Page(index) => (index, false),
                Home::Node(nid) => (nid, true),
                Home::Named => (ino, true),
            };
            assert_eq!((body.base, body.checksum, body.codec), (base(home, node, &parts(home)), ino ^ 9, 2));
            (ino, home, node, Some(body.delta.to_vec()))
        }
        Tag::Removed(removed) => {
            assert_eq!(removed.name, name(removed.dir).as_bytes());
            (removed.ino, removed.dir, false, None)
        }
        Tag::Revoke { ino, first, count } => {
            assert_eq!(count, ino as u16);
            (ino, first, false, None)
        }
    });
    told.collect()
}

fn stamp(sequence: u64) -> Stamp {
    let time = Timestamp { secs: 9, nanos: 8 };
    Stamp { sequence, generation: META.generation, checkpoint: 77, chain: sequence / 2, time }
}

/// A journal with records of these sizes of a delta, the first at `first`; returns it with the places of the records.
fn journal(meta: &Meta, sizes: &[usize]) -> (Vec<u8>, Vec<u64>) {
    let mut memory = vec![0; meta.size as usize];
    let (mut at, mut places) = (meta.first, Vec::new());
    for (sequence, &size) in (meta.sequence..).zip(sizes) {
        let bytes = builder(&[(1, 2, false, Some(vec![sequence as u8; size]))]).seal(stamp(sequence));
        at = next_start(meta, at, bytes.len() as u64).0;
        memory[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        places.push(at);
        at = round_up(at + bytes.len() as u64, meta.unit.into());
        if at == meta.size {
            at = RING_START;
        }
    }
    (memory, places)
}

#[test]
fn a_small_record_has_the_bytes_of_the_paper() {
    let bytes = builder(&[(1, 17, false, Some(vec![9; 100]))]).seal(stamp(40));
    // JD 12, tag 16, base and checksum 8, delta 100, JC 56.
    assert_eq!(bytes.len(), 192);
    assert_eq!(bytes[..12], [0x4d, 0x44, 0x4a, 0x44, 40, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[12..28], [1, 0, 0, 0, 17, 0, 0, 0, 28, 0, 0, 0, 100, 0, TYPE_DELTA | TAG_LAST, 2]);
}

#[test]
fn parts_that_cannot_be_are_refused() {
    let of_page = RawPart::new(PartOf::Page(7), 1, 2, 4094);
    assert_eq!((of_page.of(), of_page.ranges()), (PartOf::Page(7), Some((1..4095, 2..4096))));
    for (from, to, len) in [(0, 0, 0), (1, 0, 4096), (0, 3, 4094), (0, 0, u16::MAX)] {
        assert_eq!(RawPart::new(PartOf::Block(7), from, to, len).ranges(), None, "{from} {to} {len}");
    }
    let with = |count: usize, node: bool| {
        let mut builder = RecordBuilder::default();
        let parts = vec![of_page; count];
        let home = if node { Home::Node(3) } else { Home::Page(3) };
        builder.delta(3, home, Body { base: Base::Parts(&parts), checksum: 0, codec: 2, delta: &[1] });
        Record::parse(&builder.seal(stamp(5)), 0).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(with(MAX_PARTS, false), Ok(()));
    for (count, node, said) in [(0, false, "parts"), (MAX_PARTS + 1, false, "parts"), (1, true, "flags")] {
        let error = with(count, node).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn names_that_cannot_be_are_refused() {
    let with = |name: &[u8]| {
        let mut builder = RecordBuilder::default();
        builder.removed(&RemovedName { ino: 4, dir: 3, name });
        Record::parse(&builder.seal(stamp(5)), 0).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(with(&[b'n'; 255]), Ok(()));
    for name in [&b""[..], &[b'n'; 256]] {
        let error = with(name).unwrap_err();
        assert!(error.contains("flags"), "{error}");
    }
}

#[test]
fn the_newer_copy_of_the_metadata_counts_where_it_is_whole() {
    let (old, new) = (META.raw(), Meta { update: 2, first: RING_START + 64, ..META }.raw());
    let in_force = |a, b| match Meta::in_force([a, b]) {
        Found::Meta(meta) => meta.update,
        other => panic!("{other:?}"),
    };
    assert_eq!((in_force(&old, &new), in_force(&new, &old)), (2, 2));
    let torn = RawMeta { sequence: 1.into(), ..new };
    assert_eq!(in_force(&torn, &old), 1);
    assert_eq!(Meta::in_force([&torn, &torn]), Found::Damaged);
    let zeros = RawMeta::read_from_bytes(&[0; 96]).unwrap();
    assert_eq!(Meta::in_force([&zeros, &zeros]), Found::Blank);
    let mut later = RawMeta { version: 2.into(), ..old };
    later.checksum = checksum_of(&later).into();
    assert_eq!(Meta::in_force([&later, &zeros]), Found::Version(2));
}

#[test]
fn wrong_metadata_is_refused_field_by_field() {
    for (field, wrong) in [
        ("size", Meta { size: MIN_SIZE - 64, ..META }),
        ("size", Meta { size: MAX_SIZE + 64, ..META }),
        ("unit", Meta { unit: 96, ..META }),
        ("unit", Meta { unit: 4, ..META }),
        ("first", Meta { first: 0, ..META }),
        ("first", Meta { first: META.size, ..META }),
        ("first", Meta { first: RING_START + 8, ..META }),
    ] {
        let error = Meta::of(&wrong.raw()).unwrap_err().to_string();
        assert!(error.contains(field), "{wrong:?}: {error}");
    }
}

#[test]
fn a_journal_is_read_around_the_end_of_its_ring() {
    let meta = Meta { first: MIN_SIZE - 1024, ..META };
    let (memory, places) = journal(&meta, &[100, 500, 300, 40]);
    assert!(places.windows(2).any(|pair| pair[1] < pair[0]), "{places:?}");
    let scanned = scan(&memory, &meta).unwrap();
    assert_eq!(scanned.records.iter().map(|(at, _)| *at).collect::<Vec<_>>(), places);
    assert_eq!(scanned.sequence, 44);
    assert!(scanned.used <= meta.size - RING_START);
}

/// The torn one is the last; what was written before it and is bad is damage.
#[test]
fn a_bad_record_ends_the_journal_only_at_its_end() {
    let (memory, places) = journal(&META, &[100, 100, 100]);
    for bad in 0..3 {
        let mut memory = memory.clone();
        memory[places[bad] as usize + 40] ^= 1;
        match scan(&memory, &META) {
            Ok(scanned) => assert_eq!((bad, scanned.records.len(), scanned.sequence), (2, 2, 42)),
            Err(error) => {
                assert!(bad < 2, "{error}");
                assert!(error.to_string().contains("lies at"), "{error}");
            }
        }
    }
}

#[test]
fn another_generation_and_an_earlier_turn_are_no_records() {
    let (memory, _) = journal(&META, &[100, 100, 100]);
    let other = Meta { generation: 4, ..META };
    assert!(scan(&memory, &other).unwrap().records.is_empty());
    let later = Meta { sequence: 43, ..META };
    assert!(scan(&memory, &later).unwrap().records.is_empty());
    assert!(scan(&memory[..memory.len() - 1], &META).is_err());
}

#[test]
fn bytes_made_to_look_like_records_cost_bounded_time() {
    let mut memory = vec![0; MAX_SIZE as usize];
    let start: Vec<u8> = JD_MAGIC.to_le_bytes().into_iter().chain(u64::MAX.to_le_bytes()).collect();
    for at in (RING_START as usize..memory.len()).step_by(64) {
        memory[at..at + 12].copy_from_slice(&start);
    }
    let meta = Meta { size: MAX_SIZE, ..META };
    assert!(scan(&memory, &meta).unwrap().records.is_empty());
}

proptest! {
    #[test]
    fn a_record_reads_as_it_was_made(said in proptest::collection::vec(said(), 1..20), sequence: u64) {
        let builder = builder(&said);
        let bytes = builder.seal(stamp(sequence));
        prop_assert_eq!(bytes.len(), builder.size());
        let mut longer = bytes.clone();
        longer.extend_from_slice(&[0xa5; 100]);
        let record = Record::parse(&longer, 0).unwrap();
        prop_assert_eq!(record.stamp, stamp(sequence));
        prop_assert_eq!(record.size(), bytes.len());
        prop_assert_eq!(told(&record), said);
    }

    /// One flipped bit anywhere, or any cut, is found.
    #[test]
    fn a_changed_record_is_none(said in proptest::collection::vec(said(), 1..8), at: prop::sample::Index, bit in 0..8u32) {
        let bytes = builder(&said).seal(stamp(5));
        let mut changed = bytes.clone();
        changed[at.index(bytes.len())] ^= 1 << bit;
        prop_assert!(Record::parse(&changed, 0).is_err());
        prop_assert!(Record::parse(&bytes[..at.index(bytes.len())], 0).is_err());
    }

    /// Words of eight bytes, each old or new, are the record only where all are new.
    #[test]
    fn a_torn_record_is_none(said in proptest::collection::vec(said(), 1..8), old: u8, kept in proptest::collection::vec(any::<bool>(), 1..64)) {
        let bytes = builder(&said).seal(stamp(5));
        let mut torn = bytes.clone();
        for (word, kept) in torn.chunks_mut(8).zip(kept.iter().cycle()) {
            if !kept {
                word.fill(old);
            }
        }
        prop_assert_eq!(Record::parse(&torn, 0).is_ok(), torn == bytes);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        places in proptest::collection::vec((8192usize..65_536, any::<u64>()), 0..20),
    ) {
        let _ = Record::parse(&bytes, 0);
        let mut begins = JD_MAGIC.to_le_bytes().to_vec();
        begins.extend_from_slice(&bytes);
        if let Ok(record) = Record::parse(&begins, 0) {
            record.tags().count();
        }
        let (mut memory, _) = journal(&META, &[100, 30, 700]);
        for (at, word) in places {
            let at = at.min(memory.len() - 8);
            memory[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        if let Ok(scanned) = scan(&memory, &META) {
            scanned.records.iter().for_each(|(_, record)| assert!(record.tags().count() > 0));
        }
        if let Ok(raw) = RawMeta::read_from_bytes(&memory[8192..8192 + 96]) {
            let _ = Meta::of(&raw);
        }
    }
}
