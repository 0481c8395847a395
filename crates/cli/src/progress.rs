//! Progress bars: on standard error, and only where that is a terminal.

use crate::words::grouped;
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

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
    bar.set_style(style.with_key("rate", rate).with_key("speed", speed).with_key("left", left));
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
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
