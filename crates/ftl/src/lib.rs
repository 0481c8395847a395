//! A flash translation layer that compresses selectively: the core, for simulators and for firmware.
//!
//! [`Ftl`] maps logical pages of 4 KiB to places on a NAND device ([`Nand`]), collects garbage, levels wear, survives power
//! loss at every operation, and compresses what its [`Policy`] says is worth it: *Lightweight Data Compression for Mobile
//! Flash Storage* (LDC), with the baselines the paper compares with. It needs `alloc` and nothing else; time, the medium
//! and the compressor are passed in ([`Nand`], [`Codec`]).
//!
//! Memory: [`Ftl::ram_bytes`], at most 16 bytes for each logical page once there are some thousand pages; see there.
//!
//! How it recovers, and what is where on the medium, is in `docs/FLASH.md`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod blocks;
mod check;
mod counters;
mod entry;
mod error;
mod ftl;
mod gc;
mod logs;
mod meta;
mod nand;
mod paged;
mod place;
mod policy;
mod recover;
mod spare;

pub use check::Checked;
pub use counters::{Counters, PageCounts};
pub use error::{FtlError, Result};
pub use ftl::{BlockInfo, BlockUse, Config, Ftl, Hint};
pub use nand::{Codec, CodecFailed, Geometry, Nand, NandError, Work};
pub use policy::{Collect, Costs, Lightweight, Policy, Selective, Separating, Uncompressed, Unconditional};
pub use spare::spare_bytes_for;

/// Numbers of what is on the medium, as `docs/ONDISK.md` has them.
pub mod format {
    use crate::spare::Kind;

    pub use crate::meta::{BLOCK_BYTES, VERSION};
    pub use crate::spare::{HEADER as SPARE_HEADER, RECORD as SPARE_RECORD};
    /// Bytes of an entry of the mapping.
    pub const ENTRY_BYTES: usize = 8;
    /// A flash page of data.
    pub const DATA: u8 = Kind::Data as u8;
    /// A chunk of the mapping or of the counts.
    pub const CHUNK: u8 = Kind::Chunk as u8;
    /// A part of a checkpoint's tables.
    pub const TABLE: u8 = Kind::Table as u8;
    /// The end of a checkpoint.
    pub const COMMIT: u8 = Kind::Commit as u8;
    /// Ranges that were trimmed.
    pub const TRIM: u8 = Kind::Trim as u8;
    /// The medium was opened.
    pub const OPENED: u8 = Kind::Opened as u8;
}

/// Bytes of a logical page.
pub const PAGE: usize = 4096;
/// What a ratio counts: two-hundredths, so that 0.95 is whole. 200 is a page that does not compress.
pub const WHOLE: u8 = 200;
