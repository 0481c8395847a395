//! Crash states: everything a device may hold after power is lost at some moment.
//!
//! [`RecordingDevice`] works on a copy of a base image and logs, block by block, what is written, flushed and
//! discarded, and the caller's marks ("this fsync returned"). A [`Recording`] then enumerates the states.
//!
//! The device that is assumed (see `docs/MEDIA.md`) has a volatile cache of any size and policy:
//! - a write that returned, and was followed by a flush that began afterwards and returned, is durable;
//! - a write with forced unit access is durable when it returns, and says nothing of other writes, earlier
//!   ones included;
//! - any other write may be stored or not, alone, in any order, block by block, up to the end of the epoch (the
//!   next flush); of several pending versions of one block any one may be stored, or the old content;
//! - a discard is a pending write of a poison pattern: no program may rely on what a discarded block reads as;
//! - a block is stored wholly or not at all, except where the plan says that torn ones are to be shown: then some
//!   512-byte sectors are new and the others old.
//!
//! So within one epoch the writes form stages, one for each number of FUA writes completed; in a stage the pending
//! blocks choose freely. Each state is shown once, with the latest moment at which it is possible: there the most has
//! been acknowledged and the contract asks most. Where the choices of a stage are few all are shown, otherwise all
//! prefixes (every crash point of a device that stores in order), each single block lost or alone stored, and a
//! seeded sample.
//!
//! Operations that overlap in time: a write is logged when it completes. A flush covers what completed before it
//! began, not what completed while it ran. A crash in the middle of a write is the same as one with that write
//! pending, which is covered by the state in which it is dropped.
//!
//! Locks: one around log and working copy, held during each operation; recording is for tests.

mod selections;

use crate::{BlockDevice, Cause, MemDevice, WriteTag, check_range};
use medfs_format::{BLOCK_SIZE, Block};
use parking_lot::Mutex;
use selections::selections;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Bytes of a sector, the unit of torn writes.
pub const SECTOR_SIZE: usize = 512;
/// The bytes that discarded blocks read as.
pub const POISON: u8 = 0xdb;

type Content = Arc<[u8; BLOCK_SIZE]>;

/// One entry of the log. Writes of several blocks are as many entries.
#[derive(Debug, Clone)]
pub enum Event {
    /// A block was written.
    Write {
        /// Where.
        addr: u64,
        /// What.
        content: Content,
        /// Why.
        cause: Cause,
        /// Whether it was durable on return.
        fua: bool,
    },
    /// A block was discarded.
    Discard {
        /// Where.
        addr: u64,
    },
    /// A flush returned; it covers the events before this index.
    Flush {
        /// Length of the log when the flush began.
        covers: usize,
    },
    /// The caller's note, see [`RecordingDevice::mark`].
    Mark(u64),
}

struct State {
    work: MemDevice,
    log: Vec<Event>,
}

/// Records what is written on top of a base image. See the module.
pub struct RecordingDevice {
    base: MemDevice,
    state: Mutex<State>,
}

impl RecordingDevice {
    /// Records on top of the present content of `base`.
    pub fn new(base: &MemDevice) -> RecordingDevice {
        let state = State { work: base.snapshot(), log: Vec::new() };
        RecordingDevice { base: base.snapshot(), state: Mutex::new(state) }
    }

    /// Notes that something happened in the caller's world, e.g. that operation `note` was acknowledged.
    pub fn mark(&self, note: u64) {
        self.state.lock().log.push(Event::Mark(note));
    }

    /// The present content, everything stored.
    pub fn snapshot(&self) -> MemDevice {
        self.state.lock().work.snapshot()
    }

    /// The recording so far.
    pub fn recording(&self) -> Recording {
        Recording { base: self.base.snapshot(), log: self.state.lock().log.clone() }
    }
}

impl BlockDevice for RecordingDevice {
    fn block_count(&self) -> u64 {
        self.base.block_count()
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.state.lock().work.read(addr, blocks)
    }

    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        check_range(self.block_count(), addr, blocks.len() as u64)?;
        let mut state = self.state.lock();
        for (addr, block) in (addr..).zip(blocks) {
            let content: Content = Arc::new(block.0);
            state.work.set(addr, content.clone());
            state.log.push(Event::Write { addr, content, cause: tag.cause, fua: tag.fua });
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        // The flush of memory takes no time, so nothing completes while it runs.
        let mut state = self.state.lock();
        let covers = state.log.len();
        state.log.push(Event::Flush { covers });
        Ok(())
    }

    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        check_range(self.block_count(), addr, count)?;
        let mut state = self.state.lock();
        let poison: Content = Arc::new([POISON; BLOCK_SIZE]);
        for addr in addr..addr + count {
            state.work.set(addr, poison.clone());
            state.log.push(Event::Discard { addr });
        }
        Ok(())
    }

    fn read_only(&self) -> bool {
        false
    }
}

/// Decides by address, cause and new content whether a block may be shown torn.
pub type TornFilter = Arc<dyn Fn(u64, Cause, &[u8; BLOCK_SIZE]) -> bool + Send + Sync>;

/// The choice of crash states.
#[derive(Clone)]
pub struct CrashPlan {
    /// Stages with at most this many states are shown completely.
    pub exhaustive: usize,
    /// Random states of a stage that is larger, beside prefixes and single blocks.
    pub samples: usize,
    /// Blocks for which torn versions are shown: those that carry a checksum. None where absent.
    pub torn: Option<TornFilter>,
    /// Torn versions of each such write.
    pub torn_each: usize,
    /// Decides the samples and the torn sectors.
    pub seed: u64,
}

impl Default for CrashPlan {
    fn default() -> Self {
        CrashPlan { exhaustive: 64, samples: 32, torn: None, torn_each: 2, seed: 0 }
    }
}

/// The difference of one block of a state from what is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Choice {
    /// Index in the log of the write (or discard) that is stored.
    pub event: usize,
    /// Bit i: sector i is stored; the others keep the durable content.
    pub sectors: u8,
}

/// One crash state: an image, and the moment it belongs to.
#[derive(Clone)]
pub struct CrashState {
    /// Position among the states of this recording and plan.
    pub ordinal: usize,
    /// The crash may happen as late as just before this index of the log; marks below it had been made.
    pub point: usize,
    /// Pending blocks that are stored, with what; pending blocks not named here are lost.
    pub stored: Vec<(u64, Choice)>,
    stage: Arc<Stage>,
    log: Arc<Vec<Event>>,
}

impl CrashState {
    /// The image. Cheap: content is shared until written.
    pub fn device(&self) -> MemDevice {
        let device = self.stage.durable.snapshot();
        for &(addr, choice) in &self.stored {
            let new = content(&self.log[choice.event]).expect("choices are writes or discards");
            if choice.sectors == u8::MAX {
                device.set(addr, new);
                continue;
            }
            let mut mixed = self.stage.durable.get(addr).map_or([0; BLOCK_SIZE], |old| *old);
            for sector in (0..8).filter(|sector| choice.sectors & 1 << sector != 0) {
                let bytes = sector * SECTOR_SIZE..(sector + 1) * SECTOR_SIZE;
                mixed[bytes.clone()].copy_from_slice(&new[bytes]);
            }
            device.set(addr, Arc::new(mixed));
        }
        device
    }

    /// Pending blocks that are lost, torn, or stored in an older version.
    pub fn lost(&self) -> Vec<u64> {
        let stored: HashSet<_> = self.stored.iter().copied().collect();
        let newest = latest(&self.stage.pending, &self.log).into_iter();
        let lost =
            newest.filter(|&(addr, event)| !stored.contains(&(addr, Choice { event, sectors: u8::MAX })));
        lost.map(|(addr, _)| addr).collect()
    }

    /// The newest pending writes of the same blocks, as indices in the log.
    pub fn lost_events(&self) -> impl Iterator<Item = usize> {
        let lost: HashSet<u64> = self.lost().into_iter().collect();
        latest(&self.stage.pending, &self.log)
            .into_iter()
            .filter(move |(addr, _)| lost.contains(addr))
            .map(|(_, event)| event)
    }

    /// The last mark made before the crash.
    pub fn last_mark(&self) -> Option<u64> {
        self.log[..self.point].iter().rev().find_map(|event| match event {
            Event::Mark(note) => Some(*note),
            _ => None,
        })
    }
}

impl fmt::Debug for CrashState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state {}: crash before event {}", self.ordinal, self.point)?;
        for (addr, choice) in &self.stored {
            let what = match &self.log[choice.event] {
                Event::Write { cause, .. } => cause.name(),
                _ => "discard",
            };
            write!(f, ", {what} block {addr:#x} of event {} stored", choice.event)?;
            if choice.sectors != u8::MAX {
                write!(f, " torn (sectors {:08b})", choice.sectors)?;
            }
        }
        match self.lost() {
            lost if lost.is_empty() => Ok(()),
            lost => write!(f, ", lost {lost:x?}"),
        }
    }
}

fn content(event: &Event) -> Option<Content> {
    match event {
        Event::Write { content, .. } => Some(content.clone()),
        Event::Discard { .. } => Some(Arc::new([POISON; BLOCK_SIZE])),
        Event::Flush { .. } | Event::Mark(_) => None,
    }
}

/// A finished recording: the base image and the log.
pub struct Recording {
    base: MemDevice,
    log: Vec<Event>,
}

/// What is pending at some moment: versions of each block, oldest first.
type Pending = BTreeMap<u64, Vec<usize>>;

/// Moments of one epoch between two FUA writes (or its ends): same durable content, growing pending writes.
struct Stage {
    durable: MemDevice,
    /// Pending events in order, those since the last flush; a later FUA write of the block removes them.
    pending: Vec<usize>,
    /// Latest moment.
    point: usize,
}

impl Recording {
    /// The log.
    pub fn log(&self) -> &[Event] {
        &self.log
    }

    /// All crash states under a plan, in order of time.
    pub fn states(&self, plan: &CrashPlan) -> impl Iterator<Item = CrashState> + use<> {
        let log = Arc::new(self.log.clone());
        let plan = plan.clone();
        let mut ordinal = 0;
        self.stages().into_iter().enumerate().flat_map(move |(number, stage)| {
            let seed = plan.seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let stage = Arc::new(stage);
            let states: Vec<_> = selections(&stage, &log, &plan, seed)
                .into_iter()
                .map(|stored| {
                    ordinal += 1;
                    let (stage, log) = (stage.clone(), log.clone());
                    CrashState { ordinal: ordinal - 1, point: stage.point, stored, stage, log }
                })
                .collect();
            states
        })
    }

    /// `count` states after power cuts at moments that the seed draws. Every other one has nothing that was not
    /// flushed, the others have the first of those writes, or any of them.
    pub fn cuts(&self, count: usize, seed: u64) -> impl Iterator<Item = CrashState> + use<> {
        let log = Arc::new(self.log.clone());
        let stages: Vec<_> = self.stages().into_iter().map(Arc::new).collect();
        let mut draw = selections::Draw::new(seed);
        (0..count).map(move |ordinal| {
            let stage = stages[draw.below(stages.len())].clone();
            let stored = if ordinal % 2 == 0 { Vec::new() } else { draw.some(&stage, &log) };
            CrashState { ordinal, point: stage.point, stored, stage, log: log.clone() }
        })
    }

    /// Cuts the log into stages. A stage that says nothing new is left out.
    fn stages(&self) -> Vec<Stage> {
        let durable = self.base.snapshot();
        let mut pending: Vec<usize> = Vec::new();
        let mut stages = Vec::new();
        let mut fresh = true;
        for (index, event) in self.log.iter().enumerate() {
            let ends = matches!(event, Event::Flush { .. } | Event::Write { fua: true, .. });
            if ends && fresh {
                stages.push(Stage { durable: durable.snapshot(), pending: pending.clone(), point: index });
            }
            match event {
                Event::Write { fua: false, .. } | Event::Discard { .. } => {
                    pending.push(index);
                    fresh = true;
                }
                Event::Write { addr, content, fua: true, .. } => {
                    durable.set(*addr, content.clone());
                    // An older pending version cannot overwrite the durable one.
                    pending.retain(|&older| block(&self.log[older]) != Some(*addr));
                    fresh = true;
                }
                Event::Flush { covers } => {
                    fresh = !pending.is_empty();
                    for &done in pending.iter().filter(|&&done| done < *covers) {
                        if let (Some(addr), Some(content)) =
                            (block(&self.log[done]), content(&self.log[done]))
                        {
                            durable.set(addr, content);
                        }
                    }
                    pending.retain(|&event| event >= *covers);
                }
                Event::Mark(_) => fresh = true,
            }
        }
        if fresh {
            stages.push(Stage { durable, pending, point: self.log.len() });
        }
        stages
    }
}

fn block(event: &Event) -> Option<u64> {
    match event {
        Event::Write { addr, .. } | Event::Discard { addr } => Some(*addr),
        Event::Flush { .. } | Event::Mark(_) => None,
    }
}

/// The newest event of each pending block.
fn latest(pending: &[usize], log: &[Event]) -> BTreeMap<u64, usize> {
    pending.iter().filter_map(|&event| Some((block(&log[event])?, event))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Temperature, read_block};

    const TAG: WriteTag = WriteTag::new(Cause::Data, Temperature::Hot);

    fn put(dev: &RecordingDevice, addr: u64, byte: u8) {
        dev.write(addr, &[&Block([byte; 4096])], TAG).unwrap();
    }

    /// First bytes of the first blocks of every state, with the crash point.
    fn images(dev: &RecordingDevice, plan: &CrashPlan, blocks: u64) -> Vec<(usize, Vec<u8>)> {
        let first = |dev: &MemDevice, addr| read_block(dev, addr).unwrap().0[0];
        let states = dev.recording().states(plan);
        states
            .map(|state| {
                let image = state.device();
                (state.point, (0..blocks).map(|addr| first(&image, addr)).collect())
            })
            .collect()
    }

    #[test]
    fn any_subset_until_the_flush() {
        let dev = RecordingDevice::new(&MemDevice::new(8));
        put(&dev, 0, 1);
        put(&dev, 1, 2);
        dev.flush().unwrap();
        put(&dev, 0, 3);
        let mut images = images(&dev, &CrashPlan::default(), 2);
        images.sort();
        let expected: Vec<(usize, Vec<u8>)> = vec![
            (2, vec![0, 0]),
            (2, vec![0, 2]),
            (2, vec![1, 0]),
            (2, vec![1, 2]),
            (4, vec![1, 2]),
            (4, vec![3, 2]),
        ];
        assert_eq!(images, expected);
    }

    #[test]
    fn versions_of_one_block_exclude_each_other() {
        let dev = RecordingDevice::new(&MemDevice::new(8));
        for byte in 1..=3 {
            put(&dev, 0, byte);
        }
        let images: HashSet<_> =
            images(&dev, &CrashPlan::default(), 1).into_iter().map(|(_, i)| i[0]).collect();
        assert_eq!(images, HashSet::from([0, 1, 2, 3]));
    }

    #[test]
    fn fua_is_durable_alone() {
        let dev = RecordingDevice::new(&MemDevice::new(8));
        put(&dev, 0, 1);
        put(&dev, 1, 1);
        dev.write(1, &[&Block([2; 4096])], TAG.with_fua()).unwrap();
        dev.mark(7);
        let states: Vec<_> = dev.recording().states(&CrashPlan::default()).collect();
        let acknowledged: Vec<_> = states.iter().filter(|s| s.last_mark() == Some(7)).collect();
        assert_eq!(acknowledged.len(), 2);
        for state in acknowledged {
            assert_eq!(read_block(&state.device(), 1).unwrap().0[0], 2);
        }
        let images = images(&dev, &CrashPlan::default(), 2);
        assert!(images.contains(&(4, vec![0, 2])) && images.contains(&(2, vec![1, 0])));
        assert_eq!(images.len(), 4 + 2);
    }

    #[test]
    fn large_stages_show_prefixes_and_are_repeatable() {
        let dev = RecordingDevice::new(&MemDevice::new(64));
        for addr in 0..40 {
            put(&dev, addr, addr as u8 + 1);
        }
        let plan = CrashPlan { exhaustive: 100, samples: 50, seed: 5, ..Default::default() };
        let first = images(&dev, &plan, 40);
        assert_eq!(first, images(&dev, &plan, 40));
        for length in 0..=40u8 {
            let prefix: Vec<u8> = (1..=40).map(|byte| if byte <= length { byte } else { 0 }).collect();
            assert!(first.iter().any(|(_, image)| *image == prefix), "prefix {length}");
        }
        assert!(first.len() > 41 + 70 + 40);
    }

    #[test]
    fn torn_only_where_allowed() {
        let base = MemDevice::new(8);
        base.write(0, &[&Block([9; 4096]), &Block([9; 4096])], TAG).unwrap();
        let dev = RecordingDevice::new(&base);
        put(&dev, 0, 1);
        put(&dev, 1, 1);
        let torn: TornFilter = Arc::new(|addr, _, _| addr == 1);
        let plan = CrashPlan { torn: Some(torn), torn_each: 3, ..Default::default() };
        let mut mixed = 0;
        for state in dev.recording().states(&plan) {
            let image = state.device();
            for addr in 0..2 {
                let block = read_block(&image, addr).unwrap();
                let new = block.0.chunks(SECTOR_SIZE).filter(|sector| sector == &[1; SECTOR_SIZE]).count();
                let old = block.0.chunks(SECTOR_SIZE).filter(|sector| sector == &[9; SECTOR_SIZE]).count();
                assert_eq!(new + old, 8);
                mixed += usize::from(new * old > 0);
                assert!(addr == 1 || new * old == 0);
            }
        }
        assert!(mixed >= 3);
    }

    #[test]
    fn cuts_repeat_and_drop_all_or_some_of_what_was_not_flushed() {
        let dev = RecordingDevice::new(&MemDevice::new(8));
        for round in 1..=3 {
            (0..4).for_each(|addr| put(&dev, addr, round));
            dev.flush().unwrap();
            dev.mark(u64::from(round));
        }
        let images = |seed| -> Vec<(Option<u64>, Vec<u8>)> {
            let image = |state: &CrashState| {
                let device = state.device();
                (0..4).map(|addr| read_block(&device, addr).unwrap().0[0]).collect()
            };
            dev.recording().cuts(200, seed).map(|state| (state.last_mark(), image(&state))).collect()
        };
        let found = images(1);
        assert_eq!(found, images(1));
        assert_ne!(found, images(2));
        for (ordinal, (mark, image)) in found.iter().enumerate() {
            let durable = mark.unwrap_or(0) as u8;
            assert!(image.iter().all(|byte| (durable..=durable + 1).contains(byte)));
            assert!(ordinal % 2 == 1 || image.iter().all(|byte| *byte == durable));
        }
        // A later write without an earlier one, and the first ones.
        assert!(found.iter().any(|(_, image)| image[0] < image[3]));
        assert!(found.iter().any(|(_, image)| image[0] > image[3] && image.is_sorted_by(|a, b| a >= b)));
    }

    #[test]
    fn discards_poison_and_may_be_lost() {
        let base = MemDevice::new(8);
        base.write(3, &[&Block([9; 4096])], TAG).unwrap();
        let dev = RecordingDevice::new(&base);
        dev.discard(3, 1).unwrap();
        assert_eq!(read_block(&dev, 3).unwrap().0[0], POISON);
        let images: Vec<u8> = images(&dev, &CrashPlan::default(), 4).iter().map(|(_, i)| i[3]).collect();
        assert_eq!(images, [9, POISON]);
    }
}
