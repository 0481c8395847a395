//! Non-volatile memory that the processor addresses: a file on a DAX file system, a DAX device, the registers of a UIO
//! device, a part of the physical memory.
//!
//! Purpose: an fsync costs the flush of a few cache lines and a fence, and no system call.
//! Invariants: memory is read and written in aligned words, each as a whole, so that power loss tears none. What the
//! cache holds is written back line by line ([`Order::Lines`]); what is not cached has arrived when a word of it was
//! read back ([`Order::Words`]). The file or device stays open and claimed while it is mapped. A file that another
//! program cuts short ends the process with SIGBUS, as memory does that fails: nothing here can tell before.
//! Locks: none. `unsafe` is in this file alone: what maps memory, reads and writes it, and flushes its lines.
#![allow(unsafe_code)]

use super::open::Opened;
use super::{LINE, Nvram, WORD, range_of};
use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// How what was written becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Its cache lines are written back, and a fence waits for them.
    Lines,
    /// It was never cached; a word that is read back waits for what was written before it.
    Words,
}

/// Memory of a file or device in the address space of the process.
struct Mapping {
    at: NonNull<AtomicU64>,
    /// A multiple of [`WORD`].
    bytes: usize,
}

// SAFETY: the memory is reached through atomic words alone, from any thread, and unmapped when the owner is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps bytes of a file or device; both ends are multiples of its pages.
    fn new(fd: impl AsFd, bytes: Range<u64>, writes: bool, flags: MapFlags) -> io::Result<Mapping> {
        let protect = if writes { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let length = usize::try_from(bytes.end - bytes.start)
            .map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, "more than can be addressed"))?;
        // SAFETY: the kernel chooses the place, so that no other memory is replaced.
        let at = unsafe { mmap(std::ptr::null_mut(), length, protect, flags, fd, bytes.start)? };
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Mapping { at, bytes: length })
    }

    /// A word, by its index.
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.bytes / WORD as usize, "a word outside the mapping");
        // SAFETY: inside the mapping, which is aligned to pages and lives as long as `self`; all access is atomic.
        unsafe { self.at.add(index).as_ref() }
    }

    /// Writes the cache lines of a range of bytes back to the memory, and waits for that.
    fn write_back(&self, bytes: Range<usize>) {
        assert!(bytes.end <= self.bytes, "a line outside the mapping");
        let first = bytes.start / LINE as usize * LINE as usize;
        for line in (first..bytes.end).step_by(LINE as usize) {
            // SAFETY: the line begins inside the mapping, which ends with a page.
            unsafe { cache::write_back_line(self.at.as_ptr().cast::<u8>().add(line)) };
        }
        cache::wait();
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped, and no reference to it outlives `self`.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// Cache lines of x86-64: CLWB keeps the line, CLFLUSHOPT and CLFLUSH drop it.
#[cfg(target_arch = "x86_64")]
mod cache {
    use std::arch::asm;
    use std::sync::OnceLock;

    #[derive(Clone, Copy)]
    enum Way {
        Clwb,
        ClflushOpt,
        Clflush,
    }

    fn way() -> Way {
        static WAY: OnceLock<Way> = OnceLock::new();
        *WAY.get_or_init(|| {
            // Leaf 7 has both bits, where the processor has that leaf.
            let has_leaf = std::arch::x86_64::__cpuid(0).eax >= 7;
            let features = if has_leaf { std::arch::x86_64::__cpuid_count(7, 0).ebx } else { 0 };
            match features {
                _ if features & 1 << 24 != 0 => Way::Clwb,
                _ if features & 1 << 23 != 0 => Way::ClflushOpt,
                _ => Way::Clflush,
            }
        })
    }

    /// Whether this processor can.
    pub(super) fn is_there() -> bool {
        true
    }

    /// # Safety
    ///
    /// The address is mapped.
    pub(super) unsafe fn write_back_line(at: *const u8) {
        match way() {
            // SAFETY: the processor has the instruction, which changes no content; the address is mapped.
            Way::Clwb => unsafe { asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags)) },
            // SAFETY: as above.
            Way::ClflushOpt => unsafe {
                asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags))
            },
            // SAFETY: as above; every processor of this kind has it.
            Way::Clflush => unsafe { asm!("clflush [{}]", in(reg) at, options(nostack, preserves_flags)) },
        }
    }

    /// Waits for what was written back.
    pub(super) fn wait() {
        // SAFETY: a fence touches nothing.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) }
    }
}

/// Cache lines of ARMv8.2 and newer: DC CVAP cleans them to the point of persistence.
#[cfg(target_arch = "aarch64")]
mod cache {
    use std::arch::asm;

    /// `HWCAP_DCPOP`.
    const PERSISTENCE: usize = 1 << 16;

    /// Whether this processor can.
    pub(super) fn is_there() -> bool {
        rustix::param::linux_hwcap().0 & PERSISTENCE != 0
    }

    /// # Safety
    ///
    /// The address is mapped, and the processor can.
    pub(super) unsafe fn write_back_line(at: *const u8) {
        // SAFETY: DC CVAP by its encoding, as assemblers know its name for newer processors alone. It changes nothing.
        unsafe { asm!("sys #3, c7, c12, #1, {}", in(reg) at, options(nostack, preserves_flags)) }
    }

    /// Waits for what was written back.
    pub(super) fn wait() {
        // SAFETY: a barrier touches nothing.
        unsafe { asm!("dsb sy", options(nostack, preserves_flags)) }
    }
}

/// Other processors have no instruction for it that programs may use.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod cache {
    /// Whether this processor can.
    pub(super) fn is_there() -> bool {
        false
    }

    /// # Safety
    ///
    /// None is called where [`is_there`] is false.
    pub(super) unsafe fn write_back_line(_: *const u8) {}

    /// Waits for nothing.
    pub(super) fn wait() {}
}

/// Whether cache lines can be written back to a persistent memory here.
pub(super) fn can_write_back() -> bool {
    cache::is_there()
}

/// Whether a file lies on a file system that lets programs address its memory (DAX), with what durability needs.
pub(super) fn is_dax(fd: impl AsFd) -> bool {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    Mapping::new(fd, 0..rustix::param::page_size() as u64, false, flags).is_ok()
}

/// Memory of a file or device that the processor addresses. See the module.
pub(super) struct MappedNvram {
    map: Mapping,
    /// Where the memory begins in the mapping.
    start: usize,
    size: u64,
    order: Order,
    opened: Opened,
}

impl MappedNvram {
    /// Maps `size` bytes from `offset` on of what is open, in units of `page`; the content begins at `inside` of it.
    pub(super) fn of(
        opened: Opened,
        (offset, size): (u64, u64),
        (page, order): (u64, Order),
    ) -> io::Result<MappedNvram> {
        if order == Order::Words && usize::BITS < u64::BITS {
            return Err(opened.refused("registers are addressed by processors of 64 bits alone"));
        }
        let first = offset / page * page;
        let end = (offset + size).next_multiple_of(page);
        // DAX files are held to their blocks; devices know nothing else.
        let flags = match order {
            Order::Lines if opened.is_file() => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            _ => MapFlags::SHARED,
        };
        let map = Mapping::new(opened.fd(), first..end, opened.writes(), flags);
        let map = map.map_err(|e| opened.explain(e))?;
        Ok(MappedNvram { map, start: (offset - first) as usize, size, order, opened })
    }

    /// Each word that a range of the memory touches: its index, and which of its bytes.
    fn words(&self, range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        const BYTES: usize = WORD as usize;
        let (from, to) = (self.start + range.start, self.start + range.end);
        (from / BYTES..to.div_ceil(BYTES)).map(move |index| {
            let word = index * BYTES;
            (index, from.max(word) - word..to.min(word + BYTES) - word)
        })
    }
}

impl Nvram for MappedNvram {
    fn size(&self) -> u64 {
        self.size
    }

    fn unit(&self) -> u64 {
        LINE
    }

    fn read(&self, offset: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        let range = range_of(self.size, offset, bytes.len() as u64)?;
        for (index, part) in self.words(range).filter(|(_, part)| !part.is_empty()) {
            let word = self.map.word(index).load(Ordering::Relaxed).to_ne_bytes();
            let (now, rest) = bytes.split_at_mut(part.len());
            now.copy_from_slice(&word[part]);
            bytes = rest;
        }
        Ok(())
    }

    fn write(&self, offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        let range = range_of(self.size, offset, bytes.len() as u64)?;
        if !self.opened.writes() {
            return Err(rustix::io::Errno::ROFS.into());
        }
        for (index, part) in self.words(range).filter(|(_, part)| !part.is_empty()) {
            let word = self.map.word(index);
            let (now, rest) = bytes.split_at(part.len());
            let mut content = match part.len() as u64 {
                WORD => [0; WORD as usize],
                _ => word.load(Ordering::Relaxed).to_ne_bytes(),
            };
            content[part].copy_from_slice(now);
            word.store(u64::from_ne_bytes(content), Ordering::Relaxed);
            bytes = rest;
        }
        Ok(())
    }

    fn persist(&self, offset: u64, len: u64) -> io::Result<()> {
        let range = range_of(self.size, offset, len)?;
        if range.is_empty() {
            return Ok(());
        }
        match self.order {
            Order::Lines => self.map.write_back(self.start + range.start..self.start + range.end),
            Order::Words => {
                fence(Ordering::SeqCst);
                let last = (self.start + range.end - 1) / WORD as usize;
                std::hint::black_box(self.map.word(last).load(Ordering::SeqCst));
            }
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.opened.name()
    }
}

/// How a device whose memory must not be cached is opened.
pub(super) const UNCACHED: OFlags = OFlags::DSYNC;

#[cfg(test)]
mod tests {
    use super::super::NvramAccess;
    use super::*;
    use proptest::prelude::*;

    /// Memory of an ordinary file, which the page cache holds.
    fn mapped(dir: &tempfile::TempDir, offset: u64, size: u64, order: Order) -> MappedNvram {
        let path = dir.path().join("memory");
        std::fs::File::create(&path).unwrap().set_len(64 << 10).unwrap();
        let opened = Opened::open(&path, NvramAccess { read_only: false, volatile: true }).unwrap();
        let map = Mapping::new(opened.fd(), 0..64 << 10, true, MapFlags::SHARED).unwrap();
        MappedNvram { map, start: offset as usize, size, order, opened }
    }

    const SIZE: usize = 8192;
    const START: usize = 4096 + 64;

    proptest! {
        #[test]
        fn what_is_written_in_any_part_of_words_is_read(
            writes in prop::collection::vec((0..SIZE, prop::collection::vec(any::<u8>(), 0..300)), 1..50),
            by_lines in any::<bool>(),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let order = if by_lines { Order::Lines } else { Order::Words };
            let nvram = mapped(&dir, START as u64, SIZE as u64, order);
            let mut expected = vec![0u8; SIZE];
            for (at, mut bytes) in writes {
                bytes.truncate(SIZE - at);
                nvram.write(at as u64, &bytes).unwrap();
                nvram.persist(at as u64, bytes.len() as u64).unwrap();
                expected[at..at + bytes.len()].copy_from_slice(&bytes);
                let from = at.saturating_sub(10).min(SIZE - 192);
                let mut part = [0; 192];
                nvram.read(from as u64, &mut part).unwrap();
                prop_assert_eq!(&part[..], &expected[from..from + 192]);
            }
            prop_assert!(nvram.write(SIZE as u64 - 2, &[0; 3]).is_err() && nvram.persist(SIZE as u64, 1).is_err());
            drop(nvram);
            let file = std::fs::read(dir.path().join("memory")).unwrap();
            prop_assert_eq!(&file[START..START + SIZE], &expected[..]);
            prop_assert!(file[..START].iter().chain(&file[START + SIZE..]).all(|&byte| byte == 0));
        }
    }

    #[test]
    fn an_ordinary_file_is_none_of_dax() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("memory");
        std::fs::write(&path, vec![0; 64 << 10]).unwrap();
        assert!(!is_dax(std::fs::File::open(&path).unwrap()));
    }
}
