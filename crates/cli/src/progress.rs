//! Progress bars: on standard error, and only where that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A bar over a known number of bytes.
pub(crate) fn bytes(what: &str, total: u64) -> ProgressBar {
    styled(what, Some(total), "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
}

/// A spinner with a count of bytes, where the end is not known.
pub(crate) fn unknown(what: &str) -> ProgressBar {
    styled(what, None, "{spinner} {msg} {bytes} {bytes_per_sec}")
}

/// A bar over a known number of anything.
pub(crate) fn steps(what: &str, total: u64) -> ProgressBar {
    styled(what, Some(total), "{msg} {wide_bar} {pos}/{len} {per_sec} {eta}")
}

fn styled(what: &str, total: Option<u64>, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // A bar over nothing is full: one whose end is not known yet begins empty.
    let total = total.filter(|total| *total > 0);
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
