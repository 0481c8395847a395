//! In place of requests over io_uring, on processors that its library does not know: there is no plan for it.

use super::{Handler, Threads};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Never made.
pub(crate) enum Plan {}

impl Plan {
    /// `Unsupported`.
    pub(crate) fn new(_threads: usize) -> io::Result<Plan> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "not built for this kind of processor"))
    }

    /// Never called.
    pub(crate) fn start(
        self,
        _device: &Arc<File>,
        _handler: &Arc<dyn Handler>,
        _threads: &Threads,
    ) -> io::Result<()> {
        match self {}
    }
}
