//! What a replay takes back when it ends: mounts, loop devices, scratch directories.
//!
//! A library cannot know how its process ends. The caller's [`Cleanup`] sees to it that what was noted runs
//! when its guard is dropped, and, where the caller obeys signals, before they end the process.

/// Takes something back.
pub type Action = Box<dyn FnOnce() + Send>;

/// Runs an action when it is dropped, once.
pub trait Guard {
    /// Nothing is to be taken back any more.
    fn disarm(self: Box<Self>);
}

/// A list of actions that take back what a run did to the machine.
pub trait Cleanup {
    /// Notes an action, which runs when the guard is dropped or the process is told to end.
    fn note(&self, action: Action) -> Box<dyn Guard>;
}

/// Runs actions when their guards are dropped, and knows no signals.
#[derive(Debug, Clone, Copy, Default)]
pub struct WhenDropped;

struct Noted(Option<Action>);

impl Guard for Noted {
    fn disarm(mut self: Box<Self>) {
        self.0 = None;
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(action) = self.0.take() {
            action();
        }
    }
}

impl Cleanup for WhenDropped {
    fn note(&self, action: Action) -> Box<dyn Guard> {
        Box::new(Noted(Some(action)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn an_action_runs_once_or_not_at_all() {
        let runs = Arc::new(AtomicU32::new(0));
        let noted = || {
            let runs = runs.clone();
            WhenDropped.note(Box::new(move || {
                runs.fetch_add(1, Ordering::Relaxed);
            }))
        };
        noted().disarm();
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        drop(noted());
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
}
