//! Mounts through FUSE: one test program, which links once. A module is a subject.
//!
//! `cargo test -p medfs-fuse --test fuse handles::` runs one of them.

mod support;

mod atomic;
mod compress;
mod defragment;
mod flags;
mod full;
mod handles;
mod mount;
mod panics;
mod pin;
mod privileges;
mod written_back;
