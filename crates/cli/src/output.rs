//! What the commands print, and what became of it.
//!
//! A reader that goes away (`medfs fsck IMAGE | head -1`) is no error: work that only prints ends, other work
//! goes on. What cannot be printed for another reason, as on a full disk, is one, and the command does not
//! end with success ([`crate::exit::run`]).

use crate::{progress, words};
use rustix::termios::{isatty, tcgetwinsize};
use std::fmt::Arguments;
use std::io::{self, ErrorKind, StdoutLock, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a line could not be printed.
static FAILED: OnceLock<String> = OnceLock::new();

/// The reader of an [`Output`] went away.
static READER_LEFT: AtomicBool = AtomicBool::new(false);

/// Prints a line on standard output. Where nobody reads it any more, the work goes on all the same.
macro_rules! outln {
    () => { $crate::output::line(format_args!("")) };
    ($($what:tt)+) => { $crate::output::line(format_args!($($what)+)) };
}

/// Prints a line on standard error. Where nobody reads it, there is nobody left to tell.
macro_rules! errln {
    ($($what:tt)*) => { $crate::output::error_line(format_args!($($what)*)) };
}

/// Prints a line on standard error.
pub(crate) fn error_line(text: Arguments<'_>) {
    let line = fitting(printable(text.to_string()), io::stderr());
    let _ = progress::above(|| writeln!(io::stderr(), "{line}"));
}

/// Control characters of names that a text has as escapes, as in names that are quoted: none moves the cursor. JSON has
/// escapes of its own.
fn printable(text: String) -> String {
    let is_control = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.starts_with(['{', '[']) || !text.contains(is_control) {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_control(c) {
            true => shown.extend(c.to_string().bytes().map(|byte| format!("\\{byte:03o}"))),
            false => shown.push(c),
        }
    }
    shown
}

/// A sentence in lines that fit the terminal that it goes to. A file or a pipe gets it in one line, and so does
/// a terminal what is no sentence: lists, tables, JSON.
pub(crate) fn fitting(text: String, to: impl AsFd) -> String {
    let is_sentence = !text.starts_with([' ', '{', '[']) && !text.contains('\n');
    if !is_sentence || text.chars().count() <= words::COLUMNS || !isatty(&to) {
        return text;
    }
    let columns = tcgetwinsize(to).map_or(0, |size| usize::from(size.ws_col));
    words::wrapped(&text, if columns == 0 { words::COLUMNS } else { columns })
}

/// Prints a line on standard output.
pub(crate) fn line(text: Arguments<'_>) {
    let line = fitting(printable(text.to_string()), io::stdout());
    if let Err(e) = progress::above(|| writeln!(io::stdout(), "{line}"))
        && e.kind() != ErrorKind::BrokenPipe
    {
        let _ = FAILED.set(explained(e).to_string());
    }
}

/// What the command has changed, once that is done.
static DONE: OnceLock<&str> = OnceLock::new();

/// Notes what was changed: a command that cannot print its report then says so.
pub(crate) fn done(what: &'static str) {
    let _ = DONE.set(what);
}

/// What the command has changed.
pub(crate) fn what_is_done() -> Option<&'static str> {
    DONE.get().copied()
}

/// Why not all lines were printed, where that is so.
pub(crate) fn failed() -> Option<&'static str> {
    FAILED.get().map(String::as_str)
}

/// Whether an [`Output`] failed because its reader went away.
pub(crate) fn reader_left() -> bool {
    READER_LEFT.load(Ordering::Acquire)
}

/// Standard output for what is printed piece by piece, whose errors end the command.
pub(crate) struct Output(StdoutLock<'static>);

/// Standard output.
pub(crate) fn stdout() -> Output {
    Output(io::stdout().lock())
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(explained)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(explained)
    }
}

pub(crate) fn explained(e: io::Error) -> io::Error {
    match e.kind() {
        // Those who write all of a buffer try again.
        ErrorKind::Interrupted => return e,
        ErrorKind::BrokenPipe => READER_LEFT.store(true, Ordering::Release),
        _ => {}
    }
    io::Error::new(e.kind(), format!("cannot write to standard output: {e}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn control_characters_are_escapes() {
        let shown = |text: &str| super::printable(text.to_owned());
        assert_eq!(shown("a\tb\nc \u{e4}"), "a\tb\nc \u{e4}");
        assert_eq!(shown("{\"a\": \"\u{9b}\"}"), "{\"a\": \"\u{9b}\"}");
        assert_eq!(shown("/d/\0\x1b[2J\u{9b}"), "/d/\\000\\033[2J\\302\\233");
    }
}
