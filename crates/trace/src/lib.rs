//! Traces of file operations: recording, import, export, replay.
//!
//! A trace is the list of what an application asked of its files, with times, results and contents, between
//! the tree as it was before and the tree as it was after. `docs/TRACE.md` describes its bytes. It is
//! recorded beneath a mount ([`Recorder`]) or made of other tools' logs ([`import`]), and replayed on
//! anything that implements [`medfs::Files`] ([`replay`]): a volume, or a directory of the machine
//! ([`Directory`]).
//!
//! Reading is streaming and bounded in memory, whatever the size of the trace.
#![forbid(unsafe_code)]

mod dir;
mod error;
pub mod export;
pub mod format;
pub mod import;
pub mod info;
mod names;
pub mod reader;
pub mod record;
mod recorder;
pub mod replay;
pub mod sketch;
pub mod tree;
mod write_queue;
pub mod writer;

pub use dir::Directory;
pub use error::{Error, Result};
pub use format::{End, Head};
pub use reader::{Ending, Item, TraceReader};
pub use record::{Op, Record};
pub use recorder::{Recorder, Recording};
pub use writer::{Phase, TraceWriter};
