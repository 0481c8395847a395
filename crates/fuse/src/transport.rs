//! What serves requests, and the two ways they travel.

pub(crate) mod dev;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(crate) mod uring;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
#[path = "transport/no_uring.rs"]
pub(crate) mod uring;

use crate::abi::op;
use crate::request::{Answer, Errno, Reply, Request};
use crate::worker_pool::WorkerPool;
use parking_lot::Mutex;
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Bytes of data in one READ or WRITE.
pub(crate) const PAYLOAD_SIZE: usize = 1 << 20;
/// Room beside the data for headers, structures and names.
pub(crate) const HEAD_SIZE: usize = 4096;

/// Serves requests; called from all workers at once.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Serves one request. `pool`: the workers of the queue it came from.
    fn handle(&self, pool: &WorkerPool, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer;
    /// Serving a request, or work in the background, panicked: what is in memory is no longer to be trusted.
    fn panicked(&self, message: &str);
}

/// Serves a request. One that panics is answered with `EIO`: nobody else would answer it, and who made it
/// would wait for ever.
pub(crate) fn serve(
    handler: &dyn Handler,
    pool: &WorkerPool,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    match catch_unwind(AssertUnwindSafe(|| handler.handle(pool, request, reply))) {
        Ok(answer) => answer,
        Err(panic) => {
            let message = panic_message(&*panic);
            tracing::error!(message, opcode = request.header.opcode, "serving a request panicked");
            handler.panicked(message);
            match request.header.opcode {
                op::FORGET | op::BATCH_FORGET | op::NOTIFY_REPLY => Answer::Silent,
                _ => Answer::Error(Errno::IO),
            }
        }
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
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
