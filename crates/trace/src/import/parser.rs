//! What the parsers of all logs share.

use super::model::Model;

/// Understands one line after the other.
pub(super) trait Parser {
    /// `line` has no line feed.
    fn line(&mut self, line: &[u8], model: &mut Model<'_>) -> Result<(), String>;
}

/// A line in parts, to be shown in a message.
pub(super) fn shown(line: &[u8]) -> String {
    const SHOWN: usize = 60;
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned();
    if line.len() > SHOWN { format!("{text}...") } else { text }
}

/// A number of a field.
pub(super) fn number<T: std::str::FromStr>(field: Option<&str>, what: &str) -> Result<T, String> {
    let field = field.ok_or_else(|| format!("{what} is missing"))?;
    field.parse().map_err(|_| format!("{what} is '{}', no number that fits", shown(field.as_bytes())))
}

/// Refuses what no file can hold.
pub(super) fn check_range(offset: u64, len: u64) -> Result<(), String> {
    const LEN_MAX: u64 = 1 << 32;
    let fits = offset.checked_add(len).is_some_and(|end| end <= i64::MAX as u64) && len <= LEN_MAX;
    if fits {
        Ok(())
    } else {
        Err(format!("{len} bytes at {offset} are more than a file can hold or a request can have"))
    }
}
