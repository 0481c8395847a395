//! Non-volatile memory beside a block device: bytes at byte offsets, durable after a fence.
//!
//! Invariants: what was written is durable when a [`Nvram::persist`] of its range has returned that began
//! after the write did. Before that power loss leaves of each aligned word of eight bytes the old or the new
//! content, each word for itself: also of what was flushed and not fenced. Calls that overlap in time are not
//! ordered.
//! Locks: those of the implementations are leaves.

mod file;
mod mapped;
mod open;

pub use open::{NvramAccess, open_nvram};

use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a word: what power loss does not tear.
pub const WORD: u64 = 8;
/// Bytes of a cache line, the unit of what is flushed.
pub const LINE: u64 = 64;
/// Words for which a number of the set of those that are not durable has bits.
const BITS: u64 = u64::BITS as u64;

/// A memory that keeps its content without power.
///
/// All methods fail with the operating system's error; `InvalidInput` where the range is outside the memory.
pub trait Nvram: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;
    /// Bytes at multiples of which writes do not touch what is before: a power of two, a cache line or the
    /// sector of a disk.
    fn unit(&self) -> u64;
    /// Reads bytes from `offset` on.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes bytes from `offset` on. They may become durable at any time.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was written in a range durable: flushes its lines, and fences.
    fn persist(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Where it is, in a word or a path.
    fn name(&self) -> String;
}

impl<N: Nvram + ?Sized> Nvram for Arc<N> {
    fn size(&self) -> u64 {
        (**self).size()
    }
    fn unit(&self) -> u64 {
        (**self).unit()
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        (**self).read(offset, bytes)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write(offset, bytes)
    }
    fn persist(&self, offset: u64, len: u64) -> io::Result<()> {
        (**self).persist(offset, len)
    }
    fn name(&self) -> String {
        (**self).name()
    }
}

/// The bytes of a range, as indices; refuses one that is not wholly inside.
fn range_of(size: u64, offset: u64, len: u64) -> io::Result<Range<usize>> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(offset as usize..end as usize),
        _ => {
            let message = format!("{len} bytes from {offset} on lie outside the memory of {size} bytes");
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
    }
}

struct Content {
    /// What reading shows.
    seen: Vec<u8>,
    /// What is durable.
    stored: Vec<u8>,
    /// Words of `seen` that are not.
    pending: Words,
}

/// A set of words: a bit for each.
struct Words(Vec<u64>);

impl Words {
    fn none_of(size: u64) -> Words {
        Words(vec![0; size.div_ceil(WORD * BITS) as usize])
    }

    /// The part of the set that lies in a range: indices, and which bits of each are those of the range.
    fn masks(range: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
        let of = move |at: u64| {
            let (from, to) = (range.start.max(at * BITS) % BITS, range.end.min((at + 1) * BITS) - at * BITS);
            (at as usize, u64::MAX.checked_shr((BITS - (to - from)) as u32).unwrap_or(0) << from)
        };
        (range.start / BITS..range.end.div_ceil(BITS)).map(of)
    }

    fn add(&mut self, range: Range<u64>) {
        Words::masks(range).for_each(|(at, mask)| self.0[at] |= mask);
    }

    /// Takes those in a range out, as runs.
    fn take(&mut self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let taken = |(at, mask): (usize, u64)| {
            let bits = &mut self.0[at];
            let taken = *bits & mask;
            *bits &= !mask;
            (at, taken)
        };
        Words::masks(range).map(taken).flat_map(Words::runs)
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied().enumerate().flat_map(Words::runs).flatten()
    }

    fn runs((at, mut bits): (usize, u64)) -> impl Iterator<Item = Range<u64>> {
        let start = at as u64 * BITS;
        std::iter::from_fn(move || {
            let from = (bits != 0).then(|| u64::from(bits.trailing_zeros()))?;
            let to = from + u64::from((bits >> from).trailing_ones());
            bits &= u64::MAX.checked_shl(to as u32).unwrap_or(0);
            Some(start + from..start + to)
        })
    }
}

/// Memory of the process, for tests and the lab: it knows what power loss would leave.
pub struct MemNvram {
    content: Mutex<Content>,
    size: u64,
}

impl MemNvram {
    /// So many bytes of zeros.
    pub fn new(size: u64) -> MemNvram {
        MemNvram::of(vec![0; size as usize])
    }

    /// With these bytes, all durable.
    pub fn of(bytes: Vec<u8>) -> MemNvram {
        let size = bytes.len() as u64;
        let content = Content { seen: bytes.clone(), stored: bytes, pending: Words::none_of(size) };
        MemNvram { content: Mutex::new(content), size }
    }

    /// The content after power loss. `keeps` decides about each word that is not durable, given its offset.
    pub fn after_power_loss(&self, mut keeps: impl FnMut(u64) -> bool) -> MemNvram {
        let content = self.content.lock();
        let mut bytes = content.stored.clone();
        for word in content.pending.all().filter(|&word| keeps(word * WORD)) {
            let range = word_range(word, self.size);
            bytes[range.clone()].copy_from_slice(&content.seen[range]);
        }
        MemNvram::of(bytes)
    }

    /// All bytes as reading shows them.
    pub fn bytes(&self) -> Vec<u8> {
        self.content.lock().seen.clone()
    }
}

fn word_range(word: u64, size: u64) -> Range<usize> {
    (word * WORD) as usize..((word + 1) * WORD).min(size) as usize
}

/// The words that a range touches.
fn words(offset: u64, len: u64) -> Range<u64> {
    offset / WORD..(offset + len).div_ceil(WORD)
}

impl Nvram for MemNvram {
    fn size(&self) -> u64 {
        self.size
    }
    fn unit(&self) -> u64 {
        LINE
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let range = range_of(self.size, offset, bytes.len() as u64)?;
        bytes.copy_from_slice(&self.content.lock().seen[range]);
        Ok(())
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = range_of(self.size, offset, bytes.len() as u64)?;
        let mut content = self.content.lock();
        content.seen[range].copy_from_slice(bytes);
        content.pending.add(words(offset, bytes.len() as u64));
        Ok(())
    }
    fn persist(&self, offset: u64, len: u64) -> io::Result<()> {
        range_of(self.size, offset, len)?;
        // Whole lines are flushed.
        let lines = offset / LINE * LINE..(offset + len).next_multiple_of(LINE);
        let Content { seen, stored, pending } = &mut *self.content.lock();
        for run in pending.take(words(lines.start, lines.end.min(self.size) - lines.start)) {
            let range = (run.start * WORD) as usize..(run.end * WORD).min(self.size) as usize;
            stored[range.clone()].copy_from_slice(&seen[range]);
        }
        Ok(())
    }
    fn name(&self) -> String {
        "memory".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(nvram: &MemNvram, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        nvram.read(offset, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn each_word_that_is_not_fenced_is_old_or_new() {
        let nvram = MemNvram::new(256);
        nvram.write(60, &[1; 16]).unwrap();
        assert_eq!(read(&nvram, 60, 16), [1; 16]);
        assert_eq!(nvram.after_power_loss(|_| false).bytes(), [0; 256]);
        let some = nvram.after_power_loss(|offset| offset == 64);
        assert_eq!((read(&some, 56, 8), read(&some, 64, 8)), (vec![0; 8], vec![1; 8]));
        // The line of 0..64 alone.
        nvram.persist(56, 4).unwrap();
        let none = nvram.after_power_loss(|_| false);
        assert_eq!((read(&none, 60, 4), read(&none, 64, 8)), (vec![1; 4], vec![0; 8]));
        nvram.persist(60, 16).unwrap();
        assert_eq!(read(&nvram.after_power_loss(|_| false), 60, 16), [1; 16]);
    }

    #[test]
    fn words_are_those_of_a_set() {
        let mut words = Words::none_of(WORD * 200);
        for range in [0..1, 63..65, 64..128, 100..100, 130..200] {
            words.add(range);
        }
        let all: Vec<u64> = (0..1).chain(63..128).chain(130..200).collect();
        assert_eq!(words.all().collect::<Vec<_>>(), all);
        // Runs end where a number ends.
        assert_eq!(words.take(60..131).collect::<Vec<_>>(), [63..64, 64..128, 130..131]);
        assert_eq!(words.take(0..200).collect::<Vec<_>>(), [0..1, 131..192, 192..200]);
        assert_eq!(words.all().count(), 0);
    }

    #[test]
    fn ranges_outside_are_refused() {
        let nvram = MemNvram::new(128);
        for (offset, len) in [(120, 9), (129, 0), (u64::MAX, 2)] {
            assert!(nvram.write(offset, &vec![0; len]).is_err());
            assert!(nvram.persist(offset, len as u64).is_err());
        }
        nvram.write(128, &[]).unwrap();
    }
}
