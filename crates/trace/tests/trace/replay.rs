//! What was recorded is replayed as it was, on a volume and in a directory, and what is not as recorded is reported.

use crate::common::{self, Shared, volume};
use medfs::{
    Caller, FallocateMode, FileKind, Files, ManualClock, NewFile, RenameFlags, SetAttr, Volume, XattrMode,
};
use medfs_trace::record::{Op, Run};
use medfs_trace::replay::{Mismatches, Options, Order, Outcome, Progress, replay, verify_tree};
use medfs_trace::{Directory, Item, Phase, Recorder, Recording, TraceReader, TraceWriter};
use rand::{Rng, RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;

fn new_file(kind: FileKind) -> NewFile {
    NewFile { kind, perm: 0o640, umask: 0, uid: 0, gid: 0, rdev: 0 }
}

/// An application with a database and its journal, temporary files, links, attributes and a directory of its own.
fn application(files: &dyn Files, seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let root = files.root();
    let make = |parent, name: &[u8], kind| files.create(parent, name, &new_file(kind)).unwrap().ino;
    files.on_behalf(Caller { thread: std::process::id() });
    let dir = make(root, b"databases", FileKind::Directory);
    let database = make(dir, b"app.db", FileKind::Regular);
    let mut page = vec![0; 4096];
    random.fill_bytes(&mut page);
    for i in 0..20 {
        page[0] = i;
        files.write(database, u64::from(i) * 4096, &page).unwrap();
    }
    files.fsync(database, false).unwrap();
    for round in 0..30u64 {
        let journal = make(dir, b"app.db-journal", FileKind::Regular);
        let at = random.random_range(0..20) * 4096;
        let mut old = vec![0; 4096];
        assert_eq!(files.read(database, at, &mut old).unwrap(), 4096);
        files.write(journal, 0, &old).unwrap();
        files.fsync(journal, true).unwrap();
        old[random.random_range(0..4000)..][..50].fill(round as u8);
        files.write(database, at, &old).unwrap();
        files.fsync(database, true).unwrap();
        files.unlink(dir, b"app.db-journal").unwrap();
        files.release(journal, 1);
    }
    let text = make(root, b"prefs.xml.tmp", FileKind::Regular);
    files.write(text, 3, b"<map/>").unwrap();
    files.rename(root, b"prefs.xml.tmp", dir, b"prefs.xml", RenameFlags::empty()).unwrap();
    files.setxattr(text, b"user.kind", b"prefs", XattrMode::Create).unwrap();
    files.setattr(text, &SetAttr { size: Some(100_000), perm: Some(0o600), ..SetAttr::default() }).unwrap();
    let link = files.symlink(root, b"link", b"databases/prefs.xml", 0, 0).unwrap();
    files.release(link.ino, 1);
    let hard = files.link(text, root, b"hard").unwrap();
    files.release(hard.ino, 1);
    files.fallocate(text, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 0, 4096).unwrap();
    assert!(files.lookup(root, b"nothing").is_err());
    // A file without a name, used after it lost it.
    let lost = make(root, b"lost", FileKind::Regular);
    files.unlink(root, b"lost").unwrap();
    files.write(lost, 0, b"still there").unwrap();
    let mut back = [0; 11];
    files.read(lost, 0, &mut back).unwrap();
    assert_eq!(files.getattr(lost).unwrap().size, 11);
    files.release(lost, 1);
    for ino in [dir, database, text] {
        files.release(ino, 1);
    }
    files.sync().unwrap();
}

/// Something that is there before the recording begins.
fn before(files: &dyn Files) {
    let old = files.create(files.root(), b"old", &new_file(FileKind::Regular)).unwrap().ino;
    files.write(old, 8192, &[9; 5000]).unwrap();
    let dir = files.create(files.root(), b"olddir", &new_file(FileKind::Directory)).unwrap().ino;
    let hard = files.link(old, dir, b"again").unwrap().ino;
    files.setxattr(old, b"user.a", b"b", XattrMode::Set).unwrap();
    for ino in [old, dir, hard] {
        files.release(ino, 1);
    }
}

fn what(private: bool) -> Recording {
    Recording { source: "volume".into(), about: "a test".into(), private, cache: "none".into() }
}

/// The trace of the application.
fn recorded(private: bool, seed: u64) -> Vec<u8> {
    let (volume, clock) = volume("");
    before(&*volume);
    let out = Shared::default();
    let recorder =
        Recorder::start(volume, out.clone(), clock.clone(), &what(private), [1; 16], [2; 32]).unwrap();
    application(&recorder, seed);
    let old = recorder.lookup(recorder.root(), b"old").unwrap();
    recorder.write(old.ino, 0, b"not synced").unwrap();
    clock.advance(std::time::Duration::from_secs(100));
    let mut bytes = [0; 100];
    assert_eq!(recorder.read(old.ino, 8150, &mut bytes).unwrap(), 100);
    recorder.release(old.ino, 1);
    let end = recorder.finish().unwrap();
    assert!(end.operations > 150 && end.tree == Some(8), "{end:?}");
    out.bytes()
}

fn run(
    trace: &[u8],
    target: &dyn Files,
    clock: Option<&ManualClock>,
    options: &Options,
) -> (Outcome, Option<Mismatches>) {
    let mut reader = TraceReader::new(trace).unwrap();
    let mut ready = 0;
    let (outcome, first) = replay(&mut reader, target, clock, options, &mut |progress| {
        ready += u32::from(matches!(progress, Progress::Ready));
        Ok(())
    })
    .unwrap();
    assert_eq!(ready, 1);
    let tree = verify_tree(&mut reader, first, target).unwrap();
    (outcome, tree)
}

fn assert_identical((outcome, tree): &(Outcome, Option<Mismatches>)) {
    assert_eq!(outcome.mismatches, Mismatches::default());
    assert_eq!(tree.as_ref().unwrap(), &Mismatches::default());
    assert!(outcome.operations() > 150);
}

#[test]
fn a_volume_replays_what_was_recorded() {
    let trace = recorded(false, 1);
    for options in ["delta=off", "delta=full,compact_files=all"] {
        let (volume, clock) = volume(options);
        let result = run(&trace, &*volume, Some(&clock), &Options::default());
        assert_identical(&result);
        assert_eq!(result.0.unverified_reads, 0);
        assert_eq!(
            result.0.latency.summaries().iter().map(|of| of.latency.count).sum::<u64>(),
            result.0.operations()
        );
        volume.close().unwrap();
    }
}

#[test]
fn a_directory_replays_what_was_recorded() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: files are given their owners, which needs root");
    }
    let trace = recorded(false, 2);
    let dir = tempfile::tempdir().unwrap();
    let files = Directory::open(dir.path()).unwrap();
    assert_identical(&run(&trace, &files, None, &Options::default()));
    assert_eq!(std::fs::read_link(dir.path().join("link")).unwrap().to_str(), Some("databases/prefs.xml"));
}

fn assert_same_in_every_order(trace: &[u8]) {
    for order in [Order::Sequential, Order::Recorded { threads: 2 }, Order::Recorded { threads: 8 }] {
        let (target, clock) = volume("");
        let (outcome, tree) = run(trace, &*target, Some(&clock), &Options { order, timed: false });
        assert_eq!(outcome.mismatches, Mismatches::default(), "{order:?}");
        assert_eq!(tree.unwrap(), Mismatches::default(), "{order:?}");
    }
}

#[test]
fn threads_replay_in_an_order_that_gives_the_same_tree() {
    let (recorded_on, clock) = volume("");
    let out = Shared::default();
    let recorder = Arc::new(
        Recorder::start(recorded_on, out.clone(), clock.clone(), &what(false), [1; 16], [2; 32]).unwrap(),
    );
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let recorder = recorder.clone();
            scope.spawn(move || {
                recorder.on_behalf(Caller { thread: 1_000_000 + thread });
                let root = recorder.root();
                let own =
                    recorder.create(root, format!("own{thread}").as_bytes(), &new_file(FileKind::Regular));
                let (own, shared) = (own.unwrap().ino, b"shared");
                let shared = match recorder.create(root, shared, &new_file(FileKind::Regular)) {
                    Ok(attr) => attr.ino,
                    Err(_) => recorder.lookup(root, shared).unwrap().ino,
                };
                for i in 0..200u64 {
                    recorder.write(own, i * 100, &[thread as u8; 100]).unwrap();
                    recorder.write(shared, i % 7 * 500, &[i as u8; 300]).unwrap();
                    let mut bytes = [0; 300];
                    recorder.read(shared, i % 5 * 500, &mut bytes).unwrap();
                    if i % 50 == 0 {
                        recorder.fsync(own, false).unwrap();
                    }
                }
            });
        }
    });
    recorder.finish().unwrap();
    assert_same_in_every_order(&out.bytes());
}

/// Each round all threads want the same names, so that most of their operations fail.
#[test]
fn threads_that_fight_for_names_are_recorded_in_the_order_in_which_they_won() {
    let (recorded_on, clock) = volume("");
    let out = Shared::default();
    let recorder =
        Recorder::start(recorded_on, out.clone(), clock.clone(), &what(false), [1; 16], [2; 32]).unwrap();
    let (recorder, together) = (&recorder, &std::sync::Barrier::new(4));
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            scope.spawn(move || {
                recorder.on_behalf(Caller { thread: 1_000_000 + thread });
                let (root, new) = (recorder.root(), new_file(FileKind::Regular));
                for round in 0..500u32 {
                    let names = [0, 1].map(|at| format!("{round}.{at}").into_bytes());
                    together.wait();
                    for name in &names {
                        let made = recorder.create(root, name, &new).map(|attr| attr.ino);
                        let found = recorder.lookup(root, name).map(|attr| attr.ino);
                        for ino in made.into_iter().chain(found) {
                            recorder.release(ino, 1);
                        }
                    }
                    let _ = recorder.rename(root, &names[0], root, &names[1], RenameFlags::NOREPLACE);
                    let _ = recorder.unlink(root, &names[(thread % 2) as usize]);
                }
            });
        }
    });
    recorder.finish().unwrap();
    assert_same_in_every_order(&out.bytes());
}

#[test]
fn the_same_trace_writes_the_same_blocks_each_time() {
    let trace = recorded(false, 3);
    let counts = |options: &str| {
        let (volume, clock) = volume(options);
        assert_identical(&run(&trace, &*volume, Some(&clock), &Options::default()));
        Volume::sync(&volume).unwrap();
        let stats = volume.stats();
        (stats.written, stats.flushes, stats.checkpoints, stats.deltas)
    };
    for options in ["delta=off", "delta=full", "commit=10s"] {
        assert_eq!(counts(options), counts(options), "{options}");
    }
    assert!(counts("commit=10s").2 > counts("commit=1000s").2, "the trace's time passes");
}

#[test]
fn a_trace_without_contents_replays_with_the_same_updates() {
    // Pages that are overwritten in place are no deltas.
    const OPTIONS: &str = "delta=full,in_place=off";
    let deltas = |trace: &[u8]| {
        let (volume, clock) = volume(OPTIONS);
        run(trace, &*volume, Some(&clock), &Options::default());
        volume.stats().deltas
    };
    let (trace, with_contents) = (recorded(true, 4), deltas(&recorded(false, 4)));
    let text = String::from_utf8_lossy(&trace);
    assert!(!text.contains("app.db") && !text.contains("prefs"));
    let (volume, clock) = volume(OPTIONS);
    let result = run(&trace, &*volume, Some(&clock), &Options::default());
    assert_identical(&result);
    let named = |suffix: &[u8]| {
        let mut found = 0;
        medfs_trace::tree::walk(&*volume, &mut |_, _, path| {
            found += u32::from(path.ends_with(suffix));
            Ok(())
        })
        .unwrap();
        found
    };
    assert_eq!((named(b".db"), named(b"app.db"), named(b".xml")), (1, 0, 1));
    let (want, got) = (with_contents.made, volume.stats().deltas.made);
    assert!(want > 10 && got.abs_diff(want) <= want / 10, "{got} deltas, {want} with the contents");
    let concurrent = Options { order: Order::Recorded { threads: 2 }, timed: false };
    let mut reader = TraceReader::new(&trace[..]).unwrap();
    assert!(replay(&mut reader, &*volume, None, &concurrent, &mut |_| Ok(())).is_err());
}

/// Whatever is text in what is asked, each with the mark.
fn everything_with_text(files: &dyn Files, mark: &str) {
    let bytes = |text: &str| text.replace('@', mark).into_bytes();
    let root = files.root();
    let kinds = [FileKind::Regular, FileKind::Directory];
    for (i, kind) in kinds.into_iter().enumerate() {
        let ino = files.create(root, &bytes(&format!("@{i}.txt")), &new_file(kind)).unwrap().ino;
        for space in ["user", "trusted", "security"] {
            let (name, value) = (bytes(&format!("{space}.@.name")), bytes("the value @"));
            files.setxattr(ino, &name, &value, XattrMode::Set).unwrap();
            assert_eq!(files.getxattr(ino, &name).unwrap(), value);
            assert!(files.setxattr(ino, &name, &value, XattrMode::Create).is_err());
            assert!(files.listxattr(ino).unwrap().contains(&name));
        }
        files.removexattr(ino, &bytes("trusted.@.name")).unwrap();
        assert!(files.getxattr(ino, &bytes("user.no @")).is_err());
        assert!(files.setxattr(ino, &bytes("@.unknown"), b"", XattrMode::Set).is_err());
        assert!(files.removexattr(ino, &bytes("@")).is_err());
        if kind == FileKind::Regular {
            files.write(ino, 0, &bytes("content @")).unwrap();
            files.link(ino, root, &bytes("further @")).unwrap();
            files.release(ino, 1);
        }
        files.release(ino, 1);
    }
    let link = files.symlink(root, &bytes("link @"), &bytes("../@/@.db"), 0, 0).unwrap().ino;
    files.readlink(link).unwrap();
    files.release(link, 1);
    files.rename(root, &bytes("further @"), root, &bytes("@-wal"), RenameFlags::empty()).unwrap();
    files.unlink(root, &bytes("@-wal")).unwrap();
    let _ = files.lookup(root, &bytes("none @"));
    let _ = files.rmdir(root, &bytes("0.@"));
}

#[test]
fn no_text_is_in_a_trace_without_contents() {
    const MARK: &str = "zqx";
    let numbers = format!("{:?}", MARK.as_bytes());
    let numbers = numbers.trim_matches(['[', ']']);
    for private in [false, true] {
        let (volume, clock) = volume("");
        everything_with_text(&*volume, &format!("{MARK} before"));
        let out = Shared::default();
        let what = Recording { about: format!("of {MARK}"), ..what(private) };
        let recorder = Recorder::start(volume, out.clone(), clock, &what, [1; 16], [2; 32]).unwrap();
        everything_with_text(&recorder, MARK);
        recorder.finish().unwrap();
        let trace = out.bytes();
        let mut reader = TraceReader::new(&trace[..]).unwrap();
        let mut found = vec![format!("{:?}", reader.head())];
        while let Some(item) = reader.next().unwrap() {
            found.push(format!("{item:?}"));
        }
        found.retain(|text| text.contains(MARK) || text.contains(numbers));
        assert_eq!(found.is_empty(), private, "{found:#?}");
        let (target, clock) = common::volume("");
        let (outcome, tree) = run(&trace, &*target, Some(&clock), &Options::default());
        assert_eq!((outcome.mismatches, tree.unwrap()), Default::default());
    }
}

/// A trace in which one record of those that `pick` takes is another.
fn altered(trace: &[u8], mut change: impl FnMut(&mut Op) -> bool) -> Vec<u8> {
    let mut reader = TraceReader::new(trace).unwrap();
    let out = Shared::default();
    let mut writer = TraceWriter::new(out.clone(), reader.head()).unwrap();
    let mut changed = false;
    while let Some(item) = reader.next().unwrap() {
        let (phase, mut record) = match item {
            Item::Setup(record) => (Phase::Setup, record),
            Item::Operation(record) => (Phase::Recorded, record),
            Item::Tree(entry) => {
                writer.tree(&entry).unwrap();
                continue;
            }
        };
        if let Op::Read { offset, content, .. } | Op::Write { offset, content, .. } = &mut record.op {
            let mut bytes = Vec::new();
            reader.window().resolve(content, &[], &mut bytes);
            *content = writer.content(&medfs_trace::writer::pieces(*offset, &bytes, None)).unwrap();
        }
        if phase == Phase::Recorded && !changed {
            changed = change(&mut record.op);
        }
        writer.push(phase, &record).unwrap();
    }
    assert!(changed);
    writer.finish().unwrap();
    out.bytes()
}

#[test]
fn what_is_not_as_recorded_is_reported() {
    let trace = recorded(false, 5);
    let mismatches = |trace: &[u8]| {
        let (volume, clock) = volume("");
        let (outcome, tree) = run(trace, &*volume, Some(&clock), &Options::default());
        (outcome.mismatches, tree.unwrap())
    };
    assert_eq!(
        mismatches(&altered(&trace, |op| matches!(op, Op::Sync))),
        Default::default(),
        "nothing was changed"
    );

    let other_read = altered(&trace, |op| match op {
        Op::Read { content, len: 4096, .. } => {
            content.0 = vec![Run::Zeros { len: 4096 }];
            true
        }
        _ => false,
    });
    let (results, tree) = mismatches(&other_read);
    assert_eq!((results.count, tree.count), (1, 0));
    assert!(
        results.first[0].contains("read of 4096 bytes") && results.first[0].contains("recorded was 0x00"),
        "{results:?}"
    );

    let other_write = altered(&trace, |op| match op {
        Op::Write { offset: 3, content, .. } => {
            content.0 = vec![Run::Zeros { len: 6 }];
            true
        }
        _ => false,
    });
    // Hard-linked: both names show it. The hole that is punched later covers these bytes, so the end is the same.
    assert_eq!(mismatches(&other_write), Default::default());

    let lost_name = altered(&trace, |op| match op {
        Op::Unlink { name, .. } if **name == b"lost"[..] => {
            *op = Op::Sync;
            true
        }
        _ => false,
    });
    let (results, tree) = mismatches(&lost_name);
    assert_eq!((results.count, tree.count), (0, 1));
    assert!(tree.first[0].contains("lost should not be there"), "{tree:?}");

    let other_size = altered(&trace, |op| match op {
        Op::SetAttr { set, .. } if set.size == Some(100_000) => {
            set.size = Some(100_001);
            true
        }
        _ => false,
    });
    let (_, tree) = mismatches(&other_size);
    assert!(tree.count == 2 && tree.first[0].contains("size 100001 instead of 100000"), "{tree:?}");
}

#[test]
fn operations_on_files_that_nobody_found_are_mismatches() {
    let trace = common::write_trace(|writer| {
        common::push(
            writer,
            Phase::Recorded,
            [Op::Fsync { file: 77, datasync: false }, Op::Forget { file: 78 }],
        );
    });
    let (volume, clock) = volume("");
    let (outcome, tree) = run(&trace, &*volume, Some(&clock), &Options::default());
    assert_eq!((outcome.mismatches.count, tree), (2, None));
}

#[test]
fn any_trace_is_replayed_without_harm() {
    for seed in 0..200 {
        let records = common::random_records(seed, 60);
        let trace = common::write_trace(|writer| {
            for record in &records {
                writer.push(Phase::Recorded, record).unwrap();
            }
        });
        let (volume, clock) = volume("");
        run(&trace, &*volume, Some(&clock), &Options::default());
        run(&trace, &*volume, None, &Options { order: Order::Recorded { threads: 3 }, timed: false });
    }
}
