//! A deterministic scheduler of threads.
//!
//! Purpose: runs a handful of threads so that exactly one goes on at a time. At each point (before a lock is
//! taken, after it is given back, at a wait and a notification, wherever [`crate::point`] stands) a
//! [`Policy`] chooses the next one. The threads are the operating system's, so that stacks, thread-local
//! values and panics are what they always are. All switches are recorded, and a run with [`Policy::Replay`]
//! takes them again.
//!
//! What it finds of its own: a deadlock (all threads wait), a lock taken against its rank or twice by a
//! thread, a run without an end, a thread that panics. The run then ends: every other thread unwinds at its
//! next point.
//!
//! Own code instead of `shuttle`: its locks panic outside of one of its runs, where this crate's are locks,
//! so that volumes are made and judged as ever; it knows no ranks; and it brings some 30 crates and stacks of
//! its own making. It is faster where threads change often (a microsecond for a lock and a change, against
//! some 10 here), which a run of mostly one thread hardly shows.
//!
//! Invariants: only the thread whose turn it is changes anything. A thread that waits for a lock holds the
//! turn again before it tries. Locks: the state's mutex is a leaf, held for the length of a choice.

mod choose;
mod state;

pub use choose::{Policy, Switch};

use crate::order::Claim;
use parking_lot::{Condvar, Mutex};
use state::{Next, State};
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

/// Stack of a thread: that of a thread of the front end, and more, as code in development builds needs.
const STACK: usize = 8 << 20;
/// A thread that takes no step for so long waits for something that the scheduler does not see.
const STUCK: Duration = Duration::from_secs(60);

/// The work of a thread.
pub type Program<'a> = Box<dyn FnOnce() + Send + 'a>;

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Points that threads came to.
    pub steps: u64,
    /// Every change from a thread to another one.
    pub switches: Vec<Switch>,
    /// The first failure, if there was one.
    pub failure: Option<String>,
}

struct Scheduler {
    /// Whose turn it is.
    turn: AtomicUsize,
    /// The run failed: no thread goes on.
    over: AtomicBool,
    state: Mutex<State>,
    /// How many threads run; the caller of [`run`] waits for none.
    running: Mutex<usize>,
    ended: Condvar,
}

/// The thread that calls, where a scheduler runs it.
#[derive(Clone)]
pub(crate) struct Me {
    scheduler: Arc<Scheduler>,
    number: usize,
}

thread_local! {
    static CURRENT: RefCell<Option<Me>> = const { RefCell::new(None) };
    /// What the panic of a scheduled thread said, and where.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The payload by which threads leave a run that is over.
struct Left;

impl Me {
    /// Absent also while the thread unwinds or its last values are dropped: it then uses the locks as they are.
    pub(crate) fn current() -> Option<Me> {
        if std::thread::panicking() {
            return None;
        }
        CURRENT.try_with(|current| current.try_borrow().ok()?.clone()).ok().flatten()
    }

    fn leave_if_over(&self) {
        if self.scheduler.over.load(Ordering::Acquire) {
            resume_unwind(Box::new(Left));
        }
    }

    /// Ends the run.
    fn fail(&self, why: String) -> ! {
        self.scheduler.fail(why);
        resume_unwind(Box::new(Left))
    }

    /// Lets another thread go on where the policy wants that, or where this one cannot.
    fn step(&self, at: &'static Location<'static>) {
        self.leave_if_over();
        let next = self.scheduler.state.lock().step(self.number, at);
        match next {
            Next::Stay => {}
            Next::To(other) => {
                self.scheduler.hand_to(other);
                self.scheduler.wait_for_turn(self.number);
                self.leave_if_over();
            }
            Next::Fail(why) => self.fail(why),
        }
    }

    /// Takes a lock: tries until it is free.
    pub(crate) fn take<G>(&self, claim: Claim, mut attempt: impl FnMut() -> Option<G>) -> G {
        let wrong = self.scheduler.state.lock().check_order(self.number, &claim);
        if let Some(wrong) = wrong {
            self.fail(format!("{wrong}{}", callers()));
        }
        self.step(claim.at);
        loop {
            let free = self.scheduler.state.lock().may_take(self.number, &claim);
            if free && let Some(guard) = attempt() {
                self.scheduler.state.lock().took(self.number, claim);
                return guard;
            }
            self.scheduler.state.lock().block(self.number, claim);
            self.step(claim.at);
        }
    }

    /// Takes a lock where it is free.
    pub(crate) fn try_take<G>(&self, claim: Claim, attempt: impl FnOnce() -> Option<G>) -> Option<G> {
        self.step(claim.at);
        let mut state = self.scheduler.state.lock();
        let guard = if state.may_take(self.number, &claim) { attempt() } else { None };
        match guard {
            Some(_) => state.took(self.number, claim),
            None => state.in_vain(self.number),
        }
        guard
    }

    /// A lock is free again.
    pub(crate) fn gave_back(&self, key: usize) {
        let at = self.scheduler.state.lock().gave_back(self.number, key);
        // A guard may be dropped by a thread of another run, or of none.
        if let Some(at) = at {
            self.step(at);
        }
    }

    /// From now on this thread waits to be notified.
    pub(crate) fn begin_wait(&self, condition: usize, at: &'static Location<'static>) {
        self.step(at);
        self.scheduler.state.lock().wait(self.number, condition, at);
    }

    /// Returns when it was.
    pub(crate) fn wait_notified(&self) {
        let waits = self.scheduler.state.lock().waits(self.number);
        if let Some(at) = waits {
            self.step(at);
        }
    }

    /// Wakes threads that wait.
    pub(crate) fn notify(&self, condition: usize, count: usize, at: &'static Location<'static>) {
        self.scheduler.state.lock().notify(condition, count);
        self.step(at);
    }
}

impl Scheduler {
    fn hand_to(&self, other: usize) {
        self.turn.store(other, Ordering::Release);
        let handle = self.state.lock().handle(other);
        handle.unpark();
    }

    fn wait_for_turn(&self, me: usize) {
        while self.turn.load(Ordering::Acquire) != me && !self.over.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    fn fail(&self, why: String) {
        let mut state = self.state.lock();
        state.failure.get_or_insert(why);
        self.over.store(true, Ordering::Release);
        state.handles().for_each(|handle| handle.unpark());
    }

    /// What a thread does, from its first turn to its end.
    fn live(self: &Arc<Scheduler>, number: usize, program: Program<'_>) {
        self.wait_for_turn(number);
        CURRENT.set(Some(Me { scheduler: self.clone(), number }));
        let ended = catch_unwind(AssertUnwindSafe(|| {
            if !self.over.load(Ordering::Acquire) {
                program();
            }
        }));
        CURRENT.set(None);
        if let Err(panic) = ended
            && !panic.is::<Left>()
        {
            let said = SAID.take().unwrap_or_else(|| text_of(&*panic).to_owned());
            self.fail(said);
        }
        let next = self.state.lock().end(number);
        match next {
            Next::To(other) => self.hand_to(other),
            Next::Fail(why) => self.fail(why),
            Next::Stay => {}
        }
        *self.running.lock() -= 1;
        self.ended.notify_all();
    }

    /// Waits for the threads. One that waits for what the scheduler does not see ends the process: nothing
    /// can end the thread.
    fn wait_for_all(&self) {
        let mut running = self.running.lock();
        let mut steps = 0;
        while *running > 0 {
            if self.ended.wait_for(&mut running, STUCK).timed_out() {
                let state = self.state.lock();
                if state.steps == steps {
                    eprintln!("a thread waits for what the scheduler does not see:\n{}", state.report());
                    std::process::abort();
                }
                steps = state.steps;
            }
        }
    }
}

/// The lines of this repository that led here, innermost first.
fn callers() -> String {
    let stack = std::backtrace::Backtrace::force_capture().to_string();
    let lines = stack.lines().map(str::trim).filter_map(|line| line.strip_prefix("at "));
    let ours = lines.filter(|line| line.contains("crates/") && !line.contains("crates/sync/"));
    ours.take(12).map(|line| format!("\n    at {line}")).collect()
}

/// What a panic says.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
}

/// Keeps what panics of scheduled threads say, instead of printing it.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let scheduled = CURRENT.with(|current| current.try_borrow().is_ok_and(|me| me.is_some()));
            if !scheduled {
                return before(info);
            }
            let at = info.location().map(ToString::to_string).unwrap_or_default();
            let text = text_of(info.payload()).to_owned();
            SAID.with_borrow_mut(|said| {
                said.get_or_insert(format!("{text} ({at})"));
            });
        }));
    });
}

/// A place where another thread may go on.
pub fn point(at: &'static Location<'static>) {
    if let Some(me) = Me::current() {
        me.step(at);
    }
}

/// Ends the run as failed, with this message. Panics where no scheduler runs the thread.
pub fn fail(why: String) -> ! {
    match Me::current() {
        Some(me) => me.fail(why),
        None => panic_any(why),
    }
}

/// Runs threads, each with its name, until all have ended or something went wrong.
pub fn run(policy: Policy, programs: Vec<(String, Program<'_>)>) -> Outcome {
    keep_panics();
    let names: Vec<String> = programs.iter().map(|(name, _)| name.clone()).collect();
    let scheduler = Arc::new(Scheduler {
        turn: AtomicUsize::new(usize::MAX),
        over: AtomicBool::new(false),
        running: Mutex::new(programs.len()),
        state: Mutex::new(State::new(policy, names)),
        ended: Condvar::new(),
    });
    std::thread::scope(|scope| {
        for (number, (name, program)) in programs.into_iter().enumerate() {
            let own = scheduler.clone();
            let builder = std::thread::Builder::new().name(name).stack_size(STACK);
            let spawned = builder.spawn_scoped(scope, move || own.live(number, program));
            let handle = spawned.expect("a thread is made").thread().clone();
            scheduler.state.lock().set_handle(number, handle);
        }
        let first = scheduler.state.lock().first();
        scheduler.hand_to(first);
        scheduler.wait_for_all();
    });
    let mut state = scheduler.state.lock();
    Outcome {
        steps: state.steps,
        switches: std::mem::take(&mut state.switches),
        failure: state.failure.take(),
    }
}
