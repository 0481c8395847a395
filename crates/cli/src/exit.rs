//! Exit codes and the one place where errors are printed.

use anyhow::Result;
use std::io::Write;

/// Done.
pub(crate) const SUCCESS: u8 = 0;
/// Any failure of a command without conventions of its own.
pub(crate) const FAILURE: u8 = 1;
/// Wrong arguments.
pub(crate) const USAGE: u8 = 2;
/// `probe`: no volume, as blkid says it.
pub(crate) const PROBE_NOTHING: u8 = 2;
/// `mount`: wrong arguments or options.
pub(crate) const MOUNT_USAGE: u8 = 1;
/// `mount`: mounting failed.
pub(crate) const MOUNT_FAILURE: u8 = 32;
/// `fsck`: errors were corrected.
pub(crate) const FSCK_REPAIRED: u8 = 1;
/// `fsck`: errors are left.
pub(crate) const FSCK_ERRORS_LEFT: u8 = 4;
/// `fsck`: the check itself failed.
pub(crate) const FSCK_OPERATIONAL: u8 = 8;
/// `fsck`: wrong arguments.
pub(crate) const FSCK_USAGE: u8 = 16;

/// An error that ends with a code of its own.
#[derive(Debug)]
pub(crate) struct Coded {
    code: u8,
    message: String,
}

impl Coded {
    /// An error with this code.
    pub(crate) fn new(code: u8, message: impl ToString) -> Coded {
        Coded { code, message: message.to_string() }
    }
}

impl std::fmt::Display for Coded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Coded {}

/// Runs a command; prints its error and returns the exit code.
pub(crate) fn run(name: &str, failure: u8, command: impl FnOnce() -> Result<u8>) -> u8 {
    match command() {
        Ok(code) => code,
        Err(e) if is_closed_pipe(&e) => SUCCESS,
        Err(e) => {
            let message = format!("medfs {name}: {}", sentence(&e));
            if crate::log::is_detached() {
                tracing::error!("{message}");
            } else {
                // Where standard error is closed there is nobody left to tell.
                let _ = writeln!(std::io::stderr(), "{message}");
            }
            e.downcast_ref::<Coded>().map_or(failure, |c| c.code)
        }
    }
}

/// An error and its causes in one sentence; a cause that the error before it tells already is not repeated.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    without_numbers(&text)
}

/// Takes out the error numbers that the standard library puts behind the system's words.
fn without_numbers(message: &str) -> String {
    let mut text = String::new();
    let mut parts = message.split(" (os error ");
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        text.push_str(
            part.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(')').unwrap_or(part),
        );
    }
    text
}

/// The reader of our output went away (`medfs ls image | head`): no error.
fn is_closed_pipe(e: &anyhow::Error) -> bool {
    e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints what the argument parser has to say (help and version included) and returns the command's usage code.
pub(crate) fn usage(e: &clap::Error, command: &str) -> u8 {
    let _ = e.print();
    match command {
        _ if !e.use_stderr() => SUCCESS,
        "mount" | "umount" => MOUNT_USAGE,
        "fsck" => FSCK_USAGE,
        _ => USAGE,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    #[test]
    fn a_cause_is_told_once() {
        let failed = std::io::Error::from_raw_os_error(2);
        let told = anyhow::Error::new(medfs_lab::Error::io("making /x")(failed)).context("lab");
        assert_eq!(super::sentence(&told), "lab: making /x: No such file or directory");
        let plain = Err::<(), _>(anyhow!("of it")).context("the end").unwrap_err();
        assert_eq!(super::sentence(&plain), "the end: of it");
    }

    #[test]
    fn numbers_go() {
        let text =
            super::without_numbers("a.img: No such file or directory (os error 2): and more (os error 17)");
        assert_eq!(text, "a.img: No such file or directory: and more");
    }
}
