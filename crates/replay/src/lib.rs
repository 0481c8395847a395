//! Traces replayed on columns of a matrix, verified, one result each.
//!
//! Purpose: [`Matrix`] says which columns there are; [`column`] runs one, on a new volume of medfs
//! ([`medfs_device`]'s kinds of devices and `medfs-flash`'s) or on another file system (on a loop device, in
//! a QEMU guest, in any directory); a [`CellResult`] is what came of it, in the format that is kept in files.
//! What a program prints and which columns it leaves out is its own matter.
//!
//! Invariants: the same trace on the same column of medfs writes the same blocks each time, in the sequential
//! order. Whatever a column attaches, mounts or makes is taken back when it ends, through the caller's
//! [`Cleanup`].
#![forbid(unsafe_code)]

mod cleanup;
mod device;
mod error;
mod guest;
mod matrix;
mod peer;
mod process;
mod result;
mod run;
mod volume;

pub use cleanup::{Action, Cleanup, Guard, WhenDropped};
pub use error::{Error, Result};
pub use matrix::{Matrix, System};
pub use peer::check as check_peer;
pub use process::private_folder;
pub use result::{CellResult, DeviceUse, FORMAT, FlashUse, KIND, Machine, TraceOf, Verification, Written};
pub use run::{Reader, Run, open};

/// Runs a column. The caller fills in what only it knows: the column's name and the order.
///
/// # Errors
/// The trace's, the device's, the file system's, and those of the programs that a peer needs.
pub fn column(run: &Run<'_>, system: &System) -> Result<CellResult> {
    match system {
        System::Medfs { options, device } => volume::column(run, options, device),
        System::Peer(name) => peer::column(run, name),
    }
}
