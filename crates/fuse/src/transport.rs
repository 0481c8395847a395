//! What serves requests, and the two ways they travel.

pub(crate) mod dev;
pub(crate) mod uring;

use crate::crew::Crew;
use crate::request::{Answer, Reply, Request};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Bytes of data in one READ or WRITE.
pub(crate) const PAYLOAD_SIZE: usize = 1 << 20;
/// Room beside the data for headers, structures and names.
pub(crate) const HEAD_SIZE: usize = 4096;

/// Serves requests; called from all workers at once.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Serves one request. `crew`: the workers of the queue it came from.
    fn handle(&self, crew: &Crew, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer;
}

/// The threads of a session, joined when it ends. More are added while it runs.
#[derive(Clone, Default)]
pub(crate) struct Threads(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Threads {
    /// Starts a worker thread.
    pub(crate) fn spawn(&self, name: String, f: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let handle = std::thread::Builder::new().name(name).spawn(move || {
            // Memory reclaim on behalf of a worker must not write back to this very file system.
            // Needs CAP_SYS_RESOURCE; without it the default has to do.
            let _ = rustix::process::configure_io_flusher_behavior(true);
            f();
        })?;
        self.0.lock().push(handle);
        Ok(())
    }

    /// Waits until every thread has ended, those included that start meanwhile.
    pub(crate) fn join(&self) {
        while let Some(handle) = { self.0.lock().pop() } {
            if handle.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
    }
}
