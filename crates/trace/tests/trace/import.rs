//! Logs of other tools: what they say becomes operations, what they do not say is not made up, and no log harms.

use crate::common::{Shared, volume};
use medfs::Files;
use medfs_trace::import::{Format, import};
use medfs_trace::record::{Op, Run};
use medfs_trace::replay::{Mismatches, Options, replay};
use medfs_trace::{End, Error, Item, Record, TraceReader};
use proptest::prelude::*;

const STRACE: &[u8] = include_bytes!("logs/strace.log");

fn imported(format: &Format, log: &[u8], root: &str) -> Result<(Vec<u8>, End), Error> {
    let out = Shared::default();
    let end = import(format, || Ok(log), root.as_bytes(), out.clone(), "a log", [3; 16])?;
    Ok((out.bytes(), end))
}

fn operations(trace: &[u8]) -> Vec<Record> {
    let mut reader = TraceReader::new(trace).unwrap();
    let mut records = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Operation(record) = item {
            records.push(record);
        }
    }
    records
}

fn names(trace: &[u8]) -> String {
    operations(trace).iter().map(|record| record.op.name()).collect::<Vec<_>>().join(" ")
}

/// The volume after a trace was replayed on it without a mismatch.
fn replayed(trace: &[u8]) -> std::sync::Arc<medfs::Volume> {
    let (volume, clock) = volume("");
    let mut reader = TraceReader::new(trace).unwrap();
    let (outcome, _) =
        replay(&mut reader, &*volume, Some(&clock), &Options::default(), &mut |_| Ok(())).unwrap();
    assert_eq!(outcome.mismatches, Mismatches::default());
    volume
}

fn content(files: &dyn Files, path: &str) -> Vec<u8> {
    let mut ino = files.root();
    for name in path.split('/') {
        ino = files.lookup(ino, name.as_bytes()).unwrap().ino;
    }
    let mut bytes = vec![0; files.getattr(ino).unwrap().size as usize];
    files.read(ino, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_log_of_strace() {
    let (trace, end) = imported(&Format::Strace, STRACE, "/d").unwrap();
    assert_eq!(
        names(&trace),
        "create create open write write fsync read read write fdatasync setattr close rename link symlink lookup \
         lookup open read read close open write close open getattr readdir close unlink create open write"
    );
    let volume = replayed(&trace);
    // Written by two threads, cut, renamed.
    let mut expected = b"hello\n\0\xff".repeat(100);
    expected.resize(5000, 0);
    expected[4096..4098].copy_from_slice(b"XY");
    assert_eq!(content(&*volume, "sub/c"), expected);
    // It was there before: what was read of it, and what was appended.
    assert_eq!(content(&*volume, "old"), b"old content heremore");
    assert_eq!(content(&*volume, "child"), [&[b'a'; 10][..], &[b'b'; 5000]].concat());
    let records = operations(&trace);
    let threads: std::collections::HashSet<u32> = records.iter().map(|record| record.thread).collect();
    let processes: std::collections::HashSet<u32> = records.iter().map(|record| record.process).collect();
    assert_eq!((threads.len(), processes.len()), (3, 2), "a thread and a child");
    assert!(records.iter().any(|record| record.took > 500_000), "the fsync took its time");
    assert!(end.skipped.iter().all(|(kind, _)| kind != "write that failed"), "{:?}", end.skipped);
}

#[test]
fn what_strace_cuts_short_is_unknown() {
    let log = b"7 openat(AT_FDCWD, \"/x\", O_RDWR|O_CREAT|O_TRUNC, 0644) = 3</x>\n7 write(3</x>, \"abc\"..., 5000) = 5000\n\
        7 frobnicate(3) = 0\n7 write(9</pipe>, \"a\", 1) = -1 EPIPE (Broken pipe)\n";
    let (trace, end) = imported(&Format::Strace, log, "/").unwrap();
    let written = operations(&trace).into_iter().find_map(|record| match record.op {
        Op::Write { len, content, .. } => Some((len, content)),
        _ => None,
    });
    let (len, content) = written.unwrap();
    assert_eq!((len, content.0.len(), content.0[1]), (5000, 2, Run::Unknown { len: 4997 }));
    assert_eq!(end.skipped, [("frobnicate".to_owned(), 1), ("write that failed".to_owned(), 1)]);
    assert_eq!(content_of(&trace)[..3], *b"abc");
}

fn content_of(trace: &[u8]) -> Vec<u8> {
    content(&*replayed(trace), "x")
}

#[test]
fn an_opened_database_was_there_if_it_is_read() {
    let open = "1 openat(AT_FDCWD, \"/db\", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 3</db>\n";
    let (trace, _) = imported(&Format::Strace, open.as_bytes(), "/").unwrap();
    assert_eq!(names(&trace), "create open");
    let read =
        format!("{open}1 pread64(3</db>, \"SQLite\", 6, 0) = 6\n1 pwrite64(3</db>, \"Q\", 1, 1) = 1\n");
    let (trace, _) = imported(&Format::Strace, read.as_bytes(), "/").unwrap();
    assert_eq!(names(&trace), "lookup open read write");
    assert_eq!(content(&*replayed(&trace), "db"), b"SQLite");
    // What is written is not what was there: the read after it shows nothing of before.
    let own =
        format!("{open}1 pwrite64(3</db>, \"SQLite\", 6, 0) = 6\n1 pread64(3</db>, \"SQ\", 2, 0) = 2\n");
    let (trace, _) = imported(&Format::Strace, own.as_bytes(), "/").unwrap();
    assert_eq!(names(&trace), "create open write read");
}

#[test]
fn a_log_of_blkparse() {
    let log = "  8,0    3        1     0.000000000   697  Q   W 16 + 8 [kjournald]\n\
          8,0    3        2     0.000001829   697  G   W 16 + 8 [kjournald]\n\
          8,0    3        3     0.000002000   697  D   W 16 + 8 [kjournald]\n\
          8,0    1        4     0.001000000   698  Q FWFS 24 + 16 [dd]\n\
          8,0    1        5     0.002000000   698  Q   R 0 + 8 [dd]\n\
          8,0    1        6     0.003000000   698  Q FWS [dd]\n\
          8,0    1        7     0.004000000   698  Q   D 16 + 8 [fstrim]\n\
          8,0    1        8     0.005000000   698  Q   N 0 + 0 [x]\n\
        CPU0 (sda):\n Reads Queued:           1,        4KiB\n";
    let (trace, end) = imported(&Format::Blkparse('Q'), log.as_bytes(), "/").unwrap();
    assert_eq!(names(&trace), "lookup write fsync write fdatasync read fsync fallocate");
    let records = operations(&trace);
    assert_eq!((records[3].at, records[3].process), (1_000_000, 698));
    assert!(matches!(records[3].op, Op::Write { offset: 12_288, len: 8192, .. }), "{:?}", records[3]);
    assert_eq!(end.skipped, [("request N".to_owned(), 1)]);
    assert_eq!(names(&imported(&Format::Blkparse('D'), log.as_bytes(), "/").unwrap().0), "lookup write");
    assert_eq!(replayed(&trace).lookup(3, b"device").unwrap().size, 20_480);
}

#[test]
fn iologs_of_fio() {
    let two = "fio version 2 iolog\n/a add\n/b add\n/a open\n/a write 0 4096\n/a wait 1500\n/a read 4096 4096\n/b datasync\n\
        /a sync\n/a trim 0 4096\n/a close\n";
    let (trace, _) = imported(&Format::Fio, two.as_bytes(), "/").unwrap();
    assert_eq!(names(&trace), "lookup lookup open write read fdatasync fsync fallocate close");
    assert_eq!(operations(&trace)[4].at, 1_500_000);
    replayed(&trace);
    let three = "fio version 3 iolog\n26 /a add\n146 /a open\n125152 /a write 0 100\n";
    let (trace, _) = imported(&Format::Fio, three.as_bytes(), "/").unwrap();
    assert_eq!((names(&trace).as_str(), operations(&trace)[2].at), ("lookup open write", 125_152_000));
}

#[test]
fn a_script_of_mobibench() {
    let log = "0 0 open \"/data/a.db\" O_RDWR|O_CREAT 36\n0 100 pwrite64 36 4096 1024\n1 150 fsync 36\n\
        0 200 open /data/data O_WRONLY|O_CREAT|O_TRUNC 40\n0 250 write 40 10\n0 260 read 40 -1\n0 300 read 40 30\n\
        0 400 unlink \"/data/a.db\"\n0 500 close 40\n0 600 fsync 99\n";
    let (trace, end) = imported(&Format::Mobibench, log.as_bytes(), "/").unwrap();
    assert_eq!(names(&trace), "lookup create open write fsync lookup lookup open write read unlink close");
    let records = operations(&trace);
    assert!(matches!(records[3].op, Op::Write { offset: 4096, len: 1024, .. }), "{:?}", records[3]);
    assert_eq!((records[4].at, records[4].thread), (150_000, 2));
    let skipped: Vec<&str> = end.skipped.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(skipped, ["fsync of a descriptor that was not opened", "read that failed"]);
    replayed(&trace);
}

#[test]
fn a_wrong_line_is_named_by_its_number() {
    let wrong = |format: Format, log: &str| imported(&format, log.as_bytes(), "/").unwrap_err().to_string();
    let cases = [
        (Format::Fio, "fio version 1 iolog\n", "line 1: 'fio version 1 iolog'"),
        (Format::Fio, "fio version 2 iolog\n/a add\n\n/a write 0 x\n", "line 4: the length is 'x'"),
        (Format::Fio, "fio version 2 iolog\n/a write 0 1\n", "line 2: /a was not added"),
        (Format::Fio, "fio version 2 iolog\n/a add\n/a dance\n", "line 3: 'dance' is not an action"),
        (Format::Blkparse('Q'), "8,0 1 1 0.000000001 7 Q W 0 + 8 [x]\nhello\n", "line 2: 'hello'"),
        (Format::Blkparse('Q'), "8,0 1 1 0.5 7 Q W 0 + 8 [x]\n", "line 1: the time is '0.5'"),
        (Format::Blkparse('Q'), "8,0 1 1 0.000000001 7 Q W 99999999999999999999 + 8\n", "the sector is"),
        (Format::Mobibench, "0 0 write 3 4\n0\n", "line 2: it has fewer than three fields"),
        (Format::Mobibench, "a 0 write 3 4\n", "line 1: the thread is 'a'"),
        (Format::Strace, "7 close(3) = 0\n7 close(3\n", "line 2: 'close(3' is not a call"),
    ];
    for (format, log, expected) in cases {
        let message = wrong(format, log);
        assert!(message.contains(expected), "{message}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_log_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..600), kind in 0usize..4) {
        let format = [Format::Strace, Format::Blkparse('Q'), Format::Fio, Format::Mobibench][kind].clone();
        let _ = imported(&format, &bytes, "/");
    }

    #[test]
    fn a_log_with_other_bytes_is_read_without_harm(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30)) {
        let mut log = STRACE.to_vec();
        for (at, byte) in changes {
            let at = at.index(log.len());
            log[at] = byte;
        }
        if let Ok((trace, _)) = imported(&Format::Strace, &log, "/") {
            // It can be read to its end, whatever it says.
            operations(&trace);
        }
    }
}
