//! Codecs and their memory, which one user after the other takes.
//!
//! Locks: a leaf.

use medfs_codec::Codecs;
use medfs_sync::Mutex;

/// See the module.
#[derive(Default)]
pub(crate) struct CodecPool {
    codecs: Mutex<Vec<Box<Codecs>>>,
}

impl CodecPool {
    /// Runs `f` with some, which nobody else uses meanwhile.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Codecs) -> R) -> R {
        let mut codecs = self.codecs.lock().pop().unwrap_or_default();
        let result = f(&mut codecs);
        self.codecs.lock().push(codecs);
        result
    }
}
