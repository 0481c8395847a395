//! A flash device: NAND in a file, a translation layer on it, time of its own, and a block device for a file system.
//!
//! [`Profile`] says what a device is made of; [`NandModel`] refuses what NAND cannot do, wears out, grows bad
//! blocks and loses power; [`Device`] puts `medfs-ftl` on it and measures; [`FlashDevice`] is the block
//! device. [`replay`](mod@replay) runs traces of others on it, [`experiments`] repeats *Lightweight Data
//! Compression for Mobile Flash Storage* (LDC), [`map`] draws it.
//!
//! Every time is the device's own: an operation begins when the controller, the channel and the plane are
//! free, and takes what the profile says. Nothing here sleeps, and nothing depends on the speed of the
//! machine. See `docs/FLASH.md`.
#![forbid(unsafe_code)]

mod block_device;
mod clock;
mod codecs;
#[cfg(test)]
mod crash;
mod device;
mod device_file;
mod durable_file;
mod error;
pub mod experiments;
pub mod map;
mod nand;
mod nand_file;
mod profile;
pub mod replay;
mod stats;
pub mod synth;
mod target;
pub mod trace;

/// Numbers of a device's file, as `docs/ONDISK.md` has them.
pub mod format {
    pub use crate::device_file::{ALIGN, AREA_BYTES, HEADER_BYTES, MAGIC, VERSION};
    pub use crate::durable_file::HEAD as SLOT_HEAD;
    pub use crate::nand_file::STATE_BYTES;
}

pub use block_device::{FlashDevice, HostTime};
pub use codecs::{CODECS, Described, PageCodec, Predictor, in_two_hundredths};
pub use device::{Device, DeviceCodec, DeviceOptions, Durability, FTLS, policy};
pub use device_file::{Header, Wear, header_of, stats_of};
pub use error::{FlashError, Result};
pub use nand::{Faults, NandCounts, NandModel};
pub use profile::{Controller, Endurance, Profile, Shape, Space, Timing};
pub use stats::{Latencies, Latency, Stats, Summary};
pub use target::FlashTarget;
