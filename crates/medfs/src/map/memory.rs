//! What rooms above the map remember of an inode as long as it is in memory.
//!
//! The map does not know what that is: each room brings a type of its own, and finds what it put there.
//! Locks: the list is a leaf; what is remembered has locks of its own.

use medfs_sync::Mutex;
use std::any::Any;
use std::sync::Arc;

/// One value of each type that some room remembers.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Vec<Arc<dyn Any + Send + Sync>>>);

impl Memory {
    /// What is remembered as a `T`: nothing yet where this is the first time.
    pub(crate) fn of<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut all = self.0.lock();
        if let Some(known) = all.iter().find_map(|any| any.clone().downcast().ok()) {
            return known;
        }
        let new = Arc::new(T::default());
        all.push(new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    #[test]
    fn each_type_is_remembered_apart_from_the_others() {
        let memory = Memory::default();
        memory.of::<AtomicU32>().store(3, Ordering::Relaxed);
        memory.of::<AtomicU64>().store(5, Ordering::Relaxed);
        assert_eq!(memory.of::<AtomicU32>().load(Ordering::Relaxed), 3);
        assert_eq!(memory.of::<AtomicU64>().load(Ordering::Relaxed), 5);
    }
}
