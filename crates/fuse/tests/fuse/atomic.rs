//! F2FS's atomic writes through a mount whose kernel caches writes.

use crate::support::{Mount, fuse_available, transports};
use medfs::Files;
use rustix::ioctl::{Getter, NoArg, Opcode, opcode};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const START: Opcode = opcode::none(0xf5, 1);
const COMMIT: Opcode = opcode::none(0xf5, 2);
const ABORT: Opcode = opcode::none(0xf5, 5);
const GET_FEATURES: Opcode = opcode::read::<u32>(0xf5, 12);
const FEATURE_ATOMIC_WRITE: u32 = 4;

#[allow(unsafe_code)]
fn ioctl<const NUMBER: Opcode>(file: &File) -> Result<(), rustix::io::Errno> {
    // SAFETY: these take no argument.
    unsafe { rustix::ioctl::ioctl(file, NoArg::<NUMBER>::new()) }
}

#[allow(unsafe_code)]
fn features(file: &File) -> u32 {
    // SAFETY: this writes a u32.
    unsafe { rustix::ioctl::ioctl(file, Getter::<GET_FEATURES, u32>::new()) }.unwrap()
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn first_byte(file: &File) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    byte[0]
}

/// What the engine has, whatever the kernel caches.
fn engine_byte(m: &Mount) -> u8 {
    let ino = m.volume.lookup(m.volume.root(), b"db").unwrap().ino;
    let mut byte = [0];
    m.volume.read(ino, 0, &mut byte).unwrap();
    m.volume.release(ino, 1);
    byte[0]
}

fn on_each_transport(test: impl Fn(&Mount)) {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let m = Mount::new(transport);
        let file = open(&m.path("db"));
        file.write_all_at(&[b'0'; 16384], 0).unwrap();
        file.sync_all().unwrap();
        assert_ne!(features(&file) & FEATURE_ATOMIC_WRITE, 0);
        drop(file);
        test(&m);
        m.finish();
    }
}

#[test]
fn committed_and_aborted() {
    on_each_transport(|m| {
        let file = open(&m.path("db"));
        ioctl::<START>(&file).unwrap();
        file.write_all_at(&[b'1'; 16384], 0).unwrap();
        ioctl::<COMMIT>(&file).unwrap();
        assert_eq!(
            (first_byte(&file), engine_byte(m)),
            (b'1', b'1'),
            "at COMMIT the kernel's pages have arrived"
        );
        ioctl::<START>(&file).unwrap();
        file.write_all_at(&[b'2'; 16384], 0).unwrap();
        ioctl::<ABORT>(&file).unwrap();
        assert_eq!((first_byte(&file), engine_byte(m)), (b'1', b'1'));
        // What was written before START is no part of the transaction.
        file.write_all_at(b"3", 0).unwrap();
        ioctl::<START>(&file).unwrap();
        file.write_all_at(b"4", 8192).unwrap();
        ioctl::<ABORT>(&file).unwrap();
        assert_eq!(first_byte(&file), b'3');
    });
}

#[test]
fn what_failed_in_a_transaction_stays_lost_when_it_is_started_again() {
    on_each_transport(|m| {
        let file = open(&m.path("db"));
        ioctl::<START>(&file).unwrap();
        // More than the volume takes.
        let room = m.volume.space().free * 4096;
        let part = vec![b'5'; 1 << 20];
        for offset in (0..2 * room).step_by(part.len()) {
            let _ = file.write_all_at(&part, offset);
        }
        file.sync_data().expect_err("what was written found room");
        ioctl::<START>(&file).unwrap();
        ioctl::<COMMIT>(&file).expect_err("half a transaction was committed");
        ioctl::<ABORT>(&file).unwrap();
        assert_eq!(engine_byte(m), b'0');
    });
}

/// The process that dies in the next test.
#[test]
#[ignore = "a part of a_process_that_dies_in_the_middle_leaves_nothing"]
fn dies() {
    let file = open(Path::new(&std::env::var("MEDFS_TEST_FILE").unwrap()));
    ioctl::<START>(&file).unwrap();
    file.write_all_at(&[b'X'; 16384], 0).unwrap();
    std::process::exit(0);
}

#[test]
fn a_process_that_dies_in_the_middle_leaves_nothing() {
    on_each_transport(|m| {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "atomic::dies"])
            .env("MEDFS_TEST_FILE", m.path("db"))
            .status()
            .unwrap();
        assert!(status.success());
        let deadline = Instant::now() + Duration::from_secs(10);
        while fs::read(m.path("db")).unwrap()[0] != b'0' || engine_byte(m) != b'0' {
            assert!(Instant::now() < deadline, "the transaction of a dead process is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Its place is free.
        let file = open(&m.path("db"));
        ioctl::<START>(&file).unwrap();
        file.write_all_at(b"5", 0).unwrap();
        ioctl::<COMMIT>(&file).unwrap();
        assert_eq!(engine_byte(m), b'5');
    });
}

#[test]
fn many_at_once_do_not_wait_for_each_other() {
    on_each_transport(|m| {
        std::thread::scope(|scope| {
            for writer in 0..24u8 {
                let path = m.path(&format!("db{writer}"));
                scope.spawn(move || {
                    let file = open(&path);
                    for round in 0..20u8 {
                        ioctl::<START>(&file).unwrap();
                        file.write_all_at(&[writer ^ round; 40_960], 0).unwrap();
                        ioctl::<COMMIT>(&file).unwrap();
                    }
                    assert_eq!(first_byte(&file), writer ^ 19);
                });
            }
        });
    });
}
