//! Room for what the kernel's page cache holds: a write is refused when it is made, not when it is written back.
//!
//! Under the writeback cache the kernel takes writes without asking. What it may hold is limited, and the limit
//! follows the free room: [`SHARE`] of what it may hold fit at any time. Where the room falls below [`Lines::low`],
//! it is *short*, until it is above [`Lines::high`] again:
//!
//! * Files that are opened to be written and not read go past the page cache: each write is a request, and
//!   its answer the caller's.
//! * While other files are open to be written (*writers*), the mount has the flag `sync`: the kernel writes
//!   back what it holds, which fits, and from then on each write before it returns, with the error as its
//!   result.
//! * Where the daemon may not set that flag, a cached write that found no room fails the next call on the file: its
//!   fsync or close, or a write through a descriptor that cannot read.
//!
//! Invariant: between a look and the end of the switch that it starts, the kernel sends at most what it holds
//! twice: what the switch writes back, and what is dirtied meanwhile. `low` is more than that.
//!
//! Locks: `state` is a leaf. The kernel is told by a thread of its own, which serves no requests.

use crate::dirty::PageCache;
use crate::request::Errno;
use crate::worker_pool::WorkerPool;
use medfs::Files;
use medfs_format::BLOCK_SIZE;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// How many times what the page cache may hold has to fit.
const SHARE: u64 = 4;
/// The page cache may always hold this much: less would slow writing down.
const LIMIT_MIN: u64 = 4 << 20;
/// What tasks dirty before the kernel looks at its limit, and what metadata takes.
const SLACK: u64 = 8 << 20;
/// Below this a writer whose earlier write was refused is refused.
const NONE_LEFT: u64 = 1 << 20;

/// The free bytes below which room is short, and above which it is not any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lines {
    low: u64,
    high: u64,
}

impl Lines {
    /// Where the page cache holds `limit` bytes at most when room is short.
    fn of(limit: u64) -> Lines {
        let low = 2 * limit + SLACK;
        Lines { low, high: 2 * low }
    }
}

/// What the kernel is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Orders {
    /// How many bytes may be dirty.
    limit: u64,
    synchronous: bool,
}

struct State {
    wanted: Orders,
    done: Orders,
    stop: bool,
}

/// The room of a mount with a writeback cache.
pub(crate) struct Room {
    files: Arc<dyn Files>,
    cache: PageCache,
    /// The limit that the kernel chose.
    limit: u64,
    lines: Lines,
    /// The limit can be changed.
    limits: bool,
    /// The mount has the flag `sync` anyway.
    always: bool,
    /// The mount's flag can be changed.
    switches: AtomicBool,
    short: AtomicBool,
    /// Files open to be written through the page cache.
    writers: AtomicU64,
    /// Files of which a cached write was refused.
    refused: Mutex<HashSet<u64>>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Room {
    /// Looks for the first time.
    pub(crate) fn new(files: Arc<dyn Files>, cache: PageCache) -> Room {
        let limit = cache.limit();
        let limits = cache.set_limit(limit).is_ok();
        let switches = rustix::process::geteuid().is_root();
        let always = cache.is_synchronous();
        let lines = Lines::of(if limits || !switches { limit.min(LIMIT_MIN) } else { limit });
        let done = Orders { limit, synchronous: always };
        let room = Room {
            files,
            cache,
            limit,
            lines,
            limits,
            always,
            switches: AtomicBool::new(switches && !always),
            short: AtomicBool::new(false),
            writers: AtomicU64::new(0),
            refused: Mutex::default(),
            state: Mutex::new(State { wanted: done, done, stop: false }),
            changed: Condvar::new(),
        };
        room.look();
        room.obey();
        room
    }

    fn available(&self) -> u64 {
        self.files.statfs().map_or(0, |stat| stat.available.saturating_mul(BLOCK_SIZE as u64))
    }

    /// How much may be dirty where so many bytes are free.
    fn limit_for(&self, available: u64) -> u64 {
        let share = available / SHARE;
        let step = if share == 0 { 0 } else { 1 << share.ilog2() };
        if self.limits && share < self.limit {
            step.clamp(LIMIT_MIN.min(self.limit), self.limit)
        } else {
            self.limit
        }
    }

    /// Whether what is only written goes past the page cache.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Has the kernel hold less, or nothing, where room has become less.
    pub(crate) fn look(&self) {
        self.look_at(self.available());
    }

    fn look_at(&self, available: u64) {
        if available < self.lines.low {
            self.short.store(true, Ordering::Relaxed);
        }
        let mut state = self.state.lock();
        let Orders { limit, synchronous } = self.orders(available);
        let wanted = Orders {
            limit: limit.min(state.wanted.limit),
            synchronous: synchronous || state.wanted.synchronous,
        };
        self.want(&mut state, wanted);
    }

    /// The same about every second, also where room has become more.
    pub(crate) fn tick(&self) {
        let available = self.available();
        if available >= self.lines.high {
            self.short.store(false, Ordering::Relaxed);
            self.refused.lock().clear();
        }
        self.want(&mut self.state.lock(), self.orders(available));
        self.look_at(available);
    }

    fn orders(&self, available: u64) -> Orders {
        let writers = self.writers.load(Ordering::Relaxed) > 0;
        let switch = self.is_short() && writers && self.switches.load(Ordering::Relaxed);
        Orders { limit: self.limit_for(available), synchronous: self.always || switch }
    }

    fn want(&self, state: &mut State, wanted: Orders) {
        if state.wanted != wanted {
            state.wanted = wanted;
            self.changed.notify_all();
        }
    }

    /// A file is opened to be written through the page cache.
    pub(crate) fn enter(&self) {
        self.writers.fetch_add(1, Ordering::Relaxed);
        self.look();
    }

    /// One of those is closed.
    pub(crate) fn leave(&self) {
        let less = |writers: u64| writers.checked_sub(1);
        let _ = self.writers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Before a request takes `bytes`: what the kernel holds must not need them.
    pub(crate) fn take(&self, pool: &WorkerPool, nodeid: u64, bytes: u64) -> Result<(), Errno> {
        self.look_at(self.available().saturating_sub(bytes));
        let settled = |state: &State| state.done.synchronous == state.wanted.synchronous || state.stop;
        if settled(&self.state.lock()) {
            return Ok(());
        }
        pool.with_spare_worker(nodeid, || {
            let mut state = self.state.lock();
            self.changed.wait_while(&mut state, |state| !settled(state));
        })
    }

    /// A cached write of a file was refused. Whether the kernel has to ask before the next one.
    pub(crate) fn refused(&self, nodeid: u64) -> bool {
        !self.switches.load(Ordering::Relaxed) && self.refused.lock().insert(nodeid)
    }

    /// Whether the kernel's question before a write is answered with an error: an earlier one was refused, and there is
    /// no room now either.
    pub(crate) fn refuses(&self, nodeid: u64) -> bool {
        self.refused.lock().contains(&nodeid) && self.available() < NONE_LEFT
    }

    /// Tells the kernel what is wanted of it.
    fn obey(&self) {
        let State { wanted, done, .. } = *self.state.lock();
        if wanted.limit != done.limit
            && let Err(error) = self.cache.set_limit(wanted.limit)
        {
            tracing::warn!(%error, "cannot limit what the kernel's page cache holds");
        }
        if wanted.synchronous != done.synchronous {
            tracing::debug!(
                synchronous = wanted.synchronous,
                "writes become synchronous on a nearly full volume, or no longer"
            );
            if let Err(error) = self.cache.set_synchronous(wanted.synchronous) {
                tracing::info!(%error, "cannot make writes synchronous: writers may learn of a full volume only at fsync or close");
                self.switches.store(false, Ordering::Relaxed);
            }
        }
        let mut state = self.state.lock();
        state.done = wanted;
        self.changed.notify_all();
    }

    fn run(&self) {
        loop {
            {
                let mut state = self.state.lock();
                self.changed.wait_while(&mut state, |state| state.wanted == state.done && !state.stop);
                if state.stop {
                    return;
                }
            }
            self.obey();
        }
    }
}

/// The room, and the thread that tells the kernel.
pub(crate) struct RoomKeeper {
    room: Arc<Room>,
    thread: Option<JoinHandle<()>>,
}

impl RoomKeeper {
    pub(crate) fn start(room: Room) -> io::Result<RoomKeeper> {
        let room = Arc::new(room);
        let run = room.clone();
        let thread = std::thread::Builder::new().name("medfs-room".into()).spawn(move || run.run())?;
        Ok(RoomKeeper { room, thread: Some(thread) })
    }
}

impl Deref for RoomKeeper {
    type Target = Room;
    fn deref(&self) -> &Room {
        &self.room
    }
}

impl Drop for RoomKeeper {
    fn drop(&mut self) {
        self.room.state.lock().stop = true;
        self.room.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches the room panicked");
        }
    }
}
