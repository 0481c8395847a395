//! The engine's tests on whole volumes: one program, which links once. A module is a subject.
//!
//! `cargo test -p medfs --test engine gc::` runs one of them.

mod common;

mod adaptive;
mod addr_redo;
mod atomic_threads;
mod bgres;
mod block_reuse;
mod bounds;
mod chain;
mod cluster_deltas;
mod compress;
mod convert;
mod damage;
mod deferred;
mod defragment;
mod deltas;
mod fpc;
mod fsync_cost;
mod gc;
mod halfway;
mod homecoming;
mod hotness;
mod journal;
mod layouts;
mod medium;
mod names;
mod nth_request;
mod nvram;
mod nvram_logs;
mod nvram_modes;
mod orphans;
mod pin;
mod pin_room;
mod placement;
mod promises;
mod promises_crash;
mod recovery;
mod rename_over;
mod renames;
mod reserve;
mod reserved_files;
mod retraining;
mod room;
mod seals;
mod sectors;
mod shared;
mod shift;
mod similar;
mod sqlite_deltas;
mod strict_names;
mod survivor;
mod ties;
mod windows;
mod write_cost;
