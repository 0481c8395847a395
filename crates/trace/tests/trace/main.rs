//! Traces: one test program, which links once. A module is a subject.

mod common;

mod format;
mod import;
mod large;
mod replay;
mod table;
