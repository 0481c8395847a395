//! Records in an NVRAM that later ones supersede: one record takes the place of all, and a checkpoint is saved.

use crate::common::*;
use crate::nvram::{crashed, opened, stats};
use crate::sqlite_deltas::Database;
use medfs::{Files, ManualClock, MountOptions, NvramStats, RenameFlags, SetAttr, Volume, open_with_nvram};
use medfs_device::{MemDevice, MemNvram, Nvram};
use std::io;
use std::sync::{Arc, Mutex};

const SIZE: u64 = 64 << 10;

struct Mounted {
    v: Volume,
    device: Arc<MemDevice>,
    memory: Arc<MemNvram>,
}

fn mounted(options: &str) -> Mounted {
    let (device, memory) = (Arc::new(blank_delta(64)), Arc::new(MemNvram::new(SIZE)));
    let v = opened(&device, &memory, options).expect("mounts");
    Mounted { v, device, memory }
}

impl Mounted {
    fn after_power_loss(&self) -> Volume {
        let (device, memory) = crashed(&self.device, &self.memory);
        opened(&device, &memory, "").expect("mounts again")
    }
}

#[test]
fn pages_that_are_written_again_and_again_need_no_checkpoint() {
    for options in [
        "",
        "delta=off",
        "delta=off,in_place=force",
        "delta=full",
        "nvram_admit=population",
        "nvram_mode=ordered,in_place=off",
    ] {
        let mounted = mounted(options);
        let (f, mut expected) = noisy_file(&mounted.v, "f", 40);
        mounted.v.sync().expect("sync");
        let emptied = stats(&mounted.v).emptied;
        for round in 0..2000usize {
            let at = (round * 7 % 40) * PAGE + round % 50 * 40;
            patch(&mounted.v, f, &mut expected, at, &(round as u32).to_le_bytes());
            mounted.v.fsync(f, round % 3 == 0).expect("fsync");
            if round % 97 == 0 {
                assert!(content(&mounted.after_power_loss(), f) == expected, "{options}, round {round}");
            }
        }
        assert!(content(&mounted.after_power_loss(), f) == expected, "{options}");
        let NvramStats { compactions, compacted, left_for_room, .. } = stats(&mounted.v);
        assert!(compactions > 2, "{options}: {:?}", stats(&mounted.v));
        assert!(compacted / compactions > SIZE / 3, "{options}: {:?}", stats(&mounted.v));
        assert_eq!((stats(&mounted.v).emptied, left_for_room), (emptied, 0), "{options}");
    }
}

/// A file is unlinked, or another one takes its name, and nothing makes that durable: after power loss it is back as it
/// was fsynced, also where the records that say so were compacted meanwhile.
#[test]
fn a_file_whose_end_is_not_durable_keeps_what_was_fsynced() {
    for replaced in [false, true] {
        let mounted = mounted("");
        let (v, root) = (&mounted.v, mounted.v.root());
        let (f, mut expected) = noisy_file(v, "f", 8);
        let (g, mut other) = noisy_file(v, "g", 8);
        let (new, _) = noisy_file(v, "new", 1);
        v.sync().expect("sync");
        patch(v, f, &mut expected, 5000, &[7; 50]);
        v.fsync(f, false).expect("fsync");
        match replaced {
            true => v.rename(root, b"new", root, b"f", RenameFlags::empty()).expect("renamed"),
            false => v.unlink(root, b"f").expect("unlinked"),
        };
        [f, new].iter().for_each(|&ino| v.release(ino, 1));
        for round in 0..700usize {
            patch(v, g, &mut other, 100 + round % 8 * PAGE, &(round as u32).to_le_bytes());
            v.fsync(g, false).expect("fsync");
        }
        assert!(stats(v).compactions > 0, "{:?}", stats(v));
        let again = mounted.after_power_loss();
        assert_eq!(at(&again, "f").expect("it is back").ino, f, "replaced: {replaced}");
        assert!(content(&again, f) == expected, "replaced: {replaced}");
        assert!(content(&again, g) == other);
    }
}

/// What is cut off is revoked, and a page that comes back is zeros; names go round.
#[test]
fn what_files_lost_does_not_come_back() {
    for options in ["", "delta=off"] {
        let mounted = mounted(options);
        let (v, root) = (&mounted.v, mounted.v.root());
        let (f, mut expected) = noisy_file(v, "f", 12);
        v.sync().expect("sync");
        let cut = |size: usize| {
            let size = Some(size as u64);
            v.setattr(f, &SetAttr { size, ..SetAttr::default() }).expect("cut");
        };
        let mut last = None;
        for round in 0..900usize {
            if round % 9 == 0 {
                let new = file(v, root, "new");
                write(v, new, 0, &[round as u8; 50]);
                v.fsync(new, false).expect("fsync");
                v.rename(root, b"new", root, b"document", RenameFlags::empty()).expect("renamed");
                v.fsync(root, false).expect("fsync");
                last.into_iter().for_each(|(old, _)| v.release(old, 1));
                last = Some((new, round as u8));
            }
            patch(v, f, &mut expected, (round % 12) * PAGE + 9, &[round as u8; 30]);
            v.fsync(f, false).expect("fsync");
            if round % 5 == 0 {
                let size = expected.len();
                cut(7 * PAGE + round);
                v.fsync(f, false).expect("fsync");
                cut(size);
                expected[7 * PAGE + round..].fill(0);
                v.fsync(f, round % 2 == 0).expect("fsync");
            }
            if round % 23 == 0 {
                let again = mounted.after_power_loss();
                assert!(content(&again, f) == expected, "{options}, round {round}");
                let found = at(&again, "document").expect("the document").ino;
                let (new, byte) = last.expect("one");
                assert_eq!((found, content(&again, found)), (new, vec![byte; 50]), "round {round}");
                assert!(at(&again, "new").is_none(), "{options}, round {round}");
            }
        }
        assert!(stats(v).compactions > 1, "{options}: {:?}", stats(v));
    }
}

/// Frames start from others that the log has no more, when it begins anew: they come to start from what these did.
#[test]
fn frames_of_a_log_that_begins_anew_come_back() {
    for options in ["", "delta=off"] {
        let mounted = mounted(options);
        let v = &mounted.v;
        let mut database = Database::new(v);
        v.sync().expect("sync");
        for turn in 0..30 {
            for n in 0..12 {
                database.append(v, (n * 5 + turn) % 8, format!("turn {turn} change {n}").as_bytes());
                v.fsync(database.log, true).expect("fsync");
            }
            database.check(&mounted.after_power_loss());
            database.begin_anew();
        }
        let NvramStats { compactions, emptied, from_parts, .. } = stats(v);
        assert!(compactions > 0 && from_parts > 0, "{options}: {:?}", stats(v));
        assert!(emptied <= 2, "{options}: {:?}", stats(v));
    }
}

/// A direct node whose changes an inode notes is in no record itself, and no later inode notes them again.
#[test]
fn addresses_that_an_inode_notes_are_kept() {
    let mounted = mounted("in_place=off");
    let v = &mounted.v;
    let (f, mut expected) = noisy_file(v, "f", 1200);
    v.sync().expect("sync");
    for page in 0..4 {
        patch(v, f, &mut expected, page * PAGE + 50, &[9; 30]);
    }
    v.sync().expect("sync");
    for round in 0..1500usize {
        match round % 50 {
            7 => {
                patch(v, f, &mut expected, (1000 + round / 50) * PAGE, &noise(5000 + round as u64));
                // The inode is due, and speaks for the node.
                let perm = Some(0o600 + (round / 50 % 2) as u16);
                v.setattr(f, &SetAttr { perm, ..SetAttr::default() }).expect("mode");
            }
            _ => patch(v, f, &mut expected, round % 20 * PAGE + 100, &(round as u32).to_le_bytes()),
        }
        v.fsync(f, false).expect("fsync");
        if round % 170 == 0 {
            assert!(content(&mounted.after_power_loss(), f) == expected, "round {round}");
        }
    }
    let NvramStats { compactions, placed, .. } = stats(v);
    assert!(compactions > 1 && placed > 20, "{:?}", stats(v));
    assert!(content(&mounted.after_power_loss(), f) == expected);
}

/// Records on both sides of an fsync that went to the log stay where they are.
#[test]
fn records_with_nodes_of_the_log_between_them_are_not_compacted() {
    let mounted = mounted("");
    let v = &mounted.v;
    let (f, mut expected) = noisy_file(v, "f", 4);
    v.sync().expect("sync");
    for round in 0..1200usize {
        patch(v, f, &mut expected, round % 4 * PAGE + 100, &(round as u32).to_le_bytes());
        v.fsync(f, false).expect("fsync");
        if round % 40 == 7 {
            v.atomic_start(f).expect("begun");
            patch(v, f, &mut expected, 3 * PAGE, &[round as u8; 20]);
            v.atomic_commit(f).expect("committed");
        }
        if round % 50 == 0 {
            assert!(content(&mounted.after_power_loss(), f) == expected, "round {round}");
        }
    }
    assert_eq!(stats(v).compactions, 0);
    assert!(stats(v).emptied > 1, "{:?}", stats(v));
    assert!(content(&mounted.after_power_loss(), f) == expected);
}

/// A memory of which power loss is looked at after each request.
struct Watched {
    memory: Arc<MemNvram>,
    states: Mutex<Vec<Vec<u8>>>,
}

impl Watched {
    /// What power loss now leaves: nothing that is not fenced, all of it, or some words.
    fn look(&self) {
        let mut random = 0x9E37_79B9u64;
        let mut some = |_| {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            random >> 40 & 1 == 1
        };
        let mut states = self.states.lock().expect("no panic");
        states.push(self.memory.after_power_loss(|_| false).bytes());
        states.push(self.memory.after_power_loss(|_| true).bytes());
        states.push(self.memory.after_power_loss(&mut some).bytes());
    }
}

impl Nvram for Watched {
    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn unit(&self) -> u64 {
        self.memory.unit()
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, bytes)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write(offset, bytes)?;
        self.look();
        Ok(())
    }
    fn persist(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.persist(offset, len)?;
        self.look();
        Ok(())
    }
    fn name(&self) -> String {
        "watched".into()
    }
}

#[test]
fn power_may_be_lost_at_each_step_of_a_compaction() {
    for options in ["", "delta=off,in_place=force", "nvram_mode=ordered,in_place=off"] {
        let device = Arc::new(blank_delta(64));
        let memory = Arc::new(MemNvram::new(SIZE));
        let watched = Arc::new(Watched { memory, states: Mutex::default() });
        let mut parsed = MountOptions::default();
        parsed.parse(options).expect("options");
        let clock = Arc::new(ManualClock::new(START));
        let v = open_with_nvram(device.clone(), watched.clone(), parsed, clock).expect("mounts");
        let (f, mut expected) = noisy_file(&v, "f", 6);
        v.sync().expect("sync");
        let mut found = 0;
        for round in 0..1500usize {
            let (before, compactions) = (expected.clone(), stats(&v).compactions);
            patch(&v, f, &mut expected, round % 6 * PAGE + 9 * (round % 99), &(round as u32).to_le_bytes());
            watched.states.lock().expect("no panic").clear();
            let device_before = device.snapshot();
            v.fsync(f, false).expect("fsync");
            if stats(&v).compactions == compactions {
                continue;
            }
            let states = std::mem::take(&mut *watched.states.lock().expect("no panic"));
            assert_eq!(states.len(), 18, "a record, the one for all, and the metadata: {options}");
            for (n, bytes) in states.into_iter().enumerate() {
                let on = Arc::new(if n == 0 { device_before.snapshot() } else { device.snapshot() });
                let again = opened(&on, &Arc::new(MemNvram::of(bytes)), "").expect("mounts again");
                let is = content(&again, f);
                // The first three are of the fsync's own record, which is not durable yet.
                assert!(is == expected || n < 3 && is == before, "{options}, round {round}, state {n}");
            }
            found += 1;
        }
        assert!(found > 2, "{options}: {found}");
    }
}
