//! An NVRAM beside a device that cannot be read for a moment, or for good; and files without a name in its records.

use crate::common::*;
use crate::nvram::{crashed, stats};
use medfs::{FileKind, Files, Ino, ManualClock, MountOptions, Volume, open_with_nvram};
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::{BlockDevice, MemDevice, MemNvram, read_block};
use std::sync::Arc;
use std::time::Duration;

fn opened(device: Arc<dyn BlockDevice>, memory: Arc<MemNvram>, options: &str) -> medfs::Result<Volume> {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options");
    open_with_nvram(device, memory, parsed, Arc::new(ManualClock::new(START)))
}

/// A file of 600 pages that were changed and fsynced, most of which are away where the cache has 1 MiB.
struct Changed {
    v: Volume,
    device: Arc<FaultDevice<MemDevice>>,
    memory: Arc<MemNvram>,
    f: Ino,
    expected: Vec<u8>,
    /// Where four of its pages lie.
    blocks: Vec<u64>,
}

impl Changed {
    fn new(options: &str) -> Changed {
        let device = Arc::new(FaultDevice::new(blank_delta(128), 1));
        let memory = Arc::new(MemNvram::new(1 << 20));
        let v = opened(device.clone(), memory.clone(), options).expect("mounts");
        let (f, mut expected) = noisy_file(&v, "f", 600);
        v.sync().expect("sync");
        let is_one_of_four = |&addr: &u64| {
            let block = read_block(device.inner(), addr).expect("it is there");
            (100..104).any(|page| block.0[..] == expected[page * PAGE..][..PAGE])
        };
        let blocks: Vec<u64> = device.inner().written().into_iter().filter(is_one_of_four).collect();
        assert_eq!(blocks.len(), 4);
        for page in 0..600 {
            patch(&v, f, &mut expected, page * PAGE + 7, &noise(page as u64 + 1_000_000)[..100]);
            v.fsync(f, true).expect("fsync");
        }
        Changed { v, device, memory, f, expected, blocks }
    }

    fn break_blocks(&self) {
        for &addr in &self.blocks {
            self.device.arm(Fault::on(Kind::Read, Effect::IO).within(addr..addr + 1));
        }
    }

    /// The pages that are not as they were fsynced, after power loss.
    fn lost(&self, options: &str) -> Vec<usize> {
        let memory = Arc::new(self.memory.after_power_loss(|_| false));
        let device = Arc::new(self.device.inner().snapshot());
        let found = content(&opened(device, memory, options).expect("mounts again"), self.f);
        let differs = |page: &usize| found[page * PAGE..][..PAGE] != self.expected[page * PAGE..][..PAGE];
        (0..600).filter(differs).collect()
    }
}

#[test]
fn blocks_that_cannot_be_read_for_a_moment_cost_nothing_that_was_fsynced() {
    for (options, away) in [
        ("cache=1M", true),
        ("cache=1M,delta=off", true),
        ("cache=1M,delta=off,in_place=force", true),
        ("cache=64M", false),
        ("cache=64M,delta=off", false),
    ] {
        let mut changed = Changed::new(options);
        assert_eq!(stats(&changed.v).pages_away > 400, away, "{options}");
        changed.break_blocks();
        let made = [changed.v.checkpoint().is_ok(), changed.v.sync().is_ok()];
        assert_eq!(made.contains(&false), away, "{options}: {made:?}");
        changed.device.heal();
        assert!(changed.lost(options).is_empty(), "{options}: {:?}", changed.lost(options));
        assert!(content(&changed.v, changed.f) == changed.expected, "{options}");
        for written in [false, true] {
            if written {
                patch(&changed.v, changed.f, &mut changed.expected, 300 * PAGE + 50, b"one more");
            }
            changed.v.fsync(changed.f, false).expect("the device is well");
            assert!(changed.lost(options).is_empty(), "{options}: {:?}", changed.lost(options));
        }
        changed.v.sync().expect("the device is well");
        assert!(changed.lost(options).is_empty(), "{options}: {:?}", changed.lost(options));
    }
}

/// A page whose block is lost for good is lost with it. It does not keep the volume from its checkpoints for ever.
#[test]
fn a_block_that_is_lost_takes_its_page_alone() {
    for options in ["cache=1M", "cache=1M,delta=off"] {
        let changed = Changed::new(options);
        changed.break_blocks();
        let refused = (0..9).take_while(|_| changed.v.checkpoint().is_err()).count();
        assert!((1..=4).contains(&refused), "{options}: {refused} checkpoints were not made");
        changed.device.heal();
        assert_eq!(changed.lost(options), [100, 101, 102, 103], "{options}");
    }
}

#[test]
fn recovery_of_large_deltas_stays_within_the_cache() {
    for bytes in [900, 1300] {
        let (device, memory) = (Arc::new(blank_delta(128)), Arc::new(MemNvram::new(8 << 20)));
        let v = opened(device.clone(), memory.clone(), "cache=256M").expect("mounts");
        let (f, mut expected) = noisy_file(&v, "f", 3000);
        v.sync().expect("sync");
        for page in 0..3000 {
            patch(&v, f, &mut expected, page * PAGE + 7, &noise(page as u64 + 1_000_000)[..bytes]);
            v.fsync(f, true).expect("fsync");
        }
        let (device, memory) = crashed(&device, &memory);
        let again = opened(device, memory, "ro,cache=1M").expect("mounts again");
        let here = again.stats().dirty_pages - stats(&again).pages_away;
        assert!(here < 200, "{bytes}: {here} pages in a cache of 256");
        assert!(content(&again, f) == expected);
    }
}

/// A file without a name that a record would hold, and that a checkpoint listed as one to be freed.
#[test]
fn no_record_is_made_of_a_file_without_a_name() {
    let temporary = |v: &Volume| v.tmpfile(v.root(), &new(FileKind::Regular)).expect("a file").ino;
    let unlinked = |v: &Volume| {
        let f = file(v, v.root(), "t");
        v.fsync(f, false).expect("fsync");
        v.unlink(v.root(), b"t").expect("unlinked");
        f
    };
    let makers: [&dyn Fn(&Volume) -> Ino; 2] = [&temporary, &unlinked];
    for options in ["", "nvram_mode=ordered", "delta=off"] {
        for (maker, make) in makers.iter().enumerate() {
            for synced in [false, true] {
                let (device, memory) = (Arc::new(blank_delta(64)), Arc::new(MemNvram::new(1 << 20)));
                let clock = Arc::new(ManualClock::new(START));
                let mut parsed = MountOptions::default();
                parsed.parse(options).expect("options");
                let v =
                    open_with_nvram(device.clone(), memory.clone(), parsed, clock.clone()).expect("mounts");
                let (g, mut expected) = noisy_file(&v, "g", 8);
                v.sync().expect("sync");
                let f = make(&v);
                write(&v, f, 0, &noise(7));
                v.checkpoint().expect("checkpoint");
                write(&v, f, 9, b"more");
                patch(&v, g, &mut expected, 5, b"of another file");
                v.fsync(g, false).expect("fsync");
                if synced {
                    v.fsync(f, false).expect("fsync");
                } else {
                    clock.advance(Duration::from_secs(6));
                    v.background().expect("background");
                }
                let (device, memory) = crashed(&device, &memory);
                let again = opened(device, memory, options)
                    .unwrap_or_else(|e| panic!("{options}, maker {maker}, synced {synced}: {e}"));
                assert!(content(&again, g) == expected, "{options}, maker {maker}, synced {synced}");
            }
        }
    }
}
