//! Pauses in which ended transactions are committed, and which app's is next: the policies of
//! [`super::policy::schedule`] and [`super::policy::interval`], on what apps and users do.
//!
//! A user is known where somebody tells of input ([`Pauses::user`]). Then the pauses are the user's, for all apps.
//! Otherwise, and where nothing was told for as long as [`FORGOTTEN`], each app's pauses are those between its
//! operations. Only the time at which an event was told counts: no clock of a device is trusted.
//!
//! Locks: none here; this is part of what [`super::adaptive`] guards.

use super::account::Account;
use super::apps::AppId;
use super::chooser::{Pause, Pauser};
use super::policy::schedule::{Candidate, Schedule, WriteCost};
use super::policy::tradeoff::End;
use crate::options::{CommitPolicy, DurabilityPolicy};
use medfs_format::BLOCK_SIZE;
use std::time::Duration;

/// Who told of the user's input may be gone.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// What is known of pauses, and of the time that there is for commits.
#[derive(Debug)]
pub(super) struct Pauses {
    /// The policy has commits wait for pauses.
    matter: bool,
    tau: Duration,
    user: Option<Pauser>,
    schedule: Schedule,
    cost: WriteCost,
    /// Times at which input was told of.
    pub(super) told: u64,
}

impl Pauses {
    pub(super) fn new(policy: &CommitPolicy) -> Pauses {
        let (schedule, cost) = (Schedule::default(), WriteCost::default());
        let matter = policy.which == DurabilityPolicy::Tpl;
        Pauses { matter, tau: policy.tau, user: None, schedule, cost, told: 0 }
    }

    /// The user did something now. `false` where no commit waits for pauses.
    pub(super) fn user(&mut self, now: Duration) -> bool {
        if self.matter {
            self.told += 1;
            let tau = self.tau;
            self.user.get_or_insert_with(|| Pauser::new(tau)).note(now);
        }
        self.matter
    }

    /// The user, where one is known and not forgotten.
    fn known_user(&mut self, now: Duration) -> Option<&mut Pauser> {
        if self.user.as_ref().is_some_and(|user| user.is_older(now, FORGOTTEN)) {
            self.user = None;
        }
        self.user.as_mut()
    }

    /// The app whose transaction is to be committed now, and why it ended.
    pub(super) fn next(&mut self, accounts: &mut [Account], now: Duration) -> Option<(AppId, End)> {
        let of_user = self.known_user(now).map(|user| user.pause(now));
        let (mut ended, mut candidates, mut began) = (Vec::new(), Vec::new(), Duration::ZERO);
        for (app, account) in accounts.iter_mut().enumerate() {
            let Some(end) = account.chooser.ended(now) else { continue };
            self.schedule.enqueue(app);
            ended.push((app, end));
            let own = account.chooser.pause(now);
            if let Some(Pause { since, left }) = of_user.unwrap_or(own) {
                let length = self.cost.of(account.dirty_bytes() / BLOCK_SIZE as u64);
                candidates.push(Candidate { app, length, room: left });
                began = began.max(since);
            }
        }
        if candidates.is_empty() {
            return None;
        }
        let next = self.schedule.next(began, &candidates)?;
        ended.into_iter().find(|(app, _)| *app == next).map(|(app, end)| (AppId(app), end))
    }

    /// When [`Pauses::next`] may say something else without a change, after `now`.
    pub(super) fn wakes(&mut self, account: &Account, now: Duration) -> Option<Duration> {
        let of_user = self.known_user(now).map(|user| user.wakes(now));
        account.chooser.wakes(now, of_user)
    }

    /// A commit took so many bytes along, and so long.
    pub(super) fn measured(&mut self, bytes: u64, took: Duration) {
        if bytes > 0 {
            self.cost.note(bytes / BLOCK_SIZE as u64, took);
        }
    }

    /// Nothing of an app waits any more.
    pub(super) fn committed(&mut self, app: AppId) {
        self.schedule.committed(app.0);
    }
}
