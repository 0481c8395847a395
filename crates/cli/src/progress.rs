//! Progress bars: on standard error, and only where that is a terminal.

use crate::words::grouped;
use indicatif::{
    HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, WeakProgressBar,
};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The bar that was made last: while it is there, messages go above it.
static SHOWN: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

fn shown() -> Option<ProgressBar> {
    let shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    shown.as_ref().and_then(WeakProgressBar::upgrade).filter(|bar| !bar.is_finished())
}

/// Writes something to the terminal, which has no bar meanwhile.
pub(crate) fn above<T>(write: impl FnOnce() -> T) -> T {
    match shown() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Takes the bar away: the command ends.
pub(crate) fn end() {
    if let Some(bar) = shown() {
        bar.finish_and_clear();
    }
}

/// A bar over a known number of bytes.
pub(crate) fn bytes(what: &str, total: u64) -> ProgressBar {
    styled(what, Some(total), "{msg} {wide_bar} {bytes}/{total_bytes} {speed} {left}")
}

/// A spinner with a count of bytes, where the end is not known.
pub(crate) fn unknown(what: &str) -> ProgressBar {
    styled(what, None, "{spinner} {msg} {bytes} {speed}")
}

/// A bar over a known number of anything.
pub(crate) fn steps(what: &str, total: u64) -> ProgressBar {
    styled(what, Some(total), "{msg} {wide_bar} {human_pos}/{human_len} {rate} {left}")
}

/// A bar over a share of all that is to be done.
pub(crate) fn share(what: &str, total: u64) -> ProgressBar {
    styled(what, Some(total), "{msg} {wide_bar} {percent}% {left}")
}

/// A bar over what a check or a scan of a device does, with how fast it reads.
pub(crate) struct Scan(ProgressBar);

impl Scan {
    /// Steps of the bar.
    const STEPS: f64 = 1000.0;

    /// At its beginning.
    pub(crate) fn new(what: &str) -> Scan {
        Scan(styled(what, Some(Self::STEPS as u64), "{msg} {wide_bar} {percent}% {prefix} {left}"))
    }

    /// This share of all is done, for which so many bytes were read.
    pub(crate) fn at(&self, done: f64, bytes: u64) {
        let seconds = self.0.elapsed().as_secs_f64();
        if bytes > 0 && seconds > 0.0 {
            self.0.set_prefix(format!("{}/s", HumanBytes((bytes as f64 / seconds) as u64)));
        }
        self.0.set_position((done * Self::STEPS) as u64);
    }

    /// Takes the bar away.
    pub(crate) fn end(self) {
        self.0.finish_and_clear();
    }
}

/// Steps in a second, as people read a number; nothing before the first one.
fn rate(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 {
        let _ = out.write_str(&rate_shown(state.per_sec()));
    }
}

/// Bytes in a second; nothing before the first one.
fn speed(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 {
        let _ = write!(out, "{}/s", HumanBytes(state.per_sec() as u64));
    }
}

/// The time that is left; nothing where it cannot be known yet.
fn left(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 && state.len().is_some_and(|len| state.pos() < len) {
        let _ = write!(out, "{:#} left", HumanDuration(state.eta()));
    }
}

fn rate_shown(per_second: f64) -> String {
    match per_second {
        rate if rate >= 10.0 => format!("{}/s", grouped(rate.round() as u64)),
        rate => format!("{rate:.1}/s"),
    }
}

fn styled(what: &str, total: Option<u64>, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // A bar over nothing is full: one whose end is not known yet begins empty.
    let total = total.filter(|total| *total > 0);
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let style = style.with_key("rate", rate).with_key("speed", speed).with_key("left", left);
    bar.set_style(if shows_utf8() { style } else { style.progress_chars("#>-").tick_chars("|/-\\ ") });
    bar.set_message(what.to_owned());
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.downgrade());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Whether the terminal is one for UTF-8, by the locale.
fn shows_utf8() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    let locale = locale.to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_short_number() {
        for (rate, text) in [(0.0, "0.0/s"), (0.26, "0.3/s"), (9.94, "9.9/s"), (1664.2934, "1,664/s")] {
            assert_eq!(rate_shown(rate), text);
        }
    }
}
