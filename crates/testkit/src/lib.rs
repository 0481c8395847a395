//! What the engine is tested with: a reference model, random operations, and crash states.
//!
//! - [`model`]: what a POSIX file system is, in memory ([`acl`]: its access control lists); [`observe`]:
//!   reads a real one into a model.
//! - [`ops`]: operations over a small name space, from a seed; [`session`]: applies them to both and compares.
//! - [`oracle`]: which trees the durability contract allows after a crash.
//! - [`harness`]: long random runs with remounts and crashes, shrinking what fails.
//! - [`crash_states`]: short workloads, and every state that a crash may leave on the device ([`workloads`]:
//!   more of them).
//! - [`committed`]: what was committed, exactly and in order, against what a crash at that moment brings back.
//! - [`second_crash`]: power lost again while a volume is being opened after a crash, or soon after.
//! - [`room`]: want of room at every block that a workload takes, and on volumes with every number of free blocks.
//! - [`combine`]: every combination of options that change what is written.
//! - [`bad_sectors`]: every block that a workload reads or writes fails; [`watched`]: which calls hear of it.
//! - [`bad_blocks`]: each metadata block of a volume damaged in turn, and what a repair leaves of the files.
//! - [`kept`]: the files that any checker leaves, counted by what became of them.
//! - [`images`]: formatted volumes and the independent judge, by the real `mkfs.f2fs` and `fsck.f2fs`.
//! - [`delta_volume`]: a volume with deltas in every place that they can have.
//! - [`mutate`]: volumes damaged at random; [`fuzz`]: runs cases of such in a process of their own.
//! - [`planted`]: a file system and a device with bugs on purpose, by which the harnesses are proven.
//! - [`nvram`]: a volume and its NVRAM on one recorded device.
//! - [`volume`]: the engine as what is tested.
#![forbid(unsafe_code)]

pub mod acl;
pub mod bad_blocks;
pub mod bad_sectors;
pub mod combine;
pub mod committed;
pub mod crash_states;
pub mod delta_volume;
pub mod footprint;
pub mod fuzz;
pub mod harness;
pub mod images;
pub mod kept;
pub mod model;
pub mod mutate;
pub mod nvram;
pub mod observe;
pub mod ops;
pub mod oracle;
pub mod planted;
pub mod power_cut;
pub mod room;
#[cfg(debug_assertions)]
pub mod schedules;
pub mod second_crash;
pub mod session;
pub mod subject;
pub mod volume;
pub mod watched;
pub mod workloads;
