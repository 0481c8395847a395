//! Block devices of 4 KiB blocks.
//!
//! Purpose: the only way bytes leave the process. A device knows nothing of files; each write carries
//! its [`Cause`], so that every block is accounted for once.
//!
//! Invariants: a write is acknowledged when the call returns, durable after the next successful
//! [`BlockDevice::flush`] (or at once with [`WriteTag::fua`]). Devices are safe to use from many threads
//! and order nothing between calls that overlap in time.
#![deny(unsafe_code)]

pub mod claim;
mod closable;
pub mod count;
pub mod crash;
mod discard;
pub mod fault;
pub mod file;
pub mod holder;
pub mod image_file;
mod lengthened;
pub mod mapfile;
pub mod mapped;
pub mod mem;
pub mod mounts;
pub mod nvram;
pub mod overlay;
pub mod quote;
mod ranges;
pub mod trace;

pub use claim::{Claim, Share};
pub use closable::Closable;
pub use count::{CauseCounts, CountingDevice, IoCounts};
pub use fault::FaultDevice;
pub use file::{Access, FileDevice, FileOptions};
pub use holder::Holder;
pub use image_file::ImageFile;
pub use lengthened::{Lengthened, is_bad_sector, is_behind_end};
pub use mapfile::Mapfile;
pub use mapped::{MappedDevice, is_bad_by_map};
pub use mem::MemDevice;
pub use nvram::{MemNvram, Nvram, NvramAccess, open_nvram};
pub use overlay::Overlay;
pub use trace::TracingDevice;

use medfs_format::Block;
use std::io;
use std::sync::Arc;

/// Why a block is written. Every block that reaches the device is counted under exactly one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// File content and directory entries.
    Data = 0,
    /// Node blocks: inodes, direct and indirect nodes, xattr nodes.
    Node = 1,
    /// Compact pages.
    Compact = 2,
    /// Checkpoint, SIT, NAT, SSA, superblock.
    Meta = 3,
    /// Any block moved by cleaning.
    Gc = 4,
}

/// Number of causes.
pub const CAUSES: usize = 5;

impl Cause {
    /// All causes in order.
    pub const ALL: [Cause; CAUSES] = [Cause::Data, Cause::Node, Cause::Compact, Cause::Meta, Cause::Gc];
    /// The name used in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Data => "data",
            Cause::Node => "node",
            Cause::Compact => "compact",
            Cause::Meta => "meta",
            Cause::Gc => "gc",
        }
    }
}

/// The time after which a block is expected to be overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Temperature {
    Hot,
    Warm,
    Cold,
}

/// Hints for the device about a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteTag {
    /// Why the blocks are written.
    pub cause: Cause,
    /// The time after which the blocks are expected to be overwritten.
    pub temperature: Temperature,
    /// The blocks must be durable when the call returns (force unit access); says nothing of other blocks.
    pub fua: bool,
    /// Number of the blocks that are compact pages, written along with those of `cause`.
    pub compact: usize,
}

impl WriteTag {
    /// A plain write.
    pub const fn new(cause: Cause, temperature: Temperature) -> WriteTag {
        WriteTag { cause, temperature, fua: false, compact: 0 }
    }
    /// The same with force unit access.
    pub fn with_fua(self) -> WriteTag {
        WriteTag { fua: true, ..self }
    }
    /// The same where so many of the blocks are compact pages.
    pub fn with_compact(self, compact: usize) -> WriteTag {
        WriteTag { compact, ..self }
    }
    /// The causes of `blocks` that were written, and the number of blocks of each.
    pub fn causes(&self, blocks: usize) -> [(Cause, usize); 2] {
        let compact = self.compact.min(blocks);
        [(self.cause, blocks - compact), (Cause::Compact, compact)]
    }
}

/// A device of 4 KiB blocks.
///
/// All methods fail with the operating system's error; `InvalidInput` where the range is outside the device.
/// Nothing is read or written partially without an error.
pub trait BlockDevice: Send + Sync {
    /// Size in blocks.
    fn block_count(&self) -> u64;
    /// Reads neighbouring blocks from `addr` on into scattered buffers.
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()>;
    /// Writes scattered buffers to neighbouring blocks from `addr` on.
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()>;
    /// Makes every acknowledged write durable.
    fn flush(&self) -> io::Result<()>;
    /// Tells that the content of blocks is no longer needed; afterwards they read as anything.
    fn discard(&self, addr: u64, count: u64) -> io::Result<()>;
    /// Whether writes are refused.
    fn read_only(&self) -> bool;
}

/// What holds a device is one.
macro_rules! pass_on {
    ($($holder:ty),*) => {$(
        impl<D: BlockDevice + ?Sized> BlockDevice for $holder {
            fn block_count(&self) -> u64 {
                (**self).block_count()
            }
            fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
                (**self).read(addr, blocks)
            }
            fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
                (**self).write(addr, blocks, tag)
            }
            fn flush(&self) -> io::Result<()> {
                (**self).flush()
            }
            fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
                (**self).discard(addr, count)
            }
            fn read_only(&self) -> bool {
                (**self).read_only()
            }
        }
    )*};
}
pass_on!(&D, Arc<D>);

/// Reads one block.
pub fn read_block(dev: &dyn BlockDevice, addr: u64) -> io::Result<Box<Block>> {
    let mut block = Block::boxed();
    dev.read(addr, &mut [&mut *block])?;
    Ok(block)
}

/// Refuses a range that is not wholly inside a device of `size` blocks.
pub(crate) fn check_range(size: u64, addr: u64, count: u64) -> io::Result<()> {
    match addr.checked_add(count) {
        Some(end) if end <= size => Ok(()),
        _ => {
            let message = format!("{count} blocks from {addr} on lie outside the device of {size} blocks");
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
    }
}

/// Fails on a device that refuses writes.
pub(crate) fn refuse_read_only(dev: &dyn BlockDevice) -> io::Result<()> {
    if dev.read_only() {
        return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the device is read-only"));
    }
    Ok(())
}
