//! A device that fails on purpose.
//!
//! A [`Fault`] says which operations it concerns (kinds, block range), from which one on, how often, and what
//! happens. Faults are deterministic: each counts the operations that concern it, and bit flips come from the
//! device's seed and the block's address, so the same sequence of operations fails in the same way.
//!
//! Locks: one over the faults, held to decide; the I/O itself runs outside it.

use crate::{BlockDevice, WriteTag};
use medfs_format::{BLOCK_SIZE, Block};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Read,
    Write,
    Flush,
    Discard,
}

/// The effect on an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It fails with this error number and changes nothing.
    Fail(i32),
    /// A write of several blocks stores some of the first ones, then fails with this error number. Other
    /// kinds just fail.
    Partial(i32),
    /// A read succeeds with this many bits flipped in each block of the range. Other kinds are not concerned.
    FlipBits(u32),
}

impl Effect {
    /// The device cannot do it (EIO).
    pub const IO: Effect = Effect::Fail(libc::EIO);
    /// No room below, as on a sparse image (ENOSPC).
    pub const NO_SPACE: Effect = Effect::Fail(libc::ENOSPC);
}

/// One thing that goes wrong. Made by [`Fault::on`] and narrowed by the other methods.
#[derive(Debug, Clone)]
pub struct Fault {
    kind: Kind,
    effect: Effect,
    range: Range<u64>,
    skip: u64,
    times: u64,
    hits: u64,
    until_written: bool,
}

impl Fault {
    /// Every operation of a kind.
    pub fn on(kind: Kind, effect: Effect) -> Fault {
        Fault { kind, effect, range: 0..u64::MAX, skip: 0, times: u64::MAX, hits: 0, until_written: false }
    }
    /// Only operations that touch these blocks. (A flush touches none and is always concerned.)
    pub fn within(self, range: Range<u64>) -> Fault {
        Fault { range, ..self }
    }
    /// Lets the first `count` concerned operations pass.
    pub fn after(self, count: u64) -> Fault {
        Fault { skip: count, ..self }
    }
    /// Strikes this often, then never again.
    pub fn times(self, count: u64) -> Fault {
        Fault { times: count, ..self }
    }
    /// Strikes until a write to its blocks succeeds, as sectors do that a drive replaces.
    pub fn until_written(self) -> Fault {
        Fault { until_written: true, ..self }
    }
    /// Only the `n`-th concerned operation, counted from 0.
    pub fn nth(self, n: u64) -> Fault {
        self.after(n).times(1)
    }

    fn concerns(&self, kind: Kind, addr: u64, count: u64) -> bool {
        let touches = addr < self.range.end && addr.saturating_add(count) > self.range.start;
        self.kind == kind && (kind == Kind::Flush || touches)
    }

    /// Whether this concerned operation is struck.
    fn strikes(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.times == 0 {
            return false;
        }
        self.times -= 1;
        self.hits += 1;
        true
    }
}

/// A device on which faults can be armed at any time.
pub struct FaultDevice<D> {
    inner: D,
    seed: u64,
    faults: Mutex<Vec<Fault>>,
}

/// A well-mixed number (splitmix64).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl<D: BlockDevice> FaultDevice<D> {
    /// A device without faults so far; `seed` decides which bits flip.
    pub fn new(inner: D, seed: u64) -> FaultDevice<D> {
        FaultDevice { inner, seed, faults: Mutex::new(Vec::new()) }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Adds a fault. Where several strike one operation, the first armed wins.
    pub fn arm(&self, fault: Fault) {
        self.faults.lock().push(fault);
    }

    /// Removes all faults: the device is well again.
    pub fn heal(&self) {
        self.faults.lock().clear();
    }

    /// Number of times that the present faults have struck.
    pub fn hits(&self) -> u64 {
        self.faults.lock().iter().map(|fault| fault.hits).sum()
    }

    /// The fault that strikes an operation. Every fault it concerns counts it.
    fn strike(&self, kind: Kind, addr: u64, count: u64) -> Option<(Effect, Range<u64>)> {
        let mut struck = None;
        for fault in self.faults.lock().iter_mut().filter(|f| f.concerns(kind, addr, count)) {
            if struck.is_none() {
                if fault.strikes() {
                    struck = Some((fault.effect, fault.range.clone()));
                }
            } else {
                fault.skip = fault.skip.saturating_sub(1);
            }
        }
        struck
    }

    fn flip(&self, addr: u64, block: &mut Block, bits: u32) {
        for i in 0..bits {
            let bit = (mix(self.seed ^ mix(addr) ^ u64::from(i)) % (BLOCK_SIZE as u64 * 8)) as usize;
            block.0[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl<D: BlockDevice> BlockDevice for FaultDevice<D> {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        match self.strike(Kind::Read, addr, blocks.len() as u64) {
            None => self.inner.read(addr, blocks),
            Some((Effect::Fail(number) | Effect::Partial(number), _)) => Err(errno(number)),
            Some((Effect::FlipBits(bits), range)) => {
                self.inner.read(addr, blocks)?;
                for (at, block) in (addr..).zip(blocks).filter(|(at, _)| range.contains(at)) {
                    self.flip(at, block, bits);
                }
                Ok(())
            }
        }
    }

    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        match self.strike(Kind::Write, addr, blocks.len() as u64) {
            None | Some((Effect::FlipBits(_), _)) => {
                self.inner.write(addr, blocks, tag)?;
                for fault in self.faults.lock().iter_mut() {
                    if fault.until_written && fault.concerns(fault.kind, addr, blocks.len() as u64) {
                        fault.times = 0;
                    }
                }
                Ok(())
            }
            Some((Effect::Fail(number), _)) => Err(errno(number)),
            Some((Effect::Partial(number), _)) => {
                let stored = (mix(self.seed ^ mix(addr)) % blocks.len().max(1) as u64) as usize;
                self.inner.write(addr, &blocks[..stored], tag)?;
                Err(errno(number))
            }
        }
    }

    fn flush(&self) -> io::Result<()> {
        match self.strike(Kind::Flush, 0, 0) {
            Some((Effect::Fail(number) | Effect::Partial(number), _)) => Err(errno(number)),
            _ => self.inner.flush(),
        }
    }

    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        match self.strike(Kind::Discard, addr, count) {
            Some((Effect::Fail(number) | Effect::Partial(number), _)) => Err(errno(number)),
            _ => self.inner.discard(addr, count),
        }
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, MemDevice, Temperature, read_block};

    const TAG: WriteTag = WriteTag::new(Cause::Data, Temperature::Hot);

    fn device() -> FaultDevice<MemDevice> {
        FaultDevice::new(MemDevice::new(100), 42)
    }

    #[test]
    fn nth_then_well_again() {
        let dev = device();
        dev.arm(Fault::on(Kind::Write, Effect::NO_SPACE).nth(2));
        let results: Vec<_> = (0..5).map(|a| dev.write(a, &[&Block([1; 4096])], TAG)).collect();
        let failed: Vec<_> =
            results.iter().map(|r| r.as_ref().err().and_then(|e| e.raw_os_error())).collect();
        assert_eq!(failed, [None, None, Some(libc::ENOSPC), None, None]);
        assert_eq!(read_block(&dev, 2).unwrap().0[0], 0);
        assert_eq!(dev.hits(), 1);
    }

    #[test]
    fn all_after_within_a_range() {
        let dev = device();
        dev.arm(Fault::on(Kind::Read, Effect::IO).within(10..20).after(1));
        assert!(read_block(&dev, 15).is_ok());
        assert!(read_block(&dev, 9).is_ok());
        assert!(read_block(&dev, 10).is_err());
        let (mut a, mut b) = (Block::ZERO, Block::ZERO);
        assert!(dev.read(19, &mut [&mut a, &mut b]).is_err());
        assert!(dev.read(20, &mut [&mut a, &mut b]).is_ok());
        dev.heal();
        assert!(read_block(&dev, 10).is_ok());
    }

    #[test]
    fn a_block_that_is_written_can_be_read_again() {
        let dev = device();
        dev.arm(Fault::on(Kind::Read, Effect::IO).within(7..8).until_written());
        assert!(read_block(&dev, 7).is_err());
        dev.write(8, &[&Block([2; 4096])], TAG).unwrap();
        assert!(read_block(&dev, 7).is_err());
        dev.write(6, &[&Block([1; 4096]), &Block([1; 4096])], TAG).unwrap();
        assert_eq!((read_block(&dev, 7).unwrap().0[0], dev.hits()), (1, 2));
    }

    #[test]
    fn flips_are_repeatable() {
        let dev = device();
        dev.write(7, &[&Block([0; 4096])], TAG).unwrap();
        dev.arm(Fault::on(Kind::Read, Effect::FlipBits(3)).within(7..8));
        let first = read_block(&dev, 7).unwrap();
        assert_eq!(first.0, read_block(&dev, 7).unwrap().0);
        let ones: u32 = first.0.iter().map(|b| b.count_ones()).sum();
        assert!((1..=3).contains(&ones));
        assert_eq!(read_block(&dev, 8).unwrap().0, [0; 4096]);
    }

    #[test]
    fn partial_writes_store_a_true_prefix() {
        let dev = device();
        dev.arm(Fault::on(Kind::Write, Effect::Partial(libc::EIO)));
        let blocks = vec![Block([5; 4096]); 16];
        dev.write(0, &blocks.iter().collect::<Vec<_>>(), TAG).unwrap_err();
        let stored = dev.inner().written();
        assert!(stored.len() < 16);
        assert_eq!(stored, (0..stored.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn flush_and_discard_fail() {
        let dev = device();
        dev.arm(Fault::on(Kind::Flush, Effect::IO).times(1));
        dev.arm(Fault::on(Kind::Discard, Effect::Fail(libc::EOPNOTSUPP)).within(50..60));
        assert!(dev.flush().is_err());
        assert!(dev.flush().is_ok());
        assert!(dev.discard(0, 51).is_err());
        assert!(dev.discard(0, 50).is_ok());
    }
}
