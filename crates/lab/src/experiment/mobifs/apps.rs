//! Ten applications and five users, made up from what the paper says of them: it gives no traces.
//!
//! From the paper: Twitter syncs over 50 times a second and Browser seldom, Facebook is between them; without
//! a commit memory grows by 35.8 KB/s on average and 100.5 KB/s at worst; users switch between short and long
//! intervals. All else is chosen: how many pages are hot, how often they are written, how long intervals are.

use crate::random::Random;
use std::time::Duration;

/// Length of a trace (section 7.1).
pub(super) const LENGTH: Duration = Duration::from_secs(300);
/// Users.
pub(super) const USERS: u64 = 5;

/// What an application does while its user looks at it.
pub(super) struct App {
    pub(super) name: &'static str,
    /// Pages that are written over and over.
    hot: u64,
    /// New pages a second.
    grows: f64,
    /// Writes of hot pages a second.
    rewrites: f64,
    /// fsyncs a second.
    fsyncs: f64,
    /// Bursts in which it works, of each second.
    busy: f64,
}

const fn app(name: &'static str, hot: u64, [grows, rewrites, fsyncs, busy]: [f64; 4]) -> App {
    App { name, hot, grows, rewrites, fsyncs, busy }
}

/// The paper's ten.
pub(super) const APPS: [App; 10] = [
    app("FB", 60, [9.0, 22.0, 8.0, 0.5]),
    app("PA", 24, [6.0, 5.0, 0.8, 0.7]),
    app("AB", 10, [1.5, 3.0, 0.4, 0.2]),
    app("NF", 30, [8.0, 6.0, 0.6, 0.6]),
    app("TT", 90, [12.0, 110.0, 55.0, 0.6]),
    app("GM", 80, [24.0, 14.0, 1.2, 0.6]),
    app("CR", 16, [3.0, 5.0, 0.5, 0.3]),
    app("FL", 70, [13.0, 18.0, 4.0, 0.5]),
    app("WB", 110, [11.0, 16.0, 0.1, 0.5]),
    app("WC", 40, [2.5, 20.0, 9.0, 0.4]),
];

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A page is written.
    Write(u64),
    /// All that was written is synced.
    Fsync,
}

/// A user with an application for five minutes.
pub(super) struct Trace {
    pub(super) events: Vec<(Duration, What)>,
    pub(super) touches: Vec<Duration>,
}

impl Trace {
    /// The trace of a user, from 0 on.
    pub(super) fn new(seed: u64, app: &App, user: u64) -> Trace {
        let touches = touches(seed, app, user);
        let mut random = Random::new(seed, &format!("mobifs {} {user}", app.name));
        let pace = 0.6 + 0.8 * random.unit();
        let mut trace = Trace { events: Vec::new(), touches };
        let (mut new, mut at) = (app.hot, 0.0);
        let each = pace * (app.grows + app.rewrites + app.fsyncs) / app.busy;
        while at < LENGTH.as_secs_f64() {
            // Work comes in bursts: what a second has is done in its busy part.
            at += -(1.0 - random.unit()).ln() / each;
            if at.fract() > app.busy {
                at = at.floor() + 1.0;
                continue;
            }
            let kind = random.unit() * (app.grows + app.rewrites + app.fsyncs);
            let what = if kind < app.grows {
                new += 1;
                What::Write(new)
            } else if kind < app.grows + app.rewrites {
                // What the user looks at moves on every half minute: other pages become hot.
                What::Write((at / 30.0) as u64 * 1_000_000_000 + random.zipf(app.hot))
            } else {
                What::Fsync
            };
            trace.events.push((Duration::from_secs_f64(at), what));
        }
        trace
    }

    pub(super) fn all(seed: u64, app: &App) -> Vec<Trace> {
        (0..USERS).map(|user| Trace::new(seed, app, user)).collect()
    }
}

/// When a user touches the screen: runs of quick touches, then longer looks.
fn touches(seed: u64, app: &App, user: u64) -> Vec<Duration> {
    let mut random = Random::new(seed, &format!("mobifs touches {} {user}", app.name));
    let (quick, look) = (0.3 + 0.5 * random.unit(), 3.0 + 7.0 * random.unit());
    let (stay_quick, stay_long) = (0.55 + 0.3 * random.unit(), 0.3 + 0.3 * random.unit());
    let (mut at, mut long, mut touches) = (0.0, false, Vec::new());
    while at < LENGTH.as_secs_f64() {
        touches.push(Duration::from_secs_f64(at));
        long = random.happens(if long { stay_long } else { 1.0 - stay_quick });
        let middle = if long { look } else { quick };
        at += middle * (0.45 * random.normal()).exp();
    }
    touches
}
