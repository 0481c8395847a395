//! Rule 1 of docs/ARCHITECTURE.md, block by block: what is valid in the last checkpoint, or was written since, is not
//! overwritten or discarded before the next one.

use crate::common::*;
use medfs::{Files, ManualClock, Volume};
use medfs_device::{BlockDevice, MemDevice, WriteTag};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{Block, Geometry};
use medfs_fsck::dump::{Dump, Value};
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex};

/// What may not be written.
#[derive(Default)]
struct Kept {
    /// Pack and version of the checkpoint in force.
    checkpoint: Vec<Option<Value>>,
    blocks: HashSet<u64>,
    broken: Vec<String>,
    checkpoints: u32,
}

/// Watches what is written in the main area.
struct Watched {
    dev: MemDevice,
    geometry: Geometry,
    kept: Mutex<Kept>,
}

impl Watched {
    fn new(dev: MemDevice) -> Watched {
        let superblock = medfs_device::read_block(&dev, 0).expect("memory");
        let geometry = RawSuperblock::in_block(&superblock).validate().expect("a volume");
        let watched = Watched { dev, geometry, kept: Mutex::default() };
        watched.look_at_checkpoint();
        watched
    }

    fn in_main(&self, addr: u64) -> bool {
        u32::try_from(addr).is_ok_and(|addr| self.geometry.in_main(addr))
    }

    /// Where another checkpoint is in force, what it says to be valid is what is kept.
    fn look_at_checkpoint(&self) {
        let mut kept = self.kept.lock().expect("no panic");
        let mut dump = Dump::open(&self.dev).expect("a volume");
        let checkpoint = dump.checkpoint().expect("a checkpoint");
        let now: Vec<_> = ["pack", "checkpoint_ver"].map(|f| checkpoint.get(f).cloned()).into();
        if now == kept.checkpoint {
            return;
        }
        (kept.checkpoint, kept.checkpoints) = (now, kept.checkpoints + 1);
        kept.blocks.clear();
        for segno in 0..self.geometry.segment_count_main {
            let entry = dump.sit(segno).expect("an entry");
            let Some(Value::Text(map)) = entry.get("valid_map") else { panic!("no map") };
            let start = u64::from(self.geometry.seg_start(segno));
            for (at, digits) in (0u64..).step_by(8).zip(map.as_bytes().chunks(2)) {
                let byte = u8::from_str_radix(std::str::from_utf8(digits).expect("digits"), 16).expect("hex");
                // Validity maps are kept most significant bit first.
                kept.blocks
                    .extend((0..8).filter(|bit| byte & (0x80 >> bit) != 0).map(|bit| start + at + bit));
            }
        }
    }

    fn check(&self, what: &str, addr: u64, keep: bool) {
        let mut kept = self.kept.lock().expect("no panic");
        if self.in_main(addr) {
            if kept.blocks.contains(&addr) {
                kept.broken.push(format!("{what} of block {addr:#x}"));
            }
            if keep {
                kept.blocks.insert(addr);
            }
        }
    }
}

impl BlockDevice for Watched {
    fn block_count(&self) -> u64 {
        self.dev.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.dev.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        (addr..).zip(blocks).for_each(|(addr, _)| self.check("write", addr, true));
        self.dev.write(addr, blocks, tag)
    }
    fn flush(&self) -> io::Result<()> {
        self.dev.flush()?;
        self.look_at_checkpoint();
        Ok(())
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        (addr..addr + count).for_each(|addr| self.check("discard", addr, false));
        self.dev.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        false
    }
}

/// Fills a volume, and then overwrites, removes, fsyncs and syncs at random, so that holes are reused and
/// sections cleaned.
fn work(v: &Volume, seed: u64) {
    let mut random = Random(seed);
    let files: Vec<_> = (0..40).map(|n| file(v, v.root(), &format!("f{n}"))).collect();
    while v.space().free > 300 {
        let ino = files[random.below(40) as usize];
        let _ = v.write(ino, random.below(400) * PAGE as u64, &page(1));
    }
    for turn in 0..6000u64 {
        let ino = files[random.below(40) as usize];
        let at = random.below(400) * PAGE as u64;
        match random.below(60) {
            0 => drop(v.setattr(ino, &medfs::SetAttr { size: Some(at), ..Default::default() })),
            1..=20 => v.fsync(ino, false).expect("fsync"),
            21 if turn % 8 == 0 => v.sync().expect("sync"),
            _ => drop(v.write(ino, at, &page(turn as u8))),
        }
    }
}

#[test]
fn no_block_of_the_last_checkpoint_or_since_is_reused() {
    for (seed, base) in (1..).zip(bases()) {
        let watched = Arc::new(Watched::new(base));
        let v = open_with(watched.clone(), "in_place=off", Arc::new(ManualClock::new(START)));
        work(&v, seed);
        let stats = v.stats();
        v.close().expect("closed");
        let kept = watched.kept.lock().expect("no panic");
        println!("{} checkpoints, {} sections cleaned for space", kept.checkpoints, stats.gc_foreground);
        assert!(kept.broken.is_empty(), "{} times, first {:?}", kept.broken.len(), &kept.broken[..1]);
        assert!(kept.checkpoints > 5 && stats.gc_foreground > 0, "{stats:?}");
    }
}
