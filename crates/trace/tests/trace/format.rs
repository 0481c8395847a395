//! The format: what is written is read, what is cut short is whole up to the cut, and nothing that is read harms.

use crate::common::{self, head, random_records, write_trace};
use medfs_trace::format::{FRAME_HEAD, OPENING};
use medfs_trace::record::{Content, Op, Record, Run};
use medfs_trace::writer::pieces;
use medfs_trace::{Ending, Error, Item, Phase, TraceReader, TraceWriter};
use proptest::prelude::*;

/// All items of a trace, and how it ends.
fn read(bytes: &[u8]) -> Result<(Vec<Item>, Ending), Error> {
    let mut reader = TraceReader::new(bytes)?;
    let mut items = Vec::new();
    while let Some(item) = reader.next()? {
        items.push(item);
    }
    Ok((items, reader.ending().clone()))
}

fn operations(items: &[Item]) -> Vec<Record> {
    let recorded = items.iter().filter_map(|item| match item {
        Item::Operation(record) => Some(record.clone()),
        _ => None,
    });
    recorded.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_come_back_as_they_were(seed: u64, count in 0usize..200) {
        let records = random_records(seed, count);
        let bytes = write_trace(|writer| {
            for record in &records {
                writer.push(Phase::Recorded, record).unwrap();
            }
        });
        let (items, ending) = read(&bytes).unwrap();
        prop_assert_eq!(operations(&items), records);
        prop_assert!(matches!(ending, Ending::Complete(end) if end.operations == count as u64));
    }

    #[test]
    fn contents_come_back_as_they_were(
        writes in prop::collection::vec((0u64..20_000, prop::collection::vec(0u8..3, 0..9000)), 1..12)
    ) {
        let bytes = write_trace(|writer| {
            for (offset, data) in &writes {
                let content = writer.content(&pieces(*offset, data, None)).unwrap();
                let op = Op::Write { file: 1, offset: *offset, len: data.len() as u32, cached: false, content };
                writer.push(Phase::Recorded, &record(op)).unwrap();
            }
        });
        let mut reader = TraceReader::new(&bytes[..]).unwrap();
        for (_, data) in &writes {
            let Some(Item::Operation(Record { op: Op::Write { content, .. }, .. })) = reader.next().unwrap() else {
                panic!("a write is missing");
            };
            let mut resolved = Vec::new();
            prop_assert!(reader.window().resolve(&content, &[], &mut resolved).is_empty());
            prop_assert_eq!(&resolved, data);
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..2000), opened: bool) {
        let mut trace = if opened { small()[..OPENING].to_vec() } else { Vec::new() };
        trace.extend(bytes);
        let _ = read(&trace);
    }

    #[test]
    fn a_record_of_any_bytes_is_read_without_harm(garbage in prop::collection::vec(any::<u8>(), 1..300), kind in 2u32..6) {
        // Checksums agree, so that the bytes reach the parser behind them.
        let bytes = common::with_frame(kind, &garbage);
        if let Ok((_, ending)) = read(&bytes) {
            prop_assert!(ending != Ending::Open);
        }
    }

    #[test]
    fn a_changed_byte_is_noticed(at in 0usize..10_000, bit in 0u8..8) {
        let whole = small();
        let mut bytes = whole.clone();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        if let Ok((items, ending)) = read(&bytes) {
            // A changed length makes the rest look cut off; nothing that is read is other than what was written.
            prop_assert!(!matches!(ending, Ending::Complete(_)) || at < OPENING, "byte {} of {}", at, whole.len());
            let all = read(&whole).unwrap().0;
            prop_assert_eq!(&items[..], &all[..items.len()]);
        }
    }
}

fn record(op: Op) -> Record {
    Record { at: 5, took: 1, process: 2, thread: 3, errno: 0, op }
}

/// A small trace with everything in it.
fn small() -> Vec<u8> {
    write_trace(|writer| {
        let content = writer.content(&pieces(0, &[7; 5000], None)).unwrap();
        let create = Op::Create {
            parent: 0,
            name: b"x".to_vec().into(),
            file: 1,
            new: medfs_trace::record::NewNode::plain(medfs::FileKind::Regular, 0o644),
        };
        writer.push(Phase::Setup, &record(create)).unwrap();
        let write = Op::Write { file: 1, offset: 0, len: 5000, cached: false, content };
        writer.push(Phase::Recorded, &record(write)).unwrap();
        writer.flush_frames().unwrap();
        writer.push(Phase::Recorded, &record(Op::Fsync { file: 1, datasync: true })).unwrap();
        let entry = medfs_trace::record::TreeEntry {
            path: b"x".to_vec().into(),
            mode: 0o100644,
            uid: 0,
            gid: 0,
            links: 1,
            rdev: 0,
            size: 5000,
            content: [1; 16],
            attributes: [0; 16],
        };
        writer.tree(&entry).unwrap();
    })
}

#[test]
fn a_trace_cut_at_any_byte_is_whole_up_to_the_cut() {
    let whole = small();
    let (all, ending) = read(&whole).unwrap();
    assert!(matches!(ending, Ending::Complete(_)));
    assert_eq!(all.len(), 4);
    let mut most = 0;
    for len in 0..whole.len() {
        match read(&whole[..len]) {
            Ok((items, ending)) => {
                assert!(matches!(ending, Ending::Cut(at) if at <= len as u64), "at {len}: {ending:?}");
                assert_eq!(items[..], all[..items.len()], "at {len}");
                assert!(items.len() >= most, "a longer part has fewer items");
                most = items.len();
            }
            Err(error) => assert!(most == 0 && matches!(error, Error::Foreign(_)), "at {len}: {error}"),
        }
    }
    assert_eq!(most, all.len(), "all but the end can be read without the end");
}

#[test]
fn what_is_no_trace_is_said_to_be_none() {
    let message = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert!(message(b"").contains("not a trace"));
    assert!(message(&[0x7f; 5000]).contains("not a trace"));
    let mut newer = small();
    newer[8] = 9;
    assert!(message(&newer).contains("version 9"));
    let mut damaged = small();
    damaged[OPENING + FRAME_HEAD + 3] ^= 1;
    assert!(message(&damaged).contains("damaged at byte 16"), "{}", message(&damaged));
}

#[test]
fn repeated_pages_are_stored_once() {
    let noise = common::noise(40_960);
    let write = |times: u32| {
        write_trace(|writer| {
            for i in 0..times {
                let content = writer.content(&pieces(u64::from(i) * 40_960, &noise, None)).unwrap();
                let op = Op::Write { file: 1, offset: 0, len: 40_960, cached: false, content };
                writer.push(Phase::Recorded, &record(op)).unwrap();
            }
        })
    };
    let (once, often) = (write(1).len(), write(50).len());
    assert!(once > 40_000 && often < once + 1000, "{once} and {often} bytes");
}

#[test]
fn contents_out_of_reach_are_stored_again_and_found() {
    // More than the window, and then the first page once more.
    let page = |number: u32| -> Vec<u8> {
        let mut page = vec![0; 4096];
        page[..4].copy_from_slice(&(number + 1).to_le_bytes());
        page
    };
    const PAGES: u32 = 40_000;
    let order: Vec<u32> = (0..PAGES).chain([0, PAGES - 1, 1]).collect();
    let bytes = write_trace(|writer| {
        for &number in &order {
            let content = writer.content(&pieces(0, &page(number), None)).unwrap();
            let op = Op::Write { file: 1, offset: 0, len: 4096, cached: false, content };
            writer.push(Phase::Recorded, &record(op)).unwrap();
        }
    });
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let mut resolved = Vec::new();
    for &number in &order {
        let Some(Item::Operation(Record { op, .. })) = reader.next().unwrap() else {
            panic!("a write is missing")
        };
        resolved.clear();
        reader.window().resolve(op.content().unwrap(), &[], &mut resolved);
        assert_eq!(resolved, page(number), "page {number}");
    }
}

#[test]
fn references_to_nothing_are_damage() {
    for run in [Run::Stored { first: 7, count: 1 }, Run::Stored { first: u64::MAX, count: u32::MAX }] {
        let bytes = write_trace(|writer| {
            let op = Op::Write { file: 1, offset: 0, len: 4096, cached: false, content: Content(vec![run]) };
            writer.push(Phase::Recorded, &record(op)).unwrap();
        });
        let message = read(&bytes).unwrap_err().to_string();
        assert!(message.contains("is not there"), "{message}");
    }
    let bytes = write_trace(|writer| {
        let op = Op::Write { file: 1, offset: 0, len: 9, cached: false, content: Content::default() };
        writer.push(Phase::Recorded, &record(op)).unwrap();
    });
    assert!(read(&bytes).unwrap_err().to_string().contains("0 bytes of content"));
}

#[test]
fn the_bytes_of_a_record_are_the_format() {
    let op = Op::Rename {
        parent: 1,
        name: b"a".to_vec().into(),
        to: 300,
        to_name: b"b".to_vec().into(),
        flags: 2,
    };
    let bytes = postcard::to_extend(&(-1i64, 300u64, 1u32, 2u32, 17u16, op), Vec::new()).unwrap();
    assert_eq!(bytes, [1, 0xac, 2, 1, 2, 17, 11, 1, 1, b'a', 0xac, 2, 1, b'b', 2]);
    let op = Op::Write {
        file: 5,
        offset: 4096,
        len: 4100,
        cached: true,
        content: Content(vec![Run::Stored { first: 9, count: 1 }, Run::Zeros { len: 4 }]),
    };
    let bytes = postcard::to_extend(&op, Vec::new()).unwrap();
    assert_eq!(bytes, [16, 5, 0x80, 0x20, 0x84, 0x20, 1, 2, 0, 9, 1, 1, 4]);
    let numbers: Vec<u8> = [
        Op::Forget { file: 0 },
        Op::Readdir { file: 0, position: 0 },
        Op::Sync,
        Op::SetFlags { file: 0, flags: 0 },
        Op::AtomicAbort { file: 0 },
    ]
    .iter()
    .map(|op| postcard::to_extend(op, Vec::new()).unwrap()[0])
    .collect();
    assert_eq!(numbers, [1, 12, 21, 26, 29], "variants keep their numbers");
}

#[test]
fn a_writer_that_cannot_write_says_so() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if bytes.len() > 1000 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = TraceWriter::new(Full, &head()).unwrap();
    let noise = common::noise(4096);
    writer.content(&pieces(0, &noise, None)).unwrap();
    let error = writer.flush().and_then(|()| writer.finish().map(drop)).unwrap_err();
    assert!(error.to_string().contains("cannot write the trace"), "{error}");
}
