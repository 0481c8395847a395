//! A device under the scheduler that remembers what was written in which order, for the states that a power
//! cut may leave.
//!
//! Invariants: every call is one step between two points, so that calls of threads overlap in what the engine
//! does around them and not in the device. Each event has its moment on the history's clock. A write is
//! durable with forced unit access, or when a flush came after it; of the others any may be lost.
//! Locks: the log's mutex is a leaf without points.

use super::history::Moments;
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag};
use medfs_format::{BLOCK_SIZE, Block};
use medfs_sync::point;
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io;
use std::sync::{Arc, Mutex};

/// What a discarded block reads as.
const POISON: u8 = 0xd1;

enum Event {
    Write { addr: u64, block: Box<[u8; BLOCK_SIZE]>, fua: bool },
    Discard { addr: u64, count: u64 },
    Flush,
}

/// The device; see the head of this file.
pub struct ScheduledDevice {
    base: MemDevice,
    now: MemDevice,
    moments: Arc<Moments>,
    log: Mutex<Vec<(u64, Event)>>,
}

impl ScheduledDevice {
    /// Starts from this content.
    pub fn new(base: &MemDevice, moments: Arc<Moments>) -> ScheduledDevice {
        ScheduledDevice { base: base.snapshot(), now: base.snapshot(), moments, log: Mutex::default() }
    }

    fn note(&self, events: impl IntoIterator<Item = Event>) {
        let mut log = self.log.lock().expect("no panic while it is held");
        log.extend(events.into_iter().map(|event| (self.moments.next(), event)));
    }

    /// Moments of all events.
    pub fn moments(&self) -> Vec<u64> {
        self.log.lock().expect("no panic while it is held").iter().map(|(at, _)| *at).collect()
    }

    /// What is there where power is cut at this moment: what was durable, and of the rest what `stored` says.
    pub fn cut(&self, at: u64, mut stored: impl FnMut() -> bool) -> MemDevice {
        let log = self.log.lock().expect("no panic while it is held");
        let past = &log[..log.partition_point(|(moment, _)| *moment <= at)];
        let flushed = past.iter().rposition(|(_, event)| matches!(event, Event::Flush)).unwrap_or(0);
        let image = self.base.snapshot();
        for (n, (_, event)) in past.iter().enumerate() {
            let durable = n < flushed || matches!(event, Event::Write { fua: true, .. });
            if durable || stored() {
                apply(&image, event);
            }
        }
        image
    }

    /// A random moment between two, and what is there after a power cut.
    pub fn random_cut(&self, random: &mut Xoshiro256PlusPlus, from: u64) -> (u64, MemDevice) {
        let moments: Vec<u64> = self.moments().into_iter().filter(|&at| at >= from).collect();
        let at = if moments.is_empty() { from } else { moments[random.random_range(0..moments.len())] };
        // How much is lost varies as much as what.
        let bias = random.random_range(0..=8);
        (at, self.cut(at, || random.random_range(0..8) < bias))
    }
}

fn apply(image: &MemDevice, event: &Event) {
    let tag = WriteTag::new(Cause::Data, Temperature::Cold);
    let applied = match event {
        Event::Write { addr, block, .. } => image.write(*addr, &[&Block(**block)], tag),
        Event::Discard { addr, count } => {
            let poison = Block([POISON; BLOCK_SIZE]);
            (*addr..addr + count).try_for_each(|addr| image.write(addr, &[&poison], tag))
        }
        Event::Flush => Ok(()),
    };
    applied.expect("memory takes it");
}

impl BlockDevice for ScheduledDevice {
    fn block_count(&self) -> u64 {
        self.now.block_count()
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        point();
        let read = self.now.read(addr, blocks);
        point();
        read
    }

    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        point();
        self.now.write(addr, blocks, tag)?;
        let events = (addr..).zip(blocks).map(|(addr, block)| Event::Write {
            addr,
            block: Box::new(block.0),
            fua: tag.fua,
        });
        self.note(events);
        point();
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        point();
        self.note([Event::Flush]);
        point();
        Ok(())
    }

    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        point();
        let event = Event::Discard { addr, count };
        apply(&self.now, &event);
        self.note([event]);
        point();
        Ok(())
    }

    fn read_only(&self) -> bool {
        false
    }
}
