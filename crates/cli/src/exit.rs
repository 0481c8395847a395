//! Exit codes and the one place where errors are printed.

use crate::{habits, output};
use anyhow::Result;
use clap::error::ErrorKind;

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
/// After Ctrl-C: what a shell makes of SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// The codes of a command, and what they mean.
pub(crate) fn codes(command: &str) -> &'static [(u8, &'static str)] {
    match command {
        "fsck" => &[
            (SUCCESS, "The volume is clean."),
            (FSCK_REPAIRED, "Faults were found and repaired."),
            (FSCK_ERRORS_LEFT, "Errors were found and not repaired, or are left after the repair."),
            (FSCK_OPERATIONAL, "The volume could not be checked."),
            (FSCK_USAGE, "Wrong arguments."),
        ],
        "mount" => &[
            (SUCCESS, "Success."),
            (MOUNT_USAGE, "Wrong arguments or options."),
            (MOUNT_FAILURE, "The command failed; the reason is on standard error."),
        ],
        "umount" => &[
            (SUCCESS, "The volume is unmounted and complete on its device."),
            (MOUNT_USAGE, "Wrong arguments."),
            (
                MOUNT_FAILURE,
                "The volume is not unmounted, or its last writes are lost, as they failed or its daemon had been killed; the \
                 reason is on standard error.",
            ),
        ],
        "probe" => &[
            (SUCCESS, "The device holds a volume."),
            (FAILURE, "The device cannot be read."),
            (PROBE_NOTHING, "The device holds no volume, or the arguments are wrong."),
        ],
        "get" => &[
            (SUCCESS, "Everything was copied that the volume shows."),
            (
                FAILURE,
                "Some files were not copied or are incomplete, each of which is named on standard error, or the volume does not open.",
            ),
            (USAGE, "Wrong arguments."),
        ],
        "ls" => &[
            (SUCCESS, "Everything was listed."),
            (FAILURE, "Some files could not be read; each is named on standard error."),
            (USAGE, "Wrong arguments."),
        ],
        _ => &[
            (SUCCESS, "Success."),
            (FAILURE, "The command failed, or did only part of its work; the reason is on standard error."),
            (USAGE, "Wrong arguments."),
        ],
    }
}

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
    match (command(), output::failed()) {
        (Ok(code), Some(reason)) => {
            let reason = without_numbers(reason);
            match output::what_is_done() {
                Some(done) => tell(name, &format!("{done}, but its report is not complete: {reason}")),
                None => tell(name, &reason),
            }
            if code == SUCCESS { failure } else { code }
        }
        (Ok(code), _) => code,
        (Err(e), _) if is_closed_pipe(&e) => SUCCESS,
        (Err(e), _) => {
            tell(name, &sentence(&e));
            e.downcast_ref::<Coded>().map_or(failure, |c| c.code)
        }
    }
}

/// Tells why a command failed.
fn tell(name: &str, reason: &str) {
    if crate::log::is_detached() {
        tracing::error!("medfs {name}: {reason}");
    } else {
        errln!("medfs {name}: {reason}");
    }
}

/// An error as one sentence, what was being done first. A cause that its consequence ends with is told once.
pub(crate) fn sentence(e: &anyhow::Error) -> String {
    let mut text = String::new();
    for part in e.chain() {
        let part = match part.downcast_ref::<medfs::Error>() {
            Some(error) => damage(error),
            None => without_numbers(&part.to_string()),
        };
        if text.is_empty() {
            text = part;
        } else if !text.ends_with(&part) {
            text = format!("{text}: {part}");
        }
    }
    text
}

/// An error of the engine as its user reads it: damage is called so, with the place behind it for those who
/// know the format.
pub(crate) fn damage(error: &medfs::Error) -> String {
    let text = without_numbers(&error.to_string());
    match error {
        medfs::Error::Corrupt(_) => format!("the volume is damaged ({text})"),
        _ => text,
    }
}

/// Takes out the error numbers that the standard library puts behind the system's words.
pub(crate) fn without_numbers(message: &str) -> String {
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
    output::reader_left()
        || e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints what the argument parser has to say (help and version included) and returns the command's usage code.
/// `command` is as far as it was understood.
pub(crate) fn usage(e: &clap::Error, command: &str) -> u8 {
    match e.kind() {
        // Who names no command is shown all.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => drop(e.print()),
        _ if e.use_stderr() => errln!("{}", habits::sentence(e, command)),
        _ => {
            return run("help", FAILURE, || {
                e.print().map_err(output::explained)?;
                Ok(SUCCESS)
            });
        }
    }
    match command.split(' ').next().unwrap_or_default() {
        "mount" | "umount" => MOUNT_USAGE,
        "fsck" => FSCK_USAGE,
        _ => USAGE,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    #[test]
    fn a_cause_is_told_once() {
        let io = || std::io::Error::from_raw_os_error(2);
        let twice = Err::<(), _>(io()).with_context(|| format!("reading R: {}", io())).context("no page");
        assert_eq!(super::sentence(&twice.unwrap_err()), "no page: reading R: No such file or directory");
    }

    #[test]
    fn numbers_go() {
        let text =
            super::without_numbers("a.img: No such file or directory (os error 2): and more (os error 17)");
        assert_eq!(text, "a.img: No such file or directory: and more");
    }
}
