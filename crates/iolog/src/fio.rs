//! fio's iolog, versions 2 and 3 (fio's documentation, "Trace file format"): a line names a file and what is
//! done with it. Version 3 puts the time in front, in microseconds; version 2 says how long to wait.

use crate::{Span, number, shown};

/// An iolog, read line by line.
#[derive(Debug, Default)]
pub struct Iolog {
    /// 0 before the first line.
    version: u32,
    /// Nanoseconds since the log began.
    clock: u64,
}

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// When, in nanoseconds since the log began.
    pub at: u64,
    /// The file that the line names.
    pub file: &'a str,
    /// What is done with it.
    pub action: Action,
}

/// What is done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The log will use it.
    Add,
    /// It is opened.
    Open,
    /// It is closed.
    Close,
    /// Bytes are read.
    Read(Span),
    /// Bytes are written.
    Write(Span),
    /// Bytes are discarded.
    Trim(Span),
    /// fsync.
    Sync,
    /// fdatasync.
    DataSync,
}

/// Whether a log begins so.
pub fn is_header(line: &str) -> bool {
    version(line).is_some()
}

fn version(line: &str) -> Option<u32> {
    match line.trim() {
        "fio version 2 iolog" => Some(2),
        "fio version 3 iolog" => Some(3),
        _ => None,
    }
}

impl Iolog {
    /// Understands the next line; `None` where it asks for nothing: the first one, empty ones, and waits.
    ///
    /// # Errors
    /// What of the line is no entry, as a phrase.
    pub fn line<'a>(&mut self, text: &'a str) -> Result<Option<Entry<'a>>, String> {
        if self.version == 0 {
            self.version = version(text).ok_or_else(|| {
                format!("'{}' does not begin an iolog: the first line is 'fio version 2 iolog' or 'fio version 3 iolog'", shown(text))
            })?;
            return Ok(None);
        }
        let mut fields = text.split_whitespace().peekable();
        if fields.peek().is_none() {
            return Ok(None);
        }
        if self.version == 3 {
            self.clock = nanoseconds(number(fields.next(), "the time")?)?;
        }
        let file = fields.next().ok_or("the file is missing")?;
        let action = fields.next().ok_or("the action is missing")?;
        let action = match action {
            "add" => Action::Add,
            "open" => Action::Open,
            "close" => Action::Close,
            "wait" => {
                let wait = nanoseconds(number(fields.next(), "the time to wait")?)?;
                self.clock = self.clock.checked_add(wait).ok_or("the time is out of range")?;
                return Ok(None);
            }
            "sync" => Action::Sync,
            "datasync" => Action::DataSync,
            "read" | "write" | "trim" => {
                let offset = number(fields.next(), "the offset")?;
                let span = Span { offset, len: number(fields.next(), "the length")? };
                match action {
                    "read" => Action::Read(span),
                    "write" => Action::Write(span),
                    _ => Action::Trim(span),
                }
            }
            other => return Err(format!("'{}' is not an action", shown(other))),
        };
        Ok(Some(Entry { at: self.clock, file, action }))
    }
}

fn nanoseconds(micros: u64) -> Result<u64, String> {
    micros.checked_mul(1000).ok_or_else(|| "the time is out of range".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<(u64, &str, Action)> {
        let mut log = Iolog::default();
        let entry = |line| log.line(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        text.lines().filter_map(entry).map(|e| (e.at, e.file, e.action)).collect()
    }

    #[test]
    fn version_2_waits() {
        let found = entries(
            "fio version 2 iolog\n/a add\n\n/a open\n/a wait 1500\n/a write 4096 512\n/a datasync\n/a close\n",
        );
        let written = Action::Write(Span { offset: 4096, len: 512 });
        let wanted = [
            (0, "/a", Action::Add),
            (0, "/a", Action::Open),
            (1_500_000, "/a", written),
            (1_500_000, "/a", Action::DataSync),
            (1_500_000, "/a", Action::Close),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn version_3_has_times() {
        let found = entries(
            "fio version 3 iolog\n24 /f add\n129 /f read 0 4096\n1906 /f trim 4096 8192\n2244 /f sync\n",
        );
        let wanted = [
            (24_000, "/f", Action::Add),
            (129_000, "/f", Action::Read(Span { offset: 0, len: 4096 })),
            (1_906_000, "/f", Action::Trim(Span { offset: 4096, len: 8192 })),
            (2_244_000, "/f", Action::Sync),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, what) in [
            ("fio version 1 iolog", "'fio version 1 iolog' does not begin an iolog"),
            ("fio version 2 iolog\n/a", "the action is missing"),
            ("fio version 2 iolog\n/a dance", "'dance' is not an action"),
            ("fio version 2 iolog\n/a write 0 x", "the length is 'x'"),
            ("fio version 2 iolog\n/a read", "the offset is missing"),
            ("fio version 2 iolog\n/a wait 18446744073709551615", "the time is out of range"),
            ("fio version 3 iolog\n/a add", "the time is '/a'"),
            ("fio version 3 iolog\n5", "the file is missing"),
            ("fio version 3 iolog\n18446744073709551615 /a add", "the time is out of range"),
        ] {
            let mut log = Iolog::default();
            let message = text.lines().find_map(|line| log.line(line).err()).expect("a line is refused");
            assert!(message.contains(what), "{text}: {message}");
        }
        assert!(is_header("fio version 3 iolog\n") && !is_header("fio version 4 iolog"));
    }
}
