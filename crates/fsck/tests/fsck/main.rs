//! Checks and repairs of whole volumes: one test program, which links once. A module is a subject.
//!
//! `cargo test -p medfs-fsck --test fsck rescue::` runs one of them.

mod common;

mod address;
mod alarms;
mod behind;
mod clean;
mod clusters;
mod collisions;
mod compact;
mod deltas;
mod division;
mod dump;
mod faults;
mod fields;
mod interrupted;
mod junk;
mod kinds;
mod lost_newest;
mod medium;
mod one_bit;
mod placed;
mod remains;
mod removed;
mod rescue;
mod shared;
mod special;
mod superblock;
mod torn;
mod undo;
mod untold;
