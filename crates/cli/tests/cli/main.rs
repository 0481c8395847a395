//! The program, as its users call it: one test program, which links once. A module is a subject.
//!
//! `cargo test -p medfs-cli --test cli fstab::` runs one of them.

mod common;
mod mounts;

mod advice;
mod again;
mod ars;
mod bad_input;
mod boot;
mod claims;
mod damaged;
mod durability;
mod ends;
mod erased;
mod files;
mod first_hour;
mod flash;
mod fstab;
mod full;
mod full_sqlite;
mod input;
mod install;
mod kinds;
mod lab;
mod lost;
mod messages;
mod missing;
mod mounted;
mod newcomer;
mod nvram;
mod options;
mod overwrite;
mod readme;
mod repair;
mod reverted;
mod rights;
mod second_look;
mod survivor;
mod third_look;
mod traces;
