//! A flash translation layer that compresses selectively: the core, for simulators and for firmware.
//!
//! [`Ftl`] maps logical pages of 4 KiB to places on a NAND device ([`Nand`]), collects garbage, levels wear,
//! survives power loss at every operation, and compresses what its [`Policy`] says is worth it: *Lightweight
//! Data Compression for Mobile Flash Storage* (LDC), with the baselines the paper compares with. It needs
//! `alloc` and nothing else; time, the medium and the compressor are passed in ([`Nand`], [`Codec`]).
//!
//! The rooms, from the lowest up; a room knows those before it:
//!
//! | room | what it holds |
//! |---|---|
//! | `format`, `oob`, `nand`, `policy`, `stats` | what the bytes mean, what is passed in, what is counted |
//! | `blocks`, `medium` | every block's state and wear; the NAND with its blocks |
//! | `map` | where each logical page is, and how much of each block is valid |
//! | `streams`, `trims` | what waits in memory: the logs' slots, and ranges that were trimmed |
//! | `region` | the map's log on flash: chunks, tables, commits |
//! | `store` | places pages, settles them, commits the map, frees blocks whose content was replaced |
//! | `compress`, `reader` | what is packed for the host and in collection; pages off the medium |
//! | `gc` | victims, and what becomes of what they hold |
//! | `recover`, `check` | opening after power loss; a comparison of everything with everything |
//! | `ftl` | the host's requests |
//!
//! Memory: [`Ftl::ram_bytes`], at most 16 bytes for each logical page once there are some thousand pages; see there.
//!
//! How it recovers, and what is where on the medium, is in `docs/FLASH.md`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod blocks;
mod check;
mod compress;
mod config;
mod error;
pub mod format;
mod ftl;
mod gc;
mod map;
mod medium;
#[cfg(test)]
mod memory;
mod nand;
mod oob;
mod policy;
mod reader;
mod recover;
mod region;
mod stats;
mod store;
mod streams;
mod trims;

pub use blocks::{BlockInfo, BlockUse};
pub use check::Checked;
pub use config::Config;
pub use error::{FtlError, Result};
pub use ftl::Ftl;
pub use nand::{Codec, CodecFailed, Geometry, Nand, NandError, Work};
pub use oob::spare_bytes_for;
pub use policy::{
    Collect, Costs, Hint, Lightweight, Policy, Selective, Separating, Uncompressed, Unconditional,
};
pub use stats::{Counters, PageCounts};

/// Bytes of a logical page.
pub const PAGE: usize = 4096;
/// The unit of ratios: two-hundredths, so that 0.95 is whole. 200 is a page that does not compress.
pub const WHOLE: u8 = 200;
