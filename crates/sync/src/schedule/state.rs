//! What the scheduler knows: which thread waits for what, and which locks each one holds.
//!
//! Invariants: a thread that is blocked becomes ready when the lock it waits for is given back, and then
//! tries again. One that waited to write keeps its claim until it has the lock, and no reader passes it.
//! Locks: the scheduler's mutex guards all of it.

use super::choose::{Chooser, Policy, Switch};
use crate::order::{Claim, Want};
use std::fmt::Write;
use std::panic::Location;
use std::thread::Thread;

/// Points after which a run counts as one without an end.
const MOST_STEPS: u64 = 2_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Ready,
    Blocked(usize),
    Waiting(usize, &'static Location<'static>),
    Ended,
}

struct Known {
    name: String,
    handle: Option<Thread>,
    status: Status,
    /// Points that it came to.
    steps: u64,
    at: Option<&'static Location<'static>>,
    held: Vec<Claim>,
    /// The lock that it waits for, until it has it.
    wants: Option<Claim>,
}

/// What follows a step.
pub(super) enum Next {
    Stay,
    To(usize),
    Fail(String),
}

pub(super) struct State {
    threads: Vec<Known>,
    chooser: Chooser,
    pub(super) steps: u64,
    pub(super) switches: Vec<Switch>,
    pub(super) failure: Option<String>,
}

impl State {
    pub(super) fn new(policy: Policy, names: Vec<String>) -> State {
        let chooser = Chooser::new(policy, names.len());
        let known = |name| Known {
            name,
            handle: None,
            status: Status::Ready,
            steps: 0,
            at: None,
            held: Vec::new(),
            wants: None,
        };
        let threads = names.into_iter().map(known).collect();
        State { threads, chooser, steps: 0, switches: Vec::new(), failure: None }
    }

    pub(super) fn set_handle(&mut self, thread: usize, handle: Thread) {
        self.threads[thread].handle = Some(handle);
    }

    pub(super) fn handle(&self, thread: usize) -> Thread {
        self.threads[thread].handle.clone().expect("handles are set before the first turn")
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = &Thread> {
        self.threads.iter().filter_map(|thread| thread.handle.as_ref())
    }

    fn ready(&self) -> Vec<usize> {
        (0..self.threads.len()).filter(|&n| self.threads[n].status == Status::Ready).collect()
    }

    /// The thread that begins.
    pub(super) fn first(&mut self) -> usize {
        let ready = self.ready();
        let first = self.chooser.begin(&ready);
        self.switches.push(Switch { thread: first, step: 0, to: first, at: Location::caller() });
        first
    }

    /// A thread came to a point, or can go on no further.
    pub(super) fn step(&mut self, thread: usize, at: &'static Location<'static>) -> Next {
        self.threads[thread].at = Some(at);
        self.next_after(thread)
    }

    fn next_after(&mut self, thread: usize) -> Next {
        self.steps += 1;
        self.threads[thread].steps += 1;
        if self.steps > MOST_STEPS {
            return Next::Fail(format!("the threads come to no end:\n{}", self.report()));
        }
        let ready = self.ready();
        if ready.is_empty() {
            return Next::Fail(format!("deadlock:\n{}", self.report()));
        }
        let step = self.threads[thread].steps;
        let to = self.chooser.next(thread, step, self.steps, &ready);
        if to == thread {
            return Next::Stay;
        }
        let at = self.threads[thread].at.unwrap_or(Location::caller());
        self.switches.push(Switch { thread, step, to, at });
        Next::To(to)
    }

    /// A thread has ended.
    pub(super) fn end(&mut self, thread: usize) -> Next {
        self.threads[thread].status = Status::Ended;
        if self.failure.is_some() || self.threads.iter().all(|t| t.status == Status::Ended) {
            return Next::Stay;
        }
        self.next_after(thread)
    }

    /// What is wrong with taking a lock now, with all that the thread holds.
    pub(super) fn check_order(&self, thread: usize, claim: &Claim) -> Option<String> {
        let known = &self.threads[thread];
        Some(format!("{} {}", known.name, claim.against(&known.held)?))
    }

    /// Whether no thread that waits to write stands before this one.
    pub(super) fn may_take(&self, thread: usize, claim: &Claim) -> bool {
        let others = self.threads.iter().enumerate().filter(|(n, _)| *n != thread);
        let writer_waits =
            |w: &Claim| w.key == claim.key && w.want == Want::Exclusive && claim.want == Want::Shared;
        !others.filter_map(|(_, t)| t.wants.as_ref()).any(writer_waits)
    }

    pub(super) fn block(&mut self, thread: usize, claim: Claim) {
        self.threads[thread].status = Status::Blocked(claim.key);
        self.threads[thread].wants = Some(claim);
    }

    pub(super) fn took(&mut self, thread: usize, claim: Claim) {
        self.threads[thread].wants = None;
        self.threads[thread].held.push(claim);
    }

    /// A thread tried in vain; one that tries until it succeeds must not run for ever.
    pub(super) fn in_vain(&mut self, thread: usize) {
        self.chooser.put_last(thread);
    }

    /// Where the lock was taken; `None` where the thread is not known to hold it.
    pub(super) fn gave_back(&mut self, thread: usize, key: usize) -> Option<&'static Location<'static>> {
        let held = &mut self.threads[thread].held;
        let claim = held.remove(held.iter().rposition(|h| h.key == key)?);
        for other in self.threads.iter_mut().filter(|t| t.status == Status::Blocked(key)) {
            other.status = Status::Ready;
        }
        Some(claim.at)
    }

    pub(super) fn wait(&mut self, thread: usize, condition: usize, at: &'static Location<'static>) {
        self.threads[thread].status = Status::Waiting(condition, at);
    }

    pub(super) fn waits(&self, thread: usize) -> Option<&'static Location<'static>> {
        match self.threads[thread].status {
            Status::Waiting(_, at) => Some(at),
            _ => None,
        }
    }

    pub(super) fn notify(&mut self, condition: usize, count: usize) {
        let waiting = |t: &&mut Known| matches!(t.status, Status::Waiting(c, _) if c == condition);
        self.threads.iter_mut().filter(waiting).take(count).for_each(|t| t.status = Status::Ready);
    }

    /// Each thread: what it waits for, and what it holds.
    pub(super) fn report(&self) -> String {
        let mut text = String::new();
        for thread in &self.threads {
            let _ = match thread.status {
                Status::Ready => write!(text, "{} is ready", thread.name),
                Status::Ended => write!(text, "{} has ended", thread.name),
                Status::Waiting(_, at) => write!(text, "{} waits for a condition at {at}", thread.name),
                Status::Blocked(_) => {
                    let wanted = thread.wants.as_ref().map(Claim::shown).unwrap_or_default();
                    write!(text, "{} waits for {wanted}", thread.name)
                }
            };
            if let (Status::Ready, Some(at)) = (thread.status, thread.at) {
                let _ = write!(text, " at {at}");
            }
            let held: Vec<String> = thread.held.iter().map(Claim::shown).collect();
            let _ = writeln!(text, ", holds [{}]", held.join(", "));
        }
        text
    }
}
